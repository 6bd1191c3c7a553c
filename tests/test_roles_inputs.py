"""Columns that only some estimators read are measured if the estimator names them, and the loop knows none of them."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

import mingce
from mingce.columns import COLUMNS, ROW_COLUMNS
from mingce.config import read_config
from mingce.engine.local import build_roles
from mingce.ledger import Ledger
from mingce.models.prompts import render_prompt
from mingce.models.sampling import Sampling
from mingce.record.run import Run
from mingce.roles.inputs import ON_REQUEST, Rollouts, measure_inputs
from mingce.specs import ESTIMATORS
from mingce.training import start

SMALL = ("steps=2", "prompts_per_step=4", "samples_per_prompt=2", "minibatch_rollouts=4", "validation.examples=4",
         "threads=1")  # fmt: skip


def noting(measured: list[str], column: str) -> Callable[[Rollouts], None]:
    return lambda rollouts: measured.append(column)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_what_an_estimator_names_is_measured_and_nothing_else(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []
    for column in list(ON_REQUEST):
        monkeypatch.setitem(ON_REQUEST, column, noting(measured, column))
    nobody: Any = SimpleNamespace()
    ledger = Ledger(torch.ones(2, 3, dtype=torch.long), torch.ones(2, 3))
    measure_inputs(ESTIMATORS[name].inputs, Rollouts(ledger, [], 1, nobody, nobody))
    assert measured == [column for column in ESTIMATORS[name].inputs if column in ON_REQUEST]
    given = {*ROW_COLUMNS, *COLUMNS} - {*ON_REQUEST}
    assert {*ESTIMATORS[name].inputs} <= given | {*measured}


def test_greedy_scores_are_those_of_one_greedy_answer_to_each_prompt() -> None:
    config = read_config(None, [*SMALL, "samples_per_prompt=3", "prompts_per_step=6", "seed=5"])
    with closing(build_roles(config)) as roles:
        examples = roles.batch(2, 6, config.seed)
        ledger = roles.actor.generate(examples, 2)
        rollouts = Rollouts(ledger, [example for example in examples for _ in range(3)], 2, roles.actor, roles.reward)
        measure_inputs(("rewards", "greedy_score"), rollouts)
        measured = ledger.row("greedy_score")
        prompts = [render_prompt(roles.tokenizer, example.prompt) for example in examples]
        sampling = Sampling(config.sampling.max_new_tokens, 0.0, stop_ids=roles.actor.sampling.stop_ids)
        texts = roles.actor.draw(prompts, sampling, [0] * 6).texts(roles.tokenizer)
        wanted = [roles.task.score(one, text).total for one, text in zip(examples, texts, strict=True)]
        assert measured == [score for score in wanted for _ in range(3)]
        measure_inputs(("greedy_score",), rollouts)
        assert ledger.row("greedy_score") == measured


REMAX = """
import mingce

@mingce.estimator(inputs=("rewards", "response_mask", "greedy_score"), whitens=False)
def remax_like(rewards, response_mask, greedy_score):
    total = (rewards * response_mask).sum(1)
    return (total - rewards.new_tensor(greedy_score))[:, None] * response_mask
"""


def test_an_estimator_of_ones_own_may_read_them(tmp_path: Path) -> None:
    (tmp_path / "remax.py").write_text(REMAX)
    name = f"{tmp_path / 'remax.py'}:remax_like"
    console = Console(file=io.StringIO(), width=100)
    try:
        start.train(console, None, [f"root={tmp_path}", "name=run", f"estimator={name}", *SMALL])
    finally:
        ESTIMATORS.pop(name, None)
        ESTIMATORS.pop("remax_like", None)
    ledger = Run.open(tmp_path / "run", readonly=True).ledger.read(2)
    baseline = torch.tensor(ledger.row("greedy_score"), dtype=torch.float32)
    total = (ledger["rewards"] * ledger.mask).sum(1)
    torch.testing.assert_close(ledger["advantages"], (total - baseline)[:, None] * ledger.mask)


def test_the_loop_knows_no_column_of_a_single_estimator() -> None:
    assert set(ON_REQUEST) <= set(COLUMNS)
    loop = "".join(path.read_text("utf-8") for path in (Path(mingce.__file__).parent / "training").glob("*.py"))
    assert not [name for name in ON_REQUEST if name in loop]
