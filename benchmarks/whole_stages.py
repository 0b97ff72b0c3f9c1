"""What the stages that take all rows at once hold for a row: each ``whole`` stage of a pipeline, on its rows many times over.

    benchwright run clear --config tiny --out tiny/clear -q
    python benchmarks/whole_stages.py clear --out tiny/clear [--rows 200000 1000000] [--set KEY=VALUE ...]

The rows of a finished run are repeated, with keys of their own, until there are so many; what other stages give, and payloads,
stay as they are. Each size is a process of its own: memory is the most that it held, less what it held before, and the bytes a
row are of the step between the first two sizes. Stages that refuse rows that come again are told, with what they said.
"""

from __future__ import annotations

import argparse
import gc
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

PART = 65_536
AGAIN = "whole_stages"


def repeated(view: Any, rows: int) -> Any:
    """``rows`` rows of a view, as parts in its store. In keys, ids and other text of many values, each copy has its number."""
    from benchwright.curation.parquet import write_parquet
    from benchwright.curation.stage_rows import PartInfo, Rows

    table, store, parts = view.table(), view.store, []
    apart = [
        field.name
        for field in table.schema
        if pa.types.is_string(field.type) and len(pc.unique(table[field.name])) > table.num_rows // 8
    ]
    for start in range(0, rows, PART):
        count = min(PART, rows - start)
        at = pa.array([number // table.num_rows for number in range(start, start + count)])
        part = table.take(pa.array([number % table.num_rows for number in range(start, start + count)]))
        for name in apart:
            column = pc.binary_join_element_wise(part[name], at.cast(pa.string()), "_")
            part = part.set_column(part.column_names.index(name), table.schema.field(name), column)
        name = f"{AGAIN}/part-{start // PART:05}.parquet"
        with store.writing(name) as stream:
            write_parquet(stream, part, {})
        parts.append(PartInfo(name, count))
    return Rows(store, view.schema, tuple(parts))


def measure(job: Any, out: str, name: str, rows: int) -> dict[str, Any]:
    """One stage on so many rows."""
    from benchwright.curation.artifact import Artifact, load_artifact
    from benchwright.curation.cost import cpu_seconds
    from benchwright.curation.parts import PartTask, Span, _outputs
    from benchwright.curation.store import Store

    flow, store = job.flow(out), Store(out)
    stage, schema = flow.stage(name), flow.schemas()[name]
    views = {other: cast(Artifact, load_artifact(store, other)).rows_view(store) for other in stage.inputs()}
    given = repeated(views[stage.after], rows)
    task = PartTask(store, stage, schema, "", 0, span=Span(0, rows, given), others=views)
    gc.collect()
    before, began = held("VmRSS"), cpu_seconds()
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here on
    out_rows = sum(output.table.num_rows for _, output in _outputs(task))
    return {"cpu": cpu_seconds() - began, "bytes": held("VmHWM") - before, "rows_out": out_rows}


def held(what: str) -> int:
    """Bytes of this process, by /proc."""
    return int(Path("/proc/self/status").read_text().partition(f"{what}:")[2].split()[0]) << 10


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark")
    parser.add_argument("--out", required=True, help="a finished run of it")
    parser.add_argument("--config", default="tiny")
    parser.add_argument("--set", action="append", default=[], help="settings of the run")
    parser.add_argument("--rows", type=int, nargs="+", default=[200_000, 1_000_000])
    parser.add_argument("--only", nargs="+", help="stages")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    from benchwright.pipelines import api

    job = api.job(args.benchmark, config=args.config, overrides=args.set)
    if args.one:
        print(json.dumps(measure(job, args.out, args.one, args.rows[0])))
        return
    for stage in (stage for stage in job.flow(args.out).ordered() if stage.kind == "whole"):
        if args.only and stage.name not in args.only:
            continue
        told, last = "", None
        for rows in args.rows:
            command = [
                sys.executable,
                __file__,
                args.benchmark,
                "--out",
                args.out,
                "--config",
                args.config,
                "--one",
                stage.name,
            ]
            command += ["--rows", str(rows), *(f"--set={each}" for each in args.set)]
            begun = time.perf_counter()
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                told += f"  {rows:,}: {done.stderr.strip().splitlines()[-1][:200]}"
                break
            found = json.loads(done.stdout.splitlines()[-1])
            told += f"  {rows:,}: {found['bytes'] >> 20:,} MiB, {found['cpu']:.1f} s of CPU, {found['rows_out']:,} out"
            if last:
                told += f", {(found['bytes'] - last[1]) / (rows - last[0]):.0f} bytes a row"
            last = rows, found["bytes"]
            if time.perf_counter() - begun > 300:
                break
        print(f"{args.benchmark:<10} {stage.name:<14} {stage.step.function.__name__:<28}{told}", flush=True)
    shutil.rmtree(Path(args.out) / AGAIN, ignore_errors=True)


if __name__ == "__main__":
    main()
