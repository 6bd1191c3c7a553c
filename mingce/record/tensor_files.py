"""Tensors in files: written a tensor at a time with a checksum on the way, read when first asked for."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from mingce.base.reading import open_regular

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


class Stored(Mapping[str, Tensor]):
    """The tensors of some files, or directories of shards, read when first asked for."""

    def __init__(self, paths: Sequence[Path]):
        self.paths = tuple(paths)

    @cached_property
    def _tensors(self) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        for path in self.paths:
            tensors |= _joined(path) if path.is_dir() else load_file(path)
        return tensors

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def write_file(path: Path, chunks: Iterable[bytes | memoryview]) -> dict[str, Any]:
    """Write a file and take its checksum on the way; what the manifest says about it."""
    digest, size = hashlib.sha256(), 0
    with path.open("wb") as file:
        for chunk in chunks:
            file.write(chunk)
            digest.update(chunk)
            size += len(chunk)
    return {"size": size, "sha256": digest.hexdigest()}


def measure(path: Path) -> dict[str, Any]:
    """What the manifest says about a file that is there."""
    with open_regular(path) as file:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def safetensors(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """The bytes of a safetensors file, a tensor at a time, so that no second copy of a model is made."""
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


def _joined(directory: Path) -> dict[str, Tensor]:
    """Whole tensors out of the shards that ranks wrote."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load as load_shards

    reader = HuggingFaceStorageReader(str(directory))
    stored: Mapping[str, Any] = reader.read_metadata().state_dict_metadata
    whole = {name: torch.empty(entry.size, dtype=entry.properties.dtype) for name, entry in stored.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a single process, which is intended
        load_shards(whole, storage_reader=reader, no_dist=True)
    return whole
