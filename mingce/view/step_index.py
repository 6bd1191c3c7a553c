"""A step's rollouts in a few small columns, from which a screenful is chosen, sorted and counted at once.

Made in one pass over the ledger, some row groups at a time; a step of 100,000 rollouts keeps about ten megabytes of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mingce.base.conversation import asked
from mingce.record.rollout import Whitening
from mingce.sources.rollouts import Moments, loss_advantages, prompt_text
from mingce.sources.source import Array, Ragged, Source, plain
from mingce.view.answers import Group, Histogram, RolloutLine
from mingce.view.summary import Spread, cut, histogram

PAGE = 100  # rollouts in one answer unless asked otherwise
MAX_PAGE = 500
MAX_PARTS = 20
MAX_NAMES = 50  # of endings or data sources to choose from
SHOWN_TOKENS = 1 << 31
COLUMNS = ("response_mask", "loss_mask", "scores", "kl", "advantages", "rewards", "ratio")
TEXTS = ("uid", "group", "score_parts", "finish_reason", "data_source", "prompt", "response")


@dataclass
class Query:
    """Which rollouts, in which order: `extreme` is all, best or worst of each group, `like` a row of the one group."""

    offset: int = 0
    limit: int = PAGE
    sort: str = "row"
    down: bool = False
    search: str = ""
    finish: str = ""
    data_source: str = ""
    extreme: str = "all"
    like: int | None = None

    @property
    def as_stored(self) -> bool:
        """Whether rollouts are asked for as they stand in the file, for which no other need be looked at."""
        usual = Query(offset=self.offset, limit=self.limit)
        return self == usual


@dataclass
class Named:
    """[B] texts as whole numbers in their order, -1 where there is none."""

    codes: Array
    names: list[str]

    @property
    def shown(self) -> list[str]:
        """As many names as one can choose from."""
        return self.names[:MAX_NAMES]

    def are(self, name: str) -> Array:
        """Which rows have that name."""
        found: Array = self.codes == (self.names.index(name) if name in self.names else -2)
        return found


@dataclass
class StepIndex:
    """[B] columns; NaN where there is no number, -1 where there is no group."""

    size: int
    numbers: dict[str, Array]
    group: Array
    finish: Named
    data_source: Named
    best: Array
    worst: Array
    histograms: dict[str, Histogram]
    whitening: Whitening | None
    _searched: dict[str, Array] = field(default_factory=dict)

    @property
    def parts(self) -> list[str]:
        """The names of the parts of a score."""
        return [name.removeprefix("part:") for name in self.numbers if name.startswith("part:")]

    def rows(self, source: Source, step: int, query: Query) -> Array:
        """All rows that are asked for, in order."""
        kept = np.ones(self.size, dtype=bool)
        if query.search:
            kept &= self._found(source, step, query.search)
        if query.finish:
            kept &= self.finish.are(query.finish)
        if query.data_source:
            kept &= self.data_source.are(query.data_source)
        if query.extreme in ("best", "worst"):
            kept &= self.best if query.extreme == "best" else self.worst
        if query.like is not None:
            kept &= self.group == (self.group[query.like] if query.like < self.size else -2)
        rows = np.flatnonzero(kept)
        if query.sort == "row":
            return rows[::-1] if query.down else rows
        orders = {"group": self.group, "finish_reason": self.finish.codes, "data_source": self.data_source.codes}
        key = orders[query.sort] if query.sort in orders else self.numbers.get(query.sort)
        if key is None:
            return rows
        values = key[rows].astype(np.float64)
        values[np.isnan(values)] = -np.inf
        return rows[np.argsort(-values if query.down else values, kind="stable")]

    def _found(self, source: Source, step: int, text: str) -> Array:
        found = self._searched.get(text)
        if found is None:
            found = source.search(step, text)
            self._searched = dict([*self._searched.items(), (text, found)][-8:])
        return found

    def lines(
        self, source: Source, step: int, rows: Sequence[int], stored: Sequence[Mapping[str, Any]] | None = None
    ) -> list[RolloutLine]:
        """One line a rollout, texts cut short; `stored` are the rollouts if they were read before."""
        lines = []
        if stored is None:
            stored = source.rollouts(step, rows, TEXTS) if rows else []
        prompts = _prompts(source, step, rows, stored)
        for row, prompt, texts in zip(rows, prompts, stored, strict=True):
            score, kl, most = (_number(self.numbers[name][row]) for name in ("score", "kl", "max_abs_advantage"))
            named = {name: self.numbers[f"part:{name}"][row] for name in self.parts}
            parts = {name: _number(value) for name, value in named.items() if not math.isnan(value)}
            uid, group, reason, of = (
                plain(texts.get(name)) for name in ("uid", "group", "finish_reason", "data_source")
            )
            question, response = cut(asked(prompt, source.markers())), cut(str(texts.get("response") or ""))
            length, best, worst = int(self.numbers["length"][row]), bool(self.best[row]), bool(self.worst[row])
            told = score, parts or None, kl, length, reason, most, of, cut(prompt), question, response
            lines.append(RolloutLine(row, uid, group, *told, best, worst))
        return lines

    def groups(self, lines: Sequence[RolloutLine]) -> list[Group]:
        """The groups of these lines: how many there are, their mean score, the best and the worst rollout."""
        score, found = self.numbers["score"], {}
        for line in lines:
            code = int(self.group[line.row])
            if code >= 0 and code not in found:
                rows = np.flatnonzero((self.group == code) & np.isfinite(score))
                if len(rows):
                    best, worst = int(rows[score[rows].argmax()]), int(rows[score[rows].argmin()])
                    found[code] = Group(str(line.group), len(rows), float(score[rows].mean()), best, worst)
        return list(found.values())


def _prompts(source: Source, step: int, rows: Sequence[int], stored: Sequence[Mapping[str, Any]]) -> list[str]:
    """The prompts' texts; of a step without any, as their ids read."""
    if rows and source.tokens().known and not any(one.get("prompt") for one in stored):
        stored = source.rollouts(step, rows, ("prompt_ids",))
    return [prompt_text(one, source.tokens()) for one in stored]


