"""Writes the pages of docs/ that are generated from code; with --check only says whether they are current.

python scripts/make_docs.py            write them
python scripts/make_docs.py --check    exit with 1 if one is stale
"""

from __future__ import annotations

import argparse
from pathlib import Path

from mingce.columns import COLUMNS, SETTINGS, Column

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


PAGES = {"columns.md": columns_page}


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
