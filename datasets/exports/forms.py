"""The forms in which ``push`` can write a published dataset. The modules that write them are imported on request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

Form = Literal["parquet", "shards", "fiftyone", "label-studio"]

Write = Callable[..., int]
"""``write(dataset, target, *, progress)`` writes a dataset's folder into a ``Store``, and returns the number of samples."""


def writer_of(form: Form) -> tuple[tuple[str, ...], Write]:
    """The files of which one marks a folder in this form, finished or not, and the function that writes one.

    >>> writer_of("shards")[0]
    ('dataset.json', 'unfinished.json')
    """
    from . import fiftyone, hugging_face, label_studio, shards

    return {
        "parquet": ((hugging_face.EXPORTED,), hugging_face.write_parquet),
        "shards": (("dataset.json", shards.UNFINISHED), shards.copy_dataset),
        "fiftyone": ((fiftyone.METADATA,), fiftyone.write_fiftyone),
        "label-studio": ((label_studio.CONFIG,), label_studio.write_label_studio),
    }[form]
