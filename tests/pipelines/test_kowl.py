"""KOWL's plan through the engine: the tiny configuration, the published one's settings, and the real lists in small."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from benchwright.curation.artifact import load_run
from benchwright.curation.run import Run, run
from benchwright.curation.store import Store
from benchwright.datasets.kowl.facts import facts
from benchwright.datasets.kowl.synthetic import draw_lists, drawing
from benchwright.datasets.kowl.tables import increment_table
from benchwright.datasets.reader.index import DatasetIndex
from benchwright.pipelines import api, config, experiments, training_results
from benchwright.pipelines.errors import WrongUse
from benchwright.pipelines.kowl import card as kowl_card
from benchwright.pipelines.kowl import pipeline as kowl
from benchwright.pipelines.kowl.config import KowlConfig
from benchwright.pipelines.kowl.stream import read_increments, strata_of_samples

SETTINGS = Path(kowl.__file__).parents[1]


SHORT = "evaluation.settings.ann.epochs=30"
"""Half of the tiny settings' epochs: the ann is fitted in every increment of a loop."""


def settings(name: str, *overrides: str) -> KowlConfig:
    short = (SHORT,) if name == "kowl/tiny.toml" else ()
    return config.load(KowlConfig, SETTINGS / name, (*short, *overrides))[0]


def made(c: KowlConfig, out: Path, scheduler: str = "sync") -> Run:
    return run(kowl.plan(c, str(out)), str(out), scheduler=scheduler, workers=2)


def digests(r: Run) -> dict[str, str]:
    return {artifact.stage: artifact.digest for artifact in r.artifacts}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The stages of the tiny run. Only to be read."""
    return made(settings("kowl/tiny.toml"), tmp_path_factory.mktemp("tiny"))


def test_tiny_twice_and_in_other_processes(tiny: Run, tmp_path: Path) -> None:
    c = settings("kowl/tiny.toml")
    first = digests(tiny)
    assert list(first)[-4:] == ["assigned", "increments", "placed", "shards"]
    assert digests(made(c, tmp_path / "2", "threads")) == first
    assert digests(made(c, tmp_path / "3", "processes")) == first
    other = digests(made(settings("kowl/tiny.toml", "seed=1"), tmp_path / "4"))
    assert not set(other.values()) & set(first.values())


def test_tiny_has_what_the_published_size_has(tiny: Run) -> None:
    rejects = {artifact.stage: artifact.rejects for artifact in tiny.artifacts if artifact.rejects}
    assert rejects == {"unified": {"merged": 817, "unlabelled": 40}, "with_video": {"no_video": 25}}
    rows = tiny.rows("increments").table()
    table = increment_table(rows).to_pydict()
    assert table["known_classes"] == [11, 11, 13, 15, 17, 19]
    assert table["novel_classes"] == [0, 2, 2, 2, 2, 2]
    assert table["test_novel"][0] == 1
    assert set(rows["block"].to_pylist()) == {"known_small", "known", "never_trained", "novel", "novel_small", "persisted"}
    # The stream lies in its order, and every row names the line that it comes from.
    assert rows["increment"].to_pylist() == sorted(rows["increment"].to_pylist())
    assert set(rows["source_key"].to_pylist()) <= set(tiny.rows("listed").table(["key"])["key"].to_pylist())


@pytest.mark.parametrize(
    "overrides", [["increments.preset=as_written"], ["increments.order=shuffled"], ["increments.order=interleaved"]]
)
def test_options_keep_the_samples(tiny: Run, tmp_path: Path, overrides: list[str]) -> None:
    rows = tiny.rows("increments").table(["key"])
    c = settings("kowl/tiny.toml", *overrides)
    other = made(KowlConfig(**{**c.__dict__, "features": None}), tmp_path).rows("increments").table(["key"])
    assert sorted(other["key"].to_pylist()) == sorted(rows["key"].to_pylist())
    assert other["key"].to_pylist() != rows["key"].to_pylist()


@pytest.fixture(scope="module")
def evaluated(finished: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny run with every predictor at two amounts of feedback. Only to be read."""
    out = Path(shutil.copytree(finished("kowl"), tmp_path_factory.mktemp("evaluated") / "run"))
    api.train(str(out), protocols=["0", "1"], overrides=[SHORT])
    return out


