"""Random texts about PPO with worked numbers, in Chinese and English, all right or with one slip planted.

`text_of(seed)` gives a right text; `slip_of(seed)` the same kind of text with one slip, the lines it may be named on,
and what kind of slip it is. The numbers come from the float64 twins.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mingce.algorithms import reference
from mingce.base.numbers import rounded

SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


@dataclass
class Column:
    """A list of numbers that follow from the others; `wrongs` are whole lists that one might write by mistake."""

    name: str
    numbers: list[float]
    wrongs: dict[str, list[float]] = field(default_factory=dict)


@dataclass
class Mark:
    """A number in the text, and the mistakes one might make in its place; `group` if it stands in a list."""

    right: float
    wrongs: dict[str, float]
    decimals: int
    percent: bool = False
    column: Column | None = None
    group: int = -1
    place: int = 0


class Author:
    """Writes one example in a random manner."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.zh = rng.random() < 0.5
        self.lines: list[str] = []
        self.marks: list[Mark] = []
        self.groups = 0
        self.base = rng.choice([0, 1])
        self.width = rng.randint(3, 7)
        self.decimals = rng.choice([2, 3, 3, 4])
        self.gamma, self.lam = rng.choice([1.0, 1.0, 0.99, 0.95, 0.9]), rng.choice([0.95, 0.95, 0.9, 0.8, 0.5, 0.97])
        self.beta = rng.choice([0.1, 0.05, 0.02, 0.2])
        self.after = round(rng.uniform(0.2, 0.9), 2) if rng.random() < 0.2 else 0.0
        dense = [round(rng.uniform(-0.3, 0.3), 2) for _ in range(self.width)]
        self.rewards = dense if rng.random() < 0.6 else [0.0] * (self.width - 1) + [rng.choice([1.0, -1.0, 0.8])]
        self.values = [round(rng.uniform(-0.5, 1.2), 2) for _ in range(self.width)]
        self.deltas, self.advantages, self.returns = self.credit(self.lam)
        self.mu = math.fsum(self.advantages) / self.width
        self.bessel = rng.random() < 0.5
        mask = [[1] * self.width]
        self.sigma = math.sqrt(reference.masked_var([self.advantages], mask, self.bessel))
        self.whitened = [(x - self.mu) / self.sigma for x in self.advantages]

    def credit(self, lam: float) -> tuple[list[float], list[float], list[float]]:
        one = reference.gae([self.rewards], [self.values], [[1] * self.width], self.gamma, lam, [self.after])
        return one.deltas[0], one.advantages[0], one.returns[0]

    # ── numbers ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def column(self, name: str) -> Column:
        """δ, A or R with the lists one might write in its place."""
        numbers = {"deltas": self.deltas, "advantages": self.advantages, "returns": self.returns}[name]
        wrongs = {"shifted": [*numbers[1:], 0.0], "sign": [-x for x in numbers]}
        if name == "advantages":
            wrongs |= {"no_lambda": self.credit(1.0)[1], "whitened": self.whitened, "no_decay": self.deltas}
            mixed = [*self.rewards[:-1], self.deltas[-1]]
            wrongs["reward_for_delta"] = reference.discounted_sum(mixed, self.gamma * self.lam)
        if name == "returns":
            wrongs["of_whitened"] = [a + v for a, v in zip(self.whitened, self.values, strict=True)]
            wrongs["minus"] = [a - v for a, v in zip(self.advantages, self.values, strict=True)]
        return Column(name, numbers, wrongs)

    def number(
        self, right: float, wrongs: dict[str, float], decimals: int | None = None, *, percent: bool = False
    ) -> str:
        """A number that may be planted wrong, as a mark that `_written` fills in."""
        self.marks.append(Mark(right, wrongs, self.decimals if decimals is None else decimals, percent))
        return f"\x01{len(self.marks) - 1}\x02"

    def cells(self, column: Column) -> list[str]:
        """The numbers of a column, which can be planted one by one or all at once."""
        self.groups += 1
        texts = []
        for t, right in enumerate(column.numbers):
            slips = self.slips(column.numbers, t)
            self.marks.append(Mark(right, slips, self.decimals, False, column, self.groups, t))
            texts.append(f"\x01{len(self.marks) - 1}\x02")
        return texts

    def slips(self, numbers: Sequence[float], t: int) -> dict[str, float]:
        """What one might write for number t of a list: the sign lost, or its neighbour."""
        return {"sign": -numbers[t]} | ({"neighbour": numbers[t + 1]} if t + 1 < len(numbers) else {})

    def shown(self, number: float) -> str:
        return rounded(number, self.decimals)

    def signed(self, text: str) -> str:
        return f"({text})" if text.startswith("-") else text

    # ── words ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def put(self, *lines: str) -> None:
        self.lines += lines

    def say(self, zh: str, en: str) -> str:
        return zh if self.zh else en

    def one_of(self, zh: Sequence[str], en: Sequence[str]) -> str:
        return self.rng.choice(list(zh if self.zh else en))

    def given(self, numbers: Sequence[float]) -> str:
        style = self.rng.randrange(3)
        texts = [f"{x:g}" for x in numbers]
        return "[" + (", ", ",", ", ")[style].join(texts) + "]"

    def settings(self, lam: bool = True) -> str:
        g, lam_ = f"{self.gamma:g}", f"{self.lam:g}"
        if not lam:
            return f"γ = {g}"
        return self.one_of(
            [f"取 γ={g}，λ={lam_}。", f"γ = {g}，λ = {lam_}", f"折扣因子 γ 为 {g}，λ 取 {lam_}。",
             f"`gamma={g}, lam={lam_}`", f"其中 $\\gamma={g}$，$\\lambda={lam_}$。"],
            [f"γ = {g}, λ = {lam_}", f"With gamma={g} and lambda={lam_}.",
             f"\\(\\gamma = {g}\\), \\(\\lambda = {lam_}\\)", f"(γ, λ) = ({g}, {lam_})",
             f"We use a discount γ of {g} and λ = {lam_}."],
        )  # fmt: skip

    def ending(self) -> str:
        """What is said of the state behind the end, where it is bootstrapped."""
        end = f"{self.after:g}"
        return self.one_of(
            [f"回复被截断，最后一个 token 之后的价值为 {end}。", f"末尾自举：V(s_T) = {end}"],
            [f"The response was cut; the value after the last token is {end}.", f"Truncated, so V(s_T) = {end}."],
        )

    def inputs(self) -> None:
        """Rewards and values."""
        r, v = self.given(self.rewards), self.given(self.values)
        style = self.rng.randrange(5)
        if style == 0:
            self.put(f"rewards = {r}", f"values = {v}")
        elif style == 1:
            self.put(self.say(f"奖励 r = {r}，价值 V = {v}。", f"The rewards are r = {r} and the values V = {v}."))
        elif style == 2:
            self.put("```python", f"rewards = np.array({r})", f"values = np.array({v})", "```")
        elif style == 3:
            self.put(self.say(f"- 奖励：{r}", f"- **Rewards:** {r}"), self.say(f"- 价值：{v}", f"- **Values:** {v}"))
        else:
            self.put(f"$r = {r}$, $V = {v}$")
        if self.after:
            self.put(self.ending())

    def filler(self) -> str:
        return self.one_of(
            ["这一步最容易出错。", "下面从后往前算。", "批大小 64，学习率 1e-6，训练 300 步。",
             "注意 critic 只用于基线。"],
            ["This is the part people get wrong.", "We go backwards from the end.",
             "Training used a batch size of 64 and lr = 1e-6 for 300 steps.",
             "Recall that the critic is only a baseline."],
        )  # fmt: skip


