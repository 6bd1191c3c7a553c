"""Which topic a question is about: a small index over how people ask, the titles and the texts. No model, no network.

A text becomes features: concepts, which are the field's terms in either language (优势, advantage and A_t are one), and
what is left of it as English words, their beginnings and Chinese bigrams. Rare features weigh more, and one
that no topic has as much as the rarest. A topic is known by its phrases, which are its title and the ways it is asked,
and by the words of its texts:

    score = PHRASE · cosine with the best phrase + COVER · share of the question's weight that the phrases have
          + TEXTS · share of its words that the texts have

A question that shares no concept with a topic gets only ALIEN of that. A long one is scored as a whole and sentence by
sentence. Below ACCEPTED nothing fits.
"""

from __future__ import annotations

import difflib
import math
import re
import unicodedata
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from mingce.base.lang import LANGS
from mingce.base.texts import named, texts
from mingce.explain.topic import Topic

ACCEPTED = 0.36
PHRASE, COVER, TEXTS = 0.5, 0.35, 0.15
TITLE = 1.2
ALIEN, SENTENCE = 0.55, 0.5
SUBSTANTIAL = 9.0
"""The weight from which a sentence of a longer question counts in full."""
BEGINNING, ALIKE = 5, 0.85
_WEIGHTS = {"#": 2.0, "^": 0.35, "w": 1.0, "z": 0.8}
_PATH = re.compile(r"@?\[?[\w.-]+(?:/[\w.-]+)+\]?(?::\d+)?|\b\w+\.py\b")
_NUMBERS = re.compile(r"[-−]?\d+\.\d+|\[\[?[-−\d.,，\s]*\]?\]")
_LATEX = re.compile(r"\\([a-z]+)")
_WORD = re.compile(r"[a-z][a-z0-9]+")
_CHINESE = re.compile(r"[一-鿿]+")
_SENTENCES = re.compile(r"[。？！；?!;\n]+|\.\s+")
_SYMBOL = re.compile(
    r"(?<![A-Za-z\\])(V|v|A|a|r|R|G|Q|δ|\\delta|delta)"
    r"(?:_\{([^{}]*)\}|_([A-Za-z0-9]+(?:[+-]\d)?)|\(([s\d][^()]*)\)|\[([a-z0-9+-]+)\])"
)
_SYMBOLS = {
    "v": "value", "V": "value", "a": "advantage", "A": "advantage", "r": "reward", "R": "return", "G": "return",
    "Q": "q value", "δ": "delta", "delta": "delta", "\\delta": "delta",
}  # fmt: skip
_ASIDE = re.compile(r"[（(][^）)]*[）)]")

Vector = dict[str, float]


class Match(NamedTuple):
    """A topic and how well it fits."""

    topic: str
    score: float


class Index:
    """The topics, made ready to be asked."""

    def __init__(self, topics: Iterable[Topic]):
        self.texts: dict[str, str] = {}
        self.told_by: dict[str, frozenset[str]] = {}
        self.own: dict[str, frozenset[str]] = {}
        phrases: dict[str, list[frozenset[str]]] = {}
        for topic in topics:
            titles = [_ASIDE.sub("", title) for title in topic.title]
            phrases[topic.id] = [features(text) for text in (*titles, *topic.asked[0], *topic.asked[1])]
            self.own[topic.id] = frozenset().union(*phrases[topic.id])
            self.texts[topic.id] = "\n".join(text for pair in topic.words for text in pair).lower()
        spread: dict[str, int] = {}
        for own in self.own.values():
            for feature in own:
                spread[feature] = spread.get(feature, 0) + 1
        count = len(phrases)
        self.rarity = {feature: math.log(1 + count / n) for feature, n in spread.items()}
        self.rarest = math.log(1 + count)
        self.phrases = {
            topic_id: [
                (vector, _length(vector) / (TITLE if place < 2 else 1.0))
                for place, said in enumerate(all_said)
                if (vector := self._weighted(said))
            ]
            for topic_id, all_said in phrases.items()
        }

    def search(self, question: str) -> list[Match]:
        """All topics, the best first."""
        question = cleaned(question)
        scores, _ = self._scores(question)
        sentences = [part for part in _SENTENCES.split(question) if part.strip()]
        if len(sentences) > 1:
            parts = [self._scores(sentence) for sentence in sentences]
            for topic_id, score in scores.items():
                best = max(part[topic_id] * min(1.0, weight / SUBSTANTIAL) for part, weight in parts)
                scores[topic_id] = (1 - SENTENCE) * score + SENTENCE * best
        return sorted((Match(topic_id, score) for topic_id, score in scores.items()), key=lambda match: -match.score)

    def _scores(self, text: str) -> tuple[dict[str, float], float]:
        """Every topic's score, and the weight of what was asked."""
        query = self._weighted(features(text))
        size, total = _length(query), math.fsum(query.values())
        scores = dict.fromkeys(self.phrases, 0.0)
        if not query:
            return scores, 0.0
        concepts = {feature for feature in query if feature[0] == "#"}
        for topic_id, phrases in self.phrases.items():
            phrase = max(_product(query, vector) / (size * length) for vector, length in phrases)
            cover = math.fsum(w for f, w in query.items() if f in self.own[topic_id]) / total
            text_cover = math.fsum(w for f, w in query.items() if topic_id in self._telling(f)) / total
            score = PHRASE * phrase + COVER * cover + TEXTS * text_cover
            scores[topic_id] = score if concepts & self.own[topic_id] else ALIEN * score
        return scores, total

    def _telling(self, feature: str) -> frozenset[str]:
        """The topics in whose texts a feature is found."""
        if feature not in self.told_by:
            kind, rest = feature[0], feature[1:].removeprefix(":")
            terms = _chinese_terms().get(rest, ()) if kind == "#" else (rest,)
            self.told_by[feature] = frozenset(
                topic_id for topic_id, text in self.texts.items() if any(term in text for term in terms)
            )
        return self.told_by[feature]

    def _weighted(self, found: Iterable[str]) -> Vector:
        return {f: _WEIGHTS[f[0]] * self.rarity.get(f, self.rarest) for f in found}


