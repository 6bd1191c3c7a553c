"""What the page may ask for, as values that JSON holds. The server and the single-file export take it from here."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from mingce.base.errors import MingceError, RunError
from mingce.record.store import LedgerFileError
from mingce.view.digits import encode
from mingce.view.library import Library
from mingce.view.rollout import PromptIndex, rollout, through
from mingce.view.source import Source
from mingce.view.step_index import Query, StepIndex, build_index

POINTS = 2000
RUNS = 200  # in one answer
INDICES = 32  # steps whose columns are kept
INDEXED_ROWS = 1_000_000  # in all of them
SPARK = 60
SCORE = "critic/score/mean"
_GROUPS = (
    "score",
    "val",
    "critic",
    "actor",
    "rollout",
    "response_length",
    "prompt_length",
    "audit",
    "timing_s",
    "perf",
)


class Api:
    """The answers. Every method may be called from any thread."""

    def __init__(self, library: Library):
        self.library = library
        self._indices: dict[tuple[str, int], tuple[object, StepIndex]] = {}
        self._indexing = Lock()
        self._audits: dict[tuple[str, int], tuple[object, dict[str, Any]]] = {}
        self._prompts: dict[str, PromptIndex] = {}
        self._lock = Lock()

    def warm(self) -> None:
        """Answers once to nobody: the first reading of a ledger and of a tokenizer takes several times as long."""
        with suppress(MingceError):
            for source in self.library.sources()[:1]:
                source.series()
                for step in source.ledger_steps()[-1:]:
                    encode(self.rollout(source.id, step, 0))

    def runs(self, offset: int = 0) -> list[dict[str, Any]]:
        """The runs, the newest first, a page of them from `offset` on."""
        return [self._run_line(source) for source in self.library.sources()[offset : offset + RUNS]]

    def _run_line(self, source: Source) -> dict[str, Any]:
        series, config = source.series(), source.config()
        scores = [number(value) for value in series.column(SCORE)[series.where(SCORE)].tolist()]
        return {
            "id": source.id,
            "name": source.name,
            "path": str(source.path),
            "kind": source.kind,
            "status": source.status(),
            "message": source.message(),
            "steps": series.last_step() or 0,
            "total_steps": source.total_steps(),
            "last_score": scores[-1] if scores else None,
            "spark": [scores[k] for k in thinned(len(scores), SPARK)],
            "estimator": config.get("estimator"),
            "lang": _task_lang(config),
            "updated": source.updated(),
        }

    def run(self, source_id: str, first: int | None = None, last: int | None = None) -> dict[str, Any]:
        """A run's settings, its numbers over the steps (or those from `first` to `last`), what could not be read."""
        source = self.library.source(source_id)
        series, ledger_steps = source.series(), source.ledger_steps()
        line = self._run_line(source)
        return {key: line[key] for key in ("id", "name", "path", "kind", "status", "message", "total_steps")} | {
            "config": {key: plain(value) for key, value in source.config().items()},
            **series.curves(POINTS, first, last),
            "metrics": [metric_meaning(name) for name in series.names],
            "ledger_steps": ledger_steps,
            "damaged": [damage._asdict() for damage in source.damaged()],
            "skipped": [asdict(skipped) for skipped in source.skipped()],
            "events": source.events(),
        }

    def step(self, source_id: str, step: int, query: Query | None = None) -> dict[str, Any]:
        """A step's first rollouts, and how its numbers are spread."""
        source, index = self._index(source_id, step)
        return self.table(source_id, step, query) | {
            "histograms": index.histograms,
            "parts": index.parts,
            "endings": index.endings,
            "settings": plain(source.settings(step)),
            "whitening": index.whitening,
        }

    def table(self, source_id: str, step: int, query: Query | None = None) -> dict[str, Any]:
        """A screenful of a step's rollouts: `shown` of `total` are what was asked for, from `offset` on."""
        query = query or Query()
        source, index = self._index(source_id, step)
        with _damage_told(source, step):
            rows = index.rows(source, step, query)
            chosen = rows[query.offset : query.offset + query.limit].tolist()
            lines = index.lines(source, step, chosen)
        return {
            "step": step,
            "rollouts": [plain(line) for line in lines],
            "offset": query.offset,
            "shown": len(rows),
            "total": index.size,
            "groups": plain(index.groups(lines)),
        }

    def spread(self, source_id: str, step: int, most: int) -> tuple[dict[str, Any], list[int]]:
        """A step with so many rollouts from the worst to the best score, for the export."""
        source, index = self._index(source_id, step)
        order = index.rows(source, step, Query(sort="score"))
        places = np.unique(np.linspace(0, len(order) - 1, most).round().astype(int))[: len(order)]
        rows = sorted(order[places].tolist())
        lines = index.lines(source, step, rows)
        groups = [g for g in index.groups(lines) if g["best_row"] in rows and g["worst_row"] in rows]
        found = self.step(source_id, step, Query(limit=1))
        return found | {"rollouts": plain(lines), "groups": plain(groups), "shown": len(lines)}, rows

    def _index(self, source_id: str, step: int) -> tuple[Source, StepIndex]:
        source = self.library.source(source_id)
        source.expect(step)
        key, stamp = (source.id, step), source.stamp(step)
        with self._indexing:  # one at a time, so that memory stays bounded
            known = self._indices.pop(key, None)
            if known is None or known[0] != stamp:
                with _damage_told(source, step):
                    known = stamp, build_index(source, step)
            self._indices[key] = known
            while len(self._indices) > INDICES or sum(one.size for _, one in self._indices.values()) > INDEXED_ROWS:
                if len(self._indices) == 1:
                    break
                del self._indices[next(iter(self._indices))]
        return source, known[1]

    def rollout(self, source_id: str, step: int, row: int) -> dict[str, Any]:
        """Everything about one rollout."""
        source, index = self._index(source_id, step)
        with _damage_told(source, step):
            found = rollout(source, step, row, index.whitening)
        return found | {"settings": plain(found["settings"]), "info": plain(found["info"])}

    def through(
        self, source_id: str, step: int | None = None, row: int | None = None, prompt: str | None = None
    ) -> dict[str, Any]:
        """The answers to one prompt over the steps, or, when none is named, the prompts that recur."""
        source = self.library.source(source_id)
        with self._lock, _damage_told(source, step or 0):
            index = self._prompts.setdefault(source.id, PromptIndex(source))
            if prompt is None and step is None:
                return {"prompts": index.recurring(), "steps_left_out": index.left_out}
            if prompt is None:
                assert step is not None
                source.expect(step)
                prompt = source.rollouts(step, [row or 0], ["prompt"])[0].get("prompt") or ""
            places = index.places(prompt)
        return through(source, prompt, places) | {"steps_left_out": index.left_out}

    def audit(self, source_id: str, step: int | None = None) -> dict[str, Any]:
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
                self._audits[key] = stamp, as_json(audit(source.dump(step))) | {"step": step}
            return self._audits[key][1]

    def progress(self, source_id: str) -> dict[str, Any]:
        """How far a run is, cheap enough to be asked every second."""
        source = self.library.source(source_id)
        return {"status": source.status(), "step": source.last_step()}


