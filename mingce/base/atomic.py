"""Files and directories that are there whole or not at all.

Everything is written beside its place under a hidden name, flushed to the disk, and then renamed. A process killed at
any instant leaves at most a hidden leftover (`.name.pid.partial`), which `clean_leftovers` removes later. A disk that
is full or fails becomes one sentence, and what was begun is taken away.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from mingce.base.errors import RunError
from mingce.base.numbers import show_bytes

_PARTIAL = ".partial"
_FAULTS = {  # what is wrong, what to do
    errno.ENOSPC: ("disk full", "free space"),
    errno.EDQUOT: ("disk quota used up", "free space"),
    errno.EFBIG: ("file size limit reached", "raise the limit (ulimit -f)"),
    errno.EIO: ("the disk failed", "check the disk"),
    errno.EROFS: ("read-only disk", "choose a place you may write to"),
    errno.EACCES: ("permission denied", "allow writing there"),
    errno.EPERM: ("permission denied", "allow writing there"),
    errno.ENOENT: ("its directory is gone", "put it back"),
    errno.ENOTDIR: ("a file stands where a directory should be", "choose another place"),
}
_OUT_OF_SPACE = {errno.ENOSPC, errno.EDQUOT}

Hint = Callable[[str], str]
"""Makes the advice at the end of an error's sentence from what to do about the disk, as "free space"."""


def try_again(remedy: str) -> str:
    """The advice when nothing more particular is known."""
    return f"{remedy} and try again"


@contextmanager
def disk_errors(path: Path, *, needs: int = 0, hint: Hint = try_again) -> Iterator[None]:
    """Turn the disk's refusal to write `path` into a RunError; `needs` is the size in bytes."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FAULTS:
            raise
        sizes = [f"needs about {show_bytes(needs)}"] if needs else []
        if error.errno in _OUT_OF_SPACE:
            sizes.append(f"{show_bytes(_free_bytes(path))} free")
        room = f" ({', '.join(sizes)})" if sizes else ""
        what, remedy = _FAULTS[error.errno]
        raise RunError(f"{what} while writing {path}{room}; {hint(remedy)}") from error


def atomic_write(
    path: Path,
    content: bytes | Callable[[BinaryIO], object],
    *,
    durable: bool = True,
    hint: Hint = try_again,
) -> None:
    """Write a file whole, or leave what was there before; `content` is the bytes or a function that writes them.

    `durable=False` skips the flush to the disk: proof against a killed process, not against a power cut, until
    `sync_path` has been called.
    """
    partial = _beside(path)
    with disk_errors(path, needs=len(content) if isinstance(content, bytes) else 0, hint=hint):
        try:
            with partial.open("wb") as file:
                if isinstance(content, bytes):
                    file.write(content)
                else:
                    content(file)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        if durable:
            sync_path(path.parent)


@contextmanager
def atomic_directory(path: Path, *, replace: bool = False, needs: int = 0, hint: Hint = try_again) -> Iterator[Path]:
    """A directory to fill, which takes the name `path` when the block ends well and vanishes when it does not.

    An existing `path` is a FileExistsError, unless `replace`: then the old one goes once the new one is whole, and the
    directory above it must be there.
    """
    partial = _beside(path)
    with disk_errors(path, needs=needs, hint=hint):
        try:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=not replace)
            yield partial
            for folder, _, files in os.walk(partial):
                for name in files:
                    sync_path(Path(folder, name))
                sync_path(Path(folder))
            if replace and os.path.lexists(path):
                remove_directory(path)
            if os.path.lexists(path):
                raise FileExistsError(errno.EEXIST, "already there", str(path))
            os.rename(partial, path)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        sync_path(path.parent)


def make_directory(path: Path) -> None:
    """A directory that may be there already, with those above it."""
    with disk_errors(path):
        try:
            path.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(path)) from error


def remove_directory(path: Path) -> None:
    """Remove a directory so that nobody ever sees half of it: first its name goes, then what it holds.

    A link, or whatever else has that name, goes alone; what a link points to stays.
    """
    doomed = path.with_name(f".{path.name}.{os.getpid()}.old{_PARTIAL}")
    _discard(doomed)
    os.rename(path, doomed)
    _discard(doomed)


def _discard(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        with suppress(OSError):
            path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def clean_leftovers(directory: Path, *, older_than: float = 0.0) -> None:
    """Remove what killed processes left in `directory`, if untouched for `older_than` seconds.

    With 0 the caller must be the only writer there.
    """
    for leftover in directory.glob(f".*{_PARTIAL}"):
        try:
            if older_than and time.time() - leftover.lstat().st_mtime < older_than:
                continue
        except OSError:
            continue
        _discard(leftover)


def sync_path(path: Path) -> None:
    """Flush a file, or a directory's list of names, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}{_PARTIAL}")


def _free_bytes(path: Path) -> int:
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free
