"""How the losses of several answers' tokens are averaged: typed losses in each way, and what one token weighs."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from mingce.base.numbers import number as shown
from mingce.explain.answer import Answer
from mingce.explain.sums import rows
from mingce.explain.sums.lists import NUMBER, number, number_after, numbers_after

if TYPE_CHECKING:
    from mingce.explain.sums.answers import Asked

FEW = 8
_LOSSES = re.compile(
    rf"(?:loss(?:es)?|损失)(?!\d)\s*(?:都|each|of|is|are|=|是|为|:|：)*\s*({NUMBER}(?:[\s,，、]+{NUMBER})*)",
    re.IGNORECASE,
)
_SAID_LOSS = re.compile(r"(?:loss(?:es)?|损失)(?![A-Za-z])", re.IGNORECASE)
_ALONE = re.compile(rf"(?<![\w.第-]){NUMBER}(?!\w|\.\d|\s*(?:条|个|tokens?))")
_LENGTHS = re.compile(r"\d+(?:\s*(?:,|，|、|and|和|与)+\s*\d+)+(?=[\s-]*(?:个\s*)?tokens?(?![-\w]))", re.IGNORECASE)


def aggregated(asked: Asked) -> Answer | None:
    """Two or more answers with the losses of their tokens, averaged in each way."""
    losses, lengths = asked.lists.get("losses"), asked.lists.get("lengths")
    answers = _losses_of(asked.text)
    if losses is not None and lengths is not None and len(losses) == len(lengths):
        answers = [[loss] * int(n) for loss, n in zip(losses, lengths, strict=True) if 1 <= n <= rows.LONGEST_ROW]
    elif lengths is not None and len(answers) == len(lengths):
        answers = [row * int(n) for row, n in zip(answers, lengths, strict=True) if 1 <= n <= rows.LONGEST_ROW]
    elif lengths is not None and len(each := _in_turn(asked.text)) == len(lengths):
        answers = [[loss] * int(n) for loss, n in zip(each, lengths, strict=True) if 1 <= n <= rows.LONGEST_ROW]
    if len(answers) < 2 or not asked.says("aggregate"):
        return None
    found = rows.aggregated(answers)
    asked.code.append("mingce.specs.losses.agg_loss")
    said = "; ".join(f"{name} = {shown(x)}" for name, x in found.items())
    return asked.answer("sum_aggregated", rows.aggregation_lines(answers, found), rows=said)


def _losses_of(text: str) -> list[list[float]]:
    """Each answer's losses, where they are said one answer after another: "4 tokens with losses 1, 1, 1, 1; …"."""
    answers, start = [], 0
    for match in _LOSSES.finditer(text):
        row = [number(one) for one in re.findall(NUMBER, match[1])]
        count = number_after(text[start : match.start()], "counts").get("steps", 1.0)
        start = match.end()
        answers.append(row * int(count) if len(row) == 1 and 1 <= count <= rows.LONGEST_ROW else row)
    return answers


def _in_turn(text: str) -> list[float]:
    """One loss for all tokens of each answer: "in the first the loss is 1, in the second 0.5"."""
    match = _SAID_LOSS.search(text)
    return [] if match is None else [number(one) for one in _ALONE.findall(text[match.end() :])]


def token_weights(asked: Asked) -> Answer | None:
    """How much one token of each of several answers weighs in the loss, by the way of averaging."""
    if "losses" in asked.lists or not asked.says("weighs") or not asked.says("aggregate"):
        return None
    together = _LENGTHS.search(asked.text)
    each = [n for n in numbers_after(asked.text, "counts").get("steps", []) if n > 1]
    lengths = asked.lists.get("lengths") or ([*map(number, re.findall(NUMBER, together[0]))] if together else each)
    if not 2 <= len(lengths) <= FEW or min(lengths) < 1 or any(n != int(n) for n in lengths):
        return None
    total, many = math.fsum(lengths), len(lengths)
    lines = [f"token-mean: 1/{shown(total)} = {shown(1 / total)}"]
    lines += [f"seq-mean-token-mean: 1/({many}·{shown(n)}) = {shown(1 / (many * n))}" for n in lengths]
    asked.code.append("mingce.specs.losses.agg_loss")
    within = ", ".join(f"{shown(n)}: {shown(1 / (many * n))}" for n in lengths)
    shares = ", ".join(f"{shown(n)}: {shown(n / total)}" for n in lengths)
    return asked.answer("sum_weights", lines, token=shown(1 / total), rows=within, shares=shares, each=shown(1 / many))
