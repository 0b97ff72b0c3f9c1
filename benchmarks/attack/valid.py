"""Small valid files of every kind that is read, made from fixed seeds: what the attack changes."""

from __future__ import annotations

import csv
import datetime as dt
import functools
import gzip
import io
import json
import os
import pickle
import sqlite3
import struct
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from benchwright.curation.rng import rng
from PIL import Image


def draw(name: str) -> np.random.Generator:
    """The generator of one kind of file."""
    return rng(0, "valid files", name)


# ------------------------------------------------------------------------------------------------------------- pictures


def pixels(name: str, height: int = 24, width: int = 32) -> np.ndarray:
    """uint8 (height, width, 3): a smooth picture with some noise."""
    ramp = np.linspace(0, 200, width)[None, :, None] + np.linspace(0, 40, height)[:, None, None] * [1, 0.5, 0]
    return np.clip(ramp + draw(name).integers(0, 16, (height, width, 3)), 0, 255).astype(np.uint8)


def picture(form: str, name: str = "picture", **options: object) -> bytes:
    """A file of Pillow's format ``form``, taken on 2008-05-01 by its EXIF where the format has it."""
    out = io.BytesIO()
    image = Image.fromarray(pixels(name))
    exif = Image.Exif()
    exif[0x0132] = exif[0x9003] = "2008:05:01 12:00:00"
    exif.get_ifd(0x8769)[0x9003] = "2008:05:01 12:00:00"
    if form in ("JPEG", "PNG", "WEBP", "TIFF"):
        options = {"exif": exif, **options}
    image.save(out, form, **options)
    return out.getvalue()


@functools.cache
def pictures(form: str) -> list[bytes]:
    """Several files of one format, written in different ways."""
    ways: dict[str, list[dict[str, object]]] = {
        "JPEG": [{}, {"progressive": True}, {"quality": 30, "subsampling": 2}],
        "PNG": [{}, {"compress_level": 0}],
        "WEBP": [{}, {"lossless": True}],
        "TIFF": [{}, {"compression": "tiff_lzw"}, {"compression": "tiff_adobe_deflate"}],
    }
    made = [picture(form, f"{form}{number}", **way) for number, way in enumerate(ways.get(form, [{}, {}]))]
    if form == "PNG":
        for mode in ("P", "LA", "I;16"):
            out = io.BytesIO()
            grey = Image.fromarray(pixels(mode)).convert("L")
            image = Image.fromarray(np.asarray(grey, np.uint16) * 257) if mode == "I;16" else grey.convert(mode)
            image.save(out, "PNG")
            made.append(out.getvalue())
    return made


@functools.cache
def video(codec: str, container: str, *, frames: int = 12, name: str = "video") -> bytes:
    """A clip of 64 x 48 pixels at 25 frames a second."""
    os.environ.setdefault("SVT_LOG", "1")
    try:
        return _encoded(codec, {"mkv": "matroska", "ts": "mpegts"}.get(container, container), frames, name)
    finally:
        # SVT-AV1 gives the process that calls it real-time priority where it may: it would starve the machine from then on.
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _encoded(codec: str, container: str, frames: int, name: str) -> bytes:
    import av

    out = io.BytesIO()
    formats = {"gif": "rgb8", "mjpeg": "yuvj420p"}
    quiet = {"x265-params": "log-level=none:pools=1:frame-threads=1"} if codec == "libx265" else {}
    with av.open(out, "w", format=container) as made:
        stream = made.add_stream(codec, rate=25, options=quiet)
        stream.width, stream.height, stream.pix_fmt = 64, 48, formats.get(codec, "yuv420p")
        stream.codec_context.thread_count = 1
        stream.gop_size = 5
        for number in range(frames):
            shown = np.roll(pixels(name, 48, 64), 3 * number, axis=1)
            frame = av.VideoFrame.from_ndarray(shown, format="rgb24").reformat(format=stream.pix_fmt)
            frame.pts = number
            made.mux(stream.encode(frame))
        made.mux(stream.encode(None))
    return out.getvalue()


# ------------------------------------------------------------------------------------------------------------- archives


def tar(members: Mapping[str, bytes], *, mode: str = "w") -> bytes:
    """A tar of files; ``mode`` as ``tarfile`` has it."""
    out = io.BytesIO()
    options = {"compresslevel": 1} if mode.endswith((":gz", ":bz2")) else {}
    with tarfile.open(fileobj=out, mode=mode, format=tarfile.USTAR_FORMAT, **options) as archive:  # type: ignore[call-overload]
        for name, body in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    return out.getvalue()