@contextmanager
def _damage_told(source: Source, step: int) -> Iterator[None]:
    """A ledger whose columns are not those of the table can break its reader in any way; this is reported as damage."""
    try:
        yield
    except MingceError:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise LedgerFileError(f"step {step} of {source.name} is not as a ledger should be ({reason})") from error


@cache
def texts() -> dict[str, Any]:
    """Everything the page says about columns, settings and a token's account."""
    from mingce.columns import COLUMNS, SETTINGS
    from mingce.explain.account_texts import sections

    fields = ("name", "symbol", "alignment", "formula", "formula_zh", "zh", "en", "long_zh", "long_en")
    return {
        "columns": [{name: getattr(column, name) for name in fields} for column in COLUMNS.values()],
        "settings": [
            {"symbol": s.symbol, "name": s.name, "zh": s.zh, "en": s.en} for s in SETTINGS.values()
        ],
        "account": sections(),
    }  # fmt: skip


@cache
def playground() -> Any:
    """The seeds' worked examples and their slips."""
    return json.loads((Path(__file__).parent / "examples.json").read_text(encoding="utf-8"))


def metric_meaning(name: str) -> dict[str, Any]:
    """A metric's name, group, meaning and formula; measured ones have no formula."""
    from mingce.metrics import MEASURED, METRICS

    group = name.partition("/")[0]
    entry: dict[str, Any] = {"name": name, "group": group if group in _GROUPS else "other", "columns": []}
    for metric in METRICS:
        if metric.name == name:
            return entry | {
                "zh": metric.zh, "en": metric.en, "columns": list(metric.columns),
                "formula": metric.reduction, "formula_zh": metric.reduction_zh,
            }  # fmt: skip
    pattern = next((key for key in MEASURED if "<" in key and name.startswith(key.partition("<")[0])), name)
    en, zh = MEASURED.get(pattern, ("", ""))
    return entry | {"zh": zh, "en": en, "formula": "", "formula_zh": ""}


def thinned(count: int, most: int) -> list[int]:
    """Indices of at most about `most` of `count` things, evenly spaced; the last is always there."""
    every = max(1, math.ceil(count / most))
    kept = list(range(0, count, every))
    return kept if not kept or kept[-1] == count - 1 else [*kept, count - 1]


def number(value: Any) -> float | None:
    """A finite number, or null."""
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def plain(value: Any) -> Any:
    """Any value as JSON holds it."""
    if isinstance(value, bool | str) or value is None:
        return value
    if isinstance(value, int | float):
        return number(value)
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return str(value)


def _task_lang(config: Mapping[str, Any]) -> Any:
    """The language of a run's task, which runs made before have as `lang`."""
    return config.get("data.lang") or config.get("lang")
