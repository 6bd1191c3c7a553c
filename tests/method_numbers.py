"""What the topics on methods, bounds, payment and decisions may say of an example, computed here once more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mingce.algorithms import reference

if TYPE_CHECKING:
    from answer_numbers import Known

TAU, KEPT = 0.7, 0.9


def add(known: Known, topic: str) -> None:
    """Puts the topic's numbers and rows into `known`; nothing for topics of other themes."""
    fill = _TOPICS.get(topic)
    if fill is not None:
        fill(known)


def _credit(
    known: Known,
    rewards: Sequence[float],
    values: Sequence[float],
    after: float,
    gamma: float | None = None,
    lam: float | None = None,
) -> reference.Credit:
    settings = known.rollout.settings
    gamma, lam = settings.gamma if gamma is None else gamma, settings.lam if lam is None else lam
    assert gamma is not None
    assert lam is not None
    return reference.gae([rewards], [values], [[1] * len(rewards)], gamma, lam, [after])


def _probs(known: Known, name: str = "old_log_probs") -> list[float]:
    return [min(math.exp(x), 1.0) for x in known.chosen(name)]


def _signs(known: Known) -> None:
    raw = known.chosen("advantages")
    mean = math.fsum(raw) / len(raw)
    for row in (raw, [x - mean for x in raw]):
        known.numbers += [sum(x < 0 for x in row), sum(x > 0 for x in row), sum(x <= 0 for x in row)]


# ── decisions ────────────────────────────────────────────────────────────────────────────────────────────────────────


def gamma_one(known: Known) -> None:
    r, v, after, n = known.chosen("rewards"), known.chosen("values"), known.rollout.bootstrap, len(known.slots)
    lam = known.rollout.settings.lam
    for gamma in (1.0, 0.99):
        known.short(_credit(known, r, v, after, gamma).advantages[0])
        known.short(_credit(known, r, v, after, gamma, 1.0).returns[0])
    for gamma in (1.0, 0.999, 0.99, 0.9):
        known.numbers += [gamma, gamma ** (n - 1), gamma**100, gamma**1000]
    known.numbers += [100, 1000, 69]
    if lam is not None and lam < 1:
        known.numbers.append(1 / (1 - lam))


def shared_trunk(known: Known) -> None:
    credit = _credit(known, known.chosen("rewards"), known.chosen("values"), known.rollout.bootstrap)
    advantages = credit.advantages[0]
    policy = -math.fsum(advantages) / len(advantages)
    value = math.fsum(a * a for a in advantages) / 2 / len(advantages)
    known.numbers += [a * a / 2 for a in advantages]
    known.numbers += [policy, value, policy + value / 10, 0.1, 7, 16, 112, 224, 4096, 4097]


def q_v_a(known: Known) -> None:
    gamma = known.rollout.settings.gamma
    assert gamma is not None
    r, v = known.chosen("rewards"), known.chosen("values")
    known.numbers += [x + gamma * y for x, y in zip(r, [*v[1:], known.rollout.bootstrap], strict=True)]


def token_mdp(known: Known) -> None:
    known.numbers.append(math.exp(math.fsum(known.chosen("old_log_probs"))))


def training_health(known: Known) -> None:
    credit = _credit(known, known.chosen("rewards"), known.chosen("values"), known.rollout.bootstrap)
    n, returns, advantages = len(known.slots), credit.returns[0], credit.advantages[0]

    def spread(row: Sequence[float]) -> float:
        mean = math.fsum(row) / n
        return math.fsum((x - mean) ** 2 for x in row) / n

    if spread(returns) > 0:
        known.numbers.append(1 - spread(advantages) / spread(returns))
    moved = [x - y for x, y in zip(known.chosen("old_log_probs"), known.chosen("new_log_probs"), strict=True)]
    low, high = known.clip()
    ratios, raw = [math.exp(-x) for x in moved], known.chosen("advantages")
    clipped = sum(
        (a > 0 and ratio > 1 + high) or (a < 0 and ratio < 1 - low) for ratio, a in zip(ratios, raw, strict=True)
    )
    known.numbers += [math.fsum(moved) / n, clipped, clipped / n]


