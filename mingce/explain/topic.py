"""What a topic of the tutor is, and how its texts get the numbers of the example at hand.

A text is Markdown with `{name}` for a number or text of the example; formulas stand between backticks. Every number
that depends on the example is a placeholder: only indices, exponents and the limits 0, 1, 2 may stand in a text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mingce import texts
from mingce.algorithms import reference
from mingce.explain.account import shown, substituted, token_values
from mingce.explain.account_texts import LEVELS, Pair
from mingce.explain.example import Rollout
from mingce.lang import LANGS

Values = dict[str, Any]


@dataclass(frozen=True)
class Grid:
    """A small table: headings in both languages, cells as numbers or texts."""

    headings: tuple[Pair, ...]
    rows: tuple[tuple[Any, ...], ...]


def nothing(rollout: Rollout, t: int) -> Values:
    """A topic that needs no numbers of its own."""
    return {}


@dataclass(frozen=True)
class Topic:
    """One thing people ask about: what is computed for it; what is said is in mingce/texts/topics/<id>.<lang>.md.

    `numbers`: the topic's own placeholders. `each`: a formula written out for every chosen token, the last one first.
    `table`: columns shown under the tokens. `grid`: one more table. `code`: functions by dotted name.
    `needs`: columns without which the worked example is taken instead of the one at hand.
    """

    id: str
    needs: tuple[str, ...] = ("rewards", "values")
    formula: str = ""
    numbers: Callable[[Rollout, int], Values] = nothing
    each: str = ""
    table: tuple[str, ...] = ()
    grid: Callable[[Rollout, int], Grid] | None = None
    code: tuple[str, ...] = ()
    related: tuple[str, ...] = ()

    @property
    def title(self) -> Pair:
        """The file's title."""
        zh, en = (self._said("", lang).removeprefix("# ") for lang in LANGS)
        return zh, en

    @property
    def asked(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """How people ask it, in Chinese and in English; the index is made of these, the titles and the texts."""
        zh, en = (texts.listed(self._said("asked", lang)) for lang in LANGS)
        return zh, en

    @property
    def words(self) -> tuple[Pair, ...]:
        """The answer at each of LEVELS."""
        return tuple(texts.pair(f"topics/{self.id}", level) for level in LEVELS)

    def _said(self, key: str, lang: str) -> str:
        return texts.texts(f"topics/{self.id}", lang)[key]


def values_of(topic: Topic, rollout: Rollout, t: int) -> Values:
    """Everything a text of the topic may name: settings, columns as lists, token t's account, the topic's own."""
    account, _ = token_values(rollout, t)
    columns = {name: listed(column) for name, column in rollout["columns"].items()}
    chosen = reference.chosen(rollout["columns"]["response_mask"])
    texts = [token["text"] for token in rollout["tokens"]]
    common = {
        "prompt": rollout["prompt"],
        "response": rollout["response"],
        "tokens": " · ".join(texts[s] for s in chosen),
        "count_chosen": len(chosen),
        "last_token": texts[chosen[-1]],
        "last": chosen[-1],
    }
    return columns | account | common | topic.numbers(rollout, t)


def text_of(topic: Topic, rollout: Rollout, t: int, level: str, lang: str) -> str:
    """The topic's words at a level with the example's numbers."""
    words = topic.words[LEVELS.index(level)][0 if lang == "zh" else 1]
    return substituted(words, values_of(topic, rollout, t), plain=level == "child")


def listed(column: Sequence[float | None]) -> str:
    """`[0.1, −0.2]`: a column as people write it; long ones keep both ends."""
    texts = [shown(x) for x in column]
    if len(texts) > 16:
        texts = [*texts[:8], "…", *texts[-4:]]
    return f"[{', '.join(texts)}]"
