"""The words of a verdict on an equation, and its lines of numbers."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from mingce.base.numbers import number as shown
from mingce.base.texts import sentence
from mingce.explain.code_refs import CodeRef, resolve
from mingce.explain.derive.origins import origins
from mingce.explain.derive.sheet import sheet_of
from mingce.explain.derive.table import quantities
from mingce.explain.equations.names import SETTINGS
from mingce.explain.equations.rendering import Writer
from mingce.explain.equations.tree import Node, Num, Sym, Unknown, symbols
from mingce.explain.equations.trial import Trial, related
from mingce.explain.equations.worlds import Row, of_sheet, random_rows
from mingce.explain.example import worked
from mingce.record.rollout import Rollout
from mingce.specs.estimators import GAE
from mingce.specs.kl import kl_name

if TYPE_CHECKING:
    from mingce.explain.equations.judge import EquationVerdict

_COLUMNS = {
    "whitened": "whitened_advantages", "used": "advantages", "objective": "policy_loss", "old_probs": "probability",
    "q": "td_target",
}  # fmt: skip
_SHOWN = {"=": "=", "≈": "≈", "<": "<", ">": ">", "≤": "≤", "≥": "≥", "≠": "≠"}


class Words:
    """Writes the verdicts on one equation for one rollout in one language."""

    def __init__(self, trial: Trial, row: Row, own: bool, rollout: Rollout, lang: str) -> None:
        """`own` says whether the row is the rollout's."""
        self.trial, self.row, self.own, self.rollout, self.lang = trial, row, own, rollout, lang

    def of(self, trial: Trial) -> Words:
        """The same for another trial."""
        return Words(trial, self.row, self.own, self.rollout, self.lang)

    # ── verdicts ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def right(self, cut_matters: bool, conditional: bool) -> EquationVerdict:
        """An identity; with the numbers of a token to see it."""
        kinds = self._kinds()
        from_means = not self.trial.holds()
        key = "right_given" if conditional else ("right_mean" if from_means else "right")
        parts = [self.said("right_q" if key == "right" and "q" in kinds else key)]
        if cut_matters and not from_means:
            parts.append(self.said("cut_matters"))
        if {"returns", "advantages", "values"} <= kinds and self.rollout.whitening is not None:
            parts.append(self.said("raw_in_returns"))
        if "used" in kinds and "whitened_advantages" in self.rollout.columns:
            parts.append(self.said("whitened_in_loss"))
        if {"kl", "ref_log_probs"} <= kinds:
            parts.append(self.said("kl_kind", kind=kl_name(self.rollout.settings.kl_estimator) or "k1"))
        if self.trial.estimator != GAE and kinds & {"advantages", "returns", "used"}:
            parts.append(self.said("of_estimator", name=self.trial.estimator))
        here = self.trial.holds_in(self.row)
        if here is False and not from_means:
            parts.append(self.said("not_here"))
        place = next((t for t in self.trial.places(self.row) if self._sides(t)[0] is not None), None)
        return self.verdict("right", parts, (), place, not from_means and here is True)

    def half(
        self, conditions: tuple[tuple[str, ...], ...], in_mean: tuple[str, ...] | None, more: Node | None
    ) -> EquationVerdict:
        """It takes conditions; whether the rollout at hand fulfils them, and where it does not hold."""
        texts = [self._together(one) for one in conditions]
        names = ["+".join(one) for one in conditions]
        parts = (
            [self.said("half", conditions=reduce(lambda a, b: self.said("or", one=a, other=b), texts))] if texts else []
        )
        if in_mean is not None and (not in_mean or not any(one != ("last",) for one in conditions)):
            names.append("+".join((*in_mean, "expectation")))
            key = "also_expectation" if texts else "expectation"
            parts.append(self.said(key))
            if in_mean:
                parts.append(self.said("mean_given", conditions=self._together(in_mean)))
        if more is not None:
            parts.append(self.said("differ", more=Writer().symbols(more)))
        t = self._counter()
        if t is False and texts:
            parts.append(self.said("holds_here_by_condition"))
        return self.verdict("half", [*parts, *self._counter_text(t)], tuple(names), self._shown_place(t), True)

    def only_here(self) -> EquationVerdict:
        """It holds with this rollout's settings, whose numbers stand in it."""
        t = next(iter(self.trial.places(self.row)), None)
        return self.verdict("half", [self.said("with_settings")], ("settings",), t, True)

    def wrong(self, more: Node | None, factor: float | None, whitened: bool) -> EquationVerdict:
        """It does not hold: both sides with numbers, what they differ by, and the right formula."""
        parts = [self.said("wrong")]
        if more is not None:
            parts.append(self.said("differ", more=Writer().symbols(more)))
        elif factor == -1:
            parts.append(self.said("sign"))
        elif factor is not None:
            parts.append(self.said("factor", factor=shown(factor)))
        if whitened:
            parts.append(self.said("true_if_whitened"))
        t = self._counter()
        if t is False:
            self._elsewhere()
            t = self._counter()
            parts.append(self.said("lucky"))
        return self.verdict("wrong", [*parts, *self._counter_text(t)], (), self._shown_place(t), True)

    def number_right(self, a: float, b: float, counted: bool = False) -> EquationVerdict:
        """A claim about numbers that is so."""
        key = "number_right" if self.trial.relation in "=≈" else "inequality_right"
        parts = [self.said(key, a=shown(a), b=shown(b))]
        if counted:
            parts.append(self.said("counted_from_one"))
        return self.verdict("right", parts, (), None, True)

    def number_wrong(self, a: float, b: float) -> EquationVerdict:
        """A claim about numbers that is not so; where the number claimed is found, if anywhere."""
        symbols = {"left": self._symbol(self.trial.left), "right": self._symbol(self.trial.right)}
        plain = isinstance(self.trial.right, Num)
        key = ("number_is_not" if plain else "number_wrong") if self.trial.relation in "=≈" else "inequality_wrong"
        parts = [self.said(key, a=shown(a), b=shown(b), **symbols)]
        claimed = self.trial.right if isinstance(self.trial.right, Num) else self.trial.left
        if isinstance(claimed, Num) and claimed.decimals and self.own:
            found = origins(f"{claimed.value:.{claimed.decimals}f}", self.rollout, self.lang)
            if found:
                parts.append(self.said("number_is", x=shown(claimed.value), title=found[0].title))
        return self.verdict("wrong", parts, (), None, True)

    def no_such_token(self) -> EquationVerdict:
        """It speaks of a token that is not there, or was not chosen."""
        last = self.row.length - 1
        return self.verdict("wrong", [self.said("no_token", last=last)], (), None, False)

    # ── parts ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def said(self, key: str, **values: object) -> str:
        """A sentence on equations."""
        return sentence(f"equations.{key}", self.lang, **values)

    def verdict(
        self, status: str, parts: list[str], conditions: tuple[str, ...], place: int | None, numbers: bool
    ) -> EquationVerdict:
        """The verdict of these sentences."""
        from mingce.explain.equations.judge import EquationVerdict

        text = ("" if self.lang == "zh" else " ").join(part for part in parts if part)
        position = None if place is None or place < 0 else place
        left, right = self._sides(position) if numbers else (None, None)
        if not self.own and numbers:
            text += ("" if self.lang == "zh" else " ") + self.said("other_numbers")
        slot = None if position is None or not self.own else self.row.slots[position]
        return EquationVerdict(
            status, self.equation(), text, conditions, self._lines(position) if numbers else (), self._formula(), slot,
            left, right, self._code(),
        )  # fmt: skip

    def equation(self) -> str:
        """The equation as it was read."""
        writer = Writer(spread=self._spread())
        return f"{writer.symbols(self.trial.left)} {_SHOWN[self.trial.relation]} {writer.symbols(self.trial.right)}"

    def _together(self, names: tuple[str, ...]) -> str:
        texts = [self.said(f"if_{name}") for name in names]
        return reduce(lambda a, b: self.said("and", one=a, other=b), texts)

    def _shown_place(self, t: int | bool | None) -> int | None:
        if t is False:
            first = next(iter(self.trial.places(self.row)), None)
            return first
        return None if t is None or t is True else int(t)

    def _counter(self) -> int | bool | None:
        """The token where the sides differ most; False where they do not, None for an equation without a t."""
        worst: tuple[float, int | None] | None = None
        for t in self.trial.places(self.row):
            try:
                a, b = self.trial.values(self.row, t)
            except Unknown:
                continue
            gap = abs(a - b)
            counts = gap > 1e-6 or self.trial.relation not in "=≈"
            if (
                counts
                and not related(a, b, self.trial.relation, self.trial.room)
                and (worst is None or gap > worst[0] + 1e-12)
            ):
                worst = gap, t
        return False if worst is None else worst[1]

    def _elsewhere(self) -> None:
        """Other numbers, where those at hand happen to fulfil it."""
        for row in (
            of_sheet(sheet_of(worked())),
            *random_rows(self.trial.fixed, self.trial.lengths, self.trial.estimator),
        ):
            if self.trial.holds_in(row) is False:
                self.row, self.own = row, False
                return

    def _counter_text(self, t: int | bool | None) -> list[str]:
        if t is False:
            return []
        left, right = self._sides(None if t is None else int(t))
        if left is None or right is None:
            return []
        key = "counter" if t is not None else "counter_row"
        slot = "" if t is None else self.row.slots[int(t)]
        return [self.said(key, t=slot, left=shown(left), right=shown(right), gap=shown(left - right))]

    def _sides(self, t: int | None) -> tuple[float | None, float | None]:
        try:
            return self.trial.values(self.row, t)
        except Unknown:
            return None, None

    def _lines(self, t: int | None) -> tuple[str, ...]:
        """Both sides with the numbers of a token."""
        writer = Writer(self.row, t, spread=self._spread())
        lines = []
        for side in (self.trial.left, self.trial.right):
            try:
                value, numbers = shown(writer.value(side)), writer.numbers(side)
            except Unknown:
                continue
            if isinstance(side, Num):
                continue
            text = f"{writer.symbols(side)} = {numbers}"
            lines.append(text if numbers.strip("()") == value else f"{text} = {value}")
        return tuple(lines)

    def _symbol(self, side: Node) -> str:
        return Writer(self.row, None, spread=False).symbols(side)

    def _spread(self) -> bool:
        return self.trial.spread and self.trial.free

    def _subject(self) -> str | None:
        """The quantity that the equation defines: a side that is one symbol."""
        for side in (self.trial.left, self.trial.right):
            if isinstance(side, Sym) and side.kind not in SETTINGS:
                return _COLUMNS.get(side.kind, side.kind)
        return None

    def _formula(self) -> str:
        subject = self._subject()
        known = quantities().get(subject or "")
        if known is None:
            return ""
        if subject == "values":
            return "V(s_t) = E[r_t + γ·r_{t+1} + γ²·r_{t+2} + …]"
        return known.formula(sheet_of(self.rollout), self.lang)

    def _code(self) -> tuple[CodeRef, ...]:
        known = quantities().get(self._subject() or "")
        return () if known is None else tuple(resolve(place) for place in known.code(sheet_of(self.rollout)))

    def _kinds(self) -> set[str]:
        return {sym.kind for side in (self.trial.left, self.trial.right) for sym in symbols(side)}
