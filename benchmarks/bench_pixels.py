"""Pictures for training: shards through our reader, decoder and cache, beside webdataset and ImageFolder with torchvision's
transforms in a DataLoader; alone, and with a ResNet-18 that learns from them.

Every contender is a process of its own with the same JPEGs, and gives the same thing: batches of 64 normalised squares, a
random crop of the picture scaled to 224 pixels, mirrored or not. Contenders take turns; the ratio is the median over rounds
of the ratio inside a round. Memory is the largest sum of the proportional set sizes of the process and its workers.

    python benchmarks/bench_pixels.py [--quick] [--images 1024] [--rounds 3] [--workers 2] [--device cpu]
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from benchwright.curation.encoders.torchvision_compat import ensure_torchvision
from torch import Tensor, nn

BATCH, SIDE = 64, 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
Batches = Iterable[tuple[Tensor, Tensor]]


def make(folder: Path, count: int) -> None:
    """The same JPEGs as shards and as a folder of classes."""
    from bench_shards import photo_like
    from benchwright.curation.shards import write_shard_file

    pictures = [photo_like(row) for row in range(min(count, 64))]
    (folder / "shards").mkdir(parents=True)
    size = max(count // 8, 1)  # a shard: webdataset wants one a worker at least
    for first in range(0, count, size):
        rows = range(first, min(first + size, count))
        samples = [(f"{row:08d}", {"jpg": pictures[row % len(pictures)], "cls": str(row % 11).encode()}) for row in rows]
        write_shard_file(folder / "shards" / f"shard-{first // size:05d}.tar", samples)
    for row in range(count):
        place = folder / "files" / f"class{row % 11:02d}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{row:08d}.jpg").write_bytes(pictures[row % len(pictures)])


def ours(folder: Path, workers: int, *, epochs: int = 1, held_bytes: int = 0, scaled: bool = False) -> Batches:
    from benchwright.datasets.reader.index import DatasetIndex
    from benchwright.training.core.batches import ahead
    from benchwright.training.data.examples import Draw
    from benchwright.training.data.pictures import PictureCache, PictureExamples, PictureView, shard_pictures

    index = DatasetIndex.scan(folder / "shards")
    view = PictureView(SIDE, SIDE, "window_flip", MEAN, STD, scaled_decode=scaled)
    album = PictureCache(shard_pictures(index, min_side_px=2 * SIDE if scaled else 0), view, held_bytes=held_bytes)
    keys = index.table["key"].to_pylist()
    labels = np.arange(len(keys)) % 11
    examples = PictureExamples(album, keys, np.arange(len(keys)), labels)
    for epoch in range(epochs):
        order = index.order(seed=0, epoch=epoch)
        starts = range(0, len(order), BATCH)
        load: Callable[[int], Tensor] = lambda at: examples.load(order[at : at + BATCH].tolist(), Draw(0, str(epoch)))  # noqa: B023, E731
        for at, x in zip(starts, ahead(load, starts, workers), strict=True):
            yield x, torch.from_numpy(labels[order[at : at + BATCH]])


def transform() -> Callable[[Any], Tensor]:
    from torchvision import transforms as t

    return t.Compose([t.Resize(SIDE), t.RandomCrop(SIDE), t.RandomHorizontalFlip(), t.ToTensor(), t.Normalize(MEAN, STD)])


def with_webdataset(folder: Path, workers: int) -> Batches:
    import webdataset as wds

    urls = sorted(map(str, (folder / "shards").glob("*.tar")))
    data = wds.WebDataset(urls, shardshuffle=False, workersplitter=wds.split_by_worker).shuffle(1000).decode("pil")
    data = data.to_tuple("jpg", "cls").map_tuple(transform(), int)
    return torch.utils.data.DataLoader(data, batch_size=BATCH, num_workers=workers)


def with_image_folder(folder: Path, workers: int) -> Batches:
    from torchvision.datasets import ImageFolder

    data = ImageFolder(str(folder / "files"), transform())
    return torch.utils.data.DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=workers)


def contenders(workers: int) -> dict[str, Callable[[Path], Batches]]:
    return {
        f"ours, {workers} threads": lambda folder: ours(folder, workers),
        "ours, in turn": lambda folder: ours(folder, 0),
        f"ours, {workers} threads, kept": lambda folder: ours(folder, workers, epochs=4, held_bytes=1 << 31),
        f"webdataset, {workers} processes": lambda folder: with_webdataset(folder, workers),
        f"ImageFolder, {workers} processes": lambda folder: with_image_folder(folder, workers),
        "ImageFolder, in turn": lambda folder: with_image_folder(folder, 0),
    }


def learning(batches: Batches, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches, each learned by a ResNet-18; on a GPU in float16."""
    from torchvision.models import resnet18

    model = resnet18(num_classes=11).to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler(device.type, enabled=device.type == "cuda")
    for x, y in batches:
        optimiser.zero_grad()
        with torch.autocast(device.type, torch.float16, enabled=device.type == "cuda"):
            loss = nn.functional.cross_entropy(model(x.to(device, memory_format=torch.channels_last)), y.to(device))
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        yield x, y
    if device.type == "cuda":
        torch.cuda.synchronize()


