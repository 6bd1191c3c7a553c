"""Settings that no machine could follow are refused before anything is made, instead of ending in a crash."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mingce.base.errors import RunError, SettingError
from mingce.base.lang import display_lang, say
from mingce.base.numbers import show_bytes

if TYPE_CHECKING:
    from mingce.config import Config

MOST = 1_000_000_000
"""Of whatever is counted, where nothing narrower is known."""
MOST_THREADS = max(256, 4 * (os.cpu_count() or 1))
"""Some runs of a larger machine open here; thousands end in a segmentation fault."""
LARGEST_SEED = 2**42
"""Times 1,000,003, as the order of an epoch takes it, it still is a seed for torch."""
LARGEST_NUMBER = 1e30
"""Of settings with a fraction: its square fits a float64 and most of what it is multiplied by a float32."""
BYTES_A_ROLLOUT, BYTES_A_TOKEN = 2_000, 150
"""What a step keeps at the least: a rollout's texts and ids, and a token's columns."""

_AT_MOST = {"threads": MOST_THREADS, "reward.workers": MOST_THREADS, "ray.cpus": 4096, "model.lora.rank": 65536}
_FROM_ONE = ("data.size", "data.held_out_size")


def check_bounds(config: Config, values: dict[str, Any]) -> None:
    """`values` are the settings by key. Numbers must be finite and not absurd, a step must fit this machine."""
    for key, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise SettingError(_sentence(key, value, "必须是有限的数", "must be a finite number"))
        if isinstance(value, float) and abs(value) > LARGEST_NUMBER:
            most = f"{LARGEST_NUMBER:g}"
            raise SettingError(_sentence(key, value, f"最大为 {most}", f"must be at most {most}"))
        if isinstance(value, int) and not isinstance(value, bool) and key != "seed":
            most_here = _AT_MOST.get(key, MOST)
            if value > most_here:
                raise SettingError(_sentence(key, value, f"最大为 {most_here}", f"must be at most {most_here}"))
            if key in _FROM_ONE and value < 1:
                raise SettingError(_sentence(key, value, "至少为 1", "must be at least 1"))
        for text in (value, *value) if isinstance(value, list) else (value,):
            if isinstance(text, str) and "\0" in text:
                raise SettingError(f"{key} has a character of code 0 in it; leave it out.")
    if abs(config.seed) > LARGEST_SEED:
        zh, en = f"须在 ±{LARGEST_SEED} 之间", f"must lie between -{LARGEST_SEED} and {LARGEST_SEED}"
        raise SettingError(_sentence("seed", config.seed, zh, en))
    limit = config.reward.time_limit
    if limit is not None and not 0 < limit <= MOST:
        raise SettingError(_sentence("reward.time_limit", limit, "须大于 0 秒", "must be above 0 seconds"))
    _check_memory(config)


def _sentence(key: str, value: object, zh: str, en: str) -> str:
    text = str(value)
    text = text if len(text) <= 40 else f"{text[:37]}…"
    return say(display_lang(), f"{key} {zh}，现在是 {text}。", f"{key} {en}, but is {text}.")


def _check_memory(config: Config) -> None:
    """A step's rollouts must fit the memory of this machine, models aside."""
    rollouts = config.prompts_per_step * config.samples_per_prompt
    needs = rollouts * (BYTES_A_ROLLOUT + BYTES_A_TOKEN * config.sampling.max_new_tokens)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needs <= memory:
        return
    zh = (
        f"prompts_per_step={config.prompts_per_step} × samples_per_prompt={config.samples_per_prompt} 条回答、每条至多 "
        f"sampling.max_new_tokens={config.sampling.max_new_tokens} 个 token，单是账本就需约 {show_bytes(needs)}，"
        f"而这台机器的内存为 {show_bytes(memory)}；请调小其中之一。"
    )
    en = (
        f"prompts_per_step={config.prompts_per_step} × samples_per_prompt={config.samples_per_prompt} responses of up "
        f"to sampling.max_new_tokens={config.sampling.max_new_tokens} tokens need about {show_bytes(needs)} for "
        f"their ledger alone, and this machine has {show_bytes(memory)}; lower one of the three."
    )
    raise SettingError(say(display_lang(), zh, en))


def check_root(root: str) -> None:
    """The directory of runs can be made and written to; nothing is left there."""
    place = Path(root)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.stat(place)  # a name that is too long, a circle of links
        there = next(parent for parent in (place, *place.parents, Path()) if os.path.lexists(parent))
        with tempfile.TemporaryDirectory(dir=there, prefix=".mingce-"):
            pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        zh = f"root={root} 里不能建运行目录（{reason}）；请给一个可写的目录。"
        en = f"no run can be made in root={root} ({reason}); give a directory that can be written to."
        raise RunError(say(display_lang(), zh, en)) from error
