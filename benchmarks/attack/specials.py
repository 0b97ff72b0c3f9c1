"""Hostile files made by hand: bombs, depths, links, names that lead out, code that wants to run.

Each changes a valid folder on disk. What would run or be written lies in ``CANARY``, a folder beside everything that a run may
touch: the attack looks there after every input.
"""

from __future__ import annotations

import bz2
import functools
import gzip
import io
import lzma
import os
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from . import valid

Specials = Callable[[], Mapping[str, Callable[[Path], None]]]
CANARY = "ATTACK_CANARY"
"""Environment variable that names the folder in which nothing may appear."""


def canary() -> Path:
    """The folder in which nothing may appear."""
    return Path(os.environ.get(CANARY, "/tmp/attack-canary"))


def _put(name: str, data: bytes | Callable[[], bytes]) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(data if isinstance(data, bytes) else data()) and None


def _all(name: str, made: Mapping[str, bytes | Callable[[], bytes]]) -> Mapping[str, Callable[[Path], None]]:
    return {told: _put(name, data) for told, data in made.items()}


class _Gadget:
    """A pickle that would make a file."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {canary() / self.name}",)


def _gadget(protocol: int = 4) -> bytes:
    return pickle.dumps(_Gadget("unpickled"), protocol=protocol)


# ------------------------------------------------------------------------------------------------------------- pictures


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
            packed_text = zlib.compress(bytes(200_000_000), 9)
            text = b"zTXt", b"a\0\0" + packed_text
            chunk = struct.pack(">I", len(text[1])) + text[0] + text[1] + struct.pack(">I", zlib.crc32(text[0] + text[1]))
            found |= {
                "bomb of 12,000 x 12,000": lambda: _bomb(12_000, 12_000),
                "bomb of 30,000 x 30,000": lambda: _bomb(30_000, 30_000),
                "sides of 2^31": _png(0x7FFFFFFF, 0x7FFFFFFF, zlib.compress(bytes(100))),
                "no width": _png(0, 10, zlib.compress(bytes(100))),
                "text bomb": _png(4, 4, zlib.compress(bytes(52)), more=chunk),
                "too few pixels": _png(200, 200, zlib.compress(bytes(100))),
                "too many pixels": _png(4, 4, zlib.compress(bytes(10_000_000))),
            }
        if form == "GIF":
            shown = Image.fromarray(valid.pixels("gif"))
            out = io.BytesIO()
            shown.save(out, "GIF", save_all=True, append_images=[shown.rotate(n % 90) for n in range(400)])
            found["401 frames"] = out.getvalue()
        if form == "TIFF":
            endless = bytearray(valid_file)
            at = struct.unpack_from("<I", endless, 4)[0]
            struct.pack_into("<I", endless, at + 2 + 12 * struct.unpack_from("<H", endless, at)[0], at)
            found["directory that leads to itself"] = bytes(endless)
        return _all(name, found)

    return made


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
    return _all("a.jpg", made)


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
    return _all(
        "RAW_0_CAM_0.dng",
        {"60,000 x 60,000": bytes(huge), "empty": b"", "a PNG": valid.picture("PNG"), "half": plain[: len(plain) // 2]},
    )


def videos(name: str) -> Specials:
    """Of a video: playlists and lists of files, which would have others read, and others than videos."""

    def made() -> Mapping[str, Callable[[Path], None]]:
        return _all(
            name,
            {
                "empty": b"",
                "playlist": b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n",
                "list of files": b"ffconcat version 1.0\nfile /etc/passwd\n",
                "address": b"http://127.0.0.1:9/x.mp4",
                "SDP": b"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 9 RTP/AVP 96\na=rtpmap:96 H264/90000\n",
                "a picture": valid.picture("PNG"),
                "text": b"hello\n" * 1000,
                "zeros": bytes(1_000_000),
                "one frame": valid.video("mpeg4", "avi", frames=1),
            },
        )

    return made


# ------------------------------------------------------------------------------------------------------------- archives


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

    def pack(data: bytes) -> bytes:
        return {"w": bytes, "w:gz": gzip.compress, "w:bz2": bz2.compress, "w:xz": lzma.compress}[mode](data)

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
            "a zero block in the middle": pack(valid.tar(members(1))[: -10240 + 0].rstrip(b"\0").ljust(1024, b"\0") + bytes(512) + second),
            "no end mark": pack(bare),
            "end mark alone": pack(bytes(10240)),
            "empty": b"",
            "text behind the end": pack(plain + b"and more" * 100),
            "half a second tar": pack(plain + second[:700]),
            "names that lead out": pack(_tar_of([(tarfile.TarInfo("../../x.jpg"), shown), (tarfile.TarInfo("/tmp/x.jpg"), shown)])),
            "links": pack(_tar_of([(_link("a.jpg", "/etc/passwd", tarfile.SYMTYPE), b""), (_link("b.jpg", "a.jpg", tarfile.LNKTYPE), b""),
                                   (_link("c.jpg", "c.jpg", tarfile.LNKTYPE), b""), (_link("d", "", tarfile.CHRTYPE), b""), (sparse, b"")])),
            "the same name twice": pack(_tar_of([(tarfile.TarInfo("a.jpg"), shown), (tarfile.TarInfo("a.jpg"), shown)])),
            "a name of 1,200 letters": pack(_tar_of([(tarfile.TarInfo(long_name), shown)], tarfile.PAX_FORMAT)),
            "PAX header of 8 GB": pack(_pax(b"9999999999 size=8589934592\n")),
            "PAX size that is no number": pack(_pax(b"12 size=abc\n")),
            "10,000 empty members": pack(_tar_of([(tarfile.TarInfo(f"{n}.jpg"), b"") for n in range(10_000)])),
        }  # fmt: skip
        if mode == "w:gz":
            found |= {"gzip, two members": gzip.compress(plain[:5120]) + gzip.compress(plain[5120:]),
                      "gzip, two tars": gzip.compress(plain) + gzip.compress(second),
                      "gzip and text": gzip.compress(plain) + b"text behind"}  # fmt: skip
        if mode != "w":
            found["bomb of 3 GB"] = lambda: _tar_bomb(mode)
        return _all(name, found)

    return made


def _pax(body: bytes) -> bytes:
    info = tarfile.TarInfo("./PaxHeaders/x")
    info.type, info.size = tarfile.XHDTYPE, len(body)
    header = info.tobuf(tarfile.USTAR_FORMAT)
    return header + body.ljust(-(-len(body) // 512) * 512, b"\0") + valid.tar({"a.jpg": valid.picture("JPEG")})


def _tar_bomb(mode: str) -> bytes:
    info = tarfile.TarInfo("a.jpg")
    info.size = 3 << 30
    out = io.BytesIO()
    openers = {"w:gz": functools.partial(gzip.GzipFile, fileobj=out, mode="wb", compresslevel=1), "w:bz2": lambda: bz2.BZ2File(out, "wb"),
               "w:xz": lambda: lzma.LZMAFile(out, "wb", preset=0)}  # fmt: skip
    with openers[mode]() as packed:
        packed.write(info.tobuf(tarfile.USTAR_FORMAT))
        block = bytes(1 << 22)
        for _ in range((3 << 30) >> 22 if mode == "w:gz" else 64):  # the other two pack too slowly: cut short
            packed.write(block)
    return out.getvalue()


def archives(name: str) -> Specials:
    """Of CIFAR's archive."""

    def made() -> Mapping[str, Callable[[Path], None]]:
        files = valid.cifar()
        return _all(name, {
            "code in it": valid.tar({"c/train": _gadget(), "c/test": _gadget(), "c/meta": _gadget()}, mode="w:gz"),
            "no test": valid.tar({"c/train": files["train"], "c/meta": files["meta"]}, mode="w:gz"),
            "bomb": lambda: _tar_bomb("w:gz"),
            "empty": b"",
            "no tar": gzip.compress(b"text"),
        })  # fmt: skip

    return made


