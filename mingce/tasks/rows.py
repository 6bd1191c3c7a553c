"""Rows of a data file as plain dictionaries, each converted when it is asked for.

A Parquet file stays an Arrow table and a JSONL file stays its bytes, so that a hundred thousand rows cost little more
memory than the file has bytes.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mingce.base.errors import DataError, first_line

if TYPE_CHECKING:
    import pyarrow as pa


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


class TableRows(Rows):
    """Rows of an Arrow table."""

    kind: str

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        self.path = path
        try:
            self._table = self._read(path)
        except (pa.ArrowException, OSError, EOFError, zlib.error, ValueError) as error:
            reason = first_line(error)
            raise DataError(
                f"{path} cannot be read as {self.kind} ({reason}); write or copy the file again."
            ) from error
        self.columns = list(self._table.column_names)

    @abstractmethod
    def _read(self, path: Path) -> pa.Table: ...

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        row: dict[str, Any] = self._table.slice(index, 1).to_pylist()[0]
        return row

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self._table.to_batches(max_chunksize=1024):  # ten times faster than row by row
            yield from batch.to_pylist()


class ParquetRows(TableRows):
    """Rows of a Parquet file."""

    kind = "Parquet"

    def _read(self, path: Path) -> pa.Table:
        import pyarrow.parquet as pq

        return pq.read_table(path, partitioning=None)


class ArrowRows(TableRows):
    """Rows of a file as `datasets` saves them to disk."""

    kind = "Arrow"

    def _read(self, path: Path) -> pa.Table:
        import pyarrow as pa

        with pa.memory_map(str(path)) as source:
            try:
                return pa.ipc.open_stream(source).read_all()
            except pa.ArrowInvalid:
                source.seek(0)
                return pa.ipc.open_file(source).read_all()


class DelimitedRows(TableRows):
    """Rows of a file with a line of column names and cells between commas or tabs, each of them text as it stands."""

    kind = "CSV"

    def _read(self, path: Path) -> pa.Table:
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        between = "\t" if ".tsv" in path.name.lower() else ","
        data = _read(path)
        text = io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", newline="")
        columns = next(csv.reader(text, delimiter=between), [])
        if len(set(columns)) < len(columns):
            raise ValueError("two columns have one name")
        return arrow_csv.read_csv(
            pa.BufferReader(data),
            read_options=arrow_csv.ReadOptions(block_size=min(max(len(data), 1 << 20), 1 << 30)),
            parse_options=arrow_csv.ParseOptions(delimiter=between, newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(column_types=dict.fromkeys(columns, pa.string())),
        )


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


READERS: dict[str, Callable[[Path], Rows]] = {
    ".parquet": ParquetRows, ".jsonl": JsonLines, ".json": JsonList, ".csv": DelimitedRows, ".tsv": DelimitedRows,
    ".arrow": ArrowRows,
}  # fmt: skip
PACKED = ".gz"


def data_suffix(path: Path) -> str | None:
    """The suffix that says how a data file is read, without that of its packing; None: it is no data file."""
    name = path.name.lower()
    suffix = Path(name.removesuffix(PACKED)).suffix
    table = suffix in (".parquet", ".arrow")  # these pack their own columns
    return suffix if suffix in READERS and not (table and name.endswith(PACKED)) else None


def open_rows(path: Path) -> Rows:
    """The rows of a file by its suffix; at least one."""
    suffix = data_suffix(path)
    if suffix is None:
        raise DataError(
            f"{path} is none of {', '.join(READERS)} (or such a text with {PACKED}); "
            "convert it, or give it the suffix of what it holds."
        )
    if not path.is_file():
        raise DataError(f"there is no data file {path}; check the path.")
    rows = READERS[suffix](path)
    if len(rows) == 0:
        raise DataError(f"{path} holds no rows; write it again, or leave it out.")
    return rows


def _names(rows: Rows) -> list[str]:
    """The columns of all rows: the first one may lack what others have."""
    return list(dict.fromkeys(name for row in rows for name in row))


def _read(path: Path) -> bytes:
    """The bytes of a file, unpacked."""
    try:
        return gzip.decompress(path.read_bytes()) if path.name.lower().endswith(PACKED) else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise DataError(f"{path} cannot be read ({reason}); check its permissions, or copy it again.") from error


def _reason(error: ValueError) -> str:
    return error.msg if isinstance(error, json.JSONDecodeError) else str(error)
