"""`mingce mcp`: the tools for the assistant one already has, over the Model Context Protocol."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from urllib.parse import urlsplit

from mingce.assistant.places import Places
from mingce.assistant.subject import Desk
from mingce.base.errors import SettingError
from mingce.base.texts import sentence

OLDEST = 2
"""The first version of the SDK whose API this is written for."""


def run(places: Sequence[Path], *, http: int | None = None, view_url: str | None = None, lang: str = "zh") -> None:
    """Serves until the client leaves or Ctrl-C. `http` is a port of the loopback interface; None is stdio."""
    try:
        if int(version("mcp").partition(".")[0]) < OLDEST:
            raise SettingError(sentence("assistant.old_sdk"))
    except PackageNotFoundError:
        raise SettingError(sentence("assistant.not_installed")) from None
    if view_url is not None and urlsplit(view_url).scheme not in ("http", "https"):
        raise SettingError(f"--view-url must be the address that `mingce view` printed, not '{view_url[:200]}'.")
    desk = Desk(Places(places or [Path()]), lang, view_url=view_url)
    from mingce.assistant import server

    if http is None:
        server.serve_stdio(desk)
        return

    def started(url: str) -> None:
        print(sentence("assistant.listening", lang, url=url), file=sys.stderr, flush=True)

    server.serve_http(desk, http, started)
