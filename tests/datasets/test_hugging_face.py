"""What is pushed, as Hugging Face's ``datasets`` loads it: all rows and payloads, splits and classes as they are here."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlcroissant
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from benchwright.curation.publish import DatasetCard, dataset_files, fact_of
from benchwright.curation.shards import write_shard_file
from benchwright.curation.store import Store
from benchwright.curation.ustar import ShardError
from benchwright.datasets.exports.hugging_face import write_parquet
from benchwright.datasets.exports.shards import copy_dataset
from benchwright.datasets.reader.dataset import ShardDataset
from benchwright.datasets.reader.index import DatasetIndex
from benchwright.pipelines import api
from benchwright.pipelines.errors import WrongUse
from PIL import Image

from .hub import running_hub

LOAD = """
import hashlib, io, json, sys
import datasets
import numpy as np

def told_of(row, features):
    facts = {"label": row.get("label", row.get("super_index0"))}
    label = features.get("label")
    if isinstance(label, datasets.ClassLabel):
        facts["name"] = label.int2str(row["label"])
    if "image" in row:
        facts["image"] = hashlib.sha256(row["image"]["bytes"]).hexdigest()
    if "images" in row:
        facts["images"] = [list(each.size) for each in row["images"]]
    for member in ("embedding", "feature", "x", "image_1"):
        if member in row:
            facts["sum"] = float(np.asarray(row[member], dtype=np.float64).sum())
    return facts

def loaded(place, cache):
    found = {}
    for name in datasets.get_dataset_config_names(place):
        splits = datasets.load_dataset(place, name, cache_dir=cache)
        assert datasets.Features.from_dict(json.loads(json.dumps(next(iter(splits.values())).features.to_dict())))
        found[name] = {}
        for split, rows in splits.items():
            if "image" in rows.features:
                rows = rows.with_format(None).cast_column("image", datasets.Image(decode=False))
            features = rows.features  # a copy each time that it is asked for
            found[name][split] = {row["key"]: told_of(row, features) for row in rows}
    default = datasets.load_dataset(place, cache_dir=cache)
    found[""] = {split: len(rows) for split, rows in default.items()}
    return found

datasets.disable_progress_bars()
for number, place in enumerate(sys.argv[2:]):
    print(json.dumps(loaded(place, f"{sys.argv[1]}/{number}")))
"""
"""In a process of its own, whose working directory does not hold the folder ``datasets``."""


def loaded(places: Sequence[Path | str], tmp_path: Path, **environment: str) -> list[dict[str, Any]]:
    """What ``load_dataset`` gives of each: configuration -> split -> key -> facts; and of the default, split -> number of
    rows."""
    command = [sys.executable, "-P", "-c", LOAD, str(tmp_path / "cache"), *map(str, places)]
    environment = environment or {"HF_HUB_OFFLINE": "1"}
    told = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env={"HOME": str(tmp_path), **environment})
    assert told.returncode == 0, told.stderr
    return [json.loads(line) for line in told.stdout.splitlines()[-len(places) :]]


CONFIGURATIONS = {
    "clear": {**{f"iid_seed{seed}": ["test", "train"] for seed in range(5)}, "streaming": ["bucket_1", "bucket_2", "bucket_3"]},
    "iirc": {"default": ["intask_valid", "posttask_valid", "test", "train"]},
    "kowl": {"default": ["test", "train", "validation"], "increments": [f"increment_{n}" for n in range(6)]},
    "skeleton": {"default": ["test", "train", "validation"]},
    "two_camera": {"default": ["fold_0", "fold_1", "fold_2"]},
    "vclimb": {"default": ["test", "train", "validation"]},
}


@pytest.fixture(scope="module")
def pushed_to(tiny: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each benchmark, pushed to a folder of its name."""
    folder = tmp_path_factory.mktemp("pushed")
    for name in CONFIGURATIONS:
        out = tiny(name)
        assert api.push(str(out), str(folder / name)) == len(DatasetIndex.open(out / "dataset"))
    return folder


@pytest.fixture(scope="module")
def pushed(pushed_to: Path, tiny: Callable[[str], Path]) -> dict[str, dict[str, Any]]:
    """Each benchmark as it is loaded; also CLEAR's ``shards``, and the ``pictures``. One process has all: begun, it takes two
    seconds."""
    write_parquet(str(published(pushed_to / "of pictures", PICTURES)), Store(str(pushed_to / "pictures")))
    places = {name: pushed_to / name for name in (*CONFIGURATIONS, "pictures")} | {"shards": tiny("clear") / "dataset"}
    return dict(zip(places, loaded(list(places.values()), pushed_to), strict=True))


