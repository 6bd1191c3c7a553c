"""Judging a group of answers: the scores a line lists, and their mean, deviation and advantages said beside them.

A line counts only if it, its heading or the line that listed the scores speaks of a group. By n and by n − 1 are both
accepted, and so are the advantages of GRPO, Dr. GRPO and RLOO, each from the numbers as shown or unrounded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from mingce.explain.claims.expressions import Number
from mingce.explain.claims.reading import Passage, Statement
from mingce.explain.claims.rounding import HALF, near
from mingce.explain.claims.tables import Table, table_at
from mingce.explain.claims.verdicts import Verdict, note

REACH, MOST, FEWEST, BESIDE, OFF = 4, 64, 3, 14, 2e-4
"""For so many statements after its scores a group is spoken of; so many scores are read;
so many characters before a mean say whose it is; what an ε beside the std may do."""
_NUMBER = r"[-−+]?(?:\d+\.\d+|\d+|\.\d+)"
_MANY = rf"(?:[\[［(（]\s*)?({_NUMBER}(?:\s*[,，、/]\s*{_NUMBER})+)(?:\s*[\]］)）])?"
_IS = r"\s*(?:=|≈|:|：|是|为|等于|约为?|is|are|of)?\s*"
_GROUP = re.compile(r"grpo|rloo|\bgroups?\b|(?<!数)组", re.IGNORECASE)
_TOKENWISE = re.compile(r"\btokens?\b|\bPPO\b|\bGAE\b|λ|δ|\bV\(|values?\s*=|价值", re.IGNORECASE)
"""What follows is about tokens, no longer about the group."""
_SCORES = re.compile(
    rf"(?<![A-Za-z_])(?:scores?|rewards?|得分|分数|奖励)[^\d\n\[［(（=:：]{{0,12}}{_IS}{_MANY}", re.IGNORECASE
)
_MEAN = re.compile(
    rf"(?:均值|平均(?:值|分|得分|奖励)?|\b(?:mean|average)\b|μ){_IS}({_NUMBER})(?!\s*[-+*/×·\d]|\.\d)", re.IGNORECASE
)
_STD = re.compile(rf"(?:标准差|\bstd\b|\bstandard deviation\b|σ){_IS}({_NUMBER})(?!\s*[-+*/×·\d]|\.\d)", re.IGNORECASE)
_OTHERS = re.compile(r"别人|其余|其他|其它|另|除|留一|\b(?:others?|they|rest|remaining|leav\w+)\b", re.IGNORECASE)
_ADVANTAGES = re.compile(
    rf"(?:优势|\badvantages?\b|(?<![A-Za-z_])(?:A|Â)(?:_i)?(?![A-Za-z_])){_IS}(?:{_MANY}|({_NUMBER})(?!\s*[-+*/×·,，、\d]|\.\d))",
    re.IGNORECASE,
)


def judge_groups(passage: Passage) -> Iterator[Verdict]:
    """A verdict on every mean, deviation and advantage that a passage gives for a group's scores."""
    if passage.by_user:
        return
    scores: list[Number] = []
    last = -REACH - 1
    for place, statement in enumerate(passage.statements):
        speaks = _GROUP.search(statement.text) or _GROUP.search(statement.heading)
        listed = _SCORES.search(statement.text) if speaks else None
        if listed:
            scores, last = _numbers(listed[1])[:MOST], place
        elif _TOKENWISE.search(statement.text):
            last = -REACH - 1
        if speaks and (
            table := table_at(passage.statements, place + 1) if place + 1 < len(passage.statements) else None
        ):
            yield from _of_table(passage, statement, table)
        if len(scores) > 1 and place - last <= REACH:
            rest = statement.text[listed.end() :] if listed else statement.text
            yield from _judged(passage, statement, rest, scores)


