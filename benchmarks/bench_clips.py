"""Training views of clips from a shard, beside what one would write with Pillow and torchvision: clips a second.

    python benchmarks/bench_clips.py [--quick]

Both read the same tar, choose eight frames as TSN does, decode them, crop, flip, scale to 224 and normalise, on one thread. "By
hand" decodes with Pillow and transforms frame by frame with torchvision, as public TSN code does; it decodes only the eight
frames as well. The ratio is of CPU times in one run; they alternate, so that a busy machine slows both.
"""

from __future__ import annotations

import argparse
import io
import os
import resource
import tarfile
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from benchwright.curation.encoders.torchvision_compat import ensure_torchvision
from benchwright.datasets.reader.index import DatasetIndex
from benchwright.pipelines.vclimb.stream import clip_view
from benchwright.training.baselines.vclimb import paper_settings
from benchwright.training.data.clips import shard_clips
from benchwright.training.data.examples import Draw
from PIL import Image


def write_shard(folder: Path, clips: int, frames: int) -> None:
    """Smooth noise of 340 x 256 pixels, as JPEGs of about 15 KB."""
    draws = np.random.default_rng(0)
    rows: dict[str, list] = {name: [] for name in ("key", "shard", "offset", "size", "class_index", "frame_sizes")}
    small = draws.integers(0, 256, (frames, 16, 21, 3)).astype(np.uint8)
    jpegs = []
    for frame in small:
        memory = io.BytesIO()
        Image.fromarray(frame).resize((340, 256), Image.Resampling.BICUBIC).save(memory, "JPEG", quality=90)
        jpegs.append(memory.getvalue())
    with tarfile.open(folder / "clips.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(clips):
            begin = tar.offset
            for t, data in enumerate(jpegs):
                info = tarfile.TarInfo(f"c{number:04}.{t:04}.jpg")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
            values = (f"c{number:04}", "clips", begin, tar.offset - begin, 0, [len(data) for data in jpegs])
            for column, value in zip(rows, values, strict=True):
                rows[column].append(value)
    pq.write_table(pa.table(rows), folder / "index.parquet")


class ByHand:
    """Pillow and torchvision, a frame at a time."""

    def __init__(self, folder: Path, clips: int, frames: int) -> None:
        ensure_torchvision()
        from torchvision.transforms import v2

        self.tar = tarfile.open(folder / "clips.tar")  # noqa: SIM115
        self.members = {member.name: member for member in self.tar.getmembers()}
        self.frames, self.draws = frames, np.random.default_rng(0)
        self.finish = v2.Compose(
            [
                v2.ToImage(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
            ]
        )

    def load(self, row: int) -> torch.Tensor:
        length = self.frames // 8
        places = np.arange(8) * length + self.draws.integers(0, length, 8)
        side = int(256 * self.draws.choice([1, 0.875, 0.75, 0.66]))
        left, top, flip = (
            int(self.draws.integers(340 - side + 1)),
            int(self.draws.integers(256 - side + 1)),
            self.draws.random(),
        )
        made = []
        for place in places:
            data = self.tar.extractfile(self.members[f"c{row:04}.{place:04}.jpg"])
            image = Image.open(data).convert("RGB").crop((left, top, left + side, top + side))
            image = image.resize((224, 224), Image.Resampling.BILINEAR)
            made.append(self.finish(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flip < 0.5 else image))
        return torch.stack(made)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--clips", type=int, default=200)
    parser.add_argument("--frames", type=int, default=180, help="stored frames a clip, UCF101's average by default")
    args = parser.parse_args()
    if args.quick:
        args.clips, args.frames = 24, 64
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_shard(folder, args.clips, args.frames)
        ours = shard_clips(DatasetIndex.open(folder), clip_view(paper_settings("er", dataset="ucf101", preset="as_released")))
        by_hand = ByHand(folder, args.clips, args.frames)
        spent = {"ours": 0.0, "by hand": 0.0}
        for row in range(args.clips):
            for what, load in (("ours", lambda row: ours.load([row], Draw(0, "bench"))), ("by hand", by_hand.load)):
                begin = time.process_time()
                load(row)
                spent[what] += time.process_time() - begin if row >= 2 else 0  # the first two warm up
    for what, seconds in spent.items():
        print(f"{what:8} {(args.clips - 2) / seconds:7.1f} clips a CPU second")
    print(f"ratio {spent['by hand'] / spent['ours']:.2f} times by hand, {args.frames} frames a clip stored, 8 used")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10:.0f} MiB")


if __name__ == "__main__":
    main()
