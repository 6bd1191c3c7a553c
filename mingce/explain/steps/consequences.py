"""What follows from a change: of a setting in words, and of one token's advantage in its two parts."""

from __future__ import annotations

from dataclasses import replace

from mingce.base.numbers import number as shown
from mingce.base.texts import sentence
from mingce.explain.answer import Answer
from mingce.record.rollout import Rollout

SAME = 5e-5
_SETTINGS = ("beta", "lam", "gamma")


def with_consequence(answer: Answer, before: Rollout, now: Rollout, lang: str) -> Answer:
    """The answer that compares two settings, with what the change leads to if one setting was changed."""
    old, new = before.settings.as_dict(), now.settings.as_dict()
    moved = [name for name in _SETTINGS if old.get(name) is not None and new.get(name) != old.get(name)]
    if len(moved) != 1 or new.get(moved[0]) is None:
        return answer
    a, b = float(old[moved[0]]), float(new[moved[0]])
    ways = {0.0: "zero", 1.0: "one"} if moved[0] == "lam" else {0.0: "zero"} if moved[0] == "beta" else {}
    way = ways.get(b, "up" if b > a else "down")
    if moved[0] == "beta" and a <= 0 < b:
        return answer
    factor = shown(b / a) if a else ""
    said = sentence(f"tutor.consequence_{moved[0]}_{way}", lang, factor=factor)
    return replace(answer, text=f"{answer.text}\n\n{said}")


def moved_parts(before: Rollout, now: Rollout, t: int, lang: str) -> str:
    """An advantage before and after as its own surprise and what is passed back; nothing where it is not made so."""
    numbers = []
    for one in (before, now):
        delta, advantage = (one.columns[name][t] if name in one.columns else None for name in ("deltas", "advantages"))
        if delta is None or advantage is None:
            return ""
        numbers.append((delta, advantage - delta, advantage))
    (d0, p0, a0), (d1, p1, a1) = numbers
    given = {"d0": d0, "p0": p0, "a0": a0, "d1": d1, "p1": p1, "a1": a1}
    values = {name: shown(x) if x >= 0 or name[0] != "p" else f"({shown(x)})" for name, x in given.items()}
    parts = [sentence("tutor.moved_parts", lang, t=t, **values)]
    if abs(d0 - d1) < SAME <= abs(p0 - p1):
        parts.append(sentence("tutor.moved_passed", lang, **values))
    if (a0 > SAME and a1 < -SAME) or (a0 < -SAME and a1 > SAME):
        parts.append(sentence("tutor.moved_sign", lang))
    return "\n\n".join(parts)