def _of_table(passage: Passage, statement: Statement, table: Table) -> Iterator[Verdict]:
    """A table of a group's answers, one a row: its advantages, and the mean and deviation said in front of it."""
    columns = {column.kind: column for column in table.columns if None not in column.numbers}
    scored = columns.get("scores") or columns.get("rewards")
    if scored is None or columns.keys() & {"values", "deltas", "returns"} or len(scored.numbers) < FEWEST:
        return
    scores = [number for number in scored.numbers if number is not None]
    yield from _judged(passage, statement, statement.text, scores)
    if "advantages" in columns:
        numbers = [number for number in columns["advantages"].numbers if number is not None]
        text = f"A = [{', '.join(_text(number.value, number.decimals) for number in numbers)}]"
        yield from _judged(passage, columns["advantages"].statements[0], text, scores)


def _judged(passage: Passage, statement: Statement, text: str, scores: Sequence[Number]) -> Iterator[Verdict]:
    values = [number.value for number in scores]
    mean = math.fsum(values) / len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    deviations = [math.sqrt(squares / (len(values) - 1)), math.sqrt(squares / len(values))]
    shown_mean, shown_std = _single(_MEAN, text), _single(_STD, text)
    where = passage.where(statement)
    for name, number, right in (("mean", shown_mean, [mean]), ("std", shown_std, deviations)):
        if number is None:
            continue
        claim = f"{name} = {_text(number.value)}"
        if any(near(number, one, HALF) for one in right):
            yield Verdict("right", where, "group", claim)
        else:
            values_text = " / ".join(dict.fromkeys(_text(one) for one in right))
            yield Verdict("wrong", where, "group", claim, notes=(note(f"check_log.group_{name}", right=values_text),))
    if found := _ADVANTAGES.search(text):
        numbers = _numbers(found[1] or found[2])
        claim = f"A = {', '.join(_text(number.value) for number in numbers)}"
        means = [mean, *([shown_mean.value] if shown_mean else [])]
        methods = _methods(values, means, [*deviations, *([shown_std.value] if shown_std else [])])
        if any(_fit(numbers, one) for one in methods):
            yield Verdict("right", where, "group", claim)
        elif len(numbers) in (1, len(values)):
            listed = ", ".join(_text(one) for one in methods[0])
            yield Verdict("wrong", where, "group", claim, notes=(note("check_log.group_advantages", right=listed),))


def _single(pattern: re.Pattern[str], text: str) -> Number | None:
    """The number that the text gives for it; not the one of the others of the group."""
    found = pattern.search(text)
    if found is None or _OTHERS.search(text[max(0, found.start() - BESIDE) : found.start()]):
        return None
    return _numbers(found[1])[0]


def _methods(values: Sequence[float], means: Sequence[float], deviations: Sequence[float]) -> list[list[float]]:
    """The advantages of the group by GRPO (first), Dr. GRPO and RLOO."""
    grpo = [[(one - mean) / std if std else 0.0 for one in values] for mean in means for std in deviations]
    centred = [[one - mean for one in values] for mean in means]
    others = [[one - (math.fsum(values) - one) / (len(values) - 1) for one in values]]
    return [*grpo, *centred, *others]


def _fit(numbers: Sequence[Number], right: Sequence[float]) -> bool:
    """Whether they are all the advantages in order, or each is one of them."""
    decimals = max(number.decimals for number in numbers)
    shown = [replace(number, decimals=decimals) for number in numbers]
    if len(shown) == len(right):
        return all(near(number, one, HALF, off=OFF) for number, one in zip(shown, right, strict=True))
    return all(any(near(number, one, HALF, off=OFF) for one in right) for number in shown)


def _numbers(text: str) -> list[Number]:
    found = (one.replace("−", "-") for one in re.findall(_NUMBER, text))
    return [Number(float(one), len(one.partition(".")[2])) for one in found]


def _text(value: float, decimals: int | None = None) -> str:
    if decimals is not None:
        return f"{value:.{max(decimals, 0)}f}"
    return f"{value:.4f}".rstrip("0").rstrip(".").replace("-", "−") or "0"
