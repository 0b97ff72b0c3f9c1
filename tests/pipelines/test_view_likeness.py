"""``benchwright view``: rows like something, maps, groups of near-duplicates, clips, pairs and trainings at work."""

from __future__ import annotations

import io
import json
import re
import struct
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import benchwright as bw
import numpy as np
import pytest
from benchwright.curation.run import run
from benchwright.pipelines.view import comparison, maps, payloads
from benchwright.pipelines.view import vectors as view_vectors
from benchwright.pipelines.view.cache import Cache
from benchwright.pipelines.view.query import Refused
from benchwright.pipelines.view.run_view import ShownRun
from benchwright.pipelines.view.table import Database
from PIL import Image
from starlette.testclient import TestClient

from tests.pipelines.test_view import BASE, client, of_server, payload_addresses
from tests.pipelines.view_steps import N, grouped, held, learned, png, pointed, vectors


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    out = tmp_path_factory.mktemp("points") / "run"
    run(bw.source("pointed", bw.step(pointed), rows_per_part=64), str(out))
    return client(out)


def keys_of(page: str) -> list[str]:
    return re.findall(r'<a href="/stage/pointed/row\?key=(row\d+)">', page)


def numbers(text: str) -> list[int]:
    return [int(key.removeprefix("row")) for key in keys_of(text)]


def map_of(pages: TestClient, asked: str) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    data = pages.get(f"/stage/pointed/map?{asked}").content
    (size,) = struct.unpack("<I", data[:4])
    head = json.loads(data[4 : 4 + size])
    places = np.frombuffer(data, "<u2", 2 * head["count"], 4 + size).reshape(-1, 2)
    return head, places, np.frombuffer(data, np.uint8, head["count"], 4 + size + 4 * head["count"])


# ------------------------------------------------------------------------------------------------------------- searching


def test_neighbours_are_those_of_greatest_cosine_among_those_that_fit(points: TestClient) -> None:
    made = vectors().astype(np.float64)
    norms = np.linalg.norm(made, axis=1)
    cosines = made @ made[5] / np.where(norms == 0, np.inf, norms) / norms[5]
    order = [at for at in np.lexsort((np.arange(N), -cosines.round(12))) if at != 7]  # row 7 has no direction
    page = points.get("/stage/pointed?near=row005&size=200").text
    assert numbers(page) == order[:200]
    assert "; 299 rows" in page
    fitting = [at for at in order if at % 2 == 1 and cosines[at] >= 0.5]
    asked = "column=group&is=eq&value=b&column=similarity&is=ge&value=0.5"
    assert numbers(points.get(f"/stage/pointed?near=row005&size=200&{asked}").text) == fitting
    counted = points.get(f"/stage/pointed?near=row005&group=group&{asked}").text
    assert f'<td class="number">{len(fitting)}</td>' in counted
    csv = points.get("/stage/pointed/rows.csv?near=row005").text.splitlines()
    assert csv[0].endswith('"similarity"')
    assert [line.split(",")[0] for line in csv[1:4]] == ['"row005"', '"row010"', '"row020"']


def test_the_page_of_a_row_has_its_neighbours(points: TestClient) -> None:
    page = points.get("/stage/pointed/row?key=row005").text
    near = page.partition("Most like it")[2].partition("As a table")[0]
    assert re.findall(r'row\?key=(row\d+)"', near)[:2] == ["row010", "row020"]
    assert 'row?key=row005"' not in near
    assert of_server(page) == []
    assert "Most like it" in points.get("/stage/pointed/row?key=row007").text
    assert "zero or not finite" in points.get("/stage/pointed/row?key=row007").text


