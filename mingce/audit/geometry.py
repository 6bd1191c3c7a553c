"""K1, K2 and K16: what masks, ends of rows, positions, ids and texts say before any number is read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from mingce.audit import hotspots
from mingce.audit.evidence import Bools, Evidence, Ints, once
from mingce.audit.finding import Check, Fault, Finding, Place, Severity, phrase
from mingce.columns import ROLES

ASSISTANT = ROLES.index("assistant")
MANY_ROWS = 8  # from which rows say what is usual
SHORT_RUN, LONG_RUN = 2, 4  # pads at a row's end: so many in one row give the bug away, the others are counted from 2

# ── what can be wrong ──────────────────────────────────────────────────────────────────────────────────────────────

MASK_VALUES = Fault.of("mask-not-binary", "bug", (27,), "m_t = 0 or m_t = 1")
PADS_CHOSEN = Fault.of("padding-in-response", "bug", (8,), "m_t = 0 where the slot holds no token")
LOSS_OUTSIDE = Fault.of("loss-mask-outside-response", "bug", (3,), "ℓ_t ≤ m_t", "verl-project/verl/pull/2337")
EOS_MASKED = Fault.of("eos-masked", "bug", (7,), "m_t = 1 where y_t is the EOS that ended the response")
EOS_FORCED = Fault.of("eos-forced", "suspicious", (36,), "y_e = EOS was drawn from the policy")
EOS_TRIMMED = Fault.of(
    "eos-trimmed", "suspicious", (36,),
    "y_e ∈ stop ids where the row stopped by itself", "databricks/compose-rl/pull/31",
)  # fmt: skip
OTHER_STOP = Fault.of("other-stop-id", "suspicious", (36,), "y_e ∈ stop ids", "databricks/compose-rl/pull/31")
NO_END = Fault.of("no-common-end", "suspicious", (7, 8, 36), "y_e ∈ stop ids where the row stopped by itself", "")
ROWS_CUT = Fault.of("rows-cut-by-limit", "note", (34,), "y_e ∉ stop ids and e = limit − 1")
POSITIONS = Fault.of("positions-ignore-padding", "bug", (13,), "position_ids = cumsum(attention_mask) − 1")
POSITIONS_BROKEN = Fault.of(
    "positions-not-consecutive", "bug", (13, 40),
    "position_ids = cumsum(attention_mask) − 1", "modelscope/ms-swift/pull/10071",
)  # fmt: skip
RETOKENISED = Fault.of("retokenised-ids", "bug", (12,), "token_ids = rollout_ids")
DOUBLE_BOS = Fault.of("double-bos", "bug", (42,), "x_0 = BOS, x_1 ≠ BOS")
OTHER_TEXT = Fault.of("scored-other-text", "bug", (46,), "reward_text = decode(y)")

# ── masks ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def masks(e: Evidence) -> Iterator[Finding]:
    """The masks themselves: zeros and ones, inside one another."""
    for name in ("response_mask", "attention_mask", "loss_mask"):
        if name not in e.dump.columns:
            continue
        stored = e[name]
        odd = (stored != 0) & (stored != 1)
        if odd.any():
            values = {"column": name, "example": float(stored[odd][0])}
            yield Finding(MASK_VALUES, name, values, e.places(odd, np.ones_like(stored), stored), _share(odd))
            return
    padded = chosen_pads(e)
    if padded.any():
        values = {"count": int(padded.sum())}
        zero, one = np.zeros(padded.shape), np.ones(padded.shape)
        yield Finding(PADS_CHOSEN, "response_mask", values, e.places(padded, zero, one), _share(padded))
    if "loss_mask" in e.dump.columns:
        outside = e.dump.columns["loss_mask"].astype(bool) & ~e.mask
        if outside.any():
            on_pads, on_tools = bool((outside & ~e.attended).any()), bool((outside & e.attended).any())
            classes = (3,) * on_tools + (8,) * on_pads
            places = e.places(outside, np.zeros(outside.shape), np.ones(outside.shape))
            values = {"count": int(outside.sum())}
            yield Finding(LOSS_OUTSIDE, "loss_mask", values, places, _share(outside), classes=classes)


@once
def chosen_pads(e: Evidence) -> Bools:
    """[B, T] slots that hold padding and are marked as chosen."""
    if "attention_mask" in e.dump.columns and (outside := e.mask & ~e.attended).any():
        return outside
    nothing = np.zeros(e.mask.shape, bool)
    if "token_ids" not in e.dump.columns or e.settings.pad_id is None:
        return nothing
    ids, pad = e.dump.columns["token_ids"], int(e.settings.pad_id)
    slots = np.arange(ids.shape[1])[None, :]
    behind = (ids == pad) | (slots > e.last[:, None])  # from where on there is nothing but pads up to the last chosen
    run = np.logical_and.accumulate(behind[:, ::-1], axis=1)[:, ::-1] & (slots <= e.last[:, None])
    if pad in e.stop_ids:  # the first of the run is the end itself
        run &= np.cumsum(run, axis=1) > 1
    length = run.sum(axis=1)
    if length.max(initial=0) < LONG_RUN:
        return nothing
    found: Bools = run & e.mask & (length >= SHORT_RUN)[:, None]
    return found


# ── ends of rows ───────────────────────────────────────────────────────────────────────────────────────────────────


def ends(e: Evidence) -> Iterator[Finding]:
    """How rows end: the stop token's place, and rows that the limit cut."""
    ids = e.dump.columns["token_ids"]
    rows = np.flatnonzero(e.last >= 0)
    stops = e.stop_ids or common_end(e)
    if len(rows) == 0 or chosen_pads(e).any():
        return
    if not stops:
        yield from _no_common_end(e, rows)
        return
    last = e.last[rows]
    stopped = np.isin(ids[rows, last], list(stops))
    limit = int(e.settings.max_response_length or ids.shape[1])
    reasons = e.row("finish_reason") if "finish_reason" in e.dump.rows else [None] * len(ids)
    reason = np.array([str(reasons[row]) if reasons[row] is not None else "" for row in rows])
    cut = np.where(reason == "", (last >= limit - 1) & ~stopped, reason == "length")
    short = ~cut & ~stopped & ((last < limit - 1) | (reason == "stop"))
    if cut.any():
        yield Finding(ROWS_CUT, "token_ids", {"share": float(cut.mean())}, share=float(cut.mean()))
    talk = e.holes[rows].any(axis=1) | ("turn" in e.dump.columns)  # which a limit of turns may have cut
    limited = (reason == "length") & (~talk | (last >= limit - 1))
    yield from _forced(e, rows, stopped & (limited | (last >= limit - 1)), limited, stopped)
    if short.sum() >= 2 and short.sum() >= 0.5 * (~cut).sum():
        yield from _missing_stop(e, rows[short], stops, bool((reason[short] == "stop").all()))


