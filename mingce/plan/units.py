"""Sizes and rates as people write them: 80GB, 40GiB, 3350GB/s, 400Gb/s."""

from __future__ import annotations

import math
import re

from mingce.errors import SettingError

_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]*)?)\s*([kmgt])(i?)(b)", re.IGNORECASE)


def ceiling(count: int, size: int) -> int:
    """How many parts of a size hold a count."""
    return -(-count // size)


def parse_bytes(option: str, text: str) -> float:
    """`80GB` → 80e9, `80GiB` → 80 · 2³⁰; a number without a unit is an error that names the option."""
    size = _SIZE.fullmatch(text.strip())
    if size is None or not float(size[1]) > 0:
        raise SettingError(f"{option} is '{text}', but must be a size above 0 with its unit, such as 80GB or 80GiB.")
    return float(size[1]) * _factor(size)


def parse_rate(option: str, text: str) -> float:
    """Bytes a second: `50GB/s` → 50e9; a small b is bits, as networks are sold: `400Gb/s` → 50e9."""
    size = _SIZE.fullmatch(text.strip().removesuffix("/s"))
    if size is None or not text.strip().endswith("/s") or not float(size[1]) > 0:
        raise SettingError(
            f"{option} is '{text}', but must be a rate above 0 with its unit, such as 50GB/s or 400Gb/s."
        )
    return float(size[1]) * _factor(size) / (8 if size[4] == "b" else 1)


def _factor(size: re.Match[str]) -> float:
    return float((1024 if size[3] else 1000) ** _POWERS[size[2].lower()])


def show_bytes(count: float) -> str:
    """Three figures and a unit: `14.2 GB`."""
    return _by_thousands(count, (" B", " kB", " MB", " GB", " TB"))


def show_seconds(seconds: float) -> str:
    """`3.2 ms`, `41 s`, `12 min`, `3.4 h`: the unit in which it is easiest to grasp."""
    for limit, factor, unit in ((1.0, 1e3, "ms"), (600.0, 1.0, "s"), (7200.0, 1 / 60, "min")):
        if seconds < limit:
            return f"{figures(seconds * factor)} {unit}"
    return f"{figures(seconds / 3600)} h"


def show_count(count: float) -> str:
    """`7.62 B`, `145 k`: parameters and tokens."""
    return _by_thousands(count, ("", " k", " M", " B", " T"))


def _by_thousands(count: float, units: tuple[str, ...]) -> str:
    """In the first unit that leaves less than a thousand, or the last."""
    for unit in units[:-1]:
        if count < 999.5:
            return f"{figures(count)}{unit}"
        count /= 1000
    return f"{figures(count)}{units[-1]}"


def figures(value: float) -> str:
    """Three significant figures, without an exponent and without zeros that say nothing."""
    if value == 0:
        return "0"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
