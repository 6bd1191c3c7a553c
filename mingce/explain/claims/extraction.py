"""From statements to facts: what each list, number and equation of a text is about."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mingce.explain.claims.chains import Chain, chains
from mingce.explain.claims.expressions import (
    HOLE,
    Binary,
    Call,
    Listing,
    Node,
    Symbol,
    evaluate,
    literals,
    shown,
    symbols,
)
from mingce.explain.claims.names import (
    COLUMN_KINDS,
    SETTING_KINDS,
    STATISTIC_KINDS,
    is_monte_carlo,
    label_kind,
    label_kinds,
)
from mingce.explain.claims.prose import label_settings, prose_facts, slot_of, stated_settings
from mingce.explain.claims.quantities import Equation, Fact, Row, Scalar, Series, Setting, Where
from mingce.explain.claims.reading import Passage, Statement
from mingce.explain.claims.tables import Table, item, table_at

_DOUBTFUL = re.compile(
    r"错误(?:做法|示例|示范|算法|的算法|写法|答案|结果)?|❌|反例"
    r"|(?<![a-z])(?<!get )(?<!go )(?<!get it )(?:wrong(?:ly)?|incorrect(?:ly)?|mistaken(?:ly)?|buggy)(?![a-z])",
    re.I,
)
_SUPPOSED = re.compile(
    r"如果|假如|若|换成|改成|改为|换做|设想|想象|(?<![a-z])(?:if|suppose|imagine|instead|what if|had)(?![a-z])", re.I
)
_WHITENING = re.compile(r"whiten|白化|标准化|归一化|normali[sz]", re.I)
_MISTAKEN = re.compile(r"错|误(?!差)|wrong|incorrect|shifted|off by one", re.I)
_TIMES = re.compile(r"\s{0,2}(?:times|次|倍)")
_WHITENED_MARK = re.compile(r"(?<!un)(?:whitened|normali[sz]ed)|(?<!未)白化后|white|标准化后|norm", re.I)
_INTERVAL = re.compile(r"(?:∈|\bin|within|between|范围|区间|属于|介于|之间)\W{0,4}$", re.ASCII)
_WITH_SETTING = re.compile(
    r"(?:\b(?:with|at|for)|取|当|若|用)\s?(?:λ|γ|lam(?:bda)?|gamma)[^,，。;；:\[\]]{1,40}$", re.I
)
_SETTING_TEXT = re.compile(r"[γλβ]|gamma|lam(?:bda)?|beta|[\d.=]")
MOST_LETTERS, MOST_LETTERS_IN_FRONT = 3, 8
"""How much may be said directly before a list, and in its line, for the line before to tell what it is of."""
_ECHOED = re.compile(r"(?:[>.]{1,3}|In \[?\d*\]?:)?\s*(?:print\()?[A-Za-z_][\w.]*(?:\.\w+\([^()]{0,20}\))?\)?")
"""A name alone, as an interpreter is asked for it: what follows is its value."""
_THEREFORE = re.compile(
    r"(?:\b(?:we get|get|gives?|giving|yields?|is|are|obtain)|得到?|结果[是为]?|于是[是为有]?|所以[是为]?|[是为])\W*$",
    re.I,
)
_HAS_DIGIT = re.compile(r"[0-9]")
_HAS_CHAIN = re.compile(r"[=≈\[]")


def facts(passage: Passage) -> Iterator[Fact]:
    """Every fact of a passage in the order of the text."""
    at = 0
    while at < len(passage.statements):
        table = table_at(passage.statements, at)
        if table is not None:
            yield from _table_facts(passage, table)
            at = table.end
        else:
            yield from _statement_facts(passage, at)
            at += 1


def list_rows(listing: Listing) -> tuple[tuple[Row, ...], int | None]:
    """A list's rows (one, or those of a list of lists) and where its dots stand; no rows if it holds no numbers."""
    if listing.items and all(isinstance(node, Listing) for node in listing.items):
        rows = [list_rows(node) for node in listing.items if isinstance(node, Listing)]
        if len(rows) == 1:
            return rows[0]
        plain = all(gap is None and len(row) == 1 for row, gap in rows)
        return (tuple(row[0] for row, _ in rows) if plain else ()), None
    row = tuple(item(node) for node in listing.items)
    read = all(number is not None or node is HOLE for number, node in zip(row, listing.items, strict=True))
    return ((row,), listing.gap) if len(row) > 1 and read and any(row) else ((), None)


