"""benchwright: stage-based curation pipelines, and trainings on their datasets.

The public names, each imported on first use:

>>> import benchwright as bw
>>> bw.Reject("too_small", "8 pixels").reason
'too_small'

``run``, ``train``, ``report``, ``verify``, ``compare``, ``show``, ``rejects``, ``view`` and ``plan`` are the commands of
the same names, ``scores`` is ``eval``, and ``job`` is a benchmark with its settings. ``results`` is the table of metrics of
trainings, ``predictions`` their stored predictions, for further metrics. ``rng`` draws random numbers per stage and row:

>>> bw.rng(0, "choose", "photo7").integers(100, size=3)
array([30, 42, 34])
"""

import os as _os
from importlib import import_module as _import_module
from typing import TYPE_CHECKING
from typing import Any as _Any

from .curation.code_loading import watch as _watch

if TYPE_CHECKING:
    from .curation.flow import Flow, join, rows_of, source, step
    from .curation.keys import how, named, where
    from .curation.rng import rng
    from .curation.rows import Blob, Reject, Rejected
    from .datasets.reader.collate import Collate
    from .datasets.reader.dataset import ShardDataset
    from .datasets.reader.index import DatasetIndex
    from .datasets.reader.web import web_dataset
    from .pipelines.api import compare, job, plan, rejects, report, run, scores, show, train, verify, view
    from .pipelines.benchmark import Benchmark
    from .pipelines.experiments import Training
    from .pipelines.training_results import predictions, results

# Otherwise MKL, used by torch, rounds depending on memory alignment, and equal trainings differ in their last bits.
# It reads this before its first sum; no slow-down was measured.
_os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

_watch()

_PLACES = {
    "curation.flow": ("Flow", "join", "rows_of", "source", "step"),
    "curation.keys": ("how", "named", "where"),
    "curation.rng": ("rng",),
    "curation.rows": ("Blob", "Reject", "Rejected"),
    "datasets.reader.collate": ("Collate",),
    "datasets.reader.dataset": ("ShardDataset",),
    "datasets.reader.index": ("DatasetIndex",),
    "datasets.reader.web": ("web_dataset",),
    "pipelines.api": ("compare", "job", "plan", "rejects", "report", "run", "scores", "show", "train", "verify", "view"),
    "pipelines.benchmark": ("Benchmark",),
    "pipelines.experiments": ("Training",),
    "pipelines.training_results": ("predictions", "results"),
}

__all__ = [
    "Benchmark",
    "Blob",
    "Collate",
    "DatasetIndex",
    "Flow",
    "Reject",
    "Rejected",
    "ShardDataset",
    "Training",
    "__version__",
    "compare",
    "how",
    "job",
    "join",
    "named",
    "open_dataset",
    "plan",
    "predictions",
    "rejects",
    "report",
    "results",
    "rng",
    "rows_of",
    "run",
    "scores",
    "show",
    "source",
    "step",
    "train",
    "verify",
    "view",
    "web_dataset",
    "where",
]


def open_dataset(url: str, **where: _Any) -> "DatasetIndex":
    """Open the index of published shards: ``open_dataset("out/dataset", where={"bucket": 3})``; see ``DatasetIndex.open``.

    Args:
        url: folder or fsspec URL of a published dataset.
        where: column -> value, or several accepted values.

    Raises:
        FileNotFoundError: there is no index.
        ValueError: no such column, or no row.

    >>> import benchwright as bw
    >>> len(bw.open_dataset("out/dataset")), len(bw.open_dataset("out/dataset", where={"bucket": 3}))
    (210, 70)
    """
    from .datasets.reader.index import DatasetIndex

    return DatasetIndex.open(url, **where)


def __getattr__(name: str) -> _Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("benchwright")
    place = next((place for place, names in _PLACES.items() if name in names), None)
    if place is None:
        raise AttributeError(f"module 'benchwright' has no attribute {name!r}")
    value = getattr(_import_module(f"benchwright.{place}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
