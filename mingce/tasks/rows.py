"""Rows of a data file as plain dictionaries, each converted when it is asked for.

A Parquet file stays an Arrow table and a JSONL file stays its bytes, so that a hundred thousand rows cost little more
memory than the file has bytes.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mingce.base.errors import DataError, first_line


class Rows(ABC):
    """The rows of a file; `columns` are those of the table, or of all rows where there is no table."""

    path: Path
    columns: list[str]
    unit = "row"

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, index: int) -> dict[str, Any]: ...

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[index] for index in range(len(self)))

    def number(self, index: int) -> int:
        """The number a person finds the row by, from 1."""
        return index + 1

    def where(self, index: int) -> str:
        """The place of a row as a message says it."""
        return f"{self.path}, {self.unit} {self.number(index)}"

    def _checked(self, row: Any, index: int) -> dict[str, Any]:
        if not isinstance(row, dict):
            raise DataError(f"{self.where(index)} is not an object with named columns; mend or remove it.")
        return row


class ParquetRows(Rows):
    """Rows of a Parquet file."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.path = path
        try:
            self._table = pq.read_table(path, partitioning=None)
        except (pa.ArrowException, OSError, ValueError) as error:
            reason = first_line(error)
            raise DataError(f"{path} cannot be read as Parquet ({reason}); write or copy the file again.") from error
        self.columns = list(self._table.column_names)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        row: dict[str, Any] = self._table.slice(index, 1).to_pylist()[0]
        return row

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self._table.to_batches(max_chunksize=1024):  # ten times faster than row by row
            yield from batch.to_pylist()


class JsonLines(Rows):
    """Rows of a file with one JSON object a line; empty lines are passed over."""

    unit = "line"

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines = _read(path).split(b"\n")
        self._at = [at for at, line in enumerate(self._lines) if line.strip()]
        self.columns = _names(self)

    def __len__(self) -> int:
        return len(self._at)

    def __getitem__(self, index: int) -> dict[str, Any]:
        try:
            row = json.loads(self._lines[self._at[index]])
        except ValueError as error:
            raise DataError(f"{self.where(index)} is not JSON ({_reason(error)}); mend or remove the line.") from error
        return self._checked(row, index)

    def number(self, index: int) -> int:
        return self._at[index] + 1


class JsonList(Rows):
    """Rows of a file that is one JSON list of objects."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._rows = json.loads(_read(path).strip() or b"[]")
        except ValueError as error:
            line = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
            raise DataError(f"{path}{line} is not JSON ({_reason(error)}); mend the file.") from error
        if not isinstance(self._rows, list):
            raise DataError(f"{path} is not a JSON list of objects; put the rows into [ ], or name it .jsonl.")
        self.columns = _names(self)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self._checked(self._rows[index], index)


READERS: dict[str, Callable[[Path], Rows]] = {".parquet": ParquetRows, ".jsonl": JsonLines, ".json": JsonList}


def open_rows(path: Path) -> Rows:
    """The rows of a file by its suffix; at least one."""
    if path.suffix.lower() not in READERS:
        raise DataError(f"{path} is none of {', '.join(READERS)}; convert it, or give it the suffix of what it holds.")
    if not path.is_file():
        raise DataError(f"there is no data file {path}; check the path.")
    rows = READERS[path.suffix.lower()](path)
    if len(rows) == 0:
        raise DataError(f"{path} holds no rows; write it again, or leave it out.")
    return rows


def _names(rows: Rows) -> list[str]:
    """The columns of all rows: the first one may lack what others have."""
    return list(dict.fromkeys(name for row in rows for name in row))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check its permissions.") from error


def _reason(error: ValueError) -> str:
    return error.msg if isinstance(error, json.JSONDecodeError) else str(error)
