"""OpenRLHF: Experience objects, one or a list. Action columns cover the last A tokens of a sequence."""

from __future__ import annotations

from typing import Any

import numpy as np

from mingce.base.errors import ColumnError, DataError
from mingce.importers.draft import Draft, lay, without_prompts
from mingce.importers.numbers import Numbers, rectangle
from mingce.importers.objects import Record, plain
from mingce.importers.shards import joined

_COLUMNS = {
    "action_log_probs": "old_log_probs", "base_action_log_probs": "ref_log_probs",
    "rollout_log_probs": "rollout_log_probs", "values": "values", "returns": "returns", "advantages": "advantages",
    "kl": "kl", "rewards": "rewards", "scores": "scores", "new_log_probs": "new_log_probs", "entropy": "entropy",
}  # fmt: skip


def _fields(one: Any) -> dict[str, Any] | None:
    if isinstance(one, Record) and not one.name.endswith("Experience"):
        return None
    fields = plain(one, "", "")
    known = isinstance(fields, dict) and "sequences" in fields and "action_mask" in fields
    return fields if known else None


def _list(data: Any) -> list[Any]:
    if isinstance(data, dict) and isinstance(data.get("experiences"), list):
        return list(data["experiences"])
    if isinstance(data, list):
        return data
    return [data]


def recognises(data: Any) -> bool:
    found = _list(data)
    return bool(found) and _fields(found[0]) is not None


def read(data: Any, where: str) -> Draft:
    found = _list(data)
    parts = []
    for number, one in enumerate(found):
        fields = _fields(one)
        if fields is None:
            raise DataError(f"{where}: entry {number} of the list is not an Experience.")
        parts.append(_part(fields, where))
    draft = parts[0] if len(parts) == 1 else joined(parts, where)
    if len(parts) > 1 and max(len(part) for part in parts) > 1:
        draft.rows["micro_batch"] = [i for i, part in enumerate(parts) for _ in range(len(part))]
    if isinstance(data, dict):
        draft.put_about(data)
    size, places, prompts = (
        draft.settings.get("group_size"),
        draft.rows.get("uid", [None]),
        draft.rows.get("prompt", []),
    )
    if type(size) is int and size > 0 and all(type(at) is int for at in places):
        draft.put_row("group", [at // size for at in places])  # a sample's index counts through the prompts
    elif None not in prompts and len(set(prompts)) < len(prompts):
        draft.put_row("group", prompts)
    return draft


def _part(fields: dict[str, Any], where: str) -> Draft:
    draft = Draft(where, "openrlhf")
    mask = _whole(fields, "action_mask", where)
    ids = _whole(fields, "sequences", where)
    if mask is None or ids is None or ids.array.shape[1] < mask.array.shape[1] or len(ids) != len(mask):
        raise ColumnError(f"{where}: 'sequences' [B, S] and 'action_mask' [B, A] do not fit.", column="action_mask")
    rows, slots = mask.array.shape
    before = ids.array.shape[1] - slots
    columns = {"response_mask": mask, "token_ids": ids.rows(before, None)}
    attended = _whole(fields, "attention_mask", where)
    if attended is not None and attended.array.shape == ids.array.shape:
        columns["attention_mask"] = attended.rows(before, None)
    for key, name in _COLUMNS.items():
        column = _whole(fields, key, where)
        if column is not None and column.ndim == 2:
            if column.array.shape != mask.array.shape:
                raise ColumnError(
                    f"{where}: '{key}' has shape {list(column.array.shape)} where action_mask has {[rows, slots]}.",
                    column=key,
                )
            columns[name] = column
    columns, start = without_prompts(columns, mask.array != 0)
    for name, column in columns.items():
        draft.put(name, column)
    if attended is not None and attended.array.shape == ids.array.shape and ids.array.dtype.kind == "i":
        seen = attended.array != 0
        ends = before + start
        inside = seen & (np.arange(ids.array.shape[1])[None, :] < ends[:, None])
        draft.put_row("prompt_ids", [row[keep].tolist() for row, keep in zip(ids.array, inside, strict=True)], rows)
        draft.put_row("left_pad", [int(row.argmax()) if row.any() else 0 for row in seen], rows)
    info = plain(fields.get("info"), where, "info")
    info = info if isinstance(info, dict) else {}
    for key, value in (("rewards", fields.get("rewards")), ("reward", info.get("reward"))):
        laid = lay(value, where, key)
        if isinstance(laid, Numbers) and laid.ndim == 1:
            draft.put_row("outcome", laid, rows)
            break
    draft.put_truncated(fields.get("truncated"))
    draft.put_row("uid", fields.get("index"), rows)
    prompts = plain(fields.get("prompts"), where, "prompts")
    if isinstance(prompts, list) and len(prompts) == rows:
        draft.put_row("prompt", prompts, rows)
    return draft


def _whole(fields: dict[str, Any], key: str, where: str) -> Numbers | None:
    """A field as [B, ·]; a list of rows (OpenRLHF's replay buffer) is stacked."""
    laid = lay(fields.get(key), where, key)
    if isinstance(laid, list):
        return rectangle([row for row in laid if row is not None], where, key)
    if laid is not None and laid.ndim == 1 and key in ("sequences", "action_mask", "attention_mask"):
        return Numbers(laid.array[None, :], laid.stored)
    return laid
