"""Write a CLEAR run in the folder layout of CLEAR's releases."""

from __future__ import annotations

import json
import logging
import os
import posixpath
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ...curation.artifact import load_artifact
from ...curation.local_files import write_whole
from ...curation.lock import locked
from ...curation.publish import ATTRIBUTION
from ...curation.stage_rows import Rows
from ...curation.store import Store, StoreError
from ...curation.verify import DATASET
from ...datasets.clear import release_lists
from ...datasets.clear.facts import RELEASED, facts
from ...datasets.clear.release import Item, write_all_metadata, write_feature_file, write_release, write_train_test
from ...datasets.clear.splits import SEEDS
from ...datasets.reader.features import feature_sets, open_features, read_features
from ...datasets.reader.index import DatasetIndex
from ..errors import WrongUse, unknown
from .card import class_names, names_by_label
from .config import ClearConfig
from .source_config import ReleaseSource

LOGGER = logging.getLogger("benchwright")


LAYOUTS = ("training_folder", "train_test")


def write_release_layout(config: ClearConfig, out: str, folder: str, layout: str = "training_folder") -> int:
    """Write a finished run in the folder layout of CLEAR's releases (``datasets.clear.release``), with its features.

    Args:
        config: settings of the run.
        out: the run.
        folder: new or empty local folder outside the run, or one with an unfinished release, which is emptied.
        layout: ``training_folder`` with the lists of all five splits, or ``train_test``, the split of seed 0 in two folders.

    Returns:
        Number of images.

    Raises:
        WrongUse: another folder or layout, or a run without images or splits.
        Busy: another release is being written to the folder.
    """
    if layout not in LAYOUTS:
        raise unknown("layout", layout, LAYOUTS)
    store = Store(out)
    root, run = Path(os.path.realpath(folder)), store.local and Path(os.path.realpath(store.local))
    if run and (root.is_relative_to(run) or run.is_relative_to(root)):
        raise WrongUse(f"{folder}: the release must be neither inside the run {out} nor contain it: choose another folder")
    root.mkdir(parents=True, exist_ok=True)
    with locked(
        root / _UNFINISHED, f"another release is in progress in {folder}: wait for it, or choose another folder"
    ) as mark:
        others = [path for path in root.iterdir() if path.name != _UNFINISHED]
        if others and not os.fstat(mark.fileno()).st_size:  # no release was begun here
            (root / _UNFINISHED).unlink(missing_ok=True)
            raise WrongUse(f"{folder}: it holds files, such as {min(others).name}: choose a new or empty folder")
        mark.write(f"benchwright release has not ended here: {out}\n")
        mark.flush()
        for path in others:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        images = _write_release(config, store, root, layout)
        mark.truncate(0)  # a process that opened it meanwhile, and locks it next, must not find it unfinished
        (root / _UNFINISHED).unlink()
    return images


_UNFINISHED = ".benchwright-unfinished"
"""Marks and locks a folder with an unfinished release: the next release may empty it."""


def _write_release(config: ClearConfig, store: Store, folder: Path, layout: str) -> int:
    rows = _finished_rows(store, "split")
    if "image" not in rows.column_names:
        raise WrongUse("the run has no images, which a release needs: set source.images = true, and run it again")
    table = rows.table(["bucket", "label", "class_name", *(f"iid_seed{seed}" for seed in SEEDS)])
    seeds = [seed for seed in SEEDS if not table[f"iid_seed{seed}"].null_count]
    names = _class_names(config, rows)
    vectors = released_features(store.url, config.vectors)  # the index has the rows of the stage, in the same order
    if layout == "train_test":
        images = _write_train_test(config, store, folder, names, table, vectors)
    else:
        given: dict[str, Any] = {"class_names": names, "seeds": seeds, "test_share": config.test_share}
        images = write_release(folder, _items(config, store, rows), **given).images
        _write_others(config, store, folder, table, vectors)
    published = posixpath.join(DATASET, ATTRIBUTION)
    if store.exists(published):
        write_whole(folder / ATTRIBUTION, store.read(published))
    _warn(config, layout, seeds, np.unique(table["bucket"].to_numpy()).tolist(), list(vectors))
    return images


def _write_train_test(
    config: ClearConfig, store: Store, folder: Path, names: Sequence[str], table: pa.Table, vectors: Mapping[str, np.ndarray]
) -> int:
    rows, parts = _finished_rows(store, "split"), np.asarray(table["iid_seed0"].to_pylist())
    if not set(parts.tolist()) <= {"train", "test"}:
        raise WrongUse("the run has no split of seed 0, which the layout train_test needs: use the other layout")

    def items(part: str) -> Iterator[Item]:
        return _items(config, store, rows, part)

    places = {part: np.flatnonzero(parts == part) for part in ("train", "test")}
    return write_train_test(folder, items, class_names=names, vectors=vectors, places=places).images


