"""Each benchmark's dataset in the hands of other tools: as many rows as ours, with the labels and payloads of ours."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from benchwright.curation.store import StoreError
from benchwright.curation.ustar import ShardError
from benchwright.datasets.exports.published import Published
from benchwright.datasets.reader.collate import Collate, picture
from benchwright.datasets.reader.dataset import ShardDataset
from benchwright.datasets.reader.index import DatasetIndex
from benchwright.datasets.reader.web import web_dataset
from benchwright.pipelines import api
from benchwright.pipelines.catalogue import TITLES
from benchwright.pipelines.errors import WrongUse
from torch.utils.data import DataLoader

Tiny = Callable[[str], Path]
BENCHMARKS = sorted(TITLES)
SPLIT = {
    "clear": {"iid_seed0": "train"},
    "iirc": {"role": "test"},
    "kowl": {"role": "test"},
    "skeleton": {"role": "test"},
    "two_camera": {"fold": 1},
    "vclimb": {"role": "val"},
}


def by_key(samples: Any) -> dict[str, dict[str, Any]]:
    return {sample["__key__"]: {name: value for name, value in sample.items() if name != "__url__"} for sample in samples}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_pandas_polars_and_duckdb_read_the_index(name: str, tiny: Tiny) -> None:
    file = str(tiny(name) / "dataset" / "index.parquet")
    rows = DatasetIndex.open(tiny(name) / "dataset").table.to_pylist()
    frame = pd.read_parquet(file, dtype_backend="pyarrow")
    assert pa.Table.from_pandas(frame, preserve_index=False).to_pylist() == rows
    assert pl.read_parquet(file).to_dicts() == rows
    found = duckdb.read_parquet(file)
    assert [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()] == rows


# ------------------------------------------------------------------------------------------------------- webdataset


@pytest.mark.parametrize("name", BENCHMARKS)
def test_webdataset_gives_the_samples_of_our_reader(name: str, tiny: Tiny) -> None:
    folder, columns = tiny(name) / "dataset", [*SPLIT[name]]
    ours = list(ShardDataset(folder, columns=columns, decode={}))
    theirs = list(web_dataset(folder, columns=columns, decode={}))
    assert [sample["__key__"] for sample in theirs] == [sample["__key__"] for sample in ours]
    assert by_key(theirs) == by_key(ours)
    chosen = DatasetIndex.open(folder, where=SPLIT[name])
    assert 0 < len(chosen) < len(ours)
    wanted = {sample["__key__"]: sample for sample in ShardDataset(chosen)}
    found = by_key(web_dataset(folder, where=SPLIT[name], seed=3))
    assert found.keys() == wanted.keys()
    np.testing.assert_equal(found, wanted)


def test_the_order_of_webdataset_is_its_seed_and_epoch(tiny: Tiny) -> None:
    index = DatasetIndex.open(tiny("skeleton") / "dataset")

    def keys(**options: Any) -> list[str]:
        return [sample["__key__"] for sample in web_dataset(index, extensions=["json"], decode={}, **options)]

    assert keys(seed=0) == keys(seed=0)
    twice = web_dataset(index, extensions=["json"], decode={}, seed=0)
    first, second = ([sample["__key__"] for sample in twice] for _ in range(2))
    assert (first, second) == (keys(seed=0), keys(seed=0, epoch=1))
    orders = [tuple(order) for order in (first, second, keys(seed=1), keys(), keys(seed=0, shuffle=2))]
    assert len({*orders}) == 5
    assert len({tuple(sorted(order)) for order in orders}) == 1


def test_workers_and_nodes_of_webdataset_share_the_samples(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = web_dataset(tiny("skeleton") / "dataset", where={"role": "train"}, columns=["label"], seed=0)
    found = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        loader = DataLoader(pipeline.to_tuple("__key__", "x.npy", "label"), batch_size=None, num_workers=2)
        found += [(key, tuple(values.shape), label) for key, values, label in loader]
    index = DatasetIndex.open(tiny("skeleton") / "dataset", where={"role": "train"})
    wanted = [(row["key"], (3, 16, 20, 1), row["label"]) for row in index.table.to_pylist()]
    assert sorted(found) == sorted(wanted)


def test_webdataset_says_what_shards_lack(tiny: Tiny, tmp_path: Path) -> None:
    index = DatasetIndex.open(tiny("skeleton") / "dataset", where={"role": "val"})
    with pytest.raises(ValueError, match=r"no columns \['colour'\]"):
        web_dataset(index, columns=["colour"])
    with pytest.raises(ValueError, match="extensions is empty"):
        web_dataset(index, extensions=[])
    with pytest.raises(ShardError, match=r"has no member \['png'\]"):
        list(web_dataset(index, extensions=["json", "png"]))
    for shard in index.table["shard"].unique().to_pylist():
        data = (tiny("skeleton") / "dataset" / f"{shard}.tar").read_bytes()
        (tmp_path / f"{shard}.tar").write_bytes(data)
    moved = dataclasses.replace(index, url=str(tmp_path))
    assert by_key(web_dataset(moved, decode={})) == by_key(ShardDataset(index, decode={}))
    last = index.table.to_pylist()[-1]
    data = (tmp_path / f"{last['shard']}.tar").read_bytes()
    cut = data[: last["offset"]]
    (tmp_path / f"{last['shard']}.tar").write_bytes(cut + bytes(len(data) - len(cut)))  # an end where the sample was
    with pytest.raises(ShardError, match=rf"{last['shard']}.tar: the shard has no sample '{last['key']}'"):
        list(web_dataset(moved))
    broken = bytearray(data)
    broken[last["offset"] + 148 : last["offset"] + 156] = b"99999999"  # the sum of the header
    (tmp_path / f"{last['shard']}.tar").write_bytes(broken)
    with pytest.raises(ShardError, match=rf"{last['shard']}.tar: "):
        list(web_dataset(moved))


# ---------------------------------------------------------------------------------------------------------- batches


def test_pictures_of_different_sizes_become_a_batch() -> None:
    shapes = [(4, 6), (5, 3)]
    pictures = [np.full((*shape, 3), 200, np.uint8) for shape in shapes]
    samples = [
        {"__key__": str(n), "png": image, "label": n, "name": "a", "x.npy": np.arange(n), "score": 0.5}
        for n, image in enumerate(pictures)
    ]
    batch = Collate()(samples)
    assert [tuple(each.shape) for each in batch["png"]] == [(4, 6, 3), (5, 3, 3)]
    assert (batch["__key__"], batch["label"].tolist(), batch["name"]) == (["0", "1"], [0, 1], ["a", "a"])
    assert [each.tolist() for each in batch["x.npy"]] == [[], [0]]
    assert isinstance(batch["score"], torch.Tensor)
    padded = Collate("pad", tensors=False)(samples)["png"]
    assert padded.shape == (2, 5, 6, 3)
    for image, one in zip(pictures, padded, strict=True):
        assert (one[: len(image), : image.shape[1]] == image).all()
        assert one.astype(int).sum() == image.astype(int).sum()
    resized = Collate((7, 9))(samples)["png"]
    assert (tuple(resized.shape), resized.dtype, resized.unique().tolist()) == ((2, 7, 9, 3), torch.uint8, [200])


def test_what_a_sample_lacks_is_none_in_a_batch() -> None:
    samples = [{"__key__": "a", "png": np.zeros((2, 2, 3), np.uint8), "label": 1}, {"__key__": "b", "label": None}]
    batch = Collate("pad")(samples)
    assert (batch["label"], batch["png"][1]) == ([1, None], None)
    with pytest.raises(ValueError, match="sample 'b' has 0 pictures"):
        picture(samples[1])
    with pytest.raises(ValueError, match="pictures is 'crop': expected 'list', 'pad' or"):
        Collate("crop")  # type: ignore[arg-type]


def test_batches_come_from_the_loader_and_from_webdataset(tiny: Tiny) -> None:
    folder, options = tiny("vclimb") / "dataset", {"extensions": ["0000.jpg"], "columns": ["label"]}
    collate = Collate((16, 16), tensors=False)
    ours = list(ShardDataset(folder, batch_size=20, **options).loader(collate_fn=collate))
    theirs = list(web_dataset(folder, **options).batched(20, collation_fn=collate))
    assert [batch["0000.jpg"].shape for batch in ours] == [(20, 16, 16, 3), (20, 16, 16, 3), (8, 16, 16, 3)]
    for batch, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(batch["0000.jpg"], other["0000.jpg"])
        np.testing.assert_array_equal(batch["label"], other["label"])


# -------------------------------------------------------------------------------------- FiftyOne, Label Studio, Avalanche


FIFTYONE = os.environ.get("FIFTYONE_PYTHON", "")
"""Python of an environment with fiftyone; its database is not needed."""

LABEL_STUDIO = os.environ.get("LABEL_STUDIO_PYTHON", "")
"""Python of an environment with label-studio-sdk."""

AVALANCHE = os.environ.get("AVALANCHE_PYTHON", "")
"""Python of an environment as ``benchmarks/compare_avalanche.py`` makes one."""

IMPORT = """
import json, sys
import fiftyone as fo
from fiftyone.utils.data import importers
importer, _ = importers.build_dataset_importer(fo.types.FiftyOneDataset, dataset_dir=sys.argv[1])
importer = importers._handle_legacy_formats(importer)
found = []
with importer:
    for sample in importer:
        label = sample["label"] if sample.has_field("label") else None
        told = {"key": sample["key"], "path": sample.filepath, "tags": sample.tags, "media": sample.media_type}
        found.append(told | {"label": getattr(label, "label", None), "sha256": sample["sha256"]})
