"""The longer meaning of each column, name → (中文, English). The table itself is columns.py; this file is its prose."""

from __future__ import annotations

MEANINGS: dict[str, tuple[str, str]] = {
    "token_ids": (
        "回答占据的每个槽位上的 token 编号，从 0 开始数。槽位 t 上的 token 就是动作 a_t：在状态 s_t（提示加上前 t 个 token）下选出它，"
        "状态变成 s_{t+1}。工具输出也占槽位，它们是上下文而不是动作，所以保留编号、response_mask 为 0；填充槽位存 0。",
        "The token in each slot of the response, counted from 0. The token in slot t is the action a_t: choosing it in state s_t (the "
        "prompt and the first t tokens) leads to s_{t+1}. Tool output takes up slots as well; it is context, not action, so its ids are "
        "kept while response_mask is 0. Padding is stored as 0.",
    ),
    "attention_mask": (
        "标出哪些槽位真的有 token。它与 response_mask 不同的地方正是工具输出：模型要读到它们，但它们不是策略选的。分不清这两个掩码，"
        "是“得分写到被掩掉的位置”“KL 算进工具输出”这类错误的来源。",
        "Tells which slots hold a token at all. Where it differs from response_mask there is tool output: the model must read it, the policy "
        "did not choose it. Confusing the two masks is how scores end up on masked slots and KL on tool output.",
    ),
    "response_mask": (
        "只有策略自己选的 token 才有账：奖励、优势、损失都只在 m_t = 1 处有意义。递推会跨过 m_t = 0 的槽位：下一个价值、下一个优势取自"
        "下一个被选的 token。掩码后面的任何东西，哪怕是 NaN，都不能改变前面的任何一个数。",
        "Only tokens the policy chose have an account: rewards, advantages and losses mean something where m_t = 1 and nowhere else. "
        "Recursions step over slots with m_t = 0, taking the next value and the next advantage from the next chosen token. Nothing behind "
        "the mask, not even a NaN, may change a number in front of it.",
    ),
    "loss_mask": (
        "通常就是 response_mask。当 truncation = mask 时，被长度上限截断的整条回答不参与损失和白化统计，但它的账仍然照记，所以需要单独一列。",
        "Usually just response_mask. With truncation = mask, rollouts cut by the length limit stay out of the losses and of the whitening "
        "statistics while their account is still kept, hence a column of its own.",
    ),
    "rollout_log_probs": (
        "token 是从 q 里抽出来的，所以这一列必须是 q 的对数概率：温度、top-k、top-p 都已作用并重新归一化。若记的是别的分布，"
        "E[exp(old − rollout)] 就不再等于 1，这是最便宜也最灵敏的检查。",
        "Tokens are drawn from q, so this must be q's log-probability, with temperature, top-k and top-p applied and renormalised. If it is "
        "any other distribution's, E[exp(old − rollout)] is no longer 1, which is the cheapest and sharpest check there is.",
    ),
    "old_log_probs": (
        "训练端用同一温度重新算一遍得到的对数概率，在本步的任何更新之前。它是比值 ρ_t 的分母。它与 rollout_log_probs 的差只应是数值噪声；"
        "差得多，就说明采样引擎与训练端不是同一个策略。",
        "What the trainer's own forward pass gives at the same temperature, before any update of the step. It is the denominator of the ratio "
        "ρ_t. It should differ from rollout_log_probs by numerical noise only; a larger gap means that sampler and trainer are not the same policy.",
    ),
    "entropy": (
        "策略在 s_t 处整个分布的熵，与抽到哪个 token 无关。对同策略样本，−log π_old 的平均应等于熵的平均；不等，说明采样时的温度或截断与这里不同。"
        "训练中熵迅速归零，往往意味着策略塌缩。",
        "The entropy of the whole distribution at s_t, whichever token was drawn. On on-policy samples the mean of −log π_old equals the mean "
        "entropy; if not, the samples came from another temperature or a truncated distribution. Entropy that rushes to zero usually means collapse.",
    ),
    "ref_log_probs": (
        "参考模型是训练开始时的那个模型，从不更新。它只用来衡量漂移：第 0 步时它与 old_log_probs 应当相等，KL 应当为 0；"
        "若训练很久之后仍处处相等，多半是参考模型跟着一起更新了。",
        "The reference is the model as it was when training began, never updated. It serves only to measure drift: at step 0 it equals "
        "old_log_probs and the KL is 0. If they are still equal everywhere much later, the reference is probably being updated along.",
    ),
    "scores": (
        "环境对回答的评价。最常见的是整句说完才给一个分，写在最后一个被选的 token 上，其余为 0；也可以是稠密的，每完成一部分就给一部分。"
        "前面的 token 得分为 0 并不表示它们不重要，把功劳传回去是优势的事。",
        "What the environment thinks of the answer. Most often one number once the answer is complete, written on the last chosen token, 0 "
        "elsewhere; or dense, a part for each thing done. A 0 on an early token does not say it did not matter: passing credit back is what advantages do.",
    ),
    "kl": (
        "对数概率之差 x = log π_old − log π_ref 的某种估计：k1 = x（无偏，单个 token 可为负），abs = |x|，k2 = ½x²，k3 = e^{−x} − 1 + x"
        "（恒非负，方差小），full 则对整个词表求和。单个 token 的负 KL 不是错误：这个选择比参考模型更不愿意说它。",
        "An estimate made of x = log π_old − log π_ref: k1 = x (unbiased, a single token may be negative), abs = |x|, k2 = ½x², "
        "k3 = e^{−x} − 1 + x (never negative, low variance), or full, summed over the vocabulary. A negative k1 is no mistake: the policy "
        "liked this token less than the reference does.",
    ),
    "rewards": (
        "强化学习真正优化的即时信号 r(s_t, a_t, s_{t+1})，存放在动作的槽位上。每个 token 先付 KL 的价钱 β·k_t，最后一个 token 再领任务得分。"
        "若 KL 放在损失里，或 β = 0，奖励就等于得分。",
        "The immediate signal that is optimised, r(s_t, a_t, s_{t+1}), stored in the slot of its action. Every token pays β·k_t for its KL, "
        "the last one collects the task's score. With the KL in the loss instead, or β = 0, rewards are the scores.",
    ),
    "values": (
        "critic 站在 s_t（还没说第 t 个 token）预计从现在到结束的总奖励，所以包含 r_t。它读自第 t 个 token 的前一个位置，即整行的切片 "
        "[-T-1:-1]。奖励集中在结尾时，越接近成功，价值越高；每步都给正奖励时，剩下的越来越少，价值反而递减。",
        "Standing at s_t, with token t not yet said, the critic's estimate of all reward from here to the end, so r_t is part of it. It is read "
        "one position before token t, the slice [-T-1:-1] of the row. With the reward at the end, values rise as success comes nearer; with a "
        "reward on each step they fall, because less is left to collect.",
    ),
    "deltas": (
        "一步之内，现实与 critic 预期的差：得到 r_t，又发现下一个状态值 V(s_{t+1})，而之前只估了 V(s_t)。正的 δ 说明这一步带来了好消息。"
        "最后一个被选的 token 之后没有未来，V 取 0；被截断且 truncation = bootstrap 时取 critic 的估计。",
        "Reality against the critic's expectation over a single step: you got r_t and find yourself in a state worth V(s_{t+1}), having expected "
        "V(s_t). A positive δ is good news. After the last chosen token there is no future and V is 0, unless the response was cut and "
        "truncation = bootstrap.",
    ),
    "attention_weights": (
        "把整句的奖励按注意力分给各个 token 时所用的权重，归一化到和为 1。它是一种启发式的信用分配：被最后一个 token 看得多的，分得多。",
        "The weights for sharing out a response's reward by attention, normalised to sum to 1. A heuristic way to assign credit: what the last "
        "token looked at most, gets most.",
    ),
    "advantages": (
        "策略更新的方向：正则提高这个 token 的概率，负则降低。GAE 把之后所有 TD 误差按 (γλ)^k 衰减后加起来，于是结尾的得分能传回开头的 token。"
        "λ = 0 时只看一步（A = δ），λ = 1 时是蒙特卡洛回报减去价值。这一列是未白化的原值，returns 由它得出。",
        "Which way the policy is pushed: positive makes the token likelier, negative less likely. GAE adds up all later TD errors, weighted "
        "(γλ)^k, so a score at the end reaches the first token. With λ = 0 it looks one step ahead (A = δ), with λ = 1 it is the Monte Carlo "
        "return minus the value. These are the raw numbers, from which the returns are made.",
    ),
    "returns": (
        "critic 要拟合的目标，与 values 对齐在同一个状态 s_t 上。总是用未白化的优势相加，否则目标的尺度会被整批统计量弄乱。"
        "λ = 1 时它是实际的折扣奖励和，λ = 0 时是一步 TD 目标 r_t + γV(s_{t+1})，其间是二者的加权混合。",
        "What the critic is fitted to, aligned with values on the state s_t. Always made of raw advantages; whitened ones would pull the target "
        "onto another scale. With λ = 1 it is the discounted sum of the rewards that came, with λ = 0 the one-step target r_t + γV(s_{t+1}), in "
        "between a weighted mixture.",
    ),
    "whitened_advantages": (
        "减去均值、除以标准差（Bessel 修正），统计量取自整批、所有进程上参与损失的 token，而不是每个小批各算各的。它只改变步长的尺度，"
        "让学习率不必随奖励大小重调。只有一个 token 或方差为零时，结果定义为 0。",
        "Mean taken off, divided by the standard deviation (Bessel), the statistics being those of every token in the losses, over the whole "
        "batch and all ranks, never per micro-batch. It only sets the scale of a step, so that the learning rate need not follow the size of "
        "the rewards. One token alone, or no variance, gives zeros.",
    ),
    "new_log_probs": (
        "更新中每次前向得到的对数概率。账本保存的是这一步里最后一次使用它时的值，即损失真正用到的数，不为展示另算。",
        "The log-probability from the forward pass of an update. The ledger keeps the one that the loss last used in this step; nothing is "
        "computed again for display.",
    ),
    "ratio": (
        "ρ_t = 1 表示策略对这个 token 的看法还没变。第一个小批上它必须恰好为 1，否则两次前向不一致（dropout、填充、精度）。"
        "指数限制在 ±20 之内，防止溢出。",
        "ρ_t = 1 says that the policy's view of this token has not changed. On the first minibatch it must be 1, or the two forward passes "
        "disagree (dropout, padding, precision). The exponent is held within ±20 against overflow.",
    ),
    "clipped": (
        "PPO 不让一次更新走太远：好动作的比值超过 1+ε_high、坏动作的比值低于 1−ε_low 之后，这一项成为常数，梯度为零。"
        "只有裁剪真正决定了取值才记 1；刚好相等或优势为 0 不算。",
        "PPO does not let one update go too far: once a good token's ratio passes 1+ε_high, or a bad one's falls below 1−ε_low, its term is a "
        "constant and its gradient zero. Counted only where the clip decided the value; a tie, or an advantage of 0, is not.",
    ),
    "dual_clipped": (
        "对坏动作，若比值已经很大，−ρÂ 会无上限地增大，一个 token 就能左右整个梯度；dual clip 用 −cÂ 封顶。它是 clipped 的一个子集。",
        "For a bad token whose ratio has become large, −ρÂ grows without limit and one token can rule the gradient; the dual clip caps it at "
        "−cÂ. A subset of clipped.",
    ),
    "policy_loss": (
        "取 min 是悲观的：只在裁剪让目标变差时才采用裁剪后的值。整步的损失是所有进入损失的 token 之和除以它们的总数，与怎样切小批无关。"
        "cpi 是 TRPO 的代理目标，不裁剪；第一次更新时 ρ = 1，它就是优势平均值的相反数。",
        "Taking the minimum is pessimistic: the clipped value counts only where it makes the objective worse. A step's loss is the sum over "
        "the tokens in the losses divided by their number, however the batch is split. cpi is TRPO's surrogate, without a clip; on the first "
        "update ρ = 1 and it is minus the mean advantage.",
    ),
    "new_entropy": (
        "熵奖励鼓励策略保持犹豫，系数乘以它的平均值，从损失里减去。",
        "The entropy bonus keeps the policy from deciding too early: a coefficient times its mean is taken off the loss.",
    ),
    "kl_loss": (
        "把 KL 直接放进损失，梯度会流过 log π。注意 k1 的样本梯度与参考模型无关，不能用作损失；k2 的梯度是对的，名字带 + 的估计"
        "（k3+）取自己的值、用 k2 的梯度。同时在奖励和损失里都放 KL，就罚了两次。",
        "With the KL in the loss, the gradient flows through log π. The sample gradient of k1 does not depend on the reference at all, so it "
        "cannot serve as a loss; k2 has the right gradient, and names ending in + (k3+) take their own value with k2's gradient. KL in the "
        "reward and in the loss at once is paid twice.",
    ),
    "new_values": (
        "critic 更新中的前向结果。它向 returns 靠拢；价值裁剪限制它相对旧值 V(s_t) 一次最多移动 ε_V。",
        "What the critic says in the forward pass of an update. It moves towards the returns; the value clip limits how far it may get from "
        "the old V(s_t), by ε_V.",
    ),
    "value_clipped": (
        "新价值跑出了旧价值 ± ε_V，而裁剪后的误差更大，于是取裁剪后的那个，梯度为零。这一列的平均就是 vf_clipfrac。",
        "The new value left the old one ± ε_V and the clipped error is the larger, so the clipped one is taken and the gradient is zero. The "
        "mean of this column is vf_clipfrac.",
    ),
    "value_loss": (
        "价值拟合回报的平方误差，½ 已含在内，所以这一列的平均就是 vf_loss。取 max 与策略损失的 min 同理：悲观。",
        "The squared error of fitting the value to the return, the ½ included, so the mean of this column is vf_loss. The max is pessimistic "
        "for the same reason as the policy loss's min.",
    ),
    "uid": (
        "一条回答的编号，整个运行内不会重复，账本、页面和审计都用它指认同一条回答。",
        "Names one rollout, never repeated in a run; ledger, page and audit point at the same rollout by it.",
    ),
    "group": (
        "同一个提示采样多次时，这些回答属于同一组。GRPO、RLOO 的基线取自组内；分组分错是这个领域最常见的错误，所以组号由提示决定，"
        "从不由排列位置推断。",
        "When a prompt is sampled several times, those rollouts form a group, and GRPO's and RLOO's baseline comes from it. Wrongly formed "
        "groups are the commonest bug of this field, so the group is given by the prompt and never guessed from the order of the rows.",
    ),
    "data_source": (
        "数据集或任务的名字。打分函数按它选择；未知的来源是错误，不会悄悄记 0 分。",
        "The name of the data set or task. The scorer is chosen by it; an unknown source is an error, never a silent 0.",
    ),
    "prompt": (
        "套用对话模板之后、分词之前的提示文本。", "The text of the prompt, after the chat template and before the tokenizer.",
    ),
    "prompt_ids": (
        "提示的 token 编号，长短不一，不含填充；只在前向需要时才在左侧补齐，位置编号随之修正。",
        "The prompt's token ids, ragged, without padding; they are padded on the left only where a pass needs it, with position ids to match.",
    ),
    "response": (
        "回答的文本，去掉特殊 token。打分函数看到的就是它。",
        "The text of the response without special tokens; exactly what the scorer was given.",
    ),
    "finish_reason": (
        "stop 表示遇到结束符或停止符，之后没有未来，V = 0；length 表示被长度上限切断，如何处理由 truncation 决定（zero、bootstrap、mask）。",
        "stop: an end or stop token was drawn, there is no future and V = 0. length: the limit cut it off, and truncation decides what "
        "follows (zero, bootstrap, mask).",
    ),
    "score_parts": (
        "打分函数返回字典时，总分之外的各个部分，按名字全部记录，便于看出分数从哪里来。",
        "When the scorer returns a dictionary, its parts beside the total, all logged by name, so that one sees where a score comes from.",
    ),
    "bootstrap_value": (
        "critic 在最后一个 token 之后的状态上的估计。只有被截断的回答在 truncation = bootstrap 时用到它：话没说完，未来不该算作 0。",
        "The critic's estimate of the state after the last token. Used only for responses that were cut, with truncation = bootstrap: the "
        "sentence is not over, so its future is not 0.",
    ),
    "step": (
        "产生并使用这条回答的训练步，从 1 开始；0 指训练之前。", "The training step in which the rollout was drawn and used, from 1; 0 stands for before training.",
    ),
    "policy_version": (
        "采样时策略经历过的更新次数。它小于学习者的版本，就是异策略数据。",
        "How many updates the policy had had when it drew the rollout. Smaller than the learner's own version means off-policy data.",
    ),
    "temperature": (
        "采样时 logits 除以的温度。训练端算 old_log_probs 时必须用同一个温度，否则比较的是两个不同的分布。",
        "What the logits were divided by. old_log_probs must be computed at the same temperature, or two different distributions are compared.",
    ),
}  # fmt: skip

