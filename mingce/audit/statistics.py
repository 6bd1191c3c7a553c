"""K12: logged statistics of the batch (mean, largest, smallest of scores, returns, lengths …) from the columns.

A logged number that follows from no column as it should may be one of the ways in which it was got wrong: those are
tried by name. What follows from nothing is said to be unexplained, but only where other logged numbers do follow:
they show that the log is about these rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mingce.audit.evidence import Bools, Evidence, Floats, Ints, finite, once
from mingce.audit.finding import Check, Fault, Finding, Place, phrase
from mingce.base.texts import sentence_pair
from mingce.record.dump import LOSS, RAW

SPREADS = 4.0
SINGLE = 3e-6  # what sums in single precision lose
LEAST_EFFECT = 1e-4  # of the number's size: nearer ones may be another precision
LEAST_TOKENS = 16

OVER_PADS = Fault.of("metric-over-pads", "bug", (47,), "metric = Σ m·x / Σ m")
OTHER = Fault.of("metric-of-something-else", "suspicious", (47,), "metric = its own columns' mean, max or min", "")
UNEXPLAINED = Fault.of("metric-unexplained", "suspicious", (47,), "metric = f(the dumped columns)", "")
OTHER_ROWS = Fault.of("metrics-of-other-rows", "suspicious", (37, 47), "metric = f(the dumped columns)", "")

Words = tuple[str, str]


@dataclass(frozen=True)
class Recipe:
    """One way to make a number of the columns; `key` names the sentence of one that nobody means, "" one that is."""

    key: str
    number: float
    room: float
    of: str = ""  # the column, for the sentence

    def fits(self, found: float) -> bool:
        return bool(abs(self.number - found) <= self.room + 1e-6 * abs(found))

    @property
    def words(self) -> Words:
        return sentence_pair(f"audit.{self.key}", of=self.of)


@dataclass(frozen=True)
class Sample:
    """Numbers with their errors from rounding."""

    x: Floats
    error: Floats

    def mean(self, key: str = "", of: str = "") -> Recipe:
        if not len(self.x):
            return Recipe(key, np.nan, 0.0, of)
        noise = float(self.error.mean())  # one number stands on many tokens: their errors do not cancel
        return Recipe(key, float(self.x.mean()), noise + SINGLE * float(np.abs(self.x).mean()) + 1e-9, of)

    def most(self, sign: float, key: str = "", of: str = "") -> Recipe:
        """The largest (1) or the smallest (−1)."""
        if not len(self.x):
            return Recipe(key, np.nan, 0.0, of)
        at = int((sign * self.x).argmax())
        return Recipe(key, float(self.x[at]), SPREADS * float(self.error[at]) + SINGLE * abs(float(self.x[at])), of)

    def of(self, kind: str, key: str = "", name: str = "") -> Recipe:
        return self.mean(key, name) if kind == "mean" else self.most(1.0 if kind == "max" else -1.0, key, name)

    def size(self) -> Sample:
        return Sample(np.abs(self.x), self.error)


KINDS = ("mean", "max", "min")
COLUMNS = {"advantages": LOSS, "returns": "returns", "values": "values"}
SUMMED = ("scores", "rewards")
NAMES = tuple(f"{name}_{kind}" for name in (*COLUMNS, *SUMMED, "response_length", "prompt_length") for kind in KINDS)


# ── the ways ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _sample(e: Evidence, name: str, where: Bools) -> Sample:
    return Sample(e[name][where], e.error(name)[where])


def _tokens(e: Evidence, name: str, kind: str) -> Iterator[Recipe]:
    """A statistic of a token column: over chosen tokens, and over others."""
    column = COLUMNS[name]
    meant = [column, *([RAW] if column == LOSS and e.dump.holds(RAW) else [])]
    for one in meant:
        for mask in (e.mask, e.loss_mask):
            yield _sample(e, one, mask).of(kind)
        if kind == "mean":
            yield _of_rows(e, one, True).mean()
    everything = np.ones_like(e.mask)
    for mask, key in ((everything, "stat_all"), (e.attended, "stat_attended")):
        yield _sample(e, column, mask).of(kind, key)
    if kind == "mean":
        yield _sample(e, column, e.mask).size().mean("stat_magnitude")
    else:
        yield _sample(e, column, e.mask).of("min" if kind == "max" else "max", "stat_other_end")
        yield _sample(e, column, e.mask).size().of(kind, "stat_magnitude")
    for other in ("values", "returns", LOSS, "rewards", "new_values"):
        if other != column and e.dump.holds(other):
            yield _sample(e, other, e.mask).of(kind, "stat_of_other", e.dump.name_of(other))


def _of_rows(e: Evidence, name: str, mean: bool) -> Sample:
    """A row's sum over its chosen tokens, or their mean; rows without one are left out."""
    count = e.mask.sum(axis=1)
    x, error = (np.where(e.mask, column, 0.0).sum(axis=1) for column in (finite(e[name]), e.error(name)))
    rows = count > 0
    return Sample(x[rows] / (count[rows] if mean else 1), error[rows] / (count[rows] if mean else 1))


