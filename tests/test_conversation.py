"""Prompts as conversations: the templates that models come with, and texts that are none."""

from __future__ import annotations

import random
import time
from itertools import pairwise

import pytest

from mingce.base.conversation import COMMON, NOBODY, TEMPLATE, Markers, Part, asked, conversation, question
from mingce.record.tokens import Token
from mingce.sources.rollouts import counted

SYSTEM = ("system", "Be brief.")
ASKED = ("user", "What is 1+1?\nShow <b>work</b>.")
TURNS = [SYSTEM, ASKED]
LONGER = [SYSTEM, ("user", "Hi"), ("assistant", "Hello!"), ASKED]
Q = ASKED[1]
TEMPLATES: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "chatml": (
        f"<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello!"
        f"<|im_end|>\n<|im_start|>user\n{Q}<|im_end|>\n<|im_start|>assistant\n",
        LONGER,
    ),
    "qwen3 without thinking": (
        f"<|im_start|>user\n{Q}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        [ASKED, ("assistant", "<think>\n\n</think>")],
    ),
    "llama 3": (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|><|start_header_id|>user"
        f"<|end_header_id|>\n\n{Q}<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
        TURNS,
    ),
    "llama 4": (
        f"<|begin_of_text|><|header_start|>user<|header_end|>\n\n{Q}<|eot|><|header_start|>assistant<|header_end|>\n\n",
        [ASKED],
    ),
    "gemma": (
        f"<bos><start_of_turn>user\n{Q}<end_of_turn>\n<start_of_turn>model\n",
        [ASKED],
    ),
    "mistral": (f"<s>[INST] Hi[/INST] Hello!</s>[INST] {Q}[/INST]", [*LONGER[1:]]),
    "mistral with a system prompt": (f"<s>[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT][INST]{Q}[/INST]", TURNS),
    "llama 2": (f"<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\n{Q} [/INST]", TURNS),
    "phi-3": (f"<|system|>\nBe brief.<|end|>\n<|user|>\n{Q}<|end|>\n<|assistant|>\n", TURNS),
    "phi-4": (
        f"<|im_start|>system<|im_sep|>Be brief.<|im_end|><|im_start|>user<|im_sep|>{Q}<|im_end|>"
        "<|im_start|>assistant<|im_sep|>",
        TURNS,
    ),
    "zephyr": (f"<|system|>\nBe brief.</s>\n<|user|>\n{Q}</s>\n<|assistant|>\n", TURNS),
    "glm": (f"[gMASK]<sop><|system|>\nBe brief.<|user|>\n{Q}<|assistant|>", TURNS),
    "deepseek": (f"<｜begin▁of▁sentence｜>Be brief.<｜User｜>{Q}<｜Assistant｜>", TURNS),
    "granite": (
        f"<|start_of_role|>system<|end_of_role|>Be brief.<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>{Q}"
        "<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
        TURNS,
    ),
    "harmony": (
        f"<|start|>system<|message|>Be brief.<|end|><|start|>user<|message|>{Q}<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant",
        [*TURNS, ("assistant", "Hm.")],
    ),
    "command r": (
        "<BOS_TOKEN><|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>Be brief.<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|>"
        f"<|USER_TOKEN|>{Q}<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
        TURNS,
    ),
    "kimi": (
        f"<|im_system|>system<|im_middle|>Be brief.<|im_end|><|im_user|>user<|im_middle|>{Q}<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|>",
        TURNS,
    ),
    "exaone": (f"[|system|]Be brief.[|endofturn|]\n[|user|]{Q}\n[|assistant|]", TURNS),
    "a role of one's own": (
        f"<|im_start|>critic\nToo long.<|im_end|>\n<|im_start|>user\n{Q}<|im_end|>\n<|im_start|>assistant\n",
        [("critic", "Too long."), ASKED],
    ),
    "chatml decoded without markers": (f"system\nBe brief.\nuser\n{Q}\nassistant\n", TURNS),
    "llama 3 decoded without markers": (f"system\n\nBe brief.user\n\n{Q}assistant\n\n", TURNS),
    "gemma decoded without markers": (f"user\n{Q}\nmodel\n", [ASKED]),
}
OWN = Markers(["<BOS_TOKEN>", "<人>", "<答>"])


@pytest.mark.parametrize("name", TEMPLATES)
def test_turns_are_told_from_the_template(name: str) -> None:
    text, turns = TEMPLATES[name]
    for markers in (OWN, *([COMMON] if name != "command r" else [])):
        parts = conversation(text, markers)
        assert [(part.role, part.text) for part in parts if part.role != TEMPLATE] == turns
        assert "".join(part.text for part in parts) == text
        assert question(parts) == asked(text, markers) == Q
        assert all(a.role != TEMPLATE or b.role != TEMPLATE for a, b in pairwise(parts))


def test_a_tokenizers_own_markers_are_known_by_its_special_tokens() -> None:
    text = "<起>用户<止>Why?<起>助手<止>"
    assert conversation(text) == [Part(NOBODY, text)]
    assert asked(text, Markers(["<起>", "<止>"])) == "Why?"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Once upon a time", "Once upon a time"),
        ("<bos>请问17+25=42？", "请问17+25=42？"),
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
        ("  indented\n", "indented"),
        ("user\nwrote this line", "user\nwrote this line"),
        ("<|endoftext|>", "<|endoftext|>"),
        ("", ""),
        ("Q: 1+1?\nA:", "Q: 1+1?\nA:"),
    ],
)
def test_a_text_without_turns_is_shown_as_it_is(text: str, said: str) -> None:
    parts = conversation(text)
    assert {part.role for part in parts} <= {NOBODY, TEMPLATE}
    assert "".join(part.text for part in parts) == text
    assert question(parts) == said


def test_no_text_is_lost_whatever_it_is_made_of() -> None:
    draw = random.Random(0)
    pieces = ["<|im_start|>", "<|im_end|>", "user", "assistant", "\n", " ", "x", "[INST]", "[/INST]", "<<SYS>>", "<s>",
              "<|user|>", "<|start|>", "<|channel|>", "<|message|>", "<|", "|>", "用户"]  # fmt: skip
    for _ in range(3000):
        text = "".join(draw.choice(pieces) for _ in range(draw.randint(0, 14)))
        parts = conversation(text)
        assert "".join(part.text for part in parts) == text
        assert all(part.text for part in parts)
        question(parts)


def test_tokens_are_counted_where_they_begin() -> None:
    parts = conversation("<|im_start|>user\n等于 1<|im_end|>\n<|im_start|>assistant\n")
    texts = ["<|im_start|>", "user", "\n", "等", "", "于", " 1", "<|im_end|>", "\n", "<|im_start|>", "assistant", "\n"]
    glyphs = [0, 1, 2, 3, 3, 5, 6, 7, 8, 9, 10, 11]
    tokens = [Token(i, text, glyph) for i, (text, glyph) in enumerate(zip(texts, glyphs, strict=True))]
    assert [(part.role, part.tokens) for part in counted(parts, tokens)] == [
        (TEMPLATE, 3), ("user", 4), (TEMPLATE, 5),
    ]  # fmt: skip
    assert counted([], tokens) == []


def test_a_long_prompt_is_read_in_time_that_grows_with_it() -> None:
    begun = time.process_time()
    for text in ("<|im_end|>" * 50_000, " " * 500_000, "<|im_start|>user\n" * 30_000, "user\n" * 50_000 + "assistant"):
        assert "".join(part.text for part in conversation(text)) == text
    assert time.process_time() - begun < 20  # a quadratic reading takes minutes
