"""Which columns a rollout could have and has not, each with the line that records it in the trainer it comes from."""

from __future__ import annotations

from mingce.audit.missing import line
from mingce.record.rollout import Rollout
from mingce.sources.source import Source
from mingce.specs import ESTIMATORS
from mingce.view.answers import MissingColumn

USUAL = ("rewards", "advantages", "rollout_log_probs", "old_log_probs", "entropy", "new_log_probs")
"""What any trainer of this kind has at hand."""


def missing_columns(source: Source, rollout: Rollout) -> list[MissingColumn]:
    """Those of the usual columns, and of what its estimator and its KL penalty read, that were not recorded."""
    wanted = [name for name in USUAL if name not in rollout.columns]
    spec = ESTIMATORS.get(rollout.settings.estimator or "")
    if spec is not None and spec.needs_critic and "values" not in rollout.columns:
        wanted.append("values")
    if rollout.settings.beta and not {"kl", "ref_log_probs"} & rollout.columns.keys():
        wanted.append("ref_log_probs")
    if not wanted:
        return []
    trainer = source.trainer(rollout.step or 0)
    return [MissingColumn(name, {"zh": line(trainer, name, "zh"), "en": line(trainer, name, "en")}) for name in wanted]
