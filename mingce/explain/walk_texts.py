"""What the walk says beside a token's account (account_texts): of scores and values, which the account only uses, and a
short sentence for each token where a section has none.

The rules that choose a sentence are those of the account (the sign of a number) and

    rises: the estimate after the token against that before it     up | down | same | ended | bootstrapped
    target: the return against the estimate it was made from        up | down | same
    fit: the return against the new estimate                        up | down | same | clipped
"""

from __future__ import annotations

from mingce.explain.account_texts import Pair, Section

SCORES = Section(
    "scores",
    ("当场得几分（得分）", "What it scores on the spot (score)"),
    "score_t",
    "score_{t} = {score}",
    (
        (
            "说出“{token}”的那一刻，裁判给了 {score} 分。前面的词得 0 分不等于没用：要等整句话说完，裁判才看得出对不对。",
            "The moment “{token}” is said, the referee gives {score}. A 0 for an earlier word does not make it useless: only when the whole answer is there can the referee tell whether it is right.",
        ),
        (
            "任务给“{token}”的得分是 {score}，放在动作的槽位 {t} 上。稀疏得分只落在最后一个被选的 token 上，稠密得分落在完成它的那个 token 上；得分里还没有 KL。",
            "The task scores “{token}” with {score}, stored in the slot of the action, {t}. A sparse score sits on the last chosen token only, a dense one on the token that completed it; no KL is in it yet.",
        ),
        (
            "策略要最大化的是 `E[Σ_t score_t]`，与分数落在哪一步无关：γ = 1 时把同一笔得分提前或推后，总回报不变，变的只是各状态的 `V` 和优势的方差。",
            "What the policy maximises is `E[Σ_t score_t]`, wherever the score is paid: with γ = 1, paying the same amount earlier or later leaves the total as it is; only the `V` of the states and the variance of the advantages change.",
        ),
    ),
    needs=("score",),
    case_of="score",
    cases={
        "positive": ("当场得 {score} 分。", "Scores {score} on the spot."),
        "negative": ("当场扣分：{score}。", "Loses {score} on the spot."),
        "zero": (
            "当场不得分；它的功劳要由优势从后面传回来。",
            "No score on the spot; its credit must come back through the advantage.",
        ),
    },
)

VALUES = Section(
    "values",
    ("教练怎么看（价值）", "What the coach expects (value)"),
    "V(s_t) ≈ E[Σ_k γ^k·r_{t+k} | s_t]",
    "V(s_{t}) = {value}",
    (
        (
            "还没说“{token}”的时候，教练猜从现在起到最后一共还能拿 {value}。这个数里已经算上了说“{token}”当场会得的分。",
            "Before “{token}” is said, the coach guesses that {value} can still be earned from here to the end. What “{token}” itself will earn is already part of that guess.",
        ),
        (
            "critic 在“{token}”的前一个位置读出 `V(s_t)` = {value}：状态列，第 {t} 槽，看不到“{token}”，估计的和里含 `r_t`。奖励都在结尾时，越近成功 V 越高；每步都有正奖励时，剩得越少 V 越低。",
            "The critic reads `V(s_t)` = {value} one position before “{token}”: a state column, slot {t}; it has not seen “{token}”, and the sum it estimates includes `r_t`. With the reward at the end V rises as success comes nearer; with positive rewards all along it falls as less is left.",
        ),
        (
            "`V^π(s_t) = E_π[Σ_k γ^k·r_{t+k} | s_t]`，拆出第一项即 Bellman 方程 `V^π(s_t) = E_π[r_t + γ·V^π(s_{t+1}) | s_t]`。所以 `r_t` 在 `V(s_t)` 里，而 `E[δ_t | s_t] = 0` 当且仅当 V 满足这个方程。",
            "`V^π(s_t) = E_π[Σ_k γ^k·r_{t+k} | s_t]`; taking the first term out gives Bellman's equation, `V^π(s_t) = E_π[r_t + γ·V^π(s_{t+1}) | s_t]`. So `r_t` is inside `V(s_t)`, and `E[δ_t | s_t] = 0` exactly when V satisfies it.",
        ),
    ),
    needs=("value",),
    case_of="rises",
    cases={
        "up": (
            "说出“{token}”，估计从 {value} 升到 {next_value}：critic 更看好了。",
            "With “{token}” the estimate rises from {value} to {next_value}: the critic likes it better.",
        ),
        "down": (
            "说出“{token}”，估计从 {value} 降到 {next_value}：剩下能拿的少了。",
            "With “{token}” the estimate falls from {value} to {next_value}: less is left to earn.",
        ),
        "same": ("说出“{token}”前后，估计几乎不变。", "“{token}” hardly moves the estimate."),
        "ended": (
            "说“{token}”之前还估 {value}；说完就结束，之后是 0。",
            "Before “{token}” the estimate is {value}; then the answer ends, and what follows is 0.",
        ),
        "bootstrapped": (
            "说“{token}”之前估 {value}；之后被截断，接着用 {next_value}。",
            "Before “{token}” the estimate is {value}; then the answer is cut, and {next_value} goes on from there.",
        ),
    },
)