def learned(out: Path) -> dict[str, str]:
    """Digests of all stages of the trainings."""
    return {stage["name"]: stage["digest"] for stage in api.show(str(out / "experiments"))["stages"]}


def train(c: KowlConfig, out: Path, methods: list[str], protocols: list[str], **how: object) -> None:
    experiments.run_trainings(kowl.BENCHMARK.trainings(c, str(out), methods, protocols), str(out), **how)  # type: ignore[arg-type]


def test_shards_hold_the_stream(evaluated: Path) -> None:
    increments, classes = read_increments(str(evaluated / "dataset"))
    assert strata_of_samples(str(evaluated / "dataset")).num_rows == 0
    index = DatasetIndex.open(str(evaluated / "dataset")).table
    rows = {row["key"]: row for row in index.to_pylist()}
    assert sum(len(one.y) for t in increments for one in t.splits.values()) == len(rows) == 1353
    for number, increment in enumerate(increments):
        for split, role in (("train", "train"), ("validate", "val"), ("test", "test")):
            samples = getattr(increment, split)
            mine = [rows[uid] for uid in samples.uid.tolist()]
            assert {(row["increment"], row["role"]) for row in mine} <= {(number, role)}
            assert [row["position"] for row in mine] == list(range(len(mine)))
            assert [classes[label] for label in samples.y.tolist()] == [row["label_recent_first"] for row in mine]
    assert len(increments[4].validate.y) == len(increments[5].validate.y) == 0


def linked(evaluated: Path, folder: Path) -> Path:
    """A run of the same dataset without results."""
    for name in ("dataset", "stages"):
        (folder / name).symlink_to(evaluated / name)
    (folder / "run.json").write_bytes((evaluated / "run.json").read_bytes())
    return folder


def test_a_loop_that_stopped_goes_on_to_the_same_rows(evaluated: Path, tmp_path: Path) -> None:
    c, out = settings("kowl/tiny.toml"), linked(evaluated, tmp_path)
    told: list[str] = []

    class Stopped(BaseException):
        pass

    def stop(line: str) -> None:
        told.append(line)
        if "increment 3" in line:
            raise Stopped

    for predictor in ("ann", "gmm_finch", "evm"):
        with pytest.raises(Stopped):
            train(c, out, [predictor], ["1"], progress=stop)
    assert training_results.mean_scores(str(out), kowl.BENCHMARK.shown) == {}
    del told[:]
    train(c, out, [], ["1"], progress=told.append)
    assert not any(f"increment {number}" in line for number in range(4) for line in told)
    assert learned(out) == {name: digest for name, digest in learned(evaluated).items() if "feedback_1" in name}


def test_scores_follow_the_structure(evaluated: Path) -> None:
    """Feedback teaches new classes, and a part of the novelty is seen before it."""
    found = api.scores(str(evaluated))
    assert list(found) == ["feedback 0", "feedback 1"]
    assert set(found["feedback 1"]) == {"ann", "evm", "gmm_finch"}
    mean = found["feedback 1"]["gmm_finch"]["mean"]
    assert list(mean) == ["mcc pre", "mcc post", "top-1 post", "detection mcc", "recognition nmi"]
    assert mean["mcc post"] == pytest.approx(0.7047366796226949)  # of increments 1 to 5, as before feedback
    whole = {
        (str(row["protocol"]), str(row["method"]), str(row["split"]), str(row["metric"])): row["value"]
        for row in training_results.results(str(evaluated)).to_pylist()
        if row["position"] is None
    }
    with_start = whole["feedback 1", "gmm_finch", "test_set", "from_start.post.classification.predictor.mcc"]
    assert with_start == pytest.approx(0.7372470823257342)  # of increment 0 its test rows alone
    assert mean["recognition nmi"] == pytest.approx(0.6068631364294912)  # clusters of the whole test set
    assert 0.2 < mean["detection mcc"] < 0.95
    assert mean["mcc post"] > mean["mcc pre"]
    assert api.verify(str(evaluated)) == []


