"""Frames of awkward videos, exactly those of a full decode; and a reason for every file that gives none."""

from __future__ import annotations

import io
import os
import random
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import av
import cloudpickle
import numpy as np
import pytest
from benchwright.curation.flow import source, step
from benchwright.curation.keys import where
from benchwright.curation.rows import Reject
from benchwright.curation.run import run
from benchwright.curation.video import av1, avc, child, decoders, hevc, nal, tables, work
from benchwright.curation.video import index as index_module
from benchwright.curation.video import packets as packets_module
from benchwright.curation.video.frame_plans import FramePlan
from benchwright.curation.video.frames import (
    Clip,
    frame_members,
    probe_clip,
    sample_frames,
    unpack_frames,
)
from benchwright.curation.video.index import read_index
from benchwright.curation.video.limits import CpuBudget, VideoLimits
from benchwright.curation.video.pixels import RgbConverter, orientation_of, scaled_size
from benchwright.curation.video.work import FrameSettings
from PIL import Image

from tests.curation import odd_videos, test_video_missing
from tests.curation.clips import read_clip

# Worker processes of a test run cannot import the tests: the source's step travels with its task.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

LIMITS = VideoLimits(cpu_limit_s=60)
EIGHT = FramePlan("uniform", n=8)
SMALL = FrameSettings(short_side_px=64, jpeg_quality=90)
FORETOLD = [
    "plain.mp4", "gop12.mp4", "open_gop.mp4", "open_gop_hevc.mp4", "temporal_layers_hevc.mp4", "vp9.webm", "edit_list.mp4",
    "delimiters.mp4", "delimiters_hevc.mp4",
    "vp9_hidden_frames.webm", "variable_rate.mp4", "variable_rate.mkv", "start_offset.mp4", "start_offset.mkv",
    "rotated_90.mp4", "odd_size_444.mp4", "odd_size_420.webm", "fragmented.mp4", "interlaced.mkv", "intra_refresh.mkv",
    "three_frames.mkv", "sound_first.mp4", "av1.mkv", "av1_open_gop.mp4", "av1_hidden_frames.mp4",
]  # fmt: skip
"""Files of which PyAV decodes only what is needed: that it does, and not all, is tested too."""


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> Path:
    pytest.importorskip("imageio_ffmpeg", reason="needs the extra 'dev': it makes the videos")
    folder = tmp_path_factory.mktemp("good")
    odd_videos.make_good(folder)
    return folder


@pytest.fixture(scope="module")
def bad(good, tmp_path_factory) -> dict[Path, str]:
    return odd_videos.make_bad(tmp_path_factory.mktemp("bad"), good)


def full_decode(path: Path) -> list[np.ndarray]:
    """The definition: every frame that PyAV gives of the whole file, as stored."""
    with av.open(str(path)) as container:
        container.streams.video[0].codec_context.thread_count = 1
        container.streams.video[0].codec_context.options = {"flags": "+bitexact"}
        return [stored(frame) for frame in container.decode(video=0)]


def stored(frame: av.VideoFrame) -> np.ndarray:
    return np.concatenate(
        [np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[:, : plane.width].ravel() for plane in frame.planes]
    )


def asked(n: int, draws: random.Random) -> list[list[int]]:
    """Sets of frames to ask for: some of several sizes, the first and the last frame, and all."""
    sizes = [1, 1, 2, 8]
    return [sorted(draws.sample(range(n), min(n, size))) for size in sizes] + [[0], [n - 1], list(range(n))]


def decode(decoder, index, wanted) -> dict[int, np.ndarray]:
    return {at: stored(frame) for at, frame in decoder(index, wanted, budget=CpuBudget(LIMITS))}


def test_every_odd_file_gives_the_frames_of_a_full_decode(good):
    draws, sought = random.Random(0), []
    for path in sorted(good.iterdir()):
        index = read_index(str(path), budget=CpuBudget(LIMITS))
        truth = full_decode(path)
        for wanted in asked(len(truth), draws):
            if index.n_frames != len(truth):
                with pytest.raises(decoders.Miscounted, match=str(len(truth))):
                    decode(decoders.pyav_frames, index, wanted)
                continue
            got = decode(decoders.pyav_frames, index, wanted)
            assert sorted(got) == wanted, path.name
            assert all(np.array_equal(got[at], truth[at]) for at in wanted), (path.name, wanted)
        if not index.sequential:
            sought.append(path.name)
    assert set(sought) >= set(FORETOLD)


