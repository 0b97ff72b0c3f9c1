"""The HTML report of a CLEAR run, composed of the blocks of ``eval.report``."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...curation.artifact import Artifact
from ...curation.store import Rows, Store
from ...curation.verify import DATASET
from ...datasets.clear.facts import facts
from ...datasets.reader.index import DatasetIndex
from ...eval.protocols.domain_incremental import METRICS
from ...eval.report.blocks import Block, Card, Cards, Section, Table, Text, Thumb
from ...eval.report.figures import bar_chart, common_scale
from ...eval.report.images import small
from ...eval.report.sections import Scores, accuracy_blocks, contact_section, counts_table, metric_blocks
from ...eval.results import Line, lines
from ..experiments import results
from ..own import shown
from ..report import OWNERS, finished_stages, votes_sections, write_page
from .config import ClearConfig, FolderSource
from .pipeline import rounds

_THUMB_PX = 96
_THUMBS = 6
"""Thumbnails a class and bucket: enough to see what is there, few enough for a page of some megabytes."""

PUBLISHED = {
    "nap-finetune": ("", "linear on YFCC-B0", "nap"),
    "cumulative-finetune": ("", "linear on YFCC-B0", "cumulative, fine-tuned"),
    "cumulative-scratch": ("", "linear on YFCC-B0", "cumulative, from scratch"),
    **{
        f"reservoir-alpha={alpha}-finetune": ("Table 2", "linear on YFCC-B0, fine-tuned, buffer of one bucket", name)
        for alpha, name in ((0.5, "alpha 0.5"), (1.0, "alpha 1"), (2.0, "alpha 2"), (5.0, "alpha 5"))
    },
}
"""Our method -> table, model and row of the paper."""

_SOURCES = {
    "listed: root": ("the folder of photos", OWNERS),
    "listed: dates_csv": ("when the photos were taken and uploaded", OWNERS),
    "listed: path": ("metadata of the photos", OWNERS),
}
_VOTES = {
    "simulated": ("answers of SIMULATED annotators", "none: drawn by this run"),
    "imported": ("answers of annotators, as qa import read them", "of who asked them"),
}

_PAPER_NAMES = {
    "in_domain": "in_domain",
    "next_domain": "next_domain",
    "acc": "accuracy",
    "bwt": "backward_transfer",
    "fwt": "forward_transfer",
}


def write_report(config: ClearConfig, out: str) -> str:
    """Write ``report.html`` into the run's local folder; an unfinished run has one, too. Returns its path."""
    store = Store(out)
    made = finished_stages(store)
    found = lines(results(out))
    sections = [
        Section("Summary", [_cards(made, found), *_caveats(config)]),
        _buckets(store, made),
        _classes(config, store, made),
        *_sheets(config, store, made),
        *(votes_sections(rounds(config), out) if config.qa.votes != "none" else []),
        *_baselines(found, _names(out) if found else []),
    ]
    subtitle = f"{len(config.classes)} concepts, seed {config.seed}, encoder {shown(config.encoder.kind)}"
    drawn = f"{shown(config.source.kind)}, seed {config.seed}"
    about = {**_SOURCES, **({"voted: votes": _VOTES[config.qa.votes]} if config.qa.votes in _VOTES else {})}
    return write_page("A CLEAR\u2011style benchmark", subtitle, sections, made, out, drawn=drawn, about=about)


def _names(out: str) -> list[str]:
    """Buckets of the dataset, in the order of time."""
    return [str(each) for each in np.unique(DatasetIndex.open(posixpath.join(out, DATASET)).table["bucket"].to_numpy())]


def _cards(made: Mapping[str, Artifact], found: Sequence[Line]) -> Cards:
    first, last = next(iter(made.values())), made[list(made)[-1]]
    unusable = ("listed", "fetched", "checked", "timed", "embedded")
    bad = sum(sum(made[stage].rejects.values()) for stage in unusable if stage in made)
    cards = [
        Card("images found", first.rows_in, "files and lines of the source"),
        Card("broken or unusable", bad, "each with its reason", tone="note" if bad else "plain"),
        Card("in the benchmark", last.rows, f"after stage {last.stage}"),
    ]
    best = [(float(line.values("in_domain").mean()), line.label) for line in found if line.protocol == "iid"]
    if best:
        value, name = max(best)
        cards.append(Card("in-domain accuracy", f"{100 * value:.1f} %", name))
    return Cards(cards)


def _caveats(config: ClearConfig) -> list[Block]:
    told: list[str] = []
    if config.qa.votes == "simulated":
        told.append(
            "The annotators of this run are SIMULATED: their answers are drawn from the labels that came with the images."
        )
    if isinstance(config.source, FolderSource) and config.source.name == "demo album":
        told.append(
            "The photos are crops of a few photographs and clips that ship with Python packages. The run shows how the "
            "pipeline works; its scores say nothing about methods."
        )
    return [Text(told, tone="note")] if told else []


def _rows(store: Store, made: Mapping[str, Artifact], *stages: str) -> Rows | None:
    name = next((stage for stage in stages if stage in made), None)
    return made[name].rows_view(store) if name else None


