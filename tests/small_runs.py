"""Runs of two small steps, and consoles that print into memory."""

from __future__ import annotations

import io
from pathlib import Path

from families import character_tokenizer, family_model
from rich.console import Console

from mingce.training import start

SMALL = (
    "steps=2",
    "prompts_per_step=4",
    "samples_per_prompt=2",
    "minibatch_rollouts=8",
    "validation.examples=12",
    "validation.every=1",
    "keep.checkpoint_every=1",
    "actor.lr=1e-3",
    "threads=1",
)


def quiet() -> Console:
    return Console(file=io.StringIO(), width=120)


def said(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def trained(root: Path, name: str, *overrides: str) -> Path:
    start.train(quiet(), None, [f"root={root}", f"name={name}", *SMALL, *overrides])
    return root / name


def save_chat_model(directory: Path) -> Path:
    """A random model of letters whose tokenizer has a chat template."""
    tokenizer = character_tokenizer()
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    tokenizer.save_pretrained(directory)
    family_model("qwen2").save_pretrained(directory)
    return directory
