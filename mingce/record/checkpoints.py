"""Checkpoints: the states a run resumes from, bit for bit.

    checkpoints/step-000012/
      actor.safetensors …            the weights by role
      actor.optimizer.safetensors …  the optimizer's moments; older checkpoints may do without (keep.optimizer)
      actor/ …                       or, where many ranks held both, a file per rank (torch.distributed.checkpoint)
      state.json                     everything that is not a tensor: the optimizers' settings, the KL coefficient
      manifest.json                  format, step, score, fingerprints of what the run depends on, what the logs held,
                                     size and SHA-256 of every file, and its own

A checkpoint is written beside its place and renamed when it is whole and on the disk; older ones are removed only after
that. Reading verifies every byte, and a damaged newest one gives way to the one before. One that merely cannot be read
(permissions, a disk or network that fails) is not damaged: it is never removed, and no run resumes from an older one
instead. No pickle anywhere.
"""

from __future__ import annotations

import json
import math
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import mingce
from mingce.base.atomic import atomic_directory, atomic_write, clean_leftovers, remove_directory
from mingce.base.errors import RunError
from mingce.base.places import NOT_THERE, step_name
from mingce.base.reading import MAX_JSON, read_regular
from mingce.record.checksums import sha256
from mingce.record.run import Run
from mingce.record.tensor_files import Stored, measure, safetensors, write_file

FORMAT = 2
_MOMENTS = "optimizer."
_SUFFIX = ".safetensors"

ShardWriter = Callable[[Path], object]
"""Writes its tensors into a directory, which is there and empty, as safetensors files."""


@dataclass(frozen=True)
class Checkpoint:
    """What a run can resume from. `tensors[role][name]`, `state` as given to `save`, `libraries` by name and version.

    `weights_only`: the moments were dropped, so going on from it is not exact. `fingerprints` and `logs` are what the
    run depended on and had written then; None in checkpoints of format 1.
    """

    step: int
    path: Path
    tensors: dict[str, Stored]
    state: dict[str, Any]
    score: float | None
    libraries: dict[str, str]
    weights_only: bool = False
    fingerprints: dict[str, Any] | None = None
    logs: dict[str, Any] | None = None


class _Damage(Exception):
    """What is wrong with a checkpoint, reported when another one is used instead."""


class _Unreadable(Exception):
    """Why a checkpoint cannot be read now, which says nothing about what it holds."""


@dataclass(frozen=True)
class Draft:
    """A checkpoint about to be written: everything in it is settled, and the logs it belongs to are on the disk."""

    run: Run
    step: int
    tensors: Mapping[str, Mapping[str, Tensor] | ShardWriter]
    state: Mapping[str, Any]
    score: float | None
    keep: Keep
    fingerprints: Mapping[str, Any] | None
    logs: Mapping[str, Any]
    replace: bool = False
    """Even if a whole checkpoint of this step is there: it was saved before the step was validated."""

    @property
    def size(self) -> int:
        """Bytes of the tensors that this process holds."""
        flats = [flat for flat in self.tensors.values() if isinstance(flat, Mapping)]
        return sum(tensor.nbytes for flat in flats for tensor in flat.values())

    def write(self) -> Path:
        """Writes it, then prunes."""
        path = self.run.checkpoints_path / step_name(self.step)
        try:
            read_manifest(path)
            if not self.replace:
                return path
        except _Damage:
            pass
        except _Unreadable as reason:
            raise RunError(
                f"{path} is there and cannot be read ({reason}); make it readable, or move it away"
            ) from None
        with atomic_directory(path, replace=True, needs=self.size, hint=self.run.recovery_hint) as beside:
            files = self._write_tensors(beside)
            files["state.json"] = write_file(beside / "state.json", [json.dumps(self.state).encode()])
            manifest = {
                "version": FORMAT,
                "step": self.step,
                "score": self.score if self.score is not None and math.isfinite(self.score) else None,
                "files": files,
                "libraries": libraries(),
                "fingerprints": self.fingerprints,
                "logs": self.logs,
            }
            (beside / "manifest.json").write_bytes(manifest_bytes(manifest))
        prune(self.run, self.keep)
        return path

    def _write_tensors(self, beside: Path) -> dict[str, Any]:
        files: dict[str, Any] = {}
        for role, flat in self.tensors.items():
            if isinstance(flat, Mapping):
                moments = {name: tensor for name, tensor in flat.items() if name.startswith(_MOMENTS)}
                weights = {name: tensor for name, tensor in flat.items() if name not in moments}
                parts = {role: weights} | ({f"{role}.optimizer": moments} if moments else {})
                for name, part in parts.items():
                    files[name + _SUFFIX] = write_file(beside / (name + _SUFFIX), safetensors(part))
            else:
                (beside / role).mkdir()
                flat(beside / role)
                files |= {f"{role}/{file.name}": measure(file) for file in sorted((beside / role).iterdir())}
        return files


@dataclass(frozen=True)
class Keep:
    """Which checkpoints stay: the `last` newest, the `best` of highest score; the `optimizer` newest with moments."""

    last: int = 2
    best: int = 1
    optimizer: int = 2


