"""The pages: links lead somewhere, the languages match, code compiles, commands exist, what is generated is current."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import typer.main

import mingce
from mingce.cli import app
from mingce.config import read_config, settings
from mingce.metrics import MEASURED, METRICS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
LANGS = ("en", "zh")
PAGES = [*sorted(DOCS.rglob("*.md")), *(ROOT / name for name in ("README.md", "README.zh-CN.md", "CONTRIBUTING.md"))]
SHORTER = {Path("performance.md")}
"""Pages whose Chinese version only has the main figures."""
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
LINK = re.compile(r"\]\(([^()\s]+)\)")
HEADING = re.compile(r"^(#{1,6}) +(.+)$", re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@cache
def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@cache
def prose_of(page: Path) -> str:
    """The page without code blocks and comments."""
    return COMMENT.sub("", FENCE.sub("", text_of(page)))


def anchor(heading: str) -> str:
    """A heading's anchor, as GitHub and the site make it."""
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).strip().replace(" ", "-")


@cache
def anchors(page: Path) -> set[str]:
    return {anchor(found[2]) for found in HEADING.finditer(prose_of(page))}


# ── links and languages ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for target in LINK.findall(prose_of(page)):
        if re.match(r"https?://", target):
            continue
        path, _, fragment = unquote(target).partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{target}: no such file"
        if DOCS in page.parents:
            assert DOCS in file.parents, f"{target}: outside of docs/, so the site would not have it"
        if fragment:
            assert fragment in anchors(file), f"{target}: no such heading"


def test_a_broken_link_would_be_noticed() -> None:
    assert LINK.findall("[a](b.md#c) ![](../x.png) [`gae`](#gae)") == ["b.md#c", "../x.png", "#gae"]
    assert anchor("2. `KL`: what, 为什么？") == "2-kl-what-为什么"


def tree(lang: str) -> set[Path]:
    return {page.relative_to(DOCS / lang) for page in (DOCS / lang).rglob("*.md")}


def test_both_languages_have_the_same_pages() -> None:
    assert tree("en") == tree("zh")
    assert not [page for page in DOCS.glob("*.md")], "pages belong to a language"


@pytest.mark.parametrize("page", sorted(tree("en") - SHORTER), ids=str)
def test_both_languages_have_the_same_sections(page: Path) -> None:
    english, chinese = ([len(found[1]) for found in HEADING.finditer(prose_of(DOCS / lang / page))] for lang in LANGS)
    assert english == chinese
    english_blocks, chinese_blocks = (
        [kind for kind, _ in FENCE.findall(text_of(DOCS / lang / page))] for lang in LANGS
    )
    assert english_blocks == chinese_blocks


@pytest.mark.parametrize("page", sorted(tree("zh")), ids=str)
def test_chinese_pages_are_chinese_and_english_ones_english(page: Path) -> None:
    chinese = re.compile(r"[\u4e00-\u9fff]")
    assert len(chinese.findall(prose_of(DOCS / "zh" / page))) > 50
    outside_quotes = re.sub(r'"[^"\n]*"', "", INLINE.sub("", prose_of(DOCS / "en" / page))).replace("mingce 明策", "")
    assert not chinese.search(outside_quotes)


# ── code and commands ────────────────────────────────────────────────────────────────────────────────────────────────


def blocks(kind: str) -> list[Any]:
    found = [(page, text) for page in PAGES for language, text in FENCE.findall(text_of(page)) if language == kind]
    return [pytest.param(text, id=f"{name_of(page)}-{number}") for number, (page, text) in enumerate(found)]


@pytest.mark.parametrize("text", blocks("python"))
def test_python_blocks_compile(text: str) -> None:
    ast.parse(text)


