"""A run's directory as a source. Only files that lie in it are opened: a link that leads elsewhere is not followed."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml

from mingce.base.errors import MingceError, RunError, first_line
from mingce.base.machine import is_running
from mingce.base.places import step_name, steps_named
from mingce.base.reading import open_regular, read_yaml
from mingce.columns import ROW_COLUMNS
from mingce.record.clocks import Clocks, read_clocks
from mingce.record.run import Run
from mingce.record.tokens import TokenTexts, tokenizer_file
from mingce.sources.logs import MAX_EVENTS, MAX_STEP, AuditLog, EventLog, NumberLog, RunEvent, Skipped
from mingce.sources.series import Series
from mingce.sources.source import MAX_TOKENS, Array, Damage, Ragged, Source, Status, validation_id
from mingce.specs.settings import AccountSettings, by_dotted_key

if TYPE_CHECKING:
    from mingce.record.dump import Dump
    from mingce.record.store import LedgerStore

_OWNER = re.compile(r"process (\d+) on (\S+)")
_MAGIC = b"PAR1"


class RunSource(Source):
    """A run that trains, has stopped or is finished."""

    kind: Literal["run", "dump"] = "run"

    def __init__(self, path: Path, tokenizer: Path | None = None):
        super().__init__(path.name, path)
        self._run = Run.open(path, readonly=True)
        self._folder = self._run.ledger_path
        self._metrics, self._timings = NumberLog(self._run.metrics_path), NumberLog(self._run.timings_path)
        self._audits, self._events = AuditLog(self._run.audit_path), EventLog(self._run.events_path)
        self._logs = (self._metrics, self._timings, self._audits, self._events)
        self._joined: tuple[Series, Series, Series] | None = None
        self._checked: dict[int, tuple[tuple[int, int], str | None]] = {}
        self._config: tuple[int, dict[str, Any]] | None = None
        self._tokenizer = tokenizer
        self._texts: TokenTexts | None = None
        self._validation: ValidationSource | None = None

    def validation(self) -> Source | None:
        if self._validation is None and self._run.validation_path.is_dir():
            self._validation = ValidationSource(self.path, self._tokenizer)
        if self._validation is not None:
            self._validation.id = validation_id(self.id)
        return self._validation

    def _tell(self, file: str, why: str | None) -> None:
        """Remember, or forget, what is wrong with a file."""
        self._damage.pop(file, None)
        if why:
            self._damage[file] = why

    def status(self) -> Status:
        if _locked(self.path / "lock"):
            return "training"
        last, total = self.last_step(), self.total_steps()
        return "finished" if last is not None and total is not None and last >= total else "stopped"

    def config(self) -> dict[str, Any]:
        path = self.path / "config.yaml"
        try:
            time = _regular(path).st_mtime_ns
            if self._config is None or self._config[0] != time:
                values = read_yaml(path, follow=False)
                if not isinstance(values, dict):
                    raise RunError("it holds no settings")
                self._config = time, by_dotted_key(values)
                self._tell(path.name, None)
        except (OSError, yaml.YAMLError, RunError) as error:
            self._tell(path.name, _reason(error))
        return self._config[1] if self._config else {}

    def series(self) -> Series:
        metrics, timings = self._metrics.series(), self._timings.series()
        known = self._joined
        if known is None or known[0] is not metrics or known[1] is not timings:
            known = self._joined = metrics, timings, metrics.joined(timings)
        return known[2]

    def last_step(self) -> int | None:
        return self._metrics.series().last_step()

    def skipped(self) -> list[Skipped]:
        for log in self._logs:
            log.refresh()
        return [skipped for log in self._logs if (skipped := log.skipped())]

    def damaged(self) -> list[Damage]:
        whys = {skipped.file: skipped.sentence() for skipped in self.skipped()}
        whys |= {log.path.name: log.fault for log in self._logs if log.fault}
        return sorted([*super().damaged(), *(Damage(file, why) for file, why in whys.items())])

    def updated(self) -> float:
        times = [0.0]
        for path in (self._run.metrics_path, self.path / "config.yaml"):
            with suppress(OSError):
                times.append(path.lstat().st_mtime)
        return max(times)

    def events(self) -> list[RunEvent]:
        steps = [step for step in self._run.checkpoint_steps() if step <= MAX_STEP][-MAX_EVENTS:]
        saved = [RunEvent(step, "checkpoint") for step in steps]
        return sorted(saved + self._audits.newest() + self._events.newest(), key=lambda event: event.step)

    # ── ledgers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def ledger_steps(self) -> list[int]:
        if not _inside(self.path, self._folder):
            return []
        named = steps_named(self._folder, ".parquet")  # entries that are no files are reported too
        return [step for step in named if self._fault(step) is None]

    def _fault(self, step: int) -> str | None:
        """What a look at the file's ends says; a file is looked at once for each of its states."""
        path = self._path(step)
        try:
            status = _regular(path)
            stamp = status.st_size, status.st_mtime_ns
            known = self._checked.get(step)
            if known is not None and known[0] == stamp:
                return known[1]
            with open_regular(path, follow=False) as file:
                head = file.read(4)
                file.seek(max(status.st_size - 8, 0))
                footer, tail = int.from_bytes(file.read(4), "little"), file.read(4)
            whole = head == _MAGIC == tail and footer + 12 <= status.st_size
            fault = None if whole else "it is damaged or cut short; restore it from a copy or delete it"
        except FileNotFoundError:
            self._checked.pop(step, None)
            self._tell(f"{self._folder.name}/{path.name}", None)
            return "there is no such file"
        except OSError as error:
            stamp, fault = (-1, -1), _reason(error)
        self._set_fault(step, stamp, fault)
        return fault

    def _set_fault(self, step: int, stamp: tuple[int, int], fault: str | None) -> None:
        self._checked[step] = stamp, fault
        self._tell(f"{self._folder.name}/{self._path(step).name}", fault)

    def _path(self, step: int) -> Path:
        return self._folder / f"{step_name(step)}.parquet"

    def _read(self, step: int, read: Callable[[], Any]) -> Any:
        """What `read` gives; a file that turns out to be damaged is remembered as such."""
        from mingce.record.store import LedgerFileError

        self.expect(step)
        try:
            return read()
        except LedgerFileError as error:
            self._set_fault(step, self._checked[step][0], str(error))
            raise

    def expect(self, step: int) -> None:
        fault = self._fault(step)
        if step not in self._checked or not _inside(self.path, self._folder):
            super().expect(step)
        if fault is not None:
            from mingce.record.store import LedgerFileError

            raise LedgerFileError(f"{self._path(step)}: {fault}")

    @property
    def _ledger(self) -> LedgerStore:
        """The run's ledgers, each tried within bounds before it is read: the run may be a stranger's."""
        from mingce.importers.opening import check_ledger

        store = self._store()
        store.check_bounds = check_ledger
        return store

    def _store(self) -> LedgerStore:
        return self._run.ledger

    def stamp(self, step: int) -> object:
        self.expect(step)
        return self._checked[step][0]

    def size(self, step: int) -> int:
        return int(self._read(step, lambda: self._ledger.count(step)))

    def token_column(self, step: int, name: str) -> Ragged | None:
        stored = self._read(step, lambda: self._ledger.column(step, name))
        if stored is None:
            return None
        return _ragged(stored)

    def row_column(self, step: int, name: str) -> list[Any] | None:
        stored = self._read(step, lambda: self._ledger.column(step, name))
        if stored is None:
            return None
        values: list[Any] = stored.to_pylist()
        if name in ROW_COLUMNS and ROW_COLUMNS[name].dtype.startswith("dict"):
            return [value and json.loads(value) for value in values]
        return values

    def batches(self, step: int, names: Sequence[str]) -> Iterator[dict[str, Ragged]]:
        for table in self._parts(step, names):
            yield {name: _ragged(table[name].combine_chunks()) for name in table.column_names}

    def search(self, step: int, text: str) -> Array:
        found = []
        for table in self._parts(step, ("prompt", "response", "uid")):
            kept = np.zeros(table.num_rows, dtype=bool)
            for name in table.column_names:
                column = table[name].combine_chunks()
                same = pc.equal(column, text) if name == "uid" else pc.match_substring(column, text, ignore_case=True)
                kept |= pc.fill_null(same, False).to_numpy(zero_copy_only=False)
            found.append(kept)
        return np.concatenate(found) if found else np.zeros(self.size(step), dtype=bool)

    def _parts(self, step: int, names: Sequence[str]) -> Iterator[pa.Table]:
        parts = self._ledger.parts(step, names)
        while (table := self._read(step, lambda: next(parts, None))) is not None:
            yield table

    def rollouts(
        self, step: int, rows: Sequence[int], names: Sequence[str] | None = None, tokens: int = MAX_TOKENS
    ) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._read(step, lambda: self._ledger.rollouts(step, rows, names, tokens))
        return found

    def clocks(self, step: int) -> Clocks:
        inside = _inside(self.path, self._run.clocks_path)
        return read_clocks(self._run.clocks_path, step) if inside else []

    def settings(self, step: int) -> AccountSettings:
        config = self.config()
        beta = self._metrics.series().at(step, "critic/kl_coeff")
        names = self._read(step, lambda: self._ledger.column_names(step))
        if "source" in config:  # another trainer's, with settings under our names
            given = {key.removeprefix("settings."): value for key, value in config.items()}
            return AccountSettings.from_dump(given, names).checked()
        whiten = "whitened_advantages" in names
        return AccountSettings.from_config(config, beta=beta, whiten=whiten).checked()

    def tokens(self) -> TokenTexts:
        if self._texts is None:
            model = self.config().get("model.path")
            own = self.path / "tokenizer.json"  # a watched trainer's
            kept = own if own.is_file() and _inside(self.path, own) else None
            file = self._tokenizer or kept or (tokenizer_file(model) if isinstance(model, str) else None)
            self._texts = TokenTexts(file)
        return self._texts

    def trainer(self, step: int) -> str:
        return str(self.config().get("source") or "mingce")  # a watched run says whose it is

    def dump(self, step: int) -> Dump:
        from mingce.importers.opening import open_dump

        self.expect(step)
        return open_dump(self._path(step))[0]


