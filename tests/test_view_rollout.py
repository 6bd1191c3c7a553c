"""What the server says of one rollout of a chat run: its conversation and question, what a tool said, what it lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chat_runs import QUESTIONS, SYSTEM, Words, chat_run, prompt

from mingce.base.texts import texts
from mingce.explain.terminal import heading
from mingce.explain.walk import walk
from mingce.progress.tokens import prompt_text
from mingce.sources.library import Library
from mingce.view.api import Api

MISSING = ["rollout_log_probs", "entropy", "new_log_probs"]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Api:
    return Api(Library([chat_run(tmp_path_factory.mktemp("runs"), width=60)]))


def test_a_prompt_is_a_conversation_with_its_tokens_counted(api: Api) -> None:
    rollout = api.rollout("chat", 1, 2)
    assert [(part.role, part.text) for part in rollout.conversation if part.role != "template"] == [
        ("system", SYSTEM),
        ("user", QUESTIONS[1]),
    ]
    assert "".join(part.text for part in rollout.conversation) == rollout.prompt
    assert sum(part.tokens or 0 for part in rollout.conversation) == len(rollout.prompt_tokens)
    assert [part.tokens for part in rollout.conversation if part.role == "template"] == [3, 5, 5]


def test_the_question_stands_in_every_list(api: Api) -> None:
    lines = api.step("chat", 1).rollouts
    assert [line.question for line in lines] == [QUESTIONS[0]] * 2 + [QUESTIONS[1]] * 2
    assert lines[0].prompt.startswith("<|im_start|>system")
    assert api.rollout("chat", 1, 0).question == QUESTIONS[0]
    assert api.through("chat", 1, 2).question == QUESTIONS[1]
    assert {one.question for one in api.prompts("chat").prompts} == set(QUESTIONS)


def test_what_a_tool_said_is_an_observation(api: Api) -> None:
    rollout = api.rollout("chat", 3, 0)
    (observed,) = rollout.observations
    assert observed.role == "tool"
    assert not any(rollout.mask[observed.start : observed.end])
    assert all(rollout.mask[: observed.start] + rollout.mask[observed.end :])
    said = "".join(token.text for token in rollout.tokens[observed.start : observed.end])
    assert said.startswith("\n<|im_start|>tool\n<tool_response>\n72")
    assert api.rollout("chat", 1, 0).observations == []


@pytest.mark.parametrize("trainer", ["generic", "verl"])
def test_a_dump_says_what_it_lacks_and_how_to_record_it(tmp_path: Path, trainer: str) -> None:
    words = Words()
    ids = words.ids("7 + 2 = 9<|im_end|>")
    ones = np.ones((1, len(ids)), dtype=np.float32)
    columns: dict[str, Any] = {"response_mask": ones, "rewards": ones, "values": 0.5 * ones, "advantages": ones}
    columns |= {"returns": ones, "old_log_probs": -ones, "token_ids": np.array([ids])}
    path = tmp_path / "dump.npz"
    np.savez(path, prompt_ids=np.array([words.ids(prompt("7+2?"))]), **columns)
    words.save(tmp_path / "model")
    api = Api(Library([path], tokenizer=tmp_path / "model" / "tokenizer.json"))
    (source,) = api.library.sources()
    step = source.ledger_steps()[0]
    if trainer != "generic":
        source.dump(step).source = trainer
    rollout = api.rollout(source.id, step, 0)
    assert [one.name for one in rollout.missing] == MISSING
    for one in rollout.missing:
        for lang in ("zh", "en"):
            assert one.line[lang] in texts("recording", lang)[trainer].replace("{name}", one.name)
    assert rollout.question == api.step(source.id, step).rollouts[0].question == "7+2?"


def test_a_run_of_ours_lacks_only_what_its_estimator_has_not(tmp_path: Path) -> None:
    api = Api(Library([chat_run(tmp_path, "grpo", "grpo", width=20)]))
    rollout = api.rollout("grpo", 1, 0)
    assert [one.name for one in rollout.missing] == ["new_log_probs"]
    assert not {"values", "deltas", "returns"} & rollout.columns.keys()


def test_the_terminal_shows_the_question_too(api: Api) -> None:
    assert prompt_text(prompt(QUESTIONS[0])) == QUESTIONS[0]
    rollout = api.rollout("chat", 1, 0)
    assert f"{QUESTIONS[0]} → Let us think" in heading(walk(rollout, "engineer", "en"))