def build_index(source: Source, step: int) -> StepIndex:
    """Reads every token once, and advantages and ratios a second time for their histograms."""
    sums: dict[str, list[Array]] = {name: [] for name in ("length", "score", "kl", "max_abs_advantage", "rewards")}
    moments, spreads = Moments(), {"advantages": Spread(), "ratio": Spread()}
    for batch in source.batches(step, COLUMNS):
        _take(batch, sums, moments, spreads)
    whole = {name: np.concatenate(parts) for name, parts in sums.items() if parts}
    size = source.size(step)
    numbers = {name: whole.get(name, np.full(size, np.nan)) for name in sums if name != "rewards"}
    if "length" not in whole:
        numbers["length"] = np.zeros(size)
    if "score" not in whole:
        numbers["score"] = np.array([_float(x) for x in source.row_column(step, "outcome") or [None] * size])
    numbers |= _score_parts(source.row_column(step, "score_parts") or [])
    group, finish, of = (
        _named(source.row_column(step, name) or [None] * size) for name in ("group", "finish_reason", "data_source")
    )
    best, worst = _extremes(group.codes, numbers["score"])
    histograms = {"rewards": histogram(whole["rewards"])} if "rewards" in whole else {}
    there = [name for name, spread in spreads.items() if spread.seen]
    for batch in source.batches(step, ("response_mask", *there)) if there else ():
        for name in there:
            spreads[name].count(batch[name].values[batch["response_mask"].values.astype(bool)])
    histograms |= {name: spreads[name].histogram() for name in there}
    return StepIndex(size, numbers, group.codes, finish, of, best, worst, histograms, moments.whitening())


