"""Derivations of the update: whitening, the ratio, what the clips did, and the losses of policy and critic."""

from __future__ import annotations

import math

from mingce.algorithms import reference
from mingce.base.numbers import number as shown
from mingce.base.texts import sentence
from mingce.explain.account import substituted, token_values
from mingce.explain.derive.sheet import Sheet, fine, put
from mingce.explain.derive.work import Work, by_sign
from mingce.specs.facts import SMALL, clip
from mingce.specs.kl import kl_name
from mingce.specs.losses import MAX_LOG_RATIO


def whitened(sheet: Sheet, t: int, lang: str) -> Work | None:
    """Â_t = (A_t − μ)/√(σ² + 10⁻⁸), with the step's mean and spread."""
    recorded, whitening = sheet.rollout.columns.get("advantages"), sheet.rollout.whitening
    result = sheet.at("whitened_advantages", t)
    raw = None if recorded is None else recorded[t]
    if result is None:
        return None
    if whitening is None or raw is None:
        line = f"Â_{t} = {shown(result)}"
        return Work((line,), result, by_sign("whitened", result, lang, x=shown(result)), own=line)
    if whitening.variance <= 0:
        line = put("σ² = 0 → Â_{t} = {x}", t=t, x=result)
        return Work((line,), result, sentence("derive.whitened_flat", lang), own=line)
    spread = math.sqrt(whitening.variance + whitening.epsilon)
    mean, deviation = fine(whitening.mean), fine(spread)
    first = f"μ = {mean}, √(σ² + 10⁻⁸) = {deviation}, N = {whitening.count}"
    less = f"({mean})" if mean.startswith("−") else mean
    numbers = f"({fine(float(raw))} − {less})/{deviation} = {shown(result)}"
    own = f"Â_{t} = (A_{t} − μ)/√(σ² + 10⁻⁸) = {numbers}"
    return Work((first, own), result, by_sign("whitened", result, lang, x=shown(result)), own=own)


def _factor(x: float) -> str:
    text = shown(x)
    return f"({text})" if text.startswith("−") else text


def ratio(sheet: Sheet, t: int, lang: str) -> Work | None:
    """ρ_t = exp(log π − log π_old)."""
    new, old, result = sheet.at("new_log_probs", t), sheet.at("old_log_probs", t), sheet.at("ratio", t)
    if result is None:
        return None
    case = "same" if abs(result - 1) < SMALL else ("up" if result > 1 else "down")
    reading = sentence(f"derive.ratio_{case}", lang, x=shown(result), token=sheet.token(t))
    if new is None or old is None:
        line = f"ρ_{t} = {shown(result)}"
    elif abs(new - old) > MAX_LOG_RATIO:
        line = put("ρ_{t} = exp(clip({new} − {old}, ± 20)) = {x}", t=t, new=new, old=old, x=result)
    else:
        line = put("ρ_{t} = exp(log π − log π_old) = exp({new} − {old}) = {x}", t=t, new=new, old=old, x=result)
    return Work((line,), result, reading, own=line)


def policy_loss(sheet: Sheet, t: int, lang: str) -> Work | None:
    """L^π_t by the loss in force, with the advantages it uses."""
    result, spec = sheet.at("policy_loss", t), sheet.loss
    if result is None:
        return None
    values, _ = token_values(sheet.rollout, t)
    way = ratio(sheet, t, lang)
    lines = [way.own] if way else []
    dual = bool(sheet.at("dual_clipped", t))
    written = "" if spec is None or spec.twin is None else substituted(spec.numbers, values, formula=True)
    if not written or "{" in written or "—" in written:
        written = f"L^π_{t} = {shown(result)}"
    elif dual:
        c, used = sheet.rollout.settings.dual_clip, values["used"]
        written = put("L^π_{t} = −c·Â_{t} = −{c}·{u} = {x}", t=t, c=c, u=used, x=result)
    lines.append(written)
    case = "dual" if dual else ("clipped" if sheet.at("clipped", t) else "free")
    used_column = "whitened_advantages" if "whitened_advantages" in sheet.columns else "advantages"
    used = shown(sheet.at(used_column, t))
    reading = sentence(f"derive.policy_{case}", lang, x=shown(result), column=used_column, used=used)
    return Work(tuple(lines), result, reading, own=written)


