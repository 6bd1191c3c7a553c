"""K3 and K4: where the score was put, and how the KL penalty was taken off it.

The reward of a token should be r_t = s_t − β·k_t on chosen tokens and s_t elsewhere, with the score of a response on its
last chosen token. Which k and which β are fitted to the numbers; where the score sits is read off them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mingce.audit.evidence import Bools, Evidence, Floats, Ints, rows_with
from mingce.audit.finding import Check, Fault, Finding
from mingce.audit.geometry import chosen_pads
from mingce.audit.kl import kl_estimates
from mingce.specs.kl import kl_name

# ── what can be wrong ──────────────────────────────────────────────────────────────────────────────────────────────

SCORE_INDEX = Fault(
    "score-index", "bug", (9,),
    ("终局得分没有放在最后一个被选 token 上，而是放在{where_zh}。", "The terminal score is not on the last chosen token but {where}."),
    "s_t ≠ 0 only at t = e, the last slot with m_t = 1",
    ("下标多算或少算了一位，或用了整行末尾的列号，或用了奖励模型自己的下标。",
     "An index that is one off, the last column of the padded row, or the reward model's own index."),
    ("用 response_mask 的最后一个 1 作为下标。", "Index with the last 1 of the response mask."),
    "https://github.com/EleutherAI/gpt-neox/pull/1285",
)  # fmt: skip
SCORE_AFTER_LAST = Fault(
    "score-after-last", "convention", (9,),
    ("得分放在最后一个 token 之后的槽位，价值也保留到那里（TRL 与 torchtune 的约定）。",
     "The score sits one slot after the last token, and values are kept up to there (the convention of TRL and torchtune)."),
    "A_e = r_e + γ·((1−λ)·V_{e+1} + λ·score) − V_e",
    link="https://github.com/huggingface/trl/issues/3750",
)  # fmt: skip
SCORE_MASKED = Fault(
    "score-on-masked-token", "bug", (10,),
    ("得分放在策略没有选的 token 上（{where_zh}），掩码之后它会丢失、衰减或只漏进组均值。",
     "The score sits on a token the policy did not choose ({where}): past the mask it is lost, decayed, or leaks into the group."),
    "Σ_t s_t·(1 − m_t) = 0",
    ("放得分时用 attention mask 找末尾，训练时用的却是 loss mask。",
     "The score is placed with the attention mask while training uses the loss mask."),
    ("用训练所用的同一个掩码确定得分的下标。", "Place the score with the same mask that training uses."),
    "https://github.com/radixark/miles/pull/1827",
)  # fmt: skip
SCORE_EMPTY_ROW = Fault(
    "score-in-empty-row", "bug", (11,),
    ("没有任何被选 token 的行也得了分，写在下标 −1（最后一列）。",
     "A row without any chosen token got a score, written at index −1, the last column."),
    "Σ_t m_t = 0  ⇒  s_t = 0",
    ("reward[i, length − 1] 在 length = 0 时写到了最后一列。", "reward[i, length − 1] writes the last column when length is 0."),
    ("空回答单独处理：不给分，也不进组统计。", "Treat empty responses apart: no score, no part in the group's statistics."),
    "https://github.com/verl-project/verl/issues/6476",
)  # fmt: skip
KL_SIGN = Fault(
    "kl-sign", "bug", (23,),
    ("奖励里的 KL 惩罚符号反了：拟合出 β = {beta:.4g}，离参考策略越远奖励越高。",
     "The KL penalty in the reward has the wrong sign: β fits to {beta:.4g}, so drifting from the reference is paid."),
    "r_t = s_t − β·k_t with β > 0",
    ("把惩罚加上而不是减去，或 log-prob 之差的次序写反。", "The penalty is added instead of subtracted, or the difference is taken the wrong way round."),
    ("改为 r = s − β·(log π_old − log π_ref)。", "Make it r = s − β·(log π_old − log π_ref)."),
    "https://github.com/qiancheng0/ToolRL/issues/52",
)  # fmt: skip
KL_ESTIMATOR = Fault(
    "kl-estimator", "bug", (24,),
    ("奖励里的 KL 是 {found}，而设定写的是 {wanted}。", "The KL in the reward is {found}, but the setting says {wanted}."),
    "r_t = s_t − β·k_t with the k of the settings",
    ("估计量的名字与实现对不上，或上报的与训练用的不是同一个。", "The estimator's name and its code differ, or what is reported is not what is trained on."),
    ("让设定与实现一致；放进奖励时 k1 的期望梯度才是 KL 的。", "Make setting and code agree; in the reward it is k1 whose gradient is that of the KL."),
    "https://github.com/NVIDIA-NeMo/RL/pull/2506",
)  # fmt: skip
KL_IN_REWARD = Fault(
    "kl-in-reward", "convention", (),
    ("奖励里有 KL 惩罚：{found}，β = {beta:.4g}。", "The reward holds a KL penalty: {found}, β = {beta:.4g}."),
    "r_t = s_t − β·k_t",
)  # fmt: skip
REWARDS_WHITENED = Fault(
    "rewards-whitened", "convention", (),
    ("奖励在算优势之前已白化，得分与 KL 不再分得开。", "Rewards were whitened before the advantages, so that score and KL can no longer be told apart."),
    "r_t = (s_t − β·k_t)/σ",
)  # fmt: skip
KL_TWICE = Fault(
    "kl-coefficient", "suspicious", (25,),
    ("奖励里的 KL 系数是 {beta:.4g}，设定写的是 {wanted:.4g}（{ratio:.3g} 倍）。",
     "The KL coefficient in the reward is {beta:.4g} where the settings say {wanted:.4g} ({ratio:.3g} times)."),
    "r_t = s_t − β·k_t with the β of the settings",
    ("惩罚被扣了两次，或自适应控制器改了系数而设定没有更新。", "The penalty is taken twice, or an adaptive controller moved the coefficient."),
    ("查清 KL 在哪里进入：奖励、损失，还是两处都有。", "Find out where the KL enters: reward, loss, or both."),
    "https://github.com/verl-project/verl/issues/211",
)  # fmt: skip
KL_ON_PADS = Fault(
    "kl-on-pads", "bug", (15,),
    ("KL 惩罚也扣在填充位置上，会漏进回报。", "The KL penalty is also taken on padding, from where it leaks into the returns."),
    "r_t = s_t where m_t = 0",
    ("先加 KL 再乘掩码的一步漏掉了。", "The KL is added without the mask."),
    ("KL 先乘 response_mask 再进奖励。", "Multiply the KL by the response mask before it enters the reward."),
    "https://github.com/THUDM/slime/pull/1372",
)  # fmt: skip
KL_ON_TOOLS = Fault(
    "kl-on-tool-tokens", "bug", (3, 15),
    ("KL 惩罚也扣在工具或环境写入的 token 上，而那不是策略选的。",
     "The KL penalty is also taken on tool or observation tokens, which the policy did not choose."),
    "r_t = s_t where m_t = 0",
    ("KL 用了 attention mask 而不是 response mask。", "The KL uses the attention mask instead of the response mask."),
    ("KL 乘 response_mask。", "Multiply the KL by the response mask."),
    "https://github.com/THUDM/slime/issues/1370",
)  # fmt: skip
REWARD_MASKED = Fault(
    "reward-on-masked-token", "bug", (10,),
    ("没有被选的 token 上有奖励，既不是得分也不是 KL。", "A token that was not chosen holds a reward that is neither score nor KL."),
    "r_t = s_t where m_t = 0",
    ("奖励在掩码之外被写入。", "Something writes rewards outside the mask."),
    ("只在 response_mask 为 1 处写奖励。", "Write rewards only where the response mask is 1."),
    "https://github.com/radixark/miles/pull/1827",
)  # fmt: skip
REWARD_UNEXPLAINED = Fault(
    "reward-unexplained", "suspicious", (),
    ("奖励不是得分减去任何一种 KL 惩罚（最近的是 {found}，残差 {residual:.2g}）。",
     "The reward is not the score minus any known KL penalty (nearest: {found}, residual {residual:.2g})."),
    "r_t = s_t − β·k_t",
    ("还有别的奖励整形（白化、裁剪、长度惩罚），或用了另一对 log-prob。",
     "Another shaping is at work (whitening, clipping, a length penalty), or another pair of log-probs was used."),
    ("把整形前的得分与所用的 log-prob 一并存下。", "Store the score before shaping and the log-probs that were used."),
)  # fmt: skip

# ── K4 how the reward is composed ──────────────────────────────────────────────────────────────────────────────────


def _penalties(e: Evidence) -> dict[str, Floats]:
    """The KL estimators of the dumped log-probs, or the dumped KL itself."""
    if not e.has("old_log_probs", "ref_log_probs"):
        return {"kl": e["kl"]}
    with np.errstate(all="ignore"):
        return kl_estimates(e["old_log_probs"] - e["ref_log_probs"], clamp=True)


def _fit(y: Floats, k: Floats) -> tuple[float, float]:
    """(β, what β·k leaves of y, relative to y), by least squares."""
    power = float(k @ k)
    beta = float(y @ k) / power if power > 0 else 0.0
    left = y - beta * k
    return beta, float(np.sqrt((left @ left) / max(float(y @ y), 1e-300)))


def composition(e: Evidence) -> Iterator[Finding]:
    """r = s − β·k on chosen tokens and r = s elsewhere; which k, which β."""
    if e.settings.get("whiten_rewards"):
        yield Finding(REWARDS_WHITENED, "rewards")
        return
    penalties = _penalties(e)
    finite = np.isfinite(e["rewards"])
    for penalty in penalties.values():
        finite &= np.isfinite(penalty)
    if e.has("scores"):
        finite &= np.isfinite(e["scores"])
        taken = np.where(finite, e["scores"] - e["rewards"], 0.0)
        judged = e.mask & finite
    else:  # the score is somewhere near the end of the row: the tokens before it hold the penalty alone
        taken = np.where(finite, -e["rewards"], 0.0)
        judged = e.mask & finite & (np.arange(e.mask.shape[1]) < e.last[:, None])
    size = np.abs(np.where(finite, e["rewards"], 0.0)).max(initial=0.0)
    grain = max(size, 1e-12) * (1e-2 if e.coarse else 2e-6)
    y = taken[judged]
    explained, beta, name = np.zeros_like(taken), 0.0, ""
    if len(y) and np.abs(y).max() > grain * (0.1 if e.coarse else 1.0):
        fits = {one: _fit(y, np.where(finite, k, 0.0)[judged]) for one, k in penalties.items()}
        name = min(fits, key=lambda one: fits[one][1])
        wanted = kl_name(e.settings.get("kl_estimator"))
        enough = 0.5 if e.coarse else 2e-3 + grain / np.sqrt((y @ y) / len(y))
        if wanted in fits and fits[wanted][1] <= max(enough if not e.coarse else 0.3, 1.5 * fits[name][1]):
            name = wanted
        elif (plain := next(iter(fits))) and fits[plain][1] <= 1.01 * fits[name][1]:
            name = plain
        beta, residual = fits[name]
        if residual > enough:
            yield Finding(REWARD_UNEXPLAINED, "rewards", {"found": name, "residual": residual})
            return
        explained = beta * np.where(finite, penalties[name], 0.0)
        yield from _judge_penalty(e, name, wanted, beta, judged, taken)
    if e.has("scores"):
        yield from _behind_the_mask(e, taken, explained, finite, grain)
    e.infer("beta", abs(beta))


def _judge_penalty(e: Evidence, name: str, wanted: str, beta: float, judged: Bools, taken: Floats) -> Iterator[Finding]:
    said = {"beta": beta, "found": name, "wanted": wanted}
    given = e.settings.get("beta")
    scores = e["scores"] if e.has("scores") else np.zeros_like(taken)
    if beta < 0:
        yield Finding(KL_SIGN, "rewards", said, e.places(judged & (taken != 0), scores + taken, e["rewards"]))
    elif wanted and name != wanted and name != "kl":
        yield Finding(KL_ESTIMATOR, "rewards", said)
    elif given and abs(beta / float(given) - 1) > (0.2 if e.coarse else 0.01):
        yield Finding(KL_TWICE, "rewards", {"beta": beta, "wanted": float(given), "ratio": beta / float(given)})
    else:
        yield Finding(KL_IN_REWARD, "rewards", said)


def _behind_the_mask(e: Evidence, taken: Floats, explained: Floats, finite: Bools, grain: float) -> Iterator[Finding]:
    stray = finite & ~e.mask & (np.abs(taken) > grain)
    if not stray.any():
        return
    close = np.abs(taken - explained) <= np.maximum(
        0.2 * np.abs(explained) if e.coarse else 2e-3 * np.abs(explained), grain
    )
    fault = REWARD_MASKED
    if explained.any() and (close | ~stray).mean(where=stray) > 0.9:
        pads = stray & ~e.attended & ~e.holes
        fault = KL_ON_PADS if pads.any() else KL_ON_TOOLS
    places = e.places(stray, e["scores"], e["rewards"])
    filled = (
        fault is KL_ON_PADS and np.ptp(taken[stray]) <= grain
    )  # one number everywhere: the log-probs there are fills
    classes = (15, 28) if filled else None
    yield Finding(fault, "rewards", {}, places, float(stray.any(axis=1).mean()), classes=classes)


# ── K3 where the score sits ────────────────────────────────────────────────────────────────────────────────────────


def _scores(e: Evidence) -> Floats:
    """The scores, or what is left of the rewards when the penalty is added back; 0 where not finite."""
    if e.has("scores"):
        return np.nan_to_num(e["scores"], nan=0.0, posinf=0.0, neginf=0.0)
    rewards = np.nan_to_num(e["rewards"], nan=0.0, posinf=0.0, neginf=0.0)
    if not e.has("old_log_probs|kl", "ref_log_probs|kl") or not e.settings.get("beta"):
        return rewards
    penalties = _penalties(e)
    known = kl_name(e.settings.get("kl_estimator"))
    k = np.nan_to_num(penalties.get(known, next(iter(penalties.values()))), nan=0.0, posinf=0.0, neginf=0.0)
    left = rewards + float(e.settings["beta"]) * np.where(e.mask, k, 0.0)
    noise = (0.1 if e.coarse else 1e-3) * max(np.abs(left).max(initial=0.0), 1e-12)
    return np.where(np.abs(left) > noise, left, 0.0)


def placement(e: Evidence) -> Iterator[Finding]:
    """A response's one score belongs on its last chosen token."""
    if e.settings.get("whiten_rewards") and not e.has("scores"):
        return  # whitening has moved every reward: the score's place can no longer be told
    scores = _scores(e)
    there = scores != 0
    empty = ~rows_with(e.mask)
    wrong = there & empty[:, None]
    if wrong.any():
        places = e.places(wrong, np.zeros_like(scores), scores)
        yield Finding(SCORE_EMPTY_ROW, "scores", {}, places, float(wrong.any(axis=1).sum() / max(empty.sum(), 1)))
    count = there.sum(axis=1)
    rows = np.flatnonzero(
        (count == 1) & ~empty & ~rows_with(chosen_pads(e))
    )  # where padding counts as chosen, e is not the end
    if len(rows) == 0 or (count[~empty] > 1).mean() > 0.1:  # dense scores have no one place
        stray = there & ~e.mask & ~empty[:, None]
        if stray.any():
            where = {"where": "amid dense scores", "where_zh": "在稠密得分之中"}
            places = e.places(stray, np.zeros_like(scores), scores)
            yield Finding(SCORE_MASKED, "scores", where, places, float(stray.any(axis=1).mean()))
        return
    slot = there.argmax(axis=1)[rows]
    offset = slot - e.last[rows]
    off = offset != 0
    if not off.any():
        return
    yield _misplaced(e, scores, rows, slot, offset, off)


