"""The HTML report of a vCLIMB run, composed of the blocks of ``eval.report``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from ...curation.artifact import Artifact
from ...curation.rows import REJECTS
from ...curation.store import Store
from ...curation.video.frames import unpack_frames
from ...datasets.vclimb.facts import facts
from ...datasets.vclimb.tables import coverage, leaks, per_task, table_1
from ...datasets.videos.rows import ROLES
from ...eval.report.blocks import Block, Card, Cards, Details, Section, Table, Text, Thumb, Value
from ...eval.report.images import small
from ...eval.report.sections import contact_section
from ...eval.results import Line, lines
from ..experiments import results
from ..own import shown
from ..report import finished_stages, write_page
from .baselines import baseline_settings
from .card import cut_warning, leak_warning, split_stage
from .config import DrawnSource, SplitFileSource, VclimbConfig
from .fairness import data_of
from .results import memory_section, results_section

_THUMB_PX = 80
_FRAMES = 8
"""Frames of a clip that a contact sheet shows at most, evenly placed."""

_CLASSES = 30
"""Classes with a contact sheet: enough to see what the sampler does, few enough for a page of some megabytes."""

_AFTER_SPLIT = ("matched", "probed", "sampled")
"""Stages that reject clips for what the copy holds."""


def write_report(config: VclimbConfig, out: str) -> str:
    """Write ``report.html`` into the run's local folder; an unfinished run has one, too. Returns its path."""
    store = Store(out)
    made = finished_stages(store)
    trained = lines(results(out))
    sections = [Section("Summary", [_cards(made, store, trained), *_caveats(config, made, store)])]
    whole = split_stage(made)
    if whole is not None and "task" in made[whole].rows_view(store).column_names:
        clips = made[whole].rows_view(store).table(["key", "task", "class_index", "label", "role", "group", "name"])
        sections += [_split(config, clips), _leaks(config, clips), _coverage(clips, made, store)]
    if "sampled" in made:
        sections += _frames(made["sampled"], store)
    if "shards" in made:
        rows = made["shards"].rows_view(store).table(["label", "role", "frames"])
        train = rows.filter(pc.equal(rows["role"], config.evaluation.roles[0]))
        stored = {"clips": train.num_rows, "frames": sum(train["frames"].to_pylist())}
        frames = config.evaluation.frames[0]
        sections.append(memory_section(config, stored, baseline_settings(config, config.evaluation.methods[0], frames)))
        for protocol in dict.fromkeys(line.protocol for line in trained):
            own = [line for line in trained if line.protocol == protocol]
            sections.append(results_section(protocol, own, data_of(made), rows))
    frames = config.frames
    chosen = "all frames" if frames.kind == "all" else f"{frames.n} frames a clip ({frames.kind})"
    subtitle = f"{shown(config.source.kind)}, {chosen}, seed {config.seed}"
    drawn = f"{shown(config.source.kind)}, seed {config.seed}"
    return write_page("A vCLIMB\u2011style benchmark", subtitle, sections, made, out, drawn=drawn)


def _cards(made: Mapping[str, Artifact], store: Store, trained: Sequence[Line]) -> Cards:
    cards: list[Card] = []
    whole = split_stage(made)
    if whole is not None:
        cards.append(Card("clips in the split", made[whole].rows, f"after stage {whole}"))
    lost = sum(sum(made[stage].rejects.values()) for stage in _AFTER_SPLIT if stage in made)
    cards.append(Card("missing or unusable", lost, "each with its reason", tone="note" if lost else "plain"))
    if "shards" in made:
        frames = made["shards"].rows_view(store).table(["frames"])["frames"]
        cards.append(Card("in the benchmark", made["shards"].rows, f"{sum(frames.to_pylist()):,} frames"))
    if trained:
        value, name, protocol = max((line.values("acc_class_weighted").mean(), line.label, line.protocol) for line in trained)
        cards.append(Card("best final accuracy", f"{100 * value:.1f} %", f"{name}, {protocol}"))
    return Cards(cards)


def _caveats(config: VclimbConfig, made: Mapping[str, Artifact], store: Store) -> list[Block]:
    told = [warning for warning in [cut_warning(config)] if warning]
    if isinstance(config.source, DrawnSource):
        told.append("The videos of this run are DRAWN from the seed: coloured squares. Scores say nothing about methods.")
    if "shards" in made:
        rows = made["shards"].rows_view(store).table(["label", "role", "group"])
        told += [warning for warning in [leak_warning(rows, config.evaluation.roles[2])] if warning]
    return [Text(told, tone="note")] if told else []


