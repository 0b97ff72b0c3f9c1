"""The streams of an IIRC dataset: the tasks of one configuration, with pictures or vectors, read from the shards."""

from __future__ import annotations

import functools
import posixpath
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...curation.keys import canonical
from ...datasets.iirc.view import Given, RefinedView
from ...datasets.reader.index import DatasetIndex
from ...eval.protocols.refined_classification import refined_stream
from ...eval.protocols.stream_loop import Position, Test
from ...training.data.examples import ArrayExamples
from ...training.data.pictures import PictureCache, PictureExamples
from ..stream_trainings import Prepared, album
from .vectors import read_vectors

SAMPLES = ("task", "so_far", "all")
"""Samples of a task: its own; those of all tasks so far; or all samples, in a single task with all classes."""


def tasks(dataset: str, digest: str, training: Mapping[str, Any]) -> Prepared:
    """The stream of a training.

    Its order is the number of the configuration. The table ``data`` in its settings gives the ``samples`` of the tasks, their
    ``labels``, the ``roles`` to test, and the digest of the ``vectors`` that replace pictures.
    """
    data, (table, keys) = training["settings"]["data"], _index(dataset, digest)
    view = RefinedView(table, training["order"], joint=data["samples"] == "all")
    if "vectors" in data:
        samples = functools.partial(_of_vectors, _vectors(dataset, digest, data["vectors"]), keys)
    else:
        samples = functools.partial(_of_pictures, album(dataset, digest, canonical(training["settings"]["view"])), keys)
    reach = "task" if data["samples"] == "task" else "so_far"
    roles = [(role, samples(view.evaluation(role))) for role in data["roles"]]
    tests = [Test("", role, each) for role, each in roles if len(each.labels)]
    positions: list[Position] = []
    for number, names in enumerate(view.tasks):
        train, validate = (
            samples(view.training(number, role=role, information=data["labels"], reach=reach))
            for role in ("train", "intask_valid")
        )
        watched = (validate,) if len(validate.labels) else ()
        positions.append(Position(str(number), train, names, tuple(range(len(tests))), watched))
    return Prepared(refined_stream(positions, tests))


@functools.lru_cache(maxsize=1)
def _index(dataset: str, digest: str) -> tuple[pa.Table, list[str]]:
    """The index and its keys, shared by all trainings in one process; ``digest`` identifies the content."""
    table = DatasetIndex.open(dataset).table
    return table, table["key"].to_pylist()


@functools.lru_cache(maxsize=1)
def _vectors(dataset: str, digest: str, vectors: str) -> NDArray[np.float32]:
    return read_vectors(posixpath.dirname(dataset), vectors, _index(dataset, digest)[1])


def _of_vectors(vectors: NDArray[np.float32], keys: list[str], one: Given) -> ArrayExamples:
    return ArrayExamples(vectors[one.rows], one.labels, [keys[row] for row in one.rows.tolist()])


def _of_pictures(pictures: PictureCache, keys: list[str], one: Given) -> PictureExamples:
    return PictureExamples(pictures, keys, one.rows, one.labels)
