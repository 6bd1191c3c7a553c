"""Derivations of numbers of a whole row: sums and means of columns, losses over tokens, KL, clip share, fit of V."""

from __future__ import annotations

import math

from mingce.algorithms import reference
from mingce.base.numbers import number as shown
from mingce.base.texts import sentence
from mingce.columns import TOKEN_COLUMNS
from mingce.explain.derive.sheet import MOST_TERMS, TAIL, Sheet, added, bracketed, fine, put, summed, total_of
from mingce.explain.derive.work import Work
from mingce.specs import AGGREGATIONS

STATISTICS = ("sum", "mean", "std", "var", "min", "max")
LOSSES = ("policy_loss", "value_loss")


def symbol_of(name: str) -> str:
    """The column's symbol."""
    return TOKEN_COLUMNS[name].symbol if name in TOKEN_COLUMNS else name


def statistic(kind: str, name: str, sheet: Sheet, lang: str) -> Work | None:
    """Sum, mean, standard deviation, variance (both with Bessel's n − 1), least or largest of a column."""
    numbers = sheet.column(name)
    if numbers is None or (kind in ("std", "var") and len(numbers) < 2):
        return None
    n, total, symbol = len(numbers), total_of(numbers), symbol_of(name)
    said = {"symbol": symbol, "n": n}
    if kind in ("min", "max"):
        result = min(numbers) if kind == "min" else max(numbers)
        at = sheet.slots[numbers.index(result)]
        line = f"{kind}_t {symbol} = {shown(result)}"
        return Work(
            (line,), result, sentence(f"derive.{kind}", lang, t=at, token=sheet.token(at), x=shown(result), **said)
        )
    sum_line = f"Σ_t {symbol} = {added(numbers)} = {shown(total)}"
    if kind == "sum":
        return Work((sum_line,), total, sentence("derive.sum", lang, x=shown(total), **said))
    mean = total / n
    mean_line = f"mean_t {symbol} = {put('{total}/{n} = {mean}', total=total, n=n, mean=mean)}"
    if kind == "mean":
        return Work((sum_line, mean_line), mean, sentence("derive.mean", lang, x=shown(mean), **said))
    variance = reference.masked_var([numbers], [[1] * n])
    few = numbers if n <= MOST_TERMS else [*numbers[:MOST_TERMS], *numbers[-TAIL:]]  # the middle is not written
    squares = summed([f"({shown(x)} − {bracketed(mean)})²" for x in few])
    var_line = f"σ² = ({squares})/({n} − 1) = {fine(variance)}"
    lines = (sum_line, mean_line, var_line)
    if kind == "var":
        return Work(lines, variance, sentence("derive.var", lang, x=shown(variance), **said))
    result = math.sqrt(variance)
    return Work(
        (*lines, f"σ = √{fine(variance)} = {shown(result)}"),
        result,
        sentence("derive.std", lang, x=shown(result), **said),
    )


def total_kl_cost(sheet: Sheet, lang: str) -> Work | None:
    """β·Σ_t k_t: what the KL took from the whole response."""
    numbers, beta = sheet.column("kl"), sheet.beta
    if numbers is None or beta is None:
        return None
    total = total_of(numbers)
    lines = (
        f"Σ_t k_t = {added(numbers)} = {shown(total)}",
        put("β·Σ_t k_t = {beta}·{total} = {x}", beta=beta, total=total, x=beta * total),
    )
    return Work(lines, beta * total, sentence("derive.total_kl_cost", lang, x=shown(beta * total), beta=shown(beta)))


def aggregated(column: str, mode: str, sheet: Sheet, lang: str) -> Work | None:
    """The row's loss as one number under an aggregation, as if it were the whole batch."""
    numbers = sheet.column(column)
    if numbers is None:
        return None
    n, width, total = len(numbers), len(sheet.rollout.mask), total_of(numbers)
    result = reference.agg_loss([[x or 0.0 for x in _row(sheet, column)]], [sheet.rollout.mask], mode) if total else 0.0
    lines = [f"Σ_t {symbol_of(column)} = {added(numbers)} = {shown(total)}"]
    divisor = {"seq-mean-token-sum": 1, "token-sum": 1, "seq-mean-token-sum-norm": width}.get(mode, n)
    if divisor != 1:
        lines.append(put("L = {total}/{n} = {x}", total=total, n=divisor, x=result))
    meaning = AGGREGATIONS[mode][0 if lang == "zh" else 1]
    return Work(
        tuple(lines), result, sentence("derive.aggregated", lang, x=shown(result), mode=mode, meaning=meaning, n=n)
    )


