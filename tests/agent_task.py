"""A task of somebody's own: a stochastic environment that talks back, pays its turns, and fails where it is told to."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

from mingce.tasks.base import Example, Prompt, Score
from mingce.tasks.environment import Action, Observation

SIGNS = "0123456789+-*"


class Chatter:
    """Says random numbers, pays random rewards, and ends when it likes; a name in `fails` says how it breaks."""

    name = "chatter"

    def __init__(self, fails: str = "", slow: float = 0.0, awaits: bool = False):
        self.fails, self.slow, self.awaits = fails, slow, awaits

    def environment(self) -> Any:
        return Awaited(self) if self.awaits else Talk(self)

    def tool_schemas(self) -> Sequence[Mapping[str, Any]]:
        return []

    def tool_format(self) -> str | None:
        return None

    def train_examples(self) -> list[Example]:
        return [Example(f"c{i}", f"{i}*{i + 7}=", str(i), "chatter") for i in range(40)]

    def held_out_examples(self) -> list[Example]:
        return [Example(f"h{i}", f"{i}+{i}=", str(i), "chatter") for i in range(40, 50)]

    def score(self, example: Example, response: str) -> Score:
        return Score(0.25)

    def gold(self, example: Example) -> str:
        return ""

    def correct(self, example: Example, response: str) -> bool:
        return False


class Talk:
    def __init__(self, task: Chatter):
        self.task, self.turns = task, 0

    def reset(self, example: Example, seed: int) -> Prompt:
        self.rng, self.uid = random.Random(seed), example.uid
        return example.prompt

    def step(self, action: Action) -> Observation:
        self.turns += 1
        time.sleep(self.task.slow * random.random())
        if int(self.uid[1:]) % 3 == 0 and self.task.fails:
            broken: Observation = self.broken(self.task.fails)
            return broken
        said = "".join(self.rng.choice(SIGNS) for _ in range(self.rng.randrange(1, 9)))
        return Observation(said, reward=round(self.rng.uniform(-1, 1), 3), done=self.rng.random() < 0.2)

    def broken(self, how: str) -> Any:
        """One of the ways in which an environment fails."""
        if how == "raises":
            raise RuntimeError("the tool broke")
        if how == "exits":
            raise SystemExit(3)
        if how == "hangs":
            time.sleep(3600)
        answers: dict[str, Any] = {
            "pays nan": Observation("1", reward=float("nan")),
            "pays text": Observation("1", reward="1"),  # type: ignore[arg-type]
            "counts nan": Observation("1", parts={"seen": float("nan")}),
            "counts text": Observation("1", parts={"seen": "2"}),  # type: ignore[dict-item]
            "says a number": Observation(7),  # type: ignore[arg-type]
            "says bytes": Observation(b"1"),  # type: ignore[arg-type]
            "says too much": Observation("1" * 2_000_000),
            "no content": Observation([{"role": "tool"}]),
            "no role": Observation([{"content": "1"}]),
            "no observation": "1",
        }
        return answers[how]

    def gold(self) -> str:
        return ""


class Awaited(Talk):
    async def step(self, action: Action) -> Observation:  # type: ignore[override]
        return super().step(action)


class Nagging(Chatter):
    """Answers every turn with a user's message, twice, and pays 1 for the last turn."""

    name = "nagging"

    def environment(self) -> Any:
        return Nag(self)

    def train_examples(self) -> list[Example]:
        return [Example(f"n{i}", [{"role": "user", "content": f"q{i}"}], "", "nagging") for i in range(12)]

    def held_out_examples(self) -> list[Example]:
        return self.train_examples()[:4]


class Nag(Talk):
    def step(self, action: Action) -> Observation:
        self.turns += 1
        return Observation([{"role": "user", "content": "go on"}], reward=float(self.turns), done=self.turns == 3)


class Picky(Nagging):
    """Every third conversation goes on in an order of roles that chat templates refuse."""

    def environment(self) -> Any:
        return Pick(self)


class Pick(Nag):
    def step(self, action: Action) -> Observation:
        self.turns += 1
        role = "user" if int(self.uid[1:]) % 3 else "nobody"
        return Observation([{"role": role, "content": "go on"}], reward=1.0, done=self.turns == 3)
