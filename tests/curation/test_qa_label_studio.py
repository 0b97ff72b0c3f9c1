"""Label Studio: the same votes by another route."""

from __future__ import annotations

import csv
import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from benchwright.curation.qa.label_studio import export_tasks, labelling_config, read_label_studio
from benchwright.curation.qa.mturk import export_batches
from benchwright.curation.qa.mturk_results import read_mturk_results
from benchwright.curation.qa.options import NONE_OF_THE_ABOVE, Option
from benchwright.curation.qa.rounds import ErrorRates
from benchwright.curation.qa.simulated import simulate_results
from benchwright.curation.qa.votes import aggregate_votes

OPTIONS = [Option("computer", "laptop", "tablet & <desktop>"), Option('"quoted"', "camera"), Option("bus")]


def annotation(labels: list[str] | None, sensitive: str | None, worker: Any = 1, **fields: Any) -> dict[str, Any]:
    """An annotation as Label Studio exports it."""
    result: list[dict[str, Any]] = []
    for name, choices in (("labels", labels), ("sensitive", None if sensitive is None else [sensitive])):
        if choices is not None:
            region = {"id": f"{name}x1", "from_name": name, "to_name": "image", "type": "choices", "origin": "manual"}
            result.append(region | {"value": {"choices": choices}})
    base = {"id": 1001, "completed_by": worker, "result": result, "was_cancelled": False, "ground_truth": False}
    return base | {"lead_time": 4.288, "created_at": "2021-03-09T22:16:08.728353Z"} | fields


def task(key: str, *annotations: dict[str, Any]) -> dict[str, Any]:
    data = {"image": "https://example.org/a.jpg", "key": key, "bucket": 1}
    return {"id": 1, "data": data, "annotations": list(annotations), "predictions": [], "project": 83}


def write(path: Path, value: Any) -> str:
    path.write_text(json.dumps(value))
    return str(path)


def read(path: str, **settings: Any) -> Any:
    defaults: dict[str, Any] = {"options": OPTIONS, "salt": "s", "keys": {"a": 1, "b": 1}}
    return read_label_studio([path], **(defaults | settings))


def test_tasks_and_config(tmp_path: Path) -> None:
    table = pa.table({"key": ["a"], "bucket": [3], "concept": ["bus"], "url": ["https://example.org/a.jpg"]})
    project = export_tasks(table, str(tmp_path / "ls"), options=OPTIONS, background="BACKGROUND")
    tasks = json.loads(project.tasks.read_text())
    # The class that is expected does not travel with the task.
    assert tasks == [{"data": {"image": "https://example.org/a.jpg", "key": "a", "bucket": 3}}]
    view = ET.fromstring(project.config.read_text())
    labels, sensitive = view.findall("Choices")
    assert (labels.get("choice"), sensitive.get("choice")) == ("multiple", "single")
    assert [(c.get("alias"), c.get("value")) for c in labels] == [
        ("computer", "computer (tablet & <desktop>)"),
        ('"quoted"', '"quoted"'),
        ("bus", "bus"),
        (None, NONE_OF_THE_ABOVE),
    ]
    assert [c.get("value") for c in sensitive] == ["Yes", "No"]


def test_a_name_that_label_studio_would_fill_in_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'\$image': Label Studio reads a leading \$"):
        labelling_config([Option("$image")], background="BACKGROUND")


def test_several_annotations_a_task(tmp_path: Path) -> None:
    tasks = [
        task("a", annotation(["computer"], "No"), annotation(["bus", "computer"], "Yes", {"id": 2, "email": "x@y.org"})),
        task("b", annotation([NONE_OF_THE_ABOVE], "No")),
    ]
    votes, rejects, *_ = read(write(tmp_path / "e.json", tasks))
    assert rejects.num_rows == 0
    assert [(v["key"], v["form"], v["labels"], v["sensitive"]) for v in votes.to_pylist()] == [
        ("a", "labels", ["laptop"], None),
        ("a", "sensitive", None, False),
        ("a", "labels", ["bus", "laptop"], None),
        ("a", "sensitive", None, True),
        ("b", "labels", [], None),
        ("b", "sensitive", None, False),
    ]
    workers = votes["worker"].to_pylist()
    assert workers[0] == workers[1] == workers[4] != workers[2]
    assert votes["seconds"].to_pylist() == [4.288] * 6


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (annotation(["computer"], "No", was_cancelled=True), "annotation_cancelled"),
        (annotation(["computer"], "No", worker=None), "no_worker"),
        (annotation(None, "No"), "empty_answer"),
        (annotation(["computer"], None), "empty_answer"),
        (annotation(["bus", NONE_OF_THE_ABOVE], "No"), "none_with_others"),
        (annotation(["zebra"], "No"), "unknown_label"),
        (annotation(["computer"], "Perhaps"), "malformed_answer"),
        ({"completed_by": 1}, "malformed_answer"),
        (annotation(["computer"], "No", result=[7, {"from_name": "labels", "value": 3}]), "malformed_answer"),
    ],
)
def test_annotations_that_are_no_vote(tmp_path: Path, bad: dict[str, Any], reason: str) -> None:
    good = annotation(["computer"], "No", worker=9)
    votes, rejects, *_ = read(write(tmp_path / "e.json", [task("a", bad, good)]))
    assert rejects["reason"].to_pylist() == [reason]
    assert rejects["detail"][0].as_py().startswith("e.json task 0 annotation 0: ")
    assert votes.num_rows == 2


