"""Data files as people have them: their own columns, several files in shares, system prompts and template arguments."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from families import character_tokenizer
from small_runs import quiet, said, save_chat_model, trained

from mingce import load_run
from mingce.base.errors import DataError, SettingError, UnknownNameError
from mingce.commands import check as check_command
from mingce.engine.local import epoch_order
from mingce.metrics import by_source
from mingce.models.prompts import check_template_arguments
from mingce.tasks.base import Example, Prompt
from mingce.tasks.check import CheckReport, check_task, render
from mingce.tasks.data import Sliced, WithSystem
from mingce.tasks.data_columns import Keys, examples_of
from mingce.tasks.function import FunctionScorer
from mingce.tasks.mixing import Mixed
from mingce.tasks.reasoning_gym import ReasoningGym
from mingce.tasks.registry import load_task

USER = {"role": "user", "content": "1+1?"}
SYSTEM = {"role": "system", "content": "Be brief."}
REPLY = {"role": "assistant", "content": "2"}
RIGHT = (
    "def compute_score(data_source, solution_str, ground_truth, extra_info): return float(solution_str == ground_truth)"
)


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("row", "keys", "example"),
    [
        ({"prompt": "1+1?", "answer": "2"}, Keys(), Example("a.jsonl:1", "1+1?", "2", "a", {"answer": "2"})),
        ({"prompt": "1+1?"}, Keys(), Example("a.jsonl:1", "1+1?", None, "a", {})),
        ({"prompt": [USER], "ground_truth": 2}, Keys(), Example("a.jsonl:1", [USER], 2, "a", {"ground_truth": 2})),
        ({"messages": [USER, REPLY]}, Keys(), Example("a.jsonl:1", [USER], "2", "a", {})),
        ({"messages": [USER], "answer": "2"}, Keys(), Example("a.jsonl:1", [USER], "2", "a", {"answer": "2"})),
        ({"question": "1+1?", "answer": "2"}, Keys(), Example("a.jsonl:1", [USER], "2", "a", {"answer": "2"})),
        (
            {"question": "1+1?", "answer": "2", "level": 3},
            Keys(chat=False),
            Example("a.jsonl:1", "1+1?", "2", "a", {"answer": "2", "level": 3}),
        ),
        (
            {"problem": "1+1?", "solution": "2", "set": "sums"},
            Keys(("problem",), ("solution",), ("set",), chat=False),
            Example("a.jsonl:1", "1+1?", "2", "sums", {"solution": "2"}),
        ),
        (
            {"prompt": "1+1?", "reward_model": {"ground_truth": "2"}, "extra_info": {"n": 1}},
            Keys(),
            Example("a.jsonl:1", "1+1?", "2", "a", {"reward_model": {"ground_truth": "2"}, "n": 1}),
        ),
        (
            {"conversations": [{"from": "human", "value": "1+1?"}, {"from": "gpt", "value": "2"}]},
            Keys(),
            Example("a.jsonl:1", [USER], "2", "a", {}),
        ),
        (
            {"chat": [{"from": "human", "value": "1+1?"}, {"from": "gpt", "value": "2"}], "system": "Be brief."},
            Keys(("chat",)),
            Example("a.jsonl:1", [SYSTEM, USER], "2", "a", {"system": "Be brief."}),
        ),
        (
            {"messages": [SYSTEM, USER, REPLY], "system": "Else."},
            Keys(),
            Example("a.jsonl:1", [SYSTEM, USER], "2", "a", {"system": "Else."}),
        ),
        (
            {"question": "1+1?", "system_prompt": " "},
            Keys(),
            Example("a.jsonl:1", [USER], None, "a", {"system_prompt": " "}),
        ),
        (
            {"instruction": "Add.", "input": "1 and 1", "output": "2"},
            Keys(("instruction",), ("output",)),
            Example(
                "a.jsonl:1",
                [{"role": "user", "content": "Add.\n\n1 and 1"}],
                "2",
                "a",
                {"input": "1 and 1", "output": "2"},
            ),
        ),
        (
            {"instruction": "1+1?", "input": "", "output": "2"},
            Keys(("instruction",), ("output",), chat=False),
            Example("a.jsonl:1", "1+1?", "2", "a", {"input": "", "output": "2"}),
        ),
        (
            {"prompt": [{"role": "user", "content": [{"type": "text", "text": "1+1?"}]}], "answer": [2]},
            Keys(),
            Example("a.jsonl:1", [USER], [2], "a", {"answer": [2]}),
        ),
    ],
)
def test_a_file_is_read_in_the_columns_it_has(
    tmp_path: Path, row: dict[str, Any], keys: Keys, example: Example
) -> None:
    assert list(examples_of([write(tmp_path / "a.jsonl", row)], keys)) == [example]


@pytest.mark.parametrize(
    ("row", "keys", "said"),
    [
        ({"problem": "?", "solution": "2"}, Keys(), "did you mean data.prompt_key=problem data.answer_key=solution?"),
        ({"Question": "?", "answer": "2"}, Keys(), "did you mean data.prompt_key=Question?"),
        ({"promt": "?", "answr": "2"}, Keys(), "did you mean data.prompt_key=promt data.answer_key=answr?"),
        ({"x": "?", "y": "2"}, Keys(), "(its columns: x, y); name the one with the prompt by data.prompt_key=COLUMN."),
        (
            {"problem": "?"},
            Keys(("problm",)),
            "has no column `problm` (its columns: problem); did you mean data.prompt_key=",
        ),
        ({"prompt": "?", "set": 3}, Keys(source=("set",)), "line 1: `set` is not a name"),
        ({"messages": [{"role": "user"}]}, Keys(), "message 1 of `messages` is not a role and a content"),
    ],
)
def test_columns_that_are_not_there_are_offered_by_near_names(
    tmp_path: Path, row: dict[str, Any], keys: Keys, said: str
) -> None:
    with pytest.raises(DataError) as caught:
        examples_of([write(tmp_path / "a.jsonl", row)], keys)
    assert said in str(caught.value)


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_what_the_first_row_lacks_is_a_column_all_the_same(tmp_path: Path, name: str) -> None:
    rows: list[dict[str, Any]] = [
        {"question": "Hello?"},
        {"question": "1+1?", "answer": "2", "data_source": "sums"},
        {"question": "1+2?", "answer": "3", "data_source": None},
    ]
    file = write(tmp_path / name, *rows)
    if name.endswith("json"):
        file.write_text(json.dumps(rows))
    found = examples_of([file])
    assert [(one.ground_truth, one.data_source) for one in found] == [(None, "a"), ("2", "sums"), ("3", "a")]


def test_gsm8k_as_it_comes_needs_neither_name_nor_function(tmp_path: Path) -> None:
    rows = [{"question": f"{n}+1?", "answer": f"It is <<{n}+1>> so\n#### {n + 1}"} for n in range(3)]
    task = load_task(str(write(tmp_path / "train.jsonl", *rows)))
    assert task.name == "gsm8k"
    assert task.score(task.train_examples()[0], task.gold(task.train_examples()[0])).score == 1
    other = write(tmp_path / "sums.jsonl", {"question": "1+1?", "answer": "2"}, {"question": "1+2?", "answer": "3"})
    with pytest.raises(DataError, match=r"no built-in scorer .*reward\.function=.* reward\.judge\.url"):
        load_task(str(other))


def test_files_are_drawn_in_their_shares_and_each_in_epochs_of_its_own(tmp_path: Path) -> None:
    few = write(tmp_path / "few.jsonl", *({"prompt": f"f{n}", "answer": "1"} for n in range(3)))
    many = write(tmp_path / "many.jsonl", *({"prompt": f"m{n}", "answer": "1"} for n in range(40)))
    none = write(tmp_path / "none.jsonl", {"prompt": "never", "answer": "1"})
    mixed = Mixed(examples_of([few, many, none]), [0.25, 0.75, 0.0])
    drawn = [mixed[mixed.place(position, 7, epoch_order)] for position in range(48)]
    for step in range(0, 48, 8):
        assert Counter(one.data_source for one in drawn[step : step + 8]) == {"few": 2, "many": 6}
    asked = [str(one.prompt) for one in drawn]
    assert {asked.count(f"f{n}") for n in range(3)} == {4}, "four epochs of the short file"
    assert max(asked.count(f"m{n}") for n in range(40)) == 1
    again = Mixed(examples_of([few, many, none]), [0.25, 0.75, 0.0])
    assert again[again.place(47, 7, epoch_order)] == drawn[47], "a later place is known without the ones before"
    with pytest.raises(DataError, match=r"file 1 of data\.train has no prompt that fits"):
        Mixed(_Second(examples_of([few, many])), [0.5, 0.5])


class _Second(Sliced):
    """Only what is in the second file."""

    def __init__(self, examples: Sliced):
        self.examples = examples

    def __len__(self) -> int:
        return 40

    def at(self, index: int) -> Example:
        return self.examples.at(3 + index)

    def file_of(self, index: int) -> int:
        return 1


def test_weights_and_sources_reach_the_prompts_and_metrics_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(RIGHT)
    one = write(tmp_path / "one.jsonl", *({"prompt": f"{n}+1=", "answer": "1"} for n in range(30)))
    two = write(
        tmp_path / "two.jsonl", *({"prompt": f"{n}+2=", "answer": "1", "data_source": "org/two"} for n in range(30))
    )
    files = f"data.train=[{one},{two}]", "data.weights=[3,1]", f"data.held_out=[{one},{two}]", "validation.examples=60"
    run = trained(tmp_path, "mixed", *files, f"reward.function={tmp_path / 'right.py'}")
    rows = load_run(run).rollouts(1)
    assert Counter(np.asarray(rows["data_source"]).tolist()) == {"one": 6, "org/two": 2}
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    for name in ("val/accuracy_sampled", "val/accuracy_greedy", "val/score_mean"):
        assert last[name] == pytest.approx((last[f"{name}/one"] + last[f"{name}/two"]) / 2)
    assert last["critic/score/mean"] == pytest.approx(
        (6 * last["critic/score/mean/one"] + 2 * last["critic/score/mean/two"]) / 8
    )
    alike = by_source("x", ["a/gsm8k", "b/gsm8k", "a/gsm8k"], [1, 0, 0])
    assert alike == {"x/a/gsm8k": 0.5, "x/b/gsm8k": 0.0}, "two that end alike keep their whole names"


def test_a_system_prompt_goes_before_every_chat_that_has_none() -> None:
    own = [{"role": "system", "content": "Own."}, USER]
    prompts: list[Prompt] = ["1+1?", [USER], own]
    plain = [Example(str(n), prompt, None, "s") for n, prompt in enumerate(prompts)]
    system = {"role": "system", "content": "Be brief."}
    asked = [example.prompt for example in WithSystem(plain, "Be brief.")]
    assert asked == [[system, USER], [system, USER], own]
    gym = ReasoningGym("chain_sum", size=3, held_out=1)
    (example, *_) = WithSystem(gym.train_examples(), "Be brief.")
    assert gym.score(example, gym.gold(example)).score == 1, "the question is still found behind the system prompt"


THINKING = "{% for m in messages %}{{ m['content'] }}|{% endfor %}{% if enable_thinking %}<think>{% endif %}"


def test_chat_template_arguments_reach_the_template_and_a_wrong_one_is_offered(tmp_path: Path) -> None:
    tokenizer = character_tokenizer()
    tokenizer.chat_template = THINKING
    check_template_arguments(tokenizer, {"enable_thinking": False})
    with pytest.raises(UnknownNameError, match=r"data\.chat_template_kwargs.*did you mean 'enable_thinking'"):
        check_template_arguments(tokenizer, {"enable_thinkin": False})
    tokenizer.chat_template = None
    with pytest.raises(SettingError, match="no chat template"):
        check_template_arguments(tokenizer, {"enable_thinking": False})
    model = save_chat_model(tmp_path / "model")
    (model / "chat_template.jinja").write_text(THINKING)
    (tmp_path / "right.py").write_text(RIGHT)
    data = write(tmp_path / "a.jsonl", *({"question": f"{n}+1?", "answer": str(n + 1)} for n in range(20)))
    settings = [f"data.train={data}", f"reward.function={tmp_path / 'right.py'}", f"model.path={model}", "steps=1"]
    settings += ["data.system=ab", "sampling.max_new_tokens=4", "validation.every=0", "validation.examples=1"]
    ids = []
    for on in ("true", "false"):
        run = trained(tmp_path, f"thinks-{on}", *settings, f"data.chat_template_kwargs.enable_thinking={on}")
        ids.append(list(np.asarray(load_run(run).rollouts(1)["prompt_ids"])[0]))
    assert len(ids[0]) > len(ids[1])
    assert ids[0][: len(ids[1])] == ids[1]


def test_a_run_with_a_stop_text_of_two_tokens_ends_its_answers_there_and_stays_clean(tmp_path: Path) -> None:
    run = trained(tmp_path, "stops", "sampling.stop=[，等于]", "audit.every=1")
    rows = load_run(run).rollouts(1)
    pairs = list(zip(np.asarray(rows["response"]), np.asarray(rows["finish_reason"]), strict=True))
    assert any(text.endswith("，等于") and reason == "stop" for text, reason in pairs)
    assert not any("，等于" in text[:-1] for text, _ in pairs)
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert (last["audit/bugs"], last["audit/suspicious"]) == (0, 0)


COUNTDOWN = """
def compute_score(data_source, solution_str, ground_truth, extra_info):
    return float(solution_str != "" and eval(solution_str, {}) == ground_truth["target"])

