"""Names that are nearly ours: taken where they can mean one thing only, suggested where a column is missing."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from mingce.base.errors import ColumnError
from mingce.importers.aliases import OTHERS, ROWS, SETTINGS, TOKENS
from mingce.importers.limits import short
from mingce.importers.objects import plain

MOST_NAMES, MOST_LETTERS, DEPTH = 30, 40, 3
_TABLES = (TOKENS, ROWS, SETTINGS, OTHERS)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_LOG_PROB = re.compile(r"log_?p(?:rob(?:abilitie|ability)?)?s?(?![a-z])")


class MissingColumn(ColumnError):
    """A column that its reader cannot do without; the message lacks what was found instead, and a full stop."""

    def __init__(self, message: str, column: str):
        super().__init__(message, column=column)


def meaning(name: str) -> str | None:
    """What a name of any table stands for."""
    return TOKENS.get(name) or ROWS.get(name)


def snake(name: str) -> str:
    """responseMask, Response-Mask and _response__mask_ as response_mask."""
    words = _HUMP.sub("_", name[:200]).lower()
    return re.sub(r"[\s._-]+", "_", words).strip("_")


def words(name: str) -> list[str]:
    """The words of a name; log-prob is one, however it is written."""
    return _LOG_PROB.sub("logprob", snake(name)).split("_")


def squashed(name: str) -> str:
    """What is left of a name without underscores, plural and the ways to write log-prob."""
    return "".join(words(name)).removesuffix("s")


def _by_squashed() -> dict[str, str]:
    """Squashed → a token column's name that has it, where all names that have it mean the same."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(TOKENS):
        found[squashed(name)].append(name)
    return {key: names[0] for key, names in found.items() if len({TOKENS[name] for name in names}) == 1}


_SQUASHED = _by_squashed()
_WORDS = {tuple(words(name)): name for name in _SQUASHED.values()}


def known_name(name: str) -> str | None:
    """The name of ours or of a trainer that an unknown one can only be."""
    if any(name in table for table in _TABLES):
        return None
    plainly = snake(name)
    if any(plainly in table for table in _TABLES):
        return plainly
    return _SQUASHED.get(squashed(name))


def renamed(data: Any, taken: dict[str, str], depth: int = 0) -> Any:
    """The content with its near names replaced, in whatever dict they stand; `taken` gets theirs → ours."""
    data = plain(data, "", "")
    if depth > DEPTH or not isinstance(data, dict | list | tuple):
        return data
    if not isinstance(data, dict):
        dicts = bool(data) and all(isinstance(plain(one, "", ""), dict) for one in data)
        return [renamed(one, taken, depth + 1) for one in data] if dicts else data
    there = {meaning(key) for key in data if isinstance(key, str)} - {None}
    offered: defaultdict[str, list[str]] = defaultdict(list)
    for key in data:
        if isinstance(key, str) and (name := known_name(key)) and name not in data:
            offered[meaning(name) or name].append(key)
    names = {keys[0]: known_name(keys[0]) for meant, keys in offered.items() if len(keys) == 1 and meant not in there}
    taken |= {key: name for key, name in names.items() if name}
    inner = {key for key, value in data.items() if _holds_names(value)}
    return {
        names.get(key, key): renamed(value, taken, depth + 1) if key in inner else value for key, value in data.items()
    }


def _holds_names(value: Any) -> bool:
    """Whether dicts stand in it; tensors are left as they are, unread."""
    if isinstance(value, list | tuple):
        return bool(value) and isinstance(plain(value[0], "", ""), dict)
    return isinstance(value, dict) or (hasattr(value, "state") and isinstance(plain(value, "", ""), dict))


def names_in(data: Any, depth: int = 0) -> list[str]:
    """The names that the content holds, those one dict deeper after the others."""
    data = plain(data, "", "")
    if isinstance(data, list | tuple) and data:
        data = plain(data[0], "", "")
    if not isinstance(data, dict) or depth > DEPTH:
        return []
    own = [key for key in data if isinstance(key, str)]
    deeper = [name for value in data.values() if _holds_names(value) for name in names_in(value, depth + 1)]
    return list(dict.fromkeys([*own, *deeper]))


def unknown_columns(data: Any, depth: int = 0) -> list[str]:
    """The names in the content that no table has and that hold a column, tensors or lists."""
    data = plain(data, "", "")
    if not isinstance(data, dict) or depth > DEPTH:
        return []
    found: list[str] = []
    for key, value in data.items():
        if isinstance(plain(value, "", "") if hasattr(value, "state") else value, dict):
            found += unknown_columns(value, depth + 1)
        elif isinstance(key, str) and not isinstance(value, str | int | float | None):
            found.append(key)
    return [name for name in found if not any(name in table for table in _TABLES)]


def suggestion(name: str) -> str | None:
    """The column of ours that an unknown name may be: its words cut short, or a slip of the pen."""
    if any(name in table for table in _TABLES) or len(key := squashed(name)[:60]) < 3:
        return None
    mine = words(name)
    cut = [known for known in _WORDS if len(known) == len(mine) and all(map(_cut_short, mine, known))]
    if cut:
        return TOKENS[_WORDS[min(cut, key=lambda known: sum(map(len, known)))]]
    near = difflib.get_close_matches(key, _SQUASHED, n=1, cutoff=0.8)
    return TOKENS[_SQUASHED[near[0]]] if near else None


def _cut_short(short_word: str, word: str) -> bool:
    """Whether a word is left of another by leaving letters out, but not the first: adv, msk, lp."""
    letters = iter(word)
    return short_word[:1] == word[:1] and all(letter in letters for letter in short_word.removesuffix("s"))


def suggestions(names: Iterable[str], there: Iterable[str]) -> dict[str, str]:
    """Theirs → ours for unknown names, one for each column that is not there."""
    found: dict[str, str] = {}
    for name in list(names)[:200]:
        ours = suggestion(name)
        if ours and ours not in there and ours not in found.values():
            found[name] = ours
    return found


def mapping_line(found: dict[str, str]) -> str:
    """What a mapping file says to read these names."""
    pairs = ", ".join(f"{_clipped(theirs)}: {ours}" for theirs, ours in list(found.items())[:6])
    return f"columns: {{{pairs}}}"


def listing(names: list[str]) -> str:
    """The names that were found, as a sentence may hold them."""
    shown = ", ".join(_clipped(name) for name in names[:MOST_NAMES]) or "nothing that has a name"
    return shown + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")


def _clipped(name: str) -> str:
    name = short(name)
    return name if len(name) <= MOST_LETTERS else name[: MOST_LETTERS - 1] + "…"


def about_missing(names: list[str], column: str) -> str:
    """What was found instead of a column, and the line that names it if one of them is it."""
    offered = suggestions(names, ())
    wanted = {theirs: ours for theirs, ours in offered.items() if ours == meaning(column) or ours == column}
    said = f"it has {listing(names)}"
    if wanted or offered:
        line = mapping_line(wanted or offered)
        said += f"; if that is meant, write `{line}` into a file names.yaml and add --mapping names.yaml"
    return said
