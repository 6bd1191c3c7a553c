"""Which topic a question is about: the seeds' questions and paraphrases find theirs, other matters are declined."""

from __future__ import annotations

import difflib
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mingce.explain.conversation import Conversation
from mingce.explain.question.classifier import OTHER, Guess, load
from mingce.explain.question.features import features
from mingce.explain.question.request import read_request
from mingce.explain.question.subject import ACCEPTED, guess_topics
from mingce.explain.topics import TOPICS

QUESTIONS: dict[str, Any] = json.loads((Path(__file__).parent / "ask_questions.json").read_text(encoding="utf-8"))
Asked = tuple[Sequence[str], str]
LANGS = ("zh", "en")


def guesses(question: str) -> list[Guess]:
    return guess_topics(read_request(question).subject)


def shares(asked: Iterable[Asked]) -> tuple[float, float]:
    """How many of the questions have an accepted topic first, and above the threshold; and among the first three."""
    first = third = count = 0
    for topics, question in asked:
        best = guesses(question)[:3]
        first += bool(best) and best[0].name in topics and best[0].probability >= ACCEPTED
        third += any(guess.name in topics for guess in best)
        count += 1
    return first / count, third / count


SEEDS: list[Asked] = [
    (seed["topics"], question)
    for seed in QUESTIONS["seeds"]
    for question in (seed["verbatim"], *seed["zh"], *seed["en"])
]
HELD_OUT: list[Asked] = [(s["topics"], question) for s in QUESTIONS["seeds"] for question in s["held_out"].values()]


def test_the_seeds_questions_and_their_paraphrases_find_their_topics() -> None:
    first, third = shares(SEEDS)
    assert first >= 0.90
    assert third >= 0.98


def test_each_question_of_the_seeds_itself_is_among_the_first_three() -> None:
    verbatim = [(seed["topics"], seed["verbatim"]) for seed in QUESTIONS["seeds"]]
    first, third = shares(verbatim)
    assert first >= 0.90
    assert third == 1.0


@pytest.mark.parametrize("lang", LANGS)
def test_both_languages_are_found_alike(lang: str) -> None:
    first, third = shares([(seed["topics"], question) for seed in QUESTIONS["seeds"] for question in seed[lang]])
    assert first >= 0.90
    assert third >= 0.98


def test_paraphrases_that_were_not_tuned_on_are_found() -> None:
    first, third = shares(HELD_OUT)
    assert first >= 0.88
    assert third >= 0.96


def test_other_topics_and_later_questions_are_found() -> None:
    rest = [
        (one["topics"], question)
        for one in (*QUESTIONS["others"], *QUESTIONS["late"])
        for lang in LANGS
        for question in one[lang]
    ]
    first, third = shares(rest)
    assert first >= 0.85
    assert third >= 0.95


def test_unrelated_questions_are_declined() -> None:
    unrelated = [q for kind in ("unrelated", "unrelated_held_out") for lang in LANGS for q in QUESTIONS[kind][lang]]
    assert len(unrelated) >= 120
    declined = [Conversation().ask(question).declined for question in unrelated]
    assert sum(declined) / len(declined) >= 0.95


def test_the_questions_are_not_copied_from_how_topics_are_asked() -> None:
    plain = re.compile(r"[\W_]+")
    phrases = [plain.sub("", text.lower()) for t in TOPICS.values() for text in (*t.title, *t.asked[0], *t.asked[1])]
    for _, question in (*SEEDS, *HELD_OUT):
        asked = plain.sub("", question.lower())
        for phrase in phrases:
            matcher = difflib.SequenceMatcher(None, phrase, asked, autojunk=False)
            if matcher.real_quick_ratio() > 0.9 and matcher.quick_ratio() > 0.9:
                assert matcher.ratio() <= 0.9, (question, phrase)


def test_accepted_topics_are_at_most_two_and_exist() -> None:
    for seed in QUESTIONS["seeds"]:
        assert 1 <= len(seed["topics"]) <= 2
        assert set(seed["topics"]) <= set(TOPICS)
        assert len(seed["topics"]) == 1 or seed["why"]


def test_a_term_counts_the_same_in_both_languages_and_as_a_symbol() -> None:
    assert "#advantage" in features("优势是什么") & features("what is the advantage") & features("A_{t+1} = ?")
    assert "#value" in features("V(s_t)") & features("价值") & features("values[t]")
    assert "#return" in features("R_t")
    assert "#reward" in features("r_t")


def test_paths_and_pasted_numbers_say_nothing() -> None:
    assert features("@[verl/trainer/ppo/ray_trainer.py] 白化") == features("白化")
    assert features("白化 [[-0.12,-0.08]] 0.95") == features("白化")


def test_a_typo_still_finds_its_topic() -> None:
    assert guesses("what is bootstraping")[0].name == "bootstrap"
    assert "#advantage" in features("advantge")
    assert "#transition" not in features("transformer")


def test_nothing_asked_finds_nothing() -> None:
    assert guesses("") == guesses("？？？") == []


def test_the_models_know_all_topics_and_no_others() -> None:
    assert set(load("topics").classes) == {*TOPICS, OTHER}


def test_a_text_without_known_words_says_nothing() -> None:
    assert load("topics").guesses("§§ ~~ !!") == []
    assert guess_topics("") == []


def test_the_models_are_those_of_the_data() -> None:
    """Whoever changes how people ask, or a statement, trains them again: scripts/train_tutor.py."""
    script = Path(__file__).parent.parent / "scripts" / "train_tutor.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
