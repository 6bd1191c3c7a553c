"""Numbers of one token worked out by hand: what follows from the few that a question gives.

`ratio 0.7, A = −2, ε = 0.2` gives the two terms of PPO's objective, which one counts and whether a gradient is left;
log-probs give the ratio and the KL estimates; r, V and the next V give δ; V, its new value and R the value loss.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from mingce.algorithms import reference
from mingce.base.numbers import number as shown
from mingce.base.texts import sentence
from mingce.explain.answer import Answer
from mingce.explain.code_refs import resolve
from mingce.specs.kl import FULL, KL_KINDS
from mingce.specs.losses import policy_ratio

CLIP, VALUE_CLIP, GAMMA, BETA = 0.2, 0.5, 1.0, 0.1
_GIVEN = ("value_clip", "clip_low", "clip_high", "dual_clip")
"""Settings that are given as single numbers."""
_LEAST_CHANCE = 1e-4
"""Below which a probability is not shown."""
LARGEST = 700.0
"""A difference of log-probs beyond which exp leaves float64."""


@dataclass
class Sheet:
    """The numbers known so far, and how each was worked out."""

    known: dict[str, float]
    settings: Mapping[str, float]
    lang: str
    lines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    code: list[str] = field(default_factory=list)
    found: dict[str, float] = field(default_factory=dict)
    """What came out, by its sign."""

    def has(self, *names: str) -> bool:
        return all(name in self.known for name in names)

    def setting(self, name: str, default: float) -> float:
        return self.settings.get(name, default)

    def add(self, line: str, code: str = "") -> None:
        self.lines.append(line)
        if code and code not in self.code:
            self.code.append(code)

    def note(self, key: str, **values: object) -> None:
        self.notes.append(sentence(f"tutor.{key}", self.lang, **values))


def worked_by_hand(scalars: Mapping[str, float], settings: Mapping[str, float], lang: str) -> Answer | None:
    """All that follows from the numbers; None if nothing does."""
    given = {name: x for name, x in scalars.items() if name in _GIVEN}
    sheet = Sheet({name: x for name, x in scalars.items() if name not in given}, {**settings, **given}, lang)
    for work in (_ratio, _kl, _reward, _delta, _advantage, _target, _objective, _value_loss):
        work(sheet)
    if not sheet.lines:
        return None
    results = ("，" if lang == "zh" else ", ").join(f"{sign} = {shown(x)}" for sign, x in sheet.found.items())
    text = "\n\n".join([sentence("tutor.computed_with", lang, results=results), *sheet.notes])
    return Answer(lang, text, lines=tuple(sheet.lines), code=tuple(resolve(name) for name in sheet.code))


def _ratio(sheet: Sheet) -> None:
    if sheet.has("old_log_probs", "new_log_probs") and not sheet.has("ratio"):
        old, new = sheet.known["old_log_probs"], sheet.known["new_log_probs"]
        if abs(new - old) > LARGEST:
            return
        sheet.known["ratio"] = ratio = policy_ratio(old, new)
        sheet.found["ρ"] = ratio
        sheet.add(f"ρ = exp({shown(new)} − ({shown(old)})) = exp({shown(new - old)}) = {shown(ratio)}", _CODE["ratio"])


def _kl(sheet: Sheet) -> None:
    """Every estimate of one sample's KL from the policy's and the reference's log-prob."""
    policy = sheet.known.get("old_log_probs", sheet.known.get("new_log_probs"))
    if policy is None or not sheet.has("ref_log_probs"):
        return
    ref = sheet.known["ref_log_probs"]
    if abs(policy - ref) > LARGEST:
        return
    sheet.add(f"x = log π − log π_ref = {shown(policy)} − ({shown(ref)}) = {shown(policy - ref)}")
    for name, kind in KL_KINDS.items():
        if name != FULL:
            value = reference.kl_penalty(policy, ref, name, None)
            sheet.add(f"{name} = {kind.formula} = {shown(value)}", _CODE["kl"])
            sheet.found[name] = value
    sheet.known.setdefault("kl", policy - ref)
    if "beta" in sheet.settings and "scores" not in sheet.known:
        beta, kl = sheet.settings["beta"], sheet.known["kl"]
        sheet.found["β·k1"] = beta * kl
        sheet.add(f"β·k1 = {shown(beta)}·{_bracketed(kl)} = {shown(beta * kl)}", _CODE["reward"])


