"""From 2 million lines of YFCC100M metadata to 11 buckets, by the engine and by three libraries that do the same job.

    python benchmarks/bench_metadata.py [--lines 2000000] [--repeats 3] [--only ours,polars] [--folder FOLDER] [--quick]

The job: read 7 of 25 columns, keep photos with two usable times of which capture is before upload, sort by upload time
(equal times in the order of the file), number 11 buckets of equal count, write Parquet. Ours runs through ``curation.run`` as
two stages, each written as an artifact with digests, and writes every line that it rejects as a reject with its reason.
The others write one file (zstd) and drop what they do not keep without a word; ``polars-rejects`` does nearly the same job as
ours: it checks the encoding and that the last column is there, and writes a table of rejects with reasons (a line with too
many columns it does not notice). The goal is stated against the fastest of all of them. Each run is a process of its own, in
turn. Peak memory is that of the process and its children; anonymous memory leaves out mapped files.
"""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BUCKETS = 11
GOAL_RATIO = 1.0
FIELDS = {1: "key", 5: "date_taken", 6: "uploaded_unix", 16: "url", 17: "licence", 23: "extension", 24: "marker"}
FORMAT = "%Y-%m-%d %H:%M:%S"


def ours(tsv: Path, out: Path) -> None:
    """Through the engine: a split source and a whole stage."""
    from benchwright.curation.flow import source, step
    from benchwright.curation.keys import where
    from benchwright.curation.run import run
    from benchwright.curation.stages.buckets import Bucketed, assign_equal_count_buckets
    from benchwright.datasets.yfcc100m.metadata import Photo, pieces, read_metadata

    place = where(tsv)
    flow = source(
        "listed", step(read_metadata, path=place), pieces=step(pieces, path=place), gives=Photo, max_rejects=None
    ).whole("bucketed", step(assign_equal_count_buckets, buckets=BUCKETS), gives=Bucketed)
    run(flow, str(out))
    print(json.dumps({path.parent.name: json.loads(path.read_text())["seconds"] for path in out.glob("stages/*/made.json")}))


