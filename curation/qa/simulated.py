"""SIMULATED annotators, for demonstrations and tests: they answer exported batches in result files like those of
Mechanical Turk.

No person has seen the images. Titles, worker ids and file names contain ``SIMULATED``, so that the real import code can be
used without the result being mistaken for real votes.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import hashlib
import json
import posixpath
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from ..keys import WhereOfRows
from ..local_files import remove, remove_half_written, replacing
from ..rng import uniform
from ..run import Run
from ..store import Store
from .imports import in_order, read_results
from .mturk import COLUMNS, unguard_formula
from .mturk_results import ANSWER_COLUMNS
from .options import NO, YES, Option, classes_to_answers
from .rounds import POOL, SIMULATED, ErrorRates, Round, asked_rows, export_questions, questions_of, votes_place
from .votes import FORMS, write_votes

RESULT_HEADER = (
    *("HITId", "HITTypeId", "Title", "Description", "Keywords", "Reward", "CreationTime", "MaxAssignments"),
    *("RequesterAnnotation", "AssignmentDurationInSeconds", "AutoApprovalDelayInSeconds", "Expiration"),
    *("NumberOfSimilarHITs", "LifetimeInSeconds", "AssignmentId", "WorkerId", "AssignmentStatus", "AcceptTime"),
    *("SubmitTime", "AutoApprovalTime", "ApprovalTime", "RejectionTime", "RequesterFeedback", "WorkTimeInSeconds"),
    *("LifetimeApprovalRate", "Last30DaysApprovalRate", "Last7DaysApprovalRate"),
)
"""Columns of a Mechanical Turk result file before ``Input.*``, ``Answer.*``, ``Approve`` and ``Reject``."""


def simulate_results(
    batches: Sequence[str],
    truth: pa.Table,
    folder: str,
    *,
    options: Sequence[Option],
    seed: int,
    workers: int = 3,
    pool: int = POOL,
    errors: ErrorRates | None = None,
) -> list[str]:
    """Let SIMULATED workers answer exported batches; write two result files per batch, one for each form.

    Args:
        batches: the CSVs of ``mturk.export_batches``.
        truth: ``key``, ``true_class`` (a class without option, or null, is none of the above) and optionally
            ``true_sensitive`` (bool), for all images of the batches, including gold questions.
        folder: output folder of ``SIMULATED_<batch>_labels.csv`` and ``SIMULATED_<batch>_sensitive.csv``.
        options: the choices of the label form.
        seed: seed of all answers. An answer depends only on seed, image key and worker, not on other images or their order.
        workers: number of answers per image on each form, all by different workers.
        pool: number of workers in total.
        errors: probabilities of wrong answers; None: the defaults of ``ErrorRates``.

    Returns:
        The paths of the files, in the order of ``batches``, labels before sensitive.

    Raises:
        ValueError: an image without truth, or more answers per image than workers.
    """
    if not 1 <= workers <= pool:
        raise ValueError(f"workers = {workers}: it must be between 1 and pool = {pool}")
    if "true_class" not in truth.column_names:
        raise ValueError(f"simulated annotators need a column 'true_class'; there are {', '.join(truth.column_names)}")
    answers = dict(zip(truth["key"].to_pylist(), truth["true_class"].to_pylist(), strict=True))
    yes: dict[str, bool] = {}
    if "true_sensitive" in truth.column_names:
        yes = dict(zip(truth["key"].to_pylist(), truth["true_sensitive"].to_pylist(), strict=True))
    crowd = _Crowd(options, answers, yes, errors or ErrorRates(), seed, workers, pool)
    Path(folder).mkdir(parents=True, exist_ok=True)
    written: list[str] = []
    for batch in batches:
        with open(batch, encoding="utf-8", newline="") as file:
            inputs = list(csv.DictReader(file))
        for form in FORMS:
            path = Path(folder) / f"SIMULATED_{Path(batch).stem}_{form}.csv"
            _write(path, form, crowd.rows(inputs, form))
            written.append(str(path))
    return written


@dataclasses.dataclass(frozen=True)
class _Crowd:
    options: Sequence[Option]
    truth: Mapping[str, str | None]
    sensitive: Mapping[str, bool]
    errors: ErrorRates
    seed: int
    workers: int
    pool: int

    def rows(self, inputs: Sequence[Mapping[str, str]], form: str) -> Iterator[dict[str, str]]:
        """Yield one result row per answer."""
        names = [f"SIMULATED{number:03d}" for number in range(self.pool)]
        for line in inputs:
            key = unguard_formula(line["ID"])
            if key not in self.truth:
                raise ValueError(f"image {key!r}: no true_class is given for it")
            order = np.argsort(uniform(self.seed, f"simulated_{form}_workers", (f"{key} {name}" for name in names)))
            for name in (names[i] for i in order[: self.workers]):
                yield self._row(line, key, name, form)

    def _row(self, line: Mapping[str, str], key: str, worker: str, form: str) -> dict[str, str]:
        draws = uniform(self.seed, f"simulated_{form}", (f"{key} {worker} {number}" for number in range(3)))
        if form == "labels":
            labels = self._labels(key, float(draws[0]), float(draws[1]))
            answer = json.dumps([{"image": {"labels": labels}}])
        else:
            says_yes = bool(self.sensitive.get(key, False)) != (draws[0] < self.errors.sensitive)
            answer = YES if says_yes else NO
        fixed = {
            "HITId": "SIMULATED" + _id(form, key),
            "HITTypeId": "SIMULATED" + _id(form),
            "Title": "SIMULATED annotators, not people",
            "Reward": "$0.00",
            "MaxAssignments": str(self.workers),
            "AssignmentId": "SIMULATED" + _id(form, key, worker),
            "WorkerId": worker,
            "AssignmentStatus": "Approved",
            "WorkTimeInSeconds": str(4 + int(20 * draws[2])),
        }
        return fixed | {f"Input.{name}": line[name] for name in COLUMNS} | {ANSWER_COLUMNS[form]: answer}

    def _labels(self, key: str, luck: float, pick: float) -> list[str]:
        names = classes_to_answers(self.options)
        right = self.truth[key]
        others = [name for class_name, name in names.items() if class_name != right]
        other = [others[int(pick * len(others))]] if others else []
        rates = self.errors
        if right is None or right not in names:
            return other if luck < rates.extra + rates.wrong else []
        if luck < rates.none:
            return []
        if luck < rates.none + rates.extra:
            return [names[right], *other]
        if luck < rates.none + rates.extra + rates.wrong:
            return other
        return [names[right]]


def _id(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16].upper()


def _write(path: Path, form: str, rows: Iterator[dict[str, str]]) -> None:
    header = [*RESULT_HEADER, *(f"Input.{name}" for name in COLUMNS), ANSWER_COLUMNS[form], "Approve", "Reject"]
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, header, restval="", quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


# --------------------------------------------------------------------------------------------------- rounds of questions


def answer(run: Run, asked: Round, out: str) -> bool:
    """Let SIMULATED annotators answer a round if it is simulated, its rows exist and it has no votes yet.

    Args:
        run: the waiting run.
        asked: the round.
        out: folder of the run.

    Returns:
        Whether new votes were written.
    """
    place = votes_place(asked, out)
    artifact = next((each for each in run.artifacts if each.stage == asked.stage), None)
    if asked.simulated is None or artifact is None or not isinstance(place, WhereOfRows):
        return False
    store = Store(out)
    votes_file = place.of(artifact.digest)
    name = posixpath.basename(votes_file)
    if store.exists(posixpath.join(asked.folder, name)):
        return False
    with contextlib.ExitStack() as stack:
        # In the folder of the run, so that people can look at the files, apart from real exports; if the run is not local,
        # only the votes are kept.
        folder = (
            store.local / asked.folder / "simulated"
            if store.local
            else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        )
        files = export_questions(asked, out, str(folder / "export"))
        results = simulate_results(
            [str(path) for path in files if path.suffix == ".csv"],
            _truth(asked, asked.simulated.truth, out),
            str(folder / "results"),
            options=asked.options,
            seed=asked.seed,
            workers=asked.workers,
            errors=asked.simulated.errors,
        )
        remove_half_written(folder)
        for old in {*map(str, (folder / "results").glob("SIMULATED_*.csv"))} - {*results}:
            remove(old)
        questions = questions_of(asked, asked_rows(asked, out)[1])
        votes = read_results(results, asked.options, f"simulated-{asked.seed}", questions).votes
    write_votes(in_order(votes), votes_file)
    others = [each for each in store.list(asked.folder) if each.startswith(SIMULATED) and each != name]
    store.remove([posixpath.join(asked.folder, each) for each in others])
    return True


def _truth(asked: Round, name: str, out: str) -> pa.Table:
    """``key`` and ``true_class`` of the rows. For simulated annotators only."""
    _, rows = asked_rows(asked, out)
    column = next((each for each in (name, "labels") if each in rows.column_names), None)
    if column is None:
        raise ValueError(
            f"{asked.title}: simulated annotators need the right class of each image, and stage {asked.stage!r} has neither a "
            f"column {name!r} nor labels of its source"
        )
    table = rows.table([each for each in dict.fromkeys(("key", column, "file")) if each in rows.column_names])
    truth: list[str | None] = []
    for row in table.to_pylist():
        value = row[column] if column == name else json.loads(row[column]).get(name)
        if not isinstance(value, str | None):
            raise ValueError(
                f"{row.get('file', 'image')}, key {row['key']!r}: its label {name!r} is {value!r:.60}: "
                "the name of a class, or null"
            )
        truth.append(value)
    if all(value is None for value in truth):
        raise ValueError(f"{asked.title}: simulated annotators need the right classes, and no image has the label {name!r}")
    return pa.table({"key": table["key"], "true_class": pa.array(truth, pa.string())})
