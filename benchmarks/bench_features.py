"""Features of a ResNet-50: ours beside the loop that one would write with torchvision and a DataLoader, in turn in one process.

Pictures are 500 px photos (../shared/data where it is there, otherwise those of scikit-learn); weights are drawn, for rates do
not depend on what they are. With one core both run on one torch thread; with two, the loop has two torch threads and two
DataLoader workers, and ours two threads of one core each, as a run has them. ``cosine`` is the least one between the two.
Memory is the peak of a fresh process, imports and weights included.

    python benchmarks/bench_features.py [--quick]
"""

from __future__ import annotations

import argparse
import functools
import io
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from bench_preprocess import photos
from benchwright.curation.encoders.torchvision_compat import ensure_torchvision
from benchwright.curation.rows import Blob
from benchwright.curation.stages.embed import Pictured
from benchwright.datasets.features.feature_sets import extract_images
from benchwright.datasets.features.networks import network
from PIL import Image
from torch.utils.data import Dataset

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
Extract = Callable[[Sequence[bytes]], np.ndarray]


class Photos(Dataset[Any]):
    """Files as a user's data set gives them."""

    def __init__(self, files: Sequence[bytes]) -> None:
        ensure_torchvision()
        from torchvision import transforms as T

        self.files = files
        self.transform = T.Compose([T.Resize(224), T.CenterCrop(224), T.ToTensor(), T.Normalize(MEAN, STD)])

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, row: int) -> Any:
        return self.transform(Image.open(io.BytesIO(self.files[row])).convert("RGB"))


def torchvision_loop(weights: str, cores: int) -> Extract:
    """Batches of 32 through torchvision's network without its last layer."""
    ensure_torchvision()
    import torch
    from torch.utils.data import DataLoader
    from torchvision import models

    model = models.resnet50(weights=None)
    model.load_state_dict(torch.load(weights, weights_only=True))
    model.fc = torch.nn.Identity()
    model.eval()

    def extract(files: Sequence[bytes]) -> np.ndarray:
        torch.set_num_threads(cores)
        with torch.inference_mode():
            batches = DataLoader(Photos(files), batch_size=32, num_workers=cores if cores > 1 else 0)
            return np.concatenate([model(batch).numpy() for batch in batches])

    return extract


def ours(weights: str, cores: int) -> Extract:
    """The step of a run."""
    encoder = functools.partial(network, model="resnet50")

    def extract(files: Sequence[bytes]) -> np.ndarray:
        rows = [Pictured(str(number), Blob(data)) for number, data in enumerate(files)]
        found = extract_images(rows, encoder=encoder, checkpoint=weights, threads=cores, batch_size=16)
        return np.stack([row.feature for row in found])

    return extract


METHODS = {"torchvision and DataLoader": torchvision_loop, "ours": ours}


def peak_mb(name: str, weights: str, files: list[bytes]) -> float:
    """Peak of a fresh process; Linux."""
    METHODS[name](weights, 1)(files)
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024


def compare(files: list[bytes], weights: str, cores: int, turns: int) -> None:
    """Print the best of all turns of each, and how near the vectors are."""
    methods = {name: make(weights, cores) for name, make in METHODS.items()}
    seconds, vectors = dict.fromkeys(methods, np.inf), dict[str, np.ndarray]()
    for turn in range(turns + 1):
        for name, extract in methods.items():
            began = time.perf_counter()
            vectors[name] = extract(files if turn else files[:4])
            if turn:  # the first is warm-up
                seconds[name] = min(seconds[name], time.perf_counter() - began)
    first, last = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in vectors.values())
    base = next(iter(seconds.values()))
    print(f"{cores} {'cores' if cores > 1 else 'core'}, {len(files)} pictures")
    for name, each in seconds.items():
        print(f"  {name:28} {len(files) / each:6.1f} img/s {1e3 * each / len(files):7.1f} ms  {base / each:5.2f}x")
    print(f"  cosine >= {(first * last).sum(axis=1).min():.6f}")


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer pictures and turns")
    quick = parser.parse_args().quick
    ensure_torchvision()
    from torchvision import models

    files = photos(32 if quick else 96)
    with tempfile.TemporaryDirectory() as folder:
        weights = f"{folder}/resnet50.pth"
        torch.manual_seed(0)
        torch.save(models.resnet50(weights=None).state_dict(), weights)
        for cores in (1, 2):
            compare(files, weights, cores, 2 if quick else 3)
        for name in METHODS:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(f"  {name}: peak memory of a fresh process {pool.apply(peak_mb, (name, weights, files)):.0f} MB")


if __name__ == "__main__":
    main()
