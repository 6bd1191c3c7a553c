"""Sums of a training run's settings: by how much gradients are clipped, how long the learning rate warms up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingce.base.numbers import number as shown
from mingce.explain.answer import Answer

if TYPE_CHECKING:
    from mingce.explain.sums.answers import Asked


def gradient_clip(asked: Asked) -> Answer | None:
    """The factor by which a gradient is scaled down to a norm."""
    norm, most = asked.counts.get("grad_norm"), asked.counts.get("grad_limit")
    if norm is None or most is None or norm <= 0 or most <= 0:
        return None
    factor = min(1.0, most / norm)
    lines = [f"min(1, {shown(most)}/{shown(norm)}) = {shown(factor)}"]
    key = "sum_grad_clip" if factor < 1 else "sum_grad_free"
    return asked.answer(key, lines, factor=shown(factor), norm=shown(norm), most=shown(most))


def warm_up(asked: Asked) -> Answer | None:
    """How many steps the learning rate rises for, and what it is at one of them."""
    share, steps, total = (asked.counts.get(name) for name in ("warmup_share", "warmup_steps", "all_steps"))
    if not asked.says("warmup"):
        return None
    lines = []
    if steps is None:
        if share is None or not 0 < share < 1:
            return None
        if total is None or total < 1:
            return asked.answer("sum_warmup_no_total", [], share=shown(share))
        steps = float(int(share * total + 1e-9))
        lines.append(f"{shown(share)}·{shown(total)} = {shown(share * total)}")
    peak, at = asked.counts.get("peak"), asked.counts.get("at_step")
    said = [asked.text_of("sum_warmup", steps=shown(steps))]
    if peak is not None and at is not None and steps >= 1 and peak > 0:
        rate = peak * min(at / steps, 1.0)
        lines.append(f"{peak:.4g}·min({shown(at)}/{shown(steps)}, 1) = {rate:.4g}")
        said.append(asked.text_of("sum_warmup_at", at=shown(at), rate=f"{rate:.4g}"))
    elif not lines:
        return None
    return asked.plain(" ".join(said), lines)
