"""The dump as the checks see it: float64 columns, masks and ends, tolerances, and what was learnt on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from mingce.audit import rounding
from mingce.audit.finding import Place
from mingce.record.dump import LOSS, Dump

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Column = TypeVar("Column", Floats, Bools)
P = ParamSpec("P")
T = TypeVar("T")
PLACES = 5


class Evidence:
    """One dump under audit. Checks read it; what a check learns for later ones stands in `settings`."""

    def __init__(self, dump: Dump):
        self.dump = dump
        self.settings = dump.settings
        self.inferred: set[str] = set()
        self.broken: set[str] = set()  # columns found wrong: later checks do not judge others by them
        self.blamed: set[str] = set()  # columns whose log-probs are of other tokens, or noisy: named already
        self.gap_explained = False  # another check says why sampler and trainer differ
        self.memo: dict[Any, Any] = {}  # what several checks ask for and one of them has worked out (`once`)
        self._wide: dict[str, Floats] = {}
        self._kinds: dict[str, str | None] = {}
        self._errors: dict[str, Floats] = {}

    def has(self, *names: str) -> bool:
        return self.dump.has(*names)

    def __getitem__(self, name: str) -> Floats:
        """A token column in float64 [B, T]."""
        if name not in self._wide:
            self._wide[name] = self.dump.wide(name)
        return self._wide[name]

    def row(self, name: str) -> list[Any]:
        return self.dump.rows[name]

    def infer(self, name: str, value: Any) -> None:
        """Keep a setting that the numbers gave away; one that was given stays as it is."""
        if getattr(self.settings, name) is None:
            self.settings = replace(self.settings, **{name: value})
            self.inferred.add(name)

    @cached_property
    def mask(self) -> Bools:
        """m [B, T]: the policy chose this token."""
        return self.dump.mask

    @cached_property
    def loss_mask(self) -> Bools:
        """ℓ [B, T]: the token enters the losses; m where the dump does not say."""
        return self.dump.columns["loss_mask"].astype(bool) if "loss_mask" in self.dump.columns else self.mask

    @cached_property
    def attended(self) -> Bools:
        """a [B, T]: the slot holds a token, chosen or not; up to the last chosen one if it is unknown."""
        if "attention_mask" in self.dump.columns:
            return self.dump.columns["attention_mask"].astype(bool)
        slots = np.arange(self.mask.shape[1])
        return slots[None, :] <= self.last[:, None]

    @cached_property
    def last(self) -> Ints:
        """e [B]: the last chosen token's slot, −1 in a row without one."""
        return last_slot(self.mask)

    @cached_property
    def last_attended(self) -> Ints:
        """l [B]: the last slot that holds a token, −1 in an empty row."""
        return last_slot(self.attended)

    @cached_property
    def holes(self) -> Bools:
        """[B, T] slots before the last chosen token that the policy did not choose (tool output)."""
        slots = np.arange(self.mask.shape[1])
        return (slots[None, :] < self.last[:, None]) & ~self.mask

    @cached_property
    def coarse(self) -> bool:
        """Whether the dump's numbers are rounded to 16 bits, so that identities hold to about three digits only."""
        names = ("rewards", "values", "returns", LOSS, "scores")
        return any(self.grid(name) for name in names if self.dump.holds(name))

    def grid(self, name: str) -> bool:
        """Whether a column's numbers all sit on the bfloat16 or float16 grid (stored so, or computed so)."""
        return self.kind(name) in rounding.HALF

    def kind(self, name: str) -> str | None:
        """The format that a column's numbers have: as stored, or as its grid shows; None if they do not say."""
        name = self.dump.name_of(name)
        if name not in self._kinds:
            stored, column = self.dump.stored.get(name), self.dump.columns[name]
            self._kinds[name] = stored if stored in rounding.HALF else rounding.kind_of(column[self.mask])
        return self._kinds[name]

    def error(self, name: str) -> Floats:
        """[B, T] how far rounding may have moved each number of a column; 0 where it is not finite.

        A column of too few different numbers to show its format has the coarsest that it may have.
        """
        name = self.dump.name_of(name)
        if name not in self._errors:
            seen = self.dump.columns[name][self.mask]
            self._errors[name] = finite(rounding.error_of(self[name], self.kind(name) or self._coarsest(seen)))
        return self._errors[name]

    def row_numbers(self, name: str) -> tuple[Floats, Floats]:
        """[B] the numbers of a row column, 0 where there is none, and how far rounding may have moved them."""
        numbers = finite(np.array([np.nan if one is None else float(one) for one in self.row(name)]))
        return numbers, rounding.error_of(numbers, rounding.kind_of(numbers) or self._coarsest(numbers))

    def _coarsest(self, numbers: NDArray[Any]) -> str:
        if numbers.dtype.kind != "f":
            return "float32"
        floats = (name for name, column in self.dump.columns.items() if column.dtype.kind == "f")
        return rounding.coarsest(numbers, {kind for name in floats if (kind := self.kind(name)) is not None})

    @cached_property
    def stop_ids(self) -> set[int]:
        """Every id that ends a response."""
        eos, others = self.settings.eos_id, self.settings.stop_ids
        return {int(one) for one in (*(others or ()), *(() if eos is None else (eos,)))}

    @property
    def tolerance(self) -> float:
        """How far, relative to the row's scale, a recomputed number may lie from the stored one."""
        return 3e-2 if self.coarse else 2e-4

    def scale(self, *columns: Floats) -> Floats:
        """[B, 1] the largest finite magnitude of the columns on the row's chosen tokens, at least 10⁻³ of all."""
        largest = np.zeros((len(self.mask), 1))
        for column in columns:
            seen = np.where(self.mask & np.isfinite(column), np.abs(column), 0.0)
            largest = np.maximum(largest, seen.max(axis=1, initial=0.0)[:, None])
        return np.maximum(largest, max(1e-3 * float(largest.max(initial=0.0)), 1e-12))

    def places(self, wrong: Bools, expected: Floats, found: Floats) -> tuple[Place, ...]:
        """The first few tokens where `wrong`, with both numbers."""
        return tuple(
            Place(int(row), int(token), float(expected[row, token]), float(found[row, token]))
            for row, token in np.argwhere(wrong)[:PLACES]
        )


