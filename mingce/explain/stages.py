"""The stages of a walk: which column each arrives at, from which ones, by which code, and why one may be missing."""

from __future__ import annotations

from collections.abc import Sequence

from mingce.columns import COLUMNS
from mingce.explain.code_refs import CodeRef, resolve
from mingce.explain.example import Rollout
from mingce.explain.walk_texts import label

STAGES = {  # the column a stage arrives at: its section of the account, and the columns shown with it
    "scores": ("scores", ()),
    "kl": ("kl", ("old_log_probs", "ref_log_probs")),
    "rewards": ("reward", ("scores", "kl")),
    "values": ("values", ()),
    "deltas": ("delta", ("rewards", "values")),
    "advantages": ("advantage", ("deltas",)),
    "returns": ("return", ("advantages", "values")),
    "whitened_advantages": ("whitening", ("advantages",)),
    "ratio": ("ratio", ("new_log_probs", "old_log_probs")),
    "policy_loss": ("policy", ("ratio", "whitened_advantages")),
    "value_loss": ("value_loss", ("new_values", "values", "returns")),
}
_MEASURED = {"scores": "mingce.roles.reward.Reward.score", "values": "mingce.roles.critic.Critic.values"}
_TWINS = {
    "kl": "kl_penalty",
    "rewards": "kl_rewards",
    "deltas": "td0",
    "whitened_advantages": "masked_whiten",
    "ratio": "policy_term",
    "policy_loss": "policy_term",
    "value_loss": "value_term",
}
_CRITIC = ("gae", "monte_carlo", "td0", "n_step")
_SETTINGS = {"kl": ("kl_estimator",), "rewards": ("beta",), "deltas": ("gamma",), "advantages": ("gamma", "lam"),
             "policy_loss": ("clip_low", "clip_high")}  # fmt: skip


def missing(name: str, rollout: Rollout, lang: str) -> str:
    """Why a stage has no numbers."""
    if name == "whitened_advantages" and "advantages" in rollout["columns"]:
        return label("not_whitened", lang)
    return label("no_columns", lang, names=_listed(_absent(name, rollout) or [name], lang))


def unknown(name: str, rollout: Rollout, lang: str) -> str:
    """Why a stage's numbers are not put into its formula."""
    absent = _absent(name, rollout)
    unsaid = [one for one in _SETTINGS.get(name, ()) if rollout["settings"].get(one) is None]
    if absent:
        return label("given", lang, names=_listed(absent, lang))
    return label("no_settings", lang, names=_listed(unsaid, lang)) if unsaid else label("no_account", lang)


def _absent(name: str, rollout: Rollout) -> list[str]:
    """The columns it would be computed from that are not there."""
    inputs = COLUMNS[name].inputs if COLUMNS[name].is_computed else ()
    if name in ("advantages", "returns") and rollout["settings"].get("estimator") in _CRITIC:
        inputs = ("rewards", "values")
    return [one for one in inputs if one not in rollout["columns"]]


def _listed(names: Sequence[str], lang: str) -> str:
    return ("、" if lang == "zh" else ", ").join(names)


def code_of(name: str, rollout: Rollout) -> tuple[CodeRef, ...]:
    """The function that training computes the column with, and its float64 twin."""
    if name in _MEASURED:
        return (resolve(_MEASURED[name]),)
    fast, twin = COLUMNS[name].source.replace(":", "."), _TWINS.get(name)
    estimator = rollout["settings"].get("estimator")
    if name in ("advantages", "returns") and estimator:
        fast, twin = f"mingce.algorithms.advantage.{estimator}", estimator
    if name == "policy_loss" and rollout["settings"].get("policy_loss") == "cpi":
        fast, twin = "mingce.algorithms.losses.compute_cpi_loss", "cpi_term"
    names = (fast, f"mingce.algorithms.reference.{twin}") if twin else (fast,)
    return tuple(resolve(one) for one in names)
