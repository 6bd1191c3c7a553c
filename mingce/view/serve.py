"""Starts the server: a free port, the address on the terminal, the browser."""

from __future__ import annotations

import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass

from mingce.base.errors import SettingError
from mingce.view.api import Api
from mingce.view.gate import EVERYWHERE, is_loopback, names_of

MAX_CONNECTIONS = 1000


@dataclass(frozen=True)
class Address:
    """Where the page is. Beyond this machine a token is part of the address."""

    host: str
    port: int
    token: str | None

    @property
    def url(self) -> str:
        host = socket.gethostname() if self.host in EVERYWHERE else self.host
        name = f"[{host}]" if ":" in host else host
        return f"http://{name}:{self.port}/" + (f"?token={self.token}" if self.token else "")


def listen(host: str, port: int | None) -> tuple[socket.socket, Address]:
    """A socket that listens, on a free port unless one is given."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port or 0))
    except (OSError, OverflowError) as error:
        listener.close()
        raise SettingError(f"the server cannot listen on {host}, port {port or 'any'} ({error}).") from error
    listener.listen(128)
    token = None if is_loopback(host) else secrets.token_urlsafe(24)
    return listener, Address(host, listener.getsockname()[1], token)


def serve(
    api: Api,
    host: str = "127.0.0.1",
    port: int | None = None,
    *,
    browser: bool = True,
    lang: str | None = None,
    started: Callable[[Address], None] = lambda address: None,
) -> None:
    """Serves until Ctrl-C; `started` receives the address."""
    import uvicorn

    from mingce.view.app import make_app

    listener, address = listen(host, port)
    app = make_app(api, hosts=names_of(host), any_address=host in EVERYWHERE, token=address.token, lang=lang)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
        timeout_keep_alive=5,
        http="h11",
        ws="none",
        limit_concurrency=MAX_CONNECTIONS,
        h11_max_incomplete_event_size=32 << 10,
    )
    threading.Thread(target=api.warm, daemon=True).start()
    started(address)
    if browser:
        threading.Timer(0.3, webbrowser.open, [address.url]).start()
    try:
        uvicorn.Server(config).run(sockets=[listener])
    except KeyboardInterrupt:
        pass
    finally:
        listener.close()
