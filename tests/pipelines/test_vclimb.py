"""vCLIMB's plan through the engine: the tiny configuration, other sources, real clips, training, the report."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import shutil
import subprocess
import tarfile
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from benchwright.curation.artifact import Artifact
from benchwright.curation.flow import Flow
from benchwright.curation.nested import flat
from benchwright.curation.part_writer import StepFailed
from benchwright.curation.run import Run, TooManyRejects, run
from benchwright.curation.store import Store
from benchwright.datasets.reader.decode import decode_image
from benchwright.datasets.reader.index import DatasetIndex
from benchwright.datasets.vclimb.facts import facts, published_figures
from benchwright.eval.report.blocks import Table, Text
from benchwright.eval.report.trainings import comparable
from benchwright.eval.results import RESULTS, Line, lines, measured
from benchwright.pipelines import api, config, experiments, training_results
from benchwright.pipelines.cli import main as cli
from benchwright.pipelines.errors import WrongUse
from benchwright.pipelines.report import ReportedRun, finished_stages
from benchwright.pipelines.vclimb import card as vclimb_card
from benchwright.pipelines.vclimb import pipeline as vclimb
from benchwright.pipelines.vclimb.baselines import baseline_rows, baseline_settings
from benchwright.pipelines.vclimb.config import VclimbConfig
from benchwright.pipelines.vclimb.joined_runs import JoinedRun, joined_section, paper_tables
from benchwright.pipelines.vclimb.paper import data_of, published, why_not_the_papers
from benchwright.pipelines.vclimb.training_sections import by_class, memories_section, results_section
from benchwright.training.baselines.vclimb import GROUPS
from pydantic import TypeAdapter

from .pages import faults, rows_of_page

pytestmark = pytest.mark.usefixtures("blank_figures")

SETTINGS = Path(vclimb.__file__).parent


def settings(name: str | None, *overrides: str) -> VclimbConfig:
    found = config.find_config("vclimb", name)
    return config.load(VclimbConfig, found, overrides, benchmark="vclimb")[0]


def made(c: VclimbConfig, out: Path, scheduler: str = "sync") -> Run:
    return run(vclimb.plan(c, str(out)), str(out), scheduler=scheduler, workers=2)


def made_until(stage: str, c: VclimbConfig, out: Path) -> Run:
    """The stages of the plan up to one, as far as they need no video."""
    stages = vclimb.plan(c, str(out)).ordered()
    names = [one.name for one in stages]
    kept = [one for one in stages[: names.index(stage) + 1] if stage == "matched" or one.name != "videos"]
    values = TypeAdapter(VclimbConfig).dump_python(c, mode="json")
    return run(Flow(tuple(kept)), str(out), scheduler="sync", pipeline="vclimb", config=values)


def digests(r: Run) -> dict[str, str]:
    return {artifact.stage: artifact.digest for artifact in r.artifacts}


def rejects(r: Run) -> dict[str, dict[str, int]]:
    return {artifact.stage: dict(artifact.rejects) for artifact in r.artifacts if artifact.rejects}


@pytest.fixture(scope="module")
def trained(finished, tmp_path_factory) -> Path:
    """The tiny run, trained and with its report, by one command. Only to be read."""
    out = Path(shutil.copytree(finished("vclimb"), tmp_path_factory.mktemp("vclimb") / "run"))
    assert cli.call(["run", "vclimb", "--config", "tiny", "--out", str(out), "--train", "--quiet"]) == 0
    return out


def test_processes_and_a_run_that_was_cut_give_the_same(trained: Path, tmp_path: Path) -> None:
    told = {stage["name"]: stage["digest"] for stage in api.show(str(trained))["stages"]}
    c = settings("tiny")
    copy = tmp_path / "cut"
    shutil.copytree(trained / "stages", copy / "stages")
    shutil.rmtree(copy / "stages" / "shards")
    (copy / "stages" / "sampled" / "artifact.json").unlink()
    (copy / "stages" / "sampled" / "part-00001.parquet").unlink()
    assert digests(made(c, copy, "processes")) == told
    other = digests(made(settings("tiny", "seed=1"), tmp_path / "other", "threads"))
    assert not set(other.values()) & set(told.values())


def test_shards_hold_frames_in_order(trained: Path) -> None:
    index = DatasetIndex.open(str(trained / "dataset")).table
    assert {"key", "label", "class_index", "task", "role", "frames", "frame_sizes", "video", "group"} <= set(index.column_names)
    assert not {"frame_index", "frame_time_s", "jpegs", "content"} & set(index.column_names)
    assert set(index["frames"].to_pylist()) == {8}
    for row in index.to_pylist():
        assert row["shard"].startswith(f"task{row['task']:02d}-{row['role']}-")
    row = index.to_pylist()[0]
    with tarfile.open(trained / "dataset" / f"{row['shard']}.tar") as tar:
        names = [name for name in tar.getnames() if name.startswith(f"{row['key']}.")]
        assert names == [*(f"{row['key']}.{n:04d}.jpg" for n in range(8)), f"{row['key']}.json"]
        facts_of = json.load(tar.extractfile(names[-1]))
        pixels = decode_image(tar.extractfile(names[0]).read())
        # The sizes say where in the sample each frame lies.
        members = [member for member in tar.getmembers() if member.name in names[:8]]
        assert [member.size for member in members] == row["frame_sizes"]
        spans = [512 + -(-size // 512) * 512 for size in row["frame_sizes"]]
        assert [member.offset for member in members] == [row["offset"] + sum(spans[:n]) for n in range(8)]
    assert facts_of["label"] == row["label"]
    assert facts_of["frame_index"] == sorted(facts_of["frame_index"])
    assert min(pixels.shape[:2]) == 32


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("evaluation.methods=['icarl+ct']", r"no method 'icarl\+ct'"),
        ("evaluation.model=vgg", "no model 'vgg'"),
        ("evaluation.model=nowhere.py:net", "no such file"),
        ("evaluation.metrics=['best']", "no metric 'best'"),
    ],
)
def test_names_of_nothing_are_told_when_settings_are_read(override: str, says: str) -> None:
    with pytest.raises(config.ConfigError, match=says):
        settings("tiny", override)


def test_what_cannot_be_used_is_told(trained: Path) -> None:
    found = {(row["stage"], row["reason"]) for row in api.rejects(str(trained))}
    assert found == {("probed", "not_a_video"), ("probed", "too_few_frames")}
    assert api.verify(str(trained)) == []


def untrained(trained: Path, into: Path) -> str:
    """A copy of the run without its trainings."""
    shutil.copytree(trained, into, ignore=shutil.ignore_patterns("experiments"))
    return str(into)


def train(c: VclimbConfig, out: str, *methods: str, protocols: tuple[str, ...] = (), **how: Any) -> list[Line]:
    """Trainings by these settings, whatever the run was made with; the lines of all its results."""
    experiments.run_trainings(vclimb.BENCHMARK.trainings(c, out, methods, protocols), out, **how)
    return lines(training_results.results(out))


def stages_of(out: str | Path) -> dict[str, str]:
    """Stage of a training -> digest of what it left."""
    found = Path(out, "experiments/stages").iterdir()
    return {each.name: json.loads((each / "artifact.json").read_text())["digest"] for each in found}


def test_baselines_are_scored_and_resumed(trained: Path, tmp_path: Path) -> None:
    found = api.scores(str(trained))
    assert list(found) == ["frames 4"]
    assert set(found["frames 4"]) == {"er", "icarl", "icarl+tc"}
    for one in found["frames 4"].values():
        assert 0 <= one["mean"]["acc"] <= 1
        assert one["mean"]["acc"] == pytest.approx(one["mean"]["acc unweighted"])  # tasks of two classes each
    # The memory is counted in frames: 12 clips of 4.
    line = next(line for line in lines(training_results.results(str(trained))) if line.label == "icarl")
    last = line.select("accuracy").to_pylist()[-1]
    assert (last["memory_samples"], last["memory_parts"]) == (12, 48)
    for metric in ("acc_class_weighted", "bwf_class_weighted"):
        assert line.matrix(metric, [""])[:, -1, 0] == line.values(metric), "after the last task, and of the whole training"
    np.testing.assert_array_equal([values[0] for values in by_class(line).values()], [1, 0, 1, 1, 0, 0.5])
    assert {key for key, values in by_class(line).items() if len(values) == 3} == {("0", "yellow right"), ("0", "blue right")}

    class Stopped(BaseException):
        pass

    def stop(line: str) -> None:
        if ", 2 of 3, " in line:
            raise Stopped

    c, out = settings("tiny"), untrained(trained, tmp_path / "run")
    with pytest.raises(Stopped):
        train(c, out, "icarl+tc", progress=stop)
    assert training_results.mean_scores(out, vclimb.SHOWN) == {}
    told: list[str] = []
    train(c, out, "icarl+tc", progress=told.append)
    assert [line.partition(": ")[2].partition(" in ")[0] for line in told] == ["'2', 3 of 3, learned and tested", "trained"]
    assert len(stages_of(out)) == 2
    assert stages_of(out).items() <= stages_of(trained).items()


def test_processes_train_the_same(trained: Path, tmp_path: Path) -> None:
    out = untrained(trained, tmp_path / "run")
    train(settings("tiny"), out, "naive", "icarl", scheduler="processes", workers=2)
    assert len(stages_of(out)) == 4
    assert stages_of(out).items() <= stages_of(trained).items()


def test_results_of_an_earlier_dataset_are_left_out(trained: Path, tmp_path: Path) -> None:
    assert api.stale(str(trained)) == {}
    out = str(shutil.copytree(trained, tmp_path / "run"))
    published_as = Path(out, "dataset/dataset.json")
    published_as.write_text(json.dumps(json.loads(published_as.read_text()) | {"digest": "0" * 64}))
    assert training_results.mean_scores(out, vclimb.SHOWN) == {}
    assert set(training_results.stale_trainings(out).values()) == {"trained on another dataset"}


def test_the_report_shows_tables_and_frames(trained: Path) -> None:
    page = (trained / "report.html").read_text()
    assert faults(page) == []
    for title in ("Split", "Leaks", "Coverage", "Sampled frames", "Memory in frames", "Pipeline"):
        assert f">{title}<" in page
    assert "Baselines, 4 frames per stored clip" in page
    assert "SYNTHETIC" in page
    assert "Not a fair comparison" in page
    assert "counts do not add up" not in page
    assert "48.53" not in page  # iCaRL on ActivityNet-Trim: the paper's figures stand only where they may be compared with
    assert page.count("data:image/jpeg") >= 6 * 3 * 8
    for caption in (
        "Backward forgetting (BWF) after each task",
        "Accuracy after the last task on all classes, sorted by the accuracy",
    ):
        assert caption in page
    assert "21.76" in page  # the share of UCF101's frames that the paper states


def test_without_validation_the_last_epoch_is_taken(trained: Path, tmp_path: Path) -> None:
    out = untrained(trained, tmp_path / "run")
    c = settings("tiny", 'evaluation.roles=["train", "none", "test"]', "evaluation.settings.schedule.epochs=1")
    (line,) = train(c, out, "naive", protocols=("frames-all",))  # er's former name
    assert (line.protocol, line.label, line.settings["schedule.select"]) == ("frames all", "er", "none")
    last = line.select("accuracy").to_pylist()[-1]
    assert (last["memory_samples"], last["memory_parts"]) == (12, 96)  # all 8 frames of each clip


def test_frames_of_stored_clips_stand_side_by_side(trained: Path, tmp_path: Path) -> None:
    """The forms of Tables 3 and 4: a row a method and number of frames, and a method without a memory once, by each of its
    settings."""
    out = str(shutil.copytree(trained, tmp_path / "run"))
    c = settings("tiny", "evaluation.settings.schedule.epochs=1")
    train(c, out, "er", "finetune", protocols=("frames-2", "frames-all"))
    train(settings("tiny", "evaluation.settings.schedule.epochs=2"), out, "finetune", protocols=("frames-2",))
    (section,) = memories_section(ReportedRun.of(out).protocols)
    table = section.blocks[0]
    assert isinstance(table, Table)
    assert [tuple(row[:4]) for row in table.rows] == [
        ("er, schedule.epochs = 1, 2 frames", 12, 24, 2.0),
        ("er, schedule.epochs = 1, all frames", 12, 96, 8.0),
        ("er, schedule.epochs = 4, 4 frames", 12, 48, 4.0),
        ("finetune, schedule.epochs = 1", None, None, None),
        ("finetune, schedule.epochs = 2", None, None, None),
        ("icarl, 4 frames", 12, 48, 4.0),
        ("icarl+tc, 4 frames", 12, 48, 4.0),
    ]
    [told] = [block for block in section.blocks if isinstance(block, Text)]
    assert told.paragraphs[1:] == ["icarl, 4 frames; icarl+tc, 4 frames: schedule.epochs = 4"]
    assert memories_section(ReportedRun.of(str(trained)).protocols) == []
    page = Path(vclimb.BENCHMARK.report(c, out)).read_text()
    assert page.index("Baselines, all frames per stored clip<") < page.index("Baselines by frames per stored clip<")
    assert faults(page) == []


def test_epochs_chosen_on_the_reported_clips_are_told(trained: Path, tmp_path: Path) -> None:
    """ActivityNet has no test split: the validation videos choose the epoch and are reported."""
    out = untrained(trained, tmp_path / "run")
    assert "Epochs were selected on the reported clips" not in (trained / "report.html").read_text()
    c = settings("tiny", 'evaluation.roles=["train", "val", "val"]', "evaluation.settings.schedule.epochs=1")
    (line,) = train(c, out, "finetune")
    assert set(line.rows["split"].to_pylist()) == {"val"}
    assert "Epochs were selected on the reported clips" in Path(vclimb.BENCHMARK.report(c, out)).read_text()


def test_networks_for_clips_learn_dense_frames(trained: Path, tmp_path: Path) -> None:
    """Any method, with temporal consistency, on a network of torchvision for clips: by settings alone."""
    out = untrained(trained, tmp_path / "run")
    model = ["evaluation.model=backbone", 'evaluation.model_settings={name="torchvision/r3d_18"}']
    c = settings(
        "tiny", *model, 'evaluation.settings={schedule={epochs=1}, view={sampling="dense", stride=2, segments=2, side_px=16}}'
    )
    (line,) = train(c, out, "lwf+tc")
    assert (line.model, line.settings["model.name"], line.settings["view.sampling"]) == (
        "backbone",
        "torchvision/r3d_18",
        "dense",
    )
    assert line.matrix("accuracy", ["0", "1", "2"]).shape == (1, 3, 3)
    for override, says in (
        (
            'evaluation.model_settings={name="torchvision/r3d_19"}',
            r"no network 'r3d_19' for images or clips; did you mean 'r3d_18'",
        ),
        ("evaluation.settings.view.sampling=sparse", "sampling = 'sparse': expected 'segments' or 'dense'"),
    ):
        with pytest.raises(WrongUse, match=says):
            train(settings("tiny", *model, override), out, "er")


def test_memories_of_other_sizes_stand_beside_each_other(trained: Path, tmp_path: Path) -> None:
    out = str(shutil.copytree(trained, tmp_path / "run"))
    before = stages_of(out)
    c = settings("tiny", "evaluation.method_settings={'naive'={memory={size=6}}}")
    found = train(c, out, "er", "icarl")
    assert [line.label for line in found] == ["er, memory.size = 12", "icarl", "icarl+tc", "er, memory.size = 6"]
    assert before.items() <= stages_of(out).items()
    page = Path(vclimb.BENCHMARK.report(c, out)).read_text()
    assert "er, memory.size = 6" in page
    assert "er, memory.size = 12" in page


def test_tasks_that_a_copy_lacks_altogether_are_told(trained: Path) -> None:
    with pytest.raises(WrongUse, match=r"has clips of 3 tasks, and split\.tasks is 4"):
        vclimb.BENCHMARK.trainings(settings("tiny", "split.tasks=4"), str(trained), [], [])


def test_methods_for_new_classes_learn_a_single_task(tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    overrides = ["split.tasks=1", "source.classes=2", "evaluation.settings.schedule.epochs=1"]
    api.run(api.job("vclimb", config="tiny", overrides=overrides), out, scheduler="sync")
    (line,) = train(settings("tiny", *overrides), out, "bic")
    assert (line.label, len(line.matrix("accuracy", ["0"])[0])) == ("bic", 1)
    assert np.isnan(line.values("bwf_unweighted")).all()
    assert "Baselines, 4 frames" in Path(vclimb.BENCHMARK.report(settings("tiny", *overrides), out)).read_text()


@pytest.mark.parametrize(
    ("overrides", "methods", "protocols", "says"),
    [
        ([], ["gen"], [], "no method 'gen': there are agem, bic"),
        ([], ["icarl+ct"], [], "no method 'icarl\\+ct'.*did you mean 'icarl'"),
        ([], [], ["iid"], "no protocol 'iid'"),
        ([], [], ["frames-0"], "no protocol 'frames-0'"),
        ([], ["reservoir"], [], "alpha is missing: there are alpha"),
        (["evaluation.settings.schedule.epoch=2"], [], [], "schedule.epoch: there are .*epochs"),
        (["evaluation.settings.scedule.epochs=2"], [], [], "scedule: there are"),
        (["evaluation.settings.memory.capacity=2"], [], [], "memory.capacity: there are size"),
        (["evaluation.settings.model.backbone=vgg"], [], [], "no backbone is called 'vgg'"),
        (
            ["evaluation.weights=/nowhere.pth", "evaluation.model=tsn"],
            [],
            [],
            "evaluation.weights = '/nowhere.pth': No such file",
        ),
        (["evaluation.settings.memory.frames=0"], [], [], "frames 0: a number of at least 1"),
        (["evaluation.settings.view.segments=0"], [], [], "0 segments"),
        ([], ["lucir"], [], "'lucir' compares cosines, and the model's head is 'linear'"),
        (["evaluation.model=mlp"], [], [], "model 'mlp' takes vectors or signals, but samples here are clips"),
        (["evaluation.model=pictures"], [], [], "model 'pictures' takes vectors or images, but samples here are clips"),
    ],
)
def test_what_cannot_be_trained_is_told_before_anything_is(
    trained: Path, overrides: list[str], methods: list[str], protocols: list[str], says: str
) -> None:
    with pytest.raises(WrongUse, match=says) as told:
        vclimb.BENCHMARK.trainings(settings("tiny", *overrides), str(trained), methods, protocols)
    assert "\n" not in str(told.value)


OWN = """
    import torch
    from benchwright.training.methods.finetune import present
    from benchwright.training.methods.method import Method

    def calm(*, strength=0.1):
        def teach(lesson):
            lesson.fit(lambda step: step.classification() + strength * step.logits.square().mean())
        return Method("calm", present, "finetune", {"strength": strength}, teach)

    class Mean(torch.nn.Module):
        width = 3
        def forward(self, x):
            return x.mean((3, 4))

    def net(init, *, sample, scale=1.0, weights=None):
        assert sample == (4, 3, 28, 28)
        return Mean()

    def kept_of_the_first(predictions):
        return float(predictions.matrix()[-1, 0])
