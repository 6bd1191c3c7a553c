"""Proof without a model that an environment pays a perfect policy in full, and silence not at all."""

from __future__ import annotations

from dataclasses import dataclass

from mingce.base.user_files import last_line
from mingce.tasks.base import Example, NoAnswer, Score
from mingce.tasks.environment import Action, Environment, EnvironmentTask
from mingce.tasks.tool_calls import find_format
from mingce.tasks.waiting import awaited

MOST_TURNS = 100


@dataclass(frozen=True)
class Played:
    """What came of a conversation in which the policy's side was written here."""

    text: str
    score: Score
    right: bool
    over: bool


def play_out(task: EnvironmentTask, example: Example, *, perfect: bool) -> Played | str:
    """A conversation to its end, with the environment's own gold turns or nothing said; a text says what failed."""
    written = find_format(task.tool_format() or "hermes")
    names = [str(schema["function"]["name"]) for schema in task.tool_schemas()]
    environment: Environment = task.environment()
    said: list[str] = []
    try:
        awaited(environment.reset(example, 0))
        earned, right = 0.0, None
        for _ in range(MOST_TURNS):
            said.append(environment.gold() if perfect else "")
            reading = written.read(said[-1], names)
            observation = awaited(environment.step(Action(said[-1], reading.calls, reading.problem)))
            earned += observation.reward or 0.0
            right = observation.right
            if observation.done or not perfect:
                break
        text = task.score(example, said[-1])
        fine = task.correct(example, said[-1]) if right is None else right
        return Played(" ⟶ ".join(said), Score(text.score + earned, text.parts, text.dense), fine, observation.done)
    except NoAnswer:
        raise
    except Exception as error:  # whatever a person's environment raises
        return last_line(error)


def problem_with(task: EnvironmentTask, example: Example, perfect: Played | str) -> str | None:
    """What is wrong with the environment of an example, given how a perfect policy fares."""
    if isinstance(perfect, str):
        return f"its environment failed ({perfect})"
    if not perfect.over:
        return f"its conversation is not over after {MOST_TURNS} perfect turns"
    if not perfect.right:
        return f"its perfect conversation scores {perfect.score.total:g} and does not count as right"
    silent = play_out(task, example, perfect=False)
    if isinstance(silent, str):
        return f"its environment failed on an empty turn ({silent})"
    if silent.right or silent.score.total >= perfect.score.total:
        return f"an empty turn scores {silent.score.total:g}, as much as a perfect conversation"
    return None


def problem_with_silence(task: EnvironmentTask, example: Example) -> str | None:
    """What is wrong with the environment of an example to which no perfect conversation is known."""
    silent = play_out(task, example, perfect=False)
    if isinstance(silent, str):
        return f"its environment failed on an empty turn ({silent})"
    return f"an empty turn counts as right and scores {silent.score.total:g}" if silent.right else None
