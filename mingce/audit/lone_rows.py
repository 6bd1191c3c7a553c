"""Rows apart: what holds for all rows of a batch but one or two, and for no reason that the dump tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from mingce.audit import updates
from mingce.audit.credit import last_rows_cut
from mingce.audit.edges import not_drawn
from mingce.audit.evidence import Bools, Evidence, Floats, finite, rows_with
from mingce.audit.finding import Check, Fault, Finding, NotJudged, phrase

NO_STOP = Fault.of("lone-row-without-stop", "suspicious", (7, 36), "y_e ∈ stop ids unless the limit ended the row")
STOP_INSIDE = Fault.of("lone-row-stop-inside", "suspicious", (8, 36), "y_t ∉ stop ids for t < e")
MASKED = Fault.of("lone-row-mask", "suspicious", (7, 8), "m_t = 1 on every drawn token of the response")
EMPTY = Fault.of("lone-row-empty", "suspicious", (19, 37), "V(s_t) of every chosen token")
APART = Fault.of("lone-row-log-probs", "suspicious", (2, 5, 6, 18, 37), "log-probs of the same tokens, row by row", "")
SAME = Fault.of(
    "lone-row-same-log-probs", "suspicious", (24, 37), "log π_ref from the reference's own pass, row by row", ""
)
OTHER_GROUP = Fault.of("lone-row-group", "suspicious", (1,), "rows of one group answer one prompt")
LEAST_ROWS, LEAST_TOKENS = 8, 4
FEW = 0.07  # of the rows
MOVED = 0.1  # nats: what an update leaves in line
DOUBTFUL = -0.01  # a log-prob of a token that was not all but certain


def rows_apart(e: Evidence) -> Iterator[Finding]:
    """One or two rows that differ from all others in their ends, their mask, their values or their log-probs."""
    if int(e.mask.any(axis=1).sum()) < LEAST_ROWS:
        raise NotJudged
    yield from _ends(e)
    yield from _masks(e)
    for name in ("values", "new_values"):
        if e.dump.holds(name):
            yield from _empty(e, name)
    yield from _log_probs(e)
    yield from _same(e)
    yield from _groups(e)


def _groups(e: Evidence) -> Iterator[Finding]:
    """Rows whose group is that of another prompt, where every other group has one prompt."""
    if not e.has("group", "prompt_ids") or None in e.row("prompt_ids"):
        return
    asked = [tuple(line) for line in e.row("prompt_ids")]
    seen: dict[object, Counter[tuple[object, ...]]] = {}
    for group, prompt in zip(e.row("group"), asked, strict=True):
        seen.setdefault(str(group), Counter())[prompt] += 1
    rows = np.array(
        [
            seen[str(group)][prompt] == 1 and seen[str(group)].most_common(1)[0][1] >= 2
            for group, prompt in zip(e.row("group"), asked, strict=True)
        ]
    )
    for row in np.flatnonzero(rows):  # one more BOS makes no other prompt
        usual = seen[str(e.row("group")[row])].most_common(1)[0][0]
        short, long = sorted((usual, asked[row]), key=len)
        rows[row] = short != long[len(long) - len(short) :]
    if _few(e, rows, np.ones_like(rows)):
        yield Finding(OTHER_GROUP, "group", _said(rows), (), float(rows.mean()))


def _few(e: Evidence, rows: Bools, judged: Bools) -> bool:
    return bool(rows.any()) and int(rows.sum()) <= max(1, int(FEW * judged.sum())) and int(judged.sum()) >= LEAST_ROWS


def _said(rows: Bools) -> dict[str, object]:
    numbers = np.flatnonzero(rows)
    return {"count": len(numbers), "total": len(rows), "rows": ", ".join(str(int(row)) for row in numbers[:5])}


def _stop(e: Evidence) -> int | None:
    """The id that ended nearly every row that the limit did not: the settings', or the one they all end with."""
    if "token_ids" not in e.dump.columns or e.mask.shape[1] == 0:
        return None
    short = e.mask.any(axis=1) & ~last_rows_cut(e) & (e.last < e.mask.shape[1] - 1)
    ids = e.dump.columns["token_ids"][np.arange(len(e.mask)), np.maximum(e.last, 0)][short]
    if len(ids) < LEAST_ROWS:
        return None
    usual, count = Counter(ids.tolist()).most_common(1)[0]
    return int(usual) if count >= (1 - FEW) * len(ids) - 1 and count >= LEAST_ROWS - 1 else None