def common_end(e: Evidence) -> set[int]:
    """The id that ends nearly all rows, of whatever length; none where they end with many."""
    rows = np.flatnonzero(e.last >= 0)
    if len(rows) < MANY_ROWS or len(np.unique(e.last[rows])) < 2:
        return set()
    finals, counts = np.unique(e.dump.columns["token_ids"][rows, e.last[rows]], return_counts=True)
    return {int(finals[counts.argmax()])} if counts.max() >= 0.8 * len(rows) else set()


def _no_common_end(e: Evidence, rows: Ints) -> Iterator[Finding]:
    """Rows of many lengths that end with all kinds of ids: what ended them is not in the mask, or not in the dump."""
    ids, width = e.dump.columns["token_ids"], e.mask.shape[1]
    reasons = e.row("finish_reason") if "finish_reason" in e.dump.rows else [None] * len(ids)
    cut = np.array([reasons[row] in ("length", "error") for row in rows], dtype=bool)  # by a limit of turns, say
    short = rows[(e.last[rows] < width - 1) & ~cut]
    if len(short) < 2 * MANY_ROWS or len(np.unique(e.last[short])) < 4 or e.dump.source == "trl":
        return
    finals, counts = np.unique(ids[short, e.last[short]], return_counts=True)
    if counts.max() < 0.3 * len(short) and len(finals) < 0.95 * len(short):  # ids that never come again are made up
        places = _ends(short, e.last[short], float("nan"), float(finals[counts.argmax()]))
        yield Finding(NO_END, "response_mask", {"count": len(short), "kinds": len(finals)}, places)


