"""mingce.watch and mingce.unwatch: one line in somebody's program, and what they know."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakValueDictionary

from mingce.base.errors import RunError, SettingError
from mingce.base.paths import expanded
from mingce.base.texts import sentence
from mingce.watching import openrlhf, skyrl, trl_grpo, trl_ppo, verl
from mingce.watching.host import Choices, Host
from mingce.watching.recorder import LOG, Recorder
from mingce.watching.wrapping import Wraps


class Adapter(Protocol):
    """A module that knows a trainer."""

    @property
    def NAMES(self) -> tuple[str, ...]: ...
    def recognises(self, trainer: object) -> bool: ...
    def host(self, trainer: Any) -> Host: ...
    def is_main(self, trainer: Any) -> bool: ...
    def attach(self, trainer: Any, wraps: Wraps, recorder: Recorder) -> None: ...


ADAPTERS: tuple[Adapter, ...] = (trl_grpo, trl_ppo, verl, openrlhf, skyrl)


class Watch(Wraps):
    """A trainer that is being watched: where its run is, and how it went so far."""

    def __init__(self, path: Path, recorder: Recorder):
        super().__init__(recorder.failed)
        self.path = path
        self._recorder = recorder

    @property
    def dropped(self) -> int:
        """Steps that were not written because the disk was behind."""
        return self._recorder.dropped

    @property
    def failures(self) -> int:
        """How often something of ours failed; the first time was said in a warning."""
        return self._recorder.failures

    def metrics(self) -> Mapping[str, float]:
        """audit/bugs and audit/suspicious of the newest audit."""
        return self._recorder.audit_metrics()

    def close(self) -> None:
        """The trainer as it was, everything written."""
        self.restore()
        self._recorder.close()


_WATCHED: WeakValueDictionary[int, Watch] = WeakValueDictionary()  # each is held by what it wrapped on its trainer


def watch(
    trainer: Any,
    directory: str | Path | None = None,
    *,
    rows: int = 64,
    every: int = 1,
    audit_every: int | None = None,
    on_bug: str = "warn",
    resume: bool = False,
) -> Watch | None:
    """Record another trainer's steps as a run of ours while it trains, and audit them:

        trainer = GRPOTrainer(...)
        mingce.watch(trainer, "runs/mine")
        trainer.train()                       # meanwhile: mingce view runs

    `directory` is the run's, by default a new one in runs/; `resume` goes on with an existing one. `rows` bounds the
    rollouts written of a step, `every` which steps are. The first step is audited, then every `audit_every`-th, or
    (None) as often as 2 % of the CPU time allow; `on_bug="stop"` asks the trainer to stop at a bug. Training goes on
    whatever happens to us, and its numbers are the same.
    Returns None where this process records nothing: another rank, or a directory that cannot be written.
    """
    adapter = next((one for one in ADAPTERS if one.recognises(trainer)), None)
    if adapter is None:
        known = ", ".join(name for one in ADAPTERS for name in one.NAMES)
        raise SettingError(sentence("watching.unknown", kind=_kind(trainer), known=known))
    if id(trainer) in _WATCHED:
        raise SettingError(sentence("watching.twice"))
    choices = Choices(rows, every, audit_every, on_bug, resume)
    _check(choices)
    if not adapter.is_main(trainer):
        return None
    path = expanded(directory) if directory is not None else Path("runs") / time.strftime("watch-%Y%m%d-%H%M%S")
    try:
        recorder = Recorder(path, adapter.host(trainer), choices)
    except RunError as error:
        if not isinstance(error.__cause__, OSError):
            raise
        LOG.warning(sentence("watching.failed", error=error))
        return None
    watched = _WATCHED[id(trainer)] = Watch(path, recorder)
    adapter.attach(trainer, watched, recorder)
    return watched


def unwatch(trainer: Any) -> None:
    """The trainer as it was before `mingce.watch`; everything is written. One that is not watched stays as it is."""
    watched = _WATCHED.pop(id(trainer), None)
    if watched is not None:
        watched.close()


def _check(choices: Choices) -> None:
    for name in ("rows", "every"):
        if not (type(value := getattr(choices, name)) is int and value >= 1):
            raise SettingError(sentence("watching.count", name=name, value=value))
    if choices.audit_every is not None and not (type(choices.audit_every) is int and choices.audit_every >= 0):
        raise SettingError(sentence("watching.count", name="audit_every", value=choices.audit_every))
    if choices.on_bug not in ("warn", "stop"):
        raise SettingError(sentence("watching.on_bug", value=choices.on_bug))


def _kind(trainer: object) -> str:
    return f"{type(trainer).__module__}.{type(trainer).__qualname__}"