def _misplaced(e: Evidence, scores: Floats, rows: Ints, slot: Ints, offset: Ints, off: Bools) -> Finding:
    width = e.mask.shape[1]
    wrong = np.zeros_like(e.mask)
    wrong[rows[off], slot[off]] = True
    places = e.places(wrong, np.zeros_like(scores), scores)
    share = float(off.mean())
    short = e.last[rows] < width - 1
    if off[short].all() and (offset[short] == 1).all() and _lives_on_after(e, rows[short]):
        e.infer("score_after_last", True)
        return Finding(SCORE_AFTER_LAST, "scores", {}, (), share)
    on_token = e.attended[rows, slot] & ~e.mask[rows, slot]
    if (on_token[off]).all():
        where = {"where": "the last attended one", "where_zh": "最后一个 attention mask 为 1 的位置"}
        unknown = "attention_mask" not in e.dump.columns
        return Finding(SCORE_MASKED, "scores", where, places, share, classes=(9, 10) if unknown else None)
    if (slot[off] == width - 1).all():
        where = {"where": "in the last column of the padded row", "where_zh": "整行（含填充）的最后一列"}
    elif len(set(offset[off].tolist())) == 1:
        by = int(offset[off][0])
        where = {"where": f"{abs(by)} slot{'s' if abs(by) > 1 else ''} {'after' if by > 0 else 'before'} it",
                 "where_zh": f"它{'后' if by > 0 else '前'}面第 {abs(by)} 个槽位"}  # fmt: skip
    else:
        where = {"where": "at offsets that differ from row to row", "where_zh": "各行不同的偏移处"}
    masked = ~e.mask[rows[off], slot[off]]
    behind = masked.any() and "attention_mask" not in e.dump.columns
    return Finding(SCORE_INDEX, "scores", where, places, share, classes=(9, 10) if behind else None)


def _lives_on_after(e: Evidence, rows: Ints) -> bool:
    """Whether values and returns are kept one slot past the last token, as a score there needs."""
    if e.has("value_mask"):
        return bool(e.dump.columns["value_mask"][rows, e.last[rows] + 1].astype(bool).all())
    if not e.has("values", "returns"):
        return e.dump.source == "trl"
    after = e.last[rows] + 1
    alive = (e["values"][rows, after] != 0) & (e["returns"][rows, after] != 0)
    return bool(len(alive) and alive.mean() > 0.9)


CHECKS = (
    Check("K4 reward", ("奖励的组成", "how the reward is composed"),
          ("rewards", "old_log_probs|kl", "ref_log_probs|kl"), composition),
    Check("K3 score", ("得分的位置", "where the score sits"), ("scores|rewards",), placement),
)  # fmt: skip
