"""What a run's results depend on, taken when it starts and kept in every checkpoint: a resume tells what changed.

Settings, data files, reward code, models, library versions, threads, the kind of CPU, the number of prompts. Of a file
of up to 64 MB every byte counts; of a larger one its size and 64 blocks of 1 MB spread evenly from its first byte to
its last, so that a start does not read through all data.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from mingce.algorithms.own import own_file
from mingce.base.errors import MingceError
from mingce.base.reading import open_regular
from mingce.base.texts import sentence
from mingce.base.user_files import split_file_spec
from mingce.config import Config, as_values
from mingce.engine.local import Roles
from mingce.models.loading import model_directory
from mingce.record.checkpoints import Checkpoint, libraries
from mingce.record.run import Run
from mingce.tasks.data_files import files_of, own_held_out
from mingce.tasks.function import USUAL_NAME, split_spec
from mingce.tasks.registry import names_files

WHOLE = 64 << 20
BLOCK = 1 << 20
_FREE = (
    "steps", "name", "root", "keep.", "validation.", "audit.", "reward.workers", "reward.time_limit",
    "reward.judge.at_once",
    "ray.address", "ray.timeout", "ray.max_restarts",
)  # fmt: skip
"""Settings that change what is kept, watched or waited for, and not what is learned."""
_KEYS = ("data.prompt_key", "data.answer_key", "data.source_key")
_PATHS = ("data.train", "data.held_out", "model.path", "critic.path", "reward.model", "reward.judge.prompt")
"""Settings that name files, whose content is compared; where they lie does not matter."""
_FUNCTIONS = ("reward.function", "estimator", "actor.loss", "task")
"""Settings that may name a function in a file, which is compared likewise."""


def take(config: Config, roles: Roles) -> dict[str, Any]:
    """The fingerprints of a run as it would go on now, as JSON holds them."""
    return {
        "settings": dict(_settings(config)),
        "data": _files(_data_paths(config)),
        "reward": _reward_code(config),
        "own": _own_code(config),
        "model": {role: _files(_model_files(path)) for role, path in _models(config)},
        "libraries": libraries(),
        "threads": config.threads or (config.ray.cpus if config.engine == "ray" else torch.get_num_threads()),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "prompts": [len(roles.train), len(roles.held_out)],
    }


def changes(run: Run, checkpoint: Checkpoint, now: dict[str, Any], overrides: Sequence[str]) -> list[tuple[str, bool]]:
    """What is not as it was when the checkpoint was written: (sentence, does going on all the same need consent).

    What `overrides` name was asked for on the command line, and is told only.
    """
    told = []
    asked = {override.partition("=")[0] for override in overrides}
    if any(key == "engine" or key.startswith("ray.") for key in asked):
        asked |= {"engine", "threads"}
    then = checkpoint.fingerprints
    if checkpoint.weights_only:
        told.append((sentence("training.weights_only", checkpoint=checkpoint.path.name), True))
    if then is None:
        told.append((sentence("training.no_fingerprints"), False))
    else:
        for key, what, before, after in _differences(then, now):
            kind, _, name = what.partition(" ")
            named = sentence(f"training.changed_{kind}", name=name)
            told.append((f"{named}: {_short(before)} → {_short(after)}", key not in asked))
    return told + _log_changes(run, checkpoint)


def _differences(then: dict[str, Any], now: dict[str, Any]) -> Iterator[tuple[str, str, Any, Any]]:
    """(key, what, before, after) of everything that both know and that differs."""
    old, new = then.get("settings", {}), now["settings"]
    for key in old:
        if key in new and old[key] != new[key] and not (key in _PATHS and old[key] and new[key]):
            yield key, f"setting {key}", old[key], new[key]
    groups = [("data", then.get("data"), now["data"])]
    for what in ("reward", "own"):
        was, code = then.get(what, {}), now[what]
        shared = was.keys() & code.keys()  # which modules are loaded depends on who calls; an old one names a new one
        groups.append((what, {name: was[name] for name in shared}, {name: code[name] for name in shared}))
    groups += [(f"model {role}", then.get("model", {}).get(role), files) for role, files in now["model"].items()]
    for what, before, after in groups:
        if before is not None and list(before.values()) != list(after.values()):
            names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
            listed = ", ".join(names[:3]) + (f" + {len(names) - 3}" if len(names) > 3 else "")
            yield "", f"{what} {listed}", _digest(before), _digest(after)
    before, after = then.get("libraries", {}), now["libraries"]
    for name in before.keys() & after.keys():
        one, two = (_minor(versions[name]) if name == "python" else versions[name] for versions in (before, after))
        if one != two:
            yield "", f"library {name}", one, two
    for what in ("threads", "cpu", "prompts"):
        if what in then and then[what] != now[what]:
            yield what, what, then[what], now[what]


def _log_changes(run: Run, checkpoint: Checkpoint) -> list[tuple[str, bool]]:
    """Lines and ledgers that were there when the checkpoint was written and are not, or are others."""
    if checkpoint.logs is None:
        return []
    told = []
    before, after = checkpoint.logs, run.written(checkpoint.step, logged=checkpoint.state.get("pending") is None)
    if before["metrics"] != after["metrics"]:
        counts = f"{before['lines']} → {after['lines']}"
        told.append((sentence("training.metrics_changed", step=checkpoint.step, counts=counts), True))
    if before["ledgers"] > after["ledgers"]:
        lost = before["ledgers"] - after["ledgers"]
        told.append((sentence("training.ledgers_gone", lost=lost), False))
    return told


def _settings(config: Config) -> Iterator[tuple[str, Any]]:
    """The settings that results depend on, by dotted key; the number of steps where the learning rate follows it."""

    def flat(values: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
        for name, value in values.items():
            if isinstance(value, dict) and value and f"{prefix}{name}" != "data.options":
                yield from flat(value, f"{prefix}{name}.")
            else:
                yield prefix + name, value

    for key, value in flat(as_values(config), ""):
        if not key.startswith(_FREE) and key != "threads" and (config.engine == "ray" or not key.startswith("ray.")):
            if key == "agent.tools":  # their names are what the policy calls; their files are compared
                value = [tool.rpartition(":")[2] for tool in value]
            yield key, _function_names(value) if key in _FUNCTIONS else _one_of_one(key, value)
    if config.actor.schedule != "constant" or config.critic.schedule != "constant":
        yield "steps (the learning rate follows them)", config.steps


def _one_of_one(key: str, value: Any) -> Any:
    """A setting that took one value before, as it was kept then."""
    if key in _KEYS and not value:
        return None
    return value[0] if key in ("reward.function_weight", *_KEYS) and len(value) == 1 else value


def _function_names(value: Any) -> Any:
    """The functions' names without their files; those of several as a list, that of one by itself."""
    names = []
    for spec in value if isinstance(value, list) else [value]:
        parts = split_file_spec(spec)
        names.append(spec if parts is None else parts[1] or USUAL_NAME)
    return names[0] if len(names) == 1 else names or None


