"""Tables in text, Markdown or aligned by spaces, as lists: one column a quantity, or one row a quantity."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mingce.explain.claims.chains import Chain, chains
from mingce.explain.claims.expressions import Listing, Node, Number, evaluate, literals, shown
from mingce.explain.claims.names import SETTING_KINDS, label_kind, symbol_kind
from mingce.explain.claims.reading import Statement
from mingce.explain.claims.tokens import read_number

_SEPARATOR = re.compile(r"[\s|:\-]+$")
_TIME = re.compile(
    r"^\s*(?:t|i|k|step|index|idx|pos(?:ition)?|#|时间步?|步(?:骤|数)?|位置|序号|下标|索引)\s*(?:\(.{0,20}\))?\s*$",
    re.I,
)
_PLAIN_NUMBER = re.compile(r"-?(?:\d+(?:\.\d+)?|\.\d+)(?:e[+-]?\d{1,3})?%?", re.I)
_FORMULA = re.compile(r"[Σ^*+]|\s-\s")
_TOTAL = re.compile(r"\s*(?:Σ|sum|total|mean|average|avg|std|合计|总[和计]|均值|平均|标准差)\s*$", re.I)
_HAS_DIGIT = re.compile(r"\d")
_HAS_WORD = re.compile(r"[A-Za-z一-鿿]")
_OF_A_KIND = re.compile(r"导数|梯度|derivative|gradient", re.I)
"""In a heading: the table has a row for each kind of numbers, and its columns are no tokens."""
_LEAST_ROWS = 2


@dataclass(frozen=True)
class TableColumn:
    """One quantity of a table in the order of time, and the statements its numbers stand in.

    `holes` if what is missing is so in the whole table: tokens that nobody chose, or `skipped` by the time steps.
    `hatted` if it is the only one of advantages and named Â.
    """

    kind: str
    numbers: tuple[Number | None, ...]
    label: str
    statements: tuple[Statement, ...]
    chains: tuple[Chain | None, ...]
    holes: bool = False
    skipped: bool = False
    hatted: bool = False


@dataclass(frozen=True)
class Table:
    """`lists` are cells that hold a list, with the row's name; `others` cells that may hold equations."""

    columns: tuple[TableColumn, ...]
    lists: tuple[tuple[str, Listing, Statement], ...]
    others: tuple[tuple[str, Statement], ...]
    end: int


def table_at(statements: Sequence[Statement], at: int) -> Table | None:
    """The table that begins at statement `at`, with the place after it."""
    first = statements[at]
    if first.raw.count("|") >= 2 and at + 1 < len(statements) and _is_separator(statements[at + 1]):
        end = at + 2
        while end < len(statements) and statements[end].raw.count("|") >= 2 and _adjacent(statements, end):
            end += 1
        header = cells(first)
        body = [(statement, cells(statement)) for statement in statements[at + 2 : end]]
        body = [(statement, row) for statement, row in body if not _TOTAL.match(row[0])]
        columns = _hatted(_columns(header, body), first)
        named = {column.label for column in columns}
        others = [
            (cell, statement)
            for statement, row in body
            for name, cell in zip(header, row, strict=False)
            if "=" in cell and "[" not in cell and name not in named and row[0] not in named
        ]
        return Table(columns, _lists(body), tuple(others), end)
    return _aligned(statements, at)


def _adjacent(statements: Sequence[Statement], at: int) -> bool:
    return statements[at].line == statements[at - 1].parts[-1][1] + 1


def _is_separator(statement: Statement) -> bool:
    return "-" in statement.raw and "|" in statement.raw and _SEPARATOR.match(statement.raw.strip()) is not None


def cells(statement: Statement) -> list[str]:
    """A row's cells, plain."""
    return [cell.strip() for cell in statement.text.strip().strip("|").split("|")]


def _aligned(statements: Sequence[Statement], at: int) -> Table | None:
    """A table without bars: a header of names and at least two rows with as many fields."""
    raw = statements[at].raw.strip()
    if len(raw) > 400 or ("  " not in raw and "\t" not in raw) or any(mark in raw for mark in "=[]|"):
        return None
    header = re.split(r"\s{2,}|\t", raw)
    if len(header) < 3 or sum(label_kind(name, first=True) is not None for name in header) < 2:
        return None
    body: list[tuple[Statement, list[str]]] = []
    end = at + 1
    while end < len(statements) and _adjacent(statements, end):
        fields = statements[end].text.split()
        if _SEPARATOR.match(statements[end].raw.strip()):
            end += 1
            continue
        if len(fields) != len(header) or sum(_number(field) is not None for field in fields) < 2:
            break
        body.append((statements[end], fields))
        end += 1
    return Table(_columns(header, body), (), (), end) if len(body) >= _LEAST_ROWS else None


def _hatted(columns: tuple[TableColumn, ...], header: Statement) -> tuple[TableColumn, ...]:
    """Where A and Â stand side by side, Â is the whitened one; alone it may be either."""
    raw = header.raw + "".join(
        column.statements[0].raw for column in columns if column.label in column.statements[0].text
    )
    bare = [column for column in columns if column.kind == "advantages"]
    if not re.search(r"Â|A\u0302|\\hat", raw) or len(bare) not in (1, 2):
        return columns
    if len(bare) == 1:
        return tuple(replace(column, hatted=True) if column is bare[0] else column for column in columns)
    if len({_numbers_of(column) for column in bare}) < 2:
        return columns
    return tuple(replace(column, kind="whitened") if column is bare[1] else column for column in columns)


