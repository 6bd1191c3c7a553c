"""Coroutines of environments and tools, run on one event loop of this process that lasts."""

from __future__ import annotations

import asyncio
import inspect
import threading
from functools import cache
from typing import Any


def awaited(value: Any) -> Any:
    """The value; of an awaitable its result, which other threads' awaitables do not wait for."""
    if not inspect.isawaitable(value):
        return value

    async def result() -> Any:
        return await value

    return asyncio.run_coroutine_threadsafe(result(), _loop()).result()


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="mingce-awaitables", daemon=True).start()
    return loop
