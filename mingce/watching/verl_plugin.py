"""What verl 0.9 loads by itself (entry-point group verl.plugins): MINGCE_WATCH=DIR has its trainers watched.

Without MINGCE_WATCH nothing happens and nothing is imported. With it the trainers' classes are wrapped when verl
imports them; the first batch of a trainer opens its run. DIR is the run's directory: one that holds a run is gone on
with by a trainer that goes on, and left alone by one that begins, which takes DIR with the time behind it.
MINGCE_WATCH_ROWS, _EVERY, _AUDIT_EVERY and _ON_BUG are the settings of mingce.watch.
"""

from __future__ import annotations

import importlib.abc
import inspect
import logging
import os
import sys
import time
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakSet

from mingce.watching.wrapping import Wraps

VARIABLE = "MINGCE_WATCH"
TRAINERS = {"verl.trainer.ppo.v1.trainer_base": "PPOTrainer", "verl.trainer.ppo.ray_trainer": "RayPPOTrainer"}
LOSSES = "verl.trainer.ppo.core_algos"
_SEEN: WeakSet[Any] = WeakSet()
_WARNED: list[str] = []


def install() -> None:
    """Wrap the trainers and losses that are imported already, and the others when they are."""
    if not any(isinstance(finder, _Arrivals) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Arrivals())
        for name in (*TRAINERS, LOSSES):
            if name in sys.modules:
                arrived(sys.modules[name])


def uninstall() -> None:
    """verl's classes as they were."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Arrivals)]
    WRAPS.restore()


class _Arrivals(importlib.abc.MetaPathFinder):
    """Has a trainer's module loaded as ever, and is told of it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in (*TRAINERS, LOSSES):
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((one for one in found if one is not None), None)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def loaded(module: ModuleType) -> None:
                load(module)
                arrived(module)

            spec.loader.exec_module = loaded  # type: ignore[method-assign]
        return spec


def arrived(module: ModuleType) -> None:
    """Wrap the trainer's class, or the losses, of a module that has just been imported."""
    try:
        if module.__name__ == LOSSES:
            _tell_losses(module)
            return
        from mingce.watching import verl

        name = TRAINERS[module.__name__]
        trainer = getattr(module, name)
        for method, when in verl.methods(trainer, name):
            WRAPS.wrap(trainer, method, **{when: _after if when == "after" else _before})
        WRAPS.wrap(trainer, "fit", after=_ended)
    except Exception as error:
        warn(error)


def _tell_losses(module: ModuleType) -> None:
    from mingce.watching.verl_update import UpdateWriter, losses_told

    for name, told in losses_told(module, UpdateWriter(update_folder()).saw).items():
        WRAPS.replace(module, name, told)


def update_folder() -> Path:
    """Where workers put what their updates computed."""
    from mingce.base.paths import expanded
    from mingce.watching.verl_update import folder_of

    return folder_of(expanded(os.environ[VARIABLE]).absolute())


def _before(trainer: Any, batch: Any, *rest: Any, **more: Any) -> None:
    from mingce.watching import verl

    if trainer not in _SEEN and not verl.is_watched(trainer):
        _SEEN.add(trainer)
        _watch(trainer)
    verl.took(trainer, batch)


def _after(batch: Any, trainer: Any, *rest: Any, **more: Any) -> None:
    _before(trainer, batch)


def _ended(result: Any, trainer: Any, *rest: Any, **more: Any) -> None:
    """Everything is written before verl ends the process."""
    from mingce.watching.watch import unwatch

    if not inspect.isawaitable(result):
        unwatch(trainer)


def _watch(trainer: Any) -> None:
    from mingce.watching.watch import watch

    directory, resume = _place(trainer)
    watch(trainer, directory, resume=resume, **_choices())


def _place(trainer: Any) -> tuple[Path, bool]:
    from mingce.base.paths import expanded

    directory = expanded(os.environ[VARIABLE])
    if not (directory / "config.yaml").is_file():
        return directory, False
    if int(trainer.global_steps) > 1:
        return directory, True
    return directory.with_name(directory.name + time.strftime("-%Y%m%d-%H%M%S")), False


def _choices() -> dict[str, Any]:
    """Those of the settings that are given, whole numbers as such; mingce.watch says what is wrong with the others."""
    found: dict[str, Any] = {}
    for name in ("rows", "every", "audit_every", "on_bug"):
        given = os.environ.get(f"{VARIABLE}_{name.upper()}", "").strip()
        if given:
            found[name] = int(given) if given.isdecimal() else given
    return found


def warn(error: Exception) -> None:
    """One warning, as of a recorder, where there is none yet."""
    from mingce.base.errors import first_line
    from mingce.base.texts import sentence

    said = sentence("watching.failed", error=first_line(error))
    if not _WARNED:
        _WARNED.append(said)
        logging.getLogger("mingce").warning(said)


WRAPS = Wraps(warn)
if os.environ.get(VARIABLE, "").strip():
    install()
