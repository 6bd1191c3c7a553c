"""Every quantity that can be derived, by name: columns of the column table, and what people make of them.

`quantity_of("n_step(3)")`, `quantity_of("mean(advantages)")`: a name may have an argument, a number or a column.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from mingce.columns import ALIASES, TOKEN_COLUMNS
from mingce.explain.derive import credit, rows, tokens, update
from mingce.explain.derive.sheet import Sheet
from mingce.explain.derive.work import Quantity, Work
from mingce.specs import AGGREGATIONS
from mingce.specs.estimators import n_step
from mingce.specs.kl import find_kl, kl_name

_TWINS, _ADVANTAGE = "mingce.specs.estimators", "mingce.algorithms.advantage"
_LOSSES, _MASKING = "mingce.algorithms.losses", "mingce.algorithms.masking"
_KL_REWARDS = "mingce.algorithms.kl.kl_rewards"
_ROLES = {
    "actor.generate": "mingce.roles.actor.LocalActor.generate",
    "actor.log_probs": "mingce.roles.actor.LocalActor.log_probs",
    "actor.update": "mingce.roles.actor.LocalActor.update",
    "reference.log_probs": "mingce.roles.reference.LocalReference.log_probs",
    "reward.score": "mingce.roles.reward.Reward.score",
    "critic.values": "mingce.roles.critic.LocalCritic.values",
    "critic.update": "mingce.roles.critic.LocalCritic.update",
}
N_STEP = n_step.__name__
"""The advantage of n steps has its estimator's name."""
_CALL = re.compile(r"(\w+)\((\w+)\)")
OfToken = Callable[[Sheet, int, str], Work | None]
OfRow = Callable[[Sheet, str], Work | None]


def _source(name: str) -> tuple[str, ...]:
    """Where the column's numbers come from, by the column table."""
    source = TOKEN_COLUMNS[name].source
    place = source.replace(":", ".") if ":" in source else _ROLES.get(source)
    return () if place is None else (place,)


def _estimator_code(sheet: Sheet) -> tuple[str, ...]:
    spec = sheet.estimator
    if spec is None or spec.twin is None:
        return ()
    return f"{_ADVANTAGE}.{spec.name}", f"{_TWINS}.{spec.name}"


def _estimator_formula(sheet: Sheet, lang: str) -> str:
    spec = sheet.estimator
    if spec is None:
        return "A_t"
    return spec.formula + (",  δ_t = r_t + γ·V(s_{t+1}) − V(s_t)" if "δ" in spec.formula else "")


def _kl_formula(sheet: Sheet, lang: str) -> str:
    kind = kl_name(sheet.rollout.settings.kl_estimator)
    if not kind:
        return TOKEN_COLUMNS["kl"].formula
    return f"k_t = {find_kl(kind).formula},  x = log π_old(a_t) − log π_ref(a_t)"


def _loss_formula(sheet: Sheet, lang: str) -> str:
    return "L^π_t" if sheet.loss is None else sheet.loss.formula


def _value_loss_formula(sheet: Sheet, lang: str) -> str:
    plain = "L^V_t = ½·(V'(s_t) − R_t)²"
    return plain if sheet.rollout.settings.value_clip is None else TOKEN_COLUMNS["value_loss"].formula


def _loss_code(sheet: Sheet) -> tuple[str, ...]:
    spec = sheet.loss
    own = () if spec is None or spec.twin is None else (f"{_LOSSES}.{spec.name}", f"mingce.specs.losses.{spec.name}")
    return own or (f"{_LOSSES}.policy_loss",)


def _of_column(name: str, work: OfToken, **changes: Any) -> Quantity:
    """The quantity of a column: symbol, formula and code are the column table's unless changed."""
    one = TOKEN_COLUMNS[name]
    reads = tuple(n for n in (*one.inputs, *one.optional) if n in TOKEN_COLUMNS and n != "token_ids")
    entry: dict[str, Any] = {
        "symbol": one.symbol,
        "formula": lambda _, lang: one.formula_zh if lang == "zh" else one.formula,
        "code": lambda _: _source(name),
        "columns": (*reads, name),
        "work": lambda sheet, t, lang, _: work(sheet, t, lang),
    }
    return Quantity(name, **entry | changes)


def _made(name: str, symbol: str, formula: str, work: OfToken, columns: tuple[str, ...], *code: str) -> Quantity:
    """A quantity of a token that is no column."""
    return Quantity(
        name, symbol, lambda _, lang: formula, lambda s, t, lang, _: work(s, t, lang), lambda _: code, columns
    )


