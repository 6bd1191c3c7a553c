"""Topics of time: what is before a token and what after it, what the masks leave out, how a response ends.

`walk` and `step` give the numbers that most topics of the critic speak of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from mingce.algorithms import reference
from mingce.base.numbers import number as shown
from mingce.explain.account import STATE_END
from mingce.explain.example import GAMMA, LAM, Rollout
from mingce.explain.topic import SILENT, Grid, Phrase, Topic, Values, listed
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
    columns, settings = rollout.columns, rollout.settings.as_dict()
    slots = reference.chosen(columns["response_mask"])
    gamma, lam = settings.get("gamma"), lambda_of(settings)
    return Walk(
        slots,
        [float(columns["rewards"][s] or 0.0) for s in slots],
        [float(columns["values"][s] or 0.0) for s in slots],
        GAMMA if gamma is None else float(gamma),
        LAM if lam is None else float(lam),
        rollout.bootstrap,
    )


def spread(rollout: Rollout, walk: Walk, numbers: Sequence[float]) -> str:
    """One number a chosen token as a list over all slots, — where the policy did not choose."""
    by_slot = dict(zip(walk.slots, numbers, strict=True))
    length = len(rollout.columns["response_mask"])
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
    before = rollout.prompt + "".join(token.text for token in rollout.tokens[:slot])
    values: Values = {
        "t": slot, "place": k, "next_t": following, "token": token_of(rollout, slot),
        "upcoming": token_of(rollout, following) if inside else None,
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
    return values | _ends(w, inside)


def _ends(walk: Walk, inside: bool) -> Values:
    """What comes after the token and after the last one, in words."""
    end = "cut" if walk.after else "over"
    then = "inside" if inside else end
    return {"then": Phrase(f"then.{then}"), "rest": Phrase(f"rest.{then}"), "end": Phrase(f"end.{end}")}


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
    return Grid(("column", "belongs_to", "definition", "here"), tuple(row for row in rows if row[-1] is not None))


def _at(rollout: Rollout, name: str, slot: int) -> float | None:
    column = rollout.columns.get(name)
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
    score, kl, beta = _at(rollout, "scores", v["t"]), _at(rollout, "kl", v["t"]), rollout.settings.beta
    v |= {"score": score, "kl": kl, "beta": beta}
    if score is not None and kl is not None and beta is not None:
        v["cost"] = plain(beta * kl)
        parts, made_of = equation("{score} − {beta}·{kl} = {reward}", v), "made_of.score_and_kl"
    else:
        parts, made_of = shown(v["reward"]), "made_of.score" if score is not None else "made_of.itself"
    foreign = [s for s in range(int(v["t"]) + 1, int(v["next_t"])) if s < len(rollout.tokens)]
    v |= {"parts": parts, "made_of": Phrase(made_of), "count_foreign": len(foreign)}
    v["foreign"] = Phrase("foreign") if foreign else SILENT
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
    v |= (
        {"seen": token_of(rollout, slot - 1), "read": Phrase("read.token")} if slot else {"read": Phrase("read.prompt")}
    )
    return v


def _move_grid(rollout: Rollout, t: int) -> Grid:
    w = walk(rollout)

    def row(k: int) -> tuple[Any, ...]:
        slot = w.slots[k]
        seen = token_of(rollout, slot - 1) if slot else "x"
        upcoming = w.following(w.values, k, w.after)
        return (f"s_{slot}", seen, w.values[k], token_of(rollout, slot), w.rewards[k], upcoming)

    headings = "state", "read_at", "value_before", "action", "r_t", "value_after"
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


def _cut(rollout: Rollout, w: Walk) -> tuple[float, Phrase, Phrase]:
    """The value after the cut, where it comes from, and whether this response was cut."""
    info = rollout.info
    stored = info.bootstrap_value
    if w.after:
        after, source = w.after, "used"
    elif stored:
        after, source = float(stored), "stored"
    else:
        after, source = w.values[-1], "last"
    by_limit, ended = info.truncated, info.finish_reason
    cut = "limit" if by_limit else "bootstrapped" if w.after else "ended" if ended else "unknown"
    return after, Phrase(f"cut_from.{source}"), Phrase(f"cut.{cut}")


def _truncation_numbers(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    after, source, cut = _cut(rollout, w)
    zero, continued = w.credit(after=0.0), w.credit(after=after)
    k = w.place(t)
    v |= {
        "cut_value": after, "cut_from": source, "cut": cut, "rule": rollout.settings.truncation or "zero",
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

    return Grid(("token", "zero", "bootstrap", "difference"), rows_of(len(w.slots), row))


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
    mask = rollout.columns["response_mask"]
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
        before, after = max(s for s in w.slots if s < holes[0]), min(s for s in w.slots if s > holes[0])
        v |= {"hole_before": before, "hole_after": after}
        v |= {"token_before": token_of(rollout, before), "token_after": token_of(rollout, after)}
    v["holes"] = Phrase("holes.some" if holes else "holes.none")
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
