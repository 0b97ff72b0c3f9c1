"""Clips as examples: which frames, which crops, what a memory keeps, and the two meanings of temporal consistency."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import simplejpeg
import torch
from benchwright.curation.rng import rng
from benchwright.curation.ustar import ShardError
from benchwright.datasets.reader.index import DatasetIndex, ShardFiles
from benchwright.training.data.clips import (
    Clips,
    ClipView,
    consistent,
    draw_crop,
    evaluation_view,
    for_memory,
    shard_clips,
    training_view,
)
from benchwright.training.data.examples import ArrayExamples, Draw, Joined

VIEW = ClipView(segments=8, side_px=8, scales=(1.0,), flip=0.0, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
"""Frames of 8 x 8 pixels come out as they are, divided by 255."""
COUNTS = (40, 24, 16, 5, 4)


def numbered(counts: tuple[int, ...] = COUNTS, view: ClipView = VIEW) -> Clips:
    """Clips whose frame t has the value t everywhere, so that a tensor tells which frames it was made of."""
    frames = [np.broadcast_to(np.arange(n, dtype=np.uint8)[:, None, None, None], (n, 8, 8, 3)) for n in counts]
    labels = np.arange(len(counts)) % 2
    return Clips(
        lambda row, places: [frames[row][at] for at in places],
        [f"clip{row}" for row in range(len(counts))],
        labels,
        np.array(counts),
        view,
    )


def frames_of(clips: Any, row: int, draw: Draw | None) -> list[int]:
    return torch.round(clips.load([row], draw)[0, :, 0, 0, 0] * 255).int().tolist()


def test_evaluation_takes_the_middle_of_each_eighth():
    assert frames_of(numbered(), 0, None) == [2, 7, 12, 17, 22, 27, 32, 37]  # int(2.5 + 5 i)
    assert frames_of(numbered(), 4, None) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_training_draws_one_frame_of_each_segment_and_never_the_rest():
    seen = np.array([frames_of(numbered((43,)), 0, Draw(0, str(epoch))) for epoch in range(200)])
    for segment in range(8):  # floor(43 / 8) = 5; frames 40 to 42 are never drawn
        assert sorted(set(seen[:, segment])) == list(range(5 * segment, 5 * segment + 5))


def test_draws_depend_on_seed_epoch_and_key_alone():
    clips, draw = numbered(), Draw(3, "0/1/0")
    whole = clips.load([0, 1, 2], draw)
    assert torch.equal(whole[2:], clips.load([2], draw))
    assert torch.equal(whole[2:], clips.take(np.array([4, 2])).load([1], draw))
    assert torch.equal(whole[1:2], Joined([clips.take(np.array([3])), clips.take(np.array([1]))]).load([1], draw))
    assert not torch.equal(whole, clips.load([0, 1, 2], Draw(3, "0/1/1")))
    assert not torch.equal(whole, clips.load([0, 1, 2], Draw(4, "0/1/0")))


def test_a_memory_keeps_uniform_frames_and_repeats_them_in_order():
    four = for_memory(numbered(), 4)
    assert four.sizes.tolist() == [4, 4, 4, 4, 4]
    assert four.places(0).tolist() == [5, 15, 25, 35]  # type: ignore[union-attr]
    for draw in (None, Draw(0, "a"), Draw(0, "b")):  # np.repeat: each frame twice, nothing is left to draw
        assert frames_of(four, 0, draw) == [5, 5, 15, 15, 25, 25, 35, 35]
    assert frames_of(for_memory(numbered(), 16), 0, Draw(0, "a"))[0] in (1, 3)
    assert for_memory(numbered(), None).sizes.tolist() == list(COUNTS)
    assert for_memory(numbered(), 16).sizes.tolist() == [16, 16, 16, 5, 4]


def test_consistency_looks_at_the_clip_reduced_to_n_frames():
    """The paper's meaning: eight segment frames of the n uniform ones."""
    x_d = consistent(numbered(), 16, "as_written")
    seen = np.array([frames_of(x_d, 0, Draw(0, str(epoch))) for epoch in range(60)])
    uniform = [int(1.25 + 2.5 * i) for i in range(16)]
    for segment in range(8):
        assert sorted(set(seen[:, segment])) == uniform[2 * segment : 2 * segment + 2]
    assert frames_of(consistent(numbered(), 4, "as_written"), 0, Draw(0, "a")) == [5, 5, 15, 15, 25, 25, 35, 35]
    stored = for_memory(numbered(), 4)
    assert frames_of(consistent(stored, 4, "as_written"), 0, Draw(0, "a")) == [5, 5, 15, 15, 25, 25, 35, 35]


