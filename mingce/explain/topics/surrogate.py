"""The policy's objective: TRPO's surrogate, PPO's clip, the ratio in both."""

from __future__ import annotations

import math

from mingce.algorithms import reference
from mingce.explain.example import Rollout
from mingce.explain.topic import Grid, Topic, Values, listed
from mingce.explain.topics.chosen import chosen_slots, each, log_probs, mean


def _clip(rollout: Rollout) -> tuple[float, float]:
    low, high = rollout["settings"].get("clip_low"), rollout["settings"].get("clip_high")
    return 0.2 if low is None else low, 0.2 if high is None else high


def _surrogate(rollout: Rollout, t: int) -> Values:
    old, new = log_probs(rollout)
    raw = rollout["columns"]["advantages"]
    terms = each(rollout, lambda s: -reference.cpi_term(old[s], new[s], raw[s]))
    ratios = each(rollout, lambda s: reference.policy_term(old[s], new[s], 0.0).ratio)
    return {
        "old_prob": math.exp(old[t]),
        "new_prob": math.exp(new[t]),
        "old_probs": listed(each(rollout, lambda s: math.exp(old[s]))),
        "ratios": listed(ratios),
        "cpi_terms": listed(terms),
        "cpi_term": terms[t],
        "cpi_objective": mean(terms),
        "cpi_sum": mean(terms) * sum(x is not None for x in terms),
        "advantage_mean": mean(each(rollout, lambda s: raw[s])),
    }


def _clipping(rollout: Rollout, t: int) -> Values:
    old, new = log_probs(rollout)
    low, high = _clip(rollout)
    raw = rollout["columns"]["advantages"]
    terms = {s: reference.policy_term(old[s], new[s], raw[s], low, high, None) for s in chosen_slots(rollout)}
    return {
        "low_bound": 1 - low,
        "high_bound": 1 + high,
        "objective_terms": listed(each(rollout, lambda s: -terms[s].loss)),
        "clipped_count": sum(term.clipped for term in terms.values()),
        "ratios": listed(each(rollout, lambda s: terms[s].ratio)),
        "size": abs(raw[t]),
    }


def _clip_grid(rollout: Rollout, t: int) -> Grid:
    """min(ρA, clip(ρ)A) for a good and a bad token of the size of token t's advantage, over ρ."""
    low, high = _clip(rollout)
    size = abs(rollout["columns"]["advantages"][t])
    rows = []
    for ratio in ((1 - low) / 2, 1 - low, 1.0, 1 + high, 2 * (1 + high)):
        if ratio > 0:
            good, bad = (reference.policy_term(0.0, math.log(ratio), sign * size, low, high, None) for sign in (1, -1))
            rows.append((ratio, -good.loss, int(not good.clipped), -bad.loss, int(not bad.clipped)))
    headings = (
        ("ρ", "ρ"),
        ("A > 0 的一项", "term, A > 0"),
        ("有梯度", "gradient"),
        ("A < 0 的一项", "term, A < 0"),
        ("有梯度", "gradient"),
    )
    return Grid(headings, tuple(rows))


def _ratio(rollout: Rollout, t: int) -> Values:
    old, new = log_probs(rollout)
    ratios = each(rollout, lambda s: reference.policy_term(old[s], new[s], 0.0).ratio)
    return {
        "old_prob": math.exp(old[t]),
        "new_prob": math.exp(new[t]),
        "ratios": listed(ratios),
        "ratio_mean": mean(ratios),
    }


