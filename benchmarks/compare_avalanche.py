"""Methods of CLEAR's Table 1 beside Avalanche's strategies, from which the paper's figures come, on one stream.

    python benchmarks/compare_avalanche.py [--quick] [--whole] [--models small_cnn] [--methods ewc si] [--venv FOLDER]

Two streams are drawn, the same for all seeds: vectors of 512 numbers for a linear model, and small pictures for a network
of three convolutions with batch norm. The class means wander from bucket to bucket by a known step. A seed is of the
training. Both libraries have the same samples and test sets, of one seed the same first weights, the same batch size, SGD
with momentum .9, and the paper's hyper-parameters of the methods. Each draws its own batches and its own memory, but for
finetuning on a buffer, which Avalanche does not have: it is given the rows that our rule chooses. The last epoch's weights
are kept, since Avalanche chooses none. Avalanche 0.6.0 is installed beside this environment's packages into an environment
of its own (--venv keeps it).

Printed are the matrices, means over seeds, the five metrics in percent with their standard deviation over seeds, and ours
less Avalanche's: the mean of the paired differences, and the same in sd. One sd is the standard deviation of one training:
the root of the mean of both sides' variances over seeds. Where both sides are of one distribution, means over five seeds lie
within 2 sd of each other in about 99 of 100 cases. At the end stand all that do not, and the order of the methods by Acc.

With --whole a batch is a whole bucket. Then nothing is drawn but memories, and what keeps none has to give the same to
rounding: "cells" is the largest gap between two cells of the matrices, in percent.

Nine methods are set as Avalanche 0.6.0 has them. The rows with a hyphen have other settings of ours beside the same
strategies: Table 1's own, where it follows the paper or Avalanche's versions of 2021, and LwF as its paper has it.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from benchwright.training.baselines.clear import paper_methods
from numpy.typing import NDArray

PACKAGE = "avalanche-lib==0.6.0"

# Of each row of the table: our method and its settings. Avalanche's strategy is in ``strategy``.
_TABLE = paper_methods()
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: _TABLE[name] for name in ("ewc", "si", "lwf")},
    "cwr": ("cwr", {"form": "as_written"}),
    **{name: _TABLE[name] for name in ("gdumb", "er")},
    "agem": ("agem", {"memory": "each_position", "sample": "capacity"}),
    "reservoir": _TABLE["reservoir-alpha=1.0-finetune"],
    "biased": _TABLE["dynamic_reservoir-alpha=1.0-finetune"],
}
OURS = {
    **METHODS,
    "table1-cwr": _TABLE["cwr"],
    "table1-agem": _TABLE["agem"],
    "paper-lwf": ("lwf", {**_TABLE["lwf"][1], "form": "as_written"}),
}

Drawn = dict[str, NDArray[Any]]
Matrix = list[list[float]]


@dataclasses.dataclass(frozen=True)
class Stream:
    """What is drawn, and how it is learned.

    Attributes:
        sample: shape of a sample.
        coarse: of a class's mean, which is made larger; the same for vectors.
        per_class: training samples a class and bucket; tests have a hundred.
        drift: step of a mean from bucket to bucket, of N(0, 1) means.
        spread: of samples about their mean.
    """

    sample: tuple[int, ...]
    coarse: tuple[int, ...]
    classes: int
    buckets: int
    per_class: int
    drift: float
    spread: float
    epochs: int
    rate: float
    batch: int


STREAMS = {
    "linear": Stream((512,), (512,), 11, 10, 30, 0.4, 7.0, 10, 1.0, 128),
    "small_cnn": Stream((3, 12, 12), (3, 3, 3), 6, 8, 24, 0.3, 5.0, 5, 0.05, 16),
}


def drawn(s: Stream) -> Drawn:
    """``X_train`` (buckets, n, ...) float32 and ``y_train`` (buckets, n), and the same for tests."""
    draw = np.random.default_rng(0)
    means = draw.normal(size=(s.classes, *s.coarse))
    found: dict[str, list[NDArray[Any]]] = {"X_train": [], "y_train": [], "X_test": [], "y_test": []}
    for _ in range(s.buckets):
        for part, count in (("train", s.per_class), ("test", 100)):
            y = np.repeat(np.arange(s.classes), count)
            large = np.kron(means, np.ones([1, *(a // b for a, b in zip(s.sample, s.coarse, strict=True))]))
            X = large[y] + s.spread * draw.normal(size=(len(y), *s.sample))
            found[f"X_{part}"].append((X / np.sqrt(s.sample[-1])).astype(np.float32))
            found[f"y_{part}"].append(y)
        means = means + s.drift * draw.normal(size=means.shape)
    return {name: np.stack(parts) for name, parts in found.items()}


def network(model: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    """What makes our model, and its settings."""
    from benchwright.training.models.linear import linear
    from benchwright.training.models.picture_net import picture_net

    return (linear, {}) if model == "linear" else (picture_net, {"backbone": model, "blocks": 1, "width": 8, "head": "linear"})


def ours(model: str, s: Stream, stream: Drawn, name: str, seed: int) -> Matrix:
    """Accuracy after each bucket on each bucket's test set."""
    from benchwright.training.core.build import Parts
    from benchwright.training.core.criteria import cross_entropy
    from benchwright.training.core.exemplars import Capacity
    from benchwright.training.core.learner import Learner
    from benchwright.training.core.schedule import Schedule
    from benchwright.training.data.examples import ArrayExamples
    from benchwright.training.methods.registry import method

    plan = Schedule(
        optimiser="sgd",
        learning_rate=s.rate,
        momentum=0.9,
        weight_decay=0.0,
        epochs=s.epochs,
        batch_size=s.batch,
        drop_last=False,
        clip_norm=None,
        mixed_precision=False,
        select="none",
        eval_every=1,
        first_best="nothing",
    )
    known, settings = OURS[name]
    parts = Parts(method(known, **settings), plan, cross_entropy, *network(model), Capacity("first_position"), {})
    learner = Learner(parts, sample=s.sample, seed=seed)
    tests = [ArrayExamples(X, y) for X, y in zip(stream["X_test"], stream["y_test"], strict=True)]
    rows: Matrix = []
    for number, (X, y) in enumerate(zip(stream["X_train"], stream["y_train"], strict=True)):
        keys = [f"{number}-{row}" for row in range(len(y))]
        learner.learn(ArrayExamples(X, y, keys), [], classes=0 if number else s.classes)
        rows.append([float((learner.predict(test) == test.labels).mean()) for test in tests])
    return rows


