"""A prompt as the conversation that a chat template made of it: who says what, and what is the template's own.

    <|im_start|>system⏎ Be brief. <|im_end|>⏎<|im_start|>user⏎ 1+1? <|im_end|>⏎<|im_start|>assistant⏎
    template            system    template                     user template

Turns are told by their headers, and headers by structure: a marker and a role's name (ChatML, Llama 3, Gemma, Phi-4,
Granite, harmony), a marker that is a role (Phi-3, DeepSeek, GLM, Command R), or Mistral's brackets. Markers are the
tokenizer's own special tokens, where one is at hand, and what looks like one. No template is executed. What has no
header is a text of nobody's, and all of it is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

TEMPLATE, NOBODY = "template", ""
SYSTEM, USER, ASSISTANT, TOOL = "system", "user", "assistant", "tool"
MAX_MARKERS, MAX_MARKER = 4000, 64
REMEMBERED = 20_000  # characters of a prompt whose question is kept

_NAMES = {
    SYSTEM: ("system",),
    "developer": ("developer",),
    USER: ("user", "human", "prompter", "用户"),
    ASSISTANT: ("assistant", "model", "bot", "chatbot", "ai", "gpt", "助手"),
    TOOL: ("tool", "tools", "ipython", "observation", "function", "environment", "tool_response", "tool_results"),
}
_ROLES = {name: role for role, names in _NAMES.items() for name in names}
_OPENERS = {"im_start", "start_header_id", "header_start", "start_of_turn", "start_of_role", "start", "turn"}
_BRACKETS = {
    "[INST]": USER, "[/INST]": ASSISTANT, "[SYSTEM_PROMPT]": SYSTEM, "[/SYSTEM_PROMPT]": TEMPLATE, "<<SYS>>": SYSTEM,
    "<</SYS>>": USER, "[AVAILABLE_TOOLS]": TOOL, "[/AVAILABLE_TOOLS]": TEMPLATE, "[TOOL_RESULTS]": TOOL,
    "[/TOOL_RESULTS]": ASSISTANT,
}  # fmt: skip
"""Markers that open and close, and whose text follows them."""
_COMMON = (
    r"<\|[^|<>\s]{1,40}\|?>", r"<[^|<>\s]{1,40}\|>", r"<｜[^｜<>\s]{1,40}｜>", r"\[\|[a-z]{1,20}\|\]", r"</?s>",
    r"<(?:bos|eos|pad|sop|start_of_turn|end_of_turn)>", r"\[gMASK\]", *map(re.escape, _BRACKETS),
)  # fmt: skip
_WORD = re.compile(r" ?([^\W\d][\w-]{0,30})(?: to=[\w.]{1,60})?")
_CHANNEL = re.compile(r"<\|channel\|>[^<\n]{0,60}<\|message\|>|<\|message\|>")
_BARE_LINE = re.compile(r"(?:\A|\n)(system|user|assistant|model|tool)\n")
_BARE_GAP = re.compile(r"(system|user|assistant|ipython)\n\n")
"""Where turns begin in a text whose markers were left out when it was decoded: ChatML and Gemma, Llama 3."""


@dataclass(frozen=True)
class Part:
    """A piece of a prompt: one turn's text, the template's own, or a text of nobody's; `tokens` if they are known."""

    role: str
    text: str
    tokens: int | None = None


class _Header(NamedTuple):
    start: int
    end: int
    role: str


class Markers:
    """What a template's tokens look like: those of a tokenizer, by their texts, and the common ones."""

    def __init__(self, special: Iterable[str] = ()):
        own = sorted({text for text in special if 1 < len(text) <= MAX_MARKER and not text.isspace()}, key=len)
        escaped = (re.escape(text) for text in reversed(own[:MAX_MARKERS]))
        self.pattern = re.compile("|".join((*escaped, *_COMMON)))


COMMON = Markers()


def conversation(text: str, markers: Markers = COMMON) -> list[Part]:
    """The parts of a prompt, in order; their texts put together are the prompt."""
    found = [match.span() for match in markers.pattern.finditer(text)]
    headers = _headers(text, found) if found else _bare_headers(text)
    ends = {end: start for start, end in found}
    parts: list[Part] = []
    first = headers[0].start if headers else len(text)
    _add(parts, text, _after_markers(text, found, first), first, SYSTEM if headers else NOBODY, ends)
    for place, (start, end, role) in enumerate(headers):
        following = headers[place + 1].start if place + 1 < len(headers) else len(text)
        _append(parts, TEMPLATE, text[start:end])
        _add(parts, text, end, following, role, ends)
    return parts if any(part.role != TEMPLATE for part in parts) or not text else [Part(NOBODY, text)]


