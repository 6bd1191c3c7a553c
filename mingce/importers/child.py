"""The process that opens strangers' files: it forks once for each dump and holds that fork to its allowance.

A fork that runs out of memory or time, or that a damaged file crashes, ends alone; the next dump has a clean one.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

from mingce.base.errors import DataError, MingceError, first_line
from mingce.base.lang import LANGS, choose_lang
from mingce.base.texts import sentence, sentences
from mingce.importers.files import read_dumps
from mingce.importers.limits import ALLOWED, MEGABYTE, Refused, file_size
from mingce.importers.parcel import write_dumps, write_error
from mingce.importers.tables import unpack_sound_parts


def serve(number: int) -> None:
    """Answer each request on the socket with how the fork that worked on it ended, until the asking side is gone."""
    asking = socket.socket(fileno=number)
    for lang in LANGS:  # a fork that is out of memory could not read them
        sentences("importers", lang)
    while True:
        begin, numbers, _, _ = socket.recv_fds(asking, 4, 1)
        if len(begin) < 4 or not numbers:
            return
        request = json.loads(received(asking, int.from_bytes(begin, "little")))
        if request["path"].endswith(".parquet"):
            import pyarrow.parquet  # noqa: F401
        child = os.fork()
        if child == 0:
            asking.close()
            _open(request, numbers[0])
        os.close(numbers[0])
        _, status, used = os.wait4(child, 0)
        code = os.waitstatus_to_exitcode(status)
        asking.sendall(json.dumps({"code": code, "seconds": used.ru_utime + used.ru_stime}).encode() + b"\n")


def received(connection: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size and (part := connection.recv(size - len(parts))):
        parts += part
    return parts


def _open(request: dict[str, Any], number: int) -> None:
    """The work of one fork: the dumps, or the error, written to the file with that number. Does not return."""
    code = 1
    try:
        ALLOWED.enforce()
        choose_lang(request["lang"])
        os.chdir(request["cwd"])
        with open(number, "wb", closefd=False) as file:
            problem = _written(request, file)
            if problem is not None:
                ALLOWED.claim(4 * MEGABYTE)  # memory to say it with
                gc.collect()
                write_error(file, *problem)
        code = 0
    finally:
        os._exit(code)


def _written(request: dict[str, Any], file: Any) -> tuple[MingceError, str] | None:
    """Write the dumps, or say what was in the way; what was read so far is let go of on return."""
    path = Path(request["path"])
    try:
        if request.get("unpack"):
            unpack_sound_parts(path, file_size(path), **request["unpack"])
            write_dumps(file, [])
        else:
            mapping = None if request["mapping"] is None else Path(request["mapping"])
            some = {"files": request["files"], "lines": request["lines"]}
            write_dumps(file, read_dumps(path, mapping, request["settings"], request["steps"], **some))
    except MingceError as error:
        return error, ""
    except (MemoryError, RecursionError):
        return out_of_memory(str(path)), ""
    except Exception as error:  # what confuses a reader cannot be read
        if isinstance(error, OSError) and error.errno == errno.EFBIG:
            return out_of_memory(str(path)), ""
        return DataError(f"{path} cannot be read ({first_line(error, 160)})."), traceback.format_exc()
    return None


def out_of_memory(path: str) -> Refused:
    return Refused(sentence("importers.out_of_memory", path=path, most=ALLOWED.memory // MEGABYTE))


if __name__ == "__main__":
    serve(int(sys.argv[1]))
