"""The CLEAR plan follows its settings."""

from __future__ import annotations

import io
import json
import re
import tarfile
from pathlib import Path

import numpy as np
import pytest
from benchwright.curation.flow import Flow
from benchwright.curation.qa.imports import import_votes
from benchwright.curation.qa.rounds import votes_of
from benchwright.curation.stages.fetch_settings import FetchLimits
from benchwright.datasets.clear.facts import facts, published_limits
from benchwright.pipelines import api
from PIL import Image

from tests.files import files_of
from tests.pipelines.conftest import Cli

pytestmark = pytest.mark.usefixtures("blank_figures")

SMALL = ["source.count=300"]


def plan(*overrides: str, config: str | None = None) -> Flow:
    return api.job(
        "clear", config=config, overrides=["source.metadata=yfcc", *overrides] if config is None else overrides
    ).flow("out")


def settings(flow: Flow, stage: str) -> dict[str, object]:
    return flow.stage(stage).step.all_settings()


def test_published_settings_are_the_papers_facts() -> None:
    flow, known = plan(), facts()
    flow.schemas()
    assert flow.stage("listed").pieces.all_settings()["first_lines"] == known.buckets.lines
    assert settings(flow, "first")["n"] == known.buckets.images == 7_850_000
    assert settings(flow, "bucketed")["buckets"] == known.buckets.count
    assert settings(flow, "bucketed")["by"] == "uploaded_unix"
    rule = settings(flow, "retrieved")["rule"]
    assert (rule.candidates, rule.per_class, rule.background) == (16_000, 600, "BACKGROUND")
    assert rule.background_rows == known.retrieval.background_per_prompt == 60
    concepts = settings(flow, "retrieved")["concepts"]
    assert [(c.name, *c.prompts) for c in concepts] == [(c.name, c.prompt) for c in known.classes]
    assert settings(flow, "asked")["first"] == min(known.buckets.labelled) == 1
    assert settings(flow, "chosen")["per_class"] == known.choice.per_class == 300
    assert settings(flow, "chosen")["classes"] == known.class_names
    assert settings(flow, "split")["test_share"] == known.iid.test_share
    encoder = settings(flow, "embedded")["encoder"]
    assert (encoder.model, encoder.weights) == (known.retrieval.encoder, "openai")
    assert settings(flow, "checked")["min_bytes"] == settings(flow, "fetched")["limits"].min_bytes == known.buckets.min_bytes
    voted = settings(flow, "voted")
    assert (voted["workers"], voted["majority"]) == (known.review.workers, known.review.exact_votes)


def test_worker_options_are_those_that_were_shown() -> None:
    from benchwright.pipelines.clear.qa_rounds import rounds

    config = api.job("clear", overrides=["source.metadata=yfcc"]).config
    shown = {option.stands_for: option.shown for option in rounds(config)[0].options}
    assert shown == {fact.name: fact.shown for fact in facts().classes}


@pytest.mark.parametrize(
    ("rule", "step"),
    [
        ('{kind = "clear10"}', "assign_buckets_by_limits"),
        ('{kind = "calendar", period = "year"}', "assign_calendar_buckets"),
        ('{kind = "equal_count", count = 3}', "assign_equal_count_buckets"),
    ],
)
def test_bucket_rules(rule: str, step: str) -> None:
    flow = plan(f"buckets.rule={rule}", "buckets.by=date_uploaded")
    assert flow.stage("bucketed").step.function.__name__ == step
    if "clear10" in rule:
        assert settings(flow, "bucketed")["limits"] == list(published_limits())
        assert len(published_limits()) == 11


