"""The reward: scores texts and writes what they earned on the tokens that earned it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from mingce.config import RewardConfig
from mingce.ledger import Ledger
from mingce.tasks.base import Example, Task
from mingce.tasks.combined import BatchScorer, Combined
from mingce.tasks.scoring import OnError, Scoring


class Reward:
    """The task's score, a function's, a reward model's, or their weighted sum."""

    def __init__(self, scorer: BatchScorer, tokenizer: PreTrainedTokenizerBase):
        self.scorer, self.tokenizer = scorer, tokenizer

    def score(self, ledger: Ledger, examples: Sequence[Example]) -> dict[str, Tensor]:
        """scores [B, T]: the final score on the last chosen token, dense parts on the tokens that completed them."""
        scores = self.scorer.score(examples, ledger.row("response"))
        ledger.fill_rows(score_parts=[dict(score.parts) for score in scores])
        columns = torch.zeros(ledger.mask.shape, device=ledger.device)
        for row, score in enumerate(scores):
            chosen = ledger.mask[row].nonzero().squeeze(1).tolist()
            if not chosen:
                continue  # no token to pay; the row is in no loss either
            columns[row, chosen[-1]] += score.score
            if score.dense:
                ends = self._character_ends(ledger["token_ids"][row].tolist(), chosen)
                for offset, amount in score.dense:
                    paid = next((t for t, end in zip(chosen, ends, strict=True) if end > offset), chosen[-1])
                    columns[row, paid] += amount
        return {"scores": columns}

    def _character_ends(self, ids: Sequence[int], chosen: Sequence[int]) -> list[int]:
        """How many characters of the response are complete after each chosen token."""
        ends = []
        for count in range(1, len(chosen) + 1):
            text = cast(str, self.tokenizer.decode([ids[t] for t in chosen[:count]], skip_special_tokens=True))
            ends.append(len(text.rstrip("�")))  # a character whose bytes are not all there yet
        return ends

    def close(self) -> None:
        """Ends scoring processes."""
        self.scorer.close()


def reward_scorer(task: Task, config: RewardConfig, *, task_scores: bool) -> BatchScorer:
    """What pays, as configured; `task_scores` is False when the task has no score of its own."""
    on_error: OnError = "stop" if config.on_error == "stop" else _number(config.on_error)

    def pool(scorer: object, name: str) -> Scoring:
        return Scoring(
            scorer,  # type: ignore[arg-type]
            name=name,
            workers=config.workers,
            time_limit=config.time_limit,
            on_error=on_error,
        )

    members: list[tuple[float, BatchScorer]] = []
    if task_scores:
        members.append((config.task_weight, pool(task, "task")))
    if config.function is not None:
        from mingce.tasks.function import FunctionScorer

        members.append((config.function_weight, pool(FunctionScorer(config.function), "function")))
    if config.model is not None:
        from mingce.tasks.reward_model import RewardModel

        members.append((config.model_weight, RewardModel(config.model)))
    only = len(members) == 1 and members[0][0] == 1.0
    return members[0][1] if only else Combined(members)


def _number(text: str) -> float:
    from mingce.errors import SettingError

    try:
        return float(text)
    except ValueError:
        raise SettingError(f"reward.on_error must be stop or a number, but is '{text}'.") from None
