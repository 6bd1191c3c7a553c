"""The distance to the reference model: how it is estimated, where it is charged."""

from __future__ import annotations

import math

from mingce.algorithms import reference
from mingce.explain.example import Rollout, changed
from mingce.explain.topic import Grid, Topic, Values, listed
from mingce.explain.topics.chosen import chosen_slots, each, mean


def _without_kl(rollout: Rollout, t: int) -> Values:
    """The same rollout with β = 0: what the reference changed in the advantages."""
    with_kl, free = changed(rollout)["columns"], changed(rollout, beta=0.0)["columns"]
    return {
        "advantage_with_kl": with_kl["advantages"][t],
        "advantage_free": free["advantages"][t],
        "advantages_free": listed(each(rollout, lambda s: free["advantages"][s])),
        "kl_effect": with_kl["advantages"][t] - free["advantages"][t],
        "kl_list": listed(with_kl["kl"]),
    }


def _estimate(rollout: Rollout, name: str) -> list[float | None]:
    old, ref = rollout["columns"]["old_log_probs"], rollout["columns"]["ref_log_probs"]
    return each(rollout, lambda s: reference.kl_penalty(old[s], ref[s], name))


def _estimators(rollout: Rollout, t: int) -> Values:
    found: Values = {}
    for number, name in (("one", "k1"), ("two", "k2"), ("three", "k3")):
        column = _estimate(rollout, name)
        found |= {f"k_{number}": column[t], f"k_{number}_list": listed(column), f"k_{number}_mean": mean(column)}
        if name == "k1":
            found["negative_count"] = sum(x is not None and x < 0 for x in column)
    return found


def _estimator_grid(rollout: Rollout, t: int) -> Grid:
    names = ("k1", "k2", "k3")
    columns = {name: _estimate(rollout, name) for name in names}
    rows = []
    for name, column in columns.items():
        known = [x for x in column if x is not None]
        rows.append((name, min(known), mean(column), max(known)))
    return Grid((("估计式", "estimator"), ("最小", "least"), ("平均", "mean"), ("最大", "largest")), tuple(rows))


def _kl_price(rollout: Rollout, t: int) -> Values:
    columns, beta = rollout["columns"], rollout["settings"]["beta"]
    slots = chosen_slots(rollout)
    scores, kl = math.fsum(columns["scores"][s] for s in slots), math.fsum(columns["kl"][s] for s in slots)
    gentle = mean(_estimate(rollout, "k3"))
    price = beta or 0.0
    return {
        "kl_list": listed(columns["kl"]),
        "kl_total": kl,
        "kl_cost": price * kl,
        "score_total": scores,
        "reward_total": scores - price * kl,
        "kl_loss_mean": gentle,
        "kl_loss_cost": price * gentle,
    }


