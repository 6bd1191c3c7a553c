"""The facts of a token's account: every number and text that its formulas and sentences name, and when they apply.

Plain definitions over one row, as the page computes them too (scripts/make_page_specs.py reads them into TypeScript).
`columns` are the row's columns by name with None where there is no number, and `used`: the advantages in the policy
loss. `settings` are those of the account by name. None stands for what is not known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from mingce.specs.estimator import ESTIMATORS
from mingce.specs.estimators import members_of
from mingce.specs.losses import sequence_ratio
from mingce.specs.rows import Column, MaskColumn, chosen

SMALL = 0.0005
"""What is nearer to 0, or a ratio to 1, counts as equal."""
SAME = 0.000001
"""Estimates nearer to each other than this are one number."""
STATE_END = 12
"""How many characters of the text before a token are shown."""

Facts = dict[str, Any]
Settings = Mapping[str, Any]
Columns = Mapping[str, Sequence[Any]]


class Row(NamedTuple):
    """What the tokens of a row share: facts, the next chosen slot of each, how many chosen ones are left behind it."""

    shared: Facts
    following: Sequence[int | None]
    left: Sequence[int | None]


class Applicable(Protocol):
    """What decides whether a section of the account is about a token."""

    @property
    def id(self) -> str: ...
    @property
    def needs(self) -> Sequence[str]: ...
    @property
    def lacks(self) -> Sequence[str]: ...
    @property
    def estimators(self) -> Sequence[str] | None: ...
    @property
    def losses(self) -> Sequence[str] | None: ...


# ── what a whole row shares ──────────────────────────────────────────────────────────────────────────────────────────


def row_of(columns: Columns, settings: Settings, bootstrap: float, whitening: Any, others: Facts) -> Row:
    """The row before its tokens are asked for; `whitening` are the step's moments, `others` what is known besides:
    `group_facts`, and the row's numbers that estimators read.
    """
    mask = columns["response_mask"]
    slots = chosen([bool(m) for m in mask])
    following: list[int | None] = [None] * len(mask)
    left: list[int | None] = [None] * len(mask)
    for place, t in enumerate(slots):
        following[t] = slots[place + 1] if place + 1 < len(slots) else None
        left[t] = len(slots) - place - 1
    rewards, low, high = columns.get("rewards"), settings["clip_low"], settings["clip_high"]
    total = None if rewards is None else math.fsum(or_zero(rewards[t]) for t in slots)
    old, new = columns.get("old_log_probs"), columns.get("new_log_probs")
    known = old is not None and new is not None and len(slots) > 0
    flat = says_one_number(columns.get("values"), slots, bootstrap)
    shared = {
        "T": len(mask),
        "count_chosen": len(slots),
        "own": total,
        "total": total,
        "bootstrap": bootstrap,
        "flat": flat,
        "flat_credit": flat and reads(settings["estimator"], "values"),
        "by_turns": True if reads(settings["estimator"], "turn") else None,
        "beta": settings["beta"],
        "gamma": settings["gamma"],
        "lam": settings["lam"],
        "gamma_lam": product(settings["gamma"], settings["lam"]),
        "n": settings["n"],
        "k": settings["k"],
        "kl_estimator": settings["kl_estimator"],
        "clip_low": low,
        "clip_high": high,
        "low_bound": None if low is None else 1 - low,
        "high_bound": None if high is None else 1 + high,
        "dual_clip": settings["dual_clip"],
        "value_clip": settings["value_clip"],
        "mean": None if whitening is None else whitening.mean,
        "std": None if whitening is None else math.sqrt(whitening.variance + whitening.epsilon),
        "count": None if whitening is None else whitening.count,
        "sequence_ratio": sequence_ratio(without_gaps(old), without_gaps(new), mask) if known else None,
    }
    return Row(shared | others, following, left)


def says_one_number(values: Sequence[float | None] | None, slots: Sequence[int], bootstrap: float) -> bool:
    """Whether the critic says the same of every state of the row, as one with a new head does; two states at least."""
    if values is None or len(slots) < 2 or any(values[t] is None for t in slots):
        return False
    first = or_zero(values[slots[0]])
    others = [or_zero(values[t]) for t in slots] + ([bootstrap] if bootstrap else [])
    return not any(abs(x - first) > SAME for x in others)


def reads(estimator: str | None, column: str) -> bool:
    """Whether the estimator reads a column: `values`, a critic's estimates, or `turn`, a turn being one action."""
    spec = ESTIMATORS.get(estimator or "")
    return spec is not None and column in spec.inputs