def _product(a: Vector, b: Vector) -> float:
    return math.fsum(w * b[f] for f, w in a.items() if f in b)


def _length(vector: Vector) -> float:
    return math.sqrt(math.fsum(w * w for w in vector.values()))


# ── features ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def features(text: str) -> frozenset[str]:
    """What of a phrase or a question is compared: `#concept`, `w:word`, `^begi`, `z:二字`."""
    text = cleaned(text)
    found: set[str] = set()
    for pattern, concepts in _terms():

        def keep(match: re.Match[str], concepts: dict[str, str] = concepts) -> str:
            found.add(f"#{concepts[_spaceless(match[0])]}")
            return " "

        text = pattern.sub(keep, text)
    for word in _WORD.findall(text):
        concept = _misspelt(word)
        if concept is not None:
            found.add(f"#{concept}")
        elif word not in _stop_words():
            found.add(f"w:{_stem(word)}")
            if len(word) > 4:
                found.add(f"^{word[:4]}")
    for run in _CHINESE.findall(_fillers().sub(" ", text)):
        found.update(f"z:{run[k : k + 2]}" for k in range(max(len(run) - 1, 1)))
    return frozenset(found)


def cleaned(text: str) -> str:
    """In small letters, without paths and pasted numbers; LaTeX commands and symbols such as V_{t+1} as words."""
    text = _PATH.sub(" ", unicodedata.normalize("NFKC", text.replace("\\n", "\n")))
    text = _SYMBOL.sub(_spelt, text)
    return _LATEX.sub(r" \1 ", _NUMBERS.sub(" ", text.lower()))


def _spelt(symbol: re.Match[str]) -> str:
    """`V_{t+1}` → value t+1; the index 0 has a word of its own."""
    place = symbol[symbol.lastindex or 1]
    return f" {_SYMBOLS[symbol[1]]} {'subzero' if place == '0' else place} "


def _stem(word: str) -> str:
    for end in ("ing", "ies", "es", "ed", "s"):
        if word.endswith(end) and len(word) - len(end) > 3:
            return word[: -len(end)]
    return word


def _spaceless(term: str) -> str:
    return re.sub(r"[\s_-]+", "", term)


@cache
def _terms() -> tuple[tuple[re.Pattern[str], dict[str, str]], ...]:
    """The thesaurus as two patterns, Chinese terms and others, the longest term first."""
    by_kind: dict[bool, dict[str, str]] = {True: {}, False: {}}
    for concept, terms in concepts().items():
        for term in terms:
            by_kind[_CHINESE.search(term) is not None][term] = concept
    patterns = []
    for chinese, terms_of_kind in by_kind.items():
        ordered = sorted(terms_of_kind, key=lambda term: -len(term))
        body = "|".join(re.escape(term).replace(r"\ ", r"[\s_-]*") for term in ordered)
        pattern = re.compile(body if chinese else rf"(?<![a-z])(?:{body})(?![a-z])")
        patterns.append((pattern, {_spaceless(term): concept for term, concept in terms_of_kind.items()}))
    return tuple(patterns)


def _misspelt(word: str) -> str | None:
    """The concept of a term that begins alike and is nearly the word."""
    for term, concept in _beginnings().get(word[:BEGINNING], ()):
        if difflib.SequenceMatcher(None, word, term).ratio() >= ALIKE:
            return concept
    return None


@cache
def _beginnings() -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for concept, terms in concepts().items():
        for term in terms:
            if _WORD.fullmatch(term) and len(term) > BEGINNING:
                found.setdefault(term[:BEGINNING], []).append((term, concept))
    return found


@cache
def _chinese_terms() -> dict[str, tuple[str, ...]]:
    """A concept's Chinese terms, which every topic's texts use."""
    return {concept: tuple(filter(_CHINESE.search, terms)) for concept, terms in concepts().items()}


@cache
def concepts() -> dict[str, tuple[str, ...]]:
    """The field's terms in both languages by concept."""
    terms: dict[str, tuple[str, ...]] = {}
    for lang in LANGS:
        for concept, said in named(texts("thesaurus", lang)["concepts"]).items():
            terms[concept] = (*terms.get(concept, ()), *said.split(", "))
    return terms


@cache
def _stop_words() -> frozenset[str]:
    return frozenset(texts("thesaurus", "en")["fillers"].split())


@cache
def _fillers() -> re.Pattern[str]:
    return re.compile("|".join(sorted(texts("thesaurus", "zh")["fillers"].split(), key=len, reverse=True)))
