"""Methods of CLEAR's Table 1 beside Avalanche's strategies, from which the paper's figures come, on one stream.

    python benchmarks/compare_avalanche.py [--quick] [--methods ewc si] [--seeds 5] [--venv FOLDER] [--matrices]

The stream is drawn: vectors of 512 numbers, 11 classes, 10 buckets, whose class means wander from bucket to bucket by a known
step. Each seed draws another one. Both sides have the same vectors, the same split, a linear model, batches of 256, SGD with
momentum .9 and the paper's hyper-parameters; the last epoch's weights are kept, since Avalanche chooses none. Avalanche 0.6.0
is installed beside this environment's packages into a virtual environment of its own (--venv keeps it).

Printed are the five metrics, mean and standard deviation over seeds, the gap of each in standard deviations of the
difference, and the order of the methods by accuracy on each side.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from benchwright.training.baselines.clear import paper_methods
from numpy.typing import NDArray

CLASSES, BUCKETS, WIDTH, BATCH = 11, 10, 512, 256
PACKAGE = "avalanche-lib==0.6.0"
# Of each row of the table: our method and its settings. Avalanche's strategy is in ``strategy``.
_TABLE = paper_methods()
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: _TABLE[name] for name in ("ewc", "si", "lwf", "cwr", "gdumb", "er")},
    "agem": ("agem", {"memory": "each_position", "sample": "capacity"}),  # Avalanche's own, not that of CLEAR's authors
    "reservoir": _TABLE["reservoir-alpha=1.0-finetune"],
    "biased": _TABLE["dynamic_reservoir-alpha=1.0-finetune"],
}

Drawn = dict[str, NDArray[Any]]


def drawn(seed: int, per_class: int, drift: float, spread: float) -> Drawn:
    """Training and test vectors, ``X_train`` (buckets, n, 512) float32 and ``y_train`` (buckets, n), and the same for tests."""
    draw = np.random.default_rng(seed)
    means = draw.normal(size=(CLASSES, WIDTH))
    found: dict[str, list[NDArray[Any]]] = {"X_train": [], "y_train": [], "X_test": [], "y_test": []}
    for _ in range(BUCKETS):
        for part, count in (("train", per_class), ("test", max(1, per_class * 3 // 7))):
            y = np.repeat(np.arange(CLASSES), count)
            X = means[y] + spread * draw.normal(size=(len(y), WIDTH))
            found[f"X_{part}"].append((X / np.sqrt(WIDTH)).astype(np.float32))
            found[f"y_{part}"].append(y)
        means = means + drift * draw.normal(size=means.shape)
    return {name: np.stack(parts) for name, parts in found.items()}


def ours(stream: Drawn, name: str, seed: int, epochs: int, rate: float) -> list[list[float]]:
    """Accuracy after each bucket on each bucket's test set."""
    from benchwright.training.core.build import Parts
    from benchwright.training.core.criteria import cross_entropy
    from benchwright.training.core.exemplars import Capacity
    from benchwright.training.core.learner import Learner
    from benchwright.training.core.schedule import Schedule
    from benchwright.training.data.examples import ArrayExamples
    from benchwright.training.methods.registry import method
    from benchwright.training.models.linear import linear

    plan = Schedule(
        optimiser="sgd",
        learning_rate=rate,
        momentum=0.9,
        weight_decay=0.0,
        epochs=epochs,
        batch_size=BATCH,
        drop_last=False,
        clip_norm=None,
        mixed_precision=False,
        select="none",
        eval_every=1,
        first_best="nothing",
    )
    known, settings = METHODS[name]
    parts = Parts(method(known, **settings), plan, cross_entropy, linear, {}, Capacity("first_position"), {})
    learner = Learner(parts, sample=(WIDTH,), seed=seed)
    tests = [ArrayExamples(X, y) for X, y in zip(stream["X_test"], stream["y_test"], strict=True)]
    rows: list[list[float]] = []
    for number, (X, y) in enumerate(zip(stream["X_train"], stream["y_train"], strict=True)):
        keys = [f"{number}-{row}" for row in range(len(y))]
        learner.learn(ArrayExamples(X, y, keys), [], classes=0 if number else CLASSES)
        rows.append([float((learner.predict(test) == test.labels).mean()) for test in tests])
    return rows


