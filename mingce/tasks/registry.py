"""Tasks by name: an embedded one, a set that is read or generated, or a path to data files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mingce.base.errors import DataError, SettingError, UnknownNameError
from mingce.tasks.base import Example, Score, Task

NAMES = ("arithmetic", "counting", "gsm8k:PATH", "reasoning_gym:NAME")


def load_task(
    name: str | Sequence[str],
    *,
    lang: str = "zh",
    seed: int = 0,
    held_out: str | Sequence[str] | None = None,
    function: str | None = None,
    full_marks: float = 1.0,
    scored_by_model: bool = False,
    chat: bool = True,
    size: int = 1000,
    held_out_size: int = 100,
    options: Mapping[str, Any] | None = None,
) -> Task:
    """The task of that name; what a kind of task has no use for is ignored by it.

    - `arithmetic`, `counting`: embedded, in `lang`.
    - `gsm8k:PATH`: a file, or a directory with `train*` and `test*` files; questions as `chat` or as text.
    - `reasoning_gym:NAME`: `size` and `held_out_size` generated problems of that kind, with its own `options`.
    - a path or several: data files with verl's columns, scored by `function` (`file.py[:name]`), an answer being right
      from `full_marks` on; or not scored at all (`scored_by_model`) where a reward model does it.

    `held_out` files are for validation; without them a part of the files, drawn by `seed`, is kept apart.
    """
    if isinstance(name, str):
        kind, _, rest = name.partition(":")
        if name == "arithmetic":
            from mingce.tasks.arithmetic import Arithmetic

            return Arithmetic(lang)
        if name == "counting":
            from mingce.tasks.counting import Counting

            return Counting(lang)
        if kind == "reasoning_gym" and rest:
            from mingce.tasks.reasoning_gym import ReasoningGym

            return ReasoningGym(rest, size=size, held_out=held_out_size, seed=seed, chat=chat, options=options)
        if kind == "gsm8k" and rest:
            from mingce.tasks.gsm8k import gsm8k

            train, apart = _gsm8k_files(Path(rest))
            return gsm8k(train, _paths(held_out) or apart, chat=chat, seed=seed)
        if not Path(name).suffix and not Path(name).exists():
            raise UnknownNameError("task", name, [*NAMES, "or a data file"])
    return _from_files(_paths(name), _paths(held_out), seed, function, full_marks, scored_by_model)


def _from_files(
    train: Sequence[str],
    held_out: Sequence[str],
    seed: int,
    function: str | None,
    full_marks: float,
    scored_by_model: bool,
) -> Task:
    from mingce.tasks.data import verl_examples
    from mingce.tasks.file_task import FileTask, Scorer
    from mingce.tasks.function import FunctionScorer

    if function is not None and scored_by_model:
        raise SettingError("data are scored by a function or by a reward model; leave out one, or add them as rewards.")
    scorer: Scorer | None = FunctionScorer(function) if function is not None else unscored if scored_by_model else None
    examples = verl_examples(train)
    apart = verl_examples(held_out) if held_out else None
    if scorer is None:
        from mingce.tasks.gsm8k import DATA_SOURCE, gsm8k

        for source in [*examples.data_sources, *(apart.data_sources if apart else [])]:
            if source != DATA_SOURCE:
                raise DataError(
                    f"there is no built-in scorer for data_source '{source}' of {train[0]}; "
                    "give a reward function of your own as path/to/file.py."
                )
        return gsm8k(train, held_out or None, seed=seed)
    return FileTask(Path(train[0]).stem, examples, apart, scorer, full_marks, seed)


def unscored(example: Example, response: str) -> Score:
    """Nothing: the score of these examples comes from a reward model."""
    return Score(0.0)


def _paths(paths: str | Sequence[str] | None) -> list[str]:
    return [] if paths is None else [paths] if isinstance(paths, str) else list(paths)


def _gsm8k_files(path: Path) -> tuple[list[str], list[str]]:
    """The training and test files at a path: a directory's `train*` and `test*`, or the one file itself."""
    from mingce.tasks.rows import READERS

    if not path.is_dir():
        return [str(path)], []
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in READERS)
    train, test = ([str(file) for file in files if file.name.startswith(split)] for split in ("train", "test"))
    if not train:
        raise DataError(f"{path} has no file train*.jsonl, .json or .parquet; name the file itself.")
    return train, test
