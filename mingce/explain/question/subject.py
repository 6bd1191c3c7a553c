"""Which topic a question is about, as the shipped model tells it: whole, and sentence by sentence where it is long.

So is told which point of a topic it asks for, a narrower question that has a short answer of its own.
"""

from __future__ import annotations

import re

from mingce.explain.question.classifier import OTHER, Guess, load
from mingce.explain.question.features import features

ACCEPTED, NEAR = 0.20, 0.08
CLEAR, LEAN = 0.35, 0.4
"""From where on a question needs no context, and how much of it the context then decides."""
SHORTEST, MOST_SENTENCES, FEW_FEATURES = 5, 40, 14
WARY, ALIEN = 3.0, 12.0
"""How much likelier it is taken that a question is none of ours: to answer another matter is worse than to
decline; and where it has a word of another field."""
_SENTENCES = re.compile(r"[。？！；?!;\n]+|\.\s+")


def guess_topics(question: str, context: str = "") -> list[Guess]:
    """All topics and OTHER, the likeliest first; a question that is not clear by itself is read after its context."""
    guesses = topics_of(question)
    if not context or (guesses and guesses[0].probability >= CLEAR):
        return guesses
    shares = {guess.name: LEAN * guess.probability for guess in topics_of(f"{context} {question}")}
    for guess in guesses:
        shares[guess.name] = shares.get(guess.name, 0.0) + (1 - LEAN) * guess.probability
    return sorted((Guess(name, share) for name, share in shares.items()), key=lambda guess: -guess.probability)


def topics_of(question: str) -> list[Guess]:
    wary = ALIEN if "#other_field" in features(question) else WARY
    shares = {
        guess.name: guess.probability * (wary if guess.name == OTHER else 1.0)
        for guess in by_sentences("topics", question)
    }
    return sorted((Guess(name, share) for name, share in shares.items()), key=lambda guess: -guess.probability)


def by_sentences(name: str, question: str) -> list[Guess]:
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
