"""A rule in the place where TRL 1.12's PPO wants a reward model; imported by the turns that its Python runs."""

from __future__ import annotations

import types
from collections.abc import Callable

import torch

Score = Callable[[list[int]], float]
"""Of a row's ids that are no padding."""


class Rule(torch.nn.Module):
    """What a reward model's backbone gives back: here the score itself, at every position."""

    def __init__(self, score: Score) -> None:
        super().__init__()
        self.score = score

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **_: object) -> types.SimpleNamespace:
        scores = torch.zeros(*input_ids.shape, 1)
        for row, (ids, present) in enumerate(zip(input_ids, attention_mask.bool(), strict=True)):
            scores[row] = self.score(ids[present].tolist())
        return types.SimpleNamespace(hidden_states=(scores,))


class RuleReward(torch.nn.Module):
    """TRL takes the backbone by its prefix, and `score` for the head on it."""

    base_model_prefix = "rule"

    def __init__(self, score: Score) -> None:
        super().__init__()
        self.rule, self.score = Rule(score), torch.nn.Identity()
