"""The commands ``export``, ``estimate`` and ``probe``."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import typer

from . import exits
from .options import AsJson, Out, Pipeline, Quiet, TrustCode, trust


def export(
    out: Out,
    folder: Annotated[str, typer.Option("--to", metavar="FOLDER", help="New or empty local folder.")],
    network: Annotated[
        str | None,
        typer.Option(
            "--network", metavar="NAME", help="The network to export, if the settings define several; or linear_regression."
        ),
    ] = None,
    direction: Annotated[
        Literal["1to2", "2to1"] | None, typer.Option("--direction", help="Required if the settings define both directions.")
    ] = None,
    average: Annotated[bool, typer.Option("--average", help="Export the average of all seeds instead of the first.")] = False,
    pipeline: Pipeline = None,
    trust_code: TrustCode = False,
    quiet: Quiet = False,
) -> None:
    """Train on all data, and write the model as an ONNX file.

    For two_camera. The folds trained by `train` give the expected error; the exported network is trained on all pairs. Also
    writes a card, and measurements on this machine: deviation of onnxruntime from the trained network, and latency.

    \b
    Examples:
      benchwright export out --to light
      benchwright export out --to light --network network-470 --average
    """
    from .. import api
    from .text import line_teller

    trust(out, trust_code)
    tell = line_teller(quiet=quiet)
    print(api.export(out, folder, network=network, direction=direction, average=average, pipeline=pipeline, progress=tell))


def estimate(
    context: typer.Context,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Folder written by `benchwright export`.")],
    first: Annotated[str, typer.Argument(metavar="FIRST", help="Raw file or linear 16-bit PNG of the first camera.")],
    second: Annotated[str, typer.Argument(metavar="SECOND", help="The same scene from the second camera.")],
    folder: Annotated[str, typer.Option("--to", metavar="FOLDER", help="Folder for the pictures and the page.")],
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="NAME", help="Device whose homography is used, if the training data had several."),
    ] = None,
    align: Annotated[
        Literal["training", "pair", "none"] | None,
        typer.Option(help="Use the training's homography, one computed from this pair, or none (same pixel grid)."),
    ] = None,
    least_agreement: Annotated[
        float | None,
        typer.Option(
            "--least-agreement",
            metavar="SHARE",
            min=-1,
            max=1,
            help="Minimum agreement for two pictures to count as the same scene; -1 accepts any pair.",
        ),
    ] = None,
    factor: Annotated[
        int | None,
        typer.Option(metavar="PIXELS", min=1, help="Raw pixels per side to average, if the training data had no raw pictures."),
    ] = None,
    demosaic: Annotated[
        Literal["bin2", "bilinear", "ahd", "vng", "ppg", "dcb", "dht"] | None,
        typer.Option(help="Demosaicing, if the training data had no raw pictures."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Estimate the light in a pair of pictures, and correct them.

    No chart is needed. Writes the first camera's picture before and after correction, a page with both, and the numbers. Prints
    the light and the page's path.

    \b
    Examples:
      benchwright estimate light main/0013.dng wide/0013.dng --to looked
      benchwright estimate light main.png wide.png --align none --to looked --json
    """
    from .. import api

    how: dict[str, Any] = {"device": device, "align": align, "least_agreement": least_agreement}
    with exits.libraries_silenced(debug=context.find_root().params["debug"]):
        found = api.estimate(model, first, second, folder, factor=factor, demosaic=demosaic, **how)
    if as_json:
        print(json.dumps(vars(found), indent=1))
        return
    if found.doubt:
        exits.say(found.doubt)
    light = " ".join(f"{value:.4f}" for value in found.light)
    print(f"light in camera {found.camera}, R G B: {light}; expected error {found.expected_deg:.2f} degrees\n{found.page}")


def probe(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model of open_clip, such as ViT-B-32.")],
    weights: Annotated[str, typer.Option("--weights", metavar="TAG", help="Pretrained weights; default: random.")] = "",
    checkpoint: Annotated[str, typer.Option("--checkpoint", metavar="FILE", help="File of weights; default: random.")] = "",
    device: Annotated[str, typer.Option("--device", metavar="NAME", help="cpu, cuda or cuda:N.")] = "cpu",
    images: Annotated[int, typer.Option("--images", metavar="N", min=1, help="Number of pictures.")] = 64,
    as_json: AsJson = False,
) -> None:
    """Measure which settings of a CLIP encode fastest on this machine.

    Backends and precisions, on one thread, as each worker encodes: from drawn JPEG files of 500 x 375 pixels to vectors; takes
    some minutes. The last line has the fastest as settings.

    \b
    Examples:
      benchwright probe ViT-B-32
      benchwright probe RN50 --weights openai --images 128
      benchwright probe ViT-B-32 --device cuda
    """
    import dataclasses

    from .. import api
    from ..errors import WrongUse
    from .text import encoder_speed_line

    found: list[Any] = []
    try:
        for speed in api.encoder_speeds(model, weights=weights, checkpoint=checkpoint, device=device, images=images):
            found.append(speed)
            if not as_json:
                print(encoder_speed_line(speed), flush=True)
    except ValueError as error:
        raise WrongUse(str(error)) from None
    best = max(found, key=lambda each: each.images_per_s or 0)
    if as_json:
        print(json.dumps([dataclasses.asdict(each) for each in found], indent=1))
    else:
        print(f'fastest: encoder.backend = "{best.backend}", encoder.precision = "{best.precision}"')
