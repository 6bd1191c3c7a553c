"""Which point a question asks for: a narrow question that has a short answer of its own.

Three things are weighed: the shipped model's likelihood, how near the question is to the point's own phrasings (words,
pieces of words and what is asked, each by how rare it is), and how likely its topic is. Within a dialogue the question
is read by itself and after what was spoken of.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

from mingce.explain.question.classifier import OTHER, Guess, load
from mingce.explain.question.features import features, wide_features
from mingce.explain.question.subject import FEW_FEATURES, by_sentences, topics_of
from mingce.explain.topic import POINT, TOPICS

CANDIDATES, NEAREST = 48, 3
"""So many points by the model's likelihood are compared phrasing by phrasing; so many of their phrasings count."""
MODEL, LIKENESS, TOPIC, FLOOR = 1.2, 4.5, 1.1, 0.01
"""How the logs of the model's and the topic's likelihood and the likeness weigh, and the least of a topic."""
PLAIN = 0.3
"""The likeness that is assumed of what is none of ours, and of a topic in general."""
AT_HAND, FIRST, GENERAL = 0.8, 0.7, 0.7
"""What is added for a topic at hand, for the first of them, and for the general point where it is asked what it is."""
ELLIPTIC, REFERRING = 3.5, 1.8
"""How many times that is where the question names nothing of the field itself (so much less is it none of ours), and
where it refers to what was said."""
STRANGE = 0.2
"""Of a short question within a dialogue so many words may be strange."""
CLOSE = 0.45
"""How near to a phrasing a question is that names no subject."""
BROAD, FEWEST = 1.5, 3
"""What a topic in general loses where the question is neither what it is nor just its name, of so many features."""
LIGHT = frozenset({
    "positive", "rise", "fall", "sum", "mean", "before", "after", "first", "zero", "definition", "rough", "input",
    "output", "suffice", "subtract", "target", "contain", "token", "sample", "response", "length", "all_same", "index",
    "memory", "update", "expectation", "repeat", "precision", "seed", "align", "raw", "forward", "backward", "move",
    "other_field",
})  # fmt: skip
"""Terms that name no subject of their own."""
WIDE = frozenset({"framework", "ppo", "rlhf"})
"""Terms that every subject has to do with: within a dialogue they name none."""
AT_LARGE = frozenset({"optimizer", "lora", "inference", "sft"})
"""Terms of machine learning at large: how such a thing works by itself is none of ours."""
OUTSIDE, CLEARLY_OUTSIDE, INSIDE = 0.45, 0.8, 0.07
"""From where on a question is none of ours by its points, if its topics do not speak against that or if they do; and
below which they do."""
LEAN, AFTER = 0.5, 0.8
"""How much of a short question's likelihood is read with its context, and how much a likeness with it counts."""
REMEMBERED = 20_000
_REFERS = re.compile(
    r"^\W*(?:那|所以|so\b|and\b|but\b|then\b|what about\b)|呢\W*$|它|这|其|"
    r"\b(?:it|its|they|them|this|that|those|both)\b",
    re.IGNORECASE,
)
_BY_ITSELF = re.compile(
    r"^\W*(?:什么是|怎么(?:部署|微调|安装|用))\s*[\w.-]+\W*$|怎么工作|的原理\W*$|教程|"
    r"^\W*what is [\w.-]+\W*$|\bhow does [\w .-]+ work\b|\bhow do i (?:deploy|fine-?tune|install)\b",
    re.IGNORECASE,
)
_LARGE = re.compile(r"dropout|batch ?norm|layer ?norm|\btransformers?\b", re.IGNORECASE)
_DEFINES = re.compile(
    r"是什么(?!原因)|什么是|啥叫|是啥|什么叫|什么意思|\bwhat(?:'s| is| are| does)\b.{0,40}(?:\?|$|mean)|"
    r"\bmeaning of\b|\bdefine\b|^\W*explain\b|^\W*(?:解释|讲讲|介绍)",
    re.IGNORECASE,
)


