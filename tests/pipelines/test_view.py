"""``benchwright view``: what its pages show of a run, and what its server refuses."""

from __future__ import annotations

import contextlib
import html
import http.client
import io
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import benchwright as bw
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from benchwright.curation.png import stored_png
from benchwright.curation.run import run
from benchwright.pipelines.view import payloads
from benchwright.pipelines.view.query import LARGEST_PAGE, Condition, Query, Refused
from benchwright.pipelines.view.server import _stretch, make_app
from benchwright.pipelines.view.table import Database, ParquetRows
from starlette.testclient import TestClient

from tests.pipelines.conftest import Cli
from tests.pipelines.pages import faults
from tests.pipelines.view_steps import SOUND, heard, sampled

HOST, PORT, TOKEN = "127.0.0.1", 8470, "a-token"
BASE = f"http://{HOST}:{PORT}"
COOKIE = {"cookie": f"benchwright-{PORT}={TOKEN}"}


def rows_of(out: Path, stage: str) -> pa.Table:
    """All rows of a stage."""
    return pa.concat_tables(pq.read_table(part) for part in sorted(out.glob(f"stages/{stage}/part-?????.parquet")))


def client(out: Path, other: Path | None = None, **headers: str) -> TestClient:
    app = make_app(str(out), None if other is None else str(other), host=HOST, port=PORT, token=TOKEN)
    return TestClient(app, base_url=BASE, headers={**COOKIE, **headers}, follow_redirects=False)


@pytest.fixture(scope="module")
def pages(tiny: Path) -> TestClient:
    return client(tiny)


def of_server(page: str) -> list[str]:
    """Faults of a page, but those that are meant for pages without a server: ours have a script of their own address."""
    assert page.count("<script") == 1 == page.count('<script src="/view.js" defer></script>')
    return [fault for fault in faults(page) if not (fault.startswith("<script>") or "landmark" in fault)]


def payload_addresses(page: str) -> list[str]:
    return [found.replace("&amp;", "&") for found in re.findall(r'src="(/stage/[^"]+)"', page)]


# ---------------------------------------------------------------------------------------------------------------- pages


def test_the_plan_leads_to_every_stage(pages: TestClient, tiny: Path) -> None:
    page = pages.get("/")
    assert of_server(page.text) == []
    for stage in bw.show(str(tiny))["stages"]:
        assert f'<a href="/stage/{stage["name"]}"' in page.text
        assert f'"{stage["name"]} {stage["rows"]:,} rows' in page.text or f"{stage['name']} {stage['rows']:,} rows" in page.text
    box = r'<svg class="" role="group".*?<a href="/stage/listed" aria-label="listed">'
    assert re.search(box, page.text, re.DOTALL)


def test_a_link_is_a_view(pages: TestClient, tiny: Path) -> None:
    wanted = sorted(
        (row["key"] for row in rows_of(tiny, "listed").to_pylist() if row["extension"] == "bmp" and "1" in row["key"]),
        reverse=True,
    )
    asked = [("column", "extension"), ("is", "eq"), ("value", "bmp"), ("column", "key"), ("is", "has"), ("value", "1")]
    address = "/stage/listed?" + urlencode([*asked, ("sort", "-key"), ("size", "7"), ("page", "2")])
    page = pages.get(address).text
    assert re.findall(r'<a href="/stage/listed/row\?key=([^"]+)">', page) == wanted[7:14]
    assert f"Page 2 of {-(-len(wanted) // 7)}; {len(wanted)} of 900 rows" in page
    assert of_server(page) == []
    assert 'aria-sort="descending"' in page


