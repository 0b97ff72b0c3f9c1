"""What a folder of `benchwright export` says of its network, besides the ONNX file: read and checked, as it may be anyone's."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from ...curation.stages.alignment import LEAST_AGREEMENT
from ...curation.stages.raw import Demosaic
from ...training.two_camera.onnx_run import OnnxNetwork
from .config import Transform

FACTS, NETWORK, CARD, MEASURED = "model.json", "model.onnx", "README.md", "measured_here.json"

_STRICT = ConfigDict(extra="forbid")
Nine = Annotated[list[float], Field(min_length=9, max_length=9)]


@dataclass(frozen=True, config=_STRICT)
class Reading:
    """How pictures become T, as the pictures did that were learned from.

    Attributes:
        factor: raw pixels of the first camera along the side of a pixel.
        demosaic: see ``curation.stages.raw``.
        saturated: share of full scale from which a value counts as saturated.
        homographies: device -> second to first camera (9,); none if the pictures came on one grid.
        least_agreement: of two pictures that show one scene; see ``curation.stages.alignment.agreement``.
    """

    factor: Annotated[int, Field(ge=1)]
    demosaic: Demosaic
    saturated: Annotated[float, Field(gt=0, le=1)]
    homographies: dict[str, Nine]
    least_agreement: Annotated[float, Field(ge=-1, le=1)] = LEAST_AGREEMENT


@dataclass(frozen=True, config=_STRICT)
class Model:
    """A network of a run, and what it expects.

    Attributes:
        benchmark: ``two_camera``.
        network: its name in the settings; ``shape`` its layers; ``networks`` how many of them are averaged.
        direction: ``1to2``: the light in the first camera, from T to the second.
        transform: how T is fitted.
        reading: how raw pictures are read; None if none were learned from, but transforms, spectra or linear pictures.
        low, high: least and greatest of each number of T among what was learned from.
        pairs, rows: measured pairs, and rows with re-illuminated ones, that were learned from.
        source, dataset: what they were, and their content digest.
        validated: whether a part of the pairs chose the weights.
        expected: statistic -> mean over the folds in degrees of networks that had not seen the pairs, and its deviation.
        depends: whether T depends on the light in what was learned from; None if that cannot be told.
        parameters, operations: of one estimate; ``file_bytes`` of the ONNX file, and ``sha256``.
    """

    benchmark: Literal["two_camera"]
    network: str
    shape: str
    networks: int
    direction: Literal["1to2", "2to1"]
    transform: Transform
    reading: Reading | None
    low: Nine
    high: Nine
    pairs: int
    rows: int
    source: str
    dataset: str
    validated: bool
    expected: dict[str, list[float]]
    depends: bool | None
    parameters: int
    operations: int
    file_bytes: int
    sha256: str


def json_of(model: Model) -> bytes:
    """For ``FACTS``."""
    return TypeAdapter(Model).dump_json(model, indent=1) + b"\n"


def load_model(folder: str) -> tuple[Model, OnnxNetwork]:
    """What `benchwright export` wrote into a folder.

    Raises:
        FileNotFoundError: a file is not there.
        ValueError: one is not what was written.
    """
    path = Path(folder) / FACTS
    if not path.is_file():
        raise FileNotFoundError(f"{path} not found: expected a folder written by `benchwright export`")
    try:
        found = TypeAdapter(Model).validate_json(path.read_bytes())
    except ValidationError as error:
        first: Any = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{path}: {place or 'the file'}: {first['msg']}: export the model again") from None
    data = (Path(folder) / NETWORK).read_bytes()
    if hashlib.sha256(data).hexdigest() != found.sha256:
        raise ValueError(f"{Path(folder) / NETWORK} is not the file described by {FACTS}: export the model again")
    return found, OnnxNetwork(data)
