"""The bare decoder gives transformers' own logits, and leaves alone what it does not compute."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from mingce.models import bare
from mingce.models.bare import BareModel
from mingce.models.cache import drop_rows, roomy_cache
from tests.families import family_model

SHAPES: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": 4},
    "llama grouped, biased, tied": {
        "num_key_value_heads": 2, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True,
    },
    "llama one key head, wide heads": {"num_key_value_heads": 1, "head_dim": 24},
    "llama turned slowly": {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}},
    "qwen2": {"num_key_value_heads": 2},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 16},
}  # fmt: skip


def build(name: str) -> Any:
    torch.manual_seed(len(name))
    sizes = {"vocab_size": 50, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3}
    config = AutoConfig.for_model(
        name.split()[0], **sizes, num_attention_heads=4, max_position_embeddings=128, **SHAPES[name]
    )
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # norms and biases begin as 1 and 0, which hides mistakes
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("name", SHAPES)
@torch.no_grad()
def test_logits_are_those_of_transformers(name: str) -> None:
    model = build(name)
    assert bare.fits(model)
    rows, width, steps = 5, 7, 40
    starts = torch.tensor([0, 3, 6, 1, 0])
    ids = torch.randint(0, 50, (rows, width + steps))
    mask = (torch.arange(width + steps) >= starts[:, None]).long()
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    whole = model(input_ids=ids, attention_mask=mask, position_ids=positions).logits
    cache = roomy_cache(model.config)
    model(
        input_ids=ids[:, :width], attention_mask=mask[:, :width], position_ids=positions[:, :width],
        past_key_values=cache, use_cache=True,
    )  # fmt: skip
    step, left = BareModel(model, width + steps), torch.arange(rows)
    for t in range(width, width + steps):
        if t == width + 20:  # two rows end; the others go on in another order
            left = drop_rows(cache, torch.tensor([True, False, False, True, False]))
        logits = step(ids[left, t], positions[left, t], starts[left], cache.layers)
        torch.testing.assert_close(logits, whole[left, t], rtol=2e-5, atol=2e-5 * float(whole.abs().max()))
    assert cache.get_seq_length() == width + steps


@pytest.mark.parametrize("family", ["gpt2", "gpt_neox"])
def test_other_models_are_left_to_transformers(family: str) -> None:
    assert not bare.fits(family_model(family))


def test_adapters_half_precision_and_windows_are_left_to_transformers() -> None:
    from peft import LoraConfig, get_peft_model

    assert not bare.fits(build("llama").to(torch.bfloat16))
    assert not bare.fits(get_peft_model(build("llama"), LoraConfig(target_modules=["q_proj"])))
    windowed = AutoConfig.for_model(
        "qwen2", vocab_size=50, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, use_sliding_window=True, sliding_window=8, max_window_layers=1,
    )  # fmt: skip
    assert not bare.fits(AutoModelForCausalLM.from_config(windowed))
    dynamic = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    assert not bare.fits(
        AutoModelForCausalLM.from_config(
            AutoConfig.for_model(
                "llama",
                hidden_size=48,
                num_attention_heads=4,
                num_hidden_layers=1,
                intermediate_size=32,
                vocab_size=50,
                rope_parameters=dynamic,
            )
        )
    )
