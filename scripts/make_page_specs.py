"""Writes the page's share of `mingce.specs`: tables as data, float64 definitions as TypeScript, and its types.

    python scripts/make_page_specs.py [--check]

The definitions are plain Python of few kinds (loops, lists, arithmetic), so that they can be read statement by
statement into TypeScript; anything else is an error here. The page thereby computes what Python computes, to the last
bit but for the machine's own exp and pow. The types of what it is answered are in types.ts (scripts/page_types.py).
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

from page_types import types

from mingce import specs
from mingce.algorithms import reference
from mingce.explain.account import OPERATORS as FENCED
from mingce.record.rollout import EPSILON
from mingce.specs import estimator, estimators, facts, kl, losses, rows

SOURCES = Path(__file__).parent.parent / "mingce/view/web/src"
MODULES = (rows, kl, estimator, estimators, losses, reference, facts)
ASKED = (  # by the page, besides what the tables name
    "effective_lambda", "kl_rewards", "limited", "masked_mean", "masked_var", "standardise", "value_term", "row_of",
    "group_facts", "no_group", "token_facts", "token_texts", "section_applies", "section_case",
)  # fmt: skip
HEAD = """// Written by scripts/make_page_specs.py from mingce/specs; change those and run `make web`.
// @ts-nocheck
import { any, concat, enumerate, fsum, list, range, repeat, reversed, slice, sum, zip } from "./python";
"""
FUNCTIONS = {
    "len": "{0}.length", "abs": "Math.abs({0})", "range": "range({all})", "enumerate": "enumerate({0})",
    "reversed": "reversed({0})", "zip": "zip({all})", "sum": "sum({0})", "any": "any({0})", "bool": "!!({0})",
    "max": "Math.max({all})", "min": "Math.min({all})", "math.fsum": "fsum({0})", "math.sqrt": "Math.sqrt({0})",
    "math.exp": "Math.exp({0})", "float": "{0}", "list": "list({0})",
}  # fmt: skip
OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**"}
METHODS = {
    "get": "({self}[{0}] ?? null)", "replace": "{self}.replaceAll({all})", "join": "{0}.join({self})",
}  # fmt: skip
COMPARISONS = {
    ast.Eq: "===", ast.NotEq: "!==", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Is: "==",
    ast.IsNot: "!=",
}  # fmt: skip
LISTS = (ast.List, ast.ListComp)
RESERVED = ("new", "default", "delete", "function", "this", "typeof", "var", "void")


class Writer:
    """TypeScript of the functions of one module; `tuples` are the fields of its NamedTuples."""

    def __init__(self, tuples: dict[str, list[str]]):
        self.tuples = tuples

    def function(self, node: ast.FunctionDef, indent: str = "") -> str:
        """A function, its local names declared at its head."""
        parameters = self._parameters(node.args)
        inner = indent + "  "
        names = sorted(map(_legal, _assigned(node)))
        head = [f"{inner}let {', '.join(names)};"] if names else []
        body = [self.statement(one, inner) for one in node.body if not _is_text(one)]
        keyword = "" if indent else "export "
        return "\n".join([f"{indent}{keyword}function {node.name}({parameters}) {{", *head, *body, f"{indent}}}"])

    def _parameters(self, arguments: ast.arguments) -> str:
        defaults: list[ast.expr | None] = [None] * (len(arguments.args) - len(arguments.defaults))
        pairs = zip(arguments.args, [*defaults, *arguments.defaults], strict=True)
        return ", ".join(_legal(one.arg) + ("" if value is None else f" = {self(value)}") for one, value in pairs)

    def statement(self, node: ast.stmt, indent: str) -> str:
        match node:
            case ast.FunctionDef():
                return self.function(node, indent)
            case ast.Return(value=ast.expr() as value):
                return f"{indent}return {self(value)};"
            case ast.Assign(targets=targets, value=value):
                return indent + " = ".join([*(self.target(one) for one in targets), self(value)]) + ";"
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                return f"{indent}{self.target(target)} = {self(value)};"
            case ast.For(target=target, iter=over, body=body):
                return self._block(f"for (const {self.target(target)} of {self(over)})", body, indent)
            case ast.If(test=test, body=body, orelse=[]):
                return self._block(f"if ({self(test)})", body, indent)
            case ast.Continue():
                return f"{indent}continue;"
        raise SyntaxError(f"line {node.lineno}: {ast.unparse(node).splitlines()[0]}")

    def _block(self, head: str, body: list[ast.stmt], indent: str) -> str:
        return "\n".join([f"{indent}{head} {{", *(self.statement(one, indent + "  ") for one in body), f"{indent}}}"])

    def target(self, node: ast.expr) -> str:
        if isinstance(node, ast.Tuple):
            return f"[{', '.join(self.target(one) for one in node.elts)}]"
        return self(node)

    def __call__(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value=value):
                return json.dumps(value)
            case ast.Name(id=name):
                return _legal(name)
            case ast.Attribute(value=ast.Name(id="math"), attr="e"):
                return "Math.E"
            case ast.Attribute(value=value, attr=name):
                return f"{self(value)}.{name}"
            case ast.Subscript(value=value, slice=ast.Slice(lower=lower, upper=upper)):
                ends = ", ".join("undefined" if end is None else self(end) for end in (lower, upper))
                return f"slice({self(value)}, {ends})"
            case ast.Subscript(value=value, slice=index):
                return f"{self(value)}[{self(index)}]"
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return f"[{', '.join(map(self, parts))}]"
            case ast.Dict(keys=keys, values=values):
                pairs = zip(keys, values, strict=True)
                return f"({{ {', '.join(f'{self(key)}: {self(value)}' for key, value in pairs if key is not None)} }})"
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return f"({{ ...{self(left)}, ...{self(right)} }})"
            case ast.BinOp(left=left, op=ast.Mult(), right=right) if isinstance(left, LISTS):
                return f"repeat({self(left)}, {self(right)})"
            case ast.BinOp(left=left, op=ast.Add(), right=right) if isinstance(left, LISTS) or isinstance(right, LISTS):
                return f"concat({self(left)}, {self(right)})"
            case ast.BinOp(left=left, op=operator, right=right):
                return f"({self(left)} {OPERATORS[type(operator)]} {self(right)})"
            case ast.UnaryOp(op=ast.USub(), operand=value):
                return f"(-{self(value)})"
            case ast.UnaryOp(op=ast.Not(), operand=value):
                return f"!({self(value)})"
            case ast.BoolOp(op=operator, values=values):
                return f"({(' && ' if isinstance(operator, ast.And) else ' || ').join(map(self, values))})"
            case ast.Compare(left=left, ops=[ast.In()], comparators=[right]):
                return f"{self(right)}.includes({self(left)})"
            case ast.Compare(left=left, ops=[ast.NotIn()], comparators=[right]):
                return f"!{self(right)}.includes({self(left)})"
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                return f"({self(left)} {COMPARISONS[type(operator)]} {self(right)})"
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return f"({self(test)} ? {self(body)} : {self(orelse)})"
            case ast.Lambda(args=arguments, body=body):
                return f"(({self._parameters(arguments)}) => {self(body)})"
            case ast.ListComp(elt=part, generators=loops) | ast.GeneratorExp(elt=part, generators=loops):
                return self._listed(self(part), loops)
            case ast.DictComp(key=key, value=value, generators=loops):
                return f"Object.fromEntries({self._listed(f'[{self(key)}, {self(value)}]', loops)})"
            case ast.Call(func=function, args=arguments):
                return self._call(function, [self(one) for one in arguments])
        raise SyntaxError(f"line {node.lineno}: {ast.unparse(node)}")

    def _call(self, function: ast.expr, arguments: list[str]) -> str:
        name = ast.unparse(function)
        if name in self.tuples:
            pairs = zip(self.tuples[name], arguments, strict=False)
            return f"{{ {', '.join(f'{field}: {value}' for field, value in pairs)} }}"
        if isinstance(function, ast.Attribute) and function.attr in METHODS:
            return METHODS[function.attr].format(*arguments, all=", ".join(arguments), self=self(function.value))
        if name in FUNCTIONS:
            return FUNCTIONS[name].format(*arguments, all=", ".join(arguments))
        return f"{self(function)}({', '.join(arguments)})"

    def _listed(self, part: str, loops: list[ast.comprehension]) -> str:
        """A comprehension, its loops from the innermost."""
        for innermost, loop in enumerate(reversed(loops)):
            over, target = f"list({self(loop.iter)})", self.target(loop.target)
            for condition in loop.ifs:
                over += f".filter(({target}) => {self(condition)})"
            part = f"{over}.{'flatMap' if innermost else 'map'}(({target}) => {part})"
        return part


def _legal(name: str) -> str:
    return f"{name}_" if name in RESERVED else name


def _assigned(node: ast.FunctionDef) -> set[str]:
    """The names that the function itself assigns."""
    names: set[str] = set()
    for one in ast.walk(node):
        if isinstance(one, ast.FunctionDef) and one is not node:
            names -= {inner.id for inner in ast.walk(one) if isinstance(inner, ast.Name)}
        targets = one.targets if isinstance(one, ast.Assign) else [one.target] if isinstance(one, ast.AnnAssign) else []
        for target in targets:
            parts = target.elts if isinstance(target, ast.Tuple) else [target]
            names |= {part.id for part in parts if isinstance(part, ast.Name)}
    return names


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def definitions() -> str:
    """The functions of the spec modules that the twins are made of."""
    trees = [ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")) for module in MODULES]
    tuples = {
        node.name: [str(ast.unparse(one.target)) for one in node.body if isinstance(one, ast.AnnAssign)]
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "NamedTuple" for base in node.bases)
    }
    functions = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    outermost = {id(node) for tree in trees for node in tree.body}
    known = {node.name: node for node in functions if id(node) in outermost or node.name in ASKED}
    wanted = [*specs.ESTIMATORS, *specs.POLICY_LOSSES, *ASKED]
    used: list[str] = []
    while wanted:
        name = wanted.pop(0)
        if name not in used:
            used.append(name)
            bodies = (one for statement in known[name].body for one in ast.walk(statement))
            wanted += [one.id for one in bodies if isinstance(one, ast.Name) and one.id in known]
    writer = Writer(tuples)
    ordered = [known[name] for name in known if name in used]
    return "\n\n".join(writer.function(node) for node in ordered)


def table() -> dict[str, Any]:
    """The tables, as data."""
    return {
        "ESTIMATORS": {
            spec.name: {
                "kind": spec.kind, "zh": spec.zh, "en": spec.en, "formula": spec.formula, "inputs": spec.inputs,
                "settings": spec.settings, "fixed_lambda": spec.fixed_lambda, "whitens": spec.whitens,
            }
            for spec in specs.ESTIMATORS.values()
        },
        "POLICY_LOSSES": {
            spec.name: {"zh": spec.zh, "en": spec.en, "formula": spec.formula, "settings": spec.settings}
            for spec in specs.POLICY_LOSSES.values()
        },
        "AGGREGATIONS": {name: {"zh": zh, "en": en} for name, (zh, en) in specs.AGGREGATIONS.items()},
    }  # fmt: skip


def kl_kinds() -> str:
    """The KL kinds by name and alias, as functions of x."""
    tree = ast.parse(Path(str(kl.__file__)).read_text(encoding="utf-8"))
    entries = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "KLKind"]
    lines = []
    for kind, entry in zip(specs.KL_KINDS.values(), entries, strict=True):
        twin = entry.args[5]
        code = "Math.abs" if ast.unparse(twin) == "abs" else Writer({})(twin)
        lines += [f"  {name}: {code}," for name in (kind.name, *kind.aliases)]
    return "\n".join(lines)


def text() -> str:
    """The whole file."""
    constants = {
        "FLOAT32_EPS": rows.FLOAT32_EPS,
        "MAX_LOG_RATIO": losses.MAX_LOG_RATIO,
        "MAX_SEQUENCE_LOG_RATIO": losses.MAX_SEQUENCE_LOG_RATIO,
        "SMALL": facts.SMALL,
        "SAME": facts.SAME,
        "STATE_END": facts.STATE_END,
    }
    parts = [HEAD, *(f"const {name} = {value!r};" for name, value in constants.items()), "", definitions(), ""]
    for name, values in table().items():
        parts.append(f"export const {name} = {json.dumps(values, ensure_ascii=False, indent=2)} as const;\n")
    twins = {"ESTIMATE": list(specs.ESTIMATORS), "POLICY_LOSS": list(specs.POLICY_LOSSES)}
    parts.append(f'export const GAE = "{estimators.GAE}";\nexport const MONTE_CARLO = "{estimators.MONTE_CARLO}";')
    parts.append(f'export const FENCED = "{FENCED}"; // a negative number behind one of these stands in parentheses')
    parts.append(f"export const EPSILON = {EPSILON!r}; // what whitening adds to the variance")
    parts.append("type Twins = Record<string, (...given: any[]) => any>;")
    parts += [f"export const {name}: Twins = {{ {', '.join(values)} }};\n" for name, values in twins.items()]
    return "\n".join([*parts, f"export const KL = {{\n{kl_kinds()}\n}};\n"])


def main() -> None:
    for name, written in {"specs.generated.ts": text(), "types.ts": types()}.items():
        path = SOURCES / name
        if "--check" not in sys.argv:
            path.write_text(written, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != written:
            sys.exit(f"{name} is stale: run make web")


if __name__ == "__main__":
    main()