def prepare(
    run: Run,
    step: int,
    *,
    tensors: Mapping[str, Mapping[str, Tensor] | ShardWriter],
    state: Mapping[str, Any],
    score: float | None = None,
    keep: Keep = Keep(),  # noqa: B008 (frozen)
    fingerprints: Mapping[str, Any] | None = None,
    replace: bool = False,
) -> Draft:
    """What `write` will make `checkpoints/step-N` of, the logs flushed to the disk.

    A step has one state only, so a checkpoint of it that is there and whole is left as it is, unless with `replace`.
    `tensors` maps a role to its tensors (moments are named `optimizer.…`), or to what writes them into a directory of
    that name. `state` holds what JSON can; a tuple becomes a list.
    """
    assert run.training, "this run was opened for reading only"
    assert keep.last >= 1, "the newest checkpoint is always kept"
    assert all(name and not set(name) & set("./\\") for name in tensors), f"names without suffix: {list(tensors)}"
    assert _survives_json(state), "only text keys, numbers, texts, lists and dicts can come back unchanged"
    run.sync()
    logs = run.written() | {"chain": run.checksums.chain}
    return Draft(run, step, tensors, state, score, keep, fingerprints, logs, replace)


def save(run: Run, step: int, *, keep_last: int = 2, keep_best: int = 1, keep_optimizer: int = 99, **what: Any) -> Path:
    """`prepare` and `write` at once."""
    return prepare(run, step, keep=Keep(keep_last, keep_best, keep_optimizer), **what).write()


def load(run: Run, step: int) -> Checkpoint:
    """The checkpoint of that step, every byte verified."""
    if step not in run.checkpoint_steps():
        there = ", ".join(map(str, run.checkpoint_steps())) or "none"
        raise RunError(f"{run.path} has no checkpoint of step {step}; there are: {there}")
    try:
        return _load(run.checkpoints_path / step_name(step))
    except _Damage as damage:
        raise RunError(f"checkpoint {step_name(step)} of {run.path} is damaged: {damage}; use another step") from damage
    except _Unreadable as reason:
        raise RunError(
            f"checkpoint {step_name(step)} of {run.path} cannot be read ({reason}); make it readable and try again"
        ) from reason


def load_newest(run: Run, on_fallback: Callable[[str], object], *, read: bool = True) -> Checkpoint | None:
    """The newest checkpoint that is whole, or None when there has been none.

    Tensors are read at once, for a training process may remove the checkpoint later; without `read`, when they are
    asked for. `on_fallback` receives one sentence for each one skipped; if all are, it is an error. A run that
    trains does not pass over one that cannot be read, for what it does next would replace it.
    """
    passed: dict[int, str] = {}
    # The list is read again each time: a training process may save and prune while another one reads.
    while left := [step for step in run.checkpoint_steps() if step not in passed]:
        step = left[-1]
        name = f"checkpoint {step_name(step)} of {run.path}"
        try:
            return _load(run.checkpoints_path / step_name(step), read=read)
        except _Damage as damage:
            wrong = f"is damaged: {damage}"
        except _Unreadable as reason:
            wrong = f"cannot be read ({reason})"
            if run.training:
                older = f"resume from {step_name(left[-2])}" if len(left) > 1 else "start over"
                raise RunError(
                    f"{name} {wrong}; make it readable, or move it out of checkpoints/ to {older}"
                ) from reason
        if step in run.checkpoint_steps():
            passed[step] = wrong
            if len(left) > 1:
                on_fallback(f"{name} {wrong}; falling back to {step_name(left[-2])}")
    if passed:
        wrong = ", ".join(f"{step_name(step)} {what}" for step, what in passed.items())
        raise RunError(f"no checkpoint of {run.path} is whole ({wrong}); restore one from a copy or train again")
    return None


def verify(path: Path) -> None:
    """A RunError that says what is wrong, unless every byte of the checkpoint is as it was written."""
    try:
        manifest = read_manifest(path)
        for name, entry in manifest["files"].items():
            if measure(path / name)["sha256"] != entry["sha256"]:
                raise RunError(f"{name} does not match its checksum")
        if read_regular(path / "manifest.json", MAX_JSON) != manifest_bytes(manifest):
            raise RunError("manifest.json does not match its checksum")
    except (_Damage, _Unreadable, OSError) as error:
        raise RunError(str(error)) from error


def best_step(run: Run) -> int | None:
    """The step of the highest score among the checkpoints that are there."""
    whole, _ = _survey(run)
    scores = [(manifest["score"], step) for step, manifest in whole.items() if manifest["score"] is not None]
    return max(scores)[1] if scores else None


