"""SkyRL: its TrainingInputBatch, pickled by `trainer.dump_data_batch=true` or watched; responses at the right edge.

Its response mask covers tool output, its loss mask leaves that out, and all of a row that is not trained on. The dump
is written when token rewards, uids and last steps have been taken out of it; what is watched still has them.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

from mingce.base.errors import ColumnError
from mingce.importers.draft import Draft, lay
from mingce.importers.numbers import Array, Numbers, from_bytes
from mingce.importers.objects import Record, plain
from mingce.importers.torch_files import read_torch_bytes

_COLUMNS = {
    "loss_mask": "loss_mask", "rewards": "rewards", "rollout_logprobs": "rollout_log_probs",
    "action_log_probs": "old_log_probs", "base_action_log_probs": "ref_log_probs", "values": "values", "kl": "kl",
    "returns": "returns", "advantages": "advantages",
}  # fmt: skip
COLUMNS = ("sequences", "attention_mask", "response_mask", *_COLUMNS)
"""What is read of a batch."""


def recognises(data: Any) -> bool:
    """The state that a TensorBatch of SkyRL is pickled as."""
    return "sequences" in _batch(_state(data))


def _state(data: Any) -> dict[str, Any]:
    if isinstance(data, Record):
        data = data.args[1] if data.name.endswith("_rebuild_tensor_batch") and len(data.args) == 2 else data.state
    return data if isinstance(data, dict) else {}


def _batch(state: dict[str, Any]) -> dict[str, Any]:
    batch = state.get("batch_dict")
    return batch if isinstance(batch, dict) else {}


def read(data: Any, where: str) -> Draft:
    """Rows from their first token on; those that only fill the batch up are its last, and left out."""
    draft = Draft(where, "skyrl")
    state = _state(data)
    batch = {name: _numbers(value, where, name) for name, value in _batch(state).items()}
    metadata = state.get("metadata")
    about: dict[str, Any] = metadata if isinstance(metadata, dict) else {}
    ids, attended, mask = (batch.get(name) for name in ("sequences", "attention_mask", "response_mask"))
    if ids is None or mask is None or ids.ndim != 2 or mask.ndim != 2 or ids.array.shape[1] < mask.array.shape[1]:
        raise ColumnError(f"{where}: 'sequences' [B, S] and 'response_mask' [B, R] do not fit.", column="response_mask")
    there = mask.array != 0
    filling = plain(about.get("pad_size"), where, "pad_size")
    count = max(len(there) - (filling if type(filling) is int and filling > 0 else 0), 0)
    before = ids.array.shape[1] - there.shape[1]
    lengths = [int(length) for length in there.sum(axis=1)[:count]]

    def rows(column: Numbers) -> list[Numbers | None]:
        return [Numbers(column.array[row][there[row]], column.stored) for row in range(count)]

    draft.put("token_ids", rows(Numbers(ids.array[:, before:], ids.stored)), lengths)
    draft.put("attention_mask", rows(Numbers(there, "bool")), lengths)
    draft.put("response_mask", rows(Numbers(_chosen(there, batch.get("loss_mask")), "bool")), lengths)
    for theirs, ours in _COLUMNS.items():
        column = batch.get(theirs)
        if column is not None and column.array.shape == there.shape:
            draft.put(ours, rows(column), lengths)
    if attended is not None and attended.array.shape == ids.array.shape:
        seen = attended.array != 0
        seen[:, before:] &= ~there  # of the prompt's alone
        draft.put_row("prompt_ids", [ids.array[row][seen[row]].tolist() for row in range(count)], count)
    _put_rows(draft, about, count)
    draft.put_settings(state.get("settings"))  # of a trainer that is watched
    return draft


def _chosen(there: Array, loss_mask: Numbers | None) -> Array:
    """What the policy chose: the tokens of the loss, or all of a row of which none is trained on."""
    if loss_mask is None or loss_mask.array.shape != there.shape:
        return there
    trained = there & (loss_mask.array != 0)
    return np.where(trained.any(axis=1, keepdims=True), trained, there)


def _put_rows(draft: Draft, about: dict[str, Any], count: int) -> None:
    """Prompts by their uid, or by where each one's rows begin and end; trajectories by their last steps."""
    uids = about.get("uids")
    spans = about.get("policy_prompt_boundaries")
    if isinstance(uids, list):
        draft.put_row("group", [str(uid) for uid in uids[:count]], count)
    elif isinstance(spans, list) and all(isinstance(span, list | tuple) and len(span) == 2 for span in spans):
        groups = [number for number, (first, end) in enumerate(spans) for _ in range(first, min(end, count))]
        draft.put_row("group", groups if len(groups) == count else None, count)
    ends = plain(about.get("is_last_step"), draft.where, "is_last_step")
    ends = ends.array.tolist() if isinstance(ends, Numbers) else ends
    if isinstance(ends, list) and len(ends) >= count:
        draft.put_row("conversation", [0, *accumulate(map(int, ends[: count - 1]))][:count], count)


def _numbers(entry: Any, where: str, name: str) -> Numbers | None:
    """A tensor as it is pickled: bytes with dtype and shape, or a file of torch's; images are left out."""
    if isinstance(entry, dict) and entry.get("format") == "torch":
        entry = read_torch_bytes(bytes(entry.get("data") or b""), where)
    elif isinstance(entry, dict):
        shape, data = entry.get("shape"), entry.get("data")
        if not isinstance(data, bytes) or not isinstance(shape, list | tuple):
            return None
        return from_bytes(data, str(entry.get("dtype")), shape, where=where, name=name)
    laid = None if entry is None else lay(entry, where, name)
    return laid if isinstance(laid, Numbers) else None
