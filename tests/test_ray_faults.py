"""A rank may die at any moment: the run ends as the one in which none did, and says what happened."""

from __future__ import annotations

import io
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from test_train import SMALL, same_files

from mingce import start
from mingce.engine.group import Group
from mingce.errors import ClusterError, RewardError
from mingce.run import Run
from mingce.view.runs import RunSource

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.usefixtures("ray_cluster")]

SETTINGS = (
    *SMALL, "steps=5", "engine=ray", "ray.ranks=2", "keep.checkpoint_every=2", "keep.last=9", "kl.adaptive=true",
    "validation.every=3",
)  # fmt: skip


def trained(root: Path, name: str, *settings: str) -> tuple[Run, str]:
    said = io.StringIO()
    start.train(Console(file=said, width=300), None, [f"root={root}", f"name={name}", *SETTINGS, *settings])
    return Run.open(root / name, readonly=True), said.getvalue()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained(tmp_path_factory.mktemp("whole"), "run")[0]


Deed = Callable[[Group, int], None]
"""What is done to a group when it has been asked, given the number of the question."""


def meanwhile(monkeypatch: pytest.MonkeyPatch, method: str, deed: Deed) -> None:
    """Do something to the ranks while they work on `method`."""
    usual, asked = Group.each, [0]

    def each(self: Group, name: str, arguments: Any) -> Any:
        if name == method:
            asked[0] += 1
            group, number = self, asked[0]
            threading.Timer(0.01, lambda: deed(group, number)).start()
        return usual(self, name, arguments)

    monkeypatch.setattr(Group, "each", each)


def strike(group: Group, rank: int, what: signal.Signals = signal.SIGKILL) -> None:
    if group.processes:
        os.kill(group.processes[rank][1], what)


def test_killed_while_learning_and_while_saving_it_ends_bit_for_bit_the_same(
    whole: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a step asks for two updates; checkpoints (after steps 2, 4 and 5) for two writes each
    meanwhile(monkeypatch, "update", lambda group, number: strike(group, 1) if number == 5 else None)
    meanwhile(monkeypatch, "write", lambda group, number: strike(group, 0) if number == 4 else None)
    run, said = trained(tmp_path, "run")
    same_files(whole, run)

    events = [event for event in RunSource(run.path).events() if event["kind"] == "restart"]
    assert [event["step"] for event in events] == [2, 4]
    assert "rank 1" in events[0]["why"]
    assert "its process died" in events[0]["why"]
    assert events[0]["why"] in said
    assert RunSource(run.path).metrics()[-1]["perf/restarts"] == 2


@pytest.mark.slow
def test_what_fails_again_and_again_ends_the_run_in_one_sentence_and_it_can_be_resumed(
    whole: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile(monkeypatch, "update", lambda group, number: strike(group, 0) if number > 6 else None)
    with pytest.raises(ClusterError, match=r"max_restarts.*resume"):
        trained(tmp_path, "run", "ray.max_restarts=0")
    monkeypatch.undo()
    start.resume(Console(file=io.StringIO()), tmp_path / "run")
    same_files(whole, Run.open(tmp_path / "run", readonly=True))


@pytest.mark.slow
def test_a_person_s_mistake_on_a_rank_is_told_as_such_and_not_tried_again(tmp_path: Path) -> None:
    reward = tmp_path / "reward.py"
    reward.write_text("def compute_score(data_source, solution_str, ground_truth, extra_info):\n    return 1 / 0\n")
    with pytest.raises(RewardError, match="division"):
        trained(tmp_path, "run", f"reward.function={reward}")
    assert not (tmp_path / "run" / "events.jsonl").exists()


@pytest.mark.slow
def test_a_hung_rank_is_found_by_the_time_limit(whole: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meanwhile(monkeypatch, "update", lambda group, number: strike(group, 1, signal.SIGSTOP) if number == 5 else None)
    run, said = trained(tmp_path, "run", "ray.timeout=40")
    assert "did not finish update within 40 s" in said
    same_files(whole, run)


@pytest.mark.slow
def test_chaos(whole: Run, tmp_path: Path) -> None:
    """Ten runs, each with a random rank killed at a random moment; some of them while a checkpoint is written."""
    chance, killed = random.Random(11), 0
    for number in range(10):
        with pytest.MonkeyPatch.context() as monkeypatch:
            groups: list[Group] = []
            usual = Group.start

            def begin(self: Group, usual: Callable[[Group], None] = usual, groups: list[Group] = groups) -> None:
                usual(self)
                groups.append(self)

            monkeypatch.setattr(Group, "start", begin)
            rank, moment = chance.randrange(2), chance.uniform(0.0, 1.0)
            if number % 3 == 2:
                call = 1 + chance.randrange(6)
                meanwhile(
                    monkeypatch, "write", lambda g, n, rank=rank, call=call: strike(g, rank) if n == call else None
                )
            else:

                def later(rank: int = rank, moment: float = moment, groups: list[Group] = groups) -> None:
                    while not groups:
                        time.sleep(0.05)
                    time.sleep(moment * 6)
                    strike(groups[0], rank)

                threading.Thread(target=later, daemon=True).start()
            run, said = trained(tmp_path, f"run-{number}")
            killed += "its process died" in said
            same_files(whole, run)
    assert killed >= 8, "nearly all were killed before their end"
