"""Derivations of credit that takes a turn as one action: from the last turn down to the token's own."""

from __future__ import annotations

import math

from mingce.explain.derive.sheet import Sheet, ends, put
from mingce.specs.estimators import turns_of


def turns(sheet: Sheet) -> list[list[int]]:
    """The chosen slots of the row, one list a turn; a row without turns is one."""
    turn = sheet.rollout.columns.get("turn")
    mask = sheet.rollout.mask
    return turns_of(mask, [0.0] * len(mask) if turn is None else [float(x or 0) for x in turn])


def first_of_turn(sheet: Sheet, t: int) -> int:
    """The first token of t's turn, whose value is the turn's."""
    return next(slots[0] for slots in turns(sheet) if t in slots)


def turn_lines(sheet: Sheet, t: int) -> list[str] | None:
    """γλ, then Δ and A of every turn from the last one down to t's; Δ_3 is that of the turn that begins at token 3."""
    gamma, decay, value_after, later = sheet.gamma, sheet.decay, sheet.end, 0.0
    if gamma is None or decay is None:
        return None
    lines, name, last = [put("γλ = {g}·{l} = {x}", g=gamma, l=sheet.lam, x=decay)], "0", "0"
    for slots in reversed([one for one in turns(sheet) if one[-1] >= t]):
        value = sheet.at("values", slots[0])
        paid = [sheet.at("rewards", s) for s in slots]
        if value is None or any(x is None for x in paid):
            return None
        reward, k = math.fsum(x for x in paid if x is not None), slots[0]
        delta = reward + gamma * value_after - value
        template = f"Δ_{{k}} = Σr + γ·{name} − V(s_{{k}}) = {{r}} + {{g}}·{{n}} − {{v}} = {{d}}"
        lines.append(put(template, k=k, r=reward, g=gamma, n=value_after, v=value, d=delta))
        result = delta + decay * later
        shown_as = t if slots[0] <= t <= slots[-1] else k
        template = f"A_{{t}} = Δ_{{k}} + γλ·{last} = {{d}} + {{w}}·{{n}} = {{a}}"
        lines.append(put(template, t=shown_as, k=k, d=delta, w=decay, n=later, a=result))
        value_after, later, name, last = value, result, f"V(s_{k})", f"A_{k}"
    return [lines[0], *ends(lines[1:])]
