"""Skeletons: NTU's text beside the ways in which it is read elsewhere, 1,484 sequences from JSON to tensors beside a script.

The text is drawn: files of one or two bodies of 25 joints, with as many digits as the real ones have. All readers read the same
files in turn, round by round; the ratio is the median over rounds of the ratio inside a round. Times are CPU seconds of the
process. Without ``--nwucla`` the sequences are drawn as well, of the lengths of N-UCLA's. Peak memory is that of the process.

    python benchmarks/bench_skeleton.py [--quick] [--files 40] [--rounds 7] [--nwucla FOLDER]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from benchwright.curation.cost import peak_bytes_of_all
from benchwright.curation.flow import Flow
from benchwright.curation.run import run
from benchwright.datasets.skeleton.facts import facts
from benchwright.datasets.skeleton.ntu_text import parse_skeleton
from benchwright.pipelines import config
from benchwright.pipelines.skeleton import pipeline as skeleton
from benchwright.pipelines.skeleton.config import SkeletonConfig

JOINTS = 25
BODY = (
    "bodyID",
    "clipedEdges",
    "leftConfidence",
    "left",
    "rightConfidence",
    "right",
    "resticted",
    "leanX",
    "leanY",
    "tracking",
)
JOINT = ("x", "y", "z", "depthX", "depthY", "colorX", "colorY", "w", "qx", "qy", "qz", "tracking")


def skeleton_file(frames: int, bodies: int, rng: np.random.Generator) -> str:
    """A file of NTU's format, about 2.9 KB a body and frame."""
    scale = np.asarray([0.4, 0.4, 3, 200, 200, 900, 500, 0.5, 0.5, 0.5, 0.5])
    lines = [str(frames)]
    for _ in range(frames):
        lines.append(str(bodies))
        for body in range(bodies):
            lines.append(f"{72057594037931101 + body} 0 1 0 1 0 0 0.{rng.integers(10**7):07d} -0.{rng.integers(10**7):07d} 2")
            lines.append(str(JOINTS))
            lines += [" ".join(f"{v:.7g}" for v in row) + " 2" for row in rng.normal(size=(JOINTS, len(scale))) * scale]
    return "\r\n".join(lines) + "\r\n"


# ------------------------------------------------------------------------------------------------------- readers of text


def words_of_lines(path: Path) -> np.ndarray:
    """Line by line, every word a float: the plain reader that the ratio is taken of."""
    found: list[list[float]] = []
    with open(path) as stream:
        for _ in range(int(stream.readline())):
            for _ in range(int(stream.readline())):
                stream.readline()
                found += [[float(word) for word in stream.readline().split()] for _ in range(int(stream.readline()))]
    return np.asarray(found)[:, :3]


def three_words(path: Path) -> np.ndarray:
    """The same, but no more than three words of a line are made numbers."""
    found: list[list[float]] = []
    with open(path) as stream:
        for _ in range(int(stream.readline())):
            for _ in range(int(stream.readline())):
                stream.readline()
                found += [[float(word) for word in stream.readline().split()[:3]] for _ in range(int(stream.readline()))]
    return np.asarray(found)


def named_fields(path: Path) -> np.ndarray:
    """Dictionaries of named fields, as the readers that come with ST-GCN and 2s-AGCN make them."""
    found: list[list[float]] = []
    with open(path) as stream:
        for _ in range(int(stream.readline())):
            for _ in range(int(stream.readline())):
                dict(zip(BODY, map(float, stream.readline().split()), strict=False))
                for _ in range(int(stream.readline())):
                    joint = dict(zip(JOINT, map(float, stream.readline().split()), strict=False))
                    found.append([joint["x"], joint["y"], joint["z"]])
    return np.asarray(found)


def array_a_line(path: Path) -> np.ndarray:
    """Two small arrays a line, joints and places in the picture, as CTR-GCN's reader makes them."""
    found: list[np.ndarray] = []
    with open(path) as stream:
        lines = iter(stream.readlines())
    for _ in range(int(next(lines))):
        for _ in range(int(next(lines))):
            next(lines)
            for _ in range(int(next(lines))):
                words = next(lines).split()
                found.append(np.array(words[:3], dtype=np.float32))
                np.array(words[5:7], dtype=np.float32)
    return np.stack(found)


def numpy_loadtxt(path: Path) -> np.ndarray:
    """numpy.loadtxt over the lines that are long enough to be joints."""
    with open(path) as stream:
        lines = [line for line in stream if line.count(" ") == 11]
    return np.loadtxt(lines, usecols=(0, 1, 2))


def ours(path: Path) -> np.ndarray:
    """The reader of this project, which checks every count."""
    return parse_skeleton(path.read_bytes(), joints=JOINTS).joints.reshape(-1, 3)


