"""Download images by URL, robust against untrusted URLs and servers that stall, misreport, redirect or disappear.

Built on aiohttp's client. In addition, the bytes of a body are counted before decompression, each redirect is checked,
and a connection goes to exactly the address that was checked.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import email.utils
import errno
import fnmatch
import functools
import os
import re
import urllib.parse
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import aiohttp
from yarl import URL

from ..rng import uniform
from ..rows import Blob, MachineFault, Rejected
from .connections import Client, NotPublicError, check_literal, shared_client, tls
from .fetch_settings import FetchLimits, FetchPace
from .image_format import sniff_extension

TRANSIENT_REASONS = frozenset({"timed_out", "unreachable", "server_error", "rate_limited", "truncated"})
"""Reject reasons for which a later attempt may succeed; all others are final."""

_UNANSWERED = frozenset({"timed_out", "unreachable"})

_LOCAL = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EADDRNOTAVAIL, errno.ENETDOWN})
"""Errors of this machine, independent of the server."""

_TICK_S = 0.1
_STARVED_SHARE = 0.1
_STARVED_TRIES = 10

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_FORBIDDEN = frozenset({401, 402, 403, 407, 451})
_TRY_AGAIN = frozenset({408, 425})
_VALUED = frozenset({"max-image-preview", "max-snippet", "max-video-preview", "unavailable_after"})
"""Directives of X-Robots-Tag that have a value."""

_MAX_URL = 8192
_LABEL = r"(?!xn--(?:\.|$))[A-Za-z0-9_-]{1,63}"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?|[0-9a-f:.]*:[0-9a-f:.]*")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
_AS_SENT = re.compile(r"(https?)://([A-Za-z0-9._:-]+)(/[\w.~!$&'()*+,;=:@%/-]*)(?:\?([\w.~!$&'()*+,;=:@%/?-]*))?", re.ASCII)
"""Matches most URLs: those that need no change; its groups are their parts."""
_KEPT = "!#$%&'()*+,/:;=?@[]~"
"""Characters, besides letters, digits and ``-._``, that are sent as the URL has them: percent-encoded or not."""
_SMALL_PARTS, _SMALL_PART_BYTES = 4096, 32
"""A body of more pieces than this, of fewer bytes on average than this, is rejected: it slows down all other downloads."""

_DRAINED_BYTES = 65536


@dataclass(frozen=True)
class LinkedImage:
    """A row whose image is at a URL."""

    key: str
    url: str


@dataclass(frozen=True)
class FetchedImage:
    """The row with the bytes of its image.

    Attributes:
        url: URL as requested.
        extension: extension of the format detected from the first bytes; the URL and the server's headers are ignored.
        image: bytes as received.
    """

    key: str
    url: str
    extension: str
    image: Blob


_LIMITS, _PACE = FetchLimits(), FetchPace()


async def fetch_images(
    rows: Sequence[LinkedImage], *, limits: FetchLimits = _LIMITS, pace: FetchPace = _PACE
) -> list[FetchedImage | Rejected]:
    """Download the images of a part, many at a time.

    Proxy settings of the environment are ignored: behind a proxy, the address of the server cannot be checked.

    Returns:
        One item per row, in order. Rejects: ``gone`` (404, 410, ``gone_urls``), ``forbidden``, ``refused`` (other 4xx),
        ``bad_url``, ``private_address``, ``too_many_redirects``, ``too_large``, ``too_small_file``, ``not_an_image``,
        ``disallowed_by_robots_tag``, ``bad_response`` (not valid HTTP); and after all retries
        ``timed_out``, ``unreachable``, ``server_error`` (5xx, 408, 425), ``rate_limited`` (429) and ``truncated`` (fewer bytes
        than announced).

    Raises:
        MachineFault: the failure has nothing to do with a row: this machine lacks file handles, memory or ports, is too busy
            to read what has arrived, or seems to have no network.
    """
    try:
        client = shared_client(os.getpid(), limits.allow_private_hosts, pace.concurrency, pace.user_agent)
    except OSError as error:
        raise MachineFault(_local_fault(error) or str(error)) from None
    return await asyncio.wrap_future(client.run(_Fetcher(client, limits, pace).fetch_all(rows)))


class _FailedFetch(Exception):
    def __init__(self, reason: str, detail: str, retry_after_s: float | None = None, local: str = "") -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail
        self.retry_after_s = retry_after_s
        self.local = local
        """What this machine lacks, if the fault is its own."""


@dataclass
class _Host:
    slots: asyncio.Semaphore
    next_start: float = 0.0

    async def wait_for_turn(self, min_interval_s: float) -> None:
        now = asyncio.get_running_loop().time()
        start = max(now, self.next_start)
        self.next_start = start + min_interval_s
        if start > now:
            await asyncio.sleep(start - now)


@dataclass
class _Fetcher:
    client: Client
    limits: FetchLimits
    pace: FetchPace
    hosts: dict[str, _Host] = field(default_factory=dict)
    late_s: float = 0.0
    answered: bool = False

    def __post_init__(self) -> None:
        self.slots = asyncio.Semaphore(self.pace.concurrency)
        self.gone = re.compile("|".join(map(fnmatch.translate, self.limits.gone_urls)) or r"(?!)")

    async def fetch_all(self, rows: Sequence[LinkedImage]) -> list[FetchedImage | Rejected]:
        watch = asyncio.create_task(self.watch())
        try:
            found = list(await asyncio.gather(*map(self.fetch, rows)))
        finally:
            watch.cancel()
        self.check_network(found)
        return found

    async def watch(self) -> None:
        """Add up the delays of the event loop, caused by other work in this process or a busy machine."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _TICK_S
            await asyncio.sleep(_TICK_S)
            self.late_s += max(0.0, loop.time() - due)

    def check_network(self, found: Sequence[FetchedImage | Rejected]) -> None:
        """Raise ``MachineFault`` if at least ``offline_after`` rows got no answer and no server answered at all."""
        lost = Counter(one.reason for one in found if isinstance(one, Rejected) and one.reason in _UNANSWERED)
        if not self.answered and 0 < self.pace.offline_after <= sum(lost.values()):
            message = ", ".join(f"{count} {reason}" for reason, count in sorted(lost.items()))
            raise MachineFault(
                f"no server answered ({message}): this machine may have no network. Finished parts are kept: run again later, "
                "or let such rows be rejected with source.pace.offline_after=0, and try them later with --retry unreachable"
            )

    async def fetch(self, row: LinkedImage) -> FetchedImage | Rejected:
        attempt = starved = 0
        while True:
            try:
                data, extension = await self._attempt(row.url)
                return FetchedImage(row.key, row.url, extension, Blob(data))
            except _FailedFetch as failed:
                wait_s = self._backoff_s(row.key, attempt, failed)
                if failed.local and failed.reason == "timed_out" and starved < _STARVED_TRIES:
                    starved, attempt, wait_s = starved + 1, attempt - 1, self.pace.backoff_s
                elif failed.local and wait_s is None:
                    raise MachineFault(f"{_shown(row.url)}: {failed.local}") from None
                if wait_s is None:
                    tries = f" ({attempt + 1} attempts)" if attempt else ""
                    return Rejected(row.key, failed.reason, f"{_shown(row.url)}: {_shown(failed.detail)}{tries}")
            attempt += 1
            await asyncio.sleep(wait_s)

    def _backoff_s(self, key: str, attempt: int, failed: _FailedFetch) -> float | None:
        """Seconds to wait before the next attempt; None for no further attempt."""
        asked_s = failed.retry_after_s or 0.0
        last = attempt >= self.pace.retries or asked_s > self.pace.max_backoff_s
        if failed.reason not in TRANSIENT_REASONS or last:
            return None
        jitter = 0.5 + uniform(0, "fetch", [f"{key}/{attempt}"])[0]
        return max(asked_s, min(self.pace.backoff_s * 2.0**attempt * jitter, self.pace.max_backoff_s))

    async def _attempt(self, url: str) -> tuple[bytes, str]:
        """Follow the URL to the bytes of an image. Waiting for a request slot does not count towards the timeout."""
        left_s = self.pace.timeout_s
        seen: set[str] = set()
        while True:
            if self.gone.match(url):
                raise _FailedFetch("gone", f"redirected to {url}" if seen else url)
            if url in seen or len(seen) > self.limits.max_redirects:
                rule = "a circle" if url in seen else f"more than {self.limits.max_redirects}"
                raise _FailedFetch("too_many_redirects", f"{rule}, at {url}")
            seen.add(url)
            target = _parse(url)
            host = self.hosts.setdefault(target.raw_host or "", _Host(asyncio.Semaphore(self.pace.per_host)))
            async with host.slots:
                await host.wait_for_turn(self.pace.min_interval_s)
                async with self.slots:
                    started = asyncio.get_running_loop().time()
                    try:
                        result = await self._timed(target, left_s)
                    except _FailedFetch as failed:
                        # Retry-After applies to all requests to this host, not only to this row.
                        if failed.retry_after_s is not None and failed.retry_after_s <= self.pace.max_backoff_s:
                            now = asyncio.get_running_loop().time()
                            host.next_start = max(host.next_start, now + failed.retry_after_s)
                        raise
                    left_s -= asyncio.get_running_loop().time() - started
            if not isinstance(result, str):
                return _image_of(result, self.limits)
            try:
                url = urllib.parse.urljoin(url, result)
            except ValueError as error:
                raise _FailedFetch("bad_url", f"redirected to {result}: {error}") from None

    async def _timed(self, target: URL, left_s: float) -> bytes | str:
        late_s = self.late_s
        self.client.busy += 1
        try:
            async with asyncio.timeout(max(left_s, 0.001)):
                return await self._exchange(target)
        except TimeoutError:
            await asyncio.sleep(2 * _TICK_S)  # watch() may run only after this
            starved = self.late_s - late_s > _STARVED_SHARE * self.pace.timeout_s
            local = (
                "this machine is too busy to read what arrives: lower source.pace.concurrency or --workers" if starved else ""
            )
            raise _FailedFetch("timed_out", f"no complete answer within {self.pace.timeout_s:g} s", local=local) from None
        except NotPublicError as error:
            raise _FailedFetch("private_address", str(error)) from None
        except (OSError, aiohttp.ServerConnectionError) as error:
            raise _FailedFetch("unreachable", f"{type(error).__name__}: {error}", local=_local_fault(error)) from None
        except ValueError as error:  # an invalid address, or a host name that cannot be looked up
            raise _FailedFetch("bad_url", str(error)) from None
        except aiohttp.ClientPayloadError as error:
            raise _FailedFetch("truncated", str(error)) from None
        except aiohttp.ClientError as error:
            raise _FailedFetch("bad_response", str(error)) from None
        finally:
            self.client.busy -= 1

    async def _exchange(self, target: URL) -> bytes | str:
        """Send one request and return the body, or the target of a redirect."""
        if not self.limits.allow_private_hosts:
            check_literal(target.raw_host or "")
        trusted = tls() if target.scheme == "https" else True
        async with self.client.session.get(target, allow_redirects=False, ssl=trusted) as response:
            self.answered = True
            headers = response.headers
            if response.status in (200, 203):
                if "X-Robots-Tag" in headers:
                    _check_robots(headers.getall("X-Robots-Tag"), self.limits)
                return await _read_body(response.content, headers, self.limits.max_bytes)
            length = headers.get("Content-Length", "")
            if length.isdigit() and int(length) <= _DRAINED_BYTES:
                await response.read()  # so that the connection can be reused
            if response.status in _REDIRECTS and "Location" in headers:
                return headers["Location"]
            raise _status_failure(response.status, headers)


