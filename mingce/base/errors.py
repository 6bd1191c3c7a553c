"""The errors a person can cause, each said in one sentence: what is wrong, where, and what to do.

The command line prints the sentence and exits with code 2; `--debug` shows the traceback too. A programmer's mistake
is not one of these: it asserts.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class MingceError(Exception):
    """Base of every error that a person can fix. `exit_code` is what the command line ends with."""

    exit_code = 2


class Interruption(MingceError):
    """A person pressed Ctrl-C."""

    exit_code = 130


class ColumnError(MingceError):
    """A column of a ledger is missing, of the wrong shape or type, or holds a number that cannot be.

    `column`, `row` and `token` say where, as far as it is known.
    """

    def __init__(self, message: str, *, column: str | None = None, row: int | None = None, token: int | None = None):
        super().__init__(message)
        self.column, self.row, self.token = column, row, token


class SettingError(MingceError):
    """A setting is outside its range, or two settings contradict each other."""


class UnknownNameError(MingceError):
    """A name that is not in a closed list; the message offers the nearest one that is."""

    def __init__(self, kind: str, name: str, known: Iterable[str], where: str = ""):
        """`where` says where a list too long to print is found."""
        known = sorted(set(known))
        near = difflib.get_close_matches(name[:100], known, n=1, cutoff=0.6)
        listed = (
            f"known: {', '.join(known)}." if len(known) <= 24 else f"it is none of the {len(known)} known ones{where}."
        )
        hint = f"did you mean '{near[0]}'?" if near else listed
        super().__init__(f"unknown {kind} '{name if len(name) <= 100 else name[:99] + '…'}'; {hint}")
        self.name, self.nearest = name, near[0] if near else None


class DataError(MingceError):
    """A data file, a row of it or a task cannot be used."""


class RewardError(MingceError):
    """A reward function cannot be loaded, raised, or took too long."""


class EnvironmentFault(MingceError):
    """An environment or a tool of it raised, hung, or answered with what it may not."""


class ModelError(MingceError):
    """A model or tokenizer directory cannot be used."""


class ClusterError(MingceError):
    """A Ray cluster cannot be joined, lacks the resources a run asks for, or keeps failing."""


class RankFault(ClusterError):
    """A process of the cluster died, failed or hangs; the step can be redone once it has been replaced."""


class RunError(MingceError):
    """A run directory or checkpoint cannot be made, read or written."""


def first_line(error: BaseException, most: int = 300) -> str:
    """The first line of what an error says, or its name, to stand in a sentence: no full stop, and not endless."""
    said = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return said if len(said) <= most else f"{said[: most - 1]}…"