def _reward(sheet: Sheet) -> None:
    if sheet.has("scores", "kl") and not sheet.has("rewards"):
        beta, score, kl = sheet.setting("beta", BETA), sheet.known["scores"], sheet.known["kl"]
        sheet.known["rewards"] = sheet.found["r"] = reward = score - beta * kl
        sheet.add(
            f"r = score − β·kl = {shown(score)} − {shown(beta)}·{_bracketed(kl)} = {shown(reward)}", _CODE["reward"]
        )


def _delta(sheet: Sheet) -> None:
    if sheet.has("rewards", "values", "next_values"):
        gamma = sheet.setting("gamma", GAMMA)
        reward, value, after = (sheet.known[name] for name in ("rewards", "values", "next_values"))
        sheet.found["δ"] = delta = reward + gamma * after - value
        numbers = f"{shown(reward)} + {shown(gamma)}·{_bracketed(after)} − {_bracketed(value)}"
        sheet.add(f"δ = r + γ·V(s') − V(s) = {numbers} = {shown(delta)}", _CODE["delta"])


def _advantage(sheet: Sheet) -> None:
    if sheet.has("returns", "values") and not sheet.has("advantages") and not sheet.has("new_values"):
        back, value = sheet.known["returns"], sheet.known["values"]
        sheet.found["R − V"] = back - value
        sheet.add(f"R − V = {shown(back)} − {_bracketed(value)} = {shown(back - value)}")


def _target(sheet: Sheet) -> None:
    if sheet.has("advantages", "values") and not any(map(sheet.has, ("returns", "ratio", "next_values", "new_values"))):
        advantage, value = sheet.known["advantages"], sheet.known["values"]
        sheet.found["R"] = advantage + value
        sheet.add(f"R = A + V(s) = {shown(advantage)} + {_bracketed(value)} = {shown(advantage + value)}")


def _objective(sheet: Sheet) -> None:
    """PPO's two terms, the one that counts, and whether it has a gradient."""
    if sheet.has("ratio") and not sheet.has("advantages"):
        _clip_of_ratio(sheet)
    if not sheet.has("ratio", "advantages"):
        return
    ratio, advantage, (lower, upper) = sheet.known["ratio"], sheet.known["advantages"], _bounds(sheet)
    inside = min(max(ratio, lower), upper)
    free, held = ratio * advantage, inside * advantage
    low = min(free, held)
    sheet.add(f"ρ·A = {shown(ratio)}·{_bracketed(advantage)} = {shown(free)}", _CODE["loss"])
    sheet.add(f"clip(ρ, {shown(lower)}, {shown(upper)})·A = {shown(inside)}·{_bracketed(advantage)} = {shown(held)}")
    sheet.add(f"min({shown(free)}, {shown(held)}) = {shown(low)};  loss = −min = {shown(-low)}")
    if upper - 1 != 1 - lower and advantage > 0:
        even = min(max(ratio, lower), 2 - lower)
        plain = min(free, even * advantage)
        terms = f"min({shown(free)}, {shown(even * advantage)}) = {shown(plain)}"
        sheet.add(f"[{shown(lower)}, {shown(2 - lower)}]: {terms};  loss = {shown(-plain)}")
        sheet.note("hand_even_clip", low=shown(lower), high=shown(2 - lower), loss=shown(-plain))
    key = "hand_clipped" if held < free else "hand_free"
    dual = sheet.settings.get("dual_clip")
    if dual is not None and dual > 1 and advantage < 0:
        limit, before = dual * advantage, low
        low = max(low, limit)
        sheet.add(f"max({shown(before)}, c·A = {shown(dual)}·{_bracketed(advantage)} = {shown(limit)}) = {shown(low)}")
        key = "hand_dual_clipped" if limit > before else key
    sheet.found |= {"min" if low == min(free, held) else "max(min, c·A)": low, "loss": -low}
    values = {"ratio": shown(ratio), "low": shown(lower), "high": shown(upper)}
    sheet.note(key, **values, **({"c": shown(dual or 0.0)} if key == "hand_dual_clipped" else {}))
    _where_it_stops(sheet, upper if advantage > 0 else lower)


def _where_it_stops(sheet: Sheet, bound: float) -> None:
    """The probability up to which a token is pushed, where the old one is known."""
    chance = math.exp(sheet.known.get("old_log_probs", -math.inf))
    if sheet.known["advantages"] and chance > _LEAST_CHANCE:
        sheet.add(f"π_old·{shown(bound)} = {shown(chance)}·{shown(bound)} = {shown(chance * bound)}")
        sheet.note("hand_stops_at", chance=shown(min(chance * bound, 1.0)))


def _bounds(sheet: Sheet) -> tuple[float, float]:
    """Between which the ratio is held: one ε, or one below and one above."""
    eps = sheet.setting("clip", CLIP)
    return 1 - sheet.setting("clip_low", eps), 1 + sheet.setting("clip_high", eps)


