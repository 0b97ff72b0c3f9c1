"""Baselines for any benchmark whose shards hold an array per sample: streams of tasks or domains, from columns of its index."""

from __future__ import annotations

import dataclasses
import functools
import posixpath
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..curation.flow import Step
from ..curation.verify import DATASET
from ..datasets.reader.features import read_features
from ..datasets.reader.index import DatasetIndex
from ..eval.protocols.class_incremental import class_stream, measure_classes
from ..eval.protocols.domain_incremental import iid_stream, measure_domains
from ..eval.protocols.stream_loop import Stream
from .config import with_changes
from .errors import WrongUse, did_you_mean

if TYPE_CHECKING:
    from .experiments import Training
    from .stream_trainings import Prepared

SHOWN = {"Acc": "acc_unweighted", "BWF": "bwf_unweighted", "in-domain": "in_domain", "bwt": "bwt", "fwt": "fwt"}
"""Metrics that ``eval`` prints for such trainings, for ``Benchmark.shown``: those of tasks and of domains."""

SETTINGS: Mapping[str, Any] = {
    "model": {},
    "criterion": "cross_entropy",
    "memory": {"size": 200},
    "schedule": {
        "optimiser": "sgd",
        "learning_rate": 0.1,
        "momentum": 0.9,
        "weight_decay": 0.0,
        "epochs": 20,
        "batch_size": 32,
        "drop_last": False,
        "clip_norm": None,
        "mixed_precision": False,
        "select": "none",
        "eval_every": 1,
        "first_best": "nothing",
    },
}
"""Default settings of these trainings, see ``training.core.build.parts_of``; not taken from a paper."""


def stream_trainings(
    out: str,
    methods: Sequence[str],
    protocols: Sequence[str] = (),
    *,
    label: str,
    features: str,
    task: str | None = None,
    domain: str | None = None,
    role: str = "role",
    baselines: Sequence[str] = ("finetune", "er", "cumulative"),
    model: str = "mlp",
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    method_settings: Mapping[str, Mapping[str, Any]] | None = None,
    seeds: Sequence[int] = (0,),
    metrics: Sequence[str] = (),
    device: str = "cpu",
) -> list[Training]:
    """Trainings on a run's dataset, one per method and seed, for ``Benchmark.trainings``.

    ``trainings=lambda config, *asked: stream_trainings(*asked, task="season", label="species", features="sound.npy")``

    Args:
        out: the run.
        methods: methods named on the command line; if empty, ``baselines``.
        protocols: protocols named on the command line; the only one is ``tasks`` or ``domains``.
        label: text column of the index: the class.
        features: extension of the member of a sample to learn from: an .npy of the same shape in all samples.
        task, domain: exactly one of them: the column of whole numbers that divides the stream, in ascending order. Each task
            brings new classes; domains share all classes.
        role: text column: rows with ``train`` are learned, rows with ``test`` are tested. With tasks, other rows are left out.
        baselines: names of methods.
        model: name of the model.
        settings: changes to ``SETTINGS``, table by table. ``model`` holds the keyword arguments of the model.
        method_settings: name of a method -> its keyword arguments.
        seeds: one training each.
        metrics: names of further metrics.
        device: see ``training.core.devices.device_of``.

    Raises:
        WrongUse: an unknown method, protocol or column, settings that do not fit, or a task or domain without samples to
            learn or to test.

    >>> columns = {"domain": "bucket", "label": "class_name", "role": "iid_seed0", "features": "embedding.npy"}
    >>> [each.method for each in stream_trainings("out", [], **columns, seeds=[0, 1])]
    ['finetune', 'finetune', 'er', 'er', 'cumulative', 'cumulative']
    >>> stream_trainings("out", [], **{**columns, "label": "class"})
    Traceback (most recent call last):
        ...
    benchwright.pipelines.errors.WrongUse: out/dataset has no column 'class' for label: there are ...
    """
    from ..training.methods.registry import METHODS
    from .metrics import with_metrics
    from .names import reference_of, settings_for
    from .stream_trainings import Runs, trainings_of

    protocol, columns = _columns(task, domain, protocols)
    columns |= {"label": label, "role": role, "features": features}
    dataset = posixpath.join(out, DATASET)
    samples = _check(dataset, columns)
    measures = {"tasks": Step(measure_classes, {})} if task else {"domains": Step(measure_domains, {"protocol": "iid"})}
    own = method_settings or {}
    changed, model_place = _changed(settings or {}, model)
    return trainings_of(
        (
            {
                "method": (name, reference_of(METHODS, name, METHODS.builtin)),
                "settings": {**changed, "method": dict(settings_for(name, own, {}, METHODS.present)), "columns": columns},
            }
            for name in dict.fromkeys(map(METHODS.present, [*methods] or baselines))
        ),
        seeds,
        protocol=protocol,
        model=(model, model_place),
        prepare=f"{__name__}:prepare",
        measures=with_metrics(measures, metrics),
        runs=Runs(dataset, device=device),
        samples=samples,
        labels="one",
        classes="new" if task else "same",
        change="settings.schedule.learning_rate",
    )