def test_a_stream_that_begins_late_changes_nothing(tmp_path):
    path = odd_videos.make_late_stream(tmp_path)
    odd_videos.ffmpeg("-i", path, "-map", "0:v", "-c", "copy", tmp_path / "silent.mkv")
    truth = full_decode(tmp_path / "silent.mkv")
    for _ in range(20):  # PyAV decides by a byte behind a list whether it raises an error
        index = read_index(str(path), budget=CpuBudget(LIMITS))
        assert index.n_frames == len(truth) == 300
        got = decode(decoders.pyav_frames, index, [0, 299])
        assert all(np.array_equal(got[at], truth[at]) for at in (0, 299))
    got = decode(decoders.ffmpeg_frames, index, [0, 299])
    assert all(np.array_equal(got[at], truth[at]) for at in (0, 299))


@pytest.mark.parametrize("name", ["joined.mpg", "joined.mkv"])
def test_times_go_on_in_a_file_joined_from_two(good, name):
    index = read_index(str(good / name), budget=CpuBudget(LIMITS))
    assert index.n_frames == 150
    assert np.allclose(index.times_s, np.arange(151) / 25, atol=0.002)
    assert np.allclose(work.counted(index, budget=CpuBudget(LIMITS)).times_s, index.times_s, atol=0.002)


@pytest.mark.parametrize("decoder", ["pyav", "ffmpeg"])
@pytest.mark.parametrize("size", ["96x64", "108x192"])  # the second has as many bytes as the first part's
def test_pictures_of_another_size_are_told(good, tmp_path, decoder, size):
    odd_videos.lavfi(f"testsrc=size={size}:rate=25:duration=1", *odd_videos.X264, tmp_path / "small.mp4")
    odd_videos.joined_in_turn(tmp_path / "a.mkv", good / "gop12.mp4", tmp_path / "small.mp4")
    with pytest.raises(Reject, match="size_changes"):
        read_clip(Clip("a", "a.mkv", None, None), root=str(tmp_path), plan=EIGHT, settings=FrameSettings(64, 90, decoder))


def test_an_empty_packet_is_not_the_end(good, tmp_path):
    with av.open(str(good / "mjpeg.avi")) as given, av.open(str(tmp_path / "a.nut"), "w") as made:
        copy = made.add_stream_from_template(given.streams.video[0])
        for number, packet in enumerate(each for each in given.demux(video=0) if each.size):
            changed = av.Packet(bytes(packet)) if number != 20 else av.Packet(0)
            changed.pts, changed.dts, changed.time_base, changed.stream = packet.pts, packet.dts, packet.time_base, copy
            made.mux(changed)
    index = read_index(str(tmp_path / "a.nut"), budget=CpuBudget(LIMITS))
    for decoder in (decoders.pyav_frames, decoders.ffmpeg_frames):
        assert sorted(decode(decoder, index, [0, 73])) == [0, 73]
    assert index.n_frames == 74


def test_what_was_opened_is_a_video(good, tmp_path):
    odd_videos.lavfi("testsrc=size=64x36:duration=1", "-f", "apng", tmp_path / "a.apng")
    data = bytearray((tmp_path / "a.apng").read_bytes())
    data[data.index(b"fdAT") + 20] ^= 255
    (tmp_path / "a.apng").write_bytes(data)
    with pytest.raises(Reject, match="corrupt"):
        read_clip(Clip("a", "a.apng", None, None), root=str(tmp_path), plan=EIGHT)


def test_pictures_of_hevc_that_nothing_is_predicted_from_need_no_decoding(good):
    plain = read_index(str(good / "open_gop_hevc.mp4"), budget=CpuBudget(LIMITS))
    layers = read_index(str(good / "temporal_layers_hevc.mp4"), budget=CpuBudget(LIMITS))
    assert 0.3 < plain.spare.mean() < 0.7
    assert 0.3 < layers.spare.mean() < 0.7
    for index in (plain, layers):
        with av.open(index.path) as container:
            kept = [
                packet for packet in container.demux(video=0) if packet.size and packet.pts not in index.packet_pts[index.spare]
            ]
        assert len(kept) == (~index.spare).sum()
        decoder = av.CodecContext.create("hevc", "r")
        with av.open(index.path) as container:
            decoder.extradata = container.streams.video[0].codec_context.extradata
        truth = full_decode(Path(index.path))
        got = {frame.pts: stored(frame) for packet in [*kept, None] for frame in decoder.decode(packet)}
        shown = {int(index.packet_pts[place]): truth[at] for at, place in enumerate(index.places) if not index.spare[place]}
        assert got.keys() == shown.keys()
        assert all(np.array_equal(got[pts], shown[pts]) for pts in got)


