"""What several commands take."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

console = Console()


class Lang(StrEnum):
    """The language of what is printed."""

    zh = "zh"
    en = "en"


class Level(StrEnum):
    """For whom it is said."""

    child = "child"
    engineer = "engineer"
    proof = "proof"


LangOption = Annotated[Lang, typer.Option("--lang", "-l", help="zh or en")]
LevelOption = Annotated[Level, typer.Option(help="for whom: child, engineer or proof")]
MappingOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="YAML or JSON that maps names here to names in the dump")
]
TrustOption = Annotated[
    bool, typer.Option("--trust", help="execute the reward function that the run names, without asking")
]
NumbersOption = Annotated[str | None, typer.Option(metavar="NUMBERS", help="one a token, separated by commas")]
