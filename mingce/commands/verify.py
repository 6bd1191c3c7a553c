"""`mingce verify RUN`: reads every file of a run and says what is whole. 0 no damage, 1 damage, 2 no such run."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from mingce.base.texts import sentence
from mingce.importers.opening import check_ledger
from mingce.record.run import Run
from mingce.record.verify import FileState, counts, verify

MOST = 40
"""Lines printed of a kind; --json has all."""


def run(console: Console, path: Path, *, as_json: bool = False) -> int:
    """Prints what is damaged and what no checksum covers; the exit code."""
    opened = Run.open(path, readonly=True)
    opened.ledger.check_bounds = opened.validation.check_bounds = check_ledger
    if as_json:
        files = list(verify(opened))
        numbers = counts(files)
        faulty = [asdict(file) for file in files if file.state != "whole"]
        console.print_json(json.dumps({"run": str(path), **numbers, "files": faulty}, ensure_ascii=False))
        return 1 if numbers["damaged"] else 0
    with console.status("") as status:
        files = list(verify(opened, lambda name: status.update(escape(name))))
    numbers = counts(files)
    _list(console, files, "damaged", "red")
    _list(console, files, "uncovered", "yellow")
    style = "red" if numbers["damaged"] else "green"
    console.print(sentence("commands.verify_counts", **numbers), style=style, highlight=False)
    return 1 if numbers["damaged"] else 0


def _list(console: Console, files: list[FileState], state: str, style: str) -> None:
    label = sentence(f"commands.verify_{state}")
    these = [file for file in files if file.state == state]
    for file in these[:MOST]:
        name = file.path if file.path.isprintable() else file.path.encode("unicode_escape").decode("ascii")
        console.print(f"[{style}]{label}[/] {escape(name)}: {escape(file.why)}", highlight=False, soft_wrap=True)
    if len(these) > MOST:
        console.print(f"[{style}]{label}[/] … + {len(these) - MOST}", highlight=False)
