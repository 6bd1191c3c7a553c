"""Which step and rank a file belongs to, and the files of one step joined along their rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

import numpy as np

from mingce.base.texts import sentence_pair
from mingce.importers.draft import Draft
from mingce.importers.limits import ALLOWED, MAX_CELLS, Refused
from mingce.importers.numbers import Numbers

# step_12, global_step_12, train_data_step12, rollout_12, iter-12; but not n_step_5, steps_100, step_7b or step_2.5
_STEP = re.compile(
    r"(?<![a-z])(?<!n[-_])(?<!k[-_])(?<!multi[-_])(?:global|train)?(?:step|rollout|iteration|iter|update)"
    r"[-_= ]?(?:id[-_= ]?)?(\d{1,9})(?![\da-z]|\.\d)",
    re.IGNORECASE,
)
_OF = re.compile(r"(\d{1,6})[-_]of[-_](\d{1,6})", re.IGNORECASE)
_RANK = re.compile(r"(?:rank|shard|(?<![a-z])dp|(?<![a-z])part|worker)[-_ ]?(\d{1,6})(?!\d)", re.IGNORECASE)


def place(path: PurePath) -> tuple[int | None, int | None, int | None]:
    """(step, rank, number of ranks) as the file's name and its directories tell them."""
    rank = world = step = None
    for part in reversed(path.parts[-4:]):
        stem = part.rsplit(".", 1)[0] if part == path.name else part
        if rank is None and (found := _OF.search(stem)):
            rank, world = int(found[1]), int(found[2])
            stem = stem.replace(found[0], "")
            # shards are counted from 0 (model-00000-of-00004) or from 1
        if rank is None and (found := _RANK.search(stem)):
            rank = int(found[1])
            stem = stem.replace(found[0], "")
        if step is None and (found := _STEP.search(stem)):
            step = int(found[1])
    return step, rank, world


def joined(drafts: Sequence[Draft], where: str) -> Draft:
    """The rows of all drafts one after another, with the columns that all of them have."""
    first = drafts[0]
    whole = Draft(where, first.source, settings={}, step=first.step)
    width = max(draft.columns["response_mask"].array.shape[1] for draft in drafts)
    if width * sum(map(len, drafts)) > MAX_CELLS:
        raise Refused(f"{where} has {sum(map(len, drafts)):,} rows of up to {width:,} tokens; open fewer files.")
    names = [name for name in first.columns if all(name in draft.columns for draft in drafts)]
    for name in names:
        ALLOWED.take(where, name, 8 * width * sum(map(len, drafts)))
        parts = [draft.columns[name] for draft in drafts]
        arrays = [np.pad(part.array, ((0, 0), (0, width - part.array.shape[1]))) for part in parts]
        whole.columns[name] = Numbers(np.concatenate(arrays), parts[0].stored)
    for name in first.rows:
        if all(name in draft.rows for draft in drafts):
            whole.rows[name] = [value for draft in drafts for value in draft.rows[name]]
    for draft in drafts:
        whole.settings |= draft.settings
        whole.scalars |= draft.scalars if len(drafts) == 1 else {}
        whole.remarks += [remark for remark in draft.remarks if remark not in whole.remarks]
    everywhere = set().union(*(draft.columns for draft in drafts))
    for name in sorted(everywhere - set(names)):
        holders = sum(name in draft.columns for draft in drafts)
        remark = sentence_pair("importers.only_in_some", name=name, files=len(drafts), holders=holders)
        whole.remarks.append(remark)
    return whole


def join_ranks(drafts: Sequence[Draft], where: str, expected: int | None = None) -> Draft:
    """The files of one step, by rank; a missing rank is reported. `expected` ranks were seen at other steps."""
    drafts = sorted(drafts, key=lambda draft: -1 if draft.rank is None else draft.rank)
    for draft in drafts:
        if draft.rank is not None and "rank" not in draft.rows:
            draft.rows["rank"] = [draft.rank] * len(draft)
    whole = drafts[0] if len(drafts) == 1 else joined(drafts, where)
    ranks = {draft.rank for draft in drafts if draft.rank is not None}
    if not ranks:
        return whole
    world = max([draft.world for draft in drafts if draft.world is not None], default=0)
    from_one = world > 0 and max(ranks) == world and 0 not in ranks
    count = max(world, expected or 0, max(ranks) + (0 if from_one else 1))
    missing = sorted(set(range(int(from_one), count + int(from_one))) - ranks)
    if missing:
        listed = ", ".join(map(str, missing[:8])) + (" …" if len(missing) > 8 else "")
        remark = sentence_pair("importers.missing_ranks", count=count, missing=len(missing), ranks=listed)
        whole.remarks.append(remark)
    elif len(drafts) > 1:
        whole.settings.setdefault("world_size", count)
    return whole
