"""A recorded step of a run or a dump as rollouts: the one way from files to what is shown and explained."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from mingce.base.conversation import TEMPLATE, Markers, Part, conversation, question
from mingce.base.errors import MingceError, RunError, first_line
from mingce.columns import ROLES, TOKEN_COLUMNS
from mingce.record.clocks import Clocks
from mingce.record.rollout import Info, Observation, Rollout, RowClock, Sibling, Whitening
from mingce.record.store import LedgerFileError
from mingce.record.tokens import Token, TokenTexts
from mingce.sources.library import Library
from mingce.sources.source import MAX_TOKENS, Array, Ragged, Source, finite, plain
from mingce.specs.estimator import row_inputs
from mingce.specs.rows import FLOAT32_EPS
from mingce.specs.settings import AccountSettings

MASKS = ("response_mask", "attention_mask", "loss_mask")
WRITTEN = ("turn", "role")
"""Columns about every token that somebody wrote, be it the policy or not."""
_ROLE_NAMES = dict(enumerate(ROLES))
SIBLING_TOKENS = 10_000
SIBLINGS_AT_ONCE = 8
SIBLING_COLUMNS = ("response_mask", "scores", "kl", "rewards", "values")
ODD = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RecursionError)
"""How a reader may break on a file whose columns are not those of the table."""


def recorded(path: Path, step: int | None, row: int, mapping: Path | None = None) -> Rollout:
    """A rollout of a run or a dump, or of the newest run of a directory; without a step of the newest step."""
    source = next(iter(Library([path], mapping).sources()), None)
    if source is None:
        raise RunError(f"{path} is empty; give a run's directory or a dump.")
    steps = source.ledger_steps()
    if not steps:
        raise RunError(source.message() or f"{path} has no rollouts that can be read; was keep.ledger_every 0?")
    step = steps[-1] if step is None else step
    source.expect(step)
    with damage_reported(source, step):
        return read_rollout(source, step, row, step_whitening(source, step))


@contextmanager
def damage_reported(source: Source, step: int) -> Iterator[None]:
    """A ledger whose columns are not those of the table can break its reader in any way; this is reported as damage."""
    try:
        yield
    except MingceError:
        raise
    except ODD as error:
        raise LedgerFileError(
            f"step {step} of {source.name} is not as a ledger should be ({first_line(error)})"
        ) from error


def read_rollout(source: Source, step: int, row: int, whitening: Whitening | None) -> Rollout:
    """Everything about one rollout; `whitening` is that of its step."""
    stored = source.rollouts(step, [row])[0]
    more = len(stored["response_mask"]) >= MAX_TOKENS
    score = None if more else score_of(stored)  # what was cut off may have earned it
    if more:
        stored = {name: value[: MAX_TOKENS - 1] if isinstance(value, list) else value for name, value in stored.items()}
    settings, texts = source.settings(step), source.tokens()
    prompt_tokens, tokens = texts.tokens(stored.get("prompt_ids") or []), texts.tokens(token_ids(stored))
    prompt = prompt_text(stored, texts)
    parts = _parts(prompt, prompt_tokens, source.markers())
    siblings, left_out = _siblings(source, step, row, stored.get("group"), settings)
    return Rollout(
        step=step,
        row=row,
        uid=plain(stored.get("uid")),
        group=plain(stored.get("group")),
        prompt=prompt,
        response=stored.get("response") or "",
        has_texts=texts.known,
        prompt_tokens=prompt_tokens,
        conversation=parts,
        question=question(parts),
        observations=observations(stored["response_mask"], tokens, source.markers(), stored.get("role")),
        tokens=tokens,
        columns=numbers(stored, float32=source.kind == "run"),
        info=_info(stored, score),
        bootstrap=_bootstrap(stored, settings),
        settings=settings,
        row_inputs={name: finite(stored.get(name)) for name in row_inputs()},
        whitening=whitening,
        siblings=siblings,
        siblings_left_out=left_out,
        segments=_segments(source, step, row),
        clocks=_clocks(source.clocks(step), [row, *(one.row for one in siblings if one.row != row)]),
        more_tokens=more,
    )


def prompt_text(stored: Mapping[str, Any], texts: TokenTexts) -> str:
    """The prompt as it was recorded, else as its ids read."""
    if prompt := stored.get("prompt"):
        return str(prompt)
    return "".join(token.text for token in texts.tokens(stored.get("prompt_ids") or [])) if texts.known else ""


def _parts(prompt: str, tokens: Sequence[Token], markers: Markers) -> list[Part]:
    """The prompt's parts, with their tokens if those read as it does, but for white space."""
    read = "".join(token.text for token in tokens)
    if "".join(read.split()) != "".join(prompt.split()):
        return conversation(prompt, markers)
    return counted(conversation(read, markers), tokens)