def theirs(stream: Drawn, name: str, seed: int, epochs: int, rate: float) -> list[list[float]]:
    """The same by Avalanche. Finetuning on a buffer is no strategy of its: it is given the buffers that our rule chooses."""
    import random

    import torch
    from avalanche.benchmarks import tensors_benchmark  # pyright: ignore[reportMissingImports]

    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    sets = []
    for rows in trained_on(stream, name, seed):
        X, y = (stream[f"{part}_train"].reshape(-1, *stream[f"{part}_train"].shape[2:])[rows] for part in "Xy")
        sets.append((torch.from_numpy(X), torch.from_numpy(y)))
    trainer = strategy(name, epochs, rate, len(stream["y_train"][0]))
    found: list[list[float]] = []
    for experience in tensors_benchmark(sets, sets[:1], task_labels=[0] * len(sets)).train_stream:
        # As in the versions of 2021; today's goes on with the last bucket's momentum unless told otherwise.
        trainer.train(experience, reset_optimizer_state=True)
        trainer.model.eval()
        with torch.no_grad():
            outputs = [trainer.model(torch.from_numpy(X)).argmax(1).numpy() for X in stream["X_test"]]
        found.append([float((o == y).mean()) for o, y in zip(outputs, stream["y_test"], strict=True)])
    return found


def trained_on(stream: Drawn, name: str, seed: int) -> Iterator[NDArray[np.int64]]:
    """Rows of the stream that each bucket trains on."""
    from benchwright.training.methods.registry import method

    sizes = [len(y) for y in stream["y_train"]]
    chosen = method(*METHODS[name][:1], **METHODS[name][1]) if name in ("reservoir", "biased") else method("finetune")
    buffer = np.empty(0, dtype=np.int64)
    for count in range(1, len(sizes) + 1):
        buffer = chosen.rule(buffer, sizes[:count], seed=seed)
        yield buffer


def strategy(name: str, epochs: int, rate: float, bucket: int) -> Any:
    """Avalanche's strategy with the paper's settings; where the paper names none, Avalanche's own."""
    import torch
    from avalanche.training import storage_policy, supervised  # pyright: ignore[reportMissingImports]
    from avalanche.training.plugins import ReplayPlugin  # pyright: ignore[reportMissingImports]

    model = torch.nn.Linear(WIDTH, CLASSES)
    base = {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9),
        "criterion": torch.nn.CrossEntropyLoss(),
        "train_mb_size": BATCH,
        "train_epochs": epochs,
        "evaluator": None,
    }
    if name == "er":
        buffer = storage_policy.ReservoirSamplingBuffer(max_size=bucket)
        return supervised.Naive(**base, plugins=[ReplayPlugin(mem_size=bucket, storage_policy=buffer)])
    kinds = {
        "ewc": ("EWC", {"ewc_lambda": 0.4, "mode": "online", "decay_factor": 0.1}),
        "si": ("SynapticIntelligence", {"si_lambda": 1e-4}),
        "lwf": ("LwF", {"alpha": METHODS["lwf"][1]["strength"], "temperature": 1.0}),
        "cwr": ("CWRStar", {"cwr_layer_name": None}),
        "gdumb": ("GDumb", {"mem_size": bucket}),
        "agem": ("AGEM", {"patterns_per_exp": bucket, "sample_size": bucket}),
    }
    kind, settings = kinds.get(name, ("Naive", {}))
    return getattr(supervised, kind)(**base, **settings)


def metrics(matrix: list[list[float]]) -> dict[str, float]:
    """CLEAR's five, in percent."""
    from benchwright.eval.metrics.clear import IID_METRICS

    return {name: 100 * metric(matrix) for name, metric in IID_METRICS.items()}