def test_facts_of_a_training_and_what_it_depends_on(evaluated: Path) -> None:
    """Feedback, experience limit and prior knowledge belong to the settings, and of the predictors its own code alone."""
    chain = api.show(str(evaluated / "experiments"))["provenance"]["chain"]
    facts = {each["stage"]: each["settings"] for each in chain if each["stage"].startswith("learned_feedback_1_evm")}
    ((_, found),) = facts.items()
    settings_of = found["training"]["settings"]
    assert settings_of["experience_limit"] is None
    assert settings_of["prior_knowledge"] == dict(settings("kowl/tiny.toml").evaluation.prior_knowledge)
    assert settings_of["predictor"]["tail_size"] > 1
    assert found["predictor"]["of"] == "benchwright.training.predictors.evm:Evm"
    assert not {"dataset", "features", "device", "folder"} & found.keys()
    code = json.loads(next(evaluated.glob("experiments/stages/learned_feedback_1_evm*/code.json")).read_bytes())["definitions"]
    assert not [name for name in code if name.endswith((".ann", ".gmm_finch", ".finch"))]
    assert list(code["benchwright.training.predictors.registry"]) == ["new_predictor"]
    assert "benchwright.training.predictors.evm" in code


def test_results_of_an_earlier_dataset_are_left_out(evaluated: Path, tmp_path: Path) -> None:
    assert api.stale(str(evaluated)) == {}
    out = tmp_path / "run"
    (out / "dataset").mkdir(parents=True)
    held = json.loads((evaluated / "dataset/dataset.json").read_text())
    (out / "dataset/dataset.json").write_text(json.dumps(held | {"digest": "0" * 64}))
    (out / "run.json").write_bytes((evaluated / "run.json").read_bytes())
    (out / "experiments").symlink_to(evaluated / "experiments")
    assert training_results.results(str(out)).num_rows == 0
    assert training_results.mean_scores(str(out), kowl.BENCHMARK.shown) == {}
    assert list(training_results.stale_trainings(str(out)).values()) == ["trained on another dataset"] * 6


def test_why_feedback_can_cost_the_ann_accuracy(evaluated: Path, tmp_path: Path) -> None:
    """With the threshold of increment 0, classes that lie over known ones push both below it once they are learned; a threshold
    that is found again does not, and feedback pays."""
    out = linked(evaluated, tmp_path)
    train(settings("kowl/tiny.toml", 'evaluation.settings.ann.threshold_when="each_fit"'), out, ["ann"], ["0", "1"])
    again, first = training_results.mean_scores(str(out), kowl.BENCHMARK.shown), api.scores(str(evaluated))
    post = {
        when: {k: found[k]["ann"]["mean"]["mcc post"] for k in found} for when, found in (("again", again), ("first", first))
    }
    assert post["first"]["feedback 1"] < post["first"]["feedback 0"]
    assert post["again"]["feedback 1"] > post["again"]["feedback 0"]
    assert post["again"]["feedback 0"] == post["first"]["feedback 0"]


@pytest.mark.usefixtures("blank_figures")
def test_other_settings_stand_beside_each_other(evaluated: Path, tmp_path: Path) -> None:
    out = linked(evaluated, tmp_path)
    for overrides in ([], ["evaluation.settings.evm.tail_size=50"], ["evaluation.experience_limit=300"]):
        train(settings("kowl/tiny.toml", *overrides), out, ["evm"], ["0.5"])
    assert load_run(Store(str(out / "experiments"))).pipeline == "kowl experiments"
    assert list(training_results.mean_scores(str(out), kowl.BENCHMARK.shown)["feedback 0.5"]) == [
        "evm, experience_limit = None, predictor.tail_size = 100",
        "evm, experience_limit = None, predictor.tail_size = 50",
        "evm, experience_limit = 300, predictor.tail_size = 100",
    ]
    page = Path(kowl.BENCHMARK.report(settings("kowl/tiny.toml"), str(out))).read_text()
    assert "evm, experience_limit = None, predictor.tail_size = 50, feedback 0.5" in page


def test_without_features_the_table_is_published(tmp_path: Path) -> None:
    c = settings("kowl/tiny.toml")
    bare = KowlConfig(**{**c.__dict__, "features": None})
    r = made(bare, tmp_path / "run")
    kowl_card.publish(r, bare, str(tmp_path / "dataset"))
    files = {path.name: path.read_bytes() for path in (tmp_path / "dataset").iterdir()}
    assert set(files) == {"README.md", "dataset.json", "increments.parquet"}
    kowl_card.publish(r, bare, str(tmp_path / "dataset"))
    assert {path.name: path.read_bytes() for path in (tmp_path / "dataset").iterdir()} == files
    with pytest.raises(WrongUse, match="no features"):
        kowl.BENCHMARK.trainings(bare, str(tmp_path), [], [])


