"""Derivations of credit: the advantage by the estimator in force, all the way from the end, and what is made of it."""

from __future__ import annotations

import math

from mingce.base.numbers import number as shown
from mingce.base.texts import sentence
from mingce.explain.account import substituted, token_values
from mingce.explain.derive.sheet import Sheet, added, bracketed, ends, power, put, summed
from mingce.explain.derive.tokens import delta_line, holes_note
from mingce.explain.derive.turns import first_of_turn, turn_lines
from mingce.explain.derive.work import Work, by_sign
from mingce.specs.facts import difference, share_of

FULL_CHAIN = 8
"""Up to so many steps the TD errors of a recursion are derived too."""


def advantages(sheet: Sheet, t: int, lang: str) -> Work | None:
    """A_t by the estimator's own formula; a recursion from the last token down to t."""
    spec, result = sheet.estimator, sheet.at("advantages", t)
    if result is None:
        return None
    lines: list[str] | None = None
    if spec is not None and spec.twin is not None and not sheet.rollout.more_tokens:
        if spec.mixes_tokens:
            lines = _gae_lines(sheet, t)
        elif spec.kind == "turns":
            lines = turn_lines(sheet, t)
        elif spec.kind == "window":
            lines = _window_lines(sheet, t, int(sheet.rollout.settings.n or 1))
        elif spec.needs_critic:
            lines = _one_step_lines(sheet, t) if spec.fixed_lambda == 0 else _monte_carlo_lines(sheet, t)
        elif spec.kind == "recursion":
            lines = _to_go_lines(sheet, t)
        else:
            lines = _by_numbers(sheet, t)
    if lines is None:
        lines = _next_step_lines(sheet, t) or [f"A_{t} = {shown(result)}"]
    reading = by_sign("advantages", result, lang, a=shown(result), token=sheet.token(t))
    if spec is not None and spec.kind in ("recursion", "window", "turns"):
        reading += holes_note(sheet, t, None, lang)
    return Work(ends(lines) if len(lines) > 2 * FULL_CHAIN else tuple(lines), result, reading, own=lines[-1])


def _gae_lines(sheet: Sheet, t: int) -> list[str] | None:
    """γλ, the TD errors of a short tail, then A from the last token down to t."""
    decay, gamma, lam, steps = sheet.decay, sheet.gamma, sheet.lam, sheet.tail(t)[::-1]
    if decay is None or any(sheet.at(name, s) is None for s in steps for name in ("deltas", "advantages")):
        return None
    lines = [put("γλ = {g}·{l} = {x}", g=gamma, l=lam, x=decay)]
    if len(steps) <= FULL_CHAIN:
        lines += [line for s in steps if (line := delta_line(sheet, s)) is not None]
    chain = [_gae_line(sheet, s, decay) for s in steps]
    return [*lines, *ends(chain)] if len(steps) > FULL_CHAIN else lines + chain


def _gae_line(sheet: Sheet, t: int, decay: float) -> str:
    """`A_4 = δ_4 + γλ·A_5 = 0.13 + 0.95·0.395 = 0.5053`; nothing follows the last."""
    after, result = sheet.following(t), sheet.at("advantages", t)
    if after is None:
        return put("A_{t} = δ_{t} + γλ·0 = {d} + {w}·0 = {a}", t=t, d=sheet.at("deltas", t), w=decay, a=result)
    template = f"A_{{t}} = δ_{{t}} + γλ·A_{after} = {{d}} + {{w}}·{{n}} = {{a}}"
    return put(template, t=t, d=sheet.at("deltas", t), w=decay, n=sheet.at("advantages", after), a=result)


def _next_step_lines(sheet: Sheet, t: int) -> list[str] | None:
    """One step of GAE where the end of the row is not shown."""
    spec, after, decay = sheet.estimator, sheet.following(t), sheet.decay
    if spec is None or not spec.mixes_tokens or after is None or decay is None:
        return None
    if any(x is None for x in (sheet.at("deltas", t), sheet.at("advantages", after))) or delta_line(sheet, t) is None:
        return None
    return [str(delta_line(sheet, t)), _gae_line(sheet, t, decay)]


def _one_step_lines(sheet: Sheet, t: int) -> list[str] | None:
    line, result = delta_line(sheet, t), sheet.at("advantages", t)
    return None if line is None else [line, put("A_{t} = δ_{t} = {a}", t=t, a=result)]


