"""Publication of a KOWL run: the dataset, or the table of its increments, and its card."""

from __future__ import annotations

from ...curation.publish import HUB_SPLITS, DatasetCard, dataset_json, fact_of, parquet_bytes
from ...curation.run import Run
from ...curation.stage_rows import Rows
from ...curation.store import Store
from ...datasets.kowl.samples import COLUMNS, FEATURE
from ...datasets.kowl.tables import NEEDED, as_text, increment_table, published_table, recordings
from ..publish import publish_shards, write_files
from ..user_code import OwnSource
from .clips import with_clips
from .config import KowlConfig, TableSource


def recorded(rows: Rows) -> list[str]:
    """Columns that identify the recording of a clip."""
    return [name for name in ("youtube_id", "time_start", "group") if name in rows.column_names]


_ADDED = {
    "group": "what splits that were drawn do not share, such as the recording, where a list says it",
    "transform": "visual transform of the clip's frames, or none",
    "transform_parameters": "what was drawn for the transform, as JSON",
    "ava_timestamp_s": "key frame of AVA-Kinetics, seconds from the video's start",
    "ava_actions": "actions in the key frame: different ones, or all of all persons (ava.actions)",
    "ava_persons": "persons in the key frame",
    "ava_area": "mean area of the persons' boxes over the frame's",
    "stratum_area": "third by that area: SM, AVG, LG, or N/A",
    "stratum_activity": "types of the actions: PM, OM, PI, or N/A",
}
"""Meaning of the columns that optional stages add."""


def youtube_ids(config: KowlConfig) -> bool:
    """Whether the ids of a run's samples are known to be YouTube's; ids in user lists may be anything."""
    videos = [each for each in with_clips(config) if each.kind == "videos"]
    return not isinstance(config.source, TableSource | OwnSource) or any(each.names == "youtube" for each in videos)


def publish(run: Run, config: KowlConfig, folder: str) -> None:
    """Write the dataset: shards with index, card and manifest; or, without features, the table of increments with both."""
    rows = run.rows("increments")
    table = rows.table([*NEEDED, "label", *recorded(rows)])
    summary = (
        f"The samples of {', '.join(config.labels.releases)} in one label space, each used once, in increments that "
        f"introduce new classes (rules {config.increments.preset}, order {config.increments.order}).\n\n"
        f"Classes and samples of every increment, val and test together from increment 1 on, as in the paper's Table 1:\n\n"
        f"```\n{as_text(published_table(increment_table(table)))}```\n\n"
        f"{recordings(table, youtube=youtube_ids(config)).summary()}"
    )
    width = 0 if config.features is None else config.features.width
    releases = config.labels.releases
    card = DatasetCard(
        title="A KOWL-style benchmark",
        summary=summary,
        pipeline="kowl",
        digest=run.result.digest,
        licence="other",
        citation=_CITATION,
        members={
            FEATURE: {"dtype": "float32", "shape": [width], "features": config.features.kind if config.features else "none"},
            "json": {"holds": "key, increment, role, position, novel and label"},
        },
        columns={
            **COLUMNS,
            **_ADDED,
            **{f"label_{name}": f"label in {name}" for name in releases},
            **{f"split_{name}": f"split in {name}" for name in releases},
        },
        tags=["continual-learning", "open-world", "video-classification"],
        tasks=["video-classification"],
        labels={"label": sorted(set(table["label"].to_pylist()))},
        configurations={
            "default": {hub: {"role": role} for role, hub in HUB_SPLITS.items()},
            "increments": {f"increment_{n}": {"increment": n} for n in sorted(set(table["increment"].to_pylist()))},
        },
    )
    if config.features is None:
        _publish_table(run, card, folder)
    else:
        publish_shards(run, card, folder)


_CITATION = """D. S. Prijatelj et al. Human Activity Recognition in an Open World.
Journal of Artificial Intelligence Research 81, 2024."""


def _publish_table(run: Run, card: DatasetCard, folder: str) -> None:
    """Write ``increments.parquet``, ``README.md`` and ``dataset.json``, which depend only on the rows and the card."""
    index = run.rows().table()
    lines = [f"# {card.title}", "", card.summary, "", f"{index.num_rows:,} samples; content digest `{card.digest}`.", ""]
    lines += ["| column | meaning |", "| --- | --- |"]
    lines += [f"| `{name}` | {card.columns.get(name, '')} |" for name in index.column_names]
    lines += ["", "## Citation", "", "```", card.citation, "```", ""]
    files = {"increments.parquet": parquet_bytes(index), "README.md": "\n".join(lines).encode()}
    facts = {name: fact_of(data) for name, data in files.items()}
    files["dataset.json"] = dataset_json(card, index, {"samples": index.num_rows}, facts)
    write_files(Store(folder), files)
