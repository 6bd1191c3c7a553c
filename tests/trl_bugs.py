"""Bugs to plant into TRL 1.16's own source: (what, old text, new text, settings, the finding that names it)."""

from __future__ import annotations

from typing import Any, NamedTuple


class Bug(NamedTuple):
    """One planted bug; `file` is below trl/trainer."""

    name: str
    old: str
    new: str
    settings: dict[str, Any]
    finding: str
    file: str = "grpo_trainer.py"


_MEAN = (
    "mean_grouped_rewards = torch.nanmean(rewards.view(-1, num_generations), dim=1)\n"
    "            mean_grouped_rewards = mean_grouped_rewards.repeat_interleave(num_generations, dim=0)"
)
_SUM = "            loss = (per_token_loss * mask).sum() / normalizer\n            policy_loss"
_MASKED = "        # If mask_truncated_completions is enabled"
BUGS = (
    Bug("baseline of the whole batch", _MEAN, "mean_grouped_rewards = torch.nanmean(rewards).expand_as(rewards)", {},
        "group-unexplained"),
    Bug("advantages times the deviation", "advantages = advantages / (std_rewards + 1e-4)\n            is_std_zero",
        "advantages = advantages * (std_rewards + 1e-4)\n            is_std_zero", {}, "group-by-another-outcome"),
    Bug("sign of the advantages", "advantages = rewards - mean_grouped_rewards",
        "advantages = mean_grouped_rewards - rewards", {}, "advantage-sign"),
    Bug("advantages of the row before", "        advantages = advantages[process_slice]\n",
        "        advantages = advantages[process_slice].roll(1)\n", {}, "rows-desynchronised"),
    Bug("advantages are not shuffled along", "generation_batch = shuffle_sequence_dict(generation_batch)",
        "generation_batch = shuffle_sequence_dict({k: v for k, v in generation_batch.items() if k != 'advantages'})"
        " | {'advantages': generation_batch['advantages']}", {}, "credit-of-another-row"),
    Bug("sign of the KL", "per_token_loss = per_token_loss + self.beta * per_token_kl",
        "per_token_loss = per_token_loss - self.beta * per_token_kl", {"beta": 0.2}, "kl-loss-sign"),
    Bug("KL from the reference's side", "torch.exp(ref_per_token_logps - per_token_logps) - (ref_per_token_logps - "
        "per_token_logps) - 1", "torch.exp(per_token_logps - ref_per_token_logps) - (per_token_logps - "
        "ref_per_token_logps) - 1", {"beta": 0.2}, "kl-loss-sign"),
    Bug("no KL in the loss", "per_token_loss = per_token_loss + self.beta * per_token_kl", "per_token_kl.detach_()",
        {"beta": 0.2}, "kl-loss-absent"),
    Bug("inverse ratio", "log_ratio = per_token_logps - old_per_token_logps",
        "log_ratio = old_per_token_logps - per_token_logps", {"num_iterations": 2, "beta": 0.0}, "loss-other-terms"),
    Bug("larger of the two terms", "per_token_loss = -torch.min(per_token_loss1, per_token_loss2)",
        "per_token_loss = -torch.max(per_token_loss1, per_token_loss2)",
        {"num_iterations": 2, "learning_rate": 1e-3, "beta": 0.0}, "loss-other-terms"),
    Bug("inverse ratio, beside a KL", "log_ratio = per_token_logps - old_per_token_logps",
        "log_ratio = old_per_token_logps - per_token_logps",
        {"num_iterations": 2, "learning_rate": 3e-4, "beta": 0.04}, "loss-other-terms"),
    Bug("larger of the two terms, beside a KL", "per_token_loss = -torch.min(per_token_loss1, per_token_loss2)",
        "per_token_loss = -torch.max(per_token_loss1, per_token_loss2)",
        {"num_iterations": 2, "learning_rate": 3e-4, "beta": 0.2}, "loss-other-terms"),
    Bug("length bias", _SUM, _SUM.replace("(per_token_loss * mask).sum() / normalizer",
        "((per_token_loss * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()"), {"ends": 4.0}, "loss-other-mode"),
    Bug("padding is chosen", _MASKED, "        completion_mask = torch.ones_like(completion_mask)\n" + _MASKED,
        {"ends": 4.0}, "padding-in-response"),
    Bug("old log-probs of the token before", 'output["old_per_token_logps"] = old_per_token_logps',
        'output["old_per_token_logps"] = old_per_token_logps.roll(1, 1)', {"num_iterations": 2}, "first-ratio"),
    Bug("old log-probs at another temperature", 'output["old_per_token_logps"] = old_per_token_logps',
        'output["old_per_token_logps"] = old_per_token_logps / 1.3', {"num_iterations": 2}, "first-ratio"),
    Bug("the policy is its own reference", "                        self.ref_model,\n", "                        "
        "self.model,\n", {}, "reference-is-policy-here"),
    Bug("reference log-probs of the token before", 'output["ref_per_token_logps"] = ref_per_token_logps',
        'output["ref_per_token_logps"] = ref_per_token_logps.roll(1, 1)', {}, "reference-out-of-line"),
    Bug("sign of the logged entropy", '["entropy"].append(global_masked_mean(entropies))',
        '["entropy"].append(-global_masked_mean(entropies))', {}, "metric-sign"),
    Bug("deviation of the whole batch", "std_rewards = nanstd(rewards.view(-1, num_generations), dim=1)\n",
        "std_rewards = nanstd(rewards).expand(rewards.numel() // num_generations)\n", {}, "estimator-differs"),
    Bug("no division by the deviation", 'if self.scale_rewards != "none":', "if False:", {}, "estimator-differs"),
    Bug("no clip", "torch.clamp(coef_1, 1 - self.epsilon_low, 1 + self.epsilon_high)", "coef_1",
        {"num_iterations": 2, "learning_rate": 3e-3, "beta": 0.0, "epsilon": 0.02}, "loss-other-terms"),
    Bug("importance weights left out", 'per_token_loss = per_token_loss * inputs["importance_sampling_ratio"]', "pass",
        {"sampler": "vllm", "max_completion_length": 8, "vllm_importance_sampling_mode": "token_truncate", "beta": 0.0},
        "loss-other-terms"),
    Bug("tokens of low entropy instead of high", "per_token_loss = per_token_loss * entropy_mask",
        "per_token_loss = per_token_loss * ~entropy_mask", {"top_entropy_quantile": 0.3, "beta": 0.0},
        "loss-other-terms"),
    Bug("sign of the entropy bonus", "loss = loss - apply_coef * entropy_loss",
        "loss = loss + apply_coef * entropy_loss", {"entropy_coef": 0.05, "beta": 0.0}, "loss-no-fit"),
    Bug("CISPO without its bound", "torch.clamp(coef_1, max=self.epsilon_high).detach()", "coef_1.detach()",
        {"num_iterations": 2, "learning_rate": 1e-3, "beta": 0.0, "loss_type": "cispo", "epsilon_high": 1.01},
        "loss-no-fit"),
    Bug("a sequence's ratio is summed", "(log_ratio * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)\n            log_imp",
        "(log_ratio * mask).sum(-1)\n            log_imp", {"num_iterations": 2, "learning_rate": 1e-3, "beta": 0.0,
        "importance_sampling_level": "sequence"}, "loss-no-fit"),
    Bug("cut rows stay in the loss", "completion_mask = completion_mask * (~is_truncated).unsqueeze(1).int()", "pass",
        {"mask_truncated_completions": True, "ends": 3.0}, "truncated-row-chosen"),
    Bug("RLOO divides by all", "(grouped_sum - grouped_rewards) / (scorable_counts - 1)",
        "(grouped_sum - grouped_rewards) / scorable_counts", {"kind": "rloo"}, "group-unexplained", "rloo_trainer.py"),
)  # fmt: skip
