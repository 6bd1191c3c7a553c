"""prime-rl: token_exports/step_N/rank_R.jsonl, one record a sequence, prompt and response in one row."""

from __future__ import annotations

from typing import Any

import numpy as np

from mingce.base.errors import DataError
from mingce.importers.draft import Draft, lay, row_lengths
from mingce.importers.limits import short
from mingce.importers.numbers import Numbers, rectangle

# rewards repeat the rollout's one reward on each token; mismatch_kl compares trainer and sampler, so it is not our kl
_COLUMNS = {
    "token_ids": "token_ids", "inference_logprobs": "rollout_log_probs", "trainer_logprobs": "old_log_probs",
    "entropy": "entropy", "advantages": "advantages", "importance_ratio": "importance_weights",
}  # fmt: skip


def recognises(data: Any) -> bool:
    signs = {"schema_version", "token_ids", "loss_mask"}
    return isinstance(data, dict) and signs <= data.keys() and bool({"trainer_logprobs", "advantages"} & data.keys())


def read(data: dict[str, Any], where: str) -> Draft:
    versions = {short(version) for version in data["schema_version"]}
    if versions != {"1"}:
        raise DataError(f"{where} has schema_version {', '.join(sorted(versions))[:60]}; only version 1 is known.")
    draft, whole = Draft(where, "prime_rl"), Draft(where)
    mask = lay(data["loss_mask"], where, "loss_mask")
    if not isinstance(mask, list):
        raise DataError(f"{where}: 'loss_mask' is not a list of 0 and 1 in each record.")
    lengths = row_lengths(mask)
    whole.put("response_mask", mask, lengths)
    whole.put_lists(data, _COLUMNS, lengths)
    whole.put("attention_mask", rectangle([Numbers(np.ones(n, dtype=bool), "bool") for n in lengths], where, "rows"))
    draft.put_sequences(whole.columns)
    rows = len(lengths)
    positions = lay(data.get("position_ids"), where, "position_ids")
    if isinstance(positions, list):
        draft.put_row("position_ids", positions, rows)
    for key, name in (("rank", "rank"), ("micro_step", "micro_batch")):
        if key in data:
            draft.put_row(name, data[key], rows)
    rewards = lay(data.get("rewards"), where, "rewards")
    if isinstance(rewards, list):
        chosen = [None if row is None else row.array[m.array != 0] for row, m in zip(rewards, mask, strict=True) if m]
        draft.put_row("outcome", [None if row is None or not len(row) else float(row[-1]) for row in chosen], rows)
    steps = {step for step in data.get("export_step", data.get("step", [])) if type(step) is int and step >= 0}
    ranks = {rank for rank in draft.rows.get("rank", []) if rank is not None}
    draft.step = steps.pop() if len(steps) == 1 else None
    draft.rank = ranks.pop() if len(ranks) == 1 else None
    return draft
