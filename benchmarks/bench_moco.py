"""MoCo's two views of a photo, alone and with the training step: ours beside torchvision's and lightly's transforms.

All read the same photos (some 500 px; ../shared/data where it is there, otherwise those of scikit-learn), ours from shards, the
others from files, by torch's DataLoader. One thread of torch each; processes or threads that load as ``--workers`` says.
lightly takes part where it is installed. The step is that of ``training/moco`` for all, on ``--backbone`` at ``--side`` pixels.
Every contestant runs in a process of its own, in turn; memory is what it takes on top of its imports.

    python benchmarks/bench_moco.py [--quick]
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_preprocess import photos
from benchwright.curation.encoders.torchvision_compat import ensure_torchvision
from benchwright.curation.shards import write_shard_file
from benchwright.datasets.reader.index import DatasetIndex
from benchwright.training.core.batches import ahead
from benchwright.training.data.pictures import shard_pictures
from benchwright.training.moco.pretrain import Pretraining, PretrainingPictures
from benchwright.training.moco.settings import moco_settings
from PIL import Image, ImageFilter

BATCH = 32
NAMES = ("torchvision", "lightly", "ours")


class Blur:
    """Pillow's, as the released code has it."""

    def __call__(self, image: Image.Image) -> Image.Image:
        return image.filter(ImageFilter.GaussianBlur(radius=np.random.uniform(0.1, 2.0)))


class Files(torch.utils.data.Dataset[Any]):
    """Two views a photo by a transform of Pillow's pictures."""

    def __init__(self, folder: Path, name: str, side: int) -> None:
        ensure_torchvision()
        self.paths, self.name = sorted(folder.glob("*.jpg")), name
        if name == "lightly":
            from lightly.transforms import MoCoV2Transform

            self.transform = MoCoV2Transform(input_size=side)
            return
        from torchvision import transforms as t

        jitter = t.RandomApply([t.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8)
        self.transform = t.Compose(
            [
                t.RandomResizedCrop(side, scale=(0.2, 1.0)),
                jitter,
                t.RandomGrayscale(p=0.2),
                t.RandomApply([Blur()], p=0.5),
                t.RandomHorizontalFlip(),
                t.ToTensor(),
                t.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
            ]
        )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> Any:
        picture = Image.open(io.BytesIO(self.paths[row].read_bytes())).convert("RGB")
        return self.transform(picture) if self.name == "lightly" else [self.transform(picture), self.transform(picture)]


def run(name: str, folder: str, side: int, backbone: str, workers: int, steps: bool) -> dict[str, float]:
    """Photos a second, and MiB above the start: views alone, or with the step."""
    torch.set_num_threads(1)
    small = {"backbone": backbone, "batch_size": BATCH, "queue": 4096, "batch_norm_splits": 1, "view": {"side_px": side}}
    pretraining = Pretraining(moco_settings("moco_v2", small), seed=0, workers=workers)
    before = _peak_mb()
    passes: list[float] = []
    for epoch in range(3):
        began, seen = time.perf_counter(), 0
        for number, (first, second) in enumerate(_batches(name, folder, side, workers, pretraining, epoch)):
            if steps:
                pretraining.step(first, second, f"{epoch}/{number}")
            seen += len(first)
        passes.append(seen / (time.perf_counter() - began))
    return {"rate": max(passes[1:]), "mb": _peak_mb() - before, "spread": statistics.pstdev(passes[1:])}


def _batches(
    name: str, folder: str, side: int, workers: int, pretraining: Pretraining, epoch: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    if name != "ours":
        loader = torch.utils.data.DataLoader(
            Files(Path(folder), name, side), BATCH, shuffle=True, num_workers=workers, drop_last=True
        )
        yield from ((views[0], views[1]) for views in loader)
        return
    index = DatasetIndex.scan(folder)
    pictures = PretrainingPictures(
        shard_pictures(index), index.table["key"].to_pylist(), lambda at: index.order(seed=0, epoch=at)
    )
    order = pictures.order(epoch)
    rows = (order[at : at + BATCH] for at in range(0, len(order) // BATCH * BATCH, BATCH))
    yield from ahead(lambda each: pretraining.views(pictures, each, epoch), rows, workers)


def _peak_mb() -> float:
    for pid in ("self", *(str(child.pid) for child in multiprocessing.active_children())):
        status = Path(f"/proc/{pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--backbone", default="resnet18")
    parser.add_argument("--side", type=int, default=224)
    asked = parser.parse_args()
    count = 64 if asked.quick else 256
    with tempfile.TemporaryDirectory() as folder:
        files = photos(count)
        for number, data in enumerate(files):
            (Path(folder) / f"{number:04d}.jpg").write_bytes(data)
        write_shard_file(Path(folder) / "photos.tar", ((f"{number:04d}", {"jpg": data}) for number, data in enumerate(files)))
        print(f"{len(files)} photos, batches of {BATCH}, {asked.workers} workers")
        for steps, side in ((False, asked.side), (True, asked.side if not asked.quick else 64)):
            print(f"{'views and step, ' + asked.backbone if steps else 'views alone'}, {side} px")
            found: dict[str, dict[str, float]] = {}
            for name in NAMES:
                with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
                    try:
                        found[name] = pool.submit(run, name, folder, side, asked.backbone, asked.workers, steps).result()
                    except ModuleNotFoundError as error:
                        print(f"  {name:12} left out: {error}")
                        continue
                each = found[name]
                ratio = each["rate"] / found["torchvision"]["rate"]
                print(f"  {name:12} {each['rate']:7.1f} photos/s  {ratio:5.2f}x  {each['mb']:6.0f} MiB")
        print(json.dumps({"torch": torch.__version__}))


if __name__ == "__main__":
    main()
