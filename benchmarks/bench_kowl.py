"""From 1.4 million rows of nine lists to one label space and eleven increments: ours, pandas, and plain Python.

    python benchmarks/bench_kowl.py [--repeats 3] [--only engine,functions,pandas,python] [--folder FOLDER] [--quick]

The lists are drawn after KOWL's published counts and written as CSV files with a file of missing videos. The job: read them,
merge them by (youtube_id, time_start, time_end), give each sample its most recent label, leave out the missing, assign
samples first come first served, and make increments 0 to 10 as released, with scikit-learn's stratified folds in all. Each
must give the published Table 1. ``engine`` runs the plan, checks every line and writes every stage with digests and all
rejects; ``functions`` calls the same steps with Parquet files between them; ``pandas`` does as the released code, where pandas
is installed; ``python`` uses dictionaries. The last two check no line and write nothing. Each run is a process of its own, in
turn. Goal: 20 s on 2 cores, 1.5 GiB. With --quick one run each.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

GOAL_S, GOAL_MIB = 20.0, 1536
IDENTITY = ["youtube_id", "time_start", "time_end"]
Rows = list[dict]


def settings(folder: Path):
    """The published settings on the lists in ``folder``."""
    from benchwright.pipelines import config
    from benchwright.pipelines.kowl import pipeline as kowl
    from benchwright.pipelines.kowl.config import KowlConfig

    # A file of what is missing lies outside the folder of lists, which the source looks at as a whole.
    overrides = [f"source.root={folder / 'lists'}", f'videos={{path = "{folder / "missing.txt"}", means = "missing"}}']
    return config.load(KowlConfig, Path(kowl.__file__).with_name("published.toml"), overrides)[0]


def write_lists(folder: Path) -> int:
    """Draw the lists into ``folder``; returns the number of rows."""
    import pyarrow.csv
    from benchwright.datasets.kowl.synthetic import draw_lists, draw_missing, drawing

    rows = 0
    for table in draw_lists(drawing=drawing("published"), seed=0):
        path = folder / "lists" / table["release"][0].as_py() / f"{table['split'][0].as_py()}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        options = pyarrow.csv.WriteOptions(quoting_style="none")
        pyarrow.csv.write_csv(table.select(["label", *IDENTITY, "split"]), path, options)
        rows += table.num_rows
    (missing,) = draw_missing(drawing=drawing("published"), seed=0)
    lines = (f"{r['youtube_id']}_{r['time_start']:06d}_{r['time_end']:06d}\n" for r in missing.to_pylist())
    (folder / "missing.txt").write_text("".join(lines))
    return rows


# ---------------------------------------------------------------------------------------------------------------- ours


def with_engine(folder: Path, out: Path) -> Rows:
    """The plan, through the engine."""
    from benchwright.curation.run import run
    from benchwright.datasets.kowl.tables import increment_table, published_table
    from benchwright.pipelines.kowl import pipeline as kowl

    result = run(kowl.plan(settings(folder), str(out)), str(out), scheduler="threads", workers=2)
    seconds = {path.parent.name: json.loads(path.read_text())["seconds"] for path in sorted(out.glob("stages/*/made.json"))}
    print("  " + ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items()), file=sys.stderr)
    rows = result.rows().table(["increment", "role", "novel", "label_recent_first"])
    return published_table(increment_table(rows)).to_pylist()


def with_functions(folder: Path, out: Path) -> Rows:
    """The plan's steps one after another, each result one Parquet file a table."""
    import pyarrow as pa
    from benchwright.curation.parquet import write_parquet
    from benchwright.curation.part_writer import conform
    from benchwright.curation.rows import Sifted
    from benchwright.curation.stage_rows import PartInfo, Rows
    from benchwright.curation.store import Store
    from benchwright.datasets.kowl.tables import increment_table, published_table
    from benchwright.pipelines.kowl import pipeline as kowl

    plan = kowl.plan(settings(folder), str(out))
    schemas, made = plan.schemas(), {}
    for stage in plan.ordered():
        store, infos, values = Store(str(out / stage.name)), [], stage.step.all_settings()
        values = {name: made[value.name] if name == "inventory" else value for name, value in values.items()}
        if stage.pieces is not None:
            pieces = stage.pieces.function(**stage.pieces.all_settings())
            results = (item for piece in pieces for item in stage.step.function(piece, **values))
        else:
            results = stage.step.function(*([made[stage.after]] if stage.after else []), **values)
        for item in results:
            table: pa.Table = item.kept if isinstance(item, Sifted) else item
            name = f"part-{len(infos):05d}.parquet"
            with store.writing(name) as stream:
                write_parquet(stream, conform(table, schemas[stage.name], stage.name), {})
            infos.append(PartInfo(name, table.num_rows))
        made[stage.name] = Rows(store, schemas[stage.name], tuple(infos))
    rows = made[plan.last].table(["increment", "role", "novel", "label_recent_first"])
    return published_table(increment_table(rows)).to_pylist()


