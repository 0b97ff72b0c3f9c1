"""Counting and judging votes: ours beside duckdb SQL and a loop over dictionaries (what the released scripts do).

Votes are drawn at random for made-up images: three workers, two forms. All run on the same table in one process,
interleaved, and must agree on which images stay. The loop runs on a part of the images and its time is given per vote.

    python benchmarks/bench_votes.py            8 million votes
    python benchmarks/bench_votes.py --quick    0.5 million
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable

import duckdb
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
from benchwright.curation.qa.votes import VOTES, aggregate_votes

CLASSES = [f"class{i:02d}" for i in range(10)]
LOOP_IMAGES = 50_000

SQL = """
WITH cast_votes AS (
    SELECT i.key, i.concept, v.form, v.sensitive, len(v.labels) AS n, list_contains(v.labels, i.concept) AS has
    FROM images i JOIN votes v USING (key)
)
SELECT i.key,
       count(*) FILTER (form = 'labels' AND n = 1 AND has) AS votes_exact,
       count(*) FILTER (form = 'labels' AND n > 1 AND has) AS votes_extra,
       count(*) FILTER (form = 'labels' AND n > 0 AND NOT has) AS votes_wrong,
       count(*) FILTER (form = 'labels' AND n = 0) AS votes_none,
       count(*) FILTER (form = 'sensitive' AND c.sensitive) AS votes_sensitive,
       votes_sensitive < 1 AND count(*) FILTER (form = 'labels') >= 3 AND count(*) FILTER (form = 'sensitive') >= 3
         AND CASE WHEN any_value(i.concept) = 'BACKGROUND' THEN votes_none >= 2 ELSE votes_exact >= 2 END AS stays
FROM images i LEFT JOIN cast_votes c USING (key) GROUP BY i.key, i.at ORDER BY i.at
"""


class Peak:
    """Resident memory above that at the start, looked at every 5 ms; the loop's is for its part of the votes."""

    def __enter__(self) -> Peak:
        self._process = psutil.Process()
        self._before = self._process.memory_info().rss
        self._stop = threading.Event()
        self.mib = 0.0
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.005):
            self.mib = max(self.mib, (self._process.memory_info().rss - self._before) / 2**20)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def made_up(images: int) -> tuple[pa.Table, pa.Table]:
    """Images and their votes, shuffled as batches come in."""
    random = np.random.default_rng(0)
    keys = [f"{7_000_000_000 + 37 * i}" for i in range(images)]
    concept = random.integers(0, 11, images)
    names = np.array([*CLASSES, "BACKGROUND"])
    at = np.repeat(np.arange(images), 3)
    first = np.where(random.random(len(at)) < 0.85, concept[at], random.integers(0, 11, len(at)))
    chosen = (first < 10).astype(np.int64)
    extra = (random.random(len(at)) < 0.05) & (chosen == 1)
    offsets = np.concatenate([[0], np.cumsum(chosen + extra)])
    flat = np.empty(offsets[-1], np.int64)
    flat[offsets[:-1][chosen == 1]] = first[chosen == 1]
    flat[offsets[:-1][extra] + 1] = (first[extra] + 1) % 10
    labels = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(names).take(pa.array(flat)))
    key = pa.array(keys).take(pa.array(at))
    worker = pa.array([f"{i:016x}" for i in range(200)]).take(pa.array(random.integers(0, 200, len(at))))
    seconds = pa.array(random.random(len(at)) * 30)
    nothing = pa.nulls(len(at), pa.list_(pa.string()))
    yes = pa.array(random.random(len(at)) < 0.002)
    none = pa.nulls(len(at), pa.string())
    form = [pa.array([name]).take(pa.array(np.zeros(len(at), np.int64))) for name in ("labels", "sensitive")]
    votes = pa.concat_tables(
        [
            pa.table([key, form[0], worker, labels, pa.nulls(len(at), pa.bool_()), seconds, none], schema=VOTES),
            pa.table([key, form[1], worker, nothing, yes, seconds, none], schema=VOTES),
        ]
    )
    votes = votes.take(pa.array(random.permutation(votes.num_rows))).combine_chunks()
    return pa.table({"key": keys, "concept": pa.array(names).take(pa.array(concept)), "at": np.arange(images)}), votes


