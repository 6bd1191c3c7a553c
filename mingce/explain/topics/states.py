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
