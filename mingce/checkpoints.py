"""Checkpoints: the states a run goes on from, bit for bit.

    checkpoints/step-000012/
      actor.safetensors …    tensors by role: weights and optimizer moments
      actor/ …               or, where many ranks held them, a safetensors file a rank (torch.distributed.checkpoint)
      state.json             everything that is not a tensor: the optimizers' settings, the KL coefficient
      manifest.json          format, step, score, library versions, size and SHA-256 of every file, and its own

A checkpoint is written beside its place and renamed when it is whole and on the disk; older ones are removed only after
that. Reading verifies every byte, and a damaged newest one gives way to the one before. No pickle anywhere.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

import mingce
from mingce.atomic import atomic_directory, remove_directory
from mingce.errors import RunError
from mingce.run import Run, step_name

FORMAT = 1
_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


ShardWriter = Callable[[Path], object]
"""Writes its tensors into a directory, which is there and empty, as safetensors files."""


class Stored(Mapping[str, Tensor]):
    """The tensors of a file, or of a directory of shards, read when first asked for."""

    def __init__(self, path: Path):
        self.path = path

    @cached_property
    def _tensors(self) -> dict[str, Tensor]:
        return _joined(self.path) if self.path.is_dir() else load_file(self.path)

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


@dataclass(frozen=True)
class Checkpoint:
    """What a run can go on from. `tensors[file][name]`, `state` as given to `save`, `libraries` by name and version."""

    step: int
    path: Path
    tensors: dict[str, Stored]
    state: dict[str, Any]
    score: float | None
    libraries: dict[str, str]


class _Damage(Exception):
    """What is wrong with a checkpoint, to be told when another one is used instead."""


def save(
    run: Run,
    step: int,
    *,
    tensors: Mapping[str, Mapping[str, Tensor] | ShardWriter],
    state: Mapping[str, Any],
    score: float | None = None,
    keep_last: int = 2,
    keep_best: int = 1,
    replace: bool = False,
) -> Path:
    """Write `checkpoints/step-N` and then prune to the `keep_last` newest and the `keep_best` of highest score.

    A step has one state only, so a checkpoint of it that is there and whole is left as it is, unless with `replace`.
    `tensors` maps a file's name, without suffix, to its tensors, or to what writes them into a directory of that name.
    `state` holds what JSON can; a tuple becomes a list.
    """
    assert run.training, "this run was opened for reading only"
    assert keep_last >= 1, "the newest checkpoint is always kept"
    assert all(name and not set(name) & set("./\\") for name in tensors), f"file names without suffix: {list(tensors)}"
    assert _survives_json(state), "only text keys, numbers, texts, lists and dicts can come back unchanged"
    run.sync()
    whole = {name: flat for name, flat in tensors.items() if isinstance(flat, Mapping)}
    needs = sum(tensor.nbytes for flat in whole.values() for tensor in flat.values())
    path = run.checkpoints_path / step_name(step)
    if step in _manifests(run) and not replace:
        return path
    with atomic_directory(path, replace=True, needs=needs, hint=run.recovery_hint) as beside:
        files = {}
        for name, flat in whole.items():
            files[f"{name}.safetensors"] = _write(beside / f"{name}.safetensors", _safetensors(flat))
        for name, write in tensors.items():
            if not isinstance(write, Mapping):
                (beside / name).mkdir()
                write(beside / name)
                files |= {f"{name}/{file.name}": _measure(file) for file in sorted((beside / name).iterdir())}
        files["state.json"] = _write(beside / "state.json", [json.dumps(state).encode()])
        manifest: dict[str, Any] = {
            "version": FORMAT,
            "step": step,
            "score": score if score is not None and math.isfinite(score) else None,
            "files": files,
            "libraries": _libraries(),
        }
        manifest["sha256"] = _fingerprint(manifest)
        (beside / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    _prune(run, keep_last, keep_best)
    return path


def load(run: Run, step: int) -> Checkpoint:
    """The checkpoint of that step, every byte verified."""
    if step not in run.checkpoint_steps():
        there = ", ".join(map(str, run.checkpoint_steps())) or "none"
        raise RunError(f"{run.path} has no checkpoint of step {step}; there are: {there}")
    try:
        return _load(run.checkpoints_path / step_name(step))
    except _Damage as damage:
        raise RunError(f"checkpoint {step_name(step)} of {run.path} is damaged: {damage}; use another step") from damage


def load_newest(run: Run, on_fallback: Callable[[str], object], *, read: bool = True) -> Checkpoint | None:
    """The newest checkpoint that is whole, or None when there has been none.

    Tensors are read at once, for a training process may remove the checkpoint later; without `read`, when they are
    asked for. Each damaged one on the way is told to `on_fallback` in one sentence; if all are damaged it is an error.
    """
    damaged: dict[int, str] = {}
    # The list is read again each time: a training process may save and prune while another one reads.
    while left := [step for step in run.checkpoint_steps() if step not in damaged]:
        step = left[-1]
        path = run.checkpoints_path / step_name(step)
        try:
            return _load(path, read=read)
        except _Damage as damage:
            if path.exists():
                damaged[step] = str(damage)
                if len(left) > 1:
                    on_fallback(
                        f"checkpoint {step_name(step)} of {run.path} is damaged: {damage}; "
                        f"falling back to {step_name(left[-2])}"
                    )
    if damaged:
        wrong = ", ".join(f"{step_name(step)}: {damage}" for step, damage in damaged.items())
        raise RunError(f"every checkpoint of {run.path} is damaged ({wrong}); restore one from a copy or train anew")
    return None


def best_step(run: Run) -> int | None:
    """The step of the highest score among the checkpoints that are there."""
    scores = [(manifest["score"], step) for step, manifest in _manifests(run).items() if manifest["score"] is not None]
    return max(scores)[1] if scores else None


def flatten_optimizer(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """An optimizer's state as (tensors for `save`, the rest for JSON).

    Tensors are named `<parameter number>.<what>`, as `3.exp_avg`, and `group.<number>.<option>`.
    """
    packed = optimizer.state_dict()
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, dict[str, Any]] = {}
    groups: list[dict[str, Any]] = []
    for index, slots in packed["state"].items():
        numbers[str(index)] = {name: value for name, value in slots.items() if not isinstance(value, Tensor)}
        tensors |= {f"{index}.{name}": value for name, value in slots.items() if isinstance(value, Tensor)}
    for number, group in enumerate(packed["param_groups"]):
        groups.append({name: value for name, value in group.items() if not isinstance(value, Tensor)})
        tensors |= {f"group.{number}.{name}": value for name, value in group.items() if isinstance(value, Tensor)}
    return tensors, {"slots": numbers, "groups": groups}


def restore_optimizer(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], state: Mapping[str, Any]
) -> None:
    """Put back what `flatten_optimizer` took, so that the next update is the same to the last bit."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    slots: dict[int, dict[str, Any]] = {int(index): dict(values) for index, values in state["slots"].items()}
    groups = [dict(group) for group in state["groups"]]
    if [len(group["params"]) for group in groups] != [len(group["params"]) for group in optimizer.param_groups]:
        raise RunError("the checkpoint's optimizer is for another model: it does not have as many parameters")
    for group, current in zip(groups, optimizer.param_groups, strict=True):
        group.update({name: tuple(group[name]) for name, value in current.items() if isinstance(value, tuple)})
    for key, tensor in tensors.items():
        owner, name = key.rsplit(".", 1)
        if owner.startswith("group."):
            groups[int(owner.removeprefix("group."))][name] = tensor.clone()
            continue
        parameter = parameters[int(owner)]
        if tensor.dim() and tensor.shape != parameter.shape:
            raise RunError(
                f"the checkpoint's optimizer is for another model: {key} is {list(tensor.shape)}, "
                f"the parameter {list(parameter.shape)}"
            )
        slots[int(owner)][name] = tensor.clone()
    optimizer.load_state_dict({"state": slots, "param_groups": groups})


