"""Formulae with a claim's right numbers put in: `A_5 = δ_5 + γλ·A_6 = 0.14 + 0.95·0.39 = 0.5105`."""

from __future__ import annotations

from mingce.base.numbers import rounded
from mingce.explain.claims.expected import Reading
from mingce.explain.claims.truth import Rows

_TEMPLATES = {
    "last": "{name}_{n} = r_{n} − V_{n} = {r} − {v} = {here}",
    "delta": "{name}_{n} = r_{n} + γ·V_{m} − V_{n} = {r} + {gamma}·{next_v} − {v} = {here}",
    "advantage": "A_{n} = δ_{n} + γλ·A_{m} = {delta} + {decay}·{next} = {here}",
    "return": "R_{n} = A_{n} + V_{n} = {a} + {v} = {here}",
    "from_deltas": "A_{n} = δ_{n} + γλ·A_{m} = {own} + {decay}·{next} = {here}",
    "reward_to_go": "G_{n} = r_{n} + γ·G_{m} = {own} + {decay}·{next} = {here}",
    "last_reward": "G_{n} = r_{n} = {here}",
    "return_minus_value": "A_{n} = R_{n} − V_{n} = {here}",
    "advantage_plus_value": "R_{n} = A_{n} + V_{n} = {here}",
    "score_minus_kl": "r_{n} = score_{n} − β·KL_{n} = {here} (β = {beta})",
    "k1": "KL_{n} = log π_old(a_{n}) − log π_ref(a_{n}) = {here}",
    "exp": "π(a_{n}) = exp(log π(a_{n})) = {here}",
    "ratio": "ρ_{n} = exp(log π_new(a_{n}) − log π_old(a_{n})) = {here}",
}


def show(number: float, decimals: int = 4) -> str:
    """A number with four decimals, fewer if they are zeros, more if it is very small; rounded as everywhere."""
    if number and abs(number) < 10.0 ** (1 - decimals):
        return f"{number:.3g}"
    text = rounded(number, decimals)
    return text.rstrip("0").rstrip(".") if "." in text else text


def show_rows(rows: Rows, decimals: int = 4) -> str:
    """A column as a list; long ones are cut."""
    lists = [
        "[" + ", ".join(show(x, decimals) for x in row[:64]) + (", …" if len(row) > 64 else "") + "]" for row in rows
    ]
    return lists[0] if len(lists) == 1 else "[" + ", ".join(lists) + "]"


def bracketed(number: float) -> str:
    """A number as it stands after an operator."""
    return f"({show(number)})" if number < 0 else show(number)


def formula(reading: Reading, kind: str, row: int, t: int, base: int, following: float | None = None) -> str:
    """How token t of a column comes about under a reading; `base` is what the text calls the first token.

    `following` is the text's own advantage of the next token, where it is to go on from that.
    """
    column = reading.rows[kind][row]
    last = t + 1 == len(column)
    here = column[t]
    if following is not None:
        here = reading.rows["deltas"][row][t] + reading.gamma * reading.lam * following
    else:
        following = 0.0 if last else column[t + 1]
    decay = reading.settings.get("gamma", 1.0) * (1.0 if reading.how == "reward_to_go" else reading.lam)
    slots = reading.slots or tuple(range(len(column)))
    parts = {
        "n": slots[t] + base, "m": (slots[t] + 1 if last else slots[t + 1]) + base,
        "here": show(here), "next": bracketed(following),
        "decay": show(decay), "own": show(column[t] - decay * following), "gamma": show(reading.gamma),
        "beta": show(reading.settings.get("beta", 0.0)), "name": "δ" if kind == "deltas" else "A",
    }  # fmt: skip
    how = reading.how
    if how == "recursion":
        next_value = reading.after[row] if last else reading.rows["values"][row][t + 1]
        names = {"r": "rewards", "delta": "deltas", "a": "advantages"}
        parts |= {name: show(reading.rows[one][row][t]) for name, one in names.items()}
        parts |= {"v": bracketed(reading.rows["values"][row][t]), "next_v": bracketed(next_value)}
        if kind == "deltas" or (kind == "advantages" and last):
            how = "last" if last and not next_value else "delta"
        else:
            how = kind.removesuffix("s")
    elif how == "reward_to_go" and last:
        how = "last_reward"
    return _TEMPLATES[how].format(**parts) if how in _TEMPLATES else ""