def _clip_of_ratio(sheet: Sheet) -> None:
    """Whether a ratio is clipped, which depends on the advantage's sign."""
    ratio, (low, high) = sheet.known["ratio"], _bounds(sheet)
    place = "above" if ratio > high else "below" if ratio < low else "inside"
    where = sentence(f"tutor.ratio_{place}", sheet.lang)
    sheet.note("hand_ratio_only", ratio=shown(ratio), low=shown(low), high=shown(high), where=where)


def _value_loss(sheet: Sheet) -> None:
    if not sheet.has("new_values", "returns"):
        return
    new, back = sheet.known["new_values"], sheet.known["returns"]
    plain = (new - back) ** 2
    sheet.add(f"(V_new − R)² = ({shown(new)} − {_bracketed(back)})² = {shown(plain)}", _CODE["value_loss"])
    if not sheet.has("values"):
        sheet.found["loss"] = plain / 2
        sheet.add(f"½·{shown(plain)} = {shown(plain / 2)}")
        _value_slope(sheet, new, back)
        return
    old, eps = sheet.known["values"], sheet.settings.get("value_clip")
    if eps is None and not sheet.has("ratio") and not sheet.has("advantages"):
        eps = sheet.settings.get("clip")  # of nothing else
    if eps is None:
        eps = VALUE_CLIP
        sheet.note("hand_value_clip", eps=shown(eps), plain=shown(plain / 2))
    inside = min(max(new, old - eps), old + eps)
    held = (inside - back) ** 2
    bounds = f"{shown(old - eps)}, {shown(old + eps)}"
    sheet.add(f"V_clip = clip({shown(new)}, {bounds}) = {shown(inside)}")
    sheet.add(f"(V_clip − R)² = ({shown(inside)} − {_bracketed(back)})² = {shown(held)}")
    most = max(plain, held)
    sheet.found["loss"] = most / 2
    sheet.add(f"max({shown(plain)}, {shown(held)}) = {shown(most)};  loss = ½·{shown(most)} = {shown(most / 2)}")
    if held > plain:
        sheet.note("hand_value_stopped", old=shown(old), new=shown(new), inside=shown(inside))
    else:
        _value_slope(sheet, new, back)


def _value_slope(sheet: Sheet, new: float, back: float) -> None:
    """The derivative of the value loss that is not clipped."""
    sheet.add(f"dL/dV_new = V_new − R = {shown(new)} − {_bracketed(back)} = {shown(new - back)}")
    sheet.note("hand_value_free", slope=shown(new - back))


_CODE = {
    "ratio": "mingce.specs.losses.policy_ratio", "kl": "mingce.specs.kl.kl_penalty",
    "loss": "mingce.algorithms.losses.ppo_loss", "reward": "mingce.algorithms.kl.kl_rewards",
    "delta": "mingce.algorithms.advantage.td_errors", "value_loss": "mingce.algorithms.losses.value_loss",
}  # fmt: skip


_OPERATION = re.compile(
    r"(?P<times>乘(?:上|以)?|times|multipl\w+ by)|(?P<plus>加(?:上)?|plus|add)|(?P<minus>减(?:去|掉)?|minus|subtract)|"
    r"(?P<over>除以|divided by|over)",
    re.IGNORECASE,
)
_SIGNS = {"times": "·", "plus": "+", "minus": "−", "over": "/"}


def carried_on(result: float, text: str, lang: str) -> tuple[Answer | None, float | None]:
    """`再乘上 0.395`: the last number taken further, and what comes of it."""
    match = re.search(rf"(?:{_OPERATION.pattern})\s*([-−]?\d+(?:\.\d+)?)(?![\d.])", text, re.IGNORECASE)
    if match is None:
        return None, None
    name = str(match.lastgroup) if match.lastgroup else next(key for key in _SIGNS if match[key])
    x = float(match[5].replace("−", "-"))
    if name == "over" and x == 0:
        return None, None
    value = {"times": result * x, "plus": result + x, "minus": result - x, "over": result / x if x else 0.0}[name]
    line = f"{shown(result)} {_SIGNS[name]} {_bracketed(x)} = {shown(value)}"
    return Answer(lang, sentence("tutor.carried_on", lang, result=shown(value)), lines=(line,)), value


def _bracketed(x: float) -> str:
    text = shown(x)
    return f"({text})" if text.startswith("−") else text


def is_finite(scalars: Mapping[str, float]) -> bool:
    """Whether all numbers can be computed with."""
    return all(math.isfinite(x) and abs(x) < 1e9 for x in scalars.values())
