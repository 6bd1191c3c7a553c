"""Damaged and hostile dumps: each opens as a valid dump or ends in one sentence; nothing runs, memory stays bounded."""

from __future__ import annotations

import io
import json
import pickle
import resource
import struct
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import test_importers as valid
import torch
from safetensors.torch import save

from mingce.audit.dump import Dump
from mingce.errors import DataError, MingceError
from mingce.importers import open_dump
from mingce.importers.limits import Refused

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


# ── hostile on purpose ───────────────────────────────────────────────────────────────────────────────────────────────


class Call:
    """Pickles to a call."""

    def __init__(self, function: Any, *args: Any):
        self.call = (function, args)

    def __reduce__(self) -> Any:
        return self.call


def programs(canary: Path) -> dict[str, bytes]:
    """Pickles that would create the canary if anything of them ran."""
    touch = f"touch {canary}"
    code = f"open({str(canary)!r}, 'w')"
    import os
    import subprocess

    found = {
        "system": pickle.dumps(Call(os.system, touch)),
        "system-0": pickle.dumps(Call(os.system, touch), protocol=0),
        "popen": pickle.dumps({"batch": Call(subprocess.Popen, ["touch", str(canary)]), "meta_info": {}}),
        "exec": pickle.dumps([Call(exec, code)], protocol=2),
        "eval": pickle.dumps({"response_mask": Call(eval, code)}),
        "getattr": pickle.dumps(Call(getattr, Call(__import__, "os"), "system")),
        "open": pickle.dumps(Call(open, str(canary), "w")),
        "load": pickle.dumps(Call(torch.load, str(canary))),
        "hub": b"\x80\x02ctorch.hub\nload\n(X\x01\x00\x00\x00atR.",
        "runstring": b"\x80\x02cnumpy.testing._private.utils\nrunstring\n(X\x01\x00\x00\x00aX\x01\x00\x00\x00btR.",
        "inst": b"\x80\x02(S'" + touch.encode() + b"'\nios\nsystem\n.",
        "obj": b"\x80\x02(cos\nsystem\nX" + struct.pack("<I", len(touch)) + touch.encode() + b"o.",
        "ext": b"\x80\x02\x82\x01.",
        "object": b"\x80\x02cbuiltins\nobject\n)R.",
        "newobj": b"\x80\x02csubprocess\nPopen\n)\x81.",
        "build": b"\x80\x02ccollections\nOrderedDict\n)R}(X\x0a\x00\x00\x00__reduce__cos\nsystem\nub.",
        "reduce-a-string": b"\x80\x02X\x01\x00\x00\x00a)R.",
        "memo": b"\x80\x02Nr\xff\xff\xff\x7f.",
        "huge-bytes": b"\x80\x05\x8e" + struct.pack("<Q", 2**62) + b"a.",
        "huge-bytearray": b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b"a.",
        "huge-frame": b"\x80\x05\x95" + struct.pack("<Q", 2**62) + b"N.",
        "laughs": b"\x80\x02]" + b"".join(b"q%c(h%ch%ch%ct" % ((i,) * 4) for i in range(60)) + b".",
        "keys": b"\x80\x02}N" + b"".join(b"q%c\x30(h%ch%ct" % ((i,) * 3) for i in range(90)) + b"Ns.",
        "array": b"\x80\x02cnumpy._core.multiarray\n_reconstruct\n(tR(K\x01(J\xff\xff\xff\x7fJ\xff\xff\xff\x7ft"
        b"cnumpy\ndtype\n(X\x02\x00\x00\x00f8tR\x89X\x01\x00\x00\x00atb.",
    }  # fmt: skip
    size = io.BytesIO()
    with zipfile.ZipFile(size, "w") as archive:  # the same in torch's wrapping
        archive.writestr("archive/data.pkl", found["system"])
        archive.writestr("archive/byteorder", b"little")
    found["torch"] = size.getvalue()
    found["inner"] = pickle.dumps({"batch": valid.batch(), "non_tensor_batch": {"uid": Call(os.system, touch)}})
    return found


def npy(descr: str, shape: str, body: bytes = b"") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body