def _load(path: Path, *, read: bool = True) -> Checkpoint:
    manifest = _read_manifest(path)
    try:
        for name, entry in manifest["files"].items():
            if _measure(path / name)["sha256"] != entry["sha256"]:
                raise _Damage(f"{name} does not match its checksum")
        names = [name.partition("/")[0] for name in manifest["files"] if name != "state.json"]
        tensors = {name.split(".")[0]: Stored(path / name) for name in names}
        for stored in tensors.values() if read else ():
            len(stored)
        state = json.loads((path / "state.json").read_bytes())
    except (OSError, RuntimeError) as error:  # torch's word for a file that vanished is RuntimeError
        raise _Damage(f"its files cannot be read ({error})") from error
    return Checkpoint(manifest["step"], path, tensors, state, manifest["score"], manifest["libraries"])


def _read_manifest(path: Path) -> dict[str, Any]:
    """The manifest, if it is intact and every file it names is there in full size."""
    try:
        manifest = json.loads((path / "manifest.json").read_bytes())
        intact = manifest.pop("sha256") == _fingerprint(manifest)
    except FileNotFoundError as error:
        raise _Damage("manifest.json is missing") from error
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise _Damage("manifest.json cannot be read") from error
    if not intact:
        raise _Damage("manifest.json does not match its checksum")
    if manifest["version"] > FORMAT:
        raise RunError(f"{path} was written by mingce {manifest['libraries']['mingce']}, which is newer; update mingce")
    if step_name(manifest["step"]) != path.name:
        raise _Damage(f"its manifest is that of {step_name(manifest['step'])}")
    for name, entry in manifest["files"].items():
        try:
            size = (path / name).stat().st_size
        except OSError as error:
            raise _Damage(f"{name} is missing") from error
        if size != entry["size"]:
            raise _Damage(f"{name} has {size} bytes instead of {entry['size']}")
    found: dict[str, Any] = manifest
    return found