def first_model(model: str, s: Stream, seed: int) -> Any:
    """A torch module with the weights that our learner of that seed begins with."""
    import torch
    from benchwright.training.core.build import classifier_of
    from benchwright.training.core.determinism import generator

    make, settings = network(model)
    whole = classifier_of(make, s.sample, settings, generator(seed, "init", "0"))
    whole.grow(s.classes, generator(seed, "head", "0/0"))
    head = torch.nn.Linear(whole.weight.shape[1], s.classes)
    head.load_state_dict({"weight": whole.weight.detach(), "bias": whole.bias.detach()})
    return torch.nn.Sequential(whole.backbone, head)


def theirs(model: str, s: Stream, stream: Drawn, name: str, seed: int) -> Matrix:
    """The same by Avalanche."""
    import random

    import torch
    from avalanche.benchmarks import tensors_benchmark  # pyright: ignore[reportMissingImports]

    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(1)  # as ours does
    sets = []
    for rows in trained_on(stream, name, seed):
        X, y = (stream[f"{part}_train"].reshape(-1, *stream[f"{part}_train"].shape[2:])[rows] for part in "Xy")
        sets.append((torch.from_numpy(X), torch.from_numpy(y)))
    trainer = strategy(name, first_model(model, s, seed), s, len(stream["y_train"][0]))
    found: Matrix = []
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
    chosen = method(METHODS[name][0], **METHODS[name][1]) if name in ("reservoir", "biased") else method("finetune")
    buffer = np.empty(0, dtype=np.int64)
    for count in range(1, len(sizes) + 1):
        buffer = chosen.rule(buffer, sizes[:count], seed=seed)
        yield buffer


def strategy(name: str, model: Any, s: Stream, bucket: int) -> Any:
    """Avalanche's strategy with the paper's settings; where the paper names none, Avalanche's own."""
    import torch
    from avalanche.training import supervised  # pyright: ignore[reportMissingImports]

    kinds = {
        "ewc": ("EWC", {"ewc_lambda": 0.4, "mode": "online", "decay_factor": 0.1}),
        "si": ("SynapticIntelligence", {"si_lambda": 1e-4}),
        "lwf": ("LwF", {"alpha": METHODS["lwf"][1]["strength"], "temperature": 1.0}),
        "cwr": ("CWRStar", {"cwr_layer_name": None}),
        "gdumb": ("GDumb", {"mem_size": bucket}),
        "er": ("Replay", {"mem_size": bucket}),
        "agem": ("AGEM", {"patterns_per_exp": bucket, "sample_size": bucket}),
    }
    kind, settings = kinds.get(name, ("Naive", {}))
    return getattr(supervised, kind)(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=s.rate, momentum=0.9),
        criterion=torch.nn.CrossEntropyLoss(),
        train_mb_size=s.batch,
        train_epochs=s.epochs,
        evaluator=None,
        **settings,
    )


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