def _of_row(name: str, symbol: str, formula: str, work: OfRow, columns: tuple[str, ...], *code: str) -> Quantity:
    return Quantity(
        name, symbol, lambda _, lang: formula, lambda s, t, lang, _: work(s, lang), lambda _: code, columns, of_row=True
    )


def _statistic(kind: str, name: str) -> Quantity:
    symbol = rows.symbol_of(name)
    formula = {
        "sum": f"Σ_t {symbol}", "mean": f"(1/N)·Σ_t {symbol}", "min": f"min_t {symbol}", "max": f"max_t {symbol}",
        "var": f"σ² = Σ_t ({symbol} − μ)²/(N − 1)", "std": f"σ = √(Σ_t ({symbol} − μ)²/(N − 1))",
    }[kind]  # fmt: skip
    code = {"sum": "masked_sum", "mean": "masked_mean", "var": "masked_var", "std": "masked_var"}.get(kind)
    return _of_row(
        f"{kind}({name})", f"{kind} {symbol}", formula, lambda s, lang: rows.statistic(kind, name, s, lang), (name,),
        *([f"{_MASKING}.{code}"] if code else []),
    )  # fmt: skip


def _aggregated(column: str, mode: str) -> Quantity:
    divisor = {"seq-mean-token-sum": "", "seq-mean-token-sum-norm": "/T"}.get(mode, "/N")
    symbol = rows.symbol_of(column)
    return _of_row(
        f"{column}/{mode}", "L", f"L = Σ_t m_t·{symbol}{divisor}",
        lambda s, lang: rows.aggregated(column, mode, s, lang), (column,), f"{_LOSSES}.agg_loss",
    )  # fmt: skip


def _columns() -> list[Quantity]:
    """Columns that are arithmetic on others."""
    credit_columns = ("values", "deltas", "advantages", "returns")
    return [
        _of_column("kl", tokens.kl, formula=_kl_formula),
        _of_column("rewards", tokens.rewards, columns=("scores", "kl", "rewards")),
        _of_column("deltas", tokens.deltas),
        _of_column(
            "advantages", credit.advantages, formula=_estimator_formula, code=_estimator_code,
            columns=("rewards", "values", "deltas", "advantages"),
        ),
        _of_column("returns", credit.returns, columns=credit_columns, code=_estimator_code),
        _of_column(
            "whitened_advantages", update.whitened, columns=("advantages", "whitened_advantages"),
            formula=lambda _, lang: "Â_t = (A_t − μ)/√(σ² + 10⁻⁸)",
        ),
        _of_column("ratio", update.ratio, columns=("old_log_probs", "new_log_probs", "ratio")),
        _of_column("clipped", update.clipped, code=_loss_code),
        _of_column("dual_clipped", update.dual_clipped, code=_loss_code),
        _of_column("policy_loss", update.policy_loss, formula=_loss_formula, code=_loss_code),
        _of_column(
            "value_loss", update.value_loss, formula=_value_loss_formula,
            columns=("values", "new_values", "returns", "value_loss"),
        ),
        _of_column("value_clipped", update.value_clipped),
        _of_column("kl_loss", update.kl_loss),
    ]  # fmt: skip


def _of_tokens() -> list[Quantity]:
    """What people make of the columns at a token."""
    both, value_after = ("old_log_probs", "new_log_probs"), "r_t + γ·V(s_{t+1})"
    to_go = "G_t = r_t + γ·G_{t+1}"
    return [
        _made(
            "next_values", "V(s_{t+1})", "V(s_{t+1}),  V(s_T) = 0", tokens.next_values, ("values",),
            f"{_ADVANTAGE}.td_errors",
        ),
        _made("td_target", value_after, value_after, tokens.td_target, ("rewards", "values"), f"{_ADVANTAGE}.td0"),
        _made(
            "unrolled", "Σ_l (γλ)^l·δ_{t+l}", "A_t = Σ_l (γλ)^l·δ_{t+l}", credit.unrolled, ("deltas", "advantages"),
            f"{_TWINS}.gae",
        ),
        _made(
            "mc_return", "G_t", f"{to_go} = Σ_k γ^k·r_{{t+k}}", credit.mc_return, ("rewards",),
            f"{_TWINS}.monte_carlo",
        ),
        _made(
            "mc_advantage", "G_t − V(s_t)", f"A_t = G_t − V(s_t),  {to_go}", credit.mc_advantage,
            ("rewards", "values"), f"{_ADVANTAGE}.monte_carlo",
        ),
        _made("kl_cost", "β·k_t", "β·k_t", tokens.kl_cost, ("kl",), _KL_REWARDS),
        _made(
            "log_ratio", "log ρ_t", "log ρ_t = log π(a_t) − log π_old(a_t)", tokens.log_ratio, both,
            f"{_LOSSES}.policy_ratio",
        ),
        _made(
            "probability", "π_old(a_t)", "π_old(a_t) = exp(log π_old(a_t))", tokens.probability, ("old_log_probs",),
            _ROLES["actor.log_probs"],
        ),
        Quantity(
            N_STEP, "A^(n)_t", lambda _, lang: "A_t = Σ_{l<n} γ^l·δ_{t+l}", credit.n_step,
            lambda _: (f"{_ADVANTAGE}.{N_STEP}", f"{_TWINS}.{N_STEP}"), ("deltas",),
        ),
    ]  # fmt: skip


