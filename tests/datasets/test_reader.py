"""The reader: order, split, resume and random access to the sample; decoding; features; broken shards."""

from __future__ import annotations

import io
import itertools
import json
import multiprocessing
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest
import webdataset as wds
from benchwright.curation.publish import DatasetCard, dataset_files
from benchwright.curation.shard_assignment import assign_shards
from benchwright.curation.shards import SampleSpan, write_shard_file
from benchwright.curation.ustar import ShardError
from benchwright.datasets.reader.dataset import ShardDataset, global_steps
from benchwright.datasets.reader.decode import decode_image, decode_npy
from benchwright.datasets.reader.features import read_features
from benchwright.datasets.reader.index import DatasetIndex, ShardFiles
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import DataLoader, Subset

SAMPLES = 23


def jpeg(row: int) -> bytes:
    y, x = np.mgrid[0 : 24 + row % 3, 0:32]
    pixels = np.stack([x * 7 % 256, y * 9 % 256, (x + y + row * 11) % 256], axis=2).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, format="JPEG", quality=90)
    return out.getvalue()


def members_of(row: int) -> dict[str, Any]:
    vector = np.arange(5, dtype=np.float16) + row
    return {"jpg": jpeg(row), "json": {"row": row}, "embedding.npy": vector}


def build(folder: Path) -> Path:
    """23 samples in 3 buckets, at most 5 a shard, published with index and card."""
    rows = range(SAMPLES)
    labels = pa.table(
        {
            "key": [f"photo-{row:03d}" for row in rows],
            "row": list(rows),
            "bucket": [row % 3 + 1 for row in rows],
            "iid_seed0": ["test" if row % 4 == 0 else "train" for row in rows],
        }
    )
    labels = assign_shards(labels, by=["bucket"], max_samples=5)
    spans: dict[str, list[SampleSpan]] = {}
    for shard in labels["shard"].unique().to_pylist():
        of_shard = [row for row in labels.to_pylist() if row["shard"] == shard]
        samples = [(row["key"], members_of(row["row"])) for row in of_shard]
        spans[shard] = write_shard_file(folder / f"{shard}.tar", samples)
    facts = {f"{shard}.tar": {"size": (folder / f"{shard}.tar").stat().st_size, "sha256": ""} for shard in spans}
    card = DatasetCard(title="Tiny", summary="", pipeline="test", digest="", licence="CC0-1.0")
    places = {span.key: span for of_shard in spans.values() for span in of_shard}
    for column in ("offset", "size"):
        labels = labels.append_column(column, pa.array([getattr(places[key], column) for key in labels["key"].to_pylist()]))
    for name, data in dataset_files(labels, card, facts).items():
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dataset"))


@pytest.fixture
def own_folder(tmp_path: Path) -> Path:
    """A dataset that the test may break."""
    return build(tmp_path)


def keys_of(batch: list[dict[str, Any]]) -> list[str]:
    return [sample["__key__"] for sample in batch]


def batches_of(folder: Path | str, *, epochs: int = 1, workers: int = 0, **options: Any) -> list[list[str]]:
    dataset = ShardDataset(folder, extensions=["json"], **options)
    loader = dataset.loader(num_workers=workers, collate_fn=keys_of)
    return [batch for _ in range(epochs) for batch in loader]


def flat(batches: list[list[str]]) -> list[str]:
    return list(itertools.chain.from_iterable(batches))


# Samples


def test_streaming_random_access_and_webdataset_give_the_same_samples(folder: Path) -> None:
    dataset = ShardDataset(folder, columns=["row", "bucket"])
    streamed = list(dataset)
    urls = sorted(map(str, folder.glob("*.tar")))
    reference = list(wds.WebDataset(urls, shardshuffle=False).decode("rgb8"))
    assert len(dataset) == len(streamed) == len(reference) == SAMPLES
    for number, (sample, other) in enumerate(zip(streamed, reference, strict=True)):
        again = dataset[number]
        assert sample.keys() == again.keys() == {"__key__", "jpg", "json", "embedding.npy", "row", "bucket"}
        assert sample["__key__"] == other["__key__"] == again["__key__"] == f"photo-{sample['row']:03d}"
        assert sample["json"] == other["json"] == {"row": sample["row"]}
        for name in ("jpg", "embedding.npy"):
            np.testing.assert_array_equal(sample[name], other[name])
            np.testing.assert_array_equal(sample[name], again[name])
    assert dataset[-1]["__key__"] == streamed[-1]["__key__"]
    with pytest.raises(IndexError, match="row 23 of 23"):
        dataset[SAMPLES]