def run(side: str, args: argparse.Namespace, model: str, name: str) -> tuple[list[Matrix], float]:
    """Trainings of all seeds in this process, and their CPU seconds."""
    found, started = args.streams[model], time.process_time()
    teach = ours if side == "ours" else theirs
    return [teach(model, found, drawn(found), name, seed) for seed in range(args.seeds)], time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(STREAMS), default=list(STREAMS))
    parser.add_argument("--methods", nargs="+", choices=list(OURS), default=list(OURS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--whole", action="store_true", help="batches of a whole bucket")
    parser.add_argument("--quick", action="store_true", help="two seeds, two epochs, ten samples a class")
    parser.add_argument("--venv", type=Path, help="folder of the environment with Avalanche; a temporary one by default")
    parser.add_argument("--side", choices=("theirs",), help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.streams = STREAMS
    if args.quick:
        args.seeds = 2
        args.streams = {name: dataclasses.replace(s, epochs=2, per_class=10) for name, s in STREAMS.items()}
    if args.whole:
        args.streams = {name: dataclasses.replace(s, batch=s.classes * s.per_class) for name, s in args.streams.items()}
    if args.side:
        from benchwright.curation.encoders.torchvision_compat import ensure_torchvision

        library = ensure_torchvision()
        for model, name in itertools.product(args.models, dict.fromkeys(_strategy(name) for name in args.methods)):
            print(json.dumps([model, name, *run("theirs", args, model, name)]), flush=True)
        del library
        return
    with tempfile.TemporaryDirectory() as folder:
        python = environment(args.venv or Path(folder) / "venv")
        command = [str(python), "-P", "-W", "ignore", __file__, "--side", "theirs", *sys.argv[1:]]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    known = {(model, name): rest for model, name, *rest in map(json.loads, filter(_told, output.splitlines()))}
    for model in args.models:
        table(args, model, known)


def _strategy(name: str) -> str:
    return name.rpartition("-")[2]


def _told(line: str) -> bool:
    return line.startswith('["')


def table(args: argparse.Namespace, model: str, known: dict[tuple[str, str], Any]) -> None:
    """Run our side, and print both."""
    from benchwright.eval.metrics.clear import IID_METRICS

    print(f"\n{model}: {args.streams[model]}, {args.seeds} seeds")
    apart: list[str] = []
    acc: dict[str, dict[str, list[float]]] = {"ours": {}, "Avalanche": {}}
    for name in args.methods:
        sides = {"ours": run("ours", args, model, name), "Avalanche": known[model, _strategy(name)]}
        for side, (matrices, _) in sides.items():
            print(f"{name}, {side}:\n{np.array2string(100 * np.mean(matrices, axis=0), precision=1, max_line_width=120)}")
        cells = {m: [[100 * f(matrix) for matrix in runs] for runs, _ in sides.values()] for m, f in IID_METRICS.items()}
        for number, (side, (_, spent)) in enumerate(sides.items()):
            acc[side][name] = cells["acc"][number]
            told = (f"{m} {statistics.fmean(v[number]):.2f} ± {statistics.stdev(v[number]):.2f}" for m, v in cells.items())
            print(f"{name:12} {side:10} {'   '.join(told)}   ({spent:.0f} s of CPU)")
        told = []
        for metric, (a, b) in cells.items():
            gap, sd = statistics.fmean(x - y for x, y in zip(a, b, strict=True)), _sd(a, b)
            told.append(f"{metric} {gap:+.2f}, {gap / sd:+.1f} sd")
            apart += [f"{name} {told[-1]}"] if abs(gap) > 2 * sd else []
        cell = 100 * np.abs(np.subtract(*(matrices for matrices, _ in sides.values()))).max()
        print(f"{name:12} {'difference':10} {'   '.join(told)}   cells {cell:.2f}")
    print(f"{model}, beyond 2 sd: " + ("; ".join(apart) or "none"))
    order(model, {side: {name: found[name] for name in found if name in METHODS} for side, found in acc.items()})


def _sd(a: list[float], b: list[float]) -> float:
    return max(((statistics.variance(a) + statistics.variance(b)) / 2) ** 0.5, 1e-9)


def order(model: str, acc: dict[str, dict[str, list[float]]]) -> None:
    """Print the order by mean Acc, and for how many pairs of methods, more than 2 sd apart on a side, the other agrees."""
    for side, found in acc.items():
        print(f"{model}, {side}: " + " > ".join(sorted(found, key=lambda name: -statistics.fmean(found[name]))))
    same, turned, open_ = 0, list[str](), list[str]()
    pairs = list(itertools.combinations(acc["ours"], 2))
    for one, other in pairs:
        signs: list[int] = []
        for found in acc.values():
            gap = statistics.fmean(found[one]) - statistics.fmean(found[other])
            signs.append(0 if abs(gap) <= 2 * _sd(found[one], found[other]) else 1 if gap > 0 else -1)
        same += signs[0] == signs[1] != 0
        turned += [f"{one}/{other}"] if signs[0] * signs[1] < 0 else []
        open_ += [f"{one}/{other}"] if 0 in signs and signs[0] != signs[1] else []
    print(
        f"{model}: of {len(pairs)} pairs of methods {same} are more than 2 sd apart on both sides in the same order; in "
        f"opposite order: {', '.join(turned) or 'none'}; on one side alone: {', '.join(open_) or 'none'}; the others on none"
    )


if __name__ == "__main__":
    main()
