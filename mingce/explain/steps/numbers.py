"""Questions for numbers: derived from the example, worked out by hand from a few given ones, or traced back."""

from __future__ import annotations

import re
from dataclasses import replace

from mingce.base.numbers import number as shown
from mingce.base.texts import sentence
from mingce.explain.answer import Answer, legible
from mingce.explain.compose import account_of, joined, with_definition
from mingce.explain.conversation import Conversation, Turn
from mingce.explain.derive import (
    as_answer,
    compare_quantities,
    compare_settings,
    compare_tokens,
    moves,
    name_of,
    origins,
)
from mingce.explain.equations import judge_equations
from mingce.explain.hand import carried_on, is_finite, worked_by_hand
from mingce.explain.patterns import alternatives
from mingce.explain.question.classifier import OTHER
from mingce.explain.question.facts import methods
from mingce.explain.question.frames import read_frame
from mingce.explain.question.judging import judgements
from mingce.explain.question.mood import asserts
from mingce.explain.question.places import Place, without_places
from mingce.explain.question.propositions import statement
from mingce.explain.question.quantities import asked_quantity, numbers_asked, read_statistics
from mingce.explain.question.request import Request
from mingce.explain.question.scalars import read_final_reward
from mingce.explain.question.subject import ACCEPTED
from mingce.explain.question.suppositions import Supposition
from mingce.explain.steps.consequences import SAME, moved_parts, with_consequence
from mingce.explain.steps.thread import OF_CREDIT
from mingce.explain.topics import TOPICS
from mingce.record.rollout import Rollout
from mingce.specs.settings import SYMBOLS

SHORT, CLEARLY, LIKELY, SURE, MANY, LONGEST, MOST_MOVED = 24, 0.6, 0.4, 0.8, 2, 400, 3
_HOW_MUCH = re.compile(
    r"多少|是几|等于几|算一下|怎么算|\b(?:how (?:much|big)|compute|calculate|sum|mean|total)\b", re.IGNORECASE
)
_ASKS = re.compile(r"[?？吗呢]|多少|什么|怎么|帮|求|\b(?:what|how|compute|calculate|give|show)\b", re.IGNORECASE)
_USUAL = re.compile(
    r"正常|合适|合理|太大|太高|太小|算大|算高|算好|一般|通常|常用|"
    r"\b(?:too (?:much|high|large|big|small|low)|normal|healthy|typical|"
    r"usual(?:ly)?|reasonable|common(?:ly)?)\b",
    re.IGNORECASE,
)
_ONE_DECIMAL = re.compile(r"(?<![\d.\w])[-−]?\d+\.\d(?![\d.])")
_ASKS_ORIGIN = re.compile(
    r"怎么(?:算)?(?:来|出来|得来|得到)|哪来|哪里来|从哪|是怎么|comes? from|where|how (?:do|did) (?:you|we|i) get",
    re.IGNORECASE,
)
_WHICH = re.compile(
    r"(?:哪|什么)(?:一?个)?(?:时刻|时候|时间|位置|状态|地方|步)的?(?!.{0,6}最)|"
    r"\b(?:which|what) (?:moment|time|position|state|point)\b",
    re.IGNORECASE,
)
"""Asks where a number belongs, not how large it is."""
_WHETHER = re.compile(r"[吗么吧]\s*[？?。]?\s*$|是不是|\b(?:does|is|do|are)\b.*\?", re.IGNORECASE)
_ABOUT = (
    ("ref_log_probs", "kl_estimators"), ("advantages", "ppo_clip"), ("ratio", "ppo_clip"),
    ("old_log_probs", "ppo_clip"), ("new_log_probs", "ppo_clip"), ("new_values", "value_clipping"),
    ("next_values", "critic_td_error"),
    ("values", "advantage_from_returns"), ("scores", "kl_where"),
)  # fmt: skip
"""What the numbers given are about, the first that is there."""


