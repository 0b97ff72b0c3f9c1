"""A pipeline of one's own: text files become shards, one sample a file, with the number of its words.

benchwright run docs/examples/words.py --config docs/examples/words.toml --set folder=texts --out out
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import benchwright as bw
import pyarrow as pa
from benchwright.curation.budget import Budget
from benchwright.curation.publish import DatasetCard
from benchwright.curation.run import Run
from benchwright.curation.stage_rows import Rows
from benchwright.pipelines.config import Location
from benchwright.pipelines.publish import publish_shards
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass as settings


@settings(frozen=True, config=ConfigDict(extra="forbid"))
class Config:
    folder: Location  # relative to the TOML file
    min_words: int
    max_rejects: float
    files_per_shard: int


@dataclass(frozen=True)
class Text:
    key: str
    text: bw.Blob


@dataclass(frozen=True)
class Counted:
    key: str
    text: bw.Blob
    words: int
    commonest: str


@dataclass(frozen=True)
class Placed:
    key: str
    shard: str


def read_texts(*, folder: str) -> Iterator[Text]:
    for path in sorted(Path(folder).glob("*.txt")):
        yield Text(path.stem, bw.Blob(path.read_bytes()))


def count_words(row: Text, *, min_words: int) -> Counted:
    words = re.findall(r"\w+", row.text.read().decode(errors="replace").lower())
    if len(words) < min_words:
        raise bw.Reject("too_short", f"{len(words)} words")
    return Counted(row.key, row.text, len(words), collections.Counter(sorted(words)).most_common(1)[0][0])


def place(rows: Rows, *, files_per_shard: int) -> pa.Table:
    table = rows.table()
    shards = [f"words-{number // files_per_shard:05d}" for number in range(table.num_rows)]
    return table.append_column("shard", pa.array(shards, pa.string()))


def sample(row: Counted) -> Mapping[str, Any]:
    return {"txt": row.text.read(), "json": {"words": row.words, "commonest": row.commonest}}


def plan(c: Config, out: str) -> bw.Flow:
    budget = Budget(c.max_rejects, "max_rejects")  # a message names the setting that would allow more
    return (
        bw.source("listed", bw.step(read_texts, folder=bw.where(c.folder)))
        .each("counted", bw.step(count_words, min_words=c.min_words), max_rejects=budget, rows_per_part=4)
        .whole("placed", bw.step(place, files_per_shard=c.files_per_shard), gives=Placed)
        .shards("shards", bw.step(sample))
    )


def publish(run: Run, c: Config, folder: str) -> None:
    members = {"txt": {"holds": "the text"}, "json": {"holds": "words: how many; commonest: which"}}
    card = DatasetCard("Words", "Text files and their words.", "words", run.result.digest, licence="other", members=members)
    publish_shards(run, card, folder)


BENCHMARK = bw.Benchmark(name="words", title="Text files and their words", config=Config, plan=plan, publish=publish)
