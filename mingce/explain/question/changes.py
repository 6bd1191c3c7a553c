"""The example as a line of the dialogue wants it: under other settings, or with numbers typed in."""

from __future__ import annotations

import re
from dataclasses import replace

from mingce.algorithms import reference
from mingce.base.numbers import number as shown
from mingce.base.texts import sentence
from mingce.explain import example
from mingce.explain.question.request import Request
from mingce.record.rollout import Rollout

_RANGES = {  # symbol, least, largest, what to say
    "gamma": ("γ", 0.0, 1.0, "tutor.share_range"),
    "lam": ("λ", 0.0, 1.0, "tutor.share_range"),
    "beta": ("β", 0.0, 1e9, "tutor.positive_range"),
    "clip": ("ε", 1e-9, 1 - 1e-9, "tutor.clip_range"),
    "after": ("V(s_T)", -1e9, 1e9, "tutor.size_range"),
}
_WHOLE = (
    {"rewards", "values"}, {"scores", "values"}, {"old_log_probs", "advantages"}, {"old_log_probs", "ref_log_probs"},
)  # fmt: skip
"""Of another count of tokens these must come together to make an example."""
_MEASURED = ("scores", "rewards", "values", "old_log_probs", "ref_log_probs", "new_log_probs", "new_values")
_UNTRUE = {  # what typed numbers contradict
    "rewards": {"scores", "kl", "ref_log_probs"},
    "kl": {"ref_log_probs"},
    "advantages": {"rewards", "values", "new_values", "scores", "kl"},
    "old_log_probs": {"new_log_probs"},
    "values": {"new_values"},
}


class Impossible(Exception):
    """What was asked contradicts itself or the example; its text says so to the person."""


def apply_request(request: Request, rollout: Rollout, lang: str) -> Rollout:
    """The rollout with the request's settings and numbers; the one given is not touched."""
    for name, value in request.settings.items():
        symbol, least, largest, rule = _RANGES[name]
        if not least <= value <= largest:
            said = {"symbol": symbol, "value": shown(value), "rule": sentence(rule, lang)}
            raise Impossible(sentence("tutor.out_of_range", lang, **said))
    if request.columns or request.tokens:
        _check_lengths(request, len(rollout.tokens), lang)
        rollout = _with_numbers(request, rollout)
    rollout = _supposing(request, rollout)
    if request.pair:
        rollout = replace(rollout, prompt=request.pair[0], response=request.pair[1])
    settings = {name: value for name, value in request.settings.items() if name not in ("clip", "after")}
    if "clip" in request.settings:
        settings |= {"clip_low": request.settings["clip"], "clip_high": request.settings["clip"]}
    if "after" in request.settings:
        rollout = replace(rollout, bootstrap=request.settings["after"])
    return example.changed(rollout, None, **settings)


_FROM = re.compile(
    r"(?:从|由|\bfrom)\s*([-−+]?(?:\d+\.?\d*|\.\d+)(?:e-?\d+)?)\s*(?:[调改变升降加减提增大小高低]{0,3}\s*(?:到|成|为|至)|\bto\b)",
    re.IGNORECASE,
)


def started_from(request: Request, rollout: Rollout) -> Rollout:
    """What a change begins with: "β from 0.001 to 0.1" does not begin with the example's."""
    start = _FROM.search(request.text)
    names = [name for name in request.settings if name in ("gamma", "lam", "beta", "clip")]
    if start is None or len(names) != 1 or request.columns:
        return rollout
    number, (symbol, least, largest, _) = float(start[1].replace("−", "-")), _RANGES[names[0]]
    if not least <= number <= largest:
        return rollout
    settings = {"clip_low": number, "clip_high": number} if symbol == "ε" else {names[0]: number}
    return example.changed(rollout, None, **settings)


def _supposing(request: Request, rollout: Rollout) -> Rollout:
    """With the numbers that are supposed; what is said of rewards is meant of the scores where there are any."""
    slots, columns = reference.chosen(rollout.columns["response_mask"]), dict[str, list[float]]()
    for one in request.supposed:
        names = ("values",) if one.column == "values" else ("scores", "rewards")
        name = next((name for name in names if name in rollout.columns), None)
        made = None if name is None else one.applied([x or 0.0 for x in rollout.columns[name]], slots)
        if name is not None and made is not None:
            columns[name] = made
    if not columns:
        return rollout
    stale = {"new_values"} if "values" in columns else set()
    kept = {name: column for name, column in rollout.columns.items() if name not in stale}
    return example.changed(replace(rollout, columns=kept), columns)


def _check_lengths(request: Request, count: int, lang: str) -> None:
    lengths = {name: len(row) for name, row in request.columns.items()}
    if request.tokens:
        lengths["tokens"] = len(request.tokens)
    if len(set(lengths.values())) > 1:
        counts = [sentence("tutor.count_of", lang, name=name, count=n) for name, n in lengths.items()]
        joined = ("，" if lang == "zh" else ", ").join(counts)
        raise Impossible(sentence("tutor.uneven", lang, counts=joined))
    length = next(iter(lengths.values()))
    if length != count and not any(names <= set(lengths) for names in _WHOLE):
        raise Impossible(sentence("tutor.other_count", lang, count=count, names=", ".join(lengths), given=length))


def _with_numbers(request: Request, old: Rollout) -> Rollout:
    """An example of the typed numbers; where the count of tokens is the same, with what they leave true of the old."""
    typed = request.columns
    length = len(request.tokens or next(iter(typed.values())))
    same = length == len(old.tokens)
    kept: dict[str, list[float]] = {}
    if same:
        kept["response_mask"] = list(old.columns["response_mask"])
        gone = set(typed).union(*(_UNTRUE.get(name, set()) for name in typed))
        if "scores" in old.columns and "scores" not in gone:
            gone.add("rewards")  # they follow from the scores
        kept |= {
            name: [0.0 if x is None else x for x in old.columns[name]]
            for name in _MEASURED
            if name in old.columns and name not in gone
        }
    named = same and old.has_texts and (request.pair is None or request.pair[1] == old.response)
    tokens = request.tokens or ([token.text for token in old.tokens] if named else None)
    made = example.typed(
        kept | typed,
        tokens=tokens,
        prompt=old.prompt if same else "",
        after=old.bootstrap if same else 0.0,
        **old.settings.as_dict(),
    )
    return made if tokens else replace(made, response=" ".join(token.text for token in made.tokens))
