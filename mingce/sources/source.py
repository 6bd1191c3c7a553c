"""What the page shows: a run's directory or an imported dump, read the same way.

A source never writes. Columns of a whole step come one at a time as `Ragged`, a rollout as plain lists; names are those
of the column table.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mingce.base.conversation import Markers
from mingce.base.errors import RunError
from mingce.record.clocks import Clocks
from mingce.record.tokens import TokenTexts
from mingce.specs.estimator import row_inputs
from mingce.specs.settings import AccountSettings

if TYPE_CHECKING:
    from mingce.record.dump import Dump
    from mingce.sources.logs import RunEvent, Skipped
    from mingce.sources.series import Series

Array = NDArray[Any]
Status = Literal["training", "finished", "stopped"]
VALIDATION = "~validation"
MAX_TOKENS = 50_001  # of a rollout; one more than is shown, which tells that there are more
ROW_CHOICES = ("uid", "group", "prompt", "prompt_ids", "response", "finish_reason", "score_parts", "bootstrap_value",
               "data_source", "policy_version", "temperature", *row_inputs())  # fmt: skip


class Ragged(NamedTuple):
    """A token column of a whole step: every row's numbers one after another, row b at [offsets[b], offsets[b+1])."""

    values: Array
    offsets: Array

    @property
    def rows(self) -> Array:
        """The row that each number belongs to."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def row(self, b: int) -> Array:
        return self.values[self.offsets[b] : self.offsets[b + 1]]

    def sums(self, where: Array) -> Array:
        """[B] the sum of each row's numbers where `where` (as long as values) is True."""
        kept = np.where(where, self.values, 0).astype(np.float64)
        return np.bincount(self.rows, weights=kept, minlength=len(self.offsets) - 1)

    def largest(self, where: Array) -> Array:
        """[B] the largest magnitude of each row where `where` is True; NaN where it is nowhere."""
        kept = np.append(np.where(where, np.abs(self.values), -1.0), -1.0)
        found = np.maximum.reduceat(kept, self.offsets[:-1]) if len(self.offsets) > 1 else np.zeros(0)
        return np.where((found < 0) | (np.diff(self.offsets) == 0), np.nan, found)


@dataclass(frozen=True, order=True)
class Damage:
    """A file that could not be read, and why."""

    file: str
    why: str


class Source(ABC):
    """A run or a dump. `id` is what addresses call it; a person's own path never is part of one."""

    kind: Literal["run", "dump"]
    id: str = ""

    def __init__(self, name: str, path: Path):
        self.name, self.path = name, path
        self._damage: dict[str, str] = {}
        self._markers: tuple[TokenTexts, Markers] | None = None

    # ── the run ──────────────────────────────────────────────────────────────────────────────────────────────────

    def exists(self) -> bool:
        """Whether it is still there."""
        return self.path.exists()

    def changes(self) -> int:
        """Counts up where steps that are there change."""
        return 0

    @abstractmethod
    def status(self) -> Status:
        """Whether it trains, has reached its last step, or was stopped before."""

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Settings by dotted key."""

    @abstractmethod
    def series(self) -> Series:
        """The numbers over the steps."""

    @abstractmethod
    def updated(self) -> float:
        """When it last changed, in seconds since 1970."""

    @abstractmethod
    def ledger_steps(self) -> list[int]:
        """The steps whose rollouts can be read; damaged files are left out."""

    def validation(self) -> Source | None:
        """Its answers to held-out prompts, by the step after which they were given; None where there are none."""
        return None

    def last_step(self) -> int | None:
        """The newest step that is complete."""
        return self.series().last_step()

    def total_steps(self) -> int | None:
        """How many steps it will have."""
        steps = self.config().get("steps")
        return steps if isinstance(steps, int) else None

    def events(self) -> list[RunEvent]:
        """What happened besides steps."""
        return []

    def skipped(self) -> list[Skipped]:
        """Lines of its logs that were left out because they cannot be read."""
        return []

    def message(self) -> str | None:
        """Why nothing of it can be shown, if so."""
        return None

    def damaged(self) -> list[Damage]:
        """Files that were found unreadable so far."""
        return [Damage(file, why) for file, why in sorted(dict(self._damage).items())]

    # ── a step ───────────────────────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def stamp(self, step: int) -> object:
        """Equal as long as the step's data are the same, for caches."""

    @abstractmethod
    def size(self, step: int) -> int:
        """The number of rollouts."""

    @abstractmethod
    def token_column(self, step: int, name: str) -> Ragged | None:
        """A token column of the whole step; None if it has none of that name."""

    @abstractmethod
    def row_column(self, step: int, name: str) -> list[Any] | None:
        """A row column of the step, one entry a rollout."""

    def batches(self, step: int, names: Sequence[str]) -> Iterator[dict[str, Ragged]]:
        """Those of the token columns that are there, for some rollouts at a time, in order."""
        columns = {name: self.token_column(step, name) for name in names}
        yield {name: column for name, column in columns.items() if column is not None}

    def search(self, step: int, text: str) -> Array:
        """[B] whether the prompt or the response contains the text, whatever its case, or the uid is the text."""
        low = text.lower()
        found = np.zeros(self.size(step), dtype=bool)
        for name in ("prompt", "response"):
            for row, value in enumerate(self.row_column(step, name) or []):
                found[row] |= low in str(value or "").lower()
        for row, uid in enumerate(self.row_column(step, "uid") or []):
            found[row] |= str(uid) == text
        return found

    @abstractmethod
    def rollouts(
        self, step: int, rows: Sequence[int], names: Sequence[str] | None = None, tokens: int = MAX_TOKENS
    ) -> list[dict[str, Any]]:
        """Some rollouts with all or some of their columns: lists for token columns, plain values for row columns.

        Of each list no more than `tokens`: what is longer could not be shown.
        """

    def clocks(self, step: int) -> Clocks:
        """When the turns of every row were decoded and environments stepped; none where that was not recorded."""
        return []

    @abstractmethod
    def settings(self, step: int) -> AccountSettings:
        """What the step's numbers were made with; None where it is not known."""

    @abstractmethod
    def tokens(self) -> TokenTexts:
        """How token ids read."""

    def markers(self) -> Markers:
        """What the tokens of the chat template look like."""
        texts = self.tokens()
        if self._markers is None or self._markers[0] is not texts:
            self._markers = texts, Markers(texts.special_texts)
        return self._markers[1]

    @abstractmethod
    def trainer(self, step: int) -> str:
        """Whose numbers these are, as the lines of mingce/texts/recording.*.md name it."""

    @abstractmethod
    def dump(self, step: int) -> Dump:
        """The step as the audit reads it."""

    def expect(self, step: int) -> None:
        """A step that has no ledger is an error."""
        if step not in self.ledger_steps():
            there = self.ledger_steps()
            hint = f"it has steps {there[0]} to {there[-1]}" if there else "it has none"
            raise RunError(f"{self.name} has no ledger of step {step} that can be read; {hint}")


def validation_id(run_id: str) -> str:
    """What addresses call a run's answers to held-out prompts; no run's own id has a tilde."""
    return run_id + VALIDATION


def finite(value: Any) -> float | None:
    """A finite number, or None."""
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def plain(value: Any) -> Any:
    """Any value as JSON holds it."""
    if isinstance(value, bool | str) or value is None:
        return value
    if isinstance(value, int | float):
        return finite(value)
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return str(value)
