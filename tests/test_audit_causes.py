"""A cause is named where the evidence tells it from its rivals, and else the finding says the alternatives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import test_audit_groups as groups
import test_audit_losses as losses
import test_audit_outside as outside
from audit_toys import EOS, PAD, findings, named, toy

from mingce.audit import edges, geometry, policy, precision, rewards
from mingce.audit.evidence import Evidence, last_slot
from mingce.audit.finding import Finding
from mingce.audit.losses import _alternatives
from mingce.record.dump import Dump
from mingce.specs.settings import DumpSettings

OLD, DRAWN, NEW = "old_log_probs", "rollout_log_probs", "new_log_probs"
SEEDS = (0, 1, 2)


def said(dump: Dump) -> list[tuple[str, tuple[int, ...]]]:
    return [(one.fault.code, one.named) for one in named(dump)]


def with_edges(dump: Dump) -> list[Finding]:
    found = findings(dump, (geometry, edges, precision, policy))
    return [one for one in found if one.level in ("bug", "suspicious")]


def lowered(dump: Dump, where: np.ndarray, by: float) -> Dump:
    """The trainer's log-probs lower on some tokens, by numbers around `by`."""
    numbers = np.sign(by) * np.random.default_rng(1).gamma(3, abs(by) / 3, dump.mask.shape)
    for name in (OLD, NEW):
        dump.columns[name] = dump.columns[name] - np.where(where & dump.mask, numbers, 0)
    return dump