# ── layouts ──────────────────────────────────────────────────────────────────────────────────────────────────────────

NAMES = {
    "deltas": (["deltas", "delta", "δ", "TD 误差"], ["deltas", "delta", "δ", "td_errors", "TD errors"]),
    "advantages": (["advantages", "A", "优势", "adv"], ["advantages", "A", "adv", "Advantages"]),
    "returns": (["returns", "R", "回报"], ["returns", "R", "Returns"]),
}


def lists(a: Author) -> None:
    a.inputs()
    code = a.rng.random() < 0.3
    if code:
        a.put("```")
    for name in a.rng.sample(list(NAMES), a.rng.randint(1, 3)):
        label = a.one_of(*NAMES[name])
        listed = "[" + ", ".join(a.cells(a.column(name))) + "]"
        equals = a.rng.choice([" = ", ": ", "=", "："]) if not label[0].isascii() or not code else " = "
        a.put(f"{label}{equals}{listed}")
    if code:
        a.put("```")


def sentences(a: Author) -> None:
    a.inputs()
    for name in a.rng.sample(list(NAMES), a.rng.randint(1, 2)):
        listed = "[" + ", ".join(a.cells(a.column(name))) + "]"
        words = {
            "deltas": ("TD 误差", "TD errors"),
            "advantages": ("优势", "advantages"),
            "returns": ("回报", "returns"),
        }
        zh, en = words[name]
        a.put(
            a.one_of(
                [f"算出来的{zh}是 {listed}。", f"于是{zh}为 {listed}，"],
                [f"The {en} are {listed}.", f"so the {en} come out as {listed}"],
            )
        )


