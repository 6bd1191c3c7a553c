"""What a derivation is, and the parts that its quantities are described by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mingce.base.texts import sentence
from mingce.explain.code_refs import CodeRef
from mingce.explain.derive.sheet import Sheet
from mingce.specs.facts import SMALL


@dataclass(frozen=True)
class Derivation:
    """A number with the way to it: the formula, the same with numbers, the result, and what it says.

    `t` is None for a number of the whole row, and for a column derived at every token: then `results` has its numbers
    by slot and `result` is None. `columns` are those the numbers come from.
    """

    quantity: str
    t: int | None
    title: str
    formula: str
    lines: tuple[str, ...]
    result: float | None
    reading: str
    code: tuple[CodeRef, ...] = ()
    columns: tuple[str, ...] = ()
    results: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Work:
    """The arithmetic of one token, or of the row: its lines, what comes out, and a sentence on it.

    `own` is the line of the token itself, without those that lead up to it.
    """

    lines: tuple[str, ...]
    result: float
    reading: str
    own: str = ""


@dataclass(frozen=True)
class Quantity:
    """Something that can be asked for by name, at a token or of the row; `work` gives None where inputs are missing.

    The last argument of `work` is the number in `n_step(3)`; `columns` are those it is computed from.
    """

    name: str
    symbol: str
    formula: Callable[[Sheet, str], str]
    work: Callable[[Sheet, int, str, int | None], Work | None]
    code: Callable[[Sheet], tuple[str, ...]]
    columns: tuple[str, ...] = ()
    of_row: bool = False


def sign_of(x: float) -> str:
    """positive | negative | zero, as the account says it."""
    return "zero" if abs(x) < SMALL else ("positive" if x > 0 else "negative")


def by_sign(key: str, x: float, lang: str, /, **values: object) -> str:
    """The sentence `derive.<key>_<sign>`."""
    return sentence(f"derive.{key}_{sign_of(x)}", lang, **values)
