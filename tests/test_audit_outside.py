"""Faults that no catalogue lists, planted in clean batches: noticed, and named where one rule explains every number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from audit_case import Case

from mingce.audit.audit import audit
from mingce.audit.evidence import Floats, last_slot
from mingce.record.dump import Dump
from mingce.specs.settings import DumpSettings

Fault = Callable[[Dump], None]
ROW = 5


def batch(estimator: str = "gae", **options: object) -> Dump:
    """A clean batch of 32 rows without tool output and without a log, in double precision where it is changed."""
    settings = {"rows": 32, "width": 40, "estimator": estimator, "epochs": 2, "beta": 0.05, "samples": 4} | options
    dump = Case(11, "own", False, **settings).dump()  # type: ignore[arg-type]
    columns = {name: column.copy() for name, column in dump.columns.items()}
    return replace(dump, columns=columns, rows={name: list(row) for name, row in dump.rows.items()}, scalars={})


def alarms(dump: Dump) -> list[str]:
    return [one.fault.code for one in audit(dump).findings if one.level in ("bug", "suspicious")]


def chosen(dump: Dump) -> np.ndarray:
    return dump.columns["response_mask"].astype(bool)


def advantages_of(dump: Dump, rewards: Floats, values: Floats, after: Floats, gamma: float, decay: float) -> Floats:
    """A_t = r_t + γV'_t − V_t + decay·A' over the chosen tokens."""
    mask, credit, later = chosen(dump), np.zeros(rewards.shape), np.zeros(len(rewards))
    for t in reversed(range(rewards.shape[1])):
        step = rewards[:, t] + gamma * after[:, t] - values[:, t] + decay * later
        credit[:, t] = np.where(mask[:, t], step, 0.0)
        later = np.where(mask[:, t], step, later)
    return credit


def put(dump: Dump, credit: Floats) -> None:
    """The advantages, and what follows from them."""
    mask, c = chosen(dump), dump.columns
    for name in ("deltas", "raw_advantages", "advantages", "whitened_advantages", "returns"):
        c.pop(name, None)
    c["returns"] = np.where(mask, credit + c["values"], 0.0).astype(np.float32)
    white = (credit - credit[mask].mean()) / credit[mask].std(ddof=1)
    c["advantages"] = np.where(mask, white, 0.0).astype(np.float32)


def parts(dump: Dump) -> tuple[Floats, Floats, Floats, np.ndarray]:
    """Rewards, values, those of the next token, and the mask."""
    mask, c = chosen(dump), dump.columns
    rewards, values = (np.where(mask, c[name], 0.0).astype(np.float64) for name in ("rewards", "values"))
    after = np.zeros_like(values)
    after[:, :-1] = np.where(mask[:, 1:], values[:, 1:], 0.0)
    return rewards, values, after, mask


def trace_without_gamma(dump: Dump) -> None:
    rewards, values, after, _ = parts(dump)
    put(dump, advantages_of(dump, rewards, values, after, 0.9, 0.95))


def last_token_skipped(dump: Dump) -> None:
    rewards, values, after, mask = parts(dump)
    last = last_slot(mask)
    inner = mask & (np.arange(mask.shape[1])[None, :] < last[:, None])
    after = np.where(np.arange(mask.shape[1])[None, :] < last[:, None] - 1, after, 0.0)
    put(dump, np.where(inner, advantages_of(dump, np.where(inner, rewards, 0.0), np.where(inner, values, 0.0),
                                            after, 1.0, 0.95), 0.0))  # fmt: skip


def next_value_of_the_updated_critic(dump: Dump) -> None:
    rewards, values, _, mask = parts(dump)
    rng = np.random.default_rng(0)
    new = np.where(mask, values + rng.normal(0, 0.2, values.shape), 0.0)
    dump.columns["new_values"] = new.astype(np.float32)
    new = dump.columns["new_values"].astype(np.float64)
    after = np.zeros_like(new)
    after[:, :-1] = new[:, 1:]
    put(dump, advantages_of(dump, rewards, values, after, 1.0, 0.95))


def finished_rows_bootstrapped(dump: Dump) -> None:
    rewards, values, after, mask = parts(dump)
    last = last_slot(mask)
    rows = np.arange(len(mask))
    after[rows, last] = np.where(last < mask.shape[1] - 1, values[rows, last], 0.0)
    put(dump, advantages_of(dump, rewards, values, after, 1.0, 0.95))


def one_row_of_shifted_values(dump: Dump) -> None:
    rewards, values, after, _ = parts(dump)
    used, ahead = values.copy(), after.copy()
    used[ROW], ahead[ROW, :-1] = after[ROW], after[ROW, 1:]
    put(dump, advantages_of(dump, rewards, used, ahead, 1.0, 0.95))


def advantages_over_length(dump: Dump) -> None:
    rewards, values, after, mask = parts(dump)
    put(dump, advantages_of(dump, rewards, values, after, 1.0, 0.95))
    dump.columns["advantages"] /= mask.sum(axis=1, keepdims=True)


CREDIT: list[tuple[Fault, str]] = [
    (trace_without_gamma, "advantage-recursion"),
    (last_token_skipped, "advantage-recursion"),
    (next_value_of_the_updated_critic, "advantage-recursion"),
    (finished_rows_bootstrapped, "finished-rows-bootstrapped"),
    (one_row_of_shifted_values, "credit-of-few-rows"),
    (advantages_over_length, "advantage-times-column"),
]


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize(("fault", "code"), [pytest.param(*one, id=one[0].__name__) for one in CREDIT])
def test_credit_by_another_rule(fault: Fault, code: str, bare: bool) -> None:
    dump = batch()
    rewards, values, after, _ = parts(dump)
    settings = replace(dump.settings, gamma=1.0, lam=0.95, truncation=None)
    dump = replace(dump, settings=DumpSettings(eos_id=dump.settings.eos_id) if bare else settings)
    put(dump, advantages_of(dump, rewards, values, after, 1.0, 0.95))
    assert alarms(dump) == []
    fault(dump)
    if fault is trace_without_gamma and not bare:
        dump = replace(dump, settings=replace(settings, gamma=0.9))
    assert alarms(dump)[:1] == [code]


# ── groups ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def groups_of(dump: Dump) -> tuple[Floats, np.ndarray, np.ndarray]:
    """Each row's advantage, its length, and the number of its prompt."""
    mask = chosen(dump)
    first = dump.columns["advantages"][np.arange(len(mask)), mask.argmax(axis=1)].astype(np.float64)
    return first, mask.sum(axis=1), np.unique([str(one) for one in dump.rows["group"]], return_inverse=True)[1]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda a, n: np.clip(a, -0.8, 0.8), "group-advantage-changed"),
        (lambda a, n: a / n, "group-advantage-changed"),
        (lambda a, n: np.where(a < 0, 0.5 * a, a), "group-advantage-changed"),
        (lambda a, n: np.tanh(a), "group-advantage-changed"),
    ],
)
def test_a_comparison_that_was_changed(change: Callable[[Floats, np.ndarray], Floats], code: str) -> None:
    dump = batch("grpo")
    assert alarms(dump) == []
    first, lengths, _ = groups_of(dump)
    changed = np.where(chosen(dump), change(first, lengths)[:, None], 0.0).astype(np.float32)
    for name in ("advantages", "raw_advantages"):
        if name in dump.columns:
            dump.columns[name] = changed.copy()
    dump.columns.pop("returns", None)
    assert code in alarms(dump)