print(json.dumps([found, importer.get_dataset_info()]))
"""


def read_fiftyone(folder: Path, tmp_path: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """By FiftyOne's importer where there is one, else as its documentation describes the files."""
    if FIFTYONE:
        command = [FIFTYONE, "-W", "ignore", "-c", IMPORT, str(folder)]
        told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={"HOME": str(tmp_path)})
        found, info = json.loads(told.stdout.splitlines()[-1])
        return found, info
    samples = json.loads((folder / "samples.json").read_text())["samples"]
    described = json.loads((folder / "metadata.json").read_text())
    for sample in samples:
        sample |= {"path": str(folder / sample["filepath"]), "media": described["media_type"]}
        sample["label"] = sample.get("label") and sample["label"].get("label")
    return samples, described["info"]


@pytest.mark.parametrize("name", BENCHMARKS)
def test_fiftyone_imports_every_sample(name: str, tiny: Tiny, tmp_path: Path) -> None:
    index = DatasetIndex.open(tiny(name) / "dataset")
    assert api.push(str(tiny(name)), str(tmp_path / "pushed"), form="fiftyone") == len(index)
    found, info = read_fiftyone(tmp_path / "pushed", tmp_path)
    rows = {row["key"]: row for row in index.table.to_pylist()}
    samples = {sample["__key__"]: sample for sample in ShardDataset(index, decode={})}
    assert {each["key"] for each in found} == rows.keys()
    assert len(found) == sum(row.get("frames", 1) for row in rows.values())
    of = Published.open(str(tiny(name) / "dataset"))
    splits = next(iter(of.configurations.values()))
    for each in found:
        row, path = rows[each["key"]], Path(each["path"])
        assert path.read_bytes() == samples[each["key"]][path.name.removeprefix(f"{each['key']}.")]
        assert each["label"] == (of.class_of(row, "label") if "label" in of.labels else None)
        assert each["tags"] == [split for split, where in splits.items() if where.items() <= row.items()]
        assert each["sha256"] == row["sha256"]
        assert each["media"] == ("image" if name in ("clear", "iirc", "vclimb") else "unknown")
    assert info["benchwright"] == of.facts["digest"]


