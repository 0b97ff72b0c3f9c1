"""The increments of a KOWL run beside those of its authors' code, clip for clip and in order.

Give the folder in which that code lies (https://github.com/prijatelj/human-activity-recognition-in-an-open-world); nothing
of it is copied. Its ``get_increments`` is taken out of ``arn/data/kinetics_owl.py`` and called as it stands, with stand-ins
for the three classes that it needs and that hold data alone, so that neither torch nor exputils has to be there. ::

    benchwright run kowl --config scaled --set source.root=FOLDER --out out     # or --config published, or lists of your own
    python -m venv old && old/bin/pip install numpy==1.23.5 pandas==1.5.3 scikit-learn==1.2.2
    python benchmarks/kowl_authors_code.py CODE out --python old/bin/python

The authors worked with those versions. Without ``--python`` their code runs in this interpreter: then classes of equal
counts may come in another order, since numpy sorts otherwise from 1.25 on.
"""

from __future__ import annotations

import argparse
import ast
import copy
import csv
import dataclasses
import json
import logging
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

ROLES = ("train", "val", "test")
SOURCE = "arn/data/kinetics_owl.py"
WANTED = ("get_known_and_unknown_dfs", "get_increments")


class Encoder(list[Any]):
    """Stands in for exputils' NominalDataEncoder, of which ``get_increments`` needs a growing list of labels."""

    def append(self, labels: Any) -> None:  # type: ignore[override]
        self.extend(labels)

    def encode(self, values: Any) -> Any:
        return values


@dataclasses.dataclass
class Splits:
    """Stands in for ``DataSplits``."""

    train: Any = None
    validate: Any = None
    test: Any = None


@dataclasses.dataclass
class Clips:
    """Stands in for ``KineticsUnified``: rows, and the labels."""

    data: Any = None
    label_enc: Any = None


def authors_functions(code: Path) -> dict[str, Any]:
    """The two functions of the authors, compiled from their file."""
    import numpy as np
    import pandas as pd
    from sklearn.model_selection import StratifiedKFold

    path = code / SOURCE
    if not path.is_file():
        raise SystemExit(f"{code} holds no {SOURCE}: the folder of the authors' repository is wanted")
    tree = ast.parse(path.read_text("utf-8"))
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in WANTED]
    if len(tree.body) != len(WANTED):
        raise SystemExit(f"{path} does not define {' and '.join(WANTED)}: another version of the code is wanted")
    if not hasattr(pd.DataFrame, "append"):  # pandas 2 has taken it away
        pd.DataFrame.append = lambda self, other: pd.concat([self, other])  # type: ignore[attr-defined]
    names = {"np": np, "pd": pd, "StratifiedKFold": StratifiedKFold, "deepcopy": copy.deepcopy}
    names |= {"NominalDataEncoder": Encoder, "DataSplits": Splits, "logger": logging.getLogger("authors")}
    exec(compile(tree, str(path), "exec"), names)
    return names


def run_theirs(code: Path, folder: Path) -> None:
    """``rows.csv`` of the folder through the authors' code into ``theirs.csv``; ``plan.json`` says how."""
    import numpy as np
    import pandas as pd

    warnings.filterwarnings("ignore", category=FutureWarning)
    get_increments = authors_functions(code)["get_increments"]
    plan = json.loads((folder / "plan.json").read_text())
    rows = pd.read_csv(folder / "rows.csv", keep_default_na=False, dtype=str)
    rows["sample_index"] = np.arange(len(rows))

    def split(release: str, role: str) -> Clips | None:
        mine = rows[(rows.release == release) & (rows.role == role)]
        return Clips(mine, Encoder()) if len(mine) else None

    first = [split(plan["first"], role) for role in ROLES]
    known = Encoder(sorted(first[0].data.labels.unique()))  # type: ignore[union-attr]
    increments = [Splits(*first)]
    for later in plan["later"]:
        splits = Splits(*(split(later["release"], role) for role in ROLES))
        increments += get_increments(later["count"], splits, known, later["seed"], intro_freq_first=True)
    with (folder / "theirs.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        for number, one in enumerate(increments):
            for role, part in zip(ROLES, (one.train, one.validate, one.test), strict=True):
                writer.writerows([number, role, key] for key in ([] if part is None else part.data["key"]))
    print(f"authors' code: numpy {np.__version__}, pandas {pd.__version__}")
    if tuple(map(int, np.__version__.split(".")[:2])) >= (1, 25):
        print("this numpy sorts otherwise than the authors': classes of equal counts may come in another order")


def compare(code: Path, out: str, python: str) -> bool:
    """Whether every increment and role of a run holds the same clips in the same order."""
    from benchwright.curation.artifact import load_run
    from benchwright.pipelines.report import ReportedRun

    run = ReportedRun.of(out)
    settings = load_run(run.store).config
    assigned, ours = run.rows("assigned"), run.rows("increments")
    if assigned is None or ours is None:
        raise SystemExit(f"{out} has no increments yet: run it to its end first")
    if settings["increments"]["preset"] != "as_released" or settings["increments"]["order"] != "as_released":
        raise SystemExit(f"{out}: increments.preset and increments.order must be as_released to be compared")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        columns = ["key", "label_recent_first", "taken_release", "role"]
        table = assigned.table(columns).rename_columns(["key", "labels", "release", "role"])
        with (folder / "rows.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(table.column_names)
            writer.writerows(zip(*(column.to_pylist() for column in table.columns), strict=True))
        plan = {"first": settings["labels"]["releases"][0], "later": settings["increments"]["later"]}
        (folder / "plan.json").write_text(json.dumps(plan))
        subprocess.run([python, __file__, str(code), "--child", scratch], check=True)
        with (folder / "theirs.csv").open(newline="") as file:
            theirs: dict[tuple[int, str], list[str]] = {}
            for number, role, key in csv.reader(file):
                theirs.setdefault((int(number), role), []).append(key)
    mine: dict[tuple[int, str], list[str]] = {}
    rows = ours.table(["increment", "role", "key"])
    for number, role, key in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        mine.setdefault((number, role), []).append(key)
    same = [_told(place, mine.get(place, []), theirs.get(place, [])) for place in sorted(mine.keys() | theirs.keys())]
    return all(same)


def _told(place: tuple[int, str], mine: list[str], theirs: list[str]) -> bool:
    if mine == theirs:
        print(f"increment {place[0]:2} {place[1]:5} {len(mine):7,} clips: the same, in the same order")
        return True
    both = len(set(mine) & set(theirs))
    at = next((n for n, pair in enumerate(zip(mine, theirs, strict=False)) if pair[0] != pair[1]), min(len(mine), len(theirs)))
    print(f"increment {place[0]:2} {place[1]:5} ours {len(mine):,}, theirs {len(theirs):,}, in both {both:,}; from row {at}")
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description="Increments of a run beside those of the KOWL authors' code.")
    parser.add_argument("code", type=Path, help="folder of the authors' repository")
    parser.add_argument("out", nargs="?", help="a finished run of kowl")
    parser.add_argument("--python", default=sys.executable, help="interpreter with the authors' numpy and pandas")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is not None:
        run_theirs(given.code, given.child)
        return
    if given.out is None:
        parser.error("a finished run is wanted")
    same = compare(given.code, given.out, given.python)
    print("every clip is in the same place" if same else "some clips are elsewhere")
    sys.exit(not same)


if __name__ == "__main__":
    main()
