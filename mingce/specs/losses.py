"""The policy losses and how a loss over tokens becomes a number, each with its definition in float64.

A new policy loss is a function here with its entry, a tensor function of the same name in `mingce.algorithms.losses`,
and a test. A definition reads one row: log-probs before and after, advantages and mask, and its settings by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from mingce.base.errors import SettingError, UnknownNameError
from mingce.base.user_files import names_file
from mingce.specs.rows import Column, MaskColumn, Row, chosen

MAX_LOG_RATIO, MAX_SEQUENCE_LOG_RATIO = 20.0, 10.0
"""Where exponents are held, of a token's ratio and of a whole response's."""


class PolicyTerm(NamedTuple):
    """One token's policy loss and what decided it."""

    ratio: float
    loss: float
    clipped: bool = False
    dual_clipped: bool = False


Twin = Callable[..., dict[int, PolicyTerm]]
T = TypeVar("T", bound=Twin)


@dataclass(frozen=True)
class PolicyLoss:
    """One policy loss. `settings` are those of `actor.` it reads; `clips` says whether it fills `clipped`.

    `numbers` is the formula with {placeholders} for one token's numbers (mingce.explain.account).
    """

    name: str
    zh: str
    en: str
    formula: str
    numbers: str
    settings: tuple[str, ...] = ()
    aggregation: str | None = None
    """The aggregation it is meant for."""
    twin: Twin | None = None
    tensor_function: Callable[..., Any] | None = None
    """A person's own function on tensors; None: the one of this name in mingce.algorithms.losses."""

    @property
    def clips(self) -> bool:
        """Whether some tokens may be clipped."""
        return bool(self.settings) and self.tensor_function is None

    def arguments(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments of the function and of `twin` that are settings."""
        return {name: settings.get(name) for name in self.settings}

    def terms(
        self, old: Row, new: Row, advantages: Row, mask: Row, settings: Mapping[str, Any]
    ) -> dict[int, PolicyTerm]:
        """The terms of a row's chosen tokens, by the definition in float64."""
        assert self.twin is not None, self.name
        return self.twin(old, new, advantages, mask, **self.arguments(settings))


POLICY_LOSSES: dict[str, PolicyLoss] = {}
"""By name, in the order they are listed to people."""


def find_policy_loss(name: str) -> PolicyLoss:
    """The policy loss of that name; an unknown name is an error that offers the nearest. No file is executed for it."""
    if name not in POLICY_LOSSES and names_file(name):
        raise SettingError(
            f"actor.loss={name} is a file of its own, which is not executed here; it cannot be recomputed."
        )
    if name not in POLICY_LOSSES:
        raise UnknownNameError("actor.loss", name, POLICY_LOSSES)
    return POLICY_LOSSES[name]


def define(**entry: Any) -> Callable[[T], T]:
    """Registers a policy loss under its definition's name."""

    def register(twin: T) -> T:
        POLICY_LOSSES[twin.__name__] = PolicyLoss(name=twin.__name__, twin=twin, **entry)
        return twin

    return register


def policy_ratio(old_log_prob: float, log_prob: float) -> float:
    """ρ = π(a)/π_old(a), the exponent held within ±20."""
    return math.exp(max(-MAX_LOG_RATIO, min(MAX_LOG_RATIO, log_prob - old_log_prob)))


def sequence_ratio(old: Row, new: Row, mask: Row) -> float:
    """exp of the mean log-ratio over a whole response, the exponent at most 10."""
    slots = chosen_slots(mask)
    mean = math.fsum(new[t] - old[t] for t in slots) / max(len(slots), 1)
    return math.exp(min(mean, MAX_SEQUENCE_LOG_RATIO))


def policy_term(
    old_log_prob: float,
    log_prob: float,
    advantage: float,
    low: float = 0.2,
    high: float = 0.2,
    dual_clip: float | None = 3.0,
) -> PolicyTerm:
    """−min(ρÂ, clip(ρ)Â), at most −cÂ for a bad token."""
    ratio = policy_ratio(old_log_prob, log_prob)
    plain = ratio * advantage
    limited = max(1 - low, min(1 + high, ratio)) * advantage
    objective, clipped, capped = min(plain, limited), limited < plain, False
    if dual_clip is not None and advantage < 0 and objective < dual_clip * advantage:
        objective, capped = dual_clip * advantage, True
    return PolicyTerm(ratio, -objective, clipped or capped, capped)


def cpi_term(old_log_prob: float, log_prob: float, advantage: float) -> float:
    """−ρÂ, TRPO's surrogate."""
    return -policy_ratio(old_log_prob, log_prob) * advantage


@define(
    zh="PPO 的裁剪损失",
    en="PPO's clipped loss",
    formula="L^π_t = −min(ρ_t·Â_t, clip(ρ_t, 1−ε_low, 1+ε_high)·Â_t)",
    numbers="L^π_{t} = −min({ratio}·{used}, {clipped_ratio}·{used}) "
    "= −min({plain_term}, {clipped_term}) = {policy_loss}",
    settings=("clip_low", "clip_high", "dual_clip"),
)
def ppo(
    old: Row, new: Row, advantages: Row, mask: Row, clip_low: float, clip_high: float, dual_clip: float | None
) -> dict[int, PolicyTerm]:
    return {t: policy_term(old[t], new[t], advantages[t], clip_low, clip_high, dual_clip) for t in chosen_slots(mask)}


@define(
    zh="TRPO 的代理目标，不裁剪",
    en="TRPO's surrogate, without a clip",
    formula="L^π_t = −ρ_t·Â_t",
    numbers="L^π_{t} = −{ratio}·{used} = {policy_loss}",
)
def cpi(old: Row, new: Row, advantages: Row, mask: Row) -> dict[int, PolicyTerm]:
    return {
        t: PolicyTerm(policy_ratio(old[t], new[t]), cpi_term(old[t], new[t], advantages[t])) for t in chosen_slots(mask)
    }


@define(
    zh="整条回答一个比值（GSPO）",
    en="one ratio for the whole response (GSPO)",
    formula="L^π_t = −min(s·Â_t, clip(s, 1−ε_low, 1+ε_high)·Â_t),  s = exp(mean_t log ρ_t)",
    numbers="L^π_{t} = −min({sequence_ratio}·{used}, clip({sequence_ratio})·{used}) = {policy_loss}",
    settings=("clip_low", "clip_high"),
    aggregation="seq-mean-token-mean",
)
def gspo(old: Row, new: Row, advantages: Row, mask: Row, clip_low: float, clip_high: float) -> dict[int, PolicyTerm]:
    s = sequence_ratio(old, new, mask)
    terms = {}
    for t in chosen_slots(mask):
        plain, limited = s * advantages[t], max(1 - clip_low, min(1 + clip_high, s)) * advantages[t]
        terms[t] = PolicyTerm(policy_ratio(old[t], new[t]), -min(plain, limited), limited < plain)
    return terms


@define(
    zh="裁剪重要性权重，梯度只经过 log π（CISPO）",
    en="clipped importance weights, the gradient through log π alone (CISPO)",
    formula="L^π_t = −sg[clip(ρ_t, 1−ε_low, 1+ε_high)]·Â_t·log π(y_t)",
    numbers="L^π_{t} = −{clipped_ratio}·{used}·{new_log_prob} = {policy_loss}",
    settings=("clip_low", "clip_high"),
)
def cispo(old: Row, new: Row, advantages: Row, mask: Row, clip_low: float, clip_high: float) -> dict[int, PolicyTerm]:
    terms = {}
    for t in chosen_slots(mask):
        ratio = policy_ratio(old[t], new[t])
        weight = max(1 - clip_low, min(1 + clip_high, ratio))
        terms[t] = PolicyTerm(ratio, -weight * advantages[t] * new[t], weight != ratio)
    return terms


def chosen_slots(mask: Row) -> list[int]:
    """The slots of a row that the policy chose, the mask as numbers."""
    return chosen([bool(m) for m in mask])


# ── from tokens to a number ────────────────────────────────────────────────────────────────────────────────────────

AGGREGATIONS = {
    "token-mean": ("每个 token 权重相同", "every token counts the same"),
    "seq-mean-token-sum": ("每行权重相同，行内求和", "every row counts the same, its tokens summed"),
    "seq-mean-token-mean": ("每行权重相同，行内平均", "every row counts the same, its tokens averaged"),
    "seq-mean-token-sum-norm": (
        "每行权重相同，行内求和再除以常数（Dr. GRPO）",
        "every row counts the same, its tokens summed and divided by a constant (Dr. GRPO)",
    ),
    "token-sum": ("所有 token 直接求和，不做平均", "all tokens summed, nothing averaged"),
}
"""How token losses become one number, in verl's names: (中文, English)."""


def agg_loss(
    loss_mat: Column,
    mask: MaskColumn,
    loss_agg_mode: str = "token-mean",
    batch_num_tokens: int | None = None,
    global_batch_size: int | None = None,
    loss_scale_factor: int | None = None,
) -> float:
    """One number of a matrix of token losses; 0 when nothing is chosen."""
    rows = [[loss_mat[b][t] for t in chosen(row)] for b, row in enumerate(mask)]
    tokens = sum(map(len, rows)) if batch_num_tokens is None else batch_num_tokens
    sequences = sum(bool(row) for row in rows) if global_batch_size is None else global_batch_size
    if loss_agg_mode in ("token-mean", "token-sum"):
        total = math.fsum(x for row in rows for x in row)
        return total if loss_agg_mode == "token-sum" else total / tokens if tokens else 0.0
    if not sequences:
        return 0.0
    if loss_agg_mode == "seq-mean-token-mean":
        return math.fsum(math.fsum(row) / len(row) for row in rows if row) / sequences
    mean_of_sums = math.fsum(math.fsum(row) for row in rows) / sequences
    if loss_agg_mode == "seq-mean-token-sum":
        return mean_of_sums
    assert loss_agg_mode == "seq-mean-token-sum-norm", loss_agg_mode
    return mean_of_sums / (len(mask[0]) if loss_scale_factor is None else loss_scale_factor)
