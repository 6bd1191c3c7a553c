"""What the walk says beside a token's account (account_texts): of scores and values, which the account only uses, and a
short sentence for each token where a section has none. The words are in mingce/texts/walk.zh.md and walk.en.md.

The rules that choose a sentence are those of the account (the sign of a number) and

    rises: the estimate after the token against that before it     up | down | same | ended | bootstrapped | flat
    target: the return against the estimate it was made from        up | down | same
    fit: the return against the new estimate                        up | down | same | clipped
"""

from __future__ import annotations

from functools import cache

from mingce.base import texts
from mingce.explain.account_texts import Pair, written

SCORES = written("scores", "score_t", "score_{t} = {score}", "walk", needs=("score",), case_of="score")
VALUES = written(
    "values", "V(s_t) ≈ E[Σ_k γ^k·r_{t+k} | s_t]", "V(s_{t}) = {value}", "walk", needs=("value",), case_of="rises"
)

SHORT: dict[str, tuple[str, dict[str, Pair]]] = {
    section: (rule, texts.parts("walk", f"short/{section}"))
    for section, rule in (("reward", "reward"), ("return", "target"), ("value_loss", "fit"))
}
"""Sections without a sentence for the case at hand, or with one too poor alone: section id → rule and sentences."""


@cache
def labels(lang: str) -> dict[str, str]:
    """The walk's own words by name."""
    return texts.named(texts.texts("walk", lang)["labels"])


def label(name: str, lang: str, **values: object) -> str:
    """A word of the walk's own."""
    return labels(lang)[name].format(**values)
