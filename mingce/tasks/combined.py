"""Several rewards as one: a weighted sum whose parts keep their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mingce.base.errors import SettingError
from mingce.tasks.base import Example, Score


class BatchScorer(Protocol):
    """Scores a batch of responses, in order: a pool over a function or task, a reward model, or a sum of those."""

    @property
    def name(self) -> str: ...

    def start(self) -> None:
        """Starts what scoring needs, so that an error in it is reported now."""
        ...

    def score(
        self, examples: Sequence[Example], responses: Sequence[str], seeds: Sequence[int] | None = None
    ) -> list[Score]:
        """One score a response; each is drawn from its seed where a scorer draws, from its row's number by default."""
        ...

    def close(self) -> None: ...


class Combined:
    """The weighted sum of several scorers.

    The part `<name>` is what a member gave before its weight, `<name>/<part>` what it said itself; a member that did
    not judge an answer has no part `<name>` in it.
    """

    name = "combined"

    def __init__(self, members: Sequence[tuple[float, BatchScorer]]) -> None:
        names = [member.name for _, member in members]
        for name in names:
            if names.count(name) > 1:
                raise SettingError(f"two rewards are named '{name}'; give each its own name.")
        self.members = list(members)

    def start(self) -> None:
        for _, member in self.members:
            member.start()

    def score(
        self, examples: Sequence[Example], responses: Sequence[str], seeds: Sequence[int] | None = None
    ) -> list[Score]:
        columns = [member.score(examples, responses, seeds) for _, member in self.members]
        return [self._sum([column[row] for column in columns]) for row in range(len(examples))]

    def close(self) -> None:
        for _, member in self.members:
            member.close()

    def _sum(self, scores: Sequence[Score]) -> Score:
        total = 0.0
        parts: dict[str, float] = {}
        dense: list[tuple[int, float]] = []
        for (weight, member), score in zip(self.members, scores, strict=True):
            total += weight * score.score
            dense += [(offset, weight * amount) for offset, amount in score.dense]
            if score.judged:
                parts[member.name] = score.total
            parts |= {f"{member.name}/{part}": value for part, value in score.parts.items()}
        return Score(total, parts, tuple(sorted(dense)))
