"""Starting and resuming a run: everything between the command line and the loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from mingce.base.atomic import remove_directory
from mingce.base.errors import MingceError, RankFault, RunError
from mingce.base.lang import display_lang
from mingce.base.texts import sentence
from mingce.config import Config, as_values, config_of, read_config
from mingce.engine.local import Roles, build_roles
from mingce.progress import Progress, progress_for
from mingce.record.checkpoints import Checkpoint
from mingce.record.run import Run
from mingce.training import fingerprints
from mingce.training.report import facts, remarks, show_plan, summary
from mingce.training.saving import size_note
from mingce.training.sinks import Sinks, check_sinks, open_sinks
from mingce.training.trainer import Trainer
from mingce.training.trust import executed_by, expect_trust, remember


def train(console: Console, recipe: Path | None, overrides: Sequence[str], *, dry_run: bool = False) -> Path | None:
    """A new run, whose directory it returns, or with `dry_run` only what it would be (None)."""
    config = read_config(recipe, overrides)
    with progress_for(console, display_lang()) as progress:
        check_sinks(config.keep.loggers)
        if dry_run:
            show_plan(console, config, build_roles(config, progress.note))
            return None
        remember(list(executed_by(config, trains=True)))
        with (
            closing(roles_of(config, progress.note)) as roles,
            Run.create(config.root, config.name, _as_started(config)) as run,
        ):
            _train(run, config, roles, progress, resumed=False)
            return run.path


def resume(
    console: Console, path: Path, overrides: Sequence[str] = (), *, changed: bool = False, trust: bool = False
) -> None:
    """Goes on where the newest whole checkpoint of a run ends; `steps=N` may give it more steps.

    `changed` goes on even if what results depend on is no longer what it was, and notes it in events.jsonl. `trust`
    executes what the run's settings name without asking.
    """
    with Run.open(path) as run:
        config = config_of(run.config())
        if overrides:
            allowed = ("steps", "keep.", "validation.", "audit.", "threads", "micro_batch_tokens", "engine", "ray.")
            for override in overrides:
                if not override.startswith(allowed):
                    raise RunError(
                        f"'{override}' cannot change on resume, for the run would be another; only steps, keep.*, "
                        "validation.*, audit.*, threads, micro_batch_tokens, engine and ray.* can. Start a new run "
                        "instead."
                    )
            asked = read_config(None, overrides)
            for override in overrides:
                _copy(asked, config, override.partition("=")[0])
        check_sinks(config.keep.loggers)
        expect_trust(path, config, overrides, trust=trust, trains=True, command="resume")
        with progress_for(console, display_lang()) as progress, closing(roles_of(config, progress.note)) as roles:
            _train(run, config, roles, progress, resumed=True, changed=changed, overrides=overrides)


def _as_started(config: Config) -> dict[str, Any]:
    """The settings for config.yaml, with the number of threads that was chosen: a resume goes on with as many."""
    chosen = torch.get_num_threads() if config.engine == "local" else 0
    return as_values(config) | {"threads": config.threads or chosen}


def roles_of(config: Config, note: Callable[[str], None]) -> Roles:
    """The roles where `engine` says."""
    if config.engine == "ray":
        from mingce.engine import ray

        return ray.build_roles(config, note)
    return build_roles(config, note)


def _copy(source: object, target: object, key: str) -> None:
    *path, last = key.split(".")
    for part in path:
        source, target = getattr(source, part), getattr(target, part)
    setattr(target, last, getattr(source, last))


def _train(
    run: Run,
    config: Config,
    roles: Roles,
    progress: Progress,
    *,
    resumed: bool,
    changed: bool = False,
    overrides: Sequence[str] = (),
) -> None:
    trainer = Trainer(run, config, roles, progress)
    started = time.monotonic()
    if resumed:
        try:
            trainer.resume(partial(_consent, trainer, overrides, changed))
            if changed:
                run.accept_config(trainer.step_done)
        except RankFault as at_once:
            trainer = _recovered(trainer, at_once)
    try:
        sinks = _sinks(trainer)
    except MingceError:
        if not resumed:
            remove_directory(run.path)  # nothing is in it yet, and its name stays free
        raise
    first = trainer.step_done + 1
    progress.begin("mingce 明策", facts(config, roles, run.path), first, config.steps)
    for remark, warning in remarks(config):
        progress.note(remark, warning)
    if (room := size_note(config, roles, run.path)) is not None:
        progress.note(*room)
    if first > config.steps and trainer.pending is None:
        progress.note(sentence("training.all_done", steps=config.steps))
    while (fault := _trained(trainer, sinks)) is not None:
        trainer = _recovered(trainer, fault)
        sinks = _sinks(trainer, needed=False)
    progress.end(summary(trainer, time.monotonic() - started))


def _consent(trainer: Trainer, overrides: Sequence[str], changed: bool, checkpoint: Checkpoint) -> None:
    """Says what is not as it was at the checkpoint; what changes results is an error without `--changed`."""
    run, step = trainer.run, checkpoint.step
    changes = fingerprints.changes(run, checkpoint, trainer.fingerprints, overrides)
    grave = [change for change, needs_consent in changes if needs_consent]
    if grave and not changed:
        listed = "; ".join(f"({number}) {change}" for number, change in enumerate(grave, 1))
        raise RunError(sentence("training.another_run", changes=listed))
    for change, needs_consent in changes:
        trainer.progress.note(change, needs_consent)
        run.log_event(step, "changed", change)


def _sinks(trainer: Trainer, *, needed: bool = True) -> Sinks:
    """The loggers, ready for the next step; `needed` makes one that does not start an error."""
    run, config, progress = trainer.run, trainer.config, trainer.progress
    return open_sinks(
        config.keep.loggers,
        run.path,
        run.name,
        as_values(config),
        trainer.step_done + 1,
        lambda text: progress.note(text, True),
        needed=needed,
    )


def _trained(trainer: Trainer, sinks: Sinks) -> RankFault | None:
    """Trains to the end and returns None, or returns the fault when a rank is lost."""
    try:
        trainer.train(sinks)
    except RankFault as fault:
        return fault
    finally:
        sinks.close()
    return None


def _recovered(trainer: Trainer, fault: RankFault) -> Trainer:
    """Restarts all ranks after one was lost, and continues from the newest checkpoint."""
    run = trainer.run
    again = Trainer(run, trainer.config, trainer.roles, trainer.progress)
    again.interrupted, again.fingerprints = trainer.interrupted, trainer.fingerprints
    while True:
        run.log_event(trainer.step_done, "restart", str(fault))
        trainer.progress.note(sentence("training.restart", fault=fault), True)
        try:
            trainer.roles.rebuild(fault)
            again.resume()
            return again
        except RankFault as another:
            fault = another
