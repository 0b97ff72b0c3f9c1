"""Members of shards that were written by strangers."""

from __future__ import annotations

import pytest
from benchwright.curation.ustar import ShardError
from benchwright.datasets.reader.decode import DECODERS, decode_image, decode_member


def test_postscript_under_the_name_of_a_picture() -> None:
    """The reader left the choice of format to Pillow, which hands PostScript to Ghostscript, a program that it starts."""
    with pytest.raises(ValueError, match="cannot identify image file"):
        decode_image(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n")


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
