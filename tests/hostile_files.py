"""Files made to do harm, over all formats, named by what they do; and a program that opens them and measures.

`python hostile_files.py FOLDER NAME…` writes each file, opens it through `open_dump` and prints a line of JSON a file:
what it said, the CPU seconds it took and the largest memory of any process so far.
"""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from hostile_parts import Made, safetensors
from hostile_pickles import calls, odd_pickles, pickle_bombs, torch_files
from hostile_tables import json_files, npz_files, parquet_files, safetensors_files


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

    def streamed(packed: bytes, notes: bytes = b"") -> Callable[[Path], None]:
        def fill(path: Path) -> None:
            for folder, data in (("stream", packed), ("annotations/orch", notes)):
                (path / folder).mkdir(parents=True)
                (path / folder / "00000.jsonl.zst").write_bytes(data)
            os.mkfifo(path / "stream/00001.jsonl")
            (path / "annotations/loop").symlink_to(path)

        return fill

    import pyarrow as pa

    zstd = pa.Codec("zstd")
    yield "traces of 500 MB in 20 KB", folder(streamed(zstd.compress(bytes(500 << 20), asbytes=True)))
    yield "traces that are no zstd", folder(streamed(b"\x28\xb5\x2f\xfd" + bytes(50), b"x"))
    yield "traces cut short", folder(streamed(zstd.compress(random.Random(1).randbytes(9000), asbytes=True)[:5000]))
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
