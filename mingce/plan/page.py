"""The tables of docs/scaling.md, made anew by the commands that stand above them.

    <!-- mingce plan --model-config 7b --gpus 64 -->
    what the command prints with --markdown
    <!-- end -->

`<!-- assumptions -->` holds those of a plan that changes none.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from mingce.commands.plan import page
from mingce.plan.plan import Request, make_plan
from mingce.plan.tables import assumptions_table, markdown

_BLOCK = re.compile(r"(<!-- mingce plan (?P<words>[^\n]*?) -->\n).*?(<!-- end -->)", re.DOTALL)
_ASSUMED = re.compile(r"(<!-- assumptions -->\n).*?(<!-- end -->)", re.DOTALL)


def refreshed(text: str) -> str:
    """The page with every table as its command prints it now."""

    def block(found: re.Match[str]) -> str:
        return f"{found[1]}\n{page(make_plan(parse(shlex.split(found['words']))), 'en')}\n\n{found[3]}"

    assumed = markdown(assumptions_table(make_plan(Request()), "en"))
    return _ASSUMED.sub(lambda found: f"{found[1]}\n{assumed}\n\n{found[2]}", _BLOCK.sub(block, text))


def parse(words: Sequence[str]) -> Request:
    """The words behind `mingce plan` as a request; every option takes a value."""
    kinds = {field.name: str(field.type) for field in fields(Request)}
    options: dict[str, Any] = {}
    settings: list[str] = []
    rest = iter(words)
    for word in rest:
        if not word.startswith("--"):
            settings.append(word)
            continue
        name = word.removeprefix("--").replace("-", "_")
        value, kind = next(rest), kinds[name]
        if kind.startswith("Sequence"):
            options.setdefault(name, []).append(value)
        else:
            options[name] = int(value) if "int" in kind else float(value) if "float" in kind else value
    return Request(settings=settings, **options)
