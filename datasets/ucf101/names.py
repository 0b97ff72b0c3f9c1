"""Names of UCF101's clips: ``v_<Class>_g<group>_c<clip>``. Clips of one group share people, place or recording."""

from __future__ import annotations

import re
from typing import NamedTuple

_NAME = re.compile(r"v_([A-Za-z0-9]+)_(g\d{2})_(c\d{2})\Z")


class ClipName(NamedTuple):
    """Parts of a name: class as the file writes it (``HandStandPushups``), group ``g01`` to ``g25``, clip ``c01`` and on."""

    class_name: str
    group: str
    clip: str


def parse_name(stem: str) -> ClipName | None:
    """Parts of a file's name without extension; None where it is not of that form.

    >>> parse_name("v_HandStandPushups_g01_c02")
    ClipName(class_name='HandStandPushups', group='g01', clip='c02')
    >>> parse_name("holiday") is None
    True
    """
    found = _NAME.match(stem)
    return ClipName(found[1], found[2], found[3]) if found else None


def group_of(stem: str, label: str) -> str:
    """Name of a clip's group, different for different classes: ``Surfing/g22``; the clip itself where the name has none.

    >>> group_of("v_Surfing_g22_c04", "Surfing"), group_of("holiday", "Surfing")
    ('Surfing/g22', 'holiday')
    """
    name = parse_name(stem)
    return f"{label}/{name.group}" if name else stem
