"""The files that a setting names: one file, a directory as data sets are shared in, or a pattern.

A directory is read as the one set it holds, whichever layout it was saved in: `train.jsonl` beside `test.jsonl`,
`data/train-00000-of-00002.parquet`, `train/data-00000-of-00001.arrow`. Which split a file belongs to is said by its own
name or by that of a folder above it.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from pathlib import Path

from mingce.base.errors import DataError
from mingce.tasks.rows import PACKED, data_suffix

TRAIN = ("train",)
HELD_OUT = ("validation", "valid", "val", "dev", "test", "eval")
"""Whose first that is there is used."""
_SHARD = re.compile(r"([-_]\d{5,})?([-_]of[-_]\d+)?$")
_NUMBER = re.compile(r"[-_.\d]+$")
_PLAIN = {"", "data", "dataset", "default", "main", "part", "shard", "snapshots"}
_COMMIT = re.compile("[0-9a-f]{40}")
_ORDER = (".parquet", ".arrow", ".jsonl", ".csv", ".tsv", ".json")


def names_data(text: str) -> bool:
    """Whether a task's name is a data file, a directory of them or a pattern."""
    path = Path(text).expanduser()
    return data_suffix(path) is not None or _is_pattern(text) or path.is_dir()


def files_of(name: str | Path, held_out: bool = False) -> list[Path]:
    """The files of one entry of data.train, or of data.held_out; a single file is taken as it is, there or not."""
    path = Path(name).expanduser()
    if _is_pattern(str(path)) and not path.exists():
        found = sorted(Path(file) for file in glob.glob(str(path), recursive=True))
        found = [file for file in found if file.is_file()]
        if not found:
            raise DataError(f"no file fits {name}; check the pattern.")
        return found
    if not path.is_dir():
        return [path]
    splits = _splits(path)
    for split in HELD_OUT if held_out else TRAIN:
        if split in splits:
            return splits[split]
    if "" not in splits:
        wanted = "held-out" if held_out else "training"
        raise DataError(f"{path} has no {wanted} files ({_there(splits)}); name the files themselves.")
    return splits[""]


def own_held_out(names: Sequence[str | Path]) -> list[str]:
    """The names again if every one is a directory that has a split for validation, else none."""
    directories = [Path(name).expanduser() for name in names]
    if not all(path.is_dir() and any(split in _splits(path) for split in HELD_OUT) for path in directories):
        return []
    return [str(name) for name in names]


def set_name(path: Path) -> str:
    """What to call the set of a file: the file's name, or that of the nearest folder that says more than a split."""
    stem = Path(path.name.removesuffix(PACKED)).stem
    for name in (stem, *(folder.name for folder in path.absolute().parents)):
        plain = _SHARD.sub("", name)
        if _NUMBER.sub("", plain).lower() not in _PLAIN and _split_of(name) is None and not _COMMIT.fullmatch(name):
            return plain.rpartition("--")[2]
    return stem


def _is_pattern(text: str) -> bool:
    return any(sign in text for sign in "*?") or bool(re.search(r"\[[^]]+\]", text))


def _splits(directory: Path) -> dict[str, list[Path]]:
    """The data files of a directory by split, `""` for those of none; all of one kind and one set."""
    files = [
        file
        for file in sorted(directory.rglob("*"))
        if data_suffix(file) is not None
        and file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(directory).parts)
    ]
    kind = next((suffix for suffix in _ORDER if any(data_suffix(file) == suffix for file in files)), None)
    if kind is None:
        raise DataError(f"{directory} holds no data files ({', '.join(_ORDER)}); check the path.")
    files = [file for file in files if data_suffix(file) == kind]
    sets = {_set_folder(file.relative_to(directory)) for file in files}
    if len(sets) > 1:
        offers = ", ".join(str(directory / folder) for folder in sorted(map(str, sets)))
        raise DataError(f"{directory} holds several sets; name one of {offers}.")
    found: dict[str, list[Path]] = {}
    for file in files:
        parts = [file.name, *reversed(file.relative_to(directory).parts[:-1])]
        split = next((split for part in parts if (split := _split_of(part)) is not None), "")
        found.setdefault(split, []).append(file)
    return found


def _set_folder(file: Path) -> Path:
    """The folder of a file without those that only say its split or nothing."""
    parts = list(file.parts[:-1])
    while parts and (_split_of(parts[-1]) is not None or parts[-1] == "data"):
        parts.pop()
    return Path(*parts)


def _split_of(name: str) -> str | None:
    """The split that a name begins with, as whole words."""
    first = re.split(r"[-_.\d]", name.lower())[0]
    return first if first in (*TRAIN, *HELD_OUT) else None


def _there(splits: dict[str, list[Path]]) -> str:
    return ", ".join(file.name for files in splits.values() for file in files[:3])