def table(a: Author) -> None:
    names = [name for name in NAMES if a.rng.random() < 0.8] or ["advantages"]
    heads = {"deltas": ("δ", "TD error δ"), "advantages": ("优势 A", "advantage"), "returns": ("回报 R", "return")}
    head = ["t", a.say("奖励 r", "reward"), a.say("价值 V", "value"), *(a.say(*heads[name]) for name in names)]
    columns = [a.cells(a.column(name)) for name in names]
    rows = [
        [str(t + a.base), f"{a.rewards[t]:g}", f"{a.values[t]:g}", *(column[t] for column in columns)]
        for t in range(a.width)
    ]
    if a.after:
        a.put(a.ending(), "")
    if a.rng.random() < 0.3:
        rows = list(map(list, zip(head, *rows, strict=True)))
        head, rows = rows[0], rows[1:]
        head[0] = ""
        head[1:] = [f"t={t}" for t in head[1:]]
    a.put(
        "",
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
    )


def equations(a: Author) -> None:
    style = a.rng.choice(["ascii", "unicode", "latex"])
    times = {"ascii": " * ", "unicode": "·", "latex": " \\times "}[style]

    def symbol(name: str, t: int) -> str:
        n = str(t + a.base)
        if style == "unicode":
            return name + (n.translate(SUBSCRIPTS) if a.rng.random() < 0.5 else f"_{n}")
        return (r"\delta" if name == "δ" and style == "latex" else name) + f"_{n}"

    def line(text: str) -> None:
        a.put(a.rng.choice([f"$${text}$$", f"- \\({text}\\)"]) if style == "latex" else text)

    a.inputs()
    g, decay = f"{a.gamma:g}", f"{a.gamma * a.lam:.6g}"
    for t in reversed(range(a.width)):
        last = t + 1 == a.width
        following = a.after if last else a.values[t + 1]
        minus = a.signed(f"{a.values[t]:g}")
        no_end = last and not a.after
        put_in = (
            f"{a.rewards[t]:g} - {minus}"
            if no_end
            else f"{a.rewards[t]:g} + {g}{times}{a.signed(f'{following:g}')} - {minus}"
        )
        wrong = {"plus": a.rewards[t] + a.gamma * following + a.values[t], "sign": -a.deltas[t]}
        line(f"{symbol('δ', t)} = {put_in} = {a.number(a.deltas[t], wrong)}")
    chain = a.rng.random() < 0.5
    for t in reversed(range(a.width)):
        if t + 1 == a.width:
            line(f"{symbol('A', t)} = {symbol('δ', t)} = {a.number(a.advantages[t], a.slips(a.advantages, t))}")
            continue
        named = f"{symbol('δ', t)} + {decay}{times}{symbol('A', t + 1)} = " if chain else ""
        shown = a.shown(a.deltas[t]), a.shown(a.advantages[t + 1])
        right = float(shown[0]) + a.gamma * a.lam * float(shown[1]) if a.rng.random() < 0.5 else a.advantages[t]
        wrong = {
            "no_decay": a.deltas[t] + a.advantages[t + 1],
            "minus": a.deltas[t] - a.gamma * a.lam * a.advantages[t + 1],
        }
        line(f"{symbol('A', t)} = {named}{shown[0]} + {decay}{times}{a.signed(shown[1])} = {a.number(right, wrong)}")


