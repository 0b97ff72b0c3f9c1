"""Write networks and linear regression on transforms to an ONNX file.

The graph is built node by node, from few kinds of nodes: the same networks give the same bytes with any exporter of torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from ..models.illuminant_net import ACTIVATIONS, IlluminantNets
from .linear import LEAST_RATIO
from .onnx_run import INPUT, OUTPUT, Float32Array
from .shapes import INPUTS, RATIOS

_OPSET, _IR = 17, 8  # of 2022: runtimes on devices are years behind


def onnx_bytes(nets: IlluminantNets, about: Mapping[str, str]) -> bytes:
    """One file of all networks: ``transform`` (n, 9) float32 -> ``ratios`` (n, 2), R/G and B/G; several networks are averaged
    as logarithms, as in ``NetworkEstimator.averaged``. ``about`` is stored as metadata."""
    alone = nets.runs == 1
    nodes: list[onnx.NodeProto] = []
    weights: dict[str, Float32Array] = {}
    at, layers = INPUT, nets.layers()
    for number, (weight, bias) in enumerate(layers):
        for name, value in ((f"weight_{number}", weight), (f"bias_{number}", bias)):
            weights[name] = value.detach().numpy()[0] if alone else value.detach().numpy()
        nodes.append(helper.make_node("MatMul", [at, f"weight_{number}"], [f"product_{number}"]))
        nodes.append(helper.make_node("Add", [f"product_{number}", f"bias_{number}"], [f"sum_{number}"]))
        at = f"sum_{number}"
        if number + 1 < len(layers):
            nodes.append(helper.make_node(ACTIVATIONS[nets.shape.activation].onnx, [at], [f"hidden_{number}"]))
            at = f"hidden_{number}"
    if not alone:
        nodes.append(helper.make_node("ReduceMean", [at], ["mean"], axes=[0], keepdims=0))
        at = "mean"
    nodes.append(helper.make_node("Exp", [at], [OUTPUT]))
    return _file(nodes, weights, about)


def linear_onnx_bytes(weights: NDArray[np.floating[Any]], about: Mapping[str, str]) -> bytes:
    """A file with the same input and output, for the weights (10, 2) of ``linear.LinearEstimator``, constants last."""
    nodes = [
        helper.make_node("MatMul", [INPUT, "weight"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["sum"]),
        helper.make_node("Max", ["sum", "least"], [OUTPUT]),
    ]
    values = {"weight": weights[:-1], "bias": weights[-1], "least": np.asarray(LEAST_RATIO)}
    return _file(nodes, {name: value.astype(np.float32) for name, value in values.items()}, about)


def _file(nodes: Sequence[onnx.NodeProto], weights: Mapping[str, Float32Array], about: Mapping[str, str]) -> bytes:
    graph = helper.make_graph(
        nodes,
        "illuminant",
        [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["n", INPUTS])],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["n", RATIOS])],
        [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in weights.items()],
    )
    model = helper.make_model(
        graph, producer_name="benchwright", opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR
    )
    helper.set_model_props(model, dict(sorted(about.items())))
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString(deterministic=True)


@torch.no_grad()
def torch_ratios(nets: IlluminantNets, X: Float32Array) -> Float32Array:
    """The result of the ONNX file as computed by torch: (n, 2)."""
    return nets(torch.from_numpy(X).expand(nets.runs, *X.shape)).log().mean(dim=0).exp().numpy()
