"""The content digest of a shards stage named keys and places alone: other payloads of the same size went unseen."""

from __future__ import annotations

from pathlib import Path

from benchwright.curation.flow import source, step
from benchwright.curation.keys import where
from benchwright.curation.run import run

from tests.curation import steps


def test_payloads_count_in_the_digest_of_shards(tmp_path: Path) -> None:
    digests = []
    for number, text in enumerate(("11\n12\n", "13\n14\n")):
        path = tmp_path / f"{number}.txt"
        path.write_text(text)
        listed = source("listed", step(steps.read_numbers, path=where(path)))
        drawn = listed.each("drawn", step(steps.draw, factor=0, seed=1))
        flow = drawn.whole("placed", step(steps.order_by_value, shards=1), gives=steps.Placed).shards(
            "shards", step(steps.sample)
        )
        done = run(flow, str(tmp_path / f"out{number}"), scheduler="sync")
        digests.append(done.result.digest)
        assert len(set(done.rows().table(["sha256"])["sha256"].to_pylist())) == 2
    assert digests[0] != digests[1]
