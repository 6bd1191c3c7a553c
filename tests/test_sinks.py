"""Sinks: TensorBoard read back, also after a resume; the others through small stand-ins of their packages."""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from test_train import SMALL

from mingce.base.errors import RunError, SettingError, UnknownNameError
from mingce.record.run import Run
from mingce.specs.settings import by_dotted_key
from mingce.training import start
from mingce.training.sinks import PROJECT, Sinks, check_sinks, open_sinks

CONFIG = {"task": "arithmetic", "kl": {"target": 0.1, "adaptive": False}}


def no_note(sentence: str) -> None:
    raise AssertionError(f"nothing was to be said, but: {sentence}")


def scalars(run: Path, name: str) -> list[tuple[int, float]]:
    """(step, value) of one curve, as TensorBoard shows it."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the stand-ins for wandb, mlflow and trackio were called with, in order."""
    seen: list[tuple[Any, ...]] = []

    def module(name: str, **functions: Any) -> None:
        made = ModuleType(name)
        for function, value in functions.items():
            setattr(made, function, value)
        monkeypatch.setitem(sys.modules, name, made)

    def record(name: str, result: Any = None) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            seen.append((name, *args, kwargs))
            return result

        return called

    run = SimpleNamespace(log=record("wandb.log"), finish=record("wandb.finish"))
    module("wandb", init=record("wandb.init", run))
    active = SimpleNamespace(info=SimpleNamespace(run_id="0123abcd"))
    names = ("set_experiment", "log_params", "log_metrics", "end_run")
    module("mlflow", start_run=record("mlflow.start_run", active), **{name: record(f"mlflow.{name}") for name in names})
    module("trackio", **{name: record(f"trackio.{name}") for name in ("init", "log", "finish")})
    return seen


def test_tensorboard_is_always_written_and_readable_after_every_step(tmp_path: Path) -> None:
    sinks = open_sinks([], tmp_path, "run", CONFIG, 1, no_note)
    sinks.log(0, {"val/accuracy_sampled": 0.4})
    for step in range(1, 20):
        sinks.log(step, {"critic/score/mean": step / 4, "critic/kl": float("nan")})
        if step in (1, 9, 19):  # before closing: a kill loses nothing
            assert scalars(tmp_path, "critic/score/mean") == [(i, i / 4) for i in range(1, step + 1)]
    sinks.close()
    assert len(scalars(tmp_path, "critic/kl")) == 19
    assert [step for step, _ in scalars(tmp_path, "val/accuracy_sampled")] == [0]


def test_tensorboard_shows_each_step_once_after_a_resume(tmp_path: Path) -> None:
    first = open_sinks([], tmp_path, "run", CONFIG, 1, no_note)
    for step in range(6):  # killed after step 5; the checkpoint is of step 3
        first.log(step, {"critic/kl": float(step)})
    second = open_sinks([], tmp_path, "run", CONFIG, 4, no_note)
    for step in range(4, 8):
        second.log(step, {"critic/kl": float(step)})
    second.close()
    assert scalars(tmp_path, "critic/kl") == [(step, float(step)) for step in range(8)]


def test_tensorboard_forgets_step_0_too_when_a_run_starts_over(tmp_path: Path) -> None:
    for _ in range(2):  # the second time there was no checkpoint yet
        time.sleep(1.1)  # event files are read in the order of their names, which count seconds
        sinks = open_sinks([], tmp_path, "run", CONFIG, 1, no_note)
        sinks.log(0, {"val/score_mean": 0.25})
        sinks.log(1, {"val/score_mean": 0.5})
        sinks.close()
    assert scalars(tmp_path, "val/score_mean") == [(0, 0.25), (1, 0.5)]


def test_wandb_gets_project_name_config_steps_and_finish(tmp_path: Path, calls: list[tuple[Any, ...]]) -> None:
    sinks = open_sinks(["wandb"], tmp_path, "my-run", CONFIG, 1, no_note)
    sinks.log(3, {"critic/kl": 0.5})
    sinks.close()
    (init, options), *rest = calls
    assert init == "wandb.init"
    assert (options["project"], options["name"], options["config"]) == (PROJECT, "my-run", CONFIG)
    assert options["dir"] == str(tmp_path)
    assert "mode" not in options  # WANDB_MODE decides
    assert rest == [("wandb.log", {"critic/kl": 0.5}, {"step": 3}), ("wandb.finish", {})]


