"""Check a whole text: `check(text)` gives a verdict on every claim of numbers, and on the wrong ones in words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mingce.base.errors import DataError
from mingce.explain.claims.context import GLOBAL, Context
from mingce.explain.claims.counts import judge_counts
from mingce.explain.claims.extraction import facts
from mingce.explain.claims.groups import judge_groups
from mingce.explain.claims.lists import judge_list
from mingce.explain.claims.misconceptions import judge_words
from mingce.explain.claims.quantities import Equation, Fact, Scalar, Series, Share
from mingce.explain.claims.reading import Passage, passages
from mingce.explain.claims.singles import Singles, judge_equation
from mingce.explain.claims.verdicts import Status, Verdict
from mingce.explain.claims.whitening import judge_statistic, judge_whitened

MOST_LISTS = 4000
_HAT = re.compile(r"Â|A\u0302|\\(?:wide)?hat")


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
    parts = passages(text, path)
    everything = [fact for passage in parts for fact in facts(passage)]
    if sum(isinstance(fact, Series) for fact in everything) > MOST_LISTS:
        raise DataError(f"{path or 'the text'} holds more than {MOST_LISTS:,} lists of numbers; check it in parts.")
    return judge(everything, parts)


def judge(everything: Sequence[Fact], parts: Sequence[Passage]) -> Report:
    """The verdicts on the facts of passages; facts of the section GLOBAL are only what the others are judged by."""
    context = Context(everything)
    singles = Singles(context)
    claims = (fact for fact in context.facts if fact.where.section != GLOBAL)
    verdicts = [verdict for fact in claims if (verdict := _judge(fact, context, singles)) is not None]
    for passage in parts:
        verdicts += judge_counts(passage)
        groups = list(judge_groups(passage))
        lines = {verdict.where.line for verdict in groups}
        verdicts = [one for one in verdicts if one.status != "unknown" or one.where.line not in lines] + groups
        verdicts += judge_words(passage, context)
    verdicts.sort(key=lambda verdict: verdict.where.line)
    return Report(tuple(_once(verdicts)), max((passage.question for passage in parts), default=0))


def _judge(fact: Fact, context: Context, singles: Singles) -> Verdict | None:
    match fact:
        case Series(kind="whitened"):
            return judge_whitened(context, fact)
        case Series(kind="advantages") if fact.hatted or _HAT.search(fact.where.quote):
            verdict = judge_list(context, fact)
            whitened = judge_whitened(context, replace(fact, kind="whitened"))
            return whitened if verdict and verdict.status == "wrong" and _is_right(whitened) else verdict
        case Series():
            return judge_list(context, fact)
        case Scalar():
            return singles.judge(fact)
        case Equation(statistic=None):
            return judge_equation(fact)
        case Equation():
            return judge_statistic(context, fact)
        case Share():
            return singles.judge_share(fact)
    return None


def _is_right(verdict: Verdict | None) -> bool:
    return verdict is not None and verdict.status == "right"


def _once(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """The same claim made again in the same question is told once, with its other lines."""
    kept: dict[tuple[object, ...], Verdict] = {}
    for number, verdict in enumerate(verdicts):
        is_list = verdict.claimed is not None and len(verdict.claimed[0]) > 1
        key: tuple[object, ...] = (number,)
        if is_list or verdict.kind == "words":
            key = (verdict.where.question, verdict.kind, verdict.claimed, verdict.status, verdict.notes, verdict.right)
        if key in kept:
            first = kept[key]
            lines = dict.fromkeys((*first.lines, verdict.where.line, *verdict.lines))
            kept[key] = replace(first, lines=tuple(line for line in lines if line != first.where.line))
        else:
            kept[key] = verdict
    return list(kept.values())
