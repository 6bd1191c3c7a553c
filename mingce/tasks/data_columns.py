"""Which columns of a data file make an example, whoever wrote the file.

| column | what it holds |
|---|---|
| `prompt`, `messages` or `question` | text, or messages, of which an assistant's at the end is the right answer |
| `reward_model`, `answer` or `ground_truth` | optional: verl's `{"ground_truth": ...}`, or the ground truth itself |
| `data_source` | optional: the name of the set, the file's if left out or null |
| `extra_info` | optional; anything else the scorer wants to know; the other columns are added to it |

Settings name others (data.prompt_key and its like); a file with none of these is refused with the nearest names.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mingce.base.errors import DataError
from mingce.tasks.base import Example, Prompt
from mingce.tasks.data import Convert, Examples, Row
from mingce.tasks.rows import Rows

PROMPTS = ("prompt", "messages", "question")
ANSWERS = ("reward_model", "answer", "ground_truth")
VERL = ("prompt", "data_source", "reward_model")
LIKE_PROMPTS = (
    "prompts", "questions", "problem", "problems", "instruction", "query", "input", "inputs", "text", "conversations",
    "conversation", "message", "chat", "user", "task",
)  # fmt: skip
LIKE_ANSWERS = (
    "answers", "solution", "solutions", "final_answer", "expected_answer", "target", "targets", "label", "labels",
    "gold", "output", "outputs", "response", "completion", "reference",
)  # fmt: skip
"""What people call them too; never taken unasked, only offered."""
ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bot": "assistant", "model": "assistant"}
"""Of messages with `from` and `value`."""


@dataclass(frozen=True)
class Keys:
    """The columns that a person has named (None: found by name), and whether a question is asked in a chat."""

    prompt: str | None = None
    answer: str | None = None
    source: str | None = None
    chat: bool = True

    @property
    def named(self) -> bool:
        """Whether any column was named."""
        return not (self.prompt is self.answer is self.source is None)


@dataclass(frozen=True)
class _Columns:
    prompt: str
    answer: str | None
    source: str | None
    set_name: str
    chat: bool


def examples_of(paths: Sequence[str | Path], keys: Keys | None = None) -> Examples:
    """The examples of the files, each with columns of its own."""
    return Examples(paths, partial(converter, keys or Keys()))


def converter(keys: Keys, rows: Rows) -> Convert:
    """What makes examples of a file's rows; an error offers the nearest names where a column is missing."""
    if not keys.named and all(column in rows.columns for column in VERL):
        return verl_example
    for setting, named in (("prompt", keys.prompt), ("answer", keys.answer), ("source", keys.source)):
        if named is not None and named not in rows.columns:
            near = difflib.get_close_matches(named, rows.columns, 1, 0.5)
            hint = f"did you mean data.{setting}_key={near[0]}?" if near else "name one of those."
            raise DataError(f"{rows.path} has no column `{named}` (its columns: {_list(rows.columns)}); {hint}")
    prompt = keys.prompt or next((name for name in PROMPTS if name in rows.columns), None)
    if prompt is None:
        raise _no_prompt(rows)
    answer = keys.answer or next((name for name in ANSWERS if name in rows.columns and name != prompt), None)
    source = keys.source or ("data_source" if "data_source" in rows.columns else None)
    return partial(_example, _Columns(prompt, answer, source, rows.path.stem, keys.chat and prompt != "prompt"))


def _no_prompt(rows: Rows) -> DataError:
    offers = []
    for setting, usual, like in (("prompt", PROMPTS, LIKE_PROMPTS), ("answer", ANSWERS, LIKE_ANSWERS)):
        if any(name in rows.columns for name in usual):
            continue
        near = [name for name in rows.columns if name.lower() in (*usual, *like)]
        near += [name for name in rows.columns if difflib.get_close_matches(name.lower(), usual, 1, 0.75)]
        offers += [f"data.{setting}_key={near[0]}"] if near else []
    hint = f"did you mean {' '.join(offers)}?" if offers else "name the one with the prompt by data.prompt_key=COLUMN."
    usual_names = " or ".join(f"`{name}`" for name in PROMPTS)
    return DataError(f"{rows.path} has no column {usual_names} (its columns: {_list(rows.columns)}); {hint}")


def verl_example(row: Row, uid: str) -> Example:
    """One row with verl's columns."""
    source, reward, extra = (row.get(key) for key in ("data_source", "reward_model", "extra_info"))
    if not isinstance(source, str) or not source:
        raise ValueError("`data_source` is not a name")
    if not isinstance(reward, dict) or (reward.get("ground_truth") is None and reward.get("style") != "model"):
        raise ValueError("`reward_model` has no `ground_truth`")
    if extra is not None and not isinstance(extra, dict):
        raise ValueError("`extra_info` is not a mapping")
    return Example(uid, prompt_of(row.get("prompt")), reward.get("ground_truth"), source, extra or {})


def _example(columns: _Columns, row: Row, uid: str) -> Example:
    """One row with columns of another shape; what is neither prompt nor set is in `extra_info` too."""
    prompt = prompt_of(row.get(columns.prompt), columns.prompt)
    truth = None if columns.answer is None else row.get(columns.answer)
    if isinstance(truth, dict) and columns.answer == "reward_model":
        truth = truth.get("ground_truth")
    if isinstance(prompt, list) and len(prompt) > 1 and prompt[-1]["role"] == "assistant":
        *prompt, reply = prompt
        truth = reply["content"] if truth is None else truth
    if isinstance(prompt, str) and columns.chat:
        prompt = [{"role": "user", "content": prompt}]
    named = None if columns.source is None else row.get(columns.source)
    source = columns.set_name if named is None else named
    if not isinstance(source, str) or not source:
        raise ValueError(f"`{columns.source}` is not a name")
    extra = row.get("extra_info")
    if extra is not None and not isinstance(extra, dict):
        raise ValueError("`extra_info` is not a mapping")
    others = {name: value for name, value in row.items() if name not in (columns.prompt, columns.source, "extra_info")}
    return Example(uid, prompt, truth, source, {**others, **(extra or {})})


def prompt_of(value: Any, column: str = "prompt") -> Prompt:
    """A prompt column as text or as messages of exactly role and content."""
    if isinstance(value, str) and value:
        return value
    if not isinstance(value, list) or not value:
        raise ValueError(f"`{column}` is neither text nor a list of messages")
    return [_message(message, number, column) for number, message in enumerate(value, 1)]


def _message(message: Any, number: int, column: str) -> dict[str, str]:
    fields: Mapping[str, Any] = message if isinstance(message, dict) else {}
    role, content = fields.get("role"), fields.get("content")
    if role is None and content is None and isinstance(fields.get("from"), str):
        role, content = ROLES.get(fields["from"], fields["from"]), fields.get("value")
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        content = "".join(str(part.get("text") or "") for part in content)
    if not isinstance(role, str) or not isinstance(content, str):
        raise ValueError(f"message {number} of `{column}` is not a role and a content, both text")
    return {"role": role, "content": content}


def _list(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
