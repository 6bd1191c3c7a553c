"""TRL's PPO: the tensors of PPOTrainer.train. Log-probs are +1.0 on pads; values are kept one slot further."""

from __future__ import annotations

from typing import Any

from mingce.importers.aliases import ROWS, TOKENS
from mingce.importers.draft import Draft, lay
from mingce.importers.near import MissingColumn
from mingce.importers.numbers import Numbers


def recognises(data: Any) -> bool:
    return isinstance(data, dict) and "responses" in data and ("padding_mask" in data or "queries" in data)


def read(data: dict[str, Any], where: str) -> Draft:
    draft = Draft(where, "trl")
    responses = lay(data["responses"], where, "responses")
    if not isinstance(responses, Numbers) or responses.ndim != 2:
        raise MissingColumn(f"{where} has no 'responses' [rows, tokens]", "responses")
    rows = len(responses)
    draft.put("token_ids", responses)
    draft.put_about(data)
    for key, name in (("padding_mask", "response_mask"), ("padding_mask_p1", "value_mask")):
        mask = lay(data.get(key), where, key)
        if isinstance(mask, Numbers):
            draft.put(name, Numbers(mask.array == 0, "bool"))
    for key, value in data.items():
        known = TOKENS.get(key)
        if known is None or known in draft.columns or key == "queries":
            continue
        laid = lay(value, where, key)
        if isinstance(laid, Numbers) and laid.ndim == 2:
            draft.put(known, laid)
    scores = lay(data.get("scores"), where, "scores")
    if isinstance(scores, Numbers) and scores.ndim == 1:
        draft.put_row("outcome", scores, rows)
    queries = lay(data.get("queries"), where, "queries")
    if isinstance(queries, Numbers) and queries.ndim == 2:
        pad = draft.settings.get("pad_id")
        draft.put_prompts(queries, None if pad is None else queries.array != pad)
    for name in ("rank", "group", "uid", "minibatch", "micro_batch", "epoch", "finish_reason", "final_values"):
        if name in data:
            draft.put_row(ROWS[name], data[name], rows)
    return draft
