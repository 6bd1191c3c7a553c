"""Two dumps of one batch, from two trainers or two versions of one: where they part first, and why.

    difference = compare(a, b)
    difference.first            # the first column that parts, with its row, token and both numbers
    difference.told("en")       # the same in sentences

Columns come in the order in which a trainer makes them, so the first one that parts is the cause, the rest follows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from mingce.audit.evidence import Bools, Evidence, Floats, Ints
from mingce.base.lang import say
from mingce.record.dump import LOSS, RAW, Dump

ORDER = (
    "token_ids", "attention_mask", "response_mask", "loss_mask", "value_mask", "weight_versions", "rollout_log_probs",
    "old_log_probs", "ref_log_probs", "entropy", "importance_weights", "values", "scores", "kl", "rewards", "deltas",
    RAW, LOSS, "returns", "new_log_probs", "ratio", "new_values",
)  # fmt: skip
MASKS = ("attention_mask", "response_mask", "loss_mask", "value_mask")
EVERYWHERE = (*MASKS, "scores", "rewards")  # what stands behind the mask matters here
INPUTS = {
    "kl": ("old_log_probs", "ref_log_probs"),
    "rewards": ("scores", "kl", "old_log_probs", "ref_log_probs"),
    "deltas": ("rewards", "values"),
    RAW: ("rewards", "values", "deltas"),
    LOSS: (RAW, "rewards", "values", "deltas"),
    "returns": (RAW, "rewards", "values", "deltas"),
    "new_log_probs": ("old_log_probs",),
    "ratio": ("new_log_probs", "old_log_probs"),
    "importance_weights": ("old_log_probs", "rollout_log_probs"),
}
Words = tuple[str, str]
Sameness = Literal["same", "rounding", "differs"]


@dataclass(frozen=True)
class Spot:
    """Where a column parts first: its row in each dump, its token, both numbers. Rows are None for scalars."""

    row_a: int | None
    row_b: int | None
    token: int | None
    a: float
    b: float


@dataclass(frozen=True)
class Part:
    """One column, or one logged scalar, in both dumps."""

    column: str
    sameness: Sameness
    rows: float  # share of the compared rows that differ
    largest: float  # gap
    mean: float  # gap, over the compared tokens
    first: Spot | None
    code: str = ""  # of the reason, "" where none is known
    why: Words = ("", "")
    follows: tuple[str, ...] = ()  # columns it is made of that part already


@dataclass
class Difference:
    """All that was compared."""

    a: str
    b: str
    aligned: Literal["uid", "tokens", "order"]
    reordered: bool  # the rows stand in another order
    rows: int  # compared
    only_a: list[int]  # rows that the other dump has not
    only_b: list[int]
    parts: list[Part] = field(default_factory=list)
    columns_a: list[str] = field(default_factory=list)  # columns that the other dump has not
    columns_b: list[str] = field(default_factory=list)
    settings: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # those that both give, differently

    @property
    def first(self) -> Part | None:
        """The first column that parts by more than rounding."""
        return next((part for part in self.parts if part.sameness == "differs"), None)

    @property
    def same(self) -> bool:
        return self.first is None and not self.only_a and not self.only_b

    def told(self, lang: str) -> list[str]:
        """The answer in sentences: the verdict, why, how rows were matched, then a line for each column that parts."""
        lines = [self.verdict(lang)]
        first = self.first
        if first and first.code:
            lines.append(say(lang, "原因：", "Why: ") + say(lang, *first.why))
        by = {"uid": (" uid ", "uid"), "tokens": ("提示与 token ", "prompt and tokens"), "order": ("次序", "order")}
        rows = say(
            lang, f"按{by[self.aligned][0]}对齐 {self.rows} 行", f"{self.rows} rows matched by {by[self.aligned][1]}"
        )
        if self.reordered:
            rows += say(lang, "，行的次序不同", ", in another order")
        if self.only_a or self.only_b:
            rows += say(
                lang,
                f"；只在 A 的有 {len(self.only_a)} 行，只在 B 的有 {len(self.only_b)} 行",
                f"; {len(self.only_a)} only in A, {len(self.only_b)} only in B",
            )
        lines.append(rows + say(lang, "。", "."))
        for part in self.parts:
            if part.sameness != "same":
                lines.append(_line(part, lang))
        for name, (a, b) in self.settings.items():
            lines.append(say(lang, f"设置 {name}：A {a}，B {b}", f"setting {name}: A {a}, B {b}"))
        for side, names in (("A", self.columns_a), ("B", self.columns_b)):
            if names:
                lines.append(say(lang, f"只在 {side} 的列：", f"columns only in {side}: ") + ", ".join(names))
        return lines

    def verdict(self, lang: str) -> str:
        """One line."""
        first = self.first
        if first is None:
            if not self.rows:
                return say(lang, "两份 dump 没有共同的行。", "The two dumps have no row in common.")
            rounding = any(part.sameness == "rounding" for part in self.parts)
            zh, en = ("在舍入误差内相同", "the same up to rounding") if rounding else ("完全相同", "the same")
            return say(
                lang,
                f"{self.rows} 行、{len(self.parts)} 列{zh}。",
                f"{self.rows} rows, {len(self.parts)} columns: {en}.",
            )
        spot = first.first
        if spot is None or spot.row_a is None:
            a, b = (spot.a, spot.b) if spot else (np.nan, np.nan)
            return say(
                lang,
                f"各列相同，最先分开的是记录的 {first.column}：A {a:.6g}，B {b:.6g}。",
                f"The columns agree; the logged {first.column} is the first to part: A {a:.6g}, B {b:.6g}.",
            )
        other = "" if spot.row_a == spot.row_b else say(lang, f"（B 第 {spot.row_b} 行）", f" (row {spot.row_b} of B)")
        both = say(lang, f"A {spot.a:.6g}，B {spot.b:.6g}", f"A {spot.a:.6g}, B {spot.b:.6g}")
        return say(
            lang,
            f"最先在 {first.column} 分开：第 {spot.row_a} 行{other}第 {spot.token} 个 token，{both}。",
            f"They part first in {first.column}: row {spot.row_a}{other}, token {spot.token}: {both}.",
        )


def _line(part: Part, lang: str) -> str:
    if part.first is not None and part.first.row_a is None:
        line = f"{part.column}: A {part.first.a:.6g}, B {part.first.b:.6g}"
    else:
        line = say(
            lang,
            f"{part.column}：{100 * part.rows:.0f}% 的行不同，最大差 {part.largest:.4g}",
            f"{part.column}: {100 * part.rows:.0f}% of rows differ, largest gap {part.largest:.4g}",
        )
    if part.sameness == "rounding":
        return line + say(lang, "（舍入误差内）", " (rounding)")
    if part.why[0]:
        line += say(lang, f"——{part.why[0]}", f" — {part.why[1]}")
    if part.follows:
        names = ", ".join(part.follows)
        line += say(lang, f"（它由已分开的 {names} 算出）", f" (made of {names}, which part already)")
    return line


# ── the same rows, beside each other ───────────────────────────────────────────────────────────────────────────────


@dataclass
class Side:
    """One dump cut to the common rows and padded to the common width."""

    e: Evidence
    rows: Ints
    width: int

    def column(self, name: str) -> Floats:
        return np.asarray(self._padded(self.e[name]), dtype=np.float64)

    def _padded(self, column: Any) -> Any:
        column = column[self.rows]
        return np.pad(column, ((0, 0), (0, self.width - column.shape[1])))

    @property
    def mask(self) -> Bools:
        return np.asarray(self._padded(self.e.mask))

    @property
    def attended(self) -> Bools:
        return np.asarray(self._padded(self.e.attended))

    def rounding(self, name: str) -> float:
        """The error that storing a number of this column has, relative to it."""
        return 2.0**-8 if self.e.grid(name) or (self.coarse and self._short(name)) else 2.0**-23

    @cached_property
    def coarse(self) -> bool:
        """Whether some column was stored in 16 bits: then those with few numbers in them may have been, too."""
        columns = self.e.dump.columns
        return any(self.e.grid(name) for name in columns if columns[name].dtype == np.float32)

    def _short(self, name: str) -> bool:
        column = np.ascontiguousarray(self.e.dump.column(name))
        return column.dtype == np.float32 and not np.any(column.view(np.uint32) & 0xFFFF)


def compare(a: Dump, b: Dump) -> Difference:
    """Where two dumps of one batch part."""
    from mingce.audit.reasons import reason  # reasons need Side

    how, rows_a, rows_b = _aligned(a, b)
    width = max(a.shape[1], b.shape[1])
    one, two = Side(Evidence(a), rows_a, width), Side(Evidence(b), rows_b, width)
    shared = [name for name in ORDER if a.holds(name) and b.holds(name)]
    found = Difference(
        a.path or a.source,
        b.path or b.source,
        how,
        reordered=not np.array_equal(np.argsort(rows_a, kind="stable"), np.argsort(rows_b, kind="stable")),
        rows=len(rows_a),
        only_a=sorted(set(range(a.shape[0])) - set(rows_a.tolist())),
        only_b=sorted(set(range(b.shape[0])) - set(rows_b.tolist())),
        columns_a=[a.name_of(name) for name in ORDER if a.holds(name) and not b.holds(name)],
        columns_b=[b.name_of(name) for name in ORDER if b.holds(name) and not a.holds(name)],
        settings={
            name: (value, other)
            for name, value in a.settings.known().items()
            if name != "step" and (other := getattr(b.settings, name)) is not None and _unlike(value, other)
        },
    )
    parted: set[str] = set()

    def label(name: str) -> str:
        """What both dumps call a column, or what it is where they call it differently."""
        return a.name_of(name) if a.name_of(name) == b.name_of(name) else name

    with np.errstate(all="ignore"):
        for name in shared:
            part = _column(one, two, name)
            part = replace(part, column=label(name))
            if part.sameness == "differs":
                code, why = reason(one, two, name)
                follows = tuple(label(column) for column in INPUTS.get(name, ()) if column in parted)
                part = Part(
                    part.column, part.sameness, part.rows, part.largest, part.mean, part.first, code, why, follows
                )
                parted.add(name)
            found.parts.append(part)
        found.parts += [_scalar(a, b, name) for name in a.scalars if name in b.scalars]
    return found


def _column(one: Side, two: Side, name: str) -> Part:
    a, b = one.column(name), two.column(name)
    where = compared(one, two, name)
    gap = np.where(where, np.abs(a - b), 0.0)
    gap = np.where(where & (np.isnan(a) & np.isnan(b) | (a == b)), 0.0, gap)
    lost = where & (np.isfinite(a) != np.isfinite(b))
    sizes = np.maximum(np.abs(a), np.abs(b))
    seen = where & np.isfinite(sizes)
    scale = float(sizes[seen].max(initial=0.0))
    exact = 1e-6 * np.maximum(sizes, 0.1 * scale) + 1e-12
    room = np.maximum(max(one.rounding(name), two.rounding(name)) * np.maximum(sizes, 0.25 * scale), 1e-4 * scale)
    if name in MASKS or name == "token_ids":
        exact = room = np.zeros_like(gap)
    apart, far = (gap > exact) | lost, (gap > room) | lost
    sameness: Sameness = "differs" if far.any() else "rounding" if apart.any() else "same"
    shown = far if far.any() else apart
    spot = None
    if shown.any():
        row, token = (int(i) for i in np.argwhere(shown)[0])
        spot = Spot(int(one.rows[row]), int(two.rows[row]), token, float(a[row, token]), float(b[row, token]))
    finite = gap[where & np.isfinite(gap)]
    return Part(
        name,
        sameness,
        float(shown.any(axis=1).mean()) if len(shown) else 0.0,
        float(finite.max(initial=0.0)),
        float(finite.mean()) if len(finite) else 0.0,
        spot,
    )


def compared(one: Side, two: Side, name: str) -> Bools:
    """[R, T] where a column's numbers must agree."""
    if name in EVERYWHERE:
        return np.ones_like(one.mask)
    if name == "token_ids":
        return one.attended & two.attended
    return one.mask & two.mask


