"""Pictures of named classes, as every source of them gives them."""

from __future__ import annotations

from dataclasses import dataclass

from ...curation.rows import Blob


@dataclass(frozen=True)
class ClassImage:
    """A picture, not yet decoded.

    Attributes:
        key: of the file; letters, digits, ``_`` and ``-``.
        image: the file's bytes as they were found; of sources without files a lossless PNG.
        extension: the file name's, lower case; "" where it has none.
        split: ``train``, ``test``, or "" where the source does not say.
        class_name: its finest class.
        file: path within the source. Within a class its order is the order of the samples.
    """

    key: str
    image: Blob
    extension: str
    split: str
    class_name: str
    file: str
