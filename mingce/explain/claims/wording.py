"""What verdicts say, in both languages."""

from __future__ import annotations

from collections.abc import Mapping

from mingce.explain.claims.formulas import show
from mingce.explain.claims.verdicts import Pair

KIND_WORDS: dict[str, Pair] = {
    "rewards": ("奖励 r", "rewards r"),
    "values": ("价值 V", "values V"),
    "next_values": ("下一状态的价值 V(s_{t+1})", "next values V(s_{t+1})"),
    "deltas": ("TD 误差 δ", "TD errors δ"),
    "advantages": ("优势 A", "advantages A"),
    "returns": ("回报 R", "returns R"),
    "whitened": ("白化后的优势", "whitened advantages"),
    "scores": ("得分", "scores"),
    "kl": ("KL", "KL"),
    "old_log_probs": ("对数概率", "log-probs"),
    "ref_log_probs": ("参考模型的对数概率", "reference log-probs"),
    "new_log_probs": ("新的对数概率", "new log-probs"),
    "old_probs": ("概率 π_old", "probabilities π_old"),
    "ref_probs": ("概率 π_ref", "probabilities π_ref"),
    "new_probs": ("概率 π_new", "probabilities π_new"),
    "ratio": ("概率比", "probability ratios"),
    "mean": ("均值", "mean"),
    "std": ("标准差", "standard deviation"),
    "var": ("方差", "variance"),
    "arithmetic": ("算术", "arithmetic"),
    "count": ("个数", "count"),
    "words": ("说法", "statement"),
    "share": ("占最后奖励的比例", "share of the last reward"),
}
_SYMBOLS = {"gamma": "γ", "lam": "λ", "beta": "β"}


def settings_words(settings: Mapping[str, float], inferred: frozenset[str]) -> Pair:
    """`γ = 1, λ = 0.95 (λ inferred)`."""
    listed = [f"{_SYMBOLS[name]} = {show(value)}" for name, value in settings.items()]
    open_ = [_SYMBOLS[name] for name in settings if name in inferred]
    zh, en = "，".join(listed), ", ".join(listed)
    if not open_:
        return zh, en
    if len(open_) == len(listed):
        return f"{zh}（文中未给，由数字推断）", f"{en} (not stated; inferred from the numbers)"
    return f"{zh}（{'、'.join(open_)} 由数字推断）", f"{en} ({' and '.join(open_)} inferred from the numbers)"


def carried_words(lines: tuple[int, ...]) -> Pair:
    told = sorted(set(lines))
    zh, en = "、".join(str(line) for line in told), ", ".join(str(line) for line in told)
    return f"输入取自第 {zh} 行", f"inputs from line {en}"


LOOSE: Pair = ("按中间步骤四舍五入后的数算出，末位略有出入", "rounded loosely: worked out from rounded numbers")
SCORES_AS_REWARDS: Pair = ("文中未给奖励，以得分为奖励", "no rewards are given; the scores are taken for them")
NO_PAIR: Pair = (
    "γ 与 λ 文中未给，而且没有哪一组 γ（0.8 到 1）与 λ（0 到 1）能得出这些数",
    "γ and λ are not stated, and no γ from 0.8 to 1 with any λ gives these numbers",
)
NO_COMMON_PAIR: Pair = (
    "γ 与 λ 文中未给，常用的各组 γ、λ 都得不出这些数",
    "γ and λ are not stated, and no common pair gives these numbers",
)
NEAREST: Pair = ("最接近的常用组合", "nearest common pair")
REWARD_FOR_DELTA: Pair = (
    "递推里加的是 r_t 而不是 δ_t，漏掉了 γ·V(s_{t+1}) − V(s_t)",
    "the recursion adds r_t in place of δ_t: it leaves out γ·V(s_{t+1}) − V(s_t)",
)
WHITENED_IN_RETURN: Pair = (
    "这里用白化后的优势去加 V；回报必须用未白化的原始优势",
    "whitened advantages were added to V; returns take the raw ones",
)
SUM_HOLDS: Pair = (
    "文中的 R = A + V 自相吻合，但 A 本身不是由这些奖励和价值得来的",
    "the text's R = A + V holds, but its A does not come from these rewards and values",
)
NO_INPUTS: Pair = (
    "附近没有同样长度的奖励和价值，无法核对，只当作已知数",
    "no rewards and values of this length are given nearby, so it is taken as given",
)
OTHER_CASE: Pair = (
    "与文中的奖励和价值对不上，但看来说的是另一种情形，不作判断",
    "it does not follow from the rewards and values given, but seems to be about another case, so it is left open",
)
NEITHER_WHITENED: Pair = (
    "上面给出的同长度原始优势，白化后都不是这组数（白化不会改变大小次序）",
    "it is the whitening of none of the raw lists of this length above (whitening keeps the order)",
)
FOLLOWS: Pair = (
    "算术本身没错，但用到的前一步已经错了",
    "the sum itself is right, but it goes on from a number that is wrong",
)
BESSEL: Pair = ("除以 n − 1，verl 与 mingce 的做法", "÷ n − 1, as verl and mingce do")
BIASED: Pair = ("除以 n", "÷ n")


def other_settings(settings: Mapping[str, float]) -> Pair:
    zh, en = settings_words(settings, frozenset())
    return f"这其实是 {zh} 时的数", f"these are the numbers for {en}"


def term_words(name: str, shown_: float, truth: float) -> Pair:
    return (
        f"{name} 应为 {show(truth)}，文中代入的是 {show(shown_)}",
        f"{name} is {show(truth)}, but {show(shown_)} was put in",
    )


def step_words(left: str, value: float, shown_: float) -> Pair:
    return f"{left} = {show(value)}，不是 {show(shown_)}", f"{left} = {show(value)}, not {show(shown_)}"


def given_words(line: int, truth: float) -> Pair:
    return f"第 {line} 行给出的是 {show(truth)}", f"line {line} gives {show(truth)}"


def as_given(line: int) -> Pair:
    return f"与第 {line} 行给出的数一致", f"as given in line {line}"


def unusual(settings: Mapping[str, float]) -> Pair:
    zh, en = settings_words(settings, frozenset())
    return (
        f"γ 与 λ 文中未给；只有不常用的 {zh} 能得出这些数，无法断定对错",
        f"γ and λ are not stated; only the unusual {en} gives these numbers, so it cannot be told",
    )