def counted(parts: Sequence[Part], tokens: Sequence[Token]) -> list[Part]:
    """The parts with how many tokens begin in each; the pieces of one character belong together."""
    counts, place, left = [0] * len(parts), 0, len(parts[0].text) if parts else 0
    for t, token in enumerate(tokens):
        joined = t > 0 and tokens[t - 1].glyph == token.glyph
        while not joined and left <= 0 and place + 1 < len(parts):
            place += 1
            left += len(parts[place].text)
        if parts:
            counts[place] += 1
        left -= len(token.text)
    return [Part(part.role, part.text, count) for part, count in zip(parts, counts, strict=True)]


def _clocks(recorded: Clocks, rows: Sequence[int]) -> list[RowClock]:
    return [RowClock(row, recorded[row]) for row in sorted(rows) if row < len(recorded) and recorded[row]]


def observations(
    mask: Sequence[Any], tokens: Sequence[Token], markers: Markers, codes: Sequence[Any] | None = None
) -> list[Observation]:
    """The stretches of a response that the policy did not choose, and whose words they are.

    `codes` are those of the column role, where there is one.
    """
    found: list[Observation] = []
    ends = [*(t for t in range(1, len(mask)) if bool(mask[t]) != bool(mask[t - 1])), len(mask)] if len(mask) else []
    for start, end in zip([0, *ends], ends, strict=False):
        if not mask[start]:
            parts = conversation("".join(token.text for token in tokens[start:end]), markers)
            roles = [part.role for part in parts if part.role != TEMPLATE]
            known = _ROLE_NAMES.get(codes[start], "") if codes is not None and start < len(codes) else ""
            found.append(Observation(start, end, known or (roles[-1] if roles else "")))
    return found


def numbers(
    stored: Mapping[str, Any], names: Iterable[str] = TOKEN_COLUMNS, *, float32: bool = False
) -> dict[str, Sequence[float | None]]:
    """Token columns: None where the policy did not choose (of `WRITTEN`: on padding) or the number is not finite.

    `float32`: the numbers are such, as in our own ledgers, and are kept as such where none is missing.
    """
    chosen = [bool(m) for m in stored["response_mask"]]
    whole = all(chosen)
    columns: dict[str, Sequence[float | None]] = {}
    for name in names:
        values = stored.get(name)
        if values is None or name == "token_ids":
            continue
        if len(values) != len(chosen):
            raise ValueError(f"{name} has {len(values)} numbers for {len(chosen)} tokens")
        if name in MASKS:
            columns[name] = [int(bool(value)) for value in values]
        elif name in WRITTEN:
            there = stored.get("attention_mask", chosen)
            columns[name] = [finite(v) if written else None for v, written in zip(values, there, strict=True)]
        elif TOKEN_COLUMNS[name].dtype == "bool":
            columns[name] = [int(bool(v)) if mine else None for v, mine in zip(values, chosen, strict=True)]
        elif float32 and whole and math.isfinite(sum(narrow := array("f", values))):
            columns[name] = narrow
        else:
            columns[name] = [finite(v) if mine else None for v, mine in zip(values, chosen, strict=True)]
    return columns


def _info(stored: Mapping[str, Any], score: float | None) -> Info:
    parts, reason = stored.get("score_parts"), stored.get("finish_reason")
    return Info(
        score=score,
        score_parts=plain(parts) if isinstance(parts, Mapping) else None,
        finish_reason=plain(reason),
        truncated=reason == "length",
        bootstrap_value=finite(stored.get("bootstrap_value")),
        temperature=finite(stored.get("temperature")),
        policy_version=plain(stored.get("policy_version")),
        data_source=plain(stored.get("data_source")),
    )


def _bootstrap(stored: Mapping[str, Any], settings: AccountSettings) -> float:
    """The value that followed the last token: 0 unless a cut response was continued by the critic's estimate."""
    if settings.truncation == "bootstrap" and stored.get("finish_reason") == "length":
        return finite(stored.get("bootstrap_value")) or 0.0
    return 0.0