def _local_fault(error: Exception) -> str:
    """What this machine lacks; "" if the error is not its own."""
    if isinstance(error, OSError) and error.errno in _LOCAL:
        return f"{error.strerror}: lower source.pace.concurrency or --workers, or fix what the system lacks"
    return ""


def _shown(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)[:300]


def _parse(url: str) -> URL:
    """Parse a URL without decoding anything: %2F and / differ for servers that sign their URLs."""
    try:
        if plain := _AS_SENT.fullmatch(url):
            scheme, authority, path, query = plain.groups("")
        else:
            scheme, authority, *texts, _ = urllib.parse.urlsplit(url.strip())
            path, query = (urllib.parse.quote(text, _KEPT, errors="surrogateescape") for text in texts)
        place = _place(scheme, authority)
    except (ValueError, TypeError) as error:
        raise _FailedFetch("bad_url", f"{url}: {error}") from None
    if len(url) > _MAX_URL or _CONTROLS.search(url.strip()):
        raise _FailedFetch("bad_url", f"{url}: longer than {_MAX_URL}, or with characters that are not printed")
    return URL.build(scheme=scheme, authority=place, path=path or "/", query_string=query, encoded=True)


@functools.lru_cache(4096)
def _place(scheme: str, authority: str) -> str:
    """The host as sent to name servers, with the port."""
    place = URL(f"{scheme}://{authority}")
    if scheme not in ("http", "https") or not _HOST.fullmatch(place.raw_host or "") or place.port == 0 or "@" in authority:
        raise ValueError("neither http:// nor https:// and a host, with a port up to 65535 and no password")
    return place.raw_authority


