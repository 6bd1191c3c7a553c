"""Tasks by name: an embedded one, a set that is read or generated, or a path to data files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mingce.base.errors import DataError, SettingError, UnknownNameError
from mingce.base.user_files import names_file
from mingce.tasks.base import Example, Score, Task
from mingce.tasks.data_columns import Keys, examples_of
from mingce.tasks.data_files import files_of, names_data, own_held_out, set_name

EMBEDDED = ("arithmetic", "calculator", "counting", "search")
SKYRL = "skyrl_gym:"
NAMES = (
    *EMBEDDED, "gsm8k:PATH", "reasoning_gym:NAME", "reasoning_gym_turns:NAME", "textarena:NAME", f"{SKYRL}NAME",
    "verifiers:NAME", "file.py:NAME",
)  # fmt: skip


def names_files(task: str) -> bool:
    """Whether a task's name is one of data files, a directory or a pattern of them."""
    return task not in EMBEDDED and names_data(task)


def load_task(
    name: str | Sequence[str],
    *,
    environment: str | None = None,
    tools: Sequence[str] = (),
    mcp: Sequence[str] = (),
    **settings: Any,
) -> Task:
    """The task of that name (`find_task`), with tools (`file.py:name`, `python`, MCP servers) where there are some.

    `environment` (`skyrl_gym:NAME`) puts the task's examples into an environment of that name.
    """
    if environment is not None:
        from mingce.tasks.skyrl_gym_envs import SkyRLGym

        options = settings.pop("options", None)
        task: Task = SkyRLGym(environment.removeprefix(SKYRL), find_task(name, **settings), options)
    else:
        task = find_task(name, **settings)
    if not tools and not mcp:
        return task
    from mingce.tasks.tools import WithTools, load_tools

    return WithTools(task, load_tools(tools, mcp))


def find_task(
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
    keys: Keys | None = None,
) -> Task:
    """The task of that name; what a kind of task has no use for is ignored by it.

    - `arithmetic`, `counting`, `calculator` (with a tool): embedded, in `lang`.
    - `gsm8k:PATH`: a file, or a directory of its splits; questions as `chat` or as text.
    - `reasoning_gym:NAME`: `size` and `held_out_size` generated problems of that kind, with its own `options`;
      `reasoning_gym_turns:NAME`: wrong answers may be tried again.
    - `textarena:NAME`: as many games of one player, with the game's own `options`.
    - `file.py:name`: what that function returns for the `options`, a task of the person's own.
    - a path or several: data files, directories or patterns of them, with the columns that `keys` name, scored by
      `function` (`file.py[:name]`), an answer being right from `full_marks` on; or not scored at all
      (`scored_by_model`) where a model does it.

    `held_out` files are for validation; without them the held-out split of the directories, or a part of the files,
    drawn by `seed`, that is kept apart.
    """
    if isinstance(name, str):
        kind, _, rest = name.partition(":")
        if kind == "gsm8k" and rest:
            from mingce.tasks.gsm8k import gsm8k

            return gsm8k([rest], _paths(held_out) or own_held_out([rest]), chat=chat, seed=seed)
        made: dict[str, Any] = {"size": size, "held_out": held_out_size, "options": options}
        task = _embedded(name, lang, options) or (
            _generated(kind, rest, chat=chat, seed=seed, **made) if rest else None
        )
        if task is not None:
            return task
        if name.startswith(SKYRL):
            raise DataError(f"{name} has no questions of its own; name files of them by data.train=[rows.jsonl].")
        if names_file(name):
            from mingce.tasks.own_task import own_task

            return own_task(name, options)
        if not Path(name).suffix and not names_data(name):
            raise UnknownNameError("task", name, [*NAMES, "or data files"])
    files = _paths(name)
    apart = _paths(held_out) or own_held_out(files)
    return _from_files(files, apart, keys or Keys(chat=chat), seed, function, full_marks, scored_by_model)


def _embedded(name: str, lang: str, options: Mapping[str, Any] | None) -> Task | None:
    """A task that comes with the package."""
    if name == "arithmetic":
        from mingce.tasks.arithmetic import Arithmetic

        return Arithmetic(lang)
    if name == "counting":
        from mingce.tasks.counting import Counting

        return Counting(lang)
    if name == "calculator":
        from mingce.tasks.calculator import Calculator

        return Calculator(lang, options)
    if name == "search":
        from mingce.tasks.search.task import Search

        return Search(lang, options)
    return None


def _generated(kind: str, rest: str, *, chat: bool, seed: int, **made: Any) -> Task | None:
    """So many problems, games or conversations of one of the packages that make them."""
    if kind == "reasoning_gym":
        from mingce.tasks.reasoning_gym import ReasoningGym

        return ReasoningGym(rest, chat=chat, seed=seed, **made)
    if kind == "reasoning_gym_turns":
        from mingce.tasks.gym_turns import GymTurns

        return GymTurns(rest, chat=chat, seed=seed, **made)
    if kind == "textarena":
        from mingce.tasks.textarena_games import TextArena

        return TextArena(rest, chat=chat, seed=seed, **made)
    if kind == "verifiers":
        from mingce.tasks.verifiers_envs import Verifiers

        return Verifiers(rest, **made)
    return None


def _from_files(
    train: Sequence[str],
    held_out: Sequence[str],
    keys: Keys,
    seed: int,
    function: str | None,
    full_marks: float,
    scored_by_model: bool,
) -> Task:
    from mingce.tasks.file_task import FileTask, Scorer
    from mingce.tasks.function import FunctionScorer

    if function is not None and scored_by_model:
        raise SettingError("data are scored by a function or by a reward model; leave out one, or add them as rewards.")
    scorer: Scorer | None = FunctionScorer(function) if function is not None else unscored if scored_by_model else None
    if scorer is None and not any(keys.named) and _all_gsm8k(train, held_out):
        from mingce.tasks.gsm8k import gsm8k

        return gsm8k(train, held_out or None, chat=keys.chat, seed=seed)
    examples = examples_of(train, keys)
    apart = examples_of(held_out, keys, held_out=True) if held_out else None
    if scorer is None:
        from mingce.tasks.gsm8k import DATA_SOURCE, gsm8k

        for source in [*examples.data_sources, *(apart.data_sources if apart else [])]:
            if source != DATA_SOURCE:
                raise DataError(
                    f"there is no built-in scorer for data_source '{source}' of {train[0]}; "
                    "give a reward function of your own (reward.function=path/to/file.py), or a model that scores "
                    "(reward.model, reward.judge.url)."
                )
        return gsm8k(train, held_out or None, seed=seed)
    return FileTask(set_name(files_of(train[0])[0]), examples, apart, scorer, full_marks, seed)


def _all_gsm8k(train: Sequence[str], held_out: Sequence[str]) -> bool:
    """Whether every file is GSM8K as it comes, with `question` and `answer`."""
    from mingce.tasks.gsm8k import is_raw
    from mingce.tasks.rows import open_rows

    files = [*(files_of(name) for name in train), *(files_of(name, held_out=True) for name in held_out)]
    return all(is_raw(open_rows(file)) for found in files for file in found)


def unscored(example: Example, response: str) -> Score:
    """Nothing: the score of these examples comes from a reward model."""
    return Score(0.0)


def _paths(paths: str | Sequence[str] | None) -> list[str]:
    return [] if paths is None else [paths] if isinstance(paths, str) else list(paths)
