"""From a Hugging Face config.json to a model's weights: transformers builds the model, and its tensors are counted.

On torch's meta device a model has shapes but no numbers, so every family that transformers knows can be planned for.
A config.json may come from anyone: only transformers' own classes are built, in a process of bounded time and memory.
"""

from __future__ import annotations

import inspect
import json
import logging
import re
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mingce.base.errors import MingceError, ModelError, UnknownNameError
from mingce.base.machine import limit
from mingce.base.numbers import show_bytes
from mingce.base.reading import read_regular
from mingce.plan.shape import ModelShape, Weight, shape_of_values, shape_values

Config = Mapping[str, Any]

_SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
)
_LEFT_OUT = re.compile(r"auto_map|quantization_config|_name_or_path|(torch_)?dtype|.*_implementation(_internal)?")
"""Keys that say how weights are found or computed, not how many there are: none may load code or files."""
_REPEATED = re.compile(r"(layers?|blocks|heads?|experts|depth)$")
MOST_REPEATED = 10_000
MOST_DEPTH = 20
MOST = 1 << 31
MOST_PARAMETERS = 1 << 50
MOST_SECONDS = 120.0
MOST_MEMORY = 4 << 30
OUTPUT = "lm_head.weight"


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
    return _shape_in_child(config, name, str(file))


def _shape_in_child(config: Config, name: str, where: str) -> ModelShape:
    """`shape_of` in a process with bounded time and memory, for a configuration that may be made to do harm."""
    command = [sys.executable, "-P", "-m", "mingce.plan.families", name, where, str(MOST_MEMORY)]
    try:
        done = subprocess.run(command, input=json.dumps(config).encode(), capture_output=True, timeout=MOST_SECONDS)
    except subprocess.TimeoutExpired:
        raise ModelError(f"{where} describes a model that is not counted within {MOST_SECONDS:g} s.") from None
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise ModelError(
            f"{where} describes a model that cannot be counted within {show_bytes(MOST_MEMORY)} of memory."
        ) from None
    if "error" in answer:
        raise ModelError(answer["error"])
    return shape_of_values(answer["shape"])


def main(name: str, where: str, memory: str) -> None:
    """The child: a configuration on standard input, its shape or what is wrong with it on standard output."""
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_DATA, int(memory))
    config = json.load(sys.stdin.buffer)
    try:
        answer: dict[str, Any] = {"shape": shape_values(shape_of(config, name, where))}
    except MingceError as error:
        answer = {"error": str(error)}
    sys.stdout.write(json.dumps(answer))


def shape_of(config: Config, name: str, where: str) -> ModelShape:
    """The shape a configuration describes; `where` names it in errors."""
    family = config.get("model_type")
    if not isinstance(family, str):
        raise ModelError(f"{where} lacks the key model_type; give the config.json of a Hugging Face model.")
    _check_sizes(config, where)
    dtype = str(config.get("dtype") or config.get("torch_dtype") or "float32").removeprefix("torch.")
    try:
        return _count(_build(config, family, where), name, dtype, where)
    except (MingceError, MemoryError):
        raise
    except Exception as error:  # a senseless configuration may break a model's class in any way
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ModelError(f"{where} does not describe a model that transformers can build: {reason}") from None


def _check_sizes(config: Config, where: str, depth: int = 0) -> None:
    """Refuses numbers that no model has, at any depth, before anything is built from them."""
    if depth > MOST_DEPTH:
        raise ModelError(f"{where} nests its keys deeper than any model's configuration.")
    for key, value in config.items():
        if isinstance(value, Mapping):
            _check_sizes(value, where, depth + 1)
        elif isinstance(value, int) and not isinstance(value, bool):
            most = MOST_REPEATED if _REPEATED.search(key) else MOST
            if abs(value) > most:
                raise ModelError(f"{where} has {key} = {str(value)[:20]}, which is larger than any model's.")


