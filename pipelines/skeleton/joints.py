"""The skeleton layout of the settings."""

from __future__ import annotations

import posixpath

from ...curation.bounded_reading import read_file
from ...curation.rows import Reject
from ...datasets.skeleton.bvh import layout_of_bvh
from ...datasets.skeleton.layouts import Layout, packaged
from ..config import ConfigError
from .config import SkeletonConfig
from .source_config import BvhLayout, PackagedLayout


def layout_for(c: SkeletonConfig) -> Layout:
    """The layout of the settings. Raises ``ConfigError`` if it is invalid."""
    told = c.layout
    if isinstance(told, PackagedLayout):
        return packaged()[told.name]
    if isinstance(told, BvhLayout):
        try:
            return layout_of_bvh(read_file(told.file), posixpath.splitext(posixpath.basename(told.file))[0])
        except (Reject, OSError, ValueError) as error:
            raise ConfigError(f"layout.file = {told.file!r}: {error}") from None
    try:
        return Layout(told.name, tuple(told.joints), tuple(told.edges), told.centre)
    except ValueError as error:
        raise ConfigError(f"layout: {error}") from None
