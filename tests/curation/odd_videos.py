"""Makes small videos of every awkward kind, with FFmpeg's own test pictures: ``python tests/curation/odd_videos.py FOLDER``.

Each is named by what is odd about it. ``GOOD`` hold frames, ``BAD`` hold none that could be used, with the reason to be given.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from pathlib import Path

SOURCE = "testsrc2=size=192x108:rate=25:duration=3,noise=alls=12:allf=t:all_seed=7"
X264 = ["-c:v", "libx264", "-preset", "veryfast", "-threads", "1", "-pix_fmt", "yuv420p"]
X265 = ["-c:v", "libx265", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-x265-params"]
MPEG4 = ["-c:v", "mpeg4", "-bf", "2", "-g", "30", "-q:v", "3", "-threads", "1"]


def ffmpeg_binary() -> str:
    """The ffmpeg that the package imageio-ffmpeg brings: one version everywhere, with all the options used here."""
    import imageio_ffmpeg

    return imageio_ffmpeg.get_ffmpeg_exe()


def ffmpeg(*arguments: str | Path) -> None:
    command = [ffmpeg_binary(), "-nostdin", "-v", "error", "-y", "-bitexact", *map(str, arguments)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()[-400:]}")


def lavfi(source: str, *arguments: str | Path) -> None:
    ffmpeg("-f", "lavfi", "-i", source, *arguments)


def make_good(to: Path) -> list[Path]:
    """Files that hold frames, however oddly."""
    plain = [*X264, "-g", "250", "-bf", "3"]
    lavfi(SOURCE, *plain, to / "plain.mp4")
    lavfi(SOURCE, *X264, "-g", "12", "-bf", "2", to / "gop12.mp4")
    lavfi(SOURCE, *X264, "-g", "12", "-bf", "2", "-x264-params", "open-gop=1:b-pyramid=strict", to / "open_gop.mp4")
    lavfi(SOURCE, *X264, "-g", "25", "-x264-params", "intra-refresh=1:keyint=25", to / "intra_refresh.mkv")
    lavfi(SOURCE, *X265, "keyint=12:open-gop=1:bframes=4:log-level=error:pools=1:frame-threads=1", to / "open_gop_hevc.mp4")
    layers = "keyint=24:bframes=4:temporal-layers=3:b-pyramid=1:log-level=error:pools=1:frame-threads=1"
    lavfi(SOURCE, *X265, layers, "-tag:v", "hvc1", to / "temporal_layers_hevc.mp4")
    ffmpeg("-i", to / "gop12.mp4", "-c", "copy", "-bsf:v", "h264_metadata=aud=insert", to / "delimiters.mp4")
    ffmpeg("-i", to / "open_gop_hevc.mp4", "-c", "copy", "-bsf:v", "hevc_metadata=aud=insert", to / "delimiters_hevc.mp4")
    vp9 = ["-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8"]
    lavfi(SOURCE, *vp9, "-g", "20", to / "vp9.webm")
    altref = ["-g", "20", "-auto-alt-ref", "1", "-lag-in-frames", "12", "-arnr-maxframes", "5", "-b:v", "300k"]
    lavfi(SOURCE, "-c:v", "libvpx", *altref, "-cpu-used", "5", to / "vp8_hidden_frames.webm")
    lavfi(SOURCE, "-c:v", "libvpx-vp9", *altref, "-cpu-used", "5", to / "vp9_hidden_frames.webm")
    lavfi(SOURCE, *MPEG4, to / "bframes.avi")
    lavfi(SOURCE, *MPEG4, to / "mpeg4.mp4")
    lavfi(SOURCE, *X264, "-g", "30", "-bf", "2", to / "transport.ts")
    lavfi(SOURCE, "-c:v", "mpeg2video", "-g", "12", "-bf", "2", "-q:v", "4", to / "mpeg2.mpg")
    lavfi(SOURCE, "-c:v", "mjpeg", "-q:v", "4", "-pix_fmt", "yuvj422p", to / "mjpeg.avi")
    lavfi(SOURCE, "-c:v", "ffv1", "-pix_fmt", "yuv444p10le", "-t", "1", to / "ten_bits.mkv")
    lavfi(SOURCE, "-c:v", "rawvideo", "-pix_fmt", "bgr24", "-t", "1", to / "rgb.avi")
    lavfi(SOURCE, "-c:v", "gif", "-t", "1", to / "palette.gif")
    lavfi(SOURCE, *X264, "-pix_fmt", "gray", to / "grey.mp4")
    bt709 = ["-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "bt709", "-color_range", "pc"]
    lavfi(SOURCE, *X264, *bt709, to / "bt709_full_range.mp4")
    vfr = "select='not(eq(mod(n,7),3))*not(between(n,20,29))',setpts='PTS+lt(mod(N,5),2)*0.013/TB'"
    lavfi(
        SOURCE,
        "-vf",
        vfr,
        "-fps_mode",
        "vfr",
        *X264,
        "-g",
        "20",
        "-bf",
        "2",
        "-enc_time_base",
        "1:1000",
        to / "variable_rate.mp4",
    )
    ffmpeg("-i", to / "variable_rate.mp4", "-c", "copy", to / "variable_rate.mkv")
    ffmpeg("-ss", "0.9", "-i", to / "plain.mp4", "-c", "copy", to / "edit_list.mp4")
    ffmpeg("-ss", "1.3", "-i", to / "open_gop.mp4", "-c", "copy", to / "edit_list_open_gop.mp4")
    ffmpeg("-i", to / "gop12.mp4", "-c", "copy", "-output_ts_offset", "12.34", to / "start_offset.mkv")
    ffmpeg("-itsoffset", "1.5", "-i", to / "gop12.mp4", "-c", "copy", to / "start_offset.mp4")
    ffmpeg("-i", to / "gop12.mp4", "-c", "copy", "-bsf:v", "setts=pts=DTS", to / "pts_is_dts.mp4")
    ffmpeg("-i", to / "gop12.mp4", "-c", "copy", to / "no_times.h264")
    for degrees in (90, 180, 270):
        ffmpeg("-display_rotation", str(degrees), "-i", to / "gop12.mp4", "-c", "copy", to / f"rotated_{degrees}.mp4")
    ffmpeg("-display_hflip", "-display_rotation", "90", "-i", to / "gop12.mp4", "-c", "copy", to / "mirrored.mp4")
    odd = f"{SOURCE},format=yuv444p,crop=191:107:0:0:exact=1"
    lavfi(odd, *X264, "-pix_fmt", "yuv444p", "-g", "12", to / "odd_size_444.mp4")
    lavfi(odd, *vp9, "-pix_fmt", "yuv420p", to / "odd_size_420.webm")
    lavfi(SOURCE.replace("192x108", "2x160"), *X264, to / "sliver.mp4")
    fields = ["-flags", "+ildct+ilme", "-x264-params", "tff=1"]
    lavfi(SOURCE, *X264, *fields, to / "interlaced.mkv")
    lavfi(SOURCE, *plain, "-frames:v", "1", to / "one_frame.mp4")
    lavfi(SOURCE, *plain, "-frames:v", "3", to / "three_frames.mkv")
    lavfi(SOURCE, *X264, "-g", "12", "-movflags", "frag_keyframe+empty_moov", to / "fragmented.mp4")
    ffmpeg("-i", to / "gop12.mp4", "-c", "copy", "-bsf:v", "noise=drop=lt(n\\,5)", to / "no_first_key_frame.mkv")
    ffmpeg("-i", to / "transport.ts", "-c", "copy", "-bsf:v", "noise=drop=lt(n\\,9)", to / "no_first_key_frame.ts")
    _key_frames_mislabelled(to / "gop12.mp4", to / "mislabelled_key_frames.mp4")
    sound = "sine=frequency=440:duration=3"
    with_sound = ["-f", "lavfi", "-i", sound, "-i", to / "gop12.mp4"]
    ffmpeg(*with_sound, "-c:v", "copy", "-c:a", "aac", "-shortest", to / "sound_first.mp4")
    for irefresh, name in ((2, "av1.mkv"), (1, "av1_open_gop.mp4")):
        av1 = ["-c:v", "libsvtav1", "-preset", "12", "-g", "20", "-pix_fmt", "yuv420p"]
        lavfi(SOURCE, *av1, "-svtav1-params", f"irefresh-type={irefresh}:lp=1:hierarchical-levels=3", to / name)
    aom = ["-c:v", "libaom-av1", "-cpu-used", "8", "-g", "30", "-lag-in-frames", "25", "-b:v", "200k", "-tiles", "2x1"]
    lavfi(SOURCE, *aom, "-pix_fmt", "yuv420p", to / "av1_hidden_frames.mp4")
    full_range = ["-c", "copy", "-bsf:v", "h264_metadata=video_full_range_flag=1"]
    joined_in_turn(to / "range_changes.mkv", to / "gop12.mp4", (to / "plain.mp4", *full_range))
    (to / "joined.mpg").write_bytes((to / "mpeg2.mpg").read_bytes() * 2)
    (to / "joined.mkv").write_bytes((to / "start_offset.mkv").read_bytes() * 2)
    return sorted(path for path in to.iterdir() if path.is_file())


def joined_in_turn(to: Path, *parts: Path | tuple[str | Path, ...]) -> None:
    """One file of several, whose times go on; a part may be a file and the options by which it is copied."""
    with tempfile.TemporaryDirectory() as folder:
        copies = [Path(folder, f"{number}.ts") for number in range(len(parts))]
        for part, copy in zip(parts, copies, strict=True):
            source, *options = part if isinstance(part, tuple) else (part, "-c", "copy")
            ffmpeg("-i", source, *options, copy)
        Path(folder, "list").write_text("".join(f"file '{copy}'\n" for copy in copies))
        ffmpeg("-f", "concat", "-safe", "0", "-i", Path(folder, "list"), "-c", "copy", to)


def make_several_streams(to: Path) -> dict[Path, int]:
    """Files of more than one stream of pictures: path -> number of the one that is the video."""
    small, large = SOURCE, SOURCE.replace("192x108", "384x216")
    numbers: dict[Path, int] = {}

    def several(name: str, number: int, *options: str) -> None:
        numbers[to / name] = number
        maps = ["-f", "lavfi", "-i", small, "-f", "lavfi", "-i", large, "-map", "0", "-map", "1", *X264, "-g", "12", "-t", "1"]
        ffmpeg(*maps, *options, to / name)

    equal = ["-disposition:v:0", "0", "-disposition:v:1", "0"]
    several("small_first.mkv", 1, *equal)
    several("default_second.mkv", 1, "-disposition:v:0", "0", "-disposition:v:1", "default")
    several("default_small.mkv", 0, "-disposition:v:0", "default", "-disposition:v:1", "0")
    several("empty_first.mkv", 1, "-bsf:v:0", "noise=drop=1")
    cover = to / "cover.jpg"
    lavfi(large, "-frames:v", "1", "-c:v", "mjpeg", "-pix_fmt", "yuvj420p", "-f", "image2", cover)
    attached = ["-map", "1", "-map", "0", "-c:v:0", "copy", "-disposition:v:0", "attached_pic", "-c:v:1", "libx264", "-t", "1"]
    ffmpeg("-f", "lavfi", "-i", small, "-i", cover, *attached, to / "large_cover.mp4")
    os.remove(cover)
    return numbers | {to / "large_cover.mp4": 0}


def _key_frames_mislabelled(source: Path, to: Path) -> None:
    """Take away the table of key frames (``stss``): by the format's rule every frame is one then."""
    data = source.read_bytes()
    to.write_bytes(data.replace(b"stss", b"free", 1))


