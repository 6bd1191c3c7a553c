"""One way to show a number: the rule of rounding, and that commands agree with each other."""

from __future__ import annotations

import math
import re
import struct
import subprocess
import sys

import pytest

from mingce.base.numbers import figure, number, percent, rounded, show_bytes, show_count, show_seconds, significant


def float32(x: float) -> float:
    return float(struct.unpack("f", struct.pack("f", x))[0])


@pytest.mark.parametrize(
    ("x", "decimals", "text"),
    [
        (0.50525, 4, "0.5053"),
        (-0.50525, 4, "-0.5053"),
        (0.03125, 4, "0.0313"),  # a tie without any rounding before
        (0.50524, 4, "0.5052"),
        (0.505_249_4, 4, "0.5052"),
        (2.5, 0, "3"),
        (-0.00004, 4, "0.0000"),
        (-0.0, 1, "0.0"),
    ],
)
def test_halves_are_rounded_away_from_zero(x: float, decimals: int, text: str) -> None:
    assert rounded(x, decimals) == text
    assert len(rounded(1e300, 4)) == 306


def test_float32_and_float64_of_a_number_read_the_same() -> None:
    """Of all ties with five decimals: 0.50525 computed in float32 lies above it, in float64 below."""
    differ = [k for k in range(5, 100_000, 10) if f"{k / 1e5:.4f}" != f"{float32(k / 1e5):.4f}"]
    assert len(differ) > 1000, "the formats of Python tell them apart"
    assert all(rounded(k / 1e5) == rounded(float32(k / 1e5)) for k in differ)


def test_a_number_as_people_read_it() -> None:
    shown = [number(x) for x in (None, 3, -3, 0.0, -0.0, 1.0, -0.25, 0.12345, 0.000123456, math.inf)]
    assert shown == ["—", "3", "−3", "0", "0", "1", "−0.25", "0.1235", "1.23×10⁻⁴", "inf"]
    assert number(-0.00001, powers=False) == "0"
    assert [figure(x) for x in (0.00314, 0.71, 8.1, 4312.4, -1.2e9)] == ["0.0031", "0.710", "8.10", "4,312", "-1.2e+09"]
    assert [percent(x) for x in (0.9685, 0.0, math.nan)] == ["96.9%", "0.0%", "nan"]
    assert [significant(x) for x in (0, 0.012345, 1.5, 12345)] == ["0", "0.0123", "1.5", "12345"]
    assert (show_bytes(1.25e9), show_count(193_472), show_seconds(0.0032)) == ("1.25 GB", "193 k", "3.2 ms")


def test_example_and_credit_show_one_number_alike() -> None:
    """The advantage of token 4 in the worked example, 0.13 + 0.95 · 0.395 = 0.50525, from float32 and from float64."""
    rewards, values = "-0.01,-0.005,0.005,-0.01,-0.02,0.995", "0.2,0.25,0.3,0.35,0.45,0.6"

    def cells(*words: str) -> list[str]:
        command = [sys.executable, "-m", "mingce.cli", *words]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return re.split(r"\s+", next(line for line in text.splitlines() if re.match(r" *4 ", line)).strip())

    example, credit = cells("example"), cells("credit", f"--rewards={rewards}", f"--values={values}")
    assert example[-2:] == credit[-2:] == ["0.5053", "0.9553"]
