"""From 1 to 100 million rows: does time grow as the rows do, and does memory stay where it is?

    python benchmarks/bench_scale.py metadata [--millions 1 10 100] [--scratch FOLDER]
    python benchmarks/bench_scale.py engine [--millions 1 10 100] [--scratch FOLDER]
    python benchmarks/bench_scale.py retrieval|first|near|near_all|split|shards|choice [--millions 1 10 100]
    python benchmarks/bench_scale.py near_vectors [--millions 1 10] [--scratch FOLDER]
    python benchmarks/bench_scale.py --quick            # first, split and shards of a million

``metadata``: files of a million lines of YFCC100M's form (0.53 GB each) to buckets of equal count, by the engine, with rejects,
digests and records. No file lies on the disk: a file system of this script gives the lines of one drawn file over and over,
with other ids in each. What the stages write does lie there: some 25 GB for 100 million lines.

``engine``: a whole run of the engine in the order of CLEAR's pipeline: rows drawn in parts of a million, the first row of each
key, near-duplicates by hash within buckets, 300 rows of each bucket and class, shards, splits. So that the last two have all
rows to do, the choice is a branch of its own.

``first``, ``near`` (within buckets), ``near_all``, ``split``, ``shards``, ``choice``: steps of stages on rows that are made as
they are read; what they give is counted and let go.

``retrieval``: the best 600 of each of 11 buckets for 20 prompts, and a background, from vectors of 512 float16 numbers. Vectors
are drawn block by block: one drawn block, rolled by another number of places each time, since drawing would take longer than
what is measured. Each size is a process of its own; memory is its peak.

``near_vectors``: near-duplicates by vector, among all rows. The vectors lie in files as those of a stage do, 1 GB a million,
written before by another process: 100 million, which take 100 GB, only if asked for. One row in fifty is a near-duplicate of
the one 65,536 rows before it.
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import fsspec
import numpy as np
import pyarrow as pa
from benchwright.curation.cost import peak_bytes_of_all

MILLION = 1_000_000
BLOCK, WIDTH, BUCKETS, CLASSES = 65_536, 512, 11, 100


# ---------------------------------------------------------------------------------------------------------- metadata


class DrawnFiles(fsspec.AbstractFileSystem):
    """``drawn://NUMBER``: a folder of so many files, made from the drawn one as they are read."""

    protocol = "drawn"
    base = b""
    at = np.zeros(0, np.int64)
    """Where the id of each line begins, whose first three digits are the file's."""

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        name = self._strip_protocol(path)
        if "/" not in name:
            return {"name": name, "size": 0, "type": "directory"}
        return {"name": name, "size": len(self.base), "type": "file", "mtime": 0, "ETag": name}

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        folder = self._strip_protocol(path)
        names = [f"{folder}/{number:02}.tsv" for number in range(int(folder))]
        return [self.info(name) for name in names] if detail else names

    def _open(self, path: str, mode: str = "rb", **_: Any) -> io.BufferedReader:
        return io.BufferedReader(_Drawn(int(Path(path).stem), self.base, self.at), 1 << 20)


class _Drawn(io.RawIOBase):
    def __init__(self, number: int, base: bytes, at: np.ndarray) -> None:
        self._digits, self._base, self._ids, self._at = f"{number + 100}".encode(), base, at, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._base)}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        start, end = self._at, min(self._at + len(buffer), len(self._base))
        found = np.frombuffer(self._base, np.uint8)[start:end].copy()
        for digit in range(3):
            places = self._ids + digit - start
            found[places[(places >= 0) & (places < len(found))]] = self._digits[digit]
        buffer[: len(found)] = found.tobytes()
        self._at = end
        return len(found)


def draw_lines(scratch: Path) -> None:
    """A million lines, whose ids have eleven digits, the first three of which are the file's; and where these are."""
    sys.path.insert(0, str(Path(__file__).parent))
    from make_yfcc import make

    scratch.mkdir(parents=True, exist_ok=True)
    make(MILLION, scratch / "drawn.tsv")
    ids = np.random.default_rng(0).permutation(MILLION)
    at, size = np.empty(MILLION, np.int64), 0
    with (scratch / "drawn.tsv").open("rb") as lines, (scratch / "base.tsv").open("wb") as base:
        for number, line in enumerate(lines):
            first, _, rest = line.split(b"\t", 2)
            at[number] = size + len(first) + 1
            size += base.write(b"\t".join([first, b"100%08d" % ids[number], rest]))
    (scratch / "drawn.tsv").unlink()
    np.save(scratch / "at.npy", at)


