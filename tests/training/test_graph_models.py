"""GCN and ST-GCN along a stream axis: values by hand, gradients against autograd, batch norm against torch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from benchwright.training.models.batch_norm import EPSILON
from benchwright.training.models.flat import Piece, Pieces
from benchwright.training.models.gcn import passes
from benchwright.training.models.gcn.network import Gcn
from benchwright.training.models.st_gcn import StGcn
from torch import Tensor, nn


def graph(nodes: int = 6, seed: int = 0) -> Tensor:
    upper = torch.rand(nodes, nodes, generator=torch.Generator().manual_seed(seed)) > 0.6
    return ((upper | upper.T) | torch.eye(nodes, dtype=torch.bool)).double()


def drawn(net: Gcn | StGcn, streams: int = 2, noise: float = 0.3) -> tuple[Tensor, Tensor]:
    """Parameters, moved so that some scales of batch norm are below zero, and statistics."""
    generator = torch.Generator().manual_seed(5)
    flat = torch.stack([net.parameters.draw(generator) for _ in range(streams)]).double()
    flat = flat + noise * torch.randn(flat.shape, generator=generator, dtype=torch.float64)
    return flat, torch.stack([net.statistics.draw(generator) for _ in range(streams)]).double()


def test_pieces_pad_rows_and_draw_from_their_generator_alone() -> None:
    pieces = Pieces({"a": Piece((3, 5), "glorot"), "b": Piece((1, 5), "linear", 4), "c": Piece((2,), "ones")})
    flat = pieces.draw(torch.Generator().manual_seed(3))
    torch.manual_seed(0)
    assert torch.equal(flat, pieces.draw(torch.Generator().manual_seed(3)))
    assert flat.shape == (64,)
    assert not flat[[15, 21, 22, 23]].any(), "gaps, so that each piece begins at a multiple of 16 bytes"
    assert not flat[26:].any()
    views = pieces.views(flat[None])
    assert [view.storage_offset() for view in views.values()] == [0, 16, 24]
    assert views["a"].shape == (1, 3, 5)
    assert views["a"].abs().max() <= (6 / 8) ** 0.5
    assert views["b"].abs().max() <= 0.5
    assert views["c"].tolist() == [[1, 1]]


def test_a_layer_and_the_readout_by_hand() -> None:
    # Node 0 hears itself and node 1; node 1 itself. Running variance 1 - epsilon makes batch norm the identity, and a hidden
    # layer that passes its inputs on and the output layer give the read-out.
    adjacency, x = torch.tensor([[1.0, 1.0], [0.0, 1.0]]), torch.tensor([[[1.0], [2.0]]])
    for readout, expected in ("weighted_sum_max", [0.5 * 8.5, 5.5]), ("sum_max", [8.5, 5.5]):
        net = Gcn(adjacency, 1, 2, width=1, depth=1, hidden=2, readout=readout)  # pyright: ignore[reportArgumentType]
        flat, statistics = torch.zeros(1, net.parameters.size), torch.zeros(1, net.statistics.size)
        p, seen = net.parameters.views(flat), net.statistics.views(statistics)
        p["0/conv"].fill_(2), p["0/conv_bias"].fill_(-1), p["0/residual"].fill_(-1), p["0/residual_bias"].fill_(1.5)
        p["hidden"][:], p["output"][:] = torch.eye(2), torch.eye(2)
        for name in "0", "hidden":
            p[f"{name}/scale"].fill_(1), seen[f"{name}/variance"].fill_(1 - EPSILON)
        # Node 0: relu(2 * 3 - 1) + relu(-1 + 1.5) = 5.5; node 1: relu(2 * 2 - 1) + relu(-2 + 1.5) = 3. The gate is sigmoid(0).
        logits = net.logits(flat, statistics, net.inputs(x), training=False)
        assert torch.allclose(logits, torch.tensor([[expected]]))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("readout", ["weighted_sum_max", "sum_max"])
@pytest.mark.parametrize("depth", [1, 3])
def test_the_gradient_of_a_step_is_autograds(readout: str, depth: int, weighted: bool) -> None:
    weights = torch.rand(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    adjacency = graph() * weights if weighted else graph()  # with weights it is not symmetric
    net = Gcn(adjacency, 5, 4, width=3, depth=depth, hidden=7, readout=readout)  # pyright: ignore[reportArgumentType]
    flat, statistics = drawn(net)
    x = torch.randn(8, 6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    x[2] = x[2, :1]  # equal nodes share the maximum
    flat.requires_grad_()
    other = statistics.clone()
    ours = net.logits(flat, statistics, net.inputs(x), training=True)
    theirs = net.logits_by_autograd(flat, other, net.inputs(x), training=True)
    weights = torch.randn(ours.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    (mine,) = torch.autograd.grad((ours * weights).sum(), flat)
    (reference,) = torch.autograd.grad((theirs * weights).sum(), flat)
    assert torch.allclose(ours, theirs, atol=1e-12)
    assert torch.allclose(statistics, other, atol=1e-12)
    assert reference.abs().max() > 0.1
    assert torch.allclose(mine, reference, atol=1e-9)


def test_in_single_precision_a_step_is_as_near_as_torchs_own() -> None:
    nets = [Gcn(graph().to(kind), 5, 4, width=16, depth=2) for kind in (torch.float64, torch.float32)]
    flat, statistics = drawn(nets[0], streams=1, noise=0)
    x = torch.randn(40, 6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    weights = torch.randn(1, 40, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))

    def gradient(net: Gcn, how: str, kind: torch.dtype) -> Tensor:
        leaf = flat.to(kind).requires_grad_()
        logits = getattr(net, how)(leaf, statistics.to(kind), net.inputs(x.to(kind)), training=True)
        return torch.autograd.grad((logits * weights.to(kind)).sum(), leaf)[0].double()

    exact = gradient(nets[0], "logits_by_autograd", torch.float64)
    ours, theirs = (gradient(nets[1], how, torch.float32) - exact for how in ("logits", "logits_by_autograd"))
    assert 0 < ours.norm() < 3 * theirs.norm() < 1e-5 * exact.norm()


def test_any_number_of_neighbours_is_summed() -> None:
    draw = np.random.default_rng(0)
    adjacency = np.tril(draw.normal(size=(8, 8)), -1)  # node v has v neighbours
    given, out = draw.normal(size=(2, 3, 8, 5)), np.full((2, 3, 8, 7), 9.0)
    passes.over_neighbours(given, *passes.edges(adjacency), out)
    assert np.allclose(out[..., :5], adjacency @ given)
    assert (out[..., 5:] == 9).all()


def test_a_gradient_asked_for_too_late_is_refused() -> None:
    net = Gcn(graph(), 5, 4, width=3)
    flat, statistics = drawn(net)
    flat.requires_grad_()
    inputs = net.inputs(torch.randn(4, 6, 5, dtype=torch.float64))
    first = net.logits(flat, statistics, inputs, training=True)
    net.logits(flat, statistics, inputs, training=True)
    with pytest.raises(RuntimeError, match="used again"):
        first.sum().backward()


def test_running_statistics_move_as_torchs_batch_norm_moves_them() -> None:
    net = Gcn(graph(), 5, 4, width=3, depth=1)
    flat, statistics = drawn(net, streams=1)
    p, seen = net.parameters.views(flat), net.statistics.views(statistics)
    x = torch.randn(8, 6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    conv = (net.adjacency @ x @ p["0/conv"][0] + p["0/conv_bias"][0]).relu()
    before = conv + (x @ p["0/residual"][0] + p["0/residual_bias"][0]).relu()
    norm = nn.BatchNorm1d(3, dtype=torch.float64)
    norm(before.flatten(0, 1))
    net.logits(flat, statistics, net.inputs(x), training=True)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert torch.allclose(seen["0/mean"][0, 0], norm.running_mean)
    assert torch.allclose(seen["0/variance"][0, 0], norm.running_var)


@pytest.mark.parametrize("training", [True, False])
def test_gcn_does_not_ask_how_nodes_are_numbered(training: bool) -> None:
    adjacency, order = graph(), torch.tensor([3, 0, 5, 1, 4, 2])
    x = torch.randn(7, 6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    nets = [Gcn(adjacency, 5, 4, width=3, depth=2), Gcn(adjacency[order][:, order], 5, 4, width=3, depth=2)]
    flat, statistics = drawn(nets[0])
    first, second = (
        net.logits(flat, statistics.clone(), net.inputs(given), training=training)
        for net, given in zip(nets, (x, x[:, order]), strict=True)
    )
    assert torch.allclose(first, second, atol=1e-12)
    assert torch.allclose(nets[0].topology(flat, nets[0].inputs(x)), nets[1].topology(flat, nets[1].inputs(x[:, order])))


def test_attention_over_equal_nodes_is_uniform() -> None:
    adjacency = graph()
    net = Gcn(adjacency, 5, 4, width=3)
    flat, _ = drawn(net)
    found = net.topology(flat, net.inputs(torch.ones(2, 6, 5, dtype=torch.float64)))
    # A node with d neighbours has d edges of weight 1 / d: squares add up to 1 / d; two graphs.
    expected = (2 * (1 / adjacency.sum(1)).sum()).sqrt()
    assert torch.allclose(found, expected.expand(2))


def test_st_gcn_by_hand() -> None:
    # One channel, three frames, two joints; one partition that gives joint 1 what joint 0 has. Convolutions pass through.
    net = StGcn(torch.tensor([[[0.0, 1.0], [0.0, 0.0]]]), 1, 1, width=1, depth=1, form="yan")
    flat, statistics = torch.zeros(1, net.parameters.size), torch.zeros(1, net.statistics.size)
    p, seen = net.parameters.views(flat), net.statistics.views(statistics)
    for name in p:
        if name.endswith("scale"):
            p[name].fill_(1)
    for name in seen:
        if name.endswith("variance"):
            seen[name].fill_(1 - EPSILON)
    p["0/spatial"].fill_(1), p["0/edges"].fill_(3), p["output"].fill_(1), p["output_bias"].fill_(10)
    p["0/temporal"][..., 4, 0] = 1  # the frame itself
    p["0/temporal"][..., 5, 0] = 2  # the next
    x = torch.tensor([[[[1.0, 7.0], [-2.0, 7.0], [4.0, 7.0]]]])
    # Joint 1 has relu(3 x joint 0): 3, 0, 12; with twice the next frame 3, 24, 12; the mean over 3 frames and 2 joints.
    assert net.logits(flat, statistics, x, training=False).item() == pytest.approx(10 + 39 / 6, abs=1e-4)


def test_st_gcn_is_the_baseline_in_the_code_of_ctr_gcn() -> None:
    # Its formulas, channels first and graph by graph.
    net = StGcn(torch.rand(3, 5, 5), 2, 4, width=3)
    flat, statistics = drawn(net)
    p = {name: value[0] for name, value in net.parameters.views(flat).items()}
    assert p["0/down"].shape == (3, 2)
    assert "1/down" not in p
    x = torch.randn(6, 2, 7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def norm(name: str, values: Tensor) -> Tensor:
        scale, shift = p[f"{name}/scale"].view(-1), p[f"{name}/shift"].view(-1)
        return nn.functional.batch_norm(values, None, None, scale, shift, True)

    rows = x.permute(0, 3, 1, 2).reshape(6, 10, 7)
    h = norm("input", rows).view(6, 5, 2, 7).permute(0, 2, 3, 1)
    for block in range(2):
        weight, bias = p[f"{block}/spatial"].view(3, 3, -1), p[f"{block}/spatial_bias"].view(3, 3)
        graphs = p[f"{block}/edges"] / (p[f"{block}/edges"].square().sum(1, keepdim=True).sqrt() + 1e-4)
        parts = [nn.functional.conv2d(h @ graphs[k], weight[k, :, :, None, None], bias[k]) for k in range(3)]
        y, down = norm(f"{block}/spatial", sum(parts, torch.zeros(()))), h
        if block == 0:
            down = norm("0/down", nn.functional.conv2d(h, p["0/down"][:, :, None, None], p["0/down_bias"]))
        y = (y + down).relu()
        y = norm(
            f"{block}/temporal", nn.functional.conv2d(y, p[f"{block}/temporal"], p[f"{block}/temporal_bias"], padding=(2, 0))
        )
        h = (y + h if block else y).relu()
    expected = h.mean((2, 3)) @ p["output"].T + p["output_bias"]
    assert torch.allclose(net.logits(flat, statistics, x, training=True)[0], expected, atol=1e-10)
    begun, _ = net.draw(torch.Generator().manual_seed(0))
    first = {name: value[0] for name, value in net.parameters.views(begun[None]).items()}
    assert torch.equal(first["1/edges"], torch.eye(5).expand(3, 5, 5))
    assert (first["0/spatial/scale"] == 1e-6).all()


def test_attention_of_st_gcn_over_equal_joints_is_uniform() -> None:
    near = graph()
    for form in ("ctr_gcn", "yan"):
        net = StGcn(near[None], 2, 4, width=3, form=form)
        flat, _ = drawn(net, noise=0)
        x = torch.randn(3, 2, 7, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).expand(-1, -1, -1, 6)
        # A joint with d neighbours, itself among them, has d edges of weight 1 / d, in each frame.
        expected = (3 * 7 * (1 / (near > 0).sum(1)).sum()).sqrt().double()
        assert torch.allclose(net.topology(flat, x), expected.expand(2))


def test_st_gcn_does_not_ask_how_nodes_are_numbered_and_streams_stand_apart() -> None:
    partitions = torch.rand(3, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    order = torch.tensor([4, 2, 0, 1, 3])
    x = torch.randn(6, 2, 7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    nets = [StGcn(part, 2, 4, width=3, form="yan") for part in (partitions, partitions[:, order][:, :, order])]
    flat, statistics = drawn(nets[0], noise=0)
    first, second = (
        net.logits(flat, statistics.clone(), given, training=True) for net, given in zip(nets, (x, x[..., order]), strict=True)
    )
    assert torch.allclose(first, second, atol=1e-12)
    assert not torch.allclose(first[0], first[1])
    alone = nets[0].logits(flat[1:], statistics[1:].clone(), x, training=True)
    assert torch.equal(first[1:], alone)


def test_shapes_are_checked() -> None:
    with pytest.raises(ValueError, match="depth 0"):
        Gcn(graph(), 5, 4, depth=0)