def _siblings(source: Source, step: int, row: int, group: Any, settings: AccountSettings) -> tuple[list[Sibling], int]:
    """The rollouts of the same prompt, this one first of all, as far as they are not too long together.

    Of another conversation that is several rows it is the first one.
    """
    rows = [row]
    if group is not None:
        members = source.row_column(step, "group") or []
        numbers_of = source.row_column(step, "conversation") or range(len(members))
        first = {numbers_of[other]: other for other in reversed(range(len(members))) if members[other] == group}
        rows += sorted(other for number, other in first.items() if number != numbers_of[row])
    names = (*SIBLING_COLUMNS, "response", "finish_reason", "bootstrap_value", "outcome")
    shown: list[Sibling] = []
    tokens, float32 = 0, source.kind == "run"
    for start in range(0, len(rows), SIBLINGS_AT_ONCE):
        part = rows[start : start + SIBLINGS_AT_ONCE]
        for one, stored in zip(part, source.rollouts(step, part, names, SIBLING_TOKENS), strict=True):
            tokens += len(stored["response_mask"])
            if tokens < SIBLING_TOKENS:  # a longer one has been cut
                columns = numbers(stored, SIBLING_COLUMNS, float32=float32)
                text, after = stored.get("response") or "", _bootstrap(stored, settings)
                shown.append(Sibling(one, score_of(stored), text, columns, after))
        if tokens > SIBLING_TOKENS:
            break
    return sorted(shown, key=lambda sibling: sibling.row), len(rows) - len(shown)


def _segments(source: Source, step: int, row: int) -> list[int]:
    conversations = source.row_column(step, "conversation") or []
    own = [other for other, number in enumerate(conversations) if number == conversations[row]]
    order = source.row_column(step, "segment") or []
    own = sorted(own, key=lambda other: order[other]) if order else own
    return own if len(own) > 1 else []


def token_ids(stored: Mapping[str, Any]) -> list[int]:
    """A rollout's ids; zeros where a dump has none."""
    ids = stored.get("token_ids")
    return [0] * len(stored["response_mask"]) if ids is None else [int(i) for i in ids]


def score_of(stored: Mapping[str, Any]) -> float | None:
    """A rollout's score: the sum of its tokens', or what a dump stores apart."""
    scores = stored.get("scores")
    if scores is None:
        return finite(stored.get("outcome"))
    chosen = zip(scores, stored["response_mask"], strict=True)
    return finite(math.fsum(s for s, mine in chosen if mine and math.isfinite(s)))


# ── the step's moments ───────────────────────────────────────────────────────────────────────────────────────────────


class Moments:
    """Mean and spread of the raw advantages over the tokens in the losses, batch by batch."""

    def __init__(self) -> None:
        self.seen, self._count, self._mean, self._squares = False, 0, 0.0, 0.0

    def add(self, values: Array) -> None:
        self.seen = True
        if len(values):
            new = values.astype(float)
            count, mean = len(new), float(new.mean())
            total, shift = self._count + count, mean - self._mean
            self._squares += float(((new - mean) ** 2).sum()) + shift**2 * self._count * count / total
            self._mean += shift * count / total
            self._count = total

    def whitening(self) -> Whitening | None:
        """None where no batch had advantages."""
        variance = self._squares / (self._count - 1) if self._count > 1 else 0.0
        variance = variance if variance > (FLOAT32_EPS * abs(self._mean)) ** 2 else 0.0
        return Whitening(self._mean, math.sqrt(variance), variance, self._count) if self.seen else None


def loss_advantages(batch: Mapping[str, Ragged]) -> Array:
    """The raw advantages of a batch's tokens that enter the losses, as far as they are finite."""
    column = batch["advantages"].values
    mask = batch.get("loss_mask", batch["response_mask"]).values.astype(bool)
    return column[mask & np.isfinite(column)]


def step_whitening(source: Source, step: int) -> Whitening | None:
    """The moments of the step's raw advantages; None where it has none."""
    moments = Moments()
    for batch in source.batches(step, ("response_mask", "loss_mask", "advantages")):
        if "advantages" in batch:
            moments.add(loss_advantages(batch))
    return moments.whitening()
