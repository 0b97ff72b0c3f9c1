"""What a sample says a run ten times larger would cost, beside what that run then costs: from one sample, and from two.

    python benchmarks/bench_costs.py clear [--setting source.count] [--size 2000] [--times 10] [--keeps retrieved]
    python benchmarks/bench_costs.py skeleton --setting source.per_class --size 20

The benchmark's preset ``tiny`` from drawn data. The second, smaller sample has a quarter of the size.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchwright.pipelines import api
from benchwright.pipelines.cli.text import printed_bytes, printed_time


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", nargs="?", default="clear")
    parser.add_argument("--setting", default="source.count", help="which says how large the source is")
    parser.add_argument("--size", type=int, default=2000, help="its value in the sample")
    parser.add_argument("--times", type=int, default=10, help="how many times as large it is in the larger run")
    parser.add_argument(
        "--keeps", nargs="*", default=["retrieved"], help="stages that keep a number of rows that settings give"
    )
    arguments = parser.parse_args()
    sizes = arguments.size // 4, arguments.size, arguments.size * arguments.times
    with tempfile.TemporaryDirectory() as folder:
        jobs = [api.job(arguments.benchmark, config="tiny", overrides=[f"{arguments.setting}={size}"]) for size in sizes]
        outs = [str(Path(folder) / str(size)) for size in sizes]
        for job, out in zip(jobs, outs, strict=True):
            api.run(job, out)
        real = {stage["name"]: stage for stage in api.show(outs[2])["stages"]}
        flow = jobs[1].flow(outs[1])
        sources = [stage.name for stage in flow.ordered() if not stage.after]
        given = {name: real[name]["rows"] for name in [*sources, *arguments.keeps] if name in real}
        for told, smaller in (("one sample", ""), ("two samples", outs[0])):
            print(f"{arguments.benchmark}, {told}:")
            _compare(api.estimate_costs(jobs[1], outs[1], given, smaller=smaller), real)


def _compare(found: list[Any], real: dict[str, Any]) -> None:
    print(f"{'stage':<12} {'rows':>8} {'cpu':>16} {'time':>18} {'files':>20}   (estimated / measured)")
    sums = [0.0] * 6
    for each in found:
        large = real[each.stage]
        pairs = [
            (each.cpu_seconds, large["cost"]["cpu_seconds"]),
            (each.seconds, large["seconds"]),
            (each.bytes, large["bytes"]),
        ]
        sums = [a + b for a, b in zip(sums, [value for pair in pairs for value in pair], strict=True)]
        print(f"{each.stage:<12} {each.rows:>8,} {_line(pairs)}{' *' if each.rough else ''}")
    print(f"{'all':<12} {'':>8} {_line(list(zip(sums[::2], sums[1::2], strict=True)))}")
    print("ratio of the sums: " + ", ".join(f"{a / b:.2f}" for a, b in zip(sums[::2], sums[1::2], strict=True)), flush=True)


def _line(pairs: list[tuple[float, float]]) -> str:
    widths, told = (16, 18, 20), (printed_time, printed_time, printed_bytes)
    return " ".join(f"{f'{tell(a)} / {tell(b)}':>{wide}}" for (a, b), wide, tell in zip(pairs, widths, told, strict=True))


if __name__ == "__main__":
    main()
