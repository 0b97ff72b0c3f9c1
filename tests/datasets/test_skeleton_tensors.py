"""Layouts, tensors, splits, orders of skeletons: against networkx, torch, and arithmetic written out."""

from __future__ import annotations

import itertools
import json
import math

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
import torch
from benchwright.curation.rows import Reject, Rejected
from benchwright.datasets.skeleton.arrays import ArrayFile, list_arrays
from benchwright.datasets.skeleton.files import joints_from_npy, json_values, sequence_from_json
from benchwright.datasets.skeleton.layouts import Layout, built_in_layouts, layout_from_values
from benchwright.datasets.skeleton.orders import class_orders, list_orders, task_orders
from benchwright.datasets.skeleton.rows import sequence_of
from benchwright.datasets.skeleton.splits import select_sequences, split
from benchwright.datasets.skeleton.synthetic import ACTIONS, draw_sequence
from benchwright.datasets.skeleton.tensors import TensorForm, modality_of, node_vectors, tensor_of

from .video_rows import Held

DRAWN = np.random.default_rng(1)
LINE = Layout("line", ("a", "b", "c"), ((0, 1), (1, 2)), 0)
UCLA = TensorForm("min_max", "resample", 52, 1, centre_joint=1)

# -------------------------------------------------------------------------------------------------------------- layouts


@pytest.mark.parametrize("name", ["kinect_v1", "kinect_v2", "openpose"])
def test_packaged_layouts_are_trees_with_the_published_centres(name: str) -> None:
    layout = built_in_layouts()[name]
    graph = nx.Graph(layout.edges)
    assert nx.is_tree(graph)
    assert len(graph) == {"kinect_v1": 20, "kinect_v2": 25, "openpose": 18}[name]
    distance = dict(nx.all_pairs_shortest_path_length(graph))
    assert layout.hops().tolist() == [[distance[i][j] for j in range(len(graph))] for i in range(len(graph))]
    # The published lists of edges lead to the centre: the second joint is the first one's parent.
    assert {(i, int(p)) for i, p in enumerate(layout.parents()) if i != layout.centre} == set(layout.edges)
    assert layout_from_values(json.loads(json.dumps(layout.as_values()))) == layout


@pytest.mark.parametrize("preset", ["as_released", "as_written"])
def test_st_gcn_partitions(preset: str) -> None:
    """Entry by entry from section 3.3 of ST-GCN; as released, distances of two and more are all the same."""
    layout = built_in_layouts()["kinect_v2"]
    found = layout.partitions(preset)  # type: ignore[arg-type]
    assert (found.shape, found.dtype) == ((3, 25, 25), np.float32)
    assert np.allclose(found.sum((0, 1)), 1)
    hops = layout.hops()[layout.centre]
    degree = layout.adjacency().sum(0) + 1
    wanted = np.zeros((3, 25, 25))
    for source, target in itertools.product(range(25), repeat=2):
        if source == target:
            wanted[0, source, target] = 1 / degree[target]
        elif layout.hops()[source, target] == 1:
            near, far = hops[source], hops[target]
            released = 2 if min(near, 2) < min(far, 2) else 1
            part = released if preset == "as_released" else 1 if near < far else 2
            wanted[part, source, target] = 1 / degree[target]
    assert np.allclose(found, wanted)
    if preset == "as_released":  # beyond two edges from the centre nobody is nearer
        assert np.flatnonzero(found[2].any(1)).tolist() == sorted({layout.centre, *np.flatnonzero(hops == 1).tolist()})


def test_partitions_of_three_joints_by_hand() -> None:
    written = LINE.partitions("as_written")
    assert np.allclose(written[0], np.diag([1 / 2, 1 / 3, 1 / 2]))
    assert np.allclose(written[1], [[0, 1 / 3, 0], [0, 0, 1 / 2], [0, 0, 0]])  # the nearer one gives to the further one
    assert np.allclose(written[2], [[0, 0, 0], [1 / 2, 0, 0], [0, 1 / 3, 0]])
    ring = Layout("ring", ("a", "b", "c"), ((0, 1), (1, 2), (0, 2)), 0)
    assert np.allclose(ring.partitions("as_written")[0] * 3, [[1, 0, 0], [0, 1, 1], [0, 1, 1]])  # b and c are equally far


