"""Content digests that said how rows were handled rather than what they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchwright.curation.flow import source, step
from benchwright.curation.run import run
from benchwright.curation.verify import verify


@dataclass(frozen=True)
class Tagged:
    key: str
    tags: list[list[int]]


def read_tagged() -> Iterator[Tagged]:
    yield from (Tagged(f"k{n}", [[n, n], []]) for n in range(5))


def test_a_column_of_lists_has_one_digest(tmp_path: Path) -> None:
    """Rows at hand and rows read back from Parquet name the items of lists differently, and the name was hashed: worker
    processes, which read back, gave another digest than threads, and ``verify`` found fault with a whole run."""
    run(source("read", step(read_tagged)), str(tmp_path), scheduler="sync")
    assert verify(str(tmp_path)) == []
