"""The small text files beside a dump: YAML or JSON, read as data and no larger than they need be."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from mingce.base import reading
from mingce.base.errors import DataError, UnknownNameError, first_line
from mingce.importers.aliases import ROWS, TOKENS
from mingce.importers.limits import MAX_TEXT, file_size, short

_NAMES = sorted(set(TOKENS.values()) | set(ROWS.values()))


def read_yaml(path: Path) -> dict[str, Any]:
    """A mapping from a YAML (or JSON) file."""
    if file_size(path) > MAX_TEXT:
        raise DataError(f"{path} has more than {MAX_TEXT:,} bytes; it should hold a few settings.")
    try:
        found = reading.read_yaml(path, MAX_TEXT)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}).") from error
    except yaml.YAMLError as error:
        raise DataError(f"{path} is not YAML or JSON ({first_line(error, 160)}).") from error
    if not isinstance(found, dict):
        raise DataError(f"{path} holds no `name: value` lines.")
    return found


@dataclass
class Mapping:
    """A person's own names: `columns: {their_name: our_name}` and `settings: {...}`."""

    path: str
    columns: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def rename(self, data: Any, depth: int = 0) -> Any:
        """The content with its columns renamed, in whatever dict they stand."""
        if depth > 3:
            return data
        if isinstance(data, dict):
            self.used |= self.columns.keys() & data.keys()
            taken = {self.columns[key] for key in self.columns.keys() & data.keys()}
            return {
                self.columns.get(key, key) if isinstance(key, str) else key: self.rename(value, depth + 1)
                for key, value in data.items()
                if key in self.columns or key not in taken
            }
        if isinstance(data, list) and data and all(isinstance(one, dict) for one in data):
            return [self.rename(one, depth + 1) for one in data]
        return data

    def check(self) -> None:
        """Every name of the mapping must have been met."""
        missing = sorted(self.columns.keys() - self.used)
        if missing:
            raise DataError(f"{self.path} names the column '{missing[0]}', which the dump does not hold.")


def read_mapping(path: Path) -> Mapping:
    found = read_yaml(path)
    unknown = sorted(map(str, found.keys() - {"columns", "settings"}))
    if unknown:
        raise UnknownNameError(f"entry of {path}", unknown[0], ("columns", "settings"))
    columns, settings = found.get("columns") or {}, found.get("settings") or {}
    if not isinstance(columns, dict) or not isinstance(settings, dict):
        raise DataError(f"{path}: `columns` and `settings` must hold `name: value` lines.")
    for ours in columns.values():
        if not isinstance(ours, str) or not (ours in _NAMES or ours in ROWS):
            raise UnknownNameError("column", short(ours), _NAMES)
    return Mapping(str(path), {str(theirs): ours for theirs, ours in columns.items()}, settings)
