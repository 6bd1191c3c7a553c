"""One rollout under the microscope: every column of every token, settings, its group; and one prompt through time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from mingce.columns import TOKEN_COLUMNS
from mingce.record.store import LedgerFileError
from mingce.view.digits import Digits
from mingce.view.source import MAX_TOKENS, Array, Source

MASKS = ("response_mask", "attention_mask", "loss_mask")
SIBLING_TOKENS = 10_000
SIBLINGS_AT_ONCE = 8
SIBLING_COLUMNS = ("response_mask", "scores", "kl", "rewards", "values")
THROUGH_COLUMNS = ("response_mask", "values", "advantages", "returns", "rewards", "deltas")
THROUGH_TOKENS = 20_000
THROUGH_STEPS = 1000
THROUGH_ROWS = 5_000_000
PROMPTS = 50
MAX_REFUSED = 5  # ledgers that cannot be read; each may have taken seconds


def rollout(source: Source, step: int, row: int, whitening: dict[str, Any] | None) -> dict[str, Any]:
    """Everything about one rollout."""
    found = source.rollouts(step, [row])[0]
    more = len(found["response_mask"]) >= MAX_TOKENS
    if more:
        found = {name: value[: MAX_TOKENS - 1] if isinstance(value, list) else value for name, value in found.items()}
    settings = source.settings(step)
    texts = source.tokens()
    columns = numbers(found, short=source.kind == "run")
    siblings, left_out = _siblings(source, step, row, found.get("group"), settings)
    return {
        "step": step,
        "row": row,
        "uid": found.get("uid"),
        "group": found.get("group"),
        "prompt": found.get("prompt") or "",
        "response": found.get("response") or "",
        "texts": texts.known,
        "prompt_tokens": texts.texts(found.get("prompt_ids") or []),
        "tokens": texts.texts(_ids(found)),
        "columns": columns,
        "info": {
            "score": _score(found),
            "score_parts": found.get("score_parts"),
            "finish_reason": found.get("finish_reason"),
            "truncated": found.get("finish_reason") == "length",
            "bootstrap_value": _finite(found.get("bootstrap_value")),
            "temperature": found.get("temperature"),
            "policy_version": found.get("policy_version"),
            "data_source": found.get("data_source"),
        },
        "bootstrap": bootstrap(found, settings),
        "settings": settings,
        "whitening": whitening,
        "siblings": siblings,
        "siblings_left_out": left_out,
        "more_tokens": more,
    }


def numbers(
    found: dict[str, Any], names: Iterable[str] = TOKEN_COLUMNS, *, short: bool = False
) -> dict[str, Sequence[float | None]]:
    """Token columns as JSON holds them: null where the policy did not choose or the number is not finite.

    `short`: the numbers are float32, as in our own ledgers.
    """
    chosen = [bool(m) for m in found["response_mask"]]
    whole = all(chosen)
    columns: dict[str, Sequence[float | None]] = {}
    for name in names:
        values = found.get(name)
        if values is None or name == "token_ids":
            continue
        if name in MASKS:
            columns[name] = [int(bool(value)) for value in values]
        elif TOKEN_COLUMNS[name].dtype == "bool":
            columns[name] = [int(bool(v)) if mine else None for v, mine in zip(values, chosen, strict=True)]
        elif short and whole and math.isfinite(sum(values)):
            columns[name] = Digits(values)
        else:
            columns[name] = [_finite(v) if mine else None for v, mine in zip(values, chosen, strict=True)]
    return columns


def bootstrap(found: dict[str, Any], settings: dict[str, Any]) -> float:
    """The value that followed the last token: 0 unless a cut response was continued by the critic's estimate."""
    if settings.get("truncation") == "bootstrap" and found.get("finish_reason") == "length":
        return _finite(found.get("bootstrap_value")) or 0.0
    return 0.0


def _siblings(
    source: Source, step: int, row: int, group: Any, settings: dict[str, Any]
) -> tuple[list[dict[str, Any]], int]:
    """The rollouts of the same prompt, this one first of all, as far as they are not too long together."""
    rows = [row]
    if group is not None:
        members = source.row_column(step, "group") or []
        rows += [other for other, name in enumerate(members) if name == group and other != row]
    names = (*SIBLING_COLUMNS, "response", "finish_reason", "bootstrap_value", "outcome")
    shown: list[dict[str, Any]] = []
    tokens, short = 0, source.kind == "run"
    for start in range(0, len(rows), SIBLINGS_AT_ONCE):
        part = rows[start : start + SIBLINGS_AT_ONCE]
        for one, found in zip(part, source.rollouts(step, part, names, SIBLING_TOKENS), strict=True):
            tokens += len(found["response_mask"])
            if not shown or tokens <= SIBLING_TOKENS:
                text = {"row": one, "score": _score(found), "response": found.get("response") or ""}
                shown.append(
                    text | numbers(found, SIBLING_COLUMNS, short=short) | {"bootstrap": bootstrap(found, settings)}
                )
        if tokens > SIBLING_TOKENS:
            break
    return sorted(shown, key=lambda sibling: int(sibling["row"])), len(rows) - len(shown)


