"""Bytes and addresses that were written by strangers."""

from __future__ import annotations

import pytest
from benchwright.curation.stages.connections import is_public
from benchwright.curation.ustar import ShardError
from benchwright.datasets.reader.decode import DECODERS, decode_image, decode_member
from benchwright.eval.report.images import thumbnail


def test_postscript_under_the_name_of_a_picture() -> None:
    """The reader, and the report's thumbnails, let Pillow choose the format: it hands PostScript to Ghostscript, a program."""
    with pytest.raises(ValueError, match="cannot identify image file"):
        decode_image(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n")
    with pytest.raises(ValueError, match="cannot identify image file"):
        thumbnail(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n", 32)


def test_site_local_addresses_are_not_public() -> None:
    """Python calls fec0::/10 global: an address of a local network passed for one of the internet."""
    assert not is_public("fec0::1")
    assert is_public("2606:4700::1111")


def npy(header: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()


@pytest.mark.parametrize(
    ("extension", "data"),
    [
        ("json", b"[" * 100_000),
        ("npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999,)}")),
    ],
)
def test_members_that_ask_for_too_much(extension: str, data: bytes) -> None:
    """Deep JSON and absurd shapes raised RecursionError and OverflowError, which named neither shard nor member."""
    with pytest.raises(ShardError, match=f"a.tar: member k.{extension} of"):
        decode_member(extension, data, DECODERS, key="k", place="a.tar")
