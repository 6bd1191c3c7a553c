"""One batch scored by workers of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mingce.tasks.base import Example, Score, Task
from mingce.tasks.scoring import Scorer, Scoring


def score_all(
    scorer: Task | Scorer, examples: Sequence[Example], responses: Sequence[str], **settings: Any
) -> list[Score]:
    """Scores a batch and ends the workers again; see `Scoring`."""
    with Scoring(scorer, **settings) as scoring:
        return scoring.score(examples, responses)
