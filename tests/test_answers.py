"""The tutor's answers: every number in them is what the twins compute, and both languages are complete."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from answer_numbers import NUMBER, Known, equations, random_rollout, said, unknown_numbers, wrong_columns

import mingce
from mingce.explain import example
from mingce.explain.account_texts import LEVELS
from mingce.explain.answer import missing, topic_answer
from mingce.explain.code_refs import resolve
from mingce.explain.topic import Topic, values_of
from mingce.explain.topics import TOPICS

PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
CHINESE = re.compile(r"[一-鿿]")
SEEDS: dict[str, Callable[[], example.Rollout]] = {
    "worked": example.worked,
    "three tokens": lambda: example.typed({"rewards": [0, 0, 1], "values": [0.3, 0.4, 0.6]}),
    "lambda 1": lambda: example.typed({"rewards": [0, 0, 1], "values": [0.3, 0.4, 0.6]}, lam=1.0),
    "discounted": lambda: example.typed(
        {"rewards": [-0.01, -0.005, -0.01, -0.015, -0.02, 0.995], "values": [0.2, 0.25, 0.3, 0.35, 0.45, 0.6]},
        gamma=0.99,
    ),
    "003": lambda: example.typed(
        {
            "old_log_probs": [-0.12, -0.08, -0.15, -0.10, -0.05, -0.02],
            "ref_log_probs": [-0.15, -0.10, -0.18, -0.12, -0.08, -0.03],
            "scores": [0, 0, 0, 0, 0, 1],
            "values": [0.82, 0.85, 0.88, 0.90, 0.92, 0.95],
        },
        beta=0.01,
    ),
}


def wrong_numbers(
    everything: Known, topic: Topic, told: list[tuple[str, str]]
) -> dict[tuple[str, str, str], list[str]]:
    """What the answers at these levels and in these languages say that is not so.

    Nothing where the rollout lacks something and the worked example is told of instead.
    """
    known, rollout = everything.of(topic), everything.rollout
    wrong = {}
    for level, lang in told:
        if missing(topic, rollout, None, level, lang):
            continue
        answer = topic_answer(topic, rollout, None, level, lang, [])
        text = said(answer)
        found = (
            unknown_numbers(text, known)
            + wrong_columns(answer, rollout)
            + [equation for equation, holds in equations(text) if not holds]
        )
        if found:
            wrong[topic.id, level, lang] = found
    return wrong


@pytest.mark.parametrize("name", SEEDS)
def test_every_number_about_the_seeds_examples_is_the_twins(name: str) -> None:
    everything, wrong = Known(SEEDS[name]()), dict[tuple[str, str, str], list[str]]()
    for topic in TOPICS.values():
        told = [(key, lang) for key in (*LEVELS, *topic.parts) for lang in ("zh", "en")]
        wrong |= wrong_numbers(everything, topic, told)
    assert wrong == {}


@pytest.mark.parametrize("seed", range(50))
def test_every_number_about_a_random_rollout_is_the_twins(seed: int) -> None:
    everything, wrong = Known(random_rollout(seed)), dict[tuple[str, str, str], list[str]]()
    for place, topic in enumerate(
        TOPICS.values()
    ):  # the languages by turns: they have the same placeholders, see below
        keys = (*LEVELS, *topic.parts)
        told = [(key, ("zh", "en")[(seed + place + shift) % 2]) for shift, key in enumerate(keys)]
        wrong |= wrong_numbers(everything, topic, told)
    assert wrong == {}


def test_most_topics_are_told_of_a_random_rollout_and_not_of_the_worked_example() -> None:
    told = Counter(not missing(topic, random_rollout(3), None, "engineer", "en") for topic in TOPICS.values())
    assert told == {True: len(TOPICS)}


def test_a_wrong_number_is_found() -> None:
    rollout, found, planted = example.worked(), 0, 0
    everything = Known(rollout)
    for topic in TOPICS.values():
        known = everything.of(topic)
        text = said(topic_answer(topic, rollout, None, "engineer", "en", []))
        for match in list(NUMBER.finditer(text)):
            if len(match[0].partition(".")[2]) == 4 and "×" not in match[0]:
                wrong = f"{match[0][:-2]}{(int(match[0][-2]) + 3) % 10}{match[0][-1]}"
                spoilt = text[: match.start()] + wrong + text[match.end() :]
                planted += 1
                found += bool(unknown_numbers(spoilt, known)) or any(not holds for _, holds in equations(spoilt))
    assert planted > 300
    assert found / planted > 0.95


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("δ_5 = 0.995 + 1·0 − 0.6 = 0.395", True),
        ("δ_5 = 0.995 + 1·0 − 0.6 = 0.385", False),
        ("A = −0.02 − (−0.07) = 0.05", True),
        ("ρ = exp(−0.12 − (−0.22)) = 1.1052", True),
        ("(0.6 − 0.5)² = 0.02", False),
    ],
)
def test_an_equation_is_evaluated(text: str, holds: bool) -> None:
    assert [found for _, found in equations(text)] == [holds]


def test_answers_hold_many_equations() -> None:
    texts = [said(topic_answer(t, example.worked(), None, "proof", "zh", [])) for t in TOPICS.values()]
    assert sum(1 for text in texts for _ in equations(text)) > 60


# ── both languages, complete ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("topic", TOPICS.values(), ids=TOPICS.keys())
def test_a_topic_is_complete_in_both_languages(topic: Topic) -> None:
    assert len(topic.words) == len(LEVELS)
    for zh, en in (topic.title, *topic.words):
        assert CHINESE.search(zh)
        assert en.strip()
        assert not CHINESE.search(en)
    for zh, en in topic.words:
        assert len(CHINESE.findall(zh)) > 40
        assert len(en.split()) > 30
        assert set(PLACEHOLDER.findall(zh)) == set(PLACEHOLDER.findall(en))
        numbers = [Counter(NUMBER.findall(PLACEHOLDER.sub("", text))).keys() - {"0", "1", "2"} for text in (zh, en)]
        assert numbers[0] == numbers[1]
    zh_asked, en_asked = topic.asked
    assert len(zh_asked) >= 4
    assert len(en_asked) >= 4
    assert not any(CHINESE.search(phrase) for phrase in en_asked)


@pytest.mark.parametrize("topic", TOPICS.values(), ids=TOPICS.keys())
def test_a_topics_placeholders_resolve(topic: Topic) -> None:
    rollout = example.worked()
    values = values_of(topic, rollout, 0)
    for text in (*(text for pair in topic.words for text in pair), topic.each):
        assert [name for name in PLACEHOLDER.findall(text) if values.get(name) is None] == []
    for lang in ("zh", "en"):
        for level in LEVELS:
            answer = topic_answer(topic, rollout, None, level, lang, [])
            assert not PLACEHOLDER.search(said(answer).replace(topic.formula, ""))
            assert "built-in" not in answer.about
    if topic.grid is not None and len(topic.grid(rollout, 0).rows):
        assert len({len(row) for row in topic.grid(rollout, 0).rows} | {len(topic.grid(rollout, 0).headings)}) == 1


@pytest.mark.parametrize("topic", TOPICS.values(), ids=TOPICS.keys())
def test_a_topics_code_and_relations_resolve(topic: Topic) -> None:
    root = Path(mingce.__file__).parent.parent
    for name in topic.code:
        ref = resolve(name)
        line = (root / ref.file).read_text(encoding="utf-8").splitlines()[ref.line - 1]
        assert re.match(rf"\s*(async )?(def|class) {name.rpartition('.')[2]}\b", line)
    assert set(topic.related) <= set(TOPICS)
    assert topic.id not in topic.related


def test_the_english_answers_speak_no_chinese_but_the_examples_own() -> None:
    rollout = example.typed(
        {
            "scores": [0, 0, 1],
            "old_log_probs": [-1, -2, -3],
            "ref_log_probs": [-1.1, -2, -2.5],
            "values": [0.3, 0.4, 0.6],
        }
    )
    for topic in TOPICS.values():
        for level in LEVELS:
            answer = topic_answer(topic, rollout, None, level, "en", [TOPICS[one] for one in topic.related])
            assert not CHINESE.search(said(answer) + answer.title), (topic.id, level)