def _window_lines(sheet: Sheet, t: int, n: int) -> list[str] | None:
    work = _weighted(sheet, t, sheet.gamma, "γ", n, "A")
    if work is None:
        return None
    tail = sheet.tail(t)[:n]
    errors = [line for s in tail if (line := delta_line(sheet, s)) is not None] if len(tail) <= FULL_CHAIN else []
    return [*errors, work[0]]


def _weighted(
    sheet: Sheet, t: int, decay: float | None, symbol: str, n: int | None, name: str
) -> tuple[str, float] | None:
    """`A_2 = δ_2 + γ·δ_3 + γ^2·δ_4 = …`: weighted TD errors of the next n tokens, and their sum."""
    tail = sheet.tail(t)[:n]
    errors = [sheet.at("deltas", s) for s in tail]
    if decay is None or sheet.cut_off(tail[-1]) or any(x is None for x in errors):
        return None
    numbers = [x for x in errors if x is not None]
    total = math.fsum(decay**k * x for k, x in enumerate(numbers))
    names = [f"{power(symbol, k)}·δ_{s}" if k else f"δ_{s}" for k, s in enumerate(tail)]
    base = shown(decay)
    terms = [f"{power(base, k)}·{bracketed(x)}" if k else shown(x) for k, x in enumerate(numbers)]
    numeric = f"{summed(terms)} = {shown(total)}" if len(terms) > 1 else shown(total)
    return f"{name}_{t} = {summed(names)} = {numeric}", total


def _returns_chain(
    sheet: Sheet, t: int, gamma: float, after: float, symbol: str = "G"
) -> tuple[list[str], float] | None:
    """`G_5 = r_5 + γ·0 = …` from the last token down to t: what really came."""
    total, lines, steps = after, [], sheet.tail(t)[::-1]
    if sheet.cut_off(steps[0]):
        return None
    for s in steps:
        r, following = sheet.at("rewards", s), sheet.following(s)
        if r is None:
            return None
        name = f"{symbol}_{following}" if following is not None else ("V(s_T)" if after else "0")
        template = f"{symbol}_{{s}} = r_{{s}} + γ·{name} = {{r}} + {{g}}·{{n}} = {{x}}"
        lines.append(put(template, s=s, r=r, g=gamma, n=total, x=r + gamma * total))
        total = r + gamma * total
    return lines, total


def _monte_carlo_lines(sheet: Sheet, t: int) -> list[str] | None:
    value, gamma = sheet.at("values", t), sheet.gamma
    chain = None if gamma is None else _returns_chain(sheet, t, gamma, sheet.end)
    if chain is None or value is None:
        return None
    lines, total = chain
    last = put("A_{t} = G_{t} − V(s_{t}) = {g} − {v} = {a}", t=t, g=total, v=value, a=sheet.at("advantages", t))
    return [*ends(lines), last]


def _to_go_lines(sheet: Sheet, t: int) -> list[str] | None:
    """Reward to go without a critic, less the row's baseline where the estimator reads one."""
    spec = sheet.estimator
    assert spec is not None
    gamma = sheet.gamma if "gamma" in spec.settings else 1.0
    chain = None if gamma is None else _returns_chain(sheet, t, gamma, 0.0)
    if chain is None:
        return None
    lines, total = chain
    result = sheet.at("advantages", t)
    if not spec.row_inputs:
        return [*ends(lines), put("A_{t} = G_{t} = {a}", t=t, a=result)]
    baseline = sheet.rollout.row_inputs.get(spec.row_inputs[0])
    if baseline is None:
        return None
    return [*ends(lines), put("A_{t} = G_{t} − b = {g} − {b} = {a}", t=t, g=total, b=float(baseline), a=result)]


def _by_numbers(sheet: Sheet, t: int) -> list[str] | None:
    """A share of the row's total, or the total against its group: the estimator's own line of numbers."""
    spec, rewards = sheet.estimator, sheet.column("rewards")
    values, _ = token_values(sheet.rollout, t)
    if spec is None or rewards is None:
        return None
    total, result = math.fsum(rewards), sheet.at("advantages", t)  # of the rewards as recorded, as the group's are
    values |= {"own": total, "baseline": difference(total, result), "share": share_of(result, total, len(rewards))}
    line = substituted(spec.numbers, values, formula=True)
    if "{" in line or "—" in line:
        return None
    return [f"Σ_j r_j = {added(rewards)} = {shown(math.fsum(rewards))}", line]


