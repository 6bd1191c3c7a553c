"""Ledgers on disk: one Parquet file per step, one row per rollout, any rollout readable without scanning.

    ledger/step-000012.parquet      token columns as lists as long as the rollout, row columns as plain values

The files are ordinary Parquet (zstd, page checksums), so pandas, polars and DuckDB read them as they are. Every number
comes back bit for bit. Row groups are small, and only the one that holds a rollout is read for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

import mingce
from mingce.base.atomic import Hint, atomic_write, sync_path, try_again
from mingce.base.errors import ColumnError, DataError, MingceError, RunError, first_line
from mingce.base.places import step_name, steps_in
from mingce.columns import ROW_COLUMNS, column
from mingce.record.checksums import sha256

if TYPE_CHECKING:
    from mingce.ledger import Ledger  # torch is not needed to look at a ledger

FORMAT = 1
MAX_CELLS = 1 << 28  # of a ledger in memory: rows × width; honest ones may have more, in proportion to their tokens
GROUP_ROWS = 32  # rollouts in a row group; more when they are short, because each group has its price
GROUP_TOKENS = 4096
PART_BYTES = 32 << 20
FIRST_ROWS = 100
FOOTERS = 4  # kept in memory
_SUFFIX = ".parquet"
ROW_TYPES = {
    "str": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "list[int]": pa.list_(pa.int64()),
    "list[float]": pa.list_(pa.float64()),
    "dict[str, float]": pa.string(),  # as JSON: the parts of a score are the task's own
}


class LedgerFileError(RunError):
    """A file that is no ledger, not whole, or of a newer mingce."""


class LedgerStore:
    """The ledgers of a run, by step."""

    def __init__(self, directory: Path | str, *, hint: Hint = try_again, check: Callable[[], object] = lambda: None):
        """`hint` ends the sentence that reports a full disk; `check` is called before anything is written."""
        self.directory = Path(directory)
        self._hint, self._check = hint, check
        self.digests: dict[int, str] = {}
        """SHA-256 of the files written by this process, by step, until somebody notes them."""
        self._unsynced: list[Path] = []
        self.check_bounds: CheckBounds | None = None
        """Called before a part of a file is read first, where it may be a stranger's; refuses it by a DataError."""
        self._bounded: dict[int, _Bounded] = {}
        self._footers: dict[int, tuple[tuple[int, int], pq.FileMetaData]] = {}

    def steps(self) -> list[int]:
        """The steps that have a ledger, in order."""
        return steps_in(self.directory, _SUFFIX)

    def write(self, step: int, ledger: Ledger) -> Path:
        """Write one step's ledger, whole or not at all; `sync` makes it proof against a power cut too."""
        return self.write_table(step, _to_table(step, ledger), int(ledger.lengths.sum()) // max(len(ledger), 1))

    def write_table(self, step: int, table: pa.Table, tokens_a_row: int) -> Path:
        """The same for what is a table already, such as a step of another trainer (mingce.record.foreign)."""
        buffer = pa.BufferOutputStream()
        pq.write_table(
            table,
            buffer,
            row_group_size=max(GROUP_ROWS, GROUP_TOKENS // max(tokens_a_row, 1)),
            compression="zstd",
            compression_level=1,
            use_dictionary=False,
            write_statistics=False,
            write_page_checksum=True,
        )
        path, content = self._path(step), buffer.getvalue().to_pybytes()
        self._check()
        self.directory.mkdir(parents=True, exist_ok=True)
        atomic_write(path, content, durable=False, hint=self._hint)
        self.digests[step] = sha256(content)
        self._unsynced.append(path)
        return path

    def sync(self) -> None:
        """Flush what was written to the disk."""
        while self._unsynced:
            path = self._unsynced[-1]
            if path.exists():
                sync_path(path)
            self._unsynced.pop()
        if self.directory.exists():
            sync_path(self.directory)

    def read(self, step: int) -> Ledger:
        """The ledger of a step, as it was written; slots past a rollout's end are 0."""
        with self._opened(step, columns=None) as file:
            return _to_ledger(file.read(use_threads=False))

    def rollout(self, step: int, row: int) -> dict[str, Any]:
        """One rollout's columns by name: a list of numbers each for token columns, a plain value for row columns."""
        return self.rollouts(step, [row])[0]

    def rollouts(
        self, step: int, rows: Sequence[int], columns: Sequence[str] | None = None, tokens: int | None = None
    ) -> list[dict[str, Any]]:
        """Some rollouts of a step in the given order, with all columns or those of the given names that are there.

        `tokens` limits the length of each list.
        """
        with self._opened(step, rows) as file:
            count = file.metadata.num_rows
            for row in rows:
                if not 0 <= row < count:
                    raise RunError(f"step {step} has {count} rollouts, numbered from 0; there is no row {row}")
            names = None if columns is None else [name for name in file.schema_arrow.names if name in columns]
            rollouts: dict[int, dict[str, Any]] = {}
            size = file.metadata.row_group(0).num_rows if count else 1
            for group in sorted({row // size for row in rows}):
                table = file.read_row_group(group, columns=names, use_threads=False)
                for row in (row for row in rows if row // size == group):
                    one = _cut(table.slice(row - group * size, 1), tokens)
                    rollouts[row] = {name: _plain(name, one[name])[0] for name in one.column_names}
            return [rollouts[row] for row in rows]

    def column_names(self, step: int) -> list[str]:
        """The names of a step's columns, as stored."""
        with self._opened(step) as file:
            return list(file.schema_arrow.names)

    def count(self, step: int) -> int:
        """How many rollouts a step has."""
        with self._opened(step) as file:
            return int(file.metadata.num_rows)

    def column(self, step: int, name: str) -> pa.Array | None:
        """One column of a step as Arrow holds it; None if the step has no such column."""
        with self._opened(step, columns=(name,)) as file:
            if name not in file.schema_arrow.names:
                return None
            return file.read(columns=[name], use_threads=False)[name].combine_chunks()

    def parts(self, step: int, names: Sequence[str], size: int = PART_BYTES) -> Iterator[pa.Table]:
        """Those of the named columns that are there, some row groups at a time: about `size` bytes of all columns."""
        with self._opened(step, columns=names) as file:
            there = [name for name in file.schema_arrow.names if name in names]
            groups: list[int] = []
            held = 0
            for group in range(file.metadata.num_row_groups):
                groups.append(group)
                held += file.metadata.row_group(group).total_byte_size
                if held >= size or group == file.metadata.num_row_groups - 1:
                    yield file.read_row_groups(groups, columns=there, use_threads=False)
                    groups, held = [], 0

    def find(self, uid: str) -> tuple[int, int]:
        """The (step, row) of the rollout with that uid; the trainer's begin with their step, which is read first."""
        likely = uid.partition("-")[0]
        for step in sorted(self.steps(), key=lambda step: str(step) != likely):
            stored = self.column(step, "uid")
            uids = [] if stored is None else stored.to_pylist()
            if uid in uids:
                return step, uids.index(uid)
        raise RunError(f"no rollout in {self.directory} has the uid '{uid}'; {self._steps_there()}")

    def drop_after(self, step: int) -> None:
        """Forget every ledger of a later step."""
        self.digests.clear()
        for later in self.steps():
            if later > step:
                self._path(later).unlink(missing_ok=True)

    def take_up(self, step: int) -> None:
        """Know the checksum of a step's file that another process wrote."""
        if self._path(step).is_file():
            self.digests[step] = sha256(self._path(step).read_bytes())

    def _path(self, step: int) -> Path:
        return self.directory / f"{step_name(step)}{_SUFFIX}"

    def _steps_there(self) -> str:
        steps = self.steps()
        return f"it holds steps {steps[0]} to {steps[-1]}" if steps else "it is empty"

    @contextmanager
    def _opened(
        self, step: int, rows: Sequence[int] = (0,), columns: Sequence[str] | None = ()
    ) -> Iterator[pq.ParquetFile]:
        """The file of a step, checked for being one of ours; an error while it is read is reported as damage.

        What will be read of it: the row groups of `rows`, or `columns` (all with None) of every row.
        """
        path = self._path(step)
        try:
            self._check_bounds(step, path, rows, columns)
            with pq.ParquetFile(path, metadata=self._footer(step), page_checksum_verification=True) as file:
                self._keep_footer(step, file.metadata)
                self._note_groups(step, file.metadata)
                form = int((file.schema_arrow.metadata or {}).get(b"mingce.format", 0))
                if form > FORMAT:
                    raise LedgerFileError(f"{path} was written by a newer mingce (ledger format {form}); update mingce")
                if form < 1:
                    raise LedgerFileError(
                        f"{path} is not a ledger of mingce; open it with `mingce view` or `mingce audit`"
                    )
                for name, kind in zip(file.schema_arrow.names, file.schema_arrow.types, strict=True):
                    if not _is_ours(kind):  # one text stored once can stand for gigabytes of it
                        raise ValueError(f"column '{name[:80]}' is {str(kind)[:80]}")
                yield file
        except FileNotFoundError as error:
            raise RunError(f"there is no ledger of step {step} in {self.directory}; {self._steps_there()}") from error
        except RunError:
            raise
        except (pa.ArrowException, OSError, ValueError, LookupError, MingceError) as error:
            raise LedgerFileError(
                f"{path} is damaged or cut short ({first_line(error)}); restore it from a copy or delete it"
            ) from error

    def _check_bounds(self, step: int, path: Path, rows: Sequence[int], columns: Sequence[str] | None) -> None:
        """A file may be a stranger's, and a few bytes of it stand for gigabytes: each part is tried once.

        Trying a large file takes longer than reading a few rollouts of it, so only what will be read is tried.
        """
        if self.check_bounds is None:
            return
        stamp, known = _stamp(path), self._bounded.get(step)
        if known is None or known.stamp != stamp:
            known = self._bounded[step] = _Bounded(stamp)
        try:
            if columns == ():
                new = [row for row in rows if not known.has(row)]
                if new:
                    new += range(FIRST_ROWS) if not known.groups else ()  # a page that shows a step asks for them next
                    self.check_bounds(path, new)
                    known.rows.update(new)
            elif not known.whole:
                missing = None if columns is None else [name for name in columns if name not in known.columns]
                if missing is None or missing:
                    self.check_bounds(path, None, missing)
                    known.whole = missing is None
                    known.columns.update(missing or ())
        except DataError as error:
            raise LedgerFileError(str(error)) from error

    def _footer(self, step: int) -> pq.FileMetaData | None:
        """What the end of a file says, if it was read before: that of a large file takes longer than a rollout."""
        stamp, footer = self._footers.get(step, (None, None))
        return footer if stamp == _stamp(self._path(step)) else None

    def _keep_footer(self, step: int, footer: pq.FileMetaData) -> None:
        self._footers.pop(step, None)
        self._footers[step] = _stamp(self._path(step)), footer
        for oldest in list(self._footers)[:-FOOTERS]:
            self._footers.pop(oldest, None)

    def _note_groups(self, step: int, about: pq.FileMetaData) -> None:
        """Row groups that were tried because of one row are tried for all of their rows."""
        if (known := self._bounded.get(step)) is not None and known.rows:
            size = max(about.row_group(0).num_rows, 1) if about.num_row_groups else 1
            known.size = size
            known.groups.update(row // size for row in known.rows)
            known.rows.clear()


class CheckBounds(Protocol):
    """Tries to unpack what will be read of a file: row groups that hold some rows, or some columns; else all of it."""

    def __call__(self, path: Path, rows: Sequence[int] | None = None, columns: Sequence[str] | None = None) -> None: ...


@dataclass
class _Bounded:
    """What of a file is known to unpack to no more than its size allows."""

    stamp: tuple[int, int]
    whole: bool = False
    columns: set[str] = field(default_factory=set)
    size: int = 0
    groups: set[int] = field(default_factory=set)
    rows: set[int] = field(default_factory=set)

    def has(self, row: int) -> bool:
        return self.whole or row in self.rows or (self.size > 0 and row // self.size in self.groups)


def _is_ours(kind: pa.DataType) -> bool:
    """A text, a number, or a list of numbers, which is all that is ever written."""
    if pa.types.is_list(kind):
        return bool(pa.types.is_primitive(kind.value_type))
    return bool(pa.types.is_primitive(kind) or pa.types.is_string(kind))


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _to_table(step: int, ledger: Ledger) -> pa.Table:
    import torch

    lengths = ledger.lengths.cpu()
    used = (torch.arange(ledger.width) < lengths[:, None]).flatten().nonzero().squeeze(1)  # where in [B * T]
    offsets = pa.array(torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]).to(torch.int32).numpy())
    arrays: dict[str, pa.Array] = {}
    for name, values in ledger.rows.items():
        kind = ROW_COLUMNS[name].dtype
        try:
            plain = [json.dumps(value, ensure_ascii=False) for value in values] if kind.startswith("dict") else values
            arrays[name] = pa.array(plain, type=ROW_TYPES[kind])
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise ColumnError(
                f"row column '{name}' of step {step} cannot be stored as {kind}: {error}", column=name
            ) from error
    for name, slots in ledger.columns().items():
        arrays[name] = pa.ListArray.from_arrays(offsets, pa.array(slots.cpu().flatten().index_select(0, used).numpy()))
    return as_ledger_file(arrays, step, ledger.width)


def as_ledger_file(arrays: dict[str, pa.Array], step: int, width: int, **more: str) -> pa.Table:
    """The table of a ledger's file with what its metadata say."""
    metadata = {"format": FORMAT, "version": mingce.__version__, "step": step, "width": width} | more
    return pa.table(arrays).replace_schema_metadata({f"mingce.{key}": str(value) for key, value in metadata.items()})


def _to_ledger(table: pa.Table) -> Ledger:
    import torch

    from mingce.ledger import Ledger

    width = int(table.schema.metadata[b"mingce.width"])
    lengths = torch.tensor(pa.compute.list_value_length(table["token_ids"]).to_numpy(), dtype=torch.int64)
    if width * len(lengths) > max(MAX_CELLS, 1000 * int(lengths.sum())):
        raise ValueError(f"it says that its rows are {width:,} tokens wide")
    used = torch.arange(width) < lengths[:, None]
    columns = {}
    rows = {}
    for name in table.column_names:
        if column(name).alignment == "row":
            rows[name] = _plain(name, table[name])
        else:
            flat = torch.tensor(pa.compute.list_flatten(table[name]).to_numpy())
            columns[name] = torch.zeros(used.shape, dtype=flat.dtype).masked_scatter_(used, flat)
    ledger = Ledger(columns.pop("token_ids"), columns.pop("response_mask"), columns.pop("attention_mask"), rows)
    return ledger.fill(columns)


def _cut(table: pa.Table, tokens: int | None) -> pa.Table:
    """The table with lists cut to `tokens` entries."""
    for at, kind in enumerate(table.schema.types if tokens is not None else ()):
        if pa.types.is_list(kind):
            cut = pa.compute.list_slice(table.column(at), 0, tokens)
            table = table.set_column(at, table.schema.field(at), cut)
    return table


def _plain(name: str, stored: pa.ChunkedArray) -> list[Any]:
    values: list[Any] = stored.to_pylist()
    if name not in ROW_COLUMNS:
        return values
    kind = ROW_COLUMNS[name].dtype
    if stored.type != ROW_TYPES[kind]:
        raise ValueError(f"row column '{name}' is {stored.type} instead of {ROW_TYPES[kind]}")
    return [value and json.loads(value) for value in values] if kind.startswith("dict") else values
