"""Each benchmark's dataset in the hands of other tools: as many rows as ours, with the labels and payloads of ours."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from benchwright.curation.ustar import ShardError
from benchwright.datasets.reader.collate import Collate, picture
from benchwright.datasets.reader.dataset import ShardDataset
from benchwright.datasets.reader.index import DatasetIndex
from benchwright.datasets.reader.web import web_dataset
from benchwright.pipelines.catalogue import TITLES
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
    with pytest.raises(ValueError, match="pictures is 'crop': 'list', 'pad' or"):
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
