"""All topics of the tutor, a file per theme. A new topic is a Markdown file per language and one function here."""

from __future__ import annotations

from mingce.explain.topic import TOPICS

from mingce.explain.topics import critic, bootstrap, states, credit, baselines  # isort: skip
from mingce.explain.topics import overview, surrogate, kl, averages, tutor  # isort: skip
from mingce.explain.topics import practice, updates, decisions, methods, bounds, payment  # isort: skip

__all__ = ["TOPICS", "averages", "baselines", "bootstrap", "bounds", "credit", "critic", "decisions", "kl", "methods",
           "overview", "payment", "practice", "states", "surrogate", "tutor", "updates"]  # fmt: skip

TOPIC_OF = {
    "advantages": "a_not_delta", "deltas": "critic_td_error", "returns": "critic_fits_return", "values": "values_shape",
    "rewards": "reward_sparse_dense", "scores": "score_position", "kl": "kl_estimators", "ratio": "ratio_first_update",
    "policy_loss": "ppo_clip", "value_loss": "value_clipping", "whitened_advantages": "whitening", "entropy": "entropy",
    "clip_fraction": "clip_fraction", "explained_variance": "explained_variance", "weight": "gamma_lambda",
    "unrolled": "gamma_lambda", "horizon": "gamma_lambda", "approx_kl": "approx_kl",
}  # fmt: skip
"""What explains a quantity when its number is not enough."""