_REFERENCE = Topic(
    "reference_not_in_loss",
    ("参考模型为什么不出现在策略损失里", "Why the reference is not in the policy loss"),
    (
        (
            "ref_log_prob 去哪儿了，loss 里没用到啊",
            "参考模型是怎么影响训练的",
            "policy loss 只有新旧策略，ref 在哪一步起作用",
            "old policy 和 reference policy 是一回事吗",
            "代理目标里为什么没有 π_ref",
        ),
        (
            "where does ref_log_prob go, the loss doesn't use it",
            "how does the reference model influence training",
            "old policy vs reference policy, are they the same?",
            "pi_ref is missing from the surrogate objective",
            "at which stage is the reference used",
        ),
    ),
    (
        (
            "“原来的自己”像超市门口的秤：东西先在那里称过，贵了多少写在价签上；到了收银台，只看价签，不再用秤。\n\n"
            "说“{token}”时，先和原来的自己比一比，变样的那份费用已经从奖励里扣掉。轮到“该不该多说这个词”时，只看功劳（{advantage}）和现在比刚才多爱说多少倍，秤早就用完了。\n\n"
            "它确实起了作用：如果不收这份费用，“{token}”的功劳会是 {advantage_free}，现在是 {advantage_with_kl}。",
            "The old self is like the scale at a shop's entrance: things are weighed there and the price is written on the label; at the till only the label is read.\n\n"
            "When “{token}” was said it was compared with the old self, and the fee for changing was taken off the reward. When it comes to “should this word be said more often?”, only the credit ({advantage}) and the multiplier matter; the scale has done its work.\n\n"
            "It did have an effect: without the fee the credit of “{token}” would be {advantage_free}; with it, it is {advantage_with_kl}.",
        ),
        (
            "两个“旧”模型各管一件事：`π_old` 是本步更新之前的策略，作比值的分母，每步都换；`π_ref` 是训练开始时的模型，冻结，只用来量漂移。\n\n"
            "路径：`ref_log_probs` → `k_t` = {kl_list} → `r_t = score_t − β·k_t`（β = {beta}）= {rewards} → `A_t` = {advantages} → 策略损失。到损失时它已折进优势，不再单独出现，也没有梯度流过它。\n\n"
            "把 β 设为 0 重算：优势变为 {advantages_free}；“{token}”处由 {advantage_with_kl} 变为 {advantage_free}，KL 的影响是 {kl_effect}。\n\n"
            "例外：KL 放进损失（`kl.loss_coef`）时，`π_ref` 以 `kl_loss` 一项直接进入损失。两处都放就罚了两次。",
            "The two “older” models do different things: `π_old` is the policy before this step's updates, the denominator of the ratio, replaced every step; `π_ref` is the model as training began, frozen, used only to measure drift.\n\n"
            "The path: `ref_log_probs` → `k_t` = {kl_list} → `r_t = score_t − β·k_t` (β = {beta}) = {rewards} → `A_t` = {advantages} → policy loss. By then it is folded into the advantages; it does not appear by itself, and no gradient flows through it.\n\n"
            "Computed again with β = 0 the advantages are {advantages_free}; at “{token}” {advantage_with_kl} becomes {advantage_free}, so the KL's effect is {kl_effect}.\n\n"
            "The exception: with the KL in the loss (`kl.loss_coef`) `π_ref` enters directly as the `kl_loss` term. In both places it is paid twice.",
        ),
        (
            "目标是 `J(θ) = E_{y~π_θ}[score(y)] − β·KL(π_θ‖π_ref)`。\n\n"
            "由链式法则 `KL = E_π[Σ_t x_t]`，`x_t = log π_θ(a_t|s_t) − log π_ref(a_t|s_t)`。求导：`∇E_π[x_t]` 有两部分，`x_t` 作为奖励经 `∇log π` 的部分，和 `E_π[∇x_t] = E_π[∇log π] = 0`。后者恒为 0，所以把 `−β·x_t` 当作**不求导的奖励**，得到的就是 J 的精确梯度：`∇J = E[Σ_t ∇log π(a_t|s_t)·Σ_{k≥t} r_k]`，`r_k = score_k − β·x_k`。\n\n"
            "于是 `π_ref` 只经 `r_k`、再经 `A_t` 进入梯度。GAE 对奖励是线性的：`A_t(β) = A_t(0) − β·Σ_l (γλ)^l·k_{t+l}`（V 不变），所以 KL 的影响恰是折扣 KL 之和的 −β 倍。例中“{token}”：`{advantage_with_kl} − {advantage_free}` = {kl_effect}。\n\n"
            "注意 `k_t` 用的是 `π_old` 的对数概率，第一次更新时它就是 `π_θ`；同一步之内的后续更新里它保持不变。",
            "The objective is `J(θ) = E_{y~π_θ}[score(y)] − β·KL(π_θ‖π_ref)`.\n\n"
            "By the chain rule `KL = E_π[Σ_t x_t]` with `x_t = log π_θ(a_t|s_t) − log π_ref(a_t|s_t)`. Its derivative has two parts: `x_t` as a reward multiplying `∇log π`, and `E_π[∇x_t] = E_π[∇log π] = 0`. The second vanishes, so treating `−β·x_t` as a **reward that is not differentiated** gives the exact gradient of J: `∇J = E[Σ_t ∇log π(a_t|s_t)·Σ_{k≥t} r_k]` with `r_k = score_k − β·x_k`.\n\n"
            "So `π_ref` enters the gradient only by `r_k`, and then by `A_t`. GAE is linear in the rewards: `A_t(β) = A_t(0) − β·Σ_l (γλ)^l·k_{t+l}` (V as it is), so the KL's effect is −β times the discounted sum of later KLs. For “{token}”: `{advantage_with_kl} − {advantage_free}` = {kl_effect}.\n\n"
            "Note that `k_t` uses `π_old`'s log-probabilities, which are `π_θ`'s on the first update; during the later updates of the step they stay as they are.",
        ),
    ),
    needs=("scores", "old_log_probs", "ref_log_probs", "kl", "rewards", "values", "advantages"),
    formula="π_ref → k_t → r_t = score_t − β·k_t → A_t → L(θ) = −Ê_t[ρ_t·A_t]",
    numbers=_without_kl,
    table=("old_log_probs", "ref_log_probs", "kl", "rewards", "advantages"),
    code=("mingce.algorithms.kl.kl_rewards", "mingce.algorithms.losses.compute_policy_loss"),
    related=("kl_where", "kl_estimators", "cpi_objective", "modules"),
)

