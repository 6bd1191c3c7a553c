"""`mingce ask --model` with a real server on loopback: whatever it says, no number reaches the reader unjudged."""

from __future__ import annotations

import io
import json
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fake_model import (
    Answer,
    FakeModel,
    calling,
    dripping,
    raw,
    said,
    silent,
    status_line,
    without_limit,
    without_tools,
)
from hypothesis import given
from hypothesis import strategies as st
from mcp_places import ENVIRONMENT
from rich.console import Console

from mingce.assistant.evidence import Evidence, cleaned
from mingce.assistant.phrasing import offered_tools
from mingce.assistant.toolbox import TOOLS
from mingce.assistant.vetting import judge, rendered
from mingce.base.endpoint import MOST_BYTES, Endpoint
from mingce.base.errors import SettingError
from mingce.commands.ask import ask
from mingce.explain import dialogue, example
from mingce.explain.answer_view import markdown
from mingce.explain.conversation import Conversation

QUESTION = "why is the advantage not just delta?"
OWN_TITLE = "## Why the advantage is not just δ"
MARK = "⚠unverified"
pytestmark = pytest.mark.usefixtures("english")


def answered(model: FakeModel | str, question: str = QUESTION, **more: Any) -> str:
    """What is printed."""
    console = Console(file=io.StringIO(), width=100)
    ask(console, [question], model=model if isinstance(model, str) else model.url, **more)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def evidence() -> Evidence:
    """What the first question of a dialogue about the worked example gives."""
    found = Evidence.of(example.worked())
    found.add_text(markdown(Conversation(lang="en").ask(QUESTION)))
    return found


# ── what the model says ──────────────────────────────────────────────────────────────────────────────────────────────


def test_right_numbers_pass_and_the_prompt_has_the_computed_answer_and_the_tools() -> None:
    with FakeModel("Look: A_4 = 0.13 + 0.95·0.395 = 0.5053, because V(s_4) = 0.45.") as model:
        text = answered(model)
    assert text.startswith("Look: A_4 = 0.13 + 0.95·0.395 = 0.5053, because V(s_4) = 0.45.\n")
    assert f"words by {model.url}" in text
    assert MARK not in text
    request = model.requests[0]
    assert request["model"] == "fake"
    assert OWN_TITLE in request["messages"][0]["content"]
    assert request["messages"][-1] == {"role": "user", "content": QUESTION}
    assert request["tools"] == offered_tools("en")
    assert {tool["function"]["name"] for tool in request["tools"]} == set(TOOLS) - {"save_dialogue"}
    assert all(
        tool["function"]["parameters"] == TOOLS[tool["function"]["name"]].input_schema("en")
        for tool in request["tools"]
    )


