"""The tools by name, each with its argument and result types; whoever serves them reads this table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from mingce.assistant import account_tools, audit_tools, log_tools, run_tools
from mingce.assistant.subject import Desk
from mingce.base.errors import UnknownNameError
from mingce.base.schema import Json, as_json, read_arguments, schema_of
from mingce.base.texts import named, texts
from mingce.specs import ESTIMATORS


@dataclass(frozen=True)
class Tool:
    """A function of (arguments, desk) with the types of both sides; `writes` if it changes something on the disk."""

    name: str
    arguments: type
    result: type
    function: Callable[[Any, Desk], Any]
    writes: bool = False

    def description(self, lang: str) -> str:
        """What it does, for a model that has to choose."""
        return named(texts("assistant", lang)["tools"])[self.name]

    def input_schema(self, lang: str) -> Json:
        """The JSON schema of its arguments, each with its meaning."""
        meanings = _meanings(lang)

        def describe(field: str) -> str | None:
            return meanings.get(f"{self.name}/{field}") or meanings.get(field)

        return schema_of(self.arguments, describe, nulls=False)

    def output_schema(self) -> Json:
        """The JSON schema of its result."""
        return schema_of(self.result)

    def call(self, arguments: Mapping[str, Any], desk: Desk) -> Json:
        """The result as JSON; a mistake in the arguments is a MingceError of one sentence."""
        result: Json = as_json(self.function(read_arguments(self.arguments, arguments), desk))
        return result


TOOLS = {
    tool.name: tool
    for tool in (
        Tool("compute_account", account_tools.ComputeInput, account_tools.Account, account_tools.compute_account),
        Tool("explain_token", account_tools.ExplainInput, account_tools.TokenAccount, account_tools.explain_token),
        Tool("derive_number", account_tools.DeriveInput, account_tools.Derivation, account_tools.derive_number),
        Tool("check_claims", account_tools.CheckInput, account_tools.Judgement, account_tools.check_claims),
        Tool("ask_tutor", account_tools.AskInput, account_tools.Taught, account_tools.ask_tutor),
        Tool("audit_dump", audit_tools.AuditInput, audit_tools.AuditAnswer, audit_tools.audit_dump),
        Tool("list_runs", run_tools.ListInput, run_tools.Runs, run_tools.list_runs),
        Tool("read_run", run_tools.ReadRunInput, run_tools.RunAnswer, run_tools.read_run),
        Tool("search_rollouts", run_tools.SearchInput, run_tools.Rollouts, run_tools.search_rollouts),
        Tool("read_rollout", run_tools.ReadRolloutInput, run_tools.Ledger, run_tools.read_ledger),
        Tool("save_dialogue", log_tools.SaveInput, log_tools.Saved, log_tools.save_dialogue, writes=True),
    )
}


def find_tool(name: str) -> Tool:
    """A tool by its name; an unknown one is an error that offers the nearest."""
    if name not in TOOLS:
        raise UnknownNameError("tool", name, TOOLS)
    return TOOLS[name]


@cache
def _meanings(lang: str) -> dict[str, str]:
    """What each argument means; `tool/argument` where it means something else in one tool."""
    possible = [spec.name for spec in ESTIMATORS.values() if not spec.grouped]
    entries = named(texts("assistant", lang)["arguments"])
    return {name: said.replace("{estimators}", ", ".join(possible)) for name, said in entries.items()}
