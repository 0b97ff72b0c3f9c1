"""Draw docs/images/scale.svg: CPU time and memory of stages by their rows, as ``bench_scale.py --record`` wrote them.

python benchmarks/plot_scale.py [benchmarks/scale.csv] [docs/images/scale.svg]
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

HERE = Path(__file__).parent
LIMIT_MB = 3 * 1024
"""Memory that a worker is allowed."""


def main(table: Path, picture: Path) -> None:
    """Read the figures, write the picture."""
    jobs: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    with table.open(newline="") as lines:
        for row in csv.DictReader(lines):
            jobs[row["job"]].append((float(row["millions"]), float(row["cpu"]), float(row["peak_mb"])))
    mpl.rcParams.update({"svg.hashsalt": "scale", "svg.fonttype": "none", "font.size": 9})  # the same bytes in every run
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    times, memory = figure.subplots(1, 2)
    for job, points in sorted(jobs.items()):
        millions, cpu, peak = zip(*sorted(points), strict=True)
        times.loglog(millions, cpu, marker="o", markersize=3, label=job)
        memory.semilogx(millions, peak, marker="o", markersize=3)
    times.set(xlabel="million rows", ylabel="seconds of CPU")
    times.loglog([1, 100], [1, 100], color="grey", linewidth=0.8, linestyle=":", label="1 s a million")
    memory.axhline(LIMIT_MB, color="grey", linewidth=0.8, linestyle=":")
    memory.set(xlabel="million rows", ylabel="peak memory of the process, MB", ylim=(0, LIMIT_MB * 1.1))
    memory.annotate("3 GiB", (1, LIMIT_MB), textcoords="offset points", xytext=(0, 3))
    times.legend(fontsize=7)
    figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    main(*(map(Path, sys.argv[1:]) if sys.argv[1:] else (HERE / "scale.csv", HERE.parent / "docs/images/scale.svg")))
