"""`mingce check`: proof without a model, and without torch, that a task's scorer accepts its own right answers."""

from __future__ import annotations

from rich.console import Console

from mingce.base.errors import SettingError
from mingce.tasks.check import check_task, render
from mingce.tasks.function import FunctionScorer
from mingce.tasks.registry import load_task


def run(
    console: Console,
    task: str,
    *,
    lang: str = "zh",
    function: str | None = None,
    full_marks: float = 1.0,
    examples: int = 20,
    time_limit: float | None = None,
) -> bool:
    """Checks `examples` of a task or data file and prints samples and every failure; True if none failed.

    `lang` is that of an embedded task; `function` (`file.py[:name]`) scores instead of the task itself, an answer
    being right from `full_marks` on; `time_limit` is in seconds for one answer.
    """
    if examples < 1:
        raise SettingError(f"--examples must be at least 1, but is {examples}.")
    checked = load_task(task, lang=lang, function=function, full_marks=full_marks)
    other = None if function is None else (FunctionScorer(function), full_marks)
    report = check_task(checked, other, examples=examples, time_limit=time_limit)
    console.print(render(report))
    return not report.failures