def _sums(e: Evidence, name: str, kind: str) -> Iterator[Recipe]:
    """A statistic of the rows' sums: with what stands behind the mask (verl) or without, of rows that have tokens."""
    alive = e.attended.any(axis=1)
    other = "rewards" if name == "scores" else "scores"
    for key, column in (("", name), ("stat_of_other", other)):
        if not e.dump.holds(column):
            continue
        whole = Sample(finite(e[column]).sum(axis=1), e.error(column).sum(axis=1))
        for rows in (alive, np.ones_like(alive)):
            yield Sample(whole.x[rows], whole.error[rows]).of(kind, key, column)
        yield _of_rows(e, column, False).of(kind, key, column)
    if e.has("outcome"):
        yield Sample(*e.row_numbers("outcome")).of(kind, "" if name == "scores" else "stat_of_other", "outcome")
    if e.dump.holds(name) and kind == "mean":
        yield _sample(e, name, e.mask).mean("" if e.dump.source == "generic" else "stat_token_mean")
        yield _sample(e, name, np.ones_like(e.mask)).mean("stat_all")
        yield _of_rows(e, name, True).mean("stat_row_mean")
    elif e.dump.holds(name):
        yield _sample(e, name, e.mask).of(kind, "stat_token_mean")
        yield Sample(*(x.sum(axis=1) for x in (finite(e[name]), e.error(name)))).of(
            "min" if kind == "max" else "max", "stat_other_end"
        )


def _whole(lengths: Ints) -> Sample:
    return Sample(lengths.astype(np.float64), np.zeros(len(lengths)))


def _response_length(e: Evidence, kind: str) -> Iterator[Recipe]:
    attended, chosen = e.attended.sum(axis=1), e.mask.sum(axis=1)
    if e.dump.source == "trl_grpo" and not chosen.all():
        return  # rows that were masked after they were counted
    for lengths in (attended, chosen, attended[attended > 0], chosen[chosen > 0]):
        yield _whole(lengths).of(kind)
    for lengths in (attended, chosen):
        yield _whole(lengths - 1).of(kind, "stat_one_less")
        yield _whole(lengths + 1).of(kind, "stat_one_more")
    yield _whole(np.full(len(attended), e.mask.shape[1])).of(kind, "stat_padded_width")
    if e.has("prompt_ids") and None not in e.row("prompt_ids"):
        yield _whole(attended + _prompts(e)).of(kind, "stat_with_prompt")


def _prompts(e: Evidence) -> Ints:
    return np.array([len(ids) for ids in e.row("prompt_ids")], np.int64)


def _prompt_length(e: Evidence, kind: str) -> Iterator[Recipe]:
    if not e.has("prompt_ids") or None in e.row("prompt_ids"):
        return
    lengths = _prompts(e)
    yield _whole(lengths).of(kind)
    yield _whole(lengths + e.attended.sum(axis=1)).of(kind, "stat_with_response")
    if e.has("left_pad") and None not in e.row("left_pad"):
        yield _whole(lengths + np.array(e.row("left_pad"), np.int64)).of(kind, "stat_padded_width")


def _cut_share(e: Evidence) -> Iterator[Recipe]:
    """The share of responses that fill the window, or that a limit cut: conversations are cut by other limits, too."""
    if e.has("finish_reason"):
        yield _whole(np.array([reason == "length" for reason in e.row("finish_reason")], np.int64)).mean()
    longest = e.settings.max_response_length or e.mask.shape[1]
    for lengths in (e.attended.sum(axis=1), e.mask.sum(axis=1)):
        alive = lengths > 0
        for rows in (alive, np.ones_like(alive)):
            for limit in {e.mask.shape[1], int(longest)}:
                yield _whole((lengths >= limit)[rows].astype(np.int64)).mean()
        yield _whole((lengths < longest).astype(np.int64)).mean("stat_complement")


def _explained_variance(e: Evidence) -> Iterator[Recipe]:
    """1 − Var(R − V)/Var(R), with ε or without."""
    if not e.has("returns", "values"):
        return
    everything = np.ones_like(e.mask)
    for mask, key in ((e.mask, ""), (e.loss_mask, ""), (everything, "stat_all"), (e.attended, "stat_attended")):
        target, value = e["returns"][mask], e["values"][mask]
        noise = float(np.sqrt(np.mean((e.error("returns") + e.error("values"))[mask] ** 2)))
        if len(target) < 2 or np.ptp(target) == 0:
            continue
        spread, left = float(np.var(target, ddof=1)), float(np.var(target - value, ddof=1))
        room = 4 * noise * (left**0.5 + (left / spread) * spread**0.5) / spread + 1e-4 + 1e-5 * left / spread
        for epsilon in (0.0, 1e-5, 1e-8):
            yield Recipe(key, 1 - left / (spread + epsilon), room)
        if not key:
            other = float(np.var(value))
            yield Recipe("stat_not_from_one", left / spread, room)
            if other > 0:
                yield Recipe("stat_over_values", 1 - left / other, room * max(1.0, spread / other))
            with np.errstate(all="ignore"):
                yield Recipe("stat_correlation", float(np.corrcoef(target, value)[0, 1]) ** 2, room)


