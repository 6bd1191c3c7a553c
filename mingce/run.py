"""A run's directory: what was asked, what was measured, every token's account, and the states to go on from.

    runs/<name>/
      config.yaml       the settings, resolved
      metrics.jsonl     one line a step, the same bytes however often the run was interrupted
      timings.jsonl     seconds and speeds, which differ from one time to the next
      events.jsonl      what happened besides steps: processes that were lost and replaced
      audit.jsonl       one line an audited step: what the audit of its ledger found
      ledger/           one Parquet file a step (mingce.store)
      checkpoints/      one directory a checkpoint (mingce.checkpoints)
      tensorboard/
      lock              held by the one process that trains here

Order matters for exact resume: log a step and write its ledger first, then save its checkpoint. On resume, `rewind` to
the checkpoint's step drops whatever had been written after it.
"""

from __future__ import annotations

import difflib
import fcntl
import json
import math
import os
import re
import secrets
import socket
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import yaml

from mingce.atomic import (
    atomic_directory,
    atomic_write,
    clean_leftovers,
    disk_errors,
    remove_directory,
    sync_path,
)
from mingce.errors import RunError

if TYPE_CHECKING:
    from types import TracebackType

    from mingce.store import LedgerStore

TIMING_PREFIXES = ("timing_", "perf/")
_STEP = re.compile(r"step-(\d+)")
_NAME = re.compile(r"[^\W_][\w.+=@-]*")
LONGEST_NAME = 200
"""In bytes; names of files may have 255, and one that is being made is longer than it will be."""
_ABANDONED_AFTER = 60.0  # seconds; making a run directory takes milliseconds


def step_name(step: int) -> str:
    """`step-000012`: how a step is called on disk."""
    return f"step-{step:06d}"


def steps_in(directory: Path, suffix: str = "") -> list[int]:
    """The steps that have an entry `step-N<suffix>` in the directory, in order."""
    if not directory.is_dir():
        return []
    names = (name.removesuffix(suffix) for name in os.listdir(directory) if name.endswith(suffix))
    return sorted(int(found[1]) for name in names if (found := _STEP.fullmatch(name)))


def _new_name() -> str:
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def check_name(name: str | None) -> None:
    """A name that cannot be a directory's is an error; None is one that will be made."""
    if name is None or (_NAME.fullmatch(name) and len(os.fsencode(name)) <= LONGEST_NAME):
        return
    if len(os.fsencode(name)) > LONGEST_NAME:
        raise RunError(f"'{name[:20]}…' is too long for a run's name; use at most {LONGEST_NAME} bytes.")
    raise RunError(
        f"'{name}' cannot be a run's name; begin with a letter or digit and use letters, digits and . + = @ _ -"
    )


