"""Tasks by name, and the check that a scorer knows its own right answers."""

from __future__ import annotations

import io
import json
import math
import re
from pathlib import Path

import pytest
from rich.console import Console

from mingce.base.errors import DataError, RewardError, SettingError, UnknownNameError
from mingce.tasks.arithmetic import Arithmetic
from mingce.tasks.base import Example, Score
from mingce.tasks.check import CheckReport, check_task, render, wrong_answers_to
from mingce.tasks.registry import load_task

FUNCTION = "def compute_score(data_source, solution_str, ground_truth, extra_info):\n    return {body}\n"


@pytest.fixture
def data(tmp_path: Path) -> str:
    path = tmp_path / "sums.jsonl"
    rows = [
        {"prompt": f"{index}+1?", "data_source": "sums", "reward_model": {"ground_truth": str(index + 1)}}
        for index in range(30)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def function(tmp_path: Path, body: str, name: str = "reward") -> str:
    path = tmp_path / f"{name}.py"
    path.write_text(FUNCTION.format(body=body))
    return str(path)


def shown(report: CheckReport) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(render(report))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("name", ["arithmetic", "counting", "reasoning_gym:chain_sum", "reasoning_gym:graph_color"])
@pytest.mark.parametrize("lang", ["zh", "en"])
def test_the_tasks_that_come_with_mingce_pass_their_own_check(name: str, lang: str) -> None:
    task = load_task(name, lang=lang, size=20, held_out_size=20)
    report = check_task(task, examples=20)
    assert not report.failures
    assert len(report.examples) == 20
    assert report.wrong_answers >= 20
    assert "full marks to all 20 right answers" in report.sentence
    table = shown(report)
    assert report.examples[0].example.uid in table
    assert str(report.examples[0].gold)[:12] in table
    assert "right answers" in table


def test_a_scorer_of_the_library_that_accepts_anything_is_found_out() -> None:
    report = check_task(load_task("reasoning_gym:game_of_life_halting", size=20, held_out_size=20))
    assert report.failures
    assert "the wrong answer" in report.sentence


def test_data_with_a_function_are_scored_by_it(data: str, tmp_path: Path) -> None:
    task = load_task(data, function=function(tmp_path, "float(solution_str == ground_truth)"))
    assert task.name == "sums"
    assert (len(task.train_examples()), len(task.held_out_examples())) == (27, 3)
    assert task.score(task.train_examples()[0], task.gold(task.train_examples()[0])) == Score(1.0)
    assert not check_task(task).failures


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("0.5 * (solution_str == ground_truth)", "its right answer '[0-9]+' scores 0.5, which is not full marks"),
        ("1.0", "the wrong answer '.*' scores 1, as much as the right one"),
        ("1.0 if solution_str else 0.0", "the wrong answer '[0-9]+' scores 1"),
        (
            "float(int(solution_str) == int(ground_truth))",
            "the answer '' cannot be scored .reward.py, line 2: ValueError: invalid literal",
        ),
        ("ground_truth[5]", "its right answer '[0-9]+' cannot be scored .reward.py, line 2: IndexError"),
    ],
)
def test_a_wrong_scorer_is_found_out_with_the_example_named(data: str, tmp_path: Path, body: str, what: str) -> None:
    report = check_task(load_task(data, function=function(tmp_path, body)), examples=6)
    assert len(report.failures) == len(report.examples) == 6
    first = report.failures[0]
    assert first.problem is not None
    assert re.search(what, first.problem)
    assert report.sentence.startswith(f"6 of 6 examples fail; {first.example.uid}: ")
    assert f"{first.example.uid}: {first.problem[:40]}" in shown(report)


class PaysEverything(Arithmetic):
    """Knows which answers are right and pays the others just as well."""

    def score(self, example: Example, response: str) -> Score:
        return Score(1.0)


def test_a_wrong_answer_paid_like_a_right_one_is_found_out_even_if_it_does_not_count_as_right() -> None:
    report = check_task(PaysEverything())
    assert len(report.failures) == len(report.examples)
    assert "as much as the right one" in report.sentence