def _row(sheet: Sheet, column: str) -> list[float | None]:
    return [sheet.at(column, t) for t in range(len(sheet.rollout.mask))]


def explained_variance(sheet: Sheet, lang: str) -> Work | None:
    """1 − Var(R − V)/Var(R), of this row alone."""
    returns, values = sheet.column("returns"), sheet.column("values")
    if returns is None or values is None or len(returns) < 2:
        return None
    one = [[1] * len(returns)]
    rest = [r - v for r, v in zip(returns, values, strict=True)]
    total, left = reference.masked_var([returns], one), reference.masked_var([rest], one)
    if total <= 0:
        return Work((f"Var(R) = {shown(total)}",), 0.0, sentence("derive.explained_flat", lang))
    result = 1 - left / total
    lines = (
        f"Var(R) = {fine(total)}", f"Var(R − V) = {fine(left)}",
        f"1 − Var(R − V)/Var(R) = 1 − {fine(left)}/{fine(total)} = {shown(result)}",
    )  # fmt: skip
    key = "good" if result > 0.5 else ("some" if result > 0 else "bad")
    return Work(lines, result, sentence(f"derive.explained_{key}", lang, x=shown(result)))


def approx_kl(sheet: Sheet, lang: str) -> Work | None:
    """mean(log π_old − log π): how far the policy has moved in this step, as trainers log it."""
    old, new = sheet.column("old_log_probs"), sheet.column("new_log_probs")
    if old is None or new is None:
        return None
    gaps = [a - b for a, b in zip(old, new, strict=True)]
    result = total_of(gaps) / len(gaps)
    total = total_of(gaps)
    lines = (
        f"Σ_t (log π_old − log π) = {added(gaps)} = {shown(total)}",
        put("approx_kl = {total}/{n} = {x}", total=total, n=len(gaps), x=result),
    )
    return Work(lines, result, sentence("derive.approx_kl", lang, x=shown(result)))


def share_of_ones(column: str, sheet: Sheet, lang: str) -> Work | None:
    """How many of the chosen tokens a clip decided."""
    flags = sheet.column(column)
    if flags is None:
        return None
    count, n = sum(bool(x) for x in flags), len(flags)
    line = f"{count}/{n} = {shown(count / n)}"
    return Work((line,), count / n, sentence("derive.clip_fraction", lang, count=count, n=n, x=shown(count / n)))


def perplexity(sheet: Sheet, lang: str) -> Work | None:
    """exp(−mean log π_old) over the response."""
    old = sheet.column("old_log_probs")
    if old is None:
        return None
    mean = math.fsum(old) / len(old)
    result = math.exp(min(-mean, 700.0))
    lines = (
        put("mean_t log π_old = {total}/{n} = {m}", total=math.fsum(old), n=len(old), m=mean),
        f"exp(−({shown(mean)})) = {shown(result)}",
    )
    return Work(lines, result, sentence("derive.perplexity", lang, x=shown(result)))


def gamma_lambda(sheet: Sheet, lang: str) -> Work | None:
    """γ·λ: what one step back leaves of a TD error."""
    if sheet.decay is None:
        return None
    line = put("γλ = {g}·{l} = {x}", g=sheet.gamma, l=sheet.lam, x=sheet.decay)
    return Work((line,), sheet.decay, sentence("derive.gamma_lambda", lang, x=shown(sheet.decay)))


def weight(sheet: Sheet, lang: str, steps: int | None) -> Work | None:
    """(γλ)^l: what is left of a TD error l steps ahead."""
    if sheet.decay is None:
        return None
    steps = 1 if steps is None else steps
    result = sheet.decay**steps
    line = f"(γλ)^{steps} = {shown(sheet.decay)}^{steps} = {shown(result)}"
    return Work((line,), result, sentence("derive.weight", lang, x=shown(result), l=steps))


def horizon(sheet: Sheet, lang: str) -> Work | None:
    """1/(1 − γλ): over how many tokens a TD error is felt."""
    if sheet.decay is None or sheet.decay >= 1:
        return None
    result = 1 / (1 - sheet.decay)
    line = put("1/(1 − γλ) = 1/(1 − {d}) = {x}", d=sheet.decay, x=result)
    return Work((line,), result, sentence("derive.horizon", lang, x=shown(result)))
