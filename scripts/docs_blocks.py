"""The blocks of the pages that come out of the code: a function each, of the words in the page and the language."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import typer.main

import mingce
from mingce.audit.audit import checks
from mingce.audit.catalogue import CLASSES, KNOWN_REPORTS, github
from mingce.audit.finding import FAULTS, Fault
from mingce.audit.wording import unfilled
from mingce.base import texts
from mingce.cli import app
from mingce.columns import COLUMNS, SETTINGS, Column
from mingce.config import describe, settings
from mingce.metrics import MEASURED, METRICS, measured_meaning
from mingce.specs import AGGREGATIONS, ESTIMATORS, KL_KINDS, POLICY_LOSSES

ROOT = Path(__file__).resolve().parent.parent
Rows = Iterable[Iterable[str]]
Block = Callable[[str, str], str]
"""Markdown, of the words behind the block's name and the language."""
Definition = ast.FunctionDef | ast.ClassDef


def _table(rows: Callable[[str], Rows]) -> Block:
    """A table whose headings are the words."""

    def block(words: str, lang: str) -> str:
        headings = [word.strip() for word in words.split("|")]
        lines = [headings, ["---"] * len(headings), *([_cell(cell) for cell in row] for row in rows(lang))]
        assert all(len(line) == len(headings) for line in lines), words
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    return block


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _columns(lang: str) -> Rows:
    for known in COLUMNS.values():
        formula = known.formula_zh if lang == "zh" else known.formula
        yield (
            f"[`{known.name}`](#{known.name})",
            known.symbol,
            known.alignment,
            known.dtype,
            formula,
            f"`{known.source}`",
        )


def _symbols(lang: str) -> Rows:
    return ((f"`{known.name}`", known.symbol, getattr(known, lang)) for known in SETTINGS.values())


def _config(lang: str) -> Rows:
    for key, _, default in settings():
        shown = "null" if default is None else json.dumps(default, ensure_ascii=False)
        yield f"`{key}`", f"`{shown}`", describe(key, lang)


def _metrics(lang: str) -> Rows:
    for metric in METRICS:
        columns = ", ".join(f"[`{name}`](columns.md#{name})" for name in metric.columns)
        yield f"`{metric.name}`", columns, metric.reduction, getattr(metric, lang)


def _measured(lang: str) -> Rows:
    return ((f"`{name}`", measured_meaning(name, lang)) for name in MEASURED)


def _estimators(lang: str) -> Rows:
    for spec in ESTIMATORS.values():
        inputs = ", ".join(f"[`{name}`](columns.md#{name})" for name in spec.inputs if name != "response_mask")
        yield f"`{spec.name}`", getattr(spec, lang), f"`{spec.formula}`", inputs, _code(spec.settings)


def _kl(lang: str) -> Rows:
    return (
        (f"`{kind.name}`", _code(kind.aliases), f"`{kind.formula}`", getattr(kind, lang)) for kind in KL_KINDS.values()
    )


def _losses(lang: str) -> Rows:
    for spec in POLICY_LOSSES.values():
        yield (
            f"`{spec.name}`",
            getattr(spec, lang),
            f"`{spec.formula}`",
            _code(f"actor.{name}" for name in spec.settings),
        )


def _aggregations(lang: str) -> Rows:
    return ((f"`{name}`", en if lang == "en" else zh) for name, (zh, en) in AGGREGATIONS.items())


DECIDABLE = {"yes": "能", "partly": "部分", "no": "不能"}
"""What one dump decides, in Chinese."""


def _classes(lang: str) -> Rows:
    for number, known in CLASSES.items():
        decidable = DECIDABLE[known.decidable] if lang == "zh" else known.decidable
        place = known.link.removeprefix("https://github.com/")
        yield str(number), getattr(known, lang), decidable, f"[{place}]({known.link})"


def _reports(lang: str) -> Rows:
    """The reports by class: what was wrong, and the findings that tell of it or why none does."""
    said = texts.texts("reports", lang)
    wrong, unseen = texts.named(said["wrong"]), texts.named(said["unseen"])
    for known in KNOWN_REPORTS:
        place = known.place
        found = ", ".join(f"[`{code}`](#{code})" for code in known.codes) or unseen[place]
        yield f"[{place}]({github(place)})", str(known.year), str(known.number), wrong[place], known.plant, found


def _column_sections(words: str, lang: str) -> str:
    """A section a column. The words: from what it is computed | what it reads where it is there | other names."""
    computed, optional, elsewhere = (word.strip() for word in words.split("|"))
    return "\n\n".join(_column_section(known, lang, computed, optional, elsewhere) for known in COLUMNS.values())


def _column_section(known: Column, lang: str, computed: str, optional: str, elsewhere: str) -> str:
    facts = [f"`{known.formula_zh if lang == 'zh' else known.formula}`"]
    for word, names in ((computed, known.inputs), (optional, known.optional)):
        if names:
            facts.append(f"{word} " + ", ".join(f"[`{name}`](#{name})" for name in names))
    if known.aliases:
        facts.append(f"{elsewhere} {_code(known.aliases)}")
    meaning = f"{known.zh}{known.long_zh}" if lang == "zh" else f"{known.en} {known.long_en}"
    return f"## {known.name}\n\n{' · '.join(facts)}\n\n{meaning}"