def bare(tsv: Path, out: Path) -> None:
    """Our functions without the engine: read, validate, sort, and write one file."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from benchwright.curation.stages.buckets import divide
    from benchwright.curation.stages.external_sort import stable_order
    from benchwright.datasets.yfcc100m.metadata import pieces, read_metadata

    kept = pa.concat_tables(
        sifted.kept for piece in pieces(path=str(tsv)) for sifted in read_metadata(piece, path=str(tsv))
    ).combine_chunks()
    order = stable_order(kept["date_uploaded"].cast(pa.int64()).to_numpy().copy())
    bucket = np.repeat(np.arange(BUCKETS), np.diff(divide(len(order), BUCKETS)))
    out.mkdir()
    pq.write_table(
        kept.take(pa.array(order)).append_column("bucket", pa.array(bucket)), out / "rows.parquet", compression="zstd"
    )


def with_polars(tsv: Path, out: Path, engine: str = "in-memory") -> None:
    """polars, lazily."""
    import polars as pl

    out.mkdir()
    names = [f"column_{number + 1}" for number in range(25)]
    photos = (
        pl.scan_csv(tsv, has_header=False, separator="\t", quote_char=None, schema=dict.fromkeys(names, pl.String))
        .select(**{name: pl.col(names[index]) for index, name in FIELDS.items()})
        .with_columns(
            date_taken=pl.col("date_taken").str.slice(0, 19).str.to_datetime(FORMAT, strict=False, cache=False),
            date_uploaded=(pl.col("uploaded_unix").cast(pl.Int64, strict=False) * 1_000_000).cast(pl.Datetime("us")),
        )
        .filter((pl.col("marker") == "0") & (pl.col("date_taken") < pl.col("date_uploaded")))
        .drop("marker")
        .sort("date_uploaded", maintain_order=True)
        .collect(engine=engine)  # type: ignore[call-overload]
    )
    write_buckets(photos, out)


def write_buckets(photos: Any, out: Path) -> None:
    """Number the buckets of a sorted polars frame, and write it."""
    import polars as pl

    each, more = divmod(photos.height, BUCKETS)
    index = pl.int_range(photos.height, eager=True)
    edge = more * (each + 1)
    small = more + (index - edge) // max(each, 1)
    bucket = pl.select(pl.when(index < edge).then(index // (each + 1)).otherwise(small)).to_series()
    photos.with_columns(bucket.alias("bucket")).write_parquet(out / "rows.parquet", compression="zstd")


def with_polars_streaming(tsv: Path, out: Path) -> None:
    """polars with its streaming engine."""
    with_polars(tsv, out, "streaming")


def with_polars_and_rejects(tsv: Path, out: Path) -> None:
    """polars, and every line that is not kept goes to a second file with its reason, as the engine's stages have it."""
    import polars as pl

    out.mkdir()
    names = [f"column_{number + 1}" for number in range(25)]
    null_date = pl.col("date_taken").is_null() | (pl.col("date_taken") == "null")
    reasons = {
        "wrong_column_count": pl.col("marker").is_null(),
        "bad_utf8": pl.any_horizontal(pl.col("key", "url", "licence", "extension").str.contains("\ufffd", literal=True)),
        "bad_id": ~pl.col("key").str.contains("^[1-9][0-9]{0,17}$"),
        "not_a_photo": pl.col("marker") != "0",
        "null_date_taken": null_date,
        "bad_date_taken": pl.col("taken").is_null(),
        "bad_date_uploaded": pl.col("date_uploaded").is_null(),
        "taken_not_before_upload": pl.col("taken") >= pl.col("date_uploaded"),
    }
    reason = pl.lit(None, pl.String)
    for name, rule in reversed(reasons.items()):
        reason = pl.when(rule).then(pl.lit(name)).otherwise(reason)
    lines = (
        pl.scan_csv(
            tsv,
            has_header=False,
            separator="\t",
            quote_char=None,
            schema=dict.fromkeys(names, pl.String),
            truncate_ragged_lines=True,
            encoding="utf8-lossy",
        )
        .select(**{name: pl.col(names[index]) for index, name in FIELDS.items()})
        .with_columns(
            taken=pl.col("date_taken").str.slice(0, 19).str.to_datetime(FORMAT, strict=False, cache=False),
            date_uploaded=(pl.col("uploaded_unix").cast(pl.Int64, strict=False) * 1_000_000).cast(pl.Datetime("us")),
        )
        .with_columns(reason=reason)
        .collect()
    )
    rejects = lines.filter(pl.col("reason").is_not_null())
    detail = pl.format("taken '{}', uploaded '{}'", pl.col("date_taken").fill_null(""), pl.col("uploaded_unix").fill_null(""))
    rejects.select("key", "reason", detail=detail).write_parquet(out / "rejects.parquet", compression="zstd")
    photos = lines.filter(pl.col("reason").is_null()).drop("marker", "reason", "date_taken")
    write_buckets(photos.rename({"taken": "date_taken"}).sort("date_uploaded", maintain_order=True), out)


def with_duckdb(tsv: Path, out: Path) -> None:
    """duckdb, one query."""
    import duckdb

    out.mkdir()
    names = ", ".join(f"'c{number}': 'VARCHAR'" for number in range(25))
    picked = ", ".join(f"c{index} AS {name}" for index, name in FIELDS.items())
    duckdb.execute(f"""
        COPY (
            WITH read AS (
                SELECT {picked} FROM read_csv('{tsv}', delim='\t', header=false, quote='', escape='', columns={{{names}}})
            ), timed AS (
                SELECT key, try_strptime(substr(date_taken, 1, 19), '{FORMAT}') AS date_taken, uploaded_unix, url, licence,
                    extension, make_timestamp(uploaded_unix::BIGINT * 1000000) AS date_uploaded, row_number() OVER () AS line
                FROM read WHERE marker = '0'
            ), good AS (SELECT * FROM timed WHERE date_taken < date_uploaded)
            SELECT * EXCLUDE (line), ntile({BUCKETS}) OVER (ORDER BY date_uploaded, line) - 1 AS bucket
            FROM good ORDER BY date_uploaded, line
        ) TO '{out / "rows.parquet"}' (FORMAT parquet, COMPRESSION zstd)""")