def steps(a: Author) -> None:
    a.inputs()
    for t in range(a.width):
        n, column = t + a.base, (a.deltas, a.advantages, a.returns)
        d, adv, ret = (a.number(x[t], a.slips(x, t)) for x in column)
        head = a.one_of([f"- t={n}：", f"第 {n} 步："] if a.base else [f"- t={n}："], [f"- t={n}: ", f"t = {n}: "])
        a.put(f"{head}δ = {d}, A = {adv}, R = {ret}")


def prose(a: Author) -> None:
    a.inputs()
    said = []
    for t in a.rng.sample(range(a.width), min(a.width, 3)):
        n = t + a.base
        name, symbol = a.rng.choice([("advantages", "A"), ("returns", "R"), ("deltas", "δ")])
        numbers = a.column(name).numbers
        shown = a.number(numbers[t], a.slips(numbers, t))
        said.append(a.one_of(
            [f"{symbol}_{n} 是 {shown}", f"{symbol}_{n} 约为 {shown}", f"可得 {symbol}_{n} = {shown}"],
            [f"{symbol}_{n} is {shown}", f"{symbol}_{n} comes to {shown}", f"we get {symbol}_{n} ≈ {shown}"],
        ))  # fmt: skip
    counted = a.say(f"下标从 {a.base} 开始", f"counting from {a.base}")
    a.put(f"{counted}{a.say('，', ', ')}" + a.say("，", ", ").join(said) + a.say("。", "."))


def whitening(a: Author) -> None:
    raw = [round(x, 2) for x in a.advantages]
    if len(set(raw)) < 2:
        raw[0] += 0.5
    mu = math.fsum(raw) / a.width
    n_sigma, b_sigma = (math.sqrt(reference.masked_var([raw], [[1] * a.width], unbiased)) for unbiased in (False, True))
    sigma = b_sigma if a.bessel else n_sigma
    column = Column("whitened", [(x - mu) / sigma for x in raw])
    column.wrongs = {
        "raw": raw,
        "not_centred": [x / sigma for x in raw],
        "variance": [(x - mu) / sigma**2 for x in raw],
    }
    listed = a.given(raw)
    wrong_mean, wrong_sigma = {"wrong_sum": mu * a.width / (a.width + 1) + 0.05}, {"variance": sigma**2}
    style = a.rng.randrange(3)
    if style == 0:
        a.put(f"advantages = {listed}", f"mean(advantages) = {a.number(mu, wrong_mean)}",
              f"std(advantages) = {a.number(sigma, wrong_sigma)}")  # fmt: skip
        a.put("whitened_advantages = [" + ", ".join(a.cells(column)) + "]")
    elif style == 1:
        mean, std = a.number(mu, wrong_mean), a.number(sigma, wrong_sigma)
        en = f"The raw advantages are {listed}, their mean is {mean} and their standard deviation is {std}."
        a.put(a.say(f"未白化的优势是 {listed}，均值为 {mean}，标准差为 {std}。", en))
        white = "[" + ", ".join(a.cells(column)) + "]"
        a.put(a.say(f"白化后的优势为 {white}。", f"The whitened advantages are {white}."))
    else:
        a.put("", a.say("| token | 优势 A | 白化后的优势 |", "| token | advantage A | whitened A |"), "|---|---|---|")
        for t, cell in enumerate(a.cells(column)):
            a.put(f"| y{t} | {raw[t]:g} | {cell} |")
        a.put("")


