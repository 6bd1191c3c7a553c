"""A reward function with TRL's signature: every answer of a batch in one call, the data's columns beside them.

    def any_name(completions, **columns) -> list[float | None]

An answer to a chat is a list of one message, one to a text a text; `completion_ids` are its tokens. The columns are
those of the data file, each a list as long as the answers, and `ground_truth`, `data_source` and `extra_info` as this
package has them. None says that an answer is not for this function to judge. `log_metric(name, value)` and
`log_extra(name, values)` are logged as parts.
"""

from __future__ import annotations

import copy
import difflib
import inspect
import numbers
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from mingce.base.errors import RewardError
from mingce.tasks.base import Example, Score

ANY_NUMBER = inspect.Parameter.VAR_KEYWORD
ANSWERS = {"completions", "completion_ids"}
GIVEN = ANSWERS | {"prompts", "log_metric", "log_extra"}
"""Arguments that are no columns."""


def is_one(function: Callable[..., Any]) -> bool:
    """Whether the function takes TRL's arguments: `completions` or their ids are among them by name."""
    try:
        return not ANSWERS.isdisjoint(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # something built in, which does not say
        return False


def columns_of(examples: Sequence[Example]) -> dict[str, list[Any]]:
    """The data's columns by name, None where an example lacks one."""
    names = dict.fromkeys(name for example in examples for name in example.extra_info)
    columns = {str(name): [example.extra_info.get(name) for example in examples] for name in names}
    for name in ("ground_truth", "data_source", "extra_info"):
        columns.setdefault(name, [getattr(example, name) for example in examples])
    return copy.deepcopy(columns)


class Call:
    """One call of a function: its arguments, what it logs, and its result as scores."""

    def __init__(
        self, function: Callable[..., Any], place: str, examples: Sequence[Example], responses: Sequence[str]
    ) -> None:
        self.function, self.place, self.count = function, place, len(responses)
        self.logged: dict[str, list[Any]] = {}
        self.arguments = {
            **columns_of(examples),
            "prompts": copy.deepcopy([example.prompt for example in examples]),
            "completions": [_completion(*row) for row in zip(examples, responses, strict=True)],
            "completion_ids": [list(getattr(response, "ids", ())) for response in responses],
            "log_metric": lambda name, value: self.logged.__setitem__(name, [value] * self.count),
            "log_extra": lambda name, values: self.logged.__setitem__(name, list(values)),
        }

    def result(self) -> Any:
        """What the function returns for the arguments that it takes."""
        taken = inspect.signature(self.function).parameters
        for name, parameter in taken.items():
            needed = parameter.default is parameter.empty and parameter.kind in (
                parameter.KEYWORD_ONLY,
                parameter.POSITIONAL_OR_KEYWORD,
            )
            if needed and name not in self.arguments:
                raise self._missing(name)
        if not any(parameter.kind is ANY_NUMBER for parameter in taken.values()):
            return self.function(**{name: value for name, value in self.arguments.items() if name in taken})
        return self.function(**self.arguments)

    def _missing(self, name: str) -> RewardError:
        known = sorted(self.arguments.keys() - GIVEN)
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(known)}."
        return RewardError(f"{self.place} asks for '{name}', which is no column of the data; {hint}")

    def scores(self, result: Any, as_score: Callable[[Any], Score]) -> list[Score]:
        """One score for each answer; None is an answer that is not judged."""
        values = result.tolist() if hasattr(result, "tolist") else result
        if not isinstance(values, list | tuple):
            raise RewardError(
                f"{self.place} returned {type(result).__name__}, not a list with a reward for each answer."
            )
        if len(values) != self.count:
            raise RewardError(
                f"{self.place} returned {len(values)} rewards for {self.count} answers; return one for each."
            )
        scores = [Score(0.0, judged=False) if value is None else as_score(value) for value in values]
        for name, logged in self.logged.items():
            for row, value in enumerate(logged[: self.count]):
                if isinstance(value, numbers.Real):  # a text has no mean to log
                    scores[row] = replace(scores[row], parts={**scores[row].parts, str(name): float(value)})
        return scores


def _completion(example: Example, response: str) -> Any:
    return response if isinstance(example.prompt, str) else [{"role": "assistant", "content": response}]
