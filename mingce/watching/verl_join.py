"""In verl's driver, in our thread: the files that workers wrote of a step's update, laid beside the rows they are of.

A column joins the step when all of its rows came; a row without a token of its own has none and is 0. The first steps
and those after one that had files are waited for a little, as workers write when their update is over.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mingce.base.texts import sentence
from mingce.watching.verl_update import POLICY, VALUE, digests, unpacked

_KEYS = {POLICY: ("old_log_probs", "advantages"), VALUE: ("values", "returns")}
WAIT = 3.0
"""Seconds that a step's files are waited for."""
_KEPT = 16
"""Steps after which rows that nobody asked for are dropped."""


@dataclass(frozen=True)
class _Entry:
    """A row's new numbers, and at which of our steps they were read."""

    row: Any
    epoch: int
    minibatch: int
    step: int


class Joiner:
    """Reads and removes the files of one run's workers, which may be steps ahead of us."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._expected = True
        self._held: dict[str, dict[str, list[_Entry]]] = {column: {} for column in _KEYS}
        self._step = 0

    def forget(self, before: int) -> None:
        """What was written before this time (in ns) is of steps that are not recorded."""
        for path in self._files():
            if int(path.name.partition("-")[0]) < before:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Leave nothing behind."""
        if self._folder.is_dir():
            shutil.rmtree(self._folder)

    def joined(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """The step's data with what its workers computed anew, as far as all of it came."""
        found = dict(data)
        inside = found.get("batch")
        rows: dict[str, Any] = dict(inside) if isinstance(inside, Mapping) else found
        wanted = {column: _names(rows, keys) for column, keys in _KEYS.items() if all(key in rows for key in keys)}
        came = self._collected(wanted)
        others = dict(found["non_tensor_batch"]) if "non_tensor_batch" in found else found
        for column, entries in came.items():
            rows[column] = _laid(rows["responses"], entries)
            if column == POLICY:
                others["epoch"] = [one.epoch if one else 0 for one in entries]
                others["minibatch"] = [one.minibatch if one else 0 for one in entries]
        return found | {"batch": rows, "non_tensor_batch": others} if rows is not found else found

    def _collected(self, wanted: dict[str, list[str]]) -> dict[str, list[_Entry | None]]:
        """By column, each row's new numbers; only columns of which all rows came."""
        ends = time.monotonic() + (WAIT if self._expected else 0.0)
        self._step += 1
        some = False
        while not self._whole(wanted):
            path = next(iter(self._files()), None)
            if path is not None:
                some = True
                self._read(path)
            elif time.monotonic() >= ends:
                break
            else:
                time.sleep(0.05)
        came = {name: {key for key in keys if key in self._held[name]} for name, keys in wanted.items()}
        self._expected = some or any(came.values())
        whole = {name: keys for name, keys in wanted.items() if came[name] and came[name] == {*keys} - {""}}
        found = {name: _taken(keys, self._held[name]) for name, keys in whole.items()}
        missing = len({*wanted.get(POLICY, [])} - {""} - came.get(POLICY, set()))
        self._prune(came)
        if came.get(POLICY) and missing:
            raise ValueError(sentence("watching.update_rows", count=missing))
        return found

    def _whole(self, wanted: dict[str, list[str]]) -> bool:
        """Whether all rows of the policy are there, and of the critic if any is."""
        missing = {name: [key for key in keys if key and key not in self._held[name]] for name, keys in wanted.items()}
        return not missing.get(POLICY) and not (self._held[VALUE] and missing.get(VALUE))

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("*.npz")) if self._folder.is_dir() else []

    def _read(self, path: Path) -> None:
        try:
            for seen in unpacked(path):
                for key, row in ((key, row) for key, row in zip(seen.keys, seen.rows, strict=True) if key):
                    entry = _Entry(row, seen.epoch, seen.minibatch, self._step)
                    self._held[seen.column].setdefault(key, []).append(entry)
        finally:
            path.unlink(missing_ok=True)

    def _prune(self, used: Mapping[str, set[str]]) -> None:
        """Without the rows that were used, and without what has waited for long."""
        for name, held in self._held.items():
            self._held[name] = {
                key: entries for key, entries in held.items()
                if key not in used.get(name, ()) and entries[-1].step > self._step - _KEPT
            }  # fmt: skip


def _names(rows: Mapping[str, Any], keys: tuple[str, ...]) -> list[str]:
    def plain(column: Any) -> list[Any]:
        return [row.detach().float().cpu().numpy() if hasattr(row, "detach") else np.asarray(row) for row in column]

    return digests(plain(rows["response_mask"]), *(plain(rows[key]) for key in keys))


def _taken(keys: list[str], held: Mapping[str, list[_Entry]]) -> list[_Entry | None]:
    """Each row's entry; rows with the same name take turns, and the last of them is for the others, too."""
    left = {key: list(held[key]) for key in {*keys} - {""}}
    return [None if not key else left[key].pop(0) if len(left[key]) > 1 else left[key][0] for key in keys]


def _laid(responses: Any, entries: list[_Entry | None]) -> Any:
    """The new numbers as long as the responses are: a list of rows, or one tensor where they are one."""
    import torch

    laid = []
    for ids, entry in zip(responses, entries, strict=True):
        row = torch.zeros(len(ids))
        if entry is not None:
            count = min(len(ids), len(entry.row))
            row[:count] = torch.from_numpy(np.ascontiguousarray(entry.row[:count]))
        laid.append(row)
    return torch.stack(laid) if isinstance(responses, torch.Tensor) else laid
