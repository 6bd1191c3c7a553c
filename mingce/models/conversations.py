"""Many conversations decoded at once: rows stop at a turn's end, wait for their answer, and go on from their cache.

What somebody answers (`Partner`) is appended to the row as ids, and only that goes through the model; the history never
does again. While rows wait, the others are decoded. A row comes back after a number of tokens drawn by the others, not
of seconds, so that which rows are computed together is the same however long an answer took: a step repeated is the
same step, bit for bit. Every row has its own stream of random numbers, read at the slot that is drawn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from mingce.models import cpu
from mingce.models.cache import AnewDecoder, CachedDecoder, skips_padding
from mingce.models.drawing import Sampling, draw, seed_tensor
from mingce.models.lora import base_causal_lm
from mingce.models.sampling import Progress, expect_finite, window_limits

PATIENCE = 16
"""Tokens that the other rows draw, at the least, before a row that waits comes back."""
ASSISTANT = 1
"""The role of what the policy chose (mingce.columns.ROLES)."""


@dataclass(frozen=True)
class Reply:
    """What follows a turn: ids to go on with, of a role; or a prompt to begin again with; or nothing, the end."""

    ids: Sequence[int] = ()
    role: int = 0
    prompt: Sequence[int] | None = None
    done: bool = False


class Partner(Protocol):
    """Whoever answers turns. Both methods are called from the thread that decodes."""

    def listen(self, row: int, ids: list[int], *, last: bool) -> None:
        """A row's turn has ended with these ids; `last`: whatever comes of it, there is no room for another one."""
        ...

    def reply(self, row: int) -> Reply:
        """The answer to it, waited for."""
        ...


@dataclass(frozen=True)
class Limits:
    """A conversation's limits besides `Sampling.max_new_tokens`, which counts all its tokens but the prompts."""

    turns: int
    turn_tokens: int = 0
    """Tokens of one turn; 0: as many as the conversation may have."""


@dataclass
class Segment:
    """A prompt and what came after it: ids, which of them were drawn, with which log-probs, in which turn and role."""

    prompt: list[int]
    ids: list[int] = field(default_factory=list)
    chosen: list[bool] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    roles: list[int] = field(default_factory=list)


@dataclass
class Transcript:
    """A conversation: one segment, or more where a template rewrote the history in between."""

    segments: list[Segment]
    turns: list[list[int]] = field(default_factory=list)
    """The ids of each turn as they were drawn."""
    finish_reason: str = ""
    """`stop`: the partner ended it; `length`: cut by a limit."""
    decoded: list[tuple[float, float]] = field(default_factory=list, compare=False)
    """When the decoding of each turn began and ended, by `time.monotonic`."""

    @property
    def tokens(self) -> int:
        return sum(len(segment.ids) for segment in self.segments)


EndsTurn = Callable[[Sequence[int]], bool]
"""Whether a turn of these ids ends with a text that ends turns."""


@torch.no_grad()
def converse(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    partner: Partner,
    limits: Limits,
    *,
    seeds: Sequence[int],
    closing_ids: Sequence[int] = (),
    ends_turn: EndsTurn = lambda ids: False,
    max_rows: int = 256,
    on_progress: Progress | None = None,
) -> list[Transcript]:
    """A conversation for every prompt, at most `max_rows` at a time; `seeds` holds one seed a row.

    A turn ends with one of the stop ids, or with a text that `ends_turn` knows, which is asked after `closing_ids`.
    """
    assert len(seeds) == len(prompts)
    model.eval()
    window_limits(model, prompts, 1)  # refuses a prompt that leaves no room
    transcripts = [Transcript([Segment(list(prompt))]) for prompt in prompts]
    by_length = sorted(range(len(prompts)), key=lambda row: len(prompts[row]))
    said = _Said(on_progress)
    for begin in range(0, len(prompts), max_rows):
        rows = by_length[begin : begin + max_rows]
        batch = _Batch(model, sampling, limits, partner, rows, [transcripts[row] for row in rows], said)
        batch.closing, batch.ends_turn = frozenset(closing_ids), ends_turn
        batch.run(seed_tensor([seeds[row] for row in rows], batch.device))
    return transcripts


@dataclass
class _Said:
    """How far the whole is."""

    on_progress: Progress | None
    rows: int = 0
    tokens: int = 0

    def add(self, tokens: int, rows: int = 0) -> None:
        self.rows, self.tokens = self.rows + rows, self.tokens + tokens
        if self.on_progress is not None:
            self.on_progress(self.rows, self.tokens)


