"""A dump in the making: columns are laid on the response axis [B, T], checked, and handed on as they were."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mingce.base.errors import ColumnError, DataError, SettingError
from mingce.importers.aliases import SCALARS, SETTINGS
from mingce.importers.limits import ALLOWED, MAX_BYTES, Refused, short
from mingce.importers.numbers import Array, Numbers, from_list, rectangle
from mingce.importers.objects import plain
from mingce.record.dump import Dump, ledger_dump, with_ledger_names
from mingce.specs.estimator import row_inputs
from mingce.specs.kl import kl_name
from mingce.specs.settings import SETTING_TYPES, DumpSettings

MASKS = ("response_mask", "attention_mask", "loss_mask", "value_mask")
IDS = ("token_ids", "weight_versions")
_LISTS = ("prompt_ids", "position_ids", "rollout_ids")
_TEXTS = ("prompt", "response", "reward_text", "finish_reason", "data_source")
_COUNTS = ("left_pad", "rank", "minibatch", "micro_batch", "epoch", "policy_version")
_FLOATS = ("bootstrap_value", "outcome", *row_inputs())
Laid = Numbers | list[Numbers | None]


def lay(value: Any, where: str, name: str) -> Laid | None:
    """A value as numbers: [B, T], [B], or a list of rows [n_i]; None if it is something else."""
    value = plain(value, where, name)
    if isinstance(value, Numbers):
        if value.ndim == 3 and value.array.shape[2] == 1:  # a value head's last dimension
            return Numbers(value.array[:, :, 0], value.stored)
        return value
    if not isinstance(value, list | tuple):
        return None
    flat = from_list(value, where, name)
    if flat is not None:
        return flat
    rows: list[Numbers | None] = []
    for row in value:
        row = plain(row, where, name)
        if isinstance(row, list | tuple):
            row = from_list(row, where, name)
            if row is None:
                return None
        if row is not None and not (isinstance(row, Numbers) and row.ndim <= 1):
            if isinstance(row, Numbers) and row.ndim == 2 and 1 in row.array.shape:
                row = Numbers(row.array.reshape(-1), row.stored)
            else:
                return None
        rows.append(row)
    if rows and all(row is not None and row.ndim == 0 for row in rows):  # a list of scalars
        seen = [row for row in rows if row is not None]
        return Numbers(np.array([row.array for row in seen]), seen[0].stored)
    return None if all(row is None for row in rows) or any(row is not None and row.ndim == 0 for row in rows) else rows


def row_lengths(rows: Sequence[Numbers | None]) -> list[int]:
    return [0 if row is None else len(row) for row in rows]


def shifted(numbers: Numbers, start: Array, width: int) -> Numbers:
    """Each row of [B, S] from its own start on, [B, width]; zeros behind the end."""
    array = numbers.array
    at = start[:, None] + np.arange(width)[None, :]
    there = at < array.shape[1]
    taken = np.take_along_axis(array, np.where(there, at, 0), axis=1) if array.shape[1] else np.zeros(at.shape)
    return Numbers(np.where(there, taken, np.zeros((), dtype=array.dtype)), numbers.stored)


def without_prompts(columns: Mapping[str, Numbers], mask: Array) -> tuple[dict[str, Numbers], Array]:
    """Whole-sequence columns [B, S] from each row's first chosen token on, and where that was [B]."""
    start = np.where(mask.any(axis=1), mask.argmax(axis=1), 0) if mask.shape[1] else np.zeros(len(mask), dtype=np.int64)
    width = int((mask.shape[1] - start).max(initial=0))
    return {name: shifted(column, start, width) for name, column in columns.items()}, start


