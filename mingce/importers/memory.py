"""A batch that a program holds, as a dump: tensors and arrays of any trainer's names, without a file between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mingce.importers.files import read_content
from mingce.importers.numbers import Numbers, from_array, widened
from mingce.record.dump import Dump


def dump_in_memory(
    data: Mapping[str, Any], settings: Mapping[str, Any] | None = None, where: str = "the batch"
) -> Dump:
    """The dump of a mapping from names to arrays, tensors, lists and scalars; nested as its trainer nests it."""
    draft = read_content(_plain(data, where), {}, where, None)
    draft.put_settings(dict(settings or {}), strict=True)
    return draft.finish()


def _plain(value: Any, name: str) -> Any:
    """Arrays and tensors as numbers of their own type, wherever they stand; everything else as it is."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one, str(key)) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one, name) for one in value]
    if isinstance(value, np.ndarray):
        return value.tolist() if value.dtype.kind in "OUS" else _numbers(from_array(value, "the batch", name))
    if isinstance(value, np.generic):
        return value.item()
    return _tensor(value, name) if hasattr(value, "detach") else value


def _tensor(tensor: Any, name: str) -> Any:
    """A torch tensor, exactly; bfloat16, which NumPy lacks, by its bits; a nested one as its rows."""
    if getattr(tensor, "is_nested", False):
        return [_tensor(row, name) for row in tensor.unbind()]
    kind = str(tensor.dtype).removeprefix("torch.")
    held = tensor.detach().cpu()
    if kind == "bfloat16":
        import torch

        return _numbers(widened(held.contiguous().view(torch.uint16).numpy(), kind))
    return _numbers(from_array(held.numpy(), "the batch", name))


def _numbers(numbers: Numbers) -> Any:
    return numbers.array.item() if numbers.ndim == 0 else numbers
