"""What is so, as structure: facts a claim is held against, whatever its words.

A fact has forms (texts/facts, `form`), a line each:

    holds grpo critic : never                  speaks of all of these; always, usually, sometimes, never so;
                                               `possible` if it can be so, `rarely` if only in a special case
    choice ratio denominator = old | ref new   which of several it is
    moves lambda > variance +                  the larger the one, the larger (+), the smaller (-), neither (0),
                                               or not reliably so (x; n: nor the other way)
    order whiten < policy_loss                 what comes first
    compare gae < mc : variance                which of two has less of it
    sign k3 : +0                               the signs it can have

`a|b` are alternatives, `a+` is the plus side of a and no more than a condition ("a loss of zero+"), `& a b` behind a
form what a claim may mention besides. A claim that mentions anything else, or has words that are not understood, is not
judged: no verdict is better than a wrong one. What turns a claim (negation, quantity, antonym, exchanged sides) is read
from its frame, so a fact needs no list of phrasings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from mingce.base.texts import listed, named, texts
from mingce.explain.question.frames import RELATION, Frame, Item, read_frame
from mingce.explain.question.turning import (
    WHETHER,
    asserted,
    comparison_of,
    direction_of,
    mode_of,
    order_of,
    sign_verdict,
    turned_mode,
)

STRANGE = 1.5
"""So many words of a clause may be strange."""
LIGHT = frozenset({"sampling", "model", "sample_data", "same_answer", "action", "old_new"})
"""Things that may always be mentioned."""
LIGHT_RELATIONS = frozenset({"is", "has", "use", "cause", "place", "need", "include"})
"""Relations that say no more than that it is so; their minus side ("without") is a negation."""
_SAYING = frozenset(
    {
        "also",
        "can",
        "always",
        "usually",
        "never",
        "not",
        "not_always",
        "only",
        "clip",
        "whiten",
        "online_sampling",
        "bootstrap",
    }
) | frozenset({"before", "after", "first", "then"})
_COPULA = re.compile(r"[是为]|等于|\b(?:is|are|gets?|have|has|get)\b")
_RHETORICAL = re.compile(
    r"难道[^，。,？?]{0,30}?不(?!同|一样)|不就(?=是|等于)|不(?=是[^，。,？?]{0,40}[吗么]\s*[？?]?\s*$)"
)
_FORM = re.compile(r"(?P<kind>\w+) (?P<slots>[^=:<>]+?)(?: (?P<mark>[=:<>]) (?P<rest>[^&]+?))?(?: & (?P<may>.+))?$")


_SAID = frozenset(
    {"always", "usually", "possible", "sometimes", "rarely", "never", "x", "n", "~", "+", "-", "0", "+0", "-0", "+-0"}
)
"""What a form says of its slots, which is no name."""


@dataclass(frozen=True)
class Form:
    """One way a fact is stated: the slots that must be filled, what `rest` says of them, and what else may stand."""

    kind: str
    slots: tuple[frozenset[str], ...]
    mark: str
    rest: tuple[str, ...]
    may: frozenset[str]

    @property
    def names(self) -> frozenset[str]:
        """Everything the form knows of."""
        more = {name for part in self.rest for name in part.split("|") if name not in _SAID}
        return frozenset(name.rstrip("+-") for name in frozenset().union(*self.slots) | self.may | more)


@dataclass(frozen=True)
class Fact:
    """Something that is so, its topic, and the reason (zh, en)."""

    id: str
    topic: str
    forms: tuple[Form, ...]
    reasons: tuple[str, str]


@dataclass(frozen=True)
class Finding:
    """A claim held against a fact."""

    fact: Fact
    verdict: str
    closeness: int


@cache
def methods() -> frozenset[str]:
    """The things that are methods: what is said of one need not hold of another."""
    return frozenset(texts("notions", "en")["methods"].split())


@cache
def facts() -> dict[str, Fact]:
    """All facts by name."""
    zh, en = (texts("facts", lang) for lang in ("zh", "en"))
    known = {}
    for key in zh:
        name, _, part = key.rpartition(".")
        if part == "about":
            about = listed(zh[key])
            forms = tuple(parsed_form(line.removeprefix("form: ")) for line in about if line.startswith("form: "))
            known[name] = Fact(name, named(zh[key])["topic"], forms, (zh[f"{name}.reason"], en[f"{name}.reason"]))
    return known


def parsed_form(line: str) -> Form:
    """A form as it is written."""
    match = _FORM.match(line.strip())
    if match is None:
        raise ValueError(f"not a form: {line}")
    slots = tuple(frozenset(slot.split("|")) for slot in match["slots"].split())
    rest = tuple(part for part in (match["rest"] or "").split() if part not in "|:")
    return Form(match["kind"], slots, match["mark"] or "", rest, frozenset((match["may"] or "").split()))


@cache
def _by_first() -> tuple[tuple[Fact, Form], ...]:
    return tuple((fact, form) for fact in facts().values() for form in fact.forms)


def without_rhetoric(text: str) -> str:
    """The text without negations that only ask: 难道不是, 不就是, 不是…吗."""
    return _RHETORICAL.sub(lambda match: match[0].replace("不", "", 1), text)


def predicates(frame: Frame) -> list[Item]:
    """What a clause says of its things: relations, words with a direction, small words such as "also".

    A clause without any claims nothing.
    """
    return [
        item
        for item in frame.items
        if item.kind == RELATION
        or item.pole
        or item.name in _SAYING
        or _COPULA.search(frame.text[item.start : item.end])
    ]


def says_something(frame: Frame) -> bool:
    """Whether a clause is a claim, understood or not: it has a predicate, and a thing or words of its own."""
    asks = frame.named("question", "report", "tag")
    return bool(predicates(frame)) and not asks and (bool(frame.things()) or frame.strange >= 2)


def find(text: str) -> Finding | None:
    """The fact that decides a clause, and how; None where it says something else or was not understood."""
    frame = read_frame(without_rhetoric(text))
    if frame.strange > STRANGE or frame.named("question", "report") or not predicates(frame):
        return None
    found: list[Finding] = []
    for fact, form in _by_first():
        if _fits(frame, form) and (verdict := _verdict(frame, form)) is not None:
            filled = sum(1 for slot in form.slots) + len(form.rest)
            found.append(Finding(fact, verdict, 10 * _covered(frame, form) + min(filled, 9)))
    best = max((one.closeness for one in found), default=0)
    verdicts = {one.verdict for one in found if one.closeness == best}
    return next(one for one in found if one.closeness == best) if len(verdicts) == 1 else None


def _covered(frame: Frame, form: Form) -> int:
    own = frozenset().union(*form.slots) | {name for part in form.rest for name in part.split("|")}
    return sum(1 for item in frame.items if item.name in own)


def _fits(frame: Frame, form: Form) -> bool:
    """Whether the form's slots are filled and nothing else is mentioned that could matter."""
    present = {item.name for item in frame.items}
    present |= {f"{item.name}{'+' if item.pole > 0 else '-'}" for item in frame.items if item.pole}
    if not all(slot & present for slot in form.slots):
        return False
    known = form.names | LIGHT | WHETHER[form.kind]
    things = frame.things()
    if "ppo" in things and "ppo" not in known and (things & methods()):
        return False
    if things - known - {"ppo"}:
        return False
    if "only" in present and "only" not in known:
        return False
    relations = {item.name for item in frame.of(RELATION)}
    return not relations - known - LIGHT_RELATIONS