def bench_text(files: int, rounds: int, quick: bool) -> None:
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{n:04d}.skeleton" for n in range(files)]
        for number, path in enumerate(paths):
            path.write_text(skeleton_file(int(rng.integers(40, 140)), 2 if number % 5 == 4 else 1, rng), newline="")
        size = sum(path.stat().st_size for path in paths)
        readers = [ours, words_of_lines, named_fields, array_a_line, three_words, *([] if quick else [numpy_loadtxt])]
        for read in readers[1:]:
            assert np.allclose(read(paths[0]), ours(paths[0]), rtol=1e-6, atol=0)
        times: dict[str, list[float]] = {read.__name__: [] for read in readers}
        for _ in range(rounds):
            for read in readers:
                times[read.__name__].append(cpu(lambda read=read: [read(path) for path in paths])[0])
    print(f"{files} files, {size / 1e6:.1f} MB of NTU's text, CPU seconds of one process, median of {rounds} rounds")
    for read in readers:
        mine = times[read.__name__]
        ratio = statistics.median(other / own for other, own in zip(mine, times["ours"], strict=True))
        told = (read.__doc__ or "").split(":")[0].rstrip(".")
        print(f"  {statistics.median(mine):7.3f} s {size / 1e6 / statistics.median(mine):7.1f} MB/s  x{ratio:5.1f}  {told}")


# ------------------------------------------------------------------------------------------------------ JSON to tensors


def drawn_json(folder: Path, count: int) -> None:
    """Sequences under N-UCLA's names, ten classes in turn."""
    rng = np.random.default_rng(1)
    for number in range(count):
        label = number % 10
        subject, repetition, view = number // 500 + 1, number // 30 % 17, number // 10 % 3 + 1
        name = f"a{facts().nwucla.actions[label]:02d}_s{subject:02d}_e{repetition:02d}_v{view:02d}"
        joints = rng.normal(size=(int(rng.integers(6, 70)), 20, 3)).round(6).tolist()
        (folder / f"{name}.json").write_text(json.dumps({"file_name": name, "label": label + 1, "skeletons": joints}))


def script(folder: Path) -> np.ndarray:
    """What a feeder does when it loads: json.load, centre, scale, 52 frames; nothing is checked or kept."""
    found: list[np.ndarray] = []
    for path in sorted(folder.glob("*.json")):
        joints = np.asarray(json.loads(path.read_text())["skeletons"])
        joints = joints - joints[0, 1]
        low, high = joints.min((0, 1)), joints.max((0, 1))
        joints = (joints - low) / (high - low) * 2 - 1
        found.append(joints[np.linspace(0, len(joints) - 1, 52).astype(int)].transpose(2, 0, 1)[..., None].astype(np.float32))
    return np.stack(found)


def bench_tensors(nwucla: Path | None, count: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        root = nwucla or Path(scratch) / "json"
        if nwucla is None:
            root.mkdir()
            drawn_json(root, count)
        c = config.load(SkeletonConfig, config.find_config("skeleton", None), [f"source.root={root}"], benchmark="skeleton")[0]
        stages = skeleton.plan(c, "").stages
        at = next(place for place, stage in enumerate(stages) if stage.name == "tensors")
        wanted = Flow(tuple(stage for stage in stages[: at + 1] if stage.name != "orders"))
        script_cpu, script_wall, plain = cpu(lambda: script(root))
        ours_cpu, ours_wall, made = cpu(lambda: run(wanted, f"{scratch}/out", scheduler="threads", workers=2))
        assert made.rows().num_rows == len(plain)
    peak = peak_bytes_of_all() / 2**20
    print(f"{len(plain):,} sequences from JSON to tensors ({'real' if nwucla else 'drawn'} N-UCLA)")
    print(f"  {ours_cpu:6.2f} s CPU, {ours_wall:6.2f} s wall: through the engine, 2 threads, checked, stored with digests")
    print(
        f"  {script_cpu:6.2f} s CPU, {script_wall:6.2f} s wall: a script that keeps nothing (ratio {ours_cpu / script_cpu:.1f})"
    )
    print(f"  peak memory of the process {peak:,.0f} MB")


def cpu(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """CPU seconds, wall seconds, and what the work gives."""
    began, wall = time.process_time(), time.perf_counter()
    found = work()
    return time.process_time() - began, time.perf_counter() - wall, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer files and rounds")
    parser.add_argument("--files", type=int, default=40, help="files of NTU's text")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--nwucla", type=Path, help="folder of N-UCLA's JSON files")
    told = parser.parse_args()
    bench_text(min(told.files, 8) if told.quick else told.files, 3 if told.quick else told.rounds, told.quick)
    bench_tensors(told.nwucla, 200 if told.quick else 1484)


if __name__ == "__main__":
    main()