Cases = dict[str, Pair]
SHORT: dict[str, tuple[str, Cases]] = {
    "reward": (
        "reward",
        {
            "positive": ("{reward} > 0：这一步有进账。", "{reward} > 0: this step earns."),
            "negative": ("{reward} < 0：这一步要付账。", "{reward} < 0: this step pays."),
            "zero": ("几乎是 0：这一步不赚不赔。", "Almost 0: this step neither earns nor pays."),
        },
    ),
    "return": (
        "target",
        {
            "up": (
                "目标 {return} 高于估计 {value}：critic 该猜高些。",
                "The target {return} is above the estimate {value}: the critic should say more.",
            ),
            "down": (
                "目标 {return} 低于估计 {value}：critic 该猜低些。",
                "The target {return} is below the estimate {value}: the critic should say less.",
            ),
            "same": ("目标与估计几乎一致。", "Target and estimate agree."),
        },
    ),
    "value_loss": (
        "fit",
        {
            "up": (
                "估计 {new_value} 低于目标 {return}：往上拉。",
                "The estimate {new_value} is below the target {return}: pulled up.",
            ),
            "down": (
                "估计 {new_value} 高于目标 {return}：往下拉。",
                "The estimate {new_value} is above the target {return}: pulled down.",
            ),
            "same": ("估计已到目标。", "The estimate is at its target."),
            "clipped": (
                "价值裁剪决定了这一项，没有梯度。",
                "The value clip decided this term; it has no gradient.",
            ),
        },
    ),
}
"""Sections without a sentence for the case at hand, or with one too poor alone: section id → rule and sentences."""

LABELS: dict[str, Pair] = {
    "title": ("逐 token 的账", "The account, token by token"),
    "for_example": ("以“{token}”（t = {t}）为例：", "Take “{token}” (t = {t}). "),
    "derivation": ("推导：", "Derivation: "),
    "skipped": ("跳过：{why}", "skipped: {why}"),
    "no_columns": ("没有 {names}", "no {names}"),
    "no_settings": (
        "{names} 不知道，所以只列数、不代入；可用选项给出",
        "{names} not known, so the numbers are listed and not put into the formula; options can give them",
    ),
    "not_whitened": ("这里不白化", "the advantages are not whitened here"),
    "given": ("没有 {names}：这些数是直接给出的", "no {names}: these numbers are given as they are"),
    "own_code": (
        "{code} 是自己写的代码，这里不执行：只列账本里的数，不能重算",
        "{code} is code of one's own, which is not executed here: the recorded numbers are listed, not recomputed",
    ),
    "no_account": ("没有可代入的公式，只列数", "there is no formula to put the numbers into; they are listed"),
    "wrong": (
        "t = {t} “{token}”：账本记 {recorded}，按公式是 {computed}",
        "t = {t} “{token}”: the ledger says {recorded}, the formula gives {computed}",
    ),
    "wrongs": (
        "账本与重算不符：{count} 处（见红字）",
        "the ledger and the computation disagree in {count} places (in red)",
    ),
    "left_out": (
        "共 {total} 个 token，这里走 {shown} 个：开头、结尾和 |A| 最大的；其余用 --token T、--format markdown 或 --format json 看",
        "{shown} of {total} tokens are walked here: the first, the last and those of the largest |A|; see the rest with --token T, --format markdown or --format json",
    ),
    "action": ("动作", "action"),
    "state": ("状态", "state"),
    "meaning": ("意思", "meaning"),
    "code": ("代码", "code"),
    "recorded": ("账本", "ledger"),
    "step": ("第 {step} 步，第 {row} 条回答", "step {step}, rollout {row}"),
    "after": ("最后一个 token 之后的价值 {after}", "value after the last token {after}"),
}


def label(name: str, lang: str, **values: object) -> str:
    """A word of the walk's own."""
    return LABELS[name][0 if lang == "zh" else 1].format(**values)
