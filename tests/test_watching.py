"""Other trainers under mingce.watch: every column as they had it, their numbers untouched, never in the way."""

from __future__ import annotations

import ctypes
import json
import logging
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import fake_trl
import numpy as np
import pytest
import torch

import mingce
from mingce.audit.audit import audit
from mingce.base.errors import MingceError, RunError, SettingError
from mingce.importers.opening import open_dump
from mingce.record.run import Run
from mingce.sources.dumps import open_source
from mingce.sources.rollouts import recorded
from mingce.watching import recorder as recording
from mingce.watching.wrapping import StopAsked
from mingce.watching.writer import Writer

Trainer = fake_trl.GRPOTrainer | fake_trl.PPOTrainer


@pytest.fixture(autouse=True)
def _seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINGCE_LANG", "en")
    torch.manual_seed(0)


def trained(trainer: Trainer, path: Path, **choices: Any) -> Any:
    watched = mingce.watch(trainer, path, **choices)
    trainer.train()
    mingce.unwatch(trainer)
    return watched


def alarms(path: Path) -> dict[int, list[str]]:
    lines = [json.loads(line) for line in (path / "audit.jsonl").read_text().splitlines()]
    levels = ("bug", "suspicious")
    return {line["step"]: [one["code"] for one in line["findings"] if one["severity"] in levels] for line in lines}


def rollouts(path: Path, step: int) -> list[dict[str, Any]]:
    ledger = Run.open(path, readonly=True).ledger
    return ledger.rollouts(step, range(ledger.count(step)))


def test_every_column_of_grpo_is_as_the_loss_saw_it(tmp_path: Path) -> None:
    trainer = fake_trl.GRPOTrainer(steps=3)
    watched = trained(trainer, tmp_path / "run", audit_every=1)
    assert (watched.dropped, watched.failures) == (0, 0)
    for step in (1, 2, 3):
        parts = [one for one in trainer.seen if one["step"] == step]
        seen = {name: torch.cat([one[name] for one in parts]) for name in ("completion_ids", "advantages", "new")}
        more = ("completion_mask", "ref_per_token_logps", "entropies", "prompt_ids")
        seen |= {name: torch.cat([one[name] for one in parts]) for name in more}
        whole = torch.cat([seen["prompt_ids"], seen["completion_ids"]], 1).tolist()
        by_ids = {tuple(ids): row for row, ids in enumerate(whole)}
        found = rollouts(tmp_path / "run", step)
        assert len(found) == len(by_ids) == 32
        assert [one["group"] for one in found[:5:4]] == [found[1]["group"], found[5]["group"]]  # in blocks again
        for one in found:
            length = len(one["token_ids"])
            row = by_ids[(*one["prompt_ids"], *one["token_ids"], *[0] * (fake_trl.WIDTH - length))]
            mask = seen["completion_mask"][row, :length]
            assert one["response_mask"] == [True] * length == mask.bool().tolist()
            for name, theirs in (("new_log_probs", "new"), ("old_log_probs", "new"), ("entropy", "entropies")):
                assert one[name] == seen[theirs][row, :length].tolist(), name
            assert one["ref_log_probs"] == seen["ref_per_token_logps"][row, :length].tolist()
            assert one["advantages"] == [float(seen["advantages"][row])] * length
            assert one["outcome"] == pytest.approx(one["score_parts"]["right"] + 0.5 * one["score_parts"]["short"])
            assert not {"values", "returns", "rewards", "ratio"} & one.keys()
    assert alarms(tmp_path / "run") == {1: [], 2: [], 3: []}