def test_torch_samplers_take_rows_through_subset(folder: Path) -> None:
    dataset = ShardDataset(folder, extensions=["json"])
    loader = DataLoader(Subset(dataset, [5, 3, 22]), batch_size=2, collate_fn=keys_of)
    assert flat(list(loader)) == [dataset[row]["__key__"] for row in (5, 3, 22)]


def test_members_columns_decoders_and_transform_are_chosen(folder: Path) -> None:
    raw = ShardDataset(folder, extensions=["jpg"], decode={})[0]
    assert raw.keys() == {"__key__", "jpg"}
    assert raw["jpg"][:2] == b"\xff\xd8"
    named = ShardDataset(folder, extensions=["embedding.npy"], decode={"embedding.npy": len})[0]
    assert named["embedding.npy"] == 128 + 10
    assert ShardDataset(folder, transform=lambda sample: sample["json"]["row"])[1] == 3
    with pytest.raises(ValueError, match="nothing"):
        ShardDataset(folder, columns=["nothing"])
    with pytest.raises(ShardError, match=r"bucket01-00000\.tar, byte 0: sample 'photo-000' has no member \['png'\]"):
        ShardDataset(folder, extensions=["png", "jpg"])[0]


def test_rows_are_chosen_by_columns(folder: Path) -> None:
    index = DatasetIndex.open(folder, where={"iid_seed0": "train", "bucket": [1, 3]})
    wanted = [row for row in range(SAMPLES) if row % 4 and row % 3 + 1 in (1, 3)]
    assert sorted(index.table["row"].to_pylist()) == wanted
    assert {sample["json"]["row"] for sample in ShardDataset(index)} == set(wanted)
    whole = DatasetIndex.open(folder)
    assert whole.table["row"].take(index.positions).to_pylist() == index.table["row"].to_pylist()
    with pytest.raises(ValueError, match="no column 'split'"):
        whole.select({"split": "train"})
    with pytest.raises(ValueError, match=r"no row has iid_seed0='trian'; the column holds \['test', 'train'\]"):
        whole.select({"iid_seed0": "trian"})
    with pytest.raises(ValueError, match="column 'bucket' holds int64, 'x' does not fit"):
        whole.select({"bucket": "x"})


def test_a_remote_url_gives_what_the_folder_gives(folder: Path) -> None:
    memory = fsspec.filesystem("memory")
    for path in folder.iterdir():
        memory.pipe_file(f"/reader/{path.name}", path.read_bytes())
    assert batches_of(folder, seed=3, batch_size=4) == batches_of("memory://reader", seed=3, batch_size=4) != []
    files, index = ShardFiles("memory://reader"), DatasetIndex.open("memory://reader")
    places = list(zip(*(index.table[name].to_pylist() for name in ("shard", "offset", "size")), strict=True))
    asked = [places[row] for row in (0, 1, 2, 1, 1, 22, 0, 7, 8)]
    assert list(files.read(asked)) == list(ShardFiles(str(folder)).read(asked))
    np.testing.assert_array_equal(read_features(index)[0], read_features(DatasetIndex.open(folder))[0])


def test_foreign_shards_without_an_index_are_scanned(tmp_path: Path) -> None:
    with wds.ShardWriter(str(tmp_path / "s-%03d.tar"), maxcount=3, verbose=0) as writer:
        for row in range(7):
            writer.write({"__key__": f"dir/{row}", "jpg": jpeg(row), "json": {"row": row}})
    (tmp_path / "notes.txt").write_text("no shard")
    dataset = ShardDataset(DatasetIndex.scan(tmp_path))
    assert [(sample["__key__"], sample["json"]["row"]) for sample in dataset] == [(f"dir/{r}", r) for r in range(7)]
    with pytest.raises(FileNotFoundError, match=r"no index\.parquet here; DatasetIndex\.scan"):
        DatasetIndex.open(tmp_path)


# Order


def test_an_epoch_has_one_order_whatever_the_workers(folder: Path) -> None:
    reference = batches_of(folder, seed=1, batch_size=4, epochs=2)
    assert [len(batch) for batch in reference] == [4, 4, 4, 4, 4, 3] * 2
    first, second = flat(reference[:6]), flat(reference[6:])
    assert first != second
    assert sorted(first) == sorted(second) == sorted(set(first))
    for workers in (1, 2):
        assert batches_of(folder, seed=1, batch_size=4, epochs=2, workers=workers) == reference
    assert flat(batches_of(folder, seed=2, batch_size=4)) != first
    assert flat(batches_of(folder, seed=1, batch_size=7)) == first
    assert flat(batches_of(folder, batch_size=4)) == DatasetIndex.open(folder).table["key"].to_pylist()


