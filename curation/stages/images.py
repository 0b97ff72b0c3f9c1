"""Check that image files decode, and record their true format. The bytes themselves are kept unchanged."""

from __future__ import annotations

from dataclasses import dataclass

from ..rows import Blob, Reject
from .decode import MAX_PIXELS, PILLOW_MAX_PIXELS, check_pixels, decode_rgb, read_header
from .image_format import normal_extension

__all__ = ["CheckedImage", "StoredImage", "check_image", "decode_rgb"]


@dataclass(frozen=True)
class StoredImage:
    """An image file as downloaded or read.

    Attributes:
        extension: extension that the source declared, without a dot; "" for none.
        image: bytes of the file.

    >>> StoredImage("photo7", "jpg", Blob(b"the bytes of a JPEG")).image.size
    19
    """

    key: str
    extension: str
    image: Blob


@dataclass(frozen=True)
class CheckedImage:
    """An image file that decodes.

    Attributes:
        extension: extension of the true format: ``jpg``, ``png``, ``gif``, ``webp``, ``bmp`` or ``tif``.
        declared_extension: extension that the source declared, in the same spelling (``JPEG`` -> ``jpg``).
        width: pixels as displayed, after the rotation by EXIF; so is ``height``.
        mode: pixel type by Pillow's names: ``RGB``, ``L`` (grey), ``P`` (palette), ``RGBA``, ``CMYK``, ``I;16``, ...

    >>> import numpy as np
    >>> from benchwright.curation.png import stored_png
    >>> checked = check_image(StoredImage("grey", "jpg", Blob(stored_png(np.full((48, 64), 90, np.uint8)))))
    >>> checked.extension, checked.declared_extension, checked.width, checked.height, checked.mode
    ('png', 'jpg', 64, 48, 'L')
    """

    key: str
    extension: str
    declared_extension: str
    image: Blob
    width: int
    height: int
    mode: str


def check_image(
    row: StoredImage,
    *,
    min_bytes: int = 1,
    max_bytes: int | None = None,
    max_pixels: int = MAX_PIXELS,
    min_edge_px: int = 1,
    max_aspect: float | None = None,
    allow_animated: bool = False,
    allow_mislabelled: bool = True,
) -> CheckedImage:
    """Check an image by its header, then decode it once, and record its format, size and mode.

    Args:
        min_bytes: minimum file size (CLEAR-10: 10).
        max_bytes: maximum file size; None for no limit.
        max_pixels: limit of width times height, checked in the header before any pixel is decoded.
        min_edge_px: minimum length of the shorter side (CLEAR-10 has no limit; later CLEAR data 120).
        max_aspect: maximum of longer side over shorter side; None for no limit (later CLEAR data 2.0).
        allow_animated: keep animations; later stages use their first frame only.
        allow_mislabelled: keep files whose extension names another image format, with the true extension.

    Raises:
        Reject: ``empty_file``, ``too_small_file``, ``too_large``, ``not_an_image``, ``unsupported_format``,
            ``too_many_pixels``, ``too_many_scans``, ``too_small``, ``aspect``, ``animated``, ``mislabelled``, ``truncated``
            or ``corrupt``.
        ValueError: ``max_pixels`` is above what Pillow permits.

    >>> import numpy as np
    >>> from benchwright.curation.png import stored_png
    >>> black = Blob(stored_png(np.zeros((48, 64, 3), np.uint8)))
    >>> found = check_image(StoredImage("photo7", "jpg", black), min_edge_px=32)
    >>> found.extension, found.declared_extension, found.width, found.height, found.mode
    ('png', 'jpg', 64, 48, 'RGB')
    >>> check_image(StoredImage("photo7", "png", black), min_edge_px=64)
    Traceback (most recent call last):
        ...
    benchwright.curation.rows.Reject: too_small: 64x48: shorter side below 64 pixels
    """
    if not 0 < max_pixels <= PILLOW_MAX_PIXELS:
        raise ValueError(f"max_pixels={max_pixels}: must be between 1 and {PILLOW_MAX_PIXELS}, Pillow's own limit")
    data = row.image.read()
    if 0 < len(data) < min_bytes:
        raise Reject("too_small_file", f"{len(data)} bytes, at least {min_bytes} are needed")
    if max_bytes is not None and len(data) > max_bytes:
        raise Reject("too_large", f"{len(data)} bytes, limit {max_bytes}")
    header = read_header(data, max_pixels=max_pixels)
    declared = normal_extension(row.extension)
    if declared not in ("", header.extension) and not allow_mislabelled:
        raise Reject("mislabelled", f"named .{row.extension}, is {header.extension}")
    short, long = sorted((header.width, header.height))
    if short < min_edge_px:
        raise Reject("too_small", f"{header.width}x{header.height}: shorter side below {min_edge_px} pixels")
    if max_aspect is not None and long > max_aspect * short:
        raise Reject("aspect", f"{header.width}x{header.height}: aspect above {max_aspect}")
    if header.animated and not allow_animated:
        raise Reject("animated", f"{header.extension} of more than one frame")
    check_pixels(data, header, max_pixels=max_pixels)
    return CheckedImage(row.key, header.extension, declared, row.image, header.width, header.height, header.mode)
