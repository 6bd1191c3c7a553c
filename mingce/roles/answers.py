"""Answers to examples as texts, whether the task has environments or not: what is judged, scored and shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from mingce.ledger import Ledger
from mingce.models.drawing import Sampling
from mingce.models.prompts import render_prompts
from mingce.roles.actor import WORLD, Actor, row_seed, rows_of
from mingce.roles.dialogues import ledger_of
from mingce.roles.learner import OnProgress
from mingce.roles.worlds import Play
from mingce.tasks.base import Example, Response, Score


@dataclass(frozen=True)
class Drawn:
    """What the policy wrote: all of it, the text that is scored, and what an environment made of it."""

    text: str
    judged: str
    tokens: int
    finish_reason: str
    earned: float = 0.0
    """What the turns of a conversation were paid."""
    right: bool | None = None
    """What the environment said of it."""
    failed: float | None = None
    """The score of a conversation whose environment failed."""
    prompt: Sequence[int] = ()
    ids: Sequence[int] = ()
    log_probs: Sequence[float] = ()
    """Of the distribution drawn from."""
    play: Play | None = None
    """The whole conversation, where there was an environment; it has prompts and ids of its own."""

    def paid(self, score: Score) -> Score:
        """The whole score, of that of the text."""
        return replace(score, score=score.score + self.earned) if self.failed is None else Score(self.failed)

    def is_right(self, judged: bool) -> bool:
        """Whether it counts as right, where the text alone is judged so or not."""
        return self.failed is None and (judged if self.right is None else self.right)


def draw_answers(
    actor: Actor,
    examples: Sequence[Example],
    sampling: Sampling,
    seeds: Sequence[int],
    n: int = 1,
    on_progress: OnProgress | None = None,
) -> list[Drawn]:
    """`n` answers to each example, all of the first one first; `seeds` holds one for each."""
    if actor.worlds is not None:
        return _played(actor, examples, sampling, seeds, n, on_progress)
    template = actor.config.data.chat_template_kwargs
    prompts = render_prompts(actor.tokenizer, [example.prompt for example in examples], template)
    drawn = actor.draw(prompts, sampling, seeds, n, on_progress)
    lengths, ids, log_probs = drawn.attention_mask.sum(1).tolist(), drawn.token_ids.tolist(), drawn.log_probs.tolist()
    repeated = [prompt for prompt in prompts for _ in range(n)]
    return [
        Drawn(
            text, Response.drawn(text, ids[row][:length]), length, drawn.finish_reasons[row], prompt=repeated[row],
            ids=ids[row][:length], log_probs=log_probs[row][:length],
        )
        for row, (text, length) in enumerate(zip(drawn.texts(actor.tokenizer), lengths, strict=True))
    ]  # fmt: skip


def answers_ledger(actor: Actor, examples: Sequence[Example], drawn: Sequence[Drawn], step: int) -> Ledger:
    """One answer to each example as a ledger with its rollout_log_probs."""
    rows = rows_of(actor, examples, step, 1)
    if actor.worlds is not None:
        measured, clocks = actor.worlds.measured, actor.worlds.clocks  # those of the last step stay
        try:
            return ledger_of([one.play for one in drawn if one.play is not None], actor, rows)
        finally:
            actor.worlds.measured, actor.worlds.clocks = measured, clocks
    rows |= {
        "prompt": [actor.tokenizer.decode(list(one.prompt)) for one in drawn],
        "prompt_ids": [list(one.prompt) for one in drawn],
        "response": [one.text for one in drawn],
        "finish_reason": [one.finish_reason for one in drawn],
    }
    width = max((one.tokens for one in drawn), default=0)
    mask = torch.arange(width) < torch.tensor([one.tokens for one in drawn])[:, None]
    padded = [[*one.ids, *[actor.pad_id] * (width - one.tokens)] for one in drawn]
    ledger = Ledger(torch.tensor(padded, dtype=torch.long).reshape(mask.shape), mask, mask, rows)
    log_probs = [[*one.log_probs, *[0.0] * (width - one.tokens)] for one in drawn]
    return ledger.fill({"rollout_log_probs": torch.tensor(log_probs).reshape(mask.shape)})


def _played(
    actor: Actor,
    examples: Sequence[Example],
    sampling: Sampling,
    seeds: Sequence[int],
    n: int,
    on_progress: OnProgress | None,
) -> list[Drawn]:
    assert actor.worlds is not None
    worlds = [row_seed(seeds[row - row % n], WORLD, 0) for row in range(len(seeds))]
    weight, failed = actor.config.reward.task_weight, actor.worlds.failed_score
    repeated = [example for example in examples for _ in range(n)]
    return [
        Drawn(
            one.text, one.answer, one.tokens, one.finish_reason, weight * sum(one.rewards), one.right,
            failed if one.failure else None, play=one,
        )
        for one in actor.play(repeated, sampling, seeds, worlds, on_progress)
    ]  # fmt: skip