# ── what is made of it ───────────────────────────────────────────────────────────────────────────────────────────────


def returns(sheet: Sheet, t: int, lang: str) -> Work | None:
    """R_t = A_t + V(s_t), with raw advantages; all of A's way comes first."""
    spec, result, advantage = sheet.estimator, sheet.at("returns", t), sheet.at("advantages", t)
    first = first_of_turn(sheet, t) if spec is not None and spec.kind == "turns" else t
    value = sheet.at("values", first)
    if result is None or value is None or advantage is None:
        return None
    way = advantages(sheet, t, lang)
    line = put("R_{t} = A_{t} + V(s_{f}) = {a} + {v} = {x}", t=t, f=first, a=advantage, v=value, x=result)
    key = "lambda" if sheet.lam not in (None, 0, 1) else {0: "one_step", 1: "all"}.get(int(sheet.lam or 0), "lambda")
    key = "lambda" if sheet.lam is None else key
    reading = sentence(f"derive.returns_{key}", lang, x=shown(result), v=shown(value), t=t)
    return Work((*(way.lines if way else ()), line), result, reading + holes_note(sheet, t, None, lang), own=line)


def unrolled(sheet: Sheet, t: int, lang: str) -> Work | None:
    """Σ_l (γλ)^l·δ_{t+l}: GAE without its recursion, with what each step ahead contributes."""
    work = _weighted(sheet, t, sheet.decay, "γλ", None, "A")
    decay, errors = sheet.decay, [sheet.at("deltas", s) for s in sheet.tail(t)]
    if work is None or decay is None:
        return None
    line, total = work
    parts = [
        put("(γλ)^{k}·δ_{s} = {w}·{d} = {x}", k=k, s=s, w=decay**k, d=d, x=decay**k * (d or 0.0))
        for k, (s, d) in enumerate(zip(sheet.tail(t), errors, strict=True))
    ]
    sizes = [abs(decay**k * (d or 0.0)) for k, d in enumerate(errors)]
    most = sheet.tail(t)[sizes.index(max(sizes))]
    reading = sentence("derive.unrolled", lang, x=shown(total), most=most, token=sheet.token(most))
    return Work((*ends(parts), line), total, reading + holes_note(sheet, t, None, lang), own=line)


def mc_return(sheet: Sheet, t: int, lang: str) -> Work | None:
    """G_t = Σ_k γ^k·r_{t+k}, and the bootstrap where the response was cut."""
    chain = None if sheet.gamma is None else _returns_chain(sheet, t, sheet.gamma, sheet.end)
    if chain is None:
        return None
    lines, total = chain
    reading = sentence("derive.mc_return", lang, x=shown(total), t=t) + holes_note(sheet, t, None, lang)
    return Work(ends(lines), total, reading, own=lines[-1])


def mc_advantage(sheet: Sheet, t: int, lang: str) -> Work | None:
    """G_t − V(s_t): the advantage of λ = 1."""
    value = sheet.at("values", t)
    chain = None if sheet.gamma is None else _returns_chain(sheet, t, sheet.gamma, sheet.end)
    if chain is None or value is None:
        return None
    lines, total = chain
    line = put("A_{t} = G_{t} − V(s_{t}) = {g} − {v} = {a}", t=t, g=total, v=value, a=total - value)
    reading = by_sign("mc_advantage", total - value, lang, a=shown(total - value), t=t, v=shown(value), g=shown(total))
    return Work((*ends(lines), line), total - value, reading + holes_note(sheet, t, None, lang), own=line)


def n_step(sheet: Sheet, t: int, lang: str, n: int | None) -> Work | None:
    """Σ_{l<n} γ^l·δ_{t+l}: n rewards, then the critic."""
    n = max(1, n or sheet.rollout.settings.n or 1)
    work = _weighted(sheet, t, sheet.gamma, "γ", n, "A")
    lines = _window_lines(sheet, t, n)
    if work is None or lines is None:
        return None
    reached = len(sheet.tail(t)) <= n
    reading = sentence(f"derive.n_step_{'end' if reached else 'inside'}", lang, x=shown(work[1]), n=n, t=t)
    return Work(ends(lines), work[1], reading + holes_note(sheet, t, None, lang), own=lines[-1])
