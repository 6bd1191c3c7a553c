"""A safe evaluator for pasted expressions: it walks their syntax tree over small tensors and knows a list of names.

Nothing of the pasted text is executed: an operation is looked up in `functions.FUNCTIONS`,
a variable in what the caller
offers, and anything else is an EvaluationError. Steps are counted, so that every input ends.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mingce.explain.snippets import arithmetic as do
from mingce.explain.snippets.functions import FUNCTIONS, masked_mean, masked_sum
from mingce.explain.snippets.tensor import EvaluationError, Index, Tensor, elementwise, indexed, scalar, size_of

MODULES = {
    "torch", "np", "numpy", "jnp", "jax", "F", "math", "nn", "functional", "verl_F", "core_algos", "utils", "linalg",
}  # fmt: skip
_SHAPES = {"shape"}
_CONSTANTS = {"inf", "pi", "e", "dtype", "device", "float32", "float16", "bfloat16", "long"}
_PICKED = re.compile(r"\w*(?:_inds|_indices|_idxs|inds|indices|perm|_slice)")
"""Names of rows that were picked out of a batch: which ones does not matter here."""
Lookup = Callable[[str, bool], Any]
"""A variable's value by name; the flag says that it stands alone, without an index."""


@dataclass(frozen=True)
class Whole:
    """A value that an index does not change: one number a sample, where the index says whose."""

    value: Tensor


class Budget:
    """How many more steps may be taken."""

    def __init__(self, steps: int = 60_000) -> None:
        self.left = steps

    def spend(self, steps: int = 1) -> None:
        """Takes steps away; none left is an error."""
        self.left -= steps
        if self.left < 0:
            raise EvaluationError("too many steps")


def variable_of(node: ast.AST) -> str | None:
    """The variable that a name, `args.gamma` or `batch["values"]` stands for; None if it is none of them."""
    if isinstance(node, ast.Name):
        return None if node.id in MODULES else node.id
    if isinstance(node, ast.Attribute):
        if node.attr in _SHAPES | _CONSTANTS or not _is_chain(node.value):
            return None
        return node.attr
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        return node.slice.value if _is_chain(node.value) else None
    return None


def _is_chain(node: ast.AST) -> bool:
    depth = 0
    while isinstance(node, ast.Attribute) and depth < 8:
        node, depth = node.value, depth + 1
    if isinstance(node, ast.Subscript):
        return variable_of(node) is not None
    return isinstance(node, ast.Name)


def function_of(call: ast.Call) -> tuple[str, ast.expr | None]:
    """The called name, and the object before the dot if it is a method of one."""
    target = call.func
    if isinstance(target, ast.Name):
        return target.id, None
    if isinstance(target, ast.Attribute):
        root: ast.AST = target.value
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and root.id in MODULES:
            return target.attr, None
        return target.attr, target.value
    raise EvaluationError("such a call is not evaluated")