def test_the_order_of_an_epoch_is_fixed_for_good() -> None:
    table = pa.table({"key": [str(row) for row in range(8)]})
    index = DatasetIndex("", table, np.arange(8), 8)
    assert index.order(seed=0, epoch=0).tolist() == [5, 1, 3, 6, 7, 0, 2, 4]
    assert index.order(seed=None, epoch=5).tolist() == list(range(8))


def test_a_selection_keeps_the_relative_order_of_its_samples(folder: Path) -> None:
    everything = flat(batches_of(folder, seed=9))
    some = ShardDataset(DatasetIndex.open(folder, where={"bucket": 2}), seed=9)
    chosen = [sample["__key__"] for sample in some]
    assert chosen == [key for key in everything if key in set(chosen)]
    assert len(chosen) == 8


def test_workers_that_outlive_the_epoch_see_the_next_one(folder: Path) -> None:
    dataset = ShardDataset(folder, seed=1, batch_size=4, extensions=["json"])
    loader = dataset.loader(num_workers=2, collate_fn=keys_of, persistent_workers=True)
    assert [batch for _ in range(3) for batch in loader] == batches_of(folder, seed=1, batch_size=4, epochs=3)


def test_workers_that_are_spawned_give_the_same(folder: Path) -> None:
    dataset = ShardDataset(folder, seed=1, batch_size=4)
    loader = dataset.loader(num_workers=2, collate_fn=list, multiprocessing_context="spawn")
    assert [keys_of(batch) for batch in loader] == batches_of(folder, seed=1, batch_size=4)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_nodes_split_an_epoch_without_loss_or_repetition(folder: Path, world_size: int, drop_last: bool) -> None:
    options: dict[str, Any] = {"seed": 4, "batch_size": 2, "drop_last": drop_last}
    nodes = [batches_of(folder, node=(rank, world_size), workers=rank % 3, **options) for rank in range(world_size)]
    together = sorted(flat(flat(nodes)))  # type: ignore[arg-type]
    kept = SAMPLES // (2 * world_size) * 2 * world_size if drop_last else SAMPLES
    assert len(together) == len(set(together)) == kept
    left = SAMPLES % (2 * world_size)
    assert len({len(node) for node in nodes}) == (2 if 0 < left < world_size and not drop_last else 1)
    # A step of all nodes together is the next stretch of the order.
    order = flat(batches_of(folder, seed=4))
    steps = [sorted(flat(list(step))) for step in itertools.zip_longest(*nodes, fillvalue=[])]
    expected = [order[begin : begin + 2 * world_size] for begin in range(0, kept, 2 * world_size)]
    assert steps == [sorted(stretch) for stretch in expected]
    for rank in range(world_size):
        dataset = ShardDataset(folder, node=(rank, world_size), **options)
        assert len(dataset) == len(flat(nodes[rank]))


@given(st.integers(0, 60), st.integers(0, 60), st.integers(1, 7), st.integers(1, 6), st.booleans())
def test_steps_cover_what_is_left_once(samples: int, start: int, batch: int, world: int, drop_last: bool) -> None:
    start = min(start, samples)
    shares = [
        list(global_steps(samples, start=start, batch_size=batch, rank=rank, world_size=world, drop_last=drop_last))
        for rank in range(world)
    ]
    taken = sorted(row for share in shares for begin, end in share for row in range(begin, end))
    rest = (samples - start) % (batch * world)
    assert taken == list(range(start, samples - rest if drop_last else samples))
    assert all(0 < end - begin <= batch for share in shares for begin, end in share)
    counts = {len(share) for share in shares}
    assert len(counts) == 1 or (rest < world and max(counts) - min(counts) == 1)
    if drop_last:
        assert len(counts) == 1


