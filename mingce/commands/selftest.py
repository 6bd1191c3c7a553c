"""The doctor's self-test: two PPO steps of a small model in a temporary directory, and whether their numbers agree."""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from rich.console import Console

from mingce.algorithms import reference
from mingce.base.texts import sentence
from mingce.base.user_files import last_line
from mingce.commands.findings import Finding
from mingce.config import as_values, read_config
from mingce.engine.local import LocalRoles, build_roles
from mingce.ledger import Ledger
from mingce.progress.plain import PlainProgress
from mingce.record.run import Run
from mingce.training.opening import open_policy
from mingce.training.trainer import Trainer

CLOSE = 1e-4
"""How far a log-prob of the sampler may lie from the trainer's, and an advantage from its float64 twin."""
STEPS = 2  # only the second has values other than 0
SMALL = (
    "task=counting",  # fewer prompts to read than arithmetic, and dense scores
    f"steps={STEPS}",
    "prompts_per_step=8",
    "samples_per_prompt=2",
    "minibatch_rollouts=8",
    "actor.epochs=1",
    "critic.epochs=1",
    "threads=1",
)


def self_test(lang: str, model: str) -> Iterator[Finding]:
    """A model loads, PPO steps run, sampler and trainer agree, GAE has its twin's numbers, a checkpoint reads back."""

    def say(name: str, **values: object) -> str:
        return sentence(f"commands.selftest_{name}", lang, **values)

    config = read_config(None, [*SMALL, f"data.lang={lang}"])
    config.model.path = model
    try:
        roles = build_roles(config)
    except Exception as error:  # a broken installation may raise anything
        yield Finding(say("model"), last_line(error), False, say("model_broken"))
        return
    size = sum(p.numel() for p in roles.actor.model.parameters())
    yield Finding(say("model"), say("model_loads", size=f"{size:,}"))
    with tempfile.TemporaryDirectory(prefix="mingce-doctor-") as directory:
        try:
            with Run.create(directory, "doctor", as_values(config)) as run:
                trainer = Trainer(run, config, roles, PlainProgress(Console(file=io.StringIO()), lang))
                begin = time.perf_counter()
                for step in range(1, STEPS + 1):
                    ledger, measured = trainer.step(step)
                    run.ledger.write(step, ledger)
                trainer.save(STEPS, None)
                trainer.saver.wait()
                seconds = time.perf_counter() - begin
            same, count = _reads_back(roles, run.path)
        except Exception as error:
            yield Finding(say("steps"), last_line(error), False, say("steps_broken"))
            return
        facts = {"rollouts": STEPS * len(ledger), "norm": measured["actor/grad_norm"], "seconds": seconds}
        yield Finding(say("steps"), say("steps_done", **facts))
        gaps = {"sampler": sampler_gap(ledger), "recursion": gae_gap(ledger, config.credit.gamma, config.credit.lam)}
        for name, gap in gaps.items():
            yield Finding(say(name), say("gap", gap=gap), gap <= CLOSE, say("numbers_broken"))
        advice = say("saved_broken", path=directory)
        yield Finding(say("saved"), say("saved_detail", tensors=count), same, advice)


def sampler_gap(ledger: Ledger) -> float:
    """The largest difference between a token's log-prob when it was drawn and in the trainer's forward pass."""
    return float((ledger["old_log_probs"] - ledger["rollout_log_probs"])[ledger.mask].abs().max())


def gae_gap(ledger: Ledger, gamma: float, lam: float) -> float:
    """The largest difference between an advantage and the same by a float64 loop."""
    rewards, values, mask = (ledger[name].tolist() for name in ("rewards", "values", "response_mask"))
    twin = torch.tensor(reference.gae(rewards, values, mask, gamma, lam).advantages, dtype=torch.float64)
    return float((ledger["advantages"].double().cpu() - twin)[ledger.mask.cpu()].abs().max())


def _reads_back(roles: LocalRoles, path: Path) -> tuple[bool, int]:
    """Whether the newest checkpoint holds exactly the weights in memory, and how many tensors were compared."""
    opened = open_policy(path)
    assert roles.critic is not None
    assert opened.critic is not None
    pairs = [
        pair
        for ours, read in ((roles.actor.model, opened.actor.model), (roles.critic.model, opened.critic.model))
        for pair in zip(ours.parameters(), read.parameters(), strict=True)
    ]
    return all(torch.equal(ours, read) for ours, read in pairs), len(pairs)
