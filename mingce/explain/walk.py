"""The walk through all stages of a rollout's account, from scores to losses, as plain data for any renderer.

A stage arrives at one column. It has the formula, the columns that enter it, every walked token's numbers put into it
with a short meaning, one token told at length at the chosen level, and the functions that compute it. The texts are
those of a token's account; the numbers are the ledger's where the float64 twins agree with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mingce.explain.account import RESULTS, SMALL, Values, applies, case_of, substituted, token_values
from mingce.explain.account_texts import FLAT, LEVELS, SECTIONS, Section, case_text, own_section
from mingce.explain.code_refs import CodeRef
from mingce.explain.stages import STAGES, code_of, missing, unknown
from mingce.explain.walk_texts import SCORES, SHORT, VALUES, label
from mingce.progress.tokens import END, visible
from mingce.record.rollout import Rollout

MOST, EACH = 40, 8
"""A terminal shows up to MOST tokens of a response; of a longer one EACH at both ends and EACH with the largest |A|."""


@dataclass(frozen=True)
class Line:
    """One token's numbers in the stage's formula, and what they mean for it."""

    t: int
    token: str
    substituted: str
    meaning: str
    recorded: float | None
    computed: float | None
    agrees: bool


@dataclass(frozen=True)
class Stage:
    """One step of the walk. `words` tell the most telling token's account at the walk's level.

    `skipped` says why there is nothing to show; `remark` why numbers are listed but not put into the formula.
    """

    id: str
    title: str
    formula: str
    columns: Mapping[str, Sequence[float | None]]
    lines: tuple[Line, ...]
    words: str
    code: tuple[CodeRef, ...]
    skipped: str | None = None
    remark: str | None = None


@dataclass(frozen=True)
class Walk:
    """All stages. `slots` are the tokens shown, in order, and `tokens` their texts.

    When it is the walk through one `token`'s account, only that one has lines, and `opening` tells its state.
    """

    rollout: Rollout
    lang: str
    level: str
    slots: tuple[int, ...]
    tokens: Mapping[int, str]
    stages: tuple[Stage, ...]
    token: int | None = None
    opening: str = ""
    notes: tuple[str, ...] = ()

    @property
    def wrongs(self) -> int:
        """How many numbers of the ledger the twins do not confirm."""
        return sum(not line.agrees for stage in self.stages for line in stage.lines)


def walk(
    rollout: Rollout,
    level: str = "engineer",
    lang: str = "zh",
    *,
    token: int | None = None,
    slots: Sequence[int] | None = None,
    notes: Sequence[str] = (),
) -> Walk:
    """The walk over `slots` (all if left out), or, with `token`, through one token's account in depth."""
    assert level in LEVELS, level
    rollout = _legible(rollout)
    kept = set(range(len(rollout.tokens)) if slots is None else slots) | ({token} if token is not None else set())
    accounts = {t: token_values(rollout, t) for t in sorted(kept)}
    stages = tuple(_stage(name, rollout, accounts, level, lang, token) for name in STAGES)
    opening = "" if token is None else _opening(rollout, token, accounts[token][0], level, lang)
    tokens = {t: str(values["token"]) or END for t, (values, _) in accounts.items()}
    return Walk(rollout, lang, level, tuple(accounts), tokens, stages, token, opening, tuple(notes))


def telling_slots(rollout: Rollout) -> tuple[int, ...]:
    """All slots of a response that fits a terminal; of a long one both ends and where most credit is."""
    count = len(rollout.tokens)
    if count <= MOST:
        return tuple(range(count))
    kept = {*range(EACH), *range(count - EACH, count)}
    credit = rollout.columns.get("advantages") or [None] * count
    rest = sorted((t for t in range(count) if t not in kept and credit[t] is not None), key=lambda t: -abs(credit[t]))
    return tuple(sorted({*kept, *rest[:EACH]}))


# ── a stage ──────────────────────────────────────────────────────────────────────────────────────────────────────────

Accounts = Mapping[int, tuple[Values, Mapping[str, float | None]]]


def _stage(name: str, rollout: Rollout, accounts: Accounts, level: str, lang: str, token: int | None) -> Stage:
    section_id, inputs = STAGES[name]
    if name == "policy_loss" and "whitened_advantages" not in rollout.columns:
        inputs = ("ratio", "advantages")
    lines, sections = [], {}
    for t, (values, recorded) in accounts.items():
        section = _section(section_id, rollout, values)
        if section is not None:
            sections[t] = section
            lines.append(_line(name, section, rollout, t, values, recorded, level, lang))
    columns = {one: _chosen(rollout, one) for one in (*inputs, name) if one in rollout.columns}
    if name not in columns and lines:  # not kept in the ledger, but it follows from what is
        found = {line.t: line.computed for line in lines}
        columns[name] = [found.get(t) for t in range(len(rollout.tokens))]
    chosen = [t for t, (values, _) in accounts.items() if values["chosen"]]
    skipped = None if name in columns else missing(name, rollout, lang)
    remark = unknown(name, rollout, lang) if skipped is None and chosen and not lines else None
    section = next(iter(sections.values())) if sections else _any_section(section_id, rollout)
    if token is not None:
        lines = [line for line in lines if line.t == token]
    words = ""
    if lines and not skipped:
        told = max(lines, key=lambda line: abs(line.computed or 0.0)).t
        words = _words(sections[told], rollout, told, accounts[told][0], level, lang, whole=token is not None)
        if token is not None and section_id not in SHORT:  # the words end with it
            lines = [replace(line, meaning="") for line in lines]
    title = section.title[0 if lang == "zh" else 1]
    code = () if skipped else code_of(name, rollout)
    return Stage(name, title, section.formula, {} if skipped else columns, tuple(lines), words, code, skipped, remark)


