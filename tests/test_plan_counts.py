"""`mingce plan`: its counts of parameters are those of transformers and PEFT, and of the published models."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from families import FAMILIES, each_family
from plan_models import ROOT, SMALL, numbers, on_meta, shape
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoModelForSequenceClassification

from mingce.base.errors import MingceError
from mingce.models.lora import LoraSettings, add_adapters
from mingce.models.value_head import ValueModel
from mingce.plan import families, roles
from mingce.plan.families import read_shape, shape_of
from mingce.plan.notes import notes
from mingce.plan.plan import Request, make_plan
from mingce.plan.presets import PRESETS, find_shape
from mingce.plan.presets import TINY as TINY_MODEL
from mingce.plan.shape import ModelShape

VARIANTS: dict[str, dict[str, Any]] = {
    "mistral": {"head_dim": 24, "tie_word_embeddings": True},
    "phi3": {"tie_word_embeddings": True},
    "smollm3": {"tie_word_embeddings": False, "attention_bias": True},
    "llama": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, "head_dim": 16},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {"attention_bias": True},
    "gpt2": {"tie_word_embeddings": False, "n_inner": 80},
    "gpt_neox": {"attention_bias": False, "tie_word_embeddings": True},
}


# ── counts ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@each_family
@pytest.mark.parametrize("varied", [False, True])
def test_parameters_are_those_of_transformers(family: str, varied: bool) -> None:
    config = FAMILIES[family]
    if varied:
        config = type(config)(**(config.to_dict() | VARIANTS[family]))
    found = shape(config)
    model = on_meta(config)
    assert found.parameters == numbers(model)
    assert roles.critic(found).whole() == numbers(ValueModel.from_causal_lm(model))
    sizes = sorted(tuple(p.shape) for p in model.parameters())
    assert sorted([*[w.size for w in found.layer] * found.layers, *(w.size for w in found.ends)]) == sizes


OTHERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "mistral": ({"head_dim": 24}, {"gated": True, "norms": 2, "keeps_qkv": False}),
    "gemma2": ({"head_dim": 16}, {"norms": 4, "tied": True, "activation": "gelu_pytorch_tanh"}),
    "gemma3_text": ({"head_dim": 16}, {"norms": 4, "qk_norm": True}),
    "phi3": ({}, {"gated": True, "keeps_qkv": True}),
    "starcoder2": ({}, {"gated": False, "rms_norm": False}),
    "falcon": ({"multi_query": True, "num_key_value_heads": None}, {"kv_heads": 1, "inner": 256, "parallel": True}),
    "mixtral": ({"num_local_experts": 6}, {"experts": 6, "inner": 2 * 176, "gated": True}),
    "qwen3_moe": (
        {"head_dim": 16, "num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 40},
        {"experts": 6, "inner": 3 * 40, "qk_norm": True},
    ),
}


@pytest.mark.parametrize("family", OTHERS)
def test_every_family_of_transformers_is_counted(family: str) -> None:
    more, expected = OTHERS[family]
    config = {"model_type": family} | SMALL | {"num_key_value_heads": 2} | more
    counted = shape_of(config, family, "here")
    model = on_meta(CONFIG_MAPPING[family](**config))
    assert counted.parameters == numbers(model)
    usual = {"kv_heads": 2, "inner": 176, "experts": 1, "layers": 3, "hidden": 64, "vocab": 512}
    assert {name: getattr(counted, name) for name in usual | expected} == usual | expected
    assert roles.actor(counted, rank=4).whole(learning=True) > 0


def test_a_mixture_of_experts_is_said_to_be_counted_as_a_whole(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "mixtral", "num_key_value_heads": 2} | SMALL), encoding="utf-8")
    plan = make_plan(Request(model_config=str(file), gpus=2))
    assert any("active for a token is not modelled" in note.text for note in notes(plan, "en"))
    assert any("混合专家" in note.text for note in notes(plan, "zh"))


def without_names(shape: ModelShape) -> ModelShape:
    """Versions of transformers call some weights differently."""
    layer, ends = (tuple(sorted((replace(w, name="") for w in part), key=str)) for part in (shape.layer, shape.ends))
    return replace(shape, layer=layer, ends=ends, output=replace(shape.output, name=""))


@pytest.mark.parametrize("name", PRESETS)
def test_shapes_of_presets_are_those_of_transformers(name: str) -> None:
    stored, built = find_shape(name), shape_of(PRESETS[name], name, name)
    assert without_names(stored) == without_names(built), "run scripts/make_presets.py"


def test_the_shape_of_the_embedded_model_is_that_of_its_configuration() -> None:
    assert without_names(find_shape("tiny")) == without_names(read_shape(TINY_MODEL)), "run scripts/make_presets.py"


@pytest.mark.parametrize(
    "absurd",
    [
        {"num_hidden_layers": 10**9},
        {"vocab_size": 10**30},
        {"hidden_size": 1 << 30, "intermediate_size": 1 << 30, "vocab_size": 1 << 30},
        {"num_hidden_layers": 0},
        {"hidden_size": -64},
        {"intermediate_size": 1.5},
        {"num_attention_heads": 7},
        {"num_attention_heads": 128},
        {"rope_parameters": {"rope_type": "none"}},
        {"head_dim": "many"},
        {"hidden_act": "none"},
        json.loads('{"a":' * 500 + "1" + "}" * 500),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_absurd_configuration_is_one_sentence(absurd: dict[str, Any]) -> None:
    with pytest.raises(MingceError) as caught:
        shape_of({"model_type": "llama"} | SMALL | absurd, "absurd", "here")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_configuration_that_takes_too_much_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A label for each of two billion classes is more than any memory; the process that builds it is bounded."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "llama", "num_labels": (1 << 31) - 1} | SMALL), encoding="utf-8")
    monkeypatch.setattr(families, "MOST_MEMORY", 1_500_000_000)
    with pytest.raises(MingceError, match=r"cannot be counted within 1\.5 GB of memory|not counted within"):
        find_shape(str(file))
    monkeypatch.setattr(families, "MOST_SECONDS", 0.2)
    with pytest.raises(MingceError, match=r"not counted within 0\.2 s"):
        find_shape(str(file))


def test_a_configuration_executes_nothing_and_loads_nothing(tmp_path: Path) -> None:
    """Its own code is not imported, and the ways it names to compute attention are not looked for."""
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass A: pass\n", encoding="utf-8")
    stranger = {
        "auto_map": {"AutoConfig": "evil.A", "AutoModelForCausalLM": "evil.A"},
        "_name_or_path": str(tmp_path),
        "_attn_implementation": "someone/kernel",
        "attn_implementation": "someone/kernel",
        "quantization_config": {"quant_method": "nothing"},
        "dtype": "bfloat16",
    }
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "llama"} | SMALL | stranger), encoding="utf-8")
    assert find_shape(str(tmp_path)).dtype == shape_of(stranger | SMALL | {"model_type": "llama"}, "", "").dtype
    with pytest.raises(MingceError, match="unknown model family"):
        shape_of({"model_type": "evil"} | SMALL | stranger, "evil", "here")
    assert not (tmp_path / "ran").exists()


@each_family
def test_a_reward_model_is_the_backbone_and_one_row(family: str) -> None:
    config = FAMILIES[family]
    labelled = type(config)(**(config.to_dict() | {"num_labels": 1}))
    found = roles.reward_model(shape(config))
    assert found.whole() == numbers(on_meta(labelled, AutoModelForSequenceClassification))
    assert not found.learns


@each_family
def test_adapters_are_those_of_peft(family: str) -> None:
    config = FAMILIES[family]
    found = roles.actor(shape(config), rank=4)
    model = add_adapters(on_meta(config), LoraSettings(rank=4))
    assert (found.whole(), found.whole(learning=True)) == (numbers(model), numbers(model, learning=True))


def test_adapters_on_named_layers_only() -> None:
    targets = ["q_proj", "down_proj"]
    model = add_adapters(on_meta(FAMILIES["llama"]), LoraSettings(rank=3, target_modules=tuple(targets)))
    found = roles.actor(shape(FAMILIES["llama"]), 3, targets)
    assert found.whole(learning=True) == numbers(model, learning=True)
    with pytest.raises(MingceError, match="names no layer"):
        roles.actor(shape(FAMILIES["llama"]), 3, ["c_attn"])


def test_presets_have_the_published_sizes() -> None:
    published = {
        "smollm2-135m": 134_515_008,
        "llama-3.2-1b": 1_235_814_400,
        "llama-2-7b": 6_738_415_616,
        "llama-3.1-8b": 8_030_261_248,
        "llama-3.1-70b": 70_553_706_496,
        "mistral-7b": 7_241_732_096,
        "qwen2.5-0.5b": 494_032_768,
        "qwen2.5-7b": 7_615_616_512,
        "qwen2.5-14b": 14_770_033_664,
        "qwen2.5-32b": 32_763_876_352,
        "qwen3-8b": 8_190_735_360,
        "qwen3-32b": 32_762_123_264,
        "gpt2": 124_439_808,
        "pythia-1b": 1_011_781_632,
    }
    assert {name: find_shape(name).parameters for name in published} == published
    assert all(find_shape(name).parameters for name in PRESETS)


def test_a_model_is_found_by_preset_size_file_or_directory(tmp_path: Path) -> None:
    assert find_shape("7b") == find_shape("Qwen/Qwen2.5-7B-Instruct") == find_shape("qwen2.5-7b")
    FAMILIES["qwen3"].save_pretrained(tmp_path)
    assert find_shape(str(tmp_path)).parameters == shape(FAMILIES["qwen3"]).parameters
    assert find_shape("tiny").parameters == numbers(AutoModelForCausalLM.from_pretrained(ROOT / "mingce/models/tiny"))
