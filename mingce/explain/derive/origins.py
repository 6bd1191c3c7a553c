"""Where a number comes from: everything that can be computed of a rollout, searched for what prints as that number.

Best first: settings and columns, then what people make of them, then numbers of the row, then terms and products on the
way, then the same under another λ; and last the rollouts that were spoken of before.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from mingce.base.errors import MingceError
from mingce.base.numbers import number as shown
from mingce.base.numbers import rounded
from mingce.base.texts import sentence
from mingce.explain.code_refs import resolve
from mingce.explain.derive.derivation import derive, name_of
from mingce.explain.derive.rows import STATISTICS
from mingce.explain.derive.sheet import Sheet, added, bracketed, put, sheet_of
from mingce.explain.derive.table import N_STEP, quantities
from mingce.explain.derive.work import Derivation
from mingce.explain.example import changed
from mingce.record.rollout import Rollout
from mingce.specs.settings import SYMBOLS

MOST = 12
"""So many origins at most."""
LONGEST = 400
"""Of a longer row only so many chosen tokens are searched for terms and products."""
LAMBDAS = (0.0, 0.5, 0.9, 0.95, 1.0)
_NUMBER = re.compile(
    r"([-−–+]?)\s*(\d{1,12}(?:[.,．]\d{1,12})?|[.．]\d{1,12})"
    r"(?:[eE]([-+−]?\d{1,2})|×10([⁰¹²³⁴⁵⁶⁷⁸⁹⁻]{1,3}))?\s*([%％]?)"
)
_POWERS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_CLIPS = {"clip_low": "ε_low", "clip_high": "ε_high", "value_clip": "ε_V"}


@dataclass(frozen=True)
class Number:
    """A number as it is written, and how many decimals it shows."""

    value: float
    decimals: int
    power: int = 0

    def prints(self, x: float) -> bool:
        """Whether x reads as this number at its digits, rounded or cut off."""
        if not math.isfinite(x) or abs(x) > 1e15:
            return False
        scaled, wanted = x / 10.0**self.power, self.value / 10.0**self.power
        return float(rounded(scaled, self.decimals)) == float(rounded(wanted, self.decimals))


@dataclass(frozen=True)
class _Candidate:
    """A value with a function that derives it."""

    value: float
    make: Callable[[], Derivation | None]


def read_number(text: str) -> Number | None:
    """`0.7738`, `−0.02`, `77.4%`, `1.2e-3`, `1.20×10⁻³`."""
    found = _NUMBER.search(text.strip()[:64])
    if found is None:
        return None
    digits = found[2].replace(",", ".").replace("．", ".")
    power = _whole((found[3] or found[4] or "0").replace("−", "-").translate(_POWERS))
    power -= 2 if found[5] else 0
    sign = -1.0 if found[1] in ("-", "−", "–") else 1.0
    return Number(sign * float(digits) * 10.0**power, len(digits.partition(".")[2]), power)


def _whole(text: str) -> int:
    return int(text) if re.fullmatch(r"[-+]?\d+", text) else 0


def origins(number_text: str, rollout: Rollout, lang: str, others: Sequence[Rollout] = ()) -> list[Derivation]:
    """What of the rollout prints as that number, best first; `others` are rollouts talked of before."""
    wanted = read_number(number_text)
    if wanted is None:
        return []
    found: list[Derivation] = []
    for place, one in enumerate((rollout, *others)):
        matches = _matches(wanted, one, lang)
        if not matches and wanted.value:  # a sign is easily lost
            matches = _matches(replace(wanted, value=-wanted.value), one, lang)
        if place:
            gap = "" if lang == "zh" else " "
            note = sentence("derive.earlier", lang, response=one.response[:40])
            matches = [replace(match, reading=note + gap + match.reading) for match in matches]
        found += matches
        if len(found) >= MOST:
            break
    return found[:MOST]


def _matches(wanted: Number, rollout: Rollout, lang: str) -> list[Derivation]:
    sheet = sheet_of(rollout)
    found: list[Derivation] = []
    seen: set[tuple[str, int | None]] = set()
    if not sheet.slots:
        return found
    for candidates in (_settings, _of_columns, _of_tokens, _of_row, _terms, _other_lambdas):
        if found and candidates is _other_lambdas:  # no need to suppose anything
            return found
        for candidate in candidates(sheet, lang):
            if len(found) >= MOST:
                return found
            if not wanted.prints(candidate.value):
                continue
            made = candidate.make()
            if made is not None and (made.quantity, made.t) not in seen:
                seen.add((made.quantity, made.t))
                found.append(made)
        if len(found) >= 3 and wanted.decimals < 3:  # few digits fit much: what is further away says nothing
            return found
    return found


def _settings(sheet: Sheet, lang: str) -> Iterator[_Candidate]:
    settings = sheet.rollout.settings.as_dict()
    for name, symbol in (SYMBOLS | _CLIPS).items():
        x = settings.get(name)
        if x is not None:
            yield _Candidate(float(x), partial(_setting, name, symbol, float(x), lang))
    yield from _derived(sheet, "gamma_lambda", None, lang)


def _setting(name: str, symbol: str, x: float, lang: str) -> Derivation:
    reading = sentence("derive.setting", lang, symbol=symbol, x=shown(x))
    return Derivation(name, None, name_of(name, lang), symbol, (f"{symbol} = {shown(x)}",), x, reading)


def _derived(sheet: Sheet, name: str, t: int | None, lang: str) -> Iterator[_Candidate]:
    made = derive(sheet.rollout, name, t, lang)
    if made is not None and made.result is not None:
        yield _Candidate(made.result, lambda: made)


def _of_columns(sheet: Sheet, lang: str) -> Iterator[_Candidate]:
    """Every column at every token."""
    for name, spec in quantities().items():
        column = sheet.columns.get(name)
        if spec.of_row or column is None or name in ("clipped", "dual_clipped", "value_clipped"):
            continue
        for t in sheet.slots:
            x = column[t]
            if x is not None:
                yield _Candidate(float(x), partial(derive, sheet.rollout, name, t, lang))


def _of_tokens(sheet: Sheet, lang: str) -> Iterator[_Candidate]:
    """What people make of the columns, at every token of a row that is not too long."""
    made = [name for name, spec in quantities().items() if not spec.of_row and name not in sheet.columns]
    if sheet.rollout.settings.n is None:
        made.remove(N_STEP)
    for name in made:
        few = sheet.slots if len(sheet.slots) <= LONGEST // 4 else [*sheet.slots[:4], *sheet.slots[-4:]]
        for t in few:
            yield from _derived(sheet, name, t, lang)


def _of_row(sheet: Sheet, lang: str) -> Iterator[_Candidate]:
    for name, spec in quantities().items():
        if spec.of_row and name != "weight":
            yield from _derived(sheet, name, None, lang)
    for name in quantities():
        if name in sheet.columns:
            for kind in STATISTICS[:3]:  # the least and the largest are entries of the column
                yield from _derived(sheet, f"{kind}({name})", None, lang)


# ── on the way ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _terms(sheet: Sheet, lang: str) -> Iterator[_Candidate]:
    """Powers of γλ, γ and λ; weighted TD errors; products and differences that formulas pass through."""
    count = min(len(sheet.slots), LONGEST)
    decay = sheet.decay
    if decay is not None:
        for k in range(count + 1):
            yield _Candidate(decay**k, partial(derive, sheet.rollout, f"weight({k})", None, lang))
    for symbol, base in (("γ", sheet.gamma), ("λ", sheet.lam)):
        if base is not None and base != decay:
            for k in range(2, count + 1):
                yield _way(base**k, f"{symbol}^{k}", None, partial(_power_line, symbol, base, k), "power", lang)
    for t in sheet.slots[:count]:
        yield from _products(sheet, t, lang)
    yield from _weighted_terms(sheet, lang)


def _way(x: float, name: str, t: int | None, line: Callable[[], str], key: str, lang: str) -> _Candidate:
    """A number on the way to another: a line and the sentence that says where it stands."""

    def make() -> Derivation:
        reading = sentence(f"derive.term_{key}", lang, x=shown(x), t="" if t is None else t)
        title, code = f"{name} = {shown(x)}", (resolve("mingce.specs.estimators.gae"),)
        return Derivation(name, t, title, name, (line(),), x, reading, code)

    return _Candidate(x, make)


def _power_line(symbol: str, base: float, k: int) -> str:
    return f"{symbol}^{k} = {shown(base)}^{k} = {shown(base**k)}"


def _products(sheet: Sheet, t: int, lang: str) -> Iterator[_Candidate]:
    after, gamma, decay, value = sheet.following(t), sheet.gamma, sheet.decay, sheet.at("values", t)
    following = None if after is None else sheet.at("advantages", after)
    if decay is not None and following is not None:
        line = partial(put, f"γλ·A_{after} = {{w}}·{{a}} = {{x}}", w=decay, a=following, x=decay * following)
        yield _way(decay * following, f"γλ·A_{after}", t, line, "carried", lang)
    ahead = sheet.next_value(t)
    if gamma is not None and ahead is not None and value is not None:
        name = f"γ·V({sheet.state_after(t)})"
        line = partial(put, f"{name} = {{g}}·{{v}} = {{x}}", g=gamma, v=ahead, x=gamma * ahead)
        yield _way(gamma * ahead, name, t, line, "ahead", lang)
        name = f"γ·V({sheet.state_after(t)}) − V(s_{t})"
        line = partial(
            put, f"{name} = {{g}}·{{v}} − {{now}} = {{x}}", g=gamma, v=ahead, now=value, x=gamma * ahead - value
        )
        yield _way(gamma * ahead - value, name, t, line, "rise", lang)
    rho, used = sheet.at("ratio", t), sheet.at("used", t)
    if rho is not None and used is not None:
        line = partial(put, "ρ_{t}·Â_{t} = {r}·{u} = {x}", t=t, r=rho, u=used, x=rho * used)
        yield _way(rho * used, f"ρ_{t}·Â_{t}", t, line, "surrogate", lang)
    new, target = sheet.at("new_values", t), sheet.at("returns", t)
    if new is not None and target is not None:
        name, square = f"(V'(s_{t}) − R_{t})²", (new - target) ** 2
        text = f"{name} = ({shown(new)} − {bracketed(target)})² = {shown(square)}"
        yield _way(square, name, t, lambda: text, "square", lang)


def _weighted_terms(sheet: Sheet, lang: str) -> Iterator[_Candidate]:
    """(γλ)^l·δ_{t+l}, and sums of the first of them."""
    decay, count = sheet.decay, min(len(sheet.slots), 40)
    if decay is None or sheet.column("deltas") is None:
        return
    errors = [sheet.at("deltas", s) or 0.0 for s in sheet.slots]
    for k, s in enumerate(sheet.slots[:LONGEST]):
        for steps in range(1, min(k, count) + 1):
            t = sheet.slots[k - steps]
            x = decay**steps * errors[k]
            line = partial(put, f"(γλ)^{steps}·δ_{s} = {{w}}·{{d}} = {{x}}", w=decay**steps, d=errors[k], x=x)
            yield _way(x, f"(γλ)^{steps}·δ_{s}", t, line, "weighted", lang)
    if len(sheet.slots) > count:
        return
    for place, t in enumerate(sheet.slots):
        terms = [decay**j * x for j, x in enumerate(errors[place:])]
        for last in range(1, len(terms) - 1):
            name, x = f"Σ_(l≤{last}) (γλ)^l·δ_({t}+l)", math.fsum(terms[: last + 1])
            yield _way(x, name, t, partial(_sum_line, name, terms[: last + 1], x), "partial", lang)


def _sum_line(name: str, terms: Sequence[float], total: float) -> str:
    return f"{name} = {added(terms)} = {shown(total)}"


def _other_lambdas(sheet: Sheet, lang: str) -> Iterator[_Candidate]:
    """Advantages and returns as they were if λ were another."""
    spec, now = sheet.estimator, sheet.lam
    if spec is None or not spec.mixes_tokens or len(sheet.slots) > LONGEST:
        return
    for lam in LAMBDAS:
        if lam == now:
            continue
        try:
            other = changed(sheet.rollout, lam=lam)
        except MingceError:
            return
        for name in ("advantages", "returns", "whitened_advantages"):
            for t, x in enumerate(other.columns.get(name, ())):
                if x is not None and t in sheet.place:
                    yield _Candidate(float(x), partial(_if_lambda, other, name, t, lam, lang))


def _if_lambda(other: Rollout, name: str, t: int, lam: float, lang: str) -> Derivation | None:
    made = derive(other, name, t, lang)
    if made is None:
        return None
    note = sentence("derive.if_lambda", lang, lam=shown(lam))
    return replace(
        made, quantity=f"{name} (λ = {shown(lam)})", reading=note + ("" if lang == "zh" else " ") + made.reading
    )
