"""HTTP connections to checked addresses: aiohttp's client with a resolver that returns only permitted addresses."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import functools
import ipaddress
import os
import re
import socket
import ssl
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import aiohttp
import certifi
from aiohttp.abc import ResolveResult
from aiohttp.client_proto import ResponseHandler

T = TypeVar("T")

_INTERIM = 100
"""Maximum interim responses (100 to 199) before the final one: a server could send them for ever."""

_FIELD_BYTES = 1 << 16
"""Maximum size of a header: above the maximum length of a URL, so that a redirect that is too long is reported as such."""

_LENGTH = re.compile(rb"\r\nContent-Length: (\d{1,15})\r\n")


class NotPublicError(Exception):
    """The host has no public address."""


class Client:
    """aiohttp's client, without cookies and timeouts, in its own event loop, so that connections are reused between parts.

    Args:
        process: ``os.getpid()``. A forked process lacks the thread that runs the loop and needs its own client.
        allow_private: also connect to addresses that are not public. A host that is itself an address does not pass through
            the resolver: see ``check_literal``.
        most_idle: maximum number of idle connections kept open.
        user_agent: value of the User-Agent header.

    Attributes:
        session: aiohttp session; use it in coroutines passed to ``run``.
        busy: number of requests in progress, counted by the caller.

    Raises:
        OSError: this machine lacks the resources for an event loop.
    """

    def __init__(self, process: int, allow_private: bool, most_idle: int, user_agent: str) -> None:
        self.busy = 0
        self.opened: set[ResponseHandler] = set()
        self.most_idle = most_idle
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="downloads", daemon=True).start()
        self.session = self.run(self._open(allow_private, user_agent)).result()
        atexit.register(lambda: process == os.getpid() and self.run(self.session.close()).result(5))

    def run(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run ``work`` in the loop and return a future of its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _open(self, allow_private: bool, user_agent: str) -> aiohttp.ClientSession:
        connector: Any = aiohttp.TCPConnector(limit=0, resolver=None if allow_private else _PublicResolver())
        # aiohttp limits neither the number of interim responses nor the number of idle connections.
        connector._factory = functools.partial(_Guarded, self)
        return aiohttp.ClientSession(
            connector=connector,
            headers={"User-Agent": user_agent, "Accept": "image/*,*/*;q=0.5", "Accept-Encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            max_field_size=_FIELD_BYTES,
        )


shared_client = functools.cache(Client)


class _Guarded(ResponseHandler):
    """A connection that is closed if too many idle ones are open, and that ends a body as soon as it cannot be completed.

    Bytes after the end of a response are ignored, as by other clients: aiohttp's parser would treat them as a malformed
    response and discard the valid one.
    """

    def __init__(self, client: Client) -> None:
        super().__init__(asyncio.get_running_loop())
        self._client, self._interim = client, 0
        self._body: aiohttp.StreamReader | None = None

    @property
    def should_close(self) -> bool:
        return super().should_close or len(self._client.opened) - self._client.busy >= self._client.most_idle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._client.opened.add(self)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._client.opened.discard(self)
        if exc is not None:  # without an error, the end of the connection ends a body without a length
            self._fail(aiohttp.ClientPayloadError(f"the connection was lost: {exc}"))
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        at = data.find(b"\r\n\r\n") + 4 if data.startswith(b"HTTP/") else 0
        length = _LENGTH.search(data, 0, at)
        if at > 3 and (length is None or len(data) - at > int(length[1])):
            super().data_received(data[:at])  # delivered before anything after it can fail
            data = data[at:]
        if data:
            super().data_received(data)
            if (error := self.exception()) is not None:
                self._fail(aiohttp.ClientError(str(error)))

    def feed_data(self, data: tuple[Any, aiohttp.StreamReader], size: int = 0) -> None:
        self._interim = self._interim + 1 if data[0].code < 200 else 0
        if self._interim <= _INTERIM:
            self._body = data[1]
            super().feed_data(data, size)
        elif self.exception() is None:
            self.abort()
            self.set_exception(aiohttp.ClientError(f"more than {_INTERIM} interim answers before the answer"))

    def _fail(self, error: aiohttp.ClientError) -> None:
        if self._body is not None and not self._body.is_eof() and self._body.exception() is None:
            self._body.set_exception(error)


@functools.cache
def tls() -> ssl.SSLContext:
    """TLS context that trusts the system's certificate authorities and those of certifi, since some systems have none."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    context.set_alpn_protocols(["http/1.1"])
    return context


class _PublicResolver(aiohttp.ThreadedResolver):
    """Resolver that checks the addresses of the look-up that is used: a second look-up could return others."""

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[ResolveResult]:
        found = await super().resolve(host, port, family)
        allowed = [each for each in found if is_public(each["host"])]
        if not allowed:
            raise NotPublicError(f"{host} is {', '.join([each['host'] for each in found][:3])}, which is not public")
        return allowed


def check_literal(host: str) -> None:
    """Check a host that is itself an address, for which aiohttp does not call the resolver; names pass.

    Raises:
        NotPublicError: the address is not public.
        ValueError: the host looks like an address but is not valid.
    """
    if (":" in host or host.replace(".", "").isdigit()) and not is_public(host):
        raise NotPublicError(f"{host} is not public")


def is_public(address: str) -> bool:
    """Whether an IP address is public; an IPv4 address embedded in an IPv6 address is checked itself.

    >>> is_public("93.184.216.34"), is_public("192.168.0.7"), is_public("::ffff:10.0.0.1")
    (True, False, False)
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        nat64 = ip in ipaddress.ip_network("64:ff9b::/96")
        inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF) if nat64 else ip.ipv4_mapped or ip.sixtofour
        teredo = ip.teredo
        if teredo is not None:
            inner = teredo[1]
        if inner is not None:
            return is_public(str(inner))
        if ip.is_site_local:  # fec0::/10, deprecated in 2004 (RFC 3879) but still routed in some networks
            return False
    return ip.is_global and not ip.is_multicast and not ip.is_reserved