class _Batch:
    """Rows that are decoded together. `rows` are their numbers outside; within, they count from 0."""

    closing: frozenset[int]
    ends_turn: EndsTurn

    def __init__(
        self,
        model: nn.Module,
        sampling: Sampling,
        limits: Limits,
        partner: Partner,
        rows: Sequence[int],
        transcripts: list[Transcript],
        said: _Said,
    ):
        self.sampling, self.limits, self.partner, self.said = sampling, limits, partner, said
        self.rows, self.transcripts = rows, transcripts
        self.device = next(model.parameters()).device
        window = getattr(base_causal_lm(model).config, "max_position_embeddings", None)
        self.positions = self._longest() if window is None else min(window, self._longest())
        self.decoder = _decoder(model, self.positions)
        self.stop_ids = frozenset(sampling.stop_ids)
        self.waiting: dict[int, int] = {}  # row → the clock when its turn ended
        self.turn: list[list[int]] = [[] for _ in rows]
        self.since = [time.monotonic()] * len(rows)  # when each row's turn began
        self.clock = 0

    def _longest(self) -> int:
        """How many positions a row may come to have; a new prompt repeats what the row has said, and more."""
        longest = max(len(one.segments[0].prompt) for one in self.transcripts)
        return 2 * (longest + self.sampling.max_new_tokens)

    def run(self, seeds: Tensor) -> None:
        """Decodes until every row has ended."""
        prompts = [tuple(one.segments[0].prompt) for one in self.transcripts]
        place = {prompt: index for index, prompt in enumerate(dict.fromkeys(prompts))}
        logits = self.decoder.begin(
            list(place), torch.tensor([place[prompt] for prompt in prompts], device=self.device)
        )
        active = torch.arange(len(prompts), device=self.device)
        while len(active) or self.waiting:
            if len(active):
                slots = torch.tensor([self.transcripts[row].tokens for row in active.tolist()])
                tokens, log_probs = draw(logits, self.sampling, seeds[active], slots)
                expect_finite(log_probs, int(slots.max()))
                left = self._record(active.tolist(), tokens.tolist(), log_probs.tolist())
                active, tokens = active[left], tokens[left]
                logits = self.decoder.step(tokens, active) if len(active) else logits[:0]
            if back := self._back(alone=not len(active)):
                rows, added = zip(*back, strict=True)
                joined = torch.tensor(rows, device=self.device)
                active, logits = torch.cat([active, joined]), torch.cat([logits, self.decoder.extend(joined, added)])

    def _record(self, rows: list[int], tokens: list[int], log_probs: list[float]) -> list[int]:
        """Notes what was drawn; returns the places of the rows whose turn goes on."""
        self.clock += 1
        left = []
        for place, (row, token, log_prob) in enumerate(zip(rows, tokens, log_probs, strict=True)):
            one = self.transcripts[row]
            segment, turn = one.segments[-1], self.turn[row]
            segment.ids.append(token)
            segment.chosen.append(True)
            segment.log_probs.append(log_prob)
            segment.turns.append(len(one.turns))
            segment.roles.append(ASSISTANT)
            turn.append(token)
            if token in self.stop_ids or (token in self.closing and self.ends_turn(turn)):
                self._end_turn(row, one)
            elif len(turn) == self.limits.turn_tokens or not self._room(one):
                self._keep_turn(row, one)
                self._end(one, "length")
            else:
                left.append(place)
        self.said.add(len(rows))
        return left

    def _room(self, one: Transcript, added: int = 0) -> bool:
        """Whether a conversation may have another token, behind so many that are added."""
        segment = one.segments[-1]
        return (
            one.tokens + added < self.sampling.max_new_tokens
            and len(segment.prompt) + len(segment.ids) + added < self.positions
        )

    def _keep_turn(self, row: int, one: Transcript) -> None:
        one.turns.append(self.turn[row])
        one.decoded.append((self.since[row], time.monotonic()))

    def _end_turn(self, row: int, one: Transcript) -> None:
        self._keep_turn(row, one)
        last = len(one.turns) == self.limits.turns or not self._room(one)
        self.waiting[row] = self.clock
        self.partner.listen(self.rows[row], self.turn[row], last=last)
        self.turn[row] = []

    def _end(self, one: Transcript, reason: str) -> None:
        one.finish_reason = reason
        self.said.add(0, rows=1)

    def _back(self, *, alone: bool) -> list[tuple[int, list[int]]]:
        """The rows that come back now, with the ids that they go on with."""
        if not alone and self.clock % PATIENCE:
            return []
        due = [row for row, since in self.waiting.items() if alone or since <= self.clock - PATIENCE]
        return [(row, ids) for row in due if (ids := self._answered(row))]

    def _answered(self, row: int) -> list[int]:
        """The ids that a row goes on with, from the last one drawn on; none where it has ended."""
        del self.waiting[row]
        one, reply = self.transcripts[row], self.partner.reply(self.rows[row])
        self.since[row] = time.monotonic()
        if reply.done:
            self._end(one, "stop")
            return []
        fits = self._room(one, len(reply.ids)) if reply.prompt is None else len(reply.prompt) < self.positions
        if len(one.turns) == self.limits.turns or not fits or not self._room(one):
            self._end(one, "length")
            return []
        if reply.prompt is not None:
            one.segments.append(Segment(list(reply.prompt)))
            self.decoder.begin_again(row)
            return list(reply.prompt)
        segment, count = one.segments[-1], len(reply.ids)
        segment.ids += reply.ids
        segment.chosen += [False] * count
        segment.log_probs += [0.0] * count
        segment.turns += [len(one.turns) - 1] * count
        segment.roles += [reply.role] * count
        return [one.turns[-1][-1], *reply.ids]


def _decoder(model: nn.Module, positions: int) -> cpu.Decoder | CachedDecoder | AnewDecoder:
    """The one that computes this model."""
    if cpu.supports(model) and positions <= cpu.reach(model):
        return cpu.Decoder(model, positions)
    return CachedDecoder(model) if skips_padding(model) else AnewDecoder(model)
