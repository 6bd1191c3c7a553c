"""What a bug gives and what it should, where the line cannot be run by itself: worked by hand on the example."""

from __future__ import annotations

from mingce.explain.snippets.running import Scene


def _shifted_values(one: Scene) -> tuple[list[float], list[float]] | None:
    values = one.environment["values"].numbers()
    return (values[1:2] or [0.0], values[:1]) if values else None


def _forward(one: Scene) -> tuple[list[float], list[float]] | None:
    """The recursion run from the front: what comes out, and what should."""
    here = one.environment
    decay = here["gamma"].number() * here["lam"].number()
    carried, wrong = 0.0, []
    for delta in here["deltas"].numbers():
        carried = delta + decay * carried
        wrong.append(carried)
    return wrong, here["advantages"].numbers()


def _turned(one: Scene) -> tuple[list[float], list[float]] | None:
    right = one.environment["advantages"].numbers()
    return right[::-1], right


def _negated(one: Scene) -> tuple[list[float], list[float]] | None:
    right = one.environment["kl"].numbers() if "kl" in one.environment else []
    return ([-x for x in right], right) if right else None


def _cancelled(one: Scene) -> tuple[list[float], list[float]] | None:
    right = one.environment["ratio"].numbers()
    return [0.0] * len(right), right


BY_HAND = {
    "slice_late": _shifted_values, "loop_forward": _forward, "list_not_reversed": _turned, "kl_arguments": _negated,
    "old_not_detached": _cancelled,
}  # fmt: skip
"""By the bug: its numbers and the right ones."""
