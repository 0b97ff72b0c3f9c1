"""A benchmark in one file: discs and squares are drawn, people confirm which is which, the confirmed become shards."""

from collections.abc import Iterator
from dataclasses import dataclass, make_dataclass

import numpy as np
from benchwright.curation import flow, png, rows, shards
from benchwright.curation.qa import options, rounds
from benchwright.pipelines.benchmark import Benchmark

Config = make_dataclass("Config", [("count", int)], frozen=True)
ASKED = rounds.Round("drawn", [options.Option("disc"), options.Option("square")], 0, simulated=rounds.Simulated("concept"))


@dataclass(frozen=True)
class Shape:
    key: str
    image: rows.Blob
    concept: str


def draw(*, count: int) -> Iterator[Shape | rows.Rejected]:
    y, x = np.mgrid[-32:32, -32:32]
    for key, name, size in ((f"{n:04}", ("disc", "square")[n % 2], n * 7 % 30) for n in range(count)):
        inside = (np.hypot(x, y) if name == "disc" else np.maximum(abs(x), abs(y))) < size
        image = rows.Blob(png.stored_png((255 * inside).astype(np.uint8)))
        yield Shape(key, image, name) if size > 4 else rows.Rejected(key, "too_small")


def sample(row: Shape) -> dict[str, object]:
    return {"png": row.image.read(), "json": {"shape": row.concept}}


def plan(config: Config, out: str) -> flow.Flow:
    voted = rounds.ask(flow.source("drawn", flow.step(draw, count=config.count), max_rejects=None), ASKED, out)
    placed = flow.step(shards.assign_shards, by=["concept"], max_samples=20)
    return voted.whole("placed", placed, gives=shards.Placed).shards("shards", flow.step(sample))


BENCHMARK = Benchmark("shapes", "Discs and squares", Config, plan, rounds=lambda config: [ASKED])