def penalties(a: Author) -> None:
    a.decimals = max(a.decimals, 3)
    old = [round(-a.rng.uniform(0.05, 2), 2) for _ in range(a.width)]
    ref = [round(x + a.rng.uniform(-0.3, 0.3), 2) for x in old]
    kl = [x - y for x, y in zip(old, ref, strict=True)]
    scores = [0.0] * (a.width - 1) + [1.0]
    beta = f"{a.beta:g}"
    a.put(f"old_log_probs = {a.given(old)}", f"ref_log_probs = {a.given(ref)}")
    a.put(f"kl = [{', '.join(a.cells(Column('kl', kl, {'sign': [-x for x in kl]})))}]")
    paid = Column("rewards", [s - a.beta * k for s, k in zip(scores, kl, strict=True)])
    paid.wrongs = {"plus": [s + a.beta * k for s, k in zip(scores, kl, strict=True)],
                   "no_beta": [s - k for s, k in zip(scores, kl, strict=True)]}  # fmt: skip
    a.put(f"scores = {a.given(scores)}", f"β = {beta}", a.say("奖励", "rewards") + f" = [{', '.join(a.cells(paid))}]")


def ratios(a: Author) -> None:
    for _ in range(a.rng.randint(1, 3)):
        x, adv = round(a.rng.uniform(-0.6, 0.6), 2), round(a.rng.choice([-1, 1]) * a.rng.uniform(0.3, 2), 2)
        rho = math.exp(x)
        a.put(a.say("概率比", "The ratio is") + f" exp({x:g}) = {a.number(rho, {'wrong': 1.1 + x}, 3)}")
        shown = f"{rho:.3f}"
        clipped = max(0.8, min(1.2, float(shown)))
        product = float(shown) * adv
        low = min(product, clipped * adv)
        first, second = (
            f"{shown} × {a.signed(f'{adv:g}')}",
            f"{f'{clipped:.3f}'.rstrip('0').rstrip('.')} × {a.signed(f'{adv:g}')}",
        )
        a.put(
            f"{first} = {a.number(product, {'sign': -product}, 3)}",
            f"min({first}, {second}) = {a.number(low, {'other': max(product, clipped * adv)}, 3)}",
        )


def weights(a: Author) -> None:
    a.inputs()
    k, decay = a.rng.randint(2, 5), a.gamma * a.lam
    shown = f"{decay:.6g}"
    slips = {"one_less": decay ** (k - 1), "one_more": decay ** (k + 1)}
    a.put(f"(γλ)^{k} = {shown}^{k} ≈ {a.number(decay**k, slips, 3)}")
    a.put(f"{shown}^{k} = {a.number(decay**k, slips, 1, percent=True)}%")


def totals(a: Author) -> None:
    terms = [round(a.rng.uniform(-0.9, 0.9), 2) for _ in range(a.rng.randint(3, 5))]
    written = f"{terms[0]:g}" + "".join(f" {'-' if x < 0 else '+'} {abs(x):g}" for x in terms[1:])
    total = math.fsum(terms)
    a.put(a.say("总奖励", "The total reward is") + f" {written} = {a.number(total, {'left_out': total - terms[1]}, 2)}")
    count = len(terms)
    a.put(
        a.say("平均", "on average")
        + f" ({written})/{count} = {a.number(total / count, {'divided': total / (count + 1)}, 3)}"
    )