def test_an_interrupted_push_to_fiftyone_goes_on(tiny: Tiny, tmp_path: Path) -> None:
    def push() -> dict[str, int]:
        api.push(str(tiny("skeleton")), str(tmp_path / "to"), form="fiftyone")
        return {path.name: path.stat().st_mtime_ns for path in (tmp_path / "to/data").iterdir()}

    whole = push()
    (tmp_path / "to/samples.json").unlink()
    lost, changed, *_, other = sorted(whole)
    (tmp_path / "to/data" / lost).unlink()
    data = (tmp_path / "to/data" / changed).read_bytes()
    (tmp_path / "to/data" / changed).write_bytes(bytes(len(data)))
    (tmp_path / "to/data/left.jpg").write_text("of an earlier dataset")
    again = push()
    assert again.keys() == whole.keys()
    assert (again[lost] == whole[lost], again[other] == whole[other]) == (False, True)
    assert (tmp_path / "to/data" / changed).read_bytes() == data
    (tmp_path / "to/metadata.json").write_text('{"info": {"benchwright": "of another dataset"}}')
    assert push() == again
    (tmp_path / "to/metadata.json").write_text('{"name": "of somebody else"}')
    with pytest.raises(ValueError, match=r"to/metadata\.json is not the record of a push: remove it, or name another place"):
        push()
    with pytest.raises(WrongUse, match=r"it contains files, but no config\.xml of an earlier push"):
        api.push(str(tiny("skeleton")), str(tmp_path / "to"), form="label-studio")


