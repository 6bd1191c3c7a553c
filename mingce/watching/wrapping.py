"""Methods of a host's object replaced for a while. Nothing of ours is raised in them; `restore` leaves no trace."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

_NOTHING = object()
Told = Callable[..., object]
"""Called with what a method was called with, by position and by name; after it with its result before these."""


class Wraps:
    """What was replaced on which object. `failed` is told of whatever goes wrong with us."""

    def __init__(self, failed: Callable[[Exception], object]):
        self._failed = failed
        self._kept: list[tuple[Any, str, Any]] = []

    def wrap(self, owner: Any, name: str, *, before: Told | None = None, after: Told | None = None) -> None:
        """Have `before(*args, **kwargs)` and `after(result, *args, **kwargs)` called around the method."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if before is not None:
                self._quietly(before, *args, **kwargs)
            result = original(*args, **kwargs)
            if after is not None:
                self._quietly(after, result, *args, **kwargs)
            return result

        self.replace(owner, name, wrapped)

    def replace(self, owner: Any, name: str, made: Any) -> None:
        """Put something else in its place."""
        self._kept.append((owner, name, vars(owner).get(name, _NOTHING)))
        setattr(owner, name, made)

    def _quietly(self, told: Told, *args: Any, **kwargs: Any) -> None:
        try:
            told(*args, **kwargs)
        except StopAsked:
            raise
        except Exception as error:
            self._failed(error)

    def restore(self) -> None:
        """Everything as it was, the last replaced first."""
        while self._kept:
            owner, name, before = self._kept.pop()
            if before is _NOTHING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)


class StopAsked(Exception):
    """The person asked for the run to stop at a bug, and the trainer has no other way to be asked."""
