"""A pickle read as data. Nothing it names is imported or called: its classes become inert records, its tensors views.

Pickle is a program; this reads the few instructions that dumps of tensors, arrays, lists and dicts consist of and knows
a closed table of names (the rebuilding of tensors and arrays). Any other name ends the reading with a sentence that
says how to save the dump without it.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np

from mingce.base.errors import DataError, MingceError, first_line
from mingce.importers.limits import ALLOWED, Refused, allow_shape, short
from mingce.importers.numbers import DTYPES, from_array
from mingce.importers.objects import RESAVE, ArrayShell, Named, Ragged, Record, Storage, TypeShell, View

STORAGES = {
    "FloatStorage": "float32", "DoubleStorage": "float64", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool",
}  # fmt: skip
# classes of these packages may stand in a dump; they become records
_PACKAGES = {"verl", "tensordict", "openrlhf", "slime", "miles", "skyrl", "skyrl_train", "omegaconf"}
_PACKAGES |= {"PIL", "uuid", "datetime", "pathlib"}
_CLASSES = {"DataProto", "TensorDict", "Experience"}


def _rebuild(storage: Any, offset: Any, size: Any, stride: Any, *_rest: Any) -> View:
    if not isinstance(storage, Storage):
        raise DataError("a tensor has no storage")
    return View(storage, offset, _size(size), _size(stride), storage.dtype)


def _jagged(state: Any) -> Ragged:
    """torch's nested tensor of the jagged layout, of which each row is a stretch of its values."""
    values, starts, lengths = (state.get(key) for key in ("values", "offsets", "lengths"))
    if state.get("_ragged_idx", 1) != 1 or not isinstance(values, View) or not isinstance(starts, View):
        raise DataError("a nested tensor is stored in a way that is not read")
    return Ragged(values, starts, lengths if isinstance(lengths, View) else None)


def _nested(values: Any, sizes: Any, _strides: Any, starts: Any) -> Ragged:
    """torch's nested tensor of the strided layout."""
    if not all(isinstance(one, View) for one in (values, sizes, starts)) or sizes.shape[1:] != (1,):
        raise DataError("a nested tensor is stored in a way that is not read")
    return Ragged(values, starts, sizes)


def _size(size: Any = ()) -> tuple[Any, ...]:
    if not isinstance(size, list | tuple) or len(size) > 32:
        raise DataError("a tensor has a shape that is no list of a few numbers")
    return tuple(size)


def dtype_name(dtype: Any) -> str:
    """float32 of whatever stands for torch.float32 in a pickle."""
    return short(dtype.name if isinstance(dtype, Named) else dtype).removeprefix("torch.")


def _consolidated(metadata: Any, storage: Any) -> dict[str, Any]:
    """tensordict's one storage for all columns: name → (dtype, shape, start, stop, pad) in bytes."""
    found: dict[str, Any] = {}
    for key, leaf in metadata["leaves"].items():
        dtype, shape, start, _stop, _pad = leaf[:5]
        dtype = dtype_name(dtype)
        if dtype not in DTYPES or not isinstance(storage, View) or type(start) is not int or start < 0:
            raise DataError(f"column '{short(key)}' is stored in a way that is not read")
        base = storage.storage
        whole = Storage(dtype, 0, partial(_from, base, start))
        found[key] = View(whole, 0, _size(shape), None, dtype)
    return found


def _from(storage: Storage, start: int) -> memoryview:
    return memoryview(storage.data)[start:]


def _frombuffer(buffer: Any, dtype: Any, shape: Any, order: Any) -> ArrayShell:
    return _filled(ArrayShell(), shape, dtype, order == "F", bytes(buffer))


def _filled(shell: ArrayShell, shape: Any, dtype: Any, fortran: Any, data: Any) -> ArrayShell:
    shape = _size(shape)
    cells = allow_shape("the pickle", "array", shape)
    ALLOWED.take("the pickle", "array", 8 * cells)
    if dtype.code.startswith("O"):
        if not isinstance(data, list) or len(data) != cells:
            raise DataError("an array of objects has another number of entries than it declares")
        shell.value = data
        return shell
    kind = dtype.dtype
    if kind.itemsize == 0 or len(data) != cells * kind.itemsize:
        raise DataError(f"an array of shape {short(shape)} has {len(data)} bytes")
    array = np.frombuffer(data, dtype=kind).reshape(shape, order="F" if fortran else "C")
    shell.value = array.tolist() if kind.kind in "US" else from_array(array, "the pickle", "array")
    return shell


