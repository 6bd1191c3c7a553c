"""The reason that is given explains the first difference: nothing else is blamed for it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from diff_batches import REASONS, ROWS, SEEDS, WIDTH, Change, batch, finding, finish, whiten

from mingce.audit.diff import compare
from mingce.record.dump import Dump

# masks and ids are whole numbers; what a shift brings to a row's first token stood outside of it
EXACT = [r for r in REASONS if r[2] not in ("response_mask", "token_ids") and r[0] != "shifted"]


@pytest.mark.parametrize(("change", "column"), [r[1:3] for r in EXACT], ids=[r[0] for r in EXACT])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_reason_that_does_not_explain_the_first_difference_is_not_given(
    change: Change, column: str, seed: int
) -> None:
    """The first token that differs was changed by something else; what explains the others does not explain it."""

    def both(dump: Dump) -> None:
        change(dump)
        row = int(dump.mask.any(axis=1).argmax())
        token = int(dump.mask[row].argmax())
        dump.columns[column][row, token] += 7.0

    found = finding(both, seed)
    assert found.first is not None
    assert (found.first.column, found.first.code) == (column, "")


def white_over(slots: Callable[[Dump], Any]) -> Change:
    """Whitening with the statistics of other slots than the chosen ones."""

    def change(dump: Dump) -> None:
        raw = dump.wide("advantages")
        taken = raw[slots(dump)]
        dump.columns["whitened_advantages"] = ((raw - taken.mean()) / taken.std() * dump.mask).astype(np.float32)

    return change


def only_whitened(dump: Dump) -> None:
    dump.columns["advantages"] = dump.columns.pop("whitened_advantages")


def without(*names: str) -> Change:
    return lambda dump: [dump.columns.pop(name) for name in names]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "slots",
    [
        lambda d: np.ones(d.shape, bool),
        lambda d: d.columns["attention_mask"],
        lambda d: d.mask & (np.arange(WIDTH) < 4),
    ],
)
@pytest.mark.parametrize("kept", ["all", "returns", "nothing"])
def test_two_that_whiten_over_other_tokens_both_whiten(slots: Callable[[Dump], Any], kept: str, seed: int) -> None:
    a = batch(seed)
    b = copy.deepcopy(a)
    white_over(slots)(b)
    for dump in (a, b):
        if kept != "all":
            only_whitened(dump)
        if kept == "nothing":
            without("returns", "rewards", "kl")(dump)
    found = compare(a, b)
    assert found.first is not None
    assert found.first.code == "whitening"
    why = found.first.why[1]
    assert "A whitens the advantages, B does not" not in why
    if kept != "nothing":
        assert "over other tokens" in why
    elif "a spread of 1, B a mean of" in why:
        assert "B does not whiten, or over other tokens" in why
    swapped = compare(b, a).first
    assert swapped is not None
    assert "whitens the advantages" not in swapped.why[1]


def test_who_does_not_whiten_is_said_where_the_raw_advantages_are_known() -> None:
    a, b = batch(1), batch(1)
    only_whitened(a)
    without("whitened_advantages")(b)
    for one, two, said in ((a, b, "A whitens the advantages, B does not"), (b, a, "B whitens the advantages, A does")):
        first = compare(one, two).first
        assert first is not None
        assert said in first.why[1]
    centred = batch(1)
    raw = centred.wide("advantages")
    only_whitened(centred)
    centred.columns["advantages"] = ((raw - raw[centred.mask].mean()) * centred.mask).astype(np.float32)
    first = compare(a, centred).first
    assert first is not None
    assert "A divides by the standard deviation, B only takes off the mean" in first.why[1]


def test_a_reward_on_the_first_token_is_not_blamed_on_the_score() -> None:
    def bonus(dump: Dump) -> None:
        dump.columns["scores"] = np.roll(dump.columns["scores"], 1, 1)
        finish(dump)
        dump.columns["rewards"][:, 0] += 0.5

    a, b = batch(2), batch(2)
    bonus(b)
    del b.columns["scores"]
    for one, two in ((a, b), (b, a)):
        first = compare(one, two).first
        assert first is not None
        assert (first.column, first.code) == ("rewards", "")
        assert first.first is not None
        assert first.first.token == 0
    del a.columns["scores"]
    first = compare(a, b).first
    assert first is not None
    assert first.code == ""


def bootstrapped(dump: Dump) -> None:
    """V of the state after the last token counts."""
    last = WIDTH - 1 - dump.mask[:, ::-1].argmax(1)
    steps = np.cumsum(dump.mask[:, ::-1], axis=1)[:, ::-1] - 1
    more = np.where(dump.mask, 0.98 * 0.5 * (0.98 * 0.9) ** np.maximum(steps, 0), 0.0)
    assert (more[np.arange(ROWS), last] == 0.98 * 0.5).all()
    for name in ("advantages", "returns"):
        dump.columns[name] = (dump.wide(name) + more).astype(np.float32)
    whiten(dump)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("derived", [False, True])
def test_a_value_behind_the_end(seed: int, derived: bool) -> None:
    a, b = batch(seed), batch(seed)
    bootstrapped(b)
    for dump in (a, b):
        if derived:
            only_whitened(dump)
    first = compare(a, b).first
    assert first is not None
    assert first.code == "bootstrap"


def test_the_end_of_a_row_is_blamed_only_where_rewards_and_values_agree() -> None:
    def late(dump: Dump) -> None:
        last = dump.mask.shape[1] - 1 - dump.mask[:, ::-1].argmax(1)
        dump.columns["rewards"][np.arange(ROWS), last] += 1.0
        raw = dump.wide("advantages")
        raw[np.arange(ROWS), last] += 1.0
        dump.columns["advantages"] = raw.astype(np.float32)

    found = finding(late, 1)
    codes = {part.column: part.code for part in found.parts}
    assert codes["advantages"] != "bootstrap"
