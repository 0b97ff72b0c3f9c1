"""HTTP connections to checked addresses, kept open and used again.

httpcore's own pool looks at every connection whenever a request begins or ends: at 32 connections that takes ten times the
processor time of this simple store of idle ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpcore
import httpx

_KEEP_S = 15.0
_HEAD_BYTES = 1 << 18
"""Bytes that may come before the head of an answer has ended: a server may send interim answers for ever."""


class NotPublicError(Exception):
    """The host has no address that may be connected to."""


class _Counted(httpcore.AsyncNetworkStream):
    """A stream that gives no more than ``bytes_left`` bytes, where that is set."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self.bytes_left: int | None = None

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = await self._stream.read(max_bytes, timeout)
        if self.bytes_left is not None:
            self.bytes_left -= len(data)
            if self.bytes_left < 0:
                raise httpcore.RemoteProtocolError(f"more than {_HEAD_BYTES} bytes before the answer")
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Connection(httpcore.AsyncHTTP11Connection):
    """A connection whose next bytes can be limited."""

    def __init__(self, origin: httpcore.Origin, stream: _Counted, *, keepalive_expiry: float) -> None:
        super().__init__(origin, stream, keepalive_expiry=keepalive_expiry)
        self._counted = stream

    def limit(self, bytes_left: int | None) -> None:
        """How many bytes may still come; None for any number."""
        self._counted.bytes_left = bytes_left


@dataclass
class Connections:
    """Open connections of one event loop.

    Attributes:
        allow_private: also connect to addresses that are not public.
        max_idle: maximum connections kept open unused.
    """

    allow_private: bool
    max_idle: int
    _idle: dict[tuple[str, str, int], list[_Connection]] = field(default_factory=dict)
    _idle_count: int = 0

    @contextlib.asynccontextmanager
    async def stream(self, url: httpx.URL, headers: list[tuple[str, str]]) -> AsyncIterator[httpcore.Response]:
        """The response to a GET request, its body still to be read, as the server sends it.

        An idle connection that turns out to be closed is replaced by a new one.

        Raises:
            NotPublicError: the host resolves to addresses that are not allowed.
            httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError: as it went.
        """
        port = url.port or (443 if url.scheme == "https" else 80)
        target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=port, target=url.raw_path)
        place = (url.scheme, url.raw_host.decode("ascii"), port)
        connection = await self._take(place)
        reused = connection is not None
        connection = connection or await self._connect(place)
        try:
            async with contextlib.AsyncExitStack() as stack:
                connection.limit(_HEAD_BYTES)
                try:
                    response = await stack.enter_async_context(connection.stream("GET", target, headers=headers))
                except (httpcore.RemoteProtocolError, httpcore.NetworkError):
                    if not reused:
                        raise
                    await connection.aclose()
                    connection = await self._connect(place)
                    connection.limit(_HEAD_BYTES)
                    response = await stack.enter_async_context(connection.stream("GET", target, headers=headers))
                connection.limit(None)
                yield response
        finally:
            await self._give_back(place, connection)

    async def aclose(self) -> None:
        """Close what is open."""
        for connections in self._idle.values():
            for connection in connections:
                await connection.aclose()
        self._idle.clear()

    async def _take(self, place: tuple[str, str, int]) -> _Connection | None:
        idle = self._idle.get(place, [])
        while idle:
            connection = idle.pop()
            self._idle_count -= 1
            if not connection.has_expired():
                return connection
            await connection.aclose()
        return None

    async def _give_back(self, place: tuple[str, str, int], connection: _Connection) -> None:
        if connection.is_idle() and self._idle_count < self.max_idle:
            self._idle.setdefault(place, []).append(connection)
            self._idle_count += 1
        else:
            await connection.aclose()

    async def _connect(self, place: tuple[str, str, int]) -> _Connection:
        scheme, host, port = place
        stream = await _open(host, port, self.allow_private)
        if scheme == "https":
            stream = await stream.start_tls(_tls(), server_hostname=host)
        origin = httpcore.Origin(scheme.encode("ascii"), host.encode("ascii"), port)
        return _Connection(origin, _Counted(stream), keepalive_expiry=_KEEP_S)


@functools.cache
def _tls() -> ssl.SSLContext:
    context = httpx.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


async def _open(host: str, port: int, allow_private: bool) -> httpcore.AsyncNetworkStream:
    """Resolve the host once, and connect to an address that passed: a second look-up could give another one."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(info[4][0]) for info in found))
    allowed = [address for address in addresses if allow_private or is_public(address)]
    if not allowed:
        raise NotPublicError(f"{host} is {', '.join(addresses[:3])}, which is not public")
    network: Any = httpcore.AnyIOBackend()
    for address in allowed[:-1]:
        with contextlib.suppress(httpcore.ConnectError, httpcore.ConnectTimeout):
            return await network.connect_tcp(address, port, timeout=5.0)
    return await network.connect_tcp(allowed[-1], port)


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
