"""Which files another program may have read: those in the directories named when the server started, and no others."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from mingce.base.errors import DataError, SettingError
from mingce.base.paths import expanded, resolved
from mingce.base.texts import sentence

MOST_ENTRIES = 20_000
"""Files of a directory that are looked at before it is opened; a dump has a few, a run some per step."""
MOST_FOLDERS, DEPTH = 2000, 3
"""How far runs are looked for."""


class Places:
    """The allowed directories and files, without links; a path leads into one of them or is refused."""

    def __init__(self, roots: Sequence[Path]):
        self.roots = [resolved(expanded(root)) for root in roots]
        for given, root in zip(roots, self.roots, strict=True):
            if not root.exists():
                raise SettingError(sentence("assistant.no_root", path=given))

    def inside(self, text: str) -> Path:
        """The place a client names, links resolved: a regular file or a directory in an allowed one."""
        path = self._found(text)
        self._expect_inside(path, text)
        try:
            mode = path.stat().st_mode
        except (OSError, ValueError):
            raise DataError(sentence("assistant.nothing_there", path=text[:200])) from None
        if stat.S_ISDIR(mode):
            self._look_through(path, text)
        elif not stat.S_ISREG(mode):
            raise DataError(sentence("assistant.no_file", path=text[:200]))
        return path

    def new_directory(self, text: str) -> Path:
        """A directory to write in, which need not exist yet."""
        path = self._found(text)
        self._expect_inside(path, text)
        if path.exists() and not path.is_dir():
            raise DataError(sentence("assistant.no_directory", path=text[:200]))
        return path

    def name(self, path: Path) -> str:
        """The path as a client may name it again: relative to the allowed directory that holds it."""
        for root in self.roots:
            if path.is_relative_to(root):
                return path.relative_to(root).as_posix() if path != root else str(root)
        return str(path)

    def runs(self) -> Iterator[Path]:
        """The runs in the allowed directories, a few levels deep; links and hidden directories are passed over."""
        from mingce.record.targets import is_run

        seen: set[Path] = set()
        waiting = [(root, 0) for root in self.roots if root.is_dir()]
        while waiting and len(seen) < MOST_FOLDERS:
            folder, depth = waiting.pop(0)
            if folder in seen:
                continue
            seen.add(folder)
            if is_run(folder):
                yield folder
            elif depth < DEPTH:
                waiting += [(below, depth + 1) for below in _folders(folder)]

    def _found(self, text: str) -> Path:
        if "\0" in text:
            raise DataError(sentence("assistant.nothing_there", path=text[:200].replace("\0", "␀")))
        path = expanded(text)
        if path.is_absolute():
            return resolved(path)
        candidates = [resolved(root / path) for root in self.roots if root.is_dir()]
        return next((one for one in candidates if _exists(one)), (candidates or [resolved(path)])[0])

    def _expect_inside(self, path: Path, text: str) -> None:
        if not any(path.is_relative_to(root) for root in self.roots):
            allowed = ", ".join(map(str, self.roots)) or "—"
            raise DataError(sentence("assistant.outside", path=text[:200], allowed=allowed))

    def _look_through(self, folder: Path, text: str) -> None:
        """Refuses a directory with links that lead out, or with pipes and devices that a reader might open."""
        count = 0
        for directory, folders, files in os.walk(folder):
            for name in (*folders, *files):
                count += 1
                if count > MOST_ENTRIES:
                    raise DataError(sentence("assistant.large_directory", path=text[:200], most=f"{MOST_ENTRIES:,}"))
                entry = Path(directory) / name
                if entry.is_symlink():
                    self._expect_inside(resolved(entry), f"{text[:100]}: {name[:100]}")
                mode = entry.stat().st_mode if _exists(entry) else stat.S_IFREG
                if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                    raise DataError(sentence("assistant.no_file", path=f"{text[:100]}: {name[:100]}"))


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            found = [e.name for e in entries if e.is_dir(follow_symlinks=False) and not e.name.startswith(".")]
    except OSError:
        return []
    return [folder / name for name in sorted(found) if name not in ("node_modules", "__pycache__")]


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