def _scalar(a: Dump, b: Dump, name: str) -> Part:
    one, two = float(a.scalars[name]), float(b.scalars[name])
    gap, size = abs(one - two), max(abs(one), abs(two))
    sameness: Sameness = "same" if gap <= 1e-6 * size or one == two else "rounding" if gap <= 1e-4 * size else "differs"
    return Part(name, sameness, 0.0, gap, gap, Spot(None, None, None, one, two))


def _unlike(one: Any, two: Any) -> bool:
    if isinstance(one, int | float) and isinstance(two, int | float):
        return abs(one - two) > 1e-9 * max(abs(one), abs(two))
    return str(one) != str(two)


def _aligned(a: Dump, b: Dump) -> tuple[Literal["uid", "tokens", "order"], Ints, Ints]:
    """Which row of `a` is which of `b`: by uid, by prompt and tokens, or as they stand."""
    least = max(min(a.shape[0], b.shape[0]), 1)
    pairs = _pairs(_uids(a), _uids(b))
    if 2 * len(pairs) >= least:
        return "uid", pairs[:, 0], pairs[:, 1]
    # a last token that only one of the dumps attends to must not part a row from itself
    tries = [_pairs(_texts(a, drop_a), _texts(b, drop_b)) for drop_a, drop_b in ((0, 0), (1, 0), (0, 1))]
    pairs = max(tries, key=len)
    if 2 * len(pairs) >= least:
        return "tokens", pairs[:, 0], pairs[:, 1]
    rows = np.arange(min(a.shape[0], b.shape[0]))
    return "order", rows, rows.copy()