# Resume


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_loader_resumes_after_any_batch(folder: Path, workers: int) -> None:
    options: dict[str, Any] = {"seed": 7, "batch_size": 4}
    reference = batches_of(folder, epochs=2, **options)
    for cut in (1, 5, 6, 8):
        loader = ShardDataset(folder, **options).loader(num_workers=workers, collate_fn=keys_of)
        seen: list[list[str]] = []
        while len(seen) < cut:
            for batch in loader:
                seen.append(batch)
                if len(seen) == cut:
                    break
        state = json.loads(json.dumps(loader.state_dict()))
        assert (state["epoch"], state["consumed"]) == {1: (0, 4), 5: (0, 20), 6: (1, 0), 8: (1, 8)}[cut]
        resumed = ShardDataset(folder, **options).loader(num_workers=(workers + 1) % 3, collate_fn=keys_of)
        resumed.load_state_dict(state)
        if resumed.epoch == 0:
            assert len(resumed) == 6 - cut
            seen += list(resumed)
        seen += list(resumed)
        assert seen == reference


def test_a_state_may_be_loaded_by_another_number_of_nodes(folder: Path) -> None:
    order = flat(batches_of(folder, seed=7))
    loaders = [ShardDataset(folder, seed=7, batch_size=2, node=(r, 2)).loader(collate_fn=keys_of) for r in range(2)]
    before = [next(iter(loader)) for loader in loaders]
    states = [loader.state_dict() for loader in loaders]
    assert states[0] == states[1]
    rest: list[str] = []
    for rank in range(3):
        loader = ShardDataset(folder, seed=7, batch_size=3, node=(rank, 3)).loader(collate_fn=keys_of)
        loader.load_state_dict(states[0])
        rest += flat(list(loader))
    assert sorted(flat(before)) == sorted(order[:4])
    assert sorted(rest) == sorted(order[4:])


def test_a_loader_goes_on_after_a_break(folder: Path) -> None:
    loader = ShardDataset(folder, seed=7, batch_size=4).loader(collate_fn=keys_of)
    seen = [next(iter(loader)), *loader]
    assert (seen, loader.epoch) == (batches_of(folder, seed=7, batch_size=4), 1)


@pytest.mark.parametrize(("batch_size", "drop_last"), [(4, False), (5, True), (23, False)])
def test_a_break_on_the_last_batch_ends_the_epoch(folder: Path, batch_size: int, drop_last: bool) -> None:
    options: dict[str, Any] = {"seed": 7, "batch_size": batch_size, "drop_last": drop_last}
    loader = ShardDataset(folder, **options).loader(collate_fn=keys_of)
    batches = batches_of(folder, epochs=2, **options)
    first, second = batches[: len(loader)], batches[len(loader) :]
    assert list(itertools.islice(loader, len(first))) == first
    assert len(loader) == len(second)
    assert loader.state_dict()["epoch"] == 1
    assert list(loader) == second


def test_epochs_without_a_batch_are_counted(folder: Path) -> None:
    loader = ShardDataset(folder, batch_size=SAMPLES + 1, drop_last=True).loader()
    assert [list(loader), list(loader)] == [[], []]
    assert loader.state_dict()["epoch"] == 2


def test_the_length_may_be_asked_while_workers_start(folder: Path) -> None:
    """It wrote the place where late workers begin: samples were lost, and others came twice."""
    go = multiprocessing.get_context("fork").Event()

    def start_late(worker: int) -> None:
        assert worker == 0 or go.wait(60)

    loader = ShardDataset(folder, seed=7, batch_size=2).loader(
        num_workers=2, collate_fn=keys_of, worker_init_fn=start_late, multiprocessing_context="fork"
    )
    left = len(loader)
    batches = []
    for batch in loader:
        batches.append(batch)
        assert len(loader) == (left - len(batches) or left)
        go.set()
    assert batches == batches_of(folder, seed=7, batch_size=2)


def test_a_state_of_another_order_is_refused(folder: Path) -> None:
    state = ShardDataset(folder, seed=7).loader().state_dict()
    with pytest.raises(ValueError, match="the state has seed 7, this dataset 8"):
        ShardDataset(folder, seed=8).loader().load_state_dict(state)
    some = ShardDataset(DatasetIndex.open(folder, where={"bucket": 2}), seed=7)
    with pytest.raises(ValueError, match="the state has rows 23, this dataset 8"):
        some.loader().load_state_dict(state)
    with pytest.raises(ValueError, match="'batch_size'"):
        some.loader(batch_size=3)
    with pytest.raises(ValueError, match=r"\['in_order'\] are settled by ShardDataset"):
        some.loader(num_workers=2, in_order=False)
    with pytest.raises(ValueError, match="consumed 24 from 0 to 23"):
        ShardDataset(folder).set_epoch(0, 24)


