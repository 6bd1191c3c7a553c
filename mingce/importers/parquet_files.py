"""Parquet of strangers. A damaged file can end the process that reads it, so another process reads it first.

pyarrow aborts on some damaged metadata instead of raising. This file is also run as a script: it then reads each path
that stdin tells, with an upper limit on its memory, and answers one line. What it read without harm is read again.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
from typing import Any

PATIENCE = 120.0  # seconds for one file
_child: subprocess.Popen[bytes] | None = None


def load(path: str, max_bytes: int, max_rows: int, max_values: int) -> Any:
    """The whole table, after a look at what the file declares; ValueError with the reason if it declares too much."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        about = file.metadata
        declared, most = 0, 0
        for group in range(about.num_row_groups):
            one = about.row_group(group)
            for at in range(one.num_columns):
                chunk = one.column(at)
                declared += max(chunk.total_uncompressed_size, 0)
                most = max(most, chunk.num_values)
        if declared > max_bytes or about.num_rows > max_rows or most > max_values:
            raise ValueError(f"it declares {declared:,} bytes, {about.num_rows:,} rows, {most:,} numbers in a column")
        table = file.read(use_threads=False)
        table.validate(full=True)
        return table


def harm(path: str, *limits: int) -> str | None:
    """Why another process could not read the file; None if it could."""
    global _child
    if _child is None or _child.poll() is not None:
        # -P: this directory must not shadow the standard library
        command = [sys.executable, "-P", __file__, *map(str, limits)]
        _child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        atexit.register(_stop, _child)
    assert _child.stdin is not None
    assert _child.stdout is not None
    try:
        _child.stdin.write(json.dumps(os.path.abspath(path)).encode() + b"\n")
        _child.stdin.flush()
        ready, _, _ = select.select([_child.stdout], [], [], PATIENCE)
        answer = _child.stdout.readline() if ready else b""
    except OSError:
        answer = b""
    if not answer:
        _stop(_child)
        return "reading it crashes or never ends"
    found: str | None = json.loads(answer)
    return found


def _stop(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()


def _serve() -> None:
    import resource

    limits = [int(text) for text in sys.argv[1:]]
    most = 2 * limits[0] + (4 << 30)  # what is mapped counts, not what is used
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        reason = None
        try:
            load(json.loads(line), *limits)
        except Exception as error:  # whatever it is, it is the answer
            reason = str(error).splitlines()[0][:160] if str(error) else type(error).__name__
        print(json.dumps(reason), flush=True)


if __name__ == "__main__":
    _serve()
