"""Every kind of code of one's own by each form of its name: an entry point of a package, ``module:NAME``, ``FILE.py:NAME``."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from benchwright.curation.code_changes import codes
from benchwright.curation.store import Store
from benchwright.pipelines import api
from benchwright.pipelines.listing import REGISTRIES
from benchwright.pipelines.tracking import track_of
from benchwright.pipelines.training_results import dataset_digest

from tests.installed import Install
from tests.pipelines.conftest import Cli

OUTSIDE = Path(__file__).resolve().parents[1] / "fixtures/outside"
PAGE = (Path(__file__).resolve().parents[2] / "docs/extending.md").read_text("utf-8")
MORE = """
def left_half(pixels):
    \"\"\"The left of the picture.\"\"\"
    return [(0, 0, pixels.shape[1] / 2, pixels.shape[0], 1.0)]

class Lines:
    \"\"\"A tracker that keeps nothing.\"\"\"
    def __init__(self, place, name, facts): ...
    def log(self, values, step): ...
    def close(self): ...
"""
VIDEOS = (
    "features={{kind='extracted', root='.', backbone={{kind='built_in'}}, width=9, frames=1, resize_px=8, side_px=8, "
    "transforms={{kinds=['{}'], share=0.5}}}}"
)


class Kind(NamedTuple):
    """A kind, where its code is, the benchmark and the setting that name it; "" for what the command line names."""

    kind: str
    code: str
    benchmark: str
    setting: str


KINDS = [
    Kind("detectors", "more:left_half", "clear", "blurring={{detector='{}', margin=0, cells=1, jpeg_quality=90}}"),
    Kind("encoders", "encoder:MeanColour", "clear", "encoder.kind={}"),
    Kind("sources", "pairs:npz_pairs", "two_camera", "source={{kind='{}', paths={{folder='.'}}}}"),
    Kind("transforms", "transforms:mirror", "kowl", VIDEOS),
    Kind("methods", "method:calm", "clear", ""),
    Kind("models", "model:Hidden", "clear", "baselines.model={}"),
    Kind("metrics", "metric:first_at_the_end", "clear", "baselines.metrics=['{}']"),
    Kind("predictors", "novelty:FarFromMeans", "kowl", ""),
    Kind("estimators", "estimator:mean_light", "two_camera", ""),
]
TRAINED = {"methods", "models", "metrics", "predictors", "estimators"}


@pytest.fixture
def package(install: Install) -> Path:
    """A package that offers one of each kind, under the name ``mine``."""
    examples = dict(re.findall(r"```python title=\"(\w+)\.py\"\n(.*?)```", PAGE, re.DOTALL))
    files = {f"of_each/{file.name}": file.read_text() for file in OUTSIDE.glob("*.py")}
    files |= {"of_each/__init__.py": "", "of_each/more.py": MORE, "of_each/model.py": examples["models"]}
    files["of_each/transforms.py"] = examples["transforms"]
    offers = {f"benchwright.{each.kind}": f"mine = of_each.{each.code}" for each in KINDS}
    offers["benchwright.trackers"] = "mine = of_each.more:Lines"
    return install("of-each", "1.0", files, offers) / "of_each"


def forms(package: Path, code: str) -> list[str]:
    module, _, name = code.partition(":")
    return ["mine", f"of_each.{code}", f"{package / module}.py:{name}"]


def code_of(each: Kind, name: str, finished: Callable[[str], Path]) -> Sequence[dict[str, str]]:
    """Digests of the code of the stages that use it."""
    settings = [each.setting.format(name)] if each.setting else []
    todo = api.job(each.benchmark, config="tiny", overrides=settings)
    if not settings or each.kind in TRAINED:
        out = str(finished(each.benchmark))
        methods = [] if settings else [name]
        if settings and each.kind == "models":
            methods = ["nap-finetune"]
        trainings = todo.benchmark.trainings(todo.config, out, methods, ["iid"] if each.benchmark == "clear" else [])  # type: ignore[misc]
        learned, measured = trainings[0].stages(dataset_digest(out))
        return [codes(stage) for stage in (learned, *measured)]
    assert todo.code() == {f"{each.kind[:-1]} {name}": "of-each 1.0" if name == "mine" else name}
    return [codes(stage) for stage in todo.flow("out").ordered()]


def test_every_kind_is_here() -> None:
    assert {each.kind for each in KINDS} | {"benchmarks", "trackers"} == set(REGISTRIES)  # benchmarks: see test_names.py


@pytest.mark.parametrize("each", KINDS, ids=lambda each: each.kind)
def test_the_three_forms_stand_for_the_same_code(
    each: Kind, package: Path, finished: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    offered, module, file = (
        [[*stage.values()] for stage in code_of(each, name, finished)] for name in forms(package, each.code)
    )
    assert offered == module
    assert [stage[1:] for stage in module] == [stage[1:] for stage in file]


def test_a_tracker_in_three_forms(package: Path) -> None:
    places = [track_of(f"{name}=there") for name in forms(package, "more:Lines")]
    assert [place.place for place in places if place] == ["there"] * 3
    assert [place.reference for place in places if place][:2] == ["of_each.more:Lines"] * 2


@pytest.mark.usefixtures("two_seeds")
@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_trainings_by_names_of_a_package(
    bw: Cli, package: Path, finished: Callable[[str], Path], tmp_path: Path, scheduler: str
) -> None:
    """Method, model and metric by entry points; by the two other forms the predictions are the same."""
    out, digests = tmp_path / "out", list[set[str]]()
    shutil.copytree(finished("clear"), out)
    settings = ["--set", "baselines.epochs=2", "--set", "baselines.decay_after_epochs=1"]
    for at in range(3):
        method, model, metric = (
            forms(package, code)[at] for code in ("method:calm", "model:Hidden", "metric:first_at_the_end")
        )
        named = ["--set", f"baselines.model={model}", "--set", f"baselines.metrics=['{metric}']", "--method", method]
        told = bw("train", out, "-p", "iid", *settings, *named, "--scheduler", scheduler, "--workers", 1)
        assert told.code == 0, told.err
        records = (out / "experiments/stages").glob("learned_*/artifact.json")
        digests.append({json.loads(each.read_text())["digest"] for each in records})
    assert digests[0] == digests[1] == digests[2]
    assert Store(str(out)).exists("experiments/run.json")