def zipped(members: dict[str, bytes], how: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", how, compresslevel=9 if how else None) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def declared(data: bytes, size: int) -> bytes:
    """The archive with every declared uncompressed size replaced, in local headers and in the directory."""
    damaged = bytearray(data)
    for sign, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = data.find(sign)
        while at >= 0:
            damaged[at + offset : at + offset + 4] = struct.pack("<I", size)
            at = data.find(sign, at + 1)
    return bytes(damaged)


def safetensors(header: Any, body: bytes = b"", length: int | None = None) -> bytes:
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def hostile(canary: Path) -> Iterator[tuple[str, bytes]]:
    """Files made to do harm."""
    yield from ((f"pickle {name}", data) for name, data in programs(canary).items())
    bomb = npy("'<f8'", "(40000, 10000)") + bytes(64 * MEGABYTE)
    yield "bomb", zipped({"response_mask.npy": bomb[: 64 * MEGABYTE]}, zipfile.ZIP_DEFLATED)
    small = zipped({f"{name}.npy": bytes(MEGABYTE) for name in "abcdef"}, zipfile.ZIP_DEFLATED)
    yield "declared bomb", declared(small, 0xFFFFFFF0)
    yield "declared small", declared(small, 10)
    for name in ("../../escape.npy", "/etc/escape.npy", "a/../../b.npy", "C:\\x.npy", "..\\x.npy"):
        yield f"name {name}", zipped({name: npy("'<f4'", "(1, 1)", bytes(4)), "response_mask.npy": b""})
        yield f"torch name {name}", zipped({f"{name}/data.pkl": b"\x80\x02N."})
    shapes = ("(1000000, 1000000)", "(-1, 4)", "(2**40,)", "(1.5, 2)", "('a',)", "(99999999999999999999,)", "None")
    for shape in shapes:
        yield f"npy {shape}", zipped({"response_mask.npy": npy("'<f4'", shape, bytes(16))})
    for kind in (
        "'|O'",
        "'|V999999999'",
        "[('a', '<f8')]",
        "'<c16'",
        "'<M8[s]'",
        "'|O8'",
        "'<U999999999'",
        "3",
    ):
        yield f"npy {kind}", zipped({"response_mask.npy": npy(kind, "(2, 2)", bytes(16))})
    yield "npy pickle", zipped({"response_mask.npy": npy("'|O'", "(1,)", programs(canary)["system"])})
    yield "npy deep", zipped({"response_mask.npy": npy("(" * 5000 + ")" * 5000, "(1,)")})
    for entry in (
        {"dtype": "F32", "shape": [10**9, 10**9], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0, 2**62]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]},
        {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]},
        {"dtype": "F32", "shape": ["a"], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0.0, 4.0]},
        {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]},
        {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]},
        None,
        [],
    ):
        yield f"safetensors {entry}", safetensors({"response_mask": entry}, bytes(4))
    yield "safetensors header", safetensors({}, b"", 2**62)
    yield "safetensors deep", safetensors(b'{"a":' + b"[" * 100000)
    yield "json deep", b'{"response_mask": ' + b"[" * 200000 + b"\n"
    yield "json digits", b'{"response_mask": [' + b"9" * 100000 + b"]}\n"
    yield "json list", b"[1, 2]\n"
    yield "json wide", jsonl_bytes([{"response_mask": [1]}] * 3000 + [{"response_mask": [1] * 100000}])
    yield "json nothing", b"{}\n"
    yield "view too far", torch_view((10**4, 10**4, 10**4))
    yield "view past its end", torch_view((3, 7), (7, 1))
    yield "view expanded", torch_view((10**6, 10**6), (0, 0))
    yield "view backwards", torch_view((2, 2), (-2, 1))
    yield "empty", b""
    yield "zip of nothing", zipped({})
    yield "parquet of nothing", b"PAR1" + bytes(8) + b"PAR1"
    yield "parquet footer", b"PAR1" + bytes(64) + struct.pack("<I", 0x7FFFFFF0) + b"PAR1"


def torch_view(shape: tuple[int, ...], strides: tuple[int, ...] = (1, 1, 1)) -> bytes:
    """A torch archive whose one tensor declares a shape that its twenty stored numbers do not have."""

    def number(n: int) -> bytes:
        return b"\x8a\x08" + struct.pack("<q", n)

    def text(value: str) -> bytes:
        return b"X" + struct.pack("<I", len(value)) + value.encode()

    storage = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + number(20) + b"tQ"
    sizes, steps = (b"(" + b"".join(map(number, part)) + b"t" for part in (shape, strides[: len(shape)]))
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + number(0) + sizes + steps + b"\x89NtR"
    program = b"\x80\x02}" + text("response_mask") + tensor + b"s."
    return zipped({"archive/data.pkl": program, "archive/data/0": bytes(80), "archive/byteorder": b"little"})


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


@pytest.mark.parametrize("count", [300, pytest.param(2000, marks=pytest.mark.slow)])
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


def test_hostile_dumps(tmp_path: Path) -> None:
    canary = tmp_path / CANARY
    before = memory()
    for name, data in hostile(canary):
        path = tmp_path / "hostile"
        path.write_bytes(data)
        assert opens_or_says(path) != "opened", name
        assert not canary.exists(), name
    assert {path.name for path in tmp_path.iterdir()} == {"hostile"}
    assert not (tmp_path.parent / "escape.npy").exists()
    assert memory() - before < 512 * MEGABYTE


def test_malicious_pickle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    path.write_bytes(programs(tmp_path / CANARY)["system"])
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
