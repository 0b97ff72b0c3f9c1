"""The streams of a CLEAR dataset: features and labels of its time buckets, read from the shards."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...datasets.reader.features import read_features
from ...datasets.reader.index import DatasetIndex
from ...eval.protocols.domain_incremental import iid_stream, streaming_stream
from ...training.data.examples import ArrayExamples
from ..streams import Prepared


def domains(dataset: str, digest: str, training: Mapping[str, Any]) -> Prepared:
    """The stream of a training: its protocol is ``iid``, whose split is drawn by the seed, or ``streaming``."""
    features, labels, keys, table, names = _read(dataset, digest)

    def samples(rows: NDArray[np.int64]) -> ArrayExamples:
        whole = len(rows) and int(rows[-1]) - int(rows[0]) + 1 == len(rows)
        at = slice(int(rows[0]), int(rows[-1]) + 1) if whole else rows  # a view where a bucket's rows stand together
        return ArrayExamples(features[at], labels[at], [keys[row] for row in rows.tolist()])

    bucket = table["bucket"].to_numpy()
    if training["protocol"] == "iid":
        return Prepared(iid_stream(bucket, table[f"iid_seed{training['seed']}"].to_pylist(), samples, names))
    return Prepared(streaming_stream(bucket, samples, names))


@functools.lru_cache(maxsize=1)
def _read(dataset: str, digest: str) -> tuple[NDArray[np.float32], NDArray[np.int64], list[str], pa.Table, tuple[str, ...]]:
    """All that trainings in one process share; ``digest`` names the content."""
    features, table = read_features(DatasetIndex.open(dataset))
    labels = table["label"].to_numpy()
    names = dict(zip(labels.tolist(), table["concept"].to_pylist(), strict=True))
    count = max(names) + 1
    return features, labels, table["key"].to_pylist(), table, tuple(names.get(at, f"class {at}") for at in range(count))