_CPI = Topic(
    "cpi_objective",
    ("TRPO 的代理目标（CPI），逐项代入", "TRPO's surrogate (CPI), term by term"),
    (
        (
            "TRPO 的 surrogate objective 怎么算",
            "L^CPI 里的每个因子是什么",
            "保守策略迭代的目标函数，代数进去",
            "概率比乘优势再求平均，具体数是多少",
            "trpo 代理目标 代入 log prob 优势 每一项",
            "πθ/πold 乘 A 是什么意思",
        ),
        (
            "TRPO surrogate objective with numbers",
            "what is L^CPI",
            "conservative policy iteration term by term",
            "plug the log probs into pi_theta over pi_old times advantage",
            "expectation of ratio times advantage",
        ),
    ),
    (
        (
            "每个词有一份功劳（优势），还有一个“现在比当时更爱说它多少倍”的倍数。两者相乘，再对所有词取平均，就是要往大里调的那个数。\n\n"
            "刚开始还没学，倍数都是 1，所以平均的就是功劳本身。“{token}”这一项是 {ratio} 乘 {advantage}，得 {cpi_term}；所有词平均是 {cpi_objective}。\n\n"
            "好词（功劳为正）的倍数调大，这个平均就变大；坏词的倍数调小，也变大。学习就是朝这个方向拧旋钮，但每次只许拧一点。",
            "Each word has its credit (the advantage) and a multiplier: how many times likelier it is now than when it was said. Multiply the two, average over the words: that is the number to be made larger.\n\n"
            "Before any learning the multipliers are 1, so the average is that of the credits themselves. The part of “{token}” is {ratio} times {advantage}, which makes {cpi_term}; over all words the average is {cpi_objective}.\n\n"
            "Turn up the multiplier of a good word (credit above 0) and the average grows; turn down that of a bad word and it grows too. Learning turns the knobs that way, a little at a time.",
        ),
        (
            "`L^CPI(θ) = Ê_t[ρ_t(θ)·A_t]`，`ρ_t = π_θ(a_t|s_t)/π_old(a_t|s_t) = exp(log π_θ − log π_old)`。\n\n"
            "- `π_old(a_t|s_t)` = {old_probs}，即 `exp(old_log_probs)`。\n"
            "- `ρ_t` = {ratios}；一步里第一次更新之前恒为 1。\n"
            "- `A_t` = {advantages}（未白化）。\n"
            "- 各项 `ρ_t·A_t` = {cpi_terms}，平均 {cpi_objective}。\n\n"
            "参考模型不在式中：`ref_log_probs` 在算奖励时已经用完，留在了 `A_t` 里。实际训练用白化后的优势：若统计量就取自这一行，ρ = 1 时平均恰为 0，但梯度不为 0；看损失值判断不了学得好坏。\n\n"
            "没有裁剪时要靠别的办法管住步长：TRPO 用 KL 约束，这里是学习率、少量 epoch 和 stop_kl。",
            "`L^CPI(θ) = Ê_t[ρ_t(θ)·A_t]` with `ρ_t = π_θ(a_t|s_t)/π_old(a_t|s_t) = exp(log π_θ − log π_old)`.\n\n"
            "- `π_old(a_t|s_t)` = {old_probs}, that is `exp(old_log_probs)`.\n"
            "- `ρ_t` = {ratios}; always 1 before the first update of a step.\n"
            "- `A_t` = {advantages} (raw).\n"
            "- The terms `ρ_t·A_t` = {cpi_terms}, their mean {cpi_objective}.\n\n"
            "The reference is not in the formula: `ref_log_probs` were used up in the rewards and live on in `A_t`. Training uses whitened advantages: if the statistics are this row's own, the mean at ρ = 1 is exactly 0, yet the gradient is not; the loss value says nothing about how well it learns.\n\n"
            "Without a clip something else must hold the step: TRPO has its KL constraint, here it is the learning rate, few epochs and stop_kl.",
        ),
        (
            "**性能差引理**：`J(π) − J(π_old) = E_{τ~π}[Σ_t γ^t·A_old(s_t, a_t)]`。证：右边代入 `A_old = r_t + γV_old(s_{t+1}) − V_old(s_t)`（取期望），V 的项望远镜相消，只剩 `E_π[Σ_t γ^t r_t] − E[V_old(s_0)]`，即左边。\n\n"
            "右边的状态来自新策略，无法采样。用旧策略的状态分布代替，动作用重要性采样：`L(π) = E_{s~d_old} E_{a~π_old}[ρ·A_old(s, a)]`。\n\n"
            "- 在 `π = π_old` 处 `L = E[A_old] = 0 = J − J_old`，且 `∇ρ = ρ·∇log π`，故 `∇L = E[A_old·∇log π] = ∇J`：一阶相同。\n"
            "- 误差界：`J(π) ≥ J(π_old) + L(π) − C·max_s KL(π_old‖π)`，`C = 4εγ/(1−γ)²`，`ε = max|A_old|`。所以 L 只在 π 离 π_old 不远时可信，TRPO 因此约束 KL，PPO 因此裁剪。\n\n"
            "样本上 `E[A_old]` 不必为 0：例中优势的平均是 {advantage_mean}，当前 `ρ_t·A_t` 的平均是 {cpi_objective}（ρ 全为 1 时两者相等）。",
            "**Performance difference lemma**: `J(π) − J(π_old) = E_{τ~π}[Σ_t γ^t·A_old(s_t, a_t)]`. Proof: put `A_old = r_t + γV_old(s_{t+1}) − V_old(s_t)` (in expectation) into the right side; the V terms telescope and leave `E_π[Σ_t γ^t r_t] − E[V_old(s_0)]`, the left side.\n\n"
            "The states on the right are the new policy's and cannot be sampled. Take the old policy's states instead, and importance sampling for the action: `L(π) = E_{s~d_old} E_{a~π_old}[ρ·A_old(s, a)]`.\n\n"
            "- At `π = π_old`, `L = E[A_old] = 0 = J − J_old`, and with `∇ρ = ρ·∇log π`, `∇L = E[A_old·∇log π] = ∇J`: they agree to first order.\n"
            "- The error is bounded: `J(π) ≥ J(π_old) + L(π) − C·max_s KL(π_old‖π)` with `C = 4εγ/(1−γ)²`, `ε = max|A_old|`. L can be trusted only near π_old; hence TRPO's KL constraint and PPO's clip.\n\n"
            "On a sample `E[A_old]` need not be 0: here the mean advantage is {advantage_mean} and the mean of `ρ_t·A_t` is now {cpi_objective} (equal while every ρ is 1).",
        ),
    ),
    needs=("old_log_probs", "advantages"),
    formula="L^CPI(θ) = Ê_t[π_θ(a_t|s_t)/π_old(a_t|s_t)·A_t] = Ê_t[ρ_t·A_t]",
    numbers=_surrogate,
    each="π_old = exp({old_log_prob}) = {old_prob};  ρ_{t}·A_{t} = {ratio}·{advantage} = {cpi_term}",
    table=("old_log_probs", "advantages"),
    code=("mingce.algorithms.losses.policy_ratio", "mingce.algorithms.losses.cpi"),
    related=("ppo_clip", "ratio_first_update", "reference_not_in_loss"),
)