def _pairs(one: list[Hashable] | None, two: list[Hashable] | None) -> Ints:
    """[N, 2] rows with the same key; equal keys in the order in which they stand."""
    waiting: defaultdict[Hashable, list[int]] = defaultdict(list)
    for row, key in reversed(list(enumerate(two or []))):
        waiting[key].append(row)
    pairs = [(row, waiting[key].pop()) for row, key in enumerate(one or []) if waiting.get(key)]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def _uids(dump: Dump) -> list[Hashable] | None:
    uids = dump.rows.get("uid")
    if uids is None or any(uid is None for uid in uids):
        return None
    keys: list[Hashable] = [str(uid) for uid in uids]
    return keys if len(set(keys)) == len(keys) else None


def _texts(dump: Dump, drop: int) -> list[Hashable] | None:
    """Prompt and attended ids of each row, but for the last `drop`."""
    if "token_ids" not in dump.columns:
        return None
    attended, ids = Evidence(dump).attended, dump.columns["token_ids"]
    prompts = dump.rows.get("prompt_ids") or [()] * dump.shape[0]
    return [
        (tuple(int(i) for i in prompt or ()), row[there].astype(np.int64)[: int(there.sum()) - drop].tobytes())
        for prompt, row, there in zip(prompts, ids, attended, strict=True)
    ]
