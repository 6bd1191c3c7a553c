"""Finds numbers in a rendered answer that the float64 twins do not give for its example.

Three checks: an equation is evaluated from the numbers it shows, a list must be one of the example's columns, and every
other number one that the twins compute for the example, at the digits shown.
"""

from __future__ import annotations

import bisect
import math
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import method_numbers
from practice_numbers import add_numbers

from mingce.algorithms import reference
from mingce.explain import simulation
from mingce.explain.answer import Answer
from mingce.explain.answer_view import markdown
from mingce.explain.example import SETTINGS, Rollout, changed, completed
from mingce.explain.topic import TOPICS, Topic
from mingce.record.tokens import Token

NUMBER = re.compile(r"(?<![\w.^_⁻])−?\d+(?:\.\d+)?(?:×10[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+)?(?![\w])")
_POWER = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_LIST = re.compile(
    r"\[(−?[\d.×⁰¹²³⁴⁵⁶⁷⁸⁹⁻10]+(?:, (?:−?[\d.×⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+|—|…))*|—(?:, (?:−?[\d.×⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+|—|…))*)\]"
)


def value_of(text: str) -> float:
    """`−1.5×10⁻⁴` as a float."""
    digits, _, power = text.replace("−", "-").partition("×10")
    return float(digits) * 10.0 ** int(power.translate(_POWER) or "0")


def slack_of(text: str) -> float:
    """Half a unit of the last digit shown; 4 decimals are shown at most."""
    digits, _, power = text.partition("×10")
    decimals = len(digits.partition(".")[2])
    if power:
        return 0.51 * 10.0 ** (int(power.translate(_POWER)) - max(decimals, 2))
    return 0.51e-4


# ── what the twins give ──────────────────────────────────────────────────────────────────────────────────────────────


