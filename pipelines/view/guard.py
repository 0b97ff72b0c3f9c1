"""Access control of the server: requests need its own origin and a token, and only some paths take a body."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Mapping, Sequence
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LONGEST_ADDRESS = 8192
"""Most bytes of a path and its query together."""
_WILD = ("0.0.0.0", "::", "")
_SLOWEST_BODY_S = 10.0
_KEPT_S = 60 * 86_400
"""How long a browser keeps the token of a role, in seconds: an annotator may come back tomorrow."""
_MOST_ROLES = 4

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; "
    "img-src 'self' data:; media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with "no-referrer" browsers send forms without their origin
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """ASGI middleware. Every response carries ``HEADERS``; rejected requests reach no page.

    Args:
        app: the application for accepted requests. In its scope, ``visitors`` maps the roles of the request's valid tokens to
            names, and ``body`` is the body of a POST, which is read from there: it is received only once.
        host: address that the server listens on.
        port: port that it listens on.
        visitor: role and name of the holder of a token; None for an invalid token. A token comes in a link first, and then in
            a cookie, one per role. The comparison must take constant time.
        takes: paths that accept POST -> most bytes of the body.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str,
        port: int,
        visitor: Callable[[str], tuple[str, str] | None],
        takes: Mapping[str, int] | None = None,
    ) -> None:
        self._app, self._port, self._visitor = app, port, visitor
        self._takes = takes or {}
        self._wild = host in _WILD
        own = {"localhost", "127.0.0.1", "::1"}
        named = {socket.gethostname(), socket.getfqdn()} if self._wild else {host}
        self._hosts = own | {name.lower() for name in named}  # as browsers send them
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

        answer = self._refused(scope) if scope["type"] == "http" else PlainTextResponse("refused: only HTTP is served\n", 400)
        if answer is None and scope["method"] == "POST":
            try:
                async with asyncio.timeout(_SLOWEST_BODY_S):
                    scope["body"] = await _body(receive)
                if scope["body"] is None:
                    return
            except TimeoutError:
                answer = _refusal(
                    408, f"the body of the request did not arrive within {_SLOWEST_BODY_S:g} s", {"connection": "close"}
                )
        if answer is None:
            await self._app(scope, receive, sending)
        else:
            await answer(scope, receive, sending)

    def _refused(self, scope: Scope) -> Response | None:
        """An error for a rejected request; a redirect for a link with a valid token; None for an accepted request."""
        headers = Headers(scope=scope)
        posted = scope["method"] == "POST" and scope["path"] in self._takes
        if not posted and scope["method"] not in ("GET", "HEAD"):
            return _refusal(405, f"{scope['method'][:20]}: this address is read-only", {"allow": "GET, HEAD"})
        if len(scope["raw_path"]) + len(scope["query_string"]) > LONGEST_ADDRESS:
            return _refusal(414, f"an address of more than {LONGEST_ADDRESS} bytes")
        length, most = headers.get("content-length", "0"), self._takes[scope["path"]] if posted else 0
        if "transfer-encoding" in headers or not (
            length.isascii() and length.isdigit() and len(length) < 16 and int(length) <= most
        ):
            return _refusal(413, f"a body of {length[:16]} bytes: {most} at most" if posted else "a request with a body")
        host = headers.get("host", "")
        if headers.getlist("host") != [host] or not self._is_own(host):
            return _refusal(403, "the Host of the request is not this server's: open the link that it printed")
        origin = headers.get("origin")
        if (origin is not None or posted) and origin not in (f"http://{host}", f"https://{host}"):
            return _refusal(403, "a request from a page of another origin")
        if headers.get("sec-fetch-site") == "cross-site" and (posted or headers.get("sec-fetch-mode") != "navigate"):
            return _refusal(403, "a request from a page of another site")
        asked = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = next((value for name, value in asked if name == "token"), None)
        if given is not None and (visitor := self._visitor(given)):
            return self._welcome(scope, [pair for pair in asked if pair[0] != "token"], visitor[0], given)
        scope["visitors"] = self._visitors(headers)
        if scope["visitors"]:
            return None
        return _refusal(403, "no token: open the link that was printed or that you were given, with its token")

    def _welcome(self, scope: Scope, asked: Sequence[tuple[str, str]], role: str, token: str) -> Response:
        # The path is kept as it came, with exactly one leading slash, so that the redirect never leaves this server.
        path = "/" + scope["raw_path"].decode("latin-1").lstrip("/\\")
        answer = RedirectResponse(path + (f"?{urlencode(asked)}" if asked else ""), 303)
        kept = _KEPT_S if role else None
        answer.set_cookie(self._cookie_of(role), token, max_age=kept, httponly=True, samesite="lax", path="/")
        return answer

    def _visitors(self, headers: Headers) -> dict[str, str]:
        """Role -> name, from this server's cookies whose token is valid and belongs to the cookie's role."""
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return {}
        own = [(name, morsel.value) for name, morsel in cookies.items() if name.startswith(self._cookie)][:_MOST_ROLES]
        found = [(name, self._visitor(token)) for name, token in own]
        return dict(visitor for name, visitor in found if visitor and name == self._cookie_of(visitor[0]))

    def _cookie_of(self, role: str) -> str:
        return f"{self._cookie}-{role}" if role else self._cookie

    def _is_own(self, host: str) -> bool:
        try:
            parts = urlsplit(f"//{host}")
            name, port = parts.hostname or "", parts.port or 80
        except ValueError:
            return False
        if parts.username is not None or parts.path or port != self._port:
            return False
        return name in self._hosts or (self._wild and _is_address(name))


async def _body(receive: Receive) -> bytes | None:
    """The body of a POST, or None if the client disconnected; the HTTP server enforces the announced length."""
    parts: list[bytes] = []
    while (message := await receive())["type"] == "http.request":
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)
    return None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _refusal(status: int, why: str, headers: dict[str, str] | None = None) -> Response:
    return PlainTextResponse(f"refused: {why}\n", status, headers)
