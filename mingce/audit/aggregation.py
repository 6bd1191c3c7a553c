"""The ways in which trainers make one number of token terms [B, T]: the right ones, and those that were bugs.

Every way is a weight for each row and a mask for the terms, so the number is Σ_b w_b·Σ_t mask·term, its rounding error
is known, and hundreds of ways cost no more than a few row sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from mingce.audit.evidence import Bools, Evidence, Floats, Ints, fits_16_bits
from mingce.base.texts import sentence_pair
from mingce.specs import AGGREGATIONS
from mingce.specs.settings import DumpSettings

MODES = tuple(dict.fromkeys((*AGGREGATIONS, "token-sum")))
SPREADS = 2.5  # of the largest error that rounding can make, about five of its usual one
LOSS_TYPES = dict(
    bnpo="token-mean", dapo="token-mean", cispo="token-mean", vespo="token-mean", grpo="seq-mean-token-mean",
    sapo="seq-mean-token-mean", luspo="seq-mean-token-sum", dr_grpo="seq-mean-token-sum-norm",
)  # fmt: skip
_OTHER_NAMES = {name.replace("_", "-"): mode for name, mode in LOSS_TYPES.items()}
"""TRL's loss types."""
BY_PARTS = ("bnpo",)
"""Those that average each micro-batch by itself."""
_MASKS = {
    "loss": "audit.loss_mask", "chosen": "audit.response_mask", "attended": "audit.attention_mask",
    "all": "audit.all_slots",
}  # fmt: skip


Words = tuple[str, str]
"""中文, English."""
Parts = list[tuple[Ints, Words]]
"""[B] which part of the batch a row belongs to, and what such a part is called."""


@dataclass(frozen=True)
class Way:
    """One way. `classes` names the bug it is, and is empty for a way that may be meant."""

    mode: str
    words: Words
    weights: Floats  # [B]
    numerator: str = "loss"
    denominator: str = "loss"
    classes: tuple[int, ...] = ()
    doubtful: bool = False  # may be a bug or meant; the dump cannot tell


@dataclass
class Terms:
    """Token terms [B, T] with the rounding error of each, and their sums a row under each mask."""

    matrix: Floats
    error: Floats | float = 0.0
    masks: Mapping[str, Bools] = field(default_factory=dict)
    _sums: dict[str, tuple[Floats, Floats, Floats]] = field(default_factory=dict)

    def sums(self, mask: str) -> tuple[Floats, Floats, Floats]:
        """[B] of the terms, of their magnitudes, and of their squared errors."""
        if mask not in self._sums:
            kept = np.where(self.masks[mask], self.matrix, 0.0)
            error = np.where(self.masks[mask], self.error, 0.0)
            self._sums[mask] = kept.sum(axis=1), np.abs(kept).sum(axis=1), (error**2).sum(axis=1)
        return self._sums[mask]

    def number(self, way: Way) -> float:
        with np.errstate(all="ignore"):
            return float(way.weights @ self.sums(way.numerator)[0])

    def size(self, way: Way) -> float:
        """The same with every term positive: what the number is to be measured against."""
        with np.errstate(all="ignore"):
            return float(np.abs(way.weights) @ self.sums(way.numerator)[1])

    def fits(self, way: Way, logged: float) -> bool:
        """Whether this way gives the logged number, up to rounding; a way that may be meant is given more room.

        Where the terms behind the mask are 0, a sum without the mask is the sum with it, and no bug.
        """
        if way.numerator != way.denominator == "loss":
            masked, more = self.sums("loss"), self.sums(way.numerator)
            if np.allclose(masked[1], more[1], rtol=1e-9, atol=0):
                return False
        with np.errstate(all="ignore"):
            room = self.room(way) + 1e-6 * abs(logged)
            return abs(self.number(way) - logged) <= room * (1 if way.classes else 1.5)

    def room(self, way: Way) -> float:
        """How far rounding may take the number."""
        noise = float(np.sqrt(way.weights**2 @ self.sums(way.numerator)[2]))
        return SPREADS * noise + 3e-6 * self.size(way) + 1e-12


def declared_mode(settings: DumpSettings) -> str | None:
    """The aggregation that the settings name, under its name here."""
    name = (settings.loss_agg_mode or "").lower().replace("_", "-")
    name = _OTHER_NAMES.get(name, name)
    return name if name in MODES else None


def masks(e: Evidence) -> dict[str, Bools]:
    """The masks a trainer may have used; `loss` is the right one, and one equal to an earlier one is left out."""
    found = {"loss": e.loss_mask}
    for name, mask in (("chosen", e.mask), ("attended", e.attended), ("all", np.ones_like(e.mask))):
        if not any(np.array_equal(mask, other) for other in found.values()):
            found[name] = mask
    return found