def npy(array: np.ndarray) -> bytes:
    """A .npy file."""
    out = io.BytesIO()
    np.save(out, array, allow_pickle=array.dtype.hasobject)
    return out.getvalue()


def npz(arrays: Mapping[str, np.ndarray], *, packed: bool = False) -> bytes:
    """A .npz file."""
    out = io.BytesIO()
    (np.savez_compressed if packed else np.savez)(out, **arrays)
    return out.getvalue()


def parquet(columns: Mapping[str, object], **options: object) -> bytes:
    """A Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, **options)
    return out.getvalue()


def torch_file(value: object, **options: object) -> bytes:
    """What ``torch.save`` writes."""
    import torch

    out = io.BytesIO()
    torch.save(value, out, **options)
    return out.getvalue()


def mat(values: Mapping[str, object], *, packed: bool = False) -> bytes:
    """A MATLAB file of version 5."""
    import scipy.io

    out = io.BytesIO()
    scipy.io.savemat(out, dict(values), do_compression=packed)
    return out.getvalue()


# --------------------------------------------------------------------------------------------------------------- tables


def table(rows: Sequence[Sequence[object]], *, delimiter: str = ",") -> bytes:
    """Lines of fields."""
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return out.getvalue().encode()


def text(value: object) -> bytes:
    """JSON."""
    return json.dumps(value).encode()


def ids(count: int, name: str = "ids") -> list[str]:
    """YouTube ids."""
    letters = np.array(list("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"))
    return ["".join(row) for row in letters[draw(name).integers(64, size=(count, 11))]]


def features(count: int = 6, width: int = 8) -> np.ndarray:
    """float32 (count, width)."""
    return draw("features").standard_normal((count, width)).astype(np.float32)


def yfcc(count: int = 12, *, columns: int = 23) -> bytes:
    """Lines of YFCC100M's metadata; a few of them are rejected."""
    lines: list[list[object]] = []
    for number in range(count):
        taken = dt.datetime(2008, 1, 1) + dt.timedelta(days=number)
        uploaded = int((taken + dt.timedelta(days=3) - dt.datetime(1970, 1, 1)).total_seconds())
        fields: list[object] = [
            1000 + number,
            "1@N00",
            "nick+name",
            f"{taken}.0",
            uploaded,
            "Canon",
            "a+title",
            "",
            "tag",
            "",
            "1.5",
            "2.5",
            16,
            f"http://x/{number}/",
            f"http://x/{number}.jpg",
            "Attribution License",
            "http://l/",
            5,
            6,
            "abc",
            "def",
            "jpg",
            int(number == 3),
        ]
        lines.append(fields if columns == 23 else [number, fields[0], "f" * 32, *fields[1:]])
    return "".join("\t".join(map(str, line)) + "\n" for line in lines).encode()


def sqlite_of(statements: Sequence[str], rows: Sequence[Sequence[object]] = (), insert: str = "") -> bytes:
    """An SQLite database made by these statements."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.sqlite"
        connection = sqlite3.connect(path)
        for statement in statements:
            connection.execute(statement)
        connection.executemany(insert, rows) if rows else None
        connection.commit()
        connection.close()
        return path.read_bytes()


def yfcc_sqlite() -> bytes:
    """The same lines as a database."""
    from benchwright.datasets.yfcc100m.sqlite import COLUMN_NAMES, TABLE

    names = list(COLUMN_NAMES.values())
    rows = [line.split("\t") for line in yfcc().decode().splitlines()]
    return sqlite_of(
        [f"CREATE TABLE {TABLE} ({', '.join(names)})"], rows, f"INSERT INTO {TABLE} VALUES ({', '.join('?' * len(names))})"
    )


# ------------------------------------------------------------------------------------------------------------ skeletons


def joints(frames: int, count: int, name: str) -> np.ndarray:
    """float64 (frames, count, 3), metres."""
    return np.cumsum(draw(name).normal(0, 0.02, (frames, count, 3)), axis=0) + np.arange(count)[None, :, None] * 0.05


def nwucla(name: str = "a", label: int = 1) -> bytes:
    """A file of N-UCLA."""
    return text({"file_name": "a01_s01_e00_v01", "label": label, "skeletons": np.round(joints(4, 20, name), 4).tolist()})


def ntu_text(name: str = "ntu", frames: int = 3) -> bytes:
    """A ``.skeleton`` file of NTU with one body."""
    lines = [str(frames)]
    for frame in joints(frames, 25, name):
        lines += ["1", "72057594037931101 0 1 1 1 1 0 0.1 0.2 2", "25"]
        lines += [" ".join([*(f"{value:.6f}" for value in joint), *["0.5"] * 8, "2"]) for joint in frame]
    return ("\n".join(lines) + "\n").encode()


# --------------------------------------------------------------------------------------------------------------- others


def cifar(count: int = 5) -> dict[str, bytes]:
    """The three files of CIFAR-100's archive."""
    made = {}
    for name in ("train", "test"):
        generator = draw(name)
        data = generator.integers(0, 256, (count, 3072), dtype=np.uint8)
        labels = [int(label) for label in generator.integers(0, 100, count)]
        made[name] = pickle.dumps({b"data": data, b"fine_labels": labels, b"filenames": [b"a"] * count}, protocol=2)
    made["meta"] = pickle.dumps({b"fine_label_names": [f"class{n}".encode() for n in range(100)]}, protocol=2)
    return made


