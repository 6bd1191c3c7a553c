"""What hostile files are made of: opcodes of pickles, archives, headers."""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

MEGABYTE = 1 << 20
Made = bytes | Callable[[Path], None]


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