def once(function: Callable[Concatenate[Evidence, P], T]) -> Callable[Concatenate[Evidence, P], T]:
    """A function of the evidence that is computed once for a dump, however many checks ask for it."""

    @wraps(function)
    def remembered(e: Evidence, /, *arguments: P.args, **options: P.kwargs) -> T:
        key = (function.__name__, *arguments)
        if key not in e.memo:
            e.memo[key] = function(e, *arguments, **options)
        found: T = e.memo[key]
        return found

    return remembered


def either(value: float | None, otherwise: float) -> float:
    """A setting, or what to take where it is not known."""
    return otherwise if value is None else float(value)


def finite(column: Floats) -> Floats:
    """The column with 0 where it is not finite."""
    return np.nan_to_num(column, nan=0.0, posinf=0.0, neginf=0.0)


def shift(column: Column, by: int) -> Column:
    """[B, T] slot t holds what stands in slot t + by, 0 where that is beyond the row."""
    moved = np.zeros_like(column)
    if by > 0:
        moved[:, :-by] = column[:, by:]
    else:
        moved[:, -by:] = column[:, :by]
    return moved


def all_finite(*columns: Floats) -> bool:
    return all(bool(np.isfinite(column).all()) for column in columns)


def fits_16_bits(column: NDArray[Any]) -> bool:
    """Whether bfloat16 holds every number of a float32 column."""
    return column.dtype == np.float32 and rounding.fits(column, "bfloat16")


def part_numbers(names: Iterable[Any]) -> Ints:
    """[B] the number of the part that each row belongs to, by the parts' names."""
    return np.unique([str(name) for name in names], return_inverse=True)[1].astype(np.int64)


def last_slot(mask: Bools) -> Ints:
    """[B] the last slot that is set, −1 in a row without one."""
    width = mask.shape[1]
    if width == 0:
        return np.full(len(mask), -1)
    return np.where(mask.any(axis=1), width - 1 - mask[:, ::-1].argmax(axis=1), -1)


def share_of_rows(wrong: Bools, judged: Bools) -> float:
    """The part of the rows with a judged slot in which one is wrong."""
    return float(rows_with(wrong).sum() / max(int(rows_with(judged).sum()), 1))


def rows_with(flags: Bools) -> Bools:
    """[B] the rows in which any slot is set."""
    return np.asarray(flags.any(axis=1))
