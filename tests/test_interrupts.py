"""Ctrl-C and SIGTERM, at any time: the run is saved and goes on exactly, other commands end with a word."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from test_train import SMALL, same_files

from mingce.record.run import Run
from mingce.training import start, trainer, validation

SETTINGS = (*SMALL, "steps=4", "keep.checkpoint_every=1", "keep.last=9", "validation.every=2", "kl.adaptive=true")


def train(root: Path, name: str) -> str:
    said = io.StringIO()
    words = [f"root={root}", f"name={name}", *SETTINGS]
    start.train(Console(file=said, width=300), None, words)
    return said.getvalue()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    root = tmp_path_factory.mktemp("whole")
    train(root, "run")
    return Run.open(root / "run", readonly=True)


def during_validation(monkeypatch: pytest.MonkeyPatch, number: int, what: signal.Signals) -> list[int]:
    """Sends this process a signal in the midst of the validation of that number (from 1); which were completed."""
    usual, asked, completed = validation.validate, [0], list[int]()

    def validate(roles: Any, config: Any, before: Any, on_progress: Callable[[int, int, float], None]) -> Any:
        asked[0] += 1
        mine, sent = asked[0], [False]

        def progress(done: int, total: int, share: float) -> None:
            on_progress(done, total, share)
            if mine == number and not sent[0]:
                sent[0] = True
                os.kill(os.getpid(), what)

        result = usual(roles, config, before, progress)
        completed.append(mine)
        return result

    monkeypatch.setattr(trainer, "validate", validate)
    return completed


@pytest.mark.parametrize(
    ("number", "what", "step"),
    [(1, signal.SIGINT, None), (2, signal.SIGINT, 2), (3, signal.SIGTERM, 4)],
)
def test_a_validation_ends_at_once_and_is_made_again_on_resume(
    whole: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, what: signal.Signals, step: int | None
) -> None:
    completed = during_validation(monkeypatch, number, what)
    said = train(tmp_path, "run")
    assert number not in completed, "it was not finished first"
    assert f"mingce resume {tmp_path / 'run'}" in said
    stopped = Run.open(tmp_path / "run", readonly=True)
    assert stopped.checkpoint_steps()[-1:] == ([] if step is None else [step])
    assert all(line["step"] != step for line in stopped.metrics()), "its metrics are not recorded"
    monkeypatch.undo()

    start.resume(Console(file=io.StringIO()), tmp_path / "run")
    resumed = Run.open(tmp_path / "run", readonly=True)
    same_files(whole, resumed)
    assert whole.metrics_path.read_bytes() == resumed.metrics_path.read_bytes()


def test_a_resume_that_is_interrupted_in_the_same_validation_changes_nothing(
    whole: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    during_validation(monkeypatch, 2, signal.SIGINT)
    train(tmp_path, "run")
    monkeypatch.undo()
    during_validation(monkeypatch, 1, signal.SIGINT)
    start.resume(Console(file=io.StringIO()), tmp_path / "run")
    monkeypatch.undo()
    start.resume(Console(file=io.StringIO()), tmp_path / "run")
    same_files(whole, Run.open(tmp_path / "run", readonly=True))


def test_a_slow_reward_does_not_keep_an_interrupted_validation(tmp_path: Path) -> None:
    slow, begun = tmp_path / "slow.py", tmp_path / "begun"
    slow.write_text(
        f"import time\ndef compute_score(**arguments):\n    open({str(begun)!r}, 'w')\n    time.sleep(3600)\n"
    )

    def interrupt() -> None:
        while not begun.exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    said = io.StringIO()
    words = [f"root={tmp_path}", "name=run", *SETTINGS, f"reward.function={slow}"]
    start.train(Console(file=said, width=300), None, words)
    assert "mingce resume" in said.getvalue()


def test_sigterm_finishes_the_step_and_saves(whole: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, before = trainer.Trainer.step, signal.getsignal(signal.SIGTERM)

    def step(self: trainer.Trainer, number: int) -> Any:
        if number == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return usual(self, number)

    monkeypatch.setattr(trainer.Trainer, "step", step)
    assert "SIGTERM" in train(tmp_path, "run")
    monkeypatch.undo()
    assert Run.open(tmp_path / "run", readonly=True).checkpoint_steps()[-1] == 3
    start.resume(Console(file=io.StringIO()), tmp_path / "run")
    same_files(whole, Run.open(tmp_path / "run", readonly=True))
    assert signal.getsignal(signal.SIGTERM) == before, "as it was before training"


@pytest.mark.parametrize(
    "words",
    [
        ("eval", "tiny"),
        ("explain", "请问17+25=42？", "是的，等于42！"),
        ("train", "--dry-run"),
        ("check", "slow.jsonl"),
    ],
)
def test_other_commands_end_with_a_word(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Ctrl-C while torch or a model is loaded, which an import hook makes certain."""
    (tmp_path / "sitecustomize.py").write_text(
        "import builtins, os, signal, sys\nusual = builtins.__import__\n"
        "def hooked(name, *rest, **more):\n"
        "    if name in ('torch', 'mingce.tasks.check') and 'mingce.cli' in str(sys.orig_argv):\n"
        "        builtins.__import__ = usual\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return usual(name, *rest, **more)\n"
        "builtins.__import__ = hooked\n"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "mingce.cli", *words],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": path, "MINGCE_LANG": "en"},
    )
    assert (done.returncode, done.stderr.strip()) == (130, "mingce: interrupted")
