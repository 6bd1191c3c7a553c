"""Any other dump: columns under our names, those of columns.py, or those of other trainers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from mingce.base.errors import ColumnError
from mingce.importers.aliases import ROWS, SETTINGS, TOKENS
from mingce.importers.draft import Draft, Laid, from_json, lay, row_lengths
from mingce.importers.near import MissingColumn
from mingce.importers.numbers import Array, Numbers
from mingce.importers.objects import plain

_APART = ("columns", "batch", "rows", "non_tensor_batch", "settings", "scalars", "metrics", "meta_info", "step")
_PROMPTS = ("prompt_ids", "prompts", "queries", "prompt_token_ids")


def read(data: dict[str, Any], where: str, facts: Mapping[str, str] | None = None) -> Draft:
    draft = Draft(where, "generic")
    _settings(draft, data, facts or {})
    laid: dict[str, tuple[str, Laid]] = {}
    others: dict[str, Any] = {}
    entries = dict(_entries(data, where))
    if "advantages" in entries and "whitened_advantages" in entries:  # as in our ledger
        entries["raw_advantages"] = entries.pop("advantages")
    for key, value in entries.items():
        name = TOKENS.get(key)
        found = None if name is None else lay(value, where, key)
        token = name is not None and found is not None and not (isinstance(found, Numbers) and found.ndim != 2)
        per_row = isinstance(found, Numbers) and found.ndim == 1 and name in ("advantages", "returns", "raw_advantages")
        if name is not None and found is not None and (token or per_row):
            if name not in laid or key == name:
                laid[name] = (key, found)
        elif key in ROWS or key in ("prompt_mask", *_PROMPTS):
            others[key] = value
        elif token is False and name == "response_mask":
            raise ColumnError(f"{where}: '{key}' is not a mask [rows, tokens].", column=key)
    if "response_mask" not in laid and "loss_mask" in laid:
        laid["response_mask"] = laid["loss_mask"]
    if "response_mask" not in laid:
        raise MissingColumn(f"{where} has no mask [rows, tokens] of the response", "response_mask")
    _columns(draft, laid, others)
    _rows(draft, others)
    return draft


def _entries(data: dict[str, Any], where: str) -> Iterator[tuple[str, Any]]:
    """Every named value, whether it stands at the top or one dict deeper."""
    for key, value in data.items():
        if key in ("columns", "batch", "rows", "non_tensor_batch"):
            value = plain(value, where, key)
            yield from ((str(k), v) for k, v in value.items()) if isinstance(value, dict) else ()
        elif key == "padding_mask":
            mask = lay(value, where, key)
            if isinstance(mask, Numbers):
                yield "response_mask", Numbers(mask.array == 0, "bool")
        elif (key not in _APART and key not in SETTINGS) or key in TOKENS:
            yield str(key), value


def _columns(draft: Draft, laid: dict[str, tuple[str, Laid]], others: dict[str, Any]) -> None:
    """Token columns on the response axis; whole sequences lose their prompts."""
    where = draft.where
    key, mask = laid["response_mask"]
    if isinstance(mask, list):
        lengths = row_lengths(mask)
        prompts = lay(next((others[p] for p in _PROMPTS if p in others), None), where, "prompt_ids")
        before = row_lengths(prompts) if isinstance(prompts, list) else [0] * len(lengths)
        for name, (_, value) in laid.items():
            if isinstance(value, list) and name != "response_mask" and len(value) == len(lengths) == len(before):
                value = [
                    Numbers(row.array[b:], row.stored) if row is not None and b and len(row) == b + n else row
                    for row, n, b in zip(value, lengths, before, strict=True)
                ]
            draft.put(name, _wide(value, mask), lengths)
    else:
        draft.put("response_mask", mask)
        width = mask.array.shape[1]
        for name, (key, value) in laid.items():
            value = _wide(value, mask)
            if isinstance(value, Numbers) and value.ndim == 2 and value.array.shape[1] > width and key != "input_ids":
                if name != "attention_mask" and "prompts" not in others and "prompt_ids" not in others:
                    raise ColumnError(
                        f"{where}: '{key}' has shape {list(value.array.shape)} where response_mask has "
                        f"{list(mask.array.shape)}.",
                        column=key,
                    )
                if name == "attention_mask":
                    others["prompt_mask"] = value.rows(None, value.array.shape[1] - width)
                value = value.rows(value.array.shape[1] - width, None)
            elif key == "input_ids" and isinstance(value, Numbers) and value.array.shape[1] > width:
                value = value.rows(value.array.shape[1] - width, None)
            draft.put(name, value)
    whole = laid.get("token_ids", ("", None))[0] == "input_ids" and not any(p in others for p in _PROMPTS)
    if whole and draft.columns["token_ids"].array.shape == draft.columns["response_mask"].array.shape:
        draft.put_sequences(draft.columns)


def _wide(value: Laid, mask: Laid) -> Laid:
    """One number a row, spread over its chosen tokens."""
    if not isinstance(value, Numbers) or value.ndim != 1 or len(value) != len(mask):
        return value
    if isinstance(mask, list):
        return [
            None if m is None else Numbers(np.where(m.array != 0, one, 0.0), value.stored)
            for one, m in zip(value.array, mask, strict=True)
        ]
    return Numbers(np.where(mask.array != 0, value.array[:, None], 0.0).astype(value.array.dtype), value.stored)


def _rows(draft: Draft, others: dict[str, Any]) -> None:
    count = len(draft)
    for key, value in others.items():
        if key in _PROMPTS:
            ids = lay(value, draft.where, key)
            if ids is None:
                continue
            prompt_mask = lay(others.get("prompt_mask"), draft.where, "prompt_mask")
            kept: Array | None = prompt_mask.array if isinstance(prompt_mask, Numbers) else None
            if kept is None and isinstance(ids, Numbers) and ids.ndim == 2 and "pad_id" in draft.settings:
                kept = ids.array != draft.settings["pad_id"]
            draft.put_prompts(ids, kept)
        elif key != "prompt_mask" and (ROWS[key] not in draft.rows or key == ROWS[key]):
            draft.put_row(ROWS[key], value, count)


def _settings(draft: Draft, data: dict[str, Any], facts: Mapping[str, str]) -> None:
    """Settings from the dict's own part, from single entries of their name, and from a file's metadata."""
    for key in ("settings", "meta_info"):
        draft.put_settings(data.get(key))
    for key in ("scalars", "metrics"):
        draft.put_scalars(data.get(key))
    draft.put_settings(singles(data, draft.where))
    for key in ("settings", "scalars"):
        if key in facts:
            (draft.put_settings if key == "settings" else draft.put_scalars)(facts[key])
    draft.put_settings({key: from_json(value) for key, value in facts.items() if key in SETTINGS})


def singles(data: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Settings that stand among the columns under their own names."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        if key in SETTINGS:
            value = plain(value, where, key)
            if (
                isinstance(value, list)
                and value
                and all(type(v) in (int, float, str, bool) and v == value[0] for v in value)
            ):
                value = value[0]  # a table repeats it on each row
            if isinstance(value, Numbers) and value.ndim == 0:
                value = value.array.item()
            found[key] = value
    return {key: value for key, value in found.items() if isinstance(value, str | int | float)}


def with_facts(data: dict[str, Any], facts: Mapping[str, str], where: str) -> dict[str, Any]:
    """A trainer's batch out of a table, with the settings and scalars of its rows or its metadata laid beside."""
    settings = singles(data, where) | {key: from_json(value) for key, value in facts.items() if key in SETTINGS}
    beside: dict[str, Any] = {}
    for key, more in (("settings", settings), ("scalars", {})):
        said = from_json(plain(data.get(key, facts.get(key)), where, key))
        if more or key in facts:
            beside[key] = more | (said if isinstance(said, dict) else {})
    return data | beside
