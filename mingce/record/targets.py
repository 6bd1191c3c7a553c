"""What a person points at: a run's directory or a model. Without torch, so that a wrong path is reported at once."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from mingce.base.errors import RunError, SettingError
from mingce.base.paths import expanded
from mingce.base.places import EMBEDDED_MODELS
from mingce.record.run import Run

Step = int | Literal["best"] | None
"""Which state of a run: that of a step (0 is the model it started from), the best one, or the newest (None)."""

NAMED_MODELS = (*EMBEDDED_MODELS, "smollm2")


def parse_step(text: str | None) -> Step:
    """`--step`: a number, `best`, or nothing for the newest."""
    if text is None:
        return None
    if text == "best":
        return "best"
    if not text.isdecimal():
        raise SettingError(f"--step must be the number of a step or 'best', but is '{text}'.")
    return int(text)


def find_run(where: str | Path, step: Step = None) -> Run | None:
    """The run at that place, opened to read; None for a model. Anything else is an error.

    A run must have a checkpoint of the step, a model cannot have one; whether it is whole shows when it is loaded.
    """
    name, path = str(where), expanded(where)
    if is_run(path):
        run = Run.open(path, readonly=True)
        _expect_checkpoint(run, step)
        return run
    if name in NAMED_MODELS or (path / "config.json").is_file():
        if step is not None:
            raise SettingError(f"--step chooses a checkpoint of a run, but {where} is a model; leave --step out.")
        return None
    if (path / "manifest.json").is_file():
        number = path.name.removeprefix("step-").lstrip("0")
        raise RunError(f"{path} is one checkpoint of a run; give the run, {path.parent.parent}, and --step {number}.")
    if path.is_dir():
        runs = _runs_in(path)
        hint = f"give one of its {len(runs)} runs, such as {runs[-1]}" if runs else "give a directory that is one"
        raise RunError(f"{path} is neither a run (it has no config.yaml) nor a model (no config.json); {hint}.")
    if path.is_file():
        raise RunError(f"{path} is a file; give the directory of a run or of a model.")
    if _runs_in(path.parent):
        return Run.open(path, readonly=True)  # which is an error that names the nearest run
    return None


def is_run(where: str | Path) -> bool:
    """Whether there is a run's directory."""
    return (expanded(where) / "config.yaml").is_file()


def _expect_checkpoint(run: Run, step: Step) -> None:
    steps = run.checkpoint_steps()
    if step == 0:
        return
    if not steps:
        raise RunError(f"{run.path} has no checkpoint yet; wait for one, or take the model it starts from: --step 0.")
    if isinstance(step, int) and step not in steps:
        raise RunError(f"{run.path} has no checkpoint of step {step}; there are: {', '.join(map(str, steps))}.")


def _runs_in(directory: Path) -> list[Path]:
    """The runs in a directory, the newest last."""
    configs = [entry / "config.yaml" for entry in directory.iterdir()] if directory.is_dir() else []
    runs = [config for config in configs if config.is_file()]
    return [config.parent for config in sorted(runs, key=lambda config: config.stat().st_mtime)]
