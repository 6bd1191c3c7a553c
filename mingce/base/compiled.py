"""How numba compiles the loops of this package: with which liberties of arithmetic, and where the machine code is kept.

The liberties are LLVM's fast-math flags, and each is chosen. Never among them are `arcp`, with which a division becomes
the processor's estimate of a reciprocal (on AVX-512 one of 14 bits, which makes gradients six times as wrong), and
`afn`, which does the same to a root. What is left changes the order of sums and fuses products into them, so results
differ between processors in the last digits only.

Machine code is kept beside the source, else in the user's cache directory, else nowhere. A file of it carries a
checksum and a stamp of everything it was made from; one that is damaged is made anew.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import pickle
import platform
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import llvmlite  # type: ignore[import-untyped]
import numba
from numba.core.caching import FunctionCache
from numba.core.serialize import dumps

from mingce.base.texts import sentence

EXACT: frozenset[str] = frozenset()
"""Every operation as it is written."""
FUSED = frozenset({"contract"})
"""x + d·y in one instruction and one rounding, where the processor has it."""
REORDERED = FUSED | {"reassoc", "nsz"}
"""Sums in any order, so that they become vector instructions; NaN and infinity stay what they are."""
FINITE = REORDERED | {"nnan", "ninf"}
"""The same for numbers none of which is NaN or infinite: maxima become vector instructions too."""

Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]
_DIGEST = hashlib.sha256().digest_size
_VERSIONS = "\n".join((platform.python_version(), numba.__version__, llvmlite.__version__)).encode()
_damage_was_reported = False


def compiler(flags: frozenset[str], *, inlined: bool = False) -> Compiler:
    """A decorator that compiles a function on its first call; `inlined` puts it into its callers, with their flags."""

    def compile_later(function: Callable[..., Any]) -> Callable[..., Any]:
        options: dict[str, Any] = {"inline": "always"} if inlined else {}
        dispatcher = numba.njit(nogil=True, fastmath=set(flags), error_model="numpy", **options)(function)
        dispatcher.stamp = _stamp(function, flags)
        if not inlined:
            with suppress(RuntimeError):  # no directory can be written to: compiled again in every process
                dispatcher._cache = _CheckedCache(function, dispatcher.stamp)
        made: Callable[..., Any] = dispatcher
        return made

    return compile_later


def _stamp(function: Callable[..., Any], flags: frozenset[str]) -> bytes:
    """A digest of what the machine code depends on: the file, the flags, the versions, and the functions it calls."""
    digest = hashlib.sha256(_VERSIONS + " ".join(sorted(flags)).encode())
    digest.update(Path(inspect.getfile(function)).read_bytes())
    for name in function.__code__.co_names:
        digest.update(getattr(function.__globals__.get(name), "stamp", b""))
    return digest.digest()


class _CheckedCache(FunctionCache):
    """numba's cache of one function, over files that know when they are damaged."""

    def __init__(self, function: Callable[..., Any], stamp: bytes):
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._cache_file: Any = _CheckedFiles(Path(self._cache_path), self._impl.filename_base, stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except Exception:  # of a file that is whole and yet no machine code of this numba
            _report_damage(self._cache_path)
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(OSError):  # a full disk costs the next process the time to compile
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]


class _CheckedFiles:
    """The machine code of one function, a file for every signature and processor: checksum, stamp, pickle."""

    def __init__(self, directory: Path, name: str, stamp: bytes):
        self.directory, self.name, self.stamp = directory, name, stamp

    def load(self, key: Any) -> Any:
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        checksum, content = data[:_DIGEST], data[_DIGEST:]
        if hashlib.sha256(content).digest() != checksum:
            _report_damage(path)
            return None
        return pickle.loads(content[_DIGEST:]) if content[:_DIGEST] == self.stamp else None

    def save(self, key: Any, data: Any) -> None:
        content = self.stamp + dumps(data)  # type: ignore[no-untyped-call]
        path = self._path(key)
        partial = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.tmp")
        try:
            partial.write_bytes(hashlib.sha256(content).digest() + content)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)

    def flush(self) -> None:
        """Nothing is kept in memory."""

    def _path(self, key: Any) -> Path:
        return self.directory / f"{self.name}.{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.nbc"


def _report_damage(path: str | Path) -> None:
    """Says once a process that kept machine code was damaged."""
    global _damage_was_reported
    if _damage_was_reported:
        return
    _damage_was_reported = True
    print(sentence("engine.machine_code_damaged", path=path), file=sys.stderr)