def test_full_marks_may_be_another_number_than_one(data: str, tmp_path: Path) -> None:
    half = function(tmp_path, "0.5 * (solution_str == ground_truth)")
    assert not check_task(load_task(data, function=half, full_marks=0.5)).failures


def test_a_scorer_that_hangs_is_found_out(data: str, tmp_path: Path) -> None:
    task = load_task(data, function=function(tmp_path, "__import__('time').sleep(3600)"))
    report = check_task(task, examples=1, time_limit=0.1)
    assert "longer than the time limit" in report.sentence


def test_the_check_is_the_same_for_the_same_seed() -> None:
    task = load_task("arithmetic")
    one, two, other = (check_task(task, seed=seed) for seed in (0, 0, 1))
    assert one == two
    assert one != other


def test_wrong_answers_differ_from_the_right_one() -> None:
    example = Example("e", "?", "x", "s")
    assert list(wrong_answers_to(example, "3 and 9.25", [])) == ["", "3 and 0.25"]
    assert list(wrong_answers_to(example, "yes", ["yes", "no", "maybe"])) == ["", "no"]
    assert list(wrong_answers_to(Example("e", "?", None, "s"), "12", [])) == [""]


def test_data_without_a_scorer_are_refused(data: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no built-in scorer for data_source 'sums'"):
        load_task(data)
    with pytest.raises(SettingError, match="leave out one"):
        load_task(data, function=function(tmp_path, "1.0"), scored_by_model=True)
    with pytest.raises(RewardError, match="no reward file"):
        load_task(data, function=str(tmp_path / "none.py"))
    task = load_task(data, scored_by_model=True)
    assert task.score(task.train_examples()[0], "x") == Score(0.0)


def test_files_to_hold_out_are_used_as_they_are(data: str, tmp_path: Path) -> None:
    task = load_task([data], held_out=data, function=function(tmp_path, "1.0"))
    assert len(task.train_examples()) == len(task.held_out_examples()) == 30


def test_gsm8k_by_directory_file_or_data_source(tmp_path: Path) -> None:
    row = json.dumps({"question": "3*4?", "answer": "3*4=12\n#### 12"}) + "\n"
    (tmp_path / "train_part.jsonl").write_text(row * 20)
    assert len(load_task(f"gsm8k:{tmp_path}").held_out_examples()) == 2
    (tmp_path / "test.jsonl").write_text(row)
    task = load_task(f"gsm8k:{tmp_path}", chat=False)
    assert (len(task.train_examples()), len(task.held_out_examples())) == (20, 1)
    assert not check_task(task).failures
    assert len(load_task(f"gsm8k:{tmp_path / 'train_part.jsonl'}").train_examples()) == 18
    verl = {"prompt": "3*4?", "data_source": "openai/gsm8k", "reward_model": {"ground_truth": "12"}}
    (tmp_path / "verl.json").write_text(json.dumps([verl] * 4))
    assert load_task(str(tmp_path / "verl.json")).name == "gsm8k"
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no data files"):
        load_task(f"gsm8k:{tmp_path / 'empty'}")


@pytest.mark.parametrize(
    ("name", "near"),
    [("arithmetics", "'arithmetic'"), ("gsm8k", "'gsm8k:PATH'"), ("reasoning_gym:", "reasoning_gym:NAME")],
)
def test_an_unknown_name_offers_the_nearest(name: str, near: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        load_task(name)
    assert near in str(caught.value)


def test_a_path_that_is_not_there_is_refused() -> None:
    with pytest.raises(DataError, match=r"there is no data file nowhere\.parquet"):
        load_task("nowhere.parquet", scored_by_model=True)


def test_counting_s_dense_credit_adds_up_to_full_marks() -> None:
    for checked in check_task(load_task("counting")).examples:
        assert checked.score is not None
        assert math.isclose(checked.score.total, 1.0)
