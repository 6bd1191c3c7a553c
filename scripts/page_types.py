"""The page's types.ts, from the dataclasses of mingce.view's answers, over_run and taught, and what they hold."""

from __future__ import annotations

import inspect
import types as kinds
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Literal, Required, Union, get_args, get_origin, get_type_hints, is_typeddict

from mingce.explain.account_texts import LEVELS
from mingce.view import answers, over_run, taught

HEAD = """// Written by scripts/make_page_specs.py from mingce/view (answers, over_run, taught); then `make web`.
// What the server says. Numbers that are not finite arrive as null.
"""
PLAIN: dict[Any, str] = {
    str: "string", int: "number", float: "number", bool: "boolean", Any: "unknown", type(None): "null",
}  # fmt: skip


class Types:
    """Interfaces of the classes asked for and of those that they hold, in the order in which they are met."""

    def __init__(self) -> None:
        self.written: dict[str, str] = {}

    def __call__(self, kind: Any) -> str:
        """A Python type as TypeScript."""
        if kind in PLAIN:
            return PLAIN[kind]
        origin, parts = get_origin(kind), get_args(kind)
        if origin is Annotated:
            return str(parts[1])
        if origin is Required:
            return self(parts[0])
        if origin is Literal:
            return " | ".join(f'"{value}"' for value in parts)
        if origin in (Union, kinds.UnionType):
            return " | ".join(dict.fromkeys(map(self, parts)))
        if origin is tuple and parts[-1] is not ...:
            return f"[{', '.join(map(self, parts))}]"
        if origin in (list, tuple, Sequence):
            item = self(parts[0])
            return f"({item})[]" if " " in item and not item.startswith("[") else f"{item}[]"
        if origin in (dict, Mapping):
            return f"Record<{self(parts[0])}, {self(parts[1])}>"
        return self.interface(kind)

    def interface(self, kind: Any) -> str:
        """The name of a class's interface, which is written where it is not yet."""
        name = str(kind.__name__)
        if name not in self.written:
            self.written[name] = ""
            self.written[name] = "\n".join(self._lines(kind, name))
        return name

    def _lines(self, kind: Any, name: str) -> list[str]:
        hints = get_type_hints(kind, include_extras=True)
        brief = {one.name for one in fields(kind) if "brief" in one.metadata} if is_dataclass(kind) else set()
        optional = brief if is_dataclass(kind) else kind.__optional_keys__
        optional = {one for one in optional if get_origin(hints[one]) is not Required}
        about = (inspect.getdoc(kind) or "").splitlines()[0]
        members = [f"  {one}{'?' if one in optional else ''}: {self(hint)};" for one, hint in hints.items()]
        return [f"/** {about} */", f"export interface {name} {{", *members, "}", ""]


def types() -> str:
    """The whole file."""
    write = Types()
    for module in (answers, over_run, taught):
        for kind in vars(module).values():
            own = inspect.isclass(kind) and kind.__module__ == module.__name__
            if own and (is_dataclass(kind) or is_typeddict(kind)):
                write(kind)
    aliases = {
        "Num": "number | null",
        "Lang": "keyof Both",
        "Level": " | ".join(f'"{level}"' for level in LEVELS),
        "Status": 'RunSummary["status"]',
        "Rollout": "OpenRollout",
        "Columns": 'OpenRollout["columns"]',
        "Settings": "AccountSettings",
        "Section": "SectionText",
    }
    lines = [f"export type {name} = {text};" for name, text in aliases.items()]
    return "\n".join([HEAD, *write.written.values(), *lines, ""])
