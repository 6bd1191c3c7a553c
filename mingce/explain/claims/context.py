"""What a text gives around a claim: the lists, numbers and settings near it, the nearest first.

Near means the same question, before the claim rather than after it, and only then the questions before. What is taken
from another question is marked (`carried`): it may be another example, so it convicts nobody by itself.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from mingce.explain.claims.expressions import Number
from mingce.explain.claims.quantities import Fact, Scalar, Series, Setting, Where
from mingce.explain.claims.rounding import agrees, unit_of_rounded
from mingce.explain.claims.truth import Rows

GLOBAL = -2
"""The section of what holds for every claim: a rollout that a text is about."""
NEAREST = 4
REACH = 64
MOST_STATED = 4
MOST_QUESTIONS = 12
MOST_SEARCHES = 40
INDEXED_KINDS = ("rewards", "values", "deltas", "advantages", "returns")


@dataclass(frozen=True)
class Column:
    """All numbers of one kind as the text gives them, with the line, and whether another question gave them.

    `one_by_one` if it is put together from single numbers; `unit` is one unit of the last digit where the numbers
    seem to be rounded, else 0; `slots` where the numbers stand if the list has holes, `full` how long it is with them.
    """

    rows: Rows
    line: int
    carried: bool = False
    section: int = -1
    one_by_one: bool = False
    unit: float = 0.0
    slots: tuple[int, ...] | None = None
    full: int = 0

    def at(self, slots: tuple[int, ...], full: int) -> Column | None:
        """The same at the tokens chosen, None if it is of other tokens."""
        if self.slots is not None or self.width == len(slots):
            return self if self.slots in (None, slots) else None
        if self.width != full or len(self.rows) > 1:
            return None
        return replace(self, rows=(tuple(self.rows[0][t] for t in slots),), slots=slots, full=full)

    @property
    def width(self) -> int:
        return len(self.rows[0])

    @property
    def shape(self) -> list[int]:
        return [len(row) for row in self.rows]


class Context:
    """The facts of a text, by question and kind."""

    def __init__(self, facts: Iterable[Fact]) -> None:
        self.facts = [fact for fact in facts if not fact.where.doubtful]
        self._lists: dict[tuple[int, str], list[Series]] = defaultdict(list)
        self._scalars: dict[tuple[int, str], list[Scalar]] = defaultdict(list)
        self._settings: dict[tuple[int, str], list[Setting]] = defaultdict(list)
        self._chosen: dict[tuple[int, int], tuple[tuple[int, ...], int]] = {}
        self._indices: dict[tuple[int, int | None], set[int]] = defaultdict(set)
        for fact in self.facts:
            question = fact.where.question
            if isinstance(fact, Series):
                self._lists[question, fact.kind].append(fact)
                if fact.slots is not None:
                    self._chosen[question, len(fact.slots)] = fact.slots, fact.width
            elif isinstance(fact, Setting):
                self._settings[question, fact.name].append(fact)
            elif isinstance(fact, Scalar):
                self._scalars[question, fact.kind].append(fact)
                certain = fact.kind != "values" or fact.index == 0  # V_3 of three tokens may be behind the end
                if fact.kind in INDEXED_KINDS and not fact.from_zero and certain:
                    self._indices[question, fact.where.section].add(fact.index)
                    self._indices[question, None].add(fact.index)
        self._lines = {key: [series.where.line for series in lists] for key, lists in self._lists.items()}
        self._columns: dict[tuple[object, ...], list[Column]] = {}
        self._questions = sorted({fact.where.question for fact in self.facts})
        self.searches_left = MOST_SEARCHES
        """How often settings may still be searched that the text does not state."""

    def _before(self, question: int) -> list[int]:
        """The questions in front of one, the latest first; an example is not carried further."""
        place = bisect_left(self._questions, question)
        return self._questions[max(0, place - MOST_QUESTIONS) : place][::-1]

    # ── lists ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def lists(self, kind: str, where: Where, *, carried: bool = False) -> Iterator[Series]:
        """The lists of a kind in the claim's question, nearest first, then with `carried` those of earlier questions.

        A person's question is judged by what stands in it, not by what is said elsewhere.
        """
        here = self._lists.get((where.question, kind), [])
        yield from (s for s in _nearest(here, where, self.place(kind, where)) if s.where.by_user or not where.by_user)
        if carried and not where.by_user:
            for question in self._before(where.question):
                yield from reversed(self._lists.get((question, kind), [])[-REACH:])

    def place(self, kind: str, where: Where) -> int:
        """How many lists of a kind stand in front of a claim."""
        return bisect_right(self._lines.get((where.question, kind), []), where.line)

    def columns(self, kind: str, where: Where, width: int | None = None, *, carried: bool = False) -> list[Column]:
        """The nearest whole lists of a kind, each numbers once; those made of single numbers (V_1 = …) too."""
        key = (kind, where.question, where.section, where.by_user is True, width, carried, self.place(kind, where))
        if key not in self._columns:
            self._columns[key] = list(self._find_columns(kind, where, width, carried))
        return self._columns[key]

    def _find_columns(self, kind: str, where: Where, width: int | None, carried: bool) -> Iterator[Column]:
        seen: set[Rows] = set()
        for series in self.lists(kind, where, carried=carried):
            if not series.whole or series.values in seen or width not in (None, series.width, len(series.values[0])):
                continue
            away = series.where.question != where.question
            if away and self._singles(kind, where):
                if not self._repeated(kind, where, series):
                    continue
                away = False
            seen.add(series.values)
            unit = _unit(series) or max(map(_unit, self._lists[series.where.question, kind][:REACH]))
            where_from = series.where.line, away, series.where.section
            slots, full = self._chosen.get((where.question, len(series.values[0])), (series.slots, series.width))
            yield Column(series.values, *where_from, unit=unit, slots=slots, full=full)
            if len(seen) == NEAREST:
                return
        single = self._from_scalars(kind, where)
        if single is not None and single.rows not in seen and (width is None or single.width == width):
            yield single

    # ── single numbers ───────────────────────────────────────────────────────────────────────────────────────────────

    def _singles(self, kind: str, where: Where, *, everywhere: bool = False) -> dict[int, Number]:
        """The single numbers of a kind in a claim's section, or its whole question, by their index."""
        scalars = [s for s in self._scalars.get((where.question, kind), []) if not s.where.supposed]
        near = scalars if everywhere else [s for s in scalars if s.where.section == where.section] or scalars
        return {s.index: s.number for s in near[:REACH] if s.index >= 0}

    def _from_scalars(self, kind: str, where: Where) -> Column | None:
        """A column given number by number, if none is missing: in the claim's section, or in the question."""
        return self._made_of(self._singles(kind, where), kind, where) or self._made_of(
            self._singles(kind, where, everywhere=True), kind, where
        )

    def _made_of(self, singles: dict[int, Number], kind: str, where: Where) -> Column | None:
        first = min(singles, default=2)
        if first > 1 or len(singles) < 2 or sorted(singles) != list(range(first, first + len(singles))):
            return None
        numbers = [singles[index] for index in sorted(singles)]
        if kind == "values" and len(numbers) > 2 and numbers[-1].value == 0 and self._at_end(where, max(singles)):
            numbers.pop()
        line = self._scalars[where.question, kind][-1].where.line
        row = tuple(number.value for number in numbers)
        return Column((row,), line, one_by_one=True, unit=unit_of_rounded(numbers))

    def _at_end(self, where: Where, index: int) -> bool:
        """True if no reward or error has this index: it is the state behind the last token."""
        kinds = ("rewards", "deltas", "advantages")
        return all(index not in self._singles(kind, where) for kind in kinds)

    def _repeated(self, kind: str, where: Where, series: Series) -> bool:
        """True if the question's own single numbers of the kind are those of the list, counted from 0 or from 1."""
        singles = self._singles(kind, where, everywhere=True)
        for base in (1, 0):
            inside = {index - base: number for index, number in singles.items() if 0 <= index - base < series.width}
            if inside and all(agrees(number, series.values[0][place]) for place, number in inside.items()):
                return True
        return False

    def bases(self, where: Where, width: int) -> tuple[int, ...]:
        """From which number the text counts tokens: (0,), (1,), or both where it cannot be told."""
        stated = self._settings.get((where.question, "base"), [])
        here = [one for one in stated if one.where.section == where.section]
        for near, section in ((here, where.section), (stated, None)):
            if len({one.value for one in near}) == 1:  # a text may count both ways, in formulae and in code
                return (int(near[0].value),)
            indices = self._indices[where.question, section]
            if 0 in indices or width in indices:
                return (0,) if 0 in indices else (1,)
        return (1, 0)

    def values_after(self, where: Where, width: int) -> list[float]:
        """The value behind the last token where the text gives one, as V(s_T) or as V_3 of three tokens; else 0."""
        bases, singles = self.bases(where, width), self._singles("values", where)
        index = width + bases[0]
        if len(bases) == 1 and index in singles:
            return [singles[index].value]
        stated = self._settings.get((where.question, "after"), [])
        here = [setting.value for setting in stated if setting.where.section == where.section]
        elsewhere = [setting.value for setting in stated]
        return list(dict.fromkeys([*here, *elsewhere] if here else [*elsewhere, 0.0]))[:MOST_STATED]

    # ── settings ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def stated(self, name: str, where: Where, *, implied: bool = False) -> list[float]:
        """The values of a setting in the claim's question, the nearest in front of the claim first."""
        here = [setting for setting in self._settings.get((where.question, name), []) if setting.implied == implied]
        place = bisect_right([setting.where.line for setting in here], where.line)
        return list(dict.fromkeys(setting.value for setting in _nearest(here, where, place)))[:MOST_STATED]

    def stated_before(self, name: str, where: Where) -> list[float]:
        """Those of earlier questions, the latest first."""
        earlier = [
            setting.value
            for question in self._before(where.question)
            for setting in reversed(self._settings.get((question, name), [])[-REACH:])
            if not setting.implied
        ]
        return list(dict.fromkeys(earlier))[:MOST_STATED]

    def stated_in(self, name: str, question: int) -> set[float]:
        """Every value a question states for a setting."""
        return {setting.value for setting in self._settings.get((question, name), []) if not setting.implied}


_Placed = TypeVar("_Placed", bound=Series | Setting)


def _nearest(here: Sequence[_Placed], where: Where, place: int) -> list[_Placed]:
    """Those of the claim's own section first, each time the nearest in front of it and then those behind it.

    `place` is how many stand in front of the claim.
    """
    near = [*reversed(here[max(0, place - REACH) : place]), *here[place : place + REACH]]
    return sorted(near, key=lambda one: one.where.section not in (where.section, GLOBAL))


def _unit(series: Series) -> float:
    """One unit of the last digit of a list that seems to be rounded, else 0."""
    return unit_of_rounded(number for row in series.rows for number in row)


def matched(one: Column, other: Column) -> tuple[Column, Column] | None:
    """Two columns at the tokens that both have; None if they are of different responses."""
    slots, full = (one.slots, one.full) if one.slots else (other.slots, other.full)
    if slots is None:
        return (one, other) if one.shape == other.shape else None
    a, b = one.at(slots, full), other.at(slots, full)
    return (a, b) if a is not None and b is not None and a.shape == b.shape else None