def _ends(e: Evidence) -> Iterator[Finding]:
    stop = _stop(e)
    turns = e.holes.any() or (e.has("conversation") and len(set(e.row("conversation"))) < len(e.mask))
    if stop is None or e.dump.partial or turns or (e.has("stop_ids") and len(e.stop_ids) > 1):
        return  # turns end otherwise than answers
    ids, at = e.dump.columns["token_ids"], np.arange(len(e.mask))
    last = np.maximum(e.last, 0)
    alive = rows_with(e.mask)
    ended = ids[at, last] == stop
    short = alive & (e.last < e.mask.shape[1] - 1) & ~last_rows_cut(e)
    without = short & ~ended
    if e.has("finish_reason"):
        without &= np.array([reason == "stop" for reason in e.row("finish_reason")])
    followed = np.zeros_like(e.mask)
    followed[:, :-1] = e.mask[:, :-1] & e.mask[:, 1:]
    inside = followed & (ids == stop)
    if _few(e, without, short) and not inside[~without].any():
        yield Finding(NO_STOP, "token_ids", _said(without) | {"stop": stop}, (), float(without.sum() / short.sum()))
    rows = rows_with(inside)
    if _few(e, rows, alive) and e.settings.eos_id is None:
        places = e.places(inside, np.full(e.mask.shape, np.nan), ids.astype(np.float64))
        yield Finding(STOP_INSIDE, "token_ids", _said(rows) | {"stop": stop}, places, float(rows.mean()))


def _masks(e: Evidence) -> Iterator[Finding]:
    """Tokens at the edge of a response that are attended, and masked out in few rows only."""
    if "attention_mask" not in e.dump.columns or not e.mask.shape[1]:
        return
    attended, alive = e.attended, rows_with(e.mask)
    before = attended & (np.cumsum(e.mask, axis=1) == 0)
    after = attended & (np.arange(e.mask.shape[1])[None, :] > e.last[:, None])
    stop = _stop(e)
    if stop is not None:
        after &= rows_with_stop(e, after, stop)[:, None]
    for edge, key in ((before, "audit.mask_front"), (after, "audit.mask_back")):
        rows: Bools = rows_with(edge) & alive
        if key == "audit.mask_back" and (stop is None or e.holes.any()):
            continue  # a row may end with what a tool wrote
        if _few(e, rows, alive) and not e.has("loss_mask"):
            places = e.places(edge & rows[:, None], np.ones(e.mask.shape), np.zeros(e.mask.shape))
            yield Finding(MASKED, "response_mask", _said(rows) | phrase("where", key), places, float(rows.mean()))


def rows_with_stop(e: Evidence, where: Bools, stop: int) -> Bools:
    """[B] rows that hold the stop id on one of these slots."""
    return np.asarray((where & (e.dump.columns["token_ids"] == stop)).any(axis=1))


def _empty(e: Evidence, name: str) -> Iterator[Finding]:
    """A row whose values are all exactly 0, or far from those of the other critic, unlike all others'."""
    column, count = e[name], e.mask.sum(axis=1)
    zeros = (e.mask & (column == 0)).sum(axis=1)
    rows, judged = (zeros == count) & (count >= 2), count >= 2
    if _few(e, rows, judged) and float((zeros[judged & ~rows] == 0).mean()) > 0.9:
        yield Finding(EMPTY, name, _said(rows) | {"column": name} | phrase("what", "audit.row_all_zero"))
    elif name == "new_values" and e.has("values"):
        old = finite(e["values"])
        unit = max(float(np.std(old[e.mask])), 1e-9)
        far = _outliers(finite(column) / unit, old / unit, e.mask, 0.5, 1.3) & ~_drawn_to_returns(e, column, old)
        if _few(e, far, judged):
            yield Finding(EMPTY, name, _said(far) | {"column": name} | phrase("what", "audit.row_values_apart"))