def _numbers_of(column: TableColumn) -> tuple[float | None, ...]:
    return tuple(None if number is None else number.value for number in column.numbers)


def _columns(header: Sequence[str], body: Sequence[tuple[Statement, list[str]]]) -> tuple[TableColumn, ...]:
    """The quantities of a table, whichever way it lies."""
    rows = [(statement, row) for statement, row in body if len(row) == len(header)]
    found = []
    if header and symbol_kind(header[0].strip()) in SETTING_KINDS:
        return ()  # a row for each value of a setting, not for each token
    if len(rows) >= _LEAST_ROWS:
        order = _order(header, [row for _, row in rows])
        for place, name in enumerate(header):
            kind = None if _TIME.match(name) else _kind(name)
            read = [_cell(row[place]) for _, row in rows]
            if kind and sum(number is not None for number, _ in read) >= max(_LEAST_ROWS, len(rows) // 2):
                numbers = tuple(None if i is None else read[i][0] for i in order)
                worked = tuple(None if i is None else read[i][1] for i in order)
                told = tuple(rows[0 if i is None else i][0] for i in order)
                found.append(TableColumn(kind, numbers, name, told, worked))
    if not found:
        return tuple(_lying(rows)) if not any(map(_OF_A_KIND.search, header)) else ()
    skipped = None in order
    missing = {t for t in range(len(order)) if all(column.numbers[t] is None for column in found)}
    dotted = any(set(cell) & set(".…⋮") and not _HAS_DIGIT.search(cell) for _, row in body for cell in row[:1])
    return tuple(
        column if dotted else replace(
            column, skipped=skipped, holes={t for t, n in enumerate(column.numbers) if n is None} == missing != set()
        )
        for column in found
    )  # fmt: skip


def _kind(heading: str) -> str | None:
    """What a heading names; a formula such as (γλ)^l·δ is none of our columns."""
    name = heading.partition("=")[0]
    return None if _FORMULA.search(name) else label_kind(name, first=True)


def _order(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int | None]:
    """Which row each time step is, by the column of time steps if there is one; None where a step is left out."""
    for place, name in enumerate(header):
        if not _TIME.match(name):
            continue
        at = {}
        for i, row in enumerate(rows):
            step = _number(re.sub(r"^(?:t|i|step)\s*=?\s*_?", "", row[place]))
            if step is not None and step.decimals == 0:
                at[int(step.value)] = i
        first, last = min(at, default=0), max(at, default=0)
        if len(at) >= _LEAST_ROWS and first >= 0 and last - first < 4 * len(rows):
            return [at.get(step) for step in range(min(first, 1), last + 1)]
    return list(range(len(rows)))


def _lying(rows: Sequence[tuple[Statement, Sequence[str]]]) -> list[TableColumn]:
    """Quantities that lie in rows: a name and then its numbers, not a name and what is said of it."""
    found = []
    for statement, row in rows:
        kind = _kind(row[0])
        read = [_cell(cell) for cell in row[1:]]
        described = any(
            number is None and _HAS_WORD.search(cell) for (number, _), cell in zip(read[:1], row[1:2], strict=True)
        )
        if (
            kind
            and not described
            and len(read) >= _LEAST_ROWS
            and sum(number is not None for number, _ in read) >= max(2, len(read) // 2)
        ):
            numbers, worked = tuple(n for n, _ in read), tuple(c for _, c in read)
            found.append(TableColumn(kind, numbers, row[0], (statement,) * len(read), worked))
    return found


def _lists(body: Sequence[tuple[Statement, list[str]]]) -> tuple[tuple[str, Listing, Statement], ...]:
    """Rows such as | `advantages` | (batch, length) | [[0.13, 0.10]] | meaning |: the name and the list."""
    found = []
    for statement, row in body:
        for cell in row[1:]:
            for chain in chains(cell) if "[" in cell else ():
                if isinstance(chain.sides[-1], Listing):
                    found.append((row[0], chain.sides[-1], statement))
    return tuple(found)


def _cell(cell: str) -> tuple[Number | None, Chain | None]:
    """A cell's number; of an equation the number it ends in, and the equation."""
    number = _number(cell)
    if number is not None:
        return number, None
    for chain in chains(cell):
        if len(chain.sides) > 1 and (number := shown(chain.sides[-1])) is not None:
            return number, chain
    return None, None


def _number(text: str) -> Number | None:
    match = _PLAIN_NUMBER.fullmatch(text.strip().strip("+*` ").replace(" ", ""))
    return read_number(match[0]) if match else None


def item(node: Node) -> Number | None:
    """A list's item as a number; of a sum such as 0-0.01 its value."""
    number = shown(node)
    if number is not None:
        return number
    value = evaluate(node)
    if value is None:
        return None
    return Number(value, max((literal.decimals for literal in literals(node)), default=0))
