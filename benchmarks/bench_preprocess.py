"""JPEG to encoder input: ours beside open_clip's own transform, on one thread, in turn in one process.

Pictures: 500 px photos (../shared/data where it is there, otherwise those of scikit-learn) and a 12 megapixel mosaic of them.
Distance is in grey levels of the 224 x 224 input, over all pixels. Memory is what a fresh process takes on top of its imports.

    python benchmarks/bench_preprocess.py [--quick]
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import sklearn
from benchwright.curation.encoders.preprocess import Crop, normalise, prepare
from benchwright.curation.encoders.torchvision_compat import ensure_torchvision
from PIL import Image

PHOTOS = Path(__file__).resolve().parents[2] / "shared" / "data" / "photos" / "imagenet_samples"
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
METHODS = ("open_clip", "ours", "ours, scaled decode")


def method(name: str) -> Callable[[bytes], np.ndarray]:
    """File to float32 of shape (3, 224, 224)."""
    import torch

    torch.set_num_threads(1)
    if name == "open_clip":
        ensure_torchvision()
        from open_clip import image_transform

        transform = image_transform(224, is_train=False, mean=MEAN, std=STD)
        return lambda data: transform(Image.open(io.BytesIO(data))).numpy()
    crop = Crop(224, 224, scaled_decode=name.endswith("scaled decode"))
    return lambda data: normalise([prepare(data, crop)], MEAN, STD)[0].numpy()


def photos(count: int) -> list[bytes]:
    """JPEG files of some 500 pixels."""
    if PHOTOS.is_dir():
        return [path.read_bytes() for path in sorted(PHOTOS.glob("*.jpg"))[:count]]
    folder = Path(sklearn.__file__).parent / "datasets" / "images"
    return [(folder / name).read_bytes() for name in ("china.jpg", "flower.jpg")] * (count // 2)


def mosaic(files: list[bytes]) -> bytes:
    """A JPEG of 4000 x 3000 pixels with as much detail as the photos that it is made of."""
    sheet = Image.new("RGB", (4000, 3000))
    for index in range(8 * 8):
        tile = Image.open(io.BytesIO(files[index % len(files)])).convert("RGB").resize((500, 375))
        sheet.paste(tile, (index % 8 * 500, index // 8 * 375))
    buffer = io.BytesIO()
    sheet.save(buffer, "JPEG", quality=92)
    return buffer.getvalue()


def compare(files: list[bytes], repeats: int) -> None:
    """Print rate, ratio and distance of each method."""
    methods = {name: method(name) for name in METHODS}
    # The best of several turns for every picture: what else runs on the machine then falls out.
    seconds = {name: np.full(len(files), np.inf) for name in METHODS}
    for _ in range(repeats):
        for index, data in enumerate(files):
            for name, run in methods.items():
                began = time.perf_counter()
                run(data)
                seconds[name][index] = min(seconds[name][index], time.perf_counter() - began)
    levels = 255 * np.array(STD, dtype=np.float32)[:, None, None]
    reference = [methods["open_clip"](data) for data in files]
    for name, run in methods.items():
        apart = [np.abs(run(data) - other) * levels for data, other in zip(files, reference, strict=True)]
        rate = len(files) / seconds[name].sum()
        ratio = seconds["open_clip"].sum() / seconds[name].sum()
        mean, most = np.mean([a.mean() for a in apart]), max(a.max() for a in apart)
        print(f"  {name:22} {rate:8.1f} img/s  {ratio:5.2f}x  mean distance {mean:.4f}, most {most:.1f} levels")


def peak_mb(name: str, files: list[bytes]) -> float:
    """Runs in a fresh process, on Linux."""
    run = method(name)
    run(photos(1)[0])
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = _peak_kb()
    for data in files:
        run(data)
    return (_peak_kb() - before) / 1024


def _peak_kb() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer pictures and repeats")
    quick = parser.parse_args().quick
    files = photos(100 if quick else 500)
    large = mosaic(files)
    print(f"{len(files)} photos of {sum(map(len, files)) / len(files) / 1e3:.0f} kB")
    compare(files, 3 if quick else 7)
    print(f"12 megapixels, {len(large) / 1e6:.1f} MB")
    compare([large], 3 if quick else 7)
    print("peak memory beyond imports, 12 megapixels")
    for name in METHODS:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(f"  {name:22} {pool.apply(peak_mb, (name, [large])):6.0f} MB")


if __name__ == "__main__":
    main()
