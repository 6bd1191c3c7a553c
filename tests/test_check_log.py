"""check-log: every slip of the seeds is named, nothing right is flagged, and planted slips are found in any format."""

from __future__ import annotations

import io
import json
import math
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rich.console import Console

from mingce.algorithms import reference
from mingce.base.errors import DataError, MingceError
from mingce.commands.check_log import check_log
from mingce.explain.claims.check import Report, check
from mingce.explain.claims.verdicts import Verdict

HERE = Path(__file__).parent
SEEDS = {path.name[:3]: path for path in sorted((HERE / "seeds").glob("*.txt"))}
GOLDENS = json.loads((HERE / "seed_examples.json").read_text(encoding="utf-8"))


def checked(seed: str) -> Report:
    return check(SEEDS[seed].read_text(encoding="utf-8"), SEEDS[seed])


def at(report: Report, line: int, kind: str | None = None) -> list[Verdict]:
    return [v for v in report.verdicts if line in (v.where.line, *v.lines) and kind in (None, v.kind)]


def wrong_at(report: Report, line: int, kind: str) -> Verdict:
    (found,) = at(report, line, kind)
    assert found.status == "wrong"
    return found


def offers(verdict: Verdict, numbers: Sequence[float], tolerance: float = 6e-5) -> bool:
    """True if one of the right answers is these numbers."""
    return any(
        len(answer.rows[0]) == len(numbers)
        and all(abs(a - b) <= tolerance for a, b in zip(answer.rows[0], numbers, strict=True))
        for answer in verdict.right
    )


def said(verdict: Verdict) -> str:
    return " ".join(note[1] for note in (*verdict.notes, *verdict.basis))


# ── the seeds' errata, each as goldens tell it ───────────────────────────────────────────────────────────────────────


def test_there_are_as_many_errata_as_tests_know_of() -> None:
    assert len(GOLDENS["errata"]) == 8


def test_erratum_000_question_1_no_gamma_and_lambda_give_the_numbers() -> None:
    report = checked("000")
    advantages, returns = wrong_at(report, 98, "advantages"), wrong_at(report, 85, "returns")
    assert "no γ" in said(advantages)
    assert "nearest common pair γ = 0.99, λ = 0.95" in advantages.right[0].label[1]
    assert offers(advantages, [0.0382, 0.0287, 0.0294, 0.0199, 0.0101, 0.0])
    assert offers(returns, [0.8882, 0.9087, 0.9294, 0.9499, 0.9701, 0.99])


def test_erratum_000_question_4_the_value_is_before_the_token() -> None:
    found = wrong_at(checked("000"), 197, "words")
    assert found.claim == "value_after_token"
    assert 199 in found.lines


def test_erratum_002_question_3_the_recursion_adds_r_in_place_of_delta() -> None:
    report = checked("002")
    right = [0.6071, 0.5969, 0.5862, 0.5750, 0.5105]
    for line, number in zip(range(360, 355, -1), right, strict=True):
        found = wrong_at(report, line, "advantages")
        assert offers(found, [number])
        assert "adds r_t in place of δ_t" in said(found)
    assert "= 0.256, not 0.27" in said(wrong_at(report, 360, "advantages"))
    assert at(report, 355, "advantages")[0].status == "right"


def test_erratum_002_question_5_advantages() -> None:
    report = checked("002")
    first = wrong_at(report, 657, "advantages")
    assert offers(first, [0.6033])
    assert "δ_1 is 0.04, but 0.075 was put in" in said(first)
    assert offers(wrong_at(report, 687, "advantages"), [0.6033])
    assert offers(wrong_at(report, 688, "advantages"), [0.5929])


def test_erratum_002_question_5_five_tokens_and_six_steps() -> None:
    report = checked("002")
    assert "6 tokens are announced, but 5 are listed" in said(wrong_at(report, 502, "count"))
    assert "6 time steps" in said(wrong_at(report, 506, "count"))
    assert "5 tokens" in said(wrong_at(report, 513, "count"))


def test_erratum_002_question_5_the_return_is_monte_carlo_only_for_lambda_1() -> None:
    found = wrong_at(checked("002"), 604, "words")
    assert found.claim == "return_is_monte_carlo"
    assert found.where.question == 5
    assert "only for λ = 1" in said(found)


def test_erratum_002_question_6_whitening() -> None:
    report = checked("002")
    std, whitened = wrong_at(report, 791, "std"), wrong_at(report, 793, "whitened")
    assert offers(std, [0.15166])
    assert offers(std, [0.13565])
    assert offers(whitened, [-0.074, 1.401, 0.663, -1.548, -0.442], 6e-4)
    assert offers(whitened, [-0.066, 1.253, 0.593, -1.385, -0.396], 6e-4)


