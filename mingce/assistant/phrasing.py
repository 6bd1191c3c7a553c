"""A chat model puts the tutor's computed answer into words; what reaches the reader has every number judged.

The model may call the same tools as a client of `mingce mcp`, except those that write; its dialogue, the calls and the
verdicts are kept for the log. What the model computes with numbers of its own making proves nothing: such a result is
given to it, but no number of its reply is traced to it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mingce.assistant.evidence import Evidence, cleaned, numbers_in
from mingce.assistant.literals import Literal, literals
from mingce.assistant.subject import Desk
from mingce.assistant.toolbox import TOOLS, find_tool
from mingce.assistant.verdicts import Status
from mingce.assistant.vetting import Segment, judge, rendered
from mingce.base.endpoint import Call, Endpoint, Message, Refused
from mingce.base.errors import MingceError, SettingError
from mingce.base.texts import sentence, texts
from mingce.explain.answer import Answer
from mingce.explain.answer_view import markdown
from mingce.explain.claims.marking import Segment as Sentence
from mingce.explain.claims.reply import judge_reply
from mingce.explain.conversation import Conversation
from mingce.explain.menu import example_answer

MOST_ROUNDS = 4
MOST_ERRATA, LONGEST_QUOTE = 12, 120
LONGEST_REPLY = 20_000
LONGEST_RESULT = 20_000
LONGEST_ARGUMENTS = 100_000
MOST_HISTORY = 6
"""Earlier questions and replies that the model is reminded of."""
_VERDICTS: dict[Status, str] = {
    "right": "assistant.verdict_right",
    "wrong": "assistant.verdict_wrong",
    "unverified": "assistant.verdict_unverified",
}
_NO_TOOLS = (400, 404, 422, 500, 501)
"""How servers answer that do not know tools."""


@dataclass(frozen=True)
class Done:
    """A tool call and what came of it."""

    name: str
    arguments: str
    result: str


@dataclass(frozen=True)
class Reply:
    """What the model made of an answer: its words judged, and everything that led to them."""

    model: str
    lang: str
    segments: tuple[Segment, ...]
    prompt: tuple[Mapping[str, Any], ...]
    calls: tuple[Done, ...]
    errata: tuple[Sentence, ...] = ()
    """Sentences that check-log finds wrong of this rollout."""

    def count(self, status: Status) -> int:
        return sum(one.status == status for one in self.segments)

    @property
    def text(self) -> str:
        """As it is shown: judged, and a line that says by whom the words are and how many numbers agree."""
        counts: dict[str, Any] = {name: self.count(name) for name in ("right", "wrong", "unverified")}
        key = "assistant.vetted" if any(counts.values()) else "assistant.vetted_none"
        said = sentence(key, self.lang, model=self.model, **counts)
        lines = [f"> {said}", *(f"> ✗ {self._erratum(one)}" for one in self.errata[:MOST_ERRATA])]
        return f"{rendered(self.segments, self.lang).strip()}\n\n" + "\n".join(lines)

    def _erratum(self, one: Sentence) -> str:
        """A wrong sentence, shortened, with the right numbers and the reason."""
        which = 0 if self.lang == "zh" else 1
        said = [*(pair[which] for pair in one.right), *(pair[which] for pair in one.notes)]
        quote = " ".join(cleaned(one.text).split())[:LONGEST_QUOTE]
        return f"~~{quote}~~ " + ("；" if which == 0 else "; ").join(said)

    def record(self) -> str:
        """Prompt, tool calls and verdicts, for the log; what the model said stands above, wrong numbers struck out."""
        parts = [self._section("assistant.record_prompt", json.dumps(self.prompt, ensure_ascii=False, indent=1))]
        if self.calls:
            lines = "\n".join(f"{done.name}({done.arguments}) → {done.result}" for done in self.calls)
            parts.append(self._section("assistant.record_calls", lines))
        verdicts = [self._verdict(one) for one in self.segments if one.status != "plain"]
        if verdicts:
            parts.append(self._section("assistant.record_verdicts", "\n".join(verdicts)))
        return "\n\n".join(parts)

    def _section(self, key: str, body: str) -> str:
        fence = "```"
        while fence in body:
            fence += "`"
        return f"#### {sentence(key, self.lang)}\n\n{fence}\n{body}\n{fence}"

    def _verdict(self, one: Segment) -> str:
        return f"{one.text}: {sentence(_VERDICTS[one.status], self.lang, right=one.right)}"


@dataclass
class Phrasing:
    """A model at the tutor's side through one dialogue."""

    endpoint: Endpoint
    desk: Desk
    history: list[tuple[str, str]] = field(default_factory=list)
    knows_tools: bool = True

    def phrase(self, question: str, answer: Answer, conversation: Conversation) -> Reply:
        """The tutor's answer in the model's words; a ModelError if the model cannot be had."""
        lang, until = conversation.lang, time.monotonic() + self.endpoint.timeout
        desk = replace(self.desk, lang=lang, example=conversation.rollout)
        truth, numbers = markdown(answer), markdown(example_answer(conversation))
        evidence = Evidence.of(conversation.rollout)
        evidence.add_text(truth)
        evidence.add_text(numbers)
        messages = self._messages(question, truth, numbers, lang)
        prompt, calls = tuple(messages), list[Done]()
        text = ""
        for turn in range(MOST_ROUNDS + 1):
            message = self._chat(messages, until, lang, with_tools=turn < MOST_ROUNDS)
            text = message.text
            if not message.calls or turn == MOST_ROUNDS:
                break
            messages.append(message.as_json())
            for call in message.calls:
                done = run_call(call, desk, evidence, question)
                calls.append(done)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": done.result})
        raw = text if len(text) <= LONGEST_REPLY else text[:LONGEST_REPLY] + " …"
        shown = cleaned(self.endpoint.chosen or self.endpoint.url)
        errata = tuple(one for one in judge_reply(raw, conversation.rollout) if one.status == "wrong")
        reply = Reply(shown, lang, tuple(judge(raw, evidence)), prompt, tuple(calls), errata)
        self.history = [*self.history, (question, rendered(reply.segments, lang))][-MOST_HISTORY:]
        return reply

    def _messages(self, question: str, truth: str, numbers: str, lang: str) -> list[dict[str, Any]]:
        said = texts("assistant", lang)
        ground = said["ground_truth"].replace("{answer}", truth).replace("{numbers}", numbers)
        messages: list[dict[str, Any]] = [{"role": "system", "content": f"{said['model']}\n\n{ground}"}]
        for asked, replied in self.history:
            messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": replied}]
        return [*messages, {"role": "user", "content": question}]

    def _chat(self, messages: list[dict[str, Any]], until: float, lang: str, *, with_tools: bool) -> Message:
        """The next message; a server that does not know tools is asked again without."""
        if with_tools and self.knows_tools:
            try:
                return self.endpoint.chat(messages, offered_tools(lang), until)
            except Refused as refused:
                if refused.status not in _NO_TOOLS or len(messages) > 2 + 2 * len(self.history):
                    raise
                self.knows_tools = False
        return self.endpoint.chat(messages, (), until)


