"""Chances of a group of answers: all alike, at least one right, pass@k; and scores that are told by counting."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from mingce.explain.answer import Answer
from mingce.explain.sums.lists import NUMBER, count, number, numbers_after, told
from mingce.explain.sums.rows import fine as shown

if TYPE_CHECKING:
    from mingce.explain.sums.answers import Asked

LARGEST_GROUP = 64
_HALVES = re.compile(
    r"一半(?:是)?(?:答|做)?对|对错各半|各一半|\bhalf\b[^.;?]{0,16}\b(?:right|correct|pass\w*)", re.IGNORECASE
)
_FRACTION = re.compile(r"(?<![\d./^])(\d{1,3})/(\d{1,3})(?![\d./])")
_WRONG = re.compile(r"错|\b(?:wrong|incorrect|fail\w*)", re.IGNORECASE)


def alike(asked: Asked) -> Answer | None:
    """How often all answers of a group are right, or wrong, or at least one is right."""
    if not asked.says("alike", "at_least") or not asked.says("how_likely") or asked.lists:
        return None
    chance, n = solve_rate(asked), group_size(asked)
    if chance is None:
        return None
    if n is None:
        return asked.answer("sum_alike_no_size", [], p=shown(chance)) if asked.says("group") else None
    right, wrong = chance**n, (1 - chance) ** n
    lines = [
        f"p^n = {shown(chance)}^{n} = {shown(right)}",
        f"(1 − p)^n = {shown(1 - chance)}^{n} = {shown(wrong)}",
        f"p^n + (1 − p)^n = {shown(right + wrong)}",
        f"1 − (1 − p)^n = {shown(1 - wrong)}",
    ]
    values = {"right": right, "wrong": wrong, "both": right + wrong, "mixed": 1 - right - wrong, "one": 1 - wrong}
    said = {name: _share(x) for name, x in values.items()}
    return asked.plain(asked.text_of("sum_alike", p=shown(chance), n=n, **said), lines)


def _share(x: float) -> str:
    """One that is not quite 1 is not shown as 1."""
    return "> 0.9999" if x < 1 and shown(x) == "1" else shown(x)


def pass_at(asked: Asked) -> Answer | None:
    """pass@k of a chance, or of so many right answers among so many."""
    sizes = {int(k) for k in re.findall(r"pass\s?@\s?(\d{1,4})", asked.text, re.IGNORECASE)}
    first = re.search(rf"pass\s?@\s?1\s*(?:=|is|of|是|为|:|：)\s*({NUMBER})", asked.text, re.IGNORECASE)
    sizes -= {1} if first else set()
    if not sizes or min(sizes) < 1:
        return None
    counted, lines, said = counted_answers(asked), [], []
    chance = number(first[1]) if first and 0 < number(first[1]) < 1 else solve_rate(asked)
    for k in sorted(sizes):
        if counted is not None:
            right, n = counted
            if k > n:
                return asked.answer("sum_pass_too_many", [], k=k, n=n)
            value = 1 - math.comb(n - right, k) / math.comb(n, k)
            lines.append(f"1 − C({n - right}, {k})/C({n}, {k}) = {shown(value)}")
        elif chance is not None:
            value = 1 - (1 - chance) ** k
            lines.append(f"1 − (1 − {shown(chance)})^{k} = {shown(value)}")
        else:
            return None
        said.append(f"pass@{k} = {shown(value)}")
    return asked.answer("sum_pass_counted" if counted is not None else "sum_pass", lines, rows=", ".join(said))


def solve_rate(asked: Asked) -> float | None:
    """The one chance of an answer to be right that is given, now or before."""
    plain = _FRACTION.sub(lambda one: f"{int(one[1]) / int(one[2]):.12g}" if int(one[2]) else one[0], asked.text)
    earlier = asked.counts.get("solve_rate", 0.0)
    said = {x for x in numbers_after(plain, "counts").get("solve_rate", [earlier]) if 0 < x < 1}
    if len(said) != 1:
        return None
    asked.counts["solve_rate"] = chance = said.pop()
    return chance


def group_size(asked: Asked) -> int | None:
    """How many answers a group has."""
    earlier = asked.counts.get("group_size", 0.0)
    said = {int(n) for n in numbers_after(asked.text, "counts").get("group_size", [earlier]) if n >= 2 and n == int(n)}
    if not said and asked.counts.get("samples", 0) >= 2:
        said = {int(asked.counts["samples"])}
    return said.pop() if len(said) == 1 else None


def counted_answers(asked: Asked) -> tuple[int, int] | None:
    """How many answers are right and how many there are: `3 of 8 correct`, 16 条里对了 3 条, 5 对 3 错."""
    found: set[tuple[int, int]] = set()
    for match in told("counted_of", asked.text):
        part, whole = int(count(match["part"])), int(count(match["whole"]))
        found.add((whole - part if _WRONG.search(match["which"]) else part, whole))
    for match in told("counted_both", asked.text):
        right, wrong = int(count(match["right"])), int(count(match["wrong"]))
        found.add((right, right + wrong))
    size = group_size(asked)
    if not found and size is not None:
        found |= {(size - int(count(match["wrong"])), size) for match in told("all_but", asked.text)}
    if not found and size is not None and size % 2 == 0 and _HALVES.search(asked.text):
        found.add((size // 2, size))
    if len(found) != 1:
        return None
    right, whole = found.pop()
    return (right, whole) if 0 <= right <= whole and 2 <= whole <= LARGEST_GROUP else None


def counted_scores(asked: Asked) -> tuple[list[float], str] | None:
    """The scores of answers that are counted, and a sentence on what a right and a wrong one was taken to get."""
    counted = counted_answers(asked)
    if counted is None:
        return None
    right, whole = counted
    paid = {name: {number(match["paid"]) for match in told(name, asked.text)} for name in ("paid_right", "paid_wrong")}
    if any(len(one) > 1 for one in paid.values()):
        return None
    best, least = (next(iter(paid[name]), usual) for name, usual in (("paid_right", 1.0), ("paid_wrong", 0.0)))
    if not paid["paid_wrong"] and re.search(r"[-−]\s?\d", asked.text):
        return None  # a number below 0 that was not understood
    note = asked.text_of("sum_counted", right=right, wrong=whole - right, best=shown(best), least=shown(least))
    return [best] * right + [least] * (whole - right), note
