"""Illuminant estimators on many thumbnails: ours beside the loop over pictures in which they are usually written.

    python benchmarks/bench_illuminants.py [--pictures 18000] [--quick]

Thumbnails of 32 x 48 with 24 random colours each, under random lights; the loops run on the first 100. They are scipy's
Gaussian derivatives channel by channel, numpy's sorts and SVD, scipy's linear programs, numpy's lstsq of a pair with each
light's map. The angle is the largest between the two answers. CPU time, one thread if OMP_NUM_THREADS=1; memory is the
largest that the process held.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

LOOPED = 100


def thumbnails(n: int):
    """Images of two cameras, (n, 32, 48, 3) each, and lights (n, 3)."""
    generator = np.random.default_rng(0)
    which = generator.integers(60, size=n)
    lights = np.exp(generator.normal(0, 0.3, (60, 3)))[which]
    maps = np.eye(3) + 0.1 * generator.random((60, 3, 3))
    colours = generator.beta(1.2, 3.0, (n, 4, 6, 3)) * lights[:, None, None]
    other = colours @ maps[which][:, None]
    return *(np.repeat(np.repeat(c.astype(np.float32), 8, 1), 8, 2) for c in (colours, other)), lights


def minkowski(image, *, order, p, sigma):
    from scipy import ndimage

    found = []
    for c in range(3):
        channel = image[..., c].astype(np.float64)
        if order == 1:
            channel = ndimage.gaussian_gradient_magnitude(channel, sigma, mode="nearest")
        found.append(channel.max() if np.isinf(p) else (channel**p).mean() ** (1 / p))
    return np.array(found)


def weighted(image, *, p, sigma, kappa):
    from scipy import ndimage

    light = np.ones(3) / 3**0.5
    for _ in range(10):
        corrected = image / (3**0.5 * light)
        x, y = (
            np.stack([ndimage.gaussian_filter(corrected[..., c], sigma, order=o, mode="nearest") for c in range(3)])
            for o in ((0, 1), (1, 0))
        )
        length = np.hypot(x, y)
        along = np.hypot(x.sum(axis=0), y.sum(axis=0)) / 3**0.5
        weight = np.minimum(along / np.maximum(np.sqrt((length**2).sum(axis=0)), 1e-12), 1) ** kappa
        turn = ((length * weight) ** p).mean(axis=(1, 2)) ** (1 / p)
        turn /= np.linalg.norm(turn)
        light = light * turn / np.linalg.norm(light * turn)
        if np.degrees(np.arccos(min(turn.sum() / 3**0.5, 1))) < 0.05:
            break
    return light


def principal(image, *, fraction):
    colours = image.reshape(-1, 3).astype(np.float64)
    along = colours @ colours.mean(axis=0)
    ranked, count = np.sort(along), round(fraction * len(colours))
    ends = colours[(along <= ranked[count - 1]) | (along >= ranked[-count])]
    return np.abs(np.linalg.svd(ends, full_matrices=False)[2][0])


def program(image, corners):
    from scipy.optimize import linprog
    from scipy.spatial import ConvexHull

    faces = ConvexHull(corners).equations
    values = np.unique(image.reshape(-1, 3), axis=0).astype(np.float64)
    inequalities = (faces[:, None, :3] * values).reshape(-1, 3)
    return 1 / linprog([-1] * 3, A_ub=inequalities, b_ub=np.repeat(-faces[:, 3], len(values)), bounds=[(0, None)] * 3).x


def nearest(pair, maps, lights):
    p, q = (view.reshape(-1, 3).astype(np.float64) for view in pair)
    return lights[np.argmin([((p @ m - q) ** 2).sum() for m in maps])]


def main() -> None:
    from benchwright.training.illuminants.choice import Baseline
    from benchwright.training.illuminants.pictures import LinearPictures, unit
    from benchwright.training.illuminants.registry import estimator

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=18000)
    parser.add_argument("--quick", action="store_true", help="1,000 pictures")
    options = parser.parse_args()
    import scipy.ndimage
    import scipy.optimize
    import scipy.spatial  # noqa: F401 - loaded before any clock runs

    images, second, lights = thumbnails(1000 if options.quick else options.pictures)
    start = time.process_time()
    pictures = LinearPictures.of(images, second=second)
    print(f"{len(pictures)} pictures, checked in {time.process_time() - start:.1f} s")
    del images, second
    print(f"{'':22}{'ours, s':>9}{'ms each':>9}{'loop, ms':>10}{'ours is':>9}{'angle, deg':>12}{'MiB':>7}")
    cases = [
        ("gray_edge", {"order": 0, "p": 1, "sigma": 0}, minkowski),
        ("gray_edge", {"order": 0, "p": 6, "sigma": 0}, minkowski),
        ("gray_edge", {"order": 1, "p": 5, "sigma": 2}, minkowski),
        ("weighted_gray_edge", {"p": 5, "sigma": 2, "kappa": 5}, weighted),
        ("bright_dark_pca", {"fraction": 0.035}, principal),
        ("gamut", {"order": 0, "sigma": 0}, program),
        ("chromagenic", {"chromaticities": False}, nearest),
        ("gamut", {"order": 1, "sigma": 2}, None),
        ("bright_pixels", {"fraction": 0.05, "p": 2}, None),
        ("corrected_moments", {"degree": 3, "order": 0, "sigma": 0}, None),
    ]
    for name, setting, loop in cases:
        made = estimator(name, {})
        state = {} if made.fit is None else made.fit(pictures[:500], lights[:500], **setting)
        start = time.process_time()
        ours = Baseline(made, setting, state).estimate(pictures)
        spent = time.process_time() - start
        line = f"{name + ' ' + str(setting.get('order', '')):22}{spent:9.1f}{1000 * spent / len(pictures):9.2f}"
        if loop is not None:
            start = time.process_time()
            if name == "gamut":
                theirs = [program(image, state["corners"]) for image in pictures.images[:LOOPED]]
            elif name == "chromagenic":
                pairs = zip(pictures.images[:LOOPED], pictures.second[:LOOPED], strict=True)
                theirs = [nearest(pair, **state) for pair in pairs]
            else:
                theirs = [loop(image, **setting) for image in pictures.images[:LOOPED]]
            each = 1000 * (time.process_time() - start) / LOOPED
            cosine = (unit(np.array(theirs)) * ours[:LOOPED]).sum(axis=1)
            angle = np.degrees(np.arccos(np.minimum(cosine, 1))).max()
            line += f"{each:10.2f}{each / (1000 * spent / len(pictures)):8.1f}x{angle:12.4f}"
        else:
            line += f"{'-':>10}{'-':>9}{'-':>12}"
        print(f"{line}{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024:7}", flush=True)


if __name__ == "__main__":
    main()
