"""One row of 64 that is out of line is named, and noisy rows of a clean batch are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from audit_case import Case
from audit_toys import named, toy
from audit_world import Sampler, other_experts, rounding_noise

from mingce.record.dump import Dump

OLD, DRAWN, REF = "old_log_probs", "rollout_log_probs", "ref_log_probs"
FLAT: dict[str, Any] = {"noise": 0.1, "stale": 0.1}  # an engine that is no exact copy
Row = np.ndarray


def shifted(row: Row, rng: np.random.Generator, other: Row) -> Row:
    return np.roll(row, 1)


def retokenised(row: Row, rng: np.random.Generator, other: Row) -> Row:
    at = int(rng.integers(3, len(row) // 2))
    return np.concatenate([row[:at], np.roll(row[at:], -1)])


def another(row: Row, rng: np.random.Generator, other: Row) -> Row:
    return np.resize(other, len(row))


def shuffled(row: Row, rng: np.random.Generator, other: Row) -> Row:
    return rng.permutation(row)


PLANTS: dict[str, tuple[Callable[..., Row], int]] = {
    "shifted": (shifted, 18),
    "retokenised": (retokenised, 12),
    "of another row": (another, 37),
    "shuffled": (shuffled, 12),
}


def with_one_row(seed: int, plant: Callable[..., Row], column: str) -> tuple[Dump, int]:
    rng = np.random.default_rng(seed)
    dump = toy(seed, rows=64, width=64, **(FLAT if seed % 2 else {}))
    rows = rng.choice(np.flatnonzero(dump.mask.sum(axis=1) >= 20), 2, replace=False)
    mine, theirs = (np.flatnonzero(dump.mask[row]) for row in rows)
    numbers = dump.columns[column]
    numbers[rows[0], mine] = plant(numbers[rows[0], mine], rng, numbers[rows[1], theirs])
    return dump, int(rows[0])


@pytest.mark.parametrize("column", [OLD, DRAWN, REF])
@pytest.mark.parametrize("name", PLANTS)
def test_one_row_of_many_is_named(name: str, column: str) -> None:
    plant, number = PLANTS[name]
    if (name, column) == ("shuffled", REF):
        pytest.skip("the policy may have moved far from the reference in a row, and nothing tells that from this")
    for seed in range(3):
        dump, row = with_one_row(seed, plant, column)
        (finding,) = [one for one in named(dump) if one.fault.code == "few-rows-out-of-line"]
        assert [place.row for place in finding.places] == [row], seed
        assert number in finding.named, (seed, finding.values["how"])
        assert len(finding.named) <= 3


def test_one_turn_of_one_row_is_named() -> None:
    dump = toy(3, rows=64, width=96, holes=True)
    row = next(row for row in range(1, 64, 2) if dump.mask[row, 24:60].all())  # odd rows have tool output before 24
    dump.columns[DRAWN][row, 24:] = np.where(dump.mask[row, 24:], np.roll(dump.columns[DRAWN][row, 24:], 2), 0)
    (finding,) = [one for one in named(dump) if one.fault.code == "few-rows-out-of-line"]
    assert (finding.values["row"], finding.values["where"]) == (row, " (turn 2)")


@pytest.mark.parametrize(
    "noise", [other_experts(0.08, 1.0), other_experts(0.2, 0.7), rounding_noise(0.05), rounding_noise(0.2)]
)
def test_noise_in_clusters_and_tails_is_no_stray_row(noise: Callable[..., np.ndarray]) -> None:
    for seed in range(4):
        sampler = Sampler(noise=noise)
        dump = Case(seed, "own", seed % 2 == 0, rows=64, width=64, sampler=sampler, temperature=1.0).dump()
        assert "few-rows-out-of-line" not in [finding.fault.code for finding in named(dump)], seed


def test_a_nearly_certain_policy_still_shows_a_shifted_row() -> None:
    rng = np.random.default_rng(0)
    dump = toy(0, rows=64, width=128, full=1.0)
    del dump.columns["entropy"]
    sure = np.where(rng.random(dump.mask.shape) < 0.06, -rng.exponential(2.0, dump.mask.shape), -1e-5)
    for name in (OLD, DRAWN, REF, "new_log_probs"):
        dump.columns[name] = np.where(dump.mask, sure * (1 + 0.01 * rng.normal(size=sure.shape)), 0).astype(np.float32)
    assert "few-rows-out-of-line" not in [finding.fault.code for finding in named(dump)]
    dump.columns[DRAWN][7] = np.roll(dump.columns[DRAWN][7], 1)
    assert [finding.fault.code for finding in named(dump)] == ["few-rows-out-of-line"]
