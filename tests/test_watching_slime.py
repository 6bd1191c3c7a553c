"""slime's hook with arguments and rollout data as its actor has them (slime is not on PyPI)."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dump_batches import LENGTHS, B, batch, slime_rank

from mingce.importers import open_dump
from mingce.watching import slime


def arguments() -> SimpleNamespace:
    return SimpleNamespace(
        advantage_estimator="ppo", gamma=1.0, lambd=0.95, kl_coef=0.0, use_kl_loss=True, kl_loss_coef=0.01,
        kl_loss_type="low_var_kl", eps_clip=0.2, eps_clip_high=0.28, eps_clip_c=None, value_clip=0.2, entropy_coef=0.0,
        rollout_temperature=1.0, rollout_top_p=1.0, n_samples_per_prompt=2, num_rollout=3, grpo_std_normalization=True,
        rollout_max_response_len=5, wandb_api_key="secret",
    )  # fmt: skip


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINGCE_WATCH", str(tmp_path / "mine"))
    monkeypatch.setattr(slime, "_RECORDERS", {})
    return tmp_path / "mine"


def data(rank: int = 0) -> dict[str, Any]:
    """One data-parallel rank's share: its rows are every other one of the rollout."""
    found: dict[str, Any] = slime_rank(rank)["rollout_data"]
    places = [2 * row + rank for row in range(B)]
    return found | {"partition": places, "raw_reward": [float(at) for at in range(2 * B)]}


def close() -> None:
    for recorder in slime._RECORDERS.values():
        if recorder is not None:
            recorder.close()


def test_each_step_is_recorded_as_the_actor_has_it(place: Path) -> None:
    for step in (0, 1):
        slime.record(arguments(), step, data())
    close()
    first, second = open_dump(place)
    made = batch()
    assert (first.source, first.step, second.step) == ("slime", 0, 1)
    assert first.rows["outcome"] == [0.0, 2.0, 4.0, 6.0]
    assert first.rows_of == 2 * B
    assert (first.settings.lam, first.settings.clip_high, first.settings.kl_loss_coef) == (0.95, 0.28, 0.01)
    for theirs, ours in (("old_log_probs", "old_log_probs"), ("advantages", "advantages"), ("values", "values")):
        for row, length in enumerate(LENGTHS):
            np.testing.assert_array_equal(first.columns[ours][row, :length], made[theirs][row, :length].double())
    assert "secret" not in (place / "config.yaml").read_text()


def test_nothing_of_it_reaches_the_trainer(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    place.write_text("a file in the way")
    given = data()
    kept = {name: list(value) for name, value in given.items()}
    with caplog.at_level(logging.WARNING, "mingce"):
        for step in range(3):
            slime.record(arguments(), step, given)
    assert len([one for one in caplog.records if one.name == "mingce"]) == 1
    assert all(a is b for name in kept for a, b in zip(given[name], kept[name], strict=True))


def test_without_a_directory_nothing_happens(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MINGCE_WATCH")
    slime.record(arguments(), 0, {})
    assert not place.exists()
    assert slime._RECORDERS == {}
