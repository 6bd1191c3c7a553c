"""Another trainer's step as a ledger's file: its columns as it has them, nothing checked, cleaned or filled in.

Such a file says in its metadata whose numbers it holds (`mingce.source`), with which settings and logged scalars they
were made, and of how many rows its rows are a part; it is read as the trainer's dump (mingce.importers.ledger).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from mingce import columns
from mingce.base.errors import ColumnError
from mingce.record.dump import Dump
from mingce.record.store import ROW_TYPES, as_ledger_file

_MORE_ROWS = dict.fromkeys(("left_pad", "rank", "minibatch", "micro_batch", "epoch"), "int") | {
    "outcome": "float", "reward_text": "str", "position_ids": "list[int]", "rollout_ids": "list[int]",
}  # fmt: skip
_KINDS = {name: column.dtype for name, column in columns.ROW_COLUMNS.items()} | _MORE_ROWS


def foreign_table(step: int, dump: Dump, rows: Sequence[int] | None = None) -> tuple[pa.Table, int]:
    """The table of a dump's rows, all or some of them, and how many slots a row uses on average."""
    chosen = np.arange(dump.shape[0]) if rows is None else np.asarray(rows, dtype=np.int64)
    lengths = used_slots(dump)[chosen]
    used = np.arange(dump.shape[1]) < lengths[:, None]
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    arrays: dict[str, pa.Array] = {}
    for name, entries in dump.rows.items():
        if (kind := _KINDS.get(name)) is not None:
            arrays[name] = _row_array(name, kind, [entries[row] for row in chosen])
    for name, column in dump.columns.items():
        arrays[name] = pa.ListArray.from_arrays(offsets, pa.array(np.ascontiguousarray(column[chosen][used])))
    more = {
        "source": dump.source,
        "rows_of": str(dump.rows_of or dump.shape[0]),
        "settings": json.dumps(dump.settings.known()),
        "scalars": json.dumps(dump.scalars),
        "stored": json.dumps(dump.stored),
    }
    return as_ledger_file(arrays, step, dump.shape[1], **more), int(lengths.sum()) // max(len(chosen), 1)


def used_slots(dump: Dump) -> Any:
    """[B] one past the last slot that holds a token, was chosen or has a value: TRL's PPO pays one slot further."""
    used = dump.mask
    for name in ("attention_mask", "value_mask"):
        if name in dump.columns:
            used = used | dump.columns[name].astype(bool)
    return np.where(used, np.arange(1, dump.shape[1] + 1), 0).max(axis=1, initial=0)


def _row_array(name: str, kind: str, entries: list[Any]) -> pa.Array:
    if kind == "str":
        entries = [entry if entry is None else str(entry) for entry in entries]
    elif kind.startswith("dict"):
        entries = [entry if entry is None else json.dumps(entry, ensure_ascii=False) for entry in entries]
    try:
        return pa.array(entries, type=ROW_TYPES[kind])
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ColumnError(f"row column '{name}' cannot be stored as {kind}: {error}", column=name) from error