@dataclass
class Draft:
    """What one file gave. Shards are joined as drafts; `finish` checks and makes the Dump."""

    where: str
    source: str = "generic"
    columns: dict[str, Numbers] = field(default_factory=dict)
    rows: dict[str, list[Any]] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    scalars: dict[str, float] = field(default_factory=dict)
    remarks: list[tuple[str, str]] = field(default_factory=list)
    step: int | None = None
    rank: int | None = None
    world: int | None = None
    rows_of: int | None = None
    sampled: bool = False  # slime's rollout side, which is laid beside the train data

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def put(self, name: str, laid: Laid, lengths: Sequence[int] | None = None, width: int | None = None) -> None:
        """A token column; `lengths` are the rows' lengths that a list of rows must have."""
        if isinstance(laid, list):
            if lengths is None:
                lengths = row_lengths(laid)
            if len(lengths) != len(laid):
                raise ColumnError(f"{self.where}: '{name}' has {len(laid)} rows, not {len(lengths)}.", column=name)
            for i, (row, length) in enumerate(zip(laid, lengths, strict=True)):
                if row is not None and len(row) != length:
                    raise ColumnError(
                        f"{self.where}: '{name}' has {len(row)} numbers in row {i} where the row has {length} tokens.",
                        column=name, row=i,
                    )  # fmt: skip
            filled = [
                Numbers(np.full(length, np.nan), "json") if row is None else row
                for row, length in zip(laid, lengths, strict=True)
            ]
            laid = rectangle(filled, self.where, name, width)
        if laid.ndim != 2:
            raise ColumnError(
                f"{self.where}: '{name}' has shape {list(laid.array.shape)}, not [rows, tokens].",
                column=name,
            )
        ALLOWED.take(self.where, name, laid.array.nbytes)
        self.columns[name] = laid

    def put_lists(
        self, data: Mapping[str, Any], names: Mapping[str, str], lengths: Sequence[int], width: int | None = None
    ) -> None:
        """Those columns of a table with a list per row that are there: their name → ours."""
        for key, name in names.items():
            laid = lay(data.get(key), self.where, key)
            if isinstance(laid, list):
                self.put(name, laid, lengths, width)

    def put_sequences(self, columns: Mapping[str, Numbers]) -> None:
        """Columns [B, S] of prompt and response in one, from each row's first chosen token on; the ids before it."""
        ids = columns.get("token_ids")
        responses, start = without_prompts(columns, columns["response_mask"].array != 0)
        for name, column in responses.items():
            self.put(name, column)
        if ids is not None and ids.array.dtype.kind == "i":
            prompts = [row[:first].tolist() for row, first in zip(ids.array, start, strict=True)]
            self.put_row("prompt_ids", prompts, len(start))

    def put_prompts(self, ids: Laid, there: Array | None) -> None:
        """The prompts' token ids [B, P] without the slots that `there` leaves out."""
        prompts, pads = unpadded(ids, there, self.where)
        self.put_row("prompt_ids", prompts)
        if there is not None:
            self.put_row("left_pad", pads)

    def put_truncated(self, value: Any) -> None:
        """Whether the limit ended each row."""
        cut = lay(value, self.where, "truncated")
        if isinstance(cut, Numbers) and cut.ndim == 1:
            self.put_row("finish_reason", ["length" if one else "stop" for one in cut.array])

    def put_about(self, data: Mapping[str, Any]) -> None:
        """What stands beside the columns: settings, the step, logged scalars."""
        self.put_settings(data.get("settings"))
        self.put_settings({"step": data.get("step")})
        self.put_scalars(data.get("scalars"))

    def put_row(self, name: str, value: Any, count: int | None = None) -> None:
        """A row column, one entry a rollout, brought to the type it has in the audit."""
        value = plain(value, self.where, name)
        if isinstance(value, Numbers):
            value = [float(value.array)] if value.ndim == 0 else value.array.tolist()
        if not isinstance(value, list | tuple):
            return
        count = len(self) if count is None else count
        if len(value) != count:
            raise ColumnError(f"{self.where}: '{name}' has {len(value)} entries for {count} rows.", column=name)
        entries = [self._entry(name, entry, row) for row, entry in enumerate(value)]
        if any(entry is not None for entry in entries) or not entries:
            self.rows[name] = entries

    def _entry(self, name: str, entry: Any, row: int) -> Any:
        entry = plain(entry, self.where, name)
        if isinstance(entry, Numbers):
            entry = entry.array.tolist()
        if entry is None:
            return None
        if name in _LISTS:
            if isinstance(entry, list | tuple):
                if set(map(type, entry)) == {int} and min(entry) > -(2**63) and max(entry) < 2**63:
                    return list(entry)
                if all(_whole(one) for one in entry):
                    return [int(one) for one in entry]
        elif name in _TEXTS:
            return entry if isinstance(entry, str) else None
        elif name in _COUNTS:
            if _whole(entry) and (entry >= 0 or name == "policy_version"):
                return int(entry)
        elif name in _FLOATS:
            if isinstance(entry, int | float):
                return float(entry)
        elif not isinstance(entry, float):
            if not isinstance(entry, int) or abs(entry) < 2**63:
                return entry if isinstance(entry, str | int) else None
        elif math.isfinite(entry):
            return int(entry) if entry == int(entry) else entry
        raise ColumnError(f"{self.where}: '{name}' cannot be {short(entry)} (row {row}).", column=name, row=row)

    def put_settings(self, given: Any, strict: bool = False) -> None:
        """Settings under any of their names; one of a wrong type is left out, or an error if `strict`."""
        found: dict[str, Any] = {}
        self._named(given, SETTINGS, found)
        self.take_settings(found, strict)

    def take_settings(self, named: Mapping[str, Any], strict: bool = False) -> None:
        """Settings under our own names; one of a wrong type is left out, or an error if `strict`."""
        for name, value in named.items():
            kinds, value = SETTING_TYPES[name], _as_ours(name, value)
            if (
                isinstance(value, kinds)
                and (type(value) is bool) == (bool in kinds)
                and not (type(value) is float and value - value != 0)
                and not (type(value) is int and abs(value) >= 2**63)
            ):
                self.settings[name] = value
            elif strict:
                raise SettingError(f"the setting {name} cannot be {short(value)}.")
        estimator = self.settings.get("kl_estimator")
        if isinstance(estimator, str):
            self.settings["kl_estimator"] = kl_name(estimator) or estimator
        step = self.settings.get("step")
        if self.step is None and type(step) is int and step >= 0:
            self.step = step

    def put_scalars(self, given: Any) -> None:
        found: dict[str, Any] = {}
        self._named(given, SCALARS, found)
        self.scalars |= {k: float(v) for k, v in found.items() if isinstance(v, int | float) and abs(v) < 1e300}

    def _named(self, given: Any, names: Mapping[str, str], into: dict[str, Any]) -> None:
        given = from_json(plain(given, self.where, "settings"))
        if not isinstance(given, dict):
            return
        for key, value in given.items():
            name = names.get(str(key))
            value = plain(value, self.where, str(key))
            if isinstance(value, Numbers):
                value = value.array.tolist()
            if isinstance(value, list | tuple):
                if name == "eos_id" and value and all(type(one) is int for one in value):
                    into.setdefault("stop_ids", list(value))
                    value = value[0]
                elif name == "stop_ids" and all(type(one) is int for one in value):
                    value = list(value)
                else:
                    continue
            if name and isinstance(value, str | int | float | bool | list) and (name not in into or key == name):
                into[name] = value

    def finish(self) -> Dump:
        """The Dump, every column checked for what it must be."""
        if "response_mask" not in self.columns:
            raise ColumnError(
                f"{self.where} has no response_mask (or loss mask, action mask, padding mask), so no token can be "
                "judged; add it, or name it in a mapping file.",
                column="response_mask",
            )
        shape = self.columns["response_mask"].array.shape
        needed = 8 * shape[0] * shape[1] * len(self.columns)
        if needed > MAX_BYTES:
            raise Refused(f"{self.where} needs {needed:,} bytes, more than {MAX_BYTES:,}; split the dump.")
        for name, column in self.columns.items():
            if (found := column.array.shape) != shape:
                raise ColumnError(
                    f"{self.where}: '{name}' has shape {list(found)} where response_mask has {list(shape)}.",
                    column=name,
                )
        mask = self._mask("response_mask")
        columns: dict[str, Array] = {}
        for name, column in self.columns.items():
            if name in MASKS:
                columns[name] = self._mask(name)
            elif name in IDS:
                columns[name] = self._ids(name, column.array, mask)
            elif column.array.dtype.kind == "f":
                columns[name] = column.array
            else:
                columns[name] = column.array.astype(np.float64)
        stored = {name: column.stored for name, column in self.columns.items() if column.stored != "json"}
        settings, ours = DumpSettings(**self.settings), self.source == "mingce"
        if not ours:
            if "raw_advantages" in columns and "advantages" not in columns:
                settings = replace(settings, whiten=True)
            columns, stored = with_ledger_names(columns), with_ledger_names(stored)
        dump = Dump(
            columns, dict(self.rows), settings, dict(self.scalars), self.source, stored, list(self.remarks),
            self.where, self.step, self.rows_of,
        )  # fmt: skip
        return ledger_dump(dump) if ours else dump

    def _mask(self, name: str) -> Array:
        array = self.columns[name].array
        if array.dtype == bool:
            return array
        self._refuse(name, ~((array == 0) | (array == 1)), "a mask is 0 or 1")
        kept: Array = array != 0
        return kept

    def _ids(self, name: str, array: Array, mask: Array) -> Array:
        if array.dtype == bool:
            raise ColumnError(f"{self.where}: '{name}' holds True and False instead of whole numbers.", column=name)
        if array.dtype.kind == "f":
            with np.errstate(invalid="ignore"):
                self._refuse(name, ~((np.abs(array) < 2**53) & (array == np.trunc(array))), "it must be a whole number")
            array = array.astype(np.int64)
        self._refuse(name, (array < 0) & mask, "a chosen token has no negative number")
        return array

    def _refuse(self, name: str, wrong: Array, rule: str) -> None:
        if wrong.any():
            row, token = (int(i) for i in np.argwhere(wrong)[0])
            value = self.columns[name].array[row, token]
            raise ColumnError(
                f"{self.where}: '{name}' is {value} at row {row}, token {token}; {rule}.",
                column=name,
                row=row,
                token=token,
            )