def test_frames_of_av1_that_the_wanted_one_does_not_depend_on_need_no_decoding(good, monkeypatch):
    seen = {"all": 0, "needed": 0}
    needed = decoders._needed

    def counted(run, name):
        for each in run:
            seen[name] += 1
            yield each

    monkeypatch.setattr(decoders, "_needed", lambda run, *rest: counted(needed(counted(run, "all"), *rest), "needed"))
    for name in ("av1.mkv", "av1_open_gop.mp4", "av1_hidden_frames.mp4"):
        seen.update(all=0, needed=0)
        found, truth = read_index(str(good / name), budget=CpuBudget(LIMITS)), full_decode(good / name)
        for at in range(len(truth)):
            assert np.array_equal(decode(decoders.pyav_frames, found, [at])[at], truth[at]), (name, at)
        assert seen["needed"] < 0.8 * seen["all"], name
    monkeypatch.setattr(decoders, "_HELD_BYTES", 1000)  # then all are decoded
    assert np.array_equal(decode(decoders.pyav_frames, found, [70])[70], truth[70])


def test_of_av1_what_is_not_read_is_said():
    unit = bytes([0x0A, 0x0B, 0, 0, 0, 0x0C, 0xC4, 0xFF, 0x67, 0x3E, 0xFE, 0x40, 0x10])  # a sequence header of SVT-AV1
    assert av1.Av1Reader(b"").parts(unit) == []
    for data, told in (
        (bytes([0x32, 1, 0x10]), "no sequence header"),
        (unit[:5], "of 5"),
        (unit + bytes([0x22, 1, 0]), "tiles without a frame"),
        (bytes([0x36, 0, 1, 0]), "layers"),
        (unit + unit[:-1] + b"\x11", "another sequence header"),
        (bytes([0x0A, 1, 0x10]), "ended early"),
        (bytes([0x0A, 1, 0x18]), "still picture"),
        (bytes([0x32, 0xFF]), "ended early"),
    ):
        with pytest.raises(nal.NalError, match=told):
            av1.Av1Reader(b"").parts(data)
    with pytest.raises(nal.NalError, match="before the key frame"):
        av1.needed_parts([[av1.FramePart((0,), 1, 0, True)]], {0})


def test_tables_of_mp4_give_the_index_that_its_packets_give(good, tmp_path, monkeypatch):
    odd_videos.make_several_streams(tmp_path)
    paths = [path for folder in (good, tmp_path) for path in sorted(folder.glob("*.mp4"))]
    by_demuxing, demuxed = index_module.by_demuxing, []
    monkeypatch.setattr(index_module, "by_demuxing", lambda *given: demuxed.append(1) or by_demuxing(*given))
    for path in paths:
        demuxed.clear()
        with monkeypatch.context() as patched:  # all at once
            patched.setattr(hevc.HevcReader, "picture", None)
            quick = vars(read_index(str(path), budget=CpuBudget(LIMITS)))
        assert bool(demuxed) == (path.name in ("fragmented.mp4", "mpeg4.mp4")), path.name
        with monkeypatch.context() as patched:
            patched.setattr(index_module, "by_tables", lambda *_: None)
            slow = vars(read_index(str(path), budget=CpuBudget(LIMITS)))
        assert [name for name, value in quick.items() if not np.array_equal(value, slow[name])] == [], path.name


@pytest.mark.parametrize("box", ["mvex", "stsd", "stts", "ctts", "stsz"])
def test_tables_of_mp4_that_do_not_tell_all_are_not_used(good, tmp_path, box):
    data = bytearray((good / "gop12.mp4").read_bytes())
    if box == "mvex":
        data = data.replace(b"udta", b"mvex")
    else:  # how often the first value repeats, or how many there are
        data[data.index(box.encode()) + (15 if box in ("stts", "ctts") else 11)] ^= 1
    (tmp_path / "a.mp4").write_bytes(data)
    with av.open(str(good / "gop12.mp4")) as container:
        stream = container.streams.video[0]
        assert tables.read_samples(str(good / "gop12.mp4"), stream).size.sum() > 10_000
        assert tables.read_samples(str(tmp_path / "a.mp4"), stream) is None


def test_damaged_tables_of_mp4_are_refused_or_fit(good, tmp_path):
    draws, data = random.Random(3), (good / "gop12.mp4").read_bytes()
    with av.open(str(good / "gop12.mp4")) as container:
        stream = container.streams.video[0]
        sizes = [packet.size for packet in container.demux(stream) if packet.size]
        for _ in range(300):
            broken = bytearray(data)
            for at in [draws.randrange(data.index(b"moov") - 4, len(data)) for _ in range(draws.choice([1, 3, 20]))]:
                broken[at] = draws.choice([0, 1, 255])
            (tmp_path / "a.mp4").write_bytes(broken)
            found = tables.read_samples(str(tmp_path / "a.mp4"), stream)
            assert found is None or found.size.tolist() == sizes


