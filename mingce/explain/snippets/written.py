"""More lines that are recognised by how they are written: groups in a second dimension, whose model it is, updates."""

from __future__ import annotations

import ast
import re

from mingce.explain.snippets.reading import Line
from mingce.explain.snippets.roles import candidates
from mingce.explain.snippets.shapes import Shape, targets_of, value_of

_ACROSS = re.compile(
    r"\((?P<name>\w+) - (?P=name)\.mean\((?:dim=)?-?1, keepdim=True\)\) / "
    r"(?P<below>\(?(?P=name)\.std\((?:dim=)?-?1, (?:unbiased=\w+, )?keepdim=True\).*)"
)
_HELD_UP = re.compile(r"\+|clamp|max|eps|clip")
_OF_POLICY = re.compile(r"(?:self\.)?(?:\w*_)?(?:actor|policy|model)\w*(?:\.\w+)?\(")
_LOG_PROBS_OF = re.compile(r"log_?p|forward")
_SWAPPED = re.compile(r"\b1(?:\.0)? - [\w.]*(?:high|upper)\b.*\b1(?:\.0)? \+ [\w.]*(?:low|lower)\b")
_LAST_POSITION = re.compile(
    r"(?P<mask>\w+)\.(?:size\(-?1\)|shape\[-?1\]) - 1 - "
    r"(?P=mask)(?:\.\w+\(\))*\.(?:fliplr\(\)|flip\([^()]*\))\.argmax\(.*\)"
)
_VALUE_CLIP = re.compile(
    r"(?:torch\.(?:clamp|clip)\((?P<one>\w+), |(?P<other>\w+)\.(?:clamp|clip)\()"
    r"(?:min=)?(?P<old>[\w.]+) - (?P<range>\d*\.\d+), (?:max=)?(?P=old) \+ (?P=range)\)"
)
_CLIPPED = re.compile(r"\b(?:clamp|clip)\(")
_UPDATE = re.compile(r"(?:\w+\.)*(?:opt\w*|\w*optim\w*)\.(?:step|zero_grad)\(.*\)")


def written(line: Line, everything: list[Line]) -> Shape | None:
    """What a line is by its writing, where `shapes` says nothing."""
    value, targets = value_of(line.node), targets_of(line.node)
    if value is None:
        return None
    text = ast.unparse(value)
    if not targets:
        return _update(line, text, everything)
    last = _LAST_POSITION.fullmatch(text)
    if last is not None and candidates(last["mask"])[:1] == ("response_mask",):
        return Shape("last_position")
    clipped = _VALUE_CLIP.fullmatch(text)
    if clipped is not None and _is_value_clip(clipped):
        return Shape("value_clip")
    across = _ACROSS.fullmatch(text)
    if across is not None:
        return Shape("group_norm", None if _HELD_UP.search(across["below"]) else "std_without_epsilon")
    if candidates(targets[0])[:1] == ("ref_log_probs",) and _is_the_policys(text, everything):
        return Shape("ref_log_probs", "ref_is_policy")
    if _CLIPPED.search(text) and _SWAPPED.search(text):
        return Shape("clipped_ratio", "clip_sides_swapped")
    return None


def _is_value_clip(found: re.Match[str]) -> bool:
    """The new value within a range, given as a number, around the old one."""
    new, old = found["one"] or found["other"], found["old"].rpartition(".")[2]
    return "new_values" in candidates(new) and candidates(old)[:1] == ("values",) and new != old


def _is_the_policys(text: str, everything: list[Line]) -> bool:
    """`actor.compute_log_prob(batch)` for the reference; with the adapter switched off it would be the base model."""
    if "ref" in text.lower() or not _OF_POLICY.match(text) or not _LOG_PROBS_OF.search(text):
        return False
    return not any("disable_adapter" in one.text or "adapter_name" in one.text for one in everything)


def _update(line: Line, text: str, everything: list[Line]) -> Shape | None:
    """An optimizer's step within a loop over micro-batches: no gradients are accumulated."""
    if not _UPDATE.fullmatch(text):
        return None
    loops = [one.node for one in everything if isinstance(one.node, ast.For)]
    micro = [one for one in loops if "micro" in ast.unparse(one.iter)]
    inside = [one for one in micro if isinstance(one.target, ast.Name) and one.target.id == line.loop]
    if inside:
        return Shape("optimizer_step", "step_each_micro" if ".step(" in text else None)
    return Shape("optimizer_step") if micro else None
