"""What only we know of our own ledgers, laid to a dump of one before it is judged."""

from __future__ import annotations

from mingce.audit.dump import Dump

_LAMBDAS = {"td0": 0.0, "monte_carlo": 1.0}
_UPDATED = {"ratio": ("new_log_probs", "ratio"), "new_values": ("new_values",)}


def settled(dump: Dump) -> Dump:
    """A dump of ours without what would mislead: a λ that its estimator has not, columns that no update filled."""
    estimator = dump.settings.get("estimator")
    if estimator in _LAMBDAS:
        dump.settings["lam"] = _LAMBDAS[estimator]
    elif estimator is not None and estimator != "gae":
        dump.settings.pop("lam", None)
    for told, columns in _UPDATED.items():  # a column of an update is 0 where no update came by
        if told in dump.columns and bool((dump.mask & (dump.columns[told] == 0)).any()):
            for name in columns:
                dump.columns.pop(name, None)
    return dump