@pytest.mark.parametrize("name", sorted(CONFIGURATIONS))
def test_every_row_payload_and_split_of_each_benchmark_is_loaded(
    name: str, tiny: Callable[[str], Path], pushed: dict[str, dict[str, Any]]
) -> None:
    out, found = tiny(name), dict(pushed[name])
    index = DatasetIndex.open(out / "dataset")
    default = found.pop("")
    assert {each: sorted(splits) for each, splits in found.items()} == CONFIGURATIONS[name]
    assert default == {split: len(rows) for split, rows in found[next(iter(CONFIGURATIONS[name]))].items()}
    samples = {sample["__key__"]: sample for sample in ShardDataset(index)}
    rows = {row["key"]: row for row in index.table.to_pylist()}
    for splits in found.values():
        merged = {key: facts for told in splits.values() for key, facts in told.items()}
        assert merged.keys() == rows.keys()
        assert sum(map(len, splits.values())) == len(rows)  # each in one split
        for key, facts in merged.items():
            _check(facts, samples[key], rows[key])
    described = mlcroissant.Dataset(jsonld=str(out / "dataset" / "croissant.json"))
    assert not described.metadata.issues.errors
    read = {row["samples/key"].decode(): row for row in described.records("samples")}
    assert read.keys() == rows.keys()
    label = next(each for each in ("label", "super_index0", "fold") if each in index.table.column_names)
    for key, row in read.items():
        value = row[f"samples/{label}"]
        assert (value.decode() if isinstance(value, bytes) else value) == rows[key][label] or rows[key][label] is None
    for seed in range(5) if name == "clear" else ():
        told = {key: split for split, some in found[f"iid_seed{seed}"].items() for key in some}
        assert told == {key: row[f"iid_seed{seed}"] for key, row in rows.items()}


def _check(facts: dict[str, Any], sample: dict[str, Any], row: dict[str, Any]) -> None:
    if "name" in facts:
        assert facts["name"] in (row["label"], row.get("class_name"))
    if "images" in facts:
        assert facts["images"] == [[row["width_px"], row["height_px"]]] * row["frames"]
    if "sum" in facts:
        name = next(each for each in ("embedding.npy", "feature.npy", "x.npy", "image_1.npy") if each in sample)
        values = np.load(io.BytesIO(sample[name])) if isinstance(sample[name], bytes) else sample[name]
        assert facts["sum"] == pytest.approx(values.astype(np.float64).sum(), rel=1e-12)


def picture(form: str, grey: int) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (8, 6), (grey, 0, 0)).save(stream, form)
    return stream.getvalue()


def published(folder: Path, samples: dict[str, dict[str, Any]], **card: Any) -> Path:
    """A dataset of one shard."""
    folder.mkdir()
    spans = write_shard_file(folder / "s.tar", samples.items())
    rows = [{"key": span.key, "shard": "s", "offset": span.offset, "size": span.size, "role": "train"} for span in spans]
    facts = {"s.tar": fact_of((folder / "s.tar").read_bytes())}
    described = DatasetCard("T", "Pictures.", "tests", digest="0" * 64, licence="other", **card)
    for name, data in dataset_files(pa.Table.from_pylist(rows), described, facts).items():
        (folder / name).write_bytes(data)
    return folder


FORMS = ["JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF"]
EXTENSIONS = ["jpg", "png", "gif", "webp", "bmp", "tif"]
PICTURES = {f"k{n}": {extension: picture(form, n)} for n, (form, extension) in enumerate(zip(FORMS, EXTENSIONS, strict=True))}


def test_pictures_of_all_formats_are_in_one_column(pushed: dict[str, dict[str, Any]]) -> None:
    told = {key: facts["image"] for key, facts in pushed["pictures"]["default"]["train"].items()}
    assert told == {key: hashlib.sha256(*members.values()).hexdigest() for key, members in PICTURES.items()}


def test_sound_is_audio_whatever_its_format(tmp_path: Path) -> None:
    noise = np.zeros(3, dtype=np.float32)
    samples = {
        "a": {"wav": b"RIFF", "flac": b"fLaC1", "noise.flac": b"fLaC2"},
        "b": {"wav": b"RIFF2", "noise.flac": b"fLaC3", "noise.npy": noise},  # a sound, and its array
    }
    write_parquet(str(published(tmp_path / "data", samples)), Store(str(tmp_path / "hub")))
    table = pq.read_table(tmp_path / "hub" / "data")
    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    assert features["wav"] == features["flac"] == features["noise_flac"] == {"_type": "Audio"}
    rows = {row["key"]: row for row in table.to_pylist()}
    assert rows["a"]["wav"] == {"bytes": b"RIFF", "path": "a.wav"}
    assert (rows["a"]["flac"]["path"], rows["b"]["flac"]) == ("a.flac", None)
    assert rows["b"]["noise_flac"] == {"bytes": b"fLaC3", "path": "b.noise.flac"}
    assert (rows["a"]["noise"], rows["b"]["noise"]) == (None, [0, 0, 0])
    assert '{"name": "noise_flac", "dtype": "audio"}' in (tmp_path / "hub/README.md").read_text()