def _findings(words: str, lang: str) -> str:
    """A section a fault. The words: the severity | its class | one of several classes | the public report."""
    severity, one, several, report = (word.strip() for word in words.split("|"))
    checks()  # imports every family, whose faults register themselves
    from mingce.audit import replay, steps  # noqa: F401

    faults = [fault for fault in FAULTS.values() if fault.severity == severity]
    faults.sort(key=lambda fault: (fault.classes or (99,), fault.code))
    return "\n\n".join(_fault(fault, lang, one, several, report) for fault in faults)


def _fault(fault: Fault, lang: str, one: str, several: str, report: str) -> str:
    facts = [f"{one if len(fault.classes) == 1 else several} {', '.join(map(str, fault.classes))}"] * bool(
        fault.classes
    )
    facts += [f"`{fault.formula}`"] * bool(fault.formula)
    facts += [f"[{report}]({fault.link})"] * bool(fault.link)
    i = 0 if lang == "zh" else 1
    sentences = [unfilled(text[i]) for text in (fault.title, fault.cause, fault.change) if text[i]]
    return "\n\n".join(filter(None, [f"#### {fault.code}", " · ".join(facts), (" " * i).join(sentences)]))


def _help(words: str, lang: str) -> str:
    """What a command takes. The words: its name | headings: option, meaning | the word for a default."""
    name, option, meaning, default = (word.strip() for word in words.split("|"))
    group: Any = typer.main.get_command(app)
    command = group.commands[name]
    rows = [_parameter(known, default) for known in command.params if known.name not in ("help", "lang")]
    example = "\n".join(re.split(r"\s{2,}(?=mingce )", command.epilog.partition(": ")[2]))
    table = _table(lambda _: rows)(f"{option} | {meaning}", lang)
    return f"```sh\n{example}\n```" + (f"\n\n{table}" if rows else "")


def _parameter(known: Any, word: str) -> tuple[str, str]:
    """An argument or option with its value's name, and what it means."""
    if known.param_type_name == "argument":
        shown = (known.metavar or known.name).strip("[]{}")
    else:
        value = "" if known.is_flag else f" {known.metavar or known.name.upper()}"
        shown = "/".join([*known.opts, *known.secondary_opts]) + value
    default = getattr(known.default, "value", known.default)
    told = f" ({word} `{default}`)" if default not in (None, False, [], ()) and not callable(default) else ""
    return f"`{shown}`", f"{known.help}{told}"


def _signature(name: str, lang: str) -> str:
    """The head and docstring of what `import mingce` offers under this name; of a class also those of its methods."""
    found = importlib.util.find_spec(mingce._MODULES[name])  # its module's file, which is read and not imported
    assert found is not None
    assert found.origin is not None
    text, node = _definition(Path(found.origin), name)
    methods = [one for one in node.body if isinstance(one, ast.FunctionDef) and isinstance(node, ast.ClassDef)]
    public = [one for one in methods if one.name == "__init__" or not one.name.startswith("_")]
    return "```python\n" + "\n\n".join(_head(text, one) for one in (node, *public)) + "\n```"


def _source(words: str, lang: str) -> str:
    """A function or class out of a file; the words: the file and the name."""
    file, name = words.split()
    text, node = _definition(ROOT / file, name)
    return "```python\n" + "\n".join(text[_first(node) - 1 : node.end_lineno]) + "\n```"


def _definition(file: Path, name: str) -> tuple[list[str], Definition]:
    """The lines of the file, and the function or class of that name."""
    text = file.read_text(encoding="utf-8")
    kinds = (ast.FunctionDef, ast.ClassDef)
    found = [node for node in ast.parse(text).body if isinstance(node, kinds) and node.name == name]
    assert found, f"{file} has no {name}"
    return text.split("\n"), found[0]


def _first(node: Definition) -> int:
    return min([node.lineno, *(line.lineno for line in node.decorator_list)])


def _head(text: list[str], node: Definition) -> str:
    """Its lines down to the end of its docstring."""
    end = node.body[0].end_lineno if ast.get_docstring(node) else node.body[0].lineno - 1
    return "\n".join(text[_first(node) - 1 : end])


@cache
def _summary() -> dict[str, tuple[list[Any], str]]:
    """The benchmarks' lines by name and peer: the checks of each, and the range of their figures."""
    sys.path.insert(0, str(ROOT / "bench"))
    from tables import of_json
    from writing import group_checks, measured

    tables, _ = of_json(json.loads((ROOT / "bench/figures.json").read_text(encoding="utf-8")))
    return {f"{name} / {peer}": (checks, measured(checks)) for (name, peer), checks in group_checks(tables).items()}


def _figure(words: str, lang: str) -> str:
    """A line of the benchmarks' summary; the words: its name / against whom."""
    if words == "targets":
        asked = [check for checks, _ in _summary().values() for check in checks if check.wanted is not None]
        return f"{sum(check.holds for check in asked)} / {len(asked)}"
    return _summary()[words][1]


TABLES: dict[str, Block] = {
    "columns": _table(_columns),
    "columnsections": _column_sections,
    "symbols": _table(_symbols),
    "config": _table(_config),
    "metrics": _table(_metrics),
    "measured": _table(_measured),
    "estimators": _table(_estimators),
    "kl": _table(_kl),
    "losses": _table(_losses),
    "aggregations": _table(_aggregations),
    "classes": _table(_classes),
    "reports": _table(_reports),
    "findings": _findings,
}
"""What both languages must hold somewhere."""
BLOCKS: dict[str, Block] = {
    **TABLES,
    "help": _help,
    "signature": _signature,
    "source": _source,
    "figure": _figure,
}
