"""The audit of a run's own ledger while it trains: silent on a right one, an end to a wrong one."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from mingce import credit
from mingce.audit.guard import Guard
from mingce.base.errors import RunError, SettingError
from mingce.config import read_config
from mingce.record.run import Run
from mingce.training import start

SMALL = (
    "prompts_per_step=8", "samples_per_prompt=4", "minibatch_rollouts=16", "validation.examples=1",
    "validation.every=0", "actor.epochs=1", "critic.epochs=1", "threads=1",
)  # fmt: skip


def train(root: Path, name: str, *overrides: str) -> Run:
    start.train(Console(file=io.StringIO(), width=200), None, [f"root={root}", f"name={name}", *SMALL, *overrides])
    return Run.open(root / name, readonly=True)


def audits(run: Run) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run.audit_path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def returns_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer whose returns are a little off."""
    usual = credit.credit_columns

    def wrong(*arguments: Any, **settings: Any) -> dict[str, torch.Tensor]:
        columns = dict(usual(*arguments, **settings))
        return columns | {"returns": columns["returns"] * 1.1 + 0.05}

    monkeypatch.setattr(credit, "credit_columns", wrong)


@pytest.mark.parametrize(
    "overrides",
    [
        ("estimator=gae", "steps=2", "kl.adaptive=true"),
        ("estimator=td0", "steps=2", "credit.truncation=bootstrap", "max_new_tokens=6", "kl.estimator=k3"),
        ("estimator=n_step", "steps=1", "gamma=0.99"),
        ("estimator=uniform", "steps=2", "credit.truncation=mask", "max_new_tokens=6"),
        ("estimator=grpo", "steps=1", "task=counting", "max_new_tokens=16"),
        ("estimator=opo", "steps=2"),
    ],
    ids=lambda overrides: overrides[0].partition("=")[2],
)
def test_a_right_trainer_has_no_bugs(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    run = train(tmp_path, "run", "audit.every=1", *overrides)
    found = audits(run)
    assert [line["step"] for line in found] == list(range(1, run.config()["steps"] + 1))
    assert all(line["checks"] >= 10 for line in found)
    assert [
        f["title"]["en"] for line in found for f in line["findings"] if f["severity"] in ("bug", "suspicious")
    ] == []
    assert [line["audit/bugs"] for line in run.metrics()[1:]] == [0] * len(found)


@pytest.mark.usefixtures("returns_off")
def test_a_bug_stops_the_run_once_its_step_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINGCE_LANG", "en")
    with pytest.raises(RunError, match=r"the audit of step 1 found a bug: .*returns.*mingce audit .* --step 1"):
        train(tmp_path, "run", "steps=3", "audit.every=1", "keep.ledger_every=0")
    run = Run.open(tmp_path / "run", readonly=True)
    assert run.checkpoint_steps() == [1]
    assert run.ledger.steps() == [1]
    assert run.metrics()[-1]["audit/bugs"] == 1
    (line,) = audits(run)
    assert [f["code"] for f in line["findings"] if f["severity"] == "bug"] == ["returns-broken"]
    with pytest.raises(RunError, match="the audit of step 2 found"):
        start.resume(Console(file=io.StringIO()), tmp_path / "run")
    said = io.StringIO()
    start.resume(Console(file=said, width=200), tmp_path / "run", ["audit.stop=false"])
    assert "The returns are not" in said.getvalue()
    assert [line["step"] for line in audits(run)] == [1, 2, 3]


def test_which_steps_are_audited_depends_on_their_number_alone(tmp_path: Path) -> None:
    def due(every: int) -> list[int]:
        with Run.create(tmp_path, f"every-{every}", {}) as run:
            guard = Guard(run, read_config(None, [f"audit.every={every}"]))
            return [step for step in range(1, 31) if guard.due(step)]

    assert due(10) == [1, 10, 20, 30]
    assert due(0) == []
    with pytest.raises(SettingError, match=r"audit\.every must be at least 0"):
        read_config(None, ["audit.every=-1"])


def test_audit_lines_are_rewound_with_the_rest(tmp_path: Path) -> None:
    with Run.create(tmp_path, "run", {}) as run:
        for step in (1, 2, 3):
            run.log(step, {"x": 1.0})
            run.log_audit(step, {"findings": [{"title": {"zh": "词"}}]})
        run.rewind(2)
        assert [line["step"] for line in audits(run)] == [1, 2]
        with run.audit_path.open("ab") as file:
            file.write(b'{"step": 3, "fin')
    with Run.open(tmp_path / "run") as run:
        assert [line["step"] for line in audits(run)] == [1, 2]