def test_arrays_of_several_shapes_keep_their_shapes_and_names_that_are_taken_give_way(tmp_path: Path) -> None:
    arrays = [np.arange(n * 2, dtype=np.float32).reshape(n, 2) for n in (3, 1, 2)]
    samples = {f"k{n}": {"x.npy": array, "role.npy": np.full(2, n)} for n, array in enumerate(arrays)}
    write_parquet(str(published(tmp_path / "data", samples)), Store(str(tmp_path / "hub")))
    table = pq.read_table(tmp_path / "hub" / "data")
    rows = {row["key"]: row for row in table.to_pylist()}
    for n, array in enumerate(arrays):
        row = rows[f"k{n}"]
        np.testing.assert_array_equal(np.reshape(row["x"], row["x_shape"]), array)
        assert (row["role"], row["member_role"]) == ("train", [n, n])


def test_a_member_that_some_samples_lack_is_null(tmp_path: Path) -> None:
    samples = {
        "a": {"png": picture("PNG", 0), "v.npy": np.ones(3)},
        "b": {"png": picture("PNG", 1)},
        "c": {"v.npy": np.zeros(3)},
    }
    write_parquet(str(published(tmp_path / "data", samples)), Store(str(tmp_path / "hub")))
    rows = {row["key"]: row for row in pq.read_table(tmp_path / "hub" / "data").to_pylist()}
    assert (rows["b"]["v"], rows["c"]["image"]) == (None, None)
    assert (rows["a"]["v"], rows["c"]["v"]) == ([1, 1, 1], [0, 0, 0])


def test_files_of_a_split_are_cut_by_size_and_an_interrupted_push_goes_on(tmp_path: Path) -> None:
    samples = {f"k{n}": {"png": picture("PNG", n)} for n in range(9)}
    folder, hub, told = published(tmp_path / "data", samples), Store(str(tmp_path / "hub")), list[str]()

    def interrupted(line: str) -> None:
        told.append(line)
        if len(told) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_parquet(str(folder), hub, file_bytes=4000, progress=interrupted)
    there = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "hub" / "data").iterdir()}
    assert len(there) == 2
    write_parquet(str(folder), hub, file_bytes=4000, progress=told.append)
    names = sorted(path.name for path in (tmp_path / "hub" / "data").iterdir())
    assert [line.partition(":")[0] for line in told] == [f"data/{name}" for name in names]  # each written once
    assert {path: (tmp_path / "hub" / "data" / path).stat().st_mtime_ns for path in there} == there
    assert pq.read_table(tmp_path / "hub" / "data")["key"].to_pylist() == list(samples)
    (tmp_path / "other").mkdir()
    write_parquet(str(published(tmp_path / "other" / "data", {"k": {"png": picture("PNG", 7)}})), hub)
    assert [path.name for path in (tmp_path / "hub" / "data").iterdir()] == ["000-00000.parquet"]  # what was there is replaced
    assert pq.read_table(tmp_path / "hub" / "data")["key"].to_pylist() == ["k"]


def stopped(*_: Any) -> None:
    raise KeyboardInterrupt


def bitmaps(folder: Path, *, first: int, **card: Any) -> Path:
    """A dataset of nine pictures whose shard has the same size for every ``first``."""
    return published(folder, {f"k{n}": {"bmp": picture("BMP", first + n)} for n in range(9)}, **card)


def pixels(hub: Path) -> list[tuple[int, int, int]]:
    """The first pixel of each row's picture."""
    rows = pq.read_table(hub / "data")["image"].to_pylist()
    return [Image.open(io.BytesIO(row["bytes"])).getpixel((0, 0)) for row in rows]


@pytest.mark.parametrize("then", [4000, 1 << 20])
def test_a_push_goes_on_with_files_of_another_size(tmp_path: Path, then: int) -> None:
    folder, hub = bitmaps(tmp_path / "data", first=0), Store(str(tmp_path / "hub"))
    with pytest.raises(KeyboardInterrupt):
        write_parquet(str(folder), hub, file_bytes=8000, progress=stopped)
    write_parquet(str(folder), hub, file_bytes=then)
    assert pixels(tmp_path / "hub") == [(n, 0, 0) for n in range(9)]