@pytest.mark.parametrize(
    ("reply", "shown"),
    [
        ("A_4 = 0.73", "A_4 = ~~0.73~~ 0.5053"),
        ("So `A_4` is **0.73**.", "So `A_4` is **~~0.73~~ 0.5053**."),
        ("A_3 = 5", "A_3 = ~~5~~ 0.57"),
        ("A₃ = 5", "A_3 = ~~5~~ 0.57"),
        ("A_4 = 0.13 + 0.95·0.395 = 0.52.", "A_4 = 0.13 + 0.95·0.395 = ~~0.52~~ 0.5053."),
        ("0.2 + 0.25 = 0.46", "0.2 + 0.25 = ~~0.46~~ 0.45"),
        ("values = [0.2, 0.25, 0.3, 0.35, 0.45, 0.7]", "values = [0.2, 0.25, 0.3, 0.35, 0.45, ~~0.7~~ 0.6]"),
        ("It is 0.7312 here.", f"It is 0.7312 {MARK} here."),
        ("It is 0.\u200b7312 here.", f"It is 0.7312 {MARK} here."),
        ("It is ０．７３１２.", f"It is 0.7312 {MARK}."),
        ("about 73% of it", f"about 73% {MARK} of it"),
        ("about 7.312e-1 of it", f"about 7.312e-1 {MARK} of it"),
        ("about 7.312×10⁻¹ of it", f"about 7.312×10⁻¹ {MARK} of it"),
        ("the reward is five.", f"the reward is five {MARK}."),
        ("the reward is _5_", f"the reward is _5 {MARK}_"),
        ("The reward is 5!", f"The reward is 5 {MARK}!"),
        ("奖励是 5。", f"奖励是 5 {MARK}。"),
        ("zero point seven three", f"zero point seven three {MARK}"),
        ("优势为零点七三", f"优势为零点七三 {MARK}"),
        ("大约百分之七十三", f"大约百分之七十三 {MARK}"),
        ("two thirds of the credit", f"two thirds {MARK} of the credit"),
        ("seventy-three", f"seventy-three {MARK}"),
        ("the reward of token 3 is 0.35", f"the reward of token 3 is 0.35 {MARK}"),
        ("see core_algos.py:99", f"see core_algos.py:99 {MARK}"),
        ("it has 7 tokens", f"it has 7 {MARK} tokens"),
        ("A_99 = 0.5", f"A_99 {MARK} = 0.5 {MARK}"),
        ("λ = 0.3", f"λ = 0.3 {MARK}"),
        (r"\frac{73}{100}", rf"\frac{{73 {MARK}}}{{100 {MARK}}}"),
        ("9" * 500, f"{'9' * 500} {MARK}"),
        ("⅔ and ⑦", f"⅔ {MARK} and ⑦ {MARK}"),
        (r"A_0 = 7.3 \times 10^{-1}", r"A_0 = ~~7.3 \times 10^{-1}~~ 0.6211"),
        ("minus nought point four", f"minus nought point four {MARK}"),
        ("point seven three", f"point seven three {MARK}"),
        ("优势是七成三", f"优势是七成三 {MARK}"),
        ("优势为零點七三", f"优势为零點七三 {MARK}"),
        ("优势为零．七三", f"优势为零.七三 {MARK}"),
        ("A_0 = minus 0.6211", "A_0 = ~~minus 0.6211~~ 0.6211"),
        ("优势是负 0.6211", f"优势是负 0.6211 {MARK}"),
        ("A_0 = 0.6\u0304", f"A_0 = 0.6 {MARK}\u0304"),
        ("A_0 = 0.5053 + 0.2", f"A_0 = 0.5053 {MARK} + 0.2 {MARK}"),
        ("A_0 = sqrt(0.53)", f"A_0 = sqrt(0.53 {MARK})"),
        ("A_0 = ½ + ¼", f"A_0 = ½ {MARK} + ¼ {MARK}"),
        ("0.6211 is the value of the first token", f"0.6211 {MARK} is the value of the first token"),
        ("the last token's advantage is 0.6211", f"the last token's advantage is 0.6211 {MARK}"),
        ("token 0 has the reward 0.995", f"token 0 has the reward 0.995 {MARK}"),
        ("第一个 token 的奖励是 0.995", f"第一个 token 的奖励是 0.995 {MARK}"),
        (
            "advantages: 0.6211, 0.6117, 0.5965, 0.57, 0.5053, 0.6",
            "advantages: 0.6211, 0.6117, 0.5965, 0.57, 0.5053, ~~0.6~~ 0.395",
        ),
        ("0.04 plus 0.95 times 0.6117 equals 0.73", "0.04 plus 0.95 times 0.6117 equals ~~0.73~~ 0.6211"),
        ("0.13 加 0.395 等于 0.995", "0.13 加 0.395 等于 ~~0.995~~ 0.525"),
        ("it is a twofold gain", f"it is a twofold {MARK} gain"),
    ],
)
def test_a_wrong_number_is_corrected_and_an_untraced_one_is_marked(reply: str, shown: str) -> None:
    assert rendered(judge(reply, evidence()), "en") == shown


@pytest.mark.parametrize(
    "reply",
    [
        "1. λ = 0.95 and γ = 1\n2. A_5 = 0.395, δ_5 = 0.395\n3) r_5 = 0.995",
        "A_0 ≈ 0.62, V(s_0) = 0.2; $A_{5} = 0.395$",
        "“请问1+1=2？” → “是的，等于2！”",
        "δ_t = r_t + γ·V(s_{t+1}) − V(s_t)",
        "token 3 of 6 tokens, t = 3",
        "rewards[0] = -0.01",
        "39.5% of 1",
        "One of the two terms is positive.",
        "第 3 个 token 的价值是 0.35。",
        "the value of token 3 is 0.35",
        "0.35 is the value of token 3, and 0.2 is the value of the first token",
        "the last token's advantage is 0.395; 最后一个 token 的优势是 0.395，第一个 token 的价值是 0.2。",
        "0.955 minus 0.2 gives 0.755",
        "advantages: 0.6211, 0.6117, 0.5965, 0.57, 0.5053, 0.395",
        "A_5 is about 0.395",
        r"A_0 = 6.211 \times 10^{-1}, A_5 = 0.995 − 0.6",
    ],
)
def test_what_is_right_or_claims_nothing_is_left_alone(reply: str) -> None:
    assert rendered(judge(reply, evidence()), "en") == reply