def origin(talk: Conversation, turn: Turn, *, at_last: bool = False) -> Answer | None:
    """Where does 0.7738 come from; `at_last` if nothing else in the question was understood."""
    request = turn.request
    decimals = request.decimals
    if not decimals and talk.quantity is not None and _ASKS_ORIGIN.search(request.text):
        decimals = tuple(_ONE_DECIMAL.findall(request.text))  # of the numbers just shown
    if not decimals or "claim" in request.wants or request.changes or len(turn.scalars) > 1:
        return None
    bare = len(re.sub(r"[\W\d_]+", "", request.rest)) <= 4 and "what_if" not in request.wants
    if not (_ASKS_ORIGIN.search(request.text) or bare or at_last):
        return None
    for number_text in decimals:
        derivations = origins(number_text, talk.rollout, talk.lang, talk.before)
        slots = [place.index for place in turn.places]
        derivations.sort(
            key=lambda one: (one.quantity not in turn.quantities, one.quantity in SYMBOLS, one.t not in slots)
        )
        if derivations:
            best = derivations[0]
            talk.token, talk.result = best.t, best.result
            return talk.as_number(best.quantity, as_answer(best, legible(talk.rollout), talk.lang))
    return None if at_last else talk.say("tutor.no_origin", number=decimals[0])


def continued(talk: Conversation, turn: Turn) -> Answer | None:
    """And times 0.395? The last number carried on with."""
    if talk.result is None or turn.quantities:
        return None
    answer, result = carried_on(talk.result, turn.request.text, talk.lang)
    if answer is not None:
        talk.result = result
    return answer


def number_by_hand(talk: Conversation, turn: Turn) -> Answer | None:
    """A few numbers of one token are given: what follows from them."""
    request = turn.request
    again = bool(talk.scalars) and bool(turn.scalars) and len(request.rest) < SHORT
    if request.columns or ("claim" in request.wants and not (again and set(turn.scalars) <= set(talk.scalars))):
        return None
    scalars = {**talk.scalars, **turn.scalars} if again else turn.scalars
    if (again or len(scalars) > 1) and is_finite(scalars):
        answer = worked_by_hand(scalars, request.settings, talk.lang)
        if answer is not None:
            talk.scalars = scalars
            talk.topic, talk.quantity = next((topic for name, topic in _ABOUT if name in scalars), talk.topic), None
            return with_definition(answer, talk.topic or turn.topic, talk.lang)
    return None


def typed_numbers(talk: Conversation, turn: Turn) -> Answer | None:
    """Rows typed in with nothing asked of them but to compute: the account."""
    request = turn.request
    whole = {"rewards", "values"} <= set(request.columns)
    computes = whole and not judge_equations(request.rest, talk.rollout, talk.lang)
    told = {"why", "compare", "proof", "child"} | (set() if computes else {"claim"})
    if not request.columns or request.wants & told:
        return None
    named = [name for name in turn.quantities if name not in request.columns]
    sure = bool(turn.guesses) and turn.guesses[0].probability >= (CLEARLY if whole else LIKELY)
    of_rows = turn.topic in OF_CREDIT and set(request.columns) == {"rewards", "values"}
    clear = sure and "how_much" not in request.wants and not named and not of_rows
    spoken = talk.topic is not None or talk.quantity is not None
    if spoken and (request.vague or not computes or "response_mask" not in request.columns):
        return None  # the subject at hand is told again, with these numbers
    if clear and not request.vague:
        return None
    place = turn.places[0] if turn.places and read_final_reward(request.text) is None else None
    place = None if "claim" in request.wants else place
    if set(named) <= {"advantages"} and place is None:
        named = ["deltas", "advantages", "returns"]
    answer = talk.derive(named or ["advantages"], place)
    if answer is not None and "advantages" in named:
        answer = talk.as_number("advantages", _with_unsaid(talk, request, answer))
    if answer is not None and "claim" in request.wants:
        claimed, _ = judgements(request.subject, legible(talk.rollout), talk.at(), talk.lang)
        answer = replace(answer, judgements=tuple(one for one in claimed if not one.near))
    return answer or account_of(legible(talk.rollout), talk.lang)