def offered_tools(lang: str) -> list[dict[str, Any]]:
    """The tools of `mingce mcp` that change nothing, as functions of a chat completion."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description(lang),
                "parameters": tool.input_schema(lang),
            },
        }
        for tool in TOOLS.values()
        if not tool.writes
    ]


def run_call(call: Call, desk: Desk, evidence: Evidence, question: str) -> Done:
    """Runs a tool for the model; its result is evidence if the model put in only numbers that were there before."""
    try:
        arguments = _arguments(call)
        tool = find_tool(call.name)
        if tool.writes:
            raise SettingError(sentence("assistant.nothing_written", desk.lang, tool=call.name))
        result = tool.call(arguments, desk)
    except MingceError as error:
        return Done(call.name, call.arguments[:LONGEST_ARGUMENTS], str(error)[:LONGEST_RESULT])
    except Exception as error:  # our mistake; the model and the log learn of it, the dialogue goes on
        said = sentence("assistant.failed", desk.lang, tool=call.name, kind=type(error).__name__)
        return Done(call.name, call.arguments[:LONGEST_ARGUMENTS], said)
    own = list(numbers_in(arguments))
    asked = {one.value for one in literals(cleaned(question))}
    if all(_is_known(x, evidence) or x in asked for x in own):
        evidence.add_result(result, but=own)
    text = json.dumps(result, ensure_ascii=False, allow_nan=False)
    cut = text if len(text) <= LONGEST_RESULT else text[:LONGEST_RESULT] + " …"
    return Done(call.name, call.arguments, cut)


def _arguments(call: Call) -> dict[str, Any]:
    if len(call.arguments) > LONGEST_ARGUMENTS:
        count, most = f"{len(call.arguments):,}", f"{LONGEST_ARGUMENTS:,}"
        raise SettingError(sentence("assistant.long_text", name="arguments", count=count, most=most))
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise SettingError(sentence("assistant.no_object", name="arguments"))
    return arguments


def _is_known(value: float, evidence: Evidence) -> bool:
    return evidence.knows(Literal(0, 0, value))