def _missing_stop(e: Evidence, rows: Ints, stops: set[int], by_itself: bool) -> Iterator[Finding]:
    """Rows that ended by themselves but not with a stop token inside their mask: masked, another id, or trimmed."""
    ids, last = e.dump.columns["token_ids"], e.last[rows]
    width = ids.shape[1]
    after = np.minimum(last + 1, width - 1)
    next_is_stop = (last + 1 < width) & np.isin(ids[rows, after], list(stops)) & ~e.mask[rows, after]
    finals, counts = np.unique(ids[rows, last], return_counts=True)
    common, share = int(finals[counts.argmax()]), float(counts.max() / len(rows))
    lengths = len(np.unique(last))
    if share >= 0.9 and len(rows) >= 4 and lengths > 1:
        values = {"share": share, "found": common, "wanted": ", ".join(str(one) for one in sorted(stops))}
        yield Finding(OTHER_STOP, "token_ids", values, _ends(rows, last, min(stops), common), share)
    elif next_is_stop.mean() >= 0.8 and (by_itself or lengths > 1):
        attended = e.attended[rows, after] & next_is_stop if "attention_mask" in e.dump.columns else np.array([False])
        twice = np.isin(ids[rows, np.minimum(last + 2, width - 1)], list(stops)) & (last + 2 < width)
        padded_with_it = e.settings.pad_id in stops or bool((twice | (last + 2 >= width)).all())
        drawn = attended.any() or not padded_with_it or _scored(e, rows, after)
        classes = (7,) if drawn else (7, 36)  # a trimmed end that was padded with EOS looks alike
        hit = next_is_stop.mean()
        places = _ends(rows, last + 1, 1, 0)
        yield Finding(EOS_MASKED, "response_mask", {"share": float(hit)}, places, float(hit), classes=classes)
    elif by_itself or lengths > 2:
        places = _ends(rows, last, min(stops), common)
        severity: Severity | None = None if by_itself else "note"  # the rows may have ended at a stop string
        yield Finding(EOS_TRIMMED, "token_ids", {"count": len(rows)}, places, severity=severity)