def _with_unsaid(talk: Conversation, request: Request, answer: Answer) -> Answer:
    """The answer with the settings it took because the question gave none."""
    used = talk.rollout.settings
    taken = {name: getattr(used, name) for name in ("gamma", "lam") if name not in request.settings}
    said = ", ".join(f"{SYMBOLS[name]} = {shown(x)}" for name, x in taken.items() if x is not None)
    if not said:
        return answer
    return replace(answer, text=f"{answer.text}\n\n{sentence('tutor.taken_settings', talk.lang, settings=said)}")


def number(talk: Conversation, turn: Turn) -> Answer | None:
    """A number is asked for, of a token or of all: derived, not looked up."""
    request, places = turn.request, turn.places
    if request.wants & {"claim", "proof", "child", "lost"} or not turn.quantities or of_method(request.subject):
        return None
    if usual(request.subject) and not places:
        return None
    if _WHICH.search(request.text) or asks_position(request.text) or in_words(request.text):
        return None
    why, how_much = "why" in request.wants, "how_much" in request.wants
    extreme = any(one.startswith(("max(", "min(")) for one in read_statistics(request.subject))
    if (why and not places and not extreme) or (not places and turn.topic == OTHER):
        return None
    plainly = _HOW_MUCH.search(request.text) is not None
    sure = bool(turn.guesses) and turn.guesses[0].probability >= SURE and not plainly and not request.supposes
    if not places and (len(turn.quantities) > MANY or sure or _states(request.text)):
        return None  # an overview, a topic's own question, or a statement
    if (sure and _WHETHER.search(request.text)) or (asserts(request.text) and len(request.rest) > SHORT):
        return None  # "does V(0) contain r(0)?", or a statement about a token
    if "compare" in request.wants and len(turn.quantities) > 1 and not (why or how_much):
        return _compared(talk, turn)
    compares = request.supposes and not request.columns and talk.rollout.settings != turn.earlier.settings
    if compares:
        return before_and_after(talk, turn)
    if len(places) > 1 and "unrolled" in turn.quantities:
        return _passed_on(talk, sorted(place.index for place in places))
    statistics = read_statistics(request.subject) if len(request.rest) < SHORT or how_much else []
    if not (places or how_much or statistics):
        return None
    asked = numbers_asked(request.subject, talk.read_places, wanted=how_much or bool(statistics))
    if why and asked and places:
        asked += [(name, places[0]) for name in ("rewards", "kl_cost") if (name, places[0]) not in asked]
    answer = _derive_all(talk, asked)
    if answer is None or how_much or [name for name, _ in asked] != ["advantages"] or len(places) != 1:
        return answer
    return replace(answer, text=f"{answer.text}\n\n{_own_and_later(talk, places[0].index)}".rstrip())


def _own_and_later(talk: Conversation, t: int) -> str:
    """How much of an advantage is the token's own step, and how much comes from later ones."""
    delta, whole = (talk.rollout.columns.get(name, [None] * (t + 1))[t] for name in ("deltas", "advantages"))
    if delta is None or whole is None or abs(whole - delta) < SAME:
        return ""
    return sentence("tutor.own_and_later", talk.lang, delta=shown(delta), passed=shown(whole - delta))


def usual(text: str) -> bool:
    """Whether it is asked how large a number should be, not how large it is."""
    return _USUAL.search(text[:LONGEST]) is not None


def in_words(text: str) -> bool:
    """Whether no formulas are wanted."""
    return alternatives("requests", "plain").search(text[:LONGEST]) is not None


def asks_position(text: str) -> bool:
    """Whether it is asked where a number is read, not how large it is."""
    return alternatives("requests", "position").search(text[:LONGEST]) is not None


def of_method(text: str) -> bool:
    """Whether a method is named whose numbers the example does not have."""
    return bool(read_frame(text[:LONGEST]).things() & methods())


def _states(text: str) -> bool:
    """Whether the text makes a statement that is known."""
    return not _ASKS.search(text) and statement(text) is not None


