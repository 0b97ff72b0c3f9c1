"""Features of clips in shards of frames: where clips lie, which frames are taken, backbones from files, visual transforms."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchwright.curation.artifact import load_artifact
from benchwright.curation.encoders.preprocess import Crop, normalise, prepare
from benchwright.curation.flow import join, rows_of, source, step
from benchwright.curation.keys import where
from benchwright.curation.rows import Rejected
from benchwright.curation.run import run
from benchwright.curation.shards import write_shard_file
from benchwright.curation.stages.visual_transforms import our_ranges, transform_frames
from benchwright.curation.store import Store
from benchwright.datasets.features import checkpoints
from benchwright.datasets.features.backbones import Backbone, describe, load_backbone
from benchwright.datasets.features.extract import ClipPlace, Extracted, Nuisance, extract_features
from benchwright.datasets.features.frames import (
    FrameClip,
    WithFrames,
    attach_clips,
    evenly,
    frames_of,
    read_clips,
    shards_below,
)
from benchwright.datasets.features.headless import torchvision_models
from benchwright.datasets.reader.index import DatasetIndex
from benchwright.eval.protocols.open_world.measures import tidy
from benchwright.pipelines import api
from benchwright.pipelines.cli import main as cli
from benchwright.pipelines.kowl import pipeline as kowl
from benchwright.pipelines.training_results import results
from PIL import Image


@dataclass(frozen=True)
class Wanted:
    key: str


def listed() -> list[Wanted]:
    return [Wanted(key) for key in ("two", "one", "gone", "four")]


SHORT = ("--set", "evaluation.settings.ann.epochs=12", "--set", "evaluation.feedback=[1]")
CROP = Crop(32, 32, "bilinear")
BUILT_IN = Backbone("built_in")
SQUEEZENET = Backbone("state_dict", model="squeezenet1_1", head="classifier.1")
"""The smallest network of torchvision."""


def png(seed: int, height: int = 40, width: int = 48) -> bytes:
    """A picture of its own colours and edges; PNG, so that tests know its pixels."""
    draw = np.random.default_rng(seed)
    small = draw.integers(0, 256, (5, 6, 3), dtype=np.uint8)
    memory = io.BytesIO()
    Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC).save(memory, "PNG")
    return memory.getvalue()


def clip(seed: int, frames: int) -> dict[str, object]:
    members: dict[str, object] = {f"{n:04}.png": png(100 * seed + n) for n in range(frames)}
    return {**members, "json": {"clip": seed}}


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Two shards: five clips, one of them twice, and a sample without frames."""
    folder = tmp_path / "frames"
    folder.mkdir()
    write_shard_file(folder / "a-0.tar", [("v_one", clip(1, 6)), ("v_two", clip(2, 1)), ("v_none", {"json": {}})])
    write_shard_file(folder / "a-1.tar", [("v_three", clip(3, 4)), ("v_one2", clip(1, 2)), ("v_four", clip(4, 9))])
    return folder


def places(shards: Path, pattern: str | None = None) -> list[FrameClip | Rejected]:
    return [row for shard in shards_below(root=str(shards)) for row in read_clips(shard, root=str(shards), uid_pattern=pattern)]


def test_clips_are_listed_by_their_headers(shards: Path) -> None:
    found = places(shards, "v_([a-z]+)")
    rows = [row for row in found if isinstance(row, FrameClip)]
    assert [(row.key, row.uid, row.clip_frames) for row in rows] == [
        ("a-0/v_one", "one", 6),
        ("a-0/v_two", "two", 1),
        ("a-1/v_three", "three", 4),
        ("a-1/v_one2", "one", 2),
        ("a-1/v_four", "four", 9),
    ]
    assert [row for row in found if isinstance(row, Rejected)] == [Rejected("a-0/v_none", "no_frames", "members json")]
    strange = [row.reason for row in places(shards, "w_([a-z]+)") if isinstance(row, Rejected)]
    assert strange == ["bad_uid", "bad_uid", "no_frames", "bad_uid", "bad_uid", "bad_uid"]
    with pytest.raises(FileNotFoundError, match=r"no \*.tar here"):
        shards_below(root=str(shards.parent))