def test_erratum_003_question_1_advantages_and_returns() -> None:
    report = checked("003")
    assert offers(wrong_at(report, 124, "advantages"), [0.1556, 0.1325, 0.1081, 0.0930, 0.0771, 0.0499])
    assert offers(wrong_at(report, 125, "returns"), [0.9756, 0.9825, 0.9881, 0.9930, 0.9971, 0.9999])
    assert wrong_at(report, 209, "advantages").where.line == 124


def test_other_slips_of_the_seeds_found_by_hand() -> None:
    report = checked("002")
    assert offers(wrong_at(report, 309, "advantages"), [0.51])  # the block's own 0.4, not a later block's 0.39
    assert [
        offers(wrong_at(report, line, "advantages"), [x]) for line, x in ((432, 0.6071), (433, 0.5969), (434, 0.5862))
    ]
    assert [offers(wrong_at(report, line, "share"), [x]) for line, x in ((433, 0.8145), (434, 0.8574))]
    assert "whitening of none" in said(wrong_at(report, 743, "whitened"))
    assert offers(wrong_at(report, 801, "whitened"), [0.229, 1.147, 0.229, -1.606], 6e-4)
    assert offers(wrong_at(report, 802, "whitened"), [0.358, 0.635, 0.497, -1.490], 6e-4)
    assert wrong_at(report, 147, "words").claim == "return_aligned_with_action"
    assert wrong_at(report, 134, "words").claim == "return_is_monte_carlo"
    assert wrong_at(checked("004"), 41, "words").claim == "value_after_token"


def test_nothing_else_in_the_seeds_is_flagged() -> None:
    flagged = {seed: sorted({v.where.line for v in checked(seed).of("wrong")}) for seed in SEEDS}
    assert flagged == {
        "000": [83, 85, 98, 197],
        "001": [],
        "002": [134, 147, 188, 309, 310, *range(356, 361), 432, 433, 434, 502, 506, 513, 514, 591, 657, 687, 688,
                743, 791, 793, 801, 802],
        "003": [124, 125],
        "004": [41],
    }  # fmt: skip


LINES_OF_RIGHT_EXAMPLES: dict[str, tuple[str, dict[int, tuple[str, ...]]]] = {
    "002-q1-gae-table": ("002", {119: ("deltas", "advantages", "returns")}),
    "002-q1-rewards": ("002", {71: ("rewards",)}),
    "002-q5-monte-carlo": ("002", {line: ("returns",) for line in range(609, 615)}),
    "004-q4-three-tokens": ("004", {174: ("advantages",), 160: ("deltas",), 161: ("deltas",), 162: ("deltas",)}),
    "004-q4-lambda-one-is-monte-carlo": ("004", {190: ("advantages",), 146: ("returns",)}),
    "003-q1-kl-and-rewards": ("003", {87: ("kl",), 109: ("rewards",)}),
    "003-q3-cpi-objective": ("003", {310: ("arithmetic",), **dict.fromkeys(range(271, 302, 6), ("arithmetic",))}),
}


@pytest.mark.parametrize("example", [example["id"] for example in GOLDENS["examples"]])
def test_right_examples_are_found_right(example: str) -> None:
    seed, lines = LINES_OF_RIGHT_EXAMPLES[example]
    report = checked(seed)
    for line, kinds in lines.items():
        for kind in kinds:
            assert [v.status for v in at(report, line, kind)] == ["right"], (line, kind)


# ── claims in words ──────────────────────────────────────────────────────────────────────────────────────────────────

