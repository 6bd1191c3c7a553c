"""A reward model scores a text the same alone, in a batch and padded, and is refused when it is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2ForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from mingce.base.errors import ModelError, RewardError
from mingce.tasks.base import Example, Prompt
from mingce.tasks.combined import Combined
from mingce.tasks.reward_model import RewardModel

CHARACTERS = ["<pad>", "<eos>", *"abcdefghij?:. \n|"]
TEMPLATE = "{% for message in messages %}{{ message['role'][0] }}:{{ message['content'] }}|{% endfor %}"
RESPONSES = ["a", "abc", "", "jihgfedcba" * 3, "a" * 17]


def save_tokenizer(path: Path, *, pad: str | None, template: str | None = TEMPLATE) -> None:
    vocabulary = {character: index for index, character in enumerate(CHARACTERS)}
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    raw.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token=pad, eos_token="<eos>", unk_token="?")
    tokenizer.chat_template = template
    tokenizer.save_pretrained(path)


def llama_config(**changes: Any) -> LlamaConfig:
    sizes: dict[str, Any] = {
        "vocab_size": len(CHARACTERS),
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
    }
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64, "num_labels": 1}
    return LlamaConfig(**(sizes | heads | {"pad_token_id": 0} | changes))


def classifier(family: str, pad_token_id: int | None) -> PreTrainedModel:
    torch.manual_seed(0)
    if family == "llama":
        return LlamaForSequenceClassification(llama_config(pad_token_id=pad_token_id, initializer_range=0.5))
    sizes: dict[str, Any] = {"vocab_size": len(CHARACTERS), "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}
    sizes |= {"num_labels": 1}
    config = GPT2Config(**sizes, pad_token_id=pad_token_id, initializer_range=0.5)
    return GPT2ForSequenceClassification(config)


@pytest.fixture(params=["llama", "gpt2"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    classifier(request.param, 0).save_pretrained(tmp_path)
    save_tokenizer(tmp_path, pad="<pad>")
    return tmp_path


def examples(prompt: Prompt = "bad?") -> list[Example]:
    return [Example(f"e{index}", prompt, None, "s") for index in range(len(RESPONSES))]


def values(model: RewardModel, prompt: Prompt = "bad?") -> list[float]:
    return [score.score for score in model.score(examples(prompt), RESPONSES)]


def test_a_score_depends_on_neither_batch_nor_padding(directory: Path) -> None:
    together = values(RewardModel(directory))
    assert len({round(value, 4) for value in together}) == len(RESPONSES)
    for budget in (1, 40, 80):
        assert values(RewardModel(directory, batch_tokens=budget)) == pytest.approx(together, abs=1e-5)
    model = RewardModel(directory)
    for example, response, value in zip(examples(), RESPONSES, together, strict=True):
        (alone,) = model.score([example], [response])
        assert alone.score == pytest.approx(value, abs=1e-5)
    backwards = model.score(examples()[::-1], RESPONSES[::-1])
    assert [score.score for score in backwards][::-1] == pytest.approx(together, abs=1e-5)


def test_a_score_is_the_classifier_s_output_at_the_last_token(directory: Path) -> None:
    model = RewardModel(directory)
    for response, value in zip(RESPONSES, values(model), strict=True):
        ids = torch.tensor([[CHARACTERS.index(character) for character in "bad?" + response]])
        with torch.no_grad():
            hidden = model.model.base_model(input_ids=ids).last_hidden_state
            expected = model.model.score(hidden)[0, -1, 0]
        assert value == pytest.approx(float(expected), abs=1e-5)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_without_any_padding_token_rows_are_scored_one_by_one(tmp_path: Path, family: str) -> None:
    classifier(family, 0).save_pretrained(tmp_path)
    save_tokenizer(tmp_path, pad="<pad>")
    expected = values(RewardModel(tmp_path))
    classifier(family, None).save_pretrained(tmp_path)
    save_tokenizer(tmp_path, pad=None)
    model = RewardModel(tmp_path)
    assert model.pad_token_id is None
    assert values(model) == pytest.approx(expected, abs=1e-5)


def test_a_chat_goes_through_the_template(directory: Path) -> None:
    model = RewardModel(directory)
    chat = [{"role": "bot", "content": "abc"}, {"role": "user", "content": "de?"}]
    texts = [Example("e", f"b:abc|{'?'}:de?|a:", None, "s")] * len(RESPONSES)
    expected = model.score(texts, [f"{response}|" for response in RESPONSES])
    assert values(model, chat) == pytest.approx([score.score for score in expected], abs=1e-5)


def test_a_chat_without_a_template_is_refused(tmp_path: Path) -> None:
    classifier("llama", 0).save_pretrained(tmp_path)
    save_tokenizer(tmp_path, pad="<pad>", template=None)
    with pytest.raises(ModelError, match=r"e0 is a chat and .* has no chat template"):
        values(RewardModel(tmp_path), [{"role": "user", "content": "a"}])


def test_a_combination_with_a_reward_model(directory: Path) -> None:
    model = RewardModel(directory)
    (score,) = Combined([(0.5, model)]).score(examples()[:1], RESPONSES[:1])
    assert score.parts == {"reward_model": score.score / 0.5}


def test_an_over_long_or_empty_text_is_named(directory: Path) -> None:
    model = RewardModel(directory)
    with pytest.raises(RewardError, match=r"e0 has 104 tokens .* takes 64"):
        model.score(examples()[:1], ["a" * 100])
    with pytest.raises(RewardError, match="e0 are empty"):
        model.score([Example("e0", "", None, "s")], [""])


def test_a_score_that_is_not_finite_is_refused(directory: Path) -> None:
    model = RewardModel(directory)
    with torch.no_grad():
        model.model.score.weight.fill_(float("nan"))
    with pytest.raises(RewardError, match=r"scored e\d as nan"):
        values(model)


def test_what_is_no_reward_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be read as a reward model"):
        RewardModel(tmp_path / "nowhere")
    save_tokenizer(tmp_path, pad="<pad>")
    LlamaForCausalLM(llama_config()).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="lacks the weights score"):
        RewardModel(tmp_path)
    LlamaForSequenceClassification(llama_config(num_labels=3)).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="has 3 outputs where a reward model has 1"):
        RewardModel(tmp_path)