def _verdict(frame: Frame, form: Form) -> str | None:
    match form.kind:
        case "holds":
            return _holds(frame, form)
        case "choice":
            return _choice(frame, form)
        case "moves":
            return _moves(frame, form)
        case "order":
            return order_of(frame, form.slots[0], frozenset(form.rest[0].split("|")))
        case "compare":
            more = form.mark == ">"
            attributes = frozenset(form.rest[1].split("|")) if len(form.rest) > 1 else frozenset()
            return comparison_of(frame, form.slots[0], frozenset(form.rest[0].split("|")), attributes, more=more)
        case "sign":
            return sign_verdict(frame, form.rest[0])
    raise ValueError(f"no such form: {form.kind}")


def _relation_poles(frame: Frame, form: Form) -> list[Item]:
    """The items that can turn the claim by their side: the slots' own, and light relations."""
    own = frozenset().union(*form.slots)
    return [
        item
        for item in frame.items
        if item.pole and (item.name in own or item.name in form.may or item.name in LIGHT_RELATIONS)
    ]


_HOLDS = {
    "always": {"plain": "right", "always": "right", "can": "right", "neg": "wrong", "never": "wrong", "some": "wrong"},
    "usually": {"plain": "right", "always": "half", "can": "right", "neg": "wrong", "never": "wrong", "some": "right"},
    "possible": {
        "plain": "right",
        "always": "wrong",
        "can": "right",
        "neg": "wrong",
        "never": "wrong",
        "some": "right",
    },
    "sometimes": {"plain": "half", "always": "wrong", "can": "right", "neg": "half", "never": "wrong", "some": "right"},
    "rarely": {"plain": "wrong", "always": "wrong", "can": "right", "neg": "right", "never": "half", "some": "right"},
    "never": {"plain": "wrong", "always": "wrong", "can": "wrong", "neg": "right", "never": "right", "some": "right"},
}


