"""The claims of a question, each with its verdict: equations evaluated, numbers recomputed, statements looked up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from mingce.explain import example
from mingce.explain.account import substituted
from mingce.explain.answer import Judgement
from mingce.explain.equations import EquationVerdict, judge_equations
from mingce.explain.question.clauses import Claim, claims_of
from mingce.explain.question.facts import LIGHT, methods, says_something
from mingce.explain.question.frames import read_frame
from mingce.explain.question.propositions import Proposition, clearly_about, reading_of, said_in, statement, verdict_of
from mingce.explain.topic import values_of
from mingce.explain.topics import TOPICS
from mingce.record.rollout import Rollout

_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
LONGEST_QUOTE, MOST, SHORTEST = 120, 6, 6
_CODE = re.compile(r"\btorch\.|\bnp\.|\bself\.|;\s*\w+\s*=|\bresponse_mask\b|\bkld\b")
_CASE = re.compile(r"[<>≤≥≠]|= [−-]?[\d.]+$")
_INEQUALITY = re.compile(r"[<>≤≥≠]")
_BESIDE = re.compile(r"[,，且时]|\b(?:and|once|when|if)\b", re.IGNORECASE)
_SENTENCES = re.compile(r"(?<=[。！？!?；;\n])|(?<=\.)(?<!\b[Dd]r\.)(?<!\bvs\.)(?<!\be\.g\.)(?<!\bi\.e\.)\s+")
_VERDICT_WORD = re.compile(r"^(?:right|wrong|half right|对|不对|一半对)\s*[,:.，：。]\s*", re.IGNORECASE)
_CLAUSES = re.compile(r"[，,；;]|\bwhere\b|\band\b(?! (?:the |a )?\w+\b(?:[.?!]|$))|其中|并且|而且", re.IGNORECASE)
_TAGS = re.compile(
    r"[，,]?\s*(?:我的?理解)?(?:这样)?(?:是)?(?:对吗|对么|对不对|对吧|正确[吗么]|是吗|是吧|没错吧|right|correct|"
    r"isn'?t it|am i (?:right|correct))?\s*[?？。.!！]*\s*$",
    re.IGNORECASE,
)


def judgements(
    text: str, rollout: Rollout, t: int, lang: str, *, asked: bool = False
) -> tuple[list[Judgement], list[str]]:
    """Every claim that can be judged, in the text's order, and the topics of the statements that were recognised.

    If it is only `asked` whether something is so, what a fact decides is answered with yes or no.
    """
    judged: list[Judgement] = []
    topics: list[str] = []
    frame = read_frame(text)
    if frame.named("report") and not frame.named("tag"):
        return [], []  # what somebody sees in a log is no statement about PPO
    for before, sentence in pairwise(["", *_claims(text)]):
        equations = [] if _CODE.search(text) else judge_equations(sentence, rollout, lang)
        equations = [one for one in equations if not _is_case(one, sentence)]
        claims = [] if read_frame(sentence).named("report", "question") else claims_of(sentence, before)
        if any(claim.finding for claim in claims):  # "where A < 0" is a condition
            equations = [one for one in equations if not _INEQUALITY.search(one.equation)]
        judged += [_judged_equation(one, lang) for one in equations]
        for judgement, topic in _in_words(sentence, claims, rollout, t, lang, equations=bool(equations), asked=asked):
            judged.append(replace(judgement, asked=asked))
            topics += [topic] if topic else []
    unique = {(one.verdict, one.reason or one.quote): one for one in reversed(judged)}
    return list(unique.values())[::-1][:MOST], topics


def _is_case(one: EquationVerdict, sentence: str) -> bool:
    """Whether "A < 0" or "V = 0" only says which case is spoken of: in a question, or beside something else."""
    asks = read_frame(sentence).named("question", "whether") or sentence.rstrip("？?。 ").endswith(("吗", "么"))
    beside = _INEQUALITY.search(one.equation) and _BESIDE.search(sentence)
    return bool(_CASE.search(one.equation)) and bool(asks or beside)


def claims_in(text: str) -> list[Claim]:
    """The clauses of a text, each with the fact that decides it."""
    sentences = ["", *_claims(text)]
    return [claim for before, sentence in pairwise(sentences) for claim in claims_of(sentence, before)]


def _in_words(
    sentence: str, claims: list[Claim], rollout: Rollout, t: int, lang: str, *, equations: bool, asked: bool
) -> Iterator[tuple[Judgement, str]]:
    """The claims that a sentence makes in words, with the topics they belong to: by structure first, else looked up."""
    if asked and not all(claim.finding for claim in claims if len(_TAGS.sub("", claim.text)) >= SHORTEST):
        return
    if equations:
        claims = [claim for claim in claims if not judge_equations(claim.text, rollout, lang)]
    if not claims:
        return
    if not any(claim.finding for claim in claims):
        looked_up = [] if asked else _statements(sentence, rollout, lang, has_equations=equations)
        for clause, proposition in looked_up:
            yield _judge(clause, proposition, rollout, t, lang), proposition.topic
        return
    for claim in claims:
        if claim.finding is not None:
            fact = claim.finding.fact
            reason = _reason(fact.reasons, fact.topic, rollout, t, lang)
            yield Judgement(short_quote(claim.text), claim.finding.verdict, reason), fact.topic
        elif not asked and _stands_alone(claim.text) and (known := statement(claim.text)) is not None:
            judgement = _judge(claim.text, known, rollout, t, lang)
            yield (_unjudged(claim.text) if judgement.near else judgement), known.topic
        elif not asked and says_something(read_frame(claim.text)):
            yield _unjudged(claim.text), ""


def _stands_alone(text: str) -> bool:
    """Whether a clause says something of a thing, or that two are the same."""
    frame = read_frame(text)
    things, said = frame.things(), [item for item in frame.items if item.pole]
    return bool(things) and (any(item.name != "is" for item in said) or (bool(said) and len(things) > 1))


def _unjudged(text: str) -> Judgement:
    """A part of a sentence without a verdict, named so that no other part's is taken for its."""
    return Judgement(short_quote(text), "half", "", near=True)


