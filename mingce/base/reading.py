"""Untrusted small files, read within limits: regular files only, a limited size, YAML without aliases.

A run's directory, a recipe or a mapping may come from anyone. A pipe in the place of a file would block for ever, a
device has no end, and a YAML file of a few lines can stand for more than any memory holds.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import Any

import yaml

from mingce.base.errors import first_line

MAX_TEXT = 1 << 20  # bytes of a file of settings
MAX_JSON = 64 << 20  # of a manifest or a state
MAX_LINE = 4 << 20  # of a line of a log
MAX_HOLES = 64 << 20  # bytes of a file that were never written
MAX_DEPTH = 32
MAX_NODES = 20_000
MAX_DIGITS = 400  # of a number; YAML's base-60 numbers take quadratic time

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def open_regular(path: Path | str, *, follow: bool = True) -> BufferedReader:
    """The file, open for reading; a pipe, socket, device or directory is an OSError, and a link unless `follow`."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | (0 if follow else os.O_NOFOLLOW)
    try:
        before = os.stat(path, follow_symlinks=follow)
        if not stat.S_ISREG(before.st_mode):  # not even opened: to open a device may already do something
            raise OSError(errno.ENXIO, "it is not a regular file", str(path))
        handle = os.open(path, flags)
    except ValueError as error:  # a zero byte in the name
        raise OSError(errno.EINVAL, "it is no file name", str(path)) from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.ENXIO, "it is not a regular file", str(path))
    return os.fdopen(handle, "rb")


def open_written(path: Path | str) -> BufferedReader:
    """A regular file whose bytes were written: one that is mostly a hole has no end, and is an OSError."""
    file = open_regular(path)
    size = os.fstat(file.fileno()).st_size
    if size > MAX_HOLES and size - (stored := stored_bytes(file.fileno(), size)) > MAX_HOLES:
        file.close()
        raise OSError(errno.EFBIG, f"it is {size:,} bytes long, but only {stored:,} were ever written", str(path))
    return file


def stored_bytes(number: int, size: int) -> int:
    """The bytes of an open file of that size without its holes."""
    if not hasattr(os, "SEEK_DATA"):
        return size
    total = at = 0
    try:
        for _ in range(10_000):
            if at >= size:
                break
            try:
                begin = os.lseek(number, at, os.SEEK_DATA)
                at = os.lseek(number, begin, os.SEEK_HOLE)
            except OSError as error:
                return total if error.errno == errno.ENXIO else size
            total += at - begin
    finally:
        os.lseek(number, 0, os.SEEK_SET)
    return total


def read_regular(path: Path | str, limit: int = MAX_TEXT, *, follow: bool = True) -> bytes:
    """The whole content of a small regular file; more than `limit` bytes are an OSError."""
    with open_regular(path, follow=follow) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"it has more than {limit:,} bytes", str(path))
    return content


def read_yaml(path: Path | str, limit: int = MAX_TEXT, *, follow: bool = True) -> Any:
    """What a YAML (or JSON) file holds: OSError if it cannot be read, yaml.YAMLError if it is not plain YAML."""
    return parse_yaml(read_regular(path, limit, follow=follow))


def parse_yaml(text: str | bytes) -> Any:
    """The value of a YAML text; whatever is wrong with it is a yaml.YAMLError."""
    check_yaml(text)
    try:
        return yaml.load(text, Loader=_LOADER)
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
        raise yaml.YAMLError(first_line(error)) from error


def check_yaml(text: str | bytes) -> None:
    """Refuse what settings do not need and what makes a short text a huge value: aliases, great depth, many values."""
    depth = nodes = 0
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            if isinstance(event, yaml.NodeEvent):
                nodes += 1
                if event.anchor is not None:
                    raise yaml.YAMLError(
                        f"line {event.start_mark.line + 1} has an anchor or alias; write the value out"
                    )
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            elif isinstance(event, yaml.ScalarEvent) and _is_long_number(event):
                raise yaml.YAMLError(f"line {event.start_mark.line + 1} has a number of more than {MAX_DIGITS} digits")
            if depth > MAX_DEPTH or nodes > MAX_NODES:
                raise yaml.YAMLError(f"it holds more than {MAX_DEPTH} levels or {MAX_NODES:,} values")
    except (ValueError, RecursionError) as error:
        raise yaml.YAMLError(first_line(error)) from error


def _is_long_number(event: yaml.ScalarEvent) -> bool:
    value: str = event.value
    if len(value) <= MAX_DIGITS or (event.style not in (None, "") and event.tag is None):
        return False
    return value.lstrip("+-")[:1].isdigit() and not any(letter.isspace() for letter in value)
