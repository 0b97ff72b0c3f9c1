"""A benchmark in one file: discs and squares are drawn, people confirm which is which, the confirmed become shards."""

from collections.abc import Iterator
from dataclasses import dataclass, make_dataclass

import benchwright as bw
import numpy as np
from benchwright.curation import png
from benchwright.curation.qa import options, rounds

Config = make_dataclass("Config", [("count", int)], frozen=True)
ASKED = rounds.Round("drawn", [options.Option("disc"), options.Option("square")], 0, simulated=rounds.Simulated("concept"))


@dataclass(frozen=True)
class Shape:
    key: str
    image: bw.Blob
    concept: str


def draw(*, count: int) -> Iterator[Shape | bw.Rejected]:
    y, x = np.mgrid[-32:32, -32:32]
    for key, name, size in ((f"{n:04}", ("disc", "square")[n % 2], n * 7 % 30) for n in range(count)):
        inside = (np.hypot(x, y) if name == "disc" else np.maximum(abs(x), abs(y))) < size
        image = bw.Blob(png.stored_png((255 * inside).astype(np.uint8)))
        yield Shape(key, image, name) if size > 4 else bw.Rejected(key, "too_small")


def sample(row: Shape) -> dict[str, object]:
    return {"png": row.image.read(), "json": {"shape": row.concept}}


def plan(config: Config, out: str) -> bw.Flow:
    voted = rounds.ask(bw.source("drawn", bw.step(draw, count=config.count), max_rejects=None), ASKED, out)
    return voted.shards("shards", bw.step(sample), by=["concept"], max_samples=20)


BENCHMARK = bw.Benchmark("shapes", "Discs and squares", Config, plan, rounds=lambda config: [ASKED])
