"""What TRL's trainers have in common: which process records, what they log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mingce.watching.recorder import Recorder


def is_main(trainer: Any) -> bool:
    """Whether this process is the one that records."""
    return bool(getattr(trainer.accelerator, "is_main_process", True))


def on_log(trainer: Any, recorder: Recorder) -> dict[str, Any]:
    """What is done around the trainer's `log`: our counts go into what it logs, and that goes into our run."""

    def before(logs: dict[str, float], *rest: Any, **more: Any) -> None:
        logs |= recorder.audit_metrics()

    def after(result: Any, logs: Mapping[str, Any], *rest: Any, **more: Any) -> None:
        recorder.logged(int(trainer.state.global_step), logs)

    return {"before": before, "after": after}
