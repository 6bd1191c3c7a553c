"""Tools about one rollout's account: compute it, explain a token, derive a number, judge a text, ask the tutor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from mingce.assistant.subject import (
    About,
    Code,
    Desk,
    Index,
    Lang,
    Level,
    Origin,
    codes,
    expect_token,
    find_subject,
    origin_of,
)
from mingce.base.errors import SettingError
from mingce.base.schema import Limit
from mingce.base.texts import sentence
from mingce.columns import COLUMNS
from mingce.explain.account import account
from mingce.explain.answer_view import markdown as answer_markdown
from mingce.explain.conversation import Conversation
from mingce.explain.markdown import markdown as walk_markdown
from mingce.explain.stages import STAGES, code_of, missing, unknown
from mingce.explain.walk import walk
from mingce.record.rollout import Rollout

LONGEST_TEXT = 200_000
LONGEST_QUESTION = 4000
MOST_QUESTIONS = 40
MOST_SLOTS = 512
"""Tokens of a rollout in one result; a longer one is read in parts."""
LONGEST_QUOTE = 400
Column = Sequence[float | None]


# ── compute ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class ComputeInput(About):
    first: Index = 0


@dataclass(frozen=True)
class Quantity:
    """A column of the account: which one, how it is computed and by which functions."""

    column: str
    symbol: str
    alignment: Literal["action", "state", "row"]
    formula: str
    code: list[Code]


@dataclass(frozen=True)
class Account:
    """Every column that follows from the numbers, for tokens `first` to `first + len(tokens) − 1` of `count`."""

    prompt: str
    tokens: list[str]
    count: int
    first: int
    settings: Mapping[str, Any]
    value_after_last: float
    columns: Mapping[str, Column]
    quantities: list[Quantity]
    origin: Origin


def compute_account(asked: ComputeInput, desk: Desk) -> Account:
    """The whole account of a rollout."""
    subject = find_subject(asked, desk)
    rollout = subject.rollout
    part = slice(asked.first, asked.first + MOST_SLOTS)
    return Account(
        prompt=rollout.prompt,
        tokens=[token.text for token in rollout.tokens][part],
        count=len(rollout.tokens),
        first=asked.first,
        settings={name: value for name, value in rollout.settings.as_dict().items() if value is not None},
        value_after_last=rollout.bootstrap,
        columns={name: numbers_of(column, part) for name, column in rollout.columns.items()},
        quantities=[
            Quantity(name, COLUMNS[name].symbol, COLUMNS[name].alignment, COLUMNS[name].formula, _code(name, rollout))
            for name in STAGES
            if name in rollout.columns
        ],
        origin=origin_of(subject, desk),
    )


def numbers_of(column: Sequence[Any], part: slice) -> list[float | None]:
    """Some of a column's numbers; yes and no are 1 and 0."""
    return [int(x) if isinstance(x, bool) else x for x in column[part]]


def _code(name: str, rollout: Rollout) -> list[Code]:
    return codes(code_of(name, rollout))


# ── explain a token ──────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class ExplainInput(About):
    token: Index
    level: Level = "engineer"
    lang: Lang | None = None


@dataclass(frozen=True)
class Stage:
    """One quantity of the token: its formula with the numbers put in; `skipped` says why there are none."""

    column: str
    title: str
    formula: str
    with_numbers: str
    meaning: str
    recorded: float | None
    computed: float | None
    agrees: bool
    skipped: str | None
    code: list[Code]


@dataclass(frozen=True)
class TokenAccount:
    """Everything about one token, stage by stage, and the same as Markdown to show."""

    token: int
    text: str
    opening: str
    stages: list[Stage]
    markdown: str
    origin: Origin


def explain_token(asked: ExplainInput, desk: Desk) -> TokenAccount:
    """One token's account in depth."""
    subject = find_subject(asked, desk)
    token = expect_token(subject.rollout, asked.token)
    found = walk(subject.rollout, asked.level, desk.language(asked.lang), token=token, slots=[token])
    stages = []
    for name, stage in zip(STAGES, found.stages, strict=True):
        line = next((line for line in stage.lines if line.t == token), None)
        stages.append(
            Stage(
                name,
                stage.title,
                stage.formula,
                line.substituted if line else "",
                " ".join(filter(None, [line.meaning if line else "", stage.words])),
                line.recorded if line else None,
                line.computed if line else None,
                line.agrees if line else True,
                stage.skipped or (stage.remark if line is None else None),
                codes(stage.code),
            )
        )
    text = subject.rollout.tokens[token].text
    return TokenAccount(token, text, found.opening, stages, walk_markdown(found), origin_of(subject, desk, token))


