"""Examples from files, checked whole at the start and converted on access.

Which columns a file has and what an example is made of: data_columns.py. Rows and lines are counted from 1 in every
message and every uid.
"""

from __future__ import annotations

import bisect
import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, overload

from mingce.base.errors import DataError, UnknownNameError
from mingce.tasks.base import Example, Prompt
from mingce.tasks.data_files import files_of
from mingce.tasks.rows import Rows, open_rows

Row = Mapping[str, Any]
Convert = Callable[[Row, str], Example]
"""Makes an example of a row and its uid; a `ValueError` says, without the place, what is wrong with the row."""

AT_ONCE = 1000  # prompts whose tokens are counted together


class Sliced(Sequence[Example]):
    """Examples made on access, one at a time or by a slice."""

    @abstractmethod
    def at(self, index: int) -> Example:
        """The example of an index from 0 on."""

    def file_of(self, index: int) -> int:
        """Which of the files, or directories of them, that were named the example of an index is from, from 0 on."""
        return 0

    @overload
    def __getitem__(self, index: int) -> Example: ...

    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...

    def __getitem__(self, index: int | slice) -> Example | list[Example]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self.at(range(len(self))[index])


class Examples(Sliced):
    """The rows of files, or of directories of them, as examples. `data_sources` are the different ones among them."""

    def __init__(
        self,
        paths: Sequence[str | Path],
        converter: Callable[[Sequence[Rows]], Sequence[Convert]],
        *,
        held_out: bool = False,
    ) -> None:
        """`converter` finds for each file what makes examples of its rows; it raises what is wrong with the columns.

        Of a directory the files to train on are taken, or those `held_out`.
        """
        named = [files_of(path, held_out) for path in paths]
        self._named = [entry for entry, found in enumerate(named) for _ in found]
        files = [open_rows(path) for found in named for path in found]
        self._convert = converter(files)
        self._files = files
        self._ends = list(accumulate(len(rows) for rows in files))
        names = [rows.path.name for rows in files]
        self._labels = names if len(set(names)) == len(names) else [str(rows.path) for rows in files]
        self.data_sources = sorted({example.data_source for example in self})

    def __len__(self) -> int:
        return self._ends[-1]

    def file_of(self, index: int) -> int:
        return self._named[bisect.bisect_right(self._ends, index)]

    def at(self, index: int) -> Example:
        which = bisect.bisect_right(self._ends, index)
        rows = self._files[which]
        index -= self._ends[which] - len(rows)
        return self._example(which, index, rows[index])

    def __iter__(self) -> Iterator[Example]:
        for which, rows in enumerate(self._files):
            for index, row in enumerate(rows):
                yield self._example(which, index, row)

    def _example(self, which: int, index: int, row: Row) -> Example:
        rows = self._files[which]
        try:
            return self._convert[which](row, f"{self._labels[which]}:{rows.number(index)}")
        except ValueError as error:
            raise DataError(f"{rows.where(index)}: {error}; mend or remove the row.") from error


class Selected(Sliced):
    """Some of the examples, by index, without copying them; `changed` stand in for those of the same index."""

    def __init__(
        self, examples: Sequence[Example], indices: Sequence[int], changed: Mapping[int, Example] | None = None
    ) -> None:
        self._examples, self._indices, self._changed = examples, indices, changed or {}

    def file_of(self, index: int) -> int:
        return self._examples.file_of(self._indices[index]) if isinstance(self._examples, Sliced) else 0

    def __len__(self) -> int:
        return len(self._indices)

    def at(self, index: int) -> Example:
        place = self._indices[index]
        return self._changed[place] if place in self._changed else self._examples[place]


class WithSystem(Sliced):
    """The examples with a system message before every chat that has none; a prompt that is text becomes a chat."""

    def __init__(self, examples: Sequence[Example], system: str) -> None:
        self._examples, self._system = examples, {"role": "system", "content": system}

    def __len__(self) -> int:
        return len(self._examples)

    def file_of(self, index: int) -> int:
        return self._examples.file_of(index) if isinstance(self._examples, Sliced) else 0

    def at(self, index: int) -> Example:
        example = self._examples[index]
        chat = [{"role": "user", "content": example.prompt}] if isinstance(example.prompt, str) else example.prompt
        if any(message["role"] == "system" for message in chat):
            return example
        return dataclasses.replace(example, prompt=[self._system, *chat])


class FittingPrompts(NamedTuple):
    """The examples whose prompts fit, and how many did not (and were left out, or were cut)."""

    examples: Sequence[Example]
    overlong: int


def filter_prompts(
    examples: Sequence[Example],
    lengths: Callable[[list[Prompt]], Sequence[int]],
    max_prompt_tokens: int,
    overlong: Literal["filter", "cut", "error"] = "filter",
) -> FittingPrompts:
    """Keep every prompt within `max_prompt_tokens` as counted by `lengths`, a thousand at a time.

    `filter` leaves an over-long one out, `cut` keeps as much of the end of a text prompt as fits, `error` refuses it.
    """
    if overlong not in ("filter", "cut", "error"):
        raise UnknownNameError("way with over-long prompts", overlong, ["filter", "cut", "error"])
    indices: list[int] = []
    cut: dict[int, Example] = {}
    for index, (example, tokens) in enumerate(_counted(examples, lengths)):
        if tokens > max_prompt_tokens:
            if overlong == "filter":
                continue
            if overlong == "error" or not isinstance(example.prompt, str):
                chat = "" if overlong == "error" else ", and a chat cannot be cut"
                raise DataError(
                    f"the prompt of {example.uid} has {tokens} tokens where {max_prompt_tokens} are allowed{chat}; "
                    "allow more, or leave such prompts out with overlong=filter."
                )
            cut[index] = dataclasses.replace(example, prompt=_longest_end(example.prompt, lengths, max_prompt_tokens))
        indices.append(index)
    if not indices:
        raise DataError(
            f"every one of the {len(examples)} prompts is longer than {max_prompt_tokens} tokens; allow more, or cut."
        )
    return FittingPrompts(Selected(examples, indices, cut), len(examples) - len(indices) + len(cut))


def _counted(
    examples: Iterable[Example], lengths: Callable[[list[Prompt]], Sequence[int]]
) -> Iterator[tuple[Example, int]]:
    """Every example with the tokens of its prompt."""
    every = iter(examples)
    while part := list(islice(every, AT_ONCE)):
        yield from zip(part, lengths([example.prompt for example in part]), strict=True)


def _longest_end(text: str, lengths: Callable[[list[Prompt]], Sequence[int]], most: int) -> str:
    """The longest end of the text, to the character, that has at most `most` tokens."""

    def fits(at: int) -> bool:
        return lengths([text[at:]])[0] <= most

    start = bisect.bisect_left(range(len(text)), True, key=fits)
    # Merges of a tokenizer can make a shorter text longer in tokens, so this start is only nearly right.
    while start < len(text) and not fits(start):
        start += 1
    if start == len(text):
        raise DataError(f"not one character of a prompt fits into {most} tokens; allow longer prompts.")
    return text[start:]
