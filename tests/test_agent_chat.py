"""`mingce chat --tools` and `--play`: tools are called, a person may be the policy, and the score is the task's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from small_runs import quiet, said, trained

from mingce.base.errors import MingceError
from mingce.commands import agent_chat

pytestmark = pytest.mark.usefixtures("english")
CALCULATOR = ("task=calculator", "model.path=calculator", "sampling.max_new_tokens=64", "validation.examples=4")
FIRST = "What is 15*70?"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs"), "calc", *CALCULATOR, "steps=1", "lang=en")


def played(where: str | Path, *lines: str, person: bool, overrides: tuple[str, ...] = ()) -> str:
    console = quiet()
    agent_chat.run(console, str(where), overrides=overrides, person_plays=person, lines=lines)
    return said(console)


def mingce(*words: str, typed: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mingce.cli", "chat", *words, "--lang", "en"]
    return subprocess.run(command, input=typed, capture_output=True, text=True, timeout=300)


def test_the_agents_tools_are_called_by_the_command(run: Path) -> None:
    done = mingce(str(run), "--tools", typed="/temperature 0\nWhat is 37*48?\n/next\n/quit\n")
    assert done.returncode == 0, done.stderr
    assert "tools: calc; a call is written <calc>…</calc>" in done.stdout
    assert "<calc>37*48</calc>\n" in done.stdout
    assert "<result>1776</result>" in done.stdout
    assert "a question of your own has no score" in done.stdout
    assert FIRST in done.stdout
    assert "score 1 (turns 0, answer 1); right; 2 turns, 1 tool calls, 0 malformed" in done.stdout


def test_a_person_plays_the_policy_by_the_command(run: Path) -> None:
    typed = "<calc>15*70</calc>\n/gold\nIt is 1050!\n"
    done = mingce(str(run), "--play", typed=typed)
    assert done.returncode == 0, done.stderr
    for shown in (FIRST, "<result>1050</result>", "It is 1050!\n", "score 1 (turns 0, answer 1); right; 2 turns"):
        assert shown in done.stdout


def test_a_wrong_answer_a_wrong_call_and_too_many_turns(run: Path) -> None:
    shown = played(run, "<calc>15*</calc>", "It is 3!", "", "go on", "/nonsense", "/temperature 1", person=True)
    assert "<result>?</result>" in shown
    assert "score 0 (turns 0, answer 0); not right; 2 turns, 1 tool calls" in shown
    assert "example 2:" in shown  # a line when nothing is open begins the next one
    assert "there is no command /nonsense" in shown
    assert "/temperature is of no use here" in shown
    calls = ["<calc>1+1</calc>"] * 3
    assert "cut after 2 turns" in played(run, *calls, person=True, overrides=("agent.max_turns=2",))


def test_the_same_seed_plays_the_same(run: Path) -> None:
    lines = ("/temperature 1.5", "/next", "/next")
    times = [[line for line in played(run, *lines, person=False).splitlines() if " ms" not in line] for _ in range(2)]
    assert times[0] == times[1]


def test_an_environment_that_pays_turns_and_one_that_fails(tmp_path: Path) -> None:
    chatter = f"task={Path(__file__).parent / 'agent_task.py'}:Chatter"
    shown = played("calculator", *["7"] * 40, person=True, overrides=(chatter, "agent.max_turns=5"))
    assert "turns " in shown
    assert "answer 0.25)" in shown
    fails = (chatter, "data.options.fails=raises", "agent.on_error=0")
    shown = played("calculator", "/next", "/next", "/next", *["7"] * 9, person=True, overrides=fails)
    assert "the environment failed: turn 0: RuntimeError: the tool broke" in shown
    with pytest.raises(MingceError, match="has no environment"):
        played("tiny", person=True)
