"""What the page may ask for, as the types of mingce.view.answers; the server and the single-file export ask here."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, cast

import numpy as np

from mingce.base.errors import MingceError, RunError
from mingce.explain.account import RESULTS
from mingce.explain.account_texts import LEVELS, SECTIONS, Pair, Section
from mingce.explain.row_account import row_account
from mingce.record.rollout import Rollout
from mingce.sources.library import Library
from mingce.sources.rollouts import ODD, damage_reported, read_rollout
from mingce.sources.source import Source, finite, plain
from mingce.view.answers import (
    Audit,
    ColumnText,
    MetricText,
    OpenRollout,
    Playground,
    Prompts,
    Run,
    RunSummary,
    SectionText,
    SettingText,
    Step,
    Table,
    Texts,
    Through,
)  # fmt: skip
from mingce.view.apart import Apart
from mingce.view.digits import encode
from mingce.view.missing import missing_columns
from mingce.view.over_run import SearchResult, WorstTokens
from mingce.view.posted import read_pasted, read_question
from mingce.view.run_search import search_run
from mingce.view.step_index import Query, StepIndex, build_index, first_lines
from mingce.view.taught import Both
from mingce.view.through import PromptIndex, samples, through
from mingce.view.worst_tokens import RunTop, Top, shown, worst_of_step

POINTS = 2000
RUNS = 200  # in one answer
AT_ONCE = 500  # rollouts of a step that is looked through when it is opened
INDICES = 32  # steps whose columns are kept
INDEXED_ROWS = 1_000_000  # in all of them
SPARK = 60
ANSWERING, CHECKING = 20.0, 60.0  # seconds that one question, and one text, may take
SCORE = "critic/score/mean"
_GROUPS = (
    "score", "val", "critic", "actor", "rollout", "response_length", "prompt_length", "audit", "timing_s", "perf",
)  # fmt: skip


class Api:
    """The answers. Every method may be called from any thread."""

    def __init__(self, library: Library):
        self.library = library
        self._indices: dict[tuple[str, int], tuple[object, StepIndex]] = {}
        self._indexing = Lock()
        self._audits: dict[tuple[str, int], tuple[object, Audit]] = {}
        self._prompts: dict[str, PromptIndex] = {}
        self._worst: dict[tuple[str, int], tuple[object, Top, int]] = {}
        self._run_tops: dict[str, RunTop] = {}
        self._lock = Lock()
        self._tutor, self._checker = Apart("ask", ANSWERING), Apart("check", CHECKING)

    def warm(self) -> None:
        """Answers once to nobody: the first reading of a ledger and of a tokenizer takes several times as long."""
        with suppress(MingceError):
            for source in self.library.sources()[:1]:
                source.series()
                for step in source.ledger_steps()[-1:]:
                    encode(self.rollout(source.id, step, 0))

    def runs(self, offset: int = 0) -> list[RunSummary]:
        """The runs, the newest first, a page of them from `offset` on."""
        return [self._summary(source) for source in self.library.sources()[offset : offset + RUNS]]

    def _summary(self, source: Source) -> RunSummary:
        series, config = source.series(), source.config()
        scores = [finite(value) for value in series.column(SCORE)[series.where(SCORE)].tolist()]
        return RunSummary(
            id=source.id,
            name=source.name,
            path=str(source.path),
            kind=source.kind,
            status=source.status(),
            message=source.message(),
            steps=series.last_step() or 0,
            total_steps=source.total_steps(),
            last_score=scores[-1] if scores else None,
            spark=[scores[k] for k in thinned(len(scores), SPARK)],
            estimator=_text(config, "estimator") or _text(config, "settings.estimator"),
            lang=_text(config, "data.lang", "lang"),  # as runs made before have it
            updated=source.updated(),
        )

    def run(self, source_id: str, first: int | None = None, last: int | None = None) -> Run:
        """A run's settings, its numbers over the steps (or those from `first` to `last`), what could not be read."""
        source = self.library.source(source_id)
        series, ledger_steps, validation = source.series(), source.ledger_steps(), source.validation()
        return Run(
            id=source.id,
            name=source.name,
            path=str(source.path),
            kind=source.kind,
            status=source.status(),
            message=source.message(),
            total_steps=source.total_steps(),
            config={key: plain(value) for key, value in source.config().items()},
            **series.curves(POINTS, first, last),
            metrics=[metric_meaning(name) for name in series.names],
            ledger_steps=ledger_steps,
            validation_steps=[] if validation is None else validation.ledger_steps(),
            damaged=source.damaged(),
            skipped=source.skipped(),
            events=source.events(),
        )

    def step(self, source_id: str, step: int, query: Query | None = None, whole: bool = False) -> Step:
        """A step's first rollouts, and how its numbers are spread.

        Of a step that was not looked through yet only the first rollouts, which takes no time; all of it if `whole`.
        """
        query = query or Query()
        source, index = self._index(source_id, step) if whole else self._known_index(source_id, step, query)
        table = self._table(source, index, step, query)
        named = dict.fromkeys(name for line in table.rollouts for name in line.parts or ())
        return Step(
            **_values(table),
            histograms=None if index is None else index.histograms,
            parts=list(named) if index is None else index.parts,
            endings=[] if index is None else index.finish.shown,
            data_sources=[] if index is None else index.data_source.shown,
            settings=source.settings(step),
            whitening=None if index is None else index.whitening,
        )

    def table(self, source_id: str, step: int, query: Query | None = None) -> Table:
        """A screenful of a step's rollouts."""
        query = query or Query()
        source, index = self._known_index(source_id, step, query)
        return self._table(source, index, step, query)

    def _table(self, source: Source, index: StepIndex | None, step: int, query: Query) -> Table:
        with damage_reported(source, step):
            if index is None:
                size = source.size(step)
                places = range(min(query.offset, size), min(query.offset + query.limit, size))
                return Table(step, first_lines(source, step, places), query.offset, size, size, [])
            rows = index.rows(source, step, query)
            chosen = rows[query.offset : query.offset + query.limit].tolist()
            lines = index.lines(source, step, chosen)
        return Table(step, lines, query.offset, len(rows), index.size, index.groups(lines))

    def _known_index(self, source_id: str, step: int, query: Query) -> tuple[Source, StepIndex | None]:
        """None for a step that was not looked through and need not be for what is asked."""
        source = self.library.source(source_id)
        source.expect(step)
        known = self._indices.get((source.id, step))
        if query.as_stored and (known is None or known[0] != source.stamp(step)):
            with damage_reported(source, step):
                large = source.size(step) > AT_ONCE
            if large:
                return source, None
        return self._index(source_id, step)

    def spread(self, source_id: str, step: int, most: int) -> tuple[Step, list[int]]:
        """A step with so many rollouts from the worst to the best score, for the export."""
        source, index = self._index(source_id, step)
        with damage_reported(source, step):
            order = index.rows(source, step, Query(sort="score"))
            places = np.unique(np.linspace(0, len(order) - 1, most).round().astype(int))[: len(order)]
            rows = sorted(order[places].tolist())
            lines = index.lines(source, step, rows)
        groups = [one for one in index.groups(lines) if one.best_row in rows and one.worst_row in rows]
        whole = self.step(source_id, step, Query(limit=1), whole=True)
        return replace(whole, rollouts=lines, groups=groups, shown=len(lines)), rows

    def _index(self, source_id: str, step: int) -> tuple[Source, StepIndex]:
        source = self.library.source(source_id)
        source.expect(step)
        key, stamp = (source.id, step), source.stamp(step)
        with self._indexing:  # one at a time, so that memory stays bounded
            known = self._indices.pop(key, None)
            if known is None or known[0] != stamp:
                with damage_reported(source, step):
                    known = stamp, build_index(source, step)
            self._indices[key] = known
            while len(self._indices) > INDICES or sum(one.size for _, one in self._indices.values()) > INDEXED_ROWS:
                if len(self._indices) == 1:
                    break
                del self._indices[next(iter(self._indices))]
        return source, known[1]

    def rollout(self, source_id: str, step: int, row: int) -> OpenRollout:
        """Everything about one rollout, every token's account included."""
        source, index = self._index(source_id, step)
        with damage_reported(source, step):
            rollout = read_rollout(source, step, row, index.whitening)
        account = None
        with suppress(MingceError, *ODD):  # numbers beyond reason; the page shows them as they are
            account = row_account(rollout)
        found = _values(rollout)
        return OpenRollout(**found, rows=index.size, account=account, missing=missing_columns(source, rollout))

    def prompts(self, source_id: str) -> Prompts:
        """The prompts that recur."""
        source = self.library.source(source_id)
        with self._lock, damage_reported(source, 0):
            index = self._prompts.setdefault(source.id, PromptIndex(source))
            return Prompts(index.recurring(), index.left_out)

    def through(self, source_id: str, step: int = 0, row: int = 0, prompt: str | None = None) -> Through:
        """The answers over the steps to one prompt, given or that of a rollout."""
        source = self.library.source(source_id)
        with damage_reported(source, step):
            with self._lock:
                index = self._prompts.setdefault(source.id, PromptIndex(source))
                if prompt is None:
                    source.expect(step)
                    prompt = source.rollouts(step, [row], ["prompt"])[0].get("prompt") or ""
                places = index.places(prompt)
            return through(source, prompt, places, index.left_out)

    def samples(self, source_id: str, step: int, row: int) -> Through:
        """The answers that one prompt got in a step."""
        source = self.library.source(source_id)
        source.expect(step)
        with damage_reported(source, step):
            return samples(source, step, row)

    def worst_of_step(self, source_id: str, step: int, by: str, each: bool = False) -> WorstTokens:
        """The tokens of a step with the largest numbers."""
        source = self.library.source(source_id)
        source.expect(step)
        key, stamp = (source.id, step), source.stamp(step)
        with self._lock:
            known = self._worst.pop(key, None)
            if known is None or known[0] != stamp:
                known = stamp, *worst_of_step(source, step)
            self._worst[key] = known
            while len(self._worst) > INDICES:
                del self._worst[next(iter(self._worst))]
        with damage_reported(source, step):
            return shown(source, known[1], by, known[2], source.size(step), each)

    def worst_of_run(self, source_id: str, by: str, each: bool = False) -> WorstTokens:
        """The tokens with the largest numbers of the steps looked at so far; each call looks at more of them."""
        source = self.library.source(source_id)
        with self._lock, damage_reported(source, 0):
            run = self._run_tops.setdefault(source.id, RunTop(source))
            seen, total = run.look()
            return shown(source, run.top, by, seen, total, each)

    def search(self, source_id: str, text: str, before: int | None = None) -> SearchResult:
        """A text in all rollouts of a run, the newest steps first."""
        return search_run(self.library.source(source_id), text, before)

    def audit(self, source_id: str, step: int | None = None) -> Audit:
        """What independent code says about one step."""
        from mingce.audit.audit import audit
        from mingce.audit.formats import as_json

        source = self.library.source(source_id)
        steps = source.ledger_steps()
        if step is None:
            if not steps:
                raise RunError(f"{source.name} has no ledger to audit")
            step = steps[-1]
        source.expect(step)
        key, stamp = (source.id, step), source.stamp(step)
        with self._lock:  # one at a time: an audit holds a whole step in memory
            if key not in self._audits or self._audits[key][0] != stamp:
                self._audits[key] = stamp, cast(Audit, as_json(audit(source.dump(step))) | {"step": step})
            return self._audits[key][1]

    def ask(self, body: bytes) -> bytes:
        """The tutor's answer to a question about one rollout, as JSON."""
        asked = read_question(body)
        source, index = self._index(asked.run, asked.step)
        with damage_reported(source, asked.step):
            rollout = read_rollout(source, asked.step, asked.row, index.whitening)
        if not any(rollout.columns["response_mask"]):
            raise RunError(f"rollout {asked.row} of step {asked.step} has no chosen token; choose another one.")
        place = f"{source.id} {asked.step} {asked.row} {source.stamp(asked.step)}"
        return self._tutor.work(asked.lang, place, rollout, asked.lang, asked.level, asked.turns)

    def check(self, body: bytes) -> bytes:
        """A pasted text with what is right and wrong in it, as JSON."""
        pasted = read_pasted(body)
        return self._checker.work(pasted.lang, pasted.text)

    def progress(self, source_id: str) -> dict[str, str | int | None]:
        """How far a run is, cheap enough to be asked every second."""
        source = self.library.source(source_id)
        changes = {"changes": count} if (count := source.changes()) else {}
        return {"status": source.status(), "step": source.last_step(), **changes}


