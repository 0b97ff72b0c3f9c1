"""Networks by weights from files: every form in which they are released gives what torchvision's own forward pass gives."""

from __future__ import annotations

import functools
import io
import pickle
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import torch
from benchwright.curation.encoders.loading import load_encoder
from benchwright.curation.encoders.preprocess import cut_centre, scaled
from benchwright.curation.encoders.torchvision_compat import ensure_torchvision
from benchwright.curation.rows import Blob
from benchwright.curation.stages.embed import Pictured
from benchwright.datasets.features import backbones, networks
from benchwright.datasets.features.backbones import Backbone
from benchwright.datasets.features.feature_sets import Featured, extract_images, extract_images_half
from benchwright.datasets.features.networks import Network, NetworkEncoder, network
from PIL import Image
from safetensors.torch import save, save_file

State = dict[str, torch.Tensor]


def torchvision_model(name: str, seed: int = 0) -> Any:
    """A network of torchvision with drawn weights, and batch norms that are not just drawn."""
    ensure_torchvision()
    from torchvision import models

    torch.manual_seed(seed)
    model = models.get_model(name, weights=None)
    for layer in model.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(layer.running_mean, -0.1, 0.1)
            torch.nn.init.uniform_(layer.running_var, 0.5, 1.5)
            torch.nn.init.uniform_(layer.weight, 0.5, 1)
    return model.eval()


@pytest.fixture(scope="module")
def resnet18() -> Any:
    return torchvision_model("resnet18")


def pixels(count: int, side: int = 64) -> list[np.ndarray]:
    return list(np.random.default_rng(1).integers(0, 256, (count, 3, side, side), dtype=np.uint8))


def plain_features(model: Any, prepared: list[np.ndarray]) -> np.ndarray:
    """What a user would write: the pooled output before the last layer."""
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    given = (torch.from_numpy(np.stack(prepared)) / 255 - mean[:, None, None]) / std[:, None, None]
    with torch.no_grad():
        return torch.nn.Sequential(*list(model.children())[:-1])(given).flatten(1).numpy()


def below(prefix: str, state: Mapping[str, torch.Tensor], *, head: bool = True) -> State:
    return {f"{prefix}{name}": value for name, value in state.items() if head or not name.startswith("fc.")}


def moco(model: Any) -> Any:
    """``main_moco.py`` of MoCo v2: both encoders with their projection heads, the queue and the optimiser."""
    state, other = model.state_dict(), torchvision_model("resnet18", 5).state_dict()
    projection = {"fc.0.weight": torch.zeros(512, 512), "fc.0.bias": torch.zeros(512), "fc.2.weight": torch.zeros(128, 512)}
    held = {**below("module.encoder_q.", state, head=False), **below("module.encoder_q.", projection)}
    held |= {**below("module.encoder_k.", other, head=False), **below("module.encoder_k.", projection)}
    held |= {"module.queue": torch.zeros(128, 64), "module.queue_ptr": torch.zeros(1, dtype=torch.long)}
    return {
        "epoch": 200,
        "arch": "resnet18",
        "state_dict": held,
        "optimizer": {"state": {0: {"momentum_buffer": torch.ones(3)}}},
    }


def numbered(model: Any) -> Any:
    """Lightly's: the backbone is a ``Sequential`` of the network's layers, so they are numbers."""
    backbone = torch.nn.Sequential(*list(model.children())[:-1]).state_dict()
    later = {name: value + 1 for name, value in backbone.items()}
    head = {"projection_head.layers.0.weight": torch.zeros(4, 4)}
    return {
        "state_dict": {**below("backbone.", backbone), **below("backbone_momentum.", later), **head},
        "hyper_parameters": {},
    }


def open_self_sup(model: Any) -> Any:
    """OpenSelfSup trains BYOL with one backbone under two names, and releases it alone."""
    state = below("", model.state_dict(), head=False)
    target = below("target_net.0.", torchvision_model("resnet18", 5).state_dict(), head=False)
    return {"state_dict": {**below("online_net.0.", state), **below("backbone.", state), **target}, "meta": {"epoch": 200}}


