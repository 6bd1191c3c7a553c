"""`mingce verify RUN`: reads every file of a run and says what is whole. 0 no damage, 1 damage, 2 no such run."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from mingce.base.lang import display_lang, say
from mingce.record.run import Run
from mingce.record.verify import Found, counts, verify

MOST = 40
"""Lines printed of a kind; --json has all."""


def run(console: Console, path: Path, *, as_json: bool = False) -> int:
    """Prints what is damaged and what no checksum covers; the exit code."""
    opened = Run.open(path, readonly=True)
    if as_json:
        found = list(verify(opened))
        numbers = counts(found)
        files = [asdict(one) for one in found if one.state != "whole"]
        console.print_json(json.dumps({"run": str(path), **numbers, "files": files}, ensure_ascii=False))
        return 1 if numbers["damaged"] else 0
    lang = display_lang()
    with console.status("") as status:
        found = list(verify(opened, lambda name: status.update(escape(name))))
    numbers = counts(found)
    _list(console, found, "damaged", say(lang, "损坏", "damaged"), "red")
    _list(console, found, "uncovered", say(lang, "无校验和", "not covered"), "yellow")
    zh = f"{numbers['whole']} 个文件完好，{numbers['damaged']} 处损坏，{numbers['uncovered']} 处没有校验和"
    en = f"{numbers['whole']} files are whole, {numbers['damaged']} damaged, {numbers['uncovered']} not covered"
    console.print(say(lang, zh, en), style="red" if numbers["damaged"] else "green", highlight=False)
    return 1 if numbers["damaged"] else 0


def _list(console: Console, found: list[Found], state: str, label: str, style: str) -> None:
    these = [one for one in found if one.state == state]
    for one in these[:MOST]:
        name = one.path.encode("unicode_escape").decode("ascii") if not one.path.isprintable() else one.path
        console.print(f"[{style}]{label}[/] {escape(name)}: {escape(one.why)}", highlight=False, soft_wrap=True)
    if len(these) > MOST:
        console.print(f"[{style}]{label}[/] … + {len(these) - MOST}", highlight=False)