def test_every_column_of_ppo_is_as_train_had_it(tmp_path: Path) -> None:
    trainer = fake_trl.PPOTrainer(steps=2)
    trained(trainer, tmp_path / "run", audit_every=1)
    for step, at in ((1, 2), (2, 5)):
        theirs, found = trainer.kept[at], rollouts(tmp_path / "run", step)
        last: dict[str, Any] = {"new": {}, "ratio": {}, "vpred": {}}
        for part in trainer.kept[at - 2 : at]:
            for name in last:
                last[name] |= dict(zip(part["rows"].tolist(), part[name], strict=True))
        for row, one in enumerate(found):
            length = len(one["token_ids"])
            assert length == int(
                theirs["value_mask"][row].sum()
            )  # the slot after the last token, too, where it is paid
            pairs = {"old_log_probs": "logprobs", "ref_log_probs": "ref_logprobs", "values": "values", "kl": "kl",
                     "rewards": "rewards", "advantages": "advantages", "returns": "returns", "token_ids": "responses",
                     "response_mask": "mask", "value_mask": "value_mask"}  # fmt: skip
            for ours, name in pairs.items():
                assert one[ours] == theirs[name][row, :length].tolist(), ours
            for ours, name in (("new_log_probs", "new"), ("ratio", "ratio"), ("new_values", "vpred")):
                assert one[ours] == last[name][row][:length].tolist(), ours
            assert one["outcome"] == float(theirs["scores"][row])
            assert one["prompt_ids"] == theirs["queries"][row].tolist()
    assert alarms(tmp_path / "run") == {1: [], 2: []}
    logged = open_source(tmp_path / "run").series().column("objective/kl")
    assert logged.tolist() == [one["objective/kl"] for one in trainer.state.log_history]


@pytest.mark.parametrize("kind", [fake_trl.GRPOTrainer, fake_trl.PPOTrainer])
def test_the_hosts_numbers_are_the_same_and_nothing_is_left(kind: Callable[[], Trainer], tmp_path: Path) -> None:
    torch.manual_seed(3)
    (alone := kind()).train()
    after = torch.rand(4)
    torch.manual_seed(3)
    before = vars(trainer := kind()).keys() | set()
    watched = trained(trainer, tmp_path / "run")
    assert torch.equal(torch.rand(4), after)
    history = [
        [
            {name: value for name, value in line.items() if not name.startswith("audit/")}
            for line in one.state.log_history
        ]
        for one in (trainer, alone)
    ]
    assert history[0] == history[1]
    assert vars(trainer).keys() == before
    assert "backward" not in vars(trainer.accelerator)
    assert "log" not in vars(trainer)
    assert watched.path == tmp_path / "run"
    mingce.unwatch(trainer)  # a second time does nothing
    trainer.log({})