def test_frames_are_taken_from_the_middle_of_equal_stretches() -> None:
    assert evenly(16, 8) == [1, 3, 5, 7, 9, 11, 13, 15]
    assert evenly(3, 8) == [0, 0, 0, 1, 1, 2, 2, 2]
    for total in (1, 7, 100):
        for count in (1, 4, 9):
            tick = total / count
            assert evenly(total, count) == [int(tick / 2 + i * tick + 1e-9) for i in range(count)]
    members = {f"{n}.jpg": str(n).encode() for n in range(12)} | {"json": b"{}"}
    assert frames_of(members, 4) == [b"1", b"4", b"7", b"10"]  # by number, not by name


def one(rows: list[Extracted | Rejected]) -> Extracted:
    assert len(rows) == 1
    assert isinstance(rows[0], Extracted)
    return rows[0]


def place(shards: Path, key: str, role: str = "test", increment: int = 1) -> ClipPlace:
    row = next(row for row in places(shards) if isinstance(row, FrameClip) and row.uid == key)
    return ClipPlace(key, role, increment, row.clip_sample, row.clip_shard, row.clip_offset, row.clip_size)


def extract(shards: Path, rows: list[ClipPlace], **changes: object) -> list[Extracted | Rejected]:
    settings = {
        "root": str(shards),
        "backbone": BUILT_IN,
        "checkpoint": "",
        "frames": 3,
        "crop": CROP,
        "width": 448,
        "nuisance": None,
        "ranges": our_ranges(),
        "seed": 0,
    }
    return extract_features(rows, **{**settings, **changes})  # type: ignore[arg-type]


def test_the_built_in_backbone_sees_colours_and_edges() -> None:
    flat = np.full((3, 32, 32), 51, np.uint8)
    vector = describe([flat, flat])
    assert vector.shape == (448,)
    cells = vector[:224].reshape(16, 14)
    np.testing.assert_allclose(cells[:, :3], 0.2)
    np.testing.assert_allclose(cells[:, 3:], 0, atol=1e-12)
    np.testing.assert_allclose(vector[224:], 0, atol=1e-12)  # nothing changes over time
    other = describe([flat, flat + np.uint8(51)])
    np.testing.assert_allclose(other[:224].reshape(16, 14)[:, :3], 0.3, rtol=1e-6)
    np.testing.assert_allclose(other[224:].reshape(16, 14)[:, :3], 0.1, rtol=1e-6)
    ramp = np.broadcast_to(np.arange(0, 64, 2, dtype=np.uint8), (3, 32, 32))  # grows to the right
    edges = describe([np.ascontiguousarray(ramp)])[:224].reshape(16, 14)[:, 6:]
    assert (edges[:, 4] > 0.007).all()  # direction 0 degrees is the fifth of eight
    np.testing.assert_allclose(np.delete(edges, 4, axis=1), 0)


def test_a_clip_seen_otherwise_is_the_backbone_on_transformed_frames(shards: Path) -> None:
    row = place(shards, "v_one")
    plain = one(extract(shards, [row]))
    assert (plain.transform, plain.transform_parameters) == ("none", "{}")
    pixels = np.stack([np.asarray(Image.open(io.BytesIO(png(100 + n)))) for n in (1, 3, 5)])
    np.testing.assert_array_equal(plain.feature, describe([prepare(frame, CROP) for frame in pixels]))
    seen = one(extract(shards, [row], nuisance=Nuisance(("rotation",), 1.0)))
    assert seen.transform == "rotation"
    assert "angle_deg" in json.loads(seen.transform_parameters)
    turned = transform_frames(pixels, "rotation", 0, "v_one")
    np.testing.assert_array_equal(seen.feature, describe([prepare(frame, CROP) for frame in turned]))
    # Only the roles and increments named, and the share of them.
    for other in (place(shards, "v_one", "train"), place(shards, "v_one", "test", 0)):
        nuisance = Nuisance(("colour_invert",), 1.0, ("test",), 1)
        assert one(extract(shards, [other], nuisance=nuisance)).transform == "none"
    many = [ClipPlace(f"{n}", "test", 1, row.clip_sample, row.clip_shard, row.clip_offset, row.clip_size) for n in range(200)]
    found = extract(shards, many, nuisance=Nuisance(("colour_invert", "vertical_flip"), 0.5))
    kinds = [row.transform for row in found if isinstance(row, Extracted)]
    assert set(kinds) == {"none", "colour_invert", "vertical_flip"}
    assert 70 < kinds.count("none") < 130


