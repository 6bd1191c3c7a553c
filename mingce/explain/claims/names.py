"""What a name in a dialogue means: `A_1`, `advantages_raw`, `优势`, `token-level rewards` → one of a few kinds.

A kind is a column of the column table (columns.py), a setting (gamma, lam, beta) or a statistic (mean, std, var).
`symbol_kind` reads names of formulae and code, `label_kind` the words in front of a list of numbers.
"""

from __future__ import annotations

import re
from functools import lru_cache

COLUMN_KINDS = frozenset(
    {
        "rewards", "values", "next_values", "deltas", "advantages", "returns", "whitened", "scores", "kl", "ratio",
        "old_log_probs", "ref_log_probs", "new_log_probs", "old_probs", "ref_probs", "new_probs", "mask",
    }
)  # fmt: skip
CREDIT_KINDS = frozenset({"deltas", "advantages", "returns"})
SETTING_KINDS = frozenset({"gamma", "lam", "beta"})
STATISTIC_KINDS = frozenset({"mean", "std", "var"})

SYMBOLS = {
    "A": "advantages", "V": "values", "v": "values", "r": "rewards", "R": "returns", "G": "returns", "δ": "deltas",
    "γ": "gamma", "λ": "lam", "β": "beta", "μ": "mean", "σ": "std", "π": "old_probs", "ρ": "ratio", "d": None,
}  # fmt: skip
_WORDS = {
    "reward": "rewards", "rewards": "rewards", "rew": "rewards", "rews": "rewards",
    "value": "values", "values": "values", "vals": "values", "nextvalue": "next_values", "nextvalues": "next_values",
    "delta": "deltas", "deltas": "deltas", "advantage": "advantages", "advantages": "advantages", "adv": "advantages",
    "advs": "advantages", "gae": "advantages", "return": "returns", "returns": "returns", "ret": "returns",
    "rets": "returns", "score": "scores", "scores": "scores", "kl": "kl", "kld": "kl", "kls": "kl", "ratio": "ratio",
    "ratios": "ratio", "gamma": "gamma", "discount": "gamma", "lam": "lam", "lambda": "lam", "lambd": "lam",
    "lmbda": "lam", "beta": "beta", "mean": "mean", "avg": "mean", "std": "std", "stddev": "std", "var": "var",
    "variance": "var", "whitened": "whitened", "mu": "mean", "sigma": "std", "pi": "old_probs",
}  # fmt: skip
_PREFIXES = frozenset({"token", "level", "raw", "old", "per", "step", "gae", "mc", "kl", "coef", "td", "next", "list"})


@lru_cache(maxsize=4096)
def symbol_kind(name: str) -> str | None:
    """The kind of a name in a formula or in code, without its index; None if it is none of ours."""
    if len(name) < 2:
        return SYMBOLS.get(name)
    parts = [part for part in name.lower().replace("-", "_").split("_") if part] or [""]
    joined = "".join(parts)
    if re.search(r"whiten|normali[sz]ed|standardi[sz]ed", joined):
        return "whitened" if "return" not in joined and "reward" not in joined and "value" not in joined else None
    if re.search(r"log_?p", joined):
        return _whose(joined, "log_probs") if joined not in ("logprobratio", "logpratio") else None
    if joined.endswith(("prob", "probs")) or parts[0] in ("pi", "π"):
        return _whose(joined, "probs")
    if joined in ("klcoef", "klcoeff", "initklcoef", "klctrl", "klweight"):
        return "beta"
    if joined in ("gaelambda", "gaelam"):
        return "lam"
    if joined in ("tderror", "tderrors", "tdresidual", "tdresiduals"):
        return "deltas"
    if joined in ("mask", "responsemask", "actionmask", "eosmask", "lossmask"):
        return "mask"
    known = [part for part in parts if part in _WORDS]
    if not known or any(part not in _WORDS and part not in _PREFIXES for part in parts):
        return None
    if known == ["kl", "rewards"] or known[-1] == "rewards":
        return "rewards"
    if "next" in parts and known[-1] == "values":
        return "next_values"
    return _WORDS[known[-1]] if known[0] not in ("mean", "std", "var") else _WORDS[known[0]]


def _whose(joined: str, what: str) -> str:
    if "ref" in joined:
        return f"ref_{what}"
    return f"new_{what}" if "new" in joined or "theta" in joined or "θ" in joined else f"old_{what}"


