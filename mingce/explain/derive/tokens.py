"""Derivations before credit: what is measured, the KL, the reward, the next value, the TD target and the TD error."""

from __future__ import annotations

import math

from mingce.base.numbers import number as shown
from mingce.base.texts import sentence
from mingce.columns import column
from mingce.explain.derive.sheet import Sheet, bracketed, put
from mingce.explain.derive.work import Work, by_sign
from mingce.specs.kl import find_kl, kl_name

LOG_PROBS = ("old_log_probs", "new_log_probs", "ref_log_probs", "rollout_log_probs")


def measured(name: str, sheet: Sheet, t: int, lang: str) -> Work | None:
    """A column that a model or a task measures: its number, and for a log-prob the probability."""
    x = sheet.at(name, t)
    if x is None:
        return None
    one = column(name)
    symbol = one.symbol.replace("_t", f"_{t}")
    lines = [f"{symbol} = {shown(x)}"]
    if name in LOG_PROBS:
        lines.append(put("exp({x}) = {p}", x=x, p=math.exp(min(x, 700.0))))
    said = one.zh if lang == "zh" else one.en
    reading = sentence(f"derive.{'input' if one.is_computed else 'measured'}", lang, meaning=said, x=shown(x), t=t)
    return Work(tuple(lines), x, reading, own=lines[0])


def kl(sheet: Sheet, t: int, lang: str) -> Work | None:
    """k_t of the kind in force, from the two log-probs; as it is recorded where they are not there."""
    old, ref, x = sheet.at("old_log_probs", t), sheet.at("ref_log_probs", t), sheet.columns.get("kl")
    result = None if x is None else x[t]
    if result is None:
        return None
    result = float(result)
    way = result if old is None or ref is None else old - ref  # k2 and k3 are above 0 either way
    reading = by_sign("kl", way, lang, token=sheet.token(t), k=shown(result))
    kind = kl_name(sheet.rollout.settings.kl_estimator)
    settings = sheet.rollout.settings
    if old is None or ref is None or (settings.kl_estimator is not None and not kind):
        line = f"k_{t} = {shown(result)}"
        return Work((line,), result, reading, own=line)
    gap = old - ref
    first = put("x_{t} = log π_old − log π_ref = {old} − {ref} = {gap}", t=t, old=old, ref=ref, gap=gap)
    own = f"k_{t} = {_kind_numbers(kind or 'k1', t, gap, result)}"
    if settings.kl_clamp is not None and abs(result) >= settings.kl_clamp:
        own = put(
            "k_{t} = clip({raw}, ± {clamp}) = {k}", t=t, raw=_unclamped(kind, gap), clamp=settings.kl_clamp, k=result
        )
    return Work((first, own), result, reading, own=own)


def _unclamped(kind: str, gap: float) -> float:
    return float(find_kl(kind or "k1").twin(gap))


def _kind_numbers(kind: str, t: int, gap: float, result: float) -> str:
    """The kind's own formula with the gap put in for x: `½·0.1² = 0.005`."""
    formula, x = find_kl(kind).formula, shown(gap)
    if formula == "x":
        return f"x_{t} = {shown(result)}"
    written = formula.replace("e^{−x}", f"exp(−({x}))").replace("½x²", f"½·({x})²").replace("|x|", f"|{x}|")
    if written.endswith("+ x"):
        written = f"{written[:-1]}{bracketed(gap)}"
    return f"{written} = {shown(result)}"


def rewards(sheet: Sheet, t: int, lang: str) -> Work | None:
    """r_t = score_t − β·k_t; r_t = score_t where there is no KL; as typed in where there are no scores."""
    result, score, k, beta = (*(sheet.at(name, t) for name in ("rewards", "scores", "kl")), sheet.beta)
    computed = sheet.columns.get("rewards")
    if result is None or computed is None:
        return None
    result = float(computed[t]) if computed[t] is not None else result
    charged = "kl" in sheet.rollout.columns
    if score is None or (charged and (k is None or beta is None)):
        line = f"r_{t} = {shown(result)}"
        return Work((line,), result, sentence("derive.rewards_given", lang, t=t, r=shown(result)), own=line)
    if not charged or k is None or beta is None:
        line = put("r_{t} = score_{t} = {score}", t=t, score=score)
        return Work((line,), result, sentence("derive.rewards_score", lang, r=shown(result)), own=line)
    line = put("r_{t} = score_{t} − β·k_{t} = {score} − {beta}·{k} = {r}", t=t, score=score, beta=beta, k=k, r=result)
    said = {"token": sheet.token(t), "score": shown(score), "cost": shown(beta * k), "r": shown(result)}
    return Work((line,), result, sentence("derive.rewards", lang, **said), own=line)