def metadata(millions: int, scratch: Path) -> dict[str, Any]:
    """The engine's two stages."""
    from benchwright.curation.flow import source, step
    from benchwright.curation.keys import where
    from benchwright.curation.stages.buckets import Bucketed, assign_equal_count_buckets
    from benchwright.datasets.yfcc100m.metadata import Photo, pieces, read_metadata

    fsspec.register_implementation("drawn", DrawnFiles)
    DrawnFiles.base, DrawnFiles.at = (scratch / "base.tsv").read_bytes(), np.load(scratch / "at.npy")
    place = where(f"drawn://{millions}")
    flow = source(
        "listed", step(read_metadata, path=place), pieces=step(pieces, path=place), gives=Photo, max_rejects=None
    ).whole("bucketed", step(assign_equal_count_buckets, buckets=BUCKETS), gives=Bucketed)
    return _run_at(scratch / "out", flow)


def _run_at(out: Path, flow: Any) -> dict[str, Any]:
    """Figures of a run of the engine in a folder that is removed afterwards."""
    from benchwright.curation.run import run

    shutil.rmtree(out, ignore_errors=True)
    before, begun = _peak_mb(), time.perf_counter()
    made = run(flow, str(out))
    seconds = time.perf_counter() - begun
    stages = {path.parent.name: json.loads(path.read_text())["seconds"] for path in out.glob("stages/*/made.json")}
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    shutil.rmtree(out)
    return {"seconds": seconds, "rows": made.result.rows, "before_mb": before, "stages": stages, "written_gb": size / 1e9}


# ------------------------------------------------------------------------------------------------------ rows of no disk


