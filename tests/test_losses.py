"""Losses: twins, gradients, and that no way of splitting a batch changes either."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from batches import Batch, batches
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mingce.algorithms import reference
from mingce.algorithms.losses import (
    BatchTotals,
    Loss,
    agg_loss,
    batch_totals,
    entropy_from_logits,
    entropy_loss,
    kl_loss,
    policy_loss,
    ppo_loss,
    value_loss,
)
from mingce.base.errors import MingceError
from mingce.specs import AGGREGATIONS, POLICY_LOSSES

modes = st.sampled_from(list(AGGREGATIONS))


def columns(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """(old log-probs, new log-probs, advantages) with ratios on both sides of every clip."""
    old = -batch.randn().abs()
    return (
        old,
        old + batch.values / batch.values.abs().max().clamp(min=1) * 1.5 if batch.values.numel() else old,
        batch.rewards,
    )


def per_token(batch: Batch, term: Callable[[int, int], float]) -> list[list[float]]:
    rows, width = batch.mask.shape
    return [[float(term(b, t)) if batch.mask[b, t] else 0.0 for t in range(width)] for b in range(rows)]


def same(fast: Tensor, twin: list[list[float]], scale: float) -> None:
    wanted = torch.tensor(twin, dtype=torch.float64).reshape(fast.shape)
    assert ((fast.double() - wanted).abs() <= 1e-5 * scale + 1e-9).all()


@given(
    batch=batches(max_width=40),
    mode=modes,
    low=st.floats(0, 0.5),
    high=st.floats(0, 0.9),
    dual=st.sampled_from([None, 1.5, 3.0]),
)
def test_policy_loss_equals_its_twin(batch: Batch, mode: str, low: float, high: float, dual: float | None) -> None:
    old, new, adv = columns(batch)
    got = ppo_loss(old, new, adv, batch.mask, 0.2, low, high, dual, mode)
    terms = {
        (b, t): reference.policy_term(old[b, t].item(), new[b, t].item(), adv[b, t].item(), low, high, dual)
        for b, t in batch.mask.nonzero().tolist()
    }
    scale = max((abs(term.loss) for term in terms.values()), default=0.0)
    same(got.columns["ratio"], per_token(batch, lambda b, t: terms[b, t].ratio), 5.0)
    same(got.columns["policy_loss"], per_token(batch, lambda b, t: terms[b, t].loss), scale)
    # a flag may differ only where the two candidates are equal up to rounding
    for flag in ("clipped", "dual_clipped"):
        flags = {place: getattr(term, flag) for place, term in terms.items()}
        twin = torch.tensor(per_token(batch, lambda *place: flags[place])).reshape(batch.mask.shape) > 0  # noqa: B023
        for b, t in (got.columns[flag] != twin).nonzero().tolist():
            edges = [1 - low, 1 + high, dual or 0.0]
            assert min(abs(terms[b, t].ratio - edge) for edge in edges) < 1e-5 or abs(adv[b, t]) < 1e-12
    twin_loss = reference.agg_loss(per_token(batch, lambda b, t: terms[b, t].loss), batch.mask.tolist(), mode)
    assert got.loss.item() == pytest.approx(twin_loss, rel=1e-4, abs=1e-4 * scale)


@given(batch=batches(max_width=40), mode=modes)
def test_cpi_loss_equals_its_twin(batch: Batch, mode: str) -> None:
    old, new, adv = columns(batch)
    twin = per_token(batch, lambda b, t: reference.cpi_term(old[b, t].item(), new[b, t].item(), adv[b, t].item()))
    got = policy_loss(POLICY_LOSSES["cpi"], old, new, adv, batch.mask, {}, mode)
    scale = max((abs(x) for row in twin for x in row), default=0.0)
    same(got.columns["policy_loss"], twin, scale)
    assert got.loss.item() == pytest.approx(reference.agg_loss(twin, batch.mask.tolist(), mode), abs=1e-4 * scale)


@given(batch=batches(max_width=40), mode=modes, clip=st.sampled_from([None, 0.0, 0.2, 1.0]))
def test_value_loss_equals_its_twin(batch: Batch, mode: str, clip: float | None) -> None:
    vpreds, returns, values = batch.randn(), batch.randn().flip(0) * 2, batch.randn() * 0.5
    terms = {
        (b, t): reference.value_term(vpreds[b, t].item(), returns[b, t].item(), values[b, t].item(), clip)
        for b, t in batch.mask.nonzero().tolist()
    }
    got = value_loss(vpreds, returns, values, batch.mask, clip, mode)
    twin = per_token(batch, lambda b, t: terms[b, t].loss)
    scale = max((abs(x) for row in twin for x in row), default=0.0)
    same(got.columns["value_loss"], twin, scale)
    assert got.loss.item() == pytest.approx(reference.agg_loss(twin, batch.mask.tolist(), mode), abs=1e-4 * scale)
    decided = torch.tensor(per_token(batch, lambda b, t: terms[b, t].clipped)).reshape(batch.mask.shape) > 0
    assert (got.columns["value_clipped"] != decided).sum() <= 0.01 * decided.numel()  # ties up to rounding


@given(batch=batches(max_rows=3, max_width=6), vocabulary=st.integers(1, 9))
def test_entropy_equals_its_twin(batch: Batch, vocabulary: int) -> None:
    logits = batch.randn(*batch.mask.shape, vocabulary)
    if vocabulary > 1:
        logits[..., -1] = -torch.inf
    entropy = entropy_from_logits(logits)
    same(entropy, [[reference.entropy(token.tolist()) for token in row] for row in logits], 3.0)
    got = entropy_loss(entropy, batch.mask)
    assert got.loss.item() == pytest.approx(reference.masked_mean(entropy.tolist(), batch.mask.tolist()), abs=1e-5)


def _policy(x: Tensor, batch: Batch, mask: Tensor, rows: Tensor, mode: str, totals: BatchTotals) -> Loss:
    old, _, adv = columns(batch)
    return ppo_loss(old[rows], x[rows], adv[rows], mask[rows], loss_agg_mode=mode, **totals)


def _value(x: Tensor, batch: Batch, mask: Tensor, rows: Tensor, mode: str, totals: BatchTotals) -> Loss:
    return value_loss(x[rows], batch.rewards[rows], batch.values[rows], mask[rows], 0.5, mode, **totals)


def _kl(x: Tensor, batch: Batch, mask: Tensor, rows: Tensor, mode: str, totals: BatchTotals) -> Loss:
    return kl_loss(x[rows], -batch.randn().abs()[rows], mask[rows], "k3+", None, mode, **totals)


def _entropy(x: Tensor, batch: Batch, mask: Tensor, rows: Tensor, mode: str, totals: BatchTotals) -> Loss:
    return entropy_loss(x[rows], mask[rows], mode, **totals)


@pytest.mark.parametrize("loss", [_policy, _value, _kl, _entropy])
@given(batch=batches(min_rows=1, max_rows=8, min_width=1, max_width=30), mode=modes, size=st.integers(1, 8))
def test_splitting_the_batch_changes_neither_loss_nor_gradient(
    loss: Callable[..., Loss], batch: Batch, mode: str, size: int
) -> None:
    order = torch.randperm(len(batch.mask), generator=torch.Generator().manual_seed(batch.seed))
    parts = order.split(size)
    totals = batch_totals(batch.mask)
    start = columns(batch)[1] if loss is _policy else batch.randn()
    whole, split = start.clone().requires_grad_(), start.clone().requires_grad_()
    together = loss(whole, batch, batch.mask, torch.arange(len(order)), mode, totals).loss
    together.backward()
    apart = torch.zeros(())
    for part in parts:
        term = loss(split, batch, batch.mask, part, mode, totals).loss
        term.backward()
        apart += term.detach()
    assert whole.grad is not None
    assert split.grad is not None
    sizes = (
        batch.rewards,
        start * batch.mask,
        whole.grad,
        together.detach(),
    )  # terms may cancel, their rounding does not
    scale = max(1e-6, *(float(x.abs().max()) for x in sizes))
    assert float(apart) == pytest.approx(float(together.detach()), abs=1e-6 * scale)
    assert ((whole.grad - split.grad).abs() <= 1e-6 * scale).all()


@pytest.mark.parametrize("loss", [_policy, _value, _kl, _entropy])
@given(
    batch=batches(min_rows=1, min_width=1, max_width=30),
    junk=st.sampled_from([float("nan"), float("inf"), 1e30]),
    mode=modes,
)
def test_nothing_behind_the_mask_reaches_loss_or_gradient(
    loss: Callable[..., Loss], batch: Batch, junk: float, mode: str
) -> None:
    start = columns(batch)[1] if loss is _policy else batch.randn()
    results = []
    for x in (start, torch.where(batch.mask, start, junk)):
        leaf = x.clone().requires_grad_()
        got = loss(leaf, batch, batch.mask, torch.arange(len(batch.mask)), mode, {})
        got.loss.backward()
        results.append((got.loss.detach(), leaf.grad, *got.columns.values()))
    for clean, dirty in zip(*results, strict=True):
        assert torch.equal(clean, dirty)


def test_clipped_tokens_have_no_gradient_and_the_others_do() -> None:
    old = torch.zeros(1, 5)
    new = torch.tensor([[0.5, -0.5, 0.5, -0.5, 2.0]]).requires_grad_()
    adv = torch.tensor([[1.0, 1.0, -1.0, -1.0, -1.0]])
    got = ppo_loss(old, new, adv, torch.ones(1, 5))
    got.loss.backward()
    assert got.columns["clipped"].tolist() == [[True, False, False, True, True]]
    assert got.columns["dual_clipped"].tolist() == [[False, False, False, False, True]]
    assert new.grad is not None
    assert (new.grad[got.columns["clipped"]] == 0).all()
    assert (new.grad[~got.columns["clipped"]] != 0).all()


def test_an_absurd_ratio_stays_finite() -> None:
    got = ppo_loss(
        torch.zeros(1, 1), torch.full((1, 1), 1000.0), -torch.ones(1, 1), torch.ones(1, 1), clip_ratio_c=None
    )
    assert torch.isfinite(got.loss)


def test_nothing_chosen_is_a_loss_of_zero_with_a_gradient_of_zero() -> None:
    x = torch.randn(3, 4).requires_grad_()
    for mode in list(AGGREGATIONS):
        loss = agg_loss(x, torch.zeros(3, 4), mode)
        assert loss == 0
        (gradient,) = torch.autograd.grad(loss, x)
        assert (gradient == 0).all()
        assert agg_loss(torch.zeros(0, 4), torch.zeros(0, 4), mode) == 0
        assert agg_loss(torch.zeros(2, 0), torch.zeros(2, 0), mode) == 0


@pytest.mark.parametrize("name", POLICY_LOSSES)
@given(batch=batches(), low=st.floats(0.05, 0.5), high=st.floats(0.05, 0.5), mode=modes)
def test_every_policy_loss_equals_its_definition(name: str, batch: Batch, low: float, high: float, mode: str) -> None:
    spec, (old, new, advantages) = POLICY_LOSSES[name], columns(batch)
    settings = {"clip_low": low, "clip_high": high, "dual_clip": 3.0}
    got = policy_loss(spec, old, new, advantages, batch.mask, settings, mode)
    rows = zip(old.tolist(), new.tolist(), advantages.tolist(), batch.mask.tolist(), strict=True)
    terms = [spec.terms(*row, settings) for row in rows]
    scale = float((advantages * batch.mask).abs().max()) * 10 if batch.mask.any() else 1.0
    same(got.columns["policy_loss"], per_token(batch, lambda b, t: terms[b][t].loss), scale)
    same(got.columns["ratio"], per_token(batch, lambda b, t: terms[b][t].ratio), 10.0)
    twin = reference.agg_loss(per_token(batch, lambda b, t: terms[b][t].loss), batch.mask.tolist(), mode)
    assert got.loss.item() == pytest.approx(twin, abs=1e-4 * scale)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda x: agg_loss(x, x, "token_mean"), "did you mean 'token-mean'"),
        (lambda x: ppo_loss(x, x, x, x, cliprange=-0.1), "clip_low must be"),
        (lambda x: ppo_loss(x, x, x, x, cliprange_low=1.5), "clip_low must lie between"),
        (lambda x: ppo_loss(x, x, x, x, clip_ratio_c=0.5), "greater than 1"),
        (lambda x: ppo_loss(x, x[:1], x, x), "new_log_probs has shape [1, 3]"),
        (lambda x: value_loss(x, x, x, x, -1.0), "cliprange_value must be"),
        (lambda x: value_loss(x, x, x[:, :2], x), "values has shape [2, 2]"),
    ],
)
def test_bad_input_is_one_sentence(call: Callable[[Tensor], object], says: str) -> None:
    with pytest.raises(MingceError) as caught:
        call(torch.ones(2, 3))
    assert says in str(caught.value)
