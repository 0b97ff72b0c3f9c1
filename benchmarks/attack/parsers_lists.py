"""Lists, annotations and metadata."""

from __future__ import annotations

import pickle
from collections.abc import Callable

from . import counts, hostile_archives, hostile_arrays, hostile_tables, valid
from .parser import Parser, by_plan
from .parsers_pictures import VIDEOS

_LISTS = "source={kind='lists',root='{in}',max_rejects=0.99,files=[{release='first',split='train',path='%s'}]}"


def _kinetics() -> tuple[bytes, bytes]:
    rows = [[f"label {n % 3}", name, 10, 20, "train"] for n, name in enumerate(valid.ids(8))]
    listed = {
        name: {"annotations": {"label": f"label {n % 3}", "segment": [1.0, 11.0]}, "subset": "train", "duration": 10}
        for n, name in enumerate(valid.ids(8))
    }
    return valid.table([["label", "youtube_id", "time_start", "time_end", "split"], *rows]), valid.text(listed)


def _lists() -> list[Parser]:
    csv, js = _kinetics()
    labelled = _LISTS.replace("path='%s'", "path='%s',labels='labels.txt'")
    ava = [[name, f"{5 + n}.0", 0.1, 0.2, 0.5, 0.9, 12] for n, name in enumerate(valid.ids(6))]
    return [
        Parser(
            "Kinetics CSV",
            lambda: {"a.csv": csv},
            "a.csv",
            by_plan("kowl", (_LISTS % "a.csv",), "listed"),
            text=True,
            specials=hostile_tables.lines("a.csv"),
            count=counts.lines_below_header,
        ),
        Parser(
            "Kinetics JSON",
            lambda: {"a.json": js},
            "a.json",
            by_plan("kowl", (_LISTS % "a.json",), "listed"),
            text=True,
            specials=hostile_tables.json_files("a.json"),
        ),
        Parser(
            "Kinetics, gzip",
            lambda: {"a.csv.gz": valid.zipped(csv)},
            "a.csv.gz",
            by_plan("kowl", (_LISTS % "a.csv.gz",), "listed"),
            packed="gzip",
            text=True,
            specials=hostile_archives.gzips("a.csv.gz"),
            count=counts.gzip_lines_below_header,
        ),
        Parser(
            "labels of a release",
            lambda: {"a.csv": csv, "labels.txt": b"label 0\nlabel 1\nlabel 2\n"},
            "labels.txt",
            by_plan("kowl", (labelled % "a.csv",), "listed"),
            lambda: [b'["label 0","label 1"]'],
            text=True,
            specials=hostile_tables.json_files("labels.txt"),
            share=0.5,
        ),
        Parser(
            "inventory of videos",
            lambda: {"held.txt": "\n".join(f"{i}_000001_000011.mp4" for i in valid.ids(6)).encode()},
            "held.txt",
            by_plan("kowl", ("videos={path='{in}/held.txt',means='present'}",), "videos"),
            text=True,
            specials=hostile_tables.lines("held.txt"),
            count=counts.lines,
        ),
        Parser(
            "AVA CSV",
            lambda: {"a.csv": valid.table(ava)},
            "a.csv",
            by_plan("kowl", ("ava={path='{in}/a.csv'}",), "ava"),
            text=True,
            specials=hostile_tables.lines("a.csv"),
            count=counts.lines,
        ),
        *_of_vclimb(csv, js),
    ]


def _of_vclimb(csv: bytes, js: bytes) -> list[Parser]:
    def listed(source: str, until: str = "listed") -> Callable[..., object]:
        return by_plan("vclimb", (f"source={source}", *VIDEOS), until)  # type: ignore[return-value]

    segments = [{"label": "run", "segment": [1.0, 5.0]}, {"label": "walk", "segment": [6, 9]}]
    database = {"database": {name: {"duration": 20.0, "subset": "training", "annotations": segments} for name in valid.ids(4)}}
    head = ["video-name", "t-start", "t-end", "action-label", "video-duration", "temporal-region-label"]
    tsp = [head, *([name, 1, 5, "run", 20, "Action"] for name in valid.ids(5))]
    classes = b"1 ApplyEyeMakeup\n2 Archery\n"
    names = [f"{c}/v_{c}_g{g:02}_c01.avi" for c in ("ApplyEyeMakeup", "Archery") for g in (1, 2)]
    ucf = {
        "classInd.txt": classes,
        "testlist01.txt": "\n".join(names[:2]).encode(),
        "trainlist01.txt": "\n".join(f"{n} {1 + n.startswith('Arc')}" for n in names[2:]).encode(),
    }
    split = pickle.dumps(
        {role: [{"a": [f"v_a_g0{n}_c01" for n in range(1, 4)]}, {"b": ["v_b_g01_c01"]}] for role in ("train", "val")}
    )
    own = [["video", "label", "t_start", "t_end", "role", "group"], *([f"{n}.mp4", "a", 0, 2, "train", "g"] for n in range(4))]
    return [
        Parser(
            "ActivityNet JSON",
            lambda: {"a.json": valid.text(database)},
            "a.json",
            listed("{kind='activitynet',path='{in}/a.json'}"),
            text=True,
            specials=hostile_tables.json_files("a.json"),
        ),
        Parser(
            "ActivityNet CSV (TSP)",
            lambda: {"t.csv": valid.table(tsp)},
            "t.csv",
            listed("{kind='activitynet_csv',root='{in}',files={train='t.csv'}}"),
            text=True,
            specials=hostile_tables.lines("t.csv"),
        ),
        Parser(
            "UCF101 lists",
            lambda: dict(ucf),
            "trainlist01.txt",
            listed("{kind='ucf101',root='{in}'}"),
            text=True,
            specials=hostile_tables.lines("trainlist01.txt"),
        ),
        Parser(
            "UCF101 classes",
            lambda: dict(ucf),
            "classInd.txt",
            listed("{kind='ucf101',root='{in}'}"),
            text=True,
            specials=hostile_tables.lines("classInd.txt"),
            share=0.5,
        ),
        Parser(
            "split pickle (vCLIMB)",
            lambda: {"s.pkl": split},
            "s.pkl",
            by_plan("vclimb", ("source={kind='split_file',path='{in}/s.pkl'}", "split.tasks=2", *VIDEOS[:2]), "listed"),
            specials=hostile_arrays.pickles("s.pkl"),
        ),
        Parser(
            "CSV of videos",
            lambda: {"v.csv": valid.table(own)},
            "v.csv",
            listed("{kind='csv',path='{in}/v.csv'}"),
            text=True,
            specials=hostile_tables.lines("v.csv"),
        ),
    ]


