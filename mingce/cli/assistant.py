"""For other programs: mcp, retrieve."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mingce.base.lang import display_lang
from mingce.cli.options import LangOption

group = typer.Typer()


@group.command(epilog="Examples: mingce mcp runs   mingce mcp runs dumps --http 8765 --view-url http://127.0.0.1:8000")
def mcp(
    places: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="DIR",
            help="directories that may be read, and logs written in; the current one if left out",
            show_default=False,
        ),
    ] = None,
    http: Annotated[
        int | None,
        typer.Option(metavar="PORT", help="serve HTTP on 127.0.0.1 instead of stdio; 0: a free port", min=0, max=65535),
    ] = None,
    view_url: Annotated[
        str | None, typer.Option(metavar="URL", help="where `mingce view` listens, for links that open")
    ] = None,
    lang: LangOption = None,
) -> None:
    """Serve the account, the tutor, the audit and your runs to an assistant, over the Model Context Protocol."""
    from mingce.commands import mcp as command

    command.run(places or [], http=http, view_url=view_url, lang=display_lang())


@group.command(epilog="Examples: mingce retrieve   mingce retrieve corpus.jsonl --port 8000")
def retrieve(
    corpus: Annotated[
        Path | None,
        typer.Argument(
            metavar="CORPUS",
            help="JSONL with contents in every line; left out, the made-up facts of task=search",
            show_default=False,
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="on 127.0.0.1; 0: a free one", min=0, max=65535)] = 8000,
    lang: LangOption = None,
) -> None:
    """Serve searches of a corpus to agents on this machine, with Search-R1's requests and answers."""
    from mingce.commands import retrieve as command

    command.run(corpus, port, display_lang())