def _scalar(dtype: Any, data: Any) -> Any:
    return np.frombuffer(data, dtype=dtype.dtype, count=1)[0].item()


def _latin(text: Any, coding: Any = "latin1") -> bytes:
    if coding != "latin1" or not isinstance(text, str):
        raise DataError(f"bytes are written as {short(coding)}")
    ALLOWED.take("the pickle", "bytes", len(text))
    return text.encode("latin1")


def _device(*parts: Any) -> str:
    return ":".join(map(short, parts))


def _type(code: Any, *_: Any) -> TypeShell:
    if not isinstance(code, str) or len(code) > 20:
        raise DataError("an array has a dtype that is not written as a short text")
    return TypeShell(code)


def _tensordict(_cls: Any, state: Any) -> Any:
    return state["_tensordict"]


_CALLS: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor_v2": _rebuild,
    "torch._utils._rebuild_tensor": _rebuild,
    "torch._utils._rebuild_parameter": lambda data, *_: data,
    "torch._utils._rebuild_nested_tensor": _nested,
    "torch.nested._internal.nested_tensor._rebuild_njt": _jagged,
    "__builtin__.set": lambda *_: None,
    "builtins.set": lambda *_: None,
    "torch.Size": _size,
    "torch.device": _device,
    "tensordict._reductions._make_td": _tensordict,
    "tensordict._reductions._rebuild_tensordict_files_consolidated": _consolidated,
    "collections.OrderedDict": lambda *_: {},
    "collections.defaultdict": lambda *_: {},
    "_codecs.encode": _latin,
    "numpy.dtype": _type,
    "numpy.core.multiarray._reconstruct": lambda *_: ArrayShell(),
    "numpy._core.multiarray._reconstruct": lambda *_: ArrayShell(),
    "numpy.core.multiarray.scalar": _scalar,
    "numpy._core.multiarray.scalar": _scalar,
    "numpy.core.numeric._frombuffer": _frombuffer,
    "numpy._core.numeric._frombuffer": _frombuffer,
    "copyreg._reconstructor": lambda cls, *_: Record(cls.name),
}
_NESTED = "torch.storage._load_from_bytes"
_OF_TYPE = "torch._tensor._rebuild_from_type_v2"
_DIM_RANGE = "torch._dynamo.decorators._DimRange"  # a mark that a nested tensor carries
_VALUES = {"numpy.ndarray", "builtins.object", "builtins.list", "builtins.dict", "builtins.int", "builtins.float"}
_VALUES |= {"torch.Tensor", "torch.nested._internal.nested_tensor.NestedTensor"}
_VALUES |= {f"torch.{name}" for name in STORAGES} | {f"torch.{name}" for name in DTYPES}

_OPCODES = (
    "PROTO", "FRAME", "STOP", "MARK", "POP", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1",
    "LONG4", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
    "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "APPEND", "APPENDS", "BINPUT",
    "LONG_BINPUT", "MEMOIZE", "BINGET", "LONG_BINGET", "GLOBAL", "STACK_GLOBAL", "BINPERSID",
)  # fmt: skip


# the standard library's unpickler in Python; its C twin may allocate what a pickle merely declares
_Unpickler: Any = pickle._Unpickler


