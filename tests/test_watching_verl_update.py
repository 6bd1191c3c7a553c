"""What verl's workers write of their losses, and how the driver finds its rows in it. No verl is needed."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mingce.watching import verl_join, verl_update
from mingce.watching.verl_join import Joiner
from mingce.watching.verl_update import Seen, UpdateWriter, digests, folder_of, losses_told, packed

WIDTH = 6


def batch(rows: int, seed: int) -> dict[str, torch.Tensor]:
    """As a driver has it: the last row has no token of its own, the others may have holes."""
    torch.manual_seed(seed)
    mask = (torch.rand(rows, WIDTH) < 0.7).long()
    mask[:, 0], mask[-1] = 1, 0
    return {
        "response_mask": mask, "old_log_probs": -torch.rand(rows, WIDTH), "advantages": torch.randn(rows, WIDTH),
        "responses": torch.randint(3, 9, (rows, WIDTH)), "values": torch.randn(rows, WIDTH),
        "returns": torch.randn(rows, WIDTH),
    }  # fmt: skip


def fake_core_algos() -> Any:
    """The two functions as verl has them: a lookup, and a loss."""

    def loss(old_log_prob: Any, log_prob: Any, advantages: Any, response_mask: Any, **_: Any) -> Any:
        return ((log_prob - old_log_prob) * advantages * response_mask).sum(), {}

    def compute_value_loss(vpreds: Any, returns: Any, values: Any, response_mask: Any, **_: Any) -> Any:
        return ((vpreds - returns) ** 2 * response_mask).sum(), 0.0

    return SimpleNamespace(get_policy_loss_fn=lambda name: loss, compute_value_loss=compute_value_loss)


def updated(made: Any, data: dict[str, torch.Tensor], new: torch.Tensor, order: list[int]) -> None:
    """Micro-batches of two rows, called as verl calls its losses: the policy's by name."""
    for at in range(0, len(order), 2):
        rows = order[at : at + 2]
        loss, _ = made["get_policy_loss_fn"]("vanilla")(
            old_log_prob=data["old_log_probs"][rows], log_prob=new[rows], advantages=data["advantages"][rows],
            response_mask=data["response_mask"][rows].bool(), loss_agg_mode="token-mean", config=None,
        )  # fmt: skip
        loss.backward(retain_graph=True)
        named = {"values": data["values"][rows], "returns": data["returns"][rows]}
        made["compute_value_loss"](vpreds=new[rows] + 1, response_mask=data["response_mask"][rows], **named)


def waited(folder: Path) -> None:
    ends = time.monotonic() + 30
    while not list(folder.glob("*.npz")) and time.monotonic() < ends:
        time.sleep(0.02)


@pytest.mark.parametrize("listed", [False, True], ids=["DataProto", "TransferQueue"])
def test_rows_are_found_by_what_they_hold(listed: bool, tmp_path: Path) -> None:
    data, writer = batch(7, 0), UpdateWriter(folder_of(tmp_path / "run"))
    made = losses_told(fake_core_algos(), writer.saw)
    new = torch.randn(7, WIDTH, requires_grad=True)
    updated(made, data, new, [3, 1, 6, 0, 5, 2, 4])
    waited(folder_of(tmp_path / "run"))
    joiner = Joiner(folder_of(tmp_path / "run"))
    if listed:
        found = joiner.joined({name: list(column.unbind()) for name, column in data.items()})
        columns, others = {name: torch.stack(found[name]) for name in ("new_log_probs", "new_values")}, found
    else:
        both = joiner.joined({"batch": data, "non_tensor_batch": {}})
        columns, others = both["batch"], both["non_tensor_batch"]
    assert torch.equal(columns["new_log_probs"][:6], new.detach()[:6])
    assert torch.equal(columns["new_values"][:6], new.detach()[:6] + 1)
    assert not columns["new_log_probs"][6].any()  # a row without a token of its own
    assert others["minibatch"] == [0] * 7
    joiner.close()
    assert not folder_of(tmp_path / "run").exists()


def test_a_step_takes_its_own_rows_where_workers_are_ahead(tmp_path: Path) -> None:
    first, second = batch(4, 1), batch(4, 2)
    joiner = Joiner(tmp_path)
    for number, data in enumerate((first, second)):
        keys = digests(data["response_mask"].numpy(), data["old_log_probs"].numpy(), data["advantages"].numpy())
        rows = np.full((4, WIDTH), number, dtype=np.float32)
        (tmp_path / f"{number:020d}-x.npz").write_bytes(packed([Seen("new_log_probs", keys, rows, 1, number)]))
    for number, data in enumerate((first, second)):
        found = joiner.joined({"batch": data, "non_tensor_batch": {}})
        assert found["batch"]["new_log_probs"][:3].unique().tolist() == [number]
        assert found["non_tensor_batch"]["epoch"][:3] == [1] * 3
        assert found["non_tensor_batch"]["minibatch"][:3] == [number] * 3


def test_rows_that_did_not_come_are_said_and_nothing_is_made_up(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(verl_join, "WAIT", 0.1)
    data = batch(4, 1)
    keys = digests(data["response_mask"].numpy(), data["old_log_probs"].numpy(), data["advantages"].numpy())
    seen = Seen("new_log_probs", keys[:1], np.zeros((1, WIDTH), np.float32), 0, 0)
    (tmp_path / "00000000000000000000-x.npz").write_bytes(packed([seen]))
    with pytest.raises(ValueError, match=" 2 "):
        Joiner(tmp_path).joined({"batch": data, "non_tensor_batch": {}})
    assert "new_log_probs" not in Joiner(tmp_path).joined({"batch": data, "non_tensor_batch": {}})["batch"]


def test_without_gradients_nothing_is_recorded_and_a_failure_is_not_raised(caplog: Any) -> None:
    told: list[Seen] = []
    made = losses_told(fake_core_algos(), told.append)
    data = batch(2, 0)
    named = {
        "old_log_prob": data["old_log_probs"],
        "advantages": data["advantages"],
        "response_mask": torch.ones(2, WIDTH),
    }
    made["get_policy_loss_fn"]("vanilla")(log_prob=torch.zeros(2, WIDTH), **named)
    assert told == []
    verl_update._SAID.clear()

    def broken(seen: Seen) -> None:
        raise OSError("disk full")

    made = losses_told(fake_core_algos(), broken)
    new = torch.zeros(2, WIDTH, requires_grad=True)
    with caplog.at_level(logging.WARNING, "mingce"):
        for _ in range(3):
            loss, _ = made["get_policy_loss_fn"]("vanilla")(log_prob=new, **named)
    assert loss.requires_grad
    assert sum("disk full" in line for line in caplog.messages) == 1


def test_where_nobody_reads_a_worker_stops_writing(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(verl_update, "_FILES", 2)
    writer = UpdateWriter(tmp_path)
    seen = Seen("new_log_probs", ["a"], np.zeros((1, 2), np.float32), 0, 0)
    for _ in range(5):
        writer._write([seen])
    assert len(list(tmp_path.glob("*.npz"))) == 2
    assert writer.dropped == 3
    Joiner(tmp_path).forget(time.time_ns())
    assert not list(tmp_path.glob("*.npz"))


def test_the_digest_knows_no_padding_and_no_sign_of_zero() -> None:
    mask = np.array([[1, 0, 1, 0]])
    one = digests(mask, np.array([[0.0, 5.0, 2.0, 0.0]]))
    assert one == digests(mask[:, :3], np.array([[-0.0, 7.0, 2.0]]))
    assert one != digests(mask, np.array([[0.5, 5.0, 2.0, 0.0]]))
