"""Files from which pictures are missing, or in which some are damaged: the frames of the intact file, or a reason."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import av
import numpy as np
import pytest
from benchwright.curation.rows import Reject
from benchwright.curation.video import avc, decoders, hevc, nal
from benchwright.curation.video.index import read_index
from benchwright.curation.video.limits import CpuBudget, VideoLimits
from benchwright.curation.video.work import counted

from tests.curation import odd_videos

LIMITS = VideoLimits(cpu_limit_s=60)
SOURCE = "testsrc2=size=96x64:rate=25:duration=1.2,noise=alls=12:allf=t:all_seed=7"
X264 = [*odd_videos.X264, "-g", "12", "-bf", "2"]
X265 = [*odd_videos.X265]
X265_ALONE = "log-level=error:pools=1:frame-threads=1:bframes=4"
KVAZAAR = ["-c:v", "libkvazaar", "-pix_fmt", "yuv420p", "-kvazaar-params"]
INTACT = {
    "closed.mp4": X264,
    "open.mp4": [*X264, "-x264-params", "open-gop=1:b-pyramid=normal:ref=3"],
    "open_matrices.mp4": [*X264, "-profile:v", "high", "-x264-params", "open-gop=1:cqm=jvt:weightp=2"],
    "no_b.mp4": [*X264, "-bf", "0"],
    "intra.mp4": [*X264, "-g", "1", "-bf", "0"],
    "refresh.mkv": [*X264, "-x264-params", "intra-refresh=1:keyint=12"],
    "fields.mkv": [*X264, "-flags", "+ildct+ilme", "-x264-params", "tff=1"],
    "openh264.mp4": ["-c:v", "libopenh264", "-g", "12", "-pix_fmt", "yuv420p"],
    "closed_hevc.mp4": [*X265, f"{X265_ALONE}:keyint=12:open-gop=0"],
    "open_hevc.mp4": [*X265, f"{X265_ALONE}:keyint=12:open-gop=1"],
    "layers_hevc.mp4": [*X265, f"{X265_ALONE}:keyint=24:temporal-layers=3:b-pyramid=1"],
    "deep_hevc.mp4": [*KVAZAAR, "period=16,gop=16,open-gop=0,threads=0,owf=0"],
    "deep_open_hevc.mp4": [*KVAZAAR, "period=16,gop=8,open-gop=1,threads=0,owf=0"],
    "low_delay_hevc.mp4": [*KVAZAAR, "period=16,gop=lp-g4d3t1,threads=0,owf=0"],
}
Pictures = dict[bytes, int]
"""Stored bytes of a frame -> its number in the intact file."""


@pytest.fixture(scope="module")
def intact(tmp_path_factory) -> dict[str, tuple[Path, Pictures]]:
    pytest.importorskip("imageio_ffmpeg", reason="needs the extra 'dev': it makes the videos")
    folder = tmp_path_factory.mktemp("intact")
    for name, options in INTACT.items():
        odd_videos.lavfi(SOURCE, *options, folder / name)
    return {name: (folder / name, {stored(frame): at for at, frame in enumerate(decoded(folder / name))}) for name in INTACT}


@pytest.fixture(scope="module", autouse=True)
def ffmpeg_of_one_file() -> Iterator[None]:
    """The decoder "ffmpeg" runs the command that makes the videos, which begins three times as fast as one of 200 libraries."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoders, "ffmpeg_binary", odd_videos.ffmpeg_binary)
        yield


def decoded(path: Path) -> list[av.VideoFrame]:
    with av.open(str(path)) as container:
        container.streams.video[0].codec_context.thread_count = 1
        return list(container.decode(video=0))


def stored(frame: av.VideoFrame) -> bytes:
    rows = [np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[:, : plane.width] for plane in frame.planes]
    return b"".join(each.tobytes() for each in rows)


