"""What a sample says a run ten times larger would cost, beside what that run then costs: from one sample, and from two.

    python benchmarks/bench_costs.py                        # all six benchmarks
    python benchmarks/bench_costs.py skeleton vclimb
    python benchmarks/bench_costs.py clear --size 2000 --times 10
    python benchmarks/bench_costs.py --quick                # small sizes: nearly all of it is start-up

The benchmark's preset ``tiny`` from drawn data; KOWL's preset ``own`` on drawn lists. The second, smaller sample has a quarter
of the size. Trainings of one method are estimated, too. An estimate is told how many rows the sources of the larger run
yielded, and CLEAR's ``retrieved``, whose number of rows follows from settings: these numbers are not tested.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

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
    arguments = parser.parse_args()
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
    write_example(folder / f"lists {size}", clips=size)
    return api.job(name, config="own", overrides=[f"{each}.root={folder}/lists {size}" for each in ("source", "features")])


def estimated(name: str, sizes: tuple[int, int, int], folder: Path) -> None:
    """Run the sizes, smallest first, and print what the smaller ones say of the last."""
    scaled = SCALED[name]
    jobs = [job_of(name, size, folder) for size in sizes]
    outs = [str(folder / str(size)) for size in sizes]
    first = str(folder / "first")  # loads and compiles what a process does once
    for job, out in [(jobs[0], first), *zip(jobs, outs, strict=True)]:
        api.run(job, out)
        api.train(out, methods=scaled.methods)
    real = {stage["name"]: stage for stage in api.show(outs[2])["stages"]}
    sources = [stage.name for stage in jobs[1].flow(outs[1]).ordered() if not stage.after]
    given = {stage: real[stage]["rows"] for stage in [*sources, *scaled.keeps]}
    for told, smaller in (("one sample", ""), ("two samples", outs[0])):
        print(f"{name}, {scaled.setting} {sizes[1]} to {sizes[2]}, {told}:")
        _compare(api.estimate_costs(jobs[1], outs[1], given, smaller=smaller), real, outs[2])


def _compare(found: list[CostEstimate], real: dict[str, Any], out: str) -> None:
    trained = training_costs(out, 0)
    measured = {name: (each.cpu_seconds, each.seconds, each.bytes) for name, each in trained.items()}
    measured |= {name: (stage["cost"]["cpu_seconds"], stage["seconds"], stage["bytes"]) for name, stage in real.items()}
    print(f"{'stage':<12} {'rows':>8} {'cpu':>16} {'time':>18} {'files':>20}   (estimated / measured)")
    sums = [0.0] * 6
    for each in found:
        pairs = [*zip((each.cpu_seconds, each.seconds, each.bytes), measured[each.stage], strict=True)]
        sums = [a + b for a, b in zip(sums, [value for pair in pairs for value in pair], strict=True)]
        print(f"{each.stage:<12} {each.rows:>8,} {_line(pairs)}{' *' if each.rough else ''}")
    print(f"{'all':<12} {'':>8} {_line(list(zip(sums[::2], sums[1::2], strict=True)))}")
    print("ratio of the sums: " + ", ".join(f"{a / b:.2f}" for a, b in zip(sums[::2], sums[1::2], strict=True)), flush=True)


def _line(pairs: list[tuple[float, float]]) -> str:
    widths, told = (16, 18, 20), (printed_time, printed_time, printed_bytes)
    return " ".join(f"{f'{tell(a)} / {tell(b)}':>{wide}}" for (a, b), wide, tell in zip(pairs, widths, told, strict=True))


if __name__ == "__main__":
    main()
