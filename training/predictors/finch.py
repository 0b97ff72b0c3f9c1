"""FINCH: clusters from first neighbours, without a parameter.

Source: Sarfraz, Sharma and Stiefelhagen, "Efficient Parameter-free Clustering Using First Neighbor Relations", CVPR 2019.
Two rows are linked if one is the other's first neighbour, or both have the same one; clusters are the connected components;
then the clusters' means are clustered in the same way, until a step merges at most one cluster.

The authors' package (finch-clust 0.2.3) holds an n x n matrix of distances twice, uses approximate neighbours above 20,000
rows and prints a warning on import, so this is our own implementation, tested to find the same partitions: a level that merges
at most one cluster, or merges all, is dropped. (The package's ``ensure_early_exit``, which would cut long links, has no effect:
the cut links stay in its sparse matrix as zeros, and scipy counts these as links.)
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from ...curation.encoders.one_thread import one_thread

Partition = NDArray[np.int64]
Distance = Literal["cosine", "euclidean"]


def finch(X: ArrayLike, *, distance: Distance = "cosine", device: str = "cpu", batch_size: int = 2048) -> list[Partition]:
    """All partitions, finest first; at least one.

    Args:
        X: (n, d) float, n >= 1.
        distance: distance between rows; FINCH recommends cosine for features of networks.
        batch_size: rows whose distances to all others are held at once; no effect on the result.

    Returns:
        A list of (n,) int64 cluster numbers 0..k-1, numbered by their first row. The last is the coarsest.
    """
    rows = np.asarray(X, dtype=np.float32)
    if rows.ndim != 2 or len(rows) == 0:
        raise ValueError(f"cannot cluster an array of shape {rows.shape}: (n, d) with n >= 1 is needed")
    if distance not in ("cosine", "euclidean"):
        raise ValueError(f"distance {distance!r}: 'cosine' or 'euclidean'")
    with one_thread():
        clusters = _components(_first_neighbours(rows, distance, device, batch_size))
        partitions = [clusters]
        while (count := int(clusters.max()) + 1) > 1:
            means = _means(rows, clusters, count)
            merged = _components(_first_neighbours(means, distance, device, batch_size))
            gained = count - (int(merged.max()) + 1)
            if gained <= 1 or gained == count - 1:
                break
            clusters = merged[clusters]
            partitions.append(clusters)
    return partitions


def _first_neighbours(X: NDArray[np.float32], distance: Distance, device: str, batch_size: int) -> Partition:
    """Nearest other row of each row; ties go to the first."""
    points = torch.from_numpy(X).to(device)
    if distance == "cosine":
        points = torch.nn.functional.normalize(points)
    half = (points * points).sum(1) / 2 if distance == "euclidean" else torch.zeros(len(points), device=points.device)
    neighbour = np.zeros(len(X), dtype=np.int64)
    for start in range(0, len(X) if len(X) > 1 else 0, batch_size):
        nearness = points[start : start + batch_size] @ points.T - half  # |a - b|^2 = |a|^2 - 2 (ab - |b|^2 / 2)
        at = torch.arange(len(nearness))
        nearness[at, start + at] = -torch.inf
        neighbour[start : start + len(nearness)] = nearness.argmax(dim=1).cpu().numpy()
    return neighbour


def _components(neighbour: Partition) -> Partition:
    """Connected components of row -> first neighbour, numbered by their first row."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    size = len(neighbour)
    graph = csr_array((np.ones(size, dtype=np.int8), (np.arange(size), neighbour)), shape=(size, size))
    _, labels = connected_components(graph, directed=False)
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int64)


def _means(X: NDArray[np.float32], clusters: Partition, count: int) -> NDArray[np.float32]:
    sums = torch.zeros((count, X.shape[1]), dtype=torch.float64)
    sums.index_add_(0, torch.from_numpy(clusters), torch.from_numpy(X).double())
    sizes = np.bincount(clusters, minlength=count)
    return (sums.numpy() / sizes[:, None]).astype(np.float32)