def test_a_box_far_larger_than_the_file_is_its_end(good, tmp_path):
    data = (good / "gop12.mp4").read_bytes()
    (tmp_path / "a.mp4").write_bytes(data + b"\0\0\0\1free" + (1 << 62).to_bytes(8))
    assert read_index(str(tmp_path / "a.mp4"), budget=CpuBudget(LIMITS)).n_frames == 75


def test_the_index_of_a_film_is_kept_for_the_next_clip_of_it(good, tmp_path, monkeypatch):
    read = []
    monkeypatch.setattr(work, "read_index", lambda path, **given: (read.append(path), read_index(path, **given))[1])
    monkeypatch.setattr(work, "_kept", {})
    asked = {"limits": LIMITS, "stream": "best", "plan": EIGHT, "settings": SMALL}
    film = tmp_path / "film.mp4"
    film.write_bytes((good / "gop12.mp4").read_bytes())
    clips = [work.sample_file(str(film), cut={"t_start": at, "t_end": at + 1, "key": "a"}, **asked) for at in (0.0, 1.0, 0.0)]
    assert (len(read), clips[0] == clips[2], clips[0] == clips[1]) == (1, True, False)
    film.write_bytes((good / "plain.mp4").read_bytes())
    work.sample_file(str(film), cut={"t_start": None, "t_end": None, "key": "a"}, **asked)
    assert len(read) == 2


def test_of_several_streams_the_best_is_taken_by_both_decoders(good, tmp_path):
    for path, number in odd_videos.make_several_streams(tmp_path).items():
        probed = probe_clip(Clip("a", path.name, None, None), root=str(tmp_path))
        with av.open(str(path)) as container:
            found = container.streams[probed.stream]
            assert (found.type, int(found.disposition) & 0x400) == ("video", 0), path.name
            assert (probed.stream, probed.width_px) == (number, found.width), path.name
            truth = [stored(frame) for frame in container.decode(found)]
        index = read_index(str(path), budget=CpuBudget(LIMITS))
        for decoder in decoders.DECODERS.values():
            got = decode(decoder, index, [0, 7, 20])
            assert all(np.array_equal(got[at], truth[at]) for at in (0, 7, 20)), path.name
        clips = [
            read_clip(Clip("a", path.name, None, None), root=str(tmp_path), plan=EIGHT, settings=FrameSettings(64, 90, name))
            for name in ("pyav", "ffmpeg")
        ]
        assert clips[0] == clips[1]


def test_a_stream_can_be_asked_for_by_its_number(good, tmp_path):
    odd_videos.make_several_streams(tmp_path)
    for name in ("pyav", "ffmpeg"):
        widths = [
            read_clip(
                Clip("a", "small_first.mkv", None, None),
                root=str(tmp_path),
                plan=EIGHT,
                settings=FrameSettings(None, 90, name),
                stream=stream,
            ).width_px
            for stream in (0, 1, "best")
        ]
        assert widths == [192, 384, 384]
    assert probe_clip(Clip("a", "small_first.mkv", None, None), root=str(tmp_path), stream=0).stream == 0
    for name, stream, reason in (
        ("small_first.mkv", 2, "no_video_stream.*number 2 is not moving pictures"),
        ("empty_first.mkv", 0, "no_frames"),
    ):
        with pytest.raises(Reject, match=reason):
            probe_clip(Clip("a", name, None, None), root=str(tmp_path), stream=stream)


def test_only_what_is_needed_is_decoded_where_the_packets_tell(good, monkeypatch):
    def never(*_args, **_kwargs):
        raise AssertionError("decoded from the start")

    monkeypatch.setattr(decoders, "_sequential", never)
    draws = random.Random(1)
    for name in FORETOLD:
        index = read_index(str(good / name), budget=CpuBudget(LIMITS))
        for wanted in asked(index.n_frames, draws):
            assert sorted(decode(decoders.pyav_frames, index, wanted)) == wanted


def test_both_decoders_give_the_same_bytes_for_every_odd_file(good):
    for path in sorted(good.iterdir()):
        row = Clip(path.stem, path.name, None, None)
        by_pyav, by_ffmpeg = (
            read_clip(row, root=str(good), plan=EIGHT, settings=FrameSettings(64, 90, decoder), limits=LIMITS)
            for decoder in ("pyav", "ffmpeg")
        )
        assert by_pyav == by_ffmpeg, path.name


