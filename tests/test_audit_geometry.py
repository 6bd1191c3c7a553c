"""The audit of masks, row ends, positions, texts and raw numbers: one name for a planted bug, none if all is well."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from audit_toys import BOS, EOS, findings, named, rounded, toy

from mingce.record.dump import Dump
from mingce.specs.settings import DumpSettings

Plant = Callable[[int], Dump]
ROWS, WIDTH = 48, 64
EVERY = np.arange(ROWS)
LOG_PROBS = ("old_log_probs", "rollout_log_probs", "ref_log_probs", "new_log_probs")


def ended(dump: Dump) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows that end before the limit with their last slots, and the rows that do not."""
    length = dump.columns["attention_mask"].sum(axis=1)
    short = length < WIDTH
    return EVERY[short], length[short] - 1, EVERY[~short]


def padded_with_eos(seed: int) -> Dump:
    dump = toy(seed)
    dump.settings = replace(dump.settings, pad_id=EOS)
    dump.columns["token_ids"][~dump.columns["attention_mask"]] = EOS
    return dump


def eos_masked(seed: int, attended: bool, scored: bool = True) -> Dump:
    dump = padded_with_eos(seed)
    rows, last, _ = ended(dump)
    dump.columns["response_mask"][rows, last] = False
    dump.columns["attention_mask"][rows, last] = attended
    for name in LOG_PROBS:
        dump.columns[name][rows, last] *= scored
    return dump


def pads_chosen(seed: int, told: bool, eos: bool = False) -> Dump:
    dump = padded_with_eos(seed) if eos else toy(seed)
    dump.columns["response_mask"][::5] = True
    if not told:
        del dump.columns["attention_mask"]
    return dump


def eos_forced(seed: int, told: bool) -> Dump:
    dump = toy(seed, full=0.3)
    rows, last, full = ended(dump)
    dump.columns["token_ids"][full, WIDTH - 1] = EOS
    if not told:
        del dump.rows["finish_reason"]
        for name in LOG_PROBS:
            dump.columns[name][rows, last], dump.columns[name][full, WIDTH - 1] = -0.5, -12.0
    return dump


def other_end(seed: int, ids: np.ndarray) -> Dump:
    dump = toy(seed)
    rows, last, _ = ended(dump)
    dump.columns["token_ids"][rows, last] = ids[rows]
    return dump


def positions(seed: int, counted: bool, first: int = 0) -> Dump:
    dump = toy(seed)
    dump.rows["position_ids"] = [
        (np.arange(n := pad + len(prompt) + WIDTH) if counted else np.maximum(np.arange(n) - pad, 0) + first).tolist()
        for pad, prompt in zip(dump.rows["left_pad"], dump.rows["prompt_ids"], strict=True)
        if (n := pad + len(prompt) + WIDTH)
    ]
    return dump


def sampled(seed: int, insert: bool) -> Dump:
    dump = toy(seed)
    lines = zip(dump.columns["token_ids"], dump.columns["attention_mask"], strict=True)
    dump.rows["rollout_ids"] = [ids[kept].tolist() for ids, kept in lines]
    if insert:
        for line in dump.rows["rollout_ids"][::4]:
            line.insert(3, 7)
    return dump


def two_bos(seed: int) -> Dump:
    dump = toy(seed)
    dump.rows["prompt_ids"] = [[BOS, *line] for line in dump.rows["prompt_ids"]]
    return dump


def scored(change: Callable[[list[str]], list[str]]) -> Plant:
    def make(seed: int) -> Dump:
        dump = toy(seed)
        answers = [f"the answer is {row}" for row in range(ROWS)]
        dump.rows |= {"response": list(answers), "prompt": [f"q{row}?" for row in range(ROWS)]}
        dump.rows["reward_text"] = change(answers)
        return dump

    return make


def filled(name: str, value: float, start: int, end: int) -> Plant:
    """Every fourth row holds a fill value in slots counted from its start, or from its end if negative."""

    def make(seed: int) -> Dump:
        dump = toy(seed)
        for row, length in list(enumerate(dump.columns["attention_mask"].sum(axis=1)))[::4]:
            at = slice(start, end) if start >= 0 else slice(length + start, length + end)
            dump.columns[name][row, at] = value
        return dump

    return make


def half(seed: int, *names: str) -> Dump:
    dump, coarse = toy(seed), rounded(toy(seed))
    dump.columns |= {name: coarse.columns[name] for name in names}
    return dump


def broken(seed: int, behind: bool, advantages: bool) -> Dump:
    dump = toy(seed)
    if behind:
        dump.columns["values"][~dump.mask] = np.nan
    if advantages:
        dump.columns["advantages"][:] = np.nan
    return dump


def mask_of(name: str, change: Callable[[Dump], np.ndarray]) -> Plant:
    def make(seed: int) -> Dump:
        dump = toy(seed, holes=True)
        dump.columns[name] = change(dump)
        return dump

    return make


