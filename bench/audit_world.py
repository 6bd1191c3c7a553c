"""A toy language model whose every number is known: rollouts that are truly sampled, and forward passes gone wrong.

The policy is autoregressive over 256 ids: the next token depends on the last one, on its position and on the prompt.
Rollouts are drawn from it step by step, with tool output put in where the policy asks for it, so that the identities
an auditor leans on (E[exp(lo − lq)] = 1, E[−lo] = E[H]) hold exactly and not by construction of noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]  # float32: what trainers compute in, and four times as fast
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

VOCABULARY, HIDDEN = 256, 12
PAD, BOS, EOS, CALL, OTHER_STOP, FIRST_WORD = 0, 1, 2, 3, 4, 5


@dataclass(frozen=True)
class Policy:
    """Weights of the toy model. `logits` gives the next token's, before any temperature."""

    embedding: Floats  # [V, D]
    output: Floats  # [D, V]
    waves: Floats  # [2, D] frequency and phase of the position's features
    hazard: float  # chance of EOS at a usual token
    calls: float  # chance of a tool call
    scale: float

    @staticmethod
    def new(rng: np.random.Generator, hazard: float, calls: float) -> Policy:
        waves = np.stack([np.geomspace(0.01, 0.06, HIDDEN), rng.uniform(0, 6.28, HIDDEN)])
        return Policy(
            normal(rng, (VOCABULARY, HIDDEN)) * np.float32(0.8),
            normal(rng, (HIDDEN, VOCABULARY)),
            waves.astype(np.float32),
            hazard,
            calls,
            float(rng.uniform(0.7, 1.6)),
        )

    def moved(self, rng: np.random.Generator, far: float) -> Policy:
        """Another policy near this one."""
        return replace(self, output=self.output + np.float32(far) * normal(rng, self.output.shape))

    def hidden(self, previous: Ints, positions: Ints, context: Floats) -> Floats:
        """[…, D] from the last token, its position and the prompt's vector."""
        place = np.sin(positions[..., None].astype(np.float32) * self.waves[0] + self.waves[1])
        found: Floats = np.tanh(self.embedding[previous] + np.float32(0.5) * place + context)
        return found

    def logits(self, previous: Ints, positions: Ints, context: Floats, dropped: Floats | None = None) -> Floats:
        hidden = self.hidden(previous, positions, context)
        hazard = np.clip(self.hazard * np.exp(0.4 * hidden[..., 0]), 1e-4, 0.5)
        calls = np.full_like(hazard, max(self.calls, 1e-9))
        if dropped is not None:
            hidden = hidden * dropped
        logits = np.float32(self.scale) * (hidden.astype(np.float32) @ self.output)
        logits[..., [PAD, BOS, OTHER_STOP]] -= 14.0
        logits[..., [EOS, CALL]] = -np.inf
        words = log_sum_exp(logits)[..., 0]
        rest = np.log1p(-hazard - calls)
        logits[..., EOS] = words + np.log(hazard) - rest
        logits[..., CALL] = words + np.log(calls) - rest
        return logits


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return rng.standard_normal(shape, dtype=np.float32)


def log_sum_exp(logits: Floats) -> Floats:
    top = logits.max(axis=-1, keepdims=True)
    total: Floats = top + np.log(np.exp(logits - top).sum(axis=-1, keepdims=True))
    return total


def log_softmax(logits: Floats) -> Floats:
    return logits - log_sum_exp(logits)


# ── sampling ───────────────────────────────────────────────────────────────────────────────────────────────────────

Noise = Callable[[np.random.Generator, Floats], Floats]


def rounding_noise(size: float) -> Noise:
    """What another kernel adds to the logits."""
    return lambda rng, logits: logits + np.float32(size) * normal(rng, logits.shape)


