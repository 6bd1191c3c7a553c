"""One token drawn from a row of logits, with the log-prob of the very distribution it was drawn from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mingce.base.errors import SettingError
from mingce.models.cpu import vocabulary

_GOLDEN, _MIX_A, _MIX_B = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


@dataclass(frozen=True)
class Sampling:
    """How a response is drawn. The order is temperature, top_k, top_p, min_p, as in transformers."""

    max_new_tokens: int
    temperature: float = 1.0
    """Logits are divided by it; 0 takes the likeliest token."""
    top_k: int = 0
    """Only the k likeliest tokens; 0 for all."""
    top_p: float = 1.0
    """Only the likeliest tokens that together reach this probability; 1 for all."""
    min_p: float = 0.0
    """Only tokens at least this share of the likeliest token's probability; 0 for all."""
    stop_ids: tuple[int, ...] = ()
    """A response ends with the first of these; it is a chosen token and stays in the response."""
    stop_texts: tuple[str, ...] = ()
    """A response also ends with the token that completes one of these; whoever decodes needs the tokenizer for it."""

    def __post_init__(self) -> None:
        ranges = {
            "max_new_tokens": (self.max_new_tokens >= 1, "at least 1"),
            "temperature": (0 <= self.temperature < math.inf, "0 or more"),
            "top_k": (self.top_k >= 0, "0 (all) or more"),
            "top_p": (0 < self.top_p <= 1, "above 0 and at most 1"),
            "min_p": (0 <= self.min_p <= 1, "between 0 and 1"),
        }
        for name, (fits, wanted) in ranges.items():
            if not fits:
                raise SettingError(f"{name} is {getattr(self, name)}, but must be {wanted}.")

    def greedy(self) -> Sampling:
        """The same limits, and always the likeliest token."""
        return replace(self, temperature=0.0, top_k=0, top_p=1.0, min_p=0.0)


def seed_tensor(seeds: Sequence[int], device: torch.device) -> Tensor:
    """Row seeds `[B]` of any size as int64, wrapped around."""
    return torch.from_numpy(np.array([seed % 2**64 for seed in seeds], np.uint64).view(np.int64)).to(device)


def uniforms(seeds: Tensor, step: int | Tensor) -> Tensor:
    """Numbers in [0, 1) `[B]` float64, each a function of its row's seed and step alone (SplitMix64).

    So a row is drawn alike whatever else is in the batch, and consecutive seeds are as good as any.
    """
    steps = np.atleast_1d(step.cpu().numpy() if isinstance(step, Tensor) else step).astype(np.uint64)
    bits = _mix(_mix(seeds.cpu().numpy().view(np.uint64)) + _GOLDEN * (steps + np.uint64(1)))
    return torch.from_numpy((bits >> np.uint64(11)) * 2.0**-53).to(seeds.device)


def draw(logits: Tensor, sampling: Sampling, seeds: Tensor, step: int | Tensor) -> tuple[Tensor, Tensor]:
    """Tokens `[B]` drawn from logits `[B, V]`, and their log-probs `[B]` after temperature and truncation.

    `step` is the slot that is drawn, of all rows or of each `[B]`.

    At temperature 0 the distribution is a single point, so the log-prob is 0.
    """
    logits = logits.float()
    if sampling.temperature == 0:
        best, tokens = logits.max(-1)
        return tokens, best - best  # 0, or NaN when the model's numbers are broken, as in the drawn case
    if sampling.temperature != 1:
        logits = logits / sampling.temperature
    logits = _truncate(logits, sampling)
    if vocabulary.supports_logits(logits):
        return vocabulary.draw(logits, uniforms(seeds, step))
    log_probs = logits.log_softmax(-1)
    # float64, for a sum over a large vocabulary in float32 would move the boundaries between tokens
    cumulative = log_probs.exp().cumsum(-1, dtype=torch.float64)
    total = cumulative[:, -1:]
    target = torch.minimum(uniforms(seeds, step)[:, None] * total, torch.nextafter(total, torch.zeros_like(total)))
    tokens = torch.searchsorted(cumulative, target, right=True).clamp(max=logits.shape[-1] - 1)
    return tokens[:, 0], log_probs.gather(-1, tokens)[:, 0]


def _truncate(logits: Tensor, sampling: Sampling) -> Tensor:
    """Logits `[B, V]` with −inf on the tokens that may not be drawn."""
    if 0 < sampling.top_k < logits.shape[-1]:
        least = logits.topk(sampling.top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -math.inf)
    if sampling.top_p < 1:
        ordered, order = logits.sort(dim=-1, descending=True)
        probs = ordered.softmax(-1)
        beyond = probs.cumsum(-1) - probs >= sampling.top_p  # the likelier tokens alone reach top_p
        logits = logits.masked_fill(beyond.scatter(-1, order, beyond), -math.inf)
    if sampling.min_p > 0:
        least = logits.amax(-1, keepdim=True) + math.log(sampling.min_p)
        logits = logits.masked_fill(logits < least, -math.inf)
    return logits


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX_A
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX_B
    return bits ^ (bits >> np.uint64(31))
