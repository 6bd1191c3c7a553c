"""The policy: the numbers of a token, what the modules put out, and the topics of its objective."""

from __future__ import annotations

from mingce.explain.topic import Topic, listed
from mingce.explain.topics import averages, kl, surrogate, tutor

_FIVE = Topic(
    "five_quantities",
    needs=("scores", "rewards", "values", "advantages", "returns"),
    formula=(
        "r_t = score_t − β·k_t,   δ_t = r_t + γ·V(s_{t+1}) − V(s_t),   A_t = Σ_l (γλ)^l·δ_{t+l},   R_t = A_t + V(s_t)"
    ),
    each="δ_{t} = {reward} + {gamma}·{next_value} − {value} = {delta};  R_{t} = {advantage} + {value} = {return}",
    table=("scores", "rewards", "values", "deltas", "advantages", "returns"),
    code=(
        "mingce.algorithms.kl.kl_rewards",
        "mingce.algorithms.advantage.td_errors",
        "mingce.algorithms.advantage.gae",
    ),
    related=("state_action_index", "advantage_inputs", "modules", "whitening"),
)

_MODULES = Topic(
    "modules",
    needs=("scores", "old_log_probs", "ref_log_probs", "kl", "rewards", "values", "advantages", "returns"),
    numbers=lambda rollout, t: {"kl_list": listed(rollout.columns["kl"])},
    table=("old_log_probs", "values", "ref_log_probs", "scores"),
    code=(
        "mingce.roles.actor.Actor",
        "mingce.roles.critic.Critic",
        "mingce.roles.reference.Reference",
        "mingce.roles.reward.Reward",
    ),
    related=("five_quantities", "reference_not_in_loss", "kl_where"),
)

TOPICS: tuple[Topic, ...] = (_FIVE, _MODULES, *surrogate.TOPICS, *kl.TOPICS, *averages.TOPICS, *tutor.TOPICS)