def test_groups_and_bars_lead_to_their_rows(pages: TestClient, tiny: Path) -> None:
    buckets = rows_of(tiny, "bucketed").select(["bucket"])["bucket"].to_pylist()
    page = pages.get("/stage/bucketed?group=bucket").text
    link = re.search(r'<a href="(/stage/bucketed\?column=bucket[^"]+)">', page)
    assert link is not None
    first = int(re.findall(r"value=(\d+)", link[1])[0])
    assert f"; {buckets.count(first):,} of {len(buckets):,} rows" in pages.get(link[1].replace("&amp;", "&")).text
    drawn = pages.get("/stage/bucketed?histogram=all").text
    assert of_server(drawn) == []
    for column in ("bucket", "width", "date_taken", "labels"):
        assert f"<h3>{column} <small>" in drawn
    bars = re.findall(r'<a href="([^"]+)">\d+</a></th><td>.*?<td class="number">(\d+)</td>', drawn)
    some = [(link, count) for link, count in bars if 0 < int(count) < len(buckets)]
    assert some
    for link, count in some[:3]:
        assert f"; {count} of {len(buckets)} rows" in pages.get(link.replace("&amp;", "&")).text


def test_downloads_hold_the_rows_of_the_view(pages: TestClient) -> None:
    asked = "?" + urlencode({"column": "extension", "is": "ne", "value": "bmp", "sort": "key"})
    parquet = pq.read_table(io.BytesIO(pages.get(f"/stage/checked/rows.parquet{asked}").content))
    csv = pyarrow.csv.read_csv(io.BytesIO(pages.get(f"/stage/checked/rows.csv{asked}").content))
    assert parquet["key"].to_pylist() == sorted(parquet["key"].to_pylist()) == csv["key"].to_pylist()
    assert "image" not in parquet.column_names
    assert {*parquet["extension"].to_pylist()} == {*csv["extension"].to_pylist()}
    assert "bmp" not in parquet["extension"].to_pylist()


def test_a_row_leads_back_to_its_source_and_forward_to_its_shard(pages: TestClient, tiny: Path) -> None:
    shards = rows_of(tiny, "shards").select(["key", "shard", "offset"]).to_pylist()[5]
    back = pages.get("/stage/shards/row?" + urlencode({"key": shards["key"]})).text
    assert f'<a href="/stage/listed/row?key={shards["key"]}"' in back
    there = pages.get("/stage/listed/row?" + urlencode({"key": shards["key"]})).text
    assert of_server(there) == []
    assert f"shard {shards['shard']}.tar, byte {shards['offset']:,}" in there
    rejected = next(iter(bw.rejects(str(tiny), stage="checked")))
    gone = pages.get("/stage/listed/row?" + urlencode({"key": rejected["key"]})).text
    assert f"rejected: {rejected['reason']}" in gone


def test_pictures_are_shown_of_rows_and_of_samples(pages: TestClient) -> None:
    for stage in ("checked", "shards"):
        found = payload_addresses(pages.get(f"/stage/{stage}?size=3").text)
        assert len(found) == 3
        answer = pages.get(found[0])
        assert answer.headers["content-type"] == "image/jpeg"
        assert answer.content[:3] == b"\xff\xd8\xff"
    key = re.findall(r"key=([^&]+)", found[0])[0]
    assert "norm" in pages.get(f"/stage/embedded/row?key={key}").text
    file = pages.get(f"/stage/checked/payload?key={key}&name=image")
    assert file.headers["content-type"] == "application/octet-stream"
    assert file.headers["content-disposition"].startswith("attachment")


def test_rejected_rows_by_reason(pages: TestClient, tiny: Path) -> None:
    page = pages.get("/rejects").text
    reasons = bw.show(str(tiny))["stages"][1]["rejects"]
    for reason, count in reasons.items():
        link = f"/stage/checked/rejects?column=reason&amp;is=eq&amp;value={reason}"
        assert f'<a href="{link}"' in page
        assert f"; {count} of {sum(reasons.values())} rows" in pages.get(link.replace("&amp;", "&")).text