_KL_ESTIMATORS = Topic(
    "kl_estimators",
    (
        "KL 的三种估计：k1、k2、k3；单个 token 为何会是负的",
        "Three estimates of the KL: k1, k2, k3, and why one may be negative",
    ),
    (
        (
            "kl 为啥出现负值",
            "k1 k2 k3 选哪个",
            "low_var_kl 是什么",
            "KL 散度不是恒大于等于 0 吗，怎么这里小于零",
            "逐 token 的 kl penalty 怎么估计，哪个估计式无偏",
            "schulman 的 kl 近似",
        ),
        (
            "why is my KL negative",
            "k1 vs k2 vs k3 estimator",
            "what is low_var_kl",
            "which KL estimator is unbiased and has low variance",
            "approximating KL from samples",
        ),
    ),
    (
        (
            "要量“现在的我和原来的我差多少”，不能把所有话都问一遍，只能看说出口的这几个词。\n\n"
            "最直接的量法：现在多爱说它，减去原来多爱说它。“{token}”这样量是 {k_one}。有的词现在更不爱说，量出来就是负数；这句话里有 {negative_count} 个。负数没有错，多量一些再平均，就是真正的差距。\n\n"
            "另外两种量法量出来总不小于 0，抖得也小些：对“{token}”是 {k_two} 和 {k_three}。",
            "How different am I now from my old self? Nobody can ask about every possible word, only about the few that were said.\n\n"
            "The plainest measure: how much I like the word now, less how much I used to. For “{token}” that is {k_one}. A word I like less than before gives a number below 0; this answer has {negative_count} of them. Nothing is wrong with that: measured often enough, the average is the true difference.\n\n"
            "Two other measures are never below 0 and shake less: for “{token}” {k_two} and {k_three}.",
        ),
        (
            "记 `x_t = log π(a_t) − log π_ref(a_t)`，`a_t` 从 π 抽出。\n\n"
            "- `k1 = x`：{k_one_list}，平均 {k_one_mean}。无偏；单个 token 可负，这里有 {negative_count} 个。\n"
            "- `k2 = ½x²`：{k_two_list}，平均 {k_two_mean}。非负，有偏（x 小时偏差是高阶的），但作损失时梯度是对的。\n"
            "- `k3 = e^{−x} − 1 + x`：{k_three_list}，平均 {k_three_mean}。无偏且非负，x 小时方差也小；x 很负时 `e^{−x}` 会爆，所以 verl 把它限制在 ±10。\n\n"
            "放在**奖励**里用 k1（期望梯度正确）；放在**损失**里不能用 k1（它的样本梯度是 `∇log π`，与参考模型无关），用 k2，或取 k3 的值配 k2 的梯度（`k3+`）。\n\n"
            "负的 k1 不是错误：它只说明策略比参考模型更不爱说这个 token，奖励因此略有补偿。几百个 token 的平均仍是负的，才该怀疑采样分布与 `old_log_probs` 不一致。",
            "Let `x_t = log π(a_t) − log π_ref(a_t)` with `a_t` drawn from π.\n\n"
            "- `k1 = x`: {k_one_list}, mean {k_one_mean}. Unbiased; a single token may be negative, here {negative_count} of them.\n"
            "- `k2 = ½x²`: {k_two_list}, mean {k_two_mean}. Never negative, biased (of higher order for small x), but with the right gradient as a loss.\n"
            "- `k3 = e^{−x} − 1 + x`: {k_three_list}, mean {k_three_mean}. Unbiased and never negative, with little variance for small x; for very negative x `e^{−x}` explodes, which is why verl holds it within ±10.\n\n"
            "In the **reward** take k1 (its expected gradient is right). In the **loss** k1 cannot serve (its sample gradient is `∇log π`, whatever the reference says): take k2, or k3's value with k2's gradient (`k3+`).\n\n"
            "A negative k1 is no bug: the policy likes this token less than the reference does and is paid a little for it. If the mean over hundreds of tokens is still negative, suspect that the samples do not come from the distribution of `old_log_probs`.",
        ),
        (
            "设 `a ~ π`，`x = log π(a) − log π_ref(a)`。\n\n"
            "- **k1 无偏**：`E[x] = Σ_a π·log(π/π_ref) = KL(π‖π_ref)`。\n"
            "- **k3 无偏**：`E[e^{−x}] = Σ_a π·(π_ref/π) = 1`（支撑相同），故 `E[e^{−x} − 1 + x] = E[x]`。它是 k1 加上期望为 0 的控制变量 `e^{−x} − 1`。\n"
            "- **k3 ≥ 0**：`e^u ≥ 1 + u`，取 `u = −x`。\n"
            "- **k2 的偏差**：`e^{−x} − 1 + x = ½x² − x³/6 + …`，故 `E[k2] − KL = E[x³]/6 + …`，是高阶小量。\n"
            "- **梯度**：`∇KL = E[x·∇log π] + E[∇log π] = E[x·∇log π]`。而 `∇k2 = x·∇log π`，无偏；`∇k1 = ∇log π`，期望为 0；`∇k3 = (1 − e^{−x})·∇log π`，期望是 `−Σ_a π_ref·∇log π = ∇KL(π_ref‖π)`，是反向的 KL。\n\n"
            "例中验证 `k3 ≥ 0` 与泰勒展开：“{token}”处 k1 = {k_one}，k2 = {k_two}，k3 = {k_three}。",
            "Let `a ~ π` and `x = log π(a) − log π_ref(a)`.\n\n"
            "- **k1 is unbiased**: `E[x] = Σ_a π·log(π/π_ref) = KL(π‖π_ref)`.\n"
            "- **k3 is unbiased**: `E[e^{−x}] = Σ_a π·(π_ref/π) = 1` (same support), so `E[e^{−x} − 1 + x] = E[x]`. It is k1 with the control variate `e^{−x} − 1`, whose mean is 0.\n"
            "- **k3 ≥ 0**: `e^u ≥ 1 + u` with `u = −x`.\n"
            "- **k2's bias**: `e^{−x} − 1 + x = ½x² − x³/6 + …`, so `E[k2] − KL = E[x³]/6 + …`, of higher order.\n"
            "- **Gradients**: `∇KL = E[x·∇log π] + E[∇log π] = E[x·∇log π]`. Now `∇k2 = x·∇log π` is unbiased; `∇k1 = ∇log π` has mean 0; `∇k3 = (1 − e^{−x})·∇log π` has mean `−Σ_a π_ref·∇log π = ∇KL(π_ref‖π)`, the KL the other way round.\n\n"
            "The example confirms `k3 ≥ 0` and the expansion: at “{token}” k1 = {k_one}, k2 = {k_two}, k3 = {k_three}.",
        ),
    ),
    needs=("old_log_probs", "ref_log_probs"),
    formula="x = log π(a_t) − log π_ref(a_t);   k1 = x,   k2 = ½x²,   k3 = e^{−x} − 1 + x",
    numbers=_estimators,
    each="x_{t} = {old_log_prob} − {ref_log_prob} = {k_one};  k2 = {k_two};  k3 = {k_three}",
    grid=_estimator_grid,
    code=("mingce.algorithms.kl.kl_penalty",),
    related=("kl_where", "reference_not_in_loss"),
)

