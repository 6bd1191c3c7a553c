"""mingce's own ledgers: a Parquet file, a ledger directory or a whole run."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mingce.base.errors import DataError
from mingce.base.reading import open_regular
from mingce.importers.draft import Draft, lay
from mingce.importers.limits import MAX_CELLS, MAX_TEXT, file_size
from mingce.importers.settings_file import read_yaml
from mingce.specs.settings import by_dotted_key, dump_settings

_ROWS = {
    "uid": "uid", "group": "group", "prompt_ids": "prompt_ids", "finish_reason": "finish_reason",
    "bootstrap_value": "final_values", "prompt": "prompt", "response": "response", "policy_version": "policy_version",
    "data_source": "data_source",
}  # fmt: skip
_COLUMNS = (
    "token_ids", "response_mask", "attention_mask", "loss_mask", "rollout_log_probs", "old_log_probs", "ref_log_probs",
    "new_log_probs", "entropy", "scores", "kl", "rewards", "values", "new_values", "deltas", "returns", "ratio",
)  # fmt: skip


def recognises(facts: dict[str, str]) -> bool:
    return "mingce.format" in facts


def run_of(directory: Path) -> Path | None:
    """The directory that holds the ledgers, if this is a run of ours."""
    for ledgers in (directory / "ledger", directory):
        if any(ledgers.glob("step-*.parquet")):
            return ledgers
    return None


def read(data: dict[str, Any], facts: dict[str, str], where: str) -> Draft:
    """One step's ledger. What we call whitened is what the loss uses; what we call advantages is before whitening."""
    draft = Draft(where, "mingce")
    try:
        step, width = int(facts["mingce.step"]), int(facts["mingce.width"])
    except (ValueError, KeyError) as error:
        raise DataError(f"{where} is a ledger with damaged metadata; restore it from a copy.") from error
    ids = lay(data.get("token_ids"), where, "token_ids")
    rows = len(next(iter(data.values()), []))
    if rows and not isinstance(ids, list):
        raise DataError(f"{where} is a ledger without token_ids; restore it from a copy.")
    lengths = [0 if row is None else len(row) for row in ids] if isinstance(ids, list) else []
    if not max(lengths, default=0) <= width or rows * width > MAX_CELLS:
        raise DataError(f"{where} is a ledger with damaged metadata (width {width}); restore it from a copy.")
    for name in _COLUMNS:
        laid = lay(data.get(name), where, name)
        if isinstance(laid, list):
            draft.put(name, laid, lengths, width)
    raw, white = (lay(data.get(name), where, name) for name in ("advantages", "whitened_advantages"))
    if isinstance(raw, list):
        draft.put("raw_advantages" if white is not None else "advantages", raw, lengths, width)
    if isinstance(white, list):
        draft.put("advantages", white, lengths, width)
    for key, name in _ROWS.items():
        if key in data:
            draft.put_row(name, data[key], rows)
    draft.step = step if step >= 0 else None
    return draft


@dataclass
class Run:
    """What stands beside the ledgers of a run: its configuration by dotted key, and each step's logged scalars."""

    config: dict[str, Any] = field(default_factory=dict)
    metrics: dict[int, dict[str, Any]] = field(default_factory=dict)

    def lay_beside(self, draft: Draft) -> None:
        logged = self.metrics.get(-1 if draft.step is None else draft.step, {})
        draft.put_scalars(logged)
        draft.take_settings(dump_settings(self.config, beta=draft.scalars.get("kl_coef")))
        if isinstance(logged.get("critic/updates"), int | float):
            draft.settings["critic_updates"] = logged["critic/updates"]


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