def guess_points(question: str, at_hand: Collection[str] = (), context: str = "") -> list[Guess]:
    """The likeliest points (`topic@name`) and OTHER, the likeliest first; none if nothing of the question is known.

    Points of the topics `at_hand` are likelier, most so those of the first.
    """
    leans = bool(context) and len(features(question)) <= FEW_FEATURES
    own = {guess.name: guess.probability for guess in by_sentences("points", question)}
    if leans:
        for guess in load("points").guesses(f"{context} {question}"):
            own[guess.name] = (1 - LEAN) * own.get(guess.name, 0.0) + LEAN * guess.probability
    if not own:
        return []
    topics = {guess.name: guess.probability for guess in topics_of(question)}
    elliptic = leans and not subjects(question) - WIDE
    weight = ELLIPTIC if elliptic else REFERRING if leans and _REFERS.search(question) else 1.0
    bonus = {topic: weight * (AT_HAND + (FIRST if place == 0 else 0.0)) for place, topic in enumerate(at_hand)}
    bonus[OTHER] = -ELLIPTIC if leans and strangeness(question) <= STRANGE else 0.0
    near = [name for name in own if name.partition(POINT)[0] in bonus] if leans else []
    best = sorted(own, key=lambda name: -own[name])[:CANDIDATES]
    asked, joined = _vector(question), _vector(f"{context} {question}") if leans else {}
    general = GENERAL if defines(question) else 0.0
    broad = 0.0 if general or len(features(question)) <= FEWEST else -BROAD
    scores = {}
    for name in dict.fromkeys([*best, *near, OTHER]):
        topic, _, key = name.partition(POINT)
        nearness = max(likeness(name, asked), AFTER * likeness(name, joined) if joined else 0.0)
        score = MODEL * math.log(own.get(name, 0.0) + 1e-6) + LIKENESS * nearness
        score += TOPIC * math.log(topics.get(topic, 0.0) + FLOOR) + bonus.get(topic, 0.0)
        scores[name] = (
            score + (general if not key or key.endswith("what") else 0.0) + (0.0 if key or name == OTHER else broad)
        )
    top = max(scores.values())
    shares = {name: math.exp(score - top) for name, score in scores.items()}
    total = math.fsum(shares.values())
    return sorted((Guess(name, share / total) for name, share in shares.items()), key=lambda guess: -guess.probability)


def defines(question: str) -> bool:
    """Whether it is asked what something is."""
    return _DEFINES.search(question) is not None


def subjects(question: str) -> set[str]:
    """The field's terms in a question that name a subject."""
    return {name[1:] for name in wide_features(question) if name.startswith("#")} - LIGHT


def foreign(question: str, guesses: Sequence[Guess]) -> bool:
    """Whether a question by itself names no subject of ours and is near to no phrasing of its likeliest point."""
    best = next((guess.name for guess in guesses if guess.name != OTHER), "")
    if subjects(question) <= AT_LARGE and _BY_ITSELF.search(question):
        return bool(subjects(question)) or _LARGE.search(question) is not None
    return not subjects(question) and (not best or likeness(best, _vector(question)) < CLOSE)


def strangeness(question: str) -> float:
    """What share of the words, or pairs of Chinese characters, that are no fillers none of our questions has."""
    words = [name for name in features(question) if name[0] in "wz"]
    return sum(name not in load("topics").rows for name in words) / max(len(words), 1)


def likeness(name: str, asked: Mapping[int, float]) -> float:
    """How near a question's vector is to a point's phrasings, the nearest few of them."""
    topic, _, key = name.partition(POINT)
    point = TOPICS[topic].points.get(f"{POINT}{key}") if topic in TOPICS else None
    if point is None:
        return PLAIN
    near = sorted((alike(asked, _vector(phrase)) for asked_in in point.asked for phrase in asked_in), reverse=True)
    return near[0] / 2 + sum(near[:NEAREST]) / NEAREST / 2 if near else 0.0


def alike(a: Mapping[int, float], b: Mapping[int, float]) -> float:
    """The cosine of two vectors."""
    small, large = (a, b) if len(a) < len(b) else (b, a)
    return sum(x * large[place] for place, x in small.items() if place in large)


@lru_cache(REMEMBERED)
def _vector(text: str) -> dict[int, float]:
    return load("points").vector(text)
