"""A run's directory: what was asked, what was measured, every token's account, and the states to resume from.

    runs/<name>/
      config.yaml       the settings, resolved
      metrics.jsonl     one line per step, the same bytes however often the run was interrupted
      timings.jsonl     seconds and speeds, which differ from one time to the next
      events.jsonl      what happened besides steps: processes that were lost and replaced, what changed at a resume
      audit.jsonl       one line per audited step: the findings in its ledger
      checksums.jsonl   one line per step: the SHA-256 of what it wrote, for `mingce verify`
      ledger/           one Parquet file per step (mingce.record.store)
      validation/       the same for answers to held-out prompts, one file per validation
      clocks/           when the turns of conversations were decoded (mingce.record.clocks)
      checkpoints/      one directory per checkpoint (mingce.record.checkpoints)
      tensorboard/
      lock              held by the one process that trains here

Order matters for exact resume: log a step and write its ledger first, then save its checkpoint. On resume, `rewind` to
the checkpoint's step drops whatever had been written after it. A directory that is moved, deleted or replaced while
training stops it before anything is written elsewhere.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from mingce.base import atomic
from mingce.base.errors import RunError, first_line
from mingce.base.places import Anchors, step_name, steps_in
from mingce.base.reading import read_regular, read_yaml
from mingce.record.checksums import Checksums, sha256
from mingce.record.clocks import Clocks, drop_clocks, write_clocks
from mingce.record.lock import Lock
from mingce.record.logs import (
    append_line,
    as_line,
    cut_unfinished_line,
    finished_lines,
    numbers_of,
    plain_number,
    step_of,
)

if TYPE_CHECKING:
    from types import TracebackType

    from mingce.record.store import LedgerStore

TIMING_PREFIXES = ("timing_", "perf/")
_NAME = re.compile(r"[^\W_][\w.+=@-]*")
LONGEST_NAME = 200
"""In bytes; names of files may have 255, and one that is being made is longer than it will be."""
_ABANDONED_AFTER = 60.0  # seconds; making a run directory takes milliseconds


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

    def __init__(self, path: Path, lock: Lock | None):
        self.path = path
        self.metrics_path = path / "metrics.jsonl"
        self.timings_path = path / "timings.jsonl"
        self.audit_path = path / "audit.jsonl"
        self.events_path = path / "events.jsonl"
        self.ledger_path = path / "ledger"
        self.clocks_path = path / "clocks"
        self.validation_path = path / "validation"
        self.checkpoints_path = path / "checkpoints"
        self.tensorboard_path = path / "tensorboard"
        self.checksums = Checksums(path / "checksums.jsonl")
        self._lock = lock
        self._stores: dict[Path, LedgerStore] = {}
        self._anchors = Anchors((path, self.ledger_path, self.checkpoints_path) if lock is not None else ())
        self._pending: dict[str, str] = {}

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
        atomic.clean_leftovers(root, older_than=_ABANDONED_AFTER)
        try:
            if path.exists():
                raise FileExistsError
            with atomic.atomic_directory(path) as beside:
                (beside / "config.yaml").write_bytes(settings := _yaml(config))
                checksums = Checksums(beside / "checksums.jsonl")
                checksums.path.write_bytes(checksums.line(-1, {"config": sha256(settings)}))
                for folder in ("ledger", "checkpoints", "tensorboard"):
                    (beside / folder).mkdir()
                lock = Lock(beside / "lock")
        except FileExistsError:
            raise RunError(
                f"there is already a run named '{name}' in {root}; "
                f"continue it with `mingce resume {path}` or choose another name"
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
        lock = Lock(path / "lock")
        for folder in ("ledger", "checkpoints"):
            atomic.make_directory(path / folder)
        run = cls(path, lock)
        inside = [run.checkpoints_path / step_name(step) for step in run.checkpoint_steps()]
        for directory in (path, run.checkpoints_path, run.ledger_path, run.clocks_path, run.validation_path, *inside):
            atomic.clean_leftovers(directory)
        for log in (*run._logs, run.events_path):
            cut_unfinished_line(log)
        return run

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def _logs(self) -> tuple[Path, ...]:
        """The files that grow by a line per step; checksums first: a rewind cut short leaves none without its data."""
        return self.checksums.path, self.metrics_path, self.timings_path, self.audit_path

    @property
    def training(self) -> bool:
        """True when this process may write here."""
        return self._lock is not None

    @property
    def ledger(self) -> LedgerStore:
        """The ledgers of this run's steps, on disk."""
        return self._store(self.ledger_path)

    @property
    def validation(self) -> LedgerStore:
        """Answers to held-out prompts with their accounts, by the step after which they were given."""
        return self._store(self.validation_path)

    def _store(self, directory: Path) -> LedgerStore:
        if directory not in self._stores:
            from mingce.record.store import LedgerStore  # pyarrow is not needed to look at a run's settings or metrics

            store = LedgerStore(directory, hint=self.recovery_hint, check=self.check_place)
            self._stores.setdefault(directory, store)  # a checkpoint is written by another thread
        return self._stores[directory]

    def config(self) -> dict[str, Any]:
        """The settings as resolved when the run was made."""
        path = self.path / "config.yaml"
        try:
            settings = read_yaml(path)
        except OSError as error:
            raise RunError(f"{path} cannot be read ({error.strerror}); make it a file that can be read") from error
        except yaml.YAMLError as error:
            raise RunError(f"{path} is not valid YAML ({first_line(error)}); fix it by hand") from error
        if not isinstance(settings, dict):
            raise RunError(f"{path} holds no settings; fix it by hand")
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
        digests, self._pending = self._pending, {}
        for directory, store in list(self._stores.items()):
            if (written := store.digests.pop(step, None)) is not None:
                digests[directory.name] = written
        for path, numbers in ((self.metrics_path, measured), (self.timings_path, timings)):
            if numbers:
                line = as_line({"step": step} | {name: plain_number(value) for name, value in numbers.items()})
                self._append(path, line)
                digests[path.stem] = sha256(line)
        self._append(self.checksums.path, self.checksums.line(step, digests))

    def log_clocks(self, step: int, clocks: Clocks) -> None:
        """Write when the turns of a step's conversations were decoded and their environments stepped."""
        assert self.training, "this run was opened for reading only"
        self.check_place()
        write_clocks(self.clocks_path, step, clocks, self.recovery_hint)

    def log_audit(self, step: int, report: Mapping[str, Any]) -> None:
        """Append the audit of one step's ledger, as JSON."""
        assert self.training, "this run was opened for reading only"
        line = as_line({"step": step} | dict(report))
        self._append(self.audit_path, line)
        self._pending["audit"] = sha256(line)

    def log_event(self, step: int, kind: str, why: str, **more: str) -> None:
        """Append something that happened after `step`; it stays when the run is rewound, for it did happen."""
        assert self.training, "this run was opened for reading only"
        event = {"step": step, "kind": kind, "why": why, "time": round(time.time(), 3), **more}
        self._append(self.events_path, as_line(event | {"sha256": sha256(as_line(event))}))
        self._cover_events(step)

    def _cover_events(self, step: int) -> None:
        """Note what happened so far in the checksums, so that a line that is taken away is missed."""
        lines = [line for _, line in finished_lines(self.events_path)]
        if lines:
            self._append(self.checksums.path, self.checksums.line(step, {"events": sha256(b"".join(lines))}))

    def events(self, kind: str) -> list[dict[str, Any]]:
        """The events of a kind; lines that cannot be read are skipped."""
        events = []
        for _, line in finished_lines(self.events_path):
            with suppress(ValueError, RecursionError):
                event = json.loads(line)
                if isinstance(event, dict) and event.get("kind") == kind:
                    events.append(event)
        return events

    def metrics(self) -> list[dict[str, float]]:
        """Every line of metrics.jsonl, each with its step."""
        return [numbers_of(line, self.metrics_path, number) for number, line in finished_lines(self.metrics_path)]

    def written(self, up_to: int | None = None, *, logged: bool = True) -> dict[str, Any]:
        """What a checkpoint remembers of the logs, up to a step: how many lines and ledgers, and the lines' SHA-256.

        Without `logged` the step's own line of metrics does not count: its validation was still to be made.
        """
        lines = finished_lines(self.metrics_path)
        last = None if up_to is None else up_to if logged else up_to - 1
        kept = [line for number, line in lines if last is None or step_of(line, self.metrics_path, number) <= last]
        ledgers = sum(up_to is None or step <= up_to for step in self.ledger.steps())
        return {"lines": len(kept), "metrics": sha256(b"".join(kept)), "ledgers": ledgers}

    def accept_config(self, step: int) -> None:
        """Record the checksum of config.yaml as it is now, after a person changed it on purpose."""
        settings = sha256(read_regular(self.path / "config.yaml"))
        self._append(self.checksums.path, self.checksums.line(step, {"config": settings}))

    def check_place(self) -> None:
        """An error if the run's directory, its ledger/ or checkpoints/ was moved, deleted or replaced meanwhile."""
        self._anchors.check()

    def rewind(self, step: int, *, logged: bool = True) -> None:
        """Delete everything after `step` (all with -1): newer checkpoints, lines of logs and ledgers.

        Without `logged` the step's own line of metrics goes too: its validation is still to be made.
        """
        assert self.training, "this run was opened for reading only"
        self.check_place()
        self._pending.clear()
        # Checkpoints first: were this interrupted, the next resume must not begin after the metrics that are left.
        for newer in self.checkpoint_steps():
            if newer > step:
                atomic.remove_directory(self.checkpoints_path / step_name(newer))
        for path in self._logs:
            lines = finished_lines(path)
            until = step if logged or path == self.audit_path else step - 1
            later = [step_of(line, path, number) > until for number, line in lines]
            if any(later):  # a checksum is one of all lines before it, so those after the first go too
                kept = lines[: later.index(True)]
                atomic.atomic_write(path, b"".join(line for _, line in kept), hint=self.recovery_hint)
        self.checksums.reopen()
        self._cover_events(step if logged else step - 1)
        self.ledger.drop_after(step)
        drop_clocks(self.clocks_path, step)
        self.validation.drop_after(step if logged else step - 1)
        if not logged:
            self._take_up(step)

    def _take_up(self, step: int) -> None:
        """The checksums of what was written of a step before it was logged."""
        audits = [
            line for number, line in finished_lines(self.audit_path) if step_of(line, self.audit_path, number) == step
        ]
        if audits:
            self._pending["audit"] = sha256(audits[-1])
        self.ledger.take_up(step)

    def sync(self) -> None:
        """Flush metrics and ledgers to the disk; a checkpoint does so before it appears."""
        self.check_place()
        with atomic.disk_errors(self.path, hint=self.recovery_hint):
            for path in self._logs:
                if path.exists():
                    atomic.sync_path(path)
            self.ledger.sync()
            self.validation.sync()
            atomic.sync_path(self.path)

    def recovery_hint(self, remedy: str) -> str:
        """What to do when the disk refuses: `remedy`, which checkpoint is left, and how to resume from it."""
        with suppress(RunError):
            if "watch" in self.config():  # another trainer's, which has checkpoints of its own
                return remedy
        steps = self.checkpoint_steps()
        state = f"the last checkpoint {step_name(steps[-1])} is intact" if steps else "there is no checkpoint yet"
        return f"{state}; {remedy} and `mingce resume {self.path}`"

    def close(self) -> None:
        """Give the lock back."""
        self._anchors.close()
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
        """One whole line more, or none, and never in another directory."""
        self.check_place()
        append_line(path, line, self.recovery_hint)


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