def _scored(e: Evidence, rows: Ints, slots: Ints) -> bool:
    """Whether these slots have log-probs of their own, not one fill value."""
    for name in ("rollout_log_probs", "old_log_probs"):
        if name in e.dump.columns and len(np.unique(e.dump.columns[name][rows, slots])) > max(1, len(rows) // 2):
            return True
    return False


def _forced(e: Evidence, rows: Ints, at_limit: Bools, limited: Bools, stopped: Bools) -> Iterator[Finding]:
    """Rows at the limit that end with a stop token nobody drew, by finish_reason or log-probs in the far tail."""
    why = phrase("why", "audit.yet_length")
    hit = at_limit & limited
    if not hit.any() and at_limit.sum() >= 2 and "old_log_probs" in e.dump.columns:
        drawn = e["old_log_probs"][rows, e.last[rows]]
        others = drawn[stopped & ~at_limit & np.isfinite(drawn)]
        full = e.last[rows] >= e.last.max()
        if len(others) >= 8 and at_limit[full].all():  # somebody writes through in every batch that has a limit
            unlikely = at_limit & (drawn < min(float(np.quantile(others, 0.01)), -4.0))
            if unlikely.sum() >= 0.5 * at_limit.sum():
                hit = at_limit
                low, usual = float(np.median(drawn[hit])), float(np.median(others))
                why = phrase("why", "audit.unlikely_eos", low=low, usual=usual)
    if hit.any():
        values = {"count": int(hit.sum()), **why}
        places = tuple(Place(int(row), int(e.last[row]), float("nan"), float("nan")) for row in rows[hit][:5])
        yield Finding(EOS_FORCED, "token_ids", values, places, float(hit.mean()))


def _ends(rows: Ints, slots: Ints, expected: float, found: float) -> tuple[Place, ...]:
    return tuple(
        Place(int(row), int(slot), float(expected), float(found)) for row, slot in zip(rows[:5], slots[:5], strict=True)
    )


# ── positions, ids, texts ──────────────────────────────────────────────────────────────────────────────────────────


def positions(e: Evidence) -> Iterator[Finding]:
    """position_ids of real tokens count from the first real token, whatever stands before it."""
    wrong = positions_wrong(e)
    broken = [(row, at) for row, (kind, at, _) in wrong.items() if kind == "broken"]
    counted = {row: (at, pads) for row, (kind, at, pads) in wrong.items() if kind == "counted"}
    if counted:
        row = max(counted, key=lambda one: counted[one][1])
        found, pads = counted[row]
        places = tuple(Place(one, None, 0.0, float(counted[one][0])) for one in list(counted)[:5])
        share = len(counted) / max(len(e.mask), 1)
        yield Finding(POSITIONS, "position_ids", {"found": found, "pads": pads}, places, share)
    elif broken:
        row, token = broken[0]
        places = tuple(Place(one, None, float("nan"), float(at)) for one, at in broken[:5])
        share = len(broken) / max(len(e.mask), 1)
        yield Finding(POSITIONS_BROKEN, "position_ids", {"row": row, "token": token}, places, share)


@once
def positions_wrong(e: Evidence) -> dict[int, tuple[str, int, int]]:
    """row → ("counted", position of the first real token, pads before it) or ("broken", token, pads)."""
    wrong: dict[int, tuple[str, int, int]] = {}
    starts: dict[int, tuple[int, int]] = {}  # row → (position of the first real token, pads before it)
    stored = e.dump.rows.get("position_ids", [])
    prompts, pads = e.dump.rows.get("prompt_ids"), e.dump.rows.get("left_pad")
    width = e.mask.shape[1]
    for row, line in enumerate(stored):
        try:
            found = np.asarray(line, dtype=np.int64)
            prompt = len(prompts[row]) if prompts is not None else None
            pad = int(pads[row]) if pads is not None and pads[row] is not None else len(found) - width - (prompt or 0)
        except (TypeError, ValueError):
            continue
        end = (len(found) - width) + int(e.last_attended[row]) + 1
        if found.ndim != 1 or (pads is None and prompts is None) or pad < 0 or end <= pad or end > len(found):
            continue
        real = found[pad:end]
        steps = np.flatnonzero(np.diff(real) != 1)
        if len(steps):
            wrong[row] = ("broken", int(steps[0]) + 1, pad)
        else:
            starts[row] = (int(real[0]), pad)
    first = min((start for start, _ in starts.values()), default=0)  # some models count from 1 or 2
    one_width = len({pad for _, pad in starts.values()}) == 1
    for row, (start, pad) in starts.items():
        if pad and (start == pad if one_width else start != first):
            wrong[row] = ("counted", start, pad)
    return wrong


def sampled_ids(e: Evidence) -> Iterator[Finding]:
    """Ids that were sampled against ids that are trained on."""
    drifted, trimmed = _drifted(e)
    if drifted:
        row, token = next(iter(drifted.items()))
        ids, sampled = e.dump.columns["token_ids"], e.row("rollout_ids")
        places = tuple(
            Place(one, at, float(sampled[one][at]), float(ids[one][at]))
            for one, at in list(drifted.items())[:5]
            if at < len(sampled[one]) and at < ids.shape[1]
        )
        values = {"count": len(drifted), "row": row, "token": token, "turn": turn_of(e, row, token)}
        yield Finding(RETOKENISED, "token_ids", values, places, len(drifted) / len(e.mask))
    elif trimmed:
        places = tuple(Place(one, int(e.last[one]), float("nan"), float("nan")) for one in trimmed[:5])
        yield Finding(EOS_TRIMMED, "token_ids", {"count": len(trimmed)}, places, len(trimmed) / len(e.mask))


def turn_of(e: Evidence, row: int, token: int) -> int:
    """The turn of a token, from 1: as the dump numbers it, or by the runs of chosen tokens up to it."""
    token = min(token, e.mask.shape[1] - 1)
    if "turn" in e.dump.columns:
        return int(e["turn"][row, token]) + 1
    chosen = e.mask[row, : token + 1]
    return max(1, int(chosen[:1].sum() + (chosen[1:] & ~chosen[:-1]).sum()))


def retokenised(e: Evidence) -> bool:
    """Whether the ids say that the response was tokenised again."""
    return "rollout_ids" in e.dump.rows and "token_ids" in e.dump.columns and bool(_drifted(e)[0])


@once
def _drifted(e: Evidence) -> tuple[dict[int, int], list[int]]:
    """Rows whose ids differ from the sampled ones, and the first token that does; rows that lost only a stop token."""
    drifted: dict[int, int] = {}
    trimmed: list[int] = []
    ids, stops = e.dump.columns["token_ids"], e.stop_ids
    for row, line in enumerate(e.row("rollout_ids")):
        try:
            sampled = np.asarray(line, dtype=np.int64).ravel()
        except (TypeError, ValueError):
            continue
        kept = [ids[row][e.attended[row]], ids[row][e.mask[row]]]
        if len(sampled) == 0 or any(np.array_equal(sampled, one) for one in kept):
            continue
        if len(sampled) >= ids.shape[1] and any(np.array_equal(sampled[: len(one)], one) for one in kept):
            tail = sampled[len(kept[0]) :]
            if len(tail) == 0 or len(set(tail.tolist())) == 1:  # the padded row as it was sampled
                continue
        if any(np.array_equal(sampled[:-1], one) for one in kept) and int(sampled[-1]) in stops:
            trimmed.append(row)
            continue
        shorter = min(len(sampled), len(kept[0]))
        differs = np.flatnonzero(sampled[:shorter] != kept[0][:shorter])
        drifted[row] = int(differs[0]) if len(differs) else shorter
    return drifted, trimmed


@once
def unpadded_prompts(e: Evidence) -> list[list[int]]:
    """The prompts; without their left padding where all were stored at one width."""
    lines = [list(line) for line in e.row("prompt_ids") if line is not None]
    pad = hotspots.pad_id(e)
    if pad is None or len({len(line) for line in lines}) != 1:
        return lines
    runs = [next((at for at, one in enumerate(line) if one != pad), len(line)) for line in lines]
    return [line[run:] for line, run in zip(lines, runs, strict=True)] if len(set(runs)) > 1 else lines


def prompts(e: Evidence) -> Iterator[Finding]:
    """How prompts begin."""
    bos = e.settings.bos_id
    whole = unpadded_prompts(e)
    lines = [line[:2] for line in whole]
    given = bos is not None
    if not given and len(lines) >= MANY_ROWS and len({tuple(line) for line in lines}) == 1 and len(lines[0]) == 2:
        bos = lines[0][0] if len({tuple(line) for line in whole}) > 1 else None
    if not given and bos is None and len(lines) >= MANY_ROWS:  # few begin with the one id twice that all begin with
        once = {tuple(line) for line in lines if len(line) == 2 and line[0] == lines[0][0] != line[1]}
        rare = sum(line[:1] * 2 == line for line in lines) <= 0.1 * len(lines)
        bos = lines[0][0] if rare and len(once) >= 2 and all(line[:1] == lines[0][:1] for line in lines) else None
    doubled = [row for row, line in enumerate(lines) if len(line) == 2 and line[0] == bos and line[1] == bos]
    if doubled and bos is not None:
        places = tuple(Place(row, None, float("nan"), float(bos)) for row in doubled[:5])
        share = len(doubled) / len(lines)
        yield Finding(DOUBLE_BOS, "prompt_ids", {"share": share}, places, share, None if given else "suspicious")


_SCORED = {
    "other": "audit.scored_other", "part": "audit.scored_part", "more": "audit.scored_more",
    "different": "audit.scored_different",
}  # fmt: skip
_SPECIAL = re.compile(r"<\|[^|<>]*\|>|</?s>|<pad>|<eos>|<bos>|\s+")


def scored_text(e: Evidence) -> Iterator[Finding]:
    """What the scorer read against what the policy wrote; special tokens, spaces and a leading prompt do not count."""
    responses = [_plain(text) for text in e.row("response")]
    scored = [_plain(text) for text in e.row("reward_text")]
    given = [_plain(text) for text in e.row("prompt")] if "prompt" in e.dump.rows else [""] * len(scored)
    wrong: dict[str, list[int]] = {"other": [], "part": [], "more": [], "different": []}
    known = {text: row for row, text in enumerate(responses) if text}
    for row, (response, text, prompt) in enumerate(zip(responses, scored, given, strict=True)):
        if text == response or not response or text == prompt + response:
            continue
        if text in known:
            wrong["other"].append(row)
        elif text and text in response:
            wrong["part"].append(row)
        elif response in text:
            if not (text.endswith(response) and (not prompt or prompt in text or text[: -len(response)] in prompt)):
                wrong["more"].append(row)
        else:
            wrong["different"].append(row)
    kind = max(wrong, key=lambda one: len(wrong[one]))
    if rows := wrong[kind]:
        values = {"count": len(rows), **phrase("what", _SCORED[kind])}
        places = tuple(Place(row, None, float(len(responses[row])), float(len(scored[row]))) for row in rows[:5])
        severity: Severity | None = "suspicious" if kind in ("more", "part") else None
        yield Finding(OTHER_TEXT, "reward_text", values, places, len(rows) / len(scored), severity)


def _plain(text: Any) -> str:
    return _SPECIAL.sub("", str(text)) if text is not None else ""


def _share(wrong: Bools) -> float:
    return float(wrong.any(axis=1).mean()) if len(wrong) else 0.0


CHECKS: tuple[Check, ...] = (
    Check.of("K1 masks", (), masks),
    Check.of("K2 ends", ("token_ids",), ends),
    Check.of("K16 positions", ("position_ids",), positions),
    Check.of("K16 ids", ("token_ids", "rollout_ids"), sampled_ids),
    Check.of("K16 prompts", ("prompt_ids",), prompts),
    Check.of("K16 texts", ("response", "reward_text"), scored_text),
)  # fmt: skip
