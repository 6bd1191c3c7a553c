"""What is taken over many choices: the entropy of one, and the losses of all."""

from __future__ import annotations

import math

from mingce.algorithms import reference
from mingce.explain.example import Rollout
from mingce.explain.topic import Grid, Topic, Values, listed
from mingce.explain.topics.chosen import chosen_slots, each, log_probs, mean

_MODES = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm")


def _undecided(rollout: Rollout, t: int) -> Values:
    old = rollout["columns"]["old_log_probs"]
    surprisal = each(rollout, lambda s: -old[s])
    prob = min(math.exp(old[t]), 1.0)
    rest = math.log1p(-prob) if prob < 1 else -math.inf
    return {
        "old_prob": prob,
        "surprisal": surprisal[t],
        "surprisals": listed(surprisal),
        "entropy_estimate": mean(surprisal),
        "entropy_least": reference.entropy([math.log(prob), rest]),
    }


def _two_rows(rollout: Rollout) -> tuple[list[list[float]], list[list[int]]]:
    """A batch of two: the rollout's token losses, and the same cut after its first chosen token."""
    old, new = log_probs(rollout)
    raw, slots = rollout["columns"]["advantages"], chosen_slots(rollout)
    whole = [reference.cpi_term(old[s], new[s], raw[s]) if s in slots else 0.0 for s in range(len(raw))]
    masks = [[int(s in slots) for s in range(len(raw))], [int(s == slots[0]) for s in range(len(raw))]]
    return [whole, whole], masks


def _averages(rollout: Rollout, t: int) -> Values:
    losses, masks = _two_rows(rollout)
    slots = chosen_slots(rollout)
    return {
        "loss_list": listed([losses[0][s] if s in slots else None for s in range(len(losses[0]))]),
        "loss_sum": math.fsum(losses[0][s] for s in slots),
        "loss_mean": reference.agg_loss(losses[:1], masks[:1]),
        "first_token": rollout["tokens"][slots[0]]["text"],
        "first_loss": losses[0][slots[0]],
        "both_count": len(slots) + 1,
        "token_mean": reference.agg_loss(losses, masks, "token-mean"),
        "row_mean": reference.agg_loss(losses, masks, "seq-mean-token-mean"),
    }


def _average_grid(rollout: Rollout, t: int) -> Grid:
    losses, masks = _two_rows(rollout)
    rows = tuple((mode, reference.agg_loss(losses, masks, mode)) for mode in _MODES)
    return Grid((("聚合方式", "mode"), ("两行合起来的损失", "loss of both rows")), rows)


