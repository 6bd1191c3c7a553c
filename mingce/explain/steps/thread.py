"""The thread of a dialogue: the line of the code pasted before, the same quantity elsewhere, few tokens."""

from __future__ import annotations

import re
from dataclasses import replace

from mingce.base.numbers import number as shown
from mingce.base.texts import named, sentence, texts
from mingce.explain import example
from mingce.explain.answer import Answer, legible
from mingce.explain.conversation import Conversation, Turn
from mingce.explain.derive import name_of
from mingce.explain.patterns import alternatives
from mingce.explain.question.quantities import asked_quantity
from mingce.explain.question.retrieval import WIDE, subjects
from mingce.explain.snippets import bugs_of, line_again
from mingce.explain.sums.lists import count as number_of
from mingce.explain.topic import POINT
from mingce.explain.topics import TOPIC_OF

LONGEST_POINTER, MOST_TOKENS = 120, 6
LOW, HIGH = 0.4, 0.8
"""Values of a small example, from its first token to its last."""
_PADDING = re.compile(r"padding|padded|\bpads?\b|填充", re.IGNORECASE)
_PLAIN_MEAN = re.compile(r"\.mean\(\)|torch\.mean|plain mean|直接平均|直接取?\s*mean", re.IGNORECASE)
_HALF = re.compile(r"\bhalf\b|一半", re.IGNORECASE)
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_FRACTION = re.compile(r"(?<![\d.])(0?\.\d+)(?![\d.])")
_SIZE = re.compile(
    r"(?=.*(?:direction|方向))(?=.*(?:\bsize|scale|magnitude|大小|长度|尺度|倍))", re.IGNORECASE | re.DOTALL
)
_WHY = re.compile(r"为什么|为啥|为何|\bwhy\b", re.IGNORECASE)
_ANY_SIGN = re.compile(
    r"(?:会|能|可能|可以|有没有|有)(?:不会|有|是|出现|为|变成?)*(?:正|负)(?:的|数|值)?|"
    r"\b(?:can|could|ever|any|is it possible)\b[^.?]{0,40}\b(?:positive|negative)\b",
    re.IGNORECASE,
)
_COUNT = re.compile(
    r"([2-6]|[两二三四五六]|\b(?:two|three|four|five|six)\b)\s*(?:个|-)?\s*(?:tokens?|词|字)", re.IGNORECASE
)
OF_CREDIT = frozenset({
    "a_not_delta", "credit_backward", "gamma_lambda", "gae_variance", "excess_sum", "mc_vs_gae", "five_quantities",
    "advantage_inputs", "advantage_from_returns", "bootstrap_delta", "critic_td_error", "returns_raw", "next_value",
})  # fmt: skip


def aside(talk: Conversation, turn: Turn) -> Answer | None:
    """By the way, where shall we eat? Said beside the subject, and none of ours."""
    request = turn.request
    if not alternatives("requests", "aside").search(request.text) or turn.quantities or request.changes:
        return None
    return None if subjects(request.subject) else talk.say("tutor.declined", declined=True)


def code_again(talk: Conversation, turn: Turn) -> Answer | None:
    """And the `.mean()`? A line of the code that was pasted before, or its other mistake."""
    text = turn.request.text
    if not talk.code or len(text) > LONGEST_POINTER or turn.request.changes or turn.request.columns:
        return None
    return line_again(talk.code, text, legible(talk.rollout), talk.lang)


def mended(talk: Conversation, turn: Turn) -> Answer | None:
    """What is to be expected once a mistake of the code pasted before is put right: "swapped them, the loss fell"."""
    text = turn.request.text
    if not talk.code or not alternatives("requests", "mended").search(text) or turn.request.columns:
        return None
    told = named(texts("snippets", talk.lang)["line_after"])
    known = [bug for bug in bugs_of(talk.code) if bug in told]
    return Answer(talk.lang, told[known[0]]) if known and len(text) <= LONGEST_POINTER else None


def padded(talk: Conversation, turn: Turn) -> Answer | None:
    """How much a mean over all slots is off where a share of them is padding; and whether that matters."""
    text = turn.request.text
    plainly = "mean_over_padding" in bugs_of(talk.code) if talk.code else False
    if not plainly and not (_PLAIN_MEAN.search(text) and _PADDING.search(text)):
        return None
    share = _share(text) if _PADDING.search(text) else None
    if share is not None and 0 < share < 1:
        kept = shown(round(1 - share, 6))
        line = f"Σ(x·mask)/N ÷ Σ(x·mask)/Σmask = Σmask/N = 1 − {shown(share)} = {kept}"
        return Answer(talk.lang, sentence("tutor.padding_factor", talk.lang, kept=kept), lines=(line,))
    if plainly and _SIZE.search(text) and len(text) <= LONGEST_POINTER:
        return Answer(talk.lang, sentence("tutor.padding_scale", talk.lang))
    return None


def _share(text: str) -> float | None:
    """The share of padding that is told."""
    if _HALF.search(text):
        return 0.5
    found = _PERCENT.search(text)
    if found is not None:
        return float(found[1]) / 100
    found = _FRACTION.search(text)
    return float(found[1]) if found is not None else None


