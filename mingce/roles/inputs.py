"""Columns that only some estimators read: measured in a step if the estimator's inputs name them.

A new one is a column of the table (mingce.columns) and a function here, which fills it from what the roles can do. It
draws from seeds of its own and depends on nothing but the weights, so that a step repeated is the same step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mingce.ledger import Ledger
from mingce.roles.actor import Actor
from mingce.roles.reward import Reward
from mingce.tasks.base import Example


@dataclass(frozen=True)
class Rollouts:
    """What a step has once its rollouts are scored; `examples` holds each row's."""

    ledger: Ledger
    examples: Sequence[Example]
    step: int
    actor: Actor
    reward: Reward


def attention_weights(rollouts: Rollouts) -> None:
    """One more pass of the policy, which shows what the last token attends to."""
    rollouts.ledger.fill(rollouts.actor.attention(rollouts.ledger))


ON_REQUEST: dict[str, Callable[[Rollouts], None]] = {measure.__name__: measure for measure in (attention_weights,)}
"""By column."""


def measure_inputs(inputs: Iterable[str], rollouts: Rollouts) -> None:
    """Fills those of the inputs that are not there in every step."""
    for name in inputs:
        if name in ON_REQUEST:
            ON_REQUEST[name](rollouts)