def clipped(sheet: Sheet, t: int, lang: str) -> Work | None:
    """c_t: whether the clip of the ratio decided the term."""
    result, rho = sheet.at("clipped", t), sheet.at("ratio", t)
    settings = sheet.rollout.settings
    if result is None or rho is None or settings.clip_low is None or settings.clip_high is None:
        return None
    low, high = 1 - settings.clip_low, 1 + settings.clip_high
    held = clip(rho, low, high)
    lines = [
        put(
            "clip(ρ_{t}, {low}, {high}) = clip({rho}, {low}, {high}) = {held}",
            t=t,
            low=low,
            high=high,
            rho=rho,
            held=held,
        )
    ]
    used = sheet.at("used", t)
    if used is not None:
        text = "ρ_{t}·Â_{t} = {rho}·{u} = {a}"
        lines.append(put(text, t=t, rho=rho, u=used, a=rho * used))
        lines.append(put("clip(ρ_{t})·Â_{t} = {held}·{u} = {b}", t=t, held=held, u=used, b=held * used))
    lines.append(f"c_{t} = {int(result)}")
    key = ("dual" if sheet.at("dual_clipped", t) else "yes") if result else "no"
    said = {"low": shown(low), "high": shown(high), "rho": shown(rho)}
    return Work(tuple(lines), float(int(result)), sentence(f"derive.clipped_{key}", lang, **said), own=lines[-1])


def value_loss(sheet: Sheet, t: int, lang: str) -> Work | None:
    """L^V_t: half the squared error towards R_t, the larger one with and without the clip."""
    new, target, old = sheet.at("new_values", t), sheet.at("returns", t), sheet.at("values", t)
    result, reach = sheet.at("value_loss", t), sheet.rollout.settings.value_clip
    if result is None:
        return None
    if new is None or target is None or old is None:
        line = f"L^V_{t} = {shown(result)}"
        return Work((line,), result, sentence("derive.value_free", lang, x=shown(result)), own=line)
    if reach is None:
        line = f"L^V_{t} = ½·(V'(s_{t}) − R_{t})² = ½·({shown(new)} − {_factor(target)})² = {shown(result)}"
        return Work((line,), result, sentence("derive.value_free", lang, x=shown(result)), own=line)
    near = clip(new, old - reach, old + reach)
    first = put("clip(V'(s_{t}), V(s_{t}) ± {reach}) = {near}", t=t, reach=reach, near=near)
    squares = [(x - target) ** 2 for x in (new, near)]
    inner = ", ".join(f"({shown(x)} − {_factor(target)})²" for x in (new, near))
    symbols = f"L^V_{t} = ½·max((V'(s_{t}) − R_{t})², (clip(V'(s_{t})) − R_{t})²)"
    own = f"{symbols} = ½·max({inner}) = {put('½·max({a}, {b}) = {x}', a=squares[0], b=squares[1], x=result)}"
    key = "clipped" if reference.value_term(new, target, old, reach).clipped else "free"
    return Work((first, own), result, sentence(f"derive.value_{key}", lang, x=shown(result)), own=own)


def kl_loss(sheet: Sheet, t: int, lang: str) -> Work | None:
    """The KL of the policy being updated against the reference, as it is recorded."""
    result, new, ref = sheet.at("kl_loss", t), sheet.at("new_log_probs", t), sheet.at("ref_log_probs", t)
    if result is None:
        return None
    lines = [f"L^KL_{t} = {shown(result)}"]
    if new is not None and ref is not None and kl_name(sheet.rollout.settings.kl_estimator):
        lines.insert(0, put("x_{t} = log π − log π_ref = {new} − {ref} = {x}", t=t, new=new, ref=ref, x=new - ref))
    return Work(tuple(lines), result, sentence("derive.kl_loss", lang, x=shown(result)), own=lines[-1])


def dual_clipped(sheet: Sheet, t: int, lang: str) -> Work | None:
    """d_t: whether the dual clip capped the term."""
    result, cap = sheet.at("dual_clipped", t), sheet.rollout.settings.dual_clip
    if result is None:
        return None
    line = f"d_{t} = {int(result)}"
    key = "off" if cap is None else ("yes" if result else "no")
    said = {"c": shown(cap), "rho": shown(sheet.at("ratio", t)), "used": shown(sheet.at("used", t))}
    return Work((line,), result, sentence(f"derive.dual_{key}", lang, **said), own=line)


def value_clipped(sheet: Sheet, t: int, lang: str) -> Work | None:
    """c^V_t: whether the clipped value is further from its target than the new one."""
    result, loss = sheet.at("value_clipped", t), value_loss(sheet, t, lang)
    if result is None:
        return None
    line = f"c^V_{t} = {int(result)}"
    reading = sentence(f"derive.value_flag_{'yes' if result else 'no'}", lang)
    return Work((*(loss.lines if loss else ()), line), result, reading, own=line)
