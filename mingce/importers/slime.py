"""slime: --save-debug-train-data and --save-debug-rollout-data (samples), joined by sample index.

Train data are one file for all ranks, `samples` with their layout in `dp_shards`; before August 2026 one file a rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mingce.base.errors import ColumnError, DataError
from mingce.base.texts import sentence_pair
from mingce.importers.draft import Draft, Laid, lay
from mingce.importers.near import MissingColumn
from mingce.importers.numbers import Numbers
from mingce.importers.objects import plain

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
    elif "dp_shards" in data or "response_lengths" in data["samples"][0]:
        draft = _gathered(data, where)
    else:
        draft = _sampled(data["samples"], where)
        draft.sampled = True
    draft.put_settings(data.get("settings"))  # of a trainer that is watched
    step = plain(data.get("rollout_id"), where, "rollout_id")
    draft.step = step if type(step) is int and step >= 0 else None
    return draft


def _trained(data: dict[str, Any], where: str) -> Draft:
    draft = Draft(where, "slime")
    lengths = _lengths(data.get("response_lengths"), where)
    _responses(draft, data.get("tokens"), data.get("loss_masks"), lengths)
    draft.put_lists(data, _COLUMNS, lengths)
    if "kl" in draft.columns and not draft.columns["kl"].array.any():  # with --kl-coef 0 it is not computed
        del draft.columns["kl"]
    for key, name in (("sample_indices", "sample_index"), ("raw_reward", "outcome"), ("rewards", "outcome")):
        laid = lay(data.get(key), where, key)
        if isinstance(laid, Numbers) and laid.ndim == 1 and name not in draft.rows and len(laid) == len(lengths):
            draft.put_row(name, laid, len(lengths))
    draft.put_truncated(data.get("truncated"))
    return draft


def _gathered(data: dict[str, Any], where: str) -> Draft:
    """All ranks' train data: one dict a sample."""
    samples = _dicts(data["samples"], where)
    names = dict.fromkeys(name for sample in samples for name in sample)
    columns: dict[str, Any] = {name: [sample.get(name) for sample in samples] for name in names}
    columns["sample_indices"] = columns.pop("sample_index", None)
    raw, places = lay(data.get("raw_reward"), where, "raw_reward"), columns.get("rollout_position")
    if isinstance(raw, Numbers) and raw.ndim == 1 and places and all(_within(at, len(raw)) for at in places):
        columns["raw_reward"] = [float(raw.array[at]) for at in places]  # of the whole rollout, in its order
    draft = _trained(columns, where)
    shards = [plain(shard, where, "dp_shards") for shard in data.get("dp_shards") or ()]
    if all(isinstance(shard, dict) for shard in shards) and shards:
        draft.settings["world_size"] = len(shards)
        draft.put_row("rank", columns.get("data_parallel_rank"), len(samples))
        draft.put_row("micro_batch", _micro_batches(shards, samples), len(samples))
    return draft


def _micro_batches(shards: list[dict[str, Any]], samples: list[dict[str, Any]]) -> list[int] | None:
    """Which micro-batch of its rank each sample was in, as the layout tells it."""
    found: dict[tuple[Any, Any], int] = {}
    for shard in shards:
        rank, rows = shard.get("data_parallel_rank"), shard.get("partition")
        for number, part in enumerate(_leaves(shard.get("micro_batch_indices"))):
            if isinstance(rows, list | tuple):
                found |= {(rank, rows[at]): number for at in part if _within(at, len(rows))}
    keys = [(sample.get("data_parallel_rank"), sample.get("rollout_position")) for sample in samples]
    return [found[key] for key in keys] if keys and all(key in found for key in keys) else None


def _leaves(value: Any, depth: int = 0) -> Iterator[list[Any]]:
    """The lists of numbers in lists of lists."""
    if isinstance(value, list | tuple) and depth < 4:
        if all(type(one) is int for one in value):
            yield list(value)
        else:
            for one in value:
                yield from _leaves(one, depth + 1)


def _within(at: Any, size: int) -> bool:
    return type(at) is int and 0 <= at < size


def _dicts(samples: list[Any], where: str) -> list[dict[str, Any]]:
    found = [plain(sample, where, "samples") for sample in samples]
    if not all(isinstance(sample, dict) for sample in found):
        raise DataError(f"{where}: not every sample is a dict.")
    return found


def _sampled(samples: list[Any], where: str) -> Draft:
    draft = Draft(where, "slime")
    plain_samples = _dicts(samples, where)

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
        raise MissingColumn(f"{where} has no 'response_lengths', one whole number a sample", "response_lengths")
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
        raise MissingColumn(f"{draft.where} has no 'tokens', one list a sample", "tokens")
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


def with_samples(trained: Draft, found: list[Draft]) -> Draft:
    """What only the rollout side knows, laid beside the trained rows of the same sample index.

    Where several rollouts were found it is the one that has most of them; an evaluation's are other samples.
    """
    wanted = set(trained.rows.get("sample_index", []))
    sampled = max(found, key=lambda one: len(wanted & set(one.rows.get("sample_index", []))))
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
