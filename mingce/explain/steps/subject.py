"""A subject of the tutor's: the claims of the question judged first, then the topic it is about."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

from mingce.base.texts import sentence
from mingce.columns import COLUMNS
from mingce.explain.answer import Answer, Judgement, legible, part_text
from mingce.explain.compose import meaning
from mingce.explain.conversation import Conversation, Turn
from mingce.explain.derive import compare_settings
from mingce.explain.equations import judge_equation
from mingce.explain.openings import without_verdict
from mingce.explain.question.classifier import OTHER
from mingce.explain.question.features import features
from mingce.explain.question.judging import claims_in, judgements
from mingce.explain.question.mood import asks_whether, asserts
from mingce.explain.question.subject import ACCEPTED, AHEAD, FAINT, FEW_FEATURES, guess_points, guess_topics, sure_point
from mingce.explain.steps.follow_up import again, key_for
from mingce.explain.steps.numbers import CLEARLY, origin
from mingce.explain.topic import POINT
from mingce.explain.topics import TOPIC_OF, TOPICS

SURE_POINT, POINTED, CERTAIN = 0.3, 0.06, 0.45
"""From where on a point answers a question, where it opens the answer about its topic, and where it does even if the
question seems none of ours."""
SLIGHT, SURE_TOPIC = 0.02, 0.7
"""How likely a point of the subject at hand must be where the question refers to it; and another topic, to be meant
all the same."""
_REFERS = re.compile(
    r"^\W*(?:那|所以|so\b|and\b|but\b|then\b)|呢\W*$|它|这|其|\b(?:it|its|they|them|this|that|those|both)\b",
    re.IGNORECASE,
)
_SPECIFIC = frozenset({
    "child", "lost", "analogy", "draw", "english", "chinese", "example", "another", "proof", "summary", "how_much",
    "save",
})  # fmt: skip
_OTHER_PARTS = frozenset({"proof", "analogy", "draw", "another", "summary"})
SECOND, FEW, LEAST = 0.18, 6, 0.4
"""From where on a second topic is spoken of too; so many letters beside a quantity's name are no
other subject; how likely a judged statement's topic must be, against the likeliest."""


def point(talk: Conversation, turn: Turn) -> Answer | None:
    """A narrower question that has an answer of its own, where nothing is claimed and no number asked for."""
    request = turn.request
    judges = "claim" in turn.wants or judge_equation(request.text, talk.rollout, talk.lang) is not None
    counted = turn.places and ("how_much" in turn.wants or "why" not in turn.wants)
    if judges or counted or request.changes or turn.scalars or request.level or asserts(request.text):
        return None
    found = None if turn.wants & _OTHER_PARTS else _point(talk, turn, SURE_POINT)
    if found is not None and asks_whether(request.text):
        return subject(talk, turn)  # with its verdict
    return None if found is None else _with_second(talk, turn, talk.tell(*found))


def near_point(talk: Conversation, turn: Turn) -> Answer | None:
    """A short question within a dialogue: the nearest point of the subject at hand, or of a related one."""
    request, few = turn.request, features(turn.request.subject)
    placed = turn.places and "why" not in turn.wants
    specific = turn.wants & _SPECIFIC or request.changes or placed or turn.scalars or request.deeper
    if not turn.at_hand or specific or not few or len(few) > FEW_FEATURES or talk.level != "engineer":
        return None
    if "claim" in turn.wants and judgements(request.text, legible(talk.rollout), talk.at(), talk.lang)[0]:
        return None
    refers = _REFERS.search(request.subject) is not None
    if _about_another(request.subject, turn.at_hand, SURE_TOPIC if refers else CLEARLY):
        return None
    near = [(guess.probability, *_parts(guess.name)) for guess in turn.points]
    fresh = [
        (likely, topic, key)
        for likely, topic, key in near
        if topic in turn.at_hand and key != POINT and not talk.was_told(topic, key)
    ]
    if not fresh or fresh[0][0] < (SLIGHT if refers else FAINT / 2):
        return None
    return talk.tell(*fresh[0][1:])


def _about_another(question: str, at_hand: Collection[str], sure: float) -> bool:
    """Whether a question by itself is clearly about something else than what is at hand."""
    topics, points = guess_topics(question)[:1], guess_points(question)[:1]
    if topics and topics[0].name not in (OTHER, *at_hand) and topics[0].probability >= sure:
        return True
    return bool(points) and _parts(points[0].name)[0] not in (OTHER, *at_hand) and points[0].probability >= SURE_POINT


def _point(talk: Conversation, turn: Turn, least: float) -> tuple[str, str] | None:
    """The topic and key of the likeliest point that is likely enough and was not told yet."""
    untold = [guess for guess in turn.points if not talk.was_told(*_parts(guess.name))]
    guess = sure_point(untold, turn.guesses, least)
    if guess is None or talk.level != "engineer":
        return None
    if turn.topic == OTHER and guess.probability < CERTAIN:
        return None  # more likely none of ours
    return _parts(guess.name)


