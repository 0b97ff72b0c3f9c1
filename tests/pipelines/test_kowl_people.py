"""KOWL with labels from people: requests go out increment by increment, and a training waits for answers."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from benchwright.curation.qa.votes import VOTES, write_votes
from benchwright.curation.rows import Rejected
from benchwright.curation.stage_rows import Rows
from benchwright.datasets.reader.index import DatasetIndex
from benchwright.eval.protocols.open_world.loop import Increment, Setting, SplitSamples, Unanswered, run_open_world
from benchwright.pipelines import api, outputs
from benchwright.pipelines.kowl.requests import Answered, majority_labels
from benchwright.pipelines.view.annotate import asked_by, make_app
from benchwright.training.predictors.ann import novel_rows
from sklearn.metrics import accuracy_score, matthews_corrcoef
from starlette.testclient import TestClient

pytestmark = pytest.mark.usefixtures("blank_figures")

Cli = Callable[..., Any]
"""The fixture ``bw`` of ``conftest``."""
WORDS = ["--method", "ann", "--protocol", "people-0.1", "--quiet"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny lists in two later increments, before anything is trained."""
    out = tmp_path_factory.mktemp("people") / "out"
    later = 'increments.later=[{release="second", count=1, seed=0}, {release="third", count=1, seed=1}]'
    people = 'evaluation.people={feedback=[0.1], address="https://clips.example/{youtube_id}?t={time_start}"}'
    quick = ["evaluation.settings.ann={hidden=16, epochs=5}", "evaluation.keep_states=true"]
    api.run(api.job("kowl", config="tiny", overrides=[later, people, *quick]), str(out), scheduler="sync")
    return out


def answers(project: list[Path], truth: dict[str, str], *, first: int | None = None) -> list[str]:
    """What three annotators say in Label Studio: the class of the lists; of the first task they know nothing."""
    tasks: list[dict[str, Any]] = json.loads(project[0].read_text())[:first]
    for number, task in enumerate(tasks):
        said = "None of the above" if number == 0 else truth[task["data"]["key"]]
        result = {"from_name": "labels", "type": "choices", "value": {"choices": [said]}}
        task["annotations"] = [{"completed_by": worker, "result": [result]} for worker in (1, 2, 3)]
    path = project[0].with_name("answers.json")
    path.write_text(json.dumps(tasks))
    return [str(path)]


def test_a_training_by_people_waits_in_every_increment_and_goes_on(run: Path, tmp_path: Path, bw: Cli) -> None:
    table = DatasetIndex.open(run / "dataset").table
    truth = dict(zip(table["key"].to_pylist(), table["label_recent_first"].to_pylist(), strict=True))
    asked: list[list[str]] = []
    for increment in (1, 2):
        told = bw("train", run, *WORDS)
        assert told.code == 0, told.err
        project = api.qa_export(str(run), str(tmp_path / str(increment)), tool="label-studio")
        tasks = [task["data"] for task in json.loads(project[0].read_text())]
        assert f"waits for {3 * len(tasks)} answers about {len(tasks)} samples" in told.out
        assert f"by_ann_10_{told.out.split('_')[3]}_{increment}: " in told.out
        asked.append([task["key"] for task in tasks])
        forms = [path.name for path in api.qa_export(str(run), str(tmp_path / f"mturk{increment}"))]
        assert forms == ["labels.html", f"bucket{increment:02}.csv"]
        rows = {row["key"]: row for row in table.to_pylist()}
        mine = rows[tasks[0]["key"]]
        assert (mine["increment"], mine["role"]) == (increment, "train")
        assert f"https://clips.example/{mine['youtube_id']}?t={mine['time_start']}" in tasks[0]["image"]
        assert '"sensitive"' not in project[1].read_text()  # a label is wanted, and nothing else
        api.qa_import(str(run), answers(project, truth, first=2))
        assert f"waits for {3 * len(tasks) - 6} answers about {len(tasks) - 2} samples" in bw("eval", run).out
        assert api.qa_import(str(run), answers(project, truth)).known == 6
    told = bw("train", run, *WORDS)
    assert told.code == 0, told.err
    assert "waits" not in told.out
    report = Path(api.report(str(run))).read_text()
    assert "Feedback by people" in report
    assert "Feedback is SIMULATED" in report
    rejects = bw("rejects", run / "experiments")
    assert "none_of_the_above" in rejects.out
    # The budget and the order are those of the same predictor whose feedback the lists simulate: increment 1 is asked alike.
    (simulated,) = [
        row["labelled"]
        for row in learned(run, "0.1").to_pylist()
        if row["increment"] == 1 and row["labelled"] is not None and row["phase"] == ""
    ]
    train = table.filter(pc.and_(pc.equal(table["increment"], 1), pc.equal(table["role"], "train")))
    in_order = train.sort_by("position")["key"].to_pylist()
    assert [in_order[place] for place in simulated] == asked[0]
    states = sorted((run / "experiments" / "states").glob("feedback_0_1_ann*/*.npz"))
    assert [path.name for path in states] == [f"increment-{number:04}.npz" for number in range(3)]
    widths = [np.load(path, allow_pickle=False)["output_weight"].shape[0] for path in states]
    assert widths == sorted(widths)
    assert widths[0] < widths[-1]
    assert api.verify(str(run)) == []


