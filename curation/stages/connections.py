"""HTTP connections to checked addresses: aiohttp's client, whose resolver gives only what may be connected to."""

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
"""Interim answers (100 to 199) that may come before the answer: a server may send them for ever."""

_FIELD_BYTES = 1 << 16
"""Longest header: more than the longest URL, so that a redirect that is too long is told as what it is."""

_LENGTH = re.compile(rb"\r\nContent-Length: (\d{1,15})\r\n")


class NotPublicError(Exception):
    """The host has no address that may be connected to."""


class Client:
    """aiohttp's client, without cookies and time-outs, in an event loop of its own, so that connections outlast a part.

    Args:
        process: ``os.getpid()``. A forked process has no thread that runs the loop, and needs a client of its own.
        allow_private: also connect to addresses that are not public. For an address in place of a name no resolver is asked:
            see ``check_literal``.
        most_idle: most connections that are kept open unused.
        user_agent: who asks.

    Attributes:
        session: to ask with, from ``run``.
        busy: requests under way, which the caller counts.

    Raises:
        OSError: this machine cannot give what a loop needs.
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
        """What ``work`` gives when the loop has run it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _open(self, allow_private: bool, user_agent: str) -> aiohttp.ClientSession:
        connector: Any = aiohttp.TCPConnector(limit=0, resolver=None if allow_private else _PublicResolver())
        # aiohttp has no setting for either: interim answers are read without end, and idle connections kept without number.
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
    """A connection that is closed rather than kept where many are open, and on which nobody waits for what cannot come.

    Bytes after an answer's end are left, as other clients leave them: aiohttp's parser would take them for a broken answer, and
    give up the one that it is to give.
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
        if exc is not None:  # which also ends a body that has no length
            self._fail(aiohttp.ClientPayloadError(f"the connection was lost: {exc}"))
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        at = data.find(b"\r\n\r\n") + 4 if data.startswith(b"HTTP/") else 0
        length = _LENGTH.search(data, 0, at)
        if at > 3 and (length is None or len(data) - at > int(length[1])):
            super().data_received(data[:at])  # is given before anything after it can fail
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
    """Trusts what the system trusts, and the authorities of certifi, since some systems have none."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    context.set_alpn_protocols(["http/1.1"])
    return context


class _PublicResolver(aiohttp.ThreadedResolver):
    """One look-up is both checked and used: a second one could give another address."""

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[ResolveResult]:
        found = await super().resolve(host, port, family)
        allowed = [each for each in found if is_public(each["host"])]
        if not allowed:
            raise NotPublicError(f"{host} is {', '.join([each['host'] for each in found][:3])}, which is not public")
        return allowed


def check_literal(host: str) -> None:
    """Check a host for which aiohttp asks no resolver, since it is itself an address; names pass.

    Raises:
        NotPublicError: it is not a public one.
        ValueError: it looks like an address, and is none.
    """
    if (":" in host or host.replace(".", "").isdigit()) and not is_public(host):
        raise NotPublicError(f"{host} is not public")


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public internet, looked at through the IPv6 forms that carry an IPv4 address.

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
        if ip.is_site_local:  # fec0::/10, given up in 2004 (RFC 3879) and still routed in some networks
            return False
    return ip.is_global and not ip.is_multicast and not ip.is_reserved