def _ids(found: dict[str, Any]) -> list[int]:
    ids = found.get("token_ids")
    return [0] * len(found["response_mask"]) if ids is None else [int(i) for i in ids]


def _score(found: dict[str, Any]) -> float | None:
    scores = found.get("scores")
    if scores is None:
        return _finite(found.get("outcome"))
    chosen = zip(scores, found["response_mask"], strict=True)
    return _finite(math.fsum(s for s, mine in chosen if mine and math.isfinite(s)))


def _finite(value: Any) -> float | None:
    return value if isinstance(value, int | float) and math.isfinite(value) else None


# ── through time ─────────────────────────────────────────────────────────────────────────────────────────────────────


class PromptIndex:
    """Which prompt stands in which rows of which step. Read once a step; a prompt is remembered by its hash.

    Of a run with too many steps or rollouts as many steps are read as memory allows, evenly spread.
    """

    def __init__(self, source: Source):
        self._source = source
        self._steps: dict[int, tuple[object, Array]] = {}
        self.left_out = 0

    def refresh(self) -> None:
        """Reads the steps that are new or have changed, and forgets those that have gone."""
        there = self._source.ledger_steps()
        most = min(THROUGH_STEPS, THROUGH_ROWS // max(self._newest_size(there), 1))
        every = math.ceil(len(there) / max(most, 1))
        steps = there[:: every or 1]
        self._steps = {step: known for step, known in self._steps.items() if step in set(steps)}
        refused = 0
        for step in steps:
            try:
                stamp = self._source.stamp(step)
                if step not in self._steps or self._steps[step][0] != stamp:
                    prompts = self._source.row_column(step, "prompt") or []
                    self._steps[step] = stamp, np.array([hash(prompt) for prompt in prompts], dtype=np.int64)
            except LedgerFileError:  # reported with the run
                refused += 1
                if refused == MAX_REFUSED:
                    break
        self.left_out = len(there) - len(self._steps)

    def _newest_size(self, there: Sequence[int]) -> int:
        """How many rollouts the newest step has that can be read."""
        for step in there[: -MAX_REFUSED - 1 : -1]:
            with suppress(LedgerFileError):
                return self._source.size(step)
        return 0

    def places(self, prompt: str) -> list[tuple[int, int]]:
        """(step, row) of every rollout of the prompt, in order."""
        self.refresh()
        key = hash(prompt)
        return [
            (s, row) for s, (_, keys) in sorted(self._steps.items()) for row in np.flatnonzero(keys == key).tolist()
        ]

    def recurring(self) -> list[dict[str, Any]]:
        """The prompts that came in most steps."""
        self.refresh()
        steps: Counter[int] = Counter()
        rows: Counter[int] = Counter()
        first: dict[int, tuple[int, int]] = {}
        for step, (_, keys) in sorted(self._steps.items()):
            for key, row, count in zip(*(found.tolist() for found in _distinct(keys)), strict=True):
                steps[key] += 1
                rows[key] += count
                first.setdefault(key, (step, row))
        found = []
        for key, count in sorted(steps.items(), key=lambda item: (-item[1], first[item[0]]))[:PROMPTS]:
            step, row = first[key]
            prompt = self._source.rollouts(step, [row], ["prompt"])[0].get("prompt") or ""
            found.append({"prompt": prompt, "answers": rows[key], "steps": count, "step": step, "row": row})
        return found


def _distinct(keys: Array) -> tuple[Array, Array, Array]:
    """Each key once, with the first row that has it and how many have."""
    return np.unique(keys, return_index=True, return_counts=True)


def through(source: Source, prompt: str, places: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """The answers to one prompt over the steps; of too many, as evenly spread a choice as fits."""
    names = (*THROUGH_COLUMNS, "token_ids", "scores", "response", "finish_reason", "outcome", "prompt")
    every = 1
    by_step: dict[int, list[int]] = {}
    for step, row in places:
        by_step.setdefault(step, []).append(row)
    if places:
        first = source.rollouts(*_first(places), ["response_mask"])[0]
        every = max(1, math.ceil(len(places) * max(len(first["response_mask"]), 1) / THROUGH_TOKENS))
    texts, answers, place = source.tokens(), [], 0
    for step, rows in sorted(by_step.items()):
        kept = [row for k, row in enumerate(rows, place) if k % every == 0]
        place += len(rows)
        for row, found in zip(kept, source.rollouts(step, kept, names, THROUGH_TOKENS) if kept else [], strict=True):
            if (found.get("prompt") or "") != prompt:  # a hash may be that of another text
                continue
            answers.append(
                {
                    "step": step,
                    "row": row,
                    "score": _score(found),
                    "finish_reason": found.get("finish_reason"),
                    "response": found.get("response") or "",
                    "tokens": texts.texts(_ids(found)),
                    "columns": numbers(found, THROUGH_COLUMNS, short=source.kind == "run"),
                }
            )
    return {"prompt": prompt, "answers": answers, "left_out": len(places) - len(answers)}


def _first(places: Sequence[tuple[int, int]]) -> tuple[int, list[int]]:
    step, row = places[0]
    return step, [row]
