"""From a Hugging Face config.json to a model's weights, for the families that mingce trains."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from mingce.errors import ModelError, UnknownNameError
from mingce.plan.shape import ModelShape, Weight
from mingce.reading import read_regular

Config = Mapping[str, Any]


def read_shape(path: Path) -> ModelShape:
    """The shape in a config.json, or in the model directory that has one."""
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(read_regular(file))
    except OSError:
        raise ModelError(
            f"{file} cannot be read; give a config.json, a model directory or the name of a preset."
        ) from None
    except (ValueError, RecursionError):
        raise ModelError(f"{file} is not JSON; give the config.json of a Hugging Face model.") from None
    if not isinstance(config, dict):
        raise ModelError(f"{file} is not a model's configuration; give the config.json of a Hugging Face model.")
    name = file.parent.name if file.name == "config.json" and file.parent.name else file.stem
    return shape_of(config, name, str(file))


def shape_of(config: Config, name: str, where: str) -> ModelShape:
    """The shape a configuration describes; `where` names it in errors."""
    family = config.get("model_type")
    if not isinstance(family, str):
        raise ModelError(f"{where} lacks the key model_type; give the config.json of a Hugging Face model.")
    if family not in _FAMILIES:
        raise UnknownNameError("model family", family, _FAMILIES)
    return _FAMILIES[family](_Keys(config, where), name)


class _Keys:
    """A configuration whose missing or senseless keys are errors that name them."""

    def __init__(self, config: Config, where: str):
        self.config, self.where = config, where

    def size(self, key: str, default: int | None = None) -> int:
        """A whole number above 0; without it (or null) the default, if there is one."""
        value = self.config.get(key)
        if value is None and default is not None:
            return default
        if value is None:
            raise ModelError(f"{self.where} lacks the key {key}, without which its weights cannot be counted.")
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ModelError(f"{self.where} has {key} = {value!r}, which must be a whole number above 0.")
        return value

    def dtype(self) -> str:
        """What the weights are stored in; float32 where it does not say."""
        return str(self.config.get("dtype") or self.config.get("torch_dtype") or "float32").removeprefix("torch.")

    def flag(self, key: str, default: bool) -> bool:
        """A yes or no."""
        return bool(self.config.get(key, default))


def _linear(name: str, into: int, out: int, bias: bool) -> Iterator[Weight]:
    yield Weight(f"{name}.weight", (out, into), matrix=True)
    if bias:
        yield Weight(f"{name}.bias", (out,))


def _layer_norm(name: str, width: int) -> Iterator[Weight]:
    yield Weight(f"{name}.weight", (width,))
    yield Weight(f"{name}.bias", (width,))


def _llama_like(keys: _Keys, name: str) -> ModelShape:
    """Llama, Mistral, Qwen2 and Qwen3, which differ in biases, in the norms of queries and keys, and in defaults."""
    family = str(keys.config["model_type"])
    vocab, hidden, inner = keys.size("vocab_size"), keys.size("hidden_size"), keys.size("intermediate_size")
    heads = keys.size("num_attention_heads")
    kv_heads = keys.size(
        "num_key_value_heads", heads if family == "llama" or "num_key_value_heads" in keys.config else None
    )
    head_dim = keys.size("head_dim", None if family == "qwen3" else hidden // heads)
    asked = family in ("llama", "qwen3") and keys.flag("attention_bias", False)
    qkv_bias, out_bias = asked or family == "qwen2", asked
    mlp_bias = family == "llama" and keys.flag("mlp_bias", False)
    qk_norm = family == "qwen3"
    norms = [Weight(f"{part}_layernorm.weight", (hidden,)) for part in ("input", "post_attention")]
    head_norms = [Weight(f"self_attn.{part}_norm.weight", (head_dim,)) for part in "qk"] if qk_norm else []
    output = Weight("lm_head.weight", (vocab, hidden), matrix=True)
    ends = [Weight("embed_tokens.weight", (vocab, hidden)), Weight("norm.weight", (hidden,))]
    return ModelShape(
        name=name,
        family=family,
        dtype=keys.dtype(),
        vocab=vocab,
        hidden=hidden,
        layers=keys.size("num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        inner=inner,
        layer=(
            *_linear("self_attn.q_proj", hidden, heads * head_dim, qkv_bias),
            *_linear("self_attn.k_proj", hidden, kv_heads * head_dim, qkv_bias),
            *_linear("self_attn.v_proj", hidden, kv_heads * head_dim, qkv_bias),
            *_linear("self_attn.o_proj", heads * head_dim, hidden, out_bias),
            *head_norms,
            *_linear("mlp.gate_proj", hidden, inner, mlp_bias),
            *_linear("mlp.up_proj", hidden, inner, mlp_bias),
            *_linear("mlp.down_proj", inner, hidden, mlp_bias),
            *norms,
        ),
        ends=(*ends, *([] if keys.flag("tie_word_embeddings", False) else [output])),
        output=output,
        activation=str(keys.config.get("hidden_act", "silu")),
        gated=True,
        rms_norm=True,
        qk_norm=qk_norm,
        parallel=False,
        keeps_qkv=False,
    )


def _gpt2(keys: _Keys, name: str) -> ModelShape:
    vocab, hidden, heads = keys.size("vocab_size"), keys.size("n_embd"), keys.size("n_head")
    inner = keys.size("n_inner", 4 * hidden)
    output = Weight("lm_head.weight", (vocab, hidden), matrix=True)

    def conv(part: str, into: int, out: int) -> list[Weight]:  # its weight lies the other way round
        return [Weight(f"{part}.weight", (into, out), matrix=True), Weight(f"{part}.bias", (out,))]

    return ModelShape(
        name=name,
        family="gpt2",
        dtype=keys.dtype(),
        vocab=vocab,
        hidden=hidden,
        layers=keys.size("n_layer"),
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        inner=inner,
        layer=(
            *_layer_norm("ln_1", hidden),
            *conv("attn.c_attn", hidden, 3 * hidden),
            *conv("attn.c_proj", hidden, hidden),
            *_layer_norm("ln_2", hidden),
            *conv("mlp.c_fc", hidden, inner),
            *conv("mlp.c_proj", inner, hidden),
        ),
        ends=(
            Weight("wte.weight", (vocab, hidden)),
            Weight("wpe.weight", (keys.size("n_positions"), hidden)),
            *_layer_norm("ln_f", hidden),
            *([] if keys.flag("tie_word_embeddings", True) else [output]),
        ),
        output=output,
        activation=str(keys.config.get("activation_function", "gelu_new")),
        gated=False,
        rms_norm=False,
        qk_norm=False,
        parallel=False,
        keeps_qkv=False,
    )


def _gpt_neox(keys: _Keys, name: str) -> ModelShape:
    vocab, hidden, inner = keys.size("vocab_size"), keys.size("hidden_size"), keys.size("intermediate_size")
    heads, bias = keys.size("num_attention_heads"), keys.flag("attention_bias", True)
    output = Weight("embed_out.weight", (vocab, hidden), matrix=True)
    return ModelShape(
        name=name,
        family="gpt_neox",
        dtype=keys.dtype(),
        vocab=vocab,
        hidden=hidden,
        layers=keys.size("num_hidden_layers"),
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        inner=inner,
        layer=(
            *_layer_norm("input_layernorm", hidden),
            *_layer_norm("post_attention_layernorm", hidden),
            *_linear("attention.query_key_value", hidden, 3 * hidden, bias),
            *_linear("attention.dense", hidden, hidden, bias),
            *_linear("mlp.dense_h_to_4h", hidden, inner, True),
            *_linear("mlp.dense_4h_to_h", inner, hidden, True),
        ),
        ends=(
            Weight("embed_in.weight", (vocab, hidden)),
            *_layer_norm("final_layer_norm", hidden),
            *([] if keys.flag("tie_word_embeddings", False) else [output]),
        ),
        output=output,
        activation=str(keys.config.get("hidden_act", "gelu")),
        gated=False,
        rms_norm=False,
        qk_norm=False,
        parallel=keys.flag("use_parallel_residual", True),
        keeps_qkv=True,
    )


_FAMILIES: dict[str, Callable[[_Keys, str], ModelShape]] = {
    "llama": _llama_like,
    "mistral": _llama_like,
    "qwen2": _llama_like,
    "qwen3": _llama_like,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
}
