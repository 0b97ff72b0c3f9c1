"""Generated pictures for configurations that need no files: superclasses are shapes, subclasses are their colours."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...curation.png import stored_png
from ...curation.rng import rng
from ...curation.rows import Blob
from ..class_images.folders import ClassImage
from .hierarchy import Hierarchy

SIDE_PX = 16

_COLOURS = {
    "red": (205, 40, 40),
    "green": (40, 160, 60),
    "blue": (45, 70, 210),
    "yellow": (235, 215, 50),
    "purple": (150, 50, 175),
    "white": (245, 245, 245),
}
_SHAPES = ("disc", "square", "cross", "ring", "bar")
_LONE = ("stripes", "checks", "noise")


def drawn_hierarchy(*, shapes: int, colours: int, lone: int) -> Hierarchy:
    """A hierarchy of superclasses ``disc``, ``square``, ... with subclasses ``red disc``, ..., and of lone textures.

    Args:
        shapes: 1 to 5.
        colours: 1 to 6.
        lone: 0 to 3.

    Raises:
        ValueError: a number is out of its range.
    """
    for name, count, least, most in (("shapes", shapes, 1, 5), ("colours", colours, 1, 6), ("lone", lone, 0, 3)):
        if not least <= count <= most:
            raise ValueError(f"{name} = {count}: expected {least} to {most}")
    hues = list(_COLOURS)[:colours]
    return Hierarchy(tuple((shape, tuple(f"{hue} {shape}" for hue in hues)) for shape in _SHAPES[:shapes]), _LONE[:lone])


def draw_class_images(
    *, shapes: int, colours: int, lone: int, train_per_class: int, test_per_class: int, broken: int, seed: int
) -> Iterator[ClassImage]:
    """Source step: pictures of ``SIDE_PX`` x ``SIDE_PX`` pixels, class by class.

    Args:
        train_per_class, test_per_class: pictures of each subclass.
        broken: number of additional, truncated training files of the first class; if not 0, also adds one picture of a class
            outside the hierarchy.
        seed: seed for positions, sizes and noise.
    """
    tree = drawn_hierarchy(shapes=shapes, colours=colours, lone=lone)
    for name in tree.subclasses:
        for split, count in (("train", train_per_class), ("test", test_per_class)):
            for number in range(count):
                yield _class_image(name, split, number, seed)
    first = tree.subclasses[0]
    for number in range(train_per_class, train_per_class + broken):
        whole = _class_image(first, "train", number, seed)
        yield ClassImage(whole.key, Blob(whole.image.read()[:-40]), "png", "train", first, whole.file)
    if broken:
        stray = _class_image(_LONE[-1], "train", train_per_class, seed)
        yield ClassImage("train-stray", stray.image, "png", "train", "stray", "train/stray/0000.png")


def _class_image(name: str, split: str, number: int, seed: int) -> ClassImage:
    folder = name.replace(" ", "_")
    key = f"{split}-{folder}-{number:04d}"
    generator = rng(seed, "draw_class_images", key)
    return ClassImage(
        key, Blob(stored_png(_picture(name, generator))), "png", split, name, f"{split}/{folder}/{number:04d}.png"
    )


def _picture(name: str, generator: np.random.Generator) -> np.ndarray:
    ground = np.full((SIDE_PX, SIDE_PX, 3), int(generator.integers(70, 130)), dtype=np.int64)
    if name in _LONE:
        ground += 60 * _texture(name, generator)[..., None]
    else:
        hue, shape = name.split()
        ground[_mask(shape, generator)] = _COLOURS[hue]
    return np.clip(ground + generator.integers(-18, 19, size=ground.shape), 0, 255).astype(np.uint8)


def _texture(name: str, generator: np.random.Generator) -> np.ndarray:
    rows, columns = np.mgrid[:SIDE_PX, :SIDE_PX]
    shift = int(generator.integers(4))
    if name == "stripes":
        return (rows + shift) // 2 % 2
    if name == "checks":
        return (rows + shift) // 4 % 2 ^ (columns + shift) // 4 % 2
    return generator.integers(0, 2, size=rows.shape)


def _mask(shape: str, generator: np.random.Generator) -> np.ndarray:
    rows, columns = np.mgrid[:SIDE_PX, :SIDE_PX]
    middle = generator.integers(6, 10, size=2)
    radius = int(generator.integers(4, 7))
    down, across = rows - middle[0], columns - middle[1]
    within = (abs(down) <= radius) & (abs(across) <= radius)
    if shape == "disc":
        return down**2 + across**2 <= radius**2
    if shape == "ring":
        return (down**2 + across**2 <= radius**2) & (down**2 + across**2 >= (radius - 2) ** 2)
    if shape == "cross":
        return within & ((abs(down) <= 1) | (abs(across) <= 1))
    return within & (abs(down) <= 1) if shape == "bar" else within
