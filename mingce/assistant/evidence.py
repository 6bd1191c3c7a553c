"""The numbers that were computed for one turn of a dialogue, to which those of a model's reply are traced."""

from __future__ import annotations

import math
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mingce.assistant.literals import Literal, literals
from mingce.record.rollout import Rollout

MOST_TRACED = 64
"""Tokens of a response whose columns a bare number is traced to; in a longer one almost any number would be found."""
_WIDE = str.maketrans("０１２３４５６７８９．％－＋＝", "0123456789.%-+=")
_BELOW = re.compile(r"(?<=[^\W\d_])([₀-₉]+)")
_PLACES = ("line", "token", "step", "rollout", "first", "count", "offset")
"""Keys of results whose whole numbers are places, not quantities."""


@dataclass
class Evidence:
    """The numbers that were computed for one turn, and the words in which they were said."""

    rollout: Rollout
    numbers: list[float] = field(default_factory=list)
    columns: list[Mapping[str, Sequence[Any]]] = field(default_factory=list)
    settings: list[Mapping[str, Any]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    counts: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, rollout: Rollout) -> Evidence:
        """What the rollout itself gives."""
        found = cls(rollout)
        found.columns.append(rollout.columns)
        found.settings.append(rollout.settings.as_dict())
        found.numbers += _finite(rollout.settings.as_dict().values())
        found.numbers += _finite([rollout.bootstrap, rollout.info.score])
        if rollout.whitening is not None:
            found.numbers += _finite(vars(rollout.whitening).values())
        if len(rollout.tokens) <= MOST_TRACED:
            for column in rollout.columns.values():
                found.numbers += _finite(column)
        found.counts |= {len(rollout.tokens), rollout.row, *([] if rollout.step is None else [rollout.step])}
        found.numbers.sort()
        return found

    def add_text(self, text: str) -> None:
        """A text whose numbers were computed, such as the tutor's answer; whole numbers in it may be mere indices."""
        clean = cleaned(text)
        self.texts.append(_squeezed(clean))
        self._add(one.value for one in literals(clean) if one.decimals)

    def add_result(self, result: Any, but: Iterable[float] = ()) -> None:
        """A tool's result; numbers that the model itself had put in prove nothing."""
        own = list(but)
        self._add(x for x in numbers_in(result) if x not in own)
        if isinstance(result, Mapping) and isinstance(result.get("columns"), Mapping):
            self.columns.append(result["columns"])
            if isinstance(result.get("settings"), Mapping):
                self.settings.append(result["settings"])

    def _add(self, numbers: Iterable[float]) -> None:
        self.numbers = sorted([*self.numbers, *_finite(numbers)])

    # ── questions ────────────────────────────────────────────────────────────────────────────────────────────────

    def knows(self, number: Literal) -> bool:
        """Whether one of the computed numbers is, to the digits shown, this one; a percentage may be of a share."""
        if not math.isfinite(number.value):
            return False
        scales = (1.0, 100.0) if number.percent else (1.0,)
        return any(self._near(number.value / scale, number.tolerance / scale) for scale in scales)

    def _near(self, value: float, tolerance: float) -> bool:
        at = bisect_left(self.numbers, value - tolerance)
        return at < len(self.numbers) and self.numbers[at] <= value + tolerance

    def said(self, words: str) -> bool:
        """Whether the computed texts contain these very words, spaces aside; a number in them does not go on."""
        pattern = re.compile(re.escape(_squeezed(words)) + r"(?!\.?\d)")
        return any(pattern.search(text) for text in self.texts)

    def truths(self, kind: str, index: int | None) -> list[float]:
        """What a name stands for: entry `index` of a column in every account of this turn, or a setting."""
        if index is None:
            return _finite(settings.get(kind) for settings in self.settings)
        entries = (columns[kind] for columns in self.columns if kind in columns)
        return _finite(column[index] for column in entries if index < len(column))


def cleaned(text: str) -> str:
    """Without characters that cannot be seen, and with wide digits as plain ones: what is read is what is judged."""
    kept = (c for c in text if c in "\n\t" or unicodedata.category(c) not in ("Cf", "Cc", "Co", "Cs"))
    text = "".join(kept).translate(_WIDE)
    return _BELOW.sub(lambda match: "_" + str(int("".join(str(ord(c) - 0x2080) for c in match[1]))), text)


def _squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


def _finite(values: Iterable[Any]) -> list[float]:
    return [float(x) for x in values if isinstance(x, int | float) and math.isfinite(x)]


def numbers_in(value: Any) -> Iterable[float]:
    """Every number of a JSON value; those in its texts if they have decimals."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int | float):
        yield float(value)
    elif isinstance(value, str):
        yield from (one.value for one in literals(cleaned(value)) if one.decimals)
    elif isinstance(value, Mapping):
        for key, one in value.items():
            if key not in _PLACES:
                yield from numbers_in(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from numbers_in(one)
