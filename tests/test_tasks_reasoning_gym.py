"""Tasks of reasoning-gym: what is generated, what an answer is, and what it earns."""

from __future__ import annotations

import pickle
import sys

import pytest
from scored import score_all

from mingce.base.errors import DataError, SettingError, UnknownNameError
from mingce.tasks.base import Example
from mingce.tasks.reasoning_gym import ReasoningGym, answer_text, question_of

SMALL = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}


@pytest.fixture(scope="module")
def chain_sum() -> ReasoningGym:
    return ReasoningGym("chain_sum", size=30, held_out=10)


def test_the_same_seed_gives_the_same_examples_and_another_gives_others() -> None:
    one, two, other = (ReasoningGym("chain_sum", size=20, held_out=5, seed=seed) for seed in (3, 3, 4))
    assert one.train_examples() == two.train_examples()
    assert one.held_out_examples() == two.held_out_examples()
    assert one.train_examples() != other.train_examples()


def test_no_question_is_asked_twice_or_both_trained_on_and_held_out() -> None:
    task = ReasoningGym("chain_sum", size=300, held_out=40, options=SMALL)  # about 200 different questions
    train = [question_of(example) for example in task.train_examples()]
    held_out = [question_of(example) for example in task.held_out_examples()]
    assert 0 < len(train) < 300
    assert len(set(train)) == len(train)
    assert len(set(held_out)) == len(held_out) > 0
    assert not set(train) & set(held_out)


def test_the_right_answer_is_found_behind_any_marker(chain_sum: ReasoningGym) -> None:
    for example in chain_sum.train_examples():
        truth = example.ground_truth
        for response in (
            chain_sum.gold(example),
            f"answer: {truth}.",
            f"I think\nAnswer: **{truth}**\nas you see",
            f"#### {truth}",
            f"\\boxed{{{truth}}}",
            f"Let me see.\n{truth}\n",
        ):
            assert chain_sum.correct(example, response), response


def test_a_text_that_only_contains_the_right_answer_earns_nothing(chain_sum: ReasoningGym) -> None:
    for example in chain_sum.train_examples():
        truth = example.ground_truth
        for response in (f"Answer: {truth} or so", f"{truth} maybe", f"Answer: {truth}\nAnswer: x", f"{truth}\nno", ""):
            assert chain_sum.score(example, response).score == 0.0, response


def test_a_text_that_only_contains_the_right_answer_earns_nothing_from_the_default_scorer() -> None:
    task = ReasoningGym("gcd", size=5, held_out=1)
    for example in task.train_examples():
        assert task.score(example, f"Answer: {example.ground_truth} yes").score == 0.0
        assert task.score(example, f"Answer: {example.ground_truth}").score == 1.0


def test_an_answer_of_several_lines_is_taken_whole() -> None:
    assert answer_text("x\nAnswer: 1 2\n3 4\nthere", 2) == "1 2\n3 4"
    assert answer_text("here\n1 2\n3 4", 2) == "1 2\n3 4"
    task = ReasoningGym("rotate_matrix", size=3, held_out=1)
    for example in task.train_examples():
        assert task.correct(example, f"So:\n{example.ground_truth}")
        assert task.correct(example, task.gold(example))


def test_right_answers_kept_in_the_metadata_are_found() -> None:
    task = ReasoningGym("graph_color", size=3, held_out=1)
    for example in task.train_examples():
        assert example.ground_truth is None
        assert task.correct(example, task.gold(example))
    with pytest.raises(DataError, match="knows no right answer"):
        task.gold(Example("e", "?", None, "s"))


def test_prompts_are_chats_or_text() -> None:
    chat, text = (ReasoningGym("gcd", size=1, held_out=1, chat=chat).train_examples()[0] for chat in (True, False))
    assert isinstance(chat.prompt, list)
    assert isinstance(text.prompt, str)
    assert text.prompt.strip() == chat.prompt[0]["content"]
    assert question_of(chat) == question_of(text)


def test_workers_score_a_data_set_that_does_not_pickle() -> None:
    task = ReasoningGym("string_manipulation", size=3, held_out=1)
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(task.scorer.dataset)
    examples = task.train_examples()
    scores = score_all(task, examples, [task.gold(example) for example in examples], workers=1)
    assert [score.score for score in scores] == [1.0] * len(examples)


def test_an_unknown_task_or_option_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'chain_sum'"):
        ReasoningGym("chain_sums")
    with pytest.raises(SettingError, match="max_term"):
        ReasoningGym("chain_sum", options={"max_term": 3})
    with pytest.raises(SettingError, match="max_terms must be >= min_terms"):
        ReasoningGym("chain_sum", options={"max_terms": 1})


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    monkeypatch.setitem(sys.modules, "reasoning_gym.factory", None)
    with pytest.raises(DataError, match=r"mingce\[reasoning-gym\]"):
        ReasoningGym("chain_sum")
