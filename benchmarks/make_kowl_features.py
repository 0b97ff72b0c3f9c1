"""Features of an open world with known structure: eleven increments, new classes in each, novelty that shows or does not.

Samples are Gaussian around centres. In the world "separable" each class has a centre far from all others, so that a sample of a
new class lies where no known class is. In "overlapping" each sample of a new class lies around the centre of a starting class
drawn for it alone: known and novel samples have one distribution, and no predictor can tell them apart. Classes spread as in
the benchmark: a new class comes up in one increment and stays in the later ones, and rows stand as in its increments, known
ones first, then the new.

    python benchmarks/make_kowl_features.py world.npz --world separable
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from benchwright.curation.rng import rng
from benchwright.eval.protocols.open_world.loop import Increment, SplitSamples

WORLDS = ("separable", "overlapping")


def make_world(
    world: str,
    *,
    seed: int,
    increments: int = 10,
    start: int = 20,
    new: int = 2,
    rows: int = 30,
    width: int = 8,
    distance: float = 20.0,
) -> tuple[list[Increment], list[str]]:
    """Increment 0 with ``start`` classes, then ``increments`` with ``new`` classes each.

    Args:
        world: "separable" or "overlapping".
        rows: training rows of a class in an increment; a third as many to validate and to test. Increment 0 has four times
            as many, and known classes have a sixth as many later.
        width: features, noise of standard deviation 1 in each.
        distance: between centres, in standard deviations.

    Returns:
        The increments and the class names.
    """
    if world not in WORLDS:
        raise ValueError(f"world {world!r}: one of {', '.join(WORLDS)}")
    classes = start + new * increments
    centres = (rng(seed, "centres").normal(size=(classes, width)) * distance / np.sqrt(2 * width)).astype(np.float32)
    made: list[Increment] = []
    for t in range(increments + 1):
        known = np.arange(start + new * max(0, t - 1)) if t else np.arange(0)
        fresh = np.arange(start + new * (t - 1), start + new * t) if t else np.arange(start)
        splits = []
        for split, share in (("train", 1.0), ("validate", 1 / 3), ("test", 1 / 3)):
            n_fresh = max(2, round(rows * share * (4 if t == 0 else 1)))
            y = np.concatenate([np.repeat(known, max(1, round(rows * share / 6))), np.repeat(fresh, n_fresh)]).astype(np.int64)
            noise = rng(seed, "noise", f"{t} {split}").standard_normal((len(y), width), dtype=np.float32)
            uid = np.array([f"{t}-{split}-{row}" for row in range(len(y))], dtype=np.str_)
            drawn = rng(seed, "drawn", f"{t} {split}").integers(0, start, len(y))
            around = np.where((y >= start) & (world == "overlapping"), drawn, y)
            splits.append(SplitSamples(uid, centres[around] + noise, y))
        made.append(Increment(str(t), *splits))
    return made, [f"class {label}" for label in range(classes)]


def save_world(path: Path, increments: list[Increment], classes: list[str]) -> None:
    """One .npz: ``<increment>/<split>/<uid|X|y>`` and ``classes``."""
    arrays = {
        f"{t}/{split}/{name}": getattr(samples, name)
        for t, one in enumerate(increments)
        for split, samples in one.splits.items()
        for name in ("uid", "X", "y")
    }
    np.savez(path, allow_pickle=False, classes=np.array(classes), **arrays)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--world", choices=WORLDS, default=WORLDS[0])
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    increments, classes = make_world(args.world, seed=args.seed)
    save_world(args.out, increments, classes)
    rows = sum(len(samples.y) for one in increments for samples in one.splits.values())
    print(f"{args.out}: {len(increments)} increments, {len(classes)} classes, {rows} rows")


if __name__ == "__main__":
    main()
