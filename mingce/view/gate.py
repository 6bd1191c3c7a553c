"""Who may ask, and what a browser may do with the answer: Host check, token, read-only methods, strict headers.

Two addresses take a body, for a question or a text is too long for an address; they change nothing either.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Iterable
from http.cookies import SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
}
LOOPBACK = ("127.0.0.1", "localhost", "::1")
EVERYWHERE = ("0.0.0.0", "::", "")
POSTED = ("/api/ask", "/api/check")
"""What may be asked with a body."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def names_of(host: str) -> set[str]:
    """The names by which a server listening on `host` may be called; an IP address is no name that a DNS can fake."""
    names = {*LOOPBACK, host.lower()}
    if not is_loopback(host):
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return names - {""}


class Gate:
    """In front of the application. A page of another origin that tricked a browser into asking here gets nothing."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str], any_address: bool = False, token: str | None = None):
        self._app, self._hosts, self._any_address, self._token = app, set(hosts), any_address, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not self._known_host(headers.get("host", "")):
            return _error(421, "this server does not go by that name; open the address that `mingce view` printed")
        if scope["method"] == "POST" and scope["path"] in POSTED:
            if not _same_origin(headers):
                return _error(403, "only the page itself may ask this")
        elif scope["method"] not in ("GET", "HEAD"):
            return _error(405, "this server only shows; it changes nothing", {"allow": "GET, HEAD"})
        return None if self._token is None else self._without_token(scope, headers, self._token)

    def _known_host(self, host: str) -> bool:
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        name = name.strip("[]").lower()
        if name in self._hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return self._any_address

    def _without_token(self, scope: Scope, headers: Headers, token: str) -> Response | None:
        """None for someone who has the token; it is taken from the address once and kept in a cookie."""
        cookie = f"mingce-{(scope.get('server') or ('', 0))[1]}"
        if _same(SimpleCookie(headers.get("cookie", "")).get(cookie), token):
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if not _same(given, token):
            return _error(401, "the token is missing or wrong; open the address that `mingce view` printed")
        if scope["path"] != "/":
            return None
        answer = RedirectResponse("/", 303)
        answer.set_cookie(cookie, token, httponly=True, samesite="strict", path="/")
        return answer


def _same_origin(headers: Headers) -> bool:
    """Whether it is this page that asks: browsers tell where a request with a body comes from."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
    if origin is not None and origin.partition("://")[2].lower() != headers.get("host", "").lower():
        return False
    return site in ("same-origin", "none")


def _same(given: object, token: str) -> bool:
    text = given if isinstance(given, str) else getattr(given, "value", "")
    return hmac.compare_digest(text.encode("utf-8", "replace"), token.encode())


def _error(status: int, sentence: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": sentence}, status, headers)
