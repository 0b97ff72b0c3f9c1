"""Write a dated photo album: seeded crops of a few real photographs, whose look drifts over the years, and some broken files.

The album is for demonstrations and tests, not a benchmark: all photos of a class are cut from one or two photographs, or from
one clip.
"""

from __future__ import annotations

import csv
import dataclasses
import datetime as dt
import importlib.metadata
import io
import json
import math
import os
import tomllib
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

from ...curation.records import naming, write_file
from ...curation.rng import rng

LONGEST_SIDE_PX = 1000
"""Larger pictures are halved until they are no longer than this: the album's photos are at most 500 pixels wide."""


class AlbumError(Exception):
    """The album cannot be made; the message says why and what to do."""


@dataclasses.dataclass(frozen=True)
class Source:
    """One photograph or clip: the columns of ``sources.toml``, which explains them."""

    name: str
    distribution: str
    file: str
    true_class: str
    weight: float
    focus: Sequence[float]
    licence: str
    frames: Sequence[int] | None = None

    def path(self) -> Path:
        """Path of the file on this machine. Raises ``AlbumError`` with what to install."""
        try:
            distribution = importlib.metadata.distribution(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            raise AlbumError(
                f"the demo's photo {self.name!r} is inside the package {self.distribution}, "
                "which is not installed: pip install benchwright[demo]"
            ) from None
        path = Path(str(distribution.locate_file(self.file)))
        if not path.is_file():
            raise AlbumError(
                f"{self.distribution} {distribution.version} has no {self.file}: install the version in constraints.txt"
            )
        return path


def sources() -> list[Source]:
    """All sources, in the order of ``sources.toml``."""
    table = tomllib.loads((Path(__file__).parent / "sources.toml").read_text("utf-8"))
    return [Source(**record) for record in table["source"]]


def load(source: Source) -> list[Image.Image]:
    """The photograph as one RGB image, or the frames of a clip in order, first and last included."""
    return list(_pictures(source, range(_n_pictures(source))).values())


def _n_pictures(source: Source) -> int:
    return 1 if source.frames is None else source.frames[1] - source.frames[0] + 1


def _pictures(source: Source, wanted: Collection[int]) -> dict[int, Image.Image]:
    """Pictures of a source by their place in it. To convert a frame takes longer than to decode it."""
    if source.frames is None:
        with Image.open(source.path()) as image:
            return {0: _halved(image.convert("RGB"))}
    first, last = source.frames
    return _frames(source.path(), first, last, wanted)


def _frames(path: Path, first: int, last: int, wanted: Collection[int]) -> dict[int, Image.Image]:
    import av

    images: dict[int, Image.Image] = {}
    index = -1
    with av.open(str(path)) as container:
        for index, frame in enumerate(container.decode(video=0)):
            if index - first in wanted:
                images[index - first] = _halved(frame.to_image())
            if index == last:
                break
    if index < last:
        raise AlbumError(f"{path} has {index + 1} frames, and the album needs frame {last}")
    return images


def _arrays(source: Source, wanted: Collection[int]) -> dict[int, np.ndarray]:
    return {place: np.asarray(image) for place, image in _pictures(source, wanted).items()}


def _halved(image: Image.Image) -> Image.Image:
    while max(image.size) > LONGEST_SIDE_PX:
        image = image.reduce(2)
    return image


STAGE = "demo_photos"
QUALITY = 88
UPLOAD_LAG_DAYS = 20.0
SIDES_PX = ((480, 360), (360, 480), (450, 300), (400, 400))
COLUMNS = ("file", "date_taken", "date_uploaded", "true_class")

ORIENTATION, DATE_TIME_ORIGINAL, EXIF_IFD = 0x0112, 0x9003, 0x8769

FLAWS = {"truncated": 3, "empty": 2, "text": 2, "undated": 4, "early": 2}
"""Number of broken files of each kind: truncated, no bytes, a text named .jpg, no date anywhere, uploaded before capture."""

LEAST_PHOTOS = 100


@dataclasses.dataclass(frozen=True)
class PhotoAlbum:
    """The result of ``make_album``."""

    photos_dir: Path
    """Root of the photos, in one folder per year."""
    csv: Path
    """One row per file: ``file`` relative to ``photos_dir``, ``date_taken`` and ``date_uploaded`` (ISO 8601, "" if unknown),
    and ``true_class`` ("" for a distractor and for a file that shows nothing)."""
    files: int
    """Number of files, including the broken ones."""


@dataclasses.dataclass(frozen=True)
class Shot:
    """One file to write. ``era`` runs from 0 for the first photo of the album to 1 for the last."""

    key: str
    source: Source
    taken: dt.datetime
    uploaded: dt.datetime
    era: float
    flaw: str = ""
    file: str = ""


def make_album(folder: str | Path, *, seed: int, photos: int = 960, first_year: int = 2009, years: int = 6) -> PhotoAlbum:
    """Write ``photos`` good JPEG files and 13 broken ones, and a CSV file with their true classes and dates.

    The same arguments give the same bytes on one machine. Bytes depend on the versions of OpenCV, Pillow and PyAV, which
    ``album.json`` records.

    Args:
        folder: destination; created if it does not exist. The album of an earlier call is replaced; other content is an error.
        seed: seed for all crops, dates and flaws.
        photos: number of good photos, at least 100, so that every source has one.
        first_year: the album begins on 1 January of this year.
        years: number of years over which the capture dates are spread evenly.

    Raises:
        AlbumError: a package of the extra ``demo`` is not installed, ``folder`` holds something that is not an album, or
            ``photos`` or ``years`` is too small.
    """
    catalogue = sources()
    if photos < LEAST_PHOTOS or years < 1:
        raise AlbumError(f"photos={photos}, years={years}: an album needs at least {LEAST_PHOTOS} photos and 1 year")
    root = Path(folder)
    _clear(root)
    shots = _named(_shots(catalogue, seed=seed, photos=photos, start=dt.datetime(first_year, 1, 1), days=years * 365))
    for year in {shot.file.split("/")[0] for shot in shots}:
        (root / "photos" / year).mkdir(parents=True, exist_ok=True)
    wanted: dict[str, set[int]] = {source.name: set() for source in catalogue}
    for shot in shots:
        wanted[shot.source.name].add(_place(shot, _look(shot, seed)))
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:  # all work without the interpreter lock
        pixels = dict(zip(wanted, pool.map(_arrays, catalogue, wanted.values()), strict=True))
        for _ in pool.map(lambda shot: write_file(root / "photos" / shot.file, _file_bytes(shot, pixels, seed)), shots):
            pass
    _write_csv(root / "albums.csv", shots)
    # Last and atomic: an album whose record describes it is complete.
    record = root / "album.json.new"
    write_file(record, (json.dumps(_made_by(catalogue, seed, photos, first_year, years), indent=1) + "\n").encode())
    record.replace(root / "album.json")
    return PhotoAlbum(root / "photos", root / "albums.csv", len(shots))


def _clear(root: Path) -> None:
    """Remove the files of an earlier album. An interrupted call leaves at least ``album.json``."""
    if not root.exists() or not any(root.iterdir()):
        root.mkdir(parents=True, exist_ok=True)
        (root / "album.json").write_text("{}\n")
        return
    if not (root / "album.json").is_file():
        raise AlbumError(f"{root} contains something that is not an album: choose an empty folder")
    for photo in (root / "photos").glob("*/IMG_*.jpg"):
        photo.unlink()
    (root / "albums.csv").unlink(missing_ok=True)


def _shots(catalogue: list[Source], *, seed: int, photos: int, start: dt.datetime, days: int) -> Iterator[Shot]:
    total = sum(source.weight for source in catalogue)
    edges = np.rint(np.cumsum([0.0] + [source.weight for source in catalogue]) / total * photos).astype(int).tolist()
    for source, low, high in zip(catalogue, edges[:-1], edges[1:], strict=True):
        for index in range(high - low):
            draw = rng(seed, STAGE, f"{source.name}/{index}/dates")
            era = (index + float(draw.random())) / (high - low)  # spread evenly, so that every year has all classes
            yield _shot(source, f"{source.name}/{index}", era, draw, start=start, days=days)
    order = rng(seed, STAGE, "flaws").permutation(len(catalogue))
    broken = [f"{flaw}/{index}" for flaw, count in FLAWS.items() for index in range(count)]
    for key, source_index in zip(broken, order, strict=False):
        draw = rng(seed, STAGE, f"{key}/dates")
        flaw = key.split("/")[0]
        yield _shot(catalogue[source_index], key, float(draw.random()), draw, flaw, start=start, days=days)


def _shot(
    source: Source, key: str, era: float, draw: np.random.Generator, flaw: str = "", *, start: dt.datetime, days: int
) -> Shot:
    lag_s = 3600 + int(draw.exponential(UPLOAD_LAG_DAYS) * 86_400)
    taken = start + dt.timedelta(seconds=int(era * days * 86_400))
    uploaded = taken + dt.timedelta(seconds=-lag_s if flaw == "early" else lag_s)
    return Shot(key, source, taken, uploaded, era, flaw)


def _named(shots: Iterator[Shot]) -> list[Shot]:
    """Number the files by capture date, as a camera does, so that names do not reveal the content."""
    ordered = sorted(shots, key=lambda shot: (shot.taken, shot.key))
    return [dataclasses.replace(shot, file=f"{shot.taken.year}/IMG_{index:04d}.jpg") for index, shot in enumerate(ordered)]


def _look(shot: Shot, seed: int) -> np.random.Generator:
    return rng(seed, STAGE, f"{shot.key}/look")


def _place(shot: Shot, draw: np.random.Generator) -> int:
    """Which picture of its source a photo shows: the first number that is drawn for its look."""
    at = 0.8 * shot.era + 0.2 * float(draw.random())
    return round(at * (_n_pictures(shot.source) - 1))


def _file_bytes(shot: Shot, pixels: dict[str, dict[int, np.ndarray]], seed: int) -> bytes:
    if shot.flaw == "empty":
        return b""
    if shot.flaw == "text":
        return f"A note of {shot.taken:%d %B %Y} saved under the name of a photo.\n".encode()
    data = _jpeg(shot, pixels[shot.source.name], seed)
    return data[: len(data) // 3] if shot.flaw == "truncated" else data


def _jpeg(shot: Shot, pictures: dict[int, np.ndarray], seed: int) -> bytes:
    draw = _look(shot, seed)
    image = _developed(_cropped(pictures[_place(shot, draw)], shot, draw), shot.era, draw)
    exif = Image.Exif()
    if draw.random() < 0.04:  # the camera was held upright: the pixels are rotated, and a tag says so
        image = image.transpose(Image.Transpose.ROTATE_90)
        exif[ORIENTATION] = 6
    if shot.flaw != "undated":
        exif.get_ifd(EXIF_IFD)[DATE_TIME_ORIGINAL] = shot.taken.strftime("%Y:%m:%d %H:%M:%S")
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=QUALITY, subsampling="4:2:0", exif=exif)
    return buffer.getvalue()


def _cropped(image: np.ndarray, shot: Shot, draw: np.random.Generator) -> Image.Image:
    """A window of the picture, slightly rotated and possibly mirrored; later photos are closer crops."""
    import cv2

    width, height = SIDES_PX[int(draw.integers(len(SIDES_PX)))]
    angle = math.radians(float(np.clip(draw.normal(0.0, 4.0), -10.0, 10.0)))
    cos, sin = math.cos(angle), math.sin(angle)
    span_x, span_y = width * cos + height * abs(sin), width * abs(sin) + height * cos
    zoom = float(draw.uniform(0.85, 1.0)) * (1.0 - 0.45 * shot.era * float(draw.uniform(0.6, 1.0)))
    scale = zoom * min(image.shape[1] / span_x, image.shape[0] / span_y)
    flip = -1.0 if draw.random() < 0.5 else 1.0
    centre = [
        float(np.clip((focus + draw.uniform(-0.15, 0.15)) * side, scale * span / 2, side - scale * span / 2))
        for focus, side, span in zip(shot.source.focus, image.shape[1::-1], (span_x, span_y), strict=True)
    ]
    xx, xy, yx, yy = flip * scale * cos, -scale * sin, flip * scale * sin, scale * cos
    # Maps pixel positions in the photo to positions in the picture; ``centre`` is measured from its upper left corner.
    turned = np.array([[xx, xy, 0.0], [yx, yy, 0.0]])
    turned[:, 2] = np.array(centre) - 0.5 - turned[:, :2] @ [(width - 1) / 2, (height - 1) / 2]
    flags = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
    return Image.fromarray(cv2.warpAffine(image, turned, (width, height), flags=flags))


def _developed(image: Image.Image, era: float, draw: np.random.Generator) -> Image.Image:
    """Early photos are soft, pale and warm; late ones are sharp, saturated, cold and dark. Each varies a little."""
    import cv2

    saturation = 0.25 + 0.9 * era + float(draw.normal(0.0, 0.08))
    warmth = 0.2 * (1.0 - 2.0 * era) + float(draw.normal(0.0, 0.04))
    exposure_ev = 0.4 - 1.5 * era + float(draw.normal(0.0, 0.4))
    softness_px = max(0.0, 2.6 * (1.0 - 1.6 * era) + float(draw.normal(0.0, 0.5)))
    grey = (0.299, 0.587, 0.114)
    rows = [
        [gain * ((1.0 - saturation) * part + (saturation if i == j else 0.0)) for j, part in enumerate(grey)] + [0.0]
        for i, gain in enumerate((1.0 + warmth, 1.0, 1.0 - warmth))
    ]
    image = image.convert("RGB", tuple(value for row in rows for value in row))
    # Exposure acts on linear light, and values in a file are light to the power 1 / 2.2.
    curve = [min(255, round(255 * (value / 255) * 2.0 ** (exposure_ev / 2.2))) for value in range(256)]
    image = image.point(curve * 3)
    return Image.fromarray(cv2.GaussianBlur(np.asarray(image), (0, 0), softness_px)) if softness_px > 0.3 else image


def _made_by(catalogue: list[Source], seed: int, photos: int, first_year: int, years: int) -> dict[str, object]:
    packages = sorted({source.distribution for source in catalogue} | {"pillow", "av", "numpy", "opencv-python-headless"})
    return {
        "seed": seed,
        "photos": photos,
        "first_year": first_year,
        "years": years,
        "versions": {name: importlib.metadata.version(name) for name in packages},
        "sources": {source.name: {"true_class": source.true_class, "licence": source.licence} for source in catalogue},
    }


def _write_csv(path: Path, shots: list[Shot]) -> None:
    with naming(path), path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for shot in shots:
            taken = "" if shot.flaw == "undated" else shot.taken.isoformat(sep=" ")
            shown = "" if shot.flaw in ("empty", "text") else shot.source.true_class
            writer.writerow([shot.file, taken, shot.uploaded.isoformat(sep=" "), shown])
