"""What advantages are measured against and on which scale: whitening, groups, and where the reward is paid."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from mingce.algorithms import reference
from mingce.explain.example import EPSILON, Rollout
from mingce.explain.topic import Grid, Topic, Values, listed
from mingce.explain.topics.chosen import equation, plain, rows_of, token_of
from mingce.explain.topics.credit import credit_numbers, place_of, same, sides


class _Whitening(NamedTuple):
    """A row's advantages before and after, one a token in the losses, and the statistics of the batch."""

    slots: list[int]
    raw: list[float]
    white: list[float]
    mean: float
    variance: float
    spread: float
    tokens: int


def _whitening(rollout: Rollout) -> _Whitening:
    columns = rollout["columns"]
    slots = reference.chosen(columns.get("loss_mask") or ()) or reference.chosen(columns["response_mask"])
    raw = [plain(float(columns["advantages"][t])) for t in slots]
    batch = rollout.get("whitening")
    if batch is None:
        row = [[1] * len(raw)]
        mean, variance = reference.masked_mean([raw], row), reference.masked_var([raw], row)
        batch = {"mean": mean, "variance": variance, "count": len(raw), "epsilon": EPSILON}
    mean, variance = batch["mean"], batch["variance"]
    spread = math.sqrt(variance + batch["epsilon"])
    white = [plain((x - mean) / spread) if variance > 0 else 0.0 for x in raw]
    return _Whitening(slots, raw, white, plain(mean), variance, spread, int(batch["count"]))


def _whitened(rollout: Rollout, t: int) -> Values:
    found = _whitening(rollout)
    k = found.slots.index(t) if t in found.slots else 0
    numbers: Values = {
        "t": found.slots[k],
        "token": token_of(rollout, found.slots[k]),
        "row_count": len(found.slots),
        "count": found.tokens,
        "mean": found.mean,
        "std": found.spread,
        "std_biased": math.sqrt(found.variance * (found.tokens - 1) / found.tokens),
        "raw": found.raw[k],
        "whitened": found.white[k],
        "raw_list": listed(found.raw),
        "whitened_list": listed(found.white),
        "positive_before": sum(x > 0 for x in found.raw),
        "positive_after": sum(x > 0 for x in found.white),
    }
    return numbers | {"white_equation": equation("({raw} − {mean})/{std} = {whitened}", numbers)}


def _targets(rollout: Rollout, t: int) -> Values:
    """The critic's targets from raw and, wrongly, from whitened advantages."""
    found = _whitening(rollout)
    values = [float(rollout["columns"]["values"][slot]) for slot in found.slots]
    right = [plain(a + v) for a, v in zip(found.raw, values, strict=True)]
    wrong = [plain(a + v) for a, v in zip(found.white, values, strict=True)]
    k = found.slots.index(t) if t in found.slots else 0
    here = {"value": values[k], "return": right[k], "raw": found.raw[k]}
    return (
        _whitened(rollout, t)
        | here
        | {
            "identity": equation("{return} − {value} = {raw}", here),
            "wrong_return": wrong[k],
            "values": listed(values),
            "returns": listed(right),
            "wrong_returns": listed(wrong),
            "mean_value": plain(math.fsum(values) / len(values)),
            "mean_return": plain(math.fsum(right) / len(right)),
            "mean_wrong": plain(math.fsum(wrong) / len(wrong)),
            "mean_white": plain(math.fsum(found.white) / len(values)),
        }
    )


class _Group(NamedTuple):
    """The answers to one prompt: their rewards and masks, which of them is at hand, how many are made up."""

    rewards: list[list[float]]
    masks: list[list[int]]
    own: int
    made_up: int


def _group(rollout: Rollout) -> _Group:
    """The recorded group where it is whole; else the answer at hand, one that earned the same, and two that got 0."""
    siblings = rollout.get("siblings") or []
    rows = [sibling["row"] for sibling in siblings]
    whole = not rollout.get("siblings_left_out") and all(sibling.get("rewards") is not None for sibling in siblings)
    if whole and len(siblings) > 1 and rollout["row"] in rows:
        masks = [[int(bool(m)) for m in sibling["response_mask"]] for sibling in siblings]
        rewards = [[0.0 if x is None else float(x) for x in sibling["rewards"]] for sibling in siblings]
        return _Group(rewards, masks, rows.index(rollout["row"]), 0)
    columns = rollout["columns"]
    own = [0.0 if x is None else float(x) for x in columns["rewards"]]
    mask = [int(bool(m)) for m in columns["response_mask"]]
    total = math.fsum(own[t] for t in reference.chosen(mask))
    return _Group([own, [total], [0.0], [0.0]], [mask, [1], [1], [1]], 0, 3)


