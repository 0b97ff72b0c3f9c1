"""KOWL from video files: X3D, TimeSformer and the built-in backbone take their features from clips, with nothing in between."""

from __future__ import annotations

import base64
import csv
import dataclasses
import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch
from benchwright.curation.artifact import load_artifact
from benchwright.curation.encoders.torchvision_compat import ensure_torchvision
from benchwright.curation.store import Store
from benchwright.curation.video.frame_plans import FramePlan, view_frames
from benchwright.curation.video.frames import Clip, decode_frames
from benchwright.datasets.features import video_networks
from benchwright.datasets.features.backbones import Backbone, load_backbone
from benchwright.datasets.features.video_networks import released_names, video_network
from benchwright.pipelines import api
from benchwright.pipelines.errors import WrongUse
from benchwright.pipelines.kowl import pipeline as kowl
from PIL import Image

pytestmark = pytest.mark.usefixtures("blank_figures")

Cli = Callable[..., Any]
"""The fixture ``bw`` of ``conftest``."""
LABELS = {"2021": ["red", "green"], "2023": ["red", "green", "blue"]}
COLOURS = {"red": (200, 20, 20), "green": (20, 200, 20), "blue": (20, 20, 200)}
TURNS = [f'split = "{split}"\nrole = "{role}"' for split, role in (("train", "train"), ("validate", "val"), ("test", "test"))]
RENAMED = "2021 red/clip 4.avi"
"""A clip that the second release calls crimson."""
VIDEOS = """
kind = "videos"
root = "{root}/videos"
names = "path"
max_rejects = 1
max_missing = 1
frames = 4
stride = 2
clips = 2
resize_px = 36
side_px = 32
"""
CLASSIFIER = f"""
{VIDEOS}
width = 2
join = "mean"
nuisances = ["colour_invert"]
outputs = "{{root}}/classes.txt"
"""
SETTINGS = f"""
seed = 0
[labels]
releases = ["2021", "2023"]
renames = {{{{}}}}
[increments]
preset = "rarest_first"
later = [{{{{release = "2023", count = 1, seed = 0}}}}]
[features]
{VIDEOS}
width = 4096
backbone = {{{{kind = "network", model = "x3d_xs", random_weights = 1}}}}
[feature_sets.plain]
{VIDEOS}
width = 448
join = "mean"
backbone = {{{{kind = "built_in"}}}}
nuisances = ["colour_invert"]
[feature_sets.one]
{CLASSIFIER}
backbone = {{{{kind = "network", model = "x3d_xs", random_weights = 1, classes = 2}}}}
[feature_sets.other]
{CLASSIFIER}
backbone = {{{{kind = "network", model = "x3d_xs", random_weights = 2, classes = 2}}}}
[shards]
max_samples = 100
[evaluation]
feedback = [1]
predictors = ["ann"]
prior_knowledge = {{{{}}}}
settings = {{{{ann = {{{{hidden = 8, epochs = 2}}}}}}}}
[source]
kind = "tables"
root = "{{root}}"
columns = {{{{split = "split"}}}}
"""


def write_video(path: Path, colour: tuple[int, int, int], frames: int = 12) -> None:
    """A clip of one colour that gets darker; its frames can be told apart."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as file:
        stream: Any = file.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(frames):
            pixels = np.full((48, 64, 3), colour, np.float64) * (1 - number / (2 * frames))
            file.mux(stream.encode(av.VideoFrame.from_ndarray(pixels.astype(np.uint8), format="rgb24")))
        file.mux(stream.encode(None))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two releases of clips, one file broken and one missing, and the settings that extract two sets of features from them."""
    root = tmp_path_factory.mktemp("videos")
    for release, labels in LABELS.items():
        with (root / f"{release}.csv").open("w") as file:
            rows = csv.writer(file)
            rows.writerow(["id", "label", "split"])
            for label in labels:
                for number, split in enumerate(["train"] * 4 + ["validate", "test"]):
                    name = f"{release} {label}/clip {number}.avi"
                    rows.writerow([name, label, split])
                    write_video(root / "videos" / name, COLOURS[label])
            if release == "2023":
                rows.writerow([RENAMED, "crimson", "validate"])
    (root / "classes.txt").write_text("red\ngreen\n")
    (root / "videos/2023 red/clip 0.avi").write_bytes(b"no video")
    (root / "videos/2023 red/clip 1.avi").unlink()
    turns = "".join(f'[[turns]]\nrelease = "{release}"\n{turn}\n' for release in LABELS for turn in TURNS)
    files = "".join(f'[[source.files]]\npath = "{release}.csv"\nrelease = "{release}"\n' for release in LABELS)
    (root / "mine.toml").write_text(SETTINGS.format(root=root) + files + turns)
    api.run(api.job("kowl", config=str(root / "mine.toml")), str(root / "out"), scheduler="sync")
    return root


