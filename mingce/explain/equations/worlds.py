"""The worlds an equation is tried in: the rollout at hand, many random rows, and a small world with an exact critic.

Random rows come from a fixed seed and are computed by the float64 twins. The world with an exact critic is a tree of
choices whose values are the true expected returns, so that what holds only in expectation can be told.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from mingce.algorithms import reference
from mingce.explain.derive.sheet import Sheet
from mingce.explain.equations.tree import Hole, Unknown
from mingce.specs import ESTIMATORS, KL_KINDS, Estimator
from mingce.specs.estimators import GAE
from mingce.specs.losses import POLICY_LOSSES, policy_ratio
from mingce.specs.rows import zeros

TRIALS = 6
SEED = 20240229
_ENDS = {"values": "end", "returns": "end", "mc_return": "end", "q": ""}
Columns = dict[str, list[float]]


@dataclass(frozen=True)
class Row:
    """One row's numbers by position of its chosen tokens, its settings, and what follows it."""

    columns: Columns
    settings: dict[str, float]
    end: float
    count: int
    length: int
    slots: tuple[int, ...] = ()
    groups: tuple[int, ...] = field(default=())
    weight: float = 1.0

    def number(self, kind: str, position: int) -> float:
        """A column's number; behind the row the bootstrap for what is worth something there, else 0."""
        if position < 0:
            raise Unknown(kind)
        if position >= self.count:
            return self.end if position == self.count and kind in _ENDS else 0.0
        column = self.columns.get(kind)
        if column is None or not math.isfinite(column[position]):
            raise Unknown(kind)
        return column[position]

    def setting(self, kind: str) -> float:
        if kind not in self.settings:
            raise Unknown(kind)
        return self.settings[kind]

    def position(self, slot: int) -> int:
        """The place of a slot among the chosen ones."""
        if slot >= self.length:
            return self.count + slot - self.length
        if slot not in self.slots:
            raise Hole(str(slot))
        return self.slots.index(slot)


def of_sheet(sheet: Sheet) -> Row:
    """The rollout at hand; columns it lacks are missing."""
    columns: Columns = {}
    names = ("scores", "kl", "rewards", "values", "deltas", "advantages", "returns", "ratio", "old_log_probs",
             "new_log_probs", "ref_log_probs", "policy_loss", "value_loss", "new_values")  # fmt: skip
    for name in names:
        column = sheet.column(name)
        if column is not None and not sheet.rollout.more_tokens:
            columns[name] = column
    for kind, name in (("whitened", "whitened_advantages"), ("used", "used")):
        column = sheet.column(name)
        if column is not None:
            columns[kind] = column
    chosen = sheet.rollout.settings
    settings = {"gamma": sheet.gamma, "lam": sheet.lam, "beta": sheet.beta, "eps": chosen.clip_high,
                "eps_v": chosen.value_clip}  # fmt: skip
    known = {name: float(x) for name, x in settings.items() if x is not None}
    _derived(columns, known, sheet.end)
    count = len(sheet.slots)
    return Row(columns, known, sheet.end, count, len(sheet.rollout.mask), tuple(sheet.slots))


def _derived(columns: Columns, settings: dict[str, float], end: float) -> None:
    """Columns that follow from others and have no name of their own in the ledger."""
    gamma = settings.get("gamma")
    for policy in ("old", "new", "ref"):
        if f"{policy}_log_probs" in columns:
            columns[f"{policy}_probs"] = [math.exp(min(x, 700.0)) for x in columns[f"{policy}_log_probs"]]
    if "old_log_probs" in columns and "new_log_probs" in columns:
        pairs = zip(columns["new_log_probs"], columns["old_log_probs"], strict=True)
        columns["log_ratio"] = [new - old for new, old in pairs]
    if "policy_loss" in columns:
        columns["objective"] = [-x for x in columns["policy_loss"]]
    if gamma is not None and "rewards" in columns:
        total = end
        to_go: list[float] = []
        for r in reversed(columns["rewards"]):
            total = r + gamma * total
            to_go.insert(0, total)
        columns["mc_return"] = to_go
        if "values" in columns:
            following = [*columns["values"][1:], end]
            columns["q"] = [r + gamma * v for r, v in zip(columns["rewards"], following, strict=True)]
    if "advantages" in columns:
        n, raw = len(columns["advantages"]), columns["advantages"]
        columns["mean_a"] = [math.fsum(raw) / n] * n
        columns["std_a"] = [math.sqrt(reference.masked_var([raw], [[1] * n]))] * n