def _buckets(store: Store, made: Mapping[str, Artifact]) -> Section:
    rows = _rows(store, made, "bucketed")
    if rows is None:
        return Section("Time buckets", [Text(["No bucket yet."])])
    by = "date_uploaded" if rows.schema.field("date_uploaded").type == pa.timestamp("us") else "date_taken"
    spans = (
        pa.concat_tables(rows.batches(["bucket", by]))
        .group_by("bucket")
        .aggregate([(by, "min"), (by, "max"), ([], "count_all")])
    )
    spans = spans.sort_by("bucket").to_pylist()
    names = [f"{span['bucket']}" for span in spans]
    counts = [span["count_all"] for span in spans]
    table = [[name, str(s[f"{by}_min"]), str(s[f"{by}_max"]), s["count_all"]] for name, s in zip(names, spans, strict=True)]
    return Section(
        "Time buckets",
        [
            bar_chart(names, counts, label_axis="bucket", value_axis="images", caption="Images a bucket, before retrieval."),
            Table(["bucket", "first", "last", "images"], table, f"Limits of the buckets by {by}"),
        ],
    )


def _classes(config: ClearConfig, store: Store, made: Mapping[str, Artifact]) -> Section:
    blocks: list[Block] = []
    for stage, caption in (("retrieved", "retrieved"), ("voted", "confirmed by annotators"), ("chosen", "in the benchmark")):
        rows = _rows(store, made, stage)
        if rows is None or not rows.num_rows:
            continue
        table = rows.table(["concept", "bucket"])
        buckets = sorted(pc.unique(table["bucket"]).to_pylist())
        names = [
            *(each.name for each in config.classes),
            *([config.retrieval.background] if config.retrieval.background else []),
        ]
        counts = np.zeros((len(names), len(buckets)), dtype=np.int64)
        for item in table.group_by(["concept", "bucket"]).aggregate([([], "count_all")]).to_pylist():
            counts[names.index(item["concept"]), buckets.index(item["bucket"])] = item["count_all"]
        blocks.append(
            counts_table(counts, names, [f"{b}" for b in buckets], what="concept", caption=f"Images {caption}, by bucket")
        )
    return Section("Concepts", blocks or [Text(["Nothing is retrieved yet."])])


def _sheets(config: ClearConfig, store: Store, made: Mapping[str, Artifact]) -> list[Section]:
    rows = _rows(store, made, "chosen", "retrieved")
    if rows is None or not rows.num_rows:
        return []
    table = rows.table(["key", "concept", "bucket", "score", "rank", "image"])
    table = table.sort_by([("concept", "ascending"), ("bucket", "ascending"), ("rank", "ascending")])
    background = [config.retrieval.background] if config.retrieval.background else []
    present = set(table["concept"].to_pylist())
    names = [name for name in [*(each.name for each in config.classes), *background] if name in present]
    thumbs: dict[str, dict[str, list[Thumb]]] = {name: {} for name in names}
    for row in table.drop_columns(["image"]).append_column("at", pa.array(range(table.num_rows))).to_pylist():
        grid = thumbs[row["concept"]].setdefault(f"bucket {row['bucket']}", [])
        if len(grid) < _THUMBS:
            data = store.blob(table["image"][row["at"]].as_py()).read()
            grid.append(Thumb(small(data, _THUMB_PX, where=row["key"]), row["key"], row["score"]))
    intro = f"The first {_THUMBS} images of each class and bucket by rank, with the cosine of image and prompt."
    return [contact_section(thumbs, title="Contact sheets", intro=intro, side_px=_THUMB_PX)]


def _baselines(found: Sequence[Line], buckets: Sequence[str]) -> list[Section]:
    """A section a protocol; the matrices of all have one scale of colours, so that they can be compared."""
    matrices = [_matrices(line, buckets) for line in found]
    scale = common_scale([each.mean(0) for each in matrices]) if matrices else None
    sections: list[Section] = []
    for protocol in dict.fromkeys(line.protocol for line in found):
        pairs = [(line, each) for line, each in zip(found, matrices, strict=True) if line.protocol == protocol]
        sections.append(_baseline(protocol, pairs, buckets, scale))
    return sections


def _matrices(line: Line, buckets: Sequence[str]) -> np.ndarray:
    """(S, N, N) accuracies in [0, 1] over S seeds, NaN where not tested."""
    found = line.matrix("accuracy", buckets)
    return np.pad(found, ((0, 0), (0, len(buckets) - found.shape[1]), (0, 0)), constant_values=np.nan)


def _baseline(
    protocol: str, found: Sequence[tuple[Line, np.ndarray]], buckets: Sequence[str], scale: tuple[float, float] | None
) -> Section:
    blocks: list[Block] = []
    metrics = METRICS["iid" if protocol == "iid" else "streaming"]
    ours = [Scores.of(line.label, {name: line.values(name) for name in metrics}) for line, _ in found]
    paper = [scores for line, _ in found if (scores := _published(line.method, protocol)) is not None]
    headings = {name: name.replace("_", "-") for name in metrics}
    note = "other images, classes and features than the paper's. The published figures are shown for orientation only."
    blocks += metric_blocks(ours, paper, headings, fair=False, note=note, source="the CLEAR paper")
    for line, matrices in found:
        blocks += accuracy_blocks(matrices, buckets, method=line.label, scale=scale)
    return Section(f"Baselines, {protocol} protocol", blocks)


def _published(method: str, protocol: str) -> Scores | None:
    if method not in PUBLISHED:
        return None
    place = PUBLISHED[method]
    values: dict[str, float] = {}
    for ours, theirs in _PAPER_NAMES.items():
        column = theirs if protocol == "iid" else f"streaming_{theirs}"
        try:
            values[ours] = facts().figure(*place, column).percent / 100
        except KeyError:  # the paper does not print every metric for every row
            continue
    return Scores(f"{place[2]} ({place[0] or 'text'})", values) if values else None