class DrawnRows:
    """As ``curation.stage_rows.Rows``, for what stages ask of it: each column is made of the rows' numbers, block by block."""

    def __init__(self, count: int) -> None:
        self.num_rows = count
        self._makers = {"key": self._keys, "bucket": self._buckets, "label": self._labels, "phash": self._hashes}
        self.schema = pa.schema([(name, make(np.arange(0)).type) for name, make in self._makers.items()])
        self.column_names = self.schema.names
        self._block = np.zeros((0, WIDTH), dtype=np.float16)

    def with_vectors(self) -> DrawnRows:
        """With one drawn block of vectors, rolled by another number of places each time."""
        block = np.random.default_rng(0).standard_normal((BLOCK, WIDTH), dtype=np.float32)
        self._block = (block / np.linalg.norm(block, axis=1, keepdims=True)).astype(np.float16)
        return self

    def _spans(self, begin: int = 0, end: int | None = None) -> Iterator[tuple[int, int]]:
        end = self.num_rows if end is None else end
        yield from ((start, min(start + BLOCK, end)) for start in range(begin, end, BLOCK))

    def _keys(self, rows: np.ndarray) -> pa.Array:
        rows = np.where(rows % 100 == 99, rows - 50, rows) if self.repeats else rows
        return pa.array((rows * 7_919_999_983 % 10_000_000_019).astype(np.int64)).cast(pa.string())

    repeats = False
    """Whether a row in a hundred has the key of another."""

    def _buckets(self, rows: np.ndarray) -> pa.Array:
        return pa.array(rows * BUCKETS // max(self.num_rows, 1))

    def _labels(self, rows: np.ndarray) -> pa.Array:
        return pa.array((_mixed(rows) % np.uint64(CLASSES)).astype(np.int64))

    def _hashes(self, rows: np.ndarray) -> pa.Array:
        """Hashes of 64 bits as text; one row in fifty is two bits from the row before it."""
        copies = rows % 50 == 1
        codes = _mixed(np.where(copies, rows - 1, rows))
        codes ^= np.where(copies, np.uint64(1) << (rows % 64).astype(np.uint64), np.uint64(0))
        codes ^= np.where(copies, np.uint64(1) << (rows // 64 % 64).astype(np.uint64), np.uint64(0))
        text = pa.py_buffer(codes.astype(">u8").tobytes().hex().encode())
        return pa.StringArray.from_buffers(len(rows), pa.py_buffer((np.arange(len(rows) + 1) * 16).astype(np.int32)), text)

    def repetitive(self) -> list[str]:
        return []

    def batches(self, columns: Sequence[str] | None = None, *, encoded: Sequence[str] = ()) -> Iterator[pa.Table]:
        yield from self.between(0, self.num_rows, columns)

    def between(self, begin: int, end: int, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The rows [begin, end), some at a time."""
        for start, stop in self._spans(begin, end):
            rows = np.arange(start, stop)
            yield pa.table({name: self._makers[name](rows) for name in columns or self.schema.names})

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        return pa.concat_tables(self.batches(columns))

    def arrays(self, column: str) -> Iterator[np.ndarray]:
        for start, stop in self._spans():
            yield np.roll(self._block, start // BLOCK, axis=1)[: stop - start]

    def gather(self, column: str, indices: np.ndarray) -> np.ndarray:
        indices = np.asarray(indices)
        shifts = (indices // BLOCK)[:, None]
        return self._block[(indices % BLOCK)[:, None], (np.arange(WIDTH) - shifts) % WIDTH]


class NamedRows(DrawnRows):
    """Drawn rows with the names of their classes."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._makers["concept"] = lambda rows: pa.array(NAMES).take(self._labels(rows))
        self.schema = self.schema.append(pa.field("concept", pa.string()))


NAMES = [f"class {number}" for number in range(CLASSES)]
CHOICE: dict[str, Any] = {"classes": NAMES, "per_class": 300, "method": "random", "seed": 0, "on_shortage": "quiet"}


def _mixed(rows: np.ndarray) -> np.ndarray:
    numbers = (rows.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    return numbers ^ (numbers >> np.uint64(29))


def first(rows: Any) -> Iterator[pa.Table]:
    """The first row of each key."""
    from benchwright.curation.stages.unique_keys import take_first

    rows.repeats = True
    yield from (kept for kept, _ in take_first(rows, n=rows.num_rows // 2))


def near(rows: Any) -> Iterator[pa.Table]:
    """Near-duplicates by hash, within the buckets."""
    from benchwright.curation.stages.near_duplicates import DuplicateRule, near_duplicates_by_hash

    rule = DuplicateRule("keep_first", within="bucket")
    yield from (kept for kept, _ in near_duplicates_by_hash(rows, rule=rule))


def near_all(rows: Any) -> Iterator[pa.Table]:
    """Near-duplicates by hash, all with all."""
    from benchwright.curation.stages.near_duplicates import DuplicateRule, near_duplicates_by_hash

    yield from (kept for kept, _ in near_duplicates_by_hash(rows, rule=DuplicateRule("keep_first")))


def split(rows: Any) -> Iterator[pa.Table]:
    """CLEAR's five splits and its stream."""
    from benchwright.datasets.clear.splits import assign_iid_splits

    yield from assign_iid_splits(rows, rule="as_released", test_share=0.3)


def shards(rows: Any) -> Iterator[pa.Table]:
    """Rows by bucket, class and key, and the shard of each."""
    from benchwright.datasets.clear.samples import place

    yield from place(rows, max_samples=1000)


def choice(rows: Any) -> Iterator[pa.Table]:
    """300 rows of each bucket and class."""
    from benchwright.curation.stages.choose import choose

    yield from (kept for kept, _ in choose(cast("Any", NamedRows(rows.num_rows)), **CHOICE))


def drawn(job: str, millions: int) -> dict[str, Any]:
    """One of the jobs on drawn rows; what it gives is counted and let go."""
    rows = DrawnRows(millions * MILLION)
    before, begun = _peak_mb(), time.perf_counter()
    out = sum(table.num_rows for table in DRAWN[job](rows))
    return {"seconds": time.perf_counter() - begun, "rows": out, "before_mb": before}


DRAWN = {"first": first, "near": near, "near_all": near_all, "split": split, "shards": shards, "choice": choice}


# ------------------------------------------------------------------------------------------------------- a whole run


def pieces_of_drawn(*, count: int) -> list[str]:
    """A million rows each."""
    return [str(start) for start in range(0, count, MILLION)]


def read_drawn(piece: str, *, count: int) -> Iterator[pa.Table]:
    """The rows of a piece."""
    rows = NamedRows(count)
    rows.repeats = True
    yield from rows.between(int(piece), min(int(piece) + MILLION, count))


def engine(millions: int, scratch: Path) -> dict[str, Any]:
    """From drawn rows to splits: six stages with their Parquet, rejects, digests and records."""
    from benchwright.curation.flow import join, source, step
    from benchwright.curation.shard_assignment import Placed
    from benchwright.curation.stages.choose import Labelled, choose
    from benchwright.curation.stages.near_duplicates import DuplicateRule, NearDuplicate, near_duplicates_by_hash
    from benchwright.curation.stages.unique_keys import take_first
    from benchwright.datasets.clear.samples import place
    from benchwright.datasets.clear.splits import IidSplits, assign_iid_splits

    count = millions * MILLION
    rule = DuplicateRule("keep_first", within="bucket")
    any_rejects: dict[str, Any] = {"max_rejects": None}
    flow = source("drawn", step(read_drawn, count=count), pieces=step(pieces_of_drawn, count=count), gives=NamedRows(0).schema)
    flow = flow.whole("first", step(take_first), **any_rejects)
    flow = flow.whole("distinct", step(near_duplicates_by_hash, rule=rule), gives=NearDuplicate, **any_rejects)
    chosen = flow.whole("chosen", step(choose, **CHOICE), gives=Labelled, **any_rejects)
    flow = flow.whole("placed", step(place, max_samples=1000), gives=Placed)
    flow = flow.whole("split", step(assign_iid_splits, rule="as_released", test_share=0.3), gives=IidSplits)
    return _run_at(scratch / "out", join(chosen, flow))


# --------------------------------------------------------------------------------------------------------- retrieval


def retrieval(millions: int, scratch: Path) -> dict[str, Any]:
    """``retrieve`` with the prompts' vectors given."""
    from benchwright.curation.stages.retrieval_rule import Rule
    from benchwright.curation.stages.retrieve import Concept, retrieve_by_vectors

    rows: Any = DrawnRows(millions * MILLION).with_vectors()
    queries = np.random.default_rng(1).standard_normal((20, WIDTH), dtype=np.float32)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    concepts = [Concept(f"class {number}", (f"prompt {number}",)) for number in range(len(queries))]
    rule = Rule(16_000, 600, "as_released", background="background", background_share=0.1)  # CLEAR's
    before, begun = _peak_mb(), time.perf_counter()
    kept = rejected = 0
    for sifted in retrieve_by_vectors(rows, queries, concepts=concepts, rule=rule):
        kept += sifted.kept.num_rows
        rejected += sifted.rejected.num_rows
    seconds = time.perf_counter() - begun
    if kept + rejected != rows.num_rows:
        raise SystemExit(f"{kept:,} kept and {rejected:,} rejected of {rows.num_rows:,}")
    return {"seconds": seconds, "rows": kept, "before_mb": before}


# ------------------------------------------------------------------------------------------------ near-duplicate vectors

COPIED = 50
"""One row in so many is a near-duplicate of the one that lies BLOCK rows before it."""


class VectorRows(DrawnRows):
    """Drawn rows whose vectors lie in files, a block in each, as the parts of a stage have them."""

    def __init__(self, count: int, folder: Path) -> None:
        super().__init__(count)
        self._folder = folder

    def draw(self) -> None:
        """Write the files: unit vectors in 2,000 classes of different sizes, whose values vary less and less within a class."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        draw = np.random.default_rng(0)
        spectrum = (1 / np.sqrt(np.arange(1, WIDTH + 1))).astype(np.float32)
        spectrum *= np.sqrt(WIDTH) / np.linalg.norm(spectrum)
        base, classes = (draw.standard_normal((count, WIDTH), dtype=np.float32) for count in (BLOCK, 2_000))
        before = base
        for start, stop in self._spans():
            noise = np.roll(base, int(draw.integers(WIDTH)), axis=1)[draw.permutation(BLOCK)]
            spread = draw.uniform(0.6, 1.2, (BLOCK, 1)).astype(np.float32)
            block = _unit(classes[(len(classes) * draw.random(BLOCK) ** 2).astype(np.int64)] + noise * spectrum * spread)
            at = np.arange(start, start + BLOCK) % COPIED == 1
            cosine = draw.uniform(0.955, 0.999, (int(at.sum()), 1)).astype(np.float32)
            block[at] = cosine * before[at] + np.sqrt(1 - cosine**2) * _unit(noise[at])
            before = _unit(block)
            np.save(self._folder / f"{start // BLOCK:05}.npy", before[: stop - start].astype(np.float16))

    def arrays(self, column: str) -> Iterator[np.ndarray]:
        for start, _ in self._spans():
            yield np.load(self._folder / f"{start // BLOCK:05}.npy", mmap_mode="r")


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def near_vectors(millions: float, scratch: Path) -> dict[str, Any]:
    """Near-duplicates by vector, all with all, and the share of the drawn ones that was found."""
    from benchwright.curation.stages.near_duplicates import near_duplicates_by_vector
    from benchwright.curation.stages.near_vectors import VectorSearch

    rows: Any = VectorRows(int(millions * MILLION), scratch / "vectors")
    before, begun = _peak_mb(), time.perf_counter()
    out = there = found = 0
    earlier = np.full(BLOCK, "", dtype=object)
    for kept, _ in near_duplicates_by_vector(rows, search=VectorSearch("ivf")):
        group = kept["duplicate_group"].to_numpy()
        if out:
            copies = np.flatnonzero(np.arange(out, out + len(group)) % COPIED == 1)
            there += len(copies)
            found += int((group[copies] == earlier[copies]).sum() - sum(each is None for each in group[copies]))
        out, earlier = out + len(group), group
    return {"seconds": time.perf_counter() - begun, "rows": out, "before_mb": before, "recall": found / max(there, 1)}


def _peak_mb() -> float:
    return peak_bytes_of_all() / 2**20


JOBS = {
    "metadata": metadata,
    "engine": engine,
    "retrieval": retrieval,
    "near_vectors": near_vectors,
    **{job: lambda millions, _, job=job: drawn(job, millions) for job in DRAWN},
}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=JOBS, nargs="?")
    parser.add_argument("--quick", action="store_true", help="first, split and shards of a million rows")
    parser.add_argument("--millions", type=int, nargs="+", help="sizes (default: 1 10 100; near_vectors: 1 10)")
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()) / "bench_scale")
    parser.add_argument("--record", type=Path, help="a CSV file to which the figures are added")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        found = JOBS[args.job](args.millions[0], args.scratch)
        used = resource.getrusage(resource.RUSAGE_SELF)
        print(json.dumps({**found, "cpu": used.ru_utime + used.ru_stime, "peak_mb": _peak_mb()}))
        return
    if not args.job and not args.quick:
        parser.error("name a job, or give --quick")
    for job in [args.job] if args.job else ["first", "split", "shards"]:
        sizes = args.millions or ([1, 10] if job == "near_vectors" else [1, 10, 100])
        measure(job, [1] if args.quick else sizes, args.scratch, args.record)


def measure(job: str, sizes: Sequence[int], scratch: Path, record: Path | None) -> None:
    """Print, and add to ``record``, a line of figures for each size, in millions of rows."""
    if job == "metadata":
        draw_lines(scratch)
    for millions in sizes:
        if job == "near_vectors":
            VectorRows(millions * MILLION, scratch / "vectors").draw()
        command = [sys.executable, __file__, job, "--millions", str(millions), "--scratch", str(scratch), "--one"]
        found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.splitlines()[-1])
        rate = millions / found["seconds"]
        if record:
            with record.open("a") as file:
                file.write(
                    f"{job},{millions},{found['seconds']:.1f},{found['cpu']:.1f},{found['peak_mb']:.0f},{found['before_mb']:.0f}\n"
                )
        more = "".join(f"; {name} {value:,.1f} s" for name, value in found.get("stages", {}).items())
        more += f"; {found['written_gb']:.1f} GB written" if "written_gb" in found else ""
        more += f"; recall of planted pairs {found['recall']:.4f}" if "recall" in found else ""
        print(
            f"{job}: {millions:4} million rows: {found['seconds']:8.1f} s ({rate:.2f} million a second), "
            f"{found['cpu']:.0f} s of CPU, "
            f"peak {found['peak_mb']:,.0f} MB, {found['before_mb']:,.0f} before it began; {found['rows']:,} rows out{more}",
            flush=True,
        )


if __name__ == "__main__":
    main()
