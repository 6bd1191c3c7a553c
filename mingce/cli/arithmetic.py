"""Definitions and small sums, without a run: example, columns, credit."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from mingce.base.errors import SettingError
from mingce.base.lang import display_lang
from mingce.cli.options import LangOption, console

group = typer.Typer()


@group.command(epilog="Example: mingce example --lang zh")
def example(lang: LangOption = None) -> None:
    """The worked example 请问1+1=2？ → 是的，等于2！, token by token, through the real functions."""
    from mingce.explain.worked_example import show

    show(console, display_lang())


@group.command(epilog="Example: mingce columns advantages --lang en")
def columns(
    name: Annotated[str | None, typer.Argument(help="one column, or an alias of it; all if left out")] = None,
    lang: LangOption = None,
) -> None:
    """The column table: what each number is, at which index, and how it is computed."""
    from mingce.columns import COLUMNS, column

    chinese = display_lang() == "zh"
    if name is None:
        table = Table("column", "symbol", "aligned", "formula")
        for known in COLUMNS.values():
            table.add_row(known.name, known.symbol, known.alignment, known.formula_zh if chinese else known.formula)
        console.print(table)
        return
    known = column(name)
    formula = known.formula_zh if chinese else known.formula
    console.print(
        f"[bold]{known.name}[/]  {known.symbol}  ({known.alignment}, {known.dtype})\n{formula}", highlight=False
    )
    if known.inputs:
        console.print(f"← {', '.join(known.inputs)}   [dim]{known.source}[/]", highlight=False)
    sentence, paragraph = (known.zh, known.long_zh) if chinese else (known.en, known.long_en)
    console.print(f"\n{sentence}\n\n{paragraph}", highlight=False)


@group.command(epilog='Example: mingce credit --rewards "0, 0, 1" --values "0.3, 0.4, 0.6" --lam 0.95')
def credit(
    rewards: Annotated[str, typer.Option(help="one number per token, separated by commas")],
    values: Annotated[str, typer.Option(help="the critic's value before each token")],
    gamma: Annotated[float, typer.Option(help="discount γ, 0 to 1")] = 1.0,
    lam: Annotated[float, typer.Option(help="λ of GAE, 0 to 1")] = 0.95,
    after: Annotated[float, typer.Option(help="value after the last token: 0 if the response ended")] = 0.0,
    lang: LangOption = None,
) -> None:
    """TD errors, advantages and returns of a row of your own, with the numbers put into the formulae."""
    from mingce.algorithms import reference
    from mingce.base.numbers import number
    from mingce.commands.user_input import numbers
    from mingce.explain.account_table import account_table

    r, v = numbers("rewards", rewards), numbers("values", values)
    if len(r) != len(v):
        raise SettingError(f"--rewards has {len(r)} numbers and --values {len(v)}; give one of each per token.")
    for name, value in (("gamma", gamma), ("lam", lam)):
        if not 0 <= value <= 1:
            raise SettingError(f"--{name} must lie between 0 and 1, but is {value}.")
    (after,) = numbers("after", str(after))
    account = reference.gae([r], [v], [[1] * len(r)], gamma, lam, [after])
    a, d = account.advantages[0], account.deltas[0]
    shown = {"rewards": r, "values": v, "deltas": d, "advantages": a, "returns": account.returns[0]}
    console.print(account_table([f"y_{t}" for t in range(len(r))], shown))
    for t in reversed(range(len(r))):
        following_v, following_a = (v[t + 1], a[t + 1]) if t + 1 < len(r) else (after, 0.0)
        console.print(
            f"δ_{t} = {number(r[t])} + {number(gamma)}·{number(following_v)} − {number(v[t])} = {number(d[t])}    "
            f"A_{t} = {number(d[t])} + {number(gamma * lam)}·{number(following_a)} = {number(a[t])}    "
            f"R_{t} = {number(a[t])} + {number(v[t])} = {number(account.returns[0][t])}",
            highlight=False,
        )