def test_a_run_that_is_not_finished_tells_how_far_it_is(copy: Path) -> None:
    parts = sorted(copy.glob("stages/checked/part-?????.parquet"))
    stages = list(bw.show(str(copy))["provenance"]["chain"])
    for link in stages[1:]:
        (copy / "stages" / link["stage"] / "artifact.json").unlink()
    pages = client(copy)
    page = pages.get("/").text
    done = sum(pq.read_metadata(part).num_rows for part in parts)
    assert "data-live" in page
    assert "stage checked is being made" in page
    assert "900 of 900" in page
    assert f"; {done} rows" in pages.get("/stage/checked").text
    assert "truncated 34" in page
    assert ">34</td>" in pages.get("/rejects").text


def test_two_runs_row_by_row(tiny: Path, tmp_path: Path) -> None:
    for name in ("words.py", "words.toml"):
        shutil.copy(Path(__file__).resolve().parents[2] / "docs/examples" / name, tmp_path)
    (tmp_path / "texts").mkdir()
    for name, text in {"one": "a rose is a rose", "two": "no two texts are the same", "short": "word"}.items():
        (tmp_path / "texts" / f"{name}.txt").write_text(text)
    outs = [tmp_path / "loose", tmp_path / "strict"]
    with contextlib.chdir(tmp_path):
        for out, least in zip(outs, (1, 3), strict=True):
            bw.run(bw.job("words.py", overrides=[f"min_words={least}"]), str(out))
    pages = client(*outs)
    assert '<a href="/compare?stage=counted"' in pages.get("/compare").text
    page = pages.get("/compare?stage=counted").text
    assert "only here" in page
    assert '<a href="/stage/counted/row?key=short">' in page
    assert pages.get("/other/stage/counted").status_code == 200
    assert "/stage/counted/row?key=short" not in pages.get("/other/stage/counted").text
    assert client(tiny).get("/compare").status_code == 404


# -------------------------------------------------------------------------------------------------------------- payloads


def test_payloads_are_told_by_bytes_and_shape() -> None:
    joints = np.zeros((3, 10, 25, 2), np.float32)
    joints[0, :, :, 0] = np.arange(10)[:, None]
    kinds = {
        "picture": stored_png(np.zeros((4, 4, 3), np.uint8)),
        "clip": b"\0\0\0\x18ftypmp42" + b"\0" * 20,
        "sound": b"RIFF\x24\0\0\0WAVEfmt ",
        "text": b'{"a": 1}',
        "bytes": b"\0\1\2",
        "skeleton": joints,
        "image": np.random.default_rng(0).random((6, 8, 3)),
        "vector": np.array([3.0, 4.0]),
        "array": np.zeros((2, 2)),
    }
    found = {kind: payloads.payload_of("x", value) for kind, value in kinds.items()}
    assert {kind: one.kind for kind, one in found.items()} == {kind: kind for kind in kinds}
    assert payloads.vector_figures(np.array([3.0, 4.0]))["norm"] == 5
    assert payloads.media_type(b"fLaC\0") == "audio/flac"
    assert payloads.curve_points(np.array([[0, 1, 3], [3, 2, 0]])) == ["0,100 50,66.67 100,0", "0,0 50,33.33 100,100"]
    long = np.zeros(100_000, np.int16)
    long[54_321] = 9
    (points,) = payloads.curve_points(long)
    assert (len(points.split()), points.count(",0 ")) == (800, 1), "an outlier is seen"
    others = (np.zeros((0, 4)), np.array(["a", "b"]), np.zeros(3, dtype=[("x", "f4")]), np.ones(3, dtype=complex))
    assert not any(map(payloads.curve_points, others))
    assert payloads.curve_points(np.array([0, 1e-12])) == ["0,100 100,0"]
    assert not any(map(payloads.curve_points, (np.zeros((30, 40)), np.zeros((2, 2)), np.array([np.nan, 1.0]), joints)))
    moved = payloads.motion(found["skeleton"])
    assert [len(moved["frames"]), len(moved["frames"][0]), len(moved["frames"][0][0])] == [10, 1, 25]
    assert moved["frames"][0][0][0][0] == 0
    assert moved["frames"][9][0][0][0] == 1
    assert payloads.picture(found["image"], 144) != payloads.picture(found["image"], 144, [1.0, 0.5, 0.2])


