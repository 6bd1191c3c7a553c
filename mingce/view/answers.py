"""What the page is answered, as types: scripts/make_page_specs.py writes them into the page's types.ts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Required, TypedDict

from mingce.explain.row_account import RowAccount
from mingce.record.rollout import Columns, Rollout, Whitening
from mingce.record.tokens import Token
from mingce.sources.logs import RunEvent, Skipped
from mingce.sources.source import Damage, Status
from mingce.specs.settings import AccountSettings
from mingce.view.taught import Both

Numbers = Sequence[float | None]


# ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class RunSummary:
    """A run in the list of runs; `message` says why nothing of it can be shown."""

    id: str
    name: str
    path: str
    kind: Literal["run", "dump"]
    status: Status
    message: str | None
    steps: int
    total_steps: int | None
    last_score: float | None
    spark: Numbers
    estimator: str | None
    lang: str | None
    updated: float


@dataclass(frozen=True)
class MetricText:
    """What a metric means; measured ones have no formula."""

    name: str
    group: str
    zh: str
    en: str
    formula: str = ""
    formula_zh: str = ""
    columns: Sequence[str] = ()


@dataclass(frozen=True)
class Run:
    """A run with its numbers over the steps; of every `every` steps the least and the greatest stand in the series.

    `validation_steps` are those after which answers to held-out prompts were kept, as steps of `<id>~validation`.
    """

    id: str
    name: str
    path: str
    kind: Literal["run", "dump"]
    status: Status
    message: str | None
    total_steps: int | None
    config: Mapping[str, Any]
    steps: Sequence[int]
    every: int
    series: Mapping[str, Numbers]
    metrics: Sequence[MetricText]
    ledger_steps: Sequence[int]
    validation_steps: Sequence[int]
    damaged: Sequence[Damage]
    skipped: Sequence[Skipped]
    events: Sequence[RunEvent]


# ── a step ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class RolloutLine:
    """A rollout in the table of its step, texts cut short; `best` and `worst` of its group.

    `question` is what its prompt asks, without template and system prompt.
    """

    row: int
    uid: str | None
    group: str | None
    score: float | None
    parts: Mapping[str, float | None] | None
    kl: float | None
    length: int
    finish_reason: str | None
    max_abs_advantage: float | None
    data_source: str | None
    prompt: str
    question: str
    response: str
    best: bool
    worst: bool


@dataclass(frozen=True)
class Group:
    """The samples of one prompt."""

    group: str
    size: int
    mean: float
    best_row: int
    worst_row: int


@dataclass(frozen=True)
class Histogram:
    """Counts between edges; numbers that are not finite are counted as dropped."""

    edges: Sequence[float]
    counts: Sequence[int]
    dropped: int
    of: Literal["rollout", "token"] = "token"


@dataclass(frozen=True)
class Table:
    """A screenful of a step's rollouts: `shown` of `total` are what was asked for, from `offset` on."""

    step: int
    rollouts: Sequence[RolloutLine]
    offset: int
    shown: int
    total: int
    groups: Sequence[Group]


@dataclass(frozen=True)
class Step(Table):
    """A step's first rollouts, how its numbers are spread, the names of the parts of a score, endings and data sources.

    `histograms` is None while only the first rollouts have been looked at: then endings, data sources, groups,
    whitening and which rollouts are the best of their groups are not known either.
    """

    histograms: Mapping[str, Histogram] | None
    parts: Sequence[str]
    endings: Sequence[str]
    data_sources: Sequence[str]
    settings: AccountSettings
    whitening: Whitening | None


@dataclass(frozen=True)
class MissingColumn:
    """A column that the step could have and was not recorded, and the line that would record it."""

    name: str
    line: Both


@dataclass(frozen=True, eq=False)
class OpenRollout(Rollout):
    """A rollout of a step with every token's account; None where its numbers are such that none can be computed."""

    step: int = 0
    rows: int = 0
    """How many the step has."""
    account: RowAccount | None = None
    missing: Sequence[MissingColumn] = ()


# ── one prompt through time ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Answer:
    """One answer to a prompt, at some step."""

    step: int
    row: int
    score: float | None
    finish_reason: str | None
    response: str
    tokens: Sequence[Token]
    columns: Columns


@dataclass(frozen=True)
class Through:
    """The answers to one prompt over the steps; `steps_left_out` were not looked through, for there are too many."""

    prompt: str
    question: str
    answers: Sequence[Answer]
    left_out: int
    steps_left_out: int = 0


@dataclass(frozen=True)
class Recurring:
    """A prompt that came again, with the first place where it stands."""

    prompt: str
    question: str
    answers: int
    steps: int
    step: int
    row: int


@dataclass(frozen=True)
class Prompts:
    """The prompts that came in most steps."""

    prompts: Sequence[Recurring]
    steps_left_out: int = 0


# ── texts ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class ColumnText:
    """What a column means."""

    name: str
    symbol: str
    alignment: str
    formula: str
    formula_zh: str
    zh: str
    en: str
    long_zh: str
    long_en: str


@dataclass(frozen=True)
class SettingText:
    """What a setting of the account means."""

    symbol: str
    name: str
    zh: str
    en: str


@dataclass(frozen=True)
class SectionText:
    """One paragraph of a token's account; {names} are filled with the token's facts.

    It is shown when all of `needs` and none of `lacks` have a value; `column` records the number it arrives at.
    """

    id: str
    title: Both
    formula: str
    numbers: str
    words: Mapping[str, Both]
    needs: Sequence[str]
    lacks: Sequence[str]
    estimators: Sequence[str] | None
    losses: Sequence[str] | None
    case_of: str | None
    cases: Mapping[str, Both]
    result: str | None = None
    column: str | None = None


@dataclass(frozen=True)
class Texts:
    """Everything the page says about columns, settings and a token's account."""

    columns: Sequence[ColumnText]
    settings: Sequence[SettingText]
    account: Sequence[SectionText]


# ── the audit, and the seeds' examples: both are JSON already ────────────────────────────────────────────────────────


class Place(TypedDict):
    """Where a finding shows."""

    row: int | None
    token: int | None
    label: str | None
    expected: float | str | None
    found: float | str | None


class Finding(TypedDict):
    """What the audit found."""

    code: str
    severity: Literal["bug", "suspicious", "convention", "note"]
    column: str
    title: Both
    cause: Both
    change: Both
    formula: str
    link: str
    share: float | str
    places: Sequence[Place]


class Check(TypedDict):
    """A check that ran."""

    name: str
    title: Both


class SkippedCheck(Check):
    """A check that could not run, for these columns or settings are missing."""

    missing: Sequence[str]


class Audit(TypedDict):
    """What independent code says about one step."""

    step: int | None
    rows: int
    tokens: int
    verdict: Both
    counts: Mapping[str, int]
    findings: Sequence[Finding]
    checks: Sequence[Check]
    skipped: Sequence[SkippedCheck]


class SeedExample(TypedDict, total=False):
    """A worked example of the seeds, or one of their slips."""

    id: str
    seed: Required[str]
    note: str
    prompt: str
    response: str
    tokens: Sequence[str]
    given: Mapping[str, float | Sequence[float]]
    expect: Mapping[str, Sequence[float]]
    seed_claims: str | Mapping[str, float | Sequence[float]]
    right: str | Mapping[str, float | Sequence[float]]
    why: str


class Playground(TypedDict):
    """The seeds' worked examples and their slips."""

    examples: Sequence[SeedExample]
    errata: Sequence[SeedExample]
