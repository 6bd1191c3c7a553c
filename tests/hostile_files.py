"""Files made to do harm, over all formats, named by what they do; and a program that opens them and measures.

`python hostile_files.py FOLDER NAME…` writes each file, opens it through `open_dump` and prints a line of JSON a file:
what it said, the CPU seconds it took and the largest memory of any process so far.
"""

from __future__ import annotations

import io
import json
import os
import random
import resource
import struct
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

MEGABYTE = 1 << 20
Made = bytes | Callable[[Path], None]

# ── the parts that pickles are made of ───────────────────────────────────────────────────────────────────────────────


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def blob(value: bytes) -> bytes:
    return b"B" + struct.pack("<I", len(value)) + value


def number(n: int) -> bytes:
    return b"\x8a\x08" + struct.pack("<q", n)


def tupled(*parts: bytes) -> bytes:
    return b"(" + b"".join(parts) + b"t"


def call(name: str, *args: bytes) -> bytes:
    module, _, attribute = name.rpartition(".")
    return f"c{module}\n{attribute}\n".encode() + tupled(*args) + b"R"


def named(**entries: bytes) -> bytes:
    return b"}(" + b"".join(text(key) + value for key, value in entries.items()) + b"u"


def program(body: bytes) -> bytes:
    return b"\x80\x02" + body + b"."


def shared(depth: int = 40, wide: int = 2) -> bytes:
    """A tuple of 2 ** depth leaves in a few bytes: each level refers to the one below twice."""
    made = b")q\x00"
    for level in range(1, depth):
        made += b"0" + b"(" + b"h%c" % (level - 1) * wide + b"tq%c" % level
    return made


def storage(kind: str = "FloatStorage", size: int = 20, key: str = "0") -> bytes:
    return tupled(text("storage"), f"ctorch\n{kind}\n".encode(), text(key), text("cpu"), number(size)) + b"Q"


def tensor(shape: tuple[int, ...], strides: tuple[int, ...], kind: str = "FloatStorage", size: int = 20) -> bytes:
    sizes, steps = (tupled(*map(number, part)) for part in (shape, strides))
    return call("torch._utils._rebuild_tensor_v2", storage(kind, size), number(0), sizes, steps, b"\x89", b"N")


def dtype(code: str) -> bytes:
    return call("numpy.dtype", text(code))


def array(shape: bytes, kind: bytes, data: bytes, fortran: bytes = b"\x89") -> bytes:
    return call("numpy._core.multiarray._reconstruct") + tupled(b"K\x01", shape, kind, fortran, data) + b"b"


# ── archives and headers ─────────────────────────────────────────────────────────────────────────────────────────────


