"""Numbers as they stand in a file: arrays of exactly the stored values, and the dtype they were stored in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mingce.base.errors import DataError
from mingce.importers.limits import ALLOWED, MAX_CELLS, Refused, allow_shape, short

Array = NDArray[Any]

# dtype in the file → the numpy type its bytes are read with; bfloat16 has none and is widened bit by bit
DTYPES: dict[str, str] = {
    "float64": "<f8", "float32": "<f4", "float16": "<f2", "bfloat16": "<u2", "int64": "<i8", "int32": "<i4",
    "int16": "<i2", "int8": "<i1", "uint64": "<u8", "uint32": "<u4", "uint16": "<u2", "uint8": "<u1", "bool": "<u1",
}  # fmt: skip


@dataclass(frozen=True)
class Numbers:
    """An array of bool, int64, float32 or float64; 16-bit floats are widened to float32."""

    array: Array
    stored: str

    def __len__(self) -> int:
        return len(self.array) if self.array.ndim else 0

    @property
    def ndim(self) -> int:
        return self.array.ndim

    def rows(self, start: int | None, stop: int | None) -> Numbers:
        """The columns start … stop of a [B, S] array."""
        return Numbers(self.array[:, start:stop], self.stored)


def item_size(dtype: str) -> int:
    return np.dtype(DTYPES[dtype]).itemsize


def widened(raw: Array, stored: str) -> Numbers:
    """What was read with the type of DTYPES, as Numbers."""
    if stored == "bfloat16":
        return Numbers((raw.astype(np.uint32) << 16).view(np.float32), stored)
    if stored == "bool":
        return Numbers(raw != 0, stored)
    if stored == "float16":
        return Numbers(raw.astype(np.float32), stored)
    if stored in ("float32", "float64"):
        return Numbers(raw, stored)
    return Numbers(raw.astype(np.int64), stored)


def from_bytes(
    data: bytes | memoryview,
    dtype: str,
    shape: Sequence[int],
    *,
    where: str,
    name: str,
    offset: int = 0,
    strides: Sequence[int] | None = None,
) -> Numbers:
    """The array of that shape in `data`; offset and strides count elements, as in torch. Never reads past the data."""
    if dtype not in DTYPES:
        raise DataError(f"{where}: '{name}' is stored as {short(dtype)}, which is not read; save it as float32.")
    shape = tuple(shape)
    cells = allow_shape(where, name, shape)
    kind = np.dtype(DTYPES[dtype])
    there = len(data) // kind.itemsize
    if strides is None:
        last = cells - 1
    else:
        strides = tuple(strides)
        if len(strides) != len(shape) or not all(type(s) is int and 0 <= s <= MAX_CELLS for s in strides):
            raise DataError(f"{where}: '{name}' has the strides {short(strides)}; the file is damaged, write it again.")
        last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if type(offset) is not int or offset < 0 or (cells and offset + last >= there):
        raise DataError(
            f"{where}: '{name}' declares the shape {short(shape)} over {there:,} stored numbers; "
            "the file is damaged or cut short, write it again."
        )
    ALLOWED.take(where, name, 8 * cells)
    flat = np.frombuffer(data, dtype=kind, count=there)
    if cells == 0:
        return widened(np.zeros(shape, dtype=kind), dtype)
    if strides is None:
        return widened(flat[offset : offset + cells].reshape(shape), dtype)
    steps = tuple(stride * kind.itemsize for stride in strides)
    return widened(np.lib.stride_tricks.as_strided(flat[offset:], shape, steps, writeable=False), dtype)


def from_array(array: Array, where: str, name: str) -> Numbers:
    """A numpy array of plain numbers."""
    if array.dtype.kind not in "biuf" or array.dtype.name not in DTYPES:
        raise DataError(f"{where}: '{name}' holds {array.dtype}, not numbers; save it as float32 or int64.")
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    name = array.dtype.name
    if name == "bool":
        return Numbers(array, name)
    return widened(array, name)


def from_list(values: Sequence[Any], where: str, name: str) -> Numbers | None:
    """A flat list of numbers as JSON has them (None is NaN); None if it holds anything else."""
    kinds = set(map(type, values))
    if not kinds <= {int, float, bool, type(None)}:
        return None
    try:
        if kinds <= {bool} and kinds:
            return Numbers(np.array(values, dtype=bool), "json")
        if kinds <= {int, bool}:
            return Numbers(np.array(values, dtype=np.int64), "json")
        if kinds == {type(None)}:
            return None
        if type(None) in kinds:
            values = [np.nan if v is None else v for v in values]
        return Numbers(np.array(values, dtype=np.float64), "json")
    except (OverflowError, ValueError) as error:
        raise DataError(f"{where}: '{name}' holds a number that does not fit 64 bits.") from error


def rectangle(rows: Sequence[Numbers], where: str, name: str, width: int | None = None) -> Numbers:
    """Rows [n_i] of different lengths as [B, T], zeros behind each row's end."""
    longest = max((len(row) for row in rows), default=0)
    width = longest if width is None else width
    if width < longest:
        raise DataError(f"{where}: '{name}' has a row of {longest} numbers where {width} slots are declared.")
    if len(rows) * width > MAX_CELLS:
        raise Refused(
            f"{where}: '{name}' would need {len(rows)} × {width} cells, more than {MAX_CELLS:,}; split the dump."
        )
    ALLOWED.take(where, name, 8 * len(rows) * width)
    kinds = {row.array.dtype for row in rows if len(row)} or {np.dtype(np.float64)}
    kind = np.result_type(*kinds)
    filled = np.zeros((len(rows), width), dtype=kind)
    for i, row in enumerate(rows):
        filled[i, : len(row)] = row.array
    return Numbers(filled, next((row.stored for row in rows if len(row)), "float64"))
