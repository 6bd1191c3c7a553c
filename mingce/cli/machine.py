"""What asks about machines and files: plan, doctor, verify."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mingce.base.errors import SettingError
from mingce.base.lang import display_lang
from mingce.cli.options import LangOption, Settings, console

group = typer.Typer()


@group.command(epilog="Example: mingce plan recipes/grpo.yaml --model-config 7b --gpus 64 --gpu h100 --up-to 1024")
def plan(
    settings: Settings = None,
    model_config: Annotated[
        str | None,
        typer.Option(metavar="PRESET|FILE|DIR", help="7b, a config.json or a model directory; else the recipe's model"),
    ] = None,
    gpus: Annotated[int, typer.Option(help="GPUs in all, one rank each")] = 8,
    gpus_per_node: Annotated[int, typer.Option(help="GPUs of a node")] = 8,
    gpu: Annotated[str, typer.Option(help="a100, h100, h200, b200, mi300x or rtx4090: its data sheet")] = "h100",
    gpu_memory: Annotated[str | None, typer.Option(metavar="SIZE", help="memory of a GPU, such as 80GB")] = None,
    tflops: Annotated[float | None, typer.Option(help="dense TFLOP/s of a GPU")] = None,
    bandwidth: Annotated[str | None, typer.Option(metavar="RATE", help="of a GPU's memory, such as 3350GB/s")] = None,
    link: Annotated[str | None, typer.Option(metavar="RATE", help="between GPUs of a node, such as 450GB/s")] = None,
    network: Annotated[
        str | None, typer.Option(metavar="RATE", help="between nodes, for each GPU, such as 400Gb/s")
    ] = None,
    prompt_tokens: Annotated[int | None, typer.Option(help="mean length of a prompt; the limit if left out")] = None,
    response_tokens: Annotated[
        int | None, typer.Option(help="mean length of a response; the limit if left out")
    ] = None,
    up_to: Annotated[int | None, typer.Option(metavar="GPUS", help="how far to look at growth")] = None,
    assume: Annotated[
        list[str] | None, typer.Option(metavar="NAME=NUMBER", help="replace an assumption, such as train=0.35")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON, unrounded")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="print Markdown")] = False,
    lang: LangOption = None,
) -> None:
    """What a run will need on a cluster, before it runs: memory, traffic, time, growth. 0 it fits, 1 it does not."""
    if as_json and as_markdown:
        raise SettingError("--json and --markdown exclude each other; choose one.")
    from mingce.commands import plan as command
    from mingce.plan.plan import Request

    request = Request(
        settings=settings or [], model_config=model_config, gpus=gpus, gpus_per_node=gpus_per_node, gpu=gpu,
        gpu_memory=gpu_memory, tflops=tflops, bandwidth=bandwidth, link=link, network=network,
        prompt_tokens=prompt_tokens, response_tokens=response_tokens, up_to=up_to, assume=assume or [],
    )  # fmt: skip
    fits = command.run(console, request, lang=display_lang(), as_json=as_json, as_markdown=as_markdown)
    raise typer.Exit(0 if fits else 1)


@group.command(epilog="Example: mingce doctor --lang en")
def doctor(lang: LangOption = None) -> None:
    """What this machine has, and whether mingce's numbers are right on it."""
    from mingce.commands import doctor as command

    if not command.run(console, lang=display_lang()):
        raise typer.Exit(2)


@group.command(epilog="Example: mingce verify runs/demo")
def verify(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="the run's directory")],
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
    lang: LangOption = None,
) -> None:
    """Read every file of a run and say what is whole, damaged, or covered by no checksum. 0 whole, 1 damage."""
    from mingce.commands import verify as command

    raise typer.Exit(command.run(console, run, as_json=as_json))
