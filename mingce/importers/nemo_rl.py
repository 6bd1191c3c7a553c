"""NeMo RL: train_data_step{n}.jsonl, one sample a line, each value a batch of one over the padded sequence."""

from __future__ import annotations

from typing import Any

import numpy as np

from mingce.base.errors import ColumnError
from mingce.importers.draft import Draft, lay, row_lengths
from mingce.importers.near import MissingColumn
from mingce.importers.numbers import Numbers

_COLUMNS = {
    "token_ids": "token_ids", "generation_logprobs": "rollout_log_probs", "prev_logprobs": "old_log_probs",
    "reference_policy_logprobs": "ref_log_probs", "values": "values", "returns": "returns",
}  # fmt: skip


def recognises(data: Any) -> bool:
    return isinstance(data, dict) and {"generation_logprobs", "prev_logprobs"} <= data.keys()


def read(data: dict[str, Any], where: str) -> Draft:
    draft, whole = Draft(where, "nemo_rl"), Draft(where)
    mask = lay(data.get("token_loss_mask"), where, "token_loss_mask")
    if not isinstance(mask, list):
        raise MissingColumn(f"{where} has no token_loss_mask, which NeMo RL writes since 0.5", "token_loss_mask")
    lengths = row_lengths(mask)
    rows = len(lengths)
    whole.put("response_mask", mask, lengths)
    whole.put_lists(data, _COLUMNS, lengths)
    advantages = _spread(lay(data.get("advantages"), where, "advantages"), mask)
    if isinstance(advantages, list):
        whole.put("advantages", advantages, lengths)
    shape = whole.columns["response_mask"].array.shape
    there = _scalars(data.get("input_lengths"), where, "input_lengths", rows)
    if there is not None:
        if (there < 0).any() or (there > shape[1]).any():
            raise ColumnError(
                f"{where}: 'input_lengths' is {int(there[(there < 0) | (there > shape[1])][0])} where the rows have "
                f"{shape[1]} slots.",
                column="input_lengths",
            )
        whole.put("attention_mask", Numbers(np.arange(shape[1])[None, :] < there[:, None], "bool"))
    draft.put_sequences(whole.columns)
    samples = _scalars(data.get("sample_loss_mask"), where, "sample_loss_mask", rows)
    if samples is not None:
        draft.put("loss_mask", Numbers((draft.columns["response_mask"].array != 0) & (samples != 0)[:, None], "bool"))
    key = "filtered_rewards" if "filtered_rewards" in data else "rewards"  # with dynamic sampling, what is trained on
    rewards = _scalars(data.get(key), where, key, rows)
    if rewards is not None:
        draft.put_row("outcome", rewards.tolist(), rows)
    return draft


def _spread(laid: Any, mask: list[Numbers | None]) -> Any:
    """One advantage a row on each of its chosen tokens."""
    if isinstance(laid, Numbers) and laid.ndim == 1 and len(laid) == len(mask):
        laid = [Numbers(laid.array[i : i + 1], laid.stored) for i in range(len(laid))]
    if not isinstance(laid, list) or len(laid) != len(mask):
        return laid
    return [
        Numbers(np.where(m.array != 0, row.array[0], 0.0), row.stored)
        if row is not None and m is not None and len(row) == 1 and len(m) != 1
        else row
        for row, m in zip(laid, mask, strict=True)
    ]


def _scalars(value: Any, where: str, name: str, rows: int) -> Any:
    """One number a row, alone or as a batch of one."""
    laid = lay(value, where, name)
    if isinstance(laid, list) and all(row is not None and len(row) == 1 for row in laid):
        laid = Numbers(np.array([row.array[0] for row in laid if row is not None]), "json")
    if laid is None:
        return None
    if not isinstance(laid, Numbers) or laid.array.shape != (rows,):
        raise ColumnError(f"{where}: '{name}' is not one number a sample.", column=name)
    return laid.array