def test_frames_that_lie_one_after_another_are_told_apart(tmp_path: Path) -> None:
    run(bw.source("sampled", bw.step(sampled)), str(tmp_path / "run"))
    pages = client(tmp_path / "run")
    page = pages.get("/stage/sampled/row?key=clip").text
    assert of_server(page) == []
    strip = payload_addresses(page)[1:]
    assert [re.findall("name=frames%3A(....)", found) for found in strip] == [["0000"], ["0001"], ["0002"]]
    assert len({pages.get(found).content for found in strip}) == 3


def test_sound_is_played_and_signals_are_drawn(tmp_path: Path) -> None:
    run(bw.source("heard", bw.step(heard)), str(tmp_path / "run"))
    pages = client(tmp_path / "run")
    page = pages.get("/stage/heard/row?key=a").text
    assert of_server(page) == []
    assert page.count("<polyline ") == 2
    (address,) = re.findall(r'<audio controls preload="metadata" src="([^"]+)"', page)
    found = pages.get(html.unescape(address))
    assert (found.content, found.headers["content-type"]) == (SOUND, "audio/wav")


# -------------------------------------------------------------------------------------------------------------- hostile


def test_names_and_values_of_data_are_inert(tmp_path: Path) -> None:
    evil = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "../../etc/passwd", "..", "a/b?c=d&e", "x\x1b[2J"]
    table = pa.table({"key": evil, 'a"; DROP': evil, "n": [1, 2, 3, 4, 5, 6]})
    pq.write_table(table, tmp_path / "part.parquet")
    rows = ParquetRows(Database(), [str(tmp_path / "part.parquet")], table.schema, 6)
    for name in table.column_names[:2]:
        for value in evil:
            found = rows.page(Query.of([("column", name), ("is", "eq"), ("value", value)], rows.plain))
            assert [row["key"] for row in found.rows] == [value]
    hostile = "'; SELECT * FROM read_text('/etc/passwd'); --"
    assert rows.page(Query((Condition("key", "has", hostile),))).total == 0
    with pytest.raises(Refused, match="no column"):
        Query.of([("sort", hostile)], rows.plain)


def test_folders_on_the_way_to_a_run_are_no_columns(tmp_path: Path) -> None:
    folder = tmp_path / "year=1999"
    folder.mkdir()
    table = pa.table({"key": ["a", "b"], "year": [2001, 2002]})
    pq.write_table(table, folder / "part.parquet")
    rows = ParquetRows(Database(), [str(folder / "part.parquet")], table.schema, 2)
    assert rows.page(Query()).rows == table.to_pylist()


@pytest.mark.parametrize("wanted", ["bytes=\u00b2-", "bytes=0-\u00b2", f"bytes={'9' * 5000}-", "bytes=-2", "lines=0-1", ""])
def test_a_stretch_that_cannot_be_read_is_the_whole(wanted: str) -> None:
    assert _stretch(b"clip", "bytes=1-2", "video/mp4").body == b"li"
    assert _stretch(b"clip", wanted, "video/mp4").status_code == 200


