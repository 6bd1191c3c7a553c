"""What stands where in a run's directory: steps by name, files that are files, directories that stay where they are."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable
from pathlib import Path

from mingce.base.errors import RunError
from mingce.base.texts import sentence

EMBEDDED_MODELS = {name: Path(__file__).parent.parent / "models" / name for name in ("tiny", "calculator", "search")}
"""Models that come with the package, by name."""

_STEP = re.compile(r"step-([0-9]{6,12})")
NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENAMETOOLONG})
"""Errors that say no such file is there. Any other (permissions, a disk or network that fails) says nothing of it."""


def step_name(step: int) -> str:
    """`step-000012`: how a step is called on disk."""
    return f"step-{step:06d}"


def steps_in(directory: Path, suffix: str = "") -> list[int]:
    """The steps that have a directory `step-N`, or with a suffix a file `step-N<suffix>`, in order.

    Nothing else of such a name counts: no link to nowhere, pipe or `step-7`. What cannot be looked at does, for it may
    be one.
    """
    try:
        with os.scandir(directory) as entries:
            return sorted(
                step
                for entry in entries
                if (step := _step_of(entry.name, suffix)) is not None and _is_kind(entry, file=bool(suffix))
            )
    except OSError as error:
        if error.errno in NOT_THERE:
            return []
        raise RunError(f"{directory} cannot be listed ({error.strerror}); allow reading it and try again") from error


def steps_named(directory: Path, suffix: str) -> list[int]:
    """The steps that something is named after, whatever it is."""
    try:
        return sorted(step for name in os.listdir(directory) if (step := _step_of(name, suffix)) is not None)
    except OSError:
        return []


def _step_of(name: str, suffix: str) -> int | None:
    """The step of an entry that is called exactly as its step is."""
    match = _STEP.fullmatch(name.removesuffix(suffix)) if name.endswith(suffix) else None
    return int(match[1]) if match and step_name(int(match[1])) + suffix == name else None


def _is_kind(entry: os.DirEntry[str], *, file: bool) -> bool:
    try:
        return entry.is_file() if file else entry.is_dir()
    except OSError as error:
        return error.errno not in NOT_THERE


class Anchors:
    """Directories that must stay what and where they are while this process writes into them.

    Names may be taken away and given to others; an open handle stays with the directory it was opened on.
    """

    def __init__(self, directories: Iterable[Path]):
        kind = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
        self._handles: dict[Path, int] = {}
        for directory in directories:
            self._handles[directory] = os.open(directory, kind)

    def check(self) -> None:
        """A RunError if one of the directories is no longer at its place, the first of them."""
        for directory, handle in self._handles.items():
            try:
                here = os.stat(directory)
            except OSError:
                raise _lost(directory, handle) from None
            if not os.path.samestat(here, os.fstat(handle)):
                raise _lost(directory, handle)

    def close(self) -> None:
        """Lets the directories go."""
        while self._handles:
            os.close(self._handles.popitem()[1])


def _lost(directory: Path, handle: int) -> RunError:
    """Where the directory is now, as far as the system tells."""
    try:
        now = os.readlink(f"/proc/self/fd/{handle}")
    except OSError:
        now = ""
    if os.fstat(handle).st_nlink == 0 or now.endswith(" (deleted)"):
        return RunError(sentence("files.directory_deleted", directory=directory))
    if now:
        return RunError(sentence("files.directory_moved", directory=directory, now=now))
    return RunError(sentence("files.directory_gone", directory=directory))
