"""A subject of the tutor's: the claims of the question judged first, then the topic it is about."""

from __future__ import annotations

import re
from dataclasses import replace

from mingce.base.texts import sentence
from mingce.columns import COLUMNS
from mingce.explain.answer import Answer, Judgement, legible, part_text
from mingce.explain.compose import meaning
from mingce.explain.conversation import Conversation, Turn
from mingce.explain.derive import compare_settings
from mingce.explain.equations import judge_equation
from mingce.explain.question.classifier import OTHER
from mingce.explain.question.judging import claims_in, judgements
from mingce.explain.question.subject import ACCEPTED
from mingce.explain.steps.follow_up import TOPIC_OF, again, key_for
from mingce.explain.steps.numbers import CLEARLY, origin
from mingce.explain.topics import TOPICS

SECOND, FEW, LEAST = 0.18, 6, 0.4
"""From where on a second topic is spoken of too; so many letters beside a quantity's name are no
other subject; how likely a judged statement's topic must be, against the likeliest."""
_OPEN = re.compile(
    r"什么|怎么|怎样|如何|为何|为啥|咋|啥|哪|干嘛|多少|多大|多久|合适|谁|几(?:次|个|种|步|条|遍|轮)|还是(?!要|会|得|需|有|能|没)"
    r"|[,;]\s*(?:is|are|does|do|can|could|should|will|would|how|why|what|who|where) (?!not\b)"
    r"|(?:^|[.!?]\s*)(?:please |so,? |and |but |ok,? |then |well,? |wait,? )*(?:what|how|why|which|who|whom|where|"
    r"explain|give|show|compare|tell|let|describe|list|compute|set|use|try|draw|plot|walk)\b"
    r"|\b(?:what|how|why|which|where|when)\b[^.!]*\?|\bwhat['’]?s\b"
    r"|\b(?:tell|show|explain|know|wonder\w*|ask\w*|see)(?: me| us)? (?:what|how|why|which|whether|if|the)\b",
    re.IGNORECASE,
)
_YES = re.compile(
    r"^(?:Yes(?:, that works)?|No|Right|Half right|是的?|对|不对|成立|不成立|基本对|一半对|没错)[.,:：，。]\s*"
)
_WHETHER = re.compile(
    r"[吗么][？?。\s]*$|([一-鿿])[不没]\1|需不需要|可不可以|是否"
    r"|^\W*(?:so |and |but |then |ok |wait,? )*"
    r"(?:is|are|does|do|did|was|were|can|could|should|will|would|has|have|must)(?:n['’]?t)?\b",
    re.IGNORECASE,
)


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
    if claims or _asks_whether(turn.request.text):
        judged, topics = judgements(
            turn.request.text, legible(talk.rollout), talk.at(turn.places), talk.lang, asked=not claims
        )
        topic = _of_statements(turn, topic, topics)
    if topic == OTHER and not judged:
        return None
    if turn.places and turn.places[0].index in talk.slots():
        talk.token = turn.places[0].index
    if topic == OTHER:
        number = talk.derive(turn.quantities, turn.places[0] if turn.places else None) if turn.quantities else None
        return replace(number or Answer(talk.lang, "", choices=talk.near(turn)), judgements=tuple(judged))
    answer = talk.tell(topic, key_for(talk, turn, topic))
    if turn.request.supposes and talk.rollout.settings != turn.earlier.settings:
        change = compare_settings(turn.earlier, talk.rollout, "advantages", talk.lang)
        answer = replace(answer, tables=(*change.tables, *answer.tables))
    if judged:
        answer = replace(answer, text=_without_yes(answer.text))
    return _with_second(talk, turn, replace(answer, judgements=tuple(judged)))


def _without_yes(text: str) -> str:
    """A topic's words without the yes or no they begin with: the claim has its verdict already."""
    rest = _YES.sub("", text, count=1)
    return rest[:1].upper() + rest[1:]


def stated(talk: Conversation, turn: Turn) -> Answer | None:
    """A claim that is decided by structure: it is judged before anything in it is taken for a question for a number."""
    request = turn.request
    if request.columns or len(turn.scalars) > 1 or not (_claims(turn) or _asks_whether(request.text)):
        return None
    decided = any(one.finding for one in claims_in(request.text))
    formula = turn.places and _claims(turn) and judge_equation(request.text, talk.rollout, talk.lang) is not None
    return subject(talk, turn) if decided or formula else None


def _claims(turn: Turn) -> bool:
    return "claim" in turn.wants or asserts(turn.request.text)


def _asks_whether(text: str) -> bool:
    """Whether it is a question for yes or no."""
    return _WHETHER.search(text) is not None and not _OPEN.search(text)


def asserts(text: str) -> bool:
    """Whether a text states something: it asks neither what nor whether."""
    return not (_OPEN.search(text) or _WHETHER.search(text) or re.search(r"[?？呢]", text))


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
