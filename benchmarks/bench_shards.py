"""Shards: writing beside webdataset's ShardWriter and tarfile, reading and decoding beside webdataset's pipeline.

Everything runs in one process, contender after contender within each round; the ratio is the median over rounds of the ratio
inside a round, since neighbours in time share the machine's mood. Peak memory is the rise of the resident set, file pages
that are mapped included, over what the process held before (Linux only; elsewhere 0).

    python benchmarks/bench_shards.py [--quick] [--samples 4000] [--rounds 7] [--photos FOLDER]
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import hashlib
import io
import statistics
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import webdataset as wds
from benchwright.curation.shards import encode_member, write_shard, write_shard_file
from benchwright.datasets.reader.dataset import Sample, ShardDataset
from benchwright.datasets.reader.features import read_features
from benchwright.datasets.reader.index import DatasetIndex
from PIL import Image

Samples = list[tuple[str, dict[str, Any]]]
Contender = tuple[str, Callable[[], object]]


def photo_like(row: int) -> bytes:
    """A JPEG of 500 x 375 pixels, about 45 KB, with the slow and fast changes of a photograph."""
    rng = np.random.default_rng(row)
    layers = np.zeros((375, 500, 3))
    for cells, weight in ((4, 90.0), (16, 45.0), (64, 22.0), (250, 9.0)):
        noise = Image.fromarray((rng.random((cells, cells, 3)) * 255).astype(np.uint8))
        layers += (np.asarray(noise.resize((500, 375), Image.Resampling.BICUBIC), dtype=float) / 255 - 0.5) * weight * 2
    out = io.BytesIO()
    Image.fromarray(np.clip(layers + 128, 0, 255).astype(np.uint8)).save(out, format="JPEG", quality=88)
    return out.getvalue()


def make_samples(count: int, photos: Path | None) -> Samples:
    images = [path.read_bytes() for path in sorted(photos.rglob("*.jpg"))] if photos else []
    images = images or [photo_like(row) for row in range(min(count, 64))]
    vectors = np.random.default_rng(0).standard_normal((count, 512)).astype(np.float32)
    return [
        (
            f"{row:08d}",
            {"jpg": images[row % len(images)], "json": {"label": row % 11, "row": row}, "embedding.npy": vectors[row]},
        )
        for row in range(count)
    ]


def peak_rise(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds that ``work`` takes, and MB by which the resident set rose at its highest."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # or what an earlier contender freed would hide this one's rise
        Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin, max(0.0, _status("VmHWM") - before)


def _status(field: str) -> float:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1000 for line in lines if line.startswith(field)), 0.0)


def compare(title: str, contenders: list[Contender], *, rounds: int, amount: float, unit: str) -> None:
    """Run the contenders in turn, first one first and last one last in odd rounds; print rates and ratios to each other one."""
    seconds: dict[str, list[float]] = {name: [] for name, _ in contenders}
    peaks = dict.fromkeys(seconds, 0.0)
    for name, work in contenders:
        peaks[name] = peak_rise(work)[1]  # warm-up: imports, page cache, and the peak while nothing is pooled yet
    for number in range(rounds):
        for name, work in contenders if number % 2 == 0 else contenders[::-1]:
            seconds[name].append(peak_rise(work)[0])
    ours = contenders[0][0]
    print(f"\n{title}\n  {'':44}{unit:>10}{'ours is':>10}{'peak MB':>10}")
    for name, times in seconds.items():
        ratio = statistics.median(theirs / own for theirs, own in zip(times, seconds[ours], strict=True))
        times_faster = "" if name == ours else f"{ratio:.2f}x"
        print(f"  {name:44}{amount / statistics.median(times):10.0f}{times_faster:>10}{peaks[name]:10.0f}")


def by_tarfile(path: Path, samples: Samples) -> None:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for key, members in samples:
            for extension in sorted(members):
                data = encode_member(extension, members[extension])
                info = tarfile.TarInfo(f"{key}.{extension}")
                info.size, info.mode = len(data), 0o644
                tar.addfile(info, io.BytesIO(data))


def bench_write(folder: Path, samples: Samples, rounds: int) -> None:
    encoded: Samples = [
        (key, {name: encode_member(name, value) for name, value in members.items()}) for key, members in samples
    ]

    def ours(data: Samples) -> None:
        with open(folder / "ours.tar", "wb") as out:
            write_shard(out, data)

    def theirs(data: Samples, **options: Any) -> None:
        with wds.ShardWriter(str(folder / "theirs-%03d.tar"), maxcount=10**9, maxsize=10**15, verbose=0, **options) as out:
            for key, members in data:
                out.write({"__key__": key, **members})

    theirs(encoded[:1])
    ours(samples)
    by_tarfile(folder / "tarfile.tar", samples)
    digests = [hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in ("ours.tar", "tarfile.tar")]
    ours(samples)
    digests.append(hashlib.sha256((folder / "ours.tar").read_bytes()).hexdigest())
    megabytes = (folder / "ours.tar").stat().st_size / 1e6
    print(f"ours twice and tarfile once give {len(set(digests))} different archive(s); {megabytes:.0f} MB a shard")
    compare(
        "write encoded samples (bytes)",
        [
            ("ours", lambda: ours(encoded)),
            ("ours, temporary file + fsync + rename", lambda: write_shard_file(folder / "ours.tar", encoded)),
            ("webdataset ShardWriter(encoder=False, mtime=0)", lambda: theirs(encoded, encoder=False, mtime=0)),
            ("webdataset ShardWriter()", lambda: theirs(encoded)),
            ("tarfile, USTAR", lambda: by_tarfile(folder / "tarfile.tar", encoded)),
        ],
        rounds=rounds,
        amount=megabytes,
        unit="MB/s",
    )
    compare(
        "write values (dict, array, bytes)",
        [("ours", lambda: ours(samples)), ("webdataset ShardWriter()", lambda: theirs(samples))],
        rounds=rounds,
        amount=megabytes,
        unit="MB/s",
    )


def chw(sample: Sample) -> Sample:
    sample["jpg"] = torch.from_numpy(sample["jpg"].transpose(2, 0, 1).copy())
    return sample


def bench_read(folder: Path, samples: Samples, rounds: int) -> None:
    shards = folder / "shards"
    shards.mkdir()
    for begin in range(0, len(samples), 500):
        write_shard_file(shards / f"s-{begin // 500:05d}.tar", samples[begin : begin + 500])
    index = DatasetIndex.scan(shards)
    urls = sorted(map(str, shards.glob("*.tar")))

    def drain(stream: Iterable[Any]) -> None:
        if sum(1 for _ in stream) != len(samples):
            raise RuntimeError(f"a contender did not give {len(samples)} samples")

    def theirs(*decoders: str) -> wds.WebDataset:
        pipeline = wds.WebDataset(urls, shardshuffle=False)
        return pipeline.decode(*decoders) if decoders else pipeline

    for sample, other in zip(ShardDataset(index), theirs("rgb8"), strict=True):
        if not np.array_equal(sample["jpg"], other["jpg"]) or sample["json"] != other["json"]:
            raise RuntimeError(f"sample {sample['__key__']} differs between ours and webdataset's")
    compare(
        "read and decode to uint8 arrays (height, width, 3); pixels checked equal",
        [
            ("ours, in order", lambda: drain(ShardDataset(index))),
            ("ours, fully shuffled", lambda: drain(ShardDataset(index, seed=0, batch_size=64))),
            ("webdataset decode('rgb8')", lambda: drain(theirs("rgb8"))),
        ],
        rounds=rounds,
        amount=len(samples),
        unit="images/s",
    )
    compare(
        "read and decode to torch uint8 (3, height, width)",
        [
            ("ours, transform to contiguous tensors", lambda: drain(ShardDataset(index, transform=chw))),
            ("webdataset decode('torchrgb8')", lambda: drain(theirs("torchrgb8"))),
        ],
        rounds=rounds,
        amount=len(samples),
        unit="images/s",
    )
    compare(
        "read without decoding",
        [
            ("ours", lambda: drain(ShardDataset(index, decode={}, batch_size=64))),
            ("webdataset", lambda: drain(theirs())),
        ],
        rounds=rounds,
        amount=len(samples),
        unit="samples/s",
    )
    compare(
        "all embeddings as one matrix",
        [
            ("ours, read_features", lambda: read_features(index)),
            ("ours, sample by sample", lambda: np.stack(_embeddings(ShardDataset(index, extensions=["embedding.npy"])))),
            ("webdataset, sample by sample", lambda: np.stack(_embeddings(_embedding_pipeline(urls)))),
        ],
        rounds=rounds,
        amount=len(samples),
        unit="rows/s",
    )


def _embeddings(stream: Iterable[Sample]) -> list[np.ndarray]:
    return [sample["embedding.npy"] for sample in stream]


def _embedding_pipeline(urls: list[str]) -> wds.WebDataset:
    kept = wds.WebDataset(urls, shardshuffle=False, select_files=lambda name: name.endswith(".npy"))
    return kept.decode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="300 samples, 3 rounds")
    parser.add_argument("--photos", type=Path, help="folder of JPEGs to use in place of made ones")
    parser.add_argument("--folder", type=Path, help="where to write (default: the system's temporary folder)")
    given = parser.parse_args()
    count, rounds = (300, 3) if given.quick else (given.samples, given.rounds)
    torch.set_num_threads(1)
    samples = make_samples(count, given.photos)
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        bench_write(Path(name), samples, rounds)
        bench_read(Path(name), samples, rounds)


if __name__ == "__main__":
    main()