# Decoding


def encoded(image: Image.Image, form: str) -> bytes:
    out = io.BytesIO()
    image.save(out, format=form)
    return out.getvalue()


def test_every_kind_of_image_becomes_rgb() -> None:
    colour = Image.fromarray(decode_image(jpeg(0)))
    for form, mode in [("JPEG", "L"), ("JPEG", "CMYK"), ("PNG", "RGBA"), ("PNG", "P"), ("WEBP", "RGB"), ("GIF", "P")]:
        data = encoded(colour.convert(mode), form)
        pixels = decode_image(data)
        assert (pixels.shape, pixels.dtype, pixels.flags.writeable) == ((24, 32, 3), np.uint8, True)
        with Image.open(io.BytesIO(data)) as image:
            np.testing.assert_array_equal(pixels, np.asarray(image.convert("RGB")))


def test_a_subsampling_without_a_name_is_decoded() -> None:
    data = bytearray(encoded(Image.fromarray(decode_image(jpeg(0))), "JPEG"))
    data[data.index(b"\xff\xc0") + 11] = 0x14
    assert decode_image(bytes(data)).shape == (24, 32, 3)


def test_images_that_cannot_be_decoded_are_named(folder: Path, tmp_path: Path) -> None:
    bomb = bytearray(jpeg(0))
    at = bomb.index(b"\xff\xc0")
    bomb[at + 5 : at + 9] = b"\xff\xdc\xff\xdc"
    with pytest.raises(ValueError, match=r"pixels|limit"):
        decode_image(bytes(bomb))
    with pytest.raises(ValueError, match="101 scans"):
        decode_image(jpeg(0) + b"\xff\xda" * 100)
    for form in ("RGB", "CMYK"):
        data = encoded(Image.fromarray(decode_image(jpeg(0))).resize((400, 300)).convert(form), "JPEG")
        start = data.index(b"\xff\xda") + 100
        with pytest.raises(ValueError, match="no image that can be decoded"):
            decode_image(data[:start] + bytes(400) + data[start + 400 :])  # Pillow decodes it
    write_shard_file(tmp_path / "s.tar", [("cut", {"jpg": jpeg(0)[:300]}), ("none", {"jpg": b"GIF"})])
    dataset = ShardDataset(DatasetIndex.scan(tmp_path))
    for row, key in enumerate(("cut", "none")):
        with pytest.raises(ShardError, match=rf"s\.tar: member {key}\.jpg of \d+ bytes cannot be decoded: no image"):
            dataset[row]


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<f2", "u1", "?", "<c8", "<U3"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_npy_is_read_as_numpy_reads_it(dtype: str, shape: tuple[int, ...]) -> None:
    values = (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 5).astype(dtype)
    for array in (values, np.asfortranarray(values)):
        out = io.BytesIO()
        np.save(out, array)
        read = decode_npy(out.getvalue())
        np.testing.assert_array_equal(read, array)
        assert (read.dtype, read.shape) == (array.dtype, array.shape)


def test_npy_that_is_none_or_holds_objects_is_refused() -> None:
    out = io.BytesIO()
    np.save(out, np.array([{}]), allow_pickle=True)
    with pytest.raises(ValueError, match="objects would need pickle"):
        decode_npy(out.getvalue())
    with pytest.raises(ValueError, match=r"not a \.npy array"):
        decode_npy(b"PK\x03\x04")


# Features


def test_features_are_those_of_the_samples(folder: Path) -> None:
    index = DatasetIndex.open(folder, where={"iid_seed0": "train"})
    values, table = read_features(index, "embedding.npy")
    assert (values.dtype, values.shape) == (np.float32, (len(index), 5))
    assert table["key"].to_pylist() == [sample["__key__"] for sample in ShardDataset(index)]
    np.testing.assert_array_equal(values, np.stack([sample["embedding.npy"] for sample in ShardDataset(index)]))
    shuffled = DatasetIndex(index.url, index.table.take([4, 0, 9]), index.positions[[4, 0, 9]], index.total)
    np.testing.assert_array_equal(read_features(shuffled)[0], values[[4, 0, 9]])


