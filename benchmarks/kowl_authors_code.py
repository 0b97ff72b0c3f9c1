"""The increments of KOWL's authors' code beside ours, clip for clip and in order.

Give the folder in which that code lies (https://github.com/prijatelj/human-activity-recognition-in-an-open-world), and the
released lists; nothing else is needed, and nothing of it is copied::

    python benchmarks/kowl_authors_code.py CODE LISTS

Where all nine lists lie in LISTS under the names of ``published.toml``, the published increments are compared, else those of
``scaled.toml``; LISTS may also be a finished run, on lists of one's own, too. Both sides are given the same samples, in one
label space and with the same roles. Their ``get_increments`` is taken out of ``arn/data/kinetics_owl.py`` and called as it
stands, with stand-ins for the three classes that it needs and that hold data alone, so that neither torch nor exputils has to
be there.

The authors worked with numpy 1.23.5 and pandas 1.5.3: numpy sorts otherwise from 1.25 on, and classes of equal counts would
come in another order. ``pip`` installs those versions into an environment of their own, which is removed at the end; or
``--python`` names an interpreter that has them (or others, which is then said).
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
import venv
import warnings
from pathlib import Path
from typing import Any

ROLES = ("train", "val", "test")
STAGES = ("assigned", "increments")
SOURCE = "arn/data/kinetics_owl.py"
VERSIONS = ("numpy==1.23.5", "pandas==1.5.3", "scikit-learn==1.2.2")
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


def authors_source(code: Path) -> tuple[Path, ast.Module]:
    """Their file, and of what it defines the two functions."""
    path = code / SOURCE
    if not path.is_file():
        raise SystemExit(f"{code} holds no {SOURCE}: the folder of the authors' repository is wanted")
    tree = ast.parse(path.read_text("utf-8"))
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in WANTED]
    if len(tree.body) != len(WANTED):
        raise SystemExit(f"{path} does not define {' and '.join(WANTED)}: another version of the code is wanted")
    return path, tree


def authors_functions(code: Path) -> dict[str, Any]:
    """The two functions of the authors, compiled from their file."""
    import numpy as np
    import pandas as pd
    from sklearn.model_selection import StratifiedKFold

    path, tree = authors_source(code)
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


def increments_of(lists: str, scratch: Path) -> tuple[dict[str, Any], Any]:
    """Rows of a run, and the settings that its increments follow. Of a folder of lists the run is made."""
    from benchwright.curation.artifact import load_artifact
    from benchwright.curation.run import run
    from benchwright.curation.store import Store
    from benchwright.pipelines import api
    from benchwright.pipelines.kowl.pipeline import plan

    if Path(lists, "run.json").is_file():
        config = api.job_of(lists).config
        store = Store(lists)
        found = {name: load_artifact(store, name) for name in STAGES}
        if None in found.values():
            raise SystemExit(f"{lists} has no increments yet: finish the run first")
        return {name: artifact.rows_view(store) for name, artifact in found.items() if artifact}, config
    names = ("published", "scaled")
    jobs = [api.job("kowl", config=name, overrides=[f"source.root={json.dumps(lists)}"]).config for name in names]
    lacks = [[file.path for file in each.source.files if not Path(lists, file.path).is_file()] for each in jobs]
    config = next((each for each, missing in zip(jobs, lacks, strict=True) if not missing), None)
    if config is None:
        told = "; ".join(f"{name}.toml wants {', '.join(missing)}, too" for name, missing in zip(names, lacks, strict=True))
        raise SystemExit(f"{lists} holds neither the published lists nor those of a small run: {told}")
    config = dataclasses.replace(config, videos=None, features=None, feature_sets={}, ava=None)
    done = run(plan(config, str(scratch)), str(scratch))
    return {name: done.rows(name) for name in STAGES}, config


def interpreter(folder: Path) -> str:
    """Of a fresh environment with the authors' versions."""
    if sys.version_info >= (3, 12):
        raise SystemExit(f"{VERSIONS[0]} wants Python 3.11 or older: name an interpreter with --python")
    print(f"installing {', '.join(VERSIONS)} ...", flush=True)
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", *VERSIONS], check=True)
    return python


def compare(code: Path, lists: str, python: str | None) -> bool:
    """Whether every increment and role holds the same clips in the same order."""
    authors_source(code)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        rows, config = increments_of(lists, folder / "run")
        if config.increments.preset != "as_released" or config.increments.order != "as_released":
            raise SystemExit(f"{lists}: increments.preset and increments.order must be as_released to be compared")
        columns = ["key", "label_recent_first", "taken_release", "role"]
        table = rows["assigned"].table(columns).rename_columns(["key", "labels", "release", "role"])
        with (folder / "rows.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(table.column_names)
            writer.writerows(zip(*(column.to_pylist() for column in table.columns), strict=True))
        later = [dataclasses.asdict(each) for each in config.increments.later]
        (folder / "plan.json").write_text(json.dumps({"first": config.labels.releases[0], "later": later}))
        python = python or interpreter(folder / "old")
        subprocess.run([python, __file__, str(code), "--child", scratch], check=True)
        with (folder / "theirs.csv").open(newline="") as file:
            theirs: dict[tuple[int, str], list[str]] = {}
            for number, role, key in csv.reader(file):
                theirs.setdefault((int(number), role), []).append(key)
        mine: dict[tuple[int, str], list[str]] = {}
        table = rows["increments"].table(["increment", "role", "key"])
        for number, role, key in zip(*(column.to_pylist() for column in table.columns), strict=True):
            mine.setdefault((number, role), []).append(key)
    same = [_told(place, mine.get(place, []), theirs.get(place, [])) for place in sorted(mine.keys() | theirs.keys())]
    placed = sum(a == b for place in mine for a, b in zip(mine[place], theirs.get(place, []), strict=False))
    print(f"{placed:,} of {sum(map(len, mine.values())):,} clips are in the same increment, role and place")
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
    parser = argparse.ArgumentParser(description="Increments of the KOWL authors' code beside ours.")
    parser.add_argument("code", type=Path, help="folder of the authors' repository")
    parser.add_argument("lists", nargs="?", help="folder of the released lists, or a finished run of kowl")
    parser.add_argument("--python", help="interpreter with the authors' numpy and pandas, in place of one that is made")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is not None:
        run_theirs(given.code, given.child)
        return
    if given.lists is None:
        parser.error("a folder of the released lists, or a finished run, is wanted")
    sys.exit(not compare(given.code, given.lists, given.python))


if __name__ == "__main__":
    main()