class Known:
    """Every number that may be said of an example, computed here from its given columns by the twins."""

    def __init__(self, rollout: Rollout, topic: str = "", literals: Iterable[float] = (), common: Known | None = None):
        self.rows: list[list[float | None]] = []
        self.numbers: list[float] = list(literals)
        self.rollout, self.common = rollout, common
        self.mask = [int(bool(m)) for m in rollout.columns["response_mask"]]
        self.slots = reference.chosen(self.mask)
        if common is None:
            self._fill()
        self._worlds(topic)
        self.sorted = sorted(x for x in self.numbers if math.isfinite(x))

    def of(self, topic: Topic) -> Known:
        """With what only this topic speaks of."""
        return Known(self.rollout, topic.id, literals(topic), self)

    def has(self, text: str) -> bool:
        x, slack = value_of(text), slack_of(text)
        place = bisect.bisect_left(self.sorted, x - slack)
        if place < len(self.sorted) and self.sorted[place] <= x + slack:
            return True
        return self.common is not None and self.common.has(text)

    def has_row(self, texts: Sequence[str]) -> bool:
        if any(_same_row(texts, row) for row in self.rows):
            return True
        return self.common is not None and self.common.has_row(texts)

    def row(self, column: Iterable[float | None]) -> None:
        """A column over all slots; its twin without holes and its sums, means and differences follow."""
        full = list(column)
        holed = [x if m else None for x, m in zip(full, self.mask, strict=True)]
        self.rows += [full, holed, [x for x in holed if x is not None]]
        chosen = [x for x in holed if x is not None]
        self.numbers += chosen
        self.numbers += [math.fsum(chosen), math.fsum(chosen) / len(chosen)]

    def _fill(self) -> None:
        columns, settings = self.rollout.columns, self.rollout.settings.as_dict()
        self.numbers += [float(x) for x in settings.values() if isinstance(x, int | float) and not isinstance(x, bool)]
        self.numbers += [float(n) for n in range(len(self.mask) + 3)] + [
            0.5,
            1e-8,
            20.0,
            10.0,
            float(self.rollout.bootstrap),
        ]
        for column in columns.values():
            self.row([None if x is None else float(x) for x in column])
        if {"rewards", "values"} <= set(columns):
            self._credit()
        if "advantages" in columns:
            self._advantages()
        if "old_log_probs" in columns:
            self._policy()

    def short(self, column: Sequence[float]) -> None:
        """A column over the chosen tokens."""
        full: list[float | None] = [None] * len(self.mask)
        for slot, x in zip(self.slots, column, strict=True):
            full[slot] = x
        self.row(full)

    def chosen(self, name: str) -> list[float]:
        return [float(self.rollout.columns[name][t]) for t in self.slots]

    def _credit(self) -> None:
        """δ, A, R and everything that topics of critic and credit make of rewards and values."""
        settings = self.rollout.settings.as_dict()
        r, v, n = self.chosen("rewards"), self.chosen("values"), len(self.slots)
        gamma, lam, after = settings["gamma"], settings["lam"], float(self.rollout.bootstrap)
        one, nothing = [[1] * n], [0.0] * n

        def gae(
            lam: float, values: list[float] = v, gamma: float = gamma, after: float = after, rewards: list[float] = r
        ) -> Any:
            return reference.gae([rewards], [values], one, gamma, lam, [after])

        decay = gamma * lam
        self.numbers += [decay, 1 - lam, 1 - decay, 1 / (1 - decay) if decay < 1 else 1.0]
        for k in range(n + 1):
            self.numbers += [
                decay**k,
                gamma**k,
                lam**k,
                gamma * (1 - lam) * decay**k,
                (1 - lam) * lam**k,
                gamma * decay**k,
            ]
        here = gae(lam)
        deltas, advantages, returns = here.deltas[0], here.advantages[0], here.returns[0]
        following = [*v[1:], after]
        self.short(following)
        to_go = reference.monte_carlo([r], [nothing], one, gamma, [after]).returns[0]
        tail = [g - x for g, x in zip(to_go, r, strict=True)]
        for row in (to_go, tail, [*to_go[1:], after], [-x for x in deltas], [-x for x in advantages]):
            self.short(row)
        for other in {0.0, 1.0, lam}:
            credit = gae(other)
            self.short(credit.advantages[0])
            self.short(credit.returns[0])
        for values in (to_go, tail):
            self.short(gae(lam, values).deltas[0])
        for k in range(n):
            weights = [decay**j for j in range(n - k)]
            self.numbers += [w * d for w, d in zip(weights, deltas[k:], strict=True)]
            ahead = [gamma**j * d for j, d in enumerate(deltas[k:])]
            self.numbers += [*ahead, math.fsum(ahead[1:]), gamma * decay ** (n - 1 - k) * after]
            self.rows.append([*(gamma * (1 - lam) * w for w in weights[:-1]), gamma * weights[-1]])
            partial = [math.fsum(gamma**j * d for j, d in enumerate(deltas[k : k + m + 1])) for m in range(n - k)]
            self.numbers += partial
            self.rows.append(list(partial))
            self.rows.append([w * d for w, d in zip(weights, deltas[k:], strict=True)])
            self.rows.append(weights)
            self.rows.append([math.fsum(weights[: j + 1]) for j in range(len(weights))])
            self.rows.append([*((1 - lam) * lam**j for j in range(n - k - 1)), lam ** (n - k - 1)])
            # n-step targets, and what each r and V counts in A_k
            total, targets = 0.0, []
            for j in range(k, n):
                total += gamma ** (j - k) * r[j]
                guess = gamma ** (j - k + 1) * following[j]
                targets.append(total + guess)
                self.numbers += [total, guess, total + guess]
            self.rows.append(list(targets))
            for j in range(n - k):
                of_value = -1.0 if j == 0 else gamma * (1 - lam) * decay ** (j - 1)
                self.numbers += [of_value, decay**j * r[k + j] + of_value * v[k + j]]
        only_rewards = gae(lam, nothing, after=0.0).advantages[0]
        self.short(only_rewards)
        self.short([a - x for a, x in zip(advantages, only_rewards, strict=True)])
        self.short([a - x for a, x in zip(returns, only_rewards, strict=True)])
        self.short([m - a for m, a in zip(gae(1.0).advantages[0], advantages, strict=True)])

    def _worlds(self, topic: str) -> None:
        """What only one topic speaks of: other critics, other rewards, other groups, a sampled world."""
        columns, settings, after = self.rollout.columns, self.rollout.settings.as_dict(), self.rollout.bootstrap
        needed = TOPICS[topic].needs if topic else ()
        if all(name in columns for name in needed):
            method_numbers.add(self, topic)
        if not {"rewards", "values"} <= set(columns):
            return
        r, v, n = self.chosen("rewards"), self.chosen("values"), len(self.slots)
        gamma, lam, beta = settings["gamma"], settings["lam"], settings["beta"]
        one = [[1] * n]
        credit = reference.gae([r], [v], one, gamma, lam, [after])
        advantages, returns = credit.advantages[0], credit.returns[0]

        def to_go(rewards: Sequence[float], decay: float = gamma) -> list[float]:
            return reference.discounted_sum(rewards, decay)

        end = [0.0] * (n - 1) + [1.0]
        if topic == "values_shape":
            drift = math.fsum(map(abs, self.chosen("kl"))) / n * beta if "kl" in columns else 0.0
            cost, stay = drift if drift >= 0.001 else 0.01, 0.5 ** (1 / n)
            self.numbers += [cost, stay, 1 / n, 1 - stay]
            for row in (
                to_go([x - cost for x in end]),
                to_go([x * stay for x in end], gamma * stay),
                to_go(end),
                to_go([1 / n] * n),
            ):
                self.short(row)
        elif topic == "critic_fits_return":
            mean = math.fsum(returns) / n
            self.numbers += [mean, math.fsum((x - mean) ** 2 for x in returns) / n]
            self.numbers += [math.fsum(a * a for a in advantages) / 2 / n, math.fsum(a * a for a in advantages) / 8 / n]
            for value in v:
                self.numbers += [value - mean, math.fsum((value - x) ** 2 for x in returns) / n]
            self.numbers += [(x + y) / 2 for x, y in zip(v, returns, strict=True)] + [a * a / 2 for a in advantages]
        elif topic == "value_clipping":
            reach = settings.get("value_clip")
            self._value_clip(0.5 if reach is None else reach, v, advantages)
        elif topic == "returns_values_index":
            self.short([x - y for x, y in zip(returns, [*v[1:], after], strict=True)])
        elif topic == "move_before_after":
            late = reference.gae([r], [[*v[1:], after]], one, gamma, lam, [after])
            self.short(late.deltas[0])
            self.short(late.advantages[0])
        elif topic == "truncation":
            zero = reference.gae([r], [v], one, gamma, lam, [0.0])
            cut = reference.gae([r], [v], one, gamma, lam, [after or v[-1]])
            for column in (*zero, *cut):
                self.short(column[0])
            self.short([x - y for x, y in zip(cut.advantages[0], zero.advantages[0], strict=True)])
        elif topic == "masks_eos":
            length = self.slots[-1] + 1
            filled = [
                [columns[name][t] if self.mask[t] else 0.0 for t in range(length)] for name in ("rewards", "values")
            ]
            blind = reference.gae([[*filled[0], 0.0]], [[*filled[1], 1.0]], [[1] * (length + 1)], gamma, lam)
            self.short([blind.advantages[0][t] for t in self.slots])
            self.short([blind.deltas[0][t] for t in self.slots])
            self.rows.append([float(m) for m in self.mask])
            self.numbers += [len(self.mask) - n]
        elif topic == "credit_backward":
            self.short(to_go(r, gamma * lam))
        elif topic == "credit_allocations":
            for k in {settings.get("k") or 3}:
                self.short(reference.last_k([r], one, k)[0])
            self.short(reference.uniform([r], one)[0])
            self.short(reference.attention([r], one, [[float(k) for k in range(1, n + 1)]])[0])
        elif topic in ("gamma_lambda", "critic_td_error"):
            self.numbers += [0.9, 0.95, 0.99]
            for other in (0.0, 0.5, 0.9, 0.95, 1.0, lam):
                for g in (gamma, 1.0, 0.99, 0.9):
                    changed_credit = reference.gae([r], [v], one, g, other, [after])
                    self.numbers += [*changed_credit.advantages[0], *changed_credit.returns[0]]
                    self.numbers += [a * a / 2 for a in changed_credit.advantages[0]]
        elif topic == "returns_raw":
            self.short([x + y for x, y in zip(v, self._whitened(), strict=True)])
        elif topic == "group_baseline":
            self._group(math.fsum(r))
        elif topic == "reward_sparse_dense":
            total = math.fsum(r)
            for paid in ([0.0] * (n - 1) + [total], [total / n] * n):
                self.short(paid)
                self.short(to_go(paid))
            self.numbers.append(math.fsum(r[:-1]))
        elif topic == "gae_variance":
            self._simulated(lam)
        else:
            add_numbers(self, topic)

    def _whitened(self) -> list[float]:
        whitened = reference.masked_whiten([self.chosen("advantages")], [[1] * len(self.slots)])[0]
        return list(whitened)

    def _value_clip(self, reach: float, values: Sequence[float], advantages: Sequence[float]) -> None:
        for v, a in zip(values, advantages, strict=True):
            target = v + a
            sign = 1.0 if a >= 0 else -1.0
            self.numbers += [v - reach, v + reach, reach, 2 * reach]
            for new in (v, v + a / 2, v + sign * reach, target, v + sign * 2 * reach, v - sign * 2 * reach):
                near = min(max(new, v - reach), v + reach)
                loss = reference.value_term(new, target, v, reach).loss
                self.numbers += [new, (new - target) ** 2, (near - target) ** 2, loss, new - target, near]
        self.numbers.append(sum(abs(a) > reach for a in advantages))

    def _group(self, own: float) -> None:
        """The answer at hand, one that earned the same, and two that got 0."""
        totals = [own, own, 0.0, 0.0]
        mean = math.fsum(totals) / 4
        std = math.sqrt(math.fsum((x - mean) ** 2 for x in totals) / 3)
        others = math.fsum(totals[1:]) / 3
        self.rows.append(list(totals))
        self.numbers += [*totals, mean, std, others, own - mean, own - others, (own - mean) / (std + 1e-6), 3.0, 4.0]

    def _simulated(self, lam: float) -> None:
        world = simulation.world_of(self.rollout)
        n = len(world.rewards)
        true = [world.after]
        for reward in reversed(world.rewards):
            true.insert(0, world.stay * (reward + world.gamma * true[0]))
        q = world.rewards[0] + world.gamma * true[1]
        target = q - world.values[0]
        counts = simulation.drawn(world, simulation.SAMPLES, simulation.SEED)
        chance = {t: world.stay ** (t - 1) * (1 - world.stay) for t in range(1, n)} | {n: world.stay ** (n - 1)}
        sampled = {t: count / simulation.SAMPLES for t, count in counts.items()}
        self.rows.append(list(world.values))
        self.numbers += [
            q,
            target,
            world.stay,
            world.kept,
            float(simulation.SAMPLES),
            counts[n],
            64.0,
            n,
            world.values[0],
        ]
        for other in (*simulation.LAMBDAS, lam):
            self.numbers.append(other)
            first = {}
            for lost in range(1, n + 1):
                rewards = [*world.rewards[:lost], *[0.0] * (n - lost)]
                values = [*world.values[: lost + 1], *(world.kept * x for x in world.values[lost + 1 :])]
                tail = [world.after if lost == n else 0.0]
                first[lost] = reference.gae([rewards], [values], [[1] * n], world.gamma, other, tail).advantages[0][0]
            for weights in (sampled, chance):
                mean = math.fsum(w * first[t] for t, w in weights.items())
                variance = math.fsum(w * (first[t] - mean) ** 2 for t, w in weights.items())
                bias = mean - target
                self.numbers += [mean, bias, abs(bias), variance, math.sqrt(variance), bias**2 + variance]
        # the variance with the true values for a critic: its TD errors are uncorrelated
        terms = []
        for t in range(1, n):
            stayed = world.rewards[t] + world.gamma * true[t + 1] - true[t]
            square = world.stay * stayed**2 + (1 - world.stay) * true[t] ** 2
            terms.append((world.gamma * lam) ** (2 * t) * world.stay ** (t - 1) * square)
        self.numbers.append(math.fsum(terms))

    def _advantages(self) -> None:
        raw = self.chosen("advantages")
        mean = math.fsum(raw) / len(raw)
        square = math.fsum((x - mean) ** 2 for x in raw)
        for count in (len(raw), max(1, len(raw) - 1)):
            self.numbers += [math.sqrt(square / count), math.sqrt(square / count + 1e-8), square / count]
        self.numbers += [sum(x > 0 for x in raw), mean]
        low, high = self.clip()
        ratios = [(1 - low) / 2, 1 - low, 1.0, 1 + high, 2 * (1 + high)]
        self.numbers += ratios
        for size in map(abs, raw):
            for ratio in ratios:
                for sign in (1, -1):
                    self.numbers.append(-reference.policy_term(0.0, math.log(ratio), sign * size, low, high, None).loss)

    def clip(self) -> tuple[float, float]:
        settings = self.rollout.settings
        assert settings.clip_low is not None
        assert settings.clip_high is not None
        return settings.clip_low, settings.clip_high

    def _policy(self) -> None:
        columns = self.rollout.columns
        old = self.chosen("old_log_probs")
        new = self.chosen("new_log_probs")
        probs = [math.exp(x) for x in old]
        ratios = [math.exp(x - y) for x, y in zip(new, old, strict=True)]
        for row in (probs, [math.exp(x) for x in new], ratios, [-x for x in old]):
            self.short(row)
        for p in probs:
            self.numbers.append(-p * math.log(p) - ((1 - p) * math.log(1 - p) if p < 1 else 0.0))
        if "ref_log_probs" in columns:
            gaps = [x - y for x, y in zip(old, self.chosen("ref_log_probs"), strict=True)]
            beta = float(self.rollout.settings.beta or 0.0)
            for row in (gaps, [x * x / 2 for x in gaps], [math.exp(-x) - 1 + x for x in gaps]):
                self.short(row)
                self.numbers += [beta * math.fsum(row), beta * math.fsum(row) / len(row)]
            self.numbers.append(sum(x < 0 for x in gaps))
        if "kl" in columns:
            beta = float(self.rollout.settings.beta or 0.0)
            self.numbers += [beta * math.fsum(self.chosen("kl")), *(beta * x for x in self.chosen("kl"))]
            if "values" in columns and "scores" in columns:
                free = changed(self.rollout, beta=0.0).columns["advantages"]
                full = changed(self.rollout).columns["advantages"]
                self.row(free)
                self.row([None if x is None else x - y for x, y in zip(full, free, strict=True)])
        if "advantages" in columns:
            raw = self.chosen("advantages")
            terms = [ratio * a for ratio, a in zip(ratios, raw, strict=True)]
            losses = [-x for x in terms]
            low, high = self.clip()
            self.short([min(q * a, min(max(q, 1 - low), 1 + high) * a) for q, a in zip(ratios, raw, strict=True)])
            self.numbers.append(
                sum(min(max(q, 1 - low), 1 + high) * a < q * a for q, a in zip(ratios, raw, strict=True))
            )
            self.short(terms)
            self.short(losses)
            n, total = len(losses), math.fsum(losses)
            means = [(total + losses[0]) / (n + 1), (total / n + losses[0]) / 2, (total + losses[0]) / 2]
            self.numbers += [*means, means[-1] / len(self.mask), total + losses[0]]


