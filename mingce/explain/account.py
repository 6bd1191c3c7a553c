"""One token's account with its own numbers: recomputed in float64 by the twins and held against what the ledger says.

`account(rollout, t, "engineer", "zh")` takes a rollout as the page gets it (mingce.view.api.Api.rollout) and gives a
list of {id, title, formula, substituted, meaning, recorded, computed, agrees}. Where ledger and twin agree the ledger's
number is shown; where they do not, the twin's is, and `agrees` is False.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from mingce.algorithms import reference
from mingce.base.numbers import number as shown
from mingce.explain.account_texts import LEVELS, SECTIONS, Section
from mingce.explain.recomputed import filled, recompute

TOLERANCE = 2e-5
SMALL = 0.0005
STATE_END = 12
RESULTS = {  # which number a section arrives at, and the column that records it
    "kl": ("kl", "kl"),
    "reward": ("reward", "rewards"),
    "delta": ("delta", "deltas"),
    "advantage": ("advantage", "advantages"),
    "return": ("return", "returns"),
    "whitening": ("whitened", "whitened_advantages"),
    "ratio": ("ratio", "ratio"),
    "policy": ("policy_loss", "policy_loss"),
    "value_loss": ("value_loss", "value_loss"),
}
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_OPERATORS = "+−·/"
Values = dict[str, Any]


def account(rollout: Mapping[str, Any], t: int, level: str, lang: str) -> list[dict[str, Any]]:
    """The account of token t at one of LEVELS in zh or en."""
    assert level in LEVELS, level
    assert lang in ("zh", "en"), lang
    values, recorded = token_values(rollout, t)
    which, language = LEVELS.index(level), 0 if lang == "zh" else 1
    found = []
    for section in SECTIONS:
        if not applies(section, rollout, values):
            continue
        name, column = RESULTS.get(section.id, ("", ""))
        here = recorded.get(column)
        words = section.words[which][language]
        case = section.cases.get(case_of(section.case_of, rollout, t, values) or "")
        if case:
            words += (" " if lang == "en" else "") + case[language]
        found.append(
            {
                "id": section.id,
                "title": section.title[language],
                "formula": section.formula,
                "substituted": substituted(section.numbers, values, formula=True),
                "meaning": substituted(words, values, plain=level == "child"),
                "recorded": here,
                "computed": values.get(f"computed_{name}", values.get(name)) if name else None,
                "agrees": values.get(f"agrees_{name}", True) if name else True,
            }
        )
    return found


def applies(section: Section, rollout: Mapping[str, Any], values: Values) -> bool:
    """Whether a section is about this token of this rollout."""
    if (section.id == "not_chosen") != (not values["chosen"]):
        return False
    settings = rollout["settings"]
    if section.estimators is not None and settings.get("estimator") not in section.estimators:
        return False
    if section.losses is not None and (settings.get("policy_loss") or "ppo") not in section.losses:
        return False
    return all(values.get(name) is not None for name in section.needs) and all(
        values.get(name) is None for name in section.lacks
    )


def case_of(rule: str | None, rollout: Mapping[str, Any], t: int, values: Values) -> str | None:
    """Which of a section's cases this token is."""
    columns = rollout["columns"]
    if rule is None:
        return None
    if rule == "end":
        if values["next_token"] is not None:
            return "inside"
        return "bootstrapped" if rollout.get("bootstrap") else "ended"
    if rule == "policy":
        return "dual" if _at(columns, "dual_clipped", t) else "clipped" if _at(columns, "clipped", t) else "free"
    if rule == "value":
        return "clipped" if _at(columns, "value_clipped", t) else "free"
    if rule == "ratio":
        gap = values["ratio"] - 1
        return "same" if abs(gap) < SMALL else "up" if gap > 0 else "down"
    number = values[rule]
    return "zero" if abs(number) < SMALL else "positive" if number > 0 else "negative"