def test_an_unknown_predictor_or_amount_is_told(evaluated: Path) -> None:
    c = settings("kowl/tiny.toml")
    with pytest.raises(ValueError, match="no predictor 'svm': there are ann, ann_evm, evm, gmm_finch, original,"):
        kowl.BENCHMARK.trainings(c, str(evaluated), ["svm"], [])
    with pytest.raises(ValueError, match="no protocol 'iid'"):
        kowl.BENCHMARK.trainings(c, str(evaluated), [], ["iid"])


def test_the_published_settings_are_those_of_the_facts() -> None:
    c = settings("kowl/published.toml")
    f = facts()
    assert tuple(c.labels.releases) == f.labels.releases
    assert c.labels.renames == f.labels.renames
    assert (c.labels.normalise, c.labels.order, c.increments.order, c.increments.preset) == (
        [],
        "listed",
        "as_released",
        "as_released",
    )
    assert tuple(each.count for each in c.increments.later) == f.increments.count
    assert tuple(each.seed for each in c.increments.later) == f.increments.seeds
    assert c.source.kind == "lists"
    assert [(file.release, file.split) for file in c.source.files] == [(each.release, each.split) for each in f.lists]
    assert [turn.role for turn in c.turns] == ["train", "val", "test", "train", "val", "test", "train", "test"]
    assert dict(drawing("published").renames) == f.labels.renames
    e = c.evaluation  # the seven lines of the paper's Figures 7 to 12
    assert (e.feedback, e.predictors) == ([0, 0.5, 1], ["ann", "gmm_finch"])
    assert (e.feedback_of_predictors, e.sets_of_predictors) == ({"ann": [0, 1]}, {"gmm_finch": ["features"]})


def test_files_of_every_form_give_what_the_drawn_lists_give(tiny: Run, tmp_path: Path) -> None:
    """The tiny lists written as CSV, bare CSV and JSON, with a file of what is there: the same increments."""
    root = tmp_path / "lists"
    root.mkdir()
    files = []
    for table in draw_lists(drawing=drawing("tiny"), seed=0):
        rows = table.to_pylist()
        release, split = rows[0]["release"], rows[0]["split"]
        name = f"{release}-{split}.csv"
        fields = [[r["label"] or "", r["youtube_id"], str(r["time_start"]), f"{r['time_end']}.0", split] for r in rows]
        if release == "second":
            text = "".join(",".join([f'"{f[0]}"', *f[1:], "0"]) + "\r\n" for f in fields)
        elif release == "third":
            name = f"{release}-{split}.json"
            entries = (
                f'"{r["youtube_id"]}": '
                + json.dumps({"annotations": {"label": r["label"], "segment": [r["time_start"], r["time_end"]]}})
                for r in rows
            )
            text = "{" + ", ".join(entries) + "}"
        else:
            text = "label,youtube_id,time_start,time_end,split\n" + "".join(",".join(f) + "\n" for f in fields)
        (root / name).write_text(text, newline="")
        labelled = "true" if (release, split) != ("third", "test") else "false"
        files.append(f'{{release = "{release}", split = "{split}", path = "{name}", labelled = {labelled}}}')
    held = tmp_path / "held.txt"
    held.write_text("".join(f"videos/{key}.mp4\n" for key in tiny.rows("increments").table(["key"])["key"].to_pylist()))
    source = f'source={{kind = "lists", root = "{root}", max_rejects = 0, files = [{", ".join(files)}]}}'
    videos = f'videos={{path = "{held}", means = "present"}}'
    read = made(settings("kowl/tiny.toml", source, videos), tmp_path / "read")
    assert {a.stage: a.rejects for a in read.artifacts}["with_listed_video"] == {"no_video": 25}
    columns = [name for name in tiny.rows("increments").column_names if name not in ("source_key", "feature")]
    assert read.rows("increments").table(columns).equals(tiny.rows("increments").table(columns))
    vectors = [np.concatenate(list(r.rows("increments").arrays("feature"))) for r in (tiny, read)]
    np.testing.assert_array_equal(*vectors)


