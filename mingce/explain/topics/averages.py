"""What is taken over many choices: the entropy of one, and the losses of all."""

from __future__ import annotations

import math

from mingce.algorithms import reference
from mingce.explain.topic import Grid, Values, listed, topic
from mingce.explain.topics.chosen import chosen_slots, each, log_probs, mean
from mingce.record.rollout import Rollout
from mingce.specs import AGGREGATIONS


@topic
def entropy(rollout: Rollout, t: int) -> Values:
    old = rollout.columns["old_log_probs"]
    surprisal = each(rollout, lambda s: -old[s])
    prob = min(math.exp(old[t]), 1.0)
    rest = math.log1p(-prob) if prob < 1 else -math.inf
    return {
        "old_prob": prob,
        "surprisal": surprisal[t],
        "surprisals": listed(surprisal),
        "entropy_estimate": mean(surprisal),
        "entropy_least": reference.entropy([math.log(prob), rest]),
    }


def _two_rows(rollout: Rollout) -> tuple[list[list[float]], list[list[int]]]:
    """A batch of two: the rollout's token losses, and the same cut after its first chosen token."""
    old, new = log_probs(rollout)
    raw, slots = rollout.columns["advantages"], chosen_slots(rollout)
    whole = [reference.cpi_term(old[s], new[s], raw[s]) if s in slots else 0.0 for s in range(len(raw))]
    masks = [[int(s in slots) for s in range(len(raw))], [int(s == slots[0]) for s in range(len(raw))]]
    return [whole, whole], masks


@topic
def loss_aggregation(rollout: Rollout, t: int) -> Values:
    losses, masks = _two_rows(rollout)
    slots = chosen_slots(rollout)
    return {
        "loss_list": listed([losses[0][s] if s in slots else None for s in range(len(losses[0]))]),
        "loss_sum": math.fsum(losses[0][s] for s in slots),
        "loss_mean": reference.agg_loss(losses[:1], masks[:1]),
        "first_token": rollout.tokens[slots[0]].text,
        "first_loss": losses[0][slots[0]],
        "both_count": len(slots) + 1,
        "token_mean": reference.agg_loss(losses, masks, "token-mean"),
        "row_mean": reference.agg_loss(losses, masks, "seq-mean-token-mean"),
    }


@loss_aggregation.with_grid
def _average_grid(rollout: Rollout, t: int) -> Grid:
    losses, masks = _two_rows(rollout)
    rows = tuple((mode, reference.agg_loss(losses, masks, mode)) for mode in AGGREGATIONS)
    return Grid(("mode", "loss"), rows)