# ── derive a number ──────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class DeriveInput(About):
    quantity: Annotated[str, Limit(most=100, choices=tuple(STAGES))]
    token: Index
    lang: Lang | None = None


@dataclass(frozen=True)
class Derivation:
    """How one number comes about: formula, numbers put in, result, and what the ledger records beside it."""

    quantity: str
    symbol: str
    token: int
    formula: str
    with_numbers: str
    result: float | None
    recorded: float | None
    agrees: bool
    meaning: str
    inputs: Mapping[str, float | None]
    code: list[Code]
    origin: Origin


def derive_number(asked: DeriveInput, desk: Desk) -> Derivation:
    """One number of one token, derived."""
    subject = find_subject(asked, desk)
    rollout, name = subject.rollout, asked.quantity
    token = expect_token(rollout, asked.token)
    lang = desk.language(asked.lang)
    section, inputs = STAGES[name]
    entry = next((entry for entry in account(rollout, token, "engineer", lang) if entry.id == section), None)
    if entry is None:
        why = missing(name, rollout, lang) if name not in rollout.columns else unknown(name, rollout, lang)
        raise SettingError(sentence("assistant.no_derivation", lang, quantity=name, token=token, why=why))
    at = {one: rollout.columns[one][token] for one in inputs if one in rollout.columns}
    listed = rollout.columns[name][token] if name in rollout.columns else None
    return Derivation(
        quantity=name,
        symbol=COLUMNS[name].symbol,
        token=token,
        formula=entry.formula,
        with_numbers=entry.substituted,
        result=entry.computed if entry.computed is not None else listed,
        recorded=listed if subject.kind == "recorded" else None,
        agrees=entry.agrees,
        meaning=entry.meaning,
        inputs=at,
        code=_code(name, rollout),
        origin=origin_of(subject, desk, token),
    )


# ── judge a text ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class CheckInput:
    text: Annotated[str, Limit(most=LONGEST_TEXT)]
    lang: Lang | None = None
    wrong_only: bool = False


@dataclass(frozen=True)
class Claim:
    """A claim of the text and the verdict on it; `right` are the numbers that it should have."""

    status: Literal["right", "wrong", "unknown"]
    line: int
    kind: str
    claim: str
    quote: str
    right: list[list[float]]
    formulas: list[str]
    why: list[str]
    rests_on: list[str]


@dataclass(frozen=True)
class Judgement:
    """How many claims are right, wrong or cannot be checked, and each of them."""

    right: int
    wrong: int
    unknown: int
    claims: list[Claim]


def check_claims(asked: CheckInput, desk: Desk) -> Judgement:
    """The worked numbers and equations of a text, each judged."""
    from mingce.explain.claims.check import check

    report = check(asked.text)
    which = 0 if desk.language(asked.lang) == "zh" else 1
    claims = [
        Claim(
            verdict.status,
            verdict.where.line,
            verdict.kind,
            verdict.claim,
            verdict.where.quote[:LONGEST_QUOTE],
            [list(row) for answer in verdict.right for row in answer.rows],
            list(verdict.formulas),
            [pair[which] for pair in verdict.notes],
            [pair[which] for pair in verdict.basis],
        )
        for verdict in report.verdicts
        if verdict.status == "wrong" or not asked.wrong_only
    ]
    return Judgement(len(report.of("right")), len(report.of("wrong")), len(report.of("unknown")), claims)


# ── ask the tutor ────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class AskInput(About):
    question: Annotated[str, Limit(most=LONGEST_QUESTION)]
    earlier: Annotated[list[Annotated[str, Limit(most=LONGEST_QUESTION)]], Limit(most=MOST_QUESTIONS)] | None = None
    token: Index | None = None
    level: Level = "engineer"
    lang: Lang | None = None


@dataclass(frozen=True)
class Related:
    topic: str
    title: str


@dataclass(frozen=True)
class Taught:
    """The tutor's answer, computed with the rollout's numbers; `topic` is null where it is only a sentence."""

    markdown: str
    topic: str | None
    title: str
    related: list[Related]
    code: list[Code]
    origin: Origin


def ask_tutor(asked: AskInput, desk: Desk) -> Taught:
    """One question, after the earlier ones of the same dialogue."""
    subject = find_subject(asked, desk)
    token = None if asked.token is None else expect_token(subject.rollout, asked.token)
    conversation = Conversation(subject.rollout, lang=asked.lang, level=asked.level, token=token)
    for question in asked.earlier or []:
        conversation.ask(question)
    answer = conversation.ask(asked.question)
    return Taught(
        answer_markdown(answer),
        answer.topic,
        answer.title,
        [Related(topic, title) for topic, title in answer.choices],
        codes(answer.code),
        origin_of(subject, desk, token),
    )
