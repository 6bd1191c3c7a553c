"""What the topics of practice say beyond what every topic may: other critics, supposed moves, the trainer's sizes.

Computed here from the example's columns and the defaults of the configuration, apart from mingce.explain.topics.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from mingce.algorithms import reference
from mingce.config import Config

if TYPE_CHECKING:
    from answer_numbers import Known


def add_numbers(known: Known, topic: str) -> None:
    """Adds what only this topic speaks of."""
    if topic not in _TOPICS:
        return
    add, needs = _TOPICS[topic]
    if set(needs) <= set(known.rollout.columns):  # without them the topic speaks of the worked example
        add(known)


def _size(row: Sequence[float]) -> float:
    return math.sqrt(statistics.fmean(x * x for x in row))


def _explained(returns: Sequence[float], rest: Sequence[float]) -> float:
    if len(returns) < 2 or statistics.variance(returns) < 1e-12:
        return 0.0
    return 1 - statistics.variance(rest) / statistics.variance(returns)


def _gae(known: Known, values: Sequence[float], lam: float | None = None) -> reference.Credit:
    settings, mask = known.rollout.settings.as_dict(), [[1] * len(known.slots)]
    return reference.gae(
        [known.chosen("rewards")],
        [list(values)],
        mask,
        settings["gamma"],
        settings["lam"] if lam is None else lam,
        [float(known.rollout.bootstrap)],
    )


def _used(known: Known) -> list[float]:
    return known.chosen("whitened_advantages" if "whitened_advantages" in known.rollout.columns else "advantages")


def _critic_quality(known: Known) -> None:
    values = known.chosen("values")
    flat = statistics.fmean(values)
    for critic in (values, [flat] * len(values), [0.0] * len(values)):
        for lam in (None, 1.0):
            credit = _gae(known, critic, lam)
            known.numbers += [*credit.advantages[0], _size(credit.advantages[0])]
            known.numbers.append(_explained(credit.returns[0], credit.advantages[0]))
    lifted = [v + 0.1 for v in values]
    known.numbers += [0.1, -0.1, flat]
    gains = [b - a for a, b in zip(_gae(known, values).advantages[0], _gae(known, lifted).advantages[0], strict=True)]
    known.numbers += [*gains, *(1 + gain / 0.1 for gain in gains)]
    known.numbers += _gae(known, lifted).advantages[0]


def _explained_variance(known: Known) -> None:
    for lam in (None, 1.0):
        credit = _gae(known, known.chosen("values"), lam)
        returns, rest = credit.returns[0], credit.advantages[0]
        known.numbers += [_explained(returns, rest), statistics.fmean(rest)]
        if len(returns) > 1:
            known.numbers += [statistics.stdev(returns), statistics.stdev(rest)]
            spread = statistics.pvariance(returns)
            known.numbers.append(1 - _size(rest) ** 2 / spread if spread > 1e-12 else 0.0)


def _critic_warmup(known: Known) -> None:
    _sizes(known)
    blank, now = _gae(known, [0.0] * len(known.slots)), _gae(known, known.chosen("values"))
    known.short(blank.advantages[0])
    for credit in (blank, now):
        known.numbers += [_size(credit.advantages[0]), _size(credit.advantages[0]) ** 2 / 2]


def _sizes(known: Known) -> None:
    config = Config()
    rollouts = config.prompts_per_step * config.samples_per_prompt
    known.numbers += [config.actor.lr, config.critic.lr, config.critic.warmup, config.sampling.max_rows]
    known.numbers += [rollouts, config.prompts_per_step, config.samples_per_prompt, config.micro_batch_tokens]
    for size, epochs in (
        (config.minibatch_rollouts, config.actor.epochs),
        (config.critic.minibatch_rollouts, config.critic.epochs),
    ):
        known.numbers += [size, epochs, -(-rollouts // size), -(-rollouts // size) * epochs]


def _slices(known: Known) -> None:
    late = _gae(known, [*known.chosen("values")[1:], float(known.rollout.bootstrap)])
    known.short(late.advantages[0])
    known.numbers += [-float(k) for k in range(len(known.mask) + 2)]


def _gradient_flow(known: Known) -> None:
    known.numbers += [-ratio * a for ratio, a in zip(known.chosen("ratio"), _used(known), strict=True)]
    known.numbers += [new - r for new, r in zip(known.chosen("new_values"), known.chosen("returns"), strict=True)]


def _old_log_probs(known: Known) -> None:
    old = known.chosen("old_log_probs")
    drawn = torch.tensor(old, dtype=torch.float64).to(torch.bfloat16).double().tolist()
    gaps = [x - y for x, y in zip(old, drawn, strict=True)]
    known.short(drawn)
    known.short([math.exp(x) for x in gaps])
    known.numbers += [*gaps, statistics.fmean(map(abs, gaps)), max(map(abs, gaps)), math.exp(math.fsum(gaps))]


def _loss_near_zero(known: Known) -> None:
    used = _used(known)
    known.short([-x for x in used])
    low, high = known.clip()
    moved = [-min(math.exp(math.copysign(0.01, a)), 1 + high) * a if a > 0 else -max(math.exp(-0.01), 1 - low) * a
             for a in used]  # fmt: skip
    start, end = -statistics.fmean(used), statistics.fmean(moved)
    known.numbers += [0.01, start, end, start - end, statistics.fmean(map(abs, used))]
    known.numbers.append(-statistics.fmean(known.chosen("advantages")))


def _clip_fraction(known: Known) -> None:
    low, high = known.clip()
    used, n = _used(known), len(known.slots)
    ratios = [(1 + 2 * high, (1 - low) / 2)[k % 2] for k in range(n)]
    decided = sum((q > 1 + high and a > 0) or (q < 1 - low and a < 0) for q, a in zip(ratios, used, strict=True))
    known.numbers += [1 + 2 * high, (1 - low) / 2, decided, n - decided, decided / n, math.log(1 + high)]
    now = sum(
        (q > 1 + high and a > 0) or (q < 1 - low and a < 0) for q, a in zip(known.chosen("ratio"), used, strict=True)
    )
    known.numbers += [now, now / n, sum(not 1 - low <= q <= 1 + high for q in known.chosen("ratio"))]


def _approx_kl(known: Known) -> None:
    old, new = known.chosen("old_log_probs"), known.chosen("new_log_probs")
    for moves in ([y - x for x, y in zip(old, new, strict=True)], [0.1 if a >= 0 else -0.1 for a in _used(known)]):
        known.numbers += [-statistics.fmean(moves), statistics.fmean(d * d / 2 for d in moves)]
        known.numbers.append(statistics.fmean(math.exp(d) - 1 - d for d in moves))
    known.numbers += [0.1, sum(a >= 0 for a in _used(known))]


def _min_max(known: Known) -> None:
    low, high = known.clip()
    reach = known.rollout.settings.value_clip or 0.5
    credit = _gae(known, known.chosen("values"))
    for v, a, r in zip(known.chosen("values"), credit.advantages[0], credit.returns[0], strict=True):
        for ratio in (1 + 2 * high, 1 + high, 1 - low, (1 - low) / 2):
            known.numbers += [ratio, ratio * a, -ratio * a]
        for far in (1, 2):
            guess = v + math.copysign(far * reach, a)
            known.numbers += [guess, (guess - r) ** 2]
    known.numbers.append(reach)


def _epochs_ratio(known: Known) -> None:
    _sizes(known)
    low, high = known.clip()
    known.numbers += [*range(9), 0.05, math.log(1 + high), *(math.exp(0.05 * k) for k in range(-8, 9))]
    known.numbers.append(next(k for k in range(1000) if math.exp(0.05 * k) > 1 + high))
    known.numbers.append(next(k for k in range(1000) if math.exp(-0.05 * k) < 1 - low))


_CRITIC, _POLICY = ("rewards", "values"), ("old_log_probs", "advantages")
_TOPICS = {
    "critic_quality": (_critic_quality, _CRITIC),
    "explained_variance": (_explained_variance, _CRITIC),
    "critic_warmup": (_critic_warmup, _CRITIC),
    "slices": (_slices, _CRITIC),
    "gradient_flow": (_gradient_flow, (*_POLICY, "values")),
    "old_log_probs": (_old_log_probs, ("old_log_probs",)),
    "loss_near_zero": (_loss_near_zero, _POLICY),
    "clip_fraction": (_clip_fraction, _POLICY),
    "approx_kl": (_approx_kl, (*_POLICY, "kl")),
    "min_max": (_min_max, _CRITIC),
    "epochs_ratio": (_epochs_ratio, ("old_log_probs",)),
    "batch_sizes": (_sizes, _POLICY),
}
