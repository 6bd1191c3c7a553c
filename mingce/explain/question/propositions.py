"""Statements people make about PPO, and whether they hold: read from mingce/texts/propositions.

A claim is recognised by a small model (classifier.py) whatever its polarity. Whether it makes the statement or its
opposite is voted on by the ways of saying and denying it, the likest most: a negation more or less (texts/polarity), a
word against its antonym, or the two sides of a comparison changed turn a vote. An antonym that does not tell a
statement's own phrasings from its denials (in "every token has the same", `every` against `whole`) has no part in it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise

from mingce.base.lang import LANGS
from mingce.base.texts import listed, named, texts
from mingce.explain.patterns import alternatives
from mingce.explain.question.classifier import OTHER, load
from mingce.explain.question.features import features

VERDICTS = ("right", "wrong", "half")
SURE, ALIKE = 0.50, 0.30
"""A statement is recognised if the model is so sure of it and a phrasing of it shares so much with the text."""
SAME, DECISIVE = 0.72, 20.0
NEAR = 0.5
"""How alike a phrasing must be for its polarity to be trusted: from 0.45 on, none of tests/claims.tsv is turned."""
LIKELY, CLOSE, LEAD = 0.30, 0.50, 2.0
"""Or if it is likely, a phrasing is close and the model is so many times as sure of it as of anything else."""
SHARPNESS = 6
"""The likeness of a phrasing to this power is the weight of its vote."""
REMEMBERED, LONGEST = 8192, 400
"""Texts remembered, phrasings most of them; characters of a claim that are read."""
ADDED = frozenset({"frozen", "unbiased", "only"})
"""Antonyms of nothing that only add to what is said: where no phrasing of a statement has them they turn nothing."""
NOTHING = "-"
"""The first side of antonyms where the plain statement has no word for it: `- / different`."""
_CHINESE = re.compile(r"[一-鿿]")
_OPPOSITE = {"right": "wrong", "wrong": "right", "half": "half"}
_SYMBOL = re.compile(r"(?<![\w(\\])([VQR]|A(?=\s*(?:[=<>≠]|等于|不|就|和|跟|is\b|equals)))(?![\w(\[{'’])")

Signs = tuple[int | None, ...]


@dataclass(frozen=True)
class Proposition:
    """A statement: whether it holds, the topic it belongs to, how it is said and denied, and the reason (zh, en)."""

    id: str
    verdict: str
    topic: str
    said: tuple[str, ...]
    denied: tuple[str, ...]
    reasons: tuple[str, str]


@cache
def propositions() -> dict[str, Proposition]:
    """All statements by id."""
    files = [texts("propositions", lang) for lang in LANGS]
    known = {}
    for key in files[0]:
        name, _, part = key.rpartition(".")
        if part == "about":
            about = named(files[0][key])
            said, denied = (
                tuple(phrase for file in files for phrase in listed(file.get(f"{name}.{way}", "")))
                for way in ("said", "denied")
            )
            reasons = files[0][f"{name}.reason"], files[1][f"{name}.reason"]
            known[name] = Proposition(name, about["verdict"], about["topic"], said, denied, reasons)
    return known


# ── polarity ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@cache
def _pattern(key: str) -> re.Pattern[str]:
    return alternatives("polarity", key)


@cache
def _antonyms() -> tuple[tuple[re.Pattern[str], ...], ...]:
    """Each list of antonyms as patterns, one per side, the languages together."""
    zh, en = (named(texts("polarity", lang)["antonyms"]) for lang in LANGS)
    return tuple(
        tuple(
            re.compile(f"{a}|{b}" if a != NOTHING else "(?!)", re.I)
            for a, b in zip(zh[name].split(" / "), en[name].split(" / "), strict=True)
        )
        for name in zh
    )


@cache
def _antonym_names() -> tuple[str, ...]:
    return tuple(named(texts("polarity", LANGS[0])["antonyms"]))


@lru_cache(REMEMBERED)
def orientation(text: str) -> Signs:
    """For negations 1 if their number is odd; for antonyms which side stands there, None if neither does.

    Of two sides it is whether the second one stands there an odd number of times: "the smaller λ the smaller the
    variance" says what "the larger, the larger" does. A word counts once: what antonyms earlier in the list have taken
    is left to none after them, but may still be a negation ("unbiased").
    """
    text = _claimed(text)
    negations = len(_pattern("negations").findall(text)) % 2
    signs: list[int | None] = []
    for sides in _antonyms():
        counts = [len(side.findall(text)) for side in sides]
        signs.append(counts[1] % 2 if sides[0].pattern == "(?!)" else _sign(counts))
        for side in sides:
            text = side.sub(" ", text)
    return negations, *signs


def _claimed(text: str) -> str:
    """The text without forms of questions and without what it only contrasts with."""
    return _pattern("contrasts").sub(" ", _pattern("questions").sub(" ", text[:LONGEST]))


def _sign(counts: Sequence[int]) -> int | None:
    if len(counts) == 2:
        return counts[1] % 2 if any(counts) else None
    present = [side for side, count in enumerate(counts) if count]
    return present[0] if len(present) == 1 else None


def turned(a: Signs, b: Signs) -> bool:
    """Whether two sayings of one statement say opposite things."""
    return sum(x != y for x, y in zip(a, b, strict=True) if x is not None and y is not None) % 2 == 1


def exchanged(text: str, phrase: str) -> bool:
    """Whether both compare the same two things, but the other way round."""
    sides, others = _compared(text), _compared(phrase)
    if sides is None or others is None:
        return False
    straight, crossed = (len(sides[0] & others[k]) + len(sides[1] & others[1 - k]) for k in (0, 1))
    return crossed > straight


@lru_cache(REMEMBERED)
def _compared(text: str) -> tuple[frozenset[str], frozenset[str]] | None:
    parts = _pattern("comparisons").split(_claimed(text))
    if len(parts) != 2:
        return None
    one, other = (frozenset(name for name in features(part) if name.startswith("#")) for part in parts)
    return one, other


@lru_cache(REMEMBERED)
def without_polarity(text: str) -> str:
    """The text without its negations, for the model to tell what a claim is about; a bare V is V_t."""
    return _SYMBOL.sub(r" \1_t ", _pattern("negations").sub(" ", _pattern("questions").sub(" ", text[:LONGEST])))


@lru_cache(REMEMBERED)
def _content(text: str) -> frozenset[str]:
    return features(without_polarity(text))


@lru_cache(REMEMBERED)
def wording(text: str) -> frozenset[str]:
    """Words and pairs of words, of Chinese characters: the text as it stands, in order, negations included."""
    words = re.findall(r"[a-z]+|[一-鿿]|[^\sa-z一-鿿]", text.lower())
    return frozenset(words) | {f"{a} {b}" for a, b in pairwise(words)}


def likeness(a: str, b: str) -> float:
    """How alike two texts are, in what they are about and in their wording."""
    return 0.5 * _overlap(_content(a), _content(b)) + 0.5 * _overlap(wording(a), wording(b))


def _overlap(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / max(math.sqrt(len(a) * len(b)), 1.0)


def nearest(text: str, proposition: Proposition) -> tuple[str, float]:
    """The way of saying or denying it that shares most with the text, and how much that is."""
    asked = _content(text)
    best = max((*proposition.said, *proposition.denied), key=lambda phrase: _overlap(asked, _content(phrase)))
    return best, _overlap(asked, _content(best))


@dataclass(frozen=True)
class Voter:
    """A phrasing of a statement: its signs, whether it denies it, and how far its signs agree with the others'."""

    phrase: str
    signs: Signs
    denies: bool
    weight: float = 1.0

    def says_denied(self, text: str, signs: Signs) -> bool:
        """Whether a text with these signs denies the statement, judged by this phrasing."""
        return (turned(signs, self.signs) != exchanged(text, self.phrase)) != self.denies