# ── log-probs, entropies, rows apart ───────────────────────────────────────────────────────────────────────────────


def turn_entropy(dump: Dump) -> None:
    dump.columns["entropy"] *= -1


def turn_one_row(dump: Dump) -> None:
    dump.columns["entropy"][ROW] *= -1


def surprise_for_entropy(dump: Dump) -> None:
    dump.columns["entropy"] = np.where(chosen(dump), -dump.columns["old_log_probs"], 0.0)


def shift_new(dump: Dump) -> None:
    dump.columns["new_log_probs"][:, 1:] = dump.columns["new_log_probs"][:, :-1].copy()


def move_new(dump: Dump) -> None:
    dump.columns["new_log_probs"] -= np.where(chosen(dump), np.float32(0.5), np.float32(0.0))


def empty_values(dump: Dump) -> None:
    dump.columns["new_values"][ROW] = 0.0


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (turn_entropy, "entropy-negative"),
        (turn_one_row, "entropy-negative"),
        (surprise_for_entropy, "entropy-is-surprise"),
        (shift_new, "new-log-probs-out-of-line"),
        (move_new, "new-log-probs-out-of-line"),
        (empty_values, "lone-row-empty"),
    ],
)
def test_numbers_that_a_policy_or_critic_cannot_give(fault: Fault, code: str) -> None:
    dump = batch()
    dump.columns.pop("ratio", None)
    assert alarms(dump) == []
    fault(dump)
    assert code in alarms(dump)


def test_one_row_whose_reference_is_the_policy() -> None:
    dump = batch()
    dump.columns["ref_log_probs"][ROW] = dump.columns["old_log_probs"][ROW]
    assert "lone-row-same-log-probs" in alarms(dump)
    assert "lone-row-same-log-probs" not in alarms(batch())


def test_a_value_loss_larger_than_any_pass_can_make_it() -> None:
    dump, mask = batch(), chosen(batch())
    squares = [
        float(((dump.columns[name] - dump.columns["returns"])[mask].astype(np.float64) ** 2).mean())
        for name in ("values", "new_values")
    ]
    settings = replace(dump.settings, loss_agg_mode="token-mean")
    dump = replace(dump, settings=settings, scalars={"vf_loss": 1.437 * max(squares)})
    assert "loss-no-fit" in alarms(dump)
