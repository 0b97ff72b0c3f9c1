"""The HTML report of a CLEAR run: buckets, concepts, pictures, and what was trained."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...curation.rng import uniform
from ...curation.store import Rows
from ...eval.metrics.drift import group_sums
from ...eval.report.blocks import Block, Details, Section, Table, Text
from ...eval.report.figures import bar_chart
from ...eval.report.maps import drift_blocks, map_figures
from ...eval.report.sections import counts_table, picture_sheets, sample_sheet
from ..feature_sets import EMBEDDING, stage_of
from ..report import OWNERS, ReportedRun, write_page
from ..samples import sample_band
from ..user_code import shown
from .buckets import Bucket, bucket_names, time_buckets
from .config import ClearConfig, FolderSource
from .pipeline import rounds
from .results import pretraining_sections, results_sections
from .source_config import ReleaseSource

_THUMB_PX = 96
_THUMBS = 6
"""Thumbnails a class and bucket: enough to see what is there, few enough for a page of some megabytes."""

_SHEET_CLASSES, _SHEET_BUCKETS = 20, 24
"""Most rows and columns of a sheet of samples: more do not fit on a page."""

_BACKGROUND = 3
"""Background pictures a bucket on their own sheet."""

_POINTS = 1000
"""Points of a map."""

_AT_ONCE = 1024
"""Vectors that are summed at a time."""

_SOURCES = {
    "listed: root": ("the folder of photos", OWNERS),
    "listed: dates_csv": ("when the photos were taken and uploaded", OWNERS),
    "listed: path": ("metadata of the photos", OWNERS),
}
_VOTES = {
    "simulated": ("answers of SIMULATED annotators", "none: drawn by this run"),
    "imported": ("answers of annotators, as qa import read them", "of who asked them"),
}


def write_report(config: ClearConfig, out: str) -> str:
    """Write ``report.html`` into the run's local folder; an unfinished run has one, too. Returns its path."""
    run = ReportedRun.of(out)
    first, last = next(iter(run.made)), list(run.made)[-1]
    cards = run.cards((first, "images found", "of the source"), (last, "in the benchmark", f"after stage {last}"))
    encoder = config.encoder
    by, buckets = time_buckets(run)
    votes = _votes(config)
    return write_page(
        run,
        "A CLEAR\u2011style benchmark",
        (f"{len(config.classes)} concepts, " if config.classes else "")
        + f"seed {config.seed}"
        + (f", encoder {shown(encoder.kind)}" if encoder else ""),
        cards=[*cards, *run.best("in-domain accuracy", "in_domain")],
        notes=_notes(config),
        sections=[
            *_bucket_section(by, buckets),
            *_class_section(run, config, buckets),
            *_samples(run, config, buckets),
            *_contacts(run, config, buckets),
            *_vectors(run, config, buckets),
            *pretraining_sections(run.lines),
            *results_sections(run, config, buckets),
        ],
        rounds=rounds(config) if votes != "none" else (),
        drawn=f"{shown(config.source.kind)}, seed {config.seed}",
        about={**_SOURCES, **({"voted: votes": _VOTES[votes]} if votes in _VOTES else {})},
        first=sample_band(run.store, run.made[last], "bucket", {bucket.number: bucket.heading for bucket in buckets}),
    )


def _notes(config: ClearConfig) -> list[str]:
    told: list[str] = []
    if _votes(config) == "simulated":
        told.append(
            "The annotators of this run are SIMULATED: their answers are drawn from the labels that came with the images."
        )
    if isinstance(config.source, ReleaseSource) and config.source.published:
        told.append(
            "That the release is the authors' archive is what the setting source.published says, and nothing else: the paper's "
            "figures stand beside this run's for that reason."
        )
    if isinstance(config.source, FolderSource) and config.source.name == "demo album":
        told.append(
            "The photos are crops of a few photographs and clips that ship with Python packages. The run shows how the "
            "pipeline works; its scores say nothing about methods."
        )
    return told


def _votes(config: ClearConfig) -> str:
    """Whose votes are counted, "none" where nobody is asked."""
    return "none" if config.qa is None else config.qa.votes


# ---------------------------------------------------------------------------------------------------------------- counts


def _bucket_section(by: str, buckets: Sequence[Bucket]) -> list[Section]:
    if not buckets:
        return []
    names, counts = [bucket.name for bucket in buckets], [bucket.images for bucket in buckets]
    lines = [[bucket.name, str(bucket.first), str(bucket.last), bucket.images] for bucket in buckets]
    if any(bucket.name != str(bucket.number) for bucket in buckets):
        lines = [[line[0], bucket.number, *line[1:]] for bucket, line in zip(buckets, lines, strict=True)]
    columns = ["bucket", *(["number"] if len(lines[0]) > 4 else []), "first", "last", "images"]
    return [
        Section(
            "Time buckets",
            [
                bar_chart(
                    names, counts, label_axis="bucket", value_axis="images", caption="Images a bucket, all that were found."
                ),
                Table(columns, lines, f"Limits of the buckets by {by}"),
            ],
        )
    ]


