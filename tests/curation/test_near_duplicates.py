"""Near-duplicates: hashes against those of imagehash, pairs of hashes against all pairs, and which rows stay."""

from __future__ import annotations

import io
import itertools
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from benchwright.curation.flow import Flow, source, step
from benchwright.curation.png import stored_png
from benchwright.curation.rows import Blob
from benchwright.curation.run import run
from benchwright.curation.stage_rows import PartInfo, Rows
from benchwright.curation.stages import near_duplicates, near_hashes, spill
from benchwright.curation.stages.near_duplicates import (
    DuplicateRule,
    NearDuplicate,
    kept_key,
    near_duplicates_by_hash,
    near_duplicates_by_vector,
)
from benchwright.curation.stages.near_hashes import hash_pairs
from benchwright.curation.stages.picture_hash import FramedClip, Picture, hash_clip, hash_picture, picture_hash
from benchwright.curation.store import Store
from PIL import Image, ImageEnhance
from scipy.sparse.csgraph import connected_components

PHOTOS = Path(__file__).parents[3] / "shared/data/photos/imagenet_samples"


def photos(count: int) -> list[Path]:
    if not PHOTOS.is_dir():
        pytest.skip("no ../shared/data/photos")
    return sorted(PHOTOS.glob("*.*"))[:count]


def hashed(data: bytes, key: str = "a") -> str:
    found = hash_picture(Picture(key, Blob(data))).phash
    assert found is not None
    return found


def saved(picture: Image.Image, kind: str = "JPEG", **how: int) -> bytes:
    stream = io.BytesIO()
    picture.convert("RGB").save(stream, kind, **how)
    return stream.getvalue()


# --------------------------------------------------------------------------------------------------------------- hashes


def test_hashes_are_those_of_imagehash() -> None:
    imagehash = pytest.importorskip("imagehash")
    for path in photos(20):
        pixels = np.asarray(Image.open(path).convert("RGB"))
        assert picture_hash(pixels) == str(imagehash.phash(Image.fromarray(pixels))), path.name