# ── the numbers ──────────────────────────────────────────────────────────────────────────────────────────────────────


def token_values(rollout: Mapping[str, Any], t: int) -> tuple[Values, dict[str, float | None]]:
    """What stands for each placeholder at token t (None where it is not known), and what the ledger records."""
    columns, settings, whitening = rollout["columns"], rollout["settings"], rollout.get("whitening") or {}
    mask = columns["response_mask"]
    slots = reference.chosen(mask)
    texts = _glyph_texts(rollout["tokens"])
    recorded = {name: _at(columns, name, t) for name in columns}
    values: Values = {"t": t, "T": len(mask), "chosen": t in slots, "token": texts[t], "next_token": None}
    before = rollout.get("prompt", "") + "".join(token["text"] for token in rollout["tokens"][:t])
    values["state_end"] = before[-STATE_END:].replace("\n", "↵")
    if t not in slots:
        return values, recorded
    place = slots.index(t)
    following = slots[place + 1] if place + 1 < len(slots) else None
    values |= {name: settings.get(name) for name in _SETTINGS}
    values |= {name: recorded.get(column) for name, column in _INPUTS.items()}
    values |= {
        "chosen_left": len(slots) - place - 1,
        "next_token": None if following is None else texts[following],
        "uid": rollout.get("uid"),
        "bootstrap": rollout.get("bootstrap", 0.0),
        "mean": whitening.get("mean"),
        "count": whitening.get("count"),
    }
    _kl_and_reward(values, settings)
    _credit(values, rollout, t, following)
    if recorded.get("whitened_advantages") is not None and whitening:
        spread = math.sqrt(whitening["variance"] + whitening["epsilon"])
        raw = recorded["advantages"]
        if raw is not None:
            values["std"] = spread
            values["whitened"] = (raw - whitening["mean"]) / spread if whitening["variance"] > 0 else 0.0
    used = recorded.get("whitened_advantages")
    values["used"] = recorded.get("advantages") if used is None else used
    _losses(values, rollout, t)
    for name, column in RESULTS.values():
        _settle(values, name, recorded.get(column))
    return values, recorded


_SETTINGS = (
    "beta", "gamma", "lam", "n", "k", "kl_estimator", "clip_low", "clip_high", "dual_clip", "value_clip",
)  # fmt: skip
_INPUTS = {
    "score": "scores",
    "value": "values",
    "entropy": "entropy",
    "rollout_log_prob": "rollout_log_probs",
    "old_log_prob": "old_log_probs",
    "ref_log_prob": "ref_log_probs",
    "new_log_prob": "new_log_probs",
    "new_value": "new_values",
    "kl": "kl",
    "reward": "rewards",
}


def _kl_and_reward(values: Values, settings: Mapping[str, Any]) -> None:
    old, ref = values["old_log_prob"], values["ref_log_prob"]
    estimator = settings.get("kl_estimator")
    if values["kl"] is not None and old is not None and ref is not None and estimator not in (None, "full"):
        values["computed_kl"] = reference.kl_penalty(old, ref, estimator, settings.get("kl_clamp"))
    if values["score"] is not None and values["reward"] is not None:
        kl, beta = values["kl"], values["beta"]
        if kl is not None and beta is not None:
            values["computed_reward"] = reference.kl_rewards([[values["score"]]], [[kl]], [[1]], beta)[0][0]
        elif kl is None:
            values["computed_reward"] = values["score"]


