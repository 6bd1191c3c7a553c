"""The kinds of lines that are recognised and the bugs that are named: one entry each, in roles.

A kind is what a line computes. Its forms are expressions in roles (`environment`): a line is of that kind if it gives
the same numbers and the same derivatives on batches made up to tell kinds apart, however it is written. A bug is a form
that is wrong for its kind. Words are in mingce/texts/snippets.<lang>.md under the same ids.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """`role` is what the line's result stands for afterwards; `code` is our function for it.

    `twice`: the advantages may be the whitened ones. `notes` are forms that are right under a convention: (form, note).
    """

    id: str
    role: str
    forms: tuple[str, ...]
    code: str = ""
    twice: bool = False
    notes: tuple[tuple[str, str], ...] = ()
    targets: tuple[str, ...] = ()
    """If not empty, the line must assign to one of these roles: its form alone says too little."""
    unless: tuple[str, ...] = ()
    """A line that assigns to one of these roles is something else."""
    reads: tuple[str, ...] = ()
    """If not empty, the line must read one of these roles: others give the same numbers."""


@dataclass(frozen=True)
class Bug:
    """A form that is wrong for its kind; with `targets` only if the line assigns to one of these roles.

    `gradient`: its numbers are right and its derivatives are not.
    """

    id: str
    kind: str
    forms: tuple[str, ...]
    targets: tuple[str, ...] = ()
    gradient: bool = False
    word: str = ""
    """What the line's text must contain: the same numbers may come from another mistake."""


_ADVANTAGE, _LOSSES = "mingce.algorithms.advantage", "mingce.algorithms.losses"
_KL, _MASKING = "mingce.algorithms.kl", "mingce.algorithms.masking"
_GAE, _POLICY = f"{_ADVANTAGE}.gae", f"{_LOSSES}.ppo_loss"
_VALUE, _AGG = f"{_LOSSES}.value_loss", f"{_LOSSES}.agg_loss"
_PENALTY, _WHITEN = f"{_KL}.kl_penalty", f"{_MASKING}.masked_whiten"
_LOG_PROBS = "mingce.models.log_probs.gathered_log_probs"
_MEAN = f"{_MASKING}.masked_mean"
_UNMASKED, _BIASED = "unmasked", "biased_std"
_ADV = ("advantages", "whitened_advantages", "next_advantages", "group_advantages")