def spectra_text() -> bytes:
    """Reflectances, a spectrum a line below a line of wavelengths."""
    grid = np.arange(400, 721, 10)
    rows = np.vstack([grid, draw("spectra").uniform(0.05, 0.9, (8, len(grid)))])
    return "\n".join(" ".join(f"{value:g}" for value in row) for row in rows).encode() + b"\n"


def cameras_text() -> bytes:
    """Two cameras in the form of Jiang et al."""
    lines = ["Sensitivities", "400nm-720nm, step 10nm", "----"]
    for name in ("Camera A", "Camera B"):
        lines.append(name)
        lines += [" ".join(f"{value:.4f}" for value in row) for row in draw(name).uniform(0, 1, (3, 33))]
    return ("\n".join(lines) + "\n").encode()


def pair_metadata(number: int = 0) -> dict[str, object]:
    """The released numbers of one pair of two cameras."""
    return {
        "image_name_1": f"RAW_{number:04d}_CAM_0",
        "image_name_2": f"RAW_{number:04d}_CAM_1",
        "wb_gt_1": [0.5, 1.0, 0.7],
        "wb_gt_2": [0.6, 1.0, 0.6],
        **{
            f"transform_{what}_{way}": (np.eye(3) + 0.01 * number).tolist()
            for what in ("image", "chart")
            for way in ("1to2", "2to1")
        },
    }


def dng(name: str = "dng", height: int = 64, width: int = 96) -> bytes:
    """An uncompressed DNG of 16 bits: TIFF's tags written by hand, so that no package is needed."""
    mosaic = draw(name).integers(1024, 15000, (height, width)).astype("<u2").tobytes()
    entries = [
        (254, 4, [0]),
        (256, 4, [width]),
        (257, 4, [height]),
        (258, 3, [16]),
        (259, 3, [1]),
        (262, 3, [32803]),
        (271, 2, b"benchwright\0"),
        (272, 2, b"drawn\0\0\0"),
        (273, 4, [0]),
        (274, 3, [1]),
        (277, 3, [1]),
        (278, 4, [height]),
        (279, 4, [len(mosaic)]),
        (33421, 3, [2, 2]),
        (33422, 1, bytes([0, 1, 1, 2])),
        (50706, 1, bytes([1, 4, 0, 0])),
        (50707, 1, bytes([1, 2, 0, 0])),
        (50708, 2, b"drawn\0\0\0"),
        (50714, 4, [1024]),
        (50717, 4, [16383]),
        (50721, 10, [1, 1, 0, 1, 0, 1, 0, 1, 1, 1, 0, 1, 0, 1, 0, 1, 1, 1]),
        (50728, 5, [5, 10, 1, 1, 6, 10]),
        (50778, 3, [21]),
    ]
    letters = {1: "B", 3: "H", 4: "I", 5: "I", 10: "i"}
    start = 8 + 2 + 12 * len(entries) + 4
    directory, beside = struct.pack("<H", len(entries)), b""
    place_of_offset = 0
    for tag, kind, value in entries:
        body = value if isinstance(value, bytes) else struct.pack(f"<{len(value)}{letters[kind]}", *value)
        count = len(body) if kind in (1, 2) else len(value) // (2 if kind in (5, 10) else 1)
        if tag == 273:
            place_of_offset = 8 + len(directory) + 8
        if len(body) > 4:
            field, beside = struct.pack("<I", start + len(beside)), beside + body + bytes(len(body) % 2)
        else:
            field = body.ljust(4, b"\0")
        directory += struct.pack("<HHI", tag, kind, count) + field
    made = bytearray(b"II*\0" + struct.pack("<I", 8) + directory + bytes(4) + beside + mosaic)
    struct.pack_into("<I", made, place_of_offset, start + len(beside))
    return bytes(made)


def zipped(data: bytes) -> bytes:
    """Gzip, the same bytes each time."""
    return gzip.compress(data, mtime=0)