def test_a_push_that_was_killed_at_its_first_file_goes_on(tiny: Tiny, tmp_path: Path) -> None:
    (tmp_path / ".tmp-1-0123456789ab").write_bytes(b"half")
    assert api.push(str(tiny("skeleton")), str(tmp_path), form="shards") == 200


def test_a_shard_that_was_replaced_is_not_pushed(tiny: Tiny, tmp_path: Path) -> None:
    run, secret = tmp_path / "run", tmp_path / "secret"
    shutil.copytree(tiny("skeleton"), run)
    shard = min((run / "dataset").glob("*.tar"))
    secret.write_bytes(bytes(shard.stat().st_size))
    shard.unlink()
    shard.symlink_to(secret)
    with pytest.raises(StoreError, match=rf"file {shard.name} is not what dataset\.json says"):
        api.push(str(run), str(tmp_path / "to"), form="shards")
    assert not (tmp_path / "to" / shard.name).exists()


def test_a_damaged_sample_is_not_pushed(tiny: Tiny, tmp_path: Path) -> None:
    shutil.copytree(tiny("skeleton"), tmp_path / "run")
    first = DatasetIndex.open(tmp_path / "run/dataset").table.to_pylist()[0]
    shard = tmp_path / "run/dataset" / f"{first['shard']}.tar"
    data = bytearray(shard.read_bytes())
    data[first["offset"] + 512 + 200] ^= 1
    shard.write_bytes(data)
    with pytest.raises(ShardError, match=f"sample {first['key']!r} is not what the index records"):
        api.push(str(tmp_path / "run"), str(tmp_path / "to"))


STUDIO = """
import json, sys
from pathlib import Path
from label_studio_sdk.label_interface import LabelInterface
folder = Path(sys.argv[1])
interface, tasks = LabelInterface((folder / "config.xml").read_text()), json.loads((folder / "tasks.json").read_text())
interface.validate()
assert all(interface.validate_task({"data": task["data"]}) for task in tasks)
told = [interface.validate_prediction(each, return_errors=True) for task in tasks for each in task.get("predictions", [])]
assert told and not any(told)
print(json.dumps(list(interface.get_control("class").labels)))
"""


@pytest.mark.parametrize("name", ["clear", "iirc", "vclimb"])
def test_label_studio_shows_pictures_with_their_classes(name: str, tiny: Tiny, tmp_path: Path) -> None:
    index, folder = DatasetIndex.open(tiny(name) / "dataset"), tmp_path / "pushed"
    assert api.push(str(tiny(name)), str(folder), form="label-studio") == len(index)
    of, tasks = Published.open(str(tiny(name) / "dataset")), json.loads((folder / "tasks.json").read_text())
    column = "label" if name != "iirc" else "sub_index0"
    for task, row in zip(tasks, index.table.to_pylist(), strict=True):
        head, _, data = task["data"].pop("image").partition(",")
        assert head == "data:image/jpeg;base64"
        assert base64.b64decode(data)[:2] == b"\xff\xd8"
        assert task["data"]["key"] == row["key"]
        told = [each["value"]["choices"] for each in task.get("predictions", [{"result": []}])[0]["result"]]
        assert told == [[name] for name in [of.class_of(row, column)] if name]
    choices = [each.get("value") for each in ElementTree.parse(folder / "config.xml").iter("Choice")]
    assert choices == list(dict.fromkeys(of.labels[column]))
    if LABEL_STUDIO:
        told = subprocess.run([LABEL_STUDIO, "-c", STUDIO, folder], check=True, stdout=subprocess.PIPE, text=True).stdout
        assert json.loads(told.splitlines()[-1]) == choices