def one(name: str, folder: Path, workers: int, device: str) -> None:
    """Print images a second, without the start."""
    ensure_torchvision()
    torch.set_num_threads(1)
    batches = contenders(workers)[name](folder)
    if device:
        batches = learning(batches, torch.device(device))
    begin, used = time.perf_counter(), cpu_seconds()
    count = sum(len(x) for x, _ in batches)
    seconds = time.perf_counter() - begin
    del batches
    gc.collect()
    print(json.dumps([count / seconds, 1000 * (cpu_seconds() - used) / count]))


def cpu_seconds() -> float:
    """Of this process and of its workers that have ended."""
    those = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in those)


def measured(arguments: list[str]) -> tuple[float, float, float]:
    """Images a second, CPU time in ms an image, and the largest memory of the process and its workers in MB."""
    process = subprocess.Popen([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True)
    watched, peak = psutil.Process(process.pid), 0.0
    while process.poll() is None:
        with contextlib.suppress(psutil.Error, OSError):
            peak = max(peak, sum(each.memory_full_info().pss for each in [watched, *watched.children(recursive=True)]) / 1e6)
        time.sleep(0.2)
    told = process.stdout.read() if process.stdout else ""
    if process.returncode:
        raise SystemExit(f"{arguments} ended with {process.returncode}")
    return *json.loads(told), peak


def compare(title: str, names: list[str], folder: Path, workers: int, rounds: int, device: str) -> None:
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            found[name].append(
                measured(["--one", name, "--folder", str(folder), "--workers", str(workers), "--device", device])
            )
    print(f"\n{title:<32}{'images/s':>10}{'ours is':>10}{'CPU ms':>9}{'ours is':>10}{'MB':>8}")
    for name, values in found.items():
        pairs = list(zip(found[names[0]], values, strict=True))
        faster = statistics.median(mine[0] / theirs[0] for mine, theirs in pairs)
        cheaper = statistics.median(theirs[1] / mine[1] for mine, theirs in pairs)
        rate, cpu = (statistics.median(each[number] for each in values) for number in (0, 1))
        memory = max(each[2] for each in values)
        print(f"{name:<32}{rate:>10.0f}{faster:>9.2f}x{cpu:>9.2f}{cheaper:>9.2f}x{memory:>8.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--images", type=int, default=1024)
    parser.add_argument("--learned", type=int, default=128, help="images that are learned from on a CPU")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        one(given.one, given.folder, given.workers, given.device)
        return
    images, rounds, learned = (256, 1, 64) if given.quick else (given.images, given.rounds, given.learned)
    names = list(contenders(given.workers))
    with tempfile.TemporaryDirectory() as folder:
        many, few = Path(folder, "many"), Path(folder, "few")
        make(many, images)
        make(few, images if given.device.startswith("cuda") else learned)
        compare("decoding alone", names, many, given.workers, rounds, "")
        trained = [name for name in names if "in turn" not in name and "kept" not in name]
        compare(f"with a ResNet-18 on {given.device}", trained, few, given.workers, rounds, given.device)


if __name__ == "__main__":
    main()
