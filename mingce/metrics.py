"""Every logged metric that is a function of columns: its name, the columns, the reduction, and what it says.

Names are verl's where the thing is the same. What is measured by a clock or an optimizer is listed in MEASURED, so that
docs/en/reference/metrics.md covers every name that a run logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the table itself is read without torch
    from torch import Tensor

    from mingce.ledger import Ledger


@dataclass(frozen=True)
class Metric:
    """`compute(ledger)` where all `columns` are in the ledger; `reduction` says in words over what."""

    name: str
    columns: tuple[str, ...]
    reduction: str
    en: str
    zh: str
    compute: Callable[[Ledger], float]

    @property
    def reduction_zh(self) -> str:
        """The reduction in Chinese."""
        return _REDUCTIONS_ZH[self.reduction]


_REDUCTIONS_ZH = {
    "mean over chosen tokens": "对被选 token 取平均",
    "max over chosen tokens": "对被选 token 取最大",
    "min over chosen tokens": "对被选 token 取最小",
    "mean over rollouts": "对各条回答取平均",
    "max over rollouts": "对各条回答取最大",
    "min over rollouts": "对各条回答取最小",
    "mean over rollouts of the sum over tokens": "每条回答对 token 求和，再对回答取平均",
    "max over rollouts of the sum over tokens": "每条回答对 token 求和，再对回答取最大",
    "min over rollouts of the sum over tokens": "每条回答对 token 求和，再对回答取最小",
    "mean over rollouts of the mean over tokens": "每条回答对 token 取平均，再对回答取平均",
    "mean over tokens in the losses, as the loss last used them": "对进入损失的 token 取平均，用损失最后一次所用的值",
    "mean of old − new over tokens in the losses": "old − new 对进入损失的 token 取平均",
    "mean of |old − rollout| over chosen tokens": "|old − rollout| 对被选 token 取平均",
    "mean of exp(old − rollout) over chosen tokens": "exp(old − rollout) 对被选 token 取平均",
    "1 − Var(R − V)/Var(R) over tokens in the losses": "1 − Var(R − V)/Var(R)，对进入损失的 token",
    "share of rollouts": "占回答的比例",
}


def masked_mean(values: Tensor, mask: Tensor, axis: int | None = None) -> Tensor:
    """Mean over the chosen tokens; see mingce.algorithms.masking."""
    from mingce.algorithms import masking

    return masking.masked_mean(values, mask, axis)


def _token_mean(column: str, *, losses: bool = False) -> Callable[[Ledger], float]:
    return lambda x: float(masked_mean(x[column].float(), x.loss_mask if losses else x.mask))


def _row_mean_of_token_means(column: str) -> Callable[[Ledger], float]:
    def compute(ledger: Ledger) -> float:
        rows = ledger.mask.any(dim=1)
        means = masked_mean(ledger[column], ledger.mask, axis=1)
        return float(means[rows].mean()) if bool(rows.any()) else 0.0

    return compute


def _explained_variance(ledger: Ledger) -> float:
    """1 − Var(R − V)/Var(R); 0 where the returns do not vary."""
    from mingce.algorithms.masking import masked_moments

    spread = masked_moments(ledger["returns"], ledger.loss_mask).variance()
    left = masked_moments(ledger["returns"] - ledger["values"], ledger.loss_mask).variance()
    return 1.0 - left / spread if spread > 0 else 0.0


_REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda x: x.mean(),
    "max": lambda x: x.amax(),
    "min": lambda x: x.amin(),
}


def _of_rows(name: str, column: str, en: str, zh: str) -> Iterator[Metric]:
    for reduction, function in _REDUCTIONS.items():

        def compute(x: Ledger, function: Callable[[Tensor], Tensor] = function) -> float:
            return float(function(x[column].sum(dim=1))) if len(x) else 0.0

        yield Metric(
            f"{name}/{reduction}", (column,), f"{reduction} over rollouts of the sum over tokens", en, zh, compute
        )


def _of_tokens(name: str, column: str, en: str, zh: str) -> Iterator[Metric]:
    for reduction, function in _REDUCTIONS.items():

        def compute(x: Ledger, function: Callable[[Tensor], Tensor] = function) -> float:
            chosen = x[column][x.mask]
            return float(function(chosen)) if len(chosen) else 0.0

        yield Metric(f"{name}/{reduction}", (column,), f"{reduction} over chosen tokens", en, zh, compute)


def _of_lengths(name: str, lengths: Callable[[Ledger], Tensor], en: str, zh: str) -> Iterator[Metric]:
    for reduction, function in _REDUCTIONS.items():

        def compute(x: Ledger, function: Callable[[Tensor], Tensor] = function) -> float:
            return float(function(lengths(x).float())) if len(x) else 0.0

        yield Metric(f"{name}/{reduction}", ("response_mask",), f"{reduction} over rollouts", en, zh, compute)


def _prompt_lengths(ledger: Ledger) -> Tensor:
    import torch

    return torch.tensor([len(ids) for ids in ledger.rows.get("prompt_ids", [])] or [0])


def _cut_share(ledger: Ledger) -> float:
    reasons = ledger.rows.get("finish_reason", [])
    return sum(reason == "length" for reason in reasons) / len(reasons) if reasons else 0.0


def _share_without_signal(ledger: Ledger) -> float:
    """Rows that teach the policy nothing: none of their tokens in the losses has an advantage other than 0."""
    used = "whitened_advantages" if "whitened_advantages" in ledger else "advantages"
    taught = ((ledger[used].abs() > NO_ADVANTAGE) & ledger.loss_mask.bool()).any(dim=1)
    return 1.0 - float(taught.float().mean()) if len(ledger) else 0.0


NO_ADVANTAGE = 1e-9
"""An advantage up to this is 0 but for rounding."""
_TOKENS = "mean over chosen tokens"
_LOSS = "mean over tokens in the losses, as the loss last used them"

METRICS: tuple[Metric, ...] = (
    *_of_rows("critic/score", "scores", "task score of a rollout", "一条回答的任务得分"),
    *_of_rows("critic/rewards", "rewards", "score less KL of a rollout", "一条回答的得分减 KL"),
    *_of_tokens("critic/advantages", "advantages", "raw advantages", "未白化的优势"),
    Metric("train/rows_without_signal", ("advantages",), "share of rollouts",
           "all advantages in the losses are 0, so that nothing is learned from them", "损失里的优势全为 0、学不到东西的比例",
           _share_without_signal),
    *_of_tokens("critic/returns", "returns", "what the critic is fitted to", "critic 的目标"),
    *_of_tokens("critic/values", "values", "what the critic said", "critic 的估计"),
    Metric("critic/vf_explained_var", ("returns", "values"), "1 − Var(R − V)/Var(R) over tokens in the losses",
           "how much of the returns the critic foresaw: 1 all, 0 nothing", "critic 预见了回报的多少：1 全部，0 没有", _explained_variance),
    Metric("critic/kl", ("kl",), "mean over rollouts of the mean over tokens",
           "distance to the reference; what the adaptive price follows", "与参考模型的距离；自适应 β 跟随它", _row_mean_of_token_means("kl")),
    Metric("critic/vf_loss", ("value_loss",), _LOSS, "value loss", "价值损失", _token_mean("value_loss", losses=True)),
    Metric("critic/vf_clipfrac", ("value_clipped",), _LOSS, "share decided by the value clip", "被价值裁剪决定的比例",
           _token_mean("value_clipped", losses=True)),
    Metric("critic/vpred_mean", ("new_values",), _LOSS, "the critic's estimate while learning", "更新中 critic 的估计",
           _token_mean("new_values", losses=True)),
    Metric("actor/pg_loss", ("policy_loss",), _LOSS, "policy loss", "策略损失", _token_mean("policy_loss", losses=True)),
    Metric("actor/pg_clipfrac", ("clipped",), _LOSS, "share decided by the clip", "被裁剪决定的比例", _token_mean("clipped", losses=True)),
    Metric("actor/pg_clipfrac_lower", ("dual_clipped",), _LOSS, "share decided by the dual clip", "被 dual clip 决定的比例",
           _token_mean("dual_clipped", losses=True)),
    Metric("actor/ppo_kl", ("old_log_probs", "new_log_probs"), "mean of old − new over tokens in the losses",
           "how far the step has moved the policy", "这一步把策略移动了多远",
           lambda x: float(masked_mean(x["old_log_probs"] - x["new_log_probs"], x.loss_mask))),
    Metric("actor/entropy", ("entropy",), _TOKENS, "entropy before the update", "更新前的熵", _token_mean("entropy")),
    Metric("actor/entropy_loss", ("new_entropy",), _LOSS, "entropy while learning", "更新中的熵", _token_mean("new_entropy", losses=True)),
    Metric("actor/kl_loss", ("kl_loss",), _LOSS, "KL in the loss", "损失里的 KL", _token_mean("kl_loss", losses=True)),
    Metric("rollout/ratio_mean", ("old_log_probs", "rollout_log_probs"), "mean of exp(old − rollout) over chosen tokens",
           "1 up to its error when the sampler's log-probs are those it sampled with; below 1 for truncated sampling",
           "采样端记录的正是采样分布时，在误差内为 1；截断采样时小于 1",
           lambda x: float(masked_mean((x["old_log_probs"] - x["rollout_log_probs"]).exp(), x.mask))),
    Metric("rollout/log_prob_gap", ("old_log_probs", "rollout_log_probs"), "mean of |old − rollout| over chosen tokens",
           "sampler against trainer", "采样端与训练端之差",
           lambda x: float(masked_mean((x["old_log_probs"] - x["rollout_log_probs"]).abs(), x.mask))),
    *_of_lengths("response_length", lambda x: x.mask.sum(dim=1), "chosen tokens of a rollout", "一条回答里策略所选的 token 数"),
    Metric("response_length/clip_ratio", ("response_mask",), "share of rollouts", "cut by the length limit", "被长度上限截断的比例", _cut_share),
    *_of_lengths("prompt_length", _prompt_lengths, "tokens of a prompt", "提示的 token 数"),
)  # fmt: skip

MEASURED: Mapping[str, tuple[str, str]] = {
    "actor/grad_norm": ("mean gradient norm before clipping", "裁剪前的平均梯度范数"),
    "actor/lr": ("learning rate", "学习率"),
    "actor/updates": ("optimizer steps in this step", "本步优化器更新次数"),
    "critic/grad_norm": ("mean gradient norm before clipping", "裁剪前的平均梯度范数"),
    "critic/lr": ("learning rate", "学习率"),
    "critic/updates": ("optimizer steps in this step", "本步优化器更新次数"),
    "critic/kl_coeff": ("the price β of this step's KL", "本步的 β"),
    "score/<part>": ("mean over rollouts of a named part of the score", "得分某一具名部分的平均"),
    "val/accuracy_greedy": ("share of held-out prompts answered rightly, likeliest tokens", "留出提示上的贪心准确率"),
    "val/accuracy_sampled": ("the same, sampled as in training", "同上，按训练方式采样"),
    "val/score_mean": ("mean score of the sampled answers", "采样回答的平均得分"),
    "audit/bugs": ("bugs that the audit found in the step's ledger", "审计在本步账本里发现的 bug 数"),
    "audit/suspicious": ("suspicious findings of the audit", "审计发现的可疑之处"),
    "timing_s/<stage>": ("seconds of a stage", "某阶段的秒数"),
    "perf/restarts": (
        "engine=ray: how often lost processes were replaced so far",
        "engine=ray：至今重启丢失进程的次数",
    ),
    "perf/tokens_per_second": ("response tokens of the step over its seconds", "本步回答 token 数除以秒数"),
}


_BY_NAME = {m.name: m for m in METRICS}


def metric(name: str, ledger: Ledger) -> float:
    """One metric by its name."""
    return _BY_NAME[name].compute(ledger)


def compute_metrics(ledger: Ledger) -> dict[str, float]:
    """Every metric whose columns the ledger has, and the means of the score's named parts."""
    found = {m.name: m.compute(ledger) for m in METRICS if all(name in ledger for name in m.columns)}
    parts: dict[str, list[float]] = {}
    for row in ledger.rows.get("score_parts", []):
        for name, value in row.items():
            parts.setdefault(name, []).append(value)
    return found | {f"score/{name}": sum(values) / len(values) for name, values in parts.items()}