SHAPES = (
    "the answer is {x}", "A_2 = {x}", "so {x}%", "{x}", "[0.2, {x}, 0.3]", "V(s_1) ≈ **{x}**", "| 0 | {x} |", "`{x}`",
    "0.13 + {x} = 0.5", "优势是{x}。", "({x})", "${x}$", "x={x}, y", "−{x}", "from 0.2 to {x}", "{x}e-1", "\n- {x}\n",
)  # fmt: skip


@given(
    st.lists(st.tuples(st.sampled_from(SHAPES), st.integers(0, 9_999_999), st.integers(3, 7)), min_size=1, max_size=5),
    st.sampled_from(["", "Because of λ = 0.95, ", "因为 V(s_0) = 0.2，", "1. "]),
)
def test_no_random_number_passes_unmarked(places: list[tuple[str, int, int]], start: str) -> None:
    """Digits at random in shapes at random: each is marked or struck out, unless it is one of the computed numbers."""
    known = evidence()
    written = [f"{digits / 10**decimals:.{decimals}f}" for _, digits, decimals in places]
    reply = start + "; ".join(shape.replace("{x}", x) for (shape, _, _), x in zip(places, written, strict=True))
    segments = judge(reply, known)
    assert "".join(one.text for one in segments) == reply
    for one in segments:
        if one.status == "plain":
            assert not re.search(r"\d\.\d", one.text), one
        elif one.status == "right" and "." in one.text:
            decimals = len(re.sub(r"\D*$", "", one.text.partition("e")[0]).partition(".")[2])
            value = float(one.text.strip("% ").replace("−", "-"))
            half = 0.5000001 * 10.0**-decimals * (0.1 if "e-1" in one.text else 1)
            truths = [*known.numbers, *(100 * x for x in known.numbers if "%" in one.text)]
            assert any(abs(value - truth) <= half for truth in truths), one


ODD = (
    "a" * 20_000, "一" * 20_000, "one " * 5000, "A_1=" * 5000, "1=" * 10_000, "(" * 20_000, "0." * 10_000,
    "\n" * 20_000, "[=" * 10_000, "9" * 20_000, "1+" * 10_000 + "=2", "-" * 20_000, "_" * 20_000, "seventy " * 2500,
    "\\" * 20_000,
    "token 3 is " * 1800 + "5", "\0\x1b[31m\u202e", "\ud800", "`" * 20_000, "= " * 10_000, "1/0 = 2",
    "((1) = 2", "007 = 7",
)  # fmt: skip


@pytest.mark.parametrize("number", range(len(ODD)))
def test_odd_and_endless_texts_are_judged_and_none_is_lost(number: int) -> None:
    text = ODD[number]
    assert "".join(one.text for one in judge(text, evidence())) == cleaned(text)


# ── tools ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_tools_are_called_and_their_results_are_evidence() -> None:
    call = calling(("compute_account", {"lam": 0.5}), ("derive_number", {"quantity": "advantages", "token": 4}))
    question = "and what is A_0 with λ = 0.5?"
    with FakeModel(call, "With λ = 0.5, A_0 is different; A_4 = 0.3275.") as model:
        text = answered(model, question)
    results = [message["content"] for message in model.requests[1]["messages"] if message["role"] == "tool"]
    assert json.loads(results[0])["columns"]["advantages"][4] == pytest.approx(0.3275)
    assert json.loads(results[1])["quantity"] == "advantages"
    assert "A_4 = 0.3275." in text
    assert model.requests[1]["messages"][-3]["tool_calls"][0]["function"]["name"] == "compute_account"


def test_numbers_that_the_model_itself_put_into_a_tool_prove_nothing() -> None:
    call = calling(
        ("compute_account", {"rewards": [0.7312], "values": [0.0]}), ("check_claims", {"text": "A_0 = 0.7312"})
    )
    with FakeModel(call, "It is 0.7312, as the tool says.") as model:
        text = answered(model)
    assert f"It is 0.7312 {MARK}, as the tool says." in text


