"""The HTML report of a vCLIMB run, composed of the blocks of ``eval.report``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from ...curation.rows import REJECTS
from ...curation.stage_rows import Rows
from ...curation.store import Store
from ...curation.video.frames import unpack_frames
from ...datasets.roles import ROLES
from ...datasets.vclimb.facts import facts
from ...datasets.vclimb.tables import coverage, leaks, memory_lines, memory_share
from ...eval.report.blocks import Block, Card, CellValue, Details, Section, Table, Text, Thumb
from ...eval.report.images import enlarged, small
from ...eval.report.sections import contact_section, task_table
from ..names import short
from ..report import ReportedRun, write_page
from .baselines import baseline_rows, baseline_settings
from .card import cut_warning, leak_warning, split_stage, unknown_warning
from .config import DrawnVideos, VclimbConfig
from .joined_runs import joined_section
from .paper import data_of
from .table_1 import TABLE_1, table_1_rows
from .training_sections import memories_section, results_section

_THUMB_PX = 80
_FRAMES = 8
"""Most frames of a clip on a contact sheet, evenly spaced."""
_CLASSES = 30
"""Most classes with a contact sheet: enough to judge the sampling, few enough for a page of some megabytes."""
_AFTER_SPLIT = ("matched", "probed", "sampled")
"""Stages that reject missing or unusable clips."""


def write_report(config: VclimbConfig, out: str, beside: Sequence[str] = ()) -> str:
    """Write ``report.html`` into the run's local folder, also for an unfinished run. Returns its path.

    Args:
        config: settings of the run.
        out: the run.
        beside: other runs, whose results are joined with this one's in the form of the paper's tables.
    """
    run = ReportedRun.of(out)
    sections: list[Section] = []
    sampled = run.rows("sampled")
    clips = run.rows(*filter(None, [split_stage(run.made)]))
    if clips is not None and "task" in clips.column_names:
        columns = ["key", "task", "class_index", "label", "role", "group", "name", "video_s"]
        table = clips.table([name for name in columns if name in clips.column_names])
        sections += [_split(config, table, run), _leaks(config, table), _coverage(table, run)]
    if sampled is not None:
        sections += [_frames(sampled), _sheets(sampled, run.store)]
    frames, chosen = config.frames, "all frames"
    if frames.kind != "all":
        chosen = f"{frames.n} frames per clip ({frames.kind})"
    cards = run.cards((split_stage(run.made) or "", "clips in the split", "missing clips included"))
    if (rows := run.rows("shards")) is not None:
        table = rows.table(["label", "role", "group", "frames"])
        cards.append(Card("in the benchmark", table.num_rows, f"{pc.sum(table['frames']).as_py():,} frames"))
        sections.append(_memory(config, table))
        sections += [results_section(name, found, data_of(run.made), table) for name, found in run.protocols.items()]
        sections += memories_section(run.protocols)
    if beside:
        sections.append(joined_section([out, *beside]))
    return write_page(
        run,
        "A vCLIMB\u2011style benchmark",
        f"{short(config.source.kind)}, {chosen}, seed {config.seed}",
        cards=[*cards, *run.best("best final accuracy", "acc_class_weighted")],
        notes=_notes(config, run),
        sections=sections,
        drawn=f"{short(config.source.kind)}, seed {config.seed}",
    )


def _notes(config: VclimbConfig, run: ReportedRun) -> list[str]:
    lines = [cut_warning(config)]
    if isinstance(config.source, DrawnVideos):
        lines.append(
            "The videos of this run are SYNTHETIC, generated from the seed: coloured squares. Scores say nothing about methods."
        )
    if (rows := run.rows("shards")) is not None:
        lines.append(leak_warning(rows.table(["label", "role", "group"]), config.evaluation.roles[2]))
    return [warning for warning in lines if warning]


def _split(config: VclimbConfig, clips: pa.Table, run: ReportedRun) -> Section:
    table = task_table(clips, ROLES, "Clips of the split, missing ones included")
    blocks: list[Block] = [table, *_table_1(config, run)]
    frame = pl.DataFrame(pl.from_arrow(clips.select(["label", "task", "class_index", "role"])))
    counts = [(pl.col("role") == role).sum().cast(pl.Int64).alias(role) for role in ROLES]
    by_class = frame.group_by("label", pl.col("task", "class_index").cast(pl.String)).agg(*counts)
    order = by_class.sort(pl.col("class_index").cast(pl.Int64)).rows()
    classes = Table(["class", "task", "index", *ROLES], order)
    return Section("Split", [*blocks, Details("Classes, in the order in which they are learned", [classes])])


def _table_1(config: VclimbConfig, run: ReportedRun) -> list[Block]:
    if (found := table_1_rows(config, run)) is None:
        return []
    same = found.ours[: len(ROLES)] == found.papers[: len(ROLES)]
    verdict = f"The counts {'equal' if same else 'differ from'} those of the paper's Table 1."
    rule, role = facts().datasets[found.dataset].per_task_rule, config.evaluation.roles[2]
    caption = f"Clips per task, {found.tasks} tasks (mean, {rule}, as in Table 1); frames: mean over {role} clips"
    whole = ", of the whole video, once for each of its clips" if found.dataset.startswith("activitynet") else ""
    rows = [["this run", *found.ours], ["Table 1", *found.papers]]
    return [Table(["", *TABLE_1], rows, f"{caption}{whole}"), Text([verdict], tone="good" if same else "note")]


def _leaks(config: VclimbConfig, clips: pa.Table) -> Section:
    role = config.evaluation.roles[2]
    by_group, by_video = (leaks(clips, by=by, role=role) for by in ("group", "name"))
    rows: list[Sequence[CellValue]] = [
        [what, one.of, one.groups, one.classes, one.tested, one.clips, 100 * one.clips / one.tested if one.tested else None]
        for what, one in (("group", by_group), ("video", by_video))
    ]
    headings = ["by", "number", f"in train and {role}", "classes affected", f"{role} clips", "of them leaked", "%"]
    blocks: list[Block] = [Table(headings, rows, f"Groups and videos shared by train and {role}", decimals=1)]
    if by_group.groups:
        lines = [list(row.values()) for row in by_group.by_class.to_pylist() if row["shared"]]
        table = Table(["class", "groups", "shared", f"{role} clips", "leaked"], lines)
        blocks += [Text([leak_warning(clips, role)], tone="note"), Details("By class", [table])]
    elif told := unknown_warning(config, clips, role):
        blocks.append(Text([told], tone="note"))
    else:
        blocks.append(Text([f"No group is in both train and {role}."], tone="good"))
    return Section("Leaks", blocks)


def _coverage(clips: pa.Table, run: ReportedRun) -> Section:
    later = [run.made[stage] for stage in _AFTER_SPLIT if stage in run.made]
    tables = [run.store.read_parquet(name) for stage in later for name in stage.reject_files()]
    rejects = pa.concat_tables([REJECTS.empty_table(), *(table.select(REJECTS.names).cast(REJECTS) for table in tables)])
    table = coverage(clips, rejects)
    reasons = [name for name in table.column_names if name not in ("task", "label", "role", "listed", "usable")]
    if not reasons:
        text = "The copy contains every clip of the split, and all are usable."
        if rejects.num_rows:
            text = f"Roles were drawn among the usable clips: {rejects.num_rows:,} unusable clips are not in the split."
        return Section("Coverage", [Text([text], tone="note" if rejects.num_rows else "good")])
    frame = pl.DataFrame(pl.from_arrow(table))
    sums = frame.group_by("task", maintain_order=True).agg(pl.col("listed", "usable", *reasons).sum())
    headings = ["listed", "usable", *(reason.replace("_", " ") for reason in reasons)]
    by_task: list[Sequence[CellValue]] = [[str(row[0]), *row[1:]] for row in sums.rows()]
    total = ["all", *sums.drop("task").sum().row(0)]
    short = frame.filter(pl.col("usable") < pl.col("listed"))
    lacking: list[Sequence[CellValue]] = [[row[1], str(row[0]), *row[2:]] for row in short.rows()]
    fold = Details(
        f"Classes with unused clips ({short['label'].n_unique()})", [Table(["class", "task", "role", *headings], lacking)]
    )
    empty = frame.filter(pl.col("usable") == 0)
    blocks: list[Block] = [
        Table(["task", *headings], by_task, "Clips of the split, and why some are not used", total=total),
        fold,
    ]
    if empty.height:
        gone = ", ".join(f"{row[1]} ({row[2]})" for row in empty.head(10).rows())
        blocks.insert(0, Text([f"No clip left: {gone}{' and more' if empty.height > 10 else ''}."], tone="bad"))
    return Section("Coverage", blocks)


def _frames(rows: Rows) -> Section:
    table = rows.table(["container", "codec", "fps", "width_px", "height_px", "n_available", "frame_sizes"])
    frame = pl.DataFrame(pl.from_arrow(table)).with_columns(stored=pl.col("frame_sizes").list.len())
    files = frame.group_by("container", "codec").agg(clips=pl.len()).sort("clips", "codec", descending=[True, False])
    return Section(
        "Frames",
        [
            Table(["per clip", "min", "mean", "max"], _ranges(frame), "Frames and sizes", decimals=1),
            Table(["container", "codec", "clips"], files.rows(), "Containers and codecs"),
        ],
    )


def _ranges(frame: pl.DataFrame) -> list[Sequence[CellValue]]:
    shown = {
        "frames in the video or segment": frame["n_available"],
        "frames stored": frame["stored"],
        "frames per second": frame["fps"],
        "stored width, pixels": frame["width_px"],
        "stored height, pixels": frame["height_px"],
        "JPEG bytes": frame["frame_sizes"].list.sum(),
    }
    return [[name, c.min(), c.mean(), c.max()] for name, c in shown.items()]  # type: ignore[list-item]


def _sheets(rows: Rows, store: Store) -> Section:
    table = rows.table(["key", "label", "class_index", "role", "frame_sizes", "frame_index", "frame_time_s", "frames"])
    frame = pl.DataFrame(pl.from_arrow(table.select(["class_index", "role"]))).with_row_index("at")
    # The first clip of each role of a class shows what train and test look like.
    first = frame.unique(["class_index", "role"], keep="first", maintain_order=True).sort("class_index", "at")
    thumbs: dict[str, dict[str, list[Thumb]]] = {}
    for row in table.take(pa.array(first["at"].to_list())).to_pylist():
        if row["label"] not in thumbs and len(thumbs) == _CLASSES:
            break
        jpegs = unpack_frames(store.blob(row["frames"]).read(), row["frame_sizes"])
        thumbs.setdefault(row["label"], {})[f"{row['role']}: {row['key']}, {len(jpegs)} frames"] = _strip(row, jpegs)
    intro = (
        f"The first clip of each role of {'each class' if len(thumbs) < _CLASSES else f'the first {_CLASSES} classes'}: up to "
        f"{_FRAMES} of its stored frames, with their index in the file and their time."
    )
    return contact_section(thumbs, title="Sampled frames", intro=intro, side_px=_THUMB_PX, facets=["class", "role"])


def _strip(row: Mapping[str, Any], jpegs: Sequence[bytes]) -> list[Thumb]:
    shown = sorted({len(jpegs) * (2 * n + 1) // (2 * _FRAMES) for n in range(_FRAMES)})
    return [
        Thumb(
            small(jpegs[at], enlarged(_THUMB_PX), where=row["key"]),
            f"{row['frame_index'][at]}: {row['frame_time_s'][at]:.2f} s",
        )
        for at in shown
    ]


def _memory(config: VclimbConfig, clips: pa.Table) -> Section:
    """Size of memories in frames: with this run's settings, and with the paper's.

    Args:
        config: settings, whose first method defines the memory.
        clips: ``role`` and ``frames`` of the dataset.
    """
    trained = baseline_rows(config)
    memory = baseline_settings(config, *trained[0])["memory"]
    stored = clips.filter(pc.equal(clips["role"], config.evaluation.roles[0]))["frames"].to_numpy()
    rows: list[Sequence[CellValue]] = []
    if len(stored):
        for frames in dict.fromkeys(frames for _, frames in trained):
            of_clip = stored.mean() if frames == "all" else min(frames, stored.mean())
            clips_held = min(memory["size"] if memory["unit"] == "samples" else int(memory["size"] / of_clip), len(stored))
            held = clips_held * of_clip
            rows.append([f"{frames}", memory["size"], clips_held, round(held), 100 * held / stored.sum()])
    f = facts()
    lines = memory_lines(f.memory, {name: one.frames_per_video for name, one in f.datasets.items()})
    stated: list[Sequence[CellValue]] = [
        [
            line.dataset,
            line.videos,
            str(line.frames_per_video or "all"),
            line.frames,
            line.in_paper,
            memory_share(line.frames, f.datasets[line.dataset]),
            None if line.frames_per_video else f.memory[line.dataset].share_percent_in_paper,
        ]
        for line in lines
    ]
    share = ["frames per clip", "capacity", "clips, at most", "frames, at most", "% of the training frames"]
    headings = ["dataset", "videos", "frames per video", "frames, computed", "frames in the paper"]
    headings += ["% of the training frames", "% in the paper"]
    return Section(
        "Memory in frames",
        [
            Table(share, rows, f"This run: a capacity of {memory['size']} {memory['unit']}", decimals=1),
            Table(headings, stated, "The settings of the paper's tables", decimals=2),
            Text(["For ActivityNet-Trim the paper counts the frames of whole videos; a segment has about 1,490."]),
        ],
    )