def _statements(text: str, rollout: Rollout, lang: str, *, has_equations: bool) -> list[tuple[str, Proposition]]:
    """The statements of a sentence: of its clauses where several make one each, else of the whole.

    What an equation of the sentence says already is not said again.
    """
    clauses = [clause.strip() for clause in _CLAUSES.split(text) if len(_TAGS.sub("", clause).strip()) >= SHORTEST]
    if has_equations:
        clauses = [clause for clause in clauses if not judge_equations(clause, rollout, lang)]
    parts = [(clause, one) for clause in clauses if (one := statement(clause)) is not None] if len(clauses) > 1 else []
    parts = list({one.id: (clause, one) for clause, one in reversed(parts)}.values())[::-1]
    parts = [(clause, one) for clause, one in parts if _stands_alone(clause)]
    if len(parts) > 1 or has_equations:
        return parts
    whole = statement(text)
    found = [(text, whole)] if whole is not None else parts
    return [(clause, one) for clause, one in found if _stands_alone(clause)]


def _judged_equation(one: EquationVerdict, lang: str) -> Judgement:
    lines = ("；" if lang == "zh" else "; ").join(one.lines)
    text = _VERDICT_WORD.sub("", one.text)  # it is said in front of the quote already
    return Judgement(one.equation, one.status, f"{text[:1].upper()}{text[1:]} {lines}".strip())


def _claims(text: str) -> list[str]:
    """The sentences of a text; those that only ask whether it is right are no claims."""
    return [part for part in (piece.strip() for piece in _SENTENCES.split(text)) if len(_TAGS.sub("", part)) > 3][:24]


def _judge(text: str, proposition: Proposition, rollout: Rollout, t: int, lang: str) -> Judgement:
    reason = _reason(proposition.reasons, proposition.topic, rollout, t, lang)
    quote = short_quote(text)
    reading = reading_of(text, proposition, lang)
    if not clearly_about(text, proposition) or not _speaks_alike(text, proposition, reading):
        return Judgement(quote, proposition.verdict, reason, said_in(proposition, text, lang), near=True)
    return Judgement(quote, verdict_of(text, proposition), reason, "" if _plain(reading) == _plain(quote) else reading)


def _speaks_alike(text: str, proposition: Proposition, reading: str) -> bool:
    """Whether a claim mentions what the statement's phrasings do, no other thing, and claims as much as `reading`."""
    frame, nearest = read_frame(text), read_frame(reading)
    known: set[str] = set(LIGHT)
    for phrase in (*proposition.said, *proposition.denied):
        known |= read_frame(phrase).things()
    same_methods = nearest.things() & methods() <= frame.things()
    marks = [{one.name for one in each.items} & {"only", "can", "not_always"} for each in (frame, nearest)]
    return not (frame.things() - known) and same_methods and marks[0] == marks[1] and not frame.named("question")


def _reason(reasons: tuple[str, str], topic_id: str, rollout: Rollout, t: int, lang: str) -> str:
    """The reason with the rollout's numbers, or the worked example's where it lacks some."""
    words, topic = reasons[0 if lang == "zh" else 1], TOPICS[topic_id]
    names = set(_PLACEHOLDER.findall(words))
    if all(name in rollout.columns for name in topic.needs):
        values = values_of(topic, rollout, t)
        if all(values.get(name) is not None for name in names):
            return substituted(words, values)
    return substituted(words, values_of(topic, example.worked(), 0))


def short_quote(text: str) -> str:
    """A claim as it is quoted: without the question at its end, not endless."""
    text = " ".join(_TAGS.sub("", text).split()).strip("。，,.;； ")
    return text if len(text) <= LONGEST_QUOTE else text[:LONGEST_QUOTE].rstrip() + " …"


def _plain(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).lower()