def kl_cost(sheet: Sheet, t: int, lang: str) -> Work | None:
    """β·k_t: what the KL takes from the reward."""
    k, beta = sheet.at("kl", t), sheet.beta
    if k is None or beta is None:
        return None
    line = put("β·k_{t} = {beta}·{k} = {cost}", t=t, beta=beta, k=k, cost=beta * k)
    return Work(
        (line,), beta * k, by_sign("cost", beta * k, lang, cost=shown(beta * k), token=sheet.token(t)), own=line
    )


def next_values(sheet: Sheet, t: int, lang: str) -> Work | None:
    """V(s_{t+1}): the value before the next chosen token, the bootstrap behind the last."""
    x = sheet.next_value(t)
    if x is None or "values" not in sheet.columns:
        return None
    after = sheet.following(t)
    line = f"V({sheet.state_after(t)}) = {shown(x)}"
    key = "inside" if after is not None else ("cut" if sheet.end else "over")
    skipped = holes_note(sheet, t, after, lang)
    said = {"t": t, "next": "T" if after is None else after, "v": shown(x), "last": sheet.slots[-1]}
    return Work((line,), x, sentence(f"derive.next_{key}", lang, **said) + skipped, own=line)


def holes_note(sheet: Sheet, t: int, after: int | None, lang: str) -> str:
    """Which slots a recursion steps over between t and `after`, or up to the end."""
    holes = [s for s in sheet.holes(t) if after is None or s < after]
    if not holes:
        return ""
    listed = ("、" if lang == "zh" else ", ").join(map(str, holes[:12])) + ("…" if len(holes) > 12 else "")
    return ("" if lang == "zh" else " ") + sentence("derive.holes", lang, slots=listed)


def td_target(sheet: Sheet, t: int, lang: str) -> Work | None:
    """r_t + γ·V(s_{t+1}): one step, then the critic."""
    r, v, gamma = sheet.at("rewards", t), sheet.next_value(t), sheet.gamma
    if r is None or v is None or gamma is None or "values" not in sheet.columns:
        return None
    result, after = r + gamma * v, sheet.state_after(t)
    line = put(f"r_{{t}} + γ·V({after}) = {{r}} + {{g}}·{{v}} = {{x}}", t=t, r=r, g=gamma, v=v, x=result)
    return Work((line,), result, sentence("derive.td_target", lang, x=shown(result), t=t), own=line)


def deltas(sheet: Sheet, t: int, lang: str) -> Work | None:
    """δ_t = r_t + γ·V(s_{t+1}) − V(s_t)."""
    result = sheet.at("deltas", t)
    line = delta_line(sheet, t)
    if result is None or line is None:
        return None
    reading = by_sign("deltas", result, lang, d=shown(result), token=sheet.token(t))
    reading += holes_note(sheet, t, sheet.following(t), lang)
    return Work((line,), result, reading, own=line)


def delta_line(sheet: Sheet, t: int) -> str | None:
    """`δ_2 = r_2 + γ·V(s_3) − V(s_2) = …`."""
    r, v, now, gamma = sheet.at("rewards", t), sheet.next_value(t), sheet.at("values", t), sheet.gamma
    result = sheet.at("deltas", t)
    if r is None or v is None or now is None or gamma is None or result is None:
        return None
    template = f"δ_{{t}} = r_{{t}} + γ·V({sheet.state_after(t)}) − V(s_{{t}}) = {{r}} + {{g}}·{{v}} − {{now}} = {{d}}"
    return put(template, t=t, r=r, g=gamma, v=v, now=now, d=result)


def log_ratio(sheet: Sheet, t: int, lang: str) -> Work | None:
    """log π − log π_old."""
    new, old = sheet.at("new_log_probs", t), sheet.at("old_log_probs", t)
    if new is None or old is None:
        return None
    line = put("log ρ_{t} = log π − log π_old = {new} − {old} = {x}", t=t, new=new, old=old, x=new - old)
    return Work(
        (line,), new - old, by_sign("log_ratio", new - old, lang, x=shown(new - old), token=sheet.token(t)), own=line
    )


def probability(sheet: Sheet, t: int, lang: str) -> Work | None:
    """π_old(a_t) = exp(log π_old(a_t))."""
    old = sheet.at("old_log_probs", t)
    if old is None:
        return None
    p = math.exp(min(old, 700.0))
    line = put("π_old(a_{t}) = exp(log π_old(a_{t})) = exp({old}) = {p}", t=t, old=old, p=p)
    return Work((line,), p, sentence("derive.probability", lang, p=shown(p), token=sheet.token(t)), own=line)
