"""Answers to held-out prompts and what they come to, for validation in training and for `mingce eval`.

Every prompt is answered once greedily and `samples` times by sampling, always with the same seeds: validation draws the
first of the samples that `mingce eval` draws, so their numbers can be compared.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mingce.roles.actor import Actor, row_seed
from mingce.roles.answers import Drawn, draw_answers
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
    """All answers: `greedy[i]` and `sampled[i][j]` to prompt i; `drawn` the sampled ones, one after another."""

    greedy: list[Answer]
    sampled: list[list[Answer]]
    drawn: Sequence[Drawn] = ()

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
    on_progress: Callable[[int, int, float], None] = lambda done, total, share: None,
    *,
    score_greedy: bool = True,
    first: int = 0,
) -> Evaluation:
    """Every example answered greedily and `samples` times by sampling, judged and scored.

    `on_progress` receives the rows done, all rows, and the share of the work that is done, by tokens where no row has
    ended yet. Without `score_greedy` greedy answers are judged only, which spares a reward model or a person's function
    half of its work. `first` is the number of the first example, on which its seeds depend.
    """
    count, total = len(examples), len(examples) * (1 + samples)
    seeds = [row_seed(SEED, sample, first + row) for row in range(count) for sample in range(samples)]
    firsts, greedy = seeds[::samples], actor.sampling.greedy()

    def tell(before: int, asked: int, rows: int, tokens: int) -> None:
        share = max(rows, tokens / actor.sampling.max_new_tokens)
        on_progress(before + rows, total, (before + min(share, asked)) / total)

    likeliest = draw_answers(actor, examples, greedy, firsts, 1, partial(tell, 0, count))
    drawn = draw_answers(actor, examples, actor.sampling, seeds, samples, partial(tell, count, total - count))
    repeated = [example for example in examples for _ in range(samples)]
    numbers = list(range(samples)) * len(examples)
    paid = scorer if score_greedy else None
    one = _answers(paid, judge, examples, likeliest, [None] * count, firsts)
    rest = _answers(scorer, judge, repeated, drawn, numbers, seeds)
    return Evaluation(one, [rest[row * samples : (row + 1) * samples] for row in range(count)], drawn)


def _answers(
    scorer: BatchScorer | None,
    judge: Judge,
    examples: Sequence[Example],
    drawn: Sequence[Drawn],
    samples: Sequence[int | None],
    seeds: Sequence[int],
) -> list[Answer]:
    texts = [one.judged for one in drawn]
    scores = [UNSCORED] * len(texts) if scorer is None else scorer.score(examples, texts, seeds)
    right = judge.right(examples, texts, seeds, None if scorer is None else (scorer, scores))
    rows = zip(examples, samples, drawn, scores, right, strict=True)
    return [
        Answer(example, sample, one.text, one.tokens, one.finish_reason, one.paid(score), one.is_right(fine))
        for example, sample, one, score, fine in rows
    ]


def _standard_error(per_prompt: Sequence[float]) -> float:
    return statistics.stdev(per_prompt) / len(per_prompt) ** 0.5 if len(per_prompt) > 1 else 0.0
