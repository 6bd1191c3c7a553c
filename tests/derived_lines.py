"""Checks the lines of a derivation: all parts between signs of equality that are numbers must have the same value."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import pairwise

from answer_numbers import NUMBER, equations, value_of

from mingce.explain.derive import Derivation


def numeric_sides(line: str) -> Iterator[tuple[str, float, float]]:
    """The parts of a line between its signs of equality that are numbers alone: text, value, room for rounding."""
    for part in line.split(" = "):
        code = part.strip()
        numbers = [x for x in NUMBER.findall(code) if "." in x or "×" in x]
        code = re.sub(r"−?\d+(?:\.\d+)?×10[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+", lambda found: f"({value_of(found[0])!r})", code)
        for written, python in (("½", "0.5"), ("²", "**2"), ("−", "-"), ("·", "*"), ("^", "**"), ("√", "sqrt*")):
            code = code.replace(written, python)
        code = re.sub(r"sqrt\*([\d.]+)", r"sqrt(\1)", code)
        code = re.sub(r"\|(-?[\d.e()-]+)\|", r"abs(\1)", code)
        if re.search(r"[^\d.+*/()\-, e]", re.sub(r"\b(?:exp|min|max|sqrt|abs)\b", "", code)):
            continue
        names = {"exp": math.exp, "min": min, "max": max, "sqrt": math.sqrt, "abs": abs}
        value = float(eval(code, {"__builtins__": {}}, names))
        largest = max([1.0, *(abs(value_of(x)) for x in numbers)])
        yield part, value, 1.2e-4 * (1 + len(numbers)) * max(largest, abs(value) if abs(value) < 1e6 else 1.0)


def assert_lines_hold(made: Derivation) -> None:
    for line in made.lines:
        assert all(holds for _, holds in equations(line)), line
        sides = list(numeric_sides(line))
        for (text, a, room), (other, b, more) in pairwise(sides):
            assert abs(a - b) <= room + more, (line, text, other)
