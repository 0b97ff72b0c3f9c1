"""CLEAR from YFCC100M metadata and a web server to shards, with votes that a person brings: the published way."""

from __future__ import annotations

import csv
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pytest
from benchwright.curation.qa.imports import import_votes
from benchwright.curation.qa.rounds import ErrorRates, export_questions
from benchwright.curation.qa.simulated import simulate_results
from benchwright.datasets.clear.synthetic import draw_pictures
from benchwright.datasets.reader.index import DatasetIndex
from benchwright.pipelines import api
from benchwright.pipelines.clear.qa_rounds import rounds

pytestmark = pytest.mark.usefixtures("blank_figures")

COUNT = 400
COLUMNS = 23


@pytest.fixture
def drawn() -> dict[str, tuple[bytes, str | None, str, int]]:
    """Key -> image, true class, capture time, upload stamp, of pictures that are whole."""
    found = {}
    for number, row in enumerate(draw_pictures(count=COUNT, classes=["red", "green", "blue"], seed=1)):
        truth = json.loads(row.labels)["true_class"]
        taken = row.date_taken.strftime("%Y-%m-%d %H:%M:%S.0")
        found[str(1000 + number)] = (row.image.read(), truth, taken, int(row.date_uploaded.timestamp()))
    return found


@pytest.fixture
def server(drawn: dict[str, tuple[bytes, str | None, str, int]]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            key = Path(self.path).stem
            if key not in drawn or int(key) % 40 == 0:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", "image/jpeg")
            self.send_header("Content-Length", str(len(drawn[key][0])))
            self.end_headers()
            self.wfile.write(drawn[key][0])

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()


def write_metadata(path: Path, url: str, drawn: dict[str, tuple[bytes, str | None, str, int]]) -> None:
    lines = []
    for key, (_, _, taken, uploaded) in drawn.items():
        fields = [""] * COLUMNS
        fields[0], fields[3], fields[4], fields[14], fields[15] = key, taken, str(uploaded), f"{url}/{key}.bmp", "BY"
        fields[2], fields[6] = f"Ann%2C+{key}", f"photo+of%20{key}"
        fields[13], fields[16] = f"http://example.org/{key}", "http://example.org/by/2.0"
        fields[21], fields[22] = "bmp", "1" if int(key) % 50 == 7 else "0"
        lines.append("\t".join(fields))
    lines[5] = "not a line of metadata"
    path.write_text("\n".join(lines) + "\n")


def test_from_metadata_to_shards(tmp_path: Path, server: str, drawn: dict[str, tuple[bytes, str | None, str, int]]) -> None:
    metadata, out = tmp_path / "yfcc100m_dataset", str(tmp_path / "out")
    write_metadata(metadata, server, drawn)
    extra = '["title", "nickname", "licence_url", "page_url"]'
    where = f'metadata="{metadata}", extra={extra}, limits={{allow_private_hosts=true}}, pace={{retries=0}}'
    source = f'source={{kind="yfcc100m", {where}}}'
    overrides = [source, "images.max_rejects=0.2", "buckets.by=uploaded_unix", "qa.votes=imported"]
    todo = api.job("clear", config="tiny", overrides=overrides)
    first = api.run(todo, out)
    assert "benchwright qa export" in first.waiting
    rejects = {stage["name"]: stage["rejects"] for stage in api.show(out)["stages"]}
    assert rejects["listed"] == {"not_a_photo": 8, "wrong_column_count": 1}
    assert rejects["fetched"]["gone"] > 0
    assert set(rejects["fetched"]) <= {"gone", "not_an_image", "too_small_file"}
    assert "truncated" in rejects["checked"]

    files = export_questions(todo.rounds()[""], out, f"{out}/qa/export", batch_size=60)
    batches = [str(path) for path in files if path.suffix == ".csv"]
    assert len(batches) > 1
    truth = pa.table({"key": list(drawn), "true_class": [value[1] for value in drawn.values()]})
    options = rounds(todo.config)[0].options
    results = simulate_results(batches, truth, str(tmp_path / "results"), options=options, seed=3, errors=ErrorRates())
    imported = import_votes(todo.rounds()[""], out, results, salt="s")
    assert imported.missing.num_rows == 0
    assert not imported.rejects
    assert 0.5 < imported.kappas["labels"] <= 1

    done = api.run(todo, out)
    assert not done.waiting
    assert api.verify(out) == []
    table = DatasetIndex.open(Path(out) / "dataset").table
    assert table["title"].to_pylist() == [f"photo of {key}" for key in table["key"].to_pylist()]
    assert set(table["class_name"].to_pylist()) == {"BACKGROUND", "red", "green", "blue"}
    right = [
        (drawn[key][1] or "BACKGROUND") == name
        for key, name in zip(table["key"].to_pylist(), table["class_name"].to_pylist(), strict=True)
    ]
    assert sum(right) / len(right) > 0.95
    page = Path(api.report(out)).read_text().partition("Limits of the buckets by date_uploaded")[2]
    limits = page.partition("</table>")[0]
    times = re.findall(r"<td[^>]*>20\d\d-\d\d-\d\d \d\d:\d\d:\d\d</td>", limits)
    assert len(times) == 2 * (limits.count("<tr") - 1) == 8

    with (Path(out) / "dataset/ATTRIBUTION.csv").open(newline="") as stream:
        owed = list(csv.DictReader(stream))
    assert [line.pop("key") for line in owed] == table["key"].to_pylist()
    key = table["key"][0].as_py()
    by = {"licence": "BY", "licence_url": "http://example.org/by/2.0", "source_url": f"http://example.org/{key}"}
    assert owed[0] == {"author": f"Ann, {key}", "title": f"photo of {key}", **by}
    api.release(out, str(tmp_path / "release"))
    assert (tmp_path / "release/ATTRIBUTION.csv").read_bytes() == (Path(out) / "dataset/ATTRIBUTION.csv").read_bytes()
