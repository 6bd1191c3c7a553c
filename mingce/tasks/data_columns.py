"""Which columns of a data file make an example, whoever wrote the file.

| column | what it holds |
|---|---|
| `prompt`, `messages`, `conversations`, `question` | text, or messages; an assistant's at the end is the right answer |
| `system`, `system_prompt` | optional: goes before messages that have none |
| `input` | optional: the rest of an `instruction`, behind it |
| `reward_model`, `answer` or `ground_truth` | optional: verl's `{"ground_truth": ...}`, or the ground truth itself |
| `data_source` | optional: the name of the set, the file's if left out or null |
| `extra_info` | optional; anything else the scorer wants to know; the other columns are added to it |

Settings name others (data.prompt_key and its like), one or several of which each file uses the first that it has;
a file with none of these is refused with the nearest names.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mingce.base.errors import DataError
from mingce.config.table import DataConfig
from mingce.tasks.base import Example, Prompt
from mingce.tasks.data import Convert, Examples, Row
from mingce.tasks.data_files import set_name
from mingce.tasks.rows import Rows

PROMPTS = ("prompt", "messages", "conversations", "question")
ANSWERS = ("reward_model", "answer", "ground_truth")
VERL = ("prompt", "data_source", "reward_model")
LIKE_PROMPTS = (
    "prompts", "questions", "problem", "problems", "instruction", "query", "input", "inputs", "text",
    "conversation", "message", "chat", "user", "task",
)  # fmt: skip
LIKE_ANSWERS = (
    "answers", "solution", "solutions", "final_answer", "expected_answer", "target", "targets", "label", "labels",
    "gold", "output", "outputs", "response", "completion", "reference",
)  # fmt: skip
"""What people call them too; never taken unasked, only offered."""
SYSTEM = ("system", "system_prompt")
MORE = {"instruction": "input"}
"""Columns with the rest of a question, as in Alpaca's data."""
ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bot": "assistant", "model": "assistant"}
"""Of messages with `from` and `value`."""


@dataclass(frozen=True)
class Keys:
    """The columns that a person has named (none: found by name), and whether a question is asked in a chat."""

    prompt: Sequence[str] = ()
    answer: Sequence[str] = ()
    source: Sequence[str] = ()
    chat: bool = True

    @classmethod
    def of(cls, data: DataConfig) -> Keys:
        """Those of the settings."""
        return cls(data.prompt_key, data.answer_key, data.source_key, data.chat)

    @property
    def named(self) -> Iterator[tuple[str, Sequence[str]]]:
        """The settings that name columns, with the names."""
        every = (("prompt_key", self.prompt), ("answer_key", self.answer), ("source_key", self.source))
        return ((setting, names) for setting, names in every if names)


@dataclass(frozen=True)
class _Columns:
    prompt: str
    answer: str | None
    source: str | None
    set_name: str
    chat: bool


def examples_of(paths: Sequence[str | Path], keys: Keys | None = None, *, held_out: bool = False) -> Examples:
    """The examples of the files, each with columns of its own."""
    return Examples(paths, partial(converters, keys or Keys()), held_out=held_out)


def converters(keys: Keys, files: Sequence[Rows]) -> list[Convert]:
    """What makes examples of each file's rows; an error offers the nearest names where a column is missing."""
    for setting, names in keys.named:
        if not any(name in rows.columns for name in names for rows in files):
            columns = files[0].columns
            near = difflib.get_close_matches(names[0], columns, 1, 0.5)
            hint = f"did you mean data.{setting}={near[0]}?" if near else "name one of those."
            listed = " or ".join(f"`{name}`" for name in names)
            raise DataError(f"{files[0].path} has no column {listed} (its columns: {_list(columns)}); {hint}")
    return [_converter(keys, rows) for rows in files]


def _converter(keys: Keys, rows: Rows) -> Convert:
    if all(column in rows.columns for column in VERL) and not any(
        name in rows.columns for _, names in keys.named for name in names
    ):
        return verl_example
    prompt = _first((*keys.prompt, *PROMPTS), rows)
    if prompt is None:
        raise _no_prompt(keys, rows)
    answer = _first([name for name in (*keys.answer, *ANSWERS) if name != prompt], rows)
    source = _first((*keys.source, "data_source"), rows)
    asked = keys.chat and prompt != "prompt"
    return partial(_example, _Columns(prompt, answer, source, set_name(rows.path), asked))


def _first(names: Iterable[str], rows: Rows) -> str | None:
    """The first of the names that is a column of the file."""
    return next((name for name in names if name in rows.columns), None)


def _no_prompt(keys: Keys, rows: Rows) -> DataError:
    offers = []
    for setting, usual, like, named in (
        ("prompt", PROMPTS, LIKE_PROMPTS, keys.prompt),
        ("answer", ANSWERS, LIKE_ANSWERS, keys.answer),
    ):
        if any(name in rows.columns for name in (*usual, *named)):
            continue
        near = [name for name in rows.columns if name.lower() in (*usual, *like)]
        near += [name for name in rows.columns if difflib.get_close_matches(name.lower(), usual, 1, 0.75)]
        if near:
            both = f"[{','.join((*named, near[0]))}]" if named else near[0]  # the named are another file's
            offers.append(f"data.{setting}_key={both}")
    hint = (
        f"did you mean {' '.join(offers)}?"
        if "prompt_key" in " ".join(offers)
        else "name the one with the prompt by data.prompt_key=COLUMN."
    )
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
    if isinstance(prompt, str):
        rest = row.get(MORE.get(columns.prompt, ""))
        prompt = f"{prompt}\n\n{rest}" if isinstance(rest, str) and rest.strip() else prompt
        prompt = [{"role": "user", "content": prompt}] if columns.chat else prompt
    if isinstance(prompt, list) and all(message["role"] != "system" for message in prompt):
        said = next((row[name] for name in SYSTEM if isinstance(row.get(name), str) and row[name].strip()), None)
        prompt = prompt if said is None else [{"role": "system", "content": said}, *prompt]
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
