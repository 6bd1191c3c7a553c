"""Columns in whatever a person put them: a list of rows, a list of batches, a dict in a dict."""

from __future__ import annotations

from typing import Any

from mingce.importers.aliases import TOKENS
from mingce.importers.numbers import Numbers
from mingce.importers.objects import plain

DEPTH = 4
MASKS = {name for name, meant in TOKENS.items() if meant in ("response_mask", "loss_mask")} | {"padding_mask"}
_HOMES = ("columns", "batch", "rows", "non_tensor_batch")  # in which a reader looks by itself
_BESIDE = ("settings", "scalars", "metrics", "meta_info", "info", "config")


def batches(data: Any, depth: int = 0) -> list[dict[str, Any]]:
    """The dicts of columns in the content, one for each batch; none where no mask is found."""
    data = plain(data, "", "")
    if depth > DEPTH:
        return []
    if isinstance(data, list | tuple):
        if len(data) == 1:
            return batches(data[0], depth + 1)
        records = [plain(one, "", "") for one in data]
        return _of_records(records, depth) if all(isinstance(one, dict) for one in records) else []
    if not isinstance(data, dict):
        return []
    mask = _mask(data)
    if mask is not None or any(_mask(plain(data.get(home), "", "")) is not None for home in _HOMES):
        return _lines(data, mask)
    found = {key: inner for key, value in data.items() if key not in _BESIDE and (inner := batches(value, depth + 1))}
    if len(found) != 1:
        return []
    [(home, inner)] = found.items()
    beside = {key: value for key, value in data.items() if key != home}
    return [beside | one for one in inner]


def _mask(data: Any) -> Any:
    """A mask under any of its names, the more telling one first."""
    names = sorted(MASKS & data.keys(), key=lambda name: name == "mask") if isinstance(data, dict) else []
    return data[names[0]] if names else None


def _of_records(records: list[dict[str, Any]], depth: int) -> list[dict[str, Any]]:
    """Records of one row each as columns, or batches one after another."""
    masks = [_mask(record) for record in records]
    if not records or all(mask is None for mask in masks):
        inner = [batches(record, depth + 1) for record in records]
        flat = [batch for found in inner for batch in found]
        return _of_records(flat, depth + 1) if all(len(found) == 1 for found in inner) else []
    depths = {_depth(mask) for mask in masks if mask is not None}
    if depths == {1}:
        names = dict.fromkeys(name for record in records for name in record)
        return [{name: [record.get(name) for record in records] for name in names}]
    return records if depths == {2} and None not in masks else []


def _lines(data: dict[str, Any], mask: Any) -> list[dict[str, Any]]:
    """The batches of a table that holds a whole one on each line, or a single row as a table of one line."""
    if isinstance(mask, list) and _depth(mask) == 3 and all(_of_length(value, len(mask)) for value in data.values()):
        return [{name: value[line] for name, value in data.items()} for line in range(len(mask))]
    if isinstance(mask, list | tuple) and _depth(mask) == 1 and not all(isinstance(one, Numbers) for one in mask):
        return [{name: value if name in _BESIDE else [value] for name, value in data.items()}]
    return [data]


def _of_length(value: Any, length: int) -> bool:
    return isinstance(value, list) and len(value) == length


def _depth(value: Any) -> int:
    """How many lists deep the numbers are."""
    value = plain(value, "", "mask")
    if isinstance(value, Numbers):
        return value.ndim
    if not isinstance(value, list | tuple):
        return 0
    first = next((one for one in value if one is not None), None)
    return 1 + _depth(first) if len(value) else 1