def test_copies_of_a_photo_are_near_and_other_photos_are_not() -> None:
    codes = []
    for path in photos(12):
        picture = Image.open(path).convert("RGB")
        small = picture.resize((picture.width // 2, picture.height // 2))
        bright = ImageEnhance.Brightness(picture).enhance(1.2)
        versions = [saved(picture, "PNG"), saved(picture, quality=40), saved(small), saved(bright, "WEBP")]
        codes.append([int(hashed(data), 16) for data in versions])
    for one in codes:
        assert max((one[0] ^ each).bit_count() for each in one) <= 6
    assert min((a[0] ^ b[0]).bit_count() for a, b in itertools.combinations(codes, 2)) > 10


def test_a_picture_of_one_colour_is_near_no_other() -> None:
    grey = [stored_png(np.full((40, 50), level, np.uint8)) for level in (90, 90, 91)]
    hashes = [hash_picture(Picture(str(n), Blob(data))).phash for n, data in enumerate(grey)]
    assert hashes == [None] * 3
    rows = Rows.of(pa.table({"key": ["a", "b", "c"], "phash": pa.array(hashes, pa.string())}))
    (kept, _), *_ = near_duplicates_by_hash(rows, rule=DuplicateRule("keep_first"))
    assert kept["duplicate_group"].to_pylist() == kept["duplicate_similarity"].to_pylist() == [None] * 3


def test_clips_are_hashed_by_frames_that_lie_evenly() -> None:
    draw = np.random.default_rng(0)
    frames = [saved(Image.fromarray(draw.integers(0, 255, (8, 8, 3), np.uint8)).resize((64, 64))) for _ in range(8)]
    row = FramedClip("clip", Blob(b"".join(frames)), [len(frame) for frame in frames])
    assert hash_clip(row, frames=4).phash == "".join(hashed(frames[at]) for at in (1, 3, 5, 7))
    assert len(hash_clip(FramedClip("short", Blob(frames[0]), [len(frames[0])])).phash or "") == 64
    with pytest.raises(ValueError, match="at least one"):
        hash_clip(row, frames=0)


# ---------------------------------------------------------------------------------------------------------------- pairs


@pytest.mark.parametrize("held", [16, 1 << 18])
@pytest.mark.parametrize(("words", "distance"), [(1, 0), (1, 1), (1, 6), (1, 11), (1, 40), (3, 6)])
def test_every_pair_of_near_hashes_is_found(words: int, distance: int, held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_hashes, "_SORTED", held)
    draw = np.random.default_rng(7)
    codes = draw.integers(0, 1 << 63, (160, words)).astype(np.uint64)
    codes[80:] = codes[:80]
    for row in range(80, 160):
        for bit in draw.choice(64, draw.integers(0, 14)):
            codes[row, draw.integers(words)] ^= np.uint64(1 << int(bit))
    codes[-20:] = codes[-20:-19] ^ np.arange(1, 21).astype(np.uint64)[:, None]  # many that are equal in most blocks
    codes = np.unique(codes, axis=0)
    apart = np.bitwise_count(codes[:, None] ^ codes[None]).sum(axis=2)
    wanted = {(a, b) for a, b in np.argwhere(apart <= distance * words).tolist() if a < b}
    found = [
        (min(a, b), max(a, b), near)
        for pairs in hash_pairs(codes, distance)
        for a, b, near in zip(*(column.tolist() for column in pairs), strict=True)
    ]
    assert {(a, b) for a, b, _ in found} == wanted
    assert words > 1 or len(found) == len(wanted)  # each once
    assert all(near == 1 - apart[a, b] / (64 * words) for a, b, near in found)


def clustered(count: int, words: int) -> pa.Table:
    """Rows of equal, of near and of lone hashes, and of none, in groups of many sizes."""
    draw = np.random.default_rng(5)
    codes = draw.integers(0, 1 << 62, (count, words)).astype(np.uint64)
    codes[count // 2 :] = codes[draw.integers(0, count // 4, count - count // 2)]
    codes[count // 2 :, 0] ^= np.uint64(1) << draw.integers(0, 64, count - count // 2).astype(np.uint64)
    codes[draw.integers(0, count, count // 8)] = codes[0]
    codes[-(count // 8) :] = codes[7] ^ np.arange(count // 8, dtype=np.uint64)[:, None]  # equal in most blocks
    hashes = [None if draw.random() < 0.05 else "".join(f"{word:016x}" for word in row) for row in codes.tolist()]
    group = np.minimum(draw.geometric(0.02, count), 60)
    return pa.table(
        {
            "key": [f"{at:05}" for at in draw.permutation(count)],
            "phash": pa.array(hashes, pa.string()),
            "group": pa.array([None if at == 3 else f"group {at}" for at in np.where(group % 2, group, 2)]),
            "pixels": draw.integers(1, 9, count),
        }
    )


def parted(table: pa.Table, size: int) -> Rows:
    parts = {f"{start:05}": table.slice(start, size) for start in range(0, table.num_rows, size)}
    parts["00000a"] = table.slice(0, 0)
    return Rows(Store("."), table.schema, tuple(PartInfo(name, len(part)) for name, part in sorted(parts.items())), parts)


@pytest.mark.parametrize("within", ["", "group", "phash"])
@pytest.mark.parametrize(("words", "distance"), [(1, 0), (1, 6), (2, 5)])
def test_more_hashes_than_fit_in_memory(words: int, distance: int, within: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = clustered(800, words)

    def found(rows: Rows) -> list[list[dict[str, object]]]:
        rule = DuplicateRule("keep_best", within=within)
        sifted = list(near_duplicates_by_hash(rows, max_distance=distance, rule=rule))
        return [pa.concat_tables(tables).to_pylist() for tables in zip(*sifted, strict=True)]

    plain = found(Rows.of(table))
    assert len(plain[1]) > 50
    monkeypatch.setattr(near_hashes, "HELD_HASHES", 60)
    monkeypatch.setattr(near_hashes, "_SORTED", 16)
    monkeypatch.setattr(near_duplicates, "_HELD_PAIRS", 50)
    monkeypatch.setattr(near_duplicates, "_BLOCK_ROWS", 100)
    monkeypatch.setattr(spill, "_BLOCK", 130)
    monkeypatch.setattr(spill, "HELD_BYTES", 400)
    assert found(parted(table, 90)) == plain


@pytest.mark.parametrize("within", ["", "group"])
def test_no_rows_and_no_hashes(within: str) -> None:
    schema = pa.schema([("key", pa.string()), ("phash", pa.string()), ("group", pa.int64())])
    rule = DuplicateRule("keep_first", within=within)
    assert list(near_duplicates_by_hash(Rows(Store("."), schema, ()), rule=rule)) == []
    rows = Rows.of(pa.table({"key": ["a", "b"], "phash": [None, None], "group": [1, 1]}, schema=schema))
    (kept, rejected), *_ = near_duplicates_by_hash(rows, rule=rule)
    assert (kept["key"].to_pylist(), kept["duplicate_group"].to_pylist(), len(rejected)) == (["a", "b"], [None, None], 0)


def test_memory_does_not_grow_with_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_hashes, "HELD_HASHES", 1_000)
    monkeypatch.setattr(near_duplicates, "_BLOCK_ROWS", 1_000)
    monkeypatch.setattr(spill, "_BLOCK", 2_000)
    monkeypatch.setattr(spill, "HELD_BYTES", 1_000)
    draw, most = np.random.default_rng(2), list[int]()

    def pieces(count: int) -> Iterator[list[np.ndarray]]:
        for start in range(0, count, 1_000):
            yield [draw.integers(0, 1 << 63, 1_000).astype(np.uint64), np.arange(start, start + 1_000, dtype=np.uint32)]

    for count in (10_000, 30_000):
        tracemalloc.start()
        assert not any(len(pairs.left) for pairs in near_hashes.numbered_hash_pairs(pieces(count), count, 2))
        most.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert most[1] - most[0] < 20_000 * 12 / 2


# --------------------------------------------------------------------------------------------------------------- groups


def table(**columns: list[object]) -> Rows:
    return Rows.of(pa.table(columns))


HASHES = ["0" * 16, "0" * 15 + "f", "0" * 14 + "ff", "f" * 16, "f" * 15 + "e"]
"""The first three are a chain: 4 bits from one to the next, 8 from end to end."""


def sift(rows: Rows, keep: DuplicateRule) -> tuple[list[str], dict[str, str]]:
    (kept, rejected), *_ = near_duplicates_by_hash(rows, max_distance=4, rule=keep)
    assert set(rejected["reason"].to_pylist()) <= {"near_duplicate"}
    details = rejected["detail"].to_pylist()
    return kept["key"].to_pylist(), dict(zip(rejected["key"].to_pylist(), map(kept_key, details), strict=True))


def test_groups_are_connected_and_named_by_their_smallest_key() -> None:
    for order in itertools.permutations(range(5)):
        rows = table(key=["cbaed"[at] for at in order], phash=[HASHES[at] for at in order])
        (kept, rejected), *_ = near_duplicates_by_hash(rows, max_distance=4)
        found = {row["key"]: (row["duplicate_group"], row["duplicate_similarity"]) for row in kept.to_pylist()}
        near = 1 - 4 / 64
        assert found == {"a": ("a", near), "b": ("a", near), "c": ("a", near), "d": ("d", 63 / 64), "e": ("d", 63 / 64)}
        assert not rejected.num_rows


@pytest.mark.parametrize("words", [1, 2])
def test_groups_of_many_rows_are_those_of_all_pairs(words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_duplicates, "_HELD_PAIRS", 5)  # so that groups grow from groups
    draw = np.random.default_rng(11)
    codes = draw.integers(0, 1 << 62, (40, words)).astype(np.uint64)[draw.integers(0, 40, 200)]
    codes ^= np.uint64(1) << draw.integers(0, 64, codes.shape).astype(np.uint64)
    codes[::7] = codes[0]  # equal ones
    hashes: list[str | None] = ["".join(f"{word:016x}" for word in row) for row in codes.tolist()]
    hashes[3] = hashes[50] = None
    keys = [f"{at:03}" for at in draw.permutation(200)]
    every = pa.table({"key": keys, "phash": pa.array(hashes, pa.string())})
    rows = parted(every, 30)

    apart = np.bitwise_count(codes[:, None] ^ codes[None]).sum(axis=2) / words
    near = (apart <= 3) & ~np.isin(np.arange(200), [3, 50])[:, None] & ~np.isin(np.arange(200), [3, 50])
    label = connected_components(near)[1]
    np.fill_diagonal(near, False)
    linked = near.any(axis=1)
    groups = [min(keys[other] for other in np.flatnonzero(label == label[at])) if linked[at] else None for at in range(200)]
    similarity = [1 - min(apart[at][near[at]]) / 64 if linked[at] else None for at in range(200)]
    kept = pa.concat_tables(each.kept for each in near_duplicates_by_hash(rows, max_distance=3))
    assert 20 < linked.sum() < 198
    assert kept["key"].to_pylist() == keys
    assert kept["duplicate_group"].to_pylist() == groups
    assert kept["duplicate_similarity"].to_pylist() == similarity


def test_which_row_of_a_group_stays() -> None:
    columns = {
        "phash": HASHES,
        "pixels": [4, 9, 9, 1, 2],
        "taken": [3, None, 1, 5, 5],
        "split": ["train", "test", "train", "train", "val"],
    }
    rows = table(key=list("abcde"), **columns)
    assert sift(rows, DuplicateRule("keep_first")) == (["a", "d"], {"b": "a", "c": "a", "e": "d"})
    assert sift(rows, DuplicateRule("keep_first", order_by="taken")) == (["c", "d"], {"a": "c", "b": "c", "e": "d"})
    assert sift(rows, DuplicateRule("keep_best")) == (["b", "e"], {"a": "b", "c": "b", "d": "e"})
    assert sift(rows, DuplicateRule("drop_across_splits", split="split")) == (["b", "d", "e"], {"a": "b", "c": "b"})


def test_only_rows_of_one_value_are_compared() -> None:
    rows = table(key=list("abcde"), phash=HASHES, bucket=[0, 1, 0, 1, 1])
    assert sift(rows, DuplicateRule("keep_first", within="bucket")) == (["a", "b", "c", "d"], {"e": "d"})


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"keep": "keep_one"}, "one of keep_all"),
        ({"keep": "drop_across_splits"}, "give the column of splits"),
    ],
)
def test_wrong_rules_are_told(rule: dict[str, str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        DuplicateRule(**rule)  # type: ignore[arg-type]


def test_wrong_columns_are_told() -> None:
    rows = table(key=["a", "b"], phash=["0" * 16, "0" * 16], split=["train", "train"])
    with pytest.raises(ValueError, match="no column 'pixels': there are key, phash, split"):
        list(near_duplicates_by_hash(rows, rule=DuplicateRule("keep_best")))
    with pytest.raises(ValueError, match="no row has 'test' in column 'split'"):
        list(near_duplicates_by_hash(rows, rule=DuplicateRule("drop_across_splits", split="split")))
    for bad in (["0" * 16, "0" * 32], ["0" * 15] * 2, ["x" * 16] * 2):
        with pytest.raises(ValueError, match="not a column of hashes"):
            list(near_duplicates_by_hash(table(key=["a", "b"], phash=bad)))


# ------------------------------------------------------------------------------------------------------------- in a plan


def drawn(*, count: int) -> list[Picture]:
    draw = np.random.default_rng(1)
    pictures = [Image.fromarray(draw.integers(0, 255, (6, 6, 3), np.uint8)).resize((96, 96)) for _ in range(count)]
    files = [saved(each, quality=90) for each in pictures] + [saved(each.resize((48, 48)), "PNG") for each in pictures]
    return [Picture(f"{at:03}", Blob(data)) for at, data in enumerate(files)]


def plan(rows_per_part: int) -> Flow:
    flow = source("drawn", step(drawn, count=8), rows_per_part=rows_per_part)
    flow = flow.each("hashed", step(hash_picture), rows_per_part=rows_per_part)
    near = step(near_duplicates_by_hash, rule=DuplicateRule("keep_best"))
    return flow.whole("distinct", near, gives=NearDuplicate, max_rejects=None)


def test_parts_do_not_change_what_is_found(tmp_path: Path) -> None:
    one, other = (run(plan(size), str(tmp_path / str(size)), scheduler="sync") for size in (3, 100))
    assert one.result.digest == other.result.digest
    assert one.rows().table(["key"])["key"].to_pylist() == [f"{at:03}" for at in range(8)]
    assert dict(one.result.rejects) == {"near_duplicate": 8}


def test_vectors_of_several_parts(tmp_path: Path) -> None:
    from benchwright.curation.encoders.spec import Colours
    from benchwright.curation.stages.embed import embed_images

    flow = source("drawn", step(drawn, count=8)).each_batch(
        "embedded", step(embed_images, encoder=Colours("colours")), rows_per_part=3
    )
    near = step(near_duplicates_by_vector, min_cosine=0.999, rule=DuplicateRule("keep_first"))
    done = run(flow.whole("distinct", near, gives=NearDuplicate, max_rejects=None), str(tmp_path), scheduler="sync")
    assert dict(done.result.rejects) == {"near_duplicate": 8}
