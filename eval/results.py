"""Results of trainings: one schema for all benchmarks, and access to the lines of a table of results."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..curation.nested import flat
from ..curation.rows import schema_of
from .labels import LabelledSettings, always_shown, line_labels, unnamed


@dataclass(frozen=True)
class Value:
    """One value of one metric of one training.

    Attributes:
        key: unique within the training.
        position: how many domains, tasks or increments had been learned; None if the value is for the whole training.
        tested: what was tested: a domain or task, "" for all together.
        split: role of the samples that were tested: ``test``, ``validate``, ...
        stratum: part of these samples, "" for all.
        metric: name of the metric, which also defines it.
        value: None if it is undefined.
        memory_samples: samples held in memory; None for a method without one, or that trains on all samples so far.
        memory_parts: frames, or other parts of samples, held in memory.
        order: number of the order in which tasks or classes were learned, where a benchmark has several; else 0.
        seed: seed of the run, where one training carries out several runs side by side; else None.

    >>> measured("accuracy", 0.5, position=2, tested="2005").metric
    'accuracy'
    """

    key: str
    position: int | None
    tested: str
    split: str
    stratum: str
    metric: str
    value: float | None
    memory_samples: int | None = None
    memory_parts: int | None = None
    order: int = 0
    seed: int | None = None


def measured(
    metric: str,
    value: float | None,
    *,
    position: int | None = None,
    tested: str = "",
    split: str = "",
    stratum: str = "",
    memory: tuple[int | None, int | None] = (None, None),
    order: int = 0,
    seed: int | None = None,
) -> Value:
    """A ``Value`` whose key is built from its other fields; NaN becomes None.

    >>> measured("accuracy", 0.5, position=2, tested="2005", split="test").key
    'accuracy/0/2/2005/test/'
    >>> measured("backward_forgetting", float("nan")).value is None
    True
    """
    number = None if value is None or math.isnan(value) else float(value)
    run = [] if seed is None else [str(seed)]
    key = "/".join([metric, str(order), "" if position is None else str(position), tested, split, stratum, *run])
    return Value(key, position, tested, split, stratum, metric, number, *memory, order, seed)


_WORDS = pa.dictionary(pa.int32(), pa.string())

RESULTS = pa.schema(
    [
        *((name, _WORDS) for name in ("benchmark", "dataset", "experiment", "protocol", "method", "model", "settings")),
        ("seed", pa.int64()),
        *(field for field in schema_of(Value) if field.name not in ("key", "seed")),
    ]
)
"""Columns of a table of results: the training that a value belongs to, and the value.

