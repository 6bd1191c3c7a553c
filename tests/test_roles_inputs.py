"""Columns that only some estimators read are measured if the estimator names them, and the loop knows none of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import mingce
from mingce.columns import COLUMNS
from mingce.ledger import Ledger
from mingce.roles.inputs import ON_REQUEST, Rollouts, measure_inputs
from mingce.specs import ESTIMATORS


class Actor:
    """Counts how often it is asked for its attention."""

    def __init__(self) -> None:
        self.passes = 0

    def attention(self, ledger: Ledger) -> dict[str, torch.Tensor]:
        self.passes += 1
        return {"attention_weights": torch.ones(ledger.mask.shape)}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_what_an_estimator_names_is_measured_and_nothing_else(name: str) -> None:
    actor: Any = Actor()
    ledger = Ledger(torch.ones(2, 3, dtype=torch.long), torch.ones(2, 3))
    reward: Any = SimpleNamespace()
    measure_inputs(ESTIMATORS[name].inputs, Rollouts(ledger, [], 1, actor, reward))
    requested = [column for column in ESTIMATORS[name].inputs if column in ON_REQUEST]
    assert all(column in ledger or column in ledger.rows for column in requested)
    assert actor.passes == requested.count("attention_weights")


def test_the_loop_knows_no_column_of_a_single_estimator() -> None:
    assert set(ON_REQUEST) <= set(COLUMNS)
    loop = "".join(path.read_text("utf-8") for path in (Path(mingce.__file__).parent / "training").glob("*.py"))
    assert not [name for name in ON_REQUEST if name in loop]
