"""The person's own reward function: how it is found, called and refused."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mingce.base.errors import RewardError, SettingError
from mingce.tasks.base import Example, Score
from mingce.tasks.combined import Combined
from mingce.tasks.function import FunctionScorer, as_score
from mingce.tasks.scoring import Scoring

EXAMPLE = Example("e", "1+1?", "2", "sums", {"index": 0})
HEAD = "def compute_score(data_source, solution_str, ground_truth, extra_info):\n"


def scorer(tmp_path: Path, source: str, name: str = "", file: str = "reward.py") -> FunctionScorer:
    (tmp_path / file).write_text(source, encoding="utf-8")
    return FunctionScorer.loaded(f"{tmp_path / file}{':' if name else ''}{name}")


def test_the_function_gets_the_example_by_name(tmp_path: Path) -> None:
    told = scorer(
        tmp_path, HEAD + "    return {'score': 0.5, data_source + solution_str + ground_truth: extra_info['index']}"
    )
    assert told(EXAMPLE, "!") == Score(0.5, {"sums!2": 0.0})
    named = scorer(tmp_path, "def other(solution_str, **rest): return len(solution_str)", "other", "named.py")
    assert named(EXAMPLE, "abc") == Score(3.0)


def test_a_function_that_writes_into_its_arguments_leaves_the_example_alone(tmp_path: Path) -> None:
    popping = scorer(tmp_path, HEAD + "    return extra_info.pop('index') + 1")
    assert popping(EXAMPLE, "") == popping(EXAMPLE, "") == Score(1.0)


def test_the_file_runs_once_and_again_where_the_scorer_is_unpickled(tmp_path: Path) -> None:
    mark = f"open({str(tmp_path / 'ran')!r}, 'a').write('x')\n"
    first = scorer(tmp_path, mark + HEAD + "    return 1.0")
    second = pickle.loads(pickle.dumps(first))
    assert second(EXAMPLE, "") == Score(1.0)
    assert FunctionScorer(str(tmp_path / "reward.py")).function is first.function
    assert (tmp_path / "ran").read_text() == "x"


def test_a_neighbour_of_the_file_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "mingce_test_neighbour.py").write_text("FOUR = 4\n")
    importing = scorer(tmp_path, "from mingce_test_neighbour import FOUR\n" + HEAD + "    return FOUR")
    assert importing(EXAMPLE, "") == Score(4.0)


@pytest.mark.parametrize(
    ("source", "what"),
    [
        (HEAD + "    return 1 +\n", "reward.py, line 2: SyntaxError: invalid syntax"),
        ("import os\n\nimport no_such_module_here\n", "reward.py, line 3: ModuleNotFoundError"),
        ("x = 1\nraise ValueError('no\\nway')\n", "reward.py, line 2: ValueError: no way"),
        ("import sys\nsys.exit(3)\n", "reward.py, line 2: SystemExit: 3"),
        ("def compute_scores(): pass\n", "did you mean"),
        ("x = 1\n", "has no function 'compute_score'"),
        ("compute_score = 3\n", "has no function 'compute_score'"),
        (
            "\ndef compute_score(solution_str, ground_truth): pass\n",
            "reward.py, line 2: compute_score cannot be called as",
        ),
        (HEAD.replace("):", ", more):") + "    return 1.0", "line 1: compute_score cannot be called as"),
        ("def compute_score(answers): pass\n", "nor as compute_score(completions, **columns)"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_sentence(tmp_path: Path, source: str, what: str) -> None:
    with pytest.raises(RewardError) as caught:
        scorer(tmp_path, source)
    assert what in str(caught.value)
    assert str(tmp_path / "reward.py") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_absent_file_or_a_strange_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RewardError, match="there is no reward file"):
        FunctionScorer(str(tmp_path / "none.py"))
    for spec in ("reward", "reward.txt", "reward.py:", "reward.py:1x", "reward.txt:compute_score"):
        with pytest.raises(RewardError, match=r"path/to/file\.py"):
            FunctionScorer(spec)


@given(st.floats(-1e9, 1e9) | st.integers(-(10**9), 10**9) | st.booleans())
def test_any_real_number_is_a_score(value: float) -> None:
    assert as_score(value) == Score(float(value))
    assert as_score({"score": 1, "half": value}) == Score(1.0, {"half": float(value)})


def test_scalars_of_numpy_and_torch_are_numbers() -> None:
    import numpy as np
    import torch

    assert as_score({"score": np.float32(0.5), "a": np.bool_(True), "b": torch.tensor(2)}) == Score(
        0.5, {"a": 1, "b": 2}
    )


@pytest.mark.parametrize(
    ("result", "what"),
    [
        (None, "NoneType"),
        ("1.0", "str"),
        ([1.0], "list"),
        (float("nan"), "not finite"),
        ({"acc": 1.0}, "without 'score'"),
        ({"score": None}, "'score'"),
        ({"score": 1.0, "pred": "42"}, "'pred'"),
        ({"score": 1.0, "loss": float("inf")}, "'loss'"),
    ],
)
def test_what_is_no_number_is_refused_by_name(result: object, what: str) -> None:
    with pytest.raises(RewardError) as caught:
        as_score(result)
    assert what in str(caught.value)


def length_scorer(example: Example, response: str) -> Score:
    return Score(float(len(response)), {"odd": float(len(response) % 2)})


def dense_scorer(example: Example, response: str) -> Score:
    return Score(1.0, {}, tuple((offset, 0.5) for offset in range(len(response))))


@given(st.lists(st.text(max_size=5), max_size=4), st.floats(-2, 2), st.floats(-2, 2))
def test_a_combination_is_the_weighted_sum_with_named_parts(responses: Sequence[str], a: float, b: float) -> None:
    both = Combined([(a, Scoring(length_scorer, name="length")), (b, Scoring(dense_scorer, name="dense"))])
    scores = both.score([EXAMPLE] * len(responses), responses)
    for response, score in zip(responses, scores, strict=True):
        n = len(response)
        assert score.score == a * n + b
        assert score.total == pytest.approx(a * n + b * (1 + 0.5 * n))
        assert score.dense == tuple((offset, b * 0.5) for offset in range(n))
        assert score.parts == {"length": n, "length/odd": n % 2, "dense": 1 + 0.5 * n}


def test_two_rewards_of_one_name_are_refused() -> None:
    with pytest.raises(SettingError, match="two rewards are named 'length_scorer'"):
        Combined([(1.0, Scoring(length_scorer)), (2.0, Scoring(length_scorer))])
