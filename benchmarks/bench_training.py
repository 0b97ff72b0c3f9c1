"""Train the linear baseline on stored features: our loop beside what a user would write by hand.

Every contestant does one job: for each bucket in turn fine-tune a linear classifier on its training rows (SGD, momentum
0.9, batches of 256, the rate cut to a tenth after 60 % of the epochs) and test it on all buckets. scikit-learn's two
classifiers stand beside for scale: they solve related problems, not the same one. Contestants take turns within one
process; the peak memory is that of a fresh process each.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

CLASSES, WIDTH, PER_BUCKET = 11, 2048, 3300
Bucket = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def make_buckets(count: int) -> list[Bucket]:
    """Drifting Gaussians, 70 % of each bucket to train on: (X_train, y_train, X_test, y_test)."""
    draw = np.random.default_rng(0)
    centres, drift = (draw.normal(scale=s, size=(CLASSES, WIDTH)).astype(np.float32) for s in (0.08, 0.02))
    buckets: list[Bucket] = []
    for bucket in range(count):
        y = draw.integers(0, CLASSES, PER_BUCKET)
        X = draw.standard_normal((PER_BUCKET, WIDTH), dtype=np.float32)
        X += (centres + bucket * drift)[y]
        cut = int(0.7 * PER_BUCKET)
        buckets.append((X[:cut], y[:cut], X[cut:], y[cut:]))
    return buckets


def ours(buckets: list[Bucket], epochs: int) -> np.ndarray:
    """The iid protocol as the command line runs it, checkpoints and predictions on disk included."""
    import pyarrow as pa
    from benchwright.eval.protocols.stream_loop import Position, Stream, Test, run_stream
    from benchwright.training.baselines.clear import paper_settings
    from benchwright.training.core.build import parts_of
    from benchwright.training.core.learner import Learner
    from benchwright.training.data.examples import ArrayExamples
    from benchwright.training.methods.finetune import finetune
    from benchwright.training.models.linear import linear

    _, settings = paper_settings("linear_imagenet")
    changes = {"epochs": epochs, "decay_after_epochs": int(0.6 * epochs)}
    settings = {**settings, "method": {}, "schedule": {**settings["schedule"], **changes}}
    parts = parts_of(settings, finetune, linear, labels="one", classes="same")
    names, everywhere = tuple(map(str, range(CLASSES))), tuple(range(len(buckets)))
    stream = Stream(
        tuple(Position(str(i), ArrayExamples(X, y), () if i else names, everywhere) for i, (X, y, _, _) in enumerate(buckets)),
        tuple(Test(str(i), "test", ArrayExamples(X, y)) for i, (_, _, X, y) in enumerate(buckets)),
    )
    with tempfile.TemporaryDirectory() as folder:
        learner = Learner(parts, sample=(WIDTH,), seed=0)
        rows = pa.concat_tables(run_stream(learner, stream, folder=Path(folder))).to_pylist()
    matrix = np.full((len(buckets), len(buckets)), np.nan)
    truth = {row["tested"]: np.array(row["labels"]) for row in rows if row["labels"] is not None}
    for row in rows:
        if row["predicted"] is not None:
            matrix[row["position"] - 1, int(row["tested"])] = np.mean(np.array(row["predicted"]) == truth[row["tested"]])
    return matrix


def _torch_by_hand(buckets: list[Bucket], epochs: int, loader: bool) -> np.ndarray:
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    model = nn.Linear(WIDTH, CLASSES)
    matrix = np.zeros((len(buckets), len(buckets)))
    for i, bucket in enumerate(buckets):
        X, y = torch.from_numpy(bucket[0]), torch.from_numpy(bucket[1])
        batches = DataLoader(TensorDataset(X, y), batch_size=256, shuffle=True)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        schedule = torch.optim.lr_scheduler.StepLR(optimiser, max(1, int(0.6 * epochs)))
        for _ in range(epochs):
            for features, labels in batches if loader else ((X[r], y[r]) for r in torch.randperm(len(y)).split(256)):
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(features), labels).backward()
                optimiser.step()
            schedule.step()
        with torch.no_grad():
            for j, other in enumerate(buckets):
                matrix[i, j] = (model(torch.from_numpy(other[2])).argmax(1).numpy() == other[3]).mean()
    return matrix


def torch_loader(buckets: list[Bucket], epochs: int) -> np.ndarray:
    """TensorDataset and DataLoader, as in torch's tutorials."""
    return _torch_by_hand(buckets, epochs, loader=True)


