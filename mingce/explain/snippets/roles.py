"""What a variable of pasted code stands for, by its name: `mb_logprobs`, `old_per_token_logps`, `lp_old` are one.

A name may stand for several (`logprobs` is the old policy's in one trainer, the new one's in another): all are given,
the likeliest first, and the matcher takes those under which the line makes sense.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from functools import lru_cache

_PREFIX = re.compile(r"^(?:mb_|b_|batch_|minibatch_|micro_|cur_mb_|exp_|all_|token_level_|token_|full_)+")
_LOGP = r"(?:log_?p(?:i|s|rob|robs)?|log_probs?|logprobs?|logps|lp|lps|log_pi)"
_RULES: tuple[tuple[str, tuple[str, ...]], ...] = (
    # ── log-probs and what is made of them
    (rf"(?=.*(?:ref|base|sft|init)).*{_LOGP}.*(?<!ratio)", ("ref_log_probs",)),
    (rf"(?=.*(?:rollout|sampling|vllm|sglang|inference|generation|behaviou?r)).*{_LOGP}.*", ("rollout_log_probs",)),
    (r"(?:neg(?:ative)?_)?approx_kl_seq|neg(?:ative)?_approx_kl_seq|seq_log_ratio|seq_logratio", ("seq_log_ratio",)),
    (r"log_seq_importance_ratio|log_seq_ratio", ("seq_log_ratio", "token_seq_log_ratio")),
    (
        r"neg(?:ative)?_approx_kl|.*log_?ratio|log_?ratios|logprobs?_diff|"
        r"log_importance_weights?|diff|logprobs?_delta|log_r",
        ("log_ratio", "seq_log_ratio", "kl", "ref_log_ratio"),
    ),
    (rf"(?=.*(?:old|prev|fixed)).*{_LOGP}.*", ("old_log_probs",)),
    (rf"(?=.*(?:new|curr?|theta|policy|actor|_pi$)).*{_LOGP}.*", ("new_log_probs",)),
    (
        rf"(?:per_)?(?:action_|selected_|completion_)?{_LOGP}(?:_a|_t|_labels)?",
        ("new_log_probs", "old_log_probs", "log_softmax"),
    ),
    (r"logr|ref_logratio", ("ref_log_ratio",)),
    (
        r"(?:vllm_)?is_?weights?|vllm_is|tis|importance_sampling_ratio|"
        r"imp_ratio|rollout_is_weights",
        ("rollout_weight",),
    ),
    (r"seq_(?:importance_)?ratio|s_i|seq_is", ("seq_ratio",)),
    (
        r"clip(?:ped)?_?ratio(?:_sg)?|ratio_clip(?:ped)?|coef_?2|clamped_ratios?|"
        r"clipped|ratios?_?2",
        ("clipped_ratio", "clipped_ratio_detached"),
    ),
    (
        r"ratios?_?1?|importance_ratios?|importance_weights?|is_ratio|coef_?1|"
        r"rho(?:_t)?|prob_ratio|iw|imp_weights?|r_t_theta",
        ("ratio", "ref_ratio", "seq_ratio", "clipped_ratio"),
    ),
    # ── the policy's losses
    (r"clip_pg_losses?1|pg_loss(?:es)?_max|max_pg_loss|clipped_pg_loss(?:es)?", ("pg_max",)),
    (r"clip_pg_losses?2", ("dual_min",)),
    (r"pg_loss(?:es)?_?3|loss_?3", ("pg_dual",)),
    (
        r"pg_loss(?:es)?_?2|policy_loss_?2|unclipped_?2|loss_?2|actor_loss_?2|"
        r"clipped_loss|pg_loss_clipped",
        ("pg_clipped", "surrogate_clipped", "vf_clipped"),
    ),
    (
        r"pg_loss(?:es)?_?1|policy_loss_?1|loss_?1|actor_loss_?1|pg_loss_unclipped|"
        r"unclipped_loss",
        ("pg_plain", "surrogate", "vf_plain"),
    ),
    (r"pg_losses", ("pg_max", "pg_plain", "policy_losses", "pg_loss")),
    (r"pg_clip_?frac.*|clip_?frac(?:tion)?s?|clip_ratio", ("pg_clipfrac",)),
    (
        r"surr(?:ogate)?s?_?1|surr_?obj_?1|per_token_loss_?1|unclipped(?:_obj(?:ective)?)?|"
        r"obj_?1",
        ("surrogate", "vf_clipped", "vf_plain"),
    ),
    (
        r"surr(?:ogate)?s?_?2|surr_?obj_?2|per_token_loss_?2|clipped_obj(?:ective)?|"
        r"obj_?2",
        ("surrogate_clipped", "vf_plain", "vf_clipped"),
    ),
    (r"clip_?1|surr|surrogate|objective|obj|l_?clip|actor_objective", ("surrogate_min", "surrogate")),
    (r"clip_?2", ("dual_max",)),
    (r"pg_loss|policy_loss|actor_loss|loss_pi|policy_gradient_loss|ppo_loss", ("pg_loss", "pg_max", "policy_losses")),
    (
        r"per_token_loss|loss_mat(?:rix)?|losses|token_losses?|policy_losses|"
        r"loss|l|actor_losses",
        ("loss_mat", "pg_loss", "pg_max", "vf_max", "policy_losses", "vf_loss"),
    ),
    (r"seq_losses|seq_loss|sequence_losses", ("seq_losses",)),
    # ── the critic
    (
        r"v(?:alue|f)?_?pred_?clipped|values?_clipped|vpredclipped|clipped_values?|"
        r"v_clip(?:ped)?|vpred_clipped|vpreds_clipped",
        ("value_clip",),
    ),
    (
        r"v(?:pred|preds|alue_preds?|alues_pred|_new|_pred)(?:s)?(?:_temp|"
        r"icted)?|new_?values?|vf_?preds?|state_values_new|curr?_values?",
        ("new_values",),
    ),
    (r"(?:v|vf|value)_loss(?:es)?_?1|vf_?losses_unclipped|v_loss_unclipped", ("vf_plain",)),
    (r"(?:v|vf|value)_loss(?:es)?_?2|v_loss_clipped", ("vf_clipped",)),
    (r"(?:clipped_)?(?:v|vf|value)_loss(?:es)?_?max|clipped_vf_losses|vf_loss_max|v_loss_max", ("vf_max",)),
    (r"vf_clip_?frac", ("vf_clipfrac",)),
    (r"(?:v|vf|value|critic)_loss(?:es)?|loss_v", ("vf_loss", "vf_max", "vf_plain")),
    (
        r"nv|next_?v(?:alues?|als?)?|v_?next|v_?tp1|nextvalue|value_next|bootstrap(?:_value)?|"
        r"v_t1|next_val|v_prime",
        ("next_values",),
    ),
    (r"last_?values?|final_value", ("zero", "next_values")),
    (r"old_?v(?:alues?|als?)?|values_old|prev_values|v_old", ("values",)),
    (r"value", ("values", "new_values", "beta")),
    (
        r"v(?:alues?|als?|s|_t)?|state_values?|critic_values|baseline_values",
        ("values", "new_values", "values_extended"),
    ),
    # ── credit
    (r"td(?:_?errors?|_?delta|_res(?:idual)?)?s?|deltas?(?:_t)?|d|d_t|residuals?", ("deltas",)),
    (r"last_?gae_?lam_+|lastgaelam_", ("advantages",)),
    (
        r"last_?gae(?:_?lam)?|gae(?:_?lam)?|running_adv(?:antage)?|next_?adv(?:antages?)?|"
        r"adv_?acc|acc|accum|gae_t|a_?next|lastgae|last|adv_next|running|carry|"
        r"prev_adv(?:antage)?",
        ("next_advantages", "next_returns", "advantages"),
    ),
    (r".*adv(?:antage|antages|s)?_?(?:reversed|rev|list)|advs_rev|gaes_reversed", ("advantages",)),
    (r"(?:norm(?:alized|ed)?|white(?:ned)?)_?adv(?:antage|antages|s)?|adv_norm|a_hat_norm", ("whitened_advantages",)),
    (
        r".*adv(?:antage|antages|s)?(?:_t)?|a|a_t|gaes|a_hat",
        ("advantages", "whitened_advantages", "group_advantages", "next_advantages"),
    ),
    (
        r"running_return|cumulative_?returns?|discounted_return|ret_?acc|"
        r"g_next|running_add|future_return|running_sum|discounted_sum|g|"
        r"rtg",
        ("next_returns", "mc_returns", "gamma", "group_size"),
    ),
    (r"target", ("target_kl", "returns")),
    (
        r"returns?|rets?|(?:value_)?targets?|td_?lambda_?returns?|g_t|lambda_returns?|"
        r"return_t|mb_return",
        ("returns", "mc_returns", "reward_to_go"),
    ),
    # ── rewards and KL
    (
        r"(?:token_level_)?scores?_tensor|group_scores|seq_rewards?|rewards_per_(?:prompt|"
        r"sample)|grouped_rewards|outcome_rewards?",
        ("group_scores",),
    ),
    (r"kl_(?:pen|penalty|cost|term)", ("kl_cost", "kl", "kl_k3")),
    (r"non_score_rewards?|kl_rewards?|kl_penalties", ("kl_reward",)),
    (r"reward_baselines?|greedy_rewards?|baseline_rewards?", ("greedy_score",)),
    (
        r"r_?hat|rewards?|rews?|r|r_t|token_rewards|reward_t|shaped_rewards?",
        ("rewards", "group_scores", "scores", "rewards_extended", "ratio"),
    ),
    (
        r"(?:rm_|task_|reward_)?scores?|last_rewards?|score_tensor|reward_tensor|"
        r"rm_rewards",
        ("scores", "group_scores"),
    ),
    (r"current_kl|mean_kl|observed_kl|kl_current|current", ("current_kl",)),
    (r"target_?kl|kl_target|target", ("target_kl", "returns")),
    (r"proportional_error|kl_error|error|err", ("kl_error",)),
    (r"mult|multiplier", ("kl_multiplier",)),
    (r"n_?steps|num_steps", ("n_steps",)),
    (r"horizon", ("horizon",)),
    (r"ppo_kl|approx_?kl|approxkl", ("ppo_kl",)),
    (
        r"(?:per_token_)?kl(?:d|s|_div|_t|_penalty|_loss|_est|_estimate)?|"
        r"kld",
        ("kl", "kl_k3", "kl_k2", "log_ratio", "ref_log_ratio"),
    ),
    # ── masks, logits
    (
        r"(?:response|resp|eos|loss|action|completion|valid|token|answer|"
        r"attention)?_?masks?|m|masks",
        ("response_mask",),
    ),
    (r"pad(?:ding)?_mask(?:_p1)?|is_pad", ("padding_mask",)),
    (r"seq_mask", ("row_mask", "group_lengths")),
    (r"(?:response_|shift_|policy_)?logits(?:_rmpad)?", ("logits",)),
    (r"ids|labels?|responses?|input_ids|actions?|tokens?|response_ids|completion_ids|target_ids", ("token_ids",)),
    (r"pd|probs?|prob_dist|p|pi|dist_probs", ("probs",)),
    (r"entrop(?:y|ies|ys)|token_entropy|ent|h", ("entropies", "entropy_loss")),
    (r"entropy_loss|mean_entropy|entropy_bonus|ent_loss", ("entropy_loss",)),
    # ── groups of samples
    (
        r"id2mean|group_means?|mean_grouped_rewards|mean_rewards?|baselines?|"
        r"mean_r|mu|means?|r_mean|reward_mean",
        ("group_mean", "advantages_mean", "others_mean", "group_baseline", "values_mean"),
    ),
    (
        r"id2std|group_stds?|std_(?:grouped_)?rewards|stds?|sigma|r_std|"
        r"reward_std|std_r",
        ("group_std", "advantages_std"),
    ),
    (r"id2bsl", ("group_baseline",)),
    (r"id2scores?", ("group_scores",)),
    (r"id2lens?", ("group_lengths",)),
    (r"var|variance", ("values_var",)),
    (
        r"response_num|num_generations|n_samples(?:_per_prompt)?|group_size|"
        r"n|k|num_samples|rloo_k",
        ("group_size", "length"),
    ),
    (
        r"len_tensor|response_lengths|lengths|seq_lengths?|token_counts|"
        r"mask_sum|num_actions_per_seq",
        ("group_lengths", "token_count"),
    ),
    # ── settings
    (r"gamma|discount(?:_factor)?|disc|γ|gam", ("gamma",)),
    (r"lam(?:bda)?(?:_?gae)?_?|lambd|gae_lambda|lmbda|tau|gae_lam|λ|lamda", ("lam",)),
    (r"beta|kl_?coeff?|kl_ratio|β|kl_beta|kl_weight|init_kl_coef|kl_loss_coef|alpha|value", ("beta", "values")),
    (
        r"(?:clip_?range|clip|eps|clip_?ratio|clip_?eps|epsilon|clip_param|"
        r"clip_coef)_(?:low|lower)|eps_low|epsilon_low|clip_eps_low",
        ("eps_low",),
    ),
    (
        r"(?:clip_?range|clip|eps|clip_?ratio|clip_?eps|epsilon|clip_param|"
        r"clip_coef)_(?:high|upper)|eps_high|epsilon_high|clip_eps_high",
        ("eps_high",),
    ),
    (
        r"(?:clip_?range|clip|eps|clip_?eps)_?v(?:alue|f)?|cliprange_value|"
        r"value_clip|vf_clip(?:_param)?|eps_v",
        ("eps_value",),
    ),
    (r"clip_ratio_c|dual_clip|clip_c", ("dual_clip",)),
    (r"c", ("dual_clip", "eps_value")),
    (r"clip_?range|clip_?param|clip_?eps(?:ilon)?|clip_?coef|ppo_clip|clip_ratio|ε", ("eps", "eps_value")),
    (r"eps|epsilon", ("eps", "tiny", "eps_value")),
    (r"(?:global_)?batch_size|bsz|bs|num_seqs?|num_sequences", ("group_size",)),
    (r"batch_num_tokens|num_tokens|num_actions_total|token_count", ("token_count",)),
    (r"dp_size|world_size", ("one",)),
    (r"vf_coef|value_coef|c1|vf_coeff|value_loss_coef", ("vf_coef",)),
    (r"ent(?:ropy)?_coeff?|c2|entropy_weight|apply_coef", ("entropy_coef",)),
    (
        r"gen_len(?:gth)?|horizon_len|response_length|num_steps|seq_len|max_len|response_len|"
        r"num_actions|n_actions|length|t_max|max_t|max_(?:completion|response)_length|"
        r"loss_scale_factor",
        ("length",),
    ),
    (r"dones?|terminated|terminals?|is_done", ("done",)),
    (r"(?:next)?_?non_?terminal|next_non_terminal|not_done", ("not_done",)),
)
_COMPILED = tuple((re.compile(pattern), found) for pattern, found in _RULES)
INDICES = {"t", "i", "j", "k", "step", "idx", "s", "tt", "index"}
"""Names that an index may have where no loop is in sight."""
GROUP_ROLES = {
    "group_scores", "group_mean", "group_std", "group_size", "group_lengths", "group_baseline", "greedy_score",
    "group_advantages", "others_mean",
}  # fmt: skip
"""One number a sample: `scores[i]`, `id2mean[index[i]]` stand for all of them."""


@lru_cache(maxsize=4096)
def candidates(name: str) -> tuple[str, ...]:
    """What the name may stand for, the likeliest first; nothing if it says nothing."""
    plain = name[:80].lower() if name not in ("T", "B", "A", "R", "V", "G", "L") else name.lower()
    if name == "T":
        return ("length",)
    for text in dict.fromkeys((plain, plain.rstrip("_"), _PREFIX.sub("", plain), _PREFIX.sub("", plain).rstrip("_"))):
        if text == "lastgaelam_":
            return ("advantages",)
        for pattern, found in _COMPILED:
            if pattern.fullmatch(text):
                return found
    return ()


def cheapest(options: list[list[tuple[int, str]]]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """One of each list, the cheapest choice first; each list has its cheapest first."""
    if not all(options):
        return
    start = (0,) * len(options)
    heap, seen = [(sum(one[0][0] for one in options), start)], {start}
    while heap:
        cost, places = heapq.heappop(heap)
        yield cost, tuple(one[k][1] for one, k in zip(options, places, strict=True))
        for at, k in enumerate(places):
            following = (*places[:at], k + 1, *places[at + 1 :])
            if k + 1 < len(options[at]) and following not in seen:
                seen.add(following)
                heapq.heappush(heap, (cost + options[at][k + 1][0] - options[at][k][0], following))
