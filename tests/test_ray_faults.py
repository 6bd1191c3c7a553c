"""A rank may die at any moment: the run ends as the one in which none did, and says what happened."""

from __future__ import annotations

import io
import json
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

from mingce.base.errors import ClusterError, RankFault, RewardError
from mingce.config import Config
from mingce.engine import group as group_module
from mingce.engine.cluster import ray_package
from mingce.engine.group import Group
from mingce.record.run import Run
from mingce.sources.runs import RunSource
from mingce.training import start

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
    """Do something to the ranks while they work on `method`; on anything if it is empty."""
    usual, asked = Group.each, [0]

    def each(self: Group, name: str, arguments: Any) -> Any:
        if method in (name, ""):
            asked[0] += 1
            group, number = self, asked[0]
            threading.Timer(0.01, lambda: deed(group, number)).start()
        return usual(self, name, arguments)

    monkeypatch.setattr(Group, "each", each)


def strike(group: Group, rank: int, what: signal.Signals = signal.SIGKILL) -> None:
    if group.processes:
        os.kill(group.processes[rank][1], what)


@pytest.mark.parametrize(
    ("method", "call", "rank", "done"),
    # a step asks for two updates; checkpoints (after steps 2, 4 and 5) for two writes each
    [("write", 4, 0, 4), pytest.param("update", 5, 1, 2, marks=pytest.mark.slow)],
)
def test_killed_while_learning_or_saving_it_ends_bit_for_bit_the_same(
    whole: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, call: int, rank: int, done: int
) -> None:
    meanwhile(monkeypatch, method, lambda group, number: strike(group, rank) if number == call else None)
    run, said = trained(tmp_path, "run")
    same_files(whole, run)

    events = [event for event in RunSource(run.path).events() if event.kind == "restart"]
    assert [event.step for event in events] == [done]
    assert "its process died" in events[0].why
    assert events[0].why in said
    assert json.loads(run.timings_path.read_text().splitlines()[-1])["perf/restarts"] == 1


def test_the_dead_rank_is_named_though_its_neighbour_failed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The neighbour's closed connection may reach us before Ray has noticed the death."""
    ray = ray_package()

    class Ray:
        exceptions = ray.exceptions

        def wait(self, refs: list[str], timeout: float) -> tuple[list[str], list[str]]:
            return refs[:1], refs[1:]

        def get(self, ref: str) -> str:
            if ref == "neighbour":
                raise ray.exceptions.RayTaskError("update", "", RuntimeError("Connection closed by peer"))
            if ref == "dead":
                raise ray.exceptions.ActorDiedError()
            return "well"

    class Asked:
        def __init__(self, ref: str):
            self.run = self
            self.ref = ref

        def remote(self, *_: Any) -> str:
            return self.ref

    monkeypatch.setattr(group_module, "ray_package", Ray)
    monkeypatch.setattr(group_module, "expect_cluster", lambda error=None: None)
    for refs, said in (
        (("neighbour", "well 1", "dead"), "rank 2 of actor was lost in update: its process died"),
        (
            ("well 0", "neighbour", "well 2"),
            "rank 1 of actor was lost in update: RuntimeError: Connection closed by peer",
        ),
        (("dead", "neighbour"), "rank 0 of actor was lost in update: its process died"),
    ):
        group = Group(Config(), ["actor"], len(refs), 0)
        group.actors = [Asked(ref) for ref in refs]
        monkeypatch.setattr(group, "kill", lambda: None)
        with pytest.raises(RankFault) as fault:
            group.call("update")
        assert str(fault.value) == said


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
    """Ten runs, each with a random rank killed at a random moment; every third while a checkpoint is written."""
    chance, killed = random.Random(11), 0
    for number in range(10):
        rank, moment = chance.randrange(2), chance.uniform(0.0, 0.1)
        method, call = ("write", 1 + chance.randrange(6)) if number % 3 == 2 else ("", 4 + chance.randrange(56))

        def deed(group: Group, asked: int, rank: int = rank, moment: float = moment, call: int = call) -> None:
            if asked == call:
                time.sleep(moment)
                strike(group, rank)

        with pytest.MonkeyPatch.context() as monkeypatch:
            meanwhile(monkeypatch, method, deed)
            run, said = trained(tmp_path, f"run-{number}")
        killed += "its process died" in said
        same_files(whole, run)
    assert killed >= 8, "nearly all were killed before their end"
