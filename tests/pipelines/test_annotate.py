"""``benchwright qa serve``: its pages, what they refuse, and a kill in the middle."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.client
import json
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from benchwright.curation import journal
from benchwright.curation.lock import Busy
from benchwright.curation.qa.imports import own_salt, workers_of
from benchwright.curation.qa.rounds import asked_rows, questions_of
from benchwright.curation.qa.votes import read_votes
from benchwright.curation.records import JOURNAL
from benchwright.pipelines import api
from benchwright.pipelines.outputs import asking as round_of
from benchwright.pipelines.view import annotate as annotate_server
from benchwright.pipelines.view import guard
from benchwright.pipelines.view.annotate import Asking, asked_by, make_app
from PIL import Image
from starlette.testclient import TestClient

from tests.pipelines.annotating import PEOPLE, Server
from tests.pipelines.conftest import Cli
from tests.pipelines.pages import faults

HOST, PORT, TOKEN = "127.0.0.1", 8471, "the-requester"
BASE = f"http://{HOST}:{PORT}"


@pytest.fixture
def out(shapes_waiting: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(shapes_waiting, tmp_path / "out"))


@contextlib.contextmanager
def asked(out: Path, *people: str, **more: object) -> Iterator[Asking]:
    with asked_by(round_of(str(out), None, None)[0], str(out), annotators=people, go_on=lambda: "gone on", **more) as asking:  # type: ignore[arg-type]
        yield asking


def client(asking: Asking, who: str, **headers: str) -> TestClient:
    """The pages as an annotator, a guest ("") or the requester sees them."""
    app = make_app(asking, host=HOST, port=PORT, token=TOKEN)
    role, token = ("requester", TOKEN) if who == "requester" else ("annotator" if who else "guest", asking.desk.token(who))
    own = {"cookie": f"benchwright-{PORT}-{role}={token}", "origin": BASE, **headers}
    return TestClient(app, base_url=BASE, headers=own, follow_redirects=False)


def shown(page: str) -> str:
    """The question of a page, "" where there is none."""
    found = re.search(r'action="/answer".*?name="id" value="(\w+)"', page, re.DOTALL)
    return found[1] if found else ""


def of_pages(page: str) -> list[str]:
    """Faults but those of reports, which have no scripts, and of pages with places to go."""
    return [each for each in faults(page) if not each.startswith(("<script>", "<nav>")) and "landmark" not in each]


# ------------------------------------------------------------------------------------------------------------ annotators


def test_an_annotator_answers_without_a_script(out: Path) -> None:
    with asked(out, "anna") as asking:
        anna = client(asking, "anna")
        page = anna.get("/question").text
        assert of_pages(page) == []
        assert "Question 1" in page
        first = shown(page)
        assert asking.desk.key_of(first) not in page
        answer = anna.post("/answer", data={"id": first, "label": "1", "sensitive": "No"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/question")
        second = shown(anna.get("/question").text)
        assert second not in ("", first)
        assert anna.post("/undo", data={"id": first}).headers["location"] == f"/question?id={first}"
        again = anna.get(f"/question?id={first}").text
        assert re.findall(r'value="(\w+)"[^>]* checked', again) == ["1", "No"]
        anna.post("/later", data={"id": first})
        assert shown(anna.get("/question").text) == second
    told = [{name: each[name] for name in ("by", "labels", "sensitive")} for each in journal.read(out / "qa" / JOURNAL)[1:2]]
    assert told == [{"by": "anna", "labels": ["square"], "sensitive": False}]


def test_a_script_is_given_the_next_question_at_once_with_the_pictures_that_follow(out: Path) -> None:
    with asked(out, "anna") as asking:
        anna = client(asking, "anna", **{"x-part": "main"})
        page = anna.get("/question").text
        ahead = re.search(r'data-ahead="([^"]+)"', page)[1].split()  # type: ignore[index]
        assert len(ahead) == 3
        answer = anna.post("/answer", data={"id": shown(page), "none": "1", "sensitive": "Yes"})
        assert answer.status_code == 200
        assert f"/picture?id={shown(answer.text)}" == ahead[0]
        picture = anna.get(ahead[0])
        assert picture.headers["content-type"] in ("image/png", "image/jpeg")
        assert picture.headers["cache-control"].startswith("private")
        refused = anna.post("/answer", data={"id": shown(answer.text), "sensitive": "Yes"})
        assert (refused.status_code, 'role="alert"' in refused.text) == (200, True)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"sensitive": "No"}, "Choose an answer."),
        ({"label": "7", "sensitive": "No"}, "Choose an answer."),
        ({"label": "0", "none": "1", "sensitive": "No"}, "not both"),
        ({"label": "0"}, "Answer the second question"),
        ({"label": "0", "sensitive": "Perhaps"}, "Answer the second question"),
    ],
)
def test_half_an_answer_is_none(out: Path, given: dict[str, str], told: str) -> None:
    with asked(out, "anna") as asking:
        anna = client(asking, "anna")
        first = shown(anna.get("/question").text)
        page = anna.post("/answer", data={"id": first, **given})
        assert (page.status_code, told in page.text, shown(page.text)) == (400, True, first)
        assert of_pages(page.text) == []
    assert len(journal.read(out / "qa" / JOURNAL)) == 1


def test_time_is_measured_by_question_and_goes_on_when_the_page_is_loaded_again(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("benchwright.pipelines.view.annotate.time.monotonic", lambda: now[0])
    with asked(out, "anna") as asking:
        anna = client(asking, "anna", **{"x-part": "main"})
        first = shown(anna.get("/question").text)
        now[0] = 103.0
        anna.get("/question")
        now[0] = 104.5
        second = shown(anna.post("/answer", data={"id": first, "none": "1", "sensitive": "No"}).text)
        now[0] = 106.0
        anna.post("/answer", data={"id": second, "none": "1", "sensitive": "No"})
    with asked(out) as asking:  # the server was ended: nobody knows since when this question is shown
        anna = client(asking, "anna")
        third = asking.desk.id_of(asking.desk.ahead("anna", 1)[0])
        anna.post("/answer", data={"id": third, "none": "1", "sensitive": "No"})
    assert [each["seconds"] for each in journal.read(out / "qa" / JOURNAL)[1:]] == [4.5, 1.5, None]


def test_people_give_themselves_a_name(out: Path) -> None:
    with asked(out, "anna") as asking:
        guest = client(asking, "")
        assert guest.get("/").headers["location"] == "/join"
        assert of_pages(guest.get("/join").text) == []
        assert guest.get("/question").status_code == 403
        refused = guest.post("/join", data={"name": "Anna"})
        assert (refused.status_code, "it is already taken" in refused.text) == (400, True)
        there = guest.post("/join", data={"name": " <b>Zoë</b> "}).headers["location"]
        assert there == f"/question?token={asking.desk.token('<b>Zoë</b>')}"
        assert client(asking, "<b>Zoë</b>").get("/").headers["location"] == "/question"
        page = client(asking, "requester").get("/").text
        assert "&lt;b&gt;Zoë&lt;/b&gt;" in page
        assert "<b>Zoë" not in page


# ------------------------------------------------------------------------------------------------------------- requester


def test_the_requester_sees_agreement_decides_and_lets_the_run_go_on(out: Path) -> None:
    with asked(out, *PEOPLE) as asking:
        requester, keys = client(asking, "requester"), asking.desk.keys[:5]
        for name in PEOPLE:
            for number, key in enumerate(keys):
                labels = [["disc"], ["square"], []][PEOPLE.index(name)] if number == 0 else ["disc", "square"][number % 2 :][:1]
                asking.desk.answer(name, key, labels, number == 1 and name == "ben", 3.0)
        page = requester.get("/").text
        assert of_pages(page) == []
        assert "5 of 200" in page
        assert "data-live" in page
        assert "Decide the 2 images on which they disagree" in page
        decide = requester.get("/decide").text
        assert of_pages(decide) == []
        assert 'name="sensitive"' not in decide  # only what they disagree on is asked; images without a majority come first
        first = re.search(r'name="id" value="(\w+)"', decide)[1]  # type: ignore[index]
        assert asking.desk.key_of(first) == keys[0]
        assert requester.get(f"/picture?id={first}").status_code == 200
        assert "Nothing is chosen." in requester.post("/decide", data={"id": first}).text
        assert requester.post("/decide", data={"id": first, "label": "0"}).status_code == 303
        after = requester.get("/decide").text
        assert 'name="label"' not in after
        assert "1 image to decide" in after
        assert requester.post("/finish", data={"go": "1"}).headers["location"] == "/"
        assert asking.runs is not None
        asking.runs.join()
        assert "gone on" in requester.get("/").text
    votes = read_votes(str(out / "qa/votes.parquet"))
    assert votes.num_rows == 2 * 3 * 5 + 1


def test_who_was_removed_is_out(out: Path) -> None:
    with asked(out, "anna") as asking:
        requester, anna = client(asking, "requester"), client(asking, "anna")
        assert requester.post("/invite", data={"name": "ben"}).status_code == 303
        assert "it is already taken" in requester.post("/invite", data={"name": "ben"}).text
        first = shown(anna.get("/question").text)
        requester.post("/remove", data={"name": "anna"})
        assert anna.post("/answer", data={"id": first, "none": "1", "sensitive": "No"}).status_code == 403
        assert requester.post("/remove", data={"name": "nobody"}).status_code == 400


def test_answers_that_were_counted_and_then_discarded_are_taken_back_at_the_end(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(annotate_server, "serve_app", ended)
    the_round = round_of(str(out), None, None)[0]
    end = functools.partial(
        annotate_server.serve, the_round, str(out), host=HOST, port=0, tell=lambda *_: None, go_on=lambda: ""
    )
    with asked(out, "anna") as asking:
        asking.desk.answer("anna", asking.desk.keys[0], [], False, None)
        asking.desk.undo("anna", asking.desk.keys[0])
    assert end() is None, "an empty file of votes would let the run go on"
    with asked(out) as asking:
        asking.desk.answer("anna", asking.desk.keys[0], [], False, None)
    assert (counted := end()) is not None
    assert counted.votes == 2
    with asked(out) as asking:
        asking.desk.remove("anna", discard=True)
    assert (counted := end()) is not None
    assert (counted.votes, counted.withdrawn) == (0, 2)


def test_the_run_goes_on_by_one_call(out: Path) -> None:
    """What the button does: the votes are counted, and the pipeline runs to its end."""
    todo = api.job_of(str(out))
    with asked(out, *PEOPLE) as asking:
        truth = questions_of(asking.desk.asked, asked_rows(asking.desk.asked, str(out))[1])
        for name in PEOPLE:
            for key in asking.desk.keys:
                asking.desk.answer(name, key, [truth[key]], False, None)
        asking.go_on = lambda: f"{api.run(todo, str(out)).result.rows} rows"
        asking.count()
        asking.run()
        assert asking.runs is not None
        asking.runs.join()
        assert asking.going == "200 rows"
    assert (out / "dataset/dataset.json").is_file()
    assert api.verify(str(out)) == []


# --------------------------------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("who", "method", "path", "headers", "status"),
    [
        ("anna", "GET", "/question", {"cookie": ""}, 403),
        ("anna", "GET", "/question", {"cookie": f"benchwright-{PORT}-annotator=another"}, 403),
        ("anna", "GET", "/question?token=%C3%A9%FF", {"cookie": ""}, 403),
        ("anna", "GET", "/question", {"cookie": f'benchwright-{PORT}-annotator="\\351"; a=b'}, 403),
        ("anna", "GET", "/question", {"host": "evil.example"}, 403),
        ("anna", "GET", "/question?id=gold", {}, 400),
        ("anna", "GET", "/picture?id=../../run.json", {}, 400),
        ("anna", "GET", "/", {}, 303),
        ("anna", "GET", "/decide", {}, 403),
        ("anna", "GET", "/answer", {}, 404),
        ("anna", "GET", "/stage/drawn", {}, 404),
        ("anna", "POST", "/answer", {"origin": "http://evil.example"}, 403),
        ("anna", "POST", "/answer", {"origin": "null"}, 403),
        ("anna", "POST", "/answer", {"origin": ""}, 403),
        ("anna", "POST", "/answer", {"origin": f"http://{HOST}:1"}, 403),
        ("anna", "POST", "/answer", {"sec-fetch-site": "cross-site"}, 403),
        ("anna", "POST", "/question", {}, 405),
        ("anna", "POST", "/answer", {"content-length": "70000"}, 413),
        ("anna", "POST", "/answer", {"content-length": "9" * 40}, 413),
        ("anna", "POST", "/answer", {"transfer-encoding": "chunked"}, 413),
        ("anna", "POST", "/answer", {}, 400),
        ("anna", "PUT", "/answer", {}, 405),
        ("anna", "POST", "/finish", {}, 403),
        ("anna", "POST", "/remove", {}, 403),
        ("anna", "POST", "/invite", {}, 403),
        ("", "POST", "/answer", {}, 403),
        ("requester", "POST", "/answer", {}, 403),
        ("requester", "GET", "/question", {}, 403),
        ("requester", "GET", "/", {}, 200),
    ],
)
def test_who_is_let_in(lone: Asking, who: str, method: str, path: str, headers: dict[str, str], status: int) -> None:
    given = {"content-type": "application/x-www-form-urlencoded", **headers}
    pages = client(lone, who, **given)
    if headers.get("origin") == "":
        del pages.headers["origin"]
    answer = pages.request(method, path, content=b"id=x" if method != "GET" else b"")
    assert answer.status_code == status, answer.text
    assert "default-src 'none'; script-src 'self'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"
    assert lone.desk.answers.length == 1


@pytest.fixture(scope="module")
def lone(shapes_waiting: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    """A round with one annotator, which nothing may change."""
    with asked(Path(shutil.copytree(shapes_waiting, tmp_path_factory.mktemp("lone") / "out")), "anna") as asking:
        yield asking


def test_forms_that_are_none(lone: Asking) -> None:
    kind = {"content-type": "application/x-www-form-urlencoded"}
    for body in (b"id=%ff%fe&label=1", b"&".join([b"label=1"] * 3000), b"\xff=1", b""):
        answer = client(lone, "anna", **kind).post("/answer", content=body)
        assert answer.status_code == 400
        assert "is no longer open" in answer.text or "this form cannot be read" in answer.text
    assert lone.desk.answers.length == 1


def test_a_form_that_does_not_come_is_not_waited_for(lone: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    monkeypatch.setattr(guard, "_SLOWEST_BODY_S", 0.05)
    told: list[dict[str, object]] = []

    async def ask(gone: bool) -> None:
        app = make_app(lone, host=HOST, port=PORT, token=TOKEN)
        names = client(
            lone,
            "anna",
            **{"content-type": "application/x-www-form-urlencoded", "content-length": "9", "host": f"{HOST}:{PORT}"},
        )
        headers = [(name.lower().encode(), value.encode()) for name, value in names.headers.items()]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/answer",
            "raw_path": b"/answer",
            "query_string": b"",
            "headers": headers,
        }
        messages = [
            {"type": "http.request", "body": b"id=", "more_body": True},
            *([{"type": "http.disconnect"}] if gone else []),
        ]

        async def receive() -> dict[str, object]:
            if not messages:
                await asyncio.Event().wait()
            return messages.pop(0)

        async def send(message: dict[str, object]) -> None:
            told.append(message)

        await app(scope, receive, send)  # type: ignore[arg-type]

    asyncio.run(ask(gone=False))
    assert told[0]["status"] == 408
    told.clear()
    asyncio.run(ask(gone=True))
    assert told == []


def test_tokens_become_cookies_of_their_role(lone: Asking) -> None:
    pages = client(lone, "", cookie="")
    answer = pages.get(f"/question?token={lone.desk.token('anna')}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/question")
    assert answer.headers["set-cookie"].startswith(f"benchwright-{PORT}-annotator={lone.desk.token('anna')}; HttpOnly; Max-Age")
    both = client(
        lone, "anna", cookie=f"benchwright-{PORT}-annotator={lone.desk.token('anna')}; benchwright-{PORT}-requester={TOKEN}"
    )
    assert (both.get("/").status_code, both.get("/question").status_code) == (200, 200)
    stolen = client(lone, "", cookie=f"benchwright-{PORT}-requester={lone.desk.token('anna')}")
    assert stolen.get("/").status_code == 403


def test_gold_questions_count_for_the_worker_and_not_for_the_image(out: Path, tmp_path: Path) -> None:
    for name in ("disc", "square"):
        Image.new("L", (32, 32)).save(tmp_path / f"{name}.png")
    (tmp_path / "gold.csv").write_text("class_name,file\ndisc,disc.png\nsquare,square.png\n")
    with asked(out, "anna", gold=str(tmp_path / "gold.csv"), gold_every=4) as asking:
        anna, page = client(asking, "anna", **{"x-part": "main"}), ""
        for number in range(8):
            page = (
                anna.get("/question")
                if number == 0
                else anna.post("/answer", data={"id": shown(page), "label": "0", "sensitive": "No"})
            ).text
        assert "gold" not in page
        overview = client(asking, "requester").get("/").text
        asking.count()
        (worker,) = workers_of(asking.desk.asked, str(out), read_votes(str(out / "qa/votes.parquet"))).to_pylist()
    assert (worker["num_labels"], worker["num_gold"], worker["gold_right"]) == (7, 2, 1)
    assert re.search(r">anna\b.*?</tr>", overview, re.DOTALL)[0].count(">2</td>") == 1  # type: ignore[index]


def test_one_server_at_a_time_and_wrong_uses(bw: Cli, out: Path) -> None:
    with asked(out) as asking, pytest.raises(Busy, match="another `benchwright qa serve` asks"), asked(out):
        pass
    assert asking.desk.people() == []
    told = bw("qa", "serve", "s3://bucket/run")
    assert told.err == "benchwright: s3://bucket/run: annotation works only on runs in local folders: copy the run to one\n"
    assert "no round of questions 'x'" in bw("qa", "serve", out, "--round", "x").err
    told = bw("qa", "serve", out, "--annotator", "a\nb")
    assert (told.code, told.err) == (1, "benchwright: name 'a\\nb': it has a control character\n")


# ---------------------------------------------------------------------------------------------------- a kill in the middle


def answer_of(name: str, question: str) -> dict[str, str]:
    """What an annotator says of a question: mostly the same as the others."""
    luck = hashlib.sha256(f"{name if question[0] in '0123' else ''} {question}".encode()).digest()
    return {
        "id": question,
        **[{"label": "0"}, {"label": "1"}, {"none": "1"}][luck[0] % 3],
        "sensitive": "Yes" if luck[1] < 20 else "No",
    }


def annotate(server: Server, name: str, said: dict[tuple[str, str], dict[str, str]], half: threading.Barrier) -> None:
    """Answer all questions; where the server does not answer, send the same again once it is back."""
    token, page, answer, count = urlsplit(server.links[name]).query, "", dict[str, str](), 0
    connection = http.client.HTTPConnection(HOST, server.port, timeout=60)
    base = f"http://{HOST}:{server.port}"
    headers = {
        "cookie": f"benchwright-{server.port}-annotator={token.removeprefix('token=')}",
        "origin": base,
        "x-part": "main",
    }
    while True:
        try:
            if answer:
                form = {"content-type": "application/x-www-form-urlencoded", **headers}
                connection.request("POST", "/answer", urlencode(answer), form)
            else:
                connection.request("GET", "/question", headers=headers)
            got = connection.getresponse()
            page = got.read().decode()
            assert got.status == 200, page
        except (OSError, http.client.HTTPException):
            connection.close()
            if server.up.is_set() and count == 0:
                raise
            server.up.wait(60)
            continue
        if answer:
            said[name, answer["id"]] = answer
            count += 1
            if count == 70:  # the server is killed while all go on
                half.wait(60)
        question = shown(page)
        if not question:
            connection.close()
            return
        answer = answer_of(name, question)


def test_a_kill_loses_no_vote_and_counts_none_twice(bw: Cli, out: Path, tmp_path: Path) -> None:
    own_salt(str(out))
    other = Path(shutil.copytree(out, tmp_path / "other"))
    server, said = Server(out), dict[tuple[str, str], dict[str, str]]()
    half = threading.Barrier(len(PEOPLE) + 1)
    server.start()
    people = [threading.Thread(target=annotate, args=(server, name, said, half)) for name in PEOPLE]
    for each in people:
        each.start()
    half.wait(120)
    server.kill()
    torn = out / "qa" / JOURNAL
    torn.write_bytes(torn.read_bytes() + b'{"by":"anna","key":"0')  # as a loss of power leaves it
    server.start()
    for each in people:
        each.join(120)
    told = server.end()

    assert len(said) == 3 * 200, "every answer was acknowledged"
    records = [each for each in journal.read(torn) if "by" in each]
    assert len(records) == len({(each["by"], each["key"]) for each in records}) == 600
    served = read_votes(str(out / "qa/votes.parquet"))
    assert served.num_rows == 2 * 600

    # The same votes by the other way, as Label Studio would bring them.
    seconds = {(each["by"], each["key"]): each["seconds"] for each in records}
    tasks: dict[str, list[dict[str, object]]] = {}
    with asked(out) as asking:
        names = [option.name for option in asking.desk.asked.options]
        for (name, question), answer in said.items():
            key = asking.desk.key_of(question)
            labels = [names[int(answer["label"])]] if "label" in answer else ["None of the above"]
            result = [
                {"from_name": form, "value": {"choices": choices}}
                for form, choices in (("labels", labels), ("sensitive", [answer["sensitive"]]))
            ]
            tasks.setdefault(key, []).append({"completed_by": name, "result": result, "lead_time": seconds[name, key]})
    export = [{"data": {"key": key}, "annotations": annotations} for key, annotations in tasks.items()]
    (tmp_path / "export.json").write_text(json.dumps(export))
    imported = bw("qa", "import", other, tmp_path / "export.json")
    assert (other / "qa/votes.parquet").read_bytes() == (out / "qa/votes.parquet").read_bytes()
    assert "1200 votes added, 1200 in all" in imported.out
    assert imported.out.replace(str(other), str(out)) == told
    assert [each for each in api.verify(str(out)) if each.place.startswith("qa")] == []
