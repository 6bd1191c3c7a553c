"""Sums of typed rows of one answer: the critic's targets, n-step advantages, KL of two distributions."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from mingce.base.numbers import number as shown
from mingce.explain.answer import Answer
from mingce.explain.question.scalars import read_final_reward
from mingce.explain.sums import rows
from mingce.explain.sums.lists import lists_in_order, numbers_after
from mingce.specs.estimators import n_step

if TYPE_CHECKING:
    from mingce.explain.sums.answers import Asked

WHOLE, LONGEST, FEW = 0.02, 64, 8
_WHITENED = re.compile(
    r"(?<!un)(?<!before being )whitened adv|after (?:being )?whiten|normali[sz]ed adv|"
    r"(?:白化|标准化|归一化)(?:后|过|之后|以后)",
    re.IGNORECASE,
)


def targets(asked: Asked) -> Answer | None:
    """The returns A + V that the critic is trained towards."""
    advantages, values = asked.lists.get("advantages"), asked.lists.get("values")
    if advantages is None or values is None or set(asked.lists) != {"advantages", "values"}:
        return None
    if not asked.says("targets", "returns"):
        return None
    if len(advantages) != len(values):
        return asked.answer("sum_targets_lengths", [], advantages=len(advantages), values=len(values))
    if _WHITENED.search(asked.text):
        return asked.answer("sum_targets_whitened", [])
    back = [rows.clean(a + b) for a, b in zip(advantages, values, strict=True)]
    lines = [
        f"R_{t} = {shown(a)} + {rows.bracketed(b)} = {shown(c)}"
        for t, (a, b, c) in enumerate(zip(advantages, values, back, strict=True))
    ]
    asked.code.append("mingce.algorithms.advantage.gae")
    return asked.answer("sum_targets", lines[:LONGEST], rows=rows.listed(back))


def from_deltas(asked: Asked) -> Answer | None:
    """GAE's advantages from the TD errors alone."""
    deltas = asked.lists.get("deltas")
    if deltas is None or set(asked.lists) != {"deltas"} or not (asked.says("advantage") or "lam" in asked.settings):
        return None
    decay = asked.counts.get("product", asked.settings.get("lam"))
    if decay is None:
        return asked.answer("sum_deltas_no_lam", []) if asked.says("wanted") else None
    if "product" not in asked.counts:
        decay *= asked.settings.get("gamma", 1.0)
    credit, lines = 0.0, []
    row: list[float] = []
    for t in range(len(deltas) - 1, -1, -1):
        after = f" + {shown(decay)}·{rows.bracketed(credit)}" if row else ""
        credit = deltas[t] + decay * credit
        row.insert(0, credit)
        lines.append(f"A_{t} = {shown(deltas[t])}{after} = {shown(credit)}")
    lines = [
        *lines[:LONGEST],
        f"Σδ = {shown(rows.clean(math.fsum(deltas)))};  ΣA = {shown(rows.clean(math.fsum(row)))}",
    ]
    asked.code.append("mingce.algorithms.advantage.gae")
    return asked.answer("sum_deltas", lines, decay=shown(decay), rows=rows.listed(row))


def from_kl(asked: Asked) -> Answer | None:
    """The rewards of each token from its KL, β and the answer's score."""
    kl, beta, score = asked.lists.get("kls"), asked.settings.get("beta"), read_final_reward(asked.text)
    score = asked.scalars.get("scores") if score is None else score
    if kl is None or set(asked.lists) != {"kls"} or not asked.says("rewards"):
        return None
    if beta is None:
        return asked.answer("sum_kl_no_beta", []) if asked.says("wanted") else None
    scores = [0.0] * (len(kl) - 1) + [0.0 if score is None else score]
    row = [rows.clean(a - beta * b) for a, b in zip(scores, kl, strict=True)]
    lines = [
        f"r_{t} = {shown(a)} − {shown(beta)}·{rows.bracketed(b)} = {shown(r)}"
        for t, (a, b, r) in enumerate(zip(scores, kl, row, strict=True))
    ]
    lines = [*lines[:LONGEST], *rows.cost_lines(beta, kl, row)]
    asked.code.append("mingce.algorithms.kl.kl_rewards")
    key = "sum_kl_rewards_unscored" if score is None else "sum_kl_rewards"
    return asked.answer(key, lines, kind="k", beta=shown(beta), rows=rows.listed(row))


def several_steps(asked: Asked) -> Answer | None:
    """Advantages over n steps; TD(0) is one step."""
    rewards, values = asked.lists.get("rewards"), asked.lists.get("values")
    if rewards is None or values is None or len(rewards) != len(values) or "lam" in asked.settings:
        return None
    said = {int(n) for n in numbers_after(asked.text, "counts").get("step_count", []) if n >= 1}
    if asked.says("one_step"):
        said.add(1)
    if len(said) != 1 or not asked.says("several_steps", "one_step"):
        return None
    n, gamma = said.pop(), asked.settings.get("gamma", 1.0)
    credit = n_step([rewards], [values], [[1] * len(rewards)], gamma, n).advantages[0]
    lines = []
    for t, advantage in enumerate(credit):
        last = min(t + n, len(rewards))
        parts = [f"{_power(gamma, k - t)}{rows.bracketed(rewards[k])}" for k in range(t, last)][:FEW]
        ahead = f" + {_power(gamma, last - t)}{rows.bracketed(values[last])}" if last < len(values) else ""
        lines.append(
            f"A_{t} = {' + '.join(parts)}{ahead} − {rows.bracketed(values[t])} = {shown(rows.clean(advantage))}"
        )
    asked.code.append("mingce.algorithms.advantage.gae")
    row = rows.listed([rows.clean(x) for x in credit])
    return asked.answer("sum_n_step", lines[:LONGEST], n=n, gamma=shown(gamma), rows=row)


def _power(gamma: float, k: int) -> str:
    return "" if k == 0 or gamma == 1 else f"{shown(gamma)}·" if k == 1 else f"{shown(gamma)}^{k}·"


def divergence(asked: Asked) -> Answer | None:
    """KL of two distributions that are typed in, both ways."""
    if not asked.says("divergence"):
        return None
    both = [row for _, row in lists_in_order(asked.text) if min(row) >= 0 and abs(math.fsum(row) - 1) <= WHOLE]
    if len(both) != 2 or len(both[0]) != len(both[1]):
        return None
    lines, found = [], []
    for name, p, q in (("KL(P‖Q)", both[0], both[1]), ("KL(Q‖P)", both[1], both[0])):
        if any(a > 0 and b == 0 for a, b in zip(p, q, strict=True)):
            lines.append(f"{name} = ∞")
            found.append("∞")
            continue
        value = rows.clean(math.fsum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0))
        terms = " + ".join(f"{shown(a)}·ln({shown(a)}/{shown(b)})" for a, b in zip(p, q, strict=True) if a > 0)
        lines.append(f"{name} = {terms} = {shown(value)}")
        found.append(shown(value))
    asked.code.append("mingce.specs.kl.kl_penalty")
    given = {"p": rows.listed(both[0]), "q": rows.listed(both[1])}
    return asked.plain(asked.text_of("sum_divergence", **given, there=found[0], back=found[1]), lines)
