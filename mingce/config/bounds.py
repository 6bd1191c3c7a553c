"""Settings that no machine could follow are refused before anything is made, instead of ending in a crash."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
from pathlib import Path
from typing import Any

from mingce.base.errors import RunError, SettingError
from mingce.base.numbers import show_bytes
from mingce.base.texts import sentence
from mingce.config.table import Config

MOST = 1_000_000_000
"""The largest count, where nothing narrower is known."""
MOST_THREADS = max(256, 4 * (os.cpu_count() or 1))
"""Some runs of a larger machine open here; thousands end in a segmentation fault."""
LARGEST_SEED = 2**42
"""Times 1,000,003, as the order of an epoch takes it, it still is a seed for torch."""
LARGEST_NUMBER = 1e30
"""For settings with a fraction: its square fits a float64 and most of what it is multiplied by a float32."""
BYTES_A_ROLLOUT, BYTES_A_TOKEN = 2_000, 150
"""The least that a step keeps: a rollout's texts and ids, and a token's columns."""

_AT_MOST = {"threads": MOST_THREADS, "reward.workers": MOST_THREADS, "ray.cpus": 4096, "model.lora.rank": 65536}
_FROM_ONE = ("data.size", "data.held_out_size")


def check_bounds(config: Config, values: dict[str, Any]) -> None:
    """`values` are the settings by key. Numbers must be finite and not absurd, a step must fit this machine."""
    for key, value in values.items():
        if isinstance(value, float):
            if not math.isfinite(value):
                raise _error("finite", key, value)
            if abs(value) > LARGEST_NUMBER:
                raise _error("at_most", key, value, most=f"{LARGEST_NUMBER:g}")
        elif isinstance(value, int) and not isinstance(value, bool) and key != "seed":
            if value > (most := _AT_MOST.get(key, MOST)):
                raise _error("at_most", key, value, most=most)
            if key in _FROM_ONE and value < 1:
                raise _error("at_least_one", key, value)
        for text in value if isinstance(value, list) else (value,):
            if isinstance(text, str) and "\0" in text:
                raise SettingError(f"{key} has a character of code 0 in it; leave it out.")
    if abs(config.seed) > LARGEST_SEED:
        raise _error("seed", "seed", config.seed, most=LARGEST_SEED)
    limit = config.reward.time_limit
    if limit is not None and not 0 < limit <= MOST:
        raise _error("time_limit", "reward.time_limit", limit)
    _check_memory(config)


def _error(name: str, key: str, value: object, **limits: object) -> SettingError:
    text = str(value)
    short = text if len(text) <= 40 else f"{text[:37]}…"
    return SettingError(sentence(f"settings.{name}", key=key, value=short, **limits))


def _check_memory(config: Config) -> None:
    """A step's rollouts must fit the memory of this machine, models aside."""
    prompts, samples, tokens = config.prompts_per_step, config.samples_per_prompt, config.sampling.max_new_tokens
    needs = prompts * samples * (BYTES_A_ROLLOUT + BYTES_A_TOKEN * tokens)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needs > memory:
        sizes = {"needs": show_bytes(needs), "memory": show_bytes(memory)}
        raise SettingError(sentence("settings.memory", prompts=prompts, samples=samples, tokens=tokens, **sizes))


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
        raise RunError(sentence("settings.root", root=root, reason=reason)) from error
