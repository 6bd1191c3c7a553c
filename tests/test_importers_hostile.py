"""Damaged dumps: each opens as a valid dump or ends in one sentence; nothing runs, memory stays bounded.

Files made to do harm on purpose are in hostile_files.py and test_importers_limits.py.
"""

from __future__ import annotations

import io
import json
import pickle
import resource
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dump_batches as valid
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hostile_pickles import calls
from safetensors.torch import save

from mingce.base.errors import DataError, MingceError
from mingce.importers import open_dump
from mingce.importers.limits import Refused
from mingce.record.dump import Dump

MEGABYTE = 1 << 20
CANARY = "executed"


# ── valid files to damage ────────────────────────────────────────────────────────────────────────────────────────────


def torch_bytes(thing: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(thing, buffer, **options)
    return buffer.getvalue()


def npz_bytes(arrays: dict[str, Any], compressed: bool = False) -> bytes:
    buffer = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(buffer, **arrays)
    return buffer.getvalue()


def jsonl_bytes(records: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def parquet_bytes(path: Path) -> bytes:
    columns = {k: [row.tolist() for row in v] for k, v in valid.plain_columns().items()}
    pq.write_table(pa.table(columns), path)
    return path.read_bytes()


def seeds(folder: Path) -> dict[str, bytes]:
    """A tiny valid dump of every format."""
    made = valid.batch()
    arrays = {name: column.numpy() for name, column in made.items()}
    valid.run_directory(folder / "run")
    about = {"uid": np.array(list("aabb"), dtype=object)}
    return {
        "verl.pt": torch_bytes({"batch": made, "non_tensor_batch": about, "meta_info": {"temperature": 1.0}}),
        "verl-bf16.pt": torch_bytes(valid.batch(dtype=torch.bfloat16)),
        "verl-old.pt": torch_bytes(made, _use_new_zipfile_serialization=False),
        "verl.pkl": pickle.dumps({"batch": made, "non_tensor_batch": about, "meta_info": {}}),
        "verl.npz": npz_bytes(arrays),
        "verl-small.npz": npz_bytes(arrays, compressed=True),
        "verl.safetensors": save(made),
        "trl.pt": torch_bytes(valid.trl_tensors() | {"settings": {"pad_id": 0}}),
        "openrlhf.pt": torch_bytes([vars(valid.experience(seed, True)[0]) for seed in (0, 1)]),
        "prime.jsonl": jsonl_bytes(valid.prime_records(0)),
        "nemo.jsonl": jsonl_bytes(valid.nemo_records()),
        "slime.pt": torch_bytes(valid.slime_rank(0)),
        "generic.parquet": parquet_bytes(folder / "x.parquet"),
        "ledger.parquet": (folder / "run/ledger/step-000001.parquet").read_bytes(),
    }


# ── damage to bytes ──────────────────────────────────────────────────────────────────────────────────────────────────

Damage = Callable[[np.random.Generator, bytes], bytes]


def truncated(draw: np.random.Generator, data: bytes) -> bytes:
    return data[: int(draw.integers(0, len(data)))]


def flipped(draw: np.random.Generator, data: bytes) -> bytes:
    damaged = bytearray(data)
    for at in draw.integers(0, len(data), size=int(draw.integers(1, 9))):
        damaged[at] ^= 1 << int(draw.integers(0, 8))
    return bytes(damaged)


def overwritten(draw: np.random.Generator, data: bytes) -> bytes:
    at, size = int(draw.integers(0, len(data))), int(draw.integers(1, 40))
    return data[:at] + draw.bytes(size) + data[at + size :]


def saturated(draw: np.random.Generator, data: bytes) -> bytes:
    """A size field somewhere becomes huge."""
    at = int(draw.integers(0, max(len(data) - 8, 1)))
    return data[:at] + (b"\xff" * int(draw.choice([2, 4, 8]))) + data[at + 8 :]


def removed(draw: np.random.Generator, data: bytes) -> bytes:
    at, size = int(draw.integers(0, len(data))), int(draw.integers(1, 200))
    return data[:at] + data[at + size :]


def repeated(draw: np.random.Generator, data: bytes) -> bytes:
    at, size = int(draw.integers(0, len(data))), int(draw.integers(1, 200))
    return data[: at + size] + data[at:]


def numbers_changed(draw: np.random.Generator, data: bytes) -> bytes:
    """A number in a text (JSON, a header, a shape) becomes a hostile one."""
    digits = [i for i, byte in enumerate(data[:20000]) if 48 <= byte <= 57]
    if not digits:
        return flipped(draw, data)
    at = int(draw.choice(digits))
    hostile = [b"-1", b"NaN", b"1e999", b"99999999999999999999", b"0.5", b"null", b"[]", b'"x"', b"true", b"4294967295"]
    return data[:at] + hostile[int(draw.integers(0, len(hostile)))] + data[at + 1 :]


def inside(draw: np.random.Generator, data: bytes) -> bytes:
    """One member of a zip archive is damaged, the archive itself stays sound (new checksums)."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except zipfile.BadZipFile:
        return flipped(draw, data)
    chosen = str(draw.choice([name for name in archive.namelist() if archive.getinfo(name).file_size] or [""]))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as copy:
        for name in archive.namelist():
            content = archive.read(name)
            copy.writestr(name, DAMAGES[int(draw.integers(0, 7))](draw, content) if name == chosen else content)
    return buffer.getvalue()


DAMAGES: list[Damage] = [
    truncated, flipped, overwritten, saturated, removed, repeated, numbers_changed, inside, inside,
]  # fmt: skip


# ── damage to meaning ────────────────────────────────────────────────────────────────────────────────────────────────


def wrong_columns(draw: np.random.Generator) -> bytes:
    """A sound file whose columns are not what they should be."""
    made: dict[str, Any] = dict(valid.batch(int(draw.integers(0, 9))))
    for _ in range(int(draw.integers(1, 4))):
        name = str(draw.choice(list(made)))
        shape = tuple(int(n) for n in draw.integers(0, 7, size=int(draw.integers(0, 4))))
        rows = [torch.zeros(int(n)) for n in draw.integers(0, 6, size=valid.B)]
        hostile: list[Any] = [
            torch.full((valid.B, valid.T), float("nan")), torch.full((valid.B, valid.T), float("inf")),
            torch.full((valid.B, valid.T), -3), torch.full((valid.B, valid.T), 0.5), torch.zeros(shape), rows, None,
            "text", -1, {"a": 1}, [[1, 2], [3]], [], torch.zeros(valid.B, valid.T, dtype=torch.bool), [None] * valid.B,
            torch.full((valid.B, valid.T), 2**62), torch.zeros(1, 1).expand(3, 10**6), [rows],
        ]  # fmt: skip
        made[name] = hostile[int(draw.integers(0, len(hostile)))]
    if draw.random() < 0.3:
        del made[str(draw.choice(list(made)))]
    return torch_bytes(made)


def wrong_records(draw: np.random.Generator) -> bytes:
    """JSONL whose values are of another kind or length than they should be."""
    records = valid.prime_records(0) if draw.random() < 0.5 else valid.nemo_records()
    for _ in range(int(draw.integers(1, 4))):
        record = records[int(draw.integers(0, len(records)))]
        name = str(draw.choice(list(record)))
        hostile: list[Any] = [
            None, -1, 2**70, 1e400, "x", [], [[]], [[1], [2]], [None], ["a"], {}, [1] * 3, True, [[1] * 9], [2**70],
            float("nan"), [float("nan")] * 8, [[-5]], [1e308] * 8, 2,
        ]  # fmt: skip
        record[name] = hostile[int(draw.integers(0, len(hostile)))]
    return jsonl_bytes(records)


# ── the tests ────────────────────────────────────────────────────────────────────────────────────────────────────────


def opens_or_says(path: Path) -> str:
    """ "opened" after checking the dump, else the sentence."""
    try:
        dumps = open_dump(path)
    except MingceError as error:
        said = error
    else:
        for dump in dumps:
            assert isinstance(dump, Dump)
            assert all(column.dtype.kind in "bif" for column in dump.columns.values())
            assert dump.mask.dtype == bool
        return "opened"
    assert said.exit_code == 2
    assert str(said).strip()
    assert "\n" not in str(said)
    return str(said)


def memory() -> int:
    """The most that this process has held so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def damaged(count: int, folder: Path) -> Iterator[tuple[str, bytes]]:
    draw = np.random.default_rng(count)
    whole = seeds(folder)
    names = list(whole)
    for number in range(count):
        kind = number % 10
        if kind == 8:
            yield "columns.pt", wrong_columns(draw)
        elif kind == 9:
            yield "records.jsonl", wrong_records(draw)
        else:
            name = names[int(draw.integers(0, len(names)))]
            damage = DAMAGES[int(draw.integers(0, len(DAMAGES)))]
            yield name, damage(draw, whole[name])


@pytest.mark.parametrize("count", [300, pytest.param(4200, marks=pytest.mark.slow)])
def test_damaged_dumps(tmp_path: Path, count: int) -> None:
    (tmp_path / "seeds").mkdir()
    for name, data in seeds(tmp_path / "seeds").items():
        (tmp_path / name).write_bytes(data)
        assert opens_or_says(tmp_path / name) == "opened", name
    before = memory()
    outcomes = []
    for number, (name, data) in enumerate(damaged(count, tmp_path / "seeds")):
        path = tmp_path / f"{number}-{name}"
        path.write_bytes(data)
        outcomes.append(opens_or_says(path))
        path.unlink()
    refused = [outcome for outcome in outcomes if outcome != "opened"]
    print(f"{count} damaged dumps: {len(refused)} refused, {count - len(refused)} opened as valid dumps")
    print(f"peak memory grew by {(memory() - before) / MEGABYTE:.0f} MB")
    assert len(refused) > count / 3
    assert memory() - before < 256 * MEGABYTE


def test_malicious_pickle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    path.write_bytes(dict(calls(tmp_path / CANARY))["calls os.system.pkl"])
    with pytest.raises(Refused, match=r"system.*save it again as a plain dict of tensors"):
        open_dump(path)


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside.pt"
    outside.write_bytes(torch_bytes(valid.batch()))
    inside_it = tmp_path / "dumps"
    inside_it.mkdir()
    (inside_it / "link.pt").symlink_to(outside)
    (inside_it / "loop").symlink_to(inside_it)
    with pytest.raises(DataError, match="no dump"):
        open_dump(inside_it)


def test_hostile_mapping(tmp_path: Path) -> None:
    dump = tmp_path / "x.pt"
    dump.write_bytes(torch_bytes(valid.batch()))
    names = tmp_path / "names.yaml"
    laughs = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 60))
    run = f"!!python/object/apply:os.system ['touch {tmp_path / CANARY}']"
    for text in (laughs, run, "columns: [1, 2]", "columns: {1: 2}", "[1", "\x00", "x" * (2 * MEGABYTE), "- a"):
        names.write_text(text)
        with pytest.raises(MingceError):
            open_dump(dump, mapping=names)
    assert not (tmp_path / CANARY).exists()