def zipped(members: dict[str, bytes], how: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", how, compresslevel=9 if how else None) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, compress_type=how)
    return buffer.getvalue()


def torch_zip(body: bytes, data: bytes = bytes(80), **others: bytes) -> bytes:
    members = {"archive/data.pkl": program(body), "archive/data/0": data, "archive/byteorder": b"little"}
    return zipped(members | {f"archive/{name}": content for name, content in others.items()})


def torch_view(shape: tuple[int, ...], strides: tuple[int, ...] = (1, 1, 1)) -> bytes:
    """A torch archive whose one tensor declares a shape that its twenty stored numbers do not have."""
    return torch_zip(named(response_mask=tensor(shape, strides[: len(shape)])))


def declared(data: bytes, size: int, packed: int | None = None) -> bytes:
    """The archive with every declared size replaced, in local headers and in the directory."""
    damaged = bytearray(data)
    for sign, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = data.find(sign)
        while at >= 0:
            damaged[at + offset : at + offset + 4] = struct.pack("<I", size)
            if packed is not None:
                damaged[at + offset - 4 : at + offset] = struct.pack("<I", packed)
            at = data.find(sign, at + 1)
    return bytes(damaged)


def overlapping(content: bytes, count: int) -> bytes:
    """A zip whose directory lists the same packed bytes under many names."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a0000.npy", content)
        first = archive.infolist()[0]
        for i in range(1, count):
            copy = zipfile.ZipInfo(f"a{i:04}.npy")
            for field in ("compress_type", "CRC", "compress_size", "file_size", "header_offset", "flag_bits"):
                setattr(copy, field, getattr(first, field))
            archive.filelist.append(copy)
            archive.NameToInfo[copy.filename] = copy
    return buffer.getvalue()


def npy(descr: str, shape: str, body: bytes = b"", fortran: str = "False", version: int = 1) -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}".encode()
    return raw_npy(header, body, version)


def raw_npy(header: bytes, body: bytes = b"", version: int = 1) -> bytes:
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(header)) + header + body


def safetensors(header: Any, body: bytes = b"", length: int | None = None) -> bytes:
    head = json.dumps(header).encode() if not isinstance(header, bytes) else header
    return struct.pack("<Q", len(head) if length is None else length) + head + body


# ── the files ────────────────────────────────────────────────────────────────────────────────────────────────────────


def calls(canary: Path) -> Iterator[tuple[str, bytes]]:
    """Pickles that would create the canary if anything of them ran."""
    touch, code = f"touch {canary}", f"open({str(canary)!r}, 'w')"
    wanted = {
        "posix.system": text(touch),
        "os.system": text(touch),
        "os.popen": text(touch),
        "builtins.exec": text(code),
        "builtins.eval": text(code),
        "subprocess.Popen": b"](" + text("touch") + text(str(canary)) + b"e",
        "subprocess.call": b"](" + text("touch") + text(str(canary)) + b"e",
        "builtins.open": text(str(canary)),
        "pathlib.Path": text(str(canary)),
        "torch.load": text(str(canary)),
        "torch.hub.load": text("a"),
        "builtins.getattr": text("a"),
        "builtins.__import__": text("os"),
        "importlib.import_module": text("os"),
        "runpy.run_path": text(str(canary)),
        "numpy.testing._private.utils.runstring": text(code),
        "numpy.f2py.crackfortran.getlincoef": text(code),
        "code.InteractiveInterpreter": b"N",
        "torch._dynamo.guards.exec": text(code),
        "torch.utils.cpp_extension.load_inline": text(code),
        "pickle.loads": blob(b"cos\nsystem\n."),
        "marshal.loads": blob(b"c"),
        "operator.attrgetter": text("system"),
        "functools.partial": b"cos\nsystem\n",
        "pip.main": text("install"),
        "webbrowser.open": text("file:///"),
        "ctypes.CDLL": text("libc.so.6"),
        "asyncio.run": b"N",
        "timeit.timeit": text(code),
        "pdb.run": text(code),
        "torch.storage._load_from_bytes": blob(program(call("os.system", text(touch)))),
    }
    for name, arg in wanted.items():
        yield f"calls {name}.pkl", program(call(name, arg))
    system = call("os.system", text(touch))
    yield "calls inside a dict.pkl", program(named(response_mask=system))
    yield "calls inside a torch archive.pt", torch_zip(named(response_mask=system))
    yield "calls by inst.pkl", b"\x80\x02(S'" + touch.encode() + b"'\nios\nsystem\n."
    yield "calls by obj.pkl", b"\x80\x02(cos\nsystem\n" + text(touch) + b"o."
    yield "calls by newobj.pkl", b"\x80\x02csubprocess\nPopen\n" + tupled(text(touch)) + b"\x81."
    yield "calls by build.pkl", b"\x80\x02ccollections\nOrderedDict\n)R}(X\x0a\x00\x00\x00__reduce__cos\nsystem\nub."
    yield "calls by extension.pkl", b"\x80\x02\x82\x01."
    yield "calls by persistent id.pkl", program(tupled(system) + b"Q")
    yield "calls in an object array.npz", zipped({"response_mask.npy": npy("'|O'", "(1,)", program(system))})


def pickle_bombs() -> Iterator[tuple[str, bytes]]:
    places = {
        "numpy.dtype": call("numpy.dtype", shared()),
        "torch.device": call("torch.device", shared()),
        "codecs text": call("_codecs.encode", shared()),
        "codecs coding": call("_codecs.encode", text("a"), shared()),
        "torch.Size": call("torch.Size", shared()),
        "OrderedDict": call("collections.OrderedDict", shared()),
        "scalar": call("numpy._core.multiarray.scalar", shared(), shared()),
        "array shape": array(shared(), dtype("f8"), blob(b"")),
        "array type": array(tupled(b"K\x01"), shared(), blob(b"")),
        "array order": call("numpy._core.numeric._frombuffer", blob(bytes(8)), dtype("f8"), tupled(b"K\x01"), shared()),
        "type order": dtype("f8") + tupled(b"K\x03", shared()) + b"b",
        "tensor shape": call("torch._utils._rebuild_tensor_v2", b"N", b"K\x00", shared(), shared()),
        "tensordict": call("tensordict._reductions._make_td", shared(), shared()),
        "consolidated": call("tensordict._reductions._rebuild_tensordict_files_consolidated", shared(), shared()),
        "a key": b"}" + shared() + b"Ns",
        "a column": named(response_mask=shared()),
        "settings": named(response_mask=b"]", settings=named(gamma=shared(), eos_id=shared())),
        "a version": named(schema_version=b"](" + shared() + b"e", token_ids=b"]", loss_mask=b"]", advantages=b"]"),
        "rows": named(response_mask=b"](](K\x01ee", uid=b"](" + shared() + b"e", group=b"](" + shared() + b"e"),
        "settings alike": named(response_mask=b"](](K\x01ee", settings=b"](" + shared(20) + shared(20) + b"e"),
        "a status": named(samples=b"](" + named(tokens=b"](K\x01e", response_length=b"K\x01", status=shared()) + b"e"),
        "a record": b"cverl.protocol\nDataProto\n" + tupled(shared()) + b"\x81" + shared() + b"b",
        "a record of three": b"cverl.protocol\nDataProto\n)\x81" + tupled(shared(), shared(), shared()) + b"b",
        "a persistent id": shared() + b"Q",
    }
    for name, body in places.items():
        yield f"shared tuple as {name}.pkl", program(body)
        if name in ("numpy.dtype", "torch.device", "codecs coding", "a persistent id", "a column"):
            yield f"shared tuple as {name}.pt", torch_zip(body)
    yield (
        "shared storage key.pt",
        torch_zip(tupled(text("storage"), b"ctorch\nFloatStorage\n", shared(), text("cpu"), b"K\x14") + b"Q"),
    )
    yield "nested storages.pkl", program(named(response_mask=call("torch.storage._load_from_bytes", blob(nested(14)))))
    once = blob(legacy(b"]")) + b"q\x01"
    again = b"".join(call("torch.storage._load_from_bytes", b"h\x01") + b"0" for _ in range(20_000))
    yield "one storage loaded 20,000 times.pkl", program(once + b"0" + again + b"N")
    yield "one array as 5,000 columns of int64.pkl", program(many_arrays(5000, 200_000))
    row = b"](" + b"K\x01" * 10_000 + b"eq\x01"
    yield "one row 100,000 times.pkl", program(named(response_mask=b"](" + row + b"h\x01" * 100_000 + b"e"))
    yield "laughs.pkl", b"\x80\x02]" + b"".join(b"q%c(h%ch%ch%ct" % ((i,) * 4) for i in range(60)) + b"."


def legacy(body: bytes, keys: bytes = b"]") -> bytes:
    """What torch.save wrote before 1.6."""
    magic = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
    machine = program(named(protocol_version=b"M\xe9\x03", little_endian=b"\x88", type_sizes=b"}"))
    return magic + program(b"M\xe9\x03") + machine + program(body) + program(keys)


def nested(depth: int) -> bytes:
    """Storages in storages, each level read several times by a reader that does not count."""
    made = legacy(b"]")
    again = call("torch.storage._load_from_bytes", b"h\x01")
    for _ in range(depth):
        made = legacy(blob(made) + b"q\x010" + tupled(again, again, again, again))
    return made


def many_arrays(count: int, size: int) -> bytes:
    data = blob(bytes(size)) + b"q\x01" + dtype("i1") + b"q\x0200"
    one = array(tupled(number(size)), b"h\x02", b"h\x01")
    return data + b"](" + one * count + b"e"


def odd_pickles() -> Iterator[tuple[str, bytes]]:
    deep = 200_000
    bodies = {
        "recursive list": b"]q\x00h\x00a",
        "recursive dict": b"}q\x00" + text("response_mask") + b"h\x00s",
        "recursive mask": named(response_mask=b"]q\x00h\x00a"),
        "deep lists": b"]" * deep + b"a" * (deep - 1),
        "deep tuples": b")" + b"\x85" * deep,
        "deep dicts": b"}" + b"".join(text("a") + b"}" for _ in range(deep // 8)) + b"s" * (deep // 8),
        "deep mask": named(response_mask=b"]" * 5000 + b"a" * 4999),
        "reduce chain": b"".join(b"ccollections\nOrderedDict\n" for _ in range(50_000)) + b")R" + b"\x85R" * 49_999,
        "a call of a number": b"K\x01)R",
        "a call of a text": text("a") + b")R",
        "a call of a value": b"cnumpy\nndarray\n)R",
        "an empty stack": b"000",
        "a mark without an end": b"((((",
        "too many marks": b"(" * 100_000 + b"t",
        "memo that is not there": b"h\x07",
        "memo far away": b"Nr\xff\xff\xff\x7f",
        "a memo of many": b"N\x94" * 300_000,
        "a frame that lies": b"\x95" + struct.pack("<Q", 2**62) + b"N",
        "a short frame": b"\x95" + bytes(8) + b"N",
        "bytes of 2^62": b"\x8e" + struct.pack("<Q", 2**62) + b"a",
        "bytes of 4 GB": b"B\xff\xff\xff\xffa",
        "bytearray of 2^40": b"\x96" + struct.pack("<Q", 2**40) + b"a",
        "text of 2^63": b"\x8d" + b"\xff" * 8 + b"a",
        "text of 4 GB": b"X\xff\xff\xff\xffa",
        "text that is not UTF-8": b"X\x02\x00\x00\x00\xff\xfe",
        "a number of 100,000 bytes": b"\x8b" + struct.pack("<i", 100_000) + b"\x7f" * 100_000,
        "a huge setting": named(response_mask=b"](](K\x01ee", gamma=b"\x8b" + struct.pack("<i", 9000) + b"\x7f" * 9000),
        "a huge row name": named(
            response_mask=b"](](K\x01ee", uid=b"](\x8b" + struct.pack("<i", 9000) + b"\x7f" * 9000 + b"e"
        ),
        "a number of negative size": b"\x8b\xff\xff\xff\xff",
        "a buffer from outside": b"\x97\x98",
        "garbage persistent id": text("storage") + b"Q",
        "a persistent number": b"K\x01Q",
        "datetime64": named(response_mask=array(tupled(b"K\x01"), dtype("M8"), blob(bytes(8)))),
        "void of 2 GB": named(response_mask=array(tupled(b"K\x01"), dtype("V2000000000"), blob(bytes(8)))),
        "text type of 2 GB": named(response_mask=array(tupled(b"K\x01"), dtype("U500000000"), blob(bytes(8)))),
        "a type with digits of no number": array(tupled(b"K\x01"), dtype("f\u00b2"), blob(bytes(8))),
        "structured type": named(response_mask=array(tupled(b"K\x01"), dtype("f8,f8"), blob(bytes(16)))),
        "object array that lies": named(response_mask=array(tupled(number(2**26)), dtype("O8"), b"]")),
        "array of 2^62 rows": named(response_mask=array(tupled(number(2**62), b"K\x04"), dtype("f8"), blob(b"a"))),
        "array of 0 × 2^62": named(response_mask=array(tupled(b"K\x00", number(2**62)), dtype("f8"), blob(b""))),
        "array of 5,000 dimensions": named(
            response_mask=array(tupled(*[b"K\x01"] * 5000), dtype("f8"), blob(bytes(8)))
        ),
        "fortran of a text": named(
            response_mask=array(tupled(b"K\x02", b"K\x02"), dtype("f8"), blob(bytes(32)), text("x"))
        ),
        "negative array": named(response_mask=array(tupled(number(-4)), dtype("f8"), blob(bytes(32)))),
        "big-endian array": named(response_mask=array(tupled(b"K\x01"), dtype(">f8"), blob(bytes(8)))),
        "scalar without bytes": call("numpy._core.multiarray.scalar", dtype("f8"), blob(b"")),
        "ten thousand keys": b"}(" + b"".join(text(f"k{i}") + b"]" for i in range(10_000)) + b"u",
        "a name in another": b"ctorch\n_utils._rebuild_tensor_v2\n)R",
        "a name with dots": b"cnumpy\ncore.os.system\n)R",
        "nothing": b"",
        "only a stop": b"N",
        "the magic number alone": b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19",
    }
    for name, body in bodies.items():
        yield f"{name}.pkl", b"\x80\x05" + body + b"."
    yield "protocol 9.pkl", b"\x80\x09N."
    yield "no end.pkl", b"\x80\x02" + b"]" * 1000
    yield "old torch without storages.pt", legacy(named(response_mask=storage()))
    yield "old torch with wrong keys.pt", legacy(named(response_mask=storage()), b"](" + text("1") + b"e")
    yield (
        "old torch cut.pt",
        legacy(named(response_mask=storage()), b"](" + text("0") + b"e") + struct.pack("<Q", 2**60),
    )
    yield "old torch of storages in storages.pt", legacy(call("torch.storage._load_from_bytes", blob(nested(14))))
    yield "tar of torch 0.1.pt", b"sys_info".ljust(100, b"\0") + b"0000644\0" * 3 + bytes(380) + bytes(2048)


def torch_files() -> Iterator[tuple[str, bytes]]:
    names = ("response_mask", "token_ids", "attention_mask", "old_log_probs", "advantages", "values", "returns", "kl")
    wide = {name: tensor((10_000, 13_000), (0, 0), "LongStorage", 10) for name in names}
    yield "stride 0 in eight columns.pt", torch_zip(named(**wide))
    wide = {name: tensor((8_000, 16_000), (0, 0)) for name in (*names, "rewards", "scores", "entropy", "ref_log_probs")}
    yield "stride 0 in twelve float columns.pt", torch_zip(named(**wide))
    rows = b"](" + tensor((5_000_000,), (0,), "CharStorage", 80) * 500 + b"e"
    yield "stride 0 in a list of rows.pt", torch_zip(named(response_mask=rows))
    proto = named(responses=tensor((10_000, 13_000), (0, 1), "IntStorage", 20), prompts=tensor((10_000, 2), (0, 1)))
    yield "stride 0 in a DataProto.pt", torch_zip(named(batch=proto, meta_info=b"}"))
    for label, shape, strides in (
        ("view of 10^12 cells", (10**4, 10**4, 10**4), (1, 1, 1)),
        ("view past its end", (3, 7), (7, 1)),
        ("view expanded to 10^12", (10**6, 10**6), (0, 0)),
        ("view backwards", (2, 2), (-2, 1)),
        ("view of huge strides", (2, 2), (2**62, 1)),
        ("view of 40 dimensions", (1,) * 40, (1,) * 40),
        ("view with too few strides", (2, 2), (1,)),
        ("view of 0 × 2^62", (0, 2**62), (1, 1)),
    ):
        yield f"{label}.pt", torch_zip(named(response_mask=tensor(shape, strides)))
    yield (
        "offset beyond.pt",
        torch_zip(
            named(response_mask=call("torch._utils._rebuild_tensor_v2", storage(), number(2**62), tupled(), tupled()))
        ),
    )
    yield "storage of the wrong size.pt", torch_zip(named(response_mask=tensor((2, 2), (2, 1), size=2**40)))
    yield "storage of no known type.pt", torch_zip(named(response_mask=tensor((2, 2), (2, 1), "QInt8Storage")))
    yield "storage that is missing.pt", torch_zip(named(response_mask=storage(key="7")))
    yield "storage outside.pt", torch_zip(named(response_mask=storage(key="../../../../etc/passwd")))
    yield "big-endian.pt", torch_zip(b"}", byteorder=b"big")
    yield "two programs.pt", zipped({"a/data.pkl": program(b"}"), "b/data.pkl": program(b"N")})
    yield "program of nothing.pt", zipped({"archive/data.pkl": b""})
    yield "declared sizes wrong.pt", declared(torch_view((4, 5), (5, 1)), 2**31)
    yield (
        "torchscript.pt",
        zipped({"m/data.pkl": program(b"c__torch__\nNet\n)\x81."), "m/code/__torch__.py": b"import os"}),
    )
    bomb = zipped({"archive/data.pkl": program(text("a" * 60 * MEGABYTE))}, zipfile.ZIP_DEFLATED)
    yield "program of 60 MB in 60 KB.pt", bomb
    ints = program(named(response_mask=b"](](" + b"K\x01" * 15_000_000 + b"ee"))
    yield "program of 15 million numbers in 30 KB.pt", zipped({"archive/data.pkl": ints}, zipfile.ZIP_DEFLATED)


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


def bomb(size: int) -> bytes:
    """A zip with one member that unpacks to `size` zeros."""
    packer, packed, zeros, check = zlib.compressobj(9, zlib.DEFLATED, -15), [], bytes(MEGABYTE), 0
    for _ in range(size // MEGABYTE):
        packed.append(packer.compress(zeros))
        check = zlib.crc32(zeros, check)
    data = b"".join([*packed, packer.flush()])
    name = b"response_mask.npy"
    local = b"PK\x03\x04" + struct.pack("<5H3I2H", 20, 0, 8, 0, 0, check, len(data), size, len(name), 0) + name
    entry = struct.pack("<6H3I5H2I", 20, 20, 0, 8, 0, 0, check, len(data), size, len(name), 0, 0, 0, 0, 0, 0)
    directory = b"PK\x01\x02" + entry + name
    at = len(local) + len(data)
    return local + data + directory + b"PK\x05\x06" + struct.pack("<4H2IH", 0, 0, 1, 1, len(directory), at, 0)


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


def places() -> Iterator[tuple[str, Made]]:
    """What is no ordinary file."""

    def fifo(path: Path) -> None:
        os.mkfifo(path)

    def link(target: str) -> Callable[[Path], None]:
        return lambda path: path.symlink_to(target)

    def sparse(size: int, head: bytes = b"") -> Callable[[Path], None]:
        def write(path: Path) -> None:
            path.write_bytes(head)
            os.truncate(path, size)

        return write

    def folder(fill: Callable[[Path], None]) -> Callable[[Path], None]:
        def make(path: Path) -> None:
            path.mkdir()
            fill(path)

        return make

    def many(path: Path) -> None:
        for i in range(12_000):
            (path / f"{i}.txt").touch()

    def loop(path: Path) -> None:
        (path / "loop").symlink_to(path)
        (path / "up").symlink_to(path.parent)
        os.mkfifo(path / "pipe.jsonl")

    def deep(path: Path) -> None:
        for _ in range(300):
            path = path / "d"
        path.mkdir(parents=True)

    def run(path: Path) -> None:
        (path / "ledger").mkdir()
        (path / "ledger/step-000001.parquet").write_bytes(b"PAR1")
        os.mkfifo(path / "metrics.jsonl")
        laughs = "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}\n" for i in range(1, 40))
        (path / "config.yaml").write_text(laughs)

    yield "a pipe", fifo
    yield "/dev/zero", link("/dev/zero")
    yield "/dev/tty", link("/dev/tty")
    yield "a link to itself", lambda path: path.symlink_to(path)
    yield "a link to nowhere", link("/nowhere/at/all")
    yield "/proc/self/mem", link("/proc/self/mem")
    yield "/proc/kmsg", link("/proc/kmsg")
    yield "a sparse TB", sparse(1 << 40)
    yield "a sparse 3 GB of JSON", sparse(3 << 30, b'{"response_mask":[1]}\n')
    yield "a sparse 3 GB pickle", sparse(3 << 30, b"\x80\x02]")
    body = 10_000 * 13_000 * 4
    heads = {"response_mask": {"dtype": "F32", "shape": [10_000, 13_000], "data_offsets": [0, body]}}
    yield "sparse tensors", sparse(body + 8 + len(json.dumps(heads)), safetensors(heads))
    yield "12,000 files", folder(many)
    yield "links in a circle", folder(loop)
    yield "300 directories deep", folder(deep)
    yield "a run with a bomb of settings", folder(run)
    yield "an empty directory", folder(lambda path: None)
    yield "an empty file", b""
    yield "random bytes", random.Random(3).randbytes(100_000)
    yield "gzip", zlib.compress(bytes(1000), wbits=31)


def hostile_files(canary: Path) -> dict[str, Made]:
    """Name → the bytes of the file, or what makes it. The same every time."""
    made: dict[str, Made] = {}
    parts = (
        calls(canary),
        pickle_bombs(),
        odd_pickles(),
        torch_files(),
        npz_files(),
        safetensors_files(),
        json_files(),
        parquet_files(),
        places(),
    )
    for part in parts:
        for name, content in part:
            assert name not in made, name
            made[name] = content
    return made


# ── opening them ─────────────────────────────────────────────────────────────────────────────────────────────────────


def place(folder: Path, name: str, content: Made) -> Path:
    """The file as it is opened; its name is no longer than a file's may be."""
    ending = Path(name).suffix if len(Path(name).suffix) < 13 and "/" not in Path(name).suffix else ""
    path = folder / f"x{ending.replace(' ', '')}"
    if callable(content):
        content(path)
    else:
        path.write_bytes(content)
    return path


def opened(path: Path) -> str:
    """What opening the dump said; "opened" after every column was looked at."""
    from mingce.base.errors import MingceError
    from mingce.importers import open_dump

    try:
        dumps = open_dump(path)
    except MingceError as error:
        return str(error)
    for dump in dumps:
        assert all(column.dtype.kind in "bif" for column in dump.columns.values())
        for column in dump.columns.values():
            column.sum()
    return "opened"


def measure(folder: Path, names: list[str]) -> None:
    from mingce.importers.opening import _READER

    made = hostile_files(folder.parent / "executed")
    scale = 1 if sys.platform == "darwin" else 1024
    for name in names:
        own = Path(folder, "one")
        own.mkdir()
        path = place(own, name, made[name])
        before = time.process_time()
        said = opened(path)
        seconds = _READER.seconds + time.process_time() - before
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
        print(json.dumps({"name": name, "said": said, "seconds": seconds, "memory": most}), flush=True)
        subprocess.run(["rm", "-rf", str(own)], check=True)
    _READER.stop()  # waited for, so that what it and its forks took is counted
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps({"seconds": used.ru_utime + used.ru_stime, "memory": used.ru_maxrss * scale}))


if __name__ == "__main__":
    measure(Path(sys.argv[1]), sys.argv[2:])
