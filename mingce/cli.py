"""The command line. Commands import what they need when they run, so that `mingce --help` starts at once."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from mingce.errors import MingceError, SettingError

app = typer.Typer(
    name="mingce",
    help="mingce 明策: PPO for language models with every token's account open.",
    epilog="Example: mingce example --lang zh",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
console = Console()


class Lang(StrEnum):
    """The language of what is printed."""

    zh = "zh"
    en = "en"


LangOption = Annotated[Lang, typer.Option("--lang", "-l", help="zh or en")]


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="show the traceback of an error")] = False,
    version: Annotated[bool, typer.Option("--version", help="print the version and exit")] = False,
) -> None:
    if version:
        from mingce import __version__

        console.print(__version__)
        raise typer.Exit


@app.command(epilog="Example: mingce example --lang zh")
def example(lang: LangOption = Lang.zh) -> None:
    """The worked example 请问1+1=2？ → 是的，等于2！, token by token, through the real functions."""
    from mingce.example import show

    show(console, lang)


@app.command(epilog="Example: mingce columns advantages --lang en")
def columns(
    name: Annotated[str | None, typer.Argument(help="one column, or an alias of it; all if left out")] = None,
    lang: LangOption = Lang.en,
) -> None:
    """The column table: what each number is, at which index, and how it is computed."""
    from mingce.columns import COLUMNS, column

    if name is None:
        table = Table("column", "symbol", "aligned", "formula")
        for known in COLUMNS.values():
            table.add_row(known.name, known.symbol, known.alignment, known.formula)
        console.print(table)
        return
    known = column(name)
    console.print(
        f"[bold]{known.name}[/]  {known.symbol}  ({known.alignment}, {known.dtype})\n{known.formula}", highlight=False
    )
    if known.inputs:
        console.print(f"← {', '.join(known.inputs)}   [dim]{known.source}[/]", highlight=False)
    sentence, paragraph = (known.zh, known.long_zh) if lang == Lang.zh else (known.en, known.long_en)
    console.print(f"\n{sentence}\n\n{paragraph}", highlight=False)


def _numbers(option: str, text: str) -> list[float]:
    """Numbers separated by commas or spaces."""
    try:
        return [float(part) for part in text.replace(",", " ").split()]
    except ValueError as error:
        raise SettingError(f"--{option} must be numbers separated by commas: {error}.") from None


@app.command(epilog='Example: mingce credit --rewards "0, 0, 1" --values "0.3, 0.4, 0.6" --lam 0.95')
def credit(
    rewards: Annotated[str, typer.Option(help="one number a token, separated by commas")],
    values: Annotated[str, typer.Option(help="the critic's value before each token")],
    gamma: Annotated[float, typer.Option(help="discount γ, 0 to 1")] = 1.0,
    lam: Annotated[float, typer.Option(help="λ of GAE, 0 to 1")] = 0.95,
    after: Annotated[float, typer.Option(help="value after the last token: 0 if the response ended")] = 0.0,
) -> None:
    """TD errors, advantages and returns of a row of your own, with the numbers put into the formulae."""
    from mingce.account import account_table
    from mingce.algorithms import reference

    r, v = _numbers("rewards", rewards), _numbers("values", values)
    if len(r) != len(v):
        raise SettingError(f"--rewards has {len(r)} numbers and --values {len(v)}; give one of each a token.")
    for name, value in (("gamma", gamma), ("lam", lam)):
        if not 0 <= value <= 1:
            raise SettingError(f"--{name} must lie between 0 and 1, but is {value}.")
    account = reference.gae([r], [v], [[1] * len(r)], gamma, lam, [after])
    a, d = account.advantages[0], account.deltas[0]
    shown = {"rewards": r, "values": v, "deltas": d, "advantages": a, "returns": account.returns[0]}
    console.print(account_table([f"y_{t}" for t in range(len(r))], shown))
    for t in reversed(range(len(r))):
        following_v, following_a = (v[t + 1], a[t + 1]) if t + 1 < len(r) else (after, 0.0)
        console.print(
            f"δ_{t} = {r[t]:g} + {gamma:g}·{following_v:g} − {v[t]:g} = {d[t]:.4g}    "
            f"A_{t} = {d[t]:.4g} + {gamma * lam:.4g}·{following_a:.4g} = {a[t]:.4g}    "
            f"R_{t} = {a[t]:.4g} + {v[t]:g} = {account.returns[0][t]:.4g}",
            highlight=False,
        )


def main() -> None:
    """The `mingce` command: a person's mistake is one sentence on stderr and exit code 2."""
    try:
        app()
    except MingceError as error:
        if "--debug" in sys.argv:
            raise
        Console(stderr=True).print(f"[bold red]mingce:[/] {error}", highlight=False, soft_wrap=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