def with_pyarrow(tsv: Path, out: Path) -> None:
    """pyarrow.csv and its compute functions."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as pv
    import pyarrow.parquet as pq

    out.mkdir()
    names = [FIELDS.get(number, f"c{number}") for number in range(25)]
    table = pv.read_csv(
        tsv,
        read_options=pv.ReadOptions(column_names=names, block_size=1 << 24),
        parse_options=pv.ParseOptions(delimiter="\t", quote_char=False),
        convert_options=pv.ConvertOptions(
            include_columns=list(FIELDS.values()), column_types=dict.fromkeys(names, pa.string())
        ),
    )
    table = table.filter((pc.field("marker") == "0") & (pc.field("date_taken") != "null")).drop_columns(["marker"])
    taken = pc.utf8_slice_codeunits(table["date_taken"], 0, 19).cast(pa.timestamp("us"))
    seconds = table["uploaded_unix"].cast(pa.int64())
    table = table.set_column(1, "date_taken", taken)
    table = table.append_column("date_uploaded", pc.multiply(seconds, 1_000_000).cast(pa.timestamp("us")))
    table = table.filter(pc.field("date_taken") < pc.field("date_uploaded"))
    order = pc.sort_indices(table["date_uploaded"])
    sizes = [table.num_rows // BUCKETS + (number < table.num_rows % BUCKETS) for number in range(BUCKETS)]
    table = table.take(order).append_column("bucket", pa.array(np.repeat(np.arange(BUCKETS), sizes)))
    pq.write_table(table, out / "rows.parquet", compression="zstd")


METHODS: dict[str, Callable[[Path, Path], None]] = {
    "ours": ours,
    "bare": bare,
    "polars": with_polars,
    "polars-streaming": with_polars_streaming,
    "polars-rejects": with_polars_and_rejects,
    "duckdb": with_duckdb,
    "pyarrow": with_pyarrow,
}


def digest(out: Path) -> str:
    """Digest of the result's rows in order, whatever wrote them and however they are cut into files and batches."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = sorted(out.glob("stages/bucketed/part-*.parquet")) or [out / "rows.parquet"]
    columns = ("key", "date_taken", "url", "licence", "extension", "uploaded_unix", "bucket")
    sums = {name: (hashlib.sha256(), hashlib.sha256()) for name in columns}
    rows = 0
    for path in files:
        if path.name.endswith(".rejects.parquet"):
            continue
        for batch in pq.ParquetFile(path).iter_batches(100_000, columns=list(columns)):
            rows += batch.num_rows
            for name, (values, lengths) in sums.items():
                column = batch[name]
                if name in ("date_taken", "bucket"):
                    column = column.cast(pa.timestamp("us")) if name == "date_taken" else column
                    values.update(column.cast(pa.int64()).to_numpy().tobytes())
                    continue
                column = column.cast(pa.large_string())
                offsets = np.frombuffer(column.buffers()[1], dtype=np.int64)[column.offset : column.offset + len(column) + 1]
                lengths.update(np.diff(offsets).tobytes())
                values.update(memoryview(column.buffers()[2])[offsets[0] : offsets[-1]])
    told = "".join(one.hexdigest() for pair in sums.values() for one in pair)
    return f"{rows} rows, {hashlib.sha256(told.encode()).hexdigest()[:16]}"


