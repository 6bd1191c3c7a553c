"""The person's own reward function, `compute_score` in a file of theirs, called as verl calls it.

    def compute_score(data_source, solution_str, ground_truth, extra_info) -> float | dict

A dict holds `score` and any number of named parts, all numbers; the parts are logged beside the score.
"""

from __future__ import annotations

import copy
import inspect
import math
import numbers
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from mingce.base.errors import RewardError
from mingce.base.paths import resolved
from mingce.base.user_files import find_callable, split_file_spec
from mingce.tasks.base import Example, Score

ARGUMENTS = ("data_source", "solution_str", "ground_truth", "extra_info")


class FunctionScorer:
    """A scorer from `path/to/file.py`, or `path/to/file.py:name` where the function is not called `compute_score`.

    The file is run when the function is first wanted: in a worker process as it starts, and in this one only if it is
    called here.
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

    def __call__(self, example: Example, response: str) -> Score:
        # Copies, so that a function which writes into its arguments scores the same here as in a worker process.
        result = self.function(
            data_source=example.data_source,
            solution_str=response,
            ground_truth=copy.deepcopy(example.ground_truth),
            extra_info=copy.deepcopy(example.extra_info),
        )
        return as_score(result)

    def __reduce__(self) -> tuple[Callable[[str], FunctionScorer], tuple[str]]:
        return FunctionScorer.loaded, (f"{self.path}:{self.function_name}",)


def split_spec(spec: str) -> tuple[Path, str]:
    """The file and the function's name of `path/to/file.py[:name]`."""
    parts = split_file_spec(spec)
    if parts is None:
        raise RewardError(f"'{spec}' names no reward function; write path/to/file.py or path/to/file.py:name.")
    return parts[0], parts[1] or "compute_score"


def load_function(path: Path, name: str) -> Callable[..., Any]:
    """The function of the file, checked to take the four arguments by name."""
    function: Callable[..., Any] = find_callable(path, name, RewardError)
    where = f"{path}, line {code.co_firstlineno}" if (code := getattr(function, "__code__", None)) else str(path)
    try:
        inspect.signature(function).bind(**dict.fromkeys(ARGUMENTS))
    except TypeError as error:
        call = f"{name}({', '.join(ARGUMENTS)})"
        raise RewardError(f"{where}: {name} cannot be called as {call} ({error}); change its arguments.") from error
    if inspect.iscoroutinefunction(function):
        raise RewardError(f"{where}: {name} is async; write it as a plain def, slow ones run in worker processes.")
    return function


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
