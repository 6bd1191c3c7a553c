"""Says when steps pass and nothing is learned: a judgement over the metrics of the last few steps, and why.

Everything is a function of recorded metrics, so a resumed run judges as one that was never stopped. A cause is told
once in a run.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from mingce.base.lang import display_lang, say
from mingce.config import Config
from mingce.specs import find_estimator

WINDOW = 3
"""How many steps in a row must show it."""
OUTWEIGHS = 2.0
"""How many times the spread of the scores the KL's share of a rollout's reward must be; the same for its losses."""
Metrics = Mapping[str, float]


@dataclass(frozen=True)
class Standstill:
    """Why nothing is learned: a name for it, and the sentence with its numbers and what to try."""

    cause: str
    sentence: str


class Lookout:
    """Looks at every step's metrics of a run and says, once for each cause, that nothing is learned."""

    def __init__(self, config: Config, history: Sequence[Metrics] = (), told: Sequence[str] = ()):
        """`history` are the metrics of the steps before, `told` the causes that the run was told of already."""
        self.config = config
        self.recent: deque[Metrics] = deque(history, maxlen=WINDOW)
        self.told = set(told)

    def look(self, metrics: Metrics) -> Standstill | None:
        """What to say after a step with these metrics, if anything."""
        self.recent.append(metrics)
        found = standstill(list(self.recent), self.config)
        if found is None or found.cause in self.told:
            return None
        self.told.add(found.cause)
        return found


def standstill(recent: Sequence[Metrics], config: Config) -> Standstill | None:
    """Why the last steps taught nothing, if they are `WINDOW` and did not: the deepest cause only."""
    if len(recent) < WINDOW:
        return None
    for cause, holds in (_CAUSES | {"kl_loss": partial(_kl_loss_outweighs, config)}).items():
        if holds(recent):
            zh, en = _words(cause, recent, config)
            return Standstill(cause, say(display_lang(), zh, en))
    return None


def settings_without_learning(config: Config) -> list[tuple[str, str]]:
    """What of the settings alone keeps the policy from learning: (Chinese, English)."""
    found = []
    if config.actor.lr == 0:
        found.append(("actor.lr = 0：策略不会变", "actor.lr = 0: the policy stays as it is"))
    if config.credit.gamma == 0 and "gamma" in find_estimator(config.estimator).settings:
        zh = "γ = 0：每个 token 只得到自己的奖励，落在最后一个 token 上的得分到不了前面；请把 credit.gamma 设到 1 附近"
        en = (
            "γ = 0: a token is paid for its own reward alone, so a score on the last token reaches none before it; "
            "set credit.gamma near 1"
        )
        found.append((zh, en))
    return found


def _all(recent: Sequence[Metrics], holds: Callable[[Metrics], bool], *names: str) -> bool:
    return all(all(name in step for name in names) and holds(step) for step in recent)


def _empty(recent: Sequence[Metrics]) -> bool:
    """Answers of nothing but their end; one of a single token that was cut is something else."""
    longest, cut = "response_length/max", "response_length/clip_ratio"
    return _all(recent, lambda x: x[longest] == 0 or (x[longest] == 1 and x[cut] == 0), longest, cut)


def _cut(recent: Sequence[Metrics]) -> bool:
    """All cut by the limit; where that is meant, answers still differ in what they score."""
    scores = ("critic/score/max", "critic/score/min")
    alike = _without_signal(recent) or _all(recent, lambda x: x[scores[0]] == x[scores[1]], *scores)
    return alike and _all(recent, lambda x: x["response_length/clip_ratio"] == 1, "response_length/clip_ratio")


def _same_scores(recent: Sequence[Metrics]) -> bool:
    names = ("critic/score/max", "critic/score/min")
    return _all(recent, lambda x: True, *names) and len({x[name] for x in recent for name in names}) == 1


def _without_signal(recent: Sequence[Metrics]) -> bool:
    return _all(recent, lambda x: x["train/rows_without_signal"] == 1, "train/rows_without_signal")


def _kl_outweighs(recent: Sequence[Metrics]) -> bool:
    names = [f"critic/{kind}/{part}" for kind in ("score", "rewards") for part in ("mean", "max", "min")]
    return _all(recent, lambda x: _kl_share(x) > OUTWEIGHS * _spread(x) > 0, *names)


def _kl_share(x: Metrics) -> float:
    """How far the KL moves a rollout's reward from its score."""
    return max(abs(x[f"critic/rewards/{part}"] - x[f"critic/score/{part}"]) for part in ("mean", "max", "min"))


def _spread(x: Metrics) -> float:
    return x["critic/score/max"] - x["critic/score/min"]


def _kl_loss_outweighs(config: Config, recent: Sequence[Metrics]) -> bool:
    names = ("actor/kl_loss", "critic/advantages/max", "critic/advantages/min")
    return _all(recent, lambda x: _kl_loss_pull(x, config) > OUTWEIGHS * _advantage_pull(x, config) > 0, *names)


