"""Annotations in AVA-Kinetics's form for the key frames of a real list that has none: boxes and actions are DRAWN.

The test list of AVA-Kinetics names key frames and nothing else. This draws one to three persons and one to three actions for
each, so that the strata of an open-world run can be tried on real clips. What comes out says nothing about the videos.

    python benchmarks/make_ava_annotations.py ava_kinetics_test_v1.0.csv drawn.csv --seed 0 [--clips index.parquet]

With ``--clips`` the middle of every second clip of a published dataset's index becomes a key frame as well: few of the real
key frames lie in clips of the lists that can be had.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow.parquet as pq
from benchwright.curation.rng import rng


def drawn_lines(video: str, time_s: float, seed: int) -> list[str]:
    """Lines of one key frame."""
    draw = rng(seed, "ava", f"{video} {time_s:.6f}")
    lines: list[str] = []
    actions = draw.choice(80, int(draw.integers(1, 4)), replace=False) + 1
    for person in range(int(draw.integers(1, 4))):
        x, y = draw.uniform(0, 0.4, 2)
        width, height = draw.uniform(0.05, 0.6, 2)
        box = f"{x:.3f},{y:.3f},{x + width:.3f},{y + height:.3f}"
        lines += [f"{video},{time_s:.6f},{box},{action},{person}" for action in sorted(actions.tolist())]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("key_frames", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clips", type=Path)
    args = parser.parse_args()
    frames = [line.split(",")[:2] for line in args.key_frames.read_text().splitlines() if line]
    places = {(video, round(float(time_s), 6)) for video, time_s in frames}
    if args.clips is not None:
        clips = pq.read_table(args.clips, columns=["youtube_id", "time_start", "time_end"]).to_pydict()
        every = zip(clips["youtube_id"], clips["time_start"], clips["time_end"], strict=True)
        places |= {(video, (start + end) / 2) for n, (video, start, end) in enumerate(every) if n % 2 == 0}
    lines = [line for video, time_s in sorted(places) for line in drawn_lines(video, time_s, args.seed)]
    args.out.write_text("\n".join(lines) + "\n")
    print(f"{args.out}: {len(places):,} key frames, {len(lines):,} lines")


if __name__ == "__main__":
    main()
