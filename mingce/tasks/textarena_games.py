"""Games of textarena for one player by name: `textarena:GuessTheNumber-v0`.

An example is a game by its own seed, the same in every run; chance within a game follows the conversation's seed. The
games draw from Python's global generator, so one game moves at a time, with the generator as that game has left it.
The policy is told what is new, not the whole story again: its prompt is what the game says at first. What the game pays
at its end is paid on the last turn, and 1 or more counts as right.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, TypeVar

from mingce.base.errors import DataError, EnvironmentFault, SettingError, UnknownNameError
from mingce.base.user_files import last_line
from mingce.tasks.base import Example, Prompt
from mingce.tasks.environment import Action, Environment, Observation, PaidByTurns
from mingce.tasks.limit import SEEDED

FULL_MARKS = 1 - 1e-9
PATIENCE = 60.0
_one_moves = threading.Lock()
_Result = TypeVar("_Result")


class Dice:
    """The global generators of Python and numpy as one game has left them."""

    def __init__(self, seed: int):
        self.seed, self.left = seed, False
        self.python: Any = None
        self.numpy: Any = None

    @contextmanager
    def thrown(self) -> Iterator[None]:
        """Puts them in the place of the process's own meanwhile; other games wait."""
        if not _one_moves.acquire(timeout=PATIENCE):
            raise EnvironmentFault(f"another game has been moving for {PATIENCE:g} s")
        numpy = sys.modules.get("numpy")
        python_before, numpy_before = random.getstate(), numpy and numpy.random.get_state()
        try:
            if self.left:
                random.setstate(self.python)
            else:
                random.seed(self.seed)
            if numpy is not None and self.numpy is not None:
                numpy.random.set_state(self.numpy)
            elif numpy is not None:
                SEEDED["numpy"](numpy, self.seed)
            yield
        finally:
            self.left, self.python = True, random.getstate()
            random.setstate(python_before)
            if numpy is not None:
                self.numpy = numpy.random.get_state()
                numpy.random.set_state(numpy_before)
            _one_moves.release()


class TextArena(PaidByTurns):
    """Games of one kind: `size` to train on and `held_out` others, by seeds of their own."""

    def __init__(
        self,
        name: str,
        *,
        size: int = 1000,
        held_out: int = 100,
        seed: int = 0,
        chat: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.game, self.name, self.chat, self.options = name, f"textarena:{name}", chat, dict(options or {})
        self.library = _library(self.name)
        self.counts = {"train": size, "held-out": held_out}
        rng = random.Random(f"{name} {seed}")
        self.seeds = {"held-out": rng.randrange(2**30), "train": 2**30 + rng.randrange(2**30)}

    def make(self) -> Any:
        """A new game, not yet begun."""
        if self.game not in self.library.envs.registration.ENV_REGISTRY:
            raise UnknownNameError("textarena game", self.game, self.library.envs.registration.ENV_REGISTRY)
        return _or_setting(self, lambda: self.library.make(self.game, **self.options))

    def begun(self, seed: int) -> tuple[Any, str]:
        """A game begun from a seed, and what it says."""
        game = self.make()
        with Dice(seed).thrown():
            try:
                game.reset(num_players=1, seed=seed)
            except AssertionError as error:
                raise DataError(f"{self.name} is no game for one player ({error}); choose one that is.") from error
            return game, said_by(game, self.library)

    def environment(self) -> Environment:
        return TextArenaGame(self)

    @cached_property
    def _examples(self) -> dict[str, list[Example]]:
        return {split: [self._example(split, number) for number in range(self.counts[split])] for split in self.counts}

    def _example(self, split: str, number: int) -> Example:
        seed = self.seeds[split] + number
        _, text = _or_setting(self, lambda: self.begun(seed))
        return Example(f"{self.name}:{split}:{number}", self.prompt(text), None, self.name, {"seed": seed})

    def prompt(self, text: str) -> Prompt:
        """What the game says first, as a message or as text."""
        return [{"role": "user", "content": text}] if self.chat else f"{text}\n"

    def train_examples(self) -> Sequence[Example]:
        return self._examples["train"]

    def held_out_examples(self) -> Sequence[Example]:
        return self._examples["held-out"]


class TextArenaGame:
    """One game that the policy plays."""

    def __init__(self, task: TextArena):
        self.task = task

    def reset(self, example: Example, seed: int) -> Prompt:
        self.game, text = self.task.begun(int(example.extra_info["seed"]))
        self.dice = Dice(seed)
        return self.task.prompt(text)

    def step(self, action: Action) -> Observation:
        with self.dice.thrown():
            done, _ = self.game.step(action=action.text)
            if not done:
                text = said_by(self.game, self.task.library)
                return Observation([{"role": "user", "content": text}] if self.task.chat else f"\n{text}\n")
            rewards, info = self.game.close()
        reward = float((rewards or {}).get(0, 0.0))
        invalid = float(bool(info.get(0, {}).get("invalid_move")))
        return Observation(reward=reward, done=True, right=reward >= FULL_MARKS, parts={"invalid_moves": invalid})

    def gold(self) -> str:
        return self.task.gold(self.task.train_examples()[0])


def said_by(game: Any, library: Any) -> str:
    """What is new since the last turn, without what the player itself said.

    Wrappers of observations repeat the whole story; the game within them says what is new.
    """
    while isinstance(game, library.Wrapper):
        game = game.env
    player, messages = game.get_observation()
    return "\n".join(str(text).strip() for speaker, text, *_ in messages if speaker != player)


def _or_setting(task: TextArena, call: Callable[[], _Result]) -> _Result:
    try:
        return call()
    except (DataError, SettingError):
        raise
    except Exception as error:  # whatever the library raises: options it does not know, word lists it has not
        raise SettingError(
            f"{task.name} cannot be begun with {task.options} ({last_line(error)}); change data.options, or give the "
            "library what it asks for."
        ) from error


def _library(name: str) -> Any:
    try:
        import textarena
    except ImportError as error:
        raise DataError(
            f"{name} needs textarena ({error}); install it with pip install 'mingce[textarena]'."
        ) from error
    return textarena
