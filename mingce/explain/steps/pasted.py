"""What is pasted or asked to be done: code, a prompt with its response, saving the dialogue."""

from __future__ import annotations

import re
from dataclasses import replace

from mingce.base.texts import named, texts
from mingce.explain.answer import Answer, legible, part_text
from mingce.explain.compose import account_of, with_definition
from mingce.explain.conversation import Conversation, Turn
from mingce.explain.equations import judge_equation
from mingce.explain.question.classifier import OTHER
from mingce.explain.question.mood import asserts
from mingce.explain.question.subject import guess_topics
from mingce.explain.snippets import bugs_of, has_bug, is_explained, snippet_answer
from mingce.explain.snippets.reading import is_program, read_snippet
from mingce.explain.topic import POINT
from mingce.explain.topics import TOPICS

LONGEST_QUOTE, CLEARLY, LIKELY, LONG_STATEMENT = 80, 0.5, 0.25, 18
_PROSE = re.compile(
    r"[一-鿿]{3}|\b(?:is|why|what|how|review|correct|right|missing|walk|when|does|should)\b", re.IGNORECASE
)
_CODE = re.compile(r"[\w\])]\s*[-+*/]?=\s*\S|^\s*(?:for|if|return|def|with|import)\b.*:?\s*$")
_PROGRAM = re.compile(r"\n|\b(?:torch|np|numpy|F)\.\w")
_ASKS_HOW = re.compile(r"怎么|怎样|如何|哪|\bhow\b|\bwhere\b|\bcan\b.*\?", re.IGNORECASE)


def save(talk: Conversation, turn: Turn) -> Answer | None:
    """The dialogue is to be saved, if that is what is plainly asked."""
    if "save" not in turn.wants or [guess.name for guess in turn.guesses[:1]] != ["save_dialogue"]:
        return None
    answer = talk.tell("save_dialogue", talk.level)
    return answer if _ASKS_HOW.search(turn.request.text) else replace(answer, action="save")


def code(talk: Conversation, turn: Turn) -> Answer | None:
    """Pasted code and formulas, line by line."""
    if len(turn.scalars) > 1 and not is_program(turn.request.text):  # `ratio = 0.7, A = −2` are numbers
        return None
    text = turn.request.text.strip()
    verdict = None if _PROGRAM.search(text) else judge_equation(text, talk.rollout, talk.lang)
    hidden = verdict is None or verdict.status != "wrong"  # the numbers may be right and the gradient cut off
    if verdict is not None and ("claim" in turn.wants or verdict.status != "right") and not (hidden and has_bug(text)):
        return None  # one equation, claimed or not right: it is judged
    if _told_of(turn.request.text):
        return None
    answer = snippet_answer(turn.request.text, legible(talk.rollout), talk.lang)
    if answer is None:
        return None
    prose = "\n".join(line for line in text.splitlines() if not _CODE.search(line))
    topics = [guess.name for guess in guess_topics(prose)[:1] if guess.probability >= CLEARLY] if prose.strip() else []
    wrong = has_bug(turn.request.text)
    about = _PROSE.search(prose or text) and not wrong and not is_explained(turn.request.text)
    found = [one for one in turn.points[:1] if one.probability >= LIKELY and about]
    topic, mark, name = found[0].name.partition(POINT) if found else (OTHER, "", "")
    if name:
        talk.mark(topic, mark + name)
        said = part_text(TOPICS[topic], legible(talk.rollout), talk.at(), mark + name, talk.lang)
        answer = replace(answer, text=f"{said}\n\n{answer.text}")
    elif topics and not wrong:
        answer = with_definition(answer, topics[0], talk.lang)
    talk.code = turn.request.text
    _keep_subject(talk, bugs_of(talk.code))
    return replace(answer, choices=answer.choices or talk.near(turn))


def _keep_subject(talk: Conversation, bugs: list[str]) -> None:
    """What is talked of after code with a mistake: the topic of the first one."""
    if bugs:
        said = named(texts("snippets", talk.lang)["line_bugs"])[bugs[0]]
        topic = next((one.name for one in guess_topics(said) if one.name != OTHER), None)
        talk.topic, talk.quantity, talk.key = topic, None, talk.level


def _told_of(text: str) -> bool:
    """Whether a line of code without a mistake only stands in a statement, which is to be judged."""
    snippet = None if "\n" in text.strip() or has_bug(text) else read_snippet(text)
    if snippet is None or snippet.fenced or len(snippet.question) < LONG_STATEMENT:
        return False
    return asserts(snippet.question) and _CODE.search(snippet.question) is None


def pair(talk: Conversation, turn: Turn) -> Answer | None:
    """A pair of the person's own: the example's if it is that, scored if there is a model, else what is missing."""
    asked = turn.request.pair
    if asked is None or turn.request.columns or asked == (talk.rollout.prompt, talk.rollout.response):
        return None
    if talk.scorer is None:
        return talk.say("tutor.pair_lacks", prompt=_short(asked[0]), response=_short(asked[1]))
    talk.remember()
    talk.rollout, talk.token = talk.scorer(*asked), None
    return talk.as_number("advantages", account_of(legible(talk.rollout), talk.lang))


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]} …"
