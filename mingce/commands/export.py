"""`mingce export`: a checkpoint as a plain Hugging Face directory."""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console
from rich.text import Text

from mingce.base.atomic import atomic_directory
from mingce.base.errors import RunError, SettingError
from mingce.base.numbers import show_count
from mingce.base.terminal import print_note
from mingce.base.texts import sentence
from mingce.models.loading import save_model
from mingce.models.lora import merged_size
from mingce.record.targets import Step
from mingce.training.opening import open_policy

CRITIC = "critic"


def run(
    console: Console, where: str, out: Path, *, step: Step = None, critic: bool = False, adapter: bool = False
) -> None:
    """Writes configuration, safetensors, tokenizer and generation settings to `out`, which must not exist yet.

    Adapters are merged into the weights, unless `adapter` asks for them alone (PEFT). `critic` adds the critic as
    `out/critic`: its backbone as a plain directory and the value head beside it.
    """
    if out.exists():
        raise RunError(f"{out} is already there; choose another --out.")
    opened = open_policy(where, step=step, critic=critic, note=print_note)
    if adapter and not opened.config.model.lora.rank:
        raise SettingError(f"{where} has no LoRA adapters, for all its weights were trained; leave --adapter out.")
    if critic and opened.critic is None:
        raise SettingError(f"{where} has no trained critic here; leave --critic out.")
    model = opened.actor.model
    needs = sum(tensor.nbytes for tensor in model.parameters())
    try:
        with atomic_directory(out, needs=needs) as beside:
            save_model(beside, model, opened.actor.tokenizer, merge_lora=not adapter)
            if opened.critic is not None:
                opened.critic.model.save(beside / CRITIC)
                opened.actor.tokenizer.save_pretrained(beside / CRITIC)
            _readable_by_others(beside)
    except OSError as error:
        raise RunError(f"{out} cannot be written ({error.strerror}); choose another --out.") from error
    facts = {"step": opened.step or 0, "base": opened.config.model.path, "size": show_count(merged_size(model))}
    _print(console, "export_adapter" if adapter else "export_policy", **facts, out=out)
    if opened.critic is not None:
        _print(console, "export_critic", out=out / CRITIC)


def _print(console: Console, name: str, **values: object) -> None:
    console.print(Text(sentence(f"commands.{name}", **values)), soft_wrap=True)


def _readable_by_others(directory: Path) -> None:
    """Gives every file the usual permissions; safetensors are written for the owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    for folder, _, files in os.walk(directory):
        for name in files:
            os.chmod(Path(folder, name), 0o666 & ~mask)