def _data_paths(config: Config) -> list[Path]:
    """Data files, and the path in a task's name such as gsm8k:PATH."""
    train = config.data.train or ([config.task] if names_files(config.task) else [])
    files = [file for name in train for file in files_of(name)]
    files += [file for name in config.data.held_out or own_held_out(train) for file in files_of(name, held_out=True)]
    rest = Path(config.task.partition(":")[2]).expanduser()
    return [path for path in [*files, rest] if path != Path() and path.exists()]


def _reward_code(config: Config) -> dict[str, str]:
    """The reward functions' files, by name the modules beside them that they have loaded, and what a judge is asked."""
    code: dict[str, str] = {}
    for number, spec in enumerate(config.reward.function, 1):
        file = split_spec(spec)[0].expanduser().resolve()
        code |= {"function" if number == 1 else f"function {number}": of_file(file)} | _beside(file)
    if config.reward.judge.url is not None and config.reward.judge.prompt is not None:
        code["judge"] = of_file(Path(config.reward.judge.prompt).expanduser().resolve())
    return code


def _own_code(config: Config) -> dict[str, str]:
    """The same of the person's own estimator, policy loss, task and tools."""
    named = {
        "estimator": own_file(config.estimator),
        "loss": own_file(config.actor.loss),
        "task": own_file(config.task),
    }
    named |= {f"tool {number}": own_file(tool) for number, tool in enumerate(config.agent.tools)}
    files = {name: file for name, file in named.items() if file is not None}
    beside = [_beside(file) for file in files.values()]
    return {name: of_file(file) for name, file in files.items()} | {k: v for part in beside for k, v in part.items()}


def _beside(file: Path) -> dict[str, str]:
    """The modules in the file's directory that are loaded, by name."""
    loaded = {getattr(module, "__file__", None) for name, module in list(sys.modules.items()) if name != "__main__"}
    beside = {Path(name).resolve() for name in loaded if name and Path(name).parent.resolve() == file.parent}
    return _files(sorted(beside - {file}))


def _models(config: Config) -> Iterator[tuple[str, str]]:
    for role, path in (("policy", config.model.path), ("critic", config.critic.path), ("reward", config.reward.model)):
        if path is not None:
            yield role, path


def _model_files(name: str) -> list[Path]:
    try:
        directory = model_directory(name)
    except (MingceError, OSError):
        return []
    return [path for path in sorted(directory.iterdir()) if path.suffix != ".py" and not path.name.startswith(".")]


def _files(paths: Iterable[Path]) -> dict[str, str]:
    """Fingerprints by file name; the files right in a directory stand for it."""
    found: dict[str, str] = {}
    for path in paths:
        for file in sorted(path.iterdir()) if path.is_dir() else [path]:
            try:
                found[file.name if file.name not in found else str(file)] = of_file(file)
            except OSError:  # no file, or one that cannot be read, which whoever needs it says
                continue
    return found


def of_file(path: Path) -> str:
    """The fingerprint of a file; see above for large ones."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        digest = hashlib.sha256(str(size).encode())
        if size <= WHOLE:
            for chunk in iter(lambda: file.read(BLOCK), b""):
                digest.update(chunk)
            return digest.hexdigest()
        blocks = WHOLE // BLOCK
        for number in range(blocks):
            file.seek((size - BLOCK) * number // (blocks - 1))
            digest.update(file.read(BLOCK))
        return digest.hexdigest()


def _digest(files: dict[str, str]) -> str:
    return hashlib.sha256("".join(sorted(files.values())).encode()).hexdigest()[:12] if files else "—"


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


Consent = Callable[[Checkpoint], None]
"""Asked about a checkpoint before a run goes on from it; raises if it must not."""
