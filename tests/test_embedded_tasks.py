"""The tasks that come with the package: what they ask, what they keep apart, and what they pay."""

from __future__ import annotations

import random

import pytest

from mingce.base.errors import UnknownNameError
from mingce.tasks.arithmetic import Arithmetic, operand_pairs, wrong_claims
from mingce.tasks.base import Example, Task
from mingce.tasks.counting import MOST_NUMBERS, Counting, spans

TASKS: list[Task] = [Arithmetic("zh"), Arithmetic("en"), Counting("zh"), Counting("en")]
each_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: f"{task.name}-{task.lang}")


@each_task
def test_gold_answers_earn_full_marks(task: Task) -> None:
    for example in [*task.train_examples()[:500], *task.held_out_examples()]:
        gold = task.gold(example)
        assert task.score(example, gold).total == pytest.approx(1.0)
        assert task.correct(example, gold)


@each_task
def test_an_answer_with_one_character_changed_lost_or_added_is_wrong_and_earns_less(task: Task) -> None:
    rng = random.Random(0)
    for example in task.held_out_examples()[:100]:
        gold = task.gold(example)
        place = rng.randrange(len(gold))
        changed = gold[:place] + ("8" if gold[place] != "8" else "7") + gold[place + 1 :]
        for wrong in (changed, gold[:-1], gold + " ", gold + gold, ""):
            assert not task.correct(example, wrong)
            assert task.score(example, wrong).total < 0.99


@each_task
def test_examples_are_the_same_every_time_with_uids_of_their_own(task: Task) -> None:
    train, held_out = list(task.train_examples()), list(task.held_out_examples())
    assert train == list(task.train_examples())
    assert held_out == list(task.held_out_examples())
    assert len({example.uid for example in train + held_out}) == len(train) + len(held_out)


@each_task
def test_held_out_examples_are_never_trained_on(task: Task) -> None:
    def operands(example: Example) -> tuple[int, int]:
        info = example.extra_info
        return (info["a"], info["b"]) if "a" in info else (info["first"], info["last"])

    trained = {operands(example) for example in task.train_examples()}
    kept_apart = {operands(example) for example in task.held_out_examples()}
    assert trained.isdisjoint(kept_apart)
    if isinstance(task, Arithmetic):
        assert trained.isdisjoint((b, a) for a, b in kept_apart)


def test_a_tenth_of_all_operand_pairs_is_held_out() -> None:
    train, held_out = operand_pairs()
    assert set(train) | set(held_out) == {(a, b) for a in range(100) for b in range(100)}
    assert len(train) + len(held_out) == 10_000
    assert len(held_out) == pytest.approx(1000, abs=20)


def test_the_two_languages_hold_out_the_same_questions() -> None:
    for task in (Arithmetic, Counting):
        chinese, english = task("zh").held_out_examples(), task("en").held_out_examples()
        assert [example.extra_info for example in chinese] == [example.extra_info for example in english]


@pytest.mark.parametrize(
    ("lang", "claimed", "prompt", "answer"),
    [
        ("zh", 42, "请问17+25=42？", "是的，等于42！"),
        ("zh", 43, "请问17+25=43？", "不对，等于42！"),
        ("en", 42, "Is 17+25=42?", "Yes, it is 42!"),
        ("en", 43, "Is 17+25=43?", "No, it is 42!"),
    ],
)
def test_arithmetic_asks_and_answers_in_these_words(lang: str, claimed: int, prompt: str, answer: str) -> None:
    task = Arithmetic(lang)
    example = task.example(17, 25, claimed)
    assert (example.prompt, task.gold(example)) == (prompt, answer)


def test_arithmetic_claims_are_right_half_of_the_time_and_never_off_by_more_than_nine() -> None:
    task = Arithmetic()
    for examples in (task.train_examples(), task.held_out_examples()):
        errors = [e.extra_info["claimed"] - e.extra_info["a"] - e.extra_info["b"] for e in examples]
        assert errors.count(0) * 2 == len(errors)
        assert {abs(error) for error in errors} == set(range(10))
        assert min(e.extra_info["claimed"] for e in examples) >= 0
    assert wrong_claims(2) == [0, 1, *range(3, 12)]


def test_arithmetic_parts_say_which_half_was_right() -> None:
    task = Arithmetic("zh")
    example = task.example(17, 25, 43)
    parts = {
        answer: task.score(example, answer).parts for answer in ("是的，等于42！", "不对，等于420！", "不对", "42")
    }
    assert parts == {
        "是的，等于42！": {"verdict": 0.0, "number": 1.0},
        "不对，等于420！": {"verdict": 1.0, "number": 0.0},
        "不对": {"verdict": 1.0, "number": 0.0},
        "42": {"verdict": 0.0, "number": 1.0},
    }
    assert all(task.score(example, answer).total == 0 for answer in parts)


@pytest.mark.parametrize(
    ("lang", "prompt", "answer"),
    [("zh", "从8数到11：", "8、9、10、11。"), ("en", "Count from 8 to 11:", "8, 9, 10, 11.")],
)
def test_counting_pays_each_number_at_its_last_digit_and_the_stop_at_the_end(
    lang: str, prompt: str, answer: str
) -> None:
    task = Counting(lang)
    example = task.example(8, 11)
    assert (example.prompt, task.gold(example)) == (prompt, answer)
    score = task.score(example, answer)
    assert [answer[: offset + 1] for offset, _ in score.dense] == [
        answer[: answer.index(number) + len(number)] for number in ("8", "9", "10", "11")
    ]
    assert [amount for _, amount in score.dense] == [0.2] * 4
    assert score.score == 0.2


@pytest.mark.parametrize(
    ("response", "paid"),
    [
        ("3、4、5", 3),
        ("3、4、5、", 3),
        ("3、4、5、6。", 3),
        ("3、4。", 2),
        ("3、5。", 1),
        ("3、44、5。", 2),
        ("3 4 5。", 1),
        ("4、5。", 0),
        ("", 0),
    ],
)
def test_counting_stops_paying_at_the_first_wrong_character(response: str, paid: int) -> None:
    task = Counting("zh")
    score = task.score(task.example(3, 5), response)
    assert score.dense == ((0, 0.25), (2, 0.25), (4, 0.25))[:paid]
    assert score.score == 0
    assert score.parts == {"numbers": paid / 3, "stopped": 0.0}


def test_counting_answers_are_of_every_length_on_both_sides() -> None:
    for side in spans():
        assert {last - first + 1 for first, last in side} == set(range(1, MOST_NUMBERS + 1))


@pytest.mark.parametrize("task", [Arithmetic, Counting])
def test_an_unknown_language_is_named(task: type[Arithmetic] | type[Counting]) -> None:
    with pytest.raises(UnknownNameError, match="unknown language 'fr'; known: en, zh"):
        task("fr")
