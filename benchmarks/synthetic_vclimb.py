"""Class-incremental learning of synthetic clips: who forgets, and what temporal consistency gives where clips keep few frames.

Clips are drawn by numpy. A class is a look (the two colours of a disc) and a motion (the direction in which the disc travels,
which each frame shows by the disc's trail). The disc is on screen in one stretch of the clip alone, over a background that
drifts through colours of its own: most frames say nothing of the class, as in untrimmed video. Each task brings two classes, or
``--classes`` divided by ``--tasks``. With ``--frames 24 --shown 1`` a clip is that stretch alone, as in trimmed video.

    python benchmarks/synthetic_vclimb.py --quick
    python benchmarks/synthetic_vclimb.py --seeds 3 --out table.json
    python benchmarks/synthetic_vclimb.py --seeds 3 --frames 24 --shown 1
    python benchmarks/synthetic_vclimb.py --seeds 1 --classes 40 --tasks 20 --train 12 --memory 100

Prints Acc and BWF of each method over seeds, which orders hold, and the CPU time: about four minutes a seed for all methods.
Temporal consistency also shows every clip twice a step. ``icarl+tc.all`` is the control for that: its second view is drawn from
all frames of a clip. ``icarl+tc.released`` has the frames of the released code, and blanks for stored clips. iCaRL learns from
all rows; with ``--targets as_released`` the last, incomplete batch has targets of 0, as in the released code. EWC and MAS are
trained as the others are, with strengths that suit so small a network: not the paper's. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import multiprocessing
import os
import resource
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pyarrow as pa
from benchwright.curation.registry import load_name
from benchwright.curation.rng import rng
from benchwright.curation.stage_rows import PartInfo, Rows
from benchwright.curation.store import Store
from benchwright.eval.protocols.class_incremental import class_stream, measure_classes
from benchwright.eval.protocols.stream_loop import run_stream
from benchwright.pipelines.vclimb.stream import clip_view, narrowings
from benchwright.training.baselines.vclimb import paper_settings
from benchwright.training.core.build import parts_of
from benchwright.training.core.learner import Learner
from benchwright.training.data.clips import Clips
from benchwright.training.methods.registry import METHODS
from benchwright.training.models.tsn import tsn

SIDE_PX = 32
LOOKS = (((230, 60, 60), (250, 220, 90)), ((60, 90, 230), (120, 230, 240)), ((50, 170, 70), (200, 120, 230)))
LOOKS += tuple((outer, inner) for inner, outer in LOOKS)
LOOKS += tuple((LOOKS[at][0], LOOKS[(at + 1) % 3][side]) for side in (0, 1) for at in range(3))
MOTIONS = ((1, 0), (0, 1), (1, 1), (1, -1))  # directions in (x, y)
CLASSES = len(LOOKS) * len(MOTIONS)
BASE = ["finetune", "ewc", "mas", "lwf", "er", "icarl", "bic", "joint"]


def draw_clip(label: int, frames: int, draws: np.random.Generator, *, shown: float) -> np.ndarray:
    """(frames, 32, 32, 3) uint8: a disc of the class's look crosses in the class's direction during ``shown`` of the clip."""
    block, place = divmod(label, 3 * len(MOTIONS))  # three looks in all motions, then the next three
    look = np.array(LOOKS[3 * block + place % 3], dtype=np.float64)
    motion = np.array(MOTIONS[place // 3], dtype=np.float64)
    motion /= np.linalg.norm(motion)
    y, x = np.mgrid[0:SIDE_PX, 0:SIDE_PX].astype(np.float64)
    phase, tilt = draws.uniform(0, 2 * np.pi, 3), draws.normal(size=(3, 2)) / 8
    speed = draws.uniform(0.02, 0.12, 3)
    length = max(2, int(frames * shown))
    begin = int(draws.integers(0, frames - length + 1))
    across = draws.uniform(-7, 7) * np.array([-motion[1], motion[0]])
    way = draws.choice([-1, 1]) * motion
    clip = np.empty((frames, SIDE_PX, SIDE_PX, 3))
    for t in range(frames):
        wave = phase + speed * t + x[..., None] * tilt[:, 0] + y[..., None] * tilt[:, 1]
        clip[t] = 110 + 25 * np.sin(wave)
        if begin <= t < begin + length:
            where = 16 + across + way * (26 * ((t - begin) / (length - 1)) - 13)
            for back, strength in ((9, 0.35), (6, 0.5), (3, 0.7), (0, 1.0)):  # the trail first, the disc over it
                spot = where - back * way
                distance = np.hypot(x - spot[0], y - spot[1])
                colour = np.where((distance < 3)[..., None], look[0], look[1])
                clip[t] = np.where((distance < 5)[..., None], strength * colour + (1 - strength) * clip[t], clip[t])
    clip += draws.normal(scale=12, size=clip.shape)
    return clip.clip(0, 255).astype(np.uint8)


def make_clips(seed: int, *, tasks: int, classes: int, counts: dict[str, int], frames: int, shown: float):
    """Columns and clips of the whole set. The seed determines clips and order of the classes, whatever the number of tasks."""
    columns: dict[str, list] = {"key": [], "label": [], "task": [], "role": [], "clip": []}
    order = rng(seed, "synthetic.order").permutation(classes)
    for place, kind in enumerate(order.tolist()):
        for role, count in counts.items():
            for number in range(count):
                key = f"{role}-{kind:02}-{number:03}"
                columns["clip"].append(draw_clip(kind, frames, rng(seed, "synthetic.clip", key), shown=shown))
                for name, value in (("key", key), ("label", place), ("task", place * tasks // classes), ("role", role)):
                    columns[name].append(value)
    return columns


def settings_of(name: str, args: argparse.Namespace) -> dict:
    """The paper's settings, with a small network and a schedule that suits it; the changes are all here."""
    frames = args.memory_frames if args.memory_frames else "all"
    plain, _, variant = name.partition("+tc")
    released = "as_released" if variant == ".released" else "as_written"
    settings = paper_settings(
        plain + ("+tc" if "+tc" in name else ""), dataset="ucf101", frames=frames, variant=released, preset="as_released"
    )
    settings["model"] = {"backbone": "small_cnn", "dropout": 0.2, "head_std": None, "width": 8}
    settings["view"] |= {"side_px": 28, "scales": [1.0, 0.875], "flip": 0.0}
    settings["schedule"] |= {"epochs": args.epochs, "batch_size": 16, "first_best": "nothing"}
    if settings["schedule"]["optimiser"] == "sgd":
        settings["schedule"] |= {"learning_rate": 0.02}
    settings["memory"]["size"] = args.memory
    if variant == ".all":
        settings["consistency"]["frames"] = "all"
    if plain == "icarl":
        settings["method"]["targets"] = args.targets
    if plain in ("ewc", "mas"):
        settings["schedule"] |= {"optimiser": "sgd", "learning_rate": 0.02, "momentum": 0.9}
        settings["method"]["strength"] = {"ewc": args.ewc, "mas": args.mas}[plain]
    return settings


