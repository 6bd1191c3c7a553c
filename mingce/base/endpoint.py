"""A chat model behind an OpenAI-compatible address: one request, one bounded reply, no redirects.

The server may be anyone's. It gets a deadline for the whole exchange, its reply a limit in bytes, and whatever it sends
that is not a chat completion is a ModelError of one sentence.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit

from mingce.base.errors import ModelError, SettingError
from mingce.base.texts import sentence

MOST_BYTES = 2_000_000
MOST_CALLS = 8
MOST_TOKENS = 1024
"""Of a reply; a small model may have no end of its own."""
TIMEOUT = 120.0
LONGEST_REASON = 200
OWN_KEY, COMMON_KEY = "MINGCE_MODEL_KEY", "OPENAI_API_KEY"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_PATH = "/chat/completions"


@dataclass(frozen=True)
class Call:
    """A tool that the model wants called; `arguments` is JSON as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Message:
    """What the model said, and which tools it wants called first."""

    text: str
    calls: tuple[Call, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """As it stands in the dialogue that is sent back."""
        calls = [
            {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": one.arguments}}
            for one in self.calls
        ]
        return {"role": "assistant", "content": self.text} | ({"tool_calls": calls} if calls else {})


class Refused(ModelError):
    """The server answered with an error's status; `wait` is after how many seconds it wants to be asked again."""

    def __init__(self, message: str, status: int, wait: float | None = None):
        super().__init__(message)
        self.status, self.wait = status, wait


@dataclass
class Endpoint:
    """An address such as http://127.0.0.1:8000/v1; without `model` the first that the server lists is used."""

    url: str
    model: str | None = None
    timeout: float = TIMEOUT
    takes_limit: bool = True
    """Whether the server knows `max_tokens`; some models refuse it."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """What a request holds besides, such as a temperature; with `max_tokens` in place of the usual limit."""
    settings: tuple[str, str] = ("--model", "--model-name")
    """What the person gives the address and the name with, for messages."""
    _parts: SplitResult = field(init=False, repr=False)

    chosen: str | None = field(init=False)
    """The name that the person gave, which may be shown; one that a server gives may say anything."""

    def __post_init__(self) -> None:
        self.chosen = self.model
        try:
            self._parts = urlsplit(self.url)
            bad = self._parts.scheme not in ("http", "https") or not self._parts.hostname
            bad = bad or self._parts.username is not None or bool(self._parts.query or self._parts.fragment)
            _ = self._parts.port
        except ValueError:
            bad = True
        if bad or any(not letter.isprintable() or letter.isspace() for letter in self.url):
            raise SettingError(sentence("assistant.bad_url", setting=self.settings[0], url=self.url[:200]))
        self._headers()  # says what is wrong with the key, if anything is

    def name(self) -> str:
        """The model's name, asked for once."""
        if self.model is None:
            listed = self._exchange("GET", "/models", None, time.monotonic() + self.timeout)
            models = listed.get("data") if isinstance(listed, Mapping) else None
            first = models[0] if isinstance(models, list) and models else None
            name = first.get("id") if isinstance(first, Mapping) else None
            if not isinstance(name, str) or not name:
                raise ModelError(sentence("assistant.no_models", url=self._shown, setting=self.settings[1]))
            self.model = name[:200]
        return self.model

    def chat(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], until: float) -> Message:
        """The model's next message; `until` is when patience ends, by the monotonic clock."""
        request: dict[str, Any] = {"model": self.name(), "messages": list(messages), "stream": False, **self.options}
        if tools:
            request["tools"] = list(tools)
        if self.takes_limit and "max_tokens" not in request:
            try:
                return self._message(self._exchange("POST", _PATH, {**request, "max_tokens": MOST_TOKENS}, until))
            except Refused as refused:
                if "max_tokens" not in str(refused):
                    raise
                self.takes_limit = False
        return self._message(self._exchange("POST", _PATH, request, until))

    # ── one exchange ─────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _shown(self) -> str:
        return self.url[:200]

    def _exchange(self, method: str, path: str, body: Any, until: float) -> Any:
        kinds = {"https": http.client.HTTPSConnection, "http": http.client.HTTPConnection}
        host, port = str(self._parts.hostname), self._parts.port
        connection = kinds[self._parts.scheme](host, port, timeout=self._left(until))
        text = None if body is None else json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        try:
            connection.connect()
            with _deadline(connection.sock, self._left(until)):
                connection.request(method, self._base + path, text, self._headers())
                response = connection.getresponse()
                content = self._read(response, until)
            self._left(until)
        except TimeoutError:
            raise self._too_slow() from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._left(until)  # a connection that the deadline has cut looks like any broken one
            why = _one_line(error) if isinstance(error, OSError) else type(error).__name__
            raise ModelError(sentence("assistant.unreachable", url=self._shown, why=why)) from None
        finally:
            connection.close()
        if 300 <= response.status < 400:
            raise ModelError(sentence("assistant.redirected", url=self._shown))
        if response.status != 200:
            why = _without_numbers(content[:LONGEST_REASON].decode("utf-8", "replace"))
            said = sentence("assistant.refused", url=self._shown, status=response.status, why=why or "—")
            raise Refused(said, response.status, _seconds(response.getheader("retry-after")))
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise self._garbled("JSON: " + _one_line(error)) from None

    def _read(self, response: http.client.HTTPResponse, until: float) -> bytes:
        """The whole reply, within the limit."""
        content = b""
        while part := response.read1(65536):
            content += part
            self._left(until)
            if len(content) > MOST_BYTES:
                raise ModelError(sentence("assistant.too_long", url=self._shown, most=MOST_BYTES // 1_000_000))
        return content

    def _left(self, until: float) -> float:
        left = until - time.monotonic()
        if left <= 0:
            raise self._too_slow()
        return left

    def _too_slow(self) -> ModelError:
        return ModelError(sentence("assistant.too_slow", url=self._shown, seconds=f"{self.timeout:g}"))

    @property
    def _base(self) -> str:
        return self._parts.path.rstrip("/").removesuffix(_PATH)

    def _headers(self) -> dict[str, str]:
        headers = {"content-type": "application/json", "accept": "application/json"}
        private = self._parts.scheme == "https" or self._parts.hostname in _LOOPBACK
        for variable in (OWN_KEY, COMMON_KEY):
            key = os.environ.get(variable)
            if key and (variable == OWN_KEY or private):  # a key for another service does not travel in the clear
                if not key.isascii() or not key.isprintable():
                    raise SettingError(sentence("assistant.bad_key", variable=variable))
                return headers | {"authorization": f"Bearer {key}"}
        return headers

    # ── what it says ─────────────────────────────────────────────────────────────────────────────────────────────

    def _message(self, answer: Any) -> Message:
        try:
            message = answer["choices"][0]["message"]
            text, calls = message.get("content"), message.get("tool_calls") or []
            if isinstance(text, list):
                text = "".join(part.get("text") or "" for part in text)
            found = tuple(_call(number, one) for number, one in enumerate(calls[:MOST_CALLS]))
        except (LookupError, TypeError, AttributeError) as error:
            raise self._garbled(type(error).__name__) from None
        if not isinstance(text or "", str):
            raise self._garbled("content")
        if not found and not (text or "").strip():
            raise self._garbled("—")
        return Message(text or "", found)

    def _garbled(self, why: str) -> ModelError:
        return ModelError(sentence("assistant.garbled", url=self._shown, why=why))


@contextmanager
def _deadline(connected: socket.socket, seconds: float) -> Iterator[None]:
    """Cuts the connection after so long, however slowly the other side drips."""

    def cut() -> None:
        with suppress(OSError):
            connected.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _seconds(text: str | None) -> float | None:
    """A number of seconds; a date, which few servers send, is none."""
    return float(text) if text is not None and re.fullmatch(r"[0-9]{1,6}([.][0-9]{1,3})?", text.strip()) else None


def _call(number: int, told: Any) -> Call:
    function = told["function"]
    arguments = function.get("arguments") or "{}"
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return Call(str(told.get("id") or f"call_{number}")[:100], str(function["name"])[:100], text)


def _one_line(error: Exception) -> str:
    return _printable(str(error) or type(error).__name__)[:LONGEST_REASON]


def _without_numbers(text: str) -> str:
    """What a server says of its failure: its words, for nobody has judged its numbers."""
    return re.sub(r"\d[\d.,]*", "#", _printable(text))


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()