def learned(run: Path, protocol: str) -> pa.Table:
    from benchwright.curation.store import Store
    from benchwright.pipelines.training_results import finished_trainings

    api.train(str(run), methods=["ann"], protocols=[protocol])
    (one,) = [each for each in finished_trainings(str(run)) if each.facts["protocol"] == f"feedback {protocol}"]
    return one.learned.rows_view(Store(str(run / "experiments"))).table()


@pytest.mark.parametrize(
    ("people", "told"),
    [
        ('{feedback=[0.1], address="https://x.example/{clip}"}', "no column 'clip': there are key, "),
        ('{feedback=[0.1], address="ftp://x/{key}"}', "must begin with http:// or https://"),
        ('{feedback=[0.1], address="https://x.example/{key}", workers=4}', "majority = 2 of 4 workers"),
    ],
)
def test_settings_for_people_that_do_not_fit_are_told(run: Path, bw: Cli, people: str, told: str) -> None:
    found = bw("train", run, *WORDS, "--set", f"evaluation.people={people}")
    assert found.code == 2
    assert told in found.err
    assert "Traceback" not in found.err


def test_the_label_is_that_of_the_majority(tmp_path: Path) -> None:
    said = {"a": ["x", "x", "y"], "b": ["x", "y", "z"], "c": ["", "", "x"], "d": ["x", "x"], "e": ["x", "x", "x"]}
    rows = [
        {"key": key, "form": "labels", "worker": str(at), "labels": [name] if name else [], "sensitive": None, "seconds": None}
        for key, names in said.items()
        for at, name in enumerate(names)
    ]
    votes = str(tmp_path / "votes.parquet")
    write_votes(pa.Table.from_pylist(rows, schema=VOTES), votes)
    asked = Rows.of(pa.table({"key": [*said, "f"], "increment": [2] * 6}))
    earlier = Rows.of(pa.table({"key": ["z"], "increment": [1], "label": ["y"]}))
    found = list(majority_labels(asked=asked, votes=votes, workers=3, majority=2, earlier=earlier))
    assert [row for row in found if isinstance(row, Answered)] == [
        Answered("z", 1, "y"), Answered("a", 2, "x"), Answered("e", 2, "x"),
    ]  # fmt: skip
    assert [(row.key, row.reason) for row in found if isinstance(row, Rejected)] == [
        ("b", "no_majority"), ("c", "none_of_the_above"), ("d", "missing_votes"), ("f", "missing_votes"),
    ]  # fmt: skip


def test_scores_move_the_threshold_to_the_share_that_is_new() -> None:
    draw = np.random.default_rng(0)
    for rows in range(5, 60, 5):
        new = draw.random(rows) < 0.3
        said = draw.random(rows) < 0.3
        found = novel_rows(rows, int(said.sum()), float(accuracy_score(new, said)), float(matthews_corrcoef(new, said)))
        assert found == new.sum()


