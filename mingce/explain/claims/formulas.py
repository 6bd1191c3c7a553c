"""Formulae with a claim's right numbers put in: `A_5 = δ_5 + γλ·A_6 = 0.14 + 0.95·0.39 = 0.5105`."""

from __future__ import annotations

from mingce.explain.claims import truth
from mingce.explain.claims.expected import Expected
from mingce.explain.claims.truth import Rows


def show(number: float, decimals: int = 4) -> str:
    """A number with four decimals, fewer if they are zeros, more if it is very small."""
    if number and abs(number) < 10.0 ** (1 - decimals):
        return f"{number:.3g}"
    text = f"{number:.{decimals}f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def show_rows(rows: Rows, decimals: int = 4) -> str:
    """A column as a list; long ones are cut."""
    shown = [
        "[" + ", ".join(show(x, decimals) for x in row[:64]) + (", …" if len(row) > 64 else "") + "]" for row in rows
    ]
    return shown[0] if len(shown) == 1 else "[" + ", ".join(shown) + "]"


def bracketed(number: float) -> str:
    """A number as it stands after an operator."""
    return f"({show(number)})" if number < 0 else show(number)


def formula(reading: Expected, row: int, t: int, base: int) -> str:
    """How token t of a column comes about under a reading; `base` is what the text calls the first token."""
    n, settings, rows = t + base, reading.settings, reading.rows
    here = show(rows[row][t])
    gamma, lam = settings.get("gamma", 1.0), settings.get("lam", 1.0)
    given = reading.inputs
    if given is not None:
        credit = truth.credit(given.rewards, given.values, gamma, lam, given.after)
        last = t + 1 == len(rows[row])
        if reading.kind == "deltas" or (reading.kind == "advantages" and last):
            r, v = given.rewards[row][t], given.values[row][t]
            following = given.after[row] if last else given.values[row][t + 1]
            name = "δ" if reading.kind == "deltas" else "A"
            if last and not following:
                return f"{name}_{n} = r_{n} − V_{n} = {show(r)} − {bracketed(v)} = {here}"
            return (
                f"{name}_{n} = r_{n} + γ·V_{n + 1} − V_{n} = "
                f"{show(r)} + {show(gamma)}·{bracketed(following)} − {bracketed(v)} = {here}"
            )
        if reading.kind == "advantages":
            delta, following = credit["deltas"][row][t], credit["advantages"][row][t + 1]
            return f"A_{n} = δ_{n} + γλ·A_{n + 1} = {show(delta)} + {show(gamma * lam)}·{bracketed(following)} = {here}"
        return (
            f"R_{n} = A_{n} + V_{n} = {show(credit['advantages'][row][t])} + {bracketed(given.values[row][t])} = {here}"
        )
    match reading.how:
        case "from_deltas" if t + 1 < len(rows[row]):
            following = rows[row][t + 1]
            delta = rows[row][t] - gamma * lam * following
            return f"A_{n} = δ_{n} + γλ·A_{n + 1} = {show(delta)} + {show(gamma * lam)}·{bracketed(following)} = {here}"
        case "reward_to_go" if t + 1 < len(rows[row]):
            following = rows[row][t + 1]
            r = rows[row][t] - gamma * following
            return f"G_{n} = r_{n} + γ·G_{n + 1} = {show(r)} + {show(gamma)}·{bracketed(following)} = {here}"
        case "reward_to_go":
            return f"G_{n} = r_{n} = {here}"
        case "return_minus_value":
            return f"A_{n} = R_{n} − V_{n} = {here}"
        case "advantage_plus_value":
            return f"R_{n} = A_{n} + V_{n} = {here}"
        case "score_minus_kl":
            return f"r_{n} = score_{n} − β·KL_{n} = {here} (β = {show(settings['beta'])})"
        case "k1":
            return f"KL_{n} = log π_old(a_{n}) − log π_ref(a_{n}) = {here}"
        case "exp":
            return f"π(a_{n}) = exp(log π(a_{n})) = {here}"
        case "ratio":
            return f"ρ_{n} = exp(log π_new(a_{n}) − log π_old(a_{n})) = {here}"
    return ""
