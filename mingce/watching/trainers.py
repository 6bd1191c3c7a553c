"""What is asked of any trainer: what it is, what its configuration and its tokenizer say, copies of its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from mingce.base.texts import sentence
from mingce.watching.recorder import Recorder
from mingce.watching.wrapping import StopAsked

_SECRET = ("_token", "password", "secret", "api_key")


def is_a(trainer: object, package: str, name: str) -> bool:
    """Whether the object's class, or one that it derives from, is that of the package; nothing is imported."""
    return any(one.__name__ == name and one.__module__.partition(".")[0] == package for one in type(trainer).__mro__)


def version_of(package: str) -> str:
    """The version of an installed package, if it is known."""
    from importlib.metadata import PackageNotFoundError, version

    with suppress(PackageNotFoundError):
        return f" {version(package)}"
    return ""


def plain_config(args: Any) -> dict[str, Any]:
    """A configuration's plain values by name, in parts as it is, without what is secret."""
    values = args if isinstance(args, Mapping) else vars(args) if hasattr(args, "__dict__") else {}
    found: dict[str, Any] = {}
    for name, value in values.items():
        if str(name).startswith("_") or str(name).lower().endswith(_SECRET):
            continue
        if type(value) in (bool, int, float, str):
            found[str(name)] = value
        elif isinstance(value, Mapping | SimpleNamespace) and (inner := plain_config(value)):
            found[str(name)] = inner
    return found


def tokenizer_text(processing: Any) -> str | None:
    """The tokenizer.json of a fast tokenizer. Asked before training: it must not be read while it is used."""
    inner = getattr(processing, "tokenizer", processing)  # that of a processor of texts and pictures
    backend: Any = getattr(inner, "backend_tokenizer", None)
    return str(backend.to_str()) if hasattr(backend, "to_str") else None


def token_ids(processing: Any) -> dict[str, Any]:
    """The ids that end and fill rows."""
    inner = getattr(processing, "tokenizer", processing)
    found = {f"{name}_id": getattr(inner, f"{name}_token_id", None) for name in ("eos", "pad", "bos")}
    return {name: value for name, value in found.items() if type(value) is int}


def copied(tensor: Any) -> Any:
    """A tensor of our own on the CPU, without a graph."""
    import torch

    return tensor.detach().to("cpu", copy=True) if isinstance(tensor, torch.Tensor) else tensor


def end_step(recorder: Recorder) -> None:
    """The end of a step of a trainer that has no way to be asked to stop: on_bug="stop" raises."""
    recorder.step_ended()
    if (bug := recorder.bug()) is not None:
        raise StopAsked(sentence("watching.stopped", bug=bug))
