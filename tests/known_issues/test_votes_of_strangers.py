"""Results of annotators, votes and dates that strangers wrote: one line says what is wrong, in bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchwright.curation import bounded_reading
from benchwright.curation.qa import mturk_results, votes
from benchwright.curation.qa.label_studio import read_label_studio
from benchwright.curation.qa.mturk import read_json_file
from benchwright.curation.qa.mturk_results import NEEDED, read_mturk_results
from benchwright.curation.qa.options import Option
from benchwright.curation.qa.rounds import gold_key
from benchwright.curation.qa.votes import VOTES, read_votes
from benchwright.curation.stages.dates import read_dates_csv
from benchwright.curation.store import Store

BUS = [Option("bus")]
HEADER = ",".join([*NEEDED, mturk_results.SENSITIVE_COLUMN])
DATES = b"file,date_taken\n"
VOTE = {"key": "1", "form": "labels", "worker": "w", "labels": ["bus"], "sensitive": None, "seconds": 1.0, "assignment": "a"}


def mturk(path: Path, text: str) -> Any:
    path.write_text(text)
    return read_mturk_results([str(path)], options=BUS, salt="s")


def refused(path: Path, told: str, table: pa.Table) -> None:
    pq.write_table(table, path)
    with pytest.raises(ValueError, match=told) as raised:
        read_votes(str(path))
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_line_of_a_results_file_that_goes_on_and_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_reading, "MAX_LINE_BYTES", 1000)
    with pytest.raises(ValueError, match=r"a\.csv: line 2 is too long"):
        mturk(tmp_path / "a.csv", HEADER + "\n" + "," * 2000)


def test_a_results_file_of_newlines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_reading, "MAX_LINES", 1000)
    with pytest.raises(ValueError, match=r"a\.csv: more than 1,000 lines"):
        mturk(tmp_path / "a.csv", HEADER + "\n" * 2000)


def test_a_results_file_of_too_many_columns(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a\.csv: its header has 50,006 columns"):
        mturk(tmp_path / "a.csv", HEADER + ",x" * 50_000)


def test_a_results_file_whose_rows_are_no_votes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_reading, "MAX_BAD_ROWS", 10)
    with pytest.raises(ValueError, match=r"a\.csv: more than 10 rows cannot be used.* wrong_field_count \(line 12: 1 fields"):
        mturk(tmp_path / "a.csv", HEADER + "\na" * 20)
    assert mturk(tmp_path / "a.csv", HEADER + "\na" * 10).rejects.num_rows == 10


def test_json_of_any_size_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with path.open("wb") as file:
        file.truncate(bounded_reading.MAX_BYTES + 2)
    with pytest.raises(ValueError, match=r"a\.json has more than 268,435,456 bytes"):
        read_json_file(path)


@pytest.mark.parametrize("worker", [True, 1.5, [1], {"id": {"id": 1}}])
def test_a_worker_is_a_number_or_a_name(tmp_path: Path, worker: Any) -> None:
    choices = [{"from_name": name, "value": {"choices": [value]}} for name, value in (("labels", "bus"), ("sensitive", "No"))]
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{"data": {"key": "1"}, "annotations": [{"result": choices, "completed_by": worker}]}]))
    read = read_label_studio([str(path)], options=BUS, salt="s")
    assert read.votes.num_rows == 0
    assert read.rejects["reason"].to_pylist() == ["no_worker"]


def test_the_key_of_a_task_is_text(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{"data": {"key": ["1"]}, "annotations": [{"result": []}]}]))
    read = read_label_studio([str(path)], options=BUS, salt="s", keys={"['1']": 0})
    assert read.rejects["reason"].to_pylist() == ["unknown_image"]


@pytest.mark.parametrize("gold", ['{"q": null}', '{"q": ["bus"]}', '{"q": "\\ud800"}', '{"\\ud800": "bus"}'])
def test_a_gold_key_is_of_text(tmp_path: Path, gold: str) -> None:
    path = tmp_path / "gold_key.json"
    path.write_text(gold)
    with pytest.raises(ValueError, match=r"gold_key\.json: not a gold key: the class of question"):
        gold_key(Store(str(tmp_path)), "")


def test_votes_of_wrong_columns(tmp_path: Path) -> None:
    path, good = tmp_path / "v.parquet", pa.Table.from_pylist([VOTE], schema=VOTES)
    refused(path, "'key' is there 0 times", good.drop_columns(["key"]))
    refused(path, "'key' is there 2 times", good.append_column("key", good["key"]))
    refused(path, "not a file of votes", good.set_column(3, "labels", pa.array([{"a": 1}])))
    refused(path, "'labels' nor 'sensitive'", good.set_column(1, "form", pa.array(["other"])))
    refused(path, "1 rows have no form", good.set_column(1, "form", pa.nulls(1, pa.string())))
    refused(path, "has no answer in the column 'labels'", good.set_column(3, "labels", pa.nulls(1, VOTES.field("labels").type)))
    refused(path, "a label is null", good.set_column(3, "labels", pa.array([[None]], VOTES.field("labels").type)))
    not_utf8 = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
    refused(path, "[Uu][Tt][Ff]", good.set_column(0, "key", not_utf8))
    pq.write_table(good, path)
    assert read_votes(str(path)).to_pylist() == [VOTE]


def test_votes_that_claim_gigabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(votes, "_MAX_BYTES", 1 << 20)
    many = pa.Table.from_pylist([{**VOTE, "key": "k" * 1000}] * 10_000, schema=VOTES)
    refused(tmp_path / "v.parquet", "its votes take more than 1,048,576 bytes", many)


_PEAK = """
import sys
from benchwright.curation.cost import peak_bytes
from benchwright.curation.stages.dates import read_dates_csv
start = peak_bytes()
try:
    with open(sys.argv[1], "rb") as stream:
        table = read_dates_csv(stream, "d.csv")
    list(table.take_rest())
except ValueError as error:
    print(error, file=sys.stderr)
print((peak_bytes() - start) >> 20)
"""


@pytest.mark.parametrize(
    "text",
    [DATES + b"\n" * 3_000_000, DATES + b"\r" * 3_000_000, DATES + b"," * 80_000_000],
    ids=["newlines", "carriage_returns", "one_line"],
)
def test_memory_for_a_hostile_csv_of_dates_is_bounded(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "d.csv"
    path.write_bytes(text)
    done = subprocess.run([sys.executable, "-P", "-c", _PEAK, str(path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100


@pytest.mark.parametrize("line", [b"a\n", b"a,2004-01-01\n"], ids=["no_row", "a_row_again"])
def test_dates_of_which_most_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: bytes) -> None:
    monkeypatch.setattr(bounded_reading, "MAX_BAD_ROWS", 10)
    path = tmp_path / "d.csv"
    path.write_bytes(DATES + line * 20)
    with path.open("rb") as stream, pytest.raises(ValueError, match=r"d\.csv: more than 10 rows cannot be used") as raised:
        list(read_dates_csv(stream, "d.csv").take_rest())
    assert "\n" not in str(raised.value)


def test_dates_of_too_many_columns(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_bytes(b"file,date_taken" + b"".join(b",%d" % n for n in range(2000)))
    with path.open("rb") as stream, pytest.raises(ValueError, match=r"d\.csv: its header has 2,002 columns"):
        read_dates_csv(stream, "d.csv")
