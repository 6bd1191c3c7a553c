"""`mingce ask`: the dialogue keeps its example and its subject, and its log is word for word what was shown."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from mingce.algorithms import reference
from mingce.base.errors import RunError, SettingError, UnknownNameError
from mingce.base.numbers import number as shown
from mingce.commands.ask import ask
from mingce.commands.user_input import split_questions
from mingce.explain import dialogue, example
from mingce.explain.answer import Answer
from mingce.explain.answer_view import markdown, rendered
from mingce.explain.conversation import Conversation
from mingce.explain.topics import TOPICS

QUESTIONS: dict[str, Any] = json.loads((Path(__file__).parent / "ask_questions.json").read_text(encoding="utf-8"))
SEEDS = {seed["id"]: seed for seed in QUESTIONS["seeds"]}


def told(conversation: Conversation, *lines: str) -> Answer:
    """The answer to the last line."""
    answers = [conversation.ask(line) for line in lines]
    return answers[-1]


def settings(conversation: Conversation) -> tuple[float, float, float]:
    found = conversation.rollout.settings
    assert None not in (found.gamma, found.lam, found.beta)
    return float(found.gamma or 0), float(found.lam or 0), float(found.beta or 0)


# ── the example stays ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("and with λ=0.5?", (1.0, 0.5, 0.1)),
        ("γ=0.9 呢？", (0.9, 0.95, 0.1)),
        ("把 β 改成 0.05", (1.0, 0.95, 0.05)),
        ("what if lambda were 0.7", (1.0, 0.7, 0.1)),
        ("gamma 0.99", (0.99, 0.95, 0.1)),
        ("γ = 0.9，λ = 0 的时候呢", (0.9, 0.0, 0.1)),
    ],
)
def test_a_setting_repeats_the_last_topic_with_it(line: str, expected: tuple[float, float, float]) -> None:
    conversation = Conversation()
    answer = told(conversation, "A_t 为什么不直接等于 δ_t？", line)
    assert settings(conversation) == expected
    assert answer.topic == "a_not_delta"
    gamma, lam, beta = expected
    rewards = reference.kl_rewards([example.SCORES], [example.KL], [[1] * 6], beta)
    right = reference.gae(rewards, [example.VALUES], [[1] * 6], gamma, lam).advantages[0]
    assert shown(right[0]) in markdown(answer)


@pytest.mark.parametrize(
    "line",
    [
        "rewards=[0,0,1] values=[0.3,0.4,0.6]",
        "奖励 0 0 1，价值 0.3 0.4 0.6",
        "rewards: 0, 0, 1; values: 0.3, 0.4, 0.6",
        "token_level_rewards：[[0,0,1]]\nvalues：[[0.3,0.4,0.6]]",
    ],
)
def test_numbers_typed_in_become_the_example(line: str) -> None:
    conversation = Conversation()
    answer = told(conversation, "Monte Carlo 和 GAE 有什么区别", line)
    assert answer.topic == "mc_vs_gae"
    assert conversation.rollout.columns["advantages"] == pytest.approx([0.651, 0.58, 0.4])
    assert "[0.651, 0.58, 0.4]" in markdown(answer)
    assert "[0.7, 0.6, 0.4]" in markdown(answer)


def test_the_seeds_pasted_example_gives_its_objective() -> None:
    answer = Conversation().ask(SEEDS["003-q3"]["verbatim"])
    assert answer.topic == "cpi_objective"
    assert "0.0733" in answer.text
    assert "你知道1+1=2吗？ → 是的，1+1=2" in answer.about


def test_values_alone_keep_tokens_and_scores() -> None:
    conversation = Conversation()
    told(conversation, "values=[0.1,0.2,0.3,0.4,0.5,0.6]")
    assert conversation.rollout.columns["values"] == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    assert conversation.rollout.columns["rewards"] == pytest.approx([-0.01, -0.005, 0.005, -0.01, -0.02, 0.995])
    assert conversation.rollout.tokens[3].text == "等于"


def test_typed_rewards_replace_scores_and_kl() -> None:
    conversation = Conversation()
    told(conversation, "rewards=[0,0,0,0,0,2]", "β=0.9")
    assert conversation.rollout.columns["rewards"] == [0, 0, 0, 0, 0, 2]
    assert "scores" not in conversation.rollout.columns


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("λ = 3", "λ = 3 不行"),
        ("γ=-0.5", "γ = −0.5 不行"),
        ("β=-1", "β"),
        ("rewards=[0,0,1] values=[0.3,0.4]", "rewards 有 3 个，values 有 2 个"),
        ("values=[0.3,0.4]", "例子有 6 个 token"),
        ("第 9 个 token 呢", "没有第 9 个"),
    ],
)
def test_what_cannot_be_is_told_in_a_sentence_and_the_example_stays(line: str, part: str) -> None:
    conversation = Conversation(lang="zh")
    told(conversation, "什么是白化")
    before = conversation.rollout
    answer = conversation.ask(line)
    assert answer.topic is None
    assert part in answer.text
    assert "\n" not in answer.text
    assert conversation.rollout is before
    assert conversation.topic == "whitening"


def test_a_rollouts_holes_survive_typed_values() -> None:
    rollout = example.worked()
    columns = {name: list(column) for name, column in rollout.columns.items()}
    columns["response_mask"][1] = 0
    conversation = Conversation(example.changed(replace(rollout, columns=columns)))
    told(conversation, "values=[0.1,0.2,0.3,0.4,0.5,0.6]")
    assert conversation.rollout.columns["response_mask"] == [1, 0, 1, 1, 1, 1]
    assert "mask 0" in told(conversation, "what about token 1").text


# ── the subject stays ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("line", "level", "lang"),
    [
        ("用12岁小孩能懂的话再讲一遍", "child", "zh"),
        ("I still don't get it", "child", "en"),
        ("没听懂", "child", "zh"),
        ("证明一下", "proof", "zh"),
        ("show the proof", "proof", "en"),
        ("why?", "why", "en"),
        ("继续", "why", "zh"),
    ],
)
def test_a_level_repeats_the_last_topic_at_it(line: str, level: str, lang: str) -> None:
    answer = told(Conversation(), "bootstrap 在这里是什么意思", line)
    assert (answer.topic, answer.level, answer.lang) == ("bootstrap", level, lang)


def test_the_level_of_a_repeat_stays_but_a_new_topic_has_the_usual_one() -> None:
    conversation = Conversation()
    assert told(conversation, "什么是白化", "用小孩能懂的话讲", "λ=0.5 呢").level == "child"
    assert conversation.ask("GAE 为什么能降低方差").level == "@why_less"
    assert conversation.ask("什么是概率比").level in ("engineer", "@importance", "@one_at_start")


@pytest.mark.parametrize(
    ("line", "t"),
    [("第3个 token 呢", 2), ("第三个 token 呢", 2), ("t=3 呢", 3), ("what about token 2", 2), ("最后一个 token 呢", 5)],
)
def test_a_token_repeats_the_last_topic_for_it(line: str, t: int) -> None:
    conversation = Conversation()
    answer = told(conversation, "A_t 为什么不直接等于 δ_t？", line)
    assert answer.topic == "a_not_delta"
    assert f"t = {t}" in answer.about
    assert conversation.token == t


@pytest.mark.parametrize("line", ["嗯", "好的", "谢谢", "what about it?", "ok then", "再说说", "然后呢", "and?"])
def test_a_vague_line_does_not_jump_to_another_topic(line: str) -> None:
    conversation = Conversation()
    answer = told(conversation, "whiten 是什么意思", line)
    assert answer.topic in (None, "whitening")
    assert conversation.topic == "whitening"


@pytest.mark.parametrize("kind", ["verbatim", "zh", "en", "held_out"])
@pytest.mark.parametrize("follow", QUESTIONS["follow_ups"], ids=lambda follow: follow["id"])
def test_the_seeds_follow_ups_keep_the_subject(follow: dict[str, Any], kind: str) -> None:
    said = follow[kind]
    lines = [said] if isinstance(said, str) else list(said.values()) if isinstance(said, dict) else said
    before = SEEDS[follow["after"]]
    for line in lines:
        conversation = Conversation()
        conversation.ask(before["zh"][0])
        subject = conversation.topic
        assert subject in follow["topics"]
        answer = conversation.ask(line)
        assert answer.topic == subject
        if follow["expects"] == "child":
            assert answer.level == "child"
        else:
            assert answer.tables


def test_a_whole_seed_can_be_asked_in_one_conversation() -> None:
    right = 0
    for number in ("000", "001", "002", "003", "004"):
        conversation = Conversation()
        for seed_id, seed in SEEDS.items():
            if seed_id.startswith(number):
                right += conversation.ask(seed["verbatim"]).topic in seed["topics"]
    assert right / len(SEEDS) >= 0.9


# ── languages, choices, commands ─────────────────────────────────────────────────────────────────────────────────────


def test_the_answer_follows_the_questions_language_until_it_is_set() -> None:
    conversation = Conversation()
    assert told(conversation, "What does whitening mean?").lang == "en"
    assert told(conversation, "λ=0.5").lang == "en"
    assert told(conversation, "什么是白化").lang == "zh"
    assert told(conversation, "/lang en", "什么是白化").lang == "en"
    assert told(conversation, "/lang auto", "什么是白化").lang == "zh"


def test_a_number_opens_what_was_offered() -> None:
    conversation = Conversation()
    offered = told(conversation, "今天天气怎么样")
    assert offered.topic is None
    assert len(offered.choices) == 3
    assert told(conversation, "2").topic == offered.choices[1][0]
    assert told(conversation, "77").topic is None
    everything = conversation.ask("/topics")
    assert [topic_id for topic_id, _ in everything.choices] == list(TOPICS)
    assert told(conversation, str(len(TOPICS))).topic == list(TOPICS)[-1]


def test_commands() -> None:
    conversation = Conversation(lang="en")
    assert "/save" in conversation.ask("/help").text
    assert conversation.ask("/example").tables
    assert "child" in conversation.ask("/level seven").text
    assert told(conversation, "/level child", "什么是白化").level == "child"
    assert "no command" in conversation.ask("/nonsense").text


def test_what_an_example_lacks_is_told_from_the_worked_one() -> None:
    conversation = Conversation(example.typed({"rewards": [0, 0, 1], "values": [0.3, 0.4, 0.6]}), lang="en")
    answer = conversation.ask("why is my KL negative")
    assert "old_log_probs" in answer.about
    assert "built-in" in answer.about
    assert "γ = 1" in conversation.ask("what is whitening").about
    assert "built-in" not in conversation.ask("what is whitening").about


def test_a_child_is_spared_symbols() -> None:
    for topic_id in TOPICS:
        conversation = Conversation(lang="en", level="child")
        conversation.choices = ((topic_id, ""),)
        answer = conversation.ask("1")
        assert not answer.formula
        assert not answer.tables
        assert not answer.code
        assert "λ" not in answer.about


# ── shown and kept ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    conversation = Conversation()
    for topic_id in TOPICS:
        for lang in ("zh", "en"):
            conversation.lang = conversation.fixed_lang = lang
            conversation.choices = ((topic_id, ""),)
            console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
            for part in rendered(conversation.ask("1"), width):
                console.print(part, soft_wrap=isinstance(part, Text), highlight=False)
            assert isinstance(console.file, io.StringIO)
            assert max(map(cell_len, console.file.getvalue().split("\n"))) <= width


def test_the_terminal_says_word_for_word_what_the_log_says() -> None:
    answer = Conversation().ask("token 级别的五个量都是什么？")
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None)
    for part in rendered(answer, 100):
        console.print(part, highlight=False)
    assert isinstance(console.file, io.StringIO)

    def letters(text: str) -> str:
        return "".join(c for c in text if c not in " \n`*#>|-─:")

    in_terminal = letters(console.file.getvalue())
    for paragraph in (answer.title, answer.about, *answer.text.split("\n"), *answer.lines):
        assert letters(paragraph) in in_terminal


def quiet() -> Console:
    return Console(file=io.StringIO(), width=100)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_one_question_is_answered_and_that_is_all(tmp_path: Path) -> None:
    console = quiet()
    ask(console, ["什么是白化"], directory=tmp_path)
    assert printed(console).strip() == markdown(Conversation().ask("什么是白化"))
    assert list(tmp_path.iterdir()) == []


def test_the_log_is_written_after_every_round_word_for_word(tmp_path: Path) -> None:
    lines = ["什么是白化", "λ=0.5 呢？", "", "### 问题 1", "用户：我", "What is GAE's variance?"]

    def typed() -> Any:
        for number, line in enumerate(lines):
            yield line
            (log,) = tmp_path.iterdir()
            rounds = dialogue.read(log).rounds
            assert len(rounds) == len([one for one in lines[: number + 1] if one])

    ask(quiet(), log=True, directory=tmp_path, lines=typed())
    (log,) = tmp_path.iterdir()
    assert log.name.startswith("codex_")
    kept = dialogue.read(log)
    conversation = Conversation()
    said = [line for line in lines if line]
    assert [round_.question for round_ in kept.rounds] == said
    assert [round_.answer for round_ in kept.rounds] == [markdown(conversation.ask(line)) for line in said]
    assert dialogue.render(kept) == log.read_text(encoding="utf-8")


def test_a_dialogue_is_resumed_with_its_example_and_subject(tmp_path: Path) -> None:
    ask(quiet(), log=True, directory=tmp_path, lines=["什么是白化", "rewards=[0,0,1] values=[0.3,0.4,0.6]"])
    (log,) = tmp_path.iterdir()
    before = log.read_text(encoding="utf-8")
    console = quiet()
    ask(quiet(), resume=log, directory=tmp_path, lines=["λ=1 呢？"])
    assert log.read_text(encoding="utf-8") == before  # without --log nothing is written
    ask(console, resume=log, log=True, directory=tmp_path, lines=["λ=1 呢？"])
    assert list(tmp_path.iterdir()) == [log]
    after = dialogue.read(log)
    assert log.read_text(encoding="utf-8").startswith(before)
    assert len(after.rounds) == 3
    assert "[0.7, 0.6, 0.4]" in after.rounds[-1].answer
    assert "什么是白化" not in printed(console)


def test_a_log_is_only_appended_to(tmp_path: Path) -> None:
    log = tmp_path / "theirs.md"
    theirs = (
        "# Chat Dialogue Log\r\n\r\n## 对话时间\r\n2026-01-08 13:02:10\r\n\r\n---\r\n\r\n## 对话内容\r\n\r\n"
        "### 问题 1\r\n用户：格式：\r\n用户：<问>\r\n助手：<答>\r\n\r\n助手：好的"
    ).encode()
    log.write_bytes(theirs)
    ask(quiet(), ["什么是白化"], resume=log, log=True, directory=tmp_path)
    assert log.read_bytes().startswith(theirs)
    assert [one.question for one in dialogue.read(log).rounds][1:] == ["什么是白化"]


def test_saving_does_not_replace_another_file(tmp_path: Path) -> None:
    place, console = tmp_path / "notes.md", quiet()
    place.write_text("mine", encoding="utf-8")
    ask(console, directory=tmp_path, lines=["什么是白化", f"/save {place}"])
    assert place.read_text(encoding="utf-8") == "mine"
    assert "choose another name" in printed(console)


@pytest.mark.parametrize("question", ["什么是白化？" * 5_000, "a" * 300, "白化\0", "what is whitening? " * 4_000])
def test_a_long_question_is_a_question_and_no_path(question: str, tmp_path: Path) -> None:
    console = quiet()
    ask(console, [question], directory=tmp_path)
    assert printed(console).strip()


def test_a_question_of_more_than_100_kb_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="100,000 characters"):
        ask(quiet(), ["白" * 100_001], directory=tmp_path)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("什么是白化\nλ=0.5 呢\n", 2),
        ("我知道会计算：\n  values\n  rewards\n请举例", 1),
        ("why?\n\nreturns = advantages + values", 1),
        ("what is this\n```\na = b\n```", 1),
        ("什么是白化\n/quit\n", 2),
    ],
)
def test_piped_lines_that_belong_together_are_one_question(text: str, count: int) -> None:
    assert len(split_questions(text)) == count


def test_a_paragraph_pasted_into_a_terminal_is_one_question(tmp_path: Path) -> None:
    leader, follower = os.openpty()
    code = "from rich.console import Console; from mingce.commands.ask import ask; ask(Console(), log=True)"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=follower,
        stdout=subprocess.DEVNULL,
        cwd=tmp_path,
        env={**os.environ, "TERM": "dumb"},
    ) as process:
        os.write(leader, "我对白化有疑问。\n它减均值吗？\n为什么除以标准差？\n".encode())
        logs = tmp_path / "codex_dialogue"
        for _ in range(600):
            if logs.exists() and list(logs.glob("*.md")):
                break
            time.sleep(0.05)
        os.write(leader, b"/quit\n")
        process.wait(timeout=60)
    os.close(leader)
    os.close(follower)
    (log,) = logs.glob("*.md")
    assert [one.question.count("\n") for one in dialogue.read(log).rounds] == [2]


def test_save_writes_at_any_time_and_commands_are_not_part_of_it(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "kept.md"
    ask(quiet(), directory=tmp_path, lines=["什么是白化", f"/save {place}", "/quit", "γ=0.5"])
    assert [round_.question for round_ in dialogue.read(place).rounds] == ["什么是白化"]


def test_asking_for_the_dialogue_to_be_saved_saves_it(tmp_path: Path) -> None:
    ask(quiet(), directory=tmp_path, lines=["什么是白化", "聊天记录怎么存？"])
    assert list(tmp_path.iterdir()) == []
    ask(quiet(), directory=tmp_path, lines=["什么是白化", SEEDS["004-q12"]["verbatim"].replace("\n", " ")])
    (log,) = tmp_path.iterdir()
    assert len(dialogue.read(log).rounds) == 2


def test_plot_draws_the_example(tmp_path: Path) -> None:
    picture = tmp_path / "a.svg"
    ask(quiet(), directory=tmp_path, lines=["什么是白化", f"/plot {picture}"])
    assert picture.stat().st_size > 1000


def test_a_mistake_is_told_and_the_dialogue_goes_on(tmp_path: Path) -> None:
    console = quiet()
    ask(console, directory=tmp_path, lines=["/plot a.doc", "/plot", "什么是白化"])
    assert ".png" in printed(console)
    assert "白化" in printed(console)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"words": ["one", "two"]}, SettingError),
        ({"words": ["q", "no/such/run"]}, RunError),
        ({"words": ["q"], "step": 3}, SettingError),
        ({"words": ["q"], "token": 9}, SettingError),
        ({"words": ["q"], "level": "seven"}, UnknownNameError),
        ({"words": ["q"], "numbers": {"rewards": "0 1", "values": "1"}}, SettingError),
        ({"words": ["q"], "resume": Path("no/such/file.md")}, RunError),
    ],
)
def test_wrong_arguments_are_told(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        ask(quiet(), **arguments)


def test_it_starts_without_torch_and_reads_a_pipe(tmp_path: Path) -> None:
    code = (
        "import sys; from rich.console import Console; from mingce.commands.ask import ask; ask(Console(), log=True);"
        "assert not {'torch', 'numpy', 'transformers', 'matplotlib'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input="什么是白化\nλ=0.5 呢\n",
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert "> λ=0.5 呢" in done.stdout
    assert done.stdout.count("## 优势的白化") == 2
    (log,) = (tmp_path / "codex_dialogue").iterdir()
    assert len(dialogue.read(log).rounds) == 2


@pytest.mark.parametrize("text", ["0, x, 1", "0, nan, 1", ""])
def test_numbers_of_an_option_that_are_none_are_one_sentence(text: str) -> None:
    with pytest.raises(SettingError, match=r"^--rewards [^\n]+$"):
        ask(Console(file=io.StringIO()), ["什么是自举？"], numbers={"rewards": text, "values": "0.1, 0.2, 0.3"})