def test_hostile_tool_calls_get_a_sentence_and_read_nothing(tmp_path: Path) -> None:
    calls: list[tuple[str, Any]] = [
        ("read_run", {"run": "/etc/passwd"}),
        ("audit_dump", {"dump": str(tmp_path)}),
        ("save_dialogue", {"rounds": [{"question": "a", "answer": "b"}], "directory": str(tmp_path)}),
        ("no_such_tool", {}),
        ("compute_account", "not json"),
        ("compute_account", "[1]"),
        ("compute_account", {"rewards": "x" * 200_000}),
        ("list_runs", {}),
    ]
    with FakeModel(calling(*calls), "Done.") as model:
        text = answered(model)
    results = [message["content"] for message in model.requests[1]["messages"] if message["role"] == "tool"]
    assert len(results) == len(calls)
    assert all("\n" not in result and "Traceback" not in result and len(result) < 600 for result in results)
    assert json.loads(results[-1])["runs"] == []
    assert not list(tmp_path.iterdir())
    assert text.startswith("Done.")


def test_a_model_that_only_calls_tools_is_asked_for_words_in_the_end() -> None:
    def stubborn(handler: Any, request: dict[str, Any]) -> None:
        answer: Answer = calling(("list_runs", {})) if "tools" in request else raw(json.dumps(said("Fine.")).encode())
        answer(handler, request)

    with FakeModel(stubborn) as model:
        assert answered(model).startswith("Fine.")
    assert len(model.requests) == 5


def test_a_server_that_does_not_know_tools_is_asked_without() -> None:
    with FakeModel(without_tools("A_4 = 0.5053.")) as model:
        assert answered(model).startswith("A_4 = 0.5053.")
    assert ["tools" in request for request in model.requests] == [True, False]


def test_a_server_that_refuses_a_limit_of_tokens_is_asked_without_one() -> None:
    with FakeModel(without_limit("A_4 = 0.5053.")) as model:
        assert answered(model).startswith("A_4 = 0.5053.")
    assert ["max_tokens" in request for request in model.requests] == [True, False]
    assert "tools" in model.requests[1]


# ── servers that fail ────────────────────────────────────────────────────────────────────────────────────────────────

