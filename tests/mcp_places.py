"""A directory that an assistant may read, with a run, dumps and traps, and a real `mingce mcp` to talk to."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from npz import save_npz
from small_runs import trained
from test_audit_command import batch

COMMAND = [sys.executable, "-m", "mingce.cli", "mcp"]
ENVIRONMENT = {**os.environ, "MINGCE_LANG": "en"}
Talk = Callable[[Client], Awaitable[None]]


def furnish(root: Path) -> Path:
    """`allowed/` with runs/demo, dumps/sign.npz and traps; beside it what must not be read."""
    allowed = root / "allowed"
    trained(allowed / "runs", "demo")
    (allowed / "dumps").mkdir()
    save_npz(allowed / "dumps" / "sign.npz", batch(+1.0))
    outside = root / "outside"
    outside.mkdir()
    save_npz(outside / "secret.npz", batch())
    (allowed / "link.npz").symlink_to(outside / "secret.npz")
    (allowed / "leads_out").symlink_to(outside)
    (allowed / "mixed").mkdir()
    (allowed / "mixed" / "step_1.npz").symlink_to(outside / "secret.npz")
    os.mkfifo(allowed / "pipe")
    (allowed / "null").symlink_to("/dev/null")
    (allowed / "notes.txt").write_text("not a log", encoding="utf-8")
    return allowed


@contextmanager
def http_server(*words: str) -> Iterator[str]:
    """A real `mingce mcp --http` on a free port; its address."""
    with subprocess.Popen([*COMMAND, *words, "--http", "0"], stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as one:
        assert one.stderr is not None
        line = one.stderr.readline()
        try:
            yield next(word for word in line.split() if word.startswith("http://"))
        finally:
            one.terminate()


def talk_stdio(talk: Talk, *words: str) -> None:
    """Talks to a `mingce mcp` of its own over stdio."""
    parameters = StdioServerParameters(command=COMMAND[0], args=[*COMMAND[1:], *words], env=ENVIRONMENT)
    _run(parameters, talk)


def talk_http(talk: Talk, *words: str) -> None:
    """Talks to a `mingce mcp --http` of its own."""
    with http_server(*words) as url:
        _run(url, talk)


def _run(where: Any, talk: Talk) -> None:
    async def whole() -> None:
        with anyio.fail_after(120):
            async with Client(where) as client:
                await talk(client)

    anyio.run(whole)


TRANSPORTS = {"stdio": talk_stdio, "http": talk_http}
