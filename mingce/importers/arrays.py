"""npz, npy and safetensors: columns by name, each header checked against the bytes that are there."""

from __future__ import annotations

import ast
import io
import itertools
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from mingce.base.errors import DataError
from mingce.importers.limits import ALLOWED, MAX_HEADER, Refused, allow_columns, allow_shape, short
from mingce.importers.numbers import DTYPES, from_array, from_bytes
from mingce.importers.objects import plain
from mingce.importers.pickles import read_pickle
from mingce.importers.torch_files import read_member

_SAFE = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip


def read_npz(archive: zipfile.ZipFile, where: str) -> dict[str, Any]:
    """The arrays of an npz archive; a string array is a list of texts, one of zero dimensions a text."""
    names = [name for name in archive.namelist() if name.endswith(".npy")]
    allow_columns(where, len(names))
    return {
        name.removesuffix(".npy"): _npy(read_member(archive, name, where), where, name.removesuffix(".npy"))
        for name in names
    }


def _npy(data: bytes, where: str, name: str) -> Any:
    damaged = DataError(f"{where}: '{name}' is not an array that numpy wrote, or is cut short; write it again.")
    if data[:6] != b"\x93NUMPY" or len(data) < 12 or data[6] not in (1, 2, 3):
        raise damaged
    wide = 2 if data[6] == 1 else 4
    start = 8 + wide
    length = int.from_bytes(data[8:start], "little")
    if length > min(len(data), 1 << 16):
        raise damaged
    try:
        header = ast.literal_eval(data[start : start + length].decode("latin1").strip())
        code, fortran, shape = str(header["descr"]), bool(header["fortran_order"]), tuple(header["shape"])
    except (ValueError, SyntaxError, LookupError, TypeError, RecursionError, MemoryError) as error:
        raise damaged from error
    if code == "|O":
        return _objects(data[start + length :], shape, where, name)
    if code[1:2] not in tuple("biufU"):
        raise DataError(f"{where}: '{name}' holds {code!r:.40}, not numbers or texts; save it as float32 or int64.")
    try:
        kind = np.dtype(code)
    except (TypeError, ValueError, SyntaxError) as error:
        raise damaged from error
    cells = allow_shape(where, name, shape)
    body = memoryview(data)[start + length :]
    if (kind.itemsize == 0 and cells) or len(body) != cells * kind.itemsize:
        raise DataError(
            f"{where}: '{name}' declares the shape {short(shape)} but has {len(body):,} bytes; write it again."
        )
    if kind.itemsize == 0:
        return []
    ALLOWED.take(
        where, name, cells * (64 + kind.itemsize if kind.kind == "U" else 8)
    )  # a text of Python's is an object
    array = np.frombuffer(body, dtype=kind).reshape(shape, order="F" if fortran else "C")
    if kind.kind == "U":
        try:
            return array.tolist()
        except ValueError as error:
            raise damaged from error
    return from_array(array, where, name)


def _objects(data: bytes, shape: tuple[int, ...], where: str, name: str) -> Any:
    """An array of objects, which numpy writes as a pickle: a list of rows, or the one object itself."""
    made = plain(read_pickle(io.BytesIO(data), where), where, name)
    if not isinstance(made, list):
        raise DataError(f"{where}: '{name}' is not an array that numpy wrote; save it as float32 or int64.")
    if len(shape) == 2 and shape[1] and len(made) == allow_shape(where, name, shape):
        return [made[at : at + shape[1]] for at in range(0, len(made), shape[1])]
    return made[0] if shape == () and made else made


def read_npy(data: bytes, where: str) -> Any:
    """What one file of numpy holds: a dict that was saved as an object; anything else has no names."""
    return _npy(data, where, "the array")


def read_safetensors(path: Path, size: int) -> tuple[dict[str, Any], dict[str, str]]:
    """The columns and the texts of the file's metadata."""
    where = str(path)
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > min(size - 8, MAX_HEADER):
            raise DataError(f"{where} declares a header of {length:,} bytes in a file of {size:,}; write it again.")
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where} has a header that is not JSON ({error}); write it again.") from error
        body = file.read()
    if not isinstance(header, dict):
        raise DataError(f"{where} has a header that is not an object; write it again.")
    facts = header.pop("__metadata__", {})
    columns = {
        name: from_bytes(memoryview(body)[begin:end], dtype, shape, where=where, name=name)
        for name, (dtype, shape, begin, end) in _tensors(header, len(body), where).items()
    }
    texts = facts.items() if isinstance(facts, dict) else ()
    return columns, {str(key): value for key, value in texts if isinstance(value, str)}


def _tensors(header: dict[str, Any], size: int, where: str) -> dict[str, tuple[str, list[int], int, int]]:
    """Name → dtype, shape, begin and end of every tensor; each has bytes of its own in a body of that size."""
    allow_columns(where, len(header))
    found: dict[str, tuple[str, list[int], int, int]] = {}
    for name, entry in header.items():
        said = f"{where}: '{short(name)}'"
        try:
            dtype, shape, (begin, end) = _SAFE.get(entry["dtype"], ""), entry["shape"], entry["data_offsets"]
            fits = 0 <= begin <= end <= size and isinstance(shape, list)
        except (TypeError, LookupError, ValueError) as error:
            raise DataError(f"{said} has a damaged header; write it again.") from error
        if dtype not in DTYPES:
            raise DataError(f"{said} is stored as {short(entry['dtype'])}; save it as float32.")
        if not fits or type(begin) is not int or type(end) is not int:
            raise DataError(f"{said} lies outside of the file, which is damaged or cut short.")
        if end - begin != allow_shape(where, name, shape) * np.dtype(DTYPES[dtype]).itemsize:
            raise DataError(f"{said} declares the shape {short(shape)} but has {end - begin} bytes.")
        found[name] = (dtype, shape, begin, end)
    spans = sorted((begin, end, name) for name, (_, _, begin, end) in found.items() if begin < end)
    for (_, end, one), (begin, _, other) in itertools.pairwise(spans):
        if begin < end:
            raise Refused(f"{where}: '{short(one)}' and '{short(other)}' share the same bytes; write each by itself.")
    return found
