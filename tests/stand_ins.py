"""Packages that need an accelerator, stood in for so that a trainer's own modules can be imported and called here."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import typing
from collections.abc import Sequence
from types import ModuleType
from unittest.mock import MagicMock

import typing_extensions

NAMES = (
    "vllm",
    "deepspeed",
    "flash_attn",
    "bitsandbytes",
    "jaxtyping",
    "loguru",
    "skyrl_gym",
    "jax",
    "ring_flash_attn",
)


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Asked last: what is installed is itself."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        wanted = fullname.partition(".")[0] in NAMES
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if wanted else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        made: ModuleType = MagicMock(name=spec.name)
        made.__spec__, made.__path__, made.__name__ = spec, [], spec.name
        return made

    def exec_module(self, module: ModuleType) -> None: ...


def stand_in() -> None:
    typing.TypedDict = typing_extensions.TypedDict  # before Python 3.12 pydantic wants this one
    sys.meta_path.append(StandIns())
