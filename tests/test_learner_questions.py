"""What learners ask is taken up, and what is none of the tutor's business declined (learner_questions.json)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mingce.explain.conversation import Conversation

LEARNERS: dict[str, Any] = json.loads((Path(__file__).parent / "learner_questions.json").read_text(encoding="utf-8"))


def questions(*, in_scope: bool) -> Iterator[str]:
    lots = [LEARNERS["dev"], LEARNERS["hidden"], *(LEARNERS[name]["questions"] for name in ("second", "third"))]
    for lot in lots:
        yield from (one["question"] for one in lot if "question" in one and one["in_scope"] is in_scope)


def test_hardly_a_question_in_scope_is_declined() -> None:
    asked = list(questions(in_scope=True))
    declined = [one for one in asked if Conversation().ask(one).declined]
    assert len(asked) == 480
    assert len(declined) <= 0.01 * len(asked), declined


def test_most_of_what_is_out_of_scope_is_declined() -> None:
    asked = list(questions(in_scope=False))
    answered = [one for one in asked if not Conversation().ask(one).declined]
    assert len(asked) == 120
    assert len(answered) <= 0.12 * len(asked), answered