_LABELS: tuple[tuple[str, str], ...] = (
    (r"(?:(?:response|action|eos|loss)[ _-]*)?mask\b|掩码", "mask"),
    (r"ref[a-z]*[ _-]*(?:model)?[ _-]*log[ _-]?prob\w*|log\s*π_\{?ref\}?|参考(?:模型"
    r"|策略)?(?:的)?对数概率", "ref_log_probs"),
    (r"new[ _-]*log[ _-]?prob\w*|log\s*π_\{?(?:θ|new)\}?|新(?:策略)?(?:的)?对数概率", "new_log_probs"),
    (r"(?:old[ _-]*)?log[ _-]?prob\w*|log\s*π_\{?old\}?|(?:旧策略(?:的)?)?对数概率", "old_log_probs"),
    (r"next[ _-]?values?|(?-i:V\(s_\{?t\+1\}?\)|V_\{?t\+1\}?)|下一(?:步|状态)(?:的)?价值", "next_values"),
    (r"(?<!un)(?<!not )(?:whitened|normali[sz]ed|standardi[sz]ed)[ _-]*(?:advantages?|advs?|A\b)?"
    r"|(?:advantages?|adv)[ _-](?:whitened|normali[sz]ed)"
     r"|whiten(?:ing)?\s*(?:后|之后)(?:的)?(?:优势|advantages?)?|(?<!未)(?<!没有)白化(?:之后|后)?(?:的)?优势"
     r"|(?<!未)白化后|(?:标准化|归一化)后?的?优势", "whitened"),
    (r"TD[ _-]?(?:errors?|residuals?|误差|残差)|deltas?\b|δ|时序差分误差", "deltas"),
    (r"(?:token[ _-]level[ _-])?advantages?\b|\badvs?\b|优势(?:函数|值|估计)?|\bGAE\b|(?-i:\bA(?:_\{?t\}?"
    r"|\^\{?\(?\w+\)?\}?|\b))", "advantages"),
    (r"(?:token[ _-]level[ _-])?returns?\b|回报|(?-i:\b[RG](?:_\{?t\}?|\b))|折扣累[积计]奖励|λ-return", "returns"),
    (r"(?:token[ _-]level[ _-])?values?\b|状态价值|价值(?:估计|函数)?|估值|(?-i:\bV(?:\(s_\{?t\}?\)|_\{?t\}?"
    r"|\b))", "values"),
    (r"KL(?:[ _-]?(?:div\w*|penalt\w*|estimates?)|\s?(?:散度|惩罚|估计|距离))?|\bkld?\b", "kl"),
    (r"(?:token[ _-]level[ _-])?rewards?\b|奖励|(?-i:\br(?:_\{?t\}?|\b))", "rewards"),
    (r"(?:token[ _-]level[ _-])?scores?\b|得分|打分|分数", "scores"),
    (r"(?:probability )?ratios?\b|概率比(?:率|值)?|ρ|r_\{?t\}?\(θ\)", "ratio"),
    (r"probabilit(?:y|ies)|\bprobs?\b|π_\{?old\}?|概率", "old_probs"),
)  # fmt: skip
_LABEL = re.compile("|".join(f"(?P<k{n}>{pattern})" for n, (pattern, _) in enumerate(_LABELS)), re.I | re.ASCII)


def label_kind(text: str, *, first: bool = False) -> str | None:
    """The kind the words speak of: the last one named (the nearest to the list), or the first."""
    kinds = label_kinds(text)
    return (kinds[0] if first else kinds[-1]) if kinds else None


def label_kinds(text: str) -> list[str]:
    """Every kind the words name, in their order; none if the list is of weights or counts."""
    text = text[-160:]
    if _FACTORS.search(text[-24:]):
        return []
    return [_LABELS[int(match.lastgroup[1:])][1] for match in _LABEL.finditer(text) if match.lastgroup]


_FACTORS = re.compile(
    r"权重|系数|乘上|乘以|次数|贡献|计入|变化|差值|之差|weigh|counted|coefficient|factor|contribut|product|chang|differ",
    re.I,
)
_MONTE_CARLO = re.compile(r"[Mm]onte[ -]?[Cc]arlo|蒙特卡[洛罗]|\b(?:MC|mc)\b|\bG(?:_|\b)", re.ASCII)


def is_monte_carlo(text: str) -> bool:
    """True if the words say that the numbers are Monte Carlo's, λ = 1."""
    return _MONTE_CARLO.search(text[-160:]) is not None