def test_label_studio_is_not_for_arrays(tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"sample 'raise_left_arm-.*' has no picture, only \['json', 'x.npy'\]: name another form"
    ):
        api.push(str(tiny("skeleton")), str(tmp_path / "a"), form="label-studio")
    with pytest.raises(ValueError, match="it has no column of classes"):
        api.push(str(tiny("two_camera")), str(tmp_path / "b"), form="label-studio")


SCENARIO = """
import contextlib, json, sys
from benchwright.curation.encoders.torchvision_compat import ensure_torchvision
ensure_torchvision()
import torch
from avalanche.training.supervised import Naive
from benchwright.datasets.exports.avalanche import benchmark
dataset, member, told = sys.argv[1:]
given = {"x": lambda sample: torch.from_numpy(sample[member]).float().flatten()} if member else {}
made = benchmark(dataset, **json.loads(told), **given)
first = made.train_stream[0].dataset
x, y = first[0][:2]
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(64))
model(x[None])
optimizer = torch.optim.SGD(model.parameters(), 0.01)
naive = Naive(model=model, optimizer=optimizer, criterion=torch.nn.CrossEntropyLoss(), train_mb_size=64, evaluator=None)
with contextlib.redirect_stdout(sys.stderr):
    naive.train(made.train_stream[0])
streams = {name: [sorted(map(int, each.dataset.targets)) for each in stream] for name, stream in made.streams.items()}
seen = [sorted(map(int, each.classes_in_this_experience)) for each in made.train_stream]
print(json.dumps([streams, seen, x.flatten().tolist(), int(y)]))
"""

SCENARIOS = {
    "clear": ("", {"experience": "bucket", "configuration": "iid_seed1"}),
    "iirc": ("", {"experience": "super_task0", "label": "super_index0", "splits": ["train"]}),
    "kowl": ("feature.npy", {"experience": "increment", "splits": ["train", "test"]}),
    "skeleton": ("x.npy", {"experience": "task"}),
    "vclimb": ("0003.jpg", {"experience": "task"}),
}


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.skipif(not AVALANCHE, reason="AVALANCHE_PYTHON names no Python with Avalanche")
def test_avalanche_learns_from_our_shards(name: str, tiny: Tiny, tmp_path: Path) -> None:
    member, told = SCENARIOS[name]
    root, links = Path(__file__).resolve().parents[2], tmp_path / "benchwright"
    links.mkdir()
    (links / "__init__.py").symlink_to(root / "front_door/__init__.py")
    for part in ("curation", "datasets", "eval", "pipelines", "training"):
        (links / part).symlink_to(root / part)
    command = [AVALANCHE, "-W", "ignore", "-c", SCENARIO, str(tiny(name) / "dataset"), member, json.dumps(told)]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    streams, seen, x, y = json.loads(done.stdout.splitlines()[-1])
    of, label = Published.open(str(tiny(name) / "dataset")), told.get("label", "label")
    rows = of.index.table.to_pylist()
    names = of.labels[label]
    classes = [names.index(row[label]) if isinstance(row[label], str) else row[label] for row in rows]
    configuration = of.configurations[told.get("configuration", next(iter(of.configurations)))]
    for split, where in configuration.items():
        if split in told.get("splits", configuration):
            chosen = [(row[told["experience"]], at) for at, row in enumerate(rows) if where.items() <= row.items()]
            places = sorted({place for place, _ in chosen if place is not None})
            wanted = [sorted(classes[at] for each, at in chosen if each == place) for place in places]
            assert streams[split] == wanted
    assert seen == [sorted({*targets}) for targets in streams["train"]]
    first = next(at for at, row in enumerate(rows) if configuration["train"].items() <= row.items())
    if rows[first][told["experience"]] == 0 or name == "clear":
        sample = ShardDataset(of.index)[first]
        values = sample[member].astype(np.float32) if member else picture(sample).transpose(2, 0, 1) / np.float32(255)
        np.testing.assert_array_equal(np.float32(x), values.ravel())
        assert y == classes[first]
