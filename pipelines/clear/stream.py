"""The streams of a CLEAR dataset: features or pictures by time bucket, with labels, read from the shards."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...datasets.reader.features import feature_sets, open_features
from ...datasets.reader.index import DatasetIndex
from ...eval.protocols.domain_incremental import iid_stream, offline_stream, streaming_stream
from ...training.data.examples import ArrayExamples, Examples
from ...training.data.pictures import PictureCache, PictureExamples
from ..column_streams import read
from ..feature_sets import EMBEDDING, PIXELS
from ..stream_trainings import Prepared, album

Take = Callable[[NDArray[np.int64]], Examples]


def domains(dataset: str, digest: str, training: Mapping[str, Any]) -> Prepared:
    """The stream of a training under the protocol ``iid`` or ``offline``, whose split depends on the seed, or ``streaming``."""
    index = DatasetIndex.open(dataset)
    labels, names = _labels(index.table)
    learned = training["settings"]["features"]
    if learned == PIXELS:
        pictures = album(dataset, digest, json.dumps(training["settings"]["view"]))
        keys = index.table["key"].to_pylist()
        samples: Take = functools.partial(_pictures, pictures, keys, labels)
    else:
        embedded = learned == EMBEDDING
        features, table = read(dataset, digest, "embedding.npy") if embedded else _opened(index, training["settings"])
        samples = functools.partial(_vectors, features, table["key"].to_pylist(), labels)
    bucket = index.table["bucket"].to_numpy()
    if training["protocol"] in ("iid", "offline"):
        stream = iid_stream if training["protocol"] == "iid" else offline_stream
        return Prepared(stream(bucket, index.table[f"iid_seed{training['seed']}"].to_pylist(), samples, names))
    return Prepared(streaming_stream(bucket, samples, names))


def _pictures(pictures: PictureCache, keys: list[str], labels: NDArray[np.int64], rows: NDArray[np.int64]) -> Examples:
    return PictureExamples(pictures, keys, rows, labels[rows])


def _vectors(features: NDArray[np.floating], keys: list[str], labels: NDArray[np.int64], rows: NDArray[np.int64]) -> Examples:
    whole = len(rows) and int(rows[-1]) - int(rows[0]) + 1 == len(rows)
    at = slice(int(rows[0]), int(rows[-1]) + 1) if whole else rows  # a view if a bucket's rows are contiguous
    return ArrayExamples(features[at].astype(np.float32, copy=False), labels[at], [keys[row] for row in rows.tolist()])


def _labels(table: pa.Table) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Labels of all rows, and names of all classes."""
    labels = table["label"].to_numpy()
    names = dict(zip(labels.tolist(), table["class_name"].to_pylist(), strict=True))
    return labels, tuple(names.get(at, f"class {at}") for at in range(max(names) + 1))


def _opened(index: DatasetIndex, settings: Mapping[str, Any]) -> tuple[NDArray[np.floating], pa.Table]:
    """A feature set, memory-mapped, and the index."""
    name, digest = settings["features"], settings["features_digest"]
    if (there := feature_sets(index.url).get(name, {}).get("digest")) != digest:
        raise ValueError(
            f"{index.url}: the feature set {name!r} has the digest {str(there)[:12]}, not {digest[:12]}: train again"
        )
    return open_features(index, name)
