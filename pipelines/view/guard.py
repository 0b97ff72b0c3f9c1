"""Who may ask the server, and what: from the page's own address, with the token of the link; a body only where one is taken."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Mapping, Sequence
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LONGEST_ADDRESS = 8192
"""Bytes of a path and of what follows it."""
_WILD = ("0.0.0.0", "::", "")

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; "
    "img-src 'self' data:; media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """ASGI middleware. Every answer carries ``HEADERS``; what is refused reaches no page.

    Args:
        app: what answers those who may ask.
        host: the address that the server listens at.
        port: and the port.
        token: stands in the link that the server tells, and in a cookie afterwards.
        takes: paths that take POST, and the bytes of a body at most.
    """

    def __init__(self, app: ASGIApp, *, host: str, port: int, token: str, takes: Mapping[str, int] | None = None) -> None:
        self._app, self._port, self._token = app, port, token
        self._takes = takes or {}
        self._wild = host in _WILD
        own = {"localhost", "127.0.0.1", "::1"}
        self._hosts = own | ({socket.gethostname(), socket.getfqdn()} if self._wild else {host})
        self._cookie = f"benchwright-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        answer = self._refused(scope) if scope["type"] == "http" else PlainTextResponse("http alone\n", 400)
        if answer is None:
            await self._app(scope, receive, sending)
        else:
            await answer(scope, receive, sending)

    def _refused(self, scope: Scope) -> Response | None:
        """What those are told who may not ask; a redirect for those who bring the token; None for those who have brought it."""
        headers = Headers(scope=scope)
        posted = scope["method"] == "POST" and scope["path"] in self._takes
        if not posted and scope["method"] not in ("GET", "HEAD"):
            return _told(405, f"{scope['method'][:20]}: this is only read", {"allow": "GET, HEAD"})
        if len(scope["raw_path"]) + len(scope["query_string"]) > LONGEST_ADDRESS:
            return _told(414, f"an address of more than {LONGEST_ADDRESS} bytes")
        length, most = headers.get("content-length", "0"), self._takes[scope["path"]] if posted else 0
        if "transfer-encoding" in headers or not (
            length.isascii() and length.isdigit() and len(length) < 16 and int(length) <= most
        ):
            return _told(413, f"a body of {length[:16]} bytes: {most} at most" if posted else "a request with a body")
        host = headers.get("host", "")
        if headers.getlist("host") != [host] or not self._is_own(host):
            return _told(403, "the Host of the request is not this server's: open the link that it printed")
        origin = headers.get("origin")
        if (origin is not None or posted) and origin not in (f"http://{host}", f"https://{host}"):
            return _told(403, "a request from a page of another origin")
        if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            return _told(403, "a request from a page of another site")
        asked = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = next((value for name, value in asked if name == "token"), None)
        if given is not None and self._fits(given):
            return self._welcome(scope, [pair for pair in asked if pair[0] != "token"])
        if self._fits(self._cookie_of(headers)):
            return None
        return _told(403, "no token: open the link that `benchwright view` printed, with its token")

    def _welcome(self, scope: Scope, asked: Sequence[tuple[str, str]]) -> Response:
        # The path is taken as it came, and begins with one slash: a redirect never leaves this server.
        path = "/" + scope["raw_path"].decode("latin-1").lstrip("/\\")
        answer = RedirectResponse(path + (f"?{urlencode(asked)}" if asked else ""), 303)
        answer.set_cookie(self._cookie, self._token, httponly=True, samesite="lax", path="/")
        return answer

    def _cookie_of(self, headers: Headers) -> str:
        try:
            morsel = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return ""
        return morsel.value if morsel else ""

    def _fits(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self._token.encode())

    def _is_own(self, host: str) -> bool:
        try:
            parts = urlsplit(f"//{host}")
            name, port = parts.hostname or "", parts.port or 80
        except ValueError:
            return False
        if parts.username is not None or parts.path or port != self._port:
            return False
        return name in self._hosts or (self._wild and _is_address(name))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _told(status: int, why: str, headers: dict[str, str] | None = None) -> Response:
    return PlainTextResponse(f"refused: {why}\n", status, headers)