def _build(config: Config, family: str, where: str) -> Any:
    """The model on the meta device, from transformers' own class of the family."""
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    if family not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise UnknownNameError("model family", family, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    settings = {key: value for key, value in config.items() if key != "model_type" and not _LEFT_OUT.fullmatch(key)}
    settings["pad_token_id"] = None  # an id beyond a small vocabulary is no matter here
    _check_keys(settings, CONFIG_MAPPING[family], where)
    auto: Any = AutoModelForCausalLM
    with torch.device("meta"), _silent():
        described = CONFIG_MAPPING[family](**settings)
        return auto.from_config(described, attn_implementation="eager", trust_remote_code=False)


def _check_keys(settings: Config, family: Any, where: str) -> None:
    """Names a size that is missing or senseless, where transformers would take that of the family's first model."""
    if "text_config" in family.sub_configs:
        raise ModelError(f"{where} describes a model of more than text; give the config.json of its text model.")
    parameters = inspect.signature(family).parameters
    for size in _SIZES:
        key = family.attribute_map.get(size, size)
        value = settings.get(key, settings.get(size))
        if value is None and key not in settings and key in parameters and isinstance(parameters[key].default, int):
            raise ModelError(f"{where} lacks the key {key}, without which its weights cannot be counted.")
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise ModelError(f"{where} has {key} = {value!r:.40}, which must be a whole number above 0.")


@contextmanager
def _silent() -> Iterator[None]:
    """Without transformers' remarks about ids and dtypes, which have no bearing on a count."""
    from transformers.utils import logging as transformers_logging

    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        transformers_logging.set_verbosity(before)


def _count(model: Any, name: str, dtype: str, where: str) -> ModelShape:
    """The shape of a built model."""
    from torch.nn import Conv1d

    config, output = model.config, model.get_output_embeddings()
    heads = getattr(config, "num_attention_heads", None)
    if getattr(config, "kv_lora_rank", None):
        raise ModelError(f"{where} has latent attention (kv_lora_rank), whose cache cannot be planned.")
    if output is None or output.weight.dim() != 2:
        raise ModelError(f"{where} describes a model without an output layer over its vocabulary.")
    blocks, layer, ends = _weights(model, where)
    attention = [weight for weight in layer if weight.matrix and _in_attention(weight)]
    if not heads or not attention or any(isinstance(module, Conv1d) for module in blocks[0].modules()):
        raise ModelError(
            f"{where} describes layers ({config.model_type}) that are not attention and feed-forward alone."
        )
    vocab, hidden = output.weight.shape
    head_dim = getattr(config, "head_dim", None) or hidden // heads
    norms = _norms(layer, hidden)
    top = getattr(config, "num_experts_per_tok", None) or 1
    inner, gated = _feed_forward([w for w in layer if w.matrix and not _in_attention(w)], hidden, top)
    acts = (getattr(config, key, None) for key in ("hidden_activation", "hidden_act", "activation_function"))
    shape = ModelShape(
        name=name,
        family=config.model_type,
        dtype=dtype,
        vocab=vocab,
        hidden=hidden,
        layers=len(blocks),
        heads=heads,
        kv_heads=_kv_heads(attention, hidden, heads, head_dim) or getattr(config, "num_key_value_heads", None) or heads,
        head_dim=head_dim,
        inner=inner or getattr(config, "intermediate_size", None) or 4 * hidden,
        layer=layer,
        ends=ends,
        output=next((w for w in ends if w.matrix and w.size == (vocab, hidden)), Weight(OUTPUT, (vocab, hidden), True)),
        activation=next((str(act) for act in acts if act), "gelu"),
        gated=gated,
        norms=norms,
        rms_norm=any("RMSNorm" in type(module).__name__ for module in blocks[0].modules()),
        qk_norm=any(weight.name.endswith("q_norm.weight") for weight in layer),
        parallel=bool(getattr(config, "use_parallel_residual", False)) or norms == 1,
        keeps_qkv=len(attention) == 2 and any("Rotary" in type(module).__name__ for module in model.modules()),
        experts=max((weight.size[0] for weight in layer if len(weight.size) == 3), default=1),
    )
    if shape.parameters > MOST_PARAMETERS:
        raise ModelError(f"{where} describes {shape.parameters:,} parameters, which is more than any model has.")
    return shape


def _weights(model: Any, where: str) -> tuple[Sequence[Any], tuple[Weight, ...], tuple[Weight, ...]]:
    """The model's layers, the weights of one of them, and those outside; layers must be alike."""
    from torch.nn import Linear, ModuleList
    from transformers.pytorch_utils import Conv1D

    stacks = {name: part for name, part in model.named_modules() if isinstance(part, ModuleList) and len(part)}
    deep = [name for name, part in stacks.items() if len(part) == model.config.num_hidden_layers]
    if not deep:
        raise ModelError(f"{where} describes a model whose layers cannot be distinguished from its other parts.")
    stack = max(deep, key=lambda name: sum(p.numel() for p in stacks[name].parameters()))
    linear = {name for name, part in model.named_modules() if isinstance(part, Linear | Conv1D)}
    layers: list[list[Weight]] = [[] for _ in stacks[stack]]
    ends = []
    for name, tensor in model.named_parameters():
        matrix = tensor.dim() == 3 or (name.endswith(".weight") and name.removesuffix(".weight") in linear)
        size = tuple(tensor.shape)
        if name.startswith(stack + "."):
            number, _, part = name.removeprefix(stack + ".").partition(".")
            layers[int(number)].append(Weight(part, size, matrix))
        else:
            ends.append(Weight(name.removeprefix(model.base_model_prefix + "."), size, matrix))
    if any(layer != layers[0] for layer in layers):
        raise ModelError(f"{where} describes a model whose layers are not all alike, which cannot be planned.")
    return list(stacks[stack]), tuple(layers[0]), tuple(ends)


def _in_attention(weight: Weight) -> bool:
    """Whether it is a part of a layer's attention, as `self_attn.q_proj.weight` is."""
    return any("attn" in part or "attention" in part for part in weight.name.split(".")[:-2])


def _norms(layer: Sequence[Weight], hidden: int) -> int:
    """How many times a layer normalises its states: two, where norms have no weights."""
    scales = [w for w in layer if w.size == (hidden,) and w.name.endswith(".weight") and not _in_attention(w)]
    return len(scales) or 2


def _kv_heads(attention: Sequence[Weight], hidden: int, heads: int, head_dim: int) -> int:
    """Heads of keys, from the width that queries and output leave of the products; 0 if it is no whole number."""
    rest = sum(weight.count for weight in attention) - 2 * hidden * heads * head_dim
    kv_heads, odd = divmod(rest, 2 * hidden * head_dim)
    return 0 if odd or kv_heads < 0 else kv_heads


def _feed_forward(matrices: Sequence[Weight], hidden: int, top: int) -> tuple[int, bool]:
    """Its width for one token, and whether it is gated: three products of one size, or two where one is doubled."""
    parts: dict[str, list[Weight]] = {}
    for weight in matrices:
        parts.setdefault(weight.name.rsplit(".", 1 if len(weight.size) == 3 else 2)[0], []).append(weight)
    inner, gated = 0, False
    for weights in parts.values():
        least, total = min(w.count for w in weights), sum(w.count for w in weights)
        if len(weights) > 1 and total in (2 * least, 3 * least):
            experts = weights[0].size[0] if len(weights[0].size) == 3 else 0
            inner += least // hidden * top // experts if experts else least // hidden
            gated = gated or total == 3 * least
    return inner, gated


if __name__ == "__main__":
    main(*sys.argv[1:])