FORMULAS_ZH: dict[str, str] = {  # the formulae of columns.py that have words in them
    "token_ids": "a_t = y_t，m_t = 1 处按 q(·|s_t) 抽取",
    "attention_mask": "n_t = 1：槽位 t 上有 token；填充处为 0",
    "response_mask": "m_t = 1：y_t 是策略选的",
    "loss_mask": "ℓ_t = m_t；truncation = mask 时，被长度上限截断的行为 0",
    "rollout_log_probs": "log q(a_t|s_t)，q 正是抽样所用的分布（温度、top-k、top-p、min-p）",
    "old_log_probs": "log π_old(a_t|s_t)，本步任何更新之前",
    "scores": "score_t = 0，最后一个被选 token 除外；或逐 token 给分",
    "kl": "k_t = log π_old(a_t) − log π_ref(a_t)（k1；另有 abs、k2、k3、full）",
    "values": "V(s_t)，在 token t 之前由 critic 读出",
    "attention_weights": "w_t ≥ 0：最后一个被选 token 对 y_t 的注意力",
    "advantages": "A_t = δ_t + γλ·A_{t+1}，δ_t = r_t + γ·V(s_{t+1}) − V(s_t)（GAE；其他估计器各有公式）",
    "whitened_advantages": "Â_t = (A_t − μ)/√(σ² + 10⁻⁸)，在整批上",
    "new_log_probs": "log π(a_t|s_t)，由更新中的策略给出",
    "ratio": "ρ_t = exp(log π(a_t) − log π_old(a_t))，指数限制在 ±20 以内",
    "clipped": "c_t = 1：这一项由 ρ_t 的裁剪决定（ε 或 dual clip）",
    "dual_clipped": "d_t = 1：Â_t < 0 且 ρ_t > c（dual clip）",
    "policy_loss": "L^π_t = −min(ρ_t·Â_t, clip(ρ_t, 1−ε_low, 1+ε_high)·Â_t)，Â_t < 0 时至多 −c·Â_t；cpi：−ρ_t·Â_t",
    "new_values": "V'(s_t)，由更新中的 critic 给出",
    "value_clipped": "c^V_t = 1，当 |clip(V'(s_t), V(s_t) ± ε_V) − R_t| > |V'(s_t) − R_t|",
    "uid": "在一次运行中唯一",
    "group": "同一提示的样本相同",
    "data_source": "任务或数据集的名字",
    "prompt": "tokenizer 看到的样子",
    "prompt_ids": "x 的 token 编号",
    "response": "decode(n_t = 1 处的 y_t)",
    "score_parts": "得分的各个组成部分",
    "bootstrap_value": "最后一个 token 之后那个状态的 critic 估计",
    "step": "训练步，从 1 数起",
    "policy_version": "抽样之前已做过的更新次数",
}
