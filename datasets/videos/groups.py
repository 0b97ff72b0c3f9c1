"""Groups, such as recordings, performers or cameras, that are kept together when clips are split."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...curation.rng import uniform


def whole_groups(
    groups: np.ndarray, *, seed: int, stage: str, until: tuple[float, float], with_middle: bool, with_last: bool
) -> np.ndarray:
    """The part, 0 to 2, of every clip, (n,) int64. All clips of a group are in one part.

    Groups are put in random order, and each goes to the part that contains its middle clip. With few or uneven groups, every
    part that has a share gets at least one group if there are enough.

    Args:
        groups: (n,) strings, the group of every clip.
        seed: seed for the order.
        stage: name of the random draw.
        until: number of clips of the first part, and of the first and second together.
        with_middle: whether the second part has a share.
        with_last: whether the third part has a share.

    >>> parts = whole_groups(np.array(["a", "b", "b", "c"]), seed=0, stage="s", until=(2, 3), with_middle=True, with_last=True)
    >>> sorted(set(parts.tolist())), bool(parts[1] == parts[2])
    ([0, 1, 2], True)
    """
    names, index, counts = np.unique(groups, return_inverse=True, return_counts=True)
    sizes = dict(zip(names.tolist(), counts.tolist(), strict=True))
    parts = parts_of_groups(sizes, seed=seed, stage=stage, until=until, with_middle=with_middle, with_last=with_last)
    return np.asarray(list(parts.values()), dtype=np.int64)[index]


def parts_of_groups(
    sizes: Mapping[str, int], *, seed: int, stage: str, until: tuple[float, float], with_middle: bool, with_last: bool
) -> dict[str, int]:
    """``whole_groups`` for the number of clips of each group: group -> part, in the order of the names.

    >>> parts = parts_of_groups({"b": 2, "a": 1}, seed=0, stage="s", until=(2, 3), with_middle=False, with_last=True)
    >>> list(parts), sorted(parts.values())
    (['a', 'b'], [0, 2])
    """
    names = sorted(sizes)
    counts = np.asarray([sizes[name] for name in names])
    order = np.argsort(uniform(seed, stage, names), kind="stable")
    middle = np.cumsum(counts[order]) - counts[order] / 2
    ranked = np.searchsorted(np.asarray(until), middle, side="right")
    ranked[0] = 0
    if len(names) > 1 and with_last:
        ranked[-1] = 2
    if len(names) > 2 and with_middle and 1 not in ranked:
        first = int(np.sum(ranked == 0))
        ranked[min(first, len(names) - 2)] = 1
    return dict(zip(names, ranked[np.argsort(order)].tolist(), strict=True))
