"""A step at a glance: a line a rollout, histograms, the best and worst of each group, the whitening's moments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mingce.view.source import Array, Source, mask_of

CUT = 400
BINS = 40
EPSILON = 1e-8  # as mingce.algorithms.masking adds to the variance
_FLOAT32_EPS = 2.0**-23


def step_table(source: Source, step: int, search: str = "") -> list[dict[str, Any]]:
    """One entry a rollout; with `search` those whose prompt or response contains it."""
    mask = mask_of(source, step)
    size = len(mask.offsets) - 1
    scores = source.token_column(step, "scores")
    outcome = source.row_column(step, "outcome") if source.kind == "dump" else None
    score: Any = outcome or [None] * size
    if scores is not None:
        score = scores.sums(mask.values & np.isfinite(scores.values)).tolist()
    lengths = np.bincount(mask.rows, weights=mask.values, minlength=size).astype(int)
    columns: dict[str, Any] = {
        "kl": _row_means(source, step, lengths),
        "length": lengths.tolist(),
        "max_abs_advantage": _row_max(source, step, "advantages", mask.values, size),
        "score": score,
    }
    for name, stored in {
        "uid": "uid",
        "group": "group",
        "parts": "score_parts",
        "finish_reason": "finish_reason",
    }.items():
        columns[name] = source.row_column(step, stored) or [None] * size
    prompts, responses = (source.row_column(step, name) or [""] * size for name in ("prompt", "response"))
    table = []
    for row in range(size):
        prompt, response = prompts[row] or "", responses[row] or ""
        if search and search not in prompt and search not in response:
            continue
        entry = {name: values[row] for name, values in columns.items()}
        table.append({"row": row, "prompt": cut(prompt), "response": cut(response)} | entry)
    return table


def cut(text: str) -> str:
    """A text as the table shows it."""
    return text if len(text) <= CUT else text[: CUT - 1] + "…"


def _row_means(source: Source, step: int, lengths: Array) -> list[float | None]:
    kl = source.token_column(step, "kl")
    if kl is None:
        return [None] * len(lengths)
    mask = mask_of(source, step)
    sums = kl.sums(mask.values & np.isfinite(kl.values))
    return [float(total / n) if n else None for total, n in zip(sums, lengths, strict=True)]


def _row_max(source: Source, step: int, name: str, mask: Array, size: int) -> list[float | None]:
    column = source.token_column(step, name)
    if column is None:
        return [None] * size
    largest = np.full(size, -1.0)
    kept = mask & np.isfinite(column.values)
    np.maximum.at(largest, column.rows[kept], np.abs(column.values[kept]))
    return [float(x) if x >= 0 else None for x in largest]


def histograms(source: Source, step: int) -> dict[str, Any]:
    """Rewards summed over each rollout, advantages and ratios of each chosen token."""
    mask = mask_of(source, step)
    found: dict[str, Any] = {}
    rewards = source.token_column(step, "rewards")
    if rewards is not None:
        sums = rewards.sums(mask.values & np.isfinite(rewards.values))
        found["rewards"] = {"of": "rollout"} | histogram(sums)
    for name in ("advantages", "ratio"):
        column = source.token_column(step, name)
        if column is not None:
            found[name] = {"of": "token"} | histogram(column.values[mask.values])
    return found


def histogram(values: Array) -> dict[str, Any]:
    """Counts between edges; numbers that are not finite are counted as dropped."""
    finite = values[np.isfinite(values)].astype(np.float64)
    if not len(finite):
        return {"edges": [], "counts": [], "dropped": len(values)}
    low, high = float(finite.min()), float(finite.max())
    if high - low <= 1e-12 * max(abs(low), abs(high), 1.0):  # all the same: one bin of a width that can be drawn
        return {"edges": [low - 0.5, high + 0.5], "counts": [len(finite)], "dropped": len(values) - len(finite)}
    counts, edges = np.histogram(finite, bins=BINS, range=(low, high))
    return {"edges": edges.tolist(), "counts": counts.tolist(), "dropped": len(values) - len(finite)}


def groups(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each group's best and worst rollout, in the order in which they appear."""
    members: dict[Any, list[dict[str, Any]]] = {}
    for entry in table:
        if entry["group"] is not None and entry["score"] is not None and math.isfinite(entry["score"]):
            members.setdefault(entry["group"], []).append(entry)
    return [
        {
            "group": group,
            "size": len(rows),
            "mean": sum(row["score"] for row in rows) / len(rows),
            "best_row": max(rows, key=lambda row: row["score"])["row"],
            "worst_row": min(rows, key=lambda row: row["score"])["row"],
        }
        for group, rows in members.items()
    ]


def whitening(source: Source, step: int) -> dict[str, Any] | None:
    """Mean and spread of the step's raw advantages over the tokens in the losses: what whitening takes them by."""
    column = source.token_column(step, "advantages")
    if column is None:
        return None
    mask = mask_of(source, step, "loss_mask").values
    values = column.values[mask & np.isfinite(column.values)].astype(np.float64)
    mean = float(values.mean()) if len(values) else 0.0
    variance = float(((values - mean) ** 2).sum() / (len(values) - 1)) if len(values) > 1 else 0.0
    variance = variance if variance > (_FLOAT32_EPS * abs(mean)) ** 2 else 0.0
    return {"mean": mean, "std": math.sqrt(variance), "variance": variance, "count": len(values), "epsilon": EPSILON}
