"""Files of npz, safetensors, JSON and Parquet made to do harm, named by what they do."""

from __future__ import annotations

import io
import json
import random
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from hostile_parts import (
    MEGABYTE,
    Made,
    bomb,
    declared,
    npy,
    overlapping,
    program,
    raw_npy,
    safetensors,
    zipped,
)


def npz_files() -> Iterator[tuple[str, bytes]]:
    deflated = zipfile.ZIP_DEFLATED
    texts = npy("'<U1'", f"({15 * MEGABYTE},)", np.full(15 * MEGABYTE, "a", "<U1").tobytes())
    yield "texts of 60 MB in 60 KB.npz", zipped({"uid.npy": texts}, deflated)
    bytes_ = npy("'|u1'", f"(7000, {MEGABYTE // 1024})", bytes(7000 * 1024))
    members = {f"{name}.npy": bytes_ for name in ("response_mask", "token_ids", "values", "kl", "rewards", "scores")}
    yield "uint8 of 42 MB in 40 KB.npz", zipped(members, deflated)
    names = (
        "response_mask",
        "token_ids",
        "attention_mask",
        "old_log_probs",
        "values",
        "kl",
        "rewards",
        "scores",
        "uid",
    )
    large = npy("'|u1'", "(10000, 1100)", bytes(11_000_000))
    yield "nine columns of 99 MB in 100 KB.npz", zipped({f"{name}.npy": large for name in names}, deflated)
    yield "bomb of 200 MB.npz", bomb(200 * MEGABYTE)
    yield "overlapping members.npz", overlapping(npy("'<f8'", "(1000, 1000)", bytes(8_000_000)), 500)
    small = zipped({f"{name}.npy": bytes(MEGABYTE) for name in "abcdef"}, deflated)
    yield "declares 4 GB each.npz", declared(small, 0xFFFFFFF0)
    yield "declares 10 bytes each.npz", declared(small, 10)
    yield "declares packed sizes of 4 GB.npz", declared(small, 10, 0xFFFFFFF0)
    yield "many members.npz", zipped({f"{i}.npy": b"" for i in range(21_000)})
    yield "many columns.npz", zipped({f"c{i}.npy": npy("'<f4'", "(1, 1)", bytes(4)) for i in range(3000)})
    yield "packed by bzip2.npz", zipped({"response_mask.npy": bytes(4 * MEGABYTE)}, zipfile.ZIP_BZIP2)
    yield "packed by lzma.npz", zipped({"response_mask.npy": bytes(MEGABYTE)}, zipfile.ZIP_LZMA)
    inner = zipped({"response_mask.npy": bytes(4 * MEGABYTE)}, deflated)
    yield "archive in an archive.npz", zipped({"a.npz": inner, "response_mask.npy": inner}, deflated)
    for name in ("../../escape.npy", "/etc/escape.npy", "a/../../b.npy", "C:\\x.npy", "..\\x.npy"):
        label = name.replace("/", "|")
        yield f"member {label}.npz", zipped({name: npy("'<f4'", "(1, 1)", bytes(4)), "response_mask.npy": b""})
        yield f"member {label}.pt", zipped({f"{name}/data.pkl": program(b"N")})
    for shape in (
        "(1000000, 1000000)",
        "(-1, 4)",
        "(2**40,)",
        "(1.5, 2)",
        "('a',)",
        "(99999999999999999999,)",
        "None",
        "4",
        "(0, 4611686018427387904)",
        "(" + "1," * 5000 + ")",
        "(True, 16)",
        "((2, 2), 2)",
    ):
        label = shape if len(shape) < 40 else "(1, 1, …)"
        yield f"shape {label}.npz", zipped({"response_mask.npy": npy("'<f4'", shape, bytes(16))})
    for kind in (
        "'|O'",
        "'|V999999999'",
        "[('a', '<f8')]",
        "'<c16'",
        "'<M8[s]'",
        "'|O8'",
        "'<U999999999'",
        "3",
        "'<U0'",
        "'|S4'",
        "'f8,f8'",
        "'>f4'",
        "'<f16'",
        "'<i99'",
        "{'names': ['a'], 'formats': ['|O']}",
        "'<f4' 'x'",
        "b'<f4'",
    ):
        label = kind.replace("/", "|")
        yield f"type {label}.npz", zipped({"response_mask.npy": npy(kind, "(2, 2)", bytes(16))})
    for label, header in (
        ("parentheses", b"(" * 30_000 + b")" * 30_000),
        ("minus signs", b"-" * 60_000 + b"1"),
        ("lists", b"[" * 90 + b"]" * 90),
        ("a number of 60,000 digits", b"9" * 60_000),
        ("a call", b"__import__('os')"),
        ("a sum", b"1" + b"+1j" * 20_000),
        ("nothing", b""),
        ("zero bytes", bytes(64)),
    ):
        yield f"header of {label}.npz", zipped({"response_mask.npy": raw_npy(header)})
        yield f"shape of {label}.npz", zipped({"response_mask.npy": npy("'<f4'", header.decode("latin1"))})
    yield "header of 4 GB.npz", zipped({"response_mask.npy": b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + bytes(64)})
    yield "fortran of garbage.npz", zipped({"response_mask.npy": npy("'<f4'", "(2, 2)", bytes(16), "'x'")})
    yield "zip of nothing.npz", zipped({})
    yield "directory of a zip alone.npz", zipped({"a.npy": b"x"})[-60:]
    yield (
        "directory of 40 MB.npz",
        b"PK\x03\x04" + bytes(64) + b"PK\x05\x06" + struct.pack("<4H2IH", 0, 0, 1, 1, 40 << 20, 4, 0),
    )
    encrypted = bytearray(small)
    encrypted[6] |= 1
    yield "encrypted.npz", bytes(encrypted)