def run_one(name: str, seed: int, columns: dict, args: argparse.Namespace, out: Path) -> dict:
    settings = settings_of(name, args)
    labels, counts = np.array(columns["label"]), np.array([len(clip) for clip in columns["clip"]])
    frames = columns["clip"]
    clips = Clips(lambda row, places: [frames[row][at] for at in places], columns["key"], labels, counts, clip_view(settings))
    stream = class_stream(columns["task"], columns["role"], labels, [f"c{label}" for label in labels], clips.take)
    parts = parts_of(settings, load_name(METHODS, name.partition("+tc")[0]), tsn, labels="one", classes="new")
    keep, second = narrowings(settings)
    view = settings["view"]
    sample = (view["segments"], 3, view["side_px"], view["side_px"])
    folder = out / f"{name}-{seed}"
    folder.mkdir()
    table = pa.concat_tables(
        run_stream(Learner(parts, sample=sample, seed=seed, keep=keep, second=second), stream, folder=folder)
    )
    rows = Rows(Store(str(folder)), table.schema, (PartInfo("in memory", table.num_rows),), {"in memory": table})
    values = list(measure_classes(predictions=rows))
    last = next(value for value in values if value.metric == "accuracy" and value.position == len(stream.positions))
    found = {value.metric: value.value for value in values if value.position is None}
    return {**found, "memory": {"samples": last.memory_samples or 0, "parts": last.memory_parts or 0}}