def _compared(rollout: Rollout, t: int) -> Values:
    found = _group(rollout)
    slots = reference.chosen(rollout["columns"]["response_mask"])
    group = [0] * len(found.rewards)
    filled = [b for b, mask in enumerate(found.masks) if any(mask)]
    totals = {b: math.fsum(found.rewards[b][s] for s in reference.chosen(found.masks[b])) for b in filled}
    size, own = len(filled), totals[found.own]
    mean = math.fsum(totals.values()) / size
    variance = math.fsum((total - mean) ** 2 for total in totals.values()) / max(1, size - 1)
    first = reference.chosen(found.masks[found.own])[0]
    rloo = reference.rloo(found.rewards, found.masks, group)[found.own][first]
    numbers: Values = {
        "t": t if t in slots else slots[0],
        "token": token_of(rollout, t if t in slots else slots[0]),
        "group_size": size,
        "made_up": found.made_up,
        "totals": listed([plain(total) for total in totals.values()]),
        "own": plain(own),
        "group_mean": plain(mean),
        "group_std": plain(math.sqrt(variance)),
        "others_mean": plain((math.fsum(totals.values()) - own) / max(1, size - 1)),
        "by_grpo": plain(reference.grpo(found.rewards, found.masks, group)[found.own][first]),
        "by_dr_grpo": plain(reference.dr_grpo(found.rewards, found.masks, group)[found.own][first]),
        "by_rloo": plain(rloo),
        "rloo_scaled": plain(rloo * (size - 1) / size),
        "count_chosen": len(slots),
    }
    return numbers | {
        "grpo_equation": equation("({own} − {group_mean})/({group_std} + ε) = {by_grpo}", numbers),
        "dr_grpo_equation": equation("{own} − {group_mean} = {by_dr_grpo}", numbers),
        "rloo_equation": equation("{own} − {others_mean} = {by_rloo}", numbers),
    }


def _compared_grid(rollout: Rollout, t: int) -> Grid:
    """The group's estimators, and GAE where there is a critic, on the first token, on t and on the last."""
    numbers = _compared(rollout, t)
    slots = reference.chosen(rollout["columns"]["response_mask"])
    places = list(dict.fromkeys((slots[0], numbers["t"], slots[-1])))
    rows: list[tuple[Any, ...]] = [
        ("grpo", numbers["group_mean"], *[numbers["by_grpo"]] * len(places)),
        ("dr_grpo", numbers["group_mean"], *[numbers["by_dr_grpo"]] * len(places)),
        ("rloo", numbers["others_mean"], *[numbers["by_rloo"]] * len(places)),
    ]
    if "values" in rollout["columns"]:
        side = sides(rollout)
        rows.append(("gae", "V(s_t)", *(side.advantages[place_of(side, slot)] for slot in places)))
    headings = ("估计", "estimator"), ("基线", "baseline"), *same(*(f"A_{slot}" for slot in places))
    return Grid(headings, tuple(rows))


class _Paid(NamedTuple):
    """The example's total reward paid at the end, and in equal parts, with what is still to come of each."""

    sparse: list[float]
    dense: list[float]
    sparse_returns: list[float]
    dense_returns: list[float]


def _paid(rollout: Rollout) -> _Paid:
    side = sides(rollout)
    count, total = len(side.slots), math.fsum(side.rewards)
    sparse, dense = [0.0] * (count - 1) + [total], [total / count] * count
    mask = [[1] * count]
    returns = [reference.reinforce_plus_plus([row], mask, side.gamma)[0] for row in (sparse, dense)]
    return _Paid(sparse, dense, *([plain(x) for x in row] for row in returns))


def _paid_numbers(rollout: Rollout, t: int) -> Values:
    side, paid = sides(rollout), _paid(rollout)
    return credit_numbers(rollout, t) | {
        "total": plain(math.fsum(side.rewards)),
        "part": plain(paid.dense[0]),
        "last_reward": side.rewards[-1],
        "other_rewards": plain(math.fsum(side.rewards[:-1])),
        "sparse_returns": listed(paid.sparse_returns),
        "dense_returns": listed(paid.dense_returns),
        "first_equation": equation(
            "{first_return} − {first_value} = {first_excess}",
            {
                "first_return": side.mc_returns[0],
                "first_value": side.values[0],
                "first_excess": side.mc_advantages[0],
            },
        ),
        "shaped_sum": plain(math.fsum(side.gamma**k * delta for k, delta in enumerate(side.deltas))),
    }


def _paid_grid(rollout: Rollout, t: int) -> Grid:
    side, paid = sides(rollout), _paid(rollout)

    def row(k: int) -> tuple[Any, ...]:
        return side.slots[k], token_of(rollout, side.slots[k]), side.rewards[k], *(column[k] for column in paid)

    headings = (
        *same("t", "token"), ("r（例子）", "r (example)"), ("r 稀疏", "r sparse"), ("r 稠密", "r dense"),
        ("G 稀疏", "G sparse"), ("G 稠密", "G dense"),
    )  # fmt: skip
    return Grid(headings, tuple(rows_of(len(side.slots), row)))