def command_lines(page: Path) -> Iterator[str]:
    """The `mingce …` of the page's code blocks, without comments and pipes."""
    for kind, text in FENCE.findall(text_of(page)):
        if kind in ("", "sh", "text"):
            for line in text.split("\n"):
                for part in re.split(r"; |\s\| ", re.sub(r"(\s+…)?(\s+#.*)?\s*$", "", line.removeprefix("$ "))):
                    if re.match(r"mingce [a-z-]+(\s|$)", part.strip()) and "(" not in part:
                        yield part.strip()


LINES = sorted({line for page in PAGES for line in command_lines(page)})
GROUP: Any = typer.main.get_command(app)
PLACEHOLDERS = {"recipe.yaml"}


@pytest.fixture
def language(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsing `--lang zh` chooses it for the process; afterwards it is what it was."""
    monkeypatch.setenv("MINGCE_LANG", "en")


def check_settings(words: list[str]) -> None:
    for word in words:
        if "=" not in word:
            assert word in PLACEHOLDERS or (ROOT / word).is_file(), f"there is no recipe {word}"
    read_config(None, [word for word in words if "=" in word])


@pytest.mark.parametrize("line", LINES)
@pytest.mark.usefixtures("language")
def test_a_command_line_is_understood(line: str) -> None:
    """The command, its options and their types, and every key=value; nothing is run."""
    _, name, *words = shlex.split(line)
    assert name in GROUP.commands, f"there is no command {name}"
    command = GROUP.commands[name]
    with command.make_context(name, words, parent=GROUP.context_class(GROUP, info_name="mingce")) as context:
        parsed = context.params
    if name in ("train", "plan"):
        check_settings(parsed["settings"] or [])
    for given in ("overrides", "settings"):
        if name in ("resume", "eval", "chat") and parsed.get(given):
            assert all("=" in word for word in parsed[given]), line
            read_config(None, parsed[given])


@pytest.mark.usefixtures("language")
def test_wrong_command_lines_would_be_noticed() -> None:
    assert len(LINES) > 60
    for line in ("mingce trian", "mingce audit x --gama 1", "mingce train lamb=0.9", "mingce train recipes/grop.yaml"):
        with pytest.raises(BaseException):  # noqa: B017, PT011
            test_a_command_line_is_understood(line)


def test_commands_and_options_in_prose_exist() -> None:
    for page in PAGES:
        for code in INLINE.findall(prose_of(page)):
            found = re.match(r"mingce ([a-z][a-z-]*)(.*)", code)
            if found:
                assert found[1] in GROUP.commands, f"{name_of(page)}: {code}"
                known = {option for parameter in GROUP.commands[found[1]].params for option in parameter.opts}
                for option in re.findall(r"(?<=\s)--[a-z-]+", found[2]):
                    assert option in known | {"--help"}, f"{name_of(page)}: {code}"


FILES = (".jsonl", ".md", ".parquet", ".py", ".safetensors", ".yaml")


def test_settings_and_metrics_in_prose_exist() -> None:
    keys = {key for key, _, _ in settings()}
    open_ended = {key for key, _, default in settings() if isinstance(default, dict)}
    sections = {key.split(".")[0] for key in keys if "." in key}
    metrics = {metric.name for metric in METRICS} | set(MEASURED)
    families = {name.split("/")[0] for name in metrics} - {"score", "audit"}
    seen = 0
    for page in sorted(DOCS.rglob("*.md")):
        if page.name in ("columns.md", "architecture.md", "performance.md"):  # they name functions and folders
            continue
        for code in INLINE.findall(prose_of(page)):
            for key in re.findall(r"(?<![\w./])([a-z_]+\.[a-z_][a-z_.]*[a-z_])(?=[=\s]|$)", code):
                if key.split(".")[0] in sections and not key.endswith(FILES):
                    assert key in keys or key.rpartition(".")[0] in open_ended, f"{name_of(page)}: {code}"
                    seen += 1
            if re.fullmatch(r"[a-z_]+/[a-z_/]+", code) and code.split("/")[0] in families:
                assert code in metrics, f"{name_of(page)}: {code}"
                seen += 1
    assert seen > 200


@pytest.mark.parametrize("lang", LANGS)
def test_the_reference_has_every_command_and_public_name(lang: str) -> None:
    commands, api = (anchors(DOCS / lang / "reference" / f"{name}.md") for name in ("commands", "api"))
    assert set(GROUP.commands) <= commands
    assert {anchor(f"mingce.{name}") for name in mingce.__all__} <= api


# ── what is generated ────────────────────────────────────────────────────────────────────────────────────────────────

MAKE_DOCS = [sys.executable, str(ROOT / "scripts/make_docs.py")]


def make_docs(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*MAKE_DOCS, *map(str, words)], capture_output=True, text=True)


def test_generated_pages_are_current() -> None:
    """Tables out of the code; and the pages' files and commands are run, and print what the pages say."""
    done = make_docs("--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_stale_page_is_noticed(tmp_path: Path) -> None:
    for lang in LANGS:
        shutil.copytree(DOCS / lang / "reference", tmp_path / lang / "reference")
    assert make_docs("--docs", tmp_path, "--check").returncode == 0
    page = tmp_path / "en/reference/columns.md"
    right = page.read_text(encoding="utf-8")
    page.write_text(right.replace("β·k_t", "b·k_t"), encoding="utf-8")
    done = make_docs("--docs", tmp_path, "--check")
    assert (done.returncode, done.stdout) == (1, "stale: en/reference/columns.md\n")
    assert make_docs("--docs", tmp_path).returncode == 0
    assert page.read_text(encoding="utf-8") == right
    page.write_text(right.replace("<!-- end -->", "", 1), encoding="utf-8")
    assert "lacks its <!-- end -->" in make_docs("--docs", tmp_path).stderr
    page.unlink()
    assert "holds <!-- columns: … -->" in make_docs("--docs", tmp_path, "--check").stderr


def test_a_command_that_fails_is_a_failure_of_the_page(tmp_path: Path) -> None:
    for lang in LANGS:
        shutil.copytree(DOCS / lang / "reference", tmp_path / lang / "reference")
    page = tmp_path / "en/page.md"
    page.write_text("<!-- file: a.py -->\n```python\nprint(6 * 7)\n```\n\n<!-- $ python a.py -->\n\n<!-- end -->\n")
    assert make_docs("--docs", tmp_path).returncode == 0
    assert "$ python a.py\n42\n" in page.read_text(encoding="utf-8")
    page.write_text("<!-- $ mingce columns advantage -->\n\n<!-- end -->\n", encoding="utf-8")
    done = make_docs("--docs", tmp_path)
    assert done.returncode == 1
    assert "en/page.md: $ mingce columns advantage" in done.stderr


# ── the site ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Fetched(HTMLParser):
    """What a browser fetches for a page by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        loads = tag in ("script", "img", "iframe", "source") or (
            tag == "link" and known.get("rel") in ("stylesheet", "icon", "preload", "preconnect")
        )
        self.urls += [url for url in (known.get("src"), known.get("href")) if loads and url]


def test_the_navigation_holds_every_page() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r"^\s+- (\S+\.md)$", text, re.MULTILINE)
    assert sorted(map(Path, listed)) == sorted(tree("en"))


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_fetches_nothing_from_elsewhere(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    pages = sorted(tmp_path.rglob("*.html"))
    assert len(pages) >= 2 * len(tree("en"))
    for page in pages:
        parser = Fetched()
        parser.feed(page.read_text(encoding="utf-8"))
        assert parser.urls
        for url in parser.urls:
            assert not re.match(r"(https?:)?//", url), f"{page.name}: {url}"
            if page.name != "404.html":
                assert (page.parent / url.split("?")[0].split("#")[0]).exists(), f"{page.name}: {url}"
    switch = (tmp_path / "zh/ledger.html").read_text(encoding="utf-8")
    assert 'href="../ledger.html" hreflang="en"' in switch
