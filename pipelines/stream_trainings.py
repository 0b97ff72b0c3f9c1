"""Trainings on streams of domains or tasks, for every benchmark: the step that learns, and trainings from settings."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from ..curation.code_loading import load
from ..curation.flow import Step, step
from ..curation.keys import how, named, work_folder
from ..curation.rows import Sifted
from ..datasets.reader.index import DatasetIndex
from ..eval.protocols.predictions import LABEL_SETS, ONE_LABEL, columns
from ..eval.protocols.stream_loop import Stream, run_stream
from ..training.core.build import parts_of
from ..training.core.devices import check_compiles, device_of
from ..training.core.learner import Learner, SecondView, View
from ..training.core.ranks import check_ranks, local_device, present
from ..training.data.pictures import PictureCache, album_of, picture_view
from ..training.methods.method import Classes, LabelKind
from ..training.models.backbone import check_backbone_net
from ..training.models.picture_net import check_picture_net
from ..training.models.registry import SampleKind, check_takes
from .errors import WrongUse
from .experiments import LOGGER, Training, rejected_training, training_name, training_text
from .names import quoted, short
from .torchrun import Leading
from .tracking import Track, logging_to


@dataclass(frozen=True)
class Prepared:
    """A stream, and the views of its samples that the settings request.

    Attributes:
        stream: the stream to learn and test.
        keep: view of a sample that the memory stores.
        second: second view of a sample, for temporal consistency.
        model: arguments of the model from the dataset, besides its settings, such as a graph.
        seed: seed of the training; None: its number.

    >>> from benchwright.pipelines.column_streams import prepare
    >>> columns = {"domains": "bucket", "label": "class_name", "role": "iid_seed0", "features": "embedding.npy"}
    >>> prepared = prepare("out/dataset", "its digest", {"settings": {"columns": columns}})
    >>> [one.name for one in prepared.stream.positions], prepared.seed is None
    (['1', '2', '3'], True)
    """

    stream: Stream
    keep: View | None = None
    second: SecondView | None = None
    model: Mapping[str, Any] = field(default_factory=dict[str, Any])
    seed: int | None = None


Prepare = Callable[[str, str, Mapping[str, Any]], Prepared]
"""Folder and digest of a dataset, and the facts of a training -> its stream. Samples are read on demand."""


@functools.lru_cache(maxsize=1)
def album(dataset: str, digest: str, view: str) -> PictureCache:
    """Pictures in a view (JSON), shared by all trainings in one process; ``digest`` identifies the content."""
    return album_of(DatasetIndex.open(dataset), picture_view(json.loads(view)))


def learn_stream(
    *,
    training: Mapping[str, Any],
    digest: str,
    dataset: str,
    prepare: Prepare,
    method: Callable[..., Any],
    model: Callable[..., Any],
    classes: Classes,
    weights: str | None,
    device: str,
    workers: int,
    folder: str,
    track: Track | None = None,
) -> Iterator[pa.Table | Sifted]:
    """Source step: learn a stream and yield its predictions.

    Args:
        training: facts, see ``experiments.Training``; its settings are those of ``core.build.parts_of``, and what ``prepare``
            reads.
        digest: content digest of the dataset.
        dataset: folder of the dataset.
        prepare: see ``Prepare``.
        method, model: see ``core.build``.
        classes: what positions bring, see ``core.build.parts_of``: it cannot be inferred from a stream of one position.
        weights: file of the model's weights.
        device: see ``core.devices.device_of``.
        workers: threads that load batches ahead.
        folder: folder for checkpoints.
        track: tracker for losses during training; mark it with ``how``.

    >>> from benchwright.pipelines.column_streams import prepare, stream_trainings
    >>> from benchwright.training.methods.finetune import finetune
    >>> from benchwright.training.models.mlp import mlp
    >>> columns = {"domain": "bucket", "label": "class_name", "role": "iid_seed0", "features": "embedding.npy"}
    >>> facts = stream_trainings("out", ["finetune"], **columns, settings={"schedule": {"epochs": 1}})[0].facts()
    >>> given = {"digest": "its digest", "dataset": "out/dataset", "prepare": prepare, "method": finetune, "model": mlp}
    >>> how_to = {"classes": "same", "weights": None, "device": "cpu", "workers": 0, "folder": "checkpoints"}
    >>> tables = list(learn_stream(training=facts, **given, **how_to))
    >>> len(tables), tables[0]["key"].to_pylist()  # before the first position, and after each of three
    (4, ['0000/1/test', '0000/2/test', '0000/3/test'])
    """
    learner, stream = learner_of(
        training=training,
        digest=digest,
        dataset=dataset,
        prepare=prepare,
        method=method,
        model=model,
        classes=classes,
        weights=weights,
        device=device,
        workers=workers,
    )
    here = present()
    prefix = f"{training_text(training)}: "
    try:
        taught = learner if here is None else Leading(learner, here, training)
        with logging_to(track, training_name(digest, training), training) as learner.watch:
            yield from run_stream(taught, stream, folder=Path(folder), tell=lambda line: LOGGER.info("%s", prefix + line))
    except ArithmeticError as error:
        yield rejected_training(columns(LABEL_SETS if stream.sets else ONE_LABEL), error)


def learner_of(
    *,
    training: Mapping[str, Any],
    digest: str,
    dataset: str,
    prepare: Prepare,
    method: Callable[..., Any],
    model: Callable[..., Any],
    classes: Classes,
    weights: str | None,
    device: str,
    workers: int,
) -> tuple[Learner, Stream]:
    """A new learner, and its stream. Arguments are those of ``learn_stream``."""
    prepared = prepare(dataset, digest, training)
    stream, settings = prepared.stream, training["settings"]
    given = [*prepared.model]
    parts = parts_of(settings, method, model, labels="sets" if stream.sets else "one", classes=classes, given=given)
    learner = Learner(
        parts,
        sample=tuple(stream.positions[0].train.load([0], None).shape[1:]),  # type: ignore[attr-defined]
        seed=training["seed"] if prepared.seed is None else prepared.seed,
        given=prepared.model,
        keep=prepared.keep,
        second=prepared.second,
        weights=None if weights is None else Path(weights),
        device=local_device() if device == "cuda" and present() else device_of(device),
        workers=workers,
        ranks=present(),
    )
    return learner, stream


@dataclass(frozen=True)
class Runs:
    """How trainings of a benchmark are executed: settings that change the speed but not the result, except by other weights.

    Attributes:
        dataset: folder of the shards.
        weights: file of the model's weights, or None; its digest belongs to the settings.
        device: "cpu", "cuda" or "cuda:1".
        workers: threads that load batches ahead.

    >>> Runs("out/dataset", device="cuda:1").workers
    0
    """

    dataset: str
    weights: str | None = None
    device: str = "cpu"
    workers: int = 0


def stream_training(
    *,
    protocol: str,
    method: tuple[str, str],
    model: tuple[str, str],
    settings: Mapping[str, Any],
    seed: int,
    prepare: str,
    measures: Mapping[str, Step],
    runs: Runs,
    samples: SampleKind,
    labels: LabelKind,
    classes: Classes,
    order: int = 0,
    given: Sequence[str] = (),
    places: Mapping[str, str] = MappingProxyType({}),
    change: str,
) -> Training:
    """A training of ``learn_stream`` with checked settings.

    Args:
        protocol, seed, order, measures, change: see ``Training``.
        method, model: name and reference of each.
        settings: see ``learn_stream``.
        prepare: reference of the function that prepares the stream.
        runs: how it is executed.
        samples: kind of the samples, which the model must accept.
        labels, classes: kinds of labels and of classes in its stream, which the method must support.
        given: names in ``Prepared.model``.
        places: ``method`` and ``model`` -> the table of their settings, for errors.

    Raises:
        WrongUse: invalid settings, or a method or model that does not fit.

    >>> from benchwright.pipelines.column_streams import SETTINGS
    >>> methods, models = "benchwright.training.methods", "benchwright.training.models"
    >>> training = stream_training(
    ...     protocol="tasks",
    ...     method=("er", f"{methods}.er:er"),
    ...     model=("mlp", f"{models}.mlp:mlp"),
    ...     settings={**SETTINGS, "method": {}},
    ...     seed=0,
    ...     prepare="benchwright.pipelines.column_streams:prepare",
    ...     measures={},
    ...     runs=Runs("out/dataset"),
    ...     samples="vectors",
    ...     labels="one",
    ...     classes="new",
    ...     change="settings.schedule.learning_rate",
    ... )
    >>> training.method, training.model, training.facts()["seed"]
    ('er', 'mlp', 0)
    """
    try:
        check_takes(model[0], samples)
        check_net(model[0], settings["model"], samples)
        parts = parts_of(settings, load(method[1]), load(model[1]), labels=labels, classes=classes, given=given)
        check_ranks(parts)
        if parts.schedule.compile:
            check_compiles(runs.device)
    except (ValueError, LookupError) as error:
        raise WrongUse(_placed(str(error), method, places)) from None
    learn = step(
        learn_stream,
        training={},
        digest="",
        dataset=how(runs.dataset),
        prepare=named(prepare),
        method=named(method[1]),
        model=named(model[1]),
        classes=classes,
        weights=how(runs.weights),
        device=how(runs.device),
        workers=how(runs.workers),
        folder=work_folder(),
        track=how(None),
    )
    gives = columns(LABEL_SETS if labels == "sets" else ONE_LABEL)
    return Training(protocol, short(method[0]), short(model[0]), settings, seed, learn, gives, measures, order, None, change)


def check_net(model: str, settings: Mapping[str, Any], samples: SampleKind) -> None:
    """Raise ValueError if a built-in model has no network of that name, or none for such samples; missing or unknown settings
    are reported elsewhere.
    """
    if model == "backbone" and "name" in settings:
        check_backbone_net(settings["name"], settings.get("head", "linear"), clips=samples == "clips")
    if model == "pictures" and settings.keys() >= {"backbone", "head"}:
        check_picture_net(settings["backbone"], settings["head"], vectors=samples == "vectors")


def _placed(message: str, method: tuple[str, str], places: Mapping[str, str]) -> str:
    """An error message, prefixed with the place of the setting or the name of the method."""
    name, own = method[0], f"{method[1].rpartition(':')[2]}: "
    for part, begin in ("method", own), ("model", "model: "):
        if message.startswith(begin):
            rest = message.removeprefix(begin)
            joint = "." if part in places and re.match(r"\w+ (=|is missing)", rest) else ": "
            in_code = {"method": f"method_settings={{{name!r}: {{'NAME': ...}}}}", "model": "settings={'model': {'NAME': ...}}"}
            how = in_settings(places[part]) if part in places else f"in the call of stream_trainings: {in_code[part]}"
            left = re.match(r"(\w+) = .*: there is no such setting", rest) if part == "model" and part in places else None
            inherited = f'; if it is inherited, leave it out with unset = ["{places[part]}.{left[1]}"]' if left else ""
            return f"{places.get(part, name)}{joint}{with_remedy(rest, how)}{inherited}"
    return f"{name}: {message}"


def with_remedy(message: str, how: str) -> str:
    """An error message about settings; if one is missing, with how to give it, in which NAME is replaced by its name.

    >>> with_remedy("strength is missing: there are strength, online", in_settings("evaluation.settings.ewc"))
    'strength is missing: there are strength, online: give it with --set evaluation.settings.ewc.strength=..., or ...'
    """
    found = re.match(r"(\w+) is missing", message)
    return f"{message}: give it {how.replace('NAME', found[1])}" if found else message


def in_settings(table: str) -> str:
    """How to give a setting NAME of a table; ``--set`` is left out if the table's name has a quoted part."""
    option = "" if '"' in table else f"with --set {table}.NAME=..., or "
    return f"{option}in the file, as NAME = ... in [{table}]"


