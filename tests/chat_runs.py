"""Runs with a chat template, long answers and tools, written as ledgers without a model: what real runs look like."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

import torch

from mingce.config import Config, read_config
from mingce.credit import assign_credit
from mingce.ledger import Ledger
from mingce.record.run import Run

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
QUESTIONS = (
    "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. "
    "How many clips did Natalia sell altogether in April and May?",
    "小明有 12 个苹果，送给同学 5 个，又买了 8 个。\n他现在有几个？",
)
ANSWER = (
    "Let us think step by step.\n\nIn April she sold 48 clips. In May she sold half as many, that is 48 / 2 = 24.\n"
    "Altogether she sold 48 + 24 = 72 clips.\n\n#### 72<|im_end|>"
)
CALL = 'I need the calculator.\n<tool_call>{"expression": "48 + 24"}</tool_call><|im_end|>'
RESULT = "\n<|im_start|>tool\n<tool_response>\n72\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
PIECES = re.compile(r"<\|[^|]+\|>|\n+| ?\w+| ?[^\w\s<]+|<|\s")
SPECIAL = ("<|im_start|>", "<|im_end|>")


def prompt(question: str) -> str:
    return f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


class Words:
    """A byte-level tokenizer that has a token for each word it has met; Chinese is written in bytes."""

    def __init__(self) -> None:
        self.vocabulary: dict[str, int] = {text: i for i, text in enumerate(SPECIAL)}
        others = [byte for byte in range(256) if not (0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or byte >= 0xAE)]
        self._letters = {byte: chr(byte) for byte in range(256)}
        self._letters |= {byte: chr(0x100 + k) for k, byte in enumerate(others)}

    def ids(self, text: str) -> list[int]:
        found = []
        for piece in PIECES.findall(text):
            whole = piece in SPECIAL or piece.isascii()
            for part in [piece.encode()] if whole else [bytes([byte]) for byte in piece.encode()]:
                name = piece if piece in SPECIAL else "".join(self._letters[byte] for byte in part)
                found.append(self.vocabulary.setdefault(name, len(self.vocabulary)))
        return found

    def save(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        added = [{"id": i, "content": text, "special": True, **flags} for i, text in enumerate(SPECIAL)]
        bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        model = {"type": "WordLevel", "vocab": self.vocabulary, "unk_token": SPECIAL[0]}
        layout = {"version": "1.0", "added_tokens": added, "decoder": bytes_, "model": model}
        (directory / "tokenizer.json").write_text(json.dumps(layout), encoding="utf-8")


def answer_of(width: int) -> str:
    """An answer of so many tokens, with paragraphs."""
    pieces: list[str] = []
    while len(pieces) < width - 1:
        pieces += PIECES.findall(ANSWER.removesuffix("#### 72<|im_end|>") + f"Step {len(pieces)}: check it again.\n\n")
    return "".join(pieces[: width - 1]) + "<|im_end|>"


def chat_ledger(config: Config, words: Words, answers: list[list[tuple[str, bool]]], beta: float) -> Ledger:
    """Rows, two a question, of pieces that the policy chose or was given; numbers are drawn, credit is computed."""
    rows = [[(i, mine) for text, mine in pieces for i in words.ids(text)] for pieces in answers]
    width, size = max(map(len, rows)), len(rows)
    ids, mask, there = (torch.zeros(size, width, dtype=torch.long) for _ in range(3))
    for b, row in enumerate(rows):
        ids[b, : len(row)] = torch.tensor([i for i, _ in row])
        mask[b, : len(row)] = torch.tensor([int(mine) for _, mine in row])
        there[b, : len(row)] = 1
    texts = [prompt(QUESTIONS[b // 2 % len(QUESTIONS)]) for b in range(size)]
    ledger = Ledger(ids, mask.bool(), there.bool(), {
        "uid": [f"u{b}" for b in range(size)], "group": [f"g{b // 2}" for b in range(size)],
        "prompt": texts, "prompt_ids": [words.ids(text) for text in texts],
        "response": ["".join(text for text, _ in pieces) for pieces in answers],
        "finish_reason": ["stop"] * size, "bootstrap_value": [0.0] * size,
        "score_parts": [{"correct": float(b % 2), "format": 1.0} for b in range(size)],
    })  # fmt: skip
    draw = torch.Generator().manual_seed(0)

    def noise(scale: float) -> torch.Tensor:
        return scale * torch.randn(size, width, generator=draw)

    old = -noise(1.0).abs()
    scores = torch.zeros(size, width)
    for b in range(size):
        scores[b, int(mask[b].nonzero()[-1])] = float(b % 2)
    ledger.fill({"rollout_log_probs": old + noise(0.01), "old_log_probs": old, "entropy": noise(0.5).abs()})
    ledger.fill({"ref_log_probs": old + noise(0.05), "scores": scores})
    if config.estimator == "gae":
        ledger.fill({"values": 0.4 + torch.cumsum(noise(0.03), dim=1)})
    assign_credit(ledger, config, beta)
    return ledger


def chat_run(root: Path, name: str = "chat", estimator: str = "gae", width: int = 2000) -> Path:
    """Step 1: four short answers. Step 2: two of `width` tokens. Step 3: two with a tool's answer inside."""
    words, model = Words(), root / f"{name}-model"
    config = read_config(None, [f"estimator={estimator}", f"model.path={model}", "steps=3", "kl.reward_coef=0.01"])
    beta = config.kl.reward_coef
    short = [[(ANSWER, True)], [(ANSWER.replace("72", "7"), True)]]
    tool = [(CALL, True), (RESULT, False), ("72。等于七十二。<|im_end|>", True)]
    steps = {1: short * 2, 2: [[(answer_of(width), True)], [(answer_of(width // 2), True)]], 3: [tool, tool]}
    with Run.create(root, name, asdict(config)) as run:
        for step, answers in steps.items():
            run.ledger.write(step, chat_ledger(config, words, answers, beta))
        run.metrics_path.write_text("".join(json.dumps({"step": step, "critic/kl": 0.1}) + "\n" for step in steps))
    words.save(model)
    return root / name
