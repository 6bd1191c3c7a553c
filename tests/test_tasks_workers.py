"""A person's reward function may draw random numbers and misbehave: scores repeat, and the trainer outlives it."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from scored import score_all
from test_train import SMALL, same_files

from mingce.base.errors import RewardError
from mingce.record.run import Run
from mingce.tasks.base import Example, Score
from mingce.tasks.function import FunctionScorer
from mingce.tasks.scoring import Scoring
from mingce.training import start

HEAD = "def compute_score(data_source, solution_str, ground_truth, extra_info):\n"
DRAWS = (
    "import random\nAT_LOAD = random.random()\n"
    + HEAD
    + """
    import numpy, torch
    words = {"a", "b", "c", "d", "e", "f", "g", solution_str}
    return {
        "score": random.random(), "numpy": numpy.random.rand(), "torch": torch.rand(()), "load": AT_LOAD,
        "order": float(list(words).index("a")),
    }
"""
)


def scorer(tmp_path: Path, source: str, file: str = "reward.py") -> FunctionScorer:
    (tmp_path / file).write_text(source, encoding="utf-8")
    return FunctionScorer(str(tmp_path / file))


def examples(count: int) -> list[Example]:
    return [Example(f"e{index}", "?", index, "s") for index in range(count)]


def scored(reward: Any, responses: list[str], **settings: Any) -> list[Score]:
    return score_all(reward, examples(len(responses)), responses, **{"workers": 1, **settings})


def test_what_a_function_draws_depends_on_the_seed_alone(tmp_path: Path) -> None:
    """Not on the number of workers, on who comes first, or on the library being imported in the midst of a call."""
    reward, texts, seeds = scorer(tmp_path, DRAWS), [f"r{i % 3}" for i in range(12)], list(range(100, 112))
    with Scoring(reward, workers=1) as one, Scoring(reward, workers=2) as two:
        expected = one.score(examples(12), texts, seeds)
        assert two.score(examples(12), texts, seeds) == expected
        assert two.score(examples(12)[::-1], texts[::-1], seeds[::-1]) == expected[::-1]
        assert one.score(examples(12), texts, seeds[::-1]) != expected
    assert len({score.score for score in expected}) == 12
    here = Scoring(FunctionScorer.loaded(str(reward.path))).score(examples(12), texts, seeds)
    keys = ("numpy", "torch")
    assert [(s.score, *(s.parts[k] for k in keys)) for s in here] == [
        (s.score, *(s.parts[k] for k in keys)) for s in expected
    ]


def test_scoring_in_this_process_leaves_its_generators_alone(tmp_path: Path) -> None:
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # type: ignore[index]
    Scoring(scorer(tmp_path, DRAWS)).score(examples(3), ["a", "b", "c"])
    assert random.getstate() == states[0]
    assert np.random.get_state()[1].tolist() == states[1]  # type: ignore[index]
    assert torch.get_rng_state().tolist() == states[2]


DRAWN_REWARD = (
    "import random\n"
    + HEAD
    + "    return {'score': len(solution_str) % 3 + random.random(), 'part': random.random()}\n"
)


def settings(tmp_path: Path, name: str, *more: str) -> list[str]:
    (tmp_path / "reward.py").write_text(DRAWN_REWARD)
    return [
        f"root={tmp_path}", f"name={name}", *SMALL, "steps=4", "keep.checkpoint_every=2", "keep.last=9",
        "validation.every=2", f"reward.function={tmp_path / 'reward.py'}", *more,
    ]  # fmt: skip


def test_a_resumed_run_with_a_function_that_draws_is_the_run_that_was_not_stopped(tmp_path: Path) -> None:
    console = Console(file=io.StringIO())
    for name, workers in (("zero", 0), ("whole", 2)):
        start.train(console, None, settings(tmp_path, name, f"reward.workers={workers}"))
    zero, whole = (Run.open(tmp_path / name, readonly=True) for name in ("zero", "whole"))
    assert zero.metrics() == whole.metrics(), "from the validation before step 1 on, whatever the number of workers"
    shutil.copytree(tmp_path / "whole", tmp_path / "stopped")
    with Run.open(tmp_path / "stopped") as run:
        run.rewind(2)
    start.resume(console, tmp_path / "stopped")
    same_files(whole, Run.open(tmp_path / "stopped", readonly=True))


def test_eval_gives_the_same_figures_again(tmp_path: Path) -> None:
    from mingce.commands import evaluate

    start.train(Console(file=io.StringIO()), None, settings(tmp_path, "run", "steps=1"))
    printed = []
    for _ in range(2):
        said = io.StringIO()
        evaluate.run(Console(file=said, width=10**6), str(tmp_path / "run"), examples=4, samples=2, as_json=True)
        printed.append(json.loads(said.getvalue()))
    assert printed[0] == printed[1]
    first = Run.open(tmp_path / "run", readonly=True).metrics()[-1]["val/score_mean"]
    again = io.StringIO()
    evaluate.run(Console(file=again, width=10**6), str(tmp_path / "run"), examples=8, samples=1, as_json=True)
    assert json.loads(again.getvalue())["score_sampled"] == pytest.approx(first, abs=1e-12), "as in training"


NASTY = (
    "import ctypes, multiprocessing, os, re, signal, subprocess, sys, threading, time\n"
    "def square(x): return x * x\n"
    "def deep(x): return deep(x + 1)\n" + HEAD + "    word, _, rest = solution_str.partition(' ')\n"
    """
    if word == "exit": os._exit(3)
    if word == "sysexit": sys.exit(1)
    if word == "interrupt": raise KeyboardInterrupt
    if word == "generator": raise GeneratorExit
    if word == "deep": deep(0)
    if word == "memory": raise MemoryError
    if word == "abort": os.abort()
    if word == "fork" and os.fork() == 0: return 9.0
    if word == "forked_exit" and os.fork() == 0: sys.exit(0)
    if word == "fork_sleeps" and os.fork() == 0: time.sleep(3600)
    if word == "pool":
        with multiprocessing.get_context("fork").Pool(2) as pool: return float(sum(pool.map(square, range(4))))
    if word == "process": return float(subprocess.run(["echo", "5"], capture_output=True, text=True).stdout)
    if word == "thread": threading.Thread(target=time.sleep, args=(3600,)).start()
    if word == "print": print("noise"); os.write(1, b"more noise")
    if word == "close": os.closerange(3, 100)
    if word == "alarm": signal.alarm(1)
    if word == "late": time.sleep(1.5)
    if word == "chdir": os.chdir("/")
    if word == "where": return float(os.getcwd() == rest)
    if word == "backtrack": re.match(r"(a+)+$", "a" * 40 + "b")
    if word == "pid": open(rest, "w").write(str(os.getpid())); re.match(r"(a+)+$", "a" * 40 + "b")
    return 1.0
