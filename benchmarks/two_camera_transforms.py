"""How far T is off its truth, for the released fit, ours and others: dark pictures, noise, two demosaicings.

    python benchmarks/two_camera_transforms.py [--thumbnails FOLDER] [--photographs FOLDER] [--every 16] [--quick]

Drawn scenes need no file. ``--thumbnails`` is a folder of .npz files with linear raw ``pictures`` (n, 64, 64, 3), each taken as
what the first camera sees and drawn at six times its size; ``--photographs`` one of linear 16-bit PNGs, which go through
``make_phone_pairs``' two cameras and its homography (given, not estimated). All become DNGs with noise, are read, demosaiced,
aligned and averaged down by 6 as in the pipeline. T is known: one matrix makes the second camera's colours of the first's. Its
error is the norm of the difference over that of the truth, in per cent, 1to2 and 2to1 both counted. Exposure 1 has its
99.7th percentile at 0.9 of full scale. Noise is that of reading (4 of 15,359 levels), or that and shot noise of 10,000
electrons.

"spectra" are surfaces of 24 reflectances in uneven light, seen by two real cameras: no matrix is exact there, and the angle
between the first camera's light under T and the second's is told, in degrees.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import cv2
import numpy as np
from benchwright.curation.stages.alignment import align
from benchwright.curation.stages.raw import as_uint16, read_linear
from benchwright.datasets.two_camera.radiometric import scene
from benchwright.datasets.two_camera.transforms import fit

_SPEC = importlib.util.spec_from_file_location("make_phone_pairs", Path(__file__).with_name("make_phone_pairs.py"))
phone = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(phone)

FACTOR = 6
EXPOSURES = {"1": 1.0, "1/4": 0.25, "1/16": 1 / 16}
ELECTRONS = {"reading": np.inf, "reading and shot": 10_000.0}
TRUTH = np.linalg.inv(phone.CAMERA_1) @ phone.CAMERA_2
SPAN = phone.WHITE - phone.BLACK


# ------------------------------------------------------------------------------------------------------------------ fits


def brighter_than(share: float, *, of_picture: bool) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """The released fit of the pixels above a share of full scale (``transform.darkest``), or of its own 99th percentile."""

    def found(one: np.ndarray, two: np.ndarray) -> np.ndarray:
        least = np.minimum(one.sum(1), two.sum(1))
        keep = least > (share * np.percentile(least, 99) if of_picture else share)
        return fit(one[keep], two[keep], preset="as_released").matrix if keep.sum() >= 100 else np.full((3, 3), np.inf)

    return found


def by_brightness(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Weights in proportion to brightness: right if shot noise were all. Roots of ``weighted``'s."""
    total_1, total_2 = one.sum(1), two.sum(1)
    keep = (total_1 > 0) & (total_2 > 0)
    weight = (total_1[keep] ** -2 + total_2[keep] ** -2) ** -0.25
    changed = (c[keep] * (weight / t[keep])[:, None] for c, t in ((one, total_1), (two, total_2)))
    return fit(*changed, preset="as_written").matrix