def group_facts(rewards: Column, masks: MaskColumn, own: int) -> Facts:
    """How the totals of a prompt's samples look from row `own`; rows without a chosen token do not count."""
    group = members_of(rewards, masks, range(len(masks)))
    size = len(group.totals)
    total = math.fsum(rewards[own][t] for t in chosen(masks[own]))
    return {
        "group_size": size,
        "group_mean": group.mean,
        "group_std": group.std if size > 1 else None,
        "others_mean": (math.fsum(group.totals) - total) / (size - 1) if size > 1 else None,
    }


def no_group() -> Facts:
    """The same where the group is not known."""
    return {"group_size": None, "group_mean": None, "group_std": None, "others_mean": None}


# ── one token ────────────────────────────────────────────────────────────────────────────────────────────────────────


def token_facts(t: int, columns: Columns, row: Row) -> Facts:
    """Everything about token t but its texts, by the names that formulas and sentences use."""
    shared, after = row.shared, row.following[t]
    last = after is None
    value, advantage, target = at(columns, "values", t), at(columns, "advantages", t), at(columns, "returns", t)
    old, new, ratio = at(columns, "old_log_probs", t), at(columns, "new_log_probs", t), at(columns, "ratio", t)
    used, new_value, reach = at(columns, "used", t), at(columns, "new_values", t), shared["value_clip"]
    clipped_ratio = clip(ratio, shared["low_bound"], shared["high_bound"])
    squares = value is not None and new_value is not None and target is not None
    near = new_value if not squares or reach is None else clip(new_value, value - reach, value + reach)
    following_value = at(columns, "values", t if after is None else after)
    return shared | {
        "t": t,
        "chosen": row.left[t] is not None,
        "chosen_left": row.left[t],
        "score": at(columns, "scores", t),
        "kl": at(columns, "kl", t),
        "reward": at(columns, "rewards", t),
        "value": value,
        "next_value": shared["bootstrap"] if last and value is not None else following_value,
        "delta": at(columns, "deltas", t),
        "advantage": advantage,
        "next_advantage": 0.0 if last else at(columns, "advantages", t if after is None else after),
        "return": target,
        "turn_value": difference(target, advantage),
        "baseline": difference(shared["total"], advantage),
        "share": share_of(advantage, shared["total"], shared["count_chosen"]),
        "whitened": at(columns, "whitened_advantages", t),
        "used": used,
        "entropy": at(columns, "entropy", t),
        "rollout_log_prob": at(columns, "rollout_log_probs", t),
        "old_log_prob": old,
        "ref_log_prob": at(columns, "ref_log_probs", t),
        "new_log_prob": new,
        "log_ratio": difference(new, old),
        "ratio": ratio,
        "clipped_ratio": clipped_ratio,
        "plain_term": product(ratio, used),
        "clipped_term": product(clipped_ratio, used),
        "policy_loss": at(columns, "policy_loss", t),
        "new_value": new_value,
        "near_value": near if squares and reach is not None else None,
        "plain_square": squared(difference(new_value, target)) if squares else None,
        "clipped_square": squared(difference(near, target)) if squares and reach is not None else None,
        "value_loss": at(columns, "value_loss", t),
    }