def ways(e: Evidence, seen: Mapping[str, Bools]) -> list[Way]:
    """All ways for this dump: those of each mode first, then those that were bugs whatever the mode."""
    rows, width = e.mask.shape
    counts = {name: mask.sum(axis=1).astype(np.float64) for name, mask in seen.items()}
    every, step = np.zeros(rows, dtype=np.int64), _codes(e, "minibatch")
    scopes: Parts = [(every, ("", ""))]
    if step.any():
        scopes.append((step, sentence_pair("audit.of_each_minibatch")))
    candidates: Parts = [
        (_codes(e, "minibatch", "rank", "micro_batch"), ("micro-batch", "micro-batch")),
        (_codes(e, "minibatch", "rank"), ("rank", "rank")),
    ]
    parts = [(codes, name) for codes, name in candidates if len(np.unique(codes)) > len(np.unique(step))]
    constants = _constants(e, width)
    by_parts = (e.settings.loss_agg_mode or "").lower() in BY_PARTS
    made: list[Way] = []
    for mode in MODES:
        for constant, wrong, doubtful in constants if mode.endswith("-norm") else [(1.0, False, False)]:
            made += _whole(mode, counts["loss"], scopes, constant, wrong, doubtful)
            divided = not doubtful and mode != "token-sum"  # a sum over parts is the sum over the whole
            made += _in_parts(mode, counts["loss"], parts if divided else [], step, constant, wrong, by_parts)
    for top in seen:
        for bottom in seen:
            if (top, bottom) != ("loss", "loss"):
                made += _masked(top, bottom, counts, [*scopes, *parts], step)
    for constant, _, _ in constants:
        words = sentence_pair("audit.sum_without_rows", constant=constant)
        for codes, _ in [(every, ("", "")), (step, ("", "")), *parts]:
            weights = np.full(rows, 1.0) / constant * _shares(codes, step, np.ones(rows, dtype=bool), True)
            made.append(Way("seq-mean-token-sum-norm", words, weights, classes=(44,)))
    squared = np.divide(1.0, counts["loss"] ** 2, out=np.zeros(rows), where=counts["loss"] > 0)
    for total in {rows, int((counts["loss"] > 0).sum())} - {0}:
        words = sentence_pair("audit.length_twice")
        made.append(Way("seq-mean-token-mean", words, squared / total, classes=(4, 26, 44)))
        made.append(Way("token-mean", words, squared / total, classes=(4, 26, 44)))
    if "all" in seen and width:
        words, chosen = sentence_pair("audit.row_mean_times_tokens"), counts["loss"]
        for total in (chosen.sum(), float(rows)):
            weights = np.divide(chosen, width * total) if total else chosen
            made.append(Way("token-mean", words, weights, numerator="all", denominator="all", classes=(27,)))
    return [way for way in made if np.isfinite(way.weights).all()]


def _named(mode: str, constant: float) -> str:
    return f"{mode}（C={constant:g}）" if mode.endswith("-norm") else mode


def _whole(
    mode: str, counts: Floats, scopes: Parts, constant: float, wrong: bool, doubtful: bool
) -> Iterator[Way]:  # fmt: skip
    """The mode over the whole batch, or over each mini-batch; empty rows counted or not."""
    name, classes = _named(mode, constant), (44,) if wrong else ()
    for scope, of in scopes:
        for counted in (counts > 0, np.ones(len(counts), dtype=bool)):
            weights = _weights(mode, counts, counted, scope, constant) / _groups(scope)
            yield Way(mode, (name + of[0], name + of[1]), weights, classes=classes, doubtful=doubtful)


def _in_parts(
    mode: str, counts: Floats, parts: Parts, step: Ints, constant: float, wrong: bool, meant: bool
) -> Iterator[Way]:  # fmt: skip
    """The mode in each micro-batch or rank by itself: averaged, which may be meant, added up, or the whole times their
    number."""
    name, some, every = _named(mode, constant), counts > 0, np.zeros_like(step)
    for codes, part in parts:
        for equal, key in ((True, "audit.parts_equally"), (False, "audit.parts_by_rows")):
            weights = _weights(mode, counts, some, codes, constant) * _shares(codes, step, some, equal)
            classes = (44,) if wrong else () if meant and equal else (4,)
            yield Way(mode, sentence_pair(key, mode=name, part=part), weights, classes=classes)
    for codes, part in parts:
        words = sentence_pair("audit.parts_not_divided", mode=name, part=part)
        for summed, times in ((codes, 1.0), (every, float(_groups(codes) / _groups(step)))):
            weights = _weights(mode, counts, some, summed, constant) * times / _groups(step)
            yield Way(mode, words, weights, classes=(44,) if mode.endswith("-norm") else (4,))


