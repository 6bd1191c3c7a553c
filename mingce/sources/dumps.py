"""A dump of another trainer as a source: a run of one step, or of as many as its directory holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mingce.base.errors import DataError, MingceError, RunError, first_line
from mingce.record.tokens import TokenTexts
from mingce.sources.series import Series
from mingce.sources.source import MAX_TOKENS, ROW_CHOICES, Array, Ragged, Source, Status
from mingce.specs.settings import AccountSettings

if TYPE_CHECKING:
    from mingce.record.dump import Dump

_SCALARS = {  # how the trainer's logged numbers are called here
    "pg_loss": "actor/pg_loss", "vf_loss": "critic/vf_loss", "kl_loss": "actor/kl_loss", "kl_mean": "critic/kl",
    "entropy_mean": "actor/entropy", "pg_clipfrac": "actor/pg_clipfrac", "vf_clipfrac": "critic/vf_clipfrac",
    "approx_kl": "actor/ppo_kl", "kl_coef": "critic/kl_coeff", "advantages_mean": "critic/advantages/mean",
}  # fmt: skip


class DumpSource(Source):
    """Opened when it is first looked at; what cannot be opened is a message, not a crash."""

    kind: Literal["run", "dump"] = "dump"

    def __init__(self, path: Path, mapping: Path | None = None, tokenizer: Path | None = None):
        super().__init__(path.name, path)
        self._mapping, self._texts = mapping, TokenTexts(tokenizer)
        self._dumps: dict[int, Dump] | None = None
        self._message: str | None = None
        self._lock = Lock()
        self._settings: dict[int, AccountSettings] = {}

    def _opened(self) -> dict[int, Dump]:
        with self._lock:
            if self._dumps is None:
                self._dumps = self._open()
            return self._dumps

    def _open(self) -> dict[int, Dump]:
        from mingce.importers.opening import open_dump

        dumps: dict[int, Dump] = {}
        try:
            for number, dump in enumerate(open_dump(self.path, self._mapping)):
                dumps[number if dump.step is None or dump.step in dumps else dump.step] = dump
        except MingceError as error:
            self._message = str(error)
        except Exception as error:  # a stranger's file may confuse its reader in any way
            self._message = f"{self.path.name} cannot be read ({first_line(error)})"
        return dumps

    def dump(self, step: int) -> Dump:
        self.expect(step)
        return self._opened()[step]

    def status(self) -> Status:
        return "finished"

    def message(self) -> str | None:
        self._opened()
        return self._message

    def config(self) -> dict[str, Any]:
        for dump in self._opened().values():
            return {"source": dump.source} | dump.settings.known()
        return {}

    def total_steps(self) -> int | None:
        return len(self._opened())

    def series(self) -> Series:
        return Series.of([{"step": step} | line_of(dump) for step, dump in sorted(self._opened().items())])

    def updated(self) -> float:
        return self.path.stat().st_mtime if self.path.exists() else 0.0

    def ledger_steps(self) -> list[int]:
        return sorted(self._opened())

    def stamp(self, step: int) -> object:
        return step

    def size(self, step: int) -> int:
        return self.dump(step).shape[0]

    def _lengths(self, dump: Dump) -> Array:
        """[B] slots in use: one past the last token that is there, or was chosen."""
        there = dump.columns.get("attention_mask", dump.columns["response_mask"]).astype(bool) | dump.mask
        lengths: Array = np.where(there, np.arange(1, dump.shape[1] + 1), 0).max(axis=1, initial=0)
        return lengths

    def token_column(self, step: int, name: str) -> Ragged | None:
        dump = self.dump(step)
        column = dump.columns.get(name)
        if column is None:
            return None
        lengths = self._lengths(dump)
        used = np.arange(dump.shape[1]) < lengths[:, None]
        return Ragged(column[used], np.concatenate([[0], np.cumsum(lengths)]))

    def row_column(self, step: int, name: str) -> list[Any] | None:
        return self.dump(step).rows.get(name)

    def rollouts(
        self, step: int, rows: Sequence[int], names: Sequence[str] | None = None, tokens: int = MAX_TOKENS
    ) -> list[dict[str, Any]]:
        dump = self.dump(step)
        lengths = self._lengths(dump)
        found = []
        for row in rows:
            if not 0 <= row < dump.shape[0]:
                raise RunError(f"step {step} has {dump.shape[0]} rollouts, numbered from 0; there is no row {row}")
            one: dict[str, Any] = {}
            for name, column in sorted(dump.columns.items()):
                if names is None or name in names:
                    one[name] = column[row, : min(lengths[row], tokens)].tolist()
            for name in (*ROW_CHOICES, "outcome"):
                entries = self.row_column(step, name)
                if entries is not None and (names is None or name in names):
                    one[name] = entries[row]
            found.append(one)
        return found

    def settings(self, step: int) -> AccountSettings:
        """What the dump says, and what the audit infers from its numbers."""
        dump = self.dump(step)
        if step not in self._settings:
            known = dump.settings.known() | _inferred(dump)
            self._settings[step] = AccountSettings.from_dump(known, list(dump.columns)).checked()
        return self._settings[step]

    def tokens(self) -> TokenTexts:
        return self._texts

    def trainer(self, step: int) -> str:
        return self.dump(step).source


def line_of(dump: Dump) -> dict[str, float]:
    """What the log of a run says of a step, as far as a dump tells it."""
    line: dict[str, float] = {}
    scores, rows = _scores(dump), dump.shape[0]
    if scores is not None and rows:
        line["critic/score/mean"] = float(np.mean(scores))
    line["response_length/mean"] = float(dump.mask.sum(axis=1).mean()) if rows else 0.0
    return line | {_SCALARS.get(name, name): value for name, value in dump.scalars.items()}


def _scores(dump: Dump) -> Array | None:
    """[B] what each row was paid."""
    scores, outcome = dump.columns.get("scores"), dump.rows.get("outcome")
    if scores is not None:
        paid: Array = np.where(dump.mask & np.isfinite(scores), scores, 0.0).astype(np.float64).sum(axis=1)
        return paid
    return None if outcome is None else np.array([np.nan if x is None else x for x in outcome], dtype=float)


def _inferred(dump: Dump) -> dict[str, Any]:
    """γ, λ, β and the like as the audit infers them; a dump that says too little leaves them unknown."""
    from mingce.audit.audit import audit

    try:
        return audit(dump).settings.known()
    except (MingceError, ArithmeticError, ValueError, LookupError, TypeError):
        return {}


def open_source(path: Path, mapping: Path | None = None, tokenizer: Path | None = None) -> Source:
    """A run's directory or a dump."""
    from mingce.record.targets import is_run
    from mingce.sources.runs import RunSource

    if is_run(path):
        return RunSource(path, tokenizer)
    if not path.exists():
        raise DataError(f"there is nothing at {path}; give a run's directory, a directory of runs, or a dump.")
    return DumpSource(path, mapping, tokenizer)