FORMS: dict[str, Callable[[Any], Any]] = {
    "torchvision": lambda model: model.state_dict(),
    "torchvision before 2018": lambda model: {k: v for k, v in model.state_dict().items() if "num_batches" not in k},
    "moco": moco,
    "byol, online_backbone": lambda model: {
        "online_backbone": below("module.", model.state_dict(), head=False),
        "target_backbone": below("module.", torchvision_model("resnet18", 5).state_dict(), head=False),
    },
    "byol, online_network": lambda model: {
        **below("online_network.encoder.", model.state_dict(), head=False),
        **below("target_network.encoder.", torchvision_model("resnet18", 5).state_dict(), head=False),
        "online_network.projection.net.0.weight": torch.zeros(4, 4),
    },
    "openselfsup, training": open_self_sup,
    "openselfsup, released": lambda model: {
        "state_dict": below("", model.state_dict(), head=False),
        "author": "OpenSelfSup",
    },
    "lightly": numbered,
    "dino": lambda model: {
        "student": below("module.backbone.", torchvision_model("resnet18", 5).state_dict(), head=False),
        "teacher": below("backbone.", model.state_dict(), head=False),
    },
    "vissl": lambda model: {
        "classy_state_dict": {"base_model": {"model": {"trunk": below("_feature_blocks.", model.state_dict(), head=False)}}}
    },
    "a supervised one, wrapped": lambda model: {"model": below("module.", model.state_dict()), "epoch": 3},
}


def load(path: Path | str, **settings: Any) -> NetworkEncoder:
    return network(checkpoint=str(path), device="cpu", **{"model": "resnet18", "resize_px": 64, "side_px": 64, **settings})


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_what_torchvision_gives(tmp_path: Path, resnet18: Any, form: str) -> None:
    torch.save(FORMS[form](resnet18), tmp_path / "weights.pth.tar")
    found = load(tmp_path / "weights.pth.tar").encode_prepared(pixels(3))
    np.testing.assert_allclose(found, plain_features(resnet18, pixels(3)), rtol=1e-5, atol=1e-6)