def test_options_add_and_leave_out_stages() -> None:
    names = [stage.name for stage in plan(config="tiny").stages]
    assert "distinct" not in names
    assert "screened" not in names
    more = plan("images.drop_duplicates=true", "qa.max_sensitive_score=0.8", "qa.votes=none", config="tiny")
    more.schemas()
    names = [stage.name for stage in more.stages]
    assert {"distinct", "screened"} <= set(names)
    assert "voted" not in names
    assert "fetched" not in [stage.name for stage in plan("source.images_root=photos").stages if stage.kind == "each_batch"]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of three pictures with dates, and metadata of YFCC100M that names them."""
    folder = tmp_path / "photos"
    folder.mkdir()
    dates, metadata = ["file,date_taken,date_uploaded"], []
    for number in range(1, 4):
        Image.new("RGB", (9, 9), (200, number, 30)).save(folder / f"{number}.bmp")
        dates.append(f"{number}.bmp,2010-01-0{number}T00:00:00,2011-01-01T00:00:00")
        fields = [""] * 23
        fields[0], fields[3], fields[4], fields[14] = str(number), "2010-01-01 00:00:00.0", "1300000000", "http://127.0.0.1:1/a"
        fields[15], fields[21], fields[22] = "BY", "bmp", "0"
        metadata.append("\t".join(fields))
    (tmp_path / "dates.csv").write_text("\n".join(dates) + "\n")
    (tmp_path / "yfcc").write_text("\n".join(metadata) + "\n")
    return folder


@pytest.mark.parametrize(
    "source",
    [
        'kind="drawn", count=3',
        'kind="folder", root="{at}/photos", dates_csv="{at}/dates.csv"',
        'kind="yfcc100m", metadata="{at}/yfcc", images_root="{at}/photos"',
    ],
)
@pytest.mark.parametrize("limit", ["images.min_bytes=1000000", "images.max_bytes=100"])
def test_files_of_every_source_are_neither_too_small_nor_too_large(
    bw: Cli, photos: Path, tmp_path: Path, source: str, limit: str
) -> None:
    given = ["--set", f"source={{{source.format(at=tmp_path)}}}", "--set", limit, "--set", "images.max_rejects=3"]
    told = bw("run", "clear", "--config", "tiny", *given, "--out", tmp_path / "out", "-q")
    assert told.code == 1
    assert re.search(rf"rejected all 3 rows \(3 {'too_small_file' if 'min' in limit else 'too_large'}\)", told.err), told


def test_downloads_have_no_limits_of_size_of_their_own(bw: Cli, tmp_path: Path) -> None:
    for limit in ("min_bytes", "max_bytes"):
        told = bw(
            "plan", "clear", "--set", "source.metadata=yfcc", "--set", f"source.limits.{limit}=20", "--out", tmp_path / "out"
        )
        assert told.code == 2
        assert f"source.limits.{limit}: there is no such setting" in told.err
    assert settings(plan("images.max_bytes=77", "source.limits.max_redirects=2"), "fetched")["limits"] == FetchLimits(77, 10, 2)


@pytest.mark.parametrize("votes", ["none", "simulated", "imported"])
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ('source={{kind="folder", root="{at}"}}', "source stage 'listed' yielded no rows"),
        ("buckets.first_labelled=99", "stage 'asked' rejected all [0-9]+ rows \\([0-9]+ bucket_not_labelled\\)"),
    ],
)
def test_a_run_without_rows_names_the_stage_that_left_none(bw: Cli, tmp_path: Path, votes: str, given: str, told: str) -> None:
    (tmp_path / "empty").mkdir()
    given = given.format(at=tmp_path / "empty")
    run = ["run", "clear", "--config", "tiny", "--set", "source.count=300", "--set", given, "--set", f"qa.votes={votes}"]
    found = bw(*run, "--out", tmp_path / "out", "-q")
    assert found.code == 1
    assert re.search(told, found.err), found
    assert found.err.splitlines()[-1].startswith("benchwright: /")


@pytest.mark.parametrize("stored", ["float16", "float32"])
def test_the_dataset_says_as_what_its_vectors_are_stored(tmp_path: Path, stored: str) -> None:
    simulate(tmp_path, f"encoder_run.stored={stored}")
    told = json.loads((tmp_path / "dataset/dataset.json").read_text())["members"]["embedding.npy"]
    with tarfile.open(next((tmp_path / "dataset").glob("*.tar"))) as tar:
        stream = tar.extractfile(next(member for member in tar if member.name.endswith(".embedding.npy")))
        assert stream is not None
        vector = np.load(io.BytesIO(stream.read()))
    assert (told["dtype"], told["shape"]) == (stored, list(vector.shape))
    assert vector.dtype == stored


def test_a_plan_names_no_place_in_its_keys(tiny: Path, tmp_path: Path) -> None:
    todo = api.job("clear", config="tiny")
    api.run(todo, str(tmp_path / "other"))
    assert [a.key for _, a in api.plan(todo, str(tiny))] == [a.key for _, a in api.plan(todo, str(tmp_path / "other"))]


# -------------------------------------------------------------------------------------------------------- simulated votes


def simulate(out: Path, *overrides: str) -> dict[str, str]:
    """Digests of the files of a small run in which annotators are simulated."""
    done = api.run(api.job("clear", config="tiny", overrides=[*SMALL, *overrides]), str(out))
    assert not done.waiting
    assert api.verify(str(out)) == []
    return files_of(out)


def test_simulated_votes_are_those_of_a_fresh_folder(tmp_path: Path) -> None:
    """Keys of drawn pictures are the same whatever they show: votes that were there went to other images."""
    changes = [
        ("seed=5",),
        ("qa.errors.wrong=0.9", "qa.errors.none=0", "qa.errors.extra=0"),
        ("qa.workers=5", "qa.majority=3", "buckets.rule.count=3"),
        (),
    ]
    fresh: dict[tuple[str, ...], dict[str, str]] = {}
    for number, change in enumerate([(), *changes]):
        if change not in fresh:
            fresh[change] = simulate(tmp_path / f"fresh{number}", "source.count=100", *change)
        assert simulate(tmp_path / "run", "source.count=100", *change) == fresh[change]


def test_votes_belong_to_the_stage_before_them_and_not_to_one_of_earlier_settings(tmp_path: Path) -> None:
    """A stage that the plan has no more lies there still: annotators were asked about its rows."""
    few = "source.count=100"
    simulate(tmp_path / "run", few, "qa.max_sensitive_score=1.0")
    done = api.run(api.job("clear", config="tiny", overrides=[few, "seed=5"]), str(tmp_path / "run"))
    fresh = api.run(api.job("clear", config="tiny", overrides=[few, "seed=5"]), str(tmp_path / "fresh"))
    assert done.result.digest == fresh.result.digest


def test_simulated_votes_are_named_after_what_was_asked(tmp_path: Path) -> None:
    simulate(tmp_path)
    asked = next(stage["digest"] for stage in api.show(str(tmp_path))["stages"] if stage["name"] == "asked")
    assert [path.name.rsplit("-")[-1] for path in (tmp_path / "qa").glob("*.parquet")] == [f"{asked[:16]}.parquet"]


def test_simulated_votes_are_not_taken_for_those_of_people(tmp_path: Path) -> None:
    simulate(tmp_path)
    people = api.job("clear", config="tiny", overrides=[*SMALL, "qa.votes=imported"])
    assert "benchwright qa import" in api.run(people, str(tmp_path)).waiting
    assert votes_of(people.rounds()[""], str(tmp_path)) is None
    results = [str(path) for path in sorted((tmp_path / "qa/simulated/results").glob("*.csv"))]
    imported = import_votes(people.rounds()[""], str(tmp_path), results, salt="s")
    assert not api.run(people, str(tmp_path)).waiting
    kept = (tmp_path / "qa/votes.parquet").read_bytes()
    simulate(tmp_path, "seed=5")
    assert (tmp_path / "qa/votes.parquet").read_bytes() == kept
    assert not api.run(people, str(tmp_path)).waiting
    votes = votes_of(people.rounds()[""], str(tmp_path))
    assert votes is not None
    assert votes.num_rows == imported.votes


def test_a_label_that_is_no_text_is_told_with_file_and_key(tmp_path: Path) -> None:
    root = tmp_path / "photos"
    root.mkdir()
    with tarfile.open(root / "a.tar", "w") as tar:
        for number in range(30):
            image = io.BytesIO()
            Image.new("RGB", (32, 32), (200, number, 30)).save(image, "BMP")
            day = f"01-{number % 28 + 1:02d}T00:00:00"
            sidecar = {"true_class": ["red"], "date_taken": f"2010-{day}", "date_uploaded": f"2011-{day}"}
            for name, data in (("bmp", image.getvalue()), ("json", json.dumps(sidecar).encode())):
                info = tarfile.TarInfo(f"s{number:03d}.{name}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    source = f'source={{kind="tars", form="webdataset", root="{root}"}}'
    small = ["buckets.rule.count=2", "retrieval.candidates=9", "retrieval.per_class=6"]
    todo = api.job("clear", config="tiny", overrides=[source, *small])
    told = r"s0\d\d\.bmp, key '[^']*s0\d\d': its label 'true_class' is \['red'\]: the name of a class, or null"
    with pytest.raises(ValueError, match=told):
        api.run(todo, str(tmp_path / "out"))
