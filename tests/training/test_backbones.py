"""Networks of torchvision and timm by name: their start, weights from files, and what is refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from benchwright.datasets.features.headless import headless
from benchwright.training.models.backbone import backbone, backbone_net, hub_weights
from torch import nn

SMALL = (3, 32, 32)
NAMES = ["torchvision/resnet18", "torchvision/mobilenet_v3_small", "timm/resnet10t", "timm/mobilenetv3_small_050"]


def made(name: str, seed: int = 0, weights: Path | None = None) -> nn.Module:
    return backbone(name, torch.Generator().manual_seed(seed), weights, sample=SMALL)[0]


def same(one: nn.Module, other: nn.Module) -> list[bool]:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return [torch.equal(a, b) for a, b in pairs]


@pytest.mark.parametrize("name", NAMES)
def test_weights_and_passes_come_from_the_generator_alone(name: str) -> None:
    before = torch.get_rng_state()
    one, again, another = made(name), made(name), made(name, seed=1)
    assert all(same(one, again))
    assert not all(same(one, another))
    x = torch.rand(4, *SMALL, generator=torch.Generator().manual_seed(0))
    assert torch.equal(one.train()(x), again.train()(x)), "dropout and stochastic depth are off"
    assert torch.equal(before, torch.get_rng_state())


def test_torchvisions_resnet18_is_drawn_as_torchvision_draws_it() -> None:
    weight = made("torchvision/resnet18").state_dict()["layer4.1.conv2.weight"]
    assert float(weight.std()) == pytest.approx((2 / (512 * 9)) ** 0.5, rel=0.02)  # He's normal by fan-out


@pytest.mark.parametrize("form", ["safetensors", "plain", "state_dict", "module"])
def test_weights_from_a_file(tmp_path: Path, form: str) -> None:
    name = "torchvision/resnet18"
    source = made(name, seed=5)
    held: dict[str, Any] = {**source.state_dict(), "fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}
    path = tmp_path / ("weights.safetensors" if form == "safetensors" else "weights.pt")
    if form == "safetensors":
        safetensors.torch.save_file(held, path)
    elif form == "module":
        torch.save({"state_dict": {f"module.{key}": value for key, value in held.items()}}, path)
    else:
        torch.save({"state_dict": held, "epoch": 3} if form == "state_dict" else held, path)
    assert all(same(source, made(name, weights=path)))


def test_files_that_hold_something_else(tmp_path: Path) -> None:
    other, code, cut = tmp_path / "other.pt", tmp_path / "code.pt", tmp_path / "cut.safetensors"
    torch.save({"fc1.weight": torch.zeros(2)}, other)
    code.write_bytes(pickle.dumps({"a": Path}))
    cut.write_bytes(b"\x08\0\0\0\0\0\0\0{}")
    for path in (other, code, cut):
        with pytest.raises(ValueError, match="does not contain the weights of torchvision/resnet18") as told:
            made("torchvision/resnet18", weights=path)
        assert "\n" not in str(told.value)
    with pytest.raises(ValueError, match="No such file"):
        made("torchvision/resnet18", weights=tmp_path / "none.pt")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"name": "resnet18"}, "write it as torchvision/resnet50"),
        ({"name": "torchvision/resnet19"}, "torchvision has no network 'resnet19' for images; did you mean 'resnet1"),
        ({"name": "torchvision/fcn_resnet50"}, "torchvision has no network 'fcn_resnet50' for images"),
        ({"name": "timm/none"}, "timm has no network 'none' for images"),
        ({"name": "torchvision/squeezenet1_0"}, "no last linear layer"),
        ({"name": "timm/vit_tiny_patch16_224"}, r"does not take pictures of shape \(3, 32, 32\)"),
        ({"name": "timm/resnet10t", "head": "round"}, "head 'round': there are linear, cosine_kept, cosine_reset"),
    ],
)
def test_networks_that_there_are_not(settings: dict[str, str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        backbone_net(torch.Generator(), sample=SMALL, **settings)


def test_vectors_are_refused() -> None:
    with pytest.raises(ValueError, match=r"takes pictures, .* or clips"):
        backbone_net(torch.Generator(), sample=(8,), name="timm/resnet10t")


@pytest.mark.parametrize(
    ("name", "embedded"), [("torchvision/r3d_18", (2, 512)), ("timm/resnet10t", (2, 4, 512))], ids=["whole clips", "each frame"]
)
def test_clips_are_seen_whole_or_frame_by_frame(name: str, embedded: tuple[int, ...]) -> None:
    net = backbone_net(torch.Generator().manual_seed(0), sample=(4, *SMALL), name=name, dropout=0.5).eval()
    net.grow(3, torch.Generator().manual_seed(1))
    clips = torch.rand(2, 4, *SMALL, generator=torch.Generator().manual_seed(2))
    assert net.embed(clips).shape == embedded
    assert net(clips).shape == (2, 3)
    moved = torch.allclose(net(clips), net(clips.flip(1)), atol=1e-5)
    assert moved == (len(embedded) == 3), "the order of frames matters to networks that see them together"
    with pytest.raises(ValueError, match="torchvision has no network 'r3d_18' for images"):
        backbone_net(torch.Generator(), sample=SMALL, name="torchvision/r3d_18")


@pytest.mark.parametrize(("name", "width"), [("r2plus1d_18", 512), ("swin3d_t", 768)])
def test_networks_for_clips_take_clips_of_any_shape(name: str, width: int) -> None:
    net = backbone_net(torch.Generator().manual_seed(0), sample=(4, *SMALL), name=f"torchvision/{name}").eval()
    clips = torch.rand(2, 4, *SMALL, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        embedded = net.embed(clips)
    assert embedded.shape == (2, width)
    assert not torch.allclose(embedded[0], embedded[1])


def test_networks_that_take_clips_of_one_shape_say_so() -> None:
    with pytest.raises(ValueError, match=r"takes only clips of shape \(16, 3, 224, 224\), but these are \(4, 3, 32, 32\)"):
        backbone_net(torch.Generator(), sample=(4, *SMALL), name="torchvision/mvit_v2_s")
    with pytest.raises(ValueError, match="torchvision/s3d has no last linear layer, and so no features"):
        backbone_net(torch.Generator(), sample=(4, *SMALL), name="torchvision/s3d")
    with torch.device("meta"):  # shapes alone: the numbers take seconds
        network, left_out = headless("torchvision", "mvit_v2_s", clips=True)
        assert network(torch.zeros(2, 3, 16, 224, 224)).shape == (2, 768)
    assert left_out == ("head.1",)


def test_a_hub_is_asked_for_by_name_and_tells_what_there_is() -> None:
    with pytest.raises(ValueError, match="has no weights 'none': there are IMAGENET1K_V1, DEFAULT: name one, or give"):
        hub_weights("torchvision/resnet18", "none")
    with pytest.raises(ValueError, match=r"timm/resnet18 has no weights 'none': there are a1_in1k"):
        hub_weights("timm/resnet18", "none")


def test_a_hub_that_cannot_be_reached_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    with pytest.raises(
        ValueError, match=r"^the weights by default of torchvision/resnet18 cannot be downloaded: .*: give a file$"
    ):
        hub_weights("torchvision/resnet18")


def test_weights_of_moco_begin_a_training(tmp_path: Path) -> None:
    """In the form in which they are released, and in which our own pre-training leaves them."""
    network, _ = backbone("torchvision/resnet18", torch.Generator().manual_seed(3))
    held = {f"module.encoder_q.{name}": value for name, value in network.state_dict().items()}
    held |= {"module.encoder_q.fc.0.weight": torch.zeros(8, 512), "module.queue": torch.zeros(8, 16)}
    torch.save({"epoch": 3, "arch": "resnet18", "state_dict": held}, tmp_path / "moco.pth.tar")
    found, width = backbone("torchvision/resnet18", torch.Generator().manual_seed(4), tmp_path / "moco.pth.tar")
    assert width == 512
    for name, value in network.state_dict().items():
        assert torch.equal(found.state_dict()[name], value), name
