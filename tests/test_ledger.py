"""The ledger: what it refuses, what it stores, and that taking it apart and putting it together loses nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from batches import Batch, batches
from hypothesis import given
from hypothesis import strategies as st

from mingce.base.errors import ColumnError, MingceError
from mingce.ledger import Ledger
from mingce.models.micro_batches import batcher, packed_batches, padded_batches


def ledger_of(batch: Batch) -> Ledger:
    rows, width = batch.mask.shape
    ids = torch.arange(1, rows * width + 1).reshape(rows, width)
    lengths = [(batch.seed + 7 * b) % 5 for b in range(rows)]
    ledger = Ledger(
        ids,
        batch.mask,
        rows={"uid": [f"u{b}" for b in range(rows)], "prompt_ids": [list(range(n)) for n in lengths]},
    )
    return ledger.fill({"scores": batch.rewards, "values": batch.values}, {"rewards": batch.rewards})


def same(a: Ledger, b: Ledger) -> bool:
    left, right = a.columns(), b.columns()
    return (
        left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left) and a.rows == b.rows
    )


@given(batch=batches(), junk=st.sampled_from([float("nan"), float("inf"), 1e38]))
def test_masked_slots_are_stored_as_zero(batch: Batch, junk: float) -> None:
    ledger = ledger_of(batch)
    ledger.fill({"values": torch.where(batch.mask, batch.values, junk)})
    assert torch.equal(ledger["values"], torch.where(batch.mask, batch.values, 0.0))
    assert ledger["values"].dtype == torch.float32


@given(batch=batches(), data=st.data())
def test_selecting_rows_and_concatenating_them_again(batch: Batch, data: st.DataObject) -> None:
    ledger = ledger_of(batch)
    cut = data.draw(st.integers(0, len(ledger)))
    parts = [ledger.select(range(cut)), ledger.select(range(cut, len(ledger)))]
    assert same(Ledger.concat([part.trim() for part in parts]).widen(ledger.width), ledger)
    order = data.draw(st.permutations(range(len(ledger))))
    shuffled = ledger.select(order)
    assert shuffled.rows["uid"] == [ledger.rows["uid"][i] for i in order]
    keep = torch.tensor([i % 2 == 0 for i in range(len(ledger))], dtype=torch.bool)
    assert same(ledger.select(keep), ledger.select(range(0, len(ledger), 2)))


@given(batch=batches(max_rows=9), rows=st.integers(1, 4), shuffle=st.booleans())
def test_minibatches_hold_every_row_once(batch: Batch, rows: int, shuffle: bool) -> None:
    ledger = ledger_of(batch)
    parts = ledger.minibatches(rows, torch.Generator().manual_seed(3) if shuffle else None)
    assert sorted(i for part in parts for i in part.tolist()) == list(range(len(ledger)))
    assert all(len(part) == rows for part in parts[:-1])
    again = ledger.minibatches(rows, torch.Generator().manual_seed(3) if shuffle else None)
    assert [part.tolist() for part in parts] == [part.tolist() for part in again]


@given(batch=batches(max_rows=12), budget=st.integers(1, 400), packed=st.booleans())
def test_micro_batches_keep_to_the_budget_and_come_back_in_order(batch: Batch, budget: int, packed: bool) -> None:
    ledger = ledger_of(batch)
    split = batcher(budget, packed=packed)
    parts = split(ledger)
    assert sorted(i for part in parts for i in part.tolist()) == list(range(len(ledger)))
    sizes = [int(n) + len(x) for n, x in zip(ledger.lengths.tolist(), ledger.rows["prompt_ids"], strict=True)]
    for part in parts:
        own = [sizes[i] for i in part.tolist()]
        assert own == sorted(own, reverse=True)
        assert (sum(own) if packed else len(own) * own[0]) <= budget or len(part) == 1
    columns = ledger.by_micro_batch(split, lambda part: {"values": 2 * part["values"], "total": part["values"].sum(1)})
    if len(ledger):
        assert torch.equal(columns["values"], 2 * ledger["values"])
        assert torch.allclose(
            columns["total"], ledger["values"].sum(1), rtol=1e-5, atol=1e-4 * float(batch.values.abs().sum())
        )


def test_packed_rows_of_a_prompt_go_together() -> None:
    mask = torch.arange(9) < torch.tensor([9, 1, 5, 2, 7, 3])[:, None]
    prompts = [[1, 2], [3], [1, 2], [3], [1, 5], [3]]
    ledger = Ledger(torch.ones(6, 9, dtype=torch.long), mask, rows={"prompt_ids": prompts})
    assert [part.tolist() for part in packed_batches(ledger, 28)] == [[0, 4, 2], [5, 3, 1]]
    assert [part.tolist() for part in padded_batches(ledger, 28)] == [[0, 4], [2, 5, 3, 1]]


def test_a_part_that_is_half_full_ends_with_a_prompt() -> None:
    """Four prompts of three rows of six tokens each: by the budget alone four rows, the fourth of another prompt."""
    mask = torch.arange(4) < torch.tensor([4] * 12)[:, None]
    prompts = [[prompt, 7] for prompt in (1, 2, 3, 4) for _ in range(3)]
    ledger = Ledger(torch.ones(12, 4, dtype=torch.long), mask, rows={"prompt_ids": prompts})
    by_prompt = [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
    assert [part.tolist() for part in packed_batches(ledger, 24)] == by_prompt
    assert [part.tolist() for part in packed_batches(ledger, 36)] == [[*range(6)], [*range(6, 12)]]
    assert [len(part) for part in packed_batches(ledger, 47)] == [6, 6], "half full, and the third does not fit"
    assert [part.tolist() for part in packed_batches(ledger, 12)] == [
        rows for one in by_prompt for rows in (one[:2], one[2:])
    ]


def test_small_parts_end_with_a_prompt() -> None:
    mask = torch.arange(4) < torch.tensor([4] * 12)[:, None]
    prompts = [[prompt, 7] for prompt in (1, 2, 3, 4) for _ in range(3)]
    ledger = Ledger(torch.ones(12, 4, dtype=torch.long), mask, rows={"prompt_ids": prompts})
    sizes = {most: [len(part) for part in packed_batches(ledger, most, small=True)] for most in (72, 73, 18, 12)}
    assert sizes == {72: [3, 3, 3, 3], 73: [6, 6], 18: [3, 3, 3, 3], 12: [2, 1] * 4}


def test_a_tool_token_keeps_its_id_and_has_no_account() -> None:
    ledger = Ledger(torch.tensor([[5, 6, 7, 8, 9]]), torch.tensor([[1, 0, 1, 0, 0]]), torch.tensor([[1, 1, 1, 1, 0]]))
    ledger.fill({"scores": torch.ones(1, 5)})
    assert ledger["token_ids"].tolist() == [[5, 6, 7, 8, 0]]
    assert ledger["scores"].tolist() == [[1.0, 0.0, 1.0, 0.0, 0.0]]
    assert ledger.lengths.tolist() == [4]


def test_aliases_of_other_trainers_are_understood() -> None:
    ledger = Ledger(torch.ones(1, 2, dtype=torch.long), torch.ones(1, 2))
    ledger.fill({"token_level_scores": torch.ones(1, 2)}, {"token_level_rewards": torch.ones(1, 2)})
    assert torch.equal(ledger["rewards"], ledger["token_level_rewards"])


def test_loss_mask_is_the_response_mask_until_it_is_filled() -> None:
    ledger = Ledger(torch.ones(2, 2, dtype=torch.long), torch.tensor([[1, 1], [1, 0]]))
    assert torch.equal(ledger.loss_mask, ledger.mask)
    ledger.fill({"loss_mask": torch.tensor([[1, 1], [0, 0]])})
    assert ledger.loss_mask.tolist() == [[True, True], [False, False]]


def test_a_refused_fill_leaves_the_ledger_as_it_was() -> None:
    ledger = Ledger(torch.ones(1, 2, dtype=torch.long), torch.ones(1, 2))
    with pytest.raises(ColumnError):
        ledger.fill({"scores": torch.ones(1, 2), "values": torch.full((1, 2), torch.nan)})
    assert "scores" not in ledger


def test_wider_floats_are_stored_as_float32_and_gradients_are_left_behind() -> None:
    ledger = Ledger(torch.ones(1, 2, dtype=torch.int32), torch.ones(1, 2))
    ledger.fill(
        {"values": torch.ones(1, 2, dtype=torch.float64, requires_grad=True), "entropy": torch.ones(1, 2).bfloat16()}
    )
    assert ledger["values"].dtype == ledger["entropy"].dtype == torch.float32
    assert not ledger["values"].requires_grad
    assert ledger["token_ids"].dtype == torch.int64


def test_on_another_device() -> None:
    ledger = Ledger(torch.ones(2, 2, dtype=torch.long), torch.ones(2, 2), rows={"uid": ["a", "b"]})
    meta = ledger.to("meta")
    assert meta.device.type == "meta"
    assert meta.rows == ledger.rows
    assert same(ledger.to("cpu"), ledger)


IDS = torch.ones(2, 3, dtype=torch.long)


@pytest.mark.parametrize(
    ("call", "says", "column", "row"),
    [
        (
            lambda x: x.fill({"values": torch.zeros(2, 4)}),
            "'values' has shape [2, 4], the ledger is [2, 3]",
            "values",
            None,
        ),
        (lambda x: x.fill({"values": torch.zeros(3)}), "'values' has shape [3]", "values", None),
        (lambda x: x.fill({"values": IDS}), "'values' holds torch.int64, expected float32", "values", None),
        (
            lambda x: x.fill({"values": torch.tensor([[0, 0, 0], [0, float("nan"), 0]])}),
            "'values' is nan at row 1, token 1 (uid b)",
            "values",
            1,
        ),
        (
            lambda x: x.fill({"entropy": torch.full((2, 3), float("inf"))}),
            "'entropy' is inf at row 0, token 0",
            "entropy",
            0,
        ),
        (lambda x: x.fill({"values": torch.full((2, 3), 1e300, dtype=torch.float64)}), "not finite", "values", 0),
        (lambda x: x.fill({"kl": torch.zeros(2, 3)}), "'kl' is computed from old_log_probs, ref_log_probs", "kl", None),
        (lambda x: x.fill({"clipped": 2 * IDS}), "computed from ratio, advantages", "clipped", None),
        (
            lambda x: x.fill({"loss_mask": 2 * IDS}),
            "loss_mask must hold only 0 and 1, but row 0, token 0 is 2",
            "loss_mask",
            0,
        ),
        (
            lambda x: x.fill({"vlaues": torch.zeros(2, 3)}),
            "unknown column 'vlaues'; did you mean 'values'?",
            None,
            None,
        ),
        (lambda x: x.fill({"uid": torch.zeros(2, 3)}), "'uid' is one value a rollout", "uid", None),
        (lambda x: x.fill({"token_ids": IDS}), "fixed when the ledger is made", "token_ids", None),
        (lambda x: x["kl"], "no column 'kl' yet", "kl", None),
        (lambda x: x.row("group"), "no row column 'group'", "group", None),
        (lambda x: x.fill_rows(uid=["a"]), "row column 'uid' has 1 values for 2 rollouts", "uid", None),
        (lambda x: x.fill_rows(udi=["a", "b"]), "unknown row column 'udi'; did you mean 'uid'?", None, None),
        (lambda x: x.select([5]), "row 5 does not exist", None, None),
        (lambda x: x.select(torch.ones(5, dtype=torch.bool)), "a row mask must have shape [2]", None, None),
        (lambda x: x.minibatches(0), "at least one rollout", None, None),
        (lambda x: padded_batches(x, 0), "micro_batch_tokens must be at least 1", None, None),
        (lambda x: x.widen(1), "cannot widen", None, None),
        (lambda x: Ledger.concat([]), "no ledger to concatenate", None, None),
        (lambda x: Ledger.concat([x, Ledger(IDS, IDS)]), "differ in column 'uid'", "uid", None),
        (lambda x: Ledger(IDS, IDS[0]), "response_mask must have shape [B, T]", "response_mask", None),
        (lambda x: Ledger(IDS, 3 * IDS), "row 0, token 0 is 3", "response_mask", 0),
        (lambda x: Ledger(IDS[:1], IDS), "'token_ids' has shape [1, 3]", "token_ids", None),
        (lambda x: Ledger(IDS.float(), IDS), "'token_ids' holds torch.float32", "token_ids", None),
        (lambda x: Ledger(IDS, IDS, 0 * IDS), "is chosen (response_mask 1) but not present", "attention_mask", 0),
    ],
)
def test_bad_input_is_one_sentence(call: Any, says: str, column: str | None, row: int | None) -> None:
    ledger = Ledger(IDS, IDS, rows={"uid": ["a", "b"]})
    with pytest.raises(MingceError) as caught:
        call(ledger)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    if column is not None:
        assert isinstance(caught.value, ColumnError)
        assert (caught.value.column, caught.value.row) == (column, row)
