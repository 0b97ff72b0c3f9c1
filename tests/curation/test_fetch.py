"""Downloads, against a real server on this machine that stalls, truncates, redirects and lies."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import datetime as dt
import gzip
import io
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from email.utils import format_datetime
from pathlib import Path

import numpy as np
import pytest
from benchwright.curation.flow import source, step
from benchwright.curation.keys import how
from benchwright.curation.rows import MachineFault, Rejected
from benchwright.curation.run import run
from benchwright.curation.stages import connections
from benchwright.curation.stages import fetch as fetching
from benchwright.curation.stages.connections import is_public
from benchwright.curation.stages.fetch import TRANSIENT_REASONS, FetchedImage, LinkedImage, fetch_images
from benchwright.curation.stages.fetch_settings import FetchLimits, FetchPace
from PIL import Image

FAST = FetchPace(timeout_s=5, retries=0, backoff_s=0.01, max_backoff_s=2, per_host=64)
HERE = FetchLimits(allow_private_hosts=True, max_bytes=100_000)


def picture(form: str = "JPEG", side: int = 40) -> bytes:
    out = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
    Image.fromarray(noise).save(out, form)
    return out.getvalue()


JPEG, PNG = picture(), picture("PNG")
Write = Callable[[bytes], Awaitable[None]]


def reply(status: str = "200 OK", body: bytes = b"", *headers: str, length: int | None = -1) -> bytes:
    """Bytes of a response. ``length`` -1 announces the body's own, None announces none and closes at the end."""
    lines = [f"HTTP/1.1 {status}", *headers]
    lines.append("Connection: close" if length is None else f"Content-Length: {len(body) if length == -1 else length}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Server:
    """An HTTP server in a thread. Answers by path; counts the requests, and how many run at the same time."""

    def __init__(self) -> None:
        self.hits: collections.Counter[str] = collections.Counter()
        self.times: list[float] = []
        self.busy = self.most_busy = 0
        self.connections = self.open = self.most_open = 0
        self.agents: set[str] = set()
        self.cookies: list[str] = []
        self.port = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def __enter__(self) -> Server:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connection, "0.0.0.0", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                request = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                path = request.split(" ")[1]
                self.agents.add(next(line[12:] for line in request.split("\r\n") if line.lower().startswith("user-agent: ")))
                self.cookies += [line for line in request.split("\r\n") if line.lower().startswith("cookie")]
                self.hits[path] += 1
                self.times.append(time.monotonic())
                self.busy += 1
                self.most_busy = max(self.most_busy, self.busy)
                try:
                    if not await self._answer(path, writer):
                        break
                finally:
                    self.busy -= 1
        self.open -= 1
        with contextlib.suppress(OSError):
            writer.close()

    async def _answer(self, path: str, writer: asyncio.StreamWriter) -> bool:
        async def send(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        if path.startswith("/ok"):
            await asyncio.sleep(0.02 if "slow" in path else 0)
            await send(reply(body=JPEG))
            return True
        if path == "/reset":  # of a body whose end only the connection's end tells
            await send(reply(body=JPEG[:-20], length=None))
            await asyncio.sleep(0.05)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        if path.startswith("/status/"):
            await send(reply(path.removeprefix("/status/") + " Some Words", b"<html>sorry</html>"))
            return True
        if path.startswith("/hop/"):
            left = int(path.removeprefix("/hop/"))
            await send(reply("302 Found", b"", f"Location: {'/ok' if left == 0 else f'/hop/{left - 1}'}"))
            return True
        return await ANSWERS[path](self, send)


async def stall(server: Server, send: Write) -> bool:
    await asyncio.sleep(60)
    return False


async def stall_in_body(server: Server, send: Write) -> bool:
    await send(reply(body=JPEG[:100], length=len(JPEG)))
    await asyncio.sleep(60)
    return False


async def drip(server: Server, send: Write) -> bool:
    await send(reply(length=10_000))
    for _ in range(600):
        await send(b"x")
        await asyncio.sleep(0.1)
    return False


async def endless(server: Server, send: Write) -> bool:
    await send(reply(length=None))
    for _ in range(100_000):
        await send(b"\xff\xd8\xff" + bytes(65536))
    return False


async def endless_headers(server: Server, send: Write) -> bool:
    await send(b"HTTP/1.1 200 OK\r\n")
    for n in range(1_000_000):
        await send(f"X-{n}: {'x' * 1000}\r\n".encode())
    return False


async def flaky(server: Server, send: Write) -> bool:
    await send(reply(body=JPEG) if server.hits["/flaky"] > 2 else reply("500 Oops"))
    return True


async def cut_then_whole(server: Server, send: Write) -> bool:
    whole = server.hits["/cut-then-whole"] > 1
    await send(reply(body=JPEG if whole else JPEG[:50], length=len(JPEG)))
    return whole


async def busy_then_ok(server: Server, send: Write) -> bool:
    await send(reply(body=JPEG) if server.hits["/429"] > 1 else reply("429 Slow down", b"", "Retry-After: 1"))
    return True


async def dated_busy(server: Server, send: Write) -> bool:
    at = format_datetime(dt.datetime.now(dt.UTC) + dt.timedelta(hours=1), usegmt=True)
    await send(reply("503 Later", b"", f"Retry-After: {at}"))
    return True


async def interim_for_ever(server: Server, send: Write) -> bool:
    for _ in range(1_000_000):
        await send(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)
    return False


async def chunks_of_one_byte(server: Server, send: Write) -> bool:
    await send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(1_000_000):
        await send(b"1\r\nx\r\n" * 100)
    return False


def fixed(data: bytes, keep: bool = True) -> Callable[[Server, Write], Awaitable[bool]]:
    async def answer(server: Server, send: Write) -> bool:
        await send(data)
        return keep

    return answer


def redirect(to: str, status: str = "302 Found") -> Callable[[Server, Write], Awaitable[bool]]:
    return fixed(reply(status, b"moved", f"Location: {to}"))


async def to_other_host(server: Server, send: Write) -> bool:
    await send(reply("301 Moved", b"", f"Location: http://localhost:{server.port}/ok"))
    return True


BOMB = gzip.compress(bytes(50_000_000), 9)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + f"{len(JPEG):x}\r\n".encode() + JPEG + b"\r\n"
ANSWERS: dict[str, Callable[[Server, Write], Awaitable[bool]]] = {
    "/interim-for-ever": interim_for_ever,
    "/chunks-of-one-byte": chunks_of_one_byte,
    "/stall": stall,
    "/stall-in-body": stall_in_body,
    "/drip": drip,
    "/endless": endless,
    "/endless-headers": endless_headers,
    "/flaky": flaky,
    "/cut-then-whole": cut_then_whole,
    "/429": busy_then_ok,
    "/429-for-an-hour": fixed(reply("429 No", b"", "Retry-After: 3600")),
    "/503-dated": dated_busy,
    "/truncated": fixed(reply(body=JPEG[:-20], length=len(JPEG)), keep=False),
    "/chunked": fixed(CHUNKED + b"0\r\n\r\n"),
    "/chunked-cut": fixed(CHUNKED, keep=False),
    "/long-announced": fixed(reply(body=b"", length=10**12), keep=False),
    "/no-length": fixed(reply(body=PNG, length=None), keep=False),
    "/longer-than-said": fixed(reply(body=JPEG + b"more", length=len(JPEG)), keep=False),
    "/html": fixed(reply("200 OK", b"<html>not here</html>", "Content-Type: image/jpeg")),
    "/png-as-text": fixed(reply("200 OK", PNG, "Content-Type: text/html")),
    "/cookie": fixed(reply("200 OK", JPEG, "Set-Cookie: seen=yes")),
    "/tiny": fixed(reply(body=b"\xff\xd8\xff")),
    "/empty": fixed(reply(body=b"")),
    "/204": fixed(b"HTTP/1.1 204 No Content\r\n\r\n"),
    "/bomb": fixed(reply("200 OK", BOMB, "Content-Encoding: gzip")),
    "/gzip": fixed(reply("200 OK", gzip.compress(JPEG), "Content-Encoding: gzip")),
    "/deflate": fixed(reply("200 OK", zlib.compress(JPEG), "Content-Encoding: deflate")),
    "/gzip-cut": fixed(reply("200 OK", gzip.compress(JPEG)[:-12], "Content-Encoding: gzip")),
    "/gzip-lie": fixed(reply("200 OK", JPEG, "Content-Encoding: gzip")),
    "/brotli": fixed(reply("200 OK", JPEG, "Content-Encoding: br")),
    "/loop": redirect("/loop"),
    "/to-file": redirect("file:///etc/passwd"),
    "/to-nowhere": redirect("http://:80/"),
    "/to-metadata": redirect("http://169.254.169.254/latest/meta-data/"),
    "/to-bad-ipv6": redirect("http://[bad/"),
    "/to-ipv4-in-brackets": redirect("//[127.0.0.1]/"),
    "/to-empty-label": redirect("http://a..b/"),
    "/to-long-label": redirect(f"http://{'a' * 64}.org/"),
    "/to-odd-port": redirect("http://127.0.0.1:\xb2/"),
    "/to-latin-1": fixed(reply("302 Found", b"", "Location: http://host/").replace(b"host", b"\xe9\xff")),
    "/to-long-url": redirect("/" + "a" * 60_000),
    "/to-itself": redirect(""),
    "/to-unavailable": redirect("/en-us/photo_unavailable.png"),
    "/to-other-host": to_other_host,
    "/302-without": fixed(reply("302 Found")),
    "/length-negative": fixed(reply(body=JPEG, length=-5)),
    "/length-endless": fixed(reply(body=JPEG, length=10**4000)),
    "/length-twice": fixed(reply("200 OK", JPEG, "Content-Length: 7")),
    "/encoding-odd": fixed(reply("200 OK", JPEG, "Content-Encoding: \xff\x80")),
    "/header-odd": fixed(reply("200 OK", JPEG, "X-\xff: 1")),
    "/header-nul": fixed(reply("200 OK", JPEG, "X: \0")),
    "/chunk-negative": fixed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n"),
    "/bomb-deflate": fixed(reply("200 OK", zlib.compress(bytes(50_000_000), 9), "Content-Encoding: deflate")),
    "/bomb-twice": fixed(reply("200 OK", gzip.compress(BOMB), "Content-Encoding: gzip, gzip")),
    "/not-http": fixed(b"SSH-2.0-OpenSSH_9.2\r\n\r\n", keep=False),
    "/hang-up": fixed(b"", keep=False),
}
UNREADABLE = [
    "Mon, 01 Jan 2024 00:00:00 +99999999999999999999",
    "Mon, 01 Jan 2024 99999999999999999999:00:00 GMT",
    "Mon, 99 Jan 99999 00:00:00 GMT",
    "-5",
    "nan",
    "inf",
    "1e999",
    "\xb2",
    "",
]
ROBOTS = {
    "noai": True,
    "NoAI, noarchive": True,
    "noarchive, noimageindex": True,
    "mine: noimageai": True,
    "otherbot: noai": False,
    "otherbot: noarchive, noai": False,
    "noarchive": False,
    "max-image-preview: large, noindex": True,
    "unavailable_after: 25 Jun 2010 15:00:00 PST, noai": True,
    "\xff:\x80, ::, noaii": False,
}
ANSWERS.update((f"/robots/{n}", fixed(reply("200 OK", JPEG, f"X-Robots-Tag: {text}"))) for n, text in enumerate(ROBOTS))
ANSWERS["/robots/twice"] = fixed(reply("200 OK", JPEG, "X-Robots-Tag: otherbot: nofollow", "x-robots-tag: noai"))
ANSWERS.update(
    (f"/retry-after/{number}", fixed(reply("503 Later", b"", f"Retry-After: {text}"))) for number, text in enumerate(UNREADABLE)
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def fetch(urls: list[str], limits: FetchLimits = HERE, pace: FetchPace = FAST) -> list[FetchedImage | Rejected]:
    rows = [LinkedImage(f"k{n}", url) for n, url in enumerate(urls)]
    found = asyncio.run(fetch_images(rows, limits=limits, pace=pace))
    assert [item.key for item in found] == [row.key for row in rows]
    return found


def fetch_one(server: Server, path: str, limits: FetchLimits = HERE, pace: FetchPace = FAST) -> FetchedImage | Rejected:
    [found] = fetch([server.url(path)], limits, pace)
    return found


@pytest.mark.parametrize(
    ("path", "data", "extension"),
    [
        ("/ok", JPEG, "jpg"),
        ("/chunked", JPEG, "jpg"),
        ("/no-length", PNG, "png"),
        ("/png-as-text", PNG, "png"),
        ("/longer-than-said", JPEG, "jpg"),
        ("/gzip", JPEG, "jpg"),
        ("/deflate", JPEG, "jpg"),
        ("/hop/4", JPEG, "jpg"),
        ("/to-other-host", JPEG, "jpg"),
    ],
)
def test_images_arrive_whole_and_are_named_by_what_they_are(server: Server, path: str, data: bytes, extension: str) -> None:
    found = fetch_one(server, path)
    assert isinstance(found, FetchedImage), found
    assert found.image.read() == data
    assert found.extension == extension
    assert found.url == server.url(path)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/status/404", "gone"),
        ("/status/410", "gone"),
        ("/to-unavailable", "gone"),
        ("/status/401", "forbidden"),
        ("/status/403", "forbidden"),
        ("/status/451", "forbidden"),
        ("/status/400", "refused"),
        ("/status/418", "refused"),
        ("/status/500", "server_error"),
        ("/status/503", "server_error"),
        ("/status/408", "server_error"),
        ("/status/429", "rate_limited"),
        ("/status/206", "bad_response"),
        ("/204", "bad_response"),
        ("/302-without", "bad_response"),
        ("/not-http", "bad_response"),
        ("/brotli", "bad_response"),
        ("/gzip-lie", "bad_response"),
        ("/hang-up", "unreachable"),
        ("/truncated", "truncated"),
        ("/chunked-cut", "truncated"),
        ("/reset", "truncated"),
        ("/gzip-cut", "truncated"),
        ("/html", "not_an_image"),
        ("/tiny", "too_small_file"),
        ("/empty", "too_small_file"),
        ("/endless", "too_large"),
        ("/long-announced", "too_large"),
        ("/bomb", "too_large"),
        ("/endless-headers", "bad_response"),
        ("/loop", "too_many_redirects"),
        ("/hop/5", "too_many_redirects"),
        ("/to-file", "bad_url"),
        ("/to-nowhere", "bad_url"),
        ("/to-bad-ipv6", "bad_url"),
        ("/to-ipv4-in-brackets", "bad_url"),
        ("/to-empty-label", "bad_url"),
        ("/to-long-label", "bad_url"),
        ("/to-odd-port", "bad_url"),
        ("/to-long-url", "bad_url"),
        ("/to-itself", "too_many_redirects"),
        ("/status/000", "bad_response"),
        ("/status/999", "server_error"),
        ("/length-negative", "bad_response"),
        ("/length-endless", "bad_response"),
        ("/length-twice", "bad_response"),
        ("/encoding-odd", "bad_response"),
        ("/header-odd", "bad_response"),
        ("/header-nul", "bad_response"),
        ("/chunk-negative", "bad_response"),
        ("/bomb-deflate", "too_large"),
        ("/bomb-twice", "bad_response"),
        *((f"/retry-after/{number}", "server_error") for number in range(len(UNREADABLE))),
    ],
)
def test_every_failure_has_its_reason(server: Server, path: str, reason: str) -> None:
    found = fetch_one(server, path)
    assert isinstance(found, Rejected), found
    assert found.reason == reason, found
    assert server.url(path) in found.detail


def test_a_location_that_is_not_utf8_is_a_reject(server: Server) -> None:
    found = fetch_one(server, "/to-latin-1")
    assert isinstance(found, Rejected)
    assert found.reason in ("bad_url", "unreachable")  # the latter where it is taken for the name of a host
    found.detail.encode()  # can be stored


def test_a_retry_after_that_cannot_be_read_is_none(server: Server) -> None:
    server.hits.clear()
    fetch([server.url(f"/retry-after/{number}") for number in range(len(UNREADABLE))], pace=replace(FAST, retries=1))
    assert set(server.hits.values()) == {2}


@pytest.mark.parametrize("path", ["/stall", "/stall-in-body", "/drip"])
def test_a_stall_ends_with_the_deadline(server: Server, path: str) -> None:
    found = fetch_one(server, path, pace=replace(FAST, timeout_s=0.5))
    assert isinstance(found, Rejected)
    assert found.reason == "timed_out"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "no url",
        "ftp://example.org/a.jpg",
        "file:///etc/passwd",
        "http://",
        "http:///a.jpg",
        "http://a b/c",
        "//host/a.jpg",
        "http://user:secret@127.0.0.1/a",
        "http://127.0.0.1:99999/a",
        "http://[::1/a",
        "data:image/png;base64,AA",
        "http://h/\n\r\nX: y",
        "http://127.0.0.1/" + "a" * 9000,
        "javascript:alert(1)",
        "http://\ud800/",
        "http://xn--/a",
        "http://a..b/",
        "https://.example/",
        f"http://{'a' * 64}.org/",
    ],
)
def test_bad_urls_are_told_and_never_asked(url: str) -> None:
    [found] = fetch([url])
    assert isinstance(found, Rejected)
    assert found.reason == "bad_url", found
    found.detail.encode()  # can be stored