def _others() -> list[Parser]:
    meta = "source={kind='yfcc100m',metadata='{in}/%s',images_root='{in}'}"
    hierarchy = valid.text({"super_classes": {"disc": ["red disc", "blue disc"]}, "other_sub_classes": ["grass"]})
    pictures = {f"{c}/{n}.png": valid.picture("PNG", f"{c}{n}") for c in ("red disc", "blue disc", "grass") for n in range(2)}
    folders = "source={kind='folders',root='{in}/all',splits={},max_rejects=0.99%s}"
    shares = "shares={in_task=0.1,post_task=0.1,superclass=0.4,subclass=0.8,cap=8,test=0.2}"
    tasks = valid.text({"configuration_0": {"task_0": ["disc"], "task_1": ["red disc", "blue disc", "grass"]}})
    official = (
        folders % "",
        shares,
        "hierarchy={kind='file',path='{in}/h.%s'}",
        "tasks={kind='drawn',first=1,later=2,configurations=[0]}",
    )
    below = {f"all/{name}": body for name, body in pictures.items()}
    listed = b"images\tclass\n" + b"".join(f"{n}.png\tgrass\n".encode() for n in range(2))

    def assigned(ending: str) -> Callable[..., object]:
        return by_plan("iirc", (*official[:2], official[2] % ending, official[3]), "assigned")  # type: ignore[return-value]

    return [
        Parser(
            "YFCC100M text",
            lambda: {"y.tsv": valid.yfcc()},
            "y.tsv",
            by_plan("clear", (meta % "y.tsv",), "listed"),
            lambda: [valid.yfcc(5, columns=25)],
            text=True,
            specials=hostile_tables.lines("y.tsv"),
            count=counts.lines,
        ),
        Parser(
            "YFCC100M, gzip",
            lambda: {"y.gz": valid.zipped(valid.yfcc())},
            "y.gz",
            by_plan("clear", (meta % "y.gz",), "listed"),
            packed="gzip",
            text=True,
            specials=hostile_archives.gzips("y.gz"),
            count=counts.gzip_lines,
        ),
        Parser(
            "YFCC100M, SQLite",
            lambda: {"y.sqlite": valid.yfcc_sqlite()},
            "y.sqlite",
            by_plan("clear", (meta % "y.sqlite",), "listed"),
            specials=hostile_tables.sqlite("y.sqlite"),
        ),
        Parser(
            "hierarchy, JSON",
            lambda: {**below, "h.json": hierarchy},
            "h.json",
            assigned("json"),
            text=True,
            specials=hostile_tables.json_files("h.json"),
            share=0.5,
        ),
        Parser(
            "hierarchy, TOML",
            lambda: {**below, "h.toml": b'lone = ["grass"]\n[superclasses]\ndisc = ["red disc", "blue disc"]\n'},
            "h.toml",
            assigned("toml"),
            text=True,
            specials=hostile_tables.toml("h.toml"),
            share=0.5,
        ),
        Parser(
            "hierarchy, CSV",
            lambda: {**below, "h.csv": b"subclass,superclass\nred disc,disc\nblue disc,disc\ngrass,\n"},
            "h.csv",
            assigned("csv"),
            text=True,
            specials=hostile_tables.lines("h.csv"),
            share=0.5,
        ),
        Parser(
            "task configurations",
            lambda: {**below, "h.json": hierarchy, "t.json": tasks},
            "t.json",
            by_plan(
                "iirc",
                (*official[:2], official[2] % "json", "tasks={kind='file',path='{in}/t.json',configurations=[0]}"),
                "assigned",
            ),
            text=True,
            specials=hostile_tables.json_files("t.json"),
            share=0.5,
        ),
        Parser(
            "list of classes",
            lambda: {**below, "c.txt": listed},
            "c.txt",
            by_plan("iirc", (folders % ",classes='{in}/c.txt'", *official[1:2], official[2] % "json"), "found"),
            text=True,
            specials=hostile_tables.lines("c.txt"),
            share=0.5,
        ),
    ]


def parsers() -> list[Parser]:
    """All of them."""
    return [*_lists(), *_others()]
