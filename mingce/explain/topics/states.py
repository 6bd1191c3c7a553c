"""Topics of time: what is before a token and what after it, what the masks leave out, how a response ends.

`walk` and `step` give the numbers that most topics of the critic speak of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from mingce.algorithms import reference
from mingce.explain.account import STATE_END, shown
from mingce.explain.example import GAMMA, LAM, Rollout
from mingce.explain.topic import Grid, Topic, Values, listed
from mingce.explain.topics.chosen import equation, plain, rows_of, token_of
from mingce.specs.estimators import lambda_of


class Walk(NamedTuple):
    """The chosen tokens of a rollout, one entry each: holes are stepped over before anything is computed."""

    slots: list[int]
    rewards: list[float]
    values: list[float]
    gamma: float
    lam: float
    after: float  # the value of the state after the last one

    def credit(
        self,
        *,
        values: Sequence[float] | None = None,
        rewards: Sequence[float] | None = None,
        lam: float | None = None,
        after: float | None = None,
    ) -> reference.Credit:
        """GAE of the walk, or of the same walk with other numbers."""
        row = self.rewards if rewards is None else rewards
        return reference.gae(
            [row],
            [self.values if values is None else values],
            [[1] * len(row)],
            self.gamma,
            self.lam if lam is None else lam,
            [self.after if after is None else after],
        )

    def place(self, t: int) -> int:
        """Which chosen token slot t is; a slot that was not chosen stands for the chosen one before it."""
        return max(sum(slot <= t for slot in self.slots) - 1, 0)

    def following(self, numbers: Sequence[float], k: int, after: float) -> float:
        """The number of the chosen token after the k-th."""
        return numbers[k + 1] if k + 1 < len(numbers) else after


def walk(rollout: Rollout) -> Walk:
    """The rollout's chosen tokens with its settings; where γ or λ is not known, the worked example's."""
    columns, settings = rollout["columns"], rollout["settings"]
    slots = reference.chosen(columns["response_mask"])
    gamma, lam = settings.get("gamma"), lambda_of(settings)
    return Walk(
        slots,
        [float(columns["rewards"][s] or 0.0) for s in slots],
        [float(columns["values"][s] or 0.0) for s in slots],
        GAMMA if gamma is None else float(gamma),
        LAM if lam is None else float(lam),
        float(rollout.get("bootstrap") or 0.0),
    )


def spread(rollout: Rollout, walk: Walk, numbers: Sequence[float]) -> str:
    """One number a chosen token as a list over all slots, — where the policy did not choose."""
    by_slot = dict(zip(walk.slots, numbers, strict=True))
    length = len(rollout["columns"]["response_mask"])
    return listed([plain(by_slot[s]) if s in by_slot else None for s in range(length)])


def step(rollout: Rollout, t: int) -> Values:
    """The numbers of one token and its neighbours, by the twins."""
    w = walk(rollout)
    k = w.place(t)
    credit = w.credit()
    deltas, advantages, returns = credit.deltas[0], credit.advantages[0], credit.returns[0]
    slot, last = w.slots[k], w.slots[-1]
    inside = k + 1 < len(w.slots)
    following = w.slots[k + 1] if inside else slot + 1
    before = rollout.get("prompt", "") + "".join(token["text"] for token in rollout["tokens"][:slot])
    values: Values = {
        "t": slot, "place": k, "next_t": following, "token": token_of(rollout, slot),
        "state_end": before[-STATE_END:].replace("\n", "↵"), "chosen_left": len(w.slots) - k - 1,
        "first": w.slots[0], "first_token": token_of(rollout, w.slots[0]), "last": last,
        "last_token": token_of(rollout, last), "count_chosen": len(w.slots), "count_states": len(w.slots) + 1,
        "gamma": w.gamma, "lam": w.lam, "gamma_lam": w.gamma * w.lam, "bootstrap": w.after,
        "reward": w.rewards[k], "value": w.values[k], "delta": plain(deltas[k]),
        "advantage": plain(advantages[k]), "return": plain(returns[k]),
        "next_value": w.following(w.values, k, w.after), "next_advantage": plain(w.following(advantages, k, 0.0)),
        "next_return": plain(w.following(returns, k, w.after)), "last_reward": w.rewards[-1],
        "last_value": w.values[-1], "last_delta": plain(deltas[-1]), "last_advantage": plain(advantages[-1]),
        "rewards": spread(rollout, w, w.rewards), "values": spread(rollout, w, w.values),
        "deltas": spread(rollout, w, deltas), "advantages": spread(rollout, w, advantages),
        "returns": spread(rollout, w, returns),
    }  # fmt: skip
    return values | _spoken_end(rollout, w, k, following if inside else None)


def _spoken_end(rollout: Rollout, walk: Walk, k: int, following: int | None) -> Values:
    """What comes after the token and after the last one, in words."""
    last, after = token_of(rollout, walk.slots[-1]), shown(walk.after)
    if following is not None:
        upcoming = token_of(rollout, following)
        then = f"轮到“{upcoming}”之前", f"before “{upcoming}”"
        rest = f"从“{upcoming}”往后的部分", f"what comes from “{upcoming}” on"
    elif walk.after:
        then, rest = ("在被截断的地方", "where it was cut"), ("截断以后的部分", "what comes after the cut")
    else:
        then, rest = ("话说完以后", "once all was said"), ("话说完以后的部分", "what comes after the end")
    if walk.after:
        end = (
            f"最后一个 token“{last}”之后被长度上限截断，接上 critic 的估计 {after}",
            f"after the last token “{last}” the length limit cut the answer, and the critic's estimate {after} stands for the rest",
        )
    else:
        end = (
            f"最后一个 token“{last}”之后没有未来，价值记 0",
            f"after the last token “{last}” there is no future, and its value is 0",
        )
    spoken = {"then": then, "rest": rest, "end": end}
    return {f"{name}_{lang}": pair[i] for name, pair in spoken.items() for i, lang in enumerate(("zh", "en"))}


# ── which index is which ─────────────────────────────────────────────────────────────────────────────────────────────


def _index_numbers(rollout: Rollout, t: int) -> Values:
    values = step(rollout, t)
    w = walk(rollout)
    values["one_based"] = int(values["t"]) + 1
    values["to_go"] = plain(w.credit(lam=1.0).returns[0][w.place(t)])
    values["return_identity"] = equation("{return} − {value} = {advantage}", values)
    return values


def _index_grid(rollout: Rollout, t: int) -> Grid:
    v = step(rollout, t)
    here, there, action = f"s_{v['t']}", f"s_{v['next_t']}", f"a_{v['t']}"
    score, kl = (_at(rollout, name, v["t"]) for name in ("scores", "kl"))
    rows: list[tuple[Any, ...]] = [
        ("values[t]", here, "V(s_t)", v["value"]),
        ("scores[t]", action, "score_t", score),
        ("kl[t]", action, "k_t", kl),
        ("rewards[t]", f"{here} —{action}→ {there}", "r(s_t, a_t, s_{t+1})", v["reward"]),
        ("values[t+1]", there, "V(s_{t+1})", v["next_value"]),
        ("deltas[t]", action, "r_t + γV(s_{t+1}) − V(s_t)", v["delta"]),
        ("advantages[t]", action, "Σ_l (γλ)^l δ_{t+l} ≈ Q(s_t, a_t) − V(s_t)", v["advantage"]),
        ("returns[t]", here, "V(s_t) + A_t", v["return"]),
    ]
    headings = (
        ("列", "column"),
        ("属于", "belongs to"),
        ("定义", "definition"),
        (f"t = {v['t']}“{v['token']}”", f"t = {v['t']} “{v['token']}”"),
    )
    return Grid(headings, tuple(row for row in rows if row[-1] is not None))


def _at(rollout: Rollout, name: str, slot: int) -> float | None:
    column = rollout["columns"].get(name)
    return None if column is None else column[slot]


_STATE_ACTION_INDEX = Topic(
    "state_action_index",
    ("下标：哪个是状态，哪个是动作", "Indices: which is a state's, which an action's"),
    (
        (
            "这些数组的第 t 格到底说的是谁",
            "书上有的写 r_t 有的写 r_{t+1}，听谁的",
            "0-based 和 1-based 怎么换算",
            "四个量各自严格怎么定义",
            "哪些列是 state 对齐、哪些是 action 对齐",
            "时间步总是差一格，怎么理清",
        ),
        (
            "what does slot t of each array refer to",
            "is the reward called r_t or r_{t+1}",
            "off by one confusion between states and tokens",
            "give the exact definition of each of the four quantities",
            "which columns are state-aligned and which are action-aligned",
            "zero-based or one-based time steps",
        ),
    ),
    (
        (
            "把一句话想成一道篱笆。每说一个词，就钉上一块木板；木板和木板之间立着桩子。词是木板，桩子是“说到哪儿了”。\n\n"
            "{count_chosen} 块木板要 {count_states} 根桩子。桩子的号码，跟它后面那块木板一样：第 {place} 根桩子后面，钉的是第 {place} 块木板“{token}”（从 0 数起）。\n\n"
            "有些数写在桩子上：教练站在第 {place} 根桩子旁，木板还没钉，他猜从这里到头还能得 {value} 分；事后他知道那里应该猜 {return}。这两个数都属于桩子。\n\n"
            "有些数写在木板上：钉“{token}”当场得 {reward} 分，功劳是 {advantage}。这两个数属于木板。\n\n"
            "分不清的时候就问一句：这个数说的是“钉之前站在哪儿”，还是“钉了哪一块”？",
            "Think of a sentence as a fence. Each word nails on one board; between the boards stand posts. A word is a board; a post is “how far we have got”.\n\n"
            "{count_chosen} boards need {count_states} posts. A post has the number of the board that comes after it: after post {place} comes board {place}, “{token}” (counting from 0).\n\n"
            "Some numbers are written on posts. At post {place}, with the board not yet on, the coach guesses that {value} is still to be earned from here to the end; afterwards he knows that {return} would have been right. Both belong to the post.\n\n"
            "Other numbers are written on boards: nailing “{token}” earned {reward} on the spot, and its credit is {advantage}. Both belong to the board.\n\n"
            "When in doubt, ask: is this number about where you stood before nailing, or about which board you nailed?",
        ),
        (
            "约定（代码从 0 数起）：提示 x，回答 y_0 … y_{T−1}。**状态** `s_t = (x, y_0 … y_{t−1})` 是说第 t 个 token 之前已知的一切；**动作** `a_t = y_t`；转移 `s_t → s_{t+1}`。\n\n"
            "四个量的严格定义：\n\n"
            "- `values[t] = V(s_t)`，估计的是 `E[Σ_{k≥t} γ^{k−t}·r_k | s_t]`，属于状态；\n"
            "- `rewards[t] = r_t = r(s_t, a_t, s_{t+1})`，属于动作（存放在引起转移的动作那一格）；\n"
            "- `advantages[t] = A_t = Σ_l (γλ)^l·δ_{t+l}`，估计 `Q(s_t, a_t) − V(s_t)`，属于动作；\n"
            "- `returns[t] = R_t = V(s_t) + A_t`，是 `V(s_t)` 的拟合目标，属于状态。\n\n"
            "t = {t} 时：`s_t` 以“…{state_end}”结尾，`a_t` 是“{token}”，V = {value}，r = {reward}，A = {advantage}，R = {return}。下一个状态的下标是 {next_t}，V = {next_value}。\n\n"
            "“t 还是 t−1”只是数法不同：若从 1 数起，这一格是第 {one_based} 个，那时数组下标 i = t − 1。Sutton 与 Barto 把动作 `A_t` 引来的奖励记作 `R_{t+1}`（到达下一时刻才收到），这里记作 `r_t`；说的是同一个数。最容易错的是把两种记法混在一个式子里。\n\n"
            "掩码为 0 的槽位（工具输出）不是动作：式中的 t+1 指下一个被选的 token。",
            "The convention (the code counts from 0): prompt x, response y_0 … y_{T−1}. The **state** `s_t = (x, y_0 … y_{t−1})` is all that is known before token t; the **action** is `a_t = y_t`; the transition `s_t → s_{t+1}`.\n\n"
            "The four quantities, exactly:\n\n"
            "- `values[t] = V(s_t)`, an estimate of `E[Σ_{k≥t} γ^{k−t}·r_k | s_t]`: the state's;\n"
            "- `rewards[t] = r_t = r(s_t, a_t, s_{t+1})`: the action's (stored in the slot of the action that caused the transition);\n"
            "- `advantages[t] = A_t = Σ_l (γλ)^l·δ_{t+l}`, an estimate of `Q(s_t, a_t) − V(s_t)`: the action's;\n"
            "- `returns[t] = R_t = V(s_t) + A_t`, what `V(s_t)` is fitted to: the state's.\n\n"
            "At t = {t}: `s_t` ends in “…{state_end}”, `a_t` is “{token}”, V = {value}, r = {reward}, A = {advantage}, R = {return}. The next state has index {next_t} and V = {next_value}.\n\n"
            "“t or t−1” is only a way of counting: counted from 1 this is slot {one_based}, and the array index is then i = t − 1. Sutton and Barto call the reward that action `A_t` brings `R_{t+1}` (it arrives with the next moment); here it is `r_t`. The number is the same. What goes wrong is mixing both notations in one formula.\n\n"
            "Slots with mask 0 (tool output) are no actions: t+1 in a formula means the next chosen token.",
        ),
        (
            "把可测性写清楚，下标就没有歧义。记 `F_t = σ(s_t)`：在选 `a_t` 之前的信息；`F_t ⊂ F_{t+1}`。\n\n"
            "- `V(s_t)` 是 `F_t` 可测的：它没有见过 `a_t`。\n"
            "- `r_t, δ_t` 是 `F_{t+1}` 可测的：要等 `a_t` 选出、`s_{t+1}` 到达。\n"
            "- `A_t, R_t` 是 `F_T` 可测的：它们用到 t 之后的全部 δ。\n\n"
            "“属于状态还是动作”说的是它估计什么，而不是何时算出：`E[R_t|s_t]` 的目标是 `V^π(s_t)`，`E[A_t|s_t, a_t]` 的目标是 `Q^π(s_t, a_t) − V^π(s_t)`。\n\n"
            "为什么 `V` 必须对齐在动作之前：基线 b 不引入偏差的条件是 `E_{a~π}[b·∇log π(a|s_t)] = b·∇Σ_a π(a|s_t) = b·∇1 = 0`，这一步把 b 提到求和号外面，要求 b 是 `F_t` 可测的。若误把 `V(s_{t+1})` 当基线，它依赖 `a_t`，提不出来，梯度就有偏。\n\n"
            "R 与 A 在同一格相加减，不需要移位：由定义 `R_t − V(s_t) = A_t`，本例 {return_identity}。λ = 1 时 R_t 就是实际的折扣和 `Σ_{k≥t} γ^{k−t}·r_k`，本例从 t = {t} 起为 {to_go}（若被截断，末端的自举已在其中）。",
            "State what each number is measurable by, and the indices are no longer ambiguous. Let `F_t = σ(s_t)` be what is known before `a_t` is chosen; `F_t ⊂ F_{t+1}`.\n\n"
            "- `V(s_t)` is `F_t`-measurable: it has not seen `a_t`.\n"
            "- `r_t, δ_t` are `F_{t+1}`-measurable: `a_t` must be chosen and `s_{t+1}` reached.\n"
            "- `A_t, R_t` are `F_T`-measurable: they use every δ from t on.\n\n"
            "Whose a number is depends on what it estimates, not on when it can be computed: `E[R_t|s_t]` is meant to be `V^π(s_t)`, `E[A_t|s_t, a_t]` is meant to be `Q^π(s_t, a_t) − V^π(s_t)`.\n\n"
            "Why `V` must be read before the action: a baseline b adds no bias because `E_{a~π}[b·∇log π(a|s_t)] = b·∇Σ_a π(a|s_t) = b·∇1 = 0`, where b is taken out of the sum, which needs b to be `F_t`-measurable. `V(s_{t+1})` in its place depends on `a_t`, cannot be taken out, and biases the gradient.\n\n"
            "R and A are added and subtracted within one slot, without a shift: by definition `R_t − V(s_t) = A_t`, here {return_identity}. With λ = 1, R_t is the discounted sum that really came, `Σ_{k≥t} γ^{k−t}·r_k`, here {to_go} from t = {t} on (with the bootstrap at the end in it if the response was cut).",
        ),
    ),
    formula="s_t —a_t, r_t→ s_{t+1};   R_t = V(s_t) + A_t",
    numbers=_index_numbers,
    table=("scores", "rewards", "values", "advantages", "returns"),
    grid=_index_grid,
    code=("mingce.columns.Column", "mingce.models.value_head.ValueModel.forward", "mingce.algorithms.advantage.gae"),
    related=("returns_values_index", "move_before_after", "v0_contains_r0", "reward_of_transition", "five_quantities"),
)


# ── returns share the state's index ──────────────────────────────────────────────────────────────────────────────────


def _same_index_numbers(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    returns = w.credit().returns[0]
    upcoming = [*w.values[1:], w.after]
    v["shifted"] = spread(rollout, w, [r - u for r, u in zip(returns, upcoming, strict=True)])
    v["shifted_here"] = plain(v["return"] - v["next_value"])
    v["same_slot"] = equation("{return} − {value} = {advantage}", v)
    v["other_slot"] = equation("{return} − {next_value} = {shifted_here}", v)
    v["collected"] = plain(sum(w.rewards[: w.place(t)]))
    v["to_go"] = plain(w.credit(lam=1.0).returns[0][w.place(t)])
    return v


_RETURNS_VALUES_INDEX = Topic(
    "returns_values_index",
    ("returns 与 values 是同一个状态的下标", "Returns carry the state's index, like values"),
    (
        (
            "return 到底算状态的还是算动作的",
            "R_t 和 V_t 能不能直接同位置相减",
            "回报是动作之前的还是之后的量",
            "returns 对齐哪个时刻",
            "为什么 returns 跟 values 一格、advantages 却是动作的",
        ),
        (
            "is a return aligned with the state or with the action",
            "can I subtract values from returns slot by slot",
            "do returns and values share an index",
            "is the return before or after the move",
            "why is the advantage an action's number but the return a state's",
        ),
    ),
    (
        (
            "还是那道篱笆：词是木板，桩子是“说到哪儿了”。教练在每根桩子上贴两张纸条。\n\n"
            "第一张是事先写的：站在第 {place} 根桩子旁（从 0 数起），“{token}”还没说，他猜从这里到头还能得 {value} 分。第二张是事后补的：从**同一根桩子**到头，应该猜 {return} 分。两张纸条贴在一根桩子上，才能拿来相减。\n\n"
            "相减得 {advantage}。这个差是谁造成的？是这根桩子后面的选择，头一个就是“{token}”。所以差记在木板上。\n\n"
            "要小心一句话：第二张纸条不是“到这里为止已经得了多少”（那是 {collected}），而是“从这里往后能得多少”。",
            "The fence again: words are boards, posts are “how far we have got”. On each post the coach pins two notes.\n\n"
            "The first is written beforehand: at post {place} (counting from 0), with “{token}” not yet said, he guesses that {value} is still to come. The second is added afterwards: from **the same post** to the end, {return} would have been the right guess. Both notes hang on one post; only so may one be taken from the other.\n\n"
            "The difference is {advantage}. Who made it? The choices after this post, the first of them “{token}”. So the difference is written on the board.\n\n"
            "Mind one thing: the second note is not “what was earned up to here” (that is {collected}) but “what there is to earn from here on”.",
        ),
        (
            "是的：`returns[t]` 与 `values[t]` 都属于状态 `s_t`（第 t 个 token 之前），`advantages[t]` 属于动作 `a_t`。代码里 `returns = advantages + values` 是同一格相加，不移位。\n\n"
            "- `V(s_t)`：事先的估计。\n"
            "- `R_t`：事后的估计，critic 在 `s_t` 的拟合目标。它是**从 `s_t` 往后**的奖励，不是“`s_t` 之前已经累计的奖励”。\n"
            "- 它也不总是“实际”的：只有 λ = 1 时才是实际的折扣和。t = {t} 时实际的折扣和是 {to_go}，λ = {lam} 的 λ-回报是 {return}。\n\n"
            "在 t = {t}：{same_slot}，正是“{token}”的优势。若错一格去减 `V(s_{t+1})`，得 {other_slot}；整条是 {shifted}，而正确的优势是 {advantages}。\n\n"
            "R_t 里确实含有 `a_t` 的后果（V 准确时，它是均值为 `Q(s_t, a_t)` 的一个样本），但拿它去教的是 `V(s_t)`：对同一个状态的许多样本取平均，动作就被平均掉了。",
            "Yes: `returns[t]` and `values[t]` both belong to the state `s_t` (before token t), `advantages[t]` to the action `a_t`. In the code `returns = advantages + values` adds within a slot, without a shift.\n\n"
            "- `V(s_t)`: the estimate beforehand.\n"
            "- `R_t`: the estimate afterwards, what the critic is fitted to at `s_t`. It is reward **from `s_t` on**, not “what had been collected before `s_t`”.\n"
            "- Nor is it always what really came: it is only when λ = 1. At t = {t} the discounted sum that came is {to_go}; the λ-return with λ = {lam} is {return}.\n\n"
            "At t = {t}: {same_slot}, the advantage of “{token}”. One slot off, against `V(s_{t+1})`, it would be {other_slot}; the whole row {shifted}, where the right advantages are {advantages}.\n\n"
            "R_t does contain the consequences of `a_t` (with V right, it is a sample whose mean is `Q(s_t, a_t)`), but what it teaches is `V(s_t)`: over many samples from one state the action is averaged out.",
        ),
        (
            "设 `V = V^π`。则对任意 λ，`E[δ_{t+l}|s_t, a_t] = 0`（l ≥ 1），因为给定 `s_{t+l}` 时 `E[r_{t+l} + γV(s_{t+l+1}) − V(s_{t+l})] = 0`。于是\n\n"
            "    E[R_t | s_t, a_t] = V(s_t) + E[δ_t | s_t, a_t] = E[r_t + γV(s_{t+1}) | s_t, a_t] = Q^π(s_t, a_t)\n\n"
            "再对 `a_t ~ π(·|s_t)` 取期望：`E[R_t|s_t] = Σ_a π(a|s_t)·Q^π(s_t, a) = V^π(s_t)`。\n\n"
            "所以同一个数有两种读法：给定 (s, a)，它是 Q 的无偏样本；只给定 s，它是 V 的无偏样本。critic 的输入只有 s，平方损失学到的是后者。说“R 就是 Q(s, a)”漏掉了期望；说“R 属于动作”则把拟合的输入写错了。\n\n"
            "`A_t = R_t − V(s_t)` 的条件均值因此是 `Q^π − V^π`，依赖 a，属于动作。若 V 不准，上面每一步的 0 变成 `γE[e(s')] − e(s)`，偏差只从 critic 的误差 e 进入。\n\n"
            "本例逐格验证 `R − V = A`：{returns} − {values} = {advantages}。",
            "Let `V = V^π`. For every λ, `E[δ_{t+l}|s_t, a_t] = 0` for l ≥ 1, because given `s_{t+l}` we have `E[r_{t+l} + γV(s_{t+l+1}) − V(s_{t+l})] = 0`. Hence\n\n"
            "    E[R_t | s_t, a_t] = V(s_t) + E[δ_t | s_t, a_t] = E[r_t + γV(s_{t+1}) | s_t, a_t] = Q^π(s_t, a_t)\n\n"
            "and, over `a_t ~ π(·|s_t)`, `E[R_t|s_t] = Σ_a π(a|s_t)·Q^π(s_t, a) = V^π(s_t)`.\n\n"
            "So one number reads in two ways: given (s, a) it is an unbiased sample of Q, given s alone an unbiased sample of V. The critic's input is s alone, and a squared loss learns the latter. “R is Q(s, a)” leaves out the expectation; “R is the action's” gets the input of the fit wrong.\n\n"
            "The conditional mean of `A_t = R_t − V(s_t)` is therefore `Q^π − V^π`; it depends on a and is the action's. If V is off, each 0 above becomes `γE[e(s')] − e(s)`: bias enters only by the critic's error e.\n\n"
            "Slot by slot, `R − V = A` holds here: {returns} − {values} = {advantages}.",
        ),
    ),
    formula="R_t − V(s_t) = A_t",
    numbers=_same_index_numbers,
    each="R_{t} − V(s_{t}) = {return} − {value} = {advantage} = A_{t}",
    table=("values", "returns", "advantages"),
    code=("mingce.algorithms.advantage.gae", "mingce.algorithms.losses.compute_value_loss"),
    related=("state_action_index", "critic_fits_return", "returns_raw", "advantage_from_returns"),
)


# ── the reward of an action or of a transition ───────────────────────────────────────────────────────────────────────


def _reward_numbers(rollout: Rollout, t: int) -> Values:
    v = step(rollout, t)
    score, kl, beta = _at(rollout, "scores", v["t"]), _at(rollout, "kl", v["t"]), rollout["settings"].get("beta")
    v |= {"score": score, "kl": kl, "beta": beta}
    if score is not None and kl is not None and beta is not None:
        v["cost"] = plain(beta * kl)
        parts = equation("{score} − {beta}·{kl} = {reward}", v)
        spoken = (
            f"得分 {shown(score)}，再减去偏离参考模型的代价 {shown(v['cost'])}",
            f"a score of {shown(score)}, less the price {shown(v['cost'])} for leaving the reference",
        )
    else:
        parts = shown(v["reward"])
        spoken = (
            "全是当场的得分" if score is not None else "直接给定",
            ("all of it scored on the spot" if score is not None else "given as it is"),
        )
    foreign = [s for s in range(int(v["t"]) + 1, int(v["next_t"])) if s < len(rollout["tokens"])]
    v |= {"parts": parts, "parts_zh": spoken[0], "parts_en": spoken[1]}
    v["foreign_zh"] = f"（其间环境插入了 {len(foreign)} 个 token）" if foreign else ""
    v["foreign_en"] = f" (with {len(foreign)} tokens put in by the environment)" if foreign else ""
    v["target"] = equation("{reward} + {gamma}·{next_value}", v)
    v["target_value"] = plain(v["reward"] + v["gamma"] * v["next_value"])
    return v


_REWARD_OF_TRANSITION = Topic(
    "reward_of_transition",
    ("奖励属于动作，还是属于状态转移", "A reward: of the action or of the transition?"),
    (
        (
            "r(s,a) 和 r(s,a,s') 有区别吗",
            "token 奖励奖的是这个词还是这次转移",
            "reward 应该挂在动作上还是挂在下一个状态上",
            "打分是打给动作的吗",
            "为什么 reward 存在 a_t 那一格",
        ),
        (
            "is the token reward for the action or for moving to the next state",
            "difference between r(s,a) and r(s,a,s')",
            "which slot should a transition reward be stored in",
            "does the reward belong to the word or to the new state",
            "action reward versus transition reward",
        ),
    ),
    (
        (
            "坐公交车从这一站到下一站要买票。这张票是“上这路车”的价，还是“从这站到那站”的价？如果这路车永远只开往同一个下一站，那就没有分别：上了哪路车，就定了到哪一站。\n\n"
            "说话也是这样。站在“…{state_end}”，说出“{token}”，下一站就定了：那句话后面多了“{token}”。所以奖励 {reward} 说成“奖给这个词”或“奖给这一段路”都对，数是一样的。它的来历：{parts_zh}。\n\n"
            "只有一种时候要分清：司机会自己拐弯。比如模型说完一句，工具接着插进一段谁也料不到的结果，同样的词可能把你带到不同的站。这时奖励属于“从这站到那站”，记账时仍记在上车的那一刻。",
            "You take a bus from this stop to the next and pay a fare. Is it the price of “boarding this line” or of “this stop to that one”? If the line always goes to the same next stop there is no difference: the bus you board settles where you arrive.\n\n"
            "Speaking is like that. At “…{state_end}”, saying “{token}” settles the next stop: the same text with “{token}” behind it. So the reward {reward} may be called the word's or the ride's; the number is the same. Where it comes from: {parts_en}.\n\n"
            "It matters in one case only: when the driver may turn off on his own. Say the model finishes a sentence and a tool puts in a result nobody could foresee; then the same word may take you to different stops. The reward then belongs to “this stop to that one”, and is still entered at the moment of boarding.",
        ),
        (
            "一般的 MDP 里 `r_t = r(s_t, a_t, s_{t+1})` 是转移的奖励。生成文本时 `s_{t+1} = (s_t, a_t)` 是确定的，`r(s_t, a_t, s_{t+1})` 与 `r(s_t, a_t)` 是同一个数，两种说法都对；“只属于转移、不属于动作”说得太过。\n\n"
            "t = {t} 的 `r_t` 是 {parts}：转移 `s_t → s_{t+1}` 由 `a_t` =“{token}”引起{foreign_zh}。一般地，它有两部分，来历不同：\n\n"
            "- KL 代价 `−β·k_t` 只由 `(s_t, a_t)` 决定，是动作的奖励；\n"
            "- 任务得分看的是说完之后的文本，即 `s_{t+1}`，是到达的奖励。\n\n"
            "两者都存放在动作那一格 `rewards[t]`，因为 `δ_t = r_t + γV(s_{t+1}) − V(s_t)` 要把它和动作前的 `V(s_t)`、动作后的 `V(s_{t+1})` 放在一起：{target} = {target_value} 对 {value}，差 {delta}。\n\n"
            "误区：得分是看 `s_{t+1}` 打的，于是写到 t+1 那一格。那会晚一格；最后一个 token 的得分干脆没有地方放。",
            "In a general MDP `r_t = r(s_t, a_t, s_{t+1})` is the reward of a transition. In text `s_{t+1} = (s_t, a_t)` is settled, so `r(s_t, a_t, s_{t+1})` and `r(s_t, a_t)` are the same number and both readings are right; “of the transition, not of the action” says too much.\n\n"
            "`r_t` at t = {t} is {parts}: the transition `s_t → s_{t+1}` was caused by `a_t` = “{token}”{foreign_en}. In general it has two parts, of different origin:\n\n"
            "- the price `−β·k_t` depends on `(s_t, a_t)` alone: a reward of the action;\n"
            "- the task's score looks at the text as it is afterwards, `s_{t+1}`: a reward of arrival.\n\n"
            "Both are stored in the action's slot `rewards[t]`, because `δ_t = r_t + γV(s_{t+1}) − V(s_t)` puts it beside `V(s_t)` before the action and `V(s_{t+1})` after it: {target} = {target_value} against {value}, a difference of {delta}.\n\n"
            "A pitfall: the score was given for `s_{t+1}`, so someone writes it into slot t+1. That is one slot late, and the last token's score has no slot at all.",
        ),
        (
            "设奖励为 `r(s, a, s')`，转移核 `P(s'|s, a)`，令 `r̄(s, a) = Σ_{s'} P(s'|s, a)·r(s, a, s')`。\n\n"
            "命题：把 r 换成 r̄，`V^π, Q^π, A^π` 都不变。证：`Q^π(s, a) = Σ_{s'} P(s'|s, a)·[r(s, a, s') + γV^π(s')] = r̄(s, a) + γΣ_{s'} P(s'|s, a)·V^π(s')`，方程里只出现 r̄，而贝尔曼方程的解唯一（γ < 1，或长度有限）。\n\n"
            "所以“动作的奖励”与“转移的奖励”提出的是同一个问题，差别只在样本。转移确定时 `P` 退化，`r = r̄` 逐点成立，连样本都相同。\n\n"
            "只看到达之处的奖励 `g(s')` 也在其内：`r(s, a, s') = g(s')`，`V(s) = E[g(s') + γV(s')]`。有的书把它记在状态上：令 `W(s) = g(s) + γV(s)`，则 `V(s) = E[W(s')]`，而 `W(s) = g(s) + γE[W(s')]`。W 把刚到手的奖励也算在内，V 不算；两套约定各自自洽，混用就差一格。\n\n"
            "本例：`r_t + γV(s_{t+1})` = {target} = {target_value} 是 `Q(s_t, a_t)` 的一步估计，减去 {value} 得 δ = {delta}。",
            "Let the reward be `r(s, a, s')`, the transition kernel `P(s'|s, a)`, and `r̄(s, a) = Σ_{s'} P(s'|s, a)·r(s, a, s')`.\n\n"
            "Claim: with r̄ in place of r, `V^π, Q^π, A^π` stay the same. Proof: `Q^π(s, a) = Σ_{s'} P(s'|s, a)·[r(s, a, s') + γV^π(s')] = r̄(s, a) + γΣ_{s'} P(s'|s, a)·V^π(s')`; only r̄ appears, and Bellman's equation has one solution (γ < 1, or a finite length).\n\n"
            "So “reward of the action” and “reward of the transition” pose the same problem and differ only in samples. Where the transition is settled, `P` is degenerate, `r = r̄` holds pointwise, and even the samples agree.\n\n"
            "A reward for where one arrives, `g(s')`, is included: `r(s, a, s') = g(s')` and `V(s) = E[g(s') + γV(s')]`. Some books write it on the state: with `W(s) = g(s) + γV(s)` we have `V(s) = E[W(s')]` and `W(s) = g(s) + γE[W(s')]`. W counts the reward that has just arrived, V does not; each convention is consistent, and mixing them is off by one slot.\n\n"
            "Here `r_t + γV(s_{t+1})` = {target} = {target_value} is the one-step estimate of `Q(s_t, a_t)`; less {value} it gives δ = {delta}.",
        ),
    ),
    formula="r_t = r(s_t, a_t, s_{t+1}) = score_t − β·k_t",
    numbers=_reward_numbers,
    table=("scores", "kl", "rewards", "values"),
    code=("mingce.algorithms.kl.kl_rewards", "mingce.algorithms.advantage.td_errors"),
    related=("state_action_index", "v0_contains_r0", "kl_where", "reward_sparse_dense"),
)


# ── before and after the move ────────────────────────────────────────────────────────────────────────────────────────


def _move_numbers(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    late = [*w.values[1:], w.after]
    wrong = w.credit(values=late)
    v["late_values"] = spread(rollout, w, late)
    v["late_deltas"] = spread(rollout, w, wrong.deltas[0])
    v["late_advantages"] = spread(rollout, w, wrong.advantages[0])
    v["late_advantage"] = plain(wrong.advantages[0][w.place(t)])
    v["surprise"] = equation("{reward} + {gamma}·{next_value} − {value} = {delta}", v)
    slot = int(v["t"])
    seen = f"“{token_of(rollout, slot - 1)}”" if slot else ""
    v["read_zh"] = seen or "提示的最后一个 token"
    v["read_en"] = seen or "the prompt's last token"
    return v


def _move_grid(rollout: Rollout, t: int) -> Grid:
    w = walk(rollout)

    def row(k: int) -> tuple[Any, ...]:
        slot = w.slots[k]
        seen = token_of(rollout, slot - 1) if slot else "x"
        upcoming = w.following(w.values, k, w.after)
        return (f"s_{slot}", seen, w.values[k], token_of(rollout, slot), w.rewards[k], upcoming)

    headings = (
        ("状态", "state"),
        ("V 读自（x 是提示）", "V is read at (x: the prompt)"),
        ("V(s_t)，落子前", "V(s_t), before"),
        ("动作 a_t", "action a_t"),
        ("r_t", "r_t"),
        ("V(s_{t+1})，落子后", "V(s_{t+1}), after"),
    )
    return Grid(headings, rows_of(len(w.slots), row))


_MOVE_BEFORE_AFTER = Topic(
    "move_before_after",
    ("落子之前是 V_t，落子之后是 V_{t+1}", "V_t is before the move, V_{t+1} after it"),
    (
        (
            "critic 的值是在看到这个 token 之前还是之后算的",
            "values[t] 见过 y_t 吗",
            "V 为什么要取前一个位置",
            "[-T-1:-1] 这个切片干嘛的",
            "走完这一步之后的局面估值应该写哪个下标",
        ),
        (
            "is the value computed before or after the token is generated",
            "has values[t] already seen token t",
            "why is the critic read one position earlier",
            "what does the slice [-T-1:-1] do",
            "which index has the evaluation after the move",
        ),
    ),
    (
        (
            "像下棋。轮到你走第 {place} 步（从 0 数起），裁判先看一眼棋盘，报出他估计的胜算：{value}。这是**落子之前**的估计。\n\n"
            "你落下一子：“{token}”，当场得 {reward}。裁判再看一眼新的棋盘（{then_zh}），报出 {next_value}。这是**落子之后**的估计，它属于下一个局面，所以号码也加一。\n\n"
            "这步棋走得好不好，要拿落子之后的 {next_value} 加上当场得的 {reward}，去比落子之前的 {value}，差是 {delta}（往后的估计按 {gamma} 折算）。如果把落子之后的估计当成落子之前的，这步棋的好坏就已经藏在里面，比不出来了。",
            "It is like chess. Move {place} (counting from 0) is yours. The referee looks at the board first and names a number for how well you stand: {value}. That is the estimate **before** the move.\n\n"
            "You make the move: “{token}”, and get {reward} on the spot. The referee looks at the new board ({then_en}) and says {next_value}. That is the estimate **after** the move; it belongs to the next position, so its number is one higher.\n\n"
            "Was it a good move? Take the {next_value} from after it (counted at {gamma}), add the {reward} you got, and compare with the {value} from before: the difference is {delta}. If you took the estimate after the move for the one before, the quality of the move would already be inside it, and there would be nothing left to compare.",
        ),
        (
            "第 t 步：站在 `s_t`，critic 说 `V(s_t)` = {value}；选 `a_t` =“{token}”，得 `r_t` = {reward}；到达 `s_{t+1}`，critic 说 `V(s_{t+1})` = {next_value}（{then_zh}）。所以走完第 t 步之后的局面估值是 V_{t+1}，V_t 是落子之前的。\n\n"
            "    δ_t = r_t + γ·V(s_{t+1}) − V(s_t)\n\n"
            "代入：{surprise}。\n\n"
            "代码怎样保证：因果模型在某个位置的隐状态看过该位置及之前的 token。`V(s_t)` 不能见过 y_t，所以读自 y_t 的**前一个位置**，这里是{read_zh}；写成整行的切片就是 `[-T-1:-1]`：第一格在提示的最后一个 token 上，最后一个 token 的位置不在其中。那个位置给出的是 `V(s_T)`，只在被截断并自举时才用。\n\n"
            "错一格会怎样：若读自 y_t 自己的位置，values 变成 {late_values}（最后一格是末端的价值），优势从 {advantages} 变成 {late_advantages}。数看上去仍然合理，损失也照样下降，所以这个错很难从曲线上看出来。",
            "Step t: at `s_t` the critic says `V(s_t)` = {value}; `a_t` = “{token}” is chosen and earns `r_t` = {reward}; at `s_{t+1}` the critic says `V(s_{t+1})` = {next_value} ({then_en}). So the evaluation after move t is V_{t+1}; V_t is the one before it.\n\n"
            "    δ_t = r_t + γ·V(s_{t+1}) − V(s_t)\n\n"
            "With numbers: {surprise}.\n\n"
            "How the code makes sure: a causal model's hidden state at a position has seen the tokens up to and including it. `V(s_t)` must not have seen y_t, so it is read **one position before** y_t, here at {read_en}. As a slice of the row that is `[-T-1:-1]`: its first slot is at the prompt's last token, and the position of the last token is left out. That one gives `V(s_T)`, used only where a cut response is bootstrapped.\n\n"
            "One slot off: read at y_t itself, values become {late_values} (the last one being the value at the end) and the advantages {late_advantages} instead of {advantages}. The numbers still look plausible and the losses still fall, so curves hardly show this mistake.",
        ),
        (
            "设 critic 误读为 `Ṽ_t = V(s_{t+1})`。转移确定时 `s_{t+1} = (s_t, a_t)`，故 `Ṽ_t` 是 `a_t` 的函数。以 λ = 1 为例，`Ã_t = G_t − V(s_{t+1})`，若 `V = V^π`：\n\n"
            "    E[Ã_t | s_t, a_t] = Q(s_t, a_t) − V(s_{t+1}) = r_t + (γ − 1)·V(s_{t+1})\n\n"
            "γ = 1 时它只剩即时奖励 `r_t`：后果全被基线吸走，稀疏奖励下除最后一步外期望为 0，策略学不到任何长程的功劳。\n\n"
            "正确的对齐给出 `E[A_t|s_t, a_t] = Q(s_t, a_t) − V(s_t)`，并且 `E_{a~π}[V(s_t)·∇log π(a|s_t)] = V(s_t)·∇Σ_a π(a|s_t) = 0`，基线不改变梯度的期望。\n\n"
            "末端：{end_zh}。\n\n"
            "数字：正确的 δ 是 {deltas}，错一格的 δ 是 {late_deltas}；第 {t} 个 token 的优势由 {advantage} 变成 {late_advantage}。",
            "Suppose the critic is read as `Ṽ_t = V(s_{t+1})`. With settled transitions `s_{t+1} = (s_t, a_t)`, so `Ṽ_t` is a function of `a_t`. Take λ = 1: `Ã_t = G_t − V(s_{t+1})`, and with `V = V^π`\n\n"
            "    E[Ã_t | s_t, a_t] = Q(s_t, a_t) − V(s_{t+1}) = r_t + (γ − 1)·V(s_{t+1})\n\n"
            "At γ = 1 only the immediate reward `r_t` is left: the baseline has swallowed all consequences. Under a sparse reward its mean is 0 everywhere but on the last step, and the policy learns no long-range credit at all.\n\n"
            "The right alignment gives `E[A_t|s_t, a_t] = Q(s_t, a_t) − V(s_t)`, and `E_{a~π}[V(s_t)·∇log π(a|s_t)] = V(s_t)·∇Σ_a π(a|s_t) = 0`: the baseline leaves the expected gradient alone.\n\n"
            "At the end: {end_en}.\n\n"
            "In numbers: the right δ are {deltas}, those one slot off {late_deltas}; the advantage of token {t} goes from {advantage} to {late_advantage}.",
        ),
    ),
    formula="δ_t = r_t + γ·V(s_{t+1}) − V(s_t)",
    numbers=_move_numbers,
    each="δ_{t} = {reward} + {gamma}·{next_value} − {value} = {delta}",
    table=("values", "rewards", "deltas"),
    grid=_move_grid,
    code=(
        "mingce.models.value_head.ValueModel.forward",
        "mingce.models.batching.joined_rows",
        "mingce.algorithms.advantage.td_errors",
    ),
    related=("state_action_index", "v0_contains_r0", "bootstrap", "a_not_delta"),
)


# ── how a response ends ──────────────────────────────────────────────────────────────────────────────────────────────


def _cut(rollout: Rollout, w: Walk) -> tuple[float, tuple[str, str], tuple[str, str]]:
    """The value after the cut, where it comes from, and whether this response was cut."""
    info, rule = rollout.get("info") or {}, rollout["settings"].get("truncation")
    stored = info.get("bootstrap_value")
    if w.after:
        after, source = w.after, ("本例所用的自举值", "the bootstrap value used here")
    elif stored:
        after, source = (
            float(stored),
            ("critic 在最后一个 token 之后的估计", "the critic's estimate after the last token"),
        )
    else:
        after, source = (
            w.values[-1],
            (
                "没有记录，姑且取 critic 最后一次的估计",
                "none is recorded, so the critic's last estimate is taken for it",
            ),
        )
    if info.get("truncated"):
        cut = f"这条回答被长度上限截断，规则是 {rule}", f"This response was cut by the length limit; the rule is {rule}"
    elif w.after:
        cut = (
            "这里给了结尾之后的价值，按被截断并自举来算",
            "A value after the end is given, so it counts as cut and bootstrapped",
        )
    elif info.get("finish_reason"):
        cut = (
            "这条回答是自己结束的；下面按“假如它被截断”来算",
            "This response ended by itself; below it is taken as if it had been cut",
        )
    else:
        cut = (
            "这里没有说它被截断；下面按“假如它被截断”来算",
            "Nothing says that it was cut; below it is taken as if it had been",
        )
    return after, source, cut


def _truncation_numbers(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    after, source, cut = _cut(rollout, w)
    zero, continued = w.credit(after=0.0), w.credit(after=after)
    k = w.place(t)
    v |= {
        "cut_value": after, "cut_from_zh": source[0], "cut_from_en": source[1], "cut_zh": cut[0], "cut_en": cut[1],
        "rule": rollout["settings"].get("truncation") or "zero",
        "zero_delta": plain(zero.deltas[0][-1]), "cut_delta": plain(continued.deltas[0][-1]),
        "zero_advantages": spread(rollout, w, zero.advantages[0]),
        "cut_advantages": spread(rollout, w, continued.advantages[0]),
        "zero_advantage": plain(zero.advantages[0][k]), "cut_advantage": plain(continued.advantages[0][k]),
        "gap": plain(continued.advantages[0][k] - zero.advantages[0][k]),
        "zero_return": plain(zero.returns[0][k]), "cut_return": plain(continued.returns[0][k]),
    }  # fmt: skip
    v["zero_equation"] = equation("{last_reward} + {gamma}·0 − {last_value} = {zero_delta}", v)
    v["cut_equation"] = equation("{last_reward} + {gamma}·{cut_value} − {last_value} = {cut_delta}", v)
    v["gap_difference"] = equation("{cut_advantage} − {zero_advantage} = {gap}", v)
    v["gap_equation"] = equation("{gamma}·{gamma_lam}^{chosen_left}·{cut_value} = {gap}", v)
    return v


def _truncation_grid(rollout: Rollout, t: int) -> Grid:
    w = walk(rollout)
    after, _, _ = _cut(rollout, w)
    zero, continued = w.credit(after=0.0).advantages[0], w.credit(after=after).advantages[0]

    def row(k: int) -> tuple[Any, ...]:
        return (token_of(rollout, w.slots[k]), plain(zero[k]), plain(continued[k]), plain(continued[k] - zero[k]))

    headings = (("token", "token"), ("A，zero", "A, zero"), ("A，bootstrap", "A, bootstrap"), ("相差", "difference"))
    return Grid(headings, rows_of(len(w.slots), row))


_TRUNCATION = Topic(
    "truncation",
    ("被长度上限截断时怎么算", "When the length limit cuts a response"),
    (
        (
            "回答太长被砍断了，优势怎么算",
            "max length 到了还没 EOS 怎么处理",
            "截断和正常结束有什么不同",
            "truncation=zero/bootstrap/mask 选哪个",
            "没说完的句子价值记 0 对吗",
            "超长样本要不要丢掉",
        ),
        (
            "the response hit max tokens, what happens to its advantages",
            "truncated versus terminated episodes",
            "should truncation be zero, bootstrap or mask",
            "is the value 0 after a length cutoff",
            "what to do with overlong samples",
            "no EOS because of the length limit",
        ),
    ),
    (
        (
            "考试时你的作文还没写完，铃响了，卷子被收走。老师怎么给这半篇作文记分？有三种办法。\n\n"
            "第一种：当作你就写到这里为止，后面算 0。第二种：老师看看前面写得怎么样，估一估你接着写还能得多少，比如 {cut_value}，补上。第三种：这份卷子不算数，不拿它教任何东西。\n\n"
            "拿例子看：最后一个词是“{last_token}”，当场得 {last_reward}，之前教练猜 {last_value}。第一种办法算出的意外是 {zero_delta}，第二种是 {cut_delta}。差别全在铃响之后那一段算多少。\n\n"
            "第一种对没写完的人苛刻，会教人写得短；第二种公道些，可是得相信老师估得准；第三种最省事，但是丢掉了一份卷子。",
            "In an exam your essay is unfinished when the bell rings and the paper is taken away. How should the teacher mark half an essay? There are three ways.\n\n"
            "One: as if you had meant to stop there; the rest counts 0. Two: the teacher looks at what is there, estimates what the rest would have earned, say {cut_value}, and adds it. Three: the paper does not count, and nothing is taught from it.\n\n"
            "In the example the last word is “{last_token}”, earning {last_reward} on the spot, with a guess of {last_value} before it. The first way finds a surprise of {zero_delta}, the second {cut_delta}. All the difference lies in what the part after the bell is worth.\n\n"
            "The first is hard on those who were not done and teaches them to write less; the second is fairer, if the teacher estimates well; the third is the simplest, and throws a paper away.",
        ),
        (
            "自己结束（EOS、停止符）是终止：`V(s_T) = 0`。被长度上限截断不是终止，`V(s_T)` 未必是 0。`credit.truncation` 有三种规则：\n\n"
            "- `zero`：当作终止，后面记 0（verl 的做法）；\n"
            "- `bootstrap`：接上 critic 在最后一个 token 之后的估计 `bootstrap_value`，需要 critic；\n"
            "- `mask`：按 zero 算账，但整行的 `loss_mask` 为 0，不进损失，也不进白化的统计量。\n\n"
            "{cut_zh}。`V(s_T)` 取 {cut_value}（{cut_from_zh}）。最后一个 token“{last_token}”：\n\n"
            "    zero:       δ = {zero_equation}\n"
            "    bootstrap:  δ = {cut_equation}\n\n"
            "影响沿 `γλ` 传回前面：t = {t} 的优势相差 {gap_equation}（指数是其后还剩的被选 token 数 {chosen_left}）。整行 A：zero {zero_advantages}；bootstrap {cut_advantages}。\n\n"
            "怎么选：若长度上限就是任务的一部分（超长就是答错），zero 正确，它会压短回答。若上限只是为了省算力，zero 会系统性低估长回答，用 bootstrap 或 mask。critic 刚开始学时 bootstrap_value 不可靠，mask 更稳，但截断率高时丢的样本多，看 `response_length/clip_ratio`。",
            "A response that ends itself (EOS, a stop token) is terminal: `V(s_T) = 0`. One cut by the length limit is not, and `V(s_T)` need not be 0. `credit.truncation` has three rules:\n\n"
            "- `zero`: as if terminal, nothing follows (what verl does);\n"
            "- `bootstrap`: go on with the critic's estimate after the last token, `bootstrap_value`; needs a critic;\n"
            "- `mask`: the account is kept as with zero, but the row's `loss_mask` is 0: it enters neither the losses nor the statistics of the whitening.\n\n"
            "{cut_en}. For `V(s_T)` take {cut_value} ({cut_from_en}). The last token “{last_token}”:\n\n"
            "    zero:       δ = {zero_equation}\n"
            "    bootstrap:  δ = {cut_equation}\n\n"
            "The effect travels back by `γλ`: at t = {t} the advantages differ by {gap_equation} (the exponent is the {chosen_left} chosen tokens left after it). The row's A: zero {zero_advantages}; bootstrap {cut_advantages}.\n\n"
            "Which one: if the limit is part of the task (too long is wrong), zero is right, and it shortens answers. If the limit only saves compute, zero systematically undervalues long answers: take bootstrap or mask. While the critic is young its bootstrap_value cannot be trusted and mask is safer, at the cost of samples where many are cut; watch `response_length/clip_ratio`.",
        ),
        (
            "设任务本身没有长度上限，采样在 T 处停下，`s_T` 不是终止状态。目标是 `V^π(s_t) = E[Σ_{k=t}^{T−1} γ^{k−t}·r_k + γ^{T−t}·V^π(s_T) | s_t]`。\n\n"
            "zero 的目标少了最后一项。λ = 1 时偏差恰为 `−γ^{T−t}·E[V^π(s_T)|s_t]`：价值为正时总是低估，γ < 1 时离截断越近越严重。bootstrap 的偏差是 `γ^{T−t}·E[e(s_T)|s_t]`，e 是 critic 的误差，critic 准则无偏。\n\n"
            "一般的 λ：`V(s_T)` 只出现在最后一个 δ 里，系数 γ；GAE 又乘上 `(γλ)^{T−1−t}`，所以\n\n"
            "    A_t^bootstrap − A_t^zero = γ·(γλ)^{T−1−t}·V(s_T)\n\n"
            "（T−1−t 按被选 token 计）。数字：{gap_difference}，而 {gap_equation}。`R_t = A_t + V(s_t)` 有同样的差：由 {zero_return} 变为 {cut_return}。\n\n"
            "若上限是任务的一部分，剩余步数就应当算进状态，`s_T` 是终止状态，`V(s_T) = 0` 是精确的，bootstrap 反而是错的。模型看不见剩余步数时，价值只能是对未知余量的平均：这是部分可观测，不是 zero 或 bootstrap 能修的。\n\n"
            "mask 改变的是样本的分布：只从没被截断的回答学，等于以“没有超长”为条件，策略梯度因此有选择偏差：太长的回答既不受奖也不受罚。",
            "Let the task itself have no limit and sampling stop at T, with `s_T` not terminal. The target is `V^π(s_t) = E[Σ_{k=t}^{T−1} γ^{k−t}·r_k + γ^{T−t}·V^π(s_T) | s_t]`.\n\n"
            "zero leaves out the last term. At λ = 1 its bias is exactly `−γ^{T−t}·E[V^π(s_T)|s_t]`: too low whenever values are positive, and for γ < 1 the worse the nearer the cut. The bias of bootstrap is `γ^{T−t}·E[e(s_T)|s_t]` with the critic's error e; none if the critic is right.\n\n"
            "For any λ: `V(s_T)` is in the last δ only, with the factor γ; GAE multiplies by `(γλ)^{T−1−t}`, hence\n\n"
            "    A_t^bootstrap − A_t^zero = γ·(γλ)^{T−1−t}·V(s_T)\n\n"
            "(T−1−t counted in chosen tokens). In numbers: {gap_difference}, and {gap_equation}. `R_t = A_t + V(s_t)` differs by as much: {zero_return} becomes {cut_return}.\n\n"
            "If the limit is part of the task, the steps left belong to the state, `s_T` is terminal, `V(s_T) = 0` is exact, and bootstrapping would be wrong. Where the model cannot see the steps left, a value can only average over them: that is partial observability, which neither zero nor bootstrap cures.\n\n"
            "mask changes the distribution of samples: learning from uncut responses only conditions on “not too long”, so the policy gradient is selective: answers that are too long are neither rewarded nor punished.",
        ),
    ),
    formula="δ_{T−1} = r_{T−1} + γ·V(s_T) − V(s_{T−1})",
    numbers=_truncation_numbers,
    table=("rewards", "values", "deltas", "advantages"),
    grid=_truncation_grid,
    code=(
        "mingce.algorithms.advantage.truncation_rule",
        "mingce.credit.assign_credit",
        "mingce.models.value_head.ValueModel.forward",
    ),
    related=("masks_eos", "bootstrap", "bootstrap_delta", "gamma_lambda"),
)


# ── masks and EOS ────────────────────────────────────────────────────────────────────────────────────────────────────


def _mask_numbers(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    mask = rollout["columns"]["response_mask"]
    by_slot = {slot: k for k, slot in enumerate(w.slots)}
    response = range(w.slots[-1] + 1)
    rewards = [w.rewards[by_slot[s]] if s in by_slot else 0.0 for s in response]
    values = [w.values[by_slot[s]] if s in by_slot else 0.0 for s in response]
    blind = reference.gae([[*rewards, 0.0]], [[*values, 1.0]], [[1] * (len(response) + 1)], w.gamma, w.lam)
    holes = [s for s in range(w.slots[0], w.slots[-1]) if s not in by_slot]
    v |= {
        "mask": listed([int(bool(m)) for m in mask]), "count_slots": len(mask), "count_holes": len(holes),
        "blind_delta": plain(blind.deltas[0][w.slots[-1]]), "blind_advantage": plain(blind.advantages[0][w.slots[-1]]),
        "blind_advantages": spread(rollout, w, [blind.advantages[0][s] for s in w.slots]),
        "blind_here": plain(blind.advantages[0][w.slots[w.place(t)]]),
    }  # fmt: skip
    v["blind_equation"] = equation("{last_reward} + {gamma}·1 − {last_value} = {blind_delta}", v)
    v["end_equation"] = equation("{last_reward} + {gamma}·{bootstrap} − {last_value} = {last_delta}", v)
    if holes:
        before = max(s for s in w.slots if s < holes[0])
        after = min(s for s in w.slots if s > holes[0])
        names = token_of(rollout, before), token_of(rollout, after)
        v["holes_zh"] = (
            f"本例中间有 {len(holes)} 个不是策略选的 token；例如“{names[0]}”（第 {before} 格）的下一个是“{names[1]}”（第 {after} 格），中间的跳过"
        )
        v["holes_en"] = (
            f"Here {len(holes)} tokens in between were not chosen by the policy; what follows “{names[0]}” (slot {before}), for one, is “{names[1]}” (slot {after}), and those between are stepped over"
        )
    else:
        v["holes_zh"] = "本例中间没有这样的 token，所以下一个就是相邻的那个"
        v["holes_en"] = "Here there are no such tokens in between, so the next one is the neighbour"
    return v


_MASKS_EOS = Topic(
    "masks_eos",
    ("掩码与 EOS：谁有账，到哪里为止", "Masks and EOS: who has an account, and where it ends"),
    (
        (
            "EOS 自己算不算一个动作",
            "padding 会不会污染前面的优势",
            "eos_mask 包不包含 EOS",
            "response_mask 和 attention_mask 有啥区别",
            "工具返回的 token 要不要算 loss",
            "pad 位置的 value 要清零吗",
        ),
        (
            "does the EOS token get an advantage",
            "can padding leak into the advantages",
            "response_mask vs attention_mask vs loss_mask",
            "should tool output be masked out",
            "does eos_mask include the EOS token",
            "do values on padding have to be zero",
        ),
    ),
    (
        (
            "你在演一出戏。剧本上有你的台词，也有别人的台词，后面还有几页白纸。戏演完打分，只打你的台词：别人的话不算你的功劳，白纸更不算。\n\n"
            "掩码就是在每句话旁边做的记号：1 是你的台词，0 不是。这里的记号是 {mask}，你的台词有 {count_chosen} 句；夹在中间的别人的台词有 {count_holes} 句，算的时候跳过去。\n\n"
            "“我说完了”也是你的一句台词：什么时候收场是你自己选的，选得早、选得晚都算在你头上。演完以后的价值记 {bootstrap}（正常收场就是 0）。\n\n"
            "要是忘了看记号，把白纸上随手写的一个 1 当成教练的猜测，那么最后一句的意外就会从 {last_delta} 变成 {blind_delta}，前面的功劳也跟着错。",
            "You act in a play. The script has your lines, the lines of others, and some blank pages at the end. Afterwards only your lines are marked: what others say is not to your credit, and blank pages even less.\n\n"
            "The mask is a tick beside each line: 1 is yours, 0 is not. Here the ticks are {mask}, and {count_chosen} lines are yours; {count_holes} lines of others stand between them and are stepped over.\n\n"
            "“I am done” is one of your lines too: when to stop is your own choice, and stopping early or late counts for or against you. What comes after the last line is valued at {bootstrap} (0 when the play has ended properly).\n\n"
            "Forget the ticks, take a 1 scribbled on a blank page for the coach's guess, and the surprise of the last line changes from {last_delta} to {blind_delta}; the credit before it goes wrong as well.",
        ),
        (
            "三个掩码，三件事：\n\n"
            "- `attention_mask`：这一格有没有 token（策略选的或工具输出）。模型前向看它。\n"
            "- `response_mask`：这个 token 是不是策略选的。奖励、KL、优势、白化、损失只在 1 处有意义；这里是 {mask}。\n"
            "- `loss_mask`：通常等于 response_mask；`truncation = mask` 时被截断的整行为 0。\n\n"
            "EOS 是动作：策略选了“结束”，所以它的掩码是 1，有自己的 `V`（说 EOS 之前）、`r`、`δ`、`A`，稀疏得分就写在它这一格。它**之后**没有状态可言，`V = 0`；再往后是填充，掩码 0。verl 旧版的 eos_mask 到 EOS 为止（含 EOS）。\n\n"
            "末端的 δ：{end_equation}。{end_zh}。\n\n"
            "工具输出在中间：递推跳过它们，t+1 指下一个被选的 token。{holes_zh}。\n\n"
            "为什么不能只在最后乘掩码：递推从后往前，填充格的 V 会经 `γV(s_{t+1})` 流进来。假如末尾后面有一个填充格，V 上残留着 1，而递推不看掩码，最后一个 token 的 δ 就成了 {blind_equation}，优势从 {last_advantage} 变成 {blind_advantage}；整行（没被选的格子按 0 计）{blind_advantages}，正确的是 {advantages}。verl 旧版正是靠事先把填充处的 values 与 rewards 清零来回避这一点，清零错一格就会漏进来。mingce 的递推自己看掩码，掩码后面即使是 NaN 也不影响前面。",
            "Three masks for three things:\n\n"
            "- `attention_mask`: does the slot hold a token (chosen or tool output)? The forward pass looks at it.\n"
            "- `response_mask`: did the policy choose it? Rewards, KL, advantages, whitening and losses mean something only where it is 1; here it is {mask}.\n"
            "- `loss_mask`: usually response_mask; with `truncation = mask` it is 0 on rows that were cut.\n\n"
            "EOS is an action: the policy chose to end, so its mask is 1 and it has its own `V` (before EOS is said), `r`, `δ` and `A`; a sparse score is written in its slot. **After** it there is no state and `V = 0`; what follows is padding with mask 0. The eos_mask of early verl reaches up to EOS and includes it.\n\n"
            "δ at the end: {end_equation}; {end_en}.\n\n"
            "Tool output in between: the recursion steps over it, t+1 is the next chosen token. {holes_en}.\n\n"
            "Why multiplying by the mask at the very end is not enough: the recursion runs from the back, and a padding slot's V flows in by `γV(s_{t+1})`. Say a padding slot behind the end has a V of 1 left over and the recursion does not look at the mask: the last token's δ becomes {blind_equation}, its advantage {blind_advantage} instead of {last_advantage}, the row (slots that were not chosen counted as 0) {blind_advantages} where {advantages} is right. Early verl avoids this by zeroing values and rewards on padding beforehand; zero one slot too few and it leaks. mingce's recursion looks at the mask itself: behind it not even a NaN matters.",
        ),
        (
            "记被选的槽位为 `c(0) < c(1) < … < c(n−1)`。优势只由下式定义，\n\n"
            "    δ_c(k) = r_c(k) + γ·V(s_c(k+1)) − V(s_c(k)),   A_c(k) = δ_c(k) + γλ·A_c(k+1)\n\n"
            "`V(s_c(n))` 取 {bootstrap}，`A_c(n) = 0`。右边没有未被选的槽位，所以它们取什么值（包括 NaN）都不影响结果。\n\n"
            "跳过是对的，不只是方便：把“策略选一个 token，环境接着放进若干 token”看成一步转移，`s_c(k) → s_c(k+1)`。环境的 token 由转移核 P 给出，策略梯度定理里 `∇log P = 0`，它们没有梯度项；折扣也按决策的次数算。若让递推逐格经过它们，`γλ` 会按工具输出的长度多衰减，功劳随输出长短而变。\n\n"
            "EOS 之后：终止状态吸收且奖励为 0，`V = 0` 是定义，不是近似。不看掩码而填充处 V 残留 v 时，填充格自己也有 `δ = −v`（其后为 0、奖励为 0），于是最后一个 token 的优势偏差为 `γv − γλv = γ(1−λ)·v`（相对于末端记 0），往前每步再乘 γλ。λ = 1（verl 的默认值）时恰好抵消，错也看不出来；回报 `R = A + V` 有同样的偏差。\n\n"
            "数字（v = 1，整行不看掩码）：末 token 的 δ 为 {blind_delta}，A 为 {blind_advantage}；正确的是 {last_delta} 与 {last_advantage}。",
            "Let `c(0) < c(1) < … < c(n−1)` be the chosen slots. Advantages are defined by nothing but\n\n"
            "    δ_c(k) = r_c(k) + γ·V(s_c(k+1)) − V(s_c(k)),   A_c(k) = δ_c(k) + γλ·A_c(k+1)\n\n"
            "with {bootstrap} for `V(s_c(n))` and `A_c(n) = 0`. No slot that was not chosen occurs on the right, so whatever stands there, a NaN included, cannot matter.\n\n"
            "Stepping over is right and not just convenient: “the policy chooses a token, then the environment puts in some” is one transition `s_c(k) → s_c(k+1)`. The environment's tokens come from the kernel P, for which `∇log P = 0` in the policy gradient theorem: they have no gradient term, and discounting counts decisions. A recursion through them would decay by `γλ` once more for every token of tool output, and credit would depend on how long the output is.\n\n"
            "After EOS: a terminal state is absorbing with reward 0, so `V = 0` is the definition, not an approximation. With v left over on padding and no look at the mask, the padding slot has `δ = −v` of its own (nothing after it, no reward), so the last token's advantage is off by `γv − γλv = γ(1−λ)·v` (against 0 at the end), and every step further back multiplies by γλ. At λ = 1 (verl's default) the two cancel and the mistake does not show; `R = A + V` is off by as much.\n\n"
            "In numbers (v = 1, the whole row without a mask): the last token's δ is {blind_delta} and its A {blind_advantage}; right are {last_delta} and {last_advantage}.",
        ),
    ),
    formula="m_t = 1: δ_t = r_t + γ·V(s_{t+1}) − V(s_t);   m_t = 0: —",
    numbers=_mask_numbers,
    table=("response_mask", "rewards", "values", "deltas", "advantages"),
    code=(
        "mingce.algorithms.masking.keep",
        "mingce.algorithms.advantage.gae",
        "mingce.algorithms.advantage.truncation_rule",
    ),
    related=("truncation", "state_action_index", "advantage_inputs", "whitening"),
)

TOPICS = (
    _STATE_ACTION_INDEX,
    _RETURNS_VALUES_INDEX,
    _REWARD_OF_TRANSITION,
    _MOVE_BEFORE_AFTER,
    _TRUNCATION,
    _MASKS_EOS,
)
