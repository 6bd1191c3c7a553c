"""Which topic a question is about, as the shipped model tells it: whole, and sentence by sentence where it is long."""

from __future__ import annotations

import re

from mingce.explain.question.classifier import OTHER, Guess, load
from mingce.explain.question.features import features

ACCEPTED, NEAR = 0.20, 0.08
CLEAR, LEAN = 0.35, 0.4
"""From where on a question needs no context, and how much of it the context then decides."""
SHORTEST = 5
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


def _guess(question: str) -> list[Guess]:
    model = load("topics")
    wary = ALIEN if "#other_field" in features(question) else WARY
    shares = {
        guess.name: guess.probability * (wary if guess.name == OTHER else 1.0) for guess in model.guesses(question)
    }
    sentences = [part for part in _SENTENCES.split(question) if len(part.strip()) >= SHORTEST]
    if len(sentences) > 1 and shares:
        parts = [{guess.name: guess.probability for guess in model.guesses(part)} for part in sentences[:40]]
        for name in shares:
            best = max((part.get(name, 0.0) for part in parts if part), default=0.0)
            shares[name] = 0.6 * shares[name] + 0.4 * (best if name != OTHER else min(p.get(OTHER, 1.0) for p in parts))
    return sorted((Guess(name, share) for name, share in shares.items()), key=lambda guess: -guess.probability)