def token_texts(t: int, prompt: str, texts: Sequence[str], glyphs: Sequence[int], following: int | None) -> Facts:
    """The token, the next chosen one and the end of what stands before it, as texts."""
    before = list(prompt + "".join(texts[:t]))
    return {
        "token": glyph_text(texts, glyphs, t),
        "next_token": None if following is None else glyph_text(texts, glyphs, following),
        "state_end": state_end(before),
    }


def state_end(before: Sequence[str]) -> str:
    """The end of a text given as characters, from the start of a word or of a template's mark if one is near."""
    most = max(0, len(before) - STATE_END)
    near = range(max(1, most - STATE_END), most + 1)
    starts = [i for i in near if most > 0 and (before[i - 1] in " \n" or before[i] == "<")]
    return "".join(before[starts[len(starts) - 1] if len(starts) > 0 else most :]).replace("\n", "↵")


def glyph_text(texts: Sequence[str], glyphs: Sequence[int], t: int) -> str:
    """A token's text; the pieces of one character all read as that character."""
    return "".join([text for text, glyph in zip(texts, glyphs, strict=True) if glyph == glyphs[t]]).replace("\n", "↵")


# ── which sentences ──────────────────────────────────────────────────────────────────────────────────────────────────


def section_applies(section: Applicable, facts: Facts, settings: Settings) -> bool:
    """Whether a section is about this token under these settings."""
    if (section.id == "not_chosen") == facts["chosen"]:
        return False
    if section.estimators is not None and settings["estimator"] not in section.estimators:
        return False
    if section.losses is not None and (settings["policy_loss"] or "ppo") not in section.losses:
        return False
    missing = any(facts[name] is None for name in section.needs)
    return not missing and not any(facts[name] is not None for name in section.lacks)


def section_case(rule: str | None, facts: Facts, columns: Columns, t: int) -> str | None:
    """Which of a section's cases this token is."""
    if rule is None:
        return None
    if rule == "end":
        ending = "bootstrapped" if facts["bootstrap"] else "ended"
        return "inside" if facts["chosen_left"] else ending
    if rule == "policy":
        clipped = "clipped" if at(columns, "clipped", t) else "free"
        return "dual" if at(columns, "dual_clipped", t) else clipped
    if rule == "value":
        return "clipped" if at(columns, "value_clipped", t) else "free"
    if rule == "ratio":
        gap = facts["ratio"] - 1
        return "same" if abs(gap) < SMALL else ("up" if gap > 0 else "down")
    flat = facts["flat_credit"] if rule in ("advantage", "whitened") else rule == "delta" and facts["flat"]
    if flat:  # nothing to hold the number against: its sign is no judgement of the token
        return "flat"
    number = facts[rule]
    if rule == "kl" and facts["old_log_prob"] is not None and facts["ref_log_prob"] is not None:
        number = facts["old_log_prob"] - facts["ref_log_prob"]  # k2 and k3 are above 0 either way
    return "zero" if abs(number) < SMALL else ("positive" if number > 0 else "negative")


# ── numbers that may be missing ──────────────────────────────────────────────────────────────────────────────────────


def at(columns: Columns, name: str, t: int) -> Any:
    """A column's number at t."""
    column = columns.get(name)
    return None if column is None else column[t]


def without_gaps(column: Sequence[float | None] | None) -> Any:
    """A column with 0 where nothing is recorded."""
    return None if column is None else [or_zero(x) for x in column]


def or_zero(x: float | None) -> float:
    return 0.0 if x is None else x


def product(a: Any, b: Any) -> Any:
    return None if a is None or b is None else a * b


def difference(a: Any, b: Any) -> Any:
    return None if a is None or b is None else a - b


def squared(x: Any) -> Any:
    return None if x is None else x * x


def clip(x: Any, low: Any, high: Any) -> Any:
    """x within its bounds."""
    return None if x is None or low is None or high is None else min(max(x, low), high)


def share_of(part: Any, total: Any, count: int) -> Any:
    """What part of the total it is; equal parts where there is nothing to share."""
    if part is None or total is None:
        return None
    return part / total if total else 1.0 / max(count, 1)
