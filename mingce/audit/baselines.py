"""Baselines that the samples of a prompt share: one for the prompt (ReMax), or one for each token."""

from __future__ import annotations

import numpy as np

from mingce.audit.evidence import Bools, Evidence, Floats, Ints
from mingce.audit.groupings import prompts
from mingce.specs.comparisons import BASELINE_OF_PROMPT, BASELINE_OF_TOKEN


def baseline(e: Evidence, taken: Floats, room: Floats, judged: Bools) -> str | None:
    """The name of the baseline that was taken off each token, if it is one that the samples of a prompt share.

    Where no prompt has two tokens, nothing can be held against it, and it passes for one of the prompt.
    """
    part, declared = prompts(e), e.settings.estimator
    if part is None:
        return None
    own = np.broadcast_to(part[:, None], judged.shape)
    if declared in (None, *BASELINE_OF_PROMPT) and (
        np.bincount(own[judged]).max() < 2 or _shared(taken, room, judged, own)
    ):
        return "audit.baseline_of_prompt"
    if declared not in (None, *BASELINE_OF_TOKEN):
        return None
    longest = _longest(part, judged.sum(axis=1))
    ahead = judged & ~(longest[:, None] & (np.abs(taken) <= room))  # its tail, which no other reaches, has none
    slots = np.broadcast_to(np.arange(judged.shape[1]), judged.shape)
    for place in (slots, np.cumsum(judged, axis=1) - 1):
        where = ahead & ~_alone(part, place, ahead)
        if where.sum() > 0.1 * judged.sum() and _shared(taken, room, where, part[:, None] * judged.shape[1] + place):
            return "audit.baseline_of_token"
    return None


def _longest(part: Ints, lengths: Ints) -> Bools:
    """[B] the longest sample of each prompt."""
    most = np.zeros(int(part.max(initial=0)) + 1, np.int64)
    np.maximum.at(most, part, lengths)
    return np.asarray(lengths == most[part])


def _shared(taken: Floats, room: Floats, where: Bools, part: Ints) -> bool:
    """Whether it is one number in each part, up to rounding."""
    numbers, inverse = taken[where], np.unique(part[where], return_inverse=True)[1]
    count = np.bincount(inverse)
    if len(numbers) < 8 or count.max() < 2:
        return False
    mean = np.bincount(inverse, numbers) / count
    most = np.bincount(inverse, room[where]) / count
    return bool((np.abs(numbers - mean[inverse]) <= 2 * (room[where] + most[inverse])).all())


def _alone(part: Ints, place: Ints, judged: Bools) -> Bools:
    """[B, T] tokens that no other sample of the prompt has at their place: nothing to compare them with."""
    key = np.where(judged, part[:, None] * judged.shape[1] + place, -1)
    count = np.bincount(key[judged], minlength=int(key.max(initial=0)) + 1)
    return np.asarray(judged & (count[np.maximum(key, 0)] < 2))
