"""A small generated example of your own open world: two releases as lists in different forms, and a file of features."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...curation.rng import rng

_OLD = ("cooking", "cycling", "juggling", "running", "singing", "swimming")
_NEW = ("knitting", "skating", "surfing", "welding")
_WIDTH = 16


def write_example(folder: str | Path, *, clips: int = 40) -> None:
    """Write ``2021.csv``, ``2023.json`` and ``features.parquet``, as preset ``own`` reads them.

    The first release lists its splits. The second is a JSON list of objects without splits and with other column names: it
    contains a third of the first release's clips, four new classes, and one renamed class. The vectors of a class are
    distributed around a centre.

    Args:
        folder: destination; created if it does not exist.
        clips: number of clips per class and release.

    >>> write_example("mine")
    >>> print(open("mine/2021.csv").readlines()[1], end="")
    cam-1/clip 0,cooking,train,v00000
    """
    root, draw = Path(folder), rng(0, "example")
    root.mkdir(parents=True, exist_ok=True)
    centres = {name: draw.normal(0, 3, _WIDTH) for name in (*_OLD, *_NEW)}
    old = [(f"cam-{1 + n % 3}/clip {n}", _OLD[n % len(_OLD)], f"v{n:05}") for n in range(clips * len(_OLD))]
    splits = ("train", "train", "train", "val", "test")
    lines = [f"{clip},{label},{splits[n // len(_OLD) % 5]},{vector}\n" for n, (clip, label, vector) in enumerate(old)]
    (root / "2021.csv").write_text("clip,activity,part,vector\n" + "".join(lines), encoding="utf-8")
    new = [(f"cam-9/clip {n}", (*_NEW, *_OLD)[n % 8], f"w{n:05}") for n in range(clips * 8)]
    renamed = {"running": "running outdoors"}
    rows = [{"file": clip, "what": renamed.get(label, label), "vec": vector} for clip, label, vector in old[::3] + new]
    (root / "2023.json").write_text(json.dumps(rows, indent=0), encoding="utf-8")
    of = [(vector, label) for _, label, vector in old + new]
    vectors = [(centres[label] + draw.normal(size=_WIDTH)).astype(np.float32) for _, label in of]
    pq.write_table(pa.table({"name": [name for name, _ in of], "vector": vectors}), root / "features.parquet")
