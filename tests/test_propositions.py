"""The statements the tutor judges: their file, their polarity, and claims in people's own words (claims.tsv)."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mingce.base.lang import LANGS
from mingce.base.texts import listed, named, texts
from mingce.explain.account import substituted
from mingce.explain.example import worked
from mingce.explain.question.classifier import OTHER, expanded, load
from mingce.explain.question.features import features
from mingce.explain.question.propositions import (
    VERDICTS,
    Proposition,
    denies,
    orientation,
    propositions,
    statement,
    turned,
    verdict_of,
    without_polarity,
    wording,
)
from mingce.explain.topic import values_of
from mingce.explain.topics import TOPICS

OPPOSITE = {"right": "wrong", "wrong": "right", "half": "half"}
CLAIMS = [
    line.split("\t")
    for line in (Path(__file__).parent / "claims.tsv").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


def phrasings() -> list[tuple[str, Proposition, bool]]:
    """Every phrase, its statement, and whether it denies it."""
    return [
        (phrase, proposition, denied)
        for proposition in propositions().values()
        for phrases, denied in ((proposition.said, False), (proposition.denied, True))
        for phrase in phrases
    ]


def verdict(proposition: Proposition, denied: bool) -> str:
    return OPPOSITE[proposition.verdict] if denied else proposition.verdict


# ── the file ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_both_languages_have_the_same_statements() -> None:
    zh, en = (texts("propositions", lang) for lang in LANGS)
    assert list(zh) == list(en)
    for key in zh:
        if key.endswith(".about"):
            assert named(zh[key]) == named(en[key]), key


def test_there_are_many_statements_of_every_verdict() -> None:
    counts = Counter(proposition.verdict for proposition in propositions().values())
    assert set(counts) == set(VERDICTS)
    assert sum(counts.values()) >= 120
    assert min(counts.values()) >= 25


@pytest.mark.parametrize("lang", LANGS)
def test_every_statement_is_said_and_denied_in_several_ways(lang: str) -> None:
    file = texts("propositions", lang)
    for name in propositions():
        for way in ("said", "denied"):
            phrases = listed(file[f"{name}.{way}"])
            assert len(phrases) >= 5, (name, way)
            assert len(set(phrases)) == len(phrases), (name, way)


def test_no_phrase_says_two_things() -> None:
    sides = defaultdict(set)
    for phrase, proposition, denied in phrasings():
        sides[phrase].add((proposition.id, denied))
    assert not {phrase: side for phrase, side in sides.items() if len(side) > 1}


def test_reasons_name_only_what_their_topic_computes() -> None:
    rollout = worked()
    for proposition in propositions().values():
        values = values_of(TOPICS[proposition.topic], rollout, 1)
        for reason in proposition.reasons:
            missing = set(_PLACEHOLDER.findall(reason)) - set(values)
            assert not missing, (proposition.id, missing)
            assert "{" not in re.sub(r"_\{[^}]*\}|\^\{[^}]*\}", "", substituted(reason, values)), proposition.id


# ── polarity ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_phrase_gets_its_own_verdict() -> None:
    wrong = [phrase for phrase, one, denied in phrasings() if verdict_of(phrase, one) != verdict(one, denied)]
    assert not wrong


SAME = [
    ("λ 越大方差越大", "λ 越小方差越小"),
    ("the larger lambda the larger the variance", "a smaller lambda means less variance"),
    ("GRPO 需要 critic", "GRPO 不是不需要 critic"),
    ("优势就是 δ", "优势不就是 δ 吗"),
    ("V 和 Q 一样", "难道 V 和 Q 不是一样的吗"),
    ("GAE is unbiased", "isn't GAE unbiased?"),
    ("the critic is frozen", "the critic is frozen, isn't it"),
    ("奖励是动作的", "奖励是动作的而不是状态的"),
]
OPPOSED = [
    ("λ 越大方差越大", "λ 越小方差越大"),
    ("raising lambda increases the variance", "raising lambda lowers the variance"),
    ("GRPO needs a critic", "GRPO works without a critic"),
    ("GRPO needs a critic", "GRPO no longer needs a critic"),
    ("returns 用白化之前的优势", "returns 用白化之后的优势"),
    ("λ=1 就是蒙特卡洛", "λ=0 就是蒙特卡洛"),
    ("dual clip is for positive advantages", "dual clip is for negative advantages"),
    ("PPO is on-policy", "PPO is off-policy"),
    ("returns belong to the state", "returns belong to the action"),
    ("GAE is biased", "GAE is unbiased"),
    ("ref and old policy are the same", "ref and old policy are different"),
    ("V_t 是落子之前的估计", "V_t 是落子之后的估计"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_texts_that_say_the_same_are_not_turned(one: str, other: str) -> None:
    assert not turned(orientation(one), orientation(other))


@pytest.mark.parametrize(("one", "other"), OPPOSED)
def test_texts_that_say_the_opposite_are_turned(one: str, other: str) -> None:
    assert turned(orientation(one), orientation(other))


def test_a_comparison_the_other_way_round_is_the_opposite() -> None:
    proposition = propositions()["gae_less_variance_than_mc"]
    assert verdict_of("GAE is far noisier than Monte Carlo", proposition) == "wrong"
    assert verdict_of("Monte Carlo is far noisier than GAE", proposition) == "right"


# ── leaving a phrase out ─────────────────────────────────────────────────────────────────────────────────────────────


def kinships(rows: list[frozenset[str]]) -> Any:
    """The cosine of every two phrases' features, rare ones weighing more; 0 of a phrase with itself."""
    counts = Counter(name for row in rows for name in row)
    places = {name: k for k, name in enumerate(counts)}
    matrix = np.zeros((len(rows), len(places)), np.float32)
    for k, row in enumerate(rows):
        for name in row:
            matrix[k, places[name]] = math.log(len(rows) / counts[name]) ** 0.5
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True) + 1e-9
    cosines = matrix @ matrix.T
    np.fill_diagonal(cosines, 0.0)
    return cosines