"""


def test_methods_models_and_metrics_of_ones_own(trained: Path, tmp_path: Path) -> None:
    own = tmp_path / "own_clips.py"
    own.write_text(textwrap.dedent(OWN))
    (tmp_path / "w.bin").write_bytes(b"weights")
    out = untrained(trained, tmp_path / "run")
    c = settings(
        "tiny",
        f"evaluation.methods=['{own}:calm+tc', 'naive+tc']",
        f"evaluation.model={own}:net",
        "evaluation.model_settings={scale=2.0}",
        f"evaluation.metrics=['{own}:kept_of_the_first']",
        f"evaluation.weights={tmp_path / 'w.bin'}",
        "evaluation.method_settings={'own_clips.py:calm'={method={strength=0.2}}}",
    )
    assert c.evaluation.methods == [f"{own}:calm+tc", "er+tc"]
    first, second = train(c, out, f"{own}:calm", "er+tc")
    assert [(line.method, line.model) for line in (first, second)] == [
        ("own_clips.py:calm", "own_clips.py:net"),
        ("er+tc", "own_clips.py:net"),
    ]
    assert first.settings["weights"] == hashlib.sha256(b"weights").hexdigest()
    assert (first.settings["method.strength"], first.settings["model.scale"]) == (0.2, 2.0)
    assert first.values("kept_of_the_first").tolist() == first.matrix("accuracy", ["0"])[:, -1, 0].tolist()
    page = Path(vclimb.BENCHMARK.report(c, out)).read_text()
    assert "own_clips.py:calm" in page
    assert "kept_of_the_first" in page
    before = stages_of(out)
    (tmp_path / "w.bin").write_bytes(b"others")  # other weights are another training
    train(c, out, "er+tc")
    assert before.items() <= stages_of(out).items()
    assert len(stages_of(out)) == len(before) + 3
    own.write_text(textwrap.dedent(OWN).replace("square()", "abs()"))
    assert training_results.stale_trainings(out) == {"frames 4 own_clips.py:calm": "own_clips.calm changed"}
    with pytest.raises(WrongUse, match="takes no weights"):
        vclimb.BENCHMARK.trainings(
            settings("tiny", f"evaluation.weights={tmp_path / 'w.bin'}", "evaluation.model=mlp"), out, [], []
        )


# ------------------------------------------------------------------------------------------------------- other sources


@pytest.fixture(scope="module")
def videos(tmp_path_factory) -> Path:
    """Four classes of drawn videos as files, named as UCF101's: two groups of two clips."""
    from benchwright.datasets.vclimb.synthetic import draw_videos

    root = tmp_path_factory.mktemp("videos")
    for clip in draw_videos(classes=4, groups=2, clips_per_group=2, broken=False, seed=0):
        folder = root / clip.key.split("_")[1]
        folder.mkdir(exist_ok=True)
        (folder / clip.video).write_bytes(clip.content.read())
    return root