@dataclass(frozen=True)
class Classed:
    """Rows that have a class and a bucket.

    Attributes:
        rows: of a stage.
        keys: theirs.
        classes, places: of each row, its place in ``names`` and in ``buckets``.
        names: of the classes, in the order of the settings, the background and others after them.
        buckets: numbers of the buckets, ascending.
    """

    rows: Rows
    keys: list[str]
    classes: NDArray[np.int64]
    places: NDArray[np.int64]
    names: list[str]
    buckets: list[int]


def _classed(run: ReportedRun, config: ClearConfig, *stages: str, also: Sequence[str] = ()) -> Classed | None:
    """The rows of the first of these stages that is made; of none named, of the last one that has them."""
    for stage in stages or [*run.made][::-1]:
        rows = run.rows(stage)
        if rows is None or not {"key", "bucket", *also} <= {*rows.column_names}:
            continue
        column = next((name for name in ("class_name", "concept") if name in rows.column_names), None)
        if column is None:
            continue
        table = rows.table(["key", "bucket", column])
        background = config.retrieval.background if config.retrieval else ""
        known = [each.name for each in config.classes or ()] + ([background] if background else [])
        told = table[column].to_pylist()
        names = [*dict.fromkeys([*known, *sorted({*told})])]
        at = {name: place for place, name in enumerate(names)}
        buckets, places = np.unique(table["bucket"].to_numpy(), return_inverse=True)
        classes = np.array([at[name] for name in told], dtype=np.int64)
        return Classed(rows, table["key"].to_pylist(), classes, places.astype(np.int64), names, buckets.tolist())
    return None


def _class_section(run: ReportedRun, config: ClearConfig, buckets: list[Bucket]) -> list[Section]:
    stages = [("retrieved", "retrieved"), ("voted", "confirmed by annotators")]
    stages.append(("chosen" if "chosen" in run.made else "placed", "in the benchmark"))
    blocks: list[Block] = []
    for stage, told in stages:
        rows = _classed(run, config, stage)
        if rows is None:
            continue
        shape = len(rows.names), len(rows.buckets)
        counts = np.bincount(shape[1] * rows.classes + rows.places, minlength=shape[0] * shape[1]).reshape(shape)
        names = bucket_names(buckets, rows.buckets)
        blocks.append(counts_table(counts, rows.names, names, what="concept", caption=f"Images {told}, by bucket"))
    return [Section("Concepts", blocks)] if blocks else []


# -------------------------------------------------------------------------------------------------------------- pictures


def _samples(run: ReportedRun, config: ClearConfig, buckets: list[Bucket]) -> list[Section]:
    """The forms of the paper's figures of examples: a picture of each class and bucket, and three of the background."""
    found = _classed(run, config, also=["image"])
    if found is None:
        return []
    background = config.retrieval.background if config.retrieval else ""
    draw = uniform(config.seed, "sample_sheet", found.keys)
    cells: dict[tuple[int, int], list[int]] = {}
    for row in np.lexsort((draw, found.places, found.classes)).tolist():
        mine = cells.setdefault((int(found.classes[row]), int(found.places[row])), [])
        mine += [row] if len(mine) < _BACKGROUND else []
    columns = np.unique(
        np.linspace(0, len(found.buckets) - 1, min(len(found.buckets), _SHEET_BUCKETS)).round().astype(int)
    ).tolist()
    heads = _heads(buckets, [found.buckets[at] for at in columns])
    classes = [at for at, name in enumerate(found.names) if name != background and (found.classes == at).any()]
    shown = {
        found.names[at]: [next(iter(cells.get((at, place), [])), None) for place in columns] for at in classes[:_SHEET_CLASSES]
    }
    left = [f"{_SHEET_CLASSES} of {len(classes)} classes"] if len(classes) > _SHEET_CLASSES else []
    left += [f"{len(columns)} of {len(found.buckets)} buckets"] if len(columns) < len(found.buckets) else []
    caption = f"A picture of each class and bucket, drawn by key from the seed{': ' + ', '.join(left) if left else ''}"
    picture = functools.partial(sample_sheet, found.rows, store=run.store, columns=heads)
    sheets: list[Block] = [picture(shown, caption=caption)] if shown else []
    if background in found.names and (found.classes == found.names.index(background)).any():
        at = found.names.index(background)
        three = {
            f"{background}\u00a0{number + 1}": [dict(enumerate(cells.get((at, place), []))).get(number) for place in columns]
            for number in range(_BACKGROUND)
        }
        sheets.append(picture(three, caption=f"{_BACKGROUND} background pictures of each bucket, drawn in the same way"))
    return [Section("Samples by time", sheets)] if sheets else []


