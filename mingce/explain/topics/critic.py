"""Topics of the critic: what a value is, what it is fitted to, and how the critic's own guesses enter its targets."""

from __future__ import annotations

import math
from typing import Any

from mingce.algorithms import reference
from mingce.explain.example import Rollout
from mingce.explain.topic import Grid, Topic, Values
from mingce.explain.topics.chosen import equation, plain, rows_of, token_of
from mingce.explain.topics.states import Walk, spread, step, walk

_COST = 0.01  # a price a token for rollouts that have no KL worth showing
_LEAST_COST = 0.001
_CLIP = 0.5  # the trainer's own default, for rollouts whose value clip is off or not known


# ── why values rise or fall ──────────────────────────────────────────────────────────────────────────────────────────


class _Shapes:
    """The value of every state of a walk of n tokens under four kinds of reward, exactly, by the twin."""

    def __init__(self, rollout: Rollout, w: Walk):
        n, columns, beta = len(w.slots), rollout["columns"], rollout["settings"].get("beta") or 0.0
        drift = [abs(columns["kl"][s] or 0.0) for s in w.slots] if "kl" in columns else [0.0]
        self.own_cost = beta * math.fsum(drift) / len(drift) >= _LEAST_COST
        self.cost = beta * math.fsum(drift) / len(drift) if self.own_cost else _COST
        self.stay = 0.5 ** (1 / n)
        self.piece = 1 / n
        end = [0.0] * (n - 1) + [1.0]
        self.costly = _to_go([r - self.cost for r in end], w.gamma)
        self.hope = _to_go([r * self.stay for r in end], w.gamma * self.stay)
        self.sure = _to_go(end, w.gamma)
        self.dense = _to_go([self.piece] * n, w.gamma)


def _to_go(rewards: list[float], gamma: float, after: float = 0.0) -> list[float]:
    return reference.monte_carlo([rewards], [[0.0] * len(rewards)], [[1] * len(rewards)], gamma, [after]).returns[0]