KINDS: tuple[Kind, ...] = (
    # ── GAE
    Kind("delta", "deltas", ("rewards + gamma * next_values - values",), _GAE),
    Kind("gae_step", "advantages", ("deltas + gamma * lam * next_advantages",), _GAE),
    Kind("next_value", "next_values", ("next_values",), _GAE, targets=("next_values", "values")),
    Kind("carry_value", "next_values_updated", ("values * response_mask + (1 - response_mask) * next_values",), _GAE,
         targets=("next_values",), reads=("next_values",)),
    Kind("carry_value_plain", "next_values_updated", ("values",), _GAE, targets=("next_values",)),
    Kind("carry_advantage", "advantages", ("advantages * response_mask + (1 - response_mask) * next_advantages",), _GAE,
         targets=("next_advantages", "advantages"), reads=("next_advantages",)),
    Kind("returns", "returns", ("advantages + values",), _GAE),
    Kind("advantage_of_returns", "advantages", ("returns - values", "mc_returns - values"),
         f"{_ADVANTAGE}.monte_carlo"),
    Kind("whiten", "whitened_advantages", ("whitened_advantages",), _WHITEN,
         notes=(("(advantages - mean(advantages)) / (std(advantages) + tiny)", _UNMASKED),)),
    Kind("whiten_returns", "whitened_advantages", ("masked_whiten(mc_returns, response_mask)",), _WHITEN),
    Kind("adv_mean", "advantages_mean", ("advantages_mean",), _MEAN),
    Kind("adv_std", "advantages_std", ("advantages_std", "square(advantages_std)"), f"{_MASKING}.masked_var"),
    Kind("discounted_return", "mc_returns", ("rewards + gamma * next_returns",), f"{_ADVANTAGE}.reinforce_plus_plus"),
    Kind("reset_return", "mc_returns", ("mc_returns * response_mask",), f"{_ADVANTAGE}.reinforce_plus_plus",
         targets=("next_returns", "mc_returns")),
    Kind("reward_to_go", "reward_to_go", ("reward_to_go",), f"{_ADVANTAGE}.remax"),
    Kind("remax_step", "advantages", ("reward_to_go - greedy_score.unsqueeze(-1)",), f"{_ADVANTAGE}.remax"),
    # ── KL and rewards
    Kind("kl_k1", "kl", ("old_log_probs - ref_log_probs", "new_log_probs - ref_log_probs"), _PENALTY),
    Kind("kl_abs", "kl", ("abs(old_log_probs - ref_log_probs)", "abs(new_log_probs - ref_log_probs)"), _PENALTY),
    Kind("kl_k2", "kl_k2", ("kl_k2", "0.5 * square(new_log_probs - ref_log_probs)"), _PENALTY),
    Kind("kl_k3", "kl_k3", ("kl_k3", "exp(ref_log_probs - new_log_probs) - (ref_log_probs - new_log_probs) - 1"),
         _PENALTY),
    Kind("kl_log_ratio", "ref_log_ratio", ("ref_log_probs - old_log_probs", "ref_log_probs - new_log_probs"), _PENALTY,
         reads=("ref_log_probs",)),
    Kind("kl_ratio", "ref_ratio", ("exp(ref_log_probs - old_log_probs)", "exp(ref_log_probs - new_log_probs)"),
         _PENALTY,
         reads=("ref_log_probs", "ref_log_ratio")),
    Kind("reward", "rewards", ("scores - beta * kl", "scores - beta * kl_k3", "scores - beta * kl_k2"),
         f"{_KL}.kl_rewards"),
    Kind("kl_reward", "kl_reward", ("-beta * kl", "-beta * kl_k3"), f"{_KL}.kl_rewards"),
    Kind("kl_cost", "kl_cost", ("beta * kl", "beta * kl_k3", "beta * (new_log_probs - ref_log_probs)"),
         f"{_KL}.kl_rewards",
         unless=("kl_reward",)),
    Kind("kl_mean", "current_kl", ("current_kl", "masked_mean(kl, response_mask, -1)",
         "masked_mean(kl_k3, response_mask)",
         "mean(sum(kl * response_mask, -1))"), _MEAN),
    Kind("kl_error", "kl_error", ("kl_error",), f"{_KL}.AdaptiveKLController"),
    Kind("kl_multiplier", "kl_multiplier", ("kl_multiplier",), f"{_KL}.AdaptiveKLController"),
    Kind("kl_update", "beta", ("beta * kl_multiplier",), f"{_KL}.AdaptiveKLController"),
    # ── the policy's loss
    Kind("log_ratio", "log_ratio", ("new_log_probs - old_log_probs",), f"{_LOSSES}.policy_ratio",
         unless=("ratio",)),
    Kind("ratio", "ratio", ("exp(new_log_probs - old_log_probs)",), f"{_LOSSES}.policy_ratio"),
    Kind("clipped_ratio", "clipped_ratio", ("clipped_ratio",), _POLICY,
         notes=(("clip(ratio, 1 - eps_low, 1 + eps_high).detach()", "stop_gradient"),)),
    Kind("pg_plain", "pg_plain", ("-advantages * ratio", "-group_advantages.unsqueeze(-1) * ratio"), _POLICY,
         twice=True),
    Kind("pg_clipped", "pg_clipped", ("-advantages * clipped_ratio", "-group_advantages.unsqueeze(-1) * clipped_ratio"),
         _POLICY, twice=True),
    Kind("pg_max", "pg_max", ("maximum(-advantages * ratio, -advantages * clipped_ratio)",), _POLICY, twice=True),
    Kind("pg_dual", "pg_dual", ("-advantages * dual_clip",), _POLICY, twice=True),
    Kind("dual_min", "dual_min", ("dual_min",), _POLICY, twice=True),
    Kind("dual_where", "policy_losses", ("policy_losses",), _POLICY, twice=True),
    Kind("dual_max", "dual_max", ("dual_max",), _POLICY, twice=True),
    Kind("surrogate", "surrogate", ("ratio * advantages", "ratio * group_advantages.unsqueeze(-1)"), _POLICY,
         twice=True),
    Kind("surrogate_clipped", "surrogate_clipped", ("clipped_ratio * advantages",
         "clipped_ratio * group_advantages.unsqueeze(-1)"), _POLICY, twice=True),
    Kind("surrogate_min", "surrogate_min", ("surrogate_min",), _POLICY, twice=True,
         unless=("pg_loss", "loss_mat", "policy_losses", "pg_max")),
    Kind("pg_loss", "pg_loss", ("masked_mean(pg_max, response_mask)", "masked_mean(policy_losses, response_mask)",
         "masked_mean(-advantages * new_log_probs, response_mask)"), _AGG,
         twice=True, notes=(("mean(pg_max)", _UNMASKED), ("mean(policy_losses)", _UNMASKED),
                            ("mean(-advantages * new_log_probs)", _UNMASKED)),
         reads=("pg_max", "policy_losses", "pg_plain", "surrogate_min", "surrogate", "advantages",
         "whitened_advantages", "dual_min")),
    Kind("pg_clipfrac", "pg_clipfrac", ("pg_clipfrac", "masked_mean(lt(surrogate_clipped, surrogate), response_mask)"),
         _MEAN, twice=True, notes=(("mean(gt(pg_clipped, pg_plain))", _UNMASKED),)),
    Kind("ppo_kl", "ppo_kl", ("ppo_kl", "masked_mean(old_log_probs - new_log_probs.detach(), response_mask)"), _MEAN,
         notes=(("mean(-log_ratio)", _UNMASKED), ("0.5 * mean(square(log_ratio))", _UNMASKED),
                ("mean((ratio - 1) - log_ratio)", _UNMASKED))),
    Kind("seq_log_ratio", "seq_log_ratio", ("seq_log_ratio",), f"{_LOSSES}.gspo"),
    Kind("seq_ratio", "seq_ratio", ("exp(seq_log_ratio)", "exp(seq_log_ratio).unsqueeze(-1) * response_mask"),
         f"{_LOSSES}.gspo"),
    Kind("token_seq_log_ratio", "token_seq_log_ratio", ("token_seq_log_ratio",), f"{_LOSSES}.gspo"),
    Kind("token_seq_ratio", "token_seq_ratio", ("exp(token_seq_log_ratio)",), f"{_LOSSES}.gspo"),
    Kind("cispo", "loss_mat", ("-clipped_ratio.detach() * advantages * new_log_probs",), f"{_LOSSES}.cispo",
         twice=True),
    Kind("reinforce", "loss_mat", ("-advantages * new_log_probs",), f"{_LOSSES}.ppo_loss", twice=True),
    Kind("loss_with_kl", "per_token_loss", ("pg_max + beta * kl_k3", "policy_losses + beta * kl_k3",
         "pg_max + beta * (exp(ref_log_probs - new_log_probs) - (ref_log_probs - new_log_probs) - 1)"),
         f"{_LOSSES}.kl_loss", twice=True),
    Kind("rollout_weighted", "pg_max", ("pg_max * rollout_weight", "policy_losses * rollout_weight"), "", twice=True),
    Kind("dual_clipfrac", "pg_clipfrac", ("masked_mean(gt(pg_max, pg_dual) * (advantages < 0), response_mask)",), _MEAN,
         twice=True),
    Kind("rollout_weight", "rollout_weight", ("rollout_weight", "old_log_probs - rollout_log_probs",
         "minimum(rollout_weight, 2.0)", "minimum(rollout_weight, 3.0)", "clip(rollout_weight, 0.5, 2.0)"), ""),
    # ── from tokens to one number
    Kind("token_mean", "pg_loss", ("masked_mean(loss_mat, response_mask)",
         "masked_mean(per_token_loss, response_mask)"),
         _AGG),
    Kind("seq_sum", "seq_losses", ("masked_sum(loss_mat, response_mask, -1)",), _AGG),
    Kind("seq_token_mean", "seq_means", ("masked_sum(loss_mat, response_mask, -1) / group_lengths",), _AGG),
    Kind("seq_mean_token_mean", "pg_loss", ("mean(masked_sum(loss_mat, response_mask, -1) / group_lengths)",), _AGG),
    Kind("seq_mean_token_sum", "pg_loss", ("mean(masked_sum(loss_mat, response_mask, -1))",), _AGG),
    Kind("constant_norm", "pg_loss", ("sum(masked_sum(loss_mat, response_mask, -1)) / length",
         "sum(loss_mat * response_mask) / (group_size * length)"), _AGG, reads=("length",)),
    Kind("row_mask", "row_mask", ("row_mask",), _AGG, targets=("row_mask", "")),
    Kind("row_lengths", "group_lengths", ("group_lengths",), _AGG),
    Kind("total_loss", "total_loss", ("pg_loss + vf_coef * vf_loss", "pg_loss - entropy_coef * entropy_loss",
         "pg_loss - entropy_coef * entropy_loss + vf_coef * vf_loss"), _POLICY),
    # ── the critic's loss
    Kind("value_clip", "value_clip", ("value_clip",), _VALUE),
    Kind("vf_plain", "vf_plain", ("square(new_values - returns)", "square(new_values - mc_returns)"), _VALUE,
         notes=(("0.5 * square(new_values - returns)", "half"),)),
    Kind("vf_clipped", "vf_clipped", ("vf_clipped",), _VALUE),
    Kind("vf_max", "vf_max", ("vf_max",), _VALUE, notes=(("0.5 * vf_max", "half"),)),
    Kind("vf_loss", "vf_loss", ("vf_loss", "0.5 * masked_mean(vf_plain, response_mask)"), _VALUE,
         notes=(("masked_mean(vf_max, response_mask)", "no_half"), ("0.5 * mean(vf_max)", _UNMASKED),
                ("mean(vf_plain)", _UNMASKED), ("0.5 * mean(vf_plain)", _UNMASKED), ("mean(vf_max)", _UNMASKED),
                ("masked_mean(vf_plain, response_mask)", "no_half")),
         reads=("new_values", "vf_plain", "vf_max", "vf_clipped", "value_clip")),
    Kind("vf_clipfrac", "vf_clipfrac", ("vf_clipfrac",), _MEAN),
    # ── statistics under a mask
    Kind("masked_sum", "values_sum", ("values_sum",), f"{_MASKING}.masked_sum"),
    Kind("masked_mean", "values_mean", ("values_mean",), _MEAN),
    Kind("masked_centre", "values_centred", ("values_centred",), f"{_MASKING}.masked_var"),
    Kind("masked_var", "values_var", ("values_var", "values_var * bessel"), f"{_MASKING}.masked_var"),
    Kind("bessel", "bessel", ("bessel",), f"{_MASKING}.masked_var"),
    Kind("token_count", "token_count", ("token_count",), _MEAN),
    Kind("masked_whiten", "values_whitened", ("masked_whiten(values, response_mask)",
         "masked_whiten(values, response_mask, 0)", "values_centred * rsqrt(values_var + tiny)"), _WHITEN),
    # ── groups of samples
    Kind("group_total", "group_scores", ("group_scores",), f"{_ADVANTAGE}.grpo"),
    Kind("group_mean", "group_mean", ("group_mean",), f"{_ADVANTAGE}.grpo", targets=("group_mean", "")),
    Kind("group_std", "group_std", ("group_std",), f"{_ADVANTAGE}.grpo", targets=("group_std", ""),
         notes=(("std(group_scores, unbiased=0)", _BIASED),)),
    Kind("group_norm", "group_advantages", ("(group_scores - group_mean) / (group_std + tiny)",), f"{_ADVANTAGE}.grpo",
         notes=(("(group_scores - group_mean) / (std(group_scores, unbiased=0) + tiny)", _BIASED),),
         reads=("group_scores",)),
    Kind("group_scale", "group_advantages", ("group_advantages / (group_std + tiny)",), f"{_ADVANTAGE}.grpo",
         reads=("group_advantages",)),
    Kind("group_centre", "group_advantages", ("group_scores - group_mean",), f"{_ADVANTAGE}.dr_grpo"),
    Kind("rloo_baseline", "others_mean", ("others_mean",), f"{_ADVANTAGE}.rloo"),
    Kind("rloo_step", "group_advantages", ("group_scores - others_mean",), f"{_ADVANTAGE}.rloo"),
    Kind("opo_baseline", "group_baseline", ("group_baseline",), f"{_ADVANTAGE}.opo"),
    Kind("opo_step", "group_advantages", ("group_scores - group_baseline",), f"{_ADVANTAGE}.opo"),
    Kind("broadcast", "advantages", ("group_scores.unsqueeze(-1) * response_mask",
         "group_advantages.unsqueeze(-1) * response_mask"), f"{_ADVANTAGE}.grpo"),
    # ── logits
    Kind("log_probs", "new_log_probs", ("logprobs_from_logits(logits, token_ids)",), _LOG_PROBS),
    Kind("log_softmax", "log_softmax", ("log_softmax(logits)",), _LOG_PROBS),
    Kind("softmax", "probs", ("softmax(logits)",), f"{_LOSSES}.entropy_from_logits"),
    Kind("entropy", "entropies", ("entropies",), f"{_LOSSES}.entropy_from_logits"),
    Kind("entropy_mean", "entropy_loss", ("entropy_loss",), f"{_LOSSES}.entropy_from_logits"),
)  # fmt: skip

