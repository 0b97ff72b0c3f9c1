"""GEM's projection: the quadratic program against a solver of another kind, and what a step may not do."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from benchwright.training.methods import gem
from scipy.optimize import nnls


def reference(matrix: np.ndarray, linear: np.ndarray, margin: float) -> np.ndarray:
    """The same program as non-negative least squares: u = v - margin, A = L L^T, |L^T u + L^-1 c|^2."""
    root = np.linalg.cholesky(matrix)
    found, _ = nnls(root.T, -np.linalg.solve(root, linear + margin * matrix.sum(1)))
    return found + margin


@pytest.mark.parametrize("tasks", [1, 2, 4, 6])
@pytest.mark.parametrize("margin", [0.0, 0.5, 5.0])
def test_the_program_is_solved_exactly(tasks: int, margin: float) -> None:
    draw = np.random.default_rng(tasks)
    free: list[np.ndarray] = []
    for scale in (0.03, 1.0, 100.0):
        roots = scale * draw.normal(size=(40, tasks, 9))
        matrix = roots @ roots.transpose(0, 2, 1) + 1e-3 * np.eye(tasks)
        linear = 30 * (margin + 1) * scale**2 * draw.normal(size=(40, tasks))
        ours = gem.solve_above(torch.from_numpy(matrix), torch.from_numpy(linear), margin).numpy()
        theirs = np.stack([reference(a, b, margin) for a, b in zip(matrix, linear, strict=True)])
        assert np.allclose(ours, theirs, rtol=1e-6, atol=1e-8)
        assert (ours >= margin).all()
        free.append(ours > margin)
    assert 0.1 < np.mean(free) < 0.9


def test_a_step_does_not_go_against_a_memory() -> None:
    draw = torch.Generator().manual_seed(0)
    gradient, memories = torch.randn(50, 20, generator=draw), torch.randn(50, 3, 20, generator=draw)
    along = torch.einsum("rtp,rp->rt", memories, gradient)
    moved = gem.project_to_cone(gradient, memories, margin=0.0)
    against = (along < 0).any(1)
    assert against.any()
    assert not against.all()
    assert torch.equal(moved[~against], gradient[~against])
    # epsilon on the diagonal lets v short of the exact one by a thousandth.
    assert torch.einsum("rtp,rp->rt", memories, moved).min() > -1e-2
    one = gem.project_to_cone(gradient[:, :], memories[:, :1], margin=0.0)
    m, g = memories[:, 0].double(), gradient.double()
    share = (-(m * g).sum(1) / ((m * m).sum(1) + gem.EPSILON)).clamp_min(0)
    assert torch.allclose(one.double(), g + share[:, None] * m, atol=1e-5)


@pytest.mark.parametrize("tasks", [4, 12])
def test_a_stream_that_diverged_changes_no_other(tasks: int) -> None:
    draw = torch.Generator().manual_seed(3)
    gradient, memories = torch.randn(3, 20, generator=draw), torch.randn(3, tasks, 20, generator=draw)
    expected = gem.project_to_cone(gradient, memories, margin=0.5)
    memories[1, 2], gradient[1] = torch.nan, torch.inf
    found = gem.project_to_cone(gradient, memories, margin=0.5)
    assert torch.equal(found[::2], expected[::2])
    assert not found[1].isfinite().any()


def test_a_margin_adds_so_much_of_each_memory() -> None:
    gradient, memories = torch.tensor([[-1.0, 0.0]]), torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    assert torch.allclose(gem.project_to_cone(gradient, memories, margin=5.0), torch.tensor([[4.0, 5.0]]))


def test_streams_are_projected_apart() -> None:
    draw = torch.Generator().manual_seed(1)
    gradient, memories = torch.randn(5, 12, generator=draw), torch.randn(5, 4, 12, generator=draw)
    every = gem.project_to_cone(gradient, memories, margin=0.5)
    alone = torch.cat([gem.project_to_cone(gradient[r : r + 1], memories[r : r + 1], margin=0.5) for r in range(5)])
    assert torch.equal(every, alone)
    none = gem.project_to_cone(gradient, memories[:, :0], margin=0.5)
    assert none is gradient


@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_many_tasks_are_solved_as_few_are(margin: float, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(2)
    gradient, memories = torch.randn(5, 30, generator=draw), torch.randn(5, 6, 30, generator=draw)
    few = gem.project_to_cone(gradient, memories, margin=margin)
    monkeypatch.setattr(gem, "MOST_TASKS", 5)
    assert torch.allclose(gem.project_to_cone(gradient, memories, margin=margin), few, rtol=1e-5, atol=1e-6)
    monkeypatch.undo()
    memories = torch.randn(5, 19, 30, generator=draw)
    moved = gem.project_to_cone(gradient, memories, margin=0.0)
    assert torch.einsum("rtp,rp->rt", memories, gradient).min() < -1
    assert torch.einsum("rtp,rp->rt", memories, moved).min() > -1e-2