# --------------------------------------------------------------------------------------------------------------- tables


def _split(config: VclimbConfig, clips: pa.Table) -> Section:
    table = per_task(clips)
    counts = {name: table[name].to_pylist() for name in ("task", "classes", *ROLES)}
    rows: list[Sequence[Value]] = [[str(row[0]), *row[1:]] for row in zip(*counts.values(), strict=True)]
    total = ["all", *(sum(counts[name]) for name in ("classes", *ROLES))]
    blocks: list[Block] = [Table(["task", "classes", *ROLES], rows, "Clips of the split, before any is missing", total=total)]
    if isinstance(config.source, SplitFileSource):
        blocks += _table_1(config, clips, len(rows))
    frame = pl.DataFrame(pl.from_arrow(clips.select(["task", "class_index", "label", "role"])))
    by_class = (
        frame.group_by("task", "class_index", "label")
        .agg(*((pl.col("role") == role).sum().cast(pl.Int64).alias(role) for role in ROLES))
        .sort("class_index")
    )
    order: list[Sequence[Value]] = [[r[2], str(r[0]), str(r[1]), *r[3:]] for r in by_class.rows()]
    blocks.append(Details("Classes in the order of learning", [Table(["class", "task", "index", *ROLES], order)]))
    return Section("Split", blocks)


def _table_1(config: VclimbConfig, clips: pa.Table, tasks: int) -> list[Block]:
    facts_of = facts().datasets[config.evaluation.dataset]
    if tasks not in facts_of.per_task:
        return []
    published = facts_of.per_task[tasks]
    ours = table_1(clips, facts_of.per_task_rule)
    rows: list[Sequence[Value]] = [["this run", *(ours.get(r) for r in ROLES)], ["Table 1", *(published.get(r) for r in ROLES)]]
    same = ours == dict(published)
    verdict = "Table 1 of the paper, to the digit." if same else "These are not the counts of Table 1."
    return [
        Table(["", *ROLES], rows, f"Clips a task, {tasks} tasks (mean, {facts_of.per_task_rule} as in the table)"),
        Text([verdict], tone="good" if same else "note"),
    ]


def _leaks(config: VclimbConfig, clips: pa.Table) -> Section:
    role = config.evaluation.roles[2]
    by_group, by_video = (leaks(clips, by=by, role=role) for by in ("group", "name"))
    rows: list[Sequence[Value]] = [
        [what, one.of, one.groups, one.classes, one.tested, one.clips, 100 * one.clips / one.tested if one.tested else None]
        for what, one in (("group", by_group), ("video", by_video))
    ]
    headings = ["by", "there are", f"in train and {role}", "classes with one", f"{role} clips", "of them leaked", "%"]
    blocks: list[Block] = [Table(headings, rows, f"What train and {role} share", decimals=1)]
    if by_group.groups:
        lines = [list(row.values()) for row in by_group.by_class.to_pylist() if row["shared"]]
        table = Table(["class", "groups", "shared", f"{role} clips", "leaked"], lines)
        blocks += [Text([leak_warning(clips, role)], tone="note"), Details("By class", [table])]
    else:
        blocks.append(Text([f"No group stands in train and in {role}."], tone="good"))
    return Section("Leaks", blocks)


