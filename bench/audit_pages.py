"""Writes what bench/audit_sets.py counted into the pages about other trainers.

    python bench/audit_sets.py OUT/index.jsonl --json seed0.jsonl
    python bench/audit_sets.py OTHER/index.jsonl --json seed1.jsonl
    python bench/audit_pages.py seed0.jsonl seed1.jsonl

The first is the set that the pages speak of, the second one with another seed.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent.parent / "docs"
PARTS = {"verl.md": "verl/", "trl-ppo.md": "trl-ppo/", "trl-grpo.md": "trl-grpo/"}


def counts(lines: list[dict[str, Any]]) -> tuple[int, int, int]:
    """How many dumps, how many called bug, how many suspicious."""
    found = [line["found"] for line in lines]
    return len(lines), sum(bool(one["bug"]) for one in found), sum(bool(one["suspicious"]) for one in found)


def written(text: str, lines: list[dict[str, Any]], others: list[dict[str, Any]]) -> str:
    """A page with the figures in its table and in its last paragraph, the latter between comments."""
    for page, part in PARTS.items():
        cells = " | ".join(map(str, counts([line for line in lines if line["lot"].startswith(part)])))
        text, n = re.subn(
            rf"^(\| \[[^]]*\]\({page}\) \| .* \|) \S+ \| \S+ \| \S+ \|$", rf"\1 {cells} |", text, flags=re.M
        )
        assert n == 1, page
    for name, count in zip(("dumps", "bugs", "suspicions"), counts(others), strict=True):
        text, n = re.subn(rf"<!-- {name} -->.*?<!-- -->", f"<!-- {name} -->{count:,}<!-- -->", text)
        assert n == 1, name
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", type=Path)
    parser.add_argument("other", type=Path)
    asked = parser.parse_args()
    lines, others = ([json.loads(line) for line in path.read_text().splitlines()] for path in (asked.set, asked.other))
    for lang in ("en", "zh"):
        page = DOCS / lang / "audits/index.md"
        page.write_text(written(page.read_text(encoding="utf-8"), lines, others), encoding="utf-8")


if __name__ == "__main__":
    main()