PLANTS: dict[str, tuple[int, Plant]] = {
    "EOS masked, attended": (7, lambda seed: eos_masked(seed, True)),
    "EOS masked": (7, lambda seed: eos_masked(seed, False)),
    "EOS masked, no trace": (7, lambda seed: eos_masked(seed, False, scored=False)),
    "pads chosen": (8, lambda seed: pads_chosen(seed, True)),
    "pads chosen, by ids": (8, lambda seed: pads_chosen(seed, False)),
    "pads chosen, pad is EOS": (8, lambda seed: pads_chosen(seed, False, eos=True)),
    "loss on tools": (3, mask_of("loss_mask", lambda dump: dump.columns["attention_mask"].copy())),
    "loss on pads": (8, mask_of("loss_mask", lambda dump: dump.mask | ~dump.columns["attention_mask"])),
    "advantages as mask": (27, mask_of("loss_mask", lambda dump: dump.columns["advantages"].copy())),
    "EOS forced": (36, lambda seed: eos_forced(seed, True)),
    "EOS forced, by log-probs": (36, lambda seed: eos_forced(seed, False)),
    "EOS trimmed": (36, lambda seed: other_end(seed, np.random.default_rng(seed).integers(3, 64, ROWS))),
    "another stop id": (36, lambda seed: other_end(seed, np.full(ROWS, 9))),
    "positions": (13, lambda seed: positions(seed, True)),
    "ids": (12, lambda seed: sampled(seed, True)),
    "two BOS": (42, two_bos),
    "scored another row": (46, scored(lambda answers: answers[1:] + answers[:1])),
    "scored a part": (46, scored(lambda answers: [one[4:] for one in answers])),
    "scored more": (46, scored(lambda answers: [one + " tool says 7" for one in answers])),
    "scored nothing of it": (46, scored(lambda answers: ["?!"] * len(answers))),
    "bf16 old": (21, lambda seed: half(seed, "old_log_probs")),
    "bf16 trainer": (21, lambda seed: half(seed, *LOG_PROBS[1:])),
    "positive": (21, filled("old_log_probs", 0.03125, 2, 3)),
    "+1 inside": (28, filled("old_log_probs", 1.0, -2, 0)),
    "0 inside": (28, filled("rollout_log_probs", 0.0, 3, 8)),
    "−9999 inside": (28, filled("ref_log_probs", -9999.0, -1, 0)),
    "NaN behind": (38, lambda seed: broken(seed, True, False)),
    "NaN behind, spread": (38, lambda seed: broken(seed, True, True)),
    "NaN advantages": (31, lambda seed: broken(seed, False, True)),
}

CLEAN: dict[str, Plant] = {
    "log-probs stored in bf16": lambda seed: half(seed, *LOG_PROBS),
    "padded with EOS": padded_with_eos,
    "positions": lambda seed: positions(seed, False),
    "positions from 2": lambda seed: positions(seed, False, first=2),
    "ids": lambda seed: sampled(seed, False),
    "text": scored(lambda answers: [one + "<|im_end|>" for one in answers]),
    "text with prompt": scored(lambda answers: [f"<s>q{row}? {one}" for row, one in enumerate(answers)]),
    "bf16": lambda seed: rounded(toy(seed)),
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_gets_its_one_name(name: str) -> None:
    number, plant = PLANTS[name]
    for seed in range(3):
        found = named(plant(seed))
        assert [number in finding.named for finding in found] == [True], (
            seed,
            [(f.fault.code, f.named) for f in found],
        )


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_batch_gets_none(name: str) -> None:
    for seed in range(4):
        assert [finding.fault.code for finding in named(CLEAN[name](seed))] == [], seed


def test_rows_cut_by_the_limit_are_a_note() -> None:
    dump = toy(0)
    (note,) = (finding for finding in findings(dump) if finding.fault.code == "rows-cut-by-limit")
    assert note.level == "note"
    assert note.share == pytest.approx(len(ended(dump)[2]) / ROWS)


def test_a_fill_value_on_all_pads_is_a_convention() -> None:
    dump = toy(0)
    dump.columns["old_log_probs"][~dump.mask] = 1.0
    (found,) = (finding for finding in findings(dump) if finding.fault.code == "pad-fill-value")
    assert found.level == "convention"
    assert not named(dump)


def test_a_masked_eos_without_a_trace_may_as_well_be_trimmed() -> None:
    assert [finding.named for finding in named(eos_masked(0, False, scored=False))] == [(7, 36)]
    assert [finding.named for finding in named(eos_masked(0, True))] == [(7,)]


def test_strange_batches_neither_stop_nor_warn() -> None:
    rng = np.random.default_rng(0)
    strange = [np.nan, np.inf, -np.inf, 0.0, 1.0, -1.0, -9999.0, 1e300]
    for _ in range(150):
        rows, width = rng.choice([0, 1, 2, 5, 30]), rng.choice([0, 1, 2, 7, 40])
        mask = rng.random((rows, width)) < rng.choice([0.0, 0.3, 1.0])
        columns: dict[str, np.ndarray] = {"response_mask": mask, "token_ids": rng.integers(-2, 5, (rows, width))}
        for name in (*LOG_PROBS, "entropy", "values", "advantages", "importance_weights", "ratio"):
            if rng.random() < 0.8:
                column = -np.abs(rng.normal(size=(rows, width))) * rng.choice([1.0, 0.0, 1e30])
                bad = rng.random((rows, width)) < rng.choice([0.0, 0.1, 1.0])
                column[bad] = rng.choice(strange, size=bad.sum())
                columns[name] = column
        names = ("left_pad", "minibatch", "epoch", "finish_reason", "group", "response", "reward_text")
        cells = {name: [rng.choice(np.array([None, 0, 1, 2])) for _ in range(rows)] for name in names}
        lists = {name: [rng.integers(0, 4, rng.integers(0, 9)).tolist() for _ in range(rows)]
                 for name in ("prompt_ids", "position_ids", "rollout_ids")}  # fmt: skip
        pad_id, step = rng.choice(np.array([None, 0, 1])), rng.choice(np.array([None, 0, 3]))
        settings = DumpSettings(eos_id=1, pad_id=pad_id, bos_id=2, step=step)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for finding in findings(Dump(columns, cells | lists, settings)):
                for text in (*finding.fault.title, *finding.fault.cause, *finding.fault.change):
                    assert "{" not in text.format(**finding.values)
