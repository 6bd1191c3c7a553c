"""The tokens of a step, or of a run, with the largest numbers: where an update pulls hardest, or something is odd."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mingce.base.conversation import asked
from mingce.record.store import LedgerFileError
from mingce.sources.rollouts import damage_reported, prompt_text, token_ids
from mingce.sources.source import Array, Ragged, Source
from mingce.view.over_run import WorstToken, WorstTokens
from mingce.view.summary import cut

TOP = 20
SECONDS = 4.0  # of looking, for one answer
BEFORE, AFTER = 30, 15  # tokens around the one that is shown
_COLUMNS = ("response_mask", "advantages", "ratio", "rollout_log_probs", "old_log_probs", "entropy")


class Place(NamedTuple):
    """A token, and how far its number is from the usual."""

    size: float
    step: int
    row: int
    t: int
    value: float


Top = dict[str, list[Place]]
EACH = "/each"  # behind a measure's name: one token of each rollout, for neighbours have nearly the same credit


def _gap(batch: Mapping[str, Ragged]) -> Array:
    drawn, trained = batch["rollout_log_probs"].values, batch["old_log_probs"].values
    gap: Array = drawn.astype(np.float64) - trained
    return gap


MEASURES: dict[str, tuple[tuple[str, ...], Callable[[Mapping[str, Ragged]], Array], Callable[[Array], Array]]] = {
    "advantages": (("advantages",), lambda batch: batch["advantages"].values, np.abs),
    "ratio": (("ratio",), lambda batch: batch["ratio"].values, lambda ratio: np.abs(np.log(np.maximum(ratio, 1e-30)))),
    "gap": (("rollout_log_probs", "old_log_probs"), _gap, np.abs),
    "entropy": (("entropy",), lambda batch: batch["entropy"].values, lambda entropy: entropy),
}
"""By name: the columns it takes, its number, and what is largest where it is worst. `gap` is log q − log π_old."""


def worst_of_step(source: Source, step: int, seconds: float = SECONDS) -> tuple[Top, int]:
    """The worst tokens by each measure that the step has, and how many of its rollouts were looked at in time."""
    top: Top = {}
    first, until = 0, time.monotonic() + seconds
    with damage_reported(source, step):
        for batch in source.batches(step, _COLUMNS):
            chosen = batch["response_mask"].values.astype(bool)
            for name, (columns, number, size) in MEASURES.items():
                if all(column in batch for column in columns):
                    values = number(batch)
                    sizes = np.where(chosen & np.isfinite(size(values)), size(values), -np.inf)
                    for key, rule in ((name, _largest), (name + EACH, _largest_each)):
                        found = _places(batch["response_mask"], rule(batch["response_mask"], sizes), values, sizes)
                        top[key] = _merged(top.get(key, []), [Place(a, step, first + b, c, d) for a, b, c, d in found])
            first += len(batch["response_mask"].offsets) - 1
            if time.monotonic() > until:
                break
    return top, first


def _largest(mask: Ragged, sizes: Array) -> Array:
    """Where the largest of all tokens stand."""
    there = np.flatnonzero(np.isfinite(sizes))
    return there[np.argpartition(sizes[there], -TOP)[-TOP:]] if len(there) > TOP else there


def _largest_each(mask: Ragged, sizes: Array) -> Array:
    """Where the largest token of each of the rollouts stands that have the largest ones."""
    rows = np.flatnonzero(np.diff(mask.offsets))
    most = np.maximum.reduceat(sizes, mask.offsets[rows]) if len(rows) else np.zeros(0)
    rows, most = rows[np.isfinite(most)], most[np.isfinite(most)]
    if len(rows) > TOP:
        rows = rows[np.argpartition(most, -TOP)[-TOP:]]
    spans = ((int(mask.offsets[row]), int(mask.offsets[row + 1])) for row in rows)
    return np.array([start + int(sizes[start:end].argmax()) for start, end in spans], dtype=np.int64)


def _places(mask: Ragged, there: Array, values: Array, sizes: Array) -> list[tuple[float, int, int, float]]:
    """Size, row, slot and number of some tokens."""
    rows = np.searchsorted(mask.offsets, there, side="right") - 1
    places = zip(there.tolist(), rows.tolist(), strict=True)
    return [(float(sizes[at]), row, at - int(mask.offsets[row]), float(values[at])) for at, row in places]


def _merged(one: Sequence[Place], other: Sequence[Place]) -> list[Place]:
    return sorted([*one, *other], key=lambda place: (-place.size, *place[1:]))[:TOP]


class RunTop:
    """The worst tokens of the steps looked at so far: the newest first, then evenly spread over the run."""

    def __init__(self, source: Source):
        self._source = source
        self._seen: set[int] = set()
        self._stamps: dict[int, object] = {}
        self.top: Top = {}

    def look(self, seconds: float = SECONDS) -> tuple[int, int]:
        """Looks at more steps as long as there is time; how many were looked at, and how many there are."""
        steps = self._source.ledger_steps()
        if not self._seen <= set(steps) or any(self._source.stamp(s) != was for s, was in self._stamps.items()):
            self._seen, self._stamps, self.top = set(), {}, {}
        until = time.monotonic() + seconds
        for step in spread(steps):
            if step in self._seen:
                continue
            try:
                stamp = self._source.stamp(step)
                found, _ = worst_of_step(self._source, step, max(until - time.monotonic(), 0.1))
                for name, places in found.items():
                    self.top[name] = _merged(self.top.get(name, []), places)
                self._stamps[step] = stamp
            except LedgerFileError:  # reported with the run
                pass
            self._seen.add(step)
            if time.monotonic() > until:
                break
        shown = {place.step for places in self.top.values() for place in places}
        self._stamps = {step: stamp for step, stamp in self._stamps.items() if step in shown}
        return len(self._seen), len(steps)


def spread(steps: Sequence[int]) -> list[int]:
    """The newest step, the oldest, then those in the midst of what lies between, again and again."""
    if len(steps) < 3:
        return list(steps)[::-1]
    order, gaps = [steps[-1], steps[0]], [(0, len(steps) - 1)]
    for low, high in gaps:  # grows meanwhile
        if high - low > 1:
            middle = (low + high) // 2
            order.append(steps[middle])
            gaps += [(low, middle), (middle, high)]
    return order


def shown(source: Source, top: Top, by: str, seen: int, total: int, each: bool = False) -> WorstTokens:
    """The answer for one measure, with the text around each token; `each` has no two tokens of one rollout."""
    measures = [name for name in MEASURES if name in top]
    by = by if by in measures else measures[0] if measures else ""
    places = top.get(by + EACH if each else by, [])
    return WorstTokens(by, measures, [_shown(source, place) for place in places], seen, total)


def _shown(source: Source, place: Place) -> WorstToken:
    names = ("token_ids", "response_mask", "prompt", "prompt_ids")
    stored = source.rollouts(place.step, [place.row], names, place.t + 1 + AFTER)[0]
    start = max(place.t - BEFORE, 0)
    tokens = source.tokens().tokens(token_ids(stored)[start:])
    own = tokens[place.t - start].glyph
    sides = operator.lt, operator.eq, operator.gt
    before, text, after = ("".join(one.text for one in tokens if side(one.glyph, own)) for side in sides)
    before = f"…{before}" if start else before
    question = cut(asked(prompt_text(stored, source.tokens()), source.markers()))
    return WorstToken(place.step, place.row, place.t, place.value, question, before, text, after)
