"""Worked examples as people paste them: blogs, tables, LaTeX, sessions, running Chinese, batches, groups, assistants.

`told(style, seed)` is a right text and how many of its numbers can be judged; with `planted`, one of them is
wrong.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence

from mingce.algorithms import reference


class Example:
    """A random row with its credit, and the writer of its judged numbers."""

    def __init__(self, chance: random.Random, planted: int | None = None):
        self.chance, self.planted, self.count = chance, planted, 0
        self.size = chance.randint(3, 7)
        self.gamma, self.lam = chance.choice([1.0, 1.0, 0.99, 0.9]), chance.choice([0.95, 0.95, 0.9, 0.8, 1.0, 0.5])
        self.decimals = chance.choice([3, 4])
        self.rewards, self.values = self.inputs()
        self.deltas, self.advantages, self.returns = self.credit(self.rewards, self.values)

    def inputs(self) -> tuple[list[float], list[float]]:
        beta = self.chance.choice([0.0, 0.1, 0.05])
        scores = [0.0] * (self.size - 1) + [self.chance.choice([1.0, 1.0, 0.5, -1.0])]
        rewards = [round(score - beta * self.chance.uniform(-0.1, 0.3), 4) for score in scores]
        return rewards, [round(self.chance.uniform(0.05, 0.95), 2) for _ in scores]

    def credit(self, rewards: list[float], values: list[float]) -> tuple[list[float], list[float], list[float]]:
        one = reference.gae([rewards], [values], [[1] * self.size], self.gamma, self.lam, [0.0])
        return one.deltas[0], one.advantages[0], one.returns[0]

    def judged(self, x: float, decimals: int | None = None) -> str:
        """A number that can be judged, or the wrong one planted in its place."""
        decimals = self.decimals if decimals is None else decimals
        shown = round(x, decimals) + 0.0
        if self.planted == self.count:
            off = self.chance.choice([-1, 1]) * self.chance.uniform(0.05, 0.4)
            shown = round(self.chance.choice([shown + off, -shown if abs(shown) > 0.02 else shown + off]), decimals)
        self.count += 1
        return f"{shown:.{decimals}f}"

    def many(self, numbers: Sequence[float], decimals: int | None = None) -> str:
        return ", ".join(self.judged(x, decimals) for x in numbers)

    def next_value(self, t: int) -> float:
        return self.values[t + 1] if t + 1 < self.size else 0.0


def given(numbers: Sequence[float]) -> str:
    return ", ".join(f"{x:g}" for x in numbers)


def blog(e: Example) -> str:
    last = e.size - 1
    lines = [
        f"# GAE by hand\n\nSuppose our policy produced {e.size} tokens, with γ = {e.gamma:g} and λ = {e.lam:g}. The "
        f"rewards were [{given(e.rewards)}] and the critic's values were [{given(e.values)}].\n",
        f"Start from the end. The last token has δ_{last} = {e.rewards[last]:g} − {e.values[last]:g} = "
        f"{e.judged(e.deltas[last])}, and since nothing follows, A_{last} = {e.judged(e.advantages[last])} too.",
    ]
    lines += [
        f"One step earlier, δ_{t} = {e.rewards[t]:g} + {e.gamma:g}·{e.next_value(t):g} − {e.values[t]:g} = "
        f"{e.judged(e.deltas[t])}, so A_{t} = {e.judged(e.advantages[t])}."
        for t in reversed(range(last))
    ]
    return "\n".join([*lines, f"\nThe critic will be trained towards returns of [{e.many(e.returns)}]."])


def wide_table(e: Example) -> str:
    rows = [("reward", given(e.rewards)), ("value", given(e.values)), ("δ", e.many(e.deltas))]
    rows += [("advantage", e.many(e.advantages)), ("return", e.many(e.returns))]
    head = f"| | {' | '.join(f't={t}' for t in range(e.size))} |\n|---|{'---|' * e.size}"
    body = [f"| {name} | {numbers.replace(', ', ' | ')} |" for name, numbers in rows]
    return "\n".join([f"With γ={e.gamma:g}, λ={e.lam:g}:\n", head, *body])


def chinese_table(e: Example) -> str:
    lines = [
        f"设 γ={e.gamma:g}，λ={e.lam:g}，逐步计算如下：\n",
        "| 步 | r_t | V(s_t) | TD 误差 | GAE 优势 | 回报目标 |",
    ]
    lines.append("|:-:|:-:|:-:|:-:|:-:|:-:|")
    for t in reversed(range(e.size)):
        numbers = f"{e.judged(e.deltas[t])} | {e.judged(e.advantages[t])} | {e.judged(e.returns[t])}"
        lines.append(f"| {t} | {e.rewards[t]:g} | {e.values[t]:g} | {numbers} |")
    return "\n".join(lines)


def latex(e: Example) -> str:
    lines = [rf"Let $\gamma={e.gamma:g}$, $\lambda={e.lam:g}$, and"]
    lines += [rf"$$r=({given(e.rewards)}),\qquad V=({given(e.values)}).$$", r"\begin{align}"]
    for t in range(e.size):
        sides = rf"{e.rewards[t]:g} + {e.gamma:g}\cdot {e.next_value(t):g} - {e.values[t]:g} = {e.judged(e.deltas[t])}"
        lines.append(rf"\delta_{{{t}}} &= {sides} \\")
    for t in reversed(range(e.size)):
        later = rf" + \gamma\lambda \hat{{A}}_{{{t + 1}}}" if t + 1 < e.size else ""
        lines.append(rf"\hat{{A}}_{{{t}}} &= \delta_{{{t}}}{later} = {e.judged(e.advantages[t])} \\")
    return "\n".join([*lines, r"\end{align}"])


def session(e: Example) -> str:
    """What an interpreter shows."""
    shape = e.chance.choice(["tensor([{}])", "array([{}])", "[{}]"])
    columns = [("rewards", given(e.rewards)), ("values", given(e.values)), ("deltas", e.many(e.deltas))]
    columns += [("advantages", e.many(e.advantages)), ("returns", e.many(e.returns))]
    shown = [f">>> {name}\n{shape.format(numbers)}" for name, numbers in columns]
    return "\n".join(["```python", f">>> gamma, lam = {e.gamma:g}, {e.lam:g}", *shown, "```"])


def running_chinese(e: Example) -> str:
    last = e.size - 1
    rewards, values = (given(numbers).replace(", ", "、") for numbers in (e.rewards, e.values))
    lines = [f"取 γ={e.gamma:g}、λ={e.lam:g}。一共 {e.size} 个 token，奖励依次为 {rewards}，价值依次为 {values}。"]
    lines.append(
        f"从最后一步往前推：最后一个 token 的 TD 误差是 {e.judged(e.deltas[last])}，"
        f"它的优势也就是 {e.judged(e.advantages[last])}。"
    )
    lines += [
        f"再往前，t={t} 处的 TD 误差为 {e.judged(e.deltas[t])}，优势为 {e.judged(e.advantages[t])}，"
        f"对应的回报是 {e.judged(e.returns[t])}。"
        for t in reversed(range(last))
    ]
    return e.chance.choice(["", "\n"]).join(lines)


def batch(e: Example) -> str:
    """Two rows, as lists of lists or row by row."""
    rewards, values = e.inputs()
    rows = [(e.rewards, e.values, e.advantages), (rewards, values, e.credit(rewards, values)[1])]
    first = f"gamma={e.gamma:g}, lambda={e.lam:g}, a batch of 2:"
    if e.chance.random() < 0.5:
        parts = [
            f"\nRow {k}:\n- rewards: [{given(r)}]\n- values: [{given(v)}]\n- advantages: [{e.many(a)}]"
            for k, (r, v, a) in enumerate(rows)
        ]
        return "\n".join([first, *parts])
    lists = [f"[[{given(rows[0][k])}], [{given(rows[1][k])}]]" for k in (0, 1)]
    credit = f"[[{e.many(rows[0][2])}], [{e.many(rows[1][2])}]]"
    return f"{first}\nrewards = {lists[0]}\nvalues = {lists[1]}\nadvantages = {credit}"


def scores_of_group(e: Example) -> tuple[list[float], float, float]:
    scores = [1.0, 0.0, *(e.chance.choice([0, 1, 0.5, 0.25, 0.75]) for _ in range(e.chance.randint(2, 6)))]
    return scores, math.fsum(scores) / len(scores), statistics.stdev(scores)


def group(e: Example) -> str:
    scores, mean, std = scores_of_group(e)
    lines = [f"GRPO with a group of {len(scores)} answers to one prompt. Their scores: [{given(scores)}]."]
    lines.append(f"The group's mean is {e.judged(mean)} and its standard deviation is {e.judged(std)}.")
    lines.append(f"So the group advantages are [{e.many([(x - mean) / std for x in scores])}].")
    return e.chance.choice(["\n", "\n\n", " "]).join(lines)


def chinese_group(e: Example) -> str:
    scores, mean, _ = scores_of_group(e)
    if e.chance.random() < 0.5:
        return (
            f"Dr. GRPO 不除标准差：一组得分 = [{given(scores)}]，组内均值 = {e.judged(mean)}，\n"
            f"优势 = [{e.many([x - mean for x in scores])}]。"
        )
    others = [x - (math.fsum(scores) - x) / (len(scores) - 1) for x in scores]
    first = f"用 RLOO，一组 {len(scores)} 个回答的得分 = [{given(scores)}]。"
    return f"{first}\n每个回答减去其余回答的平均，优势 = [{e.many(others)}]。"


def group_table(e: Example) -> str:
    scores, mean, std = scores_of_group(e)
    first = f"A GRPO group of {len(scores)} answers; mean = {e.judged(mean)}, std = {e.judged(std)}.\n"
    rows = [f"| {k} | {x:g} | {e.judged((x - mean) / std)} |" for k, x in enumerate(scores, 1)]
    return "\n".join([first, "| answer | score | advantage |", "|---|---|---|", *rows])


def assistant(e: Example) -> str:
    lines = [f"Great question! 🙂\n\n### 1. Setup\n- **Discount** γ = {e.gamma:g}\n- **GAE** λ = {e.lam:g}"]
    lines.append(f"- **Rewards**: `[{given(e.rewards)}]`\n- **Values**: `[{given(e.values)}]`\n\n### 2. TD errors")
    for t in range(e.size):
        sides = f"{e.rewards[t]:g} + {e.gamma:g} × {e.next_value(t):g} − {e.values[t]:g}"
        lines.append(f"- **δ_{t}** = {sides} = **{e.judged(e.deltas[t])}**")
    lines.append("\n### 3. Advantages (going backwards)")
    for t in reversed(range(e.size)):
        lines.append(f"{e.size - t}. `A_{t}` ≈ **{e.judged(e.advantages[t])}**")
    lines.append(f"\n### 4. Returns\nAdding the values back, **R_t = A_t + V(s_t)**, we get `[{e.many(e.returns)}]`.")
    summary = f"advantage is {e.judged(e.advantages[0])} and its return is {e.judged(e.returns[0])}"
    return "\n".join([*lines, f"\n✅ **Summary**: the first token's {summary}."])


def whitened(e: Example) -> str:
    numbers = [round(x, 4) for x in e.advantages]
    mean, std = math.fsum(numbers) / e.size, statistics.stdev(numbers)
    said = f"mean = {e.judged(mean)}, std = {e.judged(std)} (n − 1)"
    shown = e.many([(x - mean) / std for x in numbers], 3)
    return f"advantages = [{given(numbers)}]\n{said}\nwhitened advantages = [{shown}]"


STYLES: tuple[Callable[[Example], str], ...] = (
    blog, wide_table, chinese_table, latex, session, running_chinese, batch, group, chinese_group, group_table,
    assistant, whitened,
)  # fmt: skip


def told(style: Callable[[Example], str], seed: int, planted: int | None = None) -> tuple[str, int]:
    example = Example(random.Random(f"{style.__name__} {seed}"), planted)
    return style(example), example.count
