"""A CLEAR run in the folders in which CLEAR is released."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ...curation.artifact import load_artifact
from ...curation.lock import locked
from ...curation.stages.choose import class_order
from ...curation.store import Rows, Store, StoreError
from ..errors import WrongUse
from ..own import shown
from .config import ClearConfig
from .features import write_released_features


def write_release_layout(config: ClearConfig, out: str, folder: str) -> int:
    """Write a finished run in the folders in which CLEAR is released (``datasets.clear.release``), with its features.

    Args:
        config: settings of the run.
        out: the run.
        folder: new or empty local folder outside the run, or one that such a release left unfinished: it is emptied.

    Returns:
        Number of images.

    Raises:
        WrongUse: for any other folder.
        Busy: where another release is at work in it.
    """
    store = Store(out)
    root, run = Path(os.path.realpath(folder)), store.local and Path(os.path.realpath(store.local))
    if run and (root.is_relative_to(run) or run.is_relative_to(root)):
        raise WrongUse(f"{folder}: a release is no part of the run {out}, nor the run of it: name a folder elsewhere")
    root.mkdir(parents=True, exist_ok=True)
    with locked(root / _UNFINISHED, f"another release is at work in {folder}: wait for it, or name another folder") as mark:
        others = [path for path in root.iterdir() if path.name != _UNFINISHED]
        if others and not os.fstat(mark.fileno()).st_size:  # nobody began here before
            (root / _UNFINISHED).unlink(missing_ok=True)
            raise WrongUse(f"{folder}: it holds files, such as {min(others).name}: name a new or an empty folder")
        mark.write(f"benchwright release has not ended here: {out}\n")
        mark.flush()
        for path in others:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        images = _write_release(config, store, root)
        mark.truncate(0)  # whoever opened it in the meantime, and locks it next, finds nothing unfinished
        (root / _UNFINISHED).unlink()
    return images


_UNFINISHED = ".benchwright-unfinished"
"""Marks a folder whose release has not ended, and locks it: the next release may empty it."""


def _write_release(config: ClearConfig, store: Store, folder: Path) -> int:
    from ...datasets.clear.release import write_all_metadata, write_features, write_release

    rows = _finished(store, "split")
    names = class_order([each.name for each in config.classes], config.retrieval.background)
    plain = [name for name in rows.column_names if name not in ("image", "embedding", "shard")]

    def items() -> Iterator[tuple[dict[str, Any], bytes]]:
        for table in rows.batches([*plain, "image"]):
            blobs = table["image"].to_pylist()
            for row, ref in zip(table.select(plain).to_pylist(), blobs, strict=True):
                yield row, store.blob(ref).read()

    written = write_release(folder, items(), class_names=names, test_share=config.splits.test_share)
    table = rows.table(["bucket", "label"])
    buckets, labels = table["bucket"].to_numpy(), table["label"].to_numpy()
    vectors = np.concatenate(list(rows.arrays("embedding")))
    for bucket in np.unique(buckets).tolist():
        mine = buckets == bucket
        write_features(folder, shown(config.encoder.kind), bucket, vectors[mine], labels[mine].tolist())
    write_released_features(store.url, folder)
    every = _finished(store, "bucketed")
    columns = [name for name in every.column_names if name not in ("image", "embedding")]
    write_all_metadata(folder, (row for part in every.batches(columns) for row in part.to_pylist()))
    return written.images


def _finished(store: Store, stage: str) -> Rows:
    artifact = load_artifact(store, stage)
    if artifact is None:
        raise StoreError(f"{store.url}: stage {stage!r} is not finished; run the pipeline to its end first")
    return artifact.rows_view(store)
