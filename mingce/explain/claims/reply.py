"""A language model's reply about a rollout, held against that rollout: `judge_reply(text, rollout)`.

The rollout's columns and settings are what the reply is judged by, before anything the reply itself states. A sentence
with a number that is none of the rollout's, and in no equation that holds, is "unverified".
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain as joined
from typing import Any

from mingce.algorithms import reference
from mingce.explain.claims.chains import chains
from mingce.explain.claims.check import judge
from mingce.explain.claims.context import GLOBAL
from mingce.explain.claims.expected import Reading
from mingce.explain.claims.expressions import Number, evaluate, literals
from mingce.explain.claims.extraction import facts
from mingce.explain.claims.lists import claim_text, fit_of
from mingce.explain.claims.marking import LONGEST_LINE, Segment, lines_of, numbers_in, segments, sentences_of
from mingce.explain.claims.names import CREDIT_KINDS
from mingce.explain.claims.plain import plain
from mingce.explain.claims.quantities import Fact, Scalar, Series, Setting, Where
from mingce.explain.claims.reading import passage_of
from mingce.explain.claims.rounding import same_shape
from mingce.explain.claims.sums import step_faults
from mingce.explain.claims.verdicts import Answer, Verdict, note
from mingce.record.rollout import Rollout

DECIMALS = 12
LONGEST = 2_000_000
SAME = 1e-7
LEAST_IN_TABLE = 2
"""How many numbers of a table's column must be the rollout's for the others to be wrong: its rows may be no tokens."""
_KINDS = {
    "response_mask": "mask", "whitened_advantages": "whitened",
    **{name: name for name in (
        "scores", "kl", "rewards", "values", "deltas", "advantages", "returns", "ratio", "old_log_probs",
        "ref_log_probs", "new_log_probs",
    )},
}  # fmt: skip


def judge_reply(text: str, rollout: Rollout) -> list[Segment]:
    """The reply sentence by sentence: right, wrong, unverified, or plain where it has no numbers to judge."""
    text = text[:LONGEST]
    given = list(_facts(rollout))
    passage = passage_of(text)
    claims = list(facts(passage))
    if not _counts_from_one(claims, rollout):
        given.append(Setting("base", 0.0, _WHERE))
    verdicts = [*judge([*given, *claims], [passage]).verdicts, *_restated(claims, given)]
    known = Known(rollout)
    return [part for one in segments(text, verdicts) for part in _verified(one, known)]


_WHERE = Where(0, None, GLOBAL, 0, "")


def _facts(rollout: Rollout) -> Iterator[Fact]:
    """The rollout's columns and settings as a text in front of the reply would give them."""
    for name, kind in _KINDS.items():
        column = rollout.columns.get(name)
        if column is not None and len(column) > 1:
            row = tuple(_number(x) if m or kind == "mask" else None for x, m in zip(column, rollout.mask, strict=True))
            if any(row) and (None not in row or 0 in rollout.mask):
                yield Series(kind, (row,), _WHERE, holes=None in row)
    settings = rollout.settings.as_dict()
    for name in ("gamma", "lam", "beta"):
        if isinstance(settings.get(name), int | float):
            yield Setting(name, float(settings[name]), _WHERE)
    yield Setting("after", float(rollout.bootstrap), _WHERE)


def _number(x: Any) -> Number | None:
    return None if x is None or not math.isfinite(x) else Number(float(x), DECIMALS)


def _counts_from_one(claims: Sequence[Fact], rollout: Rollout) -> bool:
    """True if the reply counts tokens from 1: it says so, or names a token that there is not when counted from 0."""
    if any(isinstance(fact, Setting) and fact.name == "base" for fact in claims):
        return True
    indices = [
        fact.index for fact in claims if isinstance(fact, Scalar) and fact.kind != "values" and not fact.from_zero
    ]
    return bool(indices) and 0 not in indices and max(indices) == len(rollout.tokens)


def _restated(claims: Sequence[Fact], given: Sequence[Fact]) -> Iterator[Verdict]:
    """Lists that are measured, not computed, against the rollout's own; one that is mostly other is another case."""
    columns = {fact.kind: fact for fact in given if isinstance(fact, Series)}
    for fact in claims:
        own = columns.get(fact.kind) if isinstance(fact, Series) else None
        if not isinstance(fact, Series) or own is None or fact.kind in CREDIT_KINDS or fact.kind == "whitened":
            continue
        rows = (own.values, tuple(tuple(0.0 if n is None else n.value for n in row) for row in own.rows))
        claim, listed = claim_text(fact), _without_end(fact, own)
        fits = [fit_of(listed, Reading({fact.kind: one}, "")) for one in rows if same_shape(listed, one)]
        least = LEAST_IN_TABLE if fact.places else 1
        if any(not fit.wrong for fit in fits):
            yield Verdict("right", fact.where, fact.kind, claim, fact.rows)
        elif (
            any(2 * fit.hits >= fit.total and fit.hits >= least for fit in fits)
            and not fact.where.supposed
            and not fact.variant
        ):
            why = (note("check_log.rollout_gives"),)
            yield Verdict("wrong", fact.where, fact.kind, claim, fact.rows, (Answer(own.values),), notes=why)


