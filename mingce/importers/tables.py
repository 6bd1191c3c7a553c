"""Parquet and JSONL: one row a rollout, token columns as lists; and JSON that is not written line by line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from mingce.base.errors import DataError, first_line
from mingce.importers.limits import (
    ALLOWED,
    MAX_BYTES,
    MAX_LINE,
    MAX_LINES,
    PACKING,
    Refused,
    allow_bytes,
    allow_columns,
)
from mingce.importers.numbers import DTYPES, Numbers, from_array, from_list, rectangle

GROUPS_AT_ONCE = 50


def read_json(path: Path, size: int) -> Any:
    """What a file of JSON holds: a table of its lines, or, where it is no line of objects, the whole as it is."""
    with path.open("rb") as file:
        first = next((line for line in iter(lambda: file.readline(MAX_LINE + 1), b"") if line.strip()), b"")
    if len(first) <= MAX_LINE and size <= MAX_LINE:
        with suppress(ValueError, RecursionError):
            record = json.loads(first)
            if isinstance(record, dict):
                whole = len(first.rstrip()) >= len(path.read_bytes().rstrip()) and _is_batch(record)
                return _with_matrices(record, str(path)) if whole else read_jsonl(path)
        with suppress(ValueError, RecursionError):
            return _with_matrices(json.loads(path.read_bytes()), str(path))
    return read_jsonl(path)


def _is_batch(record: dict[str, Any]) -> bool:
    """Whether an object holds columns of several rows, not one rollout."""
    return any(
        isinstance(value, list) and len(value) > 1 and all(isinstance(row, list) for row in value)
        for value in record.values()
    )


def _with_matrices(data: Any, where: str) -> Any:
    """What JSON holds, with rows of numbers that are all of one length as the array [B, T] that other files have."""
    if isinstance(data, list):
        return [_with_matrices(one, where) for one in data]
    if not isinstance(data, dict):
        return data
    return {
        name: _with_matrices(value, where) if isinstance(value, dict) else _matrix(value, where, name)
        for name, value in data.items()
    }


def _matrix(value: Any, where: str, name: str) -> Any:
    rows = value if isinstance(value, list) and len(value) > 1 else []
    if not rows or not all(isinstance(row, list) and row and len(row) == len(rows[0]) for row in rows):
        return value
    numbers = [from_list(row, where, name) for row in rows]
    there = [row for row in numbers if row is not None]
    return value if len(there) < len(rows) else rectangle(there, where, name)


def read_jsonl(path: Path) -> dict[str, list[Any]]:
    """Name → one entry a line: Numbers for a list of numbers, else the value; None where a line lacks it."""
    columns: dict[str, list[Any]] = {}
    count = lines = numbers = 0
    with path.open("rb") as file:
        while line := file.readline(MAX_LINE + 1):
            lines += 1
            where = f"{path}, line {lines}"
            if len(line) > MAX_LINE:
                raise Refused(f"{where} is longer than {MAX_LINE:,} bytes; write one line a rollout.")
            if lines > MAX_LINES:
                raise Refused(f"{path} has more than {MAX_LINES:,} lines; split it by step.")
            if not line.strip():
                continue
            for name, value in _record(line, where).items():
                entry = _entry(value, where, name)
                numbers += len(entry) if isinstance(entry, Numbers) else 0
                entries = columns.setdefault(name, [])
                entries.extend([None] * (count - len(entries)))
                entries.append(entry)
            count += 1
            allow_columns(str(path), len(columns))
            allow_bytes(str(path), 8 * numbers, MAX_BYTES)
    if not count:
        raise DataError(f"{path} is empty.")
    ALLOWED.take(str(path), "the table", 8 * count * len(columns))
    for entries in columns.values():
        entries.extend([None] * (count - len(entries)))
    return columns


def _record(line: bytes, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is not JSON ({error}); write one object a line.") from error
    if not isinstance(record, dict):
        raise DataError(f"{where} is not an object; write one object a line.")
    return record


def _entry(value: Any, where: str, name: str) -> Any:
    if not isinstance(value, list):
        return value
    if len(value) == 1 and isinstance(value[0], list):  # a batch of one
        value = value[0]
    found = from_list(value, where, name)
    if found is None and value and all(v is None for v in value):
        return None
    return value if found is None else found


def read_parquet(path: Path, size: int) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """Name → one entry a row, and the texts of the file's own metadata."""
    where = str(path)
    with _parquet_errors(where):
        table = unpack_parquet(path, size)
        table.validate(full=True)
        facts = {
            key.decode("utf-8", "replace"): value.decode("utf-8", "replace")
            for key, value in (table.schema.metadata or {}).items()
        }
        return {name: _rows(table[name], where, name) for name in table.column_names}, facts


