"""The seeds' worked example, 请问1+1=2？ → 是的，等于2！, through the real functions."""

from __future__ import annotations

import torch
from rich.console import Console
from rich.rule import Rule

from mingce.algorithms import reference
from mingce.algorithms.kl import kl_rewards
from mingce.algorithms.losses import ppo_loss, value_loss
from mingce.algorithms.masking import masked_whiten
from mingce.base.numbers import number
from mingce.base.texts import sentence
from mingce.credit import credit_columns
from mingce.explain.account_table import account_table
from mingce.explain.example import BETA, GAMMA, KL, LAM, OLD_LOG_PROBS, PROMPT, SCORES, TOKENS, VALUES
from mingce.ledger import Ledger
from mingce.specs import find_estimator
from mingce.specs.estimators import GAE


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
    ledger.fill(ppo_loss(old, old, ledger["whitened_advantages"], mask).columns)
    ledger.fill(value_loss(ledger["values"], ledger["returns"], ledger["values"], mask).columns)
    return ledger


def show(console: Console, lang: str) -> None:
    """Prints both tables, the reading of them, and how far they are from the float64 twin."""
    ledger = worked_ledger()
    twin = reference.gae(ledger["rewards"].tolist(), [list(VALUES)], [[1] * len(TOKENS)], GAMMA, LAM)
    error = max(abs(a - b) for a, b in zip(ledger["advantages"][0].tolist(), twin.advantages[0], strict=True))
    parts = {
        "tutor.worked_credit": ("scores", "kl", "rewards", "values", "deltas", "advantages", "returns"),
        "tutor.worked_update": ("whitened_advantages", "ratio", "policy_loss", "values", "returns", "value_loss"),
    }
    credit, update = (
        account_table(TOKENS, {name: ledger[name][0].tolist() for name in names}, title=sentence(key, lang))
        for key, names in parts.items()
    )
    pair = f"{PROMPT} → {''.join(TOKENS)}"
    title = sentence("tutor.worked_title", lang, pair=pair, beta=number(BETA), gamma=number(GAMMA), lam=number(LAM))
    reading = sentence("tutor.worked_read", lang, first=number(ledger["advantages"][0, 0].item()))
    console.print(Rule(title), credit, update, f"{reading}\n{sentence('tutor.worked_check', lang)}: {error:.1e}")
