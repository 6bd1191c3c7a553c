"""Bugs that show only beside other lines, or in the writing of a line whose numbers are right."""

from __future__ import annotations

import ast
from dataclasses import replace

from mingce.explain.snippets.matching import Match, Reading
from mingce.explain.snippets.roles import INDICES, candidates
from mingce.explain.snippets.shapes import names_in, targets_of, value_of
from mingce.explain.snippets.together import across, is_plain_mean

_SUMMED = {"pg_loss": "mean_unmasked", "vf_loss": "mean_unmasked", "whiten": "whiten_unmasked"}
_STANDARDISED = {"group_norm", "group_scale", "whiten"}
_LOSSES = {"clip_of_product", "clip_missing_min", "value_loss_min", "min_in_loss", "max_in_objective", "loss_sign"}
"""Bugs beside which a plain mean is worth a word."""
_CARRYING = {"gae_step", "discounted_return", "carry_advantage"}


def judged(reading: Reading, said: str = "") -> Reading:
    """With the bugs that are seen only from several lines, or from the writing of a line of a known kind.

    `said` is what stands around the code: its comments and the prose.
    """
    reading = Reading(across(reading, said), reading.roles, reading.flat)
    names = {name for match in reading.matches for name in names_in(value_of(match.line.node))}
    masked = any({"response_mask", "padding_mask"} & set(candidates(name)) for name in names)
    matches = []
    for match in reading.matches:
        bug = match.bug
        if bug is None and match.note == "unmasked" and masked:
            bug = _SUMMED.get(match.kind or "")
            here = names_in(value_of(match.line.node))
            if bug == "mean_unmasked" and any(candidates(name)[:1] == ("response_mask",) for name in here):
                bug = "mean_over_padding"
        if bug is None and match.kind in _STANDARDISED and _divides_bare(value_of(match.line.node)):
            bug = "std_without_epsilon"
        if bug is None and match.kind == "loop" and isinstance(match.line.node, ast.For):
            bug = "loop_forward" if _carries(match.line.node, reading) else None
        if bug is not None and match.shape is None and _is_unclear(match, reading):
            bug = None
        plain = bug in _LOSSES and is_plain_mean(value_of(match.line.node))
        matches.append(replace(match, bug=bug, note="unmasked" if plain else match.note))
    return Reading(matches, reading.roles, reading.flat)


def _is_unclear(match: Match, reading: Reading) -> bool:
    """Whether a line rests on another that is not recognised: then nothing is held against it."""
    names, seen = set(names_in(value_of(match.line.node))), set[str]()
    above = reading.matches[: reading.matches.index(match)]
    while names - seen:
        seen |= names
        makers = [one for one in above if names & set(targets_of(one.line.node))]
        if any(one.kind is None and value_of(one.line.node) is not None for one in makers):
            return True
        names = {name for one in makers for name in names_in(value_of(one.line.node))}
    return False


def _carries(loop: ast.For, reading: Reading) -> bool:
    """Whether a loop over tokens passes something on from one turn to the next."""
    name = loop.target.id if isinstance(loop.target, ast.Name) else ""
    inside = [one.line.node for one in reading.matches if one.line.loop == name and one.kind in _CARRYING]
    return name in INDICES and any(set(targets_of(node)) & set(names_in(value_of(node))) for node in inside)


def _divides_bare(value: ast.expr | None) -> bool:
    """A division by a standard deviation alone: nothing is added to it, nothing holds it up."""
    for node in ast.walk(value) if value is not None else ():
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            below = ast.unparse(node.right)
            if "std" in below.lower() or "sigma" in below.lower():
                return not any(sign in below for sign in ("+", "clamp", "max", "eps", "clip"))
    return False
