"""The chosen tokens of a rollout one after the other, and the numbers of one of them that many topics speak of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mingce.algorithms import reference
from mingce.explain.account import STATE_END
from mingce.explain.example import GAMMA, LAM, Rollout
from mingce.explain.topic import Phrase, Values, listed
from mingce.explain.topics.chosen import plain, token_of
from mingce.specs.estimator import lambda_of


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
        float(rollout.bootstrap or 0.0),
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
