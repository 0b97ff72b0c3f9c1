"""Folders of frames are videos: listed, counted, cut by time, carried over or scaled, and rejected where they are not."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from benchwright.curation.rows import Reject
from benchwright.curation.video.frame_plans import FramePlan
from benchwright.curation.video.frames import Clip, FrameSettings, unpack_frames
from benchwright.datasets.videos.frame_folders import list_frame_folders, probe_frame_folder, sample_frame_folder
from benchwright.datasets.videos.inventory import VideoFile
from PIL import Image

from .video_rows import taken


def picture(level: int, size: tuple[int, int] = (40, 30), form: str = "JPEG") -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.full((size[1], size[0], 3), level, np.uint8)).save(stream, form, quality=95)
    return stream.getvalue()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """12 frames, numbered from 1 without leading zeros, so that names sort otherwise than numbers; grey level 10 a frame."""
    folder = tmp_path / "frames" / "Surfing" / "v_Surfing_g01_c01"
    folder.mkdir(parents=True)
    for number in range(1, 13):
        (folder / f"frame{number}.jpg").write_bytes(picture(number * 10))
    (folder / "notes.txt").write_text("x")
    return tmp_path / "frames"


VIDEO = "Surfing/v_Surfing_g01_c01"
ALL = FramePlan("all")


def levels(jpegs: list[bytes]) -> list[int]:
    return [round(float(np.asarray(Image.open(io.BytesIO(jpeg))).mean()) / 10) for jpeg in jpegs]


def test_folders_with_frames_are_listed(root: Path) -> None:
    rows, reasons = taken(list_frame_folders(root=str(root)), VideoFile)
    assert rows.select(["key", "stem", "folder"]).to_pylist() == [
        {"key": VIDEO, "stem": "v_Surfing_g01_c01", "folder": "Surfing"}
    ]
    assert reasons == {"not_a_frame": 1}
    probed = probe_frame_folder(Clip("k", VIDEO, None, None), root=str(root), fps=25.0)
    assert (probed.n_frames, probed.width_px, probed.height_px, probed.duration_s) == (12, 40, 30, 12 / 25)


def test_frames_go_by_number_and_bytes_are_carried_over(root: Path) -> None:
    whole = sample_frame_folder(Clip("k", VIDEO, None, None), root=str(root), fps=25.0, plan=ALL)
    jpegs = unpack_frames(whole.frames.read(), whole.frame_sizes)
    assert jpegs == [(root / VIDEO / f"frame{number}.jpg").read_bytes() for number in range(1, 13)]
    cut = sample_frame_folder(Clip("k", VIDEO, 0.1, 0.3), root=str(root), fps=25.0, plan=ALL)  # [round(2.5) : round(7.5)]
    assert cut.frame_index == [2, 3, 4, 5, 6, 7]
    four = sample_frame_folder(Clip("k", VIDEO, None, None), root=str(root), fps=25.0, plan=FramePlan("uniform", 4))
    assert levels(unpack_frames(four.frames.read(), four.frame_sizes)) == [2, 5, 8, 11]


def test_larger_pictures_are_scaled_and_png_becomes_jpeg(root: Path) -> None:
    (root / VIDEO / "frame12.jpg").unlink()
    (root / VIDEO / "frame12.png").write_bytes(picture(120, form="PNG"))
    settings = FrameSettings(short_side_px=15)
    small = sample_frame_folder(
        Clip("k", VIDEO, None, None), root=str(root), fps=25.0, plan=FramePlan("all"), settings=settings
    )
    assert (small.width_px, small.height_px) == (20, 15)
    assert levels(unpack_frames(small.frames.read(), small.frame_sizes)) == list(range(1, 13))


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("frame05.jpg", picture(1), "repeated_frame"),
        ("frame13.jpg", picture(1, (50, 30)), "size_changes"),
        ("frame13.jpg", b"", "empty_file"),
        ("frame13.jpg", picture(1)[:-200], "truncated"),
        ("frame13.jpg", b"no picture", "not_an_image"),
    ],
)
def test_bad_frames_turn_the_clip_away(root: Path, name: str, data: bytes, reason: str) -> None:
    (root / VIDEO / name).write_bytes(data)
    for short_side_px in (15, None):
        settings = FrameSettings(short_side_px=short_side_px)
        with pytest.raises(Reject) as told:
            sample_frame_folder(
                Clip("k", VIDEO, None, None), root=str(root), fps=25.0, plan=FramePlan("all"), settings=settings
            )
        assert told.value.reason == reason


def test_missing_folders_and_short_clips_turn_the_clip_away(root: Path) -> None:
    for video, times, reason in (("Surfing/none", (None, None), "missing_file"), (VIDEO, (0.1, 0.3), "too_few_frames")):
        with pytest.raises(Reject) as told:
            sample_frame_folder(Clip("k", video, *times), root=str(root), fps=25.0, plan=FramePlan("uniform", 8, min_frames=8))
        assert told.value.reason == reason