def _status_failure(status: int, headers: Mapping[str, str]) -> _FailedFetch:
    detail = f"HTTP {status}"
    if status in (404, 410):
        return _FailedFetch("gone", detail)
    if status in _FORBIDDEN:
        return _FailedFetch("forbidden", detail)
    if status == 429 or status >= 500 or status in _TRY_AGAIN:
        reason = "rate_limited" if status == 429 else "server_error"
        return _FailedFetch(reason, detail, _retry_after_s(headers.get("Retry-After", "")))
    if 400 <= status < 500:
        return _FailedFetch("refused", detail)
    return _FailedFetch("bad_response", f"{detail} where a file or a redirect was to come")


def _check_robots(headers: Sequence[str], limits: FetchLimits) -> None:
    """Raise if an X-Robots-Tag header (``[agent:] directive, directive``) forbids the use of the image."""
    unwanted = {each.lower() for each in limits.disallowed_directives}
    for header in headers if unwanted else ():
        agent = ""
        for part in header.lower().split(","):
            named, colon, directive = part.rpartition(":")
            # The text before a colon is an agent, a directive with a value, or part of the date that is such a value.
            if colon and named.strip() not in _VALUED and " " not in named.strip():
                agent = named.strip()
            if directive.strip() in unwanted and agent in ("", limits.robots_agent.lower()):
                raise _FailedFetch("disallowed_by_robots_tag", f"X-Robots-Tag: {header}")


