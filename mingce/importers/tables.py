"""Parquet and JSONL: one row a rollout, token columns as lists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from mingce.errors import DataError
from mingce.importers.limits import MAX_BYTES, MAX_CELLS, MAX_LINE, MAX_LINES, Refused, allow_bytes
from mingce.importers.numbers import DTYPES, Numbers, from_array, from_list
from mingce.importers.parquet_files import harm, load


def read_jsonl(path: Path) -> dict[str, list[Any]]:
    """Name → one entry a line: Numbers for a list of numbers, else the value; None where a line lacks it."""
    columns: dict[str, list[Any]] = {}
    count, numbers = 0, 0
    with path.open("rb") as file:
        while line := file.readline(MAX_LINE + 1):
            where = f"{path}, line {count + 1}"
            if len(line) > MAX_LINE:
                raise Refused(f"{where} is longer than {MAX_LINE:,} bytes; write one line a rollout.")
            if not line.strip():
                continue
            if count >= MAX_LINES:
                raise Refused(f"{path} has more than {MAX_LINES:,} lines; split it by step.")
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{where} is not JSON ({error}); write one object a line.") from error
            if not isinstance(record, dict):
                raise DataError(f"{where} is not an object; write one object a line.")
            for name, value in record.items():
                entry = _entry(value, where, name)
                numbers += len(entry) if isinstance(entry, Numbers) else 0
                columns.setdefault(name, [None] * count).append(entry)
            count += 1
            allow_bytes(str(path), 8 * numbers, MAX_BYTES)
            for entries in columns.values():
                if len(entries) < count:
                    entries.append(None)
    if not count:
        raise DataError(f"{path} is empty.")
    return columns


def _entry(value: Any, where: str, name: str) -> Any:
    if not isinstance(value, list):
        return value
    if len(value) == 1 and isinstance(value[0], list):  # a batch of one
        value = value[0]
    found = from_list(value, where, name)
    if found is None and value and all(v is None for v in value):
        return None
    return value if found is None else found


def read_parquet(path: Path) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """Name → one entry a row, and the texts of the file's own metadata."""
    import pyarrow as pa

    where, limits = str(path), (MAX_BYTES, MAX_LINES, MAX_CELLS)
    reason = harm(where, *limits)
    if reason is not None:
        raise DataError(f"{where} is a damaged, cut or oversized Parquet file ({reason}); write it again.")
    try:
        table = load(where, *limits)
        facts = {
            key.decode("utf-8", "replace"): value.decode("utf-8", "replace")
            for key, value in (table.schema.metadata or {}).items()
        }
        return {name: _rows(table[name], where, name) for name in table.column_names}, facts
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError, LookupError, TypeError) as error:
        reason = str(error).splitlines()[0][:160] if str(error) else type(error).__name__
        raise DataError(f"{where} is a damaged or cut Parquet file ({reason}); write it again.") from error


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
