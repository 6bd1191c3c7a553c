"""A subject of the tutor's: the claims of the question judged first, then the topic it is about."""

from __future__ import annotations

import re
from dataclasses import replace

from mingce.base.texts import sentence
from mingce.columns import COLUMNS
from mingce.explain.answer import Answer, Judgement, legible, part_text
from mingce.explain.compose import joined, meaning
from mingce.explain.conversation import Conversation, Turn
from mingce.explain.derive import compare_settings
from mingce.explain.equations import judge_equation
from mingce.explain.openings import without_verdict
from mingce.explain.question.classifier import OTHER, Guess
from mingce.explain.question.features import features
from mingce.explain.question.judging import claims_in, judgements
from mingce.explain.question.mood import asks_whether, asserts
from mingce.explain.question.points import judged_by_points
from mingce.explain.question.quantities import read_statistics
from mingce.explain.question.retrieval import defines
from mingce.explain.question.subject import ACCEPTED
from mingce.explain.steps.follow_up import again, key_for
from mingce.explain.steps.numbers import CLEARLY, before_and_after, in_words, of_method, origin, usual
from mingce.explain.topic import POINT
from mingce.explain.topics import TOPIC_OF, TOPICS

LEAST_POINT, CERTAIN, NEARLY, FURTHER = 0.05, 0.6, 0.45, 2
"""From where on a point leads, where it stands alone, and where others follow it, at most so many."""
DOUBTED = 0.5
"""Within a dialogue, below which one more is told."""
UNSURE = 0.25
"""Below which the answer says that it may not be what was asked."""
SURE = 0.4
"""From where on a point leads though what is claimed belongs to another topic."""
_AGAIN = frozenset({"child", "lost", "analogy", "english", "chinese", "example", "another", "code", "save"})
_PARTS = frozenset({"why", "pitfall", "limits"})
_OTHER_PARTS = frozenset({"proof", "analogy", "draw", "another", "summary"})
_BETWEEN = {
    frozenset({"deltas", "advantages"}): "a_not_delta", frozenset({"returns", "advantages"}): "advantage_from_returns",
    frozenset({"returns", "values"}): "returns_values_index",
}  # fmt: skip
"""What two quantities have to do with each other."""
_FORMULA = re.compile(r"`|[A-Za-z]_[a-z{]|[=·Σ]")
FEW, LEAST, SHORTEST = 6, 0.4, 12
"""So many letters beside a quantity's name are no other subject; how likely a judged statement's topic must be, against
the likeliest."""


def point(talk: Conversation, turn: Turn) -> Answer | None:
    """A question that has an answer of its own, where no number is asked for: the point nearest to it leads."""
    request = turn.request
    asked = "how_much" in turn.wants and "compare" not in turn.wants and not usual(request.subject)
    numbered = turn.places or asked or request.decimals
    why = "why" in turn.wants
    plain = (
        _sure(turn) and not request.decimals and not request.vague and (why or not asked or of_method(request.subject))
    )
    counted = request.deeper or (bool((numbered and turn.quantities) or turn.places) and not plain)
    changes = request.changes and not turn.wants & {"why", "compare"}
    if counted or changes or request.columns or len(turn.scalars) > 1 or request.level or not features(request.subject):
        return None
    if turn.quantities and not turn.wants & {"why", "compare"} and read_statistics(request.subject):
        return None
    if turn.wants & _OTHER_PARTS or (turn.at_hand and turn.wants & _AGAIN and request.vague):
        return None
    if turn.at_hand and talk.quantity is None and turn.wants & _PARTS and request.vague and not _sure(turn):
        return None  # the topic at hand has a part for that
    if in_words(turn.request.text) or ("lost" in turn.wants and not turn.at_hand):
        return None  # the subject itself, plainly
    found = leading(talk, turn)
    if not found:
        return None
    if _claims(turn) or asks_whether(request.text):
        return subject(talk, turn)  # with its verdict
    return tell_points(talk, turn, found)


def supposed(talk: Conversation, turn: Turn) -> Answer | None:
    """Other numbers are supposed: what they change, before and after, and what is known of such a case."""
    request = turn.request
    if not request.supposed or turn.wants & {"why", "claim", "compare", "proof", "child", "lost"}:
        return None
    if talk.rollout.columns == turn.earlier.columns:
        return None
    known = leading(talk, turn) if talk.quantity is None and not turn.places else []
    answer = before_and_after(talk, turn)
    if not known:
        return answer
    quantity = talk.quantity
    answer = joined([answer, tell_points(talk, turn, known[:1])])
    return answer if quantity is None else talk.as_number(quantity, answer)