# ── random rows ──────────────────────────────────────────────────────────────────────────────────────────────────────

CONDITIONS = (
    "lam1", "lam0", "gamma1", "beta0", "first", "no_clip", "raw", "k1", "k3", "sparse", "last",
)  # fmt: skip
"""What may make an equation hold that does not hold in general; `last` is a matter of which token."""


_FIXED = {"lam1": ("lam", 1.0), "lam0": ("lam", 0.0), "gamma1": ("gamma", 1.0), "beta0": ("beta", 0.0)}


def settings_under(conditions: Sequence[str]) -> dict[str, float]:
    """The settings that conditions fix; `lam=0.5` fixes one at a number."""
    fixed = dict(_FIXED[name] for name in conditions if name in _FIXED)
    for name, _, x in (condition.partition("=") for condition in conditions if "=" in condition):
        fixed[name] = float(x)
    return fixed


@lru_cache(maxsize=256)
def random_rows(
    conditions: tuple[str, ...], lengths: tuple[int, ...], estimator: str, cut: bool = False
) -> tuple[Row, ...]:
    """Rows of random numbers under these conditions, the same ones every time."""
    chance = random.Random(f"{SEED}{estimator}{cut}")
    return tuple(_random_row(chance, conditions, n, estimator, cut) for n in lengths)


def _random_row(chance: random.Random, conditions: Sequence[str], n: int, estimator: str, cut: bool) -> Row:
    def column(low: float, high: float) -> list[float]:
        return [chance.uniform(low, high) for _ in range(n)]

    settings = {"gamma": chance.uniform(0.8, 0.99), "lam": chance.uniform(0.2, 0.9), "beta": chance.uniform(0.05, 0.5),
                "eps": chance.uniform(0.1, 0.3), "eps_v": chance.uniform(0.1, 0.3)}  # fmt: skip
    settings |= settings_under(conditions)
    reach = 0.5 * settings["eps"] if "no_clip" in conditions else 0.8
    reach = 0.0 if "first" in conditions else reach
    old, ref, values, scores = column(-3, -0.1), column(-3, -0.1), column(-1, 1), column(-1, 1)
    moves, value_moves = column(-1, 1), column(-1, 1)
    if "sparse" in conditions:
        scores = [0.0] * (n - 1) + scores[-1:]
    new = [x + reach * move for x, move in zip(old, moves, strict=True)]
    new_values = [x + reach * move for x, move in zip(values, value_moves, strict=True)]
    end = chance.uniform(-1, 1)
    columns = {"scores": scores, "old_log_probs": old, "ref_log_probs": ref, "values": values, "new_log_probs": new,
               "new_values": new_values, "attention_weights": column(0.1, 1)}  # fmt: skip
    kind = next((name for name in reversed(conditions) if name in KL_KINDS), "k1")
    return computed(columns, settings, end if cut else 0.0, kind, "raw" in conditions, estimator)


