"""What a text says in numbers: lists (Series), single numbers with an index (Scalar), settings, and sums (Equation)."""

from __future__ import annotations

from dataclasses import dataclass

from mingce.explain.claims.chains import Chain
from mingce.explain.claims.expressions import Number

Row = tuple[Number | None, ...]
Settings = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Where:
    """A place in the text. `quote` is the file's own line; `doubtful` if the text itself calls it a wrong example,
    `supposed` if it says "if" without giving settings."""

    question: int
    by_user: bool | None
    section: int
    line: int
    quote: str
    heading: str = ""
    doubtful: bool = False
    supposed: bool = False


@dataclass(frozen=True)
class Series:
    """A list of numbers of one kind, one row per response. `gap`: where the dots stand in its only row.

    `variant` if it may be of another kind or case, as its label names several: it can be right but not wrong. `source`
    is the list that an arrow turns into this one; `sums` are the lists in front of it in the same chain; `places` is
    where each number stands, if not all in one line; `holes` if what is missing are tokens that nobody chose.
    `hatted` if the heading of its table is Â, written on advantages that are estimated and on whitened ones.
    """

    kind: str
    rows: tuple[Row, ...]
    where: Where
    gap: int | None = None
    settings: Settings = ()
    monte_carlo: bool = False
    other_kinds: tuple[str, ...] = ()
    variant: bool = False
    source: Row | None = None
    sums: tuple[Row, ...] = ()
    places: tuple[Where, ...] = ()
    holes: bool = False
    hatted: bool = False

    @property
    def width(self) -> int:
        return len(self.rows[0])

    @property
    def whole(self) -> bool:
        """True if no number is missing, or only those of tokens that nobody chose."""
        return self.gap is None and (self.slots is not None or all(None not in row for row in self.rows))

    @property
    def slots(self) -> tuple[int, ...] | None:
        """Where the numbers of a list with holes stand."""
        return tuple(t for t, number in enumerate(self.rows[0]) if number is not None) if self.holes else None

    @property
    def values(self) -> tuple[tuple[float, ...], ...]:
        """The numbers of a whole series, holes left out."""
        return tuple(tuple(number.value for number in row if number is not None) for row in self.rows)


@dataclass(frozen=True)
class Scalar:
    """One number of a column, by its index as written; `from_zero` if the index is code's."""

    kind: str
    index: int
    number: Number
    where: Where
    from_zero: bool = False
    settings: Settings = ()
    monte_carlo: bool = False
    chain: Chain | None = None


@dataclass(frozen=True)
class Setting:
    """γ, λ, β or a KL that holds for every token. `implied` if a formula says it, as A_t = δ_t says λ = 0."""

    name: str
    value: float
    where: Where
    implied: bool = False


@dataclass(frozen=True)
class Equation:
    """A chain with numbers in it that is about no column's index: plain arithmetic, a mean, a deviation."""

    chain: Chain
    where: Where
    statistic: str | None = None


@dataclass(frozen=True)
class Share:
    """ "token 3: +0.33 (90% of the last reward)"."""

    index: int
    percent: Number
    where: Where


Claim = Series | Scalar
Fact = Series | Scalar | Setting | Equation | Share
