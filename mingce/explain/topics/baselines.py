"""What advantages are measured against and on which scale: whitening, groups, and where the reward is paid."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from mingce.algorithms import reference
from mingce.explain.topic import Grid, Values, listed, topic
from mingce.explain.topics.chosen import equation, plain, rows_of, token_of
from mingce.explain.topics.steps import credit_numbers, walk
from mingce.record.rollout import Rollout, Whitening


class _Whitening(NamedTuple):
    """A row's advantages before and after, one a token in the losses, and the statistics of the batch."""

    slots: list[int]
    raw: list[float]
    white: list[float]
    mean: float
    variance: float
    spread: float
    tokens: int


def _whitening(rollout: Rollout) -> _Whitening:
    columns = rollout.columns
    slots = reference.chosen(columns.get("loss_mask") or ()) or reference.chosen(columns["response_mask"])
    raw = [plain(float(columns["advantages"][t])) for t in slots]
    batch = rollout.whitening
    if batch is None:
        row = [[1] * len(raw)]
        mean, variance = reference.masked_mean([raw], row), reference.masked_var([raw], row)
        batch = Whitening(mean, math.sqrt(variance), variance, len(raw))
    mean, variance = batch.mean, batch.variance
    spread = math.sqrt(variance + batch.epsilon)
    white = [plain((x - mean) / spread) if variance > 0 else 0.0 for x in raw]
    return _Whitening(slots, raw, white, plain(mean), variance, spread, batch.count)


@topic
def whitening(rollout: Rollout, t: int) -> Values:
    found = _whitening(rollout)
    k = found.slots.index(t) if t in found.slots else 0
    numbers: Values = {
        "t": found.slots[k],
        "token": token_of(rollout, found.slots[k]),
        "row_count": len(found.slots),
        "count": found.tokens,
        "mean": found.mean,
        "std": found.spread,
        "std_biased": math.sqrt(found.variance * (found.tokens - 1) / found.tokens),
        "raw": found.raw[k],
        "whitened": found.white[k],
        "raw_list": listed(found.raw),
        "whitened_list": listed(found.white),
        "positive_before": sum(x > 0 for x in found.raw),
        "positive_after": sum(x > 0 for x in found.white),
    }
    return numbers | {"white_equation": equation("({raw} − {mean})/{std} = {whitened}", numbers)}


@topic
def returns_raw(rollout: Rollout, t: int) -> Values:
    """The critic's targets from raw and, wrongly, from whitened advantages."""
    found = _whitening(rollout)
    values = [float(rollout.columns["values"][slot]) for slot in found.slots]
    right = [plain(a + v) for a, v in zip(found.raw, values, strict=True)]
    wrong = [plain(a + v) for a, v in zip(found.white, values, strict=True)]
    k = found.slots.index(t) if t in found.slots else 0
    here = {"value": values[k], "return": right[k], "raw": found.raw[k]}
    return (
        whitening.numbers(rollout, t)
        | here
        | {
            "identity": equation("{return} − {value} = {raw}", here),
            "wrong_return": wrong[k],
            "values": listed(values),
            "returns": listed(right),
            "wrong_returns": listed(wrong),
            "mean_value": plain(math.fsum(values) / len(values)),
            "mean_return": plain(math.fsum(right) / len(right)),
            "mean_wrong": plain(math.fsum(wrong) / len(wrong)),
            "mean_white": plain(math.fsum(found.white) / len(values)),
        }
    )


class _Group(NamedTuple):
    """The answers to one prompt: their rewards and masks, which of them is at hand, how many are made up."""

    rewards: list[list[float]]
    masks: list[list[int]]
    own: int
    made_up: int


def _group(rollout: Rollout) -> _Group:
    """The recorded group where it is whole; else the answer at hand, one that earned the same, and two that got 0."""
    siblings = rollout.siblings
    rows = [sibling.row for sibling in siblings]
    whole = not rollout.siblings_left_out and all("rewards" in sibling.columns for sibling in siblings)
    if whole and len(siblings) > 1 and rollout.row in rows:
        masks = [[int(bool(m)) for m in sibling.columns["response_mask"]] for sibling in siblings]
        rewards = [[0.0 if x is None else float(x) for x in sibling.columns["rewards"]] for sibling in siblings]
        return _Group(rewards, masks, rows.index(rollout.row), 0)
    columns = rollout.columns
    own = [0.0 if x is None else float(x) for x in columns["rewards"]]
    mask = [int(bool(m)) for m in columns["response_mask"]]
    total = math.fsum(own[t] for t in reference.chosen(mask))
    return _Group([own, [total], [0.0], [0.0]], [mask, [1], [1], [1]], 0, 3)


