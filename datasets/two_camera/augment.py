"""Re-illumination: M pictures become M * M, each under the lights of the others.

Source: the paper's Eqs. 8 and 9 (PROTOCOLS 3.2, point 5; the printed equations show the picture where the chart is meant): a
3 x 3 matrix from the chart's colours in picture i to those in picture j, per camera, is applied to picture i; its light becomes that
of j, the same j for both cameras, and the transform between the cameras is fitted anew. 99 of the other j are used of each i.

``targets`` is ours: the paper takes any other picture, so that a training picture may wear the light of a test picture;
``same_fold`` takes those of the picture's own fold, and test lights stay unseen.
"""

from __future__ import annotations

from typing import Literal

Targets = Literal["any", "same_fold"]