_CLIP = Topic(
    "ppo_clip",
    ("PPO 的裁剪：为什么取 min", "PPO's clip, and why the minimum"),
    (
        (
            "ppo clip 到底裁了什么",
            "clip 是什么",
            "clip(ratio, 1-ε, 1+ε) 为什么还要套一个 min",
            "裁剪之后还有没有梯度",
            "L^CLIP 公式怎么理解",
            "epsilon 取 0.2 是干嘛的",
            "ratio 超出范围会怎样，pg_clipfrac 是什么",
        ),
        (
            "What does clipping do in PPO?",
            "the clip",
            "why min of clipped and unclipped objective",
            "is there a gradient when the ratio is clipped?",
            "L^CLIP explained",
            "what is epsilon 0.2 in PPO for, clip fraction",
        ),
    ),
    (
        (
            "教小狗握手，做对了给零食。但规定一节课里，做得再好也只按“比原来多一点”给：可能性到原来的 {high_bound} 倍就不再加零食了；做错的，降到原来的 {low_bound} 倍也就不再罚了。\n\n"
            "为什么？零食是按旧表现估的价，一下变太多，价就不准了。改一点、重新看、再改一点，才稳。\n\n"
            "可是如果改错了方向，好动作反而变少、坏动作反而变多，不管差多远都照罚不误，好把它拉回来。现在“{token}”的倍数是 {ratio}；这句话里被规定拦住的词有 {clipped_count} 个。",
            "Teaching a dog to shake hands, with treats for doing well. The rule of the lesson: however well it goes, treats count only up to “a little more often than before”. Beyond {high_bound} times the old chance nothing more is added; a bad habit brought down to {low_bound} times is not punished further.\n\n"
            "Why? The treats were priced by how things were before; after a big change the price is wrong. Change a little, look again, change a little more.\n\n"
            "But a change the wrong way, a good habit getting rarer or a bad one more frequent, is always charged in full, however far it went, so that it is pulled back. Right now “{token}” stands at {ratio} times; the rule holds back {clipped_count} words of this answer.",
        ),
        (
            "`L^CLIP = Ê_t[min(ρ_t·A_t, clip(ρ_t, 1−ε_low, 1+ε_high)·A_t)]`，区间 [{low_bound}, {high_bound}]。损失是它的相反数。\n\n"
            "四种情形（下表取 |A| = {size}，即“{token}”的优势的大小，ρ 从小到大）：\n\n"
            "- A > 0 且 ρ > {high_bound}：已经够了，取裁剪项，常数，无梯度。\n"
            "- A < 0 且 ρ < {low_bound}：同上，无梯度。\n"
            "- A > 0 而 ρ 偏小，或 A < 0 而 ρ 偏大：走错了方向，min 选未裁剪项，梯度照旧，把它拉回来。\n"
            "- 区间之内：两项相等，与 CPI 相同。\n\n"
            "当前 ρ = {ratios}，各项 = {objective_terms}，裁剪起作用的 {clipped_count} 个。`pg_clipfrac` 只数裁剪真正决定取值的 token；只看 ρ 出没出界会多数。\n\n"
            "A < 0 且 ρ 很大时这一项没有下界，dual clip 在 `c·A` 处封住。",
            "`L^CLIP = Ê_t[min(ρ_t·A_t, clip(ρ_t, 1−ε_low, 1+ε_high)·A_t)]`, the interval being [{low_bound}, {high_bound}]. The loss is its negative.\n\n"
            "Four cases (the table takes |A| = {size}, the size of “{token}”'s advantage, with ρ going up):\n\n"
            "- A > 0 and ρ > {high_bound}: far enough; the clipped term is taken, a constant, no gradient.\n"
            "- A < 0 and ρ < {low_bound}: likewise, no gradient.\n"
            "- A > 0 with a small ρ, or A < 0 with a large one: a step the wrong way; the min takes the unclipped term, whose gradient pulls back.\n"
            "- Within the interval both terms are equal, the same as CPI.\n\n"
            "Now ρ = {ratios}, the terms are {objective_terms}, and the clip decides {clipped_count} of them. `pg_clipfrac` counts only tokens whose value the clip decided; counting every ρ out of bounds counts too many.\n\n"
            "For A < 0 and a large ρ the term has no lower bound; the dual clip stops it at `c·A`.",
        ),
        (
            "记 `f(ρ) = min(ρA, clip(ρ)A)`。\n\n"
            "1. **下界**：`min(x, y) ≤ x`，故逐点 `f(ρ) ≤ ρA`；最大化下界不会高估 CPI 目标。\n"
            "2. **一阶相同**：`1−ε_low < 1 < 1+ε_high`，所以 ρ = 1 的邻域内 `clip(ρ) = ρ`，`f(ρ) = ρA`，值与导数都等于 CPI 的，`∇f = A·∇log π`。\n"
            "3. **A > 0**：`f(ρ) = A·min(ρ, clip(ρ)) = A·min(ρ, 1+ε_high)`，因为 `clip(ρ) ≥ ρ` 当且仅当 `ρ ≤ 1+ε_high`。所以 `ρ > 1+ε_high` 时导数为 0，`ρ < 1−ε_low` 时导数仍是 A。\n"
            "4. **A < 0**：`f(ρ) = A·max(ρ, clip(ρ)) = A·max(ρ, 1−ε_low)`，`ρ < 1−ε_low` 时导数为 0，ρ 偏大时导数仍是 A。\n\n"
            "只裁 ρ 而不取 min（`clip(ρ)A`）则走错方向时导数也是 0，再也回不来，这就是 min 的用处。表中 |A| = {size}：A > 0 一列在 {high_bound} 之后不再增大，A < 0 一列在 {low_bound} 之前不再增大。",
            "Let `f(ρ) = min(ρA, clip(ρ)A)`.\n\n"
            "1. **Lower bound**: `min(x, y) ≤ x`, so `f(ρ) ≤ ρA` pointwise; maximising the bound never overrates the CPI objective.\n"
            "2. **Equal to first order**: `1−ε_low < 1 < 1+ε_high`, so near ρ = 1 `clip(ρ) = ρ` and `f(ρ) = ρA`, with the value and derivative of CPI, `∇f = A·∇log π`.\n"
            "3. **A > 0**: `f(ρ) = A·min(ρ, clip(ρ)) = A·min(ρ, 1+ε_high)`, since `clip(ρ) ≥ ρ` exactly when `ρ ≤ 1+ε_high`. The derivative is 0 for `ρ > 1+ε_high` and still A for `ρ < 1−ε_low`.\n"
            "4. **A < 0**: `f(ρ) = A·max(ρ, clip(ρ)) = A·max(ρ, 1−ε_low)`; the derivative is 0 for `ρ < 1−ε_low` and still A for large ρ.\n\n"
            "Clipping ρ without the min (`clip(ρ)A`) would have derivative 0 after a step the wrong way too, with no way back; that is what the min is for. In the table |A| = {size}: the column for A > 0 stops growing after {high_bound}, the one for A < 0 does not grow before {low_bound}.",
        ),
    ),
    needs=("old_log_probs", "advantages"),
    formula="L^CLIP(θ) = Ê_t[min(ρ_t·A_t, clip(ρ_t, 1−ε_low, 1+ε_high)·A_t)]",
    numbers=_clipping,
    grid=_clip_grid,
    code=("mingce.algorithms.losses.compute_policy_loss", "mingce.algorithms.losses.policy_ratio"),
    related=("cpi_objective", "ratio_first_update", "value_clipping"),
)