class _Reader(_Unpickler):  # type: ignore[misc]
    """The unpickler in Python with its table of instructions cut down to those that hold data."""

    dispatch: ClassVar[dict[int, Any]] = {
        op: _Unpickler.dispatch[op] for op in (getattr(pickle, n)[0] for n in _OPCODES)
    }

    def __init__(self, data: io.BytesIO, where: str, storage: Callable[[Any], Storage] | None, nested: bool):
        super().__init__(data)
        self.where, self.storage, self.source, self.nested = where, storage, data, nested
        self.unpacked = 0

    def find_class(self, module: str, name: str) -> Named:
        full = f"{module}.{name}"
        known = full in _CALLS or full in _VALUES or name in _CLASSES or full in (_NESTED, _OF_TYPE, _DIM_RANGE)
        if not known and module.split(".")[0] not in _PACKAGES:
            raise Refused(f"{self.where} wants to call {full!r:.100}, so it was not opened; {RESAVE}.")
        return Named(full)

    def persistent_load(self, pid: Any) -> Storage:
        if self.storage is None:
            raise DataError("it refers to data outside of the file")
        return self.storage(pid)

    def _reduce(self) -> None:
        args = self.stack.pop()
        self.stack[-1] = self._made(self.stack[-1], args)

    def _newobj(self) -> None:
        args = self.stack.pop()
        self.stack[-1] = self._record(self._name(self.stack[-1]), args)

    def _record(self, name: str, args: Any) -> Record:
        if not isinstance(args, tuple):
            raise DataError("it makes an object of what is no tuple")
        return Record(name, args)

    def _build(self) -> None:
        state = self.stack.pop()
        made = self.stack[-1]
        if isinstance(made, Record):
            made.state = state
        elif isinstance(made, ArrayShell):
            _filled(made, *state[1:5])
        elif isinstance(made, TypeShell):
            made.order = state[1]
        # the state of anything else (a hook table, a class) is of no use here

    def _setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._put([key, value])

    def _setitems(self) -> None:
        self._put(self.pop_mark())

    def _put(self, items: list[Any]) -> None:
        target = self.stack[-1]
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str | int | float | bytes | None):
                key = repr(type(key))  # hashing a nested tuple of a stranger's may take for ever
            if isinstance(target, dict):
                target[key] = value

    def _bytearray(self) -> None:
        (length,) = struct.unpack("<Q", self.read(8))
        data = self.read(min(length, len(self.source.getbuffer())))
        if len(data) != length:
            raise EOFError
        self.append(bytes(data))

    def _empty_set(self) -> None:
        self.append([])

    def _additems(self) -> None:
        self.pop_mark()  # no set is of use here

    def _name(self, made: Any) -> str:
        if not isinstance(made, Named):
            raise DataError("it calls what is not a name")
        return made.name

    def _made(self, called: Any, args: Any) -> Any:
        name = self._name(called)
        if not isinstance(args, tuple) or len(args) > 32:
            raise DataError("it calls with more than a few parts")
        if name in _CALLS:
            return _CALLS[name](*args)
        if name == _NESTED:
            return self._load(*args)
        if name == _OF_TYPE:
            return self._made(args[0], args[2])
        if name in _VALUES:
            raise Refused(f"{self.where} wants to call {name!r}, so it was not opened; {RESAVE}.")
        return self._record(name, args)

    def _load(self, data: Any) -> Any:
        """A storage that torch saved into the pickle: a file of its own, in which there is no further one."""
        from mingce.importers.torch_files import read_legacy

        if not isinstance(data, bytes):
            raise DataError("a storage is not made of bytes")
        self.unpacked += len(data)
        if self.nested or self.unpacked > len(self.source.getbuffer()):
            raise Refused(f"{self.where} holds the same storage many times, or storages in storages; {RESAVE}.")
        return read_legacy(data, self.where, nested=True)

    dispatch[pickle.REDUCE[0]] = _reduce
    dispatch[pickle.NEWOBJ[0]] = _newobj
    dispatch[pickle.BUILD[0]] = _build
    dispatch[pickle.SETITEM[0]] = _setitem
    dispatch[pickle.SETITEMS[0]] = _setitems
    dispatch[pickle.BYTEARRAY8[0]] = _bytearray
    dispatch[pickle.EMPTY_SET[0]] = _empty_set
    dispatch[pickle.ADDITEMS[0]] = _additems


_DAMAGE = (
    pickle.UnpicklingError, EOFError, LookupError, ValueError, TypeError, AttributeError, OverflowError, struct.error,
    RecursionError, AssertionError, ArithmeticError,
)  # fmt: skip


def read_pickle(
    stream: io.BytesIO, where: str, storage: Callable[[Any], Storage] | None = None, nested: bool = False
) -> Any:
    """One pickle from the stream, as data. `storage` makes the storage that a persistent id names.

    `nested` is a pickle inside of another, which may hold no further one.
    """
    try:
        return _Reader(stream, where, storage, nested).load()
    except Refused:
        raise
    except MingceError as error:
        raise DataError(f"{where} cannot be read: {error}; {RESAVE}.") from error
    except _DAMAGE as error:
        reason = first_line(error, 160)
        raise DataError(f"{where} is a damaged pickle or holds more than data ({reason}); {RESAVE}.") from error
