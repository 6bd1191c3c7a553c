"""Which runs and dumps there are. A client names them by id; no part of a path ever comes from a request."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from threading import Lock

from mingce.base.errors import DataError, MingceError, RunError
from mingce.base.paths import expanded, resolved
from mingce.record.targets import is_run
from mingce.sources.dumps import open_source
from mingce.sources.followed import FollowedSource
from mingce.sources.runs import RunSource
from mingce.sources.source import VALIDATION, Source

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}")


class Library:
    """The sources at the given places: a run, a directory of runs, a dump or a directory of dumps each.

    `follow`: dumps are looked at again and again, and may be still to come.
    """

    def __init__(
        self,
        places: Sequence[Path],
        mapping: Path | None = None,
        tokenizer: Path | None = None,
        *,
        follow: bool = False,
    ):
        self._mapping, self._tokenizer = mapping, tokenizer
        self._folders: list[Path] = []
        self._sources: dict[Path, Source] = {}
        self._taken: set[str] = set()
        self._lock = Lock()
        for place in places:
            path = expanded(place)
            if path.is_dir() and not is_run(path) and (_runs_in(path) or (_is_empty(path) and not follow)):
                self._folders.append(resolved(path))
            elif follow and not is_run(path):
                self._add(resolved(path), FollowedSource(resolved(path), mapping, tokenizer))
            else:
                self._add(resolved(path), open_source(resolved(path), mapping, tokenizer))

    def sources(self) -> list[Source]:
        """All of them, runs that have appeared since included, the newest first."""
        with self._lock:
            for folder in self._folders:
                for path in _runs_in(folder):
                    if path not in self._sources:
                        with suppress(MingceError):  # it has gone again
                            self._add(path, RunSource(path, self._tokenizer))
            self._sources = {path: source for path, source in self._sources.items() if source.exists()}
            self._taken = {source.id for source in self._sources.values()}
            found = list(self._sources.values())
        return sorted(found, key=lambda source: (-source.updated(), source.id))

    def source(self, source_id: str) -> Source:
        """The source of that id; an unknown one is an error."""
        if source_id.endswith(VALIDATION):
            run = self.source(source_id.removesuffix(VALIDATION))
            answers = run.validation()
            if answers is None:
                raise RunError(f"{run.name} keeps no answers to held-out prompts")
            return answers
        for known in (self._sources.values, self.sources):
            for source in list(known()):
                if source.id == source_id and source.exists():
                    return source
        raise RunError(f"there is no run '{source_id[:80]}' here")

    def _add(self, path: Path, source: Source) -> None:
        plain = _PLAIN.fullmatch(source.name) is not None and source.name not in self._taken
        mark = blake2b(os.fsencode(path), digest_size=4).hexdigest()
        source.id = source.name if plain else f"{source.kind}-{mark}"
        self._taken.add(source.id)
        self._sources[path] = source


def _runs_in(folder: Path) -> list[Path]:
    """The runs right below a folder, links that lead out of it left out."""
    root, found = resolved(folder), []
    try:
        with os.scandir(root) as entries:
            names = sorted((entry.name, entry.is_symlink()) for entry in entries if not entry.name.startswith("."))
    except OSError as error:
        raise DataError(f"{folder} cannot be read ({error.strerror}).") from error
    for name, linked in names:
        with suppress(OSError, RuntimeError):  # a link that leads in a circle
            path = resolved(root / name) if linked else root / name
            if is_run(path) and (not linked or path.is_relative_to(root)):
                found.append(path)
    return list(dict.fromkeys(found))


def _is_empty(folder: Path) -> bool:
    return next(folder.iterdir(), None) is None
