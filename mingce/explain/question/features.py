"""What of a phrase or a question is compared: the field's terms in either language, English words, Chinese bigrams."""

from __future__ import annotations

import difflib
import re
import unicodedata
from functools import cache, lru_cache

from mingce.base.lang import LANGS
from mingce.base.texts import named, texts

BEGINNING, ALIKE, PIECE = 5, 0.85, 4
OTHER_FIELD = "other_field"
_PATH = re.compile(r"@\[?[\w.-]+(?:/[\w.-]+)*\]?|[\w.-]+(?:/[\w.-]+)*\.(?:py|md|yaml|json)\b(?::\d+)?|\b\w+\.py\b")
_NUMBERS = re.compile(r"[-−]?\d+\.\d+|\[\[?[-−\d.,，\s]*\]?\]")
_LATEX = re.compile(r"\\([a-z]+)")
_WORD = re.compile(r"[a-z][a-z0-9]+")
_ANY_WORD = re.compile(r"[a-z][a-z0-9]*")
_CHINESE = re.compile(r"[一-鿿]+")
_SYMBOL = re.compile(
    r"(?<![A-Za-z\\])(V|v|A|a|r|R|G|Q|δ|\\delta|delta)"
    r"(?:_\{([^{}]*)\}|_([A-Za-z0-9]+(?:[+-]\d)?)|\(([s\d][^()]*)\)|\[([a-z0-9+-]+)\])"
)
_SYMBOLS = {
    "v": "value", "V": "value", "a": "advantage", "A": "advantage", "r": "reward", "R": "return", "G": "return",
    "Q": "q value", "δ": "delta", "delta": "delta", "\\delta": "delta",
}  # fmt: skip


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


def wide_features(text: str) -> frozenset[str]:
    """What tells narrow questions apart: the terms, every word and pair of characters, and what is asked (`~why`).

    Long words also give their four-letter pieces, so that typos and compounds are near.
    """
    text = cleaned(text)
    found = {f"~{name}" for name, pattern in _intents() if pattern.search(text)}
    for pattern, concepts in _terms(narrow=True):
        found.update(f"#{concepts[_spaceless(match[0])]}" for match in pattern.finditer(text))
    for word in _ANY_WORD.findall(text):
        found.add(f"w:{_stem(word)}")
        if len(word) > BEGINNING:
            found.update(f"c:{word[k : k + PIECE]}" for k in range(len(word) - PIECE + 1))
    for run in _CHINESE.findall(text):
        found.update(f"z:{run[k : k + 2]}" for k in range(len(run) - 1))
        found.update(f"z:{sign}" for sign in run)
    return frozenset(found)


@lru_cache(64)
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
def _terms(*, narrow: bool = False) -> tuple[tuple[re.Pattern[str], dict[str, str]], ...]:
    """The thesaurus as two patterns, Chinese terms and others, the longest term first."""
    by_kind: dict[bool, dict[str, str]] = {True: {}, False: {}}
    for concept, terms in (concepts() | _narrow_terms() if narrow else concepts()).items():
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
        for term in terms if concept != OTHER_FIELD else ():  # "divide" is no "dividend"
            if _WORD.fullmatch(term) and len(term) > BEGINNING:
                found.setdefault(term[:BEGINNING], []).append((term, concept))
    return found


@cache
def chinese_terms() -> dict[str, tuple[str, ...]]:
    """A concept's Chinese terms, which every topic's texts use."""
    return {concept: tuple(filter(_CHINESE.search, terms)) for concept, terms in concepts().items()}


@cache
def _narrow_terms() -> dict[str, tuple[str, ...]]:
    """Terms that tell narrow questions apart, by concept."""
    return _concepts("terms")


@cache
def concepts() -> dict[str, tuple[str, ...]]:
    """The field's terms in both languages by concept."""
    return _concepts("concepts")


def _concepts(section: str) -> dict[str, tuple[str, ...]]:
    terms: dict[str, tuple[str, ...]] = {}
    for lang in LANGS:
        for concept, said in named(texts("thesaurus", lang)[section]).items():
            terms[concept] = (*terms.get(concept, ()), *said.split(", "))
    return terms


@cache
def _intents() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """What a question asks of its subject, by the patterns of both languages."""
    zh, en = (named(texts("thesaurus", lang)["intents"]) for lang in LANGS)
    return tuple((name, re.compile(f"{zh[name]}|{en[name]}")) for name in en)


@cache
def _stop_words() -> frozenset[str]:
    return frozenset(texts("thesaurus", "en")["fillers"].split())


@cache
def _fillers() -> re.Pattern[str]:
    return re.compile("|".join(sorted(texts("thesaurus", "zh")["fillers"].split(), key=len, reverse=True)))