@topic
def group_baseline(rollout: Rollout, t: int) -> Values:
    found = _group(rollout)
    slots = reference.chosen(rollout.columns["response_mask"])
    group = [0] * len(found.rewards)
    filled = [b for b, mask in enumerate(found.masks) if any(mask)]
    totals = {b: math.fsum(found.rewards[b][s] for s in reference.chosen(found.masks[b])) for b in filled}
    size, own = len(filled), totals[found.own]
    mean = math.fsum(totals.values()) / size
    variance = math.fsum((total - mean) ** 2 for total in totals.values()) / max(1, size - 1)
    first = reference.chosen(found.masks[found.own])[0]
    rloo = reference.rloo(found.rewards, found.masks, group)[found.own][first]
    numbers: Values = {
        "t": t if t in slots else slots[0],
        "token": token_of(rollout, t if t in slots else slots[0]),
        "group_size": size,
        "made_up": found.made_up,
        "totals": listed([plain(total) for total in totals.values()]),
        "own": plain(own),
        "group_mean": plain(mean),
        "group_std": plain(math.sqrt(variance)),
        "others_mean": plain((math.fsum(totals.values()) - own) / max(1, size - 1)),
        "by_grpo": plain(reference.grpo(found.rewards, found.masks, group)[found.own][first]),
        "by_dr_grpo": plain(reference.dr_grpo(found.rewards, found.masks, group)[found.own][first]),
        "by_rloo": plain(rloo),
        "rloo_scaled": plain(rloo * (size - 1) / size),
        "count_chosen": len(slots),
    }
    return numbers | {
        "grpo_equation": equation("({own} − {group_mean})/({group_std} + ε) = {by_grpo}", numbers),
        "dr_grpo_equation": equation("{own} − {group_mean} = {by_dr_grpo}", numbers),
        "rloo_equation": equation("{own} − {others_mean} = {by_rloo}", numbers),
    }


@group_baseline.with_grid
def _compared_grid(rollout: Rollout, t: int) -> Grid:
    """The group's estimators, and GAE where there is a critic, on the first token, on t and on the last."""
    numbers = group_baseline.numbers(rollout, t)
    slots = reference.chosen(rollout.columns["response_mask"])
    places = list(dict.fromkeys((slots[0], numbers["t"], slots[-1])))
    rows: list[tuple[Any, ...]] = [
        ("grpo", numbers["group_mean"], *[numbers["by_grpo"]] * len(places)),
        ("dr_grpo", numbers["group_mean"], *[numbers["by_dr_grpo"]] * len(places)),
        ("rloo", numbers["others_mean"], *[numbers["by_rloo"]] * len(places)),
    ]
    if "values" in rollout.columns:
        w = walk(rollout)
        rows.append(("gae", "V(s_t)", *(w.advantages[w.place(slot)] for slot in places)))
    return Grid(("estimator", "baseline", *(f"A_{slot}" for slot in places)), tuple(rows))


class _Paid(NamedTuple):
    """The example's total reward paid at the end, and in equal parts, with what is still to come of each."""

    sparse: list[float]
    dense: list[float]
    sparse_returns: list[float]
    dense_returns: list[float]


def _paid(rollout: Rollout) -> _Paid:
    w = walk(rollout)
    count, total = len(w.slots), math.fsum(w.rewards)
    sparse, dense = [0.0] * (count - 1) + [total], [total / count] * count
    mask = [[1] * count]
    returns = [reference.reinforce_plus_plus([row], mask, w.gamma)[0] for row in (sparse, dense)]
    return _Paid(sparse, dense, *([plain(x) for x in row] for row in returns))


@topic
def reward_sparse_dense(rollout: Rollout, t: int) -> Values:
    w, paid = walk(rollout), _paid(rollout)
    return credit_numbers(rollout, t) | {
        "total": plain(math.fsum(w.rewards)),
        "part": plain(paid.dense[0]),
        "last_reward": w.rewards[-1],
        "other_rewards": plain(math.fsum(w.rewards[:-1])),
        "sparse_returns": listed(paid.sparse_returns),
        "dense_returns": listed(paid.dense_returns),
        "first_equation": equation(
            "{first_return} − {first_value} = {first_excess}",
            {
                "first_return": w.mc_returns[0],
                "first_value": w.values[0],
                "first_excess": w.mc_advantages[0],
            },
        ),
        "shaped_sum": plain(math.fsum(w.gamma**k * delta for k, delta in enumerate(w.deltas))),
    }


@reward_sparse_dense.with_grid
def _paid_grid(rollout: Rollout, t: int) -> Grid:
    w, paid = walk(rollout), _paid(rollout)

    def row(k: int) -> tuple[Any, ...]:
        return w.slots[k], token_of(rollout, w.slots[k]), w.rewards[k], *(column[k] for column in paid)

    headings = "t", "token", "r_example", "r_sparse", "r_dense", "G_sparse", "G_dense"
    return Grid(headings, tuple(rows_of(len(w.slots), row)))
