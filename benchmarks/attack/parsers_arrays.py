"""Stored features, skeletons, and the numbers of two cameras."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable

import numpy as np

from . import counts, hostile_arrays, hostile_tables, valid
from .parser import Parser, Tree, by_plan

_FEATURES = "features={kind='stored',root='{in}',width=8,files=[%s]}"


def _stored(name: str, tree: Callable[[], Tree], attacked: str, file: str, **more: object) -> Parser:
    return Parser(name, tree, attacked, by_plan("kowl", (_FEATURES % file,), "stored_features"), **more)  # type: ignore[arg-type]


def _feature_files() -> list[Parser]:
    names = np.array(valid.ids(6))
    stacked = {"uid": names, "feature": valid.features()}
    single = dict(zip(names.tolist(), valid.features(), strict=True))

    def tensors() -> dict[str, object]:
        import torch

        return {name: torch.from_numpy(row) for name, row in single.items()}

    columns = {"uid": names.tolist(), "feature": valid.features().tolist()}
    return [
        _stored(
            "npz",
            lambda: {"f.npz": valid.npz(stacked)},
            "f.npz",
            "{path='f.npz'}",
            packed="zip",
            others=lambda: [valid.npz(single)],
            specials=hostile_arrays.npz("f.npz"),
            count=counts.npz,
        ),
        _stored(
            "npz, packed, an entry a sample",
            lambda: {"f.npz": valid.npz(single, packed=True)},
            "f.npz",
            "{path='f.npz'}",
            packed="zip",
            others=lambda: [valid.npz(stacked)],
            specials=hostile_arrays.npz("f.npz"),
            count=counts.npz,
        ),
        _stored(
            "npy",
            lambda: {"f.npy": valid.npy(valid.features()), "f.txt": "\n".join(names).encode()},
            "f.npy",
            "{path='f.npy',ids='f.txt'}",
            specials=hostile_arrays.npy("f.npy"),
        ),
        _stored(
            "names of an npy",
            lambda: {"f.npy": valid.npy(valid.features()), "n.npy": valid.npy(names)},
            "n.npy",
            "{path='f.npy',ids='n.npy'}",
            specials=hostile_arrays.npy("n.npy"),
            share=0.5,
        ),
        _stored(
            "torch file",
            lambda: {"f.pt": valid.torch_file(tensors())},
            "f.pt",
            "{path='f.pt'}",
            packed="zip",
            specials=hostile_arrays.torch_files("f.pt"),
        ),
        _stored(
            "torch file, old form",
            lambda: {"f.pth": valid.torch_file(tensors(), _use_new_zipfile_serialization=False)},
            "f.pth",
            "{path='f.pth'}",
            others=lambda: [valid.torch_file(tensors())],
            specials=hostile_arrays.torch_files("f.pth"),
        ),
        _stored(
            "Parquet",
            lambda: {"f.parquet": valid.parquet(columns, row_group_size=3)},
            "f.parquet",
            "{path='f.parquet'}",
            others=lambda: [valid.parquet(columns, compression="gzip")],
            specials=hostile_tables.parquet("f.parquet"),
        ),
        _stored(
            "folder of features",
            lambda: {f"v/{n}.npy": valid.npy(row) for n, row in single.items()},
            f"v/{names[0]}.npy",
            "{path='v'}",
            specials=hostile_arrays.npy(f"v/{names[0]}.npy"),
            count=lambda _: 6,
        ),
    ]


def _skeletons() -> list[Parser]:
    kinect = "layout={kind='packaged',name='kinect_v2'}"

    def read(source: str, until: str, classes: str, *more: str) -> Callable[..., object]:
        few = (f"classes=[{classes}]", "split.classes_per_task=1", f"orders.tasks={1 + classes.count(',')}")
        return by_plan("skeleton", (f"source={{{source}}}", *few, *more), until)  # type: ignore[return-value]

    one = "a01_s01_e00_v01"
    whole = valid.joints(8, 20, "arrays").astype(np.float32)
    stgcn = np.stack([whole.transpose(2, 0, 1)[..., None]] * 4)
    labels = pickle.dumps((["a", "b", "c", "d"], [0, 1, 0, 1]))
    flat = np.stack([whole.reshape(8, -1)] * 4)
    ctr = {"x_train": flat, "y_train": np.eye(2)[[0, 1, 0, 1]], "x_test": flat[:2], "y_test": np.eye(2)[[0, 1]]}
    own = {
        "walk/a.npy": valid.npy(whole),
        "run/b.json": valid.text({"skeletons": whole.tolist()}),
        "run/c.json": valid.nwucla(),
    }
    name = "S001C001P001R001A001"
    names = "\n".join(f"S001C001P001R00{r}A00{a}" for r in (1, 2) for a in (1, 2, 3)).encode()
    lists = valid.text({"train": [{"file_name": one}], "val": [{"file_name": "a02_s01_e00_v03"}]})
    first, pair = "'pick up with one hand'", "'class000','class001'"
    kind = "kind='arrays',root='{in}',files=[{data="
    npys, npzs = f"{kind}'d.npy',labels='l.pkl'}}]", f"{kind}'d.npz'}}]"
    drinks = "'drink water','eat meal/snack'"
    return [
        Parser(
            "N-UCLA JSON",
            lambda: {f"{one}.json": valid.nwucla()},
            f"{one}.json",
            read("kind='nwucla',root='{in}'", "tensors", first),
            lambda: [valid.nwucla("b", 2)],
            text=True,
            specials=hostile_tables.json_files(f"{one}.json"),
            count=lambda _: 1,
        ),
        Parser(
            "N-UCLA lists",
            lambda: {f"all/{one}.json": valid.nwucla(), "l.json": lists},
            "l.json",
            read("kind='nwucla',root='{in}/all',lists='{in}/l.json'", "listed", first),
            text=True,
            specials=hostile_tables.json_files("l.json"),
            share=0.5,
        ),
        Parser(
            "NTU text",
            lambda: {f"{name}.skeleton": valid.ntu_text()},
            f"{name}.skeleton",
            read("kind='ntu',root='{in}'", "tensors", "'drink water'", kinect),
            lambda: [valid.ntu_text("b", 2)],
            text=True,
            specials=hostile_tables.lines(f"{name}.skeleton"),
            count=lambda _: 1,
        ),
        Parser(
            "NTU names",
            lambda: {"n.txt": names},
            "n.txt",
            read("kind='ntu_names',path='{in}/n.txt'", "listed", drinks, kinect),
            text=True,
            specials=hostile_tables.lines("n.txt"),
            count=counts.lines,
            share=0.5,
        ),
        Parser(
            "NTU missing list",
            lambda: {"n.txt": names, "m.txt": names[:41]},
            "m.txt",
            read("kind='ntu_names',path='{in}/n.txt',missing='{in}/m.txt'", "chosen", drinks, kinect),
            text=True,
            specials=hostile_tables.lines("m.txt"),
            share=0.3,
        ),
        Parser(
            "skeleton array",
            lambda: {"d.npy": valid.npy(stgcn), "l.pkl": labels},
            "d.npy",
            read(npys, "tensors", pair),
            specials=hostile_arrays.npy("d.npy"),
            share=0.5,
        ),
        Parser(
            "pickle of labels",
            lambda: {"d.npy": valid.npy(stgcn), "l.pkl": labels},
            "l.pkl",
            read(npys, "listed", pair),
            specials=hostile_arrays.pickles("l.pkl"),
        ),
        Parser(
            "skeleton npz",
            lambda: {"d.npz": valid.npz(ctr)},
            "d.npz",
            read(npzs, "tensors", pair),
            packed="zip",
            specials=hostile_arrays.npz("d.npz"),
            share=0.5,
        ),
        Parser(
            "skeleton folders",
            lambda: dict(own),
            "walk/a.npy",
            read("kind='folders',root='{in}'", "tensors", "'run','walk'"),
            lambda: [valid.npy(stgcn)],
            specials=hostile_arrays.npy("walk/a.npy"),
            count=lambda _: 3,
        ),
    ]


def _colours() -> list[Parser]:
    def drawn(setting: str, cameras: str = "") -> Callable[..., object]:
        chosen = (f"source.cameras={cameras}",) if cameras else ()
        return by_plan(
            "two_camera", ("source.pairs=4", "source.surfaces=8", "source.without=[]", f"source.{setting}", *chosen), "measured"
        )  # type: ignore[return-value]

    pairs = [valid.pair_metadata(n) for n in range(3)]
    held = np.empty(3, dtype=object)
    held[:] = pairs
    metadata = ("source={kind='metadata',path='{in}/%s',max_rejects=0.99}", "folds={kind='rotating',count=2,seed=0}")
    parts = np.empty((1, 3), dtype=object)
    parts[0] = [np.arange(2.0), np.arange(2.0, 3), np.arange(3.0, 4)]
    released = by_plan(
        "two_camera", ("source.pairs=4", "source.surfaces=8", "folds={kind='fixed',released='{in}/p.mat'}"), "folded"
    )
    return [
        Parser(
            "spectra of cameras",
            lambda: {"c.txt": valid.cameras_text()},
            "c.txt",
            drawn("sensitivities='{in}/c.txt'", "['Camera A','Camera B']"),
            text=True,
            specials=hostile_tables.lines("c.txt"),
            share=0.5,
        ),
        Parser(
            "spectra of surfaces",
            lambda: {"s.txt": valid.spectra_text()},
            "s.txt",
            drawn("reflectances='{in}/s.txt'"),
            text=True,
            specials=hostile_tables.lines("s.txt"),
            share=0.5,
        ),
        Parser(
            "spectra of lights",
            lambda: {"l.csv": valid.spectra_text()},
            "l.csv",
            drawn("lights='{in}/l.csv'"),
            text=True,
            specials=hostile_tables.lines("l.csv"),
            share=0.5,
        ),
        Parser(
            "MATLAB",
            lambda: {"p.mat": valid.mat({"idx_parts": parts})},
            "p.mat",
            released,
            lambda: [valid.mat({"idx_parts": parts}, packed=True)],
            specials=hostile_arrays.mat("p.mat"),
            share=0.5,
        ),
        Parser(
            "pairs, object npy",
            lambda: {"m.npy": valid.npy(held)},
            "m.npy",
            by_plan("two_camera", (metadata[0] % "m.npy", metadata[1]), "measured"),
            specials=hostile_arrays.pickles("m.npy"),
        ),
        Parser(
            "pairs, JSON",
            lambda: {"m.json": json.dumps(pairs).encode()},
            "m.json",
            by_plan("two_camera", (metadata[0] % "m.json", metadata[1]), "measured"),
            text=True,
            specials=hostile_tables.json_files("m.json"),
        ),
        Parser(
            "quasi-real pairs, MATLAB",
            _quasi,
            "A/A_gt.mat",
            by_plan("two_camera", _QUASI, "listed"),
            specials=hostile_arrays.mat("A/A_gt.mat"),
            share=0.3,
        ),
        Parser(
            "quasi-real pairs, PNG",
            _quasi,
            "A/A_0001.PNG",
            by_plan("two_camera", _QUASI, "photographed"),
            packed="png",
            share=0.5,
        ),
        Parser(
            "positions of charts",
            _quasi,
            "charts.csv",
            by_plan("two_camera", _QUASI, "photographed"),
            text=True,
            specials=hostile_tables.lines("charts.csv"),
            share=0.5,
        ),
    ]


_QUASI = (
    "source={kind='quasi_real',root='{in}',main='A',second='B',factor=2,lights='listed',charts='charts.csv',max_rejects=0.99}",
    "folds={kind='rotating',count=2,seed=0}",
)


def _quasi() -> Tree:
    import cv2

    made: Tree = {"A/matched_with_B.txt": b"A_0001,B_0001\nA_0002,B_0002\n"}
    rows: list[list[object]] = [["name", *(f"{axis}{corner}" for corner in range(4) for axis in "xy")]]
    for camera in "AB":
        names = np.empty((2, 1), dtype=object)
        names[:, 0] = [f"{camera}_000{n}" for n in (1, 2)]
        lights = {
            "darkness_level": 0.0,
            "saturation_level": 16383.0,
            "groundtruth_illuminants": np.full((2, 3), 0.5),
            "all_image_names": names,
        }
        made[f"{camera}/{camera}_gt.mat"] = valid.mat(lights)
        for number in (1, 2):
            shown = valid.pixels(f"{camera}{number}", 64, 96).astype(np.uint16) * 60 + 500
            made[f"{camera}/{camera}_000{number}.PNG"] = cv2.imencode(".png", shown)[1].tobytes()
            rows.append([f"{camera}_000{number}", 20, 20, 70, 20, 70, 50, 20, 50])
    return {**made, "charts.csv": valid.table(rows)}


def parsers() -> list[Parser]:
    """All of them."""
    return [*_feature_files(), *_skeletons(), *_colours()]