def _heads(buckets: Sequence[Bucket], numbers: Sequence[int]) -> list[tuple[str, str]]:
    """Name and days of each bucket."""
    known = {bucket.number: (bucket.name, bucket.days) for bucket in buckets}
    return [known.get(number, (str(number), "")) for number in numbers]


def _contacts(run: ReportedRun, config: ClearConfig, buckets: Sequence[Bucket]) -> list[Section]:
    found = _classed(run, config, "chosen", "retrieved", also=["score", "rank", "image"])
    if found is None:
        return []
    table = found.rows.table(["key", "score", "rank", "image"])
    headings = {bucket.number: bucket.heading for bucket in buckets}
    places: dict[str, dict[str, list[int]]] = {}
    for row in np.lexsort((table["rank"].to_numpy(), found.places, found.classes)).tolist():
        number = found.buckets[found.places[row]]
        mine = places.setdefault(found.names[found.classes[row]], {}).setdefault(headings.get(number, f"bucket {number}"), [])
        mine += [row] if len(mine) < _THUMBS else []
    intro = f"The first {_THUMBS} images of each class and bucket by rank, with the cosine of image and prompt."
    return [
        picture_sheets(
            table, places, run.store, title="Contact sheets", intro=intro, side_px=_THUMB_PX, facets=["class", "bucket"]
        )
    ]


# --------------------------------------------------------------------------------------------------------------- vectors


def _vectors(run: ReportedRun, config: ClearConfig, buckets: list[Bucket]) -> list[Section]:
    """Maps of the stored vectors, and how the mean of each class moves; of those of the shards, and of every feature set."""
    found = _classed(run, config, also=["embedding"]) or _classed(run, config, "placed")
    if found is None or len(found.keys) < 3:
        return []
    names = bucket_names(buckets, found.buckets)
    drawn = np.sort(np.argsort(uniform(config.seed, "map", found.keys), kind="stable")[:_POINTS])
    kinds = [("class", found.names, found.classes[drawn], False), ("bucket", names, found.places[drawn], True)]
    shape = 2, len(found.names), len(found.buckets)
    half = (uniform(config.seed, "halves", found.keys) < 0.5).astype(np.int64)
    groups = (half * shape[1] + found.classes) * shape[2] + found.places
    maps: dict[str, Sequence[Block]] = {}
    drifts: dict[str, Sequence[Block]] = {}
    for name, vectors in _sets_of_vectors(run, config, found).items():
        maps[name] = map_figures(vectors.gather(drawn), kinds, seed=config.seed)
        sums = group_sums(vectors.arrays(), groups, int(np.prod(shape))).reshape(*shape, -1)
        drifts[name] = drift_blocks(sums, found.names, names, of="bucket")
    told = f"The vectors of {len(found.keys):,} images, as they are stored" + (
        f"; {len(drawn):,} of them, drawn by key, are on the maps." if len(drawn) < len(found.keys) else "."
    )
    return [
        *([Section("Map of the vectors", [Text([told]), *_side_by_side(maps)])] if maps else []),
        *([Section("Drift", _side_by_side(drifts))] if any(drifts.values()) else []),
    ]


@dataclass(frozen=True)
class RowVectors:
    """Vectors of the rows of a ``Classed``.

    Attributes:
        rows, column: of a stage that has them.
        places: which of its rows they are.
    """

    rows: Rows
    column: str
    places: NDArray[np.int64]

    def gather(self, chosen: NDArray[np.int64]) -> NDArray[np.floating]:
        """Some of them, by their numbers."""
        return self.rows.gather(self.column, self.places[chosen])

    def arrays(self) -> Iterator[NDArray[np.floating]]:
        """All of them in order, in stretches."""
        for start in range(0, len(self.places), _AT_ONCE):
            yield self.rows.gather(self.column, self.places[start : start + _AT_ONCE])


def _sets_of_vectors(run: ReportedRun, config: ClearConfig, found: Classed) -> dict[str, RowVectors]:
    """Those of the shards, and the feature sets that are finished."""
    sets: dict[str, RowVectors] = {}
    columns = {EMBEDDING: (found.rows, "embedding")} if "embedding" in found.rows.column_names else {}
    columns |= {name: (rows, "feature") for name in config.feature_names if (rows := run.rows(stage_of(name))) is not None}
    for name, (rows, column) in columns.items():
        at = {key: place for place, key in enumerate(rows.table(["key"])["key"].to_pylist())}
        if at.keys() >= {*found.keys}:  # a stage of an earlier run may have others
            sets[name] = RowVectors(rows, column, np.array([at[key] for key in found.keys], dtype=np.int64))
    return sets


def _side_by_side(sets: Mapping[str, Sequence[Block]]) -> list[Block]:
    """What there is of each set of vectors, below its name where there are several."""
    if len(sets) < 2:
        return [block for blocks in sets.values() for block in blocks]
    return [Details(name, blocks, opened=at == 0) for at, (name, blocks) in enumerate(sets.items()) if blocks]
