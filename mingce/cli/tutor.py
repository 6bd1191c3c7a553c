"""The tutor: explain, ask, check-log."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mingce.base.lang import display_lang
from mingce.cli.options import (
    AfterOption,
    BetaOption,
    GammaOption,
    LamOption,
    LangOption,
    Level,
    LevelOption,
    MappingOption,
    NumbersOption,
    RolloutOption,
    RunStepOption,
    console,
)

group = typer.Typer()


class Format(StrEnum):
    """How a walk is printed."""

    terminal = "terminal"
    markdown = "markdown"
    json = "json"


@group.command(
    epilog='Examples: mingce explain   mingce explain "请问1+1=2？" "是的，等于2！"   '
    "mingce explain runs/demo --step 12 --rollout 3 --token 4   "
    'mingce explain --rewards "0, 0, 1" --values "0.3, 0.4, 0.6" --lam 0.95 --plot credit.png'
)
def explain(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN_OR_DUMP | PROMPT RESPONSE]",
            help="a rollout of a run or dump, or a pair to score; the worked example if left out",
            show_default=False,
        ),
    ] = None,
    step: RunStepOption = None,
    rollout: RolloutOption = None,
    token: Annotated[int | None, typer.Option(help="one token's account in depth, from 0")] = None,
    run: Annotated[
        str | None, typer.Option(metavar="RUN_OR_MODEL", help="score the pair with this; tiny if left out")
    ] = None,
    score: Annotated[float | None, typer.Option(help="the pair's score, instead of the task's")] = None,
    rewards: NumbersOption = None,
    values: NumbersOption = None,
    scores: NumbersOption = None,
    kl: NumbersOption = None,
    advantages: NumbersOption = None,
    old_log_probs: NumbersOption = None,
    ref_log_probs: NumbersOption = None,
    new_log_probs: NumbersOption = None,
    new_values: NumbersOption = None,
    tokens: Annotated[str | None, typer.Option(help='the tokens of typed numbers: "是 的 ，"')] = None,
    after: AfterOption = None,
    gamma: GammaOption = None,
    lam: LamOption = None,
    beta: BetaOption = None,
    estimator: Annotated[str | None, typer.Option(help="gae, monte_carlo, td0, n_step, uniform, …")] = None,
    n: Annotated[int | None, typer.Option(help="with n_step: how many")] = None,
    k: Annotated[int | None, typer.Option(help="with last_k: how many")] = None,
    mapping: MappingOption = None,
    level: LevelOption = Level.engineer,
    form: Annotated[Format | None, typer.Option("--format", help="terminal, markdown or json")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="write Markdown, or JSON to a .json")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="draw tokens, curves, credit: .png, .svg")] = None,
    plot_lambda: Annotated[Path | None, typer.Option(metavar="FILE", help="draw variance and bias over λ")] = None,
    lang: LangOption = None,
) -> None:
    """Walk through a rollout's account: every stage's formula with its own numbers, token by token, and its code."""
    from mingce.commands import explain as command

    command.explain(
        console,
        words or [],
        numbers={
            "rewards": rewards, "values": values, "scores": scores, "kl": kl, "advantages": advantages,
            "old_log_probs": old_log_probs, "ref_log_probs": ref_log_probs, "new_log_probs": new_log_probs,
            "new_values": new_values,
        },
        settings={"gamma": gamma, "lam": lam, "beta": beta, "estimator": estimator, "n": n, "k": k},
        tokens=tokens, after=after, step=step, rollout=rollout, token=token, run=run, score=score, mapping=mapping,
        level=level.value, lang=display_lang(), form=form.value if form else None, out=out, plot=plot,
        plot_lambda=plot_lambda,
    )  # fmt: skip


@group.command(
    epilog='Examples: mingce ask "为什么 A_t 不等于 δ_t？"   mingce ask --log   '
    'mingce ask runs/demo "why are returns made of raw advantages?" --step 12 --rollout 3'
)
def ask(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[QUESTION] [RUN_OR_DUMP]",
            help="one question; a dialogue if left out. A word that is a path is what the answers are about",
            show_default=False,
        ),
    ] = None,
    step: RunStepOption = None,
    rollout: RolloutOption = None,
    token: Annotated[int | None, typer.Option(help="which token the answers speak of, from 0")] = None,
    rewards: NumbersOption = None,
    values: NumbersOption = None,
    scores: NumbersOption = None,
    kl: NumbersOption = None,
    old_log_probs: NumbersOption = None,
    ref_log_probs: NumbersOption = None,
    new_log_probs: NumbersOption = None,
    after: AfterOption = None,
    gamma: GammaOption = None,
    lam: LamOption = None,
    beta: BetaOption = None,
    mapping: MappingOption = None,
    level: LevelOption = Level.engineer,
    log: Annotated[bool, typer.Option("--log", help="save the dialogue in codex_dialogue/")] = False,
    resume: Annotated[Path | None, typer.Option(metavar="FILE", help="continue a saved dialogue")] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="URL", help="let a chat model (OpenAI-compatible) word the answers; numbers are checked"),
    ] = None,
    model_name: Annotated[str | None, typer.Option(metavar="NAME", help="with --model: which; its first")] = None,
    model_timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="with --model: how long to wait; 120", min=0.1, max=86400)
    ] = None,
    lang: LangOption = None,
) -> None:
    """Ask about PPO, in Chinese or English; the answers compute with your own numbers. Follow-ups keep the example."""
    from mingce.commands import ask as command

    command.ask(
        console,
        words or [],
        numbers={
            "rewards": rewards, "values": values, "scores": scores, "kl": kl, "old_log_probs": old_log_probs,
            "ref_log_probs": ref_log_probs, "new_log_probs": new_log_probs,
        },
        settings={"gamma": gamma, "lam": lam, "beta": beta},
        after=after, step=step, rollout=rollout, token=token, mapping=mapping, level=level.value,
        lang=lang.value if lang else None, log=log, resume=resume, model=model, model_name=model_name,
        model_timeout=model_timeout,
    )  # fmt: skip


@group.command(
    "check-log",
    epilog="Example: mingce check-log codex_dialogue/codex_20261116_093000.md --html marked.html",
)
def check_log(
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="a dialogue, or any Markdown or text; - is standard input")
    ],
    wrong_only: Annotated[bool, typer.Option("--wrong-only", help="leave out what is right")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON, in both languages")] = False,
    page: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="write the text, marked sentence by sentence, as a page"),
    ] = None,
    lang: LangOption = None,
) -> None:
    """Judge the worked numbers and equations of any text, and give the right ones. 0 all right, 1 something wrong."""
    from mingce.commands import check_log as command

    code = command.check_log(console, path, lang=display_lang(), as_json=as_json, wrong_only=wrong_only, page=page)
    raise typer.Exit(code)