def safetensors_files() -> Iterator[tuple[str, bytes]]:
    names = ("response_mask", "token_ids", "attention_mask", "old_log_probs", "values", "kl", "rewards", "scores")
    whole = {"dtype": "U8", "shape": [1000, 1000], "data_offsets": [0, 1_000_000]}
    yield "overlapping tensors.safetensors", safetensors(dict.fromkeys(names, whole), bytes(1_000_000))
    many = {f"c{i}": whole for i in range(900)} | {"response_mask": whole}
    yield "900 tensors over the same bytes.safetensors", safetensors(many, bytes(1_000_000))
    near = {
        "response_mask": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]},
        "values": {"dtype": "U8", "shape": [8], "data_offsets": [7, 15]},
    }
    yield "overlap of one byte.safetensors", safetensors(near, bytes(15))
    entries: list[Any] = [
        {"dtype": "F32", "shape": [10**9, 10**9], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0, 2**62]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]},
        {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]},
        {"dtype": "F32", "shape": ["a"], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0.0, 4.0]},
        {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]},
        {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": {}, "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0]},
        {"dtype": "F32", "shape": [1] * 5000, "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [0, 2**62], "data_offsets": [0, 0]},
        {"dtype": "F32", "shape": [10**400], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0, 10**4000]},
        {"dtype": None},
        None,
        [],
        "F32",
        7,
    ]
    for entry in entries:
        yield f"entry {str(entry)[:90]}.safetensors", safetensors({"response_mask": entry}, bytes(4))
    for length in (2**62, 2**63, 2**64 - 1, 0, 3, 200 << 20):
        yield f"header of {length} bytes.safetensors", safetensors(b'{"a":1}', b"", length)
    yield "deep header.safetensors", safetensors(b'{"a":' + b"[" * 100_000)
    yield "header of digits.safetensors", safetensors(b'{"a":' + b"9" * 100_000 + b"}")
    yield "header that is a list.safetensors", safetensors(b'{"a":1}'.replace(b"{", b"[").replace(b"}", b"]"))
    yield "header with a name twice.safetensors", safetensors(b'{"a":{},"a":{},"response_mask":{}}')
    yield (
        "header of 200,000 tensors.safetensors",
        safetensors({f"c{i}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for i in range(200_000)}),
    )
    yield "header of 15 MB of lists.safetensors", safetensors(b'{"a":[' + b"[]," * 5_000_000 + b"[]]}")
    yield "metadata that is a number.safetensors", safetensors({"__metadata__": 3, "response_mask": {}})


def json_files() -> Iterator[tuple[str, Made]]:
    yield (
        "20,000 lines with a new key each.jsonl",
        b"".join(b'{"response_mask":[1],"k%d":1}\n' % i for i in range(20_000)),
    )
    yield (
        "900 keys on 100,000 lines.jsonl",
        (json.dumps({f"k{i}": 1 for i in range(900)}).encode() + b"\n" + b'{"response_mask":[1]}\n' * 100_000),
    )
    yield "100,000 keys on a line.jsonl", json.dumps({f"k{i}": 1 for i in range(100_000)}).encode() + b"\n"
    yield (
        "one long row and many short.jsonl",
        b'{"response_mask":[1]}\n' * 30_000 + (b'{"response_mask":[' + b"1," * 100_000 + b"1]}\n"),
    )
    yield "one long row in ten columns.jsonl", ragged()
    yield "a line of 500 MB.jsonl", line_of(500 * MEGABYTE)
    yield "30 MB of empty lists.jsonl", b'{"response_mask":[' + b"[]," * (8 * MEGABYTE) + b"[]]}\n"
    yield "ten million empty lines.jsonl", b'{"a":1}\n' + b"\n" * 10_000_000
    for label, value in (
        ("deep lists", b"[" * 200_000),
        ("deep objects", b'{"a":' * 200_000),
        ("deep closed", b"[" * 900 + b"]" * 900),
        ("an integer of 100,000 digits", b"[" + b"9" * 100_000 + b"]"),
        ("an integer of 4,000 digits", b"[" + b"9" * 4000 + b"]"),
        ("1e999", b"[1e999]"),
        ("NaN", b"[NaN,Infinity,-Infinity]"),
        ("a float of 100,000 digits", b"[0." + b"1" * 100_000 + b"]"),
        ("invalid UTF-8", b'"\xff\xfe\xfa"'),
        ("a lone surrogate", b'["\\ud800"]'),
        ("half a surrogate", b'"\\ud8'),
        ("nothing", b""),
        ("a text", b'"x"'),
        ("null", b"null"),
        ("an object", b"{}"),
        ("negative numbers", b"[-1,-2]"),
        ("two thirds", b"[0.5]"),
        ("2^63", b"[9223372036854775808]"),
        ("mixed", b'[1,"a",null,[2]]'),
        ("control bytes", b'"\x1b[2J"'),
    ):
        yield f"mask of {label}.jsonl", b'{"response_mask": ' + value + b"}\n"
        yield f"row of {label}.jsonl", b'{"response_mask": [1], "gamma": ' + value + b', "uid": ' + value + b"}\n"
    yield "a key twice.jsonl", b'{"response_mask":[1],"response_mask":[[2]]}\n'
    yield "escapes in a key.jsonl", b'{"response_mask":[5],"\\u001b[2J\\u001b]0;x\\u0007":[1]}\n'
    yield (
        "escapes in a version.jsonl",
        b'{"schema_version":"\\u001b[2J","token_ids":[1],"loss_mask":[1],"advantages":[1]}\n',
    )
    yield "UTF-16.jsonl", '{"response_mask":[1]}\n'.encode("utf-16")
    yield "UTF-32.jsonl", '{"response_mask":[1]}\n'.encode("utf-32-le")
    yield "byte order mark alone.jsonl", b"\xef\xbb\xbf{"
    yield (
        "ragged nonsense.jsonl",
        b"".join(
            json.dumps({"response_mask": [1] * (i % 7), "values": [0.5] * (i % 5), "uid": [i]}).encode() + b"\n"
            for i in range(50)
        ),
    )
    node = {"token_ids": [1, 2], "mask": [False, True], "logprobs": [-0.1]}
    wide = {"token_ids": [1] * 20_000, "mask": [True] * 20_000, "logprobs": [-0.1] * 20_000}
    for label, nodes in (
        ("parents in a circle", [node | {"parent": 1}, node | {"parent": 0}]),
        ("a parent of itself", [node | {"parent": 0}]),
        ("parents far away", [node | {"parent": 2**70}, node | {"parent": -1}, node | {"parent": "x"}]),
        ("no nodes but numbers", [1, 2]),
        ("a short mask", [node | {"mask": [True]}]),
        ("texts for numbers", [node | {"logprobs": ["x"], "token_ids": ["a", None]}]),
        ("too many numbers", [node | {"logprobs": [0.1] * 1000, "advantages": {"a": 1}}]),
        ("a long trunk and 3,000 branches", [wide, *[node | {"parent": 0}] * 3000]),
        ("a path of 90,000", [node | {"parent": at - 1} for at in range(90_000)]),
    ):
        episode = {"task": {}, "rewards": {"a": 1}, "info": [], "run": 7, "traces": [{"id": 1, "nodes": nodes}]}
        yield f"traces of {label}.jsonl", json.dumps(episode).encode() + b"\n"
        yield f"nodes of {label}.jsonl", json.dumps({"task": {}, "nodes": nodes}).encode() + b"\n"
    yield "lists in lists.json", b"[" * 100_000 + b"]" * 100_000
    yield "dicts in dicts.json", b'{"data":' * 900 + b'{"response_mask":[[1]]}' + b"}" * 900
    yield "a list of odd records.json", b'[{"response_mask":[1]},{"response_mask":[[1]]},{"mask":null},7]'
    yield "a list of batches that do not fit.json", b'[{"mask":[[1]]},{"mask":[[1,0]],"values":[[1]]},{"mask":[]}]'
    yield "near names by the thousand.json", json.dumps({f"response{'_' * i}Mask": [[1]] for i in range(900)}).encode()
    yield "near names with escapes.json", b'{"resp\\u001b[2J_mask":[[1]],"old\\u0007LogProbs":[[1]]}'
    yield "a list.jsonl", b"[1, 2]\n"
    yield "prose after an object.jsonl", b'{"response_mask":[1]}\nonce upon a time\n'
    yield "zero bytes.jsonl", b"{" + bytes(100_000)
    yield (
        "settings in a text that is deep.jsonl",
        (json.dumps({"response_mask": [1], "settings": "[" * 100_000}).encode() + b"\n"),
    )


def ragged() -> bytes:
    names = (
        "response_mask",
        "values",
        "kl",
        "rewards",
        "scores",
        "entropy",
        "returns",
        "advantages",
        "deltas",
        "ratio",
    )
    short = json.dumps({name: [1] for name in names}).encode() + b"\n"
    return short * 1000 + json.dumps({name: [1] * 60_000 for name in names}).encode() + b"\n"


def line_of(size: int) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with path.open("wb") as file:
            file.write(b'{"response_mask": "')
            for _ in range(size // MEGABYTE):
                file.write(b"a" * MEGABYTE)

    return write


def parquet_files() -> Iterator[tuple[str, Made]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def written(table: Any, **options: Any) -> bytes:
        buffer = io.BytesIO()
        pq.write_table(table, buffer, **options)
        return buffer.getvalue()

    def lists(rows: int, width: int) -> Any:
        return pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(rows * width, np.int64)), width)

    plain = written(pa.table({"response_mask": [[1, 1], [1, 0]], "values": [[0.5, 1.0], [2.0, 0.0]]}))
    equal = {
        name: lists(100, 40_000) for name in ("response_mask", "values", "kl", "rewards", "scores", "ratio", "deltas")
    }
    yield "runs of equal numbers.parquet", written(pa.table(equal), compression="zstd")
    many = {f"c{i}": lists(100, 10_000) for i in range(60)}
    yield "60 columns of a million equal numbers.parquet", written(pa.table(many), compression="zstd")
    word = pa.DictionaryArray.from_arrays(pa.array(np.zeros(300_000, np.int32)), pa.array(["x" * 100_000]))
    yield "one long text 300,000 times.parquet", written(pa.table({"uid": word}), compression="zstd")
    yield "a million rows of nothing.parquet", written(pa.table({"response_mask": pa.nulls(1_000_001)}))
    yield "3,000 columns.parquet", written(pa.table({f"c{i}": [1] for i in range(3000)}))
    yield "no columns.parquet", written(pa.table({}))
    for depth in (20, 90):
        kind: Any = pa.int64()
        for _ in range(depth):
            kind = pa.list_(kind)
        yield f"lists {depth} deep.parquet", written(pa.table({"response_mask": pa.array([None], kind)}))
    for label, values in (
        ("texts", ["a"]),
        ("dates", pa.array([0], pa.timestamp("ns"))),
        ("decimals", pa.array([1], pa.decimal128(9, 2))),
        ("structs", [{"a": 1}]),
        ("maps", pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))),
        ("nulls", [None]),
        ("bytes", [b"\xff"]),
        ("lists of texts", [["a"]]),
        ("empty lists", [[]]),
        ("lists of lists", [[[1]]]),
    ):
        yield f"mask of {label}.parquet", written(pa.table({"response_mask": values}))
    schema = pa.schema(
        [pa.field("response_mask", pa.list_(pa.int64()))], metadata={"mingce.format": "1", "mingce.step": "1"}
    )
    for width in ("9" * 5000, str(10**9), "-1", "100000000"):
        about = schema.with_metadata({"mingce.format": "1", "mingce.step": "1", "mingce.width": width})
        yield (
            f"ledger of width {width[:12]}.parquet",
            written(pa.table({"token_ids": [[1]], "response_mask": [[1]]}).replace_schema_metadata(about.metadata)),
        )
    yield "nothing.parquet", b"PAR1" + bytes(8) + b"PAR1"
    yield "footer of 2 GB.parquet", b"PAR1" + bytes(64) + struct.pack("<I", 0x7FFFFFF0) + b"PAR1"
    for depth in (100, 5000, 100_000):  # thrift: a struct in a struct in …
        yield f"footer {depth} deep.parquet", b"PAR1" + b"\x1c" * depth + struct.pack("<I", depth) + b"PAR1"
        yield (
            f"footer of lists {depth} deep.parquet",
            b"PAR1" + b"\x19\x19" * depth + struct.pack("<I", 2 * depth) + b"PAR1",
        )
    draw = random.Random(7)
    footer = int.from_bytes(plain[-8:-4], "little")
    for i in range(40):
        damaged = bytearray(plain)
        for _ in range(draw.randint(1, 4)):
            damaged[draw.randrange(len(plain) - 8 - footer, len(plain) - 8)] = draw.choice(
                (0, 0x7F, 0x80, 0xFF, 0x15, 0x1C)
            )
        yield f"damaged footer {i}.parquet", bytes(damaged)