def _same_row(texts: Sequence[str], row: Sequence[float | None]) -> bool:
    if "…" in texts:
        head, tail = texts[: texts.index("…")], texts[texts.index("…") + 1 :]
        return len(row) > len(texts) - 1 and _same_row(head, row[: len(head)]) and _same_row(tail, row[-len(tail) :])
    return len(texts) == len(row) and all(
        x is None if text == "—" else x is not None and abs(value_of(text) - x) <= slack_of(text)
        for text, x in zip(texts, row, strict=True)
    )


def literals(topic: Topic) -> list[float]:
    """Whole numbers that stand in the topic's own text: indices, exponents, UTF-8."""
    said = (*topic.words, *map(topic.said, topic.parts))
    texts = (*(text for pair in said for text in pair), topic.formula, topic.each)
    found = (value_of(x) for text in texts for x in NUMBER.findall(re.sub(r"\{[a-z_]+\}", "", text)))
    return [x for x in found if x.is_integer() and abs(x) <= 20]


def said(answer: Answer) -> str:
    """What of an answer is to be checked: all but its headings, its code and the topics it offers."""
    return markdown(replace(answer, title="", about="", code=(), choices=()))


def unknown_numbers(text: str, known: Known) -> list[str]:
    """Numbers and lists of a rendered answer that the example does not have."""
    found = []

    def take(match: re.Match[str]) -> str:
        cells = match[1].split(", ")
        if not known.has_row(cells) and not (len(cells) == 2 and all(known.has(cell) for cell in cells)):
            found.append(match[0])
        return " "

    text = _LIST.sub(take, text)
    return found + [number for number in NUMBER.findall(text) if not known.has(number)]


