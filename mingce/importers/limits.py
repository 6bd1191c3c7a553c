"""How much a file may ask for. A dump is a stranger's file: declared sizes are checked before anything is allocated.

What a reader overlooks meets the limits of the process it runs in (`Allowance`), which grow with the bytes on the disk.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import signal
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mingce.base.errors import DataError, SettingError
from mingce.base.machine import limit
from mingce.base.reading import MAX_HOLES, stored_bytes
from mingce.base.texts import sentence

FACTOR_NAME = "MINGCE_DUMP_LIMIT"


def factor() -> float:
    """How many times the usual limits a person allows; MINGCE_DUMP_LIMIT, else 1."""
    text = os.environ.get(FACTOR_NAME, "").strip() or "1"
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.01 <= value <= 1000:
        raise SettingError(sentence("importers.limit_factor", text=text[:40]))
    return value


def _scaled(number: int) -> int:
    try:
        return int(number * factor())
    except SettingError:
        return number


MEGABYTE = 1 << 20
MAX_BYTES = _scaled(4 << 30)  # of one dump, read and unpacked
MAX_CELLS = _scaled(1 << 27)  # rows × width of one column
MAX_PACKED = 64 * MEGABYTE  # unpacked size from which the compression ratio is looked at
MAX_RATIO = 200
MAX_LINE = _scaled(32 << 20)
MAX_LINES = _scaled(1_000_000)
MAX_COLUMNS = _scaled(1000)
MAX_MEMBERS = 20_000
MAX_FILES = 10_000
MAX_TEXT = 1 << 20  # settings and mapping files
MAX_HEADER = 16 << 20
PACKING = 20  # honest files unpack to less than this many times their size


class Refused(DataError):
    """The file asks for something that no dump needs: code to be run, a path outside, an absurd size."""


class Allowance:
    """What opening one dump may take of memory, time and room for columns: a base, and more for each byte of its files.

    `enforce` makes the operating system hold this process to it, so it is for a process that does nothing else.
    """

    def __init__(self) -> None:
        self.claimed = 0
        self._taken = 0
        self._began: float | None = None

    @property
    def memory(self) -> int:
        return _scaled(512 * MEGABYTE) + 16 * self.claimed

    @property
    def seconds(self) -> int:
        return math.ceil(_scaled(6) + self.claimed / MEGABYTE)

    @property
    def room(self) -> int:
        """Bytes of columns: enough for tokens that a file keeps in a byte each, padded to the longest row."""
        return _scaled(256 * MEGABYTE) + 64 * self.claimed

    def enforce(self) -> None:
        """From here on the operating system ends this process where it takes more."""
        self._began = time.monotonic()
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        self._apply()

    def claim(self, size: int) -> None:
        """A file of that many bytes is opened."""
        self.claimed += max(size, 0)
        if self._began is not None:
            self._apply()

    def take(self, where: str, name: str, size: int) -> None:
        """Room for a column or a part of one; refused where no file of this size holds so much."""
        if self._began is None:
            return
        self._taken += size
        if self._taken > self.room:
            raise Refused(
                f"{where} would take over {self.room // MEGABYTE:,} MB of columns ('{short(name)}' is one) where "
                f"its files hold {self.claimed:,} bytes; write each number once, or set {FACTOR_NAME}=4."
            )

    def _apply(self) -> None:
        assert self._began is not None
        limit(resource.RLIMIT_CPU, self.seconds)
        limit(resource.RLIMIT_DATA, self.memory)
        limit(resource.RLIMIT_AS, self.memory + (1 << 30))  # libraries are mapped, too
        limit(resource.RLIMIT_FSIZE, self.room)
        left = (
            self._began + 4 * self.seconds + 30 - time.monotonic()
        )  # waiting for a disk or other processes is no harm
        signal.setitimer(signal.ITIMER_REAL, max(left, 0.01))


ALLOWED = Allowance()


def short(value: Any) -> str:
    """A stranger's value for a sentence: a text or number cut short, of anything else only what it is."""
    if isinstance(value, str):
        return "".join(c if c.isprintable() else "\ufffd" for c in value[:80])
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and value.bit_length() < 256):
        return repr(value)
    if isinstance(value, int):
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, list | tuple) and len(value) <= 8 and all(isinstance(one, int | float) for one in value):
        return f"[{', '.join(map(short, value))}]"
    return f"a {type(value).__name__}"


def allow_bytes(where: str, declared: int, limit: int = MAX_BYTES) -> None:
    """Refuse a file that would unpack to more than the limit."""
    if not 0 <= declared <= limit:
        raise Refused(
            f"{where} declares {declared:,} bytes where {limit:,} are the most that is read; split the dump, or set "
            f"{FACTOR_NAME}=4."
        )


def allow_shape(where: str, name: str, shape: Iterable[int]) -> int:
    """The number of cells of a declared shape; negative or absurd ones are refused."""
    shape = tuple(shape)
    if len(shape) > 32:
        raise DataError(f"{where}: '{short(name)}' declares {len(shape)} dimensions; the file is damaged.")
    cells = 1
    for size in shape:
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise DataError(
                f"{where}: '{short(name)}' declares the length {short(size)}; the file is damaged, write it again."
            )
        cells *= size
        if cells > MAX_CELLS or size > MAX_CELLS:
            raise Refused(
                f"{where}: '{short(name)}' declares the shape {short(shape)}, more than {MAX_CELLS:,} numbers; "
                f"split the dump by step or rank, or set {FACTOR_NAME}=4."
            )
    return cells


def allow_columns(where: str, count: int) -> None:
    if count > MAX_COLUMNS:
        raise Refused(f"{where} has more than {MAX_COLUMNS:,} columns; a dump has one for each quantity of a token.")


def file_size(path: Path) -> int:
    """The size of a regular file within the limit. Never waits for a pipe, and claims what really lies on the disk."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            about = os.fstat(number)
            if not stat.S_ISREG(about.st_mode):
                raise DataError(f"{path} is a pipe, a device or a directory, not a file; write the dump to a file.")
            size = about.st_size
            allow_bytes(str(path), size)
            stored = stored_bytes(number, size)
        finally:
            os.close(number)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error}).") from error
    if size - stored > MAX_HOLES:
        raise Refused(f"{path} is {size:,} bytes long but only {stored:,} were ever written; it is not a whole dump.")
    ALLOWED.claim(stored)
    return size