STRUCTURAL = (
    "slice_state", "slice_token", "carry_init", "list_init", "length", "loop_reversed", "loop", "append",
    "stack_reversed", "mask_column", "clamp_safety", "score_place", "fill_padding", "zeros", "temperature",
    "group_collect",
    "detach", "slice_shift", "ref_log_probs", "optimizer_step", "last_position", "fill_log_probs",
)  # fmt: skip
"""Kinds that are recognised by how they are written: see `shapes`."""

BUGS: tuple[Bug, ...] = (
    Bug("min_in_loss", "pg_max", ("minimum(pg_plain, pg_clipped)",), word="min"),
    Bug("min_in_loss", "pg_loss", ("masked_mean(minimum(pg_plain, pg_clipped), response_mask)",
        "mean(minimum(pg_plain, pg_clipped))"), word="min"),
    Bug("max_in_objective", "surrogate_min", ("maximum(surrogate, surrogate_clipped)",), word="max"),
    Bug("max_in_objective", "pg_max", ("-maximum(surrogate, surrogate_clipped)",), word="max"),
    Bug("max_in_objective", "pg_loss", ("-masked_mean(maximum(surrogate, surrogate_clipped), response_mask)",
        "-mean(maximum(surrogate, surrogate_clipped))"), word="max"),
    Bug("loss_sign", "pg_max", ("surrogate_min",), ("pg_loss", "loss_mat", "policy_losses")),
    Bug("loss_sign", "pg_loss", ("masked_mean(surrogate_min, response_mask)", "mean(surrogate_min)"),
        ("pg_loss", "loss_mat")),
    Bug("ratio_inverted", "ratio", ("exp(old_log_probs - new_log_probs)",)),
    Bug("ratio_of_itself", "ratio", ("exp(new_log_probs - new_log_probs)",), ("ratio",)),
    Bug("ratio_without_exp", "ratio", ("new_log_probs - old_log_probs",), ("ratio",)),
    Bug("ratio_of_log_probs", "ratio", ("new_log_probs / old_log_probs",)),
    Bug("ratio_detached", "ratio", ("exp(log_ratio).detach()", "exp(log_ratio.detach())",
        "exp(new_log_probs.detach() - old_log_probs)"), ("ratio",), gradient=True),
    Bug("loss_detached", "pg_max", ("pg_max.detach()",), ("pg_loss", "pg_max", "loss_mat"), gradient=True),
    Bug("clip_missing_min", "pg_loss", ("masked_mean(pg_clipped, response_mask)", "mean(pg_clipped)",
        "-masked_mean(surrogate_clipped, response_mask)", "-mean(surrogate_clipped)"), ("pg_loss", "loss_mat")),
    Bug("loss_detached", "pg_plain", ("pg_plain.detach()",), ("pg_plain",), gradient=True),
    Bug("clip_bounds", "clipped_ratio", ("clip(ratio, 1 - eps, eps)", "clip(ratio, -eps, eps)",
         "clip(ratio, eps, 1 + eps)",
        "clip(ratio, 1 + eps, 1 - eps)")),
    Bug("clip_bounds", "pg_clipped", ("-advantages * clip(ratio, 1 - eps, eps)", "-advantages * clip(ratio, -eps, eps)",
        "-advantages * clip(ratio, eps, 1 + eps)")),
    Bug("clip_bounds", "surrogate_clipped", ("advantages * clip(ratio, 1 - eps, eps)",
         "advantages * clip(ratio, -eps, eps)",
        "advantages * clip(ratio, eps, 1 + eps)")),
    Bug("dual_sign", "pg_dual", ("advantages * dual_clip",), ("pg_dual",)),
    Bug("dual_wrong_way", "dual_min", ("maximum(pg_dual, pg_max)",), ("dual_min", "policy_losses")),
    Bug("seq_ratio_of_sum", "seq_ratio", ("exp(masked_sum(log_ratio, response_mask, -1))",), ("seq_ratio",)),
    Bug("seq_ratio_of_sum", "seq_log_ratio", ("masked_sum(log_ratio, response_mask, -1)",), ("seq_log_ratio",)),
    Bug("weight_inverted", "rollout_weight", ("exp(rollout_log_probs - old_log_probs)",
        "minimum(exp(rollout_log_probs - old_log_probs), 2.0)",
        "minimum(exp(rollout_log_probs - old_log_probs), 3.0)")),
    Bug("cispo_detach_missing", "cispo", ("-clipped_ratio * advantages * new_log_probs",), gradient=True),
    Bug("kl_sign", "reward", ("scores + beta * kl", "scores + beta * kl_k3", "scores + beta * kl_k2")),
    Bug("kl_to_old", "reward", ("scores - beta * log_ratio",)),
    Bug("kl_sign", "kl_reward", ("beta * kl",), ("kl_reward",)),
    Bug("kl_sign_loss", "loss_with_kl", ("pg_max - beta * kl_k3",
        "pg_max - beta * (exp(ref_log_probs - new_log_probs) - (ref_log_probs - new_log_probs) - 1)")),
    Bug("k3_reversed", "kl_k3", ("exp(-ref_log_ratio) + ref_log_ratio - 1",
        "exp(new_log_probs - ref_log_probs) - (new_log_probs - ref_log_probs) - 1")),
    Bug("k3_sign", "kl_k3", ("exp(ref_log_ratio) + ref_log_ratio - 1", "ref_log_ratio - exp(ref_log_ratio) - 1",
        "exp(ref_log_probs - new_log_probs) + (ref_log_probs - new_log_probs) - 1",
        "exp(ref_log_ratio) - ref_log_ratio + 1", "exp(-ref_log_ratio) - ref_log_ratio - 1",
        "exp(new_log_probs - ref_log_probs) - (ref_log_probs - new_log_probs) - 1")),
    Bug("k2_half", "kl_k2", ("square(old_log_probs - ref_log_probs)", "square(new_log_probs - ref_log_probs)"), ("kl",
         "kl_k2")),
    Bug("returns_of_rewards", "returns", ("rewards + values",), ("returns",)),
    Bug("whitened_returns", "returns", ("whitened_advantages + values",)),
    Bug("returns_minus_values", "returns", ("advantages - values", "values - advantages"), ("returns",)),
    Bug("advantage_of_reward", "advantage_of_returns", ("rewards - values", "scores - values"), _ADV),
    Bug("advantage_sign", "advantage_of_returns", ("values - returns", "values - mc_returns"), _ADV),
    Bug("lam_missing", "gae_step", ("deltas + gamma * next_advantages",)),
    Bug("own_delta_twice", "gae_step", ("deltas + gamma * lam * deltas", "deltas + lam * deltas")),
    Bug("gamma_missing", "gae_step", ("deltas + lam * next_advantages",)),
    Bug("gamma_twice", "gae_step", ("deltas + gamma * gamma * lam * next_advantages",)),
    Bug("gamma_missing", "delta", ("rewards + next_values - values",)),
    Bug("delta_same_value", "delta", ("rewards + gamma * values - values",), ("deltas",)),
    Bug("delta_sign", "delta", ("rewards - gamma * next_values + values", "rewards + gamma * next_values + values",
        "rewards + values - gamma * next_values"), ("deltas",)),
    Bug("delta_not_value", "delta", ("rewards + gamma * next_values",), ("deltas",)),
    Bug("next_value_not_zero", "next_value", ("next_values_kept",)),
    Bug("next_value_not_zero", "delta", ("rewards + gamma * next_values_kept - values",
        "rewards + gamma * next_values_rolled - values")),
    Bug("next_value_not_zero", "next_value", ("next_values_rolled",)),
    Bug("value_before", "next_value", ("values_before",)),
    Bug("value_before", "delta", ("rewards + gamma * values_before - values",)),
    Bug("discount_forgotten", "discounted_return", ("rewards + next_returns",), ("next_returns", "mc_returns")),
    Bug("mean_over_padding", "pg_loss", ("mean(pg_max * response_mask)", "mean(policy_losses * response_mask)",
        "mean(loss_mat * response_mask)")),
    Bug("mean_over_padding", "vf_loss", ("0.5 * mean(vf_max * response_mask)", "mean(vf_max * response_mask)",
        "0.5 * mean(vf_plain * response_mask)")),
    Bug("mean_over_padding", "kl_mean", ("mean(kl * response_mask)", "mean(kl_k3 * response_mask)")),
    Bug("mean_over_padding", "entropy_mean", ("mean(entropies * response_mask)",)),
    Bug("value_clip_zero", "value_clip", ("clip(new_values, -eps_value, eps_value)",)),
    Bug("value_clip_returns", "value_clip", ("clip(new_values, returns - eps_value, returns + eps_value)",)),
    Bug("value_loss_min", "vf_max", ("minimum(vf_plain, vf_clipped)",)),
    Bug("value_loss_min", "vf_loss", ("0.5 * masked_mean(minimum(vf_plain, vf_clipped), response_mask)",
        "masked_mean(minimum(vf_plain, vf_clipped), response_mask)", "0.5 * mean(minimum(vf_plain, vf_clipped))",
        "mean(minimum(vf_plain, vf_clipped))"), word="min"),
    Bug("value_target", "vf_plain", ("square(new_values - rewards)", "square(new_values - advantages)",
        "square(new_values - values)", "square(new_values - whitened_advantages)")),
    Bug("value_target", "vf_loss", ("mean(square(new_values - advantages))", "mean(square(new_values - rewards))",
        "0.5 * mean(square(new_values - advantages))", "masked_mean(square(new_values - advantages), response_mask)")),
    Bug("divided_by_variance", "whiten", ("(advantages - advantages_mean) / (square(advantages_std) + tiny)",
        "(advantages - mean(advantages)) / (square(std(advantages)) + tiny)")),
    Bug("rloo_includes_itself", "rloo_baseline", ("sum(group_scores) / (group_size - 1)",), ("group_mean",
         "others_mean")),
    Bug("entropy_sign", "total_loss", ("pg_loss + entropy_coef * entropy_loss",
        "pg_loss + entropy_coef * entropy_loss + vf_coef * vf_loss")),
    Bug("entropy_sign", "entropy", ("sum(softmax(logits) * log_softmax(logits), -1)",), ("entropies",)),
    Bug("kl_step", "kl_multiplier", ("1 - kl_error * n_steps / horizon",)),
    Bug("mask_inverted", "pg_loss", ("masked_mean(pg_max, padding_mask)", "masked_mean(loss_mat, padding_mask)")),
    Bug("mask_inverted", "whiten", ("masked_whiten(advantages, padding_mask)",)),
)  # fmt: skip
"""By value; those that are seen from how a line is written are in `shapes`."""

