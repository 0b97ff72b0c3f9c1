"""The skeleton plan through the engine: UCLA-CIL on its real data, NTU-CIL from names, text and arrays, own joints."""

from __future__ import annotations

import dataclasses
import json
import pickle
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchwright.curation.part_writer import StepFailed
from benchwright.curation.rows import Rejected
from benchwright.curation.run import Run, TooManyRejects, run
from benchwright.datasets.reader.index import DatasetIndex
from benchwright.datasets.skeleton.facts import facts
from benchwright.datasets.skeleton.nwucla import list_nwucla
from benchwright.datasets.skeleton.rows import ListedSequence
from benchwright.datasets.skeleton.tensors import node_vectors
from benchwright.datasets.skeleton.view import load_arrays, load_orders
from benchwright.pipelines import api, config
from benchwright.pipelines.cli import main as cli
from benchwright.pipelines.config import ConfigError
from benchwright.pipelines.errors import WrongUse
from benchwright.pipelines.jobs import job_of
from benchwright.pipelines.skeleton import baselines
from benchwright.pipelines.skeleton import card as skeleton_publish
from benchwright.pipelines.skeleton import pipeline as skeleton
from benchwright.pipelines.skeleton.config import SkeletonConfig
from benchwright.pipelines.skeleton.paper import data_differs
from benchwright.pipelines.skeleton.report import write_report

from tests.datasets.skeleton_files import one_body

from .pages import faults, rows_of_page

ROOT = Path(__file__).resolve().parents[2]


def settings(name: str | None, *overrides: str) -> SkeletonConfig:
    return config.load(SkeletonConfig, config.find_config("skeleton", name), overrides, benchmark="skeleton")[0]


def made(c: SkeletonConfig, out: Path, scheduler: str = "sync") -> Run:
    found = run(skeleton.plan(c, str(out)), str(out), scheduler=scheduler, workers=2)
    skeleton_publish.publish(found, c, str(out / "dataset"))
    return found


@pytest.fixture(scope="module")
def tiny(finished, tmp_path_factory) -> Path:
    """The tiny run. Only to be read."""
    return Path(shutil.copytree(finished("skeleton"), tmp_path_factory.mktemp("skeleton") / "run"))


def test_ucla_cil_on_its_real_data(shared_data: Path, tmp_path: Path) -> None:
    fact = facts().nwucla
    overrides = [f"source.root={shared_data / 'nwucla' / 'all_sqe'}"]
    c, recorded, _ = config.load(SkeletonConfig, config.find_config("skeleton", None), overrides, benchmark="skeleton")
    found = made(c, tmp_path, "threads")
    arrays = load_arrays(str(tmp_path))
    assert arrays.x.shape == (fact.sequences, 3, 52, 20, 1)
    assert tuple(np.bincount(arrays.labels)) == fact.per_class
    assert tuple(np.bincount(arrays.tasks)) == fact.per_task
    assert arrays.classes == fact.classes
    assert arrays.keys == tuple(sorted(arrays.keys))
    for label, count in enumerate(fact.per_class):
        roles = arrays.roles[arrays.labels == label].tolist()
        held = int(0.1 * count)
        assert roles == ["train"] * (count - 2 * held) + ["val"] * held + ["test"] * held
    # Class 0: 8:1:1 of 150 sequences.
    assert [int(((arrays.labels == 0) & (arrays.roles == role)).sum()) for role in ("train", "val", "test")] == [120, 15, 15]
    sides = found.rows("chosen").table(["x_view"])["x_view"].to_pylist()
    assert (sides.count("train"), sides.count("test")) == fact.x_view
    # A sequence of one frame is that frame, 52 times.
    for key in fact.length_1:
        one = arrays.x[arrays.keys.index(key)]
        assert np.array_equal(one, np.repeat(one[:, :1], 52, axis=1))
    table = found.rows("split").table(["key", "source_frames", "label"])
    whole = arrays.x[np.asarray(table["source_frames"]) <= 52]  # of longer ones not every frame is taken
    assert (whole.min((2, 3, 4)) == -1).all()
    assert (whole.max((2, 3, 4)) == 1).all()
    assert np.abs(arrays.x).max() == 1
    # One sequence by hand, from its file.
    joints = np.asarray(json.loads((shared_data / "nwucla/all_sqe/a05_s03_e02_v02.json").read_text())["skeletons"])
    moved = joints - joints[0, 1]
    scaled = (moved - moved.min((0, 1))) / (moved.max((0, 1)) - moved.min((0, 1))) * 2 - 1
    frames = np.linspace(0, len(joints) - 1, 52).astype(int)
    wanted = scaled[frames].transpose(2, 0, 1).astype(np.float32)
    assert np.array_equal(arrays.x[arrays.keys.index("a05_s03_e02_v02")][..., 0], wanted)
    # Published figures stand beside no run in the order of the names: what it recorded says so, whatever its settings.
    values = {"source": {"kind": "nwucla"}} | {name: value for name, value in recorded.items() if name != "source"}
    assert data_differs(c, str(tmp_path), values).startswith("source.lists is not set, so sequences are ordered by")
    values["source"] = {"kind": "nwucla", "lists": "lists.json"}
    assert data_differs(c, str(tmp_path), values).startswith("source.lists = 'lists.json': the sequences are not in the order")
    page = Path(write_report(c, str(tmp_path))).read_text()
    assert "Scores are therefore shown without published figures" in page
    assert rows_of_page(page, "this run") == rows_of_page(page, "Table 1") == [["1,484", "20", "10", "5", "297", "52"]]
    assert "The counts equal those of the paper" in page
    lists = json.loads((shared_data / "nwucla/split_train_val.json").read_text())
    published = {entry["file_name"]: entry for side in lists.values() for entry in side}
    told = {row["key"]: (row["source_frames"], row["label"] + 1) for row in table.to_pylist()}
    assert told == {name: (entry["length"], entry["label"]) for name, entry in published.items()}


