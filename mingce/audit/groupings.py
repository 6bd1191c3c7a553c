"""Which rows were compared with each other: those of a prompt, and the groupings by which trainers missed that."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mingce.audit.evidence import Evidence, Ints, part_numbers
from mingce.base.texts import sentence_pair

Words = tuple[str, str]


def prompts(e: Evidence) -> Ints | None:
    """[B] the number of each row's prompt: by its ids, else by the dumped group or uid.

    A prompt that is twice in the batch is two, if the dumped groups say so and each of them has several rows.
    """
    dumped = next((part_numbers(e.row(name)) for name in ("group", "uid") if e.has(name)), None)
    if not e.has("prompt_ids"):
        return dumped
    part = part_numbers(",".join(map(str, ids)) for ids in e.row("prompt_ids"))
    if dumped is None or np.bincount(dumped).min(initial=2) < 2:
        return part
    whole = len(np.unique(part * len(part) + dumped)) == len(np.unique(dumped))  # no group is of two prompts
    return dumped if whole else part


def groupings(e: Evidence, true: Ints) -> Iterator[tuple[Words, Ints]]:
    """Ways in which trainers have formed groups by mistake."""
    rows = len(true)
    sizes = np.bincount(true)
    usual = int(np.median(sizes[sizes > 0]))
    yield sentence_pair("audit.by_row"), np.arange(rows)
    yield sentence_pair("audit.by_batch"), np.zeros(rows, np.int64)
    for size in {usual, int(sizes.max()), int(e.settings.group_size or usual)}:
        if 1 < size < rows:
            yield sentence_pair("audit.by_windows", size=size), np.arange(rows) // size
            if rows % size == 0:
                yield sentence_pair("audit.by_stride", stride=rows // size), np.arange(rows) % (rows // size)
    within = [(sentence_pair("audit.by_prompt_in_rank"), part_numbers(e.row("rank")))] if e.has("rank") else []
    within += [
        (sentence_pair("audit.by_prompt_in_blocks", parts=parts), np.arange(rows) * parts // rows)
        for parts in (2, 4, 8)
        if rows > 2 * parts
    ]
    within += [(sentence_pair("audit.by_halves"), half) for half in _halves(true)]
    for words, part in within:
        yield words, np.unique(true * rows + part, return_inverse=True)[1].astype(np.int64)
    for name, key in _BY.items():
        if e.has(name):
            yield sentence_pair(key), part_numbers(e.row(name))


def _halves(part: Ints) -> tuple[Ints, Ints]:
    """[B] whether a row is in the second half of its prompt's samples, and whether its number there is odd."""
    order = np.argsort(part, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(part))])
    number = np.empty(len(part), np.int64)
    number[order] = np.arange(len(part)) - starts[part[order]]
    return (2 * number >= np.bincount(part)[part]).astype(np.int64), number % 2


_BY = {"uid": "audit.by_uid", "group": "audit.by_group", "rank": "audit.by_rank", "micro_batch": "audit.by_micro_batch"}
