"""A side of an equation as text: in symbols with t, in symbols of one token, and with that token's numbers."""

from __future__ import annotations

from collections.abc import Mapping

from mingce.base.numbers import number as shown
from mingce.explain.equations.evaluation import Evaluation
from mingce.explain.equations.names import SETTINGS
from mingce.explain.equations.series import Linear, linear
from mingce.explain.equations.tree import Call, Mean, Minus, Node, Num, Op, Series, Sum, Sym, Unknown, Var
from mingce.explain.equations.worlds import Row

_SYMBOLS = {
    "advantages": "A_{}", "whitened": "Â_{}", "used": "Â_{}", "returns": "R_{}", "mc_return": "G_{}",
    "values": "V(s_{})", "new_values": "V'(s_{})", "deltas": "δ_{}", "rewards": "r_{}", "scores": "score_{}",
    "kl": "k_{}", "ratio": "ρ_{}", "log_ratio": "log ρ_{}", "old_log_probs": "log π_old(a_{})",
    "new_log_probs": "log π(a_{})", "ref_log_probs": "log π_ref(a_{})", "old_probs": "π_old(a_{})",
    "new_probs": "π(a_{})", "ref_probs": "π_ref(a_{})", "policy_loss": "L^π_{}", "objective": "J_{}",
    "value_loss": "L^V_{}", "q": "Q(s_{0}, a_{0})", "mean_a": "μ", "std_a": "σ", "gamma": "γ", "lam": "λ",
    "beta": "β", "eps": "ε", "eps_v": "ε_V",
}  # fmt: skip
_STRENGTH = {"+": 1, "-": 1, "*": 2, "/": 2, "^": 4}
_SIGNS = {"+": " + ", "-": " − ", "*": "·", "/": "/", "^": "^"}
MOST_TERMS = 8