def small(*overrides: str) -> VclimbConfig:
    return settings("tiny", "split.tasks=2", "frames.n=2", *overrides)


def test_lists_of_ucf101_and_class_folders_give_the_same_frames(videos: Path, tmp_path: Path) -> None:
    lists = tmp_path / "lists"
    lists.mkdir()
    classes = sorted(path.name for path in videos.iterdir())
    (lists / "classInd.txt").write_text("".join(f"{n} {name}\r\n" for n, name in enumerate(classes, 1)))
    lines = [f"{path.parent.name}/{path.stem}.avi" for path in sorted(videos.glob("*/*"))]
    gone = f"{classes[0]}/v_{classes[0]}_g09_c09.avi"
    (lists / "testlist01.txt").write_text("".join(f"{line}\r\n" for line in lines if "_g01_" in line))
    training = [line for line in [*lines, gone] if "_g01_" not in line]
    number = {name: n for n, name in enumerate(classes, 1)}
    (lists / "trainlist01.txt").write_text("".join(f"{line} {number[line.split('/')[0]]}\r\n" for line in training))
    here = f'videos={{root="{videos}", names="stem", max_missing=1, max_broken=0}}'
    listed = made(small(f'source={{kind="ucf101", root="{lists}"}}', here, "split.roles=listed"), tmp_path / "listed")
    assert rejects(listed) == {"matched": {"missing_video": 1}}
    assert [a.rows for a in listed.artifacts if a.stage in ("split", "matched")] == [17, 16]
    rows = listed.rows("placed").table(["key", "label", "role", "group", "video"]).to_pylist()
    assert {(row["role"], row["group"].split("/")[1]) for row in rows} == {("test", "g01"), ("train", "g02")}
    strict = here.replace("max_missing=1", "max_missing=0")
    with pytest.raises(TooManyRejects, match="matched"):
        made(small(f'source={{kind="ucf101", root="{lists}"}}', strict, "split.roles=listed"), tmp_path / "strict")
    found = made(
        small('source={kind="folder", layout="class_folders"}', here.replace("stem", "path")), tmp_path / "found", "threads"
    )
    of = [r.rows("sampled").table(["video", "frames"]).sort_by("video").to_pylist() for r in (listed, found)]
    assert [(row["video"], row["frames"]["sha256"]) for row in of[0]] == [
        (row["video"], row["frames"]["sha256"]) for row in of[1]
    ]


