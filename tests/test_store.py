"""Ledgers on disk: every number comes back to the bit, one rollout without the rest, and damage is named."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mingce.base.errors import ColumnError, RunError
from mingce.columns import TOKEN_COLUMNS
from mingce.ledger import Ledger
from mingce.record.store import LedgerStore

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.usefixtures("one_thread"),  # a forked child has no others
]


def make_ledger(rows: int, width: int, seed: int = 0, *, step: int = 0, lengths: list[int] | None = None) -> Ledger:
    """Every column of the table filled; ragged rows, holes where the policy chose nothing, some rows all hole."""
    generator = torch.Generator().manual_seed(seed)
    ends = torch.randint(width + 1, (rows,), generator=generator) if lengths is None else torch.tensor(lengths)
    present = torch.arange(width) < ends[:, None]
    chosen = present & (torch.rand(rows, width, generator=generator) < 0.8)
    chosen[::5] = False
    count = range(rows)
    ledger = Ledger(
        torch.randint(2**40, (rows, width), generator=generator),
        chosen,
        present,
        rows={
            "uid": [f"{step}-{seed}-{row}" for row in count],
            "group": [f"g{row // 4}" for row in count],
            "data_source": ["加法"] * rows,
            "prompt": [f"请问{row}+1=？\n" for row in count],
            "prompt_ids": [list(range(row % 7)) for row in count],
            "response": ["是的🙂" * (row % 3) for row in count],
            "finish_reason": ["length" if row % 2 else "stop" for row in count],
            "score_parts": [{"exact": row / 3, "格式": 1.0} if row % 3 else {} for row in count],
            "bootstrap_value": [None if row % 2 else row / 7 for row in count],
            "step": [step] * rows,
            "policy_version": [2**40 + row for row in count],
            "temperature": [0.7] * rows,
        },
    )
    columns: dict[str, Tensor] = {}
    for name, column in TOKEN_COLUMNS.items():
        if name not in ("token_ids", "response_mask", "attention_mask"):
            numbers = torch.randn(rows, width, generator=generator) * 10 ** torch.randint(
                -44, 38, (1,), generator=generator
            )
            kinds = {"bool": numbers > 0, "int64": numbers.nan_to_num().clamp(-9, 9).long()}
            columns[name] = kinds.get(column.dtype, numbers.nan_to_num())
    return ledger.fill(columns)


def assert_same(found: Ledger, expected: Ledger) -> None:
    assert (len(found), found.width) == (len(expected), expected.width)
    assert found.columns().keys() == expected.columns().keys()
    for name, column in expected.columns().items():
        assert found[name].dtype == column.dtype
        assert found[name].numpy().tobytes() == column.numpy().tobytes(), name
    assert found.rows == expected.rows


@pytest.fixture
def store(tmp_path: Path) -> LedgerStore:
    return LedgerStore(tmp_path / "ledger")


# ── round trip ───────────────────────────────────────────────────────────────────────────────────────────────────────


@given(rows=st.integers(0, 70), width=st.integers(0, 9), seed=st.integers(0, 2**31))
@settings(max_examples=30, deadline=None)
def test_every_bit_comes_back(tmp_path_factory: pytest.TempPathFactory, rows: int, width: int, seed: int) -> None:
    store = LedgerStore(tmp_path_factory.mktemp("ledger"))
    ledger = make_ledger(rows, width, seed)
    store.write(5, ledger)
    assert_same(store.read(5), ledger)


def test_a_ledger_with_only_what_was_said_comes_back(store: LedgerStore) -> None:
    ledger = Ledger(torch.arange(6).reshape(2, 3), torch.tensor([[1, 0, 1], [0, 0, 0]], dtype=torch.bool))
    store.write(0, ledger)
    assert_same(store.read(0), ledger)
    assert store.rollout(0, 1) == {"token_ids": [], "response_mask": [], "attention_mask": []}


def test_other_programs_read_the_file(store: LedgerStore) -> None:
    ledger = make_ledger(40, 6, step=3)
    path = store.write(3, ledger)
    assert path.name == "step-000003.parquet"
    table = pq.read_table(path)
    assert table["values"].type == pa.list_(pa.float32())
    assert table["clipped"].type == pa.list_(pa.bool_())
    assert [len(ids) for ids in table["token_ids"].to_pylist()] == ledger.lengths.tolist()
    assert table.schema.metadata[b"mingce.format"] == b"1"


def test_steps_are_listed_in_order_and_written_anew(store: LedgerStore) -> None:
    assert store.steps() == []
    for step in (12, 2, 1_000_000):
        store.write(step, make_ledger(2, 3, step=step))
    (store.directory / "notes.parquet").write_text("not ours")
    assert store.steps() == [2, 12, 1_000_000]
    again = make_ledger(3, 3, 99)
    store.write(12, again)
    assert_same(store.read(12), again)
    assert not list(store.directory.glob(".*"))
    store.drop_after(2)
    assert store.steps() == [2]
    store.sync()
    store.drop_after(-1)
    assert store.steps() == []


def test_a_row_value_of_the_wrong_kind_names_its_column(store: LedgerStore) -> None:
    wrong: dict[str, Any] = {"uid": {}, "step": "x", "prompt_ids": ["a"], "score_parts": {"a": torch.ones(1)}}
    for name, value in wrong.items():
        ledger = Ledger(torch.zeros(1, 1, dtype=torch.int64), torch.ones(1, 1) > 0, rows={name: [value]})
        with pytest.raises(ColumnError, match=f"row column '{name}' of step 4 cannot be stored as"):
            store.write(4, ledger)
    assert store.steps() == []


# ── one rollout ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("width", [3, 600])
def test_one_rollout_is_that_row(store: LedgerStore, width: int) -> None:
    ledger = make_ledger(75, width, step=1)
    store.write(1, ledger)
    for row in (0, 31, 32, 63, 64, 74):
        found = store.rollout(1, row)
        length = int(ledger.lengths[row])
        expected: dict[str, Any] = {name: values[row] for name, values in ledger.rows.items()}
        expected |= {name: values[row, :length].tolist() for name, values in ledger.columns().items()}
        assert found == expected


def test_only_the_row_group_that_holds_it_is_read(store: LedgerStore) -> None:
    path = store.write(1, make_ledger(70, 200, lengths=[200] * 70))
    file = pq.ParquetFile(path)
    assert [file.metadata.row_group(group).num_rows for group in range(3)] == [32, 32, 6]
    begin = file.metadata.row_group(1).column(0).data_page_offset
    end = file.metadata.row_group(2).column(0).data_page_offset
    damaged = bytearray(path.read_bytes())
    damaged[begin:end] = bytes(end - begin)
    path.write_bytes(damaged)
    assert store.rollout(1, 3)["uid"] == "0-0-3"
    assert store.rollout(1, 69)["uid"] == "0-0-69"
    with pytest.raises(RunError, match=r"step-000001\.parquet is damaged"):
        store.rollout(1, 40)


def test_a_row_or_step_that_is_not_there_is_one_sentence(store: LedgerStore) -> None:
    with pytest.raises(RunError, match=r"no ledger of step 7 in .*; it is empty"):
        store.read(7)
    store.write(3, make_ledger(2, 3))
    store.write(4, make_ledger(0, 3))
    with pytest.raises(RunError, match=r"no ledger of step 7 in .*; it holds steps 3 to 4"):
        store.rollout(7, 0)
    with pytest.raises(RunError, match="step 3 has 2 rollouts, numbered from 0; there is no row 2"):
        store.rollout(3, 2)
    with pytest.raises(RunError, match="step 4 has 0 rollouts"):
        store.rollout(4, 0)


# ── finding by uid ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_rollout_is_found_by_its_uid(store: LedgerStore) -> None:
    for step in range(5):
        store.write(step, make_ledger(40, 3, step=step))
    assert store.find("3-0-17") == (3, 17)
    assert store.find("0-0-0") == (0, 0)
    with pytest.raises(RunError, match=r"no rollout in .* has the uid '9-0-1'; it holds steps 0 to 4"):
        store.find("9-0-1")


def test_finding_follows_what_is_dropped_rewritten_and_copied_in(store: LedgerStore, tmp_path: Path) -> None:
    for step in range(4):
        store.write(step, make_ledger(40, 3, step=step))
    store.drop_after(1)
    with pytest.raises(RunError, match="no rollout"):
        store.find("2-0-5")
    store.write(2, make_ledger(40, 3, 8, step=2))
    assert store.find("2-8-5") == (2, 5)
    other = LedgerStore(tmp_path / "other")
    other.write(7, make_ledger(40, 3, step=7))
    other._path(7).rename(store._path(7))
    assert store.find("7-0-39") == (7, 39)
    store.write(1, make_ledger(40, 3, 5, step=1))
    with pytest.raises(RunError, match="no rollout"):
        store.find("1-0-3")
    assert store.find("1-5-3") == (1, 3)


@pytest.mark.parametrize("index", ["a file", "a directory"])
def test_the_index_that_older_versions_kept_is_left_alone(store: LedgerStore, index: str) -> None:
    store.directory.mkdir()
    kept = store.directory / "uids.sqlite"
    kept.mkdir() if index == "a directory" else kept.write_bytes(b"SQLite format 3\0" + b"nonsense" * 500)
    ledger = make_ledger(40, 3, step=1)
    store.write(1, ledger)
    assert_same(store.read(1), ledger)
    assert store.steps() == [1]
    assert store.find("1-0-9") == (1, 9)
    assert kept.exists()


# ── damage ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_cut_file_is_named(store: LedgerStore) -> None:
    path = store.write(12, make_ledger(40, 20))
    whole = path.read_bytes()
    for length in (0, 3, len(whole) // 2, len(whole) - 9, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(RunError, match=r"step-000012\.parquet is damaged or cut short"):
            store.read(12)
        with pytest.raises(RunError, match=r"step-000012\.parquet"):
            store.rollout(12, 0)


def test_a_flipped_bit_is_found_or_changes_nothing(store: LedgerStore) -> None:
    ledger = make_ledger(40, 20)
    path = store.write(12, ledger)
    whole = path.read_bytes()
    chance = random.Random(0)
    refused = 0
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        try:
            found = store.read(12)
        except RunError:
            refused += 1
        else:
            assert_same(found, ledger)
    assert 200 < refused < 300


def test_a_file_of_another_kind_or_a_newer_format_is_refused(
    store: LedgerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.directory.mkdir()
    pq.write_table(pa.table({"prompt": ["x"]}), store.directory / "step-000001.parquet")
    with pytest.raises(RunError, match="not a ledger of mingce"):
        store.read(1)
    monkeypatch.setattr("mingce.record.store.FORMAT", 9)
    store.write(2, make_ledger(1, 1))
    monkeypatch.undo()
    with pytest.raises(RunError, match=r"newer mingce \(ledger format 9\)"):
        store.read(2)


def test_killed_while_writing_every_file_is_whole(store: LedgerStore) -> None:
    chance = random.Random(1)
    ledgers = [make_ledger(64, 30, seed) for seed in range(4)]
    for _ in range(12):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                for step in range(10_000):
                    store.write(step % 8, ledgers[step % 4])
                    os.write(writer, b".")
            except BaseException:
                os._exit(1)
            os._exit(0)
        os.read(reader, 1)
        time.sleep(chance.random() * 0.03)
        os.kill(child, signal.SIGKILL)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
        os.close(reader)
        os.close(writer)
        assert store.steps()
        for step in store.steps():
            assert_same(store.read(step), ledgers[step % 4])
        assert store.find(f"0-{store.steps()[0] % 4}-9")[1] == 9
