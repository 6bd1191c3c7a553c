"""What reads dumps and runs: audit, diff, view."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mingce.base.errors import SettingError
from mingce.base.lang import display_lang
from mingce.cli.options import LangOption, MappingOption, console

group = typer.Typer()
Dumps = Annotated[list[Path], typer.Argument(metavar="FILE_OR_DIR", help="dumps of any trainer, or a run's directory")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="another setting, such as eos_id=2", show_default=False),
]


@group.command("audit", epilog="Example: mingce audit dumps/step_12.pt --gamma 1 --lam 0.95 --set eos_id=2")
def audit_(
    places: Dumps,
    mapping: MappingOption = None,
    gamma: Annotated[float | None, typer.Option(help="discount γ; inferred if left out")] = None,
    lam: Annotated[float | None, typer.Option(help="λ of GAE; inferred if left out")] = None,
    beta: Annotated[float | None, typer.Option(help="β of the KL in the reward; inferred if left out")] = None,
    settings: SetOption = None,
    step: Annotated[list[int] | None, typer.Option(help="only this step; may be repeated", show_default=False)] = None,
    model: Annotated[Path | None, typer.Option(metavar="DIR", help="the policy's weights: replay log-probs")] = None,
    ref_model: Annotated[Path | None, typer.Option(metavar="DIR", help="the reference's weights: replay them")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON, in both languages")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="print Markdown")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write the report there (.json or Markdown), print the verdict")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE.xml", help="write JUnit XML too, a case per check")
    ] = None,
    sarif: Annotated[Path | None, typer.Option(metavar="FILE", help="write SARIF too, a result per finding")] = None,
    require: Annotated[
        str, typer.Option(metavar="AREAS", help="exit 2 unless these were judged: credit,masks,… or all")
    ] = "",
    explain_missing: Annotated[
        bool, typer.Option("--explain-missing", help="print what to record so that the skipped checks run")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="go on with what a running trainer writes there, a line per step")
    ] = False,
    until_idle: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, help="with --follow: end when nothing new has come for so long"),
    ] = None,
    lang: LangOption = None,
) -> None:
    """Recompute any trainer's token dump with independent code and name what is wrong. 0 no bug, 1 a bug, 2 not run."""
    if as_json and as_markdown:
        raise SettingError("--json and --markdown exclude each other; choose one.")
    from mingce.commands import audit as command

    code = command.run(
        console, places, mapping=mapping,
        settings=command.parse_settings(settings or [], gamma=gamma, lam=lam, beta=beta), steps=step or [],
        model=model, ref_model=ref_model, require=command.parse_areas(require),
        output=command.Output(as_json, as_markdown, out, junit, sarif, explain_missing),
        follow=follow, until_idle=until_idle, lang=display_lang(),
    )  # fmt: skip
    raise typer.Exit(code)


@group.command(epilog="Example: mingce diff verl/step_1.pt openrlhf/step_1.pt --lang en")
def diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="a dump")],
    b: Annotated[Path, typer.Argument(metavar="B", help="a dump of the same batch from elsewhere")],
    mapping: MappingOption = None,
    step: Annotated[int | None, typer.Option(help="the step to compare, where there are several")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON, in both languages")] = False,
    lang: LangOption = None,
) -> None:
    """Two dumps of one batch: the first column, row and token where they part, and why. 0 the same, 1 they part."""
    from mingce.commands import diff as command

    raise typer.Exit(command.run(console, a, b, mapping=mapping, step=step, as_json=as_json, lang=display_lang()))


@group.command(epilog="Example: mingce view runs/demo")
def view(
    places: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN_OR_DUMP", help="runs, a directory of runs, or dumps; runs/ if left out"),
    ] = None,
    host: Annotated[
        str, typer.Option(help="listen there instead; beyond this machine a token is needed")
    ] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(help="a free one if left out", min=1, max=65535)] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="open the page in the browser")] = True,
    mapping: MappingOption = None,
    tokenizer: Annotated[
        Path | None, typer.Option(metavar="FILE_OR_DIR", help="a tokenizer.json for the tokens' texts, for dumps")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="write one self-contained file instead of serving")
    ] = None,
    steps: Annotated[str | None, typer.Option(metavar="A,B", help="with --export: which steps")] = None,
    rollouts: Annotated[int, typer.Option(help="with --export: how many rollouts of each step")] = 16,
    with_audit: Annotated[bool, typer.Option("--audit", help="with --export: the audit of each step too")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="dumps: show what a running trainer writes there as it arrives")
    ] = False,
    lang: LangOption = None,
) -> None:
    """See where every token's credit comes from: a local web page over runs and dumps. Changes nothing."""
    from mingce.commands import view as command

    command.run(
        console, places or [Path("runs")], host=host, port=port, browser=browser, mapping=mapping,
        tokenizer=tokenizer, export=export, steps=steps, rollouts=rollouts, audit=with_audit,
        follow=follow, lang=display_lang(),
    )  # fmt: skip
