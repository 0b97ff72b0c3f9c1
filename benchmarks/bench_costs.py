"""What a sample says a run ten times larger would cost, beside what that run then costs.

CLEAR from drawn photos, without the stage that draws them: listed, checked, bucketed, embedded by the packaged encoder,
retrieved, voted, split, sharded.

    python benchmarks/bench_costs.py [--rows 2000] [--times 10]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchwright.pipelines import api
from benchwright.pipelines.cli.text import printed_bytes, printed_time

SOURCE = "listed"
KEEPS = "retrieved"
"""The stage that keeps a number of rows which its settings give, whatever comes in."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2000, help="rows of the sample")
    parser.add_argument("--times", type=int, default=10, help="how many times as many rows the larger run has")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        shown = {}
        for rows in (arguments.rows, arguments.rows * arguments.times):
            out = str(Path(folder) / str(rows))
            job = api.job("clear", config="tiny", overrides=[f"source.count={rows}"])
            api.run(job, out)
            shown[rows] = {stage["name"]: stage for stage in api.show(out)["stages"]}
        small, large = shown.values()
        sample = str(Path(folder) / str(arguments.rows))
        job = api.job("clear", config="tiny", overrides=[f"source.count={arguments.rows}"])
        given = {SOURCE: arguments.rows * arguments.times, KEEPS: large[KEEPS]["rows"]}
        found = api.estimate_costs(job, sample, given)
        print(f"{'stage':<10} {'rows':>8} {'cpu':>16} {'time':>18} {'files':>20} {'memory':>20}   (estimated / measured)")
        sums = [0.0] * 6
        for each in found:
            real = large[each.stage]
            pairs = [
                (each.cpu_seconds, real["cost"]["cpu_seconds"]),
                (each.seconds, real["seconds"]),
                (each.bytes, real["bytes"]),
            ]
            sums = [a + b for a, b in zip(sums, [value for pair in pairs for value in pair], strict=True)]
            memory = f"{printed_bytes(small[each.stage]['cost']['peak_bytes'])} / {printed_bytes(real['cost']['peak_bytes'])}"
            print(f"{each.stage:<10} {each.rows:>8,} {_line(pairs)} {memory:>20}")
        print(f"{'all':<10} {'':>8} {_line(list(zip(sums[::2], sums[1::2], strict=True)))}")
        print("ratio of the sums: " + ", ".join(f"{a / b:.2f}" for a, b in zip(sums[::2], sums[1::2], strict=True)))


def _line(pairs: list[tuple[float, float]]) -> str:
    widths, told = (16, 18, 20), (printed_time, printed_time, printed_bytes)
    return " ".join(f"{f'{tell(a)} / {tell(b)}':>{wide}}" for (a, b), wide, tell in zip(pairs, widths, told, strict=True))


if __name__ == "__main__":
    main()
