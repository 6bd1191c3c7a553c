"""The last subject again: for another token, under other settings, simpler, deeper, drawn, in another language."""

from __future__ import annotations

from dataclasses import replace

from mingce.base.texts import sentence
from mingce.explain.account_texts import LEVELS
from mingce.explain.answer import Answer, example_line, legible, topic_answer
from mingce.explain.chart import bars, clip_curve, credit_map
from mingce.explain.compose import Retelling, part_after
from mingce.explain.conversation import STARTERS, Conversation, Turn
from mingce.explain.derive import compare_settings
from mingce.explain.menu import example_answer
from mingce.explain.patterns import alternatives
from mingce.explain.question.classifier import OTHER
from mingce.explain.question.mood import asks_whether
from mingce.explain.question.quantities import read_statistics, without_quantities
from mingce.explain.steps.consequences import moved_parts, with_consequence
from mingce.explain.steps.thread import retells
from mingce.explain.topic import POINT, Topic
from mingce.explain.topics import TOPICS

FEW = 6
"""So many letters besides a quantity's name are no other subject."""
DRAWN = ("rewards", "values", "deltas", "advantages", "returns")
CLIP = 0.2
_PICTURES = ("analogy", "child")
_CLIPS = frozenset({"ppo_clip", "min_max", "clip_higher", "clip_fraction", "dual_clip"})
_CREDIT = frozenset({
    "a_not_delta", "credit_backward", "gamma_lambda", "gae_variance", "credit_allocations", "excess_sum", "mc_vs_gae",
    "advantage_inputs", "q_v_a", "advantage_from_returns", "bootstrap_delta", "five_quantities",
})  # fmt: skip
_TOLD = frozenset({
    "lost", "child", "analogy", "proof", "why", "code", "pitfall", "limits", "engineer", "summary", "english",
    "chinese",
})  # fmt: skip


def out_of_range(talk: Conversation, turn: Turn) -> Answer | None:
    """A token that is not there, or was not chosen."""
    count = len(talk.rollout.tokens)
    for place in turn.places:
        if all(one.index >= count for one in turn.places):
            return talk.say("tutor.no_token", count=count, last=count - 1, token=place.counted or place.index)
        if place.index < count and place.index not in talk.slots() and (talk.topic is None or turn.request.vague):
            return talk.say("tutor.not_chosen", token=place.index)
    return None


def draw(talk: Conversation, turn: Turn) -> Answer | None:
    """What is spoken of, in the terminal: the clip as a curve, credit as a map, else columns as bars; and a picture."""
    if "draw" not in turn.wants or (turn.topic == OTHER and turn.guesses and not turn.request.vague):
        return None
    rollout = legible(talk.rollout)
    named = [name for name in turn.quantities if name in rollout.columns]
    about = turn.topic if turn.topic in TOPICS and not turn.request.vague else talk.topic
    line, settings = example_line(rollout, talk.at(), talk.lang), rollout.settings
    if about in _CLIPS and not named:
        drawn, key = clip_curve(settings.clip_low or CLIP, settings.clip_high or CLIP), "tutor.curve_of"
        line = ""
    else:
        credit = about in _CREDIT or (about is None and set(named) <= {"advantages"})
        drawn, key = credit_map(rollout) if credit else [], "tutor.map_of"
    if not drawn:
        drawn, key = bars(rollout, named or DRAWN), "tutor.chart_of"
    return Answer(talk.lang, sentence(key, talk.lang), about=line, lines=tuple(drawn), action="draw")


def follow_up(talk: Conversation, turn: Turn) -> Answer | None:
    """The last subject again, if the question names none of its own."""
    spoken = talk.topic is not None or talk.quantity is not None
    if not turn.request.vague and not (spoken and retells(turn)):
        return None
    return again(talk, turn)


def again(talk: Conversation, turn: Turn) -> Answer | None:
    """The last subject as the question wants it now."""
    if talk.topic is None and talk.quantity is None:
        return _nothing_yet(talk, turn)
    if turn.places:
        talk.token = turn.places[0].index
    if "another" in turn.wants and talk.key in _PICTURES and (answer := _another_picture(talk)) is not None:
        return answer
    if "another" in turn.wants:
        talk.another_example()
    if turn.request.supposes and talk.rollout.settings == turn.earlier.settings and not turn.request.columns:
        return talk.derive([talk.quantity or "advantages"], turn.places[0] if turn.places else None)
    if talk.quantity is not None:
        return _number_again(talk, turn)
    moved = turn.request.supposes and talk.rollout.settings != turn.earlier.settings
    if moved and not turn.wants & _TOLD and talk.key.startswith(POINT) and talk.topic is not None:
        told = talk.topic, talk.key  # a point says nothing of the example
        change = _moved(talk, turn, "advantages")
        talk.topic, talk.quantity = told[0], None
        about = example_line(legible(talk.rollout), talk.at(), talk.lang)
        return replace(change, topic=told[0], level=told[1], title=talk.title(told[0]), about=about)
    assert talk.topic is not None
    topic = TOPICS[talk.topic]
    wish = Retelling(turn.wants, turn.request.deeper, talk.key, bool(turn.places or turn.request.changes))
    key = part_after(topic, wish, lambda key: talk.was_told(topic.id, key))
    if key is None and "example" in turn.wants:
        talk.another_example()
        key = part_after(topic, wish, lambda key: talk.was_told(topic.id, key))
    if key is None and "code" in turn.wants and not talk.mark(topic.id, "code"):
        return _only_code(talk, topic)
    if key is None and (pointed := _next_point(talk, turn)) is not None:
        return talk.tell(*pointed)
    if key is None:
        ended = "tutor.all_told" if wish.asks else "tutor.ask_on"
        return talk.say(ended, topic.related, title=talk.title(topic.id))
    answer = talk.tell(topic.id, key)
    if "another" in turn.wants:
        answer = replace(answer, text=f"{sentence('tutor.another_example', talk.lang)}\n\n{answer.text}")
    if moved:
        change = _moved(talk, turn, "advantages")
        talk.topic, talk.quantity = topic.id, None
        said = f"**{change.title}**\n\n{change.text}" if change.title else change.text
        answer = replace(answer, tables=(*change.tables, *answer.tables), text=f"{said}\n\n{answer.text}")
    if turn.wants & {"example", "another"} and not answer.tables:
        answer = replace(answer, tables=example_answer(talk).tables)
    return answer


