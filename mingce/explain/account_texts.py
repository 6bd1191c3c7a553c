"""What is said about one token's account: every formula, the same with its numbers, and what it means.

One source for the page (/api/texts) and the terminal. Three levels: for a twelve-year-old, for an engineer, with proof.
`{name}` stands for a number or text of this token; formulas in prose stand between backticks. A section is shown when
every name in `needs` has a value and none in `lacks` has one. Some sections end with a sentence for the case at hand:

    sign of a number                     positive | negative | zero (below 0.0005)
    ratio, against 1                     up | down | same (within 0.0005)
    policy, value: what the clip did     free | clipped | dual
    end: what follows the token          inside | ended | bootstrapped
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from mingce.specs import ESTIMATORS, POLICY_LOSSES, Estimator, PolicyLoss

LEVELS = ("child", "engineer", "proof")
Pair = tuple[str, str]  # (中文, English)


@dataclass(frozen=True)
class Section:
    """One line of the account. `words` are for LEVELS in order; `case_of` names what chooses among `cases`."""

    id: str
    title: Pair
    formula: str
    numbers: str
    words: tuple[Pair, Pair, Pair]
    needs: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    estimators: tuple[str, ...] | None = None
    losses: tuple[str, ...] | None = None
    case_of: str | None = None
    cases: dict[str, Pair] = field(default_factory=dict)


def sections() -> list[dict[str, Any]]:
    """All sections as JSON holds them, in reading order."""
    found = []
    for section in SECTIONS:
        entry = asdict(section)
        entry["title"] = _pair(section.title)
        entry["words"] = {level: _pair(pair) for level, pair in zip(LEVELS, section.words, strict=True)}
        entry["cases"] = {case: _pair(pair) for case, pair in section.cases.items()}
        found.append(entry)
    return found


def _pair(pair: Pair) -> dict[str, str]:
    return {"zh": pair[0], "en": pair[1]}


_CREDIT_SIGN = {
    "positive": (
        "{advantage} 是正数：选“{token}”比这个位置的一般水平好，值得多说。",
        "{advantage} is positive: choosing “{token}” was better than usual here, worth saying more often.",
    ),
    "negative": (
        "{advantage} 是负数：选“{token}”不如这个位置的一般水平，该少说。",
        "{advantage} is negative: choosing “{token}” was worse than usual here, to be said less often.",
    ),
    "zero": (
        "它几乎是 0：选“{token}”和这个位置的一般水平差不多。",
        "It is almost 0: “{token}” was neither better nor worse than usual here.",
    ),
}
_SHARED = tuple(spec.name for spec in ESTIMATORS.values() if spec.kind == "share")

_WRITTEN: tuple[Section, ...] = (
    Section(
        "not_chosen",
        ("不是策略选的", "Not chosen by the policy"),
        "m_t = 0",
        "m_{t} = 0",
        (
            (
                "这个词不是模型自己说的，而是工具或环境塞进来的。不是它说的话，功劳和过错都不记在它头上。",
                "The model did not say this one; a tool or the environment put it there. No credit and no blame for words that are not yours.",
            ),
            (
                "`m_t = 0`：工具输出。它不进入任何均值、白化和损失；递推跳过它，前一个被选 token 的“下一个”是它之后第一个被选的 token。",
                "`m_t = 0`: tool output. It enters no mean, no whitening and no loss; the recursion steps over it, so what follows the chosen token before it is the next chosen one.",
            ),
            (
                "策略梯度只对 `log π(a_t|s_t)` 求导；环境给出的 token 不是从 π 抽的，它对应的项不存在，算进去会得到有偏的梯度。",
                "The policy gradient differentiates `log π(a_t|s_t)` only. A token given by the environment was not drawn from π, so it has no term; adding one would bias the gradient.",
            ),
        ),
    ),
    Section(
        "state",
        ("站在哪里，选了什么", "Where it stood and what it chose"),
        "s_t = (x, y_0 … y_{t−1}),  a_t = y_t",
        "s_{t} = “…{state_end}”,  a_{t} = “{token}”",
        (
            (
                "现在轮到第 {t} 个位置（从 0 数起）。眼前是题目和已经说出的“…{state_end}”，模型接着说了“{token}”。下面的数都在算这一下值不值。",
                "It is turn {t}, counting from 0. On the table: the question and what was said so far, “…{state_end}”. The model says “{token}”. Every number below is about this one choice.",
            ),
            (
                "状态 `s_t` 是提示加前 {t} 个 token，动作 `a_t` 是“{token}”。动作列（奖励、δ、优势、比值、损失）的第 {t} 槽说的是选出它；状态列（`V`、`R`）的第 {t} 槽说的是它出现之前。所以 `V(s_t)` 没看过“{token}”，但它估计的总和里包含 `r_t`。",
                "The state `s_t` is the prompt and the first {t} tokens; the action `a_t` is “{token}”. Slot {t} of an action column (reward, δ, advantage, ratio, loss) is about choosing it; slot {t} of a state column (`V`, `R`) is about the moment before. So `V(s_t)` has not seen “{token}”, yet the sum it estimates includes `r_t`.",
            ),
            (
                "生成文本是转移确定的 MDP：`s_{t+1} = (s_t, a_t)`，随机只来自 `a_t ~ π(·|s_t)`。critic 在 y_t 前一个 token 的位置读出 `V(s_t)`，因此它只是 `s_t` 的函数。这正是基线不引入偏差的条件：`E_{a~π}[b(s)·∇log π(a|s)] = b(s)·∇Σ_a π(a|s) = b(s)·∇1 = 0`。",
                "Text is an MDP with deterministic transitions, `s_{t+1} = (s_t, a_t)`; chance enters only by `a_t ~ π(·|s_t)`. The critic reads `V(s_t)` at the token before y_t, so it is a function of `s_t` alone. That is what makes it an unbiased baseline: `E_{a~π}[b(s)·∇log π(a|s)] = b(s)·∇Σ_a π(a|s) = b(s)·∇1 = 0`.",
            ),
        ),
    ),
    Section(
        "kl",
        ("离老样子多远", "How far from the reference"),
        "k_t = k(log π_old(a_t) − log π_ref(a_t))",
        "k_{t} = {kl_estimator}({old_log_prob} − {ref_log_prob}) = {kl}",
        (
            (
                "训练前有一个“原来的自己”。现在的模型有多想说“{token}”，和原来的自己比差多少，就是 {kl}。",
                "There is a frozen copy of the model from before training. {kl} compares how much each of the two likes “{token}”.",
            ),
            (
                "当前策略给“{token}”的对数概率是 {old_log_prob}，参考模型是 {ref_log_prob}；估计式 {kl_estimator} 给出 {kl}。单个 token 的 k1 可以为负，平均起来才是 KL。",
                "The policy gives “{token}” a log-probability of {old_log_prob}, the reference {ref_log_prob}; the estimator {kl_estimator} makes {kl} of them. A single token's k1 may be negative; only its mean is a KL.",
            ),
            (
                "设 `x = log π(a) − log π_ref(a)`、a 从 π 抽出。`E[k1] = E[x] = KL(π‖π_ref)`，无偏而方差大；`k3 = e^{−x} − 1 + x` 也无偏，因为 `E_π[e^{−x}] = Σ π_ref = 1`，并且由 `e^u ≥ 1 + u` 逐项非负；`k2 = ½x²` 有偏，但它的梯度是 KL 梯度的无偏估计。",
                "Let `x = log π(a) − log π_ref(a)` with a drawn from π. `E[k1] = E[x] = KL(π‖π_ref)`: unbiased, with a large variance. `k3 = e^{−x} − 1 + x` is unbiased too, since `E_π[e^{−x}] = Σ π_ref = 1`, and never negative, since `e^u ≥ 1 + u`. `k2 = ½x²` is biased, but its gradient is an unbiased estimate of the KL's.",
            ),
        ),
        needs=("kl", "old_log_prob", "ref_log_prob"),
        case_of="kl",
        cases={
            "positive": (
                "{kl} > 0：模型现在比原来更爱说“{token}”，要为此付一点代价。",
                "{kl} > 0: the model likes “{token}” better than it used to, and pays a little for that.",
            ),
            "negative": (
                "{kl} < 0：模型现在反而没有原来那么爱说“{token}”。",
                "{kl} < 0: the model likes “{token}” less than it used to.",
            ),
            "zero": ("两者几乎一样。", "The two agree."),
        },
    ),
    Section(
        "reward",
        ("这一步的奖励", "The reward of this step"),
        "r_t = score_t − β·k_t",
        "r_{t} = {score} − {beta}·{kl} = {reward}",
        (
            (
                "说出“{token}”当场得 {score} 分，再扣掉“变样费”（单价 {beta}），到手 {reward}。多数词当场得 0 分，大分往往在最后一个词上。",
                "“{token}” scores {score} on the spot; then a fee for drifting is taken off, at a price of {beta}. That leaves {reward}. Most words score 0 at once; the big score usually comes with the last one.",
            ),
            (
                "任务得分 {score} 减去 `β·k_t`（β = {beta}，KL = {kl}），得 `r_t` = {reward}。得分若是稀疏的，只落在最后一个被选 token；KL 则每个 token 都收。",
                "The task's score {score} less `β·k_t` (β = {beta}, KL = {kl}) gives `r_t` = {reward}. A sparse score sits on the last chosen token only; the KL is charged on every one.",
            ),
            (
                "把 `−β·k_t` 放进每步奖励，总回报的期望就是 `E[score] − β·Σ_t E[KL(π(·|s_t)‖π_ref(·|s_t))]`，由链式法则这正是整句的 `E[score] − β·KL(π‖π_ref)`。它的最优解是 `π* ∝ π_ref·e^{score/β}`：β 越大越贴近参考模型。",
                "With `−β·k_t` in every step's reward the expected return is `E[score] − β·Σ_t E[KL(π(·|s_t)‖π_ref(·|s_t))]`, which by the chain rule is `E[score] − β·KL(π‖π_ref)` of the whole response. Its maximiser is `π* ∝ π_ref·e^{score/β}`: the larger β, the closer to the reference.",
            ),
        ),
        needs=("reward", "score", "kl", "beta"),
    ),
    Section(
        "reward",
        ("这一步的奖励", "The reward of this step"),
        "r_t = score_t",
        "r_{t} = {score} = {reward}",
        (
            (
                "说出“{token}”当场得到 {reward} 分。多数词当场得 0 分，大分往往在最后一个词上。",
                "“{token}” earns {reward} on the spot. Most words earn 0 at once; the big score usually comes with the last one.",
            ),
            (
                "这里没有参考模型，奖励就是任务得分：`r_t` = {reward}。",
                "There is no reference model here, so the reward is the task's score: `r_t` = {reward}.",
            ),
            (
                "`r_t = r(s_t, a_t, s_{t+1})` 是转移的奖励，存在动作 t 的位置；没有 KL 项时总回报就是得分本身。",
                "`r_t = r(s_t, a_t, s_{t+1})` is the reward of the transition, stored at its action; without a KL term the return is the score itself.",
            ),
        ),
        needs=("reward", "score"),
        lacks=("kl",),
    ),
    Section(
        "delta",
        ("意外有多大（TD 误差）", "The surprise (TD error)"),
        "δ_t = r_t + γ·V(s_{t+1}) − V(s_t)",
        "δ_{t} = {reward} + {gamma}·{next_value} − {value} = {delta}",
        (
            (
                "有个教练一直在猜最后能拿几分。说“{token}”之前他猜 {value}，说完之后他猜 {next_value}，当场又得了 {reward}。前后差了 {delta}，这就是“{token}”带来的意外。",
                "A coach keeps guessing the final score. Before “{token}” the guess was {value}, after it {next_value}, and {reward} was earned on the spot. The difference, {delta}, is the surprise that “{token}” brought.",
            ),
            (
                "critic 在“{token}”之前估 {value}；走了一步：拿到 {reward}，下一个状态估 {next_value}（γ = {gamma}）。TD 误差 {delta} 是这一步相对预期的盈亏。",
                "The critic said {value} before “{token}”. One step later: {reward} earned, and {next_value} expected from there (γ = {gamma}). The TD error {delta} is this step's gain or loss against that expectation.",
            ),
            (
                "若 `V = V^π`，则 `E[δ_t|s_t, a_t] = Q(s_t, a_t) − V(s_t) = A(s_t, a_t)`：δ 本身就是优势的无偏估计。它们还会望远镜式相消：`Σ_k γ^k·δ_{t+k} = Σ_k γ^k·r_{t+k} − V(s_t)`（末端价值为 0），中间的 V 全部抵消，所以 critic 的误差只影响方差与偏差的分配，不会凭空造出奖励。",
                "If `V = V^π` then `E[δ_t|s_t, a_t] = Q(s_t, a_t) − V(s_t) = A(s_t, a_t)`: δ alone estimates the advantage without bias. And they telescope: `Σ_k γ^k·δ_{t+k} = Σ_k γ^k·r_{t+k} − V(s_t)` (nothing after the end), every V in between cancels, so a critic's errors shift bias and variance but cannot invent reward.",
            ),
        ),
        needs=("delta", "reward", "value", "next_value", "gamma"),
        case_of="delta",
        cases={
            "positive": (
                "{delta} > 0：比预期好，是个惊喜。",
                "{delta} > 0: better than expected, a pleasant surprise.",
            ),
            "negative": (
                "{delta} < 0：比预期差，是个失望。",
                "{delta} < 0: worse than expected, a disappointment.",
            ),
            "zero": ("几乎为 0：正如所料。", "Almost 0: just as expected."),
        },
    ),
    Section(
        "end",
        ("后面还有什么", "What follows"),
        "V(s_{t+1})",
        "V(s_({t}+1)) = {next_value}",
        (
            (
                "“下一步”指的是模型自己说的下一个词；中间若有工具说的话，就跳过去。",
                "“Next” means the next word that the model itself says; anything a tool says in between is stepped over.",
            ),
            (
                "t+1 指下一个被选的 token，掩码为 0 的槽位跳过；还剩 {chosen_left} 个被选 token。",
                "t+1 is the next chosen token; slots with mask 0 are stepped over. {chosen_left} chosen tokens are left.",
            ),
            (
                "终止状态没有未来，`V(s_T) = 0`。被长度截断不是终止：记 0 会系统性低估长回答，`bootstrap` 用 critic 的估计接上，`mask` 则把整行移出损失。",
                "A terminal state has no future: `V(s_T) = 0`. Being cut by the length limit is not an end: 0 systematically undervalues long answers, `bootstrap` continues with the critic's estimate, `mask` takes the row out of the losses.",
            ),
        ),
        needs=("delta", "next_value"),
        case_of="end",
        cases={
            "inside": (
                "这里的下一个是“{next_token}”，之前的估计是 {next_value}。",
                "Here the next one is “{next_token}”, and the estimate before it is {next_value}.",
            ),
            "ended": (
                "“{token}”是最后一个：话说完了，后面的价值记 0。",
                "“{token}” is the last one: the answer ends, and what follows counts as 0.",
            ),
            "bootstrapped": (
                "“{token}”之后被长度上限截断，用 critic 的估计 {next_value} 代表没说完的部分。",
                "After “{token}” the length limit cut the answer; the critic's {next_value} stands for what was not said.",
            ),
        },
    ),
    Section(
        "advantage",
        ("功劳（优势，GAE）", "The credit (advantage, GAE)"),
        ESTIMATORS["gae"].formula,
        ESTIMATORS["gae"].numbers,
        (
            (
                "“{token}”自己的意外是 {delta}。它还为后面铺了路，所以后面的功劳 {next_advantage} 也分给它一部分（乘 {gamma_lam}）。合起来是 {advantage}。",
                "“{token}” brought a surprise of {delta} itself. It also paved the way for what came later, so it gets a share (times {gamma_lam}) of the next one's credit, {next_advantage}. Together: {advantage}.",
            ),
            (
                "从后往前一遍递推：本步的 δ = {delta}，加上 γλ = {gamma_lam} 乘后一个被选 token 的优势 {next_advantage}，得未白化的 `A_t` = {advantage}。展开就是 `Σ_l (γλ)^l·δ_{t+l}`，功劳图画的正是这些项。",
                "One pass from the end: this step's δ = {delta} plus γλ = {gamma_lam} times the next chosen token's advantage {next_advantage} gives the raw `A_t` = {advantage}. Unrolled it is `Σ_l (γλ)^l·δ_{t+l}`; the credit map draws these terms.",
            ),
            (
                "记 n 步优势 `A^{(n)}_t = Σ_{l<n} γ^l·δ_{t+l}`，则 `(1−λ)·Σ_{n≥1} λ^{n−1}·A^{(n)}_t = Σ_l (γλ)^l·δ_{t+l}`：交换求和次序，`δ_{t+l}` 的系数是 `(1−λ)·γ^l·Σ_{n>l} λ^{n−1} = (γλ)^l`。λ = 0 只信 critic（方差小、偏差随 V 的误差），λ = 1 望远镜相消为 `G_t − V(s_t)`（无偏、方差大）。",
                "With the n-step advantage `A^{(n)}_t = Σ_{l<n} γ^l·δ_{t+l}`, `(1−λ)·Σ_{n≥1} λ^{n−1}·A^{(n)}_t = Σ_l (γλ)^l·δ_{t+l}`: swap the sums, and the coefficient of `δ_{t+l}` is `(1−λ)·γ^l·Σ_{n>l} λ^{n−1} = (γλ)^l`. λ = 0 trusts the critic alone (little variance, the bias of V); λ = 1 telescopes to `G_t − V(s_t)` (no bias, much variance).",
            ),
        ),
        needs=("advantage", "delta", "gamma_lam", "next_advantage"),
        estimators=("gae",),
        case_of="advantage",
        cases=_CREDIT_SIGN,
    ),
    Section(
        "advantage",
        ("功劳（优势，蒙特卡洛）", "The credit (advantage, Monte Carlo)"),
        ESTIMATORS["monte_carlo"].formula,
        ESTIMATORS["monte_carlo"].numbers,
        (
            (
                "从“{token}”起一直到最后，真正拿到的分是 {return}；教练事先猜 {value}。多出来的 {advantage} 就是功劳。",
                "From “{token}” to the end {return} was really earned; the coach had guessed {value}. The difference, {advantage}, is the credit.",
            ),
            (
                "实际折扣回报 {return} 减去 critic 的估计 {value}。等于 λ = 1 的 GAE：不用下一步的 V，所以没有 critic 的偏差，但后面所有的运气都算在它头上。",
                "The discounted reward that really came, {return}, less the critic's estimate {value}. It is GAE with λ = 1: no later V is used, so no bias of the critic, but all later luck is charged to this token.",
            ),
            (
                "`E[G_t|s_t, a_t] = Q^π(s_t, a_t)`，故 `G_t − V(s_t)` 无偏；方差是后续全部奖励之和的方差，随剩余长度（还有 {chosen_left} 个 token）增长。",
                "`E[G_t|s_t, a_t] = Q^π(s_t, a_t)`, so `G_t − V(s_t)` is unbiased; its variance is that of the sum of all later rewards and grows with what is left ({chosen_left} tokens).",
            ),
        ),
        needs=("advantage", "return", "value"),
        estimators=("monte_carlo",),
        case_of="advantage",
        cases=_CREDIT_SIGN,
    ),
    Section(
        "advantage",
        ("功劳（优势，TD(0)）", "The credit (advantage, TD(0))"),
        ESTIMATORS["td0"].formula,
        ESTIMATORS["td0"].numbers,
        (
            (
                "只看眼前一步：“{token}”带来的意外 {advantage} 就是它的功劳，后面的事与它无关。",
                "Only this one step counts: the surprise of “{token}”, {advantage}, is its credit; what comes later is not.",
            ),
            (
                "λ = 0 的 GAE：优势就是 TD 误差 {delta}。方差最小，但全靠 critic；critic 不准时，结尾的得分很多步都传不到这里。",
                "GAE with λ = 0: the advantage is the TD error {delta}. The least variance, but everything rests on the critic; while it is wrong, the final score takes many updates to reach this token.",
            ),
            (
                "若 `V` 有误差 `e(s)`，则 `E[δ_t] = A(s_t, a_t) + γ·E[e(s_{t+1})] − e(s_t)`：偏差正是 critic 误差的一步差分。",
                "If V is off by `e(s)`, then `E[δ_t] = A(s_t, a_t) + γ·E[e(s_{t+1})] − e(s_t)`: the bias is the one-step difference of the critic's error.",
            ),
        ),
        needs=("advantage", "delta"),
        estimators=("td0",),
        case_of="advantage",
        cases=_CREDIT_SIGN,
    ),
    Section(
        "advantage",
        ("功劳（优势，n 步）", "The credit (advantage, n steps)"),
        ESTIMATORS["n_step"].formula,
        ESTIMATORS["n_step"].numbers,
        (
            (
                "往后看 {n} 个词，把它们的意外加起来：{advantage}。再往后的就不算在“{token}”头上了。",
                "Look {n} words ahead and add up their surprises: {advantage}. Anything later is not put down to “{token}”.",
            ),
            (
                "向后 {n} 个被选 token 的 δ 按 γ = {gamma} 折扣求和，得 {advantage}；n = 1 是 TD(0)，n 不小于剩余长度就是蒙特卡洛。",
                "The δ of {n} chosen tokens from here on, discounted by γ = {gamma}, add up to {advantage}; n = 1 is TD(0), n as long as what is left is Monte Carlo.",
            ),
            (
                "望远镜相消：`Σ_{l<n} γ^l·δ_{t+l} = Σ_{l<n} γ^l·r_{t+l} + γ^n·V(s_{t+n}) − V(s_t)`，偏差是 `γ^n·E[e(s_{t+n})] − e(s_t)`，n 越大来自自举的偏差越小。",
                "Telescoping: `Σ_{l<n} γ^l·δ_{t+l} = Σ_{l<n} γ^l·r_{t+l} + γ^n·V(s_{t+n}) − V(s_t)`; the bias is `γ^n·E[e(s_{t+n})] − e(s_t)`, and bootstrapping biases less the larger n is.",
            ),
        ),
        needs=("advantage", "n", "gamma"),
        estimators=("n_step",),
        case_of="advantage",
        cases=_CREDIT_SIGN,
    ),
    Section(
        "advantage",
        ("功劳（按份额分）", "The credit (shared out)"),
        ESTIMATORS[_SHARED[0]].formula,
        ESTIMATORS[_SHARED[0]].numbers,
        (
            (
                "整句话一共得了 {own} 分，像分蛋糕一样分给每个词，“{token}”分到 {advantage}。",
                "The whole answer earned {own}. It is cut like a cake among the words, and “{token}” gets {advantage}.",
            ),
            (
                "总奖励 {own} 按份额 {share} 记到这个 token：uniform 平均分，last_k 只给最后几个，attention 按末 token 的注意力分。没有 critic，也没有基线。",
                "The total reward {own} is put down to this token by its share {share}: uniform gives equal parts, last_k only to the last few, attention by what the last token looks at. No critic, no baseline.",
            ),
            (
                "份额之和为 1，故 `Σ_t A_t = Σ_j r_j`，总量守恒；但 `E[A_t|s_t, a_t]` 一般不等于 `Q − V`，这是启发式的分配，不是优势的无偏估计。",
                "The shares add up to 1, so `Σ_t A_t = Σ_j r_j`: nothing is lost. But `E[A_t|s_t, a_t]` is in general not `Q − V`; this is a heuristic split, not an unbiased advantage.",
            ),
        ),
        needs=("advantage", "own", "share"),
        estimators=_SHARED,
        case_of="advantage",
        cases=_CREDIT_SIGN,
    ),
    Section(
        "advantage",
        ("功劳（和同题的回答比，GRPO）", "The credit (against its group, GRPO)"),
        ESTIMATORS["grpo"].formula,
        ESTIMATORS["grpo"].numbers,
        (
            (
                "同一道题答了 {group_size} 次，平均 {group_mean} 分，这一次 {own} 分。高出平均多少，就是这句话里每个词共同的功劳。",
                "The same question was answered {group_size} times, {group_mean} on average; this answer got {own}. How far above average it is becomes the credit of each of its words.",
            ),
            (
                "组内 {group_size} 条回答的总奖励均值 {group_mean}、标准差 {group_std}（Bessel），本条 {own}；整行每个被选 token 同一个优势 {advantage}。不需要 critic，也分不出句内谁的功劳。",
                "The group's {group_size} totals have mean {group_mean} and standard deviation {group_std} (Bessel); this one is {own}. Every chosen token of the row gets the same {advantage}. No critic is needed, and within the answer nobody is told apart.",
            ),
            (
                "减去含自己的组均值等于 RLOO 乘 `(n−1)/n`，梯度方向无偏。除以 std 则不然：它按题目难度重新加权，全对或全错附近（std 小）的题权重被放大，Dr. GRPO 因此去掉它。",
                "Subtracting a group mean that includes oneself is RLOO times `(n−1)/n`, unbiased in direction. Dividing by the std is not: it reweights prompts by difficulty and magnifies those nearly all right or all wrong (small std); Dr. GRPO drops it for that reason.",
            ),
        ),
        needs=("advantage", "own", "group_mean", "group_std", "group_size"),
        estimators=("grpo",),
        case_of="advantage",
        cases=_CREDIT_SIGN,
    ),
    Section(
        "advantage",
        ("功劳（减组均值，Dr. GRPO）", "The credit (less the group's mean, Dr. GRPO)"),
        ESTIMATORS["dr_grpo"].formula,
        ESTIMATORS["dr_grpo"].numbers,
        (
            (
                "同一道题答了 {group_size} 次，平均 {group_mean} 分，这一次 {own} 分，差 {advantage}。",
                "The same question was answered {group_size} times, {group_mean} on average; this answer got {own}. The difference is {advantage}.",
            ),
            (
                "总奖励 {own} 减组均值 {group_mean}，不除标准差；配合按常数归一的损失聚合（seq-mean-token-sum-norm），长短与难易都不再加权。",
                "The total {own} less the group's mean {group_mean}, without dividing; with a loss normalised by a constant (seq-mean-token-sum-norm) neither length nor difficulty reweights it.",
            ),
            (
                "`R_i − mean = (n−1)/n·(R_i − mean_{j≠i} R_j)`，与 RLOO 只差常数倍；后者的基线与 `a_i` 独立，所以梯度无偏（差一个可吸收进学习率的因子）。",
                "`R_i − mean = (n−1)/n·(R_i − mean_{j≠i} R_j)`: RLOO up to a constant. The latter's baseline is independent of `a_i`, so the gradient is unbiased up to a factor that the learning rate absorbs.",
            ),
        ),
        needs=("advantage", "own", "group_mean", "group_size"),
        estimators=("dr_grpo",),
        case_of="advantage",
        cases=_CREDIT_SIGN,
    ),
    Section(
        "advantage",
        ("功劳（和其他几条比，RLOO）", "The credit (against the others, RLOO)"),
        ESTIMATORS["rloo"].formula,
        ESTIMATORS["rloo"].numbers,
        (
            (
                "同一道题另外几次的平均是 {others_mean} 分，这一次 {own} 分，差 {advantage}。",
                "The other answers to this question got {others_mean} on average, this one {own}. The difference is {advantage}.",
            ),
            (
                "总奖励 {own} 减去组内其余 {group_size}−1 条的均值 {others_mean}（留一法）；整行同一个优势。",
                "The total {own} less the mean {others_mean} of the other {group_size}−1 of its group (leave one out); the same for the whole row.",
            ),
            (
                "基线只由其他独立样本算出，与 `a_i` 独立，故 `E[b·∇log π(a_i)] = E[b]·0 = 0`，无偏；样本数越多，基线越接近 `V(s_0)`，方差越小。",
                "The baseline comes from other, independent samples only, so `E[b·∇log π(a_i)] = E[b]·0 = 0`: unbiased. The more samples, the closer it is to `V(s_0)`, and the smaller the variance.",
            ),
        ),
        needs=("advantage", "own", "others_mean", "group_size"),
        estimators=("rloo",),
        case_of="advantage",
        cases=_CREDIT_SIGN,
    ),
    Section(
        "advantage",
        ("功劳（折扣回报，REINFORCE++）", "The credit (return to go, REINFORCE++)"),
        ESTIMATORS["reinforce_plus_plus"].formula,
        ESTIMATORS["reinforce_plus_plus"].numbers,
        (
            (
                "从“{token}”起到结束一共拿到 {advantage} 分，先全记在它头上；之后再和全班的平均比。",
                "From “{token}” to the end {advantage} was earned; all of it is put down here first, and compared with everybody's average afterwards.",
            ),
            (
                "没有 critic：优势取从 t 起的折扣奖励 {advantage}，基线由随后的整批白化充当。",
                "No critic: the advantage is the discounted reward from t on, {advantage}; the whitening of the whole batch serves as the baseline.",
            ),
            (
                "`E[G_t·∇log π(a_t|s_t)]` 就是策略梯度定理里的项（因果性：t 之前的奖励期望为 0 贡献）；批均值作基线在大批量下近似独立，偏差为 O(1/N)。",
                "`E[G_t·∇log π(a_t|s_t)]` is the very term of the policy gradient theorem (by causality rewards before t contribute 0); the batch mean as a baseline is nearly independent for large batches, with a bias of O(1/N).",
            ),
        ),
        needs=("advantage", "gamma"),
        estimators=("reinforce_plus_plus",),
        case_of="advantage",
        cases=_CREDIT_SIGN,
    ),
    Section(
        "return",
        ("教练该猜多少（回报）", "What the coach should have said (return)"),
        "R_t = A_t + V(s_t)",
        "R_{t} = {advantage} + {value} = {return}",
        (
            (
                "教练原来猜 {value}，实际和他想的相差 {advantage}（正数是更好，负数是更糟），所以下次他应该猜 {return}。",
                "The coach had said {value} and was off by {advantage} (above 0: it went better, below 0: worse), so next time the guess should be {return}.",
            ),
            (
                "critic 的学习目标：未白化的优势 {advantage} 加旧估计 {value}，即 λ-回报 {return}。只有 λ = 1 时它才是蒙特卡洛回报；用白化后的优势来算是常见的错误。",
                "The critic's target: the raw advantage {advantage} plus the old estimate {value} is the λ-return {return}. It is the Monte Carlo return only when λ = 1; using the whitened advantage here is a common bug.",
            ),
            (
                "`R_t = V(s_t) + Σ_l (γλ)^l·δ_{t+l}`。把 `V ← E[R_t|s_t]` 看作算子，它以 `γ(1−λ)/(1−γλ)` 为压缩系数、以 `V^π` 为不动点（γ < 1；γ = 1 时有限长度保证收敛），λ 越大收缩越快。",
                "`R_t = V(s_t) + Σ_l (γλ)^l·δ_{t+l}`. As an operator `V ← E[R_t|s_t]` contracts by `γ(1−λ)/(1−γλ)` towards the fixed point `V^π` (γ < 1; for γ = 1 the finite length sees to it), the faster the larger λ.",
            ),
        ),
        needs=("return", "advantage", "value"),
    ),
    Section(
        "whitening",
        ("和全班比（白化）", "Against everybody (whitening)"),
        "Â_t = (A_t − μ)/√(σ² + 10⁻⁸)",
        "Â_{t} = ({advantage} − {mean})/{std} = {whitened}",
        (
            (
                "这一批共有 {count} 个词，平均功劳 {mean}。“{token}”的 {advantage} 换算成“比平均高几个刻度”，是 {whitened}。这样每一批的分数都用同一把尺。",
                "This batch has {count} words with an average credit of {mean}. On a ruler that counts steps above average, the {advantage} of “{token}” is {whitened}. So every batch is measured with the same ruler.",
            ),
            (
                "在整批进入损失的 {count} 个 token 上：μ = {mean}，σ = {std}（Bessel）。{advantage} 白化为 {whitened}，策略损失用的是它；回报仍用未白化的优势。",
                "Over the {count} tokens of the whole batch that enter the losses: μ = {mean}, σ = {std} (Bessel). {advantage} becomes {whitened}, which is what the policy loss uses; returns keep the raw one.",
            ),
            (
                "减 μ 相当于再加一个常数基线，期望梯度不变（`E[∇log π] = 0`）；除以 σ 只是把学习率换成 `η/σ`，逐批自适应。两者都要用全批（所有 rank）的统计量，否则同一个 token 的梯度会随拆分方式而变。注意 μ ≠ 0 时个别 token 的符号可能翻转：这里由 {advantage} 变为 {whitened}。",
                "Subtracting μ is one more constant baseline, which leaves the expected gradient as it is (`E[∇log π] = 0`); dividing by σ makes the learning rate `η/σ`, batch by batch. Both need the statistics of the whole batch, all ranks, or a token's gradient would depend on how the batch was split. When μ ≠ 0 a token's sign may flip: here {advantage} becomes {whitened}.",
            ),
        ),
        needs=("whitened", "advantage", "mean", "std", "count"),
        case_of="whitened",
        cases={
            "positive": (
                "{whitened} > 0：“{token}”会被鼓励。",
                "{whitened} > 0: “{token}” is encouraged.",
            ),
            "negative": (
                "{whitened} < 0：“{token}”会被抑制。",
                "{whitened} < 0: “{token}” is discouraged.",
            ),
            "zero": ("几乎是 0：基本不动。", "Almost 0: hardly any change."),
        },
    ),
    Section(
        "ratio",
        ("现在比当时更爱说它吗（比值）", "Likelier than when it was said? (ratio)"),
        "ρ_t = exp(log π(a_t) − log π_old(a_t))",
        "ρ_{t} = exp({new_log_prob} − {old_log_prob}) = {ratio}",
        (
            (
                "学了一会儿之后，模型说“{token}”的可能性变成了原来的 {ratio} 倍。",
                "After learning for a while, the model is {ratio} times as likely to say “{token}” as before.",
            ),
            (
                "更新中的策略给它 {new_log_prob}，采样时的策略给它 {old_log_prob}，比值 {ratio}。每步第一次更新时恒为 1；这里记的是损失最后一次用到它时的数。",
                "The policy being updated gives it {new_log_prob}, the one before the step {old_log_prob}: a ratio of {ratio}. It is exactly 1 on a step's first update; what is kept is the number as the loss last used it.",
            ),
            (
                "重要性采样：`E_{a~π_old}[ρ·f(a)] = Σ_a π_old·(π/π_old)·f = E_{a~π}[f(a)]`，而且 `∇ρ|_{π=π_old} = ∇log π`，故代理目标 `ρÂ` 在起点处的梯度恰是策略梯度。离得越远方差越大，所以要裁剪。",
                "Importance sampling: `E_{a~π_old}[ρ·f(a)] = Σ_a π_old·(π/π_old)·f = E_{a~π}[f(a)]`, and `∇ρ|_{π=π_old} = ∇log π`, so the surrogate `ρÂ` starts out with exactly the policy gradient. The further away, the larger the variance; hence the clip.",
            ),
        ),
        needs=("ratio", "new_log_prob", "old_log_prob"),
        case_of="ratio",
        cases={
            "up": ("{ratio} > 1：“{token}”变得更可能了。", "{ratio} > 1: “{token}” has become likelier."),
            "down": ("{ratio} < 1：“{token}”变得更少见了。", "{ratio} < 1: “{token}” has become rarer."),
            "same": ("几乎没变。", "It has hardly changed."),
        },
    ),
    Section(
        "policy",
        ("策略损失与裁剪", "Policy loss and clip"),
        POLICY_LOSSES["ppo"].formula,
        POLICY_LOSSES["ppo"].numbers,
        (
            (
                "一次不许改太多：可能性只准在原来的 {low_bound} 到 {high_bound} 倍之间算数，超出的部分不再给好处。",
                "No big jumps: only changes between {low_bound} and {high_bound} times the old chance count; going further earns nothing more.",
            ),
            (
                "ρÂ = {plain_term}，裁到 [{low_bound}, {high_bound}] 后是 {clipped_term}，取较小者的相反数 {policy_loss}。取 min 使它成为悲观下界：只裁掉“继续走还能得利”的方向，走错了的方向照样有梯度拉回。",
                "ρÂ = {plain_term}; with the ratio held to [{low_bound}, {high_bound}] it is {clipped_term}; the loss is minus the smaller, {policy_loss}. The min makes it a pessimistic bound: only the direction in which more could be gained is cut, a step the wrong way keeps its gradient back.",
            ),
            (
                "逐点有 `min(ρÂ, clip(ρ)Â) ≤ ρÂ`，所以它是代理目标的下界，在 ρ = 1 处与之相等且梯度相同。裁剪起作用时该项对 θ 的导数为 0：`Â > 0` 且 `ρ > 1+ε_high`，或 `Â < 0` 且 `ρ < 1−ε_low`。`Â < 0` 而 ρ 很大时 `ρÂ` 无下界，dual clip 用 `c·Â` 封住。",
                "Pointwise `min(ρÂ, clip(ρ)Â) ≤ ρÂ`, so it bounds the surrogate from below, with equal value and gradient at ρ = 1. Where the clip decides, the term's derivative is 0: `Â > 0` and `ρ > 1+ε_high`, or `Â < 0` and `ρ < 1−ε_low`. For `Â < 0` and large ρ, `ρÂ` has no lower bound; the dual clip stops it at `c·Â`.",
            ),
        ),
        needs=("policy_loss", "ratio", "used", "clip_low", "clip_high"),
        losses=("ppo",),
        case_of="policy",
        cases={
            "free": (
                "这里没有被裁剪：“{token}”照常得到梯度。",
                "Not clipped here: “{token}” has its full gradient.",
            ),
            "clipped": (
                "这里被裁剪了：“{token}”已经改够了，这一项不再有梯度。",
                "Clipped here: “{token}” has moved far enough, and this term has no gradient any more.",
            ),
            "dual": (
                "这里被 dual clip 封顶：坏 token 的比值太大，损失停在 c = {dual_clip} 倍，没有梯度。",
                "Capped by the dual clip: a bad token's ratio grew too large, the loss stops at c = {dual_clip} times and has no gradient.",
            ),
        },
    ),
    Section(
        "policy",
        ("策略损失（TRPO 的代理目标）", "Policy loss (TRPO's surrogate)"),
        POLICY_LOSSES["cpi"].formula,
        POLICY_LOSSES["cpi"].numbers,
        (
            (
                "功劳 {used} 乘上可能性的变化 {ratio}，取相反数：损失越小，说明好词越多、坏词越少。",
                "The credit {used} times the change of chance {ratio}, with the sign turned: the smaller the loss, the more good words and the fewer bad ones.",
            ),
            (
                "不裁剪的代理目标（cpi）：−ρÂ = {policy_loss}。步子靠别的办法管住：学习率、stop_kl、少量 epoch。",
                "The surrogate without a clip (cpi): −ρÂ = {policy_loss}. Something else must keep the step small: the learning rate, stop_kl, few epochs.",
            ),
            (
                "保守策略迭代的界：`J(π) ≥ L(π) − C·max_s KL(π_old‖π)`，`C = 4εγ/(1−γ)²`。TRPO 在 KL 约束内最大化 L；没有约束时这个下界可以任意松。",
                "The bound of conservative policy iteration: `J(π) ≥ L(π) − C·max_s KL(π_old‖π)` with `C = 4εγ/(1−γ)²`. TRPO maximises L within a KL constraint; without one the bound may be arbitrarily loose.",
            ),
        ),
        needs=("policy_loss", "ratio", "used"),
        losses=("cpi",),
    ),
    Section(
        "value_loss",
        ("教练的功课（价值损失）", "The coach's homework (value loss)"),
        "L^V_t = ½·max((V'(s_t) − R_t)², (clip(V'(s_t), V(s_t) ± ε_V) − R_t)²)",
        "L^V_{t} = ½·max(({new_value} − {return})², ({near_value} − {return})²) = {value_loss}",
        (
            (
                "教练现在改口猜 {new_value}，应该猜 {return}。差得越远，罚得越重（按平方算），这次罚 {value_loss}。",
                "The coach now says {new_value} and should say {return}. The further off, the bigger the fine (it is squared): {value_loss}.",
            ),
            (
                "新估计 {new_value} 对目标 {return}；旧估计 {value} 周围 ±{value_clip} 之内的版本是 {near_value}。取两个平方误差的较大者的一半：{value_loss}。",
                "The new estimate {new_value} against the target {return}; held within ±{value_clip} of the old {value} it is {near_value}. Half of the larger squared error: {value_loss}.",
            ),
            (
                "`argmin_V E[(V(s) − R)²] = E[R|s]`：平方损失的解是条件均值，正是 `V` 的定义。取 max 使它成为上界；裁剪决定取值时该项梯度为 0，critic 一次更新最多走 ε_V。",
                "`argmin_V E[(V(s) − R)²] = E[R|s]`: the squared loss is solved by the conditional mean, which is what `V` is. The max makes it an upper bound; where the clip decides, the term has no gradient, and the critic moves by at most ε_V.",
            ),
        ),
        needs=("value_loss", "new_value", "return", "value", "value_clip"),
        case_of="value",
        cases={
            "free": ("价值裁剪没有起作用。", "The value clip did not decide."),
            "clipped": (
                "价值裁剪决定了这一项：估计已经走到 ±{value_clip} 之外，不再有梯度。",
                "The value clip decided: the estimate has gone beyond ±{value_clip} and has no gradient any more.",
            ),
        },
    ),
    Section(
        "value_loss",
        ("教练的功课（价值损失）", "The coach's homework (value loss)"),
        "L^V_t = ½·(V'(s_t) − R_t)²",
        "L^V_{t} = ½·({new_value} − {return})² = {value_loss}",
        (
            (
                "教练现在改口猜 {new_value}，应该猜 {return}。差得越远，罚得越重（按平方算），这次罚 {value_loss}。",
                "The coach now says {new_value} and should say {return}. The further off, the bigger the fine (it is squared): {value_loss}.",
            ),
            (
                "新估计 {new_value} 对目标 {return} 的平方误差的一半：{value_loss}；没有价值裁剪。",
                "Half the squared error of the new estimate {new_value} against the target {return}: {value_loss}; no value clip.",
            ),
            (
                "`argmin_V E[(V(s) − R)²] = E[R|s]`：平方损失的解是条件均值，正是 `V` 的定义。",
                "`argmin_V E[(V(s) − R)²] = E[R|s]`: the squared loss is solved by the conditional mean, which is what `V` is.",
            ),
        ),
        needs=("value_loss", "new_value", "return"),
        lacks=("value_clip",),
    ),
)


def _from_spec(spec: Estimator | PolicyLoss) -> Section:
    """The section of an estimator or a policy loss for which none is written: its formula, numbers and meaning."""
    credit = isinstance(spec, Estimator)
    title = (
        (f"功劳（{spec.zh}）", f"The credit ({spec.en})")
        if credit
        else (f"策略损失（{spec.zh}）", f"Policy loss ({spec.en})")
    )
    words = (
        f"{spec.zh}：{{{'advantage' if credit else 'policy_loss'}}}。",
        f"{spec.en[0].upper()}{spec.en[1:]}: {{{'advantage' if credit else 'policy_loss'}}}.",
    )
    needs = tuple(dict.fromkeys(name for name in re.findall(r"\{([a-z_]+)\}", spec.numbers) if name != "t"))
    if credit:
        return Section(
            "advantage", title, spec.formula, spec.numbers, (words,) * 3, needs, estimators=(spec.name,),
            case_of="advantage", cases=_CREDIT_SIGN,
        )  # fmt: skip
    return Section("policy", title, spec.formula, spec.numbers, (words,) * 3, needs, losses=(spec.name,))


def own_section(section_id: str, name: str) -> Section:
    """The heading of an estimator or a policy loss of the person's own, whose numbers are shown as they are recorded."""
    spec = ESTIMATORS.get(name) if section_id == "advantage" else POLICY_LOSSES.get(name)
    symbol, zh, en = (
        ("A_t", "功劳", "The credit") if section_id == "advantage" else ("L^π_t", "策略损失", "Policy loss")
    )
    title = f"{zh}（{name}）", f"{en} ({name})"
    return Section(section_id, title, spec.formula if spec else symbol, "", (("", ""),) * 3, ())


def _all_sections() -> Iterator[Section]:
    """The written sections, each followed by those of specs that have none, at the end of their kind."""
    estimators = {name for section in _WRITTEN for name in section.estimators or ()}
    losses = {name for section in _WRITTEN for name in section.losses or ()}
    extra = {
        "advantage": [_from_spec(spec) for spec in ESTIMATORS.values() if spec.twin and spec.name not in estimators],
        "policy": [_from_spec(spec) for spec in POLICY_LOSSES.values() if spec.twin and spec.name not in losses],
    }
    for section, following in zip(_WRITTEN, (*_WRITTEN[1:], None), strict=True):
        yield section
        if following is None or following.id != section.id:
            yield from extra.get(section.id, ())


SECTIONS: tuple[Section, ...] = tuple(_all_sections())