GAE = "用 GAE，returns = advantages + values。\n"
WORDS = {
    "value_after_token": (
        [
            "`values[:, t]` 是在模型已经产生了第 $t$ 个 token 之后算的。",
            "V(s_t) 是看到第 t 个 token 之后的价值。",
            "生成第 t 个 token 之后，critic 给出 V(s_t)。",
            "`values[t]` is computed after token t was generated.",
            "V(s_t) is the value once token t has been sampled.",
            "After token t is emitted the critic computes V(s_t).",
        ],
        [
            "V(s_t) 是选出第 t 个 token 之前的价值。",
            "`values[:, t]` 不是看到第 t 个 token 之后的估值。",
            "V(s_{t+1}) 是生成第 t 个 token 之后的价值。",
            "Q(s_t, a_t) 是选出第 t 个 token 之后的期望回报，V(s_t) 是它的平均。",
            "“`values[t]` 是在第 t 个 token 产生之后算的”。不对：它读自前一个位置。",
            "V(s_t) is the value before token t is chosen.",
            "V(s_{t+1}) is the value after token t.",
            "`values[t]` is not computed after token t.",
            "The reward r_t comes after token t; V(s_t) is read before it.",
        ],
    ),
    "return_is_monte_carlo": (
        [
            GAE + "`R_t = V_t + A_t`：从状态 s_t 开始的实际累积回报。",
            GAE + "returns 是实际观测到的折扣累积奖励。",
            "With GAE, returns = advantages + values is the Monte Carlo return.",
            "GAE: the return R_t = V(s_t) + A_t is the actual discounted return.",
        ],
        [
            GAE + "`R_t = V_t + A_t` 只有 λ = 1 时才是蒙特卡洛回报。",
            GAE + "G_t 是从 s_t 开始的实际折扣累积奖励。",
            GAE + "取 λ = 1，于是 R_t 就是实际累积回报。",
            GAE + "它更像 λ-return，不一定等于 MC return。",
            "蒙特卡洛回报是实际的折扣累积奖励。",
            "With GAE, returns = advantages + values is the λ-return, not the Monte Carlo return.",
            "GAE: R_t = V(s_t) + A_t equals the Monte Carlo return only if λ = 1.",
        ],
    ),
    "return_of_whitened": (
        [
            "回报用白化后的优势来算：R_t = V_t + A_t。",
            "returns = values + whitened advantages。",
            "The returns are computed from the whitened advantages.",
        ],
        [
            "回报用未白化的优势，白化后的优势只进策略损失。",
            "returns 在 whiten 之前就已计算。",
            "如果用白化后的优势算 returns，就会破坏 R = V + A。",
            "# 错误做法\nreturns = values + advantages_whitened",
            "The returns use the raw advantages, before whitening.",
            "Never compute returns with whitened advantages.",
        ],
    ),
    "value_without_reward": (
        [
            "V(s_t) 不包含 r_t。",
            "V(0) 不含 r(0)。",
            "V(s_t) does not include r_t.",
            "V_t excludes the immediate reward.",
        ],
        [
            "V(s_t) 包含 r_t。",
            "V(s_{t+1}) 不包含 r_t。",
            "说 V(s_t) 不包含 r_t 是错的。",
            "V(s_t) contains r_t.",
            "V(s_{t+1}) does not include r_t.",
        ],
    ),
    "return_aligned_with_action": (
        ["`returns[i]`：对齐到第 i+1 个 token 动作本身。", "returns[t] are aligned with the action."],
        [
            "`returns[i]` 对齐到状态，不是动作本身。",
            "`advantages[i]`：对齐到第 i+1 个 token 动作本身。",
            "returns are aligned with the state.",
        ],
    ),
    "ends_of_lambda": (
        [
            "λ = 0 时就是蒙特卡洛。",
            "当 λ=1 时退化为 TD(0)。",
            "With λ = 0 this is Monte Carlo.",
            "λ=1 gives one-step TD.",
        ],
        [
            "λ = 0 是 TD(0)，λ = 1 是蒙特卡洛。",
            "λ=0 和 λ=1 分别对应 TD(0) 和蒙特卡洛。",
            "若 λ=0，GAE 退化为 A_t=δ_t；λ→1 更接近 Monte Carlo。",
            "λ = 1 is Monte Carlo, λ = 0 is one-step TD.",
            "λ = 0 is not Monte Carlo.",
        ],
    ),
    "variance_of_lambda": (
        ["λ 越大，方差越小。", "A larger λ lowers the variance."],
        [
            "λ 越大，方差越大、偏差越小。",
            "λ 越小方差越小。",
            "A larger λ raises the variance.",
            "A smaller λ lowers the variance.",
        ],
    ),
    "negative_kl": (
        ["每个 token 的 KL 不可能为负。", "The per-token KL can never be negative."],
        [
            "每个 token 的 KL 可以为负。",
            "k3 估计下每个 token 的 KL 不会为负。",
            "The per-token KL may be negative.",
            "The expected per-token KL is never negative.",
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "text"), [(rule, text) for rule, (wrong, _) in WORDS.items() for text in wrong])
def test_a_wrong_sentence_is_named(rule: str, text: str) -> None:
    assert [v.claim for v in check(text).of("wrong")] == [rule]


@pytest.mark.parametrize("text", [text for _, right in WORDS.values() for text in right])
def test_a_right_sentence_is_not(text: str) -> None:
    assert check(text).of("wrong") == []


def test_what_somebody_asks_is_not_judged_as_a_statement() -> None:
    log = f"{HEAD}### 问题 1\n用户：V(s_t) 不包含 r_t，对吗？  \n助手：不对，它包含。\n"
    assert check(log).of("wrong") == []


# ── random worked dialogues ──────────────────────────────────────────────────────────────────────────────────────────

HEAD = "# Chat Dialogue Log\n\n## 对话时间\n2026-01-08 13:02:10\n\n---\n\n## 对话内容\n\n"
SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


@dataclass
class Author:
    """Writes one worked example; `derived` marks the numbers that can be planted wrong."""

    rng: random.Random
    lines: list[str] = field(default_factory=list)
    marks: list[tuple[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        rng = self.rng
        self.zh = rng.random() < 0.5
        self.decimals = rng.choice([2, 3, 3, 4])
        self.base = rng.choice([0, 1])
        self.width = rng.randint(3, 7)
        self.gamma, self.lam = rng.choice([1.0, 1.0, 0.99, 0.95, 0.9]), rng.choice([0.95, 0.95, 1.0, 0.9, 0.5, 0.97])
        dense = [round(rng.uniform(-0.3, 0.3), 2) for _ in range(self.width)]
        self.rewards = dense if rng.random() < 0.6 else [0.0] * (self.width - 1) + [1.0]
        self.values = [round(rng.uniform(-0.5, 1.2), 2) for _ in range(self.width)]
        credit = reference.gae([self.rewards], [self.values], [[1] * self.width], self.gamma, self.lam)
        self.deltas, self.advantages, self.returns = credit.deltas[0], credit.advantages[0], credit.returns[0]

    def put(self, *lines: str) -> None:
        self.lines += lines

    def shown(self, number: float) -> str:
        text = f"{number:.{self.decimals}f}"
        return text.lstrip("-") if float(text) == 0 else text

    def derived(self, number: float) -> str:
        mark = f"\x01{len(self.marks)}\x02"
        self.marks.append((mark, number))
        return mark

    def given(self, numbers: Sequence[float]) -> str:
        return "[" + ", ".join(f"{x:g}" for x in numbers) + "]"

    def worked(self, numbers: Sequence[float]) -> str:
        return "[" + ", ".join(self.derived(x) for x in numbers) + "]"

    def settings(self) -> str:
        g, lam = f"{self.gamma:g}", f"{self.lam:g}"
        return self.rng.choice(
            [
                f"γ={g}, λ={lam}",
                f"`gamma={g}`, `lam={lam}`",
                f"\\(\\gamma = {g}\\), \\(\\lambda = {lam}\\)",
                f"取 γ 为 {g}，λ 为 {lam}" if self.zh else f"with γ of {g} and λ of {lam}",
                f"(γ, λ) = ({g}, {lam})",
            ]
        )

    def finished(self, plant: bool) -> tuple[list[str], int, float]:
        """The lines, and with `plant` the line of the wrong number and what it should be."""
        text, line, right = "\n".join(self.lines), 0, math.nan
        chosen = self.rng.randrange(len(self.marks)) if plant else -1
        for place, (mark, number) in enumerate(self.marks):
            written = number
            if place == chosen:
                off = self.rng.choice([-1, 1]) * self.rng.choice([3, 4, 5, 9, 30]) * 10.0**-self.decimals
                written, right = round(number, self.decimals) + off, number
                line = text[: text.index(mark)].count("\n")
            text = text.replace(mark, self.shown(written))
        return text.split("\n"), line, right


def lists(a: Author) -> None:
    names = a.rng.choice(
        [
            ("rewards", "values", "deltas", "advantages", "returns"),
            ("token_level_rewards", "values", "td_errors", "advantages_raw", "returns"),
            ("r", "V", "δ", "A", "R"),
            ("奖励", "价值", "TD 误差", "优势", "回报"),
        ]
    )
    equals, fenced = ("：" if names[0] == "奖励" else " = "), a.rng.random() < 0.5
    a.put(a.settings(), *(["```python"] if fenced else []))
    a.put(f"{names[0]}{equals}{a.given(a.rewards)}", f"{names[1]}{equals}{a.given(a.values)}")
    for name, column in zip(names[2:], (a.deltas, a.advantages, a.returns), strict=True):
        a.put(f"{name}{equals}{a.worked(column)}")
    a.put(*(["```"] if fenced else []))


def table(a: Author) -> None:
    head = a.rng.choice(
        [
            ["t", "token", "reward", "value", "delta", "advantage", "return"],
            ["t", "token", "r_t", "V(s_t)", "δ_t", "A_t", "R_t"],
            ["步", "token", "奖励", "价值", "TD误差", "优势", "回报"],
            ["$t$", "Token", "Reward $r_t$", "Value $V(s_t)$", r"$\delta_t$", r"Advantage $\hat{A}_t$", "Return $R_t$"],
        ]
    )  # fmt: skip
    a.put(a.settings(), "", "| " + " | ".join(head) + " |", "|" + "---|" * 7)
    for t in sorted(range(a.width), reverse=a.rng.random() < 0.5):
        worked = [a.derived(column[t]) for column in (a.deltas, a.advantages, a.returns)]
        given = f"{t + a.base} | w{t} | {a.rewards[t]:g} | {a.values[t]:g}"
        a.put(f"| {given} | {worked[0]} | **{worked[1]}** | {worked[2]} |")


def lying_table(a: Author) -> None:
    a.put(a.settings(), "", "| | " + " | ".join(f"y{t}" for t in range(a.width)) + " |", "|" + "---|" * (a.width + 1))
    a.put("| rewards | " + " | ".join(f"{x:g}" for x in a.rewards) + " |")
    a.put("| values | " + " | ".join(f"{x:g}" for x in a.values) + " |")
    for name, column in (("deltas", a.deltas), ("advantages", a.advantages), ("returns", a.returns)):
        a.put(f"| {name} | " + " | ".join(a.derived(x) for x in column) + " |")


def aligned_table(a: Author) -> None:
    a.put(a.settings(), "```", "t    reward    value    delta    advantage    return")
    for t in range(a.width):
        worked = "    ".join(a.derived(column[t]) for column in (a.deltas, a.advantages, a.returns))
        a.put(f"{t + a.base}    {a.rewards[t]:g}    {a.values[t]:g}    {worked}")
    a.put("```")


def field_table(a: Author) -> None:
    a.put(a.settings(), "", "| 字段 | 形状 | 示例值 | 说明 |", "|---|---|---|---|")
    for name, listed in (("rewards", a.given(a.rewards)), ("values", a.given(a.values))):
        a.put(f"| `{name}` | `(batch, len)` | `[{listed}]` | x |")
    for name, column in (("advantages", a.advantages), ("returns", a.returns)):
        a.put(f"| `{name}` | `(batch, len)` | `[{a.worked(column)}]` | x |")


def equations(a: Author) -> None:
    style = a.rng.choice(["ascii", "subscripts", "latex"])
    times = {"ascii": "*", "subscripts": "·", "latex": " \\cdot "}[style]

    def symbol(name: str, t: int) -> str:
        n = str(t + a.base)
        if style == "subscripts":
            return name + n.translate(SUBSCRIPTS)
        return (r"\delta" if name == "δ" and style == "latex" else name) + f"_{n}"

    def signed(text: str) -> str:
        return f"({text})" if text.startswith("-") else text

    def line(text: str) -> None:
        a.put(f"- \\( {text} \\)  " if style == "latex" else text)

    a.put(a.settings(), f"rewards = {a.given(a.rewards)}", f"values = {a.given(a.values)}", "")
    g, decay = f"{a.gamma:g}", f"{a.gamma * a.lam:g}"
    for t in reversed(range(a.width)):
        r, v = f"{a.rewards[t]:g}", signed(f"{a.values[t]:g}")
        if t + 1 == a.width:
            line(f"{symbol('δ', t)} = {symbol('r', t)} - {symbol('V', t)} = {r} - {v} = {a.derived(a.deltas[t])}")
        else:
            named = f"{symbol('r', t)} + {g}{times}{symbol('V', t + 1)} - {symbol('V', t)}"
            put_in = f"{r} + {g}{times}{signed(f'{a.values[t + 1]:g}')} - {v}"
            line(f"{symbol('δ', t)} = {named} = {put_in} = {a.derived(a.deltas[t])}")
    for t in reversed(range(a.width)):
        if t + 1 == a.width:
            line(f"{symbol('A', t)} = {symbol('δ', t)} = {a.derived(a.advantages[t])}")
            continue
        named = f"{symbol('δ', t)} + {decay}{times}{symbol('A', t + 1)} = " if a.rng.random() < 0.5 else ""
        put_in = f"{a.shown(a.deltas[t])} + {decay}{times}{signed(a.shown(a.advantages[t + 1]))}"
        line(f"{symbol('A', t)} = {named}{put_in} = {a.derived(a.advantages[t])}")


def prose(a: Author) -> None:
    r, v = a.given(a.rewards), a.given(a.values)
    d, adv, ret = a.worked(a.deltas), a.worked(a.advantages), a.worked(a.returns)
    if a.zh:
        a.put(f"奖励是 {r}，critic 给出的价值是 {v}。", a.settings(), f"TD 误差为 {d}，优势为 {adv}，回报为 {ret}。")
    else:
        a.put(f"The rewards are {r} and the critic's values are {v}.", a.settings())
        a.put(f"The TD errors are {d}, the advantages are {adv} and the returns are {ret}.")


def steps(a: Author) -> None:
    a.put(a.settings(), f"rewards: {a.given(a.rewards)}", f"values: {a.given(a.values)}")
    for t in range(a.width):
        worked = [a.derived(column[t]) for column in (a.deltas, a.advantages, a.returns)]
        a.put(f"- t={t + a.base}: δ = {worked[0]}, A = {worked[1]}, R = {worked[2]}")


def monte_carlo(a: Author) -> None:
    total = reference.discounted_sum(a.rewards, a.gamma)
    a.put(f"{'蒙特卡洛回报' if a.zh else 'Monte Carlo returns'} (γ={a.gamma:g})", f"r = {a.given(a.rewards)}")
    a.put(f"G = {a.worked(total)}")


def whitening(a: Author) -> None:
    raw, mask = a.values, [[1] * a.width]
    mu, sigma = reference.masked_mean([raw], mask), math.sqrt(reference.masked_var([raw], mask, a.rng.random() < 0.5))
    a.put("```python", f"advantages_raw = {a.given(raw)}", f"mean(advantages_raw) = {a.derived(mu)}")
    a.put(f"σ = std(advantages_raw) = {a.derived(sigma)}")
    a.put(f"advantages_whitened = {a.worked([(x - mu) / sigma for x in raw])}", "```")


def kl_and_probabilities(a: Author) -> None:
    a.decimals = 4
    old = [round(-a.rng.uniform(0.01, 2), 2) for _ in range(a.width)]
    ref = [round(x + a.rng.uniform(-0.2, 0.2), 2) for x in old]
    scores, beta = [0.0] * (a.width - 1) + [1.0], a.rng.choice([0.1, 0.01, 0.05])
    kl = [x - y for x, y in zip(old, ref, strict=True)]
    a.put(f"old_log_probs = {a.given(old)}", f"ref_log_probs = {a.given(ref)}", f"kl = {a.worked(kl)}")
    a.put(f"scores = {a.given(scores)}", f"β = {beta:g}")
    a.put(f"rewards = scores - β*kl = {a.worked([s - beta * k for s, k in zip(scores, kl, strict=True)])}")
    a.put(*(f"$\\pi_{{old}} = e^{{{x:g}}} \\approx {a.derived(math.exp(x))}$" for x in old[:2]))


FORMATS: list[Callable[[Author], None]] = [
    lists, table, lying_table, aligned_table, field_table, equations, prose, steps, monte_carlo, whitening,
    kl_and_probabilities,
]  # fmt: skip


def dialogue(seed: int, plant: bool) -> tuple[str, int, float]:
    """A log of two questions, an example each; with `plant` one number is wrong in this line, and should be that."""
    rng = random.Random(seed)
    out, wrong, line, right = HEAD.split("\n")[:-1], rng.randrange(2), 0, math.nan
    for question in range(2):
        author = Author(random.Random(seed * 2 + question))
        FORMATS[(seed + 4 * question) % len(FORMATS)](author)
        written, place, number = author.finished(plant and question == wrong)
        out += [
            *(["", "---", ""] if question else []),
            f"### 问题 {question + 1}",
            "用户：算一下 1+1=3 的例子  ",
            "助手：好。",
            "",
        ]
        if plant and question == wrong:
            line, right = len(out) + place + 1, number
        out += written
    return "\n".join(out) + "\n", line, right


CASES = range(330)


def test_no_random_worked_dialogue_is_flagged_when_all_is_right() -> None:
    found = 0
    for seed in CASES:
        text, _, _ = dialogue(seed, plant=False)
        report = check(text)
        assert report.of("wrong") == [], (seed, report.of("wrong")[0], text)
        found += len(report.of("right"))
    assert found > 8 * len(CASES)


def test_planted_slips_are_found_with_the_right_number() -> None:
    missed = []
    for seed in CASES:
        text, line, right = dialogue(seed, plant=True)
        hits = [
            verdict
            for verdict in check(text).of("wrong")
            if verdict.where.line == line
            and any(abs(x - right) < 1e-3 for answer in verdict.right for row in answer.rows for x in row)
        ]
        if not hits:
            missed.append((seed, text.split("\n")[line - 1], right))
    assert len(missed) <= 0.05 * len(CASES), missed


def test_an_example_is_carried_into_a_follow_up() -> None:
    first = "rewards=[0,0,1], values=[0.3,0.4,0.6], γ=1, λ=0.95: advantages = [0.651, 0.58, 0.4]"
    for numbers, status in (("[0.3, 0.4, 0.4]", "right"), ("[0.3, 0.9, 0.4]", "wrong")):
        text = f"{HEAD}### 问题 1\n用户：q  \n助手：{first}\n\n---\n\n"
        text += f"### 问题 2\n用户：λ=0.5 呢？  \n助手：A = {numbers}\n"
        (found,) = [v for v in check(text).verdicts if v.where.question == 2]
        assert found.status == status
        if status == "right":
            assert "λ = 0.5" in said(found)


def test_another_example_in_a_later_question_is_not_judged_by_the_first() -> None:
    text = (
        f"{HEAD}### 问题 1\n用户：q  \n助手：rewards=[0,0,1], values=[0.3,0.4,0.6], γ=1, λ=0.95\n\n---\n\n"
        "### 问题 2\n用户：q  \n助手：比如 advantages = [2.5, 3.1, -1.5]，太大了。\n"
    )
    assert [v.status for v in check(text).verdicts] == ["unknown"]


def test_a_value_behind_the_end_is_bootstrapped() -> None:
    text = "γ=1, λ=1\nrewards = [0, 0]\nvalues = [0.2, 0.3, 0.5]\nadvantages = [0.3, 0.2]\nreturns = [0.5, 0.5]\n"
    assert [v.status for v in check(text).verdicts] == ["right", "right"]


def test_rounding_on_the_way_is_right_but_said() -> None:
    text = "γ=1, λ=0.95\nrewards=[0.005,-0.01,-0.02,0.995]\nvalues=[0.30,0.35,0.45,0.60]\n"
    text += "advantages=[0.597,0.570,0.505,0.395]"
    (found,) = check(text).verdicts
    assert found.status == "right"
    assert found.loose
    assert "rounded loosely" in said(found)
    (found,) = check(text.replace("0.597", "0.598")).verdicts
    assert found.status == "wrong"


def test_numbers_of_other_settings_are_recognised() -> None:
    (found,) = check("γ=1, λ=0.95\nr=[0,0,1]\nV=[0.3,0.4,0.6]\nA=[0.70,0.60,0.40]").verdicts
    assert found.status == "wrong"
    assert "these are the numbers for γ = 1, λ = 1" in said(found)


def test_a_list_of_sums_is_held_against_the_list_after_it() -> None:
    text = "rewards = [0-0.01, 0+0.005, 1.0-0.02]\n        = [-0.01, 0.005, {}]"
    assert check(text.format("0.98")).of("wrong") == []
    (found,) = check(text.format("0.89")).verdicts
    assert found.status == "wrong"
    assert found.where.line == 2
    assert offers(found, [-0.01, 0.005, 0.98])


def test_rewards_are_left_alone_where_no_beta_is_stated() -> None:
    text = "scores = [0, 0, 1]\nkl = [0.1, 0.2, 0.3]\nrewards = [-0.03, 0.9, 0.97]"
    assert check(text).of("wrong") == []
    assert [v.kind for v in check(f"β = 0.1\n{text}").of("wrong")] == ["rewards"]


def test_a_prompt_with_wrong_arithmetic_is_no_claim() -> None:
    assert check("提示词：请问17+25=43？ 1+1=3").verdicts == ()


# ── the tutor's own answers ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_heading_that_is_a_formula_is_no_column() -> None:
    rows = "| 0 | 0.1 | 0.1 |\n| 1 | 0.2 | 0.19 |\n| Σ | | 0.29 |\n"
    table = f"γ=1, λ=0.95\n\n| l | δ_(t+l) | (γλ)^l·δ |\n|---|---|---|\n{rows}"
    assert check(f"{table}\nA_0 = 0.1 + 0.95·0.2 = 0.29").of("wrong") == []


# ── hostile texts ────────────────────────────────────────────────────────────────────────────────────────────────────

HOSTILE = {
    "parentheses": "(" * 200_000,
    "brackets": "[[[[[\n" * 20_000,
    "fractions": "\\frac{" * 30_000,
    "equals": "A_1 = " * 30_000,
    "minus": "A_1 = " + "-" * 100_000 + "1",
    "digits": "1" * 200_000,
    "long sum": "A_1 = " + "+".join(["0.5"] * 1900) + " = 950.0",
    "long product": "A_1 = " + "*".join(["0.5"] * 1900) + " = 0.0",
    "stars": "**" * 100_000,
    "bars": "| 1 | 2 |\n|---|---|\n" * 5_000,
    "words": "V(s_t) 是在生成第 t 个 token" * 8_000,
    "quotes": '"' * 100_000,
    "huge numbers": "A_1 = 1e999 + 9e308 * 9e308 = 1e-999\nA = [1e400, 2e-400, 1]",
    "division by zero": "A_1 = 1.5/0 = 0.0\nA_2 = 0.0^-1.5 = 2.0\nmean([]) = 1.0",
    "soup": "".join(random.Random(0).choices("=[](){}+-*/_^,.|0123456789AVRrδγλ \n", k=60_000)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_end(name: str) -> None:
    check(HOSTILE[name])
    try:
        check(HEAD + "### 问题 1\n用户：q  \n助手：" + HOSTILE[name])
    except MingceError as error:
        assert "\n" not in str(error)  # noqa: PT017


def test_too_many_lists_are_one_sentence() -> None:
    with pytest.raises(DataError, match="more than 4,000 lists of numbers"):
        check("rewards = [0, 1]\n" * 5_000)


# ── the command ──────────────────────────────────────────────────────────────────────────────────────────────────────


def shown(path: Path, width: int = 120, **options: bool | str) -> tuple[int, str]:
    console = Console(file=io.StringIO(), width=width)
    code = check_log(console, path, **options)  # type: ignore[arg-type]
    assert isinstance(console.file, io.StringIO)
    return code, console.file.getvalue()


def test_the_terminal_tells_each_claim_with_line_quote_and_right_numbers() -> None:
    code, text = shown(SEEDS["002"], lang="zh")
    assert code == 1
    assert "问题 3\n" in text
    assert "✗ 第 356 行  优势 A  A_5 = 0.36" in text
    assert "原文  A_5 = -0.01 + 0.95*0.39 = 0.36" in text
    assert "应为  0.5105" in text
    assert "算式  A_5 = δ_5 + γλ·A_6 = 0.14 + 0.95·0.39 = 0.5105" in text
    assert text.rstrip().endswith("28 处错误，35 处正确，2 处无法核对。")
    code, text = shown(SEEDS["002"], lang="en")
    assert "✗ line 356  advantages A  A_5 = 0.36" in text
    assert text.rstrip().endswith("28 wrong, 35 right, 2 that cannot be checked.")


@pytest.mark.parametrize("lang", ["zh", "en"])
@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int, lang: str) -> None:
    from rich.cells import cell_len

    _, text = shown(SEEDS["002"], width, lang=lang)
    assert max(cell_len(line) for line in text.split("\n")[:-2]) <= width


def test_only_what_is_wrong() -> None:
    _, text = shown(SEEDS["002"], lang="en", wrong_only=True)
    assert "✗" in text
    assert "✓" not in text


def test_json_holds_both_languages_and_every_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(SEEDS["000"], as_json=True) == (1, "")
    told = json.loads(capsys.readouterr().out)
    assert (told["schema"], told["questions"], told["wrong"]) == (1, 4, 4)
    claim = next(claim for claim in told["claims"] if claim["line"] == 98)
    assert claim["claimed"] == [[0.037, 0.033, 0.03, 0.021, 0.01, 0.0]]
    assert claim["right"][0]["numbers"][0] == pytest.approx([0.0382, 0.0287, 0.0294, 0.0199, 0.0101, 0.0], abs=6e-5)
    assert claim["notes"][0]["zh"].startswith("γ 与 λ 文中未给")


def test_exit_codes(tmp_path: Path) -> None:
    right = tmp_path / "right.md"
    right.write_text("γ=1, λ=0.95\nr=[0,0,1]\nV=[0.3,0.4,0.6]\nA=[0.651,0.58,0.4]\n", encoding="utf-8")
    assert shown(right)[0] == 0
    nothing = tmp_path / "nothing.md"
    nothing.write_text("你好\n", encoding="utf-8")
    code, text = shown(nothing, lang="zh")
    assert code == 0
    assert "没有可核对的数" in text


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    (tmp_path / "zero").write_bytes(b"a\0b")
    (tmp_path / "broken.md").write_text("# Chat Dialogue Log\n\n## 对话时间\n?", encoding="utf-8")
    for name in ("binary", "zero", "broken.md", "missing", "."):
        with pytest.raises(MingceError) as error:
            shown(tmp_path / name)
        assert "\n" not in str(error.value)


def test_control_characters_of_a_stranger_are_not_printed(tmp_path: Path) -> None:
    path = tmp_path / "log.md"
    path.write_text("r=[0,0,1]\nV=[0.3,0.4,0.6]\nγ=1, λ=0.95, A=[0.9,0.58,0.4] \x1b[31m\x07\n", encoding="utf-8")
    code, text = shown(path)
    assert code == 1
    assert "\x1b" not in text
    assert "\x07" not in text


def test_nothing_heavy_is_loaded() -> None:
    heavy = "torch transformers numpy pyarrow matplotlib"
    script = f"import sys, mingce.commands.check_log; print([m for m in {heavy.split()!r} if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()
        == "[]"
    )


GROUP_LINES = [
    ("GRPO: scores 1,0,0,1 → mean 0.5, std 0.577, A = 0.866", []),
    ("GRPO: scores 1,0,0,1 → mean 0.5, std 0.5, A = [1, -1, -1, 1]", []),
    ("一组得分 1、0、0、0：均值 0.25，标准差 0.5，优势 1.5、-0.5、-0.5、-0.5", []),
    ("Dr. GRPO group scores 2, 4, 6: mean 4, A = -2, 0, 2", []),
    ("RLOO group scores: 1, 0, 0, 1; advantages = [0.667, -0.667, -0.667, 0.667]", []),
    ("RLOO group scores: 3, 1, 2; the mean of the others is 1.5", []),
    ("GRPO: scores 1,0,0,1 → mean 0.25, std 0.577, A = 0.866", ["mean = 0.25"]),
    ("GRPO: scores 1,0,0,1 → mean 0.5, std 0.7, A = 0.866", ["std = 0.7"]),
    ("组内得分 [1,0,0,0]，均值 0.25，优势 = [1.4, -0.5, -0.5, -0.5]", ["A = 1.4, −0.5, −0.5, −0.5"]),
    ("## GRPO\nscores: 1, 0, 0, 1\nmean = 0.5\nA = [0.9, -0.866, -0.866, 0.866]", ["A = 0.9, −0.866, −0.866, 0.866"]),
    ("数组 rewards = [1, 0, 0, 1], mean of something else 0.3", []),
]


@pytest.mark.parametrize(("text", "wrong"), GROUP_LINES)
def test_the_lines_about_a_group_are_judged(text: str, wrong: list[str]) -> None:
    verdicts = check(text).verdicts
    assert [one.claim for one in verdicts if one.status == "wrong"] == wrong
    assert any(one.kind == "group" for one in verdicts) == ("数组" not in text and "others" not in text)
