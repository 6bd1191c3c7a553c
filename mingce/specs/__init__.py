"""What can be chosen by name, each defined once: estimators, KL kinds, policy losses and their aggregations.

An entry says what the thing is called, what it reads, its formula and its meaning in both languages, and is bound to
its plain-Python definition in float64 (the twin). Configuration, trainer, audit, tutor, page and docs read these
tables; the tensor functions in `mingce.algorithms` have the entries' names. Nothing here needs torch.
"""

from __future__ import annotations

from mingce.specs import estimators as estimators  # fills the table
from mingce.specs.estimator import ESTIMATORS, Estimator, find_estimator
from mingce.specs.kl import KL_KINDS, KLKind, find_kl
from mingce.specs.losses import AGGREGATIONS, POLICY_LOSSES, PolicyLoss, find_policy_loss

__all__ = [
    "AGGREGATIONS",
    "ESTIMATORS",
    "KL_KINDS",
    "POLICY_LOSSES",
    "Estimator",
    "KLKind",
    "PolicyLoss",
    "find_estimator",
    "find_kl",
    "find_policy_loss",
]
