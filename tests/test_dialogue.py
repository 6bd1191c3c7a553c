"""The dialogue log: word for word, whatever the words; the seeds; files that are broken."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mingce.base.errors import DataError, RunError
from mingce.explain.dialogue import Dialogue, Round, new_path, parse, parse_turns, read, render, write

SEEDS = sorted((Path(__file__).parent / "seeds").glob("*.txt"))
TIME = datetime(2026, 1, 8, 13, 2, 10)
MARKERS = [
    "### 问题 1", "### 问题 2", "### 问题 3", "用户：", "助手：", "用户：x", "助手：y  ", "---", "## 对话内容",
    "## 对话时间", "# Chat Dialogue Log", "2026-01-08 13:02:10", "\\", "\\\\", "\\### 问题 2", "\\\\助手：", "\\[",
    "\\用户：z", "", " ", "  ", "\r", "a\r", "```",
]  # fmt: skip
LINES = st.one_of(st.sampled_from(MARKERS), st.text(max_size=12), st.text("用户助手：#- 问题12\\\n\r ", max_size=8))
TEXTS = st.lists(LINES, max_size=7).map("\n".join)


def dialogues(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Dialogue]:
    rounds = st.lists(st.builds(Round, texts, texts), max_size=4).map(tuple)
    return st.builds(Dialogue, st.datetimes(datetime(1000, 1, 1)).map(lambda t: t.replace(microsecond=0)), rounds)


def test_a_log_looks_as_the_seeds_do() -> None:
    text = render(Dialogue(TIME, (Round("一\n二", "答"), Round("三", "又答"))))
    assert text == (
        "# Chat Dialogue Log\n\n## 对话时间\n2026-01-08 13:02:10\n\n---\n\n## 对话内容\n\n"
        "### 问题 1\n用户：一\n二  \n助手：答\n\n---\n\n### 问题 2\n用户：三  \n助手：又答\n"
    )


@given(dialogues(TEXTS))
def test_any_text_survives_and_is_written_the_same_again(dialogue: Dialogue) -> None:
    text = render(dialogue)
    assert parse(text) == dialogue
    assert render(parse(text)) == text


def test_write_read_write_gives_the_same_bytes(tmp_path: Path) -> None:
    told = Dialogue(
        TIME,
        tuple(
            Round(text, text)
            for text in ["", "a\r\nb", "\n\n", "x\n\n---\n\n### 问题 2\n用户：y  \n助手：z", "🙂\u2028\x00"]
        ),
    )
    write(told, tmp_path / "logs" / "one.md")
    again = read(tmp_path / "logs" / "one.md")
    assert again == told
    write(again, tmp_path / "two.md")
    assert (tmp_path / "two.md").read_bytes() == (tmp_path / "logs" / "one.md").read_bytes()


@given(
    st.text(st.characters(exclude_characters="\\", exclude_categories=["Cs"]), max_size=60).filter(
        lambda t: not t.endswith("\n")
    )
)
def test_ordinary_text_is_left_untouched(text: str) -> None:
    if any(line.startswith(("用户：", "助手：", "### 问题 ")) for line in text.split("\n")):
        return
    assert f"助手：{text}\n" in render(Dialogue(TIME, (Round("q", text),)))


@pytest.mark.parametrize(
    ("seed", "rounds"), list(zip(SEEDS, (4, 2, 6, 3, 12), strict=True)), ids=lambda x: getattr(x, "stem", str(x))
)
def test_the_seeds_are_read(seed: Path, rounds: int) -> None:
    told = read(seed)
    assert len(told.rounds) == rounds
    assert parse(render(told)) == told
    written = seed.read_text(encoding="utf-8")
    for round_ in told.rounds:
        assert round_.question in written
        assert round_.answer in written


def test_a_question_that_quotes_the_format_is_read_whole() -> None:
    last = read(SEEDS[4]).rounds[-1]
    assert last.question.startswith("请将本次对话")
    assert "助手：<助手的第二个回答>" in last.question
    assert last.answer.startswith("已保存到")


def test_turns_know_their_lines() -> None:
    lines = SEEDS[2].read_text(encoding="utf-8").split("\n")
    _, turns = parse_turns(SEEDS[2].read_text(encoding="utf-8"))
    assert [turn.number for turn in turns] == [n for n in range(1, 7) for _ in "qa"]
    for turn in turns:
        first = turn.text.split("\n")[0]
        assert lines[turn.line - 1].rstrip() == (("用户：" if turn.by_user else "助手：") + first).rstrip()


def test_windows_line_ends_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    told = Dialogue(TIME, (Round("一\n二", "答\n\n又"),))
    (tmp_path / "windows.md").write_bytes(b"\xef\xbb\xbf" + render(told).replace("\n", "\r\n").encode())
    assert read(tmp_path / "windows.md") == told


def test_a_new_path_never_takes_an_old_one(tmp_path: Path) -> None:
    assert new_path(tmp_path, TIME).name == "codex_20260108_130210.md"
    new_path(tmp_path, TIME).touch()
    assert new_path(tmp_path, TIME).name == "codex_20260108_130210_2.md"
    new_path(tmp_path, TIME).touch()
    assert new_path(tmp_path, TIME).name == "codex_20260108_130210_3.md"


WHOLE = render(Dialogue(TIME, (Round("q", "a"), Round("q2", "a2"))))


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("", 1, "'# Chat Dialogue Log' is missing"),
        ("hello", 1, "'# Chat Dialogue Log' is missing"),
        (WHOLE.replace("## 对话时间", "## time"), 3, "'## 对话时间' is missing"),
        (WHOLE.replace("2026-01-08 13:02:10", "yesterday"), 4, "a time as"),
        (WHOLE.replace("## 对话内容", "## content"), 8, "'## 对话内容' is missing"),
        (WHOLE.replace("### 问题 1", "### 问题 9"), 10, "question 9 stands where question 1 should"),
        (WHOLE.replace("### 问题 2", "### 问题 3"), 16, "question 3 stands where question 2 should"),
        (WHOLE.replace("用户：q  ", "q"), 10, "'### 问题 1' and then a line with 用户：" ),
        (WHOLE.replace("助手：a2", "a2"), 16, "question 2 has no line that begins with 助手："),
    ],
)  # fmt: skip
def test_a_broken_file_is_one_sentence_with_its_line(tmp_path: Path, text: str, line: int, what: str) -> None:
    path = tmp_path / "broken.md"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as error:
        read(path)
    sentence = str(error.value)
    assert what in sentence
    assert f"line {line}:" in sentence
    assert str(path) in sentence
    assert "\n" not in sentence


def test_files_that_are_no_text_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "binary.md").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="not UTF-8"):
        read(tmp_path / "binary.md")
    with pytest.raises(RunError, match="cannot be read"):
        read(tmp_path / "missing.md")
    with pytest.raises(DataError, match="broken character"):
        write(Dialogue(TIME, (Round("a\udc80", "b"),)), tmp_path / "out.md")
    assert not (tmp_path / "out.md").exists()
