"""The 600 best of 713,626 stored vectors for 20 prompts: ours beside faiss and numpy, over one mapped file.

Times come from one process in which the methods take turns; peak memory from a process of its own for each, read from
``/proc`` every few milliseconds (Linux; "-" elsewhere). Anonymous memory is what the process holds besides mapped files,
its libraries' own included.

    python benchmarks/bench_retrieval.py [--rows 713626] [--width 512] [--prompts 20] [--k 600] [--repeats 5] [--quick]
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import faiss
import numpy as np
from benchwright.curation.stages.topk import TopK

GOAL_RATIO = 1.3
GOAL_ANONYMOUS_MB = 300
PART_ROWS = 32_768

Result = tuple[np.ndarray, np.ndarray]
Method = Callable[[Path, np.ndarray, int], Result]


def top_k(blocks: Iterable[np.ndarray], queries: np.ndarray, k: int) -> Result:
    """As ``retrieve`` does it, bucket by bucket."""
    state, first = TopK(queries, k), 0
    for block in blocks:
        state.add(block, np.arange(first, first + len(block)))
        first += len(block)
    return state.result()[:2]


def ours(folder: Path, queries: np.ndarray, k: int) -> Result:
    """The mapped file as one block."""
    return top_k([mapped(folder)], queries, k)


def ours_in_parts(folder: Path, queries: np.ndarray, k: int) -> Result:
    """The same in parts, as a stage stores them."""
    vectors = mapped(folder)
    return top_k((vectors[i : i + PART_ROWS] for i in range(0, len(vectors), PART_ROWS)), queries, k)


def ours_float16(folder: Path, queries: np.ndarray, k: int) -> Result:
    """A file of half the size; its scores are those of the rounded vectors."""
    return top_k([mapped(folder, "float16")], queries, k)


def faiss_knn(folder: Path, queries: np.ndarray, k: int) -> Result:
    """What a user of faiss would write who wants no index."""
    return faiss.knn(queries, mapped(folder), k, metric=faiss.METRIC_INNER_PRODUCT)


def faiss_index(folder: Path, queries: np.ndarray, k: int) -> Result:
    """The index of the manuals, filled at once."""
    index = faiss.IndexFlatIP(queries.shape[1])
    index.add(mapped(folder))
    return index.search(queries, k)


def numpy_argpartition(folder: Path, queries: np.ndarray, k: int) -> Result:
    """One product, one partition."""
    scores = (mapped(folder) @ queries.T).T
    rows = np.argpartition(-scores, k - 1, axis=1)[:, :k]
    order = np.argsort(-np.take_along_axis(scores, rows, axis=1), axis=1)
    rows = np.take_along_axis(rows, order, axis=1)
    return np.take_along_axis(scores, rows, axis=1), rows


METHODS: dict[str, Method] = {
    "ours": ours,
    "ours_in_parts": ours_in_parts,
    "ours_float16": ours_float16,
    "faiss_knn": faiss_knn,
    "faiss_index": faiss_index,
    "numpy_argpartition": numpy_argpartition,
}


def mapped(folder: Path, dtype: str = "float32") -> np.ndarray:
    return np.load(folder / f"vectors.{dtype}.npy", mmap_mode="r")


def make_files(folder: Path, rows: int, width: int) -> None:
    """Random unit vectors, as float32 and as float16."""
    rng = np.random.default_rng(0)
    files = {
        dtype: np.lib.format.open_memmap(folder / f"vectors.{dtype}.npy", mode="w+", dtype=dtype, shape=(rows, width))
        for dtype in ("float32", "float16")
    }
    for start in range(0, rows, 16_384):
        block = unit(rng.standard_normal((min(16_384, rows - start), width), dtype=np.float32))
        for file in files.values():
            file[start : start + len(block)] = block


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def prompts(count: int, width: int) -> np.ndarray:
    return unit(np.random.default_rng(1).standard_normal((count, width), dtype=np.float32))


class Peaks(threading.Thread):
    """Highest anonymous and total resident memory of this process, MB."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.anonymous_mb = self.resident_mb = 0.0
        self._ended = threading.Event()

    def run(self) -> None:
        status = Path("/proc/self/status")
        while status.exists() and not self._ended.wait(0.003):
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
            self.anonymous_mb = max(self.anonymous_mb, int(fields["RssAnon"].split()[0]) / 1024)
            self.resident_mb = max(self.resident_mb, int(fields["VmRSS"].split()[0]) / 1024)

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()

    def __enter__(self) -> Peaks:
        self.start()
        return self


def memory_of(name: str, args: argparse.Namespace) -> dict[str, float]:
    """Peaks of one method in a process of its own."""
    command = [sys.executable, __file__, "--child", name, "--folder", str(args.folder)]
    command += ["--width", str(args.width), "--prompts", str(args.prompts), "--k", str(args.k)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def child(args: argparse.Namespace) -> None:
    with Peaks() as peaks:
        METHODS[args.child](args.folder, prompts(args.prompts, args.width), args.k)
    print(json.dumps({"anonymous_mb": peaks.anonymous_mb, "resident_mb": peaks.resident_mb}))


def compare(args: argparse.Namespace) -> None:
    queries = prompts(args.prompts, args.width)
    seconds: dict[str, list[float]] = {name: [] for name in METHODS}
    results: dict[str, Result] = {}
    for repeat in range(args.repeats + 1):  # the first turn warms the page cache
        for name, method in METHODS.items():
            started = time.perf_counter()
            results[name] = method(args.folder, queries, args.k)
            if repeat:
                seconds[name].append(time.perf_counter() - started)
    base = statistics.median(seconds["faiss_knn"])
    exact = results["ours"][1]
    print(f"{args.rows:,} x {args.width}, {args.prompts} prompts, k = {args.k}; medians of {args.repeats}, taking turns")
    print(f"{'method':<20}{'ms':>8}{'ratio':>8}{'anonymous MB':>14}{'resident MB':>13}{'recall':>9}{'same order':>12}")
    for name in METHODS:
        peaks = memory_of(name, args)
        rows = results[name][1]
        recall = np.mean([len(np.intersect1d(a, b)) / args.k for a, b in zip(exact, rows, strict=True)])
        same = np.mean(exact == rows)
        median = statistics.median(seconds[name])
        print(
            f"{name:<20}{1000 * median:>8.0f}{median / base:>8.2f}{peaks['anonymous_mb']:>14.0f}{peaks['resident_mb']:>13.0f}"
            f"{recall:>9.5f}{same:>12.4f}"
        )
    print(f"goal: ratio at most {GOAL_RATIO}, anonymous memory below {GOAL_ANONYMOUS_MB} MB; recall and order are against ours")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=713_626)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--k", type=int, default=600)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "bw-bench")
    parser.add_argument("--quick", action="store_true", help="a seventh of the rows, two repeats")
    parser.add_argument("--child", choices=METHODS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args)
        return
    if args.quick:
        args.rows, args.repeats = min(args.rows, 100_000), 2
    args.folder = Path(tempfile.mkdtemp(prefix="retrieval-", dir=_made(args.folder)))
    try:
        make_files(args.folder, args.rows, args.width)
        compare(args)
    finally:
        shutil.rmtree(args.folder)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


if __name__ == "__main__":
    main()