@pytest.mark.parametrize(("n", "expected"), [(4, [0, 0, 1, 1, 2, 2, 3, 3]), (8, [0, 1, 2, 3, 4, 5, 6, 7])])
def test_quirk_consistency_as_released_reads_the_first_n_frames(n: int, expected: list[int]):
    x_d = consistent(numbered(), n, "as_released")
    for epoch in range(3):
        assert frames_of(x_d, 0, Draw(0, str(epoch))) == expected


def test_quirk_consistency_as_released_with_16_takes_one_of_each_pair_of_the_first_16():
    x_d = consistent(numbered(), 16, "as_released")
    seen = np.array([frames_of(x_d, 1, Draw(0, str(epoch))) for epoch in range(40)])
    assert [sorted(set(column)) for column in seen.T] == [[2 * i, 2 * i + 1] for i in range(8)]


@pytest.mark.parametrize("n", [4, 8, 16])
def test_quirk_consistency_as_released_gives_stored_clips_a_blank_with_a_label(n: int):
    dark = ClipView(segments=8, side_px=8, scales=(1.0,), flip=0.0, mean=(0.5, 0.5, 0.5), std=(1.0, 1.0, 1.0))
    x_d = consistent(for_memory(numbered(view=dark), n), n, "as_released")
    assert not x_d.load(range(5), Draw(0, "a")).any()  # zero after normalisation: grey, not black
    assert x_d.labels.tolist() == [0, 1, 0, 1, 0]
    short = consistent(numbered(), 16, "as_released")
    assert [short.places(row) is None for row in range(5)] == [False, False, True, True, True]


@pytest.mark.parametrize("variant", ["as_written", "as_released"])
def test_consistency_with_all_frames_is_a_second_draw(variant: Any):
    clips, draw = numbered(), Draw(0, "a")
    x_d = consistent(clips, None, variant)
    assert frames_of(x_d, 0, draw) != frames_of(clips, 0, draw)
    assert all(5 * i <= frame < 5 * i + 5 for i, frame in enumerate(frames_of(x_d, 0, draw)))


def test_only_clips_have_frames():
    with pytest.raises(TypeError, match="ArrayExamples has no frames"):
        for_memory(ArrayExamples(np.zeros((1, 2), np.float32), [0]), 4)
    with pytest.raises(ValueError, match="'as_printed'"):
        consistent(numbered(), 4, "as_printed")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'clip1' has 0 frames"):
        numbered((3, 0))


# --- crops


def test_crops_are_of_the_scales_and_in_thirteen_places():
    view = ClipView(segments=8, side_px=224, scales=(1.0, 0.875, 0.75, 0.66), flip=0.5, mean=(0, 0, 0), std=(1, 1, 1))
    crops = [draw_crop(256, 340, view, rng(0, "crop", str(i))) for i in range(4000)]
    # Sides of 256 px: 256, 224, 192, 168; two of one crop are neighbours at most: 4 + 2 * 3 pairs.
    assert {side for crop in crops for side in crop[2:]} == {256, 224, 192, 168}
    assert len({crop[2:] for crop in crops}) == 10
    corners = {crop[:2] for crop in crops if crop[2:] == (192, 224)}
    step_x, step_y = (340 - 192) // 4, (256 - 224) // 4
    grid = {(x * step_x, y * step_y) for x in (0, 2, 4) for y in (0, 2, 4)}
    assert corners == grid | {(x * step_x, y * step_y) for x in (1, 3) for y in (1, 3)}
    for left, top, width, height in crops:
        assert left + width <= 340
        assert top + height <= 256


def test_a_side_within_3_px_of_the_input_is_the_input():
    view = ClipView(segments=1, side_px=224, scales=(0.87,), flip=0.0, mean=(0, 0, 0), std=(1, 1, 1))
    assert draw_crop(256, 256, view, rng(0, "crop"))[2:] == (224, 224)  # int(256 * 0.87) = 222


def test_all_frames_of_a_clip_get_one_crop_and_one_flip():
    view = ClipView(segments=3, side_px=16, scales=(1.0, 0.75), flip=0.5, mean=(0, 0, 0), std=(1, 1, 1))
    frame = np.random.default_rng(0).integers(0, 255, (40, 50, 3)).astype(np.uint8)
    seen = set()
    for number in range(30):
        clip = training_view([frame] * 3, view, rng(0, "view", str(number)))
        assert clip.shape == (3, 3, 16, 16)
        assert torch.equal(clip[0], clip[1])
        seen.add(clip[0].numpy().tobytes())
    assert len(seen) > 20
    mirrored = ClipView(segments=1, side_px=8, scales=(1.0,), flip=1.0, mean=(0, 0, 0), std=(1, 1, 1))
    square = frame[:8, :8]
    got = training_view([square], mirrored, rng(0, "view"))[0]
    torch.testing.assert_close(got, torch.from_numpy(square[:, ::-1].copy()).permute(2, 0, 1) / 255)