def setting_places(method: str) -> dict[str, str]:
    """``places`` of ``stream_training`` for settings under ``evaluation``."""
    return {"method": f"evaluation.method_settings.{quoted(method)}.method", "model": "evaluation.settings.model"}


def trainings_of(baselines: Iterable[Mapping[str, Any]], seeds: Iterable[int], **shared: Any) -> list[Training]:
    """A training for each baseline and seed.

    Args:
        baselines: for each the arguments of ``stream_training`` that are not shared: protocol, method, model, settings, ...;
            and ``seeds`` if it does not use the common ones.
        seeds: common seeds.
        shared: arguments that all have in common.

    >>> from benchwright.pipelines.column_streams import SETTINGS
    >>> baselines = [{"method": (name, f"benchwright.training.methods.{name}:{name}")} for name in ("finetune", "er")]
    >>> baselines[0]["seeds"] = [5]
    >>> shared = {"protocol": "tasks", "model": ("mlp", "benchwright.training.models.mlp:mlp"), "measures": {}}
    >>> shared |= {"settings": {**SETTINGS, "method": {}}, "prepare": "benchwright.pipelines.column_streams:prepare"}
    >>> shared |= {"runs": Runs("out/dataset"), "samples": "vectors", "labels": "one", "classes": "new"}
    >>> [(one.method, one.seed) for one in trainings_of(baselines, [0, 1], **shared, change="settings")]
    [('finetune', 5), ('er', 0), ('er', 1)]
    """
    usual, made = list(seeds), list[Training]()
    for baseline in baselines:
        given = {**shared, **baseline}
        own = given.pop("seeds", usual)
        made += [stream_training(**given, seed=seed) for seed in own]
    return made


@functools.lru_cache(maxsize=4)
def _sha256(path: Path, modified: int) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def weights_sha256(path: str | None) -> str | None:
    """Digest of a file of weights, for the settings of a training; None without a file.

    >>> weights_sha256("texts/one.txt")[:12], weights_sha256(None)
    ('82da1ad07463', None)
    """
    return None if path is None else _sha256(Path(path), Path(path).stat().st_mtime_ns)
