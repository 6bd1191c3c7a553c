"""Checkpoints written beside training: the state of their own step, one at a time, and no error is lost."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mingce.base.errors import RunError
from mingce.record.checkpoints import Draft, Keep, load, prepare
from mingce.record.run import Run
from mingce.training import saving
from mingce.training.saving import Saver


def draft(run: Run, step: int, weight: Tensor) -> Draft:
    run.log(step, {"loss": 1.0})
    return prepare(run, step, tensors={"actor": {"model.w": weight}}, state={}, keep=Keep(last=9))


def test_what_is_written_is_the_state_of_its_step(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, weight, saver = threading.Event(), torch.zeros(1000), Saver()
    usual = Draft.write

    def slow(self: Draft) -> Path:
        assert go_on.wait(300)
        return usual(self)

    monkeypatch.setattr(Draft, "write", slow)
    saver.save(draft(run, 1, weight))
    weight += 1  # the next step
    assert run.checkpoint_steps() == []
    go_on.set()
    saver.save(draft(run, 2, weight))  # waits for the first
    assert run.checkpoint_steps()[0] == 1
    saver.wait()
    assert [float(load(run, step).tensors["actor"]["model.w"].sum()) for step in (1, 2)] == [0.0, 1000.0]


def test_an_error_is_told_once_at_the_next_step(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Draft) -> Path:
        raise RunError("disk full")

    monkeypatch.setattr(Draft, "write", refused)
    saver = Saver()
    saver.save(draft(run, 1, torch.zeros(3)))
    with pytest.raises(RunError, match="disk full"):
        saver.wait()
    saver.check()


def test_without_memory_for_a_copy_training_waits(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "free_memory", lambda: 10.0)
    saver = Saver()
    saver.save(draft(run, 1, torch.zeros(1000)))
    assert run.checkpoint_steps() == [1]
    assert saver._thread is None
