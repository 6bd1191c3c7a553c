"""The chosen tokens of a rollout one after the other, and the numbers of one of them that many topics speak of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from mingce.algorithms import reference
from mingce.explain.example import GAMMA, LAM, Rollout
from mingce.explain.topic import Phrase, Values, listed
from mingce.explain.topics.chosen import equation, plain, token_of
from mingce.specs.estimator import lambda_of
from mingce.specs.facts import state_end


@dataclass(frozen=True)
class Walk:
    """The chosen tokens of a rollout, one entry each: holes are stepped over before anything is computed."""

    slots: list[int]
    rewards: list[float]
    values: list[float]
    gamma: float
    lam: float
    after: float  # the value of the state after the last one

    @property
    def decay(self) -> float:
        return self.gamma * self.lam

    @cached_property
    def _by_gae(self) -> reference.Credit:
        return self.credit()

    @cached_property
    def _by_monte_carlo(self) -> reference.Credit:
        return self.credit(lam=1.0)

    @property
    def deltas(self) -> list[float]:
        return [plain(x) for x in self._by_gae.deltas[0]]

    @property
    def advantages(self) -> list[float]:
        return [plain(x) for x in self._by_gae.advantages[0]]

    @property
    def returns(self) -> list[float]:
        return [plain(x) for x in self._by_gae.returns[0]]

    @property
    def mc_returns(self) -> list[float]:
        return [plain(x) for x in self._by_monte_carlo.returns[0]]

    @property
    def mc_advantages(self) -> list[float]:
        return [plain(x) for x in self._by_monte_carlo.advantages[0]]

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
    deltas, advantages, returns = w.deltas, w.advantages, w.returns
    slot, last = w.slots[k], w.slots[-1]
    inside = k + 1 < len(w.slots)
    following = w.slots[k + 1] if inside else slot + 1
    before = rollout.prompt + "".join(token.text for token in rollout.tokens[:slot])
    values: Values = {
        "t": slot, "place": k, "next_t": following, "token": token_of(rollout, slot),
        "upcoming": token_of(rollout, following) if inside else None,
        "state_end": state_end(list(before)), "chosen_left": len(w.slots) - k - 1,
        "first": w.slots[0], "first_token": token_of(rollout, w.slots[0]), "last": last,
        "last_token": token_of(rollout, last), "count_chosen": len(w.slots), "count_states": len(w.slots) + 1,
        "gamma": w.gamma, "lam": w.lam, "gamma_lam": w.gamma * w.lam, "bootstrap": w.after,
        "reward": w.rewards[k], "value": w.values[k], "delta": deltas[k],
        "advantage": advantages[k], "return": returns[k],
        "next_value": w.following(w.values, k, w.after), "next_advantage": w.following(advantages, k, 0.0),
        "next_return": w.following(returns, k, w.after), "last_reward": w.rewards[-1],
        "last_value": w.values[-1], "last_delta": deltas[-1], "last_advantage": advantages[-1],
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


def credit_numbers(rollout: Rollout, t: int) -> Values:
    """What the topics on credit have in common: the step's numbers, and the same by Monte Carlo."""
    w = walk(rollout)
    k = w.place(t)
    ahead = [w.gamma**j * delta for j, delta in enumerate(w.deltas[k:])]
    lists = {name: listed(getattr(w, name)) for name in ("rewards", "values", "deltas", "advantages", "returns")}
    values = step(rollout, t) | lists | {
        "left": len(w.slots) - k - 1, "mc_return": w.mc_returns[k], "mc_advantage": w.mc_advantages[k],
        "next_return": w.following(w.mc_returns, k, w.after), "gap": plain(w.mc_advantages[k] - w.advantages[k]),
        "delta_sum": plain(math.fsum(ahead)), "later_sum": plain(math.fsum(ahead[1:])),
        "mc_returns": listed(w.mc_returns), "mc_advantages": listed(w.mc_advantages),
    }  # fmt: skip
    return values | {
        "mc_equation": equation("{mc_return} − {value} = {mc_advantage}", values),
        "step_equation": equation("{delta} + {gamma_lam}·{next_advantage} = {advantage}", values),
    }
