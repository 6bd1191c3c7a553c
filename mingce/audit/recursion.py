"""One step of A_t = r_t + γV' − V_t + γλA' at a time, V' and A' taken from the dump, and the γ and λ that it shows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mingce.audit.evidence import Bools, Floats, Ints, last_slot


@dataclass(frozen=True)
class Columns:
    """What a recursion reads: rewards, values and advantages [B, T], finite everywhere."""

    rewards: Floats
    values: Floats
    advantages: Floats


COLLINEAR = 1e5
HOLES = ("skip", "zero", "raw", "cut")  # what a step over tool tokens does
ENDS = ("end", "value", "slot", "pads")  # what follows the last chosen token: nothing, V[e+1], slot e+1, all pads


def one_step(c: Columns, mask: Bools, gamma: float, decay: float, holes: str, end: str) -> Floats:
    """[B, T] the advantage each chosen token should have, given the dumped advantage of the next chosen one."""
    if (holes, end) == ("skip", "end"):
        later = gamma * following(c.values, mask) + decay * following(c.advantages, mask)
        return np.where(mask, c.rewards + later - c.values, 0.0)
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


def of_next_row(c: Columns, mask: Bools, gamma: float, decay: float, by: int = 1) -> Floats:
    """[B] what a row's last token would get if the recursion went on into the next row (by = 1), or the one before."""
    rows = np.flatnonzero(mask.any(axis=1))
    leaked = np.zeros(len(mask))
    first = mask.argmax(axis=1)
    here, there = (rows[:-1], rows[1:]) if by == 1 else (rows[1:], rows[:-1])
    leaked[here] = gamma * c.values[there, first[there]] + decay * c.advantages[there, first[there]]
    return leaked


def following(column: Floats, mask: Bools) -> Floats:
    """[B, T] what the column holds at the next chosen slot; 0 where there is none."""
    rows, width = mask.shape
    slots = np.where(mask, np.arange(width), width)
    ahead: Ints = np.full((rows, width), width)
    ahead[:, :-1] = np.minimum.accumulate(slots[:, ::-1], axis=1)[:, ::-1][:, 1:]
    padded = np.concatenate([column, np.zeros((rows, 1))], axis=1)
    found: Floats = np.take_along_axis(padded, ahead, axis=1)
    return found


def neighbours(mask: Bools) -> Bools:
    """Chosen tokens whose next slot is chosen too."""
    pairs = np.zeros_like(mask)
    pairs[:, :-1] = mask[:, :-1] & mask[:, 1:]
    return pairs


@dataclass(frozen=True)
class Discount:
    """γ, γλ, their standard errors, and what they leave unexplained: its root mean square in units of the rounding."""

    gamma: float
    decay: float
    residual: float
    errors: tuple[float, float] = (0.0, 0.0)

    @property
    def lam(self) -> float:
        return self.decay / self.gamma if self.gamma else 0.0

    @property
    def fits(self) -> bool:
        """Whether what is left may be rounding; not where nothing could be judged."""
        return self.residual <= 1.0

    @property
    def plausible(self) -> bool:
        """Whether a person may have set these: 0 ≤ γ ≤ 1, 0 ≤ λ ≤ 1, as far as they can be seen."""
        far, near = (0.01 + 4 * error for error in self.errors)
        return -far <= self.gamma <= 1 + far and -near - 0.01 <= self.decay <= self.gamma + far + near


def fit_discount(
    c: Columns, pairs: Bools, room: Floats, fixed: tuple[float | None, float | None] = (None, None), unseen: float = 1.0
) -> Discount:
    """γ and γλ from A_t − r_t + V_t = γ·V_{t+1} + γλ·A_{t+1} on neighbouring chosen tokens.

    `room` is how far rounding may have moved each step. What is `fixed` is only asked how well it fits; γ = `unseen`
    where it cannot be seen.
    """
    here = pairs[:, :-1]
    weight = 1 / np.maximum(room[:, :-1][here], 1e-300)
    y = (c.advantages - c.rewards + c.values)[:, :-1][here] * weight
    ahead = [column[:, 1:][here] * weight for column in (c.values, c.advantages)]
    if len(y) < 4 or not (c.advantages[pairs].any() or c.values[pairs].any()):
        return Discount(np.nan, np.nan, np.nan)
    if fixed[0] is None and np.abs(ahead[0]).max() <= 1e-6 * np.abs(ahead[1]).max():
        fixed = unseen, fixed[1]  # a value head that still says 0 everywhere: γ cannot be seen, only γλ
    free = [k for k in (0, 1) if fixed[k] is None]
    known = sum((ahead[k] * float(fixed[k] or 0.0) for k in (0, 1) if k not in free), np.zeros_like(y))
    found, errors = [fixed[0] or 0.0, fixed[1] or 0.0], [0.0, 0.0]
    left = y - known
    if free:
        design = np.stack([ahead[k] for k in free], axis=1)
        if len(free) == 2 and np.linalg.cond(design) > COLLINEAR:  # A = −V, nothing being earned: γ and γλ show as one
            same = fit_discount(c, pairs, room, (unseen, unseen))
            if same.fits:
                return same
        solution = np.linalg.lstsq(design, left, rcond=None)[0]
        left = left - design @ solution
        unsure = np.sqrt(np.diag(np.linalg.pinv(design.T @ design)) * float(np.mean(left * left)))
        for k, value, error in zip(free, solution, unsure, strict=True):
            found[k], errors[k] = float(value), float(error)
    residual = float(np.sqrt(np.mean(left * left)))
    return Discount(float(found[0]), float(found[1]), residual, (errors[0], errors[1]))


def round_discount(c: Columns, pairs: Bools, room: Floats, found: Discount) -> Discount:
    """The same with γ and λ rounded to what a person would write, when that fits as well: γ = 1 before others."""
    enough = max(1.1 * found.residual, 0.1)
    undiscounted = fit_discount(c, pairs, room, (1.0, None))
    for near in (undiscounted, found):
        if near.residual > enough:
            continue
        for digits in (2, 3, 4):
            gamma = round(near.gamma, digits)
            lam = round(near.decay / gamma, digits) if gamma else 0.0
            rounded = fit_discount(c, pairs, room, (gamma, gamma * lam))
            if rounded.residual <= enough:
                return Discount(rounded.gamma, rounded.decay, rounded.residual, found.errors)
    return found
