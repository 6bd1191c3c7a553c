"""Columns that only some estimators read: measured in a step if the estimator's inputs name them.

A new one is a column of the table (mingce.columns) and a function here, which fills it from what the roles can do. It
draws from seeds of its own and depends on nothing but the weights, so that a step repeated is the same step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mingce.ledger import Ledger
from mingce.roles.actor import Actor, row_seed
from mingce.roles.answers import draw_answers
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


def greedy_score(rollouts: Rollouts) -> None:
    """Every prompt answered once more by the likeliest tokens, and scored; its samples share the number."""
    ledger, actor = rollouts.ledger, rollouts.actor
    groups: list[str] = ledger.row("group")
    rows = [groups.index(group) for group in dict.fromkeys(groups)]  # the first sample of each prompt
    seeds = [row_seed(actor.config.seed, rollouts.step, len(ledger) + row) for row in rows]
    conversations = ledger.rows.get("conversation", list(range(len(ledger))))
    examples = [rollouts.examples[conversations[row]] for row in rows]
    answers = draw_answers(actor, examples, actor.sampling.greedy(), seeds)
    scores = rollouts.reward.scorer.score(examples, [answer.judged for answer in answers], seeds)
    paid = [answer.paid(score).total for answer, score in zip(answers, scores, strict=True)]
    score_of = {groups[row]: score for row, score in zip(rows, paid, strict=True)}
    ledger.fill_rows(greedy_score=[score_of[group] for group in groups])


ON_REQUEST: dict[str, Callable[[Rollouts], None]] = {
    measure.__name__: measure for measure in (attention_weights, greedy_score)
}
"""By column."""


def on_request(inputs: Iterable[str]) -> list[str]:
    """Those of the inputs that are not there in every step."""
    return [name for name in inputs if name in ON_REQUEST]


def measure_inputs(inputs: Iterable[str], rollouts: Rollouts) -> None:
    """Fills those of the inputs that are not there in every step."""
    for name in on_request(inputs):
        ON_REQUEST[name](rollouts)
