"""Columns as the twins read them: lists of rows of floats, masks of 0 and 1."""

from __future__ import annotations

from collections.abc import Sequence

Row = Sequence[float]
Column = Sequence[Row]
MaskColumn = Sequence[Sequence[int | bool]]
Matrix = list[list[float]]

FLOAT32_EPS = 2.0**-23


def zeros(mask: MaskColumn) -> Matrix:
    return [[0.0] * len(row) for row in mask]


def chosen(row: Sequence[int | bool]) -> list[int]:
    """The slots of a row that the policy chose."""
    return [t for t, m in enumerate(row) if m]