def _values(answer: Table | Rollout) -> dict[str, Any]:
    """Its fields by name, for an answer that has more of them."""
    return {one.name: getattr(answer, one.name) for one in fields(answer)}


@cache
def texts() -> Texts:
    """Everything the page says about columns, settings and a token's account."""
    from mingce.columns import COLUMNS, DERIVED, SETTINGS

    names = [one.name for one in fields(ColumnText)]
    known = [*COLUMNS.values(), *DERIVED.values()]
    return Texts(
        columns=[ColumnText(*(getattr(column, name) for name in names)) for column in known],
        settings=[SettingText(s.symbol, s.name, s.zh, s.en) for s in SETTINGS.values()],
        account=[_section_text(section) for section in SECTIONS],
    )


def _section_text(section: Section) -> SectionText:
    result, column = RESULTS.get(section.id, (None, None))
    return SectionText(
        id=section.id,
        title=_both(section.title),
        formula=section.formula,
        numbers=section.numbers,
        words={level: _both(pair) for level, pair in zip(LEVELS, section.words, strict=True)},
        needs=section.needs,
        lacks=section.lacks,
        estimators=section.estimators,
        losses=section.losses,
        case_of=section.case_of,
        cases={case: _both(pair) for case, pair in section.cases.items()},
        result=result,
        column=column,
    )