def test_kinetics_as_downloaders_leave_it(videos: Path, tmp_path: Path) -> None:
    """Whole videos and cut clips, in folders of splits and classes: a clip's frames are the same from either."""
    root = tmp_path / "kinetics"
    lines = ["label,youtube_id,time_start,time_end,split"]
    for number, path in enumerate(sorted(videos.glob("*/*"))):
        youtube_id, role = f"abcdefghi{number:02d}", ("train", "val", "test", "train")[number % 4]
        lines.append(f"{path.parent.name},{youtube_id},0,1,{role}")
        places = [f"{role}/{path.parent.name}/{youtube_id}_000000_000001.y4m", f"raw/v_{youtube_id}.y4m"]
        (root / places[number % 2]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, root / places[number % 2])
    lines += [lines[-1], f"{path.parent.name},gonegonegon,0,1,train", "x,short,0,1,train"]
    lists = tmp_path / "lists"
    lists.mkdir()
    (lists / "k.csv").write_text("\n".join(lines))
    source = f'{{kind="kinetics", root="{lists}", max_rejects=1, files=[{{release="k", path="k.csv"}}]}}'
    here = f'videos={{root="{root}", names="youtube", max_missing=1, max_broken=0}}'
    r = made(small(f"source={source}", here, "split.roles=listed"), tmp_path / "run", "threads")
    assert rejects(r) == {
        "lines": {"bad_id": 1},
        "listed": {"repeated_clip": 1},
        "matched": {"missing_video": 1},
    }
    rows = r.rows("placed").table(["key", "role", "video", "t_end", "frames", "shard"]).to_pylist()
    assert len(rows) == 16
    assert {row["t_end"] for row in rows if row["video"].startswith("raw/")} == {1.0}
    assert {row["t_end"] for row in rows if not row["video"].startswith("raw/")} == {None}


def test_a_csv_of_segments_and_its_coverage(videos: Path, tmp_path: Path) -> None:
    files = sorted(path.relative_to(videos).as_posix() for path in videos.glob("*/*"))
    lines = ["video,label,t_start,t_end,role"]
    for name in files:
        label = name.split("/")[0]
        lines += [f"{name},{label},0,0.2,train", f"{name},{label},0.2,0.4,test"]
    lines += [f"nowhere.mp4,{label},,,train", f"{files[0]},{label},90,91,train", "../x.mp4,a,,,train"]
    (tmp_path / "clips.csv").write_text("\n".join(lines))
    c = small(
        f'source={{kind="csv", path="{tmp_path / "clips.csv"}", max_rejects=1}}',
        f'videos={{root="{videos}", max_missing=1, max_broken=1}}',
        "split.roles=listed",
        'frames={kind="all", min_frames=2, short_side_px=24, jpeg_quality=80}',
        'evaluation.roles=["train", "val", "test"]',
    )
    r = made(c, tmp_path / "run", "threads")
    assert rejects(r) == {
        "listed": {"outside_folder": 1},
        "matched": {"missing_video": 1},
        "probed": {"too_few_frames": 1},
    }
    table = r.rows("placed").table(["key", "frames", "t_start", "role"])
    assert set(table["frames"].to_pylist()) == {5}  # 0.2 s at 25 frames a second
    vclimb_card.publish(r, c, str(tmp_path / "run" / "dataset"))
    page = Path(vclimb.BENCHMARK.report(c, str(tmp_path / "run"))).read_text()
    assert "too few frames" in page
    assert "missing video" in page
    assert "Groups leak: 16 of 16 test clips" in page


def break_videos(videos: Path, into: Path, role_of: dict[str, str], wanted: str) -> Path:
    """A copy of the videos in which those of one role, of the first class, are no videos."""
    shutil.copytree(videos, into)
    first = sorted(path.name for path in into.iterdir())[0]
    for path in sorted(into.glob(f"{first}/*")):
        if role_of[path.relative_to(into).as_posix()] == wanted:
            path.write_bytes(b"this is no video")
    return into


@pytest.mark.parametrize("rule", ["by_group", "by_class"])
def test_roles_are_drawn_over_what_can_be_used(videos: Path, tmp_path: Path, rule: str) -> None:
    """Whichever videos are broken, none of the roles of their class is lost while there are enough others."""
    folder = [
        'source={kind="folder", layout="class_folders"}',
        f'split.roles="{rule}"',
        "split.train_share=0.4",
        "split.val_share=0.3",
    ]
    here = 'videos={{root="{}", max_missing=0, max_broken=8}}'
    more = shutil.copytree(videos, tmp_path / "more")  # groups of four, so that a class can lose some
    for path in sorted(more.glob("*/*")):
        for number in (3, 4):
            other = path.with_name(path.name.replace("_g01_", f"_g{number:02d}_").replace("_g02_", f"_g{number + 2:02d}_"))
            shutil.copy(path, other)
    whole = (
        made(small(*folder, here.format(more)), tmp_path / "whole").rows("split").table(["video", "role", "label"]).to_pylist()
    )
    role_of = {row["video"]: row["role"] for row in whole}
    assert set(role_of.values()) == {"train", "val", "test"}
    broken = break_videos(more, tmp_path / "broken", role_of, "val")
    r = made(small(*folder, here.format(broken)), tmp_path / "run")
    assert set(rejects(r)) == {"probed"}
    left = r.rows("placed").table(["label", "role"]).to_pylist()
    assert {(row["label"], row["role"]) for row in left} == {
        (label, role) for label in {row["label"] for row in whole} for role in ("train", "val", "test")
    }


