"""Two dumps of one batch: where they part first and why, for every reason that is known, and silence for none."""

from __future__ import annotations

import copy
import io
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from mingce.algorithms.advantage import gae
from mingce.audit.diff import Difference, Part, Spot, compare
from mingce.commands.diff import show
from mingce.record.dump import Dump
from mingce.specs.settings import DumpSettings

ROWS, WIDTH, SEEDS = 12, 20, range(4)


def batch(seed: int, gamma: float = 0.98, lam: float = 0.9) -> Dump:
    """A batch with tool holes, made by our own functions; whitened over the batch with N − 1."""
    r = np.random.default_rng(seed)
    lengths, slots = r.integers(6, WIDTH - 1, ROWS), np.arange(WIDTH)
    attended = slots < lengths[:, None]
    mask = attended & ~((slots >= 2) & (slots < 4) & (np.arange(ROWS) % 2 == 0)[:, None])
    old = -np.abs(r.normal(size=mask.shape)) * mask
    ref = (old + 0.3 * r.normal(size=mask.shape)) * mask
    scores = np.where(slots == lengths[:, None] - 1, r.normal(size=(ROWS, 1)) + 2.0, 0.0)
    dump = Dump(
        {
            "response_mask": mask,
            "attention_mask": attended,
            "token_ids": np.where(slots == lengths[:, None] - 1, 2, r.integers(3, 90, mask.shape)) * attended,
            "old_log_probs": old.astype(np.float32),
            "rollout_log_probs": old.astype(np.float32),
            "ref_log_probs": ref.astype(np.float32),
            "values": (r.normal(size=mask.shape) * mask).astype(np.float32),
            "scores": scores.astype(np.float32),
        },
        {
            "uid": [f"row-{i}" for i in range(ROWS)],
            "prompt_ids": [[1, 5, int(i)] for i in range(ROWS)],
            "rank": [i // 6 for i in range(ROWS)],
        },
        DumpSettings(gamma=gamma, lam=lam, eos_id=2),
        path=f"batch-{seed}",
    )
    finish(dump, gamma=gamma, lam=lam)
    return dump


def finish(dump: Dump, *, beta: float = 0.1, kind: str = "k1", gamma: float = 0.98, lam: float = 0.9) -> None:
    """KL, rewards, credit and whitening again from what stands before them."""
    x = dump.wide("old_log_probs") - dump.wide("ref_log_probs")
    kl = {"k1": x, "k3": np.expm1(-x) + x, "k2": x**2 / 2}[kind] * dump.mask
    rewards = dump.wide("scores") - beta * kl
    r, v, mask = (torch.from_numpy(column) for column in (rewards, dump.wide("values"), dump.mask))
    credit = gae(r, v, mask, gamma, lam)
    assert credit.returns is not None
    returns = credit.returns.numpy()
    raw = (returns - dump.wide("values")) * dump.mask
    dump.columns |= {
        "kl": kl.astype(np.float32),
        "rewards": rewards.astype(np.float32),
        "advantages": raw.astype(np.float32),
        "returns": returns.astype(np.float32),
    }
    whiten(dump)


def whiten(dump: Dump, ddof: int = 1, mean: bool = False) -> None:
    raw = dump.wide("advantages")
    chosen = raw[dump.mask]
    white = (raw - chosen.mean()) / np.sqrt(chosen.var(ddof=ddof) + 1e-8) + (chosen.mean() if mean else 0.0)
    dump.columns["whitened_advantages"] = (white * dump.mask).astype(np.float32)


Change = Callable[[Dump], Any]


def said(found: Difference, lang: str) -> list[str]:
    """The verdict, why, how rows were matched, and the rest."""
    return [found.verdict(lang), *found.about(lang), *found.others(lang)]


def finding(change: Change, seed: int) -> Difference:
    a = batch(seed)
    b = copy.deepcopy(a)
    change(b)
    with np.errstate(all="raise"):
        found = compare(a, b)
    for lang in ("zh", "en"):
        assert all(said(found, lang))
    return found


def set_column(name: str, make: Callable[[Dump], Any]) -> Change:
    def change(dump: Dump) -> None:
        dump.columns[name] = np.asarray(make(dump)).astype(dump.columns[name].dtype)

    return change


def then_finish(change: Change) -> Change:
    def both(dump: Dump) -> None:
        change(dump)
        finish(dump)

    return both


def no_holes(dump: Dump) -> None:
    dump.columns["response_mask"] = dump.columns["attention_mask"].copy()


def no_eos(dump: Dump) -> None:
    last = dump.columns["attention_mask"].sum(1) - 1
    dump.columns["response_mask"] = dump.columns["response_mask"] & (np.arange(WIDTH) != last[:, None])


def dense_recursion(dump: Dump) -> None:
    """OpenRLHF's: V and r are 0 at masked tokens, which still count as steps."""
    reward, value, mask = dump.wide("rewards") * dump.mask, dump.wide("values") * dump.mask, dump.mask
    raw, following = np.zeros(dump.shape), np.zeros(ROWS)
    for t in reversed(range(WIDTH)):
        after = value[:, t + 1] if t + 1 < WIDTH else 0.0
        following = reward[:, t] + 0.98 * after - value[:, t] + 0.98 * 0.9 * following
        raw[:, t] = following
    dump.columns["advantages"] = (raw * mask).astype(np.float32)
    dump.columns["returns"] = ((raw + value) * mask).astype(np.float32)
    whiten(dump)


def per_rank(dump: Dump) -> None:
    raw, out = dump.wide("advantages"), np.zeros(dump.shape)
    for rows in (slice(0, 6), slice(6, 12)):
        chosen = raw[rows][dump.mask[rows]]
        out[rows] = (raw[rows] - chosen.mean()) / chosen.std(ddof=1) * dump.mask[rows]
    dump.columns["whitened_advantages"] = out.astype(np.float32)


def per_row(dump: Dump) -> None:
    del dump.rows["rank"]
    raw = dump.wide("advantages")
    rows = [(x - x[m].mean()) / x[m].std() * m for x, m in zip(raw, dump.mask, strict=True)]
    dump.columns["whitened_advantages"] = np.stack(rows).astype(np.float32)


def swap_rows(name: str) -> Change:
    def change(dump: Dump) -> None:
        dump.columns[name] = dump.columns[name][::-1].copy()

    return change


REASONS: list[tuple[str, Change, str, str]] = [
    ("holes", then_finish(no_holes), "response_mask", "mask-holes"),
    ("eos", no_eos, "response_mask", "mask-eos"),
    ("shifted", set_column("values", lambda d: np.roll(d.columns["values"], 1, 1)), "values", "shift"),
    ("rows", swap_rows("ref_log_probs"), "ref_log_probs", "rows-permuted"),
    ("scaled", set_column("ref_log_probs", lambda d: d.wide("ref_log_probs") * 0.7), "ref_log_probs", "scale"),
    ("score", set_column("scores", lambda d: np.roll(d.columns["scores"], 1, 1)), "scores", "score-offset"),
    ("score scale", set_column("scores", lambda d: 2 * d.columns["scores"]), "scores", "scale"),
    ("beta", lambda d: finish(d, beta=0.2), "rewards", "kl-penalty"),
    ("estimator", lambda d: finish(d, kind="k3"), "kl", "kl-estimator"),
    ("gamma", lambda d: finish(d, gamma=1.0), "advantages", "discount"),
    ("lambda", lambda d: finish(d, lam=1.0), "advantages", "discount"),
    ("dense", dense_recursion, "advantages", "recursion"),
    ("ddof", lambda d: whiten(d, ddof=0), "whitened_advantages", "whitening"),
    ("mean", lambda d: whiten(d, mean=True), "whitened_advantages", "whitening"),
    ("raw", set_column("whitened_advantages", lambda d: d.columns["advantages"]), "whitened_advantages", "whitening"),
    ("sign", set_column("whitened_advantages", lambda d: -d.wide("whitened_advantages")), "whitened_advantages",
     "whitening"),
    ("rank", per_rank, "whitened_advantages", "whitening-scope"),
    ("row", per_row, "whitened_advantages", "whitening-scope"),
    ("ids", set_column("token_ids", lambda d: d.columns["token_ids"] + 1), "token_ids", "other-tokens"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "column", "code"), [r[1:] for r in REASONS], ids=[r[0] for r in REASONS])
@pytest.mark.parametrize("seed", SEEDS)
def test_reasons(change: Change, column: str, code: str, seed: int) -> None:
    found = finding(change, seed)
    assert found.first is not None
    assert (found.first.column, found.first.code) == (column, code)


def test_the_words_say_which_side() -> None:
    assert "γ = 0.98, λ = 0.9, B γ = 1" in said(finding(lambda d: finish(d, gamma=1.0), 1), "en")[1]
    assert "A takes 0.1·k1, B takes 0.2·k1" in said(finding(lambda d: finish(d, beta=0.2), 1), "en")[1]
    assert "the EOS" in said(finding(no_eos, 1), "en")[1]
    assert "N − 1" in said(finding(lambda d: whiten(d, ddof=0), 1), "en")[1]
    assert "B adds the mean back" in said(finding(lambda d: whiten(d, mean=True), 1), "en")[1]
    raw = set_column("whitened_advantages", lambda d: d.columns["advantages"])
    assert "A whitens" in said(finding(raw, 1), "en")[1]
    rolled = set_column("scores", lambda d: np.roll(d.columns["scores"], 1, 1))
    assert "+1 slots" in said(finding(rolled, 1), "en")[1]


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


def test_engine_noise() -> None:
    r = np.random.default_rng(0)
    noisy = set_column("rollout_log_probs", lambda d: d.columns["rollout_log_probs"] + 0.01 * r.normal(size=d.shape))
    found = finding(noisy, 1)
    assert found.first is not None
    assert found.first.code == "noise"


@pytest.mark.parametrize("seed", SEEDS)
def test_equal_dumps_are_equal(seed: int) -> None:
    found = finding(lambda d: None, seed)
    assert found.same
    assert "the same" in said(found, "en")[0]

    def rounded(dump: Dump) -> None:
        for name, column in dump.columns.items():
            if column.dtype == np.float32:
                dump.columns[name] = torch.from_numpy(column).bfloat16().float().numpy()

    found = finding(rounded, seed)
    assert found.first is None, said(found, "en")
    assert "up to rounding" in said(found, "en")[0]


def test_rows_in_another_order_and_width() -> None:
    def shuffled(dump: Dump) -> None:
        order = np.random.default_rng(1).permutation(ROWS)
        for name, column in dump.columns.items():
            dump.columns[name] = np.pad(column[order], ((0, 0), (0, 5)))
        dump.rows = {name: [values[i] for i in order] for name, values in dump.rows.items()}

    found = finding(shuffled, 1)
    assert found.same
    assert (found.aligned, found.reordered) == ("uid", True)

    def nameless(dump: Dump) -> None:
        shuffled(dump)
        del dump.rows["uid"]

    assert finding(nameless, 1).aligned == "tokens"
    assert finding(nameless, 1).same

    def fewer(dump: Dump) -> None:
        dump.columns = {name: column[2:] for name, column in dump.columns.items()}
        dump.rows = {name: values[2:] for name, values in dump.rows.items()}

    found = finding(fewer, 1)
    assert (found.only_a, found.only_b, found.rows, found.same) == ([0, 1], [], ROWS - 2, False)


def test_the_share_of_rows_is_never_rounded_to_none_or_to_a_power_of_ten() -> None:
    for rows, share in ((0.001, "0.1%"), (1.0, "100%"), (0.9999, "100%")):
        part = Part("values", "differs", rows, 1.0, 1.0, Spot(3, 3, 5, 1.0, 2.0))
        difference = Difference("a", "b", "uid", reordered=False, rows=1000, only_a=[], only_b=[], parts=[part])
        console = Console(file=io.StringIO(), width=100)
        show(console, difference, "en")
        assert re.search(rf"values +3 +5 +1 +2 +{share}", console.file.getvalue())  # type: ignore[attr-defined]


def test_the_spot_is_in_the_numbering_of_each_dump() -> None:
    def change(dump: Dump) -> None:
        for name, column in dump.columns.items():
            dump.columns[name] = column[::-1].copy()
        dump.rows = {name: values[::-1] for name, values in dump.rows.items()}
        dump.columns["values"][ROWS - 1 - 3, 5] += 1.0

    found = finding(change, 1).first
    assert found is not None
    assert found.first is not None
    assert (found.column, found.first.row_a, found.first.row_b, found.first.token) == ("values", 3, ROWS - 4, 5)
    assert found.first.b == pytest.approx(found.first.a + 1)


def test_scalars_settings_and_missing_columns() -> None:
    def change(dump: Dump) -> None:
        dump.scalars["pg_loss"] = 0.2
        dump.settings = replace(dump.settings, lam=1.0)
        del dump.columns["kl"]

    a = batch(1)
    a.scalars["pg_loss"] = 0.1
    b = copy.deepcopy(a)
    change(b)
    found = compare(a, b)
    assert found.first is not None
    assert found.first.column == "pg_loss"
    assert found.settings == {"lam": (0.9, 1.0)}
    assert found.columns_a == ["kl"]
    assert "logged pg_loss" in said(found, "en")[0]


def test_damaged_dumps() -> None:
    empty = Dump({"response_mask": np.zeros((0, 0), dtype=bool), "values": np.zeros((0, 0), dtype=np.float32)})
    assert said(compare(empty, empty), "zh")
    assert compare(empty, batch(1)).rows == 0
    for fill in (np.nan, np.inf):
        for name in ("values", "whitened_advantages", "rewards", "old_log_probs", "scores"):
            spoilt = finding(set_column(name, lambda d, fill=fill, name=name: np.full(d.shape, fill)), 1)  # type: ignore[misc]
            assert spoilt.first is not None
            assert spoilt.first.column == name
