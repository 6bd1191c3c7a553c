"""Sums of a few single numbers, each by one formula: what is given, what is put in, what comes out."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from mingce.algorithms import reference
from mingce.base.numbers import number as shown
from mingce.explain.answer import Answer
from mingce.explain.sums import rows
from mingce.explain.sums.lists import UNNAMED, numbers_after
from mingce.specs.estimators import discounted_sum

if TYPE_CHECKING:
    from mingce.explain.sums.answers import Asked

CLIP, WIDER, MOST = 0.2, 0.28, 4
CHANCE = re.compile(r"概率|\b(?:prob\w*|likelihood)\b", re.IGNORECASE)
"""What says that a share is a token's probability."""
WHOLE = 0.02
"""How far from 1 a distribution's sum may be."""
_SHARE = re.compile(r"(?<![\d.\w])(0?\.\d+|\d+(?:\.\d+)?\s*%)")
_LIKELY = re.compile(r"概率|分布|把握|选项|\b(?:prob\w*|p|distribution|choice|token|mass|sure)\b", re.IGNORECASE)
_WHY = re.compile(r"\bwhy\b|为什么|为啥|为何", re.IGNORECASE)
_APART = re.compile(
    r"t\s?\+|之前|之外|以前|往前|向前|距离|相距|相隔|隔|之后|后面|\b(?:after|away|before|earlier|later|apart|back|further|ahead)\b",
    re.IGNORECASE,
)


def returns(asked: Asked) -> Answer | None:
    """The discounted sums of rewards alone."""
    rewards = asked.lists.get("rewards") or (asked.lists.get(UNNAMED) if asked.says("discounted") else None)
    alone = "gamma" in asked.settings and not asked.methods and not asked.says("group", "whiten")
    if rewards is None or len(asked.lists) != 1 or not (alone or asked.says("returns", "discounted")):
        return None
    gamma = asked.settings.get("gamma", 1.0)
    if not 0 <= gamma <= 1:
        return None
    back = discounted_sum(rewards, gamma)
    lines = [f"G_{len(back) - 1} = r_{len(back) - 1} = {shown(rewards[-1])}"]
    lines += [
        f"G_{t} = {shown(rewards[t])} + {shown(gamma)}·{rows.bracketed(back[t + 1])} = {shown(back[t])}"
        for t in range(len(back) - 2, -1, -1)
    ]
    asked.code.append("mingce.algorithms.advantage.gae")
    return asked.answer("sum_returns", lines[: rows.SHOWN], gamma=shown(gamma), rows=rows.listed(back))


def entropy(asked: Asked) -> Answer | None:
    """Of a distribution that is typed in, or of equal chances."""
    if not asked.says("entropy"):
        return None
    row = asked.lists.get("probabilities") or asked.lists.get(UNNAMED)
    lines, said = [], []
    if row and min(row) >= 0 and abs(math.fsum(row) - 1) <= WHOLE:
        value = reference.entropy([math.log(p) if p > 0 else -math.inf for p in row])
        terms = " + ".join(f"{shown(p)}·{shown(-math.log(p))}" for p in row[:16] if p > 0)
        lines.append(f"H = −Σ p·ln p = {terms} = {shown(value)}")
        said.append(f"H = {shown(value)}")
    count = asked.counts.get("choices", asked.counts.get("steps"))
    if count and count >= 1 and asked.says("equal_chances"):
        lines.append(f"ln {shown(count)} = {shown(math.log(count))}")
        said.append(f"ln {shown(count)} = {shown(math.log(count))}")
    likely = not row and _LIKELY.search(asked.text) is not None
    sure = [_share(text) for text in _SHARE.findall(asked.text)] if likely else []
    for p in [p for p in sure if 0.5 <= p < 1][:1]:
        least = -p * math.log(p) - (1 - p) * math.log(1 - p)
        lines.append(f"−{shown(p)}·ln {shown(p)} − {shown(1 - p)}·ln {shown(1 - p)} = {shown(least)}")
        said.append(asked.text_of("sum_entropy_sure", p=shown(p), least=shown(least)))
    if not lines:
        return None
    asked.code.append("mingce.algorithms.losses.entropy_from_logits")
    return asked.answer("sum_entropy", lines, rows="; ".join(said))


def _share(text: str) -> float:
    return float(text.rstrip("% ")) / (100 if "%" in text else 1)


