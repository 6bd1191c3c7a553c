"""How a row of numbers spreads: whitened, and how much of it another row explains."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from mingce.base.numbers import number as shown
from mingce.explain.answer import Answer
from mingce.explain.sums import rows
from mingce.explain.sums.groups import LONGEST

if TYPE_CHECKING:
    from mingce.explain.sums.answers import Asked

_RETURNS = re.compile(r"(?<![A-Za-z_])R\s*[=:：]")


def whitened(asked: Asked) -> Answer | None:
    """A row less its mean, over its standard deviation."""
    lists = {name: row for name, row in asked.lists.items() if name != "mask"}
    if len(lists) != 1 or not asked.says("whiten") or set(lists) & {"values", "losses", "lengths"}:
        return None
    row, mask = next(iter(lists.values())), asked.lists.get("mask")
    if mask is not None:
        if len(mask) != len(row) or not set(mask) <= {0.0, 1.0} or sum(mask) < 2:
            return None
        row = [x for x, kept in zip(row, mask, strict=True) if kept]
    white, mean, std, biased = rows.whitened(row)
    if asked.says("other_std") and std > 0:
        white = [(x - mean) / biased for x in row]
        lines = [f"σ = √(Σ(A − μ)²/{len(row)}) = {shown(biased)}"]
        lines += [
            f"({shown(x)} − {rows.bracketed(mean)})/{shown(biased)} = {shown(y)}"
            for x, y in zip(row, white, strict=True)
        ]
        return asked.answer(
            "sum_whitened_over_n", lines[:LONGEST], row=rows.listed(white), std=shown(std), biased=shown(biased)
        )
    asked.code.append("mingce.algorithms.masking.masked_whiten")
    lines = [f"μ = {shown(mean)}", f"σ = √(Σ(A − μ)²/{len(row) - 1}) = {shown(std)}"]
    lines += [
        f"({shown(x)} − {rows.bracketed(mean)})/{shown(std)} = {shown(y)}" for x, y in zip(row, white, strict=True)
    ]
    key = "sum_whitened" if std > 0 else "sum_whitened_flat"
    return asked.answer(key, lines[:LONGEST], row=rows.listed(white), std=shown(std), biased=shown(biased))


def explained(asked: Asked) -> Answer | None:
    """How much of the returns the values explain, and their mean squared error."""
    back, values = asked.lists.get("returns"), asked.lists.get("values")
    if back is None and _RETURNS.search(asked.text):
        back = asked.lists.get("rewards")  # a capital R
    if back is None or values is None or len(back) != len(values) or not asked.says("explained", "mse"):
        return None
    total, rest, explained = rows.explained(back, values)
    asked.code.append("mingce.metrics._explained_variance")
    errors = [a - b for a, b in zip(back, values, strict=True)]
    lines = [f"R − V = {rows.listed(errors)}", f"Var(R) = {shown(total)}", f"Var(R − V) = {shown(rest)}"]
    if total > 0:
        lines.append(f"1 − {shown(rest)}/{shown(total)} = {shown(explained)}")
    error = math.fsum(x * x for x in errors) / len(errors)
    lines.append(f"MSE = mean((R − V)²) = {shown(error)};  ½·MSE = {shown(error / 2)}")
    if not asked.says("explained"):
        return asked.answer("sum_mse", lines, error=shown(error), half=shown(error / 2))
    return asked.answer("sum_explained" if total > 0 else "sum_explained_flat", lines, explained=shown(explained))
