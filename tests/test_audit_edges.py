"""Masks, layouts and entropies that are wrong in the same way in every row, and clean ones beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from audit_toys import EOS, toy

from mingce.audit.audit import audit
from mingce.record.dump import Dump

LOGS = ("old_log_probs", "rollout_log_probs", "ref_log_probs", "new_log_probs")


def alarms(dump: Dump) -> dict[str, tuple[int, ...]]:
    return {f.fault.code: f.named for f in audit(dump).findings if f.level in ("bug", "suspicious")}


def bare(seed: int, **kinds: float) -> Dump:
    """A dump that says nothing of ids, prompts or ends, and has no credit to judge."""
    dump = toy(seed, **kinds)  # type: ignore[arg-type]
    for name in ("values", "advantages"):
        del dump.columns[name]
    return replace(dump, rows={}, settings=type(dump.settings)())


def first_masked(dump: Dump) -> None:
    dump.columns["response_mask"][:, 0] = False


def last_masked(dump: Dump) -> None:
    last = dump.columns["attention_mask"].sum(axis=1) - 1
    dump.columns["response_mask"][np.arange(len(last)), last] = False


def template(dump: Dump) -> None:
    dump.columns["token_ids"][:, :2] = (7, 9)
    for name in LOGS:
        dump.columns[name][:, :2] = -8.0 - np.random.default_rng(0).random((len(dump.mask), 2))


def after_eos(dump: Dump) -> None:
    """Every row goes on for three tokens behind its EOS."""
    ids, rng = dump.columns["token_ids"], np.random.default_rng(0)
    ended = np.flatnonzero(ids[np.arange(len(ids)), dump.mask.sum(axis=1) - 1] == EOS)
    for row in ended:
        end = int(dump.mask[row].sum())
        more = slice(end, min(end + 3, ids.shape[1]))
        ids[row, more] = rng.integers(3, 60, ids[row, more].shape)
        dump.columns["attention_mask"][row, more] = dump.columns["response_mask"][row, more] = True
        for name in LOGS:
            dump.columns[name][row, more] = -3.0 - 0.01 * rng.random(ids[row, more].shape)
        dump.columns["entropy"][row, more] = 3.0


def eos_gone(dump: Dump) -> None:
    last_masked(dump)
    dump.columns["attention_mask"] = dump.columns["response_mask"].copy()


def exchanged(dump: Dump) -> None:
    dump.columns["ref_log_probs"] = np.roll(dump.columns["ref_log_probs"], 3, axis=0)


def reshaped(dump: Dump) -> None:
    rows, width = dump.mask.shape
    dump.columns["ref_log_probs"] = dump.columns["ref_log_probs"].T.reshape(rows, width)


def turned(dump: Dump) -> None:
    dump.columns = {name: np.ascontiguousarray(column.T) for name, column in dump.columns.items()}


def doubled(dump: Dump) -> None:
    for column in dump.columns.values():
        column[5] = column[11]


def in_bits(dump: Dump) -> None:
    dump.columns["entropy"] = dump.columns["entropy"] / np.float32(np.log(2))


def entropy_of_rows(dump: Dump) -> None:
    dump.columns["entropy"] = np.where(dump.mask, np.roll(dump.columns["entropy"], 8, axis=1), 0)
    dump.columns["entropy"][:, :8] = 0


PLANTS: dict[str, tuple[Callable[[Dump], None], str, set[int]]] = {
    "first": (first_masked, "first-token-masked", set()),
    "last": (last_masked, "last-token-masked", {7}),
    "template": (template, "template-tokens-chosen", {3}),
    "after EOS": (after_eos, "tokens-after-stop", {8}),
    "no EOS": (eos_gone, "no-common-end", {7, 36}),
    "rows": (exchanged, "rows-exchanged", {37}),
    "reshaped": (reshaped, "time-major", set()),
    "turned": (turned, "time-major", set()),
    "doubled": (doubled, "rows-duplicated", {37, 48}),
    "bits": (in_bits, "entropy-unit", {2}),
    "entropy elsewhere": (entropy_of_rows, "entropy-elsewhere", set()),
}


@pytest.mark.parametrize("name", PLANTS)
def test_without_any_setting_it_is_named(name: str) -> None:
    plant, code, classes = PLANTS[name]
    for seed in range(2):
        dump = bare(seed, rows=64, width=48)
        plant(dump)
        found = alarms(dump)
        assert code in found, (seed, found)
        assert classes <= set(found[code])
        assert len(found[code]) <= 3
        others = set(found) - {code, "last-token-masked", "no-common-end"}  # an end that is masked is no end
        assert not others, (seed, found)


@pytest.mark.parametrize(
    "kinds", [{}, {"holes": True}, {"full": 1.0}, {"sample": 0.7}, {"noise": 0.0}, {"rows": 8, "width": 8}]
)
def test_a_clean_bare_dump_gets_none(kinds: dict[str, float]) -> None:
    for seed in range(4):
        assert alarms(bare(seed, **kinds)) == {}, seed


def test_equal_answers_of_a_certain_policy_are_no_duplicates() -> None:
    dump = bare(1)
    for name in LOGS:
        dump.columns[name] = np.where(dump.mask, -1e-3, 0).astype(np.float32)
    dump.columns["entropy"] = np.where(dump.mask, 8e-3, 0).astype(np.float32)
    dump.columns["token_ids"][:] = dump.columns["token_ids"][:1]
    assert "rows-duplicated" not in alarms(dump)


def test_one_prefix_that_the_policy_likes_is_no_template() -> None:
    dump = bare(2)
    dump.columns["token_ids"][:, 0] = 7
    for name in LOGS:
        dump.columns[name][:, 0] = -0.05
    assert "template-tokens-chosen" not in alarms(dump)
