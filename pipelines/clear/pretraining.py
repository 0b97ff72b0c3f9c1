"""Pre-training on the unlabelled images of a run, as a training: the step that learns, and its metrics."""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...curation.artifact import load_artifact
from ...curation.flow import Step, step
from ...curation.keys import how, work_folder
from ...curation.rows import Blob, Sifted, schema_of
from ...curation.store import Store
from ...curation.verify import UNLABELLED
from ...datasets.reader.index import DatasetIndex
from ...eval.results import Value, measured
from ...training.moco.settings import moco_presets, moco_settings
from ...training.models.resnet import RESNETS
from ..errors import WrongUse, unknown
from ..experiments import LOGGER, Leaves, Training, rejected_training, training_text
from ..training_results import dataset_digest
from .config import ClearConfig
from .unlabelled import CHOSEN, PRETRAIN, SHARDS

if TYPE_CHECKING:
    from ...curation.stage_rows import Rows


@dataclass(frozen=True)
class Pretrained:
    """Result of a pre-training.

    Attributes:
        checkpoint: the encoder in the format of the released ones, see ``Pretraining.released``.
        losses, accuracies: one value per epoch.
    """

    key: str
    checkpoint: Blob
    losses: list[float]
    accuracies: list[float]


def pretrainings(config: ClearConfig, out: str, methods: Sequence[str]) -> list[Training]:
    """The pre-trainings of a run, one per named preset; by default that of the settings.

    Raises:
        WrongUse: an unknown preset, a run without unlabelled shards, or with fewer images than a batch.
    """
    p = config.pretraining
    folder = posixpath.join(out, UNLABELLED)
    if not config.unlabelled.buckets or not Store(folder).exists("dataset.json"):
        raise WrongUse(
            f"{out} has no unlabelled images to train on: name their buckets with --set unlabelled.buckets=[0] of "
            "`benchwright run`, and run again"
        )
    chosen, shards = (load_artifact(Store(out), name) for name in (CHOSEN, SHARDS))
    asked = chosen is not None and chosen.recipe["settings"].get("buckets") == config.unlabelled.buckets
    if not asked or shards is None or shards.digest != dataset_digest(out, UNLABELLED):
        raise WrongUse(f"{out}: {UNLABELLED}/ does not match the settings of the run: run again")
    images = len(DatasetIndex.open(folder))
    if strange := [name for name in methods if name not in moco_presets()]:
        raise unknown("method of pre-training", strange[0], moco_presets())
    found: list[Training] = []
    for name in methods or [p.preset]:
        try:
            settings = moco_settings(name, p.settings)
        except ValueError as error:
            raise WrongUse(f"pretraining.settings: {error}") from None
        if images < settings.batch_size:
            raise WrongUse(
                f"{folder} has {images} images, and pretraining.settings.batch_size = {settings.batch_size} needs as many: "
                "lower it (and queue), or name more buckets in unlabelled.buckets"
            )
        found.append(_pretraining(config, folder, name, settings.backbone, dataclasses.asdict(settings)))
    return found


def _pretraining(config: ClearConfig, folder: str, name: str, backbone: str, settings: Mapping[str, Any]) -> Training:
    p = config.pretraining
    learn = step(
        learn_moco,
        training={},
        digest="",
        dataset=how(folder),
        device=how(config.encoder_run.device),
        workers=how(p.workers),
        checkpoint_s=how(60 * p.checkpoint_minutes),
        folder=work_folder(),
    )
    buckets = config.unlabelled.buckets
    label = "moco_" + ("all" if buckets == "all" else "b" + "_".join(map(str, buckets)))
    lines = ["weights in {path}"]
    if backbone in RESNETS:  # feature sets accept only these by name
        lines += [
            "to compute features with them, add this to the settings and run again:",
            f"[features.{label}]",
            'weights = "{path}"',
        ]
        lines += [] if backbone == "resnet50" else [f'encoder = {{{{ kind = "network", model = "{backbone}" }}}}']
    return Training(
        PRETRAIN,
        name,
        backbone,
        {key: value for key, value in settings.items() if key != "backbone"},
        p.seed,
        learn,
        Pretrained,
        {"moco": Step(measure_pretraining, {})},
        change="pretraining.settings.learning_rate",
        data=UNLABELLED,
        leaves=Leaves("checkpoint", "pretrained/{name}.pth.tar", "\n".join(lines)),
    )


def learn_moco(
    *,
    training: Mapping[str, Any],
    digest: str,
    dataset: str,
    device: str,
    workers: int,
    checkpoint_s: float,
    folder: str,
) -> Iterator[Pretrained | Sifted]:
    """Source step: learn from the shards of ``dataset``, whose content digest is ``digest``, and yield the encoder.

    Args:
        training: facts, see ``experiments.Training``; its model is the backbone, its settings are those of ``MocoSettings``.
        digest: only part of the key.
        dataset: folder of the shards.
        device: see ``training.core.devices.device_of``.
        workers: threads that load pictures ahead.
        checkpoint_s: seconds between two checkpoints.
        folder: folder for checkpoints.
    """
    from ...curation.checkpoint import Checkpoint
    from ...training.core.devices import device_of
    from ...training.data.pictures import shard_pictures
    from ...training.moco.pretrain import Pretraining, PretrainingPictures

    index, seed = DatasetIndex.open(dataset), training["seed"]
    keys = index.table["key"].to_pylist()
    settings = moco_settings(training["method"], {**training["settings"], "backbone": training["model"]})
    pretraining = Pretraining(settings, seed=seed, device=device_of(device), workers=workers)
    pictures = PretrainingPictures(shard_pictures(index), keys, lambda epoch: index.order(seed=seed, epoch=epoch))
    try:
        pretraining.learn(
            pictures,
            Checkpoint(Path(folder)),
            checkpoint_s=checkpoint_s,
            tell=lambda line: LOGGER.info("%s: %s", training_text(training), line),
        )
    except ArithmeticError as error:
        yield rejected_training(schema_of(Pretrained), error)
        return
    at = pretraining.progress
    yield Pretrained("checkpoint", Blob(pretraining.released()), at.losses, at.accuracies)


def measure_pretraining(*, predictions: Rows) -> Iterator[Value]:
    """Loss and accuracy of the instance task for each epoch; the last accuracy is also the value of the whole training."""
    for row in predictions.table(["losses", "accuracies"]).to_pylist():
        for epoch, (loss, accuracy) in enumerate(zip(row["losses"], row["accuracies"], strict=True), 1):
            yield measured("contrastive_loss", loss, position=epoch)
            yield measured("instance_accuracy", accuracy, position=epoch)
        yield measured("instance_accuracy", row["accuracies"][-1])
