"""The account of answers to held-out prompts: what each token would have earned, as a ledger."""

from __future__ import annotations

from dataclasses import replace

from mingce.config import Config
from mingce.credit import assign_advantages, assign_rewards
from mingce.engine.local import Roles
from mingce.ledger import Ledger
from mingce.roles.answers import answers_ledger
from mingce.roles.inputs import on_request
from mingce.specs import find_estimator
from mingce.training.evaluation import Evaluation


def accounts(roles: Roles, config: Config, evaluation: Evaluation, step: int, beta: float) -> Ledger:
    """The first sampled answers with what each token would have earned: the columns of a step before its updates.

    An estimator that compares the samples of a prompt, or measures more, has nothing to say of a single answer; its
    advantages are left out. Whitened ones are those of a whole batch.
    """
    count = min(config.keep.validation_prompts, len(evaluation.sampled))
    answers, drawn = [row[0] for row in evaluation.sampled[:count]], evaluation.drawn[:count]
    ledger = answers_ledger(roles.actor, [answer.example for answer in answers], drawn, step)
    scores = [replace(a.score, score=a.score.score - one.earned) for a, one in zip(answers, drawn, strict=True)]
    ledger.fill(roles.reward.pay(ledger, scores))  # what turns earned is paid by it too
    ledger.fill(roles.actor.log_probs(ledger))
    if roles.reference is not None:
        ledger.fill(roles.reference.log_probs(ledger))
    if roles.critic is not None:
        ledger.fill(roles.critic.values(ledger))
    assign_rewards(ledger, config, beta)
    spec = find_estimator(config.estimator)
    if spec.kind not in ("group", "own") and not on_request(spec.inputs):
        assign_advantages(ledger, config)
    return ledger
