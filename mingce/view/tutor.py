"""The page's tutor: a question about a rollout answered as `mingce ask` does, a pasted text marked as check-log does.

Both run in a process apart (mingce.view.apart), give JSON, and write no file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

from mingce.base.lang import LANGS
from mingce.base.texts import sentence
from mingce.explain.answer import Answer
from mingce.explain.answer_view import judged_words
from mingce.explain.claims.marking import html, marked
from mingce.explain.conversation import Conversation
from mingce.explain.peer_code import peers_of
from mingce.explain.question.request import read_request
from mingce.explain.topics import TOPICS
from mingce.record.rollout import Rollout
from mingce.view.posted import Turn
from mingce.view.taught import Checked, Choice, CodePlace, Counts, Grid, Judged, Taught

DIALOGUES = 8
"""So many are remembered; the questions of any other are asked again."""
COMMANDS = {"/save": "save", "/plot": "draw"}
"""What a terminal does with them, the page does not."""
_POINTS = re.compile(r"\b(?:this token|here)\b|(?:这一?个? ?|此)(?:token|词|字|处|里)", re.IGNORECASE)
_OF_A_TOPIC = {"claim", "why", "proof", "child"}
"""What is answered by a topic, which is told at the dialogue's token anyway."""
_known: dict[tuple[object, ...], Conversation] = {}


def answer_turn(place: str, rollout: Rollout, lang: str, level: str, turns: Sequence[Turn]) -> bytes:
    """The answer to the last turn, after the earlier ones of the same dialogue; `place` names the rollout."""
    *earlier, turn = turns
    key = (place, lang, level)
    talk = _known.pop((*key, *earlier), None)
    if talk is None:
        talk = Conversation(rollout, lang=lang, level=level)
        for number, one in enumerate(earlier):
            _ask(talk, one, earlier[number - 1] if number else None)
    answer = _ask(talk, turn, earlier[-1] if earlier else None)
    _known[(*key, *turns)] = talk
    while len(_known) > DIALOGUES:
        del _known[next(iter(_known))]
    return _json(_taught(answer, talk.at()))


def _ask(talk: Conversation, turn: Turn, before: Turn | None) -> Answer:
    """A token that the reader walked to is the one spoken of; else the dialogue's stays."""
    if before is None or turn.token != before.token:
        mask = talk.rollout.columns["response_mask"]
        talk.token = turn.token if turn.token < len(mask) and mask[turn.token] else None
    if turn.topic in TOPICS:
        talk.choices = ((turn.topic, ""),)
        return talk.ask("1")
    command = turn.question.strip().split(maxsplit=1)[0]
    if command in COMMANDS:
        return Answer(talk.lang, "", action=COMMANDS[command])
    return talk.ask(_pointed(turn, before))


def _pointed(turn: Turn, before: Turn | None) -> str:
    """The question with the token it points at: by “here”, or by only saying “and now?” in front of another token."""
    question, moved = turn.question, before is not None and turn.token != before.token
    bare = _POINTS.sub(" ", question)
    if (moved or bare != question) and read_request(bare).vague:
        return f"{bare} A_{turn.token}"  # no subject of its own: only the index counts, whatever is spoken of
    pointing = bare != question and not read_request(question).wants & _OF_A_TOPIC
    return f"{question} token {turn.token}" if pointing else question


def _taught(answer: Answer, token: int) -> Taught:
    lang = answer.lang
    return Taught(
        lang=lang,
        title=answer.title,
        judgements=[Judged(one.quote, *judged_words(one, lang)) for one in answer.judgements],
        about=answer.about,
        text=answer.text,
        formula=answer.formula,
        lines=answer.lines,
        tables=[Grid(table.headings, table.rows, table.texts) for table in answer.tables],
        code=[CodePlace(ref.file, ref.line, ref.short) for ref in answer.code],
        peers=_peers(answer),
        choices=[Choice(topic, title) for topic, title in answer.choices],
        token=token,
        action=answer.action,
        declined=answer.declined,
    )


def _peers(answer: Answer) -> str:
    """Where verl computes the same, as in a terminal."""
    peers = [peer for ref in answer.code for peer in peers_of(ref.name)[:1] if peer.package == "verl"]
    if not peers:
        return ""
    names = " · ".join(dict.fromkeys(f"`{peer.short}`" for peer in peers))
    return sentence("tutor.peers", answer.lang, trainer=peers[0].title, names=names)


def check_text(text: str) -> bytes:
    """The text sentence by sentence, with what is right, wrong or not checkable."""
    segments = marked(text)
    counts = Counts(*(sum(one.status == status for one in segments) for status in ("wrong", "right", "unverified")))
    zh, en = (html(segments, lang, sentence("page.checked_title", lang)) for lang in LANGS)
    return _json(Checked(segments, counts, {"zh": zh, "en": en}))


def _json(value: Any) -> bytes:
    def put(item: Any) -> Any:
        if is_dataclass(item) and not isinstance(item, type):
            return asdict(item)
        raise TypeError(f"{type(item).__name__} is not JSON")

    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=put).encode("utf-8", "replace")


JOBS: dict[str, Callable[..., bytes]] = {"ask": answer_turn, "check": check_text}