``dataset`` is the content digest of the dataset, ``experiment`` that of the predictions from which the value was computed;
``protocol``, ``method`` and ``model`` are names as printed in tables; ``settings`` is JSON with all other settings in which
trainings of the benchmark may differ; ``seed`` is the seed of the training, or the number of the repeat.
"""

SERIES = ("protocol", "method", "model", "settings")
"""Columns that identify a line of a table or figure; trainings that differ only in order and seed are one line."""


@dataclass(frozen=True)
class Line:
    """Trainings that differ only in order and seed: a line of a table or figure.

    Attributes:
        protocol, method, model: as in ``RESULTS``.
        settings: all settings, by dotted name.
        label: the method, and the settings needed to distinguish it from the other lines of its protocol.
        rows: the rows of this line in the table of results.
        apart: settings, and the model, in which lines of its protocol differ and that its label leaves out: see ``unnamed``.

    >>> import benchwright as bw
    >>> line = lines(bw.results("out"))[0]
    >>> line.protocol, line.label, line.runs
    ('iid', 'nap-finetune', [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4)])
    """

    protocol: str
    method: str
    model: str
    settings: Mapping[str, Any]
    label: str
    rows: pa.Table
    apart: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def labelled(self) -> LabelledSettings:
        """The line as ``unnamed`` takes it."""
        others = {name: value for name, value in self.settings.items() if name != "model"}  # an empty table of its settings
        return self.label, self.method, {"model": self.model, **others}

    @property
    def runs(self) -> list[tuple[int, int]]:
        """Order and seed of each training, ascending."""
        pairs = self.rows.select(["order", "seed"]).group_by(["order", "seed"]).aggregate([]).to_pylist()
        return sorted((each["order"], each["seed"]) for each in pairs)

    def values(self, metric: str, *, split: str | None = None, stratum: str = "", at: int | None = None) -> NDArray[np.float64]:
        """(runs,) values of a metric of the whole training, or after ``at`` positions; NaN where it is undefined.

        >>> import benchwright as bw
        >>> lines(bw.results("out"))[0].values("acc").shape  # one value a run
        (5,)
        """
        rows = self.select(metric, split=split, stratum=stratum)
        rows = rows.filter(pc.is_null(rows["position"]) if at is None else pc.equal(rows["position"], at))
        found = {(each["order"], each["seed"]): each["value"] for each in rows.select(["order", "seed", "value"]).to_pylist()}
        return np.array([np.nan if found.get(run) is None else found[run] for run in self.runs], dtype=np.float64)

    def matrix(self, metric: str, tested: Sequence[str], *, split: str | None = None, stratum: str = "") -> NDArray[np.float64]:
        """(runs, positions, len(tested)) values after each position, NaN where nothing was tested.

        >>> import benchwright as bw
        >>> lines(bw.results("out"))[0].matrix("accuracy", ["1", "2", "3"]).shape  # runs, positions, domains
        (5, 3, 3)
        """
        rows = self.select(metric, split=split, stratum=stratum)
        rows = rows.filter(pc.is_valid(rows["position"]))
        positions = sorted(pc.unique(rows["position"]).to_pylist())
        places = [{name: at for at, name in enumerate(names)} for names in (self.runs, positions, tested)]
        values = np.full([len(each) for each in places], np.nan)
        columns = (rows[name].to_pylist() for name in ("order", "seed", "position", "tested", "value"))
        for order, seed, position, name, value in zip(*columns, strict=True):
            if value is not None and name in places[2]:
                values[places[0][order, seed], places[1][position], places[2][name]] = value
        return values

    def select(self, metric: str, *, split: str | None = None, stratum: str = "") -> pa.Table:
        """Rows of one metric."""
        rows = self.rows.filter(pc.and_(pc.equal(self.rows["metric"], metric), pc.equal(self.rows["stratum"], stratum)))
        return rows if split is None else rows.filter(pc.equal(rows["split"], split))


def lines(results: pa.Table) -> list[Line]:
    """The lines of a table of results, in the order of their first rows.

    >>> import benchwright as bw
    >>> [(line.protocol, line.label) for line in lines(bw.results("out"))]
    [('iid', 'nap-finetune'), ('streaming', 'nap-finetune')]
    """
    if not results.num_rows:
        return []
    columns = [results[name].unify_dictionaries().combine_chunks() for name in SERIES]
    codes = np.stack([column.indices.to_numpy(zero_copy_only=False) for column in columns], axis=1)
    _, first, which = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    words = [column.dictionary.to_pylist() for column in columns]
    keys = {int(at): tuple(each[code] for each, code in zip(words, codes[at].tolist(), strict=True)) for at in first}
    settings = {key: flat(json.loads(key[3])) for key in keys.values()}
    labels: dict[tuple[str, ...], str] = {}
    for protocol in {key[0] for key in settings}:
        mine = {key: (key[1], values | {"model": key[2]}) for key, values in settings.items() if key[0] == protocol}
        labels |= zip(mine, line_labels([*mine.values()], always=always_shown(mine.values())), strict=True)
    found: list[Line] = []
    for at in sorted(keys):
        protocol, method, model, _ = key = keys[at]
        rows = results.take(np.flatnonzero(which.ravel() == which.ravel()[at]))
        found.append(Line(protocol, method, model, settings[key], labels[key], rows))
    for protocol in dict.fromkeys(line.protocol for line in found):
        mine = [at for at, line in enumerate(found) if line.protocol == protocol]
        for at, apart in zip(mine, unnamed([found[at].labelled for at in mine]), strict=True):
            found[at] = dataclasses.replace(found[at], apart=apart)
    return found
