"""reasoning-gym in several turns: `reasoning_gym_turns:chain_sum`. A wrong answer is told to be wrong, and tried again.

`data.options.tries` says how often an answer may be given (3 by default); other options are those of the problem.
The turn that answers rightly is paid 1 and ends the conversation; a last wrong one is paid what the task's own scorer
gives it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mingce.base.errors import SettingError
from mingce.tasks.base import Example, Prompt
from mingce.tasks.environment import Action, Environment, Observation, PaidByTurns
from mingce.tasks.reasoning_gym import INSTRUCTION, NEARLY_ONE, ReasoningGym

TRIES = 3
WRONG = f"That is not right. Try again. {INSTRUCTION}"


class GymTurns(PaidByTurns):
    """A task of reasoning-gym whose wrong answers may be tried again."""

    def __init__(self, name: str, *, options: Mapping[str, Any] | None = None, **settings: Any) -> None:
        options = dict(options or {})
        self.tries = options.pop("tries", TRIES)
        if not isinstance(self.tries, int) or self.tries < 1:
            raise SettingError(f"data.options.tries must be a whole number of at least 1, but is {self.tries}.")
        self.task = ReasoningGym(name, options=options, **settings)
        self.name = f"reasoning_gym_turns:{name}"

    def environment(self) -> Environment:
        return GymEnvironment(self)

    def train_examples(self) -> Sequence[Example]:
        return self.task.train_examples()

    def held_out_examples(self) -> Sequence[Example]:
        return self.task.held_out_examples()

    def gold(self, example: Example) -> str:
        return self.task.gold(example)

    def correct(self, example: Example, response: str) -> bool:
        return self.task.correct(example, response)


class GymEnvironment:
    """Judges answers until one is right, or there were enough."""

    def __init__(self, task: GymTurns):
        self.task, self.tried = task, 0

    def reset(self, example: Example, seed: int) -> Prompt:
        self.example, self.tried = example, 0
        return example.prompt

    def step(self, action: Action) -> Observation:
        self.tried += 1
        score = self.task.task.score(self.example, action.text).score
        right = score >= NEARLY_ONE
        if right or self.tried == self.task.tries:
            return Observation(reward=score, done=True, right=right)
        chat = not isinstance(self.example.prompt, str)
        return Observation([{"role": "user", "content": WRONG}] if chat else f"\n{WRONG}\n", right=False)

    def gold(self) -> str:
        return self.task.gold(self.example)