def unpadded(ids: Laid, mask: Array | None, where: str) -> tuple[list[list[int]], list[int]]:
    """Prompts [B, P] without the slots their mask leaves out, and how many pads stood before each."""
    if isinstance(ids, list):
        return [[] if row is None else [int(i) for i in row.array] for row in ids], [0] * len(ids)
    if ids.ndim != 2 or ids.array.dtype.kind not in "iu" or (mask is not None and mask.shape != ids.array.shape):
        raise DataError(f"{where}: the prompts are not token ids [rows, tokens] that fit their mask.")
    kept = np.ones(ids.array.shape, dtype=bool) if mask is None else mask.astype(bool)
    pads = np.where(kept.any(axis=1), kept.argmax(axis=1), kept.shape[1]) if kept.shape[1] else np.zeros(len(kept))
    return [row[keep].tolist() for row, keep in zip(ids.array, kept, strict=True)], [int(p) for p in pads]


def from_json(value: Any) -> Any:
    """A text that holds JSON, read; npz, safetensors and Parquet have nothing else to keep settings in."""
    if isinstance(value, list) and value and all(isinstance(one, str | dict) and one == value[0] for one in value):
        value = value[0]
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _whole(value: Any) -> bool:
    if isinstance(value, int):
        return abs(value) < 2**63
    return isinstance(value, float) and math.isfinite(value) and value == int(value) and abs(value) < 2**63


def _as_ours(name: str, value: Any) -> Any:
    """A setting's value where trainers write it in several ways."""
    if name == "std_over":
        value = {True: "group", False: "none"}[value] if isinstance(value, bool) else value
        return value if value in ("group", "batch", "none") else None
    if name == "rewards_apart" and isinstance(value, str):
        return value == "normalize_then_sum"
    return value
