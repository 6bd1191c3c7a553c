"""A server on loopback that speaks as an OpenAI-compatible one does, and says whatever a test has written for it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[BaseHTTPRequestHandler, dict[str, Any]], None]


class FakeModel:
    """`answers` are given in turn, the last one again and again; `requests` are what was asked."""

    def __init__(self, *answers: str | Answer, models: str = "fake"):
        self.answers, self.models = list(answers), models
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                send(self, {"data": [{"id": outer.models}]} if outer.models else {})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.requests.append(body)
                outer.headers.append({name.lower(): value for name, value in self.headers.items()})
                answer = outer.answers[min(len(outer.requests), len(outer.answers)) - 1]
                if isinstance(answer, str):
                    send(self, said(answer))
                else:
                    answer(self, body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> FakeModel:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def said(text: str | None, **more: Any) -> dict[str, Any]:
    """A chat completion with these words."""
    return {"choices": [{"message": {"role": "assistant", "content": text, **more}}]}


def send(handler: BaseHTTPRequestHandler, value: Any, status: int = 200) -> None:
    raw(json.dumps(value).encode(), status)(handler, {})


def raw(content: bytes, status: int = 200, **headers: str) -> Answer:
    """These very bytes."""

    def answer(handler: BaseHTTPRequestHandler, _: dict[str, Any]) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("content-length", str(len(content)))
        handler.end_headers()
        with suppress(OSError):  # the client may have heard enough
            handler.wfile.write(content)

    return answer


def calling(*calls: tuple[str, Any]) -> Answer:
    """A message that asks for tools; arguments that are no text are written as JSON."""
    wanted = [
        {
            "id": f"c{number}",
            "type": "function",
            "function": {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)},
        }
        for number, (name, given) in enumerate(calls)
    ]
    return lambda handler, _: send(handler, said(None, tool_calls=wanted))


def without_tools(text: str) -> Answer:
    """A server that refuses requests with tools and otherwise says the text."""

    def answer(handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
        if "tools" in request:
            send(handler, {"error": "tools are not supported"}, 400)
        else:
            send(handler, said(text))

    return answer


def without_limit(text: str) -> Answer:
    """A server that refuses `max_tokens`, as some models do."""

    def answer(handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
        if "max_tokens" in request:
            send(handler, {"error": "Unsupported parameter: 'max_tokens'"}, 400)
        else:
            send(handler, said(text))

    return answer


def status_line(line: bytes) -> Answer:
    """Whatever stands where a status should."""

    def answer(handler: BaseHTTPRequestHandler, _: dict[str, Any]) -> None:
        handler.wfile.write(line)
        handler.close_connection = True

    return answer


def dripping(seconds: float) -> Answer:
    """A byte of the headers now and then: no single wait is long, but there is no end."""

    def answer(handler: BaseHTTPRequestHandler, _: dict[str, Any]) -> None:
        end = time.monotonic() + seconds
        try:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nx-slow: ")
            while time.monotonic() < end:
                handler.wfile.write(b"x")
                time.sleep(0.05)
        except OSError:
            pass

    return answer


def silent(seconds: float) -> Answer:
    """Nothing at all for so long."""
    return lambda handler, _: time.sleep(seconds)
