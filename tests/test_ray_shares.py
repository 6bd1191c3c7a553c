"""Rows are shared out evenly, every rank knows all shares, and all ranks make the same number of passes."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from mingce.engine.shares import Place, Share, balanced
from mingce.ledger import Ledger
from mingce.models.micro_batches import batcher


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 8))
def test_shares_hold_everything_once_and_differ_by_at_most_one_item(sizes: list[int], ranks: int) -> None:
    shares = balanced(sizes, ranks)
    assert sorted(item for share in shares for item in share) == list(range(len(sizes)))
    weights = [sum(sizes[item] for item in share) for share in shares]
    assert max(weights) - min(weights) <= max(sizes, default=0)


def ledger_of(lengths: list[int]) -> Ledger:
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    ids = torch.arange(mask.numel()).reshape(mask.shape)
    return Ledger(ids, mask, rows={"prompt_ids": [[1, 2]] * len(lengths), "uid": [str(i) for i in range(len(lengths))]})


@given(st.lists(st.integers(1, 20), min_size=1, max_size=12), st.integers(1, 5), st.integers(1, 60), st.booleans())
def test_all_ranks_make_the_same_number_of_passes_and_together_compute_every_row(
    lengths: list[int], ranks: int, max_tokens: int, packed: bool
) -> None:
    whole, split = ledger_of(lengths), batcher(max_tokens, packed=packed)
    found, passes = torch.zeros(whole.mask.shape, dtype=torch.long), []
    for rank in range(ranks):
        made: list[int] = []

        def compute(micro: Ledger, made: list[int] = made) -> dict[str, torch.Tensor]:
            made.append(int(micro.loss_mask.sum()))
            return {"double": 2 * micro["token_ids"], "row": micro["token_ids"].sum(1)}

        share = Share(whole, Place(rank, ranks))
        columns = share.by_micro_batch(split, compute)
        assert len(columns["double"]) == len(columns["row"]) == len(share)
        assert sum(made) == int(share.mask.sum()), "idle passes enter no loss"
        found[share.whole_rows] += columns["double"]
        passes.append(len(made))
    assert set(passes) == {share.passes(split)}
    assert torch.equal(found, 2 * whole["token_ids"])


def test_a_ledger_comes_back_from_another_process_as_it_was() -> None:
    import pickle

    ledger = ledger_of([3, 1, 2]).fill({"rollout_log_probs": torch.randn(3, 3)})
    again = pickle.loads(pickle.dumps(ledger))
    assert again.rows == ledger.rows
    for name, values in ledger.columns().items():
        assert torch.equal(values, again[name])
        assert values.dtype == again[name].dtype