def test_video_files_become_two_sets_of_features_that_are_learned(folder: Path, bw: Cli) -> None:
    out = str(folder / "out")
    rejects = bw("rejects", out).out
    assert "with_video_file\t2023 red%2Fclip 1%2Eavi\tmissing_video\t" in rejects
    assert "extracted\t2023 red%2Fclip 0%2Eavi\tnot_a_video\t" in rejects
    told = bw("train", out, "--quiet")
    assert told.code == 0, told.err
    report = Path(api.report(out)).read_text()
    assert "RANDOM weights" in report
    assert "Transformed clips" in report  # those of the set that goes through them
    store = Store(out)
    by_set = {stage: vectors(store, stage) for stage in ("extracted", "vectors_plain", "vectors_plain_colour_invert")}
    assert by_set["extracted"].shape == (28, 4096)
    first, second = np.split(by_set["extracted"], 2, axis=1)  # views side by side, each as wide as X3D's last layer but one
    assert 0 < np.abs(first - second).max() < np.abs(first).max()
    assert by_set["vectors_plain"].shape == (28, 448)
    assert not np.allclose(by_set["vectors_plain"], by_set["vectors_plain_colour_invert"])


def test_the_classifiers_of_two_backbones_are_told_apart_and_judged_by_the_labels_of_the_start(
    folder: Path, tmp_path: Path, bw: Cli
) -> None:
    """The paper's Figure 14: what the original classifiers say of clips as they are, and through transforms."""
    out = tmp_path / "out"
    shutil.copytree(folder / "out", out)
    told = bw("train", out, "--protocol", "start", "--method", "original", "--method", "ann", "--quiet")
    assert told.code == 0, told.err
    page = Path(api.report(str(out))).read_text()
    store = Store(str(out))
    artifact = load_artifact(store, "vectors_one")
    assert artifact is not None
    at = artifact.rows_view(store).table(["youtube_id"])["youtube_id"].to_pylist().index(RENAMED)
    said: set[str] = set()
    for name in ("one", "other"):
        for stage in (f"vectors_{name}", f"vectors_{name}_colour_invert"):
            label = ["red", "green"][int(vectors(store, stage)[at].argmax())]
            verdict = "right" if label == "red" else "wrong, in its top 5"
            said.add(f"original, model = {name}, start: {label}, {verdict}")
    assert all(each in page for each in said), said
    assert "crimson" not in page.partition("Transformed clips")[2].partition("</section>")[0]
    told = bw(
        "run", "kowl", "--config", folder / "mine.toml", "--set", 'feature_sets.one.backbone={kind="built_in"}', "--out", out
    )
    assert told.code == 2
    assert "feature_sets.one.outputs" in told.err


def test_what_was_said_of_an_earlier_dataset_is_not_shown(folder: Path, tmp_path: Path, bw: Cli) -> None:
    out = tmp_path / "out"
    shutil.copytree(folder / "out", out)
    assert bw("train", out, "--protocol", "start", "--method", "original", "--method", "ann", "--quiet").code == 0
    other = ("--set", 'increments.later=[{release="2023", count=1, seed=1}]', "--set", "shards.max_samples=5")
    assert bw("run", "kowl", "--config", folder / "mine.toml", *other, "--out", out, "--quiet").code == 0
    assert bw("train", out, "--protocol", "start", "--method", "original", "--quiet").code == 0
    said = Path(api.report(str(out))).read_text().rpartition("Transformed clips")[2].partition("</section>")[0]
    assert "original, model = one, start: " in said
    assert "ann" not in said


