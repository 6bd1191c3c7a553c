"""A ledger becomes one and the same dump, whether it comes from memory or from its file."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mingce.audit.audit import audit
from mingce.audit.formats import as_json
from mingce.config import Config, as_values
from mingce.credit import assign_credit
from mingce.importers import open_dump
from mingce.ledger import Ledger
from mingce.record.dump import LOSS, RAW, Dump, dump_of_ledger
from mingce.record.run import Run
from mingce.specs import ESTIMATORS
from mingce.specs.estimator import TRUNCATIONS

ROWS, WIDTH, STEP, BETA = 8, 12, 3, 0.0625


def ledger_of(config: Config, seed: int, updated: bool = True) -> Ledger:
    """Random rollouts with tool output, rows of all lengths, one empty, and everything that the estimator reads."""
    r = torch.Generator().manual_seed(seed)

    def normal() -> torch.Tensor:
        return torch.randn((ROWS, WIDTH), generator=r)

    lengths = torch.tensor([0, 1, 4, 7, 9, 10, WIDTH - 1, WIDTH])
    present = torch.arange(WIDTH) < lengths[:, None]
    chosen = present & ~((torch.arange(WIDTH) == 2) & (lengths[:, None] > 4))
    ids = torch.randint(1, 50, (ROWS, WIDTH), generator=r)
    finish = ["length" if length == WIDTH else "stop" for length in lengths]
    rows: dict[str, list[Any]] = {
        "uid": [f"{seed}-{row}" for row in range(ROWS)],
        "group": [f"p{row // 4}" for row in range(ROWS)],
        "prompt_ids": [[1, 5, row // 4] for row in range(ROWS)],
        "prompt": [f"prompt {row // 4}" for row in range(ROWS)],
        "response": [f"回答 {row}" for row in range(ROWS)],
        "finish_reason": finish,
        "score_parts": [{"right": 1.0}] * ROWS,
        "policy_version": [STEP - 1] * ROWS,
        "data_source": ["toy"] * ROWS,
        "bootstrap_value": normal()[:, 0].tolist(),
        "greedy_score": normal()[:, 0].tolist(),
    }
    ledger = Ledger(ids, chosen, present, rows)
    old = -normal().abs()
    ledger.fill({"rollout_log_probs": old, "old_log_probs": old, "entropy": normal().abs()})
    ledger.fill({"ref_log_probs": old + 0.1 * normal(), "scores": normal(), "values": normal()})
    ledger.fill({"attention_weights": normal().abs()})
    assign_credit(ledger, config, BETA)
    if updated:
        new = old + 0.05 * normal()
        ledger.fill({"new_log_probs": new, "ratio": (new - old).exp(), "new_values": normal() + 3.0})
    return ledger


def stored(root: Path, config: Config, ledger: Ledger, beta: float | None = BETA) -> Dump:
    """The ledger written to a run and read back by the importer."""
    with Run.create(root, "run", as_values(config)) as run:
        run.log(STEP, {} if beta is None else {"critic/kl_coeff": beta})
        path = run.ledger.write(STEP, ledger)
    (dump,) = open_dump(path)
    return dump


def assert_same(one: Dump, other: Dump) -> None:
    """Equal in everything but the file's path and what was logged beside it."""
    assert sorted(one.columns) == sorted(other.columns)
    for name, column in one.columns.items():
        assert column.dtype == other.columns[name].dtype, name
        np.testing.assert_array_equal(column, other.columns[name], err_msg=name)
    assert one.rows == other.rows
    for setting in fields(one.settings):
        assert getattr(one.settings, setting.name) == getattr(other.settings, setting.name), setting.name
    assert type(one.settings) is type(other.settings)
    assert (one.source, one.stored, one.remarks, one.step) == (other.source, other.stored, other.remarks, other.step)


@pytest.mark.parametrize("truncation", TRUNCATIONS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_in_memory_and_from_disk(tmp_path: Path, estimator: str, truncation: str) -> None:
    config = Config(estimator=estimator)
    config.credit.truncation = truncation if ESTIMATORS[estimator].needs_critic else "mask"
    config.credit.gamma, config.credit.lam, config.credit.n = 0.97, 0.9, 4
    ledger = ledger_of(config, len(estimator))
    held = dump_of_ledger(ledger, config, step=STEP, beta=BETA)
    read = stored(tmp_path, config, ledger)
    assert_same(held, read)
    assert held.settings.lam == ESTIMATORS[estimator].effective_lambda(0.9)
    assert as_json(audit(held))["findings"] == as_json(audit(read))["findings"]


@pytest.mark.parametrize("whiten", ["always", "never"])
def test_advantages_mean_what_they_mean_in_the_ledger(tmp_path: Path, whiten: str) -> None:
    config = Config()
    config.credit.whiten = whiten
    ledger = ledger_of(config, 1)
    for dump in (dump_of_ledger(ledger, config), stored(tmp_path, config, ledger)):
        np.testing.assert_array_equal(dump.columns["advantages"], ledger["advantages"].numpy())
        assert ("whitened_advantages" in dump.columns) == (whiten == "always")
        used = ledger["whitened_advantages" if whiten == "always" else "advantages"]
        np.testing.assert_array_equal(dump.column(LOSS), used.numpy())
        assert dump.has(RAW) == (whiten == "always")


def test_columns_that_no_update_has_written_are_left_out_of_both(tmp_path: Path) -> None:
    config = Config()
    ledger = ledger_of(config, 2, updated=False)
    zeros = torch.zeros(ROWS, WIDTH)
    ledger.fill({"new_log_probs": zeros, "ratio": zeros, "new_values": zeros})
    held, read = dump_of_ledger(ledger, config, step=STEP, beta=BETA), stored(tmp_path, config, ledger)
    assert_same(held, read)
    assert not {"new_log_probs", "ratio", "new_values"} & held.columns.keys()


def test_an_adaptive_price_is_the_step_s_own_or_unknown(tmp_path: Path) -> None:
    config = Config()
    config.kl.adaptive = True
    ledger = ledger_of(config, 3)
    for beta in (BETA, None):
        held = dump_of_ledger(ledger, config, step=STEP, beta=beta)
        assert held.settings.beta == beta
        assert held.settings.kl_target == config.kl.target
        assert_same(held, stored(tmp_path / str(beta), config, ledger, beta))


def test_an_estimator_of_one_s_own_is_named_in_both(tmp_path: Path) -> None:
    ledger = ledger_of(Config(), 4)
    config = Config(estimator="mine.py:odd")
    held, read = dump_of_ledger(ledger, config, step=STEP, beta=BETA), stored(tmp_path, config, ledger)
    assert_same(held, read)
    assert "mine.py:odd" in held.remarks[0][1]
