"""`mingce eval`: how well a checkpoint or a model answers prompts it was not trained on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from mingce.base.atomic import atomic_write
from mingce.base.errors import DataError, RunError, SettingError
from mingce.base.numbers import percent, rounded
from mingce.base.terminal import make_console, print_note
from mingce.base.texts import sentence
from mingce.config import Config, JudgeConfig
from mingce.engine.local import fitting_examples, task_of, worlds_of
from mingce.progress.tokens import visible
from mingce.record.targets import Step
from mingce.roles.actor import Actor
from mingce.roles.reward import Judge, extra_members, reward_scorer
from mingce.tasks.base import Example, Task
from mingce.tasks.registry import names_files
from mingce.tasks.scoring import prompt_text
from mingce.training.evaluation import Answer, Evaluation, evaluate
from mingce.training.opening import Opened, open_policy
from mingce.training.trust import expect_trust

SHOWN = 5
LONGEST_SHOWN = 80


def run(
    console: Console,
    where: str,
    *,
    step: Step = None,
    task: str | None = None,
    examples: int | None = None,
    samples: int | None = None,
    overrides: Sequence[str] = (),
    as_json: bool = False,
    out: Path | None = None,
    trust: bool = False,
) -> None:
    """Evaluates and prints a table with some answers, or one JSON object.

    `task` is another one than the run's: a name, or a data file of which every row is then asked. `examples` and
    `samples` are by default what the configuration validates with and draws for a prompt in training. `trust` executes
    the reward function that a run names without asking.
    """
    for option, number in (("examples", examples), ("samples", samples)):
        if number is not None and number < 1:
            raise SettingError(f"--{option} must be at least 1, but is {number}.")
    if out is not None and (out.is_dir() or not out.parent.is_dir()):
        raise RunError(f"--out {out} cannot be written; give a file in a directory that exists.")
    opened = open_policy(where, step=step, overrides=overrides, critic=False, note=print_note)
    config = opened.config if task is None else on_task(opened.config, task)
    run = None if opened.run is None else opened.run.path
    expect_trust(run, config, overrides, trust=trust, command="eval")
    asked, task_scores = task_of(config)
    opened.actor.worlds = worlds_of(config, asked, opened.actor)
    prompts = _held_out(asked, opened.actor, config)
    chosen = [prompts[i] for i in range(min(examples or config.validation.examples, len(prompts)))]
    members = extra_members(config.reward)
    scorer = reward_scorer(asked, config.reward, members, task_scores=task_scores)
    columns = TextColumn(_say("progress")), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    aside = make_console(stderr=True)
    try:
        with Progress(*columns, console=aside, transient=True, disable=not aside.is_terminal) as progress:
            bar = progress.add_task("", total=None)
            evaluation = evaluate(
                opened.actor,
                scorer,
                Judge(asked, config.reward, members),
                chosen,
                samples or config.samples_per_prompt,
                lambda done, total, _: progress.update(bar, completed=done, total=total),
            )
    finally:
        scorer.close()
    if out is not None:
        atomic_write(out, b"".join(_lines(evaluation)))
    if as_json:
        console.out(json.dumps(_summary(opened, config, asked, evaluation), ensure_ascii=False), highlight=False)
        return
    _show(console, opened, config, asked, evaluation)
    if out is not None:
        count = sum(1 for _ in _lines(evaluation))
        console.print(Text(_say("written", count=count, out=out)), soft_wrap=True)


def on_task(config: Config, task: str) -> Config:
    """The configuration with another task, scored by what that task brings; a data file is asked row by row."""
    if names_files(task):
        return replace(config, data=replace(config.data, train=[task], held_out=[task]))
    return replace(
        config,
        task=task,
        data=replace(config.data, train=[], held_out=[]),
        reward=replace(config.reward, function=[], model=None, judge=JudgeConfig()),
    )


def _held_out(task: Task, actor: Actor, config: Config) -> Sequence[Example]:
    """The prompts that fit, of those the task keeps apart."""
    examples = task.held_out_examples()
    if not len(examples):
        raise DataError(f"{task.name} has no held-out prompts; give a data file to evaluate on with --task FILE.")
    fitting = fitting_examples(config, examples, actor.tokenizer)
    if fitting.overlong:
        print_note(_say("overlong", count=fitting.overlong, most=config.data.max_prompt_tokens))
    return fitting.examples


def _lines(evaluation: Evaluation) -> Iterator[bytes]:
    for first, rest in zip(evaluation.greedy, evaluation.sampled, strict=True):
        for answer in (first, *rest):
            yield json.dumps(answer.values(), ensure_ascii=False, default=str).encode() + b"\n"


def _summary(opened: Opened, config: Config, task: Task, evaluation: Evaluation) -> dict[str, Any]:
    return {
        "where": opened.where,
        "step": opened.step,
        "model": config.model.path,
        "task": task.name,
        "lang": config.data.lang,
        "prompts": len(evaluation.greedy),
        "samples": len(evaluation.sampled[0]),
        "temperature": opened.actor.sampling.temperature,
        **evaluation.figures(),
    }


def _show(console: Console, opened: Opened, config: Config, task: Task, evaluation: Evaluation) -> None:
    figures = evaluation.figures()
    samples = len(evaluation.sampled[0])
    where = opened.where
    if opened.step is not None:
        where = sentence("commands.at_step", where=where, step=opened.step)
    title = _say(
        "title",
        where=where,
        task=task.name,
        prompts=len(evaluation.greedy),
        temperature=opened.actor.sampling.temperature,
    )
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    table.add_column(_say("greedy"), justify="right")
    table.add_column(_say("sampled", samples=samples), justify="right")
    shown: list[tuple[str, str, Callable[[float], str]]] = [
        ("score", "score", lambda x: rounded(x, 3)),
        ("length", "length", lambda x: rounded(x, 1)),
        ("cut", "cut", percent),
    ]
    accuracies = [_with_error(figures, f"accuracy_{kind}") for kind in ("greedy", "sampled")]
    table.add_row(_say("accuracy"), *accuracies, style="bold")
    if samples > 1:
        table.add_row(_say("pass", samples=samples), "", percent(figures["pass_at_n"]))
    for label, name, form in shown:
        table.add_row(_say(label), *(form(figures[f"{name}_{kind}"]) for kind in ("greedy", "sampled")))
    console.print(Text(title, style="bold"), soft_wrap=True)
    console.print(table)
    answers = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in (_say("prompt"), _say("greedy"), _say("one_sample")):
        answers.add_column(heading, overflow="fold")
    for first, rest in list(zip(evaluation.greedy, evaluation.sampled, strict=True))[:SHOWN]:
        answers.add_row(_cut(prompt_text(first.example)), _marked(first), _marked(rest[0]))
    console.print(answers)


def _with_error(figures: dict[str, float], name: str) -> str:
    return f"{percent(figures[name])} ± {rounded(100 * figures[name + '_error'], 1)}"


def _marked(answer: Answer) -> Text:
    mark, colour = ("✓", "green") if answer.right else ("✗", "red")
    return Text.assemble((f"{mark} ", colour), _cut(answer.response))


def _cut(text: str) -> Text:
    shown = visible(text.strip())
    return Text(shown if len(shown) <= LONGEST_SHOWN else shown[: LONGEST_SHOWN - 1] + "…")


def _say(name: str, **values: object) -> str:
    return sentence(f"commands.eval_{name}", **values)
