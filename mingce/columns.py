"""The column table: every per-token and per-rollout number, defined once.

The trainer fills these columns, the auditor recomputes them, the page draws them, the tutor puts numbers into their
formulae. Importing this file needs no torch, so the command line can print the table at once.

Time, 0-based as in the code. Prompt x, response tokens y_0 … y_{T-1}:

    state   s_t = (x, y_0 … y_{t-1})   what is known BEFORE token t
    action  a_t = y_t                  choosing token t takes s_t to s_{t+1}

    prompt: 请问1+1=2？                 slot      0     1     2     3     4     5
    response                           token     是    的    ，    等于   2     ！
    state-aligned:  values[t]          before    |是   |的   |，   |等于  |2    |！     V(s_t), read before token t
    action-aligned: rewards[t], …      of        是    的    ，    等于   2     ！      what choosing token t earned

A formula's t+1 means the next CHOSEN token: recursions step over slots whose response_mask is 0.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from mingce.errors import UnknownNameError
from mingce.meanings import FORMULAS_ZH, MEANINGS

Alignment = Literal["action", "state", "row"]


@dataclass(frozen=True)
class Column:
    """One named column of a ledger.

    `alignment` says what slot t is about: the choice of token t ("action"), the state before it ("state"), or, for
    "row" columns, the whole rollout. `inputs` must be in the ledger before this column can be filled; `optional`
    are read when they are there. `source` is where the numbers come from: "module:function" for arithmetic, or the
    role that measures them, such as "actor.generate".
    """

    name: str
    symbol: str
    alignment: Alignment
    dtype: str
    formula: str
    inputs: tuple[str, ...]
    source: str
    zh: str
    en: str
    optional: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def formula_zh(self) -> str:
        """The formula, its words in Chinese."""
        return FORMULAS_ZH.get(self.name, self.formula)

    @property
    def long_zh(self) -> str:
        """The longer paragraph, in Chinese."""
        return MEANINGS[self.name][0]

    @property
    def long_en(self) -> str:
        """The longer paragraph, in English."""
        return MEANINGS[self.name][1]

    @property
    def is_computed(self) -> bool:
        """True when the column is arithmetic on other columns, False when a role measures it."""
        return ":" in self.source

    def function(self) -> Callable[..., Any]:
        """The function that computes this column; only arithmetic columns have one."""
        module, _, name = self.source.partition(":")
        if not name:
            raise TypeError(f"column '{self.name}' is measured by {self.source}, not computed by a function")
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
        return found


@dataclass(frozen=True)
class Setting:
    """A symbol in the formulae that is chosen by a person, not computed."""

    symbol: str
    name: str
    zh: str
    en: str


_MASKING = "mingce.algorithms.masking"
_KL = "mingce.algorithms.kl"
_ADVANTAGE = "mingce.algorithms.advantage"
_LOSSES = "mingce.algorithms.losses"

_TABLE = (
    # ── what was said ────────────────────────────────────────────────────────────────────────────────────────────
    Column(
        "token_ids", "y_t", "action", "int64", "a_t = y_t, drawn from q(·|s_t) where m_t = 1", (), "actor.generate",
        "第 t 个槽位上的 token 编号。", "The id of the token in slot t.",
        aliases=("responses", "response_ids"),
    ),
    Column(
        "attention_mask", "n_t", "action", "bool", "n_t = 1 where slot t holds a token, 0 on padding", (),
        "actor.generate",
        "槽位 t 有 token（策略所选或工具输出）为 1，填充为 0。",
        "1 where slot t holds a token, chosen or tool output; 0 on padding.",
    ),
    Column(
        "response_mask", "m_t", "action", "bool", "m_t = 1 where the policy chose y_t", (), "actor.generate",
        "策略自己选出的 token 为 1，工具输出和填充为 0。",
        "1 where the policy chose the token; 0 on tool output and padding.",
        aliases=("eos_mask", "action_mask", "token_loss_mask"),
    ),
    Column(
        "loss_mask", "ℓ_t", "action", "bool", "ℓ_t = m_t, and 0 on rows cut by the length limit if truncation = mask",
        ("response_mask",), f"{_ADVANTAGE}:truncation_rule",
        "进入损失与白化统计的 token 为 1；未填时等于 response_mask。",
        "1 where the token enters the losses and the whitening; response_mask unless filled.",
    ),
    # ── log-probabilities ────────────────────────────────────────────────────────────────────────────────────────
    Column(
        "rollout_log_probs", "log q(a_t)", "action", "float32",
        "log q(a_t|s_t), q the very distribution drawn from (temperature, top-k, top-p, min-p)", ("token_ids",),
        "actor.generate",
        "采样时所用分布给这个 token 的对数概率。",
        "Log-probability of the token under the very distribution it was drawn from.",
        aliases=("inference_logprobs", "generation_logprobs", "rollout_logprobs", "sampling_logprobs"),
    ),
    Column(
        "old_log_probs", "log π_old(a_t)", "action", "float32", "log π_old(a_t|s_t), before any update of this step",
        ("token_ids",), "actor.log_probs",
        "本步更新之前，训练端前向给出的对数概率。",
        "Log-probability by the trainer's own forward pass, before any update of this step.",
        aliases=("old_log_prob", "logprobs", "action_log_probs", "trainer_logprobs", "prev_logprobs", "old_logprobs"),
    ),
    Column(
        "entropy", "H_t", "action", "float32", "H_t = −Σ_a π_old(a|s_t)·log π_old(a|s_t)", ("token_ids",),
        "actor.log_probs",
        "更新之前，策略在 s_t 处对下一个 token 的犹豫程度。",
        "How undecided the policy was at s_t, before any update.",
        aliases=("entropys", "entropies"),
    ),
    Column(
        "ref_log_probs", "log π_ref(a_t)", "action", "float32", "log π_ref(a_t|s_t)", ("token_ids",),
        "reference.log_probs",
        "冻结的参考模型给这个 token 的对数概率。",
        "Log-probability of the token under the frozen reference model.",
        aliases=("ref_log_prob", "ref_logprobs", "base_action_log_probs", "ref_logps", "reference_logprobs"),
    ),
    # ── rewards ──────────────────────────────────────────────────────────────────────────────────────────────────
    Column(
        "scores", "score_t", "action", "float32", "score_t = 0 except on the last chosen token, or dense",
        ("token_ids",), "reward.score",
        "任务给这个 token 的得分；稀疏时只落在最后一个被选的 token 上。",
        "The task's own score, sparse on the last chosen token or dense.",
        aliases=("token_level_scores", "rm_scores"),
    ),
    Column(
        "kl", "k_t", "action", "float32", "k_t = log π_old(a_t) − log π_ref(a_t)  (k1; also abs, k2, k3, full)",
        ("old_log_probs", "ref_log_probs"), f"{_KL}:kl_penalty",
        "这个 token 偏离参考模型多少；逐 token 的 k1 可以是负数。",
        "How far this choice drifts from the reference; a single token's k1 may be negative.",
        aliases=("kld", "mismatch_kl"),
    ),
    Column(
        "rewards", "r_t", "action", "float32", "r_t = score_t − β·k_t", ("scores",), f"{_KL}:kl_rewards",
        "转移 s_t → s_{t+1} 的即时奖励：任务得分减去 KL 代价。",
        "The reward of the transition s_t → s_{t+1}: score minus the price of the KL.",
        optional=("kl",), aliases=("token_level_rewards", "token_rewards"),
    ),
    # ── credit ───────────────────────────────────────────────────────────────────────────────────────────────────
    Column(
        "values", "V(s_t)", "state", "float32", "V(s_t), read from the critic before token t", ("token_ids",),
        "critic.values",
        "critic 在说出第 t 个 token 之前对未来总奖励的估计，含 r_t。",
        "The critic's estimate, before token t, of all reward still to come, r_t included.",
        aliases=("old_values",),
    ),
    Column(
        "deltas", "δ_t", "action", "float32", "δ_t = r_t + γ·V(s_{t+1}) − V(s_t)", ("rewards", "values"),
        f"{_ADVANTAGE}:td_errors",
        "TD 误差：走这一步得到的，加上之后的估计，比之前的估计多多少。",
        "The TD error: what this one step gave, plus the estimate after it, over the estimate before it.",
        aliases=("td_errors", "delta"),
    ),
    Column(
        "attention_weights", "w_t", "action", "float32", "w_t ≥ 0: attention paid to y_t by the last chosen token",
        ("token_ids",), "actor.attention",
        "最后一个被选的 token 对第 t 个 token 的注意力；只有 attention 估计器用到。",
        "Attention the last chosen token pays to token t; only the attention estimator uses it.",
    ),
    Column(
        "advantages", "A_t", "action", "float32",
        "A_t = δ_t + γλ·A_{t+1} with δ_t = r_t + γ·V(s_{t+1}) − V(s_t)  (GAE; other estimators have their own)",
        ("rewards",), f"{_ADVANTAGE}:gae",
        "这个选择比该状态下的平均水平好多少（未白化）。",
        "How much better this choice was than the state's average; raw, not whitened.",
        optional=("values", "deltas", "attention_weights"), aliases=("raw_advantages",),
    ),
    Column(
        "returns", "R_t", "state", "float32", "R_t = A_t + V(s_t)", ("advantages", "values"), f"{_ADVANTAGE}:gae",
        "critic 的学习目标：λ-回报；只有 λ=1 时才是蒙特卡洛回报。",
        "The critic's target: the λ-return, which is the Monte Carlo return only when λ = 1.",
    ),
    Column(
        "whitened_advantages", "Â_t", "action", "float32", "Â_t = (A_t − μ)/√(σ² + 10⁻⁸) over the whole batch",
        ("advantages",), f"{_MASKING}:masked_whiten",
        "整批所有被选 token 上标准化后的优势，用于策略损失。",
        "The advantage standardised over every chosen token of the whole batch; what the policy loss uses.",
        optional=("loss_mask",), aliases=("normalized_advantages",),
    ),
    # ── the update ───────────────────────────────────────────────────────────────────────────────────────────────
    Column(
        "new_log_probs", "log π(a_t)", "action", "float32", "log π(a_t|s_t), by the policy being updated",
        ("old_log_probs",), "actor.update",
        "更新进行中，当前策略给这个 token 的对数概率。",
        "Log-probability under the policy as it is being updated.",
        aliases=("log_prob", "new_logprobs"),
    ),
    Column(
        "ratio", "ρ_t", "action", "float32", "ρ_t = exp(log π(a_t) − log π_old(a_t)), exponent held within ±20",
        ("new_log_probs", "old_log_probs"), f"{_LOSSES}:policy_ratio",
        "新旧策略选中这个 token 的概率之比；第一次更新时恒为 1。",
        "How much likelier the token is now than when it was drawn; exactly 1 on the first update.",
        aliases=("importance_ratio", "ratios"),
    ),
    Column(
        "clipped", "c_t", "action", "bool", "c_t = 1 where the clip of ρ_t decided the term (ε or dual clip)",
        ("ratio", "advantages"), f"{_LOSSES}:compute_policy_loss",
        "裁剪决定了这一项的取值（此时该 token 没有梯度）为 1。",
        "1 where the clip decided the term; such a token has no gradient.",
        optional=("whitened_advantages",),
    ),
    Column(
        "dual_clipped", "d_t", "action", "bool", "d_t = 1 where Â_t < 0 and ρ_t > c (dual clip)",
        ("ratio", "advantages"), f"{_LOSSES}:compute_policy_loss",
        "dual clip 封顶了这一项为 1（坏动作、比值过大）。",
        "1 where the dual clip capped the term: a bad token whose ratio grew past c.",
        optional=("whitened_advantages",),
    ),
    Column(
        "policy_loss", "L^π_t", "action", "float32",
        "L^π_t = −min(ρ_t·Â_t, clip(ρ_t, 1−ε_low, 1+ε_high)·Â_t), at most −c·Â_t if Â_t < 0;  cpi: −ρ_t·Â_t",
        ("ratio", "advantages"), f"{_LOSSES}:compute_policy_loss",
        "这个 token 对策略损失的贡献。", "This token's term of the policy loss.",
        optional=("whitened_advantages",), aliases=("pg_losses",),
    ),
    Column(
        "new_entropy", "H'_t", "action", "float32", "H'_t = −Σ_a π(a|s_t)·log π(a|s_t)", ("new_log_probs",),
        f"{_LOSSES}:entropy_from_logits",
        "更新进行中，当前策略在 s_t 处的熵；熵奖励用它。",
        "The entropy under the policy as it is being updated; the entropy bonus is made of it.",
    ),
    Column(
        "kl_loss", "L^KL_t", "action", "float32", "L^KL_t = k(log π(a_t), log π_ref(a_t))",
        ("new_log_probs", "ref_log_probs"), f"{_LOSSES}:compute_kl_loss",
        "KL 放在损失里（而不是奖励里）时，这个 token 的一项。",
        "This token's KL term when the KL sits in the loss instead of in the reward.",
    ),
    Column(
        "new_values", "V'(s_t)", "state", "float32", "V'(s_t), by the critic being updated", ("values",),
        "critic.update",
        "更新进行中，critic 对 s_t 的新估计。", "The critic's estimate as it is being updated.",
        aliases=("vpreds", "vpred"),
    ),
    Column(
        "value_clipped", "c^V_t", "state", "bool",
        "c^V_t = 1 where |clip(V'(s_t), V(s_t) ± ε_V) − R_t| > |V'(s_t) − R_t|",
        ("new_values", "values", "returns"), f"{_LOSSES}:compute_value_loss",
        "价值裁剪决定了这一项为 1。", "1 where the value clip decided the term.",
    ),
    Column(
        "value_loss", "L^V_t", "state", "float32",
        "L^V_t = ½·max((V'(s_t) − R_t)², (clip(V'(s_t), V(s_t) ± ε_V) − R_t)²)",
        ("new_values", "values", "returns"), f"{_LOSSES}:compute_value_loss",
        "这个 token 对价值损失的贡献。", "This token's term of the value loss.",
        aliases=("vf_losses",),
    ),
    # ── one a rollout ────────────────────────────────────────────────────────────────────────────────────────────
    Column("uid", "uid", "row", "str", "unique in the run", (), "actor.generate",
           "这条回答的编号，整个运行内唯一。", "The rollout's own name, unique in the run."),
    Column("group", "g", "row", "str", "equal for the samples of one prompt", (), "actor.generate",
           "同一个提示的多条回答共用的组号。", "Shared by the samples of one prompt.", aliases=("index",)),
    Column("data_source", "source", "row", "str", "names the task or data set", (), "data",
           "样本来自哪个任务或数据集，决定用哪个打分函数。",
           "Which task or data set the prompt came from; picks the scorer."),
    Column("prompt", "x", "row", "str", "as the tokenizer saw it", (), "data",
           "提示文本，与分词器所见一致。", "The prompt's text, as the tokenizer saw it."),
    Column("prompt_ids", "x_ids", "row", "list[int]", "token ids of x", (), "data",
           "提示的 token 编号。", "The prompt's token ids.", aliases=("queries", "prompts")),
    Column("response", "y", "row", "str", "decode(y_t where n_t = 1)", (), "actor.generate",
           "回答文本，不含特殊 token。", "The response's text without special tokens."),
    Column("finish_reason", "finish", "row", "str", "stop | length", (), "actor.generate",
           "stop：自己说完；length：被长度上限截断。", "stop: it ended itself; length: the limit cut it."),
    Column("score_parts", "parts", "row", "dict[str, float]", "named parts of the score", (), "reward.score",
           "得分的各个具名部分。", "The named parts of the score."),
    Column("bootstrap_value", "V(s_T)", "row", "float", "critic at the state after the last token", (), "critic.values",
           "最后一个 token 之后那个状态的价值；truncation = bootstrap 时接在被截断的回答之后。",
           "The value of the state after the last token; follows a cut response when truncation = bootstrap."),
    Column("step", "step", "row", "int", "training step, from 1", (), "trainer",
           "产生这条回答的训练步。", "The training step that drew it."),
    Column("policy_version", "version", "row", "int", "updates applied before it was drawn", (), "actor.generate",
           "采样时策略已更新过的次数。", "How many updates the policy had had when it drew this."),
    Column("temperature", "τ", "row", "float", "softmax(logits / τ)", (), "actor.generate",
           "采样温度。", "The sampling temperature."),
)  # fmt: skip

COLUMNS: dict[str, Column] = {column.name: column for column in _TABLE}
TOKEN_COLUMNS: dict[str, Column] = {name: c for name, c in COLUMNS.items() if c.alignment != "row"}
ROW_COLUMNS: dict[str, Column] = {name: c for name, c in COLUMNS.items() if c.alignment == "row"}
ALIASES: dict[str, str] = {alias: column.name for column in _TABLE for alias in column.aliases}

SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(
            "γ", "gamma", "折扣：一步之后的奖励值现在的多少", "discount: what a reward one step later is worth now"
        ),
        Setting(
            "λ", "lam", "GAE 信实际奖励（1）还是信 critic（0）", "whether GAE trusts the rewards (1) or the critic (0)"
        ),
        Setting("β", "kl_coef", "KL 的价格", "the price of the KL"),
        Setting("ε_low", "clip_low", "比值最低到 1−ε_low", "the ratio counts down to 1−ε_low"),
        Setting("ε_high", "clip_high", "比值最高到 1+ε_high", "the ratio counts up to 1+ε_high"),
        Setting("c", "dual_clip", "坏动作的比值封顶", "cap on the ratio of a bad token"),
        Setting("ε_V", "value_clip", "价值一次最多改多少", "how far a value may move in one update"),
    )
}


def column(name: str) -> Column:
    """The column of that name or alias; an unknown name is an error that offers the nearest one."""
    found = COLUMNS.get(ALIASES.get(name, name))
    if found is None:
        raise UnknownNameError("column", name, COLUMNS)
    return found
