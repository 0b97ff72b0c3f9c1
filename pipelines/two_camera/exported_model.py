"""Description of an exported network, next to its ONNX file; it is validated on reading, since it may come from anyone."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from ...curation.stages.alignment import LEAST_AGREEMENT
from ...curation.stages.raw import Demosaic
from ...eval.protocols.cross_validation import Direction
from ...training.two_camera.onnx_run import OnnxNetwork
from ..settings_type import settings_type
from .config import Transform

FACTS, NETWORK, CARD, MEASURED = "model.json", "model.onnx", "README.md", "measured_here.json"

Nine = Annotated[list[float], Field(min_length=9, max_length=9)]


@settings_type
class Reading:
    """How T is computed from pictures, as for the training pictures.

    Attributes:
        factor: raw pixels of the first camera per pixel along each side.
        demosaic: see ``curation.stages.raw``.
        saturated: values at or above this share of full scale count as saturated.
        homographies: device -> homography from second to first camera (9,); empty if the pictures were on the same grid.
        least_agreement: minimum agreement of two pictures of the same scene; see ``curation.stages.alignment.agreement``.
    """

    factor: Annotated[int, Field(ge=1)]
    demosaic: Demosaic
    saturated: Annotated[float, Field(gt=0, le=1)]
    homographies: dict[str, Nine]
    least_agreement: Annotated[float, Field(ge=-1, le=1)] = LEAST_AGREEMENT


@settings_type
class Model:
    """A network of a run, and the input that it expects.

    Attributes:
        benchmark: ``two_camera``.
        network: name in the settings; ``shape`` its layers; ``networks`` how many of them are averaged.
        direction: ``1to2``: the light in the first camera, from T to the second; ``2to1``: the reverse.
        transform: how T is fitted.
        reading: how raw pictures are read; None if it was trained on transforms, spectra or linear pictures.
        low, high: minimum and maximum of each number of T in the training data.
        pairs, rows: numbers of measured pairs, and of rows including re-illuminated ones, in the training data.
        source, dataset: kind of source, and content digest of the dataset.
        validated: whether some pairs were used for choosing the weights.
        expected: statistic -> mean over the folds, in degrees, of networks on pairs that they had not seen, and its deviation.
        depends: whether T depends on the light in the training data; None if this cannot be determined.
        parameters, operations: numbers for one estimate; ``file_bytes`` and ``sha256`` are those of the ONNX file.
    """

    benchmark: Literal["two_camera"]
    network: str
    shape: str
    networks: int
    direction: Direction
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
    """The content of ``FACTS``."""
    return TypeAdapter(Model).dump_json(model, indent=1) + b"\n"


def load_model(folder: str) -> tuple[Model, OnnxNetwork]:
    """Load the files that `benchwright export` wrote into a folder.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is not as it was written.
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
