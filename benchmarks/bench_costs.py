"""What a sample says a run ten times larger would cost, beside what that run then costs: from one sample, and from two.

    python benchmarks/bench_costs.py                        # all six benchmarks
    python benchmarks/bench_costs.py skeleton vclimb
    python benchmarks/bench_costs.py clear --size 2000 --times 10
    python benchmarks/bench_costs.py --quick                # small sizes: nearly all of it is start-up

The benchmark's preset ``tiny`` from drawn data. The second, smaller sample has a quarter of the size. What KOWL draws has two
sizes alone, a thousand and 840,213 rows: its estimate is of a run 820 times larger, from one sample.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from benchwright.curation.cost import CostEstimate
from benchwright.pipelines import api
from benchwright.pipelines.cli.text import printed_bytes, printed_time
from benchwright.pipelines.experiments import training_costs


class Scaled(NamedTuple):
    """How the drawn source of a benchmark grows: the setting, its value in the sample, and in a quick one; what is trained;
    further settings; stages that keep a number of rows that settings give."""

    setting: str
    size: int
    quick: int
    methods: tuple[str, ...]
    more: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()


SCALED = {
    "clear": Scaled("source.count", 2000, 400, ("er",), keeps=("retrieved",)),
    "vclimb": Scaled("source.clips_per_group", 4, 2, ("er",), ("source.broken=false",)),
    "iirc": Scaled("source.train_per_class", 240, 40, ("er",)),
    "skeleton": Scaled("source.per_class", 40, 16, ("er",)),
    "two_camera": Scaled("source.pairs", 1200, 120, ("gray_world",)),
}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*SCALED, "kowl"]
    parser.add_argument("benchmarks", nargs="*", default=names, metavar="BENCHMARK")
    parser.add_argument("--size", type=int, help="of the source in the sample: the value of its setting")
    parser.add_argument("--times", type=int, default=10, help="how many times as large it is in the larger run")
    parser.add_argument("--quick", action="store_true", help="samples of a few rows, and runs four times as large; not KOWL")
    arguments = parser.parse_args()
    for name in arguments.benchmarks:
        if name == "kowl":
            if not arguments.quick:
                estimated(name, [["source.drawing=tiny"], ["source.drawing=published"]])
            continue
        scaled = SCALED[name]
        size, times = (scaled.quick, 4) if arguments.quick else (arguments.size or scaled.size, arguments.times)
        sizes = max(size // 4, 1), size, size * times
        estimated(name, [[f"{scaled.setting}={each}", *scaled.more] for each in sizes], scaled.methods, scaled.keeps)


def estimated(name: str, sizes: list[list[str]], methods: tuple[str, ...] = (), keeps: tuple[str, ...] = ()) -> None:
    """Run the sizes, the last of which the others estimate: overrides of each, smallest first."""
    with tempfile.TemporaryDirectory() as folder:
        jobs = [api.job(name, config="tiny", overrides=size) for size in sizes]
        outs = [str(Path(folder) / str(place)) for place in range(len(sizes))]
        first = str(Path(folder) / "first")  # loads and compiles what a process does once
        for job, out in [(jobs[0], first), *zip(jobs, outs, strict=True)]:
            api.run(job, out)
            if methods:
                api.train(out, methods=methods)
        real = {stage["name"]: stage for stage in api.show(outs[-1])["stages"]}
        sources = [stage.name for stage in jobs[-2].flow(outs[-2]).ordered() if not stage.after]
        given = {stage: real[stage]["rows"] for stage in [*sources, *keeps]}
        for told, smaller in (("one sample", ""), ("two samples", outs[0]))[: len(sizes) - 1]:
            print(f"{name}, {' '.join(sizes[-2])} to {' '.join(sizes[-1])}, {told}:")
            _compare(api.estimate_costs(jobs[-2], outs[-2], given, smaller=smaller), real, outs[-1])


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
