"""Opens a run's checkpoint or a model, ready to speak.

Neither the run's data nor its reference is needed for that, so neither is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mingce.base.errors import RunError
from mingce.config import Config, read_config
from mingce.engine.local import build_actor, build_critic
from mingce.record import checkpoints
from mingce.record.checkpoints import Checkpoint
from mingce.record.run import Run
from mingce.record.targets import Step, find_run
from mingce.roles.actor import LocalActor
from mingce.roles.critic import LocalCritic
from mingce.roles.learner import take_weights
from mingce.specs import ESTIMATORS


@dataclass(frozen=True)
class Opened:
    """A policy that can speak, and a critic where the run trained one. `step` and `run` are None for a plain model."""

    where: str
    config: Config
    actor: LocalActor
    critic: LocalCritic | None
    step: int | None
    run: Run | None
    kl_coef: float | None = None
    """β as the checkpoint has it; None where there is no checkpoint."""


def open_policy(
    where: str | Path,
    *,
    step: Step = None,
    overrides: Sequence[str] = (),
    critic: bool = True,
    note: Callable[[str], object] = lambda sentence: None,
) -> Opened:
    """The policy of a run's directory or of a model (`tiny`, a Hugging Face directory or name).

    `overrides` are laid over the run's settings, or over the defaults. A run that is being trained can be opened too:
    nothing is written. `critic=False` leaves the critic out. `note` is told when a damaged checkpoint is passed over.
    """
    run = find_run(where, step)
    if run is None:
        config = read_config(None, overrides)
        config.model.path = str(where)
        return Opened(str(where), config, build_actor(config), None, None, None)
    run.config()  # says what is wrong with the file, if anything is
    config = read_config(run.path / "config.yaml", overrides)
    found = _checkpoint(run, step, note)
    actor = build_actor(config)
    if found is None:
        return Opened(str(where), config, actor, None, 0, run)
    take_weights(actor.model, found.tensors["actor"])
    known = ESTIMATORS.get(config.estimator)  # None: a file, which is not executed for this
    wanted = critic and (known is None or known.needs_critic) and "critic" in found.tensors
    beside = _critic(config, actor, found) if wanted else None
    return Opened(str(where), config, actor, beside, found.step, run, found.state.get("kl_coef"))


def _checkpoint(run: Run, step: Step, note: Callable[[str], object]) -> Checkpoint | None:
    """The checkpoint asked for; None for step 0, which is the model as the run found it."""
    if step == 0:
        return None
    if step == "best":
        step = checkpoints.best_step(run)
        if step is None:
            raise RunError(f"no checkpoint of {run.path} has a score, so none is the best; choose one with --step N.")
    return checkpoints.load_newest(run, note) if step is None else checkpoints.load(run, step)


def _critic(config: Config, actor: LocalActor, found: Checkpoint) -> LocalCritic:
    critic = build_critic(config, actor)
    take_weights(critic.model.eval(), found.tensors["critic"])
    return critic
