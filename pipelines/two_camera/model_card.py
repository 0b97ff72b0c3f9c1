"""The card of an exported network."""

from __future__ import annotations

from ...datasets.two_camera.transforms import NUMBERS
from .baselines import LINEAR
from .dependence import few_pairs
from .model import FACTS, MEASURED, NETWORK, Model


def card(model: Model) -> str:
    """Markdown with the metadata that hubs of models read. The licence is left to the user."""
    first, second = model.direction[0], model.direction[-1]
    ranges = zip(NUMBERS, model.low, model.high, strict=True)
    return f"""---
# licence: yours to say; it depends on the pictures that were learned from
library_name: onnx
tags: [colour-constancy, white-balance, illuminant-estimation]
---

# The light in camera {first} from its colour transform to camera {second}

{_shape(model)}, {model.parameters:,} parameters. The 3 x 3 transform between the raw colours of two cameras that see one scene
tells it the colour of the light. The idea, and the networks of nine units a layer, are of A. Abdelhamed, A. Punnappurath,
M. S. Brown, *Leveraging the Availability of Two Cameras for Illuminant Estimation* (CVPR 2021).

## Data

{model.pairs:,} pairs (source {model.source}), {model.rows:,} rows with those under other lights; content digest of the dataset
`{model.dataset}`. All of them were learned from{", save those that chose when training ended" if model.validated else ""}.

## What to expect

Angular errors in degrees on pairs that estimators of the same settings had not seen, as they were trained on the other folds:
means over the folds, ± one standard deviation over seeds. What is exported has seen all pairs, so that none is left to test it
on. Other cameras, also of the same model, have other transforms.{_depends(model)}

{_table(list(model.expected), [[with_deviation(*each) for each in model.expected.values()]])}

## Input and output

`transform`, float32 (n, 9): T row by row, `colour_{second} = colour_{first} @ T` for colours as row vectors, by least squares
over the pixels that saturate in neither camera, by the rules `{model.transform.preset}` of benchwright's
`datasets/two_camera/transforms.py`. {_reading(model)}

`ratios`, float32 (n, 2): R/G and B/G of the light in the raw colours of camera {first}: divide its picture by (R/G, 1, B/G).

Where a number of T lies outside of what was learned from, the estimate is a guess:

{_table(["number of T", "least", "greatest"], [[name, f"{low:.4f}", f"{high:.4f}"] for name, low, high in ranges])}

## Cost

{model.parameters:,} parameters; {model.operations:,} multiplications, each with an addition, for an estimate; `{NETWORK}` has
{model.file_bytes:,} bytes. How long an estimate took where it was exported, and how far onnxruntime is from what was trained,
stands in `{MEASURED}`, which alone depends on the machine. T costs more than that: it is a sum over all pixels.

`benchwright estimate FOLDER FIRST SECOND --to LOOKED` reads `{FACTS}`, which says the same to programs.
"""


_NOTHING = """

**T does not depend on the light here, as far as these pairs tell: there was nothing to learn of these cameras.** Where the
errors are small all the same, it is by traces that noise and clipping leave in T, which other exposures do not have. So it is
with two cameras of one sensor, and where the sensitivities of one are mixtures of the other's."""


def _depends(model: Model) -> str:
    return _NOTHING + few_pairs(model.pairs) if model.depends is False else ""


def _shape(model: Model) -> str:
    if model.network == LINEAR:
        return "Linear regression, nine numbers and a constant to two"
    return f"A network {model.shape}" if model.networks == 1 else f"The average of {model.networks} networks {model.shape}"


def with_deviation(mean: float, deviation: float) -> str:
    """As text, in degrees; without the deviation where it is 0: of one seed, or of an average."""
    return f"{mean:.2f} ± {deviation:.2f}" if deviation else f"{mean:.2f}"


def _table(columns: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (columns, ["---"] * len(columns), *rows))


def _reading(model: Model) -> str:
    if model.reading is None:
        return (
            f"No raw pictures were learned from (source {model.source}), so that nothing here says how they become T: "
            "`benchwright estimate` is told by `--factor` and `--demosaic`."
        )
    return (
        "Pictures are linear raw R, G, B, black taken off, brought onto the first camera's grid and averaged down by "
        f"{model.reading.factor} raw pixels."
    )