# ── methods ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def methods_compared(known: Known) -> None:
    r = known.chosen("rewards")
    known._group(math.fsum(r))
    gamma = known.rollout.settings.gamma
    assert gamma is not None
    known.numbers += reference.discounted_sum(r, gamma)


def policy_gradient(known: Known) -> None:
    raw, new = known.chosen("advantages"), known.chosen("new_log_probs")
    known.short([-a * x for a, x in zip(raw, new, strict=True)])
    probs = _probs(known, "new_log_probs")
    known.short([a * (1 - p) for a, p in zip(raw, probs, strict=True)])
    known.numbers += [x for p in probs for x in (p, 1 - p)]


def negative_advantage(known: Known) -> None:
    _signs(known)
    for prob in (*_probs(known), 0.01, 0.1, 0.5, 0.9, 0.99):
        known.numbers.append(prob)
        for size in map(abs, known.chosen("advantages")):
            known.numbers += [size, size * (1 - prob)]
            for sign in (1, -1):
                odds = math.log(prob / (1 - prob)) + 2 * 0.5 * sign * size * (1 - prob) if prob < 1 else math.inf
                known.numbers.append(1 / (1 + math.exp(-odds)))


def on_policy(known: Known) -> None:
    drift = math.fsum(x - y for x, y in zip(known.chosen("new_log_probs"), known.chosen("old_log_probs"), strict=True))
    known.numbers += [drift, math.exp(drift), 2, 256, 128, 4, 100, 1000, 4000, 0.02, 0.05, 0.1]
    known.numbers += [math.exp(-n * s * s) for n in (100, 1000, 4000) for s in (0.02, 0.05, 0.1)]


def _at(prob: float, tau: float) -> float:
    return 1 / (1 + math.pow((1 - prob) / prob, 1 / tau))


def _two_way(prob: float) -> float:
    return -math.fsum(p * math.log(p) for p in (prob, 1 - prob) if p > 0)


def temperature(known: Known) -> None:
    probs, (low, high) = _probs(known), known.clip()
    ratios = [p / _at(p, TAU) for p in probs]
    known.short(ratios)
    known.numbers += [TAU, KEPT, math.log(KEPT), 0.5, 1.5, 1 - low, 1 + high]
    known.numbers.append(sum(x < 1 - low or x > 1 + high for x in ratios))
    for p in probs:
        for tau in (0.5, TAU, 1.0, 1.5):
            known.numbers += [_at(p, tau), _two_way(_at(p, tau)), p / _at(p, tau)]


# ── bounds ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def clip_higher(known: Known) -> None:
    known.numbers += [0.2, 0.28, 0.8, 1.2, 1.28, 0.5]
    for p in (*_probs(known), 0.001, 0.01, 0.1, 0.5):
        known.numbers.append(p)
        for bound in (1.2, 1.28):
            known.numbers.append(min(1.0, p * bound))
    for p in (0.001, 0.01, 0.1, 0.5):
        for bound in (1.2, 1.28):
            steps = 0
            while p * bound**steps < 0.5:
                steps += 1
            known.numbers.append(steps)


def dual_clip(known: Known) -> None:
    low, high = known.clip()
    raw, cap = known.chosen("advantages"), known.rollout.settings.dual_clip or 3.0
    old, new = known.chosen("old_log_probs"), known.chosen("new_log_probs")
    ratios = [math.exp(x - y) for x, y in zip(new, old, strict=True)]
    known.numbers += [cap, 2 * cap, 10 * cap, math.log(cap), sum(a < 0 for a in raw)]
    known.numbers.append(sum(a < 0 and ratio > cap for a, ratio in zip(raw, ratios, strict=True)))
    for size in map(abs, raw):
        for ratio in ((1 - low) / 2, 1.0, 1 + high, (1 + high + cap) / 2, 2 * cap, 10 * cap):
            at_least = max(ratio, 1 - low)
            known.numbers += [ratio, size, size * at_least, size * min(at_least, cap)]


