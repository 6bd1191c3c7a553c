"""Where metrics go besides the run's own files: TensorBoard always; W&B, MLflow and trackio when asked for.

A step that is logged again after a resume has the same numbers (times apart), so it does no harm that MLflow and
trackio keep both; TensorBoard is told to forget the first, and W&B takes only the first.
"""

from __future__ import annotations

import importlib
import json
import secrets
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from mingce.base.errors import RunError, SettingError, UnknownNameError, first_line
from mingce.specs.settings import by_dotted_key

PROJECT = "mingce"
MOST_PARAMS = 100
"""What MLflow takes in one call."""


class Sink(Protocol):
    """One place that takes a step's metrics."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class Sinks:
    """All sinks of a run. One that fails is dropped with a sentence to `note`; training goes on without it."""

    def __init__(self, sinks: Mapping[str, Sink], note: Callable[[str], None]):
        self._sinks, self._note = dict(sinks), note

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """A step's metrics to every sink."""
        self._each(lambda sink: sink.log(step, metrics))

    def close(self) -> None:
        """Everything that was logged is out."""
        self._each(lambda sink: sink.close())
        self._sinks.clear()

    def _each(self, act: Callable[[Sink], None]) -> None:
        for name, sink in list(self._sinks.items()):
            try:
                act(sink)
            except (Exception, SystemExit) as error:  # a server out of reach, a full disk: it is not the run's end
                del self._sinks[name]
                self._note(f"{name} failed and gets no more metrics; metrics.jsonl has them all ({first_line(error)})")


def check_sinks(names: Sequence[str]) -> None:
    """An unknown or missing package is an error before a run is made."""
    for name in names:
        if name != "tensorboard":
            _package(name)


def open_sinks(
    names: Sequence[str],
    run_path: Path,
    run_name: str,
    config: dict[str, Any],
    first_step: int,
    note: Callable[[str], None] = warnings.warn,
    *,
    needed: bool = True,
) -> Sinks:
    """TensorBoard and the named sinks, ready for `first_step`; a run that begins (1) logs step 0 before it.

    A run that goes on goes on in the sinks too: the same W&B and MLflow run, the same TensorBoard curves. One that does
    not start is an error if it is `needed`, else it is left out with a sentence to `note`.
    """
    check_sinks(names)
    directory = run_path / "tensorboard"
    try:
        opened: dict[str, Sink] = {"tensorboard": TensorBoard(directory, config, first_step)}
    except OSError as error:
        raise RunError(
            f"{directory} cannot be written ({first_line(error)}); make room there or fix its owner."
        ) from error
    for name in names:
        if name in opened:
            continue
        try:
            opened[name] = OPTIONAL[name](run_path, run_name, config, first_step)
        except (Exception, SystemExit) as error:  # not logged in, out of reach, settings of its own that are wrong
            said = f"{name} does not start ({first_line(error)})"
            if not needed:
                note(f"{said}; metrics.jsonl has all metrics.")
                continue
            Sinks(opened, note).close()
            raise SettingError(
                f"{said}; mend that, or leave it out: keep.loggers=[], in `mingce resume` too."
            ) from error
    return Sinks(opened, note)


class TensorBoard:
    """Event files under the run's tensorboard directory."""

    def __init__(self, directory: Path, config: Mapping[str, Any], first_step: int):
        from torch.utils.tensorboard import SummaryWriter

        going_on = any(directory.glob("events.out.tfevents.*"))
        begins = first_step <= 1
        self._writer: Any = SummaryWriter(
            str(directory), purge_step=(0 if begins else first_step) if going_on else None
        )
        if begins:
            text = json.dumps(config, indent=2, ensure_ascii=False, default=str)
            self._writer.add_text("config", f"```json\n{text}\n```", 0)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]

        # one event for all: add_scalar would make one of each, which takes several times as long
        values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self._writer.file_writer.add_summary(Summary(value=values), step)
        self._writer.flush()  # else a killed run loses steps that it will not repeat

    def close(self) -> None:
        self._writer.close()


class WandB:
    """Weights & Biases; online, offline or disabled as WANDB_MODE says."""

    def __init__(self, run_path: Path, run_name: str, config: dict[str, Any], first_step: int):
        known = run_path / "wandb.id"
        if not known.exists():
            known.write_text(secrets.token_hex(4), encoding="utf-8")
        self._run = _package("wandb").init(
            project=PROJECT,
            name=run_name,
            config=config,
            dir=str(run_path),
            id=known.read_text(encoding="utf-8").strip(),
            resume="allow",
            settings={"console": "off"},  # a copy of a page that redraws itself helps nobody
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


class MLflow:
    """MLflow, at the server or file that MLFLOW_TRACKING_URI names."""

    def __init__(self, run_path: Path, run_name: str, config: dict[str, Any], first_step: int):
        self._mlflow = _package("mlflow")
        self._mlflow.set_experiment(PROJECT)
        known = run_path / "mlflow.id"
        if known.exists():
            self._mlflow.start_run(run_id=known.read_text(encoding="utf-8").strip())
        else:
            active = self._mlflow.start_run(run_name=run_name)
            known.write_text(active.info.run_id, encoding="utf-8")
            settings = list(by_dotted_key(config).items())
            for start in range(0, len(settings), MOST_PARAMS):
                self._mlflow.log_params(dict(settings[start : start + MOST_PARAMS]))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._mlflow.log_metrics(dict(metrics), step=step)

    def close(self) -> None:
        self._mlflow.end_run()


class Trackio:
    """trackio, in its local database or the Space that TRACKIO_SPACE_ID names."""

    def __init__(self, run_path: Path, run_name: str, config: dict[str, Any], first_step: int):
        resume = "never" if first_step <= 1 else "allow"
        self._trackio = _package("trackio")
        self._trackio.init(project=PROJECT, name=run_name, config=config, resume=resume)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._trackio.log(dict(metrics), step=step)

    def close(self) -> None:
        self._trackio.finish()


OPTIONAL: dict[str, Callable[[Path, str, dict[str, Any], int], Sink]] = {
    "wandb": WandB,
    "mlflow": MLflow,
    "trackio": Trackio,
}


def _package(name: str) -> Any:
    """The package of a sink, imported now that it is wanted."""
    if name not in OPTIONAL:
        raise UnknownNameError("logger", name, ["tensorboard", *OPTIONAL])
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SettingError(
            f"keep.loggers asks for {name}, which cannot be imported ({first_line(error)}); "
            f"install it with `pip install 'mingce[{name}]'`, or leave it out: keep.loggers=[]."
        ) from error