def make_bad(to: Path, good: Path) -> dict[Path, str]:
    """Files of which no frame can be had, or that are refused: path -> reason."""
    reasons: dict[Path, str] = {}

    def bad(name: str, reason: str, data: bytes | None = None) -> Path:
        reasons[to / name] = reason
        if data is not None:
            (to / name).write_bytes(data)
        return to / name

    plain = (good / "plain.mp4").read_bytes()
    bad("empty.mp4", "empty_file", b"")
    bad("text.mp4", "not_a_video", b"no video at all\n" * 100)
    bad("header_at_end_cut.mp4", "truncated", plain[: len(plain) * 2 // 3])
    sound = "sine=frequency=440:duration=1"
    lavfi(sound, "-c:a", "aac", bad("sound_only.m4a", "no_video_stream"))
    cover = ["-frames:v", "1", "-c:v", "mjpeg", "-pix_fmt", "yuvj420p", "-f", "image2", to / "cover.jpg"]
    lavfi(SOURCE, *cover)
    attached = ["-map", "0", "-map", "1", "-c:a", "aac", "-c:v", "copy", "-disposition:v", "attached_pic"]
    ffmpeg("-f", "lavfi", "-i", sound, "-i", to / "cover.jpg", *attached, bad("sound_with_cover.m4a", "no_video_stream"))
    ffmpeg("-i", good / "plain.mp4", "-movflags", "faststart", "-c", "copy", to / "faststart.mp4")
    data = (to / "faststart.mp4").read_bytes()
    bad("cut_in_the_middle.mp4", "truncated", data[: len(data) // 2])
    for name in ("cover.jpg", "faststart.mp4"):
        os.remove(to / name)
    key = "00112233445566778899aabbccddeeff"
    locked = ["-encryption_scheme", "cenc-aes-ctr", "-encryption_key", key, "-encryption_kid", key]
    ffmpeg("-i", good / "gop12.mp4", "-c", "copy", *locked, bad("encrypted.mp4", "encrypted"))
    lavfi(SOURCE, *X264, "-t", "0", bad("no_frames.mkv", "no_frames"))
    dropped = ["-c", "copy", "-bsf:v", "noise=drop=eq(mod(n\\,24)\\,12)", bad("no_second_key_frame.mkv", "missing_pictures")]
    ffmpeg("-i", good / "gop12.mp4", *dropped)
    pictures = (good / "mjpeg.avi").read_bytes()
    bad("zeros_in_a_picture.avi", "corrupt", pictures[:30_000] + bytes(500) + pictures[30_500:])
    packets = _transport_packets(good / "transport.ts")
    bad("lost_packet.ts", "corrupt", b"".join(packets[: len(packets) // 4] + packets[len(packets) // 4 + 1 :]))
    playlist = f"#EXTM3U\n#EXT-X-TARGETDURATION:3\n#EXTINF:3,\n{good / 'transport.ts'}\n#EXT-X-ENDLIST\n"
    bad("playlist.mp4", "not_a_video", playlist.encode())
    bad("script.mp4", "not_a_video", f"ffconcat version 1.0\nfile '{good / 'plain.mp4'}'\n".encode())
    return reasons


def make_late_stream(to: Path) -> Path:
    """A video whose sound FFmpeg finds only where it begins, after 9 s: the tables at the start, which name it, are removed."""
    made = to / "late_stream.ts"
    sound = ["-itsoffset", "9", "-f", "lavfi", "-i", "sine=frequency=440:duration=1", "-map", "0", "-map", "1", "-c:a", "mp2"]
    lavfi("testsrc2=size=64x36:rate=25:duration=12", *sound, *X264, made)
    elementary = [each for each in _transport_packets(made) if 0x100 <= int.from_bytes(each[1:3]) & 0x1FFF < 0x1000]
    made.write_bytes(b"".join(elementary))
    return made


def _transport_packets(transport_stream: Path) -> list[bytes]:
    data = transport_stream.read_bytes()
    return [data[at : at + 188] for at in range(0, len(data), 188)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    for name in ("good", "bad"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    made = make_good(folder / "good")
    print(f"{len(made)} files with frames, {len(make_bad(folder / 'bad', folder / 'good'))} without, in {folder}")


if __name__ == "__main__":
    main()
