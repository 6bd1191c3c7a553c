"""verl: a DataProto, in which prompts are left-padded, responses right-padded and the attention mask covers both.

Or, of its V1 trainer, what TransferQueue gives: one list of rows for each field, as nested tensors or padded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mingce.base.errors import DataError
from mingce.importers.aliases import ROWS, SETTINGS, TOKENS
from mingce.importers.draft import Draft, lay, row_lengths
from mingce.importers.near import MissingColumn
from mingce.importers.numbers import Numbers, from_bytes
from mingce.importers.objects import RESAVE, Record, plain
from mingce.importers.pickles import dtype_name
from mingce.importers.torch_files import read_torch_bytes

_ROWS = ("minibatch", "micro_batch", "epoch", "final_values", "outcome", "finish_reason", "rollout_ids", "group")
_SIGNS = ("old_log_probs", "token_level_scores", "token_level_rewards", "rm_scores", "response_mask", "advantages")
_V1_SIGNS = ("rm_scores", "old_log_probs", "ref_log_prob", "rollout_log_probs", "token_level_rewards")
_WHOLE = ("attention_mask", "loss_mask", "log_probs")  # as lists of rows, V1 has these over prompt and response


def recognises(data: Any) -> bool:
    """A DataProto, its dict, or its batch."""
    if isinstance(data, Record):
        return data.name.endswith("DataProto")
    if not isinstance(data, dict):
        return False
    if "batch" in data and ("non_tensor_batch" in data or "meta_info" in data):
        return True
    if {"prompts", "responses", "response_mask"} <= data.keys() and any(name in data for name in _V1_SIGNS):
        return True
    return {"prompts", "responses", "attention_mask"} <= data.keys() and any(name in data for name in _SIGNS)


def read(data: Any, where: str) -> Draft:
    draft = Draft(where, "verl")
    batch, others, about = _parts(data, where)
    rows, width = _responses(draft, batch)
    whole = _columns(draft, batch, width)
    if "response_mask" not in draft.columns:
        for name in ("loss_mask", "attention_mask"):  # as verl did before it had one
            if name in draft.columns:
                draft.put("response_mask", draft.columns[name])
                break
    prompts = lay(batch.get("prompts"), where, "prompts")
    if prompts is not None:
        attended = whole.get("attention_mask")
        mask = None if attended is None else attended.array[:, : attended.array.shape[1] - width] != 0
        draft.put_prompts(prompts, mask)
    positions = lay(batch.get("position_ids"), where, "position_ids")
    if isinstance(positions, list) or (positions is not None and positions.ndim == 2):
        draft.put_row("position_ids", positions, rows)
    named = (("uid", "group"), ("data_source", "data_source"), ("request_id", "uid"), ("keys", "uid"), ("rank", "rank"))
    for key, name in named:
        if key in others:
            draft.put_row(name, others[key], rows)
    groups = draft.rows.get("group", [])
    if "uid" not in draft.rows and len(set(groups)) == rows > 0:  # verl's uid is the prompt's; here it is the row's too
        draft.rows["uid"] = list(groups)
    for name in _ROWS:
        given = others.get(name, batch.get(name))
        if given is not None:
            draft.put_row(ROWS[name], given, rows)
    for given in (about, about.get("config"), about.get("settings"), about.get("sampling_params")):
        draft.put_settings(given)
    draft.put_scalars(about.get("metrics"))
    draft.put_scalars(about.get("scalars"))
    return draft


def _responses(draft: Draft, batch: dict[str, Any]) -> tuple[int, int]:
    """The responses' ids, and how many rows and slots they have; rows that are not padded tell what is attended to."""
    responses = lay(batch.get("responses"), draft.where, "responses")
    if isinstance(responses, list):
        draft.put("token_ids", responses)
        there: list[Numbers | None] = [Numbers(np.ones(n, dtype=bool), "bool") for n in row_lengths(responses)]
        draft.put("attention_mask", there)
    elif responses is not None and responses.ndim == 2:
        draft.put("token_ids", responses)
    else:
        raise MissingColumn(f"{draft.where} has no 'responses' [rows, tokens]", "responses")
    rows, width = draft.columns["token_ids"].array.shape
    return rows, width


def _columns(draft: Draft, batch: dict[str, Any], width: int) -> dict[str, Numbers]:
    """The other columns on the response axis; those over prompt and response as they were."""
    whole: dict[str, Numbers] = {}
    lengths = None
    if "attention_mask" in draft.columns:
        lengths = [int(n) for n in draft.columns["attention_mask"].array.sum(axis=1)]
    for key, value in batch.items():
        name = TOKENS.get(key)
        if name is None or key in ("responses", "input_ids", "prompts"):
            continue
        laid = lay(value, draft.where, key)
        aside = key == "rm_scores" and "token_level_scores" in batch
        if laid is None or aside or (name in draft.columns and key != name):
            continue
        if isinstance(laid, list):
            if key not in _WHOLE:
                draft.put(name, laid, lengths, width)
        elif laid.ndim == 2:
            if laid.array.shape[1] > width:  # over prompt and response
                whole[name] = laid
                laid = laid.rows(laid.array.shape[1] - width, None)
            draft.put(name, laid)
    return whole


def _parts(data: Any, where: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """batch, non_tensor_batch and meta_info with the dump's own settings and scalars."""
    if isinstance(data, Record):
        if not isinstance(data.state, tuple) or len(data.state) != 3:
            raise DataError(f"{where} holds a DataProto of an unknown version; {RESAVE}.")
        packed, others, about = data.state
        batch = _numpy_batch(packed, where) if isinstance(packed, tuple) else read_torch_bytes(bytes(packed), where)
    elif "batch" in data:
        batch, others, about = data["batch"], data.get("non_tensor_batch"), data.get("meta_info")
    else:
        batch, others = data, data
        about = {key: plain(value, where, key) for key, value in data.items() if key in SETTINGS and key not in TOKENS}
    batch, others, about = (plain(part, where, "batch") for part in (batch, others, about))
    if not isinstance(batch, dict):
        raise DataError(f"{where} holds a DataProto without a batch; {RESAVE}.")
    about = dict(about) if isinstance(about, dict) else {}
    if isinstance(data, dict):
        about |= {name: plain(data[name], where, name) for name in ("settings", "scalars") if name in data}
        if "step" in data:
            about.setdefault("step", data["step"])
    return batch, others if isinstance(others, dict) else {}, about


def _numpy_batch(packed: tuple[Any, ...], where: str) -> dict[str, Any]:
    """What VERL_DATAPROTO_SERIALIZATION_METHOD=numpy writes: name → (dtype, shape, bytes)."""
    found: dict[str, Any] = {}
    for name, entry in packed[2].items() if len(packed) == 3 and isinstance(packed[2], dict) else ():
        if isinstance(entry, tuple) and len(entry) == 3:
            dtype, shape, data = entry
            data = plain(data, where, name)
            if isinstance(data, Numbers):
                data = np.ascontiguousarray(data.array).astype(np.uint8).tobytes()
            if isinstance(data, bytes | memoryview) and isinstance(shape, tuple | list):
                found[name] = from_bytes(data, dtype_name(dtype), shape, where=where, name=name)
    return found