def remux(source: Path, to: Path, change: Callable[[int, bytes], bytes]) -> Path:
    """Copy a file; ``change`` gives the bytes of each packet, none if it is left out."""
    with av.open(str(source)) as given, av.open(str(to), "w") as made:
        stream = given.streams.video[0]
        copy = made.add_stream_from_template(stream)
        for number, packet in enumerate(each for each in given.demux(stream) if each.size):
            if data := change(number, bytes(packet)):
                changed = av.Packet(data)
                changed.pts, changed.dts, changed.duration = packet.pts, packet.dts, packet.duration
                changed.time_base, changed.is_keyframe, changed.stream = packet.time_base, packet.is_keyframe, copy
                made.mux(changed)
    return to


def packets_of(path: Path) -> int:
    with av.open(str(path)) as container:
        return sum(packet.size > 0 for packet in container.demux(video=0))


def given(path: Path, *, decoder: str = "pyav", alone: int = 0) -> list[bytes]:
    """All frames of a file, in order, asked for all at once; or each, each third and so on (``alone``) alone."""
    budget = CpuBudget(LIMITS)
    index = read_index(str(path), budget=budget)
    decode = decoders.DECODERS[decoder]
    try:
        wanted = list(range(index.n_frames))
        found = dict(decode(index, wanted, budget=budget))
    except decoders.Miscounted:
        index = counted(index, budget=budget)
        wanted = list(range(index.n_frames))
        found = dict(decode(index, wanted, budget=budget))
    if alone:
        found |= {at: dict(decode(index, [at], budget=budget))[at] for at in wanted[::alone]}
    return [stored(found[at]) for at in wanted]


def check(path: Path, truth: Pictures, **how: object) -> str:
    """The reason for which a file is rejected; else its frames must be frames of the intact file, in their order."""
    try:
        found = given(path, **how)  # type: ignore[arg-type]
    except Reject as reject:
        return reject.reason
    assert all(each in truth for each in found), f"{path.name} {how}: other pictures"
    numbers = [truth[each] for each in found]
    assert numbers == sorted(numbers), path.name
    return ""


@pytest.mark.parametrize("name", INTACT)
def test_intact_files_are_given(intact, name):
    path, truth = intact[name]
    for how in ({}, {"alone": 1}, {"decoder": "ffmpeg"}):
        assert [truth[each] for each in given(path, **how)] == list(range(30)), how


IN_TRANSPORT_STREAMS = ["open.mp4", "fields.mkv", "open_hevc.mp4", "deep_open_hevc.mp4"]


@pytest.mark.parametrize(
    ("name", "suffix"), [*((name, Path(name).suffix) for name in INTACT), *((name, ".ts") for name in IN_TRANSPORT_STREAMS)]
)
def test_a_file_without_one_of_its_packets_gives_its_other_pictures_or_a_reason(intact, name, suffix, tmp_path):
    path, truth = intact[name]
    count, reasons = packets_of(path), list[str]()
    for lost in range(1 if path.suffix == ".mkv" else 0, count):  # a packet without its time is refused by muxers
        damaged = remux(path, tmp_path / f"{lost}{suffix}", lambda at, data, lost=lost: data * (at != lost))
        reasons.append(check(damaged, truth))
        if lost % 6 == 1 and not reasons[-1]:
            assert (check(damaged, truth, alone=1), check(damaged, truth, decoder="ffmpeg")) == ("", "")
    assert set(reasons) <= {"", "missing_pictures", "corrupt"}
    assert ("missing_pictures" in reasons) == (name != "intra.mp4")
    assert reasons.count("") >= (1 if name in ("no_b.mp4", "openh264.mp4", "low_delay_hevc.mp4") else 10)  # nothing needs them


@pytest.mark.parametrize("name", INTACT)
def test_a_file_cut_out_of_a_longer_one_gives_pictures_of_it_or_a_reason(intact, name, tmp_path):
    path, truth = intact[name]
    for begin in range(2, packets_of(path) - 4):
        cut = remux(path, tmp_path / f"{begin}{path.suffix}", lambda at, data, begin=begin: data * (at >= begin))
        reasons = {check(cut, truth), check(cut, truth, decoder="ffmpeg")}
        assert len(reasons) == 1, begin
        assert reasons <= {"", "missing_pictures", "no_frames", "corrupt"}, begin


def key_places(path: Path) -> list[int]:
    with av.open(str(path)) as container:
        return [at for at, packet in enumerate(container.demux(video=0)) if packet.size and packet.is_keyframe]