def _compared(talk: Conversation, turn: Turn) -> Answer:
    """Two quantities side by side, and the topic that is about both."""
    one, other = turn.quantities[:2]
    answer = compare_quantities(legible(talk.rollout), one, other, talk.at(turn.places), talk.lang)
    if turn.topic in TOPICS and turn.guesses[0].probability >= ACCEPTED:
        return joined([talk.tell(turn.topic, talk.level), answer], text_first=answer.text)
    return talk.as_number(one, answer)


def before_and_after(talk: Conversation, turn: Turn) -> Answer:
    """What another setting or supposition changes, before and after."""
    name = asked_quantity(turn.request.subject) or talk.quantity or "advantages"
    supposed = {"scores", "rewards", "values"} if turn.request.supposed else set()
    if name not in talk.rollout.columns or name in supposed:
        name = "advantages"
    answer = compare_settings(turn.earlier, talk.rollout, name, talk.lang)
    answer = with_consequence(answer, turn.earlier, talk.rollout, talk.lang)
    if turn.request.supposed:
        said = f"{_said(turn.request.supposed, talk.lang)}\n\n{answer.text}"
        answer = replace(answer, title=name_of(name, talk.lang), text=said)
    place = turn.places[0] if turn.places else None
    asked = numbers_asked(turn.request.subject, talk.read_places, wanted=True)
    others = [one for one in asked if one[0] != name and one[0] not in supposed]
    more = _derive_all(talk, [*([(name, place)] if place else []), *others[:2]])
    return talk.as_number(name, answer if more is None else joined([answer, more]))


def _said(supposed: tuple[Supposition, ...], lang: str) -> str:
    """What is supposed, as a formula a column."""
    parts = []
    for one in supposed:
        where = "t" if one.slot is None else "T−1" if one.slot < 0 else str(one.slot)
        symbol = f"V(s_{where})" if one.column == "values" else f"{'r' if one.column == 'rewards' else 'score'}_{where}"
        made = {"is": "", "plus": f"{symbol} + ", "times": f"{symbol}·"}[one.how] + shown(one.number)
        key = "tutor.supposed_everywhere" if one.slot is None else "tutor.supposed_there"
        parts.append(sentence(key, lang, formula=f"{symbol} → {made}"))
    return " ".join(parts)


def walked_through(talk: Conversation, turn: Turn) -> Answer | None:
    """The whole example is to be computed once, from the rewards on."""
    if not alternatives("requests", "whole_example").search(turn.request.text) or turn.places:
        return None
    return talk.derive(["rewards", "deltas", "advantages"])


def both_settings(talk: Conversation, turn: Turn) -> Answer | None:
    """A quantity under the settings before the last change and after it: "the returns under both?"."""
    if not talk.before or turn.request.changes or not alternatives("requests", "both").search(turn.request.text):
        return None
    before = next((one for one in talk.before if len(one.tokens) == len(talk.rollout.tokens)), None)
    name = asked_quantity(turn.request.subject) or talk.quantity
    if before is None or name is None or name not in talk.rollout.columns or before.settings == talk.rollout.settings:
        return None
    return talk.as_number(name, compare_settings(before, talk.rollout, name, talk.lang))


def why_moved(talk: Conversation, turn: Turn) -> Answer | None:
    """Why a token's number became another after the last change: its derivation before and after."""
    asks = "why" in turn.wants or alternatives("requests", "good_or_bad").search(turn.request.text)
    if not talk.before or not turn.places or turn.request.changes or not asks:
        return None
    before, now = talk.before[0], talk.rollout
    moved = alternatives("requests", "moved").search(turn.request.text)
    if not moved or len(before.tokens) != len(now.tokens) or turn.places[0].index not in talk.slots():
        return None
    named = asked_quantity(turn.request.subject)
    tried = [named] if named else [one for one in (talk.quantity or "", "advantages") if one in now.columns]
    fitting = ((name, place) for name in tried if (place := _meant(turn, before, now, name)) is not None)
    name, place = next(fitting, (tried[0] if tried else "advantages", turn.places[0]))
    talk.rollout = before
    earlier = talk.derive([name], place)
    talk.rollout = now
    later = talk.derive([name], place)
    change = compare_settings(before, now, name, talk.lang)
    if earlier is None or later is None:
        return None
    parts = moved_parts(before, now, place.index, talk.lang) if name == "advantages" else ""
    lines = tuple(dict.fromkeys((*earlier.lines, *later.lines)))
    told = replace(change, lines=lines, text=parts or change.text)
    return talk.as_number(name, told)


