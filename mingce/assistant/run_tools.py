"""Tools about what lies on the disk: runs, their numbers over the steps, and rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from mingce.assistant.account_tools import MOST_SLOTS, Column, numbers_of
from mingce.assistant.subject import (
    Desk,
    Index,
    Lang,
    Origin,
    Subject,
    Where,
    Word,
    link,
    open_source,
    origin_of,
    rollout_page,
    run_page,
)
from mingce.base.errors import RunError, UnknownNameError
from mingce.base.schema import Limit
from mingce.base.texts import sentence

MOST_RUNS, MOST_LINES, MOST_POINTS = 100, 50, 200
MOST_NAMES = 50
LONGEST_CELL = 2000

# ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class ListInput:
    offset: Index = 0


@dataclass(frozen=True)
class RunLine:
    """A run: `run` is how the other tools name it."""

    run: str
    status: str
    last_step: int | None
    total_steps: int | None
    ledger_steps: list[int]
    estimator: str | None
    last_score: float | None
    page: str
    url: str | None


@dataclass(frozen=True)
class Runs:
    """The runs in the allowed directories, from `offset` on; `count` are there in all."""

    runs: list[RunLine]
    count: int
    directories: list[str]


def list_runs(asked: ListInput, desk: Desk) -> Runs:
    """The runs that may be read."""
    paths = list(desk.places.runs())
    lines = []
    for path in paths[asked.offset : asked.offset + MOST_RUNS]:
        source = open_source(path)
        series = source.series()
        score = series.at(series.last_step(), "critic/score/mean") if len(series) else None
        estimator = source.config().get("estimator")
        lines.append(
            RunLine(
                desk.places.name(path),
                source.status(),
                source.last_step(),
                source.total_steps(),
                source.ledger_steps()[-MOST_NAMES:],
                estimator if isinstance(estimator, str) else None,
                score,
                run_page(source.id),
                link(desk, run_page(source.id)),
            )
        )
    return Runs(lines, len(paths), [str(root) for root in desk.places.roots])


@dataclass(frozen=True, kw_only=True)
class ReadRunInput:
    run: Where
    metrics: Annotated[list[Word], Limit(most=MOST_NAMES)] | None = None
    first_step: Index | None = None
    last_step: Index | None = None
    lang: Lang | None = None


@dataclass(frozen=True)
class MetricLine:
    """A metric over the steps, thinned to its least and greatest where there are many; null is not measured."""

    name: str
    meaning: str
    values: Column


@dataclass(frozen=True)
class RunAnswer:
    """A run's or dump's settings, what it logs and the chosen metrics (without a choice those of the last step)."""

    run: str
    kind: Literal["run", "dump"]
    status: str
    message: str | None
    config: Mapping[str, Any]
    ledger_steps: list[int]
    metric_names: list[str]
    steps: list[int]
    metrics: list[MetricLine]
    damaged: list[str]
    page: str
    url: str | None


def read_run(asked: ReadRunInput, desk: Desk) -> RunAnswer:
    """A run's configuration and metrics."""
    from mingce.sources.source import plain
    from mingce.view.api import metric_meaning

    path = desk.places.inside(asked.run)
    source = open_source(path)
    series, last = source.series(), source.series().last_step()
    for name in asked.metrics or []:
        if name not in series.names:
            raise UnknownNameError("metric", name, series.names)
    if asked.metrics is None:
        curves = series.curves(MOST_POINTS, last, last)
    else:
        curves = series.curves(MOST_POINTS, asked.first_step, asked.last_step)
    lang = desk.language(asked.lang)
    return RunAnswer(
        run=desk.places.name(path),
        kind=source.kind,
        status=source.status(),
        message=source.message(),
        config={key: plain(value) for key, value in source.config().items()},
        ledger_steps=source.ledger_steps(),
        metric_names=sorted(series.names),
        steps=curves["steps"],
        metrics=[
            MetricLine(name, getattr(metric_meaning(name), lang), curves["series"][name])
            for name in asked.metrics or sorted(curves["series"])
        ],
        damaged=[f"{damage.file}: {damage.why}" for damage in source.damaged()][:MOST_NAMES],
        page=run_page(source.id),
        url=link(desk, run_page(source.id)),
    )


