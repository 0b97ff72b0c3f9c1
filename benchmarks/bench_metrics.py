"""CLEAR's five metrics: ours beside the loops in which they are usually written, and the same values from both."""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
from benchwright.eval.metrics.clear import IID_METRICS


def ours(matrix: np.ndarray) -> list[float]:
    """Our functions, checks of shape and range included."""
    return [metric(matrix) for metric in IID_METRICS.values()]


def loops(matrix: np.ndarray) -> list[float]:
    """One pass over all cells with five sums."""
    n = len(matrix)
    sums, counts = [0.0] * 5, [0] * 5
    for i in range(n):
        for j in range(n):
            regions = (i == j, j == i + 1, j <= i, j < i, j > i)
            for at, inside in enumerate(regions):
                if inside:
                    sums[at] += matrix[i, j]
                    counts[at] += 1
    return [total / count for total, count in zip(sums, counts, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = 5 if parser.parse_args().quick else 50
    print(f"{'domains':>8}{'ours, ms':>10}{'loops, ms':>11}{'ours is':>9}{'largest difference':>20}")
    for n in (10, 100, 400):
        matrix = np.random.default_rng(n).random((n, n))
        times: dict[str, list[float]] = {"ours": [], "loops": []}
        got: dict[str, list[float]] = {}
        for _ in range(rounds):
            for name, function in (("ours", ours), ("loops", loops)):
                start = time.perf_counter()
                got[name] = function(matrix)
                times[name].append(1000 * (time.perf_counter() - start))
        a, b = statistics.median(times["ours"]), statistics.median(times["loops"])
        difference = max(abs(x - y) for x, y in zip(got["ours"], got["loops"], strict=True))
        print(f"{n:8}{a:10.3f}{b:11.3f}{b / a:8.1f}x{difference:20.1e}")


if __name__ == "__main__":
    main()
