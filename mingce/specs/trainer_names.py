"""What verl, OpenRLHF, SkyRL and slime call the estimators that have a name here."""

from __future__ import annotations

OPENRLHF = {"gae": "gae", "group_norm": "grpo", "dr_grpo": "dr_grpo", "rloo": "rloo"}
SLIME = {"ppo": "gae", "grpo": "grpo"}
SKYRL = {"gae": "gae", "grpo": "grpo", "rloo": "rloo"}
_DIVIDED = ("grpo", "grpo_vectorized")


def unless_divided(name: str | None, by_std: object) -> str | None:
    """The estimator's name, by whether its setting lets it divide by the group's deviation."""
    return "dr_grpo" if name in _DIVIDED and by_std is False else name


def divided_by(name: object, by_std: object) -> str | None:
    """Whose deviation such an estimator's advantages are divided by, from the setting that says whether they are."""
    return {True: "group", False: "none"}[by_std] if name in _DIVIDED and isinstance(by_std, bool) else None
