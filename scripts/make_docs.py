"""Writes the pages of docs/ that are generated from code; with --check only says whether they are current.

python scripts/make_docs.py            write them
python scripts/make_docs.py --check    exit with 1 if one is stale
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from mingce.columns import COLUMNS, SETTINGS, Column
from mingce.config import settings
from mingce.metrics import MEASURED, METRICS

ROOT = Path(__file__).resolve().parent.parent


def columns_page() -> str:
    """docs/columns.md, from the column table."""
    lines = [
        "# The columns · 列",
        "",
        "Generated from `mingce/columns.py` and `mingce/meanings.py` by `make docs`; do not edit.",
        "由 `mingce/columns.py` 与 `mingce/meanings.py` 生成（`make docs`），请勿手改。",
        "",
        "Counting starts at 0. State s_t is the prompt and the tokens before token t; action a_t is token t. *State*-",
        "aligned columns are about s_t, before the token; *action*-aligned ones about choosing it. t+1 means the next",
        "**chosen** token.",
        "",
        "下标从 0 开始。状态 s_t 是提示加上第 t 个 token 之前的所有 token，动作 a_t 就是第 t 个 token。",
        "“state”对齐的列说的是 s_t（选之前），“action”对齐的列说的是选这个 token 本身。t+1 指下一个**被选的** token。",
        "",
        "| column | symbol | aligned | type | formula | from |",
        "|---|---|---|---|---|---|",
        *(
            f"| [`{c.name}`](#{c.name}) | {_cell(c.symbol)} | {c.alignment} | {c.dtype} "
            f"| {_cell(c.formula)} | `{c.source}` |"
            for c in COLUMNS.values()
        ),
        "",
        "| setting | symbol | meaning | 含义 |",
        "|---|---|---|---|",
        *(f"| `{s.name}` | {_cell(s.symbol)} | {s.en} | {s.zh} |" for s in SETTINGS.values()),
        "",
    ]
    for known in COLUMNS.values():
        lines += _section(known)
    return "\n".join(lines)


def _section(known: Column) -> list[str]:
    facts = [f"`{known.formula}`"]
    if known.inputs:
        facts.append("computed from " + ", ".join(f"[`{name}`](#{name})" for name in known.inputs))
    if known.optional:
        facts.append("and, where there, " + ", ".join(f"[`{name}`](#{name})" for name in known.optional))
    if known.aliases:
        facts.append("elsewhere " + ", ".join(f"`{alias}`" for alias in known.aliases))
    return [
        f"## {known.name}",
        "",
        " · ".join(facts),
        "",
        f"{known.en} {known.long_en}",
        "",
        f"{known.zh}{known.long_zh}",
        "",
    ]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def config_page() -> str:
    """docs/config.md, from the dataclasses."""
    lines = [
        "# Settings · 配置",
        "",
        "Generated from `mingce/config.py` by `make docs`; do not edit. 由 `mingce/config.py` 生成（`make docs`），请勿手改。",
        "",
        "`mingce train [recipe.yaml] key=value …`: defaults, then the recipe, then the command line. The last part of a key is",
        "enough where it is unique: `lam=0.9` is `credit.lam=0.9`. `mingce train --dry-run …` prints what a run would be.",
        "",
        "依次为默认值、recipe 文件、命令行。键的最后一段若唯一即可省写：`lam=0.9` 就是 `credit.lam=0.9`。",
        "",
        "| key | default | meaning | 含义 |",
        "|---|---|---|---|",
    ]
    for key, setting, default in settings():
        shown = "" if default is None else json.dumps(default, ensure_ascii=False)
        lines.append(
            f"| `{key}` | `{shown or 'null'}` | {_cell(setting.metadata['en'])} | {_cell(setting.metadata['zh'])} |"
        )
    return "\n".join([*lines, ""])


def metrics_page() -> str:
    """docs/metrics.md, from the table of metrics."""
    lines = [
        "# Metrics · 指标",
        "",
        "Generated from `mingce/metrics.py` by `make docs`; do not edit. 由 `mingce/metrics.py` 生成（`make docs`），请勿手改。",
        "",
        "Every one is a function of ledger columns, so it can be recomputed from the ledger of its step. Means over tokens in",
        "the losses leave out what the mask leaves out, and nothing is averaged per micro-batch.",
        "",
        "每个指标都是账本列的函数，可由该步账本重新算出。",
        "",
        "| metric | columns | reduction | meaning | 含义 |",
        "|---|---|---|---|---|",
        *(
            f"| `{m.name}` | {', '.join(f'[`{c}`](columns.md#{c})' for c in m.columns)} | {m.reduction} | {m.en} | {m.zh} |"
            for m in METRICS
        ),
        "",
        "Measured, not computed from columns · 由时钟或优化器测得：",
        "",
        "| metric | meaning | 含义 |",
        "|---|---|---|",
        *(f"| `{name}` | {en} | {zh} |" for name, (en, zh) in MEASURED.items()),
        "",
    ]
    return "\n".join(lines)


PAGES = {"columns.md": columns_page, "config.md": config_page, "metrics.md": metrics_page}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only compare")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="where the pages are")
    options = parser.parse_args()
    stale = []
    for name, render in PAGES.items():
        page, text = options.docs / name, render()
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not options.check:
                page.parent.mkdir(parents=True, exist_ok=True)
                page.write_text(text, encoding="utf-8")
    if stale:
        print(f"{'stale' if options.check else 'written'}: {', '.join(stale)}")
    raise SystemExit(1 if stale and options.check else 0)


if __name__ == "__main__":
    main()
