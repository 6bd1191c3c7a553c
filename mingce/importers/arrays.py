"""npz and safetensors: columns by name, each header checked against the bytes that are there."""

from __future__ import annotations

import ast
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from mingce.errors import DataError
from mingce.importers.limits import MAX_TEXT, allow_shape
from mingce.importers.numbers import DTYPES, from_array, from_bytes
from mingce.importers.torch_files import read_member

_SAFE = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip


def read_npz(archive: zipfile.ZipFile, where: str) -> dict[str, Any]:
    """The arrays of an npz archive; a string array is a list of texts, one of zero dimensions a text."""
    return {
        name.removesuffix(".npy"): _npy(read_member(archive, name, where), where, name.removesuffix(".npy"))
        for name in archive.namelist()
        if name.endswith(".npy")
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
    if "O" in code or code[1:2] not in tuple("biufU"):
        raise DataError(f"{where}: '{name}' holds {code!r:.40}, not numbers or texts; save it as float32 or int64.")
    try:
        kind = np.dtype(code)
    except (TypeError, ValueError, SyntaxError) as error:
        raise damaged from error
    cells = allow_shape(where, name, shape)
    body = memoryview(data)[start + length :]
    if (kind.itemsize == 0 and cells) or len(body) != cells * kind.itemsize:
        raise DataError(
            f"{where}: '{name}' declares the shape {list(shape)} but has {len(body):,} bytes; write it again."
        )
    if kind.itemsize == 0:
        return []
    array = np.frombuffer(body, dtype=kind).reshape(shape, order="F" if fortran else "C")
    if kind.kind == "U":
        try:
            return array.tolist()
        except ValueError as error:
            raise damaged from error
    return from_array(array, where, name)


def read_safetensors(path: Path, size: int) -> tuple[dict[str, Any], dict[str, str]]:
    """The columns and the texts of the file's metadata."""
    where = str(path)
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > min(size - 8, 100 * MAX_TEXT):
            raise DataError(f"{where} declares a header of {length:,} bytes in a file of {size:,}; write it again.")
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where} has a header that is not JSON ({error}); write it again.") from error
        body = file.read()
    if not isinstance(header, dict):
        raise DataError(f"{where} has a header that is not an object; write it again.")
    facts = header.pop("__metadata__", {})
    columns = {}
    for name, entry in header.items():
        try:
            dtype, shape, (begin, end) = _SAFE.get(entry["dtype"], ""), entry["shape"], entry["data_offsets"]
            fits = 0 <= begin <= end <= len(body) and isinstance(shape, list)
        except (TypeError, LookupError, ValueError) as error:
            raise DataError(f"{where}: the header of '{name[:80]}' is damaged; write it again.") from error
        if dtype not in DTYPES:
            raise DataError(f"{where}: '{name[:80]}' is stored as {str(entry['dtype'])[:20]}; save it as float32.")
        cells = allow_shape(where, name, shape)
        if not fits or type(begin) is not int or type(end) is not int:
            raise DataError(f"{where}: '{name[:80]}' lies outside of the file, which is damaged or cut short.")
        if end - begin != cells * np.dtype(DTYPES[dtype]).itemsize:
            raise DataError(f"{where}: '{name[:80]}' declares the shape {shape} but has {end - begin} bytes.")
        columns[name] = from_bytes(memoryview(body)[begin:end], dtype, shape, where=where, name=name)
    texts = facts.items() if isinstance(facts, dict) else ()
    return columns, {str(key): value for key, value in texts if isinstance(value, str)}
