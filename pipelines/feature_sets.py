"""Feature sets of any benchmark with images: their settings, their stages, and their published files.

A plan adds them with ``with_features``, and a card publishes them with ``write_features``; ``datasets.reader.features`` opens
the published files. Each set is a separate stage: adding one runs only that stage, and none of them changes the shards.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
from pydantic import AfterValidator, Field

from ..curation.encoders.spec import EncoderSpec
from ..curation.flow import Flow, join, rows_of, source, step
from ..curation.keys import how, named
from ..curation.run import Run
from ..curation.stage_rows import Rows
from ..curation.stages.embed import Pictured
from ..curation.store import Store
from ..datasets.features.feature_sets import extract_images, extract_images_half, pictures_of
from ..datasets.features.networks import Network
from ..datasets.reader.features import FEATURES, feature_file
from .config import ConfigError, Location
from .encoders import ENCODERS
from .errors import did_you_mean
from .names import ByKind, short
from .settings_type import settings_type
from .user_code import OwnEncoder, encoder_of, weights_of

EMBEDDING = "embedding"
"""Used in place of the name of a feature set: the vectors by which images were retrieved, which are in the shards."""

PIXELS = "pixels"
"""Used in place of the name of a feature set: the pictures themselves."""

_PICTURES = "pictures"
_NETWORK = "benchwright.datasets.features.networks:network"
_LONGEST_NAME = 60
_ROWS_AT_A_TIME = 1024


@settings_type
class FeatureSet:
    """A feature set: vectors of all images of the dataset.

    Attributes:
        weights: file or URL of the weights, for a ``network`` and other encoders that take a checkpoint.
        encoder: encoder that computes the vectors; by default CLEAR's ResNet-50 without its last layer.
        stored: precision of the published vectors.
    """

    weights: Location = ""
    encoder: Annotated[Network | EncoderSpec | OwnEncoder, ByKind(ENCODERS)] = Field(default_factory=Network)
    stored: Literal["float32", "float16"] = "float32"

    def __post_init__(self) -> None:
        if isinstance(self.encoder, Network) and not self.weights:
            raise ValueError(f"weights = '': the network {self.encoder.model} needs a file of weights: give its path or URL")


C = TypeVar("C", bound=Collection[str])


def checked_names(names: C) -> C:
    """Check names, or a table by name, of feature sets. Raises ``ValueError`` if a name is invalid."""
    for name in names:
        if not feature_file(name) or len(name) > _LONGEST_NAME:
            raise ValueError(
                f"the name {name!r:.80}: it should be small letters, digits and _, begin with a letter, and have at most "
                f"{_LONGEST_NAME} characters"
            )
        if name in (EMBEDDING, PIXELS):
            raise ValueError(f"the name {name!r} is reserved for the vectors in the shards: choose another")
    if len({*names}) < len(names):
        raise ValueError(f"{', '.join(names)}: one appears twice")
    return names


FeatureSets = Annotated[dict[str, FeatureSet], AfterValidator(checked_names)]
"""Settings: name -> feature set."""


def check_learned(setting: str, name: str, sets: Iterable[str]) -> None:
    """Raise ``ConfigError`` if a setting names neither a feature set nor the embedding or the pixels."""
    known = [EMBEDDING, *sets, PIXELS]
    if name not in known:
        raise ConfigError(
            f"{setting} = {name!r}: there are {', '.join(known)}{did_you_mean(name, known)}; another feature set is a table "
            "[features.NAME] of the settings"
        )


def with_features(
    flow: Flow, sets: Mapping[str, FeatureSet], *, of: str, device: str = "cpu", rows_per_part: int = 256
) -> Flow:
    """The plan with a stage for each feature set; its last stage stays the last.

    Args:
        flow: the plan.
        sets: the feature sets.
        of: stage of the dataset's rows, with the columns ``key`` and ``image``.
        device: torch device.
        rows_per_part: images per part.
    """
    pictures = source(_PICTURES, step(pictures_of, rows=rows_of(of)), gives=Pictured, may_be_empty=True)
    branches: list[Flow] = []
    for name, each in sets.items():
        encoder, weights = _encoder_of(name, each)
        extract = extract_images if each.stored == "float32" else extract_images_half
        made = step(extract, encoder=encoder, checkpoint=weights, device=how(device))
        branches.append(pictures.each_batch(stage_of(name), made, rows_per_part=rows_per_part))
    return join(flow, *branches).after(flow.last)


def stage_of(name: str) -> str:
    """Name of the stage of a feature set."""
    return f"{FEATURES}_{name}"


def _encoder_of(name: str, each: FeatureSet) -> tuple[Any, str]:
    """The arguments ``encoder`` and ``checkpoint`` of ``extract_images``."""
    if isinstance(each.encoder, Network):
        settings = dataclasses.asdict(each.encoder)
        del settings["kind"]
        encoder = named(_NETWORK, **settings)
    else:
        encoder = encoder_of(each.encoder, at=f"features.{name}.encoder")
    return encoder, weights_of(each.encoder, f"features.{name}.weights", each.weights)


# --------------------------------------------------------------------------------------------------------- what is published


def made_by(sets: Mapping[str, FeatureSet]) -> dict[str, dict[str, Any]]:
    """Origin of each feature set for ``dataset.json``."""
    kinds = {name: {"kind": short(each.encoder.kind)} for name, each in sets.items()}
    return {name: {"encoder": dataclasses.asdict(each.encoder) | kinds[name]} for name, each in sets.items()}


def write_features(
    run: Run, origins: Mapping[str, Mapping[str, Any]], into: str
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """Write the feature sets of a finished run next to its shards, row for row with the index; correct files are kept.

    Args:
        run: the run, whose last stage makes the shards.
        origins: for each feature set, the description of its origin for ``dataset.json``.
        into: folder of the dataset.

    Returns:
        Files of the folder with size and SHA-256; and the entry of each set in ``dataset.json``, by name.
    """
    target, files, described = Store(into), dict[str, dict[str, Any]](), dict[str, dict[str, Any]]()
    keys = run.rows().table(["key"])
    for name, origin in origins.items():
        artifact = next(made for made in run.artifacts if made.stage == stage_of(name))
        rows = artifact.rows_view(run.store)
        places = _places(keys, rows)
        first = rows.gather("feature", places[:1])
        shape, dtype = [len(places), *first.shape[1:]], first.dtype
        file = feature_file(name)
        files[file] = _written(target, file, functools.partial(_npy, rows, places, shape, dtype))
        checkpoint = artifact.recipe["settings"].get("checkpoint")
        described[name] = {
            "file": file,
            "dtype": str(dtype),
            "shape": shape,
            **origin,
            "checkpoint": checkpoint["content"] if isinstance(checkpoint, dict) else None,
            "digest": artifact.digest,
        }
    return files, described


def _places(keys: pa.Table, rows: Rows) -> np.ndarray:
    """The row of each key."""
    import polars as pl  # takes an eighth of a second, for every command of a benchmark that has feature sets

    have = pl.DataFrame(rows.table(["key"])).with_row_index("at")
    return pl.DataFrame(keys).join(have, on="key", how="left", maintain_order="left")["at"].to_numpy().astype(np.int64)


def _npy(rows: Rows, places: np.ndarray, shape: list[int], dtype: np.dtype[Any]) -> Iterator[bytes]:
    """The bytes of the file, in chunks."""
    little = dtype.newbyteorder("<")
    yield _npy_head(shape, little)
    for start in range(0, len(places), _ROWS_AT_A_TIME):
        yield rows.gather("feature", places[start : start + _ROWS_AT_A_TIME]).astype(little, copy=False).tobytes()


def _npy_head(shape: list[int], dtype: np.dtype[Any]) -> bytes:
    """The header of an .npy 1.0 file in C order."""
    head = io.BytesIO()
    about = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": tuple(shape)}
    np.lib.format.write_array_header_1_0(head, about)
    return head.getvalue()


def _written(target: Store, name: str, stretches: Callable[[], Iterator[bytes]]) -> dict[str, Any]:
    """Write a file unless it has this content already; return its size and SHA-256."""
    digest, size = hashlib.sha256(), 0
    for data in stretches():
        digest.update(data)
        size += len(data)
    facts = {"size": size, "sha256": digest.hexdigest()}
    if not target.holds(name, facts):
        with target.writing(name) as stream:
            for data in stretches():
                stream.write(data)
    return facts