def test_people_see_frames_of_the_clips(folder: Path, tmp_path: Path, bw: Cli) -> None:
    shutil.copytree(folder / "out", tmp_path / "out")
    words = ["--config", str(folder / "mine.toml"), "--set", "evaluation.people={feedback=[0.2]}", "--quiet"]
    assert bw("run", "kowl", *words, "--out", tmp_path / "out").code == 0
    told = bw("train", tmp_path / "out", "--protocol", "people-0.2", "--quiet")
    assert (told.code, told.out.count("waits for 6 answers about 2 samples")) == (0, 2), told.err  # a round for each set
    with pytest.raises(WrongUse, match="set --round to one of by_ann_features_20"):
        api.qa_export(str(tmp_path / "out"))
    rounds = re.findall(r"^(by_\w+):", told.out, re.MULTILINE)
    project = api.qa_export(str(tmp_path / "out"), tool="label-studio", round=rounds[0])
    data = json.loads(project[0].read_text())[0]["data"]["image"].partition("base64,")[2]
    picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))
    assert picture.shape == (2 * 192, 3 * 256, 3)
    light = [float(picture[y : y + 192, x : x + 256].mean()) for y in (0, 192) for x in (0, 256, 512)]
    assert light == sorted(light, reverse=True)  # the clip gets darker, frame by frame


def vectors(store: Store, stage: str) -> np.ndarray:
    artifact = load_artifact(store, stage)
    assert artifact is not None
    return np.concatenate([np.asarray(part) for part in artifact.rows_view(store).arrays("feature")])


def test_frames_are_those_of_the_plan(folder: Path) -> None:
    assert view_frames(12, 4, 2, 2, "as_released").tolist() == [0, 2, 4, 6, 2, 4, 6, 8]
    plan = FramePlan("views", 4, stride=2, clips=2)
    pixels = decode_frames(Clip("k", "2021 red/clip 0.avi", None, None), root=str(folder / "videos"), plan=plan)
    assert pixels.shape == (8, 48, 64, 3)
    light = [float(frame.mean()) for frame in pixels]  # the clip gets darker
    assert light[:4] == sorted(light[:4], reverse=True)
    assert light[1:4] == light[4:7]


def test_the_settings_of_the_tutorial_are_those_of_the_plan(tmp_path: Path) -> None:
    root = Path(kowl.__file__).parents[2]
    page = (root / "docs/tutorials/open_world.md").read_text("utf-8")
    [block] = re.findall(r'```toml title="from_videos.toml"\n(.*?)```', page, re.DOTALL)
    own = (root / "pipelines/kowl/own.toml").read_text("utf-8")
    before, _, after = own.partition("[features]")
    (tmp_path / "mine.toml").write_text(before + block + after[after.index("[shards]") :])
    flow = api.job("kowl", config=str(tmp_path / "mine.toml")).flow("out")
    views = [stage.step.settings["views"] for stage in flow.stages if "views" in stage.step.settings]
    assert [(each.frames * each.clips, each.stride) for each in views] == [(8, 32), (64, 5), (64, 5)]


def test_even_views_reach_the_end_and_short_videos_repeat_their_last_frame() -> None:
    assert view_frames(100, 4, 5, 3, "even").reshape(3, 4)[:, [0, -1]].tolist() == [[0, 15], [42, 57], [84, 99]]
    assert view_frames(6, 4, 5, 2, "as_released").tolist() == [0, 5, 5, 5, 0, 5, 5, 5]