def test_weights_from_files(shards: Path, tmp_path: Path) -> None:
    from benchwright.curation.encoders.torchvision_compat import ensure_torchvision

    ensure_torchvision()
    from torchvision import models

    torch.manual_seed(0)
    model = models.resnet18(weights=None).eval()
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    script = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten())
    torch.jit.script(script).save(str(tmp_path / "script.pt"))
    row = place(shards, "v_four")
    by_name = Backbone("state_dict", model="resnet18")
    found = one(extract(shards, [row], backbone=by_name, checkpoint=str(tmp_path / "weights.pt"), width=512))
    model.fc = torch.nn.Identity()
    frames = [prepare(png(400 + n), CROP) for n in (1, 4, 7)]
    with torch.inference_mode():
        expected = model(normalise(frames, by_name.mean, by_name.std)).mean(0).numpy()
    np.testing.assert_allclose(found.feature, expected, rtol=1e-4, atol=1e-5)
    bare = Backbone("torchscript", run_code_from_weights=True, mean=(0, 0, 0), std=(1, 1, 1))
    found = one(extract(shards, [row], backbone=bare, checkpoint=str(tmp_path / "script.pt"), width=12))
    whole = np.stack(frames).astype(np.float64).mean(0).reshape(3, 2, 16, 2, 16).mean((2, 4)).ravel() / 255
    np.testing.assert_allclose(found.feature, whole, rtol=1e-5)
    pool = torch.nn.Sequential(torch.nn.AdaptiveAvgPool3d((3, 1, 1)), torch.nn.Flatten())
    torch.jit.script(pool).save(str(tmp_path / "clip.pt"))
    of_clips = Backbone("torchscript", "", "fc", "clips", (0, 0, 0), (1, 1, 1), run_code_from_weights=True)
    found = one(extract(shards, [row], backbone=of_clips, checkpoint=str(tmp_path / "clip.pt"), width=9))
    np.testing.assert_allclose(found.feature, np.stack(frames).mean((2, 3)).T.ravel() / 255, rtol=1e-5)


class Evil:
    def __reduce__(self):
        return (print, ("this ran",))


def test_bad_weights_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"fc.weight": torch.ones(2)}, tmp_path / "other.pt")
    torch.save(Evil(), tmp_path / "evil.pt")
    (tmp_path / "text.pt").write_text("no weights")
    resnet = Backbone("state_dict", model="resnet18")
    for backbone, file, says in [
        (resnet, "other.pt", "has no weights of resnet18"),
        (resnet, "evil.pt", "has no weights of resnet18"),
        (resnet, "text.pt", "has no weights of resnet18"),
        (Backbone("state_dict", model="resnet0"), "other.pt", "torchvision has no such model"),
        (Backbone("state_dict", model="resnet18", head="top"), "other.pt", "no such layer"),
        (Backbone("torchscript", run_code_from_weights=True), "text.pt", "not a TorchScript"),
        (Backbone("torchscript", run_code_from_weights=True), "evil.pt", "not a TorchScript"),
        (Backbone("guess"), "text.pt", "built_in, torchscript or state_dict"),  # type: ignore[arg-type]
    ]:
        with pytest.raises(ValueError, match=says) as told:
            load_backbone(backbone, checkpoint=str(tmp_path / file))
        assert "\n" not in str(told.value)
    with pytest.raises(FileNotFoundError, match="no such file"):
        load_backbone(resnet, checkpoint=str(tmp_path / "gone.pt"))
    assert "this ran" not in capsys.readouterr().out


