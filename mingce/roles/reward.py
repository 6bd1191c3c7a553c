"""The reward: scores texts and writes what they earned on the tokens that earned it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from mingce.config import RewardConfig
from mingce.ledger import Ledger
from mingce.record.tokens import added_texts
from mingce.roles.actor import row_seed
from mingce.tasks.base import Example, Score, Task
from mingce.tasks.combined import BatchScorer, Combined
from mingce.tasks.scoring import FAILED, OnError, Scoring


class Reward:
    """The task's score, a function's, a reward model's, or their weighted sum."""

    def __init__(self, scorer: BatchScorer, tokenizer: PreTrainedTokenizerBase, seed: int):
        self.scorer, self.tokenizer, self.seed = scorer, tokenizer, seed

    def score(self, ledger: Ledger, examples: Sequence[Example], step: int) -> dict[str, Tensor]:
        """scores [B, T]: the final score on the last chosen token, dense parts on the tokens that completed them.

        A scorer that draws does so from (seed, step, row), so that a step scores the same whenever it is done again.
        """
        seeds = [row_seed(self.seed, step, row) for row in range(len(examples))]
        scores = self.scorer.score(examples, ledger.row("response"), seeds)
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
        decode = partial(self.tokenizer.decode, skip_special_tokens=True)
        return list(accumulate(map(len, added_texts(decode, [ids[t] for t in chosen]))))

    def close(self) -> None:
        """Ends scoring processes."""
        self.scorer.close()


class Judge:
    """Says which answers count as right; one on which the scorer fails does not, unless that stops the run."""

    def __init__(self, task: Task, config: RewardConfig, function: Scoring | None):
        """`function` is the pool of the person's reward function, where there is one."""
        from mingce.tasks.file_task import FileTask
        from mingce.tasks.function import FunctionScorer

        if function is not None and isinstance(task, FileTask) and isinstance(task.scorer, FunctionScorer):
            self.scorer, self.full_marks = function, task.full_marks
        else:
            self.scorer, self.full_marks = _pool(_Correct(task), config, "correct", workers=0), 1.0

    def right(self, examples: Sequence[Example], responses: Sequence[str], seeds: Sequence[int]) -> list[bool]:
        """Whether each answer is right."""
        scores = self.scorer.score(examples, responses, seeds)
        return [not score.parts.get(FAILED) and score.total >= self.full_marks for score in scores]

    def close(self) -> None:
        """Ends scoring processes."""
        self.scorer.close()


class _Correct:
    """A task's own judgement as a score of 1 or 0."""

    def __init__(self, task: Task):
        self.task = task

    def __call__(self, example: Example, response: str) -> Score:
        return Score(float(self.task.correct(example, response)))


def function_pool(config: RewardConfig) -> Scoring | None:
    """The worker processes of the person's reward function, one at least: whatever it does, the trainer outlives it."""
    if config.function is None:
        return None
    from mingce.tasks.function import FunctionScorer

    return _pool(FunctionScorer(config.function), config, "function", workers=max(1, config.workers))


def reward_scorer(task: Task, config: RewardConfig, function: Scoring | None, *, task_scores: bool) -> BatchScorer:
    """What pays, as configured; `task_scores` is False when the task has no score of its own."""
    members: list[tuple[float, BatchScorer]] = []
    if task_scores:
        members.append((config.task_weight, _pool(task, config, "task", workers=config.workers)))
    if function is not None:
        members.append((config.function_weight, function))
    if config.model is not None:
        from mingce.tasks.reward_model import RewardModel

        members.append((config.model_weight, RewardModel(config.model)))
    only = len(members) == 1 and members[0][0] == 1.0
    return members[0][1] if only else Combined(members)


def _pool(scorer: object, config: RewardConfig, name: str, *, workers: int) -> Scoring:
    on_error: OnError = "stop" if config.on_error == "stop" else _number(config.on_error)
    return Scoring(
        scorer,  # type: ignore[arg-type]
        name=name,
        workers=workers,
        time_limit=config.time_limit,
        on_error=on_error,
    )


def _number(text: str) -> float:
    from mingce.base.errors import SettingError

    try:
        return float(text)
    except ValueError:
        raise SettingError(f"reward.on_error must be stop or a number, but is '{text}'.") from None