def mixed(folder: Path, arrays: list[np.ndarray], form: int) -> DatasetIndex:
    with tarfile.open(folder / "s.tar", "w", format=form) as tar:
        for row, array in enumerate(arrays):
            out = io.BytesIO()
            np.save(out, array)
            for name, data in ((f"{row}.a.jpg", b"x" * row), (f"{row}.v.npy", out.getvalue())):
                info = tarfile.TarInfo(f"{'é' * 60}/{name}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return DatasetIndex.scan(folder)


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
@pytest.mark.parametrize("second", ["<f4", "<f8"])
def test_features_of_foreign_shards_are_read_one_by_one(tmp_path: Path, form: int, second: str) -> None:
    arrays = [np.full((2, 3), 1, "<f4"), np.full((2, 3), 2, second), np.asfortranarray(np.eye(2, 3, dtype="f4"))]
    values, _ = read_features(mixed(tmp_path, arrays, form), "v.npy")
    np.testing.assert_array_equal(values, np.stack(arrays))


def test_features_that_do_not_stack_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ShardError, match=r"sample 'photo-000' has no member 'x\.npy', it has \['embedding\.npy'"):
        read_features(DatasetIndex.open(folder), "x.npy")
    with pytest.raises(ShardError, match=r"1\.v\.npy has shape \(3,\), others have \(2,\)"):
        read_features(mixed(tmp_path, [np.zeros(2), np.zeros(3)], tarfile.USTAR_FORMAT), "v.npy")


# Broken shards


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:3000])


def overwrite(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[7] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_shard_that_breaks_while_it_is_read_is_named(own_folder: Path, workers: int) -> None:
    cases: list[tuple[Callable[[Path], Any], str]] = [
        (overwrite, r"bucket02-00000\.tar, byte 0: the header's checksum is wrong$"),
        (truncate, r"bucket02-00000\.tar, byte \d+: truncated: the index has \d+ bytes here, found \d+$"),
        (Path.unlink, r"bucket02-00000\.tar: the shard is missing; the index has samples in it$"),
    ]
    broken = own_folder / "bucket02-00000.tar"
    whole = broken.read_bytes()
    for breaking, rule in cases:
        broken.write_bytes(whole)
        loader = ShardDataset(own_folder, batch_size=4).loader(num_workers=workers, collate_fn=keys_of)
        breaking(broken)
        others = set(multiprocessing.active_children())
        with pytest.raises(ShardError, match=rule) as caught:
            list(loader)
        assert "\n" not in str(caught.value)
        assert others >= set(multiprocessing.active_children())


def test_workers_end_where_a_transform_fails(folder: Path) -> None:
    others = set(multiprocessing.active_children())
    loader = ShardDataset(folder, batch_size=4, transform=lambda sample: sample["nothing"]).loader(num_workers=2)
    with pytest.raises(KeyError, match="nothing"):
        list(loader)
    assert others >= set(multiprocessing.active_children())


def test_a_transform_that_fails_here_can_be_looked_into(folder: Path) -> None:
    def broken(sample: dict[str, Any]) -> Any:
        seen = sample["__key__"]
        return sample["nothing"], seen

    with pytest.raises(KeyError, match="nothing") as caught:
        list(ShardDataset(folder, batch_size=4, transform=broken).loader())
    assert caught.traceback[-1].locals["seen"]  # what a debugger shows after the error


def test_a_missing_or_short_shard_is_seen_before_the_first_sample(own_folder: Path) -> None:
    truncate(own_folder / "bucket01-00000.tar")
    (own_folder / "bucket02-00000.tar").unlink()
    index = DatasetIndex.open(own_folder)
    ShardDataset(index.select({"bucket": 3}))
    for reading in (ShardDataset, read_features):
        with pytest.raises(ShardError, match=r"bucket01-00000\.tar, byte 3000: truncated: the index has samples up to"):
            reading(index.select({"bucket": 1}))
        with pytest.raises(ShardError, match=r"bucket02-00000\.tar: the shard is missing; the index has 5 samples in it"):
            reading(index.select({"bucket": 2}))


def test_an_index_of_other_shards_is_noticed(own_folder: Path) -> None:
    one, other = own_folder / "bucket01-00000.tar", own_folder / "bucket02-00000.tar"
    one.write_bytes(other.read_bytes())
    with pytest.raises(ShardError, match=r"byte 0: member 'photo-001\..*' is where the index has sample 'photo-000'"):
        ShardDataset(own_folder)[0]


def loaded_modules() -> Iterator[str]:
    code = "import benchwright.datasets.reader.features, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    yield from done.stdout.split()


def test_index_and_features_need_no_torch() -> None:
    modules = set(loaded_modules())
    assert "benchwright.datasets.reader.index" in modules
    assert "torch" not in modules