def test_a_lead_time_that_is_no_finite_number_is_not_known(tmp_path: Path) -> None:
    times = [10**400, float("inf"), float("nan"), "4.2", None, -(10**400)]
    tasks = [task("a", *(annotation(["bus"], "No", worker=n, lead_time=time) for n, time in enumerate(times)))]
    votes, rejects, *_ = read(write(tmp_path / "e.json", tasks))
    assert rejects.num_rows == 0
    assert votes["seconds"].to_pylist() == [None] * 2 * len(times)


@pytest.mark.parametrize("keys", [{"a": 1}, None])
def test_halves_of_characters_cost_their_own_annotation_alone(tmp_path: Path, keys: dict[str, int] | None) -> None:
    good, half = annotation(["bus"], "No", worker="\u00e9"), "\ud800"
    strangers = [annotation(["bus"], "No", worker=worker) for worker in (half, {"id": half}, "\udc80")]
    choices = [annotation([half], "No"), annotation(["bus"], half)]
    votes, rejects, *_ = read(write(tmp_path / "e.json", [task("a", *strangers, *choices, good), task(half, good)]), keys=keys)
    assert rejects["reason"].to_pylist() == [*["no_worker"] * 3, "unknown_label", "malformed_answer", "unknown_image"]
    assert rejects["key"].to_pylist() == [*["a"] * 5, "?"]
    assert votes["key"].to_pylist() == ["a", "a"]


def test_votes_of_an_earlier_import_do_not_count_again(tmp_path: Path) -> None:
    first = read(write(tmp_path / "1.json", [task("a", annotation(["bus"], "No"))])).votes
    more = [
        task("a", annotation(["computer"], "No"), annotation(["bus"], "No", worker=2)),
        task("b", annotation(["bus"], "No")),
    ]
    votes, rejects, *_, known = read(write(tmp_path / "2.json", more), earlier=first)
    assert known == 0
    assert rejects["reason"].to_pylist() == ["duplicate_worker"]
    assert votes["key"].to_pylist() == ["a", "a", "b", "b"]
    again, rejects, *_, known = read(tmp_path / "1.json", earlier=first)
    assert (again.num_rows, rejects.num_rows, known) == (0, 0, 2)


def test_images_and_workers_are_checked(tmp_path: Path) -> None:
    again = annotation(["bus"], "No")
    tasks = [task("a", again, again), task("zz", again), task("", again)]
    votes, rejects, *_ = read(write(tmp_path / "e.json", tasks))
    assert rejects["reason"].to_pylist() == ["duplicate_worker", "unknown_image", "no_image"]
    assert votes.num_rows == 2


def test_files_that_are_no_such_export(tmp_path: Path) -> None:
    path = tmp_path / "e.json"
    for content, message in (
        (b"[" * 100_000, "not readable as JSON: ValueError: JSON that is nested too deep"),
        (b"\xff\xfe\x00", "not readable as JSON"),
        (b"{}", "a list of tasks is expected"),
        (b'[{"image": "x", "labels": ["bus"]}]', "task 0 has no 'data' or no 'annotations': export in the form JSON"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read(str(path))


def test_both_routes_give_the_same_aggregate(tmp_path: Path) -> None:
    images = 90
    concept = [["laptop", "camera", "bus", "BACKGROUND"][i % 4] for i in range(images)]
    keys = [str(i) for i in range(images)]
    table = pa.table({"key": keys, "bucket": [0] * images, "concept": concept, "url": ["https://example.org/a.jpg"] * images})
    out = export_batches(table, str(tmp_path / "e"), options=OPTIONS, background="BACKGROUND", seed=1)
    truth = pa.table({"key": keys, "true_class": concept})
    noisy = ErrorRates(none=0.2, extra=0.2, wrong=0.2, sensitive=0.1)
    paths = simulate_results([str(out.batches[0])], truth, str(tmp_path), options=OPTIONS, seed=2, errors=noisy)
    by_mturk = read_mturk_results(paths, options=OPTIONS, salt="s").votes

    # The same answers as Label Studio would export them: the n-th answer of each form to an image makes an annotation.
    answers: dict[str, dict[str, list[Any]]] = {key: {"labels": [], "sensitive": []} for key in keys}
    for path, form, column in zip(paths, ("labels", "sensitive"), ("taskAnswers", "image-contains.label"), strict=True):
        with open(path, newline="") as file:
            for row in csv.DictReader(file):
                value = row[f"Answer.{column}"]
                names = value if form == "sensitive" else json.loads(value)[0]["image"]["labels"] or [NONE_OF_THE_ABOVE]
                answers[row["Input.ID"]][form].append(names)
    tasks = [
        task(key, *(annotation(labels, yes, worker=i) for i, (labels, yes) in enumerate(zip(*forms.values(), strict=True))))
        for key, forms in answers.items()
    ]
    by_label_studio, rejects, *_ = read(write(tmp_path / "e.json", tasks), keys=None)
    assert rejects.num_rows == 0
    judged = [
        aggregate_votes(table.select(["key", "concept"]), v, background="BACKGROUND") for v in (by_mturk, by_label_studio)
    ]
    assert judged[0].equals(judged[1])
    reasons = set(judged[0]["reason"].to_pylist())
    assert {None, "sensitive", "no_majority"} <= reasons