def test_an_interrupted_push_over_another_dataset_keeps_none_of_its_files(tmp_path: Path) -> None:
    before, now = bitmaps(tmp_path / "before", first=0), bitmaps(tmp_path / "now", first=100)
    hub = Store(str(tmp_path / "hub"))
    write_parquet(str(before), hub, file_bytes=2000)
    with pytest.raises(KeyboardInterrupt):
        write_parquet(str(now), hub, file_bytes=4000, progress=stopped)
    write_parquet(str(now), hub, file_bytes=4000)
    assert pixels(tmp_path / "hub") == [(100 + n, 0, 0) for n in range(9)]


def test_other_splits_of_the_same_rows_are_written_anew(tmp_path: Path) -> None:
    keys, hub = [f"k{n}" for n in range(9)], Store(str(tmp_path / "hub"))
    for count in (3, 6):
        splits = {"train": {"key": keys[:count]}, "test": {"key": keys[count:]}}
        write_parquet(str(bitmaps(tmp_path / str(count), first=0, configurations={"default": splits})), hub)
        assert pq.read_table(tmp_path / "hub/data/000-00000.parquet")["key"].to_pylist() == keys[:count]


def test_a_file_of_the_right_size_with_other_bytes_is_pushed_again(tmp_path: Path) -> None:
    folder, hub, told = bitmaps(tmp_path / "data", first=0), Store(str(tmp_path / "hub")), list[str]()
    write_parquet(str(folder), hub, file_bytes=4000)
    names = sorted(json.loads(hub.read("export.json"))["files"])
    data = hub.read(names[1])
    hub.write(names[1], bytes(len(data)))
    write_parquet(str(folder), hub, file_bytes=4000, progress=told.append)
    assert [line.partition(":")[0] for line in told] == [names[1]]
    assert hub.read(names[1]) == data


def test_shards_of_the_same_size_are_those_of_the_dataset(tmp_path: Path) -> None:
    before, now = bitmaps(tmp_path / "before", first=0), bitmaps(tmp_path / "now", first=100)
    target, told = Store(str(tmp_path / "copy")), list[str]()
    assert copy_dataset(str(before), target) == 9
    assert copy_dataset(str(now), target) == 9
    assert target.size("s.tar") == len((before / "s.tar").read_bytes())
    assert {path.name: path.read_bytes() for path in (tmp_path / "copy").iterdir()} == {
        path.name: path.read_bytes() for path in now.iterdir()
    }
    copy_dataset(str(now), target, progress=told.append)
    assert not told


def test_a_record_of_sizes_alone_is_replaced_with_its_files(tmp_path: Path) -> None:
    folder, hub = bitmaps(tmp_path / "data", first=0), Store(str(tmp_path / "hub"))
    files = dict.fromkeys(["data/000-00000.parquet", "data/000-00007.parquet"], 9)
    for name in files:
        hub.write(name, bytes(9))
    hub.write_json("export.json", {"of": "an earlier form", "files": files})
    with pytest.raises(KeyboardInterrupt):
        write_parquet(str(folder), hub, file_bytes=4000, progress=stopped)
    write_parquet(str(folder), hub, file_bytes=4000)
    assert pixels(tmp_path / "hub") == [(n, 0, 0) for n in range(9)]
    for record in ({"files": {"thesis.tex": "mine"}}, {"files": []}, []):
        hub.write_json("export.json", record)
        with pytest.raises(ValueError, match=r"hub/export\.json is not the record of an export"):
            write_parquet(str(folder), hub)


def test_what_cannot_be_pushed_is_told_in_one_line(tmp_path: Path) -> None:
    two = published(tmp_path / "two", {"k": {"png": picture("PNG", 0), "jpg": picture("JPEG", 0)}})
    with pytest.raises(ShardError, match=r"sample 'k' has the members .*, two of which would become its 'image'"):
        write_parquet(str(two), Store(str(tmp_path / "hub")))
    left = published(tmp_path / "left", {"k": {"txt": b"x"}}, configurations={"default": {"test": {"role": "test"}}})
    with pytest.raises(ValueError, match="configuration 'default' leaves out 1 rows, such as 'k'"):
        write_parquet(str(left), Store(str(tmp_path / "hub")))


