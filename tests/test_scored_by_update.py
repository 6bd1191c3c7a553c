"""Where a step makes one update of all its rows, the update's own pass says old_log_probs and entropy."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from rich.console import Console
from test_train import SMALL, same_files, trained

from mingce.record.run import Run
from mingce.roles.actor import LocalActor
from mingce.training import start
from mingce.training.trainer import Trainer

ONCE = (
    *SMALL, "estimator=grpo", "kl.reward_coef=0", "actor.epochs=1", "minibatch_rollouts=16", "micro_batch_tokens=90",
    "steps=3", "keep.validation_prompts=0", "audit.every=1",
)  # fmt: skip


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of every scoring pass of the actor."""
    usual, made = LocalActor.log_probs, list[int]()

    def counted(self: LocalActor, ledger):  # type: ignore[no-untyped-def]
        made.append(len(ledger))
        return usual(self, ledger)

    monkeypatch.setattr(LocalActor, "log_probs", counted)
    return made


@pytest.mark.parametrize("settings", [(), ("model.lora.rank=4", "temperature=0.7"), ("estimator=gae",)], ids=str)
def test_numbers_are_those_of_a_pass_before_the_update(
    tmp_path: Path, passes: list[int], monkeypatch: pytest.MonkeyPatch, settings: tuple[str, ...]
) -> None:
    quick = trained(tmp_path, *ONCE, *settings, name="quick")
    assert passes == [16], "only step 1 is scored before, for the self-check"
    monkeypatch.setattr(Trainer, "_scored_by_the_update", lambda self, step, ledger: False)
    plain = trained(tmp_path, *ONCE, *settings, name="plain")
    assert passes == [16] * 4
    for step in (1, 2, 3):
        mine, theirs = quick.ledger.read(step), plain.ledger.read(step)
        assert mine.columns().keys() == theirs.columns().keys()
        for name, column in theirs.columns().items():
            assert torch.allclose(mine[name], column, rtol=1e-4, atol=1e-4, equal_nan=True), name
        mask = mine.mask
        assert float((mine["old_log_probs"] - mine["rollout_log_probs"])[mask].abs().max()) < 1e-4
        assert float(mine["entropy"][mask].min()) > 0
        assert torch.equal(mine["ratio"][mask], torch.ones_like(mine["ratio"][mask])) or step == 1
        assert not bool(mine["old_log_probs"][~mask].any())
    for metrics in quick.metrics()[1:]:
        assert metrics["rollout/log_prob_gap"] < 1e-4
        assert metrics["audit/bugs"] == metrics["audit/suspicious"] == 0


@pytest.mark.parametrize(
    "settings",
    [
        ("actor.epochs=2",), ("minibatch_rollouts=8",), ("kl.reward_coef=0.01",),
        ("kl.loss_coef=0.1",), ("actor.stop_kl=10",),
    ],
    ids=lambda settings: settings[0],
)  # fmt: skip
def test_otherwise_a_pass_comes_first(tmp_path: Path, passes: list[int], settings: tuple[str, ...]) -> None:
    trained(tmp_path, *ONCE, *settings)
    assert passes == [16] * 3


def test_a_critic_that_warms_up_leaves_a_whole_ledger(tmp_path: Path) -> None:
    run = trained(tmp_path, *ONCE, "estimator=gae", "critic.warmup=2")
    for step in (1, 2, 3):
        assert {"old_log_probs", "entropy"} <= run.ledger.read(step).columns().keys()


def test_a_stopped_run_goes_on_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = (*ONCE, "steps=4", "keep.checkpoint_every=1", "validation.every=2")
    whole = trained(tmp_path, *settings, name="whole")
    usual = Trainer.step

    def stops_after_two(self: Trainer, step: int):  # type: ignore[no-untyped-def]
        self.interrupted = "Ctrl-C" if step == 2 else ""
        return usual(self, step)

    monkeypatch.setattr(Trainer, "step", stops_after_two)
    trained(tmp_path, *settings, name="parts")
    monkeypatch.setattr(Trainer, "step", usual)
    start.resume(Console(file=io.StringIO()), tmp_path / "parts")
    same_files(whole, Run.open(tmp_path / "parts", readonly=True))
