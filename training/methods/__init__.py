"""Baselines, one file per method, for every benchmark: what a sample is (features, an image, a clip) no method knows.

A method (``method.py``) is a value: the rule that chooses which of the rows seen so far the model trains on, the function
``teach(lesson)`` that trains it, which exemplars are kept, and how classes are distinguished. CLEAR's buffers are rules alone;
the others give ``lesson.fit`` a loss. To add one, write a function that gives a ``Method`` and name it in ``registry.py``.
"""
