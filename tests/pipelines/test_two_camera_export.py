"""Two folders of raw pairs to transforms, scores, an ONNX file and corrected pictures, as the page two_cameras.md has it; and
what is told where that cannot be."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from benchwright.curation.local_files import write_whole
from benchwright.curation.rng import rng
from benchwright.curation.stages.alignment import LEAST_AGREEMENT
from benchwright.eval.metrics.light_dependence import light_dependence
from benchwright.eval.protocols.cross_validation import estimates_of
from benchwright.pipelines import api, training_results
from benchwright.pipelines.cli import main as cli
from benchwright.pipelines.errors import WrongUse
from benchwright.pipelines.two_camera import estimating, exporting, learning
from benchwright.pipelines.two_camera.baselines import LINEAR
from benchwright.training.illuminants.pictures import LinearPictures
from benchwright.training.illuminants.registry import candidates, estimator
from benchwright.training.two_camera.onnx_run import OnnxNetwork

from tests.files import ROOT, module_of

from .pages import faults

pytestmark = pytest.mark.usefixtures("blank_figures")

PAGE = (ROOT / "docs/tutorials/two_cameras.md").read_text("utf-8")
QUICK = "{ epochs = 3, batch_size = 64, learning_rate = 1e-2, schedule = 'cosine', patience_epochs = 3 }"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}[^\n]*\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's folder after all of its commands, with nine drawn pairs."""
    pytest.importorskip("pidng", reason="pidng writes the DNGs of these tests: pip install benchwright[dev]")
    phone = module_of(ROOT / "benchmarks/make_phone_pairs.py")
    folder = tmp_path_factory.mktemp("walk")
    drawn, there = folder / "drawn", folder / "phone"
    phone.make_pairs(drawn, pictures=None, pairs=9, size=(336, 252), seed=0)
    for camera, name in enumerate(("main", "wide")):
        (there / name).mkdir(parents=True)
        for number in range(9):
            shutil.move(drawn / f"RAW_{number:04d}_CAM_{camera}.dng", there / name / f"{number:04d}.dng")
    draw = np.random.default_rng(9)
    other = phone.mosaic_of(phone.drawn_scene(336, 252, draw) @ phone.CAMERA_2.astype(np.float32), draw)
    (folder / "elsewhere.dng").write_bytes(phone.write_dng(other, black=(phone.BLACK,) * 4, white=phone.WHITE))
    charts = re.sub(r"RAW_(\d+)_CAM_0", r"main/\1", (drawn / "charts.csv").read_text())
    (there / "charts.csv").write_text(charts)
    (there / "wide/0099.dng").write_bytes(b"alone")
    (folder / "mine.toml").write_text(blocks("toml")[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for line in "".join(blocks("bash")).splitlines():
            assert cli.call(line.split()[1:]) == 0, line
        exec(compile(blocks("python")[0], "two_cameras.md", "exec"), {})
    return folder


def test_the_page_goes_from_two_folders_to_corrected_pictures(walked: Path, bw) -> None:
    out, light = walked / "out", walked / "light"
    assert [row["reason"] for row in api.rejects(str(out))] == ["no_partner"]
    truth = json.loads((walked / "drawn/truth.json").read_text())
    pairs = learning.read_pairs(str(out / "dataset"))
    matrix = np.array(truth["pairs"]["RAW_0000"]["transform"])
    off = np.linalg.norm(pairs.transform_1to2[pairs.original] - matrix, axis=(1, 2)) / np.linalg.norm(matrix)
    assert off.max() < 0.03
    scores = api.scores(str(out))["rotating"]
    assert set(scores) == {"mine", "linear_regression", "gray_world", "shades_of_gray"}
    assert api.skipped(str(out)) == {"rotating corrected_moments": "6 pictures: a matrix of 19 moments needs at least as many"}
    page = (out / "report.html").read_text()
    assert faults(page) == []
    for told in (
        "does not depend on the illuminant, as far as these 9 pairs show",
        "network on T",
        "9-12-6-2, tanh",
        "19 moments",
    ):
        assert told in page, told
    model, card = json.loads((light / "model.json").read_text()), (light / "README.md").read_text()
    assert (model["pairs"], model["rows"], model["parameters"], model["depends"]) == (9, 54, 212, False)
    assert model["expected"]["mean"][0] == pytest.approx(scores["mine"]["mean"]["mean"])
    for told in (
        api.show(str(out))["digest"],
        "212 parameters",
        "nothing to learn",
        "With 9 pairs, below 30, a dependence is sometimes missed",
        f"{model['expected']['mean'][0]:.2f}",
        "licence",
    ):
        assert told in card, told
    here = json.loads((light / "measured_here.json").read_text())
    assert here["max_difference"]["onnxruntime and torch"] < 1e-5
    assert here["latency_us"]["median"] > 0
    found = json.loads((walked / "looked/estimate.json").read_text())
    assert np.linalg.norm(np.reshape(found["transform"], (3, 3)) - matrix) < 0.03 * np.linalg.norm(matrix)
    assert found["network"] == "mine"
    for name in ("before.png", "after.png"):
        assert (walked / "looked" / name).read_bytes().startswith(b"\x89PNG")
    assert faults((walked / "looked/before_after.html").read_text()) == []
    assert bw("verify", out / "experiments").code == 0


def test_an_export_has_the_same_bytes_again_and_the_average_is_that_of_its_networks(walked: Path, tmp_path: Path) -> None:
    out = str(walked / "out")
    again = api.export(out, str(tmp_path / "again"), network="mine").parent
    for name in ("model.onnx", "model.json", "README.md"):
        assert (again / name).read_bytes() == (walked / "light" / name).read_bytes(), name
    X = rng(0, "X").normal(size=(5, 9)).astype(np.float32)
    average = OnnxNetwork((walked / "average/model.onnx").read_bytes())(X)
    single = OnnxNetwork((walked / "light/model.onnx").read_bytes())(X)
    assert np.abs(np.log(average) - np.log(single)).max() > 1e-3
    assert json.loads((walked / "average/model.json").read_text())["networks"] == 2


def test_linear_regression_is_exported_as_networks_are(walked: Path, tmp_path: Path, bw) -> None:
    out, light = str(walked / "out"), tmp_path / "light"
    told = bw("export", out, "--to", light, "--network", "linear_regression").err
    assert re.search(r"linear_regression \(9-2, linear\), trained on all 9 pairs", told)
    model, card = json.loads((light / "model.json").read_text()), (light / "README.md").read_text()
    assert (model["parameters"], model["operations"], model["networks"]) == (20, 18, 1)
    assert model["expected"]["mean"][0] == pytest.approx(api.scores(out)["rotating"]["linear_regression"]["mean"]["mean"])
    assert card.count("\nLinear regression, nine numbers and a constant to two, 20 parameters.") == 1
    here = json.loads((light / "measured_here.json").read_text())
    assert 0 < here["max_difference"]["onnxruntime and numpy"] < 1e-5
    rows = learning.dataset_rows(f"{out}/dataset", model["dataset"], "1to2")
    X, gt = np.column_stack([rows.X, np.ones(len(rows.X))]).astype(np.float64), rows.gt[:, [0, 2]]
    by_normal_equations = X @ np.linalg.pinv(X.T @ X, rcond=1e-12) @ X.T @ gt
    assert np.allclose(OnnxNetwork((light / "model.onnx").read_bytes())(rows.X), by_normal_equations, atol=1e-4)
    found = api.estimate(str(light), *(str(walked / "phone" / camera / "0003.dng") for camera in ("main", "wide")), str(light))
    assert abs(found.light[0] - rows.gt[rows.key.tolist().index("0003"), 0]) < 0.5
    assert (
        "linear_regression: it has a single solution" in bw("export", out, "--to", light, "--network", LINEAR, "--average").err
    )
    assert "corrected_moments: networks become ONNX" in bw("export", out, "--to", light, "--network", "corrected_moments").err


def test_a_pair_tells_its_own_homography_and_pictures_may_be_aligned(walked: Path, tmp_path: Path) -> None:
    files = [str(walked / "phone" / camera / "0003.dng") for camera in ("main", "wide")]
    model = str(walked / "light")
    known = api.estimate(model, *files, str(tmp_path / "known"))
    own = api.estimate(model, *files, str(tmp_path / "own"), align="pair")
    assert known.homography_from == "the training"
    assert own.homography_from.startswith("this pair: ")
    assert np.allclose(known.transform, own.transform, atol=0.01)
    draw = np.random.default_rng(0)
    picture = draw.integers(1000, 30000, (96, 96, 3)).astype(np.uint16)
    for name, array in (("a", picture), ("b", picture[..., [1, 0, 2]])):
        cv2.imwrite(str(tmp_path / f"{name}.png"), array[..., ::-1])
    found = api.estimate(model, str(tmp_path / "a.png"), str(tmp_path / "b.png"), str(tmp_path / "c"), align="none")
    assert np.allclose(np.reshape(found.transform, (3, 3)), np.eye(3)[:, [1, 0, 2]], atol=1e-3)
    assert "R to R" in found.outside
    assert found.doubt.startswith(f"{len(found.outside)} of the 9 numbers of T are outside the training range")
    assert found.doubt in Path(found.page).read_text()


def test_a_picture_that_cannot_be_read_is_one_line(walked: Path, tmp_path: Path, bw) -> None:
    raw = walked / "phone/wide/0003.dng"
    os.mkfifo(tmp_path / "pipe.png")
    cv2.imwrite(str(tmp_path / "cut.png"), np.random.default_rng(0).integers(0, 65535, (96, 96, 3)).astype(np.uint16))
    for cut, whole in ((tmp_path / "cut.png", tmp_path / "cut.png"), (tmp_path / "cut.dng", raw)):
        cut.write_bytes(whole.read_bytes()[:5000])
    for name, reason in (("pipe.png", "not a regular file"), ("cut.png", "corrupt"), ("cut.dng", "truncated")):
        path = tmp_path / name
        told = bw("estimate", walked / "light", path, raw, "--to", tmp_path / "looked")
        assert told.code == 1
        assert re.fullmatch(f"benchwright: {re.escape(str(path))}: {reason}.*\n", told.err)


def test_a_network_of_transforms_alone_is_told_how_pictures_are_read(walked: Path, tmp_path: Path, bw) -> None:
    files, alone = [walked / "phone" / camera / "0003.dng" for camera in ("main", "wide")], tmp_path / "alone"
    shutil.copytree(walked / "light", alone)
    facts = json.loads((alone / "model.json").read_text())
    factor, demosaic = facts["reading"]["factor"], facts["reading"]["demosaic"]
    (alone / "model.json").write_text(json.dumps({**facts, "reading": None}))
    by_hand = ["--factor", factor, "--demosaic", demosaic]
    known = bw("estimate", walked / "light", *files, "--align", "pair", "--to", tmp_path / "a", "--json")
    found = bw("estimate", alone, *files, *by_hand, "--to", tmp_path / "b", "--json")
    found, known = (json.loads(told.out) for told in (found, known))
    assert found["transform"] == known["transform"]
    assert found["light"] == known["light"]
    assert (
        "read as those of its training were" in bw("estimate", walked / "light", *files, *by_hand, "--to", tmp_path / "c").err
    )


def test_numbers_of_t_that_lie_outside_are_named_and_not_for_a_trace() -> None:
    learned = SimpleNamespace(low=[0.0] * 9, high=[1.0] * 9)
    T = np.array([1.005, -0.005, 0.5, 1.0, 0.0, 0.5, 0.5, 1.02, -0.02])
    assert list(estimating._outside(learned, T)) == ["B to G", "B to B"]


def test_two_pictures_of_two_scenes_are_refused(walked: Path, tmp_path: Path, bw) -> None:
    main, wide = walked / "phone/main/0003.dng", walked / "elsewhere.dng"
    words = ["estimate", walked / "light", main, wide, "--to", tmp_path / "l"]
    told = bw(*words)
    assert (told.code, len(told.err.splitlines())) == (1, 1)
    assert "elsewhere.dng: not_one_scene: their detail agrees by" in told.err
    assert not (tmp_path / "l").exists()
    assert bw(*words, "--least-agreement", "-1").code == 0
    assert json.loads((walked / "light/model.json").read_text())["reading"]["least_agreement"] == LEAST_AGREEMENT


def test_an_interrupted_export_can_be_repeated(walked: Path, tmp_path: Path, bw, monkeypatch: pytest.MonkeyPatch) -> None:
    def once(path: Path, data: bytes) -> None:
        (path.parent / ".tmp-1-0123456789ab").write_bytes(data) if path.parent.is_dir() else write_whole(path, data)
        monkeypatch.undo()
        raise KeyboardInterrupt

    words = ["export", walked / "out", "--to", tmp_path / "m", "--network", "mine"]
    for _ in range(2):
        monkeypatch.setattr(exporting, "write_whole", once)
        assert bw(*words).code == 130
    assert bw(*words).code == 0


def test_what_cannot_be_exported_or_estimated_is_told(walked: Path, tmp_path: Path, bw) -> None:
    out, light = walked / "out", tmp_path / "light"
    shutil.copytree(walked / "light", light)
    main, wide = (walked / "phone" / camera / "0001.dng" for camera in ("main", "wide"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes.txt").write_text("mine")
    (tmp_path / "a.jpg").write_bytes(cv2.imencode(".jpg", np.zeros((64, 64, 3), np.uint8))[1].tobytes())
    export, to = ["export", out, "--to", tmp_path / "m", "--network"], ["--to", tmp_path / "l"]
    for words, told in (
        (export[:-1], "several networks, .*mine.*: name one with --network"),
        ([*export, "min"], "no network 'min': there are .*; did you mean 'mine'"),
        ([*export, "network-200"], "there are no fold results for network-200.*: run `benchwright train"),
        ([*export, "mine", "--to", tmp_path / "full"], "full: it contains files, but no model.json"),
        ([*export, "mine", "--direction", "2to1"], "direction 2to1, where .* 1to2"),
        (
            ["estimate", tmp_path / "m", main, wide, *to],
            "model.json not found: expected a folder written by `benchwright export`",
        ),
        (["estimate", light, tmp_path / "a.jpg", wide, *to], "a.jpg: not_raw: .* JPEGs are already white-balanced"),
        (["estimate", light, main, wide, "--device", "p2", *to], "no device 'p2'"),
        (["estimate", light, main, tmp_path / "none.dng", *to], "none.dng: no such file"),
    ):
        found = bw(*words)
        assert found.code in (1, 2), words
        assert re.search(told, found.err), (told, found.err)
        assert len(found.err.splitlines()) == 1
    (light / "model.onnx").write_bytes(b"another")
    assert "is not the file described by model.json" in bw("estimate", light, main, wide, "--to", tmp_path / "l").err
    (light / "model.json").write_text('{"benchmark": "two_camera"}')
    assert "model.json: network: " in bw("estimate", light, main, wide, "--to", tmp_path / "l").err
    assert not (tmp_path / "l").exists()


# ------------------------------------------------------------------------------------------------------ spectra, both ways


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A drawn run, trained in both directions."""
    out = tmp_path_factory.mktemp("both") / "run"
    networks = (
        f"{{ small = {{ hidden = [6], activation = 'softplus', preset = 'radiometric', seeds = [0], settings = {QUICK} }} }}"
    )
    given = ["source.pairs=60", "evaluation.direction=both", "evaluation.baselines=['gray_world', 'linear_regression']"]
    api.run(api.job("two_camera", config="tiny", overrides=[*given, f"evaluation.networks={networks}"]), str(out))
    api.train(str(out))
    return out


def test_both_directions_estimate_the_light_of_their_camera_from_its_own_picture(both: Path) -> None:
    pairs = learning.read_pairs(str(both / "dataset"))
    tested = pairs.take(pairs.fold == 2)
    pictures = learning.patches_of(str(both / "dataset"), "digest", None)[0][np.flatnonzero(pairs.fold == 2)]
    seen = 0
    for facts, rows in training_results.predictions(str(both)):
        found, camera = estimates_of(rows), facts["settings"]["direction"][0]
        truth = getattr(tested, f"gt_{camera}")
        assert np.allclose(found.truth[0], truth / truth[:, 1:2])
        if facts["method"] == "gray_world":
            seen += 1
            views = pictures if camera == "1" else LinearPictures(pictures.second, pictures.usable, pictures.images)
            lights = estimator(*candidates()["gray_world"]).fitted(views, truth).estimate(views)
            assert np.allclose(found.runs[0][0], lights / lights[:, 1:2])
    assert seen == 2
    assert {name for name in api.scores(str(both))["fixed"] if name.startswith("gray")} == {
        f"gray_world, direction = {way}" for way in ("1to2", "2to1")
    }
    page = Path(api.report(str(both))).read_text()
    assert page.count("depends on the illuminant, which explains") == 2
    assert "network on T" in page
    assert "9-6-2, softplus" in page
    with pytest.raises(WrongUse, match="trained in both directions: name one with --direction"):
        api.export(str(both), str(both.parent / "m"))
    api.export(str(both), str(both.parent / "m"), direction="2to1")
    model = json.loads((both.parent / "m/model.json").read_text())
    assert (model["direction"], model["validated"], model["reading"]) == ("2to1", True, None)
    told = r"it was not trained on raw pictures \(source radiometric\): say how to read them, with --factor"
    with pytest.raises(WrongUse, match=told):
        api.estimate(str(both.parent / "m"), "a.dng", "b.dng", "looked")


def test_an_estimator_that_a_package_offers_is_trained_and_called_what_it_is(both: Path, tmp_path: Path, install, bw) -> None:
    text = "class Mean:\n    def estimate_folds(self, folds):\n"
    text += "        return {0: [fold.gt_train.mean(axis=0) + 0 * fold.X_test[:, :3] for fold in folds]}\n"
    install("brand-new", "2.1", {"brand_new_lights.py": text}, {"benchwright.estimators": "mean_light = brand_new_lights:Mean"})
    out = shutil.copytree(both, tmp_path / "run")
    told = bw("train", out, "--method", "mean_light", "-q")
    assert told.code == 0, told.err
    assert re.search(
        r"^mean_light(, direction = 2to1 | .*\n  direction = 2to1$)", told.out, re.MULTILINE
    )  # by the terminal's width
    assert "of brand-new 2.1" in Path(api.report(str(out))).read_text()


def test_a_network_whose_weights_a_test_fold_chooses_is_not_exported(tmp_path: Path) -> None:
    peeking = QUICK.replace("{ ", "{ keep = 'test_fold', ")
    network = f"{{ peeking = {{ parameters = 200, preset = 'radiometric', seeds = [0], settings = {peeking} }} }}"
    given = ["source.pairs=30", f"evaluation.networks={network}", "evaluation.baselines=[]"]
    out = str(tmp_path / "run")
    api.run(api.job("two_camera", config="tiny", overrides=given), out)
    api.train(out)
    with pytest.raises(
        WrongUse, match=r"networks\.peeking: preset with keep = 'test_fold': without folds there is no test fold"
    ):
        api.export(out, str(tmp_path / "m"))


def test_networks_are_named_by_parameters_or_by_hidden_layers_and_not_by_both() -> None:
    for given in ("parameters = 200, hidden = [4]", "activation = 'relu'"):
        network = f"{{ odd = {{ {given}, preset = 'radiometric', seeds = [0] }} }}"
        todo = api.job("two_camera", config="tiny", overrides=[f"evaluation.networks={network}"])
        with pytest.raises(WrongUse, match=r"network 'odd': evaluation\.networks\.odd: set either parameters or hidden"):
            todo.benchmark.trainings(todo.config, "nowhere", [], [])


@pytest.mark.parametrize("config", ["s20", "folders"])
def test_a_file_of_charts_is_read_where_charts_are_listed_in_it(config: str) -> None:
    for chart, file in (("listed", "charts.csv"), ("found", None), ("fixed", None)):
        todo = api.job("two_camera", config=config, overrides=[f"source.chart={chart}"])
        assert todo.flow("out").stage("listed").step.settings["charts"] == file
        assert todo.flow("out").schemas()["shards"].names


def test_dependence_is_told_by_pairs_that_suffice() -> None:
    draw = np.random.default_rng(0)
    T, lights = np.eye(3) + draw.normal(0, 0.01, (40, 3, 3)), draw.uniform(0.5, 1.5, (40, 3))
    assert not light_dependence(T, lights).depends
    T[:, 2, 0] += 0.05 * lights[:, 0] / lights[:, 1]
    found = light_dependence(T, lights)
    assert (found.depends, int(found.explained.argmax())) == (True, 6)
    assert found.left[6] == pytest.approx(0.01, rel=0.5)
    T = np.eye(3) + 1e-3 * (T - np.eye(3))  # all of it far below what noise does to T
    assert not light_dependence(T, lights).depends
    for few, same, told in (
        (7, lights, "7 pairs: at least 8 are needed"),
        (40, np.ones((40, 3)), "all pairs have the same illuminant"),
    ):
        with pytest.raises(ValueError, match=told):
            light_dependence(T[:few], same[:few])
