"""The authors' radiometric set as one MATLAB file of lights and transforms, without the colours.

Source: the loader of the released code (SamsungLabs/two-camera-white-balance, ``data_loader.py``), which reads
``transforms1to2``, and the first three columns of ``wb_gts_1`` and ``wb_gts_2``, one row per pair in all three. The file itself
is not among the downloads that the release lists. The paper has 18,000 pairs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...curation.bounded_reading import read_file
from ...curation.matlab import read_mat
from ...curation.rows import Reject, Rejected
from .rows import MeasuredPair
from .transforms import checked_light, checked_matrix

_NAMES = ("transforms1to2", "wb_gts_1", "wb_gts_2")


def read_radiometric_file(*, path: str) -> Iterator[MeasuredPair | Rejected]:
    """Source step: the pairs of the file, in its order.

    Args:
        path: local path or fsspec URL of the ``.mat`` file: transforms (n, 3, 3), or (n, 9) row by row, and lights (n, 3 or
            more).

    Yields:
        Pairs with the keys ``radiometric_00000`` and so on, whose numbers are those of the released parts. The file has no
        transform from the second camera to the first: ``transform_2to1`` is the inverse of the other, not a fit. Rejects:
        ``bad_numbers``.

    Raises:
        FileNotFoundError: the path does not exist.
        ValueError: another form.

    >>> from scipy.io import savemat
    >>> lights = np.array([[0.5, 1.0, 0.7], [0.6, 1.0, 0.5]])
    >>> savemat("radio.mat", {"transforms1to2": np.stack([np.eye(3)] * 2), "wb_gts_1": lights, "wb_gts_2": lights})
    >>> [(pair.key, pair.gt_1) for pair in read_radiometric_file(path="radio.mat")]
    [('radiometric_00000', [0.5, 1.0, 0.7]), ('radiometric_00001', [0.6, 1.0, 0.5])]
    """
    try:
        found = read_mat(read_file(path), _NAMES)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    shapes = {name: [cell.shape for cell in found[name]] for name in _NAMES}
    transforms, lights_1, lights_2 = (found[name][0] for name in _NAMES)
    count = len(transforms) if transforms.ndim else 0
    lights = all(each.ndim == 2 and len(each) == count and each.shape[1] >= 3 for each in (lights_1, lights_2))
    if transforms.shape[1:] not in ((3, 3), (9,)) or not lights:
        raise ValueError(f"{path}: shapes {shapes}, expected (n, 3, 3) or (n, 9) and twice (n, 3)")
    for number in range(count):
        key = f"radiometric_{number:05d}"
        try:
            transform = checked_matrix(transforms[number], _NAMES[0])
            yield MeasuredPair(
                key=key,
                name=key,
                gt_1=checked_light(lights_1[number, :3], _NAMES[1]),
                gt_2=checked_light(lights_2[number, :3], _NAMES[2]),
                transform_1to2=transform,
                transform_2to1=np.linalg.inv(np.reshape(transform, (3, 3))).ravel().tolist(),
                transform_chart_1to2=None,
                transform_chart_2to1=None,
                condition_1=None,
                condition_2=None,
            )
        except Reject as reject:
            yield Rejected(key, reject.reason, reject.detail)