@pytest.mark.parametrize("name", [name for name in INTACT if name != "refresh.mkv"])
def test_a_file_may_begin_at_any_key_frame(intact, name, tmp_path):
    path, truth = intact[name]
    for begin in key_places(path)[1:]:
        cut = remux(path, tmp_path / f"{begin}{path.suffix}", lambda at, data, begin=begin: data * (at >= begin))
        frames = [truth[each] for each in given(cut)]
        assert frames == [truth[each] for each in given(cut, decoder="ffmpeg")]
        assert len(frames) >= 30 - begin - 7  # without the leading pictures, which need the group before
        assert frames == list(range(frames[0], 30))


@pytest.mark.parametrize("name", ["open.mp4", "open_hevc.mp4", "deep_open_hevc.mp4"])
def test_edit_lists_and_joined_files_are_no_gaps(intact, name, tmp_path):
    path, truth = intact[name]
    odd_videos.ffmpeg("-ss", "0.6", "-i", path, "-c", "copy", tmp_path / "edited.mp4")
    assert check(tmp_path / "edited.mp4", truth) == check(tmp_path / "edited.mp4", truth, alone=1) == ""
    (tmp_path / "list").write_text(f"file '{path}'\n" * 2)
    odd_videos.ffmpeg("-f", "concat", "-safe", "0", "-i", tmp_path / "list", "-c", "copy", tmp_path / "joined.mp4")
    for how in ({}, {"alone": 1}):
        assert [truth[each] for each in given(tmp_path / "joined.mp4", **how)] == [*range(30), *range(30)]


END_OF_SEQUENCE = b"\x48\1"


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize(
    ("suffix", "at_start"), [(".mp4", False), (".mp4", True), (".mkv", False), (".mkv", True), (".ts", False), (".hevc", False)]
)
@pytest.mark.parametrize("name", ["open_hevc.mp4", "deep_open_hevc.mp4"])
def test_leading_pictures_behind_the_end_of_a_sequence_are_left_out(intact, name, suffix, at_start, ends, tmp_path):
    path, truth = intact[name]
    begin = key_places(path)[1]
    joined = tmp_path / f"joined{suffix}"
    unit = len(END_OF_SEQUENCE).to_bytes(4) + END_OF_SEQUENCE if ends else b""
    with av.open(str(path)) as source, av.open(str(joined), "w") as made:
        packets = [packet for packet in source.demux(video=0) if packet.size]
        copy = made.add_stream_from_template(source.streams.video[0])
        last_s, step = max(packet.pts for packet in packets), packets[0].duration
        behind = last_s + step - min(packet.pts for packet in packets[begin:])
        runs = [(0, packet) for packet in packets] + [(behind, packet) for packet in packets[begin:]]
        for place, (delay, packet) in enumerate(runs):
            data = bytes(packet)
            data = data + unit if place == len(packets) - 1 and not at_start else data
            changed = av.Packet(unit + data if place == len(packets) and at_start else data)
            changed.pts, changed.dts, changed.duration = packet.pts + delay, packet.dts + delay, step
            changed.time_base, changed.is_keyframe, changed.stream = packet.time_base, packet.is_keyframe, copy
            made.mux(changed)
    if not ends:
        assert check(joined, truth) == "missing_pictures"
        return
    frames = check_against_full_decode(joined, truth, "pictures may be dropped where a sequence begins")
    first = frames.index(min(frames[20:]), 20)
    assert 22 <= first < 30  # the pictures that are not displayed yet when the second sequence begins are dropped
    assert frames == [*range(first), *range(frames[first], 30)]
    assert begin < frames[first]  # leading pictures are left out


def check_against_full_decode(path: Path, truth: Pictures, sequential: str) -> list[int]:
    """Numbers of the frames of a full decode, which must be what the index leads to."""
    frames = [truth[stored(frame)] for frame in decoded(path)]
    if path.suffix in (".mp4", ".mkv"):
        assert read_index(str(path), budget=CpuBudget(LIMITS)).sequential == sequential
    for how in ({}, {"alone": 3 if sequential else 1}, {"decoder": "ffmpeg"}):  # one that decodes all decodes it for each
        assert [truth[each] for each in given(path, **how)] == frames, how
    return frames


