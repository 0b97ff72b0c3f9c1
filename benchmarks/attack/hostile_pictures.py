"""Hostile pictures, videos and folders: bombs, links that lead out, names that are no text, playlists."""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

from PIL import Image

from . import valid
from .hostile import Specials, put_all


def _png(width: int, height: int, body: bytes, kind: int = 2, more: bytes = b"") -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + more + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def _bomb(width: int, height: int) -> bytes:
    """A PNG of one colour, packed row by row so that making it takes no memory."""
    engine, packed = zlib.compressobj(9), b""
    for _ in range(height):
        packed += engine.compress(bytes(1 + width))
    return _png(width, height, packed + engine.flush(), kind=0)


def _text_bomb() -> bytes:
    """A PNG with 200 MB of packed text before its pixels."""
    text = b"zTXta\0\0" + zlib.compress(bytes(200_000_000), 1)
    chunk = struct.pack(">I", len(text) - 4) + text + struct.pack(">I", zlib.crc32(text))
    return _png(4, 4, zlib.compress(bytes(52)), more=chunk)


def pictures(name: str, form: str) -> Specials:
    """Of one picture."""

    def made() -> Mapping[str, Callable[[Path], None]]:
        valid_file = valid.pictures(form)[0]
        found: dict[str, bytes | Callable[[], bytes]] = {
            "empty": b"",
            "one byte": b"\xff",
            "another format": valid.picture("BMP" if form != "BMP" else "PNG"),
            "text": b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>",
            "PostScript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9999 9999\n(w) (w) file\n",
            "twice": valid_file * 2,
            "megabytes of zeros behind": valid_file + bytes(4_000_000),
        }
        if form == "PNG":
            found |= {
                "bomb of 12,000 x 12,000": lambda: _bomb(12_000, 12_000),
                "bomb of 30,000 x 30,000": lambda: _bomb(30_000, 30_000),
                "sides of 2^31": _png(0x7FFFFFFF, 0x7FFFFFFF, zlib.compress(bytes(100))),
                "no width": _png(0, 10, zlib.compress(bytes(100))),
                "text bomb": _text_bomb,
                "too few pixels": _png(200, 200, zlib.compress(bytes(100))),
                "too many pixels": lambda: _png(4, 4, zlib.compress(bytes(10_000_000))),
            }
        if form == "GIF":
            found["401 frames"] = _gif_of_frames
        if form == "TIFF":
            endless = bytearray(valid_file)
            at = struct.unpack_from("<I", endless, 4)[0]
            struct.pack_into("<I", endless, at + 2 + 12 * struct.unpack_from("<H", endless, at)[0], at)
            found["directory that leads to itself"] = bytes(endless)
        return put_all(name, found)

    return made


def _gif_of_frames() -> bytes:
    shown = Image.fromarray(valid.pixels("gif"))
    out = io.BytesIO()
    shown.save(out, "GIF", save_all=True, append_images=[shown.rotate(n % 90) for n in range(400)])
    return out.getvalue()


def exif() -> Mapping[str, Callable[[Path], None]]:
    """Of EXIF in a JPEG: dates that are none, a comment that is not text."""
    texts = [
        "0000:00:00 00:00:00",
        "9999:99:99 99:99:99",
        "2008:05:01 24:61:61",
        "\0" * 19,
        "２００８:05:01 12:00:00",
        "2008:05:01 12:00:00" * 900,
    ]
    made = {}
    for number, text in enumerate(texts):
        tags = Image.Exif()
        tags.get_ifd(0x8769)[0x9003] = text
        out = io.BytesIO()
        Image.fromarray(valid.pixels("exif")).save(out, "JPEG", exif=tags)
        made[f"date {number}"] = out.getvalue()
    return put_all("a.jpg", made)


def folders() -> Mapping[str, Callable[[Path], None]]:
    """Of a folder: links that lead out, round or nowhere, names that are no text, pipes and sockets."""

    def links(folder: Path) -> None:
        (folder / "out.jpg").symlink_to("/etc/passwd")
        (folder / "nowhere.jpg").symlink_to("nothing")
        (folder / "up").symlink_to("..")
        (folder / "self.jpg").symlink_to("self.jpg")

    def deep(folder: Path) -> None:
        at = folder
        for _ in range(120):
            at = at / ("d" * 20)
        at.mkdir(parents=True)
        (at / "x.jpg").write_bytes(valid.picture("JPEG"))

    def names(folder: Path) -> None:
        for odd in (
            b"\xff\xfe.jpg",
            b"a\nb.jpg",
            b"a\tb.jpg",
            "\u202egpj.exe.jpg".encode(),
            b" .jpg",
            b"-rf.jpg",
            b"a" * 250 + b".jpg",
        ):
            Path(os.fsdecode(os.path.join(os.fsencode(folder), odd))).write_bytes(valid.picture("JPEG"))

    def turned(folder: Path) -> None:
        (folder / "loop").mkdir()
        (folder / "loop/again").symlink_to(folder / "loop", target_is_directory=True)

    def circle(folder: Path) -> None:
        (folder / "a").symlink_to("b", target_is_directory=True)
        (folder / "b").symlink_to("a", target_is_directory=True)

    return {
        "links": links,
        "120 folders deep": deep,
        "odd names": names,
        "link to its own folder": turned,
        "links in a circle": circle,
        "pipe": lambda folder: os.mkfifo(folder / "p.jpg"),
        "file without rights": lambda folder: (folder / "0.jpg").chmod(0),
    }


def dng() -> Mapping[str, Callable[[Path], None]]:
    """Of a raw file."""
    plain = valid.dng()
    huge = bytearray(plain)
    for entry in range(struct.unpack_from("<H", huge, 8)[0]):
        at = 10 + 12 * entry
        if struct.unpack_from("<H", huge, at)[0] in (256, 257):
            struct.pack_into("<I", huge, at + 8, 60_000)
    return put_all(
        "RAW_0_CAM_0.dng",
        {"60,000 x 60,000": bytes(huge), "empty": b"", "a PNG": valid.picture("PNG"), "half": plain[: len(plain) // 2]},
    )


def videos(name: str) -> Specials:
    """Of a video: playlists and lists of files, which would have others read, and others than videos."""

    def made() -> Mapping[str, Callable[[Path], None]]:
        return put_all(
            name,
            {
                "empty": b"",
                "playlist": b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n",
                "list of files": b"ffconcat version 1.0\nfile /etc/passwd\n",
                "address": b"http://127.0.0.1:9/x.mp4",
                "SDP": b"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nt=0 0\nm=video 9 RTP/AVP 96\na=rtpmap:96 H264/90000\n",
                "a picture": valid.picture("PNG"),
                "text": b"hello\n" * 1000,
                "zeros": bytes(1_000_000),
                "one frame": lambda: valid.video("mpeg4", "avi", frames=1),
            },
        )

    return made
