"""The numbers that pasted code is tried on: made-up batches that tell kinds of lines apart, and the example at hand.

A role's value is a column (rows × tokens), a vector (one a row) or a number. What follows from other roles is written
as an expression in DERIVED and evaluated like pasted code.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from mingce.algorithms import reference
from mingce.explain.snippets.evaluator import Budget, Evaluator
from mingce.explain.snippets.tensor import EvaluationError, Tensor, scalar, tensor, vector

Environment = dict[str, Tensor]
Matrix = list[list[float]]

DERIVED = {
    "padding_mask": "1 - response_mask",
    "log_ratio": "new_log_probs - old_log_probs",
    "ref_log_ratio": "ref_log_probs - old_log_probs",
    "ref_ratio": "exp(ref_log_ratio)",
    "kl_k2": "0.5 * square(old_log_probs - ref_log_probs)",
    "kl_k3": "exp(ref_log_ratio) - ref_log_ratio - 1",
    "kl_reward": "-beta * kl",
    "kl_cost": "beta * kl",
    "ratio": "exp(log_ratio)",
    "rollout_weight": "exp(old_log_probs - rollout_log_probs)",
    "clipped_ratio": "clip(ratio, 1 - eps_low, 1 + eps_high)",
    "clipped_ratio_detached": "clipped_ratio.detach()",
    "whitened_advantages": "masked_whiten(advantages, response_mask)",
    "advantages_mean": "masked_mean(advantages, response_mask)",
    "advantages_std": "sqrt(masked_var(advantages, response_mask))",
    "pg_plain": "-advantages * ratio",
    "pg_clipped": "-advantages * clipped_ratio",
    "pg_max": "maximum(pg_plain, pg_clipped)",
    "pg_dual": "-advantages * dual_clip",
    "dual_min": "minimum(pg_dual, pg_max)",
    "policy_losses": "where(advantages < 0, dual_min, pg_max)",
    "surrogate": "ratio * advantages",
    "surrogate_clipped": "clipped_ratio * advantages",
    "surrogate_min": "minimum(surrogate, surrogate_clipped)",
    "dual_max": "maximum(surrogate_min, dual_clip * advantages)",
    "loss_mat": "pg_max",
    "pg_loss": "masked_mean(pg_max, response_mask)",
    "pg_clipfrac": "masked_mean(gt(pg_clipped, pg_plain), response_mask)",
    "ppo_kl": "masked_mean(-log_ratio, response_mask)",
    "per_token_loss": "pg_max + beta * kl_k3",
    "seq_losses": "masked_sum(pg_max, response_mask, -1)",
    "group_lengths": "sum(response_mask, -1)",
    "token_count": "sum(response_mask)",
    "values_mean": "masked_mean(values, response_mask)",
    "values_centred": "values - values_mean",
    "values_var": "masked_mean(square(values_centred), response_mask)",
    "values_sum": "sum(values * response_mask)",
    "bessel": "token_count / (token_count - 1)",
    "row_mask": "group_lengths > 0",
    "seq_means": "seq_losses / group_lengths",
    "seq_log_ratio": "sum(log_ratio * response_mask, -1) / group_lengths",
    "seq_ratio": "exp(seq_log_ratio)",
    "token_seq_log_ratio": "new_log_probs - new_log_probs.detach() + seq_log_ratio.detach().unsqueeze(-1)",
    "token_seq_ratio": "exp(token_seq_log_ratio)",
    "value_clip": "clip(new_values, values - eps_value, values + eps_value)",
    "vf_plain": "square(new_values - returns)",
    "vf_clipped": "square(value_clip - returns)",
    "vf_max": "maximum(vf_plain, vf_clipped)",
    "vf_loss": "0.5 * masked_mean(vf_max, response_mask)",
    "vf_clipfrac": "masked_mean(gt(vf_clipped, vf_plain), response_mask)",
    "current_kl": "masked_mean(kl, response_mask)",
    "kl_error": "clip(current_kl / target_kl - 1, -0.2, 0.2)",
    "kl_multiplier": "1 + kl_error * n_steps / horizon",
    "group_scores": "sum(rewards * response_mask, -1)",
    "group_mean": "mean(group_scores)",
    "group_std": "std(group_scores)",
    "group_advantages": "group_scores - group_mean",
    "others_mean": "(sum(group_scores) - group_scores) / (group_size - 1)",
    "group_baseline": "sum(group_lengths * group_scores) / sum(group_lengths)",
    "probs": "softmax(logits)",
    "log_softmax": "log_softmax(logits)",
    "entropies": "entropy_from_logits(logits)",
    "entropy_loss": "masked_mean(entropies, response_mask)",
}
"""What follows from the measured columns, in this order; what cannot be computed is left out."""

SETTINGS = {
    "gamma": 0.97, "lam": 0.9, "beta": 0.13, "eps_low": 0.2, "eps_high": 0.2, "eps": 0.2, "dual_clip": 3.0,
    "eps_value": 0.1, "vf_coef": 0.3, "entropy_coef": 0.02, "target_kl": 0.17, "n_steps": 7.0, "horizon": 40.0,
    "tiny": 1e-6, "zero": 0.0,
}  # fmt: skip
"""Numbers for the made-up batches, no two of which can be mistaken for each other where they meet."""


@cache
def parsed(expression: str) -> ast.expr:
    """An expression of ours as a tree."""
    return ast.parse(expression, mode="eval").body


def evaluate(expression: str, environment: Environment) -> Tensor:
    """An expression in roles; a role that is not known is an EvaluationError."""

    def lookup(name: str, bare: bool) -> Any:
        if name not in environment:
            raise EvaluationError(f"{name} is not known")
        return environment[name]

    return Evaluator(lookup, Budget()).tensor(parsed(expression))


def completed(environment: Environment) -> Environment:
    """With every derived role that can be computed."""
    for role, expression in DERIVED.items():
        if role not in environment:
            try:
                environment[role] = evaluate(expression, environment)
            except EvaluationError:
                continue
    return environment


def build(
    columns: Mapping[str, Matrix],
    settings: Mapping[str, float],
    flat: bool = False,
    filler: float = 0.0,
    after: float = 0.0,
) -> Environment:
    """The environment of measured columns; `flat` has one row without the dimension of rows.

    `filler` makes the advantages of slots that were not chosen, which mean nothing and differ between trainers;
    `after` is the value of the state after the last token.
    """
    columns = dict(columns)
    mask = [[int(m) for m in row] for row in columns["response_mask"]]
    rows, length = len(mask), len(mask[0])
    gamma, lam = settings["gamma"], settings["lam"]
    columns["done"] = [[float(t == max(_slots(row), default=-1)) for t in range(length)] for row in mask]
    columns["not_done"] = [[1.0 - x for x in row] for row in columns["done"]]
    if "rewards" in columns and "values" in columns:
        columns |= _credit(columns["rewards"], columns["values"], mask, gamma, lam, after)
        columns["next_values"] = following(columns["values"], mask, after)
        columns["next_values_kept"] = [[*row[1:], row[-1]] for row in columns["values"]]
        columns["values_before"] = [[0.0, *row[:-1]] for row in columns["values"]]
        columns["next_values_rolled"] = [[*row[1:], row[0]] for row in columns["values"]]
    if "advantages" in columns:
        columns["next_advantages"] = following(columns["advantages"], mask)
        columns["advantages"] = [
            [x if m else filler * (1 + t) for t, (x, m) in enumerate(zip(row, kept, strict=True))]
            for row, kept in zip(columns["advantages"], mask, strict=True)
        ]
    if "rewards" in columns:
        columns |= _returns(columns["rewards"], mask, gamma)
    trained = {"new_log_probs", "new_values"}
    made: Environment = {}
    for name, matrix in columns.items():
        slope = 1.0 if name in trained else 0.0
        made[name] = vector(matrix[0], slope) if flat else tensor(matrix, slope)
    if flat:
        for name in ("values", "rewards"):
            if name in columns:
                made[f"{name}_extended"] = vector([*columns[name][0], after if name == "values" else 0.0])
    made |= {name: scalar(x) for name, x in settings.items()}
    made |= {"length": scalar(length), "group_size": scalar(rows), "zero": scalar(0.0), "one": scalar(1.0)}
    return completed(made)


def _slots(row: list[int]) -> list[int]:
    return [t for t, m in enumerate(row) if m]


def _credit(
    rewards: Matrix, values: Matrix, mask: list[list[int]], gamma: float, lam: float, after: float
) -> dict[str, Matrix]:
    credit = reference.gae(rewards, values, mask, gamma, lam, [after] * len(mask))
    found = {"deltas": credit.deltas, "advantages": credit.advantages, "returns": credit.returns}
    return {name: [list(row) for row in matrix] for name, matrix in found.items()}


def _returns(rewards: Matrix, mask: list[list[int]], gamma: float) -> dict[str, Matrix]:
    sums = [list(row) for row in reference.reinforce_plus_plus(rewards, mask, gamma)]
    plain = [list(row) for row in reference.reinforce_plus_plus(rewards, mask, 1.0)]
    return {"mc_returns": sums, "next_returns": following(sums, mask), "reward_to_go": plain}


def following(matrix: Sequence[Sequence[float]], mask: Sequence[Sequence[int]], last: float = 0.0) -> Matrix:
    """At each slot the number of the next chosen one, `last` behind the last."""
    found = []
    for row, kept in zip(matrix, mask, strict=True):
        after, shifted = last, [0.0] * len(row)
        for t in reversed(range(len(row))):
            shifted[t] = after
            after = row[t] if kept[t] else after
        found.append(shifted)
    return found


def _wave(seed: int, low: float, high: float, rows: int, length: int) -> Matrix:
    """Numbers that look random and are the same everywhere."""
    state, matrix = seed * 7919 + 17, []
    for _ in range(rows):
        row = []
        for _ in range(length):
            state = (state * 1103515245 + 12345) % 2**31
            row.append(low + (high - low) * (state / 2**31))
        matrix.append(row)
    return matrix


def _hidden(matrix: Matrix, mask: Matrix) -> Matrix:
    return [[x * m for x, m in zip(row, kept, strict=True)] for row, kept in zip(matrix, mask, strict=True)]


@cache
def probe(holes: bool = False, flat: bool = False) -> Environment:
    """A made-up batch of three samples of one prompt, padded at their ends; with `holes` also inside."""
    rows, length = (1, 6) if flat else (3, 6)
    mask = [[1.0] * 6, [1.0] * 4 + [0.0] * 2, [1.0] * 5 + [0.0]][:rows]
    if holes:
        mask = [[1.0, 1, 0, 1, 1, 1], [1.0, 0, 0, 1, 0, 0], [1.0, 1, 1, 0, 1, 0]][:rows]
    old = _wave(1, -1.6, -0.2, rows, length)
    moves = [[0.05, -0.4, 1.5, 0.3, -0.05, 1.3], [-0.5, 0.4, 1.4, 0.02, 0.3, 0.1], [0.35, -0.3, 0.1, 1.6, -0.7, 0.2]]
    new = [[o + m for o, m in zip(row, move, strict=True)] for row, move in zip(old, moves[:rows], strict=True)]
    values = _hidden(_wave(4, -0.8, 0.9, rows, length), mask)
    shifts = _wave(5, -0.3, 0.3, rows, length)
    ref = _wave(2, -1.9, -0.3, rows, length)
    columns = {
        "response_mask": mask, "old_log_probs": old, "new_log_probs": new, "ref_log_probs": ref,
        "rollout_log_probs": _wave(3, -1.5, -0.3, rows, length),
        "scores": _hidden(_wave(6, -0.6, 0.9, rows, length), mask), "values": values,
        "new_values": [[v + s for v, s in zip(row, shift, strict=True)] for row, shift in zip(values, shifts,
            strict=True)],
        "token_ids": [[float((b + t) % 3) for t in range(length)] for b in range(rows)],
    }  # fmt: skip
    kl = [[o - r for o, r in zip(row, other, strict=True)] for row, other in zip(old, ref, strict=True)]
    beta = SETTINGS["beta"]
    columns["kl"] = kl
    columns["rewards"] = _hidden(
        [
            [s - beta * k for s, k in zip(row, other, strict=True)]
            for row, other in zip(columns["scores"], kl, strict=True)
        ],
        mask,
    )
    made = build(columns, SETTINGS, flat, filler=0.11)
    made["greedy_score"] = vector([0.4, -0.2, 0.7][:rows])
    flat_logits = [x for row in _wave(8, -1.5, 1.5, rows * length, 3) for x in row]
    shape = (length, 3) if flat else (rows, length, 3)
    made["logits"] = Tensor(shape, tuple((x, 0.3 * k % 1.0) for k, x in enumerate(flat_logits)))
    return completed(made)