def test_both_decoders_agree_with_many_frames_asked_for(good):
    plan = FramePlan("all")
    row = Clip("a", "variable_rate.mp4", None, None)
    clips = [
        read_clip(row, root=str(good), plan=plan, settings=FrameSettings(32, 90, name), limits=LIMITS)
        for name in ("pyav", "ffmpeg")
    ]
    assert clips[0] == clips[1]
    assert clips[0].frame_index == list(range(55))


def test_every_bad_file_gives_its_reason(bad):
    for path, reason in bad.items():
        for name in ("pyav", "ffmpeg"):
            with pytest.raises(Reject) as told:
                read_clip(
                    Clip("a", path.name, None, None), root=str(path.parent), plan=EIGHT, settings=FrameSettings(64, 90, name)
                )
            assert told.value.reason == reason, (path.name, told.value.detail)
        with pytest.raises(Reject) as told:
            probe_clip(Clip("a", path.name, None, None), root=str(path.parent))
        assert told.value.reason == reason, path.name


def test_probe_says_what_a_file_is(good):
    found = {p.name: probe_clip(Clip(p.stem, p.name, None, None), root=str(good)) for p in sorted(good.iterdir())}
    for name, probed in found.items():
        assert probed.n_frames == len(full_decode(good / name)), name
        assert probed.size_bytes == (good / name).stat().st_size
    plain = found["plain.mp4"]
    assert (plain.codec, plain.width_px, plain.height_px, plain.rotation_deg, plain.fps) == ("h264", 192, 108, 0, 25.0)
    assert plain.duration_s == pytest.approx(3.0)
    assert found["start_offset.mkv"].start_s == pytest.approx(12.34)
    assert found["edit_list.mp4"].n_frames == 52  # its header says 75
    assert found["variable_rate.mp4"].fps == pytest.approx(55 / 2.96, rel=0.02)
    # ffmpeg's -display_rotation turns counterclockwise.
    turned = {name: found[f"rotated_{name}.mp4"] for name in (90, 180, 270)}
    assert {name: probed.rotation_deg for name, probed in turned.items()} == {90: 270, 180: 180, 270: 90}
    assert [(turned[n].width_px, turned[n].height_px) for n in (90, 180, 270)] == [(108, 192), (192, 108), (108, 192)]
    assert (found["av1.mkv"].codec, found["vp9.webm"].codec) == ("av1", "vp9")
    assert (found["odd_size_444.mp4"].width_px, found["odd_size_420.webm"].height_px) == (191, 107)


