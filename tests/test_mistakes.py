"""What a person may get wrong with `mingce train`: one sentence, exit code 2, nothing left half-written."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from mingce import cli

GOOD = {"prompt": "1+1=", "data_source": "mine", "reward_model": {"style": "rule", "ground_truth": "2"}}
SMALL = [
    "steps=1",
    "prompts_per_step=4",
    "samples_per_prompt=1",
    "minibatch_rollouts=4",
    "validation.examples=2",
    "threads=1",
]


def mingce(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """(exit code, stderr) of the command."""
    monkeypatch.setattr(sys, "argv", ["mingce", *words])
    with pytest.raises(SystemExit) as left:
        cli.main()
    return int(left.value.code or 0), capsys.readouterr().err


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_train_mistakes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("missing.jsonl").write_text(lines({"prompt": "1+1="}), encoding="utf-8")
    Path("bad.jsonl").write_text(lines(GOOD, GOOD, {**GOOD, "prompt": 3}), encoding="utf-8")
    Path("broken.jsonl").write_text(lines(GOOD) + "{not json\n", encoding="utf-8")
    Path("empty.jsonl").write_text("", encoding="utf-8")
    Path("good.jsonl").write_text(lines(*[GOOD] * 20), encoding="utf-8")
    Path("syntax.py").write_text("def compute_score(:\n", encoding="utf-8")
    Path("raises.py").write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info):\n    return 1 / 0\n", encoding="utf-8"
    )
    Path("model").mkdir()
    Path("halfmodel").mkdir()
    Path("halfmodel/config.json").write_text('{"model_type": "llama"', encoding="utf-8")
    mistakes = {
        ("task=missing.jsonl",): "missing.jsonl",
        ("data.train=[bad.jsonl]", "reward.function=raises.py"): "bad.jsonl",
        ("data.train=[broken.jsonl]", "reward.function=raises.py"): "broken.jsonl",
        ("data.train=[empty.jsonl]", "reward.function=raises.py"): "empty.jsonl",
        ("data.train=[none.jsonl]", "reward.function=raises.py"): "none.jsonl",
        ("data.train=[good.jsonl]", "reward.function=syntax.py"): "syntax.py",
        ("data.train=[good.jsonl]", "reward.function=nowhere.py"): "nowhere.py",
        ("stepz=3",): "did you mean 'steps'",
        ("nowhere.yaml",): "nowhere.yaml",
        ("task=arithmetics",): "arithmetic",
        ("model.path=model",): "config.json",
        ("model.path=halfmodel",): "halfmodel",
        ("model.device=tpu",): "tpu",
        ("sampling.stop=['']",): "sampling.stop",
    }
    for words, says in mistakes.items():
        code, said = mingce(monkeypatch, capsys, "train", *SMALL, *words)
        assert code == 2, (words, said)
        assert says in said, (words, said)
        assert said.strip().count("\n") == 0, (words, said)
        assert "Traceback" not in said
        assert not Path("runs").exists(), words


def test_a_reward_that_raises_stops_the_run_with_the_example_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.jsonl").write_text(lines(*[GOOD] * 20), encoding="utf-8")
    Path("raises.py").write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info):\n    return 1 / 0\n", encoding="utf-8"
    )
    words = ("data.train=[good.jsonl]", "reward.function=raises.py", "name=r")
    code, said = mingce(monkeypatch, capsys, "train", *SMALL, *words)
    assert code == 2
    assert "ZeroDivisionError" in said
    assert "1+1=" in said
    code, said = mingce(monkeypatch, capsys, "train", *SMALL, *words)
    assert code == 2
    assert "already a run named 'r'" in said


def test_resume_mistakes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    code, said = mingce(monkeypatch, capsys, "resume", "runs/none")
    assert (code, "no run at runs/none" in said) == (2, True)
