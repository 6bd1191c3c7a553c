"""Why a column of two dumps differs: each reason is a relation of the numbers that holds on (nearly) all tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from mingce.audit.diff import MASKS, Side, Words, compared
from mingce.audit.evidence import Bools, Floats, Ints
from mingce.audit.kl import kl_estimates
from mingce.record.dump import LOSS, RAW

Reason = tuple[str, Words]
UNKNOWN: Reason = ("", ("", ""))
NEARLY = 0.99  # of the tokens must fit
LEAST = 8  # tokens to say anything


def reason(one: Side, two: Side, name: str) -> Reason:
    """The first reason that fits, "" where none does."""
    finders: dict[str, tuple[Callable[[Side, Side, str], Iterator[Reason]], ...]] = {
        "token_ids": (_permuted, _other_tokens),
        "scores": (_permuted, _score_index, _affine),
        "kl": (_permuted, _estimator, _shifted, _affine),
        "rewards": (_permuted, _reward_fit, _score_index, _shifted, _affine),
        "deltas": (_permuted, _credit, _shifted, _affine),
        RAW: (_permuted, _whitened, _credit, _shifted),
        LOSS: (_permuted, _whitened, _credit, _shifted),
        "returns": (_permuted, _credit, _affine, _shifted),
    }
    usual = (_mask,) if name in MASKS else (_permuted, _shifted, _affine, _temperature, _noise)
    for finder in finders.get(name, usual):
        for found in finder(one, two, name):
            return found
    return UNKNOWN


# ── relations ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Line(NamedTuple):
    """b = slope·a + intercept."""

    slope: float
    intercept: float


def _close(a: Floats, b: Floats, where: Bools, rounding: float) -> bool:
    """Whether nearly all numbers agree, up to what storing them may have done."""
    a, b = a[where], b[where]
    if len(a) < LEAST or not np.isfinite(a).all() or not np.isfinite(b).all():
        return False
    scale = float(np.abs(np.concatenate([a, b])).max())
    return bool(scale > 0 and (np.abs(a - b) <= max(4 * rounding, 1e-4) * scale).mean() >= NEARLY)


def _rounding(one: Side, two: Side, *names: str) -> float:
    return max(side.rounding(name) for side in (one, two) for name in names if side.e.dump.holds(name))


def _line(a: Floats, b: Floats) -> Line | None:
    """Least squares; None where `a` does not vary."""
    spread = a - a.mean()
    if not (spread @ spread) > 0:
        return None
    slope = float(spread @ b / (spread @ spread))
    return Line(slope, float(b.mean() - slope * a.mean()))


def _permuted(one: Side, two: Side, name: str) -> Iterator[Reason]:
    """The same rows, but in another order than the tokens they belong to."""
    a, b = one.column(name), two.column(name)
    rows = ~np.isclose(a, b, rtol=1e-4, atol=1e-6).all(axis=1)
    if rows.sum() < 2 or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return
    weights = np.cos(np.arange(a.shape[1]))  # a key that tells rows apart by more than their sum
    order_a, order_b = np.argsort(a[rows] @ weights, kind="stable"), np.argsort(b[rows] @ weights, kind="stable")
    if np.isclose(a[rows][order_a], b[rows][order_b], rtol=1e-4, atol=1e-6).all():
        count = int(rows.sum())
        yield (
            "rows-permuted",
            (
                f"同样的数，但 {count} 行放错了行（行的次序没有还原）",
                f"the same numbers, but {count} rows of them stand in other rows: an order was not undone",
            ),
        )


def _shifted(one: Side, two: Side, name: str) -> Iterator[Reason]:
    a, b, where = one.column(name), two.column(name), one.mask & two.mask
    rounding = _rounding(one, two, name)
    for by in (1, -1, 2, -2):
        moved, there = np.roll(b, -by, axis=1), np.roll(where, -by, axis=1)
        there[:, -by if by > 0 else 0 : None if by > 0 else -by] = False
        if _close(a, moved, where & there, rounding) and float(np.ptp(a[where])) > 0:
            yield (
                "shift",
                (
                    f"B 错位：A 的第 t 格等于 B 的第 t{by:+d} 格",
                    f"they are shifted: slot t of A is slot t{by:+d} of B",
                ),
            )


def _affine(one: Side, two: Side, name: str) -> Iterator[Reason]:
    where = compared(one, two, name)
    a, b = one.column(name)[where], two.column(name)[where]
    line = _line(a, b) if len(a) >= LEAST and np.isfinite(a).all() and np.isfinite(b).all() else None
    if line is None or not _close(
        line.slope * a + line.intercept, b, np.ones_like(a, dtype=bool), _rounding(one, two, name)
    ):
        return
    scale = float(np.abs(b).max())
    if abs(line.intercept) < 1e-4 * scale:
        if abs(line.slope + 1) < 1e-3:
            yield "sign", ("符号相反：B = −A", "the sign is flipped: B = −A")
        elif abs(line.slope) > 1e-6:
            yield "scale", (f"相差一个倍数：B = {line.slope:.5g}·A", f"a factor: B = {line.slope:.5g}·A")
    elif abs(line.slope - 1) < 1e-3:
        yield "offset", (f"相差一个常数：B = A {line.intercept:+.5g}", f"a constant: B = A {line.intercept:+.5g}")
    elif abs(line.slope) > 1e-6:
        text = f"B = {line.slope:.5g}·A {line.intercept:+.5g}"
        yield "affine", (f"线性关系：{text}", f"a line: {text}")


def _temperature(one: Side, two: Side, name: str) -> Iterator[Reason]:
    if not name.endswith("log_probs"):
        return
    where = one.mask & two.mask
    a, b = one.column(name)[where], two.column(name)[where]
    line = _line(a, b) if len(a) >= 64 and np.isfinite(a).all() and np.isfinite(b).all() else None
    if line and np.corrcoef(a, b)[0, 1] > 0.95 and abs(line.slope - 1) > 0.05:
        yield (
            "temperature",
            (
                f"B 对 A 的斜率为 {line.slope:.3g}：温度或采样参数不同",
                f"B goes with A at a slope of {line.slope:.3g}: another temperature or other sampling settings",
            ),
        )


def _noise(one: Side, two: Side, name: str) -> Iterator[Reason]:
    where = one.mask & two.mask
    a, b = one.column(name)[where], two.column(name)[where]
    if len(a) < 32 or not np.isfinite(a).all() or not np.isfinite(b).all() or not a.std() or not b.std():
        return
    gap = b - a
    level = float(np.abs(gap).mean())
    if np.corrcoef(a, b)[0, 1] > 0.99 and level < 0.1 * a.std() and abs(gap.mean()) < 0.3 * level:
        yield (
            "noise",
            (
                f"平均 {level:.2g} 的对称噪声：内核、批形状或精度不同",
                f"noise of {level:.2g} on average with no bias: other kernels, batch shapes or precision",
            ),
        )


# ── tokens and masks ───────────────────────────────────────────────────────────────────────────────────────────────


def _other_tokens(one: Side, two: Side, name: str) -> Iterator[Reason]:
    a, b = one.column(name), two.column(name)
    differ = (a != b) & one.attended & two.attended
    rows = int(differ.any(axis=1).sum())
    yield (
        "other-tokens",
        (
            f"{rows} 行的 token 本身不同：不是同一批采样，或重新分词了",
            f"the tokens of {rows} rows are others: not the same rollouts, or tokenised again",
        ),
    )


def _mask(one: Side, two: Side, name: str) -> Iterator[Reason]:
    a, b = one.column(name).astype(bool), two.column(name).astype(bool)
    for more, less, big, small in ((a, b, "A", "B"), (b, a, "B", "A")):
        extra = more & ~less
        if not extra.any() or (less & ~more).any():
            continue
        last = _last(less)
        inside = np.arange(a.shape[1]) < last[:, None]
        if not (extra & ~inside).any():
            yield (
                "mask-holes",
                (
                    f"{big} 把中间的工具/观测 token 算作策略所选，{small} 没有",
                    f"{big} counts tool or observation tokens inside the response as chosen, {small} does not",
                ),
            )
        elif (extra.sum(axis=1) <= 1).all() and (extra[np.arange(len(a)), np.minimum(last + 1, a.shape[1] - 1)]).any():
            side = one if big == "A" else two
            ends = _ends_with_eos(side, extra)
            zh, en = ("EOS", "the EOS") if ends else ("最后一个 token", "the last token")
            yield (
                "mask-eos",
                (
                    f"{small} 的掩码漏掉了{zh}，{big} 有（常见于 pad_id == eos_id）",
                    f"{small} masks {en}, {big} keeps it (often because pad_id equals eos_id)",
                ),
            )
        else:
            yield (
                "mask-longer",
                (
                    f"{big} 的掩码比 {small} 多出尾部的 {int(extra.sum())} 个位置（填充被算进去）",
                    f"{big} keeps {int(extra.sum())} more slots at the ends than {small}: padding is counted",
                ),
            )
    for by in (1, -1):
        if np.array_equal(a, np.roll(b, by, axis=1)):
            yield "shift", (f"掩码错开 {by:+d} 格", f"the mask is shifted by {by:+d}")


def _last(mask: Bools) -> Floats:
    width = mask.shape[1]
    return np.where(mask.any(axis=1), width - 1 - mask[:, ::-1].argmax(axis=1), -1)


def _ends_with_eos(side: Side, extra: Bools) -> bool:
    eos = side.e.settings.eos_id
    if eos is None or "token_ids" not in side.e.dump.columns:
        return False
    return bool((side.column("token_ids")[extra] == eos).mean() > 0.5)


# ── scores, KL, rewards ────────────────────────────────────────────────────────────────────────────────────────────


def _score_index(one: Side, two: Side, name: str) -> Iterator[Reason]:
    """One number a row, at another slot."""
    a, b = one.column("scores" if "scores" in one.e.dump.columns else name), two.column(
        "scores" if "scores" in two.e.dump.columns else name
    )  # fmt: skip
    single = ((a != 0).sum(axis=1) == 1) & ((b != 0).sum(axis=1) == 1)
    if single.sum() < 2 or not np.allclose(a[single].sum(axis=1), b[single].sum(axis=1), rtol=2.0**-7, atol=1e-6):
        return
    offset = (b[single] != 0).argmax(axis=1) - (a[single] != 0).argmax(axis=1)
    if not offset.any():
        return
    if len(np.unique(offset)) == 1:
        yield (
            "score-offset",
            (
                f"得分的位置差 {offset[0]:+d} 格（B 相对 A）",
                f"the score sits {offset[0]:+d} slots from where A has it",
            ),
        )
    else:
        where = [_place_of(side, column, single) for side, column in ((one, a), (two, b))]
        yield (
            "score-place",
            (
                f"得分放在不同位置：A 在{where[0][0]}，B 在{where[1][0]}",
                f"the score sits elsewhere: A on {where[0][1]}, B on {where[1][1]}",
            ),
        )


def _place_of(side: Side, scores: Floats, rows: Bools) -> Words:
    at, width = (scores[rows] != 0).argmax(axis=1), scores.shape[1]
    chosen, attended = _last(side.mask)[rows], _last(side.attended)[rows]
    for where, words in (
        (chosen, ("最后一个被选 token", "the last chosen token")),
        (attended, ("最后一个有效 token", "the last attended token")),
        (chosen + 1, ("最后 token 的下一格", "the slot after the last token")),
        (np.full_like(at, side.e.mask.shape[1] - 1), ("最后一列", "the last column")),
    ):
        if (at == np.minimum(where, width - 1)).mean() > NEARLY:
            return words
    return ("不固定的位置", "no fixed slot")


class Penalty(NamedTuple):
    """s − r = beta · estimator(x)."""

    beta: float
    estimator: str


def _estimates(side: Side) -> dict[str, Floats] | None:
    if not side.e.has("old_log_probs", "ref_log_probs"):
        return None
    x = side.column("old_log_probs") - side.column("ref_log_probs")
    return kl_estimates(x)


def _penalty(side: Side, column: str) -> Penalty | None:
    """The estimator and price that explain s − r (or the kl column, at price 1)."""
    estimates, where = _estimates(side), side.mask
    if estimates is None or where.sum() < LEAST:
        return None
    taken = (side.column("scores") - side.column("rewards") if column == "rewards" else side.column("kl"))[where]
    if not np.isfinite(taken).all():
        return None
    if not taken.any():
        return Penalty(0.0, "—")
    best: tuple[float, Penalty] | None = None
    for name, estimate in estimates.items():
        z = estimate[where]
        if np.isfinite(z).all() and z @ z > 0:
            beta = float(z @ taken / (z @ z))
            left = float(np.linalg.norm(taken - beta * z) / np.linalg.norm(taken))
            if best is None or left < best[0]:
                best = left, Penalty(beta, name)
    coarse = max(side.rounding(n) for n in ("old_log_probs", "ref_log_probs")) > 1e-4
    return best[1] if best and best[0] < (0.3 if coarse else 1e-2) else None


def _estimator(one: Side, two: Side, name: str) -> Iterator[Reason]:
    a, b = _penalty(one, "kl"), _penalty(two, "kl")
    if a and b and (a.estimator != b.estimator or abs(a.beta - b.beta) > 0.01):
        yield "kl-estimator", (f"KL 估计不同：A {_kl(a)}，B {_kl(b)}", f"other KL estimates: A {_kl(a)}, B {_kl(b)}")


def _reward_fit(one: Side, two: Side, name: str) -> Iterator[Reason]:
    if not (one.e.has("scores") and two.e.has("scores")):
        return
    a, b = _penalty(one, "rewards"), _penalty(two, "rewards")
    if a is None or b is None:
        return
    if a.estimator != b.estimator or abs(a.beta - b.beta) > 1e-3 * max(abs(a.beta), abs(b.beta)):
        zh, en = f"KL 惩罚不同：A 扣 {_kl(a)}，B 扣 {_kl(b)}", f"other KL penalties: A takes {_kl(a)}, B takes {_kl(b)}"
        yield "kl-penalty", (zh, en)
        return
    behind = ~one.mask & ~two.mask
    if (np.abs(one.column(name) - two.column(name)) > 1e-6)[behind].any():
        yield (
            "behind-mask",
            (
                "只在掩码之外不同：其中一方把 KL 也扣在了填充位置上",
                "they differ behind the mask only: one takes the KL on padding too",
            ),
        )


def _kl(penalty: Penalty) -> str:
    return "0" if not penalty.beta else f"{penalty.beta:.4g}·{penalty.estimator}"


# ── credit ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Discounts(NamedTuple):
    """A_t = r_t + γ·V_{t+1} − V_t + γλ·A_{t+1}; `skips` masked tokens, or recurses through them; None: no holes."""

    gamma: float
    gamma_lam: float
    skips: bool | None


def _discounts(side: Side) -> Discounts | None:
    """γ and γλ from the numbers of one dump, by least squares."""
    if not side.e.has("rewards", "values") or not side.e.has(f"{RAW}|returns"):
        return None
    reward, value, mask = side.column("rewards"), side.column("values"), side.mask
    credit = side.column(RAW) if side.e.has(RAW) else side.column("returns") - value
    order = np.argsort(~mask, axis=1, kind="stable")
    r, v, a = (np.take_along_axis(x, order, axis=1) for x in (reward, value, credit))
    m = np.take_along_axis(mask, order, axis=1)
    there = m[:, :-1] & m[:, 1:]
    hole = np.diff(order, axis=1) > 1
    left, right = (a - r + v)[:, :-1], np.stack([v[:, 1:], a[:, 1:]], axis=-1)
    plain = there & ~hole
    if plain.sum() < LEAST or not np.isfinite(left[plain]).all() or not np.isfinite(right[plain]).all():
        return None
    fitted, *_ = np.linalg.lstsq(right[plain], left[plain], rcond=None)
    scale = float(np.abs(left[plain]).max())
    coarse = max(side.rounding(n) for n in ("values", "rewards")) > 1e-4
    near = (0.05 if coarse else 1e-3) * max(scale, 1e-9)
    if (np.abs(right[plain] @ fitted - left[plain]) > near).mean() > 1 - NEARLY:
        return None
    skips = None
    if (there & hole).any():
        skips = bool((np.abs(right @ fitted - left) <= near)[there & hole].mean() > 0.5)
    return Discounts(float(fitted[0]), float(fitted[1]), skips)


def _credit(one: Side, two: Side, name: str) -> Iterator[Reason]:
    a, b = _discounts(one), _discounts(two)
    if a is None or b is None:
        return
    room = 0.03 if _rounding(one, two, "values", "rewards") > 1e-4 else 2e-3
    if abs(a.gamma - b.gamma) > room or abs(a.gamma_lam - b.gamma_lam) > room:
        yield "discount", (f"折扣不同：A {_rates(a)}，B {_rates(b)}", f"other discounts: A {_rates(a)}, B {_rates(b)}")
    elif a.skips is not None and b.skips is not None and a.skips != b.skips:
        skips = "A" if a.skips else "B"
        yield (
            "recursion",
            (
                f"遇到工具 token 时，{skips} 的 GAE 跳过它们，另一方照常递推（信用按间隔衰减）",
                f"at tool tokens the GAE of {skips} skips them, the other recurses through them and lets credit decay",
            ),
        )
    else:
        last = _last(one.mask & two.mask)
        off = np.abs(one.column(name) - two.column(name)) > 1e-4 * np.abs(one.column(name)).max(initial=0.0)
        ends = off[np.arange(len(off)), np.maximum(last, 0)]
        if ends.any():
            yield (
                "bootstrap",
                (
                    "从最后一个 token 起就不同：末端的自举（截断处 V 或填充处 V）不一样",
                    "they part at the last token already: another value behind the end (a cut row, or V on padding)",
                ),
            )


def _rates(found: Discounts) -> str:
    lam = found.gamma_lam / found.gamma if found.gamma else 0.0
    return f"γ = {found.gamma:.4g}, λ = {lam:.4g}"


def _whitened(one: Side, two: Side, name: str) -> Iterator[Reason]:
    """A line between the two: the same credit, whitened otherwise."""
    where = one.mask & two.mask
    a, b, count = one.column(name), two.column(name), int(where.sum())
    if count < LEAST or not np.isfinite(a[where]).all() or not np.isfinite(b[where]).all():
        return
    rounding, line = _rounding(one, two, name), _line(a[where], b[where])
    if line and _close(line.slope * a + line.intercept, b, where, rounding) and abs(line.slope) > 1e-6:
        text = f"B = {line.slope:.6g}·A {line.intercept:+.4g}"
        zh, en = _whitening(a[where], b[where], line, count)
        yield "whitening", (f"{zh}（{text}）", f"{en} ({text})")
        return
    for key, words in (
        ("rank", ("rank", "rank")),
        ("micro_batch", ("micro-batch", "micro-batch")),
        ("group", ("组", "group")),
    ):
        side = next((s for s in (one, two) if key in s.e.dump.rows), None)
        if side is None:
            continue
        names = [str(side.e.dump.rows[key][row]) for row in side.rows]
        groups = np.unique(names, return_inverse=True)[1].astype(np.int64)
        if len(np.unique(groups)) > 1 and _lines_by(a, b, where, groups, rounding):
            yield (
                "whitening-scope",
                (
                    f"同一个 {words[0]} 内是线性关系，整体不是：一方按 {words[0]} 白化",
                    f"a line within each {words[1]} but not over all: one of them whitens each {words[1]} by itself",
                ),
            )
            return
    if _lines_by(a, b, where, np.arange(len(a), dtype=np.int64), rounding):
        yield (
            "whitening-scope",
            ("每一行内是线性关系：一方逐行白化", "a line within each row: one of them whitens row by row"),
        )


def _whitening(a: Floats, b: Floats, line: Line, count: int) -> Words:
    """What of the whitening differs, from mean and spread of both."""
    flat_a, flat_b = abs(a.std() - 1) < 0.02, abs(b.std() - 1) < 0.02
    if line.slope < 0:
        return ("优势的符号相反", "the sign of the advantages is flipped")
    if flat_a != flat_b:
        white, raw = ("A", "B") if flat_a else ("B", "A")
        return (f"{white} 白化了优势，{raw} 没有", f"{white} whitens the advantages, {raw} does not")
    if flat_a and abs(line.slope - 1) < 1e-4 and abs(line.intercept) > 1e-4:
        keeps = "A" if abs(a.mean()) > abs(b.mean()) else "B"
        return (f"{keeps} 白化后又加回了均值", f"{keeps} adds the mean back after whitening")
    if flat_a and abs(abs(line.slope**2 - 1) - 1 / count) < 0.2 / count:
        return ("方差的分母不同：一方除以 N−1，一方除以 N", "one divides the variance by N − 1, the other by N")
    if flat_a:
        return ("白化所用的 token 集合不同（掩码或范围）", "they whiten over other tokens: another mask or scope")
    return ("相差一个线性变换", "they differ by a line")


def _lines_by(a: Floats, b: Floats, where: Bools, groups: Ints, rounding: float) -> bool:
    """Whether b is a line of a within every group of rows that has enough tokens."""
    tried = 0
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        x, y = a[rows][where[rows]], b[rows][where[rows]]
        if len(x) < LEAST:
            continue
        line = _line(x, y)
        if line is None or not _close(line.slope * x + line.intercept, y, np.ones_like(x, dtype=bool), rounding):
            return False
        tried += 1
    return tried >= 2
