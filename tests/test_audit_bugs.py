"""Planted bugs are seen and named, and clean batches are silent; bench/audit_bugs.py is the same at full size."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from audit_bugs import Verdict, findings_of, judge, text_of
from audit_case import Case
from audit_clean import clean
from audit_plants import PARTLY, YES, Plant, load, planted

from mingce.config import Config
from mingce.credit import assign_credit
from mingce.ledger import Ledger

PLANTS = load()
FLAVOURS = Counter(plant.number for plant in PLANTS)
SEEDS = 3  # of each class, spread over its flavours


def verdicts(plant: Plant) -> list[Verdict]:
    """The plant on batches with tool output, or without where it needs that."""
    seeds = -(-SEEDS // FLAVOURS[plant.number])
    dumps = [planted(plant, seed, "own", plant.holes is not False) for seed in range(seeds)]
    return [judge(plant, dump) for dump in dumps if dump]


@pytest.mark.parametrize("plant", [pytest.param(p, id=p.name) for p in PLANTS if "own" in p.makers])
def test_a_planted_bug_is_detected_and_named(plant: Plant) -> None:
    found = verdicts(plant)
    assert found, "the bug was planted in no batch"
    for verdict in found:
        told = "\n".join(text_of(finding) for finding in verdict.findings)
        assert verdict.detected, f"not seen:\n{told}"
        assert verdict.named or plant.nameless, f"not named:\n{told}"


def test_every_decidable_class_is_planted() -> None:
    assert {*YES, *PARTLY} <= {plant.number for plant in PLANTS}
    assert (len(YES), len(PARTLY)) == (27, 18)


@pytest.mark.parametrize("seed", range(20))
def test_a_clean_batch_has_no_bug(seed: int) -> None:
    told = [text_of(finding) for finding in findings_of([clean(seed, "own", seed % 2 == 0, seed % 4 > 1)])]
    assert [line for line in told if line.startswith("bug")] == []


@pytest.mark.parametrize("estimator", ["gae", "n_step", "grpo", "rloo", "reinforce_plus_plus"])
@pytest.mark.parametrize("truncation", ["zero", "bootstrap", "mask"])
def test_the_bench_composes_a_step_as_the_trainer_does(estimator: str, truncation: str) -> None:
    case = Case(7, "own", True, rows=16, width=40, estimator=estimator, truncation=truncation)
    dump = case.dump()
    ledger = Ledger(torch.tensor(case.rollouts.ids), case.chosen, case.present)
    names = ("rollout_log_probs", "old_log_probs", "ref_log_probs", "scores", "values")
    ledger.fill({name: case.columns[name] for name in names if name in case.columns})
    after = [float(x) for x in case.raw["all_values"].gather(1, (case.last_present + 1)[:, None])[:, 0]]
    ledger.fill_rows(group=case.rollouts.group, finish_reason=case.rollouts.finish, bootstrap_value=after)
    config = Config(estimator=estimator)
    config.kl.estimator = case.settings["kl_estimator"]
    config.credit.gamma, config.credit.lam, config.credit.truncation = (
        case.settings["gamma"],
        case.settings["lam"],
        case.truncation,
    )
    config.credit.n = case.settings["n"]
    assign_credit(ledger, config, case.settings["beta"])
    assert ("whitened_advantages" in dump.columns) == ("whitened_advantages" in ledger)
    for name in ("rewards", "advantages", "whitened_advantages", "returns", "kl"):
        if name in dump.columns:
            assert torch.equal(torch.tensor(dump.columns[name]), ledger[name]), name