def wrong_columns(answer: Answer, rollout: Rollout) -> list[str]:
    """Columns of the tables under the tokens that are not the example's column of that name."""
    wrong = []
    for table in answer.tables:
        for place, heading in enumerate(table.headings):
            name = heading.partition("\n")[0]
            if name in rollout.columns and "\n" in heading:
                mask = rollout.columns["response_mask"]
                column = [
                    x if m or name == "response_mask" else None
                    for x, m in zip(rollout.columns[name], mask, strict=True)
                ]
                if not _same_row([row[place] for row in table.rows], column):
                    wrong.append(name)
    return wrong


# ── equations ────────────────────────────────────────────────────────────────────────────────────────────────────────

_EQUATION = re.compile(
    r"(?P<left>(?:exp\(|[(\d−])[\d.+−·/() ²×⁰¹²³⁴⁵⁶⁷⁸⁹⁻^]*[+−·/)²][\d.+−·/() ²×⁰¹²³⁴⁵⁶⁷⁸⁹⁻^]*?)\s*=\s*"
    r"(?P<right>−?\d+(?:\.\d+)?(?:×10[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+)?)(?![\w.]|\s*[+·/(−^])"
)
_TERM = re.compile(r"\d+(?:\.\d+)?(?:×10[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+)?")


def equations(text: str) -> Iterator[tuple[str, bool]]:
    """Every equation between numbers in a text, and whether it holds up to the rounding of the numbers shown."""
    for match in _EQUATION.finditer(text):
        before = text[: match.start()].rstrip()[-1:]
        left = match["left"].strip()
        if re.match(r"[A-Za-zα-ωΑ-Ω_)·+−/^]", before) or left.count("(") != left.count(")"):
            continue  # the end of something longer
        terms = _TERM.findall(left)
        code = _TERM.sub("{}", left)
        for shown, python in (("²", "**2"), ("^", "**"), ("·", "*"), ("−", "-"), ("exp", "math.exp")):
            code = code.replace(shown, python)
        values = [value_of(term) for term in terms]

        def result(numbers: Sequence[float], code: str = code) -> float:
            return float(eval(code.format(*(f"({x!r})" for x in numbers)), {"math": math}))

        try:
            middle = result(values)
        except (SyntaxError, TypeError, ZeroDivisionError):
            continue
        room = 1.1 * slack_of(match["right"])
        for k, term in enumerate(terms):
            if "." in term:
                moved = [x + slack_of(term) * (j == k) for j, x in enumerate(values)]
                room += 1.1 * abs(result(moved) - middle)
        yield match[0], abs(middle - value_of(match["right"])) <= room