def middle_frame(path: Path) -> np.ndarray:
    """The middle frame as ours, before it becomes a JPEG."""
    index = read_index(str(path), budget=CpuBudget(LIMITS))
    wanted = [index.n_frames // 2]
    ((_, frame),) = decoders.pyav_frames(index, wanted, budget=CpuBudget(LIMITS))
    return RgbConverter(index, None).rgb(frame, orientation_of(frame)).astype(int)


def test_rotation_is_applied_once(good):
    upright = middle_frame(good / "gop12.mp4")
    # Made with -display_rotation, which turns counterclockwise as np.rot90 does.
    for name, quarters in {"rotated_90.mp4": 1, "rotated_180.mp4": 2, "rotated_270.mp4": 3}.items():
        assert np.array_equal(middle_frame(good / name), np.rot90(upright, quarters)), name
    mirrored = middle_frame(good / "mirrored.mp4")
    assert np.abs(mirrored - as_ffmpeg_shows(good / "mirrored.mp4", 37)).mean() < 4
    assert np.abs(mirrored - np.rot90(upright)).mean() > 20
    jpeg = read_clip(Clip("a", "rotated_90.mp4", None, None), root=str(good), plan=FramePlan("uniform", n=1)).jpegs[0]
    assert Image.open(io.BytesIO(jpeg)).size == (108, 192)


def as_ffmpeg_shows(path: Path, number: int) -> np.ndarray:
    """A frame as the ffmpeg command colours and turns it by itself."""
    out = path.parent.parent / f"{path.name}.png"
    odd_videos.ffmpeg("-i", path, "-vf", f"select=eq(n\\,{number})", "-frames:v", "1", "-pix_fmt", "rgb24", out)
    return np.asarray(Image.open(out)).astype(int)


@pytest.mark.parametrize("name", ["plain.mp4", "bt709_full_range.mp4", "ten_bits.mkv", "rgb.avi", "grey.mp4", "mjpeg.avi"])
def test_colours_are_those_that_ffmpeg_gives(good, name):
    # Not equal where chroma is halved: it is interpolated otherwise. A wrong matrix or range is more than ten levels away.
    middle = 12 if name in ("rgb.avi", "ten_bits.mkv") else 37
    assert np.abs(middle_frame(good / name) - as_ffmpeg_shows(good / name, middle)).mean() < 3


def test_frames_are_scaled_to_the_short_side_and_never_up():
    assert scaled_size(640, 360, 224) == (398, 224)
    assert scaled_size(360, 640, 224) == (224, 398)
    assert scaled_size(320, 240, 256) == (320, 240)
    assert scaled_size(191, 107, None) == (191, 107)
    assert scaled_size(2, 160, 1) == (1, 80)


def test_a_segment_and_a_clock_choose_the_frames_they_say(good):
    row = Clip("a", "plain.mp4", 1.0, 2.0)
    all_of_it = read_clip(row, root=str(good), plan=FramePlan("all"), settings=SMALL)
    assert all_of_it.frame_index == list(range(25, 50))
    assert all_of_it.frame_time_s == pytest.approx([index / 25 for index in range(25, 50)])
    eight = read_clip(row, root=str(good), plan=EIGHT, settings=SMALL)
    assert eight.frame_index == [26, 29, 32, 35, 39, 42, 45, 48]  # 25 + int(25/16 + 25/8 * i)
    assert eight.jpegs == [all_of_it.jpegs[index - 25] for index in eight.frame_index]
    slow = read_clip(row, root=str(good), plan=FramePlan("all", fps=5), settings=SMALL)
    assert slow.frame_index == [25, 30, 35, 40, 45]
    repeated = read_clip(Clip("a", "one_frame.mp4", None, None), root=str(good), plan=EIGHT, settings=SMALL)
    assert repeated.jpegs == [repeated.jpegs[0]] * 8
    with pytest.raises(Reject, match="too_few_frames"):
        read_clip(Clip("a", "three_frames.mkv", None, None), root=str(good), plan=FramePlan("uniform", n=8, min_frames=8))


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (VideoLimits(max_pixels=192 * 108 - 1), "too_many_pixels"),
        (VideoLimits(max_frames=74), "too_many_frames"),
        (VideoLimits(max_duration_s=2.9), "too_long"),
    ],
)
def test_what_is_over_a_limit_is_turned_away(good, limits, reason):
    for decoder in ("pyav", "ffmpeg"):
        settings = FrameSettings(64, 90, decoder)
        with pytest.raises(Reject) as told:
            read_clip(Clip("a", "plain.mp4", None, None), root=str(good), plan=EIGHT, settings=settings, limits=limits)
        assert told.value.reason == reason
    with pytest.raises(Reject, match=reason):
        probe_clip(Clip("a", "plain.mp4", None, None), root=str(good), limits=limits)


@pytest.fixture(scope="module")
def long(tmp_path_factory) -> Path:
    """The folder of ``long.mp4``: long enough for the kernel's clock of a process with a limit, which may go by 10 ms."""
    folder = tmp_path_factory.mktemp("long")
    odd_videos.lavfi("testsrc2=size=320x240:rate=25:duration=40", *odd_videos.X264, folder / "long.mp4")
    return folder


@pytest.mark.parametrize("decoder", ["pyav", "ffmpeg"])
def test_what_takes_more_processor_time_than_it_may_is_turned_away(long, decoder):
    settings, limits = FrameSettings(64, 90, decoder), VideoLimits(cpu_limit_s=1e-6)
    for _ in range(3):
        with pytest.raises(Reject, match="timed_out"):
            read_clip(Clip("a", "long.mp4", None, None), root=str(long), plan=EIGHT, settings=settings, limits=limits)


def test_a_path_cannot_leave_the_folder(good, tmp_path):
    (tmp_path / "link.mp4").symlink_to(good / "plain.mp4")
    os.mkfifo(tmp_path / "pipe.mp4")
    cases = {
        "../good/plain.mp4": "outside_folder",
        "/etc/passwd": "outside_folder",
        "link.mp4": "outside_folder",
        "pipe.mp4": "not_a_file",
        "none.mp4": "missing_file",
    }
    for name, reason in cases.items():
        with pytest.raises(Reject, match=reason):
            probe_clip(Clip("a", name, None, None), root=str(tmp_path))


def damaged(data: bytes, draws: random.Random) -> bytes:
    kind, out = draws.randrange(4), bytearray(data)
    if kind == 0:
        return data[: draws.randrange(len(data))]
    if kind == 1:
        at = draws.randrange(len(data))
        return data[:at] + data[draws.randrange(len(data)) :]
    for _ in range(draws.choice([1, 10, 300])):
        near = draws.choice([len(data), min(len(data), 1500)])
        at = draws.randrange(near) if kind == 2 else len(data) - 1 - draws.randrange(near)
        out[at] ^= 1 << draws.randrange(8)
    return bytes(out)


