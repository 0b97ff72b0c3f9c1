"""A server on this machine that does everything wrong, and downloads from it as a run of CLEAR makes them."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

from . import valid
from .hostile import put
from .parser import Parser, Told, Tree, by_plan

_ROWS = 3
_PACE = "pace={timeout_s=2,retries=1,backoff_s=0.01,max_backoff_s=0.1}"


class Liar:
    """Answers every request with the bytes of a file, as the file ``behaviour`` beside it says.

    Attributes:
        port: where it listens.
        private: requests for ``/private``, to which only redirects lead.
    """

    def __init__(self, folder: Path) -> None:
        self._answer = (folder / "answer").read_bytes()
        behaviour = folder / "behaviour"
        self._behaviour = behaviour.read_text() if behaviour.exists() else "plain"
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._open: list[socket.socket] = []
        self.private = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Stop, whatever is under way."""
        for each in [self._socket, *self._open]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self._open.append(connection)
                threading.Thread(target=self._connection, args=(connection,), daemon=True).start()

    def _connection(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            request = b""
            while b"\r\n\r\n" not in request:
                more = connection.recv(65536)
                if not more:
                    return
                request += more
            self.private += b" /private" in request.splitlines()[0]
            BEHAVIOURS[self._behaviour](connection, self._answer.replace(b"{port}", str(self.port).encode()))
            connection.shutdown(socket.SHUT_WR)


def _plain(to: socket.socket, answer: bytes) -> None:
    to.sendall(answer)


def _drip(to: socket.socket, answer: bytes) -> None:
    """A byte at a time, for longer than anyone should wait: a slow loris."""
    for at in range(len(answer)):
        to.sendall(answer[at : at + 1])
        time.sleep(0.05)


def _stall(to: socket.socket, answer: bytes) -> None:
    to.sendall(answer[: len(answer) // 2])
    time.sleep(60)


def _silent(to: socket.socket, answer: bytes) -> None:
    time.sleep(60)


def _reset(to: socket.socket, answer: bytes) -> None:
    import struct

    to.sendall(answer[: len(answer) // 2])
    to.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    to.close()


def _endless_body(to: socket.socket, answer: bytes) -> None:
    to.sendall(answer)
    while True:
        to.sendall(bytes(1 << 20))


def _endless_head(to: socket.socket, answer: bytes) -> None:
    to.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        to.sendall(b"X-More: " + b"x" * 10_000 + b"\r\n")


def _endless_line(to: socket.socket, answer: bytes) -> None:
    while True:
        to.sendall(b"HTTP/1.1 200 " + b"O" * 100_000)


def _endless_chunks(to: socket.socket, answer: bytes) -> None:
    to.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        to.sendall(b"1\r\nx\r\n" * 1000)


def _continues(to: socket.socket, answer: bytes) -> None:
    while True:
        to.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)


BEHAVIOURS: Mapping[str, Callable[[socket.socket, bytes], None]] = {
    "plain": _plain,
    "drip": _drip,
    "stall": _stall,
    "silent": _silent,
    "reset": _reset,
    "endless body": _endless_body,
    "endless head": _endless_head,
    "endless line": _endless_line,
    "endless chunks": _endless_chunks,
    "continues": _continues,
}


def reply(body: bytes, *headers: str, status: str = "200 OK", length: int | None = -1) -> bytes:
    """A response. ``length`` -1 announces the body's own, None announces none."""
    told = [] if length is None else [f"Content-Length: {len(body) if length == -1 else length}"]
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, *told, "Connection: close", "", ""]).encode("latin-1") + body


def _bomb() -> bytes:
    bomb = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = b"".join([*(bomb.compress(bytes(1 << 24)) for _ in range(40)), bomb.flush()])
    return reply(packed, "Content-Encoding: gzip")


def _answers() -> dict[str, bytes | Callable[[], bytes]]:
    shown = valid.picture("JPEG", "served")
    redirects = [
        "file:///etc/passwd",
        "http://169.254.169.254/latest/meta-data/",
        "ftp://127.0.0.1/x",
        "gopher://127.0.0.1:{port}/x",
        "//",
        "http://[::1",
        "http://127.0.0.1:99999/",
        "http://user:pass@127.0.0.1:{port}/x",
        "/again",
        "data:image/png;base64,AAAA",
        "http://\xff\xfe/",
        "",
        "javascript:alert(1)",
        "http://127.0.0.1:{port}/x\\y\tz",
        "http://a.invalid/",
    ]
    made: dict[str, bytes | Callable[[], bytes]] = {
        f"redirect to {to[:40] or 'nothing'!r}": reply(b"", f"Location: {to}", status="302 Found") for to in redirects
    }
    return made | {
        "length too long": reply(shown, length=len(shown) + 1000),
        "length too short": reply(shown, length=100),
        "length below zero": reply(shown, length=-5),
        "length of 2^63": reply(shown, length=1 << 63),
        "length that is not a number": reply(shown, "Content-Length: many", length=None),
        "two lengths": reply(shown, "Content-Length: 5"),
        "length and chunks": reply(shown, "Transfer-Encoding: chunked"),
        "no length": reply(shown, length=None),
        "gzip bomb": _bomb,
        "gzip that is none": reply(shown, "Content-Encoding: gzip"),
        "gzip within gzip": reply(gzip.compress(gzip.compress(shown)), "Content-Encoding: gzip, gzip"),
        "unknown encoding": reply(shown, "Content-Encoding: rot13"),
        "a thousand encodings": reply(gzip.compress(bytes(1 << 20))[:1000], "Content-Encoding: " + ", ".join(["gzip"] * 1000)),
        "HTML": reply(b"<html>sorry</html>", "Content-Type: text/html"),
        "HTML that says it is JPEG": reply(b"<html>sorry</html>", "Content-Type: image/jpeg"),
        "no status line": shown,
        "status 99999": reply(shown, status="99999 OK"),
        "status that is not a number": reply(shown, status="OK"),
        "HTTP/9.9": reply(shown).replace(b"HTTP/1.1", b"HTTP/9.9"),
        "status 204 with a body": reply(shown, status="204 No Content"),
        "status 206": reply(shown, "Content-Range: bytes 0-9/10", status="206 Partial Content"),
        "status 304": reply(b"", status="304 Not Modified"),
        "status 401": reply(b"", 'WWW-Authenticate: Basic realm="x"', status="401 Unauthorized"),
        "status 429, for a year": reply(b"", "Retry-After: 31536000", status="429 Too Many"),
        "Retry-After that is not a number": reply(b"", "Retry-After: soon", status="503 Later"),
        "Retry-After below zero": reply(b"", "Retry-After: -1e999", status="503 Later"),
        "a header without a colon": reply(shown, "X"),
        "a header of NUL": reply(shown, "X: \0"),
        "folded headers": reply(shown, "X: a\r\n b"),
        "a thousand cookies": reply(shown, *(f"Set-Cookie: a{n}={'x' * 100}" for n in range(1000))),
        "a chunk of 2^70": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 18 + b"\r\nx\r\n0\r\n\r\n",
        "a chunk below zero": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nx\r\n0\r\n\r\n",
        "upgrade": reply(b"", "Upgrade: h2c", "Connection: Upgrade", status="101 Switching Protocols"),
        "nothing": b"",
        "an empty body": reply(b""),
        "two answers": reply(shown) * 2,
        "bytes that are no text in headers": reply(shown, "X-\xff: \xfe"),
    }


def specials() -> Mapping[str, Callable[[Path], None]]:
    """Answers, and ways of giving them."""

    made = {name: put("answer", answer) for name, answer in _answers().items()}
    return {**made, **{f"behaviour: {name}": put("behaviour", name.encode()) for name in BEHAVIOURS if name != "plain"}}


def _read(folder: Path, out: Path) -> Told:
    liar = Liar(folder)
    try:
        listed = out.parent / "listed"
        listed.mkdir(exist_ok=True)
        lines = [line.split("\t") for line in valid.yfcc(_ROWS + 1).decode().splitlines()]
        for line in lines:
            line[14] = f"http://127.0.0.1:{liar.port}/{line[0]}.jpg"
        (listed / "y.tsv").write_text("".join("\t".join(line) + "\n" for line in lines))
        source = f"source={{kind='yfcc100m',metadata='{listed}/y.tsv',limits={{allow_private_hosts=true}},{_PACE}}}"
        told = by_plan("clear", (source, "images.max_bytes=1000000"), "fetched")(folder, out)
        # 127.0.0.1 is allowed above, so that it can be asked at all: where that leads must stay an image's address.
        return told
    finally:
        liar.close()


def _refused(folder: Path, out: Path) -> Told:
    """The same with private addresses forbidden, as they are unless one allows them: nobody may be asked."""
    liar = Liar(folder)
    try:
        listed = out.parent / "listed"
        listed.mkdir(exist_ok=True)
        lines = [line.split("\t") for line in valid.yfcc(_ROWS).decode().splitlines()]
        for number, line in enumerate(lines):
            line[14] = [
                f"http://127.0.0.1:{liar.port}/private",
                f"http://0x7f.1:{liar.port}/private",
                f"http://[::ffff:127.0.0.1]:{liar.port}/private",
            ][number]
        (listed / "y.tsv").write_text("".join("\t".join(line) + "\n" for line in lines))
        told = by_plan("clear", (f"source={{kind='yfcc100m',metadata='{listed}/y.tsv',{_PACE}}}",), "fetched")(folder, out)
        if liar.private:
            raise AssertionError(f"{liar.private} requests to a private address")
        return Told(1, told.rejects, told.source_rows, told.lost, told.details)
    finally:
        liar.close()


def parsers() -> list[Parser]:
    """Both."""

    def tree() -> Tree:
        return {"answer": reply(valid.picture("JPEG", "served"), "Content-Type: image/jpeg")}

    return [
        Parser("HTTP server", tree, "answer", _read, specials=specials),
        Parser("HTTP server, private", tree, "answer", _refused, share=0.02),
    ]
