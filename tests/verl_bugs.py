"""Bugs to plant into verl 0.9.1's own functions: (what, the function, old text, new text, estimator, the findings)."""

from __future__ import annotations

from typing import NamedTuple


class Bug(NamedTuple):
    """One planted bug; any of `findings` names it."""

    name: str
    function: str  # of core_algos, ray_trainer or metric_utils, or a method of the V1 trainer
    old: str
    new: str
    findings: tuple[str, ...]
    estimator: str = "gae"


_GAE, _GRPO = "core_algos.compute_gae_advantage_return", "core_algos.compute_grpo_outcome_advantage"
_KL, _DATA = "ray_trainer.apply_kl_penalty", "metric_utils.compute_data_metrics"
BUGS = (
    Bug("sign of the KL", _KL, "token_level_scores - beta * kld", "token_level_scores + beta * kld", ("kl-sign",)),
    Bug("KL of the reference from the policy", _KL, 'data.batch["old_log_probs"], data.batch["ref_log_prob"], kl_pen',
        'data.batch["ref_log_prob"], data.batch["old_log_probs"], kl_pen', ("kl-sign",)),
    Bug("no KL", _KL, "token_level_scores - beta * kld", "token_level_scores.clone()", ("kl-absent",)),
    Bug("KL at tokens of a tool", _KL, "kld = kld * response_mask", "kld = kld * 1",
        ("kl-on-pads", "kl-on-tool-tokens")),
    Bug("scores a token early", _KL, 'token_level_scores = data.batch["token_level_scores"]',
        'token_level_scores = data.batch["token_level_scores"].roll(-1, 1)', ("score-index",)),
    Bug("no lambda", _GAE, "gamma * lam * lastgaelam", "gamma * lastgaelam", ("gamma-lambda-differ",)),
    Bug("no gamma", _GAE, "gamma * nextvalues", "nextvalues", ("gamma-lambda-differ",)),
    Bug("truncated rows go on with their last value", _GAE, "nextvalues = 0\n", "nextvalues = values[:, -1]\n",
        ("last-step-unexplained", "finished-rows-bootstrapped")),
    Bug("values of a tool's tokens", _GAE,
        "values[:, t] * response_mask[:, t] + (1 - response_mask[:, t]) * nextvalues", "values[:, t]",
        ("recursion-through-tool-tokens",)),
    Bug("returns of whitened advantages", _GAE, "advantages = verl_F.masked_whiten(advantages, response_mask)",
        "advantages = verl_F.masked_whiten(advantages, response_mask)\n        returns = advantages + values",
        ("returns-broken",)),
    Bug("whitened over padding", _GAE, "masked_whiten(advantages, response_mask)",
        "masked_whiten(advantages, torch.ones_like(response_mask))", ("whitened-over-other-tokens",)),
    Bug("groups shifted by a row", _GRPO, "scores = token_level_rewards.sum(dim=-1)",
        "scores = token_level_rewards.sum(dim=-1)\n    index = np.roll(index, 1)", ("group-unexplained",), "grpo"),
    Bug("every row its own group", _GRPO, "scores = token_level_rewards.sum(dim=-1)",
        "scores = token_level_rewards.sum(dim=-1)\n    index = np.arange(len(index))", ("groups-misformed",), "grpo"),
    Bug("length bias", _GRPO, "scores = token_level_rewards.sum(dim=-1)",
        "scores = token_level_rewards.sum(dim=-1) / response_mask.sum(-1)", ("group-of-other-outcome",), "grpo"),
    Bug("advantages of the row before", _GRPO, "return scores, scores", "return scores.roll(1, 0), scores",
        ("rows-exchanged", "rows-desynchronised"), "grpo"),
    Bug("sign of the advantages", _GRPO, "(scores[i] - id2mean[index[i]])", "(id2mean[index[i]] - scores[i])",
        ("advantage-sign",), "grpo"),
    Bug("mean advantage over padding", _DATA, "valid_adv = torch.masked_select(advantages, response_mask)",
        "valid_adv = advantages.flatten()", ("metric-over-pads", "metric-unexplained")),
)  # fmt: skip