class Writer:
    """Writes trees; with a row and a letter t in that token's symbols or numbers, else with t."""

    def __init__(self, row: Row | None = None, t: int | None = None, *, spread: bool = True) -> None:
        self.row, self.spread = row, spread
        self.env: Mapping[str, int] = {} if t is None else {"t": t}

    # ── symbols ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def symbols(self, node: Node, above: int = 0) -> str:
        """The side in symbols."""
        match node:
            case Num(value, _):
                return shown(int(value) if value == int(value) and abs(value) < 1e9 else value)
            case Var(name):
                return name
            case Sym(kind, index, _):
                return _SYMBOLS[kind].format(self._index(index)) if kind not in SETTINGS else _SYMBOLS[kind]
            case Minus(of):
                return _wrapped(f"−{self.symbols(of, 2)}", 2, above)
            case Op(sign, left, right):
                return self._operation(sign, left, right, above)
            case Call(name, arguments):
                return f"{name}({', '.join(self.symbols(one) for one in arguments)})"
            case Mean(of):
                return f"E[{self.symbols(of)}]"
            case Sum(variable, lower, upper, body):
                return _wrapped(self._sigma(variable, lower, upper, body), 2, above)
            case Series(terms, last):
                texts = [self.symbols(one, 1) for one in terms] + ["…"] + ([self.symbols(last, 1)] if last else [])
                return _wrapped(" + ".join(texts), 1, above)
        raise AssertionError(node)

    def _operation(self, sign: str, left: Node, right: Node, above: int) -> str:
        strength = _STRENGTH[sign]
        a = self.symbols(left, strength + (sign == "^"))
        b = self.symbols(right, strength + (sign in "-/" or sign == "^"))
        if sign == "*" and {_kind(left), _kind(right)} == {"gamma", "lam"}:
            return "γλ" if above < 4 else "(γλ)"
        if sign == "^" and isinstance(right, Num) and right.value == 2:
            return f"{a}²"
        if isinstance(right, Minus) and b.startswith("−"):
            b = f"({b})"
        return _wrapped(f"{a}{_SIGNS[sign]}{b}", strength, above)

    def _sigma(self, variable: str | None, lower: Node | None, upper: Node | None, body: Node) -> str:
        inner = Writer(None) if variable in (None, "t") else self
        text = inner.symbols(body, 2)
        if variable is None and self.spread and (self.row is None or self.env):
            return f"Σ_(k≥{self._index(None)}) {text.replace('_t', '_k')}"
        if variable in (None, "t"):
            return f"Σ_t {text}"
        low = "" if lower is None else f"={self.symbols(lower)}"
        high = "" if upper is None else f"^({self.symbols(upper)})"
        return f"Σ_({variable}{low}){high} {text}" if low or high else f"Σ_{variable} {text}"

    def _index(self, index: Node | None) -> str:
        """`t`, `{t+1}`; with a row the slot itself, T behind its end."""
        place = Linear((("t", 1),)) if index is None else _linear(index)
        if place is None:
            return "?"
        letters = dict(place.letters)
        if self.row is not None and set(letters) <= {*self.env, "T"}:
            at = place.constant + sum(
                n * (self.row.count if name == "T" else self.env[name]) for name, n in letters.items()
            )
            if not letters:
                return str(at) if at >= 0 else str(self.row.slots[-1])
            return str(self.row.slots[at]) if 0 <= at < self.row.count else "T"
        text = "".join(
            f"+{name}" if n == 1 else f"−{name}" if n == -1 else f"+{n}{name}" for name, n in _in_order(letters)
        )
        text = text.removeprefix("+") + (f"{place.constant:+d}".replace("-", "−") if place.constant or not text else "")
        text = text.removeprefix("+")
        return text if len(text) == 1 else f"{{{text}}}"

    # ── numbers ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def value(self, node: Node) -> float:
        """What the side is worth at the token."""
        assert self.row is not None
        return Evaluation(self.row, self.spread).value(node, self.env)

    def numbers(self, node: Node, above: int = 0, after: bool = False) -> str:
        """The side with its numbers; a negative one behind an operator stands in parentheses."""
        match node:
            case Op("^", left, Num(2.0, _)):
                return f"({self.numbers(left)})²"
            case Op("^", left, right):
                return f"{self.numbers(left, 5)}^{shown(self.value(right))}"
            case Op(sign, left, right):
                strength = _STRENGTH[sign]
                a = self.numbers(left, strength, after)
                b = self.numbers(right, strength + (sign in "-/"), True)
                return _wrapped(f"{a}{_SIGNS[sign]}{b}", strength, above)
            case Minus(of):
                inner = self.numbers(of, 2, True)
                return _wrapped(f"−{inner}", 1, above if not after else 5)
            case Call(name, arguments) if name not in ("mean", "std", "var", "sum"):
                return f"{name}({', '.join(self.numbers(one) for one in arguments)})"
            case Sum() | Series():
                terms = self._terms(node)
                if terms is not None and 1 < len(terms) <= MOST_TERMS:
                    texts = [shown(x) if k == 0 else _factor(x) for k, x in enumerate(terms)]
                    return _wrapped(" + ".join(texts), 1, max(above, 2 if after else 0))
        x = self.value(node)
        return _factor(x) if after or above > 3 else shown(x)

    def _terms(self, node: Sum | Series) -> list[float] | None:
        """The numbers that a sum adds."""
        assert self.row is not None
        evaluation = Evaluation(self.row, self.spread)
        try:
            found = evaluation.terms(node, self.env)
        except Unknown:
            return None
        while len(found) > 1 and found[-1] == 0:
            found.pop()
        return found


def _linear(index: Node) -> Linear | None:
    try:
        return linear(index)
    except Unknown:
        return None


def _in_order(letters: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(letters.items(), key=lambda item: (item[0] != "t", item[1] < 0, item[0]))


def _kind(node: Node) -> str:
    return node.kind if isinstance(node, Sym) else ""


def _wrapped(text: str, strength: int, above: int) -> str:
    return f"({text})" if strength < above else text


def _factor(x: float) -> str:
    text = shown(x)
    return f"({text})" if text.startswith("−") else text
