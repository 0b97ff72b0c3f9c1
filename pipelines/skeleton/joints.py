"""The skeleton layout of the settings."""

from __future__ import annotations

import posixpath

from ...curation.bounded_reading import read_file
from ...curation.rows import Reject
from ...datasets.skeleton.bvh import layout_of_bvh
from ...datasets.skeleton.layouts import Layout, built_in_layouts
from ..config import ConfigError
from .config import SkeletonConfig
from .source_config import BvhLayout, PackagedLayout


def layout_for(c: SkeletonConfig) -> Layout:
    """The layout of the settings. Raises ``ConfigError`` if it is invalid."""
    layout = c.layout
    if isinstance(layout, PackagedLayout):
        return built_in_layouts()[layout.name]
    if isinstance(layout, BvhLayout):
        try:
            return layout_of_bvh(read_file(layout.file), posixpath.splitext(posixpath.basename(layout.file))[0])
        except (Reject, OSError, ValueError) as error:
            raise ConfigError(f"layout.file = {layout.file!r}: {error}") from None
    try:
        return Layout(layout.name, tuple(layout.joints), tuple(layout.edges), layout.centre)
    except ValueError as error:
        raise ConfigError(f"layout: {error}") from None
