"""What every function of the arithmetic asks of its inputs, with errors that name the column and the row."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mingce.base.errors import ColumnError, SettingError


def as_mask(mask: Tensor, name: str = "response_mask") -> Tensor:
    """`mask` as bool [B, T]; anything in it that is not 0 or 1 is an error."""
    if mask.dtype == torch.bool:
        return mask
    chosen = mask == 1
    wrong = ~(chosen | (mask == 0))
    if wrong.any():
        where = tuple(int(i) for i in wrong.nonzero()[0])
        row, token = where[0] if where else None, where[1] if len(where) > 1 else None
        raise ColumnError(
            f"{name} must hold only 0 and 1, but row {row}, token {token} is {mask[where].item():g}; "
            "pass the mask of chosen tokens.",
            column=name,
            row=row,
            token=token,
        )
    return chosen


def same_shape(mask: Tensor, **columns: Tensor) -> None:
    """Each column has the mask's [B, T] shape."""
    if mask.dim() != 2:
        raise ColumnError(
            f"response_mask must have shape [B, T], but has {list(mask.shape)}; add the missing axis.",
            column="response_mask",
        )
    same_size(mask, **columns)


def same_size(mask: Tensor, **columns: Tensor) -> None:
    """Each column has the mask's shape, whatever that is."""
    for name, column in columns.items():
        if column.shape != mask.shape:
            raise ColumnError(
                f"{name} has shape {list(column.shape)} but response_mask has {list(mask.shape)}; "
                "both must cover the response tokens only.",
                column=name,
            )


def one_per_row(mask: Tensor, name: str, column: Tensor) -> None:
    """`column` has one number a row."""
    if column.shape != mask.shape[:1]:
        raise ColumnError(
            f"{name} has shape {list(column.shape)}, expected one number for each of the {mask.shape[0]} rows.",
            column=name,
        )


def unit_interval(**settings: float) -> None:
    """Each setting lies in [0, 1]."""
    for name, value in settings.items():
        if not 0.0 <= value <= 1.0:  # also catches NaN
            raise SettingError(f"{name} must lie between 0 and 1, but is {value}.")


def at_least(minimum: float, **settings: float) -> None:
    """Each setting is finite and not below `minimum`."""
    for name, value in settings.items():
        if not (math.isfinite(value) and value >= minimum):
            raise SettingError(f"{name} must be a number of at least {minimum:g}, but is {value}.")