def test_the_other_phrases_tell_a_phrase_s_statement_and_verdict() -> None:
    """Without the model: the likest of the other phrases vote for a statement, then for its polarity."""
    everything = phrasings()
    contents = [frozenset(expanded(features(without_polarity(phrase)))) for phrase, _, _ in everything]
    alike = (kinships(contents) + kinships([wording(phrase) for phrase, _, _ in everything])) ** 4
    names = list(propositions())
    member = np.array([[one.id == name for name in names] for _, one, _ in everything], np.float32)
    winners = (alike @ member).argmax(axis=1)
    statements = [names[winner] == one.id for winner, (_, one, _) in zip(winners, everything, strict=True)]
    sides = [
        one.verdict == "half" or denies(phrase, one, without=phrase) == denied for phrase, one, denied in everything
    ]
    shares = [
        sum(x) / len(everything) for x in (statements, sides, [a and b for a, b in zip(statements, sides, strict=True)])
    ]
    print("statement {:.1%}, its verdict {:.1%}, both {:.1%}".format(*shares))
    assert shares[0] >= 0.89
    assert shares[1] >= 0.93
    assert shares[2] >= 0.84


# ── claims in people's own words, each written before it was tried ────────────────────────────────────────────────────


def judged() -> list[tuple[str, str, str, Proposition | None]]:
    """(claim, verdict it deserves, statement it makes, statement recognised)."""
    return [(text, deserved, name, statement(text)) for text, deserved, name in CLAIMS if name != OTHER]


def test_the_claims_name_statements_and_are_no_phrasings() -> None:
    phrases = {phrase for phrase, _, _ in phrasings()}
    for text, deserved, name in CLAIMS:
        assert text not in phrases, text
        assert name == OTHER or {deserved, propositions()[name].verdict} <= {"right", "wrong"} or deserved == "half"
    for chinese in (True, False):
        assert sum((re.search("[一-鿿]", text) is not None) == chinese for text, _, _ in CLAIMS) >= 60


def test_claims_get_their_verdict() -> None:
    assert set(load("claims").classes) == {*propositions(), OTHER}, "run scripts/train_tutor.py"
    failed, opposite = [], []
    for text, deserved, _, one in judged():
        said = verdict_of(text, one) if one else None
        if said != deserved:
            failed.append(text)
        if said and {said, deserved} == {"right", "wrong"}:
            opposite.append(text)
    total = len(judged())
    print(f"{total - len(failed)} of {total}, opposite {opposite}")
    assert len(failed) <= 0.10 * total, failed
    assert len(opposite) <= 0.05 * total, opposite


def test_what_is_none_of_ours_is_not_judged() -> None:
    recognised = {text: one.id for text, _, name in CLAIMS if name == OTHER and (one := statement(text))}
    assert len([name for _, _, name in CLAIMS if name == OTHER]) >= 20
    assert not recognised
