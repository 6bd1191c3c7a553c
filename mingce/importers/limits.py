"""How much a file may ask for. A dump is a stranger's file: declared sizes are checked before anything is allocated."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mingce.errors import DataError

MAX_BYTES = 4 << 30  # of one dump, read and unpacked
MAX_CELLS = 1 << 27  # rows × width of one column
MAX_PACKED = 256 << 20  # unpacked size from which the compression ratio is looked at
MAX_RATIO = 200
MAX_LINE = 32 << 20
MAX_LINES = 1_000_000
MAX_MEMBERS = 20_000
MAX_FILES = 10_000
MAX_TEXT = 1 << 20  # settings and mapping files


class Refused(DataError):
    """The file asks for something that no dump needs: code to be run, a path outside, an absurd size."""


def allow_bytes(where: str, declared: int, limit: int = MAX_BYTES) -> None:
    """Refuse a file that would unpack to more than the limit."""
    if not 0 <= declared <= limit:
        raise Refused(f"{where} declares {declared:,} bytes where {limit:,} are the most that is read; split the dump.")


def allow_shape(where: str, name: str, shape: Iterable[int]) -> int:
    """The number of cells of a declared shape; negative or absurd ones are refused."""
    cells = 1
    for size in shape:
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise DataError(f"{where}: '{name}' declares the length {size!r}; the file is damaged, write it again.")
        cells *= size
        if cells > MAX_CELLS:
            raise Refused(
                f"{where}: '{name}' declares the shape {list(shape)}, more than {MAX_CELLS:,} numbers; "
                "split the dump by step or rank."
            )
    return cells


def file_size(path: Path) -> int:
    """The size of a regular file within the limit."""
    try:
        size = path.stat().st_size
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}).") from error
    allow_bytes(str(path), size)
    return size
