"""Pickles and torch files made to do harm, named by what they do."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

from hostile_parts import (
    MEGABYTE,
    array,
    blob,
    call,
    declared,
    dtype,
    named,
    npy,
    number,
    program,
    shared,
    storage,
    tensor,
    text,
    torch_view,
    torch_zip,
    tupled,
    zipped,
)


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
    of_type = "torch._tensor._rebuild_from_type_v2"
    bodies |= {
        "calls by a tensor of a type": call(of_type, b"cos\nsystem\n", b"N", tupled(text("true")), b"N"),
        "a type of a type of itself": call(of_type, f"c{of_type.replace('._re', chr(10) + '_re')}\n".encode(), b"N",
                                           tupled(), b"N"),
        "a nested tensor of nothing": call("torch.nested._internal.nested_tensor._rebuild_njt", b"}"),
        "a nested tensor of texts": call("torch._utils._rebuild_nested_tensor", b"N", shared(), shared(), shared()),
        "appended to an object": b"cverl.x\nL\n)\x81(K\x01K\x02e",
        "a set of sets": b"\x8f(" + b"\x8f(\x90" * 2000 + b"\x90",
    }  # fmt: skip
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
    for label, rows in (
        ("past their end", tensor((2,), (9,), "FloatStorage")),
        ("by the hundred million", tensor((10**8,), (0,), "FloatStorage")),
        ("of a matrix", tensor((2, 2), (2, 1), "LongStorage", 10)),
    ):
        jagged = named(values=tensor((20,), (1,)), offsets=rows, lengths=b"N")
        nested = call("torch.nested._internal.nested_tensor._rebuild_njt", jagged)
        yield f"nested rows {label}.pt", torch_zip(named(response_mask=nested))
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