def test_what_cannot_be_reached() -> None:
    with socket.socket() as free:  # bound and not listening: refused
        free.bind(("127.0.0.1", 0))
        urls = [f"http://127.0.0.1:{free.getsockname()[1]}/", "http://no-such-host.invalid/a.jpg", "https://127.0.0.1:1/"]
        found = fetch(urls)
    assert [item.reason for item in found if isinstance(item, Rejected)] == ["unreachable"] * 3


def test_addresses_that_are_not_public_are_refused_by_default(server: Server) -> None:
    port = server.port
    before = server.hits.total()
    hosts = ["127.0.0.1", "localhost", "2130706433", "0x7f000001", "127.1", "0.0.0.0", "[::ffff:127.0.0.1]", "169.254.169.254"]
    hosts += ["10.0.0.1", "192.168.1.1", "172.16.0.1", "100.64.0.1", "[fe80::1]", "[fd00::1]", "224.0.0.1"]
    found = fetch([f"http://{host}:{port}/ok" for host in hosts], replace(HERE, allow_private_hosts=False))
    reasons = {host: item.reason for host, item in zip(hosts, found, strict=True) if isinstance(item, Rejected)}
    # A machine without a resolver for odd forms says that they are unreachable; none of them may be asked.
    assert set(reasons) == set(hosts)
    sure = ("127.0.0.1", "localhost", "169.254.169.254", "10.0.0.1", "[::ffff:127.0.0.1]")
    assert {reasons[host] for host in sure} == {"private_address"}
    assert set(reasons.values()) <= {"private_address", "unreachable", "bad_url"}
    assert server.hits.total() == before


