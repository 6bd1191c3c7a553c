"""Where other trainers compute what a function of ours computes: package, version, file and name.

    peers_of("mingce.algorithms.advantage.gae")
    → (PeerRef("verl", "0.9.1", "verl/trainer/ppo/core_algos.py", "compute_gae_advantage_return"), …)

The names are facts about those packages, held against their published source by a slow test; nothing of them is
imported.
"""

from __future__ import annotations

from typing import NamedTuple

VERSIONS = {"verl": "0.9.1", "trl": "1.12.0", "openrlhf": "0.11.2"}
TITLES = {"verl": "verl", "trl": "TRL", "openrlhf": "OpenRLHF"}


class PeerRef(NamedTuple):
    """A function, class or method of another trainer; `package` is its name on PyPI."""

    package: str
    version: str
    file: str
    name: str

    @property
    def title(self) -> str:
        """The trainer as people write it, with its version: `verl 0.9.1`."""
        return f"{TITLES[self.package]} {self.version}"

    @property
    def short(self) -> str:
        """The name behind its file's: `core_algos.compute_gae_advantage_return`."""
        return f"{self.file.rpartition('/')[2].removesuffix('.py')}.{self.name}"


_FILES = {
    "core": ("verl", "verl/trainer/ppo/core_algos.py"),
    "ray": ("verl", "verl/trainer/ppo/ray_trainer.py"),
    "functional": ("verl", "verl/utils/torch_functional.py"),
    "worker": ("verl", "verl/workers/utils/losses.py"),
    "ppo": ("trl", "trl/experimental/ppo/ppo_trainer.py"),
    "grpo_trainer": ("trl", "trl/trainer/grpo_trainer.py"),
    "utils": ("trl", "trl/trainer/utils.py"),
    "loss": ("openrlhf", "openrlhf/models/loss.py"),
    "models": ("openrlhf", "openrlhf/models/utils.py"),
    "maker": ("openrlhf", "openrlhf/trainer/ppo_utils/experience_maker.py"),
    "controller": ("openrlhf", "openrlhf/trainer/ppo_utils/kl_controller.py"),
}
_GAE = (
    "core:compute_gae_advantage_return",
    "ppo:PPOTrainer.train",
    "maker:RemoteExperienceMaker.get_advantages_and_returns",
)
_SHAPED = "maker:RemoteExperienceMaker.compute_advantages_and_returns"
_GRPO = ("core:compute_grpo_outcome_advantage", "grpo_trainer:GRPOTrainer._generate_and_score_completions", _SHAPED)
_POLICY = ("core:compute_policy_loss_vanilla", "ppo:PPOTrainer.train", "loss:PolicyLoss.forward")
_VALUE = ("core:compute_value_loss", "ppo:PPOTrainer.train", "loss:ValueLoss.forward")
_ENTROPY = ("functional:entropy_from_logits", "utils:entropy_from_logits", "models:compute_entropy")
_PEERS: dict[str, tuple[str, ...]] = {
    "mingce.algorithms.advantage.gae": _GAE,
    "mingce.algorithms.advantage.td_errors": _GAE,
    "mingce.specs.estimators.gae": _GAE,
    "mingce.algorithms.scan._generalised": _GAE,
    "mingce.algorithms.advantage.grpo": _GRPO,
    "mingce.algorithms.advantage._groups": _GRPO,
    "mingce.algorithms.advantage.dr_grpo": _GRPO,
    "mingce.algorithms.advantage.rloo": ("core:compute_rloo_outcome_advantage", _SHAPED),
    "mingce.algorithms.advantage.opo": ("core:compute_opo_outcome_advantage",),
    "mingce.algorithms.advantage.remax": ("core:compute_remax_outcome_advantage",),
    "mingce.algorithms.advantage.reinforce_plus_plus": (
        "core:compute_reinforce_plus_plus_outcome_advantage", "maker:RemoteExperienceMaker.get_cumulative_returns",
    ),
    "mingce.credit.assign_credit": ("ray:compute_advantage", _SHAPED),
    "mingce.algorithms.kl.kl_penalty": ("core:kl_penalty_forward", "models:compute_approx_kl"),
    "mingce.algorithms.kl.kl_rewards": ("ray:apply_kl_penalty", "ppo:PPOTrainer.train", "models:compute_reward"),
    "mingce.algorithms.kl.AdaptiveKLController": ("core:AdaptiveKLController", "controller:AdaptiveKLController"),
    "mingce.algorithms.kl.FixedKLController": ("core:FixedKLController", "controller:FixedKLController"),
    "mingce.algorithms.losses.agg_loss": ("core:agg_loss", "grpo_trainer:GRPOTrainer._compute_loss",
        "loss:aggregate_loss"),
    "mingce.algorithms.losses.batch_totals": ("core:agg_loss", "loss:aggregate_loss"),
    "mingce.algorithms.losses.policy_ratio": _POLICY,
    "mingce.algorithms.losses.ppo": _POLICY,
    "mingce.algorithms.losses.ppo_loss": _POLICY,
    "mingce.algorithms.losses.gspo": ("core:compute_policy_loss_gspo", "grpo_trainer:GRPOTrainer._compute_loss",
        "loss:PolicyLoss.forward"),
    "mingce.algorithms.losses.cispo": ("core:compute_policy_loss_cispo", "grpo_trainer:GRPOTrainer._compute_loss"),
    "mingce.algorithms.losses.value_loss": _VALUE,
    "mingce.algorithms.losses.entropy_from_logits": _ENTROPY,
    "mingce.algorithms.losses.entropy_loss": ("core:compute_entropy_loss",),
    "mingce.algorithms.losses.kl_loss": ("core:kl_penalty", "grpo_trainer:GRPOTrainer._compute_loss",
        "models:compute_approx_kl"),
    "mingce.algorithms.masking.masked_sum": ("functional:masked_sum",),
    "mingce.algorithms.masking.masked_mean": ("functional:masked_mean", "ppo:masked_mean", "models:masked_mean"),
    "mingce.algorithms.masking.masked_var": ("functional:masked_var", "ppo:masked_var"),
    "mingce.algorithms.masking.masked_moments": ("functional:masked_var", "ppo:masked_var"),
    "mingce.algorithms.masking.masked_whiten": ("functional:masked_whiten", "ppo:masked_whiten", _SHAPED),
    "mingce.models.log_probs.gathered_log_probs": (
        "functional:log_probs_from_logits_response", "utils:selective_log_softmax", "models:log_probs_from_logits",
    ),
    "mingce.roles.critic.LocalCritic.loss": ("worker:value_loss", "loss:ValueLoss.forward"),
    "mingce.roles.critic.LocalCritic.update": ("worker:value_loss",),
}  # fmt: skip


def peers_of(name: str) -> tuple[PeerRef, ...]:
    """What computes the same elsewhere, verl's first; nothing for a function that others do not have."""
    return tuple(_peer(one) for one in _PEERS.get(name, ()))


def known_names() -> tuple[str, ...]:
    """Our functions that have a peer."""
    return tuple(_PEERS)


def _peer(place: str) -> PeerRef:
    key, _, name = place.partition(":")
    package, file = _FILES[key]
    return PeerRef(package, VERSIONS[package], file, name)
