"""Bugs of masks, ends of rows and prompts: classes 7, 8, 12, 13, 36, 42."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from audit_case import Case
from audit_clean import place_score
from audit_world import (
    BOS,
    EOS,
    FIRST_WORD,
    OTHER_STOP,
    PAD,
    VOCABULARY,
)

from audit_plants import here, plant
from audit_plants.sampling import MANY, rescored

# ── 7, 8, 36: ends of rows ─────────────────────────────────────────────────────────────────────────────────────────


def _without_eos(case: Case) -> Any:
    ended = np.array(case.rollouts.finish) == "stop"
    here(ended.sum() >= 4)
    last = case.last.numpy()
    case.pad = case.settings["pad_id"] = EOS
    case.rollouts.chosen[ended, last[ended]] = False
    return ended, last


@plant(7, "the loss mask is y ≠ pad")
def _(case: Case) -> None:
    _without_eos(case)
    case.remask()
    here(case.chosen.any(dim=1).all())


@plant(7, "both masks are y ≠ pad")
def _(case: Case) -> None:
    ended, last = _without_eos(case)
    case.rollouts.present[ended, last[ended]] = False
    case.remask()
    here(case.chosen.any(dim=1).all())


def _stopped_without_eos(case: Case) -> Any:
    """Half of the rows stop at a string and not at EOS; their masks say all ones to the end."""
    rows, width = case.shape
    case.pad = case.settings["pad_id"] = PAD
    last = case.last_present.numpy()
    hit = np.zeros(rows, dtype=bool)
    for row in case.rng.permutation(rows)[: rows // 2]:
        if (
            case.rollouts.finish[row] == "stop"
            and 3 <= last[row] < width - 4
            and case.rollouts.chosen[row, last[row] - 1]
        ):
            end = last[row]  # the EOS goes, and one id stands to the end of the row
            case.rollouts.present[row, end:] = case.rollouts.chosen[row, end:] = False
            case.rollouts.ids[row, end:] = case.pad
            hit[row] = True
    here(hit.sum() >= 2)
    return hit


@plant(8, "the attention mask knows better")
def _(case: Case) -> None:
    hit = _stopped_without_eos(case)
    end = torch.tensor(case.rollouts.present).sum(1) - 1
    case.rescore()
    case.chosen = case.chosen | torch.tensor(hit)[:, None]
    case.loss_mask = case.chosen
    case.put("score", lambda c: place_score(c, end))


@plant(8, "both masks are ones")
def _(case: Case) -> None:
    hit = _stopped_without_eos(case)
    case.rescore()
    case.chosen, case.present = (mask | torch.tensor(hit)[:, None] for mask in (case.chosen, case.present))
    case.loss_mask = case.chosen


@plant(36, "EOS forced onto rows that were cut")
def _(case: Case) -> None:
    cut = np.array(case.rollouts.finish) == "length"
    here(cut.sum() >= 3)
    here(case.rollouts.chosen[cut, -1].all())
    case.rollouts.ids[cut, -1] = EOS
    case.rescore()
    case.rollouts.log_probs[cut, -1] = case.raw["old_log_probs"].numpy()[cut, -1]
    case.again("rollout_log_probs", case.rollouts.log_probs)


@plant(36, "EOS trimmed by the engine")
def _(case: Case) -> None:
    ended, last = np.array(case.rollouts.finish) == "stop", case.last.numpy()
    here((ended & (last > 1)).sum() >= 6)
    for row in np.flatnonzero(ended):
        case.rollouts.present[row, last[row]] = case.rollouts.chosen[row, last[row]] = False
    case.rollouts.log_probs[~case.rollouts.chosen] = 0.0
    case.rescore()


@plant(36, "another stop id")
def _(case: Case) -> None:
    ended, last = np.array(case.rollouts.finish) == "stop", case.last.numpy()
    some = ended & (case.rng.random(len(ended)) < 0.6)
    here(some.sum() >= 4)
    case.rollouts.ids[some, last[some]] = OTHER_STOP
    case.rescore()
    case.rollouts.log_probs[some, last[some]] = case.raw["old_log_probs"].numpy()[some, last[some]]
    case.again("rollout_log_probs", case.rollouts.log_probs)


# ── 12, 13, 42: other ids than were sampled ────────────────────────────────────────────────────────────────────────


def _retokenised(case: Case, longer: bool) -> None:
    """From some token on the row is written with one id less or more; the engine's log-probs stay as they came."""
    rollouts, width = case.rollouts, case.shape[1]
    sampled = [rollouts.ids[i, : int(n) + 1].tolist() for i, n in enumerate(case.last_present)]
    hit = 0
    for row in range(case.shape[0]):
        n = len(sampled[row])
        plain = rollouts.chosen[row, :n].all()
        if not plain or n < 12 or (longer and n >= width - 1) or case.rng.random() < 0.2:
            continue
        at = int(case.rng.integers(2, n // 2))
        other = case.rng.integers(FIRST_WORD, VOCABULARY, 3).tolist()
        ids = sampled[row]
        ids = [*ids[:at], *other, *ids[at + 2 :]] if longer else [*ids[:at], other[0], *ids[at + 2 :]]
        rollouts.ids[row], rollouts.chosen[row], rollouts.present[row] = case.pad, False, False
        rollouts.ids[row, : len(ids)] = ids
        rollouts.chosen[row, : len(ids)] = rollouts.present[row, : len(ids)] = True
        hit += 1
    here(hit >= 5)
    case.rescore()
    case.rows["rollout_ids"] = sampled


@plant(12, "merged tokens", **MANY)
def _(case: Case) -> None:
    _retokenised(case, longer=False)


@plant(12, "split tokens", **MANY)
def _(case: Case) -> None:
    _retokenised(case, longer=True)


@plant(12, "merged tokens, sampled ids not stored", **MANY)
def _(case: Case) -> None:
    _retokenised(case, longer=False)
    case.rows.pop("rollout_ids")


def _pads_count(case: Case) -> list[list[int]]:
    lengths = [len(prompt) for prompt in case.rollouts.prompts]
    rescored(case, shift=np.array([max(lengths) - n for n in lengths]))
    return [list(range(max(lengths) + case.shape[1])) for _ in lengths]


@plant(13, "position ids count the pads", samples=1, **MANY)
def _(case: Case) -> None:
    case.rows["position_ids"] = _pads_count(case)


@plant(13, "position ids not stored", samples=1, **MANY)
def _(case: Case) -> None:
    _pads_count(case)
    case.hide.add("position_ids")


@plant(42, "BOS twice")
def _(case: Case) -> None:
    case.rows["prompt_ids"] = [[BOS, *prompt] for prompt in case.rollouts.prompts]
    case.hide.add("position_ids")


@plant(42, "BOS twice in some prompts")
def _(case: Case) -> None:
    half = case.rng.random(case.shape[0]) < 0.5
    here(half.any())
    case.rows["prompt_ids"] = [[BOS, *p] if h else p for p, h in zip(case.rollouts.prompts, half, strict=True)]
    case.hide.add("position_ids")