_KL_WHERE = Topic(
    "kl_where",
    ("KL 放在奖励里还是损失里；β 的作用", "The KL in the reward or in the loss, and what β does"),
    (
        (
            "kl penalty 加在 reward 还是 loss",
            "β 调大调小有什么影响",
            "kl_coef 怎么选，自适应 KL 是啥",
            "GRPO 把 KL 写进 loss，PPO 写进 reward，差别在哪",
            "为什么奖励要减去 β 乘 KL",
        ),
        (
            "KL penalty in reward vs KL loss",
            "what does beta do, kl coefficient",
            "adaptive KL controller",
            "GRPO puts the KL in the loss, PPO in the reward, what changes",
            "why subtract beta times KL from the score",
        ),
    ),
    (
        (
            "出去玩可以，但别离家太远。有两种管法。\n\n"
            "一种是**收路费**：每走一步，按离家多远收费，费用记进当天的收入。这句话得分 {score_total}，路费 {kl_cost}，到手 {reward_total}。后面要走多远，前面的每一步都要替它操心。\n\n"
            "另一种是**拴根橡皮筋**：不记账，走远了直接往回拉，只管脚下这一步。\n\n"
            "路费的单价（现在是 {beta}）越贵，越不敢走远；是 0 就随便跑。两种一起用，等于交了两份钱。",
            "Go out and play, but not too far from home. There are two ways to see to that.\n\n"
            "One is a **toll**: every step is charged by how far from home it is, and the charge is part of the day's earnings. This answer scored {score_total}, the toll was {kl_cost}, leaving {reward_total}. Each early step has to think of the way that is still to go.\n\n"
            "The other is a **rubber band**: nothing is written down, it just pulls back, and only on the step being taken.\n\n"
            "The dearer the toll (now {beta}), the closer one stays; at 0 one may run anywhere. Using both means paying twice.",
        ),
        (
            "**在奖励里**（PPO 的传统做法）：`r_t = score_t − β·k_t`，β = {beta}。例中 Σk = {kl_total}，共扣 {kl_cost}，总奖励 {reward_total}。KL 经 GAE 往前传：早先的 token 也为后来的漂移负责；白化会连同它一起缩放。\n\n"
            "**在损失里**（GRPO 的做法）：`L = L^π + c·mean_t k(log π, log π_ref)`，梯度直接流过 `log π(a_t)`，只罚当前这一步的分布，不进优势，也不受白化影响。例中 k3 的平均是 {kl_loss_mean}；若系数也取 {beta}，这一项是 {kl_loss_cost}。\n\n"
            "- 奖励里用 k1；损失里用 k2 或 `k3+`，不要用 k1。\n"
            "- β 太大：策略不动；太小：得分上去而语言变坏。自适应控制器按目标 KL 调 β。\n"
            "- 两处都放，就罚两次；mingce 会在审计里指出。",
            "**In the reward** (PPO's way): `r_t = score_t − β·k_t`, β = {beta}. Here Σk = {kl_total}, which costs {kl_cost} and leaves a total reward of {reward_total}. GAE carries the KL backwards: earlier tokens answer for later drift, and whitening scales it along.\n\n"
            "**In the loss** (GRPO's way): `L = L^π + c·mean_t k(log π, log π_ref)`; the gradient flows straight through `log π(a_t)`, charges this step's distribution only, and neither advantages nor whitening touch it. Here the mean k3 is {kl_loss_mean}; with a coefficient of {beta} as well the term would be {kl_loss_cost}.\n\n"
            "- k1 in the reward; k2 or `k3+` in the loss, never k1.\n"
            "- β too large and the policy does not move; too small and scores rise while the language decays. The adaptive controller steers β by a target KL.\n"
            "- In both places it is paid twice; mingce's audit says so.",
        ),
        (
            "**奖励**：`Σ_t E[−β·k1_t] = −β·KL(π‖π_ref)`（整句，链式法则），得分梯度给出 `−β·E[Σ_t ∇log π(a_t)·Σ_{k≥t} x_k]`，正是 `−β·∇KL(π‖π_ref)`，包含“现在的选择影响以后状态的漂移”。\n\n"
            "**损失**：对 `c·Σ_t k2_t` 求导得 `c·E[Σ_t x_t·∇log π(a_t|s_t)] = c·E_s[Σ_t ∇KL(π(·|s_t)‖π_ref(·|s_t))]`，状态分布当作常数：少了 k > t 的交叉项。两者在每个状态上的方向一致，但不是同一个梯度。\n\n"
            "**β 的意义**：`max_π E[score] − β·KL(π‖π_ref)` 的解是 `π* = π_ref·e^{score/β}/Z`。证：目标 `= −β·KL(π‖π*) + β·log Z`，KL ≥ 0 且仅在 `π = π*` 时为 0。β → ∞ 时 `π* → π_ref`，β → 0 时集中到得分最高的回答。\n\n"
            "**白化**：优势除以 σ 后，奖励里的 KL 相对得分的比例不变，有效的 β 仍是 β；损失里的系数则不随 σ 变，同样的 c 在 σ 小的批里相对更弱。\n\n"
            "例中 `Σr = Σscore − β·Σk`：`{score_total} − {kl_cost}` = {reward_total}。",
            "**Reward**: `Σ_t E[−β·k1_t] = −β·KL(π‖π_ref)` of the whole answer by the chain rule; the score-function gradient is `−β·E[Σ_t ∇log π(a_t)·Σ_{k≥t} x_k]`, exactly `−β·∇KL(π‖π_ref)`, with the effect of today's choice on tomorrow's drift in it.\n\n"
            "**Loss**: differentiating `c·Σ_t k2_t` gives `c·E[Σ_t x_t·∇log π(a_t|s_t)] = c·E_s[Σ_t ∇KL(π(·|s_t)‖π_ref(·|s_t))]` with the states held fixed: the cross terms k > t are missing. In each state both point the same way, but they are not the same gradient.\n\n"
            "**What β means**: `max_π E[score] − β·KL(π‖π_ref)` is solved by `π* = π_ref·e^{score/β}/Z`. Proof: the objective is `−β·KL(π‖π*) + β·log Z`, and a KL is at least 0, with 0 only at `π = π*`. As β → ∞, `π* → π_ref`; as β → 0 it gathers on the best-scored answers.\n\n"
            "**Whitening**: dividing advantages by σ keeps the KL's proportion to the score, so β remains what it was; a coefficient in the loss does not scale with σ and is relatively weaker in a batch with small σ.\n\n"
            "In the example `Σr = Σscore − β·Σk`: `{score_total} − {kl_cost}` = {reward_total}.",
        ),
    ),
    needs=("scores", "old_log_probs", "ref_log_probs", "kl", "rewards"),
    formula="r_t = score_t − β·k_t;   L = L^π + c·mean_t k_t",
    numbers=_kl_price,
    each="r_{t} = {score} − {beta}·{kl} = {reward}",
    table=("scores", "kl", "rewards"),
    code=("mingce.algorithms.kl.kl_rewards", "mingce.algorithms.losses.compute_kl_loss"),
    related=("kl_estimators", "reference_not_in_loss", "reward_sparse_dense"),
)

TOPICS: tuple[Topic, ...] = (_REFERENCE, _KL_ESTIMATORS, _KL_WHERE)
