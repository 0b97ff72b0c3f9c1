"""SIMULATED answers to a round of questions: files that go the way of real ones, by export and import."""

from __future__ import annotations

import contextlib
import json
import posixpath
import tempfile
from pathlib import Path

import pyarrow as pa

from ..files import remove, remove_half_written
from ..keys import WhereOfRows
from ..run import Run
from ..store import Store
from .imports import in_order, read_results
from .rounds import SIMULATED, Round, asked_rows, export_questions, questions_of, votes_place
from .simulated import simulate_results
from .votes import write_votes


def answer(run: Run, asked: Round, out: str) -> bool:
    """Let SIMULATED annotators answer a round where it says so, its rows are made and nobody has answered yet.

    Args:
        run: the run, which waits.
        asked: the round.
        out: the folder of the run.

    Returns:
        Whether there are votes now that were not there before.
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
        # Beside the run for people to look at, apart from what people were asked; where that is no folder, only the votes stay.
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
    """``key`` and ``true_class`` of the rows. Only simulated annotators may look at it."""
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
