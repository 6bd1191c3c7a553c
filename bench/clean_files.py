"""The files of the clean set: each batch in several precisions, with and without settings, and an index of them.

Needs numpy and torch only, so that it runs in the peers' environments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

HALVES = ("bfloat16", "float16", "bfloat16 log-probs", "float16 log-probs")
"""What else a batch is stored in: every number in half precision, or only the log-probs."""


@dataclass
class Parts:
    """What a trainer's step leaves behind: columns under its own names, row columns, settings, what it logged."""

    columns: dict[str, Tensor]
    rows: dict[str, list[Any]] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    scalars: dict[str, float] = field(default_factory=dict)
    flat: bool = False
    """Whether settings and row columns stand beside the columns, as in TRL's dumps, and not in parts as in verl's."""


def rounded(name: str, column: Tensor, precision: str) -> Tensor:
    """A column as it is stored."""
    kind, _, only = precision.partition(" ")
    if kind == "float32" or not column.is_floating_point() or (only and not is_log_prob(name)):
        return column
    return column.to(getattr(torch, kind))


def is_log_prob(name: str) -> bool:
    return any(part in name for part in ("log_prob", "logprob", "logp"))


class Writer:
    """Writes dumps below a folder and a line about each to its index."""

    def __init__(self, out: Path, part: str):
        self.out, self.part, self.count = out, part, 0
        (out / part).mkdir(parents=True, exist_ok=True)
        self.index = out / part / "index.jsonl"
        for line in self.index.read_text().splitlines() if self.index.exists() else ():  # of an earlier run
            (out / part / json.loads(line)["path"]).unlink(missing_ok=True)
        self.index.write_text("")

    def add(self, lot: str, parts: Parts) -> None:
        """The batch in float32 and in one half precision, one of them with its settings and the other without; which
        goes by turns, and so does the container."""
        half = HALVES[self.count // 2 % len(HALVES)]
        for precision, given in (("float32", self.count % 2 == 0), (half, self.count % 2 == 1)):
            self._write(lot, parts, precision, given)
        if self.count % 4 == 3:
            self._write(lot, parts, "float32", True)
        self.count += 1

    def _write(self, lot: str, parts: Parts, precision: str, given: bool) -> None:
        columns = {name: rounded(name, column, precision) for name, column in parts.columns.items()}
        settings = parts.settings if given else {}
        kind = "npz" if (self.count + given) % 3 == 0 else "pt"
        stem = "-".join(
            [lot.replace("/", "-").replace(" ", "_"), str(self.count), *precision.split(), *([] if given else ["bare"])]
        )
        path = self.out / self.part / f"{stem}.{kind}"
        (_npz if kind == "npz" else _pt)(path, columns, parts, settings)
        self.note(path, lot, precision, given)

    def note(self, path: Path, lot: str, precision: str, given: bool) -> None:
        """A line of the index."""
        line = {"path": path.name, "lot": f"{self.part}/{lot}", "settings": given, "dtype": precision}
        with self.index.open("a") as file:
            file.write(json.dumps(line | {"expect": "clean"}) + "\n")


def _pt(path: Path, columns: Mapping[str, Tensor], parts: Parts, settings: Mapping[str, Any]) -> None:
    """As torch.save keeps them, half precision as such."""
    beside: dict[str, Any] = {"scalars": parts.scalars} if parts.scalars else {}
    if settings:
        beside["settings"] = dict(settings)
    inside = {"batch": dict(columns), "non_tensor_batch": parts.rows}
    torch.save((dict(columns) | parts.rows if parts.flat else inside) | beside, path)


def _npz(path: Path, columns: Mapping[str, Tensor], parts: Parts, settings: Mapping[str, Any]) -> None:
    """NumPy has no bfloat16: such numbers are written as float32 that bfloat16 can hold, as trainers' dumpers do."""
    arrays: dict[str, Any] = {
        name: (column.float() if column.dtype == torch.bfloat16 else column).numpy() for name, column in columns.items()
    }
    arrays |= {name: np.array(entries) for name, entries in parts.rows.items()}
    for name, about in (("settings", settings), ("scalars", parts.scalars)):
        if about:
            arrays[name] = np.array(json.dumps(about))
    np.savez_compressed(path, **arrays)


def join(out: Path) -> int:
    """One index of the parts' indices; returns how many dumps there are."""
    lines = []
    for part in sorted(out.glob("*/index.jsonl")):
        found = (json.loads(line) for line in part.read_text().splitlines())
        lines += [line | {"path": f"{part.parent.name}/{line['path']}"} for line in found]
    (out / "index.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return len(lines)
