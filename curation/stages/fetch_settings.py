"""Settings of downloads, apart from ``fetch`` so that they can be read without loading aiohttp."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FetchLimits:
    """Which images are accepted, and from which servers: settings that change the result.

    Attributes:
        max_bytes: maximum file size, counted as received, and after decompression if the server compresses.
        min_bytes: minimum file size (CLEAR-10: 10).
        max_redirects: maximum number of redirects followed, each to http or https.
        allow_private_hosts: also connect to addresses that are not public (loopback, local networks, cloud metadata).
            By default refused, since URLs in data must not reach into the local network.
        gone_urls: patterns (``*`` and ``?``) of URLs to which a server redirects for deleted images; default: Flickr's.
        disallowed_directives: directives of the header ``X-Robots-Tag`` that forbid the use of an image; default: those of
            img2dataset. Empty: the header is ignored.
        robots_agent: user agent whose directives also apply, as "mine" for ``mine: noai``; directives without an agent
            always apply.
    """

    max_bytes: int = 50_000_000
    min_bytes: int = 10
    max_redirects: int = 5
    allow_private_hosts: bool = False
    gone_urls: tuple[str, ...] = ("*/photo_unavailable*",)
    disallowed_directives: tuple[str, ...] = ("noai", "noimageai", "noindex", "noimageindex")
    robots_agent: str = ""


@dataclass(frozen=True)
class FetchPace:
    """Retries and rates of requests: settings that do not change what a healthy server returns. Mark them ``how(...)``.

    All apply to the rows of one part; parts that are computed at the same time add up.

    Attributes:
        timeout_s: timeout of one attempt, including redirects, stalls and the whole body, seconds. An image takes at most
            ``(retries + 1) * timeout_s + retries * max_backoff_s``, not counting the wait for its host.
        retries: further attempts after a failure of ``fetch.TRANSIENT_REASONS``.
        backoff_s: wait before the first retry, seconds; doubled for each further one, times 0.5 to 1.5 (by the row's key).
        max_backoff_s: longest wait, seconds. If a server demands more (Retry-After), it is not retried in this run.
        concurrency: maximum number of simultaneous requests.
        per_host: maximum number of simultaneous requests to one host.
        min_interval_s: minimum time between the starts of two requests to one host, seconds.
        offline_after: if this many rows of a part get no answer, and no row gets one, this machine's network is considered
            down: the run stops, and no row is rejected. 0: such rows are rejected.
        user_agent: the User-Agent header; it should say how to reach you.
    """

    timeout_s: float = 30.0
    retries: int = 3
    backoff_s: float = 1.0
    max_backoff_s: float = 60.0
    concurrency: int = 64
    per_host: int = 8
    min_interval_s: float = 0.0
    offline_after: int = 16
    user_agent: str = "benchwright (research data set curation)"

    def __post_init__(self) -> None:
        for name, least, most in _BOUNDS:
            value = getattr(self, name)
            if not least <= value <= most:
                raise ValueError(f"{name} is {value}: {least:g} to {most:g} are possible")
        if self.timeout_s == 0:
            raise ValueError("timeout_s is 0: it must be positive")
        if not (self.user_agent.isascii() and self.user_agent.isprintable()):
            raise ValueError(f"user_agent {self.user_agent!r}: printable ASCII is needed")


_BOUNDS = (
    ("timeout_s", 0, 86_400),
    ("retries", 0, 1000),
    ("backoff_s", 0, 86_400),
    ("max_backoff_s", 0, 86_400),
    ("concurrency", 1, 10_000),
    ("per_host", 1, 10_000),
    ("min_interval_s", 0, 86_400),
    ("offline_after", 0, 10**18),
)
