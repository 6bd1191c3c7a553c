"""slime: --save-debug-train-data (one file a rank) and --save-debug-rollout-data (samples), joined by sample index."""

from __future__ import annotations

from typing import Any

import numpy as np

from mingce.base.errors import ColumnError, DataError
from mingce.base.texts import sentence_pair
from mingce.importers.draft import Draft, Laid, lay
from mingce.importers.numbers import Numbers
from mingce.importers.pickles import plain

_COLUMNS = {
    "rollout_log_probs": "rollout_log_probs", "log_probs": "old_log_probs", "ref_log_probs": "ref_log_probs",
    "values": "values", "advantages": "advantages", "returns": "returns", "kl": "kl", "entropy": "entropy",
}  # fmt: skip
_FINISH = {"completed": "stop", "truncated": "length"}


def recognises(data: Any) -> bool:
    if not isinstance(data, dict):
        return False
    samples = data.get("samples")
    is_samples = isinstance(samples, list) and bool(samples) and isinstance(samples[0], dict) and "tokens" in samples[0]
    return is_samples or isinstance(data.get("rollout_data"), dict)


def read(data: dict[str, Any], where: str) -> Draft:
    if "rollout_data" in data:
        draft = _trained(data["rollout_data"], where)
        rank = plain(data.get("rank"), where, "rank")
        draft.rank = rank if type(rank) is int and rank >= 0 else None
    else:
        draft = _sampled(data["samples"], where)
    step = plain(data.get("rollout_id"), where, "rollout_id")
    draft.step = step if type(step) is int and step >= 0 else None
    return draft


def _trained(data: dict[str, Any], where: str) -> Draft:
    draft = Draft(where, "slime")
    lengths = _lengths(data.get("response_lengths"), where)
    _responses(draft, data.get("tokens"), data.get("loss_masks"), lengths)
    draft.put_lists(data, _COLUMNS, lengths)
    for key, name in (("sample_indices", "sample_index"), ("raw_reward", "outcome"), ("rewards", "outcome")):
        laid = lay(data.get(key), where, key)
        if isinstance(laid, Numbers) and laid.ndim == 1 and name not in draft.rows and len(laid) == len(lengths):
            draft.put_row(name, laid, len(lengths))
    draft.put_truncated(data.get("truncated"))
    return draft


def _sampled(samples: list[Any], where: str) -> Draft:
    draft = Draft(where, "slime")
    plain_samples = [plain(sample, where, "samples") for sample in samples]
    if not all(isinstance(sample, dict) for sample in plain_samples):
        raise DataError(f"{where}: not every sample is a dict.")

    def of(key: str) -> list[Any]:
        return [plain(sample.get(key), where, key) for sample in plain_samples]

    lengths = _lengths(of("response_length"), where)
    masks = of("loss_mask")
    ones = [[1] * length if mask is None else mask for mask, length in zip(masks, lengths, strict=True)]
    _responses(draft, of("tokens"), ones, lengths)
    rollout = lay(of("rollout_log_probs"), where, "rollout_log_probs")
    if isinstance(rollout, list):
        draft.put("rollout_log_probs", rollout, lengths)
    rows = len(lengths)
    draft.put_row("sample_index", of("index"), rows)
    draft.put_row("group", of("group_index"), rows)
    draft.put_row("prompt", of("prompt"), rows)
    draft.put_row("response", of("response"), rows)
    rewards = [one if isinstance(one, int | float) else None for one in of("reward")]
    draft.put_row("outcome", rewards, rows)
    draft.put_row("finish_reason", [_FINISH.get(one) if isinstance(one, str) else None for one in of("status")], rows)
    return draft


def _lengths(value: Any, where: str) -> list[int]:
    laid = lay(value, where, "response_lengths")
    if not isinstance(laid, Numbers) or laid.ndim != 1 or laid.array.dtype.kind != "i":
        raise ColumnError(f"{where} has no 'response_lengths', one whole number a sample.", column="response_lengths")
    if (laid.array < 0).any():
        row = int((laid.array < 0).argmax())
        raise ColumnError(
            f"{where}: 'response_lengths' is {int(laid.array[row])} in row {row}.", column="response_lengths", row=row
        )
    return [int(length) for length in laid.array]


def _responses(draft: Draft, tokens: Any, masks: Any, lengths: list[int]) -> None:
    """Token ids are those of the whole sequence; masks cover the response."""
    ids = _listed(lay(tokens, draft.where, "tokens"))
    mask = _listed(lay(masks, draft.where, "loss_masks"))
    if ids is None or len(ids) != len(lengths):
        raise ColumnError(f"{draft.where} has no 'tokens', one list a sample.", column="tokens")
    if mask is None:
        mask = [Numbers(np.ones(length, dtype=bool), "bool") for length in lengths]
    draft.put("response_mask", mask, lengths)
    responses: list[Numbers | None] = []
    prompts: list[list[int]] = []
    for row, (one, length) in enumerate(zip(ids, lengths, strict=True)):
        if one is None or len(one) < length:
            raise ColumnError(
                f"{draft.where}: 'tokens' has {0 if one is None else len(one)} ids in row {row} where the response "
                f"alone has {length}.",
                column="tokens", row=row,
            )  # fmt: skip
        first = len(one) - length
        responses.append(Numbers(one.array[first:], one.stored))
        prompts.append(one.array[:first].tolist())
    draft.put("token_ids", responses, lengths)
    there: list[Numbers | None] = [Numbers(np.ones(length, dtype=bool), "bool") for length in lengths]
    draft.put("attention_mask", there, lengths)
    draft.put_row("prompt_ids", prompts, len(lengths))


def _listed(laid: Laid | None) -> list[Numbers | None] | None:
    if isinstance(laid, Numbers) and laid.ndim == 2:
        return [Numbers(row, laid.stored) for row in laid.array]
    return laid if isinstance(laid, list) else None


def with_samples(trained: Draft, sampled: Draft) -> Draft:
    """What only the rollout side knows, laid beside the trained rows of the same sample index."""
    at = {index: row for row, index in enumerate(sampled.rows.get("sample_index", []))}
    order = [at.get(index) for index in trained.rows.get("sample_index", [])]
    if not order or any(row is None for row in order):
        trained.remarks.append(sentence_pair("importers.not_joined"))
        return trained
    for name, values in sampled.rows.items():
        if name not in trained.rows:
            trained.rows[name] = [values[row] for row in order if row is not None]
    ids = sampled.columns["token_ids"].array
    lengths = (sampled.columns["attention_mask"].array != 0).sum(axis=1)
    trained.rows["rollout_ids"] = [ids[row, : lengths[row]].tolist() for row in order if row is not None]
    left = len(at) - len(set(order))
    if left:
        trained.remarks.append(sentence_pair("importers.left_over", left=left))
    return trained


def without_copies(drafts: list[Draft]) -> list[Draft]:
    """Tensor- and pipeline-parallel ranks save the same samples; the file with the most columns stays."""
    kept: dict[tuple[Any, ...], Draft] = {}
    for number, draft in enumerate(drafts):
        key = tuple(draft.rows.get("sample_index", [])) or (f"file {number}",)
        if key not in kept or len(draft.columns) > len(kept[key].columns):
            kept[key] = draft
    return list(kept.values())
