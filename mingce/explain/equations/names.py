"""What a name in an equation stands for: a column, a setting or a variable; in symbols, code, English and Chinese."""

from __future__ import annotations

import re

from mingce.columns import ALIASES, TOKEN_COLUMNS

SETTINGS = ("gamma", "lam", "beta", "eps", "eps_v")
STATE = ("values", "returns", "mc_return", "new_values")
"""Kinds that speak of the state before a token."""
LOG_PROBS = {"old_probs": "old_log_probs", "new_probs": "new_log_probs", "ref_probs": "ref_log_probs"}
VARIABLES = frozenset("tTlkijnN")

_WORDS = {
    "advantages": "A Â adv advs advantage advantages gae lastgaelam gaelam rawadvantages 优势函数 优势估计 优势值 优势",
    "whitened": "whitened whitenedadvantage whitenedadvantages normalizedadvantages normalizedadvantage advnorm "
    "normadv anorm awhite whiteneda 白化后的优势 白化优势 标准化优势 归一化优势 归一化后的优势",
    "returns": "R ret rets return returns lambdareturn lambdareturns 回报 收益",
    "mc_return": "G mcreturn mcreturns montecarloreturn rewardtogo 蒙特卡洛回报 实际回报",
    "values": "V v value values val vals oldvalues oldvalue 状态价值 价值估计 价值函数 价值 估值",
    "next_values": "nextvalue nextvalues vnext nextv 下一个状态的价值 下一状态的价值 下一状态价值 下一步的价值 "
    "下一步价值 下一个价值 下个状态的价值",
    "new_values": "vpred vpreds newvalues newvalue vnew 新价值",
    "deltas": "δ Δ delta deltas tderror tderrors tdresidual tdresiduals tddelta TD误差 TD残差 时序差分误差",
    "rewards": "r rew rews reward rewards tokenlevelrewards tokenrewards 即时奖励 单步奖励 奖励",
    "scores": "score scores tokenlevelscores rmscores rmscore 得分 分数 打分",
    "kl": "kl kls kld dkl klpenalty kldiv KL散度 KL惩罚",
    "ratio": "ρ rho ratio ratios importanceratio probratio 重要性比值 重要性比率 重要性比 概率比 比值 比率",
    "log_ratio": "logratio logratios negativeapproxkl logrho 对数比值",
    "old_log_probs": "oldlogprob oldlogprobs oldlogp oldlogps logpold logprobsold logprobold logpiold old "
    "旧策略的对数概率 旧策略对数概率 旧对数概率",
    "new_log_probs": "logprob logprobs newlogprob newlogprobs newlogp newlogps logpnew logprobsnew logp logps "
    "logpi new curlogprobs 新策略的对数概率 新策略对数概率 新对数概率",
    "ref_log_probs": "reflogprob reflogprobs reflogp reflogps logpref logprobsref logpiref ref "
    "参考模型的对数概率 参考对数概率",
    "old_probs": "πold piold oldprob oldprobs",
    "new_probs": "π pi πθ pitheta πnew pinew newprob newprobs",
    "ref_probs": "πref piref refprob refprobs",
    "policy_loss": "loss L pgloss pglosses policyloss policylosses actorloss lpi lpg 策略损失 损失",
    "objective": "J objective surrogate lclip 代理目标",
    "value_loss": "valueloss valuelosses vfloss vflosses vloss criticloss lv lvf 价值损失",
    "q": "Q qvalue qvalues",
    "mean_a": "μ mu",
    "std_a": "σ sigma",
    "gamma": "γ gamma discount 折扣因子 折扣率 折扣",
    "lam": "λ lambda lam lambd lmbda gaelambda",
    "beta": "β beta klcoef klcoeff initklcoef klctrl",
    "eps": "ε ϵ eps epsilon cliprange clipratio clipeps",
    "eps_v": "εv epsv epsilonv cliprangevalue vfclip",
}
_BY_WORD: dict[str, str] = {word: kind for kind, words in _WORDS.items() for word in words.split()}
_KINDS = {"whitened_advantages": "whitened"}


def _squeezed(name: str) -> str:
    return re.sub(r"[\s_\-.]", "", name)


_COLUMN_WORDS = {_squeezed(name): _KINDS.get(name, name) for name in TOKEN_COLUMNS} | {
    _squeezed(alias): _KINDS.get(name, name) for alias, name in ALIASES.items() if name in TOKEN_COLUMNS
}
CHINESE = sorted((word for word in _BY_WORD if re.search("[\u4e00-\u9fff]", word)), key=len, reverse=True)
"""Names in Chinese, the longest first."""


def kind_of(name: str) -> str | None:
    """The kind of a name without its index; None if it is none of ours."""
    word = _squeezed(name)
    if word in _BY_WORD:
        return _BY_WORD[word]
    if len(word) < 2:
        return None
    lower = word.lower()
    return _BY_WORD.get(lower) or _BY_WORD.get(word.upper()) or _known_column(lower)


def _known_column(word: str) -> str | None:
    kind = _COLUMN_WORDS.get(word)
    return kind if kind in EVALUATED else None


EVALUATED = frozenset(_WORDS)
