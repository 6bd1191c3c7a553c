"""Topics of bootstrapping: a target that is partly the critic's own estimate, and how far such an estimate reaches."""

from __future__ import annotations

import math
from typing import Any

from mingce.algorithms import reference
from mingce.explain.account import shown
from mingce.explain.example import Rollout
from mingce.explain.topic import Grid, Topic, Values, listed
from mingce.explain.topics.chosen import equation, plain, rows_of, token_of
from mingce.explain.topics.critic import target_parts, weights_in_advantage
from mingce.explain.topics.states import Walk, step, walk

_STEPS_SHOWN = 6

# ── bootstrap ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _n_step_targets(w: Walk, k: int) -> list[tuple[float, float]]:
    """(rewards, guess) of the n-step target of the k-th token for n = 1 … as far as there are tokens."""
    found, total, discount = [], 0.0, 1.0
    for j in range(k, len(w.slots)):
        total += discount * w.rewards[j]
        discount *= w.gamma
        found.append((plain(total), plain(discount * w.following(w.values, j, w.after))))
    return found


def _mixture_weights(lam: float, count: int) -> list[float]:
    return [(1 - lam) * lam**n for n in range(count - 1)] + [lam ** (count - 1)]


def _bootstrap_numbers(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    k = w.place(t)
    targets = _n_step_targets(w, k)
    reward_part, value_part = target_parts(w, k)
    weights = _mixture_weights(w.lam, len(targets))
    v |= {
        "td_target": plain(w.credit(lam=0.0).returns[0][k]), "mc_target": plain(w.credit(lam=1.0).returns[0][k]),
        "guess": plain(w.gamma * v["next_value"]), "reward_part": reward_part, "value_part": value_part,
        "mixture": plain(math.fsum(x * sum(target) for x, target in zip(weights, targets, strict=True))),
        "targets": listed([plain(sum(target)) for target in targets]), "weights": listed([plain(x) for x in weights]),
        "count_targets": len(targets),
    }  # fmt: skip
    v["td_equation"] = equation("{reward} + {gamma}·{next_value} = {td_target}", v)
    v["parts"] = equation("{reward_part} + {value_part} = {return}", v)
    v["mc_note_zh"] = "（其中末端接上了截断处的估计）" if w.after else ""
    v["mc_note_en"] = " (with the estimate at the cut put on at the end)" if w.after else ""
    return v


def _bootstrap_grid(rollout: Rollout, t: int) -> Grid:
    w = walk(rollout)
    k = w.place(t)
    targets = _n_step_targets(w, k)
    weights = _mixture_weights(w.lam, len(targets))
    rows: list[tuple[Any, ...]] = [
        (n + 1, rewards, guess, plain(rewards + guess), plain(weight))
        for n, ((rewards, guess), weight) in enumerate(zip(targets, weights, strict=True))
    ]
    if len(rows) > _STEPS_SHOWN + 1:
        rows = [*rows[:_STEPS_SHOWN], ("…",) * 5, rows[-1]]
    headings = (
        ("n", "n"),
        ("n 个真实奖励之和", "n rewards that came"),
        ("自举：γⁿ·V(s_{t+n})", "bootstrap: γⁿ·V(s_{t+n})"),
        ("n 步目标", "n-step target"),
        ("在 R_t 中的权重", "weight in R_t"),
    )
    return Grid(headings, (*rows, ("Σ", "", "", plain(w.credit().returns[0][k]), plain(math.fsum(weights)))))


_BOOTSTRAP = Topic(
    "bootstrap",
    ("自举（bootstrap）是什么意思", "What bootstrap means"),
    (
        (
            "自举到底指啥",
            "bootstrapping 为什么翻译成自举",
            "bootstrap 跟自己启动有关系吗",
            "用估计去更新估计是怎么回事",
            "强化学习的 bootstrap 和统计里的重采样一样吗",
            "TD 目标里哪一项是自举",
        ),
        (
            "what is bootstrapping in reinforcement learning",
            "why is it called bootstrap",
            "is RL bootstrap the same as the statistical bootstrap",
            "updating a guess from a guess",
            "does bootstrap mean starting by itself",
            "which term of the TD target is the bootstrap",
        ),
    ),
    (
        (
            "全家出门旅行，才走到半路，你就想知道这趟一共要花多少钱。一种办法是等回到家，把所有小票加起来；另一种办法是把手里的小票加起来，没花的部分用自己的估计补上。第二种就叫**自举**。\n\n"
            "把钱换成分数。说“{token}”这一步，手里的小票是 {reward}；{rest_zh}还不知道，用教练的估计 {next_value} 补上（按 {gamma} 折算），合起来是 {td_target}。等真正走到头再加，是 {mc_target}。\n\n"
            "好处是不用等到最后，也不会被后面一次碰巧的大花费带得忽高忽低。坏处也明白：估计不准，补上的就不准。PPO 两样都用一点，得到 {return}。\n\n"
            "名字的来历：英文有句俗话，“拎着自己的鞋带把自己提起来”，说的是靠自己、不靠别人。这里就是用自己的猜测去改自己的猜测。电脑开机也用了这句俗话，但那是另一回事：这里没有什么东西在自己启动。",
            "The family is on a trip, half way, and you want to know what it will cost in all. One way is to wait until you are home and add up all the receipts. The other is to add up the receipts you have and put in your own estimate for what is not spent yet. That second way is **bootstrapping**.\n\n"
            "Points instead of money. For the step “{token}” the receipt in hand says {reward}; {rest_en} is not known yet, so the coach's estimate {next_value} stands in for it (counted at {gamma}), together {td_target}. Added up at the very end it is {mc_target}.\n\n"
            "The good side: no waiting, and one odd expense later on does not throw you about. The bad side is plain too: if the estimate is wrong, so is what it stands for. PPO uses some of both and gets {return}.\n\n"
            "The name: to pull yourself up by your own bootstraps means to manage without help from others. Here a guess is improved with the help of one's own guesses. Starting a computer borrowed the same saying, but that is another matter: nothing here starts by itself.",
        ),
        (
            "自举：目标里本该是“未来真实的奖励”的那一部分，换成了 critic 自己的估计。凡是目标里出现 V（除了被减去的基线 `V(s_t)`），就是自举：\n\n"
            "- 蒙特卡洛：`r_t + γr_{t+1} + …`，不自举：{mc_target}{mc_note_zh}；\n"
            "- 一步：`r_t + γV(s_{t+1})`：{td_equation}，其中估计占 {guess}；\n"
            "- n 步：`r_t + … + γ^{n−1}·r_{t+n−1} + γ^n·V(s_{t+n})`，见表；\n"
            "- λ-回报：以上各种按 `(1−λ)λ^{n−1}` 加权。λ = {lam} 时 `R_t` = {return}，其中真实奖励 {reward_part}，估计 {value_part}：{parts}。\n\n"
            "代价与收益：自举用 V 代替后面的随机性，方差小；V 不准就有偏差。λ 越小自举越多。\n\n"
            "末端：{end_zh}。终止处的 0 不是估计，是定义；被截断处接上的 `V(s_T)` 才是自举，代码里单独叫 `bootstrap_value`。\n\n"
            "不是什么：不是“自启动”，没有东西自动开始；也不是统计学里有放回重采样的 bootstrap。三者同出“拎着鞋带提起自己”这句话。中文的“自举”正是字面的意思。",
            "Bootstrapping: where the target should hold rewards that really come later, the critic's own estimate stands in. Wherever V occurs in a target (apart from the baseline `V(s_t)` that is taken off), there is a bootstrap:\n\n"
            "- Monte Carlo: `r_t + γr_{t+1} + …`, none: {mc_target}{mc_note_en};\n"
            "- one step: `r_t + γV(s_{t+1})`: {td_equation}, of which {guess} is estimated;\n"
            "- n steps: `r_t + … + γ^{n−1}·r_{t+n−1} + γ^n·V(s_{t+n})`, see the table;\n"
            "- the λ-return: all of these, weighted `(1−λ)λ^{n−1}`. With λ = {lam}, `R_t` = {return}, of which rewards make {reward_part} and estimates {value_part}: {parts}.\n\n"
            "What it costs and buys: V replaces the randomness that lies ahead, so variance is small; if V is off there is bias. The smaller λ, the more is bootstrapped.\n\n"
            "At the end: {end_en}. The 0 after a true end is no estimate but a definition; the `V(s_T)` that continues a response cut short is a bootstrap, and the code calls it `bootstrap_value`.\n\n"
            "What it is not: not “self-starting”, nothing starts by itself; nor the bootstrap of statistics, which resamples with replacement. All three borrow the same saying about one's own bootstraps.",
        ),
        (
            "n 步目标 `G^{(n)}_t = Σ_{l<n} γ^l·r_{t+l} + γ^n·V(s_{t+n})`。设 `V = V^π + e`：\n\n"
            "    E[G^{(n)}_t | s_t] = V^π(s_t) + γ^n·E[e(s_{t+n}) | s_t]\n\n"
            "偏差只来自自举的那一项，随 n 以 `γ^n` 缩小（γ < 1），到 n 等于剩余长度时末端价值已知，偏差为 0。方差则相反：`Var(Σ_{l<n} γ^l·r_{t+l} + γ^n·V(s_{t+n}))` 包含前 n 步的随机性，通常随 n 增大；`V = V^π` 时可以证明它单调：`Var(G^{(n+1)}) = Var(G^{(n)}) + γ^{2n}·E[Var(δ_{t+n}|s_{t+n})]`，因为 `G^{(n+1)} − G^{(n)} = γ^n·δ_{t+n}`，而 `E[δ_{t+n}|s_{t+n}] = 0`，与之前的量不相关。\n\n"
            "λ-回报（有限长度，还剩 N 个 token）：`R_t = (1−λ)Σ_{n=1}^{N−1} λ^{n−1}·G^{(n)} + λ^{N−1}·G^{(N)}`，权重之和为 1。证：`G^{(n)} = V(s_t) + Σ_{l<n} γ^l·δ_{t+l}`，交换求和次序，`γ^l·δ_{t+l}` 的系数是所有 n > l 的权重之和 `λ^l`。\n\n"
            "自举为何不是循环论证：长度有限，末端价值已知，误差从后往前被消掉；γ < 1 时贝尔曼算子是压缩，误差每轮至多剩下 γ 倍。\n\n"
            "本例 t = {t}，N = {count_targets}：`G^{(n)}` = {targets}，权重 {weights}，加权和 {mixture}，与递推得到的 `R_t` = {return} 相同。",
            "The n-step target is `G^{(n)}_t = Σ_{l<n} γ^l·r_{t+l} + γ^n·V(s_{t+n})`. With `V = V^π + e`\n\n"
            "    E[G^{(n)}_t | s_t] = V^π(s_t) + γ^n·E[e(s_{t+n}) | s_t]\n\n"
            "Bias comes from the bootstrapped term alone and shrinks by `γ^n` (γ < 1); when n reaches what is left, the value at the end is known and the bias 0. Variance goes the other way: it holds the randomness of the first n steps. For `V = V^π` it is monotone, `Var(G^{(n+1)}) = Var(G^{(n)}) + γ^{2n}·E[Var(δ_{t+n}|s_{t+n})]`, since `G^{(n+1)} − G^{(n)} = γ^n·δ_{t+n}` and `E[δ_{t+n}|s_{t+n}] = 0` makes it uncorrelated with all that went before.\n\n"
            "The λ-return (finite length, N tokens left): `R_t = (1−λ)Σ_{n=1}^{N−1} λ^{n−1}·G^{(n)} + λ^{N−1}·G^{(N)}`, the weights adding up to 1. Proof: `G^{(n)} = V(s_t) + Σ_{l<n} γ^l·δ_{t+l}`; swap the sums, and `γ^l·δ_{t+l}` is multiplied by the weights of all n > l, which add up to `λ^l`.\n\n"
            "Why this is not circular: the length is finite and the value at the end known, so errors are removed from the back; and for γ < 1 Bellman's operator contracts, each round multiplying the error by at most γ.\n\n"
            "Here, t = {t} and N = {count_targets}: `G^{(n)}` = {targets}, weights {weights}, weighted sum {mixture}, the same as `R_t` = {return} by the recursion.",
        ),
    ),
    formula="G^{(n)}_t = r_t + … + γ^{n−1}·r_{t+n−1} + γ^n·V(s_{t+n})",
    numbers=_bootstrap_numbers,
    table=("rewards", "values", "returns"),
    grid=_bootstrap_grid,
    code=("mingce.algorithms.advantage.td0", "mingce.algorithms.advantage.n_step", "mingce.algorithms.advantage.gae"),
    related=("bootstrap_delta", "critic_td_error", "gae_variance", "truncation"),
)


# ── bootstrap enters by δ ────────────────────────────────────────────────────────────────────────────────────────────


def _nudged(w: Walk, k: int) -> reference.Credit:
    """The credit with V of the state after the k-th token 1 higher."""
    if k + 1 == len(w.values):
        return w.credit(after=w.after + 1)
    return w.credit(values=[*w.values[: k + 1], w.values[k + 1] + 1, *w.values[k + 2 :]])


def _nudge_numbers(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    k = w.place(t)
    before, after = w.credit(), _nudged(w, k)
    inside = k + 1 < len(w.slots)

    def change(name: str, j: int) -> float:
        return plain(getattr(after, name)[0][j] - getattr(before, name)[0][j])

    v |= {
        "change_delta": change("deltas", k), "change_advantage": change("advantages", k),
        "change_return": change("returns", k), "change_first": change("advantages", 0),
        "change_next_delta": change("deltas", k + 1) if inside else 0.0,
        "change_next_advantage": change("advantages", k + 1) if inside else 0.0,
        "change_next_return": change("returns", k + 1) if inside else 0.0,
        "weights": listed([plain(x) for _, x in weights_in_advantage(w, k)[1:]] + [plain(w.gamma * (w.gamma * w.lam) ** (len(w.slots) - 1 - k))]),
        "one_minus_lam": 1 - w.lam, "one_step": plain(w.credit(lam=0.0).advantages[0][k]),
        "all_steps": plain(w.credit(lam=1.0).advantages[0][k]),
    }  # fmt: skip
    v["weight_equation"] = (
        equation("{gamma}·{one_minus_lam} = {change_advantage}", v)
        if inside
        else equation("{gamma} = {change_advantage}", v)
    )
    upcoming = token_of(rollout, w.slots[k + 1]) if inside else ""
    v["nudge_zh"] = f"轮到“{upcoming}”之前的估计" if inside else "最后一个 token 之后的价值"
    v["nudge_en"] = f"the estimate before “{upcoming}”" if inside else "the value after the last token"
    delta, advantage, target = (shown(v[f"change_next_{name}"]) for name in ("delta", "advantage", "return"))
    if inside:
        v |= {
            "back_zh": f"同时，“{upcoming}”自己的意外变化 {delta}，功劳变化 {advantage}：先前多估的，轮到它时又扣了回来",
            "back_en": f"At the same time the surprise of “{upcoming}” itself changes by {delta} and its credit by {advantage}: what was guessed too high is taken back when its turn comes",
            "next_zh": f"“{upcoming}”自己的 δ 变化 {delta}，A 变化 {advantage}，R 变化 {target}",
            "next_en": f"the δ of “{upcoming}” itself changes by {delta}, its A by {advantage}, its R by {target}",
        }
    else:
        v |= {
            "back_zh": "后面没有别的词再把它扣回去",
            "back_en": "No later word takes it back",
            "next_zh": "它后面没有别的 token",
            "next_en": "no token comes after it",
        }
    return v


def _nudge_grid(rollout: Rollout, t: int) -> Grid:
    w = walk(rollout)
    k = w.place(t)
    before, after = w.credit(), _nudged(w, k)

    def row(j: int) -> tuple[Any, ...]:
        changes = (plain(new[0][j] - old[0][j]) for new, old in zip(after, before, strict=True))
        advantage, delta, target = changes
        return (token_of(rollout, w.slots[j]), delta, advantage, target)

    state = w.slots[k + 1] if k + 1 < len(w.slots) else w.slots[k] + 1
    headings = (
        (f"V(s_{state}) 加 1 之后", f"with V(s_{state}) 1 higher"),
        ("δ 变化", "δ changes by"),
        ("A 变化", "A changes by"),
        ("R 变化", "R changes by"),
    )
    return Grid(headings, rows_of(len(w.slots), row))


_BOOTSTRAP_DELTA = Topic(
    "bootstrap_delta",
    ("自举只影响 δ 吗", "Does the bootstrap only touch δ?"),
    (
        (
            "V_{t+1} 是不是只出现在 δ 里",
            "自举除了进 δ 还进哪里",
            "下一个价值猜错了会影响到哪些 token 的优势",
            "bootstrap 对 A_t 有没有影响",
            "λ=1 的时候还有自举吗",
        ),
        (
            "does bootstrapping affect only the TD error",
            "how does V(s_{t+1}) influence the advantages",
            "if the next value is wrong, which advantages change",
            "is there any bootstrap left when lambda is 1",
            "where else does the bootstrap enter besides delta",
        ),
    ),
    (
        (
            "还说旅行的小票。每走一段，你写一张小票：这段花的，加上“后面估计还要花的”，减去“出发前估计要花的”。小票上那个“后面估计”，就是自举。\n\n"
            "它只写在这一张小票上吗？写是只写在这一张上；但每张小票都会往前传，前面每一段的总账都要加上后面的小票。所以一个估计猜高了，前面所有的账都会沾上一点。\n\n"
            "试一试：把{nudge_zh}抬高 1。“{token}”这一步的意外马上多出 {change_delta}，它的功劳多出 {change_advantage}；传到最前面的“{first_token}”，变化是 {change_first}。{back_zh}。\n\n"
            "所以：自举从意外这扇门进来，进来以后却不只待在门口。",
            "The receipts of the trip again. For each leg you write a slip: what the leg cost, plus “what the rest will cost, I guess”, minus “what I had guessed before this leg”. The guess for the rest, on that slip, is the bootstrap.\n\n"
            "Is it on this slip only? It is written on this slip only; but slips are handed forward, and the account of every earlier leg adds the later slips. So one guess that is too high leaves a trace in all the accounts before it.\n\n"
            "Try it: raise {nudge_en} by 1. The surprise of “{token}” grows by {change_delta} at once, its credit by {change_advantage}; at the very first word, “{first_token}”, the change is {change_first}. {back_en}.\n\n"
            "So the bootstrap comes in by the door of the surprise, but it does not stay at the door.",
        ),
        (
            "说对一半。形式上，自举只从 `δ_t = r_t + γV(s_{t+1}) − V(s_t)` 里的 `γV(s_{t+1})` 进来；但 `A_t` 是后面所有 δ 的加权和，所以它随 δ 进入 t 及之前的每个 `A` 和 `R`。\n\n"
            "`V(s_{t+l})` 在 `A_t` 里的系数是 `γ(1−λ)(γλ)^{l−1}`：在 `δ_{t+l−1}` 里加一次，在 `δ_{t+l}` 里减一次，没有完全抵消的就是自举的份量。t = {t} 时，从下一个状态起依次是 {weights}（最后一个是末端 `V(s_T)` 的）。\n\n"
            "实验：把{nudge_zh}加 1，其余不变：\n\n"
            "- “{token}”：δ 变化 {change_delta}，A 变化 {change_advantage}，R 变化 {change_return}；\n"
            "- {next_zh}；\n"
            "- 第一个 token“{first_token}”：A 变化 {change_first}。\n\n"
            "三种 λ：\n\n"
            "- λ = 0：`A_t = δ_t` = {one_step}，自举只看下一个 V，系数 γ；“只影响 δ”在这时是对的。\n"
            "- 0 < λ < 1：所有后面的 V 都有份，越远越小（末端除外）。本例 λ = {lam}，A = {advantage}。\n"
            "- λ = 1：中间的系数全为 0，`A_t` = {all_steps}，只剩末端的 `V(s_T)`；自举没有了（除非被截断）。\n\n"
            "`−V(s_t)` 不是自举，是基线：它不代替任何未来的奖励。",
            "Half right. Formally the bootstrap enters only by `γV(s_{t+1})` in `δ_t = r_t + γV(s_{t+1}) − V(s_t)`; but `A_t` is a weighted sum of all later δ, so with them it gets into every `A` and `R` at and before t.\n\n"
            "The weight of `V(s_{t+l})` in `A_t` is `γ(1−λ)(γλ)^{l−1}`: added once in `δ_{t+l−1}`, taken off once in `δ_{t+l}`; what does not cancel is the share of the bootstrap. At t = {t}, from the next state on: {weights} (the last one is that of `V(s_T)`, at the end).\n\n"
            "An experiment: add 1 to {nudge_en}, nothing else:\n\n"
            "- “{token}”: δ changes by {change_delta}, A by {change_advantage}, R by {change_return};\n"
            "- {next_en};\n"
            "- the first token “{first_token}”: A changes by {change_first}.\n\n"
            "Three cases of λ:\n\n"
            "- λ = 0: `A_t = δ_t` = {one_step}; only the next V is bootstrapped, with weight γ. Here “only δ” is right.\n"
            "- 0 < λ < 1: every later V has a share, the further the smaller (but for the end). Here λ = {lam}, A = {advantage}.\n"
            "- λ = 1: all weights in between are 0, `A_t` = {all_steps}, and only `V(s_T)` at the end is left; no bootstrap any more (unless the response was cut).\n\n"
            "`−V(s_t)` is no bootstrap but the baseline: it stands in for no future reward.",
        ),
        (
            "记 `g = γλ`，`A_t = Σ_{l≥0} g^l·δ_{t+l}`。对 `V(s_{t+m})` 求偏导（m ≥ 1，未到末端）：它在 `δ_{t+m−1}` 中系数 γ，在 `δ_{t+m}` 中系数 −1，\n\n"
            "    ∂A_t/∂V(s_{t+m}) = γ·g^{m−1} − g^m = γ(1−λ)·g^{m−1}\n\n"
            "`∂A_t/∂V(s_t) = −1`，`∂R_t/∂V(s_t) = −1 + 1 = 0`：R_t 不依赖自己那一格的 V，是合格的回归目标。末端 `V(s_T)` 只出现一次，`∂A_t/∂V(s_T) = γ·g^{T−t−1}`。\n\n"
            "系数之和（γ = 1）：`Σ_{m=1}^{N−1} (1−λ)λ^{m−1} + λ^{N−1} = 1`，N 是剩余长度。所以全体 V（含末端）加同一个常数 c，`A_t` 变化 `c − c = 0`：优势只看 V 的起伏，不看零点。末端固定为 0 时，变化是 `−λ^{N−1}·c`，即只有没被自举掉的那部分传到。\n\n"
            "偏差：若 `V = V^π + e`，`E[A_t|s_t, a_t] − A^π = −e(s_t) + γ(1−λ)Σ_{m≥1} g^{m−1}·E[e(s_{t+m})|s_t, a_t]`（末端无误差）。第一项只依赖 `s_t`，对策略梯度无害；第二项依赖 `a_t`，是自举带来的真正偏差，λ = 1 时为 0。\n\n"
            "数值微分（V 加 1，线性，故精确）：对下一个状态，{weight_equation}，与公式一致。",
            "Let `g = γλ`, `A_t = Σ_{l≥0} g^l·δ_{t+l}`. Differentiate by `V(s_{t+m})` (m ≥ 1, not at the end): it has γ in `δ_{t+m−1}` and −1 in `δ_{t+m}`,\n\n"
            "    ∂A_t/∂V(s_{t+m}) = γ·g^{m−1} − g^m = γ(1−λ)·g^{m−1}\n\n"
            "`∂A_t/∂V(s_t) = −1` and `∂R_t/∂V(s_t) = −1 + 1 = 0`: R_t does not depend on V of its own slot, as befits a regression target. `V(s_T)` at the end occurs once: `∂A_t/∂V(s_T) = γ·g^{T−t−1}`.\n\n"
            "The weights add up (γ = 1): `Σ_{m=1}^{N−1} (1−λ)λ^{m−1} + λ^{N−1} = 1`, N being what is left. So with a constant c added to every V, the end included, `A_t` changes by `c − c = 0`: advantages see the ups and downs of V, not its zero. With the end fixed at 0 the change is `−λ^{N−1}·c`, the part that is not bootstrapped away.\n\n"
            "Bias: with `V = V^π + e`, `E[A_t|s_t, a_t] − A^π = −e(s_t) + γ(1−λ)Σ_{m≥1} g^{m−1}·E[e(s_{t+m})|s_t, a_t]` (no error at the end). The first term depends on `s_t` only and does the policy gradient no harm; the second depends on `a_t` and is the true bias of bootstrapping, 0 at λ = 1.\n\n"
            "By a numerical derivative (V plus 1; exact, since linear): for the next state {weight_equation}, as the formula says.",
        ),
    ),
    formula="∂A_t/∂V(s_{t+l}) = γ(1−λ)·(γλ)^{l−1}",
    numbers=_nudge_numbers,
    each="δ_{t} = {reward} + {gamma}·{next_value} − {value} = {delta};   A_{t} = {delta} + {gamma_lam}·{next_advantage} = {advantage}",
    table=("values", "deltas", "advantages", "returns"),
    grid=_nudge_grid,
    code=("mingce.algorithms.advantage.td_errors", "mingce.algorithms.advantage.gae"),
    related=("bootstrap", "a_not_delta", "excess_sum", "truncation"),
)

TOPICS = (_BOOTSTRAP, _BOOTSTRAP_DELTA)