def _write_others(config: ClearConfig, store: Store, folder: Path, table: pa.Table, vectors: Mapping[str, np.ndarray]) -> None:
    """Write features, and the metadata of all images if the run has more than the labelled ones."""
    buckets, labels = table["bucket"].to_numpy(), table["label"].to_numpy()
    for name, found in vectors.items():
        for bucket in np.unique(buckets).tolist():
            mine = np.flatnonzero(buckets == bucket)
            write_feature_file(folder, name, bucket, found[mine], labels[mine].tolist())
    if not isinstance(config.source, ReleaseSource):
        every = _finished_rows(store, "bucketed")
        columns = [name for name in every.column_names if name not in ("image", "embedding")]
        write_all_metadata(folder, (row for part in every.batches(columns) for row in part.to_pylist()))


def _items(config: ClearConfig, store: Store, rows: Rows, part: str = "") -> Iterator[Item]:
    """Rows with their images, all or one part of the split of seed 0; rows of a release include its metadata."""
    released = isinstance(config.source, ReleaseSource)
    left_out = {"image", "embedding", "shard", *(("part", "file", "listed_at") if released else ())}
    plain = [name for name in rows.column_names if name not in left_out]
    for table in rows.batches([*plain, "image"]):
        blobs = table["image"].to_pylist()
        for row, ref in zip(table.select(plain).to_pylist(), blobs, strict=True):
            if part and row["iid_seed0"] != part:
                continue
            if released:
                known = json.loads(row.pop("labels"))
                row = {**known, **{name: value for name, value in row.items() if value is not None}}
            yield row, store.blob(ref).read()


def _class_names(config: ClearConfig, rows: Rows) -> tuple[str, ...]:
    """Names of all classes in the order of their labels."""
    if config.recipe is not None or not isinstance(config.source, ReleaseSource):
        return class_names(config, rows)
    try:  # only a part of the release may have been taken
        known = release_lists.class_names(config.source.root)
    except (OSError, ValueError) as error:
        raise WrongUse(f"source.root: the class names are read from it again: {error}") from None
    if any(label >= len(known) or known[label] != name for label, name in names_by_label(rows).items()):
        raise WrongUse(f"source.root = {config.source.root!r} is not the release that the run was built from")
    return known


def _warn(config: ClearConfig, layout: str, seeds: Sequence[int], buckets: Sequence[int], features: Sequence[str]) -> None:
    """Warn of what Avalanche's loader, which hard-codes the test share and names of features, will not find."""
    lines: list[str] = []
    if layout == "training_folder" and (config.test_share != facts().iid.test_share or [*seeds] != [*SEEDS]):
        published = f"testset_ratio_{config.test_share} with {len(seeds)} seeds"
        lines.append(
            f"splits of its iid protocol: it reads {facts().release.test_share_folder} with seeds 0 to 4, found: {published}"
        )
    if layout == "train_test" and [*buckets] != list(range(len(buckets))):
        lines.append(f"buckets of its streaming protocol: it counts them from 0, and these are {', '.join(map(str, buckets))}")
    known = facts().features.released if layout == "training_folder" else facts().features.released[:1]
    if others := [name for name in features if name not in known]:
        lines.append(f"features: it has the names {', '.join(known)}, and these are called {', '.join(others)}")
    for each in lines:
        LOGGER.warning("Avalanche will not find the %s", each)


def _finished_rows(store: Store, stage: str) -> Rows:
    artifact = load_artifact(store, stage)
    if artifact is None:
        raise StoreError(f"{store.url}: stage {stage!r} is not finished; run the pipeline to its end first")
    return artifact.rows_view(store)


def released_features(out: str, embedding: str) -> dict[str, np.ndarray]:
    """Vectors of all rows of a finished run by their names in a release: those in its shards, and its feature sets, mapped.

    Args:
        out: the run.
        embedding: name of the vectors in the shards; "" if there are none.

    Raises:
        WrongUse: two would have the same name.
    """
    dataset = posixpath.join(out, DATASET)
    found: dict[str, np.ndarray] = {}
    if embedding:
        found[embedding] = read_features(DatasetIndex.open(dataset))[0]
    for name in feature_sets(dataset):
        released = RELEASED.get(name, name)
        if released in found:
            raise WrongUse(
                f"features.{name}: the release has features {released!r} already: give this feature set another name"
            )
        found[released] = open_features(dataset, name)[0]
    return found
