"""One step of A_t = r_t + γV' − V_t + γλA' at a time, V' and A' taken from the dump, and the γ and λ that it shows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mingce.audit.evidence import Bools, Floats, last_slot


@dataclass(frozen=True)
class Columns:
    """What a recursion reads: rewards, values and advantages [B, T], finite everywhere."""

    rewards: Floats
    values: Floats
    advantages: Floats


HOLES = ("skip", "zero", "raw", "cut")  # what a step over tool tokens does
ENDS = ("end", "value", "slot", "pads")  # what follows the last chosen token: nothing, V[e+1], slot e+1, all pads


def one_step(c: Columns, mask: Bools, gamma: float, decay: float, holes: str, end: str) -> Floats:
    """[B, T] the advantage each chosen token should have, given the dumped advantage of the next chosen one."""
    expected = np.zeros_like(c.rewards)
    rows, width = mask.shape
    last = last_slot(mask)
    value, credit = np.zeros(rows), np.zeros(rows)  # of the state and the token that come next
    for t in range(width - 1, -1, -1):
        r, v, chosen = c.rewards[:, t], c.values[:, t], mask[:, t]
        step = r + gamma * value - v + decay * credit
        expected[:, t] = np.where(chosen, step, 0.0)
        if not chosen.all():
            hole, after = ~chosen & (t < last), (t > last) if end == "pads" else (t == last + 1)
            if holes == "raw":
                value, credit = np.where(hole, v, value), np.where(hole, step, credit)
            elif holes == "zero":
                value, credit = np.where(hole, 0.0, value), np.where(hole, gamma * value + decay * credit, credit)
            elif holes == "cut":
                value, credit = np.where(hole, 0.0, value), np.where(hole, 0.0, credit)
            if end == "value":
                value = np.where(after, v, value)
            elif end != "end":
                value, credit = np.where(after, v, value), np.where(after, step, credit)
        value, credit = np.where(chosen, v, value), np.where(chosen, c.advantages[:, t], credit)
    return expected


def neighbours(mask: Bools) -> Bools:
    """Chosen tokens whose next slot is chosen too."""
    pairs = np.zeros_like(mask)
    pairs[:, :-1] = mask[:, :-1] & mask[:, 1:]
    return pairs


@dataclass(frozen=True)
class Discount:
    """γ, γλ, and the root mean square of what they leave unexplained, relative to the numbers' own."""

    gamma: float
    decay: float
    residual: float

    @property
    def lam(self) -> float:
        return self.decay / self.gamma if self.gamma else 0.0


def fit_discount(
    c: Columns, pairs: Bools, fixed: tuple[float, float] | None = None, known_gamma: float = 1.0
) -> Discount:
    """γ and γλ from A_t − r_t + V_t = γ·V_{t+1} + γλ·A_{t+1} on neighbouring chosen tokens.

    `known_gamma` is taken where γ cannot be seen; `fixed` only asks how well those two fit.
    """
    here = pairs[:, :-1]
    y = (c.advantages - c.rewards + c.values)[:, :-1][here]
    design = np.stack([c.values[:, 1:][here], c.advantages[:, 1:][here]], axis=1)
    own = np.stack([c.advantages[:, :-1][here], c.values[:, :-1][here]])
    size = np.sqrt(np.mean(np.square(own))) if len(y) else 0.0
    if len(y) < 4 or size == 0:
        return Discount(np.nan, np.nan, np.nan)
    if fixed is None and np.abs(design[:, 0]).max() <= 1e-6 * np.abs(design[:, 1]).max():
        # a value head that still says 0 everywhere: γ cannot be seen, only γλ
        ahead = design[:, 1]
        fixed = known_gamma, float(ahead @ y / (ahead @ ahead))
    gamma, decay = np.linalg.lstsq(design, y, rcond=None)[0] if fixed is None else fixed
    left = y - design @ np.array([gamma, decay])
    return Discount(float(gamma), float(decay), float(np.sqrt(np.mean(left * left)) / size))


def round_discount(c: Columns, pairs: Bools, found: Discount) -> Discount:
    """The same with γ and λ rounded to what a person would write, when that fits as well."""
    for digits in (2, 3, 4):
        gamma = round(found.gamma, digits)
        lam = round(found.decay / gamma, digits) if gamma else 0.0
        rounded = fit_discount(c, pairs, (gamma, gamma * lam))
        if rounded.residual <= max(1.5 * found.residual, 1e-6):
            return rounded
    return found
