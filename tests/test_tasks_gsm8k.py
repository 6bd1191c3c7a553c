"""GSM8K: finding the number of an answer and comparing it."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mingce.base.errors import DataError
from mingce.tasks.answers import after_last, last_boxed, numbers
from mingce.tasks.base import Example
from mingce.tasks.gsm8k import answer_text, equals, gsm8k, number_scorer

ROWS = [
    {"question": "Mia has 3 bags of 4 pears. How many pears?", "answer": "3 bags of 4: <<3*4=12>>12 pears.\n#### 12"},
    {"question": "A car costs $1,500 twice. Total?", "answer": "1500*2 = $<<1500*2=3000>>3,000.\n#### 3,000"},
    {"question": "It was 2 degrees and fell by 5. Now?", "answer": "2-5=<<2-5=-3>>-3\n#### -3"},
]


def write(path: Path, rows: list[dict[str, str]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def right(response: str, truth: str) -> bool:
    return number_scorer(Example("e", "?", truth, "openai/gsm8k"), response).score == 1.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("18", [18]),
        ("$1,234.50 and 12", [Fraction(2469, 2), 12]),
        ("-$5, $-5, - 5, −5", [-5, -5, -5, -5]),
        ("16-3", [16, 3]),
        ("(16)-3", [16, 3]),
        ("50%", [50]),
        ("3/4 of .5", [Fraction(3, 4), Fraction(1, 2)]),
        ("1,2,3", [1, 2, 3]),
        ("12,345,678", [12345678]),
        ("1,2345", [1, 2345]),
        ("It is 18.", [18]),
        ("5 m²", [5]),
        ("等于-5", [-5]),
        ("５６", [56]),
        ("x7 3/0", [7, 3]),
        ("no number - at / all, $.", []),
    ],
)
def test_numbers_are_read_as_people_write_them(text: str, expected: list[Fraction]) -> None:
    assert numbers(text) == expected


@given(st.integers(-(10**12), 10**12), st.integers(0, 4))
def test_a_number_is_read_back_from_every_way_to_write_it(whole: int, decimals: int) -> None:
    value = Fraction(whole, 10**decimals)
    text = f"{whole // abs(whole) * (abs(whole) / 10**decimals) if whole else 0:.{decimals}f}"
    assert numbers(text) == [value]
    assert numbers(f"the total is {value.numerator:,} dollars") == [value.numerator]
    for response in (
        f"#### {text}",
        f"so \\boxed{{{text}}}.",
        f"first 7, then {text} in all",
        f"#### ${text}",
        f"#### {text}%",
    ):
        assert right(response, text), response
    assert right(f"#### {value.numerator}/{value.denominator}", text)
    assert not right(f"#### {value + 1}", text)


@given(st.text(max_size=80), st.integers(-999, 999))
def test_any_text_can_be_scored(response: str, truth: int) -> None:
    assert number_scorer(Example("e", "?", str(truth), "s"), response).score in (0.0, 1.0)
    assert right(f"{response}\n#### {truth}", str(truth))


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("3 + 4 = 7\n#### 7", True),
        ("#### 6\nNo: #### 7", True),
        ("#### 7\nBut wait, it is 8", True),
        ("#### 8\nBut wait, it is 7", False),
        ("#### 3+4", True),
        ("#### 3 + 4 = 7", True),
        (r"#### \frac{14}{2}", True),
        (r"\boxed{\frac{14}{2}} and 9 more", True),
        (r"\boxed{8} no, \boxed{7}", True),
        (r"\boxed{7} no, \boxed{8}", False),
        ("#### 7 apples", True),
        ("#### 7 or 8", False),
        ("#### seven", False),
        ("####", False),
        ("It costs $7.00", True),
        ("7 it is, and 8 is wrong", False),
        ("77", False),
        ("0.7", False),
        ("-7", False),
        ("", False),
    ],
)
def test_only_the_answer_that_was_given_counts(response: str, expected: bool) -> None:
    assert right(response, "7") is expected


@pytest.mark.parametrize(
    "bomb",
    [
        "9^9^9^9",
        "9**9**9**9",
        "(9!)!!",
        "9" * 5000 + "+1",
        "(" * 90 + "1+1" + ")" * 3,
        "1/0+2",
        "9" * 5000,
        "1/" + "9" * 5000,
        "0." + "0" * 5000 + "1",
    ],
)
def test_an_expression_that_cannot_be_worked_out_is_simply_wrong(bomb: str) -> None:
    assert not equals(bomb, "7")


def test_an_unclosed_box_or_no_marker_is_no_answer_there() -> None:
    assert last_boxed(r"\boxed{1} \boxed{2") == "1"
    assert last_boxed(r"\boxed{a{b}c}") == "a{b}c"
    assert last_boxed("none") is None
    assert after_last("none", "####") is None
    assert answer_text("no number") is None


@pytest.mark.parametrize("chat", [True, False])
def test_files_with_the_set_s_own_columns(tmp_path: Path, chat: bool) -> None:
    train, test = write(tmp_path / "train.jsonl", ROWS), write(tmp_path / "test.jsonl", ROWS[:1])
    task = gsm8k([train], [test], chat=chat)
    assert [example.ground_truth for example in task.train_examples()] == ["12", "3000", "-3"]
    assert len(task.held_out_examples()) == 1
    for example in task.train_examples():
        assert task.correct(example, task.gold(example))
        text = example.prompt if isinstance(example.prompt, str) else example.prompt[0]["content"]
        assert isinstance(example.prompt, list) is chat
        assert "####" in text
        assert any(row["question"] in text and row["answer"] == task.gold(example) for row in ROWS)


def test_files_with_verl_s_columns(tmp_path: Path) -> None:
    row = {"prompt": "3*4?", "data_source": "openai/gsm8k", "reward_model": {"style": "rule", "ground_truth": "12"}}
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(row) + "\n" + json.dumps(row) + "\n")
    task = gsm8k([path])
    (example,) = task.train_examples()
    assert task.correct(example, "It is 12")
    path.write_text(json.dumps(row | {"reward_model": {"ground_truth": "twelve"}}))
    with pytest.raises(DataError, match="line 1: the ground truth 'twelve' is not one number"):
        gsm8k([path])


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({"question": "Q?", "answer": "12"}, "`answer` does not end in ####"),
        ({"question": "Q?", "answer": "#### many"}, "'many' is not one number"),
        ({"question": " ", "answer": "#### 1"}, "`question` is not text"),
        ({"question": "Q?"}, "`answer`"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: dict[str, str], what: str) -> None:
    path = write(tmp_path / "a.jsonl", [*ROWS, row])
    with pytest.raises(DataError) as caught:
        gsm8k([path])
    assert what in str(caught.value)
    assert f"{path}, line 4" in str(caught.value)
