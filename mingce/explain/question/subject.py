"""Which topic a question is about, as the shipped model tells it: whole, and sentence by sentence where it is long.

So is told which point of a topic it asks for, a narrower question that has a short answer of its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence

from mingce.explain.question.classifier import OTHER, Guess, load
from mingce.explain.question.features import features
from mingce.explain.topic import POINT

ACCEPTED, NEAR = 0.20, 0.08
CLEAR, LEAN = 0.35, 0.4
"""From where on a question needs no context, and how much of it the context then decides."""
SHORTEST, MOST_SENTENCES, FEW_FEATURES = 5, 40, 14
AT_HAND, OWN, FLOOR = 3.0, 0.65, 0.02
"""How much likelier a point of the topic is that was just spoken of; how much of a point's likelihood is its own, not
its topic's; and the least that counts for a topic."""
GENERAL, FAINT, AHEAD = 2.0, 0.12, 1.25
"""How much likelier the general point of a topic is where it is asked what something is; how likely a point must be
where it is so many times as likely as the next."""
_DEFINES = re.compile(
    r"是什么(?!原因)|什么是|啥叫|是啥|什么叫|什么意思|\bwhat(?:'s| is| are| does)\b.{0,40}(?:\?|$|mean)|"
    r"\bmeaning of\b|\bdefine\b",
    re.IGNORECASE,
)
WARY, ALIEN = 2.0, 12.0
"""How much likelier it is taken that a question is none of ours: to answer another matter is worse than to
decline; and where it has a word of another field."""
_SENTENCES = re.compile(r"[。？！；?!;\n]+|\.\s+")


def guess_topics(question: str, context: str = "") -> list[Guess]:
    """All topics and OTHER, the likeliest first; a question that is not clear by itself is read after its context."""
    guesses = _guess(question)
    if not context or (guesses and guesses[0].probability >= CLEAR):
        return guesses
    shares = {guess.name: LEAN * guess.probability for guess in _guess(f"{context} {question}")}
    for guess in guesses:
        shares[guess.name] = shares.get(guess.name, 0.0) + (1 - LEAN) * guess.probability
    return sorted((Guess(name, share) for name, share in shares.items()), key=lambda guess: -guess.probability)


def guess_points(question: str, at_hand: Collection[str] = (), context: str = "") -> list[Guess]:
    """All points (`topic@name`) and OTHER, the likeliest first.

    The topic's own likelihood counts too; points of the topics at hand are likelier, most so those of the first, and a
    short question is read after its context as well.
    """
    topics = {guess.name: guess.probability for guess in _guess(question)}
    own = {guess.name: guess.probability for guess in _by_sentences("points", question)}
    leans = bool(context) and len(features(question)) <= FEW_FEATURES
    if leans:
        for guess in load("points").guesses(f"{context} {question}"):
            own[guess.name] = (1 - LEAN) * own.get(guess.name, 0.0) + LEAN * guess.probability
    defines = _DEFINES.search(question) is not None
    shares: dict[str, float] = {}
    for name, share in own.items():
        topic = name.partition(POINT)[0]
        near = (AT_HAND if topic in at_hand else 1.0) * (AT_HAND if topic in [*at_hand][:1] else 1.0)
        general = GENERAL if defines and name.endswith((POINT, f"{POINT}what")) else 1.0
        shares[name] = share**OWN * (topics.get(topic, 0.0) + FLOOR) ** (1 - OWN) * near * general
    total = math.fsum(shares.values())
    return sorted((Guess(name, share / total) for name, share in shares.items()), key=lambda guess: -guess.probability)


def sure_point(guesses: Sequence[Guess], topics: Sequence[Guess], least: float) -> Guess | None:
    """The likeliest point if it is likely enough, or clearly ahead and of a topic that is likely too."""
    if not guesses or guesses[0].name == OTHER or guesses[0].name.endswith(POINT):
        return None
    best, second = guesses[0], guesses[1].probability if len(guesses) > 1 else 0.0
    near = {guess.name for guess in topics[:2] if guess.probability >= ACCEPTED}
    ahead = best.probability >= max(FAINT, AHEAD * second) and best.name.partition(POINT)[0] in near
    return best if best.probability >= least or ahead else None


def _guess(question: str) -> list[Guess]:
    wary = ALIEN if "#other_field" in features(question) else WARY
    shares = {
        guess.name: guess.probability * (wary if guess.name == OTHER else 1.0)
        for guess in _by_sentences("topics", question)
    }
    return sorted((Guess(name, share) for name, share in shares.items()), key=lambda guess: -guess.probability)


def _by_sentences(name: str, question: str) -> list[Guess]:
    """A model's guesses of the whole question, and where it has several sentences of each."""
    model = load(name)
    guesses = model.guesses(question)
    sentences = [part for part in _SENTENCES.split(question) if len(part.strip()) >= SHORTEST]
    if len(sentences) < 2 or not guesses:
        return guesses
    parts = [{one.name: one.probability for one in model.guesses(part)} for part in sentences[:MOST_SENTENCES]]

    def share(guess: Guess) -> float:
        best = max((part.get(guess.name, 0.0) for part in parts if part), default=0.0)
        none = min(part.get(OTHER, 1.0) for part in parts)
        return 0.6 * guess.probability + 0.4 * (none if guess.name == OTHER else best)

    return [Guess(guess.name, share(guess)) for guess in guesses]
