"""Two dumps of one batch, from two trainers or two versions of one: where they part first, and why.

    difference = compare(a, b)
    difference.first            # the first column that parts, with its row, token and both numbers
    difference.verdict("en")    # the same in words

Columns come in the order in which a trainer makes them, so the first one that parts is the cause, the rest follows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from mingce.audit.evidence import Bools, Evidence, Floats, Ints, fits_16_bits
from mingce.base.lang import LANGS
from mingce.base.texts import sentence
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

    def verdict(self, lang: str) -> str:
        """One line."""
        first = self.first
        if first is None:
            if not self.rows:
                return sentence("audit.no_common_row", lang)
            rounding = any(part.sameness == "rounding" for part in self.parts)
            key = "audit.same_up_to_rounding" if rounding else "audit.same"
            return sentence(key, lang, rows=self.rows, columns=len(self.parts))
        spot = first.first or Spot(None, None, None, np.nan, np.nan)
        if spot.row_a is None:
            return sentence("audit.parts_in_scalar", lang, column=first.column, a=spot.a, b=spot.b)
        other = "" if spot.row_a == spot.row_b else sentence("audit.other_row", lang, row=spot.row_b)
        return sentence("audit.parts_first", lang, column=first.column, other=other, **vars(spot))

    def about(self, lang: str) -> list[str]:
        """Why they part, where that is known, and how rows were matched."""
        first = self.first
        why = [sentence("audit.why", lang, why=first.why[LANGS.index(lang)])] if first and first.code else []
        matched = sentence(_MATCHED[self.aligned], lang, rows=self.rows)
        if self.reordered:
            matched += sentence("audit.reordered", lang)
        if self.only_a or self.only_b:
            matched += sentence("audit.only_in_one", lang, a=len(self.only_a), b=len(self.only_b))
        return [*why, sentence("audit.full_stop", lang, text=matched)]

    def others(self, lang: str) -> list[str]:
        """Settings that differ, and columns that only one dump has."""
        settings = [
            sentence("audit.other_setting", lang, name=name, a=a, b=b) for name, (a, b) in self.settings.items()
        ]
        sides = [("A", self.columns_a), ("B", self.columns_b)]
        return settings + [
            sentence("audit.columns_only_in", lang, side=side, names=", ".join(names)) for side, names in sides if names
        ]


_MATCHED = {"uid": "audit.matched_by_uid", "tokens": "audit.matched_by_tokens", "order": "audit.matched_by_order"}


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
        short = self.e.grid(name) or (self.coarse and fits_16_bits(self.e.dump.column(name)))
        return 2.0**-8 if short else 2.0**-23

    @cached_property
    def coarse(self) -> bool:
        """Whether some column was stored in 16 bits: then those with few numbers in them may have been, too."""
        columns = self.e.dump.columns
        return any(self.e.grid(name) for name in columns if columns[name].dtype == np.float32)


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
            part, at = _column(one, two, name)
            part = replace(part, column=label(name))
            if part.sameness == "differs" and at is not None:
                found_reason = reason(one, two, name, at)
                follows = tuple(label(column) for column in INPUTS.get(name, ()) if column in parted)
                part = replace(part, code=found_reason.code, why=found_reason.why, follows=follows)
                parted.add(name)
            found.parts.append(part)
        found.parts += [_scalar(a, b, name) for name in a.scalars if name in b.scalars]
    return found


def _column(one: Side, two: Side, name: str) -> tuple[Part, tuple[int, int] | None]:
    """How a column compares, and where it parts first, as row and slot of the two sides."""
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
    spot, at = None, None
    if shown.any():
        row, token = (int(i) for i in np.argwhere(shown)[0])
        at = row, token
        spot = Spot(int(one.rows[row]), int(two.rows[row]), token, float(a[row, token]), float(b[row, token]))
    finite = gap[where & np.isfinite(gap)]
    part = Part(
        name,
        sameness,
        float(shown.any(axis=1).mean()) if len(shown) else 0.0,
        float(finite.max(initial=0.0)),
        float(finite.mean()) if len(finite) else 0.0,
        spot,
    )
    return part, at


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