# -------------------------------------------------------------------------------------------------------------- theirs


def dealt(labels: list[str], count: int, seed: int) -> list:
    """Folds as the released code has them made."""
    from sklearn.model_selection import StratifiedKFold

    if not labels:
        return [[]] * count
    if count == 1:
        return [range(len(labels))]
    return [places for _, places in StratifiedKFold(count, shuffle=True, random_state=seed).split(labels, labels)]


def released_increments(splits: dict[str, list[list[str]]], known: set[str], seed: int, count: int, first: int) -> Rows:
    """The released ``get_increments`` on the labels of each split, in order; adds what becomes known to ``known``."""
    counts = Counter(label for label in splits["train"] if label not in known)
    fresh = sorted(sorted(counts), key=counts.__getitem__)
    size = -(-len(fresh) // count)
    table = [Counter() for _ in range(count)]
    for number in range(count):
        table[number]["known_classes"] = len(known) + min(number * size, len(fresh))
        table[number]["novel_classes"] = len(fresh[number * size : (number + 1) * size])
    for split, labels in splits.items():
        role = "train" if split == "train" else "test"
        have = Counter(labels)
        table[0][f"{role}_known"] += sum(label in known and have[label] <= count for label in labels)
        for number, places in enumerate(dealt([x for x in labels if x in known and have[x] > count], count, seed)):
            table[number][f"{role}_known"] += len(places)
        for number in range(count):
            chosen = set(fresh[number * size : (number + 1) * size])
            left = count - number
            mine = [label for label in labels if label in chosen]
            table[number][f"{role}_novel"] += sum(have[label] < left for label in mine)
            for fold, places in enumerate(dealt([label for label in mine if have[label] >= left], left, seed)):
                table[number + fold][f"{role}_{'known' if fold else 'novel'}"] += len(places)
    known.update(fresh)
    names = ["known_classes", "novel_classes", "train_known", "train_novel", "test_known", "test_novel"]
    return [{"increment": first + number, **{name: line[name] for name in names}} for number, line in enumerate(table)]


def released_table(taken: dict[str, dict[str, list[str]]], later: list[tuple[str, int, int]]) -> Rows:
    """Table 1 from the labels of each release and split."""
    start = taken.pop("kinetics400")
    known = set(start["train"])
    strays = sum(label not in known for label in start["test"])
    rows = [
        {
            "increment": 0,
            "known_classes": len(known),
            "novel_classes": 0,
            "train_known": len(start["train"]),
            "train_novel": 0,
            "test_known": len(start["test"]) - strays,
            "test_novel": strays,
        }
    ]
    for release, count, seed in later:
        rows += released_increments(taken[release], known, seed, count, len(rows))
    return rows


def with_pandas(folder: Path, out: Path) -> Rows:
    """As the released code: an outer merge of the releases, ``combine_first`` of the labels, index differences."""
    import pandas as pd

    c = settings(folder)
    merged, taken = None, {}
    for release in c.labels.releases:
        files = [file for file in c.source.files if file.release == release]
        frames = [pd.read_csv(folder / "lists" / file.path) for file in files]
        frame = pd.concat(frames).rename(columns={"label": f"label_{release}", "split": f"split_{release}"})
        merged = frame if merged is None else merged.merge(frame, on=IDENTITY, how="outer")
    newest, middle, oldest = (f"label_{release}" for release in reversed(c.labels.releases))
    merged["label"] = merged[newest].combine_first(merged[middle]).combine_first(merged[oldest].replace(c.labels.renames))
    times = merged[["time_start", "time_end"]].astype(int).astype(str)
    merged.index = merged["youtube_id"] + "_" + times["time_start"].str.zfill(6) + "_" + times["time_end"].str.zfill(6)
    missing = (folder / "missing.txt").read_text().split()
    merged = merged.drop(index=missing)
    merged = merged[merged["label"].notna()]
    seen = pd.Index([])
    for turn in c.turns:
        mine = merged.index[merged[f"split_{turn.release}"] == turn.split].difference(seen, sort=False)
        taken.setdefault(turn.release, {})[turn.split] = merged.loc[mine, "label"].tolist()
        seen = seen.append(mine)
    return released_table(taken, [(each.release, each.count, each.seed) for each in c.increments.later])


def with_python(folder: Path, out: Path) -> Rows:
    """Dictionaries and the csv module."""
    c = settings(folder)
    labels: dict[str, dict[str, str]] = {release: {} for release in c.labels.releases}
    places: dict[tuple[str, str], list[str]] = {}
    for file in c.source.files:
        uids = places[file.release, file.split or ""] = []
        with open(folder / "lists" / file.path, newline="") as stream:
            for row in csv.DictReader(stream):
                uid = f"{row['youtube_id']}_{int(row['time_start']):06d}_{int(row['time_end']):06d}"
                uids.append(uid)
                if row["label"]:
                    labels[file.release][uid] = row["label"]
    oldest = {uid: c.labels.renames.get(label, label) for uid, label in labels[c.labels.releases[0]].items()}
    label = {**oldest, **labels[c.labels.releases[1]], **labels[c.labels.releases[2]]}
    seen = set((folder / "missing.txt").read_text().split())
    taken: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for turn in c.turns:
        mine = [uid for uid in places[turn.release, turn.split] if uid not in seen and uid in label]
        taken[turn.release][turn.split] = [label[uid] for uid in mine]
        seen.update(mine)
    return released_table(dict(taken), [(each.release, each.count, each.seed) for each in c.increments.later])


WAYS = {"engine": with_engine, "functions": with_functions, "pandas": with_pandas, "python": with_python}


def one(way: str, folder: Path) -> None:
    """Run one way and print its figures as JSON; the imports are not timed."""
    for name in ("benchwright.pipelines.kowl.pipeline", "sklearn.model_selection", *(["pandas"] if way == "pandas" else [])):
        importlib.import_module(name)

    from benchwright.curation.cost import peak_bytes_of_all

    with tempfile.TemporaryDirectory(dir=folder) as out:
        start, used = time.perf_counter(), time.process_time()
        table = WAYS[way](folder, Path(out) / "out")
        seconds, cpu = time.perf_counter() - start, time.process_time() - used
    peak = peak_bytes_of_all() / 2**20
    print(json.dumps({"seconds": seconds, "cpu_s": cpu, "peak_mib": peak, "table": table}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default=",".join(WAYS))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        one(args.one, args.folder)
        return
    ways = [way for way in args.only.split(",") if way != "pandas" or importlib.util.find_spec("pandas")]
    with tempfile.TemporaryDirectory(dir=args.folder) as scratch:
        folder = Path(scratch)
        print(f"{write_lists(folder):,} rows in nine lists")
        found: dict[str, list[dict]] = {way: [] for way in ways}
        for _ in range(1 if args.quick else args.repeats):
            for way in ways:
                command = [sys.executable, __file__, "--one", way, "--folder", str(folder)]
                answer = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
                found[way].append(json.loads(answer.splitlines()[-1]))
    report(found)


def report(found: dict[str, list[dict]]) -> None:
    """Print the table; says whether all gave the published one."""
    from benchwright.datasets.kowl.facts import facts

    base = statistics.median(run["seconds"] for run in next(iter(found.values())))
    print(
        f"{'way':10} {'seconds':>8} {'ratio':>6} {'CPU s':>7} {'peak MiB':>9}  Table 1   goal of {GOAL_S:.0f} s, {GOAL_MIB} MiB"
    )
    for way, runs in found.items():
        seconds, peak = statistics.median(run["seconds"] for run in runs), max(run["peak_mib"] for run in runs)
        cpu = statistics.median(run["cpu_s"] for run in runs)
        table = {name: [line[name] for line in runs[0]["table"]] for name in runs[0]["table"][0]}
        table["test_novel"][0] -= 1  # the one sample that the published Table 1 leaves out
        exact = all(table[name] == list(column) for name, column in facts().table_1.items())
        goal = "met" if seconds < GOAL_S and peak < GOAL_MIB else "missed"
        print(
            f"{way:10} {seconds:8.1f} {seconds / base:6.2f} {cpu:7.1f} {peak:9.0f}  {'exact' if exact else 'DIFFERS':8}  {goal}"
        )


if __name__ == "__main__":
    main()
