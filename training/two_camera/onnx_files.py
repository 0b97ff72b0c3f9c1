"""A network as an ONNX file, for programs without torch: features (n, 9) float32 in, ratios R/G and B/G (n, 2) out."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ..models.illuminant_net import RATIOS, WIDTH, IlluminantNets

_OPSET = 17
_IR_VERSION = 8  # what runtimes of 2022 and later read


def to_onnx(nets: IlluminantNets, run: int) -> bytes:
    """One run of the stack; the same network gives the same bytes.

    Input ``transform``: (n, 9) float32, the 3 x 3 transform row by row. Output ``ratios``: (n, 2) float32, R/G and B/G.
    """
    nodes: list[Any] = []
    constants: list[Any] = []
    name = "transform"
    layers = [(weight[run].detach(), bias[run, 0].detach()) for weight, bias in nets.layers()]
    for at, (weight, bias) in enumerate(layers):
        constants += [
            numpy_helper.from_array(np.ascontiguousarray(weight.numpy()), f"weight_{at}"),
            numpy_helper.from_array(np.ascontiguousarray(bias.numpy()), f"bias_{at}"),
        ]
        last = at == len(layers) - 1
        nodes.append(helper.make_node("Gemm", [name, f"weight_{at}", f"bias_{at}"], [f"sum_{at}"], name=f"dense_{at}"))
        name = "ratios" if last else f"hidden_{at}"
        nodes.append(helper.make_node("Exp" if last else "Relu", [f"sum_{at}"], [name], name=f"activation_{at}"))
    graph = helper.make_graph(
        nodes,
        "illuminant",
        [helper.make_tensor_value_info("transform", TensorProto.FLOAT, ["n", WIDTH])],
        [helper.make_tensor_value_info("ratios", TensorProto.FLOAT, ["n", RATIOS])],
        constants,
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION, producer_name="benchwright"
    )
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString(deterministic=True)