def ours(images: pa.Table, votes: pa.Table) -> np.ndarray:
    return np.asarray(aggregate_votes(images, votes, background="BACKGROUND")["reason"].is_null())


def sql(images: pa.Table, votes: pa.Table) -> np.ndarray:
    with duckdb.connect() as connection:
        connection.register("images", images)
        connection.register("votes", votes)
        return np.asarray(connection.sql(SQL).to_arrow_table()["stays"])


def loop(images: pa.Table, votes: pa.Table) -> np.ndarray:
    by_key: dict[str, tuple[list[list[str]], list[bool]]] = {key: ([], []) for key in images["key"].to_pylist()}
    for vote in votes.to_pylist():
        labels, sensitive = by_key[vote["key"]]
        if vote["form"] == "labels":
            labels.append(vote["labels"])
        else:
            sensitive.append(vote["sensitive"])
    stays: list[bool] = []
    for key, concept in zip(images["key"].to_pylist(), images["concept"].to_pylist(), strict=True):
        labels, sensitive = by_key[key]
        right = [] if concept == "BACKGROUND" else [concept]
        stays.append(len(labels) > 2 and len(sensitive) > 2 and not any(sensitive) and labels.count(right) >= 2)
    return np.array(stays)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="0.5 million votes, two repetitions")
    parser.add_argument("--votes", type=int, default=8_000_000)
    settings = parser.parse_args()
    images, votes = made_up((500_000 if settings.quick else settings.votes) // 6)
    few = images.slice(0, min(LOOP_IMAGES, images.num_rows))
    few_votes = votes.filter(pc.is_in(votes["key"], value_set=few["key"].combine_chunks()))
    print(f"{votes.num_rows:,} votes on {images.num_rows:,} images; the loop: {few_votes.num_rows:,} votes")
    methods: dict[str, tuple[Callable[[pa.Table, pa.Table], np.ndarray], pa.Table, pa.Table]] = {
        "benchwright": (ours, images, votes),
        "duckdb SQL": (sql, images, votes),
        "loop over dicts": (loop, few, few_votes),
    }
    times: dict[str, list[float]] = {name: [] for name in methods}
    peaks: dict[str, float] = {}
    results: dict[str, np.ndarray] = {}
    for _ in range(2 if settings.quick else 3):
        for name, (method, some_images, some_votes) in methods.items():
            with Peak() as peak:
                start = time.perf_counter()
                results[name] = method(some_images, some_votes)
                times[name].append(time.perf_counter() - start)
            peaks[name] = max(peak.mib, peaks.get(name, 0.0))
    if not np.array_equal(results["benchwright"], results["duckdb SQL"]):
        raise SystemExit("benchwright and duckdb do not keep the same images")
    if not np.array_equal(results["benchwright"][: few.num_rows], results["loop over dicts"]):
        raise SystemExit("benchwright and the loop do not keep the same images")
    per_vote = {name: statistics.median(taken) / methods[name][2].num_rows for name, taken in times.items()}
    print(f"{'method':<18}{'s':>8}{'ns a vote':>12}{'ratio':>8}{'peak MiB':>11}")
    for name, taken in times.items():
        ratio = per_vote[name] / per_vote["benchwright"]
        line = f"{statistics.median(taken):>8.2f}{per_vote[name] * 1e9:>12.0f}{ratio:>8.2f}{peaks[name]:>11.0f}"
        print(f"{name:<18}{line}")
    print(f"kept {int(results['benchwright'].sum()):,} of {images.num_rows:,} images; the same by all methods")


if __name__ == "__main__":
    main()
