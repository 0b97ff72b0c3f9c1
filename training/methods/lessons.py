"""What a method's ``teach`` is given: a lesson of one model, or of many streams side by side, which have the same members."""

from __future__ import annotations

from ..core.lesson import ForwardPass, Lesson
from ..graph_streams.streams import Streams, StreamStep

AnyLesson = Lesson | Streams
AnyStep = ForwardPass | StreamStep
