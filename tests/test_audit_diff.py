"""Two dumps of one batch: where they part first and why, for every reason that is known, and silence for none."""

from __future__ import annotations

import copy
import io
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from diff_batches import REASONS, ROWS, SEEDS, Change, batch, finding, finish, no_eos, said, set_column, whiten
from rich.console import Console

from mingce.audit.diff import Difference, Part, Spot, compare
from mingce.commands.diff import show
from mingce.record.dump import Dump


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
