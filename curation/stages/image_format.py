"""Image format of a file, detected from its first bytes alone: file names and type headers can be wrong.

Separate from the decoders, so that downloads and listings need not be repeated when a decoder changes.
"""

from __future__ import annotations

PILLOW_NAMES = {"jpg": "JPEG", "png": "PNG", "gif": "GIF", "webp": "WEBP", "bmp": "BMP", "tif": "TIFF"}
"""Supported formats: extension -> Pillow's name."""

SAME_EXTENSION = {
    "jpeg": "jpg",
    "jpe": "jpg",
    "jfif": "jpg",
    "mpo": "jpg",
    "tiff": "tif",
    "heif": "heic",
    "j2k": "jp2",
    "apng": "png",
}
"""Alternative extension -> the one used here."""

KNOWN_EXTENSIONS = frozenset({*PILLOW_NAMES, "avif", "heic", "jp2", "jxl", "psd", "ico", "svg"})
"""Extensions of images, supported or not."""

_MAGIC = (
    (b"\xff\xd8\xff", "jpg"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"II*\0", "tif"),
    (b"MM\0*", "tif"),
    (b"II+\0", "tif"),
    (b"MM\0+", "tif"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "jp2"),
    (b"\xff\x4f\xff\x51", "jp2"),
    (b"\xff\x0a", "jxl"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "jxl"),
    (b"8BPS", "psd"),
    (b"\0\0\1\0", "ico"),
)
_DIB_HEADER_SIZES = frozenset({12, 16, 40, 52, 56, 64, 108, 124})
_HEIF_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"})

SNIFF_BYTES = 64
"""Number of first bytes that ``sniff_extension`` needs."""


def sniff_extension(data: bytes) -> str | None:
    r"""Extension (``jpg``, ...) of the format whose signature ``data`` begins with; None if it is not an image.

    >>> sniff_extension(b"\xff\xd8\xff\xe0"), sniff_extension(b"<html>")
    ('jpg', None)
    """
    for magic, extension in _MAGIC:
        if data.startswith(magic):
            return extension
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    # Text may also begin with "BM": the header size that follows identifies a bitmap.
    if data[:2] == b"BM" and int.from_bytes(data[14:18], "little") in _DIB_HEADER_SIZES:
        return "bmp"
    if data[4:8] == b"ftyp":
        if data[8:12] in (b"avif", b"avis"):
            return "avif"
        if data[8:12] in _HEIF_BRANDS:
            return "heic"
    return None


def normal_extension(extension: str) -> str:
    """One spelling for an extension: lower case, no dot, ``JPEG`` -> ``jpg``; "" stays "".

    >>> normal_extension(".JPEG")
    'jpg'
    """
    extension = extension.removeprefix(".").lower()
    return SAME_EXTENSION.get(extension, extension)
