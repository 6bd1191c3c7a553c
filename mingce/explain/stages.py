"""The stages of a walk: which column each arrives at, from which ones, by which code, and why one may be missing."""

from __future__ import annotations

from collections.abc import Sequence

from mingce.columns import COLUMNS
from mingce.explain.code_refs import CodeRef, resolve
from mingce.explain.walk_texts import label
from mingce.record.rollout import Rollout
from mingce.specs import ESTIMATORS, POLICY_LOSSES, Estimator, PolicyLoss

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
_MEASURED = {"scores": "mingce.roles.reward.Reward.score", "values": "mingce.roles.critic.LocalCritic.values"}
_TWINS = {
    "kl": "mingce.specs.kl.kl_penalty",
    "rewards": "mingce.algorithms.reference.kl_rewards",
    "deltas": "mingce.specs.estimators.td0",
    "whitened_advantages": "mingce.algorithms.reference.masked_whiten",
    "ratio": "mingce.specs.losses.policy_ratio",
    "value_loss": "mingce.algorithms.reference.value_term",
}
_SETTINGS = {"kl": ("kl_estimator",), "rewards": ("beta",), "deltas": ("gamma",), "advantages": ("gamma", "lam"),
             "policy_loss": ("clip_low", "clip_high")}  # fmt: skip


def missing(name: str, rollout: Rollout, lang: str) -> str:
    """Why a stage has no numbers."""
    if name == "whitened_advantages" and "advantages" in rollout.columns:
        return label("not_whitened", lang)
    return label("no_columns", lang, names=_listed(_absent(name, rollout) or [name], lang))


def unknown(name: str, rollout: Rollout, lang: str) -> str:
    """Why a stage's numbers are not put into its formula."""
    if (code := _own_code(name, rollout)) is not None:
        return label("own_code", lang, code=code)
    absent = _absent(name, rollout)
    unsaid = [one for one in _SETTINGS.get(name, ()) if getattr(rollout.settings, one) is None]
    if absent:
        return label("given", lang, names=_listed(absent, lang))
    return label("no_settings", lang, names=_listed(unsaid, lang)) if unsaid else label("no_account", lang)


def _absent(name: str, rollout: Rollout) -> list[str]:
    """The columns it would be computed from that are not there."""
    inputs = COLUMNS[name].inputs if COLUMNS[name].is_computed else ()
    spec = ESTIMATORS.get(rollout.settings.estimator or "")
    if name in ("advantages", "returns") and spec is not None and spec.needs_critic:
        inputs = ("rewards", "values")
    return [one for one in inputs if one not in rollout.columns]


def _listed(names: Sequence[str], lang: str) -> str:
    return ("、" if lang == "zh" else ", ").join(names)


def _own_code(name: str, rollout: Rollout) -> str | None:
    """The estimator or policy loss of the person's own that made the column, if one did."""
    settings = rollout.settings.as_dict()
    if name in ("advantages", "returns"):
        estimator = settings.get("estimator")
        return estimator if estimator and not _built_in(ESTIMATORS.get(estimator)) else None
    loss = settings.get("policy_loss") if name == "policy_loss" else None
    return loss if loss and not _built_in(POLICY_LOSSES.get(loss)) else None


def _built_in(spec: Estimator | PolicyLoss | None) -> bool:
    return spec is not None and spec.tensor_function is None


def code_of(name: str, rollout: Rollout) -> tuple[CodeRef, ...]:
    """The function that training computes the column with, and its float64 twin."""
    if name in _MEASURED:
        return (resolve(_MEASURED[name]),)
    fast, twin = COLUMNS[name].source.replace(":", "."), _TWINS.get(name)
    if _own_code(name, rollout) is not None:
        return ()
    estimator = rollout.settings.estimator
    if name in ("advantages", "returns") and estimator:
        return resolve(f"mingce.algorithms.advantage.{estimator}"), resolve(f"mingce.specs.estimators.{estimator}")
    if name == "policy_loss":
        loss = rollout.settings.policy_loss or "ppo"
        return resolve(f"mingce.algorithms.losses.{loss}"), resolve(f"mingce.specs.losses.{loss}")
    names = (fast, twin) if twin else (fast,)
    return tuple(resolve(one) for one in names)
