"""The classes of token-level bugs that happened in public trainers, 1 to 48.

Their names are in mingce/texts/audit.zh.md and audit.en.md. Compiled from public issues and pull
requests; a fault of the audit names the classes it can stand for. `decidable` says what one dump gives away: "yes",
"partly" (with columns most dumps lack, or several steps), "no" (only with the models or the texts at hand).
"""

from __future__ import annotations

from typing import NamedTuple

from mingce.base import texts
from mingce.base.lang import LANGS


class BugClass(NamedTuple):
    """One class: its name in 中文 and English, what a dump can show of it, one public report."""

    zh: str
    en: str
    decidable: str  # "yes", "partly" or "no"
    link: str


def github(place: str | None) -> str:
    """The address of a public report; nothing where there is none."""
    return f"https://github.com/{place}" if place else ""


_ZH, _EN = (texts.named(texts.texts("audit", lang)["classes"]) for lang in LANGS)
CLASSES: dict[int, BugClass] = {
    number: BugClass(_ZH[str(number)], _EN[str(number)], decidable, github(place))
    for number, (decidable, place) in enumerate(
        (
            ("yes", "THUDM/slime/issues/1414"),
            ("yes", "huggingface/trl/issues/4159"),
            ("yes", "THUDM/slime/issues/1370"),
            ("partly", "verl-project/verl/issues/5625"),
            ("yes", "verl-project/verl/pull/2953"),
            ("partly", "huggingface/trl/issues/5312"),
            ("yes", "huggingface/trl/pull/6357"),
            ("yes", "verl-project/verl/issues/3805"),
            ("yes", "huggingface/trl/issues/3750"),
            ("yes", "radixark/miles/pull/1827"),
            ("yes", "verl-project/verl/issues/6476"),
            ("partly", "huggingface/trl/issues/5224"),
            ("partly", "OpenRLHF/OpenRLHF/issues/217"),
            ("yes", "huggingface/trl/issues/6789"),
            ("yes", "THUDM/slime/pull/1372"),
            ("yes", "alibaba/ROLL/pull/447"),
            ("partly", "CarperAI/trlx/issues/107"),
            ("yes", "PrimeIntellect-ai/prime-rl/pull/1525"),
            ("partly", "verl-project/verl/issues/1758"),
            ("yes", "radixark/miles/pull/1829"),
            ("yes", "OpenRLHF/OpenRLHF/pull/634"),
            ("partly", "huggingface/trl/pull/6591"),
            ("yes", "qiancheng0/ToolRL/issues/52"),
            ("partly", "NVIDIA-NeMo/RL/pull/2506"),
            ("partly", "verl-project/verl/issues/211"),
            ("partly", "huggingface/trl/issues/6369"),
            ("partly", "verl-project/verl/issues/2506"),
            ("yes", "huggingface/trl/issues/2496"),
            ("yes", "verl-project/verl/pull/1527"),
            ("yes", "thomfoster/minRLHF/issues/5"),
            ("yes", "huggingface/trl/pull/5773"),
            ("yes", "meta-pytorch/torchtune/pull/1005"),
            ("yes", "hpcaitech/ColossalAI/issues/4491"),
            ("yes", "huggingface/trl/pull/1536"),
            ("no", "pytorch/rl/pull/3887"),
            ("partly", "OpenRLHF/OpenRLHF/issues/238"),
            ("yes", "allenai/open-instruct/pull/1794"),
            ("yes", "verl-project/verl/pull/2377"),
            ("partly", "THUDM/slime/pull/179"),
            ("yes", "modelscope/ms-swift/pull/10071"),
            ("partly", "huggingface/trl/pull/3234"),
            ("yes", "vllm-project/vllm/pull/55288"),
            ("partly", "CarperAI/trlx/pull/361"),
            ("partly", "verl-project/verl/issues/3741"),
            ("partly", "RLinf/RLinf/issues/1529"),
            ("no", "verl-project/verl/pull/6392"),
            ("partly", "huggingface/trl/issues/6803"),
            ("no", "PrimeIntellect-ai/prime-rl/pull/3164"),
        ),
        start=1,
    )
}