def _where(passage: Passage, statement: Statement, offset: int = 0, doubtful: bool = False) -> Where:
    supposed = _SUPPOSED.search(statement.text) is not None and not label_settings(statement.text)
    return passage.where(statement, offset, doubtful, supposed)


# ── tables ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _table_facts(passage: Passage, table: Table) -> Iterator[Fact]:
    kinds = [column.kind for column in table.columns]
    for column in table.columns:
        if column.kind in COLUMN_KINDS:
            settings = label_settings(column.label)
            places = tuple(_where(passage, statement) for statement in column.statements)
            variant = kinds.count(column.kind) > 1 and not settings
            yield Series(
                column.kind, (column.numbers,), min(places, key=lambda place: place.line), None, settings,
                is_monte_carlo(column.label), variant=variant or column.skipped, places=places, holes=column.holes,
                hatted=column.hatted,
            )  # fmt: skip
        for statement, chain in zip(column.statements, column.chains, strict=True):
            if chain is not None:
                yield Equation(chain, _where(passage, statement))
    for cell, statement in table.others:
        line = _Line((statement,), 0, cell, _where(passage, statement))
        yield from (fact for fact in map(line.fact, chains(cell)) if isinstance(fact, Scalar | Equation))
    for label, listing, statement in table.lists:
        kind = label_kind(label, first=True)
        rows, gap = list_rows(listing)
        if kind and rows:
            settings, where = label_settings(label), _where(passage, statement)
            yield Series(kind, rows, where, gap, settings, is_monte_carlo(label), holes=None in rows[0])


# ── lines ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _statement_facts(passage: Passage, at: int) -> Iterator[Fact]:
    statement, text = passage.statements[at], passage.statements[at].text
    if not _HAS_DIGIT.search(text) and "=" not in text:
        return
    before = passage.statements[at - 1].text if at else ""
    announced = len(before) < 60 and not before.rstrip().endswith((".", "。", "!", "！")) and _DOUBTFUL.search(before)
    doubtful = bool(_DOUBTFUL.search(text) or announced)
    where = _where(passage, statement, 0, doubtful)
    yield from stated_settings(text, where)
    last_list: Row | None = None
    listed: list[tuple[int, Row]] = []
    unnamed: set[int] = set()
    formula: tuple[str, int] | None = None
    for chain in chains(text) if _HAS_CHAIN.search(text) else ():
        here = where if len(statement.parts) == 1 else _where(passage, statement, chain.starts[-1], doubtful)
        fact = _Line(passage.statements, at, text, here, slot_of(text), last_list, formula).fact(chain)
        formula = None if (defined := _formula_kind(chain)) is None else (defined, chain.end)
        if isinstance(fact, Series):
            last_list = fact.rows[0]
            fact = replace(fact, variant=fact.variant or fact.width in unnamed)
        elif isinstance(chain.sides[-1], Listing):
            rows, _ = list_rows(chain.sides[-1])
            last_list = rows[0] if rows else last_list
            unnamed |= {len(row) for row in rows}
        if last_list is not None:
            listed.append((chain.end, last_list))
        if fact is not None:
            yield fact
    if _HAS_DIGIT.search(text):
        yield from prose_facts(statement, where, listed)


