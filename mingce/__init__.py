"""mingce 明策: PPO for language models with every token's account open.

What is for your own code, each with an example to run (examples/):

    read_config, build_roles, assign_credit, compute_metrics, Ledger     a loop of your own    own_loop.py
    estimator, policy_loss                                               own_estimator.py
    train                                                                `mingce train` from code, gives the run
    load_run                                                             runs and dumps as frames    query_runs.py
    watch, unwatch                                                       another trainer's steps    watch_trl_grpo.py

A reward of your own is a plain function in a file (own_reward.py). Names are imported when first used: `import mingce`
loads neither torch nor transformers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mingce.algorithms.own import estimator, policy_loss
    from mingce.api import load_run, train
    from mingce.config.reading import read_config
    from mingce.credit import assign_credit
    from mingce.engine.local import build_roles
    from mingce.ledger import Ledger
    from mingce.metrics import compute_metrics
    from mingce.watching.watch import unwatch, watch

__version__ = "0.1.0"

__all__ = [
    "Ledger",
    "assign_credit",
    "build_roles",
    "compute_metrics",
    "estimator",
    "load_run",
    "policy_loss",
    "read_config",
    "train",
    "unwatch",
    "watch",
]

_MODULES = {
    "Ledger": "mingce.ledger",
    "assign_credit": "mingce.credit",
    "build_roles": "mingce.engine.local",
    "compute_metrics": "mingce.metrics",
    "estimator": "mingce.algorithms.own",
    "load_run": "mingce.api",
    "policy_loss": "mingce.algorithms.own",
    "read_config": "mingce.config.reading",
    "train": "mingce.api",
    "unwatch": "mingce.watching.watch",
    "watch": "mingce.watching.watch",
}


def __getattr__(name: str) -> Any:
    """A public name, imported from where it is defined."""
    if name not in _MODULES:
        raise AttributeError(f"module 'mingce' has no attribute '{name}'")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
