"""The classes of token-level bugs that happened in public trainers, 1 to 48, and later reports of them.

Their names are in mingce/texts/audit.zh.md and audit.en.md. Compiled from public issues and pull
requests; a fault of the audit names the classes it can stand for. `decidable` says what one dump gives away: "yes",
"partly" (with columns most dumps lack, or several steps), "no" (only with the models or the texts at hand).
What was wrong in each of KNOWN_REPORTS is in mingce/texts/reports.zh.md and reports.en.md.
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


class Report(NamedTuple):
    """One public report of 2025 or later: its class, the plant that computes it, and the faults that tell of it."""

    place: str
    year: int
    number: int
    plant: str = ""  # the flavour in bench/audit_plants; "" where no dump shows the bug
    codes: tuple[str, ...] = ()


KNOWN_REPORTS: tuple[Report, ...] = (
    Report("rllm-org/rllm/issues/605", 2026, 1, "a uid for each trajectory", ("groups-misformed",)),
    Report("rllm-org/rllm/pull/667", 2026, 1, "a uid for each trajectory", ("groups-misformed",)),
    Report(
        "PrimeIntellect-ai/prime-rl/pull/679", 2025, 2, "the engine reports raw log-probs", ("rollout-log-probs-raw",)
    ),
    Report("unslothai/unsloth-zoo/pull/832", 2026, 2, "the trainer scores at temperature 1", ("trainer-temperature",)),
    Report("PeterGriffinJin/Search-R1/pull/21", 2025, 3, "KL on tool output", ("kl-on-tool-tokens",)),
    Report("huggingface/trl/pull/4975", 2026, 3, "tool output in the policy loss", ("loss-mask",)),
    Report("NovaSky-AI/SkyRL/pull/925", 2026, 4, "equal weights", ("loss-micro-batch-mean",)),
    Report("NovaSky-AI/SkyRL/pull/1296", 2026, 4, "equal weights", ("loss-micro-batch-mean",)),
    Report("PrimeIntellect-ai/prime-rl/pull/2562", 2026, 4, "each rank by its own tokens", ("loss-micro-batch-mean",)),
    Report("PrimeIntellect-ai/prime-rl/pull/583", 2025, 4, "equal weights", ("loss-micro-batch-mean",)),
    Report("NVIDIA-NeMo/RL/issues/212", 2025, 4, "a micro-batch without a token counts", ("loss-micro-batch-mean",)),
    Report("NVIDIA-NeMo/RL/issues/3696", 2026, 5, "other kernels", ("other-policy",)),
    Report("NovaSky-AI/SkyRL/pull/1908", 2026, 5, "other experts", ("other-policy",)),
    Report(
        "verl-project/verl/issues/7495",
        2026,
        6,
        "the engine never leaves the first weights",
        ("rollout-gap-trend", "other-policy"),
    ),
    Report(
        "verl-project/verl/issues/3516",
        2025,
        6,
        "the engine never leaves the first weights",
        ("rollout-gap-trend", "other-policy"),
    ),
    Report(
        "verl-project/verl/pull/5220",
        2026,
        6,
        "the engine never leaves the first weights",
        ("rollout-gap-trend", "other-policy"),
    ),
    Report("karpathy/nanochat/issues/810", 2026, 7, "both masks are y ≠ pad", ("eos-masked",)),
    Report("billy-enrizky/openbrowser-ai/pull/32", 2026, 8, "pads after EOS counted", ("padding-in-response",)),
    Report(
        "NVIDIA-NeMo/RL/pull/3467",
        2026,
        10,
        "a row without a chosen token counts in its group",
        ("score-in-empty-row",),
    ),
    Report(
        "NVIDIA-NeMo/RL/issues/4061",
        2026,
        10,
        "a row without a chosen token counts in its group",
        ("score-in-empty-row",),
    ),
    Report(
        "verl-project/verl/pull/4243",
        2025,
        13,
        "the response's position ids padded on the left",
        ("positions-not-consecutive",),
    ),
    Report("huggingface/trl/issues/5785", 2026, 13),
    Report(
        "NVIDIA-NeMo/RL/issues/69",
        2025,
        14,
        "top-p 0.8, both sides of the whole vocabulary",
        ("surprise-is-not-entropy",),
    ),
    Report("THUDM/slime/issues/774", 2025, 17, "other batch shapes", ("first-ratio",)),
    Report("modelscope/ms-swift/pull/8427", 2026, 18, "the trainer's, one early", ("shifted-log-probs",)),
    Report("opendilab/LightRFT/pull/53", 2026, 18, "the first logits for the last labels", ("unrelated-log-probs",)),
    Report("inclusionAI/AReno/issues/68", 2026, 20, "ratio 1 everywhere", ("other-policy",)),
    Report("Goekdeniz-Guelmez/mlx-lm-lora/issues/55", 2026, 20),
    Report("OpenRLHF/OpenRLHF/pull/1309", 2026, 24),
    Report("PrimeIntellect-ai/prime-rl/issues/1390", 2025, 24),
    Report("NVIDIA-NeMo/RL/pull/2530", 2026, 25, "in the reward and in the loss", ("kl-twice",)),
    Report("Roblox/FAI-RL/pull/96", 2026, 25, "nowhere", ("kl-never",)),
    Report("PrimeIntellect-ai/prime-rl/pull/674", 2025, 26, "padding in the denominator", ("loss-denominator",)),
    Report("huggingface/trl/pull/3744", 2025, 26, "tokens of low entropy in the denominator", ("loss-denominator",)),
    Report("alibaba/ROLL/pull/444", 2026, 27, "the numerator without a mask", ("loss-mask",)),
    Report("THUDM/slime/pull/2235", 2026, 30, "per slice of the context", ("whitening-unexplained",)),
    Report("radixark/miles/pull/3229", 2026, 30, "per slice of the context", ("whitening-unexplained",)),
    Report("THUDM/slime/issues/1369", 2026, 32, "shift_mean inverted", ("mean-added-back",)),
    Report("huggingface/trl/issues/6805", 2026, 36),
    Report("verl-project/verl/pull/4105", 2025, 39),
    Report("huggingface/trl/issues/3853", 2025, 42, "BOS twice", ("double-bos",)),
    Report("verl-project/verl/pull/6921", 2026, 42),
    Report("verl-project/verl/issues/3720", 2025, 42),
    Report("verl-project/verl/pull/7970", 2026, 43, "rows without a token count as 0", ("adaptive-kl-no-fit",)),
    Report("huggingface/trl/issues/6809", 2026, 47, "approximate KL over pads", ("metric-over-pads",)),
    Report("THUDM/slime/pull/65", 2025, 47, "log-probs over tool output", ("metric-over-pads",)),
    Report("hiyouga/EasyR1/issues/57", 2025, 48, "the first steps' prompts again", ("data-restarted",)),
    Report("NVIDIA-NeMo/RL/pull/3599", 2026, 48),
)
