"""What turns a claim's meaning, read from its frame: negation and quantity, contrasts, order, comparison, direction."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mingce.explain.question.frames import Frame, Item

WHETHER: dict[str, frozenset[str]] = {
    "holds": frozenset(),
    "choice": frozenset({"measure", "predict"}),
    "moves": frozenset({"size", "affect", "help", "prevent", "rise", "mean_that"}),
    "order": frozenset({"measure", "use", "predict"}),
    "compare": frozenset({"size", "same"}),
    "sign": frozenset({"sign_neg", "sign_pos", "zero", "size"}),
}
"""Relations that a kind of form reads itself."""
_MUST = re.compile(r"必须|一定要|\b(?:must|ha(?:s|ve) to)\b", re.IGNORECASE)
_TURNED = {"plain": "neg", "neg": "plain", "always": "never", "never": "always", "can": "some", "some": "can"}


def mode_of(frame: Frame) -> str:
    """How much a clause claims: plain, neg(ated), always, never, can (sometimes so), some(times not so)."""
    negations = [item.start for item in _negations(frame)]
    odd = len(negations) % 2 == 1
    names = {item.name for item in frame.items}
    if "not_always" in names:
        return "can" if odd else "some"
    if "never" in names:
        return "always" if odd else "never"
    if "always" in names or _must(frame):
        place = min(item.start for item in frame.named("always", "need"))
        return "always" if not odd else "some" if negations[0] < place else "never"
    if "can" in names:
        return "some" if odd else "can"
    return "neg" if odd else "plain"


def _must(frame: Frame) -> bool:
    """Whether it is said that something must be so."""
    return any(_MUST.match(frame.text[item.start : item.end]) for item in frame.named("need"))


def turned_mode(mode: str) -> str:
    """The mode of a clause that says the opposite in the same manner."""
    return _TURNED[mode]


def _negations(frame: Frame) -> list[Item]:
    """Negations that turn the clause: not the one of "not A but B"."""
    negations, rather = frame.named("not"), frame.named("but_rather")
    if rather and negations and negations[0].start < rather[0].start:
        return negations[1:]
    return negations


def asserted(frame: Frame, names: Iterable[str]) -> list[tuple[Item, bool]]:
    """The items of these names, and whether the clause only contrasts with them: "B, not A", "not A but B"."""
    wanted = frozenset(names)
    contrasts, rather, negations = (frame.named(name) for name in ("contrast", "but_rather", "not"))
    found = []
    for item in frame.items:
        if item.name not in wanted:
            continue
        behind = any(mark.end <= item.start for mark in contrasts)
        between = bool(rather and negations) and negations[0].start < item.start < rather[0].start
        found.append((item, behind or between))
    return found


def order_of(frame: Frame, first: frozenset[str], second: frozenset[str]) -> str | None:
    """Whether a clause puts them in this order."""
    early, late = ([item for item in frame.items if item.name in names] for names in (first, second))
    if not early or not late:
        return None
    claimed = _claimed_order(frame, early[0], late[0])
    if claimed is None:
        return None
    negated = mode_of(frame) in ("neg", "never")
    return "right" if claimed != negated else "wrong"


def _claimed_order(frame: Frame, one: Item, other: Item) -> bool | None:
    """True if the clause says that `one` comes first."""
    marks = frame.named("before", "after", "first", "then")
    if not marks:
        return None
    mark = marks[0]
    chinese = "一" <= frame.text[mark.start] <= "鿿"
    if mark.name in ("first", "then"):
        if mark.name == "then":
            return one.start < other.start
        return (
            min((item for item in (one, other) if item.start > mark.start), key=lambda i: i.start, default=one) is one
        )
    if chinese:  # "A 之后": the thing in front of the mark
        beside = max((item for item in (one, other) if item.start < mark.start), key=lambda i: i.start, default=None)
    else:  # "after A": the thing behind it
        beside = min((item for item in (one, other) if item.start > mark.start), key=lambda i: i.start, default=None)
    if beside is None:
        return None
    return (beside is one) == (mark.name == "after")


def comparison_of(
    frame: Frame, one: frozenset[str], other: frozenset[str], attributes: frozenset[str], *, more: bool
) -> str | None:
    """Whether a clause compares the two so: `one` has more (or less) of the attribute."""
    left, right = ([item for item in frame.items if item.name in names] for names in (one, other))
    if not left or not right or (attributes and not any(item.name in attributes for item in frame.items)):
        return None
    if any(item.pole > 0 for item in frame.named("same")):
        return None if frame.named("not", "never") else "wrong"
    poles = [item.pole for item in frame.items if item.pole and (item.name == "size" or item.name in attributes)]
    if not frame.named("than", "front_compare") or len(poles) != 1 or mode_of(frame) in ("can", "some"):
        return None
    exchanged = (left[0].start > right[0].start) != bool(frame.named("front_compare"))
    negated = mode_of(frame) in ("neg", "never")
    return "right" if (poles[0] > 0) ^ exchanged ^ negated == more else "wrong"


def direction_of(frame: Frame, cause: frozenset[str], effect: frozenset[str]) -> int | None:
    """1 if the clause says that they move together, −1 against each other, 0 that neither moves the other.

    2 where it says only that there is an influence; None where it says nothing of the kind.
    """
    poles = [item.pole for item in frame.named("size", "help", "rise")]
    poles += [item.pole for item in frame.items if item.pole and item.name in effect | cause]
    poles += [-item.pole for item in frame.named("prevent")]
    affects = frame.named("affect")
    mode = mode_of(frame)
    if mode in ("can", "some") and not affects and len(poles) != 2:
        return None
    negated = mode in ("neg", "never")
    if not poles or (affects and len(poles) < 2):
        if not affects:
            return None
        return 0 if (affects[0].pole < 0) != negated else 2
    if len(poles) > 2 or frame.named("than"):
        return None
    direction = 1
    for pole in poles:
        direction *= pole
    return -direction if negated else direction


_ALL = frozenset("+-0")


def sign_verdict(frame: Frame, possible: str) -> str | None:
    """Whether what a clause says of a number's sign is so, the number having these signs."""
    claimed: frozenset[str] | None = None
    for item in frame.named("sign_neg", "sign_pos", "zero"):
        signs = frozenset({"sign_neg": "-", "sign_pos": "+", "zero": "0"}[item.name])
        claimed = signs if item.pole > 0 else _ALL - signs
    if claimed is None or (claimed == {"0"} and len(possible) > 1):
        return None  # "is 0" says of what can be 0 nothing about its sign
    if possible == "~":
        return "half"
    has, mode = frozenset(possible), mode_of(frame)
    some, every = bool(has & claimed), has <= claimed
    match mode:
        case "can":
            return "right" if some else "wrong"
        case "never":
            return "wrong" if some else "right"
        case "some":
            return "wrong" if every else "right"
        case "always":
            return "right" if every else "wrong"
        case "neg":
            return "right" if not some else "wrong" if every else None
    return "right" if every else None if some else "wrong"  # "the advantage is negative" speaks of a case