def question(parts: Sequence[Part]) -> str:
    """What was asked: the last user's message, without template and system prompt; a text of nobody's as a whole."""
    for roles in ((USER,), (NOBODY,), (SYSTEM, TOOL, "developer")):
        for part in reversed(parts):
            if part.role in roles and part.text.strip():
                return part.text.strip()
    return "".join(part.text for part in parts).strip()


def asked(text: str, markers: Markers = COMMON) -> str:
    """The question of a prompt; the samples of one prompt ask for it again and again."""
    return _remembered(text, markers) if len(text) <= REMEMBERED else question(conversation(text, markers))


@lru_cache(maxsize=1024)
def _remembered(text: str, markers: Markers) -> str:
    return question(conversation(text, markers))


def _headers(text: str, found: Sequence[tuple[int, int]]) -> list[_Header]:
    """Where each turn begins, and whose it is."""
    headers: list[_Header] = []
    starts = {start: end for start, end in found}
    for start, end in found:
        if headers and start < headers[-1].end:
            continue  # the marker that closes a header
        if header := _header(text, start, end, starts):
            headers.append(header)
    return headers


def _header(text: str, start: int, end: int, starts: dict[int, int]) -> _Header | None:
    marker = text[start:end]
    if marker in _BRACKETS:
        return _Header(start, end, _BRACKETS[marker])
    name = marker.strip("<>[]|｜").lower().removesuffix("_token")
    if word := _WORD.match(text, end):
        role = _ROLES.get(word[1].lower()) or (word[1].lower() if name in _OPENERS else None)
        after = word.end()
        if role and (channel := _CHANNEL.match(text, after)):
            return _Header(start, channel.end(), role)
        if role and (after in starts or after == len(text)):
            return _Header(start, starts.get(after, after), role)
        if role and text[after] == "\n":
            return _Header(start, after + 1, role)
    own = _ROLES.get(name.removeprefix("im_"))
    return _Header(start, end, own) if own else None


def _bare_headers(text: str) -> list[_Header]:
    """Of a text without markers that begins with a role's name on a line and ends with the one who is to answer."""
    if not text.rstrip().endswith((ASSISTANT, "model")):
        return []
    for pattern in (_BARE_GAP, _BARE_LINE):
        if pattern.match(text):
            found = pattern.finditer(f"{text.rstrip()}\n\n")
            spans = [(one.start(1), min(one.end(), len(text)), _ROLES[one[1]]) for one in found]
            return [_Header(*span) for span in spans] if spans[-1][2] == ASSISTANT else []
    return []


def _after_markers(text: str, found: Sequence[tuple[int, int]], before: int) -> int:
    """One past the markers that a prompt begins with."""
    place = 0
    for start, end in found:
        if end > before or text[place:start].strip():
            break
        place = end
    return place


def _add(parts: list[Part], text: str, start: int, end: int, role: str, ends: dict[int, int]) -> None:
    """A turn's text; the white space around it and the markers behind it are the template's."""
    if not parts and start:
        _append(parts, TEMPLATE, text[:start])
    last = _stripped(text, start, end)
    while ends.get(last, -1) >= start:
        last = _stripped(text, start, ends[last])
    first = last - len(text[start:last].lstrip())
    if role == NOBODY:  # its white space may be what it is about
        first, last = start, last if last < end and text[last:end].strip() else end
    _append(parts, TEMPLATE, text[start:first])
    _append(parts, role, text[first:last])
    _append(parts, TEMPLATE, text[last:end])


def _stripped(text: str, start: int, end: int) -> int:
    """The end without the white space before it."""
    while end > start and text[end - 1].isspace():
        end -= 1
    return end


def _append(parts: list[Part], role: str, text: str) -> None:
    if not text:
        return
    if parts and parts[-1].role == role == TEMPLATE:
        parts[-1] = Part(TEMPLATE, parts[-1].text + text)
    else:
        parts.append(Part(role, text))
