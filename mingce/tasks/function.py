"""The person's own reward function in a file of theirs, called as verl or as TRL calls it, plain or async.

    def compute_score(data_source, solution_str, ground_truth, extra_info) -> float | dict      one answer (verl)
    def any_name(completions, **columns) -> list[float | None]                                  a whole batch (TRL)

A dict holds `score` and any number of named parts, all numbers; the parts are logged beside the score. Async functions
of verl's kind score the answers of a batch at once.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import math
import numbers
import traceback
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from mingce.base.errors import RewardError
from mingce.base.paths import resolved
from mingce.base.user_files import find_callable, own_line, run_file, split_file_spec
from mingce.tasks import trl_function
from mingce.tasks.base import Example, Score
from mingce.tasks.limit import Failure, too_slow

USUAL_NAME = "compute_score"
ARGUMENTS = ("data_source", "solution_str", "ground_truth", "extra_info")
AT_ONCE = 64
"""Answers that an async function scores at the same time."""


class FunctionScorer:
    """A scorer from `path/to/file.py`, or `path/to/file.py:name` where the function is not called `compute_score`.

    A file with one function of TRL's kind needs no name. The file is run when the function is first wanted: in a worker
    process as it starts, and in this one only if it is called here.
    """

    def __init__(self, spec: str) -> None:
        path, name = split_spec(spec)
        self.path, self.function_name = resolved(path), name
        self.name = path.stem
        if not self.path.is_file():
            raise RewardError(f"there is no reward file {self.path}; check the path.")

    @classmethod
    def loaded(cls, spec: str) -> FunctionScorer:
        """The scorer with its file run and its function checked."""
        scorer = cls(spec)
        assert scorer.function is not None
        return scorer

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The person's function."""
        return load_function(self.path, self.function_name)

    @cached_property
    def batched(self) -> bool:
        """Whether it is given all answers of a batch in one call."""
        return trl_function.is_one(self.function) or is_async(self.function)

    def __call__(self, example: Example, response: str) -> Score:
        if trl_function.is_one(self.function):
            return self._trl([example], [response])[0]
        result = self.function(**_arguments(example, response))
        return as_score(self._run(result) if inspect.isawaitable(result) else result)

    def batch(
        self, examples: Sequence[Example], responses: Sequence[str], time_limit: float | None
    ) -> list[Score | Failure]:
        """What every answer earned, or why it earned nothing; `time_limit` is for one answer."""
        if trl_function.is_one(self.function):
            return [*self._trl(examples, responses)]
        outcomes: list[Score | Failure] = self._run(self._at_once(examples, responses, time_limit))
        return outcomes

    def _trl(self, examples: Sequence[Example], responses: Sequence[str]) -> list[Score]:
        call = trl_function.Call(self.function, place_of(self.function, self.path), examples, responses)
        result = call.result()
        return call.scores(self._run(result) if inspect.isawaitable(result) else result, as_score)

    async def _at_once(
        self, examples: Sequence[Example], responses: Sequence[str], time_limit: float | None
    ) -> list[Score | Failure]:
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(example: Example, response: str) -> Score | Failure:
            async with gate:
                try:
                    async with asyncio.timeout(time_limit) as limit:
                        return as_score(await self.function(**_arguments(example, response)))
                except Exception as error:
                    if limit.expired() and time_limit is not None:
                        return too_slow(time_limit)
                    return Failure(own_line(error), traceback.format_exc())

        return await asyncio.gather(*map(one, examples, responses))

    def _run(self, awaited: Awaitable[Any]) -> Any:
        async def waited() -> Any:
            return await awaited

        return self._loop.run(waited())

    @cached_property
    def _loop(self) -> asyncio.Runner:
        """One event loop for the life of the process, so that a client which the function keeps stays usable."""
        return asyncio.Runner()

    def __reduce__(self) -> tuple[Callable[[str], FunctionScorer], tuple[str]]:
        return FunctionScorer.loaded, (f"{self.path}:{self.function_name}",)


def split_spec(spec: str) -> tuple[Path, str]:
    """The file and the function's name of `path/to/file.py[:name]`."""
    parts = split_file_spec(spec)
    if parts is None:
        raise RewardError(f"'{spec}' names no reward function; write path/to/file.py or path/to/file.py:name.")
    return parts[0], parts[1] or USUAL_NAME


def load_function(path: Path, name: str) -> Callable[..., Any]:
    """The function of the file, checked to take verl's four arguments by name, or TRL's completions."""
    function: Callable[..., Any] = _only_one(path, name) or find_callable(path, name, RewardError)
    if trl_function.is_one(function):
        return function
    try:
        inspect.signature(function).bind(**dict.fromkeys(ARGUMENTS))
    except TypeError as error:
        call = f"{name}({', '.join(ARGUMENTS)})"
        raise RewardError(
            f"{place_of(function, path)}: {name} cannot be called as {call} ({error}), "
            f"nor as {name}(completions, **columns); change its arguments."
        ) from error
    return function


def _only_one(path: Path, name: str) -> Callable[..., Any] | None:
    """The only reward function of TRL's kind in the file, where it has none of the usual name and no name was given."""
    module = run_file(path, RewardError)
    if name != USUAL_NAME or hasattr(module, name):
        return None
    own = [value for value in vars(module).values() if getattr(value, "__module__", None) == module.__name__]
    found = [value for value in own if inspect.isfunction(value) and trl_function.is_one(value)]
    return found[0] if len(found) == 1 else None


def place_of(function: Callable[..., Any], path: Path) -> str:
    """The file, and the line where the function begins if it is known."""
    return f"{path}, line {code.co_firstlineno}" if (code := getattr(function, "__code__", None)) else str(path)


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a call has to be awaited; an object may have an async `__call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _arguments(example: Example, response: str) -> dict[str, Any]:
    """verl's arguments: copies, so that a function which writes into them scores the same here as in a process."""
    return {
        "data_source": example.data_source,
        "solution_str": response,
        "ground_truth": copy.deepcopy(example.ground_truth),
        "extra_info": copy.deepcopy(example.extra_info),
    }


def as_score(result: Any) -> Score:
    """What a reward function returned, as a score; anything but finite numbers is refused by name."""
    if not isinstance(result, dict):
        return Score(_number(result, "the score"))
    if "score" not in result:
        raise RewardError(
            f"the reward function returned a dict without 'score' (its keys: {', '.join(map(str, result))})."
        )
    parts = {str(key): _number(value, f"'{key}'") for key, value in result.items() if key != "score"}
    return Score(_number(result["score"], "'score'"), parts)


def _number(value: Any, what: str) -> float:
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):  # a scalar of numpy or torch
        value = value.item()
    if not isinstance(value, numbers.Real):
        raise RewardError(f"the reward function returned {what} as {type(value).__name__}, not a number.")
    if not math.isfinite(value):
        raise RewardError(f"the reward function returned {what} as {value}, which is not finite.")
    return float(value)
