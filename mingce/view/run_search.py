"""A text looked for in all rollouts of a run, the newest steps first, as far as one answer's time goes."""

from __future__ import annotations

import time

import numpy as np

from mingce.base.conversation import asked
from mingce.record.store import LedgerFileError
from mingce.sources.rollouts import damage_reported
from mingce.sources.source import Source
from mingce.view.over_run import Hit, SearchResult, StepHits
from mingce.view.summary import cut

SECONDS = 3.0
HITS = 4  # shown of a step; the step's own page has all
STEPS = 25  # with hits, in one answer
_AROUND = 90  # characters on each side


def search_run(source: Source, text: str, before: int | None = None, seconds: float = SECONDS) -> SearchResult:
    """The steps whose prompts or responses have the text, whatever its case; `before` goes on from an earlier answer.

    `next` is where to go on; None when every step was looked at.
    """
    there = [step for step in source.ledger_steps() if before is None or step < before][::-1]
    until, found, left, seen = time.monotonic() + seconds, [], 0, 0
    for at, step in enumerate(there):
        try:
            with damage_reported(source, step):
                rows = np.flatnonzero(source.search(step, text))
                if len(rows):
                    found.append(_hits(source, step, rows[:HITS].tolist(), len(rows), text))
        except LedgerFileError:  # reported with the run
            pass
        seen, left = at + 1, len(there) - at - 1
        if left and (time.monotonic() > until or len(found) == STEPS):
            break
    return SearchResult(text, found, seen, left, there[seen - 1] if left else None)


def _hits(source: Source, step: int, rows: list[int], count: int, text: str) -> StepHits:
    stored = source.rollouts(step, rows, ("prompt", "response"))
    hits = []
    for row, one in zip(rows, stored, strict=True):
        prompt, response = (str(one.get(name) or "") for name in ("prompt", "response"))
        question = asked(prompt, source.markers())
        places = (response, question, prompt)  # what the template put around a question is looked at last
        place = next((one for one in places if text.lower() in one.lower()), response)
        start = max(place.lower().find(text.lower()), 0)
        end = start + (len(text) if text.lower() in place.lower() else 0)
        before, after = place[max(start - _AROUND, 0) : start], place[end : end + _AROUND]
        before = f"…{before}" if start > _AROUND else before
        after = f"{after}…" if end + _AROUND < len(place) else after
        hits.append(Hit(row, cut(question), before, place[start:end], after, place is response))
    return StepHits(step, count, hits)