def other_experts(share: float, size: float) -> Noise:
    """A mixture of experts that routes some tokens differently: most logits are right, some are far off."""

    def noise(rng: np.random.Generator, logits: Floats) -> Floats:
        hit = rng.random((*logits.shape[:-1], 1)) < share
        return logits + (0.003 + size * hit).astype(np.float32) * normal(rng, logits.shape)

    return noise


@dataclass(frozen=True)
class Sampler:
    """How the engine draws. Temperature and truncation are part of the distribution it samples from."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    noise: Noise = field(default_factory=lambda: rounding_noise(0.004))
    policy: Policy | None = None  # other weights than the trainer's

    def log_probs(self, logits: Floats) -> Floats:
        """The distribution that is drawn from."""
        logits = log_softmax(logits / self.temperature)
        if self.top_k or self.top_p < 1.0 or self.min_p:
            order = np.argsort(-logits, axis=-1)
            ranked = np.take_along_axis(logits, order, -1)
            before = np.cumsum(np.exp(ranked), axis=-1) - np.exp(ranked)
            kept = before < self.top_p
            if self.top_k:
                kept[..., self.top_k :] = False
            kept &= ranked >= ranked[..., :1] + np.log(max(self.min_p, 1e-300))
            ranked = np.where(kept, ranked, -np.inf)
            np.put_along_axis(logits, order, ranked, -1)
            logits = log_softmax(logits)
        return logits


@dataclass
class Rollouts:
    """What came out of the engine, on the response axis [B, T], and the prompts it answered."""

    ids: Ints
    chosen: Bools  # m
    present: Bools  # a
    log_probs: Floats  # the distribution drawn from; 0 where nothing was drawn
    plain_log_probs: Floats  # the engine's own logits at temperature 1, nothing cut off
    finish: list[str]
    prompts: list[list[int]]
    group: list[str]
    context: Floats  # [B, D]

    @property
    def shape(self) -> tuple[int, int]:
        rows, width = self.ids.shape
        return rows, width

    def take(self, order: Ints) -> Rollouts:
        """The rows in another order."""
        pick = [int(i) for i in order]
        return Rollouts(
            self.ids[order], self.chosen[order], self.present[order], self.log_probs[order],
            self.plain_log_probs[order], [self.finish[i] for i in pick], [self.prompts[i] for i in pick],
            [self.group[i] for i in pick], self.context[order],
        )  # fmt: skip


def draw(
    rng: np.random.Generator, policy: Policy, sampler: Sampler, prompts: int, samples: int, width: int
) -> Rollouts:
    """`samples` responses to each of `prompts` random prompts, at most `width` tokens with all tool output."""
    texts = [[BOS, *rng.integers(FIRST_WORD, VOCABULARY, rng.integers(2, 24)).tolist()] for _ in range(prompts)]
    vectors = np.float32(0.5) * normal(rng, (prompts, HIDDEN))
    rows = prompts * samples
    owner = np.repeat(np.arange(prompts), samples)
    lengths = np.array([len(texts[i]) for i in owner])
    ids = np.full((rows, width), PAD, dtype=np.int64)
    chosen, present = np.zeros((rows, width), dtype=bool), np.zeros((rows, width), dtype=bool)
    drawn_at, plain_at = np.zeros((rows, width)), np.zeros((rows, width))
    finish = np.array(["length"] * rows, dtype=object)
    last = np.array([texts[i][-1] for i in owner])
    waiting = np.zeros(rows, dtype=np.int64)  # tool tokens still to come
    called = np.zeros(rows, dtype=np.int64)
    live = np.ones(rows, dtype=bool)
    engine = sampler.policy or policy
    for t in range(width):
        if not live.any():
            break
        logits = sampler.noise(rng, engine.logits(last, lengths - 1 + t, vectors[owner]))
        drawn_from = sampler.log_probs(logits)
        reach = np.cumsum(np.exp(drawn_from), axis=-1, dtype=np.float64)
        token = (reach <= rng.random((rows, 1)) * reach[:, -1:]).sum(axis=-1)
        tool = live & (waiting > 0)
        acts = live & ~tool
        token = np.where(tool, rng.integers(FIRST_WORD, VOCABULARY, rows), token)
        ids[live, t], present[live, t], chosen[acts, t] = token[live], True, True
        each = np.arange(rows)[acts]
        drawn_at[each, t] = drawn_from[each, token[each]]
        plain_at[each, t] = log_softmax(logits)[each, token[each]]
        waiting[tool] -= 1
        ended = acts & (token == EOS)
        finish[ended], live[ended] = "stop", False
        room = width - 2 - t  # a chosen token must follow the tool's
        calling = acts & (token == CALL) & (called < 2) & (room >= 2) & (policy.calls > 0)
        waiting[calling] = np.minimum(rng.integers(2, max(3, width // 6) + 1, rows), max(room, 1))[calling]
        called[calling] += 1
        last = token
    names = [f"p{i}" for i in owner]
    return Rollouts(
        ids, chosen, present, drawn_at, plain_at, finish.tolist(), [texts[i] for i in owner], names, vectors[owner]
    )


# ── scoring what was drawn ─────────────────────────────────────────────────────────────────────────────────────────


def states(rollouts: Rollouts, shift: Ints | int = 0) -> tuple[Ints, Ints, Floats]:
    """(last token, its position, prompt vector) before each slot; `shift` [B] moves the positions."""
    width = rollouts.shape[1]
    before = np.array([prompt[-1] for prompt in rollouts.prompts])[:, None]
    previous = np.concatenate([before, rollouts.ids[:, :-1]], axis=1)
    lengths = np.array([len(prompt) for prompt in rollouts.prompts])
    positions = lengths[:, None] - 1 + np.arange(width) + np.reshape(shift, (-1, 1))
    return previous, positions, rollouts.context[:, None, :]


def score(
    policy: Policy, rollouts: Rollouts, temperature: float = 1.0, shift: Ints | int = 0, **how: Any
) -> tuple[Floats, Floats]:
    """(log-prob of the token in each slot, entropy before it) [B, T], on every slot, pads and tool output too."""
    logits = policy.logits(*states(rollouts, shift), **how) / np.float32(temperature)
    total = log_sum_exp(logits)
    chosen = np.take_along_axis(logits, rollouts.ids[..., None], -1) - total
    log_p = logits - total
    return chosen[..., 0], -np.einsum("btv,btv->bt", np.exp(log_p), log_p)


# ── what is paid for it, and what a critic expects ─────────────────────────────────────────────────────────────────


def outcomes(rng: np.random.Generator, rollouts: Rollouts, spread: bool) -> Any:
    """One score a row, of a kind drawn for the batch: any number, or right and wrong."""
    rows = rollouts.shape[0]
    ease = {name: rng.normal() for name in dict.fromkeys(rollouts.group)}
    skill = np.array([ease[name] for name in rollouts.group]) + rng.normal(size=rows)
    kind = "number" if spread else rng.choice(["number", "right or wrong", "plus or minus", "all the same"])
    if kind == "number":
        return skill
    if kind == "all the same":
        return np.ones(rows)
    return (skill > 0) * 1.0 if kind == "right or wrong" else np.where(skill > 0, 1.0, -1.0)


def critic_values(rng: np.random.Generator, rollouts: Rollouts, outcomes: Any) -> Any:
    """[B, T + 1] a critic that sees the outcome coming as the row goes on."""
    rows, width = rollouts.shape
    progress = np.minimum(np.arange(width + 1) / np.maximum(rollouts.present.sum(axis=1, keepdims=True), 1), 1.0)
    wander = np.cumsum(rng.normal(size=(rows, width + 1)), axis=1) * 0.05
    return 0.3 + 0.7 * outcomes[:, None] * progress + wander + 0.1 * rng.normal(size=(rows, width + 1))
