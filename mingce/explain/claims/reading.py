"""A dialogue, or any text, as passages of statements: lines joined where a list or an equation goes on in the next."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mingce.explain.claims.plain import plain
from mingce.explain.claims.quantities import Where
from mingce.explain.dialogue import is_dialogue, parse_turns

LONGEST_LINE = 20_000
LONGEST_JOIN = 4_000
MOST_JOINED = 80
LEAST_WRAPPED = 60
_UNENDED = re.compile(r"[A-Za-z,，、一-鿿]$")
_PROSE = re.compile(r"(?:[a-z]{2,}(?:[ ,.]|$)|[一-鿿])")


@dataclass(frozen=True)
class Statement:
    """One line, or several that belong together. `text` is plain (plain.py); `parts` are (offset, line number)."""

    text: str
    raw: str
    parts: tuple[tuple[int, int], ...]
    section: int
    heading: str
    fenced: bool

    @property
    def line(self) -> int:
        """The first line's number in the file."""
        return self.parts[0][1]

    def line_at(self, offset: int) -> int:
        """The line on which a character of `text` stands."""
        return self.parts[max(0, bisect_right([start for start, _ in self.parts], offset) - 1)][1]

    def raw_line_at(self, offset: int) -> str:
        """The file's own words there."""
        return self.raw.split("\n")[max(0, bisect_right([start for start, _ in self.parts], offset) - 1)]


@dataclass(frozen=True)
class Passage:
    """What one of the two said in a question; `by_user` is None, and `question` 0, in a text that is no dialogue."""

    question: int
    by_user: bool | None
    statements: tuple[Statement, ...]

    def where(self, statement: Statement, offset: int = 0, doubtful: bool = False, supposed: bool = False) -> Where:
        """The place of a character of a statement."""
        quote = statement.raw_line_at(offset).strip()
        line = statement.line_at(offset)
        return Where(self.question, self.by_user, statement.section, line, quote, statement.heading, doubtful, supposed)


def passages(text: str, path: Path | None = None) -> list[Passage]:
    """A dialogue's turns, or the whole text as one passage."""
    if not is_dialogue(text):
        return [passage_of(text)]
    _, turns = parse_turns(text, path)
    return [Passage(turn.number, turn.by_user, tuple(_statements(turn.text.split("\n"), turn.line))) for turn in turns]


def passage_of(text: str) -> Passage:
    """A text that is no dialogue, as one passage."""
    return Passage(0, None, tuple(_statements(text.split("\n"), 1)))


_HEADING = re.compile(r"\s{0,3}#{1,6}\s+(.{1,200})")
_RULE = re.compile(r"\s{0,3}(?:-{3,}|={3,}|\*{3,})\s*$")
_FENCE = re.compile(r"\s{0,6}(?:```|~~~)")
_GOES_ON = re.compile(r"\s*(?:#\s{0,4})?(?:&\s{0,4})?[=≈≜](?![=>])")
_COMMENT = re.compile(r"\s#\s.*$")


def _statements(lines: Sequence[str], first: int) -> Iterator[Statement]:
    section, heading, fenced = 0, "", False
    at = 0
    while at < len(lines):
        line = lines[at].rstrip("\r")
        if _FENCE.match(line):
            fenced = not fenced
            at += 1
            continue
        if not fenced and (found := _HEADING.match(line)):
            section, heading = section + 1, found[1]
        elif not fenced and _RULE.match(line):
            section, heading = section + 1, ""
            at += 1
            continue
        if not line.strip():
            at += 1
            continue
        end = _end(lines, at, fenced)
        yield _joined([piece.rstrip("\r") for piece in lines[at:end]], first + at, section, heading, fenced)
        at = end


def _wrapped(line: str, following: str) -> bool:
    """True if a sentence goes on in the next line: a long line of words that does not end, and then words."""
    return (
        len(line) >= LEAST_WRAPPED
        and "|" not in line + following
        and _UNENDED.search(line) is not None
        and _PROSE.match(following) is not None
    )


def _end(lines: Sequence[str], at: int, fenced: bool) -> int:
    """The first line that does not belong to the statement which begins at `at`."""
    end, size, depth = at + 1, len(lines[at]), _depth(lines[at])
    while end < len(lines) and end - at < MOST_JOINED and size < LONGEST_JOIN:
        following = lines[end]
        if _FENCE.match(following) or not following.strip():
            break
        if depth <= 0 and not _GOES_ON.match(following) and (fenced or not _wrapped(lines[end - 1], following)):
            break
        if depth > 0 and _HEADING.match(following) and not _GOES_ON.match(following):
            break
        size, depth, end = size + len(following), depth + _depth(following), end + 1
    return end


def _depth(line: str) -> int:
    """How many lists a line leaves open."""
    line = line.replace("\\[", "").replace("\\]", "")
    return line.count("[") - line.count("]")


def _joined(lines: Sequence[str], number: int, section: int, heading: str, fenced: bool) -> Statement:
    texts: list[str] = []
    parts: list[tuple[int, int]] = []
    offset = 0
    for place, line in enumerate(lines):
        line = line[:LONGEST_LINE]
        if place:
            line = re.sub(r"^(\s*)#(?=\s{0,4}[=≈≜])", r"\1", line)
        if place < len(lines) - 1:
            line = _COMMENT.sub("", line)
        parts.append((offset, number + place))
        texts.append(plain(line))
        offset += len(texts[-1]) + 1
    return Statement(" ".join(texts), "\n".join(lines), tuple(parts), section, heading, fenced)