def _holds(frame: Frame, form: Form) -> str | None:
    """Statements of the form "these belong together", under negation and quantity."""
    contrasted = asserted(frame, frozenset().union(*form.slots))
    if any(negative for _, negative in contrasted if negative):
        return None
    if frame.named("than", "front_compare"):
        return None
    turned = sum(item.pole < 0 for item in _relation_poles(frame, form)) % 2 == 1
    mode = mode_of(frame)
    return _HOLDS[form.rest[0]][turned_mode(mode) if turned else mode]


def _choice(frame: Frame, form: Form) -> str | None:
    """Which of several it is: the right one said, another one, or either denied."""
    right = frozenset(form.rest[0].split("|"))
    values = right | frozenset(name for part in form.rest[1:] for name in part.split("|"))
    said = [(item, negative) for item, negative in asserted(frame, values)]
    if not said:
        return None
    own = frozenset().union(*form.slots)
    turned = sum(item.pole < 0 for item in frame.of(RELATION) if item.name in LIGHT_RELATIONS | own) % 2
    mode = mode_of(frame)
    flip = (mode in ("neg", "never", "some")) != bool(turned)
    marks = [(item.name in right, negative != flip if not negative or not flip else True) for item, negative in said]
    good = [is_right != negative for is_right, negative in marks]
    positive = [is_right for is_right, negative in marks if not negative]
    if len(set(positive)) > 1:
        return None
    return "right" if all(good) else "wrong" if not any(good) or len(said) > 1 else None


def _moves(frame: Frame, form: Form) -> str | None:
    """The larger the one, the larger the other."""
    effect = frozenset(form.rest[0].split("|"))
    if not any(item.name in effect for item in frame.items):
        return None
    direction = direction_of(frame, form.slots[0], effect)
    if direction is None:
        return None
    if form.rest[1] in "xn":  # not reliably so: said plainly it is wrong, denied it is right
        denied = mode_of(frame) in ("neg", "never", "some")
        along = direction * (-1 if denied else 1) == 1 or form.rest[1] == "n"
        return ("right" if denied else "wrong") if along else None
    way = {"+": 1, "-": -1, "0": 0}[form.rest[1]]
    return "right" if direction == way or (direction == 2 and way != 0) else "wrong"