def adaptive_kl(known: Known) -> None:
    beta, row = known.rollout.settings.beta or 0.0, known.chosen("kl")
    mean = math.fsum(row) / len(row)
    known.numbers += [0.1, 10000, 256, 0.2, -0.2, 100, 1 + 0.2 * 0.0256, 136]
    for times in (0.5, 0.9, 1.0, 1.1, 2.0, 10.0, mean / 0.1):
        error = min(max(times - 1, -0.2), 0.2)
        factor = 1 + error * 0.0256
        known.numbers += [times, error, factor, beta * factor, beta * factor**100]


# ── payment ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def score_position(known: Known) -> None:
    r, v, after, n = known.chosen("rewards"), known.chosen("values"), known.rollout.bootstrap, len(known.slots)
    total = math.fsum(r)
    for place in (n - 1, max(n - 2, 0), 0, n):
        paid = [total * (k == place) for k in range(n)]
        credit = _credit(known, paid, v, after)
        known.short(credit.advantages[0])
        known.numbers.append(credit.deltas[0][-1])


def reward_scale(known: Known) -> None:
    r, v, after = known.chosen("rewards"), known.chosen("values"), known.rollout.bootstrap
    reach, beta, n = known.rollout.settings.value_clip or 0.5, known.rollout.settings.beta or 0.0, len(known.slots)
    credit = _credit(known, r, v, after)
    plain, returns = credit.advantages[0], credit.returns[0]
    large = [10 * x for x in plain]
    known.short(large)
    known.short(_credit(known, [10 * x for x in r], v, after).advantages[0])
    for row in (plain, large):
        mean = math.fsum(row) / n
        std = math.sqrt(math.fsum((x - mean) ** 2 for x in row) / max(1, n - 1) + 1e-8)
        known.short([(x - mean) / std for x in row])
    known.numbers += [10, reach, 10 * beta, *(10 * x for x in returns)]
    known.numbers += [math.ceil(10 * abs(x) / reach) for x in plain]
    known.numbers += [x * x / 2 for x in (*plain, *large)]


def reward_hacking(known: Known) -> None:
    beta, row, n = known.rollout.settings.beta or 0.0, known.chosen("kl"), len(known.slots)
    total = math.fsum(known.chosen("scores"))
    known.numbers += [0.5, 16, math.log(16) - 15 / 16, max(row), beta * max(row), total]
    known.numbers += [beta * math.fsum(row), total - beta * math.fsum(row)]
    if beta:
        known.numbers += [0.5 / beta, 0.5 / beta / n]


def tool_tokens(known: Known) -> None:
    settings = known.rollout.settings
    assert settings.gamma is not None
    assert settings.lam is not None
    r, v, after, n = known.chosen("rewards"), known.chosen("values"), known.rollout.bootstrap, len(known.slots)
    decay = settings.gamma * settings.lam
    known.numbers += [3, len(known.mask) - n, *(decay**k for k in range(n + 4))]
    for k in range(n):
        rewards, values = ([*row[: k + 1], 0.0, 0.0, 0.0, *row[k + 1 :]] for row in (r, v))
        credit = _credit(known, rewards, values, after)
        known.short([*credit.advantages[0][: k + 1], *credit.advantages[0][k + 4 :]])
        known.numbers += credit.deltas[0]


_TOPICS = {
    fill.__name__: fill
    for fill in (
        gamma_one, shared_trunk, q_v_a, token_mdp, training_health, methods_compared, policy_gradient,
        negative_advantage, on_policy, temperature, clip_higher, dual_clip, adaptive_kl, score_position, reward_scale,
        reward_hacking, tool_tokens,
    )
}  # fmt: skip