def _manifests(run: Run) -> dict[int, dict[str, Any]]:
    """Manifests of the checkpoints that are whole as far as sizes tell, by step."""
    found = {}
    for step in run.checkpoint_steps():
        try:
            found[step] = _read_manifest(run.checkpoints_path / step_name(step))
        except _Damage:
            continue
    return found


def _prune(run: Run, keep_last: int, keep_best: int) -> None:
    """Remove what is neither new nor good; a damaged checkpoint does not count as one that is kept."""
    whole = _manifests(run)
    scores = sorted((manifest["score"], step) for step, manifest in whole.items() if manifest["score"] is not None)
    keep = {*sorted(whole)[-keep_last:], *(step for _, step in scores[len(scores) - min(keep_best, len(scores)) :])}
    for step in run.checkpoint_steps():
        if step not in keep:
            remove_directory(run.checkpoints_path / step_name(step))


def _write(path: Path, chunks: Iterable[bytes | memoryview]) -> dict[str, Any]:
    """Write a file and take its checksum on the way; what the manifest says about it."""
    digest, size = hashlib.sha256(), 0
    with path.open("wb") as file:
        for chunk in chunks:
            file.write(chunk)
            digest.update(chunk)
            size += len(chunk)
    return {"size": size, "sha256": digest.hexdigest()}


def _measure(path: Path) -> dict[str, Any]:
    """What the manifest says about a file that is there."""
    with path.open("rb") as file:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _joined(directory: Path) -> dict[str, Tensor]:
    """Whole tensors out of the shards that ranks wrote."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load as load_shards

    reader = HuggingFaceStorageReader(str(directory))
    stored: Mapping[str, Any] = reader.read_metadata().state_dict_metadata
    whole = {name: torch.empty(entry.size, dtype=entry.properties.dtype) for name, entry in stored.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is one process is meant
        load_shards(whole, storage_reader=reader, no_dist=True)
    return whole


def _safetensors(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """The bytes of a safetensors file, a tensor at a time, so that no second copy of a model is ever in memory."""
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))  # widest first keeps all aligned
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in names:
        tensor, begin = tensors[name], end
        end += tensor.nbytes
        header[name] = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in names:
        flat = tensors[name].detach().cpu().contiguous().reshape(-1)
        yield flat.view(torch.uint8).numpy().data


def _survives_json(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _survives_json(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(_survives_json, value))
    return value is None or isinstance(value, str | int | float)


def _fingerprint(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _libraries() -> dict[str, str]:
    """Versions that decide whether the same run gives the same bits."""
    loaded = {name: sys.modules[name].__version__ for name in ("numpy", "transformers", "peft") if name in sys.modules}
    return {"python": platform.python_version(), "mingce": mingce.__version__, "torch": str(torch.__version__)} | loaded
