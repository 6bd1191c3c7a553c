"""A few wrong sentences that people and models write again and again, each with the rule that knows it.

A rule must fire on the wrong sentence and stay silent on the right one, its negation, a quotation and a supposition; it
would rather miss one than accuse one. Only answers are judged, not what somebody asks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mingce.explain.claims.context import Context
from mingce.explain.claims.facts import Where
from mingce.explain.claims.reading import Passage, Statement
from mingce.explain.claims.verdicts import Pair, Verdict

_VALUE = (
    r"(?:values?\s?\[\s?(?::\s?,\s?)?[ti0]\s?\]|V\s?\(\s?(?:s_\{?[t0]\}?|[t0])\s?\)|V_\{?[t0]\}?(?![0-9a-z])(?!\s?\+))"
)
_NTH = r"(?:第\s{0,3}[t0]\s{0,3}个|这个|该|当前(?:这个)?)\s{0,3}(?:response\s)?(?:token|词|字|动作)"
_DONE = (
    rf"(?:(?:已经?|既然)[^。\n]{{0,14}}(?:产生|生成|写下|选出|说出|输出|采样)[^。\n]{{0,6}}{_NTH}"
    rf"|(?:看到|生成|产生|写下|选出|采样)?(?:了|出)?\s{{0,2}}{_NTH}[^。，\n]{{0,4}}(?:之后|以后|后)(?!面|续)"
    rf"|(?:after|once)\s(?:the\s)?(?:token\s[t0]\b|t-th\stoken|y_t\b|a_t\b|this\stoken|that\stoken|(?:generating|choosing|sampling|emitting)\stoken\s[t0]\b))"
)
_OTHER_SYMBOL = re.compile(r"Q\s?\(|[rRAGδ]_|r\s?\(|reward|奖励|回报")
_NOT = re.compile(
    r"不是|并非|而非|不等于|之前|前的|发生前|动作前|落子前|下一|不对|错|误解|before|\bnot\b|n't|never"
    r"|rather than|wrong|mistake|t\s?\+\s?1",
    re.I,
)
_VALUE_AFTER = re.compile(rf"{_VALUE}(?P<between>[^。\n]{{0,44}}?){_DONE}", re.I)
_AFTER_VALUE = re.compile(
    rf"{_DONE}(?P<between>(?:的?(?:状态)?(?:价值|估值)|\s?才?计算|，?\s?(?:critic|裁判)[^。\n]{{0,8}}(?:给出|算出|预测)"
    rf"|[^.\n]{{0,24}}(?:comput|estimat|predict|giv|output)\w{{1,4}})[^。.\n]{{0,16}}?){_VALUE}",
    re.I,
)
_MOVED = re.compile(
    r"(?:下了一子|落了子|走了一步)[^。\n]{0,90}当前(?:局面|状态)的?(?:估值|价值)\s{0,3}V_\{?t\}?(?!\s?\+)"
)
_WITHOUT_REWARD = re.compile(
    rf"{_VALUE}[^。.\n]{{0,12}}(?:不包含|不包括|不含|没有包含|不计入|does not (?:contain|include)"
    rf"|doesn't (?:contain|include)|excludes?)"
    r"[^。.\n]{0,10}(?:r_\{?[t0]\}?(?!\s?\+)|r\s?\([t0]\)|当前(?:这)?步?的?(?:即时)?奖励|这一步的奖励"
    r"|the (?:current|immediate) reward)",
    re.I,
)
_RETURN = r"(?<![A-Za-z])(?:returns?(?:_t|\[[it0-9]\])?|R_\{?(?:t|i\+1|\d)\}?|回报)"
_ACTUAL = (
    r"(?:实际(?:观测到的?|发生的?|得到的?)?(?:折扣)?(?:累[积计])?(?:的)?(?:折扣)?(?:累[积计])?(?:回报|奖励)(?!目标)|蒙特卡洛回报"
    r"|(?:the\s)?Monte[ -]Carlo\sreturns?|(?:the\s)?MC\sreturns?"
    r"|(?:the\s)?actual(?:ly observed)?\s(?:discounted\s)?(?:cumulative\s)?(?:return|sum of rewards|rewards?))"
)
_IS_ACTUAL = re.compile(
    rf"{_RETURN}[^。\n]{{0,44}}?(?:=|:|是|为|即|就是|\bis\b|\bare\b|\bequals?\b|\()[^。\n]{{0,30}}?{_ACTUAL}", re.I
)
_IDENTITY = re.compile(
    r"returns?\s?=\s?(?:advantages?\s?\+\s?values?|values?\s?\+\s?advantages?)|R_\{?t\}?\s?=\s?(?:V_\{?t\}?|V\(s_\{?t\}?\))\s?\+\s?A_\{?t\}?"
    r"|R_\{?t\}?\s?=\s?A_\{?t\}?\s?\+\s?V|\bGAE\b",
    re.I,
)
_ADDS_VALUE = re.compile(r"R_\{?t\}?\s?=\s?(?:V|A)")
_SUM_OF_REWARDS = re.compile(r"R_\{?t\}?\s?=\s?r_\{?t\}?\s?\+\s?γ\s?\*?\s?r_\{?t\s?\+\s?1\}?\s?\+")
_QUALIFIED = re.compile(
    r"λ\s?(?:=|→)\s?1(?!\d)|lam(?:bda)?\s?=\s?1(?!\d)|λ-return|λ\s?回报|TD\(λ\)|lambda-return|只有|仅当"
    r"|only (?:if|when|for)|不一定|不等于|\bnot\b|不是"
    r"|λ\s?<\s?1|近似|approximat|而不是|错|G_\{?t\}?",
    re.I,
)
_WHITENED = r"(?:whitened|normali[sz]ed|白化(?:之后|后)?的?|标准化后的?|归一化后的?)"
_WHITENED_RETURN = re.compile(
    rf"(?:{_RETURN}|critic\s?的?目标|value target)[^。\n]{{0,24}}?(?:=|用|使用|由|加上|uses?|using|from|with"
    rf"|computed)[^。\n]{{0,24}}?"
    rf"(?:{_WHITENED}\s?(?:advantages?|优势|A\b)|advantages?_whitened|whitened_advantages?)",
    re.I,
)
_RAW = re.compile(
    r"原始|未白化|白化前|whiten\s?前|whiten\s?之前|之前|raw|unwhitened|before|不能|不要|不用|不应|不是|不会"
    r"|破坏|错|如果|若|if |\bnot\b|n't|never|wrong|instead of|rather than",
    re.I,
)
_ALIGNED = re.compile(
    r"returns?(?:\[[it]\])?[^。\n]{0,12}(?:对齐到[^。\n]{0,16}动作本身|(?:is|are)\s(?:action-aligned"
    r"|aligned (?:with|to) the action))",
    re.I,
)
_LAM = r"(?:λ|lam|lambda)\s?=\s?"
_ZERO_IS_MC = re.compile(
    rf"{_LAM}0(?:\.0)?(?![.\d])(?P<between>[^，。;；,.\n]{{0,28}}?)(?:蒙特卡洛|Monte[ -]Carlo|\bMC\b)", re.I
)
_ONE_IS_TD = re.compile(
    rf"{_LAM}1(?:\.0)?(?![.\d])(?P<between>[^，。;；,.\n]{{0,28}}?)(?:TD\(0\)|一步\s?TD|单步\s?TD|one-step TD)", re.I
)
_CONTRAST = re.compile(
    r"λ|lam|分别|respectively|不是|而非|\bnot\b|unlike|rather|instead|不同|相反|vs|对比|与|和|to|→|到", re.I
)
_VARIANCE = re.compile(
    r"λ\s{0,2}(?:越大|越接近\s?1|增大|变大|调大)[^。，\n]{0,6}，?\s?(?:则|那么)?(?:优势的|估计的)?方差\s?(?:就)?(?:会)?(?:越小|越低|变小|减小|降低)"
    r"|(?:larger|higher|bigger|increasing|raising)\s(?:λ|lambda)[^.\n]{0,20}?(?:lowers?|reduces?|decreases?|shrinks?|lower|smaller|less)\s(?:the\s)?variance",
    re.I,
)
_NEGATIVE_KL = re.compile(
    r"(?:每个\s?token|逐\s?token|单个\s?token|token\s?级|per-token"
    r"|each token'?s)[^。.\n]{0,12}KL[^。.\n]{0,16}(?:不可能|不会|不能|永远不|cannot|can't|can never|is never)"
    r"[^。.\n]{0,6}(?:为负|是负|负数|小于\s?0|negative)",
    re.I,
)
_OTHER_KL = re.compile(r"k2|k3|abs|绝对值|期望|分布|full|expect|平均|mean", re.I)


@dataclass(frozen=True)
class Around:
    """What the passage around a sentence says: whether its returns come from GAE, and whether as R = V + A."""

    by_gae: bool
    adds_value: bool


@dataclass(frozen=True)
class Rule:
    """One wrong statement: a word that it cannot do without, when a sentence makes it, and what is right."""

    id: str
    hint: re.Pattern[str]
    says: Callable[[str, Around], bool]
    right: Pair


def _value_after(sentence: str, _: Around) -> bool:
    if _NOT.search(sentence):
        return False
    if _MOVED.search(sentence):
        return True
    found = _VALUE_AFTER.search(sentence) or _AFTER_VALUE.search(sentence)
    return found is not None and not _OTHER_SYMBOL.search(found["between"])


def _monte_carlo(sentence: str, around: Around) -> bool:
    if not around.by_gae or _QUALIFIED.search(sentence):
        return False
    if _SUM_OF_REWARDS.search(sentence):
        return around.adds_value
    return _IS_ACTUAL.search(sentence) is not None


def _plain(pattern: re.Pattern[str], unless: re.Pattern[str]) -> Callable[[str, Around], bool]:
    return lambda sentence, _: pattern.search(sentence) is not None and not unless.search(sentence)


def _lam_ends(sentence: str, _: Around) -> bool:
    found = _ZERO_IS_MC.search(sentence) or _ONE_IS_TD.search(sentence)
    return found is not None and not _CONTRAST.search(found["between"]) and not _NOT.search(sentence)


RULES = (
    Rule(
        "value_after_token",
        re.compile("后|已|after|once|下了一子|落了子|走了一步", re.I),
        _value_after,
        (
            "V(s_t) 是选出第 t 个 token 之前的价值：critic 在它前一个 token 的位置读出。"
            "它包含 r_t，因为 r_t 是在 s_t 里采取动作后得到的",
            "V(s_t) is the value before token t is chosen, read by the critic at the token in front of it; it contains "
            "r_t because r_t is earned by the action taken in s_t",
        ),
    ),
    Rule(
        "return_is_monte_carlo",
        re.compile("实际|蒙特卡洛|Monte|MC|actual|R_", re.I),
        _monte_carlo,
        (
            "R_t = V(s_t) + A_t 只有在 λ = 1 时才是蒙特卡洛回报（实际的折扣累积奖励）；λ < 1 时它是 "
            "λ-回报，含有自举的 V",
            "R_t = V(s_t) + A_t is the Monte Carlo return (the actual discounted sum) only for λ = 1; for λ "
            "< 1 it is the "
            "λ-return, which bootstraps from V",
        ),
    ),
    Rule(
        "return_of_whitened",
        re.compile("whiten|normali|白化|标准化|归一化", re.I),
        _plain(_WHITENED_RETURN, _RAW),
        (
            "回报用未白化的原始优势：R_t = V(s_t) + A_t；白化后的优势只进策略损失",
            "returns take the raw advantages: R_t = V(s_t) + A_t; whitened ones enter the policy loss only",
        ),
    ),
    Rule(
        "value_without_reward",
        re.compile("不包|不含|没有包含|不计入|contain|include|exclude", re.I),
        _plain(_WITHOUT_REWARD, re.compile(r"错|误解|不对|wrong|mistake|incorrect", re.I)),
        (
            "V(s_t) 包含 r_t：V(s_t) = E[r_t + γ·V(s_{t+1})]，r_t 是在 s_t 里采取动作后得到的",
            "V(s_t) contains r_t: V(s_t) = E[r_t + γ·V(s_{t+1})], and r_t is earned by the action taken in s_t",
        ),
    ),
    Rule(
        "return_aligned_with_action",
        re.compile("对齐|aligned", re.I),
        _plain(_ALIGNED, re.compile(r"状态|state|不够准确|不准确|不是|\bnot\b", re.I)),
        (
            "回报与价值一样对齐到状态 s_t（选出第 t 个 token 之前）；对齐到动作的是得分、奖励和优势",
            "returns, like values, belong to the state s_t before token t; scores, rewards and advantages "
            "belong to the action",
        ),
    ),
    Rule(
        "ends_of_lambda",
        re.compile("λ|lam", re.I),
        _lam_ends,
        (
            "λ = 0 是一步 TD（A_t = δ_t），λ = 1 才是蒙特卡洛（A_t = G_t − V(s_t)）",
            "λ = 0 is one-step TD (A_t = δ_t); λ = 1 is Monte Carlo (A_t = G_t − V(s_t))",
        ),
    ),
    Rule(
        "variance_of_lambda",
        re.compile("方差|variance", re.I),
        _plain(_VARIANCE, re.compile(r"不是|错|\bnot\b|wrong", re.I)),
        (
            "λ 越大越接近蒙特卡洛：方差越大、偏差越小",
            "a larger λ comes nearer to Monte Carlo: more variance, less bias",
        ),
    ),
    Rule(
        "negative_kl",
        re.compile("KL", re.I),
        _plain(_NEGATIVE_KL, _OTHER_KL),
        (
            "单个 token 上的 k1 估计 log π_old − log π_ref 可以为负，只有它的期望不为负",
            "the k1 estimate of one token, log π_old − log π_ref, may be negative; only its expectation is not",
        ),
    ),
)  # fmt: skip
_DENIED = re.compile(
    r"不对[:：，。]|是错的|这是误解|常见误解|错误的说法|not so[.:,]|that is wrong|this is wrong"
    r"|a common mistake|is a mistake",
    re.I,
)
_WARNED = re.compile(r"错误|❌|wrong|incorrect", re.I)
_ENDS = re.compile(r"[。！？!?；;\n]|\.(?=\s|$)")


def judge_words(passage: Passage, context: Context) -> Iterator[Verdict]:
    """One verdict a rule and passage, with every line that says so."""
    if passage.by_user:
        return
    around = Around(
        any(_IDENTITY.search(statement.text) for statement in passage.statements),
        any(_ADDS_VALUE.search(statement.text) for statement in passage.statements),
    )
    lams = context.all_stated("lam", passage.question)
    for rule in RULES:
        if rule.id == "return_is_monte_carlo" and lams == {1.0}:
            continue
        said = list(_said(passage, rule, around))
        if said:
            others = tuple(where.line for where in said[1:])
            yield Verdict("wrong", said[0], "words", rule.id, notes=(rule.right,), lines=others)


def _said(passage: Passage, rule: Rule, around: Around) -> Iterator[Where]:
    before: Statement | None = None
    for statement in passage.statements:
        text = statement.text[:4000]
        if (
            rule.hint.search(text)
            and not _DENIED.search(text)
            and any(rule.says(sentence, around) for sentence in _sentences(text))
            and not (before is not None and len(before.text) < 60 and _WARNED.search(before.text))
        ):
            yield Where(
                passage.question, passage.by_user, statement.section, statement.line,
                statement.raw.split("\n")[0].strip(), statement.heading,
            )  # fmt: skip
        before = statement


def _sentences(text: str) -> Iterator[str]:
    start = 0
    for match in _ENDS.finditer(text):
        yield text[start : match.start()]
        start = match.end()
    yield text[start:]
