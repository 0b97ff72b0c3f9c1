"""Transforms between two cameras under another light, without the pictures: M measured pairs become M * M.

The paper re-illuminates pictures by their charts (Eqs. 8 and 9) and refits the transform. Released metadata has no pictures,
but two transforms of each pair: T_i of the picture and A_i of the chart. They differ because the picture has other colours than
the chart and the views do not match to the pixel; E_i = T_i A_i^-1 is that difference, a map within the first camera's colours.
Replacing light i by j scales that camera's colours by the ratio of the two lights (von Kries), which changes E_i to E_ij, and
the chart under j is mapped by A_j, so that T_ij = E_ij A_j.

Released transforms are fitted to chromaticities (colours of sum 1; the rows of T sum to 1), for which a change of light is not
linear. It is linearised at the chromaticity of the picture's light, which is taken as the picture's mean chromaticity: E_ij
agrees with the exact change at that point and has its derivative there.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from ...datasets.two_camera.rows import TransformPairs

Floats = NDArray[np.float64]

_TANGENT = np.array([[1.0, -1.0, 0.0], [0.0, -1.0, 1.0]])  # changes of chromaticity keep the sum


def reilluminated_transforms(image: Floats, chart: Floats, light: Floats, new_chart: Floats, new_light: Floats) -> Floats:
    """T_ij of n pictures, each under another light.

    Args:
        image, chart: (n, 3, 3) transforms of picture i on chromaticities, rows of sum 1, ``colour_2 = colour_1 @ T``.
        light: (n, 3) its light in the first camera, above 0, in any scale.
        new_chart, new_light: the same for pair j.

    Returns:
        (n, 3, 3); equal to ``image`` if i = j, except for released rows that do not quite sum to 1.

    Raises:
        ValueError: a chart's transform cannot be inverted.
    """
    try:
        difference = image @ np.linalg.inv(chart)
    except np.linalg.LinAlgError as error:
        raise ValueError(f"a chart's transform cannot be inverted: {error}") from None
    mean = light / light.sum(axis=1, keepdims=True)
    ratio = new_light / light
    before = _change(mean, ratio)
    after = _change((mean[:, None] @ difference)[:, 0], ratio)
    # ``before`` changes the light of the mean and of two changes around it; ``after`` does so for their images under E_i.
    basis = np.concatenate([mean[:, None], np.broadcast_to(_TANGENT, (len(mean), 2, 3))], axis=1)
    return np.linalg.solve(basis @ before, basis @ difference @ after) @ new_chart


def _change(point: Floats, ratio: Floats) -> Floats:
    """(n, 3, 3) maps of row vectors: chromaticity x -> x * ratio / sum(x * ratio), linearised at ``point`` (n, 3) of sum 1.

    The function is homogeneous of degree 0, so its derivative D at the point has point @ D = 0, and the map point -> image is
    added by the rank-1 term 1 image^T, which does not affect changes of sum 0.
    """
    scaled = point * ratio
    total = scaled.sum(axis=1)[:, None, None]
    image = (scaled / total[:, 0])[:, None]
    derivative = ratio[:, :, None] * (np.eye(3) - np.ones((3, 1)) @ image) / total
    return derivative + np.ones((3, 1)) @ image


def reilluminated(pairs: TransformPairs) -> TransformPairs:
    """The measured pairs, followed by each pair under the light of every other pair; both directions.

    The evaluation must ensure that no training row has the light of a test pair, as ``eval.protocols.cross_validation`` does.

    Args:
        pairs: n measured pairs with the charts' transforms.

    Returns:
        n * n rows. A re-illuminated row has ``source_key`` i, ``target_key`` j, the fold of i, the lights and charts of j.

    Raises:
        ValueError: a row is not measured, or has no chart.
    """
    if not pairs.original.all() or np.isnan(pairs.transform_chart_1to2).any() or np.isnan(pairs.transform_chart_2to1).any():
        raise ValueError("measured pairs with the transforms of their charts are needed, and nothing else")
    i, j = (each.ravel() for each in np.meshgrid(np.arange(len(pairs)), np.arange(len(pairs)), indexing="ij"))
    i, j = i[i != j], j[i != j]
    source, target = pairs.take(i), pairs.take(j)
    changed = {
        f"transform_{way}": reilluminated_transforms(
            getattr(source, f"transform_{way}"),
            getattr(source, f"transform_chart_{way}"),
            getattr(source, f"gt_{way[0]}"),
            getattr(target, f"transform_chart_{way}"),
            getattr(target, f"gt_{way[0]}"),
        )
        for way in ("1to2", "2to1")
    }
    both = np.char.add(np.char.add(source.key, "-as-"), target.key)
    named = {"key": both, "name": both, "source_key": source.key, "target_key": target.key}
    made = dataclasses.replace(target, **named, **changed, original=np.zeros(len(i), dtype=bool), fold=source.fold)
    fields = TransformPairs.__dataclass_fields__
    return TransformPairs(**{name: np.concatenate([getattr(pairs, name), getattr(made, name)]) for name in fields})