# ── examples ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def random_rollout(seed: int) -> Rollout:
    """1 to 12 tokens with holes, sparse or dense scores, sometimes cut, sometimes updated; any γ, λ, β."""
    chance = random.Random(seed)
    count = chance.randint(1, 12)
    mask = [int(chance.random() < 0.8) for _ in range(count)]
    mask[chance.randrange(count)] = 1

    def column(low: float, high: float) -> list[float | None]:
        return [round(chance.uniform(low, high), chance.choice((2, 3, 6))) if m else None for m in mask]

    dense = chance.random() < 0.5
    scores = column(-1, 1) if dense else [0.0 if m else None for m in mask]
    scores[reference.chosen(mask)[-1]] = 1.0
    columns: dict[str, Any] = {
        "response_mask": mask, "scores": scores, "old_log_probs": column(-3, -0.01), "ref_log_probs": column(-3, -0.01),
        "values": column(-1, 1),
    }  # fmt: skip
    if chance.random() < 0.5:
        old = columns["old_log_probs"]
        columns["new_log_probs"] = [None if x is None else x + chance.uniform(-0.5, 0.5) for x in old]
    settings = replace(
        SETTINGS,
        gamma=chance.choice((1.0, round(chance.uniform(0.5, 1), 3))),
        lam=chance.choice((0.0, 1.0, round(chance.random(), 3))),
        beta=round(chance.random(), 3),
    )
    tokens = [Token(t, f"{chr(97 + t)}x", t) for t in range(count)]
    after = round(chance.uniform(-1, 1), 3) if chance.random() < 0.4 else 0.0
    return completed(
        Rollout("p", "q", tokens=tokens, columns=columns, settings=settings, uid="random", bootstrap=after)
    )
