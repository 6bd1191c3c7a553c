"""Adapts a dump read from a ledger of ours to what the audit expects."""

from __future__ import annotations

from mingce.record.dump import Dump, own_estimator
from mingce.specs import ESTIMATORS

_UPDATED = {"ratio": ("new_log_probs", "ratio"), "new_values": ("new_values",)}


def settled(dump: Dump) -> Dump:
    """A dump of ours without what would mislead: a λ its estimator does not use, columns no update has written."""
    spec = ESTIMATORS.get(str(dump.settings.get("estimator")))
    if spec is not None and "lam" not in spec.settings:
        dump.settings.pop("lam", None)
        if spec.fixed_lambda is not None:
            dump.settings["lam"] = spec.fixed_lambda
    if (own := own_estimator(dump)) is not None:
        zh = f"{own} 是自己写的估计器，这里不执行：不核对优势与回报是怎么算出来的"
        en = f"{own} is an estimator of one's own, not executed here: how it made advantages and returns is not checked"
        dump.remarks.append((zh, en))
    for marker, columns in _UPDATED.items():  # 0 where no update has written it
        if marker in dump.columns and bool((dump.mask & (dump.columns[marker] == 0)).any()):
            for name in columns:
                dump.columns.pop(name, None)
    return dump
