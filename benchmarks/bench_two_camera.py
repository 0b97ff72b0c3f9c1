"""From raw pairs to transforms beside what one would write with rawpy and OpenCV alone, and the radiometric set's time.

    python benchmarks/bench_two_camera.py [--quick] [--spectra FOLDER] [--pairs 18000]

One process. A 12-megapixel DNG pair is drawn once; then, in turn: rawpy's decode of both files plus one cv2.warpPerspective at
the size after averaging down, which no pipeline can do without; and our way from the same bytes to T: decode, demosaic,
masks, warp, averaging, fit. "half size" is rawpy's half_size beside our "bin2", "full size" its AHD beside our "ahd". Peak
memory is that of a process that does one pair and nothing else.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cv2
import numpy as np
import rawpy

FACTOR = 6


def drawn_pair(size: tuple[int, int]) -> tuple[list[bytes], np.ndarray, np.ndarray]:
    """Bytes of two DNGs, the homography, and T."""
    spec = importlib.util.spec_from_file_location("make_phone_pairs", Path(__file__).with_name("make_phone_pairs.py"))
    phone = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(phone)
    with tempfile.TemporaryDirectory() as folder:
        truth = phone.make_pairs(Path(folder), pictures=None, pairs=1, size=size, seed=0)
        data = [(Path(folder) / f"RAW_0000_CAM_{camera}.dng").read_bytes() for camera in (0, 1)]
    return data, np.array(truth["homography"]), np.array(truth["pairs"]["RAW_0000"]["transform"])


def bare(data: list[bytes], homography: np.ndarray, *, half: bool) -> None:
    """rawpy's decode of both, and one warp at the final size."""
    pictures = []
    for each in data:
        with rawpy.imread(io.BytesIO(each)) as raw:
            pictures.append(
                raw.postprocess(
                    half_size=half,
                    output_bps=16,
                    gamma=(1, 1),
                    no_auto_bright=True,
                    output_color=rawpy.ColorSpace.raw,
                    user_flip=0,
                )
            )
    scale = FACTOR // 2 if half else FACTOR
    size = (pictures[1].shape[1] // scale, pictures[1].shape[0] // scale)
    cv2.warpPerspective(cv2.resize(pictures[1], size, interpolation=cv2.INTER_AREA), homography, size)


def ours(data: list[bytes], homography: np.ndarray, *, method: str) -> np.ndarray:
    """The pair's T, (3, 3)."""
    from benchwright.curation.stages.alignment import align
    from benchwright.curation.stages.raw import read_linear
    from benchwright.datasets.two_camera.transforms import fit

    pictures = [read_linear(each, method=method)[0] for each in data]
    found = align(*pictures, homography=homography, factor=FACTOR)
    valid = found.valid.ravel()
    colours = [np.compress(valid, image.reshape(-1, 3), axis=0) for image in (found.image_1, found.image_2)]
    return fit(*colours, preset="as_released").matrix


def interleaved(calls: dict, times: int) -> dict[str, tuple[float, float]]:
    """Name -> least wall and CPU seconds: on a busy machine the least is nearest to what the work takes."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for turn in range(times + 1):
        for name, call in calls.items():
            wall, cpu = time.perf_counter(), time.process_time()
            call()
            if turn:
                taken[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    return {name: tuple(min(column) for column in zip(*each, strict=True)) for name, each in taken.items()}


def one_pair(files: list[str], method: str) -> None:
    """What a fresh process does to show its peak memory."""
    data = [Path(file).read_bytes() for file in files[:2]]
    ours(data, np.load(files[2]), method=method)
    # Not ru_maxrss, which a process inherits from the one that started it.
    told = Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]
    print(int(told) / 2**20)


def peak_gib(data: list[bytes], homography: np.ndarray, method: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder) / name) for name in ("1.dng", "2.dng", "h.npy")]
        for file, each in zip(files, data, strict=False):
            Path(file).write_bytes(each)
        np.save(files[2], homography)
        command = [sys.executable, __file__, "--one", method, *files]
        return float(subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL).stdout)


def radiometric(pairs: int, spectra: Path | None) -> None:
    from benchwright.pipelines import api

    overrides = [f"source.pairs={pairs}"]
    if spectra is not None:
        overrides += [f"source.sensitivities={spectra / 'camspec_database.txt'}"]
        overrides += [f"source.reflectances={next(spectra.glob('sfu_reflectances*.csv'))}"]
    job = api.job("two_camera", config=None if spectra is not None else "tiny", overrides=overrides)
    folder = tempfile.mkdtemp()
    try:
        wall, cpu = time.perf_counter(), time.process_time()
        api.run(job, folder, scheduler="threads", workers=2)
        told = f"{time.perf_counter() - wall:.1f} s, CPU {time.process_time() - cpu:.1f} s"
        print(f"{pairs:,} radiometric pairs through the engine to shards with thumbnails, 2 threads: {told}")
    finally:
        shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="3 megapixels, once; 1,000 pairs")
    parser.add_argument("--pairs", type=int, default=18_000)
    parser.add_argument("--spectra", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data" / "spectra")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("files", nargs="*", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        one_pair(given.files, given.one)
        return
    size = (2016, 1512) if given.quick else (4032, 3024)
    data, homography, truth = drawn_pair(size)
    print(f"a pair of {size[0]} x {size[1]}, {len(data[0]) / 1e6:.0f} MB each, to T")
    small = homography.copy()
    for what, half, method in (("half size", True, "bin2"), ("full size", False, "ahd")):
        calls = {
            "rawpy + one warp": lambda half=half: bare(data, small, half=half),
            "ours": lambda method=method: ours(data, homography, method=method),
        }
        found = interleaved(calls, 1 if given.quick else 5)
        error = np.linalg.norm(ours(data, homography, method=method) - truth) / np.linalg.norm(truth)
        ratio = [found["ours"][k] / found["rawpy + one warp"][k] for k in (0, 1)]
        told = ", ".join(f"{name} {wall:.2f} s (CPU {cpu:.2f})" for name, (wall, cpu) in found.items())
        print(f"{what}: {told}; ratio {ratio[0]:.2f} (CPU {ratio[1]:.2f}); T off by {100 * error:.2f} %")
        print(f"  peak memory of one pair: {peak_gib(data, homography, method):.2f} GiB")
    radiometric(1000 if given.quick else given.pairs, given.spectra if given.spectra.is_dir() else None)


if __name__ == "__main__":
    main()
