"""Many who ask at once: the same question is answered once for all, and only so many are worked on at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

PIECE = 64 << 10
Answer = TypeVar("Answer")


class Together(Generic[Answer]):
    """Shares answers between those who wait for them. Nobody gets one whose making began before they asked."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._waiting: dict[str, asyncio.Task[Answer]] = {}
        self._working: dict[str, asyncio.Event] = {}
        self._places: asyncio.Semaphore | None = None

    async def answer(self, question: str, make: Callable[[], Answer]) -> Answer:
        """What `make` gives, in a thread."""
        task = self._waiting.get(question)
        if task is None:
            task = self._waiting[question] = asyncio.create_task(self._turn(question, make))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # who asked may have gone
        return await asyncio.shield(task)

    async def _turn(self, question: str, make: Callable[[], Answer]) -> Answer:
        if self._places is None:
            self._places = asyncio.Semaphore(self._at_once)
        try:
            while (before := self._working.get(question)) is not None:
                await before.wait()
            self._working[question] = done = asyncio.Event()
        except BaseException:
            self._waiting.pop(question, None)
            raise
        try:
            async with self._places:
                del self._waiting[question]  # whoever asks from now on wants a newer answer
                return await run_in_threadpool(make)
        finally:
            del self._working[question]
            done.set()


class Pieces(Response):
    """An answer that is sent piece by piece, as fast as it is taken: a slow reader holds no copy of it in memory."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        body = b"" if scope["method"] == "HEAD" else bytes(self.body)
        for start in range(0, len(body), PIECE):
            await send({"type": "http.response.body", "body": body[start : start + PIECE], "more_body": True})
        await send({"type": "http.response.body", "body": b""})
