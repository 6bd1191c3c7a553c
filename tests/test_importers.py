"""Our own runs and generic files through the importers, with mappings, in shards; mistakes named with their place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from dump_batches import LENGTHS, B, P, T, batch, lines, one, plain_columns, run_directory, same
from npz import save_npz
from safetensors.torch import save_file

from mingce.base.errors import ColumnError, DataError, SettingError, UnknownNameError
from mingce.importers import open_dump
from mingce.record.dump import Dump

# ── our own ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("place", ["", "ledger"])
def test_run_directory(tmp_path: Path, place: str) -> None:
    ledger = run_directory(tmp_path)
    dumps = open_dump(tmp_path / place)
    assert [dump.step for dump in dumps] == [1, 2]
    dump = dumps[1]
    assert dump.source == "mingce"
    same(dump.columns["advantages"], ledger["advantages"])
    same(dump.columns["whitened_advantages"], ledger["whitened_advantages"])
    same(dump.columns["values"], ledger["values"])
    assert dump.rows["group"] == list("xxyy")
    assert dump.settings.gamma == 0.99
    assert dump.settings.lam == 0.9
    assert dump.settings.beta == 0.02
    assert dump.scalars["pg_loss"] == 0.5


def test_chosen_steps(tmp_path: Path) -> None:
    run_directory(tmp_path / "run")
    assert [dump.step for dump in open_dump(tmp_path / "run", steps={2, 7})] == [2]
    with pytest.raises(DataError, match=r"steps \[9\]"):
        open_dump(tmp_path / "run", steps=[9])
    for step in (1, 2):
        torch.save(batch(), tmp_path / f"step_{step}.pt")
    (tmp_path / "run").rename(tmp_path / ".hidden")
    assert [dump.step for dump in open_dump(tmp_path, steps={1})] == [1]


def test_settings_of_a_wrong_type(tmp_path: Path) -> None:
    torch.save(batch() | {"settings": {"gamma": "x", "lam": float("nan"), "eos_id": 2.5}}, tmp_path / "x.pt")
    assert not {"gamma", "lam", "eos_id"} & one(tmp_path / "x.pt").settings.known().keys()
    with pytest.raises(SettingError, match="gamma"):
        open_dump(tmp_path / "x.pt", settings={"gamma": "x"})


def test_ledger_without_whitening(tmp_path: Path) -> None:
    ledger = run_directory(tmp_path, whiten=False)
    dump = one(tmp_path / "ledger" / "step-000001.parquet")
    same(dump.columns["advantages"], ledger["advantages"])
    assert "whitened_advantages" not in dump.columns
    assert dump.settings.gamma == 0.99


# ── generic, mappings, shards ────────────────────────────────────────────────────────────────────────────────────────


def check_plain(dump: Dump, tail: bool = True) -> None:
    made = batch()
    assert dump.source == "generic"
    keep = np.ones((B, T), dtype=bool) if tail else made["response_mask"].bool().numpy()
    for theirs, ours in (
        ("old_log_probs", "old_log_probs"),
        ("returns", "advantages"),
        ("advantages", "whitened_advantages"),
    ):
        np.testing.assert_array_equal(dump.columns[ours], np.where(keep, made[theirs].numpy(), 0))
    same(dump.columns["response_mask"], made["response_mask"].bool())
    assert dump.settings.gamma == 0.9
    assert dump.rows["group"] == ["a", "a", "b", "b"]
    assert dump.rows["outcome"] == [1.0, 2.0, 3.0, 4.0]


def test_generic_containers(tmp_path: Path) -> None:
    columns = plain_columns()
    rows: dict[str, list[Any]] = {"group": ["a", "a", "b", "b"], "reward": [1.0, 2.0, 3.0, 4.0]}
    about = json.dumps({"gamma": 0.9})
    arrays = {name: column.numpy() for name, column in columns.items()}
    save_npz(tmp_path / "a.npz", arrays | {k: np.array(v) for k, v in rows.items()} | {"settings": np.array(about)})
    torch.save({"columns": columns, "rows": rows, "settings": {"gamma": 0.9}}, tmp_path / "b.parquet")
    lists = {k: [row[:n].tolist() for row, n in zip(v, LENGTHS, strict=True)] for k, v in columns.items()}
    records = [{k: v[i] for k, v in (lists | rows).items()} | {"gamma": 0.9} for i in range(B)]
    lines(tmp_path / "c.txt", records)
    half = {k: pa.array(v, pa.list_(pa.float32() if k != "token_ids" else pa.int32())) for k, v in lists.items()}
    pq.write_table(pa.table(half | rows).replace_schema_metadata({"settings": about}), tmp_path / "d.pt")
    for name, tail in (("a.npz", True), ("b.parquet", True), ("c.txt", False), ("d.pt", False)):
        check_plain(one(tmp_path / name), tail)


def test_whole_sequences_lose_their_prompts(tmp_path: Path) -> None:
    made = batch()
    pad = torch.zeros(B, P)
    whole = {name: torch.cat([pad, made[name].float()], dim=1).numpy() for name in ("response_mask", "advantages")}
    np.savez(
        tmp_path / "x", input_ids=made["input_ids"].numpy(), loss_mask=whole["response_mask"], adv=whole["advantages"]
    )
    (tmp_path / "names.yaml").write_text("columns: {adv: advantages}\nsettings: {lambda: 0.5}\n")
    dump = one(tmp_path / "x.npz", mapping=tmp_path / "names.yaml", settings={"gamma": 1.0})
    same(dump.columns["token_ids"], made["responses"])
    same(dump.columns["advantages"], made["advantages"])
    assert dump.rows["prompt_ids"][0] == made["prompts"][0].tolist()
    assert (dump.settings.lam, dump.settings.gamma) == (0.5, 1.0)


def test_mapping(tmp_path: Path) -> None:
    made = batch()
    torch.save({"m": made["response_mask"], "V": made["values"], "values": torch.zeros(B, T)}, tmp_path / "x.pt")
    names = tmp_path / "names.json"
    names.write_text(json.dumps({"columns": {"m": "response_mask", "V": "values"}}))
    same(one(tmp_path / "x.pt", mapping=names).columns["values"], made["values"])
    with pytest.raises(DataError, match="no response mask"):
        open_dump(tmp_path / "x.pt")
    names.write_text(json.dumps({"columns": {"m": "respons_mask"}}))
    with pytest.raises(UnknownNameError, match="response_mask"):
        open_dump(tmp_path / "x.pt", mapping=names)
    names.write_text(json.dumps({"columns": {"m": "response_mask", "gone": "values"}}))
    with pytest.raises(DataError, match="'gone'"):
        open_dump(tmp_path / "x.pt", mapping=names)


@pytest.mark.parametrize(
    "name", ["step_3_rank{}.pt", "step_3/rank_{}.pt", "step_3/dp{}/x.pt", "shard-0000{}-of-00004.pt"]
)
def test_shards(tmp_path: Path, name: str) -> None:
    for rank in (2, 0, 1, 3):
        path = tmp_path / name.format(rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(batch(rank), path)
    dump = one(tmp_path)
    assert dump.rows["rank"] == [rank for rank in range(4) for _ in range(B)]
    same(dump.columns["values"], torch.cat([batch(rank)["values"] for rank in range(4)]))
    assert dump.settings.world_size == 4
    assert not dump.remarks
    (tmp_path / name.format(1)).unlink()
    dump = one(tmp_path)
    assert dump.shape == (3 * B, T)
    assert "rank 1" in dump.remarks[0][0]
    assert "1 of 4 rank files" in dump.remarks[0][1]


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step_12.npz", 12), ("global_step_7/batch.npz", 7), ("globalStep=8.npz", 8), ("rollout_3.npz", 3),
        ("iter-5-seed42.npz", 5), ("train_data_step10.npz", 10), ("qwen2.5_step_000004_rank0.npz", 4),
        ("batch_7b.npz", None), ("qwen2.5-7b.npz", None), ("seed42.npz", None), ("2026-11-18.npz", None),
        ("batch_7.npz", None), ("12.npz", None), ("step_7b.npz", None), ("step_2.5e-6.npz", None),
        ("n_step_5.npz", None), ("multi_step_3.npz", None), ("steps_100.npz", None), ("footstep3.npz", None),
    ],
)  # fmt: skip
def test_a_step_is_told_only_by_a_name_that_says_step(tmp_path: Path, name: str, step: int | None) -> None:
    path = tmp_path / "dumps" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    save_npz(path, {key: column.numpy() for key, column in plain_columns().items()})
    assert one(path).step == step
    assert one(tmp_path / "dumps").step == step


def test_last_rank_missing_at_one_step(tmp_path: Path) -> None:
    for step, ranks in ((1, (0, 1, 2)), (2, (0, 1))):
        for rank in ranks:
            torch.save(batch(rank), tmp_path / f"step{step}-rank{rank}.pt")
    first, second = open_dump(tmp_path)
    assert not first.remarks
    assert "rank 2" in second.remarks[0][1]


def test_shards_of_different_width(tmp_path: Path) -> None:
    made = batch()
    narrow = {name: column[:2, :-1] if column.shape[1] > P else column[:2] for name, column in made.items()}
    narrow["values"] = narrow.pop("values")
    torch.save(narrow | {"extra": torch.zeros(2)}, tmp_path / "rank0.pt")
    torch.save({k: v for k, v in made.items() if k != "returns"}, tmp_path / "rank1.pt")
    dump = one(tmp_path)
    assert dump.shape == (2 + B, T)
    assert not dump.columns["response_mask"][:2, -1].any()
    assert "returns" not in dump.columns
    assert "returns" in dump.remarks[0][1]


def test_directory_with_other_files(tmp_path: Path) -> None:
    torch.save(batch(), tmp_path / "step_1.pt")
    (tmp_path / "config.json").write_text('{\n "a": 1\n}')
    (tmp_path / "notes.md").write_text("hello")
    save_file({"layer.weight": torch.zeros(2, 2)}, tmp_path / "model.safetensors")
    (tmp_path / "evil.pkl").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    assert len(open_dump(tmp_path)) == 1
    (tmp_path / "step_1.pt").unlink()
    with pytest.raises(DataError, match="no dump"):
        open_dump(tmp_path)


# ── mistakes, each with its place ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"responses": torch.full((B, T), float("nan"))}, "row 0, token 0"),
        ({"responses": torch.full((B, T), 0.5)}, "whole number"),
        ({"response_mask": torch.full((B, T), 2)}, "a mask is 0 or 1"),
        ({"values": torch.zeros(B, T - 1)}, "'values' has shape"),
        ({"values": torch.zeros(B - 1, T)}, "'values' has shape"),
        ({"responses": torch.full((B, T), -4)}, "negative"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, change: dict[str, torch.Tensor], said: str) -> None:
    torch.save(batch() | change, tmp_path / "x.pt")
    with pytest.raises(ColumnError, match=said) as error:
        open_dump(tmp_path / "x.pt")
    assert "x.pt" in str(error.value)


def test_ragged_rows_are_named(tmp_path: Path) -> None:
    lines(
        tmp_path / "x.jsonl",
        [{"response_mask": [1, 1], "values": [0.1, 0.2]}, {"response_mask": [1], "values": [1, 2]}],
    )
    with pytest.raises(ColumnError, match="'values' has 2 numbers in row 1") as error:
        open_dump(tmp_path / "x.jsonl")
    assert error.value.row == 1


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file"):
        open_dump(tmp_path / "x")


def test_empty_batch(tmp_path: Path) -> None:
    torch.save({name: column[:0] for name, column in batch().items()}, tmp_path / "x.pt")
    assert one(tmp_path / "x.pt").shape == (0, T)