def _of_rows() -> list[Quantity]:
    """Numbers of the whole row."""
    both = ("old_log_probs", "new_log_probs")
    return [
        _of_row("gamma_lambda", "γλ", "γλ = γ·λ", rows.gamma_lambda, (), f"{_TWINS}.gae"),
        _of_row("horizon", "1/(1 − γλ)", "1/(1 − γλ) = Σ_l (γλ)^l", rows.horizon, (), f"{_TWINS}.gae"),
        _of_row("total_kl_cost", "β·Σ_t k_t", "β·Σ_t k_t", rows.total_kl_cost, ("kl",), _KL_REWARDS),
        _of_row(
            "explained_variance", "EV", "1 − Var(R − V)/Var(R)", rows.explained_variance, ("values", "returns"),
            "mingce.metrics._explained_variance",
        ),
        _of_row(
            "approx_kl", "approx_kl", "mean_t (log π_old(a_t) − log π(a_t))", rows.approx_kl, both,
            "mingce.metrics._policy_shift",
        ),
        _of_row(
            "clip_fraction", "mean c_t", "(1/N)·Σ_t c_t", lambda s, lang: rows.share_of_ones("clipped", s, lang),
            ("ratio", "clipped"), f"{_LOSSES}.policy_loss",
        ),
        _of_row(
            "value_clip_fraction", "mean c^V_t", "(1/N)·Σ_t c^V_t",
            lambda s, lang: rows.share_of_ones("value_clipped", s, lang), ("value_clipped",),
            f"{_LOSSES}.value_loss",
        ),
        _of_row(
            "perplexity", "exp(−mean log π_old)", "exp(−(1/N)·Σ_t log π_old(a_t))", rows.perplexity,
            ("old_log_probs",), _ROLES["actor.log_probs"],
        ),
        *(_aggregated(column, mode) for column in rows.LOSSES for mode in AGGREGATIONS),
        Quantity(
            "weight", "(γλ)^l", lambda _, lang: "(γλ)^l", lambda s, t, lang, n: rows.weight(s, lang, n),
            lambda _: (f"{_TWINS}.gae",), of_row=True,
        ),
    ]  # fmt: skip


@cache
def quantities() -> dict[str, Quantity]:
    """All of them by name, columns first; those with an argument are made by `quantity_of`."""
    known = {one.name: one for one in _columns()}
    for name, column in TOKEN_COLUMNS.items():
        if name not in known and column.dtype == "float32":
            known[name] = _measured(name)
    return known | {one.name: one for one in (*_of_tokens(), *_of_rows())}


def _measured(name: str) -> Quantity:
    return _of_column(name, lambda s, t, lang: tokens.measured(name, s, t, lang), columns=(name,))


def quantity_of(name: str) -> tuple[Quantity, int | None] | None:
    """The quantity of that name or alias and its argument; None for a name that is none."""
    if call := _CALL.fullmatch(name.strip()):
        kind, argument = call[1], ALIASES.get(call[2], call[2])
        if kind in rows.STATISTICS and argument in TOKEN_COLUMNS:
            return _statistic(kind, argument), None
        if kind in (N_STEP, "weight") and argument.isdigit() and len(argument) < 5:
            return quantities()[kind], int(argument)
        return None
    known = quantities().get(ALIASES.get(name, name))
    return None if known is None else (known, None)