def test_what_cannot_be_searched_is_told_in_a_line(points: TestClient, tiny: Path, copy: Path) -> None:
    page = points.get("/stage/pointed").text
    assert "No text or picture can be looked for: stage pointed, which made vector, names no encoder." in page
    for asked, told in {
        "like=red": "names no encoder",
        "near=nothing": "has no row",
        "near=row007": "zero or not finite",
        "near=row005&vectors=group": "has no vectors group",
        "picture=00": "no longer cached",
        "like=" + "x" * 501: "500 at most",
        "sort=similarity": "no column",
        "lasso=1.2.3": "3 to 200 corners",
        "lasso=1.2.3.4.5.99999": "0 to 10000",
        "map=tsne": "pca or umap",
        "colour=nothing": "no column",
    }.items():
        answer = points.get(f"/stage/pointed?{asked}" if "map" not in asked else f"/stage/pointed/map?{asked}")
        assert (answer.status_code, told in answer.text) in ((400, True), (404, True)), (asked, answer.text[-800:])
    pages = client(tiny)
    assert "names no colour" in pages.get("/stage/embedded?like=horse").text
    assert "has no vectors" in pages.get("/stage/listed?near=x").text
    assert "have no vectors: search those" in pages.get("/stage/checked/rejects?near=x").text
    (copy / "stages/embedded/artifact.json").unlink()
    assert "is not finished" in client(copy).get("/stage/embedded?near=x").text