def test_a_host_may_have_capitals(pages: TestClient, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Browsers send the name of a host in small letters."""
    monkeypatch.setattr(socket, "gethostname", lambda: "MyBox")
    app = make_app(str(tiny), host="0.0.0.0", port=PORT, token=TOKEN)
    there = TestClient(app, base_url=f"http://mybox:{PORT}", headers=COOKIE)
    assert (there.get("/").status_code, pages.get("/", headers={"host": f"mybox:{PORT}"}).status_code) == (200, 403)


def test_hostile_keys_are_shown_and_lead_to_their_rows(copy: Path) -> None:
    (part,) = copy.glob("stages/listed/part-00000.parquet")
    table = pq.read_table(part)
    evil = ["<script>alert(1)</script>", "..", "a/b?c=d&e"]
    keys = pa.array([*evil, *table["key"].to_pylist()[3:]])
    pq.write_table(table.set_column(0, table.schema.field("key"), keys), part)
    pages = client(copy)
    listed = pages.get("/stage/listed").text
    assert of_server(listed) == []
    for key in evil:
        assert f"/stage/listed/row?{urlencode({'key': key})}" in listed
        assert pages.get(f"/stage/listed/row?{urlencode({'key': key})}").status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/stage/..%2f..%2fetc",
        "/stage/%2e%2e/%2e%2e/etc/passwd",
        "/stage//etc/passwd",
        "/stage/listed/payload?key=x&name=../../run.json",
        "/stage/listed/rows.html",
        "/view.css/../../pyproject.toml",
        "/other/",
    ],
)
def test_no_path_leaves_the_run(pages: TestClient, path: str) -> None:
    assert pages.get(path).status_code == 404


def test_damaged_files_are_told_in_a_line(copy: Path) -> None:
    pages = client(copy)
    (copy / "stages/listed/artifact.json").unlink()
    part = copy / "stages/listed/part-00000.parquet"
    part.write_bytes(part.read_bytes()[:500])
    answer = pages.get("/stage/listed")
    assert (answer.status_code, "This cannot be shown" in answer.text) == (500, True)
    (copy / "run.json").write_text("{}")
    answer = pages.get("/stage/listed")
    assert (answer.status_code, "run.json does not match its seal" in answer.text) == (500, True)
    (copy / "run.json").unlink()
    assert "contains no run" in pages.get("/").text


def test_links_and_references_that_leave_the_run_are_not_followed(copy: Path, tmp_path: Path) -> None:
    (blobs,) = copy.glob("stages/listed/part-00000.blobs")
    shutil.move(blobs, tmp_path / "elsewhere")
    blobs.symlink_to(tmp_path / "elsewhere")
    pages = client(copy)
    key = rows_of(copy, "listed").select(["key"])["key"][0].as_py()
    answer = pages.get(f"/stage/listed/payload?key={key}&name=image")
    assert (answer.status_code, "leaves the run" in answer.text) == (500, True)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("size=100000", f"a number from 1 to {LARGEST_PAGE}"),
        ("page=-1", "page = &#39;-1&#39;"),
        ("page=9999999999999999999999", "a number from 1"),
        ("sort=nothing", "no column"),
        ("column=width&is=like&value=1", "no operator"),
        ("column=width&is=eq&value=wide", "the column holds int64"),
        ("column=width&is=eq", "lacks its column"),
        ("column=key&is=eq&value=" + "x" * 501, "500 at most"),
        ("&".join(["column=key&is=ne&value=x"] * 13), "12 at most"),
        ("sort=key&page=40000", "of a sorted view"),
    ],
)
def test_what_asks_for_too_much_is_told_so(pages: TestClient, query: str, told: str) -> None:
    answer = pages.get(f"/stage/checked?{query}")
    assert (answer.status_code, told in answer.text) == (400, True), answer.text


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/", {"cookie": ""}, 403),
        ("GET", "/", {"cookie": f"benchwright-{PORT}=another"}, 403),
        ("GET", "/?token=wrong", {"cookie": ""}, 403),
        ("GET", "/", {"host": "evil.example"}, 403),
        ("GET", "/", {"host": f"{HOST}:1"}, 403),
        ("GET", "/", {"host": f"evil@{HOST}:{PORT}"}, 403),
        ("GET", "/", {"origin": "http://evil.example"}, 403),
        ("GET", "/", {"origin": "null"}, 403),
        ("GET", "/", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
        ("POST", "/", {}, 405),
        ("DELETE", "/stage/listed", {}, 405),
        ("GET", "/?q=" + "x" * 9000, {}, 414),
        ("GET", "/", {"content-length": "1000000000"}, 413),
        ("GET", "/", {}, 200),
    ],
)
def test_who_is_let_in(pages: TestClient, method: str, path: str, headers: dict[str, str], status: int) -> None:
    answer = pages.request(method, path, headers=headers)
    assert answer.status_code == status
    assert "default-src 'none'; script-src 'self'" in answer.headers["content-security-policy"]
    assert "unsafe-inline" not in answer.headers["content-security-policy"].replace("style-src-attr 'unsafe-inline'", "")
    if status != 200:
        assert "listed" not in answer.text


def test_the_token_becomes_a_cookie(tiny: Path) -> None:
    pages = client(tiny, cookie="")
    answer = pages.get(f"/stage/listed?size=3&token={TOKEN}", headers={"cookie": ""})
    assert (answer.status_code, answer.headers["location"]) == (303, "/stage/listed?size=3")
    assert "HttpOnly" in answer.headers["set-cookie"]
    outside = pages.get(f"//evil.example/?token={TOKEN}", headers={"cookie": ""})
    assert urlsplit(outside.headers["location"]).netloc == ""


# --------------------------------------------------------------------------------------------------------------- serving


@pytest.fixture(scope="module")
def served(tiny: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [sys.executable, "-P", "-m", "benchwright.pipelines.cli.main", "view", str(tiny), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process
        process.kill()


def test_a_server_of_its_own(served: tuple[str, subprocess.Popen[str]], bw: Cli, tiny: Path) -> None:
    link, process = served
    place = urlsplit(link)
    assert place.hostname == "127.0.0.1"

    def ask(path: str, **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection(place.hostname or "", place.port)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers["set-cookie"] or answer.read().decode()

    assert ask("/")[0] == 403
    status, cookie = ask(f"/?{place.query}")
    assert status == 303
    assert ask("/stage/listed", cookie=cookie.partition(";")[0])[0] == 200
    assert ask("/" + "x" * 40_000)[0] in (400, 414, 431)
    told = bw("view", tiny, "--port", place.port)
    assert (told.code, told.err) == (
        2,
        f"benchwright: port {place.port} of 127.0.0.1 is taken: name another with --port, or --port 0 for any\n",
    )
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    assert process.stderr is not None
    assert process.stderr.read() == ""


@pytest.mark.parametrize("earlier", [0, 2])
def test_slow_requests_are_closed(tiny: Path, monkeypatch: pytest.MonkeyPatch, earlier: int) -> None:
    import asyncio

    import uvicorn
    from benchwright.pipelines.view import server

    monkeypatch.setattr(server, "_SLOWEST_S", 0.1)

    async def closed() -> bytes:
        listening = server._listening("127.0.0.1", 0)
        app = make_app(str(tiny), host=HOST, port=listening.getsockname()[1], token=TOKEN)
        running = uvicorn.Server(server.config_of(app))
        task = asyncio.create_task(running.serve(sockets=[listening]))
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        for _ in range(earlier):  # of the same connection
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
            await reader.readexactly(int(re.findall(rb"content-length: (\d+)", head)[0]))
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ")  # and no end
        await writer.drain()
        data = await asyncio.wait_for(reader.read(), 30)
        running.should_exit = True
        await task
        writer.close()
        return data

    assert asyncio.run(closed()) == b""


def test_wrong_uses_are_one_line(bw: Cli, tiny: Path, tmp_path: Path) -> None:
    assert bw("view", "s3://bucket/run").err == (
        "benchwright: s3://bucket/run: runs are viewed in local folders only: copy the run to one\n"
    )
    told = bw("view", tmp_path)
    assert (told.code, "contains no run" in told.err) == (1, True)
    assert "name another --host" in bw("view", tiny, "--host", "192.0.2.7").err