def _retry_after_s(text: str) -> float | None:
    """Seconds to wait by a Retry-After header (RFC 9110, 10.2.3), which gives a number or a date."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(text[:12])
    try:
        at = email.utils.parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    at = at if at.tzinfo else at.replace(tzinfo=dt.UTC)
    return max((at - dt.datetime.now(dt.UTC)).total_seconds(), 0.0)


async def _read_body(content: aiohttp.StreamReader, headers: Mapping[str, str], max_bytes: int) -> bytes:
    length = headers.get("Content-Length", "")
    if length.isdigit() and int(length) > max_bytes:
        raise _FailedFetch("too_large", f"{length} bytes announced, limit {max_bytes}")
    encoding = headers.get("Content-Encoding", "").strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
        raise _FailedFetch("bad_response", f"Content-Encoding {encoding}, which was not requested")
    inflate = zlib.decompressobj(wbits=47) if encoding not in ("", "identity") else None
    parts: list[bytes] = []
    received = size = 0
    # Pieces of a chunked body are its chunks, since each takes time; otherwise whatever has arrived so far is one piece.
    async for chunk in content.iter_any() if length else (chunk async for chunk, _ in content.iter_chunks()):
        received += len(chunk)
        if inflate is not None:
            try:
                chunk = inflate.decompress(chunk, max_bytes + 1 - size)
            except zlib.error as error:
                raise _FailedFetch("bad_response", f"Content-Encoding {encoding}: {error}") from None
        size += len(chunk)
        if max(size, received) > max_bytes:
            raise _FailedFetch("too_large", f"above {max_bytes} bytes")
        parts.append(chunk)
        if len(parts) > _SMALL_PARTS and received < _SMALL_PART_BYTES * len(parts):
            raise _FailedFetch("bad_response", f"sent in pieces of {received / len(parts):.0f} bytes")
    if inflate is not None and not inflate.eof:
        raise _FailedFetch("truncated", f"the {encoding} stream does not end")
    return b"".join(parts)


def _image_of(data: bytes, limits: FetchLimits) -> tuple[bytes, str]:
    if len(data) < limits.min_bytes:
        raise _FailedFetch("too_small_file", f"{len(data)} bytes, at least {limits.min_bytes} are needed")
    extension = sniff_extension(data)
    if extension is None:
        raise _FailedFetch("not_an_image", f"begins with {data[:16]!r}")
    return data, extension
