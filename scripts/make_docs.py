"""Writes what is generated in the pages of docs/en and docs/zh; with --check only says which pages are stale.

python scripts/make_docs.py            write them
python scripts/make_docs.py --check    exit with 1 if one is stale

A page is prose with blocks in it, each between a comment that says what stands there and `<!-- end -->`:

    <!-- columns: column | symbol | … -->    a table out of the code, with these headings (docs_blocks.py)
    <!-- $ mingce example -->                a command and what it prints
    <!-- $ mingce example ## head -12 -->    the same, of which the second command leaves a part
    <!-- source: examples/x.py gae -->       a function's source
    <!-- mingce plan --gpus 64 … -->         a plan as Markdown (scripts/plan_tables.py)

The commands of a page run one after the other in an empty directory. `<!-- file: reward.py -->` above a code block puts
that block there first.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from docs_blocks import BLOCKS, ROOT, TABLES
from plan_tables import refreshed

LANGS = ("en", "zh")
WIDTH = 100
"""Columns of the terminal that commands are run in."""
PART = re.compile(
    r"<!-- file: (?P<file>\S+) -->\n+```\w*\n(?P<text>.*?)```\n"
    r"|(?P<open><!-- (?:\$ (?P<command>.+?)|(?P<name>[a-z]+): (?P<words>[^\n]+?)) -->)"
    r"(?P<old>(?:(?!<!-- ).)*?)<!-- end -->",
    re.DOTALL,
)
OPEN = re.compile(rf"<!-- (?:\$|(?:{'|'.join(BLOCKS)}):) ")


class PageError(Exception):
    """A page that cannot be written; the message says where and why."""


def fresh(text: str, lang: str, where: str) -> str:
    """The page with every block as it is now."""
    parts = list(PART.finditer(text))
    if len(OPEN.findall(text)) != sum(part["file"] is None for part in parts):
        raise PageError(f"{where}: a block lacks its <!-- end -->.")
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "recipes").symlink_to(ROOT / "recipes")
        (Path(directory) / "examples").symlink_to(ROOT / "examples")
        done = []
        for part in parts:
            if part["file"]:
                (Path(directory) / part["file"]).write_text(part["text"], encoding="utf-8")
                done.append(part[0])
            else:
                body = _body(part, lang, directory, where)
                frame = "\n\n" if "\n" in part["old"] else ""
                done.append(f"{part['open']}{frame}{body}{frame}<!-- end -->")
    rest = iter(done)
    return refreshed(PART.sub(lambda _: next(rest), text), lang)


def _body(part: re.Match[str], lang: str, directory: str, where: str) -> str:
    if part["command"]:
        command, _, selection = part["command"].partition(" ## ")
        printed = _output(command, lang, directory, where)
        shown = _excerpt(printed, selection) if selection else printed
        return f"```text\n$ {command}\n{shown}\n```"
    if part["name"] not in BLOCKS:
        raise PageError(f"{where}: there is no block '{part['name']}'; there are {', '.join(BLOCKS)}.")
    return BLOCKS[part["name"]](part["words"], lang)


def _output(command: str, lang: str, directory: str, where: str) -> str:
    """What the command prints; a failure is one of the page unless the command is expected to judge (exit code 1)."""
    here = Path(directory, ".bin")
    if not here.exists():
        here.mkdir()
        for name, words in (("python", ""), ("mingce", " -m mingce.cli")):
            (here / name).write_text(f'#!/bin/sh\nexec {sys.executable}{words} "$@"\n', encoding="utf-8")
            (here / name).chmod(0o755)
    env = os.environ | {
        "PATH": f"{here}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "MINGCE_LANG": lang,
        "COLUMNS": str(WIDTH), "TERM": "dumb", "PYTHONIOENCODING": "utf-8",
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], cwd=directory, env=env, capture_output=True, text=True
    )
    if done.returncode not in (0, 1) or (done.returncode and not done.stdout):
        raise PageError(f"{where}: $ {command}\n{done.stdout}{done.stderr}")
    return "\n".join(line.rstrip() for line in done.stdout.split("\n")).strip("\n")


def _excerpt(printed: str, selection: str) -> str:
    """The part of the lines that the command `selection` leaves, with an ellipsis where something is left out."""
    part = subprocess.run(["sh", "-c", selection], input=printed, capture_output=True, text=True, check=True).stdout
    part = part.strip("\n")
    before, found, after = printed.partition(part)
    assert part, selection
    assert found, f"{selection} leaves lines that do not follow each other"
    return "\n".join([*(["…"] if before.strip() else []), part, *(["…"] if after.strip() else [])])


def pages(docs: Path) -> Iterator[tuple[str, Path]]:
    """Every page with its language."""
    for lang in LANGS:
        for page in sorted((docs / lang).rglob("*.md")):
            yield lang, page


def _stale(docs: Path, lang: str, page: Path, write: bool) -> str | None:
    """The page's name, if it was not what it should be."""
    name, text = str(page.relative_to(docs)), page.read_text(encoding="utf-8")
    new = fresh(text, lang, name)
    if new != text and write:
        page.write_text(new, encoding="utf-8")
    return name if new != text else None


def _missing(docs: Path) -> list[str]:
    """Tables of the code that no page of a language holds."""
    return [
        f"no page of {docs / lang} holds <!-- {table}: … -->"
        for lang in LANGS
        for table in TABLES
        if not any(f"<!-- {table}: " in page.read_text(encoding="utf-8") for page in (docs / lang).rglob("*.md"))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only compare")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="where the pages are")
    options = parser.parse_args()
    with ThreadPoolExecutor(2) as pool:  # the commands are processes of their own
        try:
            found = pool.map(lambda one: _stale(options.docs, one[0], one[1], not options.check), pages(options.docs))
            stale = [name for name in found if name]
        except PageError as error:
            raise SystemExit(str(error)) from None
    if missing := _missing(options.docs):
        raise SystemExit("\n".join(missing))
    if stale:
        print(f"{'stale' if options.check else 'written'}: {', '.join(stale)}")
    raise SystemExit(1 if stale and options.check else 0)


if __name__ == "__main__":
    main()
