"""All kinds of files that are attacked."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable

import numpy as np

from . import commands, counts, specials, valid
from .parser import Parser, Tree, by_plan

_FEATURES = "features={kind='stored',root='{in}',width=8,files=[%s]}"
_LISTS = "source={kind='lists',root='{in}',max_rejects=0.99,files=[{release='first',split='train',path='%s'}]}"
_VIDEOS = (
    "videos.root='{in}'",
    "videos.max_broken=0.99",
    "split.roles='by_class'",
    "split.tasks=1",
    "evaluation.methods=['naive']",
)


def _image(form: str, ending: str, packed: str = "") -> Parser:
    def tree() -> Tree:
        rows = [
            ["file", "date_taken", "true_class"],
            [f"a.{ending}", "2008-05-01 12:00:00", "red"],
            ["b.png", "2009-05-01", "blue"],
        ]
        return {f"a.{ending}": valid.pictures(form)[0], "b.png": valid.picture("PNG", "b"), "dates.csv": valid.table(rows)}

    dates = ("buckets.by='date_taken'", "buckets.rule={kind='calendar',period='year'}")
    settings = ("source={kind='folder',root='{in}',dates_csv='{in}/dates.csv'}", *dates)
    return Parser(
        f"{form} picture",
        tree,
        f"a.{ending}",
        by_plan("clear", settings, "embedded"),
        lambda: valid.pictures(form),
        packed=packed,
        specials=specials.pictures(f"a.{ending}", form),
        count=lambda _: 2,
    )


def _pictures() -> list[Parser]:
    exif = by_plan("clear", ("source={kind='folder',root='{in}'}",), "checked")
    dates = by_plan("clear", ("source={kind='folder',root='{in}',dates_csv='{in}/dates.csv'}",), "checked")
    return [
        _image("JPEG", "jpg"),
        _image("PNG", "png", "png"),
        _image("WEBP", "webp"),
        _image("GIF", "gif"),
        _image("BMP", "bmp"),
        _image("TIFF", "tif"),
        Parser("EXIF", lambda: {"a.jpg": valid.pictures("JPEG")[0][:700] + valid.pictures("JPEG")[0][700:]}, "a.jpg", exif,
               lambda: valid.pictures("JPEG"), specials=specials.exif, count=lambda _: 1),
        Parser("folder of pictures", lambda: {f"{n}.jpg": valid.picture("JPEG", str(n)) for n in range(2)}, "0.jpg", exif,
               specials=specials.folders, share=0.2),
        Parser("CSV of dates", _dated, "dates.csv", dates, text=True, specials=specials.lines("dates.csv")),
        Parser("raw picture (DNG)", lambda: {"RAW_0_CAM_0.dng": valid.dng(), "RAW_0_CAM_1.dng": valid.dng("second")},
               "RAW_0_CAM_0.dng", by_plan("two_camera", _RAW, "photographed"), lambda: [valid.dng("third", 32, 32)],
               specials=specials.dng, count=lambda _: 1),
    ]  # fmt: skip


_RAW = (
    "source={kind='raw_pairs',root='{in}',factor=2,demosaic='bin2',chart='fixed',max_rejects=0.99,"
    "corners_1=[20,20,60,20,60,44,20,44],corners_2=[20,20,60,20,60,44,20,44],homographies={''=[1,0,0,0,1,0,0,0,1]}}",
    "folds={kind='rotating',count=2,seed=0}",
)  # fmt: skip


def _dated() -> Tree:
    rows = [["file", "date_taken", "date_uploaded", "note"]]
    rows += [[f"{n}.png", f"200{n}-05-01 12:00:00", f"200{n}-05-02T10:00:00Z", "x"] for n in range(1, 6)]
    return {**{f"{n}.png": valid.picture("PNG", str(n)) for n in range(1, 6)}, "dates.csv": valid.table(rows)}


# ------------------------------------------------------------------------------------------------------------- archives


def _members(count: int = 4) -> Tree:
    return {f"{n:03}.jpg": valid.picture("JPEG", f"tar{n}") for n in range(count)}


def _samples(count: int = 4) -> Tree:
    made: Tree = {}
    for n in range(count):
        made[f"{n:03}.jpg"] = valid.picture("JPEG", f"tar{n}")
        made[f"{n:03}.json"] = valid.text({"date_taken": "2008-05-01 10:00:00", "true_class": "red"})
        made[f"{n:03}.txt"] = b"a caption"
    return made


def _tar(name: str, file: str, form: str, mode: str, members: Callable[..., Tree], packed: str) -> Parser:
    settings = (f"source={{kind='tars',root='{{in}}',form='{form}'}}",)
    count = counts.members if form == "plain" else counts.samples
    return Parser(
        name,
        lambda: {file: valid.tar(members(), mode=mode)},
        file,
        by_plan("clear", settings, "checked"),
        lambda: [valid.tar(members(2), mode=mode)],
        packed=packed,
        specials=specials.tars(file, mode, members),
        count=count,
    )


def _archives() -> list[Parser]:
    cifar = ("source={kind='cifar100',root='{in}%s'}", "hierarchy={kind='file',path='{in}/none.json'}")
    folder, packed = ((cifar[0] % place, cifar[1]) for place in ("", "/c.tar.gz"))
    return [
        _tar("tar", "a.tar", "plain", "w", _members, "tar"),
        _tar("tar, WebDataset", "a.tar", "webdataset", "w", _samples, "tar"),
        _tar("tar.gz", "a.tar.gz", "plain", "w:gz", _members, "gzip"),
        _tar("tar.bz2", "a.tar.bz2", "plain", "w:bz2", _members, ""),
        _tar("tar.xz", "a.tar.xz", "plain", "w:xz", _members, ""),
        Parser("pickle (CIFAR)", valid.cifar, "train", by_plan("iirc", folder, "checked"), lambda: [valid.cifar(3)["test"]],
               specials=specials.pickles("train")),
        Parser("archive (CIFAR)", lambda: {"c.tar.gz": valid.tar({f"cifar-100-python/{n}": b for n, b in valid.cifar().items()}, mode="w:gz")},
               "c.tar.gz", by_plan("iirc", packed, "found"), packed="gzip", specials=specials.archives("c.tar.gz"), share=0.5),
        Parser("shard of frames", lambda: {"a.tar": valid.tar(_clips())}, "a.tar", by_plan("kowl", _FRAMES, "frames"),
               lambda: [valid.tar(_members(2))], packed="tar", specials=specials.tars("a.tar", "w", _clips), count=counts.samples),
    ]  # fmt: skip


_FRAMES = ("features={kind='extracted',root='{in}',backbone={kind='built_in'},width=448,frames=2,resize_px=16,side_px=16}",)


def _clips(count: int = 3) -> Tree:
    names = [f"{video}_000001_000011" for video in valid.ids(count, "clips")]
    return {f"{name}.{frame:04}.jpg": valid.picture("JPEG", f"{name}{frame}") for name in names for frame in range(3)}


# ------------------------------------------------------------------------------------------------------------- features


def _stored(name: str, tree: Callable[[], Tree], attacked: str, file: str, **more: object) -> Parser:
    return Parser(name, tree, attacked, by_plan("kowl", (_FEATURES % file,), "stored_features"), **more)  # type: ignore[arg-type]


def _feature_files() -> list[Parser]:
    names = np.array(valid.ids(6))
    stacked = {"uid": names, "feature": valid.features()}
    single = {name: row for name, row in zip(names.tolist(), valid.features(), strict=True)}

    def tensors() -> dict[str, object]:
        import torch

        return {name: torch.from_numpy(row) for name, row in single.items()}

    columns = {"uid": names.tolist(), "feature": valid.features().tolist()}
    return [
        _stored("npz", lambda: {"f.npz": valid.npz(stacked)}, "f.npz", "{path='f.npz'}", packed="zip",
                others=lambda: [valid.npz(single)], specials=specials.npz("f.npz"), count=counts.npz),
        _stored("npz, packed, an entry a sample", lambda: {"f.npz": valid.npz(single, packed=True)}, "f.npz", "{path='f.npz'}",
                packed="zip", others=lambda: [valid.npz(stacked)], specials=specials.npz("f.npz"), count=counts.npz),
        _stored("npy", lambda: {"f.npy": valid.npy(valid.features()), "f.txt": "\n".join(names).encode()}, "f.npy",
                "{path='f.npy',ids='f.txt'}", specials=specials.npy("f.npy")),
        _stored("names of an npy", lambda: {"f.npy": valid.npy(valid.features()), "n.npy": valid.npy(names)}, "n.npy",
                "{path='f.npy',ids='n.npy'}", specials=specials.npy("n.npy"), share=0.5),
        _stored("torch file", lambda: {"f.pt": valid.torch_file(tensors())}, "f.pt", "{path='f.pt'}", packed="zip",
                specials=specials.torch_files("f.pt")),
        _stored("torch file, old form", lambda: {"f.pth": valid.torch_file(tensors(), _use_new_zipfile_serialization=False)}, "f.pth",
                "{path='f.pth'}", others=lambda: [valid.torch_file(tensors())], specials=specials.torch_files("f.pth")),
        _stored("Parquet", lambda: {"f.parquet": valid.parquet(columns, row_group_size=3)}, "f.parquet", "{path='f.parquet'}",
                others=lambda: [valid.parquet(columns, compression="gzip")], specials=specials.parquet("f.parquet")),
        _stored("folder of features", lambda: {f"v/{n}.npy": valid.npy(row) for n, row in single.items()}, f"v/{names[0]}.npy",
                "{path='v'}", specials=specials.npy(f"v/{names[0]}.npy"), count=lambda _: 6),
    ]  # fmt: skip


# --------------------------------------------------------------------------------------------------------------- lists


def _kinetics() -> tuple[bytes, bytes]:
    rows = [[f"label {n % 3}", name, 10, 20, "train"] for n, name in enumerate(valid.ids(8))]
    listed = {name: {"annotations": {"label": f"label {n % 3}", "segment": [1.0, 11.0]}, "subset": "train", "duration": 10}
              for n, name in enumerate(valid.ids(8))}  # fmt: skip
    return valid.table([["label", "youtube_id", "time_start", "time_end", "split"], *rows]), valid.text(listed)


def _lists() -> list[Parser]:
    csv, js = _kinetics()
    labelled = _LISTS.replace("path='%s'", "path='%s',labels='labels.txt'")
    ava = [[name, f"{5 + n}.0", 0.1, 0.2, 0.5, 0.9, 12] for n, name in enumerate(valid.ids(6))]
    return [
        Parser("Kinetics CSV", lambda: {"a.csv": csv}, "a.csv", by_plan("kowl", (_LISTS % "a.csv",), "listed"), text=True,
               specials=specials.lines("a.csv"), count=counts.lines_below_header),
        Parser("Kinetics JSON", lambda: {"a.json": js}, "a.json", by_plan("kowl", (_LISTS % "a.json",), "listed"), text=True,
               specials=specials.json_files("a.json")),
        Parser("Kinetics, gzip", lambda: {"a.csv.gz": valid.zipped(csv)}, "a.csv.gz", by_plan("kowl", (_LISTS % "a.csv.gz",), "listed"),
               packed="gzip", text=True, specials=specials.gzips("a.csv.gz"), count=counts.gzip_lines_below_header),
        Parser("labels of a release", lambda: {"a.csv": csv, "labels.txt": b"label 0\nlabel 1\nlabel 2\n"}, "labels.txt",
               by_plan("kowl", (labelled % "a.csv",), "listed"), lambda: [b'["label 0","label 1"]'], text=True,
               specials=specials.json_files("labels.txt"), share=0.5),
        Parser("inventory of videos", lambda: {"held.txt": "\n".join(f"{i}_000001_000011.mp4" for i in valid.ids(6)).encode()},
               "held.txt", by_plan("kowl", ("videos={path='{in}/held.txt',means='present'}",), "videos"), text=True,
               specials=specials.lines("held.txt"), count=counts.lines),
        Parser("AVA CSV", lambda: {"a.csv": valid.table(ava)}, "a.csv", by_plan("kowl", ("ava={path='{in}/a.csv'}",), "ava"),
               text=True, specials=specials.lines("a.csv"), count=counts.lines),
        *_of_vclimb(csv, js),
    ]  # fmt: skip


def _of_vclimb(csv: bytes, js: bytes) -> list[Parser]:
    def listed(source: str, until: str = "listed") -> Callable[..., object]:
        return by_plan("vclimb", (f"source={source}", *_VIDEOS), until)  # type: ignore[return-value]

    segments = [{"label": "run", "segment": [1.0, 5.0]}, {"label": "walk", "segment": [6, 9]}]
    database = {"database": {name: {"duration": 20.0, "subset": "training", "annotations": segments} for name in valid.ids(4)}}
    head = ["video-name", "t-start", "t-end", "action-label", "video-duration", "temporal-region-label"]
    tsp = [head, *([name, 1, 5, "run", 20, "Action"] for name in valid.ids(5))]
    classes = b"1 ApplyEyeMakeup\n2 Archery\n"
    names = [f"{c}/v_{c}_g{g:02}_c01.avi" for c in ("ApplyEyeMakeup", "Archery") for g in (1, 2)]
    ucf = {"classInd.txt": classes, "testlist01.txt": "\n".join(names[:2]).encode(),
           "trainlist01.txt": "\n".join(f"{n} {1 + n.startswith('Arc')}" for n in names[2:]).encode()}  # fmt: skip
    split = pickle.dumps(
        {role: [{"a": [f"v_a_g0{n}_c01" for n in range(1, 4)]}, {"b": ["v_b_g01_c01"]}] for role in ("train", "val")}
    )
    own = [["video", "label", "t_start", "t_end", "role", "group"], *([f"{n}.mp4", "a", 0, 2, "train", "g"] for n in range(4))]
    return [
        Parser("ActivityNet JSON", lambda: {"a.json": valid.text(database)}, "a.json", listed("{kind='activitynet',path='{in}/a.json'}"),
               text=True, specials=specials.json_files("a.json")),
        Parser("ActivityNet CSV (TSP)", lambda: {"t.csv": valid.table(tsp)}, "t.csv",
               listed("{kind='activitynet_csv',root='{in}',files={train='t.csv'}}"), text=True, specials=specials.lines("t.csv")),
        Parser("UCF101 lists", lambda: dict(ucf), "trainlist01.txt", listed("{kind='ucf101',root='{in}'}"), text=True,
               specials=specials.lines("trainlist01.txt")),
        Parser("UCF101 classes", lambda: dict(ucf), "classInd.txt", listed("{kind='ucf101',root='{in}'}"), text=True,
               specials=specials.lines("classInd.txt"), share=0.5),
        Parser("split pickle (vCLIMB)", lambda: {"s.pkl": split}, "s.pkl", by_plan("vclimb", ("source={kind='split_file',path='{in}/s.pkl'}", "split.tasks=2", *_VIDEOS[:2]), "listed"),
               specials=specials.pickles("s.pkl")),
        Parser("CSV of videos", lambda: {"v.csv": valid.table(own)}, "v.csv", listed("{kind='csv',path='{in}/v.csv'}"), text=True,
               specials=specials.lines("v.csv")),
    ]  # fmt: skip


# -------------------------------------------------------------------------------------------------------------- videos


def _video(codec: str, container: str, share: float = 0.5) -> Parser:
    settings = ("source={kind='folder',layout='flat'}", *_VIDEOS, "frames.min_frames=2", "frames.n=4")
    return Parser(
        f"video, {codec} in {container}",
        lambda: {f"a.{container}": valid.video(codec, container)},
        f"a.{container}",
        by_plan("vclimb", settings, "sampled"),
        lambda: [valid.video(codec, container, frames=5, name="other")],
        specials=specials.videos(f"a.{container}"),
        count=lambda _: 1,
        share=share,
    )


def _videos() -> list[Parser]:
    settings = (
        "source={kind='folder',layout='class_folders'}",
        *_VIDEOS,
        "videos.form='frames'",
        "videos.fps=25",
        "frames.min_frames=2",
        "frames.n=2",
    )
    frames = {f"walk/v{v}/{n:05}.jpg": valid.picture("JPEG", f"{v}{n}") for v in range(2) for n in range(3)}
    return [
        _video("libx264", "mp4"),
        _video("mpeg4", "avi"),
        _video("libvpx-vp9", "webm"),
        _video("libx265", "mkv"),
        _video("libsvtav1", "mp4", 0.25),
        _video("mpeg2video", "ts", 0.25),
        _video("gif", "gif", 0.25),
        Parser(
            "folder of frames", lambda: dict(frames), "walk/v0/00001.jpg", by_plan("vclimb", settings, "sampled"), share=0.3
        ),
    ]


# ----------------------------------------------------------------------------------------------------------- skeletons


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
    npys, npzs = ("kind='arrays',root='{in}',files=[{data=%s}]" % data for data in ("'d.npy',labels='l.pkl'", "'d.npz'"))
    drinks = "'drink water','eat meal/snack'"
    return [
        Parser("N-UCLA JSON", lambda: {f"{one}.json": valid.nwucla()}, f"{one}.json", read("kind='nwucla',root='{in}'", "tensors", first),
               lambda: [valid.nwucla("b", 2)], text=True, specials=specials.json_files(f"{one}.json"), count=lambda _: 1),
        Parser("N-UCLA lists", lambda: {f"all/{one}.json": valid.nwucla(), "l.json": lists}, "l.json",
               read("kind='nwucla',root='{in}/all',lists='{in}/l.json'", "listed", first), text=True,
               specials=specials.json_files("l.json"), share=0.5),
        Parser("NTU text", lambda: {f"{name}.skeleton": valid.ntu_text()}, f"{name}.skeleton",
               read("kind='ntu',root='{in}'", "tensors", "'drink water'", kinect), lambda: [valid.ntu_text("b", 2)], text=True,
               specials=specials.lines(f"{name}.skeleton"), count=lambda _: 1),
        Parser("NTU names", lambda: {"n.txt": names}, "n.txt", read("kind='ntu_names',path='{in}/n.txt'", "listed", drinks, kinect),
               text=True, specials=specials.lines("n.txt"), count=counts.lines, share=0.5),
        Parser("NTU missing list", lambda: {"n.txt": names, "m.txt": names[:41]}, "m.txt",
               read("kind='ntu_names',path='{in}/n.txt',missing='{in}/m.txt'", "chosen", drinks, kinect), text=True,
               specials=specials.lines("m.txt"), share=0.3),
        Parser("skeleton array", lambda: {"d.npy": valid.npy(stgcn), "l.pkl": labels}, "d.npy", read(npys, "tensors", pair),
               specials=specials.npy("d.npy"), share=0.5),
        Parser("pickle of labels", lambda: {"d.npy": valid.npy(stgcn), "l.pkl": labels}, "l.pkl", read(npys, "listed", pair),
               specials=specials.pickles("l.pkl")),
        Parser("skeleton npz", lambda: {"d.npz": valid.npz(ctr)}, "d.npz", read(npzs, "tensors", pair), packed="zip",
               specials=specials.npz("d.npz"), share=0.5),
        Parser("skeleton folders", lambda: dict(own), "walk/a.npy", read("kind='folders',root='{in}'", "tensors", "'run','walk'"),
               lambda: [valid.npy(stgcn)], specials=specials.npy("walk/a.npy"), count=lambda _: 3),
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- colours


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
        Parser("spectra of cameras", lambda: {"c.txt": valid.cameras_text()}, "c.txt",
               drawn("sensitivities='{in}/c.txt'", "['Camera A','Camera B']"), text=True, specials=specials.lines("c.txt"), share=0.5),
        Parser("spectra of surfaces", lambda: {"s.txt": valid.spectra_text()}, "s.txt", drawn("reflectances='{in}/s.txt'"), text=True,
               specials=specials.lines("s.txt"), share=0.5),
        Parser("spectra of lights", lambda: {"l.csv": valid.spectra_text()}, "l.csv", drawn("lights='{in}/l.csv'"), text=True,
               specials=specials.lines("l.csv"), share=0.5),
        Parser("MATLAB", lambda: {"p.mat": valid.mat({"idx_parts": parts})}, "p.mat", released,
               lambda: [valid.mat({"idx_parts": parts}, packed=True)], specials=specials.mat("p.mat"), share=0.5),
        Parser("pairs, object npy", lambda: {"m.npy": valid.npy(held)}, "m.npy",
               by_plan("two_camera", (metadata[0] % "m.npy", metadata[1]), "measured"), specials=specials.pickles("m.npy")),
        Parser("pairs, JSON", lambda: {"m.json": json.dumps(pairs).encode()}, "m.json",
               by_plan("two_camera", (metadata[0] % "m.json", metadata[1]), "measured"), text=True, specials=specials.json_files("m.json")),
        Parser("quasi-real pairs, MATLAB", _quasi, "A/A_gt.mat", by_plan("two_camera", _QUASI, "listed"), specials=specials.mat("A/A_gt.mat"), share=0.3),
        Parser("quasi-real pairs, PNG", _quasi, "A/A_0001.PNG", by_plan("two_camera", _QUASI, "photographed"), packed="png", share=0.5),
        Parser("positions of charts", _quasi, "charts.csv", by_plan("two_camera", _QUASI, "photographed"), text=True,
               specials=specials.lines("charts.csv"), share=0.5),
    ]  # fmt: skip


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


# -------------------------------------------------------------------------------------------------------------- others


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
        Parser("YFCC100M text", lambda: {"y.tsv": valid.yfcc()}, "y.tsv", by_plan("clear", (meta % "y.tsv",), "listed"),
               lambda: [valid.yfcc(5, columns=25)], text=True, specials=specials.lines("y.tsv"), count=counts.lines),
        Parser("YFCC100M, gzip", lambda: {"y.gz": valid.zipped(valid.yfcc())}, "y.gz", by_plan("clear", (meta % "y.gz",), "listed"),
               packed="gzip", text=True, specials=specials.gzips("y.gz"), count=counts.gzip_lines),
        Parser("YFCC100M, SQLite", lambda: {"y.sqlite": valid.yfcc_sqlite()}, "y.sqlite", by_plan("clear", (meta % "y.sqlite",), "listed"),
               specials=specials.sqlite("y.sqlite")),
        Parser("hierarchy, JSON", lambda: {**below, "h.json": hierarchy}, "h.json", assigned("json"), text=True,
               specials=specials.json_files("h.json"), share=0.5),
        Parser("hierarchy, TOML", lambda: {**below, "h.toml": b'lone = ["grass"]\n[superclasses]\ndisc = ["red disc", "blue disc"]\n'}, "h.toml",
               assigned("toml"), text=True, specials=specials.toml("h.toml"), share=0.5),
        Parser("hierarchy, CSV", lambda: {**below, "h.csv": b"subclass,superclass\nred disc,disc\nblue disc,disc\ngrass,\n"}, "h.csv",
               assigned("csv"), text=True, specials=specials.lines("h.csv"), share=0.5),
        Parser("task configurations", lambda: {**below, "h.json": hierarchy, "t.json": tasks}, "t.json",
               by_plan("iirc", (*official[:2], official[2] % "json", "tasks={kind='file',path='{in}/t.json',configurations=[0]}"), "assigned"),
               text=True, specials=specials.json_files("t.json"), share=0.5),
        Parser("list of classes", lambda: {**below, "c.txt": listed}, "c.txt",
               by_plan("iirc", (folders % ",classes='{in}/c.txt'", *official[1:2], official[2] % "json"), "found"), text=True,
               specials=specials.lines("c.txt"), share=0.5),
        *commands.parsers(),
    ]  # fmt: skip


def all_parsers() -> dict[str, Parser]:
    """Every parser by its name."""
    made = [*_pictures(), *_archives(), *_feature_files(), *_lists(), *_videos(), *_skeletons(), *_colours(), *_others()]
    return {parser.name: parser for parser in made}
