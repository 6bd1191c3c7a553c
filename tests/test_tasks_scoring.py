"""Scoring batches in this process and in workers, and every way in which a scorer can fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from scored import score_all

import mingce
from mingce.base.errors import RewardError, SettingError
from mingce.tasks.arithmetic import Arithmetic
from mingce.tasks.base import Example, Score
from mingce.tasks.function import FunctionScorer
from mingce.tasks.scoring import Scoring

REWARD = """
import os, signal, subprocess, sys, time

def compute_score(data_source, solution_str, ground_truth, extra_info):
    word, _, rest = solution_str.partition(" ")
    if word == "raise":
        raise ValueError("no\\nsuch thing")
    if word == "exit":
        sys.exit(1)
    if word == "die":
        os._exit(3)
    if word == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if word == "sleep":
        try:
            time.sleep(3600)
        except Exception:
            open(rest, "w").close()
            return 1.0
    if word == "touch":
        open(rest, "w").close()
    if word == "hang":
        while True:
            try:
                time.sleep(3600)
            except BaseException:
                pass
    if word == "child":
        child = subprocess.Popen(["sleep", "3600"])
        with open(rest, "w") as file:
            file.write(str(child.pid))
        child.wait()
    if word == "nan":
        return float("nan")
    if word == "late":
        time.sleep(float(rest))
    return {"score": float(len(solution_str)), "pid": os.getpid()}
"""

LIMIT = 2.0


@pytest.fixture
def reward(tmp_path: Path) -> FunctionScorer:
    (tmp_path / "reward.py").write_text(REWARD)
    return FunctionScorer(str(tmp_path / "reward.py"))


def examples(count: int) -> list[Example]:
    return [
        Example(f"e{index}", [{"role": "user", "content": "x" * 500 + f"?{index}"}], index, "s")
        for index in range(count)
    ]


def scores(reward: Any, *responses: str, **settings: Any) -> list[Score]:
    return score_all(reward, examples(len(responses)), responses, **settings)


@pytest.mark.parametrize("workers", [0, 2])
def test_scores_come_in_the_order_of_the_responses(reward: FunctionScorer, workers: int) -> None:
    responses = ["late 0.3", *("x" * index for index in range(40))]
    got = scores(reward, *responses, workers=workers, time_limit=60.0)
    assert [score.score for score in got] == [float(len(response)) for response in responses]
    assert {int(score.parts["pid"]) == os.getpid() for score in got} == {workers == 0}


def test_an_empty_batch_starts_no_worker(reward: FunctionScorer) -> None:
    assert scores(reward, workers=2) == []


@pytest.mark.parametrize("workers", [0, 1])
def test_a_task_is_scored_as_it_scores_itself(workers: int) -> None:
    task = Arithmetic()
    chosen = task.held_out_examples()[:6]
    responses = [task.gold(example) for example in chosen[:3]] + ["是的", "", "?"]
    expected = [task.score(example, response) for example, response in zip(chosen, responses, strict=True)]
    assert score_all(task, chosen, responses, workers=workers) == expected


@pytest.mark.parametrize(
    ("bad", "reason", "settings"),
    [
        ("raise", "ValueError: no such thing", {"workers": 0}),
        ("exit", "SystemExit: 1", {"workers": 0}),
        ("nan", "not finite", {"workers": 0}),
        ("sleep", "longer than the time limit of 0.5 s", {"workers": 0, "time_limit": 0.5}),
        ("raise", "ValueError: no such thing", {"workers": 1}),
        ("die", "died with exit code 3", {"workers": 1}),
        ("segfault", "died with exit code -11", {"workers": 1}),
        ("hang", "longer than the time limit of 2 s", {"workers": 1, "time_limit": LIMIT}),
    ],
)
def test_a_failure_stops_with_the_example_shown_or_counts_as_configured(
    reward: FunctionScorer, bad: str, reason: str, settings: dict[str, Any]
) -> None:
    with pytest.raises(RewardError) as caught:
        scores(reward, "ok", bad, "fine", **settings)
    said = str(caught.value)
    assert reason in said
    assert "the reward of e1 failed" in said
    assert f"response '{bad}', ground truth '1'" in said
    assert "xxx?1'" in said
    assert len(said) < 600
    assert "\n" not in said

    first, failed, last = scores(reward, "ok", bad, "fine", on_error=-1, **settings)
    assert failed == Score(-1.0, {"reward_error": 1.0})
    assert (first.score, last.score) == (2.0, 4.0)
    assert first.parts["reward_error"] == last.parts["reward_error"] == 0.0


def test_the_first_failure_of_the_batch_is_the_one_shown(reward: FunctionScorer) -> None:
    for _ in range(3):
        with pytest.raises(RewardError, match="the reward of e1 failed"):
            scores(reward, "ok", "late x", "raise", "raise", workers=2)


def test_nothing_more_is_handed_out_after_a_failure_that_stops(reward: FunctionScorer, tmp_path: Path) -> None:
    for workers in (0, 1):
        with pytest.raises(RewardError):
            scores(reward, "raise", f"touch {tmp_path / 'more'}", workers=workers)
        assert not (tmp_path / "more").exists()


def test_an_alarm_is_not_swallowed_by_the_function_s_own_except(reward: FunctionScorer, tmp_path: Path) -> None:
    (failed,) = scores(reward, f"sleep {tmp_path / 'swallowed'}", time_limit=0.2, on_error=0.0)
    assert failed.parts == {"reward_error": 1.0}
    assert not (tmp_path / "swallowed").exists()


def test_the_traceback_of_a_worker_is_kept_as_a_note(reward: FunctionScorer) -> None:
    with pytest.raises(RewardError) as caught:
        scores(reward, "raise", workers=1)
    assert 'raise ValueError("no\\nsuch thing")' in "".join(caught.value.__notes__)


def test_many_failures_leave_the_others_unharmed(reward: FunctionScorer) -> None:
    responses = ["die", "ok", "segfault", "hang", "fine", "raise", "die", "good"]
    got = scores(reward, *responses, workers=2, time_limit=LIMIT, on_error=0.0)
    failed = [score.parts["reward_error"] for score in got]
    assert failed == [1, 0, 1, 1, 0, 1, 1, 0]


def test_workers_are_kept_from_batch_to_batch_and_replaced_when_dead(reward: FunctionScorer) -> None:
    with Scoring(reward, workers=1) as scoring:
        (first,) = scoring.score(examples(1), ["a"])
        (second,) = scoring.score(examples(1), ["a"])
        assert first.parts["pid"] == second.parts["pid"]
        pid = int(first.parts["pid"])
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # all its threads are gone, and it is not reaped
        (third,) = scoring.score(examples(1), ["a"])
        assert third.parts["pid"] != first.parts["pid"]


def test_a_killed_worker_takes_what_it_started_with_it(reward: FunctionScorer, tmp_path: Path) -> None:
    (failed,) = scores(reward, f"child {tmp_path / 'pid'}", workers=1, time_limit=LIMIT, on_error=0.0)
    assert failed.parts == {"reward_error": 1.0}
    assert gone(int((tmp_path / "pid").read_text()))


def test_workers_end_with_a_killed_parent(reward: FunctionScorer, tmp_path: Path) -> None:
    source = f"""