def test_damaged_files_give_frames_or_a_reason_in_time(good, tmp_path):
    draws = random.Random(5)
    files = [path for path in sorted(good.iterdir()) if path.stat().st_size < 400_000]
    limits, reasons = VideoLimits(cpu_limit_s=120), list[str]()
    for number in range(60):
        path = files[number % len(files)]
        name = f"{number}{path.suffix}"
        (tmp_path / name).write_bytes(damaged(path.read_bytes(), draws))
        settings = FrameSettings(64, 90, "ffmpeg" if number % 5 == 4 else "pyav")
        reason = ""
        try:
            read_clip(Clip("a", name, None, None), root=str(tmp_path), plan=EIGHT, settings=settings, limits=limits)
        except Reject as told:
            reason = told.reason
        reasons.append(reason)
        assert reason not in ("timed_out", "decoder_died"), (path.name, number)
    assert len(set(reasons)) > 3


def test_a_child_is_replaced_before_it_grows(good, monkeypatch):
    monkeypatch.setattr(child, "_QUESTIONS", 2)
    child._idle.end()
    row, pids = Clip("a", "one_frame.mp4", None, None), []
    for _ in range(4):
        assert len(read_clip(row, root=str(good), plan=EIGHT).jpegs) == 8
        pids.append([held._process.pid for held in child._idle._children])
    assert pids[1] == pids[3] == []
    assert len(pids[0]) == len(pids[2]) == 1
    assert pids[0] != pids[2]


def list_clips(*, names: list[str]) -> list[Clip]:
    return [Clip(name.partition(".")[0], name, None, None) for name in names]


def plan(good: Path, decoder: str):
    names = ["plain.mp4", "bframes.avi", "three_frames.mkv", "rotated_90.mp4"]
    settings = FrameSettings(64, 90, decoder)
    sampled = step(sample_frames, root=where(good), plan=FramePlan("segments", n=4, seed=1, min_frames=4), settings=settings)
    return source("listed", step(list_clips, names=names)).each("sampled", sampled, max_rejects=1, rows_per_part=1)


def test_the_engine_gives_the_same_digest_by_either_decoder(good, tmp_path):
    digests = set()
    for number, (scheduler, decoder) in enumerate([("sync", "pyav"), ("processes", "pyav"), ("threads", "ffmpeg")]):
        result = run(plan(good, decoder), str(tmp_path / str(number)), scheduler=scheduler)
        digests.add(result.result.digest)
        assert (result.result.rows, dict(result.result.rejects)) == (3, {"too_few_frames": 1})
        sizes = result.rows().table(["frame_sizes"])["frame_sizes"].to_pylist()
        for blob, lengths in zip(result.rows().blobs("frames"), sizes, strict=True):
            assert all(Image.open(io.BytesIO(jpeg)).format == "JPEG" for jpeg in unpack_frames(blob.read(), lengths))
    assert len(digests) == 1


def test_frames_become_members_of_a_sample():
    assert list(frame_members([b"a", b"b"])) == ["0000.jpg", "0001.jpg"]
    assert unpack_frames(b"abbccc", [1, 2, 3]) == [b"a", b"bb", b"ccc"]
    with pytest.raises(ValueError, match="add up to 5"):
        unpack_frames(b"abbccc", [1, 2, 2])
    many = list(frame_members([b""] * 10_001))
    assert (many[0], many[-1], many == sorted(many)) == ("00000.jpg", "10000.jpg", True)


