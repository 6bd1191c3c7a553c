"""One prompt through time: the answers it got over the steps; and those of one step beside each other."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from mingce.base.conversation import asked
from mingce.record.store import LedgerFileError
from mingce.sources.rollouts import numbers, score_of, token_ids
from mingce.sources.source import Array, Source
from mingce.view.answers import Answer, Recurring, Through
from mingce.view.summary import cut
from mingce.view.worst_tokens import spread

THROUGH_COLUMNS = ("response_mask", "values", "advantages", "returns", "rewards", "deltas", "entropy", "kl")
SECONDS = 5.0  # of reading prompts, for one answer
THROUGH_TOKENS = 20_000
THROUGH_STEPS = 1000
THROUGH_ROWS = 5_000_000
SAMPLES = 64  # of one prompt, side by side
SAMPLE_TOKENS = 40_000
PROMPTS = 50
MAX_REFUSED = 5  # ledgers that cannot be read; each may have taken seconds


class PromptIndex:
    """Which prompt stands in which rows of which step. Read once a step; a prompt is remembered by its hash.

    Of a run with too many steps or rollouts as many steps are read, evenly spread, as memory and time allow.
    """

    def __init__(self, source: Source):
        self._source = source
        self._steps: dict[int, tuple[object, Array]] = {}
        self.left_out = 0

    def refresh(self) -> None:
        """Reads the steps that are new or have changed, and forgets those that have gone."""
        there = self._source.ledger_steps()
        most = min(THROUGH_STEPS, THROUGH_ROWS // max(self._newest_size(there), 1))
        every = math.ceil(len(there) / max(most, 1))
        steps = there[:: every or 1]
        self._steps = {step: known for step, known in self._steps.items() if step in set(steps)}
        refused, until = 0, time.monotonic() + SECONDS
        for step in spread(steps):
            if time.monotonic() > until:
                break
            try:
                stamp = self._source.stamp(step)
                if step not in self._steps or self._steps[step][0] != stamp:
                    prompts = self._source.row_column(step, "prompt") or []
                    self._steps[step] = stamp, np.array([hash(prompt) for prompt in prompts], dtype=np.int64)
            except LedgerFileError:  # reported with the run
                refused += 1
                if refused == MAX_REFUSED:
                    break
        self.left_out = len(there) - len(self._steps)

    def _newest_size(self, there: Sequence[int]) -> int:
        """How many rollouts the newest step has that can be read."""
        for step in there[: -MAX_REFUSED - 1 : -1]:
            with suppress(LedgerFileError):
                return self._source.size(step)
        return 0

    def places(self, prompt: str) -> list[tuple[int, int]]:
        """(step, row) of every rollout of the prompt, in order."""
        self.refresh()
        key = hash(prompt)
        return [
            (s, row) for s, (_, keys) in sorted(self._steps.items()) for row in np.flatnonzero(keys == key).tolist()
        ]

    def recurring(self) -> list[Recurring]:
        """The prompts that came in most steps."""
        self.refresh()
        steps: Counter[int] = Counter()
        rows: Counter[int] = Counter()
        first: dict[int, tuple[int, int]] = {}
        for step, (_, keys) in sorted(self._steps.items()):
            for key, row, count in zip(*(found.tolist() for found in _distinct(keys)), strict=True):
                steps[key] += 1
                rows[key] += count
                first.setdefault(key, (step, row))
        found = []
        for key, count in sorted(steps.items(), key=lambda item: (-item[1], first[item[0]]))[:PROMPTS]:
            step, row = first[key]
            prompt = self._source.rollouts(step, [row], ["prompt"])[0].get("prompt") or ""
            question = cut(asked(prompt, self._source.markers()))
            found.append(Recurring(prompt, question, rows[key], count, step, row))
        return found


def _distinct(keys: Array) -> tuple[Array, Array, Array]:
    """Each key once, with the first row that has it and how many have."""
    return np.unique(keys, return_index=True, return_counts=True)


def through(source: Source, prompt: str, places: Sequence[tuple[int, int]], steps_left_out: int) -> Through:
    """The answers to one prompt over the steps; of too many, as evenly spread a choice as fits."""
    every = 1
    by_step: dict[int, list[int]] = {}
    for step, row in places:
        by_step.setdefault(step, []).append(row)
    if places:
        first = source.rollouts(*_first(places), ["response_mask"])[0]
        every = max(1, math.ceil(len(places) * max(len(first["response_mask"]), 1) / THROUGH_TOKENS))
    answers, place = [], 0
    for step, rows in sorted(by_step.items()):
        kept = [row for k, row in enumerate(rows, place) if k % every == 0]
        place += len(rows)
        # a hash may be that of another text
        answers += [answer for text, answer in _answers(source, step, kept) if text == prompt]
    return Through(prompt, asked(prompt, source.markers()), answers, len(places) - len(answers), steps_left_out)


def samples(source: Source, step: int, row: int) -> Through:
    """The answers that one prompt got in a step, the given one among them, as many as are not too long together."""
    groups = source.row_column(step, "group") or []
    own = groups[row] if row < len(groups) else None
    rows = [row] if own is None else [other for other, group in enumerate(groups) if group == own]
    kept = sorted({row, *rows[:SAMPLES]})
    answers: list[Answer] = []
    prompt, tokens = "", 0
    for one in sorted(kept, key=lambda other: other != row):  # the given one first
        [(prompt, answer)] = _answers(source, step, [one])
        tokens += len(answer.tokens)
        if answers and tokens > SAMPLE_TOKENS:
            break
        answers.append(answer)
    answers.sort(key=lambda answer: answer.row)
    return Through(prompt, asked(prompt, source.markers()), answers, len(rows) - len(answers))


def _answers(source: Source, step: int, rows: Sequence[int]) -> list[tuple[str, Answer]]:
    """Some rollouts of a step with their prompts."""
    names = (*THROUGH_COLUMNS, "token_ids", "scores", "response", "finish_reason", "outcome", "prompt")
    texts, float32 = source.tokens(), source.kind == "run"
    return [
        (
            found.get("prompt") or "",
            Answer(
                step=step,
                row=row,
                score=score_of(found),
                finish_reason=found.get("finish_reason"),
                response=found.get("response") or "",
                tokens=texts.tokens(token_ids(found)),
                columns=numbers(found, THROUGH_COLUMNS, float32=float32),
            ),
        )
        for row, found in zip(rows, source.rollouts(step, rows, names, THROUGH_TOKENS) if rows else [], strict=True)
    ]


def _first(places: Sequence[tuple[int, int]]) -> tuple[int, list[int]]:
    step, row = places[0]
    return step, [row]