def _masked(top: str, bottom: str, counts: Mapping[str, Floats], scopes: Parts, step: Ints) -> Iterator[Way]:
    """Token means whose sum runs over one mask and whose count over another."""
    above, below = sentence_pair(_MASKS[top]), sentence_pair(_MASKS[bottom])
    classes = (26,) if top == "loss" else (3, 27) if top in ("attended", "chosen") else (27,)
    counted = counts[bottom] > 0
    for mode in ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean"):
        words = sentence_pair("audit.two_masks", mode=mode, above=above, below=below)
        for codes, _ in scopes:
            weights = _weights(mode, counts[bottom], counted, codes, 1.0) * _shares(codes, step, counted, True)
            yield Way(mode, words, weights, top, bottom, classes)


def _constants(e: Evidence, width: int) -> list[tuple[float, bool, bool]]:
    """(C of the constant normaliser, wrong, doubtful)."""
    given, longest = number(e, "loss_norm"), number(e, "max_response_length")
    declared = declared_mode(e.settings) == "seq-mean-token-sum-norm"
    found = [(given, False, False)] if given else []
    if not given and longest:
        found.append((longest, False, False))
    if width and not any(width == constant for constant, _, _ in found):
        found.append((float(width), bool(given), not (given or declared)))
    return found


def number(e: Evidence, name: str) -> float | None:
    """A setting as a number, None where it is not one."""
    value = getattr(e.settings, name)
    return None if value is None or isinstance(value, str | bool) else float(value)


def clip_range(e: Evidence) -> tuple[float | None, float | None]:
    """ε below and above 1, as far as the dump says."""
    s = e.settings
    return s.clip if s.clip_low is None else s.clip_low, s.clip if s.clip_high is None else s.clip_high


def rounding(e: Evidence, name: str) -> float:
    """How much a stored number may differ from the one the trainer had, relative to itself."""
    return 2.0**-9 if e.grid(name) or (_coarse(e) and fits_16_bits(e.dump.column(name))) else 2.0**-22


def _coarse(e: Evidence) -> bool:
    """Whether some column was stored in 16 bits: then one of few different numbers may have been, too."""
    names = ("old_log_probs", "new_log_probs", "values", "new_values", "returns", "entropy", "ref_log_probs")
    return any(e.grid(name) for name in names if e.has(name))


def _codes(e: Evidence, *names: str) -> Ints:
    """[B] the number of the part that a row was in; one part for all where the dump does not say."""
    columns = [e.row(name) for name in names if name in e.dump.rows]
    order: dict[str, int] = {}
    keys = [str(values) for values in zip(*columns, strict=True)] if columns else [""] * len(e.mask)
    return np.array([order.setdefault(key, len(order)) for key in keys], dtype=np.int64)


def _groups(codes: Ints) -> int:
    return max(len(np.unique(codes)), 1)


def _weights(mode: str, counts: Floats, counted: Bools, codes: Ints, constant: float) -> Floats:
    """[B] the weight of a row's sum in the aggregate of its own part."""
    if not len(counts):
        return np.zeros(0)
    tokens = np.bincount(codes, counts)[codes]
    rows = np.bincount(codes, counted.astype(np.float64))[codes]
    divisor = {
        "token-mean": tokens,
        "seq-mean-token-mean": rows * counts,
        "seq-mean-token-sum": rows,
        "seq-mean-token-sum-norm": rows * constant,
        "token-sum": np.ones_like(tokens),
    }[mode]
    return np.asarray(np.divide(1.0, divisor, out=np.zeros_like(divisor), where=divisor > 0))


def _shares(codes: Ints, step: Ints, counted: Bools, equal: bool) -> Floats:
    """[B] the weight of a row's part within the whole: each part alike, or each by its rows; optimizer steps alike."""
    if not len(codes):
        return np.zeros(0)
    owner = np.zeros(codes.max() + 1, dtype=np.int64)
    owner[codes] = step if len(np.unique(codes)) > 1 else 0
    steps = _groups(owner)
    if equal:
        return np.asarray(1.0 / np.bincount(owner)[owner][codes] / steps)
    rows = np.bincount(codes, counted.astype(np.float64))[codes]
    whole = np.bincount(owner[codes], counted.astype(np.float64))[owner[codes]]
    return np.asarray(np.divide(rows, whole, out=np.zeros_like(rows), where=whole > 0) / steps)
