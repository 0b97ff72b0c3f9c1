"""The card of an exported network."""

from __future__ import annotations

from ...datasets.two_camera.transforms import NUMBERS
from .baselines import LINEAR
from .dependence import few_pairs
from .exported_model import FACTS, MEASURED, NETWORK, Model


def card(model: Model) -> str:
    """The card in Markdown with the metadata that model hubs read. The licence is left to the user."""
    first, second = model.direction[0], model.direction[-1]
    ranges = zip(NUMBERS, model.low, model.high, strict=True)
    return f"""---
# licence: yours to say; it depends on the pictures that were learned from
library_name: onnx
tags: [colour-constancy, white-balance, illuminant-estimation]
---

# The illuminant in camera {first} from its colour transform to camera {second}

{_shape(model)}, {model.parameters:,} parameters. It estimates the illuminant from the 3 x 3 transform between the raw colours
of two cameras that see the same scene. The idea, and the networks with nine units per layer, are from A. Abdelhamed,
A. Punnappurath, M. S. Brown, *Leveraging the Availability of Two Cameras for Illuminant Estimation* (CVPR 2021).

## Data

{model.pairs:,} pairs (source {model.source}), {model.rows:,} rows including re-illuminated ones; content digest of the dataset
`{model.dataset}`. It was trained on all of them{", except those used for early stopping" if model.validated else ""}.

## Expected errors

Angular errors in degrees of estimators with the same settings, each tested on a fold that it was not trained on: means over the
folds, ± one standard deviation over seeds. The exported model was trained on all pairs, so that none is left to test it. Other
cameras, even of the same model, have other transforms.{_depends(model)}

{_table(list(model.expected), [[with_deviation(*each) for each in model.expected.values()]])}

## Input and output

`transform`, float32 (n, 9): T row by row, `colour_{second} = colour_{first} @ T` for colours as row vectors, by least squares
over the pixels that saturate in neither camera, by the rules `{model.transform.preset}` of benchwright's
`datasets/two_camera/transforms.py`. {_reading(model)}

`ratios`, float32 (n, 2): R/G and B/G of the illuminant in the raw colours of camera {first}: divide its picture by
(R/G, 1, B/G).

If an element of T is outside the range of the training data, the estimate is unreliable:

{_table(["element of T", "min", "max"], [[name, f"{low:.4f}", f"{high:.4f}"] for name, low, high in ranges])}

## Cost

{model.parameters:,} parameters; {model.operations:,} multiplications, each with an addition, for an estimate; `{NETWORK}` has
{model.file_bytes:,} bytes. The time of an estimate on the exporting machine, and the difference between onnxruntime and the
trained model, are in `{MEASURED}`, the only file that depends on the machine. T costs more: it is a sum over all pixels.

`benchwright estimate FOLDER FIRST SECOND --to LOOKED` reads `{FACTS}`, which has the same information for programs.
"""


_NOTHING = """

**T does not depend on the illuminant here, as far as these pairs show: there was nothing to learn from these cameras.** If
errors are small nevertheless, they come from traces of noise and clipping in T, which other exposures do not have. This is the
case for cameras with the same sensor, and if the sensitivities of one are linear combinations of the other's."""


def _depends(model: Model) -> str:
    return _NOTHING + few_pairs(model.pairs) if model.depends is False else ""


def _shape(model: Model) -> str:
    if model.network == LINEAR:
        return "Linear regression, nine numbers and a constant to two"
    return f"A network {model.shape}" if model.networks == 1 else f"The average of {model.networks} networks {model.shape}"


def with_deviation(mean: float, deviation: float) -> str:
    """A mean in degrees as text; without the deviation where it is 0, as for one seed or an average."""
    return f"{mean:.2f} ± {deviation:.2f}" if deviation else f"{mean:.2f}"


def _table(columns: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (columns, ["---"] * len(columns), *rows))


def _reading(model: Model) -> str:
    if model.reading is None:
        return (
            f"It was not trained on raw pictures (source {model.source}), so their processing is not defined here: set "
            "`--factor` and `--demosaic` of `benchwright estimate`."
        )
    return (
        "Pictures are linear raw R, G, B, black taken off, brought onto the first camera's grid and averaged down by "
        f"{model.reading.factor} raw pixels."
    )