def adaptive(asked: Asked) -> Answer | None:
    """The next β of the adaptive KL controller."""
    counts, beta = asked.counts, asked.settings.get("beta", asked.counts.get("coefficient"))
    target, kl = counts.get("target"), counts.get("measured", asked.scalars.get("kl"))
    if beta is None or not target or kl is None or not asked.says("adaptive"):
        return None
    horizon, n = counts.get("horizon", 10_000.0), counts.get("controlled", counts.get("batch", counts.get("steps")))
    if horizon < 1 or target <= 0 or (n is not None and n < 1):
        return None
    if n is None:
        error = min(max(kl / target - 1, -0.2), 0.2)
        line = f"error = clip({shown(kl)}/{shown(target)} − 1, −0.2, 0.2) = {shown(error)}"
        return asked.answer("sum_adaptive_no_n", [line], error=shown(error), before=shown(beta), horizon=shown(horizon))
    after = reference.adaptive_kl(beta, kl, target, int(horizon), int(n))
    error = min(max(kl / target - 1, -0.2), 0.2)
    lines = [
        f"error = clip({shown(kl)}/{shown(target)} − 1, −0.2, 0.2) = clip({shown(kl / target - 1)}, −0.2, 0.2) "
        f"= {shown(error)}",
        f"β' = {shown(beta)}·(1 + {rows.bracketed(error)}·{shown(n)}/{shown(horizon)}) = {after:.6g}",
    ]
    asked.code.append("mingce.algorithms.kl.AdaptiveKLController")
    return asked.answer("sum_adaptive", lines, beta=f"{after:.6g}", before=shown(beta), horizon=shown(horizon))


def overlong(asked: Asked) -> Answer | None:
    """DAPO's soft penalty of an answer near the limit."""
    most, buffer = asked.counts.get("most"), asked.counts.get("buffer")
    length = asked.counts.get("length", asked.counts.get("steps"))
    if not most or not buffer or length is None or buffer > most or not asked.says("overlong"):
        return None
    start = most - buffer
    free = (start - length) / buffer
    penalty = max(min(free, 0.0), -1.0)
    lines = [
        f"L_max − L_buffer = {shown(most)} − {shown(buffer)} = {shown(start)}",
        f"({shown(start)} − {shown(length)})/{shown(buffer)} = {shown(free)}",
        f"max(min({shown(free)}, 0), −1) = {shown(penalty)}",
    ]
    return asked.answer("sum_overlong", lines, penalty=shown(penalty), start=shown(start), most=shown(most))


def updates(asked: Asked) -> Answer | None:
    """How often the parameters are updated in a step, with how many answers, in how many micro-batches."""
    counts = asked.counts
    batch, mini, parts = counts.get("batch"), counts.get("mini_batch"), counts.get("mini_batches")
    micro = counts.get("micro_batch") if asked.says("micro") else None
    if not ((batch and mini) or parts or (mini and micro)) or not asked.says("updates", "micro", "how_many"):
        return None
    epochs, n, gpus, lines = counts.get("epochs", 1.0), counts.get("samples", 1.0), counts.get("gpus", 1.0), []
    times = int(parts or 1)
    if batch and mini:
        times = math.ceil(batch / mini)
        lines = [f"⌈{shown(batch)}/{shown(mini)}⌉ = {times}"]
    lines.append(f"{times}·{shown(epochs)} = {shown(times * epochs)}")
    if n > 1 and batch and mini:
        lines.append(f"{shown(batch)}·{shown(n)} = {shown(batch * n)};  {shown(mini)}·{shown(n)} = {shown(mini * n)}")
    said = {"times": str(times), "epochs": shown(epochs), "updates": shown(times * epochs)}
    if mini and micro and gpus >= 1:
        steps = math.ceil(mini * n / gpus / micro)
        each = f"{shown(mini)}·{shown(n)}/{shown(gpus)} = {shown(mini * n / gpus)}"
        lines.append(f"{each};  {shown(mini * n / gpus)}/{shown(micro)} = {steps}")
        rest = {"steps": str(steps), "answers": shown(mini * n), "gpus": shown(gpus), "micro": shown(micro)}
        return asked.plain(asked.text_of("sum_micro", **said, **rest), lines)
    if mini and asked.earlier is not None and asked.says("answers_each"):
        line = f"{shown(mini)}·{shown(n)} = {shown(mini * n)}"
        return asked.answer("sum_answers_each", [line], mini=shown(mini), n=shown(n), answers=shown(mini * n))
    if mini and n > 1:
        total = (batch or mini * times) * n
        rest = {"answers": shown(mini * n), "n": shown(n), "mini": shown(mini), "total": shown(total)}
        return asked.plain(asked.text_of("sum_updates_of", **said, **rest), lines)
    return asked.plain(asked.text_of("sum_updates", **said), lines)