_SIGNS = (
    (re.compile(r"负|\bnegative\b", re.IGNORECASE), -1),
    (re.compile(r"正|\bpositive\b", re.IGNORECASE), 1),
    (re.compile(r"(?<![\d.])0(?![\d.])|零|\bzero\b", re.IGNORECASE), 0),
)  # fmt: skip


def _meant(turn: Turn, before: Rollout, now: Rollout, name: str) -> Place | None:
    """The token that is meant: of "token 2", counted from 0 or from 1, the one whose number moved as is said."""
    if name not in before.columns or name not in now.columns:
        return None
    place, text = turn.places[0], without_places(turn.request.text)
    said = [sign for _, sign in sorted((match.start(), sign) for one, sign in _SIGNS for match in one.finditer(text))]
    flips = re.search(r"符号|翻|\bsign|\bflip", text, re.IGNORECASE) is not None
    slots = [t for t, m in enumerate(now.mask) if m]
    for index in (place.index, place.index - 1):
        if index not in slots or index not in range(len(before.columns[name])):
            continue
        old, new = (_sign(one.columns[name][index]) for one in (before, now))
        if (len(said) > 1 and (old, new) == (said[0], said[1])) or (flips and old != new):
            return Place(index, index + 1 if index != place.index else place.counted)
    return None


def _sign(x: float | None) -> int:
    return 0 if x is None or abs(x) < SAME else 1 if x > 0 else -1


def most_changed(talk: Conversation, turn: Turn) -> Answer | None:
    """Which token changed the most, after a change of the example."""
    if not talk.before or not alternatives("requests", "most_changed").search(turn.request.text):
        return None
    before = next((one for one in talk.before if len(one.tokens) == len(talk.rollout.tokens)), None)
    if before is None:
        return None
    name = asked_quantity(turn.request.subject) or talk.quantity or "advantages"
    ranked = moves(before, talk.rollout, name, talk.lang)
    if not ranked:
        return talk.as_number(name, compare_settings(before, talk.rollout, name, talk.lang))
    parts = [
        sentence("tutor.moved_token", talk.lang, t=t, token=legible(talk.rollout).tokens[t].text, old=shown(old),
                 new=shown(new), difference=shown(new - old))
        for t, old, new in ranked[:MOST_MOVED]
    ]  # fmt: skip
    tokens = ("；" if talk.lang == "zh" else "; ").join(parts)
    said = sentence("tutor.most_changed", talk.lang, name=name_of(name, talk.lang), tokens=tokens)
    return talk.as_number(name, Answer(talk.lang, said))


def _passed_on(talk: Conversation, slots: list[int]) -> Answer | None:
    """What of a later surprise reaches an earlier token: its weight and its term."""
    first, last = slots[0], slots[-1]
    steps = talk.slots().index(last) - talk.slots().index(first) if {first, last} <= set(talk.slots()) else 0
    answers = [talk.derive([f"weight({steps})"]), talk.derive(["unrolled"], Place(first))]
    return joined([answer for answer in answers if answer is not None]) if any(answers) else None


def _derive_all(talk: Conversation, asked: list[tuple[str, Place | None]]) -> Answer | None:
    """Several numbers, each derived; one quantity at several tokens is compared first."""
    names = list(dict.fromkeys(name for name, _ in asked))
    slots = [place.index for _, place in asked if place is not None]
    answers = [answer for name, place in asked if (answer := talk.derive([name], place)) is not None]
    if not answers:
        return None
    if len(names) == 1 and len(set(slots)) > 1:
        answers.insert(0, compare_tokens(legible(talk.rollout), names[0], slots, talk.lang))
    return joined(answers)
