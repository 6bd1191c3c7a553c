"""verl's trainers under MINGCE_WATCH and mingce.watch: columns as they were put in, and verl never disturbed."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake_verl
import pytest
import torch

import mingce
from mingce.importers.opening import open_dump
from mingce.record.run import Run
from mingce.sources.dumps import open_source
from mingce.watching import verl_plugin
from mingce.watching.wrapping import StopAsked

HERE = Path(__file__).parent
COLUMNS = {
    "token_ids": "responses", "old_log_probs": "old_log_probs", "ref_log_probs": "ref_log_prob", "values": "values",
    "rollout_log_probs": "rollout_log_probs", "rewards": "token_level_rewards", "advantages": "advantages",
    "returns": "returns", "scores": "token_level_scores",
}  # fmt: skip
KINDS = [fake_verl.RayPPOTrainer, fake_verl.PPOTrainer]


@pytest.fixture(autouse=True)
def _packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A verl to import, and everything as it was afterwards."""
    monkeypatch.setenv("MINGCE_LANG", "en")
    fake_verl.package(tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr(fake_verl.Tracking, "lines", [])
    monkeypatch.setattr(verl_plugin, "_WARNED", [])
    torch.manual_seed(0)
    importlib.import_module("transfer_queue")
    yield
    verl_plugin.uninstall()
    for name in [name for name in sys.modules if name.partition(".")[0] in ("verl", "transfer_queue")]:
        del sys.modules[name]


def plugged(monkeypatch: pytest.MonkeyPatch, path: Path, **more: str) -> None:
    """As verl finds itself once its plug-ins are loaded and its trainers imported."""
    monkeypatch.setenv("MINGCE_WATCH", str(path))
    for name, value in more.items():
        monkeypatch.setenv(f"MINGCE_WATCH_{name}", value)
    verl_plugin.install()
    for name in verl_plugin.TRAINERS:
        importlib.import_module(name)


def alarms(path: Path) -> dict[int, list[str]]:
    lines = [json.loads(line) for line in (path / "audit.jsonl").read_text().splitlines()]
    levels = ("bug", "suspicious")
    return {line["step"]: [one["code"] for one in line["findings"] if one["severity"] in levels] for line in lines}


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == "mingce"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_plug_in_records_every_column_as_it_was(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = {name: vars(kind)[name] for name in vars(kind)}
    plugged(monkeypatch, tmp_path / "run", AUDIT_EVERY="1")
    trainer = kind(steps=3, trainer={"rollout_data_dir": "somewhere"})
    names = vars(trainer).keys() | {"logger", "_computed"}
    trainer.fit()
    assert not warnings_of(caplog)
    assert vars(trainer).keys() <= names
    run = Run.open(tmp_path / "run", readonly=True)
    assert mingce.load_run(tmp_path / "run").steps() == [1, 2, 3]
    for step, theirs in enumerate(trainer.seen, start=1):
        found = run.ledger.rollouts(step, range(run.ledger.count(step)))
        assert len(found) == 8  # not the row that fills up
        for row, one in enumerate(found):
            length = int(theirs["response_mask"][row].sum())
            attended = theirs["attention_mask"][row, : fake_verl.PROMPT].bool()
            assert one["prompt_ids"] == theirs["prompts"][row][attended].tolist()
            assert one["group"] == f"p{row // 2}"
            for ours, name in COLUMNS.items():
                assert one[ours] == theirs[name][row, :length].tolist(), ours
            assert not {"new_log_probs", "ratio", "entropy"} & one.keys()
    assert alarms(tmp_path / "run") == {1: [], 2: [], 3: []}
    logged = open_source(tmp_path / "run").series().column("critic/score/mean")
    assert logged.tolist() == pytest.approx([line["critic/score/mean"] for line in fake_verl.Tracking.lines])
    verl_plugin.uninstall()
    assert {name: vars(kind)[name] for name in vars(kind)} == before
    assert fake_verl.Tracking.log.__module__ == "fake_verl"
    assert not hasattr(fake_verl.Tracking.log, "__wrapped__")


@pytest.mark.parametrize("kind", KINDS)
def test_settings_come_from_its_configuration(kind: Any, tmp_path: Path) -> None:
    importlib.import_module("verl.utils.tracking")
    trainer = kind(steps=2)
    watched = mingce.watch(trainer, tmp_path / "run", audit_every=1)
    assert watched is not None
    trainer.fit()
    mingce.unwatch(trainer)
    assert (watched.failures, watched.dropped) == (0, 0)
    assert alarms(tmp_path / "run") == {1: [], 2: []}
    dump = open_dump(tmp_path / "run")[0]
    expected = {
        "gamma": 0.99, "lam": 0.9, "beta": 0.05, "kl_estimator": "k1", "clip_low": 0.2, "clip_high": 0.28, "eos_id": 1,
        "dual_clip": 3.0, "estimator": "gae", "group_size": 2, "policy_loss": "ppo", "loss_agg_mode": "token-mean",
    }  # fmt: skip
    assert expected.items() <= dump.settings.known().items()
    assert "top_k" not in dump.settings.known()
    config = open_source(tmp_path / "run").config()
    assert config["config.critic.loss_agg_mode"] == "token-mean"
    assert not any("secret" in str(value) for value in config.values())


def test_configurations_of_other_kinds(tmp_path: Path) -> None:
    algorithm = {"adv_estimator": "grpo", "norm_adv_by_std_in_grpo": False, "use_kl_in_reward": False}
    actor = {
        "use_kl_loss": True,
        "kl_loss_coef": 0.01,
        "kl_loss_type": "low_var_kl",
        "policy_loss": {"loss_mode": "gspo"},
    }
    scaled = {"loss_agg_mode": "seq-mean-token-sum-norm", "loss_scale_factor": 512}
    from mingce.watching.verl import host

    found = host(fake_verl.PPOTrainer(algorithm=algorithm, actor_rollout_ref={"actor": actor | scaled})).settings
    assert (found["estimator"], found["policy_loss"], found["kl_estimator"]) == ("dr_grpo", "gspo", "k3")
    assert (found["beta"], found["kl_in_reward"], found["kl_loss_coef"], found["loss_norm"]) == (None, False, 0.01, 512)
    adaptive = {"kl_ctrl": {"type": "adaptive"}}
    broken: dict[str, Any] = {"data": {"max_response_length": "${nowhere.at.all}"}}
    found = host(fake_verl.PPOTrainer(algorithm=adaptive, **broken)).settings
    assert (found["beta"], found["kl_in_reward"], found["gamma"]) == (None, True, 0.99)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bug_is_named_on_the_first_step_and_told_to_its_logger(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugged(monkeypatch, tmp_path / "run", AUDIT_EVERY="1", ON_BUG="stop")
    trainer = kind(steps=10_000)
    trainer.sign = -1.0
    with pytest.raises(StopAsked, match="KL"):
        trainer.fit()
    assert 0 < trainer.global_steps < 10_000
    mingce.unwatch(trainer)
    assert alarms(tmp_path / "run")[1]


def test_several_batches_a_step_and_a_batch_that_is_never_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(fake_verl.PPOTrainer, "_log_rollout_data")  # as a later release may have it
    plugged(monkeypatch, tmp_path / "run", AUDIT_EVERY="1")
    trainer: Any = fake_verl.PPOTrainer(steps=2)
    trainer.parameter_sync_step = 2
    trainer.fit()
    dumps = open_dump(tmp_path / "run")
    for dump, theirs in zip(dumps, trainer.seen[::2], strict=True):  # the first of each, whole
        assert dump.columns["token_ids"].tolist() == theirs["responses"].tolist()
    assert alarms(tmp_path / "run") == {1: [], 2: []}  # means of two batches are not compared with those of one
    monkeypatch.setenv("MINGCE_WATCH", str(tmp_path / "other"))
    alone = fake_verl.RayPPOTrainer()
    alone.global_steps = 1
    uids = {"uid": [f"p{row // 2}" for row in range(8)]}
    alone._log_rollout_data(SimpleNamespace(batch=alone._made(), non_tensor_batch=uids), {}, {}, "")
    mingce.unwatch(alone)
    assert mingce.load_run(tmp_path / "other").steps() == [1]


def test_a_directory_with_a_run_is_gone_on_with_or_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugged(monkeypatch, tmp_path / "runs" / "mine")
    fake_verl.RayPPOTrainer(steps=4).fit()
    resumed = fake_verl.RayPPOTrainer(steps=5)
    resumed.global_steps = 2  # of a checkpoint
    resumed.fit()
    assert mingce.load_run(tmp_path / "runs" / "mine").steps() == [1, 2, 3, 4, 5]
    fake_verl.RayPPOTrainer(steps=1).fit()
    kept, new = sorted((tmp_path / "runs").iterdir())
    assert mingce.load_run(kept).steps() == [1, 2, 3, 4, 5]
    assert mingce.load_run(new).steps() == [1]


@pytest.mark.parametrize("wrong", ["directory", "setting", "release", "queue"])
def test_what_goes_wrong_is_one_warning(
    wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    if wrong == "release":  # a later one that is another
        (tmp_path / "site/verl/trainer/ppo/v1/trainer_base.py").write_text("class PPOTrainer: pass\n")
    if wrong == "queue":
        monkeypatch.delattr(sys.modules["transfer_queue"], "kv_batch_get")
    rows = "many" if wrong == "setting" else "8"
    plugged(monkeypatch, tmp_path / "file" / "run" if wrong == "directory" else tmp_path / "run", ROWS=rows)
    trainer = fake_verl.PPOTrainer(steps=3)
    trainer.fit()
    assert trainer.global_steps == 3
    assert len(fake_verl.Tracking.lines) == 3
    assert len(warnings_of(caplog)) == 1, warnings_of(caplog)


def test_nothing_happens_without_the_variable(tmp_path: Path) -> None:
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["verl.plugins"] == {"mingce": verl_plugin.__name__}
    code = (
        "import sys; before = list(sys.meta_path); import verl; print(sys.meta_path == before,"
        " sorted({'torch', 'numpy', 'omegaconf', 'mingce.watching.watch'} & set(sys.modules)))"
    )
    path = os.pathsep.join([str(tmp_path / "site"), str(HERE), str(HERE.parent)])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MINGCE_WATCH")}
    for given, said in (({}, "True []"), ({"MINGCE_WATCH": "runs/x"}, "False []"), ({"MINGCE_WATCH": " "}, "True []")):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env={**environment, **given, "PYTHONPATH": path},
        )
        assert done.stdout.strip() == said, done.stderr