def _point_of(talk: Conversation, turn: Turn, of: str) -> tuple[str, str] | None:
    """The point that opens what is said about a topic: its likeliest one, if it stands out among the topic's own."""
    own = [guess for guess in turn.points if guess.name.startswith(f"{of}{POINT}") and not guess.name.endswith(POINT)]
    fresh = [guess for guess in own if not talk.was_told(*_parts(guess.name))]
    if not fresh or talk.level != "engineer" or fresh[0].probability < POINTED:
        return None
    ahead = len(fresh) < 2 or fresh[0].probability >= AHEAD * fresh[1].probability
    return _parts(fresh[0].name) if ahead else None


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
    topic = _topic(turn)
    equation = judge_equation(turn.request.text, talk.rollout, talk.lang)
    claims = _claims(turn) or equation is not None
    if claims or asks_whether(turn.request.text):
        judged, topics = judgements(
            turn.request.text, legible(talk.rollout), talk.at(turn.places), talk.lang, asked=not claims
        )
        pointed = _point(talk, turn, SURE_POINT)
        topic = pointed[0] if pointed else _of_statements(turn, topic, topics)
    if topic == OTHER and not judged:
        return None
    if turn.places and turn.places[0].index in talk.slots():
        talk.token = turn.places[0].index
    if topic == OTHER:
        number = talk.derive(turn.quantities, turn.places[0] if turn.places else None) if turn.quantities else None
        return replace(number or Answer(talk.lang, "", choices=talk.near(turn)), judgements=tuple(judged))
    narrow = None if turn.wants & _OTHER_PARTS or turn.request.level else _point_of(talk, turn, topic)
    answer = talk.tell(*(narrow or (topic, key_for(talk, turn, topic))))
    if turn.request.supposes and talk.rollout.settings != turn.earlier.settings:
        change = compare_settings(turn.earlier, talk.rollout, "advantages", talk.lang)
        answer = replace(answer, tables=(*change.tables, *answer.tables))
    if judged:
        answer = replace(answer, text=without_verdict(answer.text))  # the claim has its own
    return _with_second(talk, turn, replace(answer, judgements=tuple(judged)))


def stated(talk: Conversation, turn: Turn) -> Answer | None:
    """A claim that is decided by structure: it is judged before anything in it is taken for a question for a number."""
    request = turn.request
    if request.columns or len(turn.scalars) > 1 or not (_claims(turn) or asks_whether(request.text)):
        return None
    decided = any(one.finding for one in claims_in(request.text))
    formula = turn.places and _claims(turn) and judge_equation(request.text, talk.rollout, talk.lang) is not None
    return subject(talk, turn) if decided or formula else None


def _claims(turn: Turn) -> bool:
    return "claim" in turn.wants or asserts(turn.request.text)


def _topic(turn: Turn) -> str:
    """The likeliest topic if it is likely enough."""
    for guess in turn.guesses[:2]:
        if guess.name == "save_dialogue" and "save" not in turn.wants:
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


def _with_second(talk: Conversation, turn: Turn, answer: Answer) -> Answer:
    """And, where the question is nearly as much about another topic, what that is in a sentence."""
    for guess in turn.guesses[:3]:
        other = guess.name not in (answer.topic, OTHER, "save_dialogue") and guess.probability >= SECOND
        if other and "definition" in TOPICS[guess.name].parts and not talk.mark(guess.name, "definition"):
            definition = part_text(TOPICS[guess.name], legible(talk.rollout), talk.at(), "definition", talk.lang)
            also = sentence("tutor.also", talk.lang, title=talk.title(guess.name), definition=definition)
            return replace(answer, text=f"{answer.text}\n\n{also}")
    return answer


def last_resort(talk: Conversation, turn: Turn) -> Answer | None:
    """Nothing was understood: the last subject if there is one, the origin of a number, or what a quantity is."""
    outside = turn.topic == OTHER and bool(turn.guesses)
    if talk.topic is not None or talk.quantity is not None:
        unsure = not turn.guesses or turn.guesses[0].name != OTHER or turn.guesses[0].probability < CLEARLY
        if unsure and (turn.wants - {"what_if"} or turn.places or turn.request.changes or len(turn.request.rest) < 12):
            return again(talk, replace(turn, request=replace(turn.request, rest="")))
    answer = origin(talk, turn, at_last=True)
    names = [name for name in turn.quantities if name in COLUMNS]
    if answer is None and names and (turn.places or not outside):
        answer = talk.as_number(names[0], meaning(legible(talk.rollout), names[:2], talk.at(turn.places), talk.lang))
    return answer
