"""One rollout with everything an account needs: what view, tutor and page share, wherever it comes from.

Columns are those of the column table, one number a token, None where there is none:

    tokens              是     的     ，     等于
    response_mask       1      1      0      1
    advantages          0.62   0.58   None   0.40
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from mingce.base.conversation import Part
from mingce.record.clocks import TurnClock
from mingce.record.tokens import Token
from mingce.specs.estimator import row_inputs
from mingce.specs.settings import AccountSettings

Number = Annotated[Any, "number | null"]
"""A float, an int, or None where there is none."""
Columns = Mapping[str, Sequence[Number]]
EPSILON = 1e-8
"""What whitening adds to the variance, as mingce.algorithms.masking does."""


@dataclass(frozen=True)
class Whitening:
    """Mean and spread of the raw advantages over all tokens of the step that enter the losses."""

    mean: float
    std: float
    variance: float
    count: int
    epsilon: float = EPSILON


@dataclass(frozen=True)
class Sibling:
    """Another sample of the same prompt, or the rollout itself among them."""

    row: int
    score: float | None
    response: str
    columns: Columns
    bootstrap: float


@dataclass(frozen=True)
class Observation:
    """Tokens of a response, from `start` to before `end`, that the policy did not choose; `role` is "" if unknown."""

    start: int
    end: int
    role: str


@dataclass(frozen=True)
class RowClock:
    """When the turns of a row were decoded and its environment stepped, in seconds since the rollouts began."""

    row: int
    turns: Sequence[TurnClock]


@dataclass(frozen=True)
class Info:
    """What is known of a rollout besides its tokens."""

    score: float | None = None
    score_parts: Mapping[str, Any] | None = None
    finish_reason: str | None = None
    truncated: bool = False
    bootstrap_value: float | None = None
    temperature: float | None = None
    policy_version: int | None = None
    data_source: str | None = None


@dataclass(frozen=True, eq=False)
class Rollout:
    """A prompt, a response and its columns. `bootstrap` is the value after the last token, 0 unless it was cut.

    `has_texts` says whether tokens are shown by their texts or by their ids. Without a step it belongs to no run.
    """

    prompt: str
    response: str
    tokens: Sequence[Token]
    columns: Columns
    settings: AccountSettings
    step: int | None = None
    row: int = 0
    uid: str | None = None
    group: str | None = None
    has_texts: bool = True
    prompt_tokens: Sequence[Token] = ()
    conversation: Sequence[Part] = ()
    """The prompt in parts: turns, and what the template put around them."""
    question: str = ""
    observations: Sequence[Observation] = ()
    info: Info = field(default_factory=Info)
    bootstrap: float = 0.0
    row_inputs: Mapping[str, Number] = field(default_factory=lambda: dict.fromkeys(row_inputs()))
    """Numbers of the row, besides its columns, that an estimator may read."""
    whitening: Whitening | None = None
    siblings: Sequence[Sibling] = ()
    siblings_left_out: int = 0
    segments: Sequence[int] = ()
    """The rows of its conversation, in their order, where a template's rewriting cut that into several."""
    clocks: Sequence[RowClock] = ()
    """Of a conversation with an environment: its times, and those of the other samples of its prompt."""
    more_tokens: bool = False
    """It is longer than what is shown."""

    @property
    def mask(self) -> list[int]:
        """1 where the policy chose the token, else 0."""
        return [int(bool(m)) for m in self.columns["response_mask"]]
