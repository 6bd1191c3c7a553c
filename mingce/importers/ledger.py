"""mingce's own ledgers: a Parquet file, a ledger directory or a whole run."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mingce import columns
from mingce.base.errors import DataError
from mingce.base.reading import open_regular
from mingce.importers.draft import Draft, from_json, lay, row_lengths
from mingce.importers.limits import MAX_CELLS, MAX_TEXT, file_size
from mingce.importers.numbers import Numbers
from mingce.importers.settings_file import read_yaml
from mingce.record.dump import ROW_COLUMNS, TOKEN_COLUMNS
from mingce.specs.settings import DumpSettings, by_dotted_key

_COLUMNS = {name: name for name in TOKEN_COLUMNS if name in columns.TOKEN_COLUMNS}
_ROWS = [name for name in ROW_COLUMNS if name in columns.ROW_COLUMNS]


def recognises(facts: dict[str, str]) -> bool:
    return "mingce.format" in facts


def run_of(directory: Path) -> Path | None:
    """The directory that holds the ledgers, if this is a run of ours."""
    for ledgers in (directory / "ledger", directory):
        if any(ledgers.glob("step-*.parquet")):
            return ledgers
    return None


def read(data: dict[str, Any], facts: dict[str, str], where: str) -> Draft:
    """One step's ledger, of ours or as another trainer had it."""
    draft = Draft(where, source := facts.get("mingce.source", "mingce"))
    try:
        step, width = int(facts["mingce.step"]), int(facts["mingce.width"])
    except (ValueError, KeyError) as error:
        raise DataError(f"{where} is a ledger with damaged metadata; restore it from a copy.") from error
    ids = lay(data.get("token_ids"), where, "token_ids")
    rows = len(next(iter(data.values()), []))
    if rows and not isinstance(ids, list):
        raise DataError(f"{where} is a ledger without token_ids; restore it from a copy.")
    lengths = row_lengths(ids) if isinstance(ids, list) else []
    if not max(lengths, default=0) <= width or rows * width > MAX_CELLS:
        raise DataError(f"{where} is a ledger with damaged metadata (width {width}); restore it from a copy.")
    ours = source == "mingce"
    draft.put_lists(data, _COLUMNS if ours else {name: name for name in TOKEN_COLUMNS}, lengths, width)
    for name in _ROWS if ours else ROW_COLUMNS:
        if name in data:
            draft.put_row(name, data[name], rows)
    draft.step = step if step >= 0 else None
    if not ours:
        _put_facts(draft, facts)
    return draft


def _put_facts(draft: Draft, facts: dict[str, str]) -> None:
    """What a watched trainer's file says of itself (mingce.record.foreign)."""
    draft.put_settings(facts.get("mingce.settings"))
    draft.put_scalars(facts.get("mingce.scalars"))
    kinds = from_json(facts.get("mingce.stored"))
    for name, kind in kinds.items() if isinstance(kinds, dict) else ():
        if name in draft.columns and isinstance(kind, str):
            draft.columns[name] = Numbers(draft.columns[name].array, kind)
    rows_of = facts.get("mingce.rows_of", "")
    draft.rows_of = int(rows_of) if rows_of.isdecimal() and len(rows_of) < 10 else None
    if draft.rows_of is not None and draft.rows_of > len(draft):  # what was logged is of all rows
        draft.scalars.clear()


@dataclass
class Run:
    """What stands beside the ledgers of a run: its configuration by dotted key, and each step's logged scalars."""

    config: dict[str, Any] = field(default_factory=dict)
    metrics: dict[int, dict[str, Any]] = field(default_factory=dict)

    def lay_beside(self, draft: Draft) -> None:
        if draft.source != "mingce":
            return
        logged = self.metrics.get(-1 if draft.step is None else draft.step, {})
        draft.put_scalars(logged)
        draft.take_settings(DumpSettings.from_run(self.config, beta=draft.scalars.get("kl_coef")).known())
        if isinstance(updates := logged.get("critic/updates"), int | float) and abs(updates) < 2**53:
            draft.take_settings({"critic_updates": int(updates)})


def read_run(directory: Path) -> Run:
    """The settings and scalars of a run's directory, as far as they are there."""
    run = Run()
    config = directory / "config.yaml"
    if config.is_file():
        settings = read_yaml(config)
        run.config = by_dotted_key(settings)
    metrics = directory / "metrics.jsonl"
    if metrics.is_file():
        file_size(metrics)  # refuses what is mostly a hole
        with open_regular(metrics) as file:
            while line := file.readline(MAX_TEXT):
                try:
                    entry = json.loads(line)
                    run.metrics[int(entry["step"])] = entry
                except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
                    continue  # a line cut by a crash; the numbers are a help, not the dump
    return run