def test_a_push_leaves_the_files_of_others_alone(tiny: Callable[[str], Path], tmp_path: Path) -> None:
    out, mine = tiny("skeleton"), tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("mine")
    for form in ("parquet", "shards"):
        with pytest.raises(WrongUse, match="it contains files"):
            api.push(str(out), str(mine), form=form)
    assert [path.name for path in mine.iterdir()] == ["thesis.tex"]
    assert api.push(str(out), str(tmp_path / "copy"), form="shards") == 200
    same = {path.name: path.read_bytes() for path in (out / "dataset").iterdir()}
    assert {path.name: path.read_bytes() for path in (tmp_path / "copy").iterdir()} == same


@pytest.mark.parametrize(
    ("form", "work"), [("parquet", "benchwright.datasets.exports.hugging_face._tables"), ("shards", "shutil.copyfileobj")]
)
def test_a_push_that_ends_within_its_first_file_is_resumed(
    form: Any, work: str, tiny: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, to = tiny("skeleton"), str(tmp_path / "to")
    with monkeypatch.context() as patch:
        patch.setattr(work, stopped)
        with pytest.raises(KeyboardInterrupt):
            api.push(str(out), to, form=form)
    assert api.push(str(out), to, form=form) == api.push(str(out), str(tmp_path / "whole"), form=form) == 200
    assert {path.name for path in (tmp_path / "to").rglob("*")} == {path.name for path in (tmp_path / "whole").rglob("*")}


def test_the_head_of_the_card_says_what_the_hub_asks_for(tiny: Callable[[str], Path], tmp_path: Path) -> None:
    out, hub = tiny("vclimb"), tmp_path / "hub"
    api.push(str(out), str(hub))
    front = yaml.safe_load((hub / "README.md").read_text().split("---\n")[1])
    assert (front["license"], front["task_categories"], front["size_categories"]) == (
        "other",
        ["video-classification"],
        ["n<1K"],
    )
    assert "webdataset" not in front["tags"]
    (info,) = front["dataset_info"]
    assert {each["name"]: each["num_examples"] for each in info["splits"]} == {"train": 24, "validation": 12, "test": 12}
    text = (hub / "README.md").read_text()
    assert 'load_dataset("FOLDER OR NAME", "default")' in text
    assert "webdataset" not in text
    assert "## Citation" in text


def test_load_dataset_of_the_shards_gives_every_row_of_the_index(
    tiny: Callable[[str], Path], pushed: dict[str, dict[str, Any]]
) -> None:
    folder, found = tiny("clear") / "dataset", pushed["shards"]
    assert found.keys() == {"", "index"}
    assert found["index"].keys() == {"samples"}
    rows = {row["key"]: {"label": row["label"]} for row in DatasetIndex.open(folder).table.to_pylist()}
    assert found["index"]["samples"] == rows


PUSH = """
import sys
from benchwright.pipelines import api

def told(line):
    print(line)
    if "rows" in line and sys.argv[3] == "interrupted":
        raise KeyboardInterrupt

api.push(sys.argv[1], sys.argv[2], progress=told)
"""


def test_a_push_to_the_hub_is_resumed_and_loaded_from_there(
    tiny: Callable[[str], Path], pushed_to: Path, pushed: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    with running_hub() as hub:
        plain = {"HF_ENDPOINT": hub.url, "HF_TOKEN": "hf_of_nobody", "HF_HUB_DISABLE_XET": "1"}  # Xet is a protocol of its own

        def push(how: str) -> tuple[int, str]:
            command = [sys.executable, "-P", "-c", PUSH, str(tiny("vclimb")), "hf://datasets/me/clips", how]
            told = subprocess.run(command, capture_output=True, text=True, env={"HOME": str(tmp_path), **plain})
            return told.returncode, told.stdout

        code, told = push("interrupted")
        assert code != 0
        assert told.startswith("hf://datasets/me/clips: created a private repository\n")
        assert hub.private == {"me/clips": True}
        assert hub.commits == [["data/000-00000.parquet"], ["export.json"]]
        code, told = push("whole")
        assert code == 0
        assert "private" not in told
        paths = [path for paths in hub.commits for path in paths if path != "export.json"]
        assert paths == ["data/000-00000.parquet", "data/001-00000.parquet", "data/002-00000.parquet", "README.md"]
        assert {*hub.read} == {"export.json"}  # the hub states the SHA-256 of the others
        [found] = loaded(["me/clips"], tmp_path, **plain)
    assert found == pushed["vclimb"]
    assert found[""] == {"train": 24, "validation": 12, "test": 12}
    assert {name: (pushed_to / "vclimb" / name).read_bytes() for name in hub.files["me/clips"]} == hub.files["me/clips"]
