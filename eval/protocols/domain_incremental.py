"""CLEAR's two protocols over time buckets, iid and streaming (Lin et al., NeurIPS 2021, sections 4.1 and 4.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...curation.stage_rows import Rows
from ..metrics.clear import IID_METRICS, STREAMING_METRICS
from ..results import Value, measured
from .predictions import Predictions
from .stream_loop import LabelledSamples, Position, Stream, Test

ClearProtocol = Literal["iid", "streaming"]
METRICS: Mapping[ClearProtocol, Mapping[str, Callable[[ArrayLike], float]]] = {
    "iid": IID_METRICS,
    "streaming": STREAMING_METRICS,
}


def iid_stream(
    bucket: ArrayLike, split: Sequence[str], samples: Callable[[NDArray[np.int64]], LabelledSamples], classes: Sequence[str]
) -> Stream:
    """The iid protocol (one seed's split): learn the train rows of a bucket, test the test rows of every bucket.

    Args:
        bucket: (n,) integers; domains come in ascending order.
        split: (n,) "train" or "test".
        samples: rows -> the samples of these rows.
        classes: names of all classes, in the order of their indices.

    Raises:
        ValueError: another word in ``split``, arrays of different lengths, or a bucket without train or test rows.

    >>> from benchwright.training.data.examples import ArrayExamples
    >>> X, y = np.zeros((8, 2), np.float32), np.array([0, 1] * 4)
    >>> samples = lambda rows: ArrayExamples(X[rows], y[rows])
    >>> stream = iid_stream([1, 1, 1, 1, 2, 2, 2, 2], ["train", "train", "test", "test"] * 2, samples, ["cat", "dog"])
    >>> [(one.name, one.classes, one.tests) for one in stream.positions]
    [('1', ('cat', 'dog'), (0, 1)), ('2', (), (0, 1))]
    """
    buckets, splits = np.asarray(bucket), np.asarray(split).astype(str)
    if buckets.shape != splits.shape:
        raise ValueError(f"{len(buckets)} buckets and {len(splits)} splits: one each is needed")
    if wrong := set(splits.tolist()) - {"train", "test"}:
        raise ValueError(f"split {min(wrong)!r}: rows are 'train' or 'test'")
    names = np.unique(buckets).tolist()
    rows = {(name, part): np.flatnonzero((buckets == name) & (splits == part)) for name in names for part in ("train", "test")}
    for (name, part), found in rows.items():
        if not len(found):
            raise ValueError(f"the {part} set of bucket {name} is empty")
    everywhere = tuple(range(len(names)))
    positions = [
        Position(str(name), samples(rows[name, "train"]), tuple(classes) if first else (), everywhere)
        for first, name in zip([True, *[False] * len(names)], names, strict=False)
    ]
    return Stream(tuple(positions), tuple(Test(str(name), "test", samples(rows[name, "test"])) for name in names))


def streaming_stream(
    bucket: ArrayLike, samples: Callable[[NDArray[np.int64]], LabelledSamples], classes: Sequence[str]
) -> Stream:
    """The streaming protocol: today's model is tested on tomorrow's data. All rows of a bucket are first tested, as the future,
    and learned later.

    Args:
        bucket, samples, classes: see ``iid_stream``.

    Raises:
        ValueError: fewer than two buckets, which have no future.

    >>> from benchwright.training.data.examples import ArrayExamples
    >>> X, y = np.zeros((6, 2), np.float32), np.array([0, 1] * 3)
    >>> stream = streaming_stream([1, 1, 2, 2, 3, 3], lambda rows: ArrayExamples(X[rows], y[rows]), ["cat", "dog"])
    >>> [one.name for one in stream.positions], [test.tested for test in stream.tests]  # what comes next is the test
    (['1', '2'], ['2', '3'])
    """
    buckets = np.asarray(bucket)
    names = np.unique(buckets).tolist()
    if len(names) < 2:
        raise ValueError(f"{len(names)} bucket: the streaming protocol tests on later buckets, but there are none")
    parts = [samples(np.flatnonzero(buckets == name)) for name in names]
    # The last bucket has no future to test on: it need not be learned.
    positions = [
        Position(str(name), part, tuple(classes) if not number else (), tuple(range(number, len(names) - 1)))
        for number, (name, part) in enumerate(zip(names[:-1], parts, strict=False))
    ]
    return Stream(tuple(positions), tuple(Test(str(n), "test", part) for n, part in zip(names[1:], parts[1:], strict=True)))


def offline_stream(
    bucket: ArrayLike, split: Sequence[str], samples: Callable[[NDArray[np.int64]], LabelledSamples], classes: Sequence[str]
) -> Stream:
    """No time order: learn the train rows of all buckets at once, test the test rows of each (supplement, "train offline").

    Args:
        bucket, split, samples, classes: see ``iid_stream``.

    Raises:
        ValueError: as ``iid_stream``.

    >>> from benchwright.training.data.examples import ArrayExamples
    >>> X, y = np.zeros((8, 2), np.float32), np.array([0, 1] * 4)
    >>> samples = lambda rows: ArrayExamples(X[rows], y[rows])
    >>> stream = offline_stream([1] * 4 + [2] * 4, ["train", "train", "test", "test"] * 2, samples, ["cat", "dog"])
    >>> [(one.name, len(one.train.labels)) for one in stream.positions], [test.tested for test in stream.tests]
    ([('all', 4)], ['1', '2'])
    """
    tests = iid_stream(bucket, split, samples, classes).tests
    train = samples(np.flatnonzero(np.asarray(split).astype(str) == "train"))
    return Stream((Position("all", train, tuple(classes), tuple(range(len(tests)))),), tests)


def measure_offline(*, predictions: Rows) -> Iterator[Value]:
    """Source step: ``accuracy`` on the test rows of each bucket after a training on all of them, and on all together.

    Args:
        predictions: predictions stored by the training; no rows if it diverged.

    >>> import pyarrow as pa
    >>> from benchwright.eval.protocols.predictions import ONE_LABEL, row
    >>> rows = [
    ...     row(ONE_LABEL, "0000/1/test", 0, "1", "test", 2, keys=list("ab"), labels=[0, 1]),
    ...     row(ONE_LABEL, "0000/2/test", 0, "2", "test", 1, keys=["c"], labels=[0]),
    ...     row(ONE_LABEL, "0001", 1, "all", "", 9, class_names=["cat", "dog"], record="{}"),
    ...     row(ONE_LABEL, "0001/1/test", 1, "1", "test", 2, predicted=[0, 1]),
    ...     row(ONE_LABEL, "0001/2/test", 1, "2", "test", 1, predicted=[1]),
    ... ]
    >>> found = measure_offline(predictions=Rows.of(pa.concat_tables(rows)))
    >>> [(value.tested, round(value.value, 3)) for value in found]
    [('1', 1.0), ('2', 0.0), ('', 0.667)]
    """
    if not predictions.num_rows:
        return
    found = Predictions(predictions)
    [row], counts = found.matrix(), [len(test.keys) for test in found.tests]
    for test, accuracy in zip(found.tests, row.tolist(), strict=True):
        yield measured("accuracy", accuracy, position=1, tested=test.tested, split="test")
    yield measured("accuracy", float(np.average(row, weights=counts)), split="test")


def measure_domains(*, predictions: Rows, protocol: ClearProtocol) -> Iterator[Value]:
    """Source step: ``accuracy`` on each domain after each, and the paper's summaries.

    Args:
        predictions: predictions stored by the training; no rows if it diverged.
        protocol: the protocol whose summaries are computed.

    >>> import benchwright as bw
    >>> iid = next(rows for facts, rows in bw.predictions("out") if facts["protocol"] == "iid")
    >>> [value.metric for value in measure_domains(predictions=iid, protocol="iid") if value.position is None]
    ['in_domain', 'next_domain', 'acc', 'bwt', 'fwt']
    """
    if not predictions.num_rows:
        return
    found = Predictions(predictions)
    matrix = found.square()
    for i, one in enumerate(found.positions):
        memory: Any = one.memory_samples, one.memory_parts
        for j, tested in enumerate(found.domains):
            if not np.isnan(matrix[i, j]):
                yield measured("accuracy", matrix[i, j], position=i + 1, tested=tested, split="test", memory=memory)
    for name, metric in METRICS[protocol].items():
        yield measured(name, metric(matrix), split="test")