def huber(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """The released fit with Huber's weights on residuals, 20 rounds."""
    keep = (one.sum(1) > 0) & (two.sum(1) > 0)
    a, b = (c[keep] / c[keep].sum(1, keepdims=True) for c in (one, two))
    root = np.ones(len(a))
    for _ in range(20):
        matrix = fit(a * root[:, None], b * root[:, None], preset="as_written").matrix
        residual = np.linalg.norm(b - a @ matrix, axis=1)
        limit = 1.345 * 1.4826 * np.median(residual)
        root = np.sqrt(np.minimum(1, limit / np.maximum(residual, 1e-12)))
    return matrix


def preset(name: str) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    return lambda one, two: fit(one, two, preset=name).matrix


FITS = {
    "as_released": preset("as_released"),
    "as_released, darkest = 0.03": brighter_than(0.03, of_picture=False),
    "above 5 % of the bright": brighter_than(0.05, of_picture=True),
    "Huber": huber,
    "weights of shot noise": by_brightness,
    "weighted": preset("weighted"),
    "as_written": preset("as_written"),
}


# -------------------------------------------------------------------------------------------------------------- pictures


def measured(
    seen: list[np.ndarray], homography: np.ndarray, method: str, electrons: float, generator: np.random.Generator
) -> list[np.ndarray]:
    """Colours of both cameras as the pipeline measures them, from what they would see without noise; 1 at full scale."""
    pictures, possible = [], np.ones(seen[0].shape[:2], dtype=np.uint8)
    for rgb in seen:
        shot = rgb + np.sqrt(np.maximum(rgb, 0) / electrons) * generator.standard_normal(rgb.shape, dtype=np.float32)
        data = phone.write_dng(phone.mosaic_of(shot, generator), black=(phone.BLACK,) * 4, white=phone.WHITE)
        pictures.append(read_linear(data, method=method)[0])
    # What no sensor can tell is no pixel of the pair, as in quasi_real.py: here the second camera's, on the first's grid.
    bad = cv2.warpPerspective(
        (seen[1].min(axis=2) < 0).astype(np.uint8), homography, possible.shape[::-1], flags=cv2.INTER_NEAREST
    )
    pictures[0].saturated[...] |= cv2.resize(bad, pictures[0].saturated.shape[::-1], interpolation=cv2.INTER_NEAREST) > 0
    found = align(*pictures, homography=homography, factor=FACTOR)
    return [as_uint16(image)[found.valid] / 65535 for image in (found.image_1, found.image_2)]


def errors(job: tuple[str, int, np.ndarray], exposure: float, electrons: float, method: str) -> dict[str, list[float]] | None:
    """Fit -> error of T in per cent, both ways; None for a picture of fewer than 100 pixels."""
    cv2.setNumThreads(1)
    kind, number, picture = job
    generator = np.random.default_rng([number, int(16 * exposure)])
    if kind == "thumbnails":
        height, width = (FACTOR * side for side in picture.shape[:2])
        large = cv2.resize(picture.astype(np.float32), (width, height), interpolation=cv2.INTER_CUBIC)
        one = np.clip(large * (0.9 * exposure / max(np.percentile(large, 99.7), 1e-6)), 0, 1)
        homography, seen = np.eye(3), [one, one @ TRUTH.astype(np.float32)]
    else:
        height, width = picture.shape[:2]
        homography, lit = phone.homography(width, height), picture * np.float32(exposure)
        moved = cv2.warpPerspective(lit, np.linalg.inv(homography), (width, height), flags=cv2.INTER_LINEAR)
        seen = [lit @ phone.CAMERA_1.astype(np.float32), moved @ phone.CAMERA_2.astype(np.float32)]
    one, two = measured(seen, homography, method, electrons, generator)
    if len(one) < 100:
        return None
    return {name: [off(way(one, two), TRUTH), off(way(two, one), np.linalg.inv(TRUTH))] for name, way in FITS.items()}


def off(matrix: np.ndarray, truth: np.ndarray) -> float:
    found = 100 * float(np.linalg.norm(matrix - truth) / np.linalg.norm(truth))
    return found if np.isfinite(found) else np.inf


def angles(number: int, exposure: float, electrons: float) -> dict[str, list[float]]:
    """Fit -> degrees between the first camera's light under T and the second's light, of one picture drawn from spectra."""
    generator = np.random.default_rng(number)
    spectra = scene(None, ("Nikon 5100 (NPL)", "Sigma SDMerill (NPL)"), None, None, ("LPS",), 10)
    light = spectra.lights[generator.integers(len(spectra.lights))]
    surfaces = spectra.reflectances[generator.choice(len(spectra.reflectances), 24, replace=False)]
    lights = [light @ camera for camera in spectra.cameras]
    shade = np.exp(generator.normal(0, 1.5, 5000))
    shown = generator.integers(24, size=5000)
    both = [((surfaces * light) @ c)[shown] * shade[:, None] / of.max() for c, of in zip(spectra.cameras, lights, strict=True)]
    scale = 0.9 * exposure / np.percentile(both[0], 99.7)
    clean = [colours * scale for colours in both]
    seen = np.maximum(clean[0], clean[1]).max(axis=1) < 0.98
    noise = [np.sqrt((phone.NOISE / SPAN) ** 2 + c[seen] / electrons) / FACTOR for c in clean]
    one, two = (as_uint16(c[seen] + n * generator.standard_normal(n.shape)) / 65535 for c, n in zip(clean, noise, strict=True))
    return {name: [_degrees(lights[0] @ way(one, two), lights[1])] for name, way in FITS.items()}


def _degrees(one: np.ndarray, two: np.ndarray) -> float:
    cosine = one @ two / np.linalg.norm(one) / np.linalg.norm(two)
    return float(np.degrees(np.arccos(np.clip(cosine, -1, 1)))) if np.isfinite(cosine) else np.inf


# ---------------------------------------------------------------------------------------------------------------- tables


def pictures(args: argparse.Namespace) -> Iterator[tuple[str, list[tuple[str, int, np.ndarray]]]]:
    size = (504, 378)
    scenes = [phone.drawn_scene(*size, np.random.default_rng([9, number])) ** 4 for number in range(2 if args.quick else 12)]
    yield "drawn", [("drawn", number, one * np.float32(0.9 / np.percentile(one, 99.7))) for number, one in enumerate(scenes)]
    if args.thumbnails:
        stock = [
            picture for path in sorted(args.thumbnails.glob("*.npz")) for picture in np.load(path)["pictures"][:: args.every]
        ]
        yield "thumbnails", [("thumbnails", number, one) for number, one in enumerate(stock[: 4 if args.quick else None])]
    if args.photographs:
        stock = list(phone.photographed_scenes(args.photographs, *((504, 378) if args.quick else (2016, 1512))))
        yield "photographs", [("photographs", number, one) for number, one in enumerate(stock[: 2 if args.quick else None])]


def show(title: str, found: list[dict[str, list[float]] | None], limit: float) -> None:
    told = [one for one in found if one is not None]
    print(f"\n{title}, {len(told)} pictures\n\n| | median | 90 % | most | above {limit:g} |\n|---|---|---|---|---|")
    for name in FITS:
        values = np.array([value for one in told for value in one[name]])
        middle, most_of = np.percentile(values, [50, 90], method="higher")
        share = f"{100 * (values > limit).mean():.0f} %"
        print(f"| {name} | {middle:.2f} | {most_of:.2f} | {values.max():.2f} | {share} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--thumbnails", type=Path, help="folder of .npz files with linear raw pictures")
    parser.add_argument("--photographs", type=Path, help="folder of linear 16-bit PNGs")
    parser.add_argument("--every", type=int, default=16, help="which of the thumbnails are taken")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="a few pictures and one kind of noise")
    args = parser.parse_args()
    start = time.perf_counter()
    noises = dict(list(ELECTRONS.items())[: 1 if args.quick else None])
    with ProcessPoolExecutor(args.workers, multiprocessing.get_context("spawn")) as pool:
        for kind, jobs in pictures(args):
            for noise, electrons in noises.items():
                for method in ("bin2", "ahd"):
                    for exposure, share in EXPOSURES.items():
                        title = f"{kind}, {method}, exposure {exposure}, noise of {noise}: errors of T in per cent"
                        one = partial(errors, exposure=share, electrons=electrons, method=method)
                        show(title, list(pool.map(one, jobs, chunksize=2)), 1.0)
        for exposure, share in EXPOSURES.items():
            electrons = list(noises.values())[-1]
            found = pool.map(partial(angles, exposure=share, electrons=electrons), range(20 if args.quick else 300))
            show(f"spectra, exposure {exposure}: degrees between the lights", list(found), 1.0)
    print(f"\n{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