def leading(talk: Conversation, turn: Turn) -> list[tuple[str, str]]:
    """The point that is likeliest and was not told yet, and one or two more that are nearly as likely.

    None where the question is none of ours, is of a topic in general, or every point of its subject was told.
    """
    if talk.level != "engineer" or turn.outside:
        return []
    likely = [one for one in turn.points if one.name != OTHER]
    if likely and likely[0].name.endswith(POINT) and not turn.at_hand and defines(turn.request.subject):
        return []
    if likely and _defined_by_topic(turn, likely[0]):
        return []
    fresh = [one for one in likely if not one.name.endswith(POINT) and not talk.was_told(*_parts(one.name))]
    if not fresh or fresh[0].probability < LEAST_POINT:
        return []
    near = [one for one in fresh[1:] if one.probability >= NEARLY * fresh[0].probability]
    further = near[:FURTHER] if fresh[0].probability < CERTAIN else []
    if turn.at_hand:  # within a dialogue less is said: one more, of the same subject
        topic = _parts(fresh[0].name)[0]
        further = [one for one in further if _parts(one.name)[0] == topic][: int(fresh[0].probability < DOUBTED)]
    return [_parts(one.name) for one in [fresh[0], *further]]


def _defined_by_topic(turn: Turn, best: Guess) -> bool:
    """Whether it is asked what the topic itself is, and no point says just that."""
    if best.probability >= CERTAIN or best.name.endswith("what") or not defines(turn.request.subject):
        return False
    clear = bool(turn.guesses) and turn.guesses[0].probability >= CLEARLY
    return clear and len(features(turn.request.subject)) <= FEW


def tell_points(talk: Conversation, turn: Turn, points: list[tuple[str, str]]) -> Answer:
    """The leading point, and what the others add."""
    (topic, key), *others = points
    answer = talk.tell(topic, key, alone=bool(others) or bool(turn.at_hand))
    share = next(guess.probability for guess in turn.points if guess.name == f"{topic}{key}")
    if share < UNSURE and not _claims(turn):
        answer = replace(answer, text=f"{sentence('tutor.nearest', talk.lang)}\n\n{answer.text}")
    for other, its_key in others:
        talk.mark(other, its_key)
        said = without_verdict(part_text(TOPICS[other], legible(talk.rollout), talk.at(), its_key, talk.lang))
        answer = replace(answer, text=f"{answer.text}\n\n{said}")
    return answer


def _parts(name: str) -> tuple[str, str]:
    """`whitening@sign` as a topic and the key of its point."""
    topic, mark, rest = name.partition(POINT)
    return topic, mark + rest


def quantity_alone(talk: Conversation, turn: Turn) -> Answer | None:
    """What is V? A question that names a quantity and nothing else."""
    names = [name for name in turn.quantities if name in COLUMNS]
    clear = bool(turn.guesses) and turn.guesses[0].probability >= CLEARLY
    if len(names) != 1 or clear or turn.topic == OTHER or turn.wants & {"claim", "why", "compare"}:
        return None
    if len(re.sub(r"[\W\d_]+", "", turn.request.rest)) > len(names[0]) + FEW:
        return None
    if turn.wants & {"child", "lost", "analogy", "proof", "pitfall", "limits", "summary"} and names[0] in TOPIC_OF:
        return talk.tell(TOPIC_OF[names[0]], key_for(talk, turn, TOPIC_OF[names[0]]))
    return talk.as_number(names[0], meaning(legible(talk.rollout), names, talk.at(turn.places), talk.lang))