def _coverage(clips: pa.Table, made: Mapping[str, Artifact], store: Store) -> Section:
    tables = [store.read_parquet(name) for stage in _AFTER_SPLIT if stage in made for name in made[stage].reject_files()]
    rejects = pa.concat_tables([REJECTS.empty_table(), *(table.select(REJECTS.names).cast(REJECTS) for table in tables)])
    table = coverage(clips, rejects)
    reasons = [name for name in table.column_names if name not in ("task", "label", "role", "listed", "usable")]
    if not reasons:
        told = "The copy has every clip of the split, and every one can be used."
        if rejects.num_rows:
            told = f"Roles were drawn over what can be used: {rejects.num_rows:,} clips, which cannot, are not in the split."
        return Section("Coverage", [Text([told], tone="note" if rejects.num_rows else "good")])
    frame = pl.DataFrame(pl.from_arrow(table))
    sums = frame.group_by("task", maintain_order=True).agg(pl.col("listed", "usable", *reasons).sum())
    headings = ["listed", "usable", *(reason.replace("_", " ") for reason in reasons)]
    by_task: list[Sequence[Value]] = [[str(row[0]), *row[1:]] for row in sums.rows()]
    total = ["all", *sums.drop("task").sum().row(0)]
    short = frame.filter(pl.col("usable") < pl.col("listed"))
    lacking: list[Sequence[Value]] = [[row[1], str(row[0]), *row[2:]] for row in short.rows()]
    fold = Details(
        f"Classes that lack clips ({short['label'].n_unique()})", [Table(["class", "task", "role", *headings], lacking)]
    )
    empty = frame.filter(pl.col("usable") == 0)
    blocks: list[Block] = [
        Table(["task", *headings], by_task, "Clips of the split, and why some are not used", total=total),
        fold,
    ]
    if empty.height:
        gone = ", ".join(f"{row[1]} ({row[2]})" for row in empty.head(10).rows())
        blocks.insert(0, Text([f"Without any clip: {gone}{' and more' if empty.height > 10 else ''}."], tone="bad"))
    return Section("Coverage", blocks)


# --------------------------------------------------------------------------------------------------------------- frames


def _frames(artifact: Artifact, store: Store) -> list[Section]:
    rows = artifact.rows_view(store)
    table = rows.table(["container", "codec", "fps", "width_px", "height_px", "n_available", "frame_sizes"])
    frame = pl.DataFrame(pl.from_arrow(table)).with_columns(stored=pl.col("frame_sizes").list.len())
    if not frame.height:
        return []
    blocks: list[Block] = [Table(["of a clip", "least", "mean", "most"], _ranges(frame), "Frames and sizes", decimals=1)]
    files = frame.group_by("container", "codec").agg(clips=pl.len()).sort("clips", "codec", descending=[True, False])
    blocks.append(Table(["container", "codec", "clips"], files.rows(), "What the files are"))
    return [Section("Frames", blocks), _sheets(artifact, store)]


def _ranges(frame: pl.DataFrame) -> list[Sequence[Value]]:
    shown = {
        "frames in the video or segment": frame["n_available"],
        "frames stored": frame["stored"],
        "frames a second": frame["fps"],
        "width stored, pixels": frame["width_px"],
        "height stored, pixels": frame["height_px"],
        "bytes of JPEG": frame["frame_sizes"].list.sum(),
    }
    return [[name, c.min(), c.mean(), c.max()] for name, c in shown.items()]  # type: ignore[list-item]


def _sheets(artifact: Artifact, store: Store) -> Section:
    rows = artifact.rows_view(store)
    table = rows.table(["key", "label", "class_index", "role", "frame_sizes", "frame_index", "frame_time_s", "frames"])
    place = pl.DataFrame({"class_index": table["class_index"].to_numpy(), "role": table["role"].to_pylist()}).with_row_index(
        "at"
    )
    # The first clip of each role of a class shows what train and test look like.
    first = place.group_by("class_index", "role", maintain_order=True).agg(pl.col("at").first()).sort("class_index", "at")
    thumbs: dict[str, dict[str, list[Thumb]]] = {}
    for row in (
        table.drop_columns(["frames"])
        .take(pa.array(first["at"].to_list()))
        .append_column("at", pa.array(first["at"].to_list()))
        .to_pylist()
    ):
        if row["label"] not in thumbs and len(thumbs) == _CLASSES:
            break
        jpegs = unpack_frames(store.blob(table["frames"][row["at"]].as_py()).read(), row["frame_sizes"])
        thumbs.setdefault(row["label"], {})[f"{row['role']}: {row['key']}, {len(jpegs)} frames"] = _strip(row, jpegs)
    intro = (
        f"The first clip of each role of {'each class' if len(thumbs) < _CLASSES else f'the first {_CLASSES} classes'}: up to "
        f"{_FRAMES} of its stored frames, with their place in the file and their time."
    )
    return contact_section(thumbs, title="What the sampler chose", intro=intro, side_px=_THUMB_PX)


def _strip(row: Mapping[str, Any], jpegs: Sequence[bytes]) -> list[Thumb]:
    shown = sorted({len(jpegs) * (2 * n + 1) // (2 * _FRAMES) for n in range(_FRAMES)})
    return [
        Thumb(
            small(jpegs[at], _THUMB_PX, where=row["key"]),
            f"{row['frame_index'][at]}: {row['frame_time_s'][at]:.2f} s",
        )
        for at in shown
    ]
