"""Statistics over chosen tokens: twins, degenerate cases, and merging over ranks."""

from __future__ import annotations

import pytest
import torch
from batches import Batch, batches, close
from hypothesis import given
from hypothesis import strategies as st

from mingce.algorithms import reference
from mingce.algorithms.masking import (
    masked_mean,
    masked_moments,
    masked_sum,
    masked_var,
    masked_whiten,
    merge_moments,
)
from mingce.base.errors import ColumnError


@given(batch=batches())
def test_sum_mean_and_variance_equal_their_twins(batch: Batch) -> None:
    values, mask = batch.rewards, batch.mask
    lists = values.tolist(), mask.tolist()
    scale = float((values * mask).abs().max()) if values.numel() else 0.0
    assert masked_sum(values, mask).item() == pytest.approx(reference.masked_sum(*lists), abs=1e-5 * scale * 20)
    assert masked_mean(values, mask).item() == pytest.approx(reference.masked_mean(*lists), abs=1e-5 * scale)
    for unbiased in (True, False):
        twin = reference.masked_var(*lists, unbiased=unbiased)
        assert masked_var(values, mask, unbiased).item() == pytest.approx(twin, rel=1e-5, abs=1e-12 * scale**2)


@given(batch=batches(), shift=st.booleans())
def test_whitening_equals_its_twin(batch: Batch, shift: bool) -> None:
    whitened = masked_whiten(batch.rewards, batch.mask, shift)
    close(whitened, reference.masked_whiten(batch.rewards.tolist(), batch.mask.tolist(), shift), whitened)
    assert (whitened[~batch.mask] == 0).all()


@given(batch=batches(min_rows=2, min_width=2), junk=st.sampled_from([float("nan"), float("inf"), 1e30]))
def test_nothing_behind_the_mask_enters_the_statistics(batch: Batch, junk: float) -> None:
    spoiled = torch.where(batch.mask, batch.rewards, junk)
    assert torch.equal(masked_whiten(batch.rewards, batch.mask), masked_whiten(spoiled, batch.mask))
    for axis in (None, 0, 1):
        assert torch.equal(masked_mean(batch.rewards, batch.mask, axis), masked_mean(spoiled, batch.mask, axis))
    assert masked_moments(batch.rewards, batch.mask) == masked_moments(spoiled, batch.mask)


@given(batch=batches(min_rows=1), split=st.integers(0, 5))
def test_moments_of_the_ranks_merge_to_those_of_the_batch(batch: Batch, split: int) -> None:
    """Whitening a part with the merged moments is whitening the whole."""
    parts = [(batch.rewards[rows], batch.mask[rows]) for rows in (slice(split), slice(split, None))]
    merged = merge_moments(masked_moments(*part) for part in parts)
    whole = masked_moments(batch.rewards, batch.mask)
    assert merged.count == whole.count
    assert merged.mean == pytest.approx(whole.mean, rel=1e-9, abs=1e-12)
    assert merged.squares == pytest.approx(whole.squares, rel=1e-9, abs=1e-12)
    joined = torch.cat([masked_whiten(*part, moments=merged) for part in parts])
    assert torch.allclose(joined, masked_whiten(batch.rewards, batch.mask), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("values", [[[3.0]], [[0.1, 0.1, 0.1]], [[7.3] * 50], [[]]])
def test_one_token_or_no_variance_whitens_to_zero(values: list[list[float]]) -> None:
    x = torch.tensor(values)
    assert (masked_whiten(x, torch.ones_like(x)) == 0).all()
    assert masked_var(x, torch.ones_like(x)) == 0


def test_a_mean_of_nothing_is_zero() -> None:
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    assert masked_mean(torch.full((2, 3), torch.nan), nothing) == 0
    assert masked_mean(torch.full((2, 3), torch.nan), nothing, axis=1).tolist() == [0.0, 0.0]


def test_small_variance_on_a_large_mean_is_seen() -> None:
    """One-pass formulae in float32 lose this; ours must not."""
    x = torch.tensor([[1000.0, 1000.001, 999.999, 1000.002]])
    twin = reference.masked_var(x.tolist(), [[1, 1, 1, 1]])
    assert masked_var(x, torch.ones_like(x)).item() == pytest.approx(twin, rel=1e-5)


def test_a_mask_that_is_not_zero_or_one_names_the_place() -> None:
    with pytest.raises(ColumnError, match=r"row 1, token 2 is 0\.5") as caught:
        masked_mean(torch.zeros(2, 3), torch.tensor([[1, 1, 1], [1, 1, 0.5]]))
    assert (caught.value.column, caught.value.row, caught.value.token) == ("response_mask", 1, 2)