SCAFFOLDING = {
    "carry_init", "list_init", "length", "loop_reversed", "loop", "append", "zeros", "mask_column", "fill_padding",
    "clamp_safety", "row_lengths", "temperature",
}  # fmt: skip
"""Kinds that any program has: alone they do not make it one of these algorithms."""

SHAPE_BUGS = {
    "slice_late": "slice_state", "slice_early": "slice_state", "slice_length": "slice_state",
    "loop_forward": "loop", "list_not_reversed": "stack_reversed", "kl_arguments": "kl_k1", "mean_unmasked": "pg_loss",
    "whiten_unmasked": "whiten", "old_not_detached": "detach", "std_without_epsilon": "group_norm",
    "ref_is_policy": "ref_log_probs", "clip_sides_swapped": "clipped_ratio", "step_each_micro": "optimizer_step",
    "old_each_minibatch": "detach", "reward_of_current": "reward", "returns_of_trained": "returns",
    "clip_of_product": "pg_loss", "clip_of_log_ratio": "clipped_ratio", "group_axis": "group_mean",
    "value_detached": "vf_loss",
}  # fmt: skip
"""Bugs that are seen from how lines are written, with the kind they are bugs of."""

BY_ID = {kind.id: kind for kind in KINDS}
ALL_IDS = (*BY_ID, *STRUCTURAL)
ALL_BUGS = tuple(dict.fromkeys((*(bug.id for bug in BUGS), *SHAPE_BUGS)))
