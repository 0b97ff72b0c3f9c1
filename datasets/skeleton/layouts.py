"""Joint layouts as graphs: names, edges and a centre; ST-GCN's and CTR-GCN's partitions of their neighbourhoods."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...curation.package_data import package_toml

MAX_JOINTS = 1000


@dataclass(frozen=True)
class Layout:
    """Joints and the bones between them. The values are checked on creation.

    Attributes:
        name: name of the layout.
        joints: names of the joints, in the order of the data.
        edges: pairs of joints, numbered from 0, in either direction, each once; they connect all joints.
        centre: joint from which distances are counted.

    Raises:
        ValueError: a repeated name, an edge with an unknown joint, a loop, a repeated edge, or joints that are not connected.
    """

    name: str
    joints: tuple[str, ...]
    edges: tuple[tuple[int, int], ...]
    centre: int

    def __post_init__(self) -> None:
        count = len(self.joints)
        where = f"layout {self.name!r}"
        if not 1 <= count <= MAX_JOINTS:
            raise ValueError(f"{where} has {count} joints: 1 to {MAX_JOINTS} are possible")
        if twice := [joint for joint in self.joints if self.joints.count(joint) > 1]:
            raise ValueError(f"{where}: joint {twice[0]!r} is named twice")
        if not 0 <= self.centre < count:
            raise ValueError(f"{where}: centre {self.centre} is not a joint: they are numbered 0 to {count - 1}")
        seen: set[frozenset[int]] = set()
        for edge in self.edges:
            if len(edge) != 2 or not all(0 <= joint < count for joint in edge):
                raise ValueError(f"{where}: edge {list(edge)} is not a pair of joints: they are numbered 0 to {count - 1}")
            if len(set(edge)) == 1 or frozenset(edge) in seen:
                raise ValueError(f"{where}: edge {list(edge)} {'is a loop' if len(set(edge)) == 1 else 'appears twice'}")
            seen.add(frozenset(edge))
        if (apart := np.flatnonzero(~np.isfinite(self.hops()[self.centre]))).size:
            raise ValueError(f"{where}: no path of edges leads from joint {self.joints[int(apart[0])]!r} to the centre")

    def adjacency(self) -> NDArray[np.float32]:
        """Adjacency matrix, (V, V) float32 of 0 and 1, symmetric, without self-loops."""
        found = np.zeros((len(self.joints), len(self.joints)), dtype=np.float32)
        for one, other in self.edges:
            found[one, other] = found[other, one] = 1
        return found

    def hops(self) -> NDArray[np.float64]:
        """Number of edges on the shortest path between two joints, (V, V) float64; infinite if there is none."""
        found = np.where(self.adjacency() > 0, 1.0, np.inf)
        np.fill_diagonal(found, 0)
        for via in range(len(self.joints)):  # Floyd-Warshall
            found = np.minimum(found, found[:, via, None] + found[via])
        return found

    def parents(self) -> NDArray[np.int64]:
        """The next joint on the shortest path to the centre, (V,) int64, the lowest of several; the centre's is itself."""
        hops = self.hops()
        nearer = (hops == 1) & (hops[self.centre][None] == hops[self.centre][:, None] - 1)
        return np.where(hops[self.centre] == 0, self.centre, nearer.argmax(1)).astype(np.int64)

    def partitions(self, preset: Literal["as_released", "as_written"] = "as_released") -> NDArray[np.float32]:
        """The spatial partitioning of ST-GCN (Yan et al., AAAI 2018, section 3.3): three parts of one matrix with self-loops.

        Args:
            preset: ``as_written``: (the joint itself and neighbours equally far from the centre, nearer ones, further ones);
                ``as_released``: (the joint itself, further or equally far ones, nearer ones). The released code also cuts
                distances off after one edge: joints two or more edges from the centre count as equally far.

        Returns:
            (3, V, V) float32; entry [k, v, w] weighs what joint v gives to joint w: ``y[..., w] = sum_v x[..., v] A[k, v, w]``.
            The columns of the sum over k sum to 1.
        """
        joined, itself = self.adjacency(), np.eye(len(self.joints))
        far = self.hops()[self.centre]
        if preset == "as_released":
            far = np.where(far > 1, np.inf, far)
        elif preset != "as_written":
            raise ValueError(f"preset {preset!r}: as_released or as_written")
        further, nearer = joined * (far[:, None] > far[None]), joined * (far[:, None] < far[None])
        equal = joined - further - nearer
        parts = (itself, equal + further, nearer) if preset == "as_released" else (itself + equal, nearer, further)
        return np.stack([part / (joined + itself).sum(0) for part in parts]).astype(np.float32)

    def as_values(self) -> dict[str, Any]:
        """The layout as plain values, for JSON; ``layout_from_values`` reads them."""
        return {
            "name": self.name,
            "joints": list(self.joints),
            "edges": [list(edge) for edge in self.edges],
            "centre": self.centre,
        }


def layout_from_values(values: dict[str, Any]) -> Layout:
    """The layout for the values of ``as_values``. Raises ``ValueError`` as ``Layout`` does."""
    edges = tuple((int(one), int(other)) for one, other in values["edges"])
    return Layout(str(values["name"]), tuple(map(str, values["joints"])), edges, int(values["centre"]))


@functools.cache
def built_in_layouts() -> dict[str, Layout]:
    """The layouts in ``layouts.toml`` by name."""
    return {
        name: layout_from_values({"name": name, **values}) for name, values in package_toml(__package__, "layouts.toml").items()
    }