def decay(asked: Asked) -> Answer | None:
    """What is left of a reward or a surprise so many tokens further on, and how far it reaches."""
    given = {name: asked.settings[name] for name in ("gamma", "lam") if name in asked.settings}
    if not given or asked.lists or not asked.says("decays", "horizon"):
        return None
    gamma, lam = given.get("gamma", 1.0), given.get("lam", 1.0)
    both, steps = gamma * lam, _steps(asked)
    if not (0 <= gamma <= 1 and 0 <= lam <= 1) or _WHY.search(asked.text):
        return None
    lines, said = [], []
    apart = _APART.search(asked.text) is not None or "apart" in asked.counts
    for n in steps if asked.says("decays") else ():
        asked.counts |= {"apart": 1.0} if apart else {}
        k = n - (0 if apart else 1)
        lines.append(f"γ^{k} = {shown(gamma)}^{k} = {rows.fine(gamma**k)}")
        if lam != 1:
            lines.append(f"(γλ)^{k} = {shown(both)}^{k} = {rows.fine(both**k)}")
        key = "hand_decay" if lam == 1 else "hand_decay_both"
        said.append(asked.text_of(key, steps=k, left=rows.fine(gamma**k), both=rows.fine(both**k)))
        surprise = asked.counts.get("surprise", 1.0)
        if surprise != 1:
            lines.append(
                f"(γλ)^{k}·δ = {rows.fine(both**k)}·{rows.bracketed(surprise)} = {rows.fine(both**k * surprise)}"
            )
            said.append(asked.text_of("sum_surprise", delta=shown(surprise), reached=rows.fine(both**k * surprise)))
    others = [gamma * x for x in map(_share, _SHARE.findall(asked.text)) if "lam" in given and 0 < x < 1]
    others = [] if said else others
    for decayed in dict.fromkeys([both, *others]) if asked.says("horizon") else ():
        if decayed < 1:
            reach = round(1 / (1 - decayed))
            lines.append(f"1/(1 − γλ) = 1/(1 − {shown(decayed)}) = {shown(1 / (1 - decayed))}")
            lines.append(f"{shown(decayed)}^{reach} = {shown(decayed**reach)}")
            left = {"reach": shown(1 / (1 - decayed)), "k": reach, "left": shown(decayed**reach)}
            said.append(asked.text_of("sum_horizon", **left))
    if not said:
        return None
    asked.code.append("mingce.algorithms.advantage.gae")
    return asked.plain("\n\n".join(said), lines)


def _steps(asked: Asked) -> list[int]:
    """The numbers of tokens that are spoken of, at least 2; the last sum's if none is."""
    said = [int(n) for n in numbers_after(asked.text, "counts").get("steps", []) if 2 <= n <= rows.LONGEST_ROW]
    return list(dict.fromkeys(said))[:MOST] or [int(n) for n in [asked.counts.get("steps", 0.0)] if n >= 2]


def limit(asked: Asked) -> Answer | None:
    """Up to which probability a positive advantage pushes a token before the clip stops it."""
    several = len(_SHARE.findall(asked.text)) > 1 and CHANCE.search(asked.text)
    if not asked.says("clipping") or not (asked.says("limit") or several):
        return None
    if asked.lists or "advantages" in asked.scalars:
        return None
    eps = asked.settings.get("clip", CLIP)
    shares = [_share(text) for text in _SHARE.findall(asked.text)]
    chances = [p for p in dict.fromkeys(shares) if 0 < p < 1 and p != eps]
    if not chances or not 0 < eps < 1 or not re.search(r"概率|prob|token", asked.text, re.IGNORECASE):
        return None
    if asked.says("higher"):
        return _limits(asked, chances, (eps, WIDER))
    lines = [
        f"{shown(p)}·(1 + {shown(eps)}) = {shown(p * (1 + eps))}{' > 1' if p * (1 + eps) > 1 else ''};  "
        f"{shown(p)}·(1 − {shown(eps)}) = {shown(p * (1 - eps))}"
        for p in chances
    ]
    said = ", ".join(f"{shown(p)} → {shown(p * (1 + eps))}" for p in chances)
    asked.code.append("mingce.algorithms.losses.ppo_loss")
    return asked.answer("sum_limit", lines, rows=said, eps=shown(eps))


def _limits(asked: Asked, chances: list[float], ranges: tuple[float, float]) -> Answer:
    """The probabilities at which the usual and the wider upper bound stop a token."""
    lines = [
        f"{shown(p)}·(1 + {shown(eps)}) = {shown(p * (1 + eps))}{' > 1' if p * (1 + eps) > 1 else ''}"
        for p in chances
        for eps in ranges
    ]
    above = asked.text_of("limit_above")
    said = [
        f"p = {shown(p)}: "
        + ", ".join(f"ε = {shown(eps)} → {shown(p * (1 + eps)) if p * (1 + eps) <= 1 else above}" for eps in ranges)
        for p in chances
    ]
    asked.code.append("mingce.algorithms.losses.ppo_loss")
    return asked.answer("sum_limits", lines, rows="; ".join(said))
