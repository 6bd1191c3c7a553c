"""Lines that are recognised by how they are written: loops, lists, slices, masks; and bugs that only show there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from mingce.explain.snippets.evaluator import variable_of
from mingce.explain.snippets.reading import Line
from mingce.explain.snippets.roles import candidates

PROMPT, RESPONSE = 4, 3
"""Lengths that a slice is tried with."""
_PROMPT_LENGTH = re.compile(
    r"(?:context|prompt|query|input|prefix|max_prompt)_?(?:len|length)(?:s|gth)?|prompt_size|p_len"
)
_RESPONSE_LENGTH = re.compile(
    r"(?:response|resp|gen|completion|action|answer|output|max_response)_?(?:len|length|size)|num_actions|n_actions|logits_to_keep|T|L|R|gen_len"
)
_STATES = {"values", "new_values", "logits", "entropies"}
_TOKENS = {"token_ids", "response_mask", "padding_mask"}
_LOG_PROBS = {"new_log_probs", "old_log_probs", "ref_log_probs"}


_MODES = {"loss_agg_mode", "kl_penalty", "token_level_loss", "dtype", "device", "reduction", "inplace_backward", None}
"""Arguments that are no numbers; None is what `**` passes on."""


class Shape(NamedTuple):
    """A kind seen from the writing, the bug if it has one, and what its slice takes."""

    kind: str
    bug: str | None = None
    note: str | None = None
    positions: tuple[int, ...] = ()
    wanted: tuple[int, ...] = ()


def targets_of(node: ast.stmt) -> list[str]:
    """The names that a statement assigns to."""
    if isinstance(node, ast.Assign):
        places: list[ast.expr] = list(node.targets)
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        places = [node.target]
    else:
        return []
    found = []
    for place in places:
        for one in place.elts if isinstance(place, ast.Tuple) else [place]:
            name = variable_of(one)
            if name is None and isinstance(one, ast.Subscript):
                name = variable_of(one.value)
            if name:
                found.append(name)
    return found


def value_of(node: ast.stmt) -> ast.expr | None:
    """The expression of a statement; an augmented assignment is written out."""
    if isinstance(node, ast.AugAssign):
        return ast.BinOp(left=node.target, op=node.op, right=node.value)
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.Return | ast.Expr):
        return node.value
    return None


def names_in(node: ast.AST | None) -> list[str]:
    """The variables read in an expression, each once, in order."""
    found: dict[str, None] = {}

    def visit(one: ast.AST) -> None:
        parts: list[ast.AST]
        if isinstance(one, ast.Call):
            target = one.func
            if isinstance(target, ast.Attribute):
                visit(target.value)
            parts = [*one.args, *(key.value for key in one.keywords if key.arg not in _MODES)]
            for part in parts:
                visit(part)
            return
        name = variable_of(one)
        if name is not None:
            found[name] = None
            return
        if isinstance(one, ast.Attribute):
            visit(one.value)
            return
        parts = list(ast.iter_child_nodes(one))
        for part in parts:
            visit(part)

    if node is not None:
        visit(node)
    return list(found)


def shape_of(line: Line, before: list[Line], everything: list[Line]) -> Shape | None:
    """What a line is by its writing alone; None if its numbers must say."""
    node = line.node
    if isinstance(node, ast.For):
        return _loop(node)
    value, targets = value_of(node), targets_of(node)
    if value is None:
        return None
    return (
        _slice(line, value, targets, before, everything)
        or _assigned(line, value, targets, before, everything)
        or _called(line, value, targets, before, everything)
    )


def _loop(node: ast.For) -> Shape:
    return Shape("loop_reversed" if is_reversed(node.iter) else "loop")


def is_reversed(node: ast.expr) -> bool:
    """`reversed(…)`, `range(T - 1, -1, -1)`, `range(T)[::-1]`."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        return node.slice.step is not None and "-1" in ast.unparse(node.slice.step)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    if node.func.id == "range":
        return len(node.args) == 3 and ast.unparse(node.args[2]) == "-1"
    return node.func.id == "reversed"


def _role(name: str | None) -> str:
    return (candidates(name) or ("",))[0] if name else ""


# ── assignments ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _assigned(
    line: Line, value: ast.expr, targets: list[str], before: list[Line], everything: list[Line]
) -> Shape | None:
    node = line.node
    if not targets:
        return None
    if isinstance(value, ast.Constant) and value.value == 0 and not isinstance(value.value, bool):
        return Shape("carry_init")
    if isinstance(value, ast.List) and not value.elts:
        return Shape("list_init")
    if isinstance(value, ast.Subscript) and isinstance(value.value, ast.Attribute) and value.value.attr == "shape":
        return Shape("length")
    store = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    stores = isinstance(store, ast.Subscript) and variable_of(store) is None
    plain = value.right if isinstance(node, ast.AugAssign) and isinstance(value, ast.BinOp) else value
    name = variable_of(plain)
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div) and _role(targets[0]) == "logits":
        return Shape("temperature")
    if stores and name and isinstance(store, ast.Subscript) and isinstance(store.slice, ast.Tuple):
        if _role(name) in ("scores", "group_scores", "rewards") and not _has_slice(store.slice):
            return Shape("score_place")
        return Shape("append")
    if stores and name:
        return Shape("append")
    if _copies_new(targets[0], value, everything):
        return Shape("detach", "old_not_detached")
    mask = _masked(value)
    if mask:
        return Shape("mask_column")
    return None