def _credit(values: Values, rollout: Mapping[str, Any], t: int, following: int | None) -> None:
    """δ, A, R and what they are made of, by the estimator's definition over the whole row or group."""
    columns, settings = rollout["columns"], rollout["settings"]
    gamma, lam, critic = settings.get("gamma"), settings.get("lam"), filled(columns.get("values"))
    credit = recompute(rollout)
    if "rewards" not in columns:
        return
    slots = reference.chosen(columns["response_mask"])
    rewards = filled(columns["rewards"]) or []
    values["own"] = values["total"] = math.fsum(rewards[s] for s in slots)
    if gamma is not None and lam is not None:
        values["gamma_lam"] = gamma * lam
    if credit.deltas is not None:
        values["delta"] = credit.deltas[t]
        values["next_value"] = (
            float(rollout.get("bootstrap") or 0.0) if following is None else (critic or [])[following]
        )
    if credit.advantages is None:
        return
    values["advantage"] = credit.advantages[t]
    values["next_advantage"] = 0.0 if following is None else credit.advantages[following]
    values["return"] = None if credit.returns is None else credit.returns[t]
    values["baseline"] = values["own"] - credit.advantages[t]
    values["share"] = credit.advantages[t] / values["own"] if values["own"] else 1.0 / len(slots)
    values |= credit.group


def _losses(values: Values, rollout: Mapping[str, Any], t: int) -> None:
    old, new, used = values["old_log_prob"], values["new_log_prob"], values["used"]
    low, high = values["clip_low"], values["clip_high"]
    if old is not None and new is not None:
        values["log_ratio"] = new - old
        values["ratio"] = reference.policy_term(old, new, 0.0).ratio
        row = recompute(rollout)
        values["sequence_ratio"] = row.sequence_ratio
        if used is not None and row.losses is not None:
            values["policy_loss"] = row.losses[t].loss
        if used is not None and low is not None and high is not None:
            values["low_bound"], values["high_bound"] = 1 - low, 1 + high
            values["clipped_ratio"] = min(max(values["ratio"], 1 - low), 1 + high)
            values["plain_term"] = values["ratio"] * used
            values["clipped_term"] = values["clipped_ratio"] * used
    guess, target, value, reach = values["new_value"], values.get("return"), values["value"], values["value_clip"]
    if guess is not None and target is not None and value is not None:
        values["value_loss"] = reference.value_term(guess, target, value, reach).loss
        values["plain_square"] = (guess - target) ** 2
        if reach is not None:
            values["near_value"] = min(max(guess, value - reach), value + reach)
            values["clipped_square"] = (values["near_value"] - target) ** 2


def _settle(values: Values, name: str, recorded: float | None) -> None:
    """The ledger's number where the twin agrees with it, the twin's otherwise."""
    computed = values.get(f"computed_{name}", values.get(name))
    values[f"computed_{name}"] = computed
    if computed is None or recorded is None:
        values[name] = recorded if computed is None else computed
        return
    agrees = abs(computed - recorded) <= TOLERANCE * max(1.0, abs(recorded))
    values[f"agrees_{name}"] = agrees
    values[name] = recorded if agrees else computed


def _at(columns: Mapping[str, Any], name: str, t: int) -> float | None:
    column = columns.get(name)
    found: float | None = None if column is None else column[t]
    return found


def _glyph_texts(tokens: Sequence[Mapping[str, Any]]) -> list[str]:
    """Every token's text; the pieces of one character all read as that character."""
    by_glyph: dict[int, str] = {}
    for token in tokens:
        by_glyph[token["glyph"]] = by_glyph.get(token["glyph"], "") + token["text"]
    return [by_glyph[token["glyph"]].replace("\n", "↵") for token in tokens]


# ── writing them ─────────────────────────────────────────────────────────────────────────────────────────────────────


def substituted(template: str, values: Values, *, formula: bool = False, plain: bool = False) -> str:
    """The template with its values; in a formula a negative number after an operator stands in parentheses.

    `plain` spares the reader powers of ten: what is very small reads 0.
    """

    def put(found: re.Match[str]) -> str:
        if found[1] not in values:
            return found[0]
        value = values[found[1]]
        text = value if isinstance(value, str) else shown(value, powers=not plain)
        before = template[: found.start()].rstrip()
        if formula and text.startswith("−") and before and before[-1] in _OPERATORS:
            return f"({text})"
        return text

    return _PLACEHOLDER.sub(put, template)