def unpack_parquet(path: Path, size: int) -> Any:
    """The whole file as Arrow's table; what it declares is looked at before anything of it is unpacked."""
    import pyarrow.parquet as pq

    where = str(path)
    with _parquet_errors(where), pq.ParquetFile(where, page_checksum_verification=True) as file:
        _allow_parquet(file.metadata, where, size)
        return file.read(use_threads=False)


def unpack_sound_parts(
    path: Path, size: int, rows: Sequence[int] | None = None, columns: Sequence[str] | None = None
) -> None:
    """Unpack and hold all of a file that can be, so that its price is known although other parts are damaged.

    With `rows` that is the row groups that hold them, all of one size but the last; with `columns` those columns.
    """
    import pyarrow.parquet as pq

    where = str(path)
    try:
        with _parquet_errors(where), pq.ParquetFile(where, page_checksum_verification=True) as file:
            groups = _groups_of(file.metadata, rows)
            _allow_parquet(file.metadata, where, size, groups, columns)
            _hold_sound_parts(file, groups, [n for n in file.schema_arrow.names if columns is None or n in columns])
    except Refused:
        raise
    except DataError:
        return


def _hold_sound_parts(file: Any, groups: Sequence[int], names: Sequence[str]) -> None:
    """Some row groups at a time, which takes a third of the time of all at once."""
    held = []
    for start in range(0, len(groups), GROUPS_AT_ONCE):
        part = groups[start : start + GROUPS_AT_ONCE]
        try:
            with _parquet_errors(""):
                held.append(file.read_row_groups(part, columns=names, use_threads=False))
        except DataError:
            for group in part:
                for name in names:
                    with suppress(DataError), _parquet_errors(""):
                        held.append(file.read_row_group(group, columns=[name], use_threads=False))


def _groups_of(about: Any, rows: Sequence[int] | None) -> list[int]:
    """The row groups that hold the rows."""
    there = range(about.num_row_groups)
    if rows is None:
        return list(there)
    size = max(about.row_group(0).num_rows, 1) if there else 1
    return sorted({row // size for row in rows} & set(there))


@contextmanager
def _parquet_errors(where: str) -> Iterator[None]:
    """What confuses pyarrow is one sentence."""
    import pyarrow as pa

    try:
        yield
    except pa.ArrowMemoryError as error:
        raise MemoryError from error
    except (pa.ArrowException, OSError, ValueError, OverflowError, LookupError, TypeError) as error:
        reason = first_line(error, 160)
        raise DataError(f"{where} is a damaged or cut Parquet file ({reason}); write it again.") from error


def _allow_parquet(
    about: Any, where: str, size: int, groups: Sequence[int] | None = None, names: Sequence[str] | None = None
) -> None:
    """Look at what the file declares before anything of it is unpacked: a run of equal numbers takes no room in it.

    With `groups` and `names` only at those row groups and columns.
    """
    allow_columns(where, about.num_columns)
    if about.num_rows > MAX_LINES:
        raise Refused(f"{where} declares {about.num_rows:,} rows, more than {MAX_LINES:,}; split it by step.")
    paths = [about.schema.column(at).path for at in range(about.num_columns)]
    places = [at for at, path in enumerate(paths) if names is None or path.partition(".")[0] in names]
    parts = [about.row_group(group) for group in (range(about.num_row_groups) if groups is None else groups)]
    chunks = [part.column(at) for part in parts for at in places]
    declared = sum(max(chunk.total_uncompressed_size, 0) for chunk in chunks)
    allow_bytes(where, declared)
    ALLOWED.claim(min(declared, PACKING * size))
    for chunk in chunks:
        ALLOWED.take(where, chunk.path_in_schema, 8 * max(chunk.num_values, 0))


def _rows(column: Any, where: str, name: str) -> list[Any]:
    import pyarrow as pa

    column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    kind = column.type
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not lists or not _numeric(kind.value_type):
        return list(column.to_pylist())
    flat = column.flatten()
    if flat.null_count:
        values = flat.cast(pa.float64()).to_numpy(zero_copy_only=False)
    else:
        values = flat.to_numpy(zero_copy_only=False)
    whole = from_array(np.asarray(values), where, name)
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths)
    if (lengths < 0).any() or (len(ends) and ends[-1] != len(whole.array)):
        raise DataError(f"{where}: the lengths of '{name}' do not add up; write it again.")
    missing = column.is_null().to_pylist()
    return [
        None if gone else Numbers(whole.array[end - length : end], whole.stored)
        for gone, end, length in zip(missing, ends.tolist(), lengths.tolist(), strict=True)
    ]


def _numeric(kind: Any) -> bool:
    import pyarrow as pa

    name = {"halffloat": "float16", "float": "float32", "double": "float64"}.get(str(kind), str(kind))
    return name in DTYPES or pa.types.is_boolean(kind)