def _kl_loss_pull(x: Metrics, config: Config) -> float:
    """How strongly the KL in the loss pulls a token's log-probability back to the reference: weight × distance.

    k2, k3 and the full KL are about half the square of that distance; k1 and abs pull alike wherever the policy is.
    """
    linear = config.kl.loss_estimator in ("k1", "kl", "abs")
    return config.kl.loss_coef * (1.0 if linear else math.sqrt(2 * max(x["actor/kl_loss"], 0.0)))


def _advantage_pull(x: Metrics, config: Config) -> float:
    """How strongly the policy loss pulls at the most: 1 on average where advantages are whitened."""
    from mingce.credit import whitens

    return 1.0 if whitens(config) else max(abs(x[f"critic/advantages/{part}"]) for part in ("max", "min"))


def _no_gradient(recent: Sequence[Metrics]) -> bool:
    return _all(
        recent, lambda x: x["actor/updates"] > 0 and x["actor/grad_norm"] == 0, "actor/updates", "actor/grad_norm"
    )


_CAUSES: dict[str, Callable[[Sequence[Metrics]], bool]] = {
    "empty": _empty,
    "cut": _cut,
    "scores": _same_scores,
    "advantages": _without_signal,
    "kl": _kl_outweighs,
    "gradient": _no_gradient,
}


def _words(cause: str, recent: Sequence[Metrics], config: Config) -> tuple[str, str]:
    """The sentence of a cause, in Chinese and English."""
    last, n, s = recent[-1], len(recent), config.sampling
    score = f"{last.get('critic/score/mean', 0.0):.4g}"
    if cause == "empty":
        return (
            f"最近 {n} 步的回答全是空的，学不到东西；请看提示模板（data.chat）和停止符（sampling.stop）",
            f"every answer of the last {n} steps was empty, so nothing is learned; look at the prompt's template "
            "(data.chat) and at sampling.stop",
        )
    if cause == "cut":
        return (
            f"最近 {n} 步的回答全被截在 {s.max_new_tokens} 个 token，得分没有差别，学不到东西；"
            "请加大 sampling.max_new_tokens，或检查模型会不会给出结束符",
            f"every answer of the last {n} steps was cut at {s.max_new_tokens} tokens and none did better than "
            "another, so nothing is learned; raise sampling.max_new_tokens, or see whether the model knows its stop "
            "token",
        )
    if cause == "scores":
        return (
            f"最近 {n} 步的每条回答都得 {score} 分，没有好坏之分，学不到东西；请用 mingce check 检查打分，"
            f"换难度合适的提示，或提高 sampling.temperature（现为 {s.temperature:g}）",
            f"every answer of the last {n} steps scored {score}, none better than another, so nothing is learned; look "
            f"at the scorer with mingce check, take prompts of another difficulty, or raise sampling.temperature "
            f"(now {s.temperature:g})",
        )
    if cause == "advantages":
        return (
            f"最近 {n} 步的优势全为 0（train/rows_without_signal = 1，平均得分 {score}），学不到东西；"
            f"同一提示的回答得分都一样时就会如此：请加大 samples_per_prompt（现为 {config.samples_per_prompt}）"
            f"或 sampling.temperature（现为 {s.temperature:g}），或换难度合适的提示",
            f"every advantage of the last {n} steps was 0 (train/rows_without_signal = 1, mean score {score}), so "
            f"nothing is learned; it is so where all answers to a prompt score alike: raise samples_per_prompt (now "
            f"{config.samples_per_prompt}) or sampling.temperature (now {s.temperature:g}), or take prompts of another "
            "difficulty",
        )
    if cause == "kl":
        share, spread, beta = _kl_share(last), _spread(last), last.get("critic/kl_coeff", config.kl.reward_coef)
        return (
            f"最近 {n} 步里 KL 压过了得分：它使一条回答的奖励变动 {share:.3g}，而得分最多相差 {spread:.3g}；"
            f"请减小 kl.reward_coef（β 现为 {beta:.3g}）",
            f"the KL outweighed the score in the last {n} steps: it moved a rollout's reward by {share:.3g}, where "
            f"scores differ by {spread:.3g} at most; lower kl.reward_coef (β is now {beta:.3g})",
        )
    if cause == "kl_loss":
        pull, most = _kl_loss_pull(last, config), _advantage_pull(last, config)
        return (
            f"最近 {n} 步里损失中的 KL 压过了策略损失：它把一个 token 的对数概率拉回参考模型的力约为 {pull:.3g}，"
            f"而优势的力至多 {most:.3g}；请减小 kl.loss_coef（现为 {config.kl.loss_coef:.3g}）",
            f"the KL in the loss outweighed the policy loss in the last {n} steps: it pulls a token's log-probability "
            f"back to the reference with about {pull:.3g}, where advantages pull with {most:.3g} at most; lower "
            f"kl.loss_coef (now {config.kl.loss_coef:.3g})",
        )
    assert cause == "gradient"
    return (
        f"最近 {n} 步 actor 的梯度恰为 0（平均得分 {score}），学不到东西；"
        "请看损失里还有没有 token（loss_mask）和裁剪（actor.clip_*）",
        f"the actor's gradient was exactly 0 in the last {n} steps (mean score {score}), so nothing is learned; see "
        "whether tokens are left in the loss (loss_mask) and what is clipped (actor.clip_*)",
    )