def test_a_class_that_lost_a_listed_role_is_told_before_frames_are_decoded(
    videos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    files = sorted(path.relative_to(videos).as_posix() for path in videos.glob("*/*"))
    roles = ["train", "val", "test", "train"]
    listed = dict(zip(files, roles * 4, strict=True))
    (tmp_path / "clips.csv").write_text(
        "video,label,role\n" + "".join(f"{name},{name.split('/')[0]},{role}\n" for name, role in listed.items())
    )
    broken = break_videos(videos, tmp_path / "broken", listed, "val")
    source = f'source={{kind="csv", path="{tmp_path / "clips.csv"}"}}'
    c = [source, f'videos={{root="{broken}", max_missing=0, max_broken=1}}', "split.roles=listed"]
    with pytest.raises(StepFailed) as told:
        made(small(*c), tmp_path / "run")
    label = files[0].split("/")[0]
    assert f"class {label!r} lost all its clips with role 'val' (1)" in str(told.value)
    assert 'split.on_lost_role="keep"' in str(told.value)
    assert not (tmp_path / "run" / "stages" / "sampled").exists()
    caplog.set_level(logging.WARNING, "benchwright")
    r = made(small(*c, "split.on_lost_role=keep"), tmp_path / "run")
    assert r.result.rows == 15
    warned = [record.getMessage() for record in caplog.records if record.name == "benchwright"]
    assert warned == [f"class {label!r} lost all its clips with role 'val' (1); the run continues without them"]
    # A role that nothing is trained or tested with stops nothing.
    unused = 'evaluation.roles=["train", "none", "test"]'
    assert made(small(*c, unused), tmp_path / "unused").result.rows == 15


def test_a_task_without_a_role_is_told_before_frames_are_decoded(
    videos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "benchwright")
    folder = ['source={kind="folder", layout="class_folders"}', f'videos={{root="{videos}", max_missing=0, max_broken=0}}']
    made(small(*folder, "split.val_share=0"), tmp_path / "run")
    warned = [record.getMessage() for record in caplog.records if record.name == "benchwright"]
    assert [line.partition(",")[0] for line in warned] == [f"task {task} has no clip with role 'val'" for task in (0, 1)]
    assert "split.val_share" in warned[0]


def test_classes_of_one_clip_and_unknown_recordings_are_told(videos: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    for number, path in enumerate(sorted(videos.glob("*/*"))):
        (plain / path.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, plain / path.parent.name / f"{number}.y4m")
    here = ['source={kind="folder", layout="class_folders"}', f'videos={{root="{plain}", max_missing=0, max_broken=0}}']
    c = small(*here, "split.roles=by_class")
    made(c, tmp_path / "run")
    page = Path(vclimb.BENCHMARK.report(c, str(tmp_path / "run"))).read_text()
    assert "Whether train and test share recordings is not known: 16 of 16 clips" in page
    assert "No group is in both" not in page
    (plain / "lonely").mkdir()
    shutil.copy(path, plain / "lonely")
    with pytest.raises(StepFailed, match=r"class 'lonely' has no clip with role 'train' among its 1: .*split\.classes"):
        made(c, tmp_path / "lonely")
    assert made(small(*here, "split.roles=by_class", "split.on_lost_role=keep"), tmp_path / "kept").result.rows == 17


def test_a_folder_is_missed_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("segments", "folders"):
        assert cli.call(["run", "vclimb", "--config", name, "--out", str(tmp_path / "out")]) == 2
        assert "videos.root: this setting is missing" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------------ published size


@pytest.mark.parametrize(
    ("name", "dataset", "fps", "tasks"),
    [
        (None, "ucf101", None, 10),
        ("ucf101_20tasks", "ucf101", None, 20),
        ("activitynet_trim", "activitynet", 30.0, 10),
        ("activitynet_trim_20tasks", "activitynet", 30.0, 20),
        ("activitynet_untrim", "activitynet", 30.0, 10),
        ("activitynet_untrim_20tasks", "activitynet", 30.0, 20),
        ("kinetics400", "", None, 10),
    ],
)
def test_published_settings_are_those_of_the_facts(name: str | None, dataset: str, fps: float | None, tasks: int) -> None:
    c = settings(name)
    f = facts()
    assert (c.split.tasks, c.frames.kind, c.frames.min_frames, c.frames.fps) == (tasks, "all", 8, fps)
    vclimb.plan(c, "out").schemas()
    assert (c.evaluation.preset, c.evaluation.variant) == ("as_written", None)  # section 4
    assert tasks in f.datasets[c.evaluation.dataset].per_task
    assert c.evaluation.roles[2] == f.datasets[c.evaluation.dataset].evaluated
    assert (c.split.untrim is not None) == ("untrim" in (name or ""))
    if c.source.kind == "split_file":
        (pinned,) = [one for one in f.split_files if (one.dataset, one.tasks) == (dataset, tasks)]
        assert (c.source.sha256, Path(c.source.path).name) == (pinned.sha256, pinned.name)
    found = baseline_settings(c, "icarl", 8)
    assert found["memory"].items() >= {"unit": "samples", "frames": 8}.items()
    assert found["memory"]["size"] == f.datasets[c.evaluation.dataset].memory_videos


@pytest.mark.parametrize(
    ("name", "group", "rows"),
    [
        (None, "table2", {(method, "all") for method in ("er", "icarl", "bic", "ewc", "mas")}),
        ("ucf101_20tasks", "table2", {(method, "all") for method in ("er", "icarl", "bic", "ewc", "mas")}),
        ("kinetics400", "table3", {("icarl", "all"), *((name, n) for name in ("icarl", "icarl+tc") for n in (4, 8, 16))}),
        ("activitynet_trim", "table3", {("icarl", "all"), *((name, n) for name in ("icarl", "icarl+tc") for n in (4, 8, 16))}),
        ("activitynet_trim", "table4", {(name, n) for name in ("icarl", "icarl+tc") for n in (4, 8, 16)}),
        ("activitynet_untrim", "table4", {(name, n) for name in ("icarl", "icarl+tc") for n in (4, 8, 16)}),
        ("activitynet_untrim", "supplement_table1", {(name, n) for name in ("er", "er+tc") for n in (4, 8)}),
    ],
)
def test_tables_of_the_paper_name_their_rows(name: str | None, group: str, rows: set[tuple[str, Any]]) -> None:
    found = baseline_rows(settings(name), [group])
    assert (set(found), len(found)) == (rows, len(rows))


def test_presets_train_what_the_paper_has() -> None:
    untrim = [(name, n) for name in ("icarl", "icarl+tc") for n in (4, 8, 16)] + [
        (name, n) for name in ("er", "er+tc") for n in (4, 8)
    ]
    assert sorted(baseline_rows(settings("activitynet_untrim")), key=str) == sorted(untrim, key=str)
    for name in (None, "activitynet_trim", "kinetics400", "ucf101_20tasks", "activitynet_trim_20tasks"):
        assert settings(name).evaluation.methods == ["table2"]
    trim = settings("activitynet_trim")
    assert baseline_rows(trim, ["supplement_table1", "joint"], [8]) == [("joint", 8), ("er", 8), ("er+tc", 8)]
    with pytest.raises(
        WrongUse, match="table4 has no row with 2 frames for activitynet_trim in 10 tasks: name methods instead"
    ):
        baseline_rows(trim, ["table4"], [2])
    with pytest.raises(WrongUse, match="table4 has no row for ucf101 in 10 tasks"):
        vclimb.BENCHMARK.check(settings(None, 'evaluation.methods=["table4"]'))
    assert {one.group for one in published_figures()} == set(GROUPS)
    told = {row["name"] for row in api.list_names("methods") if row["fits"] == "the benchmark vclimb"}
    assert set(GROUPS) <= told


def test_temporal_consistency_is_set_for_all_methods_that_have_it() -> None:
    weight = "evaluation.settings.consistency.weight=0.3"
    c = settings("tiny", 'evaluation.methods=["er", "lwf+tc"]', weight)
    assert c.evaluation.variant == "as_written"
    assert baseline_settings(c, "er", 4)["consistency"] is None
    assert baseline_settings(c, "lwf+tc", 4)["consistency"] == {"frames": 4, "weight": 0.3, "variant": "as_written"}
    with pytest.raises(WrongUse, match=r"settings\.consistency: no name of evaluation\.methods ends in \+tc, such as er\+tc"):
        baseline_settings(settings("tiny", 'evaluation.methods=["er"]', weight), "er", 4)


def test_a_released_split_reaches_the_plan(shared_data: Path, tmp_path: Path) -> None:
    """All of UCF101's split file against a folder with two of its videos: the split stands, the rest is told by clip."""
    names = ["v_Surfing_g22_c02", "v_SalsaSpin_g12_c03"]
    for name in names:
        (tmp_path / "videos").mkdir(exist_ok=True)
        (tmp_path / "videos" / f"{name}.avi").write_bytes(b"this is no video")
    c = settings(
        None,
        f'source.path="{shared_data / "vclimb" / "UCF101_data.pkl"}"',
        f'videos.root="{tmp_path / "videos"}"',
        "videos.max_missing=0.9999",
        "videos.max_broken=2",
    )
    r = made_until("matched", c, tmp_path / "out")
    data = data_of({artifact.stage: artifact for artifact in r.artifacts})
    assert (data.dataset, data.split_file, data.why) == ("ucf101", UCF101, "no frames are stored")
    matched = next(a for a in r.artifacts if a.stage == "matched")
    assert (matched.rows, dict(matched.rejects)) == (2, {"missing_video": 13_318})
    assert r.rows("matched").table(["task", "class_index", "role"]).to_pylist() == [
        {"task": 0, "class_index": 0, "role": "train"},
        {"task": 0, "class_index": 1, "role": "train"},
    ]
    with pytest.raises(Exception, match=r"has 10 tasks, expected 20"):
        made(
            settings(None, f'source.path="{c.source.path}"', f'videos.root="{c.videos.root}"', "split.tasks=20"), tmp_path / "x"
        )


def test_activitynet_by_its_split_file_and_by_its_annotations(shared_data: Path, tmp_path: Path) -> None:
    f = facts()
    pickled = f'source.path="{shared_data / "vclimb" / "ActivityNet_data_10tasks.pkl"}"'
    trim = made_until("unique", settings("activitynet_trim", pickled), tmp_path / "trim")
    untrim = made_until("untrimmed", settings("activitynet_untrim", pickled), tmp_path / "untrim")
    folder = shared_data / "activitynet"
    names = {role: f"tsp_activitynet_v1-3_{part}_tsp_groundtruth.csv" for role, part in (("train", "train"), ("val", "valid"))}
    files = ", ".join(f'{role}="{name}"' for role, name in names.items())
    listed = f'source={{kind="activitynet_csv", root="{folder}", files={{{files}}}}}'
    drawn = made_until("split", settings("activitynet_untrim", listed, "split.tasks=20"), tmp_path / "drawn")
    for r, stage, dataset in ((trim, "unique", "trim"), (untrim, "untrimmed", "untrim"), (drawn, "split", "untrim")):
        roles = r.rows(stage).table(["role"])["role"].to_pylist()
        assert {role: roles.count(role) for role in ("train", "val")} == f.datasets[f"activitynet_{dataset}"].clips
    assert rejects(untrim)["untrimmed"] == {"multi_label": 13, "no_coverage": 10, "same_video": 23_064 - 14_950}
    assert set(drawn.rows("split").table(["task"])["task"].to_pylist()) == set(range(20))
    # Beside Table 1 in the report: counts, classes per task and frames per video, by split file and by list.
    for out, name, tasks, ours in (
        ("trim", "activitynet_trim", 10, ["1,541", "765", "20", "3,879"]),
        ("untrim", "activitynet_untrim", 10, ["1,001", "492", "20", "3,542"]),
        ("drawn", "activitynet_untrim", 20, ["500", "246", "10", "3,542"]),
    ):
        c = settings(name, f"split.tasks={tasks}", *([listed] if out == "drawn" else [pickled]))
        page = Path(vclimb.BENCHMARK.report(c, str(tmp_path / out))).read_text()
        assert rows_of_page(page, "this run") == rows_of_page(page, "Table 1") == [ours]
        assert "The counts equal those of the paper" in page
    # Runs that are joined have their rows in one Table 1, trained or not.
    section = joined_section([str(tmp_path / out) for out in ("trim", "untrim", "drawn")])
    table = next(block for block in section.blocks if isinstance(block, Table))
    assert table.caption.startswith("Table 1: ")
    named = [("activitynet_trim", 10), ("activitynet_untrim", 10), ("activitynet_untrim", 20)]
    assert [tuple(row[:3]) for row in table.rows[::2]] == [(*each, "these runs") for each in named]
    assert [row[3:] for row in table.rows[::2]] == [row[3:] for row in table.rows[1::2]]


def test_official_lists_of_kinetics_stand_beside_table_1(tmp_path: Path) -> None:
    header = "label,youtube_id,time_start,time_end,split"
    for number, split in enumerate(("train", "validate", "test")):
        (tmp_path / "lists" / "kinetics400").mkdir(parents=True, exist_ok=True)
        lines = [f"class {at},{number}{at:010},0,10,{split}" for at in range(20)]
        (tmp_path / "lists" / "kinetics400" / f"{split}.csv").write_text("\n".join([header, *lines]) + "\n")
    c = settings("kinetics400", f'source.root="{tmp_path / "lists"}"')
    made_until("split", c, tmp_path / "out")
    page = Path(vclimb.BENCHMARK.report(c, str(tmp_path / "out"))).read_text()
    assert rows_of_page(page, "Table 1") == [["24,628", "1,988", "3,977", "40", "250"]]
    assert rows_of_page(page, "this run") == [["2", "2", "2", "2"]]
    assert "The counts differ from those of the paper" in page


def line_of(name: str, c: VclimbConfig, frames: Any = "all", model: str = "tsn", **changes: Any) -> Line:
    """What is recorded of a training by these settings on UCF101's released split."""
    recorded = {"roles": list(c.evaluation.roles), "split_file": UCF101, "weights": "b627a593" + "0" * 56, **changes}
    found = flat({**baseline_settings(c, name, frames), **recorded})
    return Line(f"frames {frames}", name, model, found, name, RESULTS.empty_table())


UCF101 = next(one.sha256 for one in facts().split_files if one.dataset == "ucf101")
STORED = {"short_side_px": 256, "jpeg_quality": 90, "decoder": "pyav", "type": "FrameSettings"}
PLAN = {"kind": "all", "n": None, "fps": None, "min_frames": 8, "seed": None, "type": "FramePlan"}


def changed(artifact: Artifact, rejects: Mapping[str, int] | None = None, **settings: Any) -> Artifact:
    recipe = {**artifact.recipe, "settings": {**artifact.recipe["settings"], **settings}}
    return dataclasses.replace(artifact, recipe=recipe, rejects=rejects or {})


def test_data_are_the_papers_by_what_stages_recorded(trained: Path) -> None:
    made = finished_stages(Store(str(trained)))
    assert data_of(made).why == "the split is not one of the released ones"
    split = {"path": {"where": "UCF101_data.pkl", "content": UCF101}}
    released = {**made, "listed": changed(made["listed"], **split), "probed": changed(made["probed"])}
    assert data_of(released).why == "frames.kind is uniform, but all in the paper"
    small = {**released, "sampled": changed(made["sampled"], plan=PLAN)}
    assert data_of(small).why == "frames.short_side_px is 32, but the paper uses crops of 224 pixels"
    fair = {**released, "sampled": changed(made["sampled"], plan=PLAN, settings=STORED)}
    assert (data_of(fair).dataset, data_of(fair).why) == ("ucf101", "")
    other_clock = {**fair, "sampled": changed(fair["sampled"], plan={**PLAN, "fps": 5.0})}
    assert data_of(other_clock).why == "frames.fps is 5.0, but None in the paper"
    for stage, count in (("probed", 7), ("sampled", 1)):
        lacking = {**fair, stage: changed(fair[stage], {"decode_failed": count - 1, "bad_segment": 1})}
        assert data_of(lacking).why == f"{count} clips of the split are missing, unusable or were dropped"
    near = {**fair, "near": changed(made["unique"], {"near_duplicate": 3})}
    assert data_of(near).why == "3 clips of the split are missing, unusable or were dropped"
    activitynet = next(one.sha256 for one in facts().split_files if one.dataset == "activitynet")
    trim = {**fair, "listed": changed(made["listed"], path={"content": activitynet})}
    trim["sampled"] = changed(fair["sampled"], plan={**PLAN, "fps": 30.0})
    assert (data_of(trim).dataset, data_of(trim).why) == ("activitynet_trim", "")
    # What the complete split holds and nothing can be trained on, and not a clip more: of any reason, in any stage.
    unusable = {"bad_segment": 12, "too_few_frames": 78}
    trim["probed"] = changed(fair["probed"], unusable)
    assert data_of(trim).why == ""
    for stage, more in (
        ("probed", unusable | {"too_few_frames": 79}),
        ("sampled", {"bad_segment": 1}),
        ("matched", {"missing_video": 1}),
    ):
        short = (
            {**trim, stage: changed(made["unique"], more)}
            if stage != "sampled"
            else {**trim, stage: changed(trim[stage], more)}
        )
        assert data_of(short).why == "1 clips of the split are missing, unusable or were dropped", stage
    assert settings("activitynet_trim").videos.max_broken == sum(unusable.values())
    trim["probed"] = fair["probed"]
    cut = {**trim, "untrimmed": changed(made["unique"], min_coverage=0.5, several_labels="reject")}
    assert (data_of(cut).dataset, data_of(cut).why) == (
        "activitynet_untrim",
        "split.untrim.min_coverage is 0.5, but 0.0 in the paper",
    )


def test_the_papers_figures_stand_only_beside_trainings_of_its_own_settings(trained: Path) -> None:
    made = finished_stages(Store(str(trained)))
    made["listed"] = changed(made["listed"], path={"where": "x", "content": UCF101})
    made |= {"probed": changed(made["probed"]), "sampled": changed(made["sampled"], plan=PLAN, settings=STORED)}
    data, c = data_of(made), settings(None)
    for preset in ("as_released", "as_written"):
        for name in ("er", "ewc", "icarl+tc"):
            assert why_not_the_papers(line_of(name, settings(None, f"evaluation.preset={preset}"), 8), data) == ""
    # A mixture of both is nobody's: of the code's optimiser with the text's temporal consistency, or the other way round.
    for preset, variant in (("as_released", "as_written"), ("as_written", "as_released")):
        mixed = line_of("icarl+tc", settings(None, f"evaluation.preset={preset}", f"evaluation.variant={variant}"), 8)
        assert why_not_the_papers(mixed, data) == "settings of the paper were changed: consistency.variant"
    assert why_not_the_papers(line_of("icarl", c, weights=None), data) == "no ImageNet weights were given"
    assert why_not_the_papers(line_of("icarl", c, weights="0" * 64), data).startswith("weights are not those of torchvision's")
    assert why_not_the_papers(line_of("icarl", c, split_file="0" * 64), data) == "it was trained on another split"
    assert why_not_the_papers(line_of("icarl", c, model="own.py:net"), data) == "the model is own.py:net"
    assert why_not_the_papers(line_of("agem", c), data) == "the method is not in the paper"
    epochs = line_of("icarl", settings(None, "evaluation.settings.schedule.epochs=1"))
    assert why_not_the_papers(epochs, data) == "settings of the paper were changed: schedule.epochs"
    roles = line_of("icarl", settings(None, 'evaluation.roles=["train", "none", "test"]'))
    assert why_not_the_papers(roles, data) == "settings of the paper were changed: schedule.select, roles"
    named = [line_of("er", c), dataclasses.replace(epochs, label="icarl, schedule.epochs = 1")]
    fair, note = comparable(named, data.why, lambda line: why_not_the_papers(line, data), "released split file")
    assert [line.label for line in fair] == ["er"]
    assert data.dataset == "ucf101"
    clips = made["shards"].rows_view(Store(str(trained))).table(["label", "role"])
    other = dataclasses.replace(data, why="its frames are others")
    section = results_section("frames 4", lines(training_results.results(str(trained))), other, clips)
    assert "upper bound" not in str(section), "TSN's accuracy, which the paper cites, stood beside other frames, too"
    assert note.paragraphs == [
        "Fair comparison: released split file. Not for icarl, schedule.epochs = 1: settings of the paper were changed: "
        "schedule.epochs."
    ]


def test_published_figures_are_found_by_method_and_frames() -> None:
    def told(dataset: str, frames: Any, *methods: str) -> list[tuple[str, str, float]]:
        rows = published([line_of(name, settings(None), frames) for name in methods], dataset, 10)
        return [(row.source.removeprefix("vCLIMB, "), row.name, row.values["Acc (by classes)"]) for row in rows]

    assert told("ucf101", "all", "icarl", "er") == [
        ("Table 2", "naive", 91.42),
        ("Table 2", "iCaRL", 80.97),
    ]
    assert told("ucf101", 4, "icarl+tc", "ewc") == [("Table 3", "iCaRL+TC", 73.85)]
    assert told("activitynet_untrim", 8, "icarl", "er+tc") == [
        ("Table 4", "iCaRL", 16.67),
        ("Table 1 of the supplement", "naive+TC", 39.8),
    ]
    assert told("activitynet_trim", 8, "icarl") == [("Table 3", "iCaRL", 21.54)]  # Table 4 prints it, too


def joined(dataset: str, tasks: int, *methods: tuple[str, Any, float], fair: bool = True) -> JoinedRun:
    """A run with these methods, frames of a stored clip, and final accuracies."""
    found: list[Line] = []
    for name, frames, acc in methods:
        held = (None, None) if name in ("ewc", "mas") else (3500, 3500 * (100 if frames == "all" else frames))
        values = [measured("accuracy", acc, position=tasks, tested=str(at), memory=held) for at in range(tasks)]
        values += [measured(f"{metric}_class_weighted", value) for metric, value in (("acc", acc), ("bwf", 0.1))]
        values += [measured(f"{metric}_unweighted", value) for metric, value in (("acc", acc - 0.1), ("bwf", 0.2))]
        values += [measured("acc_class_weighted", acc, position=at + 1) for at in range(tasks)]
        whole = {"protocol": f"frames {frames}", "method": name, "model": "tsn", "settings": "{}", "order": 0, "seed": 0}
        rows = pa.Table.from_pylist([{**dict.fromkeys(RESULTS.names, ""), **vars(one), **whole} for one in values], RESULTS)
        memory = {"memory.frames": frames, "memory.size": 4000, "memory.unit": "samples"}
        found.append(Line(f"frames {frames}", name, "tsn", memory, name, rows))
    return JoinedRun(dataset, tasks, found, found if fair else [], "as recorded")


def test_several_runs_fill_the_papers_tables() -> None:
    runs = [
        joined("ucf101", 10, ("icarl", "all", 0.8), ("ewc", "all", 0.1)),
        joined("ucf101", 20, ("icarl", "all", 0.7)),
        joined("activitynet_trim", 10, ("icarl", "all", 0.5), ("icarl", 8, 0.2), ("icarl+tc", 8, 0.4), fair=False),
        joined("activitynet_untrim", 10, ("icarl", 8, 0.15), ("icarl+tc", 8, 0.35), ("er", 4, 0.1), ("agem", 8, 0.1)),
    ]
    tables = {table.caption.partition(":")[0]: table for table in paper_tables({(run.dataset, run.tasks): run for run in runs})}
    assert list(tables) == ["Table 2", "Table 3", "Table 4", "Table 1 of the supplement"]

    def shown(name: str, *columns: str) -> list[tuple[Any, ...]]:
        table = tables[name]
        at = [table.columns.index(column) for column in ("model", "tasks", "frames per video", "from", *columns)]
        return [tuple(getattr(row[n], "value", row[n]) for n in at) for row in table.rows]

    trim, ucf = "activitynet_trim: Acc (by classes)", "ucf101: Acc (by classes)"
    assert shown("Table 2", trim, ucf, "ucf101: capacity, frames") == [
        ("EWC", 10, "all", "these runs", None, 10, None),
        ("EWC", 10, "all", "the paper", None, 9.51, None),
        ("iCaRL", 10, "all", "these runs", 50, 80, 400_000),
        ("iCaRL", 10, "all", "the paper", None, 80.97, 369_000),
        ("iCaRL", 20, "all", "these runs", None, 70, 400_000),
        ("iCaRL", 20, "all", "the paper", None, 76.59, 369_000),
    ]
    # Capacities are the paper's columns, in videos and in frames; Eq. 1 is plain, the paper's code is by classes.
    memory = [f"ucf101: {what}" for what in ("capacity, videos", "held, videos", "held, frames")]
    assert shown("Table 2", *memory, "ucf101: Acc (plain)", "ucf101: BWF (plain)")[2:4] == [
        ("iCaRL", 10, "all", "these runs", 4000, 3500, 350_000, pytest.approx(70), 20),
        ("iCaRL", 10, "all", "the paper", 2020, None, None, None, None),
    ]
    untrim = "activitynet_untrim: Acc (by classes)"
    assert shown("Table 4", untrim, trim, "activitynet_untrim: capacity, frames") == [
        ("iCaRL", 10, "8", "these runs", 15, 20, 32_000),
        ("iCaRL", 10, "8", "the paper", 16.67, None, 32_000),
        ("iCaRL+TC", 10, "8", "these runs", 35, 40, 32_000),
        ("iCaRL+TC", 10, "8", "the paper", 40.29, None, 32_000),
    ]
    assert [row[:2] for row in shown("Table 3", trim)] == [("iCaRL", 10), ("iCaRL+TC", 10), ("iCaRL", 10), ("iCaRL", 10)]
    assert not [column for column in tables["Table 3"].columns if column.startswith("kinetics400")]


def test_a_report_joins_other_runs(trained: Path, finished, tmp_path: Path) -> None:
    """By the command line: curves of both as in Figure 3; a run stands in one place of a table."""
    report = str(shutil.copytree(trained, tmp_path / "run"))
    other = str(tmp_path / "other")
    dataset = 'evaluation.dataset="activitynet_trim"'
    api.run(api.job("vclimb", config="tiny", overrides=["seed=1", dataset]), other, scheduler="sync")
    api.train(other, methods=["icarl", "icarl+tc"])
    assert cli.call(["report", report, "--beside", other]) == 0
    page = Path(report, "report.html").read_text()
    assert faults(page) == []
    assert ">Several runs, as in the paper" in page
    assert "activitynet_trim, 3 tasks: 0 of 2 results are comparable with the paper" in page
    for line in ("icarl, ucf101", "icarl+tc, activitynet_trim"):
        assert line in page
    with pytest.raises(WrongUse, match=r"are both of ucf101, 3 tasks: a table has one place for them"):
        api.report(report, beside=[str(trained)])
    with pytest.raises(WrongUse, match="the report of benchmark iirc joins no runs: leave --beside out"):
        api.report(str(finished("iirc")), beside=[report])


# ---------------------------------------------------------------------------------------------------------- real clips


@pytest.fixture(scope="module")
def asl(shared_data: Path, tmp_path_factory) -> tuple[VclimbConfig, Run]:
    c = settings("segments", f'videos.root="{shared_data / "videos" / "intel_asl"}"', 'frames.kind="uniform"', "frames.n=4")
    return c, made(c, tmp_path_factory.mktemp("asl"), "threads")


def test_real_clips_become_ten_tasks_of_two(asl: tuple[VclimbConfig, Run]) -> None:
    c, r = asl
    assert rejects(r) == {}
    rows = r.rows("placed").table(["task", "label", "role", "group", "video", "n_available", "n_frames"])
    assert rows.num_rows == 100
    by_task = rows.group_by("task").aggregate([("label", "count_distinct"), ([], "count_all")]).to_pylist()
    assert [(row["label_count_distinct"], row["count_all"]) for row in by_task] == [(2, 10)] * 10
    # No frame stands in two segments, and none is left out.
    sums = rows.group_by(["video", "n_frames"]).aggregate([("n_available", "sum")])
    assert sums["n_available_sum"].equals(sums["n_frames"])
    assert pc.min_max(sums["n_frames"]).as_py() == {"min": 47, "max": 109}
    assert "SAME RECORDINGS" in vclimb_card.cut_warning(c)
    assert vclimb_card.leak_warning(rows, "test").startswith("Groups leak: 20 of 20 test clips")


def test_frame_counts_are_those_of_ffprobe(asl: tuple[VclimbConfig, Run], shared_data: Path) -> None:
    ffprobe = shutil.which("ffprobe")
    if ffprobe is None:
        pytest.skip("ffprobe is not installed: it comes with FFmpeg")
    _, r = asl
    command = [ffprobe, "-v", "error", "-count_frames", "-select_streams", "v:0", "-show_entries", "stream=nb_read_frames"]
    found = r.rows("probed").table(["video", "n_frames"]).to_pylist()
    assert len(found) == 20
    for row in found:
        path = shared_data / "videos" / "intel_asl" / row["video"]
        told = subprocess.run(
            [*command, "-of", "csv=p=0", str(path)], capture_output=True, check=True, stdin=subprocess.DEVNULL, timeout=60
        )
        assert int(told.stdout.split(b",")[0]) == row["n_frames"]
