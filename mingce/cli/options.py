"""What several commands take."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mingce.base.lang import choose_lang, display_lang
from mingce.base.terminal import make_console

console = make_console()


class Lang(StrEnum):
    """A language."""

    zh = "zh"
    en = "en"


class Level(StrEnum):
    """For whom it is said."""

    child = "child"
    engineer = "engineer"
    proof = "proof"


def _choose_lang(lang: Lang | None) -> Lang | None:
    """Before anything else is looked at; the command then asks for `display_lang()`."""
    if lang is not None:
        choose_lang(lang.value)
    display_lang()  # says what is wrong with MINGCE_LANG, if anything is
    return lang


Settings = Annotated[
    list[str] | None, typer.Argument(help="a recipe.yaml and settings as key=value", show_default=False)
]
LangOption = Annotated[
    Lang | None,
    typer.Option(
        "--lang",
        "-l",
        help="of what is shown: zh or en; else MINGCE_LANG, else the locale's",
        callback=_choose_lang,
        is_eager=True,
    ),
]
LevelOption = Annotated[Level, typer.Option(help="for whom: child, engineer or proof")]
MappingOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="YAML or JSON that maps names here to names in the dump")
]
TrustOption = Annotated[
    bool, typer.Option("--trust", help="execute the code that the run names (reward, estimator, loss) without asking")
]
NumbersOption = Annotated[str | None, typer.Option(metavar="NUMBERS", help="one per token, separated by commas")]
RunStepOption = Annotated[int | None, typer.Option(help="of the run; the newest if left out")]
RolloutOption = Annotated[int | None, typer.Option(help="which rollout of the step, from 0")]
AfterOption = Annotated[float | None, typer.Option(help="value after the last token: 0 if the response ended")]
GammaOption = Annotated[float | None, typer.Option(help="discount γ, 0 to 1")]
LamOption = Annotated[float | None, typer.Option(help="λ of GAE, 0 to 1")]
BetaOption = Annotated[float | None, typer.Option(help="β of the KL in the reward")]