TOPICS: tuple[Topic, ...] = (
    Topic(
        "whitening",
        ("优势的白化", "Whitening the advantages"),
        (
            (
                "advantage normalization 是干嘛的",
                "标准化优势有没有副作用",
                "白化之后正的优势怎么变负了",
                "masked_whiten 是对一行还是对整个 batch 算的",
                "标准差用 n 还是 n-1",
                "优势归一化会不会改变梯度方向",
            ),
            (
                "What is advantage normalization for?",
                "does normalising the advantages have side effects",
                "my positive advantage turned negative after normalising, why",
                "masked_whiten over a row or over the whole batch?",
                "std with n or n-1 when whitening",
            ),
        ),
        (
            (
                "老师出的卷子有时难、有时容易，光看分数看不出谁学得好。于是老师换一把尺：先看比平均分高多少，再除以大家通常相差多少。这把尺量出来的数，哪次考试都能比。\n\n"
                "这一批共 {count} 个词，平均功劳 {mean}，通常相差 {std}。“{token}”的功劳是 {raw}，换到新尺上是 {whitened}：大于 0 就是比平均好，会被多说；小于 0 就是不如平均，会被少说。\n\n"
                "这句话的 {row_count} 个词里，原来大于 0 的有 {positive_before} 个，换了尺还大于 0 的有 {positive_after} 个。功劳是正的也可能被少说，因为别的词更好。",
                "Exams are sometimes hard and sometimes easy, so a mark alone does not tell who is good. The teacher takes another ruler: how far above the average, divided by how far people usually differ. What this ruler says can be compared from one exam to the next.\n\n"
                "This batch has {count} words with an average credit of {mean}; they usually differ by {std}. The credit of “{token}” is {raw}, on the new ruler {whitened}: above 0 is better than average and will be said more, below 0 is worse than average and will be said less.\n\n"
                "Of the {row_count} words of this answer {positive_before} were above 0 before, and {positive_after} are above 0 on the new ruler. Even a word with positive credit may be said less, because others did better.",
            ),
            (
                "白化就是标准化：`Â_t = (A_t − μ)/√(σ² + ε)`，ε 极小，只防止除以 0。这里 μ = {mean}，√(σ² + ε) = {std}，取自 {count} 个 token；“{token}”由 {raw} 变为 {whitened}。整行 {raw_list} 变为 {whitened_list}。\n\n"
                "- **范围**：统计量取自整批所有进入损失的 token，跨行、跨所有 rank，不是每行、每个小批各算各的。只有一行时（手工输入的例子），这一行就充当整批。\n"
                "- **掩码**：填充和工具输出不进入均值与方差，白化后仍为 0。\n"
                "- **n − 1**：σ² 用 Bessel 修正；除以 n 则是 {std_biased}。样本多时两者无差别，样本少时差得出来，对账时要说清用的是哪个。\n"
                "- **次序**：先用未白化的优势算 `returns`，再白化；白化后的只给策略损失用。\n"
                "- **符号会变**：本行原来有 {positive_before} 个 A > 0，白化后有 {positive_after} 个 Â > 0。减均值是把“比 critic 的预期好”改成“比这批的平均好”。\n"
                "- **退化情形**：只有一个 token，或全部相同，方差为 0，结果定义为 0。",
                "Whitening is standardising: `Â_t = (A_t − μ)/√(σ² + ε)`, ε being tiny and there only against dividing by 0. Here μ = {mean} and √(σ² + ε) = {std}, taken from {count} tokens; “{token}” goes from {raw} to {whitened}. The row {raw_list} becomes {whitened_list}.\n\n"
                "- **Over what**: every token of the whole batch that enters the losses, across rows and all ranks, never row by row or micro-batch by micro-batch. Where there is only one row (numbers typed in), it stands for the batch.\n"
                "- **Mask**: padding and tool output enter neither mean nor variance, and stay 0.\n"
                "- **n − 1**: σ² has Bessel's correction; dividing by n would give {std_biased}. With many tokens it makes no difference, with few it shows, so say which one you use when you compare numbers.\n"
                "- **Order**: `returns` are made of raw advantages first, then comes the whitening; only the policy loss uses its result.\n"
                "- **Signs change**: in this row {positive_before} had A > 0, and {positive_after} have Â > 0. Taking the mean off turns “better than the critic expected” into “better than this batch's average”.\n"
                "- **Degenerate cases**: a single token, or all alike, has variance 0, and the result is defined as 0.",
            ),
            (
                "**减 μ 是常数基线。** 若 b 与样本无关，`E[b·∇log π(a|s)] = b·∇Σ_a π(a|s) = 0`，期望梯度不变。批均值 μ 用到了样本本身，不完全独立，由此带来的偏差是 O(1/N)，N 为独立样本数。\n\n"
                "**除以 σ 是换学习率。** `Σ_t (A_t/σ)·∇log π_t = (1/σ)·Σ_t A_t·∇log π_t`：同一批里方向不变，步长变为 η/σ。σ 也取自这一批，不同批的权重不同，所以跨批的期望方向会略有改变；σ 越小的批被放大得越多，critic 几乎全对时会把噪声放大。\n\n"
                "**不变性。** 对 c > 0，把 A 换成 `c·A + d`，则 `μ → c·μ + d`，`σ → c·σ`，Â 不变（忽略 ε）：优势整体放大或平移都不影响策略的更新。裁剪只看 ρ 和 Â 的符号，而 Â 的符号由 `A_t − μ` 决定，不由 `A_t` 决定。\n\n"
                "**必须全批。** 若分片各自白化，片内均值被强制为 0，同一个 token 的 Â 会随怎样切分而变；用可合并的统计量（个数、均值、离差平方和）在所有 rank 上合并之后再算，结果与切分无关。\n\n"
                "**核对。** t = {t}：{white_equation}。",
                "**Taking off μ is a constant baseline.** If b does not depend on the sample, `E[b·∇log π(a|s)] = b·∇Σ_a π(a|s) = 0` and the expected gradient stays. The batch's mean μ does use the sample and is not quite independent; the bias this brings is O(1/N) in the number N of independent samples.\n\n"
                "**Dividing by σ changes the learning rate.** `Σ_t (A_t/σ)·∇log π_t = (1/σ)·Σ_t A_t·∇log π_t`: within a batch the direction stays and the step is η/σ. σ is the batch's own, so batches are weighted differently and the expected direction over batches shifts a little; the smaller σ, the more a batch is magnified, and with a critic that is nearly always right it is noise that is magnified.\n\n"
                "**Invariance.** For c > 0, replace A by `c·A + d`: `μ → c·μ + d`, `σ → c·σ`, and Â stays (up to ε). Scaling or shifting all advantages does not touch the policy's update. The clip looks at ρ and the sign of Â only, and that sign is decided by `A_t − μ`, not by `A_t`.\n\n"
                "**The whole batch.** If every shard whitened by itself, each shard's mean would be forced to 0 and a token's Â would depend on the split; with statistics that merge (count, mean, sum of squared deviations), merged over all ranks first, it does not.\n\n"
                "**Check.** t = {t}: {white_equation}.",
            ),
        ),
        needs=("advantages", "whitened_advantages"),
        formula="Â_t = (A_t − μ)/√(σ² + ε)",
        numbers=_whitened,
        each="Â_{t} = ({raw} − {mean})/{std} = {whitened}",
        table=("advantages", "whitened_advantages"),
        code=(
            "mingce.algorithms.masking.masked_whiten",
            "mingce.algorithms.masking.masked_moments",
            "mingce.credit.assign_credit",
        ),
        related=("returns_raw", "group_baseline", "ppo_clip", "loss_aggregation"),
    ),
    Topic(
        "returns_raw",
        ("回报为什么用未白化的优势", "Why returns use raw advantages"),
        (
            (
                "returns 要在 whiten 之前算还是之后算",
                "先白化再加 values 会出什么问题",
                "critic 的目标能不能用归一化后的优势",
                "returns = whitened advantage + value 错在哪",
                "为什么 critic 不用标准化的 advantage",
            ),
            (
                "Should returns be computed before or after normalising advantages?",
                "What goes wrong with returns = whitened advantages + values?",
                "can the critic's target use normalized advantages",
                "why do the returns keep the raw advantage",
            ),
        ),
        (
            (
                "天气预报员昨天报今天 {value} 度，事后一算差了 {raw} 度，所以本该报 {return}。下次他就照 {return} 去改。\n\n"
                "白化是换一种说法：把“差了 {raw} 度”换成“比大家的平均误差高几个刻度”，这里是 {whitened}。刻度用来给大家排座次很方便，可它不是温度。把刻度加到温度上，得到 {wrong_return}，这个数什么都不是，预报员照着它改，只会越改越乱。\n\n"
                "所以：改预报用原来的差，排座次才用刻度。",
                "Yesterday the weather forecaster said {value} degrees for today and, as it turned out, was off by {raw}, so {return} is what should have been said. That is what to learn from.\n\n"
                "Whitening says it in another way: “off by {raw} degrees” becomes “so many notches above everybody's average error”, here {whitened}. Notches are handy for seating people in order, but they are no degrees. Adding notches to degrees gives {wrong_return}, a number that means nothing; a forecaster who learns from it only gets worse.\n\n"
                "So forecasts are corrected with the raw difference, and notches are for the seating.",
            ),
            (
                "critic 要预测的是奖励单位的量，目标是 `R_t = A_t + V(s_t)`，A 必须未白化。\n\n"
                "- 正确：{raw_list} + {values} = {returns}。\n"
                "- 错误：{whitened_list} + {values} = {wrong_returns}。“{token}”的目标由 {return} 变成 {wrong_return}。\n"
                "- 看平均就知道错在哪：本行 V 平均 {mean_value}，正确的目标平均 {mean_return}，错误的目标平均 {mean_wrong}。白化把整批的平均误差减成了 0，critic 再也学不到自己整体偏高还是偏低。\n"
                "- 尺度也错了：Â 的标准差总是 1，不管奖励多大。奖励很小时目标被放大，奖励很大时被缩小。\n"
                "- 代码里的次序：`assign_credit` 先由估计器给出 `advantages` 和 `returns`，再填 `whitened_advantages`。\n\n"
                "审计怎样发现它：在账本上检查 `returns − values` 等于 `advantages` 还是等于 `whitened_advantages`。",
                "The critic predicts a quantity in units of reward; its target is `R_t = A_t + V(s_t)`, and A must be raw.\n\n"
                "- Right: {raw_list} + {values} = {returns}.\n"
                "- Wrong: {whitened_list} + {values} = {wrong_returns}. The target of “{token}” goes from {return} to {wrong_return}.\n"
                "- The averages show what is wrong: in this row V averages {mean_value}, the right targets {mean_return}, the wrong ones {mean_wrong}. Whitening has made the batch's mean error 0, so the critic never learns whether it is too high or too low as a whole.\n"
                "- The scale is wrong too: the standard deviation of Â is always 1, however large the rewards. Small rewards give magnified targets, large ones shrunken.\n"
                "- The order in the code: `assign_credit` has the estimator make `advantages` and `returns`, then fills `whitened_advantages`.\n\n"
                "How an audit finds it: see whether `returns − values` equals `advantages` or `whitened_advantages`.",
            ),
            (
                "**不动点。** 用未白化的优势，`R_t = V(s_t) + Σ_l (γλ)^l·δ_{t+l}`。令 `V = E[R_t|s_t]`，即 `E[Σ_l (γλ)^l·δ_{t+l}|s_t] = 0` 对每个状态成立；从末端往前归纳，这等价于 `E[δ_t|s_t] = 0`，即贝尔曼方程，唯一解是 `V^π`。\n\n"
                "**白化后的不动点。** `R'_t = V(s_t) + (A_t − μ)/σ`。不动点条件变为 `E[A_t|s_t] = μ` 对每个状态成立。末端状态给出 `E[r_{T−1}|s_{T−1}] − V(s_{T−1}) = μ`，往前类推，每个状态都被同一个未定的常数 μ 牵着；`V^π`（对应 μ = 0）只是其中一个解，目标里没有任何东西把 μ 拉回 0。\n\n"
                "**平均误差不可见。** 在统计范围内 `Σ_t Â_t = 0`，所以 `mean(R') = mean(V)`：目标的平均总等于现在的预测，V 整体平移多少，目标就跟着平移多少。本行 Â 的平均是 {mean_white}（行就是整批时为 0），`mean(R')` = {mean_wrong}，`mean(V)` = {mean_value}，而 `mean(R)` = {mean_return}。\n\n"
                "**尺度。** 奖励乘以 c > 0，价值随之学成 c 倍时，A 与 R 都乘 c，而 `R' − V` 不变：梯度的大小与奖励的单位脱钩；critic 越准（σ 越小），放大倍数 1/σ 越大，`R' − V` 的均方总约为 1，价值损失永远降不下来。\n\n"
                "**恒等式。** `R_t − V(s_t) = A_t`：{identity}。",
                "**Fixed point.** With raw advantages `R_t = V(s_t) + Σ_l (γλ)^l·δ_{t+l}`. Setting `V = E[R_t|s_t]` means `E[Σ_l (γλ)^l·δ_{t+l}|s_t] = 0` for every state; by induction from the end that is `E[δ_t|s_t] = 0`, the Bellman equation, whose only solution is `V^π`.\n\n"
                "**The fixed point after whitening.** `R'_t = V(s_t) + (A_t − μ)/σ`. The condition becomes `E[A_t|s_t] = μ` for every state. The last state gives `E[r_{T−1}|s_{T−1}] − V(s_{T−1}) = μ`, and so on backwards: every state hangs on one and the same undetermined μ. `V^π` (with μ = 0) is but one solution, and nothing in the target draws μ back to 0.\n\n"
                "**The mean error cannot be seen.** Over the tokens whitened `Σ_t Â_t = 0`, so `mean(R') = mean(V)`: the targets' mean is always what is predicted already, and wherever V shifts as a whole the targets follow. In this row Â averages {mean_white} (0 when the row is the whole batch), `mean(R')` = {mean_wrong}, `mean(V)` = {mean_value}, but `mean(R)` = {mean_return}.\n\n"
                "**Scale.** Multiply the rewards by c > 0 and let the values be learnt c times as large: A and R are multiplied by c, but `R' − V` stays. The gradient's size no longer has to do with the unit of reward; and the better the critic (the smaller σ), the larger the factor 1/σ: the mean square of `R' − V` is always about 1, and the value loss can never come down.\n\n"
                "**Identity.** `R_t − V(s_t) = A_t`: {identity}.",
            ),
        ),
        needs=("values", "advantages", "whitened_advantages"),
        formula="R_t = A_t + V(s_t)",
        numbers=_targets,
        each="R_{t} = A + V = {raw} + {value} = {return};  Â + V = {whitened} + {value} = {wrong_return}",
        table=("values", "advantages", "returns", "whitened_advantages"),
        code=(
            "mingce.credit.assign_credit",
            "mingce.algorithms.advantage.gae",
            "mingce.algorithms.masking.masked_whiten",
        ),
        related=("whitening", "critic_fits_return", "returns_values_index", "value_clipping"),
    ),
    Topic(
        "group_baseline",
        ("组内基线：GRPO、RLOO 与 PPO", "Baselines from a group: GRPO, RLOO and PPO"),
        (
            (
                "GRPO 和 PPO 有什么区别",
                "grpo 没有 critic 怎么算优势",
                "RLOO 的 leave one out 是什么意思",
                "Dr. GRPO 为什么不除标准差",
                "一组回答全对或全错会怎样",
                "GRPO 里每个 token 的优势为什么一样",
            ),
            (
                "What is the difference between GRPO and PPO?",
                "how does grpo get advantages without a critic",
                "What does leave-one-out mean in RLOO?",
                "Why does Dr. GRPO drop the std?",
                "what if all samples of a group get the same reward",
            ),
        ),
        (
            (
                "同一道题，{group_size} 个同学各答一遍，得分是 {totals}。你得了 {own}，是好是坏？\n\n"
                "**和全组平均比（GRPO 一类）**：平均 {group_mean}，你差 {by_dr_grpo}（正数是高出平均）；再按大家通常相差多少来换算，是 {by_grpo}。\n\n"
                "**和另外几个人比（RLOO）**：别人平均 {others_mean}，你差 {by_rloo}。\n\n"
                "这样不用请教练，只要多答几遍。缺点是：你整篇答案里的每个词记同样的功劳，分不出哪个词好、哪个词坏。PPO 请了教练，能一个词一个词地说；不过教练要花力气培养，还会看走眼。\n\n"
                "（这一组里有 {made_up} 位同学是假想的：手头没有同一道题的其他回答时，就设一个与你同分，两个得 0 分。）",
                "The same question, answered by {group_size} pupils, with scores {totals}. You got {own}. Is that good?\n\n"
                "**Against the group's average (GRPO and the like)**: the average is {group_mean}, you differ by {by_dr_grpo} (above 0: better); counted in how far people usually differ, that is {by_grpo}.\n\n"
                "**Against the others (RLOO)**: they average {others_mean}, you differ by {by_rloo}.\n\n"
                "No coach is needed, only more answers. The drawback: every word of your answer gets the same credit, and nobody can say which word was good and which was bad. PPO has a coach who can say so word by word; but a coach takes work to train, and misjudges at times.\n\n"
                "({made_up} of the pupils in this group are made up: where there are no other answers to the same question at hand, one is given your score and two get 0.)",
            ),
            (
                "PPO 的基线是 critic 的 `V(s_t)`，逐 token；GRPO、Dr. GRPO、RLOO 的基线取自同一提示的一组样本，逐条回答，不需要 critic。这一组 {group_size} 条，总奖励 {totals}（其中 {made_up} 条是假想的；账本没有完整的同组回答时，补一条同分的和两条 0 分的），本条 {own}：\n\n"
                "- `grpo`：`(G − mean)/(std + ε)` = {grpo_equation}。std 带 Bessel 修正。\n"
                "- `dr_grpo`：`G − mean` = {dr_grpo_equation}，不除 std，配合按常数归一的损失聚合。\n"
                "- `rloo`：`G − 其余的均值` = {rloo_equation}。\n\n"
                "要留意的：\n\n"
                "- 本条 {count_chosen} 个被选 token 优势相同，句内分不出功劳；GAE 则每个 token 一个数（有 critic 时见下表）。\n"
                "- 组里全部同分时优势全为 0，这个提示这一步什么也没教。\n"
                "- 除以 std 按难度改变了各提示的权重：几乎全对或几乎全错的题，std 小，被放大。\n"
                "- 组要由提示决定。按行的位置切组、或打乱后再分组，是常见的错误。\n"
                "- 这三种有自己的基线和尺度，默认不再白化。",
                "PPO's baseline is the critic's `V(s_t)`, token by token; that of GRPO, Dr. GRPO and RLOO comes from a group of samples of the same prompt, answer by answer, without a critic. This group has {group_size} answers with totals {totals} ({made_up} of them made up; where the ledger lacks a whole group, one with the same total and two with 0 are added), this one {own}:\n\n"
                "- `grpo`: `(G − mean)/(std + ε)` = {grpo_equation}. The std has Bessel's correction.\n"
                "- `dr_grpo`: `G − mean` = {dr_grpo_equation}, without the std, to go with a loss normalised by a constant.\n"
                "- `rloo`: `G − mean of the others` = {rloo_equation}.\n\n"
                "Mind that:\n\n"
                "- all {count_chosen} chosen tokens of this answer get the same, and nothing within it is told apart; GAE has a number for each (in the table, where there is a critic).\n"
                "- where the whole group has the same total, all advantages are 0, and the prompt teaches nothing in this step.\n"
                "- dividing by the std reweights prompts by difficulty: those nearly all right or nearly all wrong have a small std and are magnified.\n"
                "- the prompt makes the group. Cutting groups by row position, or after shuffling, is a common bug.\n"
                "- these three have a baseline and a scale of their own and are not whitened by default.",
            ),
            (
                "**RLOO 无偏。** 基线 `b_i = mean_{j≠i} G_j` 只由其他独立样本得到，与第 i 条的动作独立，故 `E[b_i·∇log π(y_i|x)] = E[b_i]·E[∇log π(y_i|x)] = 0`，`E[(G_i − b_i)·∇log π(y_i|x)] = ∇J`。\n\n"
                "**减组均值只差一个常数。** `G_i − mean = G_i − (G_i + (n−1)·b_i)/n = (n−1)/n·(G_i − b_i)`。所以 Dr. GRPO 的方向无偏，大小是 RLOO 的 (n−1)/n 倍，n = {group_size}：{by_rloo} × (n−1)/n = {rloo_scaled}，与 `G − mean` = {by_dr_grpo} 相同。\n\n"
                "**除以 std 不是常数。** std 由同一组样本算出，与 `G_i` 相关；它把提示 x 的梯度乘以约 `1/σ(x)`，期望方向变成 `E_x[∇J(x)/σ(x)]`，一般不与 `∇J` 平行。对成败二值的奖励，成功率为 p，`σ(x) = √(p(1−p))`，p 接近 0 或 1 的题权重趋于很大。\n\n"
                "**与 critic 相比。** n → ∞ 时组均值趋于 `V^π(s_0)`，整行的优势趋于 `G − V^π(s_0) = Σ_t δ*_t`（γ = 1），即各 token 真优势 `δ*_t = A^π(s_t, a_t)` 之和，它被同样记到每个 token 上。对第 t 个 token 更合适的是从 t 起的回报减 `V^π(s_t)`；用整句的 `G − V^π(s_0)` 代替，对 t > 0 仍无偏（t 之前的都是 `s_t` 的函数），只是已经发生的 `δ*_0 … δ*_{t−1}` 留在里面成了噪声。这就是 PPO 以 critic 换来的好处，代价是 critic 的误差带来的偏差（λ < 1 时）。",
                "**RLOO is unbiased.** The baseline `b_i = mean_{j≠i} G_j` is made of other, independent samples only and does not depend on the actions of sample i, so `E[b_i·∇log π(y_i|x)] = E[b_i]·E[∇log π(y_i|x)] = 0` and `E[(G_i − b_i)·∇log π(y_i|x)] = ∇J`.\n\n"
                "**Subtracting the group's mean differs by a constant.** `G_i − mean = G_i − (G_i + (n−1)·b_i)/n = (n−1)/n·(G_i − b_i)`. So Dr. GRPO is unbiased in direction and (n−1)/n times the size of RLOO; n = {group_size}: {by_rloo} × (n−1)/n = {rloo_scaled}, the same as `G − mean` = {by_dr_grpo}.\n\n"
                "**Dividing by the std is no constant.** It comes from the same samples and is correlated with `G_i`; it multiplies the gradient of prompt x by about `1/σ(x)`, so the expected direction is `E_x[∇J(x)/σ(x)]`, in general not parallel to `∇J`. For a reward of success or failure with success rate p, `σ(x) = √(p(1−p))`, and prompts with p near 0 or 1 get very large weights.\n\n"
                "**Against a critic.** As n → ∞ the group's mean tends to `V^π(s_0)`, and the row's advantage to `G − V^π(s_0) = Σ_t δ*_t` (γ = 1), the sum of the tokens' true advantages `δ*_t = A^π(s_t, a_t)`, put down to each token alike. Fitter for token t is the return from t on less `V^π(s_t)`; the whole answer's `G − V^π(s_0)` in its place is still unbiased for t > 0 (what came before t is a function of `s_t`), but the `δ*_0 … δ*_{t−1}` that have already happened stay in it as noise. That is what PPO buys with a critic, at the price of a bias from the critic's errors (for λ < 1).",
            ),
        ),
        needs=("rewards",),
        formula="GRPO: (G − mean)/(std + ε);  Dr. GRPO: G − mean;  RLOO: G − mean_(j≠i) G_j;  PPO: Σ_l (γλ)^l·δ_(t+l)",
        numbers=_compared,
        grid=_compared_grid,
        code=(
            "mingce.algorithms.advantage.grpo",
            "mingce.algorithms.advantage.dr_grpo",
            "mingce.algorithms.advantage.rloo",
            "mingce.algorithms.advantage._groups",
        ),
        related=("whitening", "credit_allocations", "mc_vs_gae", "loss_aggregation"),
    ),
    Topic(
        "reward_sparse_dense",
        ("稀疏奖励与稠密奖励", "Sparse and dense rewards"),
        (
            (
                "奖励只给在最后一个 token 上会不会太少",
                "过程奖励和结果奖励有什么不同",
                "要不要给每个 token 都发奖励",
                "reward shaping 会不会改变最优策略",
                "前面的 token 奖励都是 0 怎么学",
                "PRM 和 ORM 对 credit 有什么影响",
            ),
            (
                "Is a reward on the last token only too little to learn from?",
                "process reward vs outcome reward",
                "Should every token get a reward?",
                "does reward shaping change the optimal policy",
                "How do early tokens learn when their reward is 0?",
            ),
        ),
        (
            (
                "爬山有两种发奖的办法。一种是登顶才发，全部 {total} 放在山顶。一种是沿路设 {count_chosen} 个小站，每站发 {part}，加起来也是 {total}。\n\n"
                "**山顶发（稀疏）**：路上什么也拿不到，可是“前面还有多少”一直不少。每个词心里没底，要靠教练一路猜，再把山顶的消息往回传，前面的词才知道自己走对了没有。\n\n"
                "**沿路发（稠密）**：当场就知道对不对，学得快；不过走一站少一站，“前面还有多少”越来越少。还有个麻烦：若是走一步发一颗糖，有人就会绕路多走几步，只为多拿糖，而不去山顶。\n\n"
                "这个例子里，最后一个词“{last_token}”得 {last_reward}，其余的词合计 {other_rewards}。",
                "There are two ways of giving prizes on a mountain. One gives everything, {total}, at the top. The other sets up {count_chosen} posts along the way with {part} at each, which is {total} again.\n\n"
                "**At the top (sparse)**: nothing on the way, but what is still ahead never gets less. No word can be sure of itself; the coach must guess all along, and the news from the top must be passed back before the early words know whether they were right.\n\n"
                "**Along the way (dense)**: one knows at once, and learns fast; but every post passed is one less, so what is still ahead gets smaller. And there is a trap: with a sweet for every step, some will take the long way round for more sweets and never reach the top.\n\n"
                "In this example the last word, “{last_token}”, gets {last_reward}, and all the others together {other_rewards}.",
            ),
            (
                "例子的奖励是 {rewards}：最后一个 token {last_reward}，其余合计 {other_rewards}（有 KL 惩罚时，那就是每个 token 付的价钱，它本身是稠密的）。把总奖励 {total} 换两种发法（γ = {gamma}）：\n\n"
                "- **全在结尾**：从各 token 起还剩的 `G` = {sparse_returns}。γ = 1 时处处相等；价值随成功的把握变化，得分为正时越接近成功越高。\n"
                "- **均匀发**，每个 {part}：`G` = {dense_returns}。总奖励为正时越往后剩得越少，所以价值递减。\n\n"
                "对学习的影响：\n\n"
                "- γ = 1 时两者的 `G_0` 相同，若每条回答都如此换算，目标不变；变的是信号到达的快慢。稀疏时要靠 critic 与 λ 把结尾的 δ 传回来，稠密时每步的 δ 自带信息。\n"
                "- 中间奖励 0 不等于没有信号：`δ_t = r_t + γ·V(s_{t+1}) − V(s_t)`，r 为 0 时 V 的变化就是信号。“{token}”：r = {reward}，δ = {delta}，A = {advantage}。\n"
                "- 稠密奖励若不是由势函数构造的，一般会改变最优策略：每 token 给正奖励会鼓励冗长，按步骤打分会鼓励凑步骤。",
                "The example's rewards are {rewards}: {last_reward} on the last token, {other_rewards} on all the others (with a KL penalty that is the price each token pays, and it is dense by nature). Its total {total} paid in two other ways (γ = {gamma}):\n\n"
                "- **All at the end**: what is still to come from each token is `G` = {sparse_returns}. With γ = 1 it is the same everywhere; values move with the confidence of success; for a positive score, higher the nearer it is.\n"
                "- **In equal parts**, {part} each: `G` = {dense_returns}. With a positive total less is left the later it is, so values fall.\n\n"
                "For learning:\n\n"
                "- with γ = 1 both have the same `G_0`; if every answer is paid so, the goal does not change, only how soon the signal arrives. Sparse, the critic and λ must carry the final δ back; dense, each step's δ is informative itself.\n"
                "- a reward of 0 on the way is not the absence of a signal: `δ_t = r_t + γ·V(s_{t+1}) − V(s_t)`, and with r = 0 the change of V is the signal. “{token}”: r = {reward}, δ = {delta}, A = {advantage}.\n"
                "- dense rewards that do not come from a potential in general change the best policy: a positive reward a token makes answers long, marks for steps make padded steps.",
            ),
            (
                "**势函数整形不改变最优策略。** 令 `r'_t = r_t + γ·Φ(s_{t+1}) − Φ(s_t)`，`Φ(s_T) = 0`。则 `G'_t = Σ_l γ^l·r'_{t+l} = G_t − Φ(s_t)`（望远镜相消）。所以 `Q'(s, a) = Q(s, a) − Φ(s)`，`V'(s) = V(s) − Φ(s)`，`A'(s, a) = A(s, a)`：优势与最优策略都不变。\n\n"
                "**δ 就是以 V 为势整形后的奖励。** 取 Φ = V，`r'_t = δ_t`。因此 GAE 可以读作：先用 critic 把稀疏奖励变成稠密奖励 δ，再以 γλ 而不是 γ 折扣求和。核对：`Σ_t γ^t·δ_t` = {shaped_sum}，`G_0 − V(s_0)` = {first_equation}；末端自举时 `G_0` 含 `γ^T·V(s_T)`，`V(s_T)` = {bootstrap}。\n\n"
                "**一般的稠密奖励会改变目标。** 若每个 token 多给常数 c，则 `J'(π) = J(π) + c·E_π[Σ_{t<T} γ^t]`；γ = 1 时多出 `c·E_π[T]`，c > 0 时偏爱长回答，c < 0 时偏爱短回答。把结果分按步骤拆开，只有各条轨迹的总和不变（γ = 1）时才保持 J 不变。\n\n"
                "**方差。** 势函数整形下，配上相应的基线 `V − Φ`，蒙特卡洛优势 `G'_t − V'(s_t) = G_t − V(s_t)` 逐条相同，方差也相同；λ < 1 的 GAE 也逐项相同，因为 `r'_t + γ·V'(s_{t+1}) − V'(s_t) = δ_t`。整形真正帮到的是 critic 还没学会的时候：V' 从 0 开始，δ 里就已经有 Φ 的信息。",
                "**Shaping by a potential keeps the best policy.** Let `r'_t = r_t + γ·Φ(s_{t+1}) − Φ(s_t)`, `Φ(s_T) = 0`. Then `G'_t = Σ_l γ^l·r'_{t+l} = G_t − Φ(s_t)` by telescoping. So `Q'(s, a) = Q(s, a) − Φ(s)`, `V'(s) = V(s) − Φ(s)` and `A'(s, a) = A(s, a)`: advantages and best policy stay.\n\n"
                "**δ is the reward shaped by V.** With Φ = V, `r'_t = δ_t`. GAE can thus be read as: let the critic turn the sparse reward into the dense reward δ, then sum it discounted by γλ instead of γ. Check: `Σ_t γ^t·δ_t` = {shaped_sum}, `G_0 − V(s_0)` = {first_equation}; where the end is bootstrapped, `G_0` includes `γ^T·V(s_T)`, `V(s_T)` = {bootstrap}.\n\n"
                "**Dense rewards in general change the goal.** With a constant c more for each token, `J'(π) = J(π) + c·E_π[Σ_{t<T} γ^t]`; for γ = 1 that adds `c·E_π[T]`, which favours long answers if c > 0 and short ones if c < 0. Splitting an outcome's score over steps keeps J only where every trajectory keeps its total (γ = 1).\n\n"
                "**Variance.** Under a potential, with the matching baseline `V − Φ`, the Monte Carlo advantage `G'_t − V'(s_t) = G_t − V(s_t)` is the same rollout by rollout, and so is its variance; GAE with λ < 1 is the same term by term, because `r'_t + γ·V'(s_{t+1}) − V'(s_t) = δ_t`. Where shaping truly helps is while the critic has not learnt yet: with V' starting at 0, δ already holds what Φ knows.",
            ),
        ),
        formula="r'_t = r_t + γ·Φ(s_(t+1)) − Φ(s_t)  ⇒  G'_t = G_t − Φ(s_t)",
        numbers=_paid_numbers,
        grid=_paid_grid,
        code=(
            "mingce.algorithms.kl.kl_rewards",
            "mingce.algorithms.advantage.td_errors",
            "mingce.algorithms.advantage.gae",
        ),
        related=("values_shape", "credit_allocations", "kl_where", "a_not_delta"),
    ),
)
