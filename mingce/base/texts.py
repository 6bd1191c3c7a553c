"""The package's prose: Markdown files in mingce/texts, one per language, from which code takes a text by its key.

A file `name.zh.md` has its twin `name.en.md` with the same headings and the same `{placeholders}`:

    ## key         the text down to the next heading
    ### part       a text of its own, whose key is `key.part`

What stands before the first `##` is for the reader, or a topic's title. A list of short texts is written `- text`, or
`- name: text` where each has a name. Short sentences of the interface are such lists alone: `texts/sentences/<file>`,
a line per sentence, such as `sentence("training.no_checkpoint")`. Files are read when a text of theirs is first needed.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from mingce.base.lang import display_lang

_HEADING = re.compile(r"^(#{2,3}) (\S+)$", re.MULTILINE)


@cache
def texts(name: str, lang: str) -> dict[str, str]:
    """All texts of a file by key; the part before the first heading has the key ''."""
    return parsed((files("mingce") / "texts" / f"{name}.{lang}.md").read_text(encoding="utf-8"))


def exists(name: str) -> bool:
    """Whether there is such a file."""
    return (files("mingce") / "texts" / f"{name}.zh.md").is_file()


def parsed(markdown: str) -> dict[str, str]:
    """The texts of a file. Blank lines around a text are not part of it, an indent is."""
    before, *parts = _HEADING.split(markdown)
    found = {"": before.strip("\n")}
    above = ""
    for marks, heading, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        above = heading if marks == "##" else above
        key = heading if marks == "##" else f"{above}.{heading}"
        if key in found:
            raise ValueError(f"the heading '{key}' stands twice")
        found[key] = body.strip("\n")
    return found


def pair(name: str, key: str) -> tuple[str, str]:
    """A text in Chinese and in English."""
    return texts(name, "zh")[key], texts(name, "en")[key]


def parts(name: str, key: str) -> dict[str, tuple[str, str]]:
    """The texts under the `###` of a `## key`, in both languages."""
    found = (known.rpartition(".") for known in texts(name, "zh"))
    return {part: pair(name, f"{key}.{part}") for above, _, part in found if above == key}


def listed(text: str) -> tuple[str, ...]:
    """The entries of a list, one per line."""
    return tuple(line.removeprefix("- ") for line in text.splitlines())


def named(text: str) -> dict[str, str]:
    """The entries of a list by their names."""
    entries = (entry.partition(": ") for entry in listed(text))
    return {name: said for name, _, said in entries}


@cache
def sentences(file: str, lang: str) -> dict[str, str]:
    """The short sentences of a file by name."""
    _, _, entries = texts(f"sentences/{file}", lang)[""].partition("\n")
    return named(entries.strip("\n"))


def sentence(key: str, lang: str | None = None, /, **values: object) -> str:
    """The sentence `file.name` with its values put in; in the display language unless another is given."""
    file, _, name = key.partition(".")
    return sentences(file, lang or display_lang())[name].format(**values)


def sentence_pair(key: str, /, **values: object) -> tuple[str, str]:
    """The sentence in Chinese and in English; so is a value that is itself such a pair."""
    zh, en = ({name: one[at] if type(one) is tuple else one for name, one in values.items()} for at in (0, 1))
    return sentence(key, "zh", **zh), sentence(key, "en", **en)
