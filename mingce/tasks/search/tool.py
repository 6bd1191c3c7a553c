"""The search tool: `agent.tools=["search:corpus.jsonl"]`, or the address of a retriever on this machine.

`search:WHERE` gives any task a search; with `agent.tool_format=tags:information` calls and results are written as
Search-R1 writes them. A retriever that does not answer costs the conversations that were asking it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mingce.base.errors import SettingError
from mingce.base.paths import resolved
from mingce.tasks.search.retrievers import TOPK, find_retriever, passages

NAME = "search"
NOTHING = "?"
_DESCRIPTION = "Looks something up and returns the passages that have most of the query's words."


class SearchTool:
    """A search of one corpus or service."""

    name = NAME

    def __init__(self, where: str | Path, topk: int = TOPK):
        if not str(where):
            raise SettingError(
                "agent.tools names 'search'; say where: search:corpus.jsonl, or search:http://127.0.0.1:…"
            )
        is_file = isinstance(where, Path) or not where.startswith(("http:", "https:"))
        self.retriever, self.topk = find_retriever(resolved(Path(where)) if is_file else where), topk

    @property
    def schema(self) -> dict[str, Any]:
        query = {"type": "string", "description": "what to look for"}
        parameters = {"type": "object", "properties": {"query": query}, "required": ["query"]}
        return {
            "type": "function",
            "function": {"name": self.name, "description": _DESCRIPTION, "parameters": parameters},
        }

    def call(self, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        query = arguments.get("query", arguments.get(""))  # between tags no parameter is named
        if not isinstance(query, str) or len(arguments) != 1:
            return f"Error: {self.name} takes one text, query", False
        (found,) = self.retriever.search([query], self.topk)
        return passages(found) or NOTHING, True
