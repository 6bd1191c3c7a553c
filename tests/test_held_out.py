"""Answers to held-out prompts are kept at each validation with the account of every token."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from small_runs import quiet, trained
from test_agents import CHATTER

from mingce.algorithms import reference
from mingce.base.errors import RunError
from mingce.record.run import Run
from mingce.record.verify import verify
from mingce.sources.library import Library
from mingce.training import start
from mingce.view.api import Api


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = trained(tmp_path_factory.mktemp("runs"), "kept", "keep.validation_prompts=5", "kl.reward_coef=0.1")
    return Run.open(path, readonly=True)


def test_each_validation_keeps_the_same_prompts_with_a_steps_columns(run: Run) -> None:
    assert run.validation.steps() == [0, 1, 2]
    first, last = run.validation.read(0), run.validation.read(2)
    assert first.row("prompt") == last.row("prompt")
    assert len(set(first.row("prompt"))) == len(first) == 5
    training = set(run.ledger.read(2).columns())
    updates = {"new_log_probs", "ratio", "clipped", "dual_clipped", "policy_loss", "new_entropy", "new_values"}
    assert training - set(last.columns()) <= {*updates, "value_clipped", "value_loss", "whitened_advantages"}
    torch.testing.assert_close(last["old_log_probs"], last["rollout_log_probs"], atol=1e-4, rtol=0)
    rows = {name: last[name].tolist() for name in ("scores", "kl", "values", "advantages", "rewards")}
    mask = last.mask.int().tolist()
    rewards = reference.kl_rewards(rows["scores"], rows["kl"], mask, 0.1)
    credit = reference.gae(rewards, rows["values"], mask, 1.0, 0.95)
    torch.testing.assert_close(last["rewards"], torch.tensor(rewards), atol=1e-6, rtol=0)
    torch.testing.assert_close(last["advantages"], torch.tensor(credit.advantages), atol=1e-5, rtol=0)


def test_keeping_them_changes_no_number_and_resuming_makes_the_same_files(run: Run, tmp_path: Path) -> None:
    without = Run.open(trained(tmp_path, "without", "keep.validation_prompts=0", "kl.reward_coef=0.1"), readonly=True)
    assert without.validation.steps() == []
    assert not without.validation_path.exists()
    assert without.metrics_path.read_bytes() == run.metrics_path.read_bytes()
    again = trained(tmp_path, "again", "keep.validation_prompts=5", "kl.reward_coef=0.1", "steps=2")
    with Run.open(again) as opened:
        opened.rewind(1)
        assert opened.validation.steps() == [0, 1]
    start.resume(quiet(), again)
    for step in (0, 1, 2):
        name = f"step-{step:06d}.parquet"
        assert (again / "validation" / name).read_bytes() == (run.validation_path / name).read_bytes()


def test_a_pending_validation_is_kept_once(tmp_path: Path) -> None:
    with Run.open(trained(tmp_path, "pending")) as opened:
        opened.rewind(2, logged=False)
        assert opened.validation.steps() == [0, 1]


def test_verify_reads_them(tmp_path: Path) -> None:
    path = trained(tmp_path, "verified", "steps=1")
    found = {file.path: file.state for file in verify(Run.open(path, readonly=True))}
    assert found["validation/step-000001.parquet"] == "whole"
    content = bytearray((path / "validation" / "step-000001.parquet").read_bytes())
    content[len(content) // 2] ^= 1
    (path / "validation" / "step-000001.parquet").write_bytes(content)
    (path / "validation" / "step-000000.parquet").unlink()
    (path / "validation" / "mine.txt").write_text("")
    found = {file.path: file.state for file in verify(Run.open(path, readonly=True))}
    assert found["validation/step-000001.parquet"] == found["validation/step-000000.parquet"] == "damaged"
    assert found["validation/mine.txt"] == "uncovered"


def test_an_estimator_of_groups_says_nothing_of_a_single_answer(tmp_path: Path) -> None:
    run = Run.open(trained(tmp_path, "group", "estimator=grpo", "steps=1"), readonly=True)
    assert "advantages" in run.ledger.column_names(1)
    names = run.validation.column_names(1)
    assert "advantages" not in names
    assert {"scores", "rewards", "old_log_probs", "entropy"} <= set(names)
    answer = Api(Library([run.path])).through("group~validation", 0, 0).answers[-1]
    assert answer.columns["entropy"]


def test_the_page_reads_them_as_a_run_of_their_own(run: Run) -> None:
    api = Api(Library([run.path]))
    assert api.run("kept").validation_steps == [0, 1, 2]
    prompts = api.prompts("kept~validation").prompts
    assert [one.row for one in prompts] == [0, 1, 2, 3, 4]
    through = api.through("kept~validation", 0, 3)
    assert [answer.step for answer in through.answers] == [0, 1, 2]
    assert through.prompt == run.validation.read(0).row("prompt")[3]
    rollout = api.rollout("kept~validation", 2, 3)
    assert rollout.account is not None
    assert rollout.response == through.answers[-1].response
    with pytest.raises(RunError, match="held-out"):
        api.run("kept~validation~validation")


def test_conversations_are_kept_with_what_their_turns_earned(tmp_path: Path) -> None:
    path = trained(tmp_path, "agent", *CHATTER, "steps=1", "validation.examples=6", "keep.validation_prompts=6")
    run = Run.open(path, readonly=True)
    ledger, metrics = run.validation.read(1), run.metrics()[-1]
    assert bool((ledger["attention_mask"] & ~ledger.mask).any()), "nothing was told in between"
    conversations = ledger.row("conversation")
    last = {number: row for row, number in enumerate(conversations)}
    totals = [float(ledger["scores"][row].sum()) for row in last.values()]
    assert len(totals) == 6
    if len(last) == len(ledger):  # an earlier segment is paid for what it led to
        assert sum(totals) / 6 == pytest.approx(metrics["val/score_mean"], abs=1e-5)
    assert metrics["agent/ids_as_sampled"] == 1.0