def subject(talk: Conversation, turn: Turn) -> Answer | None:
    """The topic a question is about, and whether what it claims holds."""
    judged: list[Judgement] = []
    topic, found = _topic(turn), [] if "lost" in turn.wants or in_words(turn.request.text) else leading(talk, turn)
    equation = judge_equation(turn.request.text, talk.rollout, talk.lang)
    claims = _claims(turn) or equation is not None
    if claims or asks_whether(turn.request.text):
        judged, topics = judgements(
            turn.request.text, legible(talk.rollout), talk.at(turn.places), talk.lang, asked=not claims
        )
        judged = judged_by_points(turn, judged, asked=not claims)
        found = [one for one in found if one[0] in topics] or found if not topics or _sure(turn) else []
        topic = found[0][0] if found else _of_statements(turn, topic, topics)
    if topic == OTHER and not judged:
        return None
    if turn.places and turn.places[0].index in talk.slots():
        talk.token = turn.places[0].index
    if topic == OTHER:
        number = talk.derive(turn.quantities, turn.places[0] if turn.places else None) if turn.quantities else None
        return replace(number or Answer(talk.lang, "", choices=talk.near(turn)), judgements=tuple(judged))
    sure = any(not one.near for one in judged)
    if not sure and (in_words(turn.request.text) or ("lost" in turn.wants and not turn.at_hand)):
        return _plainly(talk, _BETWEEN.get(frozenset(turn.quantities), topic))
    plain = not turn.wants & _OTHER_PARTS and not turn.request.level and not turn.request.columns
    key = key_for(talk, turn, topic)
    if key == "engineer" and defines(turn.request.subject) and "definition" in TOPICS[topic].parts:
        key = "definition" if not talk.was_told(topic, "definition") else key
    answer = tell_points(talk, turn, found) if found and plain else talk.tell(topic, key)
    if turn.request.supposes and talk.rollout.settings != turn.earlier.settings:
        change = compare_settings(turn.earlier, talk.rollout, "advantages", talk.lang)
        answer = replace(answer, tables=(*change.tables, *answer.tables))
    if judged:
        answer = replace(answer, text=without_verdict(answer.text))  # the claim has its own
    return replace(answer, judgements=tuple(judged))


def _plainly(talk: Conversation, topic: str) -> Answer:
    """A subject that was not understood elsewhere: what it is in a sentence, then as for a child."""
    answer = talk.tell(topic, "child")
    if "definition" not in TOPICS[topic].parts:
        return answer
    definition = part_text(TOPICS[topic], legible(talk.rollout), talk.at(), "definition", talk.lang)
    if _FORMULA.search(definition):
        return answer
    return replace(answer, text=f"{definition}\n\n{answer.text}")


def _sure(turn: Turn) -> bool:
    return bool(turn.points) and turn.points[0].probability >= SURE


def stated(talk: Conversation, turn: Turn) -> Answer | None:
    """A claim that is decided by structure: it is judged before anything in it is taken for a question for a number."""
    request = turn.request
    if turn.scalars and set(turn.scalars) <= set(talk.scalars):
        return None  # other numbers for the last sum
    if request.columns or len(turn.scalars) > 1 or not (_claims(turn) or asks_whether(request.text)):
        return None
    decided = any(one.finding for one in claims_in(request.text))
    formula = turn.places and _claims(turn) and judge_equation(request.text, talk.rollout, talk.lang) is not None
    return subject(talk, turn) if decided or formula else None


def _claims(turn: Turn) -> bool:
    """Whether something is stated; other settings alone are none."""
    if turn.request.vague and turn.request.settings and turn.at_hand:
        return False
    return "claim" in turn.wants or asserts(turn.request.text)


def _topic(turn: Turn) -> str:
    """The likeliest topic if it is likely enough."""
    for guess in turn.guesses[:3] if not turn.outside else ():
        if guess.name == OTHER or (guess.name == "save_dialogue" and "save" not in turn.wants):
            continue  # "why are old log-probs saved" is not about the dialogue
        return guess.name if guess.probability >= ACCEPTED else OTHER
    return OTHER


def _of_statements(turn: Turn, topic: str, topics: list[str]) -> str:
    """The topic of a statement that was judged, where the question by itself is not clear."""
    shares = {guess.name: guess.probability for guess in turn.guesses}
    best = max(topics, key=lambda name: shares.get(name, 0.0), default=OTHER)
    if best == OTHER or shares.get(topic, 0.0) >= CLEARLY:
        return topic
    return best if topic == OTHER or shares.get(best, 0.0) >= LEAST * shares[topic] else topic


def last_resort(talk: Conversation, turn: Turn) -> Answer | None:
    """Nothing was understood: the last subject if there is one, the origin of a number, or what a quantity is."""
    outside, request = turn.outside and bool(turn.guesses), turn.request
    short = turn.wants - {"what_if"} or turn.places or request.changes or len(request.rest) < SHORTEST
    if short and not outside and (talk.topic is not None or talk.quantity is not None):
        return again(talk, replace(turn, request=replace(request, rest="")))
    answer = origin(talk, turn, at_last=True)
    names = [name for name in turn.quantities if name in COLUMNS]
    if answer is None and names and (turn.places or not outside):
        answer = talk.as_number(names[0], meaning(legible(talk.rollout), names[:2], talk.at(turn.places), talk.lang))
    return answer
