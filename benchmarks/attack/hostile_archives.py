"""Hostile tars and gzip files: data behind an end mark, bombs, links, sizes that are not there."""

from __future__ import annotations

import bz2
import functools
import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

from . import valid
from .hostile import Specials, gadget, put_all


def _tar_of(infos: list[tuple[tarfile.TarInfo, bytes]], form: int = tarfile.GNU_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for info, body in infos:
            info.size = len(body) if info.isreg() else 0
            archive.addfile(info, io.BytesIO(body) if info.isreg() else None)
    return out.getvalue()


def _link(name: str, to: str, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, to
    return info


def tars(name: str, mode: str, members: Callable[..., dict[str, bytes]]) -> Specials:
    """Of a tar: data behind an end mark, names that lead out, links, sizes that are not there."""

    def pack(data: bytes | Callable[[], bytes]) -> Callable[[], bytes]:
        packed = {"w": bytes, "w:gz": gzip.compress, "w:bz2": bz2.compress, "w:xz": lzma.compress}[mode]
        return lambda: packed(data() if callable(data) else data)

    def made() -> Mapping[str, Callable[[Path], None]]:
        plain = valid.tar(members())
        shown = valid.picture("JPEG", "other")
        second = valid.tar({f"z{place}": body for place, body in members(2).items()})
        bare = plain.rstrip(b"\0")
        bare += bytes(-len(bare) % 512)
        sparse = _link("s.jpg", "", b"S")
        long_name = "d/" * 600 + "a.jpg"
        found: dict[str, bytes | Callable[[], bytes]] = {
            "two tars in one": pack(plain + second),
            "a zero block in the middle": pack(bare + bytes(512) + second),
            "no end mark": pack(bare),
            "end mark alone": pack(bytes(10240)),
            "empty": b"",
            "text behind the end": pack(plain + b"and more" * 100),
            "half a second tar": pack(plain + second[:700]),
            "names that lead out": pack(
                _tar_of([(tarfile.TarInfo("../../x.jpg"), shown), (tarfile.TarInfo("/tmp/x.jpg"), shown)])
            ),
            "links": pack(
                _tar_of(
                    [
                        (_link("a.jpg", "/etc/passwd", tarfile.SYMTYPE), b""),
                        (_link("b.jpg", "a.jpg", tarfile.LNKTYPE), b""),
                        (_link("c.jpg", "c.jpg", tarfile.LNKTYPE), b""),
                        (_link("d", "", tarfile.CHRTYPE), b""),
                        (sparse, b""),
                    ]
                )
            ),
            "the same name twice": pack(_tar_of([(tarfile.TarInfo("a.jpg"), shown), (tarfile.TarInfo("a.jpg"), shown)])),
            "a name of 1,200 letters": pack(_tar_of([(tarfile.TarInfo(long_name), shown)], tarfile.PAX_FORMAT)),
            "PAX header of 8 GB": pack(_pax(b"9999999999 size=8589934592\n")),
            "PAX size that is not a number": pack(_pax(b"12 size=abc\n")),
            "10,000 empty members": pack(lambda: _tar_of([(tarfile.TarInfo(f"{n}.jpg"), b"") for n in range(10_000)])),
        }
        if mode == "w:gz":
            found |= {
                "gzip, two members": gzip.compress(plain[:5120]) + gzip.compress(plain[5120:]),
                "gzip, two tars": gzip.compress(plain) + gzip.compress(second),
                "gzip and text": gzip.compress(plain) + b"text behind",
            }
        if mode != "w":
            found["bomb of 3 GB"] = lambda: _tar_bomb(mode)
        return put_all(name, found)

    return made


def _pax(body: bytes) -> bytes:
    info = tarfile.TarInfo("./PaxHeaders/x")
    info.type, info.size = tarfile.XHDTYPE, len(body)
    header = info.tobuf(tarfile.USTAR_FORMAT)
    return header + body.ljust(-(-len(body) // 512) * 512, b"\0") + valid.tar({"a.jpg": valid.picture("JPEG")})


@functools.cache
def _tar_bomb(mode: str) -> bytes:
    info = tarfile.TarInfo("a.jpg")
    info.size = 3 << 30
    out = io.BytesIO()
    packers = {"w:gz": lambda: zlib.compressobj(1, zlib.DEFLATED, 31), "w:bz2": bz2.BZ2Compressor, "w:xz": lzma.LZMACompressor}
    squeeze = packers[mode]()
    out.write(squeeze.compress(info.tobuf(tarfile.USTAR_FORMAT)))
    block = bytes(1 << 22)
    for _ in range((3 << 30) >> 22 if mode == "w:gz" else 64):  # the other two pack too slowly: cut short
        out.write(squeeze.compress(block))
    out.write(squeeze.flush())
    return out.getvalue()


def archives(name: str) -> Specials:
    """Of CIFAR's archive."""

    def made() -> Mapping[str, Callable[[Path], None]]:
        files = valid.cifar()
        return put_all(
            name,
            {
                "code in it": valid.tar({"c/train": gadget(), "c/test": gadget(), "c/meta": gadget()}, mode="w:gz"),
                "no test": valid.tar({"c/train": files["train"], "c/meta": files["meta"]}, mode="w:gz"),
                "bomb": lambda: _tar_bomb("w:gz"),
                "empty": b"",
                "no tar": gzip.compress(b"text"),
            },
        )

    return made


def gzips(name: str) -> Specials:
    """Of gzip: bombs, members, what stands behind."""

    def made() -> Mapping[str, Callable[[Path], None]]:
        line = b"x" * 99 + b"\n"
        return put_all(
            name,
            {
                "bomb of 1 GB of newlines": lambda: gzip.compress(b"\n" * (1 << 30), 1),
                "bomb of 1 GB in one line": lambda: gzip.compress(bytes(1 << 30), 1),
                "two members": gzip.compress(line) + gzip.compress(line),
                "zeros behind": gzip.compress(line) + bytes(100),
                "text behind": gzip.compress(line) + b"text",
                "wrong checksum": gzip.compress(line)[:-8] + bytes(8),
                "empty": b"",
                "empty within": gzip.compress(b""),
            },
        )

    return made
