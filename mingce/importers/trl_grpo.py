"""TRL's GRPO: what _generate_and_score_completions gives, one batch or the list of them that a step buffers.

The advantage is one number a row. Tool results are in the completion but not of the policy: holes in the mask.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

import numpy as np

from mingce.importers.aliases import ROWS, TOKENS
from mingce.importers.draft import Draft, Laid, lay
from mingce.importers.near import MissingColumn
from mingce.importers.numbers import Numbers, rectangle
from mingce.importers.shards import joined

_COLUMNS = {
    "old_per_token_logps": "old_log_probs", "ref_per_token_logps": "ref_log_probs",
    "sampling_per_token_logps": "rollout_log_probs", "per_token_logps": "new_log_probs",
    "importance_sampling_ratio": "importance_weights", "entropies": "entropy", "entropy": "entropy",
}  # fmt: skip
_BESIDE = (*_COLUMNS.values(), "loss_mask", "ratio", "kl", "values", "returns", "weight_versions")
"""What a person may lay beside them under a name of ours."""
_ROWS = ("uid", "group", "rank", "minibatch", "micro_batch", "epoch", "finish_reason", "prompt", "response")


def recognises(data: Any) -> bool:
    if isinstance(data, list | tuple):
        return bool(data) and all(isinstance(one, dict) and recognises(one) for one in data)
    return isinstance(data, dict) and {"completion_ids", "completion_mask", "prompt_ids"} <= data.keys()


def read(data: Any, where: str) -> Draft:
    parts = [_part(one, where) for one in data] if isinstance(data, list | tuple) else [_part(data, where)]
    draft = parts[0] if len(parts) == 1 else joined(parts, where)
    if len(parts) > 1:
        draft.rows.setdefault("micro_batch", [at for at, part in enumerate(parts) for _ in range(len(part))])
    if "group" not in draft.rows:
        _groups(draft, len(draft))
    return draft


def _part(data: dict[str, Any], where: str) -> Draft:
    draft = Draft(where, "trl_grpo")
    ids = _square(data.get("completion_ids"), where, "completion_ids")
    there = _square(data.get("completion_mask"), where, "completion_mask")
    if ids is None or there is None:
        raise MissingColumn(f"{where} has no 'completion_ids' and 'completion_mask' [rows, tokens]", "completion_mask")
    draft.put("token_ids", ids)
    draft.put("attention_mask", there)
    chosen = _square(data.get("tool_mask"), where, "tool_mask")
    if chosen is not None and chosen.array.shape == there.array.shape:
        draft.put("response_mask", Numbers((there.array != 0) & (chosen.array != 0), "bool"))
    else:
        draft.put("response_mask", there)
    mask = draft.columns["response_mask"].array != 0
    own = {key: TOKENS[key] for key in data if key in TOKENS and TOKENS[key] in _BESIDE}
    for key, name in (own | _COLUMNS).items():
        column = _square(data.get(key), where, key)
        if column is not None and column.array.shape == (len(mask), 1):  # one weight for the whole sequence
            column = Numbers(np.where(mask, column.array, 0), column.stored)
        if column is not None:
            draft.put(name, column)
    advantages = lay(data.get("advantages"), where, "advantages")
    if isinstance(advantages, Numbers) and advantages.ndim == 1 and len(advantages) == len(mask):
        spread = np.where(mask, advantages.array[:, None], np.zeros((), advantages.array.dtype))
        draft.put("advantages", Numbers(spread, advantages.stored))
    elif advantages is not None:
        draft.put("advantages", advantages)
    _rows(draft, data, len(mask))
    return draft


def _square(value: Any, where: str, name: str) -> Numbers | None:
    """A column [rows, tokens]; rows of different lengths are padded."""
    laid: Laid | None = lay(value, where, name)
    if isinstance(laid, list):
        return rectangle([row or Numbers(np.zeros(0), "json") for row in laid], where, name)
    return laid if laid is not None and laid.ndim == 2 else None


def _rows(draft: Draft, data: dict[str, Any], rows: int) -> None:
    draft.put_about(data)
    draft.put_scalars(data.get("metrics"))
    if "beta" in draft.settings and not draft.settings.get("kl_in_reward"):  # TRL's is the price of the KL in the loss
        draft.settings.setdefault("kl_loss_coef", draft.settings.pop("beta"))
    seen = _square(data.get("prompt_mask"), draft.where, "prompt_mask")
    read_prompts = lay if seen is None else _square
    prompts = read_prompts(data.get("prompt_ids"), draft.where, "prompt_ids")
    if prompts is not None:
        draft.put_prompts(prompts, None if seen is None else seen.array != 0)
    for name in _ROWS:
        if name in data:
            draft.put_row(ROWS[name], data[name], rows)
    for key in ("outcome", "rewards", "reward"):
        laid = lay(data.get(key), draft.where, key)
        if isinstance(laid, Numbers) and laid.ndim == 1:
            draft.put_row("outcome", laid, rows)
            break


def _groups(draft: Draft, rows: int) -> None:
    """The samples of a prompt, told by its ids; where the same prompt was drawn twice, by where its samples stand."""
    size = draft.settings.get("group_size")
    prompts = [_name(ids) for ids in draft.rows.get("prompt_ids", [])]
    if isinstance(size, int) and size > 1 and prompts and rows % size == 0:
        blocks = [prompts[at : at + size] for at in range(0, rows, size)]
        if all(len(set(block)) == 1 for block in blocks):
            seen: Counter[str] = Counter()
            prompts = []
            for name, *_ in blocks:
                prompts += [f"{name}.{seen[name]}"] * size
                seen[name] += 1
    if 0 < len(set(prompts)) < rows:
        draft.put_row("group", prompts, rows)


def _name(ids: list[int] | None) -> str:
    return hashlib.blake2b(repr(ids).encode(), digest_size=6).hexdigest()
