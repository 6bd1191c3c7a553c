"""Types as JSON schemas, arguments read into dataclasses, and results as JSON: one definition of a tool's two sides.

An argument's type and its limits are an annotation; the schema that a client reads and the check that an argument goes
through are both made of it, so that they cannot differ.
"""

from __future__ import annotations

import math
import types
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, asdict, dataclass, fields, is_dataclass
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from mingce.base.errors import SettingError, UnknownNameError
from mingce.base.texts import sentence

T = TypeVar("T")
Json = dict[str, Any]
Describe = Callable[[str], str | None]
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_LISTS = (list, Sequence)


@dataclass(frozen=True)
class Limit:
    """What an argument may be: `most` characters or entries, a number from `low` to `high`, one of `choices`."""

    most: int | None = None
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()


# ── schemas ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def schema_of(kind: type, describe: Describe = lambda _: None, *, nulls: bool = True) -> Json:
    """The JSON schema of a dataclass; `describe` says what a field of a given name means.

    Without `nulls` what may be left out is not also offered as null, which some models' tool calls do not know.
    """
    hints = get_type_hints(kind, include_extras=True)
    properties: Json = {}
    for field in fields(kind):
        properties[field.name] = type_schema(hints[field.name], describe, nulls=nulls)
        if said := describe(field.name):
            properties[field.name]["description"] = said
    needed = [field.name for field in fields(kind) if _is_required(field)]
    return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def type_schema(hint: Any, describe: Describe = lambda _: None, *, nulls: bool = True) -> Json:
    """The JSON schema of an annotation; `{}`, which is anything, of one that JSON has no word for."""
    base, limit = _limited(hint)
    if isinstance(base, type) and is_dataclass(base):
        return schema_of(base, describe, nulls=nulls)
    origin = get_origin(base)
    if base in _PLAIN:
        return {"type": _PLAIN[base], **_bounds(base, limit)}
    if origin in (Union, types.UnionType):
        kinds = [one for one in get_args(base) if nulls or one is not type(None)]
        return _union([type_schema(one, describe, nulls=nulls) for one in kinds])
    if origin is Literal:
        return {"type": "string", "enum": list(get_args(base))}
    if origin in _LISTS:
        most = {} if limit.most is None else {"maxItems": limit.most}
        return {"type": "array", "items": type_schema(get_args(base)[0], describe, nulls=nulls), **most}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": type_schema(get_args(base)[1], describe, nulls=nulls)}
    return {"type": "array"} if base in _LISTS else {"type": "object"} if base is dict else {}


def _union(parts: list[Json]) -> Json:
    """One schema of all alternatives; a plain `null` beside one other is written as a type of two names."""
    if len(parts) == 1:
        return parts[0]
    others = [part for part in parts if part.get("type") != "null"]
    if len(others) == 1 and len(parts) == 2 and isinstance(others[0].get("type"), str) and "enum" not in others[0]:
        return {**others[0], "type": [others[0]["type"], "null"]}
    return {"anyOf": parts}


def _bounds(base: Any, limit: Limit) -> Json:
    bounds: Json = {}
    if base is str and limit.most is not None:
        bounds["maxLength"] = limit.most
    if limit.choices:
        bounds["enum"] = list(limit.choices)
    if limit.low is not None:
        bounds["minimum"] = limit.low
    if limit.high is not None:
        bounds["maximum"] = limit.high
    return bounds


def _limited(hint: Any) -> tuple[Any, Limit]:
    """A type without its annotation, and the limits in it."""
    if get_origin(hint) is not Annotated:
        return hint, Limit()
    base, *notes = get_args(hint)
    return base, next((note for note in notes if isinstance(note, Limit)), Limit())


# ── arguments ────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_arguments(kind: type[T], arguments: Mapping[str, Any], where: str = "") -> T:
    """The arguments as a dataclass; whatever does not fit is a SettingError that says which one and what it takes."""
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    for name in arguments:
        if name not in known:
            raise UnknownNameError("argument", str(name), known)
    hints = get_type_hints(kind, include_extras=True)
    values = {}
    for name, field in known.items():
        if arguments.get(name) is not None:
            values[name] = _read(hints[name], arguments[name], where + name)
        elif _is_required(field):
            raise SettingError(sentence("assistant.missing", name=where + name))
    return kind(**values)


def _read(hint: Any, value: Any, name: str) -> Any:
    base, limit = _limited(hint)
    origin = get_origin(base)
    if origin in (Union, types.UnionType):
        return _read(next(one for one in get_args(base) if one is not type(None)), value, name)
    if isinstance(base, type) and is_dataclass(base):
        if not isinstance(value, Mapping):
            raise SettingError(sentence("assistant.no_object", name=name))
        return read_arguments(base, value, f"{name}.")
    if origin in _LISTS:
        return _read_list(get_args(base)[0], value, name, limit)
    if origin is Literal or limit.choices:
        choices = limit.choices or get_args(base)
        if value not in choices:
            raise UnknownNameError(name, str(value)[:100], choices)
        return value
    if base is str:
        return _read_text(value, name, limit)
    if base is bool:
        if not isinstance(value, bool):
            raise SettingError(sentence("assistant.no_bool", name=name))
        return value
    return _read_number(base, value, name, limit)


def _read_list(hint: Any, value: Any, name: str, limit: Limit) -> list[Any]:
    if not isinstance(value, list):
        raise SettingError(sentence("assistant.no_list", name=name))
    if limit.most is not None and len(value) > limit.most:
        raise SettingError(sentence("assistant.long_list", name=name, count=f"{len(value):,}", most=f"{limit.most:,}"))
    return [_read(hint, one, f"{name}[{k}]") for k, one in enumerate(value)]


def _read_text(value: Any, name: str, limit: Limit) -> str:
    if not isinstance(value, str):
        raise SettingError(sentence("assistant.no_text", name=name))
    if limit.most is not None and len(value) > limit.most:
        raise SettingError(sentence("assistant.long_text", name=name, count=f"{len(value):,}", most=f"{limit.most:,}"))
    try:
        value.encode()
    except UnicodeEncodeError:
        raise SettingError(sentence("assistant.broken_text", name=name)) from None
    return value


def _read_number(base: type, value: Any, name: str, limit: Limit) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SettingError(sentence("assistant.no_number", name=name))
    if not math.isfinite(value) or abs(value) > 1e300:
        raise SettingError(sentence("assistant.not_finite", name=name))
    if base is int and value != int(value):
        raise SettingError(sentence("assistant.no_whole", name=name))
    low, high = limit.low, limit.high
    if (low is not None and value < low) or (high is not None and value > high):
        shown = (f"{-math.inf if low is None else low:g}", f"{math.inf if high is None else high:g}")
        raise SettingError(sentence("assistant.out_of_range", name=name, low=shown[0], high=shown[1]))
    return base(value)


# ── results ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def as_json(result: Any) -> Any:
    """A result as JSON holds it: dataclasses as objects, numbers that are not finite as null."""
    if is_dataclass(result) and not isinstance(result, type):
        return as_json(asdict(result))
    if isinstance(result, bool | str) or result is None:
        return result
    if isinstance(result, int | float):
        return result if math.isfinite(result) else None
    if isinstance(result, Mapping):
        return {str(key): as_json(value) for key, value in result.items()}
    if isinstance(result, list | tuple | array):
        return [as_json(value) for value in result]
    return str(result)
