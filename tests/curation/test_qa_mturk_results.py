"""Result files of Mechanical Turk: real headers, simulated annotators through the real path, and files that mean
harm.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from benchwright.curation.qa.agreement import votes_kappa, worker_table
from benchwright.curation.qa.mturk import Export, Gold, export_batches
from benchwright.curation.qa.mturk_results import Votes, read_mturk_results
from benchwright.curation.qa.options import NONE_OF_THE_ABOVE, Option
from benchwright.curation.qa.rounds import ErrorRates
from benchwright.curation.qa.simulated import RESULT_HEADER, simulate_results
from benchwright.curation.qa.votes import aggregate_votes, missing_votes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

OPTIONS = [
    Option("computer", "laptop", "laptop/tablet/etc."),
    Option("camera"),
    Option("bus"),
    Option("=cmd|' /C calc'!A0", "evil"),
]
CLASSES = ["laptop", "camera", "bus", "evil", "BACKGROUND"]
QUERIES = {"1": "laptop", "2": "bus", "=3": "evil"}
HEADER = [*RESULT_HEADER, "Input.image_url", "Input.ID", "Input.bucket_index", "Input.query"]
LABELS, SENSITIVE = "Answer.taskAnswers", "Answer.image-contains.label"


def answer(*names: str) -> str:
    return json.dumps([{"image": {"labels": list(names)}}])


def row(key: str = "1", worker: str = "A1", **fields: Any) -> dict[str, str]:
    base = {"HITId": "H", "AssignmentId": f"S{worker}{key}", "WorkerId": worker, "AssignmentStatus": "Submitted"}
    base |= {"WorkTimeInSeconds": "12", "Input.ID": key, "Input.query": QUERIES.get(key, ""), LABELS: answer("computer")}
    return base | fields


def write(path: Path, rows: list[dict[str, str]], answers: tuple[str, ...] = (LABELS,)) -> str:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*HEADER, *answers, "Approve", "Reject"], quoting=csv.QUOTE_ALL)
        writer.writeheader()
        writer.writerows({name: value for name, value in row.items() if name in writer.fieldnames} for row in rows)
    return str(path)


def read(*paths: str, **settings: Any) -> Votes:
    defaults: dict[str, Any] = {"options": OPTIONS, "salt": "s", "queries": QUERIES}
    return read_mturk_results(paths, **(defaults | settings))


def reasons(votes: Votes) -> list[str]:
    return votes.rejects["reason"].to_pylist()


def test_votes_of_both_forms_and_of_several_batches(tmp_path: Path) -> None:
    one = write(tmp_path / "1.csv", [row(), row(worker="A2", **{LABELS: answer("bus", "computer (laptop/tablet/etc.)")})])
    two = write(tmp_path / "2.csv", [row("2", **{LABELS: answer(), "AssignmentStatus": "Approved"})])
    three = write(tmp_path / "3.csv", [row("2", **{SENSITIVE: "Yes"}), row("1", **{SENSITIVE: "No"})], (SENSITIVE,))
    votes = read(one, two, three)
    assert votes.rejects.num_rows == 0
    table = votes.votes.to_pylist()
    assert [(v["key"], v["form"], v["labels"], v["sensitive"]) for v in table] == [
        ("1", "labels", ["laptop"], None),
        ("1", "labels", ["bus", "laptop"], None),
        ("2", "labels", [], None),
        ("2", "sensitive", None, True),
        ("1", "sensitive", None, False),
    ]
    assert [v["seconds"] for v in table] == [12.0] * 5
    # One person has one hash in all files; another salt gives other hashes; the id itself is nowhere.
    assert table[0]["worker"] == table[2]["worker"] != table[1]["worker"]
    assert read(one, salt="t").votes["worker"][0].as_py() != table[0]["worker"]
    assert len(table[0]["worker"]) == 16


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"AssignmentStatus": "Rejected"}, "assignment_not_counted"),
        ({"Reject": "spam"}, "assignment_not_counted"),
        ({"Input.ID": ""}, "no_image"),
        ({"Input.ID": "99"}, "unknown_image"),
        ({"Input.query": "bus"}, "query_mismatch"),
        ({"WorkerId": " "}, "no_worker"),
        ({LABELS: ""}, "empty_answer"),
        ({LABELS: "{}"}, "malformed_answer"),
        ({LABELS: "[]"}, "malformed_answer"),
        ({LABELS: "not json"}, "malformed_answer"),
        ({LABELS: '[{"image": {"labels": "computer"}}]'}, "malformed_answer"),
        ({LABELS: '[{"image": {"labels": [1]}}]'}, "malformed_answer"),
        ({LABELS: '[{"image": [1]}]'}, "malformed_answer"),
        ({LABELS: "[" * 15_000}, "malformed_answer"),
        ({LABELS: "[" + "9" * 15_000 + "]"}, "malformed_answer"),
        ({LABELS: "[" * 100_000}, "answer_too_long"),
        ({LABELS: answer("laptop")}, "unknown_label"),
        ({LABELS: answer("bus", NONE_OF_THE_ABOVE)}, "none_with_others"),
    ],
)
def test_rows_that_are_no_vote(tmp_path: Path, change: dict[str, str], reason: str) -> None:
    votes = read(write(tmp_path / "r.csv", [row(**change), row("2")]))
    assert reasons(votes) == [reason]
    assert votes.votes["key"].to_pylist() == ["2"]
    assert votes.rejects["detail"][0].as_py().startswith("r.csv line 2: ")
    assert len(votes.rejects["detail"][0].as_py()) < 200
    assert "A1" not in votes.rejects["detail"][0].as_py()


def test_the_sensitive_form_knows_yes_and_no(tmp_path: Path) -> None:
    votes = read(write(tmp_path / "r.csv", [row(**{SENSITIVE: "Maybe"}), row("2", **{SENSITIVE: ""})], (SENSITIVE,)))
    assert reasons(votes) == ["malformed_answer", "empty_answer"]


def test_none_of_the_above_may_come_by_name_or_as_an_empty_list(tmp_path: Path) -> None:
    rows = [row(**{LABELS: answer()}), row(worker="A2", **{LABELS: answer(NONE_OF_THE_ABOVE)})]
    assert read(write(tmp_path / "r.csv", rows)).votes["labels"].to_pylist() == [[], []]


def test_one_vote_a_worker_and_image(tmp_path: Path) -> None:
    again = row(AssignmentId="other", **{LABELS: answer("bus")})
    path = write(tmp_path / "r.csv", [row(), again])
    votes = read(path, path)
    assert reasons(votes) == ["duplicate_worker", "duplicate_assignment", "duplicate_worker"]
    assert votes.votes["labels"].to_pylist() == [["laptop"]]


def test_guarded_ids_and_queries_come_back(tmp_path: Path) -> None:
    path = write(tmp_path / "r.csv", [row("'=3", **{"Input.query": "evil", LABELS: answer(OPTIONS[3].name)})])
    votes = read(path)
    assert (votes.votes["key"].to_pylist(), votes.votes["labels"].to_pylist()) == (["=3"], [["evil"]])


def test_bytes_that_are_no_text_and_lines_of_another_length(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "r.csv", [row(), row("2"), row("2", "A2"), row("1", "A3")]))
    lines = path.read_bytes().split(b"\r\n")
    lines[1] = lines[1].replace(b'"Submitted"', b'"Subm\xff\xfe"')
    lines[2] = lines[2] + b',"more"'
    lines[3] = lines[3].replace(b'"12"', b'"1\x002"')
    path.write_bytes(b"\r\n".join(lines))
    votes = read(str(path))
    assert reasons(votes) == ["bad_encoding", "wrong_field_count"]
    assert votes.votes["seconds"].to_pylist() == [None, 12.0]


def test_a_file_that_is_no_csv_is_one_clear_line(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "r.csv", [row(), row("2", **{LABELS: "x" * 200_000})]))
    with pytest.raises(ValueError, match=r"r\.csv, line 3: field larger than field limit \(131072\)"):
        read(str(path))
    path.write_bytes(path.read_bytes()[:400])
    with pytest.raises(ValueError, match=r"r\.csv"):
        read(str(path))
    path.write_bytes(b"AssignmentId,WorkerId,AssignmentId\n")
    with pytest.raises(ValueError, match=r"r\.csv: its header names 'AssignmentId' twice"):
        read(str(path))
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="it lacks AssignmentId, WorkerId"):
        read(str(path))


def test_a_byte_order_mark_does_not_matter(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "r.csv", [row()]))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read(str(path)).votes.num_rows == 1


def test_settings_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="salt"):
        read(write(tmp_path / "r.csv", [row()]), salt="")
    with pytest.raises(ValueError, match="no result files"):
        read()


@pytest.mark.parametrize("name", ["20171028_mturk_results_pilot_0.10.csv", "20171127_mturk_results_design2_main.csv"])
def test_real_survey_results_lack_the_inputs(shared_data: Path, name: str) -> None:
    path = shared_data / "mturk_batches" / name
    with pytest.raises(ValueError, match=r"it lacks Input\.ID, Input\.query, Answer\.taskAnswers or") as error:
        read(str(path))
    assert "(its answer columns: 'Answer.surveycode')" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["20171028_mturk_results_pilot_0.10.csv", "20171127_mturk_results_design2_main.csv"])
def test_real_rows_with_inputs_added_are_read(shared_data: Path, tmp_path: Path, name: str) -> None:
    """The real header, quoting, dates and times; only the survey code is replaced by the answer of this form."""
    with (shared_data / "mturk_batches" / name).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0])[: len(RESULT_HEADER)] == RESULT_HEADER
    for real in rows:
        real.update({"Input.ID": "1", "Input.query": "laptop", LABELS: answer("computer")})
    votes = read(write(tmp_path / "r.csv", rows))
    assert votes.rejects.num_rows == 0
    assert votes.votes.num_rows == len(rows) == len(set(votes.votes["worker"].to_pylist()))
    assert votes.votes["seconds"].to_pylist() == [float(real["WorkTimeInSeconds"]) for real in rows]


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_gives_rejects_or_one_line(tmp_path: Path, data: st.DataObject) -> None:
    """Bytes changed at random places: every row that is read is accounted for, or the file is refused in one line."""
    path = Path(write(tmp_path / "r.csv", [row(key, worker) for key in ("1", "2") for worker in ("A1", "A2")]))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    path.write_bytes(bytes(content))
    votes, refusal = None, ""
    try:
        votes = read(str(path))
    except ValueError as error:
        refusal = str(error)
    if votes is None:
        assert refusal.startswith(str(path))
        assert "\n" not in refusal
        return
    lines = [fields for fields in csv.reader(io.StringIO(content.decode("utf-8-sig", "surrogateescape"), newline="")) if fields]
    assert votes.votes.num_rows + votes.rejects.num_rows == len(lines) - 1


def exported(folder: Path, images: int = 60) -> tuple[Export, pa.Table, pa.Table]:
    """An export of ``images`` pictures with gold questions, the table, and the truth (every tenth concept is wrong)."""
    keys = [str(i) for i in range(images)]
    concept = [CLASSES[i % 5] for i in range(images)]
    true = [CLASSES[(i + 1) % 5] if i % 10 == 0 else CLASSES[i % 5] for i in range(images)]
    url = ["https://example.org/a.jpg"] * images
    table = pa.table({"key": keys, "bucket": [i % 3 for i in range(images)], "concept": concept, "url": url})
    gold = pa.table({"key": [f"g{i}" for i in range(6)], "concept": [*CLASSES, "bus"], "url": url[:6]})
    out = export_batches(table, str(folder), options=OPTIONS, background="BACKGROUND", seed=5, gold=Gold(gold, per_batch=2))
    truth = pa.table({"key": keys + gold["key"].to_pylist(), "true_class": true + gold["concept"].to_pylist()})
    return out, table, truth


def test_simulated_annotators_take_the_real_way(tmp_path: Path) -> None:
    out, table, truth = exported(tmp_path / "export")
    perfect = ErrorRates(none=0, extra=0, wrong=0)
    paths = simulate_results(
        [str(path) for path in out.batches], truth, str(tmp_path / "r"), options=OPTIONS, seed=7, errors=perfect
    )
    assert [Path(path).name for path in paths[:2]] == ["SIMULATED_bucket00_labels.csv", "SIMULATED_bucket00_sensitive.csv"]
    gold = dict(out.gold)
    queries = dict(zip(table["key"].to_pylist(), table["concept"].to_pylist(), strict=True)) | gold
    votes = read(*paths, queries=queries)
    assert votes.rejects.num_rows == 0
    assert votes.votes.num_rows == (60 + 6) * 3 * 2
    assert missing_votes(list(queries), votes.votes).num_rows == 0
    judged = aggregate_votes(table.select(["key", "concept"]), votes.votes, background="BACKGROUND")
    wrong = [
        concept != true for concept, true in zip(table["concept"].to_pylist(), truth["true_class"].to_pylist(), strict=False)
    ]
    assert [reason is not None for reason in judged["reason"].to_pylist()] == wrong
    assert votes_kappa(votes.votes, form="labels") == 1.0
    workers = worker_table(votes.votes, gold=gold, background="BACKGROUND")
    assert sum(workers["num_gold"].to_pylist()) == 18
    assert set(workers["gold_accuracy"].drop_null().to_pylist()) == {1.0}


def test_simulated_answers_depend_on_seed_image_and_worker_alone(tmp_path: Path) -> None:
    out, _, truth = exported(tmp_path / "export")
    batches = [str(path) for path in out.batches]
    noisy: dict[str, Any] = {"options": OPTIONS, "errors": ErrorRates(none=0.2, extra=0.2, wrong=0.2, sensitive=0.3)}

    def lines(folder: str, batches: list[str], seed: int) -> set[str]:
        paths = simulate_results(batches, truth, str(tmp_path / folder), seed=seed, **noisy)
        return {line for path in paths for line in Path(path).read_text().splitlines()}

    first = lines("a", batches, 7)
    assert first == lines("b", batches[::-1], 7)
    assert lines("c", batches[:1], 7) < first
    assert first != lines("d", batches, 8)
    # Everything says that nobody has looked.
    assert all("SIMULATED" in line for line in first if not line.startswith('"HITId"'))


def test_simulated_errors_come_at_their_rates(tmp_path: Path) -> None:
    images = 1200
    table = pa.table({"key": [str(i) for i in range(images)], "bucket": [0] * images, "concept": ["bus"] * images})
    table = table.append_column("url", pa.array(["https://example.org/a.jpg"] * images))
    out = export_batches(table, str(tmp_path / "e"), options=OPTIONS, background="BACKGROUND", seed=1)
    truth = table.select(["key"]).append_column("true_class", pa.array(["bus"] * images))
    rates = ErrorRates(none=0.2, extra=0.15, wrong=0.1, sensitive=0.05)
    paths = simulate_results([str(out.batches[0])], truth, str(tmp_path), options=OPTIONS, seed=3, errors=rates)
    votes = read(*paths, queries=None).votes
    counts = aggregate_votes(table.select(["key", "concept"]), votes, background="BACKGROUND")
    seen = {name: sum(counts[f"votes_{name}"].to_pylist()) / 3 / images for name in ("none", "extra", "wrong", "sensitive")}
    assert seen == pytest.approx(dataclasses.asdict(rates), abs=0.03)


def test_simulated_annotators_need_the_truth(tmp_path: Path) -> None:
    out, table, truth = exported(tmp_path / "export")
    batch = [str(out.batches[0])]
    with pytest.raises(ValueError, match="'true_class'; there are key, bucket"):
        simulate_results(batch, table, str(tmp_path), options=OPTIONS, seed=1)
    with pytest.raises(ValueError, match="no true_class is given for it"):
        simulate_results(batch, truth.slice(0, 3), str(tmp_path), options=OPTIONS, seed=1)
    with pytest.raises(ValueError, match="add up to at most 1"):
        ErrorRates(none=0.5, extra=0.4, wrong=0.2)
