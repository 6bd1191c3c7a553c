"""`mingce chat`: answers, their account, and mistakes."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import quiet, said, save_chat_model, trained
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from mingce.base.errors import SettingError
from mingce.commands import chat
from mingce.commands.chat import Chat
from mingce.commands.spoken import HIGH, LOW, Scale, coloured, token_strings
from mingce.commands.user_input import lines as typed
from mingce.ledger import Ledger
from mingce.models.loading import load_causal_lm, model_directory
from mingce.training.opening import open_policy

pytestmark = pytest.mark.usefixtures("english")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps of PPO with a critic, a checkpoint of each."""
    return trained(tmp_path_factory.mktemp("runs"), "small", "lang=en")


def talk(where: str | Path, *lines: str, overrides: tuple[str, ...] = ()) -> str:
    console = quiet()
    chat.run(console, str(where), overrides=overrides, lines=lines)
    return said(console)


def test_chat_answers_and_shows_the_account(run: Path) -> None:
    shown = talk(run, "/values", "/temperature 0", "Is 2+3=5?", "/values", "/quit", "Is 1+1=2?")
    assert "try: Is 53+46=95?" in shown
    assert "a token's colour is V(s_t)" in shown
    assert "there is no answer yet" in shown
    assert "Yes, it is 5!∎" in shown
    assert "it is 2!" not in shown  # it had ended
    for heading in ("log-prob", "probability", "entropy", "value", "V(s_t)", "<eos>", "␣"):
        assert heading in shown


def test_chat_without_a_critic_shows_probabilities_in_the_readers_language(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINGCE_LANG", "zh")
    shown = talk("tiny", "请问2+3=5？", "/values")
    assert "颜色是它的概率" in shown
    assert "概率" in shown
    assert "价值" not in shown.partition("颜色")[2]


def test_the_chats_account_is_the_trainers(run: Path) -> None:
    opened = open_policy(run)
    prompt = opened.actor.tokenizer.encode("Is 2+3=6?")
    spoken = Chat(quiet(), opened).speak(prompt, 5)
    drawn = opened.actor.draw([prompt], opened.actor.sampling, [5])
    ledger = Ledger(drawn.token_ids, drawn.attention_mask, rows={"prompt_ids": [prompt]})
    columns = opened.actor.log_probs(ledger)
    assert opened.critic is not None
    assert spoken.log_probs == columns["old_log_probs"][0].tolist()
    assert spoken.entropy == columns["entropy"][0].tolist()
    assert spoken.values == opened.critic.values(ledger)["values"][0].tolist()
    assert spoken.log_probs == pytest.approx(drawn.log_probs[0].tolist(), abs=1e-4)


def test_seeds_repeat_and_temperature_0_is_greedy() -> None:
    question = "Is 61+8=66?"

    def answers(*lines: str) -> list[str]:
        shown = talk("tiny", *lines, overrides=("lang=en",))
        return [line for line in shown.splitlines() if line.endswith("∎")]

    drawn = answers("/temperature 3", *[question] * 4, "/seed 0", *[question] * 4)
    assert drawn[:4] == drawn[4:]
    assert len(set(drawn)) > 1
    greedy = answers("/temperature 0", question, "/seed 9", question)
    model: Any = load_causal_lm("tiny")
    tokenizer = AutoTokenizer.from_pretrained(model_directory("tiny"))
    ids = torch.tensor([tokenizer.encode(question)])
    made = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=64)
    assert greedy == [f"{tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True)}∎"] * 2


def test_a_mistake_in_the_chat_is_said_and_the_chat_goes_on() -> None:
    lines = ("/temperature hot", "/temperature -1", "/seed", "/frob", "1" * 200, "", "/help", "Is 1+1=2?")
    shown = talk("tiny", *lines, overrides=("lang=en",))
    for words in (
        "/temperature needs a number, as in /temperature 0.7",
        "temperature is -1.0, but must be 0 or more",
        "/seed needs a number, as in /seed 7",
        "there is no command /frob",
        "leaves no room in the model's window",
        "/new              forget",
    ):
        assert words in shown
    assert "∎" in shown.splitlines()[-2]
    assert "unknown to the tokenizer: 你 好" in talk("tiny", "你好")


def test_an_answer_that_is_cut_says_so() -> None:
    assert "cut at 3 tokens; sampling.max_new_tokens=N" in talk(
        "tiny", "Is 1+1=2?", overrides=("lang=en", "sampling.max_new_tokens=3")
    )


def test_a_chat_template_keeps_the_conversation(tmp_path: Path) -> None:
    opened = open_policy(save_chat_model(tmp_path), overrides=["lang=en", "sampling.max_new_tokens=4"])
    talker = Chat(quiet(), opened)
    heard: list[list[int]] = []
    speak = talker.speak

    def listening(prompt: list[int], seed: int) -> object:
        heard.append(prompt)
        return speak(prompt, seed)

    talker.speak = listening  # type: ignore[method-assign, assignment]
    for line in ("ab", "cd", "/new", "ef"):
        assert talker.hear(line)
    assert talker.last is not None
    decoded = [str(opened.actor.tokenizer.decode(prompt)) for prompt in heard]
    assert decoded[0] == "ab"
    assert decoded[1].startswith("ab")
    assert decoded[1].endswith("cd")
    assert decoded[2] == "ef"
    assert [message["role"] for message in talker.messages] == ["user", "assistant"]


def test_colours_go_from_blue_to_green(run: Path) -> None:
    assert Scale.around([0.5, 0.5]) == Scale(0.4, 0.6)
    scale = Scale.around([0.5, 1.0]).reaching([0.0, -1.0])
    assert scale == Scale(-1.0, 1.0)
    for number, (red, green, blue) in ((-1.0, LOW), (1.0, HIGH)):
        assert scale.style(number).bgcolor is not None
        assert scale.style(number).bgcolor.triplet == (red, green, blue)  # type: ignore[union-attr]
    spoken = Chat(quiet(), open_policy(run)).speak([10, 11], 0)
    text = coloured(spoken, scale)
    assert text.plain.rstrip("∎") == spoken.response
    assert len(text.spans) == len(spoken.names)


def test_token_strings_put_a_character_on_its_last_byte() -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw)
    ids = tokenizer.encode("a数 b")
    assert token_strings(tokenizer, ids) == ["a", "", "", "数", " ", "b"]
    assert token_strings(tokenizer, ids[:3]) == ["a", "", ""]


def test_lines_come_from_a_pipe_and_must_be_text(monkeypatch: pytest.MonkeyPatch) -> None:
    console = quiet()
    monkeypatch.setattr(sys, "stdin", io.StringIO("你好\n/quit\n"))
    assert [line.strip() for line in typed(console)] == ["你好", "/quit"]
    assert said(console) == "> 你好\n> /quit\n"
    broken = io.TextIOWrapper(io.BytesIO(b"\xff\xfe\n"), encoding="utf-8", errors="surrogateescape")
    monkeypatch.setattr(sys, "stdin", broken)
    with pytest.raises(SettingError, match="not text in UTF-8"):
        list(typed(console))