def gzips(name: str) -> Specials:
    """Of gzip: bombs, members, what stands behind."""

    def made() -> Mapping[str, Callable[[Path], None]]:
        line = b"x" * 99 + b"\n"
        return _all(name, {
            "bomb of 1 GB of newlines": lambda: gzip.compress(b"\n" * (1 << 30), 1),
            "bomb of 1 GB in one line": lambda: gzip.compress(bytes(1 << 30), 1),
            "two members": gzip.compress(line) + gzip.compress(line),
            "zeros behind": gzip.compress(line) + bytes(100),
            "text behind": gzip.compress(line) + b"text",
            "wrong checksum": gzip.compress(line)[:-8] + bytes(8),
            "empty": b"", "empty within": gzip.compress(b""),
        })  # fmt: skip

    return made


# --------------------------------------------------------------------------------------------------------------- arrays


def _npy_head(told: str, body: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    head = told.encode("latin1", "replace") + b"\n"
    return b"\x93NUMPY" + version + struct.pack("<H" if version[0] == 1 else "<I", len(head)) + head + body


def _arrays() -> dict[str, bytes | Callable[[], bytes]]:
    whole = "{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }"
    odd = np.empty(2, dtype=object)
    odd[:] = [_Gadget("npy"), 1]
    return {
        "a shape of 2^62": _npy_head(whole % "4611686018427387904, 8", bytes(64)),
        "a negative shape": _npy_head(whole % "-1, 8", bytes(64)),
        "a shape of ten thousand sides": _npy_head(whole % ("1, " * 10_000), bytes(4)),
        "a shape of no rows and a huge width": _npy_head(whole % "0, 4611686018427387904"),
        "4 GB declared": _npy_head(whole % "1000000, 1000", bytes(64)),
        "head that is code": _npy_head("__import__('os').system('touch %s')" % (canary() / "npy-head")),
        "head cut within a string": _npy_head("{'descr': '<f4"),
        "head of a deep tuple": _npy_head("{'descr': '<f4', 'shape': " + "(" * 5000),
        "head with a NUL": _npy_head("{'descr': '<f4\0', 'fortran_order': False, 'shape': (1,)}"),
        "a head declared at 4 GB": b"\x93NUMPY\x02\x00\xff\xff\xff\xff{",
        "version 9": b"\x93NUMPY\x09\x00\x00\x00",
        "structured": _npy_head("{'descr': [('a', '<f4'), ('b', '|O')], 'fortran_order': False, 'shape': (2,), }", bytes(32)),
        "a type of 2 GB": _npy_head("{'descr': '|V2147483647', 'fortran_order': False, 'shape': (9,), }", bytes(32)),
        "code in objects": valid.npy(odd),
        "complex": valid.npy(np.ones((6, 8), complex)),
        "text": valid.npy(np.array(["a"] * 6)),
        "no rows": valid.npy(np.empty((0, 8), np.float32)),
        "a number": valid.npy(np.float32(3)),
        "big-endian": valid.npy(valid.features().astype(">f4")),
        "by columns": valid.npy(np.asfortranarray(valid.features())),
        "NaN": valid.npy(valid.features() * np.float32(np.nan)),
        "empty": b"",
        "another behind": valid.npy(valid.features()) * 2,
    }


def npy(name: str) -> Specials:
    """Of .npy."""
    return lambda: _all(name, _arrays())


def npz(name: str) -> Specials:
    """Of .npz: each array above as an entry, and what zip can do."""

    def made() -> Mapping[str, Callable[[Path], None]]:
        found: dict[str, bytes | Callable[[], bytes]] = {}
        for told, body in _arrays().items():
            out = io.BytesIO()
            with zipfile.ZipFile(out, "w") as archive:
                archive.writestr("a.npy", body if isinstance(body, bytes) else body())
            found[told] = out.getvalue()
        plain = valid.npz({"a": valid.features()[0], "b": valid.features()[1]})
        locked = bytearray(plain)
        for at in (plain.find(b"PK\x03\x04") + 6, plain.find(b"PK\x01\x02") + 8):
            locked[at] |= 1
        found |= {
            "two archives in one": valid.npz({"z": valid.features()[2]}) + plain,
            "entry twice": _twice(),
            "zip within zip": _zip({"a.npy": plain}),
            "names that lead out": _zip({"../../../../tmp/x.npy": valid.npy(valid.features()[0])}),
            "bomb of 3 GB": lambda: _zip_bomb(3 << 30),
            "wide rows, well packed": lambda: valid.npz(
                {"uid": np.array(["a"]), "feature": np.zeros((1, 1 << 28), np.float32)}, packed=True
            ),
            "encrypted": bytes(locked),
            "no entry": _zip({}),
            "entries of other kinds": _zip({"a.txt": b"x", "b.npy": valid.npy(valid.features()[0])}),
            "one comment": plain[:-2] + b"\x05\x00hello",
            "text before": b"x" * 1000 + plain,
        }
        return _all(name, found)

    return made


def _zip(entries: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, body in entries.items():
            archive.writestr(zipfile.ZipInfo(name), body)
    return out.getvalue()


def _twice() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for number in range(2):
            archive.writestr(zipfile.ZipInfo(f"{'ab'[number]}.npy"), valid.npy(valid.features()[number]))
    return out.getvalue().replace(b"b.npy", b"a.npy")


def _zip_bomb(size: int) -> bytes:
    out = io.BytesIO()
    head = _npy_head(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({size // 4},), }}")
    with (
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("a.npy", "w", force_zip64=True) as entry,
    ):
        entry.write(head)
        for _ in range(size >> 22):
            entry.write(bytes(1 << 22))
    return out.getvalue()


def pickles(name: str) -> Specials:
    """Of pickles: code, memory that is claimed, values that hold themselves."""

    def made() -> Mapping[str, Callable[[Path], None]]:
        round_: list[object] = []
        round_.append(round_)
        wide = b"\x80\x04" + b"".join(b"]\x94" + b"(" + b"h\x00" * 2 + b"e" for _ in range(40)) + b"."
        laughs: object = ["ha"] * 10
        for _ in range(12):
            laughs = [laughs] * 10
        found = {
            "code": _gadget(),
            "code, protocol 0": _gadget(0),
            "code behind a plain value": pickle.dumps({"train": []}) + _gadget(),
            "GLOBAL of builtins": b'cbuiltins\neval\n(S\'open("%s","w")\'\ntR.' % str(canary() / "eval").encode(),
            "holds itself": pickle.dumps(round_),
            "a list of lists of lists, 10^13 in all": pickle.dumps(laughs),
            "memo of 2^31": b"\x80\x04]r\xff\xff\xff\x7f.",
            "bytes of 2^40 declared": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b".",
            "deep": b"\x80\x04" + b"]" * 100_000 + b"a" * 99_999 + b".",
            "wide": wide,
            "a number of a million digits": b"I" + b"9" * 1_000_000 + b"\n.",
            "persistent": b"Pabc\n.",
            "extension": b"\x80\x02\x82\x01.",
            "no stop": b"\x80\x04]",
            "empty": b"",
            "text": b"hello",
            "surrogate": pickle.dumps({"train": [{"\ud800": ["\ud800"]}], "val": [{"\ud800": []}]}),
        }
        return _all(name, found)

    return made


def mat(name: str) -> Specials:
    """Of MATLAB files."""

    def made() -> Mapping[str, Callable[[Path], None]]:
        plain = valid.mat({"idx_parts": np.arange(4.0)})
        bomb = plain[:128] + struct.pack("<II", 15, 0) + zlib.compress(bytes(1 << 28), 9)
        return _all(name, {"empty": b"", "head alone": plain[:128], "bomb": bomb, "HDF5": b"\x89HDF\r\n\x1a\n" + bytes(600),
                           "other variables": valid.mat({"a": 1}), "text": valid.mat({"idx_parts": "abc"}),
                           "nested cells": valid.mat({"idx_parts": np.array([[np.array([[1, "a"]], object)]], object)})})  # fmt: skip

    return made


def torch_files(name: str) -> Specials:
    """Of what ``torch.load`` reads."""

    def made() -> Mapping[str, Callable[[Path], None]]:
        import torch

        shared = torch.zeros(4)
        return _all(name, {
            "code": valid.torch_file({"a": _Gadget("torch")}),
            "code, old form": valid.torch_file({"a": _Gadget("torch-old")}, _use_new_zipfile_serialization=False),
            "a plain pickle of code": _gadget(2),
            "a stride of zero": valid.torch_file({"a": torch.zeros(1).expand(1 << 33)}),
            "a list": valid.torch_file([1, 2, 3]),
            "a number": valid.torch_file(3),
            "shared": valid.torch_file({"a": shared, "b": shared[:2]}),
            "sparse": valid.torch_file({"a": torch.eye(3).to_sparse()}),
            "complex": valid.torch_file({"a": torch.ones(8, dtype=torch.complex64)}),
            "bfloat16": valid.torch_file({"a": torch.ones(8, dtype=torch.bfloat16)}),
            "quantised": valid.torch_file({"a": torch.ones(8).to(torch.float16).half()}),
            "names that are no text": valid.torch_file({1: torch.ones(8), None: torch.ones(8)}),
            "no tensor": valid.torch_file({}),
            "meta": valid.torch_file({"a": torch.ones(8, device="meta")}),
            "surrogate": valid.torch_file({"\ud800": torch.ones(8)}),
            "a TorchScript model": _script("plain"),
            "empty": b"", "text": b"hello",
        })  # fmt: skip

    return made


def _script(kind: str) -> bytes:
    import torch

    place = str(canary() / "scripted")

    class Plain(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mean(dim=(2, 3))

    class Writes(torch.nn.Module):
        def __init__(self, place: str) -> None:
            super().__init__()
            self.place = place

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            written = torch.from_file(self.place, shared=True, size=16)
            return x.mean(dim=(2, 3)) + written.sum()

    class Endless(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            while bool((x == x).all()):
                x = x * 1.0
            return x

    class Large(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ones(1 << 30).sum() + x.mean(dim=(2, 3))

    made = {"plain": Plain, "endless": Endless, "large": Large}
    out = io.BytesIO()
    torch.jit.save(torch.jit.script(Writes(place) if kind == "writes" else made[kind]()), out)
    return out.getvalue()


def scripts(name: str) -> Specials:
    """Of TorchScript, which is a program."""

    def made() -> Mapping[str, Callable[[Path], None]]:
        return _all(name, {
            "writes a file": lambda: _script("writes"),
            "never ends": lambda: _script("endless"),
            "takes 4 GB": lambda: _script("large"),
            "code": valid.torch_file({"a": _Gadget("script")}), "empty": b"", "text": b"hello",
        })  # fmt: skip

    return made


# --------------------------------------------------------------------------------------------------------------- tables


def parquet(name: str) -> Specials:
    """Of Parquet."""

    def made() -> Mapping[str, Callable[[Path], None]]:
        names, rows = valid.ids(6), valid.features().tolist()
        return _all(name, {
            "empty": b"", "marks alone": b"PAR1PAR1", "a footer of 2 GB": b"PAR1" + struct.pack("<I", 0x7FFFFFFF) + b"PAR1",
            "two files in one": valid.parquet({"uid": names, "feature": rows}) + valid.parquet({"uid": names[:1], "feature": rows[:1]}),
            "other columns": valid.parquet({"a": [1]}),
            "a number instead of a list": valid.parquet({"uid": names, "feature": list(range(6))}),
            "null": valid.parquet({"uid": [None, *names[1:]], "feature": [None, *rows[1:]]}),
            "lists of other lengths": valid.parquet({"uid": names, "feature": [row[: n + 1] for n, row in enumerate(rows)]}),
            "repeats, well packed": lambda: valid.parquet({"uid": ["a"] * 2_000, "feature": [[0.0] * 50_000] * 2_000}, compression="zstd"),
            "no rows": valid.parquet({"uid": names[:0], "feature": rows[:0]}),
        })  # fmt: skip

    return made


def sqlite(name: str) -> Specials:
    """Of SQLite: views instead of tables, without end."""

    def made() -> Mapping[str, Callable[[Path], None]]:
        from benchwright.datasets.yfcc100m.sqlite import COLUMN_NAMES, TABLE

        columns = list(COLUMN_NAMES.values())
        shown = ", ".join(f"x AS {column}" for column in columns)
        endless = f"CREATE VIEW {TABLE} AS WITH RECURSIVE r(x, rowid) AS (SELECT 1, 1 UNION ALL SELECT x, rowid FROM r) SELECT rowid, {shown} FROM r"
        counting = f"CREATE VIEW {TABLE} AS WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT x AS rowid, {shown} FROM r"
        blob = f"CREATE VIEW {TABLE} AS SELECT 1 AS rowid, {', '.join(f'zeroblob(900000000) AS {c}' for c in columns[:4])}, {', '.join(f'1 AS {c}' for c in columns[4:])}"
        generated = f"CREATE TABLE {TABLE} ({', '.join(columns)}, w GENERATED ALWAYS AS (zeroblob(900000000)))"
        far = f"CREATE TABLE {TABLE} ({', '.join(columns)})"
        insert = f"INSERT INTO {TABLE} (rowid, {columns[0]}) VALUES (?, ?)"
        return _all(name, {
            "recursive view": lambda: valid.sqlite_of([endless]),
            "counting view": lambda: valid.sqlite_of([counting]),
            "view of gigabytes": lambda: valid.sqlite_of([blob]),
            "generated column": lambda: valid.sqlite_of([generated]),
            "rowids at both ends": lambda: valid.sqlite_of([far], [(-(2**63), "1"), (2**63 - 1, "2"), (0, "3")], insert),
            "virtual table": lambda: valid.sqlite_of([f"CREATE VIRTUAL TABLE {TABLE} USING fts5({', '.join(columns)})"]),
            "no table": lambda: valid.sqlite_of(["CREATE TABLE a (b)"]),
            "missing columns": lambda: valid.sqlite_of([f"CREATE TABLE {TABLE} (photoid)"]),
            "mark alone": b"SQLite format 3\0", "empty": b"",
        })  # fmt: skip

    return made


def lines(name: str) -> Specials:
    """Of text in lines."""

    def made() -> Mapping[str, Callable[[Path], None]]:
        def changed(how: Callable[[bytes], bytes]) -> Callable[[Path], None]:
            return lambda folder: (folder / name).write_bytes(how((folder / name).read_bytes())) and None

        def last(data: bytes) -> bytes:
            return data.rstrip(b"\n").split(b"\n")[-1]

        return {
            "empty": changed(lambda data: b""),
            "blank lines": changed(lambda data: b"\n" * 3),
            "NUL": changed(lambda data: bytes(1000)),
            "UTF-16": changed(lambda data: data.decode("utf-8", "replace").encode("utf-16")),
            "byte order mark": changed(lambda data: b"\xef\xbb\xbf" + data),
            "CRLF": changed(lambda data: data.replace(b"\n", b"\r\n")),
            "CR alone": changed(lambda data: data.replace(b"\n", b"\r")),
            "other line ends of Unicode": changed(lambda data: data.replace(b"\n", "\u2028".encode()) + "\x0b\x0c\x1c\x85".encode()),
            "surrogates": changed(lambda data: data + b"\xed\xa0\x80\xed\xb0\x80\n"),
            "open quote": changed(lambda data: data + b'"' + last(data) + b"\n" + last(data) + b"\n"),
            "a line of 30 MB": changed(lambda data: data + b"x" * 30_000_000 + b"\n"),
            "30 million blank lines": changed(lambda data: data + b"\n" * 30_000_000),
            "a line 20,000 times": changed(lambda data: data + (last(data) + b"\n") * 20_000),
            "a line of 100,000 fields": changed(lambda data: data + b"," * 100_000 + b"\t" * 100_000 + b"\n"),
            "names that lead out": changed(lambda data: data + b"../../../etc/passwd" + last(data)[last(data).find(b",") :] + b"\n"),
            "formula": changed(lambda data: data + b"=1+1" + last(data) + b"\n"),
            "directory": lambda folder: ((folder / name).unlink(), (folder / name).mkdir(), None)[-1],
            "link to itself": lambda folder: ((folder / name).unlink(), (folder / name).symlink_to((folder / name).name), None)[-1],
            "gone": lambda folder: (folder / name).unlink(),
        }  # fmt: skip

    return made


def json_files(name: str) -> Specials:
    """Of JSON."""

    def made() -> Mapping[str, Callable[[Path], None]]:
        found: dict[str, bytes | Callable[[], bytes]] = {
            "deep lists": b"[" * 100_000 + b"]" * 100_000,
            "deep tables": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
            "deep lists within": b'{"skeletons":' + b"[" * 900 + b"]" * 900 + b"}",
            "an int of 5,000 digits": b'{"skeletons":[[[' + b"9" * 5000 + b"]]],"
            b'"database":{"a":{"duration":' + b"9" * 5000 + b"}}}",
            "NaN": b'{"skeletons":[[[NaN,Infinity,-Infinity]]]}',
            "null": b"null", "a number": b"3", "text": b'"a"', "a list": b"[]", "a table": b"{}", "list of lists": b"[[[[]]]]",
            "surrogates": b'{"\\ud800":{"annotations":[{"label":"\\udc00","segment":[1,2]}]},"database":{"\\ud800":{"subset":"training"}}}',
            "two values": b"{}{}", "names twice": b'{"a":1,"a":2}', "UTF-16": "{}".encode("utf-16"), "UTF-32": "{}".encode("utf-32"),
            "byte order mark": b"\xef\xbb\xbf{}", "a list of a million": lambda: b"[" + b"0," * 1_000_000 + b"0]",
            "1e999": b'{"skeletons":[[[1e999]]],"label":1e999}', "empty": b"",
        }  # fmt: skip
        return {
            **_all(name, found),
            **{told: each for told, each in lines(name)().items() if told in ("directory", "link to itself", "gone")},
        }

    return made


def toml(name: str) -> Specials:
    """Of TOML."""

    def made() -> Mapping[str, Callable[[Path], None]]:
        def more(text: str) -> Callable[[Path], None]:
            return lambda folder: (
                (folder / name).write_bytes((folder / name).read_bytes() + text.encode("utf-8", "surrogatepass")) and None
            )

        return {
            "deep": more("\na = " + "[" * 50_000),
            "deep tables": more("\n[" + "a." * 20_000 + "a]\nb = 1\n"),
            "huge integer": more("\n[shards2]\nmax = " + "9" * 5000 + "\n"),
            "hex": more("\n[x]\ny = 0x" + "f" * 5000 + "\n"),
            "infinite": lambda folder: (folder / name).write_bytes(b"seed = inf\n") and None,
            "seed of 300 digits": lambda folder: (folder / name).write_bytes((folder / name).read_bytes().replace(b"seed = 0", b"seed = " + b"9" * 300)) and None,
            "surrogates": more('\n[x]\ny = "\ud800"\n'),
            "extends itself": lambda folder: (folder / name).write_bytes(b'extends = "%s"\n' % name.encode()) and None,
            "extends a file outside": lambda folder: (folder / name).write_bytes(b'extends = "/etc/passwd"\n') and None,
            "extends a folder": lambda folder: (folder / name).write_bytes(b'extends = "/etc"\n') and None,
            "binary": lambda folder: (folder / name).write_bytes(bytes(range(256))) and None,
            **{told: each for told, each in lines(name)().items() if told in ("empty", "NUL", "UTF-16", "CR alone", "directory", "link to itself", "gone")},
        }  # fmt: skip

    return made


def run_files(pattern: str) -> Specials:
    """Of a file within a run: no file, another file, a link that leads out."""

    def made() -> Mapping[str, Callable[[Path], None]]:
        def link(folder: Path) -> None:
            (folder / "file").unlink()
            (folder / "file").symlink_to("/etc/passwd")

        found: dict[str, bytes | Callable[[], bytes]] = {"empty": b"", "text": b"hello", "NUL": bytes(100)}
        if pattern.endswith(".json"):
            found |= {
                "deep": b"[" * 100_000,
                "null": b"null",
                "a list": b"[]",
                "a table": b"{}",
                "an int of 5,000 digits": b'{"digest":' + b"9" * 5000 + b"}",
            }
        if pattern.endswith(".parquet"):
            found |= {
                "other columns": valid.parquet({"a": [1]}),
                "a footer of 2 GB": b"PAR1" + struct.pack("<I", 0x7FFFFFFF) + b"PAR1",
            }
        return {**_all("file", found), "link that leads out": link}

    return made