def first_lines(source: Source, step: int, rows: Sequence[int]) -> list[RolloutLine]:
    """Some rollouts without a look at any other; which are the best and the worst of their groups is not known."""
    stored = source.rollouts(step, rows, (*COLUMNS, *TEXTS, "outcome"), SHOWN_TOKENS) if rows else []
    sums: dict[str, list[Array]] = {name: [] for name in ("length", "score", "kl", "max_abs_advantage", "rewards")}
    if stored:
        _take(_batch(stored), sums, Moments(), {})
    size, places = source.size(step), np.array(rows, dtype=np.int64)
    found = {name: parts[0] for name, parts in sums.items() if parts}
    if "score" not in found:
        found["score"] = np.array([_float(one.get("outcome")) for one in stored])
    found |= _score_parts([one.get("score_parts") for one in stored])
    numbers = {name: np.full(size, np.nan) for name in (*sums, *found)}
    numbers["length"] = np.zeros(size)
    for name, values in found.items():
        numbers[name][places] = values
    none = Named(np.full(size, -1, dtype=np.int32), [])
    nowhere = np.zeros(size, dtype=bool)
    index = StepIndex(size, numbers, none.codes, none, none, nowhere, nowhere, {}, None)
    return index.lines(source, step, rows, stored)


def _batch(stored: Sequence[Mapping[str, Any]]) -> dict[str, Ragged]:
    """The token columns of some rollouts, one after another."""
    offsets = np.concatenate([[0], np.cumsum([len(one["response_mask"]) for one in stored])])
    there = [name for name in COLUMNS if all(name in one for one in stored)]
    columns = {name: np.array([x for one in stored for x in one[name]]) for name in there}
    if any(len(values) != offsets[-1] for values in columns.values()):
        raise ValueError("its columns are not of one length")
    return {name: Ragged(values, offsets) for name, values in columns.items()}


def _take(
    batch: Mapping[str, Ragged], sums: dict[str, list[Array]], moments: Moments, spreads: Mapping[str, Spread]
) -> None:
    """Adds one batch of rollouts."""
    mask = batch["response_mask"]
    chosen = mask.values.astype(bool)
    lengths = Ragged(chosen, mask.offsets).sums(chosen)
    sums["length"].append(lengths)
    for name, stored in (("score", "scores"), ("rewards", "rewards"), ("kl", "kl")):
        if stored in batch:
            column = batch[stored]
            total = column.sums(chosen & np.isfinite(column.values))
            if name == "kl":
                total = np.where(lengths > 0, total / np.maximum(lengths, 1), np.nan)
            sums[name].append(total)
    if "advantages" in batch:
        column = batch["advantages"]
        sums["max_abs_advantage"].append(column.largest(chosen & np.isfinite(column.values)))
        moments.add(loss_advantages(batch))
    for name, spread in spreads.items():
        if name in batch:
            spread.look(batch[name].values[chosen])


def _named(values: Sequence[Any]) -> Named:
    """Texts as whole numbers in their order."""
    names = sorted({str(value) for value in values if value is not None})
    places = {name: code for code, name in enumerate(names)}
    return Named(np.array([-1 if value is None else places[str(value)] for value in values], dtype=np.int32), names)


def _score_parts(entries: Sequence[Any]) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for row, entry in enumerate(entries):
        for name, value in entry.items() if isinstance(entry, Mapping) else ():
            key = f"part:{name}"
            if key not in found and len(found) < MAX_PARTS:
                found[key] = np.full(len(entries), np.nan)
            if key in found:
                found[key][row] = _float(value)
    return found


def _extremes(group: Array, score: Array) -> tuple[Array, Array]:
    """Which rows have the best and which the worst score of their group; of equal ones the first."""
    best, worst = np.zeros(len(group), dtype=bool), np.zeros(len(group), dtype=bool)
    rows = np.flatnonzero((group >= 0) & np.isfinite(score))
    for sign, marked in ((-1, best), (1, worst)):
        order = rows[np.lexsort((sign * score[rows], group[rows]))]
        first = np.ones(len(order), dtype=bool)
        first[1:] = group[order][1:] != group[order][:-1]
        marked[order[first]] = True
    return best, worst


def _float(value: Any) -> float:
    try:
        return float(value) if isinstance(value, int | float | np.number) else math.nan
    except OverflowError:
        return math.nan


def _number(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None