@pytest.mark.parametrize("seed", range(20))
def test_the_number_of_a_picture_stands_behind_three_exp_golomb_numbers(seed):
    draw = np.random.default_rng(seed)
    count = int(draw.integers(4, 17))
    number = int(draw.integers(1 << count)) if seed % 2 else 0  # whose zeros need bytes that are no part of it
    before = [format(each + 1, "b") for each in draw.integers(0, [8000, 10, 256]).tolist()]
    digits = "".join("0" * (len(each) - 1) + each for each in before) + format(number, f"0{count}b")
    data = int(digits.ljust(-(-len(digits) // 8) * 8, "0"), 2).to_bytes(-(-len(digits) // 8))
    sent = re.sub(rb"\0\0(?=[\0-\3])", b"\0\0\3", data)
    assert avc._frame_num(sent + b"\xff" * 9, count) == number
    for cut in (b"", b"\0", sent[: len(digits) // 8 - 2]):
        with pytest.raises(nal.NalError, match="ended early"):
            avc._frame_num(cut, count)
    reader = object.__new__(avc.AvcReader)
    reader._length_bytes, reader._frame_num_bits = 4, count
    unit = bytes([draw.choice([0x65, 0x41, 0x01, 0x06])]) + sent + b"\xff" * 20
    packet = len(unit).to_bytes(4) + unit
    head = np.frombuffer(packet[: nal.HEAD], np.uint8)[None]
    found, skips = reader.pictures(head, np.array([len(packet)]), np.array([False]))
    plain = len(digits) <= 64 and max(map(len, before)) <= 8 and unit[0] != 6 and b"\0\0\3" not in packet[5 : nal.HEAD]
    assert (skips[0] == 0, not plain or tuple(found[0]) == reader.picture(memoryview(packet), False)) == (plain, True)


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_packets_read_at_once_are_those_read_one_by_one(codec, tmp_path):
    draws, odd = random.Random(6), set[str]()
    # Lengths of four bytes; of H.264, one sequence parameter set, with four bits for a picture's number, and recovery points.
    extradata = b"\1B\0\x1e\xff\xe1\0\6gB\0\x1e\xfb\x80\1\0" if codec == "h264" else test_video_missing.HEVC
    kinds = [*[1, 5, 5, 6, 9] * 9, 7] if codec == "h264" else [0, 1, 19, 20, 21, 22, 31, 32, 35, 36, 37, 39, 63]
    context = SimpleNamespace(codec=SimpleNamespace(canonical_name=codec), extradata=extradata)

    def unit() -> bytes:
        kind = draws.choice(kinds)
        if codec == "h264":
            body = bytes([0x60 | kind]) + (b"\6\1\xc0\x80" if kind == 6 else b"\xf8" * draws.choice([1, 20, 60]))
        elif kind < 32:
            told = draws.choice([test_video_missing.FIRST_SET, test_video_missing.EXPLICIT])
            body = bytearray(test_video_missing.hevc_slice(kind, draws.randrange(16), *told)[4:])
            body[0], body[1] = body[0] | (draws.random() < 0.1), draws.choice([1, 2, 9])
        else:
            body = bytes([kind << 1, 1]) + b"\xf8" * draws.choice([1, 20, 60])
        body = body[: draws.choice([1, 4]) if draws.random() < 0.02 else None]
        return (len(body) + draws.choice([0] * 40 + [1, -len(body)])).to_bytes(4) + body

    for _ in range(200):
        packets = [b"".join(unit() for _ in range(draws.choice([1, 2, 3, 12]))) for _ in range(draws.choice([1, 5]))]
        size, key = np.array([len(one) for one in packets]), np.array([draws.random() < 0.5 for _ in packets])
        (tmp_path / "a").write_bytes(b"".join(packets))
        slow, quick = (packets_module._Looks(SimpleNamespace(codec_context=context)) for _ in range(2))
        for packet, is_key in zip(packets, key.tolist(), strict=True):
            slow.look(is_key, packet)
        with open(tmp_path / "a", "rb") as file:
            begin = np.cumsum(size) - size
            quick.look_at_all(tables.SampleTables(begin, size, size, size, key, key, 1), file.fileno())
        if codec == "hevc":  # sets of references are numbered in the order in which they are found
            sets = [[each._reader.references[row[5]] for row in each._pictures] for each in (slow, quick)]
            assert sets[0] == sets[1]
        one_by_one, at_once = ([[*row[:5], *row[6:]] for row in each._pictures] for each in (slow, quick))
        assert (one_by_one, slow._odd) == (at_once, quick._odd)
        odd.add(re.sub(r"\d+", "N", quick._odd))
    expected = {"", "packets: no slice", "packets: ended early", "packets: a unit of N bytes at N of N"}
    assert odd == expected | ({"packets: another sequence parameter set"} if codec == "h264" else set())


def test_every_real_clip_gives_the_frames_of_a_full_decode(shared_data):
    draws = random.Random(2)
    counts = {}
    for path in sorted((shared_data / "videos").glob("*/*")):
        index = read_index(str(path), budget=CpuBudget(LIMITS))
        truth = full_decode(path)
        counts[path.name] = len(truth)
        assert index.n_frames == len(truth), path.name
        wanted = sorted(draws.sample(range(len(truth)), 8))
        got = decode(decoders.pyav_frames, index, wanted)
        assert all(np.array_equal(got[at], truth[at]) for at in wanted), path.name
    signs = [count for name, count in counts.items() if name.endswith(".mkv")]
    assert (len(signs), min(signs), max(signs)) == (20, 47, 109)