def test_a_bug_is_told_on_the_first_step_to_the_log_the_run_and_the_hosts_logger(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = fake_trl.GRPOTrainer(steps=8)
    trainer.sign = -1.0
    with caplog.at_level(logging.WARNING, logger="mingce"):
        watched = mingce.watch(trainer, tmp_path / "run", audit_every=1)
        assert watched is not None
        trainer.train()
        mingce.unwatch(trainer)
    assert alarms(tmp_path / "run")[1] == ["advantage-sign"]
    assert [record.message.split(":")[0] for record in caplog.records] == ["step 1"]  # once, not every step
    assert (
        any(line.get("audit/bugs") == 1 for line in trainer.state.log_history) or watched.metrics()["audit/bugs"] == 1
    )
    events = [event for event in open_source(tmp_path / "run").events() if event.kind == "audit"]
    assert events[0].bugs == 1


def test_stop_at_a_bug_asks_the_trainer_in_its_own_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grpo = fake_trl.GRPOTrainer(steps=10_000)
    grpo.sign = -1.0
    trained(grpo, tmp_path / "grpo", on_bug="stop")
    assert 0 < grpo.state.global_step < 10_000
    ppo = fake_trl.PPOTrainer(steps=10_000)  # never asks whether to stop
    ppo.sign = -1.0
    mingce.watch(ppo, tmp_path / "ppo", on_bug="stop")
    with pytest.raises(StopAsked, match="KL"):
        ppo.train()
    mingce.unwatch(ppo)


def test_the_page_reads_it_while_it_is_written(tmp_path: Path) -> None:
    trainer = fake_trl.GRPOTrainer(steps=2)
    mingce.watch(trainer, tmp_path / "run")
    trainer.train()
    source = open_source(tmp_path / "run")
    until = time.monotonic() + 5
    while len(source.ledger_steps()) < 2 and time.monotonic() < until:
        time.sleep(0.02)
    assert source.ledger_steps() == [1, 2]
    assert source.status() == "training"
    assert source.total_steps() == 2
    settings = source.settings(1)
    assert (settings.estimator, settings.policy_loss, settings.clip_low, settings.clip_high) == (
        "grpo",
        "ppo",
        0.2,
        0.2,
    )
    assert source.config()["config.learning_rate"] == 1e-3
    assert "config.hub_token" not in source.config()
    rollout = recorded(tmp_path / "run", 1, 3)
    assert rollout.info.score_parts is not None
    assert rollout.response
    mingce.unwatch(trainer)
    assert source.status() == "finished"
    assert source.last_step() == 2
    assert {"critic/score/mean", "loss", "kl", "audit/bugs"} <= set(source.series().names)


def test_rows_and_steps_bound_what_is_written_and_a_part_of_a_batch_is_no_alarm(tmp_path: Path) -> None:
    trainer = fake_trl.GRPOTrainer(steps=6, scale_rewards="batch")
    trained(trainer, tmp_path / "run", rows=10, every=3)
    assert mingce.load_run(tmp_path / "run").steps() == [1, 3, 6]
    found = rollouts(tmp_path / "run", 3)
    assert len(found) == 8
    assert len({one["group"] for one in found}) == 2
    for dump in open_dump(tmp_path / "run"):
        assert dump.partial
        assert dump.source == "trl_grpo"
        assert not dump.scalars
        report = audit(dump)
        assert not report.of("bug")
        assert not report.of("suspicious")
        assert "K8 groups" not in {check.name for check in report.ran}


def test_the_audit_of_what_is_stored_says_the_same_as_the_live_one(tmp_path: Path) -> None:
    for name, trainer in (("grpo", fake_trl.GRPOTrainer()), ("ppo", fake_trl.PPOTrainer())):
        trainer.sign = -1.0
        trained(trainer, tmp_path / name, audit_every=1)
        lines = [json.loads(line) for line in (tmp_path / name / "audit.jsonl").read_text().splitlines()]
        for dump, line in zip(open_dump(tmp_path / name), lines, strict=True):
            stored = audit(dump)  # only what stands behind a row's end is not kept
            kept = [one.fault.code for one in stored.findings if one.fault.code != "pad-fill-value"]
            assert kept == [one["code"] for one in line["findings"] if one["code"] != "pad-fill-value"]
            assert len(stored.ran) == line["checks"]
            assert stored.of("bug")


# ── manners ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def no_room() -> Iterator[None]:
    """The disk takes files of a few bytes only."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == "mingce"]


@pytest.mark.usefixtures("no_room")
def test_a_full_disk_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer = fake_trl.GRPOTrainer(steps=4)
    watched = mingce.watch(trainer, tmp_path / "run")
    assert watched is not None
    resource.setrlimit(resource.RLIMIT_FSIZE, (600, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    trainer.train()
    mingce.unwatch(trainer)
    assert trainer.state.global_step == 4
    assert watched.failures > 1
    assert len(warnings_of(caplog)) == 1
    assert "file size limit" in warnings_of(caplog)[0]
    assert "mingce resume" not in warnings_of(caplog)[0]  # it is not ours to go on with


def test_a_place_that_cannot_be_written_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    trainer = fake_trl.GRPOTrainer()
    assert mingce.watch(trainer, tmp_path / "file" / "run") is None
    trainer.train()
    assert len(warnings_of(caplog)) == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_writer_that_is_killed_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer = fake_trl.GRPOTrainer(steps=4)
    watched = mingce.watch(trainer, tmp_path / "run")
    assert watched is not None
    thread = next(one for one in threading.enumerate() if one.name == "mingce-watch")
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))
    trainer.log({})  # wakes it
    thread.join(10)
    trainer.train()
    mingce.unwatch(trainer)
    assert trainer.state.global_step == 4
    assert len(warnings_of(caplog)) == 1
    assert "thread" in warnings_of(caplog)[0]


def test_a_slow_disk_drops_steps_and_never_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gate, write = threading.Event(), Writer.batch

    def slow(self: Writer, *given: Any) -> None:
        gate.wait(30)
        write(self, *given)

    monkeypatch.setattr(Writer, "batch", slow)
    trainer = fake_trl.GRPOTrainer(steps=recording.WAITING + 5)
    watched = mingce.watch(trainer, tmp_path / "run")
    assert watched is not None
    trainer.train()
    assert trainer.state.global_step == recording.WAITING + 5
    assert watched.dropped == 5
    gate.set()
    mingce.unwatch(trainer)
    assert len(mingce.load_run(tmp_path / "run").steps()) == recording.WAITING
    assert mingce.load_run(tmp_path / "run").skipped() == {}  # every step has its line of numbers, in order
    assert len(warnings_of(caplog)) == 1


def test_what_confuses_us_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer: Any = fake_trl.GRPOTrainer(steps=3)
    trainer.num_generations = None  # as another release may have it
    trainer._generate_and_score_completions = partial(_with_groups_of_four, trainer)
    watched = trained(trainer, tmp_path / "run")
    assert trainer.state.global_step == 3
    assert watched.failures == 3
    assert len(warnings_of(caplog)) == 1


def _with_groups_of_four(trainer: fake_trl.GRPOTrainer, inputs: list[Any]) -> dict[str, Any]:
    trainer.num_generations = 4
    made = fake_trl.GRPOTrainer._generate_and_score_completions(trainer, inputs)
    trainer.num_generations = None
    return made


def test_a_run_is_gone_on_with_and_a_second_training_is_numbered_on(tmp_path: Path) -> None:
    trained(fake_trl.GRPOTrainer(steps=5), tmp_path / "run")
    with pytest.raises(RunError, match="already a run"):
        mingce.watch(fake_trl.GRPOTrainer(), tmp_path / "run")
    resumed = fake_trl.GRPOTrainer(steps=6)
    resumed.state.global_step = 3
    trained(resumed, tmp_path / "run", resume=True)
    assert mingce.load_run(tmp_path / "run").steps() == [1, 2, 3, 4, 5, 6]
    again = fake_trl.GRPOTrainer(steps=2)
    mingce.watch(again, tmp_path / "again")
    again.train()
    again.state.global_step = 0
    again.train()
    mingce.unwatch(again)
    run = open_source(tmp_path / "again")
    assert run.ledger_steps() == [1, 2, 3, 4] == run.series().steps.tolist()


def test_mistakes_are_one_sentence_before_anything_is_wrapped(tmp_path: Path) -> None:
    with pytest.raises(MingceError, match=r"does not know builtins\.dict; it knows TRL GRPOTrainer"):
        mingce.watch({}, tmp_path / "run")
    trainer = fake_trl.GRPOTrainer()
    for wrong in ({"rows": 0}, {"every": -1}, {"audit_every": 1.5}, {"on_bug": "explode"}):
        with pytest.raises(SettingError, match=next(iter(wrong))):
            mingce.watch(trainer, tmp_path / "run", **wrong)
    mingce.watch(trainer, tmp_path / "run")
    with pytest.raises(SettingError, match="already"):
        mingce.watch(trainer, tmp_path / "other")
    mingce.unwatch(trainer)
    assert not (tmp_path / "other").exists()


def test_one_rank_records(tmp_path: Path) -> None:
    second = fake_trl.GRPOTrainer()
    second.accelerator.is_main_process = False
    assert mingce.watch(second, tmp_path / "run") is None
    assert not (tmp_path / "run").exists()
    first = fake_trl.GRPOTrainer(prompts=3)
    first.accelerator.num_processes = 2
    trained(first, tmp_path / "run", audit_every=1)
    (dump, *_) = open_dump(tmp_path / "run")
    assert dump.rows_of == 24
    assert dump.shape[0] == 12
    assert alarms(tmp_path / "run") == {1: [], 2: [], 3: []}


def test_no_trainer_is_imported_to_know_one() -> None:
    code = (
        "import mingce, sys; mingce.watch; print(sorted({'trl', 'torch', 'transformers', 'verl'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_half_precision_is_kept_as_such(tmp_path: Path) -> None:
    class Half(fake_trl.GRPOTrainer):
        __module__ = "somebody.else"

        def _get_per_token_logps_and_entropies(self, *given: Any, **named: Any) -> Any:
            logps, entropies, rest = super()._get_per_token_logps_and_entropies(*given, **named)
            return logps.bfloat16(), entropies, rest

    trained(Half(steps=1), tmp_path / "run")
    (dump,) = open_dump(tmp_path / "run")
    assert dump.stored["new_log_probs"] == "bfloat16"
    assert np.isfinite(dump.columns["new_log_probs"]).all()