class WritesAFile(torch.nn.Module):
    """TorchScript maps a file of any name into memory, and writes it."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mapped = torch.from_file(self.path, True, 448, dtype=torch.float32)
        mapped.fill_(1.0)
        return mapped[None]


def test_torchscript_is_a_program_and_runs_only_where_the_settings_say_so(
    shards: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "written.bin"
    torch.jit.script(WritesAFile(str(written))).save(str(tmp_path / "model.pt"))
    backbone = '{kind = "torchscript"}'
    features = (
        f'features={{kind = "extracted", root = "{shards}", backbone = %s, width = 448, frames = 1, resize_px = 16, '
        f'side_px = 16, checkpoint = "{tmp_path / "model.pt"}"}}'
    )
    run_it = ["run", "kowl", "--config", "tiny", "--out", str(tmp_path / "out"), "-q", "--set"]
    assert cli.call([*run_it, features % backbone]) == 2
    told = capfd.readouterr().err
    assert told.count("\n") == 1
    assert "run_code_from_weights = true" in told
    assert not written.exists()
    row = place(shards, "v_four")
    with pytest.raises(ValueError, match="run_code_from_weights = true"):
        extract(shards, [row], backbone=Backbone("torchscript"), checkpoint=str(tmp_path / "model.pt"), width=448)
    assert not written.exists()
    trusted = Backbone("torchscript", run_code_from_weights=True)
    extract(shards, [row], backbone=trusted, checkpoint=str(tmp_path / "model.pt"), width=448)
    assert written.exists()  # what the setting warns of


@pytest.mark.parametrize("kind", ["state_dict", "torchscript"])
def test_files_of_torch_export_are_not_loaded(kind: str, tmp_path: Path) -> None:
    made = torch.export.export(torch.nn.Linear(2, 2), (torch.zeros(1, 2),))
    torch.export.save(made, tmp_path / "model.pt2")
    backbone = Backbone(kind, model="resnet18", run_code_from_weights=True)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"model\.pt2 (is not a TorchScript model|has no weights of resnet18)") as told:
        load_backbone(backbone, checkpoint=str(tmp_path / "model.pt2"))
    assert "\n" not in str(told.value)


def test_weights_in_safetensors(tmp_path: Path) -> None:
    from safetensors.torch import save_file
    from torchvision import models

    torch.manual_seed(0)
    state = models.resnet18(weights=None).state_dict()
    save_file(state, tmp_path / "weights.safetensors")
    torch.save(state, tmp_path / "weights.pt")
    resnet, frames = Backbone("state_dict", model="resnet18"), [prepare(png(400), CROP)]
    mine, theirs = (load_backbone(resnet, checkpoint=str(tmp_path / f"weights.{ext}"))(frames) for ext in ("safetensors", "pt"))
    np.testing.assert_array_equal(mine, theirs)
    whole = (tmp_path / "weights.safetensors").read_bytes()
    for broken in (whole[:1000], b"", whole[:8] + b"\xff" * 100 + whole[108:]):
        (tmp_path / "weights.safetensors").write_bytes(broken)
        with pytest.raises(ValueError, match="has no weights of resnet18") as told:
            load_backbone(resnet, checkpoint=str(tmp_path / "weights.safetensors"))
        assert "\n" not in str(told.value)


class Room:
    def __reduce__(self) -> Any:
        return bytearray, (1 << 28,)


@pytest.mark.parametrize("odd", ["bytearray", "packed", "longer"])
def test_torch_files_of_weights_are_checked_as_those_of_features_are(odd: str, tmp_path: Path) -> None:
    """They were given to torch unchecked: it unpacks members, and makes as much room as a pickle asks for."""
    path = tmp_path / "weights.pt"
    state = torchvision_models().squeezenet1_1(weights=None).state_dict()
    torch.save(state, path)
    load_backbone(SQUEEZENET, checkpoint=str(path))
    if odd == "bytearray":
        torch.save({**state, "room": Room()}, path)
    elif odd == "packed":
        with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
            for name in old.namelist():
                new.writestr(name, old.read(name))
    else:
        path.write_bytes(path.read_bytes() + b"behind")
    told = {"bytearray": "it names bytearray", "packed": "is packed", "longer": "continues after the end of its zip"}[odd]
    with pytest.raises(ValueError, match=rf"weights\.pt has no weights of squeezenet1_1: it.*{told}"):
        load_backbone(SQUEEZENET, checkpoint=str(path))


def test_the_version_in_a_file_of_weights_is_kept(tmp_path: Path) -> None:
    """MNASNet does not load without it."""
    torch.save(torchvision_models().mnasnet0_5(weights=None).state_dict(), tmp_path / "weights.pt")
    load_backbone(Backbone("state_dict", model="mnasnet0_5", head="classifier.1"), checkpoint=str(tmp_path / "weights.pt"))


def test_safetensors_that_are_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "MAX_BYTES", 99)
    (tmp_path / "weights.safetensors").write_bytes(bytes(100))
    with pytest.raises(ValueError, match=r"weights\.safetensors: 100 bytes: at most 99 are read"):
        checkpoints.read_checkpoint(str(tmp_path / "weights.safetensors"))


@pytest.mark.parametrize("seed", range(30))
def test_damaged_torch_files_are_one_line(seed: int, tmp_path: Path) -> None:
    """Bytes changed and ends cut off: whatever torch raises, it is told in one line with the file."""
    torch.save(torch.nn.Linear(4, 3).state_dict(), tmp_path / "weights.pt")
    data = bytearray((tmp_path / "weights.pt").read_bytes())
    draw = np.random.default_rng(seed)
    for at in draw.integers(0, len(data), 40):
        data[at] ^= int(draw.integers(1, 256))
    (tmp_path / "weights.pt").write_bytes(data[: int(draw.integers(0, 2 * len(data)))])
    with pytest.raises(ValueError, match=r"weights\.pt has no weights of squeezenet1_1"):
        load_backbone(SQUEEZENET, checkpoint=str(tmp_path / "weights.pt"))


def test_broken_and_odd_clips(tmp_path: Path) -> None:
    sizes = {"0000.png": png(1), "0001.png": png(2, 30, 30)}
    write_shard_file(tmp_path / "s.tar", [("bad", {"0000.jpg": b"\xff\xd8\xff no picture"}), ("odd", sizes)])
    found = extract(tmp_path, [place(tmp_path, "bad"), place(tmp_path, "odd")], frames=2)
    assert [row.reason for row in found if isinstance(row, Rejected)][1] == "frame_sizes"
    assert all(isinstance(row, Rejected) for row in found)
    write_shard_file(tmp_path / "s.tar", [("good", clip(1, 2))])
    with pytest.raises(ValueError, match=r"returned \(448,\), expected finite numbers \(7,\)"):
        extract(tmp_path, [place(tmp_path, "good")], width=7)


def test_the_whole_way_through_the_engine_on_any_scheduler(shards: Path, tmp_path: Path) -> None:
    root = where(str(shards))
    clips = source(
        "frames",
        step(read_clips, root=root, uid_pattern="v_([a-z]+)"),
        pieces=step(shards_below, root=root),
        gives=FrameClip,
        max_rejects=None,
    )
    wanted = source("wanted", step(listed), gives=Wanted)
    attach = step(attach_clips, clips=rows_of("frames"))
    kept = join(clips, wanted).whole("with_frames", attach, gives=WithFrames, max_rejects=None)
    made = run(kept, str(tmp_path / "out"), scheduler="sync")
    assert made.rows().table(["key"])["key"].to_pylist() == ["two", "four"]
    assert {a.stage: a.rejects for a in made.artifacts}["with_frames"] == {"no_frames": 1, "several_clips": 1}
    again = run(kept, str(tmp_path / "again"), scheduler="threads", workers=2)
    assert again.result.digest == made.result.digest


@pytest.mark.usefixtures("blank_figures")
def test_kowl_from_frames_to_measures_by_transform(finished: Callable[[str], Path], tmp_path: Path) -> None:
    """The tiny lists with frames: features are extracted, test clips transformed, and results told apart by transform."""
    rows = DatasetIndex.open(finished("kowl") / "dataset").table.select(["key", "label_recent_first"]).to_pylist()
    names = sorted({row["label_recent_first"] for row in rows})
    folder = tmp_path / "frames"
    folder.mkdir()
    samples = []
    for n, row in enumerate(rows[::4]):  # the others have no frames
        shade = np.random.default_rng(names.index(row["label_recent_first"])).integers(0, 256, (4, 4, 3))
        noisy = np.clip(shade + np.random.default_rng(n).normal(size=(4, 4, 3)) * 8, 0, 255).astype(np.uint8)
        memory = io.BytesIO()
        Image.fromarray(noisy).resize((16, 16), Image.Resampling.NEAREST).save(memory, "PNG")
        samples.append((row["key"], {"0000.png": memory.getvalue(), "json": {"key": row["key"]}}))
    write_shard_file(folder / "frames-0.tar", samples[:150])
    write_shard_file(folder / "frames-1.tar", samples[150:])
    features = (
        f'features={{kind = "extracted", root = "{folder}", backbone = {{kind = "built_in"}}, width = 448, frames = 1, '
        'resize_px = 16, side_px = 16, transforms = {kinds = ["colour_invert"], share = 0.5, from_increment = 1}, '
        'nuisances = ["rotation"]}'
    )
    out = str(tmp_path / "run")
    half = f'feature_sets.half={{kind = "extracted", root = "{folder}", backbone = {{kind = "built_in"}}, width = 448, '
    half += "frames = 1, resize_px = 8, side_px = 8"
    words = ["run", "kowl", "--config", "tiny", "--set", features, *SHORT, "--out", out, "--quiet", "--set"]
    assert cli.call([*words, f'{half}, uid_pattern = ".*"}}']) == 2  # of other shards, so to speak
    assert cli.call([*words, f"{half}}}"]) == 0
    vectors = [load_artifact(Store(out), stage) for stage in ("extracted", "vectors_half")]
    assert [artifact and artifact.rows for artifact in vectors] == [len(samples)] * 2
    table = DatasetIndex.open(f"{out}/dataset").table
    assert table.num_rows == len(samples)
    told = {(row["role"], row["increment"] > 0, row["transform"]) for row in table.to_pylist()}
    assert ("test", True, "colour_invert") in told
    assert ("train", True, "colour_invert") not in told
    assert ("test", False, "colour_invert") not in told
    assert cli.call(["train", out, "--method", "ann", "--protocol", "1", "--quiet"]) == 0
    last = {
        row["stratum"]: (row["n"], row["value"])
        for row in tidy(results(out)).to_pylist()
        if row["stratification"] == "transform"
        and row["split"] == "test_set"
        and row["predictor"] == "ann, model = features"
        and row["phase"] == "post"
        and row["from_start"]
        and row["measure"] == "top1_accuracy"
        and row["increment"] == 5
    }
    role = np.asarray(table["role"].to_pylist())
    transform = np.asarray(table["transform"].to_pylist())
    increment = table["increment"].to_numpy()
    tested = (role == "test") | ((role == "val") & (increment > 0))  # thresholds are set on validation rows of the first
    assert {name: n for name, (n, _) in last.items()} == {
        name: int((tested & (transform == name)).sum()) for name in ("none", "colour_invert")
    }
    assert last["none"][1] > last["colour_invert"][1] + 0.2  # what is inverted is not recognised
    todo = api.job_of(out)
    page = Path(kowl.BENCHMARK.report(todo.config, out)).read_text()
    assert ">Visual transforms<" in page
    assert ">Content of the clips<" not in page
    assert "built-in backbone" in page
    # The whole set was seen through the transform apart from the stream.
    stages = {stage["name"]: stage["rows"] for stage in api.show(out)["stages"]}
    assert stages["vectors_rotation"] == table.num_rows
    assert ">Robustness to nuisances<" in page
    assert ">Transformed clips<" in page
    assert re.search(r"ann, model = features: [a-z ]+, (right|wrong)", page)
