"""The audit of log-probs: each planted bug gets its one name, a clean batch none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from audit_toys import findings, named, rounded, toy

from mingce.audit.alignment import _nearer, align
from mingce.record.dump import Dump

OLD, DRAWN, REF, NEW = "old_log_probs", "rollout_log_probs", "ref_log_probs", "new_log_probs"
SEEDS = (0, 1, 2)
Plant = Callable[[int], Dump]


def random(seed: int) -> np.random.Generator:
    return np.random.default_rng(1000 + seed)


def lengths(dump: Dump) -> np.ndarray:
    count: np.ndarray = dump.columns["attention_mask"].sum(axis=1)
    return count


def without(plant: Plant, *names: str) -> Plant:
    def make(seed: int) -> Dump:
        dump = plant(seed)
        for name in names:
            del dump.columns[name]
        return dump

    return make


def shift(name: str, by: int, **kinds: object) -> Plant:
    def make(seed: int) -> Dump:
        dump = toy(seed, **kinds)  # type: ignore[arg-type]
        dump.columns[name] = np.roll(dump.columns[name], by, axis=1)
        return dump

    return make


def blocks(order: Sequence[int], name: str = OLD, by_length: bool = False, **kinds: object) -> Plant:
    def make(seed: int) -> Dump:
        dump = toy(seed, **kinds)  # type: ignore[arg-type]
        column = dump.columns[name]
        for row, length in zip(column, lengths(dump), strict=True):
            size = (length if by_length else len(row)) // len(order)
            row[: size * len(order)] = np.concatenate([row[at * size : (at + 1) * size].copy() for at in order])
        return dump

    return make


def own_order(seed: int) -> Dump:
    """Every row with an order of blocks of its own."""
    dump = toy(seed, width=128)
    for row, length in zip(dump.columns[OLD], lengths(dump), strict=True):
        size, order = length // 4, random(seed + length).permutation(4)
        order = order if (order != np.arange(4)).any() else order[::-1]
        row[: size * 4] = np.concatenate([row[at * size : (at + 1) * size].copy() for at in order])
    return dump


def other_rows(seed: int) -> Dump:
    dump = toy(seed)
    dump.columns[OLD] = np.roll(dump.columns[OLD], 1, axis=0)
    return dump


def drift(share: float, one_later: bool) -> Plant:
    def make(seed: int) -> Dump:
        dump, rng = toy(seed), random(seed)
        for row, length in zip(dump.columns[DRAWN], lengths(dump), strict=True):
            if rng.random() < share and length >= 16:
                start = rng.integers(4, length - 8)
                rest = row[start:length]
                row[start:length] = np.roll(rest, 1) if one_later else rng.permutation(rest)
        return dump

    return make


def zero_tail(seed: int) -> Dump:
    dump = toy(seed)
    for row, length in list(zip(dump.columns[DRAWN], lengths(dump), strict=True))[::3]:
        row[length - random(seed).integers(3, 8) :] = 0
    return dump


def seen_padding(seed: int) -> Dump:
    dump = toy(seed)
    noise = 0.03 * np.array(dump.rows["left_pad"])[:, None] * random(seed).normal(size=dump.mask.shape)
    dump.columns[OLD] = np.where(dump.mask, np.minimum(dump.columns[OLD] + noise, 0), 0).astype(np.float32)
    return dump


def first_batch(seed: int, noise: float = 0.0, by: int = 0, temperature: float = 1.0) -> Dump:
    """A quarter of the rows is the first mini-batch, where new log-probs should be the old ones."""
    dump = toy(seed)
    dump.rows |= {"minibatch": [row // 12 for row in range(48)], "epoch": [0] * 48}
    first = toy(seed, trainer=temperature, sample=1.0).columns[OLD][:12]
    wrong = np.minimum(first + noise * random(seed).normal(size=first.shape), 0) * dump.mask[:12]
    dump.columns[NEW][:12] = np.roll(wrong, by, axis=1)
    return dump


def idle(seed: int) -> Dump:
    dump = toy(seed, stale=0.15)
    dump.columns[NEW] = dump.columns[OLD].copy()
    return dump


def weighted(top: str, bottom: str, cut: float = 2.0) -> Plant:
    def make(seed: int) -> Dump:
        dump = toy(seed, stale=0.1)
        weight = np.minimum(np.exp(dump.columns[top] - dump.columns[bottom]), cut)
        dump.columns["importance_weights"] = np.where(dump.mask, weight, 0).astype(np.float32)
        return dump

    return make


def reference(step: int, away: float) -> Plant:
    def make(seed: int) -> Dump:
        dump = toy(seed)
        moved = dump.columns[OLD] - away * np.abs(random(seed).normal(size=dump.mask.shape))
        dump.columns[REF] = np.where(dump.mask, moved, 0).astype(np.float32)
        dump.settings = replace(dump.settings, step=step)
        return dump

    return make


ZIGZAG = [0, 2, 3, 1]
PLANTS: dict[str, tuple[int, Plant]] = {
    "rollout raw": (2, lambda seed: toy(seed, sample=0.7, rollout=1.0)),
    "rollout raw, hot": (2, lambda seed: toy(seed, sample=1.3, rollout=1.0)),
    "trainer at 1": (2, lambda seed: toy(seed, sample=0.7, trainer=1.0)),
    "trainer at 1, no entropy": (2, without(lambda seed: toy(seed, sample=0.7, trainer=1.0), "entropy")),
    "trainer at 1, bf16": (2, lambda seed: rounded(toy(seed, sample=0.7, trainer=1.0))),
    "both at 1": (2, lambda seed: toy(seed, sample=0.7, trainer=1.0, rollout=1.0)),
    "both at 1, hot": (2, lambda seed: toy(seed, sample=1.3, trainer=1.0, rollout=1.0)),
    "top-p": (14, lambda seed: toy(seed, top_p=0.9)),
    "top-p, bf16": (14, lambda seed: rounded(toy(seed, top_p=0.9))),
    "top-p, no rollout": (14, without(lambda seed: toy(seed, top_p=0.9), DRAWN)),
    "stale": (6, lambda seed: toy(seed, stale=0.15)),
    "very stale": (6, lambda seed: toy(seed, stale=0.4)),
    "dropout": (41, lambda seed: toy(seed, noise=0.3)),
    "shift +1": (18, shift(OLD, 1)),
    "shift −1, holes": (18, shift(OLD, -1, holes=True)),
    "rollout shifted": (18, shift(DRAWN, 1)),
    "shift of short rows": (18, shift(OLD, 1, rows=60, width=12)),
    "shift of stale": (18, shift(OLD, 1, stale=0.1)),
    "shift, no rollout": (18, without(shift(OLD, 1), DRAWN)),
    "reference shifted": (18, shift(REF, 1)),
    "zigzag": (40, blocks(ZIGZAG)),
    "zigzag back": (40, blocks(np.argsort(ZIGZAG).tolist())),
    "zigzag of 8": (40, blocks([0, 7, 1, 6, 2, 5, 3, 4])),
    "zigzag of the length": (40, blocks(ZIGZAG, by_length=True)),
    "zigzag of the rollout, holes": (40, blocks(ZIGZAG, DRAWN, holes=True)),
    "halves": (40, blocks([1, 0])),
    "two blocks swapped": (40, blocks([0, 1, 5, 3, 4, 2, 6, 7])),
    "each row its own order": (40, own_order),
    "other rows": (40, other_rows),
    "retokenised": (12, drift(0.5, one_later=True)),
    "retokenised, all rows": (12, drift(1.0, one_later=True)),
    "retokenised, few rows": (12, drift(0.2, one_later=True)),
    "retokenised beyond repair": (12, drift(0.5, one_later=False)),
    "zero tail": (12, zero_tail),
    "padding seen": (13, seen_padding),
    "first ratio, noise": (17, lambda seed: first_batch(seed, noise=0.1)),
    "first ratio, shift": (17, lambda seed: first_batch(seed, by=1)),
    "first ratio, temperature": (17, lambda seed: first_batch(seed, temperature=0.7)),
    "idle clip": (20, idle),
    "weight of the new": (39, weighted(NEW, DRAWN)),
    "weight upside down": (39, weighted(DRAWN, OLD, cut=1e9)),
    "reference follows": (22, reference(5, 0.0)),
    "reference is another": (22, reference(0, 1.0)),
}  # fmt: skip

CLEAN: dict[str, Plant] = {
    "plain": toy,
    "exact": lambda seed: toy(seed, noise=0.0),
    "bf16": lambda seed: rounded(toy(seed)),
    "holes": lambda seed: toy(seed, holes=True),
    "tiny": lambda seed: toy(seed, rows=8, width=5),
    "few long rows": lambda seed: toy(seed, rows=3, width=200),
    "one row": lambda seed: toy(seed, rows=1, width=40),
    "cold": lambda seed: toy(seed, sample=0.25),
    "hot, bf16": lambda seed: rounded(toy(seed, sample=1.3)),
    "first batch": first_batch,
    "first batch, numerics": lambda seed: first_batch(seed, noise=0.003),
    "weights": weighted(OLD, DRAWN),
    "reference at step 0": reference(0, 0.0),
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_gets_its_one_name(name: str) -> None:
    number, plant = PLANTS[name]
    for seed in SEEDS:
        found = named(plant(seed))
        assert [number in finding.named for finding in found] == [True], (
            seed,
            [(f.fault.code, f.named) for f in found],
        )


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_batch_gets_none(name: str) -> None:
    for seed in range(8):
        assert [finding.fault.code for finding in named(CLEAN[name](seed))] == [], seed


def test_a_large_clean_batch_gets_none() -> None:
    assert not named(toy(0, rows=128, width=512))


def test_one_outlier_decides_nothing() -> None:
    dump = toy(0)
    dump.columns[DRAWN][0, 3] = -40.0
    dump.columns[OLD][1, 3] = -40.0
    assert not named(dump)


def test_two_surprises_of_a_nearly_certain_policy_are_no_shift() -> None:
    dump = toy(5)
    mask = dump.mask
    old = np.where(mask, -1e-3, 0.0)
    entropy = np.where(mask, 4e-3, 0.0)
    rows = np.flatnonzero(mask[:, 3] & mask[:, 4])[:2]
    old[rows, 4], entropy[rows, 3] = (-10.0, -11.1), (0.99, 0.83)  # surprised one token after it was uncertain
    dump.columns.update(old_log_probs=old, rollout_log_probs=old.copy(), entropy=entropy)
    assert "shifted-log-probs" not in [finding.fault.code for finding in findings(dump)]


def test_the_shift_is_told_with_its_size_and_column() -> None:
    (finding,) = named(shift(OLD, 1)(0))
    assert (finding.column, finding.values["shift"]) == (OLD, 1)
    (finding,) = named(shift(DRAWN, 1)(0))
    assert (finding.column, finding.values["shift"]) == (DRAWN, 1)


def test_the_blocks_are_told_by_where_they_belong() -> None:
    (finding,) = named(blocks([1, 0])(0))
    assert finding.values["what"] == "blocks of the row changed places ([0:32]←32, [32:64]←0…)"


def test_a_version_behind_the_learner_names_stale_weights_alone() -> None:
    dump = toy(0, stale=0.15)
    dump.columns["weight_versions"] = np.full(dump.mask.shape, 3)
    dump.settings = replace(dump.settings, learner_version=4)
    assert [finding.named for finding in named(dump)] == [(6,)]


def test_settings_tell_truncation_from_temperature() -> None:
    dump = toy(0, top_p=0.9, rollout=1.0)
    dump.settings = replace(dump.settings, temperature=1.0, top_p=0.9)
    assert [finding.named for finding in named(dump)] == [(14,)]


def test_engine_noise_is_a_note_with_its_size() -> None:
    (note,) = (finding for finding in findings(toy(0)) if finding.fault.code == "engine-noise")
    assert note.level == "note"
    assert 0 < note.values["size"] < note.values["p95"] < note.values["largest"]


def test_another_order_does_not_explain_doubts_by_leaving_them_out() -> None:
    """A policy that has become certain beside a reference that doubts each row's first token: a block moved over it
    hides the doubt, and says nothing."""
    old, ref, both = np.full((64, 16), -0.001), np.full((64, 16), -0.0005), np.ones((64, 16), bool)
    ref[:, 0] = -0.6
    both[:, 12:] = False
    assert not _nearer(old, np.roll(ref, -4, axis=1), ref, both)
    assert _nearer(np.roll(ref, -4, axis=1), np.roll(ref, -4, axis=1), ref, both | True)


def test_a_policy_that_has_collapsed_is_not_in_another_order() -> None:
    """Every row says the same two tokens, so that two numbers decide the correlation with the reference."""
    r = np.random.default_rng(0)
    use = np.ones((256, 2), bool)
    old = np.array([[-0.02, -0.6]]) * r.uniform(0.8, 1.2, (256, 2))
    ref = np.array([[-7.0, -3.0]]) * r.uniform(0.9, 1.1, (256, 2))
    assert align(old, ref, use).kind not in ("shift", "blocks", "rows")
    assert align(ref[:, ::-1] + 0.05 * r.normal(size=ref.shape), ref, use).kind == "blocks"


def written(dump: Dump, name: str) -> dict[str, np.ndarray]:
    """What people have stored in the place of log-probs, and by which word it is to be named."""
    y, mask = dump.columns[name].astype(np.float64), dump.mask
    count = mask.sum(axis=1, keepdims=True)
    return {
        "base 2": y / np.log(2),
        "base 10": y / np.log(10),
        "probabilities": np.exp(y),
        "up to the token": np.cumsum(np.where(mask, y, 0), axis=1),
        "row's length": y / count,
        "opposite sign": -y,
        "from below": np.maximum(y, float(np.median(y[mask]))),
        "Σ exp": y + 6.0 + 0.3 * random(0).normal(size=y.shape),
    }


@pytest.mark.parametrize("column", [OLD, DRAWN])
@pytest.mark.parametrize("words", written(toy(0), OLD))
def test_other_numbers_than_log_probs_are_named(words: str, column: str) -> None:
    for seed in SEEDS[:2]:
        dump = toy(seed, stale=0.05 * seed)
        numbers = written(dump, column)[words]
        dump.columns[column] = np.where(dump.mask, numbers, 0).astype(np.float32)
        found = named(dump)
        assert [(finding.fault.code, finding.column) for finding in found] == [("not-log-probs", column)], seed
        assert words in found[0].values["how"]


@pytest.mark.parametrize(("top", "bottom", "number"), [(NEW, REF, 20), (OLD, NEW, 39), (OLD, REF, 20)])
def test_a_ratio_of_another_pair_is_named(top: str, bottom: str, number: int) -> None:
    dump = toy(0)
    dump.columns["ratio"] = np.exp(dump.columns[NEW] - dump.columns[OLD])
    assert not named(dump)
    dump.columns["ratio"] = np.exp(dump.columns[top] - dump.columns[bottom])
    assert [(finding.fault.code, finding.named) for finding in named(dump)] == [("ratio-of-another-pair", (number,))]


def test_a_ratio_of_one_in_every_epoch_is_suspicious() -> None:
    dump = toy(0, noise=0.0)
    dump.columns[NEW] = dump.columns[OLD].copy()
    assert not named(dump)
    dump.settings = replace(dump.settings, ppo_epochs=2, step=7)
    assert [(finding.fault.code, finding.level) for finding in named(dump)] == [("ratio-always-one", "suspicious")]
    dump.columns["advantages"][:] = 0  # nothing to learn from
    assert not named(dump)


def test_a_collapsed_policy_is_certain_and_not_filled_and_its_digits_say_nothing() -> None:
    """Exact zeros and a few numbers just below them, where the reference doubts."""
    dump = toy(21)
    rng, mask = np.random.default_rng(21), dump.mask
    old = np.where(rng.random(mask.shape) < 0.7, 0.0, -(2.0**-20) * rng.integers(1, 500, mask.shape))
    dump.columns["old_log_probs"] = np.where(mask, old, 0.0).astype(np.float32)
    dump.columns["ref_log_probs"] = np.where(mask, -1.0 - rng.random(mask.shape), 0.0).astype(np.float32)
    for name in ("rollout_log_probs", "new_log_probs", "entropy"):
        del dump.columns[name]
    found = {one.fault.code for one in findings(dump) if one.level in ("bug", "suspicious")}
    assert not found & {"fill-value-as-log-prob", "half-precision-log-probs"}, found


def test_a_policy_that_leapt_to_one_token_is_sure_and_not_filled() -> None:
    """After one huge step a token has all of the probability: 0 for it, next to nothing for the others."""
    dump = toy(3)
    rng = random(3)
    sure = rng.random(dump.mask.shape) < 0.5
    dump.columns["new_log_probs"] = (
        np.where(sure, 0.0, -25.0 - 5 * rng.random(sure.shape)).astype(np.float32) * dump.mask
    )
    assert "fill-value-as-log-prob" not in {one.fault.code for one in findings(dump)}
    dump.columns["new_log_probs"] = np.where(sure, 0.0, -0.0015).astype(np.float32) * dump.mask
    assert "fill-value-as-log-prob" not in {one.fault.code for one in findings(dump)}


def test_a_rare_token_that_was_not_drawn_is_no_surprise() -> None:
    """256 draws of a policy that doubts once in 250: the entropy counts what is not among them."""
    dump = toy(1, rows=16, width=16, full=1.0)
    p = 0.996 + 1e-4 * random(1).random(dump.mask.shape)
    dump.columns["old_log_probs"] = (np.log(p) * dump.mask).astype(np.float32)
    for name in ("rollout_log_probs", "ref_log_probs", "new_log_probs"):
        del dump.columns[name]
    entropy = -(p * np.log(p) + (1 - p) * np.log((1 - p) / 60))
    dump.columns["entropy"] = (entropy * dump.mask).astype(np.float32)
    assert "surprise-is-not-entropy" not in {one.fault.code for one in findings(dump)}