def measured(method: str, tsv: Path, out: Path) -> dict[str, float | str]:
    """One run in a process of its own."""
    import psutil

    shutil.rmtree(out, ignore_errors=True)
    peak = {"rss": 0, "anonymous": 0}
    begun = time.perf_counter()
    command = [sys.executable, __file__, "--run", method, "--tsv", str(tsv), "--out", str(out)]
    # Libraries come with their bytecode; ours is a checkout's, which the first run compiles unless that is forbidden.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    process = psutil.Process(child.pid)

    def watch() -> None:
        while child.poll() is None:
            rss = anonymous = 0
            try:
                for one in [process, *process.children(recursive=True)]:
                    memory = one.memory_info()
                    rss, anonymous = rss + memory.rss, anonymous + memory.rss - memory.shared
                times = process.cpu_times()
                peak["cpu"] = times.user + times.system
            except psutil.Error:
                continue
            peak["rss"], peak["anonymous"] = max(peak["rss"], rss), max(peak["anonymous"], anonymous)
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    told = child.communicate()[0].decode().strip()
    watcher.join()
    if child.returncode:
        raise RuntimeError(f"{method} failed with exit status {child.returncode}")
    return {"seconds": time.perf_counter() - begun, "told": told, **peak}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=2_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default=",".join(METHODS), help="methods, comma-separated")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/bench-metadata"))
    parser.add_argument("--quick", action="store_true", help="200,000 lines, once")
    parser.add_argument("--run", choices=METHODS, help=argparse.SUPPRESS)
    parser.add_argument("--tsv", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        METHODS[args.run](args.tsv, args.out)
        return
    if args.quick:
        args.lines, args.repeats = 200_000, 1
    args.folder.mkdir(parents=True, exist_ok=True)
    tsv = args.folder / f"{args.lines}.tsv"
    if not tsv.exists():
        from make_yfcc import make

        make(args.lines, tsv)
    methods = args.only.split(",")
    runs: dict[str, list[dict[str, float | str]]] = {method: [] for method in methods}
    results: dict[str, str] = {}
    for _ in range(args.repeats):
        for method in methods:
            runs[method].append(measured(method, tsv, args.folder / "out"))
            results.setdefault(method, digest(args.folder / "out"))
            shutil.rmtree(args.folder / "out")
    report(args.lines, tsv, runs, results)


def report(lines: int, tsv: Path, runs: dict[str, list[dict[str, float | str]]], results: dict[str, str]) -> None:
    """Print the table."""
    median = {method: statistics.median(float(run["seconds"]) for run in ran) for method, ran in runs.items()}
    others = {method: seconds for method, seconds in median.items() if method not in ("ours", "bare")}
    fastest = min(others, key=lambda method: others[method]) if others else min(median)
    print(f"{lines:,} lines, {tsv.stat().st_size / 1e9:.2f} GB, {dt.date.today()}; medians; ratio to {fastest}")
    print(f"{'':18}{'s':>7} {'min-max':>12} {'CPU s':>7} {'ratio':>6} {'peak MiB':>9} {'anon MiB':>9}  result")
    for method, ran in runs.items():
        seconds = sorted(float(run["seconds"]) for run in ran)
        rss, anonymous = (max(float(run[name]) for run in ran) / 2**20 for name in ("rss", "anonymous"))
        cpu = statistics.median(float(run["cpu"]) for run in ran)
        span = f"{seconds[0]:.1f}-{seconds[-1]:.1f}"
        ratio = median[method] / median[fastest]
        figures = f"{median[method]:7.2f} {span:>12} {cpu:7.1f} {ratio:6.2f} {rss:9.0f} {anonymous:9.0f}"
        print(f"{method:18}{figures}  {results[method]}")
    if told := [str(run["told"]) for run in runs.get("ours", []) if run["told"]]:
        print(f"ours, seconds a stage: {told[-1]}")
    if len(set(results.values())) > 1:
        print("THE RESULTS DIFFER")
    if "ours" in median and others:
        met = median["ours"] <= GOAL_RATIO * median[fastest]
        print(f"goal: at most {GOAL_RATIO} times the fastest: {'met' if met else 'missed'}")


if __name__ == "__main__":
    main()