def _changed(settings: Mapping[str, Mapping[str, Any]], model: str) -> tuple[dict[str, Any], str]:
    """The settings with these changes, and the reference of the model."""
    from ..training.models.registry import MODELS

    given = dict(settings)
    try:
        return with_changes({**SETTINGS, "model": dict(given.pop("model", {}))}, given), MODELS.find(model).reference
    except ValueError as error:
        raise WrongUse(str(error).removeprefix("evaluation.")) from None


def _columns(task: str | None, domain: str | None, protocols: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The protocol, and by its name the column that divides the stream."""
    divides = task or domain
    if divides is None or (task and domain):
        raise WrongUse("a stream is divided by a task column or a domain column: give exactly one")
    protocol = "domains" if task is None else "tasks"
    if unknown := [name for name in protocols if name != protocol]:
        raise WrongUse(f"no protocol {unknown[0]!r}: there is {protocol}{did_you_mean(unknown[0], [protocol])}")
    return protocol, {protocol: divides}


def prepare(dataset: str, digest: str, training: Mapping[str, Any]) -> Prepared:
    """The stream of a training, made from ``columns`` in its settings.

    >>> columns = {"domains": "bucket", "label": "class_name", "role": "iid_seed0", "features": "embedding.npy"}
    >>> stream = prepare("out/dataset", "its digest", {"settings": {"columns": columns}}).stream
    >>> [one.name for one in stream.positions]  # the domains
    ['1', '2', '3']
    """
    from .stream_trainings import Prepared

    columns = training["settings"]["columns"]
    values, table = read(dataset, digest, columns["features"])
    return Prepared(_stream(table, columns, values))


@functools.lru_cache(maxsize=1)
def read(dataset: str, digest: str, features: str) -> tuple[NDArray[np.float32], pa.Table]:
    """A member of every sample, float32 (n, ...) in the order of the index, and the index.

    Read once in a process, for all its trainings: ``digest`` identifies the content. Both are shared; do not change them.

    >>> values, index = read("out/dataset", "its digest", "embedding.npy")
    >>> values.shape, values.dtype, index.num_rows
    ((210, 11), dtype('float32'), 210)
    """
    return read_features(DatasetIndex.open(dataset), features)


def _stream(table: pa.Table, columns: Mapping[str, str], values: NDArray[np.float32]) -> Stream:
    from ..training.data.examples import ArrayExamples

    keys, labels, roles = (table[name].to_pylist() for name in ("key", columns["label"], columns["role"]))
    number = table[columns.get("tasks") or columns["domains"]].to_numpy()
    first = number if "tasks" in columns else np.zeros(len(number), dtype=np.int64)
    names = list(dict.fromkeys(name for _, name in sorted(zip(first.tolist(), labels, strict=True))))
    index = {name: place for place, name in enumerate(names)}
    classes = np.asarray([index[name] for name in labels], dtype=np.int64)

    def samples(rows: NDArray[np.int64]) -> ArrayExamples:
        return ArrayExamples(values[rows], classes[rows], [keys[row] for row in rows.tolist()])

    if "domains" in columns:
        return iid_stream(number, roles, samples, names)
    return class_stream(number, roles, classes, labels, samples, roles=("train", None, "test"))


def _check(dataset: str, columns: Mapping[str, str]) -> Any:
    """The kind of the samples, going by the first one. Raises ``WrongUse`` if columns are missing, or do not make a stream."""
    index = DatasetIndex.open(dataset)
    table = index.table
    known = [name for name in table.column_names if name not in ("shard", "offset", "size")]
    for what, name in columns.items():
        if what == "features":
            continue
        if name not in known:
            message = f"{dataset} has no column {name!r} for {what}: there are {', '.join(known)}"
            raise WrongUse(message + did_you_mean(name, known))
        numbers, kind = what in ("tasks", "domains"), table.schema.field(name).type
        if table[name].null_count or not (pa.types.is_integer(kind) if numbers else pa.types.is_string(kind)):
            wanted = "whole numbers" if numbers else "text"
            message = f"column {name!r} for {what} has {kind} and {table[name].null_count} nulls"
            raise WrongUse(f"{dataset}: {message}: expected {wanted} without nulls")
    if not columns["features"].endswith("npy"):
        raise WrongUse(f"features = {columns['features']!r}: expected the extension of arrays, such as 'embedding.npy'")
    try:
        _stream(table, columns, np.zeros((table.num_rows, 1), dtype=np.float32))
        first = dataclasses.replace(index, table=table.slice(0, 1), positions=index.positions[:1])
        axes = read_features(first, columns["features"])[0].ndim - 1
    except ValueError as error:
        raise WrongUse(f"{dataset}: {error}") from None
    return {1: "vectors", 2: "signals", 3: "images", 4: "clips"}.get(axes, f"arrays of {axes} axes")