@cache
def _relevant(proposition: Proposition) -> tuple[bool, ...]:
    """Which signs tell the statement from its denial: one that explains its phrasings better when left out is not."""
    phrases = (*proposition.said, *proposition.denied)
    pairs = [
        (a, b, likeness(a, b) ** 2, (a in proposition.said) != (b in proposition.said))
        for k, a in enumerate(phrases)
        for b in phrases[:k]
    ]
    used = [True, *(_said_at_all(place, name, phrases) for place, name in enumerate(_antonym_names(), start=1))]

    def agreement() -> float:
        signs = {phrase: _masked(orientation(phrase), used) for phrase in phrases}
        return sum(
            weight for a, b, weight, opposite in pairs if (turned(signs[a], signs[b]) != exchanged(a, b)) == opposite
        )

    best = agreement()
    for place in [place for place in range(len(used) - 1, 0, -1) if used[place]]:
        used[place] = False
        without = agreement()
        used[place] = without <= best
        best = max(best, without)
    return tuple(used)


def _said_at_all(place: int, name: str, phrases: Sequence[str]) -> bool:
    """Whether a word that only adds to a statement has any part in its phrasings: "the same frozen model"."""
    return name not in ADDED or any(orientation(phrase)[place] for phrase in phrases)


def _masked(signs: Signs, used: Sequence[bool]) -> Signs:
    return tuple(sign if use else None for sign, use in zip(signs, used, strict=True))


