"""Check a whole text: `check(text)` gives a verdict on every claim of numbers, and on the wrong ones in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from mingce.base.errors import DataError
from mingce.explain.claims.context import Context
from mingce.explain.claims.counts import judge_counts
from mingce.explain.claims.equations import Judge
from mingce.explain.claims.facts import Equation, Fact, Scalar, Series, Share
from mingce.explain.claims.finding import facts
from mingce.explain.claims.reading import passages
from mingce.explain.claims.series import judge
from mingce.explain.claims.verdicts import Status, Verdict
from mingce.explain.claims.whitening import judge_statistic, judge_whitened
from mingce.explain.claims.words import judge_words

MOST_LISTS = 4000


@dataclass(frozen=True)
class Report:
    """Every verdict in the order of the text; `questions` is 0 for a text that is no dialogue."""

    verdicts: tuple[Verdict, ...]
    questions: int

    def of(self, status: Status) -> list[Verdict]:
        return [verdict for verdict in self.verdicts if verdict.status == status]

    @property
    def exit_code(self) -> int:
        """1 if something is wrong."""
        return int(bool(self.of("wrong")))


def check(text: str, path: Path | None = None) -> Report:
    """Checks a dialogue log or any other text; `path` is only named in errors."""
    read = passages(text, path)
    found = [fact for passage in read for fact in facts(passage)]
    if sum(isinstance(fact, Series) for fact in found) > MOST_LISTS:
        raise DataError(f"{path or 'the text'} holds more than {MOST_LISTS:,} lists of numbers; check it in parts.")
    context = Context(found)
    single = Judge(context)
    verdicts = [verdict for fact in context.facts if (verdict := _judged(fact, context, single)) is not None]
    for passage in read:
        verdicts += judge_counts(passage, context)
        verdicts += judge_words(passage, context)
    verdicts.sort(key=lambda verdict: verdict.where.line)
    return Report(tuple(_once(verdicts)), max((passage.question for passage in read), default=0))


def _judged(fact: Fact, context: Context, single: Judge) -> Verdict | None:
    match fact:
        case Series(kind="whitened"):
            return judge_whitened(context, fact)
        case Series():
            return judge(context, fact)
        case Scalar():
            return single.scalar(fact)
        case Equation(statistic=None):
            return single.equation(fact)
        case Equation():
            return judge_statistic(context, fact)
        case Share():
            return single.share(fact)
    return None


def _once(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """The same claim made again in the same question is told once, with its other lines."""
    kept: dict[tuple[object, ...], Verdict] = {}
    for number, verdict in enumerate(verdicts):
        claimed = None if verdict.claimed is None else tuple(tuple(row) for row in verdict.claimed)
        lists = claimed is not None and len(claimed[0]) > 1
        key: tuple[object, ...] = (number,)
        if lists or verdict.kind == "words":
            key = (verdict.where.question, verdict.kind, claimed, verdict.status, verdict.notes, verdict.right)
        if key in kept:
            first = kept[key]
            kept[key] = replace(first, lines=(*first.lines, verdict.where.line))
        else:
            kept[key] = verdict
    return list(kept.values())
