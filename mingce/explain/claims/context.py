"""What a text gives around a claim: the lists, numbers and settings near it, the nearest first.

Near means the same question, before the claim rather than after it, and only then the questions before. What is taken
from another question is marked (`carried`): it may be another example, so it convicts nobody by itself.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mingce.explain.claims.digits import unit_of_rounded
from mingce.explain.claims.expressions import Number
from mingce.explain.claims.facts import Constant, Fact, Scalar, Series, Setting, Where
from mingce.explain.claims.truth import Rows

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
    seem to be rounded, else 0.
    """

    rows: Rows
    line: int
    carried: bool
    section: int = -1
    one_by_one: bool = False
    unit: float = 0.0

    @property
    def width(self) -> int:
        return len(self.rows[0])


class Context:
    """The facts of a text, by question and kind."""

    def __init__(self, facts: Iterable[Fact]) -> None:
        self.facts = [fact for fact in facts if not fact.where.doubtful]
        self._series: dict[tuple[int, str], list[Series]] = defaultdict(list)
        self._scalars: dict[tuple[int, str], list[Scalar]] = defaultdict(list)
        self._settings: dict[tuple[int, str], list[Setting]] = defaultdict(list)
        self._constants: dict[tuple[int, str], list[Constant]] = defaultdict(list)
        for fact in self.facts:
            match fact:
                case Series():
                    self._series[fact.where.question, fact.kind].append(fact)
                case Scalar():
                    self._scalars[fact.where.question, fact.kind].append(fact)
                case Setting():
                    self._settings[fact.where.question, fact.name].append(fact)
                case Constant():
                    self._constants[fact.where.question, fact.kind].append(fact)
        self.questions = sorted({fact.where.question for fact in self.facts})
        self._columns: dict[tuple[object, ...], list[Column]] = {}
        self.found_pairs: dict[int, tuple[float, float]] = {}
        """By question, the (γ, λ) that a list's numbers gave where the text states none."""
        self.searches_left = MOST_SEARCHES
        self._lines = {key: [series.where.line for series in found] for key, found in self._series.items()}
        self._indices: dict[int, set[int]] = defaultdict(set)
        for (question, kind), scalars in self._scalars.items():
            if kind in INDEXED_KINDS:
                self._indices[question].update(scalar.index for scalar in scalars if not scalar.from_zero)

    def before(self, question: int) -> list[int]:
        """The questions in front of one, the latest first; an example is not carried further."""
        place = bisect_left(self.questions, question)
        return self.questions[max(0, place - MOST_QUESTIONS) : place][::-1]

    # ── lists ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def series(self, kind: str, where: Where, *, carried: bool = False) -> Iterator[Series]:
        """The lists of a kind in the claim's question, nearest first, then with `carried` those of earlier questions.

        A person's question is judged by what stands in it, not by what is said elsewhere.
        """
        here = self._series.get((where.question, kind), [])
        if where.by_user:
            here = [series for series in here if series.where.by_user]
        place = bisect_right(
            [series.where.line for series in here] if where.by_user else self._lines_of(kind, where), where.line
        )
        yield from reversed(here[max(0, place - REACH) : place])
        yield from here[place : place + REACH]
        if carried and not where.by_user:
            for question in self.before(where.question):
                yield from reversed(self._series.get((question, kind), [])[-REACH:])

    def columns(self, kind: str, where: Where, width: int | None = None, *, carried: bool = True) -> list[Column]:
        """The nearest whole lists of a kind, each numbers once; those made of single numbers (V_1 = …) too."""
        section = where.section if where.question == 0 else 0
        key = (kind, where.question, where.by_user is True, width, carried, self.place(kind, where), section)
        if key not in self._columns:
            self._columns[key] = list(self._find_columns(kind, where, width, carried))
        return self._columns[key]

    def place(self, kind: str, where: Where) -> int:
        """How many lists of a kind stand in front of a claim."""
        return bisect_right(self._lines_of(kind, where), where.line)

    def _lines_of(self, kind: str, where: Where) -> list[int]:
        return self._lines.get((where.question, kind), [])

    def _find_columns(self, kind: str, where: Where, width: int | None, carried: bool) -> Iterator[Column]:
        seen: set[Rows] = set()
        for series in self.series(kind, where, carried=carried):
            if not series.whole or series.values in seen or (width is not None and series.width != width):
                continue
            away = series.where.question != where.question
            if away and self._contradicted(kind, where.question, series):
                continue
            seen.add(series.values)
            agreed = away and self._confirmed(kind, where.question, series)
            numbers = [number for row in series.rows for number in row if number is not None]
            unit = unit_of_rounded(numbers)
            yield Column(series.values, series.where.line, away and not agreed, series.where.section, unit=unit)
            if len(seen) == NEAREST:
                return
        single = self._from_scalars(kind, where)
        if single is not None and single.rows not in seen and (width is None or single.width == width):
            yield single

    def _from_scalars(self, kind: str, where: Where) -> Column | None:
        """A column told number by number, if none is missing."""
        told = self._told(kind, where.question)
        first = min(told, default=2)
        if first > 1 or len(told) < 2 or sorted(told) != list(range(first, first + len(told))):
            return None
        last = self._scalars[where.question, kind][-1]
        numbers = [told[index] for index in sorted(told)]
        if (
            kind == "values"
            and len(numbers) > 2
            and numbers[-1].value == 0
            and self._terminal(where.question, max(told))
        ):
            numbers.pop()
        return Column(
            (tuple(number.value for number in numbers),), last.where.line, False, -1, True, unit_of_rounded(numbers)
        )

    def _terminal(self, question: int, index: int) -> bool:
        """True if no reward or error has this index: it is the state behind the last token."""
        kinds = ("rewards", "deltas", "advantages")
        return all(index not in self._told(kind, question) for kind in kinds)

    def _told(self, kind: str, question: int) -> dict[int, Number]:
        return {s.index: s.number for s in self._scalars.get((question, kind), [])[:REACH] if not s.where.supposed}

    def _contradicted(self, kind: str, question: int, series: Series) -> bool:
        """True if the question's own single numbers of the kind are others."""
        return bool(self._told(kind, question)) and not self._confirmed(kind, question, series)

    def _confirmed(self, kind: str, question: int, series: Series) -> bool:
        """True if the question's own single numbers of the kind are those of the list, counted from 0 or from 1."""
        told = self._told(kind, question)
        for base in (1, 0):
            inside = {index - base: number for index, number in told.items() if 0 <= index - base < series.width}
            if inside and all(
                (item := series.rows[0][place]) is not None and abs(item.value - number.value) <= number.unit / 2
                for place, number in inside.items()
            ):
                return True
        return False

    # ── numbers ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def scalars(self, question: int, kind: str) -> list[Scalar]:
        return self._scalars.get((question, kind), [])

    def bases(self, question: int, width: int) -> tuple[int, ...]:
        """From which number the text counts tokens: (0,), (1,), or both where it cannot be told."""
        indices = self._indices[question]
        if 0 in indices:
            return (0,)
        if width in indices:
            return (1,)
        return (1, 0)

    def value_after(self, question: int, width: int) -> float:
        """The value behind the last token, if the text tells one: V_3 of three tokens counted from 0."""
        bases = self.bases(question, width)
        told = self._told("values", question)
        index = width + bases[0]
        return told[index].value if len(bases) == 1 and index in told else 0.0

    def constant(self, kind: str, question: int) -> Constant | None:
        found = self._constants.get((question, kind), [])
        return found[-1] if found else None

    # ── settings ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def stated(self, name: str, where: Where, *, implied: bool = False) -> list[float]:
        """The values of a setting in the claim's question, the nearest in front of the claim first."""
        here = [s for s in self._settings.get((where.question, name), []) if s.implied == implied]
        place = bisect_right([setting.where.line for setting in here], where.line)
        near = here[max(0, place - REACH) : place][::-1] + here[place : place + REACH]
        return list(dict.fromkeys(setting.value for setting in near))[:MOST_STATED]

    def stated_before(self, name: str, where: Where) -> list[float]:
        """Those of earlier questions, the latest first."""
        found: dict[float, None] = {}
        for question in self.before(where.question):
            for setting in reversed(self._settings.get((question, name), [])[-REACH:]):
                if not setting.implied:
                    found[setting.value] = None
        return list(found)[:MOST_STATED]

    def all_stated(self, name: str, question: int) -> set[float]:
        """Every value a question states for a setting."""
        return {setting.value for setting in self._settings.get((question, name), []) if not setting.implied}
