"""Well-known models as numbers, for a plan without their files. Configurations as their publishers gave them.

Their shapes are in presets.json (scripts/make_presets.py writes it), so that a plan for one needs no torch.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from mingce.base.errors import ModelError, UnknownNameError
from mingce.base.paths import expanded
from mingce.base.places import EMBEDDED_MODELS
from mingce.plan.families import read_shape
from mingce.plan.shape import ModelShape, shape_of_values

SHAPES = Path(__file__).with_suffix(".json")
TINY = EMBEDDED_MODELS["tiny"]
_LLAMA_3, _QWEN = 128_256, 151_936


def _config(
    family: str, vocab: int, hidden: int, inner: int, layers: int, heads: int, kv_heads: int, **more: Any
) -> dict[str, Any]:
    shape = {
        "model_type": family,
        "dtype": "bfloat16",
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
    }
    return shape | more


PRESETS: dict[str, dict[str, Any]] = {
    "smollm2-135m": _config("llama", 49_152, 576, 1536, 30, 9, 3, tie_word_embeddings=True),
    "llama-3.2-1b": _config("llama", _LLAMA_3, 2048, 8192, 16, 32, 8, tie_word_embeddings=True),
    "llama-2-7b": _config("llama", 32_000, 4096, 11_008, 32, 32, 32),
    "llama-3.1-8b": _config("llama", _LLAMA_3, 4096, 14_336, 32, 32, 8),
    "llama-3.1-70b": _config("llama", _LLAMA_3, 8192, 28_672, 80, 64, 8),
    "mistral-7b": _config("mistral", 32_000, 4096, 14_336, 32, 32, 8),
    "qwen2.5-0.5b": _config("qwen2", _QWEN, 896, 4864, 24, 14, 2, tie_word_embeddings=True),
    "qwen2.5-7b": _config("qwen2", 152_064, 3584, 18_944, 28, 28, 4),
    "qwen2.5-14b": _config("qwen2", 152_064, 5120, 13_824, 48, 40, 8),
    "qwen2.5-32b": _config("qwen2", 152_064, 5120, 27_648, 64, 40, 8),
    "qwen2.5-72b": _config("qwen2", 152_064, 8192, 29_568, 80, 64, 8),
    "qwen3-0.6b": _config("qwen3", _QWEN, 1024, 3072, 28, 16, 8, head_dim=128, tie_word_embeddings=True),
    "qwen3-8b": _config("qwen3", _QWEN, 4096, 12_288, 36, 32, 8, head_dim=128),
    "qwen3-14b": _config("qwen3", _QWEN, 5120, 17_408, 40, 40, 8, head_dim=128),
    "qwen3-32b": _config("qwen3", _QWEN, 5120, 25_600, 64, 64, 8, head_dim=128),
    "gpt2": dict(model_type="gpt2", vocab_size=50_257, n_embd=768, n_layer=12, n_head=12, n_positions=1024),
    "pythia-1b": _config("gpt_neox", 50_304, 2048, 8192, 16, 8, 8, dtype="float16"),
}

SIZES = {
    "1b": "llama-3.2-1b",
    "7b": "qwen2.5-7b",
    "8b": "llama-3.1-8b",
    "14b": "qwen2.5-14b",
    "32b": "qwen2.5-32b",
    "70b": "llama-3.1-70b",
    "smollm2": "smollm2-135m",
}
"""Short names."""


@cache
def _shapes() -> dict[str, dict[str, Any]]:
    return dict(json.loads(SHAPES.read_bytes()))


def find_shape(name: str) -> ModelShape:
    """The shape of a preset, a config.json, a model directory, or the embedded model `tiny`."""
    key = name.lower().rpartition("/")[2].removesuffix("-instruct")
    preset = SIZES.get(key, key)
    path = expanded(name)
    if name == "tiny":
        return shape_of_values(_shapes()[name])
    if path.exists() or path.suffix == ".json":
        return read_shape(path)
    if preset not in PRESETS:
        raise UnknownNameError("model", name, [*PRESETS, *SIZES], where=" nor a config.json or model directory here")
    return shape_of_values(_shapes()[preset])


def model_of_recipe(name: str, setting: str) -> ModelShape:
    """The shape of a model that a recipe names; a hub name that is not a preset needs --model-config."""
    try:
        return find_shape(name)
    except UnknownNameError:
        raise ModelError(
            f"the recipe's {setting} is '{name}', whose shape is not known here; give --model-config with its "
            "config.json or the name of a preset."
        ) from None
