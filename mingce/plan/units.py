"""Sizes and rates as people write them: 80GB, 40GiB, 3350GB/s, 400Gb/s. mingce.base.numbers shows them."""

from __future__ import annotations

import re

from mingce.base.errors import SettingError

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
    """Bytes per second: `50GB/s` → 50e9; a small b is bits, as networks are sold: `400Gb/s` → 50e9."""
    size = _SIZE.fullmatch(text.strip().removesuffix("/s"))
    if size is None or not text.strip().endswith("/s") or not float(size[1]) > 0:
        raise SettingError(
            f"{option} is '{text}', but must be a rate above 0 with its unit, such as 50GB/s or 400Gb/s."
        )
    return float(size[1]) * _factor(size) / (8 if size[4] == "b" else 1)


def _factor(size: re.Match[str]) -> float:
    return float((1024 if size[3] else 1000) ** _POWERS[size[2].lower()])