def test_a_resumed_run_goes_on_in_the_same_wandb_and_mlflow_run(tmp_path: Path, calls: list[tuple[Any, ...]]) -> None:
    for first_step in (1, 5):
        open_sinks(["wandb", "mlflow", "trackio"], tmp_path, "my-run", CONFIG, first_step, no_note).close()
    ids = [call[-1]["id"] for call in calls if call[0] == "wandb.init"]
    assert len(ids) == 2
    assert ids[0] == ids[1]
    assert [call[-1] for call in calls if call[0] == "mlflow.start_run"] == [
        {"run_name": "my-run"},
        {"run_id": "0123abcd"},
    ]
    assert sum(call[0] == "mlflow.log_params" for call in calls) == 1
    assert [call[-1]["resume"] for call in calls if call[0] == "trackio.init"] == ["never", "allow"]


def test_two_runs_are_two_wandb_runs(tmp_path: Path, calls: list[tuple[Any, ...]]) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        open_sinks(["wandb"], tmp_path / name, name, CONFIG, 1, no_note).close()
    ids = {call[-1]["id"] for call in calls if call[0] == "wandb.init"}
    assert len(ids) == 2


def test_mlflow_gets_experiment_name_flat_settings_steps_and_end(tmp_path: Path, calls: list[tuple[Any, ...]]) -> None:
    sinks = open_sinks(["mlflow"], tmp_path, "my-run", CONFIG, 1, no_note)
    sinks.log(3, {"critic/kl": 0.5})
    sinks.close()
    assert calls == [
        ("mlflow.set_experiment", PROJECT, {}),
        ("mlflow.start_run", {"run_name": "my-run"}),
        ("mlflow.log_params", {"task": "arithmetic", "kl.target": 0.1, "kl.adaptive": False}, {}),
        ("mlflow.log_metrics", {"critic/kl": 0.5}, {"step": 3}),
        ("mlflow.end_run", {}),
    ]


def test_mlflow_gets_many_settings_in_portions_it_takes(tmp_path: Path, calls: list[tuple[Any, ...]]) -> None:
    config = {f"setting{i}": i for i in range(250)}
    open_sinks(["mlflow"], tmp_path, "my-run", config, 1, no_note).close()
    portions = [call[1] for call in calls if call[0] == "mlflow.log_params"]
    assert max(len(portion) for portion in portions) <= 100
    assert {key: value for portion in portions for key, value in portion.items()} == config


def test_trackio_gets_project_name_config_steps_and_finish(tmp_path: Path, calls: list[tuple[Any, ...]]) -> None:
    sinks = open_sinks(["trackio"], tmp_path, "my-run", CONFIG, 1, no_note)
    sinks.log(3, {"critic/kl": 0.5})
    sinks.close()
    assert calls == [
        ("trackio.init", {"project": PROJECT, "name": "my-run", "config": CONFIG, "resume": "never"}),
        ("trackio.log", {"critic/kl": 0.5}, {"step": 3}),
        ("trackio.finish", {}),
    ]


@pytest.mark.parametrize("name", ["wandb", "mlflow", "trackio"])
def test_what_is_asked_for_and_not_installed_is_named_with_its_extra(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)  # importing it fails, installed or not
    with pytest.raises(SettingError, match=rf"pip install 'mingce\[{name}\]'"):
        check_sinks([name])
    with pytest.raises(SettingError, match=name):
        open_sinks([name], tmp_path, "run", CONFIG, 1, no_note)
    assert not list(tmp_path.iterdir())  # nothing half-made


def test_what_is_not_asked_for_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("wandb", "mlflow", "trackio"):
        monkeypatch.setitem(sys.modules, name, None)  # importing it would fail
    open_sinks(["tensorboard"], tmp_path, "run", CONFIG, 1, no_note).close()
    assert list((tmp_path / "tensorboard").iterdir())


def test_an_unknown_logger_is_named_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'wandb'"):
        check_sinks(["wanddb"])