def _chosen(rollout: Rollout, name: str) -> list[float | None]:
    """A column without whatever stands on tokens that the policy did not choose."""
    return [x if m else None for x, m in zip(rollout.columns[name], rollout.columns["response_mask"], strict=True)]


def _section(section_id: str, rollout: Rollout, values: Values) -> Section | None:
    """The section that this token's account has; None on a hole or where a number is missing."""
    own = {"scores": SCORES, "values": VALUES}.get(section_id)
    candidates = (own,) if own is not None else (s for s in SECTIONS if s.id == section_id)
    return next((s for s in candidates if values["chosen"] and applies(s, rollout, values)), None)


def _any_section(section_id: str, rollout: Rollout) -> Section:
    """A section to head a stage that has no numbers: that of the estimator or loss where it is known."""
    own = {"scores": SCORES, "values": VALUES}.get(section_id)
    candidates = [s for s in SECTIONS if s.id == section_id] if own is None else [own]
    settings = rollout.settings.as_dict()
    fitting = [
        s
        for s in candidates
        if (s.estimators is None or settings.get("estimator") in s.estimators)
        and (s.losses is None or settings.get("policy_loss") in s.losses)
    ]
    name = settings.get("estimator" if section_id == "advantage" else "policy_loss")
    if not fitting and section_id in ("advantage", "policy") and name:
        return own_section(section_id, name)
    return (fitting or candidates)[0]


def _line(
    name: str,
    section: Section,
    rollout: Rollout,
    t: int,
    values: Values,
    recorded: Mapping[str, float | None],
    level: str,
    lang: str,
) -> Line:
    result = RESULTS[section.id][0] if section.id in RESULTS else {"scores": "score", "values": "value"}[section.id]
    computed = values.get(f"computed_{result}", values.get(result))
    return Line(
        t,
        str(values["token"]) or END,
        substituted(section.numbers, values, formula=True),
        _short(section, rollout, t, values, level, lang),
        recorded.get(name),
        computed,
        bool(values.get(f"agrees_{result}", True)),
    )


def _short(section: Section, rollout: Rollout, t: int, values: Values, level: str, lang: str) -> str:
    """The sentence for the case at hand."""
    rule, cases = SHORT.get(section.id, (section.case_of, section.cases))
    pair = case_text(cases, _case(rule, rollout, t, values), level)
    return substituted(pair[0 if lang == "zh" else 1], values) if pair else ""


def _words(section: Section, rollout: Rollout, t: int, values: Values, level: str, lang: str, *, whole: bool) -> str:
    """The section at a level; in a whole account with what follows the token, otherwise said of an example."""
    language, which = 0 if lang == "zh" else 1, LEVELS.index(level)
    words = section.words[which][language]
    name = _case(section.case_of, rollout, t, values)
    case = case_text(section.cases, name, level)
    if case and (whole or name == FLAT):  # words about a surprise must not stand alone where there is none
        words += (" " if lang == "en" else "") + case[language]
    text = substituted(words, values, plain=level == "child")
    if not whole:
        lead = label("derivation" if level == "proof" else "for_example", lang, token=values["token"], t=t)
        return lead + (" " if lang == "en" else "") + text
    if section.id == "delta":
        after = _section("end", rollout, values)
        if after is not None:
            text += "\n\n" + _words(after, rollout, t, values, level, lang, whole=True)
    return text


def _opening(rollout: Rollout, t: int, values: Values, level: str, lang: str) -> str:
    section_id = "state" if values["chosen"] else "not_chosen"
    section = next(s for s in SECTIONS if s.id == section_id and applies(s, rollout, values))
    return substituted(section.words[LEVELS.index(level)][0 if lang == "zh" else 1], values, plain=level == "child")


def _case(rule: str | None, rollout: Rollout, t: int, values: Values) -> str | None:
    if rule == "rises":
        if values["flat"]:
            return FLAT
        after = values.get("next_value")
        if values["next_token"] is None:
            return "bootstrapped" if rollout.bootstrap else "ended"
        return None if after is None else _direction(after - values["value"])
    if rule == "target":
        return _direction(values["return"] - values["value"])
    if rule == "fit":
        return case if (case := case_of("value", rollout, t, values)) == "clipped" else _direction(
            values["return"] - values["new_value"]
        )  # fmt: skip
    return case_of(rule, rollout, t, values)


def _direction(gap: float) -> str:
    return "same" if abs(gap) < SMALL else "up" if gap > 0 else "down"


def _legible(rollout: Rollout) -> Rollout:
    """With texts that can be shown: what a model says may hold anything, control characters and backticks included."""

    def harmless(text: str) -> str:
        return visible(text).replace("`", "ˋ")  # ours stand around formulas

    tokens = [replace(token, text=harmless(token.text)) for token in rollout.tokens]
    prompt, question, response = map(harmless, (rollout.prompt, rollout.question, rollout.response))
    return replace(rollout, tokens=tokens, prompt=prompt, question=question, response=response)