def _another_picture(talk: Conversation) -> Answer | None:
    """After a comparison with everyday life: the topic's other one."""
    other = next(
        (
            key
            for key in _PICTURES
            if talk.topic and key in {*LEVELS, *TOPICS[talk.topic].parts} and not talk.was_told(talk.topic, key)
        ),
        None,
    )
    return None if other is None or talk.topic is None else talk.tell(talk.topic, other, alone=True)


def _only_code(talk: Conversation, topic: Topic) -> Answer:
    """Where the code of what was told stands, and its formula with the example's numbers."""
    whole = topic_answer(topic, legible(talk.rollout), talk.token, "engineer", talk.lang, [])
    return replace(whole, text=sentence("tutor.code_of", talk.lang, title=whole.title), tables=())


def _next_point(talk: Conversation, turn: Turn) -> tuple[str, str] | None:
    """The likeliest point of the topic at hand that was not told yet."""
    for guess in turn.points:
        topic, mark, name = guess.name.partition(POINT)
        if name and topic in turn.at_hand[:1] and not talk.was_told(topic, mark + name):
            return topic, mark + name
    return None


def _nothing_yet(talk: Conversation, turn: Turn) -> Answer:
    """There is no last subject: the example itself."""
    if turn.places:
        return talk.derive(["advantages"], turn.places[0]) or example_answer(talk)
    if "another" in turn.wants:
        talk.another_example()
        return example_answer(talk)
    if turn.request.supposes and not turn.request.columns:
        return talk.as_number("advantages", compare_settings(turn.earlier, talk.rollout, "advantages", talk.lang))
    if turn.request.changes or "example" in turn.wants:
        return example_answer(talk)
    return talk.say("tutor.what_to_ask", STARTERS)


def other_number(talk: Conversation, turn: Turn) -> Answer | None:
    """After a number: another quantity of the same example, or the same at another token."""
    request = turn.request
    typed = not talk.rollout.has_texts and turn.quantities and "how_much" not in turn.wants
    if (
        asks_whether(request.text)
        or (talk.quantity is None and not typed)
        or turn.wants & _TOLD
        or "compare" in turn.wants
        or request.changes
        or alternatives("requests", "position").search(request.text)
    ):
        return None
    left = len(without_quantities(request.rest).strip())
    if left > FEW or len(turn.quantities) > 1 or not (turn.quantities or turn.places):
        return None
    statistics = read_statistics(request.subject, talk.quantity)
    return talk.derive(
        statistics or turn.quantities or [talk.quantity or "advantages"], turn.places[0] if turn.places else None
    )


def _moved(talk: Conversation, turn: Turn, quantity: str) -> Answer:
    """What another setting changes, for all tokens and for the one that is spoken of, and what follows from it."""
    change = compare_settings(turn.earlier, talk.rollout, quantity, talk.lang)
    change = with_consequence(change, turn.earlier, talk.rollout, talk.lang)
    if talk.token is not None and quantity == "advantages":
        parts = moved_parts(turn.earlier, talk.rollout, talk.token, talk.lang)
        change = replace(change, text=f"{parts}\n\n{change.text}" if parts else change.text)
    return talk.as_number(quantity, change)


def _number_again(talk: Conversation, turn: Turn) -> Answer | None:
    assert talk.quantity is not None
    if turn.request.supposes and talk.rollout.settings != turn.earlier.settings:
        return _moved(talk, turn, talk.quantity)
    if turn.wants & _TOLD or turn.request.deeper:
        topic = turn.at_hand[0] if turn.at_hand else "five_quantities"
        return talk.tell(topic, key_for(talk, turn, topic))
    return talk.derive([talk.quantity], turn.places[0] if turn.places else None) or example_answer(talk)


def key_for(talk: Conversation, turn: Turn, topic: str) -> str:
    """The part or level that is asked of a topic: the first not yet told in this dialogue."""
    wish = Retelling(turn.wants, turn.request.deeper, talk.level, False)
    return part_after(TOPICS[topic], wish, lambda key: talk.was_told(topic, key), first=talk.level) or talk.level
