"""From statements to facts: what each list, number and equation of a text is about."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from mingce.explain.claims.chains import Chain, chains
from mingce.explain.claims.expressions import (
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
from mingce.explain.claims.facts import Equation, Fact, Row, Scalar, Series, Setting, Where
from mingce.explain.claims.names import (
    COLUMN_KINDS,
    SETTING_KINDS,
    STATISTIC_KINDS,
    is_monte_carlo,
    label_kind,
    label_kinds,
)
from mingce.explain.claims.prose import label_settings, prose_facts, slot_of, stated_settings
from mingce.explain.claims.reading import Passage, Statement
from mingce.explain.claims.tables import Table, item, table_at

_DOUBTFUL = re.compile(
    r"错误(?:做法|示例|示范|算法|的算法|写法|答案|结果)?|❌|反例|(?<![a-z])(?:wrong(?:ly)?|incorrect(?:ly)?|mistaken(?:ly)?|buggy)(?![a-z])",
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
_HAS_DIGIT = re.compile(r"[0-9]")
_HAS_CHAIN = re.compile(r"[=≈\[]")


def facts(passage: Passage) -> Iterator[Fact]:
    """Every fact of a passage in the order of the text."""
    statements = passage.statements
    at = 0
    while at < len(statements):
        table = table_at(statements, at)
        if table is not None:
            yield from _table_facts(passage, table)
            at = table.end
            continue
        yield from _statement_facts(passage, statements, at)
        at += 1


def _where(passage: Passage, statement: Statement, offset: int = 0, doubtful: bool = False) -> Where:
    return Where(
        passage.question,
        passage.by_user,
        statement.section,
        statement.line_at(offset),
        statement.raw_line_at(offset).strip(),
        statement.heading,
        doubtful,
        _SUPPOSED.search(statement.text) is not None and not label_settings(statement.text),
    )


# ── tables ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _table_facts(passage: Passage, table: Table) -> Iterator[Fact]:
    kinds = [column.kind for column in table.columns]
    for column in table.columns:
        if column.kind in COLUMN_KINDS:
            settings = label_settings(column.label)
            places = tuple(_where(passage, statement) for statement in column.statements)
            first = min(places, key=lambda place: place.line)
            variant = kinds.count(column.kind) > 1 and not settings
            yield Series(
                column.kind,
                (column.numbers,),
                first,
                None,
                settings,
                column.monte_carlo,
                variant=variant,
                places=places,
            )
        for statement, chain in zip(column.statements, column.chains, strict=True):
            if chain is not None:
                yield Equation(chain, _where(passage, statement))
    for cell, statement in table.others:
        where = _where(passage, statement)
        for chain in chains(cell):
            found = _chain_fact(chain, cell, (statement,), 0, where, None, None)
            if isinstance(found, Scalar | Equation):
                yield found
    for label, listing, statement in table.lists:
        kind = label_kind(label, first=True)
        rows, gap = list_rows(listing)
        if kind and rows:
            yield Series(kind, rows, _where(passage, statement), gap, label_settings(label), is_monte_carlo(label))


def list_rows(listing: Listing) -> tuple[tuple[Row, ...], int | None]:
    """A list's rows (one, or those of a list of lists) and where its dots stand; no rows if it holds no numbers."""
    if listing.items and all(isinstance(node, Listing) for node in listing.items):
        rows = [list_rows(node) for node in listing.items if isinstance(node, Listing)]
        if len(rows) == 1:
            return rows[0]
        if any(gap is not None or len(row) != 1 for row, gap in rows):
            return (), None
        return tuple(row[0] for row, _ in rows), None
    row = tuple(item(node) for node in listing.items)
    if sum(number is not None for number in row) < 2 or any(number is None for number in row):
        return (), None
    return (row,), listing.gap