# ── log-probs ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("entropy", [True, False])
@pytest.mark.parametrize("words", ["first token", "slot 7", "padding id", "last token"])
def test_a_gap_in_one_kind_of_place_is_said_to_be_there(words: str, entropy: bool) -> None:
    for seed in SEEDS:
        dump, where = toy(seed), np.zeros((48, 64), bool)
        rows, last = np.arange(48), last_slot(dump.mask)
        if words == "padding id":
            where[rows, last // 2] = True
            dump.columns["token_ids"] = np.where(where, PAD, dump.columns["token_ids"])
        else:
            where[rows, {"first token": 0 * last, "slot 7": 0 * last + 7, "last token": last}[words]] = True
        if not entropy:
            del dump.columns["entropy"]
        (finding,) = named(lowered(dump, where, 3.0))
        assert finding.fault.code == "gap-in-one-place", seed
        assert words in finding.values["where"]
        assert finding.values["size"] > 50 * finding.values["rest"]


def test_numbers_that_lean_one_way_are_no_top_p_unless_something_says_so() -> None:
    for seed in SEEDS:
        dump = lowered(toy(seed), np.ones((48, 64), bool), 0.1)  # a normaliser that is too large
        assert said(dump) == [("log-probs-lean-one-way", (14, 2))]
        cut = toy(seed, top_p=0.9)
        assert said(cut) == [("truncated-sampling", (14,))]  # nothing was drawn from the tail of the entropy
        del cut.columns["entropy"]
        assert said(cut) == [("log-probs-lean-one-way", (14, 2))]
        cut.settings = replace(cut.settings, top_p=0.9)
        assert said(cut) == [("truncated-sampling", (14,))]


def test_raw_log_probs_are_the_samplers_only_where_the_trainers_are_right() -> None:
    for seed in SEEDS:
        assert said(toy(seed, sample=0.7, rollout=1.0)) == [("rollout-log-probs-raw", (2,))]
        dump = lowered(toy(seed), np.ones((48, 64), bool), -0.15)  # the trainer's sum to more than 1
        codes = [code for code, _ in said(dump)]
        assert "log-probs-lean-one-way" in codes
        assert "rollout-log-probs-raw" not in codes


def test_a_few_tokens_make_no_temperature() -> None:
    for seed in SEEDS:
        dump, r = toy(seed), np.random.default_rng(seed)
        where = dump.mask & (r.random(dump.mask.shape) < 0.03)
        for name in (OLD, NEW):
            dump.columns[name] = np.where(where, -13 - r.random(where.shape), dump.columns[name])
        assert "trainer-temperature" not in [code for code, _ in said(dump)]


def test_log_probs_less_the_likeliest_are_not_called_the_likeliest() -> None:
    dump = toy(0)
    r = np.random.default_rng(0)
    top = np.where(r.random(dump.mask.shape) < 0.5, 0.0, -dump.columns[DRAWN] - 2.0)  # of half the tokens it was drawn
    top = np.where(r.random(dump.mask.shape) < 0.5, -dump.columns[DRAWN], np.clip(top, 0.5, None))
    dump.columns[OLD] = np.where(dump.mask, np.minimum(dump.columns[DRAWN] + top, 0.0), 0.0)
    (finding,) = [one for one in named(dump) if one.fault.code == "not-log-probs"]
    assert "less that of the likeliest" in finding.values["how"]


def test_most_rows_drift_though_the_others_are_too_short_to_show_it() -> None:
    for seed in SEEDS:
        dump, r = toy(seed), np.random.default_rng(seed)
        for row, length in zip(dump.columns[DRAWN], dump.mask.sum(axis=1), strict=True):
            at = int(0.6 * length)
            row[at:length] = np.roll(row[at:length], 3) - r.gamma(1, 0.3, length - at)
        assert [numbers for _, numbers in said(dump)] == [(12,)], seed


def test_a_gap_that_grows_with_padding_is_seen_by_the_prompts() -> None:
    """The dump stores how long the prompts are, or pads them all to one width, and no `left_pad`."""
    for stored in ("ragged", "one width"):
        dump, r = toy(0), np.random.default_rng(0)
        pads = np.array(dump.rows.pop("left_pad"))
        noise = r.normal(size=dump.mask.shape) * np.minimum(0.02 * pads, 0.4)[:, None]
        dump.columns[OLD] = np.where(dump.mask, np.minimum(dump.columns[OLD] + noise, -1e-6), 0.0)
        if stored == "one width":
            prompts = dump.rows["prompt_ids"]
            dump.rows["prompt_ids"] = [[PAD] * (25 - len(line)) + line for line in prompts]
        assert [code for code, _ in said(dump)] == ["gap-grows-with-padding"], stored


def test_two_bos_are_seen_behind_the_padding_of_the_prompts() -> None:
    dump = toy(0)
    lines = [[2, *line] for line in dump.rows["prompt_ids"]]
    dump.rows["prompt_ids"] = [[PAD] * (26 - len(line)) + line for line in lines]
    dump.settings = DumpSettings(eos_id=EOS)
    assert "double-bos" in [one.fault.code for one in with_edges(dump)]


# ── masks and ends ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("settings", [DumpSettings(eos_id=EOS, pad_id=PAD), DumpSettings()])
def test_a_stop_token_behind_the_stop_token_is_no_response(settings: DumpSettings) -> None:
    dump = toy(0, full=0.0)
    c, last = dump.columns, last_slot(dump.mask)
    rows = np.flatnonzero(last < 62)
    for name in ("response_mask", "attention_mask"):
        c[name][rows, last[rows] + 1] = True
    c["token_ids"][rows, last[rows] + 1] = EOS
    for name in (OLD, DRAWN, NEW, "ref_log_probs"):
        c[name][rows, last[rows] + 1] = -11.0
    c["entropy"][rows, last[rows] + 1] = 0.5
    dump.settings = settings
    assert [one.fault.code for one in with_edges(dump)] == ["tokens-after-stop"]


def test_an_id_that_is_drawn_again_and_again_is_no_stop_token() -> None:
    """A policy that has come down to one id ends every row with it twice."""
    dump = toy(0, full=0.0)
    dump.columns["token_ids"] = np.where(dump.mask, 7, PAD)
    dump.settings = DumpSettings()
    assert "tokens-after-stop" not in [one.fault.code for one in with_edges(dump)]


def test_a_masked_stop_token_is_seen_beside_rows_that_the_limit_cut() -> None:
    dump = toy(0, full=0.3)
    last = last_slot(dump.mask)
    for row in np.flatnonzero(last < 63):
        dump.columns["response_mask"][row, last[row]] = False
    dump.columns["turn"] = np.zeros(dump.mask.shape, np.int64)
    dump.settings = DumpSettings()
    assert "last-token-masked" in [one.fault.code for one in with_edges(dump)]
    assert "last-token-masked" not in [one.fault.code for one in with_edges(toy(1))]


# ── critics, rewards, credit ───────────────────────────────────────────────────────────────────────────────────────


def test_a_row_that_the_update_took_to_its_returns_is_no_other_row() -> None:
    dump = outside.batch()
    row = outside.ROW
    mask, c = outside.chosen(dump), dump.columns
    spread = float(np.std(c["values"][mask]))
    c["returns"][row] = np.where(mask[row], c["values"][row] + 6 * spread, 0.0)
    c["new_values"] = c["values"].copy()
    c["new_values"][row] = np.where(mask[row], c["values"][row] + 3 * spread, 0.0)
    assert "lone-row-empty" not in outside.alarms(dump)
    c["new_values"][row] = np.where(mask[row], c["values"][row] - 3 * spread, 0.0)
    assert "lone-row-empty" in outside.alarms(dump)


def test_rewards_alone_may_hold_a_kl() -> None:
    """Neither scores nor a reference: nothing tells what the numbers on the way are made of."""
    dump = outside.batch()
    columns = {name: dump.columns[name] for name in ("token_ids", "response_mask", "rewards", OLD)}
    bare = Dump(columns, {}, DumpSettings(beta=0.05))
    e = Evidence(bare)
    found = [one for check in rewards.CHECKS if e.has(*check.needs) for one in check.findings(e) or ()]
    assert [one.fault.code for one in found if one.level in ("bug", "suspicious")] == []


def test_one_row_bootstrapped_otherwise_is_not_laid_to_the_padding() -> None:
    """What one row of many does is asked of that row."""
    dump = outside.batch(rows=64)
    values_of, values, after, mask = outside.parts(dump)
    last, row = last_slot(mask), int(np.flatnonzero(last_slot(mask) < 30)[0])
    after[row, last[row]] = 0.77
    outside.put(dump, outside.advantages_of(dump, values_of, values, after, 1.0, 0.95))
    dump = replace(dump, settings=replace(dump.settings, gamma=1.0, lam=0.95, truncation=None))
    assert outside.alarms(dump)
    assert "pad-value-bootstraps" not in outside.alarms(dump)


# ── groups ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def distinct(x: np.ndarray) -> np.ndarray:
    values = np.unique(x)
    made: np.ndarray = (x - values.mean()) / (values.std(ddof=1) if len(values) > 1 else 1.0)
    return made


def group_numbers(b: dict[str, Any]) -> list[tuple[np.ndarray, np.ndarray]]:
    total = b["rewards"].sum(1).numpy().astype(np.float64)
    rows = [np.flatnonzero(np.array(b["group"]) == one) for one in dict.fromkeys(b["group"])]
    return [(at, total[at]) for at in rows]


def spread(b: dict[str, Any], parts: list[tuple[np.ndarray, np.ndarray]]) -> list[Finding]:
    import torch

    found = torch.zeros(len(b["group"]))
    for rows, numbers in parts:
        found[torch.tensor(rows)] = torch.tensor(numbers, dtype=torch.float32)
    made = found[:, None] * b["mask"]
    return [one for one in groups.look(b, (made, made)) if one.level in ("bug", "suspicious")]


def test_two_numbers_are_no_cut_comparison() -> None:
    b = groups.batch(0, prompts=8, samples=8, spread=False)
    (finding,) = spread(b, [(rows, distinct(x)) for rows, x in group_numbers(b)])
    assert finding.fault.code == "group-advantage-changed"
    assert "each counted once" in finding.values["what"]


def test_a_divisor_of_another_group_is_seen() -> None:
    b = groups.batch(1)
    parts = group_numbers(b)
    stds = [x.std(ddof=1) for _, x in parts]
    swapped = [(rows, (x - x.mean()) / std) for (rows, x), std in zip(parts, np.roll(stds, 1), strict=True)]
    (finding,) = spread(b, swapped)
    assert finding.fault.code == "group-scales-differ"
    assert "another group" in finding.values["what"]
    weighted = [(rows, (x - x.mean()) * (1 + at)) for at, (rows, x) in enumerate(parts)]
    (finding,) = spread(b, weighted)
    assert "no other known divisor" in finding.values["what"]


# ── losses ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_kl_is_held_against_the_mode_of_a_policy_loss_that_is_known() -> None:
    dump = losses.clean(2)
    dump.scalars["kl_loss"] = losses.aggregated(dump, losses.k3(dump), "seq-mean-token-sum")
    assert "kl-loss-mode" in losses.told(dump)
    dump.settings = replace(dump.settings, loss_agg_mode=None)
    dump.scalars["pg_loss"] = 3.0  # by no known way
    assert "kl-loss-mode" not in losses.told(dump)


def test_clipped_tokens_that_are_counted_and_not_clipped_in_the_loss() -> None:
    dump = losses.clean(5, moved=1.0)
    old, new, advantages = (losses.tensor(dump, name) for name in (OLD, NEW, "advantages"))
    plain = losses.aggregated(dump, -advantages * (new - old).exp())
    dump.scalars |= {"pg_loss": plain, "pg_clipfrac": 0.1}
    assert "loss-not-clipped" in losses.told(dump)
    dump.scalars["pg_clipfrac"] = 0.0  # nor counted: no clip is meant
    assert "loss-not-clipped" not in losses.told(dump)


def test_advantages_in_the_place_of_the_mask_leave_no_declared_mode() -> None:
    dump = losses.clean(4)
    losses.advantages_as_mask(dump)
    dump.settings = replace(dump.settings, loss_agg_mode="seq-mean-token-sum")
    assert losses.told(dump).get("loss-mask") == (27,)


def test_losses_that_fit_alike_are_all_said_up_to_three() -> None:
    def of(*names: str) -> list[Any]:
        return [type("Fits", (), {"words": (name, name)})() for name in names]

    assert _alternatives([]) is None
    assert _alternatives(of("a", "a")) == ("a", "a")
    both = _alternatives(of("a", "b", "c"))
    assert both is not None
    assert all(name in both[1] for name in "abc")
    assert _alternatives(of(*"abcd")) is None
