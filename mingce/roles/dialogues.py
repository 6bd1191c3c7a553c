"""Rollouts of several turns: conversations with environments, drawn and laid out as a ledger.

A conversation is a row: what the policy chose has response_mask 1, what it was told in between 0, and attention_mask is
1 on both. Where a chat template rewrote the history, a conversation is several rows, each with its own prompt. Ids are
those that were sampled, and those that observations were encoded to once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mingce.ledger import Ledger
from mingce.models.conversations import Limits, Segment, converse
from mingce.models.drawing import Sampling
from mingce.record.clocks import TurnClock
from mingce.roles.worlds import Play
from mingce.tasks.base import Example

if TYPE_CHECKING:
    from mingce.roles.actor import Actor, LocalActor
    from mingce.roles.learner import OnProgress


def play(
    actor: LocalActor,
    examples: Sequence[Example],
    sampling: Sampling,
    seeds: Sequence[int],
    world_seeds: Sequence[int],
    on_progress: OnProgress | None = None,
) -> list[Play]:
    """A conversation for every example, in order, with the policy and the environments of this process."""
    worlds, began = actor.worlds, time.monotonic()
    assert worlds is not None
    table = worlds.open(examples, world_seeds)
    transcripts = converse(
        actor.sampler,
        table.prompts,
        sampling,
        table,
        Limits(worlds.config.max_turns, worlds.config.turn_tokens),
        seeds=seeds,
        closing_ids=worlds.ends.closing_ids,
        ends_turn=worlds.ends,
        max_rows=actor.config.sampling.max_rows,
        on_progress=on_progress,
    )
    over = zip(table.plays, transcripts, strict=True)
    return [one.ended(transcript, began, actor.sampling.stop_ids) for one, transcript in over]


def ledger_of(plays: Sequence[Play], actor: Actor, rows_of: dict[str, Sequence[Any]]) -> Ledger:
    """The conversations as a ledger; `rows_of`: row columns with a value for each conversation."""
    parts = [(number, one, segment) for number, one in enumerate(plays) for segment in _transcript(one).segments]
    width = max((len(segment.ids) for *_, segment in parts), default=0)

    def column(name: str, dtype: torch.dtype, empty: Any = 0) -> Tensor:
        whole = torch.full((len(parts), width), empty, dtype=dtype)
        for row, (*_, segment) in enumerate(parts):
            whole[row, : len(segment.ids)] = torch.tensor(getattr(segment, name), dtype=dtype)
        return whole

    lengths = torch.tensor([len(segment.ids) for *_, segment in parts], dtype=torch.long)
    present = torch.arange(width) < lengths[:, None]
    decode = actor.tokenizer.decode
    firsts = [segment is _transcript(one).segments[0] for _, one, segment in parts]
    rows: dict[str, Sequence[Any]] = {name: [values[n] for n, *_ in parts] for name, values in rows_of.items()}
    rows |= {
        "uid": [_uid(rows["uid"][row], one, segment) for row, (_, one, segment) in enumerate(parts)],
        "prompt": [decode(segment.prompt) for *_, segment in parts],
        "prompt_ids": [segment.prompt for *_, segment in parts],
        "response": [decode(segment.ids, skip_special_tokens=True) for *_, segment in parts],
        "finish_reason": [_reason(one, segment) for _, one, segment in parts],
        "conversation": [number for number, *_ in parts],
        "segment": [_transcript(one).segments.index(segment) for _, one, segment in parts],
        "turn_rewards": [_rewards(one, segment) for _, one, segment in parts],
        "tool_calls": [one.tool_calls if first else 0 for first, (_, one, _) in zip(firsts, parts, strict=True)],
        "malformed_calls": [one.malformed if first else 0 for first, (_, one, _) in zip(firsts, parts, strict=True)],
        "drift": [one.drift if segment is _transcript(one).segments[-1] else -1 for _, one, segment in parts],
    }
    assert actor.worlds is not None
    chosen = column("chosen", torch.bool, False)
    mask = chosen if actor.worlds.config.mask_observations else present
    ledger = Ledger(column("ids", torch.long, actor.pad_id), mask, present, rows)
    columns = {"turn": column("turns", torch.long), "role": column("roles", torch.long)}
    actor.worlds.measured = {
        "agent/ids_as_sampled": ids_as_sampled(ledger, chosen, plays),
        "timing_s/tools": sum(one.seconds for one in plays),
    }
    actor.worlds.clocks = [_clock(one, segment) for _, one, segment in parts]
    return ledger.fill({"rollout_log_probs": column("log_probs", torch.float32)}, columns)


def _clock(one: Play, segment: Segment) -> list[TurnClock]:
    """The times of a segment's turns."""
    stepped, decoded = one.stepped, _transcript(one).decoded
    return [
        TurnClock(turn, *decoded[turn], *(stepped[turn] if turn < len(stepped) else (None, None)))
        for turn in sorted(set(segment.turns))
    ]


def ids_as_sampled(ledger: Ledger, chosen: Tensor, plays: Sequence[Play]) -> float:
    """The share of conversations whose chosen ids in the ledger are, one behind the other, those that were drawn."""
    kept: dict[int, list[int]] = {}
    for row, number in enumerate(ledger.row("conversation")):
        kept.setdefault(number, []).extend(ledger["token_ids"][row][chosen[row]].tolist())
    drawn = [[token for turn in _transcript(one).turns for token in turn] for one in plays]
    return sum(kept[number] == ids for number, ids in enumerate(drawn)) / max(len(plays), 1)


def _transcript(one: Play) -> Any:
    assert one.transcript is not None
    return one.transcript


def _uid(uid: str, one: Play, segment: Segment) -> str:
    """Of a conversation's first segment its own, of later ones with their number."""
    number = _transcript(one).segments.index(segment)
    return f"{uid}.{number}" if number else uid


def _reason(one: Play, segment: Segment) -> str:
    """A segment that was followed by another one has stopped."""
    return one.finish_reason if segment is _transcript(one).segments[-1] else "stop"


def _rewards(one: Play, segment: Segment) -> list[float]:
    """What the segment's turns earned; the last one also what came in later segments, which it led to."""
    first, last = segment.turns[0], segment.turns[-1]
    padded = [*one.rewards, *[0.0] * (last + 1 - len(one.rewards))]
    return [*padded[first:last], sum(padded[last:])] if segment is not _transcript(one).segments[-1] else padded[first:]