def torch_index(buckets: list[Bucket], epochs: int) -> np.ndarray:
    """The same loop over shuffled row numbers, without a loader."""
    return _torch_by_hand(buckets, epochs, loader=False)


def torch_index_one_thread(buckets: list[Bucket], epochs: int) -> np.ndarray:
    """That loop on one thread, as ours runs: what is left is the loop itself."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return torch_index(buckets, epochs)
    finally:
        torch.set_num_threads(before)


def sklearn_sgd(buckets: list[Bucket], epochs: int) -> np.ndarray:
    """SGDClassifier with the logistic loss, one partial_fit an epoch (one row a step, one model a class)."""
    from sklearn.linear_model import SGDClassifier

    model = SGDClassifier(loss="log_loss", random_state=0)
    matrix = np.zeros((len(buckets), len(buckets)))
    for i, (X, y, _, _) in enumerate(buckets):
        for _ in range(epochs):
            model.partial_fit(X, y, classes=np.arange(CLASSES))
        matrix[i] = [model.score(other[2], other[3]) for other in buckets]
    return matrix


def sklearn_logistic(buckets: list[Bucket], epochs: int) -> np.ndarray:
    """LogisticRegression (L-BFGS) with as many iterations as the others have epochs."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    matrix = np.zeros((len(buckets), len(buckets)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for i, (X, y, _, _) in enumerate(buckets):
            model = LogisticRegression(max_iter=epochs).fit(X, y)
            matrix[i] = [model.score(other[2], other[3]) for other in buckets]
    return matrix


CONTESTANTS: dict[str, Callable[[list[Bucket], int], np.ndarray]] = {
    "ours": ours,
    "torch DataLoader": torch_loader,
    "torch, row numbers": torch_index,
    "torch, row numbers, 1 thread": torch_index_one_thread,
    "sklearn SGDClassifier": sklearn_sgd,
    "sklearn LogisticRegression": sklearn_logistic,
}


def peak_mib(name: str, buckets: int) -> float:
    """Peak resident memory of a fresh process that makes the data and runs one contestant for one epoch."""
    command = [sys.executable, __file__, "--alone", name, "--buckets", str(buckets)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="2 buckets, 10 epochs, 1 round")
    parser.add_argument("--buckets", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.alone is not None:
        CONTESTANTS[args.alone](make_buckets(args.buckets), 1)
        # Not getrusage: its maximum is inherited from the parent that started this process.
        status = Path("/proc/self/status").read_text()
        print(int(status.split("VmHWM:")[1].split()[0]) / 1024)
        return
    count, epochs, rounds = (2, 10, 1) if args.quick else (args.buckets, args.epochs, args.rounds)
    buckets = make_buckets(count)
    seconds: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    in_domain: dict[str, float] = {}
    for contestant in CONTESTANTS.values():  # imports and first touches are nobody's time
        contestant([(X[:300], y[:300], Xt[:10], yt[:10]) for X, y, Xt, yt in buckets[:1]], 1)
    for _ in range(rounds):
        for name, contestant in CONTESTANTS.items():
            start = time.perf_counter()
            in_domain[name] = float(np.diagonal(contestant(buckets, epochs)).mean())
            seconds[name].append(time.perf_counter() - start)
    data_mib = sum(array.nbytes for bucket in buckets for array in bucket) / 2**20
    print(f"{count} buckets of {PER_BUCKET:,} x {WIDTH} ({data_mib:.0f} MiB), {epochs} epochs, median of {rounds} rounds")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}: where cores are shared, many threads suffer more than one")
    print(f"{'':30}{'seconds':>9}{'ours is':>10}{'in-domain':>11}{'peak MiB':>10}")
    base = statistics.median(seconds["ours"])
    for name in CONTESTANTS:
        median = statistics.median(seconds[name])
        peak = f"{peak_mib(name, count):.0f}" if not args.quick or name in ("ours", "torch DataLoader") else "-"
        print(f"{name:30}{median:9.2f}{median / base:9.2f}x{in_domain[name]:11.3f}{peak:>10}")


if __name__ == "__main__":
    main()