def run_seed(seed: int, args: argparse.Namespace) -> dict[str, dict]:
    """Method -> its measures, on the clips of this seed."""
    counts = {"train": args.train, "val": 6, "test": 16}
    clips = {"counts": counts, "frames": args.frames, "shown": args.shown}
    columns = make_clips(seed, tasks=args.tasks, classes=args.classes, **clips)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in args.methods:
            begin = time.process_time()
            measures = run_one(name, seed, columns, args, Path(folder))
            found[name] = {**measures, "cpu_s": time.process_time() - begin}
            print(f"  seed {seed} {name}: Acc {100 * measures['acc_unweighted']:.1f}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 tasks, 6 epochs, one seed")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="seeds side by side, a process each")
    parser.add_argument("--tasks", type=int, default=5)
    parser.add_argument("--classes", type=int, help=f"in all, at most {CLASSES}; default: two a task")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--train", type=int, default=30, help="clips a class")
    parser.add_argument("--frames", type=int, default=48, help="frames a clip")
    parser.add_argument("--shown", type=float, default=0.5, help="share of a clip in which the class is on screen")
    parser.add_argument("--memory", type=int, default=48, help="clips in memory")
    parser.add_argument("--memory-frames", type=int, default=4, help="frames a stored clip; 0 for all")
    parser.add_argument("--targets", choices=("all_rows", "as_released"), default="all_rows", help="of iCaRL")
    parser.add_argument("--ewc", type=float, default=10.0)
    parser.add_argument("--mas", type=float, default=1.0)
    parser.add_argument("--methods", nargs="*", default=[*BASE, "er+tc", "icarl+tc", "icarl+tc.all", "icarl+tc.released"])
    parser.add_argument("--out", type=Path, help="where the table goes, as JSON")
    args = parser.parse_args()
    if args.quick:
        args.tasks, args.epochs, args.seeds, args.train, args.frames, args.memory = 3, 6, 1, 12, 24, 12
    args.classes = args.classes or 2 * args.tasks
    if args.classes > CLASSES or args.classes % args.tasks:
        parser.error(f"--classes {args.classes}: at most {CLASSES}, and as many in each of the {args.tasks} tasks")
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    if args.jobs == 1:
        found = [run_seed(seed, args) for seed in seeds]
    else:
        with concurrent.futures.ProcessPoolExecutor(args.jobs, multiprocessing.get_context("spawn")) as pool:
            found = list(pool.map(run_seed, seeds, [args] * len(seeds)))
    table = {name: [one[name] for one in found] for name in args.methods}
    show(table, args)
    if args.out:
        args.out.write_text(json.dumps(table, indent=2, sort_keys=True) + "\n")


def show(table: dict[str, list[dict]], args: argparse.Namespace) -> None:
    print(
        f"{args.tasks} tasks of {args.classes // args.tasks} classes, {args.train} clips a class of {args.frames} frames, "
        f"memory {args.memory} clips of {args.memory_frames or 'all'} frames, {args.epochs} epochs, {args.seeds} seeds; "
        f"chance {100 / args.classes:.1f} %"
    )
    print(f"{'method':20} {'Acc %':>14} {'BWF %':>14} {'memory':>18} {'CPU s a run':>12}")
    mean: dict[str, float] = {}
    for name, runs in table.items():
        acc, bwf = (np.array([100 * run[key] for run in runs]) for key in ("acc_unweighted", "bwf_unweighted"))
        mean[name] = float(acc.mean())
        memory = f"{runs[0]['memory']['samples']} clips/{runs[0]['memory']['parts']} fr." if runs[0]["memory"]["parts"] else "-"
        spread = f"{acc.mean():6.1f} ± {acc.std():4.1f}", f"{bwf.mean():6.1f} ± {bwf.std():4.1f}"
        print(f"{name:20} {spread[0]:>14} {spread[1]:>14} {memory:>18} {np.mean([run['cpu_s'] for run in runs]):12.1f}")
    for low, high in (("ewc", "er"), ("er", "icarl"), ("er", "er+tc"), ("icarl", "icarl+tc")):
        if low in mean and high in mean:
            print(f"{low} <= {high}: {'yes' if mean[low] <= mean[high] else 'NO'} ({mean[low]:.1f}, {mean[high]:.1f})")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10:.0f} MiB")


if __name__ == "__main__":
    main()