_ENTROPY = Topic(
    "entropy",
    ("熵：策略有多犹豫，熵奖励做什么", "Entropy: how undecided the policy is, and what the bonus does"),
    (
        (
            "entropy 掉到 0 是不是训崩了",
            "entropy bonus 系数怎么设",
            "策略熵是什么，为什么要加进 loss",
            "熵塌缩怎么办",
            "模型输出越来越单一，多样性没了",
        ),
        (
            "entropy collapse in PPO",
            "what is the policy entropy",
            "entropy coefficient, should I use it",
            "answers become all the same, diversity is lost",
            "why add entropy to the loss",
        ),
    ),
    (
        (
            "点菜时，如果你对每道菜都差不多喜欢，就很犹豫；如果只认一道，就毫不犹豫。熵就是犹豫的程度。\n\n"
            "模型选“{token}”时有 {old_prob} 的把握。把握越大，说出来越不让人意外；它的意外程度是 {surprisal}，整句平均 {entropy_estimate}。\n\n"
            "太早不犹豫不好：只点一道菜，就永远不知道别的好不好吃。所以有时给“保持犹豫”发一点奖励，让它多试试。",
            "Ordering food: if you like every dish about equally you are undecided; if you only ever take one, you are not. Entropy is how undecided you are.\n\n"
            "The model was sure of “{token}” by {old_prob}. The surer, the less surprising it is to hear it; its surprise is {surprisal}, {entropy_estimate} on average over the answer.\n\n"
            "Being decided too early is bad: who orders one dish only never learns about the others. So sometimes a little reward is given for staying undecided, to keep trying.",
        ),
        (
            "`H_t = −Σ_a π(a|s_t)·log π(a|s_t)`，对整个词表求和，与抽到哪个 token 无关。\n\n"
            "只有抽到的 token 的对数概率时，`−log π_old(a_t)` = {surprisals} 的平均 {entropy_estimate} 是熵的无偏估计（同策略、同温度）。另有下界：“{token}”的概率是 {old_prob}，仅按“它／不是它”分两类，`H_t` 就不小于 {entropy_least}。\n\n"
            "- 熵奖励：损失减去 `c·mean_t H_t`，梯度把分布推平；`actor.entropy_coef` 通常很小或为 0。\n"
            "- 熵迅速归零：所有样本雷同，组内优势全为 0，学不动了。先查学习率、温度、裁剪上界（clip_high 放宽让低概率 token 有上升空间），再考虑熵奖励。\n"
            "- 记录的熵与 `−log π_old` 的平均长期不等，说明采样用了别的温度或 top-p。",
            "`H_t = −Σ_a π(a|s_t)·log π(a|s_t)` over the whole vocabulary, whichever token was drawn.\n\n"
            "Knowing the drawn tokens' log-probabilities only, the mean {entropy_estimate} of `−log π_old(a_t)` = {surprisals} estimates it without bias (on policy, same temperature). There is a lower bound too: “{token}” has probability {old_prob}, and already the split into “this one or another” makes `H_t` at least {entropy_least}.\n\n"
            "- The bonus: the loss has `c·mean_t H_t` taken off, and the gradient flattens the distribution; `actor.entropy_coef` is usually small or 0.\n"
            "- Entropy rushing to 0: all samples are alike, group advantages are 0, nothing is learnt. Look at the learning rate, the temperature and the upper clip first (a wider clip_high lets unlikely tokens rise), then at a bonus.\n"
            "- A recorded entropy that stays unlike the mean of `−log π_old` says that samples were drawn at another temperature or with top-p.",
        ),
        (
            "- **无偏**：`a ~ π` 时 `E[−log π(a)] = −Σ_a π·log π = H`。\n"
            "- **梯度**：`∇H = −Σ_a ∇π·(log π + 1) = −E_π[∇log π·(log π + 1)] = −E_π[log π·∇log π]`，因为 `E[∇log π] = 0`。它等于把 `−log π(a)` 当作优势的策略梯度：越意外的 token 越受鼓励。\n"
            "- **与 KL 的关系**：`KL(π‖均匀) = log|A| − H`，所以熵奖励就是以均匀分布为参考模型的 KL 惩罚；以预训练模型为参考的 KL 则不会把不通顺的话也推高。\n"
            "- **下界**：记 `p = π(a_t)`。熵的分组性质：`H = H₂(p) + (1−p)·H(其余) ≥ H₂(p)`，`H₂(p) = −p·log p − (1−p)·log(1−p)`。例中 p = {old_prob}，`H₂(p)` = {entropy_least}。\n"
            "- **策略梯度使熵下降**：softmax 的一步自然梯度更新下，`ΔH ≈ −η·Cov_π(log π(a), A(a))`：本来就可能的 token 又得正优势时熵下降。",
            "- **Unbiased**: with `a ~ π`, `E[−log π(a)] = −Σ_a π·log π = H`.\n"
            "- **Gradient**: `∇H = −Σ_a ∇π·(log π + 1) = −E_π[∇log π·(log π + 1)] = −E_π[log π·∇log π]`, as `E[∇log π] = 0`. It is a policy gradient with `−log π(a)` for the advantage: the more surprising a token, the more it is encouraged.\n"
            "- **And the KL**: `KL(π‖uniform) = log|A| − H`, so the bonus is a KL penalty with the uniform distribution as reference; a KL to the pretrained model does not push up nonsense too.\n"
            "- **Lower bound**: let `p = π(a_t)`. By grouping, `H = H₂(p) + (1−p)·H(the rest) ≥ H₂(p)` with `H₂(p) = −p·log p − (1−p)·log(1−p)`. Here p = {old_prob} and `H₂(p)` = {entropy_least}.\n"
            "- **Policy gradients lower it**: for a softmax and one natural gradient step, `ΔH ≈ −η·Cov_π(log π(a), A(a))`: when likely tokens also get positive advantages, entropy falls.",
        ),
    ),
    needs=("old_log_probs",),
    formula="H_t = −Σ_a π(a|s_t)·log π(a|s_t)",
    numbers=_undecided,
    code=("mingce.algorithms.losses.entropy_from_logits", "mingce.algorithms.losses.compute_entropy_loss"),
    related=("kl_where", "ppo_clip"),
)

