"""The page's data for code: `mingce.load_run("runs/demo").tokens(12)`, as pandas if installed, else as pyarrow."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mingce.base.paths import expanded
from mingce.columns import ROW_COLUMNS, TOKEN_COLUMNS
from mingce.sources.dumps import open_source

_DTYPES = {"bool": pa.bool_(), "int64": pa.int64(), "float32": pa.float32()}


class LoadedRun:
    """A run or a dump, read when asked. Frames are pandas.DataFrame where pandas is installed, else pyarrow.Table."""

    def __init__(self, path: Path | str):
        self._source = open_source(expanded(path))
        self.name, self.path = self._source.name, self._source.path

    def steps(self) -> list[int]:
        """The steps whose rollouts can be read."""
        return self._source.ledger_steps()

    def config(self) -> dict[str, Any]:
        """Settings by dotted key."""
        return self._source.config()

    def metrics(self) -> Any:
        """One line a step, one column a metric; empty where a step has not measured it."""
        series = self._source.series()
        columns = {"step": pa.array(series.steps, pa.int64())}
        for name in series.names:
            there = series.where(name)
            columns[name] = pa.array(series.column(name), pa.float64(), mask=~there)
        return _frame(columns)

    def skipped(self) -> dict[str, int]:
        """How many lines of metrics.jsonl and the other logs could not be read and were left out, by file."""
        return {skipped.file: skipped.count for skipped in self._source.skipped()}

    def rollouts(self, step: int) -> Any:
        """One line a rollout: its row columns, the sum of its scores and its number of chosen tokens."""
        size = self._source.size(step)
        columns: dict[str, Any] = {"row": pa.array(range(size), pa.int64())}
        for name in ROW_COLUMNS:
            values = self._source.row_column(step, name)
            if values is not None:
                columns[name] = _row_array(values)
        mask, scores = self._source.token_column(step, "response_mask"), self._source.token_column(step, "scores")
        assert mask is not None
        chosen = mask.values.astype(bool)
        if scores is not None:
            columns["score"] = pa.array(scores.sums(chosen))
        columns["length"] = pa.array(np.bincount(mask.rows, weights=chosen, minlength=size).astype(np.int64))
        return _frame(columns)

    def tokens(self, step: int) -> Any:
        """One line a token of the step: its rollout's row, its place t, and every token column."""
        mask = self._source.token_column(step, "response_mask")
        assert mask is not None
        rows = mask.rows
        columns = {"row": pa.array(rows), "t": pa.array(np.arange(len(rows)) - mask.offsets[rows])}
        for name, known in TOKEN_COLUMNS.items():
            column = self._source.token_column(step, name)
            if column is not None:
                columns[name] = pa.array(column.values).cast(_DTYPES[known.dtype])
        return _frame(columns)

    def rollout(self, step: int, row: int) -> Any:
        """One line a token of one rollout, with its text."""
        found = self._source.rollouts(step, [row], tokens=1 << 31)[0]
        ids = found.get("token_ids") or []
        columns: dict[str, Any] = {"t": pa.array(range(len(found["response_mask"])), pa.int64())}
        if ids:
            columns["text"] = pa.array([token.text for token in self._source.tokens().tokens(ids)], pa.string())
        for name, known in TOKEN_COLUMNS.items():
            if name in found:
                columns[name] = pa.array(found[name]).cast(_DTYPES[known.dtype])
        return _frame(columns)

    def __repr__(self) -> str:
        return f"LoadedRun({str(self.path)!r}, {len(self.steps())} ledgers)"


def _row_array(values: list[Any]) -> Any:
    try:
        return pa.array(values)
    except pa.ArrowException:  # a dump's entries need not be of one type
        return pa.array([None if value is None else str(value) for value in values], pa.string())


def _frame(columns: dict[str, Any]) -> Any:
    table = pa.table(columns)
    return table.to_pandas() if importlib.util.find_spec("pandas") else table