@dataclass(frozen=True)
class _Line:
    """The line, or cell of a table, in which a chain stands; `slot` is the token it is about."""

    statements: Sequence[Statement]
    at: int
    text: str
    where: Where
    slot: int | None = None
    last_list: Row | None = None
    formula: tuple[str, int] | None = None
    """What the formula in front, without numbers of its own, is for, and where it ends."""

    def fact(self, chain: Chain) -> Fact | None:
        """What a chain says."""
        subject = next((side for side in chain.sides if isinstance(side, Symbol) and side.kind), None)
        listings = [side for side in chain.sides if isinstance(side, Listing)]
        if listings:
            return self._series(chain, listings, subject)
        first, number = chain.sides[0], shown(chain.sides[-1])
        arithmetic = Equation(chain, self.where) if _is_arithmetic(chain) else None
        if isinstance(first, Call) and first.name in STATISTIC_KINDS and number is not None:
            return Equation(chain, self.where, first.name)
        if subject is None or subject.kind is None:
            return arithmetic
        if subject.kind in SETTING_KINDS:
            return self._setting(chain)
        if subject.kind == "values" and subject.letter == "T" and number is not None:
            return Setting("after", number.value, self.where)
        if subject.kind in STATISTIC_KINDS:
            return Equation(chain, self.where, subject.kind) if number and not subject.mark else None
        if number is None or subject.kind not in COLUMN_KINDS:
            return self._implied(chain) or arithmetic
        index = self.slot if subject.index is None else subject.index
        if index is None or index < 0:
            return arithmetic
        if subject.kind == "advantages" and any(_is_standardised(side) for side in chain.sides):
            return Equation(chain, self.where)
        monte_carlo = subject.name == "G" or is_monte_carlo(subject.mark) or _from_return(chain)
        return Scalar(subject.kind, index, number, self.where, subject.from_zero, subject.settings, monte_carlo, chain)

    def _setting(self, chain: Chain) -> Setting | None:
        """γ of γ = λ = 1 (the other one is found by its own pattern)."""
        first, number = chain.sides[0], shown(chain.sides[-1])
        if number is None or not isinstance(first, Symbol) or first.kind is None or len(chain.sides) < 3:
            return None
        return Setting(first.kind, number.value, self.where)

    def _implied(self, chain: Chain) -> Setting | None:
        """A_t = δ_t says λ = 0; A_t = G_t − V_t says λ = 1."""
        first, second = chain.sides[0], chain.sides[1]
        if not isinstance(first, Symbol) or first.kind != "advantages" or len(chain.sides) != 2:
            return None
        if isinstance(second, Symbol) and second.kind == "deltas" and second.letter == first.letter:
            return Setting("lam", 0.0, self.where, implied=True)
        return Setting("lam", 1.0, self.where, implied=True) if _from_return(chain) else None

    # ── lists ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _series(self, chain: Chain, listings: Sequence[Listing], subject: Symbol | None) -> Series | None:
        rows, gap = list_rows(listings[-1])
        if not rows or (len(chain.sides) == 1 and (listings[-1].round or _INTERVAL.search(chain.before))):
            return None
        if subject is None and chain.before.rstrip().endswith("→") and self.last_list is not None:
            near = " ".join(s.text for s in self.statements[max(0, self.at - 3) : self.at + 1])
            whitened = _WHITENING.search(near + self.statements[self.at].heading) and len(rows) == 1
            same = len(self.last_list) == len(rows[0])
            holes = None in rows[0]
            found = Series("whitened", rows, self.where, gap, source=self.last_list, holes=holes)
            return found if whitened and same else None
        kinds, label = self._list_kinds(chain, subject)
        kinds = [kind for kind in dict.fromkeys(reversed(kinds)) if kind in COLUMN_KINDS]
        if not kinds or _TIMES.match(self.text, chain.end):
            return None
        before = [list_rows(listing) for listing in listings[:-1]]
        clause = _WITH_SETTING.search(self.text[: chain.starts[0]][-80:])
        settings = dict(label_settings(clause[0] if clause else "")) | dict(label_settings(label))
        settings |= dict(subject.settings if subject else ())
        monte_carlo = is_monte_carlo(label) or (subject is not None and (subject.name == "G" or _from_return(chain)))
        return Series(
            kinds[0], rows, self.where, gap, tuple(settings.items()), monte_carlo, tuple(kinds[1:]),
            variant=_MISTAKEN.search(chain.before[-16:]) is not None, holes=None in rows[0],
            sums=tuple(row[0] for row, dots in before if row and dots == gap and len(row[0]) == len(rows[0])),
        )  # fmt: skip

    def _list_kinds(self, chain: Chain, subject: Symbol | None) -> tuple[list[str], str]:
        """What a list may be of, the likeliest last, and the words that say so."""
        if subject is not None:
            label = f"{chain.before} {subject.name} {subject.mark}"
            if subject.kind == "advantages" and _WHITENED_MARK.search(f"{subject.mark} {chain.before}"):
                return ["whitened"], label
            return [subject.kind or ""], label
        named = chain.sides[0] if isinstance(chain.sides[0], Symbol) else None
        if named is not None and named.mark:
            return [], named.name  # as G^{(n)}, of n steps
        label = f"{chain.before.rstrip()} {named.name.replace('_', ' ')}" if named else chain.before
        kinds = label_kinds(label) or (["returns", "advantages"] if is_monte_carlo(label) else [])
        front = self.text[: chain.starts[0]]
        if self.formula and _THEREFORE.search(front) and not label_kinds(front[self.formula[1] :]):
            return [self.formula[0]], ""
        if kinds or _letters(label) > MOST_LETTERS or _letters(front) > MOST_LETTERS_IN_FRONT:
            return kinds, label
        return self._kinds_before(label)

    def _kinds_before(self, label: str) -> tuple[list[str], str]:
        """What a bare list is of by the statement in front of it."""
        previous = self.statements[self.at - 1] if self.at else None
        far = previous is None or self.statements[self.at].line - previous.parts[-1][1] > 2
        if previous is None or far or len(previous.text) > 160:
            return [], label
        for earlier in chains(previous.text):
            first = earlier.sides[0]
            if isinstance(first, Symbol) and first.kind in COLUMN_KINDS and not _has_list(earlier):
                return [first.kind or ""], previous.text
        if _ECHOED.fullmatch(previous.text.strip()):
            return label_kinds(previous.text.replace("_", " "))[-1:], previous.text
        announces = previous.text.rstrip().endswith((":", "=", "为", "是", "are", "is"))
        if announces or previous.heading == previous.text.strip("# "):
            return label_kinds(previous.text)[-1:], previous.text
        return [], label