# ── lines ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _statement_facts(passage: Passage, statements: Sequence[Statement], at: int) -> Iterator[Fact]:
    statement = statements[at]
    text = statement.text
    if not _HAS_DIGIT.search(text) and "=" not in text:
        return
    before = _previous(statements, at)
    doubtful = bool(_DOUBTFUL.search(text) or (before and len(before.text) < 60 and _DOUBTFUL.search(before.text)))
    where = _where(passage, statement, 0, doubtful)
    yield from stated_settings(text, where)
    slot = slot_of(text)
    last_list: Row | None = None
    unnamed: set[int] = set()
    for chain in chains(text) if _HAS_CHAIN.search(text) else ():
        here = where if len(statement.parts) == 1 else _where(passage, statement, chain.starts[-1], doubtful)
        found = _chain_fact(chain, text, statements, at, here, slot, last_list)
        if isinstance(found, Series):
            last_list = found.rows[0]
            if unnamed & {found.width}:
                found = replace(found, variant=True)
        elif isinstance(chain.sides[-1], Listing):
            rows, _ = list_rows(chain.sides[-1])
            last_list = rows[0] if rows else last_list
            unnamed |= {len(row) for row in rows}
        if found is not None:
            yield found
    if _HAS_DIGIT.search(text):
        yield from prose_facts(statement, where, last_list)


def _previous(statements: Sequence[Statement], at: int) -> Statement | None:
    return statements[at - 1] if at else None


def _chain_fact(
    chain: Chain,
    text: str,
    statements: Sequence[Statement],
    at: int,
    where: Where,
    slot: int | None,
    last_list: Row | None,
) -> Fact | None:
    subject = next((side for side in chain.sides if isinstance(side, Symbol) and side.kind), None)
    listings = [side for side in chain.sides if isinstance(side, Listing)]
    if listings:
        return _series(chain, listings, subject, text, statements, at, where, last_list)
    first = chain.sides[0]
    if isinstance(first, Call) and first.name in STATISTIC_KINDS and shown(chain.sides[-1]) is not None:
        return Equation(chain, where, first.name)
    if subject is None:
        return Equation(chain, where) if _is_arithmetic(chain) else None
    assert subject.kind
    if subject.kind in SETTING_KINDS:
        return _setting(chain, where)
    number = shown(chain.sides[-1])
    if subject.kind in STATISTIC_KINDS:
        return Equation(chain, where, subject.kind) if number else None
    if number is None or subject.kind not in COLUMN_KINDS:
        return _implied(chain, where) or (Equation(chain, where) if _is_arithmetic(chain) else None)
    index, from_zero = subject.index, subject.from_zero
    if index is None:
        index = slot
    if index is None or index < 0:
        return Equation(chain, where) if _is_arithmetic(chain) else None
    if subject.kind == "advantages" and any(_is_standardised(side) for side in chain.sides):
        return Equation(chain, where)
    monte_carlo = subject.name == "G" or is_monte_carlo(subject.mark) or _from_return(chain)
    return Scalar(subject.kind, index, number, where, from_zero, subject.settings, monte_carlo, chain)


def _from_return(chain: Chain) -> bool:
    """True for A_0 = G_0 − V_0: an advantage from the Monte Carlo return."""
    return any(symbol.name == "G" for side in chain.sides[1:] for symbol in symbols(side))


def _is_standardised(side: Node) -> bool:
    """True for (0.395 − 0.5499)/0.0865: what follows is a whitened number."""
    match side:
        case Binary("/", Binary("-", _, _), _):
            return True
    return False


def _is_arithmetic(chain: Chain) -> bool:
    """True if two sides can be compared and it is no sum of whole numbers, as a prompt may hold."""
    valued = [side for side in chain.sides if evaluate(side) is not None]
    worked = [side for side in valued if shown(side) is None]
    return len(valued) > 1 and bool(worked) and any(n.decimals > 0 for side in valued for n in literals(side))


def _setting(chain: Chain, where: Where) -> Setting | None:
    """γ = 1, also γ = λ = 1 (the other one is found by its own pattern)."""
    number = shown(chain.sides[-1])
    first = chain.sides[0]
    if number is None or not isinstance(first, Symbol) or first.kind is None or len(chain.sides) < 3:
        return None
    return Setting(first.kind, number.value, where)


