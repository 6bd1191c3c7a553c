"""A small linear model over a text's features, shipped as one file and read without any library.

scripts/train_tutor.py makes it from how people ask (mingce/texts/topics, points, propositions, scripts/tutor). The
file: a line of JSON (classes, scale, biases, the data's checksum), then, compressed, a line per feature, if it is wide
a byte per feature that says how rare it is, and a row of int8 weights per feature. Probabilities are their softmax; a
text of which the model knows no feature says nothing.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from mingce.explain.question.features import features, wide_features

OTHER = "other"
"""The class of what is not about PPO."""
PAIRED = 8
"""So many terms of a question are paired with each other at the most."""


class Guess(NamedTuple):
    """A class and its probability."""

    name: str
    probability: float


class Classifier:
    """A model out of its file."""

    def __init__(self, content: bytes):
        header, _, rest = content.partition(b"\n")
        about = json.loads(header)
        self.classes: tuple[str, ...] = tuple(about["classes"])
        self.scale: float = about["scale"]
        self.bias: list[float] = about["bias"]
        self.checksum: str = about["checksum"]
        names, _, numbers = zlib.decompress(rest).partition(b"\n\n")
        self.rows = {name: place for place, name in enumerate(names.decode().split("\n"))}
        wide = len(self.rows) if about.get("wide") else 0
        self.rarity = memoryview(numbers[:wide])
        self.weights = memoryview(numbers[wide:]).cast("b")

    def vector(self, text: str) -> dict[int, float]:
        """The rows of a text's known features with their shares, a vector of length 1."""
        if not self.rarity:
            known = known_rows(text, self.rows)
            return dict.fromkeys(known, 1 / math.sqrt(len(known))) if known else {}
        places = {
            place: self.rarity[place] for name in wide_features(text) if (place := self.rows.get(name)) is not None
        }
        size = math.sqrt(sum(x * x for x in places.values()))
        return {place: x / size for place, x in sorted(places.items())} if size else {}

    def guesses(self, text: str) -> list[Guess]:
        """All classes, the likeliest first; none if nothing of the text is known."""
        known = self.vector(text)
        if not known:
            return []
        width = len(self.classes)
        sums = [0.0] * width
        for place, share in known.items():
            row = self.weights[place * width : (place + 1) * width]
            sums = [a + share * b for a, b in zip(sums, row, strict=True)]
        scores = [self.scale * x + b for x, b in zip(sums, self.bias, strict=True)]
        top = max(scores)
        shares = [math.exp(score - top) for score in scores]
        total = math.fsum(shares)
        pairs = (Guess(name, share / total) for name, share in zip(self.classes, shares, strict=True))
        return sorted(pairs, key=lambda guess: -guess.probability)


def expanded(single: frozenset[str]) -> set[str]:
    """The features, and the field's terms two by two: which of them meet tells more than which there are."""
    terms = sorted(name for name in single if name.startswith("#"))[:PAIRED]
    return set(single) | {f"{a}&{b}" for k, a in enumerate(terms) for b in terms[k + 1 :]}


def known_rows(text: str, rows: Mapping[str, int]) -> list[int]:
    """The rows of the text's features; how many of its words are strange is a feature too."""
    single = features(text)
    places = [rows[name] for name in expanded(single) if name in rows]
    words = [name for name in single if name[0] in "wz"]
    if words and places:
        strange = f"?{round(4 * sum(name not in rows for name in words) / len(words))}"
        places += [rows[strange]] if strange in rows else []
    return sorted(places)


@cache
def load(name: str) -> Classifier:
    """The shipped model `topics`, `points` or `claims`."""
    return Classifier((files("mingce") / "explain" / "question" / f"{name}.model").read_bytes())
