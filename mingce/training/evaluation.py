"""Answers to held-out prompts and what they come to, for validation in training and for `mingce eval`.

Every prompt is answered once greedily and `samples` times by sampling, always with the same seeds: validation draws the
first of the samples that `mingce eval` draws, so their numbers can be compared.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mingce.models.prompts import render_prompts
from mingce.models.sampling import Generation
from mingce.roles.actor import Actor, row_seed
from mingce.roles.reward import Judge
from mingce.tasks.base import Example, Score
from mingce.tasks.combined import BatchScorer

SEED = 20_000  # apart from every seed of training


UNSCORED = Score(float("nan"))
"""Of an answer that was judged only."""


@dataclass(frozen=True)
class Answer:
    """One answer to a held-out prompt; `sample` counts from 0 and is None for the greedy one."""

    example: Example
    sample: int | None
    response: str
    tokens: int
    finish_reason: str
    score: Score
    right: bool

    def values(self) -> dict[str, Any]:
        """As a line of `--out`."""
        return {
            "uid": self.example.uid,
            "data_source": self.example.data_source,
            "prompt": self.example.prompt,
            "ground_truth": self.example.ground_truth,
            "sample": self.sample,
            "response": self.response,
            "tokens": self.tokens,
            "finish_reason": self.finish_reason,
            "score": self.score.total,
            "parts": dict(self.score.parts),
            "right": self.right,
        }


@dataclass(frozen=True)
class Evaluation:
    """All answers: `greedy[i]` and `sampled[i][j]` to prompt i."""

    greedy: list[Answer]
    sampled: list[list[Answer]]

    def figures(self) -> dict[str, float]:
        """The numbers it comes to; `*_error` is the standard error over prompts."""
        rates = [statistics.fmean(answer.right for answer in row) for row in self.sampled]
        samples = [answer for row in self.sampled for answer in row]
        figures: dict[str, float] = {}
        for kind, answers, per_prompt in (
            ("greedy", self.greedy, [float(answer.right) for answer in self.greedy]),
            ("sampled", samples, rates),
        ):
            figures[f"accuracy_{kind}"] = statistics.fmean(per_prompt)
            figures[f"accuracy_{kind}_error"] = _standard_error(per_prompt)
            figures[f"score_{kind}"] = statistics.fmean(answer.score.total for answer in answers)
            figures[f"length_{kind}"] = statistics.fmean(answer.tokens for answer in answers)
            figures[f"cut_{kind}"] = statistics.fmean(answer.finish_reason == "length" for answer in answers)
        figures["pass_at_n"] = statistics.fmean(any(answer.right for answer in row) for row in self.sampled)
        return figures


def evaluate(
    actor: Actor,
    scorer: BatchScorer,
    judge: Judge,
    examples: Sequence[Example],
    samples: int,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    *,
    score_greedy: bool = True,
) -> Evaluation:
    """Every example answered greedily and `samples` times by sampling, judged and scored.

    `on_progress` receives the rows done and all rows. Without `score_greedy` greedy answers are judged only, which
    spares a reward model or a person's function half of its work.
    """
    prompts = render_prompts(actor.tokenizer, [example.prompt for example in examples])
    total = len(prompts) * (1 + samples)
    seeds = [row_seed(SEED, sample, row) for row in range(len(prompts)) for sample in range(samples)]
    greedy = actor.draw(
        prompts,
        actor.sampling.greedy(),
        seeds[::samples],
        on_progress=lambda rows, _: on_progress(rows, total),
    )
    sampled = actor.draw(
        prompts,
        actor.sampling,
        seeds,
        samples,
        on_progress=lambda rows, _: on_progress(len(prompts) + rows, total),
    )
    repeated = [example for example in examples for _ in range(samples)]
    numbers = list(range(samples)) * len(examples)
    paid = scorer if score_greedy else None
    first = _answers(actor, paid, judge, examples, greedy, [None] * len(examples), seeds[::samples])
    rest = _answers(actor, scorer, judge, repeated, sampled, numbers, seeds)
    return Evaluation(first, [rest[row * samples : (row + 1) * samples] for row in range(len(examples))])


def _answers(
    actor: Actor,
    scorer: BatchScorer | None,
    judge: Judge,
    examples: Sequence[Example],
    drawn: Generation,
    samples: Sequence[int | None],
    seeds: Sequence[int],
) -> list[Answer]:
    texts = drawn.texts(actor.tokenizer)
    lengths = drawn.attention_mask.sum(1).tolist()
    scores = [UNSCORED] * len(texts) if scorer is None else scorer.score(examples, texts, seeds)
    right = judge.right(examples, texts, seeds)
    rows = zip(examples, samples, texts, lengths, drawn.finish_reasons, scores, right, strict=True)
    return [Answer(*row) for row in rows]


def _standard_error(per_prompt: Sequence[float]) -> float:
    return statistics.stdev(per_prompt) / len(per_prompt) ** 0.5 if len(per_prompt) > 1 else 0.0