def _formula_kind(chain: Chain) -> str | None:
    """The column that a formula of symbols defines: `R_t = A_t + V(s_t)`."""
    first = chain.sides[0]
    if not isinstance(first, Symbol) or first.kind not in COLUMN_KINDS or first.index is not None:
        return None
    plain = not _has_list(chain) and all(evaluate(side) is None for side in chain.sides)
    return first.kind if plain and len(chain.sides) > 1 else None


def _letters(text: str) -> int:
    """How many letters words have, those of settings left out."""
    return len(re.findall(r"\w", _SETTING_TEXT.sub("", text)))


def _has_list(chain: Chain) -> bool:
    return any(isinstance(side, Listing) for side in chain.sides)


def _from_return(chain: Chain) -> bool:
    """True for A_0 = G_0 − V_0: an advantage from the Monte Carlo return."""
    return any(symbol.name == "G" for side in chain.sides[1:] for symbol in symbols(side))


def _is_standardised(side: Node) -> bool:
    """True for (0.395 − 0.5499)/0.0865: what follows is a whitened number."""
    return (
        isinstance(side, Binary)
        and side.operator == "/"
        and isinstance(side.left, Binary)
        and side.left.operator == "-"
    )


def _is_arithmetic(chain: Chain) -> bool:
    """True if two sides can be compared and it is no sum of whole numbers, as a prompt may hold."""
    valued = [side for side in chain.sides if evaluate(side) is not None]
    sums = [side for side in valued if shown(side) is None]
    return len(valued) > 1 and bool(sums) and any(n.decimals > 0 for side in valued for n in literals(side))