class Evaluator:
    """Evaluates expressions with the variables that `lookup` knows."""

    def __init__(self, lookup: Lookup, budget: Budget) -> None:
        self.lookup, self.budget = lookup, budget

    def value(self, node: ast.AST | None) -> Any:
        """A tensor, a list of them, a text or None."""
        self.budget.spend()
        if node is None:
            return None
        name = variable_of(node)
        if name is not None:
            return self.lookup(name, True)
        evaluate = getattr(self, f"_{type(node).__name__.lower()}", None)
        if evaluate is None:
            raise EvaluationError(f"{type(node).__name__} is not evaluated")
        try:
            return evaluate(node)
        except (OverflowError, ZeroDivisionError) as error:
            raise EvaluationError("not a finite number") from error

    def tensor(self, node: ast.AST) -> Tensor:
        """The same as a tensor."""
        found = do.as_tensor(self.value(node))
        self.budget.spend(len(found.data))
        return found

    def whole(self, node: ast.AST) -> int:
        """A whole number, such as an index."""
        number = self.tensor(node).number()
        if number != int(number) or abs(number) > 1e6:
            raise EvaluationError("not a whole number")
        return int(number)

    def _constant(self, node: ast.Constant) -> Any:
        if node.value is None or isinstance(node.value, str):
            return node.value
        if isinstance(node.value, bool | int | float) and abs(node.value) < do.LIMIT:
            return scalar(float(node.value))
        raise EvaluationError("such a constant is not evaluated")

    def _attribute(self, node: ast.Attribute) -> Any:
        raise EvaluationError("such an attribute is not evaluated")

    def _binop(self, node: ast.BinOp) -> Any:
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(left, list) and isinstance(right, list) and isinstance(node.op, ast.Add):
            size_of((len(left) + len(right),))
            return left + right
        operation = do.BINARY.get(type(node.op).__name__)
        if operation is None:
            raise EvaluationError("such an operator is not evaluated")
        found = elementwise(operation, do.as_tensor(left), do.as_tensor(right))
        self.budget.spend(len(found.data))
        return found

    def _unaryop(self, node: ast.UnaryOp) -> Tensor:
        inner = self.tensor(node.operand)
        if isinstance(node.op, ast.USub):
            return do.neg(inner)
        if isinstance(node.op, ast.UAdd):
            return inner
        return elementwise(lambda a: (float(not a[0]), 0.0), inner)

    def _compare(self, node: ast.Compare) -> Tensor:
        if len(node.ops) != 1:
            raise EvaluationError("a chain of comparisons")
        operation = do.BINARY.get(type(node.ops[0]).__name__)
        if operation is None:
            if isinstance(node.ops[0], ast.Is | ast.IsNot):
                same = self.value(node.left) is self.value(node.comparators[0])
                return scalar(float(same == isinstance(node.ops[0], ast.Is)))
            raise EvaluationError("such a comparison is not evaluated")
        return elementwise(operation, self.tensor(node.left), self.tensor(node.comparators[0]))

    def _ifexp(self, node: ast.IfExp) -> Any:
        try:
            test = bool(self.tensor(node.test).number())
        except EvaluationError as error:
            if "index" in str(error):
                raise
            test = True  # a setting that is not known: the first of the two
        return self.value(node.body if test else node.orelse)

    def _list(self, node: ast.List) -> list[Any]:
        return [self.value(one) for one in node.elts]

    def _tuple(self, node: ast.Tuple) -> list[Any]:
        return [self.value(one) for one in node.elts]

    def _subscript(self, node: ast.Subscript) -> Any:
        base = node.value
        if isinstance(base, ast.Attribute) and base.attr in _SHAPES:
            inner = self._unsliced(base.value)
            shape, k = do.as_tensor(inner).shape, self.whole(node.slice)
            if not -len(shape) <= k < len(shape):
                raise EvaluationError("no such dimension")
            return scalar(shape[k])
        whole = self._unsliced(base)
        indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if isinstance(node.slice, ast.Name) and _PICKED.fullmatch(node.slice.id) and isinstance(whole, Tensor):
            return whole
        if isinstance(whole, Whole):
            if isinstance(node.slice, ast.Tuple | ast.Slice):
                raise EvaluationError("one number a sample has no tokens")
            return whole.value
        if isinstance(whole, list):
            return self._of_list(whole, indices)
        return indexed(do.as_tensor(whole), self._indices(do.as_tensor(whole), indices))

    def _unsliced(self, node: ast.AST) -> Any:
        name = variable_of(node)
        if name is not None:
            return self.lookup(name, False)
        whole = self.value(node)
        return whole.value if isinstance(whole, Whole) else whole

    def _of_list(self, whole: list[Any], indices: list[ast.expr]) -> Any:
        if len(indices) != 1:
            raise EvaluationError("too many indices")
        index = self._index(indices[0])
        try:
            return whole[index] if isinstance(index, int | slice) else whole
        except IndexError:
            raise EvaluationError("index past the end") from None

    def _indices(self, whole: Tensor, nodes: list[ast.expr]) -> list[Index]:
        found: list[Index] = []
        for node in nodes:
            if isinstance(node, ast.Constant) and node.value is Ellipsis:
                found += [slice(None)] * (len(whole.shape) - len(nodes) + 1)
            else:
                found.append(self._index(node))
        return found

    def _index(self, node: ast.expr) -> Index:
        if isinstance(node, ast.Slice):
            bounds = (None if one is None else self.whole(one) for one in (node.lower, node.upper, node.step))
            lower, upper, step = bounds
            if step == 0:
                raise EvaluationError("a step of zero")
            return slice(lower, upper, step)
        if isinstance(node, ast.Constant) and node.value is None:
            return None
        return self.whole(node)

    def _call(self, node: ast.Call) -> Any:
        name, owner = function_of(node)
        special = _SPECIAL.get(name)
        if special is not None and owner is None:
            return special(self, node)
        function = FUNCTIONS.get(name)
        if function is None or any(isinstance(one, ast.Starred) for one in node.args):
            raise EvaluationError(f"{name} is not evaluated")
        arguments = [self.value(one) for one in ([owner] if owner is not None else []) + node.args]
        named = {key.arg: self.value(key.value) for key in node.keywords if key.arg}
        return self.apply(name, function, arguments, named)

    def apply(self, name: str, function: Callable[..., Tensor], arguments: list[Any], named: dict[str, Any]) -> Tensor:
        """A function of the list with what it is given."""
        if not arguments:
            keys = [
                key for key in ("values", "input", "tensor", "logits", "x", "a", "loss_mat", "loss") if key in named
            ]
            if not keys:
                raise EvaluationError("nothing is given")
            arguments = [named.pop(keys[0])]
            arguments += [named.pop(key) for key in ("mask", "labels") if key in named]
        if name not in ("stack", "append", "cat", "concatenate"):
            arguments[0] = do.as_tensor(arguments[0])
        try:
            found = function(*arguments, **named)
        except (TypeError, ValueError, IndexError, OverflowError, AttributeError) as error:
            raise EvaluationError(f"{name} with such arguments is not evaluated") from error
        self.budget.spend(len(found.data))
        return found