def environment(folder: Path) -> Path:
    """Python of an environment with Avalanche and the packages of this one."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=False)
        site = next(folder.glob("lib/python*/site-packages"))
        here = next(Path(path) for path in sys.path if path.endswith("site-packages"))
        # A line that runs: the packages' own .pth files, an editable benchwright's among them, are read as well.
        (site / "beside.pth").write_text(f"import site; site.addsitedir({str(here)!r})\n")
        frozen = subprocess.run(
            [sys.executable, "-m", "pip", "freeze", "-q", "--exclude-editable"], check=True, capture_output=True
        )
        (folder / "constraints.txt").write_bytes(frozen.stdout)
        command = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "-c", str(folder / "constraints.txt")]
        command += [PACKAGE]
        subprocess.run(command, check=True)
    return python


def run(side: str, args: argparse.Namespace, name: str, seed: int) -> list[list[float]]:
    """One training in this process."""
    stream = drawn(seed, args.per_class, args.drift, args.spread)
    return (ours if side == "ours" else theirs)(stream, name, seed, args.epochs, args.rate)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--rate", type=float, default=1.0, help="CLEAR's linear model has 1.0")
    parser.add_argument("--per-class", type=int, default=210)
    parser.add_argument(
        "--drift", type=float, default=0.25, help="step of a class mean from bucket to bucket, of N(0, 1) means"
    )
    parser.add_argument("--spread", type=float, default=6.0, help="of samples about their mean")
    parser.add_argument("--quick", action="store_true", help="two seeds, 10 epochs, 40 samples a class")
    parser.add_argument("--matrices", action="store_true", help="print the mean matrices as well")
    parser.add_argument("--venv", type=Path, help="folder of the environment with Avalanche; a temporary one by default")
    parser.add_argument("--side", choices=("theirs",), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.quick:
        args.seeds, args.epochs, args.per_class = 2, 10, 40
    if args.side:
        from benchwright.curation.encoders.torchvision_compat import ensure_torchvision

        library = ensure_torchvision()
        for name in args.methods:
            for seed in range(args.seeds):
                started = time.process_time()
                matrix = run("theirs", args, name, seed)
                print(json.dumps([name, matrix, time.process_time() - started]), flush=True)
        del library
        return
    with tempfile.TemporaryDirectory() as folder:
        python = environment(args.venv or Path(folder) / "venv")
        command = [str(python), "-P", "-W", "ignore", __file__, "--side", "theirs", *sys.argv[1:]]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    table(args, [json.loads(line) for line in output.splitlines() if line.startswith('["')])


def table(args: argparse.Namespace, lines: list[list[Any]]) -> None:
    """Run our side, and print both."""
    print(f"{'':10} {'':6} " + " ".join(f"{name:>22}" for name in metrics([[1.0] * 10] * 10)) + f" {'CPU s':>7}")
    order: dict[str, dict[str, float]] = {"ours": {}, "Avalanche": {}}
    for name in args.methods:
        sides: dict[str, list[dict[str, float]]] = {"ours": [], "Avalanche": []}
        matrices: dict[str, list[list[list[float]]]] = {"ours": [], "Avalanche": []}
        started = time.process_time()
        matrices["ours"] = [run("ours", args, name, seed) for seed in range(args.seeds)]
        spent = {"ours": time.process_time() - started, "Avalanche": sum(line[2] for line in lines if line[0] == name)}
        matrices["Avalanche"] = [line[1] for line in lines if line[0] == name]
        for side, found in matrices.items():
            sides[side] = [metrics(matrix) for matrix in found]
            cells = [[one[metric] for one in sides[side]] for metric in sides[side][0]]
            text = " ".join(f"{statistics.fmean(c):15.2f} ± {statistics.stdev(c):4.2f}" for c in cells)
            print(f"{name:10} {side[:6]:6} {text} {spent[side]:7.1f}")
            order[side][name] = statistics.fmean(one["acc"] for one in sides[side])
            if args.matrices:
                print(np.array2string(100 * np.mean(found, axis=0), precision=1, max_line_width=120))
        gaps: list[float] = []
        for metric in sides["ours"][0]:
            a, b = ([one[metric] for one in sides[side]] for side in ("ours", "Avalanche"))
            spread = (statistics.variance(a) / 2 + statistics.variance(b) / 2) ** 0.5
            gaps.append((statistics.fmean(a) - statistics.fmean(b)) / spread if spread > 1e-9 else float("nan"))
        print(f"{'':10} {'gap':6} " + " ".join(f"{gap:18.1f} sd" for gap in gaps))
    for side, found in order.items():
        print(f"{side}: " + " > ".join(sorted(found, key=lambda name: -found[name])))


if __name__ == "__main__":
    main()
