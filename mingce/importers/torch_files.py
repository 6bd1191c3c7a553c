"""What torch.save and pickle wrote, read without torch: the same numbers, no code."""

from __future__ import annotations

import contextlib
import io
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

from mingce.base.errors import DataError
from mingce.importers.limits import (
    ALLOWED,
    MAX_HEADER,
    MAX_MEMBERS,
    MAX_PACKED,
    MAX_RATIO,
    PACKING,
    Refused,
    allow_bytes,
    short,
)
from mingce.importers.numbers import item_size
from mingce.importers.objects import RESAVE, Named, Storage
from mingce.importers.pickles import STORAGES, read_pickle

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C


def open_zip(file: Path | IO[bytes], size: int, where: str) -> zipfile.ZipFile:
    """The archive, its names and declared sizes looked at before anything of it is read."""
    try:
        _allow_directory(file, where)
        archive = zipfile.ZipFile(file)
        members = archive.infolist()
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, EOFError, OverflowError) as error:
        raise DataError(f"{where} is a damaged or cut zip archive ({error}); write it again.") from error
    _allow_members(members, where)
    declared = sum(member.file_size for member in members)
    allow_bytes(where, declared)
    if declared > MAX_PACKED and declared > MAX_RATIO * max(size, 1):
        raise Refused(f"{where} has {size:,} bytes and would unpack to {declared:,}; save it uncompressed.")
    ALLOWED.claim(min(declared, PACKING * size))
    return archive


def _allow_directory(file: Path | IO[bytes], where: str) -> None:
    """Refuse a list of members that would fill the memory before any of them is looked at."""
    with file.open("rb") if isinstance(file, Path) else contextlib.nullcontext(file) as stream:
        stream.seek(max(stream.seek(0, io.SEEK_END) - (1 << 16) - 22, 0))
        tail = stream.read()
    at = tail.rfind(b"PK\x05\x06")
    if at >= 0 and int.from_bytes(tail[at + 12 : at + 16], "little") > MAX_HEADER:
        raise Refused(f"{where} is an archive of too many files; a dump has one for each column.")


def _allow_members(members: list[zipfile.ZipInfo], where: str) -> None:
    """Names that stay inside, methods that numpy and torch write, and no byte that belongs to two members."""
    if len(members) > MAX_MEMBERS:
        raise Refused(f"{where} holds {len(members):,} files, more than {MAX_MEMBERS:,}.")
    end, seen = 0, set()
    for member in sorted(members, key=lambda one: one.header_offset):
        name = member.filename
        parts = name.replace("\\", "/").split("/")
        if ".." in parts or name.startswith(("/", "\\")) or ":" in parts[0]:
            raise Refused(f"{where} holds a file named '{short(name)}', which points outside; write it again.")
        if name in seen or member.header_offset < end:
            raise Refused(f"{where} holds '{short(name)}' twice, or over another file; write it again.")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise Refused(f"{where} is packed in a way that numpy and torch never use; write it again.")
        seen.add(name)
        end = member.header_offset + 30 + len(name) + member.compress_size


def read_member(archive: zipfile.ZipFile, name: str, where: str) -> bytes:
    """One file of the archive, whole."""
    try:
        with archive.open(name) as file:
            data = file.read(archive.getinfo(name).file_size + 1)
    except (zipfile.BadZipFile, KeyError, ValueError, OSError, NotImplementedError, EOFError, RuntimeError) as error:
        raise DataError(f"{where}: '{name[:80]}' cannot be unpacked ({error}); write it again.") from error
    except zlib.error as error:
        raise DataError(f"{where}: '{name[:80]}' is damaged ({error}); write it again.") from error
    if len(data) != archive.getinfo(name).file_size:
        raise DataError(f"{where}: '{name[:80]}' is cut short; write it again.")
    return data