def same_quantity(talk: Conversation, turn: Turn) -> Answer | None:
    """And the third token? After a question about a quantity: that quantity there."""
    if not turn.places or not turn.request.vague or turn.wants - {"what_if"} or turn.quantities or talk.quantity:
        return None
    behind = _WHY.split(turn.last)[-1]
    name = asked_quantity(behind) or asked_quantity(turn.last)
    if name is None or name not in talk.rollout.columns or turn.request.changes:
        return None
    topic, key = talk.topic, talk.key
    if topic is None or not key.startswith(POINT):
        return None
    answer = talk.derive([name], turn.places[0])
    return None if answer is None else replace(answer, topic=topic, level=key)


def signs(talk: Conversation, turn: Turn) -> Answer | None:
    """Can a reward be positive? Where it is in the example, and when that happens."""
    asked = _ANY_SIGN.search(turn.request.text)
    name = asked_quantity(turn.request.subject)
    if asked is None or name not in ("rewards", "kl") or turn.wants & {"why", "claim"} or turn.request.changes:
        return None
    column = talk.rollout.columns.get(name)
    if column is None or "kl" not in talk.rollout.columns or len(turn.quantities) > 1:
        return None
    positive = bool(re.search("正|positive", asked[0], re.IGNORECASE))
    found = [(t, column[t]) for t in talk.slots() if column[t] is not None and (column[t] > 0) == positive]
    where = ("；" if talk.lang == "zh" else "; ").join(f"t = {t}: {shown(x)}" for t, x in found if x)
    said = sentence(f"tutor.sign_{name}_{'positive' if positive else 'negative'}", talk.lang)
    here = sentence("tutor.sign_here" if where else "tutor.sign_nowhere", talk.lang, where=where)
    answer = talk.derive([name])
    return None if answer is None else replace(answer, text=f"{said} {here}" if talk.lang == "en" else said + here)


def few_tokens(talk: Conversation, turn: Turn) -> Answer | None:
    """An example of two tokens: with easy numbers, worked out whole."""
    count = _COUNT.search(turn.request.text)
    topic = TOPIC_OF.get(talk.quantity.partition("(")[0]) if talk.quantity else talk.topic
    if count is None or not turn.wants & {"example", "another"} or turn.request.columns:
        return None
    if topic not in OF_CREDIT and not (topic is None and talk.code):
        return None
    n = int(number_of(count[1]))
    values = [round(LOW + (HIGH - LOW) * k / (n - 1), 2) for k in range(n)]
    settings = talk.rollout.settings
    talk.remember()
    talk.rollout, talk.token = example.typed(
        {"rewards": [0.0] * (n - 1) + [1.0], "values": values}, gamma=settings.gamma, lam=settings.lam, beta=None
    ), None  # fmt: skip
    answer = talk.derive(["deltas", "advantages", "returns"])
    if answer is None:
        return None
    said = sentence("tutor.small_example", talk.lang, count=n, values=", ".join(map(shown, values)))
    return replace(answer, title="", text=f"{said}\n\n{answer.text}")


def unmasked(talk: Conversation, turn: Turn) -> Answer | None:
    """And without the mask? What the slots that were not chosen would do to the others, and get themselves."""
    before = talk.rollout
    if all(before.mask) or not alternatives("requests", "unmasked").search(turn.request.text):
        return None
    columns = {**before.columns, "response_mask": [1] * len(before.tokens)}
    name = asked_quantity(turn.request.subject) or talk.quantity or "advantages"
    name = name if name in before.columns else "advantages"
    without = example.changed(replace(before, columns=columns))
    if name not in without.columns:
        return None
    talk.remember()
    talk.rollout = without
    answer = talk.derive([name])
    if answer is None:
        return None
    rows = [(t, before.columns[name][t], without.columns[name][t]) for t in range(len(before.tokens))]
    join = "；" if talk.lang == "zh" else "; "
    changed = [(t, old, new) for t, old, new in rows if before.mask[t] and old is not None and new is not None]
    parts = [
        sentence("tutor.changed_without_mask", talk.lang, t=t, old=shown(old), new=shown(new))
        for t, old, new in changed
        if abs(old - new) >= 5e-5
    ]
    paid = [
        sentence("tutor.paid_without_mask", talk.lang, t=t, new=shown(new))
        for t, _, new in rows
        if not before.mask[t] and new is not None
    ]
    said = sentence(
        "tutor.without_mask", talk.lang, name=name_of(name, talk.lang), paid=join.join(paid),
        changed=join.join(parts) or sentence("tutor.none_changed", talk.lang),
    )  # fmt: skip
    return replace(answer, text=f"{said}\n\n{answer.text}")


def retells(turn: Turn) -> bool:
    """Whether a question asks for the last subject in other words and names no subject of its own."""
    wishes = turn.wants & {"child", "analogy", "lost"}
    return bool(wishes) and not turn.quantities and not subjects(turn.request.subject) - WIDE