def test_old_torch_files_and_safetensors_are_read(tmp_path: Path, resnet18: Any) -> None:
    torch.save(moco(resnet18), tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    save_file(below("module.encoder_q.", resnet18.state_dict(), head=False), tmp_path / "new.safetensors")
    wanted = plain_features(resnet18, pixels(2))
    for name in ("old.pth", "new.safetensors"):
        np.testing.assert_allclose(load(tmp_path / name).encode_prepared(pixels(2)), wanted, rtol=1e-5, atol=1e-6)


def test_weights_may_lie_at_a_url(resnet18: Any) -> None:
    for name in ("moco.pth", "bare.safetensors"):
        url = f"memory://feature-networks/{name}"
        with fsspec.open(url, "wb") as stream:
            if name.endswith("pth"):
                torch.save(moco(resnet18), stream)
            else:
                stream.write(save(dict(resnet18.state_dict())))
        found = load(url).encode_prepared(pixels(1))
        np.testing.assert_allclose(found, plain_features(resnet18, pixels(1)), rtol=1e-5, atol=1e-6)


def test_the_papers_network_is_resnet50_and_the_network_that_trails_can_be_asked_for(tmp_path: Path) -> None:
    model = torchvision_model("resnet50")
    torch.save({"state_dict": below("module.encoder_q.", model.state_dict(), head=False)}, tmp_path / "r50.pth")
    found = network(checkpoint=str(tmp_path / "r50.pth"), device="cpu").encode_prepared(pixels(1, 224))
    assert found.shape == (1, 2048)
    np.testing.assert_allclose(found, plain_features(model, pixels(1, 224)), rtol=1e-4, atol=1e-5)


def test_a_prefix_says_which_of_several_networks(tmp_path: Path, resnet18: Any) -> None:
    other = torchvision_model("resnet18", 5)
    torch.save({**below("left.", resnet18.state_dict()), **below("right.", other.state_dict())}, tmp_path / "two.pth")
    with pytest.raises(
        ValueError, match=r"two\.pth: resnet18 is in it below 'left\.', 'right\.': select one with encoder\.prefix"
    ):
        load(tmp_path / "two.pth")
    for prefix in ("right", "right."):
        found = load(tmp_path / "two.pth", prefix=prefix).encode_prepared(pixels(1))
        np.testing.assert_allclose(found, plain_features(other, pixels(1)), rtol=1e-5, atol=1e-6)
    torch.save(moco(resnet18), tmp_path / "moco.pth")
    trailing = load(tmp_path / "moco.pth", prefix="state_dict.module.encoder_k").encode_prepared(pixels(1))
    np.testing.assert_allclose(trailing, plain_features(other, pixels(1)), rtol=1e-5, atol=1e-6)


def test_timm_networks_are_read(tmp_path: Path) -> None:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model = timm.create_model("convnext_atto").eval()
    torch.save({"state_dict": model.state_dict()}, tmp_path / "timm.pth")
    encoder = load(tmp_path / "timm.pth", model="timm/convnext_atto", mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    with torch.no_grad():
        given = torch.from_numpy(np.stack(pixels(2))) / 255
        wanted = model.forward_head(model.forward_features(given), pre_logits=True).numpy()
    np.testing.assert_allclose(encoder.encode_prepared(pixels(2)), wanted, rtol=1e-4, atol=1e-5)
    assert encoder.width == wanted.shape[1]


class Program:
    """What runs something when it is unpickled."""

    def __reduce__(self) -> Any:
        return print, ("run",)


def without(state: State, name: str) -> State:
    return {key: value for key, value in state.items() if key != name}


DAMAGED: dict[str, tuple[Callable[[State], Any], dict[str, Any], str]] = {
    "a weight is missing": (
        lambda s: {"state_dict": below("module.encoder_q.", without(s, "layer3.1.conv2.weight"))},
        {},
        r"resnet18 is incomplete in it: 1 of 100 weights below 'state_dict\.module\.encoder_q\.' are missing, such as "
        r"state_dict\.module\.encoder_q\.layer3\.1\.conv2\.weight: give another file, or change encoder\.model",
    ),
    "another network": (
        lambda s: {"blocks.0.weight": torch.ones(3), "epoch": 4},
        {},
        r"there is no resnet18 in it; it holds blocks\.0\.weight: give another file",
    ),
    "names that are none": (lambda s: dict.fromkeys(["a\nb", "c" * 9999], torch.ones(1)), {}, r"holds a b, c{120}\.\.\.: "),
    "a deeper network": (lambda s: s, {"model": "resnet34"}, "resnet34 is incomplete in it: 80 of 180 weights are missing"),
    "a wider one": (
        lambda s: {**s, "conv1.weight": torch.zeros(128, 3, 7, 7)},
        {},
        r"conv1\.weight is of shape \(128, 3, 7, 7\), and resnet18 has \(64, 3, 7, 7\): give the file of a resnet18",
    ),
    "more layers than asked for": (
        lambda s: {**s, "layer4.2.conv1.weight": torch.zeros(1)},
        {},
        r"layer4\.2\.conv1\.weight is in it, which resnet18 does not have",
    ),
    "no tensors": (lambda s: {"epoch": 3}, {}, "no tensor in it, it is dict"),
    "a program": (lambda s: {"model": Program()}, {}, "is not a torch file of plain tensors: nothing else is loaded from it"),
    "a sparse weight": (
        lambda s: {**s, "fc2": torch.ones(1), "conv1.weight": s["conv1.weight"].to_sparse()},
        {},
        "layout torch.sparse_coo",
    ),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_what_a_file_lacks_is_told_in_one_line(
    tmp_path: Path, resnet18: Any, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make, settings, told = DAMAGED[damage]
    path = tmp_path / "weights.pth"
    torch.save(make(dict(resnet18.state_dict())), path)
    with pytest.raises(ValueError, match=told) as caught:
        load(path, **settings)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["cut.pth", "cut.safetensors", "words.pth", "words.safetensors", "byol.pkl"])
def test_files_that_are_none_are_told_in_one_line(tmp_path: Path, resnet18: Any, name: str) -> None:
    path = tmp_path / name
    if name.startswith("cut"):
        state = dict(resnet18.state_dict())
        save_file(state, path) if name.endswith("safetensors") else torch.save(state, path)
        path.write_bytes(path.read_bytes()[:-100_000])
    else:
        path.write_bytes(b"weights" * 100 if name.startswith("words") else pickle.dumps({"experiment_state": Network()}))
    with pytest.raises(ValueError, match=re.escape(str(path))) as caught:
        load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (
            "resnet181",
            "encoder.model = 'resnet181': torchvision has no network 'resnet181' for images; did you mean 'resnet18'?",
        ),
        ("fasterrcnn_resnet50_fpn", "torchvision has no network 'fasterrcnn_resnet50_fpn' for images"),
        (
            "squeezenet1_0",
            "torchvision/squeezenet1_0 has no last linear layer, and so no features: name another, such as one of timm",
        ),
        (
            "timm/resnet181",
            "encoder.model = 'timm/resnet181': timm has no network 'resnet181' for images; did you mean 'resnet18'?",
        ),
        ("hf-hub:someone/model", "give a network of torchvision, or timm/NAME; nothing is downloaded"),
    ],
)
def test_a_network_that_there_is_not_is_told(tmp_path: Path, model: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        load(tmp_path / "none.pth", model=model)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"resize": "longest"}, "'as_released' or 'as_written'"),
        ({"side_px": 99, "resize_px": 64}, "a square is cut out"),
        ({"side_px": 0}, "1 to 4096"),
        ({"block": 0}, "1 to 65536"),
        ({"std": (1.0, 0.0, 1.0)}, "above 0"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Network(**settings)


def jpeg(width: int, height: int, seed: int = 0) -> bytes:
    small = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    memory = io.BytesIO()
    Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC).save(memory, "PNG")
    return memory.getvalue()


