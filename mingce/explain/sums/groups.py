"""A group's scores typed in: every answer's advantage by each method that compares within a group."""

from __future__ import annotations

from collections.abc import Sequence

from mingce.base.numbers import number as shown
from mingce.base.texts import sentence
from mingce.explain.account import substituted
from mingce.explain.answer import Table
from mingce.specs.estimator import ESTIMATORS, Estimator
from mingce.specs.estimators import members_of

LONGEST = 64
ALWAYS = 3
"""So many methods are shown where the question names none."""


def group_methods() -> list[Estimator]:
    """Those that compare an answer with its group."""
    return [one for one in ESTIMATORS.values() if one.kind == "group"]


def advantages_of(method: Estimator, scores: Sequence[float], lengths: Sequence[int]) -> list[float]:
    """One advantage an answer, all of one prompt; the score stands on the last token."""
    width = max(lengths)
    rewards = [[score if t == n - 1 else 0.0 for t in range(width)] for score, n in zip(scores, lengths, strict=True)]
    mask = [[t < n for t in range(width)] for n in lengths]
    assert method.twin is not None
    credit = method.twin(rewards=rewards, response_mask=mask, group=[0] * len(scores))
    rows = credit if isinstance(credit, list) else credit.advantages
    return [row[0] for row in rows]


def lines_of(method: Estimator, scores: Sequence[float], lengths: Sequence[int], each: bool) -> list[str]:
    """Its formula with the numbers put in, once for equal scores or for each answer."""
    members = members_of([[score] for score in scores], [[1]] * len(scores), range(len(scores)))
    weighted = sum(n * score for n, score in zip(lengths, scores, strict=True)) / sum(lengths)
    lines = [f"{method.name}: {method.formula}"]
    alike: dict[tuple[float, float, int], list[int]] = {}
    for k, advantage in enumerate(advantages_of(method, scores, lengths)):
        alike.setdefault((scores[k], advantage, k if each else 0), []).append(k + 1)
    for (score, advantage, _), places in alike.items():
        others = (sum(scores) - score) / (len(scores) - 1)
        values = {
            "own": score, "group_mean": members.mean, "group_std": members.std, "others_mean": others,
            "baseline": weighted, "advantage": advantage,
        }  # fmt: skip
        _, _, right = method.numbers.partition(" = ")
        which = ", ".join(f"A_{place}" for place in places[:8])
        if members.std == 0:
            lines.append(f"{which} = 0")
        else:
            lines.append(f"{which} = {substituted(right, values, formula=True)}")
    return lines


def group_sum(
    scores: Sequence[float], names: Sequence[str], lengths: Sequence[int] | None, lang: str, *, each: bool = False
) -> tuple[str, list[str], Table, list[str]]:
    """What is said, the lines, a table of all answers, and the methods' code."""
    methods = [one for one in group_methods() if one.name in names] or group_methods()[:ALWAYS]
    sizes = [1] * len(scores) if lengths is None else list(lengths)
    members = members_of([[score] for score in scores], [[1]] * len(scores), range(len(scores)))
    added = " + ".join(shown(x) if x >= 0 else f"({shown(x)})" for x in scores[:16])
    lines = [f"mean = ({added}{' + …' if len(scores) > 16 else ''})/{len(scores)} = {shown(members.mean)}"]
    lines.append(f"std = √(Σ(R − mean)²/{len(scores) - 1}) = {shown(members.std)}")
    columns = []
    for method in methods:
        lines += lines_of(method, scores, sizes, each)
        columns.append(advantages_of(method, scores, sizes))
    rows = [(str(k + 1), shown(score), *(shown(column[k]) for column in columns)) for k, score in enumerate(scores)]
    table = Table((sentence("tutor.sum_answer", lang), "R", *(one.name for one in methods)), tuple(rows[:LONGEST]))
    listed = "; ".join(
        f"{one.name}: [{', '.join(shown(x) for x in column[:LONGEST])}]"
        for one, column in zip(methods, columns, strict=True)
    )
    said = [sentence("tutor.sum_group_steps", lang)] if each else []
    said += [sentence("tutor.sum_group", lang, count=len(scores), mean=shown(members.mean), rows=listed)]
    if members.std == 0:
        said.append(sentence("tutor.sum_group_flat", lang))
    else:
        biased = members.std * ((len(scores) - 1) / len(scores)) ** 0.5
        said.append(sentence("tutor.sum_group_std", lang, std=shown(members.std), biased=shown(biased)))
    return "\n\n".join(said), lines, table, [f"mingce.algorithms.advantage.{one.name}" for one in methods]
