"""What stands in a pickle, as data: tensors are views of their storage, objects of foreign classes are records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mingce.base.errors import DataError
from mingce.importers.limits import ALLOWED, MAX_LINES, short
from mingce.importers.numbers import Numbers, from_bytes

RESAVE = "save it again as a plain dict of tensors or as .npz or .safetensors"


@dataclass
class Named:
    """A name the pickle refers to: never looked up, only compared."""

    name: str


@dataclass
class Record:
    """An object of a foreign class: what it was made of, nothing of what it does."""

    name: str
    args: tuple[Any, ...] = ()
    state: Any = None
    entries: list[Any] = field(default_factory=list)

    def append(self, entry: Any) -> None:
        """As the unpickler fills a class that is a list."""
        self.entries.append(entry)


@dataclass
class Storage:
    """A stretch of memory; `data` is fetched when a view of it is first read."""

    dtype: str
    size: int
    fetch: Callable[[], bytes | memoryview]
    _data: bytes | memoryview | None = field(default=None, repr=False)

    @property
    def data(self) -> bytes | memoryview:
        if self._data is None:
            self._data = self.fetch()
        return self._data


@dataclass
class View:
    """A tensor: a shape over a storage."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: str

    def numbers(self, where: str, name: str) -> Numbers:
        return from_bytes(
            self.storage.data, self.dtype, self.shape, where=where, name=name, offset=self.offset, strides=self.strides
        )


@dataclass
class Ragged:
    """A nested tensor: row i is `values` from start i on, up to its length or else to the next start."""

    values: View
    starts: View
    lengths: View | None

    def rows(self, where: str, name: str) -> list[Numbers]:
        values, starts = self.values.numbers(where, name), self.starts.numbers(where, name)
        lengths = None if self.lengths is None else self.lengths.numbers(where, name).array.reshape(-1)
        begin = starts.array if lengths is not None else starts.array[:-1]
        end = starts.array[1:] if lengths is None else begin[: len(lengths)] + lengths
        whole = all(one is None or one.dtype.kind == "i" for one in (starts.array, lengths))
        if not whole or values.ndim != 1 or starts.ndim != 1 or len(begin) < len(end) or len(end) > MAX_LINES:
            raise DataError(f"{where}: '{short(name)}' is a nested tensor of other than rows of numbers; {RESAVE}.")
        if ((begin[: len(end)] < 0) | (end < begin[: len(end)]) | (end > len(values))).any():
            raise DataError(f"{where}: '{short(name)}' has rows outside of its numbers; {RESAVE}.")
        ALLOWED.take(where, name, 200 * len(end))  # a row is an object of Python's
        spans = zip(begin[: len(end)].tolist(), end.tolist(), strict=True)
        return [Numbers(values.array[first:last], values.stored) for first, last in spans]


@dataclass
class ArrayShell:
    """A numpy array, filled in by the BUILD that follows."""

    value: Any = None


@dataclass
class TypeShell:
    """A numpy dtype."""

    code: str
    order: str = "|"

    @property
    def dtype(self) -> np.dtype[Any]:
        if self.order == ">" or self.code[:1] not in "fiubUS" or not self.code[1:].isdigit():
            raise DataError(f"an array of dtype '{self.order}{self.code}' is not read")
        return np.dtype(("<" if self.code[0] in "fiuU" else "") + self.code)


def plain(value: Any, where: str, name: str) -> Any:
    """A tensor or array as Numbers (object arrays as lists), a TensorDict as a dict; anything else as it is."""
    if isinstance(value, View):
        return value.numbers(where, name)
    if isinstance(value, Ragged):
        return value.rows(where, name)
    if isinstance(value, ArrayShell):
        return value.value
    if isinstance(value, Record) and isinstance(value.state, dict):
        return _of_record(value.state)
    if isinstance(value, Record) and value.entries:
        return value.entries
    return value


def _of_record(state: dict[str, Any]) -> Any:
    """What a TensorDict, a NonTensorStack or a NonTensorData holds; of anything else its fields."""
    if isinstance(inner := state.get("_tensordict"), dict):
        return inner
    if isinstance(stacked := state.get("tensordicts"), list):
        return [_of_record(one.state) if isinstance(one, Record) and isinstance(one.state, dict) else one
                for one in stacked]  # fmt: skip
    if isinstance(beside := state.get("non_tensordict"), dict) and "data" in beside:
        return beside["data"]
    return state