def _has_slice(node: ast.AST) -> bool:
    return any(isinstance(one, ast.Slice) for one in ast.walk(node))


def _copies_new(target: str, value: ast.expr, everything: list[Line]) -> bool:
    """`old_log_prob = log_prob`: the old policy is the very tensor that is trained."""
    name = variable_of(value)
    is_new = name is not None and _role(name) == "new_log_probs" and not is_old(name, everything)
    return is_new and _role(target) == "old_log_probs"


def is_old(name: str, lines: list[Line]) -> bool:
    """Whether the same code has another name for the new log-probs: then this one is the old policy's."""
    others = {one for line in lines for one in names_in(value_of(line.node))} - {name}
    return any(candidates(one)[:1] == ("new_log_probs",) and re.search("new|cur", one) for one in others)


def _masked(value: ast.expr) -> bool:
    """`x * response_mask` with both names bare."""
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Mult):
        return False
    names = [variable_of(value.left), variable_of(value.right)]
    if None in names:
        return False
    roles = [_role(one) for one in names]
    return roles.count("response_mask") == 1 and "" not in roles


# ── calls ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _called(
    line: Line, value: ast.expr, targets: list[str], before: list[Line], everything: list[Line]
) -> Shape | None:
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _PASSED:
        inner = value.func.value
        if value.func.attr == "detach" and targets and _role(targets[0]) == "old_log_probs":
            return Shape("detach")
        if value.func.attr == "clone" and targets and _copies_new(targets[0], inner, everything):
            return Shape("detach", "old_not_detached")
        if not isinstance(inner, ast.Call):
            break
        value = inner
    if not isinstance(value, ast.Call):
        return None
    name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
    recognise = _CALLS.get(name)
    return None if recognise is None else recognise(value, targets, everything)


_PASSED = {"detach", "float", "contiguous", "to", "clone"}


def _append(call: ast.Call, targets: list[str], everything: list[Line]) -> Shape | None:
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if isinstance(owner, ast.Subscript):
        roles = {role for one in call.args for name in names_in(one) for role in candidates(name)}
        return Shape("group_collect") if roles & {"group_scores", "group_lengths"} else None
    return Shape("append") if owner is not None and variable_of(owner) and not targets else None


def _stack(call: ast.Call, targets: list[str], everything: list[Line]) -> Shape | None:
    if not call.args:
        return None
    text = ast.unparse(call.args[0])
    if "[::-1]" in text or "reversed(" in text or "flip" in text:
        return Shape("stack_reversed")
    name = variable_of(call.args[0])
    if name is None or _role(name) == "group_scores":
        return None
    appended = any(one.text.startswith(f"{name}.append(") for one in everything)
    backwards = any(isinstance(one.node, ast.For) and is_reversed(one.node.iter) for one in everything)
    turned = any(f"{name}.reverse()" in one.text or f"{name}.insert(0" in one.text for one in everything)
    if "rev" in name or (appended and backwards):
        return Shape("stack_reversed", None if turned else "list_not_reversed")
    return None


def _clamped(call: ast.Call, targets: list[str], everything: list[Line]) -> Shape | None:
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    operand = call.args[0] if owner is None or getattr(owner, "id", "") in ("torch", "np") else owner
    given = [*call.args[1:]] if operand is not owner else [*call.args]
    bounds = [one for one in (*given, *(key.value for key in call.keywords)) if not _is_none(one)]
    numbers = [_number(one) for one in bounds]
    if variable_of(operand) and numbers and all(n is not None and abs(n) >= 5 for n in numbers):
        return Shape("clamp_safety")
    return None


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _number(node: ast.expr) -> float | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    return None


def _filled(call: ast.Call, targets: list[str], everything: list[Line]) -> Shape | None:
    return Shape("fill_log_probs" if targets and _role(targets[0]) in _LOG_PROBS else "fill_padding")


def _zeros(call: ast.Call, targets: list[str], everything: list[Line]) -> Shape | None:
    return Shape("zeros") if targets else None


def _scatter(call: ast.Call, targets: list[str], everything: list[Line]) -> Shape | None:
    return Shape("score_place")


