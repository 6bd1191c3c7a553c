"""Watches over a made-up run, with a clock that ticks when it is told to."""

from __future__ import annotations

import io

import torch
from rich.console import Console

from mingce.base.lang import LANGS
from mingce.base.texts import sentences
from mingce.ledger import Ledger
from mingce.progress.plain import PlainProgress

PHRASES = {lang: sentences("terminal", lang) for lang in LANGS}
METRICS = {
    "critic/score/mean": 0.71,
    "critic/kl": 0.0031,
    "actor/entropy_loss": 0.42,
    "response_length/mean": 8.1,
    "critic/vf_explained_var": 0.35,
    "timing_s/generate": 0.2,
    "timing_s/score": 0.001,
    "timing_s/log_probs": 0.2,
    "timing_s/update_critic": 0.25,
    "timing_s/update_actor": 0.3,
    "timing_s/step": 1.0,
    "perf/tokens_per_second": 4312.0,
}
ANSWERS = {"zh": ("请问17+25=42？", "是的，等于42！"), "en": ("Is 17+25=42?", "Yes, it is 42!")}


class Ticking:
    """A clock that goes only when told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def rollouts(lang: str = "zh", rows: int = 3) -> tuple[Ledger, list[str]]:
    """A ledger of the same answer `rows` times, advantages rising from −1 to 0.5, and the answer's token strings."""
    prompt, response = ANSWERS[lang]
    tokens = [*response, ""]
    shape = (rows, len(tokens))
    ledger = Ledger(
        torch.zeros(shape, dtype=torch.int64),
        torch.ones(shape, dtype=torch.bool),
        rows={"prompt": [prompt] * rows, "response": [response] * rows},
    )
    scores = torch.zeros(shape)
    scores[:, -1] = 1.0
    advantages = torch.linspace(-1, 0.5, len(tokens)).expand(shape)
    ledger.fill({"scores": scores, "rewards": scores, "values": torch.zeros(shape), "advantages": advantages})
    return ledger, tokens


class Plain:
    """A plain progress that writes into memory, with its clock."""

    def __init__(self, lang: str = "en", steps: int = 40, first_step: int = 1):
        self.file, self.clock = io.StringIO(), Ticking()
        self.progress = PlainProgress(Console(file=self.file), lang, self.clock)
        self.progress.begin("title", [("task", "arithmetic"), ("批次", "64 × 4")], first_step, steps)

    def step(self, step: int, seconds: float) -> None:
        self.progress.stage("generate", step)
        self.clock.now += seconds
        self.progress.step(step, METRICS, None, None)

    @property
    def lines(self) -> list[str]:
        return self.file.getvalue().splitlines()


def terminal(width: int = 100, height: int = 40) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, force_terminal=True, width=width, height=height, color_system="truecolor"), file
