"""What the KL of an answer costs: per token, times β, off the score; told bit by bit over a dialogue."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mingce.base.numbers import number as shown
from mingce.base.texts import sentence
from mingce.explain.answer import Answer
from mingce.explain.code_refs import resolve

USUAL, HIGH = 0.05, 0.1
"""Per token: up to where a KL is common, and from where the policy has drifted far."""
LONGEST = 300
_NUMBER = r"(\d+(?:\.\d+)?|\.\d+)(?![\d%])"
_FACTS = {
    "kl": re.compile(
        r"(?<!target )(?<!target_)(?<![A-Za-z])KL(?:\s*(?:散度|总和|之和|sum|total|divergence))?\s*"
        rf"(?:=|is|was|of|reached|at|(?:现在|目前|已经)?(?:是|为|到了?|涨到了?|有))?\s*(?:now|about|around|~|≈|大约|约)?\s*{_NUMBER}",
        re.IGNORECASE,
    ),
    "tokens": re.compile(
        rf"(?:~|≈|about|around|roughly|of|大约|约|平均)?\s*{_NUMBER}\s*(?:个\s*)?(?:tokens?|词)(?![a-z])", re.IGNORECASE
    ),
    "beta": re.compile(
        r"(?<![A-Za-z])(?:β|beta|(?:kl[_ -]?)?coef(?:f|ficient)?|(?:KL\s*)?系数)"
        rf"\s*(?:=|is|was|of|to|at|是|为|取|用|[降减调改]到|[降减调改]成)?\s*{_NUMBER}",
        re.IGNORECASE,
    ),
    "score": re.compile(
        r"(?<![A-Za-z])(?:scores?|得分|分数|打分)\s*(?:avg|average|mean|平均)?\s*(?:=|is|was|of|是|为|有)?\s*"
        rf"(?:about|around|~|大约|约)?\s*{_NUMBER}",
        re.IGNORECASE,
    ),
}  # fmt: skip
_EACH = re.compile(r"per[ -]?token|a token|每个?\s*(?:token|词)|逐\s*token", re.IGNORECASE)
_ASKS = re.compile(
    r"summ?ed|in total|whole answer|how much|how many|\bnet\b|\beat|\bcost|\btake|deduct|\bfine\b|left|what|"
    r"整条|合计|求和|一共|多少|净|吃掉|扣|剩|没事|行了|[?？]",
    re.IGNORECASE,
)


def kl_facts(text: str) -> dict[str, float]:
    """The KL, the answer's length, β and the score that a text tells."""
    if len(text) > LONGEST or "[" in text or "```" in text:
        return {}
    found = {name: float(match[1]) for name, pattern in _FACTS.items() if (match := pattern.search(text))}
    if "kl" in found and _EACH.search(text):
        found["each"] = found.pop("kl")
    return found


def kl_budget(text: str, told: Mapping[str, float], lang: str) -> Answer | None:
    """What follows from what was told before and now; None if the KL or anything new is missing."""
    fresh = kl_facts(text)
    known = {**told, **fresh}
    if not fresh or fresh == dict(told) or not _ASKS.search(text) or not {"kl", "each"} & set(known):
        return None
    if len(known) < 2 or known.get("tokens", 2) < 2 or (not told and "tokens" not in fresh):
        return None
    lines, parts = _lines(known, lang, graded="tokens" in fresh or "each" in fresh)
    if not lines:
        return None
    before = told.get("beta")
    if before is not None and "beta" in fresh and 0 < fresh["beta"] < before:
        parts.append(sentence("tutor.budget_looser", lang))
    join = "" if lang == "zh" else " "
    return Answer(lang, join.join(parts), lines=tuple(lines), code=(resolve("mingce.algorithms.kl.kl_rewards"),))


def _lines(known: Mapping[str, float], lang: str, *, graded: bool) -> tuple[list[str], list[str]]:
    lines: list[str] = []
    parts: list[str] = []
    each, total, tokens = known.get("each"), known.get("kl"), known.get("tokens")
    if total is not None and tokens:
        each = total / tokens
        lines.append(f"{shown(total)}/{shown(tokens)} = {shown(each)}")
    elif each is not None and tokens:
        total = each * tokens
        lines.append(f"{shown(each)}·{shown(tokens)} = {shown(total)}")
    if each is not None and graded:
        level = "usual" if each <= USUAL else "high" if each <= HIGH else "far"
        parts.append(sentence(f"tutor.budget_{level}", lang, each=shown(each)))
    beta, score = known.get("beta"), known.get("score")
    if beta is None or total is None:
        return lines, parts
    cost = beta * total
    lines.append(f"β·ΣKL = {shown(beta)}·{shown(total)} = {shown(cost)}")
    parts.insert(0, sentence("tutor.budget_cost", lang, cost=shown(cost)))
    if each is not None:
        lines.append(f"β·KL = {shown(beta)}·{shown(each)} = {shown(beta * each)}")
    if score is not None:
        lines.append(f"{shown(score)} − {shown(cost)} = {shown(score - cost)}")
        parts.insert(0, sentence("tutor.budget_net", lang, net=shown(score - cost)))
    return lines, parts
