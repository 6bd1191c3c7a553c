"""Where in the rows two columns part, when they do so in few places only: on the first token, in one slot, on one id.

A gap that sits in such places is a fault of those places. A mean, a correlation or a straight line over all tokens
would take it for one of the whole policy: another temperature, a cut vocabulary, older weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from mingce.audit.evidence import Bools, Evidence, Floats, last_slot
from mingce.audit.finding import Fault, Finding, phrase

GAP = Fault.of("gap-in-one-place", "bug", (), "log π_old(a_t) ≈ log q(a_t) on every token", "")
SURPRISE = Fault.of("surprise-in-one-place", "suspicious", (), "E[−log π_old(a_t) | s_t] = H_t on every token", "")
LEAST = 8  # tokens of a spot
MOST_SHARE = 0.25  # of the tokens that a spot may hold
LOUD = 0.3  # nats: what is less apart is nothing to speak of
TIMES = 6.0  # as far apart as the rest is on average
BEYOND = 2.0  # times what nearly all of the rest stays below


@dataclass(frozen=True)
class Spot:
    """A kind of place: the sentence that names it, the slots, and what may be wrong there."""

    key: str
    slots: Bools
    values: dict[str, object] = field(default_factory=dict)
    classes: tuple[int, ...] = ()


def spots(e: Evidence, size: Floats, use: Bools) -> Iterator[Spot]:
    """The places that are asked, those that say most first."""
    at, width = np.arange(len(use)), use.shape[1]
    ids = e.dump.columns.get("token_ids")
    pad = pad_id(e)
    if ids is not None and pad is not None and pad not in e.stop_ids:
        yield Spot("audit.spot_pads", use & (ids == pad), {"id": pad}, (8,))
    filled = np.flatnonzero(e.mask.any(axis=1))
    first, last = np.zeros_like(use), np.zeros_like(use)
    first[filled, e.mask.argmax(axis=1)[filled]] = True
    last[filled, last_slot(e.mask)[filled]] = True
    yield Spot("audit.spot_first", first & use, {}, (18, 28, 42))
    yield Spot("audit.spot_last", last & use, {}, (7, 18, 36))
    begins = e.mask & ~np.pad(e.mask, ((0, 0), (1, 0)))[:, :-1] & ~first
    yield Spot("audit.spot_turns", begins & use, {}, (3, 18, 42))
    if width and use.any():
        column = int(np.where(use, np.minimum(size, 5.0), 0.0).sum(axis=0).argmax())
        slot = np.zeros_like(use)
        slot[at, column] = True
        ends = bool((slot & use & ~last).sum() == 0)
        yield Spot(*(("audit.spot_limit", slot & use, {}, (36, 7, 18)) if ends else
                     ("audit.spot_slot", slot & use, {"slot": column}, (18, 40))))  # fmt: skip
    if ids is not None and (far := use & (size > LOUD)).any():
        found, counts = np.unique(ids[far], return_counts=True)
        one = int(found[counts.argmax()])
        yield Spot("audit.spot_id", use & (ids == one), {"id": one})


def hotspot(e: Evidence, size: Floats, use: Bools) -> Spot | None:
    """The one kind of place where the columns part by far, while everywhere else they agree."""
    if np.count_nonzero(size > LOUD) < LEAST:
        return None
    everywhere = float(size[use].mean())
    for spot in spots(e, size, use):
        here, rest = spot.slots, use & ~spot.slots
        count = int(here.sum())
        if count < LEAST or count > MOST_SHARE * int(use.sum()):
            continue
        inside, outside = float(np.median(size[here])), float(size[rest].mean())
        near = float(np.quantile(size[rest], 0.95))
        if inside > max(LOUD, TIMES * outside, BEYOND * near) and outside < 0.7 * everywhere:
            return spot
    return None


def gap_in_one_place(e: Evidence, old: Floats, drawn: Floats, use: Bools) -> Finding | None:
    """That trainer and sampler part in one kind of place alone."""
    size = np.where(use, np.abs(old - drawn), 0.0)
    spot = hotspot(e, size, use)
    if spot is None:
        return None
    rest = use & ~spot.slots
    values: dict[str, object] = {
        "size": float(size[spot.slots].mean()), "rest": float(size[rest].mean()), "count": int(spot.slots.sum()),
        **phrase("where", spot.key, **spot.values),
    }  # fmt: skip
    share = float(spot.slots.any(axis=1).sum() / max(int(use.any(axis=1).sum()), 1))
    return Finding(GAP, "old_log_probs", values, e.places(spot.slots, drawn, old), share, classes=spot.classes)


def surprise_in_one_place(e: Evidence, old: Floats, h: Floats, use: Bools) -> Finding | None:
    """That the tokens are far less likely than the entropy says in one kind of place alone."""
    size = np.where(use, np.maximum(-old - h, 0.0), 0.0)
    spot = hotspot(e, size, use)
    if spot is None:
        return None
    values: dict[str, object] = {"size": float((-old)[spot.slots].mean()), "entropy": float(h[spot.slots].mean())}
    values |= {"count": int(spot.slots.sum()), **phrase("where", spot.key, **spot.values)}
    share = float(spot.slots.any(axis=1).sum() / max(int(use.any(axis=1).sum()), 1))
    return Finding(SURPRISE, "old_log_probs", values, e.places(spot.slots, h, -old), share, classes=spot.classes)


def pad_id(e: Evidence) -> int | None:
    """The padding's id: the settings', or the one that every slot without a token holds."""
    if e.settings.pad_id is not None:
        return int(e.settings.pad_id)
    ids = e.dump.columns.get("token_ids")
    if ids is None or "attention_mask" not in e.dump.columns or e.attended.all():
        return None
    found = np.unique(ids[~e.attended])
    return int(found[0]) if len(found) == 1 else None