@pytest.mark.parametrize(
    ("joints", "edges", "centre", "message"),
    [
        ((), (), 0, "0 joints: 1 to 1000"),
        (("a", "a"), ((0, 1),), 0, "joint 'a' is named twice"),
        (("a", "b"), ((0, 2),), 0, r"edge \[0, 2\] is not a pair of joints: they are numbered 0 to 1"),
        (("a", "b"), ((0, -1),), 0, r"edge \[0, -1\] is not a pair"),
        (("a", "b"), ((0, 0), (0, 1)), 0, "is a loop"),
        (("a", "b"), ((0, 1), (1, 0)), 0, r"edge \[1, 0\] appears twice"),
        (("a", "b"), ((0, 1),), 2, "centre 2 is not a joint"),
        (("a", "b", "c"), ((0, 1),), 0, "no path of edges leads from joint 'c' to the centre"),
    ],
)
def test_layouts_that_are_none(joints: tuple, edges: tuple, centre: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Layout("mine", joints, edges, centre)


# -------------------------------------------------------------------------------------------------------------- tensors


@pytest.mark.parametrize("length", [1, 2, 39, 52, 201])
def test_n_ucla_processing_is_that_of_the_released_code(length: int) -> None:
    """CTR-GCN's arithmetic on its path without augmentation, written out joint by joint."""
    joints = np.round(DRAWN.normal(size=(length, 20, 3)), 6)
    moved = joints - joints[0, 1]
    low, high = moved.reshape(-1, 3).min(0), moved.reshape(-1, 3).max(0)
    scaled = (moved - low) / (high - low) * 2 - 1
    frames = [int(place) for place in np.linspace(0, length - 1, 52)]
    wanted = np.empty((3, 52, 20, 1))
    for axis, frame, joint in itertools.product(range(3), range(52), range(20)):
        wanted[axis, frame, joint, 0] = scaled[frames[frame], joint, axis]
    found = tensor_of(sequence_of(joints[:, None]), built_in_layouts()["kinect_v1"], UCLA)
    assert found.dtype == np.float32
    assert np.array_equal(found, wanted.astype(np.float32))
    vectors = node_vectors(found[None])
    assert vectors.shape == (1, 20, 156)
    assert np.array_equal(vectors[0, 7, 3:6], found[:, 1, 7, 0])


def test_padding_keeps_raw_coordinates_and_refuses_what_is_too_long() -> None:
    joints = DRAWN.normal(size=(5, 2, 3, 3)).astype(np.float32)
    found = tensor_of(sequence_of(joints), LINE, TensorForm("none", "pad", 8, 3))
    assert np.array_equal(found[:, :5, :, :2], joints.transpose(3, 0, 2, 1))
    assert found.shape == (3, 8, 3, 3)
    assert not found[:, 5:].any()
    assert not found[..., 2].any()
    with pytest.raises(Reject, match="too_long"):
        tensor_of(sequence_of(joints), LINE, TensorForm("none", "pad", 4, 1))
    with pytest.raises(Reject, match="wrong_joint_count"):
        tensor_of(sequence_of(joints), built_in_layouts()["kinect_v1"], UCLA)


def test_coordinates_that_the_tensor_cannot_hold_are_told() -> None:
    joints = DRAWN.normal(size=(4, 1, 3, 3)).astype(np.float32)
    joints[1, 0, 1] = [3e38, 1, 1]
    assert tensor_of(sequence_of(joints), LINE, TensorForm("none", "pad", 4, 1)).max() > 1e38
    joints[1, 0, 0] = joints[0, 0, 0] = [-3e38, 1, 1]
    with pytest.raises(Reject, match="not_finite"):
        tensor_of(sequence_of(joints), LINE, TensorForm("none", "pad", 4, 1, centre_joint=0))
    with pytest.raises(Reject, match="not_finite"):
        tensor_of(sequence_of(joints.astype(np.float64) * 1e3), LINE, TensorForm("none", "pad", 4, 1))


def test_missing_bodies_stay_missing_and_do_not_count() -> None:
    joints = DRAWN.uniform(2, 3, size=(4, 2, 3, 3))
    joints[0, 0] = joints[2, 1] = 0
    found = tensor_of(sequence_of(joints), LINE, TensorForm("min_max", "pad", 4, 2, centre_joint=0))
    assert not found[:, 0, :, 0].any()
    assert not found[:, 2, :, 1].any()
    there = found[:, [0, 1, 1, 2, 3, 3], :, [1, 0, 1, 0, 0, 1]]
    assert np.allclose([there.min((0, 2)), there.max((0, 2))], [[-1] * 3, [1] * 3])
    flat = joints.copy()
    flat[..., 2] = np.where(flat[..., 2] != 0, 1.5, 0)  # two-dimensional data in three axes
    assert not tensor_of(sequence_of(flat), LINE, TensorForm("min_max", "pad", 4, 2))[2].any()


@pytest.mark.parametrize(("length", "frames"), [(1, 4), (7, 64), (100, 64), (64, 64)])
def test_interpolation_is_that_of_torch(length: int, frames: int) -> None:
    joints = DRAWN.normal(size=(length, 1, 3, 3)).astype(np.float32)
    found = tensor_of(sequence_of(joints), LINE, TensorForm("none", "interpolate", frames, 1))
    flat = torch.from_numpy(joints.reshape(length, 9).T.copy())[None, None]
    wanted = torch.nn.functional.interpolate(flat, size=(9, frames), mode="bilinear", align_corners=False)[0, 0]
    assert np.allclose(found[..., 0], wanted.numpy().T.reshape(frames, 3, 3).transpose(2, 0, 1), atol=1e-6)


def test_modalities_by_hand() -> None:
    x = DRAWN.normal(size=(2, 3, 4, 3, 1)).astype(np.float32)
    bone = modality_of(x, LINE, "bone")
    assert np.array_equal(bone[..., 0, :], np.zeros_like(bone[..., 0, :]))
    assert np.array_equal(bone[..., 2, :], x[..., 2, :] - x[..., 1, :])
    motion = modality_of(x, LINE, "joint_motion")
    assert np.array_equal(motion[:, :, 1], x[:, :, 2] - x[:, :, 1])
    assert not motion[:, :, 3].any()
    assert np.array_equal(modality_of(x, LINE, "bone_motion"), modality_of(bone, LINE, "joint_motion"))
    assert modality_of(x, LINE, "joint") is x


def test_forms_that_are_none() -> None:
    for changed in ({"frames": 0}, {"frames": 10**9}, {"bodies": 0}):
        with pytest.raises(ValueError, match="are possible"):
            TensorForm(**{"scale": "none", "fit": "pad", "frames": 3, "bodies": 1, **changed})  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "empty"),
        (b'{"skeletons": [[[1, 2', "not_json"),
        (b"[" * 100_000, "not_json"),
        (b"\xff\xfe", "not_json"),
        (b"[1]", "no_skeletons"),
        (b'{"skeletons": []}', "no_frames"),
        (b'{"skeletons": [[[1, 2, 3]], [[1, 2]]]}', "not_an_array"),
        (b'{"skeletons": "x"}', "not_an_array"),
        (b'{"skeletons": [[["1", "2", "3"]]]}', "not_an_array"),
        (b'{"skeletons": [[1, 2, 3]]}', "not_an_array"),
        (b'{"skeletons": [[[1, NaN, 3]]]}', "not_finite"),
        (b'{"skeletons": [[[0, 0, 0]]]}', "no_body"),
    ],
)
def test_json_that_is_none(text: bytes, reason: str) -> None:
    with pytest.raises(Reject, match=reason):
        sequence_from_json(json_values(text))


