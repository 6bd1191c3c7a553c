"""Validation keeps to its budget, says how far it is, and asks the same later; threads that fit a busy machine."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_runs import quiet, said, trained

from mingce.base import machine
from mingce.base.machine import free_cores, usable_cores
from mingce.config import read_config
from mingce.engine.local import LocalRoles, build_roles
from mingce.training import start, validation
from mingce.training.validation import FIRST, PROMPTS, validate


@pytest.fixture(scope="module")
def roles() -> Iterator[LocalRoles]:
    built = build_roles(read_config(None, ["threads=1"]))
    yield built
    built.close()


class Clock:
    """Every prompt takes a second: the time is that of the rows that were drawn, two a prompt."""

    def __init__(self) -> None:
        self.rows = 0
        self.shares: list[float] = []

    def told(self, rows: int, total: int, share: float) -> None:
        self.rows = max(self.rows, rows)
        self.shares.append(share)

    def __call__(self) -> float:
        return self.rows / 2


@pytest.mark.parametrize(("budget", "asked"), [(0.0, 60), (1000.0, 60), (25.0, 25), (2.0, FIRST)])
def test_the_first_validation_asks_as_many_as_fit_its_budget(roles: LocalRoles, budget: float, asked: int) -> None:
    config = read_config(None, [f"validation.budget={budget}", "validation.examples=60"])
    clock = Clock()
    found = validate(roles, config, None, clock.told, clock)
    assert found.metrics.get(PROMPTS, 60) == asked
    assert clock.shares == sorted(clock.shares)
    assert clock.shares[-1] == pytest.approx(asked / 60)
    assert 0 < clock.shares[0] < 0.04, "it moves with the first token, long before a row has ended"
    later = Clock()
    again = validate(roles, config, found, later.told, lambda: 1e9)
    assert again.metrics == found.metrics, "the same prompts and seeds, whatever the clock says, in one go or in parts"


def test_a_run_says_that_it_kept_to_the_budget_and_goes_on_with_the_same_prompts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, english: None
) -> None:
    monkeypatch.setattr(validation, "FIRST", 3)
    run = trained(tmp_path, "short", "validation.budget=1e-9", "steps=1")
    start.resume(console := quiet(), run, ["steps=2"])
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line[PROMPTS] for line in lines] == [3, 3, 3]
    assert "budget" not in said(console), "said once, when it was cut"
    start.train(console, None, [f"root={tmp_path}", "validation.budget=1e-9", "steps=0"])
    assert "the first 3 held-out prompts were asked" in said(console)


def test_threads_are_as_many_as_there_are_free_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(machine, "usable_cores", lambda: 4)
    stat = tmp_path / "stat"

    def free(user: int, idle: int) -> int:
        stat.write_text("cpu  100 0 50 1000 10 0 0 0 0 0\n")
        return free_cores(stat, lambda: bool(stat.write_text(f"cpu  {100 + user} 0 50 {1000 + idle} 10 0 0 0 0 0\n")))  # type: ignore[arg-type]

    assert [free(0, 80), free(20, 60), free(45, 35), free(80, 0)] == [4, 3, 2, 1]
    assert free_cores(tmp_path / "none") == 4, "where it cannot be seen, all"
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert usable_cores(tmp_path) == 2
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert usable_cores(tmp_path) == 4


def test_a_run_keeps_the_number_of_threads_that_was_chosen(tmp_path: Path) -> None:
    run = trained(tmp_path, "chosen", "threads=0", "steps=1", "validation.examples=1")
    assert "threads: 1\n" in (run / "config.yaml").read_text()