def test_which_addresses_are_public() -> None:
    assert all(map(is_public, ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]))
    private = [
        "127.0.0.1",
        "0.0.0.0",
        "10.1.2.3",
        "169.254.169.254",
        "100.64.0.1",
        "192.168.0.1",
        "224.0.0.1",
        "255.255.255.255",
    ]
    private += [
        "::1",
        "::",
        "fe80::1%eth0",
        "fd00::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
    ]
    assert not any(map(is_public, private))


def test_a_redirect_to_a_private_address_is_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    # This machine's own server stands for a public one, since a test can have no other; every other address is judged.
    monkeypatch.setattr(connections, "is_public", lambda address: address == "127.0.0.1" or is_public(address))
    limits = replace(HERE, allow_private_hosts=False)
    assert isinstance(fetch_one(server, "/ok", limits), FetchedImage)
    found = fetch_one(server, "/to-metadata", limits)
    assert isinstance(found, Rejected)
    assert found.reason == "private_address"
    assert "169.254.169.254" in found.detail


def test_the_address_that_was_checked_is_the_one_that_is_used(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that gives another address the second time; this machine's own stands for a public one."""
    monkeypatch.setattr(connections, "is_public", lambda address: address == "127.0.0.1")
    asked: list[str] = []

    def look_up(host: str, port: int, *_: object, **__: object) -> list[tuple[object, ...]]:
        asked.append(host)
        address = "127.0.0.1" if len(asked) == 1 else "10.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    [found] = fetch([f"http://rebound.example:{server.port}/ok"], replace(HERE, allow_private_hosts=False))
    assert isinstance(found, FetchedImage), found
    assert asked == ["rebound.example"]


def test_urls_are_sent_as_they_are_written(server: Server) -> None:
    server.hits.clear()
    fetch([server.url(path) for path in ("/ok/a%2Fb?x=%7e&y=a+b'(c)", "/ok/é b", "/ok?#part")])
    assert set(server.hits) == {"/ok/a%2Fb?x=%7e&y=a+b'(c)", "/ok/%C3%A9%20b", "/ok"}


def test_no_cookie_goes_from_one_request_to_the_next(server: Server) -> None:
    server.cookies.clear()
    fetch([server.url("/cookie")] * 3, pace=replace(FAST, concurrency=1))
    assert server.cookies == []


def test_retries_turn_passing_failures_into_images(server: Server) -> None:
    pace = replace(FAST, retries=3)
    for path in ("/flaky", "/cut-then-whole"):
        server.hits[path] = 0
        found = fetch_one(server, path, pace=pace)
        assert isinstance(found, FetchedImage), found
        assert found.image.read() == JPEG
    assert server.hits["/flaky"] == 3
    assert server.hits["/cut-then-whole"] == 2


def test_only_passing_failures_are_retried(server: Server) -> None:
    pace = replace(FAST, retries=2)
    paths = ["/status/404", "/status/403", "/html", "/status/500", "/truncated", "/hang-up"]
    server.hits.clear()
    found = fetch([server.url(path) for path in paths], pace=pace)
    # A server that hangs up on a connection that was open before is asked once more on a new one.
    assert [server.hits[path] for path in paths[:-1]] == [1, 1, 1, 3, 3]
    assert server.hits["/hang-up"] >= 3
    for item in found:
        assert isinstance(item, Rejected)
        assert ("3 attempts" in item.detail) == (item.reason in TRANSIENT_REASONS)


def test_a_server_that_asks_to_wait_is_given_the_time(server: Server) -> None:
    server.hits["/429"] = 0
    server.times.clear()
    found = fetch_one(server, "/429", pace=replace(FAST, retries=1))
    assert isinstance(found, FetchedImage)
    assert server.times[1] - server.times[0] >= 0.99


@pytest.mark.parametrize(("path", "reason"), [("/429-for-an-hour", "rate_limited"), ("/503-dated", "server_error")])
def test_a_server_that_asks_for_an_hour_is_left_alone(server: Server, path: str, reason: str) -> None:
    server.hits[path] = 0
    found = fetch_one(server, path, pace=replace(FAST, retries=5))
    assert isinstance(found, Rejected)
    assert found.reason == reason
    assert server.hits[path] == 1


@pytest.mark.parametrize(("pace", "most"), [(replace(FAST, concurrency=5), 5), (replace(FAST, per_host=3), 3)])
def test_no_more_requests_at_a_time_than_allowed(pace: FetchPace, most: int) -> None:
    with Server() as server:  # one that no stalled request of another test keeps busy
        found = fetch([server.url(f"/ok?slow={n}") for n in range(40)], pace=pace)
        assert all(isinstance(item, FetchedImage) for item in found)
        assert 1 < server.most_busy <= most


def test_starts_at_one_host_keep_their_distance(server: Server) -> None:
    server.times.clear()
    fetch([server.url(f"/ok?{n}") for n in range(6)], pace=replace(FAST, min_interval_s=0.1))
    # A request may be late and its successor not, so single gaps vary, and the whole does not.
    assert len(server.times) == 6
    assert max(server.times) - min(server.times) >= 0.45


def test_connections_are_used_again(server: Server) -> None:
    server.connections = 0
    fetch([server.url("/hop/1")] * 30, pace=replace(FAST, concurrency=2))
    assert server.connections <= 4


def test_connections_to_hosts_without_number_are_not_kept() -> None:
    with Server() as server:
        found = fetch([f"http://127.0.0.{n}:{server.port}/ok" for n in range(2, 42)], pace=replace(FAST, concurrency=2))
        assert all(isinstance(item, FetchedImage) for item in found)
        assert server.most_open <= 8


def test_one_stalled_host_does_not_hold_up_the_others(server: Server) -> None:
    urls = [server.url("/stall")] * 4 + [f"http://localhost:{server.port}/ok?{n}" for n in range(20)]
    found = fetch(urls, pace=replace(FAST, timeout_s=1, per_host=2, concurrency=4))
    assert [type(item) for item in found] == [Rejected] * 4 + [FetchedImage] * 20


def test_images_that_robots_are_not_to_take_are_left(server: Server) -> None:
    limits = replace(HERE, robots_agent="Mine")
    for number, (text, refused) in enumerate(ROBOTS.items()):
        found = fetch_one(server, f"/robots/{number}", limits)
        told = found.reason if isinstance(found, Rejected) else ""
        assert told == ("disallowed_by_robots_tag" if refused else ""), text
    twice = fetch_one(server, "/robots/twice")
    assert isinstance(twice, Rejected)
    assert twice.detail.endswith("/robots/twice: X-Robots-Tag: noai")
    assert isinstance(fetch_one(server, "/robots/3"), FetchedImage)  # of an agent that is not said to be ours
    assert isinstance(fetch_one(server, "/robots/0", replace(limits, disallowed_directives=())), FetchedImage)


def test_who_asks_is_said(server: Server) -> None:
    server.agents.clear()
    fetch_one(server, "/ok", pace=replace(FAST, user_agent="test (me@example.org)"))
    assert server.agents == {"test (me@example.org)"}
    with pytest.raises(ValueError, match="user_agent"):
        fetch([], pace=replace(FAST, user_agent="a\r\nX: y"))
    with pytest.raises(ValueError, match="timeout_s"):
        fetch([], pace=replace(FAST, timeout_s=0))


def list_links(*, url: str, count: int, bad: tuple[str, ...]) -> Iterator[LinkedImage]:
    """A source of links, of which some lead nowhere."""
    for n in range(count):
        yield LinkedImage(f"{n:04}", url + ("/ok" if n >= len(bad) else bad[n]))


def test_a_run_accounts_for_every_link(server: Server, tmp_path: Path) -> None:
    bad = ("/status/404", "/html", "/truncated", "/loop", "/endless", "/to-bad-ipv6", "/retry-after/0")
    flow = source("listed", step(list_links, url=server.url(""), count=60, bad=bad)).each_batch(
        "fetched", step(fetch_images, limits=HERE, pace=how(FAST)), max_rejects=len(bad), rows_per_part=16
    )
    result = run(flow, str(tmp_path), scheduler="threads", workers=2).artifacts[-1]
    assert result.rows == 53
    once = ("gone", "not_an_image", "truncated", "too_many_redirects", "too_large", "bad_url", "server_error")
    assert result.rejects == dict.fromkeys(once, 1)


# ------------------------------------------------------------------------------------------- faults of this machine


def test_where_nobody_answers_the_run_stops_and_turns_no_row_away() -> None:
    with socket.socket() as taken:  # bound and not listening: who connects is refused
        taken.bind(("127.0.0.1", 0))
        urls = [f"http://127.0.0.1:{taken.getsockname()[1]}/{number}" for number in range(20)]
        with pytest.raises(MachineFault, match=r"no server answered \(20 unreachable\).*source\.pace\.offline_after=0"):
            fetch(urls)
        found = [*fetch(urls, pace=replace(FAST, offline_after=0)), *fetch(urls[:3])]
    assert {item.reason for item in found if isinstance(item, Rejected)} == {"unreachable"}


def test_one_answer_tells_that_there_is_a_network(server: Server) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        dead = [f"http://127.0.0.1:{taken.getsockname()[1]}/{number}" for number in range(20)]
        found = fetch([*dead, server.url("/status/404")])
    assert [item.reason for item in found if isinstance(item, Rejected)] == ["unreachable"] * 20 + ["gone"]


def test_too_many_open_files_are_no_fault_of_a_row(server: Server) -> None:
    script = (
        "import asyncio, os, resource, sys\n"
        "from benchwright.curation.rows import MachineFault\n"
        "from benchwright.curation.stages.fetch import LinkedImage, fetch_images\n"
        "from benchwright.curation.stages.fetch_settings import FetchLimits, FetchPace\n"
        "limits, pace = FetchLimits(allow_private_hosts=True), FetchPace(retries=0)\n"
        "async def look():\n"
        "    used = len(os.listdir('/proc/self/fd'))\n"
        "    resource.setrlimit(resource.RLIMIT_NOFILE, (used - 1, used - 1))\n"
        "    return await fetch_images([LinkedImage('a', sys.argv[1])], limits=limits, pace=pace)\n"
        "try: print(asyncio.run(look()))\n"
        "except MachineFault as fault: print(fault)\n"
    )
    command = [sys.executable, "-P", "-c", script, server.url("/ok")]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Too many open files: lower source.pace.concurrency" in told


def test_time_outs_of_a_process_that_is_too_busy_turn_no_row_away(server: Server) -> None:
    """Something else holds the event loop until the time is up, while the answer lies ready."""

    async def hold() -> None:
        time.sleep(0.7)

    async def busy() -> list[FetchedImage | Rejected]:
        asking = asyncio.ensure_future(fetch_images([LinkedImage("a", server.url("/ok?slow"))], limits=HERE, pace=pace))
        await asyncio.sleep(0.01)  # by now it is on its way
        connections.shared_client(os.getpid(), True, pace.concurrency, pace.user_agent).run(hold())
        return await asking

    pace = replace(FAST, timeout_s=0.5, retries=0)
    [found] = asyncio.run(busy())
    assert isinstance(found, FetchedImage), found


@pytest.mark.parametrize(
    ("path", "told"),
    [("/interim-for-ever", "interim answers before the answer"), ("/chunks-of-one-byte", "in pieces of 1 bytes")],
)
def test_a_server_that_keeps_us_busy_costs_its_own_row_alone(server: Server, path: str, told: str) -> None:
    busy, ok = fetch([server.url(path), server.url("/ok")])
    assert isinstance(busy, Rejected)
    assert (busy.reason, told in busy.detail) == ("bad_response", True)
    assert isinstance(ok, FetchedImage)


@pytest.mark.parametrize(
    "rest", ["/a.jpg", "", "/", "?", "/a%2Fb//c/../d;e=1?x=%20&y=/?", "/a b", "/\xe9?\xe9", "/a#b", "?a", "/a?"]
)
def test_a_url_of_plain_parts_is_sent_as_any_other(rest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("http://a.org", "https://A.org:443", "http://127.0.0.1:80", "http://a_b.org."):
        quick = fetching._parse(place + rest)
        with monkeypatch.context() as patch:
            patch.setattr(fetching, "_AS_SENT", re.compile("(?!)"))
            assert str(quick) == str(fetching._parse(place + rest))
