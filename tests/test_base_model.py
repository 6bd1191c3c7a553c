"""The embedded base model knows its tasks and samples them badly, which is what PPO needs to start from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from mingce.models.loading import load_causal_lm, load_tokenizer, model_directory
from mingce.models.prompts import default_stop_ids, render_prompt
from mingce.models.sampling import Sampling, generate
from mingce.tasks.base import Task
from mingce.tasks.registry import load_task


def accuracy(task: Task, temperature: float, examples: int, n: int = 1) -> float:
    model, tokenizer = load_causal_lm("tiny"), load_tokenizer("tiny")
    held_out = task.held_out_examples()[:examples]
    prompts = [render_prompt(tokenizer, example.prompt) for example in held_out]
    sampling = Sampling(64, temperature, stop_ids=default_stop_ids(model, tokenizer))
    drawn = generate(model, prompts, sampling, seeds=range(len(prompts) * n), pad_id=0, n=n)
    lengths = drawn.attention_mask.sum(1).tolist()
    texts = [
        str(tokenizer.decode(row[:k], skip_special_tokens=True))
        for row, k in zip(drawn.token_ids.tolist(), lengths, strict=True)
    ]
    right = [task.correct(held_out[i // n], text) for i, text in enumerate(texts)]
    return sum(right) / len(right)


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_it_knows_the_sums_and_samples_them_badly(lang: str) -> None:
    task = load_task("arithmetic", lang=lang)
    assert accuracy(task, 0.0, 300) >= 0.95
    assert 0.30 <= accuracy(task, 1.0, 300, n=4) <= 0.50


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_it_can_count_and_samples_that_badly_too(lang: str) -> None:
    task = load_task("counting", lang=lang)
    assert accuracy(task, 0.0, 100) >= 0.7
    assert 0.2 <= accuracy(task, 1.0, 100, n=4) <= 0.65


def test_it_is_a_small_llama_that_transformers_loads_as_it_is() -> None:
    directory = model_directory("tiny")
    model = AutoModelForCausalLM.from_pretrained(directory)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    assert model.config.model_type == "llama"
    assert 150_000 <= sum(p.numel() for p in model.parameters()) <= 1_000_000
    assert all(p.dtype == torch.float32 for p in model.parameters())
    for text in ("请问17+25=42？是的，等于42！", "Is 17+25=43? No, it is 42!", "从3数到7：3、4、5、6、7。"):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text
    assert (directory / "README.md").read_text(encoding="utf-8").startswith("---\nlicense: apache-2.0")


def test_the_package_ships_every_file_of_it() -> None:
    directory = model_directory("tiny")
    assert {path.name for path in directory.iterdir()} >= {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "README.md",
    }
    assert (directory / "model.safetensors").stat().st_size < 4_000_000
    assert Path(directory).parts[-3:] == ("mingce", "models", "tiny")