def _recipes(e: Evidence, scalar: str) -> list[Recipe]:
    name, _, kind = scalar.rpartition("_")
    with np.errstate(all="ignore"):
        if scalar == "vf_explained_var":
            made = _explained_variance(e)
        elif scalar == "response_length_cut":
            made = _cut_share(e)
        elif name in COLUMNS:
            made = _tokens(e, name, kind) if e.dump.holds(COLUMNS[name]) else iter(())
        elif name in SUMMED:
            made = _sums(e, name, kind)
        else:
            made = _response_length(e, kind) if name == "response_length" else _prompt_length(e, kind)
        return [one for one in made if np.isfinite(one.number)]


# ── the verdict ────────────────────────────────────────────────────────────────────────────────────────────────────

SCALARS = (*NAMES, "vf_explained_var", "response_length_cut")
PAD_KEYS = {"stat_all": "audit.over_all", "stat_attended": "audit.over_attended"}


@once
def _judged(e: Evidence) -> tuple[int, dict[str, list[Recipe]]]:
    """How many of the logged statistics follow from their columns, and what those that do not might be."""
    off: dict[str, list[Recipe]] = {}
    follow = 0
    for scalar in (one for one in SCALARS if one in e.dump.scalars):
        found, made = e.dump.scalars[scalar], _recipes(e, scalar)
        meant = [one for one in made if not one.key]
        if not meant or not np.isfinite(found):
            continue
        if any(one.fits(found) for one in meant):
            follow += abs(found) > 1e-9
        elif min(abs(one.number - found) for one in meant) > LEAST_EFFECT * max(abs(meant[0].number), abs(found)):
            off[scalar] = made
    return follow, off


def about_these_rows(e: Evidence) -> bool:
    """Whether at least three logged statistics follow from the columns: the log is that of the dump."""
    return int(e.mask.sum()) >= LEAST_TOKENS and _judged(e)[0] >= 3


def statistics(e: Evidence) -> Iterator[Finding]:
    """Every logged statistic beside its columns."""
    if int(e.mask.sum()) < LEAST_TOKENS:
        return
    follow, off = _judged(e)
    named = [(scalar, _named(e, scalar, made)) for scalar, made in off.items()]
    yield from (finding for _, finding in named if finding is not None)
    left = [scalar for scalar, finding in named if finding is None]
    if e.dump.source == "trl_grpo":
        return  # its log is a mean over several batches
    if left and follow >= len(left):
        yield from (_unexplained(e, scalar, off[scalar], follow) for scalar in left)
    elif len(left) > 1:
        scalar = left[0]
        values = {"count": len(left), "scalars": ", ".join(left[:4]), "scalar": scalar, "found": e.dump.scalars[scalar]}
        yield Finding(OTHER_ROWS, scalar, values | {"expected": off[scalar][0].number})


def _named(e: Evidence, scalar: str, made: list[Recipe]) -> Finding | None:
    """What the number is instead, where a way gives it that the right one is far enough from."""
    found, expected = e.dump.scalars[scalar], made[0].number
    wrong = [one for one in made if one.key and one.fits(found) and one.room < 0.1 * abs(expected - found)]
    if not wrong:
        return None
    place = (Place(None, None, expected, found),)
    values = {"scalar": scalar, "found": found, "expected": expected}
    if wrong[0].key in PAD_KEYS and scalar.endswith("_mean"):
        return Finding(OVER_PADS, scalar, values | phrase("over", PAD_KEYS[wrong[0].key]), place)
    zh, en = zip(*dict.fromkeys(one.words for one in wrong[:3]), strict=True)
    return Finding(OTHER, scalar, values | {"what": "; ".join(en), "what_zh": "；".join(zh)}, place)


def _unexplained(e: Evidence, scalar: str, made: list[Recipe], follow: int) -> Finding:
    found, expected = e.dump.scalars[scalar], made[0].number
    values = {"scalar": scalar, "found": found, "expected": expected, "count": follow}
    return Finding(UNEXPLAINED, scalar, values, (Place(None, None, expected, found),))


CHECKS: tuple[Check, ...] = (Check.of("K12 statistics", ("|".join(SCALARS),), statistics),)
