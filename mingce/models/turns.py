"""A conversation's text beside its ids: what follows a turn is rendered and encoded once, and appended.

What was sampled is never encoded again. The chat template renders the whole conversation as messages; where that begins
with the very text that the model has seen, the rest is what follows. Where it differs in blanks only, the ids stay as
sampled and the rest is looked up behind them. Where the template has rewritten the history (thoughts of earlier turns
left out), the conversation goes on as a new segment with the rendering as its prompt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from transformers import PreTrainedTokenizerBase

from mingce.base.errors import ModelError, SettingError
from mingce.models.conversations import Reply
from mingce.models.prompts import NOTHING, Message, encode, render_prompt, render_text

ROLE_OF = {"assistant": 1, "tool": 2, "user": 3, "system": 4}
"""Codes of the column `role` (mingce.columns)."""
_ANCHOR, _THOUGHT, _THOUGHT_END = "\n", "<think>", "</think>"


class Dialogue:
    """One conversation as text and messages."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        prompt: str | Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        template: Mapping[str, Any] = NOTHING,
    ):
        """`template` are arguments of the chat template."""
        self.tokenizer, self.tools, self.template = tokenizer, list(tools), template
        self.is_chat = not isinstance(prompt, str)
        self.messages: list[Message] = [] if isinstance(prompt, str) else list(prompt)
        self.called: Sequence[Message] = ()
        """The calls in the policy's message, each a name and arguments, where somebody has read them."""
        self.calls: dict[int, Sequence[Message]] = {}
        """Those of its earlier ones, by their places among the messages."""
        self.text = prompt if isinstance(prompt, str) else self._rendered(self.messages, opened=True)
        """All that the model has seen, of this segment."""
        self.prompt_ids = render_prompt(tokenizer, prompt) if isinstance(prompt, str) else self._ids(self.text)
        self.opening = opening_of(tokenizer, template) if self.is_chat else ""
        self.said, self.told = self.opening, ""
        """What the policy's message has so far, where text was put into it; and all that came after the prompt."""

    def hear(self, ids: Sequence[int], stop_ids: Sequence[int]) -> str:
        """Takes note of a turn; its text without the end token."""
        self.ended_with = ids[-1] if ids[-1] in stop_ids else None
        body = ids if self.ended_with is None else ids[:-1]
        text = cast(str, self.tokenizer.decode(list(body), skip_special_tokens=False))
        self._add(text)
        if not self.is_chat and self.ended_with is not None:  # a template writes the end token itself
            self.text += cast(str, self.tokenizer.decode([self.ended_with], skip_special_tokens=False))
        return text

    def answer(self, content: str | Sequence[Message], most: int = 0) -> Reply:
        """What follows the turn; `most`: tokens of a text or a message, all of them if 0."""
        if isinstance(content, str):
            ids = self._continuation(content)
            return self._put_in(ids[:most] if most else ids)
        if not self.is_chat:
            raise SettingError(
                "the environment answers in chat messages, but the prompt is plain text; set agent.tool_format=tags, "
                "or data.chat=true."
            )
        content = [self._shortened(message, most) for message in content] if most else content
        whole, rest = self._with(content)
        self.said = self.opening
        self.told += "\n" + "\n".join(str(message["content"]) for message in content) + "\n"
        role = ROLE_OF.get(str(content[0]["role"]), 0) if content else 0
        self.text = whole
        if rest is None:
            self.prompt_ids = self._ids(whole)
            return Reply(prompt=self.prompt_ids)
        ids = self._ids(rest)
        if self.ended_with is not None and ids[:1] == [self.ended_with]:
            ids = ids[1:]  # the end of the turn, which was drawn
        return Reply(ids, role)

    def _shortened(self, message: Message, most: int) -> Message:
        """The message with the first tokens of its text, without the part of a character that the last may hold."""
        text = message["content"]
        if not isinstance(text, str) or len(ids := self._ids(text)) <= most:
            return message
        cut = cast(str, self.tokenizer.decode(ids[:most], skip_special_tokens=False))
        return {**message, "content": cut.rstrip("\ufffd")}

    def _with(self, content: Sequence[Message]) -> tuple[str, str | None]:
        """The conversation with these messages as the template writes it, and what of it the model has not seen."""
        self.calls[len(self.messages)], self.called = self.called, ()
        whole, rest = "", None
        for spoken in _spoken(self.said):
            messages = [*self.messages, spoken, *content]
            whole = self._rendered(messages, opened=True)
            if (rest := rest_of(whole, self.text)) is not None:
                break
        self.messages = messages
        return whole, rest

    def drift(self, ids: Sequence[int]) -> int:
        """The first place of the last segment's response at which encoding its text anew gives another id; −1: none.

        `ids` are the response's. What a template adds behind the last turn is not compared.
        """
        if self.is_chat:
            anew = self._ids(self._rendered([*self.messages, _spoken(self.said)[0]], opened=False))
        else:
            anew = render_prompt(self.tokenizer, self.text)
        own = [*self.prompt_ids, *ids]
        at = next((i for i, (a, b) in enumerate(zip(own, anew, strict=False)) if a != b), min(len(own), len(anew)))
        return -1 if at == len(own) else max(0, at - len(self.prompt_ids))

    def _put_in(self, ids: list[int]) -> Reply:
        """Text that goes on where the policy stopped, in the midst of its message."""
        text = cast(str, self.tokenizer.decode(ids, skip_special_tokens=False))
        self._add(text)
        return Reply(ids, ROLE_OF["tool"])

    def _add(self, text: str) -> None:
        self.text, self.said, self.told = self.text + text, self.said + text, self.told + text

    def _continuation(self, text: str) -> list[int]:
        """The ids of a text that stands behind another one; some tokenizers put a blank before a text of its own."""
        before, both = self._ids(_ANCHOR), self._ids(_ANCHOR + text)
        return both[len(before) :] if both[: len(before)] == before else self._ids(text)

    def _rendered(self, messages: Sequence[Message], *, opened: bool) -> str:
        def written(messages: Sequence[Message]) -> str:
            return render_text(self.tokenizer, messages, opened=opened, tools=self.tools, template=self.template)

        try:
            return written(messages)
        except ModelError:
            if not self.calls:
                raise
            return written(numbered(messages, self.calls))

    def _ids(self, text: str) -> list[int]:
        return encode(self.tokenizer, [text], special=False)[0]


