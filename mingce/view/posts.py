"""Requests with a body: read within limits of size and time, worked on one at a time, few waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hashlib import sha256

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from mingce.base.errors import MingceError, SettingError
from mingce.view.apart import EndedError
from mingce.view.digits import encode
from mingce.view.together import Pieces, Together

READING = 30.0  # seconds that a body may take to arrive
MOST_WAITING = 16


class Posts:
    """An endpoint that hands a body on and gives the JSON that comes back."""

    def __init__(self, answer: Callable[[bytes], bytes], largest: int):
        self._answer, self._largest = answer, largest
        self._together: Together[tuple[bytes, int]] = Together(1)
        self._waiting = 0

    async def endpoint(self, request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise HTTPException(415, "the body must be application/json")  # a form of another page cannot be
        if self._waiting >= MOST_WAITING:
            raise HTTPException(503, "too many are waiting for an answer; try again in a moment")
        self._waiting += 1
        try:
            body = await asyncio.wait_for(self._body(request), READING)
            answer, status = await self._together.answer(sha256(body).hexdigest(), lambda: self._made(body))
        except TimeoutError:
            raise HTTPException(408, "the body took too long to arrive") from None
        finally:
            self._waiting -= 1
        return Pieces(answer, status, media_type="application/json")

    async def _body(self, request: Request) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for part in request.stream():
            size += len(part)
            if size > self._largest:
                raise HTTPException(413, f"the body may have {self._largest:,} bytes")
            parts.append(part)
        return b"".join(parts)

    def _made(self, body: bytes) -> tuple[bytes, int]:
        try:
            return self._answer(body), 200
        except MingceError as error:
            status = 503 if isinstance(error, EndedError) else 400 if isinstance(error, SettingError) else 404
            return encode({"error": str(error)}), status