@cache
def _voters(proposition: Proposition) -> tuple[Voter, ...]:
    """Its phrasings; one whose signs agree with few others votes little, save for texts nearly like it."""
    used = _relevant(proposition)
    voters = [
        Voter(phrase, _masked(orientation(phrase), used), denies)
        for phrases, denies in ((proposition.said, False), (proposition.denied, True))
        for phrase in phrases
    ]
    weighted = []
    for one in voters:
        others = [
            (likeness(one.phrase, other.phrase) ** 2, one.says_denied(other.phrase, other.signs) == other.denies)
            for other in voters
            if other is not one
        ]
        agree = sum(weight for weight, same in others if same) / max(sum(weight for weight, _ in others), 1e-9)
        weight = max(2 * agree - 1, 0.05)
        weighted.append(Voter(one.phrase, one.signs, one.denies, weight))
    return tuple(weighted)


def denial(text: str, proposition: Proposition, without: str | None = None) -> float:
    """From −1, the text about this statement makes it, to 1, it says the opposite; near 0 its phrasings do not agree.

    Leave out `without`, a phrasing, to try the others on it.
    """
    signs = _masked(orientation(text), _relevant(proposition))
    votes = total = 0.0
    for voter in _voters(proposition):
        if voter.phrase == without:
            continue
        certain = voter.phrase == text
        denied = voter.denies if certain else voter.says_denied(text, signs)
        alike = likeness(text, voter.phrase)
        weight = 100.0 if certain else voter.weight * alike**SHARPNESS
        if alike >= SAME:  # nearly the same words: its own vote decides
            weight = max(weight, alike) * DECISIVE
        votes += weight if denied else -weight
        total += weight
    return votes / total if total else 0.0


def denies(text: str, proposition: Proposition, without: str | None = None) -> bool:
    """Whether a text about this statement says its opposite."""
    return denial(text, proposition, without) > 0


def verdict_of(text: str, proposition: Proposition) -> str:
    """Whether what the text says holds, the text being about this proposition."""
    return _OPPOSITE[proposition.verdict] if denies(text, proposition) else proposition.verdict


def statement(text: str) -> Proposition | None:
    """The statement that a claim makes or denies, if it is one we know."""
    guesses = load("claims").guesses(without_polarity(text))
    if not guesses or guesses[0].name == OTHER:
        return None
    first, second = guesses[:2]
    proposition = propositions()[first.name]
    alike = nearest(text, proposition)[1]
    sure = first.probability >= SURE and alike >= ALIKE
    ahead = first.probability >= LEAD * second.probability and alike >= CLOSE
    return proposition if sure or (ahead and first.probability >= LIKELY) else None


def clearly_about(text: str, proposition: Proposition) -> bool:
    """Whether a phrasing is near enough to the text to say whether it makes the statement or denies it."""
    return max(likeness(text, phrase) for phrase in (*proposition.said, *proposition.denied)) >= NEAR


def reading_of(text: str, proposition: Proposition, lang: str) -> str:
    """How the claim was understood: the phrasing in that language that says the same and shares most with it."""
    phrases = proposition.denied if denies(text, proposition) else proposition.said
    return _nearest_in(phrases, text, lang)


def said_in(proposition: Proposition, text: str, lang: str) -> str:
    """The statement itself, as it is said in that language most like the text."""
    return _nearest_in(proposition.said, text, lang)


def _nearest_in(phrases: Sequence[str], text: str, lang: str) -> str:
    same = [phrase for phrase in phrases if bool(_CHINESE.search(phrase)) == (lang == "zh")]
    return max(same or phrases, key=lambda phrase: likeness(text, phrase))