def read_torch_zip(archive: zipfile.ZipFile, where: str) -> Any:
    """The object of a torch.save archive."""
    names = set(archive.namelist())
    program = next(name for name in archive.namelist() if name.endswith("data.pkl"))
    prefix = program.removesuffix("data.pkl")
    if f"{prefix}byteorder" in names and read_member(archive, f"{prefix}byteorder", where) != b"little":
        raise DataError(f"{where} was written on a big-endian machine; {RESAVE}.")
    stored: dict[str, Storage] = {}

    def storage(pid: Any) -> Storage:
        _, kind, key, _place, size = pid[:5]
        dtype = STORAGES[_storage_name(kind)]
        name = f"{prefix}data/{short(key)}"
        if name not in names:
            raise DataError(f"the data of a tensor ({name[:80]}) is missing")
        if type(size) is not int or archive.getinfo(name).file_size != size * item_size(dtype):
            raise DataError(
                f"a tensor declares {short(size)} numbers where {archive.getinfo(name).file_size} bytes are stored"
            )
        if name not in stored:
            stored[name] = Storage(dtype, size, lambda: read_member(archive, name, where))
        shared = stored[name]
        return shared if shared.dtype == dtype else Storage(dtype, size, lambda: shared.data)

    return read_pickle(io.BytesIO(read_member(archive, program, where)), where, storage)


def read_torch_bytes(data: bytes, where: str) -> Any:
    """A torch.save archive that lies inside of another file."""
    archive = open_zip(io.BytesIO(data), len(data), where)
    if not any(name.endswith("data.pkl") for name in archive.namelist()):
        raise DataError(f"{where} holds an archive that torch.save did not write; {RESAVE}.")
    return read_torch_zip(archive, where)


def read_pickled(data: bytes, where: str) -> Any:
    """The object of a pickle file, or of what torch.save wrote before 1.6."""
    stream = io.BytesIO(data)
    first = read_pickle(stream, where)
    return read_legacy(data, where) if type(first) is int and first == LEGACY_MAGIC else first


def read_legacy(data: bytes, where: str, nested: bool = False) -> Any:
    """torch's old format: a few pickles, then the storages one after another."""
    stream = io.BytesIO(data)
    magic = read_pickle(stream, where, nested=nested)
    if type(magic) is not int or magic != LEGACY_MAGIC:
        raise DataError(f"{where} is not what torch.save writes")
    read_pickle(stream, where, nested=nested)
    machine = read_pickle(stream, where, nested=nested)
    if not isinstance(machine, dict) or machine.get("little_endian") is not True:
        raise DataError(f"{where} was written on a big-endian machine; {RESAVE}.")
    found: dict[str, Storage] = {}
    data_of: dict[str, memoryview] = {}

    def storage(pid: Any) -> Storage:
        _, kind, key, _place, size = pid[:5]
        key = short(key)
        if key not in found:
            found[key] = Storage(STORAGES[_storage_name(kind)], size, lambda: data_of[key])
        return found[key]

    made = read_pickle(stream, where, storage, nested)
    keys = read_pickle(stream, where, nested=nested)
    at = stream.tell()
    if not isinstance(keys, list) or len(keys) != len(found):
        raise DataError(f"{where} is damaged; {RESAVE}.")
    for key in map(short, keys):
        size = int.from_bytes(data[at : at + 8], "little")
        if key not in found or found[key].size != size:
            raise DataError(f"{where} is damaged or cut short; {RESAVE}.")
        length = size * item_size(found[key].dtype)
        if at + 8 + length > len(data):
            raise DataError(f"{where} is cut short; {RESAVE}.")
        data_of[key] = memoryview(data)[at + 8 : at + 8 + length]
        at += 8 + length
    return made


def _storage_name(kind: Any) -> str:
    name = kind.name.removeprefix("torch.") if isinstance(kind, Named) else ""
    if name not in STORAGES:
        raise DataError(f"a tensor is stored as {name or 'something unknown'}, which is not read")
    return name
