"""Credit estimators against their float64 twins, and the identities between them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from batches import Batch, batches, close, unit
from hypothesis import given, settings
from hypothesis import strategies as st

from mingce.algorithms import advantage, reference
from mingce.algorithms.advantage import Credit, function_of, gae, monte_carlo, n_step, td0, td_errors
from mingce.algorithms.scan import windowed_sum
from mingce.base.errors import MingceError
from mingce.credit import credit_columns
from mingce.ledger import Ledger
from mingce.specs import ESTIMATORS, find_estimator

CRITIC = [name for name, spec in ESTIMATORS.items() if spec.needs_critic]


def arguments(name: str, batch: Batch, gamma: float, lam: float, k: int) -> dict[str, Any]:
    """What the named estimator takes, as tensors; the twin takes the same as lists."""
    everything = {
        "rewards": batch.rewards,
        "values": batch.values,
        "response_mask": batch.mask,
        "bootstrap": batch.bootstrap,
        "attention_weights": batch.randn().abs(),
        "turn": batch.turn,
        "group": batch.group,
        "greedy_score": batch.bootstrap.flip(0),
        "gamma": gamma,
        "lam": lam,
        "n": k,
        "k": k,
    }
    return ESTIMATORS[name].arguments(everything, everything, batch.bootstrap)


def as_lists(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: x.tolist() if isinstance(x, torch.Tensor) else x for name, x in arguments.items()}


@pytest.mark.parametrize("name", ESTIMATORS)
@given(batch=batches(), gamma=unit, lam=unit, k=st.integers(1, 9))
def test_estimator_equals_its_twin(name: str, batch: Batch, gamma: float, lam: float, k: int) -> None:
    inputs = arguments(name, batch, gamma, lam, k)
    fast = function_of(ESTIMATORS[name])(**inputs)
    by_loops: Any = ESTIMATORS[name].twin
    twin = by_loops(**as_lists(inputs))
    scale = [batch.rewards * batch.mask, batch.values * batch.mask, (batch.bootstrap[:, None] * batch.mask)]
    if name in CRITIC:
        for column in Credit._fields:
            close(getattr(fast, column), getattr(twin, column), *scale)
    else:
        # a sum of T rewards is the row's scale here; (total − mean)/std also carries the error of the difference
        close(fast.advantages, twin, *scale, tol=2e-5)


@given(batch=batches(max_rows=3, max_width=3000), gamma=unit, lam=unit)
@settings(max_examples=30)
def test_gae_equals_its_twin_on_long_rows(batch: Batch, gamma: float, lam: float) -> None:
    fast = gae(batch.rewards, batch.values, batch.mask, gamma, lam)
    twin = reference.gae(batch.rewards.tolist(), batch.values.tolist(), batch.mask.tolist(), gamma, lam)
    close(fast.advantages, twin.advantages, batch.rewards * batch.mask, batch.values * batch.mask)


@given(batch=batches(), decay=unit, length=st.integers(1, 120))
def test_windowed_sum_is_the_whole_sum_less_what_lies_beyond_the_window(
    batch: Batch, decay: float, length: int
) -> None:
    sums = windowed_sum(batch.rewards, batch.mask, decay, length)
    for b, mask in enumerate(batch.mask.tolist()):
        slots = reference.chosen(mask)
        x = [batch.rewards[b, t].item() for t in slots]
        whole = [*reference.discounted_sum(x, decay), *[0.0] * length]
        wanted = [whole[i] - decay**length * whole[i + length] for i in range(len(x))]
        assert sums[b][batch.mask[b]].tolist() == pytest.approx(wanted, abs=1e-5 * sum(map(abs, x)) + 1e-9)
    assert (sums[~batch.mask] == 0).all()


@given(batch=batches(), gamma=unit, lam=unit)
def test_half_precision_columns_are_computed_in_single(batch: Batch, gamma: float, lam: float) -> None:
    rewards, values = batch.rewards.bfloat16(), batch.values.bfloat16()
    half = gae(rewards, values, batch.mask, gamma, lam).advantages
    single = gae(rewards.float(), values.float(), batch.mask, gamma, lam).advantages
    assert half.dtype == torch.bfloat16
    assert torch.equal(half, single.bfloat16())


@given(batch=batches(), gamma=unit, lam=unit)
def test_returns_are_advantages_plus_values_as_stored(batch: Batch, gamma: float, lam: float) -> None:
    credit = gae(batch.rewards, batch.values, batch.mask, gamma, lam, batch.bootstrap)
    assert credit.returns is not None
    assert torch.equal(credit.returns, credit.advantages + torch.where(batch.mask, batch.values, 0.0))
    behind = [column[~batch.mask] for column in credit if column is not None]
    assert all((column == 0).all() for column in behind)


@given(batch=batches(), gamma=unit)
def test_td_errors_telescope(batch: Batch, gamma: float) -> None:
    """Σ_k γ^k δ_{t+k} = G_t − V(s_t), with G summed from the rewards by the twin."""
    deltas = td_errors(batch.rewards, batch.values, batch.mask, gamma)
    for b, mask in enumerate(batch.mask.tolist()):
        slots = reference.chosen(mask)
        totals = reference.discounted_sum([batch.rewards[b, t].item() for t in slots], gamma)
        sums = reference.discounted_sum([deltas[b, t].item() for t in slots], gamma)
        values = [batch.values[b, t].item() for t in slots]
        scale = max(map(abs, totals + values + sums), default=0.0)
        wanted = [total - value for total, value in zip(totals, values, strict=True)]
        assert sums == pytest.approx(wanted, abs=1e-5 * scale + 1e-12)


@given(batch=batches(), gamma=unit)
def test_lambda_one_is_monte_carlo_minus_value(batch: Batch, gamma: float) -> None:
    credit = gae(batch.rewards, batch.values, batch.mask, gamma, 1.0, batch.bootstrap)
    twin = reference.monte_carlo(
        batch.rewards.tolist(), batch.values.tolist(), batch.mask.tolist(), gamma, batch.bootstrap.tolist()
    )
    scale = [batch.rewards * batch.mask, batch.values * batch.mask, batch.bootstrap[:, None] * batch.mask]
    close(credit.advantages, twin.advantages, *scale)
    assert credit.returns is not None
    close(credit.returns, twin.returns, *scale)
    assert torch.equal(
        credit.advantages, monte_carlo(batch.rewards, batch.values, batch.mask, gamma, batch.bootstrap).advantages
    )


@given(batch=batches(), gamma=unit)
def test_lambda_zero_is_the_td_error(batch: Batch, gamma: float) -> None:
    credit = gae(batch.rewards, batch.values, batch.mask, gamma, 0.0, batch.bootstrap)
    assert torch.equal(credit.advantages, td_errors(batch.rewards, batch.values, batch.mask, gamma, batch.bootstrap))
    assert torch.equal(
        credit.advantages, td0(batch.rewards, batch.values, batch.mask, gamma, batch.bootstrap).advantages
    )


@given(batch=batches(max_width=20), gamma=unit, lam=st.floats(0, 0.984375, width=32))
def test_gae_is_the_mixture_of_n_step_advantages(batch: Batch, gamma: float, lam: float) -> None:
    """A = (1−λ) Σ_n λ^{n−1} A^{(n)}; beyond the end of a row every A^{(n)} is the same, so the tail sums to λ^T."""
    width = batch.mask.shape[1]
    mixture = torch.zeros(batch.mask.shape)
    for n in range(1, width + 1):
        weight = (1 - lam) * lam ** (n - 1) if n < width else lam ** (n - 1)
        mixture += weight * n_step(batch.rewards, batch.values, batch.mask, gamma, n, batch.bootstrap).advantages
    credit = gae(batch.rewards, batch.values, batch.mask, gamma, lam, batch.bootstrap)
    close(credit.advantages, mixture.tolist(), batch.rewards * batch.mask, batch.values * batch.mask, tol=2e-5)


@pytest.mark.parametrize("name", ESTIMATORS)
@given(batch=batches(), junk=st.sampled_from([float("nan"), float("inf"), -float("inf"), 1e30]), gamma=unit, lam=unit)
def test_nothing_behind_the_mask_gets_out(name: str, batch: Batch, junk: float, gamma: float, lam: float) -> None:
    inputs = arguments(name, batch, gamma, lam, 3)
    spoiled = {
        key: torch.where(batch.mask, x, junk) if key in ("rewards", "values", "attention_weights") else x
        for key, x in inputs.items()
    }
    estimate = function_of(ESTIMATORS[name])
    clean, dirty = estimate(**inputs).columns(), estimate(**spoiled).columns()
    assert clean.keys() == dirty.keys()
    assert all(torch.equal(column, dirty[key]) for key, column in clean.items())


@pytest.mark.parametrize("name", ESTIMATORS)
@given(batch=batches(), gamma=unit, lam=unit, data=st.data())
def test_shuffling_rows_permutes_results(
    name: str, batch: Batch, gamma: float, lam: float, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(batch.mask))))
    inputs = arguments(name, batch, gamma, lam, 3)
    shuffled: dict[str, Any] = {}
    for key, x in inputs.items():
        if key == "group":
            shuffled[key] = [x[i] for i in order]
        else:
            shuffled[key] = x[torch.tensor(order, dtype=torch.long)] if isinstance(x, torch.Tensor) else x
    estimate = function_of(ESTIMATORS[name])
    straight, permuted = estimate(**inputs).columns(), estimate(**shuffled).columns()
    assert straight.keys() == permuted.keys()
    for key, column in straight.items():
        assert torch.allclose(column[torch.tensor(order, dtype=torch.long)], permuted[key], rtol=1e-6, atol=1e-7)


def test_a_hole_is_stepped_over() -> None:
    """Tool output between two chosen tokens changes nothing: the credit is that of the row without it."""
    rewards, values = torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([[0.3, 0.4, 0.6]])
    without = gae(rewards, values, torch.ones(1, 3), 1.0, 0.95).advantages
    holed = gae(
        torch.tensor([[0.0, 9.0, 9.0, 0.0, 9.0, 1.0]]),
        torch.tensor([[0.3, 7.0, 7.0, 0.4, 7.0, 0.6]]),
        torch.tensor([[1, 0, 0, 1, 0, 1]]),
        1.0,
        0.95,
    ).advantages
    assert torch.equal(holed[0, [0, 3, 5]], without[0])
    assert without[0].tolist() == pytest.approx([0.651, 0.58, 0.4])


def test_a_cut_response_bootstraps_and_an_ended_one_does_not() -> None:
    rewards, values = torch.zeros(2, 2), torch.tensor([[0.5, 0.5], [0.5, 0.5]])
    mask = torch.ones(2, 2, dtype=torch.bool)
    after, loss_mask = advantage.truncation_rule(
        "bootstrap", torch.tensor([True, False]), mask, torch.tensor([0.8, 0.8])
    )
    credit = gae(rewards, values, mask, 1.0, 0.0, after)
    assert credit.advantages.tolist() == [[0.0, pytest.approx(0.3)], [0.0, -0.5]]
    assert torch.equal(loss_mask, mask)
    after, loss_mask = advantage.truncation_rule("mask", torch.tensor([True, False]), mask)
    assert after.tolist() == [0.0, 0.0]
    assert loss_mask.tolist() == [[False, False], [True, True]]


def test_group_of_one_and_equal_scores_learn_nothing() -> None:
    rewards, mask = torch.tensor([[0.1, 0.2], [0.1, 0.2], [5.0, 1.0]]), torch.ones(3, 2)
    for name in ("grpo", "dr_grpo", "rloo"):
        assert (function_of(ESTIMATORS[name])(rewards, mask, ["a", "a", "b"]).advantages == 0).all()


def test_row_without_a_chosen_token_does_not_move_its_group() -> None:
    rewards = torch.tensor([[1.0], [0.0], [100.0]])
    mask = torch.tensor([[1], [1], [0]])
    assert function_of(ESTIMATORS["rloo"])(rewards, mask, ["a"] * 3).advantages.tolist() == [[1.0], [-1.0], [0.0]]


def test_by_name_on_a_ledger() -> None:
    mask = torch.tensor([[1, 1], [1, 0]])
    ledger = Ledger(torch.ones(2, 2, dtype=torch.long), mask, rows={"group": ["a", "a"]})
    ledger.fill({"scores": torch.tensor([[0.0, 1.0], [0.0, 0.0]])})
    ledger.fill({"rewards": ledger["scores"]})
    ledger.fill(credit_columns(ledger, ESTIMATORS["dr_grpo"], {"gamma": 0.9}))
    assert ledger["advantages"].tolist() == [[0.5, 0.5], [-0.5, 0.0]]
    assert "returns" not in ledger
    ledger.fill({"values": torch.full((2, 2), 0.5)})
    ledger.fill(credit_columns(ledger, ESTIMATORS["gae"], {"gamma": 0.5, "lam": 0.0, "k": 7}))
    assert ledger["advantages"].tolist() == [[-0.25, 0.5], [-0.5, 0.0]]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda x, m: gae(x, x, m, 1.5, 0.9), "gamma must lie between 0 and 1"),
        (lambda x, m: gae(x, x, m, 1.0, -0.1), "lam must lie between 0 and 1"),
        (lambda x, m: gae(x, x, m, float("nan"), 0.9), "gamma"),
        (lambda x, m: gae(x, x[:, :1], m), "values has shape"),
        (lambda x, m: gae(x, x, 2 * m), "row 0, token 0 is 2"),
        (lambda x, m: gae(x[0], x[0], m[0]), "shape [B, T]"),
        (lambda x, m: gae(x, x, m, bootstrap=x[:, 0:1]), "bootstrap_value has shape"),
        (lambda x, m: n_step(x, x, m, n=0), "n must be"),
        (lambda x, m: advantage.last_k(x, m, k=0), "k must be"),
        (lambda x, m: advantage.attention(x, m, -x), "attention_weights must not be negative, but row 0, token 0"),
        (lambda x, m: advantage.grpo(x, m, ["a"]), "group has 1 entries for 2 rows"),
        (lambda x, m: find_estimator("gea"), "did you mean 'gae'"),
        (lambda x, m: advantage.truncation_rule("cut", m[:, 0], m), "unknown truncation rule"),
        (lambda x, m: advantage.truncation_rule("bootstrap", m[:, 0], m), "needs a critic"),
    ],
)
def test_bad_input_is_one_sentence(call: Any, says: str) -> None:
    with pytest.raises(MingceError) as caught:
        call(torch.ones(2, 3), torch.ones(2, 3))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