def _drawn_to_returns(e: Evidence, new: Floats, old: Floats) -> Bools:
    """[B] rows whose values came nearer to the returns, as an update takes them; none where there are no returns."""
    if not e.has("returns"):
        return np.zeros(len(e.mask), bool)
    goal = finite(e["returns"])
    before, after = (np.where(e.mask, np.abs(x - goal), 0.0).sum(axis=1) for x in (old, finite(new)))
    return np.asarray(after < before)


def _log_probs(e: Evidence) -> Iterator[Finding]:
    """Rows whose log-probs differ from another column's on nearly every token, by more than those of others ever do."""
    if "old_log_probs" not in e.dump.columns:
        return
    told = updates.stray_rows(e)
    # a row may leave its reference far behind, and an update may move one more than others
    for other, least, times in (
        ("rollout_log_probs", 0.05, 1.3), ("new_log_probs", 0.3, 2.0), ("ref_log_probs", 0.5, 3.0)
    ):  # fmt: skip
        if other not in e.dump.columns or other in told or e.blamed & {"old_log_probs", other}:
            continue
        use = e.mask & np.isfinite(e["old_log_probs"]) & np.isfinite(e[other]) & ~not_drawn(e)
        use &= (e["old_log_probs"] != 0) & (e[other] != 0)
        rows = _outliers(finite(e["old_log_probs"]), finite(e[other]), use, least, times)
        if other == "new_log_probs" and _moved(e, use & ~rows[:, None]):
            continue
        if _few(e, rows, rows_with(use)):
            size = float(np.abs(e["old_log_probs"] - e[other])[use & rows[:, None]].mean())
            values = _said(rows) | {"column": "old_log_probs", "other": other, "size": size}
            places = e.places(use & rows[:, None], e[other], e["old_log_probs"])
            yield Finding(APART, other, values, places, float(rows.mean()))


def _moved(e: Evidence, use: Bools) -> bool:
    """Whether updates have moved the policy so far that one row may well have moved farther than the others."""
    first = updates.first_rows(e)
    gap = np.abs(e["new_log_probs"] - e["old_log_probs"])[use]
    return not (first is not None and first.all()) and bool(len(gap)) and float(np.quantile(gap, 0.99)) > MOVED


def _same(e: Evidence) -> Iterator[Finding]:
    """Rows whose reference says of every token just what the policy says, bit for bit, where no other row's does."""
    if not e.has("old_log_probs", "ref_log_probs"):
        return
    old, ref = e["old_log_probs"], e["ref_log_probs"]
    use = e.mask & np.isfinite(old) & np.isfinite(ref) & (old < DOUBTFUL)
    equal, count = (use & (old == ref)).sum(axis=1), use.sum(axis=1)
    judged = count >= LEAST_TOKENS
    rows = judged & (equal == count)
    if _few(e, rows, judged) and float((equal[judged & ~rows] < 0.5 * count[judged & ~rows]).mean()) > 0.95:
        places = e.places(use & rows[:, None], np.full(old.shape, np.nan), ref)
        yield Finding(SAME, "ref_log_probs", _said(rows), places, float(rows.mean()))


def _outliers(a: Floats, b: Floats, use: Bools, least: float, times: float) -> Bools:
    """[B] rows whose middle difference is beyond nearly every single one of the other rows."""
    gap, count = np.where(use, np.abs(a - b), np.nan), use.sum(axis=1)
    found = np.zeros(len(a), bool)
    rows = np.flatnonzero(count >= LEAST_TOKENS)
    if len(rows) < LEAST_ROWS or not (np.nansum(gap[rows], axis=1) > least * count[rows]).any():
        return found
    middle = np.full(len(a), -1.0)
    middle[rows] = np.nanmedian(gap[rows], axis=1)
    order = rows[np.argsort(middle[rows])]
    rest = order[: len(order) - max(1, int(FEW * len(order)))]
    top = float(np.nanquantile(gap[rest], 0.99))
    found[rows] = middle[rows] > max(least, times * top)
    return found


CHECKS: tuple[Check, ...] = (Check.of("K1 rows apart", (), rows_apart),)
