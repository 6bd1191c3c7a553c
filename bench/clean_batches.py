"""Batches for the peers' functions: rollouts truly sampled from the toy model of audit_world.py, of any shape, and the
degenerate ones that runs meet. Needs NumPy only, so that it runs in the peers' environments.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from audit_world import (
    Floats,
    Policy,
    Rollouts,
    Sampler,
    critic_values,
    draw,
    log_softmax,
    outcomes,
    rounding_noise,
    score,
    states,
)

DEGENERATE = ("equal scores", "zero scores", "one row", "groups of one", "single tokens", "reference is policy")
"""Batches without a spread of scores, rows, samples or tokens, and the one whose policy is still the reference."""


@dataclass
class Batch:
    """Rollouts and what policy, reference and critic say of them, [B, T] on every slot."""

    rollouts: Rollouts
    temperature: float
    samples: int
    outcomes: Any
    old: Floats
    entropy: Floats
    squares: Floats
    """Σ π² before each slot."""
    reference: Floats
    new: Floats
    values: Floats
    new_values: Floats
    step: int

    @property
    def uids(self) -> list[str]:
        return list(self.rollouts.group)


def sample(rng: np.random.Generator, *, holes: bool = False, grouped: bool = False, kind: str = "") -> Batch:
    """A batch; `holes` has tool output inside the answers, `grouped` at least two samples a prompt, `kind` is one of
    DEGENERATE or nothing."""
    samples = int(rng.choice([2, 4, 8] if grouped else [1, 2, 4, 8]))
    rows, width = int(rng.integers(8, 49)), int(rng.integers(12, 97))
    if kind in ("one row", "groups of one"):
        samples = 1
    prompts = 1 if kind == "one row" else max(rows // samples, 1)
    if kind == "single tokens":
        width = int(rng.choice([1, 4]))
    temperature = float(rng.choice([1.0, 1.0, 0.7, 1.3]))
    policy = Policy.new(rng, float(rng.uniform(0.8, 2.5)) / width, 2.0 / width if holes and width > 8 else 0.0)
    engine = Sampler(temperature, noise=rounding_noise(float(rng.uniform(0.0005, 0.004))))
    rollouts = draw(rng, policy, engine, prompts, samples, 1 if kind == "single tokens" else width)
    while rollouts.chosen.sum() < 2:  # one token cannot be whitened, and verl refuses it
        rollouts = draw(rng, policy, engine, prompts, samples, width)
    if kind == "single tokens":
        rollouts = _padded(rollouts, width)
    scores = outcomes(rng, rollouts, spread=bool(rng.random() < 0.3))
    if kind in ("equal scores", "zero scores"):
        scores = np.full(len(scores), 0.0 if kind == "zero scores" else float(rng.choice([1.0, -1.0, 0.3])))
    reference = policy if kind == "reference is policy" else policy.moved(rng, float(rng.uniform(0.02, 0.12)))
    critic = critic_values(rng, rollouts, scores)[:, :-1]
    old, entropy = score(policy, rollouts, temperature)
    return Batch(
        rollouts, temperature, samples, scores, old, entropy, _squares(policy, rollouts, temperature),
        score(reference, rollouts, temperature)[0],
        score(policy.moved(rng, float(rng.uniform(0.02, 0.08))), rollouts, temperature)[0],
        critic, critic + rng.normal(size=critic.shape) * rng.uniform(0.05, 0.4),
        1 if kind == "reference is policy" else int(rng.integers(5, 500)),
    )  # fmt: skip


def _padded(rollouts: Rollouts, width: int) -> Rollouts:
    """The same answers in a wider tensor."""
    after = ((0, 0), (0, width - rollouts.shape[1]))
    return replace(
        rollouts, ids=np.pad(rollouts.ids, after), chosen=np.pad(rollouts.chosen, after),
        present=np.pad(rollouts.present, after), log_probs=np.pad(rollouts.log_probs, after),
        plain_log_probs=np.pad(rollouts.plain_log_probs, after),
    )  # fmt: skip


def _squares(policy: Policy, rollouts: Rollouts, temperature: float) -> Floats:
    log_p = log_softmax(policy.logits(*states(rollouts)) / np.float32(temperature))
    total: Floats = np.exp(2 * log_p).sum(axis=-1)
    return total
