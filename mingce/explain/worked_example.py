"""The seeds' worked example, 请问1+1=2？ → 是的，等于2！, through the real functions."""

from __future__ import annotations

import torch
from rich.console import Console
from rich.rule import Rule

from mingce.algorithms import reference
from mingce.algorithms.kl import kl_rewards
from mingce.algorithms.losses import compute_policy_loss, compute_value_loss
from mingce.algorithms.masking import masked_whiten
from mingce.credit import credit_columns
from mingce.explain.account_table import account_table
from mingce.explain.example import BETA, GAMMA, KL, LAM, OLD_LOG_PROBS, PROMPT, SCORES, TOKENS, VALUES
from mingce.ledger import Ledger
from mingce.specs import find_estimator
from mingce.specs.estimators import GAE

TEXT = {
    "zh": {
        "title": f"{PROMPT} → {''.join(TOKENS)}   β = {BETA}，γ = {GAMMA:g}，λ = {LAM}",
        "credit": "一、信用：得分 → 奖励 → TD 误差 → 优势 → 回报",
        "update": "二、更新：第一次时比值恒为 1，损失就是白化优势的相反数；价值向回报靠拢",
        "check": "与 float64 逐步循环相比，最大误差",
        "read": "结尾的 1 分经 λ = 0.95 传回第一个 token：A₀ = {first:.3f}；R_t = A_t + V(s_t) 是 critic 的目标。",
    },
    "en": {
        "title": f"{PROMPT} → {''.join(TOKENS)}   β = {BETA}, γ = {GAMMA:g}, λ = {LAM}",
        "credit": "1. Credit: score → reward → TD error → advantage → return",
        "update": "2. Update: the first time every ratio is 1, each loss is −Â; values move to the returns",
        "check": "largest difference from the float64 loop",
        "read": "The point travels back with λ = 0.95: A₀ = {first:.3f}; R_t = A_t + V(s_t) is the critic's target.",
    },
}


def worked_ledger() -> Ledger:
    """The example as a ledger with every column that its numbers allow."""
    mask = torch.ones(1, len(TOKENS), dtype=torch.bool)
    ledger = Ledger(
        torch.arange(len(TOKENS))[None], mask, rows={"uid": ["seed"], "prompt": [PROMPT], "group": ["seed"]}
    )
    old = torch.tensor([OLD_LOG_PROBS])
    kl = torch.tensor([KL])
    ledger.fill({"old_log_probs": old, "ref_log_probs": old - kl, "scores": torch.tensor([SCORES])}, {"kl": kl})
    ledger.fill({"values": torch.tensor([VALUES])}, {"rewards": kl_rewards(ledger["scores"], kl, mask, BETA)})
    ledger.fill(credit_columns(ledger, find_estimator(GAE), {"gamma": GAMMA, "lam": LAM}))
    ledger.fill({"whitened_advantages": masked_whiten(ledger["advantages"], mask)})
    ledger.fill(compute_policy_loss(old, old, ledger["whitened_advantages"], mask).columns)
    ledger.fill(compute_value_loss(ledger["values"], ledger["returns"], ledger["values"], mask).columns)
    return ledger


def show(console: Console, lang: str) -> None:
    """Prints both tables, the reading of them, and how far they are from the float64 twin."""
    text, ledger = TEXT[lang], worked_ledger()
    twin = reference.gae(ledger["rewards"].tolist(), [list(VALUES)], [[1] * len(TOKENS)], GAMMA, LAM)
    error = max(abs(a - b) for a, b in zip(ledger["advantages"][0].tolist(), twin.advantages[0], strict=True))
    credit, update = (
        account_table(TOKENS, {name: ledger[name][0].tolist() for name in names}, title=text[title])
        for title, names in (
            ("credit", ("scores", "kl", "rewards", "values", "deltas", "advantages", "returns")),
            ("update", ("whitened_advantages", "ratio", "policy_loss", "values", "returns", "value_loss")),
        )
    )
    reading = text["read"].format(first=ledger["advantages"][0, 0].item())
    console.print(Rule(text["title"]), credit, update, f"{reading}\n{text['check']}: {error:.1e}")
