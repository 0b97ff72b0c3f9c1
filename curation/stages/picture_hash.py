"""Perceptual hashes of pictures and clips: hashes of near-equal pictures differ in few bits, whatever their size and format.

pHash (Zauner, "Implementation and Benchmarking of Perceptual Image Hash Functions", 2010), as ``imagehash.phash`` computes it:
scale the picture to 32x32 greys, take the discrete cosine transform, and compare each of the 8x8 lowest frequencies with their
median: 64 bits, written as 16 hexadecimal digits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image

from ..rows import Blob
from ..video.frames import unpack_frames
from .decode import MAX_PIXELS, decoded_rgb, read_header

DIGITS = 16
"""Hexadecimal digits of a hash."""

_SIDE, _KEPT = 32, 8
_DECODED_SIDE = 4 * _SIDE
_FLAT = 2.0
"""Minimum difference between the darkest and the brightest of the 32x32 greys, of 255; below it a picture gets no hash."""

_DECIMALS = 6
"""Decimals to which the transform is rounded, so that rounding errors around 0 give no bits that differ between processors."""


@dataclass(frozen=True)
class Picture:
    """A row with an image file.

    >>> Picture("photo7", Blob(b"the bytes of a JPEG")).image.size
    19
    """

    key: str
    image: Blob


@dataclass(frozen=True)
class HashedPicture:
    """The row with its hash.

    Attributes:
        phash: 16 hexadecimal digits; None if the picture is of one colour.
        pixels: width times height.

    >>> row = HashedPicture("photo7", Blob(b"the bytes of a JPEG"), phash="aa00000000000000", pixels=64 * 48)
    >>> (int(row.phash, 16) ^ int("aa00000000000003", 16)).bit_count()  # bits of 64 that differ from another hash
    2
    """

    key: str
    image: Blob
    phash: str | None
    pixels: int


@dataclass(frozen=True)
class FramedClip:
    """A clip with its frames: concatenated JPEGs, and the size of each in bytes.

    >>> clip = FramedClip("v1", Blob(b"JPEG1JPEG02"), frame_sizes=[5, 6])
    >>> unpack_frames(clip.frames.read(), clip.frame_sizes)
    [b'JPEG1', b'JPEG02']
    """

    key: str
    frames: Blob
    frame_sizes: list[int]


@dataclass(frozen=True)
class HashedClip:
    """The row with the hashes of some of its frames.

    Attributes:
        phash: 16 hexadecimal digits per hashed frame; None if each of these frames is of one colour.
        pixels: width times height of a frame.

    >>> clip = HashedClip("v1", Blob(b""), [], phash="aa00000000000000" * 4, pixels=76800)
    >>> len(clip.phash) // DIGITS  # frames that were hashed
    4
    """

    key: str
    frames: Blob
    frame_sizes: list[int]
    phash: str | None
    pixels: int


def hash_picture(row: Picture, *, max_pixels: int = MAX_PIXELS) -> HashedPicture:
    """Add the perceptual hash of a picture. A step of kind ``each``; large JPEGs are decoded at a smaller scale.

    Args:
        max_pixels: a picture with more pixels is rejected.

    Raises:
        Reject: as ``decode_rgb``.

    >>> from benchwright.curation.png import stored_png
    >>> ramp = np.tile(np.arange(64, dtype=np.uint8), (48, 1))
    >>> found = hash_picture(Picture("ramp", Blob(stored_png(ramp))))
    >>> found.phash, found.pixels
    ('aa00000000000000', 3072)
    >>> hash_picture(Picture("grey", Blob(stored_png(np.full((48, 64), 90, np.uint8))))).phash is None
    True
    """
    data = row.image.read()
    phash, pixels = _hashed(data, max_pixels)
    return HashedPicture(row.key, row.image, phash, pixels)


def hash_clip(row: FramedClip, *, frames: int = 4) -> HashedClip:
    """Add the perceptual hashes of evenly spaced frames of a clip. A step of kind ``each``.

    Args:
        frames: number of frames to hash; if the clip has fewer, some are used several times.

    Raises:
        ValueError: ``frames`` is below 1.

    >>> from benchwright.curation.png import stored_png
    >>> ramp = stored_png(np.tile(np.arange(64, dtype=np.uint8), (48, 1)))
    >>> clip = FramedClip("v1", Blob(ramp + ramp), [len(ramp), len(ramp)])
    >>> hash_clip(clip, frames=2).phash
    'aa00000000000000aa00000000000000'
    """
    if frames < 1:
        raise ValueError(f"frames is {frames}: at least one is hashed")
    stored = unpack_frames(row.frames.read(), row.frame_sizes)
    # The middle frames of equal segments: the first and last frames are often black.
    places = [(2 * at + 1) * len(stored) // (2 * frames) for at in range(frames)]
    found = {place: _hashed(stored[place], MAX_PIXELS) for place in dict.fromkeys(places)}
    hashes = [found[place][0] for place in places]
    # A frame of one colour gets zeros, whose distance from any hash is that of two random hashes.
    whole = "".join(each or "0" * DIGITS for each in hashes) if any(hashes) else None
    return HashedClip(row.key, row.frames, row.frame_sizes, whole, found[places[0]][1])


def _hashed(data: bytes, max_pixels: int) -> tuple[str | None, int]:
    header = read_header(data, max_pixels=max_pixels)
    with decoded_rgb(data, min_short_side_px=_DECODED_SIDE, max_pixels=max_pixels) as pixels:
        return picture_hash(pixels), header.width * header.height


def picture_hash(pixels: np.ndarray) -> str | None:
    """pHash of a picture: 16 hexadecimal digits, or None for a picture of one colour.

    Args:
        pixels: uint8 (height, width, 3).

    >>> ramp = np.tile(np.arange(64, dtype=np.uint8)[:, None], (48, 1, 3))  # brighter from left to right
    >>> picture_hash(ramp)
    'aa00000000000000'
    """
    from scipy.fft import dct  # imported only when needed

    grey = Image.fromarray(pixels).convert("L").resize((_SIDE, _SIDE), Image.Resampling.LANCZOS)
    small = np.asarray(grey, dtype=np.float64)
    if small.max() - small.min() < _FLAT:
        return None
    whole = np.asarray(dct(dct(small, axis=0), axis=1))
    low = np.round(whole[:_KEPT, :_KEPT], _DECIMALS)
    return np.packbits(low > np.median(low)).tobytes().hex()
