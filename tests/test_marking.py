"""A text marked sentence by sentence, the page made of it, and a reply judged by its rollout."""

from __future__ import annotations

import io
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from answer_numbers import random_rollout
from claim_texts import slip_of, text_of
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from mingce.base.errors import MingceError
from mingce.base.lang import LANGS
from mingce.base.numbers import rounded
from mingce.commands.check_log import check_log
from mingce.explain.answer import topic_answer
from mingce.explain.answer_view import markdown
from mingce.explain.claims.marking import Segment, html, marked
from mingce.explain.claims.reply import judge_reply
from mingce.explain.example import worked
from mingce.explain.topics import TOPICS

SEEDS = sorted((Path(__file__).parent / "seeds").glob("*.txt"))
EXAMPLE = "γ=1, λ=0.95, r = [0, 0, 1], V = [0.3, 0.4, 0.6].\nA_0 is 0.651. A_1 is 0.90. A_2 is 0.4. Nice weather!\n"


def statuses(parts: list[Segment]) -> dict[str, str]:
    return {part.text.strip(): part.status for part in parts}


@pytest.mark.parametrize("path", SEEDS, ids=lambda path: path.name[:3])
def test_the_segments_are_the_text(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "".join(part.text for part in marked(text)) == text


@given(st.text(alphabet="A_1=0.5+δ|[],。.;!? \n\r\u2028`$-", max_size=120))
def test_the_segments_are_any_text(text: str) -> None:
    assert "".join(part.text for part in marked(text)) == text
    assert "".join(part.text for part in judge_reply(text, worked())) == text


def test_each_sentence_has_its_own_status_with_the_right_number_and_why() -> None:
    parts = marked(EXAMPLE)
    found = statuses(parts)
    assert found["A_0 is 0.651."] == "right"
    assert found["A_1 is 0.90."] == "wrong"
    assert found["A_2 is 0.4."] == "right"
    assert found["Nice weather!"] == "plain"
    (wrong,) = [part for part in parts if part.status == "wrong"]
    assert wrong.right == (("0.58", "0.58"),)
    assert wrong.formulas == ("A_1 = δ_1 + γλ·A_2 = 0.2 + 0.95·0.4 = 0.58",)


def test_a_wrong_cell_marks_its_row_only() -> None:
    rows = (
        "| t | r | V | A |\n|---|---|---|---|\n| 0 | 0 | 0.3 | 0.651 |\n| 1 | 0 | 0.4 | 0.9 |\n| 2 | 1 | 0.6 | 0.4 |\n"
    )
    found = statuses(marked(f"γ=1, λ=0.95\n\n{rows}"))
    assert found["| 0 | 0 | 0.3 | 0.651 |"] == "right"
    assert found["| 1 | 0 | 0.4 | 0.9 |"] == "wrong"
    assert found["| 2 | 1 | 0.6 | 0.4 |"] == "right"


@pytest.mark.parametrize("seed", range(40))
def test_a_planted_slip_is_marked_and_a_right_text_is_not(seed: int) -> None:
    assert "wrong" not in {part.status for part in marked(text_of(seed))}
    text, lines, _ = slip_of(seed)
    wrong = [part.text.strip() for part in marked(text) if part.status == "wrong"]
    assert seed == 34 or any(piece in text.split("\n")[line - 1] for piece in wrong for line in lines)


# ── the page ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Page(HTMLParser):
    """The tags, their attributes and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("lang", LANGS)
def test_the_page_has_the_text_the_summary_and_the_right_numbers(lang: str) -> None:
    page = Page(html(marked(EXAMPLE), lang, "x"))
    assert "A_1 is 0.90." in page.text
    assert "0.2 + 0.95·0.4 = 0.58" in page.text
    assert ("1 句有错" if lang == "zh" else "1 wrong") in page.text
    assert {"wrong", "right"} <= {value for name, value in page.attributes if name == "class"}


def test_the_page_asks_for_nothing_from_outside() -> None:
    page = html(marked(SEEDS[2].read_text(encoding="utf-8")), "zh", "x")
    tags = Page(page)
    assert not {"script", "img", "link", "iframe", "object"} & set(tags.tags)
    assert not {"src", "href", "onload", "onclick"} & {name for name, _ in tags.attributes}
    style = page[page.index("<style>") : page.index("</style>")]
    assert not re.search(r"url\(|@import|https?:", style)
    assert "prefers-color-scheme:dark" in page
    assert "default-src 'none'" in page


HOSTILE = '<script>alert(1)</script> A_1 = 0.2 + 0.3 = 0.9 <img src=x onerror=y> "]]> &amp; \x1b[31m\u202e</pre></body>'


@pytest.mark.parametrize("lang", LANGS)
def test_hostile_text_stays_text(lang: str) -> None:
    parts = marked(HOSTILE)
    assert "wrong" in {part.status for part in parts}
    page = Page(html(parts, lang, HOSTILE))
    assert "script" not in page.tags
    assert "img" not in page.tags
    assert page.tags.count("pre") == 1
    assert "\x1b" not in page.text
    assert "\u202e" not in page.text


def test_the_page_of_a_large_text_is_bounded() -> None:
    text = "A_1 = 0.2 + 0.3 = 0.9\n" * 3_000
    page = html(marked(text), "en", "x")
    assert page.count("<aside>") == 2000
    assert len(page) < 8 * len(text)


# ── the command ──────────────────────────────────────────────────────────────────────────────────────────────────────


def told(path: Path, page: Path | None = None, lang: str = "en") -> tuple[int, str]:
    console = Console(file=io.StringIO(), width=100)
    code = check_log(console, path, lang=lang, page=page)
    assert isinstance(console.file, io.StringIO)
    return code, console.file.getvalue()


def test_the_command_writes_a_page(tmp_path: Path) -> None:
    source, page = tmp_path / "answer.md", tmp_path / "answer.html"
    source.write_text(EXAMPLE, encoding="utf-8")
    code, text = told(source, page)
    assert code == 1
    assert "1 wrong" in text
    assert str(page) in text
    assert "<title>answer.md, checked</title>" in page.read_text(encoding="utf-8")


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(EXAMPLE.encode())))
    code, text = told(Path("-"))
    assert code == 1
    assert "A_1 = 0.90" in text


def test_what_cannot_be_read_or_written_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "a.md"
    source.write_text(EXAMPLE, encoding="utf-8")
    for page in (tmp_path, tmp_path / "missing" / "a.html"):
        with pytest.raises(MingceError, match="cannot be written"):
            told(source, page)
    for data in (b"\xff\xfe", b"a\0b"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        with pytest.raises(MingceError):
            told(Path("-"))


# ── a reply about a rollout ──────────────────────────────────────────────────────────────────────────────────────────


def judged(text: str) -> list[str]:
    return [part.status for part in judge_reply(text, worked()) if part.text.strip()]


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("A_4 = 0.5053.", "right"),
        ("A_4 = 0.51.", "right"),
        ("A_4 = 0.57.", "wrong"),
        ("A_3 = 0.5053.", "wrong"),
        ("The advantage of the last token is 0.395.", "right"),
        ("The advantage of the last token is 0.6211.", "wrong"),
        ("第 2 个 token 的优势是 0.5965。", "right"),
        ("V_2 is 0.3.", "right"),
        ("V_2 is 0.45.", "wrong"),
        ("values = [0.2, 0.25, 0.3, 0.35, 0.45, 0.6]", "right"),
        ("values = [0.2, 0.25, 0.3, 0.35, 0.45, 0.7]", "wrong"),
        ("The TD errors are [0.04, 0.045, 0.055, 0.09, 0.13, 0.395].", "right"),
        ("The TD errors are [0.04, 0.045, 0.055, 0.09, 0.31, 0.395].", "wrong"),
        ("With λ = 1 the advantages are [0.755, 0.715, 0.67, 0.615, 0.525, 0.395].", "right"),
        ("With λ = 1 the advantages are [0.6211, 0.6117, 0.5965, 0.57, 0.5053, 0.395].", "wrong"),
        ("δ_4 = -0.02 + 0.6 - 0.45 = 0.13", "right"),
        ("δ_4 = -0.02 + 0.6 - 0.45 = 0.31", "wrong"),
        ("0.95 · 0.395 = 0.37525", "right"),
        ("The critic was off by 0.777 there.", "unverified"),
        ("The mean advantage is 0.5499.", "right"),
        ("那里的奖励是 0.995。", "right"),
        ("The model is confident.", "plain"),
        ("There are 6 tokens.", "plain"),
    ],
)
def test_a_reply_is_judged_by_the_rollout(text: str, status: str) -> None:
    assert judged(text) == [status]


def test_a_wrong_reply_has_the_right_number_in_both_languages() -> None:
    (part,) = judge_reply("A_3 = 0.5053.", worked())
    assert part.right == (("0.57", "0.57"),)
    (part,) = judge_reply("It was 0.777.", worked())
    assert "0.777" in part.notes[0][0]
    assert "0.777" in part.notes[0][1]


def test_a_reply_may_count_from_one() -> None:
    assert judged("A_6 = 0.395, A_5 = 0.5053.") == ["right"]
    assert judged("Counting from 1, A_5 = 0.5053.") == ["right"]


@pytest.mark.parametrize("seed", range(8))
def test_numbers_of_any_rollout_are_known(seed: int) -> None:
    rollout = random_rollout(seed)
    for name in ("rewards", "values", "advantages", "returns"):
        for x, m in zip(rollout.columns[name], rollout.mask, strict=True):
            if m:
                (part,) = judge_reply(f"There it is {rounded(x, 4)}.", rollout)
                assert part.status == "right"


@pytest.mark.parametrize("seed", range(10))
def test_the_tutors_answers_are_no_wrong_replies(seed: int) -> None:
    rollout = random_rollout(seed)
    for topic in list(TOPICS.values())[seed::10]:
        for lang in LANGS:
            text = markdown(topic_answer(topic, rollout, None, "engineer", lang, ()))
            assert [part.text for part in judge_reply(text, rollout) if part.status == "wrong"] == []