def computed(columns: Columns, settings: dict[str, float], end: float, kl: str, raw: bool, estimator: str) -> Row:
    """A row with everything that follows from its inputs, by the twins."""
    n = len(columns["values"])
    one = [[1] * n]
    if "old_log_probs" in columns:
        pairs = zip(columns["old_log_probs"], columns["ref_log_probs"], strict=True)
        columns["kl"] = [reference.kl_penalty(old, ref, kl) for old, ref in pairs]
        columns["rewards"] = reference.kl_rewards([columns["scores"]], [columns["kl"]], one, settings["beta"])[0]
    spec = _usable(estimator)
    inputs: dict[str, list[list[float]]] = {name: [column] for name, column in columns.items()}
    row = {**inputs, "response_mask": one, "greedy_score": [0.3], "group": [0], "turn": zeros(one)}
    chosen = {"gamma": settings["gamma"], "lam": settings["lam"], "n": 2, "k": 2}
    credit = spec.estimate(row, chosen, [end])
    columns["deltas"] = reference.td0([columns["rewards"]], [columns["values"]], one, settings["gamma"], [end]).deltas[
        0
    ]
    columns["advantages"] = credit.advantages[0]
    columns["returns"] = [a + v for a, v in zip(columns["advantages"], columns["values"], strict=True)]
    columns["whitened"] = reference.masked_whiten([columns["advantages"]], one)[0]
    columns["used"] = columns["advantages"] if raw else columns["whitened"]
    if "new_log_probs" in columns:
        _losses(columns, settings)
    _derived(columns, settings, end)
    return Row(columns, settings, end, n, n, tuple(range(n)))


def _losses(columns: Columns, settings: dict[str, float]) -> None:
    n, eps = len(columns["values"]), settings["eps"]
    pairs = list(zip(columns["old_log_probs"], columns["new_log_probs"], strict=True))
    columns["ratio"] = [policy_ratio(old, new) for old, new in pairs]
    terms = POLICY_LOSSES["ppo"].terms(
        columns["old_log_probs"], columns["new_log_probs"], columns["used"], [1] * n,
        {"clip_low": eps, "clip_high": eps, "dual_clip": None},
    )  # fmt: skip
    columns["policy_loss"] = [terms[t].loss for t in range(n)]
    rows = zip(columns["new_values"], columns["returns"], columns["values"], strict=True)
    columns["value_loss"] = [reference.value_term(*row, settings["eps_v"]).loss for row in rows]


def _usable(estimator: str) -> Estimator:
    """The rollout's own estimator where a row alone is enough for it, else GAE."""
    spec = ESTIMATORS.get(estimator)
    return ESTIMATORS[GAE] if spec is None or spec.twin is None or spec.grouped else spec


# ── an exact critic ──────────────────────────────────────────────────────────────────────────────────────────────────

DEPTH = 4


@lru_cache(maxsize=64)
def exact_rows(conditions: tuple[str, ...], estimator: str) -> tuple[Row, ...]:
    """Every path through a tree of two choices a step, its values the true expected returns, weighted by chance.

    `groups` number the state before each token and, after them, the state with the choice taken.
    """
    chance = random.Random(SEED)
    settings = {"gamma": 0.9, "lam": 0.7, "beta": 0.0, "eps": 0.2, "eps_v": 0.2}
    settings |= settings_under(conditions) | {"beta": 0.0}
    first = {node: chance.uniform(0.2, 0.8) for depth in range(DEPTH) for node in _paths(depth)}
    reward = {node: chance.uniform(-1, 1) for depth in range(1, DEPTH + 1) for node in _paths(depth)}
    value = {node: 0.0 for node in _paths(DEPTH)}
    for depth in reversed(range(DEPTH)):
        for node in _paths(depth):
            shares = ((first[node], f"{node}0"), (1 - first[node], f"{node}1"))
            value[node] = math.fsum(p * (reward[after] + settings["gamma"] * value[after]) for p, after in shares)
    rows = []
    for path in _paths(DEPTH):
        states = [path[:t] for t in range(DEPTH)]
        weight = math.prod(first[s] if path[len(s)] == "0" else 1 - first[s] for s in states)
        rewards = [reward[path[: t + 1]] for t in range(DEPTH)]
        columns = {"rewards": rewards, "scores": list(rewards), "values": [value[s] for s in states]}
        columns["attention_weights"] = [1.0] * DEPTH
        row = computed(columns, settings, 0.0, "k1", True, estimator)
        groups = tuple(int(f"1{path[:t]}") for t in range(DEPTH + 1))
        rows.append(Row(row.columns, settings, 0.0, DEPTH, DEPTH, row.slots, groups, weight))
    return tuple(rows)


def _paths(depth: int) -> list[str]:
    return [f"{k:0{depth}b}" if depth else "" for k in range(2**depth)]