def numbered(messages: Sequence[Message], calls: Mapping[int, Sequence[Message]]) -> list[Message]:
    """Messages for templates that take calls apart from the text and results by their calls' ids (Mistral's)."""
    made: list[Message] = []
    waiting: list[str] = []
    count = 0
    for place, message in enumerate(messages):
        if own := calls.get(place, ()):
            waiting = [f"call{count + number:05d}" for number in range(len(own))]
            count += len(own)
            written = [
                {"type": "function", "id": one, "function": dict(call)} for one, call in zip(waiting, own, strict=True)
            ]
            made.append({"role": "assistant", "content": "", "tool_calls": written})
        elif message["role"] != "tool":
            made.append(message)
        elif waiting:
            made.append({**message, "tool_call_id": waiting.pop(0)})
        else:  # an answer to what was no call
            made.append({**message, "role": "user"})
    return made


def _spoken(text: str) -> list[Message]:
    """The policy's message as templates take it: with its thoughts in the text, or apart from it."""
    thoughts, end, rest = text.partition(_THOUGHT_END)
    whole: Message = {"role": "assistant", "content": text}
    if not end:
        return [whole]
    apart = {"reasoning_content": thoughts.strip().removeprefix(_THOUGHT).strip(), "content": rest.lstrip("\n")}
    return [whole, {"role": "assistant", **apart}]


@lru_cache(maxsize=16)
def _opening(tokenizer: PreTrainedTokenizerBase, template: str, arguments: str) -> str:
    asked = [{"role": "user", "content": "zq"}]
    said = [*asked, {"role": "assistant", "content": "zqzq"}, *asked]
    try:
        before, opened, later = (
            render_text(tokenizer, messages, opened=ready, template=json.loads(arguments))
            for messages, ready in ((asked, False), (asked, True), (said, False))
        )
    except ModelError:
        return ""
    if not (opened.startswith(before) and later.startswith(before)):
        return ""
    header, written = opened[len(before) :], later[len(before) :].partition("zqzq")[0]
    alike = next((i for i, (a, b) in enumerate(zip(header, written, strict=False)) if a != b), len(written))
    thinks = header.find(_THOUGHT)  # of turns without thoughts some templates write that they have none
    return header[alike if thinks < 0 else thinks :]


def opening_of(tokenizer: PreTrainedTokenizerBase, template: Mapping[str, Any] = NOTHING) -> str:
    """What the template writes of an answer before the policy does, such as `<think>`; it belongs to the message."""
    return _opening(tokenizer, str(tokenizer.chat_template), json.dumps(dict(template)))


def rest_of(whole: str, begun: str) -> str | None:
    """What stands in `whole` behind what has begun, blanks aside; None if it does not begin so."""
    if whole.startswith(begun):
        return whole[len(begun) :]
    at = 0
    for character in begun:
        if character.isspace():
            continue
        while at < len(whole) and whole[at].isspace():
            at += 1
        if at == len(whole) or whole[at] != character:
            return None
        at += 1
    return whole[at:]


class TurnEnds:
    """Texts with which a turn ends, looked for in ids: only behind tokens that have a text's last character."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]):
        self.tokenizer, self.texts = tokenizer, tuple(texts)
        last = {text[-1] for text in texts}
        pieces = tokenizer.batch_decode([[i] for i in range(len(tokenizer))]) if texts else []
        self.closing_ids = [i for i, piece in enumerate(pieces) if any(character in piece for character in last)]
        self.most = 2 * max((len(text.encode()) for text in texts), default=0)

    def __call__(self, ids: Sequence[int]) -> bool:
        tail = self.tokenizer.decode(list(ids[-self.most :]), skip_special_tokens=False)
        return any(text in tail for text in self.texts)