def by_target(solution_str, ground_truth, **rest):
    return float("+" in solution_str and eval(solution_str, {}) == ground_truth)
"""
TAGGED = """
import re

def compute_score(solution_str, ground_truth, **rest):
    found = re.search("<answer>(.*)</answer>", solution_str)
    return float(bool(found) and found[1] == str(ground_truth))
"""


def test_ground_truths_that_are_no_answers_do_not_fail_the_check(tmp_path: Path) -> None:
    (tmp_path / "countdown.py").write_text(COUNTDOWN)
    truths: list[dict[str, Any]] = [{"target": n + 10, "numbers": [n, 10]} for n in range(40)]
    mapped = write(tmp_path / "mapped.jsonl", *({"prompt": "?", "reward_model": {"ground_truth": t}} for t in truths))
    report = check(mapped, f"{tmp_path}/countdown.py")
    assert not report.failures
    assert "to none of 6 wrong answers; right ones could not be tried: the ground truth of" in report.sentence
    target = write(tmp_path / "target.jsonl", *({"prompt": "?", "answer": t["target"], **t} for t in truths))
    report = check(target, f"{tmp_path}/countdown.py:by_target")
    assert report.sentence.startswith("none of the 6 ground truths gets full marks, plain or as <answer>…</answer>,")
    assert "examples fail" not in shown(report)
    solved = write(
        tmp_path / "solved.jsonl",
        *({"prompt": "?", "ground_truth": t, "extra_info": {"answer": f"{t['numbers'][0]}+10"}} for t in truths),
    )
    assert "full marks to all 6 right answers" in check(solved, f"{tmp_path}/countdown.py").sentence
    (tmp_path / "ones.py").write_text("def compute_score(**rest): return 1.0")
    assert "6 of 6 examples fail" in check(mapped, f"{tmp_path}/ones.py").sentence, "an empty answer gets full marks"


def test_a_right_answer_is_tried_in_the_form_that_the_scorer_wants(tmp_path: Path) -> None:
    (tmp_path / "tagged.py").write_text(TAGGED)
    data = write(tmp_path / "a.jsonl", *({"problem": f"{n}?", "solution": f"{n}"} for n in range(20)))
    console = quiet()
    settings = [f"reward.function={tmp_path}/tagged.py", "data.prompt_key=problem", "data.answer_key=solution"]
    assert check_command.run(console, str(data), overrides=settings, examples=4)
    assert "full marks to all 4 right answers" in " ".join(said(console).split())
    assert "<answer>" in said(console)


def check(data: Path, function: str) -> CheckReport:
    return check_task(load_task(str(data), function=function), (FunctionScorer(function), 1.0), examples=6)


def shown(report: CheckReport) -> str:
    console = quiet()
    console.print(render(report))
    return said(console)