BROKEN: dict[str, Answer] = {
    "no JSON": raw(b"{not json"),
    "nothing": raw(b""),
    "a list": raw(b"[]"),
    "no choices": raw(b'{"choices": []}'),
    "no text": raw(b'{"choices": [{"message": {"content": null}}]}'),
    "a number": raw(b'{"choices": [{"message": {"content": 7}}]}'),
    "odd calls": raw(b'{"choices": [{"message": {"tool_calls": [7]}}]}'),
    "deep": raw(b"[" * 200_000),
    "ten megabytes": raw(json.dumps(said("7" * 10_000_000)).encode()),
    "refused": raw(b'{"error": "\x1b[31mno\x1b[0m"}', 401),
    "elsewhere": raw(b"", 302, location="http://127.0.0.1:1/"),
    "no UTF-8": raw(b"\xff\xfe\xfd"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_server_gets_one_sentence_and_the_tutor_answers(how: str, capsys: pytest.CaptureFixture[str]) -> None:
    with FakeModel(BROKEN[how]) as model:
        text = answered(model)
    assert text.startswith(OWN_TITLE)
    complaint = capsys.readouterr().err
    assert complaint.count("\n") == 1
    assert "the tutor's own answer" in complaint
    assert "\x1b" not in complaint
    assert len(complaint) < 700


@pytest.mark.parametrize("slow", [silent(60), dripping(60)], ids=["silent", "dripping"])
def test_a_server_that_hangs_is_left_when_time_is_up(slow: Answer, capsys: pytest.CaptureFixture[str]) -> None:
    begin = time.monotonic()
    with FakeModel(slow) as model:
        text = answered(model, model_timeout=0.5)
    assert time.monotonic() - begin < 30
    assert text.startswith(OWN_TITLE)
    assert "within 0.5 s" in capsys.readouterr().err


def test_not_even_a_name_or_an_error_brings_an_unjudged_number(capsys: pytest.CaptureFixture[str]) -> None:
    """What a server says besides its reply: the name of its model, the reason of an error, a status line."""
    with FakeModel("Hello.", models="A_4 = 0.7312") as model:
        assert "0.7312" not in answered(model)
    for answer in (raw(b"A_4 = 0.7312", 401), status_line(b"HTTP/1.1 A_4 = 0.7312\r\n\r\n")):
        with FakeModel(answer) as model:
            assert answered(model).startswith(OWN_TITLE)
    assert "0.7312" not in capsys.readouterr().err


def test_nobody_there_and_no_models_are_sentences_too(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        assert answered(url).startswith(OWN_TITLE)
    assert "cannot be reached" in capsys.readouterr().err
    with FakeModel("x", models="") as model:
        assert answered(model).startswith(OWN_TITLE)
        assert "--model-name" in capsys.readouterr().err
        assert answered(model, model_name="mine").startswith("x")
    assert model.requests[-1]["model"] == "mine"


@pytest.mark.parametrize(
    "url", ["ftp://x/v1", "127.0.0.1:8000", "http://", "http://a b/", "http://[::1/", "http://u:p@h/v1"]
)
def test_a_bad_address_is_refused_at_once(url: str) -> None:
    with pytest.raises(SettingError, match="--model must be an address"):
        answered(url)
    with pytest.raises(SettingError, match="go with --model"):
        ask(Console(file=io.StringIO()), [QUESTION], model_name="x")


def test_keys_come_from_the_environment_and_a_common_one_stays_private(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "common")
    with FakeModel("x") as model:
        answered(model)
        monkeypatch.setenv("MINGCE_MODEL_KEY", "own")
        answered(model)
    assert [headers["authorization"] for headers in model.headers] == ["Bearer common", "Bearer own"]
    monkeypatch.delenv("MINGCE_MODEL_KEY")
    assert "authorization" not in Endpoint("http://example.org/v1")._headers()
    assert "authorization" in Endpoint("https://example.org/v1")._headers()
    monkeypatch.setenv("MINGCE_MODEL_KEY", "a\r\nb: c")
    with pytest.raises(SettingError, match="MINGCE_MODEL_KEY"):
        Endpoint("http://example.org/v1")


# ── the dialogue and its log ─────────────────────────────────────────────────────────────────────────────────────────


def test_the_log_has_the_reply_as_it_was_shown_the_prompt_the_calls_and_the_verdicts(tmp_path: Path) -> None:
    call = calling(("derive_number", {"quantity": "advantages", "token": 4}))
    lines = [QUESTION, "/example", "and with λ=0.5?"]
    console = Console(file=io.StringIO(), width=100)
    with FakeModel(call, "A_4 = 0.73 and 0.7312", "Now A_4 = 0.3275") as model:
        ask(console, [], model=model.url, lines=lines, log=True, directory=tmp_path)
    assert len(model.requests) == 3  # none for a command
    assert model.requests[2]["messages"][1:3] == [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": f"A_4 = ~~0.73~~ 0.5053 and 0.7312 {MARK}"},
    ]
    first, second, third = dialogue.read(next(tmp_path.glob("*.md"))).rounds
    assert first.answer.startswith(f"A_4 = ~~0.73~~ 0.5053 and 0.7312 {MARK}\n")
    for part in (
        OWN_TITLE,
        "derive_number(",
        "0.73: wrong, right is 0.5053",
        "0.7312: not verified",
    ):
        assert part in first.answer
    assert second.answer.startswith("## ")
    assert "A_4 = 0.3275" in third.answer
    assert isinstance(console.file, io.StringIO)
    assert first.answer.partition("\n\n####")[0] in console.file.getvalue()


def test_the_command_line_takes_the_model() -> None:
    with FakeModel("A_4 = 0.5053, not 0.7312") as model:
        words = [sys.executable, "-m", "mingce.cli", "ask", QUESTION, "--model", model.url]
        done = subprocess.run(words, capture_output=True, text=True, env=ENVIRONMENT, timeout=60, check=True)
    assert done.stdout.startswith(f"A_4 = 0.5053, not 0.7312 {MARK}\n")


def test_a_reply_of_the_largest_size_is_cut_and_judged() -> None:
    with FakeModel("0.7312 " * (MOST_BYTES // 10)) as model:
        text = answered(model)
    assert text.count(MARK) == text.count("0.7312") > 1000
