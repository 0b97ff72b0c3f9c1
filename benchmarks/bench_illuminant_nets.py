"""Trainings of the two-camera networks side by side, beside the same ones by one, and beside torch's plain loop on one of them.

3 folds x 10 seeds of 108 drawn rows a size, as for the 162 S20 pairs; full batches. CPU seconds of one thread.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Callable

import numpy as np
import torch
from benchwright.training.two_camera.batched import NetworkRun, fit_runs
from benchwright.training.two_camera.settings import Hyper
from benchwright.training.two_camera.shapes import shape_of
from torch import nn

ROWS = 108


def cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def plain_torch(X: np.ndarray, ratios: np.ndarray, layers: int, steps: int) -> None:
    """One network as one would write it."""
    widths = [nn.Linear(9, 9) for _ in range(layers)]
    model = nn.Sequential(*[part for layer in widths for part in (layer, nn.ReLU())], nn.Linear(9, 2))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    features, truth = torch.from_numpy(X), torch.from_numpy(ratios)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.l1_loss(model(features).exp(), truth).backward()
        optimiser.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="50 steps instead of 500")
    parser.add_argument("--sizes", type=int, nargs="*", default=[200, 470, 1460])
    parser.add_argument("--runs", type=int, default=30)
    args = parser.parse_args()
    torch.set_num_threads(1)
    steps = 50 if args.quick else 500
    draw = np.random.default_rng(0)
    X = draw.normal(size=(ROWS, 9)).astype(np.float32)
    ratios = np.exp(draw.normal(-0.4, 0.2, (ROWS, 2))).astype(np.float32)
    rows = np.arange(ROWS)
    runs = [NetworkRun(rows, rows[:0], seed, "bench") for seed in range(args.runs)]
    hyper = Hyper(steps, 256, 1e-3, "constant", "last", 0.0, steps)
    print(f"{args.runs} runs of {ROWS} rows, {steps} steps; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'':12}{'ms a step of all runs':>23}{'one by one':>12}{'plain torch':>13}")
    for parameters in args.sizes:
        layers = shape_of(parameters)
        fit_runs(X, ratios, runs[:1], shape=layers, hyper=Hyper(3, 256, 1e-3, "constant", "last", 0.0, 1))
        together = cpu_seconds(lambda n=layers: fit_runs(X, ratios, runs, shape=n, hyper=hyper))
        few = runs[: 1 if args.quick else 3]
        alone = cpu_seconds(lambda n=layers, few=few: [fit_runs(X, ratios, [run], shape=n, hyper=hyper) for run in few])
        plain = cpu_seconds(lambda n=layers, few=few: [plain_torch(X, ratios, n, steps) for _ in few])
        one_by_one, by_torch = (seconds * len(runs) / len(few) / together for seconds in (alone, plain))
        print(f"{parameters:12}{together / steps * 1e3:23.2f}{one_by_one:11.1f}x{by_torch:12.1f}x", flush=True)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
