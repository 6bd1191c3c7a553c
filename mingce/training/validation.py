"""Held-out prompts, answered greedily and by sampling, the same prompts and seeds each time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from mingce.config import Config
from mingce.engine.local import Roles
from mingce.tasks.scoring import prompt_text
from mingce.training.evaluation import evaluate

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
    evaluation = evaluate(roles.actor, roles.reward.scorer, roles.judge, examples, 1, on_progress, score_greedy=False)
    sampled = [row[0] for row in evaluation.sampled]
    metrics = {
        f"val/accuracy_{kind}": sum(answer.right for answer in answers) / len(answers)
        for kind, answers in (("greedy", evaluation.greedy), ("sampled", sampled))
    }
    metrics["val/score_mean"] = sum(answer.score.total for answer in sampled) / len(sampled)
    shown = [Answer(prompt_text(answer.example), answer.response, answer.right) for answer in sampled[:SHOWN]]
    return Validation(metrics, shown)