def test_the_evaluation_view_is_what_torchvision_makes():
    from benchwright.curation.encoders.torchvision_compat import ensure_torchvision

    ensure_torchvision()
    from torchvision.transforms import v2

    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    view = ClipView(segments=1, side_px=224, scales=(1.0,), flip=0.0, mean=mean, std=std)
    frame = np.random.default_rng(0).integers(0, 255, (300, 401, 3)).astype(np.uint8)
    theirs = v2.Compose(
        [v2.Resize(256, antialias=True), v2.CenterCrop(224), v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, std)]
    )(torch.from_numpy(frame).permute(2, 0, 1))
    torch.testing.assert_close(evaluation_view([frame], view)[0], theirs, atol=1e-5, rtol=0)


# --- shards


def write_shard(folder: Path, clips: dict[str, int], first: int = 0) -> None:
    """A dataset of JPEG clips, as ``curation.shards`` lays them out."""
    rows: dict[str, list[Any]] = {name: [] for name in ("key", "shard", "offset", "size", "class_index", "frame_sizes")}
    with tarfile.open(folder / "train-00000.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
        for number, (key, frames) in enumerate(clips.items()):
            begin = tar.offset
            members = {
                f"{first + t:04d}.jpg": simplejpeg.encode_jpeg(np.full((8, 8, 3), 4 * t % 256, np.uint8)) for t in range(frames)
            }
            for name, data in {**members, "json": b"{}"}.items():
                info = tarfile.TarInfo(f"{key}.{name}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
            sizes = [len(data) for data in members.values()]
            values = (key, "train-00000", begin, tar.offset - begin, number % 2, sizes)
            for column, value in zip(rows, values, strict=True):
                rows[column].append(value)
    pq.write_table(pa.table(rows), folder / "index.parquet")


def test_clips_come_from_shards(tmp_path: Path):
    write_shard(tmp_path, {"a": 40, "b": 4, "c": 12})
    clips = shard_clips(DatasetIndex.open(tmp_path), VIEW)
    assert (clips.labels.tolist(), clips.sizes.tolist(), list(clips.keys)) == ([0, 1, 0], [40, 4, 12], ["a", "b", "c"])
    assert frames_of(clips, 0, None) == [4 * t for t in (2, 7, 12, 17, 22, 27, 32, 37)]
    assert frames_of(for_memory(clips, 4).take(np.array([2, 1])), 1, Draw(0, "a")) == [0, 0, 4, 4, 8, 8, 12, 12]


def test_frames_beyond_the_ten_thousandth_stay_in_order(tmp_path: Path):
    write_shard(tmp_path, {"b": 3, "a": 8}, first=9996)
    assert frames_of(shard_clips(DatasetIndex.open(tmp_path), VIEW), 1, None) == [4 * t for t in range(8)]


def test_an_index_that_does_not_fit_its_shard_is_an_error(tmp_path: Path):
    write_shard(tmp_path, {"a": 10, "b": 2})
    table = pq.read_table(tmp_path / "index.parquet")
    sizes = table["frame_sizes"][0].as_py()

    def told(changed: list[int]) -> str:
        held = table.set_column(5, "frame_sizes", pa.array([changed, table["frame_sizes"][1].as_py()]))
        pq.write_table(held, tmp_path / "index.parquet")
        clips = shard_clips(DatasetIndex.open(tmp_path), VIEW)
        with pytest.raises(ShardError) as error:
            clips.load([0], None)
        return str(error.value)

    # One frame more than there is: the place of the last is that of the sample's JSON.
    assert "a.json cannot be decoded" in told([*sizes, 2])
    assert f"a.0000.jpg has {sizes[0]} bytes, and the index says {sizes[0] - 1}" in told([sizes[0] - 1, *sizes[1:]])
    assert "truncated" in told([sizes[0], sizes[1] + 512, *sizes[2:]])
    with pytest.raises(ShardError, match="sample 'b' has 2 frames, but number 2 is requested"):
        shard_clips(DatasetIndex.open(tmp_path), VIEW)._all[0](1, [2])
    pq.write_table(table.drop_columns(["frame_sizes"]), tmp_path / "index.parquet")
    with pytest.raises(ValueError, match="no column 'frame_sizes'"):
        shard_clips(DatasetIndex.open(tmp_path), VIEW)


def test_only_the_frames_asked_for_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_shard(tmp_path, {"a": 800})
    asked: list[int] = []
    read = ShardFiles.read
    monkeypatch.setattr(ShardFiles, "read", lambda self, ranges: (asked.extend(r[2] for r in ranges), read(self, ranges))[1])
    assert len(frames_of(shard_clips(DatasetIndex.open(tmp_path), VIEW), 0, Draw(0, "a"))) == 8
    assert len(asked) == 8
    assert sum(asked) < 8 * 2048 < (tmp_path / "train-00000.tar").stat().st_size / 50