def _both(pair: Pair) -> Both:
    return {"zh": pair[0], "en": pair[1]}


@cache
def playground() -> Playground:
    """The seeds' worked examples and their slips."""
    text = (Path(__file__).parent / "examples.json").read_text(encoding="utf-8")
    return cast(Playground, json.loads(text))


def metric_meaning(name: str) -> MetricText:
    """A metric's name, group, meaning and formula; measured ones have no formula."""
    from mingce.metrics import METRICS, measured_meaning

    group = name.partition("/")[0]
    group = group if group in _GROUPS else "other"
    for metric in METRICS:
        if metric.name == name:
            return MetricText(
                name, group, metric.zh, metric.en, metric.reduction, metric.reduction_zh, list(metric.columns)
            )
    return MetricText(name, group, measured_meaning(name, "zh"), measured_meaning(name, "en"))


def thinned(count: int, most: int) -> list[int]:
    """Indices of at most about `most` of `count` things, evenly spaced; the last is always there."""
    every = max(1, math.ceil(count / most))
    places = list(range(0, count, every))
    return places if not places or places[-1] == count - 1 else [*places, count - 1]


def _text(config: Mapping[str, Any], *keys: str) -> str | None:
    """The first of the settings that is a text."""
    return next((value for key in keys if isinstance(value := config.get(key), str)), None)
