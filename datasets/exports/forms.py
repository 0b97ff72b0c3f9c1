"""The forms in which ``push`` can write a published dataset. The modules that write them are imported on request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

Form = Literal["parquet", "shards", "fiftyone", "label-studio"]

Write = Callable[..., int]
"""``write(dataset, target, *, progress)`` writes a dataset's folder into a ``Store``, and returns the number of samples."""


def writer_of(form: Form) -> tuple[str, Write]:
    """The file that identifies a folder in this form, and the function that writes one.

    >>> writer_of("shards")[0]
    'dataset.json'
    """
    from . import hugging_face, media, unchanged

    return {
        "parquet": (hugging_face.EXPORTED, hugging_face.write_parquet),
        "shards": ("dataset.json", unchanged.copy_dataset),
        "fiftyone": (media.METADATA, media.write_fiftyone),
        "label-studio": (media.CONFIG, media.write_label_studio),
    }[form]
