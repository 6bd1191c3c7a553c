"""When turns were decoded and environments stepped: recorded beside the ledger, dropped with it, never trusted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_runs import quiet, trained

from mingce.record.clocks import TurnClock, read_clocks, write_clocks
from mingce.record.run import Run
from mingce.training import start

CALCULATOR = ("task=calculator", "model.path=calculator", "sampling.max_new_tokens=64", "validation.examples=4")


def test_every_row_has_the_times_of_its_turns(tmp_path: Path) -> None:
    path = trained(tmp_path, "r", *CALCULATOR, "steps=2")
    run = Run.open(path, readonly=True)
    for step in (1, 2):
        ledger, clocks = run.ledger.read(step), read_clocks(run.clocks_path, step)
        assert len(clocks) == len(ledger)
        for row, turns in enumerate(clocks):
            assert [one.turn for one in turns] == sorted(set(ledger["turn"][row][ledger.mask[row]].tolist()))
            at = 0.0
            for one in turns:
                assert at <= one.decoded_from <= one.decoded_to
                at = one.decoded_to
                if one.stepped_from is not None:
                    assert one.stepped_to is not None
                    assert one.decoded_from <= one.stepped_from <= one.stepped_to
    assert any(one.stepped_from is not None for row in clocks for one in row)


def test_a_rewind_drops_them_too(tmp_path: Path) -> None:
    path = trained(tmp_path, "r", *CALCULATOR, "steps=1")
    before = read_clocks(path / "clocks", 1)
    write_clocks(path / "clocks", 2, before)
    write_clocks(path / "clocks", 9, before)
    start.resume(quiet(), path, ["steps=2"])
    assert read_clocks(path / "clocks", 1) == before
    assert read_clocks(path / "clocks", 2) != before
    assert read_clocks(path / "clocks", 9) == []


def test_a_task_without_environments_has_none(tmp_path: Path) -> None:
    assert not (trained(tmp_path, "r", "steps=1") / "clocks").exists()


@pytest.mark.parametrize(
    "rows",
    [None, 7, [7], [[7]], [[[0, 1]]], [[[0, None, 1, 2, 3]]], [[["a", 0, 1, 2, 3]]], [[[0, float("nan"), 1, 2, 3]]],
     [[[0, "x", 1, 2, 3]]]],
)  # fmt: skip
def test_a_strangers_file_is_left_out(tmp_path: Path, rows: object) -> None:
    write_clocks(tmp_path, 1, [[TurnClock(0, 0.0, 1.0)]])
    assert read_clocks(tmp_path, 1) == [[TurnClock(0, 0.0, 1.0)]]
    (tmp_path / "step-000001.json").write_text(json.dumps({"rows": rows}))
    assert read_clocks(tmp_path, 1) == []