def test_the_documented_run_has_the_published_order(shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line of the documents, as it stands there: published figures may stand beside what it makes."""
    for name in ("all_sqe", "split_train_val.json"):
        (tmp_path / name).symlink_to(shared_data / "nwucla" / name)
    monkeypatch.chdir(tmp_path)
    pages = [(ROOT / page).read_text("utf-8") for page in ("datasets/skeleton/README.md", "docs/tables.md")]
    line, again = (re.findall(r"^benchwright (run skeleton --set .*--out ucla)\b", page, re.MULTILINE)[0] for page in pages)
    assert line == again
    assert cli.call([*shlex.split(line), "--quiet"]) == 0
    c, values, _ = config.load(SkeletonConfig, config.find_config("skeleton", None), benchmark="skeleton")
    assert data_differs(c, "ucla", values) == ""


def test_the_order_of_the_lists(shared_data: Path, tmp_path: Path) -> None:
    root, path = shared_data / "nwucla" / "all_sqe", shared_data / "nwucla" / "split_train_val.json"
    lists = json.loads(path.read_text())
    wanted = [entry["file_name"] for side in ("train", "val") for entry in lists[side]]
    found = [row for row in list_nwucla(root=str(root), lists=str(path)) if isinstance(row, ListedSequence)]
    assert [row.key for row in found] == wanted != sorted(wanted)
    assert [row.x_view for row in found] == ["train"] * 1020 + ["test"] * 464
    by_name = {row.key: row for row in list_nwucla(root=str(root)) if isinstance(row, ListedSequence)}
    assert all(by_name[row.key] == row for row in found)
    short = tmp_path / "lists.json"
    short.write_text(json.dumps({"train": [{"file_name": wanted[0]}, {"file_name": "a01_s99_e00_v01"}], "val": []}))
    told = list(list_nwucla(root=str(root), lists=str(short)))
    reasons = [row.reason for row in told if isinstance(row, Rejected)]
    assert (reasons.count("not_in_lists"), reasons.count("no_file"), len(told)) == (1483, 1, 1485)
    short.write_text('{"train": []}')
    with pytest.raises(ValueError, match="JSON with train and val"):
        list(list_nwucla(root=str(root), lists=str(short)))


def test_ntu_cil_from_names(shared_data: Path, tmp_path: Path) -> None:
    fact, names = facts().ntu_cil, shared_data / "ntu"
    lists = f'path="{names / "skes_available_name.txt"}", missing="{names / "samples_with_missing_skeletons.txt"}"'
    found = made(settings("ntu", f'source={{kind="ntu_names", {lists}}}'), tmp_path)
    table = found.rows().table()
    assert table.num_rows == fact.sequences
    assert tuple(np.bincount(table["label"])) == fact.per_class
    assert tuple(np.bincount(table["task"])) == fact.per_task
    roles = np.asarray(table["role"].to_pylist())[np.asarray(table["label"]) == 0].tolist()
    assert [roles.count(role) for role in ("train", "val", "test")] == [534, 66, 66]
    assert not (tmp_path / "dataset").exists()
    assert load_orders(str(tmp_path)).task_orders.shape == (120, 10)
    page = Path(write_report(settings("ntu", f'source={{kind="ntu_names", {lists}}}'), str(tmp_path))).read_text()
    assert rows_of_page(page, "this run") == [["6,667", "25", "10", "5", "1,333"]]
    assert rows_of_page(page, "Table 1") == [["6,667", "25", "10", "5", "1,333", "300"]]
    assert api.verify(str(tmp_path)) == []


@pytest.mark.parametrize(("rule", "train"), [("x_sub", 240), ("x_set", 120)])
def test_the_preset_of_120_classes_gives_the_protocols(tmp_path: Path, rule: str, train: int) -> None:
    """Names of each class by a performer and a setup of each side; two that are missing."""
    pairs = [(2, 1), (1, 1), (3, 3)]  # setup and performer: trains in both; in X-Sub alone; in neither
    names = [f"S{s:03d}C001P{p:03d}R001A{a:03d}" for s, p in pairs for a in range(1, 121)]
    (tmp_path / "names.txt").write_text("\n".join([*names, "S002C001P001R002A001", "S002C001P001R002A120"]))
    (tmp_path / "missing.txt").write_text("S002C001P001R002A001\nS002C001P001R002A120\n")
    lists = f'path="{tmp_path / "names.txt"}", missing="{tmp_path / "missing.txt"}"'
    found = made(
        settings("ntu120", f'source={{kind="ntu_names", {lists}}}', f"split.rule={rule}", "split.val=0"), tmp_path / "run"
    )
    table = found.rows().table()
    roles = table["role"].to_pylist()
    assert (roles.count("train"), roles.count("test")) == (train, 360 - train)
    assert np.bincount(table["task"]).tolist() == [30] * 12
    assert load_orders(str(tmp_path / "run")).task_orders.shape == (10, 120)


def test_names_alone_have_a_report(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    names = [f"S{s:03}C001P{p:03}R001A{a:03}" for p in (1, 2) for s in range(1, 11) for a in (1, 2, 3, 4)]
    (tmp_path / "names.txt").write_text("\n".join(names))
    out, source = tmp_path / "run", f'source={{kind="ntu_names", path="{tmp_path / "names.txt"}"}}'
    few = ["--set", "classes=4", "--set", "orders.tasks=2", "--set", "orders.classes=1"]
    assert cli.call(["run", "skeleton", "--config", "ntu", "--out", str(out), "--set", source, *few, "--quiet"]) == 0
    assert cli.call(["report", str(out)]) == 0
    page = (out / "report.html").read_text()
    assert faults(page) == []
    for words in ("names only", "drink water", "Sequences by task"):
        assert words in page
    assert "frames, min" not in page
    assert cli.call(["train", str(out)]) == 2
    assert "source.kind = 'ntu_names': names have no joints" in capfd.readouterr().err


def test_processes_and_another_seed(tiny: Path, tmp_path: Path) -> None:
    def digests(out: Path) -> dict[str, str]:
        return {stage["name"]: stage["digest"] for stage in api.show(str(out))["stages"]}

    made(settings("tiny"), tmp_path / "processes", "processes")
    assert digests(tmp_path / "processes") == digests(tiny)
    made(settings("tiny", "seed=1"), tmp_path / "other")
    assert not {digests(tmp_path / "other")[name] for name in ("tensors", "orders", "shards")} & set(digests(tiny).values())


def test_rejects_and_what_is_published(tiny: Path, tmp_path: Path) -> None:
    counts = {stage["name"]: stage["rejects"] for stage in api.show(str(tiny))["stages"] if stage["rejects"]}
    assert counts == {"tensors": {"not_finite": 2}}
    assert api.verify(str(tiny)) == []
    with pytest.raises(TooManyRejects, match="tensors"):
        made(settings("tiny", "max_broken=1"), tmp_path)
    table = DatasetIndex.open(str(tiny / "dataset")).table
    card = (tiny / "dataset" / "README.md").read_text()
    assert all(f"`{name}`" in card for name in table.column_names)
    assert "SYNTHETIC" in card
    assert {shard.rsplit("-", 1)[0] for shard in table["shard"].to_pylist()} == {
        f"task{task:02d}-{role}" for task in range(5) for role in ("train", "val", "test")
    }


def test_drawn_actions_are_told_apart_but_not_by_everyone(tiny: Path) -> None:
    """The nearest training sequence has the right class far more often than chance, and is often wrong."""
    arrays = load_arrays(str(tiny))
    vectors = node_vectors(arrays.x).reshape(len(arrays.x), -1)
    train, test = arrays.roles == "train", arrays.roles == "test"
    nearest = ((vectors[test, None] - vectors[None, train]) ** 2).sum(-1).argmin(1)
    right = (arrays.labels[train][nearest] == arrays.labels[test]).mean()
    assert 0.3 < right < 0.95


# ------------------------------------------------------------------------------------------------- text, arrays, folders


@pytest.fixture(scope="module")
def ntu_files(tmp_path_factory) -> tuple[Path, dict[str, np.ndarray]]:
    """Files of NTU's format, four of each of three actions by performers that train, one by another, and their joints."""
    root = tmp_path_factory.mktemp("ntu")
    drawn = np.random.default_rng(5)
    held: dict[str, np.ndarray] = {}
    for action in (1, 2, 3):
        for performer in (1, 2, 4, 5, 3):
            name = f"S001C00{action}P{performer:03d}R001A{action:03d}"
            joints = drawn.normal(size=(int(drawn.integers(1, 30)), 25, 3)).astype(np.float32)
            (root / f"{name}.skeleton").write_bytes(one_body(joints))
            held[name] = np.asarray([[[float(f"{v:.7g}") for v in joint] for joint in frame] for frame in joints], "f4")
    return root, held


NTU = ("classes=3", "orders.tasks=2", "orders.classes=3", "split.val=0.2", "split.test=0.2")


def test_text_and_arrays_give_the_same(ntu_files, tmp_path: Path) -> None:
    root, held = ntu_files
    missing = tmp_path / "missing.txt"
    missing.write_text("S001C003P005R001A003\n")
    of_text = settings("ntu", f'source={{kind="ntu", root="{root}", missing="{missing}"}}', *NTU)
    made(of_text, tmp_path / "text")
    text = load_arrays(str(tmp_path / "text"))
    taking_part = {name: joints for name, joints in held.items() if "P003" not in name and name != "S001C003P005R001A003"}
    assert text.keys == tuple(sorted(taking_part))
    assert text.x.shape == (11, 3, 300, 25, 1)
    for key, x in zip(text.keys, text.x, strict=True):
        assert np.array_equal(x[:, : len(taking_part[key]), :, 0], taking_part[key].transpose(2, 0, 1))
        assert not x[:, len(taking_part[key]) :].any()
    assert text.layout.name == "kinect_v2"
    away = {reason for stage in api.show(str(tmp_path / "text"))["stages"] for reason in stage["rejects"]}
    assert away == {"missing_skeleton", "outside_subset"}

    # ST-GCN's form: (N, C, T, V, M) of two bodies, and a pickle of names and labels, as Python 2 and 3 write it.
    arrays = tmp_path / "arrays"
    arrays.mkdir()
    x = np.zeros((11, 3, 300, 25, 2), dtype=np.float32)
    x[..., 0] = text.x[..., 0]
    np.save(arrays / "train_data.npy", x)
    for protocol in (2, 4):
        names = [f"{key}.skeleton" for key in text.keys]
        (arrays / "train_label.pkl").write_bytes(pickle.dumps((names, text.labels.tolist()), protocol=protocol))
        files = 'files=[{data="train_data.npy", labels="train_label.pkl"}], names="ntu"'
        made(settings("ntu", f'source={{kind="arrays", root="{arrays}", {files}}}', *NTU), tmp_path / f"st_gcn{protocol}")
        again = load_arrays(str(tmp_path / f"st_gcn{protocol}"))
        assert again.keys == text.keys
        assert np.array_equal(again.x, text.x)
        assert np.array_equal(again.roles, text.roles)

    # CTR-GCN's form: (N, T, 2 x 25 x 3) and one of n; no names.
    wide = x.transpose(0, 2, 4, 3, 1).reshape(11, 300, 150)
    hot = np.eye(60)[text.labels]
    for save in (np.savez, np.savez_compressed):
        save(arrays / "NTU60_CS.npz", x_train=wide[:9], y_train=hot[:9], x_test=wide[9:], y_test=hot[9:])
        files = 'files=[{data="NTU60_CS.npz"}], names="ntu", protocol="x_sub"'
        one = settings("ntu", f'source={{kind="arrays", root="{arrays}", {files}}}', *NTU, "only={}", 'split.rule="x_sub"')
        made(one, tmp_path / save.__name__)
        again = load_arrays(str(tmp_path / save.__name__))
        assert np.array_equal(again.x, text.x)
        assert np.array_equal(again.labels, text.labels)
        assert again.roles.tolist().count("test") == 2


def test_arrays_are_split_as_any_source_is(tmp_path: Path) -> None:
    """By the side of x_train, x_val and x_test, and by performers and cameras of a table or of names."""
    root = tmp_path / "arrays"
    root.mkdir()
    draw, labels = np.random.default_rng(0), np.arange(18) % 3
    x = draw.normal(size=(18, 4, 6))  # two joints
    parts = {"train": slice(0, 9), "val": slice(9, 12), "test": slice(12, 18)}
    pairs = {f"{name}_{side}": values[part] for side, part in parts.items() for name, values in (("x", x), ("y", labels))}
    np.savez(root / "hands.npz", **pairs)
    np.save(root / "x.npy", x.reshape(18, 4, 2, 3).transpose(0, 3, 1, 2)[..., None])
    names = [f"s{n // 6}_c{n % 2}_{n:02}" for n in range(18)]
    (root / "y.pkl").write_bytes(pickle.dumps((names, labels.tolist())))
    own = [f"hands-{side}-{n:06d}" for side, part in parts.items() for n in range(part.stop - part.start)]
    table = "\n".join(f"{name},p{n // 6}" for n, name in enumerate(own))
    (tmp_path / "labels.csv").write_text(f"sequence,performer\n{table}\n")
    layout = 'layout={kind="declared", name="hand", joints=["a", "b"], edges=[[0, 1]], centre=0}'
    shape = ["tensor.centre_joint=0", "tensor.frames=4", "classes=all", "split.classes_per_task=1", "orders.tasks=3"]

    shape += ["orders.classes=2", layout]

    def roles(name: str, source: str, *split: str) -> list[str]:
        given = f'source={{kind="arrays", root="{root}", {source}}}'
        found = made(settings("tiny", given, "split.val=0", *shape, *split), tmp_path / name)
        return found.rows("split").table(["role", "position"]).sort_by("position")["role"].to_pylist()

    npz, npy = 'files=[{data="hands.npz"}]', 'files=[{data="x.npy", labels="y.pkl"}]'
    assert roles("source", npz, "split.rule=source") == ["train"] * 9 + ["val"] * 3 + ["test"] * 6
    by_table = f'{npz}, labels="{tmp_path / "labels.csv"}"'
    assert roles("table", by_table, "split.rule=performer", 'split.test_groups=["p0"]') == ["test"] * 6 + ["train"] * 12
    by_name = rf"{npy}, pattern='(?P<performer>s\d)_(?P<camera>c\d)'"
    assert roles("camera", by_name, "split.rule=camera", 'split.test_groups=["c1"]') == ["train", "test"] * 9
    lost = rf"{npy}, pattern='(?P<performer>p\d)'"
    with pytest.raises(TooManyRejects, match="bad_name"):
        roles("lost", lost, "max_broken=0")


def test_arrays_that_are_damaged_are_told_in_one_line(ntu_files, tmp_path: Path, capsys) -> None:
    root = tmp_path / "arrays"
    root.mkdir()
    np.save(root / "x.npy", np.ones((2, 3, 4, 25, 1), np.float32))
    (root / "y.pkl").write_bytes(pickle.dumps((["a", "b"], [0, 1])))

    class Evil:
        def __reduce__(self):
            return (print, ("run",))

    (root / "evil.pkl").write_bytes(pickle.dumps(Evil()))
    (root / "short.pkl").write_bytes(pickle.dumps((["a"], [0])))
    (root / "cut.npy").write_bytes((root / "x.npy").read_bytes()[:300])
    for data, labels, message in (
        ("x.npy", "evil.pkl", "labels 'evil.pkl': names builtins.print"),
        ("x.npy", "short.pkl", "x.npy has 2 rows, short.pkl 1 names"),
        ("../x.npy", "y.pkl", "a path within"),
        ("x.npy", "../y.pkl", "outside_folder"),
        ("cut.npy", "y.pkl", "cut.npy: values (2, 3, 4, 25, 1) of float32 are 2400 bytes, and it holds 172"),
        ("none.npy", "y.pkl", "is not there"),
    ):
        source = f'source={{kind="arrays", root="{root}", files=[{{data="{data}", labels="{labels}"}}]}}'
        call = ["run", "skeleton", "--config", "ntu", "--out", str(tmp_path / "run"), "--quiet", "--scheduler", "sync"]
        assert cli.call([*call, "--set", source, "--set", "only={}", "--set", "classes=['class000','class001']"]) != 0
        told = capsys.readouterr()
        assert message in told.err
        assert "Traceback" not in told.err
        assert "run\n" not in told.out


def test_broken_files_are_rejects_of_the_run(ntu_files, tmp_path: Path) -> None:
    root = tmp_path / "copy"
    root.mkdir()
    for path in ntu_files[0].iterdir():
        (root / path.name).write_bytes(path.read_bytes())
    (root / "S001C001P001R001A001.skeleton").write_bytes(b"5\n1\n1 2 3\n999999999\n")
    (root / "S001C001P002R001A001.skeleton").write_bytes(b"")
    (root / "readme.txt").write_text("x")
    c = settings("ntu", f'source={{kind="ntu", root="{root}"}}', *NTU, "max_broken=2", "split.val=0.1", "only={}")
    made(c, tmp_path / "run")
    counts = {stage["name"]: stage["rejects"] for stage in api.show(str(tmp_path / "run"))["stages"] if stage["rejects"]}
    assert counts == {"listed": {"not_skeleton": 1}, "tensors": {"wrong_joint_count": 1, "empty": 1}}


OWN = """
extends = "tiny"
max_broken = 0
[source]
kind = "folders"
root = "sequences"
[layout]
kind = "declared"
name = "hand"
joints = ["wrist", "thumb", "index", "little"]
edges = [[0, 1], [0, 2], [0, 3]]
centre = 0
[tensor]
axes = ["x", "y"]
centre_joint = 0
fit = "pad"
frames = 12
modality = "bone"
[split]
classes_per_task = 1
[orders]
tasks = 3
classes = 2
"""


def test_joints_of_ones_own(tmp_path: Path) -> None:
    """The example of the dataset's README: class folders of .npy and .json files, a layout declared in TOML."""
    drawn = np.random.default_rng(0)
    for name in ("grasp", "point", "wave"):
        folder = tmp_path / "sequences" / name
        folder.mkdir(parents=True)
        for number in range(6):
            joints = drawn.normal(size=(4 + number, 4, 2))
            if number % 2:
                np.save(folder / f"{number}.npy", joints)
            else:
                (folder / f"{number}.json").write_text(json.dumps({"skeletons": joints.tolist()}))
    (tmp_path / "own.toml").write_text(
        OWN.replace('extends = "tiny"', 'extends = "tiny"\nclasses = ["wave", "point", "grasp"]')
    )
    out = tmp_path / "run"
    assert cli.call(["run", "skeleton", "--config", str(tmp_path / "own.toml"), "--out", str(out), "--quiet"]) == 0
    arrays = load_arrays(str(out))
    assert arrays.x.shape == (18, 2, 12, 4, 1)
    assert arrays.classes == ("wave", "point", "grasp")
    assert arrays.layout.joints == ("wrist", "thumb", "index", "little")
    assert np.bincount(arrays.tasks).tolist() == [6, 6, 6]
    assert not arrays.x[:, :, :, 0].any()  # bones: the centre has none
    assert load_orders(str(out)).task_orders.shape == (6, 3)
    # What settings extend may give a number of classes: "all" is how not to have it.
    every = ["--set", "classes=all", "--out", str(tmp_path / "every"), "--quiet"]
    assert cli.call(["run", "skeleton", "--config", str(tmp_path / "own.toml"), *every]) == 0
    assert load_arrays(str(tmp_path / "every")).classes == ("grasp", "point", "wave")


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("tiny", ['layout={kind="packaged", name="kinect_v2"}'], "synthetic sequences use the built-in layout 'kinect_v1'"),
        (
            "tiny",
            ['layout={kind="declared", name="x", joints=["a", "b"], edges=[[0, 2]], centre=0}'],
            "is not a pair of joints",
        ),
        ("tiny", ["orders.tasks=8"], "orders: 8 tasks: all orders need 1 to 7"),
        ("tiny", ["classes=11"], "classes = 11: 10 have an order"),
        ("tiny", ["tensor.frames=0"], "1 to 100000 are possible"),
        ("tiny", ["tensor.centre_joint=-1"], "centre_joint is -1: joints are numbered from 0"),
        ("tiny", ["tensor.centre_joint=20"], "tensor.centre_joint = 20: layout kinect_v1 has the joints 0 to 19"),
        ("tiny", ['tensor.axes=["x", "x"]'], "different names of axes"),
        ("tiny", ["split.test=0"], "split.test = 0: with split.rule = 'shares' it must be above 0"),
        ("tiny", ["split.val=0", 'evaluation.experiments=["grid"]'], "split.val = 0: the experiment 'grid'"),
        ("tiny", ["split.rule=camera"], "split.test_groups is empty"),
        ("tiny", ["split.rule=list"], "roles need the rule 'list'"),
        ("tiny", ['layout={kind="bvh", file="none.bvh"}'], "layout.file = .*none.bvh"),
        ("tiny", ["tensor.length=3"], "tensor.length: there is no such setting"),
        ("tiny", ["split.rule=x_fold"], "split.rule"),
        ("ntu", ['bodies="stgcn"'], "bodies"),
        (
            None,
            ["source.kind=ucla"],
            "there are arrays, drawn, folders, npz, ntu, ntu_names, nwucla, pyskl, table, or name your own",
        ),
    ],
)
def test_settings_that_do_not_fit(name: str | None, overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        skeleton.plan(settings(name, *overrides), "out")


def test_nothing_is_chosen_by_validation_where_nothing_validates() -> None:
    with pytest.raises(WrongUse, match=r"experiment 'grid' selects on validation data, and split\.val = 0"):
        baselines.trainings(settings("tiny", "split.val=0"), "none", [], ["grid"])


def test_labels_and_roles_count_as_what_they_hold(tmp_path: Path) -> None:
    """Tables beside the joints are sources: another content makes other rows, another place does not."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "a.npz", **{f"s{n}": rng.uniform(size=(3 + n, 3, 2)) for n in range(8)})
    layout = 'layout={kind="declared", name="x", joints=["a", "b", "c"], edges=[[0, 1], [1, 2]], centre=0}'
    shape = ('tensor.axes=["x", "score"]', "tensor.confidence=score", "tensor.centre_joint=0")
    tasks = ('classes=["a", "b"]', "split.rule=list", "split.classes_per_task=1", "orders.tasks=2", "orders.classes=1")

    def run_with(folder: str, last: str) -> list[dict[str, Any]]:
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "labels.csv").write_text("sequence,class\n" + "".join(f"s{n},{'ab'[n % 2]}\n" for n in range(8)))
        told = "".join(f"s{n},{'test' if n in (0, 1) else 'train'}\n" for n in range(7)) + last
        (tmp_path / folder / "roles.csv").write_text(f"sequence,role\n{told}")
        source = f'source={{kind="npz", path="{tmp_path / "a.npz"}", labels="{tmp_path / folder / "labels.csv"}"}}'
        c = settings("tiny", source, layout, *shape, *tasks, f"split.roles={tmp_path / folder / 'roles.csv'}", "max_broken=1")
        return made(c, tmp_path / "run").rows("split").table(["key", "class_name", "role", "missing"]).to_pylist()

    first = run_with("one", "s7,train\n")
    assert [row["role"] for row in first] == ["test"] * 2 + ["train"] * 6
    assert {row["missing"] for row in first} == {0}
    before = (tmp_path / "run/run.json").read_bytes()
    assert run_with("other", "s7,train\n") == first
    stages = [json.loads(text)["stages"] for text in (before, (tmp_path / "run/run.json").read_bytes())]
    assert stages[0] == stages[1]
    assert [row["key"] for row in run_with("other", "")] == [f"s{n}" for n in range(7)]


OWN_SOURCE = """
import numpy as np
from benchwright.curation.npy import npy_blob
from benchwright.datasets.skeleton.rows import WithJoints, WithNpy

def rows(ragged):
    for number in range(8):
        joints = np.tile(np.arange(1, 21, dtype="f4")[:, None], (3 + ragged * number, 1, 1, 3))
        yield f"k{number}", "", "ab"[number % 2], joints

def arrays() -> list[WithJoints]:
    yield from (WithJoints(*row) for row in rows(0))

def uneven() -> list[WithJoints]:
    yield from (WithJoints(*row) for row in rows(1))

def ragged() -> list[WithNpy]:
    yield from (WithNpy(*row[:3], npy_blob(row[3])) for row in rows(1))
"""


@pytest.mark.parametrize(("name", "frames"), [("arrays", [3] * 8), ("ragged", list(range(3, 11)))])
def test_a_source_of_ones_own_gives_arrays_or_files(tmp_path: Path, name: str, frames: list[int]) -> None:
    (tmp_path / "mine.py").write_text(OWN_SOURCE)
    tasks = ('classes=["a", "b"]', "split.classes_per_task=1", "orders.tasks=2", "orders.classes=1")
    c = settings("tiny", f'source={{kind="{tmp_path}/mine.py:{name}"}}', *tasks)
    table = made(c, tmp_path / "run").rows("split").table(["source_frames"])
    assert table["source_frames"].to_pylist() == frames
    uneven = settings("tiny", f'source={{kind="{tmp_path}/mine.py:uneven"}}', *tasks)
    with pytest.raises(
        StepFailed, match=r"'joints': the step returned \[3, 1, 20, 3\] and \[10, 1, 20, 3\]: rows have one shape"
    ):
        made(uneven, tmp_path / "uneven")


def test_presets_have_the_values_of_the_facts() -> None:
    assert config.variants("skeleton")[:4] == ["ntu", "ntu120", "ntu_st_gcn", "st_gcn"]
    ucla, ntu = settings(None), settings("ntu")
    assert tuple(ucla.classes or ()) == facts().nwucla.classes  # type: ignore[arg-type]
    assert (ucla.tensor.frames * 3, ntu.tensor.frames * 3) == (156, 900)
    assert (ntu.classes, ntu.only) == (10, {"x_sub": "train"})
    by_st_gcn = settings("ntu_st_gcn")
    assert (by_st_gcn.evaluation.network.architecture, by_st_gcn.evaluation.schedule) == ("st_gcn", ntu.evaluation.schedule)
    assert dataclasses.replace(by_st_gcn, evaluation=ntu.evaluation) == ntu
    assert sum(facts().ntu_cil.per_task) == facts().ntu_cil.sequences == sum(facts().ntu_cil.per_class)
    assert sum(facts().nwucla.per_task) == facts().nwucla.sequences == sum(facts().nwucla.per_class)
    assert sum(facts().ntu.x_sub) == sum(facts().ntu.x_view) == facts().ntu.available


def test_other_settings_of_training_leave_the_plan_as_it_is(tiny: Path) -> None:
    # A row type made anew each time told every plan apart: `train --set` was refused whatever it set.
    assert job_of(str(tiny), overrides=["evaluation.repeats=2"]).config.evaluation.repeats == 2