def _load(path: Path, *, read: bool = True) -> Checkpoint:
    manifest = read_manifest(path)
    try:
        for name, entry in manifest["files"].items():
            if measure(path / name)["sha256"] != entry["sha256"]:
                raise _Damage(f"{name} does not match its checksum")
        roles: dict[str, list[Path]] = {}
        for name in dict.fromkeys(name.partition("/")[0] for name in manifest["files"] if name != "state.json"):
            roles.setdefault(name.partition(".")[0], []).append(path / name)
        tensors = {role: Stored(paths) for role, paths in roles.items()}
        for stored in tensors.values() if read else ():
            len(stored)
        state = json.loads(read_regular(path / "state.json", MAX_JSON))
    except OSError as error:
        raise _trouble("one of its files", error) from error
    except RuntimeError as error:  # torch's word for a file that vanished, or memory that is not there
        raise _Unreadable(str(error)) from error
    return Checkpoint(
        manifest["step"],
        path,
        tensors,
        state,
        manifest["score"],
        manifest["libraries"],
        weights_only=bool(manifest.get("weights_only")),
        fingerprints=manifest.get("fingerprints"),
        logs=manifest.get("logs"),
    )


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest, if it is intact and every file it names is there in full size."""
    manifest: dict[str, Any]
    try:
        manifest = json.loads(read_regular(path / "manifest.json", MAX_JSON))
        intact = manifest.pop("sha256") == _seal(manifest)
        if intact and manifest["version"] > FORMAT:
            version = manifest["libraries"]["mingce"]
            raise RunError(f"{path} was written by mingce {version}, which is newer; update mingce")
        if intact and step_name(manifest["step"]) != path.name:
            raise _Damage(f"its manifest is that of {step_name(manifest['step'])}")
        sizes = {str(name): int(entry["size"]) for name, entry in manifest["files"].items()}
    except OSError as error:
        raise _trouble("manifest.json", error) from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise _Damage("manifest.json cannot be read") from error
    if not intact:
        raise _Damage("manifest.json does not match its checksum")
    for name, wanted in sizes.items():
        if name.startswith("/") or ".." in name.split("/"):
            raise _Damage(f"its manifest names a file elsewhere, {name}")
        try:
            size = (path / name).stat().st_size
        except OSError as error:
            raise _trouble(name, error) from error
        if size != wanted:
            raise _Damage(f"{name} has {size} bytes instead of {wanted}")
    return manifest


def manifest_bytes(manifest: Mapping[str, Any]) -> bytes:
    """manifest.json, with its own checksum at the end."""
    return json.dumps(dict(manifest) | {"sha256": _seal(manifest)}, indent=1).encode()


def _trouble(what: str, error: OSError) -> _Damage | _Unreadable:
    """A file that is not there is damage; one that is refused may be whole."""
    if error.errno in NOT_THERE:
        return _Damage(f"{what} is missing")
    return _Unreadable(f"{what}: {error.strerror or error}")


def _survey(run: Run) -> tuple[dict[int, dict[str, Any]], list[int]]:
    """Manifests of the checkpoints that are whole as far as sizes tell, and the steps of the damaged ones."""
    whole, damaged = {}, []
    for step in run.checkpoint_steps():
        try:
            whole[step] = read_manifest(run.checkpoints_path / step_name(step))
        except _Damage:
            damaged.append(step)
        except _Unreadable:
            continue
    return whole, damaged


def prune(run: Run, keep: Keep) -> None:
    """Remove what is neither new nor good, and moments of those kept for their score.

    A damaged checkpoint is removed and does not count as one that is kept; one that cannot be read stays.
    """
    whole, damaged = _survey(run)
    scores = sorted((manifest["score"], step) for step, manifest in whole.items() if manifest["score"] is not None)
    steps = sorted(whole)
    kept = {*steps[-keep.last :], *(step for _, step in scores[len(scores) - min(keep.best, len(scores)) :])}
    for step in [*damaged, *(step for step in steps if step not in kept)]:
        remove_directory(run.checkpoints_path / step_name(step))
    for step in sorted(kept)[: -keep.optimizer]:
        _drop_moments(run.checkpoints_path / step_name(step), whole[step])


def _drop_moments(path: Path, manifest: dict[str, Any]) -> None:
    """Leave the weights only. The manifest goes first, so that what is left is whole at any instant."""
    clean_leftovers(path)
    if any(map(_holds_moments, manifest["files"])):
        files = {name: entry for name, entry in manifest["files"].items() if not _holds_moments(name)}
        atomic_write(path / "manifest.json", manifest_bytes(manifest | {"files": files, "weights_only": True}))
    for file in path.glob(f"*.optimizer{_SUFFIX}"):
        file.unlink(missing_ok=True)


def _holds_moments(name: str) -> bool:
    return name.endswith(f".optimizer{_SUFFIX}")


def _survives_json(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _survives_json(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(_survives_json, value))
    return value is None or isinstance(value, str | int | float)


def _seal(manifest: Mapping[str, Any]) -> str:
    return sha256(json.dumps(manifest, sort_keys=True).encode())


def libraries() -> dict[str, str]:
    """Versions that decide whether the same run gives the same bits."""
    names = ("numpy", "numba", "transformers", "tokenizers", "peft", "reasoning_gym")
    loaded = {name: str(getattr(sys.modules[name], "__version__", "")) for name in names if name in sys.modules}
    return {"python": platform.python_version(), "mingce": mingce.__version__, "torch": str(torch.__version__)} | loaded
