"""Held-out prompts, answered greedily and by sampling, the same prompts and seeds each time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from mingce.config import Config
from mingce.engine.local import Roles
from mingce.models.prompts import render_prompt
from mingce.roles.actor import row_seed
from mingce.tasks.scoring import prompt_text

SEED = 20_000  # apart from every seed of training
SHOWN = 5


@dataclass(frozen=True)
class Answer:
    """One sampled answer to a held-out prompt."""

    prompt: str
    response: str
    right: bool


@dataclass(frozen=True)
class Validation:
    """val/* metrics, and a few of the sampled answers."""

    metrics: dict[str, float]
    answers: list[Answer]

    def state(self) -> dict[str, Any]:
        """As a checkpoint keeps it."""
        return {"metrics": self.metrics, "answers": [asdict(answer) for answer in self.answers]}

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Validation:
        return cls(dict(state["metrics"]), [Answer(**answer) for answer in state["answers"]])


def validate(roles: Roles, config: Config, on_progress: Callable[[int, int], None] = lambda *_: None) -> Validation:
    """Accuracy on held-out prompts, greedy and sampled, and the mean score of the sampled answers."""
    examples = [roles.held_out[i] for i in range(min(config.validation.examples, len(roles.held_out)))]
    if not examples:
        return Validation({}, [])
    prompts = [render_prompt(roles.tokenizer, example.prompt) for example in examples]
    seeds = [row_seed(SEED, 0, i) for i in range(len(prompts))]
    greedy = replace(roles.actor.sampling, temperature=0.0, top_k=0, top_p=1.0, min_p=0.0)
    texts = {}
    for name, sampling, done in (("greedy", greedy, 0), ("sampled", roles.actor.sampling, len(prompts))):

        def told(rows: int, _: int, done: int = done) -> None:
            on_progress(done + rows, 2 * len(prompts))

        texts[name] = roles.actor.texts(roles.actor.draw(prompts, sampling, seeds, on_progress=told))
    right = {name: roles.judge.right(examples, answers, seeds) for name, answers in texts.items()}
    scores = roles.reward.scorer.score(examples, texts["sampled"], seeds)
    metrics = {f"val/accuracy_{name}": sum(marks) / len(marks) for name, marks in right.items()}
    metrics["val/score_mean"] = sum(score.total for score in scores) / len(scores)
    answers = [
        Answer(prompt_text(example), text, mark)
        for example, text, mark in zip(examples[:SHOWN], texts["sampled"], right["sampled"], strict=False)
    ]
    return Validation(metrics, answers)
