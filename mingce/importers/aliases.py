"""The one table of other people's names for our columns, settings and logged scalars."""

from __future__ import annotations

from mingce.columns import ALIASES as COLUMN_ALIASES
from mingce.record.dump import ROW_COLUMNS, TOKEN_COLUMNS
from mingce.specs.settings import SETTING_TYPES

# columns.py speaks of our ledger; in a foreign dump these names mean something else:
#   advantages are what the loss multiplies (whitened or not), raw_advantages those before whitening, and prime-rl's
#   mismatch_kl and importance_ratio compare trainer and sampler, not policy and reference, not new and old
_OTHERWISE = {"raw_advantages": "raw_advantages", "mismatch_kl": None, "importance_ratio": "importance_weights"}

_MORE = {
    "responses": "token_ids", "response_ids": "token_ids", "completion_ids": "token_ids", "tokens": "token_ids",
    "input_ids": "token_ids", "action_ids": "token_ids",
    "mask": "response_mask", "completion_mask": "response_mask", "actions_mask": "response_mask",
    "action_masks": "response_mask", "loss_masks": "loss_mask", "info_mask": "loss_mask",
    "whitened_advantages": "advantages", "normalized_advantages": "advantages", "advantage": "advantages",
    "log_probs": "old_log_probs", "logprob": "old_log_probs", "old_logps": "old_log_probs",
    "old_per_token_logps": "old_log_probs", "ref_per_token_logps": "ref_log_probs",
    "sampling_per_token_logps": "rollout_log_probs", "behavior_logprobs": "rollout_log_probs",
    "ref_logprob": "ref_log_probs", "reference_log_probs": "ref_log_probs", "new_log_prob": "new_log_probs",
    "value": "values", "return": "returns", "target_values": "returns", "entropy_per_token": "entropy",
    "rollout_is_weights": "importance_weights", "importance_sampling_ratio": "importance_weights",
    "kl_penalty": "kl", "kls": "kl", "weight_version": "weight_versions",
}  # fmt: skip
TOKENS: dict[str, str] = {name: name for name in TOKEN_COLUMNS}
TOKENS |= {alias: name for alias, name in COLUMN_ALIASES.items() if name in TOKEN_COLUMNS}
TOKENS |= _MORE
for _name, _meant in _OTHERWISE.items():
    TOKENS.pop(_name, None)
    if _meant:
        TOKENS[_name] = _meant

ROWS: dict[str, str] = {name: name for name in ROW_COLUMNS} | {
    "index": "group", "group_id": "group", "group_index": "group", "prompt_index": "group", "group_ids": "group",
    "request_id": "uid", "sample_id": "uid", "queries": "prompt_ids", "prompts": "prompt_ids",
    "prompt_token_ids": "prompt_ids", "dp_rank": "rank", "ranks": "rank", "mini_batch": "minibatch",
    "micro_step": "micro_batch", "score": "outcome", "reward": "outcome", "raw_reward": "outcome",
    "reward_score": "outcome", "rewards": "outcome", "scores": "outcome", "stop_reason": "finish_reason",
    "final_values": "bootstrap_value", "version": "policy_version",
}  # fmt: skip

# what a trainer calls the parts that its reader looks for
OTHERS: dict[str, str] = {
    name: name
    for name in (
        "padding_mask", "padding_mask_p1", "sequences", "prompt_mask", "tool_mask", "sample_mask", "sample_loss_mask",
        "response_lengths", "response_length", "total_lengths", "input_lengths", "sample_indices", "rollout_data",
        "samples", "dp_shards", "batch", "batch_dict", "metadata", "columns", "rows", "non_tensor_batch", "meta_info",
        "settings", "scalars",
        "metrics", "data", "info", "is_masked", "mismatch_kl", "log_importance_ratio", "prob_delta", "content",
        "teacher_log_probs", "filtered_rewards", "num_items_in_batch", "schema_version", "truncated",
    )
}  # fmt: skip

