"""Dumps handed from one process to another: arrays as they lie in memory, everything else as JSON. Nothing is executed.

A file of 8 bytes (where the JSON begins), the arrays, and the JSON, which says of each array its type, shape and place.
"""

from __future__ import annotations

import itertools
import json
import mmap
from typing import IO, Any

import numpy as np

from mingce.base.errors import ColumnError, DataError, MingceError, ModelError, RunError, SettingError, UnknownNameError
from mingce.importers.limits import Refused
from mingce.record.dump import Array, Dump
from mingce.specs.settings import DumpSettings

_KINDS: dict[str, type[MingceError]] = {
    kind.__name__: kind
    for kind in (Refused, DataError, ColumnError, SettingError, UnknownNameError, RunError, ModelError, MingceError)
}
_TYPES = ("bool", "int64", "float32", "float64")
_PLAIN = ("scalars", "source", "stored", "remarks", "path", "step", "rows_of")


def write_dumps(file: IO[bytes], dumps: list[Dump]) -> None:
    """Each column is let go of once it is written, so that a dump is never held twice."""
    file.write(bytes(8))
    heads = []
    while dumps:
        dump = dumps.pop(0)
        head: dict[str, Any] = {name: getattr(dump, name) for name in _PLAIN} | {"settings": dump.settings.known()}
        head["columns"] = {name: _write(file, dump.columns.pop(name)) for name in list(dump.columns)}
        head["rows"] = {name: _write_rows(file, dump.rows.pop(name)) for name in list(dump.rows)}
        heads.append(head)
    _finish(file, {"dumps": heads})


def write_error(file: IO[bytes], error: MingceError, trace: str = "") -> None:
    about = {key: value for key, value in vars(error).items() if isinstance(value, str | int | None)}
    kind = next((k.__name__ for k in type(error).__mro__ if k.__name__ in _KINDS), "DataError")
    file.seek(0)
    file.write(bytes(8))
    _finish(file, {"error": {"kind": kind, "message": one_line(str(error)), "about": about, "trace": trace[-4000:]}})


def one_line(text: str) -> str:
    """A sentence as a terminal may show it, whatever a stranger's file put into it."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in text[:1000]).strip()


def _finish(file: IO[bytes], head: dict[str, Any]) -> None:
    at = file.tell()
    file.write(json.dumps(head).encode())
    end = file.tell()
    file.truncate(end)
    file.seek(0)
    file.write(at.to_bytes(8, "little"))
    file.flush()


def _write(file: IO[bytes], array: Array) -> dict[str, Any]:
    assert array.dtype.name in _TYPES
    file.write(bytes(-file.tell() % 64))
    at = file.tell()
    file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return {"dtype": array.dtype.name, "shape": list(array.shape), "at": at}


def _write_rows(file: IO[bytes], rows: list[Any]) -> dict[str, Any]:
    """Lists of whole numbers as two arrays, anything else as it is."""
    if not any(isinstance(row, list) for row in rows) or not all(row is None or isinstance(row, list) for row in rows):
        return {"values": rows}
    lengths = [-1 if row is None else len(row) for row in rows]
    flat = np.fromiter(itertools.chain.from_iterable(row or () for row in rows), np.int64)
    return {"lengths": _write(file, np.array(lengths, np.int64)), "flat": _write(file, flat)}


def read_parcel(number: int) -> list[Dump]:
    """The dumps of a finished parcel, or the error it holds, raised. Arrays are pages of the file."""
    pages = mmap.mmap(number, 0, access=mmap.ACCESS_COPY)
    at = int.from_bytes(pages[:8], "little")
    head = json.loads(pages[at:])
    if "error" in head:
        raise _error(**head["error"])
    return [_dump(one, pages) for one in head["dumps"]]


def _error(kind: str, message: str, about: dict[str, Any], trace: str) -> MingceError:
    made = _KINDS[kind].__new__(_KINDS[kind], message)
    made.args = (message,)
    vars(made).update(about)
    if trace:
        made.add_note(trace)
    return made


def _dump(head: dict[str, Any], pages: mmap.mmap) -> Dump:
    columns = {name: _array(entry, pages) for name, entry in head["columns"].items()}
    rows = {name: _rows(entry, pages) for name, entry in head["rows"].items()}
    about = {name: head[name] for name in _PLAIN}
    about["remarks"] = [(zh, en) for zh, en in about["remarks"]]
    return Dump(columns, rows, DumpSettings(**head["settings"]), **about)


def _array(entry: dict[str, Any], pages: mmap.mmap) -> Array:
    kind, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
    cells = int(np.prod(shape, dtype=np.int64))
    return np.frombuffer(pages, kind, cells, entry["at"]).reshape(shape)


def _rows(entry: dict[str, Any], pages: mmap.mmap) -> list[Any]:
    if "values" in entry:
        values: list[Any] = entry["values"]
        return values
    lengths, flat = (_array(entry[key], pages).tolist() for key in ("lengths", "flat"))
    ends = itertools.accumulate(max(length, 0) for length in lengths)
    return [None if n < 0 else flat[end - n : end] for n, end in zip(lengths, ends, strict=True)]