def test_npy_files(tmp_path) -> None:
    joints = DRAWN.normal(size=(4, 3, 2))
    np.save(tmp_path / "a.npy", joints)
    data = (tmp_path / "a.npy").read_bytes()
    assert np.array_equal(joints_from_npy(data)[:, 0], joints)
    claims = data.replace(b"(4, 3, 2)", b"(4, 3, 9999999999)")
    for bad, reason in ((b"", "empty"), (data[:-8], "not_npy"), (b"\x80\x04N.", "not_npy"), (claims, "not_npy")):
        with pytest.raises(Reject, match=reason):
            joints_from_npy(bad)
    np.save(tmp_path / "b.npy", np.asarray([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(Reject, match="not_npy"):
        joints_from_npy((tmp_path / "b.npy").read_bytes())


# --------------------------------------------------------------------------------------------------- splits and orders


def labelled(tmp_path, y: np.ndarray, names: tuple[str, ...] | None = None, n: int | None = None) -> list[str]:
    """Class names, or reasons and details of rejects, of sequences with these labels."""
    np.savez(tmp_path / "a.npz", x_train=np.zeros((len(y) if n is None else n, 2, 3)), y_train=y)
    rows = list(list_arrays(root=str(tmp_path), files=[ArrayFile("a.npz")], protocol=None, names=names))
    return [f"{row.reason}: {row.detail}" if isinstance(row, Rejected) else row.class_name for row in rows]


def test_labels_of_arrays_are_one_hot_or_whole_numbers(tmp_path) -> None:
    for y in ([0, 2, 1], [0.0, 2.0, 1.0], [[0], [2], [1]], [[1, 0, 0], [0, 0, 1], [0, 1, 0]], [[True, False], [False, True]]):
        expected = ["class000", "class002", "class001"] if len(y) == 3 else ["class000", "class001"]
        assert labelled(tmp_path, np.array(y)) == expected
        np.save(tmp_path / "x.npy", np.zeros((len(y), 3, 2, 1, 1)))
        np.save(tmp_path / "y.npy", np.array(y))
        files = [ArrayFile("x.npy", labels="y.npy")]
        rows = list_arrays(root=str(tmp_path), files=files, protocol=None, names=None)
        assert [row.class_name for row in rows if not isinstance(row, Rejected)] == expected


def test_labels_that_name_no_class_are_turned_away(tmp_path) -> None:
    """Rows of zeros or NaN were the first class, and 2.7 the third."""
    hot = np.array([[0, 0, 0], [np.nan, 0, 1], [0, 1, 0], [0, 1, 1], [0.5, 0.5, 0], [2, -1, 0]])
    told = "bad_label: a row with {} numbers that are not 0, up to {}: expected zeros and a single 1"
    expected = [told.format(0, 0.0), told.format(2, "nan"), "class001", told.format(2, 1.0), told.format(2, 0.5)]
    assert labelled(tmp_path, hot) == [*expected, told.format(2, 2.0)]
    rule = "expected a whole number from 0 to 2"
    for y in ([2.7, np.nan, np.inf, -1, 3, 2], [[2.7], [np.nan], [np.inf], [-1], [3], [2]]):
        faults = [f"bad_label: {number}: {rule}" for number in ("2.7", "nan", "inf", "-1.0", "3.0")]
        assert labelled(tmp_path, np.array(y), names=("a", "b", "c")) == [*faults, "c"]


@pytest.mark.parametrize(
    ("y", "n", "told"),
    [
        (np.array(["a", "b"]), None, r"a\.npz, y_train holds <U1 \(2,\): expected numbers"),
        (np.zeros((2, 3, 1)), None, r"a\.npz, y_train holds float64 \(2, 3, 1\): expected numbers"),
        (np.zeros((2, 0)), None, r"a\.npz, y_train holds float64 \(2, 0\): expected numbers"),
        (np.array(1), 2, r"a\.npz: x_train is \(2, 2, 3\) and y_train \(\), expected as many rows"),
        (np.zeros(3), 2, r"a\.npz: x_train is \(2, 2, 3\) and y_train \(3,\), expected as many rows"),
    ],
)
def test_labels_of_another_kind_are_told_with_file_and_entry(tmp_path, y, n, told) -> None:
    with pytest.raises(ValueError, match=told):
        labelled(tmp_path, y, n=n)


def listed(counts: dict[str, int], **columns: list[str]) -> Held:
    names = [name for name, count in counts.items() for _ in range(count)]
    table = {"key": [f"k{n:05d}" for n in range(len(names))], "class_name": names, **columns}
    return Held(pa.table(table))


def test_shares_are_cut_in_order() -> None:
    [(rows, _)] = select_sequences(listed({"b": 150, "a": 9, "c": 669}), classes=["b", "a", "c"], only={})
    found = next(split(Held(rows), rule="shares", val_share=0.1, test_share=0.1, classes_per_task=2))
    roles = np.asarray(found["role"].to_pylist())
    for label, (train, held) in enumerate(((120, 15), (7, 1), (537, 66))):
        mine = roles[np.asarray(found["label"]) == label].tolist()
        assert mine == ["train"] * train + ["val"] * held + ["test"] * held
    assert sorted(set(zip(found["label"].to_pylist(), found["task"].to_pylist(), strict=True))) == [(0, 0), (1, 0), (2, 1)]
    few = Held(next(select_sequences(listed({"b": 2}), classes=None, only={})).kept)
    with pytest.raises(ValueError, match="class 'b' has 2 sequences"):
        next(split(few, rule="shares", val_share=0.1, test_share=0.1, classes_per_task=1))


def test_protocols_say_what_tests() -> None:
    sides = ["train", "test", "train", "train", "train", "test"]
    rows = listed({"a": 6}, x_sub=sides, x_view=["train"] * 6, x_set=["train"] * 6)
    [(kept, _)] = select_sequences(rows, classes=None, only={})
    found = next(split(Held(kept), rule="x_sub", val_share=0.25, test_share=0, classes_per_task=1))
    assert found["role"].to_pylist() == ["train", "test", "train", "train", "val", "test"]
    away = next(select_sequences(rows, classes=None, only={"x_sub": "train"}))
    assert away.kept["position"].to_pylist() == [0, 1, 2, 3]
    assert away.rejected["reason"].to_pylist() == ["outside_subset"] * 2
    for settings, message in (
        ({"classes": ["a", "z"], "only": {}}, "class 'z': the source has no sequence of it"),
        ({"classes": ["a", "a"], "only": {}}, "each may be named only once"),
        ({"classes": None, "only": {"x_sub": "val"}}, "no sequence of it"),
    ):
        with pytest.raises(ValueError, match=message):
            list(select_sequences(rows, **settings))  # type: ignore[arg-type]


def test_orders() -> None:
    orders = task_orders(5)
    assert orders.shape == (120, 5)
    assert len({tuple(order) for order in orders.tolist()}) == 120
    assert orders[[0, 1, -1]].tolist() == [[0, 1, 2, 3, 4], [0, 1, 2, 4, 3], [4, 3, 2, 1, 0]]
    drawn = class_orders(10, 100, seed=0)
    assert np.array_equal(np.sort(drawn, 1), np.tile(np.arange(10), (100, 1)))
    assert len({tuple(order) for order in drawn.tolist()} | {tuple(range(10))}) == 101
    assert np.array_equal(class_orders(10, 7, seed=0), drawn[:7])
    assert not np.array_equal(class_orders(10, 100, seed=1), drawn)
    assert sorted(map(tuple, class_orders(3, 5, seed=0).tolist())) == sorted(itertools.permutations(range(3)))[1:]
    some = task_orders(30, 4, seed=0)
    assert some[0].tolist() == list(range(30))
    assert some.shape == (4, 30)
    for bad in (lambda: task_orders(8), lambda: class_orders(3, 6, seed=0), lambda: task_orders(3, 7, seed=0)):
        with pytest.raises(ValueError, match=r"tasks: all orders|orders of \d"):
            bad()
    assert math.factorial(7) == len(task_orders(7))


def test_orders_as_columns_keep_the_classes_of_a_task_together() -> None:
    rows = Held(pa.table({"label": [0, 0, 1, 2, 3, 4], "class_name": list("aabcde"), "task": [0, 0, 0, 1, 1, 2]}))
    (table,) = list_orders(rows=rows, tasks=3, of_tasks=None, of_classes=2, seed=0)
    assert table.num_rows == 5
    assert table["task_order000"].to_pylist() == [0, 1, 2, 3, 4]
    assert table["task_order005"].to_pylist() == [3, 4, 1, 2, 0]  # tasks 2, 1, 0
    assert sorted(table["class_order001"].to_pylist()) == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="3 tasks of 5 classes: orders of 5 tasks"):
        list(list_orders(rows=rows, tasks=5, of_tasks=None, of_classes=2, seed=0))


def test_drawn_bodies_keep_their_bones() -> None:
    """What is drawn is articulated: without noise no bone changes its length, and the limb of the action is what moves."""
    layout = built_in_layouts()["kinect_v1"]
    for action in ACTIONS:
        joints = draw_sequence(action, np.random.default_rng(3), noise_m=0)
        bones = np.linalg.norm(joints - joints[:, layout.parents()], axis=-1)
        assert np.ptp(bones, axis=0).max() < 1e-4
        assert 20 <= len(joints) <= 70
    raised = draw_sequence("raise left arm", np.random.default_rng(3), noise_m=0)
    assert np.ptp(raised[:, 7, 1]) > 0.5 > np.ptp(raised[:, 11, 1])