class ValidationSource(RunSource):
    """A run's answers to held-out prompts: the same settings and metrics, its ledgers those of the validations."""

    def __init__(self, path: Path, tokenizer: Path | None = None):
        super().__init__(path, tokenizer)
        self._folder = self._run.validation_path

    def validation(self) -> Source | None:
        return None

    def clocks(self, step: int) -> Clocks:
        return []

    def _store(self) -> LedgerStore:
        return self._run.validation


def _ragged(stored: pa.ListArray) -> Ragged:
    """A token column as Arrow holds it."""
    from mingce.record.store import LedgerFileError

    if not pa.types.is_list(stored.type) or stored.null_count:
        raise LedgerFileError("a token column holds no lists of numbers; restore the ledger from a copy or delete it")
    offsets = stored.offsets.to_numpy()
    values = stored.flatten().to_numpy(zero_copy_only=False)
    return Ragged(values, offsets - offsets[0] if len(offsets) else offsets)


def _regular(path: Path) -> os.stat_result:
    """The status of a regular file; a link or a device is an error."""
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(None, "it is not a regular file")
    return status


def _inside(root: Path, path: Path) -> bool:
    return path.resolve().is_relative_to(root.resolve())


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return str(error) if isinstance(error, MingceError) else first_line(error)


def _locked(lock: Path) -> bool:
    """Whether a process trains here. Asked without taking the lock, lest a run that begins right now be refused."""
    try:
        with open_regular(lock, follow=False) as file:
            status, owner = os.fstat(file.fileno()), file.read(200).decode("utf-8", "replace")
    except OSError:
        return False
    try:
        table = Path("/proc/locks").read_text(encoding="ascii")
    except OSError:  # not Linux
        found = _OWNER.match(owner)
        return (
            found is not None and len(found[1]) < 10 and found[2] == socket.gethostname() and is_running(int(found[1]))
        )
    return any(
        line.split()[1] == "FLOCK" and line.split()[5].endswith(f":{status.st_ino}") for line in table.splitlines()
    )