def with_units(source: Path, to: Path, change: Callable[[int, bytearray], None]) -> Path:
    """Copy a file; ``change`` gets the number of each packet, and each unit of it to edit."""

    def changed(number: int, packet: bytes) -> bytes:
        units = [bytearray([first]) + rest for first, rest in nal.units(memoryview(packet), 4)]
        for unit in units:
            change(number, unit)
        return b"".join(len(each).to_bytes(4) + each for each in units)

    return remux(source, to, changed)


def test_leading_pictures_of_a_broken_link_are_left_out(intact, tmp_path):
    path, truth = intact["open_hevc.mp4"]
    link = key_places(path)[1]

    def break_(number: int, unit: bytearray) -> None:
        if number == link and unit[0] >> 1 == hevc.CRA:
            unit[0] = 16 << 1

    broken = with_units(path, tmp_path / "broken.mp4", break_)
    frames = check_against_full_decode(broken, truth, "")
    assert 20 < len(frames) < 30
    assert read_index(str(broken), budget=CpuBudget(LIMITS)).n_frames == len(frames)


def test_pictures_that_an_idr_picture_drops_do_not_count(intact, tmp_path):
    path, truth = intact["closed_hevc.mp4"]

    def drop(number: int, unit: bytearray) -> None:
        if number and unit[0] >> 1 in (19, 20):
            unit[2] |= 0x40

    changed = with_units(path, tmp_path / "dropped.mp4", drop)
    frames = check_against_full_decode(changed, truth, "pictures may be dropped where a sequence begins")
    assert 20 < len(frames) < 30


def test_a_file_without_its_highest_temporal_layer_is_no_gap(intact, tmp_path):
    path, truth = intact["layers_hevc.mp4"]
    lower = remux(path, tmp_path / "lower.mp4", lambda _, data: data * (_layer(data) < 2))
    frames = given(lower)
    assert 12 <= len(frames) < 20
    assert {each in truth for each in frames} == {True}
    assert frames == given(lower, alone=1) == given(lower, decoder="ffmpeg")


def _layer(packet: bytes) -> int:
    """Temporal layer of the first HEVC slice of a packet of units behind their length."""
    return next((body[0] & 7) - 1 for header, body in nal.units(memoryview(packet), 4) if header >> 1 < 32)


def test_the_reason_names_the_packet_the_rule_and_what_to_do(intact, tmp_path):
    for name in ("closed.mp4", "closed_hevc.mp4"):
        path, _ = intact[name]
        damaged = remux(path, tmp_path / name, lambda at, data: data * (at != 1))
        with pytest.raises(Reject) as told:
            given(damaged)
        assert told.value.detail.startswith("packet 1 of 29 needs pictures before it that are not in the file"), name