"""
)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("exit", "its worker process died with exit code 3"),
        ("sysexit", "SystemExit: 1"),
        ("interrupt", "KeyboardInterrupt"),
        ("generator", "GeneratorExit"),
        ("deep", "RecursionError"),
        ("memory", "MemoryError"),
        ("abort", r"its worker process died with exit code -6 \(SIGABRT\)"),
        ("close", "its worker process"),
    ],
)
def test_however_a_function_ends_it_is_a_failure_of_its_row(tmp_path: Path, bad: str, reason: str) -> None:
    reward = scorer(tmp_path, NASTY)
    with pytest.raises(RewardError, match=rf"the reward of e1 failed \((reward.py, line \d+: )?{reason}"):
        scored(reward, ["ok", bad, "ok"])
    got = scored(reward, ["ok", bad, "ok"], on_error=0.0)
    assert [score.score for score in got] == [1.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("word", "score"),
    [
        ("fork", 1.0),
        ("forked_exit", 1.0),
        ("fork_sleeps", 1.0),
        ("pool", 14.0),
        ("process", 5.0),
        ("thread", 1.0),
        ("print", 1.0),
        ("chdir", 1.0),
    ],
)
def test_what_a_function_starts_or_changes_harms_no_other_row(
    tmp_path: Path, word: str, score: float, capfd: pytest.CaptureFixture[str]
) -> None:
    here = f"where {os.getcwd()}"
    got = scored(scorer(tmp_path, NASTY), [word, here, word, here], time_limit=60.0)
    assert [s.score for s in got] == [score, 1.0, score, 1.0]
    assert capfd.readouterr().out == "", "what it prints is no part of a command's output"


def test_an_alarm_that_a_function_leaves_does_not_ring_in_the_next_row(tmp_path: Path) -> None:
    assert [s.score for s in scored(scorer(tmp_path, NASTY), ["alarm", "late"])] == [1.0, 1.0]


def test_a_worker_stuck_in_a_c_call_ends_with_a_killed_trainer(tmp_path: Path) -> None:
    reward = scorer(tmp_path, NASTY)
    source = f"""
from mingce.tasks.base import Example
from mingce.tasks.function import FunctionScorer
from mingce.tasks.scoring import Scoring
Scoring(FunctionScorer({str(reward.path)!r}), workers=1).score([Example("e", "", "", "")], ["pid {tmp_path / "pid"}"])
"""
    trainer = subprocess.Popen(
        [sys.executable, "-c", source], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    pid = int(eventually(lambda: (tmp_path / "pid").read_text() if (tmp_path / "pid").exists() else ""))
    trainer.kill()
    trainer.wait()
    assert eventually(lambda: not running(pid))


def eventually(look: Any, seconds: float = 300.0) -> Any:
    until = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < until:
        time.sleep(0.05)
    return found


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def train(tmp_path: Path, source: str, *more: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "reward.py").write_text(source)
    words = [f"root={tmp_path}", "name=run", *SMALL, "steps=1", f"reward.function={tmp_path / 'reward.py'}", *more]
    return subprocess.run(
        [sys.executable, "-m", "mingce.cli", "train", *words],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "MINGCE_LANG": "en"},
    )


def test_a_function_that_ends_the_process_ends_the_run_with_a_sentence(tmp_path: Path) -> None:
    done = train(tmp_path, "import os\n" + HEAD + "    os._exit(0)\n")
    assert done.returncode == 2
    assert "died with exit code 0" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_ends_the_process_when_loaded_is_told_before_a_run_is_made(tmp_path: Path) -> None:
    done = train(tmp_path, "import os\nos._exit(0)\n")
    assert done.returncode == 2
    assert "reward.py died with exit code 0 while it loaded the scorer" in " ".join(done.stderr.split())
    assert not (tmp_path / "run").exists()


def test_an_idle_worker_that_was_killed_is_replaced(tmp_path: Path) -> None:
    reward = scorer(tmp_path, "import os\n" + HEAD + "    return {'score': 1.0, 'pid': os.getpid()}\n")
    with Scoring(reward, workers=1) as scoring:
        (first,) = scoring.score(examples(1), ["a"])
        os.kill(int(first.parts["pid"]), signal.SIGTERM)
        assert eventually(lambda: not running(int(first.parts["pid"])))
        (second,) = scoring.score(examples(1), ["a"])
        assert second.score == 1.0
