"""The facts of CLEAR-10 agree with one another, with the released files, and with what our code does at that size."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from benchwright.curation.rows import Sifted
from benchwright.curation.stages.choose import class_order
from benchwright.curation.stages.retrieval_rule import Rule
from benchwright.curation.stages.retrieve import Concept, retrieve_by_vectors
from benchwright.datasets.clear.facts import facts


def test_bucket_numbers() -> None:
    buckets = facts().buckets
    assert buckets.paper_per_bucket * buckets.count == 7_849_886 != buckets.images
    size, more = divmod(buckets.images, buckets.count)
    assert (size, more) == (713_636, 4)
    assert (size + 1) * more + size * (buckets.count - more) == buckets.images
    assert buckets.images < buckets.lines
    assert sorted([buckets.pretraining, *buckets.labelled]) == list(range(buckets.count))


def test_retrieval_and_choice_numbers() -> None:
    known = facts()
    retrieval, choice = known.retrieval, known.choice
    assert retrieval.background_per_prompt == int(retrieval.per_class * retrieval.background_share) == 60
    assert retrieval.background_per_prompt * len(known.classes) == retrieval.per_class == 600
    assert retrieval.per_bucket == (len(known.classes) + 1) * retrieval.per_class == 6_600
    assert choice.per_bucket == len(known.class_names) * choice.per_class == 3_300
    assert choice.images == choice.per_bucket * len(known.buckets.labelled) == 33_000
    assert choice.per_class <= retrieval.per_class <= retrieval.candidates


def test_protocol_numbers() -> None:
    known = facts()
    assert known.iid.test_per_bucket == int(known.iid.test_share * known.choice.per_bucket) == 990
    assert known.iid.train_per_bucket == known.choice.per_bucket - known.iid.test_per_bucket == 2_310
    assert known.iid.test_per_class == int(known.iid.test_share * known.choice.per_class) == 90
    assert known.iid.train_per_class == 210
    assert known.iid.test_per_class * len(known.class_names) == known.iid.test_per_bucket
    assert known.streaming.train_per_bucket == known.streaming.test_per_bucket == known.choice.per_bucket
    assert (known.reservoir.buffer_iid, known.reservoir.buffer_streaming) == (2_310, 3_300)


def test_class_names_are_in_the_order_of_the_labels() -> None:
    names = facts().class_names
    assert " ".join(names) == "BACKGROUND baseball bus camera cosplay dress hockey laptop racing soccer sweater"
    assert names == class_order([fact.name for fact in facts().classes], "BACKGROUND")


def test_workers_saw_every_class_once() -> None:
    known = facts()
    assert known.review.options == len(known.classes) + 1 == 11
    shown_as = {fact.shown.split(" (")[0]: fact for fact in known.classes}
    assert shown_as.keys() - {fact.name for fact in known.classes} == {"computer"}
    assert shown_as["computer"].name == "laptop"
    assert "computer" in shown_as["computer"].also
    assert known.review.none_of_the_above in known.review.label_question


def test_super_categories_and_queries_of_the_supplements_table_2() -> None:
    known = {fact.name: fact for fact in facts().classes}
    of = {kind: sorted(name for name, fact in known.items() if fact.super_category == kind) for kind in SUPER_CATEGORIES}
    assert of == {
        "Product": ["bus", "camera", "laptop"],
        "Fashion": ["dress", "sweater"],
        "Event": ["baseball", "cosplay", "hockey", "racing", "soccer"],
    }
    assert sum(len(fact.queries) for fact in known.values()) == 30
    assert known["laptop"].prompt in known["laptop"].queries
    assert list(known["hockey"].queries) == ["ice hockey", "field hockey"]


SUPER_CATEGORIES = ("Product", "Fashion", "Event")


def test_released_configuration_and_time_buckets(shared_data: Path) -> None:
    known = facts()
    config = json.loads((shared_data / "clear" / "clear_10_config.json").read_text())
    assert [fact.prompt for fact in known.classes] == config["GROUP"]
    assert known.retrieval.prefix == config["PREFIX"]
    assert known.retrieval.candidates == config["NUM_OF_IMAGES_PER_CLASS_PER_BUCKET_TO_QUERY"]
    assert known.retrieval.background_share == config["NEGATIVE_RATIO"]
    assert len(json.loads((shared_data / "clear" / "clear_10_time.json").read_text())) == known.buckets.count


class ManyRows:
    """Rows of a stage that was never written: vectors made when asked for, so that the published size fits a test."""

    def __init__(self, buckets: int, per_bucket: int, width: int) -> None:
        self.num_rows = buckets * per_bucket
        self._buckets, self._per_bucket, self._width = buckets, per_bucket, width

    def table(self, columns: list[str]) -> pa.Table:
        return pa.concat_tables(self.batches(columns))

    def batches(self, columns: Sequence[str] = ("key", "bucket")) -> Iterator[pa.Table]:
        for bucket in range(self._buckets):
            yield shuffled_keys(bucket, self._per_bucket).select(list(columns))

    def arrays(self, column: str) -> Iterator[np.ndarray]:
        assert column == "embedding"
        for bucket in range(self._buckets):
            yield unit(self._per_bucket, self._width, bucket)


@functools.cache
def shuffled_keys(bucket: int, count: int) -> pa.Table:
    keys = [f"{bucket * count + row:07d}" for row in range(count)]
    random.Random(bucket).shuffle(keys)
    return pa.table({"key": keys, "bucket": np.full(count, bucket)})


@functools.cache
def unit(count: int, width: int, seed: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).standard_normal((count, width), dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("overlap", ["as_released", "as_written"])
def test_retrieval_at_the_published_size_gives_6600_a_bucket(overlap: str) -> None:
    """Eleven buckets of 20,000 vectors, 16,000 candidates a prompt: most rows are claimed by most prompts."""
    known = facts()
    rows = ManyRows(known.buckets.count, 20_000, 16)
    concepts = [Concept(fact.name, (known.retrieval.prefix + fact.prompt,)) for fact in known.classes]
    rule = Rule(
        candidates=known.retrieval.candidates,
        per_class=known.retrieval.per_class,
        overlap=overlap,  # type: ignore[arg-type]
        background=known.retrieval.background,
        background_share=known.retrieval.background_share,
    )
    queries = unit(len(concepts), 16, 99)
    parts: list[Sifted] = list(retrieve_by_vectors(rows, queries, concepts=concepts, rule=rule))  # type: ignore[arg-type]
    kept = pa.concat_tables([part.kept for part in parts])
    rejected = pa.concat_tables([part.rejected for part in parts])
    assert kept.num_rows + rejected.num_rows == rows.num_rows
    assert len(set(kept["key"].to_pylist())) == kept.num_rows
    counts = kept.group_by(["bucket", "concept"]).aggregate([([], "count_all")])
    assert set(counts["count_all"].to_pylist()) == {known.retrieval.per_class}
    assert kept.num_rows == known.buckets.count * known.retrieval.per_bucket == 72_600
    background = kept.filter(pa.compute.equal(kept["concept"], known.retrieval.background))
    given = background.group_by(["bucket", "query"]).aggregate([([], "count_all")])
    assert set(given["count_all"].to_pylist()) == {known.retrieval.background_per_prompt}
    bus = kept.filter(pa.compute.equal(kept["concept"], "bus"))
    assert pa.compute.max(background["score"]).as_py() < 0 < pa.compute.min(bus["score"]).as_py()
