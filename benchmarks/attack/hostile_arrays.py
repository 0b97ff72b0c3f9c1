"""Hostile arrays, pickles, MATLAB and torch files: code that wants to run, memory that is claimed."""

from __future__ import annotations

import functools
import io
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from . import valid
from .hostile import Gadget, Specials, canary, gadget, put_all


def _npy_head(told: str, body: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    head = told.encode("latin1", "replace") + b"\n"
    return b"\x93NUMPY" + version + struct.pack("<H" if version[0] == 1 else "<I", len(head)) + head + body


def _arrays() -> dict[str, bytes | Callable[[], bytes]]:
    whole = "{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }"
    odd = np.empty(2, dtype=object)
    odd[:] = [Gadget("npy"), 1]
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
    return lambda: put_all(name, _arrays())


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
        return put_all(name, found)

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


@functools.cache
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
            "code": gadget(),
            "code, protocol 0": gadget(0),
            "code behind a plain value": pickle.dumps({"train": []}) + gadget(),
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
        return put_all(name, found)

    return made


def mat(name: str) -> Specials:
    """Of MATLAB files."""

    def made() -> Mapping[str, Callable[[Path], None]]:
        plain = valid.mat({"idx_parts": np.arange(4.0)})
        return put_all(
            name,
            {
                "empty": b"",
                "head alone": plain[:128],
                "bomb": lambda: plain[:128] + struct.pack("<II", 15, 0) + zlib.compress(bytes(1 << 28), 9),
                "HDF5": b"\x89HDF\r\n\x1a\n" + bytes(600),
                "other variables": valid.mat({"a": 1}),
                "text": valid.mat({"idx_parts": "abc"}),
                "nested cells": valid.mat({"idx_parts": np.array([[np.array([[1, "a"]], object)]], object)}),
            },
        )

    return made


def _saved(make: Callable[[Any], Any], **how: Any) -> Callable[[], bytes]:
    """A torch file of what is made of the module, which takes seconds to import."""

    def data() -> bytes:
        import torch

        return valid.torch_file(make(torch), **how)

    return data


def _sharing(torch: Any) -> Any:
    shared = torch.zeros(4)
    return {"a": shared, "b": shared[:2]}


def torch_files(name: str) -> Specials:
    """Of what ``torch.load`` reads."""

    def made() -> Mapping[str, Callable[[Path], None]]:
        return put_all(
            name,
            {
                "code": _saved(lambda _: {"a": Gadget("torch")}),
                "code, old form": _saved(lambda _: {"a": Gadget("torch-old")}, _use_new_zipfile_serialization=False),
                "a plain pickle of code": gadget(2),
                "a stride of zero": _saved(lambda torch: {"a": torch.zeros(1).expand(1 << 33)}),
                "a list": _saved(lambda _: [1, 2, 3]),
                "a number": _saved(lambda _: 3),
                "shared": _saved(_sharing),
                "sparse": _saved(lambda torch: {"a": torch.eye(3).to_sparse()}),
                "complex": _saved(lambda torch: {"a": torch.ones(8, dtype=torch.complex64)}),
                "bfloat16": _saved(lambda torch: {"a": torch.ones(8, dtype=torch.bfloat16)}),
                "quantised": _saved(lambda torch: {"a": torch.ones(8).to(torch.float16).half()}),
                "names that are no text": _saved(lambda torch: {1: torch.ones(8), None: torch.ones(8)}),
                "no tensor": _saved(lambda _: {}),
                "meta": _saved(lambda torch: {"a": torch.ones(8, device="meta")}),
                "surrogate": _saved(lambda torch: {"\ud800": torch.ones(8)}),
                "a TorchScript model": lambda: _script("plain"),
                "empty": b"",
                "text": b"hello",
            },
        )

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
        return put_all(
            name,
            {
                "writes a file": lambda: _script("writes"),
                "never ends": lambda: _script("endless"),
                "takes 4 GB": lambda: _script("large"),
                "code": _saved(lambda _: {"a": Gadget("script")}),
                "empty": b"",
                "text": b"hello",
            },
        )

    return made