def test_weights_of_x3d_are_read_from_a_file_and_others_are_refused(tmp_path: Path) -> None:
    ensure_torchvision()
    from pytorchvideo.models.x3d import create_x3d

    torch.manual_seed(3)
    whole: Any = create_x3d(input_clip_length=4, input_crop_size=32).eval()
    torch.save({"model_state": whole.state_dict()}, tmp_path / "X3D_XS.pyth")
    backbone = Backbone("network", model="x3d_xs", mean=(0, 0, 0), std=(1, 1, 1))
    frames = [np.random.default_rng(n).integers(0, 256, (3, 32, 32), dtype=np.uint8) for n in range(4)]
    embed = load_backbone(backbone, checkpoint=str(tmp_path / "X3D_XS.pyth"), frames=4, side_px=32)
    last, seen = whole.blocks[-1], list[torch.Tensor]()
    last.pool.post_conv.register_forward_hook(lambda module, given, made: seen.append(made))
    with torch.inference_mode():
        whole(torch.from_numpy(np.stack(frames, axis=1)).float()[None] / 255)
    np.testing.assert_allclose(embed(frames), seen[0].flatten().numpy(), rtol=1e-3, atol=1e-4)
    said = load_backbone(
        dataclasses.replace(backbone, classes=400), checkpoint=str(tmp_path / "X3D_XS.pyth"), frames=4, side_px=32
    )
    whole.blocks[-1].activation = None  # a softmax when it is not trained
    with torch.inference_mode():
        logits = whole(torch.from_numpy(np.stack(frames, axis=1)).float()[None] / 255)
    np.testing.assert_allclose(said(frames), logits.flatten().numpy(), rtol=1e-3, atol=1e-4)
    with pytest.raises(ValueError, match=r"blocks.5.proj.weight is of shape \(400, 2048\), and x3d_xs has \(399, 2048\)"):
        load_backbone(
            dataclasses.replace(backbone, classes=399), checkpoint=str(tmp_path / "X3D_XS.pyth"), frames=4, side_px=32
        )
    torch.save({"fc.weight": torch.zeros(2, 2)}, tmp_path / "other.pyth")
    with pytest.raises(ValueError, match=r"no x3d_xs in it; it holds fc.weight.*change features.backbone.model") as told:
        load_backbone(backbone, checkpoint=str(tmp_path / "other.pyth"), frames=4, side_px=32)
    assert "\n" not in str(told.value)
    with pytest.raises(FileNotFoundError, match="no such file"):  # weights are random where the settings say so, and not else
        load_backbone(backbone, checkpoint="", frames=4, side_px=32)
    with pytest.raises(ValueError, match="one of x3d_xs, x3d_s, x3d_m, x3d_l, timesformer"):
        load_backbone(Backbone("network", model="x3d", random_weights=0), checkpoint="", frames=4, side_px=32)


RELEASED = {
    "attn.proj": "attention.output.dense",
    "attn.qkv": "attention.attention.qkv",
    "mlp.fc1": "intermediate.dense",
    "mlp.fc2": "output.dense",
    "norm1": "layernorm_before",
    "norm2": "layernorm_after",
    "temporal_attn.proj": "temporal_attention.output.dense",
    "temporal_attn.qkv": "temporal_attention.attention.qkv",
    "temporal_fc": "temporal_dense",
    "temporal_norm1": "temporal_layernorm",
}


def test_weights_of_timesformer_are_read_under_both_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"num_hidden_layers": 1, "hidden_size": 24, "num_attention_heads": 2, "intermediate_size": 8}
    made = video_networks.timesformer
    monkeypatch.setattr(video_networks, "timesformer", lambda frames, side, classes: made(frames, side, classes, **small))
    given = torch.rand(1, 3, 2, 32, 32)
    one = video_network("timesformer", frames=2, side_px=32, checkpoint="", seed=5).eval()
    ours = one.inner.state_dict()
    theirs = {
        "model.cls_token": ours["embeddings.cls_token"],
        "model.pos_embed": ours["embeddings.position_embeddings"],
        "model.time_embed": ours["embeddings.time_embeddings"],
        "model.head.weight": torch.rand(5, 24),
        "model.head.bias": torch.rand(5),
    }
    for end in ("weight", "bias"):
        theirs[f"model.patch_embed.proj.{end}"] = ours[f"embeddings.patch_embeddings.projection.{end}"]
        theirs[f"model.norm.{end}"] = ours[f"layernorm.{end}"]
        theirs |= {f"model.blocks.0.{old}.{end}": ours[f"encoder.layer.0.{new}.{end}"] for old, new in RELEASED.items()}
    assert set(released_names(theirs)) - {"head.weight", "head.bias"} == set(ours)
    head = {f"classifier.{end}": theirs[f"model.head.{end}"] for end in ("weight", "bias")}
    torch.save({"model_state": theirs}, tmp_path / "released.pyth")
    torch.save({**{f"timesformer.{name}": value for name, value in ours.items()}, **head}, tmp_path / "hub.pt")
    with torch.inference_mode():
        expected = one(given)
        for name in ("released.pyth", "hub.pt"):
            again = video_network("timesformer", frames=2, side_px=32, checkpoint=str(tmp_path / name), seed=6).eval()
            torch.testing.assert_close(again(given), expected)
            whole = video_network("timesformer", frames=2, side_px=32, checkpoint=str(tmp_path / name), classes=5).eval()
            said = expected @ theirs["model.head.weight"].T + theirs["model.head.bias"]
            torch.testing.assert_close(whole(given), said)
    assert expected.shape == (1, 24)
    with pytest.raises(ValueError, match=r"time_embeddings is of shape \(1, 2, 24\).*features.frames or features.side_px"):
        video_network("timesformer", frames=3, side_px=32, checkpoint=str(tmp_path / "hub.pt"))