K4, K6, K7 = facts().labels.releases
REAL = [
    (K4, "test", "kinetics-400_test_labelled.csv", "train", 0.0),
    (K4, "validate", "kinetics-400_val.csv", "test", 0.0),
    (K6, "test", "kinetics-600_test_labelled.csv", "train", 0.0),
    (K6, "validate", "kinetics-600_val.csv", "test", 0.0),
    (K7, "validate", "kinetics-700_2020_val.csv", "train", 0.3),
]


@pytest.fixture(scope="module", params=["as_released", "as_written"])
def real(request, shared_data: Path, tmp_path_factory) -> tuple[str, Run]:
    """Open-world increments of the real test and validation lists: the labelled test lists train, the others test."""
    files = ", ".join(f'{{release = "{r}", split = "{s}", path = "{path}"}}' for r, s, path, _, _ in REAL)
    turns = ", ".join(f'{{release = "{r}", split = "{s}", role = "{role}", held_out = {out}}}' for r, s, _, role, out in REAL)
    c = settings(
        "kowl/published.toml",
        f'source={{kind = "lists", root = "{shared_data / "kinetics"}", max_rejects = 0, files = [{files}]}}',
        f"turns=[{turns}]",
        f"increments.preset={request.param}",
    )
    out = tmp_path_factory.mktemp(request.param)
    return request.param, made(c, out, "threads")


def test_real_lists_in_small(real: tuple[str, Run]) -> None:
    preset, r = real
    assert [a.rows for a in r.artifacts] == [182_727, 136_195, 136_195, 136_195]
    rows = r.rows().table(["increment", "role", "novel", "label_recent_first", "taken_release", "block"])
    table = increment_table(rows).to_pydict()
    labels = pc.count_distinct(rows["label_recent_first"]).as_py()
    assert len(table["increment"]) == 11
    assert table["known_classes"][0] + sum(table["novel_classes"]) == labels
    for at in range(1, 11):
        before = table["known_classes"][at - 1] + table["novel_classes"][at - 1]
        assert table["known_classes"][at] == before
    # Table 2's rows of classes: these turns have no val.
    assert table["train_known_classes"] == table["test_known_classes"] == table["known_classes"]
    assert table["train_novel_classes"] == table["novel_classes"]
    assert table["val_known_classes"] == table["val_novel_classes"] == [0] * 11
    for release, base in ((K6, 1), (K7, 6)):
        classes = table["novel_classes"][base : base + 5]
        if preset == "as_released":
            assert classes[:4] == [-(-sum(classes) // 5)] * 4
        else:
            assert classes[:4] == [sum(classes) // 5] * 4
        known, novel = table["train_known"], table["train_novel"]
        for at in range(base + 1, base + 4):
            assert abs(known[at + 1] - known[at] - novel[at]) <= 5
        taken = pc.sum(pc.equal(rows["taken_release"], release)).as_py()
        columns = [f"{role}_{kind}" for role in ("train", "val", "test") for kind in ("known", "novel")]
        assert sum(table[name][at] for name in columns for at in range(base, base + 5)) == taken
    assert pa.table(table).num_rows == 11


def test_rare_classes_come_first_on_real_lists(real: tuple[str, Run]) -> None:
    preset, r = real
    rows = r.rows().table(["increment", "role", "novel", "label_recent_first", "taken_release"])
    train = rows.filter(pc.field("role") == "train")
    counts = {
        (d["taken_release"], d["label_recent_first"]): d["count_all"]
        for d in train.group_by(["taken_release", "label_recent_first"]).aggregate([([], "count_all")]).to_pylist()
    }
    for release, base in ((K6, 1), (K7, 6)):
        brought: list[list[int]] = []
        for at in range(base, base + 5):
            fresh = train.filter((pc.field("increment") == at) & pc.field("novel"))["label_recent_first"]
            brought.append([counts[release, label] for label in pc.unique(fresh).to_pylist()])
        for earlier, later in itertools.pairwise(brought):
            assert max(earlier) <= min(later) if preset == "as_released" else min(earlier) >= max(later)