@pytest.mark.parametrize(("width", "height"), [(300, 200), (200, 301), (99, 300), (224, 224), (100, 60)])
def test_pictures_are_scaled_and_cut_as_the_code_and_as_the_text_have_it(tmp_path: Path, width: int, height: int) -> None:
    ensure_torchvision()
    from torchvision import transforms as T

    picture = Image.open(io.BytesIO(jpeg(width, height))).convert("RGB")
    longer = max(width, height)
    sides = (224 * height // longer, 224 * width // longer)  # the paper: "resize the longer edge of the image to 224px"
    ours = [Network(), Network(resize="as_written")]
    theirs = [T.Resize(224), T.Resize(sides)]
    for spec, resize in zip(ours, theirs, strict=True):
        encoder = NetworkEncoder(spec, torch.nn.Identity(), "cpu")
        found = encoder.prepare(jpeg(width, height))
        wanted = np.asarray(T.CenterCrop(224)(resize(picture))).transpose(2, 0, 1)
        assert found.shape == wanted.shape == (3, 224, 224)
        apart = np.abs(found.astype(int) - wanted)
        assert apart.max() <= 1
        assert apart.mean() < 0.05


def test_a_square_smaller_than_the_picture_is_cut_from_its_centre() -> None:
    picture = np.zeros((40, 20, 3), np.uint8)
    picture[18:22, 8:12] = 200
    found = cut_centre(scaled(picture, 40, edge="longer"), 10)
    assert found.shape == (3, 10, 10)
    assert (found[:, 3:7, 3:7] == 200).all()
    assert found.sum() == 3 * 16 * 200


def rows(count: int) -> list[Pictured]:
    return [Pictured(f"p{n}", Blob(jpeg(90 + n, 70, n))) for n in range(count)]


def test_a_vector_depends_on_its_image_alone(tmp_path: Path, resnet18: Any) -> None:
    torch.save(resnet18.state_dict(), tmp_path / "w.pth")
    encoder = functools.partial(network, model="resnet18", resize_px=64, side_px=64, block=4)
    extract = functools.partial(extract_images, encoder=encoder, checkpoint=str(tmp_path / "w.pth"))
    whole = extract(rows(11))
    assert [row.key for row in whole] == [f"p{n}" for n in range(11)]
    for cut in (extract(rows(11), batch_size=3), extract(rows(11), batch_size=5, threads=2), extract(rows(11)[::-1])[::-1]):
        assert [row.feature.tobytes() for row in cut] == [row.feature.tobytes() for row in whole]
    assert extract(rows(11)[7:8])[0].feature.tobytes() == whole[7].feature.tobytes()
    assert np.linalg.norm(whole[0].feature) != pytest.approx(1)
    halves = extract_images_half(rows(11), encoder=encoder, checkpoint=str(tmp_path / "w.pth"))
    np.testing.assert_array_equal([row.feature for row in halves], [row.feature.astype(np.float16) for row in whole])


def test_images_without_features_and_numbers_that_are_none_stop_the_run(tmp_path: Path, resnet18: Any) -> None:
    torch.save(resnet18.state_dict(), tmp_path / "w.pth")
    encoder = functools.partial(network, model="resnet18", resize_px=64, side_px=64)
    extract = functools.partial(extract_images, encoder=encoder, checkpoint=str(tmp_path / "w.pth"))
    with pytest.raises(
        ValueError, match="image 'strip' has no features, and every image of a dataset needs them: too_elongated"
    ):
        extract([Pictured("strip", Blob(jpeg(700, 5)))])
    state = resnet18.state_dict()
    torch.save({**state, "bn1.weight": torch.full((64,), float("nan"))}, tmp_path / "nan.pth")
    with pytest.raises(ValueError, match="resnet18 returned numbers that are not finite"):
        extract_images(rows(1), encoder=encoder, checkpoint=str(tmp_path / "nan.pth"))
    torch.save({**state, "layer4.1.bn2.weight": torch.full((512,), 1e7)}, tmp_path / "large.pth")
    with pytest.raises(ValueError, match="a feature is beyond 65504, the largest float16: change stored to float32"):
        extract_images_half(rows(1), encoder=encoder, checkpoint=str(tmp_path / "large.pth"))


def test_other_weights_at_the_same_place_are_read(tmp_path: Path, resnet18: Any) -> None:
    """In one process, as in a notebook: the key of the stage has the new file's content, so the vectors must be its own."""
    path, found = tmp_path / "w.pth", list[Featured]()
    for model in (resnet18, torchvision_model("resnet18", 5)):
        torch.save(model.state_dict(), path)
        encoder = functools.partial(network, model="resnet18", resize_px=64, side_px=64)
        found += extract_images(rows(1), encoder=encoder, checkpoint=str(path))
        assert load_encoder(encoder, checkpoint=str(path)) is load_encoder(encoder, checkpoint=str(path))
    assert np.abs(found[0].feature - found[1].feature).max() > 0.01


@pytest.mark.parametrize("of", ["network", "backbone"])
def test_on_a_gpu_the_flags_are_set_only_while_it_encodes(
    of: str, resnet18: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device "cuda" that runs nothing: the network is replaced."""
    cudnn = torch.backends.cudnn
    before, found = (cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32), list[tuple[bool, ...]]()

    class Alone(torch.nn.Module):
        def to(self, *_: object, **__: object) -> Alone:
            return self

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found.append((cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32))
            return torch.ones(1, 2)

    for module in networks, backbones:
        monkeypatch.setattr(module, "normalise", lambda *_: torch.zeros(1, 3, 2, 2))
    if of == "network":
        monkeypatch.setattr(networks, "headless", lambda *_: (Alone(), ()))
        monkeypatch.setattr(networks, "load_weights", lambda *_: None)
        network(checkpoint="", device="cuda", block=1).encode_prepared(pixels(1))
    else:
        monkeypatch.setattr(backbones, "_state_dict", lambda *_: Alone())
        (tmp_path / "weights.pth").touch()
        backbone = Backbone("state_dict", model="resnet18", head="fc")
        backbones.load_backbone(backbone, checkpoint=str(tmp_path / "weights.pth"), device="cuda")(pixels(1))
    assert found == [(True, False, False)]
    assert (cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32) == before