def monte_carlo(a: Author) -> None:
    total = reference.discounted_sum(a.rewards, a.gamma)
    a.put(
        a.say(f"蒙特卡洛回报（γ = {a.gamma:g}）：", f"Monte Carlo returns (γ = {a.gamma:g}):"),
        f"r = {a.given(a.rewards)}",
    )
    column = Column("returns", total, {"not_discounted": reference.discounted_sum(a.rewards, a.gamma - 0.1)})
    a.put(f"G = [{', '.join(a.cells(column))}]")


CREDIT: list[Callable[[Author], None]] = [lists, sentences, table, equations, steps, prose]
OTHERS: list[Callable[[Author], None]] = [whitening, penalties, ratios, weights, totals, monte_carlo]


# ── whole texts ──────────────────────────────────────────────────────────────────────────────────────────────────────


def example(rng: random.Random) -> Author:
    """One example: the settings before or after the numbers, and a line or two of words."""
    a = Author(rng)
    layout = rng.choice(CREDIT + OTHERS)
    before, needed = rng.random() < 0.75, layout in CREDIT or layout is weights
    if rng.random() < 0.5:
        a.put(a.filler())
    if needed and before:
        a.put(a.settings())
    layout(a)
    if needed and not before:
        a.put("", a.settings())
    if rng.random() < 0.3:
        a.put(a.filler())
    return a


def _authors(seed: int) -> list[Author]:
    rng = random.Random(seed)
    return [example(random.Random(rng.random())) for _ in range(rng.choice([1, 1, 1, 2]))]


def _written(authors: Sequence[Author], planted: dict[tuple[int, int], float]) -> tuple[str, set[int]]:
    """The text, and the lines in which planted numbers stand."""
    parts: list[str] = []
    for n, author in enumerate(authors):
        if len(authors) > 1:
            parts += [f"## {author.say('例', 'Example')} {n + 1}", ""]
        for line in author.lines:
            for place, mark in enumerate(author.marks):
                key = f"\x01{place}\x02"
                if key not in line:
                    continue
                value = planted.get((n, place), mark.right)
                text = rounded(100 * value if mark.percent else value, mark.decimals)
                line = line.replace(key, text + ("\x03" if (n, place) in planted else ""))
            parts.append(line)
        parts.append("")
    found = {number for number, line in enumerate(parts, 1) if "\x03" in line}
    return "\n".join(parts).replace("\x03", ""), found


def text_of(seed: int) -> str:
    """A right text."""
    return _written(_authors(seed), {})[0]


def slip_of(seed: int) -> tuple[str, set[int], str]:
    """A text with one slip, its lines, and the kind of the slip."""
    authors = _authors(seed)
    rng = random.Random(-1 - seed)
    for _ in range(200):
        n = rng.randrange(len(authors))
        marks = authors[n].marks
        place = rng.randrange(len(marks))
        mark = marks[place]
        if mark.column is not None and mark.column.wrongs and rng.random() < 0.4:
            kind, row = rng.choice(sorted(mark.column.wrongs.items()))
            planted = {(n, k): row[one.place] for k, one in enumerate(marks) if one.group == mark.group}
        else:
            kind, value = rng.choice(
                [*sorted(mark.wrongs.items()), ("changed", _changed(rng, mark)), ("changed", _changed(rng, mark))]
            )
            planted = {(n, place): value}
        if any(_differs(marks[k], value) for (_, k), value in planted.items()):
            text, lines = _written(
                authors, {key: value for key, value in planted.items() if _differs(marks[key[1]], value)}
            )
            return text, lines, kind
    raise AssertionError(f"nothing can be planted in text {seed}")


def _changed(rng: random.Random, mark: Mark) -> float:
    """Off by more than rounding can explain."""
    unit = 10.0**-mark.decimals / (100 if mark.percent else 1)
    return mark.right + rng.choice([-1, 1]) * max(6 * unit, rng.choice([0.02, 0.05, 0.1, 0.3]))


def _differs(mark: Mark, value: float) -> bool:
    unit = 10.0**-mark.decimals / (100 if mark.percent else 1)
    return abs(value - mark.right) > max(5 * unit, 0.01)