def _length(call: ast.Call, targets: list[str], everything: list[Line]) -> Shape | None:
    return Shape("length") if targets else None


def _divided(call: ast.Call, targets: list[str], everything: list[Line]) -> Shape | None:
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return Shape("temperature") if owner is not None and _role(variable_of(owner)) == "logits" else None


def _penalty(call: ast.Call, targets: list[str], everything: list[Line]) -> Shape | None:
    given = [*call.args, *(key.value for key in call.keywords if key.arg in ("logprob", "ref_logprob"))]
    roles = [_role(variable_of(one)) for one in given if variable_of(one)]
    if len(roles) >= 2 and roles[0] == "ref_log_probs" and roles[1] in ("old_log_probs", "new_log_probs"):
        return Shape("kl_k1", "kl_arguments")
    return None


_CALLS = {
    "append": _append, "insert": _append, "stack": _stack, "clamp": _clamped, "clip": _clamped, "masked_fill": _filled,
    "masked_fill_": _filled, "zeros_like": _zeros, "zeros": _zeros, "scatter_": _scatter, "size": _length,
    "len": _length,
    "div_": _divided, "kl_penalty": _penalty, "kl_penalty_forward": _penalty, "compute_approx_kl": _penalty,
}  # fmt: skip


# ── slices ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _slice(line: Line, value: ast.expr, targets: list[str], before: list[Line], everything: list[Line]) -> Shape | None:
    for one in _subscripts(value):
        name, part = one
        role = _role(name)
        if role not in _STATES | _TOKENS | _LOG_PROBS:
            continue
        taken = _taken(part)
        if taken is None:
            continue
        return _judged(role, taken, _is_shifted(name, value, before), part)
    return None


def _subscripts(value: ast.AST) -> Iterator[tuple[str, ast.Slice]]:
    """Slices of the second dimension with the name they are taken of."""
    for node in ast.walk(value):
        if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Tuple):
            continue
        parts = [one for one in node.slice.elts if not _is_none(one)]
        whole = parts and (
            (isinstance(parts[0], ast.Slice) and parts[0].lower is None and parts[0].upper is None)
            or (isinstance(parts[0], ast.Constant) and parts[0].value is Ellipsis)
        )
        if len(parts) < 2 or not whole or not isinstance(parts[1], ast.Slice):
            continue
        name = _owner(node.value)
        if name:
            yield name, parts[1]


def _owner(node: ast.expr) -> str | None:
    """The variable before `.squeeze(-1)` and the like."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    return variable_of(node)


def _taken(part: ast.Slice) -> tuple[int, ...] | None:
    if part.step is not None or (part.lower is None and part.upper is None):
        return None
    try:
        lower, upper = (None if one is None else _bound(one) for one in (part.lower, part.upper))
    except (ValueError, RecursionError):
        return None
    return tuple(range(PROMPT + RESPONSE)[lower:upper])


def _bound(node: ast.expr) -> int:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        left, right = _bound(node.left), _bound(node.right)
        return left + right if isinstance(node.op, ast.Add) else left - right
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_bound(node.operand)
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) <= 2:
        return node.value
    name = variable_of(node)
    if name and _PROMPT_LENGTH.fullmatch(name):
        return PROMPT
    if name and _RESPONSE_LENGTH.fullmatch(name):
        return RESPONSE
    raise ValueError


def _is_shifted(name: str, value: ast.expr, before: list[Line]) -> bool:
    """Whether the last position was cut off before: `values[:, :-1]`."""
    pattern = re.compile(r"\[(?::|\.\.\.), ?:-1(?:, ?:)?\]")
    return any(pattern.search(one.text) and name in one.text for one in before) or bool(
        pattern.search(ast.unparse(value))
    )


def _judged(role: str, taken: tuple[int, ...], shifted: bool, part: ast.Slice) -> Shape:
    states = tuple(range(PROMPT - 1, PROMPT + RESPONSE - 1))
    tokens = tuple(range(PROMPT, PROMPT + RESPONSE))
    if taken in (tuple(range(PROMPT + RESPONSE - 1)), tuple(range(1, PROMPT + RESPONSE))):
        return Shape("slice_shift", None, None, taken, taken)
    if role in _TOKENS:
        if taken == tokens:
            return Shape("slice_token", None, None, taken, tokens)
        note = "mask_of_states" if taken == states else None
        return Shape("slice_token", None, note, taken, tokens)
    if taken == states:
        return Shape("slice_state", None, None, taken, states)
    if shifted or role in _LOG_PROBS or "logits_to_keep" in ast.unparse(part):
        return Shape("slice_state", None, "already_shifted", taken, states)
    if taken == tokens:
        return Shape("slice_state", "slice_late", None, taken, states)
    bug = "slice_length" if len(taken) != RESPONSE else "slice_early"
    return Shape("slice_state", bug, None, taken, states)
