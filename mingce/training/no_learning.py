"""Says when steps pass and nothing is learned: a judgement over the metrics of the last few steps, and why.

Everything is a function of recorded metrics, so a resumed run judges as one that was never stopped. A cause is told
once in a run.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from mingce.base.texts import sentence
from mingce.config import Config
from mingce.credit import whitens
from mingce.specs import KL_KINDS, find_estimator
from mingce.specs.kl import kl_name

WINDOW = 3
"""How many steps in a row must show it."""
OUTWEIGHS = 2.0
"""How many times the spread of the scores the KL's share of a rollout's reward must be; the same for its losses."""
NOTABLE = 0.1
"""Of the spread of the scores, what the KL must cost the mean rollout for that to be worth a warning."""
Metrics = Mapping[str, float]


@dataclass(frozen=True)
class Standstill:
    """Why nothing is learned: a name for it, and the sentence with its numbers and what to try."""

    cause: str
    sentence: str


class Lookout:
    """Looks at every step's metrics of a run and says, once for each cause, that nothing is learned."""

    def __init__(self, config: Config, history: Sequence[Metrics] = (), told: Sequence[str] = ()):
        """`history` are the metrics of the steps before, `told` the causes that the run was told of already."""
        self.config = config
        self.recent: deque[Metrics] = deque(history, maxlen=WINDOW)
        self.told = set(told)

    def look(self, metrics: Metrics) -> Standstill | None:
        """What to say after a step with these metrics, if anything."""
        self.recent.append(metrics)
        found = standstill(list(self.recent), self.config)
        if found is None or found.cause in self.told:
            return None
        self.told.add(found.cause)
        return found


def standstill(recent: Sequence[Metrics], config: Config) -> Standstill | None:
    """Why the last steps taught nothing, if they are `WINDOW` and did not: the deepest cause only."""
    if len(recent) < WINDOW:
        return None
    for cause, holds in (_CAUSES | {"kl_loss": partial(_kl_loss_outweighs, config)}).items():
        if holds(recent):
            return Standstill(cause, sentence(f"training.standstill_{cause}", **_numbers(recent, config)))
    return None


def settings_without_learning(config: Config) -> list[str]:
    """What of the settings alone keeps the policy from learning."""
    said = [sentence("training.lr_zero")] if config.actor.lr == 0 else []
    if config.credit.gamma == 0 and "gamma" in find_estimator(config.estimator).settings:
        said.append(sentence("training.gamma_zero"))
    return said


def _all(recent: Sequence[Metrics], holds: Callable[[Metrics], bool], *names: str) -> bool:
    return all(all(name in step for name in names) and holds(step) for step in recent)


def _empty(recent: Sequence[Metrics]) -> bool:
    """Answers of nothing but their end; one of a single token that was cut is something else."""
    longest, cut = "response_length/max", "response_length/clip_ratio"
    return _all(recent, lambda x: x[longest] == 0 or (x[longest] == 1 and x[cut] == 0), longest, cut)


def _cut(recent: Sequence[Metrics]) -> bool:
    """All cut by the limit; where that is meant, answers still differ in what they score."""
    scores = ("critic/score/max", "critic/score/min")
    alike = _without_signal(recent) or _all(recent, lambda x: x[scores[0]] == x[scores[1]], *scores)
    return alike and _all(recent, lambda x: x["response_length/clip_ratio"] == 1, "response_length/clip_ratio")


def _same_scores(recent: Sequence[Metrics]) -> bool:
    names = ("critic/score/max", "critic/score/min")
    return _all(recent, lambda x: True, *names) and len({x[name] for x in recent for name in names}) == 1


def _without_signal(recent: Sequence[Metrics]) -> bool:
    return _all(recent, lambda x: x["train/rows_without_signal"] == 1, "train/rows_without_signal")


def _kl_outweighs(recent: Sequence[Metrics]) -> bool:
    names = [f"critic/{kind}/{part}" for kind in ("score", "rewards") for part in ("mean", "max", "min")]
    return _all(recent, lambda x: _kl_share(x) > OUTWEIGHS * _spread(x) > 0, *names)


def _kl_dearer(recent: Sequence[Metrics]) -> bool:
    """The KL costs the mean rollout more than it scores, and not next to nothing."""
    names = ("critic/score/mean", "critic/rewards/mean", "critic/score/max", "critic/score/min")
    return _all(recent, lambda x: _kl_cost(x) > max(x["critic/score/mean"], NOTABLE * _spread(x)) > 0, *names)


def _kl_cost(x: Metrics) -> float:
    return x["critic/score/mean"] - x["critic/rewards/mean"]


def _kl_share(x: Metrics) -> float:
    """How far the KL moves a rollout's reward from its score."""
    return max(abs(x[f"critic/rewards/{part}"] - x[f"critic/score/{part}"]) for part in ("mean", "max", "min"))


def _spread(x: Metrics) -> float:
    return x["critic/score/max"] - x["critic/score/min"]


def _kl_loss_outweighs(config: Config, recent: Sequence[Metrics]) -> bool:
    names = ("actor/kl_loss", "critic/advantages/max", "critic/advantages/min")
    return _all(recent, lambda x: _kl_loss_pull(x, config) > OUTWEIGHS * _advantage_pull(x, config) > 0, *names)


def _kl_loss_pull(x: Metrics, config: Config) -> float:
    """How strongly the KL in the loss pulls a token's log-probability back to the reference: weight × distance.

    k2, k3 and the full KL are about half the square of that distance; k1 and abs pull alike wherever the policy is.
    """
    kind = KL_KINDS.get(kl_name(config.kl.loss_estimator))
    return config.kl.loss_coef * (
        1.0 if kind is not None and kind.linear else math.sqrt(2 * max(x["actor/kl_loss"], 0.0))
    )


def _advantage_pull(x: Metrics, config: Config) -> float:
    """How strongly the policy loss pulls at the most: 1 on average where advantages are whitened."""
    return 1.0 if whitens(config) else max(abs(x[f"critic/advantages/{part}"]) for part in ("max", "min"))


def _no_gradient(recent: Sequence[Metrics]) -> bool:
    return _all(
        recent, lambda x: x["actor/updates"] > 0 and x["actor/grad_norm"] == 0, "actor/updates", "actor/grad_norm"
    )


_CAUSES: dict[str, Callable[[Sequence[Metrics]], bool]] = {
    "empty": _empty,
    "cut": _cut,
    "scores": _same_scores,
    "advantages": _without_signal,
    "kl": _kl_outweighs,
    "kl_cost": _kl_dearer,
    "gradient": _no_gradient,
}


def _numbers(recent: Sequence[Metrics], config: Config) -> dict[str, object]:
    """What the sentences of the causes name."""
    last = recent[-1]
    known = "critic/score/max" in last and "critic/rewards/max" in last
    return {
        "n": len(recent),
        "score": last.get("critic/score/mean", 0.0),
        "cut": config.sampling.max_new_tokens,
        "temperature": config.sampling.temperature,
        "samples": config.samples_per_prompt,
        "beta": last.get("critic/kl_coeff", config.kl.reward_coef),
        "share": _kl_share(last) if known else 0.0,
        "cost": _kl_cost(last) if known else 0.0,
        "spread": _spread(last) if known else 0.0,
        "pull": _kl_loss_pull(last, config) if "actor/kl_loss" in last else 0.0,
        "most": _advantage_pull(last, config) if "critic/advantages/max" in last else 0.0,
        "weight": config.kl.loss_coef,
    }