from mingce.tasks.base import Example
from mingce.tasks.function import FunctionScorer
from mingce.tasks.scoring import Scoring
Scoring(FunctionScorer({str(reward.path)!r}), workers=1).score([Example("e", "", "", "")], ["child {tmp_path / "pid"}"])
"""
    (tmp_path / "parent.py").write_text(source)
    parent = run_script(tmp_path / "parent.py")
    until = time.monotonic() + 300
    while not ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text()) and time.monotonic() < until:
        time.sleep(0.02)
    parent.kill()
    parent.wait()
    assert parent.stdout is not None
    parent.stdout.close()
    assert gone(int((tmp_path / "pid").read_text()))


def test_workers_do_not_run_the_script_again_that_started_them(reward: FunctionScorer, tmp_path: Path) -> None:
    source = f"""
from mingce.tasks.base import Example
from mingce.tasks.function import FunctionScorer
from mingce.tasks.scoring import Scoring
print("here")
print(Scoring(FunctionScorer({str(reward.path)!r}), workers=1).score([Example("e", "", "", "")], ["four"])[0].score)
"""
    (tmp_path / "script.py").write_text(source)
    assert run_script(tmp_path / "script.py").communicate()[0].split() == ["here", "4.0"]


def test_a_scorer_of_the_script_itself_is_refused(tmp_path: Path) -> None:
    source = """
from mingce.base.errors import RewardError
from mingce.tasks.base import Example, Score
from mingce.tasks.scoring import Scoring
def scorer(example, response): return Score(1.0)
try:
    Scoring(scorer, workers=1).score([Example("e", "", "", "")], ["four"])
except RewardError as error:
    print(error)
"""
    (tmp_path / "script.py").write_text(source)
    assert "could not start (AttributeError" in run_script(tmp_path / "script.py").communicate()[0]


def run_script(path: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(mingce.__file__).parents[1])}
    return subprocess.Popen([sys.executable, str(path)], env=environment, stdout=subprocess.PIPE, text=True)


def gone(pid: int) -> bool:
    """Whether the process ends (or is only waiting to be reaped) within a minute."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


def test_an_alarm_leaves_the_handler_of_others_as_it_was(reward: FunctionScorer) -> None:
    before = signal.getsignal(signal.SIGALRM)
    scores(reward, "sleep", "ok", time_limit=0.5, on_error=0)
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_time_limit_outside_the_main_thread_asks_for_workers(reward: FunctionScorer) -> None:
    caught: list[BaseException] = []

    def run() -> None:
        try:
            scores(reward, "ok", time_limit=1.0)
        except SettingError as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert "workers" in str(caught[0])


def test_a_scorer_that_cannot_be_pickled_is_refused() -> None:
    with pytest.raises(RewardError, match="cannot be sent to worker processes"):
        scores(lambda example, response: Score(1.0), "a", workers=1)


def test_a_worker_that_cannot_load_the_scorer_says_why(reward: FunctionScorer) -> None:
    with Scoring(reward, workers=1) as scoring:
        reward.path.write_text("def compute_score(:\n")
        with pytest.raises(RewardError, match=r"reward\.py, line 1: SyntaxError"):
            scoring.score(examples(1), ["a"])


def test_scores_that_are_none_are_failures() -> None:
    for wrong in (1.0, Score(float("inf")), Score(0.0, {"part": float("nan")}), Score(0.0, {}, ((0, float("nan")),))):
        with pytest.raises(RewardError, match="the reward of e0 failed"):
            scores(lambda example, response, wrong=wrong: wrong, "a")


@pytest.mark.parametrize(
    "settings",
    [
        {"workers": -1},
        {"time_limit": 0.0},
        {"time_limit": float("nan")},
        {"on_error": "zero"},
        {"on_error": float("nan")},
    ],
)
def test_impossible_settings_are_refused(reward: FunctionScorer, settings: dict[str, Any]) -> None:
    with pytest.raises(SettingError):
        Scoring(reward, **settings)