# what only a ledger of ours or the audit itself says; `n` is elsewhere the size of a group, `truncation` the prompt's
_NOT_READ = ("n", "k", "truncation", "whiten", "first_minibatch", "score_after_last")
SETTINGS: dict[str, str] = {name: name for name in SETTING_TYPES if name not in _NOT_READ} | {
    "lambda": "lam", "lambd": "lam", "gae_lambda": "lam", "discount": "gamma", "kl_coef": "beta", "kl_coeff": "beta",
    "init_kl_coef": "beta", "kl_penalty": "kl_estimator", "kl_type": "kl_estimator", "adv_estimator": "estimator",
    "advantage_estimator": "estimator", "cliprange": "clip", "clip_ratio": "clip", "eps_clip": "clip", "eps": "clip",
    "clip_ratio_low": "clip_low", "clip_ratio_high": "clip_high", "eps_clip_low": "clip_low",
    "eps_clip_high": "clip_high", "cliprange_value": "value_clip", "num_ppo_epochs": "ppo_epochs", "n": "group_size",
    "num_generations": "group_size", "n_samples_per_prompt": "group_size", "eos_token_id": "eos_id",
    "pad_token_id": "pad_id", "bos_token_id": "bos_id", "stop_token_ids": "stop_ids",
    "response_length": "max_response_length", "max_new_tokens": "max_response_length", "global_steps": "step",
    "global_step": "step", "target_kl": "kl_target", "horizon": "kl_horizon", "entropy_coeff": "entropy_coef",
    "clip_ratio_c": "dual_clip", "loss_mode": "policy_loss", "epsilon": "clip", "epsilon_high": "clip_high",
    "max_completion_length": "max_response_length",
    "kl_loss_coeff": "kl_loss_coef", "num_iterations": "ppo_epochs", "use_kl_in_reward": "kl_in_reward",
    "norm_adv_by_std_in_grpo": "std_over", "scale_rewards": "std_over", "grpo_std_normalization": "std_over",
    "multi_objective_aggregation": "rewards_apart", "delta": "ratio_cap", "top_entropy_quantile": "entropy_share",
    "use_bias_correction_kl": "kl_loss_weighted", "mask_truncated_completions": "mask_truncated",
}  # fmt: skip

_STATISTICS = {
    f"{theirs}/{kind}": f"{ours}_{kind}"
    for theirs, ours in (
        ("critic/score", "scores"), ("critic/rewards", "rewards"), ("critic/advantages", "advantages"),
        ("critic/returns", "returns"), ("critic/values", "values"), ("response_length", "response_length"),
        ("prompt_length", "prompt_length"),
    )
    for kind in ("mean", "max", "min")
}  # fmt: skip
SCALARS: dict[str, str] = {
    name: name
    for name in (
        "pg_loss", "vf_loss", "kl_loss", "entropy_mean", "kl_mean", "pg_clipfrac", "vf_clipfrac", "approx_kl",
        "kl_coef", "pg_clipfrac_lower", "entropy_loss", "loss", "vf_explained_var", "response_length_cut", "ratio_mean",
        *_STATISTICS.values(),
    )
} | _STATISTICS | {
    "actor/pg_loss": "pg_loss", "critic/vf_loss": "vf_loss", "actor/kl_loss": "kl_loss",
    "actor/entropy": "entropy_mean",
    "critic/kl": "kl_mean", "actor/pg_clipfrac": "pg_clipfrac", "critic/vf_clipfrac": "vf_clipfrac",
    "actor/ppo_kl": "approx_kl", "critic/kl_coeff": "kl_coef", "critic/vf_explained_var": "vf_explained_var",
    "response_length/clip_ratio": "response_length_cut",
    "loss/policy_avg": "pg_loss", "loss/value_avg": "vf_loss", "policy/approxkl_avg": "approx_kl",
    "objective/kl": "kl_mean", "policy/clipfrac_avg": "pg_clipfrac", "val/clipfrac_avg": "vf_clipfrac",
    "objective/scores": "scores_mean", "val/ratio": "ratio_mean",
    # verl 0.9
    "actor/reward_kl_penalty": "kl_mean", "actor/reward_kl_penalty_coeff": "kl_coef", "actor/loss": "loss",
    "actor/pg_clipfrac_lower": "pg_clipfrac_lower", "actor/entropy_loss": "entropy_loss",
    # TRL's GRPO
    "kl": "kl_mean", "entropy": "entropy_mean", "clip_ratio/region_mean": "pg_clipfrac", "reward": "scores_mean",
    "completions/mean_length": "response_length_mean", "completions/max_length": "response_length_max",
    "completions/min_length": "response_length_min",
    # others
    "policy_loss": "pg_loss", "value_loss": "vf_loss", "critic_loss": "vf_loss", "clipfrac": "pg_clipfrac",
    "clip_frac": "pg_clipfrac", "ppo_kl": "approx_kl", "approxkl": "approx_kl",
    "explained_variance": "vf_explained_var",
}  # fmt: skip