class Told:
    """A predictor that keeps what it is told."""

    def __init__(self) -> None:
        self.scores: list[dict[str, float]] = []
        self.labels: list[list[int]] = []

    def fit(self, experience: Any, validation: Any) -> None:
        self.labels = [y.tolist() for _, _, y in experience]

    def predict(self, uid: Any, X: Any) -> Any:
        return np.array([-1, 0]), np.tile(np.array([0.2, 0.8], np.float32), (len(X), 1))

    def request(self, uid: Any, X: Any) -> list[str]:
        return uid.tolist()[::-1]

    def take_scores(self, uid: Any, X: Any, scores: dict[str, float]) -> None:
        self.scores.append(scores)

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Any, experience: Any) -> None:
        self.fit(experience, None)


def samples(name: str, y: list[int]) -> SplitSamples:
    uid = np.array([f"{name}{n}" for n in range(len(y))], str)
    return SplitSamples(uid, np.zeros((len(y), 2), np.float32), np.array(y, np.int64))


WORLD = [
    Increment("old", samples("a", [0, 0]), samples("b", [0]), samples("c", [])),
    Increment("new", samples("d", [0, 1, 1, 1]), samples("e", []), samples("f", [])),
]


def test_scores_are_of_the_training_rows_and_give_no_label(tmp_path: Path) -> None:
    told = Told()
    list(run_open_world(told, WORLD, ["x", "y"], setting=Setting(0, scores=True), folder=tmp_path))
    [scores] = told.scores
    assert scores["classification.top1_accuracy"] == 0.25
    assert scores["detection.mcc"] == 0
    assert told.labels == [[0, 0], [-1, -1, -1, -1]]


def test_what_people_say_is_learned_though_the_lists_say_otherwise(tmp_path: Path) -> None:
    told, half = Told(), Setting(0.5)
    with pytest.raises(Unanswered, match="2 labels") as asked:
        list(run_open_world(told, WORLD, ["x", "y"], setting=half, folder=tmp_path, answers={}))
    assert asked.value.uids == ["d3", "d2"]
    said = {1: {"d3": 0}}
    rows = list(run_open_world(Told(), WORLD, ["x", "y"], setting=half, folder=tmp_path, answers=said))  # goes on
    assert [row["labelled"][0].as_py() for row in rows if row["phase"][0].as_py() == ""] == [[0, 1], [3]]
    again = Told()
    list(run_open_world(again, WORLD, ["x", "y"], setting=half, folder=tmp_path, answers=said))
    assert again.labels == [[0, 0], [-1, -1, -1, 0]]


def test_people_answer_in_the_browser_and_the_training_goes_on(run: Path, tmp_path: Path, bw: Cli) -> None:
    out = Path(shutil.copytree(run, tmp_path / "out"))
    shutil.rmtree(out / "experiments", ignore_errors=True)  # what another test has trained
    table = DatasetIndex.open(out / "dataset").table
    truth = dict(zip(table["key"].to_pylist(), table["label_recent_first"].to_pylist(), strict=True))
    assert bw("train", out, *WORDS).code == 0
    asked, place = outputs.asking(str(out), None, None)
    people = ["anna", "bert", "carl"]
    with asked_by(asked, place, annotators=people, go_on=lambda: "") as asking:
        app = make_app(asking, host="127.0.0.1", port=8471, token="secret")
        options = [option.name for option in asked.options]
        for name in people:
            cookie = f"benchwright-8471-annotator={asking.desk.token(name)}"
            headers = {"cookie": cookie, "origin": "http://127.0.0.1:8471", "x-part": "main"}
            browser = TestClient(app, base_url="http://127.0.0.1:8471", headers=headers)
            page = browser.get("/question").text
            while found := re.search(r'action="/answer".*?name="id" value="(\w+)"', page, re.DOTALL):
                key = asking.desk.key_of(found[1])
                assert f'href="https://clips.example/{key.rsplit("_", 1)[0][:11]}' in page
                assert "sensitive" not in page  # a label is wanted, and nothing else
                assert browser.get(f"/picture?id={found[1]}").status_code == 400
                page = browser.post("/answer", data={"id": found[1], "label": str(options.index(truth[key]))}).text
            assert "Thank you" in page
        votes = asking.count()
    assert votes.votes == 3 * len(asking.desk.keys)
    assert api.verify(str(out)) == []
    told = bw("train", out, *WORDS)
    assert f"by_ann_10_{told.out.split('_')[3]}_2: waits for" in told.out
