"""A line of checksums for every step: what it wrote, each line sealed together with all lines before it.

    {"step": 3, "metrics": "9f…", "timings": "0c…", "ledger": "77…", "chain": "a1…"}

`chain` is the SHA-256 of the last line's chain and of this line without its own. So a changed, lost or added line
shows, and a checkpoint that stores one chain covers all lines up to it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mingce.record.logs import as_line, finished_lines


def sha256(content: bytes) -> str:
    """The checksum of bytes in memory."""
    return hashlib.sha256(content).hexdigest()


def seal(values: Mapping[str, Any], before: str) -> str:
    """The chain of a line that follows the one of chain `before`."""
    return sha256(before.encode() + as_line(values))


class Checksums:
    """checksums.jsonl of a run that trains: makes the next line, and knows the last one's chain."""

    def __init__(self, path: Path):
        self.path = path
        self._chain: str | None = None

    @property
    def chain(self) -> str:
        """The last line's; empty before the first."""
        if self._chain is None:
            lines = finished_lines(self.path)
            self._chain = chain_of(lines[-1][1]) if lines else ""
        return self._chain

    def line(self, step: int, digests: Mapping[str, str]) -> bytes:
        """The next line, to be appended at once."""
        values = {"step": step} | dict(digests)
        self._chain = seal(values, self.chain)
        return as_line(values | {"chain": self._chain})

    def reopen(self) -> None:
        """The file has been cut."""
        self._chain = None


def chain_of(line: bytes) -> str:
    """The chain that a line has, or that stands for a line which cannot be read."""
    try:
        return str(json.loads(line)["chain"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return sha256(line)