def _implied(chain: Chain, where: Where) -> Setting | None:
    """A_t = δ_t says λ = 0; A_t = G_t − V_t says λ = 1."""
    first = chain.sides[0]
    if not isinstance(first, Symbol) or first.kind != "advantages" or len(chain.sides) != 2:
        return None
    second = chain.sides[1]
    if isinstance(second, Symbol) and second.kind == "deltas" and second.letter == first.letter:
        return Setting("lam", 0.0, where, implied=True)
    if any(symbol.name == "G" for symbol in symbols(second)):
        return Setting("lam", 1.0, where, implied=True)
    return None


# ── lists ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _series(
    chain: Chain,
    listings: Sequence[Listing],
    subject: Symbol | None,
    text: str,
    statements: Sequence[Statement],
    at: int,
    where: Where,
    last_list: Row | None,
) -> Series | None:
    rows, gap = list_rows(listings[-1])
    if not rows or (len(chain.sides) == 1 and (listings[-1].round or _INTERVAL.search(chain.before))):
        return None
    if chain.before.rstrip().endswith("→") and last_list is not None:
        near = " ".join(s.text for s in statements[max(0, at - 3) : at + 1]) + statements[at].heading
        if len(rows) == 1 and len(last_list) == len(rows[0]) and _WHITENING.search(near):
            return Series("whitened", rows, where, gap, source=last_list)
        return None
    if _TIMES.match(text, chain.end):
        return None
    kinds, label = _list_kinds(chain, subject, statements, at)
    kinds = [kind for kind in dict.fromkeys(reversed(kinds)) if kind in COLUMN_KINDS]
    if not kinds:
        return None
    worked = [list_rows(listing) for listing in listings[:-1]]
    settings = dict(label_settings(label)) | dict(subject.settings if subject else ())
    return Series(
        kinds[0],
        rows,
        where,
        gap,
        tuple(settings.items()),
        is_monte_carlo(label) or (subject is not None and (subject.name == "G" or _from_return(chain))),
        tuple(kinds[1:]),
        variant=_MISTAKEN.search(chain.before[-16:]) is not None,
        worked=tuple(row[0] for row, dots in worked if row and dots == gap and len(row[0]) == len(rows[0])),
    )


def _list_kinds(
    chain: Chain, subject: Symbol | None, statements: Sequence[Statement], at: int
) -> tuple[list[str], str]:
    """What a list may be of, the likeliest last, and the words that say so."""
    if subject is not None:
        label = f"{chain.before} {subject.name} {subject.mark}"
        if subject.kind == "advantages" and _WHITENED_MARK.search(f"{subject.mark} {chain.before}"):
            return ["whitened"], label
        return [subject.kind] if subject.kind else [], label
    named = chain.sides[0] if isinstance(chain.sides[0], Symbol) else None
    if named is not None and named.mark:
        return [], named.name  # as G^{(n)}, of n steps
    label = f"{chain.before} {named.name.replace('_', ' ')}" if named else chain.before
    kinds = label_kinds(label)
    if kinds:
        return kinds, label
    if is_monte_carlo(label):
        return ["returns", "advantages"], label
    previous = _previous(statements, at)
    bare = len(re.findall(r"\w", re.sub(r"[γλβ]|gamma|lam(?:bda)?|beta|[\d.=]", "", label))) <= 3
    if previous is None or not bare or statements[at].line - previous.parts[-1][1] > 2 or len(previous.text) > 160:
        return [], label
    for earlier in chains(previous.text):
        first = earlier.sides[0]
        if isinstance(first, Symbol) and first.kind in COLUMN_KINDS and first.kind and not _has_list(earlier):
            return [first.kind], previous.text
    if previous.text.rstrip().endswith((":", "=", "为", "是", "are", "is")) or previous.heading == previous.text.strip(
        "# "
    ):
        return label_kinds(previous.text)[-1:], previous.text
    return [], label


def _has_list(chain: Chain) -> bool:
    return any(isinstance(side, Listing) for side in chain.sides)
