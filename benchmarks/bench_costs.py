"""What a sample says a run ten times larger would cost, beside what that run then costs: from one sample, and from two.

    python benchmarks/bench_costs.py                        # all six benchmarks
    python benchmarks/bench_costs.py skeleton vclimb
    python benchmarks/bench_costs.py clear --size 2000 --times 10
    python benchmarks/bench_costs.py --quick                # small sizes: nearly all of it is start-up

The benchmark's preset ``tiny`` from drawn data; KOWL's preset ``own`` on drawn lists. The second, smaller sample has a quarter
of the size. Each size runs in a process of its own, since the peak memory is that of a process, after a run of the smaller
sample, which loads and compiles what a process does once. Trainings of one method are estimated, too. An estimate is told how
many rows the sources of the larger run yielded, and CLEAR's ``retrieved``, whose number of rows follows from settings: these
numbers are not tested. A memory with a + is a lower bound.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchwright.curation.cost import CostEstimate
from benchwright.datasets.kowl.example import write_example
from benchwright.pipelines import api
from benchwright.pipelines.cli.text import printed_bytes, printed_time
from benchwright.pipelines.training_costs import training_costs


class Scaled(NamedTuple):
    """How the drawn source of a benchmark grows: the setting, its value in the sample, and in a quick one; what is trained;
    further settings; stages that keep a number of rows that settings give."""

    setting: str
    size: int
    quick: int
    methods: tuple[str, ...]
    more: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()


Figures = dict[str, tuple[float, float, int, int]]
"""CPU seconds, seconds, bytes and peak memory of each stage and training."""

LISTS = "lists"
"""In place of a setting: clips of each class in lists that are written to a folder."""

SCALED = {
    "clear": Scaled("source.count", 2000, 400, ("er",), keeps=("retrieved",)),
    "kowl": Scaled(LISTS, 200, 40, ("ann",)),
    "vclimb": Scaled("source.clips_per_group", 4, 2, ("er",), ("source.broken=false",)),
    "iirc": Scaled("source.train_per_class", 240, 40, ("er",)),
    "skeleton": Scaled("source.per_class", 40, 16, ("er",)),
    "two_camera": Scaled("source.pairs", 1200, 120, ("gray_world",)),
}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmarks", nargs="*", default=[*SCALED], metavar="BENCHMARK")
    parser.add_argument("--size", type=int, help="of the source in the sample: the value of its setting")
    parser.add_argument("--times", type=int, default=10, help="how many times as large it is in the larger run")
    parser.add_argument("--quick", action="store_true", help="samples of a few rows, and runs four times as large")
    parser.add_argument("--into", help=argparse.SUPPRESS)  # in a process of its own: the run of a size
    parser.add_argument("--first", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.into:
        make(arguments.benchmarks[0], arguments.first, arguments.size, Path(arguments.into))
        return
    for name in arguments.benchmarks:
        scaled = SCALED[name]
        size, times = (scaled.quick, 4) if arguments.quick else (arguments.size or scaled.size, arguments.times)
        with tempfile.TemporaryDirectory() as folder:
            estimated(name, (max(size // 4, 1), size, size * times), Path(folder))


def job_of(name: str, size: int, folder: Path) -> api.Job:
    """The benchmark at a size."""
    scaled = SCALED[name]
    if scaled.setting != LISTS:
        return api.job(name, config="tiny", overrides=[f"{scaled.setting}={size}", *scaled.more])
    if not (folder / f"lists {size}").exists():
        write_example(folder / f"lists {size}", clips=size)
    return api.job(name, config="own", overrides=[f"{each}.root={folder}/lists {size}" for each in ("source", "features")])


def make(name: str, first: int, size: int, folder: Path) -> None:
    """Run and train the benchmark at a size, after one of size ``first``."""
    for each, out in ((first, f"{folder}/first of {size}"), (size, f"{folder}/{size}")):
        api.run(job_of(name, each, folder), out)
        api.train(out, methods=SCALED[name].methods)


def estimated(name: str, sizes: tuple[int, int, int], folder: Path) -> None:
    """Run the sizes, smallest first, and print what the smaller ones say of the last."""
    scaled = SCALED[name]
    jobs = [job_of(name, size, folder) for size in sizes]
    outs = [str(folder / str(size)) for size in sizes]
    for size in sizes:
        subprocess.run(
            [sys.executable, __file__, name, "--into", folder, "--first", str(sizes[0]), "--size", str(size)], check=True
        )
    real = {stage["name"]: stage for stage in api.show(outs[2])["stages"]}
    sources = [stage.name for stage in jobs[1].flow(outs[1]).ordered() if not stage.after]
    given = {stage: real[stage]["rows"] for stage in [*sources, *scaled.keeps]}
    for told, smaller in (("one sample", ""), ("two samples", outs[0])):
        print(f"{name}, {scaled.setting} {sizes[1]} to {sizes[2]}, {told}:")
        _compare(api.estimate_costs(jobs[1], outs[1], given, smaller=smaller), measured_in(outs[2]), measured_in(outs[1]))


def measured_in(out: str) -> Figures:
    """What the stages and trainings of a run took."""
    trained = training_costs(out, 0).values()
    found = {each.stage: (each.cpu_seconds, each.seconds, each.bytes, each.peak_bytes) for each in trained}
    for stage in api.show(out)["stages"]:
        cost = stage["cost"]
        found[stage["name"]] = (cost["cpu_seconds"], stage["seconds"], stage["bytes"], cost["peak_bytes"])
    return found


def _compare(found: list[CostEstimate], measured: Figures, sample: Figures) -> None:
    heading = f"{'cpu':>16} {'time':>18} {'files':>20} {'memory':>20}"
    print(f"{'stage':<17} {'rows':>8} {heading}   (estimated / measured)")
    told = [(each.cpu_seconds, each.seconds, each.bytes, each.peak_bytes) for each in found]
    real = [measured[each.stage] for each in found]
    for each, a, b in zip(found, told, real, strict=True):
        marks = f"{'+' if each.peak_at_least else ' '}{' *' if each.rough else ''}"
        print(f"{each.stage:<17} {each.rows:>8,} {_line(a, b)}{marks}")
    a, b, of_sample = (_in_all(each) for each in (told, real, [sample[each.stage] for each in found]))
    print(f"{'all':<17} {'':>8} {_line(a, b)}, in the sample {printed_bytes(of_sample[3])}")
    (low, lowest), *_, (high, highest) = sorted((a[3] / b[3], each.stage) for each, a, b in zip(found, told, real, strict=True))
    print("ratio of the sums, and of the peaks: " + ", ".join(f"{x / y:.2f}" for x, y in zip(a, b, strict=True)))
    print(f"ratio of the peaks of single stages: {low:.2f} ({lowest}) to {high:.2f} ({highest})", flush=True)


def _in_all(figures: list[tuple[float, float, int, int]]) -> tuple[float, float, int, int]:
    cpu, seconds, size, peak = zip(*figures, strict=True)
    return sum(cpu), sum(seconds), sum(size), max(peak)


def _line(a: Sequence[float], b: Sequence[float]) -> str:
    ways = zip(a, b, (16, 18, 20, 20), (printed_time, printed_time, printed_bytes, printed_bytes), strict=True)
    return " ".join(f"{f'{tell(x)} / {tell(y)}':>{wide}}" for x, y, wide, tell in ways)


if __name__ == "__main__":
    main()
