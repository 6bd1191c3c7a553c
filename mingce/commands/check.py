"""`mingce check`: proof without a model, and without torch, that a task's scorer accepts its own right answers."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from mingce.base.errors import SettingError
from mingce.config import read_config
from mingce.tasks.check import check_task, render
from mingce.tasks.data_columns import Keys
from mingce.tasks.function import FunctionScorer
from mingce.tasks.registry import load_task


def run(
    console: Console,
    task: str,
    *,
    lang: str = "zh",
    function: str | None = None,
    full_marks: float | None = None,
    examples: int = 20,
    time_limit: float | None = None,
    overrides: Sequence[str] = (),
) -> bool:
    """Checks `examples` of a task or data file and prints samples and every failure; True if none failed.

    `lang` is that of an embedded task; `function` (`file.py[:name]`) scores instead of the task itself, an answer
    being right from `full_marks` on; `time_limit` is in seconds for one answer. `overrides` are settings of the data,
    and `reward.function`, whose first is checked where there is no `function`.
    """
    if examples < 1:
        raise SettingError(f"--examples must be at least 1, but is {examples}.")
    config = read_config(None, overrides)
    data, reward = config.data, config.reward
    function = function or (reward.function[0] if reward.function else None)
    full_marks = reward.full_marks if full_marks is None else full_marks
    checked = load_task(
        task,
        lang=lang,
        function=function,
        full_marks=full_marks,
        held_out=data.held_out or None,
        chat=data.chat,
        size=data.size,
        held_out_size=data.held_out_size,
        options=data.options or None,
        keys=Keys.of(data),
    )
    other = None if function is None else (FunctionScorer(function), full_marks)
    report = check_task(checked, other, examples=examples, time_limit=time_limit)
    console.print(render(report))
    return not report.failures