def _without_end(fact: Series, own: Series) -> Series:
    """A table's column of the chosen tokens without its row for the state behind the last one."""
    row, chosen = fact.rows[0], len(own.values[0])
    ends = fact.kind == "values" or row[-1] is None
    if not fact.places or fact.holes or not ends or len(row) != chosen + 1 or None in row[:-1]:
        return fact
    short = replace(fact, rows=(row[:-1],))
    return fact if fit_of(short, Reading({fact.kind: own.values}, "")).wrong else short


def _verified(part: Segment, known: Known) -> Iterator[Segment]:
    """A segment by its numbers: right only if none of them is of unknown source."""
    if part.status == "wrong":
        yield part
        return
    for line in lines_of(part.text):
        for piece in sentences_of(line) if part.status == "plain" else [line]:
            numbers = [(x, decimals) for x, decimals in numbers_in(piece) if decimals > 0]
            if not numbers:
                yield replace(part, text=piece)
                continue
            sure = known.numbers_of_equations(piece)
            lost = [x for x, decimals in numbers if not known.has(x, decimals) and round(abs(x), 9) not in sure]
            if not lost:
                yield replace(part, text=piece, status="right")
            else:
                listed = ", ".join(f"{x:g}" for x in lost[:8])
                yield Segment(piece, "unverified", (note("check_log.not_traced", numbers=listed),))


class Known:
    """Every number that may be said of a rollout, to be looked up at the digits shown."""

    def __init__(self, rollout: Rollout) -> None:
        found = {x for x in joined(_settings(rollout), _columns(rollout), _credit(rollout)) if math.isfinite(x)}
        self._sorted = sorted({abs(x) for x in found})

    def has(self, x: float, decimals: int) -> bool:
        """True if one of them, rounded to so many decimals, is this number; its sign may be in the words."""
        room = 0.5005 * 10.0**-decimals + SAME * max(1.0, abs(x))
        place = bisect.bisect_left(self._sorted, abs(x) - room)
        return place < len(self._sorted) and self._sorted[place] <= abs(x) + room

    def numbers_of_equations(self, text: str) -> set[float]:
        """The numbers of equations in a text that hold."""
        sure: set[float] = set()
        for one in chains(plain(text[:LONGEST_LINE])):
            valued = [side for side in one.sides if evaluate(side) is not None]
            if len(valued) > 1 and not any(True for _ in step_faults(one)):
                sure |= {round(abs(n.value), 9) for side in valued for n in literals(side)}
        return sure


def _settings(rollout: Rollout) -> Iterator[float]:
    settings = rollout.settings.as_dict()
    numbers = {n: float(x) for n, x in settings.items() if isinstance(x, int | float) and not isinstance(x, bool)}
    gamma, lam = numbers.get("gamma", 1.0), numbers.get("lam", 1.0)
    yield from (*numbers.values(), float(rollout.bootstrap), 0.0, 0.5, 1.0)
    yield from (1 - lam, 1 - gamma, 1 - numbers.get("clip_low", 0.2), 1 + numbers.get("clip_high", 0.2))
    for k in range(len(rollout.tokens) + 1):
        yield from ((gamma * lam) ** k, gamma**k, lam**k, 1 - (gamma * lam) ** k)


def _columns(rollout: Rollout) -> Iterator[float]:
    """The columns, their sums, means and deviations, and the probabilities of log-probs."""
    for name, column in rollout.columns.items():
        pairs = zip(column, rollout.mask, strict=True)
        numbers = [float(x) for x, m in pairs if m and isinstance(x, int | float) and math.isfinite(x)]
        if not numbers:
            continue
        yield from (*numbers, math.fsum(numbers), math.fsum(numbers) / len(numbers))
        for unbiased in (True, False) if len(numbers) > 1 else ():
            variance = reference.masked_var([numbers], [[1] * len(numbers)], unbiased)
            yield from (variance, math.sqrt(variance))
        if name.endswith("log_probs"):
            yield from (math.exp(min(x, 50.0)) for x in numbers)
        yield from (a - b for a, b in zip(numbers[1:], numbers, strict=False))


def _credit(rollout: Rollout) -> Iterator[float]:
    """δ, A and R at the ends λ = 0 and λ = 1 as well, whitened or not, and the products the formulas are made of."""
    columns, slots = rollout.columns, reference.chosen(rollout.mask)
    if "rewards" not in columns or "values" not in columns:
        return
    rewards, values = ([float(columns[name][t]) for t in slots] for name in ("rewards", "values"))
    settings: Mapping[str, Any] = rollout.settings.as_dict()
    gamma = float(settings.get("gamma") or 1.0)
    for lam in (0.0, 1.0, float(settings["lam"] if settings.get("lam") is not None else 1.0)):
        one = reference.gae([rewards], [values], [[1] * len(slots)], gamma, lam, [rollout.bootstrap])
        for row in (one.deltas[0], one.advantages[0], one.returns[0]):
            yield from row
            yield from (factor * x for x in row for factor in (gamma, gamma * lam))
    yield from (gamma * v for v in values)
    yield from (r + gamma * v for r, v in zip(rewards, [*values[1:], rollout.bootstrap], strict=True))
