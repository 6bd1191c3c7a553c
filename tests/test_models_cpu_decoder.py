"""The decoder on the CPU gives transformers' own logits, and leaves alone what it does not compute."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from families import family_model
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from mingce.models import sampling
from mingce.models.cpu import Decoder, reach, supports
from mingce.models.cpu.families import FAMILIES
from mingce.models.sampling import Sampling, generate

SHAPES: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": 4},
    "llama grouped, tied": {"num_key_value_heads": 2, "tie_word_embeddings": True},
    "llama one key head, wide heads": {"num_key_value_heads": 1, "head_dim": 24},
    "llama turned slowly": {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}},
    "qwen2": {"num_key_value_heads": 2},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 16},
    "mistral": {"num_key_value_heads": 2, "sliding_window": None},
    "mistral with a window": {"num_key_value_heads": 2, "sliding_window": 400},
    "phi3": {"num_key_value_heads": 2, "sliding_window": 400, "pad_token_id": None},
    "smollm3": {"num_key_value_heads": 2, "pad_token_id": None, "no_rope_layers": [1, 0, 1]},
    "gemma3_text": {
        "num_key_value_heads": 2, "head_dim": 16, "query_pre_attn_scalar": 20, "pad_token_id": None,
        "sliding_window": 400,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
}  # fmt: skip


def build(name: str) -> Any:
    torch.manual_seed(len(name))
    sizes = {"vocab_size": 50, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3}
    config = AutoConfig.for_model(
        name.split()[0], **sizes, num_attention_heads=4, max_position_embeddings=512, **SHAPES[name]
    )
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # norms and biases begin as 1 and 0, which hides mistakes
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("longest", [7, 300])
@pytest.mark.parametrize("name", SHAPES)
@torch.no_grad()
def test_logits_are_those_of_transformers(name: str, longest: int) -> None:
    model = build(name)
    assert supports(model)
    lengths, steps = torch.tensor([longest, 3, 1, 5, longest]), 40
    ids = torch.randint(0, 50, (5, longest + steps))
    ids[:4, :5] = ids[4, :5]  # prompts that begin alike, and two that are the beginning of others
    whole = model(input_ids=ids).logits
    decoder = Decoder(model, longest + steps)
    rows = torch.tensor([0, 1, 1, 2, 3, 4, 3])  # prompts of which some have two rows
    prompts = [row[:length].tolist() for row, length in zip(ids, lengths, strict=True)]

    def assert_same(logits: Tensor, at: int) -> None:
        wanted = whole[rows, lengths[rows] - 1 + at]
        torch.testing.assert_close(logits, wanted, rtol=2e-5, atol=2e-5 * float(whole.abs().max()))

    assert_same(decoder.begin(prompts, rows), 0)
    for t in range(steps):
        if t == 20:  # two rows end; the others go on in another order
            rows = rows[decoder.drop(torch.tensor([True, False, False, True, False, False, False]))]
        assert_same(decoder.step(ids[rows, lengths[rows] + t]), t + 1)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_of_the_table_is_compared(family: str) -> None:
    assert any(shape.split()[0].removesuffix("_text") == family.lower() for shape in SHAPES)


@pytest.mark.parametrize("family", ["gpt2", "gpt_neox"])
def test_other_models_are_left_to_transformers(family: str) -> None:
    assert not supports(family_model(family))


@pytest.mark.parametrize("name", ["llama", "qwen2"])
@torch.no_grad()
def test_adapters_draw_as_transformers_does(name: str) -> None:
    from peft import LoraConfig, get_peft_model

    model: Any = get_peft_model(build(name), LoraConfig(r=3, target_modules=["q_proj", "v_proj", "o_proj", "up_proj"]))
    for part, parameter in model.named_parameters():
        if "lora_B" in part:
            parameter.add_(0.2 * torch.randn_like(parameter))
    inner = model.get_base_model()
    assert supports(inner)
    ids = torch.randint(0, 50, (3, 20))
    for whole in (inner(input_ids=ids).logits, model(input_ids=ids).logits):
        decoder = Decoder(inner, 20)
        logits = decoder.begin(ids[:, :9].tolist(), torch.arange(3))
        for t in range(9, 20):
            torch.testing.assert_close(logits, whole[:, t - 1], rtol=2e-5, atol=2e-5 * float(whole.abs().max()))
            logits = decoder.step(ids[:, t])


def test_a_model_with_adapters_is_drawn_from_here(monkeypatch: pytest.MonkeyPatch) -> None:
    from peft import LoraConfig, get_peft_model

    model: Any = get_peft_model(build("llama"), LoraConfig(r=3, target_modules=["q_proj", "down_proj"]))
    monkeypatch.setattr(sampling, "CachedDecoder", None)
    generate(model, [[3, 4]], Sampling(max_new_tokens=3), seeds=[1], pad_id=0)


def test_adapted_output_layers_and_half_precision_are_left_to_transformers() -> None:
    from peft import LoraConfig, get_peft_model

    assert not supports(build("llama").to(torch.bfloat16))
    assert not supports(get_peft_model(build("llama"), LoraConfig(target_modules=["lm_head"])).get_base_model())
    windowed = AutoConfig.for_model(
        "qwen2", vocab_size=50, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, use_sliding_window=True, sliding_window=8, max_window_layers=1,
    )  # fmt: skip
    assert reach(AutoModelForCausalLM.from_config(windowed)) == 8
    dynamic = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    assert not supports(
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
