"""KL estimates, the rewards made of them, and the controllers of their price."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from batches import Batch, batches, close
from hypothesis import given, settings
from hypothesis import strategies as st

from mingce.algorithms import reference
from mingce.algorithms.kl import AdaptiveKLController, FixedKLController, kl_penalty, kl_rewards
from mingce.base.errors import MingceError
from mingce.specs import KL_KINDS

NAMES = ["k1", "kl", "abs", "k2", "mse", "k3", "low_var_kl", "k1+", "k3+"]


def log_probs(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    return -batch.randn().abs(), -(batch.randn().abs() + 0.3 * torch.tanh(batch.rewards))


@pytest.mark.parametrize("name", NAMES)
@given(batch=batches(), clamp=st.sampled_from([None, KL_KINDS["k3"].verl_clamp, 0.1]))
def test_estimate_equals_its_twin(name: str, batch: Batch, clamp: float | None) -> None:
    new, ref = log_probs(batch)
    twin = [
        [reference.kl_penalty(a, b, name, clamp) if m else 0.0 for a, b, m in zip(x, y, mask, strict=True)]
        for x, y, mask in zip(new.tolist(), ref.tolist(), batch.mask.tolist(), strict=True)
    ]
    close(kl_penalty(new, ref, name, batch.mask, clamp), twin, new * batch.mask, ref * batch.mask)


@given(batch=batches(max_rows=3, max_width=6), vocabulary=st.integers(1, 9), holes=st.booleans())
def test_full_kl_equals_its_twin_and_is_not_negative(batch: Batch, vocabulary: int, holes: bool) -> None:
    rows, width = batch.mask.shape
    logits, ref = batch.randn(rows, width, vocabulary), batch.randn(rows, width, vocabulary).flip(0) * 1.5
    if holes and vocabulary > 1:
        logits[..., 0] = -torch.inf  # a token that cannot be drawn
    full = kl_penalty(logits, ref, "full", batch.mask)
    twin = [
        [
            reference.full_kl(logits[b, t].tolist(), ref[b, t].tolist()) if batch.mask[b, t] else 0.0
            for t in range(width)
        ]
        for b in range(rows)
    ]
    close(full, twin, batch.mask.float() * 3)
    assert (full >= -1e-5).all()


@settings(max_examples=5)
@given(seed=st.integers(0, 1000))
def test_k1_and_k3_are_unbiased_estimates_of_the_full_kl(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits, ref = torch.randn(2, 1, 1, 12, generator=generator)
    log_p, log_q = logits.log_softmax(-1), ref.log_softmax(-1)
    truth = kl_penalty(log_p, log_q, "full")[0, 0]
    drawn = log_p[0, 0].exp().multinomial(20_000, replacement=True, generator=generator)
    for name in ("k1", "k3"):
        samples = kl_penalty(log_p[0, 0][drawn][None], log_q[0, 0][drawn][None], name)
        error = samples.std() / len(drawn) ** 0.5
        assert (samples.mean() - truth).abs() < 5 * error + 1e-6


def test_a_token_may_have_a_negative_k1_but_never_a_negative_k3() -> None:
    new, ref = torch.tensor([[-2.0, -0.1]]), torch.tensor([[-1.0, -0.5]])
    assert kl_penalty(new, ref, "k1")[0, 0] < 0
    assert (kl_penalty(new, ref, "k3") > 0).all()


def test_plus_takes_its_own_value_and_the_gradient_of_k2() -> None:
    new, ref = torch.tensor([[-2.0, -0.1]], requires_grad=True), torch.tensor([[-1.0, -0.5]])
    for name in ("k1", "k3"):
        (gradient,) = torch.autograd.grad(kl_penalty(new, ref, name + "+").sum(), new)
        (wanted,) = torch.autograd.grad(kl_penalty(new, ref, "k2").sum(), new)
        assert torch.allclose(gradient, wanted)
        assert torch.allclose(kl_penalty(new, ref, name + "+"), kl_penalty(new, ref, name))


@given(batch=batches(), beta=st.floats(0, 2))
def test_rewards_equal_their_twin_whatever_is_behind_the_mask(batch: Batch, beta: float) -> None:
    scores, kl = batch.rewards, batch.values
    twin = reference.kl_rewards(scores.tolist(), kl.tolist(), batch.mask.tolist(), beta)
    spoiled = torch.where(batch.mask, kl, torch.nan)
    close(kl_rewards(scores, spoiled, batch.mask, beta), twin, scores * batch.mask, kl * batch.mask)


@given(kl=st.floats(-1, 5), target=st.floats(0.01, 1), horizon=st.integers(1, 10_000), steps=st.integers(1, 1000))
def test_adaptive_controller_equals_its_twin(kl: float, target: float, horizon: int, steps: int) -> None:
    controller = AdaptiveKLController(0.1, target, horizon)
    controller.update(kl, steps)
    assert controller.value == pytest.approx(reference.adaptive_kl(0.1, kl, target, horizon, steps))


def test_controllers_follow_the_kl() -> None:
    fixed, adaptive = FixedKLController(0.2), AdaptiveKLController(0.2, target_kl=1.0, horizon=100)
    fixed.update(9.0, 10)
    adaptive.update(9.0, 10)
    assert fixed.value == 0.2
    assert adaptive.value == pytest.approx(0.2 * 1.02)  # 20 % at most, times 10/100
    adaptive.update(0.0, 10)
    assert adaptive.value == pytest.approx(0.2 * 1.02 * 0.98)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda x: kl_penalty(x, x, "k4"), "unknown kl_penalty 'k4'"),
        (lambda x: kl_penalty(x, x[:, :1], "k1"), "logprob has shape"),
        (lambda x: kl_penalty(x, x, "full"), "whole vocabulary"),
        (lambda x: kl_rewards(x, x, torch.ones(2, 3), -0.1), "kl_coef must be a number of at least 0"),
        (lambda x: AdaptiveKLController(0.1, 0.0, 10), "target_kl and horizon above 0"),
        (lambda x: AdaptiveKLController(0.1, 0.1, 10).update(float("nan"), 1), "the KL to steer by is nan"),
    ],
)
def test_bad_input_is_one_sentence(call: Callable[[torch.Tensor], object], says: str) -> None:
    with pytest.raises(MingceError) as caught:
        call(torch.zeros(2, 3))
    assert says in str(caught.value)
