"""How a question is answered, step by step: each step has an answer or leaves the question to the next."""

from __future__ import annotations

from collections.abc import Callable

from mingce.explain.answer import Answer
from mingce.explain.conversation import Conversation, Turn
from mingce.explain.steps.elsewhere import in_trainer
from mingce.explain.steps.follow_up import draw, follow_up, other_number, out_of_range
from mingce.explain.steps.numbers import (
    both_settings,
    continued,
    most_changed,
    number,
    number_by_hand,
    origin,
    typed_numbers,
    walked_through,
    why_moved,
)
from mingce.explain.steps.pasted import code, pair, save
from mingce.explain.steps.recap import recap
from mingce.explain.steps.subject import last_resort, point, quantity_alone, stated, subject, supposed
from mingce.explain.steps.thread import aside, code_again, few_tokens, mended, padded, same_quantity, signs, unmasked

Step = Callable[[Conversation, Turn], Answer | None]
STEPS: tuple[Step, ...] = (
    save, aside, code, code_again, few_tokens, unmasked, pair, recap,
    in_trainer, stated, out_of_range, draw,
    signs, mended, padded, same_quantity, walked_through, origin, continued, most_changed,
    both_settings, why_moved,
    supposed, number_by_hand, typed_numbers, other_number, point, follow_up, number, quantity_alone, subject,
    last_resort,
)  # fmt: skip