# ── rollouts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class SearchInput:
    run: Where
    text: Annotated[str, Limit(most=1000)] = ""
    step: Index | None = None
    sort: Literal["row", "score", "length", "kl"] = "row"
    descending: bool = False
    offset: Index = 0


@dataclass(frozen=True)
class RolloutLine:
    """A rollout in short, texts cut; `question` is what its prompt asks, without template and system prompt."""

    rollout: int
    score: float | None
    kl: float | None
    length: int
    finish_reason: str | None
    question: str
    response: str
    page: str
    url: str | None


@dataclass(frozen=True)
class Rollouts:
    """The rollouts of a step that contain the text, from `offset` on; `count` of `total` do."""

    run: str
    step: int
    rollouts: list[RolloutLine]
    count: int
    total: int


def search_rollouts(asked: SearchInput, desk: Desk) -> Rollouts:
    """The rollouts of a step by their text."""
    from mingce.sources.library import Library
    from mingce.view.api import Api
    from mingce.view.step_index import Query

    path = desk.places.inside(asked.run)
    api = Api(Library([path]))
    source = open_source(path)
    step = ledger_step(source, asked.step)
    query = Query(asked.offset, MOST_LINES, asked.sort, asked.descending, asked.text)
    table = api.table(source.id, step, query)
    lines = []
    for line in table.rollouts:
        page = rollout_page(source.id, step, line.row)
        lines.append(
            RolloutLine(
                line.row, line.score, line.kl, line.length, line.finish_reason, line.question, line.response, page,
                link(desk, page),
            )
        )  # fmt: skip
    return Rollouts(desk.places.name(path), step, lines, table.shown, table.total)


def ledger_step(source: Any, step: int | None) -> int:
    """The step asked for, if it can be read; the newest without one."""
    steps = source.ledger_steps()
    if not steps:
        raise RunError(source.message() or sentence("assistant.no_ledger", name=source.name))
    if step is None:
        return int(steps[-1])
    source.expect(step)
    return step


@dataclass(frozen=True, kw_only=True)
class ReadRolloutInput:
    run: Where
    step: Index | None = None
    rollout: Index = 0
    columns: Annotated[list[Word], Limit(most=MOST_NAMES)] | None = None
    first: Index = 0


@dataclass(frozen=True)
class Ledger:
    """A rollout's columns as they were recorded, for tokens from `first` on; null where the policy did not choose."""

    prompt: str
    response: str
    tokens: list[str]
    first: int
    count: int
    score: float | None
    finish_reason: str | None
    value_after_last: float
    settings: Mapping[str, Any]
    column_names: list[str]
    columns: Mapping[str, Column]
    origin: Origin


def read_ledger(asked: ReadRolloutInput, desk: Desk) -> Ledger:
    """The ledger's columns of one rollout."""
    from mingce.sources.rollouts import recorded

    path = desk.places.inside(asked.run)
    source = open_source(path)
    rollout = recorded(path, ledger_step(source, asked.step), asked.rollout)
    for name in asked.columns or []:
        if name not in rollout.columns:
            raise UnknownNameError("column", name, rollout.columns)
    part = slice(asked.first, asked.first + MOST_SLOTS)
    return Ledger(
        prompt=rollout.prompt[:LONGEST_CELL],
        response=rollout.response[:LONGEST_CELL],
        tokens=[token.text for token in rollout.tokens][part],
        first=asked.first,
        count=len(rollout.tokens),
        score=rollout.info.score,
        finish_reason=rollout.info.finish_reason,
        value_after_last=rollout.bootstrap,
        settings={name: value for name, value in rollout.settings.as_dict().items() if value is not None},
        column_names=sorted(rollout.columns),
        columns={name: numbers_of(rollout.columns[name], part) for name in asked.columns or sorted(rollout.columns)},
        origin=origin_of(Subject(rollout, "recorded", path, source.id), desk),
    )
