"""Libraries of environments in the shapes of textarena and skyrl-gym, for where those are not installed."""

from __future__ import annotations

import random
from types import ModuleType, SimpleNamespace
from typing import Any


class Wrapper:
    def __init__(self, env: Any):
        self.env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)


class Repeats(Wrapper):
    """Tells the whole story again."""

    story = ""

    def get_observation(self) -> tuple[int, str]:
        player, messages = self.env.get_observation()
        self.story += "".join(text for _, text, _ in messages)
        return player, self.story


class Dice:
    """Pays 1 for a hidden digit among what was said; says a random number otherwise."""

    def __init__(self, sides: int = 6, turns: int = 3):
        self.sides, self.turns = sides, turns

    def reset(self, num_players: int, seed: int | None = None) -> None:
        assert num_players == 1
        random.seed(seed)
        self.hidden, self.moves, self.news = random.randrange(self.sides), 0, [(-1, f"{self.sides} sides.", None)]

    def step(self, action: str) -> tuple[bool, dict[str, Any]]:
        self.moves += 1
        self.won = str(self.hidden) in action
        self.news += [(0, action, None), (-1, f"rolled {random.randrange(1000)}", None)]
        return self.won or self.moves == self.turns, {}

    def get_observation(self) -> tuple[int, list[Any]]:
        news, self.news = self.news, []
        return 0, news

    def close(self) -> Any:
        return {0: float(self.won)}, {0: {"invalid_move": False}}


class Pair(Dice):
    def reset(self, num_players: int, seed: int | None = None) -> None:
        assert num_players == 2, "The number of players has to be 2"


def textarena() -> ModuleType:
    library: Any = ModuleType("textarena")
    kinds = {"Dice-v0": Dice, "Pair-v0": Pair}
    library.envs = SimpleNamespace(registration=SimpleNamespace(ENV_REGISTRY=kinds))
    library.Wrapper = Wrapper
    library.make = lambda name, **options: Repeats(kinds[name](**options))
    return library  # type: ignore[no-any-return]


class Again:
    """Asks again until the ground truth is said, three times."""

    spec = "reward_spec"

    def __init__(self, env_config: Any, extras: dict[str, Any]):
        self.truth, self.turns, self.most = extras[self.spec]["ground_truth"], 0, env_config.get("most", 3)

    def init(self, prompt: list[dict[str, str]]) -> Any:
        return prompt, {}

    def step(self, action: str) -> dict[str, Any]:
        self.turns += 1
        right = f"#### {self.truth}" in action
        done = right or self.turns == self.most
        told = [] if done else [{"role": "user", "content": "again"}]
        return {"observations": told, "reward": float(right), "done": done, "metadata": {}}

    def close(self) -> None:
        pass


class Model(Again):
    """Looks for the ground truth under another name, as that of AIME does."""

    spec = "reward_model"


def skyrl_gym() -> ModuleType:
    library: Any = ModuleType("skyrl_gym")
    kinds = {"again": Again, "model": Model}
    library.envs = SimpleNamespace(registration=SimpleNamespace(registry=kinds))
    library.make = lambda name, **arguments: kinds[name](**arguments)
    return library  # type: ignore[no-any-return]
