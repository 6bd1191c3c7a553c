"""What is known of a watched trainer before it trains, and what the person asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Choices:
    """What the person asked for. `audit_every=None`: the first step, then as often as 2 % of the CPU time allow."""

    rows: int = 64
    every: int = 1
    audit_every: int | None = None
    on_bug: str = "warn"
    resume: bool = False


@dataclass(frozen=True)
class Host:
    """What is known of a trainer before it trains."""

    source: str
    """The importer that reads its batches: trl_grpo, trl, verl, openrlhf …"""
    name: str
    """What it is called, with its version."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Under the names of mingce.specs.settings.DumpSettings; None is not known."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Its own configuration, for people to look up."""
    steps: int | None = None
    tokenizer: str | None = None
    """The text of its tokenizer.json."""


@dataclass(frozen=True)
class Taken:
    """What a host had of one step."""

    data: Mapping[str, Any]
    """Tensors, arrays and lists under the trainer's own names: what its importer (mingce/importers) reads."""
    rows: Mapping[str, list[Any]] = field(default_factory=dict)
    """Entries a row that its dumps do not have: `score_parts`, `prompt`, `response` …"""
    rows_of: int | None = None
    """How many rows the step had on all ranks, if these are some of them."""
    more: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """Makes the data of it in our thread, with what is found elsewhere; where it fails the data stays as it is."""