# ── calls that are not plain functions of tensors ────────────────────────────────────────────────────────────────────


def _length(run: Evaluator, call: ast.Call) -> Tensor:
    whole = run._unsliced(call.args[0]) if call.args else []
    whole = whole.value if isinstance(whole, Whole) else whole
    if not isinstance(whole, list | Tensor):
        raise EvaluationError("no length")
    return scalar(len(whole) if isinstance(whole, list) else (whole.shape or (0,))[0])


def _kl_penalty(run: Evaluator, call: ast.Call) -> Tensor:
    """verl's, OpenRLHF's: policy first, reference second, k1 unless a kind is named."""
    given = [*call.args, *(key.value for key in call.keywords if key.arg in _KL_ARGUMENTS)]
    kinds = [one.value for one in (*given, *(key.value for key in call.keywords)) if isinstance(one, ast.Constant)]
    tensors = [one for one in given if not isinstance(one, ast.Constant)]
    if len(tensors) < 2:
        raise EvaluationError("a KL of one distribution")
    x = do.sub(run.tensor(tensors[0]), run.tensor(tensors[1]))
    kind = next((one for one in kinds if isinstance(one, str)), "k1")
    forms = {
        "k1": lambda: x, "kl": lambda: x, "abs": lambda: FUNCTIONS["abs"](x),
        "k2": lambda: do.mul(scalar(0.5), do.square(x)), "mse": lambda: do.mul(scalar(0.5), do.square(x)),
        "k3": lambda: _k3(x), "low_var_kl": lambda: _k3(x),
    }  # fmt: skip
    if kind.removesuffix("+") not in forms:
        raise EvaluationError("such a KL is not evaluated")
    return forms[kind.removesuffix("+")]()


def _k3(x: Tensor) -> Tensor:
    return do.add(do.sub(do.exp(do.neg(x)), scalar(1.0)), x)


_KL_ARGUMENTS = {"logprob", "ref_logprob", "log_probs", "log_probs_base"}


def _agg_loss(run: Evaluator, call: ast.Call) -> Tensor:
    """verl's agg_loss: the mean over chosen tokens unless another mode is named."""
    named = {key.arg: key.value for key in call.keywords if key.arg}
    given = [*call.args]
    losses = named.get("loss_mat", named.get("loss", given[0] if given else None))
    mask = named.get("loss_mask", given[1] if len(given) > 1 else None)
    if losses is None or mask is None:
        raise EvaluationError("a loss without a mask")
    mode = named.get("loss_agg_mode", given[2] if len(given) > 2 else None)
    chosen = mode.value if isinstance(mode, ast.Constant) else "token-mean"
    matrix, kept = run.tensor(losses), run.tensor(mask)
    if chosen == "token-mean":
        return masked_mean(matrix, kept)
    if chosen == "token-sum":
        return masked_sum(matrix, kept, None)
    sums = masked_sum(matrix, kept, -1)
    if chosen == "seq-mean-token-sum":
        return do.mean(sums)
    if chosen == "seq-mean-token-mean":
        return do.mean(do.div(sums, do.total(kept, -1)))
    raise EvaluationError("such a mode is not evaluated")


_SPECIAL: dict[str, Callable[[Evaluator, ast.Call], Any]] = {
    "len": _length, "kl_penalty": _kl_penalty, "kl_penalty_forward": _kl_penalty, "compute_approx_kl": _kl_penalty,
    "agg_loss": _agg_loss, "aggregate_loss": _agg_loss,
}  # fmt: skip