@pytest.mark.parametrize("name", ["closed.mp4", "open.mp4", "open_matrices.mp4"])
def test_damage_that_the_decoder_conceals_is_told(intact, name, tmp_path):
    path, truth = intact[name]
    told = 0
    for place in range(packets_of(path)):

        def change(at: int, data: bytes, place: int = place) -> bytes:
            return data[: len(data) // 2] + bytes(len(data) - len(data) // 2) if at == place else data

        damaged = remux(path, tmp_path / f"{place}.mp4", change)
        index, reasons = read_index(str(damaged), budget=CpuBudget(LIMITS)), list[str]()
        is_told = any(frame.is_corrupt for frame in decoded(damaged))
        told += is_told
        for at in [*range(0, 30, 4), *range(max(0, place - 3), min(30, place + 3))] if is_told else []:
            try:
                frame = dict(decoders.pyav_frames(index, [at], budget=CpuBudget(LIMITS)))[at]
                assert stored(frame) in truth, (place, at)
            except Reject as reject:
                reasons.append(reject.reason)
        assert set(reasons) <= {"corrupt"}
        if is_told and place % 8 == 0:
            assert check(damaged, truth) == check(damaged, truth, decoder="ffmpeg") == "corrupt"
    assert told > 20


def avc_pictures(*pictures: str) -> np.ndarray:
    """Pictures as ``avc.AvcPicture``, given as I, P (others need it) or B (none do), and the number."""
    return np.array([(each[0] == "I", each[0] == "I", int(each[1:]), each[0] != "B") for each in pictures], dtype=np.int64)


@pytest.mark.parametrize(
    ("pictures", "gaps", "complete"),
    [
        ("I0 P1 B2 B2 P2 I0 P1", [], True),
        ("I0 P1 P2 P15 P0", [3], False),
        ("I0 P1 P1 P2 P2", [], False),  # fields, each in a packet
        ("P7 B8 P8 P9", [], False),  # begins at a recovery point
        ("P7 P9", [1], False),
        ("I0 P2 I0 P1", [1], False),
        ("P15 P0 P1", [], False),
    ],
)
def test_numbers_of_h264_that_leave_some_out_are_gaps(pictures, gaps, complete):
    sps = code((66, 8), (0, 16), 0, 0, 2, 1, (0, 1), 5, 3, (0, 1))
    found, _, told = avc_reader(sps).gaps(avc_pictures(*pictures.split()))
    assert (found.tolist(), told) == (gaps, complete)
    allowed, _, _ = avc_reader(code((66, 8), (0, 16), 0, 0, 2, 1, (1, 1), 5, 3, (0, 1))).gaps(avc_pictures(*pictures.split()))
    assert allowed.tolist() == []


def test_of_h264_without_fields_a_number_that_comes_again_is_a_gap():
    reader = avc_reader(code((66, 8), (0, 16), 0, 0, 2, 1, (0, 1), 5, 3, (1, 1)))
    assert reader.gaps(avc_pictures("I0", "P1", "B2", "P2", "P2", "P3"))[0].tolist() == [4]


def with_numbers(packet: bytes, number: int, *, sets_back: bool) -> bytes:
    """A packet of H.264 with another number, whose picture may set the numbers back to 0."""
    *others, (header, body) = nal.units(memoryview(packet), 4)
    plain = nal.clean(body)
    digits = "".join(format(each, "08b") for each in plain).rstrip("0")[:-1]
    bits = nal.Bits(plain)
    for _ in range(3):
        bits.golomb()
    at = len(plain) * 8 - bits.left
    if header & 31 != 5:
        digits = digits[:at] + format(number % 16, "04b") + digits[at + 4 :]
    if sets_back:
        assert digits[at + 4 : at + 7] == "000"  # no other number of references or order, no operations
        digits = digits[: at + 6] + "1" + golomb(5) + golomb(0) + digits[at + 7 :]
    units = [*(bytes([first]) + rest for first, rest in others), bytes([header]) + from_digits(digits + "1")]
    return b"".join(len(each).to_bytes(4) + each for each in units)


@pytest.fixture(scope="module")
def one_group(intact, tmp_path_factory) -> Path:
    """30 pictures, each predicted from the one before it."""
    path = tmp_path_factory.mktemp("one_group") / "plain.mp4"
    simple = "cabac=0:ref=1:weightp=0:aud=0"
    odd_videos.lavfi(SOURCE, *odd_videos.X264, "-g", "250", "-bf", "0", "-x264-params", simple, path)
    return path


@pytest.mark.parametrize("suffix", [".mp4", ".ts"])
@pytest.mark.parametrize(
    ("resets", "unmarked", "lost", "reported"),
    [
        ([10], None, None, None),
        ([10, 18], None, None, None),
        ([10], 10, None, 11),
        ([10, 18], 18, None, 19),
        ([10, 18], None, 10, 10),
        ([10, 18], None, 11, 11),  # the number behind a picture that sets numbers back is 1
        ([10, 18], None, 14, 14),
        ([10, 18], None, 25, 25),
        ([10, 18], 18, 25, 19),
    ],
)
def test_each_gap_of_h264_needs_a_picture_that_sets_numbers_back(one_group, tmp_path, suffix, resets, unmarked, lost, reported):
    def change(at: int, data: bytes) -> bytes:
        number = at - max((each for each in resets if each < at), default=0)
        return with_numbers(data, number, sets_back=at in resets and at != unmarked) * (at != lost)

    truth = {stored(frame): at for at, frame in enumerate(decoded(one_group))}
    path = remux(one_group, tmp_path / f"changed{suffix}", change)
    if reported is None:
        assert [truth[each] for each in given(path)] == list(range(30))
        assert check(path, truth, alone=1) == check(path, truth, decoder="ffmpeg") == ""
        return
    with pytest.raises(Reject, match=f"^missing_pictures: packet {reported} of {30 - (lost is not None)} ") as told:
        given(path)
    assert told.value.reason == "missing_pictures"


def avc_reader(sps: bytes, *more: bytes) -> avc.AvcReader:
    units = [b"g" + each for each in (sps, *more)]
    sets = b"".join(len(each).to_bytes(2) + each for each in units)
    return avc.AvcReader(bytes([1, 66, 0, 30, 255, 0xE0 | len(units)]) + sets)


def code(*fields: int | tuple[int, int]) -> bytes:
    """Bits of fields, Exp-Golomb numbers or (value, bits), and a stop bit; with emulation prevention."""
    digits = "".join(format(each[0], f"0{each[1]}b")[: each[1]] if isinstance(each, tuple) else golomb(each) for each in fields)
    return from_digits(digits + "1")


def from_digits(digits: str) -> bytes:
    """Bytes of binary digits, with emulation prevention."""
    size = -(-len(digits) // 8)
    data = int(digits.ljust(8 * size, "0"), 2).to_bytes(size)
    return re.sub(rb"\0\0(?=[\0-\3])", b"\0\0\3", data)


def golomb(number: int) -> str:
    digits = format(number + 1, "b")
    return "0" * (len(digits) - 1) + digits


def test_of_h264_every_sequence_parameter_set_is_read():
    lists = [(1, 1), *[0] * 16, (1, 1), 16, *[(0, 1)] * 6]  # 16 equal factors; a list that ends at once; six left out
    high = code((100, 8), (0, 16), 0, 1, 0, 0, (0, 1), (1, 1), *lists, 3, 1, (0, 1), 0, 0, 2, 5, 6, 4, (1, 1), 5, 3, (1, 1))
    assert avc._numbering(high) == (7, True, False)
    assert avc._numbering(code((244, 8), (0, 16), 0, 3, (0, 1), 0, 0, (0, 1), (0, 1), 1, 0, 2, 3, (0, 1), 5, 3, (0, 1))) == (
        5,
        False,
        True,
    )
    reader = avc_reader(code((66, 8), (0, 16), 0, 0, 2, 1, (0, 1), 5, 3, (0, 1)))
    slice_ = b"\0\0\0\5\x65\xb8\0\0\0"
    assert reader.picture(memoryview(slice_), True).instant
    with pytest.raises(nal.NalError, match="another sequence parameter set"):
        reader.picture(memoryview(b"\0\0\0\3gB\0" + slice_), True)
    with pytest.raises(nal.NalError, match="2 different"):
        avc_reader(
            code((66, 8), (0, 16), 0, 0, 2, 1, (0, 1), 5, 3, (0, 1)), code((66, 8), (0, 16), 0, 1, 2, 1, (0, 1), 5, 3, (0, 1))
        )
    for extradata in (b"", b"\1B\0", b"\2" * 9):
        with pytest.raises(nal.NalError, match="no avcC"):
            avc.AvcReader(extradata)


# Two temporal layers, lists of scaling factors, PCM; order of 4 bits; sets -1 and +2, and one predicted from it: -2 and -1.
HEVC_SPS = code(
    (0, 4), (1, 3), (1, 1), (0, 96), (3, 2), (0, 14), (0, 96), 0, 1, 96, 64, (1, 1), 0, 0, 0, 0, 0, 0, 0, (0, 1), 1, 0, 0,
    0, 1, 0, 1, 0, 0, (1, 1), (1, 1), *[(0, 1), 0] * 5, (1, 1), *[0] * 16, *[(0, 1), 0] * 6, (1, 1), *[0] * 65,
    *[(0, 1), 0] * 5, *[(0, 1), 0] * 2, (0, 2), (1, 1), (0, 8), 0, 0, (0, 1),
    2, 1, 1, 0, (1, 1), 1, (1, 1), (1, 1), (1, 1), 0, (1, 1), (0, 1), (0, 1), (1, 1), (0, 1),
)  # fmt: skip
HEVC_PPS = code(0, 0, (0, 1), (1, 1), (2, 3))


def hvcc(*sets: tuple[int, bytes]) -> bytes:
    """A decoder configuration record of parameter sets, given as (type, content)."""
    units = [bytes([kind << 1, 1]) + body for kind, body in sets]
    lists = b"".join(bytes([unit[0] >> 1, 0, 1]) + len(unit).to_bytes(2) + unit for unit in units)
    return bytes([1, *[0] * 20, 3, len(units)]) + lists


HEVC = hvcc((34, HEVC_PPS), (33, HEVC_SPS), (32, b"\0"))


def hevc_slice(kind: int, order: int, *references: int | tuple[int, int], layer: int = 0) -> bytes:
    """A packet with a slice; ``references``: the fields that tell them."""
    access = [(0, 1)] * (kind >= 16)
    told = [] if kind in (19, 20) else [(order, 4), *references]
    body = bytes([kind << 1, layer + 1]) + code((1, 1), *access, 0, (0, 2), 1, (1, 1), *told, (0x5A, 8), *[(0xA5, 8)] * 20)
    return len(body).to_bytes(4) + body


FIRST_SET, SECOND_SET, EXPLICIT = [(1, 1), (0, 1)], [(1, 1), (1, 1)], [(0, 1), (0, 1), 2, 0, 1, (0, 1), 0, (1, 1)]
PREDICTED = [(0, 1), (1, 1), 1, (0, 1), 3, (0, 1), (1, 1), (1, 1), (1, 1)]  # from the first set, 4 further: 6 used, 4 used


def test_of_hevc_every_way_to_tell_references_is_read():
    reader = hevc.HevcReader(HEVC)
    for told, references in ((FIRST_SET, (-1, 2)), (SECOND_SET, (-1, -2)), (EXPLICIT, (-3,)), (PREDICTED, (4, 6))):
        found = reader.picture(memoryview(hevc_slice(1, 9, *told)), False)
        assert (found.order, reader.references[found.references]) == (9, references)
    assert reader.picture(memoryview(hevc_slice(19, 0)), True)[:1] == (True,)
    assert reader.references[reader.picture(memoryview(hevc_slice(21, 3, *FIRST_SET)), True).references] == ()
    behind_start_codes = b"".join(b"\0\0\0\1" + unit for unit in (b"\x42\1" + HEVC_SPS, b"\x44\1" + HEVC_PPS))
    other = hevc.HevcReader(behind_start_codes)
    packet = b"\0\0\0\1" + hevc_slice(1, 9, *SECOND_SET)[4:]
    assert other.references[other.picture(memoryview(packet), False).references] == (-1, -2)


def test_of_hevc_what_is_not_read_is_said():
    for packet, told in (
        (b"\0\0\0\3\2\1\0", "no first slice"),
        (hevc_slice(1, 0)[:7], "a unit of"),
        (b"\0\0\0\3\2\1\x80", "ended early|no parameter set"),
        (b"\0\0\0\1\2", "ended early"),
        (b"\0\0\0\2\x4e\1", "no slice"),
        (b"\0\0\0\3\x44\1" + code(0, 0, (1, 1)), "another parameter set"),
        (hevc_slice(1, 0, (0, 1), (0, 1), 17), "17 above 16"),
        (hevc_slice(1, 0, (0, 1), (1, 1), 2), "no set of references"),
    ):
        with pytest.raises(nal.NalError, match=told):
            hevc.HevcReader(HEVC).picture(memoryview(packet), False)
    with pytest.raises(nal.NalError, match="no parameter set"):
        hevc.HevcReader(hvcc((33, HEVC_SPS))).picture(memoryview(hevc_slice(1, 0, *FIRST_SET)), False)
    for extradata in (b"", b"\1" * 9):
        with pytest.raises(nal.NalError, match="no hvcC"):
            hevc.HevcReader(extradata)


def hevc_gaps(*pictures: tuple[int, int, tuple[int, ...]]) -> list[int]:
    """Gaps among pictures of (type, order, references)."""
    reader = hevc.HevcReader(HEVC)
    rows = [(kind >= 16, 0, 0, kind, order % 16, reader._number(references), 0, 0) for kind, order, references in pictures]
    return reader.gaps(np.array(rows, dtype=np.int64))[0].tolist()


def test_pictures_of_hevc_that_refer_to_absent_ones_are_gaps():
    run = [(19, 0, ()), *[(1, at, (-1,)) for at in range(1, 40)]]  # whose lower bits of the order begin again twice
    assert hevc_gaps(*run) == []
    assert hevc_gaps(*run, *run) == []
    for lost in range(1, 39):
        assert hevc_gaps(*run[:lost], *run[lost + 1 :]) == [lost]
    assert hevc_gaps(*run[:5], *run[1:5]) == [5, 6, 7, 8]  # the first picture of the second run is lost: numbers come twice
    assert hevc_gaps((19, 0, ()), (1, 2, (-2, 1)), (1, 3, (-3,))) == [1]  # it comes only later
    leading = [(9, 6, (-2, 2)), (8, 7, (-1, 1))]
    assert hevc_gaps((21, 8, ()), *leading, (1, 9, (-1,))) == []
    assert hevc_gaps(*run[:5], (21, 8, ()), *leading, (1, 9, (-1,))) == []
    assert hevc_gaps(*run[:4], (21, 8, ()), *leading, (1, 9, (-1,))) == [5]
    assert hevc_gaps(*run[:4], (16, 8, ()), *leading, (1, 9, (-1,))) == []  # a broken link
    assert hevc_gaps((1, 3, ()), (1, 4, (-1,)), (1, 5, (-3,))) == [2]


def test_hevc_headers_read_at_once_are_those_read_one_by_one():
    draws = random.Random(4)
    for _ in range(100):
        told = [FIRST_SET, SECOND_SET, EXPLICIT, PREDICTED]
        packets = [hevc_slice(draws.choice([0, 1, 8, 19, 21]), draws.randrange(16), *draws.choice(told)) for _ in range(20)]
        packets.append(b"\0\0\0\2\x46\1" + packets[0])
        packets.append(packets[0][:3] + bytes([5]) + packets[0][4:9])
        one, all_ = hevc.HevcReader(HEVC), hevc.HevcReader(HEVC)
        heads = np.frombuffer(b"".join(each[: nal.HEAD].ljust(nal.HEAD) for each in packets), np.uint8).reshape(-1, nal.HEAD)
        found, skips = all_.pictures(heads, np.array(list(map(len, packets))), np.ones(len(packets), dtype=bool))
        for packet, row, skip in zip(packets, found.tolist(), skips.tolist(), strict=True):
            if skip == 0:
                slow = one.picture(memoryview(packet), True)
                assert (*slow[:5], one.references[slow[5]], *slow[6:]) == (*row[:5], all_.references[row[5]], *row[6:])
                alone = hevc.HevcReader(HEVC)
                first = alone.picture(memoryview(packet), True)
                assert (*slow[:5], one.references[slow[5]]) == (*first[:5], alone.references[first[5]])
        assert (skips == 0).sum() >= 18
        assert skips[20] == 6


def test_of_hevc_a_header_that_is_cut_is_not_taken_for_the_same_read_before():
    whole = hevc_slice(1, 9, (0, 1), (0, 1), 1, 0, 7, (0, 1))  # whose last byte is 0
    reader = hevc.HevcReader(HEVC)
    reader.picture(memoryview(whole), False)
    for size in range(6, 12):
        cut = (size - 4).to_bytes(4) + whole[4:size]
        told = []
        for each in (reader, hevc.HevcReader(HEVC)):
            try:
                told.append(each.picture(memoryview(cut), False).order)
            except nal.NalError as error:
                told.append(str(error))
        assert told[0] == told[1], size
        assert (told[0] == "ended early") == (size < 10), size