def test_a_sink_that_does_not_start_says_why_and_closes_the_others(
    tmp_path: Path, calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(**_: Any) -> None:
        raise RuntimeError("no API key configured\nand a long story")

    monkeypatch.setattr(sys.modules["trackio"], "init", refused)
    with pytest.raises(SettingError, match=r"trackio does not start \(no API key configured\)"):
        open_sinks(["wandb", "trackio"], tmp_path, "run", CONFIG, 1, no_note)
    assert calls[-1] == ("wandb.finish", {})


def test_a_tensorboard_directory_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "tensorboard").write_text("a file where the directory should be")
    with pytest.raises(RunError, match="tensorboard cannot be written"):
        open_sinks([], tmp_path, "run", CONFIG, 1, no_note)


class Failing:
    """A sink whose server goes away after its first step."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def log(self, step: int, metrics: object) -> None:
        self.steps.append(step)
        if step > 1:
            raise ConnectionError("server is gone")

    def close(self) -> None:
        raise AssertionError("a dropped sink is not asked again")


def test_a_sink_that_fails_is_dropped_aloud_and_the_others_go_on() -> None:
    said: list[str] = []
    failing = Failing()
    logged: list[int] = []
    other = SimpleNamespace(log=lambda step, metrics: logged.append(step), close=lambda: logged.append(-1))
    sinks = Sinks({"mlflow": failing, "other": other}, said.append)
    for step in (1, 2, 3):
        sinks.log(step, {})
    sinks.close()
    assert failing.steps == [1, 2]
    assert logged == [1, 2, 3, -1]
    assert len(said) == 1
    assert said[0].startswith("mlflow failed")
    assert "server is gone" in said[0]


def test_settings_are_flattened_by_dots() -> None:
    assert by_dotted_key({"a": 1, "b": {"c": {"d": None}, "e": [1, 2]}}) == {"a": 1, "b.c.d": None, "b.e": [1, 2]}


FAKE = """
import os
class Run:
    def log(self, metrics, step): raise SystemExit("gone") if os.environ["WANDB"] == "later" else None
    def finish(self): raise OSError("gone")
def init(**settings):
    if os.environ["WANDB"] == "never": raise RuntimeError("no API key configured")
    if os.environ["WANDB"] == "exits": raise SystemExit(1)
    return Run()
"""


@pytest.fixture
def fake_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wandb that does what the variable WANDB says."""
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "wandb.py").write_text(FAKE)
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    monkeypatch.delitem(sys.modules, "wandb", raising=False)


@pytest.mark.usefixtures("fake_wandb")
@pytest.mark.parametrize("how", ["never", "exits"])
def test_a_logger_that_does_not_start_leaves_no_run_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    words = [f"root={tmp_path}", "name=run", *SMALL, "steps=1", "keep.loggers=[wandb]"]
    monkeypatch.setenv("WANDB", how)
    with pytest.raises(SettingError, match=r"wandb does not start.*keep\.loggers=\[\]"):
        start.train(Console(file=io.StringIO()), None, words)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["packages"]
    monkeypatch.setenv("WANDB", "fine")
    start.train(Console(file=io.StringIO()), None, words)  # the name is free


@pytest.mark.usefixtures("fake_wandb")
def test_a_run_can_be_resumed_without_the_logger_it_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    words = [f"root={tmp_path}", "name=run", *SMALL, "steps=1", "keep.loggers=[wandb]"]
    monkeypatch.setenv("WANDB", "later")
    start.train(Console(file=said, width=300), None, words)
    assert "wandb failed and gets no more metrics" in said.getvalue(), "one that fails later ends nothing"

    monkeypatch.setenv("WANDB", "never")
    with pytest.raises(SettingError, match="wandb does not start"):
        start.resume(Console(file=io.StringIO()), tmp_path / "run", ["steps=2"])
    start.resume(Console(file=io.StringIO()), tmp_path / "run", ["steps=2", "keep.loggers=[]"])
    assert Run.open(tmp_path / "run", readonly=True).metrics()[-1]["step"] == 2


@pytest.mark.usefixtures("fake_wandb")
def test_a_logger_that_does_not_start_again_after_a_lost_rank_is_left_out_aloud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setenv("WANDB", "never")
    open_sinks(["wandb"], tmp_path, "run", CONFIG, 3, said.append, needed=False).close()
    assert said == ["wandb does not start (no API key configured); metrics.jsonl has all metrics."]