class Run:
    """One run's directory, open for training (with the lock held) or for reading.

    Made by `Run.create` or `Run.open`; closes with `close()` or at the end of a `with` block.
    """

    def __init__(self, path: Path, lock: _Lock | None):
        self.path = path
        self.metrics_path = path / "metrics.jsonl"
        self.timings_path = path / "timings.jsonl"
        self.audit_path = path / "audit.jsonl"
        self.events_path = path / "events.jsonl"
        self.ledger_path = path / "ledger"
        self.checkpoints_path = path / "checkpoints"
        self.tensorboard_path = path / "tensorboard"
        self._lock = lock
        self._store: LedgerStore | None = None

    @classmethod
    def create(cls, root: Path | str, name: str | None, config: Mapping[str, Any]) -> Run:
        """Make the directory `root/name` with its config.yaml; None makes a name of the time and a short id.

        A name that is taken is an error: two experiments never share a directory by accident.
        """
        root = Path(root)
        if name is None:
            name = next(new for new in iter(_new_name, "") if not (root / new).exists())
        check_name(name)
        path = root / name
        clean_leftovers(root, older_than=_ABANDONED_AFTER)
        try:
            if path.exists():
                raise FileExistsError
            with atomic_directory(path) as beside:
                (beside / "config.yaml").write_bytes(_yaml(config))
                for folder in ("ledger", "checkpoints", "tensorboard"):
                    (beside / folder).mkdir()
                lock = _Lock(beside / "lock")
        except FileExistsError:
            raise RunError(
                f"there is already a run named '{name}' in {root}; "
                f"go on with `mingce resume {path}` or choose another name"
            ) from None
        return cls(path, lock)

    @classmethod
    def open(cls, path: Path | str, *, readonly: bool = False) -> Run:
        """Open an existing run, to train on (takes the lock, clears what a killed process left) or only to read."""
        path = Path(path)
        if not (path / "config.yaml").is_file():
            raise RunError(f"there is no run at {path}{_nearest_run(path)}")
        if readonly:
            return cls(path, None)
        run = cls(path, _Lock(path / "lock"))
        for folder in (path, run.checkpoints_path, run.ledger_path):
            clean_leftovers(folder)
        for log in (*run._logs, run.events_path):
            _cut_unfinished_line(log)
        return run

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def _logs(self) -> tuple[Path, ...]:
        """The files that grow by a line a step."""
        return self.metrics_path, self.timings_path, self.audit_path

    @property
    def training(self) -> bool:
        """True when this process may write here."""
        return self._lock is not None

    @property
    def ledger(self) -> LedgerStore:
        """The ledgers of this run's steps, on disk."""
        if self._store is None:
            from mingce.store import LedgerStore  # pyarrow is not needed to look at a run's settings or metrics

            self._store = LedgerStore(self.ledger_path, hint=self.recovery_hint)
        return self._store

    def config(self) -> dict[str, Any]:
        """The settings as resolved when the run was made."""
        path = self.path / "config.yaml"
        try:
            settings = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise RunError(f"{path} is not valid YAML ({str(error).splitlines()[0]}); mend it by hand") from error
        if not isinstance(settings, dict):
            raise RunError(f"{path} holds no settings; mend it by hand")
        return settings

    def checkpoint_steps(self) -> list[int]:
        """The steps that have a checkpoint, in order, whole or not."""
        return steps_in(self.checkpoints_path)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append one step's numbers, each written so that it reads back to the same bits.

        Names beginning `timing_` or `perf/` go to timings.jsonl, so that metrics.jsonl can be compared byte for byte.
        """
        assert self.training, "this run was opened for reading only"
        assert "step" not in metrics, "the step is not a metric"
        timings = {name: value for name, value in metrics.items() if name.startswith(TIMING_PREFIXES)}
        measured = {name: value for name, value in metrics.items() if name not in timings}
        for path, numbers in ((self.metrics_path, measured), (self.timings_path, timings)):
            if numbers:
                line = json.dumps({"step": step} | {k: _number(v) for k, v in numbers.items()}, ensure_ascii=False)
                self._append(path, line.encode() + b"\n")

    def log_audit(self, step: int, found: Mapping[str, Any]) -> None:
        """Append what the audit of one step's ledger found, as JSON."""
        assert self.training, "this run was opened for reading only"
        line = json.dumps({"step": step} | dict(found), ensure_ascii=False, allow_nan=False)
        self._append(self.audit_path, line.encode() + b"\n")

    def log_event(self, step: int, kind: str, why: str) -> None:
        """Append something that happened after `step`; it stays when the run is rewound, for it did happen."""
        assert self.training, "this run was opened for reading only"
        line = json.dumps({"step": step, "kind": kind, "why": why, "time": round(time.time(), 3)}, ensure_ascii=False)
        self._append(self.events_path, line.encode() + b"\n")

    def metrics(self) -> list[dict[str, float]]:
        """Every line of metrics.jsonl, each with its step."""
        return [_parse(line, self.metrics_path, number) for number, line in _finished_lines(self.metrics_path)]

    def rewind(self, step: int) -> None:
        """Forget everything after `step` (all with -1): newer checkpoints, lines of logs and ledgers."""
        assert self.training, "this run was opened for reading only"
        # Checkpoints first: were this interrupted, the next resume must not begin after the metrics that are left.
        for newer in self.checkpoint_steps():
            if newer > step:
                remove_directory(self.checkpoints_path / step_name(newer))
        for path in self._logs:
            lines = _finished_lines(path)
            kept = [line for number, line in lines if _step_of(line, path, number) <= step]
            if len(kept) < len(lines):
                atomic_write(path, b"".join(kept), hint=self.recovery_hint)
        self.ledger.drop_after(step)

    def sync(self) -> None:
        """Flush metrics and ledgers to the disk; a checkpoint does so before it appears."""
        with disk_errors(self.path, hint=self.recovery_hint):
            for path in self._logs:
                if path.exists():
                    sync_path(path)
            self.ledger.sync()
            sync_path(self.path)

    def recovery_hint(self, remedy: str) -> str:
        """What to do when the disk refuses: `remedy`, which checkpoint is left, and how to go on from it."""
        steps = self.checkpoint_steps()
        state = f"the last checkpoint {step_name(steps[-1])} is intact" if steps else "there is no checkpoint yet"
        return f"{state}; {remedy} and `mingce resume {self.path}`"

    def close(self) -> None:
        """Give the lock back."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _append(self, path: Path, line: bytes) -> None:
        """One whole line more, or none."""
        with disk_errors(path, needs=len(line), hint=self.recovery_hint):
            handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                before = os.fstat(handle).st_size
                try:
                    while line:
                        line = line[os.write(handle, line) :]
                except OSError:
                    os.ftruncate(handle, before)
                    raise
            finally:
                os.close(handle)


class _Lock:
    """The right to train in a run directory. The kernel takes it back when the process dies, however it dies."""

    _held: ClassVar[weakref.WeakSet[_Lock]] = weakref.WeakSet()

    def __init__(self, path: Path):
        with disk_errors(path):
            self._file = path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            owner = self._file.read(200).strip() or "unknown"
            self._file.close()
            raise RunError(
                f"another process is training in {path.parent} ({owner}); wait for it or end it, then resume"
            ) from None
        with disk_errors(path):
            self._file.truncate(0)
            self._file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            self._file.flush()
        self._held.add(self)

    def release(self) -> None:
        self._held.discard(self)
        self._file.close()

    @classmethod
    def forget_in_child(cls) -> None:
        """A forked worker must not keep the lock alive after its parent has been killed."""
        for lock in list(cls._held):
            lock.release()


os.register_at_fork(after_in_child=_Lock.forget_in_child)


def _number(value: float) -> float | str:
    """As JSON can hold it: JSON has no NaN or infinity, so these are written as words that float() reads back."""
    if isinstance(value, int):
        return int(value)
    value = float(value)
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _finished_lines(path: Path) -> list[tuple[int, bytes]]:
    """The lines of a log with their numbers from 1, without a last one that a killed process did not finish."""
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [(number, line) for number, line in enumerate(lines, 1) if line.endswith(b"\n")]


def _cut_unfinished_line(path: Path) -> None:
    if path.exists():
        finished = sum(len(line) for _, line in _finished_lines(path))
        if finished < path.stat().st_size:
            os.truncate(path, finished)


def _step_of(line: bytes, path: Path, number: int) -> int:
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"line {number} of {path} is damaged; delete that line") from error


def _parse(line: bytes, path: Path, number: int) -> dict[str, float]:
    try:
        found = json.loads(line)
        return {"step": int(found["step"])} | {
            name: float(value) if isinstance(value, str) else value for name, value in found.items() if name != "step"
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"line {number} of {path} is damaged; delete that line") from error


def _yaml(config: Mapping[str, Any]) -> bytes:
    text: str = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
    return text.encode()


def _nearest_run(path: Path) -> str:
    """`; did you mean …?` when a run beside it has nearly that name."""
    if not path.parent.is_dir():
        return ""
    runs = [entry.name for entry in path.parent.iterdir() if (entry / "config.yaml").is_file()]
    near = difflib.get_close_matches(path.name, runs, n=1, cutoff=0.5)
    if near:
        return f"; did you mean {path.parent / near[0]}?"
    return f"; runs there: {', '.join(sorted(runs)[-5:])}" if runs else "; start one with `mingce train`"