_RATIO = Topic(
    "ratio_first_update",
    ("比值为什么一开始是 1；重要性采样", "Why the ratio starts at 1; importance sampling"),
    (
        (
            "ratio 一开始为什么恒等于 1",
            "importance sampling 在 ppo 里是怎么用的",
            "重要性采样比值是什么意思",
            "ratio 都等于 1 那还有梯度吗",
            "新旧策略的概率比怎么算，old policy 是哪个",
            "第一个 minibatch 的 ratio 不是 1 说明什么",
        ),
        (
            "why is the ratio 1 at the beginning",
            "importance sampling in PPO",
            "if the ratio is one, is there any gradient?",
            "what are the old and the new policy in the ratio",
            "ratio not equal to 1 on the first minibatch",
        ),
    ),
    (
        (
            "你答题时对“{token}”有 {old_prob} 的把握。老师讲评之前，你还是原来的你，把握没变，所以“现在比当时”就是 1 倍。\n\n"
            "讲评一次之后，你的想法变了一点，把握也变了，倍数才会离开 1。现在它是 {ratio}。\n\n"
            "为什么要记这个倍数？因为题是“当时的你”答的，现在学习的是“现在的你”。当时常说、现在少说的词，要按倍数折算，才公平。",
            "When you answered, you were sure of “{token}” by {old_prob}. Until the teacher has gone through it you are still the same person, so “now compared with then” is 1 times.\n\n"
            "After the first correction your view has moved a little, and only then does the multiplier leave 1. At present it is {ratio}.\n\n"
            "Why keep it? Because the answer was given by the you of then, and the learner is the you of now. Words said often then and seldom now must be counted by that multiplier to be fair.",
        ),
        (
            "`ρ_t = exp(log π(a_t|s_t) − log π_old(a_t|s_t))`：`π_old` 是本步任何更新之前的策略，`π` 是正在更新的。第一次更新时参数相同，指数为 0，ρ 恰为 1；之后每个 minibatch 更新一次，ρ 才散开。\n\n"
            "这里：“{token}”的旧概率 {old_prob}，新概率 {new_prob}，ρ = {ratio}；整句 ρ = {ratios}，平均 {ratio_mean}。\n\n"
            "- ρ = 1 不等于没有梯度：`∇ρ = ρ·∇log π`，在 1 处正是策略梯度 `A·∇log π`。\n"
            "- 第一个 minibatch 上 ρ ≠ 1 是错误的信号：dropout 没关、温度不同、填充或精度使两次前向不一致。\n"
            "- 指数限制在 ±20 之内，防溢出。\n"
            "- 采样引擎的概率（`rollout_log_probs`）与 `old_log_probs` 之差是另一回事，用截断的重要性权重修正。",
            "`ρ_t = exp(log π(a_t|s_t) − log π_old(a_t|s_t))`: `π_old` is the policy before any update of the step, `π` the one being updated. On the first update the parameters are the same, the exponent is 0 and ρ is exactly 1; it spreads out only as minibatch follows minibatch.\n\n"
            "Here: “{token}” had probability {old_prob} and has {new_prob} now, ρ = {ratio}; over the answer ρ = {ratios}, mean {ratio_mean}.\n\n"
            "- ρ = 1 does not mean no gradient: `∇ρ = ρ·∇log π`, which at 1 is the policy gradient `A·∇log π`.\n"
            "- ρ ≠ 1 on the first minibatch is the sign of a bug: dropout left on, another temperature, padding or precision making two forward passes disagree.\n"
            "- The exponent is held within ±20 against overflow.\n"
            "- The gap between the sampler's probability (`rollout_log_probs`) and `old_log_probs` is another matter, mended by truncated importance weights.",
        ),
        (
            "**重要性采样**：只要 `π_old(a) > 0` 处处成立于 `π(a) > 0` 的地方，`E_{a~π_old}[ρ(a)·f(a)] = Σ_a π_old(a)·(π(a)/π_old(a))·f(a) = E_{a~π}[f(a)]`。取 `f = 1` 得 `E_{π_old}[ρ] = 1`：比值的期望恒为 1，不只在第一步；样本平均 {ratio_mean} 是它的估计。\n\n"
            "**梯度**：`∇_θ ρ = ∇π/π_old = ρ·∇log π`。在 `θ = θ_old` 处 ρ = 1，故 `∇E[ρA] = E[A·∇log π]`，即策略梯度。\n\n"
            "**方差**：`Var_{π_old}(ρ) = Σ_a π(a)²/π_old(a) − 1`，即 χ² 散度，π 离得越远越大；整句的 ρ 是逐 token 之积，方差随长度指数增长。所以 PPO 用逐 token 的 ρ 并加裁剪，代价是状态分布仍按旧策略算（有偏，但一阶正确）。",
            "**Importance sampling**: as long as `π_old(a) > 0` wherever `π(a) > 0`, `E_{a~π_old}[ρ(a)·f(a)] = Σ_a π_old(a)·(π(a)/π_old(a))·f(a) = E_{a~π}[f(a)]`. With `f = 1`, `E_{π_old}[ρ] = 1`: the expected ratio is always 1, not only at first; the sample mean {ratio_mean} estimates it.\n\n"
            "**Gradient**: `∇_θ ρ = ∇π/π_old = ρ·∇log π`. At `θ = θ_old` ρ = 1, so `∇E[ρA] = E[A·∇log π]`, the policy gradient.\n\n"
            "**Variance**: `Var_{π_old}(ρ) = Σ_a π(a)²/π_old(a) − 1`, the χ² divergence, which grows with the distance; the ratio of a whole answer is a product over tokens, and its variance grows exponentially with the length. So PPO takes ρ token by token and clips it, at the price of leaving the states distributed as the old policy left them (biased, but right to first order).",
        ),
    ),
    needs=("old_log_probs",),
    formula="ρ_t = π_θ(a_t|s_t)/π_old(a_t|s_t) = exp(log π_θ − log π_old)",
    numbers=_ratio,
    each="ρ_{t} = exp({new_log_prob} − {old_log_prob}) = {ratio}",
    code=("mingce.algorithms.losses.policy_ratio",),
    related=("cpi_objective", "ppo_clip"),
)

TOPICS: tuple[Topic, ...] = (_CPI, _CLIP, _RATIO)
