"""Bugs that show only in how lines stand together: what a loop computes anew, what cancels, what a mean divides by."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from mingce.explain.snippets.evaluator import variable_of
from mingce.explain.snippets.matching import Match, Reading
from mingce.explain.snippets.roles import candidates
from mingce.explain.snippets.shapes import Shape, is_old, names_in, targets_of, value_of

_MODEL_CALL = re.compile(r"(?:self\.)?(?:\w*_)?(?:actor|policy|model|net)\w*(?:\.\w+)?\(")
_CRITIC_CALL = re.compile(r"(?:self\.)?(?:\w*_)?(?:critic|value_?(?:model|net|head|fn))\w*(?:\.\w+)?\(")
_UPDATES = re.compile(r"mini_?batch|epoch|\bmbs?\b")
_STEP = re.compile(r"(?:opt\w*|\w*optim\w*)\.step\(")
_ON_POLICY = re.compile(r"on_?policy")
_CURRENT = re.compile(
    r"当前(?:的)?策略|最新|刚.{0,4}前向|每个?\s?(?:小批|mini-?batch)|每次更新|"
    r"\b(?:current polic|latest|fresh|up.to.date|newest|(?:each|every|per) (?:mini-?batch|update))",
    re.IGNORECASE,
)
_PER_GROUP = re.compile(r"\.(?:view|reshape)\(-1, \w*(?:n|k|g|num\w*|group\w*|samples|generations)\)")
_ACROSS_PROMPTS = re.compile(r"\.(?:mean|std)\((?:dim=|axis=)?0[,)]")


def across(reading: Reading, said: str) -> list[Match]:
    """The lines, those that are wrong beside others with their bug; `said`: comments and the prose around the code."""
    found = []
    for match in reading.matches:
        shape = None if match.bug else _seen(match, reading, said)
        found.append(match if shape is None else replace(match, kind=shape.kind, bug=shape.bug, shape=shape))
    return found


def _seen(match: Match, reading: Reading, said: str) -> Shape | None:
    value = value_of(match.line.node)
    if value is None:
        return None
    return (
        _old_anew(match, value, reading)
        or _reward_of_current(match, value, reading, said)
        or _returns_of_trained(match, value, reading)
        or _clipped_wrongly(match, value)
        or _prediction_detached(match, value)
        or _over_prompts(match, value)
        or (_mean_of_masked(match, value) if match.kind is None else None)
    )


def _first(name: str) -> str:
    return (candidates(name) or ("",))[0]


def _role_of(match: Match) -> str:
    names = targets_of(match.line.node)
    return _first(names[0]) if names else ""


def _makers(name: str, above: list[Match]) -> list[ast.expr]:
    """The expressions that a name was assigned from, further up."""
    values = [value_of(one.line.node) for one in above if name in targets_of(one.line.node)]
    return [value for value in values if value is not None]


def _above(match: Match, reading: Reading) -> list[Match]:
    return reading.matches[: reading.matches.index(match)]


def _inside_updates(match: Match, reading: Reading) -> bool:
    """Whether a line stands in a loop that updates the policy once a turn."""
    loop = match.line.loop
    if loop is None:
        return False
    over = [one.line.node for one in reading.matches if isinstance(one.line.node, ast.For)]
    mine = [one for one in over if isinstance(one.target, ast.Name) and one.target.id == loop]
    inside = [one.line.text for one in reading.matches if one.line.loop == loop]
    named = any(_UPDATES.search(ast.unparse(one.iter).lower()) and "micro" not in ast.unparse(one.iter) for one in mine)
    return any(_STEP.search(text) for text in inside) or (named and any(".backward(" in text for text in inside))


def _old_anew(match: Match, value: ast.expr, reading: Reading) -> Shape | None:
    """The old log-probs taken from the model in training, in each minibatch anew."""
    if _role_of(match) != "old_log_probs" or not _inside_updates(match, reading):
        return None
    if any(_ON_POLICY.search(one.line.text) for one in reading.matches):
        return None
    text = ast.unparse(value)
    names = names_in(value)
    own = [name for name in names if _first(name) == "new_log_probs"]
    made_here = [one for name in own for one in _makers(name, _above(match, reading)) if isinstance(one, ast.Call)]
    called = _MODEL_CALL.match(text) and not re.search(r"old|ref", text)
    return Shape("detach", "old_each_minibatch") if made_here or called else None


def _reward_of_current(match: Match, value: ast.expr, reading: Reading, said: str) -> Shape | None:
    """A reward less a KL of the policy in training."""
    if _role_of(match) != "rewards" or len(names_in(value)) < 2:
        return None
    above = _above(match, reading)
    names = [*names_in(value), *(n for name in names_in(value) for one in _makers(name, above) for n in names_in(one))]
    if not any(_first(name) == "ref_log_probs" for name in names):
        return None
    lines = [one.line for one in reading.matches]
    current = [name for name in names if _first(name) == "new_log_probs" and not is_old(name, lines)]
    if not current:
        return None
    plainly = any(re.search("new|cur", name) for name in current) or _inside_updates(match, reading)
    return Shape("reward", "reward_of_current") if plainly or _CURRENT.search(said) else None


def _returns_of_trained(match: Match, value: ast.expr, reading: Reading) -> Shape | None:
    """`returns = adv + vpreds` with the very prediction that is regressed on them."""
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Add) or not targets_of(match.line.node):
        return None
    target = targets_of(match.line.node)[0]
    if _first(target) != "returns":
        return None
    below = reading.matches[reading.matches.index(match) + 1 :]
    for side in (value.left, value.right):
        name = variable_of(side)
        if name is None or not ({"new_values", "values"} & set(candidates(name))):
            continue
        made = [ast.unparse(one) for one in _makers(name, _above(match, reading))]
        trained = any(_CRITIC_CALL.match(text) and not text.endswith(".detach()") for text in made)
        pair = (
            rf"\b{re.escape(name)} - {target}\b|\b{target} - {re.escape(name)}\b|mse_loss\({re.escape(name)}, {target}"
        )
        used = any(re.search(pair, ast.unparse(one.line.node)) for one in below if value_of(one.line.node) is not None)
        if used and (trained or _first(name) == "new_values"):
            return Shape("returns", "returns_of_trained")
    return None


def _clipped_wrongly(match: Match, value: ast.expr) -> Shape | None:
    """The clip around 1 of a product or of a log-ratio, instead of the ratio."""
    for node in ast.walk(value):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr not in ("clamp", "clip"):
            continue
        module = getattr(node.func.value, "id", "") in ("torch", "np")
        operand = node.args[0] if module and node.args else node.func.value
        bounds = " ".join(ast.unparse(one) for one in (*node.args[int(module) :], *(k.value for k in node.keywords)))
        if not re.search(r"\b1(?:\.0)? - |\b0?\.[5-9]\d*\b", bounds):
            continue
        roles = {_first(name) for name in names_in(operand)}
        product = isinstance(operand, ast.BinOp) and isinstance(operand.op, ast.Mult)
        if product and roles >= {"ratio", "advantages"}:
            return Shape("pg_clipped" if _role_of(match) == "pg_clipped" else "pg_loss", "clip_of_product")
        logs = {"new_log_probs", "old_log_probs"} <= roles and isinstance(operand, ast.BinOp)
        if logs or (variable_of(operand) and roles == {"log_ratio"}):
            return Shape("clipped_ratio", "clip_of_log_ratio")
    return None


def _prediction_detached(match: Match, value: ast.expr) -> Shape | None:
    """`(vpreds.detach() - returns)**2`: nothing is left to be trained."""
    for node in ast.walk(value):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            for one, other in ((node.left, node.right), (node.right, node.left)):
                cut = isinstance(one, ast.Call) and ast.unparse(one).endswith(".detach()")
                against = variable_of(other)
                if not cut or against is None or _first(against) != "returns":
                    continue
                if any("new_values" in candidates(name) for name in names_in(one)):
                    return Shape("vf_plain" if _role_of(match) == "vf_plain" else "vf_loss", "value_detached")
    return None


def _over_prompts(match: Match, value: ast.expr) -> Shape | None:
    """`rewards.view(-1, n).mean(0)`: over the prompts, not over the answers of one."""
    text = ast.unparse(value)
    if _PER_GROUP.search(text) and _ACROSS_PROMPTS.search(text):
        return Shape("group_std" if ".std(" in text else "group_mean", "group_axis")
    return None


# ── means ────────────────────────────────────────────────────────────────────────────────────────────────────────────

_MEANS = (("vf_loss", {"returns", "new_values", "vf_plain", "vf_max"}), ("entropy_mean", {"entropies"}))


def _mean_of_masked(match: Match, value: ast.expr) -> Shape | None:
    """`(x * mask).mean()` and nothing that makes up for the mask."""
    for node in ast.walk(value):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and _has_mask(node.right):
            return None
    operands = [one for one in _averaged(value) if any(_is_mask(factor) for factor in _factors(one))]
    if not operands:
        return None
    roles = {_first(name) for name in [*names_in(value), *targets_of(match.line.node)]}
    kind = next((kind for kind, wanted in _MEANS if roles & wanted), "pg_loss")
    return Shape(kind, "mean_over_padding")


def _averaged(value: ast.expr) -> Iterator[ast.expr]:
    """What `x.mean()` and `torch.mean(x)` average over everything."""
    for node in ast.walk(value):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "mean":
            module = getattr(node.func.value, "id", "") in ("torch", "np")
            if module and len(node.args) == 1:
                yield node.args[0]
            elif not module and not node.args and not node.keywords:
                yield node.func.value


def _factors(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*_factors(node.left), *_factors(node.right)]
    return [node]


def _is_mask(node: ast.expr) -> bool:
    name = variable_of(node)
    return name is not None and candidates(name)[:1] == ("response_mask",)


def _has_mask(node: ast.expr) -> bool:
    return any(candidates(name)[:1] == ("response_mask",) for name in names_in(node))


def is_plain_mean(value: ast.expr | None) -> bool:
    """Whether a line averages over all slots with no mask in sight."""
    return value is not None and any(True for _ in _averaged(value)) and not _has_mask(value)
