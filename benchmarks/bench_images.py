"""Ten thousand small images, one in twenty broken: are all accounted for, how fast, and does memory stay flat?

``check_image`` as a bare function beside Pillow's usual verify-then-load loop, in turn, in one process; then the whole run
through the engine, with its memory as it goes.

    python benchmarks/bench_images.py [--quick] [--count 10000]
"""

from __future__ import annotations

import argparse
import collections
import io
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
from benchwright.curation.flow import source, step
from benchwright.curation.keys import where
from benchwright.curation.rows import Blob, Reject
from benchwright.curation.run import Progress, run
from benchwright.curation.stages.image_sources import folder_pieces, read_folder
from benchwright.curation.stages.images import StoredImage, check_image
from PIL import Image

BROKEN = ("zero bytes", "truncated", "html", "animated", "bomb", "corrupt")


def make_images(folder: Path, count: int) -> dict[str, int]:
    """Write ``count`` JPEGs of 240x180 pixels, every twentieth broken in one of six ways; returns how many of each."""
    wholes = [_jpeg(seed) for seed in range(50)]
    made = collections.Counter[str]()
    for n in range(count):
        parent = folder / f"{n // 1000:03}"
        parent.mkdir(exist_ok=True)
        data = wholes[n % len(wholes)]
        if n % 20 == 7:
            kind = BROKEN[n // 20 % len(BROKEN)]
            data = _broken(kind, data)
            made[kind] += 1
        (parent / f"{n:06}.jpg").write_bytes(data)
    return dict(sorted(made.items()))


def _jpeg(seed: int) -> bytes:
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize((240, 180), Image.Resampling.BICUBIC)
    noisy = np.asarray(coarse).astype(np.int16) + rng.integers(-12, 13, (180, 240, 3))
    out = io.BytesIO()
    Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).save(out, "JPEG", quality=85)
    return out.getvalue()


def _broken(kind: str, data: bytes) -> bytes:
    if kind == "zero bytes":
        return b""
    if kind == "truncated":
        return data[: len(data) * 2 // 3]
    if kind == "html":
        return b"<!DOCTYPE html><html><body>This photo is no longer available</body></html>"
    if kind == "corrupt":
        middle = len(data) // 2
        return data[:middle] + b"\xff\xd3\xff\xd5" * 8 + data[middle + 32 :]
    out = io.BytesIO()
    if kind == "animated":
        frames = [Image.new("RGB", (60, 40), colour) for colour in ("red", "blue")]
        frames[0].save(out, "GIF", save_all=True, append_images=frames[1:], duration=50)
        return out.getvalue()
    at = data.index(b"\xff\xc0")
    return data[: at + 5] + b"\xff\xdc\xff\xdc" + data[at + 9 :]  # announces 65,500 x 65,500 pixels


def ours(payloads: list[bytes]) -> collections.Counter[str]:
    """``check_image`` on each."""
    found = collections.Counter[str]()
    for data in payloads:
        try:
            check_image(StoredImage("k", "jpg", Blob(data)))
            found["row"] += 1
        except Reject as reject:
            found[reject.reason] += 1
    return found


def pillow(payloads: list[bytes]) -> collections.Counter[str]:
    """The usual loop: open and verify, then open again and load."""
    found = collections.Counter[str]()
    for data in payloads:
        try:
            with Image.open(io.BytesIO(data)) as image:
                image.verify()
            with Image.open(io.BytesIO(data)) as image:
                image.load()
            found["row"] += 1
        except Exception as error:  # as such loops do
            found[type(error).__name__] += 1
    return found


def _rates(payloads: list[bytes], repeats: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {"ours": [], "pillow": []}
    loops: dict[str, Callable[[list[bytes]], collections.Counter[str]]] = {"ours": ours, "pillow": pillow}
    for repeat in range(repeats + 1):
        for name, loop in loops.items():
            started = time.perf_counter()
            loop(payloads)
            if repeat:  # the first round warms up
                seconds[name].append(time.perf_counter() - started)
    return seconds


def _through_the_engine(folder: Path, out: Path, count: int) -> None:
    flow = source(
        "found",
        step(read_folder, root=where(folder), source_name="made", require_date=False),
        pieces=step(folder_pieces, root=where(folder)),
        max_rejects=0,
    ).each("checked", step(check_image), max_rejects=0.06)
    process = psutil.Process()
    curve: list[tuple[str, int, float]] = []

    def note(progress: Progress) -> None:
        curve.append((progress.stage, progress.rows, process.memory_info().rss / 2**20))

    started = time.perf_counter()
    result = run(flow, str(out), scheduler="threads", workers=2, on_progress=note).artifacts
    seconds = time.perf_counter() - started
    checked = result[-1]
    total = checked.rows + sum(checked.rejects.values())
    print(f"\nthrough the engine, 2 threads, from files: {seconds:.1f} s, {count / seconds:,.0f} images/s")
    print(f"  rows {checked.rows:,} + rejects {sum(checked.rejects.values()):,} = {total:,} of {count:,}")
    for reason, number in sorted(checked.rejects.items()):
        print(f"  {reason:<18} {number:>6,}")
    print("  memory (RSS) as it goes:")
    for stage in ("found", "checked"):
        points = [(rows, size) for name, rows, size in curve if name == stage]
        for rows, size in points[:: max(1, len(points) // 6)]:
            print(f"    {stage:<8} {rows:>7,} rows {size:8.1f} MiB")
    if total != count:
        raise SystemExit(f"{count - total} images are not accounted for")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="2,000 images, 2 repeats")
    parser.add_argument("--count", type=int, default=10_000)
    options = parser.parse_args()
    count, repeats = (2000, 2) if options.quick else (options.count, 3)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "images"
        folder.mkdir()
        made = make_images(folder, count)
        print(f"{count:,} images, broken: {', '.join(f'{number} {kind}' for kind, number in made.items())}")
        payloads = [path.read_bytes() for path in sorted(folder.rglob("*.jpg"))[:1500]]
        print("\nof the first 1,500 images")
        for name, loop in (("check_image", ours), ("Pillow verify + load", pillow)):
            print(f"  {name:<22} {dict(sorted(loop(payloads).items()))}")
        seconds = _rates(payloads, repeats)
        medians = {name: statistics.median(values) for name, values in seconds.items()}
        print(f"\n{'one thread':<24}{'images/s':>10}{'ratio':>8}")
        for name, label in (("ours", "check_image"), ("pillow", "Pillow verify + load")):
            print(f"{label:<24}{len(payloads) / medians[name]:>10,.0f}{medians['pillow'] / medians[name]:>8.2f}")
        del payloads
        _through_the_engine(folder, Path(scratch) / "out", count)


if __name__ == "__main__":
    main()
