"""The examples of docs/extending.md do what the page says, each as a file that is named."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from benchwright.curation.registry import Entry, described, load_name
from benchwright.curation.stages.transforms import TRANSFORMS
from benchwright.curation.stages.visual_transforms import transform_by
from benchwright.eval.metrics.registry import METRICS
from benchwright.pipelines import api
from benchwright.training.baselines.clear import paper_settings
from benchwright.training.core.build import parts_of
from benchwright.training.core.learner import Learner
from benchwright.training.data.examples import ArrayExamples
from benchwright.training.illuminants.pictures import LinearPictures
from benchwright.training.illuminants.registry import estimator, functions, load_baseline
from benchwright.training.methods.registry import METHODS, method
from benchwright.training.models.registry import MODELS, check_takes
from benchwright.training.predictors.registry import PREDICTORS, new_predictor
from PIL import Image

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "extending.md").read_text("utf-8")
EXAMPLES = dict(re.findall(r"```python title=\"(\w+)\.py\"\n(.*?)```", PAGE, re.DOTALL))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    for name, text in EXAMPLES.items():
        (folder / f"example_{name}.py").write_text(text)
    return folder


def test_every_example_is_short() -> None:
    assert len(EXAMPLES) == 10
    others = {"README.md": "notes.py", "docs/blurring.md": "", "docs/trainings.md": "mine.py"}
    root, found = Path(__file__).resolve().parents[1], dict(EXAMPLES)
    for page, title in others.items():
        start = f'```python title="{title}"' if title else "```python"
        found[page] = (root / page).read_text("utf-8").partition(f"{start}\n")[2].partition("```")[0]
    assert all(found.values())
    assert {name: len(text.splitlines()) for name, text in found.items() if len(text.splitlines()) > 30} == {}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("encoders.py:MeanColour", ("images, texts", "The mean colour of an image, and of the colours that a text names.")),
        ("methods.py:newest", ("domains, tasks, sets of labels", "The newest `rows` rows of the stream.")),
        ("metrics.py:worst_domain", ("matrix of accuracies", "The lowest accuracy after the last domain, in [0, 1].")),
    ],
)
def test_docstrings_fill_the_columns_of_list(folder: Path, name: str, told: tuple[str, str]) -> None:
    assert described(Entry("x", name, f"{folder}/example_{name}", "")) == told


def test_the_source_and_the_encoder_in_one_run(folder: Path, tmp_path: Path) -> None:
    colours = {"red": (210, 30, 30), "green": (30, 150, 40), "blue": (30, 60, 210)}
    (tmp_path / "photos").mkdir()
    for number in range(24):
        name = list(colours)[number % 3]
        image = Image.new("RGB", (24, 24), tuple(min(255, level + number) for level in colours[name]))
        image.save(tmp_path / "photos" / f"20{10 + number // 12}-03-{number + 1:02}-{name}.png")
    Image.new("RGB", (24, 24)).save(tmp_path / "photos" / "undated.png")
    text = "\n".join(re.findall(r"```toml\n(\[(?:source|encoder)\].*?)```", PAGE, re.DOTALL))
    for name in EXAMPLES:
        text = text.replace(f'"{name}.py', f'"{folder}/example_{name}.py')
    classes = "".join(f'[[classes]]\nname = "{name}"\nprompts = ["something {name}"]\n' for name in colours)
    (tmp_path / "mine.toml").write_text(
        f'extends = "photos"\n[qa]\nvotes = "none"\n[buckets.rule]\nkind = "calendar"\nperiod = "year"\n{text}'
        f"[retrieval]\ncandidates = 4\nper_class = 3\n[choice]\nper_class = 2\n{classes}"
    )
    run = api.run(api.job("clear", config=str(tmp_path / "mine.toml")), str(tmp_path / "out"), scheduler="threads")
    shown = api.show(str(tmp_path / "out"))["stages"]
    assert (shown[0]["rows"], shown[0]["rejects"]) == (24, {"no_date": 1})
    found = run.rows().table(["key", "class_name"]).to_pylist()
    assert len(found) == 12
    assert all(row["key"].endswith(row["class_name"]) for row in found)
    assert set(json.loads((tmp_path / "out/run.json").read_text())["code"]) == {
        f"source {folder}/example_sources.py:by_name",
        f"encoder {folder}/example_encoders.py:MeanColour",
    }


def test_the_transform(folder: Path) -> None:
    mirror = load_name(TRANSFORMS, f"{folder}/example_transforms.py:mirror")
    frames = np.arange(2 * 3 * 4 * 3, dtype=np.uint8).reshape(2, 3, 4, 3)
    made = [transform_by(mirror, frames, 0, f"video{n}") for n in range(20)]
    assert {bool((each == frames).all()) for each in made} == {True, False}
    assert all((each == frames).all() or (each == frames[:, :, ::-1]).all() for each in made)
    with pytest.raises(ValueError, match="transform <lambda> gives uint8"):
        transform_by(lambda frames, draw: frames[:1], frames, 0, "video")


def test_the_methods(folder: Path) -> None:
    newest = method(f"{folder}/example_methods.py:newest", rows=3)
    assert newest.rule((), [2, 3], seed=0).tolist() == [2, 3, 4]
    small = method(f"{folder}/example_methods.py:small_outputs", strength=0.5)
    assert (small.name, dict(small.settings)) == ("small_outputs", {"strength": 0.5})
    assert small.teach is not None
    with pytest.raises(ValueError, match="newest: rows is missing: there are rows"):
        method(f"{folder}/example_methods.py:newest")
    with pytest.raises(ValueError, match="gives str, not a Method"):
        method("platform:machine")


def test_the_model_learns_with_the_method(folder: Path) -> None:
    make = load_name(MODELS, f"{folder}/example_models.py:Hidden")
    check_takes(f"{folder}/example_models.py:Hidden", "vectors")
    with pytest.raises(ValueError, match="Hidden' takes vectors, but samples here are clips: name another model"):
        check_takes(f"{folder}/example_models.py:Hidden", "clips")
    with pytest.raises(ValueError, match="Hidden' takes vectors, but samples here are signals: name another model"):
        check_takes(f"{folder}/example_models.py:Hidden", "signals")
    check_takes(f"{folder}/example_waves.py:Waves", "signals")
    waves = load_name(MODELS, f"{folder}/example_waves.py:Waves")(torch.Generator(), sample=(2, 50))
    assert waves(torch.ones(3, 2, 50)).shape == (3, waves.width)
    check_takes("gcn", "signals")  # the features of nodes have two axes, too
    draw = np.random.default_rng(0)
    y = draw.integers(0, 2, 200)
    samples = ArrayExamples((draw.normal(size=(200, 4)) + 4 * y[:, None]).astype(np.float32), y)
    _, settings = paper_settings("linear")
    schedule = {**settings["schedule"], "epochs": 20, "batch_size": 50, "learning_rate": 0.05}
    given = {**settings, "schedule": schedule, "method": {"rows": 100}, "model": {"width": 8}}
    newest = load_name(METHODS, f"{folder}/example_methods.py:newest")
    learner = Learner(parts_of(given, newest, make, labels="one", classes="same"), sample=(4,), seed=0)
    learner.learn(samples, [], classes=2)
    assert len(learner.buffer) == 100
    assert (learner.predict(samples) == y).mean() > 0.95
    assert torch.equal(*(make(torch.Generator().manual_seed(3), sample=(4,)).weight for _ in range(2)))


def test_the_predictor(folder: Path) -> None:
    name = f"{folder}/example_predictors.py:FarFromMeans"
    predictor = new_predictor(load_name(PREDICTORS, name), {"limit": 3.0}, seed=0)
    X = np.array([[0.0, 0], [0, 1], [9, 0], [9, 1]], np.float32)
    predictor.fit([(np.array(list("abcd")), X, np.array([0, 0, 1, 1]))], (np.array([]), X[:0], np.array([])))
    labels, shares = predictor.predict(np.array(list("xyz")), np.array([[0.0, 0], [9, 0], [4, 30]], np.float32))
    assert labels[shares.argmax(axis=1)].tolist() == [0, 1, -1]
    with pytest.raises(TypeError, match="limit"):
        new_predictor(load_name(PREDICTORS, name), {}, seed=0)
    assert type(new_predictor(load_name(PREDICTORS, "ann"), {**_paper("ann")}, seed=0)).__name__ == "Ann"


def _paper(kind: str) -> dict[str, object]:
    from benchwright.training.predictors.paper import paper_settings

    return paper_settings()[kind]


def test_the_estimator(folder: Path) -> None:
    name = f"{folder}/example_estimators.py:mean_light"
    pictures = LinearPictures.of(np.random.default_rng(0).random((6, 4, 4, 3)))
    lights = np.tile([0.0, 3.0, 4.0], (6, 1))
    fitted = estimator(name, {}).fitted(pictures, lights)
    np.testing.assert_allclose(fitted.estimate(pictures), np.tile([0, 0.6, 0.8], (6, 1)))
    assert set(functions(name)) == {"estimate", "fit"}
    np.testing.assert_array_equal(load_baseline(fitted.save(), name).state["light"], fitted.state["light"])


def test_the_metric(folder: Path) -> None:
    worst = load_name(METRICS, f"{folder}/example_metrics.py:worst_domain")
    assert worst([[0.9, 0.1], [0.5, 0.7]]) == 0.5
