"""`mingce view`: the web page over runs and dumps, or one self-contained file of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from mingce.base.errors import SettingError
from mingce.base.numbers import show_bytes
from mingce.base.texts import sentence
from mingce.sources.library import Library
from mingce.view.api import Api
from mingce.view.gate import is_loopback
from mingce.view.serve import Address, serve


def run(
    console: Console,
    places: Sequence[Path],
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    browser: bool = True,
    mapping: Path | None = None,
    tokenizer: Path | None = None,
    export: Path | None = None,
    steps: str | None = None,
    rollouts: int = 16,
    audit: bool = False,
    follow: bool = False,
    lang: str = "zh",
) -> None:
    """Serves until Ctrl-C, or writes the export and returns."""
    if tokenizer is not None and tokenizer.is_dir():
        tokenizer = tokenizer / "tokenizer.json"
    if tokenizer is not None and not tokenizer.is_file():
        raise SettingError(f"--tokenizer {tokenizer} does not exist; give a tokenizer.json or a model's directory.")
    if follow and export is not None:
        raise SettingError(sentence("commands.view_follow_export", lang))
    library = Library(places, mapping, tokenizer, follow=follow)
    api = Api(library)
    if export is not None:
        from mingce.view.export import write_export

        size = write_export(api, export, parse_steps(steps), rollouts, audit, lang=lang)
        wrote = sentence("commands.view_wrote", lang, file=export, size=show_bytes(size))
        console.print(escape(wrote), highlight=False, soft_wrap=True)
        return

    def started(address: Address) -> None:
        if not is_loopback(host):
            console.print(f"[yellow]{escape(sentence('commands.view_warning', lang))}[/]", highlight=False)
        console.print(f"mingce view  [bold]{escape(address.url)}[/]", highlight=False, soft_wrap=True)
        console.print(sentence("commands.view_end", lang), style="dim", highlight=False)

    serve(api, host, port, browser=browser, lang=lang, started=started)


def parse_steps(text: str | None) -> list[int] | None:
    """`1,5,9`: steps separated by commas."""
    if text is None:
        return None
    parts = [part for part in text.replace(" ", ",").split(",") if part]
    if not parts or not all(part.isascii() and part.isdecimal() for part in parts):
        raise SettingError(f"--steps takes numbers separated by commas, such as 1,20,40, not '{text}'.")
    return [int(part) for part in parts]