def _shape_numbers(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    shapes, own, k = _Shapes(rollout, w), _to_go(w.rewards, w.gamma, w.after), w.place(t)
    for name in ("costly", "hope", "sure", "dense"):
        row = getattr(shapes, name)
        v |= {name: spread(rollout, w, row), f"{name}_first": row[0], f"{name}_last": row[-1], f"{name}_here": row[k]}
    changes = [b - a for a, b in zip(w.values, w.values[1:], strict=False)]
    v |= {
        "cost": shapes.cost, "stay": shapes.stay, "piece": shapes.piece, "to_go": spread(rollout, w, own),
        "to_go_here": plain(own[k]), "to_go_next": plain(w.following(own, k, w.after)),
        "hope_next": w.following(shapes.hope, k, 1.0), "ups": sum(x > 0 for x in changes),
        "downs": sum(x < 0 for x in changes), "changes": len(changes),
        "cost_from_zh": "取自本例 β·|KL| 的平均" if shapes.own_cost else "随手取的数",
        "cost_from_en": "the mean of β·|KL| of this example" if shapes.own_cost else "a number picked for show",
    }  # fmt: skip
    alone = len(w.slots) == 1
    v["alone_zh"] = "（这条回答只有一个 token，只有一个价值，看不出升降。）" if alone else ""
    v["alone_en"] = (
        " (This response has a single token and so a single value: nothing can rise or fall.)" if alone else ""
    )
    v["bellman"] = equation("{reward} + {gamma}·{to_go_next} = {to_go_here}", v)
    inside = k + 1 < len(w.slots)
    v["fair"] = (
        equation("{stay}·{gamma}·{hope_next} + (1 − {stay})·0 = {hope_here}", v)
        if inside
        else (equation("{stay}·1 + (1 − {stay})·0 = {hope_here}", v))
    )
    return v


def _shape_grid(rollout: Rollout, t: int) -> Grid:
    w = walk(rollout)
    shapes, own = _Shapes(rollout, w), _to_go(w.rewards, w.gamma, w.after)

    def row(k: int) -> tuple[Any, ...]:
        worlds = shapes.costly[k], shapes.hope[k], shapes.sure[k], shapes.dense[k]
        return (token_of(rollout, w.slots[k]), w.rewards[k], plain(own[k]), w.values[k], *worlds)

    headings = (
        ("token", "token"),
        ("本例 r_t", "r_t here"),
        ("本例从 s_t 起的实际和", "what came from s_t on"),
        ("critic 的 V", "the critic's V"),
        ("V*：末尾 1 分，每步付代价", "V*: 1 at the end, a price each step"),
        ("V*：末尾 1 分，可能走错", "V*: 1 at the end, may go wrong"),
        ("V*：末尾 1 分，稳拿", "V*: 1 at the end, certain"),
        ("V*：每步都有正奖励", "V*: some on every step"),
    )
    return Grid(headings, rows_of(len(w.slots), row))


_VALUES_SHAPE = Topic(
    "values_shape",
    ("价值为什么有时越走越高，有时越走越低", "Why values rise in one case and fall in another"),
    (
        (
            "value 曲线应该是上升还是下降",
            "快到结尾的时候 V 为啥变大",
            "奖励全为正的话 V 是不是递减的",
            "稀疏奖励下 critic 的值怎么变化",
            "为什么我的 values 一路往下掉",
            "剩余奖励越来越少，价值不该变小吗",
        ),
        (
            "should the value curve go up or down along a response",
            "why do values get larger near the end",
            "with positive rewards at every step, do values decrease",
            "how do values behave under a sparse reward",
            "my critic's values keep dropping along the answer, is that right",
            "less is left to collect, so why is the value higher",
        ),
    ),
    (
        (
            "你从学校走回家，教练在旁边猜：从现在到家，你还能拿到多少奖励。注意是“还能拿到”的：已经拿到手的不算；晚一步到手的，按 {gamma} 折算。他猜的数就是价值。{alone_zh}\n\n"
            "第一种路：每个路口放一块糖，{count_chosen} 个路口的糖加起来是 1。刚出发时前面的糖值 {dense_first}，走到最后一个路口前只剩 {dense_last}。糖越捡越少，数就越来越**小**。\n\n"
            "第二种路：路上没有糖，只有到家时给 1 块，而且每过一个路口要交 {cost} 的过路费。刚出发时扣掉要交的钱，前面还值 {costly_first}；到最后一个路口前值 {costly_last}。该交的快交完了，数就越来越**大**。\n\n"
            "还有一种变大，是因为越来越放心。如果一路上随时可能走错、走错就什么也没有，从头看只有一半把握，那么每走对一个路口把握就大一点：从 {hope_first} 到 {hope_last}。可要是哪天走错了，数会一下子掉到 0。\n\n"
            "我们的例子“{tokens}”，每个词当场得的分是 {rewards}，教练猜的数是 {values}：{changes} 次改口里，{ups} 次往上，{downs} 次往下。",
            "You walk home from school, and a coach beside you keeps guessing how much you will still get from here to the door. Still get: what is already in your pocket does not count, and a reward one step later counts {gamma} of what it would now. That guess is the value.{alone_en}\n\n"
            "One road has a sweet at every corner; over its {count_chosen} corners they add up to 1. When you set out, {dense_first} lies ahead; before the last corner only {dense_last} is left. The sweets get fewer, so the number gets **smaller**.\n\n"
            "Another road has none on the way, 1 at the door, and a toll of {cost} at each corner. When you set out, with all the tolls to come, what lies ahead is worth {costly_first}; before the last corner {costly_last}. The tolls are nearly all paid, so the number gets **larger**.\n\n"
            "It can also grow because you get surer. If you may take a wrong turn anywhere, a wrong turn leaves you with nothing, and at the start it is an even chance, then each right turn makes you a little surer: from {hope_first} to {hope_last}. On the day you do go wrong, it drops to 0 at once.\n\n"
            "In our example, “{tokens}”, the words earn {rewards} on the spot, and the coach's guesses are {values}: of {changes} changes {ups} went up and {downs} down.",
        ),
        (
            "`V(s_t)` 估计的是从 `s_t` 到结束**还没拿到**的奖励（含 `r_t`）。把贝尔曼方程 `V(s_t) = E[r_t + γ·V(s_{t+1})]` 移项：\n\n"
            "    E[γ·V(s_{t+1}) − V(s_t)] = −E[r_t]\n\n"
            "γ = 1 时可以直接读出来：这一步期望拿到正奖励，价值平均下降；期望付出代价，价值平均上升；期望为 0，价值平均不动。\n\n"
            "在本例的 {count_chosen} 个 token 上（γ = {gamma}），四种奖励下精确的 V*：{alone_zh}\n\n"
            "- 末尾 1 分，每个 token 付 {cost}（{cost_from_zh}）：{costly}，**升**，因为要付的越来越少。\n"
            "- 末尾 1 分，每步以 {stay} 的概率不出错（从头算起一半）：没出错的那条路上是 {hope}，**升**；一旦出错就是 0。\n"
            "- 末尾 1 分，稳拿、无代价：{sure}。γ = 1 时是**平**的，γ < 1 时按 γ 的幂升。\n"
            "- 每个 token 得 {piece}：{dense}，**降**，因为剩下的越来越少。\n\n"
            "本例自己的奖励是 {rewards}，从各状态起的实际折扣和是 {to_go}，critic 的估计是 {values}（{changes} 次变化中 {ups} 升 {downs} 降）。\n\n"
            "误区：“越接近结尾价值越高”不是定律：平均而言，成功的回答越走越高，失败的回答沿路掉下去。若对整批平均后 V 仍随 t 上升，原因只能是代价、折扣、critic 前面估得偏低，或者走到后面的已经换了一批（更长的）回答。",
            "`V(s_t)` estimates the reward **still to come** from `s_t` to the end (`r_t` included). Rearrange Bellman's equation `V(s_t) = E[r_t + γ·V(s_{t+1})]`:\n\n"
            "    E[γ·V(s_{t+1}) − V(s_t)] = −E[r_t]\n\n"
            "At γ = 1 it can be read off: where a step is expected to earn, values fall on average; where it is expected to cost, they rise; where it is expected to do neither, they stay, on average.\n\n"
            "On this example's {count_chosen} tokens (γ = {gamma}), V* exactly under four kinds of reward:{alone_en}\n\n"
            "- 1 at the end, each token pays {cost} ({cost_from_en}): {costly}, **rising**, because less is left to pay.\n"
            "- 1 at the end, each step stays right with probability {stay} (an even chance from the start): {hope} on the path that stays right, **rising**; 0 as soon as it goes wrong.\n"
            "- 1 at the end, certain and free: {sure}. **Flat** at γ = 1; with γ < 1 it rises by powers of γ.\n"
            "- {piece} on every token: {dense}, **falling**, because less is left to collect.\n\n"
            "The example's own rewards are {rewards}, what came from each state on adds up to {to_go} (discounted), and the critic says {values} ({ups} up and {downs} down in {changes} changes).\n\n"
            "A pitfall: “the nearer the end, the higher the value” is no law: on average values climb along answers that succeed and drop along those that fail. If V still rises with t in the mean over a batch, the reason can only be costs, discounting, a critic that is too low early on, or that other (longer) responses make up the later slots.",
        ),
        (
            "设 `V = V^π`，γ > 0。由 `V(s_t) = E[r_t|s_t] + γ·E[V(s_{t+1})|s_t]` 得\n\n"
            "    E[V(s_{t+1})|s_t] − V(s_t) = ((1−γ)·V(s_t) − E[r_t|s_t]) / γ\n\n"
            "(a) 平均上升当且仅当 `E[r_t|s_t] < (1−γ)·V(s_t)`；γ = 1 时就是 `E[r_t|s_t] < 0`。\n\n"
            "(b) γ = 1 且中间没有奖励时 `V(s_t) = E[score|s_t]` 是鞅，`E[V(s_{t+1})|s_t] = V(s_t)`：平均既不升也不降。\n\n"
            "(c) 看上去“总在升”是挑了成功的样本。设得分为 0 或 1，以成功为条件，转移概率乘上 `V(s_{t+1})/V(s_t)`（贝叶斯），所以 `E[V(s_{t+1})|s_t, 成功] = E[V(s_{t+1})²|s_t]/V(s_t) ≥ (E[V(s_{t+1})|s_t])²/V(s_t) = V(s_t)`，等号仅当 `V(s_{t+1})` 没有悬念。以失败为条件则反过来。\n\n"
            "(d) 每步 `r ≥ c > 0` 且 γ = 1：`E[V(s_{t+1})|s_t] ≤ V(s_t) − c`，每步至少降 c。γ < 1 时不一定：奖励若越往后越大，`r_t < (1−γ)V(s_t)` 可以成立，价值照样上升。\n\n"
            "数字验证。本例实际和的递推（t = {t}）：{bellman}。“可能走错”一列是 (b)、(c) 的例子：对、错两种下一步取平均，{fair}，正好回到 `V(s_t)`；而对的那条路上它是升的：{hope}。",
            "Let `V = V^π` and γ > 0. From `V(s_t) = E[r_t|s_t] + γ·E[V(s_{t+1})|s_t]`\n\n"
            "    E[V(s_{t+1})|s_t] − V(s_t) = ((1−γ)·V(s_t) − E[r_t|s_t]) / γ\n\n"
            "(a) The mean rises if and only if `E[r_t|s_t] < (1−γ)·V(s_t)`; at γ = 1, if and only if `E[r_t|s_t] < 0`.\n\n"
            "(b) At γ = 1 and without rewards on the way, `V(s_t) = E[score|s_t]` is a martingale, `E[V(s_{t+1})|s_t] = V(s_t)`: on average it neither rises nor falls.\n\n"
            "(c) That it seems to rise always comes from looking at successes. Let the score be 0 or 1. Given success, transition probabilities are multiplied by `V(s_{t+1})/V(s_t)` (Bayes), so `E[V(s_{t+1})|s_t, success] = E[V(s_{t+1})²|s_t]/V(s_t) ≥ (E[V(s_{t+1})|s_t])²/V(s_t) = V(s_t)`, with equality only where `V(s_{t+1})` is certain. Given failure it is the other way round.\n\n"
            "(d) With `r ≥ c > 0` on every step and γ = 1, `E[V(s_{t+1})|s_t] ≤ V(s_t) − c`: down by at least c a step. Not so for γ < 1: if rewards grow along the way, `r_t < (1−γ)V(s_t)` may hold, and values rise all the same.\n\n"
            "In numbers. What came, at t = {t}: {bellman}. The column “may go wrong” is an example of (b) and (c): averaged over the right and the wrong next step, {fair}, which is `V(s_t)` again; along the right one it rises: {hope}.",
        ),
    ),
    formula="E[γ·V(s_{t+1}) − V(s_t)] = −E[r_t]",
    numbers=_shape_numbers,
    table=("rewards", "values"),
    grid=_shape_grid,
    code=(
        "mingce.specs.estimators.monte_carlo",
        "mingce.algorithms.advantage.monte_carlo",
        "mingce.models.value_head.ValueModel.forward",
    ),
    related=("v0_contains_r0", "critic_fits_return", "reward_sparse_dense", "five_quantities"),
)


# ── what the critic is fitted to ─────────────────────────────────────────────────────────────────────────────────────


def target_parts(w: Walk, k: int, lam: float | None = None) -> tuple[float, float]:
    """R of the k-th token as (what rewards give, what the critic's later values give)."""
    rewards_only = w.credit(values=[0.0] * len(w.values), lam=lam, after=0.0).advantages[0][k]
    return plain(rewards_only), plain(w.credit(lam=lam).returns[0][k] - rewards_only)


def _fit_numbers(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    returns = w.credit().returns[0]
    row = [[1] * len(returns)]

    def loss(share: float) -> float:
        moved = [value + share * (target - value) for value, target in zip(w.values, returns, strict=True)]
        terms = [
            reference.value_term(new, target, old, None).loss
            for new, target, old in zip(moved, returns, w.values, strict=True)
        ]
        return reference.agg_loss([terms], row)

    mean, spread_ = reference.masked_mean([returns], row), reference.masked_var([returns], row, unbiased=False)
    reward_part, value_part = target_parts(w, w.place(t))
    v |= {
        "loss_now": plain(loss(0.0)), "loss_half": plain(loss(0.5)), "own_loss": reference.value_term(v["value"], v["return"], v["value"], None).loss,
        "reward_part": reward_part, "value_part": value_part, "half_value": v["value"] + (v["return"] - v["value"]) / 2,
        "mean_return": mean, "var_return": plain(spread_), "gap_mean": plain(v["value"] - mean),
        "square_mean": plain(math.fsum((v["value"] - target) ** 2 for target in returns) / len(returns)),
        "to_go": spread(rollout, w, _to_go(w.rewards, w.gamma, w.after)),
    }  # fmt: skip
    v["target"] = equation("{advantage} + {value} = {return}", v)
    v["gap_square"] = equation("({gap_mean})² + {var_return} = {square_mean}", v)
    return v


_CRITIC_FITS_RETURN = Topic(
    "critic_fits_return",
    ("critic 拟合的是回报", "The critic is fitted to the return"),
    (
        (
            "价值网络的监督信号是什么",
            "critic 的 label 从哪来",
            "vf_loss 是怎么算出来的",
            "为什么 V 要去逼近 R",
            "update_critic 里面到底在回归什么",
            "critic 学的 target 会变吗",
        ),
        (
            "what is the regression target of the value network",
            "where do the critic's labels come from",
            "how is vf_loss computed",
            "why is V trained towards R",
            "is the value head trained with mean squared error",
            "does the critic's target change during the epochs",
        ),
    ),
    (
        (
            "教练在你说每个词之前都猜一个数：从这里到结束还能得多少分。说完以后他翻开本子，在每次的猜测旁边写上“当时应该猜多少”。这个应该猜的数就叫回报。\n\n"
            "轮到“{token}”之前他猜 {value}，应该猜 {return}，差了 {advantage}（正数是猜低了，负数是猜高了）。差得越远，要改的就越多；但他每次只挪一小步，不会因为一场比赛就把看法全推翻。\n\n"
            "“应该猜多少”是怎么来的？一部分是后来真正到手的分（{reward_part}），一部分是他自己后面几次的猜测（{value_part}）。合起来是 {return}。\n\n"
            "很多很多场以后，他在每个地方猜的就是那里平均能得的分。",
            "Before each word the coach guesses how much is still to be earned. When all is said he opens his notebook and writes beside each guess what it should have been. That number is called the return.\n\n"
            "Before “{token}” he guessed {value} and should have said {return}: off by {advantage} (above 0 he guessed too low, below 0 too high). The further off, the more he has to change; but he moves only a little each time and does not throw his views away after a single game.\n\n"
            "Where does “should have said” come from? Partly from points that really came later ({reward_part}), partly from his own later guesses ({value_part}). Together {return}.\n\n"
            "After very many games, what he guesses at each place is what is earned there on average.",
        ),
        (
            "critic 的更新是监督回归：输入 `s_t`，标签 `R_t`，平方损失。\n\n"
            "- 更新前前向一遍得 `values` = {values}。\n"
            "- GAE 得未白化的优势 {advantages}（γ = {gamma}，λ = {lam}）。\n"
            "- `R_t = A_t + V(s_t)`，`returns` = {returns}。t = {t}：{target}。\n"
            "- 对每个被选的 token：`L_t = ½(V'(s_t) − R_t)²`（可带价值裁剪），按 token 取平均。\n\n"
            "第一次更新时 `V' = V`，误差恰好是 `−A_t`，“{token}”这一项是 {own_loss}，{count_chosen} 个 token 平均 {loss_now}。若每个估计都朝目标走一半，平均损失降到 {loss_half}，是原来的四分之一。\n\n"
            "要点：\n\n"
            "- R 是常数：它由**旧**的 V 和奖励算出，不回传梯度；一步之内的几个 epoch 都用同一份 R，不重算。\n"
            "- 必须用未白化的优势：白化后的 A 均值为 0、方差为 1，加回 V 就不再是奖励的尺度。\n"
            "- R 是 λ-回报，不是“实际拿到的分”；后者是 {to_go}，只有 λ = 1 时二者相等。\n"
            "- 只在掩码为 1 处算损失；填充和工具输出不进平均。",
            "The critic's update is supervised regression: input `s_t`, label `R_t`, squared loss.\n\n"
            "- A forward pass before the update gives `values` = {values}.\n"
            "- GAE gives the raw advantages {advantages} (γ = {gamma}, λ = {lam}).\n"
            "- `R_t = A_t + V(s_t)`: `returns` = {returns}. At t = {t}: {target}.\n"
            "- For every chosen token `L_t = ½(V'(s_t) − R_t)²` (a value clip may be added), averaged over tokens.\n\n"
            "On the first update `V' = V`, so the error is just `−A_t`: the term of “{token}” is {own_loss}, the mean over {count_chosen} tokens {loss_now}. If every estimate moves half way to its target, the mean loss falls to {loss_half}, a quarter.\n\n"
            "To know:\n\n"
            "- R is a constant: made of the **old** V and the rewards, no gradient flows into it; all epochs of a step use the same R.\n"
            "- It needs the raw advantages: whitened ones have mean 0 and variance 1, and adding V back does not return to the scale of rewards.\n"
            "- R is the λ-return, not “what was really earned”; that is {to_go}, and the two are equal only at λ = 1.\n"
            "- The loss counts only where the mask is 1; padding and tool output stay out of the mean.",
        ),
        (
            "为什么平方损失学到的是价值。固定 s，对任意数 v：\n\n"
            "    E[(v − R)²|s] = (v − E[R|s])² + Var(R|s)\n\n"
            "（展开 `v − R = (v − E[R|s]) + (E[R|s] − R)`，交叉项期望为 0。）第二项与 v 无关，最小点唯一，`v = E[R|s]`。所以损失降不到 0：剩下的 `½E[Var(R|s)]` 是回报本身的噪声，解释方差因此一般到不了 1。\n\n"
            "为什么 `E[R|s]` 就是 `V^π`。若 V 已经是 `V^π`，`E[δ_{t+l}|s_t] = 0`，于是 `E[R_t|s_t] = V^π(s_t)`：`V^π` 是不动点。若 V 不是，长度有限时从后往前归纳：终止处 `V = 0` 已知；设 t 之后的 V 都对，则 `E[R_t|s_t] = E[r_t + γV^π(s_{t+1})|s_t] = V^π(s_t)`。每完整拟合一轮，至少多对一步；λ = 1 时一轮全对，因为 R 根本不依赖 V（末端的自举除外）。\n\n"
            "用本例的 {count_chosen} 个回报当样本核对分解式：均值 {mean_return}，方差 {var_return}（除以 n）。取 v = {value}：{gap_square}，与直接算的均方 {square_mean} 一致。",
            "Why a squared loss learns the value. Fix s; for any number v\n\n"
            "    E[(v − R)²|s] = (v − E[R|s])² + Var(R|s)\n\n"
            "(write `v − R = (v − E[R|s]) + (E[R|s] − R)`; the mixed term has mean 0). The second term does not depend on v, so the only minimum is `v = E[R|s]`. The loss cannot reach 0: `½E[Var(R|s)]` is noise of the return itself, which is why explained variance stays below 1.\n\n"
            "Why `E[R|s]` is `V^π`. If V is `V^π`, then `E[δ_{t+l}|s_t] = 0` and `E[R_t|s_t] = V^π(s_t)`: a fixed point. If it is not, use the finite length and go back from the end, where `V = 0` is known: if V is right after t, then `E[R_t|s_t] = E[r_t + γV^π(s_{t+1})|s_t] = V^π(s_t)`. Every complete fit gets at least one more step right; at λ = 1 one is enough, since R does not depend on V at all (but for a bootstrap at the end).\n\n"
            "Check the decomposition with this example's {count_chosen} returns as the samples: mean {mean_return}, variance {var_return} (divided by n). For v = {value}: {gap_square}, the same as the mean square computed directly, {square_mean}.",
        ),
    ),
    formula="L_t = ½·(V'(s_t) − R_t)²,   R_t = A_t + V(s_t)",
    numbers=_fit_numbers,
    each="R_{t} = {advantage} + {value} = {return};   ½·({value} − {return})² = {own_loss}",
    table=("values", "advantages", "returns", "value_loss"),
    code=(
        "mingce.algorithms.advantage.gae",
        "mingce.algorithms.losses.compute_value_loss",
        "mingce.roles.critic.Critic.update",
    ),
    related=("critic_td_error", "returns_raw", "value_clipping", "returns_values_index"),
)


# ── the critic and the TD error ──────────────────────────────────────────────────────────────────────────────────────


def _td_numbers(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    k = w.place(t)
    one, all_ = w.credit(lam=0.0).returns[0][k], w.credit(lam=1.0).returns[0][k]
    v |= {"td_target": plain(one), "mc_target": plain(all_), "mc_error": plain(all_ - v["value"])}
    v["td_loss"] = reference.value_term(v["value"], one, v["value"], None).loss
    v["lam_loss"] = reference.value_term(v["value"], v["return"], v["value"], None).loss
    v["one_minus_lam"] = 1 - w.lam
    v["td_equation"] = equation("{reward} + {gamma}·{next_value} = {td_target}", v)
    v["delta_equation"] = equation("{td_target} − {value} = {delta}", v)
    v["recursion"] = equation("{reward} + {gamma}·({one_minus_lam}·{next_value} + {lam}·{next_return}) = {return}", v)
    return v


def _td_grid(rollout: Rollout, t: int) -> Grid:
    w = walk(rollout)
    k = w.place(t)
    rows = []
    for lam in sorted({0.0, 0.5, w.lam, 1.0}):
        credit = w.credit(lam=lam)
        target = credit.returns[0][k]
        error = credit.advantages[0][k]
        rows.append(
            (lam, plain(target), plain(error), reference.value_term(w.values[k], target, w.values[k], None).loss)
        )
    token = token_of(rollout, w.slots[k])
    headings = (
        ("λ", "λ"),
        (f"“{token}”的目标 R_t", f"target R_t of “{token}”"),
        ("R_t − V(s_t) = A_t", "R_t − V(s_t) = A_t"),
        ("½(V − R)²", "½(V − R)²"),
    )
    return Grid(headings, tuple(rows))


_CRITIC_TD_ERROR = Topic(
    "critic_td_error",
    ("critic 与 TD 误差、贝尔曼方程的关系", "The critic, the TD error and Bellman's equation"),
    (
        (
            "PPO 的 critic 用没用到贝尔曼方程",
            "δ 跟 value loss 是什么关系",
            "critic 是在最小化 TD error 吗",
            "TD(λ) 和 critic 的目标",
            "价值函数是用时序差分学的吗",
            "为啥不直接对 δ² 求梯度",
        ),
        (
            "does PPO's critic use Bellman's equation",
            "how is the value loss related to delta",
            "is the critic minimising the TD error",
            "TD lambda target of the critic",
            "is the value function learned by temporal differences",
            "why not take the gradient of delta squared",
        ),
    ),
    (
        (
            "你在猜到外婆家还要开多久。贝尔曼方程说的是一件平常事：**从这里到终点的时间 = 到下一个路口的时间 + 从那里到终点的时间**。如果你的几次猜测不符合这句话，准有一次猜错了。差多少，就是 TD 误差。\n\n"
            "把时间换成分数。说“{token}”之前教练猜 {value}；这一步到手 {reward}，下一处（{then_zh}）他猜 {next_value}。两头对不上，差 {delta}。\n\n"
            "只看下一个路口来改猜测，目标是 {td_target}；一直等到终点再改，目标是 {mc_target}。PPO 一般取中间：后面每个路口的差都算上，越远的折扣越多，目标是 {return}。教练要改的就是 {return} 和 {value} 的差 {advantage}。\n\n"
            "所以：TD 误差是一块块的砖，改猜测的目标是用这些砖砌起来的。",
            "You are guessing how long the drive to grandmother's will still take. Bellman's equation says something ordinary: **from here to the end = from here to the next corner + from there to the end**. If your guesses do not fit that, one of them was wrong. By how much is the TD error.\n\n"
            "Now points instead of minutes. Before “{token}” the coach guessed {value}; this step gave {reward}, and at the next place ({then_en}) he guessed {next_value}. The two sides differ by {delta}.\n\n"
            "Correct the guess by the next corner alone, and the target is {td_target}; wait until the very end, and it is {mc_target}. PPO usually goes between: the differences at all later corners count, the further off the less, and its target is {return}. What the coach has to change is the difference between {return} and {value}: {advantage}.\n\n"
            "So TD errors are the bricks, and the target is built of them.",
        ),
        (
            "有直接关系，但 critic 最小化的不是 `δ²`。顺序是：\n\n"
            "- 用旧的 V 算 `δ_t = r_t + γV(s_{t+1}) − V(s_t)`，即贝尔曼方程的残差：{td_equation}，{delta_equation}。\n"
            "- 用 δ 拼出目标：`R_t = V(s_t) + Σ_l (γλ)^l·δ_{t+l}`（TD(λ) 的 λ-回报）。\n"
            "- 把 R 当常数，最小化 `½(V' − R)²`。\n\n"
            "第一次更新时 `V' = V`，`R_t − V(s_t) = A_t`，梯度是 `−A_t·∇V(s_t)`：推动 critic 的是**优势**，即 TD 误差的加权和，而不只是眼前的 δ。两个极端和本例：\n\n"
            "- λ = 0：目标 {td_target}，误差就是 δ = {delta}，等于经典的 TD(0)；\n"
            "- λ = 1：目标 {mc_target}，误差 {mc_error}，是蒙特卡洛回归，后面的 V 全部抵消；\n"
            "- 本例 λ = {lam}：目标 {return}，误差 {advantage}。\n\n"
            "λ-回报也有自己的递推，t = {t}：{recursion}。与表格型 TD 的不同：不是每走一步改一次，而是整批采完、用同一份 R 做几个 epoch 的回归。\n\n"
            "不要让梯度流过 `V(s_{t+1})`：那会变成残差梯度法，而且把样本的方差也当成误差去减。",
            "Directly related, yet the critic does not minimise `δ²`. In order:\n\n"
            "- With the old V, `δ_t = r_t + γV(s_{t+1}) − V(s_t)`, the residual of Bellman's equation: {td_equation}, {delta_equation}.\n"
            "- The target is built of δ: `R_t = V(s_t) + Σ_l (γλ)^l·δ_{t+l}` (the λ-return of TD(λ)).\n"
            "- With R held constant, minimise `½(V' − R)²`.\n\n"
            "On the first update `V' = V` and `R_t − V(s_t) = A_t`, so the gradient is `−A_t·∇V(s_t)`: what drives the critic is the **advantage**, a weighted sum of TD errors, not the nearest δ alone. The two extremes and this example:\n\n"
            "- λ = 0: target {td_target}, the error is δ = {delta}: classical TD(0);\n"
            "- λ = 1: target {mc_target}, error {mc_error}: Monte Carlo regression, all later V cancel;\n"
            "- here λ = {lam}: target {return}, error {advantage}.\n\n"
            "The λ-return has a recursion of its own; at t = {t}: {recursion}. Unlike tabular TD, nothing changes after each step: a whole batch is drawn, and one set of R serves several epochs of regression.\n\n"
            "Let no gradient flow through `V(s_{t+1})`: that would be the residual-gradient method, which also takes the variance of the samples for an error and shrinks it.",
        ),
        (
            "记算子 `(T^λ V)(s) = E[R_t|s_t = s] = V(s) + E[Σ_l (γλ)^l·δ_{t+l}|s_t = s]`。\n\n"
            "(a) 不动点：`V = V^π` ⇒ 每个 `E[δ|s] = 0` ⇒ `T^λ V^π = V^π`。\n\n"
            "(b) 压缩：把 λ-回报写成 n 步回报的混合，`T^λ = (1−λ)Σ_{n≥1} λ^{n−1}·T^n`，T 是贝尔曼算子，`‖T^n V − T^n U‖ ≤ γ^n·‖V − U‖`（上确界范数），故 `T^λ` 的系数是 `(1−λ)Σ λ^{n−1}γ^n = γ(1−λ)/(1−γλ)`，γ < 1 时小于 1。γ = 1 时长度有限，从末端归纳，有限轮到达 `V^π`。\n\n"
            "(c) PPO 的 critic 一步做的是 `V ← Π·T^λ V` 的近似：Π 是对函数族的最小二乘投影，用若干步梯度近似。所以它受贝尔曼方程约束，只是通过目标，而不是通过损失。\n\n"
            "(d) 为什么不最小化 `E[δ²]`：`E[δ_t²|s_t] = (E[δ_t|s_t])² + Var(r_t + γV(s_{t+1})|s_t)`。第二项依赖 V，梯度会压低下一状态价值的方差；最小点一般不是 `V^π`。要无偏估计第一项的梯度，需要从同一个 s 独立地再抽一个动作。\n\n"
            "(e) 递推：由 `R_t = V_t + δ_t + γλ(R_{t+1} − V_{t+1})`，代入 δ，得 `R_t = r_t + γ[(1−λ)V(s_{t+1}) + λR_{t+1}]`。末端令 `R_T = V(s_T)` = {bootstrap}。本例：{recursion}。",
            "Define the operator `(T^λ V)(s) = E[R_t|s_t = s] = V(s) + E[Σ_l (γλ)^l·δ_{t+l}|s_t = s]`.\n\n"
            "(a) Fixed point: `V = V^π` ⇒ every `E[δ|s] = 0` ⇒ `T^λ V^π = V^π`.\n\n"
            "(b) Contraction: the λ-return mixes n-step returns, `T^λ = (1−λ)Σ_{n≥1} λ^{n−1}·T^n` with Bellman's operator T and `‖T^n V − T^n U‖ ≤ γ^n·‖V − U‖` (sup norm), so `T^λ` contracts by `(1−λ)Σ λ^{n−1}γ^n = γ(1−λ)/(1−γλ)`, less than 1 for γ < 1. At γ = 1 the length is finite, and induction from the end reaches `V^π` in finitely many rounds.\n\n"
            "(c) One step of PPO's critic is an approximate `V ← Π·T^λ V`: Π is the least-squares projection onto what the network can represent, approximated by a few gradient steps. So Bellman's equation does bind it, by the target rather than by the loss.\n\n"
            "(d) Why not minimise `E[δ²]`: `E[δ_t²|s_t] = (E[δ_t|s_t])² + Var(r_t + γV(s_{t+1})|s_t)`. The second term depends on V, and its gradient flattens the values of next states; the minimum is in general not `V^π`. An unbiased gradient of the first term alone would need a second, independent action from the same s.\n\n"
            "(e) Recursion: put δ into `R_t = V_t + δ_t + γλ(R_{t+1} − V_{t+1})` to get `R_t = r_t + γ[(1−λ)V(s_{t+1}) + λR_{t+1}]`, with `R_T = V(s_T)` = {bootstrap} at the end. Here: {recursion}.",
        ),
    ),
    formula="R_t = V(s_t) + Σ_l (γλ)^l·δ_{t+l} = r_t + γ·[(1−λ)·V(s_{t+1}) + λ·R_{t+1}]",
    numbers=_td_numbers,
    each="R_{t} = {reward} + {gamma}·({one_minus_lam}·{next_value} + {lam}·{next_return}) = {return}",
    table=("rewards", "values", "deltas", "returns"),
    grid=_td_grid,
    code=(
        "mingce.algorithms.advantage.td_errors",
        "mingce.algorithms.advantage.gae",
        "mingce.algorithms.losses.compute_value_loss",
    ),
    related=("critic_fits_return", "bootstrap", "a_not_delta", "gamma_lambda"),
)


# ── V(s_0) contains r_0 ──────────────────────────────────────────────────────────────────────────────────────────────


def _contains_numbers(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    own = _to_go(w.rewards, w.gamma, w.after)
    without = [g - r for g, r in zip(own, w.rewards, strict=True)]
    v |= {
        "first_reward": w.rewards[0], "first_value": w.values[0], "first_to_go": plain(own[0]),
        "second_to_go": plain(w.following(own, 0, w.after)), "first_without": plain(without[0]),
        "to_go": spread(rollout, w, own), "without": spread(rollout, w, without),
        "right_deltas": spread(rollout, w, w.credit(values=own).deltas[0]),
        "wrong_deltas": spread(rollout, w, w.credit(values=without).deltas[0]),
        "first_delta": plain(w.credit().deltas[0][0]),
    }  # fmt: skip
    v["sum"] = equation("{first_reward} + {gamma}·{second_to_go} = {first_to_go}", v)
    v["to_go_here"] = plain(own[w.place(t)])
    v["to_go_next"] = plain(w.following(own, w.place(t), w.after))
    v["after_zh"] = f"，外加截断处接上的 {equation('{bootstrap}', v)}" if w.after else ""
    v["after_en"] = f", and {equation('{bootstrap}', v)} for what was cut off" if w.after else ""
    return v


_V0_CONTAINS_R0 = Topic(
    "v0_contains_r0",
    ("V(s_0) 里有没有 r_0", "Does V(s_0) contain r_0?"),
    (
        (
            "第一个词的奖励算不算进第一个价值",
            "价值从当前这步的奖励开始加，还是从下一步开始加",
            "V_t 包含 r_t 吗",
            "求和从 k=t 还是 k=t+1 开始",
            "当前奖励要不要算进当前价值",
        ),
        (
            "is the current reward part of the current value",
            "does V_t include r_t or start at r_{t+1}",
            "where does the sum in the value start",
            "is the first reward inside the first value",
            "value of a state before or after its reward",
        ),
    ),
    (
        (
            "开学第一天，口袋里一分钱没有。妈妈猜你这学期一共能攒多少零花钱。第一天的零花钱算不算在里面？算。她猜的时候第一天的钱还没给，给了才知道。\n\n"
            "说话也一样。说第一个词“{first_token}”之前，教练猜 {first_value}：从“{first_token}”开始，到“{last_token}”为止，每个词当场得的分全加起来。“{first_token}”得的 {first_reward} 还没到手，所以在里面{after_zh}。\n\n"
            "真正到手的呢？“{first_token}”得 {first_reward}，后面的合起来 {second_to_go}（按 {gamma} 折算），总共 {first_to_go}。\n\n"
            "什么时候不算在里面？等“{first_token}”说完，这一笔已经结清，下一次猜的时候就不再算它。",
            "It is the first day of term and your pocket is empty. Your mother guesses how much pocket money you will have saved by the end. Is the first day's money in it? Yes: when she guesses, it has not been paid yet.\n\n"
            "With words it is the same. Before the first word, “{first_token}”, the coach guesses {first_value}: everything earned on the spot by each word from “{first_token}” to “{last_token}”. The {first_reward} that “{first_token}” earns is not in your pocket yet, so it is part of the guess{after_en}.\n\n"
            "And what really came? “{first_token}” earned {first_reward}, the rest {second_to_go} (counted at {gamma}), in all {first_to_go}.\n\n"
            "When is it no longer in? Once “{first_token}” is said, that item is settled, and the next guess leaves it out.",
        ),
        (
            "含。`V(s_t)` 是在选 `a_t` **之前**对 `r_t + γ·r_{t+1} + …` 的期望，求和从 k = t 开始；`r_t` 是在 `s_t` 里选的动作挣来的，属于 `s_t` 的未来。证据是 `δ_t = r_t + γV(s_{t+1}) − V(s_t)`：它把 `V(s_t)` 与 `r_t + γV(s_{t+1})` 相比，两边要量同一样东西，`V(s_t)` 就必须含 `r_t`。\n\n"
            "数字：`r` = {rewards}，T 个 token 的最后一个奖励下标是 T − 1（这里是 {last}）{after_zh}。从第一个 token“{first_token}”之前算起，实际的折扣和是 {sum}；critic 当时估 {first_value}。不含 `r_0` 的话，应与 {first_without} 比。\n\n"
            "如果 V 不含本步奖励会怎样：让 critic 完全正确，含 `r_t` 的约定下 δ = {right_deltas}，处处为 0，没有意外；按“不含”来定义 V 却仍用同一个 δ 公式，δ = {wrong_deltas}，处处正确的 critic 也会被判有误。\n\n"
            "常见的两个误解：\n\n"
            "- “V 含 r_t，所以 `values[t]` 是在第 t 个 token 产生之后算的”。不对：它读自前一个位置，没见过 y_t，只是预期中包含它的奖励。\n"
            "- “教科书里不含”。Sutton 与 Barto 写 `V(s_t) = E[R_{t+1} + γR_{t+2} + …]`，那里的 `R_{t+1}` 就是这里的 `r_t`，只是名字晚一格。",
            "Yes. `V(s_t)` is the expectation, **before** `a_t` is chosen, of `r_t + γ·r_{t+1} + …`: the sum starts at k = t. `r_t` is earned by the action taken in `s_t`, so it lies in the future of `s_t`. The evidence is `δ_t = r_t + γV(s_{t+1}) − V(s_t)`: it compares `V(s_t)` with `r_t + γV(s_{t+1})`; both sides must measure the same thing, so `V(s_t)` has to contain `r_t`.\n\n"
            "In numbers: `r` = {rewards}; with T tokens the last reward has index T − 1, here {last}{after_en}. Counted from before the first token “{first_token}”, the discounted sum that came is {sum}; the critic had said {first_value}. Without `r_0` it would have to be held against {first_without}.\n\n"
            "What if V left this step's reward out? Let the critic be perfectly right. With `r_t` inside, δ = {right_deltas}: 0 everywhere, no surprise. With V defined “without” and the same formula for δ, δ = {wrong_deltas}: a critic that is right everywhere would be found wrong.\n\n"
            "Two common misreadings:\n\n"
            "- “V contains r_t, so `values[t]` is computed after token t was produced.” No: it is read one position earlier and has not seen y_t; only its reward is part of the expectation.\n"
            "- “The textbook leaves it out.” Sutton and Barto write `V(s_t) = E[R_{t+1} + γR_{t+2} + …]`; their `R_{t+1}` is the `r_t` here under a name one later.",
        ),
        (
            "定义 `V^π(s_t) = E[Σ_{k≥t} γ^{k−t}·r_k | s_t]`。把 k = t 一项拿出来，用全期望公式：\n\n"
            "    V^π(s_t) = E[r_t | s_t] + γ·E[V^π(s_{t+1}) | s_t]\n\n"
            "故 `E[δ_t|s_t] = 0`，这是“δ 是意外”的含义。\n\n"
            "反过来，设 `W(s_t) = V^π(s_t) − E[r_t|s_t]`（不含本步）。若仍用 `δ^W_t = r_t + γW(s_{t+1}) − W(s_t)`，代入得\n\n"
            "    E[δ^W_t | s_t] = E[r_t | s_t] − γ·E[r_{t+1} | s_t]\n\n"
            "（终止后 r = 0）。除非折扣后的奖励恰好逐步相等，它不为 0：W 完全正确，δ 却有系统的偏差，优势也随之有偏。W 自洽的误差是 `γ(r_{t+1} + W(s_{t+1})) − W(s_t)`，`r_t` 要从式子里去掉；两种约定都可以，混用不行。\n\n"
            "本例验证：取每个状态实际的折扣和 {to_go} 作 V，δ = {right_deltas}；取去掉本步奖励的 {without} 作 W，`δ^W_t = r_t − γ·r_{t+1}` = {wrong_deltas}。",
            "Define `V^π(s_t) = E[Σ_{k≥t} γ^{k−t}·r_k | s_t]`. Take the term k = t out and use the tower rule:\n\n"
            "    V^π(s_t) = E[r_t | s_t] + γ·E[V^π(s_{t+1}) | s_t]\n\n"
            "Hence `E[δ_t|s_t] = 0`, which is what it means that δ is a surprise.\n\n"
            "Now let `W(s_t) = V^π(s_t) − E[r_t|s_t]`, this step left out, and keep `δ^W_t = r_t + γW(s_{t+1}) − W(s_t)`. Then\n\n"
            "    E[δ^W_t | s_t] = E[r_t | s_t] − γ·E[r_{t+1} | s_t]\n\n"
            "(with r = 0 after the end). Unless discounted rewards happen to be equal from step to step this is not 0: W is exactly right, and δ is off systematically, and the advantages with it. The error consistent with W is `γ(r_{t+1} + W(s_{t+1})) − W(s_t)`, without `r_t`; either convention works, a mixture does not.\n\n"
            "Check here: with the discounted sums that came, {to_go}, as V, δ = {right_deltas}; with this step's reward taken out, {without}, as W, `δ^W_t = r_t − γ·r_{t+1}` = {wrong_deltas}.",
        ),
    ),
    formula="V(s_0) = E[r_0 + γ·r_1 + … + γ^{T−1}·r_{T−1}]",
    numbers=_contains_numbers,
    each="G_{t} = {reward} + {gamma}·{to_go_next} = {to_go_here}",
    table=("rewards", "values"),
    code=("mingce.algorithms.advantage.td_errors", "mingce.models.value_head.ValueModel.forward"),
    related=("move_before_after", "state_action_index", "values_shape", "reward_of_transition"),
)


# ── what an advantage is made of ─────────────────────────────────────────────────────────────────────────────────────


def _input_numbers(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    k = w.place(t)
    reward_part = w.credit(values=[0.0] * len(w.values), after=0.0).advantages[0][k]
    v |= {"reward_part": plain(reward_part), "value_part": plain(w.credit().advantages[0][k] - reward_part)}
    one, all_ = w.credit(lam=0.0).advantages[0][k], w.credit(lam=1.0).advantages[0][k]
    v |= {"one_step": plain(one), "all_steps": plain(all_)}
    v["surprise"] = equation("{reward} + {gamma}·{next_value} − {value} = {delta}", v)
    v["recursion"] = equation("{delta} + {gamma_lam}·{next_advantage} = {advantage}", v)
    v["parts"] = equation("{reward_part} + {value_part} = {advantage}", v)
    return v


def weights_in_advantage(w: Walk, k: int) -> list[tuple[float, float]]:
    """What r and V of every token from the k-th on count in A of the k-th."""
    decay = w.gamma * w.lam
    later = [(decay**j, w.gamma * (1 - w.lam) * decay ** (j - 1)) for j in range(1, len(w.slots) - k)]
    return [(1.0, -1.0), *later]


def _input_grid(rollout: Rollout, t: int) -> Grid:
    w = walk(rollout)
    k = w.place(t)
    weights = weights_in_advantage(w, k)

    def row(j: int) -> tuple[Any, ...]:
        reward, value, (of_reward, of_value) = w.rewards[k + j], w.values[k + j], weights[j]
        both = plain(of_reward * reward + of_value * value)
        return (token_of(rollout, w.slots[k + j]), reward, of_reward, value, of_value, both)

    rows = list(rows_of(len(weights), row))
    if w.after:
        weight = w.gamma * (w.gamma * w.lam) ** (len(w.slots) - 1 - k)
        rows.append(("V(s_T)", "", "", w.after, weight, weight * w.after))
    rows.append(("Σ", "", "", "", "", plain(w.credit().advantages[0][k])))
    slot = w.slots[k]
    headings = (
        ("token", "token"),
        ("r", "r"),
        (f"r 在 A_{slot} 中的系数", f"weight of r in A_{slot}"),
        ("V（token 之前）", "V (before the token)"),
        (f"V 在 A_{slot} 中的系数", f"weight of V in A_{slot}"),
        ("两项之和", "both together"),
    )
    return Grid(headings, tuple(rows))


_ADVANTAGE_INPUTS = Topic(
    "advantage_inputs",
    ("有奖励和价值就能算优势吗", "Are rewards and values enough for the advantage?"),
    (
        (
            "算优势函数需要哪些输入",
            "除了 reward 和 value 还要什么",
            "gae 函数的参数各是干啥的",
            "优势的计算跟 log prob 有关吗",
            "为什么 r 和 V 两条序列就够了",
            "mask 在 GAE 里起什么作用",
        ),
        (
            "what inputs does the advantage computation need",
            "do I need anything besides rewards and values",
            "what are the arguments of the gae function",
            "do log-probs enter the advantage",
            "why are two sequences sufficient",
            "what is the mask for in GAE",
        ),
    ),
    (
        (
            "教练想知道“{token}”说得好不好。他只要三张纸条：说之前他猜的 {value}，当场得的 {reward}，说之后（{then_zh}）他猜的 {next_value}。\n\n"
            "说之后的加上当场得的，减去说之前的，就是这一步的意外：{delta}（往后的估计按 {gamma} 折算）。奖励和猜测，两样东西就够了。\n\n"
            "不过“{token}”可能还帮了后面的忙，所以再把下一个词的功劳 {next_advantage} 乘上 {gamma_lam} 加进来，得到 {advantage}。\n\n"
            "除了这两串数，他还要定两个旋钮（往后看多远、多相信自己的猜测），还要知道哪些词是你说的、话说完没有。至于你当时说这个词有多大把握，算功劳时用不着。",
            "The coach wants to know whether “{token}” was well said. Three notes are enough: his guess before it, {value}; what it earned on the spot, {reward}; his guess after it ({then_en}), {next_value}.\n\n"
            "The guess after, plus what was earned, minus the guess before, is the surprise of this step: {delta} (later guesses are counted at {gamma}). Rewards and guesses: nothing else.\n\n"
            "“{token}” may also have helped what came later, so the credit of the next word, {next_advantage}, is added, times {gamma_lam}. That makes {advantage}.\n\n"
            "Besides the two rows of numbers he sets two knobs (how far to look ahead, how much to trust his own guesses), and must know which words were yours and whether you were done. How sure you were when you said the word is not needed for the credit.",
        ),
        (
            "基本对：逐 token 的输入只有 `rewards` 和 `values` 两列，另加\n\n"
            "- 两个标量 γ = {gamma}、λ = {lam}；\n"
            "- `response_mask`：哪些 token 是策略选的，递推跳过其余的；\n"
            "- 末端的价值 `V(s_T)`：{end_zh}。\n\n"
            "为什么够：`A = Q − V`，而 `Q(s_t, a_t) = E[r_t + γV(s_{t+1})]`（贝尔曼方程）。V 既给出基线，又给出“这一步之后还剩多少”，所以 r 与 V 合起来就能估 Q。t = {t}：\n\n"
            "    δ = {surprise}\n"
            "    A = {recursion}\n\n"
            "A 对 r 和 V 都是线性的。t = {t} 的 A 里，奖励贡献 {reward_part}，价值贡献 {value_part}：{parts}；每个 r、每个 V 的系数见表。\n\n"
            "哪些**不**直接进来：`old_log_probs`、`ref_log_probs` 只通过 KL 进入奖励；比值与裁剪在损失里；白化是之后单独的一步，需要整批的均值和方差。GRPO、RLOO 不用 V，但要同组其他回答的总分。\n\n"
            "掩码为什么算输入：有的实现不让掩码参与递推，而要求事先把 EOS 之后的 r、V 清零。那不是不需要它，只是把它挪到了前面；清零错一格，结果就错。",
            "Nearly: the only per-token inputs are the two columns `rewards` and `values`, and besides\n\n"
            "- two scalars, γ = {gamma} and λ = {lam};\n"
            "- `response_mask`: which tokens the policy chose; the recursion steps over the others;\n"
            "- the value at the end, `V(s_T)`: {end_en}.\n\n"
            "Why it is enough: `A = Q − V`, and `Q(s_t, a_t) = E[r_t + γV(s_{t+1})]` (Bellman). V is both the baseline and “how much is left after this step”, so r and V together estimate Q. At t = {t}:\n\n"
            "    δ = {surprise}\n"
            "    A = {recursion}\n\n"
            "A is linear in r and in V. In A at t = {t} the rewards contribute {reward_part} and the values {value_part}: {parts}; the weight of each r and each V is in the table.\n\n"
            "What does **not** enter directly: `old_log_probs` and `ref_log_probs` only by the KL inside the rewards; ratio and clip belong to the loss; whitening is a later step of its own and needs the whole batch's mean and variance. GRPO and RLOO use no V, but need the totals of the group's other answers.\n\n"
            "Why the mask is an input: some implementations keep it out of the recursion and require r and V to be zeroed after EOS beforehand. It is not that they do not need it; they have moved it, and zeroing one slot too few gives wrong numbers.",
        ),
        (
            "展开 `A_t = Σ_{l≥0} (γλ)^l·[r_{t+l} + γV(s_{t+l+1}) − V(s_{t+l})]`，按 r、V 归并：\n\n"
            "    A_t = −V(s_t) + Σ_{l≥0} (γλ)^l·r_{t+l} + γ(1−λ)·Σ_{l≥1} (γλ)^{l−1}·V(s_{t+l})\n\n"
            "（`V(s_{t+l})`，l ≥ 1：从 `δ_{t+l−1}` 得 `γ·(γλ)^{l−1}`，从 `δ_{t+l}` 得 `−(γλ)^l`，相加为 `γ(1−λ)(γλ)^{l−1}`；末端的 `V(s_T)` 没有第二项，系数是 `γ(γλ)^{T−t−1}`。）所以 A_t 是 r 与 V 的线性函数，系数只含 γ、λ 和次序，log π 不在其中。\n\n"
            "充分性。设 `V = V^π`：`E[A_t|s_t, a_t] = E[δ_t|s_t, a_t] = Q^π(s_t, a_t) − V^π(s_t)`，对任意 λ 无偏。\n\n"
            "必要性。λ = 1 时中间的 V 系数为 0，只剩 `−V(s_t)`：作为基线，去掉它仍无偏（`E[b(s)∇log π] = 0`），只是方差大。λ < 1 时 V 真正代替了一部分未来的奖励，去掉它就不再估计优势。奖励则不可少：r = 0 时任何 V 都不能告诉我们结果的好坏，一切只剩 critic 的意见。\n\n"
            "本例 t = {t}：{parts}；λ = 0 给 {one_step}，λ = 1 给 {all_steps}，λ = {lam} 给 {advantage}。",
            "Write out `A_t = Σ_{l≥0} (γλ)^l·[r_{t+l} + γV(s_{t+l+1}) − V(s_{t+l})]` and collect r and V:\n\n"
            "    A_t = −V(s_t) + Σ_{l≥0} (γλ)^l·r_{t+l} + γ(1−λ)·Σ_{l≥1} (γλ)^{l−1}·V(s_{t+l})\n\n"
            "(`V(s_{t+l})` for l ≥ 1 has `γ·(γλ)^{l−1}` from `δ_{t+l−1}` and `−(γλ)^l` from `δ_{t+l}`, together `γ(1−λ)(γλ)^{l−1}`; the last one, `V(s_T)`, lacks the second part and has `γ(γλ)^{T−t−1}`.) So A_t is linear in r and V, with weights made of γ, λ and the order only; log π does not occur.\n\n"
            "Sufficient: with `V = V^π`, `E[A_t|s_t, a_t] = E[δ_t|s_t, a_t] = Q^π(s_t, a_t) − V^π(s_t)`, unbiased for every λ.\n\n"
            "Necessary: at λ = 1 the weights of all later V are 0 and only `−V(s_t)` is left; it is a baseline, and without it the estimate stays unbiased (`E[b(s)∇log π] = 0`) with more variance. For λ < 1 V stands in for part of the future rewards; without it this is no estimate of the advantage. Rewards are indispensable: with r = 0 no V can tell good from bad, and all that is left is the critic's opinion.\n\n"
            "Here at t = {t}: {parts}; λ = 0 gives {one_step}, λ = 1 gives {all_steps}, λ = {lam} gives {advantage}.",
        ),
    ),
    formula="A_t = −V(s_t) + Σ_l (γλ)^l·r_{t+l} + γ(1−λ)·Σ_{l≥1} (γλ)^{l−1}·V(s_{t+l})",
    numbers=_input_numbers,
    each="A_{t} = {delta} + {gamma_lam}·{next_advantage} = {advantage}",
    table=("rewards", "values", "deltas", "advantages"),
    grid=_input_grid,
    code=("mingce.algorithms.advantage.gae", "mingce.algorithms.advantage.td_errors", "mingce.credit.assign_credit"),
    related=("a_not_delta", "masks_eos", "gamma_lambda", "advantage_from_returns"),
)


# ── value clipping ───────────────────────────────────────────────────────────────────────────────────────────────────


def _reach(rollout: Rollout) -> float:
    found = rollout["settings"].get("value_clip")
    return _CLIP if found is None else float(found)


def _clip_numbers(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    reach, off = _reach(rollout), rollout["settings"].get("value_clip") is None
    k = w.place(t)
    advantages = w.credit().advantages[0]
    ahead = 1.0 if advantages[k] >= 0 else -1.0
    beyond, target = v["value"] + ahead * 2 * reach, v["return"]
    slot = int(v["t"])
    recorded = rollout["columns"].get("new_values")
    new = v["value"] if recorded is None or recorded[slot] is None else float(recorded[slot])
    term, at_target = (
        reference.value_term(new, target, v["value"], reach),
        reference.value_term(target, target, v["value"], reach),
    )
    v |= {
        "reach": reach, "low": v["value"] - reach, "high": v["value"] + reach, "edge": v["value"] + ahead * reach,
        "new_value": new, "near": min(max(new, v["value"] - reach), v["value"] + reach), "term": term.loss,
        "far": sum(abs(a) > reach for a in advantages), "target_loss": plain(at_target.loss),
        "target_gap": plain(abs(v["return"] - v["value"])), "beyond": beyond,
        "beyond_loss": reference.value_term(beyond, target, v["value"], reach).loss,
        "plain_square": plain((new - target) ** 2),
    }  # fmt: skip
    v["near_square"] = plain((v["near"] - target) ** 2)
    v["off_zh"] = "（本例没有开价值裁剪，姑且按这个数演示）" if off else ""
    v["off_en"] = " (the value clip is off here; this number is taken to show it)" if off else ""
    within = v["target_gap"] <= reach
    v["reached_zh"] = (
        f"目标就在范围之内，V' 走到目标时损失为 {equation('{target_loss}', v)}，裁剪不碍事"
        if within else f"目标在范围之外，V' 即使走到目标，损失仍是 {equation('{target_loss}', v)}，而且没有梯度"
    )  # fmt: skip
    v["reached_en"] = (
        f"the target lies within reach: with V' on the target the loss is {equation('{target_loss}', v)}, and the clip is not in the way"
        if within else f"the target is out of reach: even with V' on the target the loss is {equation('{target_loss}', v)}, without a gradient"
    )  # fmt: skip
    v["kept_zh"] = "他可以一次改到位" if within else "他这一轮改不到位，只能停在边上，下一轮再改"
    v["kept_en"] = (
        "he can get there in one go"
        if within
        else "he cannot get there this time; he stops at the edge and goes on next time"
    )
    return v


def _clip_grid(rollout: Rollout, t: int) -> Grid:
    w = walk(rollout)
    k = w.place(t)
    reach, value = _reach(rollout), w.values[k]
    target, advantage = w.credit().returns[0][k], w.credit().advantages[0][k]
    ahead = 1.0 if advantage >= 0 else -1.0
    sign, other = ("+", "−") if ahead > 0 else ("−", "+")
    places = (
        ("V", value),
        ("V + A/2", value + advantage / 2),
        (f"V {sign} ε_V", value + ahead * reach),
        ("R", target),
        (f"V {sign} 2ε_V", value + ahead * 2 * reach),
        (f"V {other} 2ε_V", value - ahead * 2 * reach),
    )
    rows = []
    for name, new in places:
        near = min(max(new, value - reach), value + reach)
        term = reference.value_term(new, target, value, reach)
        rows.append(
            (
                name,
                new,
                plain((new - target) ** 2),
                plain((near - target) ** 2),
                plain(term.loss),
                int(term.clipped),
                0.0 if term.clipped else plain(new - target),
            )
        )
    headings = (
        ("V' 走到", "V' has moved to"),
        ("V'", "V'"),
        ("(V' − R)²", "(V' − R)²"),
        ("(clip(V') − R)²", "(clip(V') − R)²"),
        ("损失", "loss"),
        ("被裁剪", "clipped"),
        ("对 V' 的导数", "derivative by V'"),
    )
    return Grid(headings, tuple(rows))


_VALUE_CLIPPING = Topic(
    "value_clipping",
    ("价值裁剪", "Value clipping"),
    (
        (
            "cliprange_value 有什么用",
            "vf_clipfrac 是啥意思",
            "价值损失为什么取 max",
            "value clip 要不要关掉",
            "critic 一次最多改多少",
            "价值裁剪和策略裁剪一样吗",
        ),
        (
            "what does cliprange_value do",
            "what is vf_clipfrac",
            "why the max in the value loss",
            "should I turn value clipping off",
            "how far may the critic move in one update",
            "is value clipping like the policy's clip",
        ),
    ),
    (
        (
            "教练要改自己的猜测，可是校长给他拴了一根绳子：一轮里最多挪 {reach}{off_zh}。\n\n"
            "轮到“{token}”之前他原来猜 {value}，应该猜 {return}，相差 {target_gap}。绳子只让他在 {low} 到 {high} 之间活动，所以{kept_zh}。\n\n"
            "这根绳子有个特点：朝着目标走出了绳长，就不再催他；背着目标走，照样把他往回拉。{count_chosen} 个词里，有 {far} 个的目标在绳子够不到的地方。\n\n"
            "为什么要拴？怕他看了一场球就把看法全变了。为什么有人不拴？因为绳子的长短要和分数的大小相配，配不好就成了累赘。",
            "The coach corrects his guesses, but the headmaster keeps him on a lead: {reach} at most in one round{off_en}.\n\n"
            "Before “{token}” he had guessed {value} and should say {return}, {target_gap} away. The lead lets him move between {low} and {high}, so {kept_en}.\n\n"
            "It is a peculiar lead: once he has gone its full length towards the target he is no longer urged on; gone the other way, he is pulled back as ever. The targets of {far} of the {count_chosen} words are out of its reach.\n\n"
            "Why a lead? So that one game does not change all his views. Why do some do without? Because its length has to suit the size of the scores, and one that does not is a burden.",
        ),
        (
            "    L_t = ½·max((V' − R)², (clip(V', V − ε_V, V + ε_V) − R)²)\n\n"
            "V 是更新前的估计，V' 是更新中的，ε_V = {reach}{off_zh}。t = {t}：V = {value}，R = {return}，可动范围 [{low}, {high}]。现在 V' = {new_value}，裁剪后 {near}；两个平方误差 {plain_square} 与 {near_square}，损失取较大者的一半：{term}。\n\n"
            "它只在一种情况下起作用：V' 已经越出范围，**并且**比边界离 R 更近。这时取到的是裁剪项，是常数，该 token 没有梯度：对的方向走够了就停。走错方向而越界时，未裁剪的误差更大，梯度照常把它拉回。第一次更新 V' = V，两项相等，从不裁剪。\n\n"
            "“{token}”的 |R − V| = {target_gap}，{reached_zh}。全行 {count_chosen} 个 token 中有 {far} 个的目标在范围之外。`critic/vf_clipfrac` 是 `value_clipped` 的平均。\n\n"
            "要不要用：它来自 OpenAI baselines 的 PPO2，不在 PPO 论文的公式里；后来的大规模对比（Andrychowicz 等，What Matters in On-Policy RL）没有发现它有好处，反而往往更差。ε_V 以奖励为单位：奖励放大，它就相对变紧。若 vf_clipfrac 长期偏高而解释方差上不去，先放宽或关掉（`critic.value_clip=null`）。它也不是信赖域：参数共享，一个 token 没有梯度，不等于它的 V 不动。",
            "    L_t = ½·max((V' − R)², (clip(V', V − ε_V, V + ε_V) − R)²)\n\n"
            "V is the estimate before the update, V' the one being updated, ε_V = {reach}{off_en}. At t = {t}: V = {value}, R = {return}, the range is [{low}, {high}]. Now V' = {new_value}, clipped {near}; the squared errors are {plain_square} and {near_square}, and the loss is half the larger: {term}.\n\n"
            "It acts in one case only: V' has left the range **and** is nearer to R than the edge is. Then the clipped term is taken, a constant, and the token has no gradient: far enough in the right direction, so stop. Gone out of the range the wrong way, the plain error is the larger, and its gradient pulls back as ever. On the first update V' = V, both terms are equal, and nothing is clipped.\n\n"
            "“{token}” has |R − V| = {target_gap}; {reached_en}. Targets outside their range: {far} of the row's {count_chosen} tokens. `critic/vf_clipfrac` is the mean of `value_clipped`.\n\n"
            "Use it? It comes from PPO2 in OpenAI's baselines and is not in the PPO paper's formula; a later large comparison (Andrychowicz et al., What Matters in On-Policy RL) found no benefit and often worse results. ε_V is in units of reward: scale the rewards up and it gets tighter. If vf_clipfrac stays high while explained variance does not improve, widen it or turn it off (`critic.value_clip=null`). Nor is it a trust region: parameters are shared, so a token without a gradient may still see its V move.",
        ),
        (
            "记 `c(V') = clip(V', V − ε, V + ε)`，`L = ½·max((V' − R)², (c(V') − R)²)`。\n\n"
            "(a) V' 在范围内：`c(V') = V'`，`L = ½(V' − R)²`，导数 `V' − R`。\n\n"
            "(b) V' 在范围外，边界为 b：若 `|V' − R| ≥ |b − R|`，取未裁剪项，导数 `V' − R`；若 `|V' − R| < |b − R|`，`L = ½(b − R)²` 是常数，导数 0。后者说明 V' 比边界 b 更接近 R：它是朝着 R 走出范围的。\n\n"
            "(c) 上界：恒有 `L ≥ ½(V' − R)²`，等号当且仅当裁剪不起作用。它与策略损失的 `−min(·)` 同构：两者都是把“走出范围还能得到的好处”抹掉的悲观估计。\n\n"
            "(d) 最小值：`|R − V| ≤ ε` 时 `min L = 0`，在 V' = R 处取到；`|R − V| > ε` 时 `min L = ½(|R − V| − ε)²`，从边界 b 起越过 R、直到 b 关于 R 的对称点都是平的，再往外才上升。所以一步之内的拟合误差有下限。\n\n"
            "(e) 它不保证 `|V' − V| ≤ ε`：越界后只是没有推力，别的 token 的梯度、动量都还能推动它。\n\n"
            "本例：|R − V| = {target_gap}，ε = {reach}，{reached_zh}。朝目标走出两倍 ε，到 V' = {beyond}，损失是 {beyond_loss}。",
            "Let `c(V') = clip(V', V − ε, V + ε)` and `L = ½·max((V' − R)², (c(V') − R)²)`.\n\n"
            "(a) V' within the range: `c(V') = V'`, `L = ½(V' − R)²`, derivative `V' − R`.\n\n"
            "(b) V' outside, beyond the edge b: if `|V' − R| ≥ |b − R|` the plain term is taken, derivative `V' − R`; if `|V' − R| < |b − R|`, `L = ½(b − R)²` is constant, derivative 0. The latter means that V' is nearer to R than b is: it has left the range towards R.\n\n"
            "(c) Upper bound: always `L ≥ ½(V' − R)²`, with equality exactly where the clip does not act. It mirrors the policy loss's `−min(·)`: both are pessimistic, taking away what could be gained outside the range.\n\n"
            "(d) Minimum: for `|R − V| ≤ ε`, `min L = 0` at V' = R; for `|R − V| > ε`, `min L = ½(|R − V| − ε)²`, flat from the edge b on past R to b's mirror image, and rising only beyond it. So within a step the fit has a floor.\n\n"
            "(e) It does not ensure `|V' − V| ≤ ε`: outside there is merely no push; other tokens' gradients and momentum can still move it.\n\n"
            "Here |R − V| = {target_gap} and ε = {reach}: {reached_en}. Two ε towards the target, at V' = {beyond}, the loss is {beyond_loss}.",
        ),
    ),
    formula="L_t = ½·max((V'(s_t) − R_t)², (clip(V'(s_t), V(s_t) ± ε_V) − R_t)²)",
    numbers=_clip_numbers,
    each="L_{t} = ½·max(({new_value} − {return})², ({near} − {return})²) = {term}",
    table=("values", "returns", "new_values", "value_loss"),
    grid=_clip_grid,
    code=("mingce.algorithms.losses.compute_value_loss", "mingce.roles.critic.Critic.loss"),
    related=("critic_fits_return", "ppo_clip", "critic_td_error", "returns_raw"),
)

TOPICS = (
    _VALUES_SHAPE,
    _CRITIC_FITS_RETURN,
    _CRITIC_TD_ERROR,
    _V0_CONTAINS_R0,
    _ADVANTAGE_INPUTS,
    _VALUE_CLIPPING,
)