_AGGREGATION = Topic(
    "loss_aggregation",
    ("损失怎样聚合：按 token 平均还是按回答平均", "How losses are averaged: over tokens or over answers"),
    (
        (
            "loss_agg_mode 选哪个",
            "token-mean、seq-mean-token-sum 是什么意思",
            "长回答和短回答的权重一样吗",
            "Dr. GRPO 说的长度偏差是怎么回事",
            "micro batch 的 loss 直接平均对不对",
            "梯度累积时分母应该是多少",
        ),
        (
            "loss aggregation mode token-mean or seq-mean",
            "do long answers weigh more than short ones",
            "length bias in GRPO, Dr. GRPO normalisation",
            "is averaging micro-batch losses correct",
            "what is the right denominator with gradient accumulation",
        ),
    ),
    (
        (
            "全班交作文，有人写得长，有人写得短，怎么算全班的平均？\n\n"
            "可以**按字算**：每个字一票，写得长的人票多。也可以**按人算**：每人一票，字少的人每个字就更重。\n\n"
            "假设有两篇：一篇是“{response}”，另一篇只写到“{first_token}”就停了。按字算，平均是 {token_mean}；按人算，是 {row_mean}。题目一样，算法不同，学到的也不同。",
            "A class hands in essays, some long, some short. How to take the class's average?\n\n"
            "**By the word**: each word has one vote, so long essays have more. **By the pupil**: each pupil has one vote, so each word of a short essay weighs more.\n\n"
            "Say there are two: “{response}”, and one that stops after “{first_token}”. By the word the average is {token_mean}, by the pupil {row_mean}. Same essays, another rule, and something else is learnt.",
        ),
        (
            "这一行逐 token 的损失 `−ρ_t·A_t`（未白化）= {loss_list}，和 {loss_sum}，平均 {loss_mean}。再假想一行，同样开头但说完“{first_token}”就停，只有一个 token，损失 {first_loss}。两行合成一批，共 {both_count} 个 token：\n\n"
            "- **token-mean**：所有 token 之和除以总数，{token_mean}。长行权重大；DAPO 与 mingce 的默认。\n"
            "- **seq-mean-token-mean**：先行内平均再行间平均，{row_mean}。每行一票；长回答里每个 token 的梯度被 1/长度 摊薄（GRPO 的长度偏差：错的长回答罚得轻）。\n"
            "- **seq-mean-token-sum**：行内求和再行间平均，是策略梯度的原式。\n"
            "- **…-norm**：再除以一个常数（Dr. GRPO），只差学习率。\n\n"
            "分母要用**整步、所有进程**的总数，不是 micro-batch 自己的：各 micro-batch 先平均再平均，token 多少不一时就错了。",
            "This row's token losses `−ρ_t·A_t` (raw) are {loss_list}, their sum {loss_sum}, their mean {loss_mean}. Imagine one more row that begins the same and stops after “{first_token}”: one token, a loss of {first_loss}. Together a batch of {both_count} tokens:\n\n"
            "- **token-mean**: the sum of all tokens over their number, {token_mean}. Long rows weigh more; the default of DAPO and of mingce.\n"
            "- **seq-mean-token-mean**: averaged within rows, then over rows, {row_mean}. One vote a row; in a long answer each token's gradient is thinned by 1/length (GRPO's length bias: long wrong answers are punished less).\n"
            "- **seq-mean-token-sum**: summed within rows, averaged over rows; the policy gradient as it is derived.\n"
            "- **…-norm**: divided by a constant besides (Dr. GRPO); only the learning rate differs.\n\n"
            "The denominator is that of the **whole step, all ranks**, not a micro-batch's own: averaging averages goes wrong as soon as micro-batches differ in tokens.",
        ),
        (
            "策略梯度：`∇J = E_y[Σ_t A_t·∇log π(a_t|s_t)]`，对一批 B 行的无偏估计是 `(1/B)·Σ_i Σ_t A_{i,t}·∇log π`，即 seq-mean-token-sum；除以常数 C 只改学习率。\n\n"
            "- **seq-mean-token-mean** 给第 i 行乘 `1/n_i`（长度）。`n_i` 与回答有关，`E[(1/n)·Σ_t A_t·∇log π] ≠ c·∇J`：有偏，偏向让负优势的回答变长、正优势的变短。\n"
            "- **token-mean** 乘 `1/Σ_i n_i`：同一批内各行的系数相同，方向与 seq-mean-token-sum 完全一致，差一个 `B/Σ_i n_i`；它随批波动，且与样本相关，只有 O(1/B) 的偏差。\n"
            "- **拆分不变**：把一步拆成若干 micro-batch，若每份都除以全局总数 N，`Σ_m (1/N)·Σ_{i∈m} ℓ_i = (1/N)·Σ_i ℓ_i`，与怎样拆无关；若各除以自己的 `N_m` 再平均，只有 `N_m` 全相等时才相同。\n\n"
            "例中 token-mean = (和 {loss_sum} + 一个 {first_loss})/{both_count} = {token_mean}；seq-mean-token-mean = ({loss_mean} + {first_loss})/2 = {row_mean}。",
            "The policy gradient `∇J = E_y[Σ_t A_t·∇log π(a_t|s_t)]` has the unbiased estimate `(1/B)·Σ_i Σ_t A_{i,t}·∇log π` over B rows, which is seq-mean-token-sum; dividing by a constant C only changes the learning rate.\n\n"
            "- **seq-mean-token-mean** multiplies row i by `1/n_i`, its length. `n_i` depends on the answer, and `E[(1/n)·Σ_t A_t·∇log π] ≠ c·∇J`: biased, towards longer answers where advantages are negative and shorter ones where they are positive.\n"
            "- **token-mean** multiplies by `1/Σ_i n_i`: within a batch every row has the same factor, so its direction is that of seq-mean-token-sum, scaled by `B/Σ_i n_i`; that varies with the batch and the samples, a bias of O(1/B) only.\n"
            "- **Splitting**: divide each micro-batch by the global total N and `Σ_m (1/N)·Σ_{i∈m} ℓ_i = (1/N)·Σ_i ℓ_i` however it was split; divide each by its own `N_m` and average, and it is the same only if all `N_m` are equal.\n\n"
            "In the example token-mean = (sum {loss_sum} + one {first_loss})/{both_count} = {token_mean}; seq-mean-token-mean = ({loss_mean} + {first_loss})/2 = {row_mean}.",
        ),
    ),
    needs=("old_log_probs", "advantages"),
    formula="token-mean: Σ_i Σ_t ℓ_{i,t} / Σ_i n_i;   seq-mean-token-mean: (1/B)·Σ_i (1/n_i)·Σ_t ℓ_{i,t}",
    numbers=_averages,
    grid=_average_grid,
    code=("mingce.algorithms.losses.agg_loss", "mingce.algorithms.losses.batch_totals"),
    related=("ppo_clip", "group_baseline", "masks_eos"),
)

TOPICS: tuple[Topic, ...] = (_ENTROPY, _AGGREGATION)