def test_encoders_of_ones_own_and_weights_that_are_gone(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ShownRun(str(tiny), "", Database())
    with pytest.raises(Refused, match="the weights of the encoder are no longer at any place that the settings name"):
        view_vectors._checkpoint(run, "00")
    monkeypatch.setattr(view_vectors, "_SPECS", {})
    told = view_vectors.made_by(view_vectors.VectorColumn.of(run, "embedded")).reason
    assert told == "the encoder of embedding is code: user code is not run here"
    assert "No text or picture can be looked for: the encoder of" in client(tiny).get("/stage/embedded").text


# ----------------------------------------------------------------------------------------------------- pictures that are sent


@pytest.mark.parametrize(
    ("path", "headers", "body", "status"),
    [
        ("/picture", {"origin": BASE}, png((9, 9, 200)), 200),
        ("/picture", {"origin": BASE}, b"<svg onload=alert(1)>", 400),
        ("/picture", {"origin": BASE, "content-length": str(1 << 25)}, b"", 413),
        ("/picture", {"origin": BASE, "cookie": ""}, png((1, 1, 1)), 403),
        ("/picture", {"origin": "http://evil.example"}, png((1, 1, 1)), 403),
        ("/picture", {}, png((1, 1, 1)), 403),
        ("/stage/pointed", {"origin": BASE}, png((1, 1, 1)), 405),
        ("/picture/../stage", {"origin": BASE}, png((1, 1, 1)), 405),
    ],
)
def test_which_pictures_are_taken(points: TestClient, path: str, headers: dict[str, str], body: bytes, status: int) -> None:
    answer = points.post(path, content=body, headers=headers)
    assert answer.status_code == status, answer.text
    if status == 200:
        shown = points.get(f"/picture/{answer.json()['picture']}")
        assert (shown.status_code, shown.headers["content-type"]) == (200, "image/jpeg")


def test_what_is_kept_has_a_bound() -> None:
    kept = Cache[bytes](10, len)
    kept.keep("a", b"1234")
    kept.keep("b", b"1234")
    assert kept.get("a") == b"1234"
    kept.keep("c", b"1234")
    assert (kept.get("a"), kept.get("b"), kept.get("c")) == (b"1234", None, b"1234")
    kept.keep("d", b"12345678901")
    assert kept.get("a") is kept.get("d") is None


# ------------------------------------------------------------------------------------------------------------------ maps


def test_a_map_has_the_principal_axes_and_leaves_out_what_does_not_fit(points: TestClient) -> None:
    head, places, colours = map_of(points, "colour=group")
    units = vectors().astype(np.float64)
    units /= np.maximum(np.linalg.norm(units, axis=1, keepdims=True), 1e-30)
    _, _, axes = np.linalg.svd(units - units.mean(axis=0), full_matrices=False)
    wanted = (units - units.mean(axis=0)) @ axes[:2].T
    scale = (wanted.max(axis=0) - wanted.min(axis=0)).max()
    for axis in (0, 1):
        assert abs(np.corrcoef(places[:, axis], wanted[:, axis])[0, 1]) > 0.9999
        assert np.ptp(places[:, axis]) == pytest.approx(np.ptp(wanted[:, axis]) / scale * maps.SIDE, abs=2)
    assert (head["count"], head["step"], head["values"]) == (N, 1, ["a", "b"])
    assert colours.tolist() == [at % 2 for at in range(N)]
    filtered = urlencode({"column": "group", "is": "eq", "value": "b", "colour": "score"})
    head, again, colours = map_of(points, filtered)
    assert (again == places).all()
    assert (colours[::2] == maps.NOT_SHOWN).all()
    assert (np.diff(colours[1::2].astype(int)) >= 0).all()
    assert (head["low"], head["high"], head["values"]) == ("0", "0.9967", [])


def test_a_line_encloses_rows(points: TestClient) -> None:
    _, places, _ = map_of(points, "")
    inside = np.flatnonzero(places[:, 0] < 0.4 * maps.SIDE)
    lasso = "lasso=0.0.4000.0.4000.10000.0.10000"
    page = points.get(f"/stage/pointed?{lasso}&size=200").text
    assert numbers(page) == inside.tolist()[:200]
    assert f"; {len(inside)} rows" in page
    near = [at for at in numbers(points.get("/stage/pointed?near=row005&size=200").text) if at in {*inside.tolist()}]
    assert numbers(points.get(f"/stage/pointed?{lasso}&near=row005&size=200").text)[: len(near)] == near
    _, _, colours = map_of(points, lasso)
    assert np.flatnonzero(colours != maps.NOT_SHOWN).tolist() == inside.tolist()
    assert points.get("/stage/pointed/at?number=12").headers["location"] == "/stage/pointed/row?key=row012"
    assert points.get("/stage/pointed/at?number=300").status_code == 404


def test_of_many_rows_every_second_is_drawn(points: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "_MOST_POINTS", 200)
    monkeypatch.setattr(maps, "_planes", Cache(4, lambda _: 1))
    head, places, _ = map_of(points, "")
    assert (head["count"], head["step"], len(places)) == (N // 2, 2, N // 2)
    page = points.get("/stage/pointed?lasso=0.0.10000.0.10000.10000.0.10000&size=200").text
    assert {at % 2 for at in numbers(page)} == {0}


def test_umap_where_it_is_installed(points: TestClient) -> None:
    if not maps.has_umap():
        answer = points.get("/stage/pointed/map?map=umap")
        assert (answer.status_code, "pip install umap-learn" in answer.text) == (400, True)
        return
    assert map_of(points, "map=umap")[0]["count"] == N


# ---------------------------------------------------------------------------------------------------------- near-duplicates


def test_groups_of_near_vectors(points: TestClient) -> None:
    page = points.get("/stage/pointed/groups?least=0.999999").text
    assert of_server(page) == []
    assert "1 groups." in page
    assert re.findall(r'row\?key=(row\d+)"', page) == ["row005", "row010", "row020"]
    assert "a cosine from 0.5 to 1" in points.get("/stage/pointed/groups?least=2").text


def test_groups_that_a_stage_has_found(tmp_path: Path) -> None:
    run(bw.source("near", bw.step(grouped)), str(tmp_path / "run"))
    pages = client(tmp_path / "run")
    page = pages.get("/stage/near/groups").text
    assert re.findall(r'row\?key=(\w)"', page) == ["e", "f", "g", "b", "c"]
    row = pages.get("/stage/near/row?key=f").text.partition("Near-duplicates")[2]
    assert re.findall(r'row\?key=(\w)"', row)[:2] == ["e", "g"]


# --------------------------------------------------------------------------------------------------- clips, pairs, pictures


def test_clips_of_any_container_and_pairs_with_their_lights(tmp_path: Path) -> None:
    run(bw.source("held", bw.step(held)), str(tmp_path / "run"))
    pages = client(tmp_path / "run")
    for kind in ("avi", "y4m", "mkv"):
        page = pages.get(f"/stage/held/row?key={kind}").text
        assert of_server(page) == []
        frames = [found for found in payload_addresses(page) if "clip%3A" in found and "form=large" in found]
        assert len(frames) == 12
        shades = [np.asarray(Image.open(io.BytesIO(pages.get(found).content))).mean() for found in frames]
        assert shades == sorted(shades)
        assert shades[-1] - shades[0] > 150
        assert ("<video" in page) == (kind == "mkv")
    raw, corrected = re.findall(r'<div class="pair">\s*<img src="([^"]+)"[^>]*><img class="over" src="([^"]+)"', page)
    assert all(f"image_{at}" in found and "light" not in found for at, found in enumerate(raw, 1))
    assert [re.findall("light=([^&]+)", found)[0] for found in corrected] == ["1%2C0.5%2C0.2", "0.3%2C1%2C0.9"]
    seen = [pages.get(found.replace("&amp;", "&")).content for found in (*raw, *corrected)]
    assert len({*seen}) == 4
    assert "cannot be decoded" in pages.get("/stage/held/row?key=broken").text


def test_pictures_that_are_damaged_or_too_large_are_told_by_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = payloads.Payload("x", "picture", png((1, 2, 3)))
    assert payloads.picture(whole, 144)[:3] == b"\xff\xd8\xff"
    with pytest.raises(Refused):
        payloads.picture(payloads.Payload("x", "picture", png((1, 2, 3))[:50]), 144)
    monkeypatch.setattr(payloads, "_MOST_PIXELS", 63)
    with pytest.raises(Refused, match="8 x 8 pixels: 63 at most"):
        payloads.picture(whole, 144)
    assert payloads.unseen()[:4] == b"\x89PNG"


# ---------------------------------------------------------------------------------------------- trainings and comparisons


def test_trainings_at_work_tell_what_they_have_learned(copy: Path) -> None:
    for name in ("learned_a", "learned_b", "learned_c"):
        run(bw.source(name, bw.step(learned)), str(copy / "experiments"), add=True)
    for name in ("b", "c"):
        for file in (copy / f"experiments/stages/learned_{name}").glob("*"):
            file.unlink()
    work = copy / "experiments/stages/learned_b/.work/0123"
    work.mkdir(parents=True)
    (work / "progress.json").write_text('{"done": 7}')
    page = client(copy).get("/results").text
    assert of_server(page) == []
    assert "data-live" in page
    assert "1 of 3 trainings are done." in page
    rows = re.findall(r'<th scope="row"[^>]*>(.*?)</th>\s*<td[^>]*>(.*?)</td>\s*<td[^>]*>(.*?)</td>', page)
    assert [tuple(re.sub("<.*?>", "", each).strip() for each in row) for row in rows] == [
        ("b", "at work", "7"),
        ("c", "waits", "–"),
    ]
    (work / "progress.json").write_text("[]")
    assert client(copy).get("/results").status_code == 200


def test_what_is_not_compared_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, source in (("one", grouped), ("other", learned)):
        run(bw.source("near", bw.step(source)), str(tmp_path / name))
    pages = client(tmp_path / "one", tmp_path / "other")
    assert '<a href="/compare?stage=near"' in pages.get("/compare").text
    monkeypatch.setattr(comparison, "_MOST_READ", 1)
    assert "8 rows are too many to compare here" in pages.get("/compare").text
    (tmp_path / "other/stages/near/artifact.json").unlink()
    assert "not finished there" in pages.get("/compare").text
    assert "not finished there" in pages.get("/compare?stage=near").text
