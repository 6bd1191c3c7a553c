"""What uses a trained model or a task: eval, chat, export, check."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mingce.cli.options import Lang, LangOption, TrustOption, console

group = typer.Typer()
Where = Annotated[
    str, typer.Argument(metavar="RUN_OR_MODEL", help="a run's directory, tiny, smollm2, or a Hugging Face directory")
]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="settings laid over the run's own", show_default=False)
]
StepOption = Annotated[
    str | None,
    typer.Option("--step", metavar="N|best", help="which checkpoint; the newest if left out, 0 is the model as it was"),
]


@group.command("eval", epilog="Example: mingce eval runs/demo --step best --samples 8 --out answers.jsonl")
def evaluate(
    where: Where,
    overrides: Overrides = None,
    step: StepOption = None,
    task: Annotated[str | None, typer.Option(help="another task than the run's: a name, or a data file")] = None,
    examples: Annotated[int | None, typer.Option(help="how many held-out prompts")] = None,
    samples: Annotated[int | None, typer.Option(help="how many sampled answers to each")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object instead of tables")] = False,
    out: Annotated[Path | None, typer.Option(help="write every answer with its score to this JSONL file")] = None,
    trust: TrustOption = False,
    lang: LangOption = None,
) -> None:
    """Accuracy, greedy and sampled, mean score, pass@n and length on prompts that were held out."""
    from mingce.record.targets import find_run, parse_step

    find_run(where, parse_step(step))  # reports a wrong path before torch is loaded
    from mingce.commands import evaluate as command

    command.run(
        console, where, step=parse_step(step), task=task, examples=examples, samples=samples,
        overrides=overrides or [], as_json=as_json, out=out, trust=trust,
    )  # fmt: skip


@group.command(epilog="Example: mingce chat runs/demo --step best")
def chat(
    where: Where,
    overrides: Overrides = None,
    step: StepOption = None,
    tools: Annotated[
        bool, typer.Option("--tools", help="with the environment it was trained in: its tools are really called")
    ] = False,
    play: Annotated[
        bool, typer.Option("--play", help="you are the policy: the environment answers what you type, and scores it")
    ] = False,
    trust: TrustOption = False,
    lang: LangOption = None,
) -> None:
    """Talk to a checkpoint; every token stands on the colour of its value V(s_t). Reads a pipe too."""
    from mingce.record.targets import find_run, parse_step

    find_run(where, parse_step(step))
    if tools or play:
        from mingce.commands import agent_chat

        agent_chat.run(console, where, step=parse_step(step), overrides=overrides or [], person_plays=play, trust=trust)
        return
    from mingce.commands import chat as command

    command.run(console, where, step=parse_step(step), overrides=overrides or [])


@group.command(epilog="Example: mingce export runs/demo --step best --out my-model")
def export(
    where: Where,
    out: Annotated[Path, typer.Option(help="the directory to make; it must not exist yet")],
    step: StepOption = None,
    critic: Annotated[bool, typer.Option("--critic", help="the critic too, in OUT/critic")] = False,
    adapter: Annotated[bool, typer.Option("--adapter", help="LoRA adapters alone (PEFT) instead of merged")] = False,
    lang: LangOption = None,
) -> None:
    """Write a checkpoint as a plain Hugging Face directory."""
    from mingce.record.targets import find_run, parse_step

    find_run(where, parse_step(step))
    from mingce.commands import export as command

    command.run(console, where, out, step=parse_step(step), critic=critic, adapter=adapter)


@group.command(epilog="Example: mingce check data/train.parquet --function reward.py")
def check(
    task: Annotated[str, typer.Argument(metavar="TASK_OR_DATA", help="a task's name or a data file")],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="settings such as data.prompt_key=problem", show_default=False),
    ] = None,
    task_lang: Annotated[Lang, typer.Option(help="of an embedded task's prompts: zh or en")] = Lang.zh,
    function: Annotated[
        str | None, typer.Option(metavar="FILE.py[:NAME]", help="score with this reward function instead")
    ] = None,
    full_marks: Annotated[
        float | None, typer.Option(help="with a function: the score from which an answer is right, 1 if left out")
    ] = None,
    examples: Annotated[int, typer.Option(help="how many examples")] = 20,
    time_limit: Annotated[float | None, typer.Option(help="seconds for scoring one answer")] = None,
    lang: LangOption = None,
) -> None:
    """Prove without a model that a scorer accepts its own right answers, and refuses wrong ones."""
    from mingce.commands import check as command

    fine = command.run(
        console, task, lang=task_lang.value, function=function, full_marks=full_marks, examples=examples,
        time_limit=time_limit, overrides=settings or [],
    )  # fmt: skip
    if not fine:
        raise typer.Exit(2)
