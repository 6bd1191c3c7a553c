"""Tasksets and environments of verifiers, by the classes of the package; its packages are written for the test."""

from __future__ import annotations

from pathlib import Path

import pytest

from mingce.base.errors import MingceError
from mingce.tasks.environment import Action
from mingce.tasks.registry import load_task
from mingce.tasks.waiting import awaited

PLAIN = """import verifiers.v1 as vf
class PlainTask(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):
    @vf.reward
    async def long_enough(self, trace) -> float:
        assert trace.messages[0].content == "be brief"
        return float(len(trace.last_reply) > 3)
class PlainTaskset(vf.Taskset[PlainTask, vf.TasksetConfig]):
    def load(self):
        for n in range(9):
            yield PlainTask(vf.TaskData(prompt=f"say {n}", system_prompt="be brief"), self.config.task)
__all__ = ["PlainTaskset"]
"""
GAME = """import verifiers.v1 as vf
class GameTask(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):
    @vf.reward
    async def spoke(self, trace) -> float:
        return 0.25 * len(trace.assistant_messages)
class GameTaskset(vf.Taskset[GameTask, vf.TasksetConfig]):
    def load(self):
        for n in range(9):
            yield GameTask(vf.TaskData(prompt=f"guess {n}"), self.config.task)
class GameConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig()
class GameEnv(vf.Env[GameConfig]):
    async def run(self, task, agents):
        async with agents.player.interaction(task) as talk:
            segment = await talk.turn()
            if segment.last_reply == "fail":
                raise ValueError("the game broke")
            await talk.turn("again, not " + segment.last_reply)
        talk.trace.record_reward("game", 0.5, 1.0)
__all__ = ["GameTaskset", "GameEnv"]
"""


def test_without_the_package_it_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "verifiers", None)
    with pytest.raises(MingceError, match="needs verifiers"):
        load_task("verifiers:anything")


@pytest.mark.slow
def test_tasksets_and_environments_of_verifiers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("verifiers.v1")
    (tmp_path / "plain_v1.py").write_text(PLAIN)
    (tmp_path / "game_v1.py").write_text(GAME)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MingceError, match="cannot be loaded"):
        load_task("verifiers:plain-v1", options={"nonsense": 1})
    plain, game = (load_task(f"verifiers:{name}", size=4, held_out_size=2) for name in ("plain-v1", "game_v1"))
    assert [one.uid[-1] for one in (*plain.held_out_examples(), *plain.train_examples())] == list("012345")
    for text, right in (("abcd", True), ("abc", False)):
        talk = plain.environment()  # type: ignore[attr-defined]
        assert talk.reset(plain.train_examples()[0], 0)[0] == {"role": "system", "content": "be brief"}
        over = awaited(talk.step(Action(text)))
        assert (over.done, over.right, over.reward) == (True, right, float(right))
    talk = game.environment()  # type: ignore[attr-defined]
    talk.reset(game.train_examples()[0], 0)
    assert awaited(talk.step(Action("7"))).content == [{"role": "user", "content": "again, not 7"}]
    assert awaited(talk.step(Action("8"))).reward == 0.5 + 2 * 0.25
    broken = game.environment()  # type: ignore[attr-defined]
    broken.reset(game.train_examples()[0], 0)
    with pytest.raises(ValueError, match="the game broke"):
        awaited(broken.step(Action("fail")))
